/* The media of a folder and what is said of them, in whatever form they stand there (sources.h): captions.jsonl,
 * metadata.jsonl, texts beside media, archives, and media alone; listed, or read in parallel and taken in order. */
#ifndef WEFT_DATA_MEDIA_LIST_H
#define WEFT_DATA_MEDIA_LIST_H
#include "data/remote/blob.h"
#include "data/sources/sources.h"

struct media_request {
    const char *data;
    enum split split;
    u64 seed;
    double validation, test;              /* shares drawn where data names no parts */
    const struct source_columns *columns; /* NULL: nothing is called otherwise */
    bool says;                            /* logs what is left out: one of several readers of a folder does */
    u32 kinds;                            /* 1 << SAMPLE_IMAGE, ..; others are passed over */
};
/* Where a medium can be read again. */
struct medium_place {
    char *path;    /* NULL: nowhere */
    i64 at, bytes; /* bytes -1: the file is the medium */
};
struct medium_view {
    struct blob *blob;
    struct blob_span span;
    struct file_view file; /* what is there */
};
int medium_open(struct medium_view *view, const struct medium_place *place);
void medium_close(struct medium_view *view);

struct medium {
    enum sample_kind kind;
    char *path, *problem; /* problem: why it is skipped, without a path if its line is none */
    struct text bytes;    /* of a file in an archive: path is what it is called */
    struct medium_place place;
    bool carried, read;   /* carried: it is in an archive */
    i64 number;           /* among those of the request, those with a problem too */
    char *text, *speaker; /* "" where nothing is said */
};
void medium_release(struct medium *medium);

/* One after another, with their bytes. */
struct media_stream;
struct media_stream *media_stream_open(const struct media_request *request); /* NULL: message */
int media_stream_next(struct media_stream *stream, struct medium *out);      /* 1; 0: there are no more; -1 */
void media_stream_close(struct media_stream *stream);

struct media_list {
    struct medium *media;
    i64 count, capacity;
};
/* Without bytes. The list is the caller's to release, also after -1. */
int media_list(struct media_list *list, const struct media_request *request);
void media_list_release(struct media_list *list);

struct media_reader {
    const char *what;  /* "recordings", for messages */
    double bad_share;  /* of files that cannot be read: past it an error, below it each is logged and skipped */
    i64 content_bytes; /* of what `read` fills, which is zeroed before */
    int (*read)(void *context, void *content, const struct medium *medium,
                const struct file_view *file);                         /* any worker */
    void (*take)(void *context, void *content, struct medium *medium); /* owns the content, may move the medium out */
    void *context;
    i64 count, bad_count; /* filled */
};
int media_read(struct media_reader *reader, const struct media_request *request);

#endif
