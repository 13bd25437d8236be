/* What a rank does in a step, for the planner: a list of events, which are the calls of its comms with the work of its
 * ops before each. A transport without data records them on a meta device while the rank's step runs there. Collectives
 * come apart into messages as they do over host memory, within machines first if there are several (struct
 * comm_machines).
 *
 *     struct trace trace = {0};
 *     struct comm *world = comm_open_trace(&meta, &trace, rank, ranks, machines);
 *     ... open the layout and the step over it, run a step that warms up ...
 *     trace_begin(&trace, &meta);    train_step(...);    trace_end(&trace);
 *
 * foresee() (cluster.h) takes the traces of all ranks. */
#ifndef WEFT_DIST_TRACE_H
#define WEFT_DIST_TRACE_H
#include "dist/dist.h"

enum trace_kind {
    TRACE_POST,        /* sends to the ranks of a comm and goes on */
    TRACE_WAIT,        /* until what they posted under the same number has come */
    TRACE_BUCKET,      /* a bucket of gradients is complete; its sum runs beside what follows */
    TRACE_BUCKETS_END, /* waits for all buckets */
    TRACE_SEND,        /* to one rank */
    TRACE_RECEIVE,
    TRACE_END, /* of the step */
};
enum trace_channel { CHANNEL_CALLS, CHANNEL_TRANSFERS, CHANNEL_BUCKETS, TRACE_CHANNELS };
struct trace_event {
    enum trace_kind kind;
    enum trace_channel channel;
    i64 comm, number; /* comm: index of `comms`; number: counts within comm and channel. Messages: the tag */
    /* posts, buckets: where the bytes for each rank of the comm begin in `bytes`; of a bucket those within machines,
     * then [size] those between. Messages: their bytes */
    i64 bytes;
    i64 peer;                /* messages: rank of the comm */
    double work[WORK_KINDS]; /* of the ops since the event before */
    i64 calls;               /* of ops */
    double summed_bytes;     /* buckets: read and written to pack and add them */
};
struct trace_comm {
    const char *name; /* borrowed */
    i64 size, rank, *world;
    i64 numbers[TRACE_CHANNELS];
};
struct trace {
    struct device *device;
    struct trace_comm *comms;
    struct trace_event *events;
    i64 comm_count, count, *bytes, byte_count;
    i64 event_capacity, byte_capacity;
    struct cost before; /* up to the last event */
    bool records;
};
/* machines: names of the ranks' machines, [size], equal for ranks of one; NULL: all are on one. The trace is borrowed
 * and zeroed by the caller, who releases it after the world is closed. */
struct comm *comm_open_trace(struct device *meta, struct trace *trace, i64 rank, i64 size, const u64 *machines);
void trace_begin(struct trace *trace);
void trace_end(struct trace *trace);
void trace_release(struct trace *trace);

#endif
