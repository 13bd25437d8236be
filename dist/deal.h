/* Which data rank takes which micro-batches of a step: by default all as many, else as many as fits the
 * speeds of the ranks. Data ranks with different experts, tensor ranks and pipeline ranks compute
 * together, so a deal is over groups: data / expert of them, each of `expert` consecutive data ranks.
 *
 *     parts 1000, 333; 8 micro-batches:     rank 0: 0 2 4 5 6 7     rank 1: 1 3
 *
 * Counts follow from whole numbers alone, so all ranks agree on them, and a replay repeats them. A
 * micro-batch has the same samples whoever takes it.
 *
 * In: the layout, and what each rank measured of its own steps, which all ranks have gathered. Out: counts,
 * parts, warnings. */
#ifndef WEFT_DIST_DEAL_H
#define WEFT_DIST_DEAL_H
#include "dist/dist.h"

enum { DEAL_FASTEST = 1000 }; /* parts of the fastest group */
struct deal {
    i64 ranks, group; /* data ranks, and those of a group */
    i64 unit;         /* micro-batches that a rank takes at a time: a round of interleaved pipeline ranks */
    i64 groups;
    i64 *parts;         /* [groups] speeds, 1 .. DEAL_FASTEST; all equal: even */
    i64 total, *counts; /* of deal_to: micro-batches, and [ranks] those of each; total -1: none */
};
void deal_open(struct deal *deal, const struct layout *layout); /* an even one */
void deal_close(struct deal *deal);
void deal_set(struct deal *deal, const i64 *parts);
/* Deals the micro-batches of a step. Rank r of an even deal takes r, r + ranks, ... Otherwise each unit goes
 * to the group that would end first with it, and every group has one; with fewer units than groups, or
 * micro-batches that do not come out in units, the deal is even. */
void deal_to(struct deal *deal, i64 micro_batches);
i64 deal_least(const struct deal *deal); /* the least count of a rank */
/* The i-th micro-batch of a rank, i < counts[rank]. They go round the ranks that have some left. */
i64 deal_micro(const struct deal *deal, i64 rank, i64 i);

/* What a rank measured in a step. */
struct rank_pace {
    double seconds; /* of a micro-batch, without the time in calls of comms; 0: none */
    double work;    /* flops of a micro-batch; 0: another rank of the pipeline counts them */
    double calls_s; /* of the whole step in calls of comms */
};
/* Speeds of all ranks of the world so far. */
enum { PACE_STEPS = 11 };
struct rank_speeds {
    struct layout layout;
    i64 world;
    double *last;    /* [world, PACE_STEPS] seconds of a micro-batch of mean work, in the last steps */
    double *seconds; /* [world] their median; 0: not known yet */
    i64 *steps;      /* [world] that were measured, but for the first one, which is not counted */
    bool *slow;      /* [world] */
    i64 better;      /* steps in a row for which another deal would have been better */
};
void speeds_open(struct rank_speeds *speeds, const struct layout *layout);
void speeds_close(struct rank_speeds *speeds);
void speeds_add(struct rank_speeds *speeds, const struct rank_pace *all); /* [world] */
/* A rank that has become slow, or is slow no more, since it was last returned; -1: none. Slow is from 1.5
 * times the median of the ranks at its place in the pipeline on, until below 1.25 times. */
i64 speeds_turned(struct rank_speeds *speeds);
double speeds_median(const struct rank_speeds *speeds, i64 rank); /* of those ranks; the lower one of two */
/* Warns of ranks that became slow, with their hosts. Collective over the world. stage: for the messages. */
void speeds_warn(struct rank_speeds *speeds, struct comm *world, const char *stage);
/* Call it after each step. Fills in the parts of the next one: those of the deal, or new ones if with them, for
 * five steps in a row, the last group would have ended earlier by more than 6 %. So noise moves a deal rarely. */
void speeds_deal(i64 *parts, struct rank_speeds *speeds, const struct deal *deal);

#endif
