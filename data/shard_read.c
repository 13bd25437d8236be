#include "data/shard_layout.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of the index behind its header, or -1 if its counts cannot be. */
static i64 rest_bytes(const struct index_header *h)
{
    const u64 most = (u64)1 << 40;
    if (h->sample_count > most || h->part_count > most || h->names_bytes > most)
        return -1;
    return (i64)(h->sample_count * sizeof(struct shard_sample) + h->part_count * sizeof(struct shard_part) +
                 h->shard_count * sizeof(u64) + h->names_bytes);
}

static int check_header(const struct shards *s, const char *path, const struct index_header *h)
{
    const u8 *rest = s->index.data + sizeof *h;
    if (memcmp(h->magic, INDEX_MAGIC, 8) != 0)
        return error_set("%s: byte 0: not the index of a shard folder", path);
    if (h->version != SHARD_VERSION)
        return error_set("%s: byte 8: version %u, this program reads version %d; prepare the shards again", path,
                         h->version, SHARD_VERSION);
    i64 expected = rest_bytes(h);
    if (expected < 0 || s->index.bytes != (i64)sizeof *h + expected)
        return error_set("%s: %lld bytes where its header says %lld: cut short or damaged; prepare the shards again",
                         path, (long long)s->index.bytes, expected < 0 ? -1 : (long long)(expected + (i64)sizeof *h));
    if (h->hash != index_hash(h, rest, expected))
        return error_set("%s: the checksum at byte 48 does not fit: damaged; prepare the shards again", path);
    if (h->meta_hash != shard_meta_hash(&s->meta))
        return error_set("%s: made with another shards.json than the one beside it", path);
    return 0;
}

static void find_tables(struct shards *s, const struct index_header *h)
{
    const u8 *at = s->index.data + sizeof *h;
    s->sample_count = (i64)h->sample_count;
    s->part_count = (i64)h->part_count;
    s->shard_count = h->shard_count;
    s->names_bytes = (i64)h->names_bytes;
    s->samples = (const struct shard_sample *)at;
    s->parts = (const struct shard_part *)(at + s->sample_count * (i64)sizeof *s->samples);
    s->names = (const char *)(s->parts + s->part_count) + s->shard_count * 8;
}

static int read_index(struct shards *s)
{
    struct index_header header;
    char *path = path_join(s->directory, "index");
    int status = file_exists(path) ? file_map(&s->index, path)
                                   : error_set("%s: no index there: expected a part that prepare made", s->directory);
    if (status == 0 && s->index.bytes < (i64)sizeof header)
        status = error_set("%s: %lld bytes: too short for an index; prepare the shards again", path,
                           (long long)s->index.bytes);
    if (status == 0) {
        memcpy(&header, s->index.data, sizeof header);
        status = check_header(s, path, &header);
    }
    if (status == 0)
        find_tables(s, &header);
    memory_free(path);
    return status;
}

static int open_shard(struct shards *s, i64 number)
{
    struct file_view *view = &s->files[number];
    const struct shard_header *h;
    u64 bytes;
    memcpy(&bytes, (const u8 *)(s->parts + s->part_count) + 8 * number, 8);
    char *path = shard_path(s->directory, number);
    int status = file_map(view, path);
    h = (const struct shard_header *)view->data;
    if (status == 0 && (u64)view->bytes != bytes)
        status = error_set("%s: %lld bytes where the index says %llu: cut short or replaced; prepare the shards again",
                           path, (long long)view->bytes, (unsigned long long)bytes);
    else if (status == 0 && (view->bytes < (i64)sizeof *h || memcmp(h->magic, SHARD_MAGIC, 8) != 0 ||
                             h->version != SHARD_VERSION || h->number != number))
        status =
            error_set("%s: byte 0: not shard %lld of this folder, version %d", path, (long long)number, SHARD_VERSION);
    memory_free(path);
    return status;
}

static int check_part(const struct shards *s, i64 index)
{
    const struct shard_part *p = &s->parts[index];
    i64 expected = p->kind == PART_NOTE ? (i64)p->bytes : shard_payload_bytes(&s->meta, p);
    if (p->kind > PART_NOTE || expected < 0 || (u64)expected != p->bytes)
        return error_set("%s/index: part %lld (kind %u, %llu bytes) does not fit shards.json", s->directory,
                         (long long)index, p->kind, (unsigned long long)p->bytes);
    if (p->shard >= s->shard_count || p->offset % SHARD_ALIGN || p->offset > (u64)s->files[p->shard].bytes ||
        p->bytes > (u64)s->files[p->shard].bytes - p->offset)
        return error_set("%s/index: part %lld lies outside shard %u at byte %llu", s->directory, (long long)index,
                         p->shard, (unsigned long long)p->offset);
    return 0;
}

static int check_tables(const struct shards *s)
{
    if (s->names_bytes && s->names[s->names_bytes - 1] != 0)
        return error_set("%s/index: its names have no end", s->directory);
    for (i64 i = 0; i < s->sample_count; i++) {
        const struct shard_sample *x = &s->samples[i];
        if (x->first_part > (u64)s->part_count || x->parts > (u64)s->part_count - x->first_part || x->parts == 0 ||
            x->direction >= DIRECTIONS || x->name >= s->names_bytes)
            return error_set("%s/index: sample %lld is damaged", s->directory, (long long)i);
    }
    for (i64 i = 0; i < s->part_count; i++)
        if (check_part(s, i) < 0)
            return -1;
    return 0;
}

/* Shard folders stand inside the folder with shards.json. */
static int read_meta(struct shards *s, const char *directory, const char *part)
{
    char *above = part ? string_copy(directory) : path_join(directory, "..");
    int status = shard_meta_load(&s->meta, above);
    memory_free(above);
    return status;
}

int shards_open(struct shards *s, const char *directory, const char *part)
{
    *s = (struct shards){.directory = part ? path_join(directory, part) : string_copy(directory)};
    int status = read_meta(s, directory, part);
    if (status == 0)
        status = read_index(s);
    if (status == 0)
        s->files = memory_alloc(max_i64(1, s->shard_count) * (i64)sizeof *s->files);
    for (i64 i = 0; status == 0 && i < s->shard_count; i++)
        status = open_shard(s, i);
    if (status == 0)
        status = check_tables(s);
    if (status == 0)
        s->verified = memory_alloc(max_i64(1, s->part_count));
    else
        shards_close(s);
    return status;
}

void shards_close(struct shards *s)
{
    for (i64 i = 0; s->files && i < s->shard_count; i++)
        file_unmap(&s->files[i]);
    file_unmap(&s->index);
    memory_free(s->files);
    memory_free(s->verified);
    memory_free(s->directory);
    *s = (struct shards){0};
}

const void *shards_payload(struct shards *s, i64 part)
{
    const struct shard_part *p = &s->parts[part];
    const u8 *data = s->files[p->shard].data + p->offset;
    if (!s->verified[part] && hash_bytes(data, (i64)p->bytes, 0) != p->hash) {
        error_set(
            "%s/%05u.shard: byte %llu: the checksum of %llu bytes does not fit: damaged; prepare the shards again",
            s->directory, p->shard, (unsigned long long)p->offset, (unsigned long long)p->bytes);
        return NULL;
    }
    s->verified[part] = 1;
    return data;
}

void shards_prefetch(const struct shards *s, i64 part)
{
    const struct shard_part *p = &s->parts[part];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)s->files[p->shard].data + p->offset;
    uintptr_t begin = data / page * page;
    if (p->bytes)
        madvise((void *)begin, data + p->bytes - begin, MADV_WILLNEED);
}

int shards_verify(struct shards *s)
{
    for (i64 i = 0; i < s->part_count; i++)
        if (!shards_payload(s, i))
            return -1;
    return 0;
}
