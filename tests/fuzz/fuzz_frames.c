/* Fuzz target: frames of a peer over TCP, cut at any place, and receives posted at any time. Receive
 * n of a comm and tag gets frame n of them, or the peer is refused with a message; memory follows
 * what has arrived.
 *
 *     piece | receives: comm tag bytes when | frames: comm tag bytes data, bytes 255: i64 bytes data */
#include "dist/tcp_reader.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECEIVES = 8, FRAMES_MOST = 64, STEPS = 256 };

struct fuzz_frame {
    struct tcp_header header;
    i64 begin; /* of its data in the stream */
};
static struct fuzz_frame frames[FRAMES_MOST];
static i64 frame_count;

static const uint8_t *at, *end;

static u8 take(void)
{
    return at < end ? *at++ : 0;
}

static struct tcp_header take_header(void)
{
    static const i64 tags[] = {LOWEST_TAG - 1, FAREWELL_TAG,      TRANSFER_TAG, BARRIER_TAG,
                               COLLECTIVE_TAG, 0 /* a message */, BEAT_TAG};
    struct tcp_header h = {.comm = take() % 2};
    h.tag = tags[take() % COUNT_OF(tags)]; /* the first is no tag */
    h.bytes = take();
    return h;
}

/* Writes the frames of the input; the last one may lack data. */
static void build(struct buffer *stream)
{
    for (frame_count = 0; at < end && frame_count < FRAMES_MOST; frame_count++) {
        struct fuzz_frame *f = &frames[frame_count];
        f->header = take_header();
        if (f->header.bytes == 255 && end - at >= 8) {
            memcpy(&f->header.bytes, at, 8);
            at += 8;
        }
        buffer_append(stream, &f->header, sizeof f->header);
        f->begin = stream->length;
        i64 count = max_i64(0, min_i64(f->header.bytes, end - at));
        buffer_append(stream, at, count);
        at += count;
    }
}

static bool is_frame(const struct tcp_header *h)
{
    return h->bytes >= 0 && h->bytes <= (h->tag == BEAT_TAG ? 0 : tcp_frame_most_bytes) && h->tag >= LOWEST_TAG;
}

static bool is_same(const struct tcp_header *a, const struct tcp_header *b)
{
    return a->comm == b->comm && a->tag == b->tag;
}

/* The frame that receive n is to get; NULL: it is not in the input. */
static const struct fuzz_frame *frame_of(const struct tcp_receive *receives[], i64 n)
{
    i64 before = 0;
    for (i64 k = 0; k < n; k++)
        before += is_same(&receives[k]->expected, &receives[n]->expected);
    for (i64 i = 0; i < frame_count; i++)
        if (is_same(&frames[i].header, &receives[n]->expected) && before-- == 0)
            return &frames[i];
    return NULL;
}

static void check(const struct tcp_receive *posted[], i64 count, const struct buffer *stream, bool refused)
{
    bool fault = false;
    for (i64 i = 0; i < frame_count; i++)
        fault |= !is_frame(&frames[i].header);
    require(refused || !fault, "what is no frame is taken");
    for (i64 i = 0; i < frame_count; i++) /* more than is kept, unless its receive is posted */
        fault |= frames[i].header.bytes > TCP_KEPT_BYTES - FRAMES_MOST * (TCP_KEPT_HEAD_BYTES + 255);
    for (i64 n = 0; n < count; n++) {
        const struct fuzz_frame *f = frame_of(posted, n);
        i64 bytes = posted[n]->expected.bytes;
        bool differs = f && f->header.bytes != bytes, complete = f && stream->length - f->begin >= f->header.bytes;
        fault |= differs;
        require(refused || !differs || !complete, "a frame that does not fit is taken");
        require(refused || differs || posted[n]->done == complete, "receive %lld: done is %d", (long long)n,
                posted[n]->done);
        require(!posted[n]->done || (!differs && memcmp(posted[n]->data, stream->data + f->begin, (size_t)bytes) == 0),
                "receive %lld got other bytes", (long long)n);
    }
    require(!refused || (fault && *error_text()), "frames without a fault are refused, or without a message");
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static char memory[RECEIVES][256];
    struct tcp_receive receives[RECEIVES];
    const struct tcp_receive *posted[RECEIVES];
    struct tcp_kept *spare = NULL;
    struct tcp_reader reader = {.spare = &spare};
    struct buffer stream = {0};
    u8 when[RECEIVES];
    i64 done = 0, count = 0;
    at = input, end = input + size;
    i64 piece = 1 + take();
    for (i64 i = 0; i < RECEIVES; i++) {
        receives[i] = (struct tcp_receive){.expected = take_header(), .data = memory[i]};
        if (receives[i].expected.tag == BEAT_TAG) /* nobody receives one */
            receives[i].expected.tag = 0;
        when[i] = take();
    }
    build(&stream);
    bool refused = false;
    for (i64 step = 0; !refused && (step < STEPS || done < stream.length); step++) {
        for (i64 i = 0; i < RECEIVES && !refused; i++)
            if (when[i] == step) {
                posted[count++] = &receives[i];
                refused = tcp_reader_post(&reader, &receives[i]) < 0;
            }
        for (i64 left = min_i64(piece, stream.length - done); left && !refused;) {
            i64 room;
            void *to = tcp_reader_space(&reader, &room);
            require(room > 0, "no room for what follows");
            room = min_i64(room, left);
            memcpy(to, stream.data + done, (size_t)room);
            refused = tcp_reader_advance(&reader, room) < 0;
            done += room;
            left -= room;
            require(!reader.kept || reader.kept->capacity <= max_i64(TCP_EARLY_BYTES, 2 * done),
                    "%lld bytes are allocated after %lld", (long long)reader.kept->capacity, (long long)done);
        }
    }
    check(posted, count, &stream, refused);
    tcp_reader_release(&reader);
    tcp_kept_free(spare);
    buffer_release(&stream);
    return 0;
}
