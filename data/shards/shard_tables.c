#include "data/shards/shard_tables.h"

#include <string.h>

static const char *const names[SHARD_TABLES] = {"samples.part", "parts.part", "shards.part", "names.part"};
enum { SAMPLES, PARTS, SHARDS, NAMES };

int shard_tables_open(struct shard_tables *t, const char *directory, const i64 bytes[SHARD_TABLES])
{
    int status = 0;
    *t = (struct shard_tables){.directory = string_copy(directory)};
    for (i64 i = 0; i < SHARD_TABLES; i++)
        t->files[i].descriptor = -1;
    for (i64 i = 0; i < SHARD_TABLES && status == 0; i++) {
        char *path = path_join(directory, names[i]);
        status = append_open(&t->files[i], path, bytes ? bytes[i] : 0);
        memory_free(path);
    }
    if (status < 0)
        shard_tables_close(t);
    return status;
}

static void write_last_sample(struct shard_tables *t)
{
    if (t->waits)
        append_write(&t->files[SAMPLES], &t->last, sizeof t->last);
    t->waits = false;
}

void shard_tables_add(struct shard_tables *t, struct shard_sample sample, const char *name,
                      const struct shard_part *parts)
{
    bool named = t->files[NAMES].bytes < INT32_MAX; /* Beyond 2 GiB of names, samples share the first name. */
    write_last_sample(t);
    sample.first_part = (u64)t->files[PARTS].bytes / sizeof *parts;
    sample.name = named ? (u32)t->files[NAMES].bytes : 0;
    append_write(&t->files[PARTS], parts, sample.parts * (i64)sizeof *parts);
    if (named)
        append_write(&t->files[NAMES], name, (i64)strlen(name) + 1);
    t->last = sample;
    t->waits = true;
}

void shard_tables_resume(struct shard_tables *t)
{
    require(t->waits, "no sample that could go on");
    t->last.goes_on = 1;
}

void shard_tables_end_shard(struct shard_tables *t, u64 shard_bytes)
{
    append_write(&t->files[SHARDS], &shard_bytes, sizeof shard_bytes);
}

i64 shard_tables_shards(const struct shard_tables *t)
{
    return t->files[SHARDS].bytes / 8;
}

int shard_tables_sync(struct shard_tables *t, i64 bytes[SHARD_TABLES])
{
    write_last_sample(t);
    for (i64 i = 0; i < SHARD_TABLES; i++) {
        bytes[i] = t->files[i].bytes;
        if (append_sync(&t->files[i]) < 0)
            return -1;
    }
    return 0;
}

int shard_tables_map(struct file_view views[SHARD_TABLES], struct shard_tables *t)
{
    int status = 0;
    write_last_sample(t);
    for (i64 i = 0; i < SHARD_TABLES; i++)
        views[i] = (struct file_view){0};
    for (i64 i = 0; i < SHARD_TABLES && status == 0; i++)
        status = append_flush(&t->files[i]) < 0 ? -1 : file_map(&views[i], t->files[i].path);
    if (status < 0)
        shard_tables_unmap(views);
    return status;
}

void shard_tables_unmap(struct file_view views[SHARD_TABLES])
{
    for (i64 i = 0; i < SHARD_TABLES; i++)
        file_unmap(&views[i]);
}

struct index_header index_header_of(const struct shard_meta *meta, const struct file_view tables[SHARD_TABLES],
                                    i64 first_shard)
{
    struct index_header header = {.version = SHARD_VERSION,
                                  .shard_count = (u32)(tables[SHARDS].bytes / 8),
                                  .sample_count = (u64)tables[SAMPLES].bytes / sizeof(struct shard_sample),
                                  .part_count = (u64)tables[PARTS].bytes / sizeof(struct shard_part),
                                  .names_bytes = (u64)tables[NAMES].bytes,
                                  .meta_hash = shard_meta_hash(meta),
                                  .first_shard = (u64)first_shard};
    memcpy(header.magic, INDEX_MAGIC, 8);
    header.hash = hash_pieces(tables, SHARD_TABLES, hash_bytes(&header, sizeof header, 0));
    return header;
}

int shard_tables_write_index(struct shard_tables *t, const struct shard_meta *meta, i64 first_shard)
{
    struct file_view views[SHARD_TABLES];
    struct file_writer writer;
    char *path = path_join(t->directory, "index");
    int status = shard_tables_map(views, t);
    if (status == 0) {
        struct index_header header = index_header_of(meta, views, first_shard);
        status = file_writer_open(&writer, path);
        if (status == 0) {
            file_write(&writer, &header, sizeof header);
            for (i64 i = 0; i < SHARD_TABLES; i++)
                file_write(&writer, views[i].data, views[i].bytes);
            status = file_writer_commit(&writer);
        }
        shard_tables_unmap(views);
    }
    memory_free(path);
    return status;
}

void shard_tables_close(struct shard_tables *t)
{
    for (i64 i = 0; i < SHARD_TABLES; i++)
        append_abandon(&t->files[i]);
    memory_free(t->directory);
    *t = (struct shard_tables){0};
}

int shard_tables_remove(const char *directory)
{
    int status = 0;
    for (i64 i = 0; i < SHARD_TABLES && status == 0; i++) {
        char *path = path_join(directory, names[i]);
        status = directory_remove(path);
        memory_free(path);
    }
    return status;
}
