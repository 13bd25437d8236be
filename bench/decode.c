/* Text through the cache: a prompt of 512 tokens at once, and one token after another, of the model of
 * `weft bench step`. */
#include "bench/step.h"
#include "model/decode.h"

enum { PROMPT = 512, MADE = 64, ROUNDS = 5 };
enum { COLUMNS = PROMPT + MADE };

struct decoding {
    struct cache cache;
    i32 ids[COLUMNS], column[COLUMNS], end[COLUMNS];
    u8 wanted[COLUMNS];
};

static double seconds_of(struct decoding *d, i64 at, i64 n)
{
    double begin = clock_s();
    struct cache_tokens t = {n, d->ids + at, d->column + at, d->column + at, d->end + at, d->wanted + at, NULL, NULL};
    cache_text_step(&d->cache, &t);
    return clock_s() - begin;
}

static void run_once(struct decoding *d, double *prefill, double *decode)
{
    cache_clear(&d->cache);
    *prefill = PROMPT / seconds_of(d, 0, PROMPT);
    double seconds = 0;
    for (i64 i = 0; i < MADE; i++)
        seconds += seconds_of(d, PROMPT + i, 1);
    *decode = MADE / seconds;
}

int bench_decode(struct device *device, bool json)
{
    static const char note[] = "llama.cpp is not run from here: bench/llama_decode.py runs both";
    struct step_bench *b = memory_alloc(sizeof *b);
    struct decoding *d = memory_alloc(sizeof *d);
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    double prefill[ROUNDS], decode[ROUNDS];
    if (step_bench_open(b, device, dtype, 32))
        return -1;
    struct submodel full;
    submodel_full(&full, &b->model.config);
    for (i32 i = 0; i < COLUMNS; i++) {
        d->ids[i] = (i32)rng_below((struct rng_key){1, RNG_TEST}, b->model.config.vocabulary, (u32)i, 0, 0, 0);
        d->column[i] = i;
        d->end[i] = COLUMNS;
        d->wanted[i] = i + 1 >= PROMPT;
    }
    cache_open(&d->cache, &b->model, &full, COLUMNS);
    run_once(d, &prefill[0], &decode[0]);
    for (int round = 0; round < ROUNDS; round++)
        run_once(d, &prefill[round], &decode[round]);
    bench_print(&(struct bench_row){"decode", "prefill of 512 tokens", "tokens/s", "llama.cpp",
                                    bench_median(prefill, ROUNDS), 0, 1.8, false, note},
                json);
    bench_print(&(struct bench_row){"decode", "one token after another", "tokens/s", "llama.cpp",
                                    bench_median(decode, ROUNDS), 0, 1.1, false, note},
                json);
    cache_close(&d->cache);
    step_bench_close(b);
    memory_free(b);
    memory_free(d);
    return 0;
}
