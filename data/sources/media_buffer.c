#include "data/sources/media_buffer.h"

#include <string.h>

enum { AT_ONCE = 32 };

struct media_buffer {
    struct media_request request;
    struct media_buffer_kind kind;
    i64 most_bytes, bytes; /* bytes: size of the last window */
    i64 *numbers;          /* [count] numbers of the media in the request */
    i64 *begins;           /* [windows] index of each first medium */
    i64 count, windows;
    struct media_stream *stream;
    i64 at;     /* number of the stream's next medium */
    i64 shown;  /* window held; -1: none */
    u8 *held;   /* contents of that window's media */
    i64 filled; /* contents filled so far */
};

struct media_buffer *media_buffer_open(const struct media_request *request, const struct media_buffer_kind *kind,
                                       i64 most_bytes)
{
    struct media_buffer *w = memory_alloc(sizeof *w);
    *w = (struct media_buffer){.request = *request, .kind = *kind, .most_bytes = most_bytes, .shown = -1};
    w->request.says = false;
    return w;
}

/* Appends to a list whose capacity is the next power of two. */
static void push(i64 **list, i64 *count, i64 value)
{
    i64 n = (*count)++;
    if ((n & (n - 1)) == 0)
        *list = memory_resize(*list, n * 8, max_i64(1, 2 * n) * 8);
    (*list)[n] = value;
}

i64 media_buffer_add(struct media_buffer *w, i64 number, i64 bytes)
{
    require(w->count == 0 || number > w->numbers[w->count - 1], "media of windows come in their order");
    if (w->windows == 0 || w->bytes + bytes > w->most_bytes) {
        push(&w->begins, &w->windows, w->count);
        w->bytes = 0;
    }
    w->bytes += bytes;
    push(&w->numbers, &w->count, number);
    return w->count - 1;
}

i64 media_buffer_count(const struct media_buffer *w)
{
    return w ? w->count : 0;
}

i64 media_buffer_windows(const struct media_buffer *w)
{
    return w ? w->windows : 0;
}

i64 media_buffer_window_begin(const struct media_buffer *w, i64 at)
{
    return at < w->windows ? w->begins[at] : w->count;
}

i64 media_buffer_window_of(const struct media_buffer *w, i64 index)
{
    i64 low = 0, high = w->windows;
    while (high - low > 1) {
        i64 middle = (low + high) / 2;
        *(w->begins[middle] <= index ? &low : &high) = middle;
    }
    return low;
}

void media_buffer_order(i32 *out, const struct media_buffer *w, u64 seed, u32 epoch, u32 which)
{
    for (i64 k = 0; k < w->windows; k++) {
        i64 begin = w->begins[k], n = media_buffer_window_begin(w, k + 1) - begin;
        rng_permutation(out + begin, n, (struct rng_key){seed, RNG_SHUFFLE}, epoch, 2 + 2 * (u32)k + which);
        for (i64 i = begin; i < begin + n; i++)
            out[i] += (i32)begin;
    }
}

/* ---- Reading ---- */

static void release_window(struct media_buffer *w)
{
    for (i64 i = 0; i < w->filled; i++)
        w->kind.release(w->held + i * w->kind.content_bytes);
    memory_free(w->held);
    w->held = NULL;
    w->filled = 0;
    w->shown = -1;
}

void media_buffer_close(struct media_buffer *w)
{
    if (!w)
        return;
    release_window(w);
    media_stream_close(w->stream);
    memory_free(w->numbers);
    memory_free(w->begins);
    memory_free(w);
}

static int go_to(struct media_buffer *w, i64 number)
{
    if (w->stream && w->at <= number)
        return 0;
    media_stream_close(w->stream);
    w->at = 0;
    w->stream = media_stream_open(&w->request);
    return w->stream ? 0 : -1;
}

struct media_buffer_batch {
    struct media_buffer *window;
    struct medium media[AT_ONCE];
    i64 count;
};

static void read_one(void *context, i64 tile, int worker)
{
    struct media_buffer_batch *b = context;
    struct medium *m = &b->media[tile];
    const struct media_buffer_kind *kind = &b->window->kind;
    const struct file_view file = {(const u8 *)m->bytes.data, m->bytes.length};
    (void)worker;
    u8 *content = b->window->held + (b->window->filled + tile) * kind->content_bytes;
    if (!m->problem && kind->read(kind->context, content, m, &file) < 0)
        m->problem = string_copy(error_text()); /* error_text() is thread-local */
}

static int read_batch(struct media_buffer_batch *b)
{
    int status = 0;
    workers_run(b->count, read_one, b);
    for (i64 i = 0; i < b->count; i++) {
        if (b->media[i].problem && status == 0)
            status = error_set("%s; it could be read before", b->media[i].problem);
        medium_release(&b->media[i]);
    }
    b->window->filled += b->count;
    b->count = 0;
    return status;
}

/* Reads the medium with this number and skips those before it. */
static int next_wanted(struct media_buffer *w, struct medium *out, i64 number)
{
    for (;;) {
        int more = media_stream_next(w->stream, out);
        if (more < 0)
            return -1;
        if (more == 0)
            return error_set("%s: it has fewer media than when it was read first", w->request.data);
        if (w->at++ == number)
            return 0;
        medium_release(out);
    }
}

static int load_window(struct media_buffer *w, i64 at)
{
    i64 begin = w->begins[at], end = media_buffer_window_begin(w, at + 1);
    struct media_buffer_batch *b = memory_alloc(sizeof *b);
    b->window = w;
    release_window(w);
    w->held = memory_alloc((end - begin) * w->kind.content_bytes);
    int status = go_to(w, w->numbers[begin]);
    for (i64 i = begin; i < end && status == 0; i++) {
        status = next_wanted(w, &b->media[b->count], w->numbers[i]);
        b->count += status == 0;
        if (status == 0 && (b->count == AT_ONCE || i + 1 == end))
            status = read_batch(b);
    }
    for (i64 i = 0; i < b->count; i++)
        medium_release(&b->media[i]);
    memory_free(b);
    w->shown = at;
    if (status < 0)
        release_window(w);
    return status;
}

const void *media_buffer_get(struct media_buffer *w, i64 index)
{
    i64 at = media_buffer_window_of(w, index);
    require(index >= 0 && index < w->count, "medium %lld of %lld", (long long)index, (long long)w->count);
    if (w->shown != at && load_window(w, at) < 0)
        return NULL;
    return w->held + (index - w->begins[at]) * w->kind.content_bytes;
}
