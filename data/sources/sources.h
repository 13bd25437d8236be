/* Sources: other people's files to samples, one after another.
 *
 *   .txt                  a document; a large one in pieces of about 64 KiB, cut at blank lines, that go on in the next
 *   .jsonl                a line {"text": ..} or {"content": ..}; {"image"|"video"|"audio": FILE, "text": CAPTION};
 *                         {"file_name": FILE, "text": CAPTION} (metadata.jsonl, metadata.csv); {"messages": [..]},
 *                         {"conversations": [..]}; {"question", "answer"}, {"prompt", "completion"}, {"instruction",
 *                         "input", "output"}; other lines are passed over
 *   .json                 a list of such objects, or several of them
 *   .parquet, .arrow      the same by columns; pictures, clips and sounds may be in it (Arrow: file or stream)
 *   .csv, .tsv            the same, with a header; every value is a text
 *   .txt .jsonl .json .csv .tsv .tar + .gz .zst .xz .bz2 .lz4
 *   a.jpg + a.txt         a medium and its caption; also .caption, .text, .transcript, and .json with a "caption"
 *   a.mp4 + a.srt         a clip or a sound and its subtitles, also .vtt
 *   a.mp4, a.mkv          a clip with subtitles inside, where nothing else says what it is
 *   .tar                  WebDataset: members KEY.EXT that follow each other are one sample
 *   .idx beside .bin      Megatron: documents of ids
 *   a folder              all of these in it, by name
 *
 * All but media may stand at https://HOST/FILE and s3://BUCKET/FILE too (remote.h), where {000..127}
 * stands for all numbers of as many digits, {a,b} for either, and s3://BUCKET/FOLDER for what is in it; to ranges and
 * folders applies what does to a folder that holds these files alone.
 *
 * What a record is, one function decides (source_forms.c), whatever the format; a table none of whose rows can be a
 * sample is refused with its columns; source_columns say what is called otherwise. A message is {"role", "content"}, or
 * ShareGPT's {"from", "value"}; a role that is not known is refused.
 *
 * A caption stands under "text", "caption" or "transcription". A message's content is text, with <image> <video>
 * <audio> standing for the files listed under "images", "videos", "audios", or a list of {"type":
 * "text"|"image"|"video"|"audio",
 * ..}. Files are named relative to the folder of the file that names them. A sample is an ordered list of parts; media
 * are named or carried as bytes, never decoded here. What becomes no sample is noted: nothing disappears silently.
 *
 * Parts. What stands in a folder train, validation or test of the folder that is read, or in a file of such a name
 * (train.jsonl, test-00001.tar), is of that part, also under the names training; valid, val, dev; testing, eval,
 * evaluation. Where there are parts but no train, what is in none is train; where there is a train, it is left out, but
 * for lines of captions.jsonl and metadata.jsonl about media in a part. Where there are none, samples are drawn, keyed
 * by their first medium, so that all that is said of one stays together, or else by their place.
 */
#ifndef WEFT_DATA_SOURCES_H
#define WEFT_DATA_SOURCES_H
#include "core/settings.h"

enum sample_kind { SAMPLE_TEXT, SAMPLE_IMAGE, SAMPLE_VIDEO, SAMPLE_AUDIO, SAMPLE_IDS };
struct sample_part {
    enum sample_kind kind;
    struct text bytes; /* text in UTF-8, a medium's file, or i32 ids */
    char *path;        /* of a medium that is not carried; NULL if it is */
    char *within; /* the file in which what is carried stands from byte `at` on; NULL: it is packed, or a table's */
    i64 at;
    i32 message; /* of a chat: which; else 0 */
    char *role;  /* set on the first part of a message */
};
enum split { SPLIT_TRAIN, SPLIT_VALIDATION, SPLIT_TEST, SPLITS };
extern const char *const split_names[SPLITS];
enum sample_layout {
    SAMPLE_PLAIN,     /* one text */
    SAMPLE_CAPTIONED, /* one medium and its text */
    SAMPLE_CHAT,      /* messages */
    SAMPLE_MIXED      /* texts and media in turn */
};
struct sample {
    u64 key; /* of its place: the same wherever the folder stands and whatever is read before it */
    enum sample_layout layout;
    enum split split;
    bool goes_on;     /* a text that is not at its end: the next sample goes on with it */
    char *name;       /* FILE:LINE, or FILE:KEY: for messages */
    char *speaker;    /* of a captioned sound; NULL: not said */
    char *subtitles;  /* the file of its text, where that says when; NULL */
    struct text cues; /* or what stands there, where it was found inside of the medium */
    struct sample_part *parts;
    i64 count, capacity;
};
void sample_release(struct sample *sample);
struct sample_part *sample_add(struct sample *sample, enum sample_kind kind);

enum source_result {
    SOURCE_SAMPLE,
    SOURCE_END,
    SOURCE_BAD,     /* what stands here is no sample: error_text() says why; the next call goes on behind it */
    SOURCE_DAMAGED, /* the rest of a file cannot be read: error_text() says why; the next call goes on behind the file
                     */
    SOURCE_UNREACHABLE /* an address cannot be read now, or interrupted() said so: error_text() says why; there is no
                        * next call, but another process may go on */
};
/* What of lines and tables is called otherwise than this program expects; "" or NULL: nothing. Where one is named, no
 * others are looked at. */
struct source_columns {
    char *text, *image, *video, *audio, *messages, *question, *answer;
    char *subtitles; /* of clips, where no caption is said: the language of those inside, "" any; "none": not looked for
                      */
};
struct source_request {
    u64 seed; /* of drawn parts */
    double validation, test;
    const struct source_columns *columns; /* borrowed until the source is closed; NULL: nothing is called otherwise */
    bool media_alone; /* media without a caption are samples too, and files of text alone are left out */
    i64 part, parts;  /* of the files that are read, in their order, every parts-th from `part` on; parts 0: all */
};
/* Rows for a settings table whose struct has `double validation, test` and `struct source_columns columns`. */
#define SPLIT_ROWS(type)                                                                                               \
    SETTING(type, validation, "validation", NUMBER, "0.01", 0, 1, NULL,                                                \
            "share for validation where data has neither that part nor test"),                                         \
        SETTING(type, test, "test", NUMBER, "0", 0, 1, NULL,                                                           \
                "share for test where data has neither that part nor validation"),                                     \
        COLUMN_ROW(type, text, "text or caption"), COLUMN_ROW(type, image, "picture"),                                 \
        COLUMN_ROW(type, video, "clip"), COLUMN_ROW(type, audio, "sound"), COLUMN_ROW(type, messages, "conversation"), \
        COLUMN_ROW(type, question, "question"), COLUMN_ROW(type, answer, "answer")
#define COLUMN_ROW(type, name, what)                                                                                   \
    SETTING(type, columns.name, "columns." #name, STRING, "", 0, 0, NULL,                                              \
            "column of tables, or key of lines, that holds the " what)

#define SUBTITLES_ROW(type)                                                                                            \
    SETTING(type, columns.subtitles, "subtitles", STRING, "", 0, 0, NULL,                                              \
            "language of subtitles inside of clips without a caption, as the file calls it: eng; none: do not look")

bool source_reads(const char *path); /* a file, by its name */
struct source;
/* request NULL: nothing is drawn. NULL: message. */
struct source *source_open(const char *path, const struct source_request *request);
/* After SOURCE_SAMPLE out is the caller's to release, else it holds nothing but the part. Train comes first. */
enum source_result source_next(struct source *source, struct sample *out);
/* The same of one of its files: SOURCE_END is that file's, and so is SOURCE_DAMAGED, behind which it begins anew. */
enum source_result source_next_in(struct source *source, i64 file, struct sample *out);
/* How far, in bytes of its files; what they hold differs, so time left is a guess. */
void source_progress(const struct source *source, i64 *done, i64 *total);
double source_lost(const struct source *source); /* share of the bytes in files that were damaged, so far */
void source_close(struct source *source);
/* How far it came, for another process to go on from: the files before this one are not opened again, and this one is
 * read again up to the same sample. Only for the same path and request. */
struct json;
struct json *source_state(const struct source *source);
int source_go_on(struct source *source, const struct json *state); /* 0, -1, 1: interrupted() */

/* ---- What stands there and what becomes of it ---- */
enum file_use {
    FILE_SAMPLES, /* it is read; a medium with its caption beside it too */
    FILE_MEDIUM,  /* it waits for a line to name it */
    FILE_NAMED,   /* one did */
    FILE_BESIDE,  /* it belongs to the file that `why` names: a caption, metadata, ids of an index */
    FILE_LEFT_OUT
};
struct source_file {
    char *path, *caption; /* caption: the file of a medium's */
    char *version;        /* of an address: changes when the file does; NULL */
    char *why;            /* a file is not read */
    i64 bytes;
    enum file_use use;
    int split; /* enum split; SPLIT_DRAWN; SPLIT_NONE */
    const struct reader_kind *reader;
    bool elsewhere;           /* of another part than the one asked for */
    i64 samples, bad, passed; /* so far; passed: lines and members that became nothing */
};
enum { SPLIT_DRAWN = -1, SPLIT_NONE = -2 };
const struct source_file *source_files(const struct source *source, i64 *count);
i64 source_at(const struct source *source);                       /* file of what source_next gave last; -1: of none */
const char *source_ending(const struct source_file *source_file); /* what the names of its format end in; NULL: none */

/* Of what became no sample, so many and the first of them. Media that no line named are known at the end. */
struct source_note {
    char *what, *first;
    i64 count;
};
const struct source_note *source_notes(const struct source *source, i64 *count);
void source_log(const struct source *source); /* a line each */

#endif
