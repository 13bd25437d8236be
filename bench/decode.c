/* Text through the decoder, of the model of `weft bench step`: a prompt of 512 tokens at once, then one token after
 * another for 1, 4 and 16 answers, beside a plain read of the memory that such a step cannot do without: every weight
 * that is not an expert's, the experts that a router without preferences chooses, keys and values. Then the same with
 * weights of 8 and of 4 bits. */
#include "bench/step.h"
#include "model/decode.h"

#include <stdio.h>
#include <string.h>

enum { PROMPT = 512, SHORT_PROMPT = 64, MADE = 32, ROUNDS = 5, BATCHES = 3, BATCH_MOST = 16, EXPERTS_MOST = 256 };
enum { CHUNK_BYTES = 64 << 10, CHUNKS_MOST = 1 << 16 };
static const i64 answers_of[BATCHES] = {1, 4, BATCH_MOST};

/* ---- The read ---- */

struct chunk {
    const char *at;
    i64 bytes;
};
struct reading {
    struct chunk *chunks; /* [CHUNKS_MOST] */
    i64 count, bytes;
    _Atomic u64 sum; /* so that nothing is left out */
};

static void add_bytes(struct reading *r, const void *at, i64 bytes)
{
    for (i64 i = 0; i < bytes; i += CHUNK_BYTES) {
        require(r->count < CHUNKS_MOST, "a step that reads more than %d blocks", CHUNKS_MOST);
        r->chunks[r->count++] = (struct chunk){(const char *)at + i, min_i64(CHUNK_BYTES, bytes - i)};
    }
    r->bytes += bytes;
}

/* Parts [first, first + count) of a weight, as products read them. */
static void add_parts(struct reading *r, const struct weight *w, i64 first, i64 count)
{
    const struct narrow *n = w->value.narrow;
    i64 strips = narrow_strips(w->rows), codes = strips * narrow_steps(w->columns) * NARROW_ROWS * NARROW_COLUMNS;
    i64 bytes = w->rows * w->columns * dtype_bytes(w->value.dtype);
    if (!n) {
        add_bytes(r, (const char *)w->value.data + first * bytes, count * bytes);
        return;
    }
    codes = codes * n->bits / 8;
    add_bytes(r, (const char *)n->codes + first * codes, count * codes);
    add_bytes(r, n->scale + first * strips * NARROW_ROWS, count * strips * NARROW_ROWS * 4);
    if (n->bits == 4)
        add_bytes(r, n->factors + first * codes / 16, count * codes / 16);
}

static void add_weight(struct reading *r, const struct weight *w)
{
    if (w)
        add_parts(r, w, 0, w->parts);
}

/* Each answer draws top-k experts; each expert is read once. */
static void add_experts(struct reading *r, const struct model_config *c, const struct layer_weights *l, i64 answers,
                        u32 identity)
{
    bool chosen[EXPERTS_MOST] = {false};
    for (i64 i = 0; i < answers; i++) {
        i64 deck[EXPERTS_MOST];
        for (i64 e = 0; e < c->experts; e++)
            deck[e] = e;
        for (i64 k = 0; k < c->topk; k++) {
            struct rng_key key = {2, RNG_TEST};
            i64 at = k + (i64)rng_below(key, (u32)(c->experts - k), identity, (u32)i, (u32)k, 0), drawn = deck[at];
            deck[at] = deck[k];
            chosen[drawn] = true;
        }
    }
    for (i64 e = 0; e < c->experts; e++)
        if (chosen[e]) {
            add_parts(r, l->experts_gate_up, e, 1);
            add_parts(r, l->experts_down, e, 1);
        }
}

static i64 prompt_of(i64 answers)
{
    return answers == 1 ? PROMPT : SHORT_PROMPT;
}

static void list_step(struct reading *r, const struct model *m, const struct decoder *d, i64 answers, u32 step)
{
    i64 keys = prompt_of(answers) + MADE / 2;
    r->count = r->bytes = 0;
    for (i64 i = 0; i < m->config.layers; i++) {
        const struct layer_weights *l = &m->layer[i];
        const struct weight *whole[] = {l->qkv,        l->out, l->gate_up, l->down, l->router, l->shared_gate_up,
                                        l->shared_down};
        for (i64 j = 0; j < COUNT_OF(whole); j++)
            add_weight(r, whole[j]);
        if (l->router)
            add_experts(r, &m->config, l, answers, step * LAYERS_MOST + (u32)i);
        const struct matrix cache[2] = {d->cache.layer[i].k, d->cache.layer[i].v};
        for (i64 s = 0; s < answers * 2; s++) {
            i64 row = cache[s % 2].columns * dtype_bytes(cache[s % 2].dtype);
            add_bytes(r, (const char *)cache[s % 2].data + s / 2 * d->seat_columns * row, keys * row);
        }
    }
    add_weight(r, m->head);
}

static void read_chunk(void *context, i64 tile, int worker)
{
    struct reading *r = context;
    const struct chunk *c = &r->chunks[tile];
    u64 lanes[32] = {0}, sum = 0;
    (void)worker;
    for (i64 i = 0; i + 256 <= c->bytes; i += 256) {
        u64 words[32];
        memcpy(words, c->at + i, sizeof words);
#pragma omp simd
        for (int j = 0; j < 32; j++)
            lanes[j] ^= words[j];
    }
    for (int j = 0; j < 32; j++)
        sum ^= lanes[j];
    r->sum ^= sum;
}

/* Steps a second if reading were all. */
static double read_rate(struct reading *r, const struct model *m, const struct decoder *d, i64 answers)
{
    double seconds = 0;
    for (u32 step = 0; step < MADE / 2; step++) {
        list_step(r, m, d, answers, step);
        double begin = clock_s();
        workers_run(r->count, read_chunk, r);
        seconds += clock_s() - begin;
    }
    return MADE / 2 / seconds;
}

/* ---- The decoder ---- */

static double step_seconds(struct decoder *d)
{
    double begin = clock_s();
    decoder_step(d);
    return clock_s() - begin;
}

/* Tokens a second of the prompts, and then of the answers. */
static void run_once(struct decoder *d, struct part *parts, const struct generate_request *requests, i64 count,
                     double *prefill, double *decode)
{
    struct answer answers[BATCH_MOST] = {0};
    double first = 0, seconds = 0;
    for (i64 i = 0; i < count; i++)
        parts[i].count = prompt_of(count);
    decoder_begin(d, answers, requests, count);
    while (answers[count - 1].count == 0)
        first += step_seconds(d);
    for (i64 i = 0; i < MADE; i++)
        seconds += step_seconds(d);
    *prefill = (double)(prompt_of(count) * count) / first;
    *decode = (double)(MADE * count) / seconds;
    for (i64 i = 0; i < count; i++)
        answer_release(&answers[i]);
}

struct decode_bench {
    struct model model;
    struct submodel full;
    struct decoder decoder;
    struct reading reading;
    i32 ids[BATCH_MOST][PROMPT];
    struct part parts[BATCH_MOST];
    struct generate_request requests[BATCH_MOST];
    double prefill[BATCHES][ROUNDS], rate[BATCHES][ROUNDS], share[BATCHES][ROUNDS];
};

static int open_bench(struct decode_bench *b, struct device *device, int bits)
{
    struct model_config config = step_bench_shape(32);
    config.max_positions = 2 * PROMPT;
    if (model_open(&b->model, device, &config, device->has_bf16 ? DTYPE_BF16 : DTYPE_F32, false, NULL))
        return -1;
    weights_init(&b->model.weights, 1);
    if (bits)
        weights_narrow(&b->model.weights, bits);
    submodel_full(&b->full, &b->model.config);
    for (u32 i = 0; i < BATCH_MOST; i++) {
        for (u32 j = 0; j < PROMPT; j++)
            b->ids[i][j] = (i32)rng_below((struct rng_key){1, RNG_TEST}, config.vocabulary, i, j, 0, 0);
        b->parts[i] = (struct part){.kind = STREAM_TEXT, .ids = b->ids[i], .count = PROMPT};
        b->requests[i] = (struct generate_request){
            .parts = &b->parts[i], .part_count = 1, .stop = {-1, -1, -1, -1}, .most = 2 * MADE, .copies = 1};
    }
    const struct decoder_options o = {.model = &b->model, .sub = &b->full, .vocabulary = &vocabulary_of_text};
    decoder_open(&b->decoder, &o, BATCH_MOST, request_columns(&o, &b->requests[0]));
    b->reading.chunks = memory_alloc(CHUNKS_MOST * (i64)sizeof *b->reading.chunks);
    return 0;
}

static void measure(struct decode_bench *b)
{
    for (int round = -1; round < ROUNDS; round++) /* the first one warms up */
        for (int i = 0; i < BATCHES; i++) {
            int to = max_i64(round, 0);
            double before = read_rate(&b->reading, &b->model, &b->decoder, answers_of[i]);
            run_once(&b->decoder, b->parts, b->requests, answers_of[i], &b->prefill[i][to], &b->rate[i][to]);
            double after = read_rate(&b->reading, &b->model, &b->decoder, answers_of[i]);
            b->share[i][to] = b->rate[i][to] / ((double)answers_of[i] * 0.5 * (before + after));
        }
}

static void print(struct decode_bench *b, int bits, bool json)
{
    static const char note[] = "llama.cpp is not run from here: bench/llama_decode.py runs both";
    double one = 0;
    char name[32] = "decode", what[64], more[96];
    if (bits)
        snprintf(name, sizeof name, "decode-int%d", bits);
    bench_print(&(struct bench_row){name, "prefill of 512 tokens", "tokens/s", "llama.cpp",
                                    bench_median(b->prefill[0], ROUNDS), 0, 8, false, note},
                json);
    for (int i = 0; i < BATCHES; i++) {
        i64 answers = answers_of[i];
        double rate = bench_median(b->rate[i], ROUNDS), share = bench_median(b->share[i], ROUNDS);
        list_step(&b->reading, &b->model, &b->decoder, answers, 0);
        one = i == 0 ? rate : one;
        snprintf(what, sizeof what, "one token after another, %lld answer%s", (long long)answers,
                 answers == 1 ? "" : "s");
        snprintf(more, sizeof more, "%.2f MB a token; %.2f of one answer",
                 1e-6 * (double)b->reading.bytes / (double)answers, rate / one);
        bench_print(&(struct bench_row){name, what, "tokens/s", "a read of the same bytes", rate, rate / share, 0.8,
                                        false, more},
                    json);
    }
}

static int run_bits(struct device *device, int bits, bool json)
{
    struct decode_bench *b = memory_alloc(sizeof *b);
    int status = open_bench(b, device, bits);
    if (status == 0) {
        measure(b);
        print(b, bits, json);
        decoder_close(&b->decoder);
        model_close(&b->model);
    }
    memory_free(b->reading.chunks);
    memory_free(b);
    return status;
}

int bench_decode(struct device *device, bool json)
{
    return run_bits(device, 0, json);
}

int bench_decode_int8(struct device *device, bool json)
{
    return run_bits(device, 8, json);
}

int bench_decode_int4(struct device *device, bool json)
{
    return run_bits(device, 4, json);
}
