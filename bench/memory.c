/* Memory of training steps: the meta backend's estimate against the growth of the process when the
 * CPU runs them. Each case runs in a process of its own. */
#define _GNU_SOURCE /* pipe2 */
#include "bench/quickstart.h"
#include "bench/step.h"
#include "train/step_memory.h"
#include "train/synthetic_batches.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct elastic_settings draws = {.depth_full = SCHEDULE_CONSTANT(0.75),
                                              .depth_drop = SCHEDULE_CONSTANT(0.25),
                                              .experts_full = SCHEDULE_CONSTANT(0.8),
                                              .expert_groups = 1,
                                              .topk_full = SCHEDULE_CONSTANT(0.8),
                                              .topk_min = 1,
                                              .slice_rows = 4};

struct memory_case {
    const char *what;
    bool quickstart, recompute;
};
static const struct memory_case cases[] = {
    {"the step of `weft bench step`", false, false},
    {"the same, recomputed", false, true},
    {"the quickstart's step, elastic", true, false},
    {"the same, recomputed", true, true},
};
struct memory_outcome {
    struct step_memory memory;
    i64 resident_bytes; /* growth of the process */
};

static int run_steps(struct trainer *trainer, i64 steps)
{
    struct step_result result;
    for (i64 step = 0; step < steps; step++)
        if (train_step(&result, trainer, step))
            return -1;
    return 0;
}

static int run_case(struct memory_outcome *out, const struct memory_case *c, struct device *device, enum dtype dtype)
{
    struct step_bench *b = memory_alloc(sizeof *b);
    struct synthetic_batches batches;
    int status;
    if (c->quickstart) {
        status = step_bench_open_shape(b, device, dtype, &quickstart, STEP_ARENA_BYTES);
        synthetic_batches_init(&batches, &b->model.config, 8, 4, 512, 1);
        b->trainer.source = synthetic_batches_source(&batches);
        b->trainer.balance.weight[TARGET_MTP] = 0.3;
        b->trainer.elastic = &draws;
    } else {
        status = step_bench_open(b, device, dtype, 32);
    }
    b->trainer.recompute = c->recompute;
    if (status == 0)
        status = run_steps(&b->trainer, c->quickstart ? 8 : 2); /* text batches all have one shape */
    if (status == 0)
        step_memory_of(&out->memory, &b->trainer);
    if (c->quickstart)
        synthetic_batches_release(&batches);
    step_bench_close(b);
    memory_free(b);
    return status;
}

static int run_child(const struct memory_case *c, int to)
{
    struct device cpu;
    struct memory_outcome out;
    device_open_cpu(&cpu);
    i64 before = memory_peak_bytes();
    if (run_case(&out, c, &cpu, cpu.has_bf16 ? DTYPE_BF16 : DTYPE_F32)) {
        fprintf(stderr, "weft: %s\n", error_text());
        return 1;
    }
    out.resident_bytes = memory_peak_bytes() - before;
    return write(to, &out, sizeof out) == sizeof out ? 0 : 1;
}

static int measure(struct memory_outcome *out, const struct memory_case *c)
{
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC))
        return error_errno("pipe");
    fflush(stdout);
    workers_stop(); /* threads do not survive fork */
    pid_t child = fork();
    if (child == 0)
        _exit(run_child(c, ends[1]));
    close(ends[1]);
    bool whole = child > 0 && read(ends[0], out, sizeof *out) == sizeof *out;
    close(ends[0]);
    if (child < 0)
        return error_errno("fork");
    waitpid(child, &status, 0);
    workers_start(0);
    return whole && status == 0 ? 0 : error_set("%s: the process that was to be measured failed", c->what);
}

static double megabytes(i64 bytes)
{
    return (double)bytes * 1e-6;
}

int bench_memory(struct device *device, bool json)
{
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct memory_outcome estimated, measured;
        struct device meta;
        struct buffer parts = {0};
        char note[256];
        device_open_meta(&meta);
        int status = run_case(&estimated, &cases[i], &meta, device->has_bf16 ? DTYPE_BF16 : DTYPE_F32);
        device_close(&meta);
        if (status || measure(&measured, &cases[i]))
            return -1;
        step_memory_print(&parts, &estimated.memory, 1e6);
        snprintf(note, sizeof note, "estimated: %s (held: backend %.1f)", parts.data,
                 megabytes(measured.memory.backend));
        buffer_release(&parts);
        bench_print(&(struct bench_row){"memory", cases[i].what, "MB", "what meta counts",
                                        megabytes(measured.resident_bytes),
                                        megabytes(step_memory_total(&estimated.memory)), 1.05, true, note},
                    json);
    }
    return 0;
}
