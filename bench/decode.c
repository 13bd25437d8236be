/* Text decoding with the model of `weft bench step`: a prefill of 512 tokens, then single-token
 * steps for 1, 4 and 16 sequences. The reference is the time to read the memory a step needs: all
 * weights except experts, the experts of a uniform router, keys and values. Repeated with weights
 * quantized to 8 and 4 bits. On a GPU the reference is the bandwidth of a large copy, and models
 * that fill the GPU follow; without a GPU their roofline on an H200. */
#include "bench/large.h"
#include "bench/profile.h"
#include "model/decode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PROMPT = 512, SHORT_PROMPT = 64, MADE = 32, ROUNDS = 5, BATCHES = 3, BATCH_MOST = 64, EXPERTS_MOST = 256 };
enum { CHUNK_BYTES = 64 << 10, CHUNKS_MOST = 1 << 16, COPY_ROWS = 1 << 15, COPY_COLUMNS = 1 << 12, COPIES = 5 };

struct decode_subject {
    const char *name;
    struct model_config config;
    i64 answers[BATCHES];  /* ascending: the cache has room for the last */
    double goals[BATCHES]; /* fraction of the reference */
    int bits;              /* quantized weights; 0: as stored */
};

/* ---- Reference: reading the memory ---- */

struct decode_chunk {
    const char *at;
    i64 bytes;
};
struct decode_reading {
    struct decode_chunk *chunks; /* [CHUNKS_MOST]; NULL: a GPU's, which are only counted */
    i64 count, bytes;
    double bytes_per_s; /* copy of a GPU, reads plus writes */
    _Atomic u64 sum;    /* keeps the compiler from removing reads */
};

static void add_bytes(struct decode_reading *r, const void *at, i64 bytes)
{
    for (i64 i = 0; r->chunks && i < bytes; i += CHUNK_BYTES) {
        require(r->count < CHUNKS_MOST, "a step that reads more than %d blocks", CHUNKS_MOST);
        r->chunks[r->count++] = (struct decode_chunk){(const char *)at + i, min_i64(CHUNK_BYTES, bytes - i)};
    }
    r->bytes += bytes;
}

/* Adds parts [first, first + count) of a weight in the format that gemms read. */
static void add_parts(struct decode_reading *r, const struct weight *w, i64 first, i64 count)
{
    const struct quantized_weight *n = w->forms.quantized;
    i64 strips = quantized_strips(w->rows),
        codes = strips * quantized_steps(w->columns) * QUANTIZED_ROWS * QUANTIZED_COLUMNS;
    i64 bytes = w->rows * w->columns * dtype_bytes(w->value.dtype);
    if (!n) {
        add_bytes(r, (const char *)w->value.data + first * bytes, count * bytes);
        return;
    }
    codes = codes * n->bits / 8;
    add_bytes(r, (const char *)n->codes + first * codes, count * codes);
    add_bytes(r, n->scale + first * strips * QUANTIZED_ROWS, count * strips * QUANTIZED_ROWS * 4);
    if (n->bits == 4)
        add_bytes(r, n->factors + first * codes / 16, count * codes / 16);
}

static void add_weight(struct decode_reading *r, const struct weight *w)
{
    if (w)
        add_parts(r, w, 0, w->matrices);
}

/* Adds the experts of a step: each sequence draws top-k
 * experts, and each expert drawn is read once. */
static void add_experts(struct decode_reading *r, const struct model_config *c, const struct layer_weights *l,
                        i64 answers, u32 identity)
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

static void list_step(struct decode_reading *r, const struct model *m, const struct decoder *d, i64 answers, u32 step)
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
            add_bytes(r, (const char *)cache[s % 2].data + s / 2 * d->slot_rows * row, keys * row);
        }
    }
    add_weight(r, m->head);
}

static void read_chunk(void *context, i64 tile, int worker)
{
    struct decode_reading *r = context;
    const struct decode_chunk *c = &r->chunks[tile];
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

/* Steps per second if reading memory were the only cost. */
static double read_rate(struct decode_reading *r, const struct model *m, const struct decoder *d, i64 answers)
{
    double seconds = 0;
    for (u32 step = 0; step < MADE / 2; step++) {
        list_step(r, m, d, answers, step);
        double begin = clock_s();
        if (r->chunks)
            workers_run(r->count, read_chunk, r);
        seconds += r->chunks ? clock_s() - begin : (double)r->bytes / r->bytes_per_s;
    }
    return MADE / 2 / seconds;
}

/* Copy bandwidth of blocks larger than any cache; the best of a few. */
static double copy_rate(struct device *device)
{
    i64 bytes = (i64)COPY_ROWS * COPY_COLUMNS * 4;
    void *from = device_alloc(device, bytes), *to = device_alloc(device, bytes);
    struct matrix in = matrix_of(from, DTYPE_F32, COPY_ROWS, COPY_COLUMNS),
                  out = matrix_of(to, DTYPE_F32, COPY_ROWS, COPY_COLUMNS);
    double best = INFINITY;
    float last;
    device->ops->zero(device, from, bytes);
    for (int i = 0; i < COPIES; i++) {
        device_get(device, &last, from, sizeof last);
        double begin = clock_s();
        device->ops->copy(device, out, in, 1, false);
        device_get(device, &last, to, sizeof last);
        best = fmin(best, clock_s() - begin);
    }
    device_free(device, from, bytes);
    device_free(device, to, bytes);
    return 2 * (double)bytes / best;
}

/* ---- The decoder ---- */

static double step_seconds(struct decoder *d)
{
    double begin = clock_s();
    decoder_step(d);
    return clock_s() - begin;
}

static void add_requests(struct decoder *d, struct answer *answers, struct part *parts,
                         const struct generate_request *requests, i64 count)
{
    for (i64 i = 0; i < count; i++) {
        parts[i].count = prompt_of(count);
        require(decoder_add(d, &answers[i], &requests[i]) == 0, "%s", error_text());
    }
}

/* Tokens per second of prefill and of decoding. */
static void run_once(struct decoder *d, struct part *parts, const struct generate_request *requests, i64 count,
                     double *prefill, double *decode)
{
    struct answer answers[BATCH_MOST] = {0};
    double first = 0, seconds = 0;
    add_requests(d, answers, parts, requests, count);
    while (answers[count - 1].count == 0)
        first += step_seconds(d);
    for (i64 i = 0; i < MADE; i++)
        seconds += step_seconds(d);
    *prefill = (double)(prompt_of(count) * count) / first;
    *decode = (double)(MADE * count) / seconds;
    decoder_drop(d, NULL);
    for (i64 i = 0; i < count; i++)
        answer_release(&answers[i]);
}

struct decode_bench {
    const struct decode_subject *decode_subject;
    struct model model;
    struct submodel full;
    struct decoder decoder;
    struct decode_reading reading;
    i32 ids[BATCH_MOST][PROMPT];
    struct part parts[BATCH_MOST];
    struct generate_request requests[BATCH_MOST];
    double prefill[BATCHES][ROUNDS], rate[BATCHES][ROUNDS], share[BATCHES][ROUNDS];
};

static int open_bench(struct decode_bench *b, struct device *device)
{
    struct model_config config = b->decode_subject->config;
    config.max_positions = 2 * PROMPT;
    if (model_open_quantized(&b->model, device, &config, device->has_bf16 ? DTYPE_BF16 : DTYPE_F32,
                             b->decode_subject->bits))
        return -1;
    if (device->backend != BACKEND_META)
        weights_init(&b->model.weights, 1);
    submodel_full(&b->full, &b->model.config);
    for (u32 i = 0; i < BATCH_MOST; i++) {
        for (u32 j = 0; j < PROMPT; j++)
            b->ids[i][j] = (i32)rng_below((struct rng_key){1, RNG_TEST}, config.vocabulary, i, j, 0, 0);
        b->parts[i] = (struct part){.kind = STREAM_TEXT, .ids = b->ids[i], .count = PROMPT};
        b->requests[i] = (struct generate_request){
            .parts = &b->parts[i], .part_count = 1, .stop = {-1, -1, -1, -1}, .most = 2 * MADE, .copies = 1};
    }
    const struct decoder_options o = {.model = &b->model, .sub = &b->full, .vocabulary = &vocabulary_of_text};
    decoder_open(&b->decoder, &o, b->decode_subject->answers[BATCHES - 1], request_cache_rows(&o, &b->requests[0]));
    if (device->backend == BACKEND_CUDA)
        b->reading.bytes_per_s = copy_rate(device);
    else if (device->backend == BACKEND_META)
        b->reading.bytes_per_s = limits_of_h200.bytes_per_s;
    else
        b->reading.chunks = memory_alloc(CHUNKS_MOST * (i64)sizeof *b->reading.chunks);
    return 0;
}

static void measure(struct decode_bench *b)
{
    for (int round = -1; round < ROUNDS; round++) /* round -1 warms up */
        for (int i = 0; i < BATCHES; i++) {
            int to = max_i64(round, 0);
            i64 answers = b->decode_subject->answers[i];
            double before = read_rate(&b->reading, &b->model, &b->decoder, answers);
            run_once(&b->decoder, b->parts, b->requests, answers, &b->prefill[i][to], &b->rate[i][to]);
            double after = read_rate(&b->reading, &b->model, &b->decoder, answers);
            b->share[i][to] = b->rate[i][to] / ((double)answers * 0.5 * (before + after));
        }
}

static void print(struct decode_bench *b, bool json)
{
    static const char note[] = "llama.cpp is not run from here: bench/llama_decode.py runs both";
    double one = 0;
    const char *name = b->decode_subject->name;
    char what[64], more[96];
    bench_print(&(struct bench_row){name, "prefill of 512 tokens", "tokens/s", "llama.cpp",
                                    bench_median(b->prefill[0], ROUNDS), 0, 8, false, note},
                json);
    for (int i = 0; i < BATCHES; i++) {
        i64 answers = b->decode_subject->answers[i];
        double rate = bench_median(b->rate[i], ROUNDS), share = bench_median(b->share[i], ROUNDS);
        list_step(&b->reading, &b->model, &b->decoder, answers, 0);
        one = i == 0 ? rate : one;
        snprintf(what, sizeof what, "one token after another, %lld answer%s", (long long)answers,
                 answers == 1 ? "" : "s");
        snprintf(more, sizeof more, "%.2f MB a token; %.2f of one answer",
                 1e-6 * (double)b->reading.bytes / (double)answers, rate / one);
        bench_print(&(struct bench_row){name, what, "tokens/s", "a read of the same bytes", rate, rate / share,
                                        b->decode_subject->goals[i], false, more},
                    json);
    }
}

static int run_decode_subject(struct device *device, const struct decode_subject *decode_subject, bool json)
{
    struct decode_bench *b = memory_alloc(sizeof *b);
    b->decode_subject = decode_subject;
    int status = open_bench(b, device);
    if (status == 0) {
        measure(b);
        print(b, json);
        decoder_close(&b->decoder);
        model_close(&b->model);
    }
    memory_free(b->reading.chunks);
    memory_free(b);
    return status;
}

static int run_bits(struct device *device, const char *name, int bits, bool json)
{
    const struct decode_subject decode_subject = {name, step_bench_shape(32), {1, 4, 16}, {0.8, 0.8, 0.8}, bits};
    return run_decode_subject(device, &decode_subject, json);
}

int bench_decode(struct device *device, bool json)
{
    return run_bits(device, "decode", 0, json);
}

int bench_decode_int8(struct device *device, bool json)
{
    return run_bits(device, "decode-int8", 8, json);
}

int bench_decode_int4(struct device *device, bool json)
{
    return run_bits(device, "decode-int4", 4, json);
}

enum { LARGE = 2 };

static struct decode_subject large_decode_subject(int i)
{
    if (i == 0)
        return (struct decode_subject){
            "decode-large, mixture", large_mixture(), {1, 16, BATCH_MOST}, {0.39, 0.6, 0.6}, 0};
    return (struct decode_subject){"decode-large, dense", large_dense(), {1, 16, BATCH_MOST}, {0.6, 0.6, 0.6}, 0};
}

int bench_decode_large(struct device *device, bool json)
{
    int status = 0;
    if (device->backend != BACKEND_CUDA)
        return error_set("weft bench decode-large: its models fill a GPU; give --device cuda");
    for (int i = 0; status == 0 && i < LARGE; i++) {
        struct decode_subject decode_subject = large_decode_subject(i);
        status = run_decode_subject(device, &decode_subject, json);
    }
    return status;
}

/* ---- Roofline ---- */

static int run_decoder(void *context, i64 step)
{
    struct decode_bench *b = context;
    (void)step;
    decoder_step(&b->decoder);
    return 0;
}

/* Profiles decode steps after the prefill. */
static int profile_answers(struct decode_bench *b, i64 count, double goal, bool json)
{
    struct answer answers[BATCH_MOST] = {0};
    char name[96];
    add_requests(&b->decoder, answers, b->parts, b->requests, count);
    while (answers[count - 1].count == 0)
        decoder_step(&b->decoder);
    snprintf(name, sizeof name, "%s, a step of %lld answer%s", b->decode_subject->name, (long long)count,
             count == 1 ? "" : "s");
    double seconds = profile_run(
        &(struct profile_target){name, b->model.device, run_decoder, b, &limits_of_h200_overlapping, false}, json);
    double read = (double)count * read_rate(&b->reading, &b->model, &b->decoder, count);
    bench_print(&(struct bench_row){"roofline", name, "tokens/s", "a read of the same bytes", (double)count / seconds,
                                    read, goal, false, NULL},
                json);
    decoder_drop(&b->decoder, NULL);
    for (i64 i = 0; i < count; i++)
        answer_release(&answers[i]);
    return seconds < 0 ? -1 : 0;
}

static int profile_decode_subject(const struct decode_subject *decode_subject, struct device *meta, bool json)
{
    struct decode_bench *b = memory_alloc(sizeof *b);
    b->decode_subject = decode_subject;
    int status = open_bench(b, meta);
    for (int i = 0; status == 0 && i < BATCHES; i++)
        status = profile_answers(b, decode_subject->answers[i], decode_subject->goals[i], json);
    decoder_close(&b->decoder);
    model_close(&b->model);
    memory_free(b);
    return status;
}

int bench_decode_roofline(bool json)
{
    int status = 0;
    for (int i = 0; status == 0 && i < LARGE; i++) {
        struct decode_subject decode_subject = large_decode_subject(i);
        struct device meta;
        device_open_meta(&meta);
        meta.isa = CPU_ISA_V3; /* no packed weights */
        meta.has_bf16 = true;
        device_meta_gpu(&meta, true);
        status = profile_decode_subject(&decode_subject, &meta, json);
        device_close(&meta);
    }
    return status;
}
