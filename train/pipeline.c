/* Order of one rank's forwards (F) and backwards (B). Without a pipeline: F B F B. With one: first
 * the warm-up forwards that give the following ranks work, then one forward and one backward in
 * turn (1F1B, Narayanan et al. 2019). With several chunks per rank: the interleaved schedule
 * (Narayanan et al. 2021, arXiv 2104.04473, section 2.2). */
#include "train/step.h"

i64 pipeline_multiple(const struct layout *l)
{
    if (l->chunks > 1)
        return l->data * l->pipeline;
    return l->expert > 1 ? l->data : 1;
}

int pipeline_check(const struct layout *l, i64 micro_batches)
{
    i64 multiple = pipeline_multiple(l);
    if (micro_batches % multiple == 0)
        return 0;
    const char *why = l->chunks > 1 ? "several chunks a pipeline rank go through them in rounds"
                                    : "expert ranks run every layer together";
    return error_usage("%lld micro-batches of a step do not come out even over %lld data and %lld pipeline ranks: "
                       "expected a multiple of %lld, "
                       "since %s; change batch.rows, batch.micro_rows or the layout",
                       (long long)micro_batches, (long long)l->data, (long long)l->pipeline, (long long)multiple, why);
}

void pipeline_schedule_init(struct pipeline_schedule *s, const struct parallel *parallel, const struct deal *deal)
{
    const struct layout *l = &parallel->layout;
    i64 rank = parallel->data->rank;
    *s = (struct pipeline_schedule){.ranks = l->pipeline,
                                    .rank = parallel->pipeline->rank,
                                    .chunks = l->chunks,
                                    .deal = deal,
                                    .data_rank = rank,
                                    .count = deal->counts[rank]};
}

i64 pipeline_warmup(const struct pipeline_schedule *s)
{
    i64 behind = s->ranks - 1 - s->rank;
    return s->chunks == 1 ? behind : 2 * behind + (s->chunks - 1) * s->ranks;
}

/* The k-th forward or backward. Groups of `ranks` micro-batches pass through one
 * chunk after the other. */
static struct pipeline_task nth_task(const struct pipeline_schedule *s, i64 k, bool forward)
{
    i64 round = s->ranks * s->chunks, own = k % round / s->ranks;
    i64 i = k / round * s->ranks + k % s->ranks;
    return (struct pipeline_task){.forward = forward,
                                  .chunk = (forward ? own : s->chunks - 1 - own) * s->ranks + s->rank,
                                  .micro = deal_micro(s->deal, s->data_rank, i)};
}

struct pipeline_task pipeline_task_at(const struct pipeline_schedule *s, i64 i)
{
    i64 all = s->count * s->chunks, ahead = min_i64(pipeline_warmup(s), all), after = i - ahead;
    if (after < 0)
        return nth_task(s, i, true);
    if (after < 2 * (all - ahead))
        return nth_task(s, after % 2 ? after / 2 : ahead + after / 2, after % 2 == 0);
    return nth_task(s, i - all, false);
}
