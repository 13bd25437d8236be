/* Shared by sources.c, which reads a collection, and source_state.c, which saves and restores its
 * position. */
#ifndef WEFT_DATA_SOURCE_INSIDE_H
#define WEFT_DATA_SOURCE_INSIDE_H
#include "data/sources/source_readers.h"

struct source_medium { /* A medium among the files of the listing. */
    u64 hash;
    i64 file;
};
struct source {
    struct source_request request;
    struct listing listing;
    struct read_context reading;
    char *real;                  /* absolute name of the listing's folder */
    struct source_medium *media; /* sorted by hash */
    i64 media_count, at, open;   /* at: next file to read; open: the open one, -1: none */
    void *reader;
    i64 total, behind, lost; /* bytes: of all files to read, of finished ones, lost in damaged ones */
    i64 given;               /* results of source_next in the current file */
    i64 failures;            /* remote_failures() when the file was opened */
    i64 prompts;             /* source_prompts() then */
};
bool source_file_is_read(const struct source_file *file);

#endif
