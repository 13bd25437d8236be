/* The order of one rank's forwards and backwards. Without a pipeline F B F B; with one, as many forwards first as the
 * ranks behind this one need to have work, then one forward, one backward (1F1B, Narayanan et al. 2019), and with
 * several chunks a rank the interleaved order (Narayanan et al. 2021, arXiv 2104.04473, section 2.2). */
#include "train/step.h"

int turns_init(struct turns *turns, const struct parallel *parallel, i64 micro_batches)
{
    const struct layout *l = &parallel->layout;
    i64 rank = parallel->data->rank;
    *turns = (struct turns){.ranks = l->pipeline,
                            .rank = parallel->pipeline->rank,
                            .chunks = l->chunks,
                            .first = rank,
                            .stride = l->data,
                            .count = ceil_div(max_i64(0, micro_batches - rank), l->data)};
    if (l->expert > 1 && micro_batches % l->data)
        return error_set(
            "%lld micro-batches on %lld data ranks do not come out even, which expert ranks need: they run "
            "every layer together",
            (long long)micro_batches, (long long)l->data);
    if (l->chunks > 1 && turns->count % l->pipeline)
        return error_set("%lld micro-batches of a data rank on %lld pipeline ranks do not come out even, which several "
                         "chunks a rank need",
                         (long long)turns->count, (long long)l->pipeline);
    return 0;
}

i64 turns_ahead(const struct turns *t)
{
    i64 behind = t->ranks - 1 - t->rank;
    return t->chunks == 1 ? behind : 2 * behind + (t->chunks - 1) * t->ranks;
}

/* The k-th forward or backward: runs of `ranks` micro-batches go through one chunk after the other. */
static struct turn nth(const struct turns *t, i64 k, bool forward)
{
    i64 round = t->ranks * t->chunks, own = k % round / t->ranks;
    i64 micro = k / round * t->ranks + k % t->ranks;
    return (struct turn){.forward = forward,
                         .chunk = (forward ? own : t->chunks - 1 - own) * t->ranks + t->rank,
                         .micro = t->first + micro * t->stride};
}

struct turn turn_at(const struct turns *t, i64 i)
{
    i64 all = t->count * t->chunks, ahead = min_i64(turns_ahead(t), all), after = i - ahead;
    if (after < 0)
        return nth(t, i, true);
    if (after < 2 * (all - ahead))
        return nth(t, after % 2 ? after / 2 : ahead + after / 2, after % 2 == 0);
    return nth(t, i - all, false);
}
