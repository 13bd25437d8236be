#include "data/shard_form.h"

#include <string.h>

struct shard_writer {
    char *directory;
    struct shard_meta meta;
    i64 shard_bytes; /* a shard is closed once it has as many */
    struct file_writer file;
    bool open, failed; /* failed: the message stands in `problem` */
    char *problem;
    struct text samples, parts, sizes, names; /* growing tables */
};

static void fail(struct shard_writer *w)
{
    if (!w->failed)
        w->problem = string_copy(error_text());
    w->failed = true;
}

struct shard_writer *shard_writer_open(const char *directory, const struct shard_meta *meta, i64 shard_bytes)
{
    if (directory_make(directory) < 0)
        return NULL;
    struct shard_writer *w = memory_alloc(sizeof *w);
    w->directory = string_copy(directory);
    w->meta = *meta;
    w->shard_bytes = shard_bytes;
    return w;
}

static i64 shards_closed(const struct shard_writer *w)
{
    return w->sizes.length / 8;
}

static void begin_shard(struct shard_writer *w)
{
    struct shard_header header = {.version = SHARD_VERSION, .number = (u32)shards_closed(w)};
    memcpy(header.magic, SHARD_MAGIC, 8);
    char *path = shard_path(w->directory, shards_closed(w));
    if (file_writer_open(&w->file, path) < 0)
        fail(w);
    else
        w->open = true;
    if (w->open)
        file_write(&w->file, &header, sizeof header);
    memory_free(path);
}

static void end_shard(struct shard_writer *w)
{
    u64 bytes = (u64)w->file.written_bytes;
    w->open = false;
    if (file_writer_commit(&w->file) < 0)
        fail(w);
    text_append(&w->sizes, &bytes, 8);
}

void shard_write_payload(struct shard_writer *w, struct shard_part *part, const void *payload, i64 bytes)
{
    static const u8 zeros[SHARD_ALIGN];
    if (w->open && w->file.written_bytes >= w->shard_bytes)
        end_shard(w);
    if (!w->open && !w->failed)
        begin_shard(w);
    if (w->failed)
        return;
    part->shard = (u32)shards_closed(w);
    part->offset = (u64)w->file.written_bytes;
    part->bytes = (u64)bytes;
    part->hash = hash_bytes(payload, bytes, 0);
    file_write(&w->file, payload, bytes);
    file_write(&w->file, zeros, round_up(bytes, SHARD_ALIGN) - bytes);
}

void shard_write_sample(struct shard_writer *w, enum direction direction, const char *name,
                        const struct shard_part *parts, i64 count)
{
    require(count > 0 && count <= UINT16_MAX, "a sample of %lld parts", (long long)count);
    bool named = w->names.length < INT32_MAX; /* of the samples beyond two gigabytes of names the first name is given */
    struct shard_sample sample = {.first_part = (u64)w->parts.length / sizeof *parts,
                                  .parts = (u16)count,
                                  .direction = (u8)direction,
                                  .name = named ? (u32)w->names.length : 0};
    text_append(&w->samples, &sample, sizeof sample);
    text_append(&w->parts, parts, count * (i64)sizeof *parts);
    if (named)
        text_append(&w->names, name, (i64)strlen(name) + 1);
}

void shard_write_on(struct shard_writer *w)
{
    i64 size = (i64)sizeof(struct shard_sample);
    require(w->samples.length >= size, "no sample that could go on");
    ((struct shard_sample *)(w->samples.data + w->samples.length - size))->goes_on = 1;
}

static int write_index(struct shard_writer *w)
{
    struct index_header header = {.version = SHARD_VERSION,
                                  .shard_count = (u32)shards_closed(w),
                                  .sample_count = (u64)w->samples.length / sizeof(struct shard_sample),
                                  .part_count = (u64)w->parts.length / sizeof(struct shard_part),
                                  .names_bytes = (u64)w->names.length,
                                  .meta_hash = shard_meta_hash(&w->meta)};
    struct text all = {0};
    memcpy(header.magic, INDEX_MAGIC, 8);
    text_append(&all, &header, sizeof header);
    const struct text *tables[] = {&w->samples, &w->parts, &w->sizes, &w->names};
    for (i64 i = 0; i < COUNT_OF(tables); i++)
        text_append(&all, tables[i]->data, tables[i]->length);
    header.hash = index_hash(&header, all.data + sizeof header, all.length - (i64)sizeof header);
    memcpy(all.data, &header, sizeof header);
    char *path = path_join(w->directory, "index");
    int status = file_replace(path, all.data, all.length);
    memory_free(path);
    text_release(&all);
    return status;
}

static void release(struct shard_writer *w)
{
    text_release(&w->samples);
    text_release(&w->parts);
    text_release(&w->sizes);
    text_release(&w->names);
    memory_free(w->problem);
    memory_free(w->directory);
    memory_free(w);
}

int shard_writer_close(struct shard_writer *w)
{
    if (w->open)
        end_shard(w);
    int status = w->failed ? error_set("%s", w->problem) : write_index(w);
    release(w);
    return status;
}

void shard_writer_abandon(struct shard_writer *w)
{
    if (!w)
        return;
    if (w->open)
        file_writer_abandon(&w->file);
    release(w);
}
