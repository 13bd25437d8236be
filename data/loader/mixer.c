#include "data/loader/mixer.h"
#include "data/loader/fill.h"
#include "data/loader/plan.h"
#include "data/shards/shard_layout.h"

#include <math.h>
#include <string.h>

struct mixer {
    struct loader **loaders;
    const struct data_source *sources;
    char **names;
    i64 count;
    struct loader_settings settings;
    u64 seed;
    double *credit; /* rows owed to each source after the last step of the table */
    bool *ended;
    i32 *table; /* [steps, count], rows of each step per source */
    i64 steps, capacity;
    double *epochs; /* [count], positions of an epoch with rows of epoch_length */
    i64 epoch_length;
    i32 *places; /* For the step `shuffled`: the place of each row in the order of sources. */
    i64 shuffled, place_capacity;
};

/* ---- Opening ---- */

static u64 seed_of(const struct source_list *list, i64 i, u64 seed)
{
    const char *name = list->count ? list->values[i].name : "";
    return list->count ? hash_bytes(name, (i64)strlen(name), seed) : seed;
}

/* Opens a source's loader; each source has a ring of its own. */
static struct loader *open_loader(const struct mixer *m, const struct source_list *list, i64 i, const char *split)
{
    struct loader_settings settings = m->settings;
    const char *data = list->count ? list->values[i].data : list->all, *ring = settings.ring.directory;
    char *below = ring && list->count ? path_join(ring, list->values[i].name) : NULL;
    settings.ring.directory = below ? below : ring;
    struct loader *l = loader_open(data, split, &settings, seed_of(list, i, m->seed));
    memory_free(below);
    return l;
}

/* A source read shard by shard has no known size, so it needs a share and cannot have epochs. */
static int check_shares(const struct data_source *s)
{
    if (s->share.count && s->epochs == 0)
        return 0;
    return error_set("source %s: read shard by shard (stream.on, shuffle_shards) it has no known number of positions: "
                     "expected a share, and no epochs",
                     s->name);
}

static int open_source(struct mixer *m, const struct source_list *list, i64 i, const char *split)
{
    struct loader *l = open_loader(m, list, i, split);
    if (!l)
        return -1;
    m->loaders[m->count++] = l;
    l->mixer = list->count ? m : NULL;
    l->number = i;
    m->names[i] = string_copy(list->count ? list->values[i].name : "");
    if (list->count && loader_goes_by_shards(l) && check_shares(&list->values[i]) < 0)
        return -1;
    if (list->count && !loader_goes_by_shards(l) && l->order.slots == 0)
        return error_set("source %s: no sample with a mixture above 0 in split %s", m->names[i], split);
    if (list->count && list->values[i].epochs > 0)
        loader_limit(l, list->values[i].epochs);
    char *difference = shard_meta_difference(&m->loaders[0]->shards.meta, &l->shards.meta);
    if (difference)
        error_set("sources %s and %s were made with other tokenizers (%s); prepare both with the same", m->names[0],
                  m->names[i], difference);
    memory_free(difference);
    return difference ? -1 : 0;
}

struct mixer *mixer_open(const struct source_list *list, const char *split, const struct loader_settings *settings,
                         u64 seed)
{
    struct mixer *m = memory_alloc(sizeof *m);
    i64 count = max_i64(1, list->count);
    *m = (struct mixer){.sources = list->values, .settings = *settings, .seed = seed, .shuffled = -1};
    m->loaders = memory_alloc(count * (i64)sizeof *m->loaders);
    m->names = memory_alloc(count * (i64)sizeof *m->names);
    m->credit = memory_alloc(count * 8);
    m->epochs = memory_alloc(count * 8);
    m->ended = memory_alloc(count);
    for (i64 i = 0; i < count; i++)
        if (open_source(m, list, i, split) < 0) {
            mixer_close(m);
            return NULL;
        }
    return m;
}

void mixer_close(struct mixer *m)
{
    if (!m)
        return;
    for (i64 i = 0; i < m->count; i++) {
        loader_close(m->loaders[i]);
        memory_free(m->names[i]);
    }
    memory_free(m->loaders);
    memory_free(m->names);
    memory_free(m->credit);
    memory_free(m->epochs);
    memory_free(m->ended);
    memory_free(m->table);
    memory_free(m->places);
    memory_free(m);
}

static bool mixes(const struct mixer *m)
{
    return m->loaders[0]->mixer != NULL;
}

/* ---- Dealing rows to sources ---- */

static void measure_epochs(struct mixer *m, i64 length)
{
    for (i64 i = 0; i < m->count && m->epoch_length != length; i++)
        m->epochs[i] = plan_epoch_positions(m->loaders[i], length);
    m->epoch_length = length;
}

static double share_of(const struct mixer *m, i64 i, i64 step)
{
    const struct data_source *s = &m->sources[i];
    if (m->ended[i])
        return 0;
    if (s->share.count)
        return schedule_at(&s->share, step);
    return (s->weight.count ? schedule_at(&s->weight, step) : 1) * m->epochs[i];
}

/* The source that is owed most or, with most = false, least among those with rows. -1: none. */
static i64 pick(const struct mixer *m, const double *shares, const i64 *rows, bool most)
{
    i64 best = -1;
    for (i64 i = 0; i < m->count; i++) {
        double owed = m->credit[i] - (double)rows[i];
        if (shares[i] <= 0 || (!most && rows[i] == 0))
            continue;
        if (best < 0 ||
            (most ? owed > m->credit[best] - (double)rows[best] : owed < m->credit[best] - (double)rows[best]))
            best = i;
    }
    return best;
}

/* Deals `left` rows to the sources with a share, according to what each is owed. */
static void apportion(struct mixer *m, const double *shares, i64 left, i64 *rows)
{
    i64 given = 0;
    for (i64 i = 0; i < m->count; i++) {
        rows[i] = shares[i] > 0 ? (i64)floor(fmax(0, m->credit[i])) : 0;
        given += rows[i];
    }
    for (; given > left; given--)
        rows[pick(m, shares, rows, false)]--;
    for (; given < left; given++)
        rows[pick(m, shares, rows, true)]++;
}

static int refuse_end(const struct mixer *m, i64 step)
{
    for (i64 i = 0; i < m->count; i++)
        if (!m->ended[i])
            return error_set("step %lld: no source has a share: one of those that go on needs one", (long long)step);
    return error_set("step %lld: all sources have shown their epochs: fewer steps, more epochs, or a source without an "
                     "end (epochs: 0)",
                     (long long)step);
}

/* Deals one round. Rows that an ending source cannot give are left for the next round. */
static int deal_round(struct mixer *m, i64 step, i64 *left, i64 *given)
{
    double shares[m->count], sum = 0;
    i64 rows[m->count];
    for (i64 i = 0; i < m->count; i++)
        sum += shares[i] = share_of(m, i, step);
    if (!(sum > 0))
        return refuse_end(m, step);
    for (i64 i = 0; i < m->count; i++)
        m->credit[i] += (double)*left * shares[i] / sum;
    apportion(m, shares, *left, rows);
    for (i64 i = 0; i < m->count; i++) {
        i64 can = rows[i] ? plan_rows_left(m->loaders[i], step, given[i] + rows[i]) - given[i] : 0;
        m->ended[i] |= can < rows[i];
        m->credit[i] = m->ended[i] ? 0 : m->credit[i] - (double)can;
        given[i] += can;
        *left -= can;
    }
    return 0;
}

static void push_step(struct mixer *m, const i64 *given)
{
    if (m->steps == m->capacity) {
        i64 next = max_i64(1024, 2 * m->capacity), size = m->count * 4;
        m->table = memory_resize(m->table, m->capacity * size, next * size);
        m->capacity = next;
    }
    for (i64 i = 0; i < m->count; i++)
        m->table[m->steps * m->count + i] = (i32)given[i];
    m->steps++;
}

/* Extends the table through `step`. The result does not depend on the caller or the time. */
static int deal_to(struct mixer *m, i64 step)
{
    while (mixes(m) && m->steps <= step) {
        i64 given[m->count], left = (i64)schedule_at(&m->settings.rows, m->steps);
        memset(given, 0, sizeof given);
        measure_epochs(m, (i64)schedule_at(&m->settings.length, m->steps));
        while (left > 0)
            if (deal_round(m, m->steps, &left, given) < 0)
                return -1;
        push_step(m, given);
    }
    return 0;
}

i64 mixer_rows(struct mixer *m, i64 step, i64 number)
{
    require(step < m->steps, "step %lld is not dealt", (long long)step);
    return m->table[step * m->count + number];
}

/* ---- Steps ---- */

const struct step_plan *mixer_plan(struct mixer *m, i64 number, i64 step)
{
    return deal_to(m, step) < 0 ? NULL : plan_step(m->loaders[number], step);
}

int mixer_source_step(struct mixer *m, i64 number, i64 step, struct loader_step *out)
{
    const struct step_plan *plan = mixer_plan(m, number, step);
    if (plan)
        *out = plan->summary;
    return plan ? 0 : -1;
}

int mixer_step(struct mixer *m, i64 step, struct loader_step *out)
{
    struct loader_step one;
    if (mixer_source_step(m, 0, step, out) < 0)
        return -1;
    for (i64 i = 1; i < m->count; i++) {
        if (mixer_source_step(m, i, step, &one) < 0)
            return -1;
        out->rows += one.rows;
        out->samples += one.samples;
        out->positions += one.positions;
        out->seen += one.seen;
        out->epoch = max_i64(out->epoch, one.epoch);
        for (int kind = 0; kind < TARGETS; kind++)
            out->totals[kind] += one.totals[kind];
    }
    out->micro_batches = ceil_div(out->rows, m->settings.micro_rows);
    return 0;
}

/* Shuffles the rows of a step, so that every slice has some of each source. */
static void shuffle(struct mixer *m, i64 step, i64 rows)
{
    if (m->shuffled == step)
        return;
    if (rows > m->place_capacity) {
        m->places = memory_resize(m->places, m->place_capacity * 4, rows * 4);
        m->place_capacity = rows;
    }
    rng_permutation(m->places, rows, (struct rng_key){m->seed, RNG_MIXTURE}, (u32)step, ~(u32)0);
    m->shuffled = step;
}

struct row_location { /* location of a row of the step */
    struct loader *loader;
    const struct step_plan *plan;
    i64 row, sample;
};

static int find_row(struct mixer *m, i64 step, i64 row, struct row_location *out)
{
    i64 place = m->places[row], sample = 0;
    for (i64 i = 0; i < m->count; i++) {
        const struct step_plan *plan = mixer_plan(m, i, step);
        if (!plan)
            return -1;
        if (place < plan->rows.count) {
            *out = (struct row_location){m->loaders[i], plan, place, sample};
            return 0;
        }
        place -= plan->rows.count;
        sample += plan->rows.entries.count;
    }
    panic("step %lld has no row %lld", (long long)step, (long long)row);
}

static int lay_rows(struct mixer *m, i64 step, i64 first, i64 end, i64 length, struct batch *b)
{
    for (i64 row = first; row < end; row++) {
        struct row_location at;
        if (find_row(m, step, row, &at) < 0 ||
            loader_row(at.loader, at.plan, at.row, (row - first) * length, at.sample, b) < 0)
            return -1;
    }
    return 0;
}

int mixer_batch(struct mixer *m, i64 step, i64 micro, struct batch *b, struct arena *arena)
{
    struct loader_step s;
    if (!mixes(m))
        return loader_batch(m->loaders[0], step, micro, b, arena);
    if (mixer_step(m, step, &s) < 0)
        return -1;
    i64 first = micro * m->settings.micro_rows, end = min_i64(first + m->settings.micro_rows, s.rows);
    require(micro >= 0 && first < s.rows, "micro-batch %lld of step %lld, which has %lld rows", (long long)micro,
            (long long)step, (long long)s.rows);
    shuffle(m, step, s.rows);
    for (i64 i = 1; i < m->count; i++)
        m->loaders[i]->fills->count = 0;
    loader_begin_batch(m->loaders[0], first, end - first, s.length, b, arena);
    int status = lay_rows(m, step, first, end, s.length, b);
    for (i64 i = 0; i < m->count && status == 0; i++)
        status = loader_media(m->loaders[i], b, arena);
    return status;
}

void mixer_prefetch(struct mixer *m, i64 step, i64 micro)
{
    struct loader_step s;
    struct row_location at;
    if (!mixes(m)) {
        loader_prefetch(m->loaders[0], step, micro);
        return;
    }
    if (mixer_step(m, step, &s) < 0)
        return;
    i64 first = micro * m->settings.micro_rows;
    shuffle(m, step, s.rows);
    for (i64 row = first; row < min_i64(first + m->settings.micro_rows, s.rows); row++)
        if (find_row(m, step, row, &at) == 0)
            loader_prefetch_row(at.loader, at.plan, at.row);
}

/* ---- Queries ---- */

const struct shard_meta *mixer_meta(const struct mixer *m)
{
    return &m->loaders[0]->shards.meta;
}

struct left_out mixer_left_out(const struct mixer *m)
{
    struct left_out sum = {{0}};
    for (i64 i = 0; i < m->count; i++) {
        struct left_out one = loader_left_out(m->loaders[i]);
        left_out_add(&sum, &one);
    }
    return sum;
}

bool mixer_has_targets(struct mixer *m, const double weight[TARGETS])
{
    for (i64 i = 0; i < m->count; i++)
        if (loader_has_targets(m->loaders[i], weight))
            return true;
    return false;
}

struct loader_cursor mixer_cursor(const struct mixer *m, i64 number)
{
    return loader_cursor(m->loaders[number]);
}

void mixer_begin_at(struct mixer *m, i64 number, const struct loader_cursor *cursor)
{
    loader_begin_at(m->loaders[number], cursor);
}

int mixer_passed(struct mixer *m, i64 number, const struct loader_cursor *cursor)
{
    return loader_passed(m->loaders[number], cursor);
}

bool mixer_goes_by_shards(const struct mixer *m)
{
    bool some = false;
    for (i64 i = 0; i < m->count; i++)
        some |= loader_goes_by_shards(m->loaders[i]);
    return some;
}

bool mixer_has_stream(const struct mixer *m)
{
    bool some = false;
    for (i64 i = 0; i < m->count; i++)
        some |= m->loaders[i]->stream_plan && m->loaders[i]->stream_plan->ring;
    return some;
}

double mixer_waited_s(const struct mixer *m)
{
    double sum = 0;
    for (i64 i = 0; i < m->count; i++)
        sum += loader_waited_s(m->loaders[i]);
    return sum;
}

i64 mixer_restarts(const struct mixer *m)
{
    i64 sum = 0;
    for (i64 i = 0; i < m->count; i++)
        sum += loader_restarts(m->loaders[i]);
    return sum;
}

i64 mixer_count(const struct mixer *m)
{
    return m->count;
}

int mixer_source(struct mixer *m, i64 number, i64 step, struct mixer_source *out)
{
    const struct loader *l = m->loaders[number];
    i64 length = (i64)schedule_at(&m->settings.length, max_i64(0, step - 1));
    *out = (struct mixer_source){
        .name = m->names[number], .samples = l->shards.sample_count, .epoch = plan_epoch_positions(l, length)};
    if (deal_to(m, step - 1) < 0)
        return -1;
    for (i64 i = 0; i < step; i++)
        out->rows += mixes(m) ? m->table[i * m->count + number] : (i64)schedule_at(&m->settings.rows, i);
    return 0;
}
