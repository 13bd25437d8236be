/* The training step used by several benchmarks: one fixed shape, text only. */
#ifndef WEFT_BENCH_STEP_H
#define WEFT_BENCH_STEP_H
#include "bench/bench.h"
#include "train/step.h"

enum { STEP_ROWS = 4, STEP_LENGTH = 1024 };
#define STEP_ARENA_BYTES ((i64)16 << 30) /* address space */
struct step_bench {
    struct model model;
    struct trainer trainer;
    struct optimizer_settings optimizer;
    i32 ids[STEP_ROWS * STEP_LENGTH];
};
/* Settings common to the benchmarks' models; all others are zero. */
struct model_config step_bench_config(i64 vocabulary, i64 positions);
struct model_config step_bench_shape(i64 experts); /* the fixed shape */
int step_bench_open(struct step_bench *bench, struct device *device, enum dtype dtype, i64 experts);
/* Opens the step with another model and arena size. The caller
 * then sets the trainer's batch source. */
int step_bench_open_shape(struct step_bench *bench, struct device *device, enum dtype dtype,
                          const struct model_config *config, i64 arena_bytes);
void step_bench_close(struct step_bench *bench);

#endif
