/* Expressions, with the precedence of Jinja's parser: comparisons bind looser than sums, `~` stands
 * between sums and products, filters and tests apply behind a sign. */
#include "tokenizers/template/inside.h"

#include <string.h>

static struct jinja_node *parse_unary(struct jinja_parser *parser, bool filters);

static const struct jinja_token *advance(struct jinja_parser *parser)
{
    const struct jinja_token *token = jinja_peek(parser, 0);
    parser->at = min_i64(parser->at + 1, parser->count - 1);
    parser->run->line = jinja_peek(parser, 0)->line;
    return token;
}

static struct jinja_node *make(struct jinja_parser *parser, enum jinja_node_kind kind, struct jinja_node *a,
                               struct jinja_node *b)
{
    struct jinja_node *node = jinja_new(parser, kind);
    node->a = a;
    node->b = b;
    return node;
}

static struct jinja_node *make_constant(struct jinja_parser *parser, struct jinja_value value)
{
    struct jinja_node *node = jinja_new(parser, JINJA_CONSTANT);
    node->constant = value;
    if (value.kind == JINJA_TEXT) {
        jinja_points(value.text);
        jinja_hash(parser->run, value);
    }
    return node;
}

/* ---- Operators ---- */

/* The operator at the token, if it is one of `names` (NULL-terminated). */
static const char *operator_of(const struct jinja_parser *parser, const char *const *names)
{
    for (; *names; names++)
        if (jinja_at_operator(parser, *names))
            return *names;
    return NULL;
}

/* Operators of one precedence, from left to right. Each level makes the tree one deeper, so their
 * number is bounded as nesting is. */
static struct jinja_node *parse_binary(struct jinja_parser *parser, const char *const *names,
                                       struct jinja_node *(*operand)(struct jinja_parser *parser))
{
    struct jinja_node *node = operand(parser);
    const char *operation;
    for (int count = 0; (operation = operator_of(parser, names)); count++) {
        if (count > 4 * JINJA_NESTING_MOST)
            jinja_fail(parser->run, "an expression has more than %d operators", 4 * JINJA_NESTING_MOST);
        advance(parser);
        node = make(parser, JINJA_BINARY, node, NULL);
        node->operation = operation;
        node->b = operand(parser);
    }
    return node;
}

static struct jinja_node *parse_signed(struct jinja_parser *parser)
{
    return parse_unary(parser, true);
}

static struct jinja_node *parse_power(struct jinja_parser *parser)
{
    static const char *const names[] = {"**", NULL};
    return parse_binary(parser, names, parse_signed);
}

static struct jinja_node *parse_product(struct jinja_parser *parser)
{
    static const char *const names[] = {"*", "/", "//", "%", NULL};
    return parse_binary(parser, names, parse_power);
}

static struct jinja_node *parse_concat(struct jinja_parser *parser)
{
    struct jinja_node *first = parse_product(parser);
    if (!jinja_at_operator(parser, "~"))
        return first;
    struct jinja_node *node = jinja_new(parser, JINJA_CONCAT);
    jinja_add(parser, &node->items, first);
    while (jinja_skip_operator(parser, "~"))
        jinja_add(parser, &node->items, parse_product(parser));
    return node;
}

static struct jinja_node *parse_sum(struct jinja_parser *parser)
{
    static const char *const names[] = {"+", "-", NULL};
    return parse_binary(parser, names, parse_concat);
}

/* A comparison's operator, which is skipped, or NULL. */
static const char *comparison(struct jinja_parser *parser)
{
    static const char *const names[] = {"==", "!=", ">=", "<=", ">", "<", NULL};
    const struct jinja_token *next = jinja_peek(parser, 1);
    const char *found = operator_of(parser, names);
    if (found) {
        advance(parser);
        return found;
    }
    if (jinja_skip_name(parser, "in"))
        return "in";
    if (jinja_at_name(parser, "not") && next->kind == JINJA_TOKEN_NAME && jinja_is(next->value, "in")) {
        advance(parser);
        advance(parser);
        return "not in";
    }
    return NULL;
}

static struct jinja_node *parse_compare(struct jinja_parser *parser)
{
    struct jinja_node *first = parse_sum(parser), *node = NULL;
    const char *operation;
    while ((operation = comparison(parser))) {
        if (!node)
            node = make(parser, JINJA_COMPARE, first, NULL);
        struct jinja_node *operand = make(parser, JINJA_OPERAND, NULL, NULL);
        operand->operation = operation;
        operand->a = parse_sum(parser);
        jinja_add(parser, &node->items, operand);
    }
    return node ? node : first;
}

static struct jinja_node *parse_not(struct jinja_parser *parser)
{
    if (!jinja_at_name(parser, "not"))
        return parse_compare(parser);
    struct jinja_node *node = make(parser, JINJA_NOT, NULL, NULL);
    advance(parser);
    jinja_nest(parser);
    node->a = parse_not(parser);
    parser->nesting--;
    return node;
}

/* `word` between operands, from left to right. */
static struct jinja_node *parse_logic(struct jinja_parser *parser, const char *word, enum jinja_node_kind kind,
                                      struct jinja_node *(*operand)(struct jinja_parser *parser))
{
    struct jinja_node *node = operand(parser);
    for (int count = 0; jinja_skip_name(parser, word); count++) {
        if (count > 4 * JINJA_NESTING_MOST)
            jinja_fail(parser->run, "an expression has more than %d operators", 4 * JINJA_NESTING_MOST);
        node = make(parser, kind, node, NULL);
        node->b = operand(parser);
    }
    return node;
}

static struct jinja_node *parse_and(struct jinja_parser *parser)
{
    return parse_logic(parser, "and", JINJA_AND, parse_not);
}

static struct jinja_node *parse_or(struct jinja_parser *parser)
{
    return parse_logic(parser, "or", JINJA_OR, parse_and);
}

static struct jinja_node *parse_condition(struct jinja_parser *parser)
{
    bool soft = parser->soft;
    const struct jinja_node *unknown = parser->unknown;
    struct jinja_node *node = parse_or(parser);
    while (jinja_skip_name(parser, "if")) {
        parser->soft = true;
        parser->unknown = unknown; /* what stands before `if` is a branch too */
        struct jinja_node *condition = parse_or(parser);
        node = make(parser, JINJA_CONDITION, condition, node);
        jinja_nest(parser);
        if (jinja_skip_name(parser, "else"))
            node->c = parse_condition(parser);
        parser->nesting--;
    }
    parser->soft = soft;
    return node;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *parser, bool condition)
{
    jinja_nest(parser);
    struct jinja_node *node = condition ? parse_condition(parser) : parse_or(parser);
    parser->nesting--;
    return node;
}

/* ---- Literals ---- */

static struct jinja_node *parse_strings(struct jinja_parser *parser)
{
    struct jinja_value value = advance(parser)->value;
    if (value.kind != JINJA_TEXT || jinja_peek(parser, 0)->kind != JINJA_TOKEN_CONSTANT ||
        jinja_peek(parser, 0)->value.kind != JINJA_TEXT)
        return make_constant(parser, value);
    struct jinja_builder joined = {0};
    jinja_append(parser->run, &joined, value.text->bytes, value.text->length);
    while (jinja_peek(parser, 0)->kind == JINJA_TOKEN_CONSTANT && jinja_peek(parser, 0)->value.kind == JINJA_TEXT) {
        value = advance(parser)->value;
        jinja_append(parser->run, &joined, value.text->bytes, value.text->length);
    }
    return make_constant(parser, jinja_built(parser->run, &joined));
}

/* Expressions up to `end`, with pairs (a: b) in a dict. */
static struct jinja_node *parse_members(struct jinja_parser *parser, enum jinja_node_kind kind, const char *end)
{
    struct jinja_node *node = jinja_new(parser, kind);
    advance(parser);
    while (!jinja_at_operator(parser, end)) {
        if (node->items.count)
            jinja_expect_operator(parser, ",");
        if (jinja_at_operator(parser, end))
            break;
        jinja_add(parser, &node->items, jinja_parse_expression(parser, true));
        if (kind == JINJA_DICT_NODE) {
            jinja_expect_operator(parser, ":");
            jinja_add(parser, &node->keywords, jinja_parse_expression(parser, true));
        }
    }
    jinja_expect_operator(parser, end);
    return node;
}

static bool at_tuple_end(const struct jinja_parser *parser, const char *end)
{
    enum jinja_token_kind kind = jinja_peek(parser, 0)->kind;
    return kind == JINJA_VARIABLE_END || kind == JINJA_BLOCK_END || jinja_at_operator(parser, ")") ||
           (end && jinja_at_name(parser, end));
}

static struct jinja_node *parse_name(struct jinja_parser *parser, bool attributes)
{
    static const struct {
        const char *name;
        struct jinja_value value;
    } constants[] = {
        {"true", {JINJA_BOOL, {.truth = true}}},
        {"True", {JINJA_BOOL, {.truth = true}}},
        {"false", {JINJA_BOOL, {.truth = false}}},
        {"False", {JINJA_BOOL, {.truth = false}}},
        {"none", {JINJA_NONE, {0}}},
        {"None", {JINJA_NONE, {0}}},
    };
    struct jinja_node *node = jinja_new(parser, JINJA_NAME);
    node->name = jinja_expect_name(parser);
    for (i64 i = 0; i < COUNT_OF(constants); i++)
        if (jinja_is((struct jinja_value){JINJA_TEXT, {.text = node->name}}, constants[i].name)) {
            node->kind = JINJA_CONSTANT;
            node->constant = constants[i].value;
            return node;
        }
    if (attributes && jinja_skip_operator(parser, ".")) {
        node->kind = JINJA_NAMESPACE_NAME;
        node->constant = (struct jinja_value){JINJA_TEXT, {.text = jinja_expect_name(parser)}};
    }
    return node;
}

static struct jinja_node *parse_tuple(struct jinja_parser *parser, bool condition, const char *end, bool parentheses);

static struct jinja_node *parse_primary(struct jinja_parser *parser, bool attributes)
{
    enum jinja_token_kind kind = jinja_peek(parser, 0)->kind;
    if (kind == JINJA_TOKEN_NAME)
        return parse_name(parser, attributes);
    if (kind == JINJA_TOKEN_CONSTANT)
        return parse_strings(parser);
    if (jinja_skip_operator(parser, "(")) {
        struct jinja_node *node = parse_tuple(parser, true, NULL, true);
        jinja_expect_operator(parser, ")");
        return node;
    }
    if (jinja_at_operator(parser, "["))
        return parse_members(parser, JINJA_LIST_NODE, "]");
    if (jinja_at_operator(parser, "{"))
        return parse_members(parser, JINJA_DICT_NODE, "}");
    jinja_unexpected(parser, "an expression");
}

static struct jinja_node *parse_tuple(struct jinja_parser *parser, bool condition, const char *end, bool parentheses)
{
    struct jinja_node *tuple = jinja_new(parser, JINJA_TUPLE_NODE);
    bool commas = false;
    for (;;) {
        if (tuple->items.count)
            jinja_expect_operator(parser, ",");
        if (at_tuple_end(parser, end))
            break;
        jinja_add(parser, &tuple->items, jinja_parse_expression(parser, condition));
        if (!jinja_at_operator(parser, ","))
            break;
        commas = true;
    }
    if (!commas && tuple->items.count)
        return tuple->items.at[0];
    if (!commas && !parentheses)
        jinja_unexpected(parser, "an expression");
    return tuple;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *parser, bool condition, const char *end)
{
    return parse_tuple(parser, condition, end, false);
}

/* ---- Targets ---- */

static void mark_target(struct jinja_parser *parser, struct jinja_node *node)
{
    node->flag = true;
    if (node->kind == JINJA_NAME || node->kind == JINJA_NAMESPACE_NAME)
        return;
    if (node->kind != JINJA_TUPLE_NODE)
        jinja_fail(parser->run, "expected a name to assign to");
    for (i64 i = 0; i < node->items.count; i++)
        mark_target(parser, node->items.at[i]);
}

struct jinja_node *jinja_parse_target(struct jinja_parser *parser, const char *end, bool attributes)
{
    struct jinja_node *tuple = jinja_new(parser, JINJA_TUPLE_NODE), *target = tuple;
    bool commas = false;
    for (;;) {
        if (tuple->items.count)
            jinja_expect_operator(parser, ",");
        if (at_tuple_end(parser, end))
            break;
        jinja_nest(parser);
        jinja_add(parser, &tuple->items, parse_primary(parser, attributes));
        parser->nesting--;
        if (!jinja_at_operator(parser, ","))
            break;
        commas = true;
    }
    if (!commas && tuple->items.count == 0)
        jinja_unexpected(parser, "a name to assign to");
    if (!commas)
        target = tuple->items.at[0];
    mark_target(parser, target);
    return target;
}

/* ---- What follows a primary ---- */

/* An argument of a call: positional, name=..., *... or **... */
static void parse_argument(struct jinja_parser *parser, struct jinja_node *call)
{
    const struct jinja_token *next = jinja_peek(parser, 1);
    bool late = call->b || call->c;
    if (jinja_skip_operator(parser, "*")) {
        if (late)
            jinja_fail(parser->run, "a call has *... behind *... or **...");
        call->b = jinja_parse_expression(parser, true);
    } else if (jinja_skip_operator(parser, "**")) {
        if (call->c)
            jinja_fail(parser->run, "a call has **... twice");
        call->c = jinja_parse_expression(parser, true);
    } else if (jinja_peek(parser, 0)->kind == JINJA_TOKEN_NAME && next->kind == JINJA_OPERATOR &&
               strcmp(next->operation, "=") == 0) {
        struct jinja_node *keyword = jinja_new(parser, JINJA_KEYWORD);
        if (call->c)
            jinja_fail(parser->run, "a call has a named argument behind **...");
        keyword->name = jinja_expect_name(parser);
        advance(parser);
        keyword->a = jinja_parse_expression(parser, true);
        for (i64 i = 0; i < call->keywords.count; i++)
            if (call->keywords.at[i]->name == keyword->name)
                jinja_fail(parser->run, "a call has the argument %.80s twice", keyword->name->bytes);
        jinja_add(parser, &call->keywords, keyword);
    } else {
        if (late || call->keywords.count)
            jinja_fail(parser->run, "a call has an argument without a name behind a named one");
        jinja_add(parser, &call->items, jinja_parse_expression(parser, true));
    }
}

static void parse_arguments(struct jinja_parser *parser, struct jinja_node *call)
{
    jinja_expect_operator(parser, "(");
    for (bool comma = false; !jinja_at_operator(parser, ")"); comma = true) {
        if (comma) {
            jinja_expect_operator(parser, ",");
            if (jinja_at_operator(parser, ")"))
                break;
        }
        parse_argument(parser, call);
    }
    jinja_expect_operator(parser, ")");
}

/* a, a:b or a:b:c, with any of them absent */
static struct jinja_node *parse_subscript(struct jinja_parser *parser)
{
    struct jinja_node *parts[3] = {NULL}, *slice;
    if (!jinja_at_operator(parser, ":")) {
        parts[0] = jinja_parse_expression(parser, true);
        if (!jinja_at_operator(parser, ":"))
            return parts[0];
    }
    for (int i = 1; i < 3 && jinja_skip_operator(parser, ":"); i++)
        if (!jinja_at_operator(parser, ":") && !jinja_at_operator(parser, "]") && !jinja_at_operator(parser, ","))
            parts[i] = jinja_parse_expression(parser, true);
    slice = make(parser, JINJA_SLICE, parts[0], parts[1]);
    slice->c = parts[2];
    return slice;
}

static struct jinja_node *parse_item(struct jinja_parser *parser, struct jinja_node *object)
{
    struct jinja_node *node = make(parser, JINJA_ITEM, object, NULL), *keys = jinja_new(parser, JINJA_TUPLE_NODE);
    advance(parser);
    while (!jinja_at_operator(parser, "]")) {
        if (keys->items.count)
            jinja_expect_operator(parser, ",");
        jinja_add(parser, &keys->items, parse_subscript(parser));
    }
    advance(parser);
    node->b = keys->items.count == 1 ? keys->items.at[0] : keys;
    return node;
}

static struct jinja_node *parse_attribute(struct jinja_parser *parser, struct jinja_node *object)
{
    struct jinja_node *node = make(parser, JINJA_ATTRIBUTE, object, NULL);
    advance(parser);
    const struct jinja_token *token = jinja_peek(parser, 0);
    if (token->kind == JINJA_TOKEN_CONSTANT && token->value.kind == JINJA_INTEGER) {
        node->kind = JINJA_ITEM;
        node->b = make_constant(parser, advance(parser)->value);
        return node;
    }
    if (token->kind != JINJA_TOKEN_NAME)
        jinja_unexpected(parser, "a name or a number behind the dot");
    node->name = jinja_expect_name(parser);
    return node;
}

/* Bounds the length of a chain such as a.b.c(d)|e: the tree gets one deeper with each part. */
static void count_part(struct jinja_parser *parser, int *count)
{
    if (++*count > JINJA_NESTING_MOST)
        jinja_fail(parser->run, "an expression has a chain of more than %d parts", JINJA_NESTING_MOST);
}

static struct jinja_node *parse_call(struct jinja_parser *parser, struct jinja_node *node)
{
    node = make(parser, JINJA_CALL, node, NULL);
    parse_arguments(parser, node);
    return node;
}

static struct jinja_node *parse_postfix(struct jinja_parser *parser, struct jinja_node *node, int *count)
{
    for (;; count_part(parser, count)) {
        if (jinja_at_operator(parser, ".")) {
            node = parse_attribute(parser, node);
        } else if (jinja_at_operator(parser, "[")) {
            node = parse_item(parser, node);
        } else if (jinja_at_operator(parser, "(")) {
            node = parse_call(parser, node);
        } else {
            return node;
        }
    }
}

/* Name of a filter or test; Jinja allows dots in it. */
static const char *function_name(struct jinja_parser *parser)
{
    struct jinja_builder name = {0};
    for (;;) {
        struct jinja_text *part = jinja_expect_name(parser);
        jinja_append(parser->run, &name, part->bytes, part->length);
        if (!jinja_skip_operator(parser, "."))
            break;
        jinja_append(parser->run, &name, ".", 1);
    }
    jinja_append(parser->run, &name, "", 1);
    return name.bytes;
}

/* Sets what a filter or test runs. Unknown ones are refused at the end of the parse, but for those inside
 * of a branch: they fail when they are run. */
static void resolve(struct jinja_parser *parser, struct jinja_node *node, const char *what,
                    const struct jinja_function *(*find)(const char *name))
{
    const char *name = function_name(parser);
    node->function = find(name);
    node->constant = jinja_words(parser->run, name);
    node->operation = what;
    if (node->function && !node->function->run)
        jinja_fail(parser->run, "the %s %.80s is not supported in chat templates", what, name);
    if (!node->function && !parser->soft && !parser->unknown)
        parser->unknown = node;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *node, bool first)
{
    for (int count = 0; first || jinja_skip_operator(parser, "|"); first = false) {
        count_part(parser, &count);
        node = make(parser, JINJA_FILTER, node, NULL);
        resolve(parser, node, "filter", jinja_filter);
        if (jinja_at_operator(parser, "("))
            parse_arguments(parser, node);
    }
    return node;
}

static bool at_test_argument(const struct jinja_parser *parser)
{
    const struct jinja_token *token = jinja_peek(parser, 0);
    if (token->kind == JINJA_TOKEN_NAME)
        return !jinja_is(token->value, "else") && !jinja_is(token->value, "or") && !jinja_is(token->value, "and");
    return token->kind == JINJA_TOKEN_CONSTANT || jinja_at_operator(parser, "[") || jinja_at_operator(parser, "{");
}

static struct jinja_node *parse_test(struct jinja_parser *parser, struct jinja_node *subject)
{
    int count = 0;
    advance(parser);
    bool negated = jinja_skip_name(parser, "not");
    struct jinja_node *node = make(parser, JINJA_TEST, subject, NULL);
    resolve(parser, node, "test", jinja_test);
    if (jinja_at_operator(parser, "(")) {
        parse_arguments(parser, node);
    } else if (at_test_argument(parser)) {
        if (jinja_at_name(parser, "is"))
            jinja_fail(parser->run, "tests with `is` follow each other: expected `and` between them");
        jinja_nest(parser);
        jinja_add(parser, &node->items, parse_postfix(parser, parse_primary(parser, false), &count));
        parser->nesting--;
    }
    return negated ? make(parser, JINJA_NOT, node, NULL) : node;
}

static struct jinja_node *parse_filters_and_tests(struct jinja_parser *parser, struct jinja_node *node, int *count)
{
    for (;; count_part(parser, count)) {
        if (jinja_at_operator(parser, "|")) {
            node = jinja_parse_filters(parser, node, false);
        } else if (jinja_at_name(parser, "is")) {
            node = parse_test(parser, node);
        } else if (jinja_at_operator(parser, "(")) {
            node = parse_call(parser, node);
        } else {
            return node;
        }
    }
}

static struct jinja_node *parse_unary(struct jinja_parser *parser, bool filters)
{
    int count = 0;
    struct jinja_node *node;
    jinja_nest(parser);
    if (jinja_at_operator(parser, "-") || jinja_at_operator(parser, "+")) {
        node = make(parser, *jinja_peek(parser, 0)->operation == '-' ? JINJA_NEGATIVE : JINJA_POSITIVE, NULL, NULL);
        advance(parser);
        node->a = parse_unary(parser, false);
    } else {
        node = parse_primary(parser, false);
    }
    node = parse_postfix(parser, node, &count);
    if (filters)
        node = parse_filters_and_tests(parser, node, &count);
    parser->nesting--;
    return node;
}
