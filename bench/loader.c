/* Time a training step waits for data: the step of `weft bench step`, or on a GPU that of the MoE
 * model of `large`. Rows come from text shards made here, through the packer. The wait covers
 * planning of rows, and reading and packing of batches; the shards are in the page cache. */
#include "bench/large.h"
#include "data/loader/packer.h"
#include "tokenizers/text/text.h"

#include <string.h>

enum { TEXTS = 4000, TEXT_LONGEST = 2000, SHARD_BYTES = 4 << 20, ROUNDS = 5 };

struct loader_wait {
    struct loader *loader;
    double seconds;
};

static i64 plan(void *context, i64 step, double totals[TARGETS])
{
    struct loader_wait *w = context;
    struct loader_step planned;
    double begin = clock_s();
    int status = loader_step(w->loader, step, &planned);
    w->seconds += clock_s() - begin;
    if (status)
        return -1;
    memcpy(totals, planned.totals, sizeof planned.totals);
    return planned.micro_batches;
}

static int fill(void *context, i64 step, i64 micro, struct batch *batch, struct arena *arena)
{
    struct loader_wait *w = context;
    double begin = clock_s();
    int status = loader_batch(w->loader, step, micro, batch, arena);
    w->seconds += clock_s() - begin;
    return status;
}

static int make_tokenizer(struct shard_meta *meta, const char *folder)
{
    static const char text[] = "the words of a text";
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 300, .special_tokens = grammar_special_tokens});
    if (text_trainer_feed(trainer, text, sizeof text - 1)) {
        text_trainer_close(trainer);
        return -1;
    }
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    char *path = path_join(folder, "text");
    int status = tokenizer && directory_make(path) == 0 ? text_tokenizer_save(tokenizer, path) : -1;
    if (tokenizer) {
        meta->vocabulary = text_vocabulary(tokenizer);
        text_tokenizer_free(tokenizer);
    }
    memory_free(path);
    return status;
}

static void write_text(struct shard_writer *writer, u32 number)
{
    static const struct rng_key key = {1, RNG_TEST};
    i32 ids[TEXT_LONGEST];
    struct shard_part part = {.kind = STREAM_TEXT, .count = (u32)(1 + rng_below(key, TEXT_LONGEST, number, 0, 0, 0))};
    for (u32 i = 0; i < part.count; i++)
        ids[i] = 100 + (i32)rng_below(key, 100, number, i, 1, 0);
    shard_write_payload(writer, &part, ids, part.count * (i64)sizeof *ids);
    shard_write_sample(writer, DIRECTION_TEXT, "drawn", &part, 1);
    shard_write_break(writer);
}

static int make_shards(const char *folder)
{
    struct shard_meta *meta = memory_alloc(sizeof *meta);
    char *train = path_join(folder, "train");
    int status = make_tokenizer(meta, folder) || shard_meta_save(meta, folder) ? -1 : 0;
    struct shard_writer *writer = status == 0 ? shard_writer_open(train, meta, SHARD_BYTES) : NULL;
    for (u32 i = 0; writer && i < TEXTS; i++)
        write_text(writer, i);
    status = writer ? shard_writer_close(writer) : -1;
    memory_free(train);
    memory_free(meta);
    return status;
}

/* Milliseconds per step, mean over at least 1 s, and the waiting part of it. */
static int steps_ms(double *all, double *waiting, struct step_bench *b, struct loader_wait *w, i64 *step)
{
    struct step_result result;
    double seconds = 0;
    i64 steps = 0;
    for (w->seconds = 0; seconds < 1; steps++) {
        if (train_step(&result, &b->trainer, (*step)++))
            return -1;
        seconds += result.seconds;
    }
    *all = seconds / (double)steps * 1e3;
    *waiting = w->seconds / (double)steps * 1e3;
    return 0;
}

static int measure(struct step_bench *b, struct loader_wait *w, bool json)
{
    double waits[ROUNDS], ratios[ROUNDS], all;
    i64 step = 0;
    b->trainer.source = (struct batch_source){w, plan, fill, NULL};
    if (steps_ms(&all, &waits[0], b, w, &step))
        return -1;
    for (int round = 0; round < ROUNDS; round++) {
        if (steps_ms(&all, &waits[round], b, w, &step))
            return -1;
        ratios[round] = waits[round] / all;
    }
    double wait = bench_median(waits, ROUNDS), ratio = bench_median(ratios, ROUNDS);
    bench_print(&(struct bench_row){"loader", "waiting for rows of text, a step", "ms", "step time", wait, wait / ratio,
                                    0.01, true, NULL},
                json);
    return 0;
}

static struct loader *open_loader(const char *folder, bool large)
{
    static i64 begin[] = {0}; /* schedules are borrowed */
    static double rows[1], length[1];
    rows[0] = large ? LARGE_ROWS : STEP_ROWS;
    length[0] = large ? LARGE_LENGTH : STEP_LENGTH;
    const struct loader_settings settings = {.rows = {begin, rows, 1},
                                             .length = {begin, length, 1},
                                             .micro_rows = (i64)rows[0],
                                             .mixture = {[DIRECTION_TEXT] = 1},
                                             .condition[MODALITY_TEXT] = 1};
    return make_shards(folder) < 0 ? NULL : loader_open(folder, "train", &settings, 1);
}

static int open_bench(struct step_bench *b, struct device *device, bool large)
{
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    const struct model_config mixture = large_mixture();
    return large ? step_bench_open_shape(b, device, dtype, &mixture, LARGE_ARENA_BYTES)
                 : step_bench_open(b, device, dtype, 32);
}

int bench_loader(struct device *device, bool json)
{
    struct step_bench *b = memory_alloc(sizeof *b);
    struct loader_wait waiting = {0};
    char *folder = bench_folder();
    int status = folder ? 0 : -1;
    if (status == 0) {
        bool large = device->backend == BACKEND_CUDA;
        waiting.loader = open_loader(folder, large);
        status = waiting.loader ? open_bench(b, device, large) : -1;
        if (status == 0) {
            status = measure(b, &waiting, json);
            step_bench_close(b);
        }
        if (waiting.loader)
            loader_close(waiting.loader);
        directory_remove(folder);
    }
    memory_free(folder);
    memory_free(b);
    return status;
}
