#include "data/formats/packed_file.h"

#include "data/formats/file_name.h"
#include "data/formats/gzip.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16 };

struct packed_file {
    struct blob *blob;
    struct gzip_file *gzip;  /* of .gz */
    struct archive *archive; /* of the other compressions */
    u8 *block;               /* of compressed bytes, for the archive */
    i64 block_bytes;         /* that the last block had */
    i64 ahead_bytes;         /* at the front of the block, read before the archive asked for them */
    char *path, *problem;    /* problem: error of reading the blob */
    i64 read_bytes;          /* bytes of the file read so far */
    i64 passed_bytes;        /* of skippable frames in front of the archive */
    bool ended;
};

/* Chooses by name only: a text that happens to begin like a compressed file stays a text. */
static int (*filter_of(const char *path))(struct archive *)
{
    static const struct {
        const char *suffix;
        int (*filter)(struct archive *);
    } filters[] = {{".zst", archive_read_support_filter_zstd},  {".tzst", archive_read_support_filter_zstd},
                   {".xz", archive_read_support_filter_xz},     {".txz", archive_read_support_filter_xz},
                   {".bz2", archive_read_support_filter_bzip2}, {".tbz2", archive_read_support_filter_bzip2},
                   {".tbz", archive_read_support_filter_bzip2}, {".lz4", archive_read_support_filter_lz4}};
    for (i64 i = 0; i < COUNT_OF(filters); i++)
        if (name_ends_with(path, filters[i].suffix))
            return filters[i].filter;
    return NULL;
}

static i64 read_blob(struct packed_file *f, void *out, i64 most)
{
    i64 count = blob_read(f->blob, out, most);
    f->read_bytes += max_i64(count, 0);
    return count;
}

static la_ssize_t read_block(struct archive *a, void *context, const void **block)
{
    struct packed_file *f = context;
    i64 count = f->ahead_bytes > 0 ? f->ahead_bytes : read_blob(f, f->block, BLOCK_BYTES);
    *block = f->block;
    f->ahead_bytes = 0;
    f->block_bytes = count > 0 ? count : f->block_bytes;
    if (count >= 0)
        return count;
    f->problem = f->problem ? f->problem : string_copy(error_text());
    archive_set_error(a, EIO, "%s", f->problem);
    return -1;
}

static int damaged(const struct packed_file *f)
{
    if (f->problem)
        return error_set("%s", f->problem);
    const char *why = archive_error_string(f->archive);
    return error_set("%s: byte %lld: %s", f->path, (long long)archive_filter_bytes(f->archive, -1),
                     why ? why : "damaged: it cannot be decompressed");
}

/* Reads `most` bytes, or up to the end of the file. */
static i64 fill(struct packed_file *f, u8 *out, i64 most)
{
    i64 filled = 0, count = 1;
    while (filled < most && (count = read_blob(f, out + filled, most - filled)) > 0)
        filled += count;
    return count < 0 ? -1 : filled;
}

/* Passes over skippable frames (a number, a length and any bytes) in front of LZ4 and zstd frames. Not
 * all versions of libarchive know them there. */
static int pass_skippable(struct packed_file *f)
{
    enum { HEAD_BYTES = 8 };
    for (;;) {
        f->ahead_bytes = fill(f, f->block, HEAD_BYTES);
        bool skippable = f->ahead_bytes == HEAD_BYTES && (f->block[0] & 0xf0) == 0x50 && f->block[1] == 0x2a &&
                         f->block[2] == 0x4d && f->block[3] == 0x18;
        f->passed_bytes = f->read_bytes - max_i64(f->ahead_bytes, 0);
        if (!skippable)
            return f->ahead_bytes < 0 ? -1 : 0;
        i64 left = 0;
        for (int i = 3; i >= 0; i--)
            left = left << 8 | f->block[4 + i];
        for (i64 count; left > 0; left -= count)
            if ((count = fill(f, f->block, min_i64(left, BLOCK_BYTES))) <= 0)
                return count < 0 ? -1 : error_set("%s: cut short within a skippable frame in front", f->path);
    }
}

static int open_archive(struct packed_file *f, int (*filter)(struct archive *))
{
    struct archive_entry *entry;
    f->block = memory_alloc(BLOCK_BYTES);
    bool frames = name_ends_with(f->path, ".lz4") || name_ends_with(f->path, "zst");
    if (frames && pass_skippable(f) < 0)
        return -1;
    f->archive = archive_read_new();
    require_memory(f->archive, "an archive");
    filter(f->archive);
    archive_read_support_format_raw(f->archive);
    archive_read_support_format_empty(f->archive);
    if (archive_read_open2(f->archive, f, NULL, read_block, NULL, NULL) != ARCHIVE_OK)
        return damaged(f);
    int status = archive_read_next_header(f->archive, &entry);
    f->ended = status == ARCHIVE_EOF;
    if (status == ARCHIVE_OK && archive_filter_code(f->archive, 0) == ARCHIVE_FILTER_NONE)
        return error_set("%s: not compressed as its name says", f->path);
    return f->ended || status == ARCHIVE_OK ? 0 : damaged(f);
}

struct packed_file *packed_file_open(const char *path)
{
    struct packed_file *f = memory_alloc(sizeof *f);
    *f = (struct packed_file){.path = string_copy(path), .blob = blob_open(path)};
    int (*filter)(struct archive *) = filter_of(path);
    int status = f->blob ? 0 : -1;
    if (status == 0 && (name_ends_with(path, ".gz") || name_ends_with(path, ".tgz")))
        f->gzip = gzip_file_open(f->blob, path);
    else if (status == 0 && filter)
        status = open_archive(f, filter);
    if (status == 0)
        return f;
    packed_file_close(f);
    return NULL;
}

bool packed_file_is_packed(const struct packed_file *f)
{
    return f->gzip || f->archive;
}

static bool is_zero(const u8 *bytes, i64 count)
{
    while (count > 0 && bytes[count - 1] == 0)
        count--;
    return count == 0;
}

/* Some filters of libarchive end at the first bytes that they do not know. */
static int check_rest(struct packed_file *f)
{
    i64 used = f->passed_bytes + (i64)archive_filter_bytes(f->archive, -1),
        count = min_i64(f->read_bytes - used, f->block_bytes);
    bool padding = is_zero(f->block + f->block_bytes - count, count);
    while (padding && (count = read_blob(f, f->block, BLOCK_BYTES)) > 0)
        padding = is_zero(f->block, count);
    if (padding)
        return count < 0 ? -1 : 0;
    return error_set("%s: byte %lld: something that is not compressed behind what is", f->path, (long long)used);
}

i64 packed_file_read(struct packed_file *f, void *out, i64 most)
{
    if (f->gzip)
        return gzip_file_read(f->gzip, out, most);
    if (!f->archive)
        return read_blob(f, out, most);
    if (f->ended)
        return 0;
    la_ssize_t count = archive_read_data(f->archive, out, (size_t)most);
    if (count < 0)
        return damaged(f);
    f->ended = count == 0;
    return f->ended ? check_rest(f) : (i64)count;
}

i64 packed_file_skip(struct packed_file *f, i64 bytes)
{
    i64 skipped = packed_file_is_packed(f) ? 0 : blob_skip(f->blob, bytes);
    f->read_bytes += skipped;
    return skipped;
}

i64 packed_file_position(const struct packed_file *f)
{
    return f->gzip ? gzip_file_position(f->gzip) : f->read_bytes;
}

i64 packed_file_bytes(const struct packed_file *f)
{
    return blob_bytes(f->blob);
}

void packed_file_close(struct packed_file *f)
{
    if (!f)
        return;
    if (f->archive)
        archive_read_free(f->archive);
    gzip_file_close(f->gzip);
    blob_close(f->blob);
    memory_free(f->block);
    memory_free(f->problem);
    memory_free(f->path);
    memory_free(f);
}
