/* Steps between merges, and bits of what is sent, by what was measured. */
#ifndef WEFT_SITES_PLAN_H
#define WEFT_SITES_PLAN_H
#include "core/core.h"

enum { PLAN_STEPS_LEAST = 5, PLAN_STEPS_MOST = 500 };
struct plan {
    i64 steps, bits;
    i64 delay; /* steps from the beginning of a round to its application, if all sites are required */
};
struct plan_measures {
    double step_s;      /* seconds of a step at this site */
    double merge_s;     /* that a merge of all fragments takes of them */
    double bytes_per_s; /* of the slowest link */
    double delay_s;     /* of a message there and back */
    double bytes[33];   /* that a merge of all fragments sends, by bits */
    i64 fragments;
    struct plan given; /* by the settings; 0: choose */
};
/* The fewest steps for which sending takes at most 80 % of their time, and merging at most 1 %; 8 bits if they cost no
 * step more than 4. The delay is the shortest for which no step should wait for the link. */
struct plan plan_choose(const struct plan_measures *measures);
/* Whether there is nothing to choose. */
bool plan_is_given(const struct plan *given);
#endif
