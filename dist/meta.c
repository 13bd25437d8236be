/* Transport without data: adds the bytes this rank would send to device->cost.traffic. Collectives
 * are costed as rings: each rank sends (R - 1)/R of the data once to reduce and once to gather. */
#include "dist/dist.h"

static void count_traffic(struct comm *comm, double bytes)
{
    comm->device->cost.traffic += bytes;
}

static void exchange(struct comm *comm, const struct span *out, const struct span *in)
{
    (void)out;
    for (i64 r = 0; r < comm->size; r++)
        count_traffic(comm, r == comm->rank ? 0 : (double)in[r].bytes);
}

static double remote_share(const struct comm *comm, double bytes)
{
    return bytes * (double)(comm->size - 1) / (double)comm->size;
}

static double total_of(const struct comm *comm, const i64 *parts)
{
    double total = 0;
    for (i64 r = 0; r < comm->size; r++)
        total += (double)parts[r];
    return total;
}

static void all_gather(struct comm *comm, void *data, const i64 *bytes)
{
    (void)data;
    count_traffic(comm, remote_share(comm, total_of(comm, bytes)));
}

static void broadcast(struct comm *comm, void *data, i64 bytes, i64 root)
{
    (void)data, (void)root;
    count_traffic(comm, remote_share(comm, (double)bytes));
}

static void send(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes)
{
    (void)tag, (void)data;
    count_traffic(comm, to == comm->rank ? 0 : (double)bytes);
}

static void receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes)
{
    (void)comm, (void)from, (void)tag, (void)data, (void)bytes;
}

static void barrier(struct comm *comm)
{
    (void)comm;
}

static void all_reduce(struct comm *comm, void *data, i64 count, enum dtype dtype)
{
    (void)data;
    count_traffic(comm, 2 * remote_share(comm, (double)(count * dtype_bytes(dtype))));
}

static void reduce_scatter(struct comm *comm, void *data, const i64 *counts, enum dtype dtype)
{
    (void)data;
    count_traffic(comm, remote_share(comm, total_of(comm, counts) * (double)dtype_bytes(dtype)));
}

static void begin_sums(struct comm *comm, const struct piece *pieces, i64 count)
{
    for (i64 i = 0; i < count; i++)
        for (i64 r = 0; r < comm->size; r++)
            count_traffic(comm, remote_share(comm, (double)piece_of_rank(&pieces[i], comm->size, r).bytes));
}

static void end_sums(struct comm *comm)
{
    (void)comm;
}

static struct comm *split(struct comm *parent, const struct rank_group *group, i64 rank)
{
    return comm_new(&meta_transport, parent->device, parent->name, rank, group->count);
}

const struct transport meta_transport = {.name = "meta",
                                         .counts_only = true,
                                         .exchange = exchange,
                                         .all_gather = all_gather,
                                         .broadcast = broadcast,
                                         .send = send,
                                         .receive = receive,
                                         .barrier = barrier,
                                         .all_reduce = all_reduce,
                                         .reduce_scatter = reduce_scatter,
                                         .begin_sums = begin_sums,
                                         .end_sums = end_sums,
                                         .split = split};
