/* Filters over lists, dicts and what else can be iterated. */
#include "tokenizers/template/inside.h"

#include <string.h>

/* ---- Sorting ---- */

/* A stable merge sort of indices: keys may be of any type, and comparing them may fail. */
static void sort_indices(struct jinja_run *run, i64 *order, i64 *spare, i64 count, const struct jinja_value *keys,
                         bool descending)
{
    if (count < 2)
        return;
    i64 half = count / 2, left = 0, right = half;
    jinja_enter(run);
    sort_indices(run, order, spare, half, keys, descending);
    sort_indices(run, order + half, spare, count - half, keys, descending);
    jinja_leave(run, 1);
    for (i64 i = 0; i < count; i++) {
        bool take_right = left == half;
        if (left < half && right < count) {
            const struct jinja_value *a = &keys[order[left]], *b = &keys[order[right]];
            jinja_charge(run, 1);
            take_right = descending ? jinja_compare(run, *a, *b, "<") < 0 : jinja_compare(run, *b, *a, "<") < 0;
        }
        spare[i] = take_right ? order[right++] : order[left++];
    }
    memcpy(order, spare, (size_t)count * sizeof *order);
}

void jinja_sort(struct jinja_run *run, struct jinja_list *values, struct jinja_list *keys, bool descending)
{
    i64 count = values->count;
    i64 *order = jinja_alloc(run, count * (i64)sizeof *order), *spare = jinja_alloc(run, count * (i64)sizeof *spare);
    struct jinja_value *sorted = jinja_sequence(run, JINJA_LIST, count).list->items;
    struct jinja_value *sorted_keys = jinja_sequence(run, JINJA_LIST, count).list->items;
    for (i64 i = 0; i < count; i++)
        order[i] = i;
    sort_indices(run, order, spare, count, keys->items, descending);
    for (i64 i = 0; i < count; i++) {
        sorted[i] = values->items[order[i]];
        sorted_keys[i] = keys->items[order[i]];
    }
    values->items = sorted;
    keys->items = sorted_keys;
}

/* Upper and lower case count as equal. */
static struct jinja_value ignore_case(struct jinja_run *run, struct jinja_value value)
{
    static const struct jinja_function lower = {"lower", "", 0, jinja_lower};
    const struct jinja_arguments none = {0};
    return value.kind == JINJA_TEXT ? jinja_invoke(run, &lower, value, &none) : value;
}

static struct jinja_value key_of(struct jinja_run *run, struct jinja_value item, struct jinja_value path,
                                 struct jinja_value otherwise, bool sensitive)
{
    struct jinja_value key = jinja_path(run, item, path, otherwise);
    return sensitive ? key : ignore_case(run, key);
}

static struct jinja_list *keys_of(struct jinja_run *run, const struct jinja_list *items, struct jinja_value path,
                                  struct jinja_value otherwise, bool sensitive)
{
    struct jinja_list *keys = jinja_sequence(run, JINJA_LIST, items->count).list;
    for (i64 i = 0; i < items->count; i++)
        keys->items[i] = key_of(run, items->items[i], path, otherwise, sensitive);
    return keys;
}

/* Lists of what the paths give, which are divided by commas. A list of one too: what is equal in it needs
 * no order. */
static struct jinja_list *sort_keys(struct jinja_run *run, const struct jinja_list *items, struct jinja_value paths,
                                    bool sensitive)
{
    struct jinja_list *keys = jinja_sequence(run, JINJA_LIST, items->count).list;
    for (i64 i = 0; i < items->count; i++) {
        struct jinja_list *parts = jinja_sequence(run, JINJA_LIST, 0).list;
        const char *at = paths.kind == JINJA_TEXT ? paths.text->bytes : NULL;
        if (!at)
            jinja_push(run, parts, key_of(run, items->items[i], paths, JINJA_MISSING_VALUE, sensitive));
        for (const char *end = at ? at + paths.text->length : NULL; at && at <= end;) {
            const char *comma = memchr(at, ',', (size_t)(end - at)), *stop = comma ? comma : end;
            struct jinja_value path = jinja_text(run, at, stop - at);
            jinja_push(run, parts, key_of(run, items->items[i], path, JINJA_MISSING_VALUE, sensitive));
            at = stop + 1;
        }
        keys->items[i] = jinja_of_list(parts, JINJA_LIST);
    }
    return keys;
}

/* Parameters: reverse case_sensitive attribute. */
static struct jinja_value sort(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *items = jinja_collect(run, call->subject);
    struct jinja_list *keys = sort_keys(run, items, call->at[2], jinja_want_bool(run, call, 1, false));
    jinja_sort(run, items, keys, jinja_want_bool(run, call, 0, false));
    return jinja_of_list(items, JINJA_LIST);
}

static const struct jinja_dict *want_dict(struct jinja_run *run, const struct jinja_call *call)
{
    jinja_need_defined(run, call->subject);
    if (call->subject.kind != JINJA_DICT)
        jinja_fail(run, "%s: expected a mapping, found a value of type %s", call->function->name,
                   jinja_type_name(call->subject));
    return call->subject.dict;
}

/* Parameters: case_sensitive by reverse. */
static struct jinja_value dictsort(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_dict *dict = want_dict(run, call);
    bool by_value = jinja_given(call, 1) && jinja_is(call->at[1], "value");
    struct jinja_list *items = jinja_sequence(run, JINJA_LIST, dict->count).list;
    struct jinja_list *keys = jinja_sequence(run, JINJA_LIST, dict->count).list;
    if (jinja_given(call, 1) && !by_value && !jinja_is(call->at[1], "key"))
        jinja_fail(run, "You can only sort by either \"key\" or \"value\"");
    for (i64 i = 0; i < dict->count; i++) {
        const struct jinja_entry *entry = &dict->entries[i];
        struct jinja_value key = by_value ? entry->value : entry->key;
        items->items[i] = jinja_pair(run, entry->key, entry->value);
        keys->items[i] = jinja_want_bool(run, call, 0, false) ? key : ignore_case(run, key);
    }
    jinja_sort(run, items, keys, jinja_want_bool(run, call, 2, false));
    return jinja_of_list(items, JINJA_LIST);
}

/* Parameters: attribute default case_sensitive. Groups are pairs of the key and its items. */
static struct jinja_value groupby(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *items = jinja_collect(run, call->subject), *groups = jinja_sequence(run, JINJA_LIST, 0).list;
    bool sensitive = jinja_want_bool(run, call, 2, false);
    struct jinja_list *keys = keys_of(run, items, call->at[0], call->at[1], sensitive);
    jinja_sort(run, items, keys, false);
    for (i64 begin = 0, end; begin < items->count; begin = end) {
        struct jinja_list *group = jinja_sequence(run, JINJA_LIST, 0).list;
        for (end = begin; end < items->count && jinja_equal(run, keys->items[end], keys->items[begin]); end++)
            jinja_push(run, group, items->items[end]);
        if (end == begin) /* NaN equals nothing */
            jinja_push(run, group, items->items[end++]);
        struct jinja_value key = key_of(run, items->items[begin], call->at[0], call->at[1], true);
        struct jinja_value pair = jinja_pair(run, key, jinja_of_list(group, JINJA_LIST));
        jinja_push(run, groups, pair);
    }
    return jinja_of_list(groups, JINJA_LIST);
}

/* ---- What is done when the first item is asked for ---- */

static struct jinja_value lazily(struct jinja_run *run, const struct jinja_call *call,
                                 bool (*next)(struct jinja_value *out, struct jinja_run *run,
                                              struct jinja_iterator *iterator))
{
    struct jinja_iterator *iterator = jinja_alloc(run, sizeof *iterator);
    struct jinja_call *kept = jinja_alloc(run, sizeof *kept);
    *kept = *call;
    *iterator = (struct jinja_iterator){.next = next, .call = kept, .type_name = "generator"};
    return (struct jinja_value){JINJA_ITERATOR, {.iterator = iterator}};
}

/* Items of a list that `make` gives at the first one. */
static bool next_made(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator,
                      struct jinja_list *(*make)(struct jinja_run *run, const struct jinja_call *call))
{
    if (!iterator->inner)
        iterator->inner = jinja_iterate(run, jinja_of_list(make(run, iterator->call), JINJA_LIST));
    return iterator->inner->next(out, run, iterator->inner);
}

/* Parameters: case_sensitive attribute. */
static struct jinja_list *make_unique(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *items = jinja_collect(run, call->subject), *out = jinja_sequence(run, JINJA_LIST, 0).list;
    struct jinja_list *keys =
        keys_of(run, items, call->at[1], JINJA_MISSING_VALUE, jinja_want_bool(run, call, 0, false));
    struct jinja_value seen = jinja_dict(run);
    for (i64 i = 0; i < items->count; i++) {
        if (jinja_find(run, seen.dict, keys->items[i]))
            continue;
        jinja_put(run, seen.dict, keys->items[i], JINJA_NONE_VALUE);
        jinja_push(run, out, items->items[i]);
    }
    return out;
}

static bool next_unique(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    return next_made(out, run, iterator, make_unique);
}

static struct jinja_value unique(struct jinja_run *run, const struct jinja_call *call)
{
    return lazily(run, call, next_unique);
}

/* Parameters: case_sensitive attribute. */
static struct jinja_value extreme(struct jinja_run *run, const struct jinja_call *call, bool most)
{
    struct jinja_list *items = jinja_collect(run, call->subject);
    struct jinja_list *keys =
        keys_of(run, items, call->at[1], JINJA_MISSING_VALUE, jinja_want_bool(run, call, 0, false));
    i64 best = 0;
    if (items->count == 0)
        return jinja_undefined_hint(run, "No aggregated item, sequence was empty.");
    for (i64 i = 1; i < items->count; i++)
        if (most ? jinja_compare(run, keys->items[i], keys->items[best], ">") == 1
                 : jinja_compare(run, keys->items[i], keys->items[best], "<") < 0)
            best = i;
    return items->items[best];
}

static struct jinja_value max(struct jinja_run *run, const struct jinja_call *call)
{
    return extreme(run, call, true);
}

static struct jinja_value min(struct jinja_run *run, const struct jinja_call *call)
{
    return extreme(run, call, false);
}

/* ---- Parts ---- */

static struct jinja_value length(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_integer(jinja_length(run, call->subject));
}

static struct jinja_value first(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_iterator *iterator = jinja_iterate(run, call->subject);
    struct jinja_value item;
    if (!iterator->next(&item, run, iterator))
        return jinja_undefined_hint(run, "No first item, sequence was empty.");
    return item;
}

static bool is_reversible(struct jinja_value value)
{
    return value.kind != JINJA_ITERATOR && value.kind != JINJA_UNDEFINED && jinja_is_iterable(value);
}

static struct jinja_value last(struct jinja_run *run, const struct jinja_call *call)
{
    if (!is_reversible(call->subject) && call->subject.kind != JINJA_UNDEFINED)
        jinja_fail(run, "'%s' object is not reversible", jinja_type_name(call->subject));
    if (call->subject.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(run, call->subject);
    struct jinja_list *items = jinja_collect(run, call->subject);
    return items->count ? items->items[items->count - 1]
                        : jinja_undefined_hint(run, "No last item, sequence was empty.");
}

static struct jinja_value list(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_of_list(jinja_collect(run, call->subject), JINJA_LIST);
}

static struct jinja_value reverse(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *items = jinja_collect(run, call->subject), *out = jinja_sequence(run, JINJA_LIST, 0).list;
    struct jinja_builder text = {0};
    for (i64 i = items->count - 1; i >= 0; i--) {
        jinja_push(run, out, items->items[i]);
        if (call->subject.kind == JINJA_TEXT)
            jinja_show(run, &text, items->items[i]);
    }
    if (call->subject.kind == JINJA_TEXT)
        return jinja_markup(run, jinja_built(run, &text), call->subject.text->markup);
    if (!is_reversible(call->subject))
        return jinja_of_list(out, JINJA_LIST);
    return jinja_iterator_of(run, out, call->subject.kind == JINJA_LIST ? "list_reverseiterator" : "reversed");
}

static struct jinja_list *make_items(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *out = jinja_sequence(run, JINJA_LIST, 0).list;
    if (call->subject.kind != JINJA_UNDEFINED && call->subject.kind != JINJA_DICT)
        jinja_fail(run, "Can only get item pairs from a mapping.");
    for (i64 i = 0; call->subject.kind == JINJA_DICT && i < call->subject.dict->count; i++) {
        const struct jinja_entry *entry = &call->subject.dict->entries[i];
        jinja_push(run, out, jinja_pair(run, entry->key, entry->value));
    }
    return out;
}

static bool next_items(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    return next_made(out, run, iterator, make_items);
}

static struct jinja_value items_filter(struct jinja_run *run, const struct jinja_call *call)
{
    return lazily(run, call, next_items);
}

/* Parameters: linecount fill_with. */
static struct jinja_list *make_batches(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *items = jinja_collect(run, call->subject), *out = jinja_sequence(run, JINJA_LIST, 0).list;
    i64 size = jinja_want_integer(run, call, 0, 0);
    bool fill = jinja_given(call, 1) && call->at[1].kind != JINJA_NONE;
    struct jinja_list *group = NULL;
    for (i64 i = 0; i < items->count; i++) {
        if (!group || group->count == size) {
            group = jinja_sequence(run, JINJA_LIST, 0).list;
            jinja_push(run, out, jinja_of_list(group, JINJA_LIST));
        }
        jinja_push(run, group, items->items[i]);
    }
    while (group && fill && group->count < size) {
        jinja_charge(run, 1);
        jinja_push(run, group, call->at[1]);
    }
    return out;
}

static bool next_batch(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    return next_made(out, run, iterator, make_batches);
}

static struct jinja_value batch(struct jinja_run *run, const struct jinja_call *call)
{
    return lazily(run, call, next_batch);
}

/* Parameters: slices fill_with. */
static struct jinja_list *make_slices(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *items = jinja_collect(run, call->subject), *out = jinja_sequence(run, JINJA_LIST, 0).list;
    i64 slices = jinja_want_integer(run, call, 0, 0), at = 0;
    bool fill = jinja_given(call, 1) && call->at[1].kind != JINJA_NONE;
    if (slices == 0)
        jinja_fail(run, "integer division or modulo by zero");
    for (i64 s = 0; s < slices; s++) {
        struct jinja_list *part = jinja_sequence(run, JINJA_LIST, 0).list;
        bool longer = s < items->count % slices;
        jinja_charge(run, 1);
        for (i64 i = 0; i < items->count / slices + longer; i++)
            jinja_push(run, part, items->items[at++]);
        if (fill && !longer)
            jinja_push(run, part, call->at[1]);
        jinja_push(run, out, jinja_of_list(part, JINJA_LIST));
    }
    return out;
}

static bool next_slice(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    return next_made(out, run, iterator, make_slices);
}

static struct jinja_value slice(struct jinja_run *run, const struct jinja_call *call)
{
    return lazily(run, call, next_slice);
}

/* ---- Joining, adding ---- */

/* Parameters: d attribute. */
static struct jinja_value join(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *items = jinja_collect(run, call->subject);
    struct jinja_value between = jinja_given(call, 0) ? jinja_str(run, call->at[0]) : jinja_words(run, "");
    struct jinja_builder out = {0};
    for (i64 i = 0; i < items->count; i++) {
        jinja_append(run, &out, between.text->bytes, i ? between.text->length : 0);
        jinja_show(run, &out, jinja_path(run, items->items[i], call->at[1], JINJA_MISSING_VALUE));
    }
    return jinja_built(run, &out);
}

/* Parameters: attribute start. */
static struct jinja_value sum(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *items = jinja_collect(run, call->subject);
    struct jinja_value total = jinja_given(call, 1) ? call->at[1] : jinja_integer(0);
    if (total.kind == JINJA_TEXT)
        jinja_fail(run, "sum() can't sum strings [use ''.join(seq) instead]");
    for (i64 i = 0; i < items->count; i++)
        total = jinja_binary(run, "+", total, jinja_path(run, items->items[i], call->at[0], JINJA_MISSING_VALUE));
    return total;
}

/* ---- map, select and their relatives ---- */

/* The next item of the subject. Its truth is asked first, as Jinja does. */
static bool next_of_subject(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    if (!iterator->inner) {
        struct jinja_value subject = iterator->call->subject;
        if (!jinja_truth(run, subject))
            return false;
        iterator->inner = jinja_iterate(run, subject);
    }
    return iterator->inner->next(out, run, iterator->inner);
}

static const struct jinja_function *named_function(struct jinja_run *run, struct jinja_value name, const char *what,
                                                   const struct jinja_function *(*find)(const char *name))
{
    char words[32] = {0};
    if (name.kind == JINJA_TEXT && name.text->length < (i64)sizeof words)
        memcpy(words, name.text->bytes, (size_t)name.text->length);
    const struct jinja_function *function = find(words);
    if (!function)
        jinja_fail(run, "No %s named %s.", what, jinja_repr_text(run, name));
    return function;
}

static struct jinja_arguments rest_of(const struct jinja_arguments *given, i64 from)
{
    struct jinja_arguments rest = *given;
    rest.values += from;
    rest.count -= from;
    return rest;
}

/* The named argument, or MISSING. */
static struct jinja_value named(const struct jinja_call *call, const char *name)
{
    for (i64 i = 0; i < call->given.named_count; i++)
        if (jinja_is(call->given.names[i], name))
            return call->given.named[i];
    return JINJA_MISSING_VALUE;
}

static bool next_mapped(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    const struct jinja_call *call = iterator->call;
    struct jinja_value item, path = named(call, "attribute"), otherwise = named(call, "default");
    if (!next_of_subject(&item, run, iterator))
        return false;
    if (call->given.count == 0 && path.kind != JINJA_MISSING) {
        if (call->given.named_count > 1 + (otherwise.kind != JINJA_MISSING))
            jinja_fail(run, "map: expected the arguments attribute and default");
        *out = jinja_path(run, item, path, otherwise);
        return true;
    }
    if (call->given.count == 0)
        jinja_fail(run, "map requires a filter argument");
    struct jinja_arguments rest = rest_of(&call->given, 1);
    *out = jinja_invoke(run, named_function(run, call->given.values[0], "filter", jinja_filter), item, &rest);
    return true;
}

/* True if the item, or its attribute, passes the test that the arguments name, or is true. */
static bool passes(struct jinja_run *run, const struct jinja_call *call, struct jinja_value item, bool attribute)
{
    i64 place = attribute;
    if (attribute && call->given.count == 0)
        jinja_fail(run, "%s: Missing parameter for attribute name", call->function->name);
    if (attribute)
        item = jinja_path(run, item, call->given.values[0], JINJA_MISSING_VALUE);
    if (call->given.count <= place)
        return jinja_truth(run, item);
    struct jinja_arguments rest = rest_of(&call->given, place + 1);
    return jinja_apply_test(run, named_function(run, call->given.values[place], "test", jinja_test), item, &rest);
}

static bool next_selected(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    const char *name = iterator->call->function->name;
    bool attribute = strstr(name, "attr"), wanted = *name == 's';
    while (next_of_subject(out, run, iterator))
        if (passes(run, iterator->call, *out, attribute) == wanted)
            return true;
    return false;
}

static struct jinja_value map(struct jinja_run *run, const struct jinja_call *call)
{
    return lazily(run, call, next_mapped);
}

static struct jinja_value select_filter(struct jinja_run *run, const struct jinja_call *call)
{
    return lazily(run, call, next_selected);
}

/* ---- Others ---- */

static struct jinja_value attr(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value name = {JINJA_TEXT, {.text = jinja_want_text(run, call, 0)}};
    struct jinja_value found = jinja_own_attribute(run, call->subject, name);
    return found.kind == JINJA_MISSING ? jinja_undefined_member(run, call->subject, name) : found;
}

/* Parameters: default_value boolean. */
static struct jinja_value default_filter(struct jinja_run *run, const struct jinja_call *call)
{
    bool absent = call->subject.kind == JINJA_UNDEFINED ||
                  (jinja_want_bool(run, call, 1, false) && !jinja_truth(run, call->subject));
    if (!absent)
        return call->subject;
    return jinja_given(call, 0) ? call->at[0] : jinja_words(run, "");
}

const struct jinja_function JINJA_LIST_FILTERS[] = {
    {"attr", "name", 1, attr},
    {"batch", "linecount fill_with", 1, batch},
    {"count", "", 0, length},
    {"d", "default_value boolean", 0, default_filter},
    {"default", "default_value boolean", 0, default_filter},
    {"dictsort", "case_sensitive by reverse", 0, dictsort},
    {"first", "", 0, first},
    {"groupby", "attribute default case_sensitive", 1, groupby},
    {"items", "", 0, items_filter},
    {"join", "d attribute", 0, join},
    {"last", "", 0, last},
    {"length", "", 0, length},
    {"list", "", 0, list},
    {"map", NULL, 0, map},
    {"max", "case_sensitive attribute", 0, max},
    {"min", "case_sensitive attribute", 0, min},
    {"random", NULL, 0, NULL},
    {"reject", NULL, 0, select_filter},
    {"rejectattr", NULL, 0, select_filter},
    {"reverse", "", 0, reverse},
    {"select", NULL, 0, select_filter},
    {"selectattr", NULL, 0, select_filter},
    {"slice", "slices fill_with", 1, slice},
    {"sort", "reverse case_sensitive attribute", 0, sort},
    {"sum", "attribute start", 0, sum},
    {"unique", "case_sensitive attribute", 0, unique},
    {0},
};

const struct jinja_function *jinja_filter(const char *name)
{
    static const struct jinja_function *const tables[] = {JINJA_TEXT_FILTERS, JINJA_LIST_FILTERS, JINJA_NUMBER_FILTERS};
    for (i64 i = 0; i < COUNT_OF(tables); i++) {
        const struct jinja_function *found = jinja_row(tables[i], name);
        if (found)
            return found;
    }
    return NULL;
}
