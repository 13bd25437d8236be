#include "dist/dist.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct launch_names { /* environment variables of one launcher */
    const char *source, *rank, *size, *local_rank, *local_size;
};
static const struct launch_names launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

/* Leaves *value unchanged if the variable is not set. Accepts Slurm's "8(x4)", 8 tasks on each of 4
 * nodes, as 8. */
static int read_number(i64 *value, const char *name, i64 least)
{
    const char *text = getenv(name);
    char *end;
    if (!text)
        return 0;
    errno = 0;
    i64 number = strtoll(text, &end, 10);
    if (errno || end == text || (*end && *end != '(' && *end != ',') || number < least)
        return error_set("environment variable %s is \"%s\", expected a number of at least %lld", name, text,
                         (long long)least);
    *value = number;
    return 0;
}

static int check(const struct launch_info *l)
{
    if (l->size > WORLD_MOST)
        return error_set("%s says that there are %lld ranks, at most %d are possible", l->source, (long long)l->size,
                         WORLD_MOST);
    if (l->rank < 0 || l->rank >= l->size)
        return error_set("%s says this is rank %lld of %lld: ranks count from 0", l->source, (long long)l->rank,
                         (long long)l->size);
    return 0;
}

/* Returns 1 if these variables describe the process, 0 if they are not set, -1 and a message
 * otherwise. */
static int read_launcher(struct launch_info *l, const struct launch_names *names)
{
    *l = (struct launch_info){.rank = -1, .local_rank = -1, .source = names->source};
    if (read_number(&l->rank, names->rank, 0) || read_number(&l->size, names->size, 1) ||
        read_number(&l->local_rank, names->local_rank, 0) || read_number(&l->local_size, names->local_size, 1))
        return -1;
    if (l->rank < 0 && l->size == 0)
        return 0;
    if (l->rank < 0 || l->size == 0)
        return error_set("%s is set but %s is not: a launcher sets both", l->rank < 0 ? names->size : names->rank,
                         l->rank < 0 ? names->rank : names->size);
    return check(l) ? -1 : 1;
}

/* Slurm sets its variables in every job, but only a step of several tasks runs ranks. */
static bool is_slurm_step(void)
{
    i64 tasks = 0;
    return getenv("SLURM_STEP_ID") && getenv("SLURM_PROCID") && read_number(&tasks, "SLURM_STEP_NUM_TASKS", 1) == 0 &&
           tasks > 1;
}

static void fill_local(struct launch_info *l)
{
    l->local_rank = l->local_rank < 0 ? l->rank : l->local_rank;
    l->local_size = l->local_size ? l->local_size : l->size;
}

/* Avoids MASTER_PORT itself if torchrun's agent keeps its store there. */
static int read_master(struct launch_info *l)
{
    const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    l->master = getenv("MASTER_ADDR");
    if (l->size == 1 || !l->master)
        return 0;
    if (!*l->master)
        return error_set("MASTER_ADDR is empty, expected the name or address of rank 0's machine");
    if (read_number(&l->port, "MASTER_PORT", 1))
        return -1;
    if (l->port == 0 || l->port > 65535)
        return error_set("MASTER_ADDR is set, expected a MASTER_PORT from 1 to 65535 beside it");
    if (store && strcmp(store, "True") == 0)
        l->port += l->port < 65535 ? 1 : -1;
    return 0;
}

i64 launch_wait_s(void)
{
    i64 seconds = 600;
    require(read_number(&seconds, "WEFT_WAIT_S", 1) == 0, "%s", error_text());
    return seconds;
}

i64 launch_silence_s(const char **name)
{
    i64 seconds = 0;
    require(read_number(&seconds, "WEFT_SILENCE_S", 1) == 0, "%s", error_text());
    if (name)
        *name = seconds ? "WEFT_SILENCE_S" : "WEFT_WAIT_S";
    return seconds ? seconds : launch_wait_s();
}

int launch_detect(struct launch_info *launch)
{
    int found = 0;
    i64 wait_s;
    if (read_number(&wait_s, "WEFT_WAIT_S", 1) || read_number(&wait_s, "WEFT_SILENCE_S", 1))
        return -1;
    *launch = (struct launch_info){.rank = 0, .size = 1, .local_rank = 0, .local_size = 1, .source = "no launcher"};
    for (i64 i = 0; i < COUNT_OF(launchers) && found == 0; i++) {
        struct launch_info read;
        if (i + 1 == COUNT_OF(launchers) && !is_slurm_step())
            break;
        found = read_launcher(&read, &launchers[i]);
        if (found < 0)
            return -1;
        if (found)
            *launch = read;
    }
    fill_local(launch);
    return read_master(launch);
}
