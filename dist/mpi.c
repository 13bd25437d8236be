/* MPI transport (MPI 3.1), and stubs for builds without it. No other file includes mpi.h. */
#include "dist/dist.h"

#ifdef WEFT_WITH_MPI
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* MPI counts are int, so longer messages are sent in pieces. */
enum { PIECE_BYTES = 1 << 30, EXCHANGE_TAG = 1, TRANSFER_TAG = 2, MESSAGE_TAG = 16 };

struct mpi_message { /* a message in flight, with its own buffer */
    struct mpi_message *next;
    MPI_Request *requests;
    i64 pieces, capacity;
    bool busy;
    void *data;
};
struct mpi_state {
    MPI_Comm comm;
    bool world;
    MPI_Request *requests; /* requests of an exchange */
    i64 capacity;
    struct mpi_message *messages;
    double tested_s; /* time of the last test of a transfer */
};

static void check(struct comm *comm, int result, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (result == MPI_SUCCESS)
        return;
    MPI_Error_string(result, text, &length);
    comm_stop(comm, "MPI: %s: %s", what, text);
}

/* Sleeps between polls; stops the run after wait_s. */
static void pause_since(struct comm *comm, double begin_s)
{
    double now_s = clock_s();
    if (now_s - begin_s > (double)comm->wait_s)
        comm_stop_waiting(comm, -1);
    if (now_s - begin_s > 1e-3)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Polls instead of blocking if there is a timeout, because MPI's own waits have none. */
static void finish(struct comm *comm, i64 count, MPI_Request *requests, const char *what)
{
    int done = 0;
    double begin_s = clock_s();
    if (comm->wait_s == 0) {
        check(comm, MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE), what);
        return;
    }
    for (; !done; pause_since(comm, begin_s))
        check(comm, MPI_Testall((int)count, requests, &done, MPI_STATUSES_IGNORE), what);
}

static i64 pieces_of(i64 bytes)
{
    return ceil_div(bytes, PIECE_BYTES);
}

static int piece_bytes(i64 bytes, i64 piece)
{
    return (int)min_i64(PIECE_BYTES, bytes - piece * PIECE_BYTES);
}

static MPI_Request *requests_for(struct mpi_state *state, i64 count)
{
    if (count > state->capacity) {
        memory_free(state->requests);
        state->requests = memory_alloc(count * (i64)sizeof *state->requests);
        state->capacity = count;
    }
    return state->requests;
}

static i64 requests_of(const struct comm *comm, const struct span *out, const struct span *in)
{
    i64 most = 0;
    for (i64 r = 0; r < comm->size; r++)
        most += pieces_of(out[r].bytes) + pieces_of(in[r].bytes);
    return most;
}

/* Posts all receives before the first send. Each rank starts with its next neighbour, so that not
 * all ranks address the same one first. Returns the number of requests. */
static i64 post(struct comm *comm, MPI_Request *requests, const struct span *out, const struct span *in, int tag)
{
    struct mpi_state *state = comm->state;
    i64 count = 0;
    for (i64 i = 1; i < comm->size; i++) {
        i64 from = (comm->rank + comm->size - i) % comm->size;
        for (i64 p = 0; p < pieces_of(out[from].bytes); p++)
            check(comm,
                  MPI_Irecv((char *)out[from].data + p * PIECE_BYTES, piece_bytes(out[from].bytes, p), MPI_BYTE,
                            (int)from, tag, state->comm, &requests[count++]),
                  "exchange");
    }
    for (i64 i = 1; i < comm->size; i++) {
        i64 to = (comm->rank + i) % comm->size;
        for (i64 p = 0; p < pieces_of(in[to].bytes); p++)
            check(comm,
                  MPI_Isend((char *)in[to].data + p * PIECE_BYTES, piece_bytes(in[to].bytes, p), MPI_BYTE, (int)to, tag,
                            state->comm, &requests[count++]),
                  "exchange");
    }
    return count;
}

static void exchange(struct comm *comm, const struct span *out, const struct span *in)
{
    MPI_Request *requests = requests_for(comm->state, requests_of(comm, out, in));
    i64 count = post(comm, requests, out, in, EXCHANGE_TAG);
    if (in[comm->rank].bytes && out[comm->rank].data != in[comm->rank].data)
        memcpy(out[comm->rank].data, in[comm->rank].data, (size_t)in[comm->rank].bytes);
    finish(comm, count, requests, "exchange: the sizes of two ranks differ");
}

struct mpi_transfer {
    i64 count;
    MPI_Request requests[];
};

/* Interval between tests of a transfer. MPI makes progress only within its calls, and if ranks
 * share cores a failed test yields the core. The interval is short enough for the link and long
 * enough not to delay the backward. */
static const double TEST_S = 2e-3;

static struct transfer *begin(struct comm *comm, const struct span *out, const struct span *in)
{
    struct mpi_transfer *t = memory_alloc((i64)sizeof *t + requests_of(comm, out, in) * (i64)sizeof(MPI_Request));
    t->count = post(comm, t->requests, out, in, TRANSFER_TAG);
    return (struct transfer *)t;
}

static bool ended(struct comm *comm, struct transfer *transfer, bool wait)
{
    struct mpi_state *state = comm->state;
    int done = 1;
    double now_s = clock_s();
    struct mpi_transfer *t = (struct mpi_transfer *)transfer;
    if (!wait && now_s - state->tested_s < TEST_S)
        return false;
    state->tested_s = now_s;
    if (wait)
        check(comm, MPI_Waitall((int)t->count, t->requests, MPI_STATUSES_IGNORE), "sum of gradients");
    else
        check(comm, MPI_Testall((int)t->count, t->requests, &done, MPI_STATUSES_IGNORE), "sum of gradients");
    if (done)
        memory_free(t);
    return done;
}

static void broadcast(struct comm *comm, void *data, i64 bytes, i64 root)
{
    struct mpi_state *state = comm->state;
    for (i64 p = 0; p < pieces_of(bytes); p++) {
        char *piece = (char *)data + p * PIECE_BYTES;
        MPI_Request request;
        if (comm->wait_s == 0) {
            check(comm, MPI_Bcast(piece, piece_bytes(bytes, p), MPI_BYTE, (int)root, state->comm), "broadcast");
            continue;
        }
        check(comm, MPI_Ibcast(piece, piece_bytes(bytes, p), MPI_BYTE, (int)root, state->comm, &request), "broadcast");
        finish(comm, 1, &request, "broadcast");
    }
}

/* Gathers in place. Falls back to broadcasts if the total exceeds MPI's int counts. */
static void all_gather(struct comm *comm, void *data, const i64 *bytes)
{
    struct mpi_state *state = comm->state;
    int counts[comm->size], places[comm->size];
    i64 total = 0;
    for (i64 r = 0; r < comm->size; total += bytes[r++]) {
        counts[r] = (int)bytes[r];
        places[r] = (int)total;
    }
    if (total <= INT_MAX && comm->wait_s) {
        MPI_Request request;
        check(
            comm,
            MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, counts, places, MPI_BYTE, state->comm, &request),
            "all-gather");
        finish(comm, 1, &request, "all-gather");
        return;
    }
    if (total <= INT_MAX) {
        check(comm, MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, counts, places, MPI_BYTE, state->comm),
              "all-gather");
        return;
    }
    total = 0;
    for (i64 r = 0; r < comm->size; total += bytes[r++])
        broadcast(comm, (char *)data + total, bytes[r], r);
}

/* Polls with sleeps, so that a rank waiting for another's stage leaves it the core. */
static void barrier(struct comm *comm)
{
    enum { EAGER_TESTS = 1000 };
    struct mpi_state *state = comm->state;
    MPI_Request request;
    int done = 0;
    check(comm, MPI_Ibarrier(state->comm, &request), "barrier");
    for (i64 tests = 0; !done; tests++) {
        check(comm, MPI_Test(&request, &done, MPI_STATUS_IGNORE), "barrier");
        if (!done && tests > EAGER_TESTS)
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

/* Returns a message that has been sent, or a new one. */
static struct mpi_message *free_message(struct comm *comm, i64 bytes)
{
    struct mpi_state *state = comm->state;
    struct mpi_message *message = NULL;
    for (struct mpi_message *p = state->messages; p && !message; p = p->next) {
        int done = 1;
        if (p->busy)
            check(comm, MPI_Testall((int)p->pieces, p->requests, &done, MPI_STATUSES_IGNORE), "send");
        p->busy = !done;
        message = done ? p : NULL;
    }
    if (!message) {
        message = memory_alloc(sizeof *message);
        message->next = state->messages;
        state->messages = message;
    }
    if (message->capacity < bytes) {
        memory_free(message->data);
        memory_free(message->requests);
        message->data = memory_alloc(bytes);
        message->requests = memory_alloc(max_i64(1, pieces_of(bytes)) * (i64)sizeof *message->requests);
        message->capacity = bytes;
    }
    return message;
}

static void send(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes)
{
    struct mpi_state *state = comm->state;
    struct mpi_message *message = free_message(comm, bytes);
    memcpy(message->data, data, (size_t)bytes);
    message->busy = true;
    message->pieces = pieces_of(bytes);
    for (i64 p = 0; p < message->pieces; p++)
        check(comm,
              MPI_Isend((char *)message->data + p * PIECE_BYTES, piece_bytes(bytes, p), MPI_BYTE, (int)to,
                        (int)(MESSAGE_TAG + tag), state->comm, &message->requests[p]),
              "send");
}

/* Waits until a message with this tag is on its way to this rank. */
static void await(struct comm *comm, i64 from, int tag)
{
    struct mpi_state *state = comm->state;
    int there = comm->wait_s == 0;
    double begin_s = clock_s();
    for (; !there; pause_since(comm, begin_s))
        check(comm, MPI_Iprobe((int)from, tag, state->comm, &there, MPI_STATUS_IGNORE), "receive");
}

static void receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes)
{
    struct mpi_state *state = comm->state;
    await(comm, from, (int)(MESSAGE_TAG + tag));
    for (i64 p = 0; p < pieces_of(bytes); p++) {
        MPI_Status status;
        int arrived;
        check(comm,
              MPI_Recv((char *)data + p * PIECE_BYTES, piece_bytes(bytes, p), MPI_BYTE, (int)from,
                       (int)(MESSAGE_TAG + tag), state->comm, &status),
              "receive");
        MPI_Get_count(&status, MPI_BYTE, &arrived);
        if (arrived != piece_bytes(bytes, p))
            comm_stop(comm, "a message of %d bytes from rank %lld, %lld were expected: the ranks run different sizes",
                      arrived, (long long)from, (long long)bytes);
    }
}

static void stop(struct comm *comm, int status)
{
    (void)comm;
    (void)status;
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static struct comm *split(struct comm *parent, const struct rank_group *group, i64 rank);

static void close_mpi(struct comm *comm)
{
    struct mpi_state *state = comm->state;
    for (struct mpi_message *p = state->messages, *next; p; p = next) {
        next = p->next;
        if (p->busy)
            MPI_Waitall((int)p->pieces, p->requests, MPI_STATUSES_IGNORE);
        memory_free(p->data);
        memory_free(p->requests);
        memory_free(p);
    }
    memory_free(state->requests);
    MPI_Comm_free(&state->comm);
    if (state->world)
        MPI_Finalize();
    memory_free(state);
}

static const struct transport mpi_transport = {.name = "mpi",
                                               .exchange = exchange,
                                               .all_gather = all_gather,
                                               .broadcast = broadcast,
                                               .send = send,
                                               .receive = receive,
                                               .barrier = barrier,
                                               .begin = begin,
                                               .ended = ended,
                                               .split = split,
                                               .close = close_mpi,
                                               .stop = stop};

static struct comm *wrap(MPI_Comm mpi, const char *name, i64 rank, i64 size)
{
    struct comm *comm = comm_new(&mpi_transport, NULL, name, rank, size);
    struct mpi_state *state = comm->state = memory_alloc(sizeof *state);
    state->comm = mpi;
    MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    return comm;
}

static struct comm *split(struct comm *parent, const struct rank_group *group, i64 rank)
{
    struct mpi_state *state = parent->state;
    MPI_Comm mpi;
    check(parent, MPI_Comm_split(state->comm, (int)group->first, (int)rank, &mpi), "split");
    return wrap(mpi, parent->name, rank, group->count);
}

struct comm *mpi_open(const struct launch_info *launch)
{
    int rank, size, level;
    MPI_Comm mpi;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED) {
        error_set("MPI cannot start");
        return NULL;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != launch->size || rank != launch->rank) {
        error_set("%s says rank %lld of %lld, MPI says rank %d of %d: start ranks with mpirun (or srun --mpi=pmix) of "
                  "the MPI "
                  "this program was built with, or set MASTER_ADDR and MASTER_PORT, where they meet over TCP",
                  launch->source, (long long)launch->rank, (long long)launch->size, rank, size);
        return NULL;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &mpi);
    struct comm *comm = wrap(mpi, "world", rank, size);
    ((struct mpi_state *)comm->state)->world = true;
    return comm;
}
#else
struct comm *mpi_open(const struct launch_info *launch)
{
    error_set("%s says rank %lld of %lld, but this program was built without MPI: MASTER_ADDR and MASTER_PORT say "
              "where ranks "
              "meet over TCP",
              launch->source, (long long)launch->rank, (long long)launch->size);
    return NULL;
}
#endif
