/* What the files of this room share. Names follow Jinja (the language) and Python (its values).
 *
 *   source -> lexer.c -> parser.c, expressions.c -> symbols.c -> a tree of jinja_node
 *   tree, variables -> interpreter.c (statements), evaluate.c (expressions) -> text
 *
 * Values live in an arena: the template's own for literals, one per render for the rest. Both end as a
 * whole. Values are immutable but for namespaces, cyclers, joiners, iterators and loops.
 *
 * A template of a stranger must end: each evaluation is a step, nested work adds to the depth, and
 * the arena has a limit. jinja_fail leaves the parse or the render by longjmp; nothing outside of the
 * arena is owned there. */
#ifndef WEFT_TEMPLATE_INSIDE_H
#define WEFT_TEMPLATE_INSIDE_H
#include "core/json.h"

#include <setjmp.h>

struct jinja_run;
struct jinja_node;
struct jinja_call;

/* ---- Values ---- */

enum jinja_kind {
    JINJA_MISSING, /* no value: an absent argument, a variable before its assignment */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INTEGER,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_VIEW, /* keys, values or items of a dict */
    JINJA_RANGE,
    JINJA_ITERATOR, /* read once, as Python's generators */
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_BOUND, /* a method of a value, or a global function */
    JINJA_LOOP,
    JINJA_CYCLER,
    JINJA_JOINER,
};

struct jinja_value {
    enum jinja_kind kind;
    union {
        bool truth;
        i64 integer;
        double real;
        struct jinja_text *text;
        struct jinja_list *list; /* and of a tuple */
        struct jinja_dict *dict; /* and of a namespace */
        struct jinja_view *view;
        struct jinja_range *range;
        struct jinja_iterator *iterator;
        struct jinja_undefined *undefined;
        struct jinja_macro *macro;
        struct jinja_bound *bound;
        struct jinja_loop *loop;
        struct jinja_cycler *cycler;
        struct jinja_joiner *joiner;
    };
};

struct jinja_text {
    const char *bytes;  /* UTF-8 */
    i64 length, points; /* bytes; characters, -1: not counted yet */
    u64 hash;           /* 0: not computed yet */
    bool markup;        /* it was escaped: other texts are escaped when they are added */
};
struct jinja_list {
    struct jinja_value *items;
    i64 count, capacity;
};
struct jinja_entry {
    struct jinja_value key, value;
    u64 hash;
};
struct jinja_dict {
    struct jinja_entry *entries; /* in the order of insertion */
    i64 count, capacity;
    i32 *slots; /* [slot_count], a power of two: index of an entry + 1; NULL while there are few */
    i64 slot_count;
};
enum jinja_part { JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS };
struct jinja_view {
    struct jinja_dict *dict;
    enum jinja_part part;
};
struct jinja_range {
    i64 start, step, count;
    i64 stop; /* as it was written */
};
/* next gives the next value, or false at the end. */
struct jinja_iterator {
    bool (*next)(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator);
    struct jinja_value source; /* what it walks over */
    i64 at;
    struct jinja_iterator *inner;  /* of one that changes or selects what another gives */
    const struct jinja_call *call; /* of map, select and their relatives */
    const struct jinja_node *node; /* of a loop with a condition */
    struct jinja_scope *scope;
    const char *type_name;
};
struct jinja_undefined {
    const char *hint;          /* the whole message, or NULL */
    struct jinja_value object; /* MISSING: a variable */
    struct jinja_value name;
};
struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* where it was defined */
};
struct jinja_bound {
    const struct jinja_function *function;
    struct jinja_value subject;
};
struct jinja_loop {
    struct jinja_iterator *iterator;
    const struct jinja_node *node;
    struct jinja_scope *scope;                          /* around the loop */
    i64 index0, length, depth0;                         /* length -1: not known yet */
    struct jinja_value before, current, after, changed; /* MISSING: none */
    struct jinja_value iterable;
};
struct jinja_cycler {
    struct jinja_list *items;
    i64 at;
};
struct jinja_joiner {
    struct jinja_value separator;
    bool used;
};

/* ---- A parse or a render ---- */

enum {
    JINJA_STEPS_MOST = 20 * 1000 * 1000,
    JINJA_DEPTH_MOST = 1500,   /* nested evaluations; a nested call of a macro takes about 8 */
    JINJA_NESTING_MOST = 100,  /* nested expressions or blocks in the source */
    JINJA_RANGE_MOST = 100000, /* as in Jinja's sandbox */
    JINJA_DIGITS_MOST = 4096,  /* widths and precisions of formats */
};
#define JINJA_BYTES_MOST ((i64)256 << 20) /* of one arena */

struct jinja_chunk {
    struct jinja_chunk *before;
    i64 used, capacity; /* of the bytes that follow */
    char *bytes;
};
struct jinja_builder { /* a text that grows, in the arena */
    char *bytes;
    i64 length, capacity;
};
struct jinja_run {
    jmp_buf escape; /* target of jinja_fail */
    const char *origin;
    int line; /* of the template, for messages */
    struct jinja_chunk *chunk;
    i64 bytes, steps;
    int depth;
    /* of a render */
    const struct template *template;
    struct jinja_dict *variables;
    struct jinja_scope *scope;
    struct jinja_builder *out;
    struct jinja_builder text;   /* what is rendered */
    struct template_span *spans; /* in the arena */
    i64 span_count, span_capacity;
    char *grown_bytes; /* of the last sum of texts */
    i64 grown_length, grown_capacity;
};
_Noreturn void jinja_fail(struct jinja_run *run, const char *format, ...) PRINTF(2, 3);
void jinja_charge(struct jinja_run *run, i64 steps);
void jinja_enter(struct jinja_run *run); /* one level deeper; jinja_leave goes back */
static inline void jinja_leave(struct jinja_run *run, int levels);
void *jinja_alloc(struct jinja_run *run, i64 bytes); /* zeroed */
/* Makes a block larger, in place if it is the last one. */
void *jinja_grow(struct jinja_run *run, const void *block, i64 old_bytes, i64 new_bytes);
void jinja_arena_free(struct jinja_chunk *chunk);
void jinja_append(struct jinja_run *run, struct jinja_builder *builder, const char *bytes, i64 length);
void jinja_print(struct jinja_run *run, struct jinja_builder *builder, const char *format, ...) PRINTF(3, 4);
void jinja_fill(struct jinja_run *run, struct jinja_builder *builder, const char *bytes, i64 length, i64 times);

static inline void jinja_leave(struct jinja_run *run, int levels)
{
    run->depth -= levels;
}

/* ---- Characters (characters.c) ---- */

u32 jinja_point(const char *text, i64 length, i64 *bytes); /* the first character, and how long it is */
int jinja_encode(char out[4], u32 point);
enum jinja_class {
    JINJA_ALPHA = 1,
    JINJA_DECIMAL = 2,
    JINJA_DIGIT = 4,
    JINJA_NUMERIC = 8,
    JINJA_LOWER = 16,
    JINJA_UPPER = 32,
    JINJA_TITLE = 64,
    JINJA_PRINTABLE = 128,
};
int jinja_classes(u32 point); /* as Python's str.isalpha and so on */
bool jinja_is_space(u32 point);
enum jinja_case { JINJA_TO_LOWER, JINJA_TO_UPPER, JINJA_TO_TITLE, JINJA_TO_FOLD };
i64 jinja_case(u32 out[3], u32 point, enum jinja_case to); /* without the rule for a final sigma */
i64 jinja_spaces_before(const char *text, i64 length);     /* bytes of the leading spaces */
i64 jinja_spaces_behind(const char *text, i64 length);

/* ---- Making and reading values (values.c, dictionary.c) ---- */

struct jinja_value jinja_bool(bool truth);
struct jinja_value jinja_integer(i64 integer);
struct jinja_value jinja_real(double real);
extern const struct jinja_value JINJA_NONE_VALUE, JINJA_MISSING_VALUE;
struct jinja_value jinja_text(struct jinja_run *run, const char *bytes, i64 length); /* bytes are not copied */
struct jinja_value jinja_text_copy(struct jinja_run *run, const char *bytes, i64 length);
struct jinja_value jinja_words(struct jinja_run *run, const char *text); /* of a constant of C */
struct jinja_value jinja_built(struct jinja_run *run, const struct jinja_builder *builder);
struct jinja_value jinja_markup(struct jinja_run *run, struct jinja_value text, bool markup);
struct jinja_value jinja_sequence(struct jinja_run *run, enum jinja_kind kind, i64 count); /* items are to be filled */
void jinja_push(struct jinja_run *run, struct jinja_list *list, struct jinja_value value);
struct jinja_value jinja_of_list(struct jinja_list *list, enum jinja_kind kind);
struct jinja_value jinja_pair(struct jinja_run *run, struct jinja_value first, struct jinja_value second);
struct jinja_value jinja_undefined_name(struct jinja_run *run, struct jinja_value name);
struct jinja_value jinja_undefined_member(struct jinja_run *run, struct jinja_value object, struct jinja_value name);
struct jinja_value jinja_undefined_hint(struct jinja_run *run, const char *format, ...) PRINTF(2, 3);
struct jinja_value jinja_of_json(struct jinja_run *run, const struct json *json);

const char *jinja_type_name(struct jinja_value value);
bool jinja_truth(struct jinja_run *run, struct jinja_value value);
bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
/* <0, 0, >0; fails for what Python does not order, with `operation` in the message. */
int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b, const char *operation);
bool jinja_contains(struct jinja_run *run, struct jinja_value container, struct jinja_value item);
u64 jinja_hash(struct jinja_run *run, struct jinja_value value);
i64 jinja_points(struct jinja_text *text);                         /* characters */
i64 jinja_length(struct jinja_run *run, struct jinja_value value); /* as len(); fails */
bool jinja_has_length(struct jinja_value value);
bool jinja_is(struct jinja_value value, const char *text); /* it is this text */
bool jinja_is_number(struct jinja_value value);            /* also a truth value, as in Python */
bool jinja_is_whole(struct jinja_value value);             /* an integer or a truth value */
i64 jinja_whole(struct jinja_value value);
double jinja_double(struct jinja_value value);
_Noreturn void jinja_fail_undefined(struct jinja_run *run, struct jinja_value value);
void jinja_need_defined(struct jinja_run *run, struct jinja_value value); /* fails as an operation on it does */

struct jinja_value jinja_dict(struct jinja_run *run);
struct jinja_value *jinja_find(struct jinja_run *run, const struct jinja_dict *dict, struct jinja_value key);
void jinja_put(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value);

/* ---- Texts of values ---- */

void jinja_show(struct jinja_run *run, struct jinja_builder *out, struct jinja_value value); /* str() */
void jinja_repr(struct jinja_run *run, struct jinja_builder *out, struct jinja_value value);
struct jinja_value jinja_str(struct jinja_run *run, struct jinja_value value);
const char *jinja_repr_text(struct jinja_run *run, struct jinja_value value); /* for messages */
void jinja_float_repr(char out[40], double value);
struct jinja_value jinja_escape(struct jinja_run *run, struct jinja_value value); /* HTML */
struct jinja_value jinja_percent(struct jinja_run *run, struct jinja_value format, struct jinja_value values);
struct jinja_value jinja_format_method(struct jinja_run *run, const struct jinja_call *call);
struct jinja_value jinja_tojson(struct jinja_run *run, const struct jinja_call *call);
struct jinja_value jinja_strftime(struct jinja_run *run, struct jinja_value format);

/* ---- Iterating (iterate.c) ---- */

struct jinja_iterator *jinja_iterate(struct jinja_run *run, struct jinja_value value);
struct jinja_list *jinja_collect(struct jinja_run *run, struct jinja_value value); /* a list of what it gives */
struct jinja_value jinja_iterator_of(struct jinja_run *run, struct jinja_list *list, const char *type_name);
bool jinja_is_iterable(struct jinja_value value);
/* Sorts `values` by `keys`, both of the same length; equal ones keep their order. */
void jinja_sort(struct jinja_run *run, struct jinja_list *values, struct jinja_list *keys, bool descending);

/* ---- Operators, attributes, items ---- */

struct jinja_value jinja_binary(struct jinja_run *run, const char *operation, struct jinja_value a,
                                struct jinja_value b);
struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value object, struct jinja_value name);
/* Only what Python calls an attribute, no item. MISSING: there is none. */
struct jinja_value jinja_own_attribute(struct jinja_run *run, struct jinja_value object, struct jinja_value name);
struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value object, struct jinja_value key);
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value object, const struct jinja_value bounds[3]);
/* Item of a dotted path, as the parameter `attribute` of filters. */
struct jinja_value jinja_path(struct jinja_run *run, struct jinja_value object, struct jinja_value path,
                              struct jinja_value otherwise);

/* ---- Calls ---- */

enum { JINJA_PARAMETERS_MOST = 8 };
struct jinja_arguments {
    struct jinja_value *values;
    i64 count;
    const struct jinja_value *names; /* of keyword arguments, texts */
    struct jinja_value *named;
    i64 named_count;
};
struct jinja_call {
    const struct jinja_function *function;
    struct jinja_value subject;                   /* what a filter, a test or a method is applied to */
    struct jinja_value at[JINJA_PARAMETERS_MOST]; /* by the parameter's place; MISSING: not given */
    struct jinja_arguments given;
};
/* A filter, a test, a method or a global function. */
struct jinja_function {
    const char *name;
    const char *parameters; /* names, divided by spaces; "-": without a name; NULL: any arguments */
    int required;           /* how many must be given */
    struct jinja_value (*run)(struct jinja_run *run, const struct jinja_call *call); /* NULL: refused */
};
struct jinja_value jinja_invoke(struct jinja_run *run, const struct jinja_function *function,
                                struct jinja_value subject, const struct jinja_arguments *arguments);
struct jinja_value jinja_call_value(struct jinja_run *run, struct jinja_value callee,
                                    const struct jinja_arguments *arguments);
bool jinja_is_callable(struct jinja_value value);

const struct jinja_function *jinja_filter(const char *name); /* NULL: Jinja has none */
const struct jinja_function *jinja_test(const char *name);
const struct jinja_function *jinja_global(const char *name);
const struct jinja_function *jinja_method(struct jinja_value object, const char *name);
extern const struct jinja_function JINJA_TEXT_METHODS[], JINJA_TEXT_FILTERS[], JINJA_LIST_FILTERS[],
    JINJA_NUMBER_FILTERS[]; /* end with an empty row */
/* The row named `name` of a list that ends with an empty row, or NULL. */
const struct jinja_function *jinja_row(const struct jinja_function *rows, const char *name);
bool jinja_apply_test(struct jinja_run *run, const struct jinja_function *test, struct jinja_value value,
                      const struct jinja_arguments *arguments);

/* Arguments of a call; fail with the name of the function if they are of another type. */
i64 jinja_want_integer(struct jinja_run *run, const struct jinja_call *call, int place, i64 otherwise);
bool jinja_want_bool(struct jinja_run *run, const struct jinja_call *call, int place, bool otherwise);
struct jinja_text *jinja_want_text(struct jinja_run *run, const struct jinja_call *call, int place);
/* The subject as text, as Jinja's soft_str. */
struct jinja_text *jinja_subject(struct jinja_run *run, const struct jinja_call *call);
static inline bool jinja_given(const struct jinja_call *call, int place)
{
    return call->at[place].kind != JINJA_MISSING;
}

/* Methods of texts that filters and tests use too (text_methods.c). */
struct jinja_value jinja_upper(struct jinja_run *run, const struct jinja_call *call);
struct jinja_value jinja_lower(struct jinja_run *run, const struct jinja_call *call);
struct jinja_value jinja_capitalize(struct jinja_run *run, const struct jinja_call *call);
struct jinja_value jinja_strip(struct jinja_run *run, const struct jinja_call *call);
struct jinja_value jinja_center(struct jinja_run *run, const struct jinja_call *call);
struct jinja_value jinja_islower(struct jinja_run *run, const struct jinja_call *call);
struct jinja_value jinja_isupper(struct jinja_run *run, const struct jinja_call *call);
struct jinja_value jinja_replace_text(struct jinja_run *run, const struct jinja_text *text,
                                      const struct jinja_text *old, const struct jinja_text *new, i64 most);
i64 jinja_line_end(const char *at, i64 length); /* bytes of the line end at `at`; 0: there is none */

/* ---- The tree ---- */

enum jinja_node_kind {
    /* statements */
    JINJA_DATA,         /* constant */
    JINJA_OUTPUT,       /* a */
    JINJA_IF,           /* a: condition, body, other */
    JINJA_FOR,          /* a: target, b: iterable, c: condition, body, other; flag: recursive */
    JINJA_SET,          /* a: target, b: value */
    JINJA_SET_BLOCK,    /* a: target, b: filters over the captured text or NULL, body */
    JINJA_MACRO_NODE,   /* name, items: parameters, keywords: defaults of the last ones, body */
    JINJA_CALL_BLOCK,   /* a: the call; a macro besides */
    JINJA_FILTER_BLOCK, /* a: filters over the captured text, body */
    JINJA_WITH,         /* items: targets, keywords: values, body */
    JINJA_GENERATION,   /* body */
    JINJA_BREAK,
    JINJA_CONTINUE,
    /* expressions */
    JINJA_CONSTANT,
    JINJA_NAME,
    JINJA_NAMESPACE_NAME, /* name, constant: the attribute */
    JINJA_TUPLE_NODE,     /* items */
    JINJA_LIST_NODE,
    JINJA_DICT_NODE, /* items: keys, keywords: values */
    JINJA_NOT,
    JINJA_NEGATIVE,
    JINJA_POSITIVE,
    JINJA_BINARY,  /* a operator b */
    JINJA_COMPARE, /* a, items: operands with their operators */
    JINJA_OPERAND, /* operator a */
    JINJA_CONCAT,  /* items */
    JINJA_AND,
    JINJA_OR,
    JINJA_CONDITION, /* b if a else c, which may be NULL */
    JINJA_ATTRIBUTE, /* a.name */
    JINJA_ITEM,      /* a[b] */
    JINJA_SLICE,     /* a:b:c, each may be NULL */
    JINJA_CALL,      /* a(items, keywords, *b, **c) */
    JINJA_KEYWORD,   /* name=a */
    JINJA_FILTER,    /* a|function(...); a NULL: of the captured text */
    JINJA_TEST,      /* a is function(...) */
    JINJA_CAPTURED,
};
struct jinja_nodes {
    struct jinja_node **at;
    i64 count, capacity;
};
struct jinja_node {
    enum jinja_node_kind kind;
    int line;
    bool flag;             /* a loop is recursive; a variable is a target */
    const char *operation; /* of operators; constant of C */
    struct jinja_text *name;
    struct jinja_value constant;
    struct jinja_node *a, *b, *c;
    struct jinja_nodes items, keywords, body, other;
    const struct jinja_function *function;                        /* NULL: unknown; fails when it is run */
    struct jinja_symbols *symbols, *test_symbols, *other_symbols; /* of what opens a scope */
    bool takes_caller, takes_kwargs, takes_varargs;               /* a macro's body names them */
};

static inline struct jinja_value jinja_name_value(const struct jinja_node *node)
{
    return (struct jinja_value){JINJA_TEXT, {.text = node->name}};
}

/* Variables of a scope, by the rules of Jinja's compiler: what a variable is before the scope assigns
 * it depends on where the scope reads and writes it. */
enum jinja_load { JINJA_FROM_PARAMETER, JINJA_FROM_VARIABLES, JINJA_FROM_OUTER, JINJA_FROM_NOTHING };
struct jinja_symbol {
    const struct jinja_text *name; /* names are unique: compared by address */
    enum jinja_load load;
};
struct jinja_symbols {
    struct jinja_symbols *outer;
    struct jinja_symbol *at;
    i64 count, capacity;
};
struct jinja_scope {
    struct jinja_scope *outer;
    const struct jinja_symbols *symbols;
    struct jinja_value *values; /* [symbols->count] */
};
struct jinja_scope *jinja_open_scope(struct jinja_run *run, struct jinja_scope *outer,
                                     const struct jinja_symbols *symbols);
void jinja_load_scope(struct jinja_run *run, struct jinja_scope *scope); /* values before the first assignment */
struct jinja_value *jinja_variable(struct jinja_scope *scope, const struct jinja_text *name); /* of this scope alone */

struct template
{
    struct jinja_chunk *chunk;
    struct jinja_nodes body;
    struct jinja_symbols *symbols;
    char *origin;
    bool marks_generation, reads_clock;
    bool has_time;
    i64 time_s;
};

/* ---- Lexer and parser ---- */

enum jinja_token_kind {
    JINJA_END,
    JINJA_TOKEN_DATA,
    JINJA_VARIABLE_BEGIN,
    JINJA_VARIABLE_END,
    JINJA_BLOCK_BEGIN,
    JINJA_BLOCK_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_CONSTANT, /* a text, an integer or a float */
    JINJA_OPERATOR,
};
struct jinja_token {
    enum jinja_token_kind kind;
    int line;
    const char *operation;    /* of an operator: constant of C */
    struct jinja_value value; /* data, names and constants */
};
struct jinja_parser {
    struct jinja_run *run;
    struct jinja_token *tokens; /* ends with JINJA_END */
    i64 count, capacity, at;
    int nesting;
    bool soft;                        /* inside of a branch: unknown filters fail when they are run */
    const struct jinja_node *unknown; /* the first unknown filter or test outside of branches */
    bool loop, generation;            /* inside of the body of one */
    struct jinja_dict *names;
    struct template *template;
};
void jinja_scan(struct jinja_parser *parser, const char *text, i64 length);
void jinja_parse(struct jinja_parser *parser);
struct jinja_text *jinja_name(struct jinja_parser *parser, struct jinja_value text); /* the only one of its bytes */
struct jinja_node *jinja_new(struct jinja_parser *parser, enum jinja_node_kind kind);
void jinja_add(struct jinja_parser *parser, struct jinja_nodes *nodes, struct jinja_node *node);
const struct jinja_token *jinja_peek(const struct jinja_parser *parser, i64 ahead);
bool jinja_at_operator(const struct jinja_parser *parser, const char *operation);
bool jinja_at_name(const struct jinja_parser *parser, const char *name);
bool jinja_skip_operator(struct jinja_parser *parser, const char *operation);
bool jinja_skip_name(struct jinja_parser *parser, const char *name);
void jinja_expect_operator(struct jinja_parser *parser, const char *operation);
struct jinja_text *jinja_expect_name(struct jinja_parser *parser);
_Noreturn void jinja_unexpected(struct jinja_parser *parser, const char *expected);
void jinja_nest(struct jinja_parser *parser); /* one level deeper; --nesting goes back */
struct jinja_node *jinja_parse_expression(struct jinja_parser *parser, bool condition);
struct jinja_node *jinja_parse_tuple(struct jinja_parser *parser, bool condition, const char *end);
struct jinja_node *jinja_parse_target(struct jinja_parser *parser, const char *end, bool attributes);
struct jinja_node *jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *node, bool first);
void jinja_find_symbols(struct jinja_parser *parser);

/* ---- Running ---- */

enum jinja_flow { JINJA_NEXT, JINJA_BROKEN, JINJA_CONTINUED };
enum jinja_flow jinja_run_nodes(struct jinja_run *run, const struct jinja_nodes *nodes);
struct jinja_value jinja_evaluate(struct jinja_run *run, const struct jinja_node *node);
struct jinja_value jinja_look_up(struct jinja_run *run, const struct jinja_text *name);
/* Assigns to a name, a tuple of targets or an attribute of a namespace. */
void jinja_assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value);
struct jinja_value jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_arguments *arguments);
struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop, const char *name);
struct jinja_value jinja_recurse(struct jinja_run *run, struct jinja_loop *loop,
                                 const struct jinja_arguments *arguments);
/* A call's arguments, evaluated; `caller` is added as a keyword unless it is MISSING. */
void jinja_arguments(struct jinja_run *run, struct jinja_arguments *out, const struct jinja_node *node,
                     struct jinja_value caller);

#endif
