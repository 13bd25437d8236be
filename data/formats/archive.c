#include "data/formats/archive.h"

#include "data/formats/file_name.h"
#include "data/formats/packed_file.h"
#include "data/formats/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <locale.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16, TAR_BLOCK_BYTES = 512 };

struct archive_file {
    struct packed_file *packed;
    struct archive *tar; /* or zip; NULL: the file is the only member */
    locale_t locale;     /* in which libarchive reads the names of a zip; 0: a tar, whose names are bytes */
    struct archive_entry *entry;
    u8 *block;
    i64 at, filled;       /* of the block of a file that is no tar */
    char *path, *problem; /* problem: error of reading the file */
    i64 member_at;
    bool begun, mark; /* mark: the last block read ends with zeros, as a tar does */
};

static int damaged(const struct archive_file *f)
{
    if (f->problem)
        return error_set("%s", f->problem);
    const char *why = archive_error_string(f->tar);
    return error_set("%s: byte %lld: %s", f->path, (long long)archive_filter_bytes(f->tar, -1),
                     why ? why : "cannot be read");
}

static bool is_zip(const struct archive_file *f)
{
    return name_ends_with(f->path, ".zip");
}

static bool ends_with_zeros(const u8 *block, i64 bytes)
{
    i64 zeros = 0;
    while (zeros < min_i64(bytes, TAR_BLOCK_BYTES) && block[bytes - 1 - zeros] == 0)
        zeros++;
    return zeros == TAR_BLOCK_BYTES;
}

static la_ssize_t read_block(struct archive *a, void *context, const void **block)
{
    struct archive_file *f = context;
    i64 filled = 0, count = 1;
    while (filled < BLOCK_BYTES && (count = packed_file_read(f->packed, f->block + filled, BLOCK_BYTES - filled)) > 0)
        filled += count;
    *block = f->block;
    f->mark = filled ? ends_with_zeros(f->block, filled) : f->mark;
    if (count >= 0 || filled)
        return filled;
    f->problem = f->problem ? f->problem : string_copy(error_text());
    archive_set_error(a, EIO, "%s", f->problem);
    return -1;
}

static la_int64_t skip_bytes(struct archive *a, void *context, la_int64_t bytes)
{
    (void)a;
    return packed_file_skip(((struct archive_file *)context)->packed, bytes);
}

static int open_tar(struct archive_file *f)
{
    f->tar = archive_read_new();
    require_memory(f->tar, "an archive");
    archive_read_support_format_empty(f->tar);
    if (is_zip(f)) {
        f->locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
        archive_read_support_format_zip_streamable(f->tar);
    } else {
        archive_read_support_format_tar(f->tar);
        archive_read_set_format_option(f->tar, "tar", "read_concatenated_archives", "1");
    }
    bool opened = archive_read_open2(f->tar, f, NULL, read_block, skip_bytes, NULL) == ARCHIVE_OK;
    return opened ? 0 : damaged(f);
}

struct archive_file *archive_file_open(const char *path, bool tar)
{
    struct archive_file *f = memory_alloc(sizeof *f);
    *f = (struct archive_file){.path = string_copy(path), .packed = packed_file_open(path), .member_at = -1};
    f->block = memory_alloc(BLOCK_BYTES);
    if (f->packed && (!tar || open_tar(f) == 0))
        return f;
    archive_file_close(f);
    return NULL;
}

i64 archive_file_bytes(const struct archive_file *f)
{
    return packed_file_bytes(f->packed);
}

/* Reads the first block of a file that is no tar. An empty one has no member. */
static int begin_file(struct archive_file *f, const char **name)
{
    if (f->begun)
        return 0;
    f->begun = true;
    f->filled = packed_file_read(f->packed, f->block, BLOCK_BYTES);
    *name = f->path;
    return f->filled < 0 ? -1 : f->filled > 0;
}

/* Names of a zip are UTF-8, which libarchive turns to the charset of the locale. */
static int next_header(struct archive_file *f)
{
    locale_t before = f->locale ? uselocale(f->locale) : (locale_t)0;
    int status = archive_read_next_header(f->tar, &f->entry);
    if (f->locale)
        uselocale(before);
    return status;
}

int archive_file_next(struct archive_file *f, const char **name)
{
    if (!f->tar)
        return begin_file(f, name);
    for (;;) {
        int status = next_header(f);
        if (status == ARCHIVE_EOF)
            return 0;
        if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
            return damaged(f);
        *name = archive_entry_pathname(f->entry);
        bool as_it_is = !packed_file_is_packed(f->packed) && !is_zip(f) && !archive_entry_sparse_count(f->entry);
        f->member_at = as_it_is ? (i64)archive_filter_bytes(f->tar, 0) : -1;
        bool symbolic, link = archive_file_link(f, &symbolic) != NULL;
        if (*name && (link || archive_entry_filetype(f->entry) == AE_IFREG))
            return 1;
    }
}

const char *archive_file_link(const struct archive_file *f, bool *symbolic)
{
    const char *hard = archive_entry_size(f->entry) > 0 ? NULL : archive_entry_hardlink(f->entry);
    *symbolic = !hard;
    return hard ? hard : archive_entry_symlink(f->entry);
}

i64 archive_file_member_bytes(const struct archive_file *f)
{
    return (i64)archive_entry_size(f->entry);
}

bool archive_file_is_whole(const struct archive_file *f)
{
    return f->mark || is_zip(f);
}

i64 archive_file_member_at(const struct archive_file *f)
{
    return f->member_at;
}

i64 archive_file_read(struct archive_file *f, void *out, i64 most)
{
    if (f->tar) {
        la_ssize_t count = archive_read_data(f->tar, out, (size_t)most);
        return count < 0 ? damaged(f) : (i64)count;
    }
    if (f->at == f->filled)
        return packed_file_read(f->packed, out, most);
    i64 count = min_i64(most, f->filled - f->at);
    memcpy(out, f->block + f->at, (size_t)count);
    f->at += count;
    return count;
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
    return packed_file_position(f->packed);
}

void archive_file_close(struct archive_file *f)
{
    if (!f)
        return;
    if (f->tar)
        archive_read_free(f->tar);
    if (f->locale)
        freelocale(f->locale);
    packed_file_close(f->packed);
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
    int code = strcmp(filter, "zstd") == 0 ? ARCHIVE_FILTER_ZSTD : ARCHIVE_FILTER_LZ4;
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
        result = error_set("%s of %s than the %lld %s announced", filter, total > expected ? "more" : "fewer",
                           (long long)expected, plural(expected, "byte that was", "bytes that were"));
    archive_read_free(a);
    if (out->data)
        out->data[out->length] = 0;
    return result;
}
