/* weft inspect: a folder of shard folders, as `data` of a
 * training stage may name it. Shows totals and each folder. */
#include "survey/inspect.h"
#include "data/shards/shards.h"

#include <string.h>

static void add_number(struct json *to, const struct json *from, const char *name)
{
    if (json_get(from, name))
        json_set(to, name,
                 json_of_integer(json_integer(json_get(to, name), 0) + json_integer(json_get(from, name), 0)));
}

static struct json *row_of(struct json *table, const char *direction)
{
    for (i64 i = 0; i < json_count(table); i++)
        if (strcmp(json_string(json_get(json_at(table, i), "direction"), ""), direction) == 0)
            return json_at(table, i);
    struct json *row = json_object();
    json_set(row, "direction", json_of_string(direction));
    json_push(table, row);
    return row;
}

static void add_directions(struct json *to, const struct json *from)
{
    for (i64 i = 0; i < json_count(from); i++) {
        const struct json *row = json_at(from, i);
        struct json *sum = row_of(to, json_string(json_get(row, "direction"), ""));
        add_number(sum, row, "samples");
        add_number(sum, row, "positions");
        add_number(sum, row, "clips_with_sound");
    }
}

static void add_part(struct json *parts, const char *name, const struct json *part)
{
    if (!json_get(parts, name)) {
        json_set(parts, name, json_copy(part));
        return;
    }
    struct json *sum = json_get(parts, name);
    i64 longest = max_i64(json_integer(json_get(sum, "longest"), 0), json_integer(json_get(part, "longest"), 0));
    static const char *const names[] = {"samples", "positions", "shards", "bytes"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        add_number(sum, part, names[i]);
    json_set(sum, "longest", json_of_integer(longest));
    add_directions(json_get(sum, "directions"), json_get(part, "directions"));
}

static struct json *row_of_folder(const char *name, const struct json *folder)
{
    struct json *row = json_object();
    struct json_iterator it;
    i64 bytes = 0, shards = 0;
    json_set(row, "folder", json_of_string(name));
    for (bool more = json_first(&it, json_get(folder, "parts")); more;
         more = json_next(&it, json_get(folder, "parts"))) {
        json_set(row, it.key, json_of_integer(json_integer(json_get(it.value, "samples"), 0)));
        shards += json_integer(json_get(it.value, "shards"), 0);
        bytes += json_integer(json_get(it.value, "bytes"), 0);
    }
    json_set(row, "shards", json_of_integer(shards));
    json_set(row, "bytes", json_of_integer(bytes));
    return row;
}

/* Adds a folder; values that all folders share are listed once. */
static int add_folder(struct json *all, const char *path, const char *folder, bool verify)
{
    const char *below = folder + strlen(path);
    struct json *one = inspect_shards(folder, verify), *parts;
    struct json_iterator it;
    if (!one)
        return -1;
    for (bool more = json_first(&it, one); more; more = json_next(&it, one))
        if (!json_get(all, it.key) && strcmp(it.key, "parts") != 0)
            json_set(all, it.key, json_copy(it.value));
    if (!json_get(all, "parts"))
        json_set(all, "parts", json_object());
    parts = json_get(one, "parts");
    for (bool more = json_first(&it, parts); more; more = json_next(&it, parts))
        add_part(json_get(all, "parts"), it.key, it.value);
    json_push(json_get(all, "folders"), row_of_folder(below + strspn(below, "/"), one));
    json_free(one);
    return 0;
}

struct json *inspect_shard_folders(const char *path, bool verify)
{
    struct string_list list;
    struct json *all = json_object();
    int status = shard_folders_list(&list, path) < 0 || shard_folders_check(path) < 0 ? -1 : 0;
    json_set(all, "kind", json_of_string("folder of shard folders"));
    json_set(all, "folders", json_array());
    for (i64 i = 0; i < list.count && status == 0; i++)
        status = add_folder(all, path, list.values[i], verify);
    string_list_free(list.values, list.count);
    if (status == 0)
        return all;
    json_free(all);
    return NULL;
}
