/* Internal interface of the chat files: text_chat.c (templates, rendering, ids), chat_spelled.c (marks
 * that a conversation spells), chat_learned.c (which text of a conversation is learned). */
#ifndef WEFT_CHAT_INSIDE_H
#define WEFT_CHAT_INSIDE_H
#include "core/json.h"
#include "tokenizers/template/template.h"
#include "tokenizers/text/text_internal.h"

/* One template of a tokenizer, and what short conversations show of it. */
struct chat_program {
    struct template *program; /* NULL: `problem` says why */
    char *source, *problem;
    bool takes_texts; /* a content may be a list of texts */
    bool only_texts;  /* and may not be a text */
    /* What it writes between a question and an answer that is only a text: the generation prompt, and
     * text behind it; in the middle of a conversation, and in front of its last answer. And what it
     * writes behind such an answer, as far as that does not depend on what follows, and behind the last
     * one. */
    struct buffer header, lead, last_lead, tail,
        last_tail; /* header without a generation prompt: the end of a question */
    bool plain;    /* header, lead and tail are known, and the header has a mark */
};
enum { CHAT_PROGRAMS = 2 }; /* the default, and that for tools */
struct chat {
    const struct text_tokenizer *tokenizer;
    struct json *roles; /* bos_token, .. */
    struct chat_program programs[CHAT_PROGRAMS];
    bool has_tool_use;
    bool starts[256]; /* bytes that begin an added token */
    bool *marks;      /* [vocabulary] tokens that no text of a conversation becomes */
    i64 most_bytes;   /* of a mark */
    i32 begin, end;   /* of a message, of an answer */
    i32 middle_end;   /* of an answer that others follow */
};

/* A conversation while it is laid out. Offsets are bytes of its text. */
struct chat_work {
    const struct chat *chat;
    const struct chat_program *program;
    const struct chat_request *request;
    struct json *messages; /* as transformers gives them to a template */
    i64 count;
    struct template_output shown; /* the whole conversation */
    i64 *barred;                  /* where the text of a message spells a mark */
    i64 barred_count;
    struct template_span *learned;
    i64 learned_count;
};
/* Renders the first `count` messages. -1 and a message. */
int chat_render(struct template_output *out, const struct chat_work *work, const struct json *messages, i64 count,
                bool prompt);
const char *chat_output(const struct template_output *out); /* its text, which may be empty */
/* Bytes that both texts begin with. */
i64 chat_common(const struct template_output *a, const struct template_output *b);

/* chat_spelled.c: finds the marks of `shown` that are text of the messages. */
int chat_find_spelled(struct chat_work *work);
/* The next mark at or after *at, which is set behind it. False: none. */
bool chat_next_mark(struct template_span *mark, i32 *id, i64 *at, const struct chat_work *work, i64 end);

/* chat_learned.c: finds the text of `shown` that is learned. */
int chat_find_learned(struct chat_work *work);
#endif
