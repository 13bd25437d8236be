/* The readers of single files, behind sources.c. Each fills a sample whose name and layout it sets. */
#ifndef WEFT_DATA_SOURCE_READERS_H
#define WEFT_DATA_SOURCE_READERS_H
#include "core/json.h"
#include "data/formats/char_reader.h"
#include "data/formats/file_name.h"
#include "data/formats/record.h"
#include "data/sources/sources.h"

/* source_notes.c: what became no sample, counted by kind. */
struct notes {
    struct source_note *list;
    i64 count, total;
};
void notes_add(struct notes *notes, const char *where, const char *format, ...) PRINTF(3, 4);
void notes_release(struct notes *notes);

/* A file being read; its functions stand in a table, one row a format. */
struct reading { /* what readers get and give; theirs until the source is closed */
    bool media_alone;
    const struct source_columns *columns; /* NULL: none are named */
    struct notes notes;
};
struct reader_kind {
    const char *suffix; /* of file names; NULL: not by the name */
    void *(*open)(const struct source_file *file, struct reading *reading);
    enum source_result (*next)(void *reader, struct sample *out);
    i64 (*position)(const void *reader); /* bytes of the file behind it */
    void (*close)(void *reader);
};
extern const struct reader_kind text_reader, lines_reader, values_reader, tar_reader, index_reader, pair_reader,
    parquet_reader, arrow_reader, csv_reader, tsv_reader;

/* listing.c: the files of a path, what each becomes, in the order in which they are read. */
struct listing {
    struct source_file *files;
    i64 count, capacity;
    char *folder; /* of all of them */
};
int listing_open(struct listing *listing, const char *path);
void listing_close(struct listing *listing);
/* suffixes.c */
int medium_kind(const char *extension); /* enum sample_kind by the last part of a name; SAMPLE_TEXT; -1: none */

/* source_forms.c: one object to a sample. *passed: it is none, and need not be (a reinforcement prompt, statistics). */
struct json_place {
    const char *origin; /* FILE:LINE */
    const char *folder; /* media are named relative to it; NULL: they are members, see find */
    /* Of a tar: the member that a reference names, moved into the part; -1 if there is none. */
    int (*find)(void *context, struct sample_part *part, const char *reference);
    void *context;
    bool media_alone;                     /* a caption may be missing */
    const struct source_columns *columns; /* NULL: none are named */
    const struct record *record;          /* of a table: what holds its bytes; NULL: of none */
};
/* A key whose value is null counts as absent, as tables written line by line have every key: NULL. */
const struct json *sample_key(const struct json *object, const char *key);
int sample_of_json(struct sample *out, const struct json *value, const struct json_place *place, bool *passed);
/* NULL: none that is a text. */
const struct json *sample_caption(const struct json *object, const struct source_columns *columns);
/* Of a table: whether any of its rows can be a sample, else a message that lists its columns; which columns are read.
 */
int sample_check_columns(const char *const *names, i64 count, const struct source_columns *columns, const char *path);
bool sample_reads_column(const struct source_columns *columns, const char *name);
/* Refuses what is not UTF-8; empty texts are not added. */
int sample_add_text(struct sample *out, const char *text, i64 length);
/* The words of subtitles inside of the only medium, if there are any: also its cues are then set. */
bool sample_add_subtitles(struct sample *out, const struct source_columns *columns);
char *path_folder(const char *path); /* of its file; memory_free */

/* Lines of a file that may be compressed. */
struct line_reader {
    struct char_reader in;
    struct text line;
    i64 number; /* of the line read last */
};
int line_reader_open(struct line_reader *reader, const char *path);
/* 1: a line stands in `line`, without its line feed; 0: end; -1: damaged; -2: too long, skipped. */
int line_reader_next(struct line_reader *reader);
void line_reader_close(struct line_reader *reader);

#endif
