/* A weights table sharded over data ranks (ZeRO-1): each rank keeps masters and moments for a range
 * of every weight's rows. */
#include "dist/dist.h"

#include <string.h>

struct comm *zero_ranks(const struct weight *w, const struct parallel *p)
{
    return w->spec.expert_axis ? p->replica : p->data;
}

/* elements[r]: size of rank r's share of this rank's slice. */
static void zero_sizes(i64 *elements, const struct weight *w, i64 ranks)
{
    i64 rows = w->matrices * w->rows;
    for (i64 r = 0; r < ranks; r++)
        elements[r] = (rows * (r + 1) / ranks - rows * r / ranks) * w->columns;
}

enum { GATHERS_MOST = 128 };
struct gathers { /* transfers under way, the oldest at `ended` % GATHERS_MOST */
    struct comm *comms[GATHERS_MOST];
    struct transfer *list[GATHERS_MOST];
    i64 begun, ended;
};

static void end_oldest(struct gathers *g)
{
    i64 at = g->ended++ % GATHERS_MOST;
    double begin_s = clock_s();
    watch_call(g->comms[at]->name, "gather of weights");
    g->comms[at]->transport->ended(g->comms[at], g->list[at], true);
    watch_call(NULL, NULL);
    g->comms[at]->spent_s += clock_s() - begin_s;
}

static void begin_gather(struct gathers *g, struct comm *comm, char *data, const i64 *bytes, i64 round)
{
    machines_gather(comm, data, bytes, round);
    if (g->begun - g->ended == GATHERS_MOST)
        end_oldest(g);
    i64 at = g->begun++ % GATHERS_MOST;
    g->comms[at] = comm;
    g->list[at] = comm->transport->begin(comm, comm->out, comm->in);
}

/* Begins the gather of a weight, or, behind that, what follows it on this machine. */
static void gather_copy(struct gathers *g, struct weight *w, struct comm *comm, bool follows)
{
    i64 sizes[comm->size];
    if (!w->value.needs_grad || comm->size == 1)
        return;
    zero_sizes(sizes, w, comm->size);
    for (i64 r = 0; r < comm->size; r++)
        sizes[r] *= dtype_bytes(w->value.dtype);
    if (comm->transport->begin)
        for (i64 round = follows; round < (follows ? comm_host(comm)->machines->rounds : 1); round++)
            begin_gather(g, comm, w->value.data, sizes, round);
    else if (!follows)
        comm_all_gather(comm, w->value.data, sizes);
}

/* Host memory: all weights are on their way at once, from and to their places, so the delay of a link
 * counts once. */
void zero_gather_copies(struct weights *weights, const struct parallel *p)
{
    struct device *device = weights->device;
    struct gathers under_way = {.begun = 0};
    if (p->data->transport->begin)
        device->memory->unlock(device);
    for (int follows = 0; follows < 2; follows++) {
        for (i64 i = 0; i < weights->count; i++)
            gather_copy(&under_way, &weights->list[i], zero_ranks(&weights->list[i], p), follows);
        while (under_way.ended < under_way.begun)
            end_oldest(&under_way);
    }
    if (p->data->transport->begin)
        device->memory->lock(device);
}

bool zero_counted(const struct weight *w, const struct weights_layout *place)
{
    bool first_of_tensor = w->spec.tensor_axis != AXIS_NONE || place->tensor_rank == 0;
    bool first_of_pipeline = !w->spec.shared || place->chunk_rank == 0;
    return first_of_tensor && first_of_pipeline;
}

/* ---- Reading the table piece by piece ---- */

/* The rows of a weight that a rank contributes: its share, or none if another rank contributes the
 * same. Of a copy each rank has its whole slice. */
static struct weight contribution(const struct weight *w, const struct weights *weights, enum weight_state state,
                                  const struct layout *layout, const i32 *placement, i64 rank)
{
    struct weights_layout place = parallel_place(layout, rank);
    struct weight placed = *w;
    bool cut = weights->training && w->spec.trained && state != STATE_COPY;
    place.layers = weights->layout.layers;
    place.placement = placement;
    weight_place(&placed, &place, cut);
    if ((!cut && weight_sharer(&w->spec, &place) > 0) || !zero_counted(w, &place))
        placed.share_rows = 0;
    return placed;
}

/* Elements [first, end) of the unsharded matrix: what is read at a time. */
struct window {
    i64 first, end, element_bytes;
};
struct overlap { /* of one row of a share: `count` elements behind `skip` others */
    i64 skip, count;
};

static struct overlap overlap_of(const struct weight *placed, i64 row, const struct window *x)
{
    i64 at = weight_logical_at(placed, placed->share_first + row), from = max_i64(at, x->first);
    return (struct overlap){from - at, max_i64(0, min_i64(at + placed->columns, x->end) - from)};
}

/* The rows of a share that overlap the window: [*begin, returned). They ascend in the unsharded
 * matrix. */
static i64 rows_within(i64 *begin, const struct weight *placed, const struct window *x)
{
    i64 ends[2];
    for (int i = 0; i < 2; i++) { /* the first that ends behind x->first, the first that begins at its end or later */
        i64 low = 0, high = placed->share_rows;
        while (low < high) {
            i64 middle = (low + high) / 2, at = weight_logical_at(placed, placed->share_first + middle);
            bool before = i == 0 ? at + placed->columns <= x->first : at < x->end;
            low = before ? middle + 1 : low;
            high = before ? high : middle;
        }
        ends[i] = low;
    }
    *begin = ends[0];
    return max_i64(ends[0], ends[1]);
}

static i64 bytes_within(const struct weight *placed, const struct window *x)
{
    i64 row, end = rows_within(&row, placed, x), elements = 0;
    for (; row < end; row++)
        elements += overlap_of(placed, row, x).count;
    return elements * x->element_bytes;
}

static const char *state_of(const struct weight *w, enum weight_state state)
{
    const void *const all[] = {w->value.data, w->master, w->m, w->v};
    return all[state];
}

/* Copies what this rank contributes to host memory. */
static void pack_window(char *out, struct device *device, const struct weight *placed, enum weight_state state,
                        const struct window *x)
{
    i64 begin, end = rows_within(&begin, placed, x), row_bytes = placed->columns * x->element_bytes;
    char *rows = memory_alloc(max_i64(1, (end - begin) * row_bytes));
    if (end > begin)
        device_get(device, rows, state_of(placed, state) + begin * row_bytes, (end - begin) * row_bytes);
    for (i64 row = begin; row < end; row++) {
        struct overlap o = overlap_of(placed, row, x);
        memcpy(out, rows + (row - begin) * row_bytes + o.skip * x->element_bytes, (size_t)(o.count * x->element_bytes));
        out += o.count * x->element_bytes;
    }
    memory_free(rows);
}

static void unpack_window(char *out, const struct weight *placed, const struct window *x, const char *in)
{
    i64 row, end = rows_within(&row, placed, x);
    for (; row < end; row++) {
        struct overlap o = overlap_of(placed, row, x);
        i64 at = weight_logical_at(placed, placed->share_first + row) + o.skip - x->first;
        memcpy(out + at * x->element_bytes, in, (size_t)(o.count * x->element_bytes));
        in += o.count * x->element_bytes;
    }
}

/* Each rank derives from the layout how much every rank sends, so they send without being asked, and
 * a slow link delays only the first piece. */
static void read_window(const struct weights_reader *reader, void *out, const struct weight *w, enum weight_state state,
                        const struct window *window)
{
    const struct parallel *p = reader->context;
    struct comm *world = p->world;
    const i32 *placement = reader->weights->layout.placement;
    const struct window x = *window;
    struct span to[world->size], from[world->size];
    bool root = world->rank == 0;
    struct weight own = contribution(w, reader->weights, state, &p->layout, placement, world->rank);
    i64 own_bytes = bytes_within(&own, &x), whole_bytes = (x.end - x.first) * x.element_bytes;
    char *sent = memory_alloc(max_i64(own_bytes, 1)), *arrived = root ? memory_alloc(whole_bytes) : NULL, *at = arrived;
    memset(to, 0, sizeof to);
    memset(from, 0, sizeof from);
    pack_window(sent, reader->weights->device, &own, state, &x);
    to[0] = (struct span){sent, own_bytes};
    for (i64 r = 0; root && r < world->size; r++) {
        struct weight placed = contribution(w, reader->weights, state, &p->layout, placement, r);
        from[r] = (struct span){at, bytes_within(&placed, &x)};
        at += from[r].bytes;
    }
    require(!root || at == arrived + whole_bytes, "%s: the ranks' parts are not the whole", w->spec.name);
    comm_exchange(comm_host(world), from, to);
    for (i64 r = 0; root && r < world->size; r++) {
        struct weight placed = contribution(w, reader->weights, state, &p->layout, placement, r);
        unpack_window(out, &placed, &x, from[r].data);
    }
    memory_free(sent);
    memory_free(arrived);
}

static void read_windows(const struct weights_reader *reader, void *out, const struct weight *w,
                         enum weight_state state, i64 first, i64 count)
{
    enum { WINDOW_BYTES = 1 << 20 }; /* bounds the buffers; larger ones save no time */
    struct window x = {.element_bytes = state == STATE_COPY ? dtype_bytes(w->value.dtype) : 4};
    for (i64 done = 0; done < count; done += x.end - x.first) {
        x.first = first + done;
        x.end = min_i64(x.first + WINDOW_BYTES / x.element_bytes, first + count);
        read_window(reader, (char *)out + done * x.element_bytes, w, state, &x);
    }
}

struct weights_reader zero_reader(const struct weights *weights, const struct parallel *parallel)
{
    return (struct weights_reader){read_windows, weights, parallel};
}

/* ---- Bringing rows to the ranks that update them ---- */

static struct weight destination(const struct weight *w, const struct weights *weights, const struct layout *layout,
                                 i64 rank)
{
    struct weights_layout place = parallel_place(layout, rank);
    struct weight placed = *w;
    place.layers = weights->layout.layers;
    place.placement = weights->layout.placement;
    weight_place(&placed, &place, weights->training && w->spec.trained);
    return placed;
}

/* The values of a rank's rows within the window, in the order of its rows. */
static void pick_window(char *out, const struct weight *placed, const struct window *x, const char *in)
{
    i64 row, end = rows_within(&row, placed, x);
    for (; row < end; row++) {
        struct overlap o = overlap_of(placed, row, x);
        i64 at = weight_logical_at(placed, placed->share_first + row) + o.skip - x->first;
        memcpy(out, in + at * x->element_bytes, (size_t)(o.count * x->element_bytes));
        out += o.count * x->element_bytes;
    }
}

i64 zero_scatter(i64 *row, float *out, const struct weights *weights, const struct parallel *p, const struct weight *w,
                 i64 first, i64 count, const float *in)
{
    struct comm *world = p->world;
    const struct window x = {first, first + count, 4};
    struct span to[world->size], from[world->size];
    bool root = world->rank == 0;
    struct weight own = destination(w, weights, &p->layout, world->rank);
    i64 begin, end = rows_within(&begin, &own, &x), most = 0;
    require(first % w->spec.columns == 0 && count % w->spec.columns == 0, "%s: rows are cut", w->spec.name);
    memset(to, 0, sizeof to);
    memset(from, 0, sizeof from);
    for (i64 r = 0; root && r < world->size; r++) {
        struct weight placed = destination(w, weights, &p->layout, r);
        to[r].bytes = bytes_within(&placed, &x);
        most += to[r].bytes;
    }
    char *sent = memory_alloc(max_i64(most, 1)), *at = sent;
    for (i64 r = 0; root && r < world->size; r++) {
        struct weight placed = destination(w, weights, &p->layout, r);
        to[r].data = at;
        pick_window(at, &placed, &x, (const char *)in);
        at += to[r].bytes;
    }
    from[0] = (struct span){out, bytes_within(&own, &x)};
    comm_exchange(comm_host(world), from, to);
    memory_free(sent);
    *row = own.share_first + begin;
    return end - begin;
}

/* ---- What a rank contributes to the whole table ---- */

static void visit_state(const struct weights *weights, const struct weight *w, enum weight_state state,
                        const struct layout *layout, const i32 *placement, i64 rank,
                        void (*visit)(void *context, const struct zero_run *run), void *context)
{
    struct weight placed = contribution(w, weights, state, layout, placement, rank);
    const char *data = state_of(&placed, state); /* NULL: this rank holds none of the weight */
    for (i64 row = 0, rows; row < placed.share_rows; row += rows) {
        i64 first = weight_logical_at(&placed, placed.share_first + row);
        for (rows = 1; row + rows < placed.share_rows &&
                       weight_logical_at(&placed, placed.share_first + row + rows) == first + rows * placed.columns;)
            rows++;
        visit(context, &(struct zero_run){w, state, first, rows * placed.columns,
                                          data ? data + row * placed.columns * 4 : NULL});
    }
}

void zero_visit(const struct weights *weights, const struct layout *layout, const i32 *placement, i64 rank,
                void (*visit)(void *context, const struct zero_run *run), void *context)
{
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        for (enum weight_state state = STATE_MASTER; state <= weight_last_state(weights, w); state++)
            visit_state(weights, w, state, layout, placement, rank, visit, context);
    }
}
