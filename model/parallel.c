/* Communication of a forward: tensor ranks around split weights, pipeline chunks at their ends, and
 * expert ranks that agree on the layers they serve. */
#include "model/inside.h"

#include <string.h>

static struct comm *tensor_comm(const struct pass *p)
{
    return p->model->parallel->tensor;
}

bool parallel_is_sharded(const struct pass *p)
{
    return tensor_comm(p)->size > 1;
}

struct tensor *parallel_enter(struct pass *p, struct tensor *x)
{
    return parallel_is_sharded(p) ? op_enter(p->tape, tensor_comm(p), x) : x;
}

struct tensor *parallel_sum(struct pass *p, struct tensor *x)
{
    return parallel_is_sharded(p) ? op_all_reduce(p->tape, tensor_comm(p), x) : x;
}

/* ---- Pipeline ---- */

i64 model_chunks(const struct model *model)
{
    return model->parallel->layout.pipeline * model->parallel->layout.chunks;
}

bool parallel_first(const struct pass *p)
{
    return p->options->chunk == 0;
}

bool parallel_last(const struct pass *p)
{
    return p->options->chunk == model_chunks(p->model) - 1;
}

/* Messages between chunks c and c + 1 use tag 2c forward and tag 2c + 1 backward. */
struct tensor *parallel_receive(struct pass *p)
{
    struct comm *comm = p->model->parallel->pipeline;
    i64 before = p->options->chunk - 1;
    tape_place_begin(p->tape, PLACE_OF_INPUTS);
    struct tensor *x = op_receive(p->tape, comm, p->tape->activations, p->batch->n, p->model->config.width,
                                  before % comm->size, 2 * before);
    tape_place_end(p->tape);
    return x;
}

void parallel_send(struct pass *p, struct tensor *x)
{
    struct comm *comm = p->model->parallel->pipeline;
    i64 chunk = p->options->chunk;
    op_send(p->tape, comm, x, (chunk + 1) % comm->size, 2 * chunk);
}

struct tensor *parallel_anchor(struct pass *p, struct tensor *x)
{
    bool alone = p->model->parallel->world->size == 1 && model_chunks(p->model) == 1;
    return alone || !parallel_last(p) ? x : op_anchor(p->tape, x);
}

/* ---- Experts ---- */

struct forward_plan { /* Message of one rank about this forward. */
    u8 runs[LAYERS_MOST];
    i64 assignments;
};

/* Receive buffer for expert ranks that send at most `most` rows each. A GPU's has a fixed size, so that
 * a step takes the same memory whatever the router selects; a CPU's has that of the rows that arrive.
 * The exchange is split into parts only if the caller checks for overflow. */
static struct exchange_limits room_for(const struct pass *p, i64 most)
{
    const struct layout *layout = &p->model->parallel->layout;
    struct exchange_limits room = {.rows = device_is_gpu(p->tape->device) ? layout->receive * most : 0,
                                   .setting = "--layout receive=N",
                                   .over = p->options->over};
    if (room.over && layout->capacity_factor)
        room.capacity = min_i64(most, ceil_div(layout->capacity_factor * most, layout->expert));
    return room;
}

/* Ranks with different slices keep different layers. A rank that holds experts of a layer another
 * rank keeps must take part in that layer. */
static void agree_on_layers(struct pass *p)
{
    struct comm *comm = p->model->parallel->expert;
    struct forward_plan *plans = arena_alloc(&p->tape->host, comm->size * (i64)sizeof *plans);
    i64 bytes[comm->size], most = p->batch->n * p->sub->topk;
    for (i64 r = 0; r < comm->size; r++)
        bytes[r] = sizeof *plans;
    memcpy(plans[comm->rank].runs, p->layer_state, sizeof p->layer_state);
    plans[comm->rank].assignments = most;
    comm_all_gather(comm_host(comm), plans, bytes);
    for (i64 r = 0; r < comm->size && !comm->transport->counts_only; r++) {
        most = max_i64(most, plans[r].assignments);
        for (i64 layer = 0; layer < LAYERS_MOST; layer++)
            if (plans[r].runs[layer] == LAYER_RUN && p->layer_state[layer] == LAYER_SKIPPED)
                p->layer_state[layer] = LAYER_SERVED;
    }
    p->room = room_for(p, most);
}

void parallel_prepare(struct pass *p)
{
    i64 chunk = p->options->chunk, chunks = model_chunks(p->model), layers = p->model->config.layers;
    require(chunk >= 0 && chunk < chunks, "chunk %lld of %lld", (long long)chunk, (long long)chunks);
    p->first_layer = layers * chunk / chunks;
    p->end_layer = layers * (chunk + 1) / chunks;
    for (i64 i = 0; i < p->sub->layer_count; i++)
        p->layer_state[p->sub->layer[i]] = LAYER_RUN;
    if (p->model->parallel->expert->size > 1)
        agree_on_layers(p);
}
