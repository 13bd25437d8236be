/* The files of a partition of a ring: closed shards, one folder each. */
#include "core/json.h"
#include "data/stream/stream.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char end_file[] = "end.json", shard_file[] = "00000.shard", being_put[] = ".put";

char *ring_shard_path(const char *directory, i64 number)
{
    return string_format("%s/%08lld", directory, (long long)number);
}

bool ring_has(const char *directory, i64 number)
{
    char *path = ring_shard_path(directory, number);
    bool found = file_exists(path);
    memory_free(path);
    return found;
}

i64 ring_end(const char *directory)
{
    char *path = path_join(directory, end_file);
    struct json *j = file_exists(path) ? json_load(path) : NULL;
    i64 shards = json_integer(json_get(j, "shards"), -1);
    json_free(j);
    memory_free(path);
    return shards;
}

int ring_set_end(const char *directory, i64 shards)
{
    char *path = path_join(directory, end_file);
    struct json *j = json_object();
    json_set(j, "shards", json_of_integer(shards));
    int status = json_save(path, j);
    json_free(j);
    memory_free(path);
    return status;
}

i64 ring_first_missing(const char *directory, i64 first)
{
    while (ring_has(directory, first))
        first++;
    return first;
}

/* The index is written before the shard is moved in. A .put folder with both is complete and only
 * needs its final name. */
int ring_put(const char *directory, i64 number, const char *shard, const struct buffer *index)
{
    char *path = ring_shard_path(directory, number), *temporary = string_format("%s%s", path, being_put);
    char *index_path = path_join(temporary, "index"), *file = path_join(temporary, shard_file);
    int status = directory_remove(temporary) < 0 || directory_make(temporary) < 0 ? -1 : 0;
    if (status == 0)
        status = file_replace(index_path, index->data, index->length);
    if (status == 0 && rename(shard, file))
        status = error_errno("%s: cannot be moved to %s", shard, file);
    if (status == 0)
        status = directory_replace(temporary, path);
    memory_free(index_path);
    memory_free(file);
    memory_free(temporary);
    memory_free(path);
    return status;
}

/* ---- Several readers ---- */

static char *reader_path(const char *directory, i64 reader)
{
    return string_format("%s/reader-%lld", directory, (long long)reader);
}

int ring_put_reader(const char *directory, i64 reader, i64 number)
{
    char *path = reader_path(directory, reader), *said = string_format("%lld\n", (long long)number);
    int status = file_replace(path, said, (i64)strlen(said));
    memory_free(path);
    memory_free(said);
    return status;
}

/* The stored position of a reader; -1: unknown. */
static i64 reader_at(const char *directory, i64 reader)
{
    struct buffer said = {0};
    char *path = reader_path(directory, reader), *end = NULL;
    i64 number = -1;
    if (file_exists(path) && file_read(&said, path) == 0) {
        number = strtoll(said.data, &end, 10);
        number = end == said.data || *end != '\n' ? -1 : number;
    }
    buffer_release(&said);
    memory_free(path);
    return number;
}

i64 ring_slowest(bool *all, const char *directory, i64 count)
{
    i64 slowest = -1;
    *all = true;
    for (i64 i = 0; i < count; i++) {
        i64 number = reader_at(directory, i);
        *all &= number >= 0;
        if (number >= 0 && (slowest < 0 || number < slowest))
            slowest = number;
    }
    return slowest;
}

/* ---- Removal ---- */

/* The shard number in a folder's name; -1: not a shard. */
static i64 number_of(const char *name)
{
    char *end;
    if (!isdigit((u8)*name))
        return -1;
    i64 number = strtoll(name, &end, 10);
    return *end == 0 || strcmp(end, being_put) == 0 ? number : -1;
}

static int finish_shard(const char *directory, const char *name)
{
    char *path = path_join(directory, name), *file = path_join(path, shard_file);
    char *whole = ring_shard_path(directory, number_of(name));
    int status = file_exists(file) ? directory_replace(path, whole) : directory_remove(path);
    memory_free(path);
    memory_free(file);
    memory_free(whole);
    return status;
}

int ring_recover(const char *directory)
{
    char **names;
    i64 count;
    int status = directory_list(&names, &count, directory);
    if (status < 0)
        return -1;
    for (i64 i = 0; i < count && status == 0; i++)
        if (number_of(names[i]) >= 0 && strchr(names[i], '.'))
            status = finish_shard(directory, names[i]);
    string_list_free(names, count);
    return status;
}

int ring_remove_before(const char *directory, i64 number)
{
    char **names;
    i64 count;
    int status = directory_list(&names, &count, directory);
    if (status < 0)
        return -1;
    for (i64 i = 0; i < count && status == 0; i++) {
        i64 has = number_of(names[i]);
        if (has < 0 || has >= number || strchr(names[i], '.'))
            continue;
        char *path = path_join(directory, names[i]);
        status = directory_remove(path);
        memory_free(path);
    }
    string_list_free(names, count);
    return status;
}
