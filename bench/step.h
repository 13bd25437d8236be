/* The step that rows are measured on: one fixed shape, text alone. */
#ifndef WEFT_BENCH_STEP_H
#define WEFT_BENCH_STEP_H
#include "bench/bench.h"
#include "train/step.h"

enum { STEP_ROWS = 4, STEP_LENGTH = 1024 };
#define STEP_ARENA_BYTES ((i64)16 << 30) /* of address space */
struct step_bench {
    struct model model;
    struct trainer trainer;
    struct optimizer_settings optimizer;
    i32 ids[STEP_ROWS * STEP_LENGTH];
};
/* What models of benches have alike; the rest is zero. */
struct model_config step_bench_config(i64 vocabulary, i64 positions);
struct model_config step_bench_shape(i64 experts); /* of the fixed shape */
int step_bench_open(struct step_bench *bench, struct device *device, enum dtype dtype, i64 experts);
/* The same with a model of the caller's, who then gives the trainer batches; at most arena_bytes for a step. */
int step_bench_open_shape(struct step_bench *bench, struct device *device, enum dtype dtype,
                          const struct model_config *config, i64 arena_bytes);
void step_bench_close(struct step_bench *bench);

#endif
