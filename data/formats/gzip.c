#include "data/formats/gzip.h"

#include "data/formats/unpack.h"

#include <string.h>
#include <zlib.h>

/* GZIP_BITS: a window of 2^15 bytes, with the header and the trailer of gzip (RFC 1952). */
enum { BLOCK_BYTES = 1 << 16, WINDOW_BYTES = 1 << 20, GZIP_BITS = 15 + 16 };

struct gzip_file {
    struct blob *blob;
    char *path;
    z_stream stream;
    u8 *block, *window;
    i64 at, filled;        /* of the window: bytes given out, bytes in it */
    i64 checked;           /* of the window: bytes up to the end of its last member */
    i64 read_bytes, begin; /* of the file: bytes read, place of the current member */
    bool inside, ended;    /* inside: of a member */
    char *problem;         /* message about what follows the window */
};

struct gzip_file *gzip_file_open(struct blob *blob, const char *path)
{
    struct gzip_file *f = memory_alloc(sizeof *f);
    *f = (struct gzip_file){.blob = blob, .path = string_copy(path)};
    f->block = memory_alloc(BLOCK_BYTES);
    f->window = memory_alloc(WINDOW_BYTES);
    if (inflateInit2(&f->stream, GZIP_BITS) != Z_OK)
        panic("zlib: no memory");
    return f;
}

void gzip_file_close(struct gzip_file *f)
{
    if (!f)
        return;
    inflateEnd(&f->stream);
    memory_free(f->block);
    memory_free(f->window);
    memory_free(f->path);
    memory_free(f->problem);
    memory_free(f);
}

/* Place of the next compressed byte in the file. */
static long long place(const struct gzip_file *f)
{
    return (long long)(f->read_bytes - f->stream.avail_in);
}

/* Reads more compressed bytes if none are left. 1: there are some; 0: the file ends; -1: a message. */
static int fill_block(struct gzip_file *f)
{
    if (f->stream.avail_in)
        return 1;
    i64 count = blob_read(f->blob, f->block, BLOCK_BYTES);
    f->read_bytes += max_i64(count, 0);
    f->stream.next_in = f->block;
    f->stream.avail_in = (uInt)max_i64(count, 0);
    return count < 0 ? -1 : count > 0;
}

/* Goes to the next member, over zeros, which some programs append. 1: there is one; 0: the file
 * ends. */
static int begin_member(struct gzip_file *f)
{
    int more;
    while ((more = fill_block(f)) == 1 && f->read_bytes > (i64)f->stream.avail_in && *f->stream.next_in == 0) {
        f->stream.next_in++;
        f->stream.avail_in--;
    }
    if (more != 1)
        return more;
    f->begin = place(f);
    if (f->begin && *f->stream.next_in != 0x1f)
        return error_set("%s: byte %lld: something other than gzip behind what gzip compressed", f->path,
                         (long long)f->begin);
    f->inside = true;
    return inflateReset(&f->stream) == Z_OK ? 1 : error_set("%s: zlib cannot begin", f->path);
}

/* Decompresses into the window until it is full or the member ends. */
static int inflate_some(struct gzip_file *f)
{
    int more = fill_block(f);
    if (more < 0)
        return -1;
    int status = inflate(&f->stream, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
        f->inside = false;
        f->checked = WINDOW_BYTES - f->stream.avail_out;
        return 0;
    }
    if (status == Z_OK || (status == Z_BUF_ERROR && more))
        return 0;
    if (status == Z_BUF_ERROR)
        return error_set("%s: byte %lld: the file ends within the gzip member that begins at byte %lld: it is cut "
                         "short",
                         f->path, place(f), (long long)f->begin);
    return error_set("%s: byte %lld: damaged gzip: %s (in the member that begins at byte %lld)", f->path, place(f),
                     f->stream.msg ? f->stream.msg : "it cannot be decompressed", (long long)f->begin);
}

/* Fills the window. If damage follows, it holds the members in front of it, which are whole. */
static int fill_window(struct gzip_file *f)
{
    int more = 1;
    f->at = f->checked = 0;
    f->stream.next_out = f->window;
    f->stream.avail_out = WINDOW_BYTES;
    while (f->stream.avail_out && more == 1) {
        more = f->inside ? 1 : begin_member(f);
        if (more == 1 && inflate_some(f) < 0)
            more = -1;
    }
    f->ended = more != 1;
    f->problem = more < 0 ? string_copy(error_text()) : NULL;
    f->filled = more < 0 ? f->checked : WINDOW_BYTES - f->stream.avail_out;
    return f->filled || !f->problem ? 0 : -1;
}

i64 gzip_file_read(struct gzip_file *f, void *out, i64 most)
{
    if (f->at == f->filled && f->problem)
        return error_set("%s", f->problem);
    if (f->at == f->filled && !f->ended && fill_window(f) < 0)
        return -1;
    i64 count = min_i64(most, f->filled - f->at);
    memcpy(out, f->window + f->at, (size_t)count);
    f->at += count;
    return count;
}

i64 gzip_file_position(const struct gzip_file *f)
{
    return f->read_bytes;
}

/* Decompresses up to `expected` bytes, or one more if there are more. Memory grows with the data,
 * since `expected` may be wrong. Returns their count; -1: damaged. */
static i64 inflate_memory(z_stream *stream, struct buffer *out, i64 expected)
{
    enum { PIECE_BYTES = 1 << 24 };
    i64 total = 0;
    u8 more;
    for (;;) {
        bool full = total == expected;
        if (!full && out->capacity - out->length <= 1)
            text_room(out, max_i64(out->length, min_i64(expected - total, PIECE_BYTES)));
        i64 room = full ? 1 : min_i64(min_i64(out->capacity - out->length - 1, expected - total), PIECE_BYTES);
        stream->next_out = full ? &more : (u8 *)out->data + out->length;
        stream->avail_out = (uInt)room;
        int status = inflate(stream, Z_NO_FLUSH);
        i64 count = room - stream->avail_out;
        out->length += full ? 0 : count;
        total += count;
        if (total > expected || (status == Z_STREAM_END && stream->avail_in == 0))
            return total;
        if (status == Z_STREAM_END ? inflateReset(stream) != Z_OK : status != Z_OK)
            return -1;
    }
}

int gzip_unpack(struct buffer *out, i64 expected, const void *in, i64 bytes)
{
    z_stream stream = {.next_in = (z_const Bytef *)in, .avail_in = (uInt)bytes};
    if (bytes > INT32_MAX)
        return error_set("gzip of %lld bytes, at most %d are read at once", (long long)bytes, INT32_MAX);
    if (bytes == 0)
        return expected == 0 ? 0 : error_set("gzip of no bytes, %lld were announced", (long long)expected);
    if (inflateInit2(&stream, GZIP_BITS) != Z_OK)
        panic("zlib: no memory");
    i64 total = inflate_memory(&stream, out, expected);
    int result = 0;
    if (total < 0)
        result = error_set("damaged gzip: %s", stream.msg ? stream.msg : "it cannot be decompressed");
    else if (total != expected)
        result = error_set("gzip of %s than the %lld %s announced", total > expected ? "more" : "fewer",
                           (long long)expected, plural(expected, "byte that was", "bytes that were"));
    inflateEnd(&stream);
    if (out->data)
        out->data[out->length] = 0;
    return result;
}
