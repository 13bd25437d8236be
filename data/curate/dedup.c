#include "data/curate/dedup.h"
#include "data/curate/curate.h"
#include "data/shards/shard_tables.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ROW(member, key, type, fallback, low, high, help)                                                              \
    SETTING(struct dedup_settings, member, key, type, fallback, low, high, NULL, help)
const struct setting dedup_table[] = {
    ROW(data, "data", REFERENCES, NULL, 0, 0,
        "shard folders, as for training, made with filter.duplicates; duplicates stay only in the first folder"),
    SETTING(struct dedup_settings, duplicates, "duplicates", CHOICE, "near", 0, 0, "exact|near",
            "exact: same words and media; near: also texts with nearly the same words, if all folders were made with "
            "filter.duplicates: near"),
    ROW(caption_times, "caption_times", INTEGER, "0", 0, 1000,
        "maximum media with the same caption, others are dropped; needs filter.caption_times in prepare; 0: no limit"),
    ROW(memory_bytes, "memory_bytes", INTEGER, "1073741824", 4096, 1e13,
        "memory for the keys of earlier samples, bytes; the oldest are evicted when it is full"),
    {0}};

enum dropped { DROPPED_NOT, DROPPED_CAPTION, DROPPED_EXACT, DROPPED_NEAR, DROPPED_RULES };
static const char *const rule_names[DROPPED_RULES] = {"kept", "with a caption that stands at caption_times others",
                                                      "duplicates of other folders",
                                                      "near duplicates of other folders"};

struct dedup {
    const struct dedup_settings *settings;
    const char *out;
    struct seen_keys *seen; /* keys of the kept samples */
    i64 counts[DROPPED_RULES];
    struct json *examples[DROPPED_RULES];
    i64 linked, copied; /* number of files */
};
/* One input folder and its output. */
struct folder {
    const char *from;
    char *to;
    struct shards shards[SPLITS];
    u8 *drop[SPLITS];        /* [samples], 1: dropped */
    i64 at[SPLITS];          /* records that key entries have covered so far */
    struct file_writer keys; /* keys of the kept samples */
};

/* ---- Decisions ---- */

static enum dropped find_rule(const struct dedup *d, const struct key_entry *entry, const u8 *keys)
{
    const struct dedup_settings *s = d->settings;
    i64 content = entry->captioned;
    i64 most = s->duplicates == DEDUP_NEAR ? entry->keys : content + 1;
    if (content && s->caption_times &&
        seen_captions(d->seen, key_of_entry(keys, 0), s->caption_times) == s->caption_times)
        return DROPPED_CAPTION;
    for (i64 i = content; i < entry->keys && i < most; i++)
        if (seen_has(d->seen, key_of_entry(keys, i)))
            return i == content ? DROPPED_EXACT : DROPPED_NEAR;
    return DROPPED_NOT;
}

static void add_keys(struct dedup *d, const struct key_entry *entry, const u8 *keys)
{
    for (i64 i = 0; i < entry->keys; i++) {
        if (i == 0 && entry->captioned)
            seen_add_caption(d->seen, key_of_entry(keys, i), d->settings->caption_times);
        else
            seen_add(d->seen, key_of_entry(keys, i));
    }
}

static void count_result(struct dedup *d, enum dropped rule, const char *name)
{
    d->counts[rule]++;
    if (rule == DROPPED_NOT || json_count(d->examples[rule]) >= EXAMPLES_KEPT)
        return;
    struct json *one = json_object();
    json_set(one, "name", json_of_string(name));
    json_set(one, "text", json_of_string(""));
    json_push(d->examples[rule], one);
}

static int check_records(const struct folder *f, int split, i64 more)
{
    i64 there = f->shards[split].sample_count;
    if (f->at[split] + more <= there)
        return 0;
    return error_set("%s: it has keys for more than the %lld %s in %s, so it belongs to other shards; prepare them "
                     "again",
                     f->from, (long long)there, plural(there, "record", "records"), split_names[split]);
}

static int take_entry(struct dedup *d, struct folder *f, const struct key_entry *entry, const u8 *keys)
{
    int split = entry->split;
    if (check_records(f, split, entry->records) < 0)
        return -1;
    enum dropped rule = find_rule(d, entry, keys);
    if (entry->records)
        count_result(d, rule, shards_name(&f->shards[split], f->at[split]));
    memset(f->drop[split] + f->at[split], rule != DROPPED_NOT, entry->records);
    f->at[split] += entry->records;
    if (rule == DROPPED_NOT) {
        add_keys(d, entry, keys);
        file_write(&f->keys, entry, sizeof *entry);
        file_write(&f->keys, keys, 8 * entry->keys);
    }
    return 0;
}

static int judge_all(struct dedup *d, struct folder *f)
{
    struct file_view file;
    struct key_entry entry;
    const u8 *keys;
    int status = key_file_open(&file, f->from);
    for (i64 at = 0; status == 0 && key_entry_next(&entry, &keys, &file, &at);)
        status = take_entry(d, f, &entry, keys);
    file_unmap(&file);
    for (int split = 0; split < SPLITS && status == 0; split++)
        if (f->at[split] < f->shards[split].sample_count)
            status = error_set("%s: it has keys for %lld of the %lld %s in %s, so it belongs to other shards; prepare "
                               "them again",
                               f->from, (long long)f->at[split], (long long)f->shards[split].sample_count,
                               plural(f->shards[split].sample_count, "record", "records"), split_names[split]);
    return status;
}

static int take_keys(struct dedup *d, struct folder *f)
{
    char *keys = path_join(f->to, curation_keys);
    int status = file_writer_open(&f->keys, keys) < 0 ? -1 : judge_all(d, f);
    if (status == 0)
        status = file_writer_commit(&f->keys);
    else
        file_writer_abandon(&f->keys);
    memory_free(keys);
    return status;
}

/* ---- Output ---- */

static int write_index(const struct folder *f, int split)
{
    const struct shards *s = &f->shards[split];
    const struct shard_folder *all = &s->folders[0];
    struct shard_tables tables;
    char *part = path_join(f->to, split_names[split]);
    int status = directory_make(part) < 0 ? -1 : shard_tables_open(&tables, part, NULL);
    if (status == 0) {
        for (i64 i = 0; i < s->sample_count; i++)
            if (!f->drop[split][i])
                shard_tables_add(&tables, all->samples[i], shards_name(s, i), all->parts + all->samples[i].first_part);
        for (i64 i = 0; i < s->shard_count; i++) {
            u64 bytes;
            memcpy(&bytes, all->sizes + 8 * i, 8);
            shard_tables_end_shard(&tables, bytes);
        }
        status = shard_tables_write_index(&tables, &s->meta, all->first_shard);
        shard_tables_close(&tables);
        status = shard_tables_remove(part) < 0 ? -1 : status;
    }
    memory_free(part);
    return status;
}

/* Hard-links a file; copies it across file systems or if links are not allowed. */
static int take_file(struct dedup *d, const char *from, const char *to)
{
    if (link(from, to) == 0) {
        d->linked++;
        return 0;
    }
    d->copied++;
    return disk_check(d->out, file_bytes(from), "a copy of a shard") < 0 ? -1 : file_copy(to, from);
}

static int take_all(struct dedup *d, struct folder_visits *visits, const char *from, const char *to)
{
    char **names;
    i64 count;
    if (!file_is_directory(from))
        return take_file(d, from, to);
    if (!folder_visit(visits, from))
        return 0;
    if (directory_make(to) < 0 || directory_list(&names, &count, from) < 0)
        return -1;
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        char *a = path_join(from, names[i]), *b = path_join(to, names[i]);
        status = strcmp(names[i], "index") == 0 ? 0 : take_all(d, visits, a, b);
        memory_free(a);
        memory_free(b);
    }
    string_list_free(names, count);
    return status;
}

static int write_files(struct dedup *d, const struct folder *f)
{
    const char *names[1 + TOKENIZERS + SPLITS] = {"shards.json"};
    int status = 0;
    for (i64 i = 1; i < COUNT_OF(names); i++)
        names[i] = i <= TOKENIZERS ? tokenizer_names[i - 1] : split_names[i - 1 - TOKENIZERS];
    for (i64 i = 0; i < COUNT_OF(names) && status == 0; i++) {
        char *from = path_join(f->from, names[i]), *to = path_join(f->to, names[i]);
        struct folder_visits visits = {0};
        status = file_exists(from) || file_is_directory(from) ? take_all(d, &visits, from, to) : 0;
        folder_visits_release(&visits);
        memory_free(from);
        memory_free(to);
    }
    for (int split = 0; split < SPLITS && status == 0; split++)
        status = write_index(f, split);
    return status;
}

/* ---- Folders ---- */

static int open_folder(struct folder *f)
{
    for (int split = 0; split < SPLITS; split++) {
        if (shards_open(&f->shards[split], f->from, split_names[split]) < 0)
            return -1;
        f->drop[split] = memory_alloc(max_i64(1, f->shards[split].sample_count));
    }
    return 0;
}

static void close_folder(struct folder *f)
{
    for (int split = 0; split < SPLITS; split++) {
        shards_close(&f->shards[split]);
        memory_free(f->drop[split]);
    }
    memory_free(f->to);
}

static int make_folder(struct dedup *d, const char *from, i64 number)
{
    char name[16];
    snprintf(name, sizeof name, "%05lld", (long long)number);
    struct folder f = {.from = from, .to = path_join(d->out, name)};
    int status = open_folder(&f) < 0 || directory_remove(f.to) < 0 || directory_make(f.to) < 0 ? -1 : take_keys(d, &f);
    if (status == 0)
        status = write_files(d, &f);
    close_folder(&f);
    return status;
}

static int make_folders(struct dedup *d)
{
    struct string_list folders = {0};
    struct progress progress;
    int status = shard_folders_check(d->settings->data) < 0 ? -1 : shard_folders_list(&folders, d->settings->data);
    progress_init(&progress, "folders", folders.count);
    for (i64 i = 0; i < folders.count && status == 0; i++) {
        status = interrupted() ? 1 : make_folder(d, folders.values[i], i);
        progress_update(&progress, i + 1, "%lld %s dropped",
                        (long long)(d->counts[DROPPED_CAPTION] + d->counts[DROPPED_EXACT] + d->counts[DROPPED_NEAR]),
                        plural((d->counts[DROPPED_CAPTION] + d->counts[DROPPED_EXACT] + d->counts[DROPPED_NEAR]),
                               "sample", "samples"));
    }
    progress_close(&progress);
    string_list_free(folders.values, folders.count);
    return status;
}

/* ---- Reports ---- */

/* Writes curation.json in the format of prepare's. */
static int save_counts(const struct dedup *d)
{
    struct json *j = json_object(), *rules = json_array();
    i64 all = 0;
    for (int rule = 0; rule < DROPPED_RULES; rule++) {
        all += d->counts[rule];
        if (rule == DROPPED_NOT || d->counts[rule] == 0)
            continue;
        struct json *one = json_object();
        json_set(one, "rule", json_of_string(rule_names[rule]));
        json_set(one, "count", json_of_integer(d->counts[rule]));
        json_set(one, "examples", json_copy(d->examples[rule]));
        json_push(rules, one);
        log_info("dropped: %lld %s %s", (long long)d->counts[rule], plural(d->counts[rule], "sample", "samples"),
                 rule_names[rule]);
    }
    json_set(j, "samples", json_of_integer(all));
    json_set(j, "kept", json_of_integer(d->counts[DROPPED_NOT]));
    json_set(j, "forgotten", json_of_integer(seen_forgotten(d->seen)));
    json_set(j, "rules", rules);
    char *path = path_join(d->out, "curation.json");
    int status = json_save(path, j);
    memory_free(path);
    json_free(j);
    return status;
}

static void log_counts(const struct dedup *d)
{
    log_info("%lld %s kept; %lld %s linked, %lld copied", (long long)d->counts[DROPPED_NOT],
             plural(d->counts[DROPPED_NOT], "sample", "samples"), (long long)d->linked,
             plural(d->linked, "file", "files"), (long long)d->copied);
    if (seen_forgotten(d->seen))
        log_warn("memory_bytes: the table of seen keys was full and its older half was dropped %lld %s: duplicates far "
                 "apart stay",
                 (long long)seen_forgotten(d->seen), plural(seen_forgotten(d->seen), "time", "times"));
}

int dedup_stage(const struct dedup_settings *settings, const char *out)
{
    struct dedup d = {.settings = settings, .out = out, .seen = seen_open(settings->memory_bytes)};
    for (int rule = 0; rule < DROPPED_RULES; rule++)
        d.examples[rule] = json_array();
    int status = make_folders(&d);
    if (status == 0)
        status = save_counts(&d);
    if (status == 0)
        log_counts(&d);
    for (int rule = 0; rule < DROPPED_RULES; rule++)
        json_free(d.examples[rule]);
    seen_close(d.seen);
    return status;
}
