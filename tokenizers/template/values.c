/* Making values, and what Python's operators say of them: truth, equality, order, length. */
#define _GNU_SOURCE /* memmem */
#include "tokenizers/template/inside.h"

#include <math.h>
#include <string.h>

const struct jinja_value JINJA_NONE_VALUE = {JINJA_NONE, {0}}, JINJA_MISSING_VALUE = {JINJA_MISSING, {0}};

struct jinja_value jinja_bool(bool truth)
{
    return (struct jinja_value){JINJA_BOOL, {.truth = truth}};
}

struct jinja_value jinja_integer(i64 integer)
{
    return (struct jinja_value){JINJA_INTEGER, {.integer = integer}};
}

struct jinja_value jinja_real(double real)
{
    return (struct jinja_value){JINJA_FLOAT, {.real = real}};
}

struct jinja_value jinja_text(struct jinja_run *run, const char *bytes, i64 length)
{
    struct jinja_text *text = jinja_alloc(run, sizeof *text);
    *text = (struct jinja_text){.bytes = length ? bytes : "", .length = length, .points = -1};
    return (struct jinja_value){JINJA_TEXT, {.text = text}};
}

struct jinja_value jinja_text_copy(struct jinja_run *run, const char *bytes, i64 length)
{
    struct jinja_builder copy = {0};
    jinja_append(run, &copy, bytes, length);
    return jinja_built(run, &copy);
}

struct jinja_value jinja_words(struct jinja_run *run, const char *text)
{
    return jinja_text(run, text, (i64)strlen(text));
}

struct jinja_value jinja_built(struct jinja_run *run, const struct jinja_builder *builder)
{
    return jinja_text(run, builder->bytes, builder->length);
}

struct jinja_value jinja_markup(struct jinja_run *run, struct jinja_value text, bool markup)
{
    if (text.text->markup == markup)
        return text;
    struct jinja_value copy = jinja_text(run, text.text->bytes, text.text->length);
    copy.text->markup = markup;
    return copy;
}

struct jinja_value jinja_of_list(struct jinja_list *list, enum jinja_kind kind)
{
    return (struct jinja_value){kind, {.list = list}};
}

struct jinja_value jinja_sequence(struct jinja_run *run, enum jinja_kind kind, i64 count)
{
    struct jinja_list *list = jinja_alloc(run, sizeof *list);
    i64 bytes;
    if (__builtin_mul_overflow(count, (i64)sizeof *list->items, &bytes))
        bytes = INT64_MAX;
    jinja_charge(run, min_i64(count, JINJA_STEPS_MOST) >> 4);
    *list = (struct jinja_list){jinja_alloc(run, bytes), count, count};
    return jinja_of_list(list, kind);
}

void jinja_push(struct jinja_run *run, struct jinja_list *list, struct jinja_value value)
{
    if (list->count == list->capacity) {
        i64 capacity = max_i64(8, list->capacity * 2), size = sizeof value;
        list->items = jinja_grow(run, list->items, list->capacity * size, capacity * size);
        list->capacity = capacity;
    }
    list->items[list->count++] = value;
}

struct jinja_value jinja_pair(struct jinja_run *run, struct jinja_value first, struct jinja_value second)
{
    struct jinja_value pair = jinja_sequence(run, JINJA_TUPLE, 2);
    pair.list->items[0] = first;
    pair.list->items[1] = second;
    return pair;
}

/* ---- Undefined ---- */

static struct jinja_value undefined(struct jinja_run *run, struct jinja_undefined parts)
{
    struct jinja_undefined *made = jinja_alloc(run, sizeof *made);
    *made = parts;
    return (struct jinja_value){JINJA_UNDEFINED, {.undefined = made}};
}

struct jinja_value jinja_undefined_name(struct jinja_run *run, struct jinja_value name)
{
    return undefined(run, (struct jinja_undefined){.name = name});
}

struct jinja_value jinja_undefined_member(struct jinja_run *run, struct jinja_value object, struct jinja_value name)
{
    return undefined(run, (struct jinja_undefined){.object = object, .name = name});
}

struct jinja_value jinja_undefined_hint(struct jinja_run *run, const char *format, ...)
{
    struct buffer text = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_vprintf(&text, format, arguments);
    va_end(arguments);
    char *hint = jinja_alloc(run, text.length + 1);
    memcpy(hint, text.data, (size_t)text.length);
    buffer_release(&text);
    return undefined(run, (struct jinja_undefined){.hint = hint});
}

static const char *object_words(struct jinja_run *run, struct jinja_value object)
{
    struct jinja_builder words = {0};
    if (object.kind == JINJA_NONE)
        return "None";
    jinja_print(run, &words, "%s object", jinja_type_name(object));
    jinja_append(run, &words, "", 1);
    return words.bytes;
}

void jinja_fail_undefined(struct jinja_run *run, struct jinja_value value)
{
    const struct jinja_undefined *parts = value.undefined;
    if (parts->hint)
        jinja_fail(run, "%s", parts->hint);
    const char *name = jinja_repr_text(run, parts->name);
    if (parts->object.kind == JINJA_MISSING)
        jinja_fail(run, "%s is undefined", name);
    const char *object = object_words(run, parts->object);
    if (parts->name.kind != JINJA_TEXT)
        jinja_fail(run, "%s has no element %s", object, name);
    jinja_fail(run, "'%s' has no attribute %s", object, name);
}

void jinja_need_defined(struct jinja_run *run, struct jinja_value value)
{
    if (value.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(run, value);
}

/* ---- From JSON ---- */

static struct jinja_value of_array(struct jinja_run *run, const struct json *json)
{
    struct jinja_value list = jinja_sequence(run, JINJA_LIST, json_count(json));
    for (i64 i = 0; i < list.list->count; i++)
        list.list->items[i] = jinja_of_json(run, json_at(json, i));
    return list;
}

static struct jinja_value of_object(struct jinja_run *run, const struct json *json)
{
    struct jinja_value dict = jinja_dict(run);
    struct json_iterator member;
    for (bool more = json_first(&member, json); more; more = json_next(&member, json))
        jinja_put(run, dict.dict, jinja_words(run, member.key), jinja_of_json(run, member.value));
    return dict;
}

struct jinja_value jinja_of_json(struct jinja_run *run, const struct json *json)
{
    struct jinja_value value = JINJA_NONE_VALUE;
    jinja_enter(run);
    switch (json_kind(json)) {
    case JSON_NULL:
        break;
    case JSON_BOOL:
        value = jinja_bool(json_bool(json, false));
        break;
    case JSON_INTEGER:
        value = jinja_integer(json_integer(json, 0));
        break;
    case JSON_REAL:
        value = jinja_real(json_number(json, 0));
        break;
    case JSON_STRING:
        value = jinja_text(run, json_string(json, ""), json_string_length(json));
        break;
    case JSON_ARRAY:
        value = of_array(run, json);
        break;
    case JSON_OBJECT:
        value = of_object(run, json);
        break;
    }
    jinja_leave(run, 1);
    return value;
}

/* ---- What values are ---- */

const char *jinja_type_name(struct jinja_value value)
{
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    static const char *const names[] = {
        [JINJA_MISSING] = "nothing",
        [JINJA_UNDEFINED] = "jinja2.runtime.Undefined",
        [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",
        [JINJA_INTEGER] = "int",
        [JINJA_FLOAT] = "float",
        [JINJA_TEXT] = "str",
        [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",
        [JINJA_RANGE] = "range",
        [JINJA_NAMESPACE] = "jinja2.utils.Namespace",
        [JINJA_MACRO] = "jinja2.runtime.Macro",
        [JINJA_BOUND] = "builtin_function_or_method",
        [JINJA_LOOP] = "jinja2.runtime.LoopContext",
        [JINJA_CYCLER] = "jinja2.utils.Cycler",
        [JINJA_JOINER] = "jinja2.utils.Joiner",
    };
    if (value.kind == JINJA_VIEW)
        return views[value.view->part];
    if (value.kind == JINJA_ITERATOR)
        return value.iterator->type_name;
    return value.kind == JINJA_TEXT && value.text->markup ? "markupsafe.Markup" : names[value.kind];
}

bool jinja_is(struct jinja_value value, const char *text)
{
    size_t length = strlen(text);
    return value.kind == JINJA_TEXT && value.text->length == (i64)length &&
           memcmp(value.text->bytes, text, length) == 0;
}

bool jinja_is_whole(struct jinja_value value)
{
    return value.kind == JINJA_INTEGER || value.kind == JINJA_BOOL;
}

bool jinja_is_number(struct jinja_value value)
{
    return jinja_is_whole(value) || value.kind == JINJA_FLOAT;
}

i64 jinja_whole(struct jinja_value value)
{
    return value.kind == JINJA_BOOL ? value.truth : value.integer;
}

double jinja_double(struct jinja_value value)
{
    return value.kind == JINJA_FLOAT ? value.real : (double)jinja_whole(value);
}

bool jinja_has_length(struct jinja_value value)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
    case JINJA_TEXT:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_RANGE:
    case JINJA_LOOP:
        return true;
    default:
        return false;
    }
}

i64 jinja_points(struct jinja_text *text)
{
    if (text->points >= 0)
        return text->points;
    i64 count = 0;
    for (i64 i = 0; i < text->length; i++)
        count += ((u8)text->bytes[i] & 0xc0) != 0x80;
    return text->points = count;
}

i64 jinja_length(struct jinja_run *run, struct jinja_value value)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
        return 0;
    case JINJA_TEXT:
        if (value.text->points < 0)
            jinja_charge(run, value.text->length >> 6);
        return jinja_points(value.text);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return value.list->count;
    case JINJA_DICT:
        return value.dict->count;
    case JINJA_VIEW:
        return value.view->dict->count;
    case JINJA_RANGE:
        return value.range->count;
    case JINJA_LOOP:
        return jinja_loop_attribute(run, value.loop, "length").integer;
    default:
        jinja_fail(run, "object of type '%s' has no len()", jinja_type_name(value));
    }
}

bool jinja_truth(struct jinja_run *run, struct jinja_value value)
{
    switch (value.kind) {
    case JINJA_MISSING:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return value.truth;
    case JINJA_INTEGER:
        return value.integer != 0;
    case JINJA_FLOAT:
        return value.real != 0;
    case JINJA_TEXT:
        return value.text->length > 0;
    default:
        return !jinja_has_length(value) || jinja_length(run, value) > 0;
    }
}

/* ---- Equality and order ---- */

static int compare_whole(i64 a, i64 b)
{
    return (a > b) - (a < b);
}

/* Exact, as Python compares an integer with a float. 2: one is NaN. */
static int compare_numbers(struct jinja_value a, struct jinja_value b)
{
    if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT)
        return compare_whole(jinja_whole(a), jinja_whole(b));
    double x = jinja_double(a), y = jinja_double(b);
    if (isnan(x) || isnan(y))
        return 2;
    if (x != y || (a.kind == JINJA_FLOAT && b.kind == JINJA_FLOAT) || fabs(x) < 0x1p53)
        return (x > y) - (x < y);
    if (fabs(x) >= 0x1p63) /* only a float can be as large, or an integer just below that rounds to it */
        return a.kind == JINJA_FLOAT ? (x > 0 ? 1 : -1) : (y > 0 ? -1 : 1);
    return compare_whole(a.kind == JINJA_FLOAT ? (i64)x : jinja_whole(a),
                         b.kind == JINJA_FLOAT ? (i64)y : jinja_whole(b));
}

static int compare_texts(const struct jinja_text *a, const struct jinja_text *b)
{
    int order = memcmp(a->bytes, b->bytes, (size_t)min_i64(a->length, b->length));
    return order ? (order > 0) - (order < 0) : compare_whole(a->length, b->length);
}

static bool equal_dicts(struct jinja_run *run, const struct jinja_dict *a, const struct jinja_dict *b)
{
    if (a->count != b->count)
        return false;
    for (i64 i = 0; i < a->count; i++) {
        const struct jinja_value *other = jinja_find(run, b, a->entries[i].key);
        if (!other || !jinja_equal(run, a->entries[i].value, *other))
            return false;
    }
    return true;
}

static bool equal_lists(struct jinja_run *run, const struct jinja_list *a, const struct jinja_list *b)
{
    if (a->count != b->count)
        return false;
    for (i64 i = 0; i < a->count; i++)
        if (!jinja_equal(run, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool equal_ranges(const struct jinja_range *a, const struct jinja_range *b)
{
    return a->count == b->count && (a->count == 0 || a->start == b->start) && (a->count < 2 || a->step == b->step);
}

/* Views of keys or items are sets in Python. */
static bool equal_views(struct jinja_run *run, const struct jinja_view *a, const struct jinja_view *b)
{
    if (a->part == JINJA_VALUES || b->part != a->part)
        return a == b;
    if (a->part == JINJA_ITEMS)
        return equal_dicts(run, a->dict, b->dict);
    bool equal = a->dict->count == b->dict->count;
    for (i64 i = 0; i < a->dict->count && equal; i++)
        equal = jinja_find(run, b->dict, a->dict->entries[i].key) != NULL;
    return equal;
}

static bool equal_kinds(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
    case JINJA_MISSING:
        return true;
    case JINJA_TEXT:
        jinja_charge(run, a.text->length == b.text->length ? a.text->length >> 6 : 0);
        return a.text->length == b.text->length && compare_texts(a.text, b.text) == 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return a.list == b.list || equal_lists(run, a.list, b.list);
    case JINJA_DICT:
        return a.dict == b.dict || equal_dicts(run, a.dict, b.dict);
    case JINJA_RANGE:
        return equal_ranges(a.range, b.range);
    case JINJA_VIEW:
        return equal_views(run, a.view, b.view);
    case JINJA_BOUND: /* a global function is made where it is named */
        return a.bound->function == b.bound->function && a.bound->subject.kind == b.bound->subject.kind &&
               jinja_equal(run, a.bound->subject, b.bound->subject);
    default:
        return a.text == b.text; /* the same object */
    }
}

bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    jinja_enter(run);
    bool equal = false;
    if (jinja_is_number(a) && jinja_is_number(b))
        equal = compare_numbers(a, b) == 0;
    else if (a.kind == b.kind)
        equal = equal_kinds(run, a, b);
    jinja_leave(run, 1);
    return equal;
}

static int compare_lists(struct jinja_run *run, const struct jinja_list *a, const struct jinja_list *b,
                         const char *operation)
{
    for (i64 i = 0; i < a->count && i < b->count; i++)
        if (!jinja_equal(run, a->items[i], b->items[i]))
            return jinja_compare(run, a->items[i], b->items[i], operation);
    return compare_whole(a->count, b->count);
}

int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b, const char *operation)
{
    jinja_need_defined(run, a);
    jinja_need_defined(run, b);
    if (jinja_is_number(a) && jinja_is_number(b))
        return compare_numbers(a, b);
    if (a.kind != b.kind || (a.kind != JINJA_TEXT && a.kind != JINJA_LIST && a.kind != JINJA_TUPLE))
        jinja_fail(run, "'%s' not supported between instances of '%s' and '%s'", operation, jinja_type_name(a),
                   jinja_type_name(b));
    if (a.kind == JINJA_TEXT) {
        jinja_charge(run, min_i64(a.text->length, b.text->length) >> 6);
        return compare_texts(a.text, b.text);
    }
    jinja_enter(run);
    int order = compare_lists(run, a.list, b.list, operation);
    jinja_leave(run, 1);
    return order;
}

static bool range_contains(const struct jinja_range *range, struct jinja_value item)
{
    if (!jinja_is_number(item) ||
        (item.kind == JINJA_FLOAT && (item.real != floor(item.real) || fabs(item.real) > 1e18)))
        return false;
    i64 whole = item.kind == JINJA_FLOAT ? (i64)item.real : jinja_whole(item), last;
    if (range->count == 0)
        return false;
    last = range->start + range->step * (range->count - 1);
    return whole >= min_i64(range->start, last) && whole <= max_i64(range->start, last) &&
           (whole - range->start) % range->step == 0;
}

bool jinja_contains(struct jinja_run *run, struct jinja_value container, struct jinja_value item)
{
    switch (container.kind) {
    case JINJA_TEXT:
        if (item.kind != JINJA_TEXT)
            jinja_fail(run, "'in <string>' requires string as left operand, not %s", jinja_type_name(item));
        jinja_charge(run, (container.text->length >> 6) * (1 + (item.text->length >> 8)));
        return item.text->length == 0 || memmem(container.text->bytes, (size_t)container.text->length, item.text->bytes,
                                                (size_t)item.text->length);
    case JINJA_DICT:
        return jinja_find(run, container.dict, item) != NULL;
    case JINJA_VIEW:
        if (container.view->part == JINJA_KEYS)
            return jinja_find(run, container.view->dict, item) != NULL;
        break;
    case JINJA_RANGE:
        return range_contains(container.range, item);
    default:
        break;
    }
    if (!jinja_is_iterable(container))
        jinja_fail(run, "argument of type '%s' is not iterable", jinja_type_name(container));
    struct jinja_iterator *iterator = jinja_iterate(run, container);
    for (struct jinja_value each; iterator->next(&each, run, iterator);)
        if (jinja_equal(run, each, item))
            return true;
    return false;
}
