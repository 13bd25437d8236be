/* Text decoding through the cache: prefill and single steps of many requests at once. All requests share one cache; a
 * request owns a contiguous range of columns, reserved for its longest answer; a cohort's prompt is stored once and its
 * `end` covers the ranges that follow it. */
#ifndef WEFT_MODEL_DECODE_H
#define WEFT_MODEL_DECODE_H
#include "model/model.h"

struct cache {
    struct model *model;
    struct submodel sub;
    i64 columns;
    struct attention_cache *layer;            /* [L] */
    i32 *begin, *end, *hole_begin, *hole_end; /* [columns]; an unwritten column is seen by nobody */
    struct arena memory;
    struct tape tape; /* forward only, cleared every step */
};
/* Room for `columns` keys. The sub-model's arrays must outlive the cache. */
void cache_open(struct cache *cache, struct model *model, const struct submodel *sub, i64 columns);
void cache_close(struct cache *cache);
void cache_clear(struct cache *cache);

/* One forward of n text tokens, token i at column[i] (ascending), with text coordinate coordinate[i], visible to
 * queries below end[i]. Logits of the tokens where wanted[i], in order: [count, V] F32, valid until the next call. */
struct cache_tokens {
    i64 n;
    const i32 *ids, *column, *coordinate, *end;
    const u8 *wanted;
    const i32 *routes; /* [L, n, K] replayed, or NULL */
    i32 *keep_routes;
};
struct tensor *cache_text_step(struct cache *cache, const struct cache_tokens *tokens);

/* Greedy continuation of one prompt; ids [count]; stops early at stop_id (-1: never); returns how many were made.
 * logits [count, V]: what each was picked from; may be NULL. */
i64 decode_greedy(i32 *ids, float *logits, struct model *model, const struct submodel *sub, const i32 *prompt,
                  i64 prompt_length, i64 count, i32 stop_id);
#endif
