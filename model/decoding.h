/* What decode.c (seats, positions into the batch) and draw.c (what is drawn at them) share. */
#ifndef WEFT_MODEL_DECODING_H
#define WEFT_MODEL_DECODING_H
#include "model/decode.h"

struct flow {               /* one answer in the making */
    struct grammar grammar; /* its positions: those that are not in the cache yet */
    struct answer *answer;
    struct seat *seat;
    struct flow *bare; /* of a guided one: it without its prompt, which gets the same draws */
    i64 copy;
    i64 shift; /* position `number` of the sample stands at number + shift of the batch */
    /* ids that may follow its last one, and the row of `drafts` they were drawn from */
    i32 draft[DRAFTS_MOST];
    i64 draft_count, draft_row;
};
struct seat {
    const struct generate_request *request; /* NULL: free */
    struct flow *flows;                     /* [copies] */
    i64 copies, base, prompt, shared; /* base: first column; positions of the prompt; of them, those that stand once */
    i64 set;                          /* of the ids that its text may have; -1: all */
    bool forked;
    struct seat *bare; /* of a guided request: its answers without the prompt */
    /* of a bare seat alone */
    struct generate_request promptless;
    struct answer *answers; /* [copies], as those of the request */
};
struct position_source { /* of a position of the batch */
    struct flow *flow;
    i64 number;            /* within its sample */
    i32 id;                /* of text; -1 */
    struct routes *routes; /* where its experts are known; NULL: nowhere */
    i64 place;
    bool keep; /* or are to be kept */
};
struct seen_picture { /* a frame that is read */
    const u8 *bits;
    i64 shape, first_row;
};

/* ---- decode.c ---- */
i64 column_of(const struct flow *f, i64 number);
/* Who sees the column of a position from now on. */
void open_column(struct decoder *d, const struct flow *f, const struct position *p, i64 number);
/* Columns that attention looks at: those that are taken, rounded up to few different numbers (at most 4 from one power
 * of two to the next), since a GPU's recordings are of one number each. */
i64 cache_keys(const struct cache *cache);
/* A drafted position that was not accepted stands nowhere: its column is written again. */
bool source_stands(const struct position_source *source);

/* ---- draw.c ---- */
void find_allowed(struct decoder *d); /* of the requests at hand */
void want_draws(struct decoder *d, struct flow *f);
void text_identity(u32 identity[4], const struct flow *f, i64 number); /* keys what is drawn at a position */
struct tensor *run_and_draw(struct decoder *d);                        /* the hidden states */
void draws_release(struct draws *draws);

/* ---- speculate.c ---- */
i64 drafted_positions(const struct decoder *d); /* that the next forward takes whatever else it takes */
struct staged_draws {                           /* device memory */
    const i32 *row, *set, *draft, *of;
    const u32 *identity;
    struct guidance guidance;
};
/* What `sample` would do, and what was drafted is accepted where it may be. */
void draw_verified(struct decoder *d, i32 *code, struct matrix logits, const struct staged_draws *draws,
                   const struct sampling *sampling);
void draft_ids(struct decoder *d, struct tensor *hidden); /* after a forward, for the next */

#endif
