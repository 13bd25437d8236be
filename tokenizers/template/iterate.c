/* Iterating as Python does. What Jinja's filters give lazily is read once (JINJA_ITERATOR). */
#include "tokenizers/template/inside.h"

static bool next_point(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    const struct jinja_text *text = iterator->source.text;
    if (iterator->at >= text->length)
        return false;
    i64 bytes;
    jinja_charge(run, 1);
    jinja_point(text->bytes + iterator->at, text->length - iterator->at, &bytes);
    *out = jinja_text(run, text->bytes + iterator->at, bytes);
    iterator->at += bytes;
    return true;
}

static bool next_item(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    const struct jinja_list *list = iterator->source.list;
    jinja_charge(run, 1);
    if (iterator->at >= list->count)
        return false;
    *out = list->items[iterator->at++];
    return true;
}

static struct jinja_value entry_part(struct jinja_run *run, const struct jinja_entry *entry, enum jinja_part part)
{
    if (part == JINJA_ITEMS)
        return jinja_pair(run, entry->key, entry->value);
    return part == JINJA_KEYS ? entry->key : entry->value;
}

static bool next_entry(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    bool view = iterator->source.kind == JINJA_VIEW;
    const struct jinja_dict *dict = view ? iterator->source.view->dict : iterator->source.dict;
    jinja_charge(run, 1);
    if (iterator->at >= dict->count)
        return false;
    *out = entry_part(run, &dict->entries[iterator->at++], view ? iterator->source.view->part : JINJA_KEYS);
    return true;
}

static bool next_whole(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    const struct jinja_range *range = iterator->source.range;
    jinja_charge(run, 1);
    if (iterator->at >= range->count)
        return false;
    *out = jinja_integer(range->start + range->step * iterator->at++);
    return true;
}

static bool next_nothing(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    (void)out, (void)run, (void)iterator;
    return false;
}

/* A loop that is iterated itself goes on with its items, each with the loop. */
static bool next_of_loop(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator)
{
    (void)out, (void)iterator;
    jinja_fail(run, "the variable loop cannot be iterated");
}

static bool (*const nexts[])(struct jinja_value *out, struct jinja_run *run, struct jinja_iterator *iterator) = {
    [JINJA_UNDEFINED] = next_nothing, [JINJA_TEXT] = next_point,   [JINJA_LIST] = next_item,
    [JINJA_TUPLE] = next_item,        [JINJA_DICT] = next_entry,   [JINJA_VIEW] = next_entry,
    [JINJA_RANGE] = next_whole,       [JINJA_LOOP] = next_of_loop, [JINJA_JOINER] = NULL,
};

bool jinja_is_iterable(struct jinja_value value)
{
    return value.kind == JINJA_ITERATOR || nexts[value.kind];
}

struct jinja_iterator *jinja_iterate(struct jinja_run *run, struct jinja_value value)
{
    if (value.kind == JINJA_ITERATOR)
        return value.iterator;
    if (!nexts[value.kind])
        jinja_fail(run, "'%s' object is not iterable", jinja_type_name(value));
    struct jinja_iterator *iterator = jinja_alloc(run, sizeof *iterator);
    *iterator = (struct jinja_iterator){.next = nexts[value.kind], .source = value, .type_name = "iterator"};
    return iterator;
}

struct jinja_list *jinja_collect(struct jinja_run *run, struct jinja_value value)
{
    struct jinja_iterator *iterator = jinja_iterate(run, value);
    i64 count = value.kind != JINJA_ITERATOR && jinja_has_length(value) ? jinja_length(run, value) : 0;
    struct jinja_list *list = jinja_sequence(run, JINJA_LIST, count).list;
    list->count = 0;
    for (struct jinja_value each; iterator->next(&each, run, iterator);)
        jinja_push(run, list, each);
    return list;
}

struct jinja_value jinja_iterator_of(struct jinja_run *run, struct jinja_list *list, const char *type_name)
{
    struct jinja_iterator *iterator = jinja_alloc(run, sizeof *iterator);
    *iterator =
        (struct jinja_iterator){.next = next_item, .source = jinja_of_list(list, JINJA_LIST), .type_name = type_name};
    return (struct jinja_value){JINJA_ITERATOR, {.iterator = iterator}};
}
