/* Reads files of other programs as a stream of samples. source_open takes a file, a folder or an
 * address; source_next returns one sample at a time, which the caller releases. Formats:
 *
 *   .txt .md .rst         a document; a large one in consecutive pieces of about 64 KiB, cut at
 *                         blank lines; also .markdown. A README.md or LICENSE.txt is left out if
 *                         its folder holds more than texts, since it then describes a dataset
 *   .jsonl                a line {"text": ..} or {"content": ..}; {"image"|"video"|"audio": FILE,
 *                         "text": CAPTION}; {"file_name": FILE, "text": CAPTION} (metadata.jsonl,
 *                         metadata.csv); {"messages": [..]}, {"conversations": [..]}; {"question",
 *                         "answer"}, {"prompt", "completion"}, {"instruction", "input", "output"}
 *                         and other pairs (docs/collections.md has all forms and keys);
 *                         other lines are skipped and noted, but prompts for reinforcement
 *                         learning, with the keys prompt and reward_model
 *   .json                 a list of such objects, or several of them
 *   .parquet, .arrow      the same by columns; pictures, clips and sounds may be inside (Arrow:
 *                         file or stream)
 *   .csv, .tsv            the same, with a header or without (source_columns); all values are text;
 *                         {"path", "sentence"} of Common Voice
 *   .txt .md .rst .jsonl .json .csv .tsv .tar + .gz .zst .xz .bz2 .lz4
 *   a.jpg + a.txt         a medium and its caption; also a.jpg.txt, .caption, .text, .transcript, .json
 *                         with a "caption", and documents (companions.c)
 *   cat/a.jpg             the caption cat, if source_columns.captions says so
 *   a.mp4 + a.srt         a clip or a sound and its subtitles, also .vtt
 *   a.mp4, a.mkv          a clip with embedded subtitles, if nothing else names it
 *   a.txt of lines        NAME TEXT, in which NAME is a medium beside it (source_transcript.c)
 *   .tar                  WebDataset: consecutive members KEY.EXT are one sample; KEY ends at the
 *                         first dot of the name; names with dots, links: see source_tar.c; .tgz
 *                         and its like are .tar.gz; a .zip is read as a tar is
 *   .idx beside .bin      Megatron: documents of ids
 *   a folder              all of these in it, by name
 *
 * All but media may also be at https://HOST/FILE and s3://BUCKET/FILE (remote.h). {000..127}
 * expands to all numbers with as many digits, {a,b} to either, s3://BUCKET/FOLDER to its contents.
 * Ranges and folders are treated like a local folder with the same files.
 *
 * Records are recognized by one function for all formats (source_forms.c); source_columns renames
 * the keys it looks for. A table without any usable column is refused with a list of its columns. A
 * message is {"role", "content"}, or ShareGPT's {"from", "value"}; unknown roles are refused.
 *
 * Captions are under "text", "caption", "transcription" or "sentence". A message's content is a
 * text, in which <image> <video> <audio> refer to the files listed under "images", "videos",
 * "audios", or a list of {"type": "text"|"image"|"video"|"audio", ..}. Other keys of a message are
 * carried to its chat template, or refused if they change what is learned (source_messages.c). File
 * names are relative to the folder of the file that contains them. A sample is an ordered list of
 * parts; media are named or carried as bytes, never decoded here. Entries that become no sample are
 * noted: nothing disappears silently, except what is no data: done.json and identity.json of a
 * stage that made the folder, prompts for reinforcement learning, a README.md beside data, and
 * texts where only media are wanted. A record that names media outside of the source is left out,
 * unless source_columns.outside allows it: the records of a stranger shall not choose files of the
 * reader.
 *
 * Splits. A folder named train, validation or test directly below the source, or a file of such a
 * name (train.jsonl, test-00001.tar), puts its samples into that split. Also recognized: training;
 * valid, val, dev; testing, eval, evaluation. If there are splits but no train, all other files are
 * train. If there is a train, other files are left out, except lines of captions and metadata files
 * (.jsonl, .csv) about media in a split. Without any such name, a sample is in the split that its
 * record names under "split"; that of other samples is drawn at random, keyed by its first medium,
 * so that all captions of a medium stay together, or else by its place.
 *
 * Where is what:
 *   listing.c          which files of a folder are read or left out; splits by name.
 *                      companions.c: which belong to another. lone_texts.c: captions whose
 *                      medium is missing. sources.c: the order of files, splits that are drawn,
 *                      media alone. caption_names.c: captions from names; suffixes.c: kinds of media
 *   source_tar.c       WebDataset: where a key is cut and which members form a sample
 *   source_lines.c     .jsonl and .txt; source_values.c: .json; source_table.c: rows of tables;
 *                      source_idx.c: Megatron; source_pair.c: a medium beside its caption;
 *                      source_transcript.c: lines that name media
 *   source_forms.c     the form of a record by its keys; record_keys.c: what its other keys are
 *                      for; source_turns.c, source_choices.c: a question, an answer and these as
 *                      messages; source_listed.c: media that it lists; source_json.c: parts;
 *                      source_messages.c: messages
 *   sample.c           parts of a sample; source_state.c: saving and resuming a position;
 *                      source_notes.c: entries without a sample
 *   media_list.c       media of a folder for tokenizers, media_buffer.c: those beyond memory
 * The source owns its open reader and the list of its files; a sample belongs to the caller. */
#ifndef WEFT_DATA_SOURCES_H
#define WEFT_DATA_SOURCES_H
#include "core/settings.h"
#include "sequence/modalities.h"

enum { SAMPLE_IDS = MODALITIES }; /* kind of a text that is ids already */
struct sample_part {
    int kind;            /* enum modality, or SAMPLE_IDS */
    struct buffer bytes; /* UTF-8 text, a medium's file, or i32 ids */
    char *path;          /* file of a medium; NULL if its bytes are carried */
    char *within;        /* file that holds carried bytes at offset `at`; NULL: compressed or in a table */
    i64 at;
    i32 message; /* index of the chat message; else 0 */
    char *role;  /* set on the first part of each message */
    /* Set on the first part of each message of a conversation: the members of its JSON object but
     * those that became parts or `unlearned` (name, tool_calls, reasoning_content, ..), without empty
     * ones. role: as the file says it, if that is another name of `role` that templates know
     * (developer). tool_calls: [{"type": "function", "function": {"name", "arguments"}}, ..], also
     * of ShareGPT's turns and of function_call; arguments are a value, not a string of JSON. NULL:
     * only a role and a content. */
    struct json *keys;
    bool unlearned; /* of a message that is read only, although it may be an answer */
};
enum split { SPLIT_TRAIN, SPLIT_VALIDATION, SPLIT_TEST, SPLITS };
enum { HELD_OUT_LEAST = 20 }; /* measuring fewer held-out samples says little: stages warn */
extern const char *const split_names[SPLITS];
/* -1 and a message if `name`, the value of the setting `key`, names no split; NULL and "" pass. */
int split_check(const char *key, const char *name);
enum sample_layout {
    SAMPLE_PLAIN,     /* one text */
    SAMPLE_CAPTIONED, /* one medium and its text */
    SAMPLE_CHAT,      /* messages */
    SAMPLE_MIXED      /* texts and media in turn */
};
struct sample {
    u64 key; /* hash of its place; independent of the folder's location and of samples before it */
    enum sample_layout layout;
    enum split split;
    int split_said;     /* 1 + enum split that the record names; 0: none */
    bool goes_on;       /* the text continues in the next sample */
    char *name;         /* FILE:LINE or FILE:KEY, for messages */
    char *speaker;      /* speaker of a captioned sound; NULL: unknown */
    char *subtitles;    /* subtitle file that its text came from, or NULL */
    struct buffer cues; /* or the subtitles embedded in the medium, as SubRip */
    /* Of a conversation: what its chat template reads beside the messages, {"tools": [..],
     * "documents": [..], ..} with the members of chat_template_kwargs. NULL: nothing. */
    struct json *variables;
    struct sample_part *parts;
    i64 count, capacity;
};
void sample_release(struct sample *sample);
struct sample_part *sample_add(struct sample *sample, int kind);

enum source_result {
    SOURCE_SAMPLE,
    SOURCE_END,
    /* This entry is no sample; error_text() has the reason. The next call continues after it. */
    SOURCE_BAD,
    /* The rest of the file cannot be read; error_text() has the reason. The next call continues
     * with the next file. */
    SOURCE_DAMAGED,
    /* An address cannot be read now, or interrupted() is set; error_text() has the reason. Do not
     * call again; another process may resume. */
    SOURCE_UNREACHABLE
};
/* Whether records may name media that are neither below the folder that source_open was given, nor
 * below columns.folder: by absolute names, by `..`, or through links. */
enum source_outside { OUTSIDE_REFUSE, OUTSIDE_ALLOW };
/* Short texts without a medium. AUTO: left out where captioned media are as many (lone_texts.c). */
enum source_lone_texts { LONE_TEXTS_AUTO, LONE_TEXTS_READ, LONE_TEXTS_LEAVE };
/* Where the captions of media come from: files beside them, lines and tables alone, or for media that
 * have none there the name of their folder or file (caption_names.c). CAPTIONS_NONE: no captions are
 * read, so that only tokenizers learn from media. */
enum source_captions { CAPTIONS_FILES, CAPTIONS_FOLDER, CAPTIONS_NAME, CAPTIONS_NONE };
/* Names of keys and columns that differ from the defaults; "" or NULL: the default. Once any is
 * set, only the set ones are looked up. */
struct source_columns {
    char *modality[MODALITIES], *messages, *question, *answer;
    /* Language of subtitles embedded in clips without a caption; "": any; "none": do not look. */
    char *subtitles;
    /* Tables of text, .csv and .tsv. separator: "": a comma, in .tsv a tab. Without a header the
     * columns are called 1, 2, .. */
    char *separator;
    int header; /* enum table_header (data/formats/table.h) */
    /* Of media that rows and lines name. folder: relative to that of the file. ending: of names that
     * have no ending of a medium. "": neither. */
    char *folder, *ending;
    int outside;    /* enum source_outside */
    int lone_texts; /* enum source_lone_texts */
    int captions;   /* enum source_captions */
};
int source_columns_check(const struct source_columns *columns); /* -1 and a message; reads no files */
struct source_request {
    u64 seed; /* for drawing splits */
    double validation, test;
    /* Borrowed until the source is closed; NULL: the default names. */
    const struct source_columns *columns;
    bool media_alone; /* media without a caption are samples too; text-only files are not read */
    i64 job, jobs;    /* read every jobs-th file, from number `job` on; jobs 0: all */
};
/* Rows for a settings table whose struct has `double validation, test` and `struct source_columns
 * columns`. */
#define SPLIT_ROWS(type)                                                                                               \
    SETTING(type, validation, "validation", NUMBER, "0.01", 0, 1, NULL,                                                \
            "share drawn for validation if data has neither that split nor test"),                                     \
        SETTING(type, test, "test", NUMBER, "0", 0, 1, NULL,                                                           \
                "share drawn for test if data has neither that split nor validation"),                                 \
        MODALITY_COLUMN_ROWS(type), COLUMN_ROW(type, messages, "messages", "conversation"),                            \
        COLUMN_ROW(type, question, "question", "question"), COLUMN_ROW(type, answer, "answer", "answer"),              \
        SETTING(type, columns.separator, "columns.separator", STRING, "", 0, 0, NULL,                                  \
                "character between fields of .csv and .tsv, or tab; empty: a comma, in .tsv a tab"),                   \
        SETTING(type, columns.header, "columns.header", CHOICE, "true", 0, 0, "true|false",                            \
                "the first line of .csv and .tsv names the columns; false: they are called 1, 2, .."),                 \
        SETTING(type, columns.folder, "columns.folder", STRING, "", 0, 0, NULL,                                        \
                "folder of the media that rows name, relative to their file"),                                         \
        SETTING(type, columns.ending, "columns.ending", STRING, "", 0, 0, NULL,                                        \
                "appended to names of media without an ending, such as wav"),                                          \
        SETTING(type, columns.lone_texts, "lone_texts", CHOICE, "auto", 0, 0, "auto|read|leave",                       \
                "texts of at most 4 KiB without a medium of their name. auto: left out of a folder or tar with as "    \
                "many captioned media, whose captions they resemble; read: documents; leave: left out"),               \
        SETTING(type, columns.captions, "captions", CHOICE, "files", 0, 0, "files|folder|name|none",                   \
                "of media without a text of their own. folder: the name of their innermost folder; name: the words "   \
                "of their own name; files: they have none; none: no media have captions, whatever stands beside "      \
                "them"),                                                                                               \
        SETTING(type, columns.outside, "outside", CHOICE, "refuse", 0, 0, "refuse|allow",                              \
                "allow: records may name any media files of this machine; refuse: only files below `data` (of a "      \
                "file: below its folder) and below columns.folder, with links and .. resolved; other records are "     \
                "left out")

#define SUBTITLES_ROW(type)                                                                                            \
    SETTING(type, columns.subtitles, "subtitles", STRING, "", 0, 0, NULL,                                              \
            "language tag (e.g. eng) of embedded subtitles used as captions of clips without one; empty: any; none: "  \
            "off")

bool source_reads(const char *path); /* decides by file name */
struct source;
/* Opens a file, folder or address. request NULL: all samples are train unless files name a split.
 * NULL: a message. */
struct source *source_open(const char *path, const struct source_request *request);
/* Returns the next sample, train split first. After SOURCE_SAMPLE the caller releases it; otherwise
 * out holds only the split. */
enum source_result source_next(struct source *source, struct sample *out);
/* Reads from one file of the source, also a medium whose name is its caption. SOURCE_END and
 * SOURCE_DAMAGED refer to that file; the next call opens it anew. */
enum source_result source_next_in(struct source *source, i64 file, struct sample *out);
/* Reads the media that no file names, for which all files must have been read by source_next_in. */
enum source_result source_next_unnamed(struct source *source, struct sample *out);
/* Progress in bytes of files. Their contents differ, so the remaining time is only an estimate. */
void source_progress(const struct source *source, i64 *done, i64 *total);
double source_lost(const struct source *source); /* share of bytes lost in damaged files so far */
void source_close(struct source *source);
/* The number in [0, 1) that decides the split of a sample where no name does: validation below the
 * share `validation`, test below `validation` + `test`, else train. */
double source_draw(const struct source *source, const struct sample *sample);
/* Position of the source, for resuming in another process. source_resume does not open earlier
 * files again and reads the current one again up to the same sample. Only for the same path and
 * request. */
struct json;
struct json *source_state(const struct source *source);
/* Returns 0, -1 with a message, or 1 if interrupted(). */
int source_resume(struct source *source, const struct json *state);

/* ---- Files and their use ---- */
enum file_use {
    FILE_SAMPLES, /* it is read, including a medium with its caption */
    FILE_MEDIUM,  /* a medium that no line has named yet */
    FILE_NAMED,   /* a medium that a line has named */
    FILE_BESIDE,  /* it belongs to the file in `why`: a caption, metadata, ids of an index */
    FILE_STATE,   /* of the stage that made the folder: no data */
    FILE_APART,   /* texts where only media are wanted */
    FILE_LEFT_OUT /* noted, with `why` */
};
struct source_file {
    char *path, *caption; /* caption: a medium's caption file */
    char *version;        /* for addresses: changes when the file does; or NULL */
    char *why;            /* reason why the file is not read */
    i64 bytes;
    enum file_use use;
    int split; /* enum split; SPLIT_DRAWN; SPLIT_NONE */
    const struct reader_kind *reader;
    bool elsewhere;           /* another reader's share, see source_request.job */
    bool blank;               /* a medium whose caption file holds no words, once that was read */
    i64 samples, bad, passed; /* counts so far; passed: lines and members that became no sample */
};
enum { SPLIT_DRAWN = -1, SPLIT_NONE = -2 };
/* True for the files that jobs share. State of a stage is dealt too, and never read. */
bool source_file_is_dealt(const struct source_file *file);
/* True for media that are read behind all files, since their names are their captions. */
bool source_file_waits(const struct source *source, const struct source_file *file);
const struct source_file *source_files(const struct source *source, i64 *count);
/* Hash of the absolute path without `.` and `..`, so that all names of a file agree but links. */
u64 source_path_hash(const char *path);
i64 source_at(const struct source *source); /* file that source_next read last; -1: none */
/* File name suffix of its format; NULL: none. */
const char *source_ending(const struct source_file *source_file);

/* Entries of one kind that became no sample: their number and the first one. Media that no line
 * names are known only at the end. */
struct source_note {
    char *what, *first;
    i64 count;
};
const struct source_note *source_notes(const struct source *source, i64 *count);
/* Prompts for reinforcement learning so far. They are no samples, nor faults of the data: nothing
 * else tells of them. */
i64 source_prompts(const struct source *source);
/* Why a medium of the listing, which nothing names once all is read, has no caption. */
enum uncaptioned { UNCAPTIONED, UNCAPTIONED_BLANK, UNCAPTIONED_FOLDER, UNCAPTIONED_NAME, UNCAPTIONED_KINDS };
enum uncaptioned source_uncaptioned(const struct source *source, const struct source_file *file);
extern const char *const uncaptioned_words[UNCAPTIONED_KINDS]; /* begin with a space, behind "pictures" */
/* One line per note. unused_media: also of media that have no caption. */
void source_log(const struct source *source, bool unused_media);

#endif
