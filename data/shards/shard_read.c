#include "data/shards/shard_layout.h"

#include "core/inventory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of the index behind its header; -1 if the header's counts are implausible. */
static i64 rest_bytes(const struct index_header *h)
{
    const u64 most = (u64)1 << 40;
    if (h->sample_count > most || h->part_count > most || h->names_bytes > most)
        return -1;
    return (i64)(h->sample_count * sizeof(struct shard_sample) + h->part_count * sizeof(struct shard_part) +
                 h->shard_count * sizeof(u64) + h->names_bytes);
}

static int check_header(const struct shard_folder *f, u64 meta_hash, const char *path, const struct index_header *h)
{
    const u8 *rest = f->index.data + sizeof *h;
    if (memcmp(h->magic, INDEX_MAGIC, 8) != 0)
        return error_set("%s: byte 0: not the index of a shard folder", path);
    if (h->version != SHARD_VERSION)
        return error_set("%s: byte 8: version %u, this program reads version %d; prepare the shards again", path,
                         h->version, SHARD_VERSION);
    i64 expected = rest_bytes(h);
    if (expected < 0 || f->index.bytes != (i64)sizeof *h + expected)
        return error_set("%s: %lld %s, header says %lld: cut short or damaged; prepare the shards again", path,
                         (long long)f->index.bytes, plural(f->index.bytes, "byte", "bytes"),
                         expected < 0 ? -1 : (long long)(expected + (i64)sizeof *h));
    if (h->hash != index_hash(h, rest, expected))
        return error_set("%s: checksum mismatch at byte 48: damaged; prepare the shards again", path);
    if (h->meta_hash != meta_hash)
        return error_set("%s: its shards.json is not the one it was written with", path);
    return 0;
}

static void find_tables(struct shard_folder *f, const struct index_header *h)
{
    const u8 *at = f->index.data + sizeof *h;
    f->sample_count = (i64)h->sample_count;
    f->part_count = (i64)h->part_count;
    f->shard_count = h->shard_count;
    f->names_bytes = (i64)h->names_bytes;
    f->first_shard = (i64)h->first_shard;
    f->hash = h->hash;
    f->samples = (const struct shard_sample *)at;
    f->parts = (const struct shard_part *)(at + f->sample_count * (i64)sizeof *f->samples);
    f->sizes = (const u8 *)(f->parts + f->part_count);
    f->names = (const char *)f->sizes + f->shard_count * 8;
}

static int refuse_without_index(const char *part)
{
    const char *slash = strrchr(part, '/');
    char *above = string_format("%.*s", slash ? (int)(slash - part) : 1, slash ? part : ".");
    bool stream = shard_stream_is(above);
    memory_free(above);
    if (stream)
        return error_set(
            "%s: its shards are generated while a stage pretrain or sft reads them (stream.on), as a source "
            "of its own: name a folder with finished shards, or prepare without stream.on",
            part);
    return error_set("%s: no index: expected a split written by prepare", part);
}

static int read_index(struct shard_folder *f, u64 meta_hash)
{
    struct index_header header;
    char *path = path_join(f->directory, "index");
    int status = file_exists(path) ? file_map(&f->index, path) : refuse_without_index(f->directory);
    if (status == 0 && f->index.bytes < (i64)sizeof header)
        status = error_set("%s: %lld %s: too short for an index; prepare the shards again", path,
                           (long long)f->index.bytes, plural(f->index.bytes, "byte", "bytes"));
    if (status == 0) {
        memcpy(&header, f->index.data, sizeof header);
        status = check_header(f, meta_hash, path, &header);
    }
    if (status == 0)
        find_tables(f, &header);
    memory_free(path);
    return status;
}

static u64 size_of_shard(const struct shard_folder *f, i64 number)
{
    u64 bytes;
    memcpy(&bytes, f->sizes + 8 * number, 8);
    return bytes;
}

/* Checks that the shard exists with the expected size, without reading it. */
static int check_size(const struct shard_folder *f, i64 number)
{
    char *path = shard_path(f->directory, number);
    i64 bytes = file_bytes(path);
    int status = bytes < 0 ? -1 : 0;
    if (status == 0 && (u64)bytes != size_of_shard(f, number))
        status =
            error_set("%s: %lld %s where the index says %llu: cut short or replaced; prepare the shards again", path,
                      (long long)bytes, plural(bytes, "byte", "bytes"), (unsigned long long)size_of_shard(f, number));
    memory_free(path);
    return status;
}

static int map_shard(struct shard_folder *f, i64 number)
{
    struct file_view *view = &f->files[number];
    if (view->data)
        return 0;
    char *path = shard_path(f->directory, number);
    int status = check_size(f, number) < 0 || file_map(view, path) < 0 ? -1 : 0;
    const struct shard_header *h = (const struct shard_header *)view->data;
    if (status == 0 && (view->bytes < (i64)sizeof *h || memcmp(h->magic, SHARD_MAGIC, 8) != 0 ||
                        h->version != SHARD_VERSION || h->number != f->first_shard + number)) {
        status =
            error_set("%s: byte 0: not shard %lld of this folder, version %d", path, (long long)number, SHARD_VERSION);
        file_unmap(view);
    }
    memory_free(path);
    return status;
}

static int check_part(const struct shard_meta *meta, const struct shard_folder *f, i64 index)
{
    const struct shard_part *p = &f->parts[index];
    i64 expected = p->kind == PART_NOTE ? (i64)p->bytes : shard_payload_bytes(meta, p);
    if (p->kind > PART_VOICE || expected < 0 || (u64)expected != p->bytes)
        return error_set("%s/index: part %lld (kind %u, %llu %s) does not fit shards.json", f->directory,
                         (long long)index, p->kind, (unsigned long long)p->bytes,
                         plural((i64)p->bytes, "byte", "bytes"));
    u64 size = p->shard < f->shard_count ? size_of_shard(f, p->shard) : 0;
    if (p->shard >= f->shard_count || p->offset % SHARD_ALIGN || p->offset > size || p->bytes > size - p->offset)
        return error_set("%s/index: part %lld lies outside shard %u at byte %llu", f->directory, (long long)index,
                         p->shard, (unsigned long long)p->offset);
    return 0;
}

static int check_tables(const struct shard_meta *meta, const struct shard_folder *f)
{
    if (f->names_bytes && f->names[f->names_bytes - 1] != 0)
        return error_set("%s/index: its names have no end", f->directory);
    for (i64 i = 0; i < f->sample_count; i++) {
        const struct shard_sample *x = &f->samples[i];
        if (x->first_part > (u64)f->part_count || x->parts > (u64)f->part_count - x->first_part || x->parts == 0 ||
            x->direction >= DIRECTIONS || x->name >= f->names_bytes)
            return error_set("%s/index: sample %lld is damaged", f->directory, (long long)i);
    }
    for (i64 i = 0; i < f->part_count; i++)
        if (check_part(meta, f, i) < 0)
            return -1;
    return 0;
}

/* ---- Folders ---- */

/* Loads shards.json. The split's folder lies inside the folder that holds shards.json. */
static int read_meta(struct shards *s, const char *directory, const char *split)
{
    struct shard_meta meta;
    char *above = split ? string_copy(directory) : path_join(directory, "..");
    int status = shard_meta_load(&meta, above);
    char *difference = status == 0 && s->folder_count > 1 ? shard_meta_difference(&s->meta, &meta) : NULL;
    if (difference)
        status = error_set("%s and %s were made with other tokenizers (%s); prepare both with the same",
                           s->folders[0].directory, above, difference);
    s->meta = meta;
    memory_free(difference);
    memory_free(above);
    return status;
}

/* Refuses two folders with the same samples, such as copies of a split. */
static int check_new(const struct shards *s, const struct shard_folder *f)
{
    for (const struct shard_folder *other = s->folders; other < f; other++)
        if (other->hash == f->hash && f->sample_count > 0)
            return error_set("%s and %s hold the same samples: leave one out", other->directory, f->directory);
    return 0;
}

/* Adds the last folder's index to the totals and checks its tables. */
static int count_index(struct shards *s, struct shard_folder *f)
{
    f->files = memory_alloc(max_i64(1, f->shard_count) * (i64)sizeof *f->files);
    f->verified = memory_alloc(max_i64(1, f->part_count));
    for (i64 i = 0; i < f->shard_count; i++) {
        if (check_size(f, i) < 0)
            return -1;
        s->bytes += (i64)size_of_shard(f, i);
    }
    s->sample_count += f->sample_count;
    s->part_count += f->part_count;
    s->shard_count += f->shard_count;
    if (check_tables(&s->meta, f) < 0)
        return -1;
    shard_voices_list(f);
    return 0;
}

static struct shard_folder *begin_folder(struct shards *s, char *directory)
{
    struct shard_folder *f = &s->folders[s->folder_count++];
    *f = (struct shard_folder){.directory = directory, .first_sample = s->sample_count, .first_part = s->part_count};
    return f;
}

static int open_folder(struct shards *s, const char *directory, const char *split)
{
    struct shard_folder *f = begin_folder(s, split ? path_join(directory, split) : string_copy(directory));
    if (inventory_check(f->directory) < 0 || read_meta(s, directory, split) < 0 ||
        read_index(f, shard_meta_hash(&s->meta)) < 0 || check_new(s, f) < 0)
        return -1;
    return count_index(s, f);
}

int shards_open(struct shards *s, const char *data, const char *split)
{
    struct string_list list = {0};
    *s = (struct shards){0};
    if (split && shard_folders_list(&list, data) < 0)
        return -1;
    i64 count = split ? list.count : 1;
    int status = 0;
    s->folders = memory_alloc(count * (i64)sizeof *s->folders);
    for (i64 i = 0; i < count && status == 0; i++)
        status = open_folder(s, split ? list.values[i] : data, split);
    if (status < 0)
        shards_close(s);
    string_list_free(list.values, list.count);
    return status;
}

static void close_folder(struct shard_folder *f)
{
    for (i64 i = 0; f->files && i < f->shard_count; i++)
        file_unmap(&f->files[i]);
    file_unmap(&f->index);
    memory_free(f->files);
    memory_free(f->verified);
    memory_free(f->voices);
    memory_free(f->directory);
}

void shards_close(struct shards *s)
{
    for (i64 i = 0; i < s->folder_count; i++)
        close_folder(&s->folders[i]);
    memory_free(s->folders);
    *s = (struct shards){0};
}

int shards_open_none(struct shards *s, const char *directory)
{
    *s = (struct shards){0};
    return shard_meta_load(&s->meta, directory);
}

int shards_add(struct shards *s, const char *directory)
{
    i64 size = (i64)sizeof *s->folders;
    s->folders = memory_resize(s->folders, s->folder_count * size, (s->folder_count + 1) * size);
    struct shard_folder *f = begin_folder(s, string_copy(directory));
    return read_index(f, shard_meta_hash(&s->meta)) < 0 ? -1 : count_index(s, f);
}

void shards_drop(struct shards *s, i64 sample)
{
    i64 gone = 0;
    while (gone < s->folder_count && s->folders[gone].first_sample + s->folders[gone].sample_count <= sample)
        close_folder(&s->folders[gone++]);
    s->folder_count -= gone;
    if (gone)
        memmove(s->folders, s->folders + gone, (size_t)s->folder_count * sizeof *s->folders);
}

/* ---- Lookup ---- */

/* The last folder that begins at or before sample (of_part: part) `index`. */
static const struct shard_folder *find_folder(const struct shards *s, i64 index, bool of_part)
{
    i64 low = 0;
    for (i64 high = s->folder_count - 1; low < high;) {
        i64 middle = (low + high + 1) / 2;
        const struct shard_folder *f = &s->folders[middle];
        if ((of_part ? f->first_part : f->first_sample) <= index)
            low = middle;
        else
            high = middle - 1;
    }
    return &s->folders[low];
}

const struct shard_folder *shards_folder_of_sample(const struct shards *s, i64 sample)
{
    return find_folder(s, sample, false);
}

const struct shard_folder *shards_folder_of_part(const struct shards *s, i64 part)
{
    return find_folder(s, part, true);
}

struct shard_sample shards_sample(const struct shards *s, i64 sample)
{
    const struct shard_folder *f = shards_folder_of_sample(s, sample);
    struct shard_sample out = f->samples[sample - f->first_sample];
    out.first_part += (u64)f->first_part;
    return out;
}

const struct shard_part *shards_part(const struct shards *s, i64 part)
{
    const struct shard_folder *f = shards_folder_of_part(s, part);
    return &f->parts[part - f->first_part];
}

const char *shards_name(const struct shards *s, i64 sample)
{
    const struct shard_folder *f = shards_folder_of_sample(s, sample);
    return f->names + f->samples[sample - f->first_sample].name;
}

static const u8 *payload_of(struct shards *s, i64 part)
{
    struct shard_folder *f = &s->folders[shards_folder_of_part(s, part) - s->folders];
    const struct shard_part *p = &f->parts[part - f->first_part];
    return map_shard(f, p->shard) < 0 ? NULL : f->files[p->shard].data + p->offset;
}

const void *shards_payload(struct shards *s, i64 part)
{
    const struct shard_part *p = shards_part(s, part);
    const u8 *data = payload_of(s, part);
    struct shard_folder *f = &s->folders[shards_folder_of_part(s, part) - s->folders];
    u8 *verified = &f->verified[part - f->first_part];
    if (data && !*verified && hash_bytes(data, (i64)p->bytes, 0) != p->hash) {
        error_set("%s/%05u.shard: byte %llu: checksum mismatch over %llu %s: damaged; prepare the shards again",
                  shards_folder_of_part(s, part)->directory, p->shard, (unsigned long long)p->offset,
                  (unsigned long long)p->bytes, plural((i64)p->bytes, "byte", "bytes"));
        return NULL;
    }
    if (data)
        *verified = 1;
    return data;
}

bool shards_is_verified(const struct shards *s, i64 part)
{
    const struct shard_folder *f = shards_folder_of_part(s, part);
    return f->verified[part - f->first_part];
}

void shards_prefetch(struct shards *s, i64 part)
{
    const struct shard_part *p = shards_part(s, part);
    const u8 *payload = p->bytes ? payload_of(s, part) : NULL;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)payload, begin = data / page * page;
    if (payload)
        madvise((void *)begin, data + p->bytes - begin, MADV_WILLNEED);
}

int shards_verify(struct shards *s)
{
    for (i64 i = 0; i < s->part_count; i++)
        if (!shards_payload(s, i))
            return -1;
    return 0;
}
