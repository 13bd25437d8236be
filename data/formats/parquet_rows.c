/* Assembles rows from all columns by their levels (Melnik et al. 2010, "Dremel"). A definition
 * level says how deep an entry is defined; a repetition level says which list it continues. */
#include "data/formats/parquet_inside.h"
#include "data/formats/table.h"
#include "tokenizers/text/text.h"

#include <string.h>

struct parquet {
    struct blob *blob;
    char *path;
    struct parquet_footer footer;
    struct parquet_column *columns; /* [leaves] */
    bool *wanted;                   /* [top-level columns] */
    i64 *tops;                      /* node indices of the top-level columns */
    i64 top_count, group, left;     /* group: the next row group; left: rows left in the current one */
    i64 given;
    struct record *row;
    i64 entries, bytes; /* counts of the current row */
};
/* Limits per row: a few bytes can encode any number of equal values. */
enum { ROW_ENTRIES_MAX = 1 << 22, ROW_BYTES_MAX = 1 << 30 };

static const struct parquet_node *top_node(const struct parquet *p, i64 index)
{
    return &p->footer.nodes[p->tops[index]];
}

i64 parquet_columns(const struct parquet *p)
{
    return p->top_count;
}

const char *parquet_column(const struct parquet *p, i64 index)
{
    return top_node(p, index)->name;
}

void parquet_want(struct parquet *p, i64 index, bool wanted)
{
    p->wanted[index] = wanted;
}

i64 parquet_rows(const struct parquet *p)
{
    return p->footer.rows;
}

/* ---- Values: a text that is not UTF-8 stays bytes, which users of text refuse ---- */

static float read_f32(u64 bits)
{
    u32 low = (u32)bits;
    float value;
    memcpy(&value, &low, 4);
    return value;
}

static double read_f64(u64 bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static struct json *whole_number(const struct parquet_node *node, u64 bits)
{
    if (node->type == PARQUET_INT32)
        bits = node->meaning == MEANS_UNSIGNED ? (u32)bits : (u64)(i64)(i32)(u32)bits;
    if (node->meaning == MEANS_UNSIGNED && bits > INT64_MAX)
        return json_of_number((double)bits);
    return json_of_integer((i64)bits);
}

/* Text of values that JSON has no numbers for; NULL: the value converts as stored. */
static struct json *text_of_value(const struct parquet_node *node, const struct parquet_value *value)
{
    bool whole = node->type == PARQUET_INT32 || node->type == PARQUET_INT64;
    if (node->type == PARQUET_INT96)
        return parquet_timestamp(value->bytes);
    if (node->meaning != MEANS_DECIMAL)
        return NULL;
    if (whole)
        return parquet_decimal_of_integer(value->bits, node->type == PARQUET_INT32 ? 4 : 8, node->scale);
    bool bytes = node->type == PARQUET_BYTES || node->type == PARQUET_FIXED;
    return bytes ? json_of_decimal(value->bytes, value->length, node->scale) : NULL;
}

static struct json *json_of_value(struct parquet *p, const struct parquet_node *node, const struct parquet_value *value)
{
    struct json *said = text_of_value(node, value);
    if (said)
        return said;
    switch (node->type) {
    case PARQUET_BOOLEAN:
        return json_of_bool(value->bits & 1);
    case PARQUET_INT32:
    case PARQUET_INT64:
        return whole_number(node, value->bits);
    case PARQUET_FLOAT:
        return json_of_number(read_f32(value->bits));
    case PARQUET_DOUBLE:
        return json_of_number(read_f64(value->bits));
    default:
        break;
    }
    const char *bytes = (const char *)value->bytes;
    bool text = node->meaning == MEANS_TEXT && text_invalid_utf8(bytes, value->length) < 0;
    return text ? json_of_utf8(bytes, value->length) : record_blob(p->row, bytes, value->length);
}

/* ---- Nesting ---- */

static struct json *read_node(struct parquet *p, const struct parquet_node *node, int repetition);

static int level_mismatch(const struct parquet *p, const struct parquet_node *node)
{
    return error_set("%s: row %lld: column %s: its levels differ from those of the sibling columns", p->path,
                     (long long)p->given + 1, node->name);
}

/* The next entry of a leaf, which must exist and have this repetition level. NULL with a message
 * otherwise. */
static struct parquet_column *expect_entry(struct parquet *p, i64 leaf, int repetition)
{
    struct parquet_column *c = &p->columns[leaf];
    int status = parquet_column_peek(c);
    if (status == 1 && c->repetition == repetition)
        return c;
    if (status >= 0)
        level_mismatch(p, c->node);
    return NULL;
}

/* Skips a null or empty subtree, which has one entry in every leaf, and returns `absent`. */
static struct json *skip_absent(struct parquet *p, const struct parquet_node *node, int repetition, struct json *absent)
{
    const struct parquet_node *behind = p->footer.nodes + node->next;
    i64 end = behind < p->footer.nodes + p->footer.node_count ? behind->first_leaf : p->footer.leaf_count;
    for (i64 leaf = node->first_leaf; leaf < end; leaf++) {
        struct parquet_column *c = expect_entry(p, leaf, repetition);
        if (!c || c->definition >= node->definition) {
            if (c)
                level_mismatch(p, c->node);
            json_free(absent);
            return NULL;
        }
        c->ahead = false;
    }
    return absent;
}

static struct json *read_leaf(struct parquet *p, const struct parquet_node *node, int repetition)
{
    struct parquet_column *c = expect_entry(p, node->first_leaf, repetition);
    if (c && c->definition < node->definition) {
        level_mismatch(p, node);
        return NULL;
    }
    if (!c)
        return NULL;
    c->ahead = false;
    p->bytes += c->value.length;
    if (p->bytes <= ROW_BYTES_MAX)
        return json_of_value(p, node, &c->value);
    error_set("%s: row %lld: more than %d bytes", p->path, (long long)p->given + 1, ROW_BYTES_MAX);
    return NULL;
}

static struct json *read_struct(struct parquet *p, const struct parquet_node *node, int repetition)
{
    struct json *object = json_object();
    i64 child = node - p->footer.nodes + 1;
    for (i64 i = 0; i < node->children; i++, child = p->footer.nodes[child].next) {
        struct json *value = read_node(p, &p->footer.nodes[child], repetition);
        if (!value) {
            json_free(object);
            return NULL;
        }
        json_set(object, p->footer.nodes[child].name, value);
    }
    return object;
}

/* True if `repeated` is the middle level of a three-level list: a group whose only field is the
 * element, which readers hide. In older files it is the element itself: then it has several fields,
 * or is called `array` or NAME_tuple. */
static bool is_wrapper(const struct parquet_node *list, const struct parquet_node *repeated)
{
    size_t length = strlen(list->name);
    bool named = strcmp(repeated->name, "array") == 0 ||
                 (strncmp(repeated->name, list->name, length) == 0 && strcmp(repeated->name + length, "_tuple") == 0);
    return repeated->type == PARQUET_GROUP && repeated->children == 1 && !named;
}

static struct json *read_element(struct parquet *p, const struct parquet_node *node, int repetition, bool wrapped)
{
    if (wrapped)
        return read_node(p, node + 1, repetition);
    return node->type == PARQUET_GROUP ? read_struct(p, node, repetition) : read_leaf(p, node, repetition);
}

static struct json *read_repeated(struct parquet *p, const struct parquet_node *node, int repetition, bool wrapped)
{
    struct parquet_column *lead = expect_entry(p, node->first_leaf, repetition);
    struct json *array = json_array();
    if (lead && lead->definition < node->definition)
        return skip_absent(p, node, repetition, array);
    int status = lead ? 1 : -1;
    while (status == 1) {
        struct json *element = read_element(p, node, repetition, wrapped);
        if (element)
            json_push(array, element);
        status = element ? parquet_column_peek(lead) : -1;
        if (++p->entries > ROW_ENTRIES_MAX)
            status = error_set("%s: row %lld: column %s: lists of more than %d elements", p->path,
                               (long long)p->given + 1, node->name, ROW_ENTRIES_MAX);
        repetition = node->repeated;
        if (status == 1 && lead->repetition < node->repeated)
            break;
    }
    if (status >= 0)
        return array;
    json_free(array);
    return NULL;
}

static struct json *read_node(struct parquet *p, const struct parquet_node *node, int repetition)
{
    if (node->repetition == PARQUET_REPEATED)
        return read_repeated(p, node, repetition, false);
    if (node->repetition == PARQUET_OPTIONAL) {
        struct parquet_column *lead = expect_entry(p, node->first_leaf, repetition);
        if (!lead)
            return NULL;
        if (lead->definition < node->definition)
            return skip_absent(p, node, repetition, json_of_null());
    }
    if (node->type != PARQUET_GROUP)
        return read_leaf(p, node, repetition);
    const struct parquet_node *inner = node + 1;
    bool list = (node->meaning == MEANS_LIST || node->meaning == MEANS_MAP) && node->children == 1 &&
                inner->repetition == PARQUET_REPEATED;
    if (list)
        return read_repeated(p, inner, repetition, node->meaning == MEANS_LIST && is_wrapper(node, inner));
    return read_struct(p, node, repetition);
}

/* ---- Rows ---- */

static void begin_group(struct parquet *p)
{
    const struct parquet_group *group = &p->footer.groups[p->group++];
    p->left = group->rows;
    for (i64 i = 0; i < p->footer.leaf_count; i++)
        if (p->columns[i].wanted)
            parquet_column_begin(&p->columns[i], &group->chunks[i]);
}

static int read_row(struct parquet *p)
{
    p->row->object = json_object();
    p->entries = p->bytes = 0;
    for (i64 i = 0; i < p->top_count; i++) {
        const struct parquet_node *node = top_node(p, i);
        struct json *value = p->wanted[i] ? read_node(p, node, 0) : NULL;
        if (value)
            json_set(p->row->object, node->name, value);
        else if (p->wanted[i])
            return -1;
    }
    return 1;
}

/* Marks the leaves of the wanted columns, once, at the first row. */
static void choose_leaves(struct parquet *p)
{
    for (i64 i = 0; i < p->top_count; i++) {
        const struct parquet_node *node = top_node(p, i);
        i64 end = i + 1 < p->top_count ? top_node(p, i + 1)->first_leaf : p->footer.leaf_count;
        for (i64 leaf = node->first_leaf; leaf < end; leaf++)
            p->columns[leaf].wanted = p->wanted[i];
    }
}

int parquet_next(struct parquet *p, struct record *row)
{
    *row = (struct record){0};
    if (p->given == 0)
        choose_leaves(p);
    while (p->left == 0) {
        if (p->group == p->footer.group_count)
            return 0;
        begin_group(p);
    }
    p->row = row;
    if (read_row(p) < 0) {
        record_release(row);
        return -1;
    }
    p->left--;
    p->given++;
    return 1;
}

/* ---- Opening ---- */

static void open_columns(struct parquet *p)
{
    struct parquet_footer *f = &p->footer;
    p->columns = memory_alloc(f->leaf_count * (i64)sizeof *p->columns);
    for (i64 i = 0; i < f->node_count; i++)
        if (f->nodes[i].type != PARQUET_GROUP)
            p->columns[f->nodes[i].first_leaf] =
                (struct parquet_column){.node = &f->nodes[i], .path = p->path, .blob = p->blob};
    p->top_count = f->nodes[0].children;
    p->wanted = memory_alloc(p->top_count);
    p->tops = memory_alloc(p->top_count * 8);
    for (i64 i = 0, node = 1; i < p->top_count; i++, node = f->nodes[node].next) {
        p->tops[i] = node;
        p->wanted[i] = true;
    }
}

struct parquet *parquet_open(const char *path)
{
    struct parquet *p = memory_alloc(sizeof *p);
    *p = (struct parquet){.path = string_copy(path), .blob = blob_open(path)};
    i64 bytes = p->blob ? blob_bytes(p->blob) : -2;
    int status = bytes == -1
                     ? error_set("%s: its size is not known: expected a file, for its footer is read first", path)
                 : bytes < 0 ? -1
                             : 0;
    if (status == 0)
        status = parquet_footer_read(&p->footer, p->blob, bytes, path);
    if (status == 0) {
        open_columns(p);
        return p;
    }
    parquet_close(p);
    return NULL;
}

void parquet_close(struct parquet *p)
{
    if (!p)
        return;
    for (i64 i = 0; p->columns && i < p->footer.leaf_count; i++)
        parquet_column_release(&p->columns[i]);
    blob_close(p->blob);
    parquet_footer_release(&p->footer);
    memory_free(p->columns);
    memory_free(p->wanted);
    memory_free(p->tops);
    memory_free(p->path);
    memory_free(p);
}

/* ---- As a table ---- */

static void *table_of(const char *path, const struct table_text *text)
{
    (void)text;
    return parquet_open(path);
}

static i64 table_columns(const void *table)
{
    return parquet_columns(table);
}

static const char *table_column(const void *table, i64 index)
{
    return parquet_column(table, index);
}

static void want_column(void *table, i64 index, bool wanted)
{
    parquet_want(table, index, wanted);
}

static int next_row(void *table, struct record *row)
{
    return parquet_next(table, row);
}

static i64 row_number(const void *table)
{
    return ((const struct parquet *)table)->given;
}

static double share_read(const void *table)
{
    const struct parquet *p = table;
    return p->footer.rows ? (double)p->given / (double)p->footer.rows : 1;
}

static void close_table(void *table)
{
    parquet_close(table);
}

const struct table_kind parquet_table = {".parquet", table_of,   table_columns, table_column, want_column,
                                         next_row,   row_number, share_read,    close_table};
