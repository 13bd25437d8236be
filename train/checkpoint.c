#include "train/train.h"

#include "dist/dist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char optimizer_name[] = "optimizer", maker_file[] = "weft/stage.json";

/* Masters, moments and the model for other readers: nearly all of a checkpoint. */
i64 checkpoint_bytes(i64 parameters, enum dtype dtype)
{
    return parameters * (12 + dtype_bytes(dtype));
}

char *checkpoint_path(const char *directory, i64 step)
{
    return string_format("%s/step-%06lld", directory, (long long)step);
}

static char *file_of(const char *folder, const char *name)
{
    return string_format("%s/weft/%s.safetensors", folder, name);
}

/* Masters and moments of a table. folder NULL: only sends this rank's parts. */
static int save_table(const char *folder, const char *name, const struct weights *weights, const struct parallel *ranks)
{
    struct weight_list list;
    struct weights_reader reader = zero_reader(weights, ranks);
    char *path = folder ? file_of(folder, name) : NULL;
    weights_list_optimizer(&list, weights, ranks && ranks->world->size > 1 ? &reader : NULL);
    int status = safetensors_save(path, list.tensors, list.count, NULL);
    weight_list_release(&list);
    memory_free(path);
    return status;
}

static int save_tables(const char *folder, const struct checkpoint_parts *parts)
{
    int status = save_table(folder, optimizer_name, parts->weights, parts->ranks);
    for (i64 i = 0; i < parts->more_count && status == 0; i++)
        status = save_table(folder, parts->more[i].name, parts->more[i].weights, parts->ranks);
    return status;
}

/* Adds size and checksum of every file below `folder`, by path, except the state file itself. */
static int add_inventory(struct json *inventory, const char *folder, const char *below)
{
    char **names, *path = *below ? path_join(folder, below) : string_copy(folder);
    i64 count;
    int status = directory_list(&names, &count, path);
    for (i64 i = 0; status == 0 && i < count; i++) {
        char *relative = *below ? path_join(below, names[i]) : string_copy(names[i]);
        char *full = path_join(folder, relative);
        u64 hash;
        i64 bytes;
        if (file_is_directory(full)) {
            status = add_inventory(inventory, folder, relative);
        } else if (strcmp(relative, "weft/state.json") != 0 && (status = hash_file(&hash, &bytes, full)) == 0) {
            struct json *entry = json_object();
            char digest[20];
            snprintf(digest, sizeof digest, "%016llx", (unsigned long long)hash);
            json_set(entry, "bytes", json_of_integer(bytes));
            json_set(entry, "xxh3", json_of_string(digest));
            json_set(inventory, relative, entry);
        }
        memory_free(full);
        memory_free(relative);
    }
    if (status == 0)
        string_list_free(names, count);
    memory_free(path);
    return status;
}

/* Digest of the state file's step, state and inventory as printed. */
static void state_digest(char out[20], const struct json *j)
{
    static const char *const keys[] = {"step", "state", "files"};
    struct buffer printed = {0};
    for (i64 i = 0; i < COUNT_OF(keys); i++)
        if (json_get(j, keys[i]))
            json_print(&printed, json_get(j, keys[i]), 0);
    snprintf(out, 20, "%016llx", (unsigned long long)hash_bytes(printed.data, printed.length, 0));
    buffer_release(&printed);
}

static int save_state(const char *folder, i64 step, const struct json *state)
{
    struct json *j = json_object(), *inventory = json_object();
    char digest[20], *path = string_format("%s/weft/state.json", folder);
    int status = add_inventory(inventory, folder, "");
    json_set(j, "format", json_of_integer(2));
    json_set(j, "step", json_of_integer(step));
    json_set(j, "state", state ? json_copy(state) : json_object());
    json_set(j, "files", inventory);
    state_digest(digest, j);
    json_set(j, "xxh3", json_of_string(digest));
    if (status == 0)
        status = json_save(path, j);
    json_free(j);
    memory_free(path);
    return status;
}

/* Not part of the state, which is the same if another stage goes the same way. */
static int save_maker(const char *folder, const struct json *made_by)
{
    char *path = path_join(folder, maker_file);
    int status = json_save_sealed(path, made_by);
    memory_free(path);
    return status;
}

/* Does not create the stage's folder again if somebody removed it. */
static char *make_step_folder(const char *directory, const char *path)
{
    return directory_make_one(directory) ? NULL : directory_make_temporary(path);
}

int checkpoint_save(const char *directory, i64 step, const struct checkpoint_parts *parts, const struct json *state)
{
    if (!directory)
        return (parts->save && parts->save(parts->context, NULL)) || save_tables(NULL, parts) ? -1 : 0;
    char *path = checkpoint_path(directory, step), *temporary = make_step_folder(directory, path);
    char *weft = temporary ? path_join(temporary, "weft") : NULL;
    int status = weft ? directory_make(weft) : -1;
    if (status == 0 && parts->save)
        status = parts->save(parts->context, temporary);
    if (status == 0)
        status = save_tables(temporary, parts);
    if (status == 0)
        status = save_state(temporary, step, state);
    if (status == 0 && parts->made_by)
        status = save_maker(temporary, parts->made_by);
    if (status == 0)
        status = directory_replace(temporary, path);
    if (status) {
        char *message = string_copy(error_text());
        if (temporary)
            directory_remove(temporary);
        error_set("cannot save the checkpoint of step %lld: %s", (long long)step, message);
        memory_free(message);
    }
    memory_free(path);
    memory_free(temporary);
    memory_free(weft);
    return status;
}

static int verify_file(const char *folder, const char *name, const struct json *entry)
{
    u64 hash;
    i64 bytes;
    char digest[20], *path = path_join(folder, name);
    int status = hash_file(&hash, &bytes, path);
    if (status == 0) {
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)hash);
        if (bytes != json_integer(json_get(entry, "bytes"), -1))
            status = error_set("%s: %lld %s, expected %lld: the file was cut short or changed", path, (long long)bytes,
                               plural(bytes, "byte", "bytes"), (long long)json_integer(json_get(entry, "bytes"), -1));
        else if (strcmp(digest, json_string(json_get(entry, "xxh3"), "")) != 0)
            status = error_set("%s: the checksum differs: the file was damaged or changed", path);
    }
    memory_free(path);
    return status;
}

/* Returns the checkpoint's state file if every file of its inventory is unchanged;
 * else NULL and a message. */
static struct json *verify_folder(const char *folder)
{
    char *path = string_format("%s/weft/state.json", folder);
    struct json *j = json_load(path);
    struct json_iterator it;
    char digest[20];
    i64 step;
    int status = j ? json_need_integer(&step, j, "step", path) : -1;
    if (status == 0 && step < 0)
        status = error_set("%s: step %lld, expected at least 0", path, (long long)step);
    if (status == 0 && json_integer(json_get(j, "format"), 0) != 2)
        status = error_set("%s: format %lld, expected 2: it was written by another version", path,
                           (long long)json_integer(json_get(j, "format"), 0));
    if (status == 0)
        state_digest(digest, j);
    if (status == 0 && strcmp(digest, json_string(json_get(j, "xxh3"), "")) != 0)
        status = error_set("%s: the checksum differs: the file was damaged or changed", path);
    for (bool more = status == 0 && json_first(&it, json_get(j, "files")); more && status == 0;
         more = json_next(&it, json_get(j, "files")))
        status = verify_file(folder, it.key, it.value);
    memory_free(path);
    if (status) {
        json_free(j);
        return NULL;
    }
    return j;
}

int checkpoint_check(const char *step_folder)
{
    struct json *j = verify_folder(step_folder);
    json_free(j);
    return j ? 0 : -1;
}

static int descending(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x < y) - (x > y);
}

/* Steps of all checkpoints, newest first. Returns their number; -1 and a message if the folder cannot
 * be listed. */
static i64 list_steps(i64 **steps, const char *directory)
{
    char **names;
    i64 count, found = 0;
    *steps = NULL;
    if (access(directory, F_OK) < 0 && errno == ENOENT)
        return 0;
    if (directory_list(&names, &count, directory) < 0)
        return -1;
    *steps = memory_alloc(max_i64(count, 1) * 8);
    for (i64 i = 0; i < count; i++) {
        char *end;
        if (strncmp(names[i], "step-", 5) != 0)
            continue;
        (*steps)[found] = strtoll(names[i] + 5, &end, 10);
        found += *end == 0;
    }
    string_list_free(names, count);
    qsort(*steps, (size_t)found, 8, descending);
    return found;
}

static struct json *newest_valid(const char *directory, char **path)
{
    i64 *steps, count = list_steps(&steps, directory);
    struct json *j = NULL;
    *path = NULL;
    for (i64 i = 0; i < count && !j; i++) {
        memory_free(*path);
        *path = checkpoint_path(directory, steps[i]);
        j = verify_folder(*path);
        if (!j && i + 1 < count)
            log_warn("%s; falling back to the checkpoint before it", error_text());
    }
    if (count == 0)
        error_set("%s: no checkpoint there", directory);
    if (count > 0 && !j)
        error_set("%s; none of %lld %s intact: restore a copy, or remove %s to start again", error_text(),
                  (long long)count, plural(count, "checkpoint is", "checkpoints is"), directory);
    memory_free(steps);
    return j;
}

static int load_table(const char *folder, const char *name, struct weights *weights)
{
    struct safetensors set;
    char *path = file_of(folder, name);
    int status = safetensors_open(&set, path);
    if (status == 0) {
        status = weights_load_optimizer(weights, &set, path);
        safetensors_close(&set);
    }
    memory_free(path);
    return status;
}

static int load_tables(const char *folder, const struct checkpoint_parts *parts)
{
    int status = load_table(folder, optimizer_name, parts->weights);
    for (i64 i = 0; i < parts->more_count && status == 0; i++) {
        char *path = file_of(folder, parts->more[i].name);
        if (parts->may_lack && !file_exists(path))
            log_info("%s is not there: these weights begin anew", path);
        else
            status = load_table(folder, parts->more[i].name, parts->more[i].weights);
        memory_free(path);
    }
    return status;
}

i64 checkpoint_newest(const char *directory)
{
    i64 *steps, count = list_steps(&steps, directory), newest = count > 0 ? steps[0] : -1;
    memory_free(steps);
    return newest;
}

int checkpoint_resume(const char *directory, i64 *step, const struct checkpoint_parts *parts, struct json **state)
{
    char *path;
    i64 *steps, count = list_steps(&steps, directory);
    int status = 0;
    memory_free(steps);
    *step = -1;
    *state = NULL;
    if (count <= 0)
        return (int)count;
    struct json *j = newest_valid(directory, &path);
    if (!j || (parts->place && parts->place(parts->context, json_get(j, "state"))))
        status = -1;
    else
        status = load_tables(path, parts);
    if (status == 0) {
        *step = json_integer(json_get(j, "step"), -1);
        *state = json_copy(json_get(j, "state"));
    }
    json_free(j);
    memory_free(path);
    return status;
}

int checkpoint_verify(const char *directory, char **path)
{
    struct json *j = newest_valid(directory, path);
    bool whole = j != NULL;
    json_free(j);
    return whole ? 0 : -1;
}

struct json *checkpoint_oldest(const char *directory, i64 keep)
{
    i64 *steps, count = list_steps(&steps, directory);
    char *folder = count > 0 ? checkpoint_path(directory, steps[min_i64(count, keep) - 1]) : NULL;
    char *path = folder ? path_join(folder, "weft/state.json") : NULL;
    struct json *j = path && file_exists(path) ? json_load(path) : NULL;
    struct json *state = j ? json_copy(json_get(j, "state")) : NULL;
    json_free(j);
    memory_free(steps);
    memory_free(folder);
    memory_free(path);
    return state;
}

struct json *checkpoint_makers(const char *directory)
{
    i64 *steps, count = list_steps(&steps, directory);
    struct json *out = json_object();
    for (i64 i = 0; i < count; i++) {
        char *folder = checkpoint_path(directory, steps[i]), *path = path_join(folder, maker_file);
        struct json *j = file_exists(path) ? json_load(path) : NULL; /* a damaged one is passed over */
        if (j)
            json_set(out, folder, j);
        memory_free(path);
        memory_free(folder);
    }
    memory_free(steps);
    return out;
}

static int update_latest(const char *directory, i64 step)
{
    char name[64], *path = path_join(directory, "latest");
    snprintf(name, sizeof name, "step-%06lld\n", (long long)step);
    int status = file_replace(path, name, (i64)strlen(name));
    memory_free(path);
    return status;
}

int checkpoint_settle(const char *directory, i64 step, i64 keep, i64 best)
{
    i64 *steps, count = list_steps(&steps, directory);
    int status = count < 0 ? -1 : count ? update_latest(directory, step) : 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        char *path = checkpoint_path(directory, steps[i]);
        if (steps[i] <= step && keep-- <= 0 && steps[i] != best)
            status = directory_remove(path);
        memory_free(path);
    }
    memory_free(steps);
    return status;
}

int checkpoint_drop_after(const char *directory, i64 step)
{
    i64 *steps, count = list_steps(&steps, directory);
    int status = count < 0 ? -1 : count ? update_latest(directory, step) : 0;
    for (i64 i = 0; i < count && status == 0 && steps[i] > step; i++) {
        char *path = checkpoint_path(directory, steps[i]);
        status = directory_remove(path);
        memory_free(path);
    }
    memory_free(steps);
    return status;
}
