#include "data/append.h"
#include "data/shard_layout.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const table_names[SHARD_TABLES] = {"samples.part", "parts.part", "shards.part", "names.part"};

struct shard_writer {
    char *directory;
    struct shard_meta meta;
    i64 shard_bytes; /* a shard is closed once it has as many */
    struct appender file;
    bool open, failed; /* failed: the message stands in `problem` */
    char *problem;
    struct text samples, parts, sizes, names; /* growing tables */
    struct appender tables[SHARD_TABLES];     /* their bytes up to the last mark */
    bool marked;
    i64 written;
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

/* 00000.shard.part */
static char *part_path(const struct shard_writer *w, i64 number)
{
    char *path = shard_path(w->directory, number), *part = string_format("%s.part", path);
    memory_free(path);
    return part;
}

static void begin_shard(struct shard_writer *w)
{
    struct shard_header header = {.version = SHARD_VERSION, .number = (u32)shards_closed(w)};
    memcpy(header.magic, SHARD_MAGIC, 8);
    char *path = part_path(w, shards_closed(w));
    if (append_open(&w->file, path, 0) < 0)
        fail(w);
    else
        w->open = true;
    if (w->open)
        append_write(&w->file, &header, sizeof header);
    memory_free(path);
}

static void end_shard(struct shard_writer *w)
{
    u64 bytes = (u64)w->file.bytes;
    char *path = shard_path(w->directory, shards_closed(w)), *part = part_path(w, shards_closed(w));
    w->open = false;
    if (append_close(&w->file) < 0 || (rename(part, path) && error_errno("%s: cannot be renamed", part)))
        fail(w);
    text_append(&w->sizes, &bytes, 8);
    memory_free(path);
    memory_free(part);
}

void shard_write_payload(struct shard_writer *w, struct shard_part *part, const void *payload, i64 bytes)
{
    static const u8 zeros[SHARD_ALIGN];
    if (w->open && w->file.bytes >= w->shard_bytes)
        end_shard(w);
    if (!w->open && !w->failed)
        begin_shard(w);
    if (w->failed)
        return;
    part->shard = (u32)shards_closed(w);
    part->offset = (u64)w->file.bytes;
    part->bytes = (u64)bytes;
    part->hash = hash_bytes(payload, bytes, 0);
    append_write(&w->file, payload, bytes);
    append_write(&w->file, zeros, round_up(bytes, SHARD_ALIGN) - bytes);
    w->written += bytes;
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
    for (i64 i = 0; w->marked && i < SHARD_TABLES; i++)
        append_abandon(&w->tables[i]);
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

/* What was marked stays, to go on from. */
void shard_writer_abandon(struct shard_writer *w)
{
    if (!w)
        return;
    if (w->open) {
        char *path = part_path(w, shards_closed(w));
        append_abandon(&w->file);
        if (!w->marked)
            unlink(path);
        memory_free(path);
    }
    release(w);
}

/* ---- going on ---- */

i64 shard_writer_bytes(const struct shard_writer *w)
{
    return w->written;
}

static struct text *table_of(struct shard_writer *w, i64 i)
{
    struct text *const tables[SHARD_TABLES] = {&w->samples, &w->parts, &w->sizes, &w->names};
    return tables[i];
}

static int open_tables(struct shard_writer *w, const struct shard_mark *mark)
{
    int status = 0;
    for (i64 i = 0; i < SHARD_TABLES && status == 0; i++) {
        char *path = path_join(w->directory, table_names[i]);
        status = append_open(&w->tables[i], path, mark->tables[i]);
        memory_free(path);
        for (i64 k = 0; status < 0 && k < i; k++)
            append_abandon(&w->tables[k]);
    }
    w->marked = status == 0;
    return status;
}

int shard_writer_mark(struct shard_writer *w, struct shard_mark *out)
{
    *out = (struct shard_mark){0};
    if (w->failed)
        return error_set("%s", w->problem);
    if (!w->marked && open_tables(w, out) < 0)
        return -1;
    out->shard = w->open ? w->file.bytes : 0;
    for (i64 i = 0; i < SHARD_TABLES; i++) {
        const struct text *table = table_of(w, i);
        i64 known = w->tables[i].bytes;
        out->tables[i] = table->length;
        if (table->length > known)
            append_write(&w->tables[i], table->data + known, table->length - known);
        if (append_sync(&w->tables[i]) < 0)
            return -1;
    }
    return w->open ? append_sync(&w->file) : 0;
}

static int load_tables(struct shard_writer *w, const struct shard_mark *mark)
{
    int status = open_tables(w, mark);
    for (i64 i = 0; i < SHARD_TABLES && status == 0; i++) {
        char *path = path_join(w->directory, table_names[i]);
        status = file_read(table_of(w, i), path);
        memory_free(path);
    }
    return status;
}

/* A machine that lost its power may have forgotten the new name of a shard, not what is in it. */
static int check_closed(const struct shard_writer *w)
{
    int status = 0;
    for (i64 number = 0; status == 0 && number < shards_closed(w); number++) {
        u64 bytes;
        char *path = shard_path(w->directory, number), *part = part_path(w, number);
        memcpy(&bytes, w->sizes.data + 8 * number, 8);
        if (!file_exists(path) && rename(part, path))
            status = error_errno("%s: cannot be renamed", part);
        if (status == 0 && file_bytes(path) != (i64)bytes)
            status = error_set("%s: not the %llu bytes that were written", path, (unsigned long long)bytes);
        memory_free(path);
        memory_free(part);
    }
    return status;
}

/* The shard that was open may have been ended since, and others begun. */
static int reopen_shard(struct shard_writer *w, i64 bytes)
{
    int status = 0;
    bool more = true;
    for (i64 number = shards_closed(w); status == 0 && more; number++) {
        char *path = shard_path(w->directory, number), *part = part_path(w, number);
        bool kept = bytes > 0 && number == shards_closed(w);
        more = kept || file_exists(path) || file_exists(part);
        if (kept && !file_exists(part) && rename(path, part))
            status = error_errno("%s: cannot be renamed", path);
        if (kept && status == 0)
            status = append_open(&w->file, part, bytes);
        w->open |= kept && status == 0;
        if (!kept && more)
            status = directory_remove(path) < 0 || directory_remove(part) < 0 ? -1 : 0;
        memory_free(path);
        memory_free(part);
    }
    return status;
}

struct shard_writer *shard_writer_resume(const char *directory, const struct shard_meta *meta, i64 shard_bytes,
                                         const struct shard_mark *mark)
{
    struct shard_writer *w = shard_writer_open(directory, meta, shard_bytes);
    if (w && (load_tables(w, mark) < 0 || check_closed(w) < 0 || reopen_shard(w, mark->shard) < 0)) {
        shard_writer_abandon(w);
        return NULL;
    }
    return w;
}

int shard_parts_remove(const char *directory)
{
    int status = 0;
    for (i64 i = 0; i < SHARD_TABLES && status == 0; i++) {
        char *path = path_join(directory, table_names[i]);
        status = directory_remove(path);
        memory_free(path);
    }
    return status;
}
