/* A conversation with a model: messages with media go in, the model's answers are text. The ids are
 * those that `prepare` writes for the same messages (data/prepare/chat.h). Functions return 0, or -1
 * and a message, after which the conversation is as before. */
#ifndef WEFT_CONVERSATION_H
#define WEFT_CONVERSATION_H
#include "data/prepare/chat.h"
#include "generate/generator.h"

struct json;
struct conversation {
    struct generator *generator; /* borrowed */
    struct chat *chat;
    struct json *variables; /* of the template, for all its messages; NULL: none */
    struct sample said;     /* whole messages; `at` of a medium is its index in `media` */
    struct sample attached; /* media of the next message */
    struct prompt **media;  /* [media_count] each is one encoded medium */
    i64 media_count;
    i64 first; /* the first part that still fits into the model's length, behind a system message */
};
/* The generator's tokenizer must have a chat template. */
int conversation_open(struct conversation *conversation, struct generator *generator);
void conversation_close(struct conversation *conversation);
/* False: the config does not name the end of a message, as it does after fine-tuning on conversations. */
bool conversation_is_trained(const struct generator *generator);
void conversation_reset(struct conversation *conversation); /* forgets all messages and media */
/* Variables of the template, an object such as {"enable_thinking": false}; those that a conversation
 * comes with go before them. */
void conversation_set_variables(struct conversation *conversation, const struct json *variables);

/* Encodes a file, which becomes a part of the next message. */
int conversation_attach(struct conversation *conversation, enum modality kind, const char *path);
/* Adds a message: the attached media, then the text. */
int conversation_say(struct conversation *conversation, const char *role, const char *text, i64 length);
/* Adds the messages of a JSON object in the forms that `prepare` reads, {"messages": [..]}, or of a
 * list of messages. origin: FILE:LINE, for messages; folder: base of relative paths; record: the row of
 * a table that has the bytes of media, NULL: none has. */
struct record;
int conversation_read(struct conversation *conversation, const struct json *value, const char *origin,
                      const char *folder, const struct record *record);
void conversation_take_back(struct conversation *conversation); /* removes the last message */
/* Moves the conversation with its media into a prompt just initialised, and forgets it: laid out for a
 * text answer, or, if the prompt asks for a medium, as its caption, which is one user's message. */
int conversation_prompt(struct prompt *prompt, struct conversation *conversation);
i64 conversation_messages(const struct conversation *conversation);
/* {"messages": [{"role", "content", ..}, ..]} with absolute paths of media, in the form that
 * conversation_read reads. The caller frees it. */
struct json *conversation_json(const struct conversation *conversation);

/* Where a growing answer is shown: `text` is whole UTF-8 characters that follow those shown before. */
struct conversation_show {
    void (*text)(void *context, const char *text, i64 length);
    void *context;
};
struct conversation_options {
    struct generator_options decoding; /* its watcher is set by conversation_answer */
    i64 most;                          /* ids of an answer at most */
    const struct conversation_show *show;
};
/* Lays the messages out. If they and an answer of `most` ids, or half of the model's length, do not
 * fit into that length, the model no longer reads the oldest turns, which a log line says; a system
 * message stays. -1 and a message if the last message alone does not fit, or if the chat
 * template refuses the conversation. */
int conversation_fit(struct conversation *conversation, i64 most);
/* Answers the last message of each conversation, after conversation_fit, and adds the answers to
 * them. identity: number of the first conversation, for random draws. show needs count 1.
 * full, [count], tells which answers ended at `most`; NULL: not needed.
 *
 * If the answers are interrupted, what was said until then is kept, if it is not empty, and the
 * result is -1. */
int conversation_answer(struct conversation *conversations, i64 count, u32 identity, bool *full,
                        const struct conversation_options *options);

#endif
