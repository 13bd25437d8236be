/* Reads the footer of a Parquet file: its schema and the location of each row group's columns. */
#include "data/formats/parquet_inside.h"

#include <string.h>

enum { TAIL_BYTES = 8, DEPTH_MOST = 64 };

struct reading_footer {
    struct thrift thrift;
    struct parquet_footer *out;
    const char *refused; /* an unsupported feature of the file, or NULL */
    i64 end;             /* of the data that the footer refers to */
};

/* ---- The schema ---- */

static void read_scale(struct thrift *t, i64 *scale)
{
    for (struct thrift_field field = {0}; thrift_next(t, &field);)
        if (field.id == 1)
            *scale = thrift_integer(t, &field);
        else
            thrift_skip(t, field.type);
}

/* Reads LogicalType, a union whose field number gives the type. */
static int read_logical(struct thrift *t, i64 *scale)
{
    int meaning = MEANS_NOTHING;
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        bool is_signed = true;
        if (field.id == 10 && field.type == THRIFT_STRUCT) {
            for (struct thrift_field inner = {0}; thrift_next(t, &inner);)
                if (inner.id == 2)
                    is_signed = thrift_bool(t, &inner);
                else
                    thrift_skip(t, inner.type);
        } else if (field.id == 5 && field.type == THRIFT_STRUCT) {
            read_scale(t, scale);
        } else {
            thrift_skip(t, field.type);
        }
        meaning = field.id == 1 || field.id == 4 || field.id == 12 ? MEANS_TEXT
                  : field.id == 2                                  ? MEANS_MAP
                  : field.id == 3                                  ? MEANS_LIST
                  : field.id == 5                                  ? MEANS_DECIMAL
                  : field.id == 10 && !is_signed                   ? MEANS_UNSIGNED
                                                                   : MEANS_NOTHING;
    }
    return meaning;
}

/* Converts ConvertedType, for files without LogicalType: UTF8, MAP, MAP_KEY_VALUE, LIST, ENUM,
 * DECIMAL, UINT_8 to UINT_64, JSON. */
static int converted_meaning(i64 type)
{
    static const int meanings[] = {
        [0] = MEANS_TEXT,      [1] = MEANS_MAP,       [2] = MEANS_MAP,       [3] = MEANS_LIST,
        [4] = MEANS_TEXT,      [5] = MEANS_DECIMAL,   [11] = MEANS_UNSIGNED, [12] = MEANS_UNSIGNED,
        [13] = MEANS_UNSIGNED, [14] = MEANS_UNSIGNED, [19] = MEANS_TEXT};
    return type >= 0 && type < COUNT_OF(meanings) ? meanings[type] : MEANS_NOTHING;
}

static void read_node(struct thrift *t, struct parquet_node *node)
{
    int logical = MEANS_NOTHING;
    node->type = PARQUET_GROUP;
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        i64 length;
        const char *name;
        switch (field.id) {
        case 1:
            node->type = (int)thrift_integer(t, &field);
            break;
        case 2:
            node->width = thrift_integer(t, &field);
            break;
        case 3:
            node->repetition = (int)thrift_integer(t, &field);
            break;
        case 4:
            name = thrift_bytes(t, &field, &length);
            memory_free(node->name);
            node->name = string_format("%.*s", (int)min_i64(length, 1 << 16), name);
            break;
        case 5:
            node->children = thrift_integer(t, &field);
            break;
        case 6:
            node->meaning = converted_meaning(thrift_integer(t, &field));
            break;
        case 10:
            logical = read_logical(t, &node->scale);
            break;
        case 7:
            node->scale = thrift_integer(t, &field);
            break;
        default:
            thrift_skip(t, field.type);
        }
    }
    node->meaning = logical ? logical : node->meaning;
    if (node->meaning == MEANS_DECIMAL && (node->scale < 0 || node->scale > DECIMAL_SCALE_MOST))
        node->meaning = MEANS_NOTHING;
}

static void read_schema(struct reading_footer *r, const struct thrift_field *field)
{
    struct parquet_footer *f = r->out;
    i64 count = thrift_list(&r->thrift, field, THRIFT_STRUCT);
    if (f->nodes || count == 0) {
        r->thrift.problem = r->thrift.problem ? r->thrift.problem : "expected exactly one schema";
        return;
    }
    f->nodes = memory_alloc(count * (i64)sizeof *f->nodes);
    f->node_count = count;
    for (i64 i = 0; i < count; i++)
        read_node(&r->thrift, &f->nodes[i]);
}

/* Computes levels, leaves and `next` of a subtree. Returns the index after it, or -1 if the tree is
 * invalid. */
static i64 settle(struct parquet_footer *f, i64 index, int definition, int repeated, int depth)
{
    struct parquet_node *node = &f->nodes[index];
    bool group = node->type == PARQUET_GROUP;
    if (depth > DEPTH_MOST || node->repetition < 0 || node->repetition > PARQUET_REPEATED || !node->name ||
        (!group && (node->type < 0 || node->type > PARQUET_FIXED)) || (!group && node->children) ||
        (node->type == PARQUET_FIXED && (node->width < 1 || node->width > INT32_MAX)) || node->children < 0)
        return -1;
    node->definition = definition + (depth && node->repetition != PARQUET_REQUIRED);
    node->repeated = repeated + (depth && node->repetition == PARQUET_REPEATED);
    node->first_leaf = f->leaf_count;
    f->leaf_count += !group;
    i64 next = index + 1;
    for (i64 i = 0; i < node->children && next >= 0; i++)
        next = next < f->node_count ? settle(f, next, node->definition, node->repeated, depth + 1) : -1;
    node->next = next;
    return group && node->first_leaf == f->leaf_count ? -1 : next;
}

/* ---- Row groups ---- */

static void note_end(struct reading_footer *r, i64 offset, i64 bytes)
{
    if (offset >= 0 && bytes >= 0 && bytes <= INT64_MAX - offset)
        r->end = max_i64(r->end, offset + bytes);
}

static void read_column_meta(struct reading_footer *r, struct parquet_chunk *chunk)
{
    struct thrift *t = &r->thrift;
    i64 data = 0, dictionary = 0, filter = 0, filter_bytes = 0;
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        if (field.id == 4)
            chunk->codec = (int)thrift_integer(t, &field);
        else if (field.id == 5)
            chunk->values = thrift_integer(t, &field);
        else if (field.id == 7)
            chunk->bytes = thrift_integer(t, &field);
        else if (field.id == 9)
            data = thrift_integer(t, &field);
        else if (field.id == 11)
            dictionary = thrift_integer(t, &field);
        else if (field.id == 14)
            filter = thrift_integer(t, &field);
        else if (field.id == 15)
            filter_bytes = thrift_integer(t, &field);
        else
            thrift_skip(t, field.type);
    }
    note_end(r, filter, filter_bytes);
    chunk->offset = dictionary > 0 && dictionary < data ? dictionary : data;
}

static void read_chunk(struct reading_footer *r, struct parquet_chunk *chunk)
{
    struct thrift *t = &r->thrift;
    i64 index[4] = {0}; /* offset and length of both indexes of its pages */
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        if (field.id == 3 && field.type == THRIFT_STRUCT) {
            read_column_meta(r, chunk);
            continue;
        }
        if (field.id == 1)
            r->refused = "columns in other files";
        if (field.id == 8 || field.id == 9)
            r->refused = "encrypted columns";
        if (field.id >= 4 && field.id <= 7)
            index[field.id - 4] = thrift_integer(t, &field);
        else
            thrift_skip(t, field.type);
    }
    note_end(r, chunk->offset, chunk->bytes);
    note_end(r, index[0], index[1]);
    note_end(r, index[2], index[3]);
}

static void read_group(struct reading_footer *r, struct parquet_group *group)
{
    struct thrift *t = &r->thrift;
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        if (field.id == 1) {
            i64 count = thrift_list(t, &field, THRIFT_STRUCT);
            if (count != r->out->leaf_count || group->chunks) {
                t->problem = t->problem ? t->problem : "a row group has not as many columns as the schema";
                return;
            }
            group->chunks = memory_alloc(count * (i64)sizeof *group->chunks);
            for (i64 i = 0; i < count; i++)
                read_chunk(r, &group->chunks[i]);
        } else if (field.id == 3) {
            group->rows = thrift_integer(t, &field);
        } else {
            thrift_skip(t, field.type);
        }
    }
}

static void read_groups(struct reading_footer *r, const struct thrift_field *field)
{
    struct parquet_footer *f = r->out;
    i64 count = thrift_list(&r->thrift, field, THRIFT_STRUCT);
    if (f->groups || !f->nodes || settle(f, 0, 0, 0, 0) != f->node_count) {
        r->thrift.problem = r->thrift.problem ? r->thrift.problem : "a schema that is no tree";
        return;
    }
    f->groups = memory_alloc(max_i64(1, count) * (i64)sizeof *f->groups);
    f->group_count = count;
    for (i64 i = 0; i < count && !r->thrift.problem; i++)
        read_group(r, &f->groups[i]);
}

/* ---- The footer ---- */

static int check_groups(const struct parquet_footer *f, i64 bytes, const char *path)
{
    i64 rows = 0;
    for (i64 g = 0; g < f->group_count; g++) {
        const struct parquet_group *group = &f->groups[g];
        for (i64 i = 0; i < f->leaf_count; i++) {
            const struct parquet_chunk *c = group->chunks ? &group->chunks[i] : NULL;
            if (c && c->values == 0)
                continue; /* an empty table, whose chunks have no location */
            if (!c || c->offset < 4 || c->bytes < 0 || c->offset > bytes || c->bytes > bytes - c->offset ||
                c->values < 0)
                return error_set("%s: the footer puts column %lld of row group %lld outside of the file", path,
                                 (long long)i, (long long)g);
        }
        if (group->rows < 0 || group->rows > INT64_MAX - rows)
            return error_set("%s: row group %lld of %lld %s", path, (long long)g, (long long)group->rows,
                             plural(group->rows, "row", "rows"));
        rows += group->rows;
    }
    return rows == f->rows ? 0
                           : error_set("%s: the footer counts %lld %s, its row groups %lld", path, (long long)f->rows,
                                       plural(f->rows, "row", "rows"), (long long)rows);
}

static void read_fields(struct reading_footer *r)
{
    struct thrift *t = &r->thrift;
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        if (field.id == 2)
            read_schema(r, &field);
        else if (field.id == 3)
            r->out->rows = thrift_integer(t, &field);
        else if (field.id == 4)
            read_groups(r, &field);
        else
            thrift_skip(t, field.type);
        if (field.id == 8)
            r->refused = "encrypted columns";
    }
}

/* Offsets count from the beginning of the file that a footer was written for. If files stand one
 * behind another, that is not the beginning of this one: `end` of its data is not where the footer
 * begins. */
static int check_begin(struct blob *blob, i64 begin, i64 end, const char *path)
{
    u8 marks[8] = {0};
    i64 first = begin - end;
    if (first >= 12 && blob_read_at(blob, marks, first - 4, 8) < 0)
        return -1;
    return memcmp(marks, "PAR1PAR1", 8) != 0
               ? 0
               : error_set("%s: byte %lld: another Parquet file begins here: split the file", path, (long long)first);
}

static int parse(struct parquet_footer *f, struct blob *blob, const u8 *data, i64 begin, i64 length, const char *path)
{
    struct reading_footer r = {.thrift = {.data = data, .bytes = length}, .out = f};
    read_fields(&r);
    if (r.thrift.problem)
        return error_set("%s: byte %lld: a damaged footer: %s", path, (long long)(begin + r.thrift.at),
                         r.thrift.problem);
    if (r.refused)
        return error_set("%s: has %s, which cannot be read", path, r.refused);
    if (!f->groups)
        return error_set("%s: byte %lld: a footer without row groups", path, (long long)begin);
    return check_begin(blob, begin, r.end, path) < 0 ? -1 : check_groups(f, begin, path);
}

int parquet_footer_read(struct parquet_footer *f, struct blob *blob, i64 bytes, const char *path)
{
    u8 tail[TAIL_BYTES], head[4];
    u32 length;
    *f = (struct parquet_footer){0};
    if (bytes < 12)
        return error_set("%s: %lld %s no Parquet file (\"PAR1\" at both ends)", path, (long long)bytes,
                         plural(bytes, "byte is", "bytes are"));
    if (blob_read_at(blob, head, 0, 4) < 0 || blob_read_at(blob, tail, bytes - TAIL_BYTES, TAIL_BYTES) < 0)
        return -1;
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return error_set("%s: is encrypted, which cannot be read", path);
    if (memcmp(head, "PAR1", 4) != 0 || memcmp(tail + 4, "PAR1", 4) != 0)
        return error_set("%s: byte %lld: no Parquet file, or one that is cut short (\"PAR1\" at both ends)", path,
                         memcmp(head, "PAR1", 4) ? 0 : (long long)bytes - 4);
    memcpy(&length, tail, 4);
    if ((i64)length > bytes - 12)
        return error_set("%s: byte %lld: a footer of %u bytes in a file of %lld", path, (long long)bytes - 8, length,
                         (long long)bytes);
    i64 begin = bytes - TAIL_BYTES - (i64)length;
    u8 *data = memory_alloc(max_i64(1, (i64)length));
    int status = blob_read_at(blob, data, begin, (i64)length);
    if (status == 0)
        status = parse(f, blob, data, begin, (i64)length, path);
    memory_free(data);
    return status;
}

void parquet_footer_release(struct parquet_footer *f)
{
    for (i64 i = 0; i < f->node_count; i++)
        memory_free(f->nodes[i].name);
    for (i64 g = 0; g < f->group_count; g++)
        memory_free(f->groups[g].chunks);
    memory_free(f->nodes);
    memory_free(f->groups);
    *f = (struct parquet_footer){0};
}
