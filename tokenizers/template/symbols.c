/* Which scope a variable belongs to, and what it is before its scope assigns it, by the rules of
 * Jinja's compiler (jinja2/idtracking.py). A body of a loop, a macro, a block opens a scope; the
 * branches of an `if` do not. */
#include "tokenizers/template/inside.h"

#include <string.h>

/* A scope while it is read. Each branch of an `if` reads a copy. */
struct jinja_reading {
    struct jinja_parser *parser;
    struct jinja_symbols *symbols;
    struct jinja_nodes *stores; /* nodes that carry the names which were assigned; a set */
};

static struct jinja_symbol *symbol_of(const struct jinja_symbols *symbols, const struct jinja_text *name)
{
    for (i64 i = 0; i < symbols->count; i++)
        if (symbols->at[i].name == name)
            return &symbols->at[i];
    return NULL;
}

static bool is_known(const struct jinja_symbols *symbols, const struct jinja_text *name)
{
    for (; symbols; symbols = symbols->outer)
        if (symbol_of(symbols, name))
            return true;
    return false;
}

static void define(struct jinja_reading *reading, const struct jinja_text *name, enum jinja_load load)
{
    struct jinja_symbols *symbols = reading->symbols;
    struct jinja_symbol *found = symbol_of(symbols, name);
    jinja_charge(reading->parser->run, 1 + (symbols->count >> 4));
    if (!found) {
        if (symbols->count == symbols->capacity) {
            i64 capacity = max_i64(8, symbols->capacity * 2), size = sizeof *symbols->at;
            symbols->at = jinja_grow(reading->parser->run, symbols->at, symbols->capacity * size, capacity * size);
            symbols->capacity = capacity;
        }
        found = &symbols->at[symbols->count++];
    }
    *found = (struct jinja_symbol){name, load};
}

static bool is_stored(const struct jinja_nodes *stores, const struct jinja_text *name)
{
    for (i64 i = 0; i < stores->count; i++)
        if (stores->at[i]->name == name)
            return true;
    return false;
}

static void mark_stored(struct jinja_reading *reading, struct jinja_node *node)
{
    if (!is_stored(reading->stores, node->name))
        jinja_add(reading->parser, reading->stores, node);
}

static void store(struct jinja_reading *reading, struct jinja_node *node)
{
    mark_stored(reading, node);
    if (!symbol_of(reading->symbols, node->name))
        define(reading, node->name,
               is_known(reading->symbols->outer, node->name) ? JINJA_FROM_OUTER : JINJA_FROM_NOTHING);
}

static void load(struct jinja_reading *reading, struct jinja_node *node)
{
    if (!is_known(reading->symbols, node->name))
        define(reading, node->name, JINJA_FROM_VARIABLES);
}

static void parameter(struct jinja_reading *reading, struct jinja_node *target)
{
    for (i64 i = 0; i < target->items.count; i++)
        parameter(reading, target->items.at[i]);
    if (target->kind == JINJA_NAME) {
        mark_stored(reading, target);
        define(reading, target->name, JINJA_FROM_PARAMETER);
    }
}

static void read_node(struct jinja_reading *reading, struct jinja_node *node);

static void read_nodes(struct jinja_reading *reading, const struct jinja_nodes *nodes)
{
    for (i64 i = 0; i < nodes->count; i++)
        read_node(reading, nodes->at[i]);
}

/* ---- Branches ---- */

static struct jinja_reading copy_reading(const struct jinja_reading *reading)
{
    struct jinja_run *run = reading->parser->run;
    struct jinja_reading copy = {reading->parser, jinja_alloc(run, sizeof *copy.symbols),
                                 jinja_alloc(run, sizeof *copy.stores)};
    *copy.symbols = (struct jinja_symbols){.outer = reading->symbols->outer};
    for (i64 i = 0; i < reading->symbols->count; i++)
        define(&copy, reading->symbols->at[i].name, reading->symbols->at[i].load);
    for (i64 i = 0; i < reading->stores->count; i++)
        jinja_add(reading->parser, copy.stores, reading->stores->at[i]);
    return copy;
}

/* What one branch alone assigns has, before, the value of outside. */
static void join_branches(struct jinja_reading *reading, const struct jinja_reading branches[2])
{
    i64 before = reading->stores->count;
    for (int b = 0; b < 2; b++) {
        for (i64 i = 0; i < branches[b].symbols->count; i++)
            define(reading, branches[b].symbols->at[i].name, branches[b].symbols->at[i].load);
        for (i64 i = 0; i < branches[b].stores->count; i++)
            mark_stored(reading, branches[b].stores->at[i]);
    }
    for (i64 i = before; i < reading->stores->count; i++) {
        const struct jinja_text *name = reading->stores->at[i]->name;
        define(reading, name, is_known(reading->symbols->outer, name) ? JINJA_FROM_OUTER : JINJA_FROM_VARIABLES);
    }
}

static void read_if(struct jinja_reading *reading, struct jinja_node *node)
{
    struct jinja_reading branches[2];
    read_node(reading, node->a);
    for (int b = 0; b < 2; b++) {
        branches[b] = copy_reading(reading);
        read_nodes(&branches[b], b ? &node->other : &node->body);
    }
    join_branches(reading, branches);
}

/* ---- Scopes ---- */

/* Reads a name of a macro's or loop's body before anything below it assigns the name, as Jinja's
 * find_undeclared does. */
static int uses_in(const struct jinja_nodes *nodes, const char *name);

static int uses(const struct jinja_node *node, const char *name)
{
    if (!node)
        return 0;
    bool named = (node->kind == JINJA_NAME || node->kind == JINJA_NAMESPACE_NAME) && node->kind == JINJA_NAME &&
                 jinja_is((struct jinja_value){JINJA_TEXT, {.text = node->name}}, name);
    if (named)
        return node->flag ? -1 : 1;
    const struct jinja_node *const single[] = {node->a, node->b, node->c};
    int found = 0;
    for (int i = 0; i < 3 && !found; i++)
        found = uses(single[i], name);
    const struct jinja_nodes *const lists[] = {&node->items, &node->keywords, &node->body, &node->other};
    for (int i = 0; i < 4 && !found; i++)
        found = uses_in(lists[i], name);
    return found;
}

static int uses_in(const struct jinja_nodes *nodes, const char *name)
{
    int found = 0;
    for (i64 i = 0; i < nodes->count && !found; i++)
        found = uses(nodes->at[i], name);
    return found;
}

static struct jinja_reading open_scope(struct jinja_reading *outer)
{
    struct jinja_run *run = outer->parser->run;
    struct jinja_reading reading = {outer->parser, jinja_alloc(run, sizeof *reading.symbols),
                                    jinja_alloc(run, sizeof *reading.stores)};
    *reading.symbols = (struct jinja_symbols){.outer = outer->symbols};
    return reading;
}

static void declare(struct jinja_reading *reading, const char *name)
{
    struct jinja_node *node = jinja_new(reading->parser, JINJA_NAME);
    node->name = jinja_name(reading->parser, jinja_words(reading->parser->run, name));
    node->flag = true;
    parameter(reading, node);
}

/* Scopes are read after the whole scope around them: a loop knows of what is assigned behind it. */
static void read_inner(struct jinja_reading *outer, struct jinja_node *node);

static void read_inner_nodes(struct jinja_reading *outer, const struct jinja_nodes *nodes)
{
    for (i64 i = 0; i < nodes->count; i++)
        read_inner(outer, nodes->at[i]);
}

static void read_loop(struct jinja_reading *outer, struct jinja_node *node)
{
    struct jinja_reading body = open_scope(outer), test = open_scope(outer), other = open_scope(outer);
    if (node->flag || uses_in(&node->body, "loop") > 0) {
        declare(&body, "loop");
        node->takes_caller = true;
    }
    parameter(&body, node->a);
    parameter(&test, node->a);
    read_nodes(&body, &node->body);
    if (node->c)
        read_node(&test, node->c);
    read_nodes(&other, &node->other);
    node->symbols = body.symbols;
    node->test_symbols = test.symbols;
    node->other_symbols = other.symbols;
    read_inner_nodes(&body, &node->body);
    read_inner_nodes(&other, &node->other);
}

static void read_macro(struct jinja_reading *outer, struct jinja_node *node)
{
    struct jinja_reading body = open_scope(outer);
    bool named[3] = {false};
    static const char *const special[] = {"caller", "kwargs", "varargs"};
    for (i64 i = 0; i < node->items.count; i++) {
        parameter(&body, node->items.at[i]);
        for (int s = 0; s < 3; s++)
            named[s] |= jinja_is((struct jinja_value){JINJA_TEXT, {.text = node->items.at[i]->name}}, special[s]);
    }
    read_nodes(&body, &node->keywords);
    bool *const takes[] = {&node->takes_caller, &node->takes_kwargs, &node->takes_varargs};
    for (int s = 0; s < 3; s++) {
        *takes[s] = uses_in(&node->body, special[s]) > 0 && !named[s];
        if (*takes[s])
            declare(&body, special[s]);
    }
    read_nodes(&body, &node->body);
    node->symbols = body.symbols;
    read_inner_nodes(&body, &node->body);
}

static void read_block(struct jinja_reading *outer, struct jinja_node *node)
{
    struct jinja_reading body = open_scope(outer);
    for (i64 i = 0; node->kind == JINJA_WITH && i < node->items.count; i++)
        parameter(&body, node->items.at[i]);
    read_nodes(&body, &node->body);
    if (node->kind == JINJA_FILTER_BLOCK)
        read_node(&body, node->a);
    node->symbols = body.symbols;
    read_inner_nodes(&body, &node->body);
}

static void read_inner(struct jinja_reading *outer, struct jinja_node *node)
{
    switch (node->kind) {
    case JINJA_IF:
        read_inner_nodes(outer, &node->body);
        read_inner_nodes(outer, &node->other);
        break;
    case JINJA_FOR:
        read_loop(outer, node);
        break;
    case JINJA_MACRO_NODE:
    case JINJA_CALL_BLOCK:
        read_macro(outer, node);
        break;
    case JINJA_SET_BLOCK:
    case JINJA_FILTER_BLOCK:
    case JINJA_WITH:
    case JINJA_GENERATION:
        read_block(outer, node);
        break;
    default:
        break;
    }
}

/* ---- Nodes of a scope, without those of inner scopes ---- */

static void read_children(struct jinja_reading *reading, struct jinja_node *node)
{
    struct jinja_node *const single[] = {node->a, node->b, node->c};
    for (int i = 0; i < 3; i++)
        if (single[i])
            read_node(reading, single[i]);
    read_nodes(reading, &node->items);
    read_nodes(reading, &node->keywords);
}

static void read_node(struct jinja_reading *reading, struct jinja_node *node)
{
    jinja_charge(reading->parser->run, 1);
    switch (node->kind) {
    case JINJA_NAME:
        (node->flag ? store : load)(reading, node);
        break;
    case JINJA_NAMESPACE_NAME:
        load(reading, node);
        break;
    case JINJA_IF:
        read_if(reading, node);
        break;
    case JINJA_FOR:
        read_node(reading, node->b);
        break;
    case JINJA_SET:
        read_node(reading, node->b);
        read_node(reading, node->a);
        break;
    case JINJA_SET_BLOCK:
    case JINJA_CALL_BLOCK:
    case JINJA_FILTER_BLOCK:
        read_node(reading, node->a);
        break;
    case JINJA_MACRO_NODE:
        store(reading, node);
        break;
    case JINJA_WITH:
        read_nodes(reading, &node->keywords);
        break;
    case JINJA_GENERATION:
        break;
    default:
        read_children(reading, node);
    }
}

void jinja_find_symbols(struct jinja_parser *parser)
{
    struct template *template = parser->template;
    struct jinja_reading reading = {parser, jinja_alloc(parser->run, sizeof *reading.symbols),
                                    jinja_alloc(parser->run, sizeof *reading.stores)};
    read_nodes(&reading, &template->body);
    read_inner_nodes(&reading, &template->body);
    template->symbols = reading.symbols;
}
