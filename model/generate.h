/* Answers to a list of requests, from opening a decoder to closing it. */
#ifndef WEFT_MODEL_GENERATE_H
#define WEFT_MODEL_GENERATE_H
#include "model/decode.h"

enum { GENERATE_SEATS = 16 };
/* answers [requests * copies], zeroed; the caller releases them. seats: requests at a time, 0: 16. bar: moved as
 * answers are done; NULL: none. -1 and a message: a prompt the grammar does not take, or interrupted. */
int generate(struct answer *answers, const struct decoder_options *options, const struct generate_request *requests,
             i64 count, i64 seats, struct progress *bar);

/* The likeliest `count` ids after a prompt of text. */
void decode_greedy(i32 *ids, struct model *model, const struct submodel *sub, const i32 *prompt, i64 length, i64 count);

#endif
