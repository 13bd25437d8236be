/* Reads messages of an Arrow file or stream, and locates the buffers of a batch's arrays in the
 * file or decompresses them. */
#include "data/formats/arrow_inside.h"

#include <string.h>

enum header_type { HEADER_SCHEMA = 1, HEADER_DICTIONARY, HEADER_BATCH };
enum { CODEC_NONE = -1, CODEC_LZ4, CODEC_ZSTD };

struct arrow_batch_message {
    struct blob_span meta, body;
    struct flatbuffer flat;
    int type;
    i64 header, at; /* at: byte in the file */
};

static void message_release(struct arrow_batch_message *m)
{
    blob_span_release(&m->meta);
    blob_span_release(&m->body);
}

static int damaged(const struct arrow *a, i64 at, const char *what)
{
    return error_set("%s: byte %lld: %s", a->path, (long long)at, what);
}

static i64 read_i32(const u8 *at)
{
    i32 value;
    memcpy(&value, at, 4);
    return value;
}

static i64 read_i64(const u8 *at)
{
    i64 value;
    memcpy(&value, at, 8);
    return value;
}

/* ---- Messages ---- */

/* Reads the length of the metadata, 0 at the end. A 4-byte continuation mark precedes it, except in
 * older files. */
static int read_head(struct arrow *a, i64 *length)
{
    u8 head[8] = {0};
    i64 room = a->bytes - a->at;
    *length = 0;
    if (room == 0)
        return 0;
    if (blob_read_at(a->blob, head, a->at, min_i64(room, 8)) < 0)
        return -1;
    bool marked = room >= 4 && read_i32(head) == -1;
    if (room < (marked ? 8 : 4))
        return damaged(a, a->at, "the file ends within a message: it is cut short");
    *length = read_i32(head + (marked ? 4 : 0));
    a->at += marked ? 8 : 4;
    if (*length < 0 || *length > a->bytes - a->at)
        return damaged(a, a->at - 4, "a message extends past the end of the file: it is cut short");
    return 0;
}

static int read_message(struct arrow *a, struct arrow_batch_message *m, i64 length)
{
    if (blob_span(a->blob, &m->meta, a->at, length) < 0)
        return -1;
    m->flat = (struct flatbuffer){m->meta.data, length, false};
    i64 root = flatbuffer_root(&m->flat), bytes = flatbuffer_integer(&m->flat, root, 3, 8, 0);
    m->type = (int)flatbuffer_integer(&m->flat, root, 1, 1, 0);
    m->header = flatbuffer_reference(&m->flat, root, 2);
    a->at += length;
    if (m->flat.bad || !m->header)
        return damaged(a, m->at, "a damaged message");
    if (bytes < 0 || bytes > a->bytes - a->at)
        return damaged(a, m->at, "a message extends past the end of the file: it is cut short");
    a->at += bytes;
    return blob_span(a->blob, &m->body, a->at - bytes, bytes) < 0 ? -1 : 1;
}

/* Streams end with a message of length 0. Zeros may pad the file behind it. */
static int check_rest(const struct arrow *a)
{
    u8 rest[64] = {0}, zeros[64] = {0};
    i64 bytes = min_i64(a->bytes - a->at, (i64)sizeof rest);
    if (bytes > 0 && blob_read_at(a->blob, rest, a->at, bytes) < 0)
        return -1;
    return memcmp(rest, zeros, sizeof rest) == 0
               ? 0
               : damaged(a, a->at, "another stream, or something else, behind the end of the first: split the file");
}

/* 1: a message, which the caller releases; 0: no more; -1: an error. */
static int next_message(struct arrow *a, struct arrow_batch_message *m)
{
    i64 length;
    if (a->blocks && a->block == a->block_count)
        return 0;
    a->at = a->blocks ? a->blocks[a->block++] : a->at;
    *m = (struct arrow_batch_message){.at = a->at};
    if (read_head(a, &length) < 0)
        return -1;
    if (length == 0)
        return a->blocks ? 0 : check_rest(a);
    int status = read_message(a, m, length);
    if (status < 0)
        message_release(m);
    return status;
}

/* ---- Schemas ---- */

static int read_schema(struct arrow *a, struct flatbuffer *f, i64 table, i64 at)
{
    if (flatbuffer_integer(f, table, 0, 2, 0) != 0)
        return damaged(a, at, "big-endian values, which are not read");
    if (arrow_fields_read(&a->fields, &a->field_count, f, flatbuffer_reference(f, table, 1)) < 0)
        return error_prefix("%s: byte %lld", a->path, (long long)at);
    return 0;
}

/* Adds the offsets of a footer's blocks of 24 bytes. Their lengths tell *end, where the last of all
 * ends: the messages repeat them. */
static int add_blocks(struct arrow *a, struct flatbuffer *f, i64 list, i64 at, i64 *end)
{
    i64 count = flatbuffer_count(f, list, 24);
    a->blocks = memory_resize(a->blocks, max_i64(1, a->block_count) * 8, max_i64(1, a->block_count + count) * 8);
    for (i64 i = 0; i < count; i++) {
        i64 offset = flatbuffer_word(f, list + 4 + 24 * i);
        if (offset < 8 || offset > at)
            return damaged(a, at, "a footer that puts a message outside of the file");
        a->blocks[a->block_count++] = offset;
        i64 meta = flatbuffer_word(f, list + 4 + 24 * i + 8) & INT32_MAX;
        i64 body = flatbuffer_word(f, list + 4 + 24 * i + 16);
        *end = max_i64(*end, offset + meta + max_i64(0, min_i64(body, at)));
    }
    return 0;
}

/* Offsets count from the beginning of the file that a footer was written for. If files stand one
 * behind another, that is not the beginning of this one. */
static int check_begin(struct arrow *a, i64 at, i64 end)
{
    static const i64 ends[] = {8, 4, 0}; /* bytes of the end of the stream in front of the footer */
    for (i64 i = 0; i < COUNT_OF(ends); i++) {
        u8 marks[12] = {0};
        i64 begin = at - end - ends[i];
        if (begin >= 18 && blob_read_at(a->blob, marks, begin - 6, 12) < 0)
            return -1;
        if (memcmp(marks, "ARROW1ARROW1", 12) == 0)
            return damaged(a, begin, "another Arrow file begins here: split the file");
    }
    return 0;
}

static int parse_footer(struct arrow *a, const struct blob_span *footer, i64 at)
{
    struct flatbuffer f = {footer->data, footer->bytes, false};
    i64 root = flatbuffer_root(&f), schema = flatbuffer_reference(&f, root, 1);
    i64 dictionaries = flatbuffer_reference(&f, root, 2), batches = flatbuffer_reference(&f, root, 3);
    i64 end = 8;
    a->blocks = memory_alloc(8);
    if (add_blocks(a, &f, dictionaries, at, &end) < 0 || add_blocks(a, &f, batches, at, &end) < 0)
        return -1;
    if (!f.bad && check_begin(a, at, end) < 0)
        return -1;
    return f.bad || !schema ? damaged(a, at, "a damaged footer") : read_schema(a, &f, schema, at);
}

/* Reads the schema and blocks from a file's footer. A file need not contain a stream before it. */
static int read_footer(struct arrow *a)
{
    u8 tail[10] = {0};
    struct blob_span footer;
    i64 bytes = a->bytes;
    if (bytes >= 18 && blob_read_at(a->blob, tail, bytes - 10, 10) < 0)
        return -1;
    i64 length = read_i32(tail), at = bytes - 10 - length;
    if (bytes < 18 || memcmp(tail + 4, "ARROW1", 6) != 0)
        return damaged(a, bytes, "no \"ARROW1\" at the end of the file: it is cut short");
    if (length < 0 || length > bytes - 18)
        return damaged(a, bytes - 10, "a footer of more bytes than the file has");
    if (blob_span(a->blob, &footer, at, length) < 0)
        return -1;
    int status = parse_footer(a, &footer, at);
    blob_span_release(&footer);
    return status;
}

int arrow_schema_read(struct arrow *a)
{
    struct arrow_batch_message m;
    u8 head[8] = {0};
    if (a->bytes >= 8 && blob_read_at(a->blob, head, 0, 8) < 0)
        return -1;
    if (memcmp(head, "ARROW1\0\0", 8) == 0)
        return read_footer(a);
    int status = next_message(a, &m);
    if (status < 0)
        return -1;
    if (status == 0 || m.type != HEADER_SCHEMA)
        damaged(a, m.at, "no schema: expected a file or a stream of Arrow");
    else
        status = read_schema(a, &m.flat, m.header, m.at) < 0 ? -1 : 2;
    message_release(&m);
    return status == 2 ? 0 : -1;
}

/* ---- Arrays ---- */

struct arrow_loader {
    struct arrow *arrow;
    struct arrow_batch_message *message;
    struct arrow_batch *batch;
    /* List, next index and count of each. */
    i64 nodes, node, node_count, buffers, buffer, buffer_count, views, view, view_count;
    int codec;
};

static int refuse(struct arrow_loader *l, const struct arrow_field *field, const char *what)
{
    return error_set("%s: byte %lld: column %s: %s", l->arrow->path, (long long)l->message->at, field->name, what);
}

static struct buffer *new_text(struct arrow_batch *b)
{
    if (b->unpacked_count == b->unpacked_capacity) {
        i64 wanted = max_i64(16, 2 * b->unpacked_capacity), size = (i64)sizeof *b->unpacked;
        b->unpacked = memory_resize(b->unpacked, b->unpacked_capacity * size, wanted * size);
        b->unpacked_capacity = wanted;
    }
    return &b->unpacked[b->unpacked_count++];
}

/* Decompresses a buffer, which begins with its uncompressed length; -1 marks a buffer that is
 * stored uncompressed. */
static int unpack_buffer(struct arrow_loader *l, const struct arrow_field *field, struct arrow_buffer *buffer)
{
    if (buffer->bytes < 8)
        return refuse(l, field, "a packed buffer without its length");
    i64 length = read_i64(buffer->data);
    *buffer = (struct arrow_buffer){buffer->data + 8, buffer->bytes - 8};
    if (length == -1)
        return 0;
    struct buffer *text = new_text(l->batch);
    if (unpack_exactly(text, length, l->codec == CODEC_ZSTD ? PACKED_ZSTD : PACKED_LZ4_FRAME, buffer->data,
                       buffer->bytes) < 0)
        return error_prefix("%s: byte %lld: column %s", l->arrow->path, (long long)l->message->at, field->name);
    *buffer = (struct arrow_buffer){(const u8 *)text->data, text->length};
    return 0;
}

/* Takes the next buffer of the message. It is decompressed only if the column is wanted. */
static int next_buffer(struct arrow_loader *l, const struct arrow_field *field, struct arrow_buffer *out, bool wanted)
{
    struct flatbuffer *f = &l->message->flat;
    i64 at = l->buffers + 4 + 16 * l->buffer;
    if (l->buffer++ >= l->buffer_count)
        return refuse(l, field, "fewer buffers than the schema asks for");
    i64 offset = flatbuffer_word(f, at), bytes = flatbuffer_word(f, at + 8);
    if (offset < 0 || bytes < 0 || offset > l->batch->body.bytes || bytes > l->batch->body.bytes - offset)
        return refuse(l, field, "a buffer outside of its message");
    *out = (struct arrow_buffer){l->batch->body.data + offset, bytes};
    return wanted && bytes && l->codec != CODEC_NONE ? unpack_buffer(l, field, out) : 0;
}

static int next_parts(struct arrow_loader *l, struct arrow_array *array, bool wanted)
{
    i64 at = l->views + 4 + 8 * l->view;
    i64 count = l->view++ < l->view_count ? flatbuffer_word(&l->message->flat, at) : -1;
    if (count < 0 || count > l->buffer_count - l->buffer)
        return refuse(l, array->field, "fewer buffers than its views ask for");
    array->parts = memory_alloc(max_i64(1, count) * (i64)sizeof *array->parts);
    array->part_count = count;
    for (i64 i = 0; i < count; i++)
        if (next_buffer(l, array->field, &array->parts[i], wanted) < 0)
            return -1;
    return 0;
}

/* Buffers of a type besides its validity bitmap. */
static void buffers_of(const struct arrow_field *field, bool *offsets, bool *values)
{
    int type = field->indexed ? ARROW_INT : field->type;
    *offsets = type == ARROW_BINARY || type == ARROW_UTF8 || type == ARROW_LARGE_BINARY || type == ARROW_LARGE_UTF8 ||
               type == ARROW_LIST || type == ARROW_LARGE_LIST || type == ARROW_MAP || type == ARROW_LIST_VIEW ||
               type == ARROW_LARGE_LIST_VIEW || (type == ARROW_UNION && field->dense);
    *values = type != ARROW_LIST && type != ARROW_LARGE_LIST && type != ARROW_MAP && type != ARROW_STRUCT &&
              type != ARROW_FIXED_LIST && type != ARROW_NULL && type != ARROW_RUN_END;
}

static i64 bytes_each(const struct arrow_field *field)
{
    switch (field->indexed ? ARROW_INT : field->type) {
    case ARROW_BINARY_VIEW:
    case ARROW_UTF8_VIEW:
        return 16;
    case ARROW_BOOL:
    case ARROW_BINARY:
    case ARROW_UTF8:
    case ARROW_LARGE_BINARY:
    case ARROW_LARGE_UTF8:
    case ARROW_UNION:
    case ARROW_LIST_VIEW:
    case ARROW_LARGE_LIST_VIEW:
        return 0;
    default:
        return field->indexed ? field->index_width : field->width;
    }
}

/* Checks that buffers hold 0 .. length - 1. Offsets into values are checked when they are used. */
static int check_array(struct arrow_loader *l, const struct arrow_array *array, bool offsets, bool values)
{
    const struct arrow_field *field = array->field;
    i64 n = array->length, each = bytes_each(field);
    i64 wide =
        field->type == ARROW_LARGE_BINARY || field->type == ARROW_LARGE_UTF8 || field->type == ARROW_LARGE_LIST ? 8 : 4;
    bool bits = field->type == ARROW_BOOL && !field->indexed;
    if (field->type == ARROW_UNION || field->type == ARROW_LIST_VIEW || field->type == ARROW_LARGE_LIST_VIEW)
        return 0; /* their values are not read */
    if (n < 0 || n > INT64_MAX / 64 || (array->valid.bytes && array->valid.bytes < ceil_div(n, 8)) ||
        (offsets && n > 0 && (n + 1) * wide > array->offsets.bytes) ||
        (values && each && array->values.bytes / each < n) || (bits && array->values.bytes < ceil_div(n, 8)))
        return refuse(l, field, "buffers too small for its values");
    return 0;
}

/* Checks the children of structs and fixed-size lists. Those of other lists are checked when they
 * are used. */
static int check_children(struct arrow_loader *l, const struct arrow_array *array)
{
    const struct arrow_field *field = array->field;
    bool fixed = field->type == ARROW_FIXED_LIST;
    if (field->type != ARROW_STRUCT && !fixed)
        return 0;
    for (i64 i = 0; i < field->child_count; i++) {
        i64 there = array->children[i].length, each = fixed ? field->width : 1;
        if (each && there / each < array->length)
            return refuse(l, field, "fewer values in it than it has places for");
    }
    return 0;
}

static int load_array(struct arrow_loader *l, struct arrow_array *array, const struct arrow_field *field, bool wanted)
{
    bool offsets, values;
    int type = field->indexed ? ARROW_INT : field->type;
    array->field = field;
    if (l->node >= l->node_count)
        return refuse(l, field, "fewer columns in a batch than in the schema");
    i64 node = l->nodes + 4 + 16 * l->node++, nulls;
    array->length = flatbuffer_word(&l->message->flat, node);
    nulls = flatbuffer_word(&l->message->flat, node + 8);
    buffers_of(field, &offsets, &values);
    bool marked = type != ARROW_NULL && type != ARROW_UNION && type != ARROW_RUN_END;
    if ((marked && next_buffer(l, field, &array->valid, wanted) < 0) ||
        (offsets && next_buffer(l, field, &array->offsets, wanted) < 0) ||
        (values && next_buffer(l, field, &array->values, wanted) < 0) ||
        ((type == ARROW_BINARY_VIEW || type == ARROW_UTF8_VIEW) && next_parts(l, array, wanted) < 0))
        return -1;
    if (nulls == 0)
        array->valid.bytes = 0;
    if (wanted && check_array(l, array, offsets, values) < 0)
        return -1;
    if (field->indexed)
        return 0;
    array->children = memory_alloc(max_i64(1, field->child_count) * (i64)sizeof *array->children);
    for (i64 i = 0; i < field->child_count; i++)
        if (load_array(l, &array->children[i], &field->children[i], wanted) < 0)
            return -1;
    return wanted ? check_children(l, array) : 0;
}

void arrow_array_release(struct arrow_array *array)
{
    for (i64 i = 0; array->children && i < array->field->child_count; i++)
        arrow_array_release(&array->children[i]);
    memory_free(array->children);
    memory_free(array->parts);
    *array = (struct arrow_array){0};
}

void arrow_batch_release(struct arrow_batch *b)
{
    for (i64 i = 0; i < b->count; i++)
        arrow_array_release(&b->arrays[i]);
    for (i64 i = 0; i < b->unpacked_count; i++)
        buffer_release(&b->unpacked[i]);
    blob_span_release(&b->body);
    memory_free(b->arrays);
    memory_free(b->unpacked);
    *b = (struct arrow_batch){0};
}

/* ---- Batches ---- */

static int open_loading(struct arrow_loader *l, struct arrow *a, struct arrow_batch_message *m, i64 table)
{
    struct flatbuffer *f = &m->flat;
    i64 packing = flatbuffer_reference(f, table, 3);
    l->arrow = a;
    l->message = m;
    l->batch->rows = flatbuffer_integer(f, table, 0, 8, 0);
    l->nodes = flatbuffer_reference(f, table, 1);
    l->node_count = flatbuffer_count(f, l->nodes, 16);
    l->buffers = flatbuffer_reference(f, table, 2);
    l->buffer_count = flatbuffer_count(f, l->buffers, 16);
    l->views = flatbuffer_reference(f, table, 4);
    l->view_count = flatbuffer_count(f, l->views, 8);
    l->codec = packing ? (int)flatbuffer_integer(f, packing, 0, 1, 0) : CODEC_NONE;
    if (f->bad || !table || l->batch->rows < 0)
        return damaged(a, m->at, "a damaged batch");
    if (l->codec > CODEC_ZSTD)
        return damaged(a, m->at, "buffers packed by a codec that is not known: expected LZ4 frames or zstd");
    return 0;
}

/* Loads a batch's arrays; it takes over the message's body. wanted NULL: all fields. */
static int load_batch(struct arrow_batch *out, struct arrow *a, struct arrow_batch_message *m, i64 table,
                      const struct arrow_field *fields, i64 count, const bool *wanted)
{
    struct arrow_loader l = {.batch = out};
    *out = (struct arrow_batch){.body = m->body};
    m->body = (struct blob_span){0};
    if (open_loading(&l, a, m, table) < 0)
        return -1;
    out->arrays = memory_alloc(max_i64(1, count) * (i64)sizeof *out->arrays);
    out->count = count;
    for (i64 i = 0; i < count; i++) {
        bool read = !wanted || wanted[i];
        if (load_array(&l, &out->arrays[i], &fields[i], read) < 0)
            return -1;
        if (read && out->arrays[i].length != out->rows)
            return refuse(&l, &fields[i], "as many values as rows were expected");
    }
    return m->flat.bad ? damaged(a, m->at, "a damaged batch") : 0;
}

static const struct arrow_field *find_indexed(const struct arrow_field *fields, i64 count, i64 id)
{
    for (i64 i = 0; i < count; i++) {
        if (fields[i].indexed && fields[i].dictionary == id)
            return &fields[i];
        const struct arrow_field *below = find_indexed(fields[i].children, fields[i].child_count, id);
        if (below)
            return below;
    }
    return NULL;
}

static struct arrow_dictionary *dictionary_of(struct arrow *a, i64 id)
{
    for (i64 i = 0; i < a->dictionary_count; i++)
        if (a->dictionaries[i].id == id)
            return &a->dictionaries[i];
    i64 size = (i64)sizeof *a->dictionaries;
    a->dictionaries = memory_resize(a->dictionaries, a->dictionary_count * size, (a->dictionary_count + 1) * size);
    a->dictionaries[a->dictionary_count] = (struct arrow_dictionary){.id = id};
    return &a->dictionaries[a->dictionary_count++];
}

/* Loads a dictionary. It replaces an earlier one with its id, unless it is marked as a delta. */
static int load_dictionary(struct arrow *a, struct arrow_batch_message *m)
{
    i64 id = flatbuffer_integer(&m->flat, m->header, 0, 8, 0);
    bool adds = flatbuffer_integer(&m->flat, m->header, 2, 1, 0) != 0;
    const struct arrow_field *field = find_indexed(a->fields, a->field_count, id);
    if (!field)
        return damaged(a, m->at, "a dictionary that no column uses");
    struct arrow_dictionary *d = dictionary_of(a, id);
    for (; !adds && d->count; d->count--)
        arrow_batch_release(&d->chunks[d->count - 1]);
    i64 size = (i64)sizeof *d->chunks;
    d->chunks = memory_resize(d->chunks, d->count * size, (d->count + 1) * size);
    struct arrow_field values = *field;
    values.indexed = false;
    d->count++;
    int status =
        load_batch(&d->chunks[d->count - 1], a, m, flatbuffer_reference(&m->flat, m->header, 1), &values, 1, NULL);
    if (d->chunks[d->count - 1].count)
        d->chunks[d->count - 1].arrays[0].field = field;
    return status;
}

/* 1: a batch; 0: something else; -1: an error. */
static int take_message(struct arrow *a, struct arrow_batch_message *m)
{
    a->begun_at = m->at;
    if (m->type == HEADER_DICTIONARY)
        return load_dictionary(a, m) < 0 ? -1 : 0;
    if (m->type != HEADER_BATCH)
        return 0;
    return load_batch(&a->batch, a, m, m->header, a->fields, a->field_count, a->wanted) < 0 ? -1 : 1;
}

int arrow_batch_next(struct arrow *a)
{
    struct arrow_batch_message m;
    int status = 0, taken = 0;
    arrow_batch_release(&a->batch);
    while (taken == 0 && (status = next_message(a, &m)) == 1) {
        taken = take_message(a, &m);
        message_release(&m);
    }
    return taken ? taken : status;
}
