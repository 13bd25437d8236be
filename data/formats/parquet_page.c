/* Reads the pages of a column chunk: headers, levels and decompressed values, one entry (levels and
 * value) at a time. */
#include "data/formats/parquet_inside.h"

#include <string.h>
#include <zlib.h>

enum page_type { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_2 };
enum { HEADER_BYTES = 512, HEADER_BYTES_MAX = 1 << 24 };

struct page_header {
    i64 type, bytes, packed_bytes, values, encoding, definition_encoding, repetition_encoding;
    i64 definition_bytes, repetition_bytes; /* for version 2 */
    bool packed, has_crc, has_kind;
    u32 crc;
};

static int damaged(const struct parquet_column *c, const char *what)
{
    return error_set("%s: byte %lld: column %s: %s", c->path, (long long)c->page_at, c->node->name, what);
}

/* ---- Headers ---- */

/* Reads a data page's header. A dictionary's has only the first two fields, and one that tells
 * whether it is sorted. */
static void read_data_header(struct thrift *t, struct page_header *h, int fields)
{
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        i64 *const places[] = {NULL, &h->values, &h->encoding, &h->definition_encoding, &h->repetition_encoding};
        if (field.id >= 1 && field.id <= fields)
            *places[field.id] = thrift_integer(t, &field);
        else
            thrift_skip(t, field.type);
    }
    h->has_kind = true;
}

static void read_data_header_2(struct thrift *t, struct page_header *h)
{
    i64 ignored;
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        i64 *const places[] = {
            NULL, &h->values, &ignored, &ignored, &h->encoding, &h->definition_bytes, &h->repetition_bytes};
        if (field.id >= 1 && field.id < COUNT_OF(places))
            *places[field.id] = thrift_integer(t, &field);
        else if (field.id == 7)
            h->packed = thrift_bool(t, &field);
        else
            thrift_skip(t, field.type);
    }
    h->has_kind = true;
}

static void parse_header(struct thrift *t, struct page_header *h)
{
    *h = (struct page_header){
        .type = -1, .packed = true, .definition_encoding = PARQUET_RLE, .repetition_encoding = PARQUET_RLE};
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        if (field.id == 1)
            h->type = thrift_integer(t, &field);
        else if (field.id == 2)
            h->bytes = thrift_integer(t, &field);
        else if (field.id == 3)
            h->packed_bytes = thrift_integer(t, &field);
        else if (field.id == 4) {
            h->crc = (u32)thrift_integer(t, &field);
            h->has_crc = true;
        } else if ((field.id == 5 || field.id == 7) && field.type == THRIFT_STRUCT)
            read_data_header(t, h, field.id == 5 ? 4 : 2);
        else if (field.id == 8 && field.type == THRIFT_STRUCT)
            read_data_header_2(t, h);
        else
            thrift_skip(t, field.type);
    }
}

static int check_header(const struct parquet_column *c, const struct page_header *h)
{
    if (h->packed_bytes < 0 || h->packed_bytes > c->end - c->at || h->bytes < 0 || h->bytes > INT32_MAX)
        return damaged(c, "a page extends past the end of its column");
    if (h->type != PAGE_DATA && h->type != PAGE_DATA_2 && h->type != PAGE_DICTIONARY)
        return 0;
    if (!h->has_kind || h->values < 0 || h->values > INT32_MAX)
        return damaged(c, "a page header lacks its type");
    if (h->type != PAGE_DICTIONARY && h->values > c->left)
        return damaged(c, "more values in the pages than in the footer");
    if (h->type == PAGE_DATA && ((c->node->definition && h->definition_encoding != PARQUET_RLE) ||
                                 (c->node->repeated && h->repetition_encoding != PARQUET_RLE)))
        return damaged(c, "levels that are not in encoding RLE (BIT_PACKED is not read)");
    i64 levels = h->definition_bytes, more = h->repetition_bytes;
    if (h->type == PAGE_DATA_2 && (levels < 0 || more < 0 || levels + more > min_i64(h->packed_bytes, h->bytes)))
        return damaged(c, "levels of more bytes than their page");
    return 0;
}

/* Reads a page header. Headers do not state their length, so more is read until one fits. */
static int read_header(struct parquet_column *c, struct page_header *h)
{
    c->page_at = c->at;
    for (i64 wanted = HEADER_BYTES;; wanted *= 16) {
        i64 bytes = min_i64(wanted, c->end - c->at);
        buffer_clear(&c->packed);
        text_room(&c->packed, bytes);
        if (blob_read_at(c->blob, c->packed.data, c->at, bytes) < 0)
            return -1;
        struct thrift t = {.data = (const u8 *)c->packed.data, .bytes = bytes};
        parse_header(&t, h);
        if (t.problem && t.short_of_bytes && bytes == wanted && wanted < HEADER_BYTES_MAX)
            continue;
        if (t.problem)
            return damaged(c, t.short_of_bytes ? "its pages end before its values" : "a damaged header of a page");
        c->at += t.at;
        return check_header(c, h);
    }
}

/* ---- Contents ---- */

static enum packing packing_of(int codec)
{
    static const enum packing packings[] = {
        [0] = PACKED_NOT, [1] = PACKED_SNAPPY, [2] = PACKED_GZIP, [6] = PACKED_ZSTD, [7] = PACKED_LZ4};
    return packings[codec];
}

static int check_codec(const struct parquet_column *c)
{
    static const char *const unread[] = {[3] = "LZO", [4] = "Brotli", [5] = "LZ4 in Hadoop's frames", [7] = NULL};
    if (c->codec < 0 || c->codec > 7)
        return error_set("%s: column %s: compressed by codec %d, which is none that is known", c->path, c->node->name,
                         c->codec);
    return unread[c->codec]
               ? error_set("%s: column %s: compressed by %s, which is not read: expected Snappy, gzip, zstd or LZ4_RAW",
                           c->path, c->node->name, unread[c->codec])
               : 0;
}

/* Reads and decompresses a page. Its first `plain` bytes, the levels of version 2, are not
 * compressed. */
static int read_page(struct parquet_column *c, const struct page_header *h, struct buffer *out, i64 plain)
{
    buffer_clear(&c->packed);
    text_room(&c->packed, h->packed_bytes);
    if (blob_read_at(c->blob, c->packed.data, c->at, h->packed_bytes) < 0)
        return -1;
    const u8 *packed = (const u8 *)c->packed.data;
    c->at += h->packed_bytes;
    if (h->has_crc && crc32_z(0, packed, (size_t)h->packed_bytes) != h->crc)
        return damaged(c, "page checksum mismatch");
    buffer_clear(out);
    text_room(out, plain);
    buffer_append(out, packed, plain);
    enum packing packing = h->packed ? packing_of(c->codec) : PACKED_NOT;
    if (h->bytes > plain && unpack_exactly(out, h->bytes - plain, packing, packed + plain, h->packed_bytes - plain) < 0)
        return error_prefix("%s: byte %lld: column %s", c->path, (long long)c->page_at, c->node->name);
    return 0;
}

static int read_dictionary(struct parquet_column *c, const struct page_header *h)
{
    if (h->encoding != PARQUET_PLAIN && h->encoding != PARQUET_PLAIN_DICTIONARY)
        return damaged(c, "a dictionary that is not in encoding PLAIN");
    if (read_page(c, h, &c->dictionary.bytes, 0) < 0)
        return -1;
    if (dictionary_read(&c->dictionary, c->node->type, parquet_width(c->node), h->values) < 0)
        return error_prefix("%s: byte %lld: column %s", c->path, (long long)c->page_at, c->node->name);
    return 0;
}

/* ---- Levels ---- */

static int level_width(int most)
{
    int width = 0;
    while (most >> width)
        width++;
    return width;
}

/* Opens levels of version 1, which follow their 4-byte length. */
static int open_levels(struct parquet_column *c, struct bit_runs *runs, int most, const u8 **at, const u8 *end)
{
    u32 length = 0;
    if (most == 0)
        return 0;
    if (end - *at >= 4)
        memcpy(&length, *at, 4);
    if (end - *at < 4 || length > end - *at - 4)
        return damaged(c, "levels of more bytes than their page");
    bit_runs_open(runs, *at + 4, *at + 4 + length, level_width(most));
    *at += 4 + length;
    return 0;
}

static int open_data(struct parquet_column *c, const struct page_header *h)
{
    const struct parquet_node *node = c->node;
    i64 repetitions = h->type == PAGE_DATA_2 ? h->repetition_bytes : 0,
        definitions = h->type == PAGE_DATA_2 ? h->definition_bytes : 0;
    if (read_page(c, h, &c->page, repetitions + definitions) < 0)
        return -1;
    const u8 *at = (const u8 *)(c->page.data ? c->page.data : ""), *end = at + c->page.length;
    if (h->type == PAGE_DATA_2) {
        bit_runs_open(&c->repetitions, at, at + repetitions, level_width(node->repeated));
        at += repetitions;
        bit_runs_open(&c->definitions, at, at + definitions, level_width(node->definition));
        at += definitions;
    } else if (open_levels(c, &c->repetitions, node->repeated, &at, end) < 0 ||
               open_levels(c, &c->definitions, node->definition, &at, end) < 0) {
        return -1;
    }
    if (values_open(&c->values, node, (int)h->encoding, at, end, &c->dictionary) < 0)
        return error_prefix("%s: byte %lld: column %s", c->path, (long long)c->page_at, node->name);
    c->page_left = h->values;
    c->left -= h->values;
    return 0;
}

static int next_page(struct parquet_column *c)
{
    struct page_header header;
    if (c->at >= c->end) {
        c->page_at = c->at;
        return damaged(c, "its pages end before its values");
    }
    if (read_header(c, &header) < 0)
        return -1;
    if (header.type == PAGE_DICTIONARY)
        return read_dictionary(c, &header);
    if (header.type == PAGE_DATA || header.type == PAGE_DATA_2)
        return open_data(c, &header);
    c->at += header.packed_bytes; /* an index page, or an unknown type */
    return 0;
}

/* ---- Entries ---- */

void parquet_column_begin(struct parquet_column *c, const struct parquet_chunk *chunk)
{
    c->at = chunk->offset;
    c->end = chunk->offset + chunk->bytes;
    c->left = chunk->values;
    c->codec = chunk->codec;
    c->page_left = 0;
    c->ahead = false;
    c->dictionary.count = 0;
}

static bool read_level(struct bit_runs *runs, int most, int *out)
{
    u32 level = 0;
    bool there = most == 0 || bit_runs_next(runs, &level);
    *out = (int)level;
    return there && level <= (u32)most;
}

int parquet_column_peek(struct parquet_column *c)
{
    if (c->ahead)
        return 1;
    if (c->left && check_codec(c) < 0)
        return -1;
    while (c->page_left == 0) {
        if (c->left == 0)
            return 0;
        if (next_page(c) < 0)
            return -1;
    }
    if (!read_level(&c->repetitions, c->node->repeated, &c->repetition) ||
        !read_level(&c->definitions, c->node->definition, &c->definition))
        return damaged(c, "a page that ends before its levels, or levels that are too high");
    if (c->definition == c->node->definition && !values_next(&c->values, &c->value))
        return damaged(c, "a page that ends before its values, or values outside of its dictionary");
    c->page_left--;
    c->ahead = true;
    return 1;
}

void parquet_column_release(struct parquet_column *c)
{
    buffer_release(&c->packed);
    buffer_release(&c->page);
    dictionary_release(&c->dictionary);
    values_release(&c->values);
}
