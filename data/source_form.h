/* The readers of single files, behind sources.c. Each fills a sample whose name and form it sets. */
#ifndef WEFT_DATA_SOURCE_FORM_H
#define WEFT_DATA_SOURCE_FORM_H
#include "core/json.h"
#include "data/sources.h"

/* A file being read; its functions stand in a table, one row a format. */
struct reader_kind {
    const char *suffix; /* of file names */
    void *(*open)(const char *path);
    enum source_result (*next)(void *reader, struct sample *out);
    i64 (*position)(const void *reader); /* bytes of the file behind it */
    void (*close)(void *reader);
};
extern const struct reader_kind text_reader, lines_reader, tar_reader, index_reader;

/* source_json.c: one object to a sample. *passed: it is none, and need not be (a reinforcement prompt, statistics). */
struct json_place {
    const char *origin; /* FILE:LINE */
    const char *folder; /* media are named relative to it; NULL: they are members, see find */
    /* Of a tar: the member that a reference names, moved into the part; -1 if there is none. */
    int (*find)(void *context, struct sample_part *part, const char *reference);
    void *context;
};
/* A key whose value is null counts as absent, as tables written line by line have every key: NULL. */
const struct json *sample_key(const struct json *object, const char *key);
int sample_of_json(struct sample *out, const struct json *value, const struct json_place *place, bool *passed);
/* Refuses what is not UTF-8; empty texts are not added. */
int sample_add_text(struct sample *out, const char *text, i64 length);
bool name_ends_with(const char *name, const char *suffix); /* without regard to case */
char *path_folder(const char *path);                       /* of its file; memory_free */

/* Lines of a file that may be compressed. */
struct line_reader {
    struct archive_file *file;
    char *path;
    struct text line;
    char *block;
    i64 at, filled, number; /* number of the line read last */
    bool ended;
};
enum { LINE_BYTES_MAX = 1 << 26 };
int line_reader_open(struct line_reader *reader, const char *path);
/* 1: a line stands in `line`, without its line feed; 0: end; -1: damaged; -2: too long, skipped. */
int line_reader_next(struct line_reader *reader);
void line_reader_close(struct line_reader *reader);

#endif
