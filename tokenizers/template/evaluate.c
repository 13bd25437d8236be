/* Expressions. */
#include "tokenizers/template/inside.h"

#include <string.h>

struct jinja_value *jinja_variable(struct jinja_scope *scope, const struct jinja_text *name)
{
    for (i64 i = 0; i < scope->symbols->count; i++)
        if (scope->symbols->at[i].name == name)
            return &scope->values[i];
    return NULL;
}

/* The value in the nearest scope that knows the name; MISSING: it is not assigned there. */
static struct jinja_value find_variable(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_text *name)
{
    for (; scope; scope = scope->outer) {
        const struct jinja_value *found = jinja_variable(scope, name);
        if (found)
            return *found;
    }
    (void)run;
    return JINJA_MISSING_VALUE;
}

/* A variable of the caller, or a global function. */
static struct jinja_value given_variable(struct jinja_run *run, const struct jinja_text *name)
{
    struct jinja_value key = {JINJA_TEXT, {.text = (struct jinja_text *)name}};
    const struct jinja_value *given = jinja_find(run, run->variables, key);
    if (given)
        return *given;
    char words[32];
    if (name->length >= (i64)sizeof words)
        return JINJA_MISSING_VALUE;
    memcpy(words, name->bytes, (size_t)name->length);
    words[name->length] = 0;
    const struct jinja_function *function = jinja_global(words);
    if (!function)
        return JINJA_MISSING_VALUE;
    struct jinja_bound *bound = jinja_alloc(run, sizeof *bound);
    *bound = (struct jinja_bound){.function = function};
    return (struct jinja_value){JINJA_BOUND, {.bound = bound}};
}

struct jinja_scope *jinja_open_scope(struct jinja_run *run, struct jinja_scope *outer,
                                     const struct jinja_symbols *symbols)
{
    struct jinja_scope *scope = jinja_alloc(run, sizeof *scope);
    *scope = (struct jinja_scope){outer, symbols, jinja_alloc(run, symbols->count * (i64)sizeof *scope->values)};
    return scope;
}

void jinja_load_scope(struct jinja_run *run, struct jinja_scope *scope)
{
    jinja_charge(run, scope->symbols->count);
    for (i64 i = 0; i < scope->symbols->count; i++) {
        const struct jinja_symbol *symbol = &scope->symbols->at[i];
        if (symbol->load == JINJA_FROM_VARIABLES)
            scope->values[i] = given_variable(run, symbol->name);
        else if (symbol->load == JINJA_FROM_OUTER)
            scope->values[i] = find_variable(run, scope->outer, symbol->name);
        else if (symbol->load == JINJA_FROM_NOTHING)
            scope->values[i] = JINJA_MISSING_VALUE;
    }
}

struct jinja_value jinja_look_up(struct jinja_run *run, const struct jinja_text *name)
{
    struct jinja_value found = find_variable(run, run->scope, name);
    struct jinja_value words = {JINJA_TEXT, {.text = (struct jinja_text *)name}};
    return found.kind == JINJA_MISSING ? jinja_undefined_name(run, words) : found;
}

/* ---- Operators ---- */

static struct jinja_value negate(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value value = jinja_evaluate(run, node->a);
    bool negative = node->kind == JINJA_NEGATIVE;
    jinja_need_defined(run, value);
    if (!jinja_is_number(value))
        jinja_fail(run, "bad operand type for unary %c: '%s'", negative ? '-' : '+', jinja_type_name(value));
    if (value.kind == JINJA_FLOAT)
        return jinja_real(negative ? -value.real : value.real);
    return negative ? jinja_binary(run, "-", jinja_integer(0), value) : jinja_integer(jinja_whole(value));
}

static bool compare(struct jinja_run *run, const char *operation, struct jinja_value a, struct jinja_value b)
{
    if (strcmp(operation, "==") == 0)
        return jinja_equal(run, a, b);
    if (strcmp(operation, "!=") == 0)
        return !jinja_equal(run, a, b);
    if (strcmp(operation, "in") == 0)
        return jinja_contains(run, b, a);
    if (strcmp(operation, "not in") == 0)
        return !jinja_contains(run, b, a);
    int order = jinja_compare(run, a, b, operation);
    if (order == 2) /* NaN */
        return false;
    if (order == 0)
        return operation[1] == '=';
    return (*operation == '<') == (order < 0);
}

/* a < b < c evaluates b once and stops at the first that is false. */
static struct jinja_value compare_chain(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value left = jinja_evaluate(run, node->a);
    for (i64 i = 0; i < node->items.count; i++) {
        const struct jinja_node *operand = node->items.at[i];
        struct jinja_value right = jinja_evaluate(run, operand->a);
        run->line = node->line;
        if (!compare(run, operand->operation, left, right))
            return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

static struct jinja_value concatenate(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value *values = jinja_sequence(run, JINJA_LIST, node->items.count).list->items;
    struct jinja_builder out = {0};
    for (i64 i = 0; i < node->items.count; i++)
        values[i] = jinja_evaluate(run, node->items.at[i]);
    for (i64 i = 0; i < node->items.count; i++)
        jinja_show(run, &out, values[i]);
    return jinja_built(run, &out);
}

static struct jinja_value condition(struct jinja_run *run, const struct jinja_node *node)
{
    if (jinja_truth(run, jinja_evaluate(run, node->a)))
        return jinja_evaluate(run, node->b);
    if (node->c)
        return jinja_evaluate(run, node->c);
    return jinja_undefined_hint(run,
                                "the inline if-expression on line %d evaluated to false and no else section was "
                                "defined.",
                                node->line);
}

/* ---- Literals ---- */

static struct jinja_value sequence(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value list =
        jinja_sequence(run, node->kind == JINJA_LIST_NODE ? JINJA_LIST : JINJA_TUPLE, node->items.count);
    for (i64 i = 0; i < node->items.count; i++)
        list.list->items[i] = jinja_evaluate(run, node->items.at[i]);
    return list;
}

static struct jinja_value dictionary(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value dict = jinja_dict(run);
    for (i64 i = 0; i < node->items.count; i++) {
        struct jinja_value key = jinja_evaluate(run, node->items.at[i]);
        jinja_put(run, dict.dict, key, jinja_evaluate(run, node->keywords.at[i]));
    }
    return dict;
}

/* ---- Items and calls ---- */

static struct jinja_value item(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value object = jinja_evaluate(run, node->a);
    if (node->b->kind != JINJA_SLICE)
        return jinja_item(run, object, jinja_evaluate(run, node->b));
    const struct jinja_node *const parts[] = {node->b->a, node->b->b, node->b->c};
    struct jinja_value bounds[3];
    for (int i = 0; i < 3; i++)
        bounds[i] = parts[i] ? jinja_evaluate(run, parts[i]) : JINJA_MISSING_VALUE;
    return jinja_slice(run, object, bounds);
}

static void add_named(struct jinja_run *run, struct jinja_list *names, struct jinja_list *values,
                      struct jinja_value name, struct jinja_value value)
{
    for (i64 i = 0; i < names->count; i++)
        if (jinja_equal(run, names->items[i], name))
            jinja_fail(run, "got multiple values for keyword argument %s", jinja_repr_text(run, name));
    jinja_push(run, names, name);
    jinja_push(run, values, value);
}

static void add_named_dict(struct jinja_run *run, struct jinja_list *names, struct jinja_list *values,
                           struct jinja_value dict)
{
    jinja_need_defined(run, dict);
    if (dict.kind != JINJA_DICT)
        jinja_fail(run, "argument after ** must be a mapping, not %s", jinja_type_name(dict));
    for (i64 i = 0; i < dict.dict->count; i++) {
        if (dict.dict->entries[i].key.kind != JINJA_TEXT)
            jinja_fail(run, "keywords must be strings");
        add_named(run, names, values, dict.dict->entries[i].key, dict.dict->entries[i].value);
    }
}

void jinja_arguments(struct jinja_run *run, struct jinja_arguments *out, const struct jinja_node *node,
                     struct jinja_value caller)
{
    struct jinja_list values = {0}, names = {0}, named = {0};
    for (i64 i = 0; i < node->items.count; i++)
        jinja_push(run, &values, jinja_evaluate(run, node->items.at[i]));
    if (node->kind == JINJA_CALL || node->kind == JINJA_FILTER || node->kind == JINJA_TEST) {
        if (node->b) {
            struct jinja_list *more = jinja_collect(run, jinja_evaluate(run, node->b));
            for (i64 i = 0; i < more->count; i++)
                jinja_push(run, &values, more->items[i]);
        }
        for (i64 i = 0; i < node->keywords.count; i++) {
            struct jinja_value name = {JINJA_TEXT, {.text = node->keywords.at[i]->name}};
            add_named(run, &names, &named, name, jinja_evaluate(run, node->keywords.at[i]->a));
        }
        if (caller.kind != JINJA_MISSING)
            add_named(run, &names, &named, jinja_words(run, "caller"), caller);
        if (node->c)
            add_named_dict(run, &names, &named, jinja_evaluate(run, node->c));
    }
    *out = (struct jinja_arguments){values.items, values.count, names.items, named.items, named.count};
}

static struct jinja_value call(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments arguments;
    struct jinja_value callee = jinja_evaluate(run, node->a);
    jinja_arguments(run, &arguments, node, JINJA_MISSING_VALUE);
    run->line = node->line;
    return jinja_call_value(run, callee, &arguments);
}

static struct jinja_value apply(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments arguments;
    struct jinja_value subject = jinja_evaluate(run, node->a);
    if (!node->function)
        jinja_fail(run, "No %s named %s.", node->operation, jinja_repr_text(run, node->constant));
    jinja_arguments(run, &arguments, node, JINJA_MISSING_VALUE);
    run->line = node->line;
    if (node->kind == JINJA_TEST)
        return jinja_bool(jinja_apply_test(run, node->function, subject, &arguments));
    return jinja_invoke(run, node->function, subject, &arguments);
}

static struct jinja_value logic(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value left = jinja_evaluate(run, node->a);
    return jinja_truth(run, left) == (node->kind == JINJA_OR) ? left : jinja_evaluate(run, node->b);
}

static struct jinja_value binary(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value left = jinja_evaluate(run, node->a), right = jinja_evaluate(run, node->b);
    run->line = node->line;
    return jinja_binary(run, node->operation, left, right);
}

static struct jinja_value attribute(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value object = jinja_evaluate(run, node->a);
    run->line = node->line;
    return jinja_attribute(run, object, (struct jinja_value){JINJA_TEXT, {.text = node->name}});
}

static struct jinja_value evaluate(struct jinja_run *run, const struct jinja_node *node)
{
    run->line = node->line;
    switch (node->kind) {
    case JINJA_CONSTANT:
    case JINJA_CAPTURED:
        return node->constant;
    case JINJA_NAME:
        return jinja_look_up(run, node->name);
    case JINJA_LIST_NODE:
    case JINJA_TUPLE_NODE:
        return sequence(run, node);
    case JINJA_DICT_NODE:
        return dictionary(run, node);
    case JINJA_NOT:
        return jinja_bool(!jinja_truth(run, jinja_evaluate(run, node->a)));
    case JINJA_NEGATIVE:
    case JINJA_POSITIVE:
        return negate(run, node);
    case JINJA_BINARY:
        return binary(run, node);
    case JINJA_COMPARE:
        return compare_chain(run, node);
    case JINJA_CONCAT:
        return concatenate(run, node);
    case JINJA_AND:
    case JINJA_OR:
        return logic(run, node);
    case JINJA_CONDITION:
        return condition(run, node);
    case JINJA_ATTRIBUTE:
        return attribute(run, node);
    case JINJA_ITEM:
        return item(run, node);
    case JINJA_CALL:
        return call(run, node);
    case JINJA_FILTER:
    case JINJA_TEST:
        return apply(run, node);
    default:
        jinja_fail(run, "expected an expression");
    }
}

struct jinja_value jinja_evaluate(struct jinja_run *run, const struct jinja_node *node)
{
    jinja_enter(run);
    struct jinja_value value = evaluate(run, node);
    jinja_leave(run, 1);
    return value;
}
