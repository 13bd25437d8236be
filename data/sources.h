/* Sources: other people's files to samples, one after another.
 *
 *   .txt                  documents, cut at blank lines into pieces of at most 64 KiB
 *   .jsonl                a line {"text": ..}; {"image"|"video"|"audio": FILE, "text": CAPTION}; {"messages": [..]};
 *                         {"question", "answer"} or {"prompt", "completion"}; other lines are passed over
 *   .txt, .jsonl + .gz .zst
 *   .tar                  WebDataset: members KEY.EXT that follow each other are one sample
 *   .idx beside .bin      Megatron: documents of ids
 *   a folder              all of these in it, by name
 *
 * A message's content is text, with <image> <video> <audio> standing for the files listed under "images", "videos",
 * "audios", or a list of {"type": "text"|"image"|"video"|"audio", ..}. Files are named relative to the folder of the
 * file that names them. A sample is an ordered list of parts; media are named or carried as bytes, never decoded here.
 */
#ifndef WEFT_DATA_SOURCES_H
#define WEFT_DATA_SOURCES_H
#include "core/core.h"

enum sample_kind { SAMPLE_TEXT, SAMPLE_IMAGE, SAMPLE_VIDEO, SAMPLE_AUDIO, SAMPLE_IDS };
struct sample_part {
    enum sample_kind kind;
    struct text bytes; /* text in UTF-8, a medium's file, or i32 ids */
    char *path;        /* of a medium that is not carried; NULL if it is */
    i32 message;       /* of a chat: which; else 0 */
    char *role;        /* set on the first part of a message */
};
enum sample_form {
    SAMPLE_PLAIN,     /* one text */
    SAMPLE_CAPTIONED, /* one medium and its text */
    SAMPLE_CHAT,      /* messages */
    SAMPLE_MIXED      /* texts and media in turn */
};
struct sample {
    enum sample_form form;
    char *name; /* FILE:LINE, or FILE:KEY: for messages */
    struct sample_part *parts;
    i64 count, capacity;
};
void sample_release(struct sample *sample);
struct sample_part *sample_add(struct sample *sample, enum sample_kind kind);

enum source_result {
    SOURCE_SAMPLE,
    SOURCE_END,
    SOURCE_BAD,   /* what stands here is no sample: error_text() says why; the next call goes on behind it */
    SOURCE_FAILED /* nothing more can be read: error_text() says why */
};
struct source;
struct source *source_open(const char *path); /* NULL: message */
/* All of a folder but these folders in it; the list, the caller's, ends with NULL. NULL: all. */
struct source *source_open_without(const char *path, const char *const *left_out);
/* After SOURCE_SAMPLE out is the caller's to release. */
enum source_result source_next(struct source *source, struct sample *out);
/* How far, in bytes of its files; what they hold differs, so time left is a guess. */
void source_progress(const struct source *source, i64 *done, i64 *total);
void source_close(struct source *source);

#endif
