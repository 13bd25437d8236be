/* TCP transport of host memory, for ranks that were not started by MPI. Every pair of ranks has one
 * connection, which all comms share; each frame names its comm and tag. A writer thread lets sends
 * return at once and lets two ranks send to each other at the same time. The calling thread reads.
 * What arrives is put together in tcp_reader.c. */
#include "core/thread.h"
#include "dist/dist.h"
#include "dist/tcp_reader.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct tcp_frame {
    struct tcp_frame *next;
    struct tcp_header header;
    const char *data; /* caller's memory until sent, or `buffer` */
    i64 *unsent;      /* caller's count of unsent frames; NULL: data was copied */
    i64 done_bytes;   /* header and data bytes sent */
    char *buffer;
    i64 capacity;
};
struct tcp_peer {
    int socket;
    struct tcp_frame *out, **out_end; /* send queue; guarded by the lock */
    struct tcp_reader reader;
    _Atomic bool lost;
};
struct tcp_net { /* state of the world, shared by all comms */
    i64 rank, size;
    struct tcp_peer *peers;
    struct tcp_frame *spare;     /* free frames to send; guarded by the lock */
    struct tcp_kept *spare_kept; /* free frames of the readers */
    pthread_t writer;
    pthread_mutex_t lock;
    pthread_cond_t posted, written;
    i64 waiting; /* number of queued frames */
    _Atomic i64 sent_bytes;
    bool closing;
};
struct tcp_state {
    struct tcp_net *net;
    u64 id;
    i64 splits, *world; /* world: [size] world rank of each member */
};

static struct tcp_state *state_of(const struct comm *comm)
{
    return comm->state;
}

static struct tcp_peer *peer_of(const struct comm *comm, i64 rank)
{
    return &state_of(comm)->net->peers[state_of(comm)->world[rank]];
}

/* Reads what a closed connection still holds. */
static bool has_said_farewell(struct tcp_reader *reader, int socket)
{
    i64 bytes;
    ssize_t got = 1;
    while (got > 0) {
        void *to = tcp_reader_space(reader, &bytes);
        got = recv(socket, to, (size_t)bytes, MSG_DONTWAIT);
        if (got > 0 && tcp_reader_advance(reader, got) < 0)
            got = 0;
    }
    const struct tcp_kept *k = reader->arrived;
    while (k && k->header.tag != FAREWELL_TAG)
        k = k->next;
    return k;
}

_Noreturn static void stop_for_lost_rank(struct comm *comm, i64 rank)
{
    struct tcp_peer *peer = peer_of(comm, rank);
    comm_stop_with(comm, STATUS_OTHER_RANK, "rank %lld of the world %s", (long long)state_of(comm)->world[rank],
                   has_said_farewell(&peer->reader, peer->socket)
                       ? "has exited: its last message gives the reason"
                       : "has ended without a message: it was killed (by kill -9, or because memory ran out) or "
                         "crashed, or its machine is gone");
}

/* ---- Writing ---- */

/* Writes as much as the socket accepts now. True if the frame is finished or the connection is
 * lost. */
static bool write_some(struct tcp_net *net, struct tcp_peer *peer, struct tcp_frame *f)
{
    i64 head = (i64)sizeof f->header, in_head = min_i64(f->done_bytes, head), in_data = f->done_bytes - in_head;
    struct iovec parts[2] = {{(char *)&f->header + in_head, (size_t)(head - in_head)}};
    if (in_data < f->header.bytes)
        parts[1] = (struct iovec){(char *)(uintptr_t)f->data + in_data, (size_t)(f->header.bytes - in_data)};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent = sendmsg(peer->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        peer->lost = true;
    f->done_bytes += max_i64(sent, 0);
    net->sent_bytes += max_i64(sent, 0);
    watch_moved(max_i64(sent, 0));
    return peer->lost || f->done_bytes == head + f->header.bytes;
}

/* Removes the first frame of the send queue. The lock must be held. */
static void remove_sent(struct tcp_net *net, struct tcp_peer *peer)
{
    struct tcp_frame *f = peer->out;
    peer->out = f->next;
    if (!peer->out)
        peer->out_end = &peer->out;
    f->next = net->spare;
    net->spare = f;
    net->waiting--;
    if (f->unsent)
        --*f->unsent;
    pthread_cond_broadcast(&net->written);
}

static i64 list_writable(struct tcp_net *net, struct pollfd *list, i64 *ranks)
{
    i64 count = 0;
    for (i64 r = 0; r < net->size; r++)
        if (net->peers[r].out) {
            ranks[count] = r;
            list[count++] = (struct pollfd){.fd = net->peers[r].socket, .events = POLLOUT};
        }
    return count;
}

static void *write_frames(void *context)
{
    enum { POLL_MS = 1 }; /* poll timeout, to notice newly posted frames */
    struct tcp_net *net = context;
    struct pollfd list[net->size];
    i64 ranks[net->size];
    pthread_mutex_lock(&net->lock);
    while (!net->closing || net->waiting) {
        i64 count = list_writable(net, list, ranks);
        if (count == 0) {
            pthread_cond_wait(&net->posted, &net->lock);
            continue;
        }
        pthread_mutex_unlock(&net->lock);
        poll(list, (nfds_t)count, POLL_MS);
        for (i64 i = 0; i < count; i++) {
            struct tcp_peer *peer = &net->peers[ranks[i]];
            /* Only this thread removes the first frame. */
            bool gone = list[i].revents && write_some(net, peer, peer->out);
            if (gone) {
                pthread_mutex_lock(&net->lock);
                remove_sent(net, peer);
                pthread_mutex_unlock(&net->lock);
            }
        }
        pthread_mutex_lock(&net->lock);
    }
    pthread_mutex_unlock(&net->lock);
    return NULL;
}

static struct tcp_frame *spare_frame(struct tcp_net *net, i64 bytes)
{
    struct tcp_frame **at = &net->spare, *f;
    while (*at && (*at)->capacity < bytes)
        at = &(*at)->next;
    f = *at;
    if (f) {
        *at = f->next;
    } else {
        f = memory_alloc(sizeof *f);
        *f = (struct tcp_frame){.buffer = bytes ? memory_alloc(bytes) : NULL, .capacity = bytes};
    }
    f->next = NULL;
    f->done_bytes = 0;
    return f;
}

/* Queues a frame. unsent NULL: the data is copied. Otherwise *unsent is incremented, the data must
 * stay unchanged until the frame is sent, and *unsent is decremented then. The lock must be held. */
static void queue_frame(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes, i64 *unsent)
{
    struct tcp_net *net = state_of(comm)->net;
    struct tcp_peer *peer = peer_of(comm, to);
    struct tcp_frame *f = spare_frame(net, unsent ? 0 : bytes);
    f->header = (struct tcp_header){state_of(comm)->id, tag, bytes};
    f->data = unsent ? data : f->buffer;
    f->unsent = unsent;
    if (unsent)
        ++*unsent;
    else if (bytes)
        memcpy(f->buffer, data, (size_t)bytes);
    *peer->out_end = f;
    peer->out_end = &f->next;
    net->waiting++;
    pthread_cond_signal(&net->posted);
}

static void post(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes, i64 *unsent)
{
    struct tcp_net *net = state_of(comm)->net;
    pthread_mutex_lock(&net->lock);
    queue_frame(comm, to, tag, data, bytes, unsent);
    pthread_mutex_unlock(&net->lock);
}

static struct timespec time_in_ms(i64 ms)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    i64 ns = end.tv_nsec + ms * 1000000;
    return (struct timespec){end.tv_sec + ns / 1000000000, ns % 1000000000};
}

/* Tells the other ranks that this one ends and has said why. Waits for half a second at most, and not
 * for the lock, which the caller of comm_stop may hold. */
static void say_farewell(struct comm *comm)
{
    struct tcp_net *net = state_of(comm)->net;
    struct timespec end = time_in_ms(500);
    if (pthread_mutex_timedlock(&net->lock, &end))
        return;
    for (i64 r = 0; r < comm->size; r++)
        if (r != comm->rank && !peer_of(comm, r)->lost)
            queue_frame(comm, r, FAREWELL_TAG, NULL, 0, NULL);
    while (net->waiting && pthread_cond_timedwait(&net->written, &net->lock, &end) == 0)
        ;
    pthread_mutex_unlock(&net->lock);
}

/* Waits until a frame is sent, for at most 1 s. The lock must be held. */
static void wait_written(struct tcp_net *net)
{
    struct timespec end = time_in_ms(1000);
    pthread_cond_timedwait(&net->written, &net->lock, &end);
}

/* Bytes that have come from ranks that are watched over their connections and that nobody reads meanwhile,
 * signs of life among them. -1: there are no such ranks. */
static i64 unread_bytes(const struct comm *comm)
{
    i64 sum = -1;
    for (i64 r = 0; r < comm->size; r++) {
        int bytes = 0;
        if (r == comm->rank || !watch_is_connected(state_of(comm)->world[r]))
            continue;
        sum = max_i64(sum, 0) + (ioctl(peer_of(comm, r)->socket, FIONREAD, &bytes) == 0 ? bytes : 0);
    }
    return sum;
}

static void wait_until_sent(struct comm *comm, const i64 *unsent)
{
    struct tcp_net *net = state_of(comm)->net;
    i64 sent = net->sent_bytes, unread = unread_bytes(comm);
    double moved_s = clock_s();
    while (*unsent) {
        wait_written(net);
        i64 waits = unread_bytes(comm), most_s = comm->wait_s ? comm->wait_s : waits < 0 ? 0 : launch_wait_s();
        if (net->sent_bytes != sent || waits != unread)
            moved_s = clock_s();
        sent = net->sent_bytes;
        unread = waits;
        double now_s = clock_s();
        if (*unsent && ((most_s && now_s - moved_s > (double)most_s) || (comm->end_s > 0 && now_s > comm->end_s)))
            comm_stop_waiting(comm, -1);
    }
}

/* True if all of the caller's frames are sent. */
static bool all_sent(struct comm *comm, const i64 *unsent, bool wait)
{
    struct tcp_net *net = state_of(comm)->net;
    pthread_mutex_lock(&net->lock);
    if (wait)
        wait_until_sent(comm, unsent);
    bool all = *unsent == 0;
    pthread_mutex_unlock(&net->lock);
    for (i64 r = 0; r < comm->size; r++)
        if (peer_of(comm, r)->lost)
            stop_for_lost_rank(comm, r);
    return all;
}

/* ---- Reading ---- */

/* Ends the run, because a peer sends what cannot be read: the last error. */
_Noreturn static void stop_for_frame(struct comm *comm, i64 from)
{
    const struct tcp_receive *unfit = peer_of(comm, from)->reader.unfit;
    if (unfit)
        comm_stop(unfit->comm, "%s", error_text());
    comm_stop(comm, "rank %lld sends %s", (long long)from, error_text());
}

/* Reads available bytes without blocking. False if there are none. */
static bool read_some(struct comm *comm, i64 from)
{
    struct tcp_peer *peer = peer_of(comm, from);
    i64 bytes;
    void *to = tcp_reader_space(&peer->reader, &bytes);
    ssize_t got = recv(peer->socket, to, (size_t)bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        stop_for_lost_rank(comm, from);
    if (got > 0 && tcp_reader_advance(&peer->reader, got) < 0)
        stop_for_frame(comm, from);
    watch_moved(max_i64(got, 0));
    return got > 0;
}

static void post_receive(struct tcp_receive *w)
{
    if (tcp_reader_post(&peer_of(w->comm, w->from)->reader, w) < 0)
        stop_for_frame(w->comm, w->from);
}

static struct tcp_receive receive_of(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes)
{
    return (struct tcp_receive){.comm = comm, .expected = {state_of(comm)->id, tag, bytes}, .from = from, .data = data};
}

/* Stops the run after wait_s, if the rank is watched over this connection and silent, or after end_s. */
static void check_wait(const struct tcp_receive *w, double begin_s)
{
    i64 rank = state_of(w->comm)->world[w->from];
    i64 most_s = w->comm->wait_s ? w->comm->wait_s : watch_is_connected(rank) ? launch_silence_s(NULL) : 0;
    double now_s = clock_s();
    if ((most_s && now_s - begin_s > (double)most_s) || (w->comm->end_s > 0 && now_s > w->comm->end_s))
        comm_stop_waiting(w->comm, rank);
}

/* Blocks until the socket is readable. */
static void wait_readable(const struct tcp_receive *w)
{
    struct pollfd there = {.fd = peer_of(w->comm, w->from)->socket, .events = POLLIN};
    double begin_s = clock_s();
    check_wait(w, begin_s); /* bytes that come one by one do not put end_s off */
    while (poll(&there, 1, 100) == 0)
        check_wait(w, begin_s);
}

static bool is_received(struct tcp_receive *w, bool wait)
{
    while (!w->done)
        if (!read_some(w->comm, w->from)) {
            if (!wait)
                return false;
            wait_readable(w);
        }
    return true;
}

static void receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes)
{
    struct tcp_receive w = receive_of(comm, from, tag, data, bytes);
    post_receive(&w);
    is_received(&w, true);
}

/* ---- The transport ---- */

struct tcp_transfer {        /* an all-to-all in flight */
    i64 unsent;              /* unsent frames; guarded by the lock */
    struct tcp_receive in[]; /* [ranks] receives */
};

static struct tcp_transfer *begin_tagged(struct comm *comm, const struct span *out, const struct span *in, i64 tag)
{
    struct tcp_transfer *t = memory_alloc((i64)sizeof *t + comm->size * (i64)sizeof t->in[0]);
    for (i64 i = 1; i < comm->size; i++) {
        i64 to = (comm->rank + i) % comm->size;
        if (in[to].bytes)
            post(comm, to, tag, in[to].data, in[to].bytes, &t->unsent);
    }
    for (i64 r = 0; r < comm->size; r++) {
        t->in[r] = receive_of(comm, r, tag, out[r].data, out[r].bytes);
        t->in[r].done = r == comm->rank || out[r].bytes == 0;
        if (!t->in[r].done)
            post_receive(&t->in[r]);
    }
    return t;
}

static struct transfer *begin(struct comm *comm, const struct span *out, const struct span *in)
{
    return (struct transfer *)begin_tagged(comm, out, in, TRANSFER_TAG);
}

static bool ended(struct comm *comm, struct transfer *transfer, bool wait)
{
    struct tcp_transfer *t = (struct tcp_transfer *)transfer;
    bool all = true;
    for (i64 i = 1; i < comm->size; i++)
        all &= is_received(&t->in[(comm->rank + comm->size - i) % comm->size], wait);
    all &= all_sent(comm, &t->unsent, wait);
    if (all)
        memory_free(t);
    return all;
}

static void exchange(struct comm *comm, const struct span *out, const struct span *in)
{
    const struct span *own_out = &out[comm->rank], *own_in = &in[comm->rank];
    struct tcp_transfer *t = begin_tagged(comm, out, in, COLLECTIVE_TAG);
    if (own_in->bytes && own_out->data != own_in->data)
        memcpy(own_out->data, own_in->data, (size_t)own_in->bytes);
    ended(comm, (struct transfer *)t, true);
}

static void all_gather(struct comm *comm, void *data, const i64 *bytes)
{
    struct span out[comm->size], in[comm->size];
    char *at = data, *own = NULL;
    for (i64 r = 0; r < comm->size; at += bytes[r++]) {
        out[r] = (struct span){at, bytes[r]};
        own = r == comm->rank ? at : own;
    }
    for (i64 r = 0; r < comm->size; r++)
        in[r] = (struct span){own, bytes[comm->rank]};
    exchange(comm, out, in);
}

static void broadcast(struct comm *comm, void *data, i64 bytes, i64 root)
{
    struct span out[comm->size], in[comm->size];
    for (i64 r = 0; r < comm->size; r++) {
        out[r] = (struct span){data, comm->rank != root && r == root ? bytes : 0};
        in[r] = (struct span){data, comm->rank == root && r != root ? bytes : 0};
    }
    exchange(comm, out, in);
}

static void send_message(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes)
{
    require(to != comm->rank, "%s: rank %lld sends to itself", comm->name, (long long)to);
    if (peer_of(comm, to)->lost)
        stop_for_lost_rank(comm, to);
    post(comm, to, tag, data, bytes, NULL);
}

/* Every rank reports to rank 0, which then releases all of them. */
static void barrier(struct comm *comm)
{
    for (i64 r = 1; r < comm->size && comm->rank == 0; r++)
        receive(comm, r, BARRIER_TAG, NULL, 0);
    for (i64 r = comm->rank ? 0 : 1; r < (comm->rank ? 1 : comm->size); r++)
        post(comm, r, BARRIER_TAG, NULL, 0, NULL);
    if (comm->rank)
        receive(comm, 0, BARRIER_TAG, NULL, 0);
}

/* Stops the run if a connection was closed and has no data left to read. */
static void check_alive(struct comm *comm)
{
    for (i64 r = 0; r < comm->size; r++) {
        char next;
        struct tcp_peer *peer = peer_of(comm, r);
        if (r == comm->rank)
            continue;
        ssize_t got = recv(peer->socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            stop_for_lost_rank(comm, r);
    }
}

static const struct transport tcp_transport;

static struct comm *comm_over_net(struct tcp_net *net, u64 id, i64 rank, i64 size)
{
    struct comm *comm = comm_new(&tcp_transport, NULL, "world", rank, size);
    struct tcp_state *s = comm->state = memory_alloc(sizeof *s);
    *s = (struct tcp_state){.net = net, .id = id, .world = memory_alloc(size * (i64)sizeof *s->world)};
    return comm;
}

/* The id of a comm is a hash of data that all its ranks share: the parent's id, the split's number,
 * and the group. */
static struct comm *split(struct comm *parent, const struct rank_group *group, i64 rank)
{
    struct tcp_state *p = state_of(parent);
    const i64 identity[] = {(i64)p->id, p->splits++, group->first, group->stride, group->count};
    struct comm *comm = comm_over_net(p->net, hash_bytes(identity, sizeof identity, 0), rank, group->count);
    for (i64 r = 0; r < group->count; r++)
        state_of(comm)->world[r] = p->world[group->first + r * group->stride];
    return comm;
}

static void free_frames(struct tcp_frame *f)
{
    while (f) {
        struct tcp_frame *next = f->next;
        memory_free(f->buffer);
        memory_free(f);
        f = next;
    }
}

static void close_net(struct tcp_net *net)
{
    pthread_mutex_lock(&net->lock);
    net->closing = true;
    pthread_cond_signal(&net->posted);
    pthread_mutex_unlock(&net->lock);
    pthread_join(net->writer, NULL);
    for (i64 r = 0; r < net->size; r++) {
        tcp_reader_release(&net->peers[r].reader);
        if (r != net->rank)
            close(net->peers[r].socket);
    }
    free_frames(net->spare);
    tcp_kept_free(net->spare_kept);
    memory_free(net->peers);
    memory_free(net);
}

static void close_tcp(struct comm *comm)
{
    struct tcp_state *s = state_of(comm);
    if (s->id == 0) { /* the world is closed last */
        barrier(comm);
        close_net(s->net);
    }
    memory_free(s->world);
    memory_free(s);
}

bool tcp_local_address(struct sockaddr_storage *out, const struct comm *world, i64 rank)
{
    socklen_t length = sizeof *out;
    return rank != world->rank && getsockname(peer_of(world, rank)->socket, (struct sockaddr *)out, &length) == 0;
}

static void stop(struct comm *comm, int status)
{
    say_farewell(comm);
    _exit(status);
}

/* Not behind other frames, which say as much. */
static void beat(struct comm *world, i64 rank)
{
    struct tcp_net *net = state_of(world)->net;
    struct tcp_peer *peer = peer_of(world, rank);
    if (pthread_mutex_trylock(&net->lock))
        return;
    if (!peer->out && !peer->lost)
        queue_frame(world, rank, BEAT_TAG, NULL, 0, NULL);
    pthread_mutex_unlock(&net->lock);
}

static const struct transport tcp_transport = {.name = "tcp",
                                               .exchange = exchange,
                                               .all_gather = all_gather,
                                               .broadcast = broadcast,
                                               .send = send_message,
                                               .receive = receive,
                                               .barrier = barrier,
                                               .begin = begin,
                                               .ended = ended,
                                               .split = split,
                                               .close = close_tcp,
                                               .stop = stop,
                                               .check_alive = check_alive,
                                               .beat = beat};

struct comm *tcp_open(const struct launch_info *launch)
{
    int sockets[launch->size];
    if (rendezvous(sockets, launch))
        return NULL;
    struct tcp_net *net = memory_alloc(sizeof *net);
    *net = (struct tcp_net){.rank = launch->rank,
                            .size = launch->size,
                            .peers = memory_alloc(launch->size * (i64)sizeof *net->peers),
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .posted = PTHREAD_COND_INITIALIZER,
                            .written = PTHREAD_COND_INITIALIZER};
    struct comm *comm = comm_over_net(net, 0, launch->rank, launch->size);
    for (i64 r = 0; r < launch->size; r++) {
        net->peers[r].socket = sockets[r];
        net->peers[r].out_end = &net->peers[r].out;
        net->peers[r].reader.spare = &net->spare_kept;
        state_of(comm)->world[r] = r;
    }
    thread_start(&net->writer, write_frames, net, "a thread to write to other ranks");
    return comm;
}
