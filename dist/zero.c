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

void zero_gather_copies(struct weights *weights, const struct parallel *p)
{
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        struct comm *comm = zero_ranks(w, p);
        i64 sizes[comm->size];
        if (!w->value.needs_grad || comm->size == 1)
            continue;
        zero_sizes(sizes, w, comm->size);
        for (i64 r = 0; r < comm->size; r++)
            sizes[r] *= dtype_bytes(w->value.dtype);
        comm_all_gather(comm, w->value.data, sizes);
    }
}

bool zero_counted(const struct weight *w, const struct weights_layout *place)
{
    bool first_of_tensor = w->spec.tensor_axis != AXIS_NONE || place->tensor_rank == 0;
    bool first_of_pipeline = !w->spec.shared || place->chunk_rank == 0;
    return first_of_tensor && first_of_pipeline;
}

/* ---- Collecting the whole table on rank 0 ---- */

enum kind { MASTER, M, V, KINDS };

static float *state_of(const struct weight *w, int kind)
{
    float *const all[KINDS] = {w->master, w->m, w->v};
    return all[kind];
}

/* The rows of a weight that a rank contributes: its share, or none if another rank contributes the
 * same. */
static struct weight contribution(const struct weight *w, const struct weights_layout *place, bool training)
{
    struct weight placed = *w;
    weight_place(&placed, place, training);
    bool repeated = !(training && w->spec.trained) && weight_sharer(&w->spec, place) > 0;
    if (repeated || !zero_counted(w, place))
        placed.share_rows = 0;
    return placed;
}

/* Gathers one state of a weight (master, m or v) on rank 0, through host memory, as an unsharded
 * matrix. Used only for saving. Rank 0 derives from the layout how much each rank sends. */
static void gather_state(struct weights *all, struct weight *whole, const struct weight *mine, int kind,
                         const struct weights *weights, const struct parallel *p)
{
    struct comm *world = p->world;
    struct weight placed[world->size];
    struct span out[world->size], in[world->size];
    i64 whole_bytes = mine->spec.matrices * mine->spec.rows * mine->spec.columns * 4;
    bool root = world->rank == 0;
    char *parts = root ? memory_alloc(whole_bytes) : NULL, *arrived = parts;
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    for (i64 r = 0; r < world->size; r++) {
        struct weights_layout place = parallel_place(&p->layout, r);
        place.layers = weights->layout.layers;
        placed[r] = contribution(mine, &place, weights->training);
        out[r] = (struct span){arrived, root ? placed[r].share_rows * placed[r].columns * 4 : 0};
        arrived = arrived ? arrived + out[r].bytes : NULL;
    }
    const struct weight *own = &placed[world->rank];
    i64 own_bytes = world->size ? own->share_rows * own->columns * 4 : 0;
    float *sent = memory_alloc(max_i64(own_bytes, 1)), *logical = root ? memory_alloc(whole_bytes) : NULL;
    device_get(weights->device, sent, state_of(mine, kind), own_bytes);
    in[0] = (struct span){sent, own_bytes};
    comm_exchange(comm_host(world), out, in);
    for (i64 r = 0; root && r < world->size; r++)
        weight_share_to_logical(logical, &placed[r], out[r].data);
    if (root && kind == MASTER)
        weight_put(all, whole, 0, whole->matrices * whole->rows, logical);
    else if (root)
        device_put(all->device, state_of(whole, kind), logical, whole_bytes);
    memory_free(parts);
    memory_free(sent);
    memory_free(logical);
}

void zero_collect(struct weights *whole, const struct weights *mine, const struct parallel *p)
{
    bool root = p->world->rank == 0;
    *whole = (struct weights){0};
    if (root) {
        weights_open(whole, mine->device, mine->dtype, mine->training, NULL);
        for (i64 i = 0; i < mine->count; i++)
            weights_add(whole, &mine->list[i].spec);
        weights_allocate(whole);
    }
    for (i64 i = 0; i < mine->count; i++) {
        const struct weight *w = &mine->list[i];
        bool moments = mine->training && w->spec.trained;
        for (int kind = MASTER; kind < (moments ? KINDS : M); kind++)
            gather_state(whole, root ? &whole->list[i] : NULL, w, kind, mine, p);
    }
}
