/* weft-corpus: makes a small corpus of text, pictures, clips and speech from Debian packages, so
 * that a machine without data sets can train on something. The output:
 *
 *   DIR/train/ validation/ test/   captions.jsonl
 *     image/1f34e.png   {"image":"image/1f34e.png","text":"red apple, round, orange and red"}
 *     video/00001.mp4   {"video":"video/00001.mp4","text":"the bus moves up, wide, blue and gray"}
 *     audio/00001.wav   {"audio":"audio/00001.wav","text":"seven","speaker":"en-us+f3"}
 *     text.jsonl        {"text":"..."}
 *     image_rl.jsonl    {"prompt":"red apple, round, orange and red","to":"image","reward_model":{..}}
 *     video_rl.jsonl  audio_rl.jsonl
 *   DIR/train/sort_sft.jsonl  sort_rl.jsonl  DIR/validation/sort_sft.jsonl  DIR/test/sort_rl.jsonl
 *
 * or, with --talk, train/talk.jsonl and train/image: greetings, questions, pictures; with --sums
 * sums_sft.jsonl of train and validation, and sums_rl.jsonl of all parts; with --photos image/ of
 * train and validation: squares of photographs, without captions.
 *
 * The 3 parts share no base glyph, no sentence and no voice. Every random draw is keyed by the seed
 * and by its purpose, so the same seed and packages give the same bytes.
 *
 * Where is what: main.c makes one split after the other; pictures.c, clips.c, speech.c, text.c,
 * sorting.c, sums.c, talk.c and photos.c make them; glyphs.c reads the names of emoji, split.c holds some of them out,
 * font.c draws them, colours.c and form.c describe them, motion.c
 * and judge.c read them back; phrases.c draws spoken text, espeak.c
 * sends it to speaker.c, a program of its own; write.c writes files and runs items on all
 * workers. Clips and sounds belong to the function that makes them, captions to struct corpus
 * until they are written. */
#ifndef WEFT_CORPUS_H
#define WEFT_CORPUS_H
#include "data/media/media.h"
#include "core/json.h"
#include "data/sources/sources.h"
#include <stdio.h>
#include <sys/types.h>

/* First counter word of the draws with RNG_CORPUS. The values never change. */
enum draw {
    DRAW_GLYPHS = 1,
    DRAW_HELD_OUT = 2,
    DRAW_MOTION = 3,
    DRAW_VOICE = 4,
    DRAW_SENTENCE = 5,
    DRAW_TEXT = 6,
    DRAW_SORT = 7,
    DRAW_TALK = 8,
    DRAW_SUMS = 9,
    DRAW_PHOTOS = 10
};
/* Last counter word of the draws with DRAW_TALK, behind the item and its turn. */
enum talk_draw {
    TALK_TURNS,
    TALK_KIND,
    TALK_TOPIC,
    TALK_WORDS,
    TALK_CAPITAL,
    TALK_END,
    TALK_FILL, /* and the next ones */
    TALK_ORDER = 16,
    TALK_DIGITS = 32 /* and all behind it */
};

enum medium { IMAGE, VIDEO, AUDIO, MEDIA };
extern const char *const medium_names[MEDIA]; /* "image", .. */

struct corpus {
    const char *directory;
    const char *photos; /* nothing but squares of the photographs in this folder; NULL: none */
    u64 seed;
    /* Amounts requested; size: height and width of pictures, pixels. */
    i64 glyphs, clips, spoken, text_bytes, size;
    bool wordnet; /* nothing but text, and each entry of WordNet once */
    bool talk;    /* nothing but conversations, and the pictures that they show */
    bool sums;    /* nothing but the task of sums */
    bool think;   /* running sums stand in <think> */
    struct rng_key key;
    struct buffer captions[SPLITS]; /* captions.jsonl so far */
    struct buffer prompts[SPLITS][MEDIA];
};
void corpus_release(struct corpus *corpus);

/* Number of a split's items: validation and test get 1/10 of `total` each, at least 1. */
i64 split_count(i64 total, enum split split);

/* Path of a split's file; free with memory_free. */
char *corpus_path(const struct corpus *corpus, enum split split, const char *name);
/* Writes a file of a split. It is not synced: the caller of weft-corpus renames the whole folder
 * when it is complete. */
int corpus_save(const struct corpus *corpus, enum split split, const char *name, const void *data, i64 bytes);
/* Adds a line to captions.jsonl, and to the medium's prompts; speaker may be NULL. */
void corpus_caption(struct corpus *corpus, enum split split, enum medium medium, const char *file, const char *caption,
                    const char *speaker);
/* Writes captions.jsonl and the prompts of all parts. */
int corpus_save_captions(const struct corpus *corpus);
void append_line(struct buffer *out, struct json *object); /* appends as a line, frees it */
struct json *corpus_message(const char *role, struct json *content);

/* Runs `count` items on all workers, with a progress bar. An item returns -1 with a message on
 * failure; run_items reports the message of the first failed item. */
typedef int item_fn(void *context, i64 item, int worker);
int run_items(const char *label, i64 count, item_fn *run, void *context);

/* ---- Glyphs ---- */
enum { CODE_POINTS_MAX = 12 };
struct glyph {
    u32 code_points[CODE_POINTS_MAX], index; /* index: in the font */
    int length;
    u64 base;      /* equal for glyphs that show the same thing; one split holds them all */
    char *caption; /* "red apple" */
    char *file;    /* "1f34e.png" */
    char *looks;   /* "tall, red and green", set with its picture */
    bool noun;     /* true if "the CAPTION moves" is a sentence */
    enum split split;
};
struct glyph_list {
    struct glyph *items;
    i64 count;
};
int glyph_list_load(struct glyph_list *list); /* loads all names; index and split stay unset */
void glyph_list_release(struct glyph_list *list);
/* Keeps at most `wanted` of the glyphs that the font can draw. */
int glyphs_choose(struct glyph_list *list, i64 wanted, struct rng_key key);
/* Assigns base glyphs to validation and test, if training also has every word of their captions. */
void glyphs_split(struct glyph_list *list, struct rng_key key);

/* Colour bitmaps of the emoji font. Each worker has its own font; all share the mapped file. */
struct font {
    void *library, *face;
};
struct font_file {
    struct file_view view;
};
int font_file_open(struct font_file *file);
void font_file_close(struct font_file *file);
int font_open(struct font *font, const struct font_file *file);
void font_close(struct font *font);
int fonts_open(struct font **fonts, const struct font_file *file); /* one per worker */
void fonts_close(struct font *fonts);
/* Renders a glyph as a square on white, at the font's own size. looks receives its form and
 * colours, e.g. "tall, red and green"; may be NULL. */
int font_picture(struct clip *out, struct buffer *looks, const struct font *font, u32 index);
/* Sets each glyph's index to the single bitmap of its whole sequence, 0 if there is none. */
void font_find(struct glyph_list *list, const struct font_file *file);

/* Describes what is visible, in words. Colours are numbers below COLOURS. */
enum { COLOURS = 11, FORM_WORDS = 5 };
extern const char *const colour_names[COLOURS], *const form_words[FORM_WORDS];
int colour_of(int red, int green, int blue); /* 0 to 255 each */
/* Names the 3 most frequent, at least 1/7 each. */
void describe_colours(struct buffer *out, const i64 pixels[COLOURS]);
/* Appends "round", "tall thin" or nothing. pixels: the area of the thing; height, width: its
 * bounding box. */
void describe_form(struct buffer *out, i64 pixels, i64 height, i64 width);
/* Statistics of the pixels of a thing: the count of each colour, and their bounding box. */
struct looks {
    i64 colours[COLOURS], pixels, top, left, bottom, right;
};
void looks_add(struct looks *looks, i64 y, i64 x, int colour);
void describe_looks(struct buffer *out, const struct looks *looks); /* appends "tall, red and green" */
/* The looks of what stands on a white ground, [height, width, 3]. White that the border does not
 * reach belongs to the thing. mask [height * width]: 1 where the thing is; may be NULL. */
void looks_read(struct looks *out, u8 *mask, const u8 *pixels, i64 height, i64 width);

/* How the thing of a clip moves. */
enum motion { MOVE_LEFT, MOVE_RIGHT, MOVE_UP, MOVE_DOWN, GROW, SHRINK, TURN_CLOCKWISE, TURN_ANTICLOCKWISE };
enum { MOTIONS = TURN_ANTICLOCKWISE + 1 };
extern const char *const motion_phrases[MOTIONS]; /* e.g. "moves to the left" */
int motion_of(const struct clip *clip);           /* enum motion; -1: none */

/* `weft-corpus judge`: a program of `verifier: program` (rl/program.h). Each line of `in` names a
 * picture or clip and its caption:
 *
 *   {"id":0,"image":"FILE","ground_truth":"red apple, round, orange and red"}    or "video"
 *   {"id":0,"score":0.8,"read":"round, red"}
 *
 * The score is the F1 of the words for form, colours and motion that judge_read finds, beside those
 * of the caption. A caption without any of them scores 0, and is counted on stderr. -1 and a message:
 * a line that is none of this, a file that cannot be read, or no caption with such words. */
int judge(FILE *in, FILE *out);
void judge_read(struct buffer *out, const struct clip *clip); /* "moves up, wide, blue and gray" */
double judge_f1(const char *caption, const char *read);       /* -1: the caption has no such words */

/* ---- The parts of the corpus ---- */
int make_pictures(struct corpus *corpus, struct glyph_list *list, const struct font_file *file);
int make_clips(struct corpus *corpus, const struct glyph_list *list, const struct font_file *file);
int make_speech(struct corpus *corpus);
int make_text(struct corpus *corpus);
int make_sorting(const struct corpus *corpus);
int make_sums(const struct corpus *corpus);
/* Squares of the photographs in a folder: corpus->photos, of corpus->size pixels a side. One photograph of four is of
 * validation. A file that is no picture gives none. */
int make_photos(const struct corpus *corpus);
int make_talk(const struct corpus *corpus, const struct glyph_list *list); /* the pictures are made */
/* Adds a prompt of the sorting task that is not held out, and an answer like those of fine-tuning. */
void sorting_talk(struct json *messages, struct rng_key key, u32 item, u32 turn);

/* Spoken words, and sentences that belong to one split each. */
extern const char *const spoken_words[];
extern const i64 spoken_words_count;
void phrase_draw(struct buffer *out, enum split split, struct rng_key key, u32 item);

/* Synthesizes a text with a voice of espeak-ng, resampled to rate_hz. Each worker has its own
 * speaker, initialised to 0. */
struct utterance {
    const char *text, *voice;
    int speed, pitch; /* words per minute; 0 to 99 */
};
struct speaker {
    pid_t process;
    int to, from;
};
int utterance_speak(struct sound *out, struct speaker *speaker, const struct utterance *utterance, i64 rate_hz);
void speaker_close(struct speaker *speaker);

#endif
