#include "dist/tcp_reader.h"

#include <string.h>

static bool is_for(const struct tcp_header *header, const struct tcp_header *expected)
{
    return header->comm == expected->comm && header->tag == expected->tag;
}

static int check_size(struct tcp_reader *r, const struct tcp_receive *w, i64 bytes)
{
    if (bytes == w->expected.bytes)
        return 0;
    r->unfit = w;
    return error_set("a message of %lld bytes from rank %lld, %lld were expected: the ranks run different sizes",
                     (long long)bytes, (long long)w->from, (long long)w->expected.bytes);
}

/* Removes the first posted receive that a frame is for. NULL: there is none. */
static struct tcp_receive *take_posted(struct tcp_reader *r, const struct tcp_header *header)
{
    struct tcp_receive **at = &r->posted, *w;
    while (*at && !is_for(header, &(*at)->expected))
        at = &(*at)->next;
    w = *at;
    if (w)
        *at = w->next;
    return w;
}

/* A spare frame that is large enough, or a new one of at most TCP_EARLY_BYTES. */
static struct tcp_kept *kept_for(struct tcp_reader *r, const struct tcp_header *header)
{
    struct tcp_kept **at = r->spare, *k;
    while (*at && (*at)->capacity < header->bytes)
        at = &(*at)->next;
    k = *at;
    if (k) {
        *at = k->next;
    } else {
        k = memory_alloc(sizeof *k);
        k->capacity = min_i64(header->bytes, TCP_EARLY_BYTES);
        k->buffer = k->capacity ? memory_alloc(k->capacity) : NULL;
    }
    k->next = NULL;
    k->header = *header;
    return k;
}

/* Ends a receive with a kept frame. */
static int deliver(struct tcp_reader *r, struct tcp_receive *w, struct tcp_kept *k)
{
    int status = check_size(r, w, k->header.bytes);
    if (status == 0 && w->expected.bytes)
        memcpy(w->data, k->buffer, (size_t)w->expected.bytes);
    w->done = status == 0;
    r->kept_bytes -= k->header.bytes + TCP_KEPT_HEAD_BYTES;
    k->next = *r->spare;
    *r->spare = k;
    return status;
}

/* Chooses where the data of a frame goes whose header has arrived. */
static int begin_frame(struct tcp_reader *r)
{
    const struct tcp_header *h = &r->header;
    if (h->bytes < 0 || h->bytes > tcp_frame_most_bytes || h->tag < LOWEST_TAG || (h->tag == BEAT_TAG && h->bytes))
        return error_set("what is no frame (tag %lld, %lld bytes)", (long long)h->tag, (long long)h->bytes);
    r->into = take_posted(r, h);
    if (r->into)
        return check_size(r, r->into, h->bytes);
    if (h->tag == BEAT_TAG)
        return 0;
    r->kept_bytes += h->bytes + TCP_KEPT_HEAD_BYTES;
    if (r->kept_bytes > TCP_KEPT_BYTES)
        return error_set("more than %d MiB that this rank does not ask for: it makes other calls, or is no rank of "
                         "this run",
                         TCP_KEPT_BYTES >> 20);
    r->kept = kept_for(r, h);
    return 0;
}

/* A receive may have been posted since the header of a kept frame arrived. */
static int end_frame(struct tcp_reader *r)
{
    struct tcp_receive *late = r->kept ? take_posted(r, &r->header) : NULL;
    struct tcp_kept *k = r->kept, **end = &r->arrived;
    if (r->into)
        r->into->done = true;
    r->into = NULL;
    r->kept = NULL;
    r->done_bytes = 0;
    if (late)
        return deliver(r, late, k);
    while (k && *end)
        end = &(*end)->next;
    if (k)
        *end = k;
    return 0;
}

void *tcp_reader_space(struct tcp_reader *r, i64 *bytes)
{
    i64 head = sizeof r->header, in_data = r->done_bytes - head, end = r->header.bytes;
    if (in_data < 0) {
        *bytes = -in_data;
        return (char *)&r->header + r->done_bytes;
    }
    if (r->into) {
        *bytes = end - in_data;
        return (char *)r->into->data + in_data;
    }
    struct tcp_kept *k = r->kept;
    if (in_data == k->capacity) {
        i64 larger = min_i64(end, 2 * k->capacity);
        k->buffer = memory_resize(k->buffer, k->capacity, larger);
        k->capacity = larger;
    }
    *bytes = min_i64(end, k->capacity) - in_data;
    return k->buffer + in_data;
}

int tcp_reader_advance(struct tcp_reader *r, i64 bytes)
{
    i64 head = sizeof r->header;
    bool in_head = r->done_bytes < head;
    r->done_bytes += bytes;
    if (in_head && r->done_bytes == head && begin_frame(r) < 0)
        return -1;
    return r->done_bytes >= head && r->done_bytes - head == r->header.bytes ? end_frame(r) : 0;
}

int tcp_reader_post(struct tcp_reader *r, struct tcp_receive *w)
{
    struct tcp_kept **at = &r->arrived, *k;
    struct tcp_receive **end = &r->posted;
    while (*at && !is_for(&(*at)->header, &w->expected))
        at = &(*at)->next;
    k = *at;
    if (k) {
        *at = k->next;
        return deliver(r, w, k);
    }
    while (*end)
        end = &(*end)->next;
    w->next = NULL;
    *end = w;
    return 0;
}

void tcp_kept_free(struct tcp_kept *k)
{
    while (k) {
        struct tcp_kept *next = k->next;
        memory_free(k->buffer);
        memory_free(k);
        k = next;
    }
}

void tcp_reader_release(struct tcp_reader *r)
{
    tcp_kept_free(r->kept);
    tcp_kept_free(r->arrived);
    r->kept = r->arrived = NULL;
}
