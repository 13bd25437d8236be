/* What the command line overrode, kept in the folder of the run. Each stage replaces its own values
 * when it begins or was done before, so that a call of other stages does not drop them. */
#include "pipeline/pipeline.h"
#include "core/json.h"

#include <string.h>
#include <sys/file.h>

static struct json *load_kept(const struct recipe *r)
{
    char *path = path_join(r->root, "overrides.json");
    struct json *kept = file_exists(path) ? json_load(path) : NULL;
    if (json_kind(kept) != JSON_OBJECT) { /* damaged: the record is for messages alone */
        if (!kept && file_exists(path))
            log_warn("%s; it is written anew", error_text());
        json_free(kept);
        kept = json_object();
    }
    memory_free(path);
    return kept;
}

/* The stage of STAGE.key, and its key; NULL: a key of the head, or a stage that is not in the recipe. */
static const struct recipe_stage *stage_of(const struct recipe *r, const char *name, const char **key)
{
    size_t length = strcspn(name, ".");
    for (i64 i = 0; i < r->count && name[length]; i++)
        if (strlen(r->stages[i].name) == length && strncmp(r->stages[i].name, name, length) == 0) {
            *key = name + length + 1;
            return &r->stages[i];
        }
    return NULL;
}

struct json *recipe_value(const struct recipe *r, const char *name)
{
    const char *key = NULL;
    const struct recipe_stage *s = stage_of(r, name, &key);
    const struct json *at = s ? s->resolved : NULL;
    char *copy = string_copy(key ? key : ""), *rest = copy;
    for (const char *part; at && (part = strsep(&rest, "."));)
        at = json_get(at, part);
    memory_free(copy);
    return at ? json_copy(at) : NULL;
}

/* Present value of a key, copied; NULL: there is no such key. */
static struct json *value_of(const struct recipe *r, const char *name, const char *precision)
{
    const char *key = NULL;
    const struct recipe_stage *s = stage_of(r, name, &key);
    if (!s)
        return strcmp(name, "seed") == 0        ? json_of_integer((i64)r->seed)
               : strcmp(name, "precision") == 0 ? json_of_string(precision)
                                                : NULL;
    return recipe_value(r, name);
}

static bool json_equal(const struct json *a, const struct json *b)
{
    struct buffer left = {0}, right = {0};
    json_print(&left, a, 0);
    json_print(&right, b, 0);
    bool equal = left.length == right.length && memcmp(left.data, right.data, (size_t)left.length) == 0;
    buffer_release(&left);
    buffer_release(&right);
    return equal;
}

static void put_difference(struct buffer *out, const char *name, const struct json *was, const struct json *now)
{
    buffer_printf(out, "%s%s=", out->length ? ", " : "", name);
    json_print(out, was, 0);
    buffer_printf(out, " (now ");
    json_print(out, now, 0);
    buffer_printf(out, ")");
}

void overrides_compare(const struct recipe *r, const char *precision)
{
    struct json *kept = load_kept(r);
    struct buffer differ = {0};
    struct json_iterator it;
    for (bool more = json_first(&it, kept); more; more = json_next(&it, kept)) {
        const char *key;
        const struct recipe_stage *s = stage_of(r, it.key, &key);
        struct json *now = s && !s->selected ? NULL : value_of(r, it.key, precision);
        if (now && !json_equal(it.value, now))
            put_difference(&differ, it.key, it.value, now);
        json_free(now);
    }
    if (differ.length)
        log_info("%s: the last call had other settings on its command line: %s", r->root, differ.data);
    buffer_release(&differ);
    json_free(kept);
}

/* Adds the keys of `given` with their present values. */
static void add_values(struct json *out, const struct recipe *r, const struct json *given, const char *stage,
                       const char *precision)
{
    struct json_iterator it;
    for (bool more = json_first(&it, given); more; more = json_next(&it, given)) {
        char *name = stage ? string_format("%s.%s", stage, it.key) : string_copy(it.key);
        struct json *value = value_of(r, name, precision);
        if (value)
            json_set(out, name, value);
        memory_free(name);
    }
}

int overrides_keep(const struct recipe *r, const struct recipe_stage *stage, const char *precision, int folder)
{
    flock(folder, LOCK_EX); /* another process may run other stages */
    struct json *kept = load_kept(r), *next = json_object();
    struct json_iterator it;
    for (bool more = json_first(&it, kept); more; more = json_next(&it, kept)) {
        const char *key;
        const struct recipe_stage *s = stage_of(r, it.key, &key);
        if (s && s != stage)
            json_set(next, it.key, json_copy(it.value));
    }
    add_values(next, r, r->overrides, NULL, precision);
    add_values(next, r, stage->overrides, stage->name, precision);
    char *path = path_join(r->root, "overrides.json");
    int status = json_equal(kept, next) ? 0 : json_save_sealed(path, next);
    flock(folder, LOCK_UN);
    json_free(kept);
    json_free(next);
    memory_free(path);
    return status;
}
