/* Statements of a template, as Jinja's parser reads them. */
#include "tokenizers/template/inside.h"

#include <string.h>

const struct jinja_token *jinja_peek(const struct jinja_parser *parser, i64 ahead)
{
    return &parser->tokens[min_i64(parser->at + ahead, parser->count - 1)];
}

static void skip(struct jinja_parser *parser)
{
    parser->at = min_i64(parser->at + 1, parser->count - 1);
    parser->run->line = jinja_peek(parser, 0)->line;
}

bool jinja_at_operator(const struct jinja_parser *parser, const char *operation)
{
    const struct jinja_token *token = jinja_peek(parser, 0);
    return token->kind == JINJA_OPERATOR && strcmp(token->operation, operation) == 0;
}

static bool is_name(const struct jinja_token *token, const char *name)
{
    return token->kind == JINJA_TOKEN_NAME && jinja_is(token->value, name);
}

bool jinja_at_name(const struct jinja_parser *parser, const char *name)
{
    return is_name(jinja_peek(parser, 0), name);
}

bool jinja_skip_operator(struct jinja_parser *parser, const char *operation)
{
    bool found = jinja_at_operator(parser, operation);
    if (found)
        skip(parser);
    return found;
}

bool jinja_skip_name(struct jinja_parser *parser, const char *name)
{
    bool found = jinja_at_name(parser, name);
    if (found)
        skip(parser);
    return found;
}

void jinja_unexpected(struct jinja_parser *parser, const char *expected)
{
    const struct jinja_token *token = jinja_peek(parser, 0);
    struct jinja_run *run = parser->run;
    run->line = token->line;
    switch (token->kind) {
    case JINJA_END:
        jinja_fail(run, "expected %s, found the end of the template", expected);
    case JINJA_VARIABLE_END:
        jinja_fail(run, "expected %s, found }}", expected);
    case JINJA_BLOCK_END:
        jinja_fail(run, "expected %s, found %%}", expected);
    case JINJA_TOKEN_NAME:
        jinja_fail(run, "expected %s, found %.*s", expected, (int)min_i64(token->value.text->length, 80),
                   token->value.text->bytes);
    case JINJA_OPERATOR:
        jinja_fail(run, "expected %s, found '%s'", expected, token->operation);
    default:
        jinja_fail(run, "expected %s, found %s", expected, token->kind == JINJA_TOKEN_CONSTANT ? "a literal" : "text");
    }
}

void jinja_expect_operator(struct jinja_parser *parser, const char *operation)
{
    char expected[16] = {'\''};
    if (jinja_skip_operator(parser, operation))
        return;
    strcat(strcat(expected, operation), "'");
    jinja_unexpected(parser, expected);
}

/* The name at the token, in the form that is compared by address. */
struct jinja_text *jinja_expect_name(struct jinja_parser *parser)
{
    const struct jinja_token *token = jinja_peek(parser, 0);
    if (token->kind != JINJA_TOKEN_NAME)
        jinja_unexpected(parser, "a name");
    skip(parser);
    return jinja_name(parser, token->value);
}

struct jinja_text *jinja_name(struct jinja_parser *parser, struct jinja_value text)
{
    struct jinja_value *found = jinja_find(parser->run, parser->names, text);
    if (!found) {
        parser->template->reads_clock |= jinja_is(text, "strftime_now");
        jinja_points(text.text); /* both are known before threads share the template */
        jinja_hash(parser->run, text);
        jinja_put(parser->run, parser->names, text, text);
        return text.text;
    }
    return found->text;
}

struct jinja_node *jinja_new(struct jinja_parser *parser, enum jinja_node_kind kind)
{
    struct jinja_node *node = jinja_alloc(parser->run, sizeof *node);
    *node = (struct jinja_node){.kind = kind, .line = jinja_peek(parser, 0)->line};
    return node;
}

void jinja_add(struct jinja_parser *parser, struct jinja_nodes *nodes, struct jinja_node *node)
{
    if (nodes->count == nodes->capacity) {
        i64 capacity = max_i64(4, nodes->capacity * 2), size = sizeof *nodes->at;
        nodes->at = jinja_grow(parser->run, nodes->at, nodes->capacity * size, capacity * size);
        nodes->capacity = capacity;
    }
    nodes->at[nodes->count++] = node;
}

void jinja_nest(struct jinja_parser *parser)
{
    if (++parser->nesting > JINJA_NESTING_MOST)
        jinja_fail(parser->run, "expressions or blocks are nested more than %d deep", JINJA_NESTING_MOST);
}

/* ---- Blocks ---- */

static void parse_nodes(struct jinja_parser *parser, struct jinja_nodes *out, const char *first, const char *second,
                        const char *third);

static void expect_block_end(struct jinja_parser *parser)
{
    if (jinja_peek(parser, 0)->kind != JINJA_BLOCK_END)
        jinja_unexpected(parser, "%}");
    skip(parser);
}

/* Parses a body up to one of the tags, whose name is then the next token. */
static void parse_body(struct jinja_parser *parser, struct jinja_nodes *out, const char *first, const char *second,
                       const char *third)
{
    jinja_skip_operator(parser, ":");
    expect_block_end(parser);
    jinja_nest(parser);
    parse_nodes(parser, out, first, second, third);
    parser->nesting--;
}

static void parse_body_to(struct jinja_parser *parser, struct jinja_nodes *out, const char *end)
{
    parse_body(parser, out, end, NULL, NULL);
    skip(parser);
}

/* Each elif stands alone in the else branch of the one before. */
static struct jinja_node *parse_if(struct jinja_parser *parser)
{
    struct jinja_node *first = jinja_new(parser, JINJA_IF), *node = first;
    bool soft = parser->soft;
    parser->soft = true;
    for (int count = 0;; count++) {
        node->a = jinja_parse_tuple(parser, false, NULL);
        parse_body(parser, &node->body, "elif", "else", "endif");
        if (!jinja_skip_name(parser, "elif"))
            break;
        if (count > JINJA_NESTING_MOST)
            jinja_fail(parser->run, "a condition has more than %d elif", JINJA_NESTING_MOST);
        struct jinja_node *next = jinja_new(parser, JINJA_IF);
        jinja_add(parser, &node->other, next);
        node = next;
    }
    if (jinja_skip_name(parser, "else"))
        parse_body_to(parser, &node->other, "endif");
    else
        skip(parser);
    parser->soft = soft;
    return first;
}

/* What opens a scope is compiled for itself: unknown filters in it are refused, and only a loop of its
 * own can be left by break. */
struct jinja_outside {
    bool soft, loop;
};

static struct jinja_outside go_inside(struct jinja_parser *parser, bool loop)
{
    struct jinja_outside outside = {parser->soft, parser->loop};
    parser->soft = false;
    parser->loop = loop;
    return outside;
}

static void go_outside(struct jinja_parser *parser, struct jinja_outside outside)
{
    parser->soft = outside.soft;
    parser->loop = outside.loop;
}

static void refuse_loop(struct jinja_parser *parser, const struct jinja_node *target)
{
    for (i64 i = 0; i < target->items.count; i++)
        refuse_loop(parser, target->items.at[i]);
    if (target->kind == JINJA_NAME && parser->loop && jinja_is(jinja_name_value(target), "loop"))
        jinja_fail(parser->run, "the variable loop of a for loop cannot be assigned");
}

static struct jinja_node *parse_for(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_new(parser, JINJA_FOR);
    node->a = jinja_parse_target(parser, "in", false);
    if (!jinja_skip_name(parser, "in"))
        jinja_unexpected(parser, "in");
    node->b = jinja_parse_tuple(parser, false, "recursive");
    struct jinja_outside outside = go_inside(parser, true);
    refuse_loop(parser, node->a);
    if (jinja_skip_name(parser, "if"))
        node->c = jinja_parse_expression(parser, true);
    node->flag = jinja_skip_name(parser, "recursive");
    parse_body(parser, &node->body, "endfor", "else", NULL);
    parser->loop = outside.loop;
    if (jinja_skip_name(parser, "else"))
        parse_body_to(parser, &node->other, "endfor");
    else
        skip(parser);
    go_outside(parser, outside);
    return node;
}

static struct jinja_node *parse_set(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_new(parser, JINJA_SET);
    node->a = jinja_parse_target(parser, NULL, true);
    refuse_loop(parser, node->a);
    if (jinja_skip_operator(parser, "=")) {
        node->b = jinja_parse_tuple(parser, true, NULL);
        return node;
    }
    node->kind = JINJA_SET_BLOCK;
    struct jinja_outside outside = go_inside(parser, false);
    node->b = jinja_parse_filters(parser, NULL, false);
    parse_body_to(parser, &node->body, "endset");
    go_outside(parser, outside);
    return node;
}

static void parse_signature(struct jinja_parser *parser, struct jinja_node *macro)
{
    jinja_expect_operator(parser, "(");
    while (!jinja_at_operator(parser, ")")) {
        if (macro->items.count)
            jinja_expect_operator(parser, ",");
        struct jinja_node *parameter = jinja_new(parser, JINJA_NAME);
        parameter->name = jinja_expect_name(parser);
        parameter->flag = true;
        if (jinja_skip_operator(parser, "="))
            jinja_add(parser, &macro->keywords, jinja_parse_expression(parser, true));
        else if (jinja_is(jinja_name_value(parameter), "caller"))
            jinja_fail(parser->run, "the parameter caller of a macro needs a default");
        else if (macro->keywords.count)
            jinja_fail(parser->run, "a parameter without a default follows one that has a default");
        jinja_add(parser, &macro->items, parameter);
    }
    jinja_expect_operator(parser, ")");
}

static struct jinja_node *parse_macro(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_new(parser, JINJA_MACRO_NODE);
    struct jinja_outside outside = go_inside(parser, false);
    node->name = jinja_expect_name(parser);
    parse_signature(parser, node);
    parse_body_to(parser, &node->body, "endmacro");
    go_outside(parser, outside);
    return node;
}

static struct jinja_node *parse_call(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_new(parser, JINJA_CALL_BLOCK);
    struct jinja_outside outside = go_inside(parser, false);
    if (jinja_at_operator(parser, "("))
        parse_signature(parser, node);
    node->a = jinja_parse_expression(parser, true);
    if (node->a->kind != JINJA_CALL)
        jinja_fail(parser->run, "expected a call of a macro in the tag call");
    parse_body_to(parser, &node->body, "endcall");
    go_outside(parser, outside);
    return node;
}

static struct jinja_node *parse_filter(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_new(parser, JINJA_FILTER_BLOCK);
    struct jinja_outside outside = go_inside(parser, false);
    node->a = jinja_parse_filters(parser, NULL, true);
    parse_body_to(parser, &node->body, "endfilter");
    go_outside(parser, outside);
    return node;
}

static struct jinja_node *parse_with(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_new(parser, JINJA_WITH);
    struct jinja_outside outside = go_inside(parser, parser->loop);
    while (jinja_peek(parser, 0)->kind != JINJA_BLOCK_END) {
        if (node->items.count)
            jinja_expect_operator(parser, ",");
        jinja_add(parser, &node->items, jinja_parse_target(parser, NULL, false));
        jinja_expect_operator(parser, "=");
        jinja_add(parser, &node->keywords, jinja_parse_expression(parser, true));
    }
    parse_body_to(parser, &node->body, "endwith");
    go_outside(parser, outside);
    return node;
}

static struct jinja_node *parse_generation(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_new(parser, JINJA_GENERATION);
    struct jinja_outside outside = go_inside(parser, false);
    if (parser->generation)
        jinja_fail(parser->run, "the tag generation stands inside of another: expected answers beside each other");
    parser->generation = parser->template->marks_generation = true;
    parse_body_to(parser, &node->body, "endgeneration");
    parser->generation = false;
    go_outside(parser, outside);
    return node;
}

static struct jinja_node *parse_print(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_new(parser, JINJA_OUTPUT);
    while (jinja_peek(parser, 0)->kind != JINJA_BLOCK_END) {
        if (node->items.count)
            jinja_expect_operator(parser, ",");
        jinja_add(parser, &node->items, jinja_parse_expression(parser, true));
    }
    return node;
}

static struct jinja_node *leave_loop(struct jinja_parser *parser, enum jinja_node_kind kind)
{
    if (!parser->loop)
        jinja_fail(parser->run, "%s stands outside of a loop", kind == JINJA_BREAK ? "break" : "continue");
    return jinja_new(parser, kind);
}

static struct jinja_node *parse_break(struct jinja_parser *parser)
{
    return leave_loop(parser, JINJA_BREAK);
}

static struct jinja_node *parse_continue(struct jinja_parser *parser)
{
    return leave_loop(parser, JINJA_CONTINUE);
}

/* NULL: refused. */
static const struct jinja_tag {
    const char *name;
    struct jinja_node *(*parse)(struct jinja_parser *parser);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call},
    {"filter", parse_filter},
    {"with", parse_with},
    {"generation", parse_generation},
    {"print", parse_print},
    {"break", parse_break},
    {"continue", parse_continue},
    {"include", NULL},
    {"import", NULL},
    {"from", NULL},
    {"extends", NULL},
    {"block", NULL},
    {"autoescape", NULL},
};

static struct jinja_node *parse_statement(struct jinja_parser *parser)
{
    const struct jinja_token *token = jinja_peek(parser, 0);
    if (token->kind != JINJA_TOKEN_NAME)
        jinja_unexpected(parser, "the name of a tag");
    for (i64 i = 0; i < COUNT_OF(tags); i++) {
        if (!jinja_is(token->value, tags[i].name))
            continue;
        if (!tags[i].parse)
            jinja_fail(parser->run, "the tag %s is not supported in chat templates", tags[i].name);
        skip(parser);
        return tags[i].parse(parser);
    }
    jinja_fail(parser->run, "unknown tag %.*s", (int)min_i64(token->value.text->length, 80), token->value.text->bytes);
}

static void parse_output(struct jinja_parser *parser, struct jinja_nodes *out)
{
    skip(parser);
    struct jinja_node *node = jinja_new(parser, JINJA_OUTPUT);
    jinja_add(parser, &node->items, jinja_parse_tuple(parser, true, NULL));
    if (jinja_peek(parser, 0)->kind != JINJA_VARIABLE_END)
        jinja_unexpected(parser, "}}");
    skip(parser);
    jinja_add(parser, out, node);
}

static bool at_end_tag(const struct jinja_parser *parser, const char *const *ends)
{
    for (int i = 0; i < 3 && ends[i]; i++)
        if (jinja_at_name(parser, ends[i]))
            return true;
    return false;
}

static void parse_nodes(struct jinja_parser *parser, struct jinja_nodes *out, const char *first, const char *second,
                        const char *third)
{
    const char *const ends[] = {first, second, third};
    for (;;) {
        const struct jinja_token *token = jinja_peek(parser, 0);
        if (token->kind == JINJA_END && first)
            jinja_unexpected(parser, first);
        if (token->kind == JINJA_END)
            return;
        if (token->kind == JINJA_TOKEN_DATA) {
            struct jinja_node *node = jinja_new(parser, JINJA_DATA);
            node->constant = token->value;
            skip(parser);
            jinja_add(parser, out, node);
        } else if (token->kind == JINJA_VARIABLE_BEGIN) {
            parse_output(parser, out);
        } else {
            skip(parser);
            if (at_end_tag(parser, ends))
                return;
            jinja_add(parser, out, parse_statement(parser));
            expect_block_end(parser);
        }
    }
}

void jinja_parse(struct jinja_parser *parser)
{
    const struct jinja_node *unknown;
    parse_nodes(parser, &parser->template->body, NULL, NULL, NULL);
    if ((unknown = parser->unknown)) {
        parser->run->line = unknown->line;
        jinja_fail(parser->run, "No %s named %s.", unknown->operation, jinja_repr_text(parser->run, unknown->constant));
    }
}
