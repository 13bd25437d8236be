/* Reads Megatron's indexed datasets. PREFIX.idx locates each sequence of ids in PREFIX.bin and
 * groups sequences into documents. Little-endian, unaligned. Both files may be at an address; the
 * lists of the index are then fetched in windows. */
#include "data/remote/blob.h"
#include "data/sources/source_readers.h"

#include <string.h>

enum { IDX_HEADER = 34, WINDOW_ENTRIES = 8192 };

/* A list of the index, with a window of its entries in memory. */
struct idx_list {
    i64 offset, count, width; /* byte offset; number of entries; bytes per entry */
    i64 first;                /* first entry of the window */
    struct blob_span span;
};
struct idx {
    struct blob *index, *ids;
    i64 index_bytes, ids_bytes;
    bool unread; /* the last error was a failed read, not bad data */
    bool bad;    /* a document could not be read */
    struct skip_notes *notes;
    char *path, *ids_path;
    int dtype; /* 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16 */
    /* given: ids returned; more than the file has: sequences overlap. */
    i64 sequences, documents, next, given;
    struct idx_list lengths, offsets, first; /* i32 [sequences], i64 [sequences], i64 [documents + 1] */
};

static i64 read_i64(const u8 *at)
{
    i64 value;
    memcpy(&value, at, 8);
    return value;
}

static i32 read_i32(const u8 *at)
{
    i32 value;
    memcpy(&value, at, 4);
    return value;
}

static i64 id_bytes(int dtype)
{
    static const i64 bytes[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
    return dtype >= 0 && dtype < COUNT_OF(bytes) ? bytes[dtype] : 0;
}

/* Reads one entry of a list. -1 with a message. */
static int list_entry(i64 *out, struct idx *x, struct idx_list *list, i64 index)
{
    if (index < list->first || (index - list->first + 1) * list->width > list->span.bytes) {
        blob_span_release(&list->span);
        list->first = index;
        i64 count = min_i64(WINDOW_ENTRIES, list->count - index);
        x->unread = blob_span(x->index, &list->span, list->offset + index * list->width, count * list->width) < 0;
        if (x->unread)
            return -1;
    }
    const u8 *at = list->span.data + (index - list->first) * list->width;
    *out = list->width == 4 ? read_i32(at) : read_i64(at);
    return 0;
}

static int read_header(struct idx *x)
{
    u8 at[IDX_HEADER];
    i64 bytes = x->index_bytes;
    if (bytes >= IDX_HEADER && blob_read_at(x->index, at, 0, IDX_HEADER) < 0)
        return -1;
    if (bytes < IDX_HEADER || memcmp(at, "MMIDIDX\0\0", 9) != 0)
        return error_set("%s: byte 0: not an index of Megatron (\"MMIDIDX\")", x->path);
    if (read_i64(at + 9) != 1)
        return error_set("%s: byte 9: version %lld, expected 1", x->path, (long long)read_i64(at + 9));
    x->dtype = at[17];
    if (id_bytes(x->dtype) == 0)
        return error_set("%s: byte 17: ids of type %d: expected whole numbers (1 to 5, or 8)", x->path, x->dtype);
    x->sequences = read_i64(at + 18);
    i64 marks = read_i64(at + 26), room = bytes - IDX_HEADER;
    if (x->sequences < 0 || marks < 1 || x->sequences > room / 12 || marks > (room - 12 * x->sequences) / 8)
        return error_set(
            "%s: byte 18: %lld sequences and %lld marks of documents do not fit into %lld bytes: cut short", x->path,
            (long long)x->sequences, (long long)marks, (long long)bytes);
    x->documents = marks - 1;
    x->lengths = (struct idx_list){.offset = IDX_HEADER, .count = x->sequences, .width = 4};
    x->offsets = (struct idx_list){.offset = IDX_HEADER + 4 * x->sequences, .count = x->sequences, .width = 8};
    x->first = (struct idx_list){.offset = IDX_HEADER + 12 * x->sequences, .count = marks, .width = 8};
    return 0;
}

static void idx_close(void *reader)
{
    struct idx *x = reader;
    blob_span_release(&x->lengths.span);
    blob_span_release(&x->offsets.span);
    blob_span_release(&x->first.span);
    blob_close(x->index);
    blob_close(x->ids);
    memory_free(x->path);
    memory_free(x->ids_path);
    memory_free(x);
}

static i64 idx_position(const void *reader)
{
    const struct idx *x = reader;
    return x->documents ? (i64)((double)x->index_bytes * (double)x->next / (double)x->documents) : 0;
}

/* Opens a blob whose size is known. NULL with a message. */
static struct blob *open_sized(i64 *bytes, const char *path)
{
    struct blob *blob = blob_open(path);
    *bytes = blob ? blob_bytes(blob) : -2;
    if (*bytes == -1)
        error_set("%s: unknown length: expected a file, or a server that sends Content-Length", path);
    if (*bytes >= 0)
        return blob;
    blob_close(blob);
    return NULL;
}

static void *idx_open(const struct source_file *file, struct read_context *reading)
{
    struct idx *x = memory_alloc(sizeof *x);
    const char *path = file->path;
    x->notes = &reading->notes;
    x->path = string_copy(path);
    x->ids_path = string_format("%.*sbin", (int)strlen(path) - 3, path);
    if (!(x->index = open_sized(&x->index_bytes, path)) || read_header(x) < 0 ||
        !(x->ids = open_sized(&x->ids_bytes, x->ids_path))) {
        idx_close(x);
        return NULL;
    }
    return x;
}

static i64 read_id(const struct idx *x, const u8 *at)
{
    switch (x->dtype) {
    case 1:
        return at[0];
    case 2:
        return (signed char)at[0];
    case 3:
        return (int16_t)(at[0] | at[1] << 8);
    case 4:
        return read_i32(at);
    case 5:
        return read_i64(at);
    default:
        return at[0] | at[1] << 8;
    }
}

static int add_ids(struct idx *x, struct buffer *out, const u8 *at, i64 length, i64 offset)
{
    i64 size = id_bytes(x->dtype);
    for (i64 i = 0; i < length; i++) {
        i64 id = read_id(x, at + i * size);
        i32 narrow = (i32)id;
        if (id < 0 || id != narrow)
            return error_set("%s: byte %lld: id %lld", x->ids_path, (long long)(offset + i * size), (long long)id);
        buffer_append(out, &narrow, 4);
    }
    x->given += length;
    return 0;
}

static int add_sequence(struct idx *x, struct buffer *out, i64 sequence)
{
    struct blob_span span;
    i64 length, offset, size = id_bytes(x->dtype);
    if (list_entry(&length, x, &x->lengths, sequence) < 0 || list_entry(&offset, x, &x->offsets, sequence) < 0)
        return -1;
    if (length < 0 || offset < 0 || offset > x->ids_bytes || length > (x->ids_bytes - offset) / size)
        return error_set("sequence %lld: %lld ids at byte %lld lie outside %s of %lld bytes", (long long)sequence,
                         (long long)length, (long long)offset, x->ids_path, (long long)x->ids_bytes);
    x->unread = blob_span(x->ids, &span, offset, length * size) < 0;
    if (x->unread)
        return -1;
    int status = add_ids(x, out, span.data, length, offset);
    blob_span_release(&span);
    return status;
}

static int add_document(struct idx *x, struct sample *out, i64 document)
{
    i64 first, end;
    struct buffer *ids = &sample_add(out, SAMPLE_IDS)->bytes;
    if (list_entry(&first, x, &x->first, document) < 0 || list_entry(&end, x, &x->first, document + 1) < 0)
        return -1;
    if (first < 0 || end < first || end > x->sequences)
        return error_set("sequences %lld to %lld of %lld", (long long)first, (long long)end, (long long)x->sequences);
    for (i64 sequence = first; sequence < end; sequence++) {
        if (add_sequence(x, ids, sequence) < 0)
            return -1;
        if (ids->length > 1 << 28)
            return error_set("more than %d ids", 1 << 26);
    }
    return 0;
}

static enum source_result idx_next(void *reader, struct sample *out)
{
    struct idx *x = reader;
    while (x->next < x->documents) {
        if (x->given > x->ids_bytes / id_bytes(x->dtype)) {
            error_set("%s: its sequences overlap: more ids than %s holds", x->path, x->ids_path);
            return SOURCE_DAMAGED;
        }
        i64 document = x->next++;
        out->name = string_format("%s:%lld", x->path, (long long)document);
        out->layout = SAMPLE_PLAIN;
        int status = add_document(x, out, document);
        if (status == 0 && out->parts[0].bytes.length > 0)
            return SOURCE_SAMPLE;
        if (status < 0)
            error_prefix("%s", out->name);
        sample_release(out);
        x->bad = x->bad || status < 0;
        if (status < 0)
            return x->unread ? SOURCE_DAMAGED : SOURCE_BAD;
    }
    if (!x->bad && x->given < x->ids_bytes / id_bytes(x->dtype))
        notes_add(x->notes, x->path, "indexes that name fewer ids than the .bin beside them holds");
    return SOURCE_END;
}

const struct reader_kind index_reader = {".idx", idx_open, idx_next, idx_position, idx_close};
