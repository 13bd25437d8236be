/* Reads the fields of an Arrow schema. */
#include "data/formats/arrow_inside.h"

enum { DEPTH_MOST = 64, FIELDS_MOST = 1 << 16 };

static const char *const type_names[ARROW_TYPES] = {
    [ARROW_NULL] = "null",
    [ARROW_INT] = "integer",
    [ARROW_FLOAT] = "float",
    [ARROW_BINARY] = "binary",
    [ARROW_UTF8] = "text",
    [ARROW_BOOL] = "bool",
    [ARROW_DECIMAL] = "decimal",
    [ARROW_DATE] = "date",
    [ARROW_TIME] = "time",
    [ARROW_TIMESTAMP] = "timestamp",
    [ARROW_INTERVAL] = "interval",
    [ARROW_LIST] = "list",
    [ARROW_STRUCT] = "struct",
    [ARROW_UNION] = "union",
    [ARROW_FIXED_BINARY] = "fixed binary",
    [ARROW_FIXED_LIST] = "fixed list",
    [ARROW_MAP] = "map",
    [ARROW_DURATION] = "duration",
    [ARROW_LARGE_BINARY] = "large binary",
    [ARROW_LARGE_UTF8] = "large text",
    [ARROW_LARGE_LIST] = "large list",
    [ARROW_RUN_END] = "run-end encoded",
    [ARROW_BINARY_VIEW] = "binary view",
    [ARROW_UTF8_VIEW] = "text view",
    [ARROW_LIST_VIEW] = "list view",
    [ARROW_LARGE_LIST_VIEW] = "large list view",
};

const char *arrow_type_name(int type)
{
    return type > 0 && type < ARROW_TYPES ? type_names[type] : "unknown";
}

/* Bytes per value, or elements per fixed-size list. Absent fields have the defaults of
 * Schema.fbs. */
static i64 read_width(struct flatbuffer *f, int type, i64 table)
{
    static const int interval[] = {4, 8, 16};
    i64 unit;
    switch (type) {
    case ARROW_INT:
        return flatbuffer_integer(f, table, 0, 4, 0) / 8;
    case ARROW_FLOAT:
        return 2 << (flatbuffer_integer(f, table, 0, 2, 0) & 3);
    case ARROW_DECIMAL:
        return flatbuffer_integer(f, table, 2, 4, 128) / 8;
    case ARROW_DATE:
        return flatbuffer_integer(f, table, 0, 2, 1) == 0 ? 4 : 8;
    case ARROW_TIME:
        return flatbuffer_integer(f, table, 1, 4, 32) / 8;
    case ARROW_TIMESTAMP:
    case ARROW_DURATION:
        return 8;
    case ARROW_INTERVAL:
        unit = flatbuffer_integer(f, table, 0, 2, 0);
        return unit >= 0 && unit < 3 ? interval[unit] : 0;
    case ARROW_FIXED_BINARY:
    case ARROW_FIXED_LIST:
        return flatbuffer_integer(f, table, 0, 4, 0);
    default:
        return 0;
    }
}

static bool is_number(i64 width)
{
    return width == 1 || width == 2 || width == 4 || width == 8;
}

static bool is_decimal(const struct arrow_field *field)
{
    bool width = field->width == 4 || field->width == 8 || field->width == 16 || field->width == 32;
    return width && field->scale >= -DECIMAL_SCALE_MOST && field->scale <= DECIMAL_SCALE_MOST;
}

static int check_field(const struct arrow_field *field)
{
    bool list = field->type == ARROW_LIST || field->type == ARROW_LARGE_LIST || field->type == ARROW_FIXED_LIST ||
                field->type == ARROW_MAP;
    bool number = field->type == ARROW_INT || field->type == ARROW_TIME;
    if ((list && field->child_count != 1) || (number && !is_number(field->width)) || field->width < 0 ||
        (field->indexed && !is_number(field->index_width)) || (field->type == ARROW_FLOAT && field->width > 8) ||
        (field->type == ARROW_DECIMAL && !is_decimal(field)))
        return error_set("a damaged schema: field %s of type %s", field->name, arrow_type_name(field->type));
    return 0;
}

static int read_fields(struct arrow_field **out, i64 *count, struct flatbuffer *f, i64 list, int depth, i64 *total);

static int read_field(struct arrow_field *field, struct flatbuffer *f, i64 table, int depth, i64 *total)
{
    i64 type = flatbuffer_reference(f, table, 3), dictionary = flatbuffer_reference(f, table, 4);
    field->name = flatbuffer_text(f, flatbuffer_reference(f, table, 0));
    field->type = (int)(flatbuffer_integer(f, table, 2, 1, 0) & 255);
    field->width = read_width(f, field->type, type);
    field->scale = field->type == ARROW_DECIMAL ? flatbuffer_integer(f, type, 1, 4, 0) : 0;
    field->is_signed = field->type != ARROW_INT || flatbuffer_integer(f, type, 1, 1, 0) != 0;
    field->dense = field->type == ARROW_UNION && flatbuffer_integer(f, type, 0, 2, 0) == 1;
    if (dictionary) {
        i64 index = flatbuffer_reference(f, dictionary, 1);
        field->indexed = true;
        field->dictionary = flatbuffer_integer(f, dictionary, 0, 8, 0);
        field->index_width = index ? flatbuffer_integer(f, index, 0, 4, 0) / 8 : 4;
        field->index_signed = !index || flatbuffer_integer(f, index, 1, 1, 0) != 0;
    }
    i64 children = flatbuffer_reference(f, table, 5);
    if (read_fields(&field->children, &field->child_count, f, children, depth + 1, total) < 0)
        return -1;
    return check_field(field);
}

static int read_fields(struct arrow_field **out, i64 *count, struct flatbuffer *f, i64 list, int depth, i64 *total)
{
    i64 wanted = flatbuffer_count(f, list, 4);
    *total += wanted;
    if (depth > DEPTH_MOST || *total > FIELDS_MOST)
        return error_set("a damaged schema: fields nested more than %d deep, or more than %d", DEPTH_MOST, FIELDS_MOST);
    *out = memory_alloc(max_i64(1, wanted) * (i64)sizeof **out);
    *count = wanted;
    for (i64 i = 0; i < wanted; i++)
        if (read_field(&(*out)[i], f, flatbuffer_element(f, list, i), depth, total) < 0)
            return -1;
    return f->bad ? error_set("a damaged schema: a reference points outside of it") : 0;
}

int arrow_fields_read(struct arrow_field **fields, i64 *count, struct flatbuffer *f, i64 list)
{
    i64 total = 0;
    return read_fields(fields, count, f, list, 0, &total);
}

void arrow_fields_release(struct arrow_field *fields, i64 count)
{
    for (i64 i = 0; i < count; i++) {
        arrow_fields_release(fields[i].children, fields[i].child_count);
        memory_free(fields[i].name);
    }
    memory_free(fields);
}
