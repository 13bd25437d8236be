/* Losses of bigrams and trigrams of the training texts, on the targets of texts that a model is measured
 * on. */
#include "baselines/baselines.h"
#include "rl/eval.h"

#include <math.h>

/* Counts the texts of the training part, a drawn share of them, each with its end. */
static int count_texts(struct ngrams *n, const char *data, double share, i32 end, u64 seed)
{
    struct shards shards;
    struct id_list ids = {0};
    i64 texts = 0;
    int status = shards_open(&shards, data, "train");
    if (status)
        return error_prefix("ngrams are counted on the training part");
    for (i64 i = 0; i < shards.sample_count && status == 0; i++) {
        struct shard_sample sample = shards_sample(&shards, i);
        struct rng_key key = {seed, RNG_EXCHANGE};
        if (sample.direction != DIRECTION_TEXT || rng_uniform(key, (u32)i, (u32)(i >> 32), 1, 0) >= share)
            continue;
        ids.count = 0;
        for (i64 part = (i64)sample.first_part; part < (i64)sample.first_part + sample.parts && status == 0; part++) {
            const struct shard_part *stored = shards_part(&shards, part);
            const i32 *own = stored->kind == STREAM_TEXT ? shards_payload(&shards, part) : NULL;
            status = stored->kind == STREAM_TEXT && !own ? -1 : 0;
            for (i64 k = 0; own && k < stored->count; k++)
                id_list_push(&ids, own[k]);
        }
        if (!sample.goes_on)
            id_list_push(&ids, end);
        ngrams_add(n, ids.ids, ids.count);
        texts++;
    }
    if (status == 0 && texts == 0)
        status = error_set("ngrams %g: the training part of %s has no such text", share, data);
    id_list_release(&ids);
    shards_close(&shards);
    return status;
}

/* Adds -ln p of the text targets of a batch, by bigrams and trigrams. */
static void add_batch(double nats[2], double *weight, const struct ngrams *n, const struct batch *b)
{
    const struct target_list *list = &b->targets[TARGET_TEXT];
    const struct input_list *ids = &b->inputs[INPUT_TEXT];
    i64 last = -1; /* entry of `ids` at the target's position */
    for (i64 t = 0; t < list->n; t++) {
        i32 at = list->position[t], before[2] = {NGRAM_NONE, NGRAM_NONE};
        while (last + 1 < ids->n && ids->position[last + 1] <= at)
            last++;
        if (list->stream[t] != STREAM_TEXT || !(list->weight[t] > 0))
            continue;
        if (last >= 0 && ids->position[last] == at)
            before[1] = ids->ids[last];
        if (last >= 1 && ids->position[last - 1] == at - 1 && b->sample[at - 1] == b->sample[at])
            before[0] = ids->ids[last - 1];
        nats[0] -= list->weight[t] * log(ngrams_probability(n, 2, before + 1, list->ids[t]));
        nats[1] -= list->weight[t] * log(ngrams_probability(n, 3, before, list->ids[t]));
        *weight += list->weight[t];
    }
}

int eval_ngrams(double nats[2], struct model *model, const struct eval_settings *s, u64 seed)
{
    static i64 zero[1];
    double one[] = {1}, length[] = {(double)s->length}, weight = 0;
    const struct loader_settings settings = {.rows = {zero, one, 1, false},
                                             .length = {zero, length, 1, false},
                                             .micro_rows = 1,
                                             .in_order = true,
                                             .mixture[DIRECTION_TEXT] = 1};
    const struct heldout_pass pass = {.directory = s->data,
                                      .split = s->split,
                                      .length = s->length,
                                      .most_rows = s->rows,
                                      .chats = CHATS_LEFT_OUT,
                                      .directions = 1u << DIRECTION_TEXT};
    struct heldout_batches held;
    struct loader *loader = loader_open(s->data, s->split, &settings, 0);
    if (!loader)
        return -1;
    struct ngrams *n = ngrams_open(loader_meta(loader)->vocabulary);
    int status = count_texts(n, s->data, s->ngrams, loader_vocabulary(loader)->end, seed);
    loader_close(loader);
    if (status == 0)
        status = heldout_batches_read(&held, &pass, model);
    nats[0] = nats[1] = 0;
    for (i64 i = 0; status == 0 && i < held.count; i++)
        add_batch(nats, &weight, n, &held.batches[i]);
    for (int i = 0; i < 2; i++)
        nats[i] = weight > 0 ? nats[i] / weight : NAN;
    if (status == 0)
        heldout_batches_release(&held);
    ngrams_close(n);
    return status;
}
