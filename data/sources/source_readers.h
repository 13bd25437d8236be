/* Readers of single files, used by sources.c. Each fills samples and sets their name and layout. */
#ifndef WEFT_DATA_SOURCE_READERS_H
#define WEFT_DATA_SOURCE_READERS_H
#include "core/json.h"
#include "data/formats/char_reader.h"
#include "data/formats/file_name.h"
#include "data/formats/record.h"
#include "data/sources/sources.h"

/* source_notes.c: counts, by kind, the entries that became no sample. */
struct skip_notes {
    struct source_note *list;
    i64 count, total;
    i64 prompts; /* for reinforcement learning: no samples, as intended, and in no note */
};
void notes_add(struct skip_notes *notes, const char *where, const char *format, ...) PRINTF(3, 4);
void notes_release(struct skip_notes *notes);

/* A file being read. Each format is one `struct reader_kind`. */
struct read_context { /* shared by all readers; lives until the source is closed */
    bool media_alone;
    bool blank;                           /* set by a reader: the caption file of the medium holds no words */
    const struct source_columns *columns; /* NULL: the default names */
    char *root;                           /* see json_place; NULL: an address, or media anywhere are allowed */
    struct skip_notes notes;
};
struct reader_kind {
    const char *suffix; /* file name suffix; NULL: not chosen by name */
    void *(*open)(const struct source_file *file, struct read_context *reading);
    enum source_result (*next)(void *reader, struct sample *out);
    i64 (*position)(const void *reader); /* bytes of the file read so far */
    void (*close)(void *reader);
};
extern const struct reader_kind text_reader, lines_reader, values_reader, tar_reader, index_reader, pair_reader,
    parquet_reader, arrow_reader, csv_reader, tsv_reader, transcript_reader;

/* listing.c: the files of a path, their use, and the order in which they are read. */
struct listing {
    struct source_file *files;
    i64 count, capacity;
    char *folder;                         /* folder that contains all of them */
    const struct source_columns *columns; /* NULL: the default names */
};
int listing_open(struct listing *listing, const char *path, const struct source_columns *columns);
void listing_close(struct listing *listing);
void file_leave_out(struct source_file *file, char *why); /* owns `why` */
/* companions.c: gives the media of one folder their captions, and other files those that they belong
 * to. */
void companions_match(struct source_file **files, i64 count);
bool companions_lack_caption(const struct source_file *file); /* a medium, read or not, without one */
bool file_is_readme(const char *path);                        /* README.md and its like, packed or not */
/* README.md, LICENSE.txt and their like: of data that hold more than texts they are no part. */
bool file_describes(const char *path);
/* suffixes.c: enum modality by extension, MODALITY_TEXT for captions; -1: none. */
int medium_kind(const char *extension);
/* The medium of a format that is not read, by extension; -1: none. */
int medium_kind_unread(const char *extension);
/* The ending of a document that is read as .txt is, such as ".md", also if it is packed; NULL: none. */
const char *document_suffix(const char *name);
/* The medium that leads among files of the same name, after `rank` others; -1: no more. */
int medium_leading(i64 rank);

bool archive_is_unread(const char *path); /* .7z and .rar, by name */
int split_of_folder(const char *name);    /* enum split that a folder's name says; SPLIT_DRAWN: none */

/* caption_names.c: captions from the names of media. */
bool captions_are_named(const struct source_columns *columns);   /* folder or name */
bool captions_are_ignored(const struct source_columns *columns); /* none */
/* Appends what the name of a medium says, such as "cat/1.jpg" below the data; nothing, if it says
 * nothing. */
void caption_from_name(struct buffer *out, const char *path, enum source_captions captions);
bool name_says_nothing(const char *name); /* of a file without its ending, such as IMG_1234 */
/* Adds the caption that a medium's name says. 0, also if it says none or the setting does not ask for
 * it; -1 and a message: it is not UTF-8. */
int sample_add_name(struct sample *sample, const char *path, const struct source_columns *columns);
#define CAPTIONS_IGNORED "media whose captions are not read (captions: none)"

/* source_transcript.c: sets the reader of texts whose lines begin with the names of media without a
 * caption, as in LibriSpeech, or leaves them out. */
void transcripts_match(struct listing *listing);
#define LISTS                                                                                                          \
    "texts whose lines begin with names of media, which are no documents: expected lines NAME TEXT in the folder of "  \
    "the media, or .csv, .tsv or .jsonl (lone_texts: read takes them as documents)"

/* lone_texts.c: short texts without a medium. */
enum { CAPTION_BYTES_MAX = 4096 }; /* a longer text is a document wherever it stands */
#define LONE_TEXTS                                                                                                     \
    "short texts without a medium of their name, among captioned media (lone_texts: read takes them as documents)"
#define NAMED_TEXTS                                                                                                    \
    "short texts named like a medium without a caption, but not as its caption (lone_texts: read takes them as "       \
    "documents)"
/* The names of media without a caption beside them. A short text of such a name is no document: in
 * other capitals, with a word behind _ or -, or in another folder. */
struct lone_media {
    struct hash_list names;
};
/* Adds a medium by its name up to the ending, of `length` bytes. */
void lone_media_add(struct lone_media *media, const char *name, size_t length);
void lone_media_sort(struct lone_media *media); /* before lone_media_name */
bool lone_media_name(const struct lone_media *media, const char *text, size_t length);
bool lone_texts_are_documents(const struct source_columns *columns); /* the setting says so */
/* True if they are left out among this number of captioned media. `lone`: their own number. */
bool lone_texts_are_left(const struct source_columns *columns, i64 lone, i64 captioned);
/* The same for the texts of a tar, whose first members are read. *media: those without a caption. */
bool tar_leaves_lone_texts(const char *path, const struct source_columns *columns, struct lone_media *media);

/* source_tar.c: the part of a member's name from the first dot of its base name on; NULL: it is no member of a
 * sample: without a dot, or like __meta__. */
const char *tar_member_extension(const char *name);

/* source_forms.c: converts one object to a sample. *passed is set if it is not a sample and need
 * not be one (a prompt for reinforcement learning, statistics). */
struct json_place {
    const char *origin; /* FILE:LINE */
    const char *folder; /* base of relative media paths; NULL: media are members, see find */
    const char *root;   /* folder, without links, below which media must lie; NULL: anywhere */
    /* For tar files: moves the member that a reference names into the part; -1 with a message if
     * there is none. */
    int (*find)(void *context, struct sample_part *part, const char *reference);
    void *context;
    bool media_alone;                     /* captions are optional */
    const struct source_columns *columns; /* NULL: the default names */
    const struct record *record;          /* the table row that owns the bytes; NULL: not a table */
    struct skip_notes *notes;             /* of keys that are not read, and of prompts; NULL: none */
};
/* A key's value; NULL if absent or null. Tables written line by line contain every key. */
const struct json *sample_key(const struct json *object, const char *key);
/* Returns 0, or -1 and a message. 1: it is passed, and the caller adds no note: a record that names
 * media outside of the root, which is noted here, or a prompt for reinforcement learning. */
int sample_of_json(struct sample *out, const struct json *value, const struct json_place *place, bool *passed);
/* Puts the keys of a prompt for reinforcement learning that change what is asked (a system message, a
 * context, choices, earlier turns) into its prompt or question, which becomes a list of messages.
 * Returns -1 and a message, without the origin, if they cannot be, or if media are listed beside it
 * and `media` is false. */
int sample_ask(struct json *object, const char *origin, bool media, struct skip_notes *notes);
/* The caption of an object; NULL if it has none or it is not a text. */
const struct json *sample_caption(const struct json *object, const struct source_columns *columns);
/* For tables. sample_check_columns: fails, listing the columns, if no row can be a sample; 1: rows
 * can be, 0: they are prompts for reinforcement learning.
 * sample_reads_column: true if the column is needed. */
int sample_check_columns(const char *const *names, i64 count, const struct source_columns *columns, const char *path);
bool sample_reads_column(const struct source_columns *columns, const char *name);
/* -1 and a message for the bytes of a file that are no text: with a byte 0, or Git LFS's pointer to a
 * file. */
int text_file_check(const char *text, i64 length);
bool text_is_blank(const char *text, i64 length); /* white space alone, also behind a byte order mark */
/* Refuses text that is not UTF-8; skips empty text. */
int sample_add_text(struct sample *out, const char *text, i64 length);
/* Adds a caption, of a file, a member or a record: without a byte order mark and the white space at
 * its end. */
int sample_add_caption(struct sample *out, const char *text, i64 length);
/* Adds the subtitles embedded in the sample's only medium as its text, and sets its cues. False if
 * there are none. */
bool sample_add_subtitles(struct sample *out, const struct source_columns *columns);
char *path_folder(const char *path); /* the folder of a file; release with memory_free */

/* Reads lines of a file, compressed or not. */
struct line_reader {
    struct char_reader in;
    struct buffer line;
    i64 number; /* line number */
};
int line_reader_open(struct line_reader *reader, const char *path);
/* 1: `line` holds the next line without its line feed; 0: the end; -1: damaged; -2: too long and
 * skipped. */
int line_reader_next(struct line_reader *reader);
void line_reader_close(struct line_reader *reader);

#endif
