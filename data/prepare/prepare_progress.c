/* Saves how far the stage has come, resumes there, and delivers closed shards to a consumer. */
#include "data/prepare/prepare_internal.h"
#include "data/shards/shard_tables.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 4 };
static const double save_interval_s = 10;
static const char seen_file[] = "seen.part"; /* keys of kept samples, if duplicates are removed */

/* ---- Saving ---- */

/* Hash of all settings that determine the output. The content of the input folders is not included;
 * the caller must check it. */
static char *identity_of(const struct prepare *p)
{
    struct buffer text = {0};
    struct json *settings = settings_to_json(p->settings, prepare_table);
    json_print(&text, settings, 0);
    buffer_printf(&text, " %llu %d %llu", (unsigned long long)p->seed, (int)p->dtype,
                  (unsigned long long)shard_meta_hash(&p->meta));
    char *identity = string_format("%016llx", (unsigned long long)hash_bytes(text.data, text.length, 0));
    json_free(settings);
    buffer_release(&text);
    return identity;
}

static struct json *integers(const i64 *values, i64 count)
{
    struct json *list = json_array();
    for (i64 i = 0; i < count; i++)
        json_push(list, json_of_integer(values[i]));
    return list;
}

static int read_integers(i64 *values, i64 count, const struct json *list)
{
    for (i64 i = 0; i < count; i++) {
        const struct json *value = json_at(list, i);
        if (json_kind(value) != JSON_INTEGER || json_integer(value, -1) < 0)
            return -1;
        values[i] = json_integer(value, -1);
    }
    return json_count(list) == count ? 0 : -1;
}

enum { COUNTS = sizeof(struct prepare_counts) / sizeof(i64), MARKS = sizeof(struct shard_mark) / sizeof(i64) };

static struct json *progress_json(const struct prepare *p, const struct shard_mark marks[SPLITS])
{
    struct json *j = json_object();
    char *identity = identity_of(p);
    json_set(j, "version", json_of_integer(VERSION));
    json_set(j, "identity", json_of_string(identity));
    if (p->chat && text_chat_reads_clock(p->chat))
        json_set(j, "day", json_of_string(p->day));
    if (p->position)
        json_set(j, "source", json_copy(p->position));
    if (p->curation)
        json_set(j, "curation", curation_state(p->curation));
    json_set(j, "counts", integers((const i64 *)&p->counts, COUNTS));
    for (int split = 0; split < SPLITS; split++)
        json_set(j, split_names[split], integers((const i64 *)&marks[split], MARKS));
    memory_free(identity);
    return j;
}

i64 progress_bytes(const struct prepare *p)
{
    i64 bytes = 0;
    for (int split = 0; split < SPLITS; split++)
        bytes += shard_writer_bytes(p->writers[split]);
    return bytes;
}

static bool has_undelivered(const struct prepare *p)
{
    return p->consumer && shard_writer_closed(p->writers[SPLIT_TRAIN]) > p->delivered;
}

bool progress_is_due(const struct prepare *p)
{
    return has_undelivered(p) || clock_s() - p->saved_s >= save_interval_s ||
           progress_bytes(p) - p->saved_bytes >= p->settings->shard_bytes / 4;
}

int progress_save(struct prepare *p)
{
    struct shard_mark marks[SPLITS];
    int status = 0;
    for (int split = 0; split < SPLITS && status == 0; split++)
        status = shard_writer_mark(p->writers[split], &marks[split]);
    if (status < 0)
        return -1;
    char *path = path_join(p->out, "progress.json"), *seen = path_join(p->out, seen_file);
    struct json *j = progress_json(p, marks);
    status = p->curation && curation_save(p->curation, seen) < 0 ? -1 : json_save(path, j);
    memory_free(seen);
    p->saved_s = clock_s();
    p->saved_bytes = progress_bytes(p);
    json_free(j);
    memory_free(path);
    return status;
}

int progress_deliver(struct prepare *p)
{
    int status = 0;
    while (status == 0 && has_undelivered(p)) {
        struct buffer index = {0};
        char *train = path_join(p->out, split_names[SPLIT_TRAIN]), *shard = shard_path(train, p->delivered);
        if (file_exists(shard)) { /* not taken by an earlier call */
            status = shard_writer_index(&index, p->writers[SPLIT_TRAIN], p->delivered);
            if (status == 0)
                status = p->consumer->take(p->consumer->context, p->delivered, shard, &index);
        }
        p->delivered += status == 0;
        buffer_release(&index);
        memory_free(shard);
        memory_free(train);
    }
    return status;
}

/* ---- Resuming ---- */

static int start_over(struct prepare *p)
{
    p->started_over = true;
    for (int split = 0; split < SPLITS; split++) {
        char *path = path_join(p->out, split_names[split]);
        if (directory_remove(path) == 0)
            p->writers[split] = shard_writer_open(path, &p->meta, p->settings->shard_bytes);
        memory_free(path);
        if (!p->writers[split])
            return -1;
    }
    return 0;
}

static int resume(struct prepare *p, const struct json *j)
{
    struct shard_mark marks[SPLITS];
    struct prepare_counts counts = {0};
    const struct json *held = json_get(j, "counts");
    /* Older programs lack the last count. */
    int status = read_integers((i64 *)&counts, json_count(held) == COUNTS - 1 ? COUNTS - 1 : COUNTS, held);
    for (int split = 0; split < SPLITS; split++)
        if (read_integers((i64 *)&marks[split], MARKS, json_get(j, split_names[split])) < 0)
            status = -1;
    if (status < 0)
        return error_set("progress.json is damaged");
    if (p->consumer && marks[SPLIT_TRAIN].tables[2] / 8 > p->consumer->first_needed)
        return error_set("shards that were taken away are missing");
    char *seen = path_join(p->out, seen_file);
    status = p->curation ? curation_resume(p->curation, json_get(j, "curation"), seen) : 0;
    memory_free(seen);
    for (int split = 0; split < SPLITS && status == 0; split++) {
        char *path = path_join(p->out, split_names[split]);
        p->writers[split] = shard_writer_resume(path, &p->meta, p->settings->shard_bytes, &marks[split], !p->consumer);
        status = p->writers[split] ? 0 : -1;
        memory_free(path);
    }
    for (int split = 0; split < SPLITS && status < 0; split++) {
        shard_writer_abandon(p->writers[split]);
        p->writers[split] = NULL;
    }
    if (status == 0) {
        p->counts = counts;
        p->position = json_get(j, "source") ? json_copy(json_get(j, "source")) : NULL;
    }
    return status;
}

void progress_day(char day[CHAT_DAY], const struct prepare *p)
{
    char *path = path_join(p->out, "progress.json");
    struct json *j = p->out && file_exists(path) ? json_load(path) : NULL;
    const char *said = json_string(json_get(j, "day"), "");
    chat_today(day);
    if (strlen(said) == CHAT_DAY - 1 && chat_check_day(said) == 0)
        memcpy(day, said, CHAT_DAY);
    json_free(j);
    memory_free(path);
}

int progress_open(struct prepare *p)
{
    char *path = path_join(p->out, "progress.json"), *identity = identity_of(p);
    struct json *j = file_exists(path) ? json_load(path) : NULL;
    bool same = json_integer(json_get(j, "version"), 0) == VERSION &&
                strcmp(json_string(json_get(j, "identity"), ""), identity) == 0;
    int status = same ? resume(p, j) : -1;
    if (same && status < 0)
        log_warn("begins anew, for what was made before cannot be gone on with: %s", error_text());
    if (status < 0) {
        status = directory_remove(path);
        if (status == 0 && same) { /* curation may have read a part of the damaged state */
            curation_close(p->curation);
            p->curation = curation_open(&p->settings->filter, &status);
        }
        if (status == 0)
            status = start_over(p);
    }
    p->saved_s = clock_s();
    json_free(j);
    memory_free(path);
    memory_free(identity);
    return status;
}

void progress_discard(const struct prepare *p)
{
    char *path = path_join(p->out, "progress.json");
    for (int split = 0; split < SPLITS && p->started_over && !file_exists(path); split++) {
        char *part = path_join(p->out, split_names[split]);
        if (directory_remove(part) < 0)
            log_warn("%s", error_text());
        memory_free(part);
    }
    memory_free(path);
}

int progress_keep_keys(const struct prepare *p)
{
    if (!curation_has_keys(p->curation))
        return 0;
    char *seen = path_join(p->out, seen_file), *keys = path_join(p->out, curation_keys);
    int status = curation_save(p->curation, seen);
    if (status == 0 && rename(seen, keys) < 0)
        status = error_errno("%s: cannot become %s", seen, keys);
    memory_free(seen);
    memory_free(keys);
    return status;
}

int progress_remove(const struct prepare *p)
{
    char *path = path_join(p->out, "progress.json");
    char *seen = path_join(p->out, seen_file);
    int status = directory_remove(path) < 0 || directory_remove(seen) < 0 ? -1 : 0;
    memory_free(seen);
    for (int split = 0; split < SPLITS && status == 0; split++) {
        char *part = path_join(p->out, split_names[split]);
        status = shard_tables_remove(part);
        memory_free(part);
    }
    memory_free(path);
    return status;
}
