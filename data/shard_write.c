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

void shard_write_break(struct shard_writer *w)
{
    if (w->open && w->file.bytes >= w->shard_bytes)
        end_shard(w);
}

void shard_index_print(struct text *out, const struct shard_meta *meta, const struct text tables[SHARD_TABLES],
                       i64 first_shard)
{
    struct index_header header = {.version = SHARD_VERSION,
                                  .shard_count = (u32)(tables[2].length / 8),
                                  .sample_count = (u64)tables[0].length / sizeof(struct shard_sample),
                                  .part_count = (u64)tables[1].length / sizeof(struct shard_part),
                                  .names_bytes = (u64)tables[3].length,
                                  .meta_hash = shard_meta_hash(meta),
                                  .first_shard = (u64)first_shard};
    memcpy(header.magic, INDEX_MAGIC, 8);
    text_clear(out);
    text_append(out, &header, sizeof header);
    for (i64 i = 0; i < SHARD_TABLES; i++)
        text_append(out, tables[i].data, tables[i].length);
    header.hash = index_hash(&header, out->data + sizeof header, out->length - (i64)sizeof header);
    memcpy(out->data, &header, sizeof header);
}

static int write_index(struct shard_writer *w)
{
    struct text all = {0};
    shard_index_print(&all, &w->meta, (struct text[]){w->samples, w->parts, w->sizes, w->names}, 0);
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

/* ---- a closed shard by itself ---- */

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

static const struct shard_sample *sample_at(const struct shard_writer *w, i64 i)
{
    return (const struct shard_sample *)w->samples.data + i;
}

/* Samples stand in the order of the shards; what belongs together is in one (shard_write_break). */
static i64 shard_of_sample(const struct shard_writer *w, i64 i)
{
    return ((const struct shard_part *)w->parts.data)[sample_at(w, i)->first_part].shard;
}

static void rebase(struct text *samples, struct text *parts, i64 first_part, i64 first_name)
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

/* Of samples [begin, end), but for sizes. */
static void cut_tables(struct text tables[SHARD_TABLES], const struct shard_writer *w, i64 begin, i64 end)
{
    const struct shard_sample *first = sample_at(w, begin), *last = sample_at(w, end - 1);
    const struct shard_sample *next = end < w->samples.length / (i64)sizeof *first ? sample_at(w, end) : NULL;
    i64 parts = (i64)(last->first_part + last->parts - first->first_part), size = (i64)sizeof(struct shard_part);
    i64 names_end = next && next->name > first->name ? next->name : w->names.length;
    text_append(&tables[0], first, (end - begin) * (i64)sizeof *first);
    text_append(&tables[1], w->parts.data + (i64)first->first_part * size, parts * size);
    text_append(&tables[3], w->names.data + first->name, names_end - first->name);
    rebase(&tables[0], &tables[1], (i64)first->first_part, first->name);
}

void shard_writer_index(struct text *out, const struct shard_writer *w, i64 number)
{
    i64 samples = w->samples.length / (i64)sizeof(struct shard_sample), end = samples, begin;
    while (end > 0 && shard_of_sample(w, end - 1) > number)
        end--;
    for (begin = end; begin > 0 && shard_of_sample(w, begin - 1) == number;)
        begin--;
    struct text tables[SHARD_TABLES] = {{0}};
    if (begin < end)
        cut_tables(tables, w, begin, end);
    text_append(&tables[2], w->sizes.data + 8 * number, 8);
    shard_index_print(out, &w->meta, tables, number);
    for (i64 i = 0; i < SHARD_TABLES; i++)
        text_release(&tables[i]);
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
static int check_closed(const struct shard_writer *w, bool all)
{
    int status = 0;
    for (i64 number = 0; status == 0 && number < shards_closed(w); number++) {
        u64 bytes;
        char *path = shard_path(w->directory, number), *part = part_path(w, number);
        memcpy(&bytes, w->sizes.data + 8 * number, 8);
        bool there = file_exists(path), begun = file_exists(part);
        if (!there && (all || begun) && rename(part, path))
            status = error_errno("%s: cannot be renamed", part);
        if (status == 0 && (all || there || begun) && file_bytes(path) != (i64)bytes)
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
                                         const struct shard_mark *mark, bool all)
{
    struct shard_writer *w = shard_writer_open(directory, meta, shard_bytes);
    if (w && (load_tables(w, mark) < 0 || check_closed(w, all) < 0 || reopen_shard(w, mark->shard) < 0)) {
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
