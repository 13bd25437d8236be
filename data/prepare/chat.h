/* Conversations in the chat layout of a text tokenizer, as samples of messages (sources.h). The
 * stage `prepare` and the generator lay them out with these functions (prepare_chat.c). */
#ifndef WEFT_DATA_CHAT_H
#define WEFT_DATA_CHAT_H
#include "data/sources/sources.h"
#include "tokenizers/text/text.h"

struct chat_writer {
    const struct text_tokenizer *text;
    const struct chat_layout *layout; /* NULL: no known chat layout */
};
/* Merges a system message into a question if the layout has no such role. */
void chat_fold(const struct chat_layout *layout, struct sample *sample);
/* Appends the ids of a part. head: those before the text that are always a prompt; ids: the text. A
 * medium has a head only. */
int chat_encode(struct id_list *head, struct id_list *ids, const struct chat_writer *writer,
                const struct sample *sample, i64 part);
bool chat_ends_message(const struct sample *sample, i64 part); /* true for the last part of a message */
/* Appends the tokens behind a message, whose last part is `part`. */
void chat_end(struct id_list *out, const struct chat_writer *writer, const struct sample *sample, i64 part);
bool chat_answers(const struct sample *sample, i64 part); /* true if the part is an assistant's */
bool chat_learns(const struct sample *sample, i64 part);  /* and the answer is to be learned */
const char *chat_role(const struct sample *sample, i64 part);

#endif
