/* What conversations taught a model: a few of their prompts, for who talks with it. `sft` writes them
 * beside the weights; stages that go on from the model copy them. */
#ifndef WEFT_TRAIN_TAUGHT_H
#define WEFT_TRAIN_TAUGHT_H
#include "core/settings.h"

struct json;
#define TAUGHT_FILE "weft/taught.json"
enum { TAUGHT_PROMPTS = 4, TAUGHT_PROMPT_BYTES = 200 };
/* {"conversations": N, "prompts": ["hello", ..], "media": ["image", ..]} of the training parts of `data`, of
 * each source in turn: first messages of a user that are one line of text, and what media users show. Whole
 * messages only: as few bytes as there are, the most frequent first, and each begins with another word. NULL
 * and a message if shards cannot be read. The caller frees it. */
struct json *taught_of_shards(const struct source_list *data);
int taught_save(const char *model_directory, const struct source_list *data);
int taught_copy(const char *to, const char *from); /* between model directories; 0 if there is no file */
#endif
