#define _GNU_SOURCE /* gethostname */
#include "dist/deal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Counts ---- */

void deal_open(struct deal *d, const struct layout *layout)
{
    i64 ranks = max_i64(layout->data, 1), group = max_i64(layout->expert, 1);
    *d = (struct deal){.ranks = ranks,
                       .group = group,
                       .groups = ranks / group,
                       .unit = layout->chunks > 1 ? layout->pipeline : 1,
                       .total = -1};
    d->parts = memory_alloc(d->groups * (i64)sizeof *d->parts);
    d->counts = memory_alloc(ranks * (i64)sizeof *d->counts);
    for (i64 g = 0; g < d->groups; g++)
        d->parts[g] = DEAL_FASTEST;
}

void deal_close(struct deal *d)
{
    memory_free(d->parts);
    memory_free(d->counts);
    *d = (struct deal){0};
}

void deal_set(struct deal *d, const i64 *parts)
{
    memcpy(d->parts, parts, (size_t)d->groups * sizeof *parts);
    d->total = -1;
}

static bool is_even(const i64 *parts, i64 groups)
{
    for (i64 g = 1; g < groups; g++)
        if (parts[g] != parts[0])
            return false;
    return true;
}

/* Deals `units` to groups, at least as many: each in turn to the one that would end first with it, (count +
 * 1) / parts, or to the first of several. First come those that a group gets in any case. */
static void apportion(i64 *counts, const i64 *parts, i64 groups, i64 units)
{
    i64 sum = 0, left = units;
    for (i64 g = 0; g < groups; g++)
        sum += parts[g];
    for (i64 g = 0; g < groups; g++)
        left -= counts[g] = max_i64(1, (units - groups) * parts[g] / sum);
    for (; left > 0; left--) {
        i64 best = 0;
        for (i64 g = 1; g < groups; g++)
            best = (counts[g] + 1) * parts[best] < (counts[best] + 1) * parts[g] ? g : best;
        counts[best]++;
    }
}

/* counts [groups]: units of each. False: the deal is even. */
static bool deal_units(i64 *counts, const struct deal *d, const i64 *parts, i64 micro_batches)
{
    i64 each = d->group * d->unit, units = micro_batches / each;
    if (is_even(parts, d->groups) || micro_batches % each || units < d->groups)
        return false;
    apportion(counts, parts, d->groups, units);
    return true;
}

static void count_ranks(i64 *counts, const struct deal *d, const i64 *parts, i64 micro_batches)
{
    i64 *units = memory_alloc(d->groups * (i64)sizeof *units);
    bool uneven = deal_units(units, d, parts, micro_batches);
    for (i64 r = 0; r < d->ranks; r++)
        counts[r] = uneven ? units[r / d->group] * d->unit : ceil_div(max_i64(0, micro_batches - r), d->ranks);
    memory_free(units);
}

void deal_to(struct deal *d, i64 micro_batches)
{
    if (d->total != micro_batches)
        count_ranks(d->counts, d, d->parts, micro_batches);
    d->total = micro_batches;
}

i64 deal_least(const struct deal *d)
{
    i64 least = d->counts[0];
    for (i64 r = 1; r < d->ranks; r++)
        least = min_i64(least, d->counts[r]);
    return least;
}

i64 deal_micro(const struct deal *d, i64 rank, i64 i)
{
    i64 before = 0;
    for (i64 r = 0; r < d->ranks; r++)
        before += min_i64(d->counts[r], r < rank ? i + 1 : i);
    return before;
}

/* ---- Speeds ---- */

void speeds_open(struct rank_speeds *s, const struct layout *l)
{
    i64 world = max_i64(l->data, 1) * max_i64(l->tensor, 1) * max_i64(l->pipeline, 1);
    *s = (struct rank_speeds){.layout = *l, .world = world};
    s->last = memory_alloc(world * PACE_STEPS * (i64)sizeof *s->last);
    s->seconds = memory_alloc(world * (i64)sizeof *s->seconds);
    s->steps = memory_alloc(world * (i64)sizeof *s->steps);
    s->slow = memory_alloc(world);
    for (i64 r = 0; r < world; r++)
        s->steps[r] = -1;
}

void speeds_close(struct rank_speeds *s)
{
    memory_free(s->last);
    memory_free(s->seconds);
    memory_free(s->steps);
    memory_free(s->slow);
    *s = (struct rank_speeds){0};
}

static i64 data_rank_of(const struct rank_speeds *s, i64 rank)
{
    return rank / s->layout.tensor % s->layout.data;
}

static i64 stage_of(const struct rank_speeds *s, i64 rank)
{
    return rank / (s->layout.tensor * s->layout.data);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The lower one of two; 0: there is none. */
static double median_of(const double *values, i64 count)
{
    double sorted[max_i64(count, 1)];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    return count ? sorted[(count - 1) / 2] : 0;
}

/* work [data]: flops of a micro-batch that each data rank had. Returns their mean. */
static double work_of(double *work, const struct rank_speeds *s, const struct rank_pace *all)
{
    double sum = 0;
    i64 some = 0;
    memset(work, 0, (size_t)s->layout.data * sizeof *work);
    for (i64 r = 0; r < s->world; r++)
        work[data_rank_of(s, r)] = fmax(work[data_rank_of(s, r)], all[r].work);
    for (i64 d = 0; d < s->layout.data; d++) {
        sum += work[d];
        some += work[d] > 0;
    }
    return some ? sum / (double)some : 0;
}

void speeds_add(struct rank_speeds *s, const struct rank_pace *all)
{
    double *work = memory_alloc(s->layout.data * (i64)sizeof *work), mean = work_of(work, s, all);
    for (i64 r = 0; r < s->world; r++) {
        double own = work[data_rank_of(s, r)], *last = s->last + r * PACE_STEPS;
        i64 step = s->steps[r];
        if (all[r].seconds <= 0)
            continue;
        s->steps[r]++;
        if (step < 0) /* the first one maps memory */
            continue;
        last[step % PACE_STEPS] = own > 0 ? all[r].seconds * mean / own : all[r].seconds;
        s->seconds[r] = median_of(last, min_i64(step + 1, PACE_STEPS));
    }
    memory_free(work);
}

enum { KNOWN_STEPS = 3 }; /* measured before anything follows from a speed */

static bool is_known(const struct rank_speeds *s, i64 rank)
{
    return s->steps[rank] >= KNOWN_STEPS;
}

double speeds_median(const struct rank_speeds *s, i64 rank)
{
    double *peers = memory_alloc(s->world * (i64)sizeof *peers);
    i64 count = 0;
    for (i64 r = 0; r < s->world; r++)
        if (is_known(s, r) && stage_of(s, r) == stage_of(s, rank))
            peers[count++] = s->seconds[r];
    double median = median_of(peers, count);
    memory_free(peers);
    return median;
}

i64 speeds_turned(struct rank_speeds *s)
{
    for (i64 r = 0; r < s->world; r++) {
        bool slow = is_known(s, r) && s->seconds[r] >= (s->slow[r] ? 1.25 : 1.5) * speeds_median(s, r);
        if (slow != s->slow[r]) {
            s->slow[r] = slow;
            return r;
        }
    }
    return -1;
}

void speeds_warn(struct rank_speeds *s, struct comm *world, const char *stage)
{
    for (i64 r; (r = speeds_turned(s)) >= 0;) {
        char host[64] = "";
        gethostname(host, sizeof host - 1);
        comm_broadcast(comm_host(world), host, sizeof host, r);
        if (world->rank == 0 && s->slow[r])
            log_warn("%s: rank %lld on %s is slow: %.3g s a micro-batch, %.1f times the median of the ranks", stage,
                     (long long)r, host, s->seconds[r], s->seconds[r] / speeds_median(s, r));
        else if (world->rank == 0)
            log_info("%s: rank %lld on %s is slow no more: %.3g s a micro-batch", stage, (long long)r, host,
                     s->seconds[r]);
    }
}

/* seconds [groups]: of a micro-batch, those of the slowest rank of each. False: some are not known yet. */
static bool group_seconds(double *seconds, const struct rank_speeds *s, const struct deal *d)
{
    bool known = true;
    memset(seconds, 0, (size_t)d->groups * sizeof *seconds);
    for (i64 r = 0; r < s->world; r++) {
        i64 g = data_rank_of(s, r) / d->group;
        seconds[g] = fmax(seconds[g], s->seconds[r]);
        known &= is_known(s, r);
    }
    return known;
}

/* Seconds until the last group has ended. */
static double last_end(const double *seconds, const i64 *counts, const struct deal *d)
{
    double last = 0;
    for (i64 g = 0; g < d->groups; g++)
        last = fmax(last, seconds[g] * (double)counts[g * d->group]);
    return last;
}

void speeds_deal(i64 *parts, struct rank_speeds *s, const struct deal *d)
{
    enum { BETTER_STEPS = 5 };
    const double GAIN = 1.06;
    double *seconds = memory_alloc(d->groups * (i64)sizeof *seconds), least = INFINITY;
    i64 *counts = memory_alloc(d->ranks * (i64)sizeof *counts), *other = memory_alloc(d->groups * (i64)sizeof *other);
    bool known = d->total > 0 && group_seconds(seconds, s, d);
    for (i64 g = 0; g < d->groups; g++)
        least = fmin(least, seconds[g]);
    for (i64 g = 0; known && g < d->groups; g++)
        other[g] = max_i64(1, (i64)lround(DEAL_FASTEST * least / seconds[g]));
    if (known)
        count_ranks(counts, d, other, d->total);
    bool better = known && last_end(seconds, d->counts, d) > GAIN * last_end(seconds, counts, d);
    s->better = better ? s->better + 1 : 0;
    bool change = s->better >= BETTER_STEPS;
    memcpy(parts, change ? other : d->parts, (size_t)d->groups * sizeof *parts);
    if (change)
        s->better = 0;
    memory_free(seconds);
    memory_free(counts);
    memory_free(other);
}
