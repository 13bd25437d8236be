#include "data/curate.h"
#include "data/append.h"
#include "data/shards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXAMPLE_BYTES = 160 };
static const char *const rule_names[CURATE_RULES] = {
    [CURATE_KEPT] = "kept",
    [CURATE_SHORT] = "shorter than filter.chars_least",
    [CURATE_LONG] = "longer than filter.chars_most",
    [CURATE_SCRIPT] = "in other scripts",
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

struct example {
    char *name, *text;
};
struct curation {
    const struct curate_settings *s;
    u64 scripts; /* bit i: script i is wanted */
    u64 *against;
    i64 against_count, against_capacity;
    struct seen *seen;
    i64 before;      /* keys that stood in filter.seen */
    struct text log; /* keys since the last save */
    bool inside;     /* a text that goes on */
    i64 counts[CURATE_RULES], masked, masked_samples;
    struct example examples[CURATE_RULES][EXAMPLES_KEPT];
};

/* ---- Opening ---- */

static bool is_given(const char *text)
{
    return text && *text;
}

static bool asks(const struct curate_settings *s)
{
    return s->chars_least || s->chars_most || s->scripts.count || s->personal || s->duplicates || is_given(s->seen) ||
           is_given(s->against) || s->caption_times || s->side_least || s->aspect_most > 0 || s->dark > 0 ||
           s->silence_db < 0;
}

static int read_scripts(struct curation *c)
{
    for (i64 i = 0; i < c->s->scripts.count; i++) {
        int script = script_named(c->s->scripts.values[i]);
        if (script < 0)
            return error_usage("filter.scripts: \"%s\" is none: expected latin, greek, cyrillic, armenian, hebrew, "
                               "arabic, devanagari, bengali, tamil, thai, georgian, hangul, kana or han",
                               c->s->scripts.values[i]);
        c->scripts |= (u64)1 << script;
    }
    return 0;
}

static u64 hash_words(const struct words *w, i64 first, i64 count)
{
    return hash_bytes(w->text.data + w->begin[first], w->begin[first + count] - 1 - w->begin[first], 0);
}

static void push_against(struct curation *c, u64 hash)
{
    if (c->against_count == c->against_capacity) {
        i64 next = max_i64(1024, 2 * c->against_capacity);
        c->against = memory_resize(c->against, c->against_capacity * 8, next * 8);
        c->against_capacity = next;
    }
    c->against[c->against_count++] = hash;
}

/* Its runs; of a text that is shorter than one, all of it. */
static void add_against(struct curation *c, const struct words *w)
{
    i64 run = min_i64(c->s->against_words, w->count);
    for (i64 i = 0; run && i + run <= w->count; i++)
        push_against(c, hash_words(w, i, run));
}

static int read_against(struct curation *c, const char *path)
{
    struct source *source = source_open(path, NULL);
    struct sample sample;
    enum source_result result = SOURCE_SAMPLE;
    if (!source)
        return error_prefix("filter.against");
    while (result != SOURCE_END && result != SOURCE_UNREACHABLE && !interrupted()) {
        result = source_next(source, &sample);
        for (i64 i = 0; result == SOURCE_SAMPLE && i < sample.count; i++) {
            struct words words = {0};
            if (sample.parts[i].kind == SAMPLE_TEXT)
                words_add(&words, sample.parts[i].bytes.data, sample.parts[i].bytes.length);
            add_against(c, &words);
            words_release(&words);
        }
        if (result == SOURCE_SAMPLE)
            sample_release(&sample);
        else if (result != SOURCE_END && result != SOURCE_UNREACHABLE)
            log_warn("filter.against: skipped: %s", error_text());
    }
    source_close(source);
    return interrupted() ? error_interrupted() : result == SOURCE_UNREACHABLE ? error_prefix("filter.against") : 0;
}

static int by_value(const void *a, const void *b)
{
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return (x > y) - (x < y);
}

static int open_against(struct curation *c)
{
    int status = 0;
    for (const char *at = c->s->against; status == 0 && is_given(at);) {
        size_t length = strcspn(at, "\n");
        char *path = string_format("%.*s", (int)length, at);
        status = read_against(c, path);
        memory_free(path);
        at += length + (at[length] == '\n');
    }
    if (c->against_count)
        qsort(c->against, (size_t)c->against_count, 8, by_value);
    return status;
}

const char *const curation_keys = "keys";

bool curation_has_keys(const struct curation *c)
{
    return c && (c->s->duplicates || c->s->caption_times);
}

static int read_seen(struct curation *c, const char *directory)
{
    struct file_view keys = {0};
    char *path = path_join(directory, curation_keys);
    int status = file_exists(path)
                     ? file_map(&keys, path) < 0 ? -1 : 0
                     : error_set("%s: what it holds is not known: expected shards that were prepared with "
                                 "filter.duplicates",
                                 directory);
    if (status == 0 && keys.bytes % 8)
        status = error_set("%s: %lld bytes are no keys of 8: it is damaged", path, (long long)keys.bytes);
    for (i64 at = 0; status == 0 && at < keys.bytes; at += 8) {
        u64 key;
        memcpy(&key, keys.data + at, 8);
        seen_add(c->seen, key);
    }
    file_unmap(&keys);
    memory_free(path);
    return status;
}

static int open_seen(struct curation *c)
{
    struct string_list folders = {0};
    if (!is_given(c->s->seen))
        return 0;
    if (!curation_has_keys(c))
        return error_usage(
            "filter.seen: says what duplicates are of: expected filter.duplicates, or filter.caption_times, "
            "beside it");
    int status = shard_folders_list(&folders, c->s->seen);
    for (i64 i = 0; i < folders.count && status == 0; i++)
        status = read_seen(c, folders.values[i]);
    string_list_free(folders.values, folders.count);
    c->before = seen_added(c->seen);
    return status < 0 ? error_prefix("filter.seen") : 0;
}

struct curation *curation_open(const struct curate_settings *s, int *status)
{
    *status = 0;
    if (!asks(s))
        return NULL;
    struct curation *c = memory_alloc(sizeof *c);
    c->s = s;
    c->seen = seen_open(s->memory_bytes);
    *status = read_scripts(c) < 0 || open_seen(c) < 0 ? -1 : open_against(c);
    if (*status == 0)
        return c;
    curation_close(c);
    return NULL;
}

void curation_close(struct curation *c)
{
    if (!c)
        return;
    for (int rule = 0; rule < CURATE_RULES; rule++)
        for (i64 i = 0; i < EXAMPLES_KEPT; i++) {
            memory_free(c->examples[rule][i].name);
            memory_free(c->examples[rule][i].text);
        }
    seen_close(c->seen);
    text_release(&c->log);
    memory_free(c->against);
    memory_free(c);
}

/* ---- A sample alone ---- */

/* The first rule that speaks is the one that counts. */
static void object(struct curate_item *item, enum curate_rule rule, bool holds)
{
    if (holds && item->rule == CURATE_KEPT)
        item->rule = rule;
}

static void mask(const struct curation *c, struct curate_item *out, struct text *text)
{
    struct text masked = {0};
    bool replace = c->s->personal == PERSONAL_MASK;
    out->masked += personal_mask(replace ? &masked : NULL, text->data, text->length);
    if (!replace || out->masked == 0) {
        text_release(&masked);
        return;
    }
    text_release(text);
    *text = masked;
}

/* [NEAR_BANDS]: what each band's minima hash to. */
static u64 *bands_of(const struct words *w)
{
    u64 minima[NEAR_BANDS * NEAR_ROWS], *bands = memory_alloc(NEAR_BANDS * 8);
    memset(minima, 0xff, sizeof minima);
    for (i64 i = 0; i + NEAR_WORDS <= w->count; i++) {
        u64 hash = hash_words(w, i, NEAR_WORDS);
        for (u64 k = 0; k < NEAR_BANDS * NEAR_ROWS; k++) { /* a multiplication and a fold draw an order for each k */
            u64 value = (hash ^ (k + 1) * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
            value = (value ^ value >> 32) * 0xd6e8feb86659fd93u;
            minima[k] = value < minima[k] ? value : minima[k];
        }
    }
    for (u64 band = 0; band < NEAR_BANDS; band++)
        bands[band] = hash_bytes(minima + band * NEAR_ROWS, NEAR_ROWS * 8, band + 1);
    return bands;
}

static bool is_against(const struct curation *c, const struct words *w)
{
    i64 run = min_i64(c->s->against_words, w->count);
    for (i64 i = 0; c->against_count && run && i + run <= w->count; i++) {
        u64 hash = hash_words(w, i, run);
        if (bsearch(&hash, c->against, (size_t)c->against_count, 8, by_value))
            return true;
    }
    return false;
}

static void look_at_scripts(const struct curation *c, struct curate_item *out, const struct text *text)
{
    i64 counts[SCRIPTS] = {0}, wanted = 0, letters = script_letters(counts, text->data, text->length);
    for (int i = 0; i < SCRIPTS; i++)
        wanted += c->scripts >> i & 1 ? counts[i] : 0;
    object(out, CURATE_SCRIPT, c->scripts && (double)wanted < c->s->script_share * (double)letters);
}

static void look_at_text(const struct curation *c, struct curate_item *out, struct text *text,
                         enum sample_layout layout)
{
    i64 chars = text_chars(text->data, text->length);
    if (c->s->personal != PERSONAL_KEEP)
        mask(c, out, text);
    if (layout == SAMPLE_PLAIN) {
        object(out, CURATE_SHORT, chars < c->s->chars_least);
        object(out, CURATE_LONG, c->s->chars_most > 0 && chars > c->s->chars_most);
    }
    if (layout == SAMPLE_PLAIN || layout == SAMPLE_CHAT)
        look_at_scripts(c, out, text);
}

void curation_look(const struct curation *c, struct curate_item *out, struct sample *sample)
{
    struct words words = {0};
    for (i64 i = 0; i < sample->count; i++) {
        struct sample_part *part = &sample->parts[i];
        if (part->kind == SAMPLE_TEXT) {
            look_at_text(c, out, &part->bytes, sample->layout);
            words_add(&words, part->bytes.data, part->bytes.length);
        } else if (part->kind == SAMPLE_IDS) {
            out->content = hash_bytes(part->bytes.data, part->bytes.length, out->content);
            out->has_content = true;
        }
    }
    object(out, CURATE_PERSONAL, c->s->personal == PERSONAL_DROP && out->masked > 0);
    object(out, CURATE_AGAINST, is_against(c, &words));
    if (words.count)
        out->content = hash_bytes(words.text.data, words.text.length, out->content);
    out->has_content |= words.count > 0;
    bool text_alone = sample->layout == SAMPLE_PLAIN || sample->layout == SAMPLE_CHAT;
    if (c->s->duplicates == DUPLICATES_NEAR && text_alone && words.count >= NEAR_WORDS)
        out->bands = bands_of(&words);
    words_release(&words);
}

void curation_medium(const struct curation *c, struct curate_item *out, const void *bytes, i64 count)
{
    if (c->s->duplicates)
        out->media = hash_bytes(bytes, count, out->media + 1);
}

void curation_size(const struct curation *c, struct curate_item *out, double height, double width)
{
    double least = fmin(height, width), most = fmax(height, width);
    object(out, CURATE_SMALL, least < (double)c->s->side_least);
    object(out, CURATE_ASPECT, c->s->aspect_most > 0 && most > c->s->aspect_most * least);
}

void curation_light(const struct curation *c, struct curate_item *out, const u8 *pixels, i64 frames, i64 frame_bytes)
{
    bool bright = c->s->dark <= 0;
    for (i64 frame = 0; frame < frames && !bright; frame++) {
        i64 sum = 0;
        for (i64 i = 0; i < frame_bytes; i++)
            sum += pixels[frame * frame_bytes + i];
        bright = (double)sum > c->s->dark * 255 * (double)frame_bytes;
    }
    object(out, CURATE_DARK, !bright);
}

void curation_sound(const struct curation *c, struct curate_item *out, const float *values, i64 count, i64 rate_hz)
{
    double loudest = 0;
    i64 window = max_i64(1, rate_hz / 10);
    for (i64 begin = 0; c->s->silence_db < 0 && begin < count; begin += window) {
        double squares = 0;
        i64 end = min_i64(begin + window, count);
        for (i64 i = begin; i < end; i++)
            squares += (double)values[i] * (double)values[i];
        loudest = fmax(loudest, squares / (double)(end - begin));
    }
    object(out, CURATE_SILENT, c->s->silence_db < 0 && loudest < pow(10, c->s->silence_db / 10));
}

void curate_item_release(struct curate_item *item)
{
    memory_free(item->bands);
    *item = (struct curate_item){0};
}

/* ---- In order ---- */

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
    if (item->rule != CURATE_KEPT)
        return item->rule;
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

bool curation_keep(struct curation *c, const struct curate_item *item, const struct sample *sample)
{
    bool piece = c->inside || sample->goes_on;
    enum curate_rule rule = piece ? CURATE_KEPT : judge(c, item, sample);
    c->inside = sample->goes_on;
    note_example(c, rule, sample);
    if (rule != CURATE_KEPT)
        return false;
    if (c->s->personal == PERSONAL_MASK) {
        c->masked += item->masked;
        c->masked_samples += item->masked > 0;
    }
    if (is_captioned(c, item, sample))
        note_key(c, caption_key(item, caption_count(c, item) + 1));
    if (c->s->duplicates && !piece && (item->has_content || item->media)) {
        note_key(c, content_of(item));
        for (i64 i = 0; item->bands && i < NEAR_BANDS; i++)
            note_key(c, item->bands[i]);
    }
    return true;
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
