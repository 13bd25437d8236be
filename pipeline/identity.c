#include "pipeline/identity.h"

#include "pipeline/inputs.h"

#include <stdio.h>
#include <string.h>

void identity_hash(char out[20], const struct json *identity)
{
    struct buffer text = {0};
    json_print(&text, identity, 0);
    snprintf(out, 20, "%016llx", (unsigned long long)hash_bytes(text.data, text.length, 0));
    buffer_release(&text);
}

void json_differences(struct buffer *out, const struct json *a, const struct json *b, const char *path,
                      const char *where)
{
    struct buffer left = {0}, right = {0};
    struct json_iterator it;
    if (json_kind(a) == JSON_OBJECT && json_kind(b) == JSON_OBJECT) {
        for (bool more = json_first(&it, a); more; more = json_next(&it, a)) {
            char *below = *path ? string_format("%s.%s", path, it.key) : string_copy(it.key);
            json_differences(out, it.value, json_get(b, it.key), below, where);
            memory_free(below);
        }
        for (bool more = json_first(&it, b); more; more = json_next(&it, b))
            if (!json_get(a, it.key) && strcmp(it.key, "stage_seed") != 0)
                buffer_printf(out, "%s%s%s%s", out->length ? ", " : "", path, *path ? "." : "", it.key);
        return;
    }
    json_print(&left, a, 0);
    json_print(&right, b, 0);
    if (left.length != right.length || memcmp(left.data, right.data, (size_t)left.length) != 0)
        buffer_printf(out, "%s%s (%s, %s%s%s)", out->length ? ", " : "", path, right.data, where ? "" : "was ",
                      left.data, where ? where : "");
    buffer_release(&left);
    buffer_release(&right);
}

/* Adds defaults for settings that did not exist when `was` was written. */
static struct json *with_defaults(const struct json *was, const struct json *defaults)
{
    struct json *out = json_object();
    struct json_iterator it;
    for (bool more = json_first(&it, was); more; more = json_next(&it, was)) {
        const struct json *below = json_get(defaults, it.key);
        bool both = json_kind(it.value) == JSON_OBJECT && json_kind(below) == JSON_OBJECT;
        json_set(out, it.key, both ? with_defaults(it.value, below) : json_copy(it.value));
    }
    for (bool more = json_first(&it, defaults); more; more = json_next(&it, defaults))
        if (!json_get(was, it.key))
            json_set(out, it.key, json_copy(it.value));
    return out;
}

/* True if a value is, or names a part of, an input. */
static bool names_input(const char *value, const struct json *inputs)
{
    struct json_iterator it;
    for (bool more = json_first(&it, inputs); more; more = json_next(&it, inputs))
        if (strstr(value, it.key))
            return true;
    return false;
}

static struct json *without_inputs(const struct json *from, const struct json *inputs)
{
    struct json *out;
    struct json_iterator it;
    switch (json_kind(from)) {
    case JSON_STRING:
        return json_of_string(names_input(json_string(from, ""), inputs) ? "an input" : json_string(from, ""));
    case JSON_ARRAY:
        out = json_array();
        for (i64 i = 0; i < json_count(from); i++)
            json_push(out, without_inputs(json_at(from, i), inputs));
        return out;
    case JSON_OBJECT:
        out = json_object();
        for (bool more = json_first(&it, from); more; more = json_next(&it, from))
            json_set(out, it.key, without_inputs(it.value, inputs));
        return out;
    default:
        return json_copy(from);
    }
}

struct json *identity_maker(const struct json *identity)
{
    struct json *out = json_object();
    struct json_iterator it;
    for (bool more = json_first(&it, identity); more; more = json_next(&it, identity))
        if (strcmp(it.key, "inputs") != 0)
            json_set(out, it.key, without_inputs(it.value, json_get(identity, "inputs")));
    return out;
}

/* Settings that choose who computes what, as the layout does, and no sample: they may change while a stage trains. */
static const char *const free_settings[] = {"deal"};

/* Of `sites`: where they meet, and the file of their key. */
static const char *const free_of_sites[] = {"meet", "key"};

static bool is_free(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(free_settings); i++)
        if (strcmp(free_settings[i], name) == 0)
            return true;
    return false;
}

static struct json *without_free(const struct json *settings)
{
    struct json *out = json_object();
    struct json_iterator it;
    for (bool more = json_first(&it, settings); more; more = json_next(&it, settings))
        if (!is_free(it.key))
            json_set(out, it.key, json_copy(it.value));
    return out;
}

struct json *identity_digests(const struct json *identity)
{
    static const char *const seeds[] = {"seed", "stage_seed"};
    struct json *maker = identity_maker(identity), *recipe = json_object(), *seed = json_object();
    struct json *inputs = json_array(), *out = json_object(), *digests = json_get(identity, "inputs");
    struct json_iterator it;
    char hash[20];
    for (bool more = json_first(&it, maker); more; more = json_next(&it, maker)) {
        bool is_seed = strcmp(it.key, seeds[0]) == 0 || strcmp(it.key, seeds[1]) == 0;
        json_set(is_seed ? seed : recipe, it.key,
                 strcmp(it.key, "settings") == 0 ? without_free(it.value) : json_copy(it.value));
    }
    for (bool more = json_first(&it, digests); more; more = json_next(&it, digests))
        json_push(inputs, json_copy(it.value));
    const struct {
        const char *name;
        struct json *value;
    } parts[] = {{"recipe", recipe}, {"seed", seed}, {"inputs", inputs}};
    for (i64 i = 0; i < COUNT_OF(parts); i++) {
        identity_hash(hash, parts[i].value);
        json_set(out, parts[i].name, json_of_string(hash));
        json_free(parts[i].value);
    }
    json_free(maker);
    return out;
}

/* Replaces digests by an older rule (input_digest_before) by
 * the present ones where the input is unchanged. */
static void renew_inputs(struct json *known, const struct json *now, const char *run)
{
    struct json *before = json_get(known, "inputs");
    const struct json *inputs = json_get(now, "inputs");
    struct json_iterator it;
    for (bool more = json_first(&it, inputs); more; more = json_next(&it, inputs)) {
        const char *was = json_string(json_get(before, it.key), NULL), *is = json_string(it.value, "");
        if (!was || strcmp(was, is) == 0 || strncmp(is, INPUT_MARK, strlen(INPUT_MARK)) != 0)
            continue;
        bool same = false;
        for (int rule = INPUT_RULE + 1; rule < INPUT_RULES && !same; rule++) {
            char *digest = input_digest_before(it.key, run, (enum input_rule)rule);
            same = digest && strcmp(was, digest) == 0;
            memory_free(digest);
        }
        if (same)
            json_set(before, it.key, json_of_string(is));
    }
}

void identity_compare(struct buffer *out, const struct json *was, const struct json *now, const struct recipe_stage *s,
                      const char *run)
{
    struct json *defaults = json_object(), *known;
    json_set(defaults, "settings", settings_defaults(s->kind->table, (i64)s->kind->settings_bytes));
    known = with_defaults(was, defaults);
    settings_equate_retired(json_get(known, "settings"), json_get(now, "settings"), s->kind->table);
    for (i64 i = 0; i < COUNT_OF(free_settings); i++)
        if (json_get(json_get(now, "settings"), free_settings[i]))
            json_set(json_get(known, "settings"), free_settings[i],
                     json_copy(json_get(json_get(now, "settings"), free_settings[i])));
    for (i64 i = 0; i < COUNT_OF(free_of_sites); i++) {
        struct json *sites = json_get(json_get(known, "settings"), "sites");
        const struct json *value = json_get(json_get(json_get(now, "settings"), "sites"), free_of_sites[i]);
        if (sites && value)
            json_set(sites, free_of_sites[i], json_copy(value));
    }
    renew_inputs(known, now, run);
    json_differences(out, known, now, "", NULL);
    json_free(known);
    json_free(defaults);
}

bool identity_has_old_digest(const struct json *was, const struct json *now)
{
    const struct json *before = json_get(was, "inputs"), *inputs = json_get(now, "inputs");
    struct json_iterator it;
    for (bool more = json_first(&it, inputs); more; more = json_next(&it, inputs)) {
        const char *digest = json_string(json_get(before, it.key), INPUT_MARK);
        if (strncmp(json_string(it.value, ""), INPUT_MARK, strlen(INPUT_MARK)) == 0 &&
            strncmp(digest, INPUT_MARK, strlen(INPUT_MARK)) != 0)
            return true;
    }
    return false;
}
