/* What sources.c, which reads a collection, and source_state.c, which goes on with it, share. */
#ifndef WEFT_DATA_SOURCE_INSIDE_H
#define WEFT_DATA_SOURCE_INSIDE_H
#include "data/sources/source_readers.h"

struct medium_place { /* of a medium among the files */
    u64 hash;
    i64 file;
};
struct source {
    struct source_request request;
    struct listing listing;
    struct reading reading;
    char *real;                 /* the listing's folder from the root */
    struct medium_place *media; /* ordered by hash */
    i64 media_count, at, open;  /* the file that is read next; the one that is open, -1: none */
    void *reader;
    i64 total, behind, lost; /* bytes of files that are read */
    i64 given;               /* results of source_next in the file that is read */
    i64 failures;            /* remote_failures() when it was opened */
};
bool source_file_is_read(const struct source_file *file);

#endif
