/* Declarations shared by decode.c (seats, positions of the batch), draw.c
 * (sampling) and speculate.c. */
#ifndef WEFT_MODEL_DECODING_H
#define WEFT_MODEL_DECODING_H
#include "model/decode.h"

struct flow {               /* A decode sequence: one answer being generated. */
    struct grammar grammar; /* positions that are not in the cache yet */
    struct answer *answer;
    struct seat *seat;
    struct flow *bare; /* guided: the unconditional branch, which gets the same draws */
    i64 copy;
    i64 shift; /* batch index = number of the position in the sample + shift */
    /* Drafted ids after its last one, and their row in `drafts`. */
    i32 draft[DRAFTS_MOST];
    i64 draft_count, draft_row;
};
/* A cache slot: the columns of one request and its decode sequences. */
struct seat {
    const struct generate_request *request; /* NULL: the seat is free */
    struct flow *flows;                     /* [copies] */
    /* base: first column; prompt: positions of the prompt; shared: prompt positions stored once */
    i64 copies, base, prompt, shared;
    i64 set; /* index of the allowed-id set of its text */
    bool forked;
    struct seat *bare; /* guided request: the unconditional branch */
    /* only in an unconditional branch: */
    struct generate_request promptless;
    struct answer *answers; /* [copies], like the request's answers */
};
struct position_source { /* Owner of one position of the batch. */
    struct flow *flow;
    i64 number;            /* position number in its sample */
    i32 id;                /* text id; -1: not text */
    struct routes *routes; /* routes to read or append to; NULL: none */
    i64 place;
    bool keep; /* append this position's experts to `routes` */
};
struct seen_picture { /* A frame of a picture that this forward reads. */
    const u8 *bits;
    i64 shape, first_row;
};

/* ---- decode.c ---- */
i64 column_of(const struct flow *f, i64 number);
/* Sets which queries attend to the column of a position from now on. */
void open_column(struct decoder *d, const struct flow *f, const struct position *p, i64 number);
/* Number of columns that attention covers: the used columns, rounded up to a few distinct values
 * (at most 4 per power of two), because a GPU recording is valid for one number only. */
i64 cache_keys(const struct cache *cache);
/* False for a rejected draft: a later position overwrites its column. */
bool source_stands(const struct position_source *source);

/* ---- draw.c ---- */
void find_allowed(struct decoder *d); /* builds the allowed-id sets of the current requests */
/* Adds the rows of logits that the grammar of f asks for to the targets and
 * draws of the forward. */
void want_draws(struct decoder *d, struct flow *f);
void text_identity(u32 identity[4], const struct flow *f, i64 number); /* random key of the id drawn at a position */
struct tensor *run_and_draw(struct decoder *d);                        /* returns the hidden states */
void draws_release(struct draws *draws);

/* ---- speculate.c ---- */
i64 drafted_positions(const struct decoder *d); /* batch positions reserved for the drafts in the next forward */
/* Draws in device memory. */
struct staged_draws {
    const i32 *row, *set, *draft, *of;
    const u32 *identity;
    struct guidance guidance;
};
/* Samples like the op `sample`, and accepts drafts where it may. */
void draw_verified(struct decoder *d, i32 *code, struct matrix logits, const struct staged_draws *draws,
                   const struct sampling *sampling);
void draft_ids(struct decoder *d, struct tensor *hidden); /* after a forward, for the next one */

#endif
