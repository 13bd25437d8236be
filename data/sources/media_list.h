/* Lists the media of a folder with their captions, or reads them in parallel and takes them in
 * order. It accepts all forms of sources.h: captions.jsonl, metadata.jsonl, texts beside media,
 * archives, and media alone. Media in conversations and documents are taken too, without a caption:
 * each file once, unless it has a caption elsewhere, after all others. */
#ifndef WEFT_DATA_MEDIA_LIST_H
#define WEFT_DATA_MEDIA_LIST_H
#include "data/remote/blob.h"
#include "data/sources/sources.h"

struct media_request {
    const char *data;
    enum split split;
    u64 seed;
    double validation, test;              /* shares to draw if the data has no splits */
    const struct source_columns *columns; /* NULL: the default names */
    bool says;                            /* log what is left out; set it for one of several readers of a folder */
    u32 kinds;                            /* bits 1 << MODALITY_IMAGE, ..; other kinds are skipped */
};
/* Location from which a medium can be read again. */
struct medium_place {
    char *path;    /* NULL: it cannot */
    i64 at, bytes; /* bytes -1: the whole file */
};
struct medium_view {
    struct blob *blob;
    struct blob_span span;
    struct file_view file; /* the medium's bytes, borrowed from the two above or mapped */
};
int medium_open(struct medium_view *view, const struct medium_place *place);
void medium_close(struct medium_view *view);

struct medium {
    enum modality kind;
    /* problem: reason for skipping it, or NULL. path is NULL if the entry is invalid. */
    char *path, *problem;
    struct buffer bytes; /* contents, if carried in an archive or table; path is then its name */
    struct medium_place place;
    bool carried, read;   /* carried: its bytes come with the sample, not from a file */
    u64 hash;             /* of the bytes, where media_read has read them */
    i64 number;           /* index among the requested media, including those with a problem */
    char *text, *speaker; /* "" if there is none */
};
void medium_release(struct medium *medium);

/* Reads media one after another, with the bytes of carried ones. */
struct media_stream;
struct media_stream *media_stream_open(const struct media_request *request); /* NULL: a message */
/* 1: a medium; 0: the end; -1: a message. */
int media_stream_next(struct media_stream *stream, struct medium *out);
void media_stream_close(struct media_stream *stream);

struct media_list {
    struct medium *media;
    i64 count, capacity;
};
/* Lists media without their bytes. The caller releases the list, also after -1. */
int media_list(struct media_list *list, const struct media_request *request);
/* True if the data can be read and hold no medium of `kinds`, in any split, with or without a
 * caption. False also if they cannot be read. */
bool media_are_absent(const char *data, const struct source_columns *columns, u32 kinds);
void media_list_release(struct media_list *list);

struct media_reader {
    const char *what; /* plural noun for messages, "recordings" */
    /* Share of unreadable media above which media_read fails; below, each is logged and skipped. */
    double bad_share;
    i64 content_bytes; /* size of the content that `read` fills; zeroed before */
    /* Runs on any worker. Returns 0, or -1 with a message. */
    int (*read)(void *context, void *content, const struct medium *medium, const struct file_view *file);
    /* Runs in order on the calling thread. Owns the content, may move the medium out. */
    void (*take)(void *context, void *content, struct medium *medium);
    void *context;
    i64 count, bad_count;     /* results: media read, and those with a problem */
    struct hash_list *hashes; /* of the bytes of those read; NULL: not wanted */
};
int media_read(struct media_reader *reader, const struct media_request *request);
/* The number of held-out files that are trained on too, byte for byte; a warning if there are any. */
i64 media_in_common(const char *data, const struct hash_list *held_out, struct hash_list *train);

#endif
