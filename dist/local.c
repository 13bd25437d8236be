/* One rank: collectives return at once (comm.c); messages to oneself wait in a queue. So a pipeline of several chunks
 * runs in one process. */
#include "dist/dist.h"

#include <string.h>

struct message {
    struct message *next;
    i64 tag, bytes, capacity;
    void *data;
};
struct queue {
    struct message *first, *free; /* in order of sending; read ones, to be used again */
};

static void exchange(struct comm *comm, const struct span *out, const struct span *in)
{
    (void)comm;
    memcpy(out[0].data, in[0].data, (size_t)in[0].bytes);
}

static void all_gather(struct comm *comm, void *data, const i64 *bytes)
{
    (void)comm, (void)data, (void)bytes;
}

static void broadcast(struct comm *comm, void *data, i64 bytes, i64 root)
{
    (void)comm, (void)data, (void)bytes, (void)root;
}

static void barrier(struct comm *comm)
{
    (void)comm;
}

static struct message *take_free(struct queue *queue, i64 bytes)
{
    struct message *m = queue->free;
    if (m)
        queue->free = m->next;
    else
        m = memory_alloc(sizeof *m);
    if (m->capacity < bytes) {
        memory_free(m->data);
        m->data = memory_alloc(bytes);
        m->capacity = bytes;
    }
    return m;
}

static void send(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes)
{
    require(to == 0, "a message to rank %lld of one", (long long)to);
    if (!comm->state)
        comm->state = memory_alloc(sizeof(struct queue));
    struct queue *queue = comm->state;
    struct message *m = take_free(queue, bytes), **end = &queue->first;
    *m = (struct message){.tag = tag, .bytes = bytes, .capacity = m->capacity, .data = m->data};
    memcpy(m->data, data, (size_t)bytes);
    while (*end)
        end = &(*end)->next;
    *end = m;
}

static void receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes)
{
    struct queue *queue = comm->state;
    struct message **at = queue ? &queue->first : NULL;
    (void)from;
    while (at && *at && (*at)->tag != tag)
        at = &(*at)->next;
    require(at && *at, "a message of tag %lld is read before it was sent", (long long)tag);
    struct message *m = *at;
    require(m->bytes == bytes, "a message of %lld bytes is read as %lld", (long long)m->bytes, (long long)bytes);
    memcpy(data, m->data, (size_t)bytes);
    *at = m->next;
    m->next = queue->free;
    queue->free = m;
}

static struct comm *split(struct comm *parent, const struct group *group, i64 rank)
{
    return comm_new(&local_transport, parent->device, parent->name, rank, group->count);
}

static void free_messages(struct message *m)
{
    while (m) {
        struct message *next = m->next;
        memory_free(m->data);
        memory_free(m);
        m = next;
    }
}

static void close_queue(struct comm *comm)
{
    struct queue *queue = comm->state;
    if (!queue)
        return;
    free_messages(queue->first);
    free_messages(queue->free);
    memory_free(queue);
}

const struct transport local_transport = {.name = "local",
                                          .exchange = exchange,
                                          .all_gather = all_gather,
                                          .broadcast = broadcast,
                                          .send = send,
                                          .receive = receive,
                                          .barrier = barrier,
                                          .split = split,
                                          .close = close_queue};
