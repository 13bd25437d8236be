/* Generates the answers to a list of requests with a decoder of its own. */
#ifndef WEFT_MODEL_GENERATE_H
#define WEFT_MODEL_GENERATE_H
#include "model/decode.h"

enum { GENERATE_SLOTS = 16 }; /* the default */
/* answers: [requests * copies], zeroed; the caller releases them. slots: requests at a time, 0:
 * GENERATE_SLOTS. bar: advances as answers finish; NULL: none. Returns -1 and a message if the
 * grammar rejects a prompt or the user interrupts. */
int generate(struct answer *answers, const struct decoder_options *options, const struct generate_request *requests,
             i64 count, i64 slots, struct progress *bar);
/* The same, and shows the answers after every forward. When it is interrupted, the answers keep
 * what was drawn until then. */
struct generate_watcher {
    void (*see)(void *context, const struct answer *answers);
    void *context;
};
int generate_watched(struct answer *answers, const struct decoder_options *options,
                     const struct generate_request *requests, i64 count, i64 slots, struct progress *bar,
                     const struct generate_watcher *watcher);

/* Greedy decoding: the `count` most likely ids after a text prompt. */
void decode_greedy(i32 *ids, struct model *model, const struct submodel *sub, const i32 *prompt, i64 length, i64 count);

#endif
