/* dist: ranks. A comm is a set of ranks that communicate; collectives are calls on a comm, some of them also ops on the
 * tape; a transport moves the bytes. Above this folder nobody knows MPI or NCCL, below it nobody knows of ranks.
 *
 *     launch   who am I?    the launcher's environment                                     launch.c
 *     comm     who is there? collectives, written once over a transport's few functions     comm.c
 *              local.c (one rank)   mpi.c, tcp.c (host memory)   meta.c (no data: counts traffic)
 *              nccl.c (memory of GPUs)
 *              two planes: a comm moves device memory, its comm_host bytes of the host
 *     parallel the comms a layout {data, expert, tensor, pipeline} cuts the world into      layout.c
 *     ops      collectives that record their backward                                        ops.c, experts.c
 *     buckets  sums of gradients, while the backward still runs                             buckets.c
 *     zero     a weights table over ranks (ZeRO): gather copies, gather whole                zero.c
 *
 * World rank = (pipeline . data + d) . tensor + t. Expert ranks lie inside data ranks: data rank d holds the experts of
 * expert rank d % expert, and the ranks with the same experts are a `replica` comm.
 *
 * Every rank of a comm calls the same collectives in the same order with the same sizes; the first calls on each comm
 * check that and stop the run naming the ranks that differ. Sums are taken in f32 (f64 for f64), and every rank gets
 * the same bits. On CPUs they are taken in the order of ranks, and are the same on every run; on GPUs F32 and F64 in
 * NCCL's order, which depends on its choice of algorithm (NCCL_ALGO, NCCL_PROTO fix it), BF16 by an exchange and a sum
 * in f32 on this side. A rank that fails exits without closing its world: the launcher then ends the others, over TCP
 * they see its connection end, and GPUs' ranks end by themselves once a call has stood still for launch_wait_s, on
 * either plane, but for barriers: in them ranks wait for what another one does alone.
 *
 * Adding a transport: fill a struct transport. exchange, all_gather, broadcast, send and receive must be there;
 * all_reduce and reduce_scatter may be NULL, then comm.c builds them of exchange and all_gather and sums on the host. A
 * transport of host memory is a control plane, and the data plane of a CPU; it also has barrier, split, begin and
 * ended. One whose memory is a device's sets the sums, begin_sums and end_sums among them. comm_open says which
 * transport a device gets. */
#ifndef WEFT_DIST_H
#define WEFT_DIST_H
#include "tensor/ops.h"
#include "tensor/weights.h"

/* ---- Launch ---- */
/* The first of RANK and WORLD_SIZE (torchrun's), OMPI_*, PMI_*, SLURM_*; one rank where none is set. With MASTER_ADDR
 * and MASTER_PORT, where the first rank listens, several ranks meet over TCP, else over MPI, which must then say the
 * same. Where torchrun itself is at that port it is the next one. */
struct launch {
    i64 rank, size, local_rank, local_size; /* size 0: not given */
    const char *master;                     /* borrowed of the environment; NULL: MPI */
    i64 port;
    const char *source; /* "mpirun", ...: a literal */
};
int launch_detect(struct launch *launch); /* -1 and a message: half of a pair is set, a rank is out of range */
i64 launch_wait_s(void);                  /* how long a rank waits for another that should be there: WEFT_WAIT_S, 600 */

/* ---- Comms ---- */
struct comm;
struct span { /* bytes to or from one rank */
    void *data;
    i64 bytes;
};
/* Of a block of f32 whose rows are dealt to R ranks (rank r has rows [rows r / R, rows (r + 1) / R)): elements
 * [begin, begin + count) of every rank's part. */
struct piece {
    float *data;
    i64 rows, columns, begin, count;
};
struct span piece_of_rank(const struct piece *piece, i64 ranks, i64 rank);
struct group { /* ranks first, first + stride, ... of the parent */
    i64 first, stride, count;
};
struct transport {
    const char *name;
    bool counts_only; /* no data is behind the pointers */
    /* out[r] is filled by rank r's in[this rank]; both sides know the sizes. */
    void (*exchange)(struct comm *comm, const struct span *out, const struct span *in);
    /* data: the parts of all ranks, bytes[r] each, one after the other; this rank's part stands in its place. */
    void (*all_gather)(struct comm *comm, void *data, const i64 *bytes);
    void (*broadcast)(struct comm *comm, void *data, i64 bytes, i64 root);
    /* send returns at once, the data was copied (GPUs: at most 64 messages to one rank wait so); messages of one tag
     * between two ranks arrive in order. On GPUs neighbours send alone, the last and the first rank among them, and the
     * first message of a comm is one for all its ranks: each sends or receives one before it waits for anything else.
     */
    void (*send)(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes);
    void (*receive)(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes);
    void (*barrier)(struct comm *comm);
    void (*all_reduce)(struct comm *comm, void *data, i64 count, enum dtype dtype);             /* or NULL */
    void (*reduce_scatter)(struct comm *comm, void *data, const i64 *counts, enum dtype dtype); /* or NULL */
    /* Host memory: an exchange that goes on while the rank does other things. Those of one comm are begun in the same
     * order on all its ranks, whatever other calls lie between. ended: all has come and gone, and the transfer is no
     * more; or, without `wait`, not yet. */
    struct transfer *(*begin)(struct comm *comm, const struct span *out, const struct span *in);
    bool (*ended)(struct comm *comm, struct transfer *transfer, bool wait);
    /* Device memory: each rank gets the sums of its parts of the pieces, beside the device's queue but after what
     * stands there now; and the queue waits for all that were begun. NULL for host memory. */
    void (*begin_sums)(struct comm *comm, const struct piece *pieces, i64 count);
    void (*end_sums)(struct comm *comm);
    struct comm *(*split)(struct comm *parent, const struct group *group, i64 rank);
    void (*close)(struct comm *comm); /* its state, where there is one */
    void (*stop)(struct comm *comm);  /* ends all ranks; NULL: exit */
    void (*look)(struct comm *comm); /* stops if a rank has ended, waits for nothing; NULL: the launcher sees to that */
};
struct comm {
    const char *name; /* "data", ...: in messages */
    i64 rank, size;
    struct device *device; /* whose memory is moved, or whose traffic is counted; NULL: the host's */
    struct comm *host;     /* the control plane of the same ranks; NULL: this is one */
    const struct transport *transport;
    void *state;           /* the transport's; the control plane's own where that moves device memory too */
    struct span *out, *in; /* [size], for the collectives */
    i64 *bytes;            /* [size] */
    void *scratch;         /* of the memory it moves */
    const char *call;      /* of a control plane: the last one, a literal */
    i64 wait_s;            /* how long its calls but barriers wait for another rank; 0: as long as it takes */
    i64 scratch_bytes, calls;
};
/* The same ranks for bytes of host memory (who needs whom, how many): the control plane. A comm itself moves device
 * memory alone, the data plane. */
static inline struct comm *comm_host(struct comm *comm)
{
    return comm->host ? comm->host : comm;
}

/* The world: local for one rank; several meet over MPI, which moves a CPU's memory too, a GPU's goes over NCCL. NULL
 * and a message: no such transport in this build, or the launcher and the transport disagree on who is there. */
struct comm *comm_open(struct device *device, const struct launch *launch);
struct comm *comm_open_meta(struct device *device, i64 rank, i64 size); /* counts device->cost.traffic */
/* The members of this rank's group; every rank of the parent calls it, with groups of one size. Several groups make up
 * the parent; `group` is this rank's. */
struct comm *comm_split(struct comm *parent, const struct group *group, const char *name);
void comm_close(struct comm *comm); /* all ranks together; a world last */

void comm_barrier(struct comm *comm);
void comm_broadcast(struct comm *comm, void *data, i64 bytes, i64 root);
/* Parts of all ranks, bytes[r] each, lie one after the other in data; this rank's stands in its place. */
void comm_all_gather(struct comm *comm, void *data, const i64 *bytes);
/* data[i] = sum over ranks (in which order: above); F32, F64, or BF16 summed in f32 and rounded once. */
void comm_all_reduce(struct comm *comm, void *data, i64 count, enum dtype dtype);
/* The same, but only this rank's part is summed; the others are left as they were. counts[r]: elements of rank r's
 * part. */
void comm_reduce_scatter(struct comm *comm, void *data, const i64 *counts, enum dtype dtype);
void comm_exchange(struct comm *comm, const struct span *out, const struct span *in);
void comm_send(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes);
void comm_receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes);
bool comm_any(struct comm *comm, bool value); /* true on one rank is true on all */
/* The run cannot go on: says why, with the rank, and ends all ranks. */
_Noreturn void comm_stop(struct comm *comm, const char *format, ...) PRINTF(2, 3);

/* For transports and ops. */
struct comm *comm_new(const struct transport *transport, struct device *device, const char *name, i64 rank, i64 size);
void *comm_scratch(struct comm *comm, i64 bytes); /* until the next call; keeps its largest size */
/* Stops the run where the ranks' first calls differ in name or size, and names the ranks. */
void comm_agree(struct comm *comm, const char *name, i64 bytes);
_Noreturn void comm_stop_waiting(struct comm *host, i64 rank); /* wait_s are over; rank of the world -1: any of them */
extern const struct transport local_transport, meta_transport;
struct comm *mpi_open(const struct launch *launch); /* a control plane; NULL and a message */
struct comm *tcp_open(const struct launch *launch);
/* Connections to all other ranks (-1: this one), within launch_wait_s. -1 and a message that names who did not come. */
int rendezvous(int *sockets, const struct launch *launch);
struct comm *nccl_over(struct comm *host, struct device *device); /* a data plane; NULL and a message */
i64 nccl_version(void); /* of the library that is loaded, 22809 of 2.28.9; 0 and a message: there is none */

/* ---- Layout ---- */
struct layout {
    i64 data, expert /* divides data */, tensor, pipeline; /* ranks; 0: 1 */
    i64 chunks;                                            /* runs of layers each pipeline rank has; 0: 1 */
    i64 receive; /* rows an expert rank has room for, as a multiple of what a balanced router sends it; 0: 4 */
    i64 part; /* rows each expert rank sends each other one in training, as such a multiple, whatever they hold; 0: as
               * many rows as there are, which the host learns from the device */
    i64 bucket_bytes; /* of gradients that are summed together; 0: 32 MiB */
};
/* "data=4,expert=2,tensor=1,pipeline=1,chunks=1,receive=4,part=2,bucket=32", any of them, the last in MiB; NULL or "":
 * none. data: what the others leave of the world's ranks. -1 and a message of usage, also where the sizes do not
 * multiply to the world's. */
int layout_parse(struct layout *layout, const char *text, i64 world);
struct parallel {
    struct layout layout;
    struct comm *world, *data, *expert, *replica, *tensor, *pipeline;
};
/* -1 and a message: the sizes do not multiply to the world's. The world is borrowed. */
int parallel_open(struct parallel *parallel, struct comm *world, const struct layout *layout);
void parallel_close(struct parallel *parallel);
const struct parallel *parallel_alone(void); /* one rank: every comm has size 1 */
/* Where a world rank stands: what the weights table is cut by. */
struct weights_layout parallel_place(const struct layout *layout, i64 rank);

/* ---- Ops on the tape ---- */
/* Tensor parallelism: x [N,C] is summed in place and has no other use; the gradient passes through. */
struct tensor *op_all_reduce(struct tape *tape, struct comm *comm, struct tensor *x);
/* Its mirror: x passes through, its gradient is summed. */
struct tensor *op_enter(struct tape *tape, struct comm *comm, struct tensor *x);
/* x, whose gradient is zero where none arrives: every rank's backward then takes part in the same calls. */
struct tensor *op_anchor(struct tape *tape, struct tensor *x);
/* Pipelines: forward goes under `tag`, the gradient comes back under tag + 1. */
void op_send(struct tape *tape, struct comm *comm, struct tensor *x, i64 to, i64 tag);
struct tensor *op_receive(struct tape *tape, struct comm *comm, enum dtype dtype, i64 rows, i64 columns, i64 from,
                          i64 tag);

/* Expert parallelism: how the rows of one layer travel to the ranks that own their experts, and back.
 *
 *     x [N,C] -dispatch-> rows by expert [N K, C] -send-> rows of this rank's experts, each group on GROUP_ROWS
 *             <-combine-                          <-return-                        | products
 *
 * Rank r owns experts r E/R .. (r+1) E/R - 1. Lives until tape_clear.
 *
 * Messages are as long as there are rows, which the host waits for; or, in parts, as long as each other: the rows for a
 * rank lie at the beginning of its part, and their counts go from device to device.
 *
 *     rows sent, 3 ranks, part 4     | 0 0 0 . | 1 1 . . | 2 2 2 2 |
 *
 * Rows are grouped in the same order, so that the bits are the same. */
struct exchange_room {
    i64 rows; /* that may arrive, not in parts: passing it stops the run and names `setting` */
    const char *setting;
    i64 part;     /* rows of a part; 0: none */
    double *over; /* [3] device memory, where rows that have no room in their part are noted (op route_parts) */
};
struct expert_exchange {
    struct comm *comm;
    struct routing order; /* of the rows sent, without padding of groups: for op_dispatch and op_combine */
    struct groups groups; /* of the rows that arrived, by this rank's experts */
    i64 rows_bound;       /* of the buffer they are regrouped into */
    i64 *send, *receive;  /* [ranks] rows */
    i64 send_rows, receive_rows;
    i32 *regroup, *arrived; /* [rows_bound] arrived row of each grouped row or -1; [receive_rows] its inverse */
};
/* routing NULL: no rows of this rank, which only serves. experts: E of the whole layer. */
struct expert_exchange *expert_exchange(struct tape *tape, struct comm *comm, const struct routing *routing,
                                        i64 experts, const struct exchange_room *room);
/* `arrived` [rows_bound, C] is made by the caller; of what was sent the backward reads nothing. Gradients come back,
 * those of the rows' weights among them, whose values stay where they are. */
struct expert_rows op_expert_send(struct tape *tape, struct tensor *arrived, const struct expert_rows *sent,
                                  const struct expert_exchange *exchange);
struct tensor *op_expert_return(struct tape *tape, struct tensor *grouped, const struct expert_exchange *exchange);

/* ---- Sums of gradients over the ranks that hold the same weight ---- */
/* Gradients lie in buckets, in one order that is the same on all ranks whatever sub-models and experts their data
 * chose: upper layers first, within a layer the weights table's from its end; what inputs read last, from the table's
 * beginning, the embedding of text. A bucket begins when its turn has come and all its gradients are whole, those of
 * weights without any use among them, which are zero:
 *
 *     backward   layer 3 | layer 2 | layer 1 | layer 0, inputs |
 *     sums               | bucket 0 . | bucket 1 ..|           | bucket 2 .| finish, then the norm and the update
 *
 * Bits depend on neither the buckets' size nor the moment they begin. Where the plane is a GPU's and expert ranks meet
 * within a layer too, a bucket waits for a tape_mark below its layers: NCCL's calls must be queued in one order on all
 * ranks. */
struct buckets;
struct buckets *buckets_open(struct weights *weights, const struct parallel *parallel);
void buckets_close(struct buckets *buckets);
void buckets_start(struct buckets *buckets); /* every forward of the step is recorded */
/* After each record of a backward. passed: the mark that no backward of this step will come above any more, or
 * NOTHING_PASSED. */
void buckets_advance(struct buckets *buckets, i64 passed);
/* The backwards are done: the other buckets, and waits (on a GPU: its queue does). Afterwards each rank's share of each
 * gradient is whole. */
void buckets_finish(struct buckets *buckets);
i64 buckets_memory(
    const struct buckets *buckets); /* bytes of host memory that two buckets under way take; GPUs: none */
/* What the last step's buckets are foreseen to take (meta) at the speeds of a rank and of its link: bytes sent, seconds
 * of sending, and those of them that go on when the backward has ended. */
struct bucket_times {
    double bytes, seconds, exposed_s;
    i64 count;
};
struct bucket_times buckets_foresee(const struct buckets *buckets, double flops_per_s, double bytes_per_s);

/* ---- A weights table over ranks (ZeRO-1: Rajbhandari et al. 2020) ---- */
/* Each data rank keeps the masters and moments of its share of every weight's rows: dealt as a piece's. */
struct comm *zero_ranks(const struct weight *weight, const struct parallel *parallel); /* those that share it */
/* Copies of the shares the ranks updated, to all that hold the weight. */
void zero_gather_copies(struct weights *weights, const struct parallel *parallel);
/* Whether this rank counts the weight's share in a sum over the world: one of several equal ones does. */
bool zero_counted(const struct weight *weight, const struct weights_layout *place);
/* On world rank 0 `whole` becomes a table with all of every weight: masters, moments where training, copies; elsewhere
 * it stays empty. With one rank too it is a copy. weights_close it. */
void zero_collect(struct weights *whole, const struct weights *mine, const struct parallel *parallel);

#endif
