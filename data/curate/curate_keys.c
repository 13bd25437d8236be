/* The file `keys` of a shard folder: the keys that identify its samples. */
#include "data/curate/curate.h"

const char *const curation_keys = "keys";

bool key_entry_next(struct key_entry *out, const u8 **keys, const struct file_view *file, i64 *at)
{
    i64 left = file->bytes - *at, size = (i64)sizeof *out;
    if (left < size)
        return false;
    memcpy(out, file->data + *at, sizeof *out);
    *keys = file->data + *at + size;
    if (left < size + 8 * out->keys)
        return false;
    *at += size + 8 * out->keys;
    return true;
}

static bool is_sound(const struct key_entry *e)
{
    int least = e->captioned, most = e->captioned + 1 + NEAR_BANDS;
    return e->split < SPLITS && e->captioned <= 1 && e->reserved == 0 && e->keys >= least && e->keys <= most;
}

static int check(const struct file_view *file, const char *path)
{
    struct key_entry entry;
    const u8 *keys;
    i64 at = 0, begin = 0;
    bool sound = true;
    while (sound && key_entry_next(&entry, &keys, file, &at)) {
        sound = is_sound(&entry);
        begin = sound ? at : begin;
    }
    if (sound && at == file->bytes)
        return 0;
    return error_set(
        "%s: byte %lld: invalid key entry: damaged, or written by an older version; prepare the shards again", path,
        (long long)begin);
}

int key_file_open(struct file_view *file, const char *folder)
{
    char *path = path_join(folder, curation_keys);
    *file = (struct file_view){0};
    int status = file_exists(path)
                     ? file_map(file, path)
                     : error_set("%s: what it holds is not known: expected shards that were prepared with "
                                 "filter.duplicates",
                                 folder);
    if (status == 0 && check(file, path) < 0) {
        file_unmap(file);
        status = -1;
    }
    memory_free(path);
    return status;
}
