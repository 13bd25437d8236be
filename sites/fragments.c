#include "sites/fragments.h"
#include "sites/codec.h"

#include <math.h>
#include <string.h>

enum { WINDOW_ELEMENTS = 1 << 16, ROOMS = 6 };

void fragments_open(struct fragments *f, struct weights *weights, const struct parallel *ranks, i64 layers, i64 experts)
{
    *f = (struct fragments){.weights = weights, .ranks = ranks, .layers = layers, .experts = experts};
    f->count = min_i64(FRAGMENTS_MOST, layers + 2);
    weights_open_shadow(&f->shadow, weights);
    f->room_each = WINDOW_ELEMENTS;
    for (i64 i = 0; i < weights->count; i++)
        f->room_each = max_i64(f->room_each, weights->list[i].spec.columns);
    f->room = memory_alloc(ROOMS * f->room_each * 4);
}

/* Room for a window, one of ROOMS. */
static float *room(const struct fragments *f, i64 i)
{
    return f->room + i * f->room_each;
}

void fragments_close(struct fragments *f)
{
    weights_close(&f->shadow);
    memory_free(f->room);
}

i64 fragment_of_layer(const struct fragments *f, i64 layer)
{
    return (layer + 1) % f->count;
}

/* ---- Windows ---- */

/* A window: whole rows of a weight of the fragment, and where its codes begin, by bits. */
struct fragment_window {
    i64 weight, first, count; /* elements of the unsharded matrix */
    i64 at[33], element;      /* behind those before it */
};

static bool is_exact(const struct weight *w)
{
    return !w->spec.trained; /* the router's biases: few, and small beside their steps */
}

static i64 bytes_of(const struct weight *w, int bits, i64 count)
{
    return codec_bytes(is_exact(w) ? 32 : bits, count);
}

static bool find_weight(const struct fragments *f, i64 fragment, struct fragment_window *x)
{
    while (x->weight < f->shadow.count && fragment_of_layer(f, f->shadow.list[x->weight].spec.layer) != fragment)
        x->weight++;
    x->first = x->count = 0;
    return x->weight < f->shadow.count;
}

static i64 elements_of(const struct weight *w)
{
    return w->spec.matrices * w->spec.rows * w->spec.columns;
}

static void size_window(const struct fragments *f, struct fragment_window *x)
{
    const struct weight *w = &f->shadow.list[x->weight];
    i64 rows = max_i64(1, WINDOW_ELEMENTS / w->spec.columns);
    x->count = min_i64(rows * w->spec.columns, elements_of(w) - x->first);
}

static bool window_first(struct fragment_window *x, const struct fragments *f, i64 fragment)
{
    memset(x, 0, sizeof *x);
    if (!find_weight(f, fragment, x))
        return false;
    size_window(f, x);
    return true;
}

static bool window_next(struct fragment_window *x, const struct fragments *f, i64 fragment)
{
    const struct weight *w = &f->shadow.list[x->weight];
    for (int bits = 4; bits <= 32; bits *= 2)
        x->at[bits] += bytes_of(w, bits, x->count);
    x->element += x->count;
    x->first += x->count;
    if (x->first == elements_of(w)) {
        x->weight++;
        if (!find_weight(f, fragment, x))
            return false;
    }
    size_window(f, x);
    return true;
}

i64 fragment_elements(const struct fragments *f, i64 fragment)
{
    i64 elements = 0;
    for (i64 i = 0; i < f->shadow.count; i++)
        if (fragment_of_layer(f, f->shadow.list[i].spec.layer) == fragment)
            elements += elements_of(&f->shadow.list[i]);
    return elements;
}

i64 fragment_layers(i64 *layers, const struct fragments *f, i64 fragment)
{
    i64 count = 0;
    for (i64 layer = 0; f->experts && layer < f->layers; layer++)
        if (fragment_of_layer(f, layer) == fragment)
            layers[count++] = layer;
    return count;
}

struct part_sizes fragment_sizes(const struct fragments *f, i64 fragment)
{
    struct part_sizes sizes = {0};
    struct fragment_window x;
    i64 layers[f->layers + 1];
    sizes.uses = fragment_layers(layers, f, fragment) * f->experts;
    for (bool more = window_first(&x, f, fragment); more; more = window_next(&x, f, fragment))
        for (int bits = 4; bits <= 32; bits *= 2)
            sizes.code_bytes[bits] += bytes_of(&f->shadow.list[x.weight], bits, x.count);
    return sizes;
}

/* ---- Values between the ranks and the first of them ---- */

static bool is_first(const struct fragments *f)
{
    return f->ranks->world->rank == 0;
}

static float *state_of(const struct weight *w, enum weight_state state)
{
    return state == STATE_MASTER ? w->master : w->m;
}

/* The functions below return where the values are: in `room`, or on a CPU in their place. What was changed there needs
 * no copy, and put_rows makes none. */
static bool is_in_place(const struct fragments *f)
{
    return !device_is_gpu(f->shadow.device);
}

/* A window of the unsharded weight, on the first rank. */
static float *gather(const struct fragments *f, float *room, const struct fragment_window *x, enum weight_state state)
{
    struct weight *w = &f->shadow.list[x->weight];
    struct weights_reader reader = zero_reader(&f->shadow, f->ranks);
    if (f->ranks->world->size == 1 && is_in_place(f))
        return state_of(w, state) + x->first;
    if (f->ranks->world->size == 1)
        device_get(f->shadow.device, room, state_of(w, state) + x->first, x->count * 4);
    else
        reader.read(&reader, room, w, state, x->first, x->count);
    return room;
}

/* This rank's values of a window; *row and *rows of its slice. */
static const float *scatter(const struct fragments *f, i64 *row, i64 *rows, float *room,
                            const struct fragment_window *x, const float *in)
{
    const struct weight *w = &f->shadow.list[x->weight];
    *row = x->first / w->spec.columns;
    *rows = x->count / w->spec.columns;
    if (f->ranks->world->size == 1)
        return in;
    *rows = zero_scatter(row, room, &f->shadow, f->ranks, w, x->first, x->count, in);
    return room;
}

/* Rows of this rank's share: of the slice, counted from its first row. */
static float *get_rows(const struct fragments *f, const struct weight *w, enum weight_state state, i64 row, i64 rows,
                       float *room)
{
    float *at = state_of(w, state) + (row - w->share_first) * w->columns;
    if (is_in_place(f))
        return at;
    device_get(f->shadow.device, room, at, rows * w->columns * 4);
    return room;
}

/* Where rows will be written before put_rows: what is there now is not read. */
static float *rows_to_fill(const struct fragments *f, const struct weight *w, enum weight_state state, i64 row,
                           float *room)
{
    return is_in_place(f) ? state_of(w, state) + (row - w->share_first) * w->columns : room;
}

static void put_rows(struct fragments *f, struct weight *w, enum weight_state state, i64 row, i64 rows,
                     const float *values)
{
    float *at = state_of(w, state) + (row - w->share_first) * w->columns;
    if (at != values)
        device_put(f->shadow.device, at, values, rows * w->columns * 4);
}

/* Before and behind the calls above: device memory may be touched between them. */
static void unlock(const struct fragments *f)
{
    f->shadow.device->memory->unlock(f->shadow.device);
}

static void lock(const struct fragments *f)
{
    f->shadow.device->memory->lock(f->shadow.device);
}

/* ---- Merges ---- */

void fragments_set_anchors(struct fragments *f)
{
    for (i64 i = 0; i < f->shadow.count; i++) {
        struct weight *w = &f->weights->list[i], *anchor = &f->shadow.list[i];
        i64 most = max_i64(1, WINDOW_ELEMENTS / w->columns);
        float *values = memory_alloc(max_i64(1, min_i64(most, w->share_rows)) * w->columns * 4);
        for (i64 row = 0; row < w->share_rows; row += most) {
            i64 rows = min_i64(most, w->share_rows - row);
            weight_get(f->weights, w, w->share_first + row, rows, values);
            put_rows(f, anchor, STATE_MASTER, w->share_first + row, rows, values);
        }
        memory_free(values);
    }
}

u64 fragments_hash(const struct fragments *f)
{
    struct fragment_window x;
    u64 hash = 0;
    unlock(f);
    for (i64 fragment = 0; fragment < f->count; fragment++)
        for (bool more = window_first(&x, f, fragment); more; more = window_next(&x, f, fragment)) {
            const float *values = gather(f, room(f, 0), &x, STATE_MASTER);
            hash = is_first(f) ? hash_bytes(values, x.count * 4, hash) : 0;
        }
    lock(f);
    return hash;
}

static bool subtract(float *restrict out, const float *restrict now, const float *restrict was, i64 count)
{
    bool small = true;
    for (i64 i = 0; i < count; i++) {
        out[i] = now[i] - was[i];
        small &= fabsf(out[i]) < 1e30f; /* larger ones may become infinite in fewer bits */
    }
    return small;
}

int fragment_measure(struct fragments *f, i64 fragment)
{
    const char *bad = NULL;
    unlock(f);
    for (i64 i = 0; i < f->shadow.count; i++) {
        struct weight *w = &f->weights->list[i], *anchor = &f->shadow.list[i];
        if (fragment_of_layer(f, w->spec.layer) != fragment)
            continue;
        i64 most = max_i64(1, WINDOW_ELEMENTS / w->columns);
        for (i64 row = 0; row < w->share_rows; row += most) {
            i64 rows = min_i64(most, w->share_rows - row), first = w->share_first + row;
            const float *now = get_rows(f, w, STATE_MASTER, first, rows, room(f, 0));
            const float *was = get_rows(f, anchor, STATE_MASTER, first, rows, room(f, 1));
            float *out = rows_to_fill(f, anchor, STATE_M, first, room(f, 2));
            bad = subtract(out, now, was, rows * w->columns) ? bad : w->spec.name;
            put_rows(f, anchor, STATE_M, first, rows, out);
        }
    }
    lock(f);
    if (!comm_any(f->ranks->world, bad != NULL))
        return 0;
    return bad ? error_set("%s has numbers that are not finite, so nothing is sent to the other sites", bad)
               : error_set("a rank of this site has weights that are not finite");
}

void fragment_encode(struct fragments *f, i64 fragment, int bits, u8 *out)
{
    struct fragment_window x;
    i64 row, rows;
    unlock(f);
    for (bool more = window_first(&x, f, fragment); more; more = window_next(&x, f, fragment)) {
        struct weight *w = &f->shadow.list[x.weight];
        int own = is_exact(w) ? 32 : bits;
        float *values = gather(f, room(f, 0), &x, STATE_M);
        if (is_first(f)) {
            codec_encode(out + x.at[bits], own, values, x.count);
            codec_decode(values, own, out + x.at[bits], x.count);
        }
        const float *mine = scatter(f, &row, &rows, room(f, 1), &x, values);
        put_rows(f, w, STATE_M, row, rows, mine);
    }
    lock(f);
}

/* anchor += change; masters += change - what is under way. `take`: `change` is the new anchor. */
struct fragment_update {
    bool take, own, settle;
};

static void update_values(float *restrict master, float *restrict old, float *restrict sent,
                          const float *restrict change, i64 count, struct fragment_update u)
{
    for (i64 i = 0; i < count; i++) {
        float next = u.take ? change[i] : old[i] + change[i];
        float moved = u.take ? next - old[i] : change[i];
        master[i] = u.settle ? next : master[i] + (u.own ? moved - sent[i] : moved);
        old[i] = next;
        sent[i] = 0;
    }
}

static void update_rows(struct fragments *f, i64 weight, i64 row, i64 rows, const float *change,
                        struct fragment_update u)
{
    struct weight *w = &f->weights->list[weight], *anchor = &f->shadow.list[weight];
    float *old = get_rows(f, anchor, STATE_MASTER, row, rows, room(f, 3));
    float *sent = get_rows(f, anchor, STATE_M, row, rows, room(f, 4));
    float *master = get_rows(f, w, STATE_MASTER, row, rows, room(f, 5));
    update_values(master, old, sent, change, rows * w->columns, u);
    put_rows(f, anchor, STATE_MASTER, row, rows, old);
    put_rows(f, anchor, STATE_M, row, rows, sent);
    weight_put(f->weights, w, row, rows, master);
}

/* Shares of a window: of each matrix for itself where experts are counted. */
static void shares_of(double *shares, struct share_runs *runs, const struct fragments *f, i64 fragment,
                      const struct record *record, const struct fragment_window *x)
{
    const struct weight *w = &f->shadow.list[x->weight];
    i64 matrix = w->spec.rows * w->spec.columns, layers[f->layers + 1], place = -1;
    i64 count = fragment_layers(layers, f, fragment);
    for (i64 i = 0; w->spec.expert_axis && w->spec.matrices == f->experts && i < count; i++)
        place = layers[i] == w->spec.layer ? i : place;
    *runs = (struct share_runs){x->first, place < 0 ? INT64_MAX / 2 : matrix, shares};
    i64 first = x->first / matrix, last = place < 0 ? first : (x->first + x->count - 1) / matrix;
    for (i64 expert = first; expert <= last; expert++)
        record_shares(shares + (expert - first) * SITES_MOST, record, place < 0 ? -1 : place * f->experts + expert);
}

int fragment_check(const struct fragments *f, i64 fragment, const struct part *part)
{
    struct fragment_window x;
    bool finite = true;
    for (bool more = window_first(&x, f, fragment); more && finite; more = window_next(&x, f, fragment)) {
        int bits = is_exact(&f->shadow.list[x.weight]) ? 32 : part->head.bits;
        finite = codec_is_finite(bits, part->codes + x.at[part->head.bits], x.count);
    }
    return finite ? 0 : error_set("site %s has sent numbers that are not finite", part->head.name);
}

void fragment_apply(struct fragments *f, i64 fragment, const struct record *record, bool own, bool settle)
{
    struct fragment_window x;
    double *shares = memory_alloc(max_i64(1, f->experts) * SITES_MOST * 8);
    i64 row, rows;
    unlock(f);
    for (bool more = window_first(&x, f, fragment); more; more = window_next(&x, f, fragment)) {
        float *change = room(f, 0), *scratch = room(f, 1);
        struct share_runs runs;
        if (is_first(f)) {
            shares_of(shares, &runs, f, fragment, record, &x);
            require(record_change(change, scratch, record, &runs, x.at, is_exact(&f->shadow.list[x.weight]), x.count) ==
                        0,
                    "%s", error_text());
        }
        const float *mine = scatter(f, &row, &rows, room(f, 2), &x, change);
        update_rows(f, x.weight, row, rows, mine, (struct fragment_update){.own = own, .settle = settle});
    }
    lock(f);
    memory_free(shares);
}

void fragment_read_anchor(const struct fragments *f, i64 fragment, float *out)
{
    struct fragment_window x;
    unlock(f);
    for (bool more = window_first(&x, f, fragment); more; more = window_next(&x, f, fragment)) {
        const float *values = gather(f, room(f, 0), &x, STATE_MASTER);
        if (is_first(f))
            memcpy(out + x.element, values, (size_t)x.count * 4);
    }
    lock(f);
}

void fragment_take(struct fragments *f, i64 fragment, const float *in, bool keep, bool own)
{
    struct fragment_window x;
    i64 row, rows;
    unlock(f);
    for (bool more = window_first(&x, f, fragment); more; more = window_next(&x, f, fragment)) {
        const float *mine = scatter(f, &row, &rows, room(f, 2), &x, is_first(f) ? in + x.element : NULL);
        update_rows(f, x.weight, row, rows, mine, (struct fragment_update){.take = true, .own = own, .settle = !keep});
    }
    lock(f);
}

void fragments_spread(struct fragments *f)
{
    if (f->ranks->world->size == 1)
        return; /* the next step makes the forms of the weights that were put */
    zero_gather_copies(f->weights, f->ranks);
    weights_updated(f->weights);
}
