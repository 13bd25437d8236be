/* Counts held-out samples that also stand in the training part, from the hashes in the indexes: no
 * payload is read. */
#include "data/shards/shards.h"

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

/* Adds the samples of a split, of the directions. A missing split has none. */
static int add_split(struct hash_list *list, const char *data, const char *split, const bool directions[DIRECTIONS])
{
    struct shards s;
    bool none;
    int status = open_split(&s, data, split, &none);
    if (status < 0 || none)
        return status;
    for (i64 i = 0; i < s.sample_count; i++)
        if (!directions || directions[shards_sample(&s, i).direction])
            hash_list_add(list, content_of(&s, i));
    shards_close(&s);
    return 0;
}

int shards_in_common(struct shards_common *out, const char *train, const char *heldout, const char *split,
                     const bool directions[DIRECTIONS])
{
    struct hash_list held = {0}, trained = {0};
    *out = (struct shards_common){0};
    int status = add_split(&held, heldout, split, directions);
    if (status == 0 && held.count)
        status = add_split(&trained, train, "train", NULL);
    out->heldout = held.count;
    out->common = hash_list_common(&held, &trained);
    hash_list_release(&held);
    hash_list_release(&trained);
    return status;
}
