/* YAML through libyaml's document API, copied into nodes that know their source position. */
#include "core/settings.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define BYTES_MAX ((i64)1 << 24)
#define DEPTH_MAX 64
#define ANCHORS_MAX 10000    /* anchors and aliases: libyaml searches a list for each */
#define TAGS_MAX 64          /* directives %TAG: likewise */
#define EXPANDED_MAX 1000000 /* nodes, counted with every alias expanded */

struct yaml_node {
    yaml_node_type_t type;
    const char *scalar; /* NULL for sequences and mappings */
    char *where;
    const struct yaml_node **children; /* mappings: key, value, key, value, ... */
    i64 child_count;
    i64 expanded; /* size of the subtree; 0: not counted yet, -1: being counted */
    int height;
};

struct yaml {
    yaml_document_t document;
    struct yaml_node *nodes;
    i64 count;
    char *origin;
};

/* The line with the problem begins with spaces and a tab, or a tab. */
static bool is_indented_by_tab(const yaml_parser_t *parser)
{
    const char *text = (const char *)parser->input.string.start, *end = (const char *)parser->input.string.end;
    for (size_t line = 0; line < parser->problem_mark.line && text; line++) {
        text = memchr(text, '\n', (size_t)(end - text));
        text = text ? text + 1 : NULL;
    }
    while (text && text < end && *text == ' ')
        text++;
    return text && text < end && *text == '\t';
}

static int parser_error(const yaml_parser_t *parser, const char *origin)
{
    require_memory(parser->problem, "a YAML document"); /* all errors of a text have one */
    if (parser->error == YAML_READER_ERROR)
        return error_usage("%s: byte %zu: not valid YAML: %s", origin, parser->problem_offset, parser->problem);
    if (is_indented_by_tab(parser))
        return error_usage("%s:%zu: not valid YAML: a tab indents the line: expected spaces", origin,
                           parser->problem_mark.line + 1);
    return error_usage("%s:%zu:%zu: not valid YAML: %s%s%s", origin, parser->problem_mark.line + 1,
                       parser->problem_mark.column + 1, parser->problem, parser->context ? " " : "",
                       parser->context ? parser->context : "");
}

/* Counts of tokens on which libyaml's time and memory depend more than linearly. */
struct yaml_counts {
    i64 depth, nodes, anchors, tags;
};

static int count_token(struct yaml_counts *c, const yaml_token_t *token, const char *origin)
{
    yaml_token_type_t type = token->type;
    bool begins = type == YAML_BLOCK_SEQUENCE_START_TOKEN || type == YAML_BLOCK_MAPPING_START_TOKEN ||
                  type == YAML_FLOW_SEQUENCE_START_TOKEN || type == YAML_FLOW_MAPPING_START_TOKEN;
    bool ends =
        type == YAML_BLOCK_END_TOKEN || type == YAML_FLOW_SEQUENCE_END_TOKEN || type == YAML_FLOW_MAPPING_END_TOKEN;
    c->depth += begins - ends;
    c->nodes += begins || type == YAML_BLOCK_ENTRY_TOKEN || type == YAML_FLOW_ENTRY_TOKEN || type == YAML_KEY_TOKEN ||
                type == YAML_VALUE_TOKEN;
    c->anchors += type == YAML_ANCHOR_TOKEN || type == YAML_ALIAS_TOKEN;
    c->tags += type == YAML_TAG_DIRECTIVE_TOKEN;
    i64 line = (i64)token->start_mark.line + 1;
    if (c->depth > DEPTH_MAX + 1)
        return error_usage("%s:%lld: nested more than %d deep", origin, (long long)line, DEPTH_MAX);
    if (c->nodes > EXPANDED_MAX)
        return error_usage("%s:%lld: more than %d things", origin, (long long)line, EXPANDED_MAX);
    if (c->anchors > ANCHORS_MAX)
        return error_usage("%s:%lld: more than %d anchors (&) and aliases (*)", origin, (long long)line, ANCHORS_MAX);
    if (c->tags > TAGS_MAX)
        return error_usage("%s:%lld: more than %d directives %%TAG", origin, (long long)line, TAGS_MAX);
    return 0;
}

/* Bounds what libyaml builds, before it does. Text that is not YAML is left to the parser. */
static int check_tokens(const char *text, i64 length, const char *origin)
{
    struct yaml_counts counts = {0};
    yaml_parser_t parser;
    yaml_token_t token;
    int status = 0;
    bool more = true;
    require_memory(yaml_parser_initialize(&parser), "a YAML parser");
    yaml_parser_set_input_string(&parser, (const u8 *)(length ? text : ""), (size_t)length);
    while (status == 0 && more && yaml_parser_scan(&parser, &token)) {
        status = count_token(&counts, &token, origin);
        more = token.type != YAML_STREAM_END_TOKEN;
        yaml_token_delete(&token);
    }
    require_memory(status < 0 || !more || parser.problem, "a YAML document"); /* as in parser_error */
    yaml_parser_delete(&parser);
    return status;
}

static bool is_plain_null(const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    return node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && (strcmp(text, "null") == 0 || strcmp(text, "~") == 0);
}

static void copy_children(struct yaml_node *node, const yaml_node_t *source, struct yaml_node *nodes)
{
    i64 item = (i64)sizeof *node->children;
    if (source->type == YAML_SEQUENCE_NODE) {
        node->child_count = source->data.sequence.items.top - source->data.sequence.items.start;
        node->children = memory_alloc(node->child_count * item);
        for (i64 i = 0; i < node->child_count; i++)
            node->children[i] = &nodes[source->data.sequence.items.start[i] - 1];
    } else if (source->type == YAML_MAPPING_NODE) {
        node->child_count = 2 * (source->data.mapping.pairs.top - source->data.mapping.pairs.start);
        node->children = memory_alloc(node->child_count * item);
        for (i64 i = 0; i < node->child_count; i += 2) {
            node->children[i] = &nodes[source->data.mapping.pairs.start[i / 2].key - 1];
            node->children[i + 1] = &nodes[source->data.mapping.pairs.start[i / 2].value - 1];
        }
    }
}

static int copy_nodes(struct yaml *yaml)
{
    const yaml_node_t *sources = yaml->document.nodes.start;
    yaml->count = yaml->document.nodes.top - sources;
    yaml->nodes = memory_alloc(yaml->count * (i64)sizeof *yaml->nodes);
    for (i64 i = 0; i < yaml->count; i++) {
        struct yaml_node *node = &yaml->nodes[i];
        node->type = sources[i].type;
        node->where = string_format("%s:%zu", yaml->origin, sources[i].start_mark.line + 1);
        if (node->type == YAML_SCALAR_NODE) {
            node->scalar = is_plain_null(&sources[i]) ? "" : (const char *)sources[i].data.scalar.value;
            if (strlen((const char *)sources[i].data.scalar.value) != sources[i].data.scalar.length)
                return error_usage("%s: a text with a zero byte in it", node->where);
        }
        copy_children(node, &sources[i], yaml->nodes);
    }
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    const struct yaml_node *left = *(const struct yaml_node *const *)a, *right = *(const struct yaml_node *const *)b;
    int order = strcmp(left->scalar, right->scalar);
    return order ? order : (left > right) - (left < right);
}

static int check_keys(const struct yaml_node *mapping)
{
    i64 count = mapping->child_count / 2;
    int status = 0;
    const struct yaml_node **keys = memory_alloc(count * (i64)sizeof *keys);
    for (i64 i = 0; i < count && status == 0; i++) {
        keys[i] = mapping->children[2 * i];
        if (!keys[i]->scalar)
            status = error_usage("%s: expected a name as key, found a list or mapping", keys[i]->where);
    }
    if (status == 0 && count)
        qsort(keys, (size_t)count, sizeof *keys, compare_keys);
    for (i64 i = 1; i < count && status == 0; i++)
        if (strcmp(keys[i - 1]->scalar, keys[i]->scalar) == 0)
            status = error_usage("%s: key %s is there twice; first at %s", keys[i]->where, keys[i]->scalar,
                                 keys[i - 1]->where);
    memory_free(keys);
    return status;
}

static int check_node(struct yaml_node *node, int depth);

static int check_children(struct yaml_node *node, int depth)
{
    i64 expanded = 1;
    for (i64 i = 0; i < node->child_count; i++) {
        struct yaml_node *child = (struct yaml_node *)node->children[i];
        if (check_node(child, depth + 1) < 0)
            return -1;
        expanded += child->expanded;
        if (expanded > EXPANDED_MAX)
            return error_usage("%s: more than %d things when every alias (*) is followed", node->where, EXPANDED_MAX);
        if (child->height >= node->height)
            node->height = child->height + 1;
    }
    node->expanded = expanded;
    return 0;
}

/* Bounds a walk from the root: rejects cycles, deep nesting and huge alias expansions. */
static int check_node(struct yaml_node *node, int depth)
{
    if (node->expanded < 0)
        return error_usage("%s: an alias (*) inside its own anchor", node->where);
    if (depth + node->height > DEPTH_MAX)
        return error_usage("%s: nested more than %d deep", node->where, DEPTH_MAX);
    if (node->expanded > 0)
        return 0;
    if (node->type == YAML_MAPPING_NODE && check_keys(node) < 0)
        return -1;
    node->expanded = -1;
    return check_children(node, depth);
}

static int refuse_second_document(yaml_parser_t *parser, const char *origin)
{
    yaml_document_t next;
    if (!yaml_parser_load(parser, &next))
        return parser_error(parser, origin);
    const yaml_node_t *root = yaml_document_get_root_node(&next);
    int status = root ? error_usage("%s:%zu: a second document begins here; expected only one", origin,
                                    root->start_mark.line + 1)
                      : 0;
    yaml_document_delete(&next);
    return status;
}

static int load_document(struct yaml *yaml, yaml_parser_t *parser)
{
    if (!yaml_parser_load(parser, &yaml->document))
        return parser_error(parser, yaml->origin);
    if (!yaml_document_get_root_node(&yaml->document))
        return error_usage("%s: there is nothing in it; expected a YAML document", yaml->origin);
    if (refuse_second_document(parser, yaml->origin) < 0 || copy_nodes(yaml) < 0)
        return -1;
    return check_node(&yaml->nodes[0], 0);
}

struct yaml *yaml_parse(const char *text, i64 length, const char *origin)
{
    yaml_parser_t parser;
    if (check_tokens(text, length, origin) < 0)
        return NULL;
    require_memory(yaml_parser_initialize(&parser), "a YAML parser");
    yaml_parser_set_input_string(&parser, (const u8 *)(length ? text : ""), (size_t)length);
    struct yaml *yaml = memory_alloc(sizeof *yaml);
    yaml->origin = string_copy(origin);
    int status = load_document(yaml, &parser);
    yaml_parser_delete(&parser);
    if (status == 0)
        return yaml;
    yaml_free(yaml);
    return NULL;
}

static bool is_utf8(const char *text)
{
    i64 left = (i64)strlen(text), length = 1;
    for (; left > 0 && length > 0; text += length, left -= length)
        length = utf8_length(text, left);
    return left == 0;
}

struct yaml *yaml_of_text(const char *text, const char *origin)
{
    if (!is_utf8(text)) { /* libyaml would not say so */
        error_usage("%s: not valid UTF-8", origin);
        return NULL;
    }
    struct yaml *yaml = memory_alloc(sizeof *yaml);
    yaml->origin = string_copy(origin);
    require_memory(yaml_document_initialize(&yaml->document, NULL, NULL, NULL, 1, 1), "a YAML document");
    bool added = yaml_document_add_scalar(&yaml->document, NULL, (const u8 *)text, (int)strlen(text),
                                          YAML_DOUBLE_QUOTED_SCALAR_STYLE);
    require_memory(added, "a YAML document");
    if (copy_nodes(yaml) == 0)
        return yaml;
    yaml_free(yaml);
    return NULL;
}

struct yaml *yaml_load(const char *path)
{
    struct buffer text = {0};
    if (file_read_most(&text, path, BYTES_MAX) < 0)
        return NULL;
    struct yaml *yaml = yaml_parse(text.data, text.length, path);
    buffer_release(&text);
    return yaml;
}

void yaml_free(struct yaml *yaml)
{
    if (!yaml)
        return;
    for (i64 i = 0; i < yaml->count; i++) {
        memory_free(yaml->nodes[i].where);
        memory_free(yaml->nodes[i].children);
    }
    memory_free(yaml->nodes);
    memory_free(yaml->origin);
    yaml_document_delete(&yaml->document);
    memory_free(yaml);
}

const struct yaml_node *yaml_root(const struct yaml *yaml)
{
    return yaml ? &yaml->nodes[0] : NULL;
}

bool yaml_is_mapping(const struct yaml_node *node)
{
    return node && node->type == YAML_MAPPING_NODE;
}

bool yaml_is_sequence(const struct yaml_node *node)
{
    return node && node->type == YAML_SEQUENCE_NODE;
}

const char *yaml_scalar(const struct yaml_node *node)
{
    return node ? node->scalar : NULL;
}

i64 yaml_count(const struct yaml_node *node)
{
    if (!node)
        return 0;
    return yaml_is_mapping(node) ? node->child_count / 2 : node->child_count;
}

static const struct yaml_node *key_node(const struct yaml_node *mapping, i64 index)
{
    bool inside = yaml_is_mapping(mapping) && index >= 0 && index < yaml_count(mapping);
    return inside ? mapping->children[2 * index] : NULL;
}

const char *yaml_key(const struct yaml_node *mapping, i64 index)
{
    return yaml_scalar(key_node(mapping, index));
}

const char *yaml_key_where(const struct yaml_node *mapping, i64 index)
{
    return yaml_where(key_node(mapping, index));
}

const struct yaml_node *yaml_value(const struct yaml_node *node, i64 index)
{
    if (index < 0 || index >= yaml_count(node))
        return NULL;
    return node->children[yaml_is_mapping(node) ? 2 * index + 1 : index];
}

const struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key)
{
    for (i64 i = 0; yaml_is_mapping(mapping) && i < yaml_count(mapping); i++)
        if (strcmp(yaml_key(mapping, i), key) == 0)
            return yaml_value(mapping, i);
    return NULL;
}

const char *yaml_where(const struct yaml_node *node)
{
    return node ? node->where : "nowhere";
}
