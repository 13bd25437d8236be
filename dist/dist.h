/* dist: multi-rank training. A comm (communicator) is a set of ranks; collectives are calls on a
 * comm, and some of them are also ops on the tape; a transport moves the bytes. Code above this
 * folder does not know MPI, TCP or NCCL; code below does not know ranks.
 *
 *     launch    rank and size from the launcher's environment            launch.c
 *     comm      collectives, built on the few functions of a transport   comm.c
 *     machines  which ranks share one: sums go within machines first     machines.c
 *               local.c (one rank)   mpi.c, tcp.c (host memory)   nccl.c (GPU memory)
 *               meta.c (no data: counts traffic)   trace.c (no data: lists calls) [trace.h]
               watch.c (names ranks that hang)
 *               two planes: a comm moves device memory (data plane), its comm_host moves
 *               host memory (control plane)
 *     parallel  data, expert, tensor and pipeline comms of a layout      layout.c
 *     ops       collectives with a backward                              ops.c, experts.c
 *     buckets   gradient reduction overlapped with the backward          buckets.c
 *     zero      a weights table sharded over ranks (ZeRO-1)              zero.c
 *     placement which expert rank holds which experts                    placement.c
 *     deal      which data rank takes which micro-batches                deal.c [deal.h]
 *     cluster   speeds of ranks and links (links.c), and a step by them   cluster.c foresee.c [cluster.h]
 *               beside what a run measures                               foreseen.c
 *     snapshot  such tables in memory that outlives the ranks            snapshot.c [snapshot.h]
 *
 * World rank = (pipeline . data + d) . tensor + t. Expert ranks are a subdivision of data ranks:
 * data rank d holds the experts of expert rank d % expert (placement.c says which). Ranks with the same experts form a
 * `replica` comm.
 *
 * All ranks of a comm must call the same collectives in the same order with the same sizes. The
 * first calls on each comm check this and stop the run, naming the ranks that differ. Sums are
 * computed in f32 (F64: in f64), and all ranks get bitwise equal results. On CPUs ranks are added
 * in ascending order, within each machine first if several have several ranks (struct
 * comm_machines), so results are reproducible. On GPUs F32 and F64 use NCCL's order, which
 * depends on its choice of algorithm (fixed by NCCL_ALGO and NCCL_PROTO); BF16 is exchanged and
 * summed in f32 by this program.
 *
 * A failing rank exits without closing its world. The launcher then ends the other ranks; over TCP
 * they see the closed connection; ranks on GPUs stop once a call on either plane has made no
 * progress for launch_wait_s. Barriers have no such limit, because ranks may wait there for work
 * that one rank does alone.
 *
 * A rank that hangs is told from a slow one by a thread of its own, which sends signs of life
 * whatever the rank computes, reads or waits for (watch.c). If they stay away for launch_silence_s,
 * because the process is stopped or its machine is gone, rank 0 names the rank and exits; if rank 0
 * is silent, rank 1 does. If all ranks wait in calls and no byte moves for that long, their calls do
 * not fit together, and rank 0 names them. No wait in a call of CPU ranks is limited: a long step, a checkpoint or
 * the preparation of data never ends a run. Nor does an endless loop, which nobody can tell from
 * them.
 *
 * Adding a transport: fill a struct transport. exchange, all_gather, broadcast, send and receive
 * are required. If all_reduce and reduce_scatter are NULL, comm.c builds them from exchange,
 * all_gather and sums on the host. A transport of host memory serves as control plane, and as the
 * data plane of a CPU; it must also have barrier, split, begin and ended. A transport of device
 * memory must have all_reduce, reduce_scatter, begin_sums and end_sums. comm_open chooses the
 * transport.
 *
 * Ownership: the caller closes what it opened (comm_close, parallel_close, buckets_close). Tensors
 * and expert exchanges belong to the tape and live until tape_clear.
 *
 * Where else to look: rendezvous.c connects ranks over TCP, before tcp.c moves bytes. What the bytes
 * of others mean, greeting.c and tcp_reader.c say, which know no sockets; sockets.c has what the
 * HTTP server (serve) needs too. experts.c sends rows to the ranks that own their experts, and back. */
#ifndef WEFT_DIST_H
#define WEFT_DIST_H
#include "tensor/ops.h"
#include "tensor/weights.h"

/* ---- Launch ---- */
/* Reads the first pair that is set of RANK and WORLD_SIZE (torchrun), OMPI_*, PMI_*, SLURM_*;
 * without any there is one rank. With MASTER_ADDR and MASTER_PORT (rank 0's address) ranks connect
 * over TCP. Otherwise they use MPI, whose rank and size must agree. If torchrun itself occupies the
 * port, the next port is used. Ranks that meet over TCP prove to each other that they know the text
 * in WEFT_SECRET, if it is set. Ranks whose WEFT_MACHINE is the same, by default the host's name, count
 * as those of one machine (struct comm_machines). */
enum { WORLD_MOST = 16384 };
struct launch_info {
    i64 rank, size, local_rank, local_size; /* size 0: not given */
    const char *master;                     /* borrowed from the environment; NULL: use MPI */
    i64 port;
    const char *source;  /* launcher, e.g. "mpirun"; a literal */
    const char *program; /* version, compared when the ranks meet; borrowed; NULL: it is not */
};
/* Returns -1 and a message if half of a pair is set or a rank or size is out of range. */
int launch_detect(struct launch_info *launch);
/* Seconds a rank waits for another rank before it gives up: WEFT_WAIT_S, by default 600. */
i64 launch_wait_s(void);
/* Seconds without a sign of life after which a rank counts as stopped or gone: WEFT_SILENCE_S, by default
 * launch_wait_s(). Sets *name to the variable, for messages; may be NULL. */
i64 launch_silence_s(const char **name);

/* ---- Comms ---- */
struct comm;
struct watch;
struct sockaddr_storage;
struct span { /* bytes sent to or received from one rank */
    void *data;
    i64 bytes;
};
/* A slice of every rank's share of an f32 matrix. Rank r of R owns rows [rows r / R, rows (r + 1) /
 * R); the slice is elements [begin, begin + count) of each share. */
struct piece {
    float *data;
    i64 rows, columns, begin, count;
};
struct span piece_of_rank(const struct piece *piece, i64 ranks, i64 rank);
struct rank_group { /* ranks first, first + stride, ... of the parent */
    i64 first, stride, count;
};
struct transport {
    const char *name;
    bool counts_only; /* pointers have no data behind them */
    /* All-to-all: out[r] receives rank r's in[own rank]. Both sides know the sizes. */
    void (*exchange)(struct comm *comm, const struct span *out, const struct span *in);
    /* data: the parts of all ranks, concatenated, bytes[r] each; each rank's own part is in
     * place. */
    void (*all_gather)(struct comm *comm, void *data, const i64 *bytes);
    void (*broadcast)(struct comm *comm, void *data, i64 bytes, i64 root);
    /* send copies the data and returns at once (GPUs: at most 64 messages to one rank may be
     * pending). Messages with the same tag between two ranks arrive in order. On GPUs only
     * neighbours in the ring of ranks may exchange messages, and the first message on a comm is
     * collective: every rank must send or receive one before it waits for anything else. */
    void (*send)(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes);
    void (*receive)(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes);
    void (*barrier)(struct comm *comm);
    void (*all_reduce)(struct comm *comm, void *data, i64 count, enum dtype dtype);             /* may be NULL */
    void (*reduce_scatter)(struct comm *comm, void *data, const i64 *counts, enum dtype dtype); /* may be NULL */
    /* Host memory: an asynchronous all-to-all. All ranks of a comm must begin theirs in the same
     * order, but may make other calls in between. `ended` returns true and frees the transfer once
     * all data has been sent and received. With `wait` it blocks until then. */
    struct transfer *(*begin)(struct comm *comm, const struct span *out, const struct span *in);
    bool (*ended)(struct comm *comm, struct transfer *transfer, bool wait);
    /* Device memory: asynchronous reduce-scatter of the pieces. begin_sums runs beside the device's
     * queue, after the work queued so far; end_sums makes the queue wait for all that were begun.
     * NULL for host memory. */
    void (*begin_sums)(struct comm *comm, const struct piece *pieces, i64 count);
    void (*end_sums)(struct comm *comm);
    struct comm *(*split)(struct comm *parent, const struct rank_group *group, i64 rank);
    void (*close)(struct comm *comm);            /* frees `state`, if there is any */
    void (*stop)(struct comm *comm, int status); /* ends all ranks, this one with the status; NULL: exit */
    /* Stops if a rank has ended; never blocks. NULL: the launcher ends the ranks. */
    void (*check_alive)(struct comm *comm);
    /* Sends a sign of life to a rank of the world; any thread, never blocks. NULL: the transport has none. */
    void (*beat)(struct comm *world, i64 rank);
};
/* How the sums and gathers of a comm of host memory go within machines first, where its ranks lie on several machines
 * and not each on its own (hierarchical sums: Jia et al. 2018, arXiv 1807.11205). The share that rank s gets of a sum
 * has a carrier on each other machine, which adds the parts of its machine, in rank order. Rank s does so on its own
 * machine, and adds the machines' sums in their order. A gather takes the same way back. Machines and their ranks
 * take turns as carriers, so all ranks of a machine use its link.
 *
 *     share of rank 0         machine 0: ranks 0, 1            machine 1: ranks 2, 3
 *     sum                     rank 0: (part 0 + part 1)   +    (part 2 + part 3) by its carrier, rank 2
 *     gather                  rank 0 -> rank 1, rank 2         rank 2 -> rank 3
 *
 * All ranks on one machine, or each on its own: one machine here, whose sums are those of all ranks in order. */
struct comm_machines {
    i64 count, own;  /* machines, in the order of their first ranks; that of this rank */
    i64 near, place; /* ranks of this machine, and the index of this one */
    i64 *of;         /* [size] machine of each rank */
    i64 *order;      /* [size] ranks by machine */
    i64 *ranks;      /* [near] those of this machine, ascending; borrowed from `order` */
    i64 *begin;      /* [near + 1] near rank i carries shares begin[i] .. begin[i + 1] - 1 of the list */
    i64 *shares;     /* [size] ranks whose shares they are: the near rank's own first, then by machine */
    i64 *carriers;   /* [count] who carries this rank's share on each machine; on its own: this rank */
    i64 rounds;      /* the most shares that a near rank carries */
};
struct comm {
    const char *name; /* used in messages: "data", ... */
    i64 rank, size;
    struct device *device; /* device whose memory is moved or traffic is counted; NULL: host */
    struct comm *host;     /* control plane of the same ranks; NULL: this comm is one */
    const struct transport *transport;
    void *state;           /* owned by the transport; a CPU's two planes share it */
    struct span *out, *in; /* [size], argument space of the collectives */
    i64 *bytes;            /* [size] */
    void *scratch;         /* same kind of memory as the comm moves */
    const char *call;      /* control plane: name of the last call, a literal */
    i64 wait_s;            /* timeout of all calls but barriers; 0: none */
    double end_s;          /* all calls end until then (clock_s); 0: no limit */
    i64 scratch_bytes, calls;
    double begun_s, spent_s;        /* when the call that goes on began, 0: none; time in calls so far */
    struct watch *watch;            /* control plane of the world; NULL: none */
    struct comm_machines *machines; /* control plane and meta; owned */
};
/* The control plane of a comm: the same ranks, for host memory such as sizes and counts. The comm
 * itself, the data plane, moves device memory only. */
static inline struct comm *comm_host(struct comm *comm)
{
    return comm->host ? comm->host : comm;
}

/* Opens the world. One rank uses the local transport; several ranks on a meta device use
 * comm_open_meta. Otherwise several ranks use TCP or MPI, which also move a CPU's memory; GPU
 * memory moves over NCCL. Returns NULL and a message if the build lacks the transport, or if
 * launcher and transport disagree about rank and size. */
struct comm *comm_open(struct device *device, const struct launch_info *launch);
struct comm *comm_open_meta(struct device *device, i64 rank, i64 size); /* adds to device->cost.traffic */
/* Partitions the parent into groups of equal size and returns the comm of this rank's group.
 * Collective over the parent; each rank passes its own `group`. */
struct comm *comm_split(struct comm *parent, const struct rank_group *group, const char *name);
void comm_close(struct comm *comm); /* collective; close the world last */

void comm_barrier(struct comm *comm);
void comm_broadcast(struct comm *comm, void *data, i64 bytes, i64 root);
/* Concatenates the parts of all ranks in data, bytes[r] each. This rank's part must already be in
 * place. */
void comm_all_gather(struct comm *comm, void *data, const i64 *bytes);
/* data[i] = sum over ranks, in the order described above. F32, F64, or BF16 (summed in f32 and
 * rounded once). */
void comm_all_reduce(struct comm *comm, void *data, i64 count, enum dtype dtype);
/* The same for several short sums, which travel together: of host memory one message to each rank, so
 * that a slow link delays a step once. */
struct comm_sum {
    void *data;
    i64 count;
    enum dtype dtype;
};
void comm_all_reduce_list(struct comm *comm, const struct comm_sum *sums, i64 count);
/* The same as comm_all_reduce, but each rank gets only the sum of its own part; the other parts are unchanged.
 * counts[r]: elements of rank r's part. */
void comm_reduce_scatter(struct comm *comm, void *data, const i64 *counts, enum dtype dtype);
void comm_exchange(struct comm *comm, const struct span *out, const struct span *in);
void comm_send(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes);
void comm_receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes);
bool comm_any(struct comm *comm, bool value); /* logical or over the ranks */
/* Fatal error: prints the message with this rank's number and ends all ranks. */
_Noreturn void comm_stop(struct comm *comm, const char *format, ...) PRINTF(2, 3);
/* The same, with another exit status of this rank than STATUS_FAILED. */
_Noreturn void comm_stop_with(struct comm *comm, int status, const char *format, ...) PRINTF(3, 4);

/* Seconds that this rank has spent in calls of the layout's comms so far: it waited, or moved bytes. */
struct parallel;
double comm_spent_s(const struct parallel *parallel);

/* Internal: for transports and ops. */
/* names [size]: equal for ranks of one machine; NULL: all are on one. */
struct comm_machines *machines_open(const u64 *names, i64 size, i64 rank);
struct comm_machines *machines_of_group(const struct comm_machines *parent, const struct rank_group *group, i64 rank);
void machines_close(struct comm_machines *machines); /* NULL: nothing */
/* The k-th share that a near rank carries, by its rank; -1: it has fewer. */
i64 machines_share(const struct comm_machines *machines, i64 near, i64 k);
/* Fills in comm->out and comm->in for one round of a gather, in place: data has the shares of all ranks, bytes[r] each,
 * one behind the other. Round 0 brings shares to their machine and to the carriers. Rounds 1 .. machines->rounds - 1,
 * in any order behind it, bring what they carry to the other ranks of their machine. */
void machines_gather(struct comm *comm, char *data, const i64 *bytes, i64 round);
struct comm *comm_new(const struct transport *transport, struct device *device, const char *name, i64 rank, i64 size);
void *comm_scratch(struct comm *comm, i64 bytes); /* valid until the next call; never shrinks */
/* Checks that the ranks' first calls on a comm agree in name and size. Otherwise stops the run and
 * names the ranks. */
void comm_agree(struct comm *comm, const char *name, i64 bytes);
/* Stops because wait_s has elapsed. rank: the missing rank of the world; -1: unknown. */
_Noreturn void comm_stop_waiting(struct comm *host, i64 rank);
extern const struct transport local_transport, meta_transport;
struct comm *mpi_open(const struct launch_info *launch); /* a control plane; NULL and a message */
struct comm *tcp_open(const struct launch_info *launch);
/* This end's address of the connection to a rank of a TCP world. False if it has none. */
bool tcp_local_address(struct sockaddr_storage *out, const struct comm *world, i64 rank);
/* Collective: the control plane of the world, which it borrows. NULL: the ranks cannot be watched.
 * Close it behind the last call of the world. */
struct watch *watch_open(struct comm *world, const struct launch_info *launch);
/* Call before the transport of the world is closed: no more beats over it. */
void watch_leave_world(struct watch *watch);
void watch_close(struct watch *watch);
/* True if this rank of the world is watched over the connection to it, because no datagram of it
 * arrives: it sends something there every few seconds, whatever it does. */
bool watch_is_connected(i64 rank);
/* Notes bytes that went to or came from another rank. */
void watch_moved(i64 bytes);
/* Notes the call that this rank is in, for messages; literals, NULL: none. */
void watch_call(const char *comm, const char *call);
/* Connects to all other ranks within launch_wait_s; own entry: -1. Strangers are dropped. Returns -1
 * and a message that names the missing ranks. */
int rendezvous(int *sockets, const struct launch_info *launch);
struct comm *nccl_over(struct comm *host, struct device *device); /* a data plane; NULL and a message */
/* Version of the loaded library, e.g. 22809 for 2.28.9; 0 and a message if there is none. */
i64 nccl_version(void);

/* ---- Layout ---- */
struct layout {
    i64 data, expert /* divides data */, tensor, pipeline; /* numbers of ranks; 0: 1 */
    i64 chunks;                                            /* layer chunks per pipeline rank; 0: 1 */
    /* GPUs: row capacity of an expert rank, as a multiple of its load under a balanced router; 0: 4.
     * A CPU takes memory for the rows that arrive. */
    i64 receive;
    /* Training: fixed number of rows that each expert rank sends to each other one, as such a
     * multiple. 0: variable, the actual number of rows, which the host must read from the
     * device. */
    i64 capacity_factor;
    i64 bucket_bytes; /* bytes of gradients reduced together; 0: 32 MiB */
};
/* Parses "data=4,expert=2,tensor=1,pipeline=1,chunks=1,receive=4,part=2,bucket=32". All items are
 * optional; bucket is in MiB; NULL or "" gives the defaults. By default data is the number of ranks
 * that the other sizes leave. Returns -1 and a usage message, also if the sizes do not multiply to
 * `world`. */
int layout_parse(struct layout *layout, const char *text, i64 world);
/* Appends all items as layout_parse reads them. */
void layout_print(struct buffer *out, const struct layout *layout);
/* The largest number of ranks from `least` to `most` that the layout fits. 0 and a message: none. */
i64 layout_fit(const char *text, i64 least, i64 most);
struct parallel {
    struct layout layout;
    struct comm *world, *data, *expert, *replica, *tensor, *pipeline;
};
/* Opens the comms of a layout. Returns -1 and a message if the sizes do not multiply to the
 * world's. The world is borrowed. */
int parallel_open(struct parallel *parallel, struct comm *world, const struct layout *layout);
void parallel_close(struct parallel *parallel);
const struct parallel *parallel_alone(void); /* one rank: every comm has size 1 */
/* Coordinates of a world rank, for sharding the weights table. */
struct weights_layout parallel_place(const struct layout *layout, i64 rank);

/* ---- Placement of experts on expert ranks ---- */
/* placement [layers, E], as in struct weights_layout, by use [layers, E]: in each layer the most used expert that is
 * left goes to the rank with the least use among those that have room, for every rank holds as many. Ties go to the
 * lower number. Without use, experts lie in a row. (Largest first: Graham, Bounds on multiprocessing timing
 * anomalies, 1969.) */
void placement_by_use(i32 *placement, const double *use, i64 layers, i64 experts, i64 ranks);
bool placement_is_in_a_row(const i32 *placement, i64 layers, i64 experts); /* as NULL in struct weights_layout */
/* Whether each layer has each expert once, ascending on each rank. */
bool placement_is_right(const i32 *placement, i64 layers, i64 experts, i64 ranks);

/* ---- Ops on the tape ---- */
/* Tensor parallelism. Sums x [N,C] over the ranks in-place; the gradient passes through unchanged.
 * x must have no other use. */
struct tensor *op_all_reduce(struct tape *tape, struct comm *comm, struct tensor *x);
/* The conjugate: x passes through unchanged; its gradient is summed. */
struct tensor *op_enter(struct tape *tape, struct comm *comm, struct tensor *x);
/* Identity whose backward supplies a zero gradient if none arrives, so that all ranks make the same
 * calls in the backward. */
struct tensor *op_anchor(struct tape *tape, struct tensor *x);
/* Pipeline parallelism. The forward sends under `tag`, the gradient returns under tag + 1. */
void op_send(struct tape *tape, struct comm *comm, struct tensor *x, i64 to, i64 tag);
struct tensor *op_receive(struct tape *tape, struct comm *comm, enum dtype dtype, i64 rows, i64 columns, i64 from,
                          i64 tag);

/* Expert parallelism: the all-to-all that sends the rows of one layer to the ranks that own their
 * experts, and back.
 *
 *     x [N,C] -dispatch-> rows by expert [N K, C] -send-> rows of this rank's experts, each
 *             <-combine-                          <-return-  group padded to GROUP_ROWS
 *                                                                            | grouped gemms
 *
 * A slot is a place for an expert: rank r has slots r E/R .. (r+1) E/R - 1. Rows are sent in the order of slots.
 * An exchange lives until tape_clear.
 *
 * Messages have either the actual number of rows, which the host must wait for, or a fixed size
 * (capacity). With a fixed size, the rows for a rank fill the beginning of its part; counts travel
 * from device to device.
 *
 *     rows sent, 3 ranks, capacity 4     | 0 0 0 . | 1 1 . . | 2 2 2 2 |
 *
 * Both modes group rows in the same order, so results are bitwise equal. */
struct exchange_limits {
    /* With variable sizes: number of arriving rows that memory is reserved for. Exceeding it stops the
     * run and names `setting`. 0: memory for the rows that arrive, however many. */
    i64 rows;
    const char *setting;
    i64 capacity; /* fixed number of rows sent to each rank; 0: variable */
    double *over; /* [3] device memory, set if rows do not fit (route_capacity) */
};
struct expert_exchange {
    struct comm *comm;
    struct routing order; /* the rows sent, groups unpadded; for op_dispatch, op_combine */
    struct groups groups; /* arrived rows, grouped by this rank's experts */
    i64 rows_bound;       /* size of the buffer of grouped arrivals */
    i64 *send, *receive;  /* [ranks] row counts */
    i64 send_rows, receive_rows;
    /* regroup [rows_bound]: arrived row of each grouped row, or -1. arrived [receive_rows]: its
     * inverse. */
    i32 *regroup, *arrived;
};
/* Where the experts of a routing lie; device memory, [routing.experts]. group: place of each in the order of their
 * slots; NULL: they are in that order. slot: those slots, ascending; NULL: 0, 1, ... */
struct expert_slots {
    const i32 *group, *slot;
};
/* Plans the exchange. routing and slots NULL: this rank has no rows and only serves its experts.
 * experts: E of the whole layer. */
struct expert_exchange *expert_exchange(struct tape *tape, struct comm *comm, const struct routing *routing,
                                        const struct expert_slots *slots, i64 experts,
                                        const struct exchange_limits *limits);
/* Sends rows to their experts. The caller allocates `arrived` [rows_bound, C]. The backward does
 * not read the sent rows. Gradients return to the sender, including those of the row weights, whose
 * values are not sent. */
struct expert_rows op_expert_send(struct tape *tape, struct tensor *arrived, const struct expert_rows *sent,
                                  const struct expert_exchange *exchange);
struct tensor *op_expert_return(struct tape *tape, struct tensor *grouped, const struct expert_exchange *exchange);

/* ---- Gradient reduction over the ranks that hold the same weight ---- */
/* Gradients are reduced in buckets, in an order that is the same on all ranks regardless of the
 * sub-models and experts their data chose: upper layers first, and within a layer from the end of
 * the weights table. Weights read by the inputs come last, in table order from its beginning, which
 * is the text embedding. A bucket begins when it is next and all its gradients are complete.
 * Weights without any use count as complete, with gradient zero.
 *
 *     backward   layer 3 | layer 2 | layer 1 | layer 0, inputs |
 *     sums               | bucket 0 . | bucket 1 ..|           | bucket 2 .| finish, norm, update
 *
 * Results depend neither on the bucket size nor on the time a bucket begins. On GPUs with expert
 * parallelism a bucket also waits for a tape_mark below its layers, because NCCL calls must be
 * queued in the same order on all ranks. */
struct buckets;
struct buckets *buckets_open(struct weights *weights, const struct parallel *parallel);
void buckets_close(struct buckets *buckets);
void buckets_start(struct buckets *buckets); /* call after all forwards of the step are recorded */
/* Call after each record of a backward. passed: the mark below which all remaining backward work of
 * the step lies, or NOTHING_PASSED. */
void buckets_advance(struct buckets *buckets, i64 passed);
/* Call after all backwards: begins the remaining buckets and waits for all of them (on a GPU: makes
 * the queue wait). Each rank's share of each gradient is complete afterwards. */
void buckets_finish(struct buckets *buckets);
i64 buckets_memory(const struct buckets *buckets); /* host bytes of two buckets in flight; GPUs: 0 */
/* Predicted cost (meta) of the last step's buckets at the given speeds of a rank and of its link:
 * bytes sent, seconds of sending, and the seconds that remain after the backward has ended. */
struct bucket_times {
    double bytes, seconds, exposed_s;
    i64 count;
};
struct bucket_times buckets_estimate(const struct buckets *buckets, double flops_per_s, double bytes_per_s);

/* ---- Weights table sharded over ranks (ZeRO-1: Rajbhandari et al. 2020) ---- */
/* Each data rank keeps masters and moments for its share of every weight's rows, split as in struct
 * piece. */
struct comm *zero_ranks(const struct weight *weight, const struct parallel *parallel); /* ranks that share a weight */
/* All-gathers the updated shares of the copies to all ranks that hold the weight. Call
 * weights_updated next. */
void zero_gather_copies(struct weights *weights, const struct parallel *parallel);
/* True on exactly one of the ranks with identical copies of this share: that rank counts it in a
 * sum over the world. */
bool zero_counted(const struct weight *weight, const struct weights_layout *place);
/* Brings pieces of the table to world rank 0, through host memory, so that it can be saved although no
 * rank can hold it. The arguments are borrowed. */
struct weights_reader zero_reader(const struct weights *weights, const struct parallel *parallel);
/* The other way, a call of all ranks: brings elements [first, +count) of an unsharded matrix, whole rows in `in` of
 * world rank 0, to all ranks that keep masters of them. `out` gets this rank's columns of the rows [*row, *row +
 * returned) of its slice, which lie in its share. Its room: count elements. */
i64 zero_scatter(i64 *row, float *out, const struct weights *weights, const struct parallel *parallel,
                 const struct weight *w, i64 first, i64 count, const float *in);
/* Visits masters and moments that a world rank contributes to the unsharded matrices, in a fixed order: runs of
 * `count` elements from `first`. placement: of the experts in that layout. data: device memory, for the rank, the
 * layout and the placement of this process only. */
struct zero_run {
    const struct weight *weight;
    enum weight_state state;
    i64 first, count;
    const void *data;
};
void zero_visit(const struct weights *weights, const struct layout *layout, const i32 *placement, i64 rank,
                void (*visit)(void *context, const struct zero_run *run), void *context);

#endif
