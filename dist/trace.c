#include "dist/trace.h"

#include <string.h>

struct trace_state { /* of a comm */
    struct trace *trace;
    i64 comm;
};

static struct trace_state *state_of(const struct comm *comm)
{
    return comm->state;
}

/* Adds an event with the work since the one before. NULL: nothing is recorded now. */
static struct trace_event *add_event(struct trace *t, enum trace_kind kind, i64 comm)
{
    const struct cost *now = &t->device->cost;
    if (!t->records)
        return NULL;
    if (t->count == t->event_capacity) {
        i64 next = grown_capacity(t->event_capacity, t->count + 1, sizeof *t->events), bytes = (i64)sizeof *t->events;
        t->events = memory_resize(t->events, t->event_capacity * bytes, next * bytes);
        t->event_capacity = next;
    }
    struct trace_event *e = &t->events[t->count++];
    *e = (struct trace_event){.kind = kind, .comm = comm, .calls = now->calls - t->before.calls};
    for (int k = 0; k < WORK_KINDS; k++)
        e->work[k] = now->work[k] - t->before.work[k];
    t->before = *now;
    return e;
}

/* Room for the bytes of all ranks of a comm, zeroed. */
static i64 add_bytes(struct trace *t, i64 count)
{
    i64 at = t->byte_count;
    if (at + count > t->byte_capacity) {
        i64 next = grown_capacity(t->byte_capacity, at + count, 8);
        t->bytes = memory_resize(t->bytes, t->byte_capacity * 8, next * 8);
        t->byte_capacity = next;
    }
    memset(t->bytes + at, 0, (size_t)count * 8);
    t->byte_count += count;
    return at;
}

/* Returns its number. in: what each rank is sent. */
static i64 add_post(struct comm *comm, enum trace_channel channel, const struct span *in)
{
    struct trace *t = state_of(comm)->trace;
    struct trace_comm *c = &t->comms[state_of(comm)->comm];
    struct trace_event *e = add_event(t, TRACE_POST, state_of(comm)->comm);
    c->name = comm->name; /* given behind the split */
    for (i64 r = 0; r < comm->size; r++)
        comm->device->cost.traffic += r == comm->rank ? 0 : (double)in[r].bytes;
    if (!e)
        return 0;
    e->channel = channel;
    e->number = c->numbers[channel]++;
    e->bytes = add_bytes(t, comm->size);
    for (i64 r = 0; r < comm->size; r++)
        t->bytes[e->bytes + r] = r == comm->rank ? 0 : in[r].bytes;
    return e->number;
}

static void add_wait(struct comm *comm, enum trace_channel channel, i64 number)
{
    struct trace_event *e = add_event(state_of(comm)->trace, TRACE_WAIT, state_of(comm)->comm);
    if (!e)
        return;
    e->channel = channel;
    e->number = number;
}

static void exchange(struct comm *comm, const struct span *out, const struct span *in)
{
    (void)out;
    if (comm->size > 1)
        add_wait(comm, CHANNEL_CALLS, add_post(comm, CHANNEL_CALLS, in));
}

/* Over TCP each rank sends its part to all others. */
static void all_gather(struct comm *comm, void *data, const i64 *bytes)
{
    struct span in[comm->size];
    for (i64 r = 0; r < comm->size; r++)
        in[r] = (struct span){data, bytes[comm->rank]};
    exchange(comm, NULL, in);
}

static void broadcast(struct comm *comm, void *data, i64 bytes, i64 root)
{
    struct span in[comm->size];
    for (i64 r = 0; r < comm->size; r++)
        in[r] = (struct span){data, comm->rank == root ? bytes : 0};
    exchange(comm, NULL, in);
}

static struct transfer *begin(struct comm *comm, const struct span *out, const struct span *in)
{
    (void)out;
    return (struct transfer *)(uintptr_t)(add_post(comm, CHANNEL_TRANSFERS, in) + 1);
}

static bool ended(struct comm *comm, struct transfer *transfer, bool wait)
{
    (void)wait;
    add_wait(comm, CHANNEL_TRANSFERS, (i64)(uintptr_t)transfer - 1);
    return true;
}

static void add_message(struct comm *comm, enum trace_kind kind, i64 peer, i64 tag, i64 bytes)
{
    struct trace_event *e = add_event(state_of(comm)->trace, kind, state_of(comm)->comm);
    comm->device->cost.traffic += kind == TRACE_SEND ? (double)bytes : 0;
    if (!e)
        return;
    e->peer = peer;
    e->number = tag;
    e->bytes = bytes;
}

static void send(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes)
{
    (void)data;
    comm->device->cost.work[WORK_OTHER] += 2 * (double)bytes; /* what is sent is copied */
    add_message(comm, TRACE_SEND, to, tag, bytes);
}

static void receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes)
{
    (void)data;
    add_message(comm, TRACE_RECEIVE, from, tag, bytes);
}

static void barrier(struct comm *comm)
{
    (void)comm;
}

/* A bucket, as buckets.c sends it over host memory. */
static void begin_sums(struct comm *comm, const struct piece *pieces, i64 count)
{
    struct trace *t = state_of(comm)->trace;
    const struct comm_machines *m = comm_host(comm)->machines;
    i64 shares[comm->size], near[comm->size], far[comm->size], own, share;
    double sent = 0;
    memset(shares, 0, sizeof shares);
    memset(near, 0, sizeof near);
    memset(far, 0, sizeof far);
    for (i64 i = 0; i < count; i++)
        for (i64 r = 0; r < comm->size; r++)
            shares[r] += piece_of_rank(&pieces[i], comm->size, r).bytes;
    for (i64 i = 0; i < m->near; i++)
        for (i64 k = m->begin[i]; k < m->begin[i + 1]; k++)
            near[m->ranks[i]] += shares[m->shares[k]];
    own = near[comm->rank];
    near[comm->rank] = 0;
    for (i64 k = 1; (share = machines_share(m, m->place, k)) >= 0; k++)
        far[share] = shares[share];
    for (i64 r = 0; r < comm->size; r++)
        sent += (double)(near[r] + far[r]);
    comm->device->cost.traffic += sent;
    struct trace_event *e = add_event(t, TRACE_BUCKET, state_of(comm)->comm);
    if (!e)
        return;
    e->channel = CHANNEL_BUCKETS;
    e->number = t->comms[e->comm].numbers[CHANNEL_BUCKETS]++;
    e->bytes = add_bytes(t, 2 * comm->size);
    memcpy(t->bytes + e->bytes, near, sizeof near);
    memcpy(t->bytes + e->bytes + comm->size, far, sizeof far);
    e->summed_bytes =
        2 * sent + (double)((m->near + 1) * own) + (m->count > 1 ? (double)((m->count + 1) * shares[comm->rank]) : 0);
}

static void end_sums(struct comm *comm)
{
    add_event(state_of(comm)->trace, TRACE_BUCKETS_END, state_of(comm)->comm);
}

static const struct transport trace_transport;
/* members: [group count] ranks of the world; owned by the trace. */
static struct comm *add_comm(struct trace *t, const char *name, i64 rank, i64 size, i64 *members)
{
    i64 bytes = (i64)sizeof *t->comms;
    struct comm *comm = comm_new(&trace_transport, t->device, name, rank, size);
    struct trace_state *state = memory_alloc(sizeof *state);
    *state = (struct trace_state){t, t->comm_count};
    comm->state = state;
    t->comms = memory_resize(t->comms, t->comm_count * bytes, (t->comm_count + 1) * bytes);
    t->comms[t->comm_count++] = (struct trace_comm){.name = name, .size = size, .rank = rank, .world = members};
    return comm;
}

static struct comm *split(struct comm *parent, const struct rank_group *group, i64 rank)
{
    struct trace *t = state_of(parent)->trace;
    i64 *members = memory_alloc(group->count * (i64)sizeof *members);
    for (i64 r = 0; r < group->count; r++)
        members[r] = t->comms[state_of(parent)->comm].world[group->first + r * group->stride];
    return add_comm(t, parent->name, rank, group->count, members);
}

static void close_state(struct comm *comm)
{
    memory_free(comm->state);
}

static const struct transport trace_transport = {.name = "trace",
                                                 .counts_only = true,
                                                 .exchange = exchange,
                                                 .all_gather = all_gather,
                                                 .broadcast = broadcast,
                                                 .send = send,
                                                 .receive = receive,
                                                 .barrier = barrier,
                                                 .begin = begin,
                                                 .ended = ended,
                                                 .begin_sums = begin_sums,
                                                 .end_sums = end_sums,
                                                 .split = split,
                                                 .close = close_state};

struct comm *comm_open_trace(struct device *meta, struct trace *trace, i64 rank, i64 size, const u64 *machines)
{
    i64 *members = memory_alloc(size * (i64)sizeof *members);
    for (i64 r = 0; r < size; r++)
        members[r] = r;
    trace->device = meta;
    struct comm *world = add_comm(trace, "world", rank, size, members);
    world->machines = machines_open(machines, size, rank);
    return world;
}

void trace_begin(struct trace *t)
{
    t->count = t->byte_count = 0;
    t->before = t->device->cost;
    for (i64 i = 0; i < t->comm_count; i++)
        memset(t->comms[i].numbers, 0, sizeof t->comms[i].numbers);
    t->records = true;
}

void trace_end(struct trace *t)
{
    add_event(t, TRACE_END, 0);
    t->records = false;
}

void trace_release(struct trace *t)
{
    for (i64 i = 0; i < t->comm_count; i++)
        memory_free(t->comms[i].world);
    memory_free(t->comms);
    memory_free(t->events);
    memory_free(t->bytes);
    *t = (struct trace){0};
}
