/* Collectives, built on the few functions of a transport. */
#define _GNU_SOURCE /* gethostname */
#include "dist/dist.h"
#include "kernels/isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 4 << 20 };   /* summed at a time; bounds the scratch */
enum { JOINED_BYTES = 64 << 10 }; /* of all ranks: so little is sent to all at once, and summed by each */
enum { CHECKED_CALLS = 16 };      /* ranks with different settings diverge early */
enum { RUN = 1024 };

struct comm *comm_new(const struct transport *transport, struct device *device, const char *name, i64 rank, i64 size)
{
    struct comm *comm = memory_alloc(sizeof *comm);
    *comm = (struct comm){.name = name, .rank = rank, .size = size, .device = device, .transport = transport};
    comm->out = memory_alloc(size * (i64)sizeof *comm->out);
    comm->in = memory_alloc(size * (i64)sizeof *comm->in);
    comm->bytes = memory_alloc(size * (i64)sizeof *comm->bytes);
    return comm;
}

static void release_scratch(struct comm *comm)
{
    if (comm->device)
        device_free(comm->device, comm->scratch, comm->scratch_bytes);
    else
        memory_free(comm->scratch);
}

/* Opens the data plane over a control plane. Transports of host memory also move a CPU's device
 * memory. */
static struct comm *comm_over(struct comm *host, struct device *device)
{
    if (host->size > 1 && device->backend == BACKEND_CUDA)
        return nccl_over(host, device);
    struct comm *comm = comm_new(host->transport, device, host->name, host->rank, host->size);
    comm->host = host;
    comm->state = host->state;
    return comm;
}

struct rank_identity {                /* what all ranks have in common; otherwise they get other bits */
    i64 backend, isa, highest, given; /* levels of a CPU: taken and possible; given: by WEFT_CPU */
    char program[56], device[56];     /* device: for the message */
};

/* CPUs of one kind may have taken different levels, which a short measurement chooses. They take the
 * lowest one. */
static void level_cpus(struct device *device, struct rank_identity *all, i64 size, i64 rank)
{
    i64 lowest = all[0].isa;
    bool alike = true;
    for (i64 r = 0; r < size; r++) {
        lowest = min_i64(lowest, all[r].isa);
        alike &= all[r].backend == BACKEND_CPU && all[r].highest == all[0].highest && !all[r].given;
    }
    if (!alike || (all[rank].isa != lowest && !cpu_isa_take(device, (enum cpu_isa)lowest)))
        return;
    for (i64 r = 0; r < size; r++)
        all[r].isa = lowest;
}

static void refuse_rank(struct comm *host, i64 rank, const struct rank_identity *own, const struct rank_identity *other)
{
    if (other->backend != own->backend || other->isa != own->isa)
        comm_stop(host,
                  "rank %lld computes on %.55s, this one on %s: expected the same of all ranks, or they compute other "
                  "bits; set WEFT_CPU for all to what the least of their CPUs has, or give all the same --device",
                  (long long)rank, other->device, own->device);
    if (strncmp(own->program, other->program, sizeof own->program) != 0)
        comm_stop(host, "rank %lld runs weft %.55s, this one weft %s: expected the same version on all machines",
                  (long long)rank, other->program, own->program);
}

/* The ranks' names of their machines, as hashes: WEFT_MACHINE, or the host's name. Collective over the world. */
static void name_machines(struct comm *host)
{
    u64 *names = memory_alloc(host->size * (i64)sizeof *names);
    char own[256] = "";
    const char *given = getenv("WEFT_MACHINE");
    gethostname(own, sizeof own - 1);
    if (given && *given)
        snprintf(own, sizeof own, "%s", given);
    names[host->rank] = hash_bytes(own, (i64)strlen(own), 0);
    for (i64 r = 0; r < host->size; r++)
        host->bytes[r] = sizeof *names;
    host->transport->all_gather(host, names, host->bytes);
    machines_close(host->machines);
    host->machines = machines_open(names, host->size, host->rank);
    memory_free(names);
}

/* The first calls of a world, which end within launch_wait_s: what has come as a rank may be none. */
static void greet_world(struct comm *host, struct device *device, const struct launch_info *launch)
{
    struct rank_identity *all = memory_alloc(host->size * (i64)sizeof *all), *own = &all[host->rank];
    i64 wait_s = host->wait_s;
    host->call = "meeting";
    host->wait_s = launch_wait_s();
    host->end_s = clock_s() + (double)host->wait_s;
    own->backend = device->backend;
    own->isa = device->backend == BACKEND_CPU ? (i64)device->isa : 0;
    own->highest = (i64)cpu_isa_highest();
    own->given = getenv("WEFT_CPU") != NULL;
    snprintf(own->program, sizeof own->program, "%s", launch->program ? launch->program : "");
    snprintf(own->device, sizeof own->device, "%s", device_name(device));
    for (i64 r = 0; r < host->size; r++)
        host->bytes[r] = sizeof *all;
    host->transport->all_gather(host, all, host->bytes);
    level_cpus(device, all, host->size, host->rank);
    for (i64 r = 0; r < host->size; r++)
        refuse_rank(host, r, own, &all[r]);
    name_machines(host);
    host->watch = watch_open(host, launch);
    host->wait_s = wait_s;
    host->end_s = 0;
    memory_free(all);
}

struct comm *comm_open(struct device *device, const struct launch_info *launch)
{
    if (launch->size > 1 && device->backend == BACKEND_META)
        return comm_open_meta(device, launch->rank, launch->size);
    struct comm *host = launch->size == 1 ? comm_new(&local_transport, NULL, "world", 0, 1)
                        : launch->master  ? tcp_open(launch)
                                          : mpi_open(launch);
    if (!host)
        return NULL;
    host->machines = machines_open(NULL, host->size, host->rank);
    if (host->size > 1)
        greet_world(host, device, launch);
    return comm_over(host, device);
}

struct comm *comm_open_meta(struct device *device, i64 rank, i64 size)
{
    struct comm *comm = comm_new(&meta_transport, device, "world", rank, size);
    comm->machines = machines_open(NULL, size, rank);
    return comm;
}

struct comm *comm_split(struct comm *parent, const struct rank_group *group, const char *name)
{
    i64 rank = (parent->rank - group->first) / max_i64(group->stride, 1);
    bool counts_only = parent->transport->counts_only, alone = group->count == 1 && !counts_only;
    require(group->first + rank * group->stride == parent->rank && rank >= 0 && rank < group->count,
            "%s: rank %lld is none of %lld ranks from %lld", name, (long long)parent->rank, (long long)group->count,
            (long long)group->first);
    struct comm *over = comm_host(parent);
    struct comm *host =
        alone ? comm_new(&local_transport, NULL, name, 0, 1) : over->transport->split(over, group, rank);
    host->name = name;
    host->machines = machines_of_group(over->machines, group, rank);
    if (counts_only || !parent->device)
        return host;
    struct comm *comm = comm_over(host, parent->device);
    if (!comm)
        comm_stop(parent, "%s", error_text());
    return comm;
}

static bool owns_state(const struct comm *comm)
{
    return comm->state && !(comm->host && comm->host->state == comm->state);
}

void comm_close(struct comm *comm)
{
    if (!comm)
        return;
    struct comm *host = comm->host;
    watch_leave_world(comm->watch);
    if (owns_state(comm))
        comm->transport->close(comm);
    watch_close(comm->watch);
    memory_free(comm->out);
    memory_free(comm->in);
    memory_free(comm->bytes);
    machines_close(comm->machines);
    release_scratch(comm);
    memory_free(comm);
    comm_close(host);
}

_Noreturn static void stop_saying(struct comm *comm, int status, const char *format, va_list arguments)
{
    char message[1024];
    vsnprintf(message, sizeof message, format, arguments);
    fprintf(stderr, "rank %lld of %lld (%s): %s\n", (long long)comm->rank, (long long)comm->size, comm->name, message);
    fflush(NULL);
    fatal_tell(message);
    if (comm->transport->stop)
        comm->transport->stop(comm, status);
    _exit(status); /* does not wait for work queued on a device */
}

void comm_stop(struct comm *comm, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    stop_saying(comm, STATUS_FAILED, format, arguments);
}

void comm_stop_with(struct comm *comm, int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    stop_saying(comm, status, format, arguments);
}

void comm_stop_waiting(struct comm *host, i64 rank)
{
    char who[32] = "another rank";
    if (rank >= 0)
        snprintf(who, sizeof who, "rank %lld of the world", (long long)rank);
    const char *limit = "WEFT_WAIT_S";
    i64 wait_s = host->wait_s ? host->wait_s : rank < 0 ? launch_wait_s() : launch_silence_s(&limit);
    comm_stop_with(host, STATUS_OTHER_RANK,
                   "%s: %s did not respond for %lld s (%s): it hangs, or runs another program or other settings",
                   host->call, who, (long long)wait_s, limit);
}

void *comm_scratch(struct comm *comm, i64 bytes)
{
    if (bytes > comm->scratch_bytes) {
        release_scratch(comm);
        comm->scratch = comm->device ? device_alloc(comm->device, bytes) : memory_alloc(bytes);
        comm->scratch_bytes = bytes;
    }
    return comm->scratch;
}

/* Opens a CPU's device memory to transports of host memory, which access it directly. A control
 * plane has no device. */
static void unlock(struct comm *comm)
{
    if (comm->device)
        comm->device->memory->unlock(comm->device);
}

/* Ends a call. */
static void lock(struct comm *comm)
{
    watch_call(NULL, NULL);
    comm->spent_s += comm->begun_s > 0 ? clock_s() - comm->begun_s : 0;
    comm->begun_s = 0;
    if (comm->device)
        comm->device->memory->lock(comm->device);
}

/* ---- Agreement of the ranks about their calls ---- */

struct comm_call {
    char name[24];
    i64 bytes;
};

void comm_agree(struct comm *comm, const char *name, i64 bytes)
{
    comm_host(comm)->call = name;
    if (comm->transport->counts_only || comm->calls++ >= CHECKED_CALLS)
        return;
    struct comm_call *calls = memory_alloc(comm->size * (i64)sizeof *calls), *own = &calls[comm->rank];
    i64 parts[comm->size];
    snprintf(own->name, sizeof own->name, "%s", name);
    own->bytes = bytes;
    for (i64 r = 0; r < comm->size; r++)
        parts[r] = sizeof *calls;
    comm_host(comm)->transport->all_gather(comm_host(comm), calls, parts);
    for (i64 r = 0; r < comm->size; r++)
        if (strcmp(calls[r].name, own->name) != 0 || calls[r].bytes != own->bytes)
            comm_stop(comm,
                      "%s of %lld bytes meets %s of %lld bytes of rank %lld: the ranks do not run the same "
                      "program with the same settings",
                      own->name, (long long)own->bytes, calls[r].name, (long long)calls[r].bytes, (long long)r);
    memory_free(calls);
}

/* call: a literal. */
static void begin_call(struct comm *comm, const char *call, i64 bytes)
{
    watch_call(comm->name, call);
    comm->begun_s = clock_s();
    comm_agree(comm, call, bytes);
}

void comm_barrier(struct comm *comm)
{
    struct comm *host = comm_host(comm);
    i64 wait_s = host->wait_s;
    if (comm->size == 1)
        return;
    host->wait_s = 0;
    begin_call(comm, "barrier", 0);
    host->transport->barrier(host);
    comm->begun_s = 0; /* rank 0 may work alone meanwhile */
    watch_call(NULL, NULL);
    host->wait_s = wait_s;
}

void comm_broadcast(struct comm *comm, void *data, i64 bytes, i64 root)
{
    if (comm->size == 1)
        return;
    begin_call(comm, "broadcast", bytes);
    unlock(comm);
    comm->transport->broadcast(comm, data, bytes, root);
    lock(comm);
}

static i64 total_of(const struct comm *comm, const i64 *counts)
{
    i64 total = 0;
    for (i64 r = 0; r < comm->size; r++)
        total += counts[r];
    return total;
}

void comm_all_gather(struct comm *comm, void *data, const i64 *bytes)
{
    if (comm->size == 1)
        return;
    begin_call(comm, "all-gather", total_of(comm, bytes));
    unlock(comm);
    comm->transport->all_gather(comm, data, bytes);
    lock(comm);
}

void comm_exchange(struct comm *comm, const struct span *out, const struct span *in)
{
    if (comm->size > 1)
        begin_call(comm, "exchange", 0);
    unlock(comm);
    comm->transport->exchange(comm, out, in);
    lock(comm);
}

bool comm_any(struct comm *comm, bool value)
{
    u8 all[comm->size];
    if (comm->size == 1 || comm->transport->counts_only)
        return value;
    all[comm->rank] = value;
    for (i64 r = 0; r < comm->size; r++)
        comm->bytes[r] = 1;
    comm_all_gather(comm_host(comm), all, comm->bytes);
    for (i64 r = 0; r < comm->size; r++)
        value |= all[r];
    return value;
}

void comm_send(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes)
{
    comm_host(comm)->call = "send";
    watch_call(comm->name, "send");
    comm->begun_s = clock_s();
    unlock(comm);
    comm->transport->send(comm, to, tag, data, bytes);
    lock(comm);
}

void comm_receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes)
{
    comm_host(comm)->call = "receive";
    watch_call(comm->name, "receive");
    comm->begun_s = clock_s();
    unlock(comm);
    comm->transport->receive(comm, from, tag, data, bytes);
    lock(comm);
}

struct span piece_of_rank(const struct piece *p, i64 ranks, i64 rank)
{
    i64 first = p->rows * rank / ranks * p->columns, end = p->rows * (rank + 1) / ranks * p->columns;
    i64 begin = min_i64(first + p->begin, end);
    return (struct span){p->data + begin, (min_i64(begin + p->count, end) - begin) * 4};
}

/* ---- Sums ---- */

static void sum_f32(float *out, const float *parts, i64 ranks, i64 stride, i64 n)
{
    for (i64 i = 0; i < n; i++)
        out[i] = parts[i];
    for (i64 r = 1; r < ranks; r++)
        for (i64 i = 0; i < n; i++)
            out[i] += parts[r * stride + i];
}

static void sum_f64(double *out, const double *parts, i64 ranks, i64 stride, i64 n)
{
    for (i64 i = 0; i < n; i++)
        out[i] = parts[i];
    for (i64 r = 1; r < ranks; r++)
        for (i64 i = 0; i < n; i++)
            out[i] += parts[r * stride + i];
}

static void sum_bf16(bf16 *out, const bf16 *parts, i64 ranks, i64 stride, i64 n)
{
    float sums[RUN];
    for (i64 begin = 0; begin < n; begin += RUN) {
        i64 run = min_i64(RUN, n - begin);
#pragma omp simd
        for (i64 i = 0; i < run; i++)
            sums[i] = bf16_to_f32(parts[begin + i]);
        for (i64 r = 1; r < ranks; r++)
#pragma omp simd
            for (i64 i = 0; i < run; i++)
                sums[i] += bf16_to_f32(parts[r * stride + begin + i]);
#pragma omp simd
        for (i64 i = 0; i < run; i++)
            out[begin + i] = bf16_from_f32(sums[i]);
    }
}

/* out = sum of the parts of all ranks, which are `stride` elements apart. */
static void sum_parts(struct comm *comm, void *out, const void *parts, i64 ranks, i64 stride, i64 n, enum dtype dtype)
{
    if (comm->transport->counts_only) {
        comm->device->cost.work[WORK_OTHER] += (double)((ranks + 1) * n * dtype_bytes(dtype));
        return;
    }
    switch (dtype) {
    case DTYPE_F32:
        sum_f32(out, parts, ranks, stride, n);
        break;
    case DTYPE_F64:
        sum_f64(out, parts, ranks, stride, n);
        break;
    case DTYPE_BF16:
        sum_bf16(out, parts, ranks, stride, n);
        break;
    default:
        panic("a sum of %s over ranks", dtype_name(dtype));
    }
}

static i64 clamp(i64 value, i64 most)
{
    return max_i64(0, min_i64(value, most));
}

/* Reduces elements [begin, begin + piece) of every rank's part: each rank receives all versions of
 * its own part and sums them. */
static void reduce_piece(struct comm *comm, char *data, const i64 *counts, i64 begin, i64 piece, enum dtype dtype)
{
    i64 bytes = dtype_bytes(dtype), own = clamp(counts[comm->rank] - begin, piece), first = 0;
    char *parts = comm_scratch(comm, comm->size * piece * bytes), *out = NULL;
    for (i64 r = 0; r < comm->size; first += counts[r++]) {
        char *at = data + (first + min_i64(begin, counts[r])) * bytes;
        comm->in[r] = (struct span){at, clamp(counts[r] - begin, piece) * bytes};
        comm->out[r] = (struct span){parts + r * piece * bytes, own * bytes};
        out = r == comm->rank ? at : out;
    }
    comm->transport->exchange(comm, comm->out, comm->in);
    sum_parts(comm, out, parts, comm->size, piece, own, dtype);
}

/* The same elements of the shares of all ranks, each [piece] at most. */
struct shares_piece {
    char *data;
    const i64 *counts;
    i64 begin, piece;
    enum dtype dtype;
};

static struct span share_piece(const struct shares_piece *p, i64 rank)
{
    i64 first = 0;
    for (i64 r = 0; r < rank; r++)
        first += p->counts[r];
    return (struct span){p->data + (first + min_i64(p->begin, p->counts[rank])) * dtype_bytes(p->dtype),
                         clamp(p->counts[rank] - p->begin, p->piece) * dtype_bytes(p->dtype)};
}

static void clear_spans(struct comm *comm)
{
    memset(comm->in, 0, (size_t)comm->size * sizeof *comm->in);
    memset(comm->out, 0, (size_t)comm->size * sizeof *comm->out);
}

/* sums + k times the bytes of a piece = the machine's sum of the k-th share that this rank carries. */
static void reduce_near(struct comm *comm, char *sums, char *parts, const struct shares_piece *p)
{
    const struct comm_machines *m = comm_host(comm)->machines;
    i64 step = p->piece * dtype_bytes(p->dtype);
    for (i64 k = 0; k < m->rounds; k++) {
        i64 own = machines_share(m, m->place, k), bytes = own < 0 ? 0 : share_piece(p, own).bytes;
        clear_spans(comm);
        for (i64 i = 0; i < m->near; i++) {
            i64 share = machines_share(m, i, k);
            comm->in[m->ranks[i]] = share < 0 ? (struct span){0} : share_piece(p, share);
            comm->out[m->ranks[i]] = (struct span){parts + i * step, bytes};
        }
        comm->transport->exchange(comm, comm->out, comm->in);
        if (own >= 0)
            sum_parts(comm, sums + k * step, parts, m->near, p->piece, bytes / dtype_bytes(p->dtype), p->dtype);
    }
}

/* As reduce_piece, within machines first. */
static void reduce_piece_by_machine(struct comm *comm, const struct shares_piece *p)
{
    const struct comm_machines *m = comm_host(comm)->machines;
    i64 step = p->piece * dtype_bytes(p->dtype), share;
    char *parts = comm_scratch(comm, (max_i64(m->near, m->count) + m->rounds) * step);
    char *sums = parts + max_i64(m->near, m->count) * step;
    struct span own = share_piece(p, comm->rank);
    reduce_near(comm, sums, parts, p);
    clear_spans(comm);
    for (i64 k = 1; (share = machines_share(m, m->place, k)) >= 0; k++)
        comm->in[share] = (struct span){sums + k * step, share_piece(p, share).bytes};
    for (i64 g = 0; g < m->count; g++)
        comm->out[m->carriers[g]] = (struct span){parts + g * step, own.bytes};
    comm->in[comm->rank] = (struct span){sums, own.bytes};
    comm->transport->exchange(comm, comm->out, comm->in);
    sum_parts(comm, own.data, parts, m->count, p->piece, own.bytes / dtype_bytes(p->dtype), p->dtype);
}

/* True if sums and gathers go within machines first. Transports of device memory have their own ways. */
static bool goes_by_machine(struct comm *comm)
{
    return comm_host(comm)->machines->count > 1 && !comm->transport->reduce_scatter;
}

/* Machines' sums of bf16 would be rounded, or as long as all parts, so those go to all at once. */
static void reduce_scatter(struct comm *comm, void *data, const i64 *counts, enum dtype dtype)
{
    i64 most = 0, piece = PIECE_BYTES / dtype_bytes(dtype);
    if (comm->transport->reduce_scatter) {
        comm->transport->reduce_scatter(comm, data, counts, dtype);
        return;
    }
    for (i64 r = 0; r < comm->size; r++)
        most = max_i64(most, counts[r]);
    for (i64 begin = 0; begin < most; begin += piece)
        if (goes_by_machine(comm) && dtype != DTYPE_BF16)
            reduce_piece_by_machine(comm, &(struct shares_piece){data, counts, begin, min_i64(piece, most), dtype});
        else
            reduce_piece(comm, data, counts, begin, min_i64(piece, most), dtype);
}

static void gather(struct comm *comm, void *data, const i64 *bytes)
{
    if (!goes_by_machine(comm)) {
        comm->transport->all_gather(comm, data, bytes);
        return;
    }
    for (i64 round = 0; round < comm_host(comm)->machines->rounds; round++) {
        machines_gather(comm, data, bytes, round);
        comm->transport->exchange(comm, comm->out, comm->in);
    }
}

void comm_reduce_scatter(struct comm *comm, void *data, const i64 *counts, enum dtype dtype)
{
    if (comm->size == 1)
        return;
    begin_call(comm, "reduce-scatter", total_of(comm, counts) * dtype_bytes(dtype));
    unlock(comm);
    reduce_scatter(comm, data, counts, dtype);
    lock(comm);
}

static void all_reduce(struct comm *comm, void *data, i64 count, enum dtype dtype)
{
    if (comm->transport->all_reduce) {
        comm->transport->all_reduce(comm, data, count, dtype);
        return;
    }
    for (i64 r = 0; r < comm->size; r++)
        comm->bytes[r] = count * (r + 1) / comm->size - count * r / comm->size;
    reduce_scatter(comm, data, comm->bytes, dtype);
    for (i64 r = 0; r < comm->size; r++)
        comm->bytes[r] *= dtype_bytes(dtype);
    gather(comm, data, comm->bytes);
}

static i64 joined_bytes(const struct comm_sum *sum)
{
    return round_up(sum->count * dtype_bytes(sum->dtype), 8);
}

/* Every rank gets the parts of all and adds them: the same order of sums as reduce_scatter and
 * all_gather have, in half of the time on a link with delay. bytes: of one rank's part. */
static void reduce_joined(struct comm *comm, const struct comm_sum *sums, i64 count, i64 bytes)
{
    char *parts = comm_scratch(comm, comm->size * bytes), *own = parts + comm->rank * bytes;
    for (i64 i = 0; i < count; own += joined_bytes(&sums[i++]))
        if (sums[i].count && !comm->transport->counts_only)
            memcpy(own, sums[i].data, (size_t)(sums[i].count * dtype_bytes(sums[i].dtype)));
    for (i64 r = 0; r < comm->size; r++)
        comm->bytes[r] = bytes;
    comm->transport->all_gather(comm, parts, comm->bytes);
    for (i64 i = 0; i < count; parts += joined_bytes(&sums[i++]))
        sum_parts(comm, sums[i].data, parts, comm->size, bytes / dtype_bytes(sums[i].dtype), sums[i].count,
                  sums[i].dtype);
}

void comm_all_reduce_list(struct comm *comm, const struct comm_sum *sums, i64 count)
{
    i64 bytes = 0;
    for (i64 i = 0; i < count; i++)
        bytes += joined_bytes(&sums[i]);
    if (comm->size == 1 || bytes == 0)
        return;
    bool joined = !comm->transport->all_reduce && comm->size * bytes <= PIECE_BYTES;
    for (i64 i = 0; i < count && !joined; i++)
        if (sums[i].count)
            comm_all_reduce(comm, sums[i].data, sums[i].count, sums[i].dtype);
    if (!joined)
        return;
    begin_call(comm, "all-reduce", bytes);
    unlock(comm);
    reduce_joined(comm, sums, count, bytes);
    lock(comm);
}

void comm_all_reduce(struct comm *comm, void *data, i64 count, enum dtype dtype)
{
    const struct comm_sum sum = {data, count, dtype};
    if (comm->size == 1)
        return;
    if (!comm->transport->all_reduce && comm->size * joined_bytes(&sum) <= JOINED_BYTES) {
        comm_all_reduce_list(comm, &sum, 1);
        return;
    }
    begin_call(comm, "all-reduce", count * dtype_bytes(dtype));
    unlock(comm);
    all_reduce(comm, data, count, dtype);
    lock(comm);
}

double comm_spent_s(const struct parallel *p)
{
    const struct comm *const comms[] = {p->world, p->data, p->expert, p->replica, p->tensor, p->pipeline};
    double sum = 0;
    for (i64 i = 0; i < COUNT_OF(comms); i++)
        sum += comms[i]->spent_s + (comms[i]->host ? comms[i]->host->spent_s : 0);
    return sum;
}
