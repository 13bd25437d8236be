/* Prompts with media, and prompts for media: laid out with a model's tokenizers.
 *
 *   media in   {"prompt": [{"role": "user", "content": "<image> How many?"}], "images": ["a.png"], ..}
 *              or parts of a content, {"type": "image", "image": "a.png"}; likewise "videos", "audios".
 *              Laid out in the chat template, as in fine-tuning. File names are relative to the folder
 *              of the file of prompts; the rows of a table may have the bytes.
 *   media out  {"prompt": "red apple, round", "to": "image", ..}; or "video", "audio". The prompt is one
 *              user's message. It is laid out as a caption, as `weft generate --to` does, not in the
 *              template. Guidance is refused: the policy is the model's own distribution.
 *
 * Neither gets hints: extra_info.think and .pass are refused. */
#ifndef WEFT_RL_PROMPT_MEDIA_H
#define WEFT_RL_PROMPT_MEDIA_H
#include "rl/prompts.h"

/* The tokenizers of a model directory, opened by the first prompt that needs them. */
struct prompt_media {
    struct device *device;
    const char *directory; /* borrowed */
    enum dtype dtype;      /* of the model */
    bool opened;
    struct generator generator;
};
void prompt_media_close(struct prompt_media *media);
/* The generator if it was opened, else NULL. */
const struct generator *prompt_media_of(const struct prompt_media *media);
/* True for a part of a content that has a medium. */
bool part_names_medium(const struct json *part);
/* True if a prompt names media or asks for one. */
bool prompt_needs_media(const struct json *source);
/* Lays out task->source. variables: of the chat template; record: the row of a table that has the bytes
 * of media, NULL: none has. -1 and a message, with or without the prompt's place. */
int prompt_read_media(struct task *task, struct prompt_media *media, const struct json *variables,
                      const struct record *record);

#endif
