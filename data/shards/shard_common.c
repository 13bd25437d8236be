/* Counts held-out samples that also stand in the training part, from the hashes in the indexes: no
 * payload is read. */
#include "data/shards/shards.h"

#include <stdlib.h>

/* Hash of what a sample holds. Notes and names do not count. */
static u64 content_of(const struct shards *s, i64 index)
{
    struct shard_sample sample = shards_sample(s, index);
    const struct shard_part *parts = shards_part(s, (i64)sample.first_part);
    u64 hash = sample.direction;
    for (i64 i = 0; i < sample.parts; i++)
        if (parts[i].kind != PART_NOTE) {
            u64 one[] = {parts[i].kind, parts[i].condition, parts[i].shape, parts[i].frames, parts[i].hash};
            hash = hash_bytes(one, sizeof one, hash);
        }
    return hash;
}

static int by_hash(const void *a, const void *b)
{
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return (x > y) - (x < y);
}

static i64 find(const u64 *list, i64 count, u64 hash)
{
    i64 low = 0;
    for (i64 high = count; low < high;) {
        i64 middle = (low + high) / 2;
        if (list[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Opens the split; `none`: no folder of `data` has it. */
static int open_split(struct shards *s, const char *data, const char *split, bool *none)
{
    struct string_list folders = {0};
    int status = shard_folders_list(&folders, data);
    *none = status == 0;
    for (i64 i = 0; i < folders.count && *none; i++) {
        char *part = path_join(folders.values[i], split);
        *none = !file_is_directory(part);
        memory_free(part);
    }
    string_list_free(folders.values, folders.count);
    return status < 0 || *none ? status : shards_open(s, data, split);
}

int shards_in_common(struct shards_common *out, const char *train, const char *heldout, const char *split,
                     const bool directions[DIRECTIONS])
{
    struct shards held, trained;
    bool none;
    *out = (struct shards_common){0};
    int status = open_split(&held, heldout, split, &none);
    if (status < 0 || none)
        return status;
    u64 *list = memory_alloc(max_i64(1, held.sample_count) * 8);
    for (i64 i = 0; i < held.sample_count; i++)
        if (!directions || directions[shards_sample(&held, i).direction])
            list[out->heldout++] = content_of(&held, i);
    shards_close(&held);
    qsort(list, (size_t)out->heldout, sizeof *list, by_hash);
    bool *met = memory_alloc(max_i64(1, out->heldout));
    status = open_split(&trained, train, "train", &none);
    if (status == 0 && !none) {
        for (i64 i = 0; i < trained.sample_count && out->heldout; i++) {
            u64 hash = content_of(&trained, i);
            i64 at = find(list, out->heldout, hash);
            if (at < out->heldout && list[at] == hash)
                met[at] = true;
        }
        shards_close(&trained);
    }
    for (i64 i = 0; i < out->heldout; i++) { /* equal ones follow the first */
        if (i > 0 && list[i] == list[i - 1])
            met[i] = met[i - 1];
        out->common += met[i];
    }
    memory_free(met);
    memory_free(list);
    return status;
}
