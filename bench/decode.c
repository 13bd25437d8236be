/* Text through the decoder: a prompt of 512 tokens at once, and one token after another, of the model of
 * `weft bench step`. */
#include "bench/step.h"
#include "model/decode.h"

enum { PROMPT = 512, MADE = 64, ROUNDS = 5 };

static double step_seconds(struct decoder *d)
{
    double begin = clock_s();
    decoder_step(d);
    return clock_s() - begin;
}

static void run_once(struct decoder *d, const struct generate_request *request, double *prefill, double *decode)
{
    struct answer answer = {0};
    double seconds = 0;
    decoder_begin(d, &answer, request, 1);
    *prefill = PROMPT / step_seconds(d);
    for (i64 i = 0; i < MADE; i++)
        seconds += step_seconds(d);
    *decode = MADE / seconds;
    answer_release(&answer);
}

int bench_decode(struct device *device, bool json)
{
    static const char note[] = "llama.cpp is not run from here: bench/llama_decode.py runs both";
    struct step_bench *b = memory_alloc(sizeof *b);
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    double prefill[ROUNDS], decode[ROUNDS];
    i32 ids[PROMPT];
    if (step_bench_open(b, device, dtype, 32))
        return -1;
    struct decoder d;
    struct submodel full;
    submodel_full(&full, &b->model.config);
    for (i32 i = 0; i < PROMPT; i++)
        ids[i] = (i32)rng_below((struct rng_key){1, RNG_TEST}, b->model.config.vocabulary, (u32)i, 0, 0, 0);
    const struct part part = {.kind = STREAM_TEXT, .ids = ids, .count = PROMPT};
    const struct generate_request request = {
        .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = MADE + 1, .copies = 1};
    const struct decoder_options o = {.model = &b->model, .sub = &full, .vocabulary = &vocabulary_of_text};
    decoder_open(&d, &o, 1, request_columns(&o, &request));
    run_once(&d, &request, &prefill[0], &decode[0]);
    for (int round = 0; round < ROUNDS; round++)
        run_once(&d, &request, &prefill[round], &decode[round]);
    bench_print(&(struct bench_row){"decode", "prefill of 512 tokens", "tokens/s", "llama.cpp",
                                    bench_median(prefill, ROUNDS), 0, 1.8, false, note},
                json);
    bench_print(&(struct bench_row){"decode", "one token after another", "tokens/s", "llama.cpp",
                                    bench_median(decode, ROUNDS), 0, 1.1, false, note},
                json);
    decoder_close(&d);
    step_bench_close(b);
    memory_free(b);
    return 0;
}
