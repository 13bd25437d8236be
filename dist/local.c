/* Transport of a single rank. Collectives return at once (comm.c). Messages to itself wait in a
 * queue, in the memory they came from, so a pipeline of several chunks can run in one process. */
#include "dist/dist.h"

#include <string.h>

struct local_message {
    struct local_message *next;
    i64 tag, bytes, capacity;
    void *data;
};
struct queue {
    struct local_message *first, *free; /* sent messages in order; buffers to reuse */
};

/* Copies host memory with memcpy and device memory with device ops: 4-byte words, then a remaining
 * 2 bytes. */
static void copy(struct comm *comm, void *out, const void *in, i64 bytes)
{
    i64 words = bytes / 4;
    struct device *device = comm->device;
    if (!device) {
        memcpy(out, in, (size_t)bytes);
        return;
    }
    require(bytes % 2 == 0, "%lld bytes of device memory", (long long)bytes);
    device->ops->copy_ids(device, out, in, words);
    if (bytes % 4)
        device->ops->copy(device, matrix_of((i32 *)out + words, DTYPE_BF16, 1, 1),
                          matrix_of((i32 *)(uintptr_t)in + words, DTYPE_BF16, 1, 1), 1, false);
}

static void exchange(struct comm *comm, const struct span *out, const struct span *in)
{
    if (in[0].bytes)
        copy(comm, out[0].data, in[0].data, in[0].bytes);
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

static void *block_alloc(struct comm *comm, i64 bytes)
{
    return comm->device ? device_alloc(comm->device, bytes) : memory_alloc(bytes);
}

static void block_free(struct comm *comm, void *block, i64 bytes)
{
    if (comm->device)
        device_free(comm->device, block, bytes);
    else
        memory_free(block);
}

static struct local_message *take_free(struct comm *comm, struct queue *queue, i64 bytes)
{
    struct local_message *m = queue->free;
    if (m)
        queue->free = m->next;
    else
        m = memory_alloc(sizeof *m);
    if (m->capacity < bytes) {
        block_free(comm, m->data, m->capacity);
        m->data = block_alloc(comm, bytes);
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
    struct local_message *m = take_free(comm, queue, bytes), **end = &queue->first;
    *m = (struct local_message){.tag = tag, .bytes = bytes, .capacity = m->capacity, .data = m->data};
    copy(comm, m->data, data, bytes);
    while (*end)
        end = &(*end)->next;
    *end = m;
}

static void receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes)
{
    struct queue *queue = comm->state;
    struct local_message **at = queue ? &queue->first : NULL;
    (void)from;
    while (at && *at && (*at)->tag != tag)
        at = &(*at)->next;
    require(at && *at, "a message of tag %lld is read before it was sent", (long long)tag);
    struct local_message *m = *at;
    require(m->bytes == bytes, "a message of %lld bytes is read as %lld", (long long)m->bytes, (long long)bytes);
    copy(comm, data, m->data, bytes);
    *at = m->next;
    m->next = queue->free;
    queue->free = m;
}

static struct comm *split(struct comm *parent, const struct rank_group *group, i64 rank)
{
    return comm_new(&local_transport, NULL, parent->name, rank, group->count);
}

static void free_messages(struct comm *comm, struct local_message *m)
{
    while (m) {
        struct local_message *next = m->next;
        block_free(comm, m->data, m->capacity);
        memory_free(m);
        m = next;
    }
}

static void close_queue(struct comm *comm)
{
    struct queue *queue = comm->state;
    free_messages(comm, queue->first);
    free_messages(comm, queue->free);
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
