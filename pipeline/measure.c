/* weft doctor --ranks RECIPE [STAGE]: each rank runs the stage's step alone, on synthetic batches, all at the same
 * time; then they measure their links. The result is a file for `weft plan --cluster`. */
#include "core/json.h"
#include "core/settings.h"
#include "dist/cluster.h"
#include "pipeline/pipeline.h"
#include "train/memory_estimate.h"
#include "train/synthetic_batches.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS_LEAST = 3, STEPS_MOST = 64, MICRO_BATCHES_MOST = 8 };
#define SECONDS_LEAST 2.0 /* of pairs of steps */

/* What a rank tells the others. */
struct rank_line {
    char host[64];
    double per_s[WORK_KINDS], call_s, memory_bytes;
};

static i64 largest(const struct schedule *s)
{
    double most = 0;
    for (i64 i = 0; i < s->count; i++)
        most = fmax(most, s->values[i]);
    return (i64)most;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Speeds of kinds of ops within whole steps. What share each kind has is seen in timed steps, how long they take
 * together in plain ones, their median. A step without some kind leaves a speed that nothing needs. */
static int time_steps(struct rank_line *out, struct trainer *trainer)
{
    struct step_result result;
    struct op_times times, sum = {0};
    double plain_s[STEPS_MOST], all_s = 0, begin_s;
    i64 steps = 0;
    int status = train_step(&result, trainer, 0); /* warms up */
    begin_s = clock_s();
    while (status == 0 && steps < STEPS_MOST && (steps < STEPS_LEAST || clock_s() - begin_s < SECONDS_LEAST)) {
        device_time_begin(trainer->model->device, &times);
        status = train_step(&result, trainer, 1 + steps);
        device_time_end(trainer->model->device, &times);
        if (status == 0)
            status = train_step(&result, trainer, 1 + steps);
        plain_s[steps++] = result.seconds;
        sum.cost.calls += times.cost.calls;
        sum.between_s += fmax(0, times.between_s);
        all_s += fmax(0, times.between_s);
        for (int k = 0; k < WORK_KINDS; k++) {
            sum.seconds[k] += times.seconds[k];
            sum.cost.work[k] += times.cost.work[k];
            all_s += times.seconds[k];
        }
    }
    if (status)
        return status;
    qsort(plain_s, (size_t)steps, sizeof *plain_s, ascending);
    double scale = plain_s[steps / 2] * (double)steps / all_s;
    for (int k = 0; k < WORK_KINDS; k++)
        out->per_s[k] = sum.cost.work[k] > 0 ? sum.cost.work[k] / (scale * sum.seconds[k]) : 1e9;
    out->call_s = scale * sum.between_s / (double)sum.cost.calls;
    return 0;
}

static int measure_step(struct rank_line *out, const struct step_work *w, struct device *device)
{
    const struct pretrain_settings *s = w->settings;
    struct model *model = memory_alloc(sizeof *model);
    struct trainer *trainer = memory_alloc(sizeof *trainer);
    struct synthetic_batches batches;
    i64 rows = min_i64(largest(&s->loader.rows), s->loader.micro_rows * MICRO_BATCHES_MOST);
    int status = model_open(model, device, w->config, w->dtype, true, NULL);
    if (status == 0) {
        weights_init(&model->weights, 1);
        trainer_open(trainer, model, (i64)64 << 30);
        synthetic_batches_init(&batches, &model->config, rows, s->loader.micro_rows, largest(&s->loader.length), 1);
        trainer->source = synthetic_batches_source(&batches);
        trainer->optimizer = &s->optimizer;
        trainer->balance.weight[TARGET_MTP] = w->config->mtp;
        trainer->recompute = s->recompute;
        status = time_steps(out, trainer);
        synthetic_batches_release(&batches);
        trainer_close(trainer);
    }
    model_close(model);
    memory_free(trainer);
    memory_free(model);
    return status;
}

/* Hosts in the order of their first ranks. */
static void collect(struct cluster *c, i64 *host_of, const struct rank_line *lines, i64 count)
{
    *c = (struct cluster){.hosts = memory_alloc(count * (i64)sizeof *c->hosts),
                          .ranks = memory_alloc(count * (i64)sizeof *c->ranks),
                          .count = count};
    for (i64 r = 0; r < count; r++) {
        i64 h = 0;
        while (h < c->host_count && strcmp(c->hosts[h].name, lines[r].host) != 0)
            h++;
        if (h == c->host_count)
            c->hosts[c->host_count++] = (struct cluster_host){string_copy(lines[r].host), (i64)lines[r].memory_bytes};
        c->ranks[r] = (struct cluster_rank){.host = host_of[r] = h, .call_s = lines[r].call_s};
        memcpy(c->ranks[r].per_s, lines[r].per_s, sizeof lines[r].per_s);
    }
}

static void name_host(struct rank_line *line)
{
    const char *given = getenv("WEFT_MACHINE");
    gethostname(line->host, sizeof line->host - 1);
    if (given && *given)
        snprintf(line->host, sizeof line->host, "%s", given);
}

/* Free memory of a host, or what a limit leaves this process. */
static double free_bytes(void)
{
    double there = 1024.0 * (double)system_count("/proc/meminfo", "MemAvailable:");
    return fmin(there > 0 ? there : INFINITY, (double)memory_room().left);
}

/* Collective over the world. */
static int measure_all(struct cluster *c, const struct step_work *w, struct comm *world, struct device *device)
{
    struct rank_line *lines = memory_alloc(world->size * (i64)sizeof *lines), *own = &lines[world->rank];
    i64 bytes[world->size], host_of[world->size];
    own->memory_bytes = free_bytes();
    name_host(own);
    comm_barrier(world);
    int status = measure_step(own, w, device);
    for (i64 r = 0; r < world->size; r++)
        bytes[r] = sizeof *lines;
    if (status == 0) {
        comm_all_gather(comm_host(world), lines, bytes);
        collect(c, host_of, lines, world->size);
        cluster_measure_links(c, world, host_of);
    }
    memory_free(lines);
    return status;
}

static int find_stage(const struct recipe **recipe, const struct recipe_stage **stage, const struct recipe_runs *runs)
{
    *stage = NULL;
    for (i64 k = 0; k < runs->count; k++)
        for (i64 i = 0; i < runs->list[k].count && !*stage && runs->list[k].chosen; i++)
            if (runs->list[k].stages[i].selected && recipe_trains_backbone(&runs->list[k].stages[i])) {
                *recipe = &runs->list[k];
                *stage = &runs->list[k].stages[i];
            }
    return *stage ? 0
                  : error_usage("%s: no stage of kind pretrain or sft was chosen: the doctor measures the step of one",
                                runs->list[0].path);
}

static void print_head(struct buffer *out, const struct recipe *r, const struct recipe_stage *s)
{
    buffer_printf(
        out,
        "# Measured by `weft doctor --ranks` with the step of stage %s of %s.\n"
        "# Change any figure to ask \"what if\", for: weft plan RECIPE STAGE --cluster FILE\n"
        "# Ranks stand in their order. gflops: flops a second; gbytes: GB a second, of a rank; of other_host of a\n"
        "# host. memory_gb: free, for all ranks of the host. busy: share of a transfer in which a rank cannot\n"
        "# compute. latency_us: what a short message adds to a step. call_us: between two ops.\n",
        s->name, r->path);
}

/* The world is open. */
static int measure_recipe(struct buffer *out, const struct measure_options *o, struct comm *world)
{
    struct recipe_runs runs;
    const struct recipe *r = NULL;
    const struct recipe_stage *s = NULL;
    struct model_config config;
    struct cluster cluster;
    int status = recipe_runs_open(&runs, o->words[0], o->words + 1, o->word_count - 1, NULL, NULL);
    if (status == 0)
        status = find_stage(&r, &s, &runs);
    if (status == 0 && (status = recipe_stage_config(&config, r, s)) == 0) {
        bool f32 = strcmp(r->precision, "f32") == 0, automatic = strcmp(r->precision, "auto") == 0;
        struct step_work work = {.settings = s->settings,
                                 .config = &config,
                                 .dtype = f32 || (automatic && !o->device->has_bf16) ? DTYPE_F32 : DTYPE_BF16,
                                 .layout = {.data = 1},
                                 .ranks = 1};
        status = step_check_memory(&work, 0, o->device) || measure_all(&cluster, &work, world, o->device) ? -1 : 0;
        if (status == 0) {
            print_head(out, r, s);
            cluster_print(out, &cluster);
            cluster_release(&cluster);
        }
    }
    recipe_runs_close(&runs);
    return status ? -1 : 0;
}

int recipe_measure(struct buffer *out, bool *first, const struct measure_options *o)
{
    struct launch_info launch;
    *first = true;
    if (o->device->backend != BACKEND_CPU)
        return error_usage("weft doctor --ranks measures CPUs: expected --device cpu");
    if (launch_detect(&launch))
        return -1;
    launch.program = o->program;
    ranks_start_workers(&launch);
    struct comm *world = comm_open(o->device, &launch);
    if (!world)
        return -1;
    *first = world->rank == 0;
    int status = measure_recipe(out, o, world);
    if (status && world->size > 1) /* the other ranks wait */
        comm_stop_with(world, error_status(), "%s", error_text());
    comm_close(world);
    return status;
}
