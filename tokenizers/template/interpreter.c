/* Statements. */
#include "tokenizers/template/inside.h"
#include "tokenizers/template/template.h"

#include <string.h>

/* ---- Assignment ---- */

static void assign_name(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    struct jinja_value *variable = jinja_variable(run->scope, target->name);
    require(variable, "a target of the template is no variable of its scope");
    *variable = value;
}

static void assign_attribute(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    struct jinja_value object = jinja_look_up(run, target->name);
    if (object.kind != JINJA_NAMESPACE)
        jinja_fail(run, "cannot assign attribute on non-namespace object");
    if (target->constant.text->bytes[0] == '_')
        jinja_fail(run, "a namespace cannot have the attribute %s: rename it", jinja_repr_text(run, target->constant));
    jinja_put(run, object.dict, target->constant, value);
}

static void assign_tuple(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    jinja_need_defined(run, value);
    struct jinja_list *values = jinja_collect(run, value);
    i64 count = target->items.count;
    if (values->count < count)
        jinja_fail(run, "not enough values to unpack (expected %lld, got %lld)", (long long)count,
                   (long long)values->count);
    if (values->count > count)
        jinja_fail(run, "too many values to unpack (expected %lld)", (long long)count);
    for (i64 i = 0; i < count; i++)
        jinja_assign(run, target->items.at[i], values->items[i]);
}

void jinja_assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    run->line = target->line;
    if (target->kind == JINJA_NAME)
        assign_name(run, target, value);
    else if (target->kind == JINJA_NAMESPACE_NAME)
        assign_attribute(run, target, value);
    else
        assign_tuple(run, target, value);
}

/* ---- Captured output ---- */

/* Runs nodes in a scope of their own and gives what they write. */
static struct jinja_value capture(struct jinja_run *run, const struct jinja_nodes *nodes, struct jinja_scope *scope)
{
    struct jinja_builder text = {0}, *out = run->out;
    struct jinja_scope *outer = run->scope;
    run->out = &text;
    run->scope = scope;
    jinja_run_nodes(run, nodes);
    run->out = out;
    run->scope = outer;
    return jinja_built(run, &text);
}

static struct jinja_scope *open_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *scope = jinja_open_scope(run, run->scope, node->symbols);
    jinja_load_scope(run, scope);
    return scope;
}

/* Filters over a captured text; the innermost has no operand. */
static struct jinja_value filter_captured(struct jinja_run *run, const struct jinja_node *filter,
                                          struct jinja_scope *scope, struct jinja_value text)
{
    struct jinja_arguments arguments;
    struct jinja_scope *outer = run->scope;
    struct jinja_value subject = filter->a ? filter_captured(run, filter->a, scope, text) : text;
    if (!filter->function)
        jinja_fail(run, "No filter named %s.", jinja_repr_text(run, filter->constant));
    run->scope = scope;
    jinja_arguments(run, &arguments, filter, JINJA_MISSING_VALUE);
    run->scope = outer;
    run->line = filter->line;
    return jinja_invoke(run, filter->function, subject, &arguments);
}

static void run_set_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *scope = open_block(run, node);
    struct jinja_value text = capture(run, &node->body, scope);
    if (node->b)
        text = filter_captured(run, node->b, scope, text);
    jinja_assign(run, node->a, text);
}

static void run_filter_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *scope = open_block(run, node);
    struct jinja_value text = capture(run, &node->body, scope);
    jinja_show(run, run->out, filter_captured(run, node->a, scope, text));
}

static enum jinja_flow run_with(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *outer = run->scope, *scope = open_block(run, node);
    for (i64 i = 0; i < node->items.count; i++) {
        struct jinja_value value = jinja_evaluate(run, node->keywords.at[i]);
        run->scope = scope;
        jinja_assign(run, node->items.at[i], value);
        run->scope = outer;
    }
    run->scope = scope;
    enum jinja_flow flow = jinja_run_nodes(run, &node->body);
    run->scope = outer;
    return flow;
}

static void add_span(struct jinja_run *run, i64 begin, i64 end)
{
    if (run->span_count == run->span_capacity) {
        i64 capacity = max_i64(8, run->span_capacity * 2), size = sizeof *run->spans;
        run->spans = jinja_grow(run, run->spans, run->span_capacity * size, capacity * size);
        run->span_capacity = capacity;
    }
    run->spans[run->span_count++] = (struct template_span){begin, end};
}

/* transformers counts the place of an answer in what the template has written so far. A macro writes
 * later, so answers inside of one would be marked at wrong places. */
static void run_generation(struct jinja_run *run, const struct jinja_node *node)
{
    i64 begin = run->text.length;
    if (run->out != &run->text)
        jinja_fail(run, "the tag generation stands inside of a macro or a captured text, where the place of the answer "
                        "is not known: expected it outside");
    struct jinja_scope *outer = run->scope;
    run->scope = open_block(run, node);
    jinja_run_nodes(run, &node->body);
    run->scope = outer;
    add_span(run, begin, run->text.length);
}

/* ---- Macros ---- */

static struct jinja_value make_macro(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_macro *macro = jinja_alloc(run, sizeof *macro);
    *macro = (struct jinja_macro){node, run->scope};
    return (struct jinja_value){JINJA_MACRO, {.macro = macro}};
}

static void run_call_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments arguments;
    struct jinja_value callee = jinja_evaluate(run, node->a->a);
    jinja_arguments(run, &arguments, node->a, make_macro(run, node));
    run->line = node->line;
    jinja_show(run, run->out, jinja_call_value(run, callee, &arguments));
}

/* Takes the named argument `name` out of those that are left; MISSING: it was not given. */
static struct jinja_value take_named(struct jinja_run *run, const struct jinja_arguments *arguments, bool *taken,
                                     struct jinja_value name)
{
    for (i64 i = 0; i < arguments->named_count; i++)
        if (!taken[i] && jinja_equal(run, arguments->names[i], name)) {
            taken[i] = true;
            return arguments->named[i];
        }
    return JINJA_MISSING_VALUE;
}

static struct jinja_value words_of(struct jinja_run *run, const struct jinja_node *macro)
{
    return macro->name ? (struct jinja_value){JINJA_TEXT, {.text = macro->name}} : jinja_words(run, "caller");
}

static void set_parameter(struct jinja_run *run, struct jinja_scope *scope, const char *name, struct jinja_value value)
{
    for (i64 i = 0; i < scope->symbols->count; i++)
        if (jinja_is((struct jinja_value){JINJA_TEXT, {.text = (struct jinja_text *)scope->symbols->at[i].name}}, name))
            scope->values[i] = value;
    (void)run;
}

/* What the body's `caller`, `kwargs` and `varargs` are. */
static void set_special(struct jinja_run *run, const struct jinja_node *macro, struct jinja_scope *scope,
                        const struct jinja_arguments *arguments, bool *taken)
{
    i64 more = max_i64(arguments->count - macro->items.count, 0);
    if (macro->takes_caller) {
        struct jinja_value caller = take_named(run, arguments, taken, jinja_words(run, "caller"));
        if (caller.kind == JINJA_MISSING || caller.kind == JINJA_NONE)
            caller = jinja_undefined_hint(run, "No caller defined");
        set_parameter(run, scope, "caller", caller);
    }
    struct jinja_value kwargs = jinja_dict(run), varargs = jinja_sequence(run, JINJA_TUPLE, more);
    for (i64 i = 0; i < arguments->named_count; i++) {
        if (taken[i])
            continue;
        if (!macro->takes_kwargs)
            jinja_fail(run, "macro %s takes no keyword argument %s", jinja_repr_text(run, words_of(run, macro)),
                       jinja_repr_text(run, arguments->names[i]));
        jinja_put(run, kwargs.dict, arguments->names[i], arguments->named[i]);
    }
    if (more && !macro->takes_varargs)
        jinja_fail(run, "macro %s takes not more than %lld argument(s)", jinja_repr_text(run, words_of(run, macro)),
                   (long long)macro->items.count);
    for (i64 i = 0; i < more; i++)
        varargs.list->items[i] = arguments->values[macro->items.count + i];
    if (macro->takes_kwargs)
        set_parameter(run, scope, "kwargs", kwargs);
    if (macro->takes_varargs)
        set_parameter(run, scope, "varargs", varargs);
}

/* Defaults are evaluated in the macro's scope, each time. */
static void set_defaults(struct jinja_run *run, const struct jinja_node *macro)
{
    i64 first = macro->items.count - macro->keywords.count;
    for (i64 i = 0; i < macro->items.count; i++) {
        const struct jinja_node *parameter = macro->items.at[i];
        if (jinja_variable(run->scope, parameter->name)->kind != JINJA_MISSING)
            continue;
        struct jinja_value value;
        if (i >= first)
            value = jinja_evaluate(run, macro->keywords.at[i - first]);
        else
            value = jinja_undefined_hint(run, "parameter '%.*s' was not provided",
                                         (int)min_i64(parameter->name->length, 200), parameter->name->bytes);
        assign_name(run, parameter, value);
    }
}

struct jinja_value jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_arguments *arguments)
{
    const struct jinja_node *node = macro->node;
    struct jinja_scope *scope = jinja_open_scope(run, macro->scope, node->symbols), *outer = run->scope;
    bool *taken = jinja_alloc(run, arguments->named_count);
    int line = run->line;
    jinja_load_scope(run, scope);
    for (i64 i = 0; i < node->items.count; i++) {
        struct jinja_value name = {JINJA_TEXT, {.text = node->items.at[i]->name}};
        *jinja_variable(scope, name.text) =
            i < arguments->count ? arguments->values[i] : take_named(run, arguments, taken, name);
    }
    set_special(run, node, scope, arguments, taken);
    run->scope = scope;
    set_defaults(run, node);
    run->scope = outer;
    struct jinja_value text = capture(run, &node->body, scope);
    run->line = line;
    return text;
}

/* ---- Loops ---- */

/* Gives the items of `inner` for which the condition of the loop holds. */
static bool next_that_fits(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    struct jinja_scope *outer = run->scope;
    while (iterator->inner->next(out, run, iterator->inner)) {
        run->scope = iterator->scope;
        jinja_assign(run, iterator->node->a, *out);
        bool fits = jinja_truth(run, jinja_evaluate(run, iterator->node->c));
        run->scope = outer;
        if (fits)
            return true;
    }
    return false;
}

static struct jinja_iterator *items_of(struct jinja_run *run, const struct jinja_node *node,
                                       struct jinja_value iterable)
{
    struct jinja_iterator *inner = jinja_iterate(run, iterable);
    if (!node->c)
        return inner;
    struct jinja_iterator *fitting = jinja_alloc(run, sizeof *fitting);
    *fitting = (struct jinja_iterator){.next = next_that_fits, .inner = inner, .node = node, .type_name = "generator"};
    fitting->scope = jinja_open_scope(run, run->scope, node->test_symbols);
    jinja_load_scope(run, fitting->scope);
    return fitting;
}

static bool next_of_loop(struct jinja_run *run, struct jinja_loop *loop)
{
    struct jinja_value next = loop->after;
    if (next.kind == JINJA_MISSING && !loop->iterator->next(&next, run, loop->iterator))
        return false;
    loop->after = JINJA_MISSING_VALUE;
    loop->index0++;
    loop->before = loop->current;
    loop->current = next;
    return true;
}

static enum jinja_flow run_loop(struct jinja_run *run, const struct jinja_node *node, struct jinja_value iterable,
                                i64 depth0)
{
    struct jinja_scope *outer = run->scope, *scope = jinja_open_scope(run, outer, node->symbols);
    struct jinja_loop *loop = jinja_alloc(run, sizeof *loop);
    *loop = (struct jinja_loop){items_of(run, node, iterable), node, outer, -1, -1, depth0, .iterable = iterable};
    if (node->takes_caller)
        set_parameter(run, scope, "loop", (struct jinja_value){JINJA_LOOP, {.loop = loop}});
    enum jinja_flow flow = JINJA_NEXT;
    bool completed = false; /* a body ran to its end */
    while (flow != JINJA_BROKEN && next_of_loop(run, loop)) {
        run->scope = scope;
        jinja_assign(run, node->a, loop->current);
        jinja_load_scope(run, scope);
        flow = jinja_run_nodes(run, &node->body);
        run->scope = outer;
        completed |= flow == JINJA_NEXT;
    }
    if (!completed && node->other.count) { /* also behind break or continue, as in Jinja */
        run->scope = jinja_open_scope(run, outer, node->other_symbols);
        jinja_load_scope(run, run->scope);
        flow = jinja_run_nodes(run, &node->other);
        run->scope = outer;
        return flow;
    }
    return JINJA_NEXT;
}

struct jinja_value jinja_recurse(struct jinja_run *run, struct jinja_loop *loop,
                                 const struct jinja_arguments *arguments)
{
    struct jinja_builder text = {0}, *out = run->out;
    struct jinja_scope *scope = run->scope;
    if (!loop->node->flag)
        jinja_fail(run, "The loop must have the 'recursive' marker to be called recursively.");
    if (arguments->count != 1 || arguments->named_count)
        jinja_fail(run, "expected one argument of loop(...): what to go through");
    run->out = &text;
    run->scope = loop->scope;
    run_loop(run, loop->node, arguments->values[0], loop->depth0 + 1);
    run->out = out;
    run->scope = scope;
    return jinja_built(run, &text);
}

/* ---- Nodes ---- */

static enum jinja_flow run_node(struct jinja_run *run, const struct jinja_node *node)
{
    run->line = node->line;
    switch (node->kind) {
    case JINJA_DATA:
        jinja_show(run, run->out, node->constant);
        break;
    case JINJA_OUTPUT:
        for (i64 i = 0; i < node->items.count; i++)
            jinja_show(run, run->out, jinja_evaluate(run, node->items.at[i]));
        break;
    case JINJA_IF:
        return jinja_run_nodes(run, jinja_truth(run, jinja_evaluate(run, node->a)) ? &node->body : &node->other);
    case JINJA_FOR:
        return run_loop(run, node, jinja_evaluate(run, node->b), 0);
    case JINJA_SET:
        jinja_assign(run, node->a, jinja_evaluate(run, node->b));
        break;
    case JINJA_SET_BLOCK:
        run_set_block(run, node);
        break;
    case JINJA_MACRO_NODE:
        assign_name(run, node, make_macro(run, node));
        break;
    case JINJA_CALL_BLOCK:
        run_call_block(run, node);
        break;
    case JINJA_FILTER_BLOCK:
        run_filter_block(run, node);
        break;
    case JINJA_WITH:
        return run_with(run, node);
    case JINJA_GENERATION:
        run_generation(run, node);
        break;
    case JINJA_BREAK:
        return JINJA_BROKEN;
    case JINJA_CONTINUE:
        return JINJA_CONTINUED;
    default:
        jinja_fail(run, "expected a statement");
    }
    return JINJA_NEXT;
}

enum jinja_flow jinja_run_nodes(struct jinja_run *run, const struct jinja_nodes *nodes)
{
    enum jinja_flow flow = JINJA_NEXT;
    jinja_enter(run);
    for (i64 i = 0; i < nodes->count && flow == JINJA_NEXT; i++) {
        jinja_charge(run, 1);
        flow = run_node(run, nodes->at[i]);
    }
    jinja_leave(run, 1);
    return flow;
}
