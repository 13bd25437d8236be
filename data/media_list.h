/* The media that captions.jsonl of a folder names: listed, then read in parallel and taken in the order of their lines.
 */
#ifndef WEFT_DATA_MEDIA_LIST_H
#define WEFT_DATA_MEDIA_LIST_H
#include "core/core.h"

struct medium {
    int key;              /* which one named it */
    char *path, *problem; /* problem: why it is skipped; without a path if its line is no JSON */
    char *text, *speaker; /* "" where its line says nothing */
    bool read;
};
struct media_list {
    const char *folder, *const *keys; /* borrowed */
    struct medium *media;
    i64 count, capacity, bad_count;
};
/* keys: of lines, "image", "video" or "audio"; NULL ends. The list is the caller's to release, also after -1. */
int media_list(struct media_list *list, const char *folder, const char *const *keys);
void media_list_release(struct media_list *list);

struct media_reader {
    const char *what;  /* "recordings", for messages */
    double bad_share;  /* of files that cannot be read: past it an error, below it each is logged and skipped */
    i64 content_bytes; /* of what `read` fills, which is zeroed before */
    int (*read)(void *context, void *content, const struct medium *medium); /* on any worker */
    void (*take)(void *context, void *content, struct medium *medium); /* owns the content, may move the medium out */
    void *context;
};
int media_read(struct media_list *list, const struct media_reader *reader);

#endif
