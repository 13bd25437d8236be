/* Declarations shared by decode.c (slots, positions of the batch) and draw.c (sampling). */
#ifndef WEFT_MODEL_DECODING_H
#define WEFT_MODEL_DECODING_H
#include "model/decode.h"

struct decode_sequence {    /* A decode sequence: one answer being generated. */
    struct grammar grammar; /* positions that are not in the cache yet */
    struct answer *answer;
    struct cache_slot *slot;
    struct decode_sequence *unconditional; /* guided: the unconditional branch, which gets the same draws */
    i64 copy;
    i64 shift; /* batch index = number of the position in the sample + shift */
};
/* A cache slot: the rows of one request and its decode sequences. */
struct cache_slot {
    const struct generate_request *request; /* NULL: the slot is free */
    struct decode_sequence *sequences;      /* [copies] */
    /* base: first column; prompt: positions of the prompt; shared: prompt positions stored once, whose
     * routes are the request's; those of all others are the answers' */
    i64 copies, base, prompt, shared;
    i64 set; /* index of the allowed-id set of its text */
    bool forked;
    struct cache_slot *unconditional; /* guided request: the unconditional branch */
    /* only in an unconditional branch: */
    struct generate_request unconditional_request;
    struct answer *answers; /* [copies], like the request's answers */
};
struct position_source {   /* Location of the expert choices of one position. */
    struct routes *routes; /* routes to read or append to; NULL: none */
    i64 place;             /* index of the position in `routes` */
    bool keep;             /* append this position's experts to `routes` */
};
struct picture_input { /* A frame of a picture that this forward reads. */
    const u8 *bits;
    i64 shape, first_row;
};
struct draw_results {           /* What one forward has drawn. */
    i32 *code, *frame, *routes; /* text [n]; audio [n, levels]; [L, n, K] of all positions */
    /* Text, [n]. With want_entropy, logprob holds the negative log-probability. */
    float *logprob, *entropy;
    u8 *bits; /* [n, d] */
    /* With want_entropy: mean losses and entropies of the bits, [n]; those of codes, [levels, n]. */
    float *bit_loss, *bit_entropy, *code_loss, *code_entropy;
};

/* Bit sets of allowed ids. allow_ids: fills the slot's with what its request allows in text. */
void allowed_open(struct decoder *d);
void allowed_close(struct decoder *d);
void allow_ids(struct decoder *d, struct cache_slot *s);
/* Adds the rows of logits that the grammar of f asks for to the targets and
 * draws of the forward. */
void want_draws(struct decoder *d, struct decode_sequence *f);
/* Runs the forward, draws, and copies the results to the host, where they stay until the next
 * batch. feed_draws feeds them to the answers; store_routes appends the experts to the routes. */
void run_and_draw(struct draw_results *drawn, struct decoder *d);
void feed_draws(struct decoder *d, const struct draw_results *drawn);
void store_routes(struct decoder *d, i32 *routes);
void draws_release(struct draws *draws);

#endif
