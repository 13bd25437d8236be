/* Fragments of a table of weights, and what merges do to them: calls of all ranks of a site. Values pass through the
 * first rank by windows of whole rows, so no rank holds what others have.
 *
 * Beside the weights lies a shadow table: its masters are the anchors, its m what is under way, decoded. */
#ifndef WEFT_SITES_FRAGMENTS_H
#define WEFT_SITES_FRAGMENTS_H
#include "dist/dist.h"
#include "sites/merge.h"

enum { FRAGMENTS_MOST = 4 };
struct fragments {
    struct weights *weights, shadow;
    const struct parallel *ranks;
    i64 count, layers, experts; /* experts 0: no counts of use */
    float *room;                /* host memory for a few windows, of the main thread */
    i64 room_each;              /* numbers of a window at the most */
};
void fragments_open(struct fragments *fragments, struct weights *weights, const struct parallel *ranks, i64 layers,
                    i64 experts);
void fragments_close(struct fragments *fragments);
i64 fragment_of_layer(const struct fragments *fragments, i64 layer);
i64 fragment_elements(const struct fragments *fragments, i64 fragment);
struct part_sizes fragment_sizes(const struct fragments *fragments, i64 fragment);
/* Layers [layers] with counts of use in the fragment, ascending; returns how many. */
i64 fragment_layers(i64 *layers, const struct fragments *fragments, i64 fragment);

void fragments_set_anchors(struct fragments *fragments); /* to the masters */
u64 fragments_hash(const struct fragments *fragments);   /* of all anchors; on the first rank */
/* Puts masters - anchor under way. -1 and a message on all ranks if it is not finite. */
int fragment_measure(struct fragments *fragments, i64 fragment);
/* out, on the first rank: codes of what is under way, which becomes what they say. */
void fragment_encode(struct fragments *fragments, i64 fragment, int bits, u8 *out);
/* Whether all numbers of a part are finite: any thread, any rank. -1 and a message. */
int fragment_check(const struct fragments *fragments, i64 fragment, const struct part *part);
/* Applies a round whose parts have been checked. record: on the first rank. own: what is under way is part of it.
 * settle: the masters become the anchor. */
void fragment_apply(struct fragments *fragments, i64 fragment, const struct record *record, bool own, bool settle);
void fragment_read_anchor(const struct fragments *fragments, i64 fragment, float *out); /* out: on the first rank */
/* Takes another anchor, `in` on the first rank. keep: masters keep their difference to it, but for what is under way if
 * `own`; otherwise they become the anchor. Nothing is under way then. */
void fragment_take(struct fragments *fragments, i64 fragment, const float *in, bool keep, bool own);
/* Call behind applying and taking, before weights are used. */
void fragments_spread(struct fragments *fragments);
#endif
