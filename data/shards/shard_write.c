#include "data/shards/shard_tables.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct shard_writer {
    char *directory;
    struct shard_meta meta;
    i64 shard_bytes; /* a shard closes at the first break at or above this size */
    struct appender file;
    bool open, failed; /* failed: the message is in `problem` */
    char *problem;
    struct shard_tables tables;
    bool marked; /* a mark exists: keep the files for resume */
    i64 written;
};

static void fail(struct shard_writer *w)
{
    if (!w->failed)
        w->problem = string_copy(error_text());
    w->failed = true;
}

static struct shard_writer *open_writer(const char *directory, const struct shard_meta *meta, i64 shard_bytes,
                                        const i64 tables[SHARD_TABLES])
{
    struct shard_tables t;
    if (directory_make(directory) < 0 || shard_tables_open(&t, directory, tables) < 0)
        return NULL;
    struct shard_writer *w = memory_alloc(sizeof *w);
    *w = (struct shard_writer){
        .directory = string_copy(directory), .meta = *meta, .shard_bytes = shard_bytes, .tables = t};
    return w;
}

struct shard_writer *shard_writer_open(const char *directory, const struct shard_meta *meta, i64 shard_bytes)
{
    return open_writer(directory, meta, shard_bytes, NULL);
}

static i64 shards_closed(const struct shard_writer *w)
{
    return shard_tables_shards(&w->tables);
}

/* Path of an unfinished shard: 00000.shard.part. */
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
    shard_tables_end_shard(&w->tables, bytes);
    memory_free(path);
    memory_free(part);
}

void shard_write_payload(struct shard_writer *w, struct shard_part *part, const void *payload, i64 bytes)
{
    static const u8 zeros[SHARD_ALIGN];
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
    shard_tables_add(&w->tables, (struct shard_sample){.parts = (u16)count, .direction = (u8)direction}, name, parts);
}

void shard_write_resume(struct shard_writer *w)
{
    shard_tables_resume(&w->tables);
}

void shard_write_break(struct shard_writer *w)
{
    if (w->open && w->file.bytes >= w->shard_bytes)
        end_shard(w);
}

static void release(struct shard_writer *w)
{
    shard_tables_close(&w->tables);
    if (!w->marked && shard_tables_remove(w->directory) < 0)
        log_warn("%s", error_text());
    memory_free(w->problem);
    memory_free(w->directory);
    memory_free(w);
}

int shard_writer_close(struct shard_writer *w)
{
    if (w->open)
        end_shard(w);
    int status = w->failed ? error_set("%s", w->problem) : shard_tables_write_index(&w->tables, &w->meta, 0);
    release(w);
    return status;
}

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

/* ---- A single closed shard ---- */

i64 shard_writer_closed(const struct shard_writer *w)
{
    return shards_closed(w);
}

int shard_writer_end(struct shard_writer *w)
{
    if (w->open)
        end_shard(w);
    return w->failed ? error_set("%s", w->problem) : 0;
}

static const struct shard_sample *sample_at(const struct file_view tables[SHARD_TABLES], i64 i)
{
    return (const struct shard_sample *)tables[0].data + i;
}

/* Samples are sorted by shard; samples that share payloads are in one shard (shard_write_break). */
static i64 shard_of_sample(const struct file_view tables[SHARD_TABLES], i64 i)
{
    return ((const struct shard_part *)tables[1].data)[sample_at(tables, i)->first_part].shard;
}

static void rebase(struct buffer *samples, struct buffer *parts, i64 first_part, i64 first_name)
{
    struct shard_sample *sample = (struct shard_sample *)samples->data;
    struct shard_part *part = (struct shard_part *)parts->data;
    for (i64 i = 0; i < samples->length / (i64)sizeof *sample; i++) {
        sample[i].first_part -= (u64)first_part;
        sample[i].name = sample[i].name < first_name ? 0 : (u32)(sample[i].name - first_name);
    }
    for (i64 i = 0; i < parts->length / (i64)sizeof *part; i++)
        part[i].shard = 0;
}

/* The tables of samples [begin, end), without the shard sizes. */
static void cut_tables(struct buffer out[SHARD_TABLES], const struct file_view all[SHARD_TABLES], i64 begin, i64 end)
{
    const struct shard_sample *first = sample_at(all, begin), *last = sample_at(all, end - 1);
    const struct shard_sample *next = end < all[0].bytes / (i64)sizeof *first ? sample_at(all, end) : NULL;
    i64 parts = (i64)(last->first_part + last->parts - first->first_part), size = (i64)sizeof(struct shard_part);
    i64 names_end = next && next->name > first->name ? next->name : all[3].bytes;
    buffer_append(&out[0], first, (end - begin) * (i64)sizeof *first);
    buffer_append(&out[1], all[1].data + (i64)first->first_part * size, parts * size);
    buffer_append(&out[3], all[3].data + first->name, names_end - first->name);
    rebase(&out[0], &out[1], (i64)first->first_part, first->name);
}

static void print_index(struct buffer *out, const struct shard_meta *meta, const struct buffer tables[SHARD_TABLES],
                        i64 number)
{
    struct file_view views[SHARD_TABLES];
    for (i64 i = 0; i < SHARD_TABLES; i++)
        views[i] = (struct file_view){(const u8 *)tables[i].data, tables[i].length};
    struct index_header header = index_header_of(meta, views, number);
    buffer_clear(out);
    buffer_append(out, &header, sizeof header);
    for (i64 i = 0; i < SHARD_TABLES; i++)
        buffer_append(out, tables[i].data, tables[i].length);
}

int shard_writer_index(struct buffer *out, struct shard_writer *w, i64 number)
{
    struct file_view all[SHARD_TABLES];
    struct buffer tables[SHARD_TABLES] = {{0}};
    if (shard_tables_map(all, &w->tables) < 0)
        return -1;
    i64 end = all[0].bytes / (i64)sizeof(struct shard_sample), begin;
    while (end > 0 && shard_of_sample(all, end - 1) > number)
        end--;
    for (begin = end; begin > 0 && shard_of_sample(all, begin - 1) == number;)
        begin--;
    if (begin < end)
        cut_tables(tables, all, begin, end);
    buffer_append(&tables[2], all[2].data + 8 * number, 8);
    print_index(out, &w->meta, tables, number);
    for (i64 i = 0; i < SHARD_TABLES; i++)
        buffer_release(&tables[i]);
    shard_tables_unmap(all);
    return 0;
}

/* ---- Resuming ---- */

i64 shard_writer_bytes(const struct shard_writer *w)
{
    return w->written;
}

int shard_writer_mark(struct shard_writer *w, struct shard_mark *out)
{
    *out = (struct shard_mark){.shard = w->open ? w->file.bytes : 0};
    if (w->failed)
        return error_set("%s", w->problem);
    w->marked = true;
    if (shard_tables_sync(&w->tables, out->tables) < 0)
        return -1;
    return w->open ? append_sync(&w->file) : 0;
}

/* After a power loss a shard's rename may be lost although its content was synced; redo the
 * rename. */
static int check_closed(struct shard_writer *w, bool all)
{
    struct file_view tables[SHARD_TABLES];
    int status = shard_tables_map(tables, &w->tables);
    for (i64 number = 0; status == 0 && number < shards_closed(w); number++) {
        u64 bytes;
        char *path = shard_path(w->directory, number), *part = part_path(w, number);
        memcpy(&bytes, tables[2].data + 8 * number, 8);
        bool there = file_exists(path), begun = file_exists(part);
        if (!there && (all || begun) && rename(part, path))
            status = error_errno("%s: cannot be renamed", part);
        if (status == 0 && (all || there || begun) && file_bytes(path) != (i64)bytes)
            status = error_set("%s: not the %llu %s that were written", path, (unsigned long long)bytes,
                               plural((i64)bytes, "byte", "bytes"));
        memory_free(path);
        memory_free(part);
    }
    shard_tables_unmap(tables);
    return status;
}

/* Reopens the shard that was open at the mark, even if it was closed since, and removes later
 * shards. */
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
                                         const struct shard_mark *mark, bool all)
{
    struct shard_writer *w = open_writer(directory, meta, shard_bytes, mark->tables);
    if (!w)
        return NULL;
    w->marked = true;
    if (check_closed(w, all) == 0 && reopen_shard(w, mark->shard) == 0)
        return w;
    shard_writer_abandon(w);
    return NULL;
}
