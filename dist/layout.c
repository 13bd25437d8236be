#include "dist/dist.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((i64)1 << 20)
enum { BUCKET_MIB = 32, RECEIVE = 4 };

static struct layout with_ones(const struct layout *layout)
{
    struct layout l = *layout;
    i64 *sizes[] = {&l.data, &l.expert, &l.tensor, &l.pipeline, &l.chunks};
    l.receive = l.receive ? l.receive : RECEIVE;
    l.bucket_bytes = l.bucket_bytes ? l.bucket_bytes : BUCKET_MIB * MIB;
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
        return error_usage("%lld %s inside the %lld %s and must divide them", (long long)l->expert,
                           plural(l->expert, "expert rank lies", "expert ranks lie"), (long long)l->data,
                           plural(l->data, "data rank", "data ranks"));
    return 0;
}

static int read_size(i64 *out, const char *name, const char *text, i64 least)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < least || value > 1 << 20)
        return error_usage("layout: %s=%s, expected a whole number from %lld", name, text, (long long)least);
    *out = value;
    return 0;
}

int layout_parse(struct layout *l, const char *text, i64 world)
{
    static const char *const names[] = {"data",    "expert", "tensor", "pipeline", "chunks",
                                        "receive", "bucket", "part",   NULL};
    i64 bucket_mib = 0;
    i64 *const sizes[] = {&l->data,   &l->expert,  &l->tensor,  &l->pipeline,
                          &l->chunks, &l->receive, &bucket_mib, &l->capacity_factor};
    char *copy = string_copy(text ? text : ""), *rest = copy;
    int status = 0;
    *l = (struct layout){0};
    for (char *item; status == 0 && (item = strsep(&rest, ",")) && text && *text;) {
        char *equals = strchr(item, '=');
        int i = 0;
        if (equals)
            *equals = 0;
        while (names[i] && strcmp(names[i], item) != 0)
            i++;
        if (!names[i] || !equals) {
            const char *near = string_nearest(item, names);
            status = error_usage("layout: \"%s\": expected data=, expert=, tensor=, pipeline=, chunks=, receive=, "
                                 "part= or bucket=%s%s",
                                 item, near && !names[i] ? ", did you mean " : "", near && !names[i] ? near : "");
        } else {
            status = read_size(sizes[i], item, equals + 1, sizes[i] == &l->capacity_factor ? 0 : 1);
        }
    }
    memory_free(copy);
    if (status)
        return -1;
    l->bucket_bytes = bucket_mib * MIB;
    if (l->data == 0)
        l->data = max_i64(1, world / (max_i64(l->tensor, 1) * max_i64(l->pipeline, 1)));
    *l = with_ones(l);
    return check_layout(l, world);
}

void layout_print(struct buffer *out, const struct layout *layout)
{
    struct layout l = with_ones(layout);
    buffer_printf(out, "data=%lld,expert=%lld,tensor=%lld,pipeline=%lld,chunks=%lld,receive=%lld,part=%lld,bucket=%lld",
                  (long long)l.data, (long long)l.expert, (long long)l.tensor, (long long)l.pipeline,
                  (long long)l.chunks, (long long)l.receive, (long long)l.capacity_factor,
                  (long long)(l.bucket_bytes / MIB));
}

i64 layout_fit(const char *text, i64 least, i64 most)
{
    struct layout layout;
    i64 ranks = most;
    while (ranks >= least && layout_parse(&layout, text, ranks))
        ranks--;
    return ranks >= least ? ranks : 0;
}

int parallel_open(struct parallel *p, struct comm *world, const struct layout *layout)
{
    struct layout l = with_ones(layout);
    if (check_layout(&l, world->size))
        return -1;
    i64 t = world->rank % l.tensor, d = world->rank / l.tensor % l.data, stage = world->rank / (l.tensor * l.data);
    i64 row = stage * l.data * l.tensor; /* first rank of this pipeline stage */
    *p = (struct parallel){.layout = l, .world = world};
    p->tensor = comm_split(world, &(struct rank_group){row + d * l.tensor, 1, l.tensor}, "tensor");
    p->data = comm_split(world, &(struct rank_group){row + t, l.tensor, l.data}, "data");
    p->expert = comm_split(
        world, &(struct rank_group){row + d / l.expert * l.expert * l.tensor + t, l.tensor, l.expert}, "expert");
    p->replica = comm_split(
        world, &(struct rank_group){row + d % l.expert * l.tensor + t, l.expert * l.tensor, l.data / l.expert},
        "replica");
    p->pipeline = comm_split(world, &(struct rank_group){d * l.tensor + t, l.data * l.tensor, l.pipeline}, "pipeline");
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
    static const struct parallel alone = {{1, 1, 1, 1, 1, 1}, &comm, &comm, &comm, &comm, &comm, &comm};
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
