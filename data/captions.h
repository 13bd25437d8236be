/* captions.jsonl of a folder of media: a line for each file, such as {"image": "a.png", "text": "a red apple"}. */
#ifndef WEFT_DATA_CAPTIONS_H
#define WEFT_DATA_CAPTIONS_H
#include "core/json.h"

/* `folder` holds the file that the line is of. A line that is no JSON comes as NULL, with the message set. */
typedef void captions_fn(void *context, const char *folder, const struct json *line);
/* Every line that is not empty, of the folder's own file or else of those in the folders in it. -1: unreadable. */
int captions_read(const char *folder, captions_fn *see, void *context);
/* The file that a line names under `key`, memory_free: a relative path begins at the folder; NULL if it names none. */
char *captions_path(const char *folder, const struct json *line, const char *key);

/* Where the captions of a part ("train", ...) are, memory_free; NULL: nowhere. A folder with captions of its own is
 * training data, other parts lie beside it; else DATA/PART; and training data may be all folders in DATA. */
char *captions_part(const char *data, const char *part);
struct captions_folders {
    char *train, *held_out; /* held_out NULL: there is none */
};
/* train and validation; lines: an example, for the message where there is no file. Release it also after -1. */
int captions_find(struct captions_folders *out, const char *data, const char *lines);
void captions_folders_release(struct captions_folders *folders);

#endif
