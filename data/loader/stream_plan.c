/* Plans rows if samples come shard by shard: nothing is known of a shard until it is closed, and
 * nothing of it is needed once its rows were taken.
 *
 *   order of shards:  shards 0 of all partitions, shards 1 of all partitions, ...; pass after pass
 *   window:           the next shuffle_shards shards
 *   samples, as often as the mixture says --best-fit packing--> rows, shuffled --> steps
 *
 * A sample with a mixture of 1.5 is shown once, and a second time if a draw keyed by its number
 * says so; other samples have no influence. Rows are numbered consecutively. The start of a
 * window, i.e. a row and a shard, is all that a run needs to resume (struct loader_cursor). When
 * the row length changes, the untaken rows of the current window are unpacked and packed anew.
 * Finished folders are read in the same order, one folder per partition, and yield the same
 * rows. */
#include "data/loader/plan.h"
#include "data/stream/stream.h"

#include <math.h>

struct shard_span { /* the samples of a shard */
    i64 first, end;
};

/* ---- Opening ---- */

/* First sample of each shard of a folder, and the end. A sample belongs to the shard of its last
 * payload, so each shard's samples are consecutive. */
static i64 *list_shards(const struct shard_folder *f)
{
    i64 *first = memory_alloc((f->shard_count + 1) * 8), shard = 0;
    for (i64 i = 0; i < f->sample_count; i++) {
        const struct shard_sample *sample = &f->samples[i];
        for (i64 k = 0; k < sample->parts; k++)
            while (shard < (i64)f->parts[(i64)sample->first_part + k].shard)
                first[++shard] = f->first_sample + i;
    }
    first[0] = f->first_sample;
    while (shard < f->shard_count)
        first[++shard] = f->first_sample + f->sample_count;
    return first;
}

static int open_ring(struct loader *l, const char *stream)
{
    struct stream_plan *w = l->stream_plan;
    if (!l->settings.ring.directory)
        return error_set(
            "%s: its shards are generated while a stage pretrain or sft reads them: expected a folder with "
            "finished shards",
            stream);
    w->ring = ring_open(l->settings.ring.directory, stream, l->settings.ring.filler);
    w->partitions = w->ring ? ring_partitions(w->ring) : 0;
    return w->ring ? 0 : -1;
}

int stream_plan_open(struct loader *l, const char *data)
{
    struct stream_plan *w = l->stream_plan = memory_alloc(sizeof *w);
    *w = (struct stream_plan){.found = true};
    l->settings.shuffle_shards = max_i64(1, l->settings.shuffle_shards);
    if (data_lines(data) == 1 && shard_stream_is(data))
        return open_ring(l, data);
    w->partitions = l->shards.folder_count;
    w->shard_samples = memory_alloc(w->partitions * (i64)sizeof *w->shard_samples);
    for (i64 i = 0; i < w->partitions; i++)
        w->shard_samples[i] = list_shards(&l->shards.folders[i]);
    return 0;
}

void stream_plan_close(struct loader *l)
{
    struct stream_plan *w = l->stream_plan;
    if (!w)
        return;
    for (i64 i = 0; w->shard_samples && i < w->partitions; i++)
        memory_free(w->shard_samples[i]);
    memory_free(w->shard_samples);
    ring_close(w->ring);
    entries_release(&w->gathered);
    rows_release(&w->packed);
    memory_free(w->window);
    memory_free(w);
}

/* ---- Shards in order ---- */

/* Opens the shard at `next`. Returns 0 and its samples; 1 if the partition has no more; -1 with a
 * message. */
static int open_shard(struct loader *l, struct shard_span *out)
{
    struct stream_plan *w = l->stream_plan;
    const struct loader_cursor *at = &w->next;
    if (!w->ring) {
        const i64 *first = w->shard_samples[at->partition];
        if (at->round >= l->shards.folders[at->partition].shard_count)
            return 1;
        *out = (struct shard_span){first[at->round], first[at->round + 1]};
        return 0;
    }
    char *directory;
    int status = ring_shard(&directory, w->ring, at->partition, at->pass, at->round);
    if (status)
        return status;
    status = shards_add(&l->shards, directory);
    memory_free(directory);
    const struct shard_folder *f = &l->shards.folders[l->shards.folder_count - 1];
    *out = (struct shard_span){f->first_sample, f->first_sample + f->sample_count};
    return status;
}

/* Opens the next existing shard and advances `next` past it. Returns 1 if all partitions have
 * ended. */
static int next_shard(struct loader *l, struct shard_span *out)
{
    struct stream_plan *w = l->stream_plan;
    int status = 1;
    for (i64 ended = 0; status == 1 && ended < w->partitions; ended++) {
        if (w->next.partition == w->partitions) {
            w->next.round++;
            w->next.partition = 0;
        }
        status = open_shard(l, out);
        w->next.partition++;
    }
    return status;
}

/* ---- Windows ---- */

static i64 showings_of(const struct loader *l, const struct plan_entry *entry)
{
    double rate = l->settings.mixture[shards_sample(&l->shards, entry->sample).direction], whole = floor(rate);
    u32 identity = entry_identity(entry), pass = (u32)entry->epoch;
    struct rng_key key = {l->seed, RNG_MIXTURE};
    return (i64)whole + (rate > whole && rng_uniform(key, identity, pass, 0, 1) < rate - whole);
}

static void add_to_window(struct stream_plan *w, const struct window_sample *sample)
{
    if (w->window_count == w->window_capacity) {
        i64 next = max_i64(256, 2 * w->window_capacity), size = (i64)sizeof *w->window;
        w->window = memory_resize(w->window, w->window_capacity * size, next * size);
        w->window_capacity = next;
    }
    w->window[w->window_count++] = *sample;
}

static void add_sample(struct loader *l, struct plan_entry entry)
{
    struct stream_plan *w = l->stream_plan;
    struct sample_measure measure;
    i64 most = showings_of(l, &entry);
    for (entry.copy = 0; entry.copy < most; entry.copy++) {
        loader_parts(l, &entry, &l->given);
        grammar_measure(&measure, &l->vocabulary, l->given.parts, l->given.count, l->given.end);
        entry.length = measure.length;
        if (entry.copy == 0 && !is_plain_text(l, entry.sample))
            add_to_window(w, &(struct window_sample){entry.sample - entry.before, entry.length,
                                                     shards_sample(&l->shards, entry.sample).direction});
        plan_add_entry(&w->gathered, l, &entry, w->length);
    }
}

/* Counts the samples of the current window, of pass `pass`, that are longer than a row, once. */
static void count_left_out(struct stream_plan *w, i64 pass)
{
    struct loader_cursor *c = &w->next;
    for (i64 i = 0; i < w->window_count; i++) {
        const struct window_sample *sample = &w->window[i];
        bool first = pass == c->since_pass || (pass == c->since_pass + 1 && sample->number < c->since_number);
        c->left_out.samples[sample->direction] += first && sample->length > w->length;
    }
}

/* Begins to count for rows of another length: with the current window, all of whose samples may
 * be too long now, or behind what the resumed run had counted. */
static void begin_count(struct stream_plan *w)
{
    const struct loader_cursor *from = w->any ? &w->opened : &w->next;
    if (!w->any && w->next.length == w->length)
        return;
    w->next.length = w->length;
    w->next.since_pass = from->pass;
    w->next.since_number = from->number;
    w->next.left_out = (struct left_out){{0}};
    if (w->any)
        count_left_out(w, w->opened.pass);
}

static void pack(struct loader *l, i64 row, i64 key)
{
    struct stream_plan *w = l->stream_plan;
    fit(&w->packed, &w->gathered, w->length);
    plan_shuffle_rows(l, &w->packed, key);
    w->first_row = row;
}

static int begin_pass(struct loader *l)
{
    struct stream_plan *w = l->stream_plan;
    if (!w->found)
        return error_set("no sample of a mixture above 0 fits a row of %lld positions in any shard of an epoch",
                         (long long)w->length);
    w->found = false;
    w->next.pass++;
    w->next.round = w->next.partition = w->next.number = 0;
    return 0;
}

/* Opens the next window, whose first row is `row`. It may be empty. */
static int open_window(struct loader *l, i64 row)
{
    struct stream_plan *w = l->stream_plan;
    struct shard_span span = {0};
    int status = 0;
    w->opened = w->next;
    w->opened.row = row;
    w->gathered.count = w->window_count = 0;
    for (i64 i = 0; i < l->settings.shuffle_shards; i++) {
        status = next_shard(l, &span);
        if (status < 0)
            return -1;
        if (status > 0)
            break;
        i64 before = span.first - w->next.number;
        for (i64 sample = span.first; sample < span.end; sample++)
            add_sample(
                l, (struct plan_entry){.sample = sample, .epoch = (i32)w->next.pass, .place = -1, .before = before});
        w->next.number += span.end - span.first;
    }
    pack(l, row, row);
    count_left_out(w, w->opened.pass);
    w->any = true;
    w->found |= w->packed.count > 0;
    return status > 0 ? begin_pass(l) : 0;
}

/* ---- Steps ---- */

static i64 end_row(const struct stream_plan *w)
{
    return w->any ? w->first_row + w->packed.count : w->begin.row;
}

/* Opens windows until `row` lies in the current one or directly behind it. */
static int open_through(struct loader *l, i64 row)
{
    while (end_row(l->stream_plan) < row)
        if (open_window(l, end_row(l->stream_plan)) < 0)
            return -1;
    return 0;
}

/* Sets the row length from row `row` on. */
static int set_length(struct loader *l, i64 row, i64 length)
{
    struct stream_plan *w = l->stream_plan;
    if (w->length && open_through(l, row) < 0)
        return -1;
    w->length = length;
    begin_count(w);
    if (!w->any)
        return 0;
    w->gathered.count = 0;
    for (i64 i = w->packed.offset ? w->packed.offset[row - w->first_row] : 0; i < w->packed.entries.count; i++)
        plan_add_entry(&w->gathered, l, &w->packed.entries.data[i], length);
    pack(l, row, ~row);
    return 0;
}

static void restart(struct loader *l)
{
    struct stream_plan *w = l->stream_plan;
    w->any = false;
    w->found = w->begun = true;
    w->next = w->opened = w->kept = w->begin;
    w->step = w->row = w->length = 0;
    for (i64 i = 0; i < PLANS_KEPT; i++)
        l->plans[i].step = -1;
    if (w->ring)
        shards_drop(&l->shards, INT64_MAX);
}

static int go_to(struct loader *l, i64 step)
{
    struct stream_plan *w = l->stream_plan;
    if (step < w->step || !w->begun)
        restart(l);
    for (;; w->step++) {
        i64 length = (i64)schedule_at(&l->settings.length, w->step), rows = plan_rows_of_step(l, w->step);
        bool wanted = w->step == step || w->row + rows > w->begin.row;
        if (wanted && length != w->length && set_length(l, max_i64(w->row, w->begin.row), length) < 0)
            return -1;
        if (w->step == step)
            return 0;
        w->row += rows;
    }
}

/* Drops the shards that neither the plans nor the current window show. */
static void drop_shards(struct loader *l, const struct packed_rows *now)
{
    const struct packed_rows *kept[PLANS_KEPT + 2] = {now, &l->stream_plan->packed};
    i64 first = l->shards.sample_count;
    for (i64 i = 0; i < PLANS_KEPT; i++)
        kept[i + 2] = &l->plans[i].rows;
    for (i64 i = 0; i < COUNT_OF(kept); i++)
        for (i64 k = 0; k < kept[i]->entries.count; k++)
            first = min_i64(first, kept[i]->entries.data[k].sample);
    if (l->stream_plan->ring)
        shards_drop(&l->shards, first);
}

int stream_plan_rows(struct loader *l, struct packed_rows *out, i64 step)
{
    struct stream_plan *w = l->stream_plan;
    if (go_to(l, step) < 0)
        return -1;
    w->kept = w->any ? w->opened : w->begin;
    for (i64 row = w->row; row < w->row + plan_rows_of_step(l, step); row++) {
        if (open_through(l, row + 1) < 0)
            return -1;
        i64 at = row - w->first_row;
        require(at >= 0, "row %lld is before the current window", (long long)row);
        rows_push(out, w->packed.entries.data + w->packed.offset[at], w->packed.offset[at + 1] - w->packed.offset[at]);
    }
    drop_shards(l, out);
    return 0;
}

/* ---- Resuming ---- */

bool loader_goes_by_shards(const struct loader *l)
{
    return l->stream_plan != NULL;
}

struct loader_cursor loader_cursor(const struct loader *l)
{
    return l->stream_plan ? l->stream_plan->kept : (struct loader_cursor){0};
}

void loader_begin_at(struct loader *l, const struct loader_cursor *cursor)
{
    if (l->stream_plan)
        l->stream_plan->begin = l->stream_plan->kept = *cursor;
}

int loader_passed(struct loader *l, const struct loader_cursor *cursor)
{
    struct stream_plan *w = l->stream_plan;
    int status = 0;
    for (i64 i = 0; w && w->ring && !ring_keeps(w->ring) && i < w->partitions && status == 0; i++)
        status = ring_passed(w->ring, i, cursor->pass, cursor->round + (i < cursor->partition));
    return status;
}

double loader_waited_s(const struct loader *l)
{
    return l->stream_plan && l->stream_plan->ring ? ring_waited_s(l->stream_plan->ring) : 0;
}

i64 loader_restarts(const struct loader *l)
{
    return l->stream_plan && l->stream_plan->ring ? ring_restarts(l->stream_plan->ring) : 0;
}
