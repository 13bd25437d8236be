/* Speculative decoding with multi-token prediction, alternating with plain decoding, greedy and at
 * temperature 1. By default the model is that of `weft bench step` with an MTP block. Its random
 * weights draft ids that are rarely accepted at temperature 1 and never when greedy, which shows
 * the cost of drafting. A trained model, if given, continues beginnings of sentences. */
#include "bench/step.h"
#include "model/decode.h"

#include <stdio.h>
#include <string.h>

enum { PROMPT = 64, MADE = 32, ROUNDS = 3, AHEAD_MOST = 2, BATCHES = 3, BATCH_MOST = 16 };
static const i64 answers_of[BATCHES] = {1, 4, BATCH_MOST};
static const char *const beginnings[BATCH_MOST] = {
    "a person who",        "the act of",       "a small animal that",    "not able to",
    "a kind of tree with", "in the middle",    "a vessel for",           "the state of being",
    "someone who has",     "one of the first", "a device that",          "to move quickly",
    "made of wood and",    "there is no",      "a member of the family", "of or relating to"};

struct speculate_bench {
    struct model model;
    struct submodel full;
    struct vocabulary vocabulary;
    i32 ids[BATCH_MOST][PROMPT];
    struct part parts[BATCH_MOST];
    struct generate_request requests[BATCH_MOST];
    struct decoder decoder[AHEAD_MOST + 1]; /* index: number of drafted ids */
    struct draft_counts counts[AHEAD_MOST + 1];
    double rate[AHEAD_MOST + 1][ROUNDS];
};

/* ---- Models ---- */

static int open_shape(struct speculate_bench *b, struct device *device)
{
    struct model_config config = step_bench_shape(32);
    config.mtp = true;
    if (model_open(&b->model, device, &config, device->has_bf16 ? DTYPE_BF16 : DTYPE_F32, false, NULL))
        return -1;
    weights_init(&b->model.weights, 1);
    b->vocabulary = vocabulary_of_text;
    for (u32 i = 0; i < BATCH_MOST; i++) {
        b->parts[i].count = PROMPT;
        for (u32 j = 0; j < PROMPT; j++)
            b->ids[i][j] = (i32)rng_below((struct rng_key){1, RNG_TEST}, config.vocabulary, i, j, 0, 0);
    }
    return 0;
}

static int encode_beginnings(struct speculate_bench *b, const struct text_tokenizer *tokenizer)
{
    for (i64 i = 0; i < BATCH_MOST; i++) {
        struct id_list ids = {0};
        int status = text_encode(tokenizer, &ids, beginnings[i], (i64)strlen(beginnings[i]), NULL);
        b->parts[i].count = min_i64(ids.count, PROMPT);
        for (i64 j = 0; j < b->parts[i].count; j++)
            b->ids[i][j] = ids.ids[j];
        id_list_release(&ids);
        if (status)
            return -1;
    }
    return 0;
}

static int open_trained(struct speculate_bench *b, struct device *device, const char *directory)
{
    struct text_tokenizer *tokenizer = text_tokenizer_load(directory);
    int status = tokenizer ? model_load(&b->model, device, directory, DTYPE_OTHER, false) : -1;
    if (status == 0 && !b->model.config.mtp)
        status = error_set("%s has no block of multi-token prediction: nothing drafts ahead", directory);
    if (status == 0)
        status = vocabulary_load(&b->vocabulary, tokenizer, NULL);
    if (status == 0)
        status = encode_beginnings(b, tokenizer);
    text_tokenizer_free(tokenizer);
    return status;
}

static void open_decoders(struct speculate_bench *b)
{
    i64 columns = 0;
    submodel_full(&b->full, &b->model.config);
    for (i64 i = 0; i < BATCH_MOST; i++) {
        b->parts[i] = (struct part){.kind = STREAM_TEXT, .ids = b->ids[i], .count = b->parts[i].count};
        b->requests[i] = (struct generate_request){.parts = &b->parts[i],
                                                   .part_count = 1,
                                                   .stop = {-1, -1, -1, -1},
                                                   .most = MADE,
                                                   .copies = 1,
                                                   .identity = (u32)i};
        columns = max_i64(columns, b->parts[i].count + MADE);
    }
    for (i64 ahead = 0; ahead <= AHEAD_MOST; ahead++) {
        const struct decoder_options o = {.model = &b->model,
                                          .sub = &b->full,
                                          .vocabulary = &b->vocabulary,
                                          .sampling = {.top_p = 1, .key = {1, RNG_SAMPLING}},
                                          .speculate = ahead,
                                          .draft_counts = &b->counts[ahead]};
        decoder_open(&b->decoder[ahead], &o, BATCH_MOST, columns);
    }
}

/* ---- Measurement ---- */

/* Ids per second after the prefill. */
static double run_once(struct speculate_bench *b, i64 ahead, i64 count, float temperature)
{
    struct answer answers[BATCH_MOST] = {{0}};
    struct decoder *d = &b->decoder[ahead];
    double made = 0;
    d->options.sampling.temperature = temperature;
    decoder_begin(d, answers, b->requests, count);
    while (answers[count - 1].count == 0)
        decoder_step(d);
    for (i64 i = 0; i < count; i++)
        made -= (double)answers[i].count;
    double begin = clock_s();
    while (decoder_step(d))
        ;
    double seconds = clock_s() - begin;
    for (i64 i = 0; i < count; i++) {
        made += (double)answers[i].count;
        answer_release(&answers[i]);
    }
    return made / seconds;
}

static void measure(struct speculate_bench *b, i64 count, float temperature, bool json)
{
    double plain = 0;
    for (int round = -1; round < ROUNDS; round++) /* round -1 warms up */
        for (i64 ahead = 0; ahead <= AHEAD_MOST; ahead++) {
            if (round <= 0)
                b->counts[ahead] = (struct draft_counts){0};
            b->rate[ahead][max_i64(round, 0)] = run_once(b, ahead, count, temperature);
        }
    for (i64 ahead = 0; ahead <= AHEAD_MOST; ahead++) {
        char what[64], note[64];
        const struct draft_counts *c = &b->counts[ahead];
        double rate = bench_median(b->rate[ahead], ROUNDS);
        plain = ahead ? plain : rate;
        snprintf(what, sizeof what, "%lld ahead, %lld answer%s, %s", (long long)ahead, (long long)count,
                 count == 1 ? "" : "s", temperature > 0 ? "drawn" : "greedy");
        snprintf(note, sizeof note, "%.1f %% of the drafts accepted",
                 100 * (double)c->accepted / (double)max_i64(1, c->drafted));
        bench_print(&(struct bench_row){"speculate", what, "tokens/s", "plain decoding", rate, ahead ? plain : 0, 1,
                                        false, ahead ? note : NULL},
                    json);
    }
}

int bench_speculate(struct device *device, bool json, const char *directory)
{
    struct speculate_bench *b = memory_alloc(sizeof *b);
    int status = directory ? open_trained(b, device, directory) : open_shape(b, device);
    if (status == 0)
        open_decoders(b);
    for (i64 i = 0; i < 2 * BATCHES && status == 0; i++)
        measure(b, answers_of[i / 2], (float)(i % 2), json);
    for (i64 ahead = 0; ahead <= AHEAD_MOST; ahead++)
        decoder_close(&b->decoder[ahead]);
    if (b->model.device)
        model_close(&b->model);
    memory_free(b);
    return status;
}
