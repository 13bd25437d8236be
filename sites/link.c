#include "sites/link.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONCE = 32, HEADER = crypto_secretstream_xchacha20poly1305_HEADERBYTES };
enum { ADDED = crypto_secretstream_xchacha20poly1305_ABYTES, JSON_BYTES_OF_LINK = 1 << 18, QUEUE = 64 };
static const char magic[8] = {'w', 'e', 'f', 't', '-', 's', '1', '\n'};

struct link_queued {
    struct link_head head;
    struct buffer payload;
};
struct link {
    u8 key[LINK_KEY_BYTES], nonce[NONCE];
    bool accepts, pushes, pulls, proven;
    enum link_fault fault;
    i64 most[LINK_KINDS];
    crypto_secretstream_xchacha20poly1305_state push, pull;
    struct buffer in, out;
    i64 out_at;
    bool has_head; /* of the message whose payload comes */
    struct link_queued next, *queue;
    i64 queued, capacity;
};

static void start(void)
{
    require(sodium_init() >= 0, "libsodium does not start");
}

/* Key of what one end sends: 'c' the one that connects, 'a' the one that accepts. */
static void derive(u8 out[LINK_KEY_BYTES], const struct link *l, const u8 other[NONCE], char from)
{
    u8 text[2 * NONCE + 1];
    memcpy(text, l->accepts ? other : l->nonce, NONCE);
    memcpy(text + NONCE, l->accepts ? l->nonce : other, NONCE);
    text[2 * NONCE] = (u8)from;
    crypto_generichash(out, LINK_KEY_BYTES, text, sizeof text, l->key, LINK_KEY_BYTES);
}

static void greet(struct link *l)
{
    buffer_append(&l->out, magic, sizeof magic);
    buffer_append(&l->out, l->nonce, NONCE);
}

struct link *link_open(const u8 key[LINK_KEY_BYTES], bool accepts)
{
    start();
    struct link *l = memory_alloc(sizeof *l);
    memcpy(l->key, key, LINK_KEY_BYTES);
    randombytes_buf(l->nonce, NONCE);
    l->accepts = accepts;
    l->most[LINK_HELLO] = l->most[LINK_WELCOME] = l->most[LINK_PLAN] = JSON_BYTES_OF_LINK; /* PLAN may follow at once */
    if (!accepts)
        greet(l);
    return l;
}

void link_close(struct link *l)
{
    if (!l)
        return;
    buffer_release(&l->in);
    buffer_release(&l->out);
    buffer_release(&l->next.payload);
    for (i64 i = 0; i < l->queued; i++)
        buffer_release(&l->queue[i].payload);
    memory_free(l->queue);
    sodium_memzero(l, sizeof *l);
    memory_free(l);
}

void link_allow(struct link *l, enum link_kind kind, i64 bytes)
{
    l->most[kind] = bytes;
}

enum link_fault link_fault(const struct link *l)
{
    return l->fault;
}

bool link_greeted(const struct link *l)
{
    return l->pushes;
}

bool link_proven(const struct link *l)
{
    return l->proven;
}

/* ---- Sending ---- */

static void push_frame(struct link *l, const void *data, i64 bytes)
{
    u8 frame[LINK_FRAME_BYTES + ADDED];
    u32 length = (u32)(bytes + ADDED);
    crypto_secretstream_xchacha20poly1305_push(&l->push, frame, NULL, data, (unsigned long long)bytes, NULL, 0, 0);
    buffer_append(&l->out, &length, sizeof length);
    buffer_append(&l->out, frame, length);
}

void link_send(struct link *l, const struct link_head *head, const void *payload)
{
    require(l->pushes, "a message before the greeting");
    push_frame(l, head, sizeof *head);
    for (i64 at = 0, here; at < head->bytes; at += here) {
        here = min_i64(LINK_FRAME_BYTES, head->bytes - at);
        push_frame(l, (const char *)payload + at, here);
    }
}

const char *link_output(const struct link *l, i64 *bytes)
{
    *bytes = l->out.length - l->out_at;
    return *bytes ? l->out.data + l->out_at : NULL;
}

void link_sent(struct link *l, i64 bytes)
{
    l->out_at += min_i64(bytes, l->out.length - l->out_at);
    if (l->out_at == l->out.length) {
        buffer_release(&l->out);
        l->out_at = 0;
    }
}

/* ---- Receiving ---- */

/* The nonce of the other end has come: this one can send. */
static void begin_pushing(struct link *l, const u8 other[NONCE])
{
    u8 key[LINK_KEY_BYTES], header[HEADER];
    if (l->accepts)
        greet(l);
    derive(key, l, other, l->accepts ? 'a' : 'c');
    crypto_secretstream_xchacha20poly1305_init_push(&l->push, header, key);
    buffer_append(&l->out, header, HEADER);
    l->pushes = true;
    derive(l->key, l, other, l->accepts ? 'c' : 'a'); /* from here on: of what comes */
    sodium_memzero(key, sizeof key);
}

static void queue_message(struct link *l)
{
    if (l->queued == l->capacity) {
        i64 size = (i64)sizeof *l->queue;
        l->queue = memory_resize(l->queue, l->capacity * size, (l->capacity + QUEUE) * size);
        l->capacity += QUEUE;
    }
    l->queue[l->queued++] = l->next;
    l->next = (struct link_queued){0};
    l->has_head = false;
}

static void take_head(struct link *l, const u8 *data, i64 bytes)
{
    struct link_head *head = &l->next.head;
    if (bytes != (i64)sizeof *head) {
        l->fault = LINK_DAMAGED;
        return;
    }
    memcpy(head, data, sizeof *head);
    if (head->kind < LINK_HELLO || head->kind >= LINK_KINDS || head->bytes < 0 || head->bytes > l->most[head->kind])
        l->fault = LINK_LARGE;
    l->has_head = l->fault == LINK_FINE;
}

static void take_frame(struct link *l, const u8 *frame, i64 bytes)
{
    u8 data[LINK_FRAME_BYTES], tag;
    unsigned long long length;
    if (crypto_secretstream_xchacha20poly1305_pull(&l->pull, data, &length, &tag, frame, (unsigned long long)bytes,
                                                   NULL, 0)) {
        l->fault = l->proven ? LINK_DAMAGED : LINK_KEY;
        return;
    }
    l->proven = true;
    if (!l->has_head)
        take_head(l, data, (i64)length);
    else if (l->next.payload.length + (i64)length > l->next.head.bytes)
        l->fault = LINK_DAMAGED;
    else
        buffer_append(&l->next.payload, data, (i64)length);
    if (l->has_head && l->next.payload.length == l->next.head.bytes)
        queue_message(l);
}

/* Takes the next piece of what has come. Returns the bytes it took; 0: more must come. */
static i64 take_piece(struct link *l, const u8 *data, i64 bytes)
{
    u32 length;
    if (!l->pushes) {
        if (memcmp(data, magic, (size_t)min_i64(bytes, sizeof magic)) != 0)
            l->fault = LINK_STRANGE;
        if (l->fault || bytes < (i64)sizeof magic + NONCE)
            return 0;
        begin_pushing(l, data + sizeof magic);
        return sizeof magic + NONCE;
    }
    if (!l->pulls) {
        if (bytes < HEADER)
            return 0;
        l->pulls = crypto_secretstream_xchacha20poly1305_init_pull(&l->pull, data, l->key) == 0;
        l->fault = l->pulls ? LINK_FINE : LINK_KEY;
        return HEADER;
    }
    if (bytes < (i64)sizeof length)
        return 0;
    memcpy(&length, data, sizeof length);
    if (length < ADDED || length > LINK_FRAME_BYTES + ADDED) {
        l->fault = l->proven ? LINK_DAMAGED : LINK_KEY;
        return 0;
    }
    if (bytes < (i64)sizeof length + length)
        return 0;
    take_frame(l, data + sizeof length, length);
    return (i64)sizeof length + length;
}

bool link_feed(struct link *l, const void *data, i64 bytes)
{
    if (l->fault)
        return false;
    buffer_append(&l->in, data, bytes);
    i64 at = 0, taken = 1;
    while (taken > 0 && !l->fault && at < l->in.length) {
        taken = take_piece(l, (const u8 *)l->in.data + at, l->in.length - at);
        at += taken;
    }
    memmove(l->in.data, l->in.data + at, (size_t)(l->in.length - at));
    l->in.length -= at;
    return l->fault == LINK_FINE;
}

bool link_next(struct link_head *head, struct buffer *payload, struct link *l)
{
    if (l->queued == 0)
        return false;
    *head = l->queue[0].head;
    *payload = l->queue[0].payload;
    memmove(l->queue, l->queue + 1, (size_t)(--l->queued) * sizeof *l->queue);
    return true;
}

/* ---- The key ---- */

int link_key_load(u8 key[LINK_KEY_BYTES], const char *path)
{
    struct buffer text = {0};
    struct stat status;
    start();
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return error_errno("sites.key: %s", path);
    int failed = fstat(file, &status);
    close(file);
    if (failed || !S_ISREG(status.st_mode))
        return error_usage("sites.key: %s is no file", path);
    if (status.st_mode & 077)
        return error_usage("sites.key: others can read or change %s: expected a file of its owner alone "
                           "(chmod 600 %s)",
                           path, path);
    if (file_read_most(&text, path, 1 << 16))
        return error_prefix("sites.key");
    while (text.length > 0 && text.data[text.length - 1] == '\n')
        text.length--;
    i64 length = text.length;
    if (length >= LINK_KEY_BYTES)
        crypto_generichash(key, LINK_KEY_BYTES, (const u8 *)text.data, (unsigned long long)length, NULL, 0);
    if (text.data)
        sodium_memzero(text.data, (size_t)text.length);
    buffer_release(&text);
    return length >= LINK_KEY_BYTES
               ? 0
               : error_usage("sites.key: %s has %lld bytes, expected at least %d (openssl rand -hex 32)", path,
                             (long long)length, LINK_KEY_BYTES);
}
