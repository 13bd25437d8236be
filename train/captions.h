/* captions.jsonl of a folder of media: a line for each file, such as {"image": "a.png", "text": "a red apple"}. */
#ifndef WEFT_TRAIN_CAPTIONS_H
#define WEFT_TRAIN_CAPTIONS_H
#include "core/json.h"

/* `see` gets every line that is not empty; one that is no JSON as NULL, with the message set. -1: the file cannot be
 * read. */
int captions_read(const char *folder, void (*see)(void *context, const struct json *line), void *context);
/* The file that a line names under `key`, memory_free: a relative path begins at the folder; NULL if it names none. */
char *captions_path(const char *folder, const struct json *line, const char *key);

/* DATA itself and the folder beside it, or DATA/train and DATA/validation. */
struct captions_folders {
    char *train, *held_out; /* held_out NULL: there is none */
};
bool captions_exist(const char *folder);
/* lines: an example, for the message where there is no file. Release it also after -1. */
int captions_find(struct captions_folders *out, const char *data, const char *lines);
void captions_folders_release(struct captions_folders *folders);

#endif
