/* The environment variables that the program, its libraries' callers and the scripts of the source
 * tree read: one table, for `weft help environment` and the man page. tests/cli/test_help.c compares
 * it with the code. */
#include "cli/cli.h"
#include "core/topology.h"
#include "kernels/isa.h"

#include <errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct environment_variable environment_variables[] = {
    {"Cores, memory and disk"},
    {"WEFT_THREADS", "N", "worker threads (default: 1 per available CPU; ranks of a machine share its CPUs)"},
    {"WEFT_PIN", "0|1",
     "1: pin each worker to its own CPU; 0: no pinning. Default: on a NUMA machine each worker stays on its node. "
     "Pinning, and interleaving of pages over the nodes, apply only if the workers use all CPUs"},
    {"WEFT_CPU", "v3|v4|vnni|pairs",
     "lower instruction set than this CPU has: AVX2, AVX-512, AVX-512 with VNNI or with bf16; gives the bits of such a "
     "machine"},
    {"WEFT_MEMORY_LIMIT", "BYTES",
     "limit of the process's memory; more ends with a message (default: the limits of ulimit and of its cgroup)"},
    {"WEFT_SPARE_BYTES", "BYTES", "disk space that is left free (default: 16 MiB); off: it is not checked"},
    {"WEFT_GUARD", "1", "device memory is inaccessible outside of ops, on the CPU too; finds wrong accesses, slower"},
    {"TMPDIR", "DIR", "folder for the files of `weft bench` (default: /tmp)"},
    {"COLUMNS", "N", "width of the terminal, for messages and bars (default: what the terminal says)"},
    {"Ranks and servers of shards"},
    {"WEFT_WAIT_S", "SECONDS", "silence after which a rank or a server of shards is given up (default: 600)"},
    {"WEFT_SILENCE_S", "SECONDS",
     "time without a sign of life after which a rank or a machine is given up (default: WEFT_WAIT_S; of `weft launch`: "
     "15)"},
    {"WEFT_SECRET", "TEXT", "shared secret of all ranks and of `weft serve-tokens`; keeps strangers from their ports"},
    {"WEFT_MACHINE", "NAME",
     "the machine of this rank (default: the host's name): ranks with the same name sum among themselves first"},
    {"WEFT_TOKENS", "HOST:PORT ...", "servers that prepare the shards of streams (`weft serve-tokens`)"},
    {"WEFT_RING", "DIR", "folder of this machine for the shards of streams, in place of the run's folder"},
    {"MASTER_ADDR, MASTER_PORT", "HOST, PORT", "where rank 0 listens; without them ranks meet over MPI"},
    {"RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_USE_AGENT_STORE", "N", "set by torchrun"},
    {"OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE", "N",
     "set by mpirun"},
    {"PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS", "N", "set by mpiexec"},
    {"SLURM_PROCID, SLURM_STEP_ID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE", "N", "set by srun"},
    {"GPUs"},
    {"WEFT_GRAPHS", "0|update", "0: launch op by op, without CUDA graphs; update: record each step anew"},
    {"WEFT_OVERLAP", "0", "kernels do not begin before the kernel ahead of them has ended"},
    {"WEFT_CONV", "own|cudnn", "cudnn: cuDNN computes the convolutions that it can (default: own kernels)"},
    {"WEFT_TUNE", "1", "time the gemm algorithms of cuBLASLt and take the fastest"},
    {"Addresses of data"},
    {"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN", "TEXT", "account for s3:// addresses"},
    {"AWS_REGION, AWS_DEFAULT_REGION", "NAME", "region for s3:// addresses (default: us-east-1)"},
    {"AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL", "URL", "server for s3:// addresses (default: Amazon's)"},
    {"SSL_CERT_FILE", "FILE", "certificates to trust (default: the system's)"},
    {"Tests and scripts of the source tree"},
    {"WEFT_TESTS", "nightly", "tests run at full size"},
    {"WEFT_CORPUS", "DIR", "scripts/nightly: where the inputs of fuzz targets grow"},
    {"WEFT_SEED", "N", "scripts/nightly: seed of the moments of kills"},
    {"WEFT_GPU_CHECK_DEVICE, WEFT_GPU_CHECK_STAGES, WEFT_GPU_CHECK_RANKS, WEFT_GPU_CHECK_LAYOUTS, WEFT_GPU_CHECK_BIN",
     "TEXT", "scripts/gpu-check: device, stages, number of ranks, layouts and programs to try"},
    {"WEFT_EMU_*", "TEXT", "the emulated GPU, described in tests/emulator/include/cuda_runtime.h"},
    {NULL}};

/* ---- Values ---- */

struct checked_variable {
    const char *name;
    const char *values[5]; /* NULL: a whole number of at least `least` */
    long long least, most;
    const char *word; /* allowed in place of a number; NULL: none */
};
static const struct checked_variable checked[] = {
    {"WEFT_THREADS", {NULL}, 1, CPUS_MOST},
    {"WEFT_MEMORY_LIMIT", {NULL}, 1, INT64_MAX},
    {"WEFT_SPARE_BYTES", {NULL}, 0, INT64_MAX, "off"},
    {"WEFT_SILENCE_S", {NULL}, 1, 1 << 20},
    {"WEFT_PIN", {"0", "1"}},
    {"WEFT_CPU", {"v3", "v4", "vnni", "pairs"}},
    {"WEFT_GUARD", {"0", "1"}},
    {"WEFT_GRAPHS", {"0", "1", "update"}},
    {"WEFT_OVERLAP", {"0", "1"}},
    {"WEFT_CONV", {"own", "cudnn"}},
    {"WEFT_TUNE", {"0", "1"}},
};

static bool is_number(const char *text, long long least, long long most)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0 && value >= least && value <= most;
}

static bool is_allowed(const struct checked_variable *c, const char *text)
{
    if (!c->values[0])
        return (c->word && strcmp(text, c->word) == 0) || is_number(text, c->least, c->most);
    for (i64 i = 0; i < COUNT_OF(c->values) && c->values[i]; i++)
        if (strcmp(text, c->values[i]) == 0)
            return true;
    return false;
}

static int refuse(const struct checked_variable *c, const char *text)
{
    struct buffer expected = {0};
    if (!c->values[0] && c->most < INT64_MAX)
        buffer_printf(&expected, "a whole number from %lld to %lld", c->least, c->most);
    else if (!c->values[0])
        buffer_printf(&expected, "a whole number from %lld%s%s", c->least, c->word ? " or " : "",
                      c->word ? c->word : "");
    for (i64 i = 0; i < COUNT_OF(c->values) && c->values[i]; i++)
        buffer_printf(&expected, "%s%s", i ? ", " : "one of ", c->values[i]);
    error_usage("the environment variable %s is \"%s\", expected %s", c->name, text, expected.data);
    buffer_release(&expected);
    return -1;
}

int environment_check(void)
{
    for (i64 i = 0; i < COUNT_OF(checked); i++) {
        const char *text = getenv(checked[i].name);
        if (text && *text && !is_allowed(&checked[i], text))
            return refuse(&checked[i], text);
    }
    const char *level = getenv("WEFT_CPU");
    return level ? cpu_isa_check(level, cpu_isa_highest()) : 0;
}

void environment_print(void)
{
    for (const struct environment_variable *v = environment_variables; v->names; v++)
        if (!v->help)
            printf("%s%s:\n", v == environment_variables ? "" : "\n", v->names);
        else
            printf("  %s=%s\n      %s\n", v->names, v->value, v->help);
}
