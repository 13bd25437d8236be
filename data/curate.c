/* In the order of the samples: what stays, how to go on, what people read of it. */
#include "data/curate_inside.h"
#include "data/append.h"

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

/* The key of a caption's n-th medium. */
static u64 caption_key(const struct curate_item *item, i64 n)
{
    return hash_bytes(&item->content, 8, (u64)n);
}

/* How many media have it already, as far as that matters. */
static i64 caption_count(const struct curation *c, const struct curate_item *item)
{
    i64 n = 0;
    while (n < c->s->caption_times && seen_has(c->seen, caption_key(item, n + 1)))
        n++;
    return n;
}

static bool is_captioned(const struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    return c->s->caption_times && sample->layout == SAMPLE_CAPTIONED && item->has_content;
}

static enum curate_rule judge(const struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    bool any = item->has_content || item->media;
    if (is_captioned(c, item, sample) && caption_count(c, item) == c->s->caption_times)
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

static void note_key(struct curation *c, u64 key)
{
    seen_add(c->seen, key);
    text_append(&c->log, &key, 8);
}

static void note_example(struct curation *c, enum curate_rule rule, const struct sample *sample)
{
    i64 at = c->counts[rule]++;
    if (rule == CURATE_KEPT || at >= EXAMPLES_KEPT)
        return;
    const struct text *text = NULL;
    for (i64 i = 0; i < sample->count && !text; i++)
        text = sample->parts[i].kind == SAMPLE_TEXT ? &sample->parts[i].bytes : NULL;
    i64 length = text ? min_i64(text->length, EXAMPLE_BYTES) : 0;
    while (text && length < text->length && length > 0 && ((u8)text->data[length] & 0xc0) == 0x80)
        length--;
    c->examples[rule][at] =
        (struct example){string_copy(sample->name), string_format("%.*s", (int)length, text ? text->data : "")};
}

static enum curate_rule first_of(enum curate_rule a, enum curate_rule b)
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

/* What later samples are compared with. */
static void note_keys(struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    if (is_captioned(c, item, sample))
        note_key(c, caption_key(item, caption_count(c, item) + 1));
    if (c->s->duplicates && (item->has_content || item->media)) {
        note_key(c, content_of(item));
        for (i64 i = 0; item->bands && i < NEAR_BANDS; i++)
            note_key(c, item->bands[i]);
    }
}

bool curation_keep(struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    bool piece = c->inside || sample->goes_on; /* of a text */
    enum curate_rule alone = first_of(item->rule, item->shown);
    enum curate_rule rule = piece ? CURATE_KEPT : alone != CURATE_KEPT ? alone : judge(c, item, sample);
    c->inside = sample->goes_on;
    note_example(c, rule, sample);
    if (rule != CURATE_KEPT)
        return false;
    note_masked(c, item);
    if (!piece)
        note_keys(c, item, sample);
    return true;
}

bool curation_keep_file(struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    enum curate_rule rule = item->rule != CURATE_KEPT ? item->rule : judge(c, item, sample);
    if (rule != CURATE_KEPT) {
        note_example(c, rule, sample);
        return false;
    }
    note_masked(c, item);
    note_keys(c, item, sample);
    return true;
}

bool curation_keep_window(struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    enum curate_rule rule = first_of(item->rule, item->shown);
    note_example(c, rule, sample);
    if (rule == CURATE_KEPT)
        note_masked(c, item);
    return rule == CURATE_KEPT;
}

/* ---- Going on ---- */

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
    json_set(j, "seen", json_of_integer(seen_added(c->seen) - c->before));
    json_set(j, "masked", json_of_integer(c->masked));
    json_set(j, "masked_samples", json_of_integer(c->masked_samples));
    json_set(j, "counts", counts);
    json_set(j, "examples", examples);
    return j;
}

int curation_save(struct curation *c, const char *path)
{
    struct appender file;
    if (append_open(&file, path, (seen_added(c->seen) - c->before) * 8 - c->log.length) < 0)
        return -1;
    if (c->log.length)
        append_write(&file, c->log.data, c->log.length);
    text_clear(&c->log);
    return append_close(&file);
}

int curation_go_on(struct curation *c, const struct json *state, const char *path)
{
    struct file_view keys = {0};
    i64 count = json_integer(json_get(state, "seen"), -1);
    if (count < 0 || json_count(json_get(state, "counts")) != CURATE_RULES || file_map(&keys, path) < 0)
        return error_set("%s: what was seen is not there", path);
    int status = keys.bytes < count * 8 ? error_set("%s: cut short", path) : 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        u64 key;
        memcpy(&key, keys.data + 8 * i, 8);
        seen_add(c->seen, key);
    }
    file_unmap(&keys);
    c->inside = json_bool(json_get(state, "inside"), false);
    c->masked = json_integer(json_get(state, "masked"), 0);
    c->masked_samples = json_integer(json_get(state, "masked_samples"), 0);
    for (int rule = 0; rule < CURATE_RULES; rule++) {
        const struct json *examples = json_at(json_get(state, "examples"), rule);
        c->counts[rule] = json_integer(json_at(json_get(state, "counts"), rule), 0);
        for (i64 i = 0; i < min_i64(EXAMPLES_KEPT, json_count(examples)); i++)
            c->examples[rule][i] =
                (struct example){string_copy(json_string(json_get(json_at(examples, i), "name"), "")),
                                 string_copy(json_string(json_get(json_at(examples, i), "text"), ""))};
    }
    return status;
}

/* ---- For people ---- */

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
            log_info("left out: %lld samples %s (the first: %s)", (long long)c->counts[rule], rule_names[rule],
                     c->examples[rule][0].name);
    if (c->masked)
        log_info("%lld addresses and numbers of persons masked in %lld samples", (long long)c->masked,
                 (long long)c->masked_samples);
    if (seen_forgotten(c->seen))
        log_warn("filter.memory_bytes: what was seen did not fit, and the older half was forgotten %lld times: "
                 "duplicates far apart stay",
                 (long long)seen_forgotten(c->seen));
}
