/* Plans the rows of a step. The places of the order are cut into windows, and each window is
 * packed separately. A window has the same number of rows in every pass, so a table over one pass's
 * windows (computed as far as needed) locates a row within a pass, and a division beyond it.
 *
 *   places   0 ...... begin        first window of the grid
 *                     |  joining   | window | window | window | ...
 *
 * When the row length changes, the untaken rows of the current window are unpacked into `carried`
 * and packed anew, before all others. Then come `joining`, the places from `begin` up to the grid,
 * and the windows of the grid. */
#include "data/loader/mixer.h"
#include "data/loader/plan.h"

#include <string.h>

/* Rows per window. Rows are packed and shuffled within a window; this many leave best-fit packing
 * little room. */
enum { WINDOW_ROWS = 256 };
enum { WINDOW_CARRIED = -2, WINDOW_JOINING = -1, NO_WINDOW = -3 }; /* pseudo-windows before those of the grid */

void planner_release(struct planner *p)
{
    entries_release(&p->carried);
    entries_release(&p->gathered);
    rows_release(&p->packed);
    memory_free(p->rows_before);
    *p = (struct planner){0};
}

void step_plan_release(struct step_plan *plan)
{
    rows_release(&plan->rows);
}

/* ---- Requests ---- */

i64 plan_rows_of_step(const struct loader *l, i64 step)
{
    return l->mixer ? mixer_rows(l->mixer, step, l->number) : (i64)schedule_at(&l->settings.rows, step);
}

void loader_limit(struct loader *l, double epochs)
{
    double places = epochs / (double)l->order.epochs * (double)l->order.slots;
    l->limit = places < 0x1p62 ? (i64)(places + 0.5) : INT64_MAX;
}

double plan_epoch_positions(const struct loader *l, i64 length)
{
    return l->stream_plan ? 0 : order_positions(l, length) / (double)l->order.epochs;
}

/* ---- The grid: `windows` windows in `period` places, repeated endlessly ---- */

static i64 window_begin(const struct planner *p, i64 window)
{
    return window / p->windows * p->period + window % p->windows * p->period / p->windows;
}

static void set_grid(struct planner *p, const struct loader *l)
{
    double wanted = (double)(WINDOW_ROWS * p->length), has = order_positions(l, p->length);
    bool several = has > 0 && has < wanted && !l->settings.in_order; /* several passes per window */
    p->period = max_i64(1, l->order.slots) * (several ? (i64)(wanted / has) : 1);
    p->windows = min_i64(p->period, max_i64(1, (i64)(has / wanted)));
    p->first = p->begin / p->period * p->windows;
    while (window_begin(p, p->first) < p->begin)
        p->first++;
}

/* ---- Windows: lists of entries, none longer than a row ---- */

void plan_add_entry(struct plan_entries *out, const struct loader *l, const struct plan_entry *entry, i64 length)
{
    /* order_room has excluded the others. */
    bool plain_text = entry->place >= 0 || is_plain_text(l, entry->sample);
    i64 end = entry->first + entry->length;
    if (entry->length > 0 && entry->length <= length)
        entries_push(out, entry);
    if (entry->length <= length || !plain_text)
        return;
    for (i64 first = entry->first; first < end; first += length) {
        struct plan_entry piece = *entry;
        piece.first = first;
        piece.count = piece.length = min_i64(length, end - first);
        entries_push(out, &piece);
    }
}

void plan_shuffle_rows(const struct loader *l, struct packed_rows *rows, i64 begin)
{
    struct packed_rows shuffled = {0};
    i32 *order = memory_alloc(max_i64(1, rows->count) * 4);
    rng_permutation(order, rows->count, (struct rng_key){l->seed, RNG_SHUFFLE}, (u32)begin, 1 + (u32)(begin >> 32));
    for (i64 i = 0; i < rows->count; i++) {
        i64 from = rows->offset[order[i]], to = rows->offset[order[i] + 1];
        rows_push(&shuffled, rows->entries.data + from, to - from);
    }
    memory_free(order);
    rows_release(rows);
    *rows = shuffled;
}

/* Opens window `number`: packs its rows into `packed`, where they stay until another window is
 * opened. Entries have the room they need in any pass; their samples are determined when a row is
 * taken. */
static void open_window(struct loader *l, i64 number)
{
    struct planner *p = &l->planner;
    bool carried = number == WINDOW_CARRIED, joining = number == WINDOW_JOINING;
    i64 begin = joining ? p->begin : window_begin(p, max_i64(0, number));
    i64 end = min_i64(l->limit, joining ? window_begin(p, p->first) : window_begin(p, max_i64(0, number) + 1));
    if (p->open == number)
        return;
    p->gathered.count = 0;
    for (i64 i = 0; carried && i < p->carried.count; i++)
        plan_add_entry(&p->gathered, l, &p->carried.data[i], p->length);
    for (i64 place = begin; !carried && place < end; place++)
        plan_add_entry(&p->gathered, l, &(struct plan_entry){.place = place, .length = order_room(l, place, p->length)},
                       p->length);
    fit(&p->packed, &p->gathered, p->length);
    if (!l->settings.in_order)
        plan_shuffle_rows(l, &p->packed, carried ? ~p->begin : begin);
    p->open = number;
}

/* ---- Locating a row ---- */

static void begin_length(struct loader *l, i64 length)
{
    struct planner *p = &l->planner;
    p->length = length;
    p->taken = p->counted = p->carried_rows = p->joining_rows = 0;
    p->left_out = order_too_long(l, length);
    p->open = NO_WINDOW;
    set_grid(p, l);
    if (p->carried.count) {
        open_window(l, WINDOW_CARRIED);
        p->carried_rows = p->packed.count;
    }
    p->joining_known = window_begin(p, p->first) == p->begin;
}

/* Finds the window that contains row `*row` of the grid, and makes *row relative to it. Returns -1
 * if there is none. */
static i64 find_in_grid(struct loader *l, i64 *row)
{
    struct planner *p = &l->planner;
    i64 most = l->settings.in_order ? p->windows - p->first : p->windows, lap = 0, low = 0;
    while (p->counted < most && (p->counted == 0 || p->rows_before[p->counted] <= *row)) {
        if (p->counted + 2 > p->capacity) {
            i64 wanted = max_i64(64, 2 * p->capacity);
            p->rows_before = memory_resize(p->rows_before, p->capacity * 8, wanted * 8);
            p->capacity = wanted;
        }
        open_window(l, p->first + p->counted);
        p->rows_before[0] = 0;
        p->rows_before[p->counted + 1] = p->rows_before[p->counted] + p->packed.count;
        p->counted++;
    }
    i64 all = p->counted ? p->rows_before[p->counted] : 0;
    if (*row >= all) {
        if (all == 0 || l->settings.in_order)
            return -1;
        lap = *row / all;
        *row %= all;
    }
    for (i64 high = p->counted - 1; low < high;) {
        i64 middle = (low + high + 1) / 2;
        if (p->rows_before[middle] <= *row)
            low = middle;
        else
            high = middle - 1;
    }
    *row -= p->rows_before[low];
    i64 window = p->first + lap * p->windows + low;
    return window_begin(p, window) < l->limit ? window : -1;
}

/* Opens the window that contains row `row` of this length. Returns its index there, or -1 if there
 * is none. */
static i64 find_row(struct loader *l, i64 row)
{
    struct planner *p = &l->planner;
    if (row < p->carried_rows) {
        open_window(l, WINDOW_CARRIED);
        return row;
    }
    row -= p->carried_rows;
    if (l->order.slots == 0)
        return -1;
    if (!p->joining_known) {
        open_window(l, WINDOW_JOINING);
        p->joining_rows = p->packed.count;
        p->joining_known = true;
    }
    if (row < p->joining_rows) {
        open_window(l, WINDOW_JOINING);
        return row;
    }
    row -= p->joining_rows;
    i64 window = find_in_grid(l, &row);
    if (window >= 0)
        open_window(l, window);
    return window < 0 || row >= l->planner.packed.count ? -1 : row; /* a limit may cut its window short */
}

/* ---- Resolving entries to samples ---- */

static struct sample_measure measure_entry(struct loader *l, const struct plan_entry *entry)
{
    struct sample_measure measure;
    loader_parts(l, entry, &l->given);
    grammar_measure(&measure, &l->vocabulary, l->given.parts, l->given.count, l->given.end);
    return measure;
}

/* Appends the entries of a row. A place's entry becomes the sample it shows, which may be shorter
 * than the room or a text with fewer pieces. */
static void resolve_row(struct loader *l, struct plan_entries *out, i64 row)
{
    const struct packed_rows *rows = &l->planner.packed;
    i64 length = l->planner.length;
    for (i64 i = rows->offset[row]; i < rows->offset[row + 1]; i++) {
        const struct plan_entry *entry = &rows->entries.data[i];
        struct plan_entry shown = *entry;
        if (entry->place >= 0) {
            shown = order_at(l, entry->place);
            struct sample_measure measure = measure_entry(l, &shown);
            shown.place = -1;
            shown.length = measure.length;
            if (measure.length > length && is_plain_text(l, shown.sample)) {
                shown.first = entry->first;
                shown.count = shown.length = max_i64(0, min_i64(length, measure.length - entry->first));
            } else if (entry->first > 0 || measure.length > length) {
                shown.length = 0;
            }
        }
        if (shown.length > 0)
            entries_push(out, &shown);
    }
}

/* ---- Steps ---- */

/* Keeps the untaken rows of the open window as entries for the new length. */
static void carry_rows(struct loader *l)
{
    struct planner *p = &l->planner;
    struct plan_entries left = {0};
    i64 row = find_row(l, p->taken), window = p->open;
    if (row < 0) { /* nothing is left below the limit */
        p->carried.count = 0;
        p->begin = l->limit == INT64_MAX ? p->begin : l->limit;
    }
    if (row < 0 || (window == WINDOW_CARRIED && row == 0))
        return;
    for (i64 i = row; i < p->packed.count; i++)
        resolve_row(l, &left, i);
    entries_release(&p->carried);
    p->carried = left;
    if (window != WINDOW_CARRIED)
        p->begin = window_begin(p, window == WINDOW_JOINING ? p->first : window + 1);
}

static void go_to(struct loader *l, i64 step)
{
    struct planner *p = &l->planner;
    if (step < p->next_step) {
        p->next_step = p->begin = p->length = 0;
        p->carried.count = 0;
    }
    for (;; p->next_step++) {
        i64 length = (i64)schedule_at(&l->settings.length, p->next_step);
        if (p->length && length != p->length)
            carry_rows(l);
        if (length != p->length)
            begin_length(l, length);
        if (p->next_step == step)
            return;
        p->taken += plan_rows_of_step(l, p->next_step);
    }
}

/* True if `rows` more rows cannot reach the limit, so nothing needs packing: a row holds at most
 * `length` positions. */
static bool is_far_from_limit(const struct loader *l, i64 rows)
{
    const struct planner *p = &l->planner;
    i64 passes = l->order.slots ? l->limit / l->order.slots : 0;
    double whole = (double)passes * order_positions(l, p->length) / (double)p->length;
    return l->limit == INT64_MAX || (p->begin == 0 && p->carried_rows == 0 && (double)(p->taken + rows) < whole / 2);
}

i64 plan_rows_left(struct loader *l, i64 step, i64 most)
{
    i64 low = 0, high = most;
    if (l->stream_plan)
        return most; /* endless: passes repeat */
    go_to(l, step);
    if (most == 0 || is_far_from_limit(l, most) || find_row(l, l->planner.taken + most - 1) >= 0)
        return most;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (find_row(l, l->planner.taken + middle) >= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Only a step of very many rows looks for a signal, which others meet between steps. */
const struct step_plan *plan_step(struct loader *l, i64 step)
{
    enum { LOOK_ROWS = 4096 };
    struct step_plan *plan = &l->plans[step % PLANS_KEPT];
    struct loader_step *sum = &plan->summary;
    int status = 0;
    if (plan->step == step)
        return plan;
    rows_clear(&plan->rows);
    if (l->stream_plan) {
        status = stream_plan_rows(l, &plan->rows, step);
    } else {
        struct plan_entries entries = {0};
        i64 rows = plan_rows_of_step(l, step);
        go_to(l, step);
        for (i64 i = 0; i < rows && status == 0; i++) {
            i64 row = find_row(l, l->planner.taken + i);
            if (row < 0)
                break;
            if (i % LOOK_ROWS == LOOK_ROWS - 1 && interrupted())
                status = error_interrupted();
            entries.count = 0;
            resolve_row(l, &entries, row);
            rows_push(&plan->rows, entries.data, entries.count);
        }
        entries_release(&entries);
        if (status == 0 && plan->rows.count < rows && !l->settings.in_order)
            status = error_set("%s: no sample of a mixture above 0 fits a row of %lld positions",
                               l->shards.folders[0].directory, (long long)l->planner.length);
    }
    plan->step = status < 0 ? -1 : step; /* set late: going back by shards resets all plans */
    if (status < 0)
        return NULL;
    *sum = (struct loader_step){.rows = plan->rows.count,
                                .length = (i64)schedule_at(&l->settings.length, step),
                                .samples = plan->rows.entries.count,
                                .micro_batches = ceil_div(plan->rows.count, l->settings.micro_rows)};
    for (i64 i = 0; i < plan->rows.entries.count; i++) {
        const struct plan_entry *entry = &plan->rows.entries.data[i];
        struct sample_measure measure = measure_entry(l, entry);
        sum->positions += measure.length;
        sum->seen += measure.seen;
        sum->epoch = entry->epoch;
        for (int kind = 0; kind < TARGETS; kind++)
            sum->totals[kind] += measure.totals[kind];
    }
    return plan;
}
