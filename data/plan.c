#include "data/plan.h"

#include <math.h>
#include <string.h>

/* Rows are packed in windows of this many, and shuffled within: enough that best-fit leaves little room. */
enum { WINDOW_ROWS = 256 };
enum { EMPTY_EPOCHS = 10000, SHOWN_TIMES = 100 };

static struct rng_key key_of(const struct loader *l, enum rng_purpose purpose)
{
    return (struct rng_key){l->seed, purpose};
}

void planner_release(struct planner *p)
{
    memory_free(p->order);
    entries_release(&p->window);
    rows_release(&p->waiting);
    *p = (struct planner){0};
}

void step_plan_release(struct step_plan *plan)
{
    rows_release(&plan->rows);
}

/* ---- epochs: which samples, in which order ---- */

static i64 times_seen(const struct loader *l, i64 sample, i64 epoch)
{
    double often = l->settings.mixture[l->shards.samples[sample].direction];
    if (l->settings.in_order)
        return often > 0;
    double whole = floor(often);
    double draw = rng_uniform(key_of(l, RNG_MIXTURE), (u32)epoch, (u32)sample, 0, 0);
    return (i64)whole + (draw < often - whole);
}

static struct showing *list_epoch(const struct loader *l, i64 epoch, i64 *count)
{
    i64 n = 0;
    for (i64 s = 0; s < l->shards.sample_count; s++)
        n += times_seen(l, s, epoch);
    struct showing *list = memory_alloc(max_i64(1, n) * (i64)sizeof *list);
    *count = 0;
    for (i64 s = 0; s < l->shards.sample_count; s++)
        for (i64 times = times_seen(l, s, epoch), copy = 0; copy < times; copy++)
            list[(*count)++] = (struct showing){(i32)s, (i32)copy};
    return list;
}

static void begin_epoch(struct loader *l, i64 epoch)
{
    struct planner *p = &l->planner;
    memory_free(p->order);
    p->epoch = epoch;
    p->cursor = 0;
    p->order = list_epoch(l, epoch, &p->order_count);
    if (l->settings.in_order && !l->settings.drawn)
        return;
    i32 *places = memory_alloc(max_i64(1, p->order_count) * 4);
    struct showing *shuffled = memory_alloc(max_i64(1, p->order_count) * (i64)sizeof *shuffled);
    rng_permutation(places, p->order_count, key_of(l, RNG_SHUFFLE), (u32)epoch, 0);
    for (i64 i = 0; i < p->order_count; i++)
        shuffled[i] = p->order[places[i]];
    memory_free(places);
    memory_free(p->order);
    p->order = shuffled;
}

/* ---- windows: entries, none longer than a row ---- */

static bool is_plain_text(const struct loader *l, i64 sample)
{
    const struct shard_sample *s = &l->shards.samples[sample];
    i64 parts = 0;
    for (i64 i = 0; i < s->parts; i++)
        if (l->shards.parts[(i64)s->first_part + i].kind != PART_NOTE)
            parts++;
    return s->direction == DIRECTION_TEXT && parts == 1;
}

/* Returns the positions added. */
static i64 split(struct planner *p, const struct entry *whole)
{
    i64 end = whole->first + whole->length;
    for (i64 first = whole->first; first < end; first += p->length) {
        i64 count = min_i64(p->length, end - first);
        struct entry piece = *whole;
        piece.first = first;
        piece.count = piece.length = count;
        entries_push(&p->window, &piece);
    }
    return whole->length;
}

static i64 add_entry(struct loader *l, const struct entry *entry)
{
    struct planner *p = &l->planner;
    if (entry->length == 0)
        return 0;
    if (entry->length > p->length && is_plain_text(l, entry->sample))
        return split(p, entry);
    if (entry->length > p->length) {
        p->left_out++;
        return 0;
    }
    entries_push(&p->window, entry);
    return entry->length;
}

static i64 add_sample(struct loader *l, const struct showing *showing)
{
    struct entry entry = {.sample = showing->sample, .epoch = (i32)l->planner.epoch, .copy = showing->copy};
    struct measure measure;
    loader_tell(l, &entry, &l->telling);
    grammar_measure(&measure, &l->vocabulary, l->telling.parts, l->telling.count, l->telling.end);
    entry.length = measure.length;
    return add_entry(l, &entry);
}

static bool has_shown(const struct loader *l)
{
    for (i64 i = 0; i < l->shards.sample_count; i++)
        if (l->settings.mixture[l->shards.samples[i].direction] > 0)
            return true;
    return false;
}

/* What a small mixture leaves out of one epoch comes in a later one: only many samples that are shown and add nothing
 * (all longer than a row), or very many epochs without one, end the search. */
static void gather(struct loader *l)
{
    struct planner *p = &l->planner;
    i64 fruitless = 0, empty = 0, total = 0, wanted = WINDOW_ROWS * p->length;
    for (i64 i = 0; i < p->window.count; i++)
        total += p->window.data[i].length;
    while (total < wanted && fruitless <= SHOWN_TIMES * l->shards.sample_count && empty < EMPTY_EPOCHS) {
        if (p->order && p->cursor < p->order_count) {
            i64 added = add_sample(l, &p->order[p->cursor++]);
            fruitless = added ? 0 : fruitless + 1;
            total += added;
            continue;
        }
        if (p->order && (l->settings.in_order || !has_shown(l)))
            return;
        begin_epoch(l, p->order ? p->epoch + 1 : 0);
        empty = p->order_count ? 0 : empty + 1;
    }
}

static void shuffle_rows(struct loader *l, struct rows *rows)
{
    struct rows shuffled = {0};
    i32 *order = memory_alloc(max_i64(1, rows->count) * 4);
    rng_permutation(order, rows->count, key_of(l, RNG_SHUFFLE), (u32)l->planner.windows, 1);
    for (i64 i = 0; i < rows->count; i++) {
        i64 from = rows->offset[order[i]], to = rows->offset[order[i] + 1];
        rows_push(&shuffled, rows->entries.data + from, to - from);
    }
    memory_free(order);
    rows_release(rows);
    *rows = shuffled;
}

static bool plan_window(struct loader *l)
{
    struct planner *p = &l->planner;
    gather(l);
    fit(&p->waiting, &p->window, p->length);
    p->window.count = p->taken = 0;
    if (!l->settings.in_order)
        shuffle_rows(l, &p->waiting);
    p->windows++;
    return p->waiting.count > 0;
}

/* ---- steps ---- */

/* Rows of another length are taken apart again; their entries come first in the next window. */
static void change_length(struct loader *l, i64 length)
{
    struct planner *p = &l->planner;
    struct entries left = {0};
    p->length = length;
    for (i64 i = p->waiting.count ? p->waiting.offset[p->taken] : 0; i < p->waiting.entries.count; i++)
        entries_push(&left, &p->waiting.entries.data[i]);
    rows_clear(&p->waiting);
    p->taken = 0;
    for (i64 i = 0; i < left.count; i++)
        add_entry(l, &left.data[i]);
    entries_release(&left);
}

static void take_row(struct planner *p, struct rows *out)
{
    i64 from = p->waiting.offset[p->taken], to = p->waiting.offset[p->taken + 1];
    rows_push(out, p->waiting.entries.data + from, to - from);
    p->taken++;
}

static int plan_next(struct loader *l, struct step_plan *plan)
{
    struct planner *p = &l->planner;
    i64 step = p->next_step, length = (i64)schedule_at(&l->settings.length, step);
    i64 rows = (i64)schedule_at(&l->settings.rows, step);
    if (length != p->length)
        change_length(l, length);
    plan->step = step;
    rows_clear(&plan->rows);
    while (plan->rows.count < rows) {
        if (p->taken == p->waiting.count && !plan_window(l)) {
            if (l->settings.in_order)
                break;
            return error_set("%s: no sample of a mixture above 0 fits a row of %lld positions", l->shards.directory,
                             (long long)length);
        }
        take_row(p, &plan->rows);
    }
    p->next_step++;
    return 0;
}

static void add_totals(struct loader *l, struct loader_step *s, const struct entry *entry)
{
    struct measure measure;
    loader_tell(l, entry, &l->telling);
    grammar_measure(&measure, &l->vocabulary, l->telling.parts, l->telling.count, l->telling.end);
    s->positions += measure.length;
    s->epoch = entry->epoch;
    for (int kind = 0; kind < TARGETS; kind++)
        s->totals[kind] += measure.totals[kind];
}

static void summarise(struct loader *l, struct step_plan *plan)
{
    struct loader_step *s = &plan->summary;
    *s = (struct loader_step){.rows = plan->rows.count,
                              .length = (i64)schedule_at(&l->settings.length, plan->step),
                              .samples = plan->rows.entries.count,
                              .micro_batches = ceil_div(plan->rows.count, l->settings.micro_rows)};
    for (i64 i = 0; i < plan->rows.entries.count; i++)
        add_totals(l, s, &plan->rows.entries.data[i]);
}

const struct step_plan *plan_step(struct loader *l, i64 step)
{
    struct step_plan *plan = &l->plans[step % PLANS_KEPT];
    if (plan->step == step)
        return plan;
    if (step < l->planner.next_step)
        planner_release(&l->planner);
    while (l->planner.next_step <= step) {
        plan = &l->plans[l->planner.next_step % PLANS_KEPT];
        if (plan_next(l, plan) < 0) {
            plan->step = -1;
            return NULL;
        }
        if (plan->step < step)
            plan->step = -1; /* passed over: its totals were not counted */
    }
    summarise(l, plan);
    return plan;
}
