/* Decodes the values of a page one by one, in each encoding. */
#include "data/formats/parquet_inside.h"

#include <string.h>

i64 parquet_width(const struct parquet_node *node)
{
    static const i64 widths[] = {[PARQUET_INT32] = 4, [PARQUET_INT64] = 8,  [PARQUET_INT96] = 12,
                                 [PARQUET_FLOAT] = 4, [PARQUET_DOUBLE] = 8, [PARQUET_BYTES] = 0};
    return node->type == PARQUET_FIXED ? node->width : node->type < PARQUET_FIXED ? widths[node->type] : 0;
}

static u32 read_u32(const u8 *at)
{
    u32 value;
    memcpy(&value, at, 4);
    return value;
}

static void take(struct parquet_value *out, const u8 *bytes, i64 length)
{
    *out = (struct parquet_value){.bytes = bytes, .length = length};
    memcpy(&out->bits, bytes, (size_t)min_i64(length, 8));
}

/* ---- Dictionaries ---- */

static void add_offset(struct parquet_dictionary *d, i64 index, i64 offset)
{
    if (index == d->capacity) {
        i64 wanted = max_i64(256, 2 * d->capacity);
        d->offsets = memory_resize(d->offsets, d->capacity * 8, wanted * 8);
        d->capacity = wanted;
    }
    d->offsets[index] = offset;
}

int dictionary_read(struct parquet_dictionary *d, int type, i64 width, i64 count)
{
    i64 at = 0, bytes = d->bytes.length;
    d->count = 0;
    if (type == PARQUET_BOOLEAN || (width && count > bytes / width))
        return error_set("a dictionary of %lld %s in %lld %s", (long long)count, plural(count, "value", "values"),
                         (long long)bytes, plural(bytes, "byte", "bytes"));
    for (i64 i = 0; !width && i < count; i++) {
        u32 length = bytes - at >= 4 ? read_u32((const u8 *)d->bytes.data + at) : 0;
        if (bytes - at < 4 || length > bytes - at - 4)
            return error_set("value %lld of %lld of a dictionary extends past its end", (long long)i, (long long)count);
        add_offset(d, i, at);
        at += 4 + (i64)length;
    }
    if (!width)
        add_offset(d, count, at);
    d->count = count;
    return 0;
}

void dictionary_release(struct parquet_dictionary *d)
{
    buffer_release(&d->bytes);
    memory_free(d->offsets);
    *d = (struct parquet_dictionary){0};
}

static bool look_up(struct parquet_values *v, struct parquet_value *out)
{
    u32 index;
    const struct parquet_dictionary *d = v->dictionary;
    if (!bit_runs_next(&v->runs, &index) || index >= d->count)
        return false;
    const u8 *bytes = (const u8 *)d->bytes.data;
    if (v->width)
        take(out, bytes + index * v->width, v->width);
    else
        take(out, bytes + d->offsets[index] + 4, d->offsets[index + 1] - d->offsets[index] - 4);
    return true;
}

/* ---- Opening ---- */

static bool open_lengths(struct parquet_values *v)
{
    struct delta_runs passing;
    if (!deltas_open(&v->lengths, v->at, v->end))
        return false;
    passing = v->lengths;
    v->at = deltas_end(&passing);
    return v->at != NULL;
}

/* DELTA_BYTE_ARRAY: lengths of the prefixes, lengths of the suffixes, bytes of the suffixes. */
static bool open_prefixes(struct parquet_values *v)
{
    struct delta_runs passing;
    buffer_clear(&v->last);
    if (!deltas_open(&v->prefixes, v->at, v->end))
        return false;
    passing = v->prefixes;
    v->at = deltas_end(&passing);
    return v->at && open_lengths(v);
}

static bool open_indices(struct parquet_values *v)
{
    if (!v->dictionary->count && v->at == v->end)
        return true;
    if (v->at == v->end || *v->at > 32)
        return false;
    bit_runs_open(&v->runs, v->at + 1, v->end, *v->at);
    return true;
}

static bool open_booleans(struct parquet_values *v)
{
    if (v->end - v->at < 4 || read_u32(v->at) > v->end - v->at - 4)
        return false;
    bit_runs_open(&v->runs, v->at + 4, v->at + 4 + read_u32(v->at), 1);
    return true;
}

static bool fits(int type, int encoding)
{
    bool whole = type == PARQUET_INT32 || type == PARQUET_INT64;
    switch (encoding) {
    case PARQUET_PLAIN:
        return true;
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        return type != PARQUET_BOOLEAN;
    case PARQUET_RLE:
        return type == PARQUET_BOOLEAN;
    case PARQUET_DELTA_BINARY:
        return whole;
    case PARQUET_DELTA_LENGTH:
        return type == PARQUET_BYTES;
    case PARQUET_DELTA_BYTES:
        return type == PARQUET_BYTES || type == PARQUET_FIXED;
    case PARQUET_BYTE_SPLIT:
        return whole || type == PARQUET_FLOAT || type == PARQUET_DOUBLE || type == PARQUET_FIXED;
    default:
        return false;
    }
}

static bool begin(struct parquet_values *v)
{
    switch (v->encoding) {
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        return open_indices(v);
    case PARQUET_RLE:
        return open_booleans(v);
    case PARQUET_DELTA_BINARY:
        return v->at == v->end || deltas_open(&v->lengths, v->at, v->end);
    case PARQUET_DELTA_LENGTH:
        return v->at == v->end || open_lengths(v);
    case PARQUET_DELTA_BYTES:
        return v->at == v->end || open_prefixes(v);
    case PARQUET_BYTE_SPLIT:
        v->count = (v->end - v->at) / v->width;
        return true;
    default:
        return true;
    }
}

int values_open(struct parquet_values *v, const struct parquet_node *node, int encoding, const u8 *at, const u8 *end,
                const struct parquet_dictionary *dictionary)
{
    struct buffer last = v->last;
    *v = (struct parquet_values){.type = node->type,
                                 .encoding = encoding,
                                 .width = parquet_width(node),
                                 .at = at,
                                 .end = end,
                                 .last = last,
                                 .dictionary = dictionary};
    if (!fits(node->type, encoding))
        return error_set("encoding %d is not valid for this type", encoding);
    return begin(v) ? 0 : error_set("values in encoding %d that do not begin as they should", encoding);
}

void values_release(struct parquet_values *v)
{
    buffer_release(&v->last);
}

/* ---- Values ---- */

static bool take_bytes(struct parquet_values *v, struct parquet_value *out, i64 length)
{
    if (length < 0 || length > v->end - v->at)
        return false;
    take(out, v->at, length);
    v->at += length;
    return true;
}

static bool next_plain(struct parquet_values *v, struct parquet_value *out)
{
    if (v->type == PARQUET_BOOLEAN) {
        if (v->bit / 8 >= v->end - v->at)
            return false;
        *out = (struct parquet_value){.bits = v->at[v->bit / 8] >> (v->bit & 7) & 1};
        v->bit++;
        return true;
    }
    if (v->width)
        return take_bytes(v, out, v->width);
    if (v->end - v->at < 4)
        return false;
    u32 length = read_u32(v->at);
    v->at += 4;
    return take_bytes(v, out, length);
}

static bool next_prefixed(struct parquet_values *v, struct parquet_value *out)
{
    u64 prefix, length;
    struct parquet_value suffix;
    if (!deltas_next(&v->prefixes, &prefix) || !deltas_next(&v->lengths, &length) || prefix > (u64)v->last.length ||
        length > INT32_MAX || !take_bytes(v, &suffix, (i64)length))
        return false;
    v->last.length = (i64)prefix;
    buffer_append(&v->last, suffix.bytes, suffix.length);
    if (v->width && v->last.length != v->width)
        return false;
    take(out, (const u8 *)(v->last.data ? v->last.data : ""), v->last.length);
    return true;
}

/* BYTE_STREAM_SPLIT: byte k of all values is contiguous. */
static bool next_split(struct parquet_values *v, struct parquet_value *out)
{
    if (v->next == v->count)
        return false;
    buffer_clear(&v->last);
    for (i64 k = 0; k < v->width; k++)
        buffer_append(&v->last, v->at + k * v->count + v->next, 1);
    v->next++;
    take(out, (const u8 *)v->last.data, v->width);
    return true;
}

bool values_next(struct parquet_values *v, struct parquet_value *out)
{
    u64 number = 0;
    u32 bit = 0;
    bool more;
    switch (v->encoding) {
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        return look_up(v, out);
    case PARQUET_RLE:
        more = bit_runs_next(&v->runs, &bit);
        *out = (struct parquet_value){.bits = bit};
        return more;
    case PARQUET_DELTA_BINARY:
        more = deltas_next(&v->lengths, &number);
        *out = (struct parquet_value){.bits = number};
        return more;
    case PARQUET_DELTA_LENGTH:
        return deltas_next(&v->lengths, &number) && number <= INT32_MAX && take_bytes(v, out, (i64)number);
    case PARQUET_DELTA_BYTES:
        return next_prefixed(v, out);
    case PARQUET_BYTE_SPLIT:
        return next_split(v, out);
    default:
        return next_plain(v, out);
    }
}
