#include "data/formats/archive.h"

#include "data/formats/file_name.h"
#include "data/remote/blob.h"
#include "data/formats/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16 };

struct archive_file {
    struct archive *archive;
    struct blob *blob;
    u8 *block;
    char *path, *problem; /* problem: error of reading the blob */
    i64 member_at;
};

static int damaged(const struct archive_file *f)
{
    if (f->problem)
        return error_set("%s", f->problem);
    const char *why = archive_error_string(f->archive);
    return error_set("%s: byte %lld: %s", f->path, (long long)archive_filter_bytes(f->archive, -1),
                     why ? why : "cannot be read");
}

/* Chooses filters by name only: a text that happens to begin like a compressed file stays a
 * text. */
static void expect_format(struct archive *a, const char *path, bool tar)
{
    if (name_ends_with(path, ".gz"))
        archive_read_support_filter_gzip(a);
    if (name_ends_with(path, ".zst"))
        archive_read_support_filter_zstd(a);
    if (name_ends_with(path, ".xz"))
        archive_read_support_filter_xz(a);
    if (name_ends_with(path, ".bz2"))
        archive_read_support_filter_bzip2(a);
    if (name_ends_with(path, ".lz4"))
        archive_read_support_filter_lz4(a);
    if (tar) {
        archive_read_support_format_tar(a);
    } else {
        archive_read_support_format_raw(a);
    }
    archive_read_support_format_empty(a);
}

static la_ssize_t read_block(struct archive *a, void *context, const void **block)
{
    struct archive_file *f = context;
    i64 count = blob_read(f->blob, f->block, BLOCK_BYTES);
    *block = f->block;
    if (count >= 0)
        return count;
    f->problem = f->problem ? f->problem : string_copy(error_text());
    archive_set_error(a, EIO, "%s", f->problem);
    return -1;
}

static la_int64_t skip_bytes(struct archive *a, void *context, la_int64_t bytes)
{
    (void)a;
    return blob_skip(((struct archive_file *)context)->blob, bytes);
}

struct archive_file *archive_file_open(const char *path, bool tar)
{
    struct archive_file *f = memory_alloc(sizeof *f);
    f->path = string_copy(path);
    f->blob = blob_open(path);
    if (!f->blob) {
        archive_file_close(f);
        return NULL;
    }
    f->block = memory_alloc(BLOCK_BYTES);
    f->archive = archive_read_new();
    require_memory(f->archive, "an archive");
    expect_format(f->archive, path, tar);
    if (archive_read_open2(f->archive, f, NULL, read_block, skip_bytes, NULL) == ARCHIVE_OK)
        return f;
    damaged(f);
    archive_file_close(f);
    return NULL;
}

i64 archive_file_bytes(const struct archive_file *f)
{
    return blob_bytes(f->blob);
}

int archive_file_next(struct archive_file *f, const char **name)
{
    struct archive_entry *entry;
    for (;;) {
        int status = archive_read_next_header(f->archive, &entry);
        if (status == ARCHIVE_EOF)
            return 0;
        if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
            return damaged(f);
        *name = archive_entry_pathname(entry);
        bool as_it_is = archive_filter_code(f->archive, 0) == ARCHIVE_FILTER_NONE && !archive_entry_sparse_count(entry);
        f->member_at = as_it_is ? (i64)archive_filter_bytes(f->archive, 0) : -1;
        bool raw = archive_format(f->archive) == ARCHIVE_FORMAT_RAW;
        if (raw || (*name && archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry)))
            return 1;
    }
}

i64 archive_file_member_at(const struct archive_file *f)
{
    return f->member_at;
}

i64 archive_file_read(struct archive_file *f, void *out, i64 most)
{
    la_ssize_t count = archive_read_data(f->archive, out, (size_t)most);
    return count < 0 ? damaged(f) : (i64)count;
}

int archive_file_read_all(struct archive_file *f, struct buffer *out)
{
    char *block = memory_alloc(BLOCK_BYTES);
    i64 count;
    while ((count = archive_file_read(f, block, BLOCK_BYTES)) > 0) {
        if (out->length + count > ARCHIVE_MEMBER_BYTES_MAX) {
            count = error_set("%s: a member of more than %d bytes", f->path, ARCHIVE_MEMBER_BYTES_MAX);
            break;
        }
        buffer_append(out, block, count);
    }
    memory_free(block);
    return count < 0 ? -1 : 0;
}

i64 archive_file_position(const struct archive_file *f)
{
    return (i64)archive_filter_bytes(f->archive, -1);
}

void archive_file_close(struct archive_file *f)
{
    if (!f)
        return;
    archive_read_free(f->archive);
    blob_close(f->blob);
    memory_free(f->block);
    memory_free(f->problem);
    memory_free(f->path);
    memory_free(f);
}

/* Opens with a fixed filter instead of detection: the decompressed data may itself look
 * compressed. */
static int open_memory(struct archive *a, const char *filter, const void *in, i64 bytes)
{
    struct archive_entry *entry;
    int code = strcmp(filter, "gzip") == 0   ? ARCHIVE_FILTER_GZIP
               : strcmp(filter, "zstd") == 0 ? ARCHIVE_FILTER_ZSTD
                                             : ARCHIVE_FILTER_LZ4;
    archive_read_support_format_raw(a);
    archive_read_support_format_empty(a);
    int status = archive_read_append_filter(a, code);
    if (status == ARCHIVE_OK)
        status = archive_read_open_memory(a, in, (size_t)bytes);
    return status == ARCHIVE_OK ? archive_read_next_header(a, &entry) : status;
}

/* Reads up to `expected` bytes, or one more if there are more. Memory grows with the data, since
 * `expected` may be wrong. */
static i64 read_memory(struct archive *a, struct buffer *out, i64 expected)
{
    enum { PIECE_BYTES = 1 << 24 };
    i64 total = 0;
    la_ssize_t count = 1;
    while (count > 0 && total < expected) {
        if (out->capacity - out->length <= 1)
            text_room(out, max_i64(out->length, min_i64(expected - total, PIECE_BYTES)));
        i64 room = min_i64(out->capacity - out->length - 1, expected - total);
        count = archive_read_data(a, out->data + out->length, (size_t)room);
        out->length += count > 0 ? count : 0;
        total += count > 0 ? count : 0;
    }
    char more;
    if (count >= 0 && archive_read_data(a, &more, 1) != 0)
        return total + 1;
    return count < 0 ? -1 : total;
}

int archive_unpack(struct buffer *out, i64 expected, const char *filter, const void *in, i64 bytes)
{
    struct archive *a = archive_read_new();
    require_memory(a, "an archive");
    int status = open_memory(a, filter, in, bytes);
    i64 total = status == ARCHIVE_OK ? read_memory(a, out, expected) : status == ARCHIVE_EOF ? 0 : -1;
    const char *why = total < 0 ? archive_error_string(a) : NULL;
    int result = 0;
    if (total < 0)
        result = error_set("damaged %s: %s", filter, why ? why : "cannot be unpacked");
    else if (total != expected)
        result = error_set("%s of %s than the %lld bytes that were announced", filter,
                           total > expected ? "more" : "fewer", (long long)expected);
    archive_read_free(a);
    if (out->data)
        out->data[out->length] = 0;
    return result;
}
