#include "dist/dist.h"

static struct layout with_ones(const struct layout *layout)
{
    struct layout l = *layout;
    i64 *sizes[] = {&l.data, &l.expert, &l.tensor, &l.pipeline, &l.chunks};
    for (i64 i = 0; i < COUNT_OF(sizes); i++)
        *sizes[i] = max_i64(*sizes[i], 1);
    return l;
}

static int check_layout(const struct layout *l, i64 world)
{
    if (l->data * l->tensor * l->pipeline != world)
        return error_usage("%lld data x %lld tensor x %lld pipeline ranks are %lld, but %lld were started",
                           (long long)l->data, (long long)l->tensor, (long long)l->pipeline,
                           (long long)(l->data * l->tensor * l->pipeline), (long long)world);
    if (l->data % l->expert)
        return error_usage("%lld expert ranks lie inside the %lld data ranks and must divide them",
                           (long long)l->expert, (long long)l->data);
    return 0;
}

int parallel_open(struct parallel *p, struct comm *world, const struct layout *layout)
{
    struct layout l = with_ones(layout);
    if (check_layout(&l, world->size))
        return -1;
    i64 t = world->rank % l.tensor, d = world->rank / l.tensor % l.data, stage = world->rank / (l.tensor * l.data);
    i64 row = stage * l.data * l.tensor; /* first rank of this pipeline stage */
    *p = (struct parallel){.layout = l, .world = world, .receive_factor = 4};
    p->tensor = comm_split(world, &(struct group){row + d * l.tensor, 1, l.tensor}, "tensor");
    p->data = comm_split(world, &(struct group){row + t, l.tensor, l.data}, "data");
    p->expert =
        comm_split(world, &(struct group){row + d / l.expert * l.expert * l.tensor + t, l.tensor, l.expert}, "expert");
    p->replica = comm_split(
        world, &(struct group){row + d % l.expert * l.tensor + t, l.expert * l.tensor, l.data / l.expert}, "replica");
    p->pipeline = comm_split(world, &(struct group){d * l.tensor + t, l.data * l.tensor, l.pipeline}, "pipeline");
    return 0;
}

void parallel_close(struct parallel *p)
{
    struct comm *comms[] = {p->data, p->expert, p->replica, p->tensor, p->pipeline};
    for (i64 i = 0; i < COUNT_OF(comms); i++)
        comm_close(comms[i]);
    *p = (struct parallel){0};
}

const struct parallel *parallel_alone(void)
{
    static struct span spans[2];
    static i64 bytes;
    static struct comm comm = {
        .name = "alone", .size = 1, .transport = &local_transport, .out = &spans[0], .in = &spans[1], .bytes = &bytes};
    static const struct parallel alone = {{1, 1, 1, 1, 1}, &comm, &comm, &comm, &comm, &comm, &comm, 1};
    return &alone;
}

struct weights_layout parallel_place(const struct layout *layout, i64 rank)
{
    struct layout l = with_ones(layout);
    i64 d = rank / l.tensor % l.data;
    return (struct weights_layout){.data_rank = d,
                                   .data_ranks = l.data,
                                   .expert_rank = d % l.expert,
                                   .expert_ranks = l.expert,
                                   .tensor_rank = rank % l.tensor,
                                   .tensor_ranks = l.tensor,
                                   .chunk_rank = rank / (l.tensor * l.data),
                                   .chunk_ranks = l.pipeline,
                                   .chunks = l.pipeline * l.chunks};
}
