/* Conversations in the chat template of a text tokenizer (tokenizers/text/text.h), as samples of
 * messages (sources.h). The stage `prepare` and the generator lay them out with these functions
 * (prepare_chat.c).
 *
 * A message becomes {"role", "content", ..} with the members of its keys. A content of one text is a
 * text; one of several parts is a list of {"type": "text", "text"}, if the template takes lists, else
 * the texts together. A medium stands in either as a private character, at whose place the rendered
 * text is cut: the template writes no marks of its own for it, since the model has its own brackets. */
#ifndef WEFT_DATA_CHAT_H
#define WEFT_DATA_CHAT_H
#include "data/sources/sources.h"
#include "tokenizers/text/text.h"

/* Lays a conversation out. `medium` of a run is the number of its part. prompt: ends with the
 * generation prompt, and nothing is learned; else without the white space behind the last mark.
 * -1 and a message. */
int chat_lay_out(struct chat_ids *out, const struct chat *chat, const struct sample *sample, bool prompt);
bool chat_answers(const struct sample *sample, i64 part); /* true if the part is an assistant's */
bool chat_learns(const struct sample *sample, i64 part);  /* and the answer is to be learned */
const char *chat_role(const struct sample *sample, i64 part);

#endif
