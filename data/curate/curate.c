/* Ordered rules (duplicates and captions), resuming, and reports. */
#include "data/curate/curate_inside.h"
#include "data/shards/append.h"

#include <stddef.h>
#include <string.h>

enum { EXAMPLE_BYTES = 160 };
static const char *const rule_names[CURATE_RULES] = {
    [CURATE_KEPT] = "kept",
    [CURATE_SHORT] = "shorter than filter.chars_least",
    [CURATE_LONG] = "longer than filter.chars_most",
    [CURATE_SCRIPT] = "in other scripts",
    [CURATE_LANGUAGE] = "in other languages",
    [CURATE_PERSONAL] = "with personal data",
    [CURATE_SMALL] = "smaller than filter.side_least",
    [CURATE_ASPECT] = "longer and narrower than filter.aspect_most",
    [CURATE_DARK] = "dark throughout",
    [CURATE_SILENT] = "silent throughout",
    [CURATE_AGAINST] = "sharing a run of words with filter.against",
    [CURATE_CAPTION] = "with a caption that stands at filter.caption_times others",
    [CURATE_EXACT] = "duplicates",
    [CURATE_NEAR] = "near duplicates",
};

static u64 content_of(const struct curate_item *item)
{
    u64 both[2] = {item->content, item->media};
    return hash_bytes(both, sizeof both, 0);
}

static bool is_captioned(const struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    return c->s->caption_times && sample->layout == SAMPLE_CAPTIONED && item->has_content;
}

static enum curate_rule find_rule(const struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    bool any = item->has_content || item->media;
    if (is_captioned(c, item, sample) &&
        seen_captions(c->seen, item->content, c->s->caption_times) == c->s->caption_times)
        return CURATE_CAPTION;
    if (c->s->duplicates == DUPLICATES_KEEP || !any)
        return CURATE_KEPT;
    if (seen_has(c->seen, content_of(item)))
        return CURATE_EXACT;
    for (i64 i = 0; item->bands && i < NEAR_BANDS; i++)
        if (seen_has(c->seen, item->bands[i]))
            return CURATE_NEAR;
    return CURATE_KEPT;
}

static void note_example(struct curation *c, enum curate_rule rule, const struct sample *sample)
{
    i64 at = c->counts[rule]++;
    if (rule == CURATE_KEPT || at >= EXAMPLES_KEPT)
        return;
    const struct buffer *text = NULL;
    for (i64 i = 0; i < sample->count && !text; i++)
        text = sample->parts[i].kind == MODALITY_TEXT ? &sample->parts[i].bytes : NULL;
    i64 length = text ? min_i64(text->length, EXAMPLE_BYTES) : 0;
    while (text && length < text->length && length > 0 && ((u8)text->data[length] & 0xc0) == 0x80)
        length--;
    c->examples[rule][at] =
        (struct curate_example){string_copy(sample->name), string_format("%.*s", (int)length, text ? text->data : "")};
}

static enum curate_rule first_rule(enum curate_rule a, enum curate_rule b)
{
    return a != CURATE_KEPT ? a : b;
}

static void note_masked(struct curation *c, const struct curate_item *item)
{
    if (c->s->personal == PERSONAL_MASK) {
        c->masked += item->masked;
        c->masked_samples += item->masked > 0;
    }
}

void curation_add_keys(struct curation *c, const struct key_entry *entry, const u8 *keys)
{
    for (i64 i = 0; i < entry->keys; i++) {
        if (i == 0 && entry->captioned)
            seen_add_caption(c->seen, key_of_entry(keys, i), c->s->caption_times);
        else
            seen_add(c->seen, key_of_entry(keys, i));
    }
}

/* Records the keys that later samples are compared with. A piece of a text records none. */
static void note_keys(struct curation *c, struct curate_item *item, const struct sample *sample, bool piece)
{
    u64 keys[2 + NEAR_BANDS];
    struct key_entry entry = {.split = (u8)sample->split};
    if (!curation_has_keys(c))
        return;
    if (!piece && is_captioned(c, item, sample)) {
        entry.captioned = 1;
        keys[entry.keys++] = item->content;
    }
    if (!piece && c->s->duplicates && (item->has_content || item->media)) {
        keys[entry.keys++] = content_of(item);
        for (i64 i = 0; item->bands && i < NEAR_BANDS; i++)
            keys[entry.keys++] = item->bands[i];
    }
    curation_add_keys(c, &entry, (const u8 *)keys);
    item->entry = c->log.length + 1;
    buffer_append(&c->log, &entry, sizeof entry);
    buffer_append(&c->log, keys, entry.keys * 8);
    c->logged += (i64)sizeof entry + entry.keys * 8;
}

void curation_set_records(struct curation *c, const struct curate_item *item, i64 records)
{
    u32 count = (u32)records;
    if (item->entry)
        memcpy(c->log.data + item->entry - 1 + offsetof(struct key_entry, records), &count, sizeof count);
}

bool curation_keep(struct curation *c, struct curate_item *item, const struct sample *sample)
{
    bool piece = c->inside || sample->goes_on; /* part of a longer text */
    enum curate_rule alone = first_rule(item->rule, item->shown);
    enum curate_rule rule = piece ? CURATE_KEPT : alone != CURATE_KEPT ? alone : find_rule(c, item, sample);
    c->inside = sample->goes_on;
    note_example(c, rule, sample);
    if (rule != CURATE_KEPT)
        return false;
    note_masked(c, item);
    note_keys(c, item, sample, piece);
    return true;
}

bool curation_keep_file(struct curation *c, struct curate_item *item, const struct sample *sample)
{
    enum curate_rule rule = item->rule != CURATE_KEPT ? item->rule : find_rule(c, item, sample);
    if (rule != CURATE_KEPT) {
        note_example(c, rule, sample);
        return false;
    }
    note_masked(c, item);
    note_keys(c, item, sample, false);
    return true;
}

bool curation_keep_window(struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    enum curate_rule rule = first_rule(item->rule, item->shown);
    note_example(c, rule, sample);
    if (rule == CURATE_KEPT)
        note_masked(c, item);
    return rule == CURATE_KEPT;
}

/* ---- Saving and resuming ---- */

static struct json *examples_json(const struct curation *c, int rule)
{
    struct json *list = json_array();
    for (i64 i = 0; i < EXAMPLES_KEPT && c->examples[rule][i].name; i++) {
        struct json *one = json_object();
        json_set(one, "name", json_of_string(c->examples[rule][i].name));
        json_set(one, "text", json_of_string(c->examples[rule][i].text));
        json_push(list, one);
    }
    return list;
}

struct json *curation_state(const struct curation *c)
{
    struct json *j = json_object(), *counts = json_array(), *examples = json_array();
    for (int rule = 0; rule < CURATE_RULES; rule++) {
        json_push(counts, json_of_integer(c->counts[rule]));
        json_push(examples, examples_json(c, rule));
    }
    json_set(j, "inside", json_of_bool(c->inside));
    json_set(j, "keys_bytes", json_of_integer(c->logged));
    json_set(j, "masked", json_of_integer(c->masked));
    json_set(j, "masked_samples", json_of_integer(c->masked_samples));
    json_set(j, "counts", counts);
    json_set(j, "examples", examples);
    return j;
}

int curation_save(struct curation *c, const char *path)
{
    struct appender file;
    if (append_open(&file, path, c->logged - c->log.length) < 0)
        return -1;
    if (c->log.length)
        append_write(&file, c->log.data, c->log.length);
    buffer_clear(&c->log);
    return append_close(&file);
}

int curation_resume(struct curation *c, const struct json *state, const char *path)
{
    struct file_view file = {0};
    struct key_entry entry;
    const u8 *keys;
    i64 bytes = json_integer(json_get(state, "keys_bytes"), -1), at = 0;
    if (bytes < 0 || json_count(json_get(state, "counts")) != CURATE_RULES || file_map(&file, path) < 0)
        return error_set("%s: the table of seen keys is missing", path);
    while (at < bytes && key_entry_next(&entry, &keys, &file, &at))
        curation_add_keys(c, &entry, keys);
    int status = at == bytes ? 0 : error_set("%s: cut short", path);
    c->logged = bytes;
    file_unmap(&file);
    c->inside = json_bool(json_get(state, "inside"), false);
    c->masked = json_integer(json_get(state, "masked"), 0);
    c->masked_samples = json_integer(json_get(state, "masked_samples"), 0);
    for (int rule = 0; rule < CURATE_RULES; rule++) {
        const struct json *examples = json_at(json_get(state, "examples"), rule);
        c->counts[rule] = json_integer(json_at(json_get(state, "counts"), rule), 0);
        for (i64 i = 0; i < min_i64(EXAMPLES_KEPT, json_count(examples)); i++)
            c->examples[rule][i] =
                (struct curate_example){string_copy(json_string(json_get(json_at(examples, i), "name"), "")),
                                        string_copy(json_string(json_get(json_at(examples, i), "text"), ""))};
    }
    return status;
}

/* ---- Reports ---- */

struct json *curation_json(const struct curation *c)
{
    struct json *j = json_object(), *rules = json_array();
    i64 all = 0;
    for (int rule = 0; rule < CURATE_RULES; rule++) {
        all += c->counts[rule];
        if (rule == CURATE_KEPT || c->counts[rule] == 0)
            continue;
        struct json *one = json_object();
        json_set(one, "rule", json_of_string(rule_names[rule]));
        json_set(one, "count", json_of_integer(c->counts[rule]));
        json_set(one, "examples", examples_json(c, rule));
        json_push(rules, one);
    }
    json_set(j, "samples", json_of_integer(all));
    json_set(j, "kept", json_of_integer(c->counts[CURATE_KEPT]));
    json_set(j, "masked", json_of_integer(c->masked));
    json_set(j, "masked_samples", json_of_integer(c->masked_samples));
    json_set(j, "forgotten", json_of_integer(seen_forgotten(c->seen)));
    json_set(j, "rules", rules);
    return j;
}

void curation_log(const struct curation *c)
{
    for (int rule = CURATE_KEPT + 1; rule < CURATE_RULES; rule++)
        if (c->counts[rule])
            log_info("dropped: %lld %s %s (first: %s)", (long long)c->counts[rule],
                     plural(c->counts[rule], "sample", "samples"), rule_names[rule], c->examples[rule][0].name);
    if (c->masked)
        log_info("%lld %s masked in %lld %s", (long long)c->masked,
                 plural(c->masked, "address or number of a person", "addresses and numbers of persons"),
                 (long long)c->masked_samples, plural(c->masked_samples, "sample", "samples"));
    if (seen_forgotten(c->seen))
        log_warn("filter.memory_bytes: the table of seen keys was full and its older half was dropped %lld %s: "
                 "duplicates far apart stay",
                 (long long)seen_forgotten(c->seen), plural(seen_forgotten(c->seen), "time", "times"));
}
