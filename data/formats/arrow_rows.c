/* Reads rows of an Arrow file or stream, batch by batch. Arrays stay in the message unless they
 * were compressed. */
#include "data/formats/arrow_inside.h"
#include "tokenizers/text/text.h"

#include <math.h>
#include <string.h>

/* Limits per row: lists may refer to the same values many times. */
enum { ROW_ENTRIES_MAX = 1 << 22, ROW_BYTES_MAX = 1 << 30, DEPTH_MOST = 128 };

struct arrow_rows_row {
    struct arrow *arrow;
    struct record *record;
    i64 entries, bytes;
    int depth; /* limited, since dictionaries may refer to themselves */
};

static struct json *value_of(struct arrow_rows_row *row, const struct arrow_array *array, i64 index, bool indexed);

static struct json *refuse(const struct arrow_rows_row *row, const struct arrow_array *array, const char *what)
{
    error_set("%s: row %lld: column %s: %s", row->arrow->path, (long long)row->arrow->given + 1, array->field->name,
              what);
    return NULL;
}

/* ---- Numbers ---- */

static u64 bits_of(const struct arrow_buffer *buffer, i64 index, i64 width)
{
    u64 bits = 0;
    memcpy(&bits, buffer->data + index * width, (size_t)width);
    return bits;
}

static i64 integer_of(const struct arrow_buffer *buffer, i64 index, i64 width, bool is_signed)
{
    int unused = (int)(64 - 8 * width);
    u64 bits = bits_of(buffer, index, width);
    return is_signed ? (i64)(bits << unused) >> unused : (i64)bits;
}

static bool bit_of(const struct arrow_buffer *buffer, i64 index)
{
    return buffer->data[index / 8] >> (index & 7) & 1;
}

static double half(u64 bits)
{
    int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    double value = exponent == 31  ? (fraction ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 & 1 ? -value : value;
}

static double float_of(u64 bits, i64 width)
{
    double value;
    float narrow;
    u32 low = (u32)bits;
    if (width == 2)
        return half(bits);
    memcpy(&narrow, &low, 4);
    memcpy(&value, &bits, 8);
    return width == 4 ? (double)narrow : value;
}

static struct json *whole_number(const struct arrow_array *array, i64 index)
{
    const struct arrow_field *field = array->field;
    i64 value = integer_of(&array->values, index, field->width, field->is_signed);
    return !field->is_signed && value < 0 ? json_of_number((double)(u64)value) : json_of_integer(value);
}

/* ---- Texts and bytes ---- */

static struct json *bytes_value(struct arrow_rows_row *row, const struct arrow_array *array, const u8 *data, i64 length,
                                bool text)
{
    row->bytes += length;
    if (row->bytes > ROW_BYTES_MAX)
        return refuse(row, array, "a row of more than 1 GiB");
    const char *bytes = length ? (const char *)data : "";
    return text && text_invalid_utf8(bytes, length) < 0 ? json_of_utf8(bytes, length)
                                                        : record_blob(row->record, bytes, length);
}

static bool range_of(const struct arrow_array *array, i64 index, i64 width, i64 most, i64 *begin, i64 *end)
{
    *begin = integer_of(&array->offsets, index, width, true);
    *end = integer_of(&array->offsets, index + 1, width, true);
    return *begin >= 0 && *end >= *begin && *end <= most;
}

static struct json *ranged(struct arrow_rows_row *row, const struct arrow_array *array, i64 index)
{
    int type = array->field->type;
    i64 begin, end, width = type == ARROW_LARGE_BINARY || type == ARROW_LARGE_UTF8 ? 8 : 4;
    if (!range_of(array, index, width, array->values.bytes, &begin, &end))
        return refuse(row, array, "offsets outside of its values");
    /* There may be no data at all. */
    const u8 *bytes = begin < end ? array->values.data + begin : NULL;
    return bytes_value(row, array, bytes, end - begin, type == ARROW_UTF8 || type == ARROW_LARGE_UTF8);
}

/* Reads a 16-byte view: a length, then up to 12 bytes inline, or 4 bytes of prefix, a buffer index
 * and an offset. */
static struct json *view_value(struct arrow_rows_row *row, const struct arrow_array *array, i64 index)
{
    const u8 *view = array->values.data + 16 * index;
    i32 words[4];
    memcpy(words, view, 16);
    bool text = array->field->type == ARROW_UTF8_VIEW;
    if (words[0] >= 0 && words[0] <= 12)
        return bytes_value(row, array, view + 4, words[0], text);
    if (words[0] < 0 || words[2] < 0 || words[2] >= array->part_count || words[3] < 0 ||
        (i64)words[3] + words[0] > array->parts[words[2]].bytes)
        return refuse(row, array, "views outside of its values");
    return bytes_value(row, array, array->parts[words[2]].data + words[3], words[0], text);
}

/* ---- Nested values ---- */

static struct json *list_of(struct arrow_rows_row *row, const struct arrow_array *child, i64 begin, i64 end)
{
    struct json *list = json_array();
    for (i64 i = begin; i < end; i++) {
        struct json *value = value_of(row, child, i, child->field->indexed);
        if (!value) {
            json_free(list);
            return NULL;
        }
        json_push(list, value);
    }
    return list;
}

static struct json *list_value(struct arrow_rows_row *row, const struct arrow_array *array, i64 index)
{
    const struct arrow_array *child = &array->children[0];
    i64 begin = index * array->field->width, end = begin + array->field->width;
    bool fixed = array->field->type == ARROW_FIXED_LIST;
    if (!fixed && !range_of(array, index, array->field->type == ARROW_LARGE_LIST ? 8 : 4, child->length, &begin, &end))
        return refuse(row, array, "offsets outside of its values");
    return list_of(row, child, begin, end);
}

static struct json *struct_value(struct arrow_rows_row *row, const struct arrow_array *array, i64 index)
{
    struct json *object = json_object();
    for (i64 i = 0; i < array->field->child_count; i++) {
        struct json *value = value_of(row, &array->children[i], index, array->children[i].field->indexed);
        if (!value) {
            json_free(object);
            return NULL;
        }
        json_set(object, array->children[i].field->name, value);
    }
    return object;
}

/* Looks up a dictionary index, which counts through the dictionary and its deltas. */
static struct json *dictionary_value(struct arrow_rows_row *row, const struct arrow_array *array, i64 index)
{
    const struct arrow_field *field = array->field;
    i64 place = integer_of(&array->values, index, field->index_width, field->index_signed);
    for (i64 d = 0; d < row->arrow->dictionary_count; d++) {
        const struct arrow_dictionary *dictionary = &row->arrow->dictionaries[d];
        for (i64 i = 0; dictionary->id == field->dictionary && i < dictionary->count; i++) {
            const struct arrow_array *values = dictionary->chunks[i].count ? dictionary->chunks[i].arrays : NULL;
            if (values && place >= 0 && place < values->length)
                return value_of(row, values, place, false);
            place -= values ? values->length : 0;
        }
    }
    return refuse(row, array, "a place outside of its dictionary");
}

/* Decimals are little-endian; check_field has checked the width. */
static struct json *decimal(const struct arrow_array *array, i64 index)
{
    i64 width = array->field->width;
    const u8 *value = array->values.data + index * width;
    u8 bytes[32];
    for (i64 i = 0; i < width; i++)
        bytes[i] = value[width - 1 - i];
    return json_of_decimal(bytes, width, array->field->scale);
}

static struct json *plain_value(struct arrow_rows_row *row, const struct arrow_array *array, i64 index)
{
    const struct arrow_field *field = array->field;
    switch (field->type) {
    case ARROW_INT:
    case ARROW_DATE:
    case ARROW_TIME:
    case ARROW_TIMESTAMP:
    case ARROW_DURATION:
        return whole_number(array, index);
    case ARROW_FLOAT:
        return json_of_number(float_of(bits_of(&array->values, index, field->width), field->width));
    case ARROW_BOOL:
        return json_of_bool(bit_of(&array->values, index));
    case ARROW_DECIMAL:
        return decimal(array, index);
    case ARROW_INTERVAL:
    case ARROW_FIXED_BINARY:
        return bytes_value(row, array, array->values.data + index * field->width, field->width, false);
    case ARROW_BINARY:
    case ARROW_UTF8:
    case ARROW_LARGE_BINARY:
    case ARROW_LARGE_UTF8:
        return ranged(row, array, index);
    case ARROW_BINARY_VIEW:
    case ARROW_UTF8_VIEW:
        return view_value(row, array, index);
    case ARROW_LIST:
    case ARROW_LARGE_LIST:
    case ARROW_FIXED_LIST:
    case ARROW_MAP:
        return list_value(row, array, index);
    case ARROW_STRUCT:
        return struct_value(row, array, index);
    default:
        error_set("%s: column %s of type %s, which is not read", row->arrow->path, field->name,
                  arrow_type_name(field->type));
        return NULL;
    }
}

/* indexed: the values are dictionary indices; false for the values of the dictionary itself. */
static struct json *value_of(struct arrow_rows_row *row, const struct arrow_array *array, i64 index, bool indexed)
{
    if (++row->entries > ROW_ENTRIES_MAX || row->depth > DEPTH_MOST)
        return refuse(row, array, "a row of more than 4194304 values, or nested without end");
    if (array->field->type == ARROW_NULL || (array->valid.bytes && !bit_of(&array->valid, index)))
        return json_of_null();
    row->depth++;
    struct json *value = indexed ? dictionary_value(row, array, index) : plain_value(row, array, index);
    row->depth--;
    return value;
}

/* ---- As a table ---- */

static void close_table(void *table)
{
    struct arrow *a = table;
    arrow_batch_release(&a->batch);
    for (i64 i = 0; i < a->dictionary_count; i++) {
        for (i64 k = 0; k < a->dictionaries[i].count; k++)
            arrow_batch_release(&a->dictionaries[i].chunks[k]);
        memory_free(a->dictionaries[i].chunks);
    }
    arrow_fields_release(a->fields, a->field_count);
    blob_close(a->blob);
    memory_free(a->dictionaries);
    memory_free(a->blocks);
    memory_free(a->wanted);
    memory_free(a->path);
    memory_free(a);
}

static int find_bytes(struct arrow *a)
{
    a->bytes = blob_bytes(a->blob);
    return a->bytes == -1 ? error_set("%s: its size is not known: expected a file", a->path) : a->bytes < 0 ? -1 : 0;
}

static void *table_of(const char *path, const struct table_text *text)
{
    (void)text;
    struct arrow *a = memory_alloc(sizeof *a);
    a->path = string_copy(path);
    a->blob = blob_open(path);
    if (!a->blob || find_bytes(a) < 0 || arrow_schema_read(a) < 0) {
        close_table(a);
        return NULL;
    }
    a->wanted = memory_alloc(max_i64(1, a->field_count));
    memset(a->wanted, 1, (size_t)a->field_count);
    return a;
}

static i64 table_columns(const void *table)
{
    return ((const struct arrow *)table)->field_count;
}

static const char *table_column(const void *table, i64 index)
{
    return ((const struct arrow *)table)->fields[index].name;
}

static void want_column(void *table, i64 index, bool wanted)
{
    ((struct arrow *)table)->wanted[index] = wanted;
}

static i64 row_number(const void *table)
{
    return ((const struct arrow *)table)->given;
}

static double share_read(const void *table)
{
    const struct arrow *a = table;
    double batch = a->batch.rows ? (double)a->row / (double)a->batch.rows : 1;
    return ((double)a->begun_at + batch * (double)(a->at - a->begun_at)) / (double)max_i64(1, a->bytes);
}

static int next_row(void *table, struct record *record)
{
    struct arrow *a = table;
    int status = 1;
    while (a->row == a->batch.rows) {
        a->row = 0;
        status = arrow_batch_next(a);
        if (status <= 0)
            return status;
    }
    struct arrow_rows_row row = {.arrow = a, .record = record};
    record->object = json_object();
    for (i64 i = 0; i < a->field_count && status == 1; i++) {
        const struct arrow_array *array = &a->batch.arrays[i];
        struct json *value = a->wanted[i] ? value_of(&row, array, a->row, array->field->indexed) : NULL;
        if (value)
            json_set(record->object, array->field->name, value);
        else if (a->wanted[i])
            status = -1;
    }
    if (status < 0)
        record_release(record);
    a->row++;
    a->given++;
    return status;
}

const struct table_kind arrow_table = {".arrow", table_of,   table_columns, table_column, want_column,
                                       next_row, row_number, share_read,    close_table};
