/* Curation: decides which samples of a collection to keep while `prepare` reads them. Samples go in
 * through curation_inspect and the other per-sample checks; curation_keep returns the decision.
 *
 *   workers:  texts -> words -> masking, rules on the sample alone, content keys
 *   in order: keys -> comparison with earlier samples and with the texts of `against`
 *
 * A word is a run of letters and digits, lower-cased in ASCII; each character of a script without
 * spaces (from U+2E80 on) is a word by itself. A text that continues in the next sample is only
 * masked. Among duplicates, the first in the order of files is kept.
 *
 * The caller frees the curation with curation_close and each item with curate_item_release.
 *
 * Where is what: curate_open.c turns settings into rules; curate_rules.c judges one sample alone
 * (length, script, language, light, loudness); curate_text.c finds words, scripts, and addresses
 * to mask; curate.c applies the rules that compare samples (duplicates, captions) and counts;
 * curate_seen.c is the bounded memory of keys, curate_keys.c the file of keys beside shards;
 * curate_against.c holds the texts of filter.against; language.c names languages; dedup.c is the
 * stage that compares finished shard folders. */
#ifndef WEFT_DATA_CURATE_H
#define WEFT_DATA_CURATE_H
#include "core/json.h"
#include "core/settings.h"
#include "data/sources/sources.h"

#include <string.h>

enum curate_rule {
    CURATE_KEPT,
    CURATE_SHORT,
    CURATE_LONG,
    CURATE_SCRIPT,
    CURATE_LANGUAGE,
    CURATE_PERSONAL,
    CURATE_SMALL,
    CURATE_ASPECT,
    CURATE_DARK,
    CURATE_SILENT,
    CURATE_AGAINST,
    CURATE_CAPTION,
    CURATE_EXACT,
    CURATE_NEAR,
    CURATE_RULES
};
enum { PERSONAL_KEEP, PERSONAL_MASK, PERSONAL_DROP };
enum { DUPLICATES_KEEP, DUPLICATES_EXACT, DUPLICATES_NEAR };
/* Near-duplicate detection by MinHash LSH: NEAR_BANDS bands of NEAR_ROWS minima over the hashes of
 * runs of NEAR_WORDS words. Two texts that share a fraction s of these runs collide with
 * probability 1 - (1 - s^8)^14, which is 1 % at s = 0.4, 56 % at 0.7 and 92 % at 0.8. */
enum { NEAR_BANDS = 14, NEAR_ROWS = 8, NEAR_WORDS = 5, EXAMPLES_KEPT = 5 };

struct curate_settings {
    i64 chars_least, chars_most; /* bounds for plain texts; chars_most 0: none */
    struct string_list scripts;
    double script_share;
    struct string_list languages;
    double language_least;
    int personal, duplicates;
    i64 memory_bytes; /* capacity of the set of seen keys */
    char *seen;       /* folders that prepare wrote, one per line; their samples count as seen */
    char *against;    /* reference collections, one per line */
    i64 against_words;
    i64 side_least;
    double aspect_most, dark, silence_db;
    i64 caption_times; /* most media per caption; 0: unlimited */
};
#define CURATE_ROWS(type)                                                                                              \
    SETTING(type, filter.chars_least, "filter.chars_least", INTEGER, "0", 0, 1e12, NULL,                               \
            "drop plain texts with fewer characters"),                                                                 \
        SETTING(type, filter.chars_most, "filter.chars_most", INTEGER, "0", 0, 1e12, NULL,                             \
                "drop plain texts with more characters; 0: no limit"),                                                 \
        SETTING(type, filter.scripts, "filter.scripts", STRINGS, "", 0, 0, NULL,                                       \
                "scripts allowed in texts: latin, greek, cyrillic, armenian, hebrew, arabic, devanagari, bengali, "    \
                "tamil, thai, georgian, hangul, kana, han; none: any"),                                                \
        SETTING(type, filter.script_share, "filter.script_share", NUMBER, "0.8", 0, 1, NULL,                           \
                "minimum share of a text's letters in these scripts"),                                                 \
        SETTING(type, filter.languages, "filter.languages", STRINGS, "", 0, 0, NULL,                                   \
                "languages allowed in texts, as libexttextcat profiles: en, de, zh, zh-Hans, ..; none: any"),          \
        SETTING(type, filter.language_least, "filter.language_least", NUMBER, "0.97", 0, 1, NULL,                      \
                "minimum of (distance to the nearest language) / (distance to the nearest allowed language); 1: the "  \
                "nearest must be allowed"),                                                                            \
        SETTING(type, filter.personal, "filter.personal", CHOICE, "keep", 0, 0, "keep|mask|drop",                      \
                "handling of e-mail addresses, IP addresses and phone numbers in texts"),                              \
        SETTING(type, filter.duplicates, "filter.duplicates", CHOICE, "keep", 0, 0, "keep|exact|near",                 \
                "duplicates to drop; exact: same words and media; near: also texts with nearly the same words"),       \
        SETTING(type, filter.memory_bytes, "filter.memory_bytes", INTEGER, "1073741824", 4096, 1e13, NULL,             \
                "memory for the keys of earlier samples, bytes; the oldest are evicted when it is full"),              \
        SETTING(type, filter.seen, "filter.seen", REFERENCES, "", 0, 0, NULL,                                          \
                "shards prepared earlier with filter.duplicates; their samples count as already seen"),                \
        SETTING(type, filter.against, "filter.against", REFERENCES, "", 0, 0, NULL,                                    \
                "collections, as for `data`; drop texts that share a run of words with them"),                         \
        SETTING(type, filter.against_words, "filter.against_words", INTEGER, "13", 1, 1000, NULL,                      \
                "words per run; shorter texts must match as a whole"),                                                 \
        SETTING(type, filter.caption_times, "filter.caption_times", INTEGER, "0", 0, 1000, NULL,                       \
                "maximum media with the same caption, others are dropped; 0: no limit"),                               \
        SETTING(type, filter.side_least, "filter.side_least", INTEGER, "0", 0, 1e6, NULL,                              \
                "drop images and clips with a shorter side below this, pixels"),                                       \
        SETTING(type, filter.aspect_most, "filter.aspect_most", NUMBER, "0", 0, 1e6, NULL,                             \
                "drop images and clips with a larger ratio of longer to shorter side; 0: off"),                        \
        SETTING(type, filter.dark, "filter.dark", NUMBER, "0", 0, 1, NULL,                                             \
                "drop images and clips whose brightest frame has mean brightness below this (0-1)"),                   \
        SETTING(type, filter.silence_db, "filter.silence_db", NUMBER, "0", -200, 0, NULL,                              \
                "drop sounds, and clips with film_sound, whose loudest 0.1 s is below this level, dBFS; 0: off")

/* A worker's findings on one sample. */
struct curate_item {
    enum curate_rule rule;  /* verdict on the sample alone */
    enum curate_rule shown; /* verdict on its shown content; the rest of a long file may stay */
    bool has_content;
    u64 content, media; /* hashes; media: over the bytes of its files */
    u64 *bands;         /* [NEAR_BANDS]; NULL: too short */
    i64 masked;         /* number of masked addresses and phone numbers */
    i64 entry;          /* 1-based offset of its keys in the log since the last save; 0: no keys */
};
struct curation;
int curate_check_settings(const struct curate_settings *settings); /* names and contradictions */
/* -1 and a message if this machine has no profiles for filter.languages. */
int curate_check_languages(const struct curate_settings *settings);
/* Opens curation with the given settings. Returns NULL if no rule is set (*status 0) or on failure
 * with a message (*status -1). */
struct curation *curation_open(const struct curate_settings *settings, int *status);
void curation_close(struct curation *curation);
/* Masks the texts of the sample and checks them. Thread-safe. */
void curation_inspect(const struct curation *curation, struct curate_item *out, struct sample *sample);
/* Like curation_inspect, for a sample whose text is its subtitles. The verdict goes to `shown`. */
void curation_inspect_shown(const struct curation *curation, struct curate_item *out, struct sample *sample);
/* Checks of one medium, thread-safe: the hash of its file, its size in pixels, the brightness of
 * RGB frames [frames, frame_bytes], the loudness of a sound. */
void curation_medium(const struct curation *curation, struct curate_item *out, const void *bytes, i64 count);
void curation_size(const struct curation *curation, struct curate_item *out, double height, double width);
void curation_light(const struct curation *curation, struct curate_item *out, const u8 *pixels, i64 frames,
                    i64 frame_bytes);
void curation_sound(const struct curation *curation, struct curate_item *out, const float *values, i64 count,
                    i64 rate_hz);
/* Returns true if the sample stays; call in the order of samples. For a long file, call
 * curation_keep_file first; if the file stays, curation_keep_window judges each of its windows or
 * pieces as a sample. */
bool curation_keep(struct curation *curation, struct curate_item *item, const struct sample *sample);
bool curation_keep_file(struct curation *curation, struct curate_item *item, const struct sample *sample);
bool curation_keep_window(struct curation *curation, const struct curate_item *item, const struct sample *sample);
void curate_item_release(struct curate_item *item);

/* Saving and resuming. curation_state returns the counts and examples; the seen keys are appended
 * to the file `path`, and the state records how many of its bytes are valid. */
struct json *curation_state(const struct curation *curation);
int curation_save(struct curation *curation, const char *path);
/* Records how many records a kept sample became. Call before the next save. */
void curation_set_records(struct curation *curation, const struct curate_item *item, i64 records);
bool curation_has_keys(const struct curation *curation);
int curation_resume(struct curation *curation, const struct json *state, const char *path);
struct json *curation_json(const struct curation *curation); /* report: rules, counts, examples */
void curation_log(const struct curation *curation);

/* ---- curate_keys.c: the key file that filter.seen and the stage dedup read ---- */
extern const char *const curation_keys; /* file name; little-endian, one entry per kept sample, in order */
/* An entry of the key file. It is followed by u64 [keys]: of the caption if captioned, of the
 * content, of NEAR_BANDS bands; fewer where the sample lacks some. */
struct key_entry {
    u8 keys, split, captioned, reserved;
    u32 records; /* records the sample became in its split of the shards */
};
/* Maps and validates the key file of a folder. Returns -1 with a message on failure. */
int key_file_open(struct file_view *file, const char *folder);
/* Reads the entry at byte *at and its keys, and advances *at. Returns false at the end. */
bool key_entry_next(struct key_entry *out, const u8 **keys, const struct file_view *file, i64 *at);
static inline u64 key_of_entry(const u8 *keys, i64 i)
{
    u64 key;
    memcpy(&key, keys + 8 * i, 8);
    return key;
}
/* ---- curate_text.c ---- */
struct word_runs { /* a text's words, normalised, separated by one space */
    struct buffer text;
    i64 *begin; /* [count + 1] */
    i64 count, capacity;
};
/* Appends the words of a text. */
void words_add(struct word_runs *words, const char *text, i64 length);
void words_release(struct word_runs *words);
i64 text_chars(const char *text, i64 length);
i64 text_at_char(const char *text, i64 length, i64 index); /* byte offset, or length if past the end */
int script_named(const char *name);                        /* -1: none */
/* Counts the letters of each script into counts[SCRIPTS]; returns the letters of all scripts. */
i64 script_letters(i64 *counts, const char *text, i64 length);
/* Extracts the letters of the text's main script, with the apostrophes and hyphens between them and
 * one space for everything else. Each character of Han, kana (counted with Han) and hangul weighs 3
 * letters. The result is empty if the text has no letters. */
void script_letters_of_main(struct buffer *out, const char *text, i64 length);
enum { SCRIPTS = 14 };
extern const char *const script_names[SCRIPTS];
/* Replaces addresses and numbers by <email>, <ip> and <phone> and returns their count. If out is
 * NULL, only counts. */
i64 personal_mask(struct buffer *out, const char *text, i64 length);

/* ---- curate_seen.c: a bounded set of keys; when it is full, it forgets the oldest half ---- */
struct seen_keys;
struct seen_keys *seen_open(i64 memory_bytes);
void seen_close(struct seen_keys *seen);
bool seen_has(const struct seen_keys *seen, u64 key);
void seen_add(struct seen_keys *seen, u64 key);
/* Number of media seen with a caption, at most `most`. seen_add_caption adds one. */
i64 seen_captions(const struct seen_keys *seen, u64 caption, i64 most);
void seen_add_caption(struct seen_keys *seen, u64 caption, i64 most);
i64 seen_forgotten(const struct seen_keys *seen); /* number of times a half was forgotten */
#endif
