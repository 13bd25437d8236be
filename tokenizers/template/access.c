/* Attributes, items and slices: x.y asks for an attribute before an item, x['y'] the other way round. */
#include "tokenizers/template/inside.h"

#include <string.h>

/* Methods that change a list or dict: Jinja's immutable sandbox gives them as undefined. */
static bool is_mutation(struct jinja_value object, const char *name)
{
    static const char *const of_lists[] = {"append", "clear",  "pop",    "reverse", "insert",
                                           "sort",   "extend", "remove", NULL};
    static const char *const of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    if (object.kind != JINJA_LIST && object.kind != JINJA_DICT)
        return false;
    for (const char *const *at = object.kind == JINJA_LIST ? of_lists : of_dicts; *at; at++)
        if (strcmp(*at, name) == 0)
            return true;
    return false;
}

static struct jinja_value bind(struct jinja_run *run, const struct jinja_function *function, struct jinja_value object)
{
    struct jinja_bound *bound = jinja_alloc(run, sizeof *bound);
    *bound = (struct jinja_bound){function, object};
    return (struct jinja_value){JINJA_BOUND, {.bound = bound}};
}

/* A text of C of the name. Names with a 0 byte are none of ours. */
static const char *name_words(struct jinja_run *run, struct jinja_value name)
{
    char *words = jinja_alloc(run, name.text->length + 1);
    memcpy(words, name.text->bytes, (size_t)name.text->length);
    return words;
}

static bool is_of_python(const char *name)
{
    static const char *const names[] = {"__class__",        "__doc__",
                                        "__init__",         "__dict__",
                                        "__len__",          "__iter__",
                                        "__eq__",           "__getattribute__",
                                        "__hash__",         "__str__",
                                        "__repr__",         "__dir__",
                                        "__format__",       "__ne__",
                                        "__lt__",           "__le__",
                                        "__gt__",           "__ge__",
                                        "__new__",          "__reduce__",
                                        "__reduce_ex__",    "__setattr__",
                                        "__delattr__",      "__sizeof__",
                                        "__subclasshook__", "__init_subclass__",
                                        "__getstate__"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

struct jinja_value jinja_own_attribute(struct jinja_run *run, struct jinja_value object, struct jinja_value name)
{
    const char *words = name_words(run, name);
    if (object.kind == JINJA_UNDEFINED && !(strncmp(words, "__", 2) == 0))
        jinja_fail_undefined(run, object);
    if (object.kind == JINJA_NAMESPACE) {
        const struct jinja_value *found = jinja_find(run, object.dict, name);
        return found ? *found : JINJA_MISSING_VALUE;
    }
    if (is_of_python(words) || is_mutation(object, words))
        return jinja_undefined_hint(run, "access to attribute '%s' of '%s' object is unsafe.", words,
                                    jinja_type_name(object));
    if (object.kind == JINJA_LOOP)
        return jinja_loop_attribute(run, object.loop, words);
    if (object.kind == JINJA_CYCLER && strcmp(words, "current") == 0)
        return object.cycler->items->items[object.cycler->at];
    if (object.kind == JINJA_MACRO && strcmp(words, "name") == 0 && object.macro->node->name)
        return (struct jinja_value){JINJA_TEXT, {.text = object.macro->node->name}};
    if (object.kind == JINJA_MACRO && strcmp(words, "name") != 0)
        jinja_fail(run, "the attribute %s of a macro is not supported in chat templates", words);
    const struct jinja_function *method = jinja_method(object, words);
    if (!method)
        return JINJA_MISSING_VALUE;
    return bind(run, method, object);
}

/* ---- Items ---- */

/* Bytes before the character `point` of a text. */
static i64 offset_of(struct jinja_text *text, i64 point)
{
    if (jinja_points(text) == text->length)
        return point;
    i64 at = 0;
    for (; point > 0; point--)
        do
            at++;
        while (at < text->length && ((u8)text->bytes[at] & 0xc0) == 0x80);
    return at;
}

static struct jinja_value part_of_text(struct jinja_run *run, struct jinja_text *text, i64 begin, i64 end)
{
    jinja_charge(run, jinja_points(text) == text->length ? 1 : text->length >> 4);
    i64 from = offset_of(text, begin), to = from + offset_of(&(struct jinja_text){.bytes = text->bytes + from,
                                                                                  .length = text->length - from,
                                                                                  .points = text->points - begin},
                                                             end - begin);
    struct jinja_value part = jinja_text(run, text->bytes + from, to - from);
    part.text->markup = text->markup;
    return part;
}

/* object[key] of Python; MISSING where it raises an error that Jinja takes for an absent item. */
static struct jinja_value own_item(struct jinja_run *run, struct jinja_value object, struct jinja_value key)
{
    if (object.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(run, object);
    if (object.kind == JINJA_DICT) {
        bool hashable = key.kind != JINJA_LIST && key.kind != JINJA_DICT;
        const struct jinja_value *found = hashable ? jinja_find(run, object.dict, key) : NULL;
        return found ? *found : JINJA_MISSING_VALUE;
    }
    bool indexed = object.kind == JINJA_TEXT || object.kind == JINJA_LIST || object.kind == JINJA_TUPLE ||
                   object.kind == JINJA_RANGE;
    if (!indexed || !jinja_is_whole(key))
        return JINJA_MISSING_VALUE;
    i64 count = jinja_length(run, object), index = jinja_whole(key);
    index += index < 0 ? count : 0;
    if (index < 0 || index >= count)
        return JINJA_MISSING_VALUE;
    if (object.kind == JINJA_TEXT)
        return part_of_text(run, object.text, index, index + 1);
    if (object.kind == JINJA_RANGE)
        return jinja_integer(object.range->start + object.range->step * index);
    return object.list->items[index];
}

struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value object, struct jinja_value key)
{
    struct jinja_value found = own_item(run, object, key);
    if (found.kind == JINJA_MISSING && key.kind == JINJA_TEXT)
        found = jinja_own_attribute(run, object, key);
    return found.kind == JINJA_MISSING ? jinja_undefined_member(run, object, key) : found;
}

struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value object, struct jinja_value name)
{
    struct jinja_value found = jinja_own_attribute(run, object, name);
    if (found.kind == JINJA_MISSING)
        found = own_item(run, object, name);
    return found.kind == JINJA_MISSING ? jinja_undefined_member(run, object, name) : found;
}

/* ---- Paths: "a.b.0" ---- */

static struct jinja_value path_part(struct jinja_run *run, const char *bytes, i64 length)
{
    i64 number = 0;
    bool digits = length > 0 && length < 18;
    for (i64 i = 0; i < length && digits; i++) {
        digits = bytes[i] >= '0' && bytes[i] <= '9';
        number = number * 10 + (bytes[i] - '0');
    }
    return digits ? jinja_integer(number) : jinja_text(run, bytes, length);
}

struct jinja_value jinja_path(struct jinja_run *run, struct jinja_value object, struct jinja_value path,
                              struct jinja_value otherwise)
{
    bool has_default = otherwise.kind != JINJA_MISSING && otherwise.kind != JINJA_NONE;
    if (path.kind == JINJA_NONE || path.kind == JINJA_MISSING)
        return object;
    if (path.kind != JINJA_TEXT) {
        object = jinja_item(run, object, path);
        return has_default && object.kind == JINJA_UNDEFINED ? otherwise : object;
    }
    const char *bytes = path.text->bytes;
    for (i64 at = 0; at <= path.text->length;) {
        const char *dot = memchr(bytes + at, '.', (size_t)(path.text->length - at));
        i64 end = dot ? dot - bytes : path.text->length;
        object = jinja_item(run, object, path_part(run, bytes + at, end - at));
        if (has_default && object.kind == JINJA_UNDEFINED)
            object = otherwise;
        at = end + 1;
    }
    return object;
}

/* ---- Slices ---- */

static i64 bound(struct jinja_run *run, struct jinja_value value, i64 otherwise, i64 count, i64 step)
{
    if (value.kind == JINJA_NONE || value.kind == JINJA_MISSING)
        return otherwise;
    if (!jinja_is_whole(value))
        jinja_fail(run, "slice indices must be integers or None or have an __index__ method");
    i64 at = jinja_whole(value), least = step < 0 ? -1 : 0, most = step < 0 ? count - 1 : count;
    if (at < 0)
        at = at < -count ? -1 : at + count;
    return min_i64(max_i64(at, least), most);
}

static struct jinja_value stepped_text(struct jinja_run *run, struct jinja_text *text, i64 start, i64 step, i64 count)
{
    struct jinja_builder out = {0};
    struct jinja_list *points = jinja_collect(run, (struct jinja_value){JINJA_TEXT, {.text = text}});
    for (i64 i = 0; i < count; i++) {
        const struct jinja_text *point = points->items[start + i * step].text;
        jinja_append(run, &out, point->bytes, point->length);
    }
    return jinja_markup(run, jinja_built(run, &out), text->markup);
}

static struct jinja_value slice_of_range(struct jinja_run *run, const struct jinja_range *range, i64 start, i64 step,
                                         i64 count, i64 stop)
{
    struct jinja_range *part = jinja_alloc(run, sizeof *part);
    *part = (struct jinja_range){range->start + range->step * start, range->step * step, count,
                                 range->start + range->step * stop};
    return (struct jinja_value){JINJA_RANGE, {.range = part}};
}

struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value object, const struct jinja_value bounds[3])
{
    bool sliced = object.kind == JINJA_TEXT || object.kind == JINJA_LIST || object.kind == JINJA_TUPLE ||
                  object.kind == JINJA_RANGE;
    jinja_need_defined(run, object);
    if (!sliced)
        jinja_fail(run, "a slice of a value of type %s: expected a text or a list", jinja_type_name(object));
    i64 count = jinja_length(run, object), step = 1;
    if (bounds[2].kind != JINJA_NONE && bounds[2].kind != JINJA_MISSING) {
        if (!jinja_is_whole(bounds[2]))
            jinja_fail(run, "slice indices must be integers or None or have an __index__ method");
        step = max_i64(jinja_whole(bounds[2]), -INT64_MAX);
    }
    if (step == 0)
        jinja_fail(run, "slice step cannot be zero");
    i64 start = bound(run, bounds[0], step < 0 ? count - 1 : 0, count, step);
    i64 stop = bound(run, bounds[1], step < 0 ? -1 : count, count, step);
    i64 span = step < 0 ? start - stop : stop - start, size = step < 0 ? -step : step;
    i64 taken = span > 0 ? (span - 1) / size + 1 : 0;
    if (object.kind == JINJA_RANGE)
        return slice_of_range(run, object.range, start, taken < 2 ? 1 : step, taken, stop);
    if (object.kind == JINJA_TEXT && (step == 1 || taken == 0))
        return part_of_text(run, object.text, start, start + taken);
    if (object.kind == JINJA_TEXT)
        return stepped_text(run, object.text, start, step, taken);
    struct jinja_value part = jinja_sequence(run, object.kind, taken);
    for (i64 i = 0; i < taken; i++)
        part.list->items[i] = object.list->items[start + i * step];
    return part;
}
