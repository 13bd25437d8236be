/* The order in which tiles of queries add to spans of keys in the backward (attention.h). */
#include "kernels/cpu/attention/attention.h"

#include <sched.h>
#include <stdatomic.h>

struct span_marking {
    const struct attention_turns *turns;
    const struct attention_plan *plan;
};

static void mark_spans(void *context, i64 tile, int worker)
{
    const struct span_marking *m = context;
    (void)worker;
    struct key_run run = {0};
    i32 *read = m->turns->before + tile * m->turns->spans;
    memset(read, 0, (size_t)m->turns->spans * sizeof *read);
    while (CPU(attention_run)(&run, m->plan, &m->plan->tiles[tile]))
        read[run.first / m->turns->keys] = 1;
}

void CPU(attention_order)(struct attention_turns *turns, const struct attention_plan *plan, i64 kv_heads)
{
    i64 spans = turns->spans = ceil_div(plan->intervals->keys, turns->keys);
    i64 all = plan->tile_count * spans, counters = kv_heads * spans;
    turns->before = CPU(scratch)(0, 5, (all + counters + spans) * (i64)sizeof *turns->before);
    turns->done = (_Atomic i32 *)(turns->before + all);
    i32 *last = (i32 *)(turns->done + counters);
    memset(last, 0, (size_t)spans * sizeof *last);
    for (i64 i = 0; i < counters; i++)
        atomic_init(&turns->done[i], 0);
    workers_run(plan->tile_count, mark_spans, &(struct span_marking){turns, plan});
    for (i64 i = 0; i < all; i++) {
        if (!turns->before[i])
            continue;
        turns->before[i] = last[i % spans];
        last[i % spans] = (i32)(i / spans) + 1;
    }
}

void CPU(attention_wait)(const struct attention_turns *turns, i64 tile, i64 head, i64 span)
{
    i32 before = turns->before[tile * turns->spans + span];
    _Atomic i32 *done = &turns->done[head * turns->spans + span];
    while (atomic_load_explicit(done, memory_order_acquire) != before)
        sched_yield();
}

void CPU(attention_end)(const struct attention_turns *turns, i64 tile, i64 head, i64 span)
{
    _Atomic i32 *done = &turns->done[head * turns->spans + span];
    atomic_store_explicit(done, (i32)tile + 1, memory_order_release);
}
