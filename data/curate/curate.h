/* Curation: which samples of a collection are worth preparing, decided while `prepare` reads them.
 *
 *   workers:  texts -> words -> mask, what a rule says of the sample alone, keys of its content
 *   in order: keys -> what the samples before it, or the texts of `against`, say
 *
 * Words are runs of letters and digits, lower case in ASCII; a character of a script without spaces (from U+2E80 on) is
 * a word by itself. A text that goes on in the next sample is masked, nothing else. Duplicates are what stands later in
 * the order of files. */
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
/* Near duplicates: `NEAR_BANDS` bands of `NEAR_ROWS` minima over the hashes of runs of NEAR_WORDS words: texts that
 * share a part s of these runs meet with the probability 1 - (1 - s^8)^14: .01 at .4, .56 at .7, .92 at .8. */
enum { NEAR_BANDS = 14, NEAR_ROWS = 8, NEAR_WORDS = 5, EXAMPLES_KEPT = 5 };

struct curate_settings {
    i64 chars_least, chars_most; /* of plain texts; most 0: any */
    struct string_list scripts;
    double script_share;
    struct string_list languages;
    double language_least;
    int personal, duplicates;
    i64 memory_bytes; /* of what was seen */
    char *seen;       /* folders that prepare made, a line each: what they hold was seen */
    char *against;    /* references, a line each */
    i64 against_words;
    i64 side_least;
    double aspect_most, dark, silence_db;
    i64 caption_times; /* media that a caption may stand at; 0: any number */
};
#define CURATE_ROWS(type)                                                                                              \
    SETTING(type, filter.chars_least, "filter.chars_least", INTEGER, "0", 0, 1e12, NULL,                               \
            "plain texts of fewer characters are left out"),                                                           \
        SETTING(type, filter.chars_most, "filter.chars_most", INTEGER, "0", 0, 1e12, NULL,                             \
                "plain texts of more are; 0: none"),                                                                   \
        SETTING(type, filter.scripts, "filter.scripts", STRINGS, "", 0, 0, NULL,                                       \
                "scripts that letters of texts stand in: latin, greek, cyrillic, armenian, hebrew, arabic, "           \
                "devanagari, bengali, tamil, thai, georgian, hangul, kana, han; none: any"),                           \
        SETTING(type, filter.script_share, "filter.script_share", NUMBER, "0.8", 0, 1, NULL,                           \
                "least share of a text's letters in these"),                                                           \
        SETTING(type, filter.languages, "filter.languages", STRINGS, "", 0, 0, NULL,                                   \
                "languages of texts, by libexttextcat's profiles: en, de, zh, zh-Hans, ..; none: any"),                \
        SETTING(type, filter.language_least, "filter.language_least", NUMBER, "0.97", 0, 1, NULL,                      \
                "1: one of these has to be the nearest of all languages; less: the distance of the nearest by that "   \
                "of the nearest of these has to be as much"),                                                          \
        SETTING(type, filter.personal, "filter.personal", CHOICE, "keep", 0, 0, "keep|mask|drop",                      \
                "e-mail and IP addresses and telephone numbers in texts"),                                             \
        SETTING(type, filter.duplicates, "filter.duplicates", CHOICE, "keep", 0, 0, "keep|exact|near",                 \
                "what is left out: samples of the same words and media; near: texts of nearly the same words too"),    \
        SETTING(type, filter.memory_bytes, "filter.memory_bytes", INTEGER, "1073741824", 4096, 1e13, NULL,             \
                "memory of what was seen; what does not fit is forgotten, the oldest first"),                          \
        SETTING(type, filter.seen, "filter.seen", REFERENCES, "", 0, 0, NULL,                                          \
                "shards that were prepared before, with filter.duplicates: what they hold is a duplicate here"),       \
        SETTING(type, filter.against, "filter.against", REFERENCES, "", 0, 0, NULL,                                    \
                "collections, as `data`: texts that share a run of words with them are left out"),                     \
        SETTING(type, filter.against_words, "filter.against_words", INTEGER, "13", 1, 1000, NULL,                      \
                "words of such a run; shorter texts count as a whole"),                                                \
        SETTING(type, filter.caption_times, "filter.caption_times", INTEGER, "0", 0, 1000, NULL,                       \
                "media beyond so many with the same caption are left out; 0: none"),                                   \
        SETTING(type, filter.side_least, "filter.side_least", INTEGER, "0", 0, 1e6, NULL,                              \
                "pictures and clips whose shorter side has fewer pixels are left out"),                                \
        SETTING(type, filter.aspect_most, "filter.aspect_most", NUMBER, "0", 0, 1e6, NULL,                             \
                "those whose longer side is more times the shorter are; 0: none"),                                     \
        SETTING(type, filter.dark, "filter.dark", NUMBER, "0", 0, 1, NULL,                                             \
                "those none of whose frames is brighter in the mean are; 0 to 1"),                                     \
        SETTING(type, filter.silence_db, "filter.silence_db", NUMBER, "0", -200, 0, NULL,                              \
                "sounds, and clips with film_sound, that are softer throughout are left out: dB of full scale, of "    \
                "the loudest tenth of a second; 0: none")

/* What workers find out about one sample. */
struct curate_item {
    enum curate_rule rule;  /* of the sample alone */
    enum curate_rule shown; /* of what of it is shown: the rest of a long file may stay */
    bool has_content;
    u64 content, media; /* hashes; media: of the bytes of its files */
    u64 *bands;         /* [NEAR_BANDS]; NULL: too short */
    i64 masked;         /* addresses and numbers */
    i64 entry;          /* where its keys stand among those since the last save, from 1 on; 0: it has none */
};
struct curation;
/* NULL where no rule is asked for (*status 0), or with a message (-1). */
struct curation *curation_open(const struct curate_settings *settings, int *status);
void curation_close(struct curation *curation);
/* On any thread: masks texts of the sample, and looks at them. */
void curation_look(const struct curation *curation, struct curate_item *out, struct sample *sample);
/* The same of a sample whose text is what is said while it is shown. */
void curation_look_at_shown(const struct curation *curation, struct curate_item *out, struct sample *sample);
void curation_medium(const struct curation *curation, struct curate_item *out, const void *bytes, i64 count);
void curation_size(const struct curation *curation, struct curate_item *out, double height, double width);
void curation_light(const struct curation *curation, struct curate_item *out, const u8 *pixels, i64 frames,
                    i64 frame_bytes);
void curation_sound(const struct curation *curation, struct curate_item *out, const float *values, i64 count,
                    i64 rate_hz);
/* In order: whether the sample stays. The file of a long one is asked for first: where it stays, each of its windows or
 * pieces counts as a sample. */
bool curation_keep(struct curation *curation, struct curate_item *item, const struct sample *sample);
bool curation_keep_file(struct curation *curation, struct curate_item *item, const struct sample *sample);
bool curation_keep_window(struct curation *curation, const struct curate_item *item, const struct sample *sample);
void curate_item_release(struct curate_item *item);

/* Going on: counts and examples; what was seen stands in a file of its own, of which so many keys count. */
struct json *curation_state(const struct curation *curation);
int curation_save(struct curation *curation, const char *path);
/* How many records a sample that was kept became, before the next save. */
void curation_wrote(struct curation *curation, const struct curate_item *item, i64 records);
bool curation_has_keys(const struct curation *curation);
int curation_go_on(struct curation *curation, const struct json *state, const char *path);
struct json *curation_json(const struct curation *curation); /* for people: rules, counts, examples */
void curation_log(const struct curation *curation);

/* ---- curate_keys.c: what stays in the folder for filter.seen and the stage dedup ---- */
extern const char *const curation_keys; /* the file: little-endian, an entry for each sample that was kept, in order */
struct key_entry {
    u8 keys, split, captioned, reserved;
    u32 records; /* that the sample became, in its part of the shards */
}; /* then u64 [keys]: of the caption, if captioned; of the content; of NEAR_BANDS bands; or fewer of these */
/* The keys of folder's file, or -1 and a message. */
int key_file_open(struct file_view *file, const char *folder);
/* The entry at byte *at, which moves behind it, and its keys; false: there are no more. */
bool key_entry_next(struct key_entry *out, const u8 **keys, const struct file_view *file, i64 *at);
static inline u64 key_of_entry(const u8 *keys, i64 i)
{
    u64 key;
    memcpy(&key, keys + 8 * i, 8);
    return key;
}
/* ---- curate_text.c ---- */
struct words { /* of a text: normalised, one space between */
    struct text text;
    i64 *begin; /* [count + 1] */
    i64 count, capacity;
};
void words_add(struct words *words, const char *text, i64 length);
void words_release(struct words *words);
i64 text_chars(const char *text, i64 length);
i64 text_at_char(const char *text, i64 length, i64 index); /* in bytes, or its length */
int script_named(const char *name);                        /* -1: none */
/* Letters of each script; returns those of any. */
i64 script_letters(i64 *counts, const char *text, i64 length);
/* The letters of the script that most of the text is in, where a character of Han, kana (which go together) and hangul
 * counts for three, with the apostrophes and hyphens between them; one blank for all else. Nothing where there are
 * none. */
void script_letters_of_main(struct text *out, const char *text, i64 length);
enum { SCRIPTS = 14 };
extern const char *const script_names[SCRIPTS];
/* The text with <email>, <ip> and <phone> in their place; returns how many. out NULL: counts alone. */
i64 personal_mask(struct text *out, const char *text, i64 length);

/* ---- curate_seen.c: a set of keys in bounded memory; the oldest half is forgotten when it is full ---- */
struct seen;
struct seen *seen_open(i64 memory_bytes);
void seen_close(struct seen *seen);
bool seen_has(const struct seen *seen, u64 key);
void seen_add(struct seen *seen, u64 key);
/* How many media have a caption, up to `most`; one more. */
i64 seen_captions(const struct seen *seen, u64 caption, i64 most);
void seen_add_caption(struct seen *seen, u64 caption, i64 most);
i64 seen_forgotten(const struct seen *seen); /* how often a half was */
#endif
