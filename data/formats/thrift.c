#include "data/formats/thrift.h"

enum { DEPTH_MOST = 32 };

static void fail(struct thrift *t, const char *problem)
{
    if (!t->problem)
        t->problem = problem;
}

static u8 next_byte(struct thrift *t)
{
    if (t->at < t->bytes && !t->problem)
        return t->data[t->at++];
    t->short_of_bytes |= !t->problem;
    fail(t, "its bytes end");
    return 0;
}

static u64 varint(struct thrift *t)
{
    u64 value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        u8 byte = next_byte(t);
        value |= (u64)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    fail(t, "an integer of more than 64 bits");
    return 0;
}

i64 thrift_element(struct thrift *t)
{
    u64 value = varint(t);
    return (i64)(value >> 1 ^ -(value & 1));
}

bool thrift_next(struct thrift *t, struct thrift_field *field)
{
    u8 byte = next_byte(t);
    if (t->problem || (byte & 15) == THRIFT_STOP)
        return false;
    i64 id = byte >> 4 ? field->id + (byte >> 4) : thrift_element(t);
    if (id < 0 || id > INT16_MAX || (byte & 15) > THRIFT_STRUCT)
        fail(t, "a field of no known type");
    field->id = (int)id;
    field->type = byte & 15;
    return !t->problem;
}

static bool is_type(struct thrift *t, const struct thrift_field *field, int low, int high)
{
    if (field->type < low || field->type > high)
        fail(t, "a field of another type than its number has");
    return !t->problem;
}

i64 thrift_integer(struct thrift *t, const struct thrift_field *field)
{
    if (!is_type(t, field, THRIFT_BYTE, THRIFT_I64))
        return 0;
    return field->type == THRIFT_BYTE ? (i64)(int8_t)next_byte(t) : thrift_element(t);
}

bool thrift_bool(struct thrift *t, const struct thrift_field *field)
{
    return is_type(t, field, THRIFT_TRUE, THRIFT_FALSE) && field->type == THRIFT_TRUE;
}

static const char *bytes(struct thrift *t, i64 *length)
{
    u64 count = varint(t);
    const char *at = (const char *)t->data + t->at;
    if (count > (u64)(t->bytes - t->at)) {
        t->short_of_bytes |= !t->problem;
        fail(t, "a string extends past the end");
    }
    *length = t->problem ? 0 : (i64)count;
    t->at += *length;
    return at;
}

const char *thrift_bytes(struct thrift *t, const struct thrift_field *field, i64 *length)
{
    *length = 0;
    return is_type(t, field, THRIFT_BINARY, THRIFT_BINARY) ? bytes(t, length) : "";
}

static i64 list_head(struct thrift *t, int *type)
{
    u8 byte = next_byte(t);
    u64 count = byte >> 4 == 15 ? varint(t) : (u64)(byte >> 4);
    *type = byte & 15;
    if (count > (u64)(t->bytes - t->at)) {
        t->short_of_bytes |= !t->problem;
        fail(t, "a list with more elements than bytes follow");
    }
    return t->problem ? 0 : (i64)count;
}

i64 thrift_list(struct thrift *t, const struct thrift_field *field, int wanted)
{
    int type;
    if (!is_type(t, field, THRIFT_LIST, THRIFT_LIST))
        return 0;
    i64 count = list_head(t, &type);
    if (count && type != wanted)
        fail(t, "a list of another type than its number has");
    return t->problem ? 0 : count;
}

static void skip(struct thrift *t, int type, int depth);

/* Skips an element of a list or map, where a bool takes 1 byte. In a struct field the type itself
 * holds its value. */
static void skip_element(struct thrift *t, int type, int depth)
{
    if (type == THRIFT_TRUE || type == THRIFT_FALSE)
        next_byte(t);
    else
        skip(t, type, depth);
}

static void skip_elements(struct thrift *t, int depth)
{
    int type;
    for (i64 i = list_head(t, &type); i > 0 && !t->problem; i--)
        skip_element(t, type, depth);
}

static void skip_map(struct thrift *t, int depth)
{
    u64 count = varint(t);
    u8 types = count ? next_byte(t) : 0;
    for (u64 i = 0; i < count && !t->problem; i++) {
        skip_element(t, types >> 4, depth);
        skip_element(t, types & 15, depth);
    }
}

static void skip(struct thrift *t, int type, int depth)
{
    i64 length;
    if (depth == DEPTH_MOST || type == THRIFT_STOP || type > THRIFT_STRUCT) {
        fail(t, depth == DEPTH_MOST ? "structs nested too deeply" : "a value of no known type");
        return;
    }
    if (type == THRIFT_BYTE)
        next_byte(t);
    else if (type >= THRIFT_I16 && type <= THRIFT_I64)
        varint(t);
    else if (type == THRIFT_DOUBLE)
        for (int i = 0; i < 8; i++)
            next_byte(t);
    else if (type == THRIFT_BINARY)
        bytes(t, &length);
    else if (type == THRIFT_LIST || type == THRIFT_SET)
        skip_elements(t, depth + 1);
    else if (type == THRIFT_MAP)
        skip_map(t, depth + 1);
    else if (type == THRIFT_STRUCT)
        for (struct thrift_field field = {0}; thrift_next(t, &field);)
            skip(t, field.type, depth + 1);
}

void thrift_skip(struct thrift *t, int type)
{
    skip(t, type, 0);
}
