/* What decode.c (seats, positions into the batch) and draw.c (what is drawn at them) share. */
#ifndef WEFT_MODEL_DECODING_H
#define WEFT_MODEL_DECODING_H
#include "model/decode.h"

struct flow {               /* one answer in the making */
    struct grammar grammar; /* its positions: those that are not in the cache yet */
    struct answer *answer;
    struct seat *seat;
    i64 copy;
    i64 shift; /* position `number` of the sample stands at number + shift of the batch */
};
struct seat {
    const struct generate_request *request; /* NULL: free */
    struct flow *flows;                     /* [copies] */
    i64 copies, base, prompt, shared; /* base: first column; positions of the prompt; of them, those that stand once */
    i64 set;                          /* of the ids that its text may have; -1: all */
    bool forked;
};
struct source { /* of a position: where its experts are known, or are to be kept; NULL: nowhere */
    struct routes *routes;
    i64 place;
};
struct picture { /* a frame that is read */
    const u8 *bits;
    i64 shape, first_row;
};

/* ---- draw.c ---- */
void find_allowed(struct decoder *d); /* of the requests at hand */
void want_draws(struct decoder *d, struct flow *f);
void run_and_draw(struct decoder *d);
void draws_release(struct draws *draws);

#endif
