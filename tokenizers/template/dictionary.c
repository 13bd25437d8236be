/* Dicts: entries in the order of insertion, found by hash once there are more than a few. */
#include "tokenizers/template/inside.h"

#include <math.h>
#include <string.h>

enum { SCANNED_MOST = 8, ENTRIES_MOST = 1 << 24 };

struct jinja_value jinja_dict(struct jinja_run *run)
{
    return (struct jinja_value){JINJA_DICT, {.dict = jinja_alloc(run, sizeof(struct jinja_dict))}};
}

static u64 hash_list(struct jinja_run *run, const struct jinja_list *list)
{
    u64 hash = 7;
    for (i64 i = 0; i < list->count; i++) {
        u64 item = jinja_hash(run, list->items[i]);
        hash = hash_bytes(&item, sizeof item, hash);
    }
    return hash;
}

/* Equal numbers have equal hashes, whatever their type. */
static u64 hash_number(struct jinja_value value)
{
    i64 whole = jinja_is_whole(value) ? jinja_whole(value) : 0;
    if (value.kind == JINJA_FLOAT) {
        if (value.real != floor(value.real) || fabs(value.real) >= 0x1p63)
            return hash_bytes(&value.real, sizeof value.real, 1);
        whole = (i64)value.real;
    }
    return hash_bytes(&whole, sizeof whole, 0);
}

u64 jinja_hash(struct jinja_run *run, struct jinja_value value)
{
    u64 hash;
    switch (value.kind) {
    case JINJA_TEXT:
        if (!value.text->hash) {
            jinja_charge(run, value.text->length >> 6);
            value.text->hash = hash_bytes(value.text->bytes, value.text->length, 0) | 1;
        }
        return value.text->hash;
    case JINJA_BOOL:
    case JINJA_INTEGER:
    case JINJA_FLOAT:
        return hash_number(value);
    case JINJA_NONE:
    case JINJA_UNDEFINED:
    case JINJA_MISSING:
        return (u64)value.kind;
    case JINJA_TUPLE:
        jinja_enter(run);
        hash = hash_list(run, value.list);
        jinja_leave(run, 1);
        return hash;
    case JINJA_RANGE:
    case JINJA_BOUND:
        return (u64)value.kind;
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_VIEW:
        jinja_fail(run, "unhashable type: '%s'", jinja_type_name(value));
    default:
        return hash_bytes(&value.text, sizeof value.text, 0);
    }
}

static struct jinja_entry *find(struct jinja_run *run, const struct jinja_dict *dict, struct jinja_value key, u64 hash)
{
    if (!dict->slots) {
        for (i64 i = 0; i < dict->count; i++)
            if (dict->entries[i].hash == hash && jinja_equal(run, dict->entries[i].key, key))
                return &dict->entries[i];
        return NULL;
    }
    u64 mask = (u64)dict->slot_count - 1;
    for (u64 slot = hash & mask; dict->slots[slot]; slot = (slot + 1) & mask) {
        struct jinja_entry *entry = &dict->entries[dict->slots[slot] - 1];
        jinja_charge(run, 1);
        if (entry->hash == hash && jinja_equal(run, entry->key, key))
            return entry;
    }
    return NULL;
}

struct jinja_value *jinja_find(struct jinja_run *run, const struct jinja_dict *dict, struct jinja_value key)
{
    struct jinja_entry *entry = find(run, dict, key, jinja_hash(run, key));
    return entry ? &entry->value : NULL;
}

static void place(struct jinja_dict *dict, i64 index)
{
    u64 mask = (u64)dict->slot_count - 1, slot = dict->entries[index].hash & mask;
    while (dict->slots[slot])
        slot = (slot + 1) & mask;
    dict->slots[slot] = (i32)index + 1;
}

static void grow(struct jinja_run *run, struct jinja_dict *dict)
{
    i64 capacity = max_i64(SCANNED_MOST, dict->capacity * 2), size = sizeof *dict->entries;
    if (capacity > ENTRIES_MOST)
        jinja_fail(run, "a dict has more than %d members", ENTRIES_MOST / 2);
    dict->entries = jinja_grow(run, dict->entries, dict->capacity * size, capacity * size);
    dict->capacity = capacity;
    if (capacity <= SCANNED_MOST)
        return;
    dict->slot_count = capacity * 2;
    dict->slots = jinja_alloc(run, dict->slot_count * (i64)sizeof *dict->slots);
    for (i64 i = 0; i < dict->count; i++)
        place(dict, i);
}

void jinja_put(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value)
{
    u64 hash = jinja_hash(run, key);
    struct jinja_entry *entry = find(run, dict, key, hash);
    if (entry) {
        entry->value = value;
        return;
    }
    if (dict->count == dict->capacity)
        grow(run, dict);
    dict->entries[dict->count++] = (struct jinja_entry){key, value, hash};
    if (dict->slots)
        place(dict, dict->count - 1);
}
