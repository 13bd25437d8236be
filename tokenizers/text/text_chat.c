/* Conversation layouts, as chat_template in tokenizer_config.json describes them. A template is a
 * Jinja program; this code does not run it but recognizes the layout by substrings that the
 * template contains or lacks, and refuses all others. It does not add the default system messages,
 * dates and tool lists of some templates: a conversation consists of its messages only. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

enum { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, ROLES };
static const char *const role_names[ROLES] = {"system", "user", "assistant", "tool"};

struct chat_turn {
    /* Tokens before a message; plain text that tokenizes with the message. mark NULL: no such
     * role. */
    const char *mark, *lead;
    const char *after;
    const char *ending; /* plain text that tokenizes with the end of the message; NULL: none */
};
struct chat_layout {
    const char *name;
    const char *needs[3];  /* substrings of its template; the first two are also its tokens, unless `tokens` is set */
    const char *lacks[5];  /* substrings of similar templates that it must not contain */
    const char *tokens[2]; /* tokens that the vocabulary must have */
    const char *begin;     /* tokens before the first message */
    struct chat_turn turns[ROLES];
    const char *answer; /* plain text that tokenizes with the start of an answer; NULL: none */
    bool trims;         /* trims spaces at both ends of a message */
    enum chat_fold folds;
};
#define CHATML(role)                                                                                                   \
    {                                                                                                                  \
        "<|im_start|>", role "\n", "<|im_end|>\n"                                                                      \
    }
#define LLAMA_3(role)                                                                                                  \
    {                                                                                                                  \
        "<|start_header_id|>" role "<|end_header_id|>", "\n\n", "<|eot_id|>"                                           \
    }
#define GEMMA(role)                                                                                                    \
    {                                                                                                                  \
        "<start_of_turn>", role "\n", "<end_of_turn>\n"                                                                \
    }
#define PHI_3(role)                                                                                                    \
    {                                                                                                                  \
        "<|" role "|>", "\n", "<|end|>\n"                                                                              \
    }
#define PHI_4(role)                                                                                                    \
    {                                                                                                                  \
        "<|im_start|>" role "<|im_sep|>", "", "<|im_end|>"                                                             \
    }
/* Mistral layouts without a system role; V2 is V3 without tools. They do not match Llama-2, nor V1
 * templates that omit the space before an answer, because the model was trained with that space. */
#define MISTRAL_3(title, open, space, place, other, more, fold)                                                        \
    {                                                                                                                  \
        .name = (title), .needs = {open, "[/INST]", place},                                                            \
        .lacks = {" [/INST]", "[SYSTEM_PROMPT]", "<<SYS>>", other, more}, .tokens = {"[INST]", "[/INST]"},             \
        .begin = "<s>", .turns = {{NULL}, {"[INST]", space, "[/INST]"}, {"", "", "</s>"}}, .answer = space,            \
        .folds = (fold)                                                                                                \
    }
static const struct chat_layout layouts[] = {
    {.name = "Phi-4",
     .needs = {"<|im_start|>", "<|im_sep|>"},
     .turns = {PHI_4("system"), PHI_4("user"), PHI_4("assistant")}},
    {.name = "ChatML",
     .needs = {"<|im_start|>", "<|im_end|>"},
     .turns = {CHATML("system"), CHATML("user"), CHATML("assistant"), CHATML("tool")}},
    {.name = "Llama-3",
     .needs = {"<|start_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>",
     .turns = {LLAMA_3("system"), LLAMA_3("user"), LLAMA_3("assistant"), LLAMA_3("ipython")},
     .trims = true},
    {.name = "Gemma",
     .needs = {"<start_of_turn>", "<end_of_turn>"},
     .begin = "<bos>",
     .turns = {{NULL}, GEMMA("user"), GEMMA("model")},
     .trims = true,
     .folds = CHAT_FOLD_FIRST},
    {.name = "Phi-3",
     .needs = {"<|end|>", "<|assistant|>"},
     .turns = {PHI_3("system"), PHI_3("user"), PHI_3("assistant")}},
    {.name = "DeepSeek",
     .needs = {"<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"},
     .begin = "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
     .turns = {{"", "", ""},
               {"<\uff5cUser\uff5c>", "", ""},
               {"<\uff5cAssistant\uff5c>", "", "<\uff5cend\u2581of\u2581sentence\uff5c>"}}},
    {.name = "ERNIE-4.5",
     .needs = {"User: ", "Assistant: "},
     .tokens = {"<|begin_of_sentence|>", "<|end_of_sentence|>"},
     .begin = "<|begin_of_sentence|>",
     .turns = {{"", "", "", "\n"}, {"", "User: ", "", "\n"}, {"", "Assistant: ", "<|end_of_sentence|>"}}},
    {.name = "Mistral (V7 of Tekken)",
     .needs = {"[SYSTEM_PROMPT]", "[/INST]"},
     .lacks = {"[INST] ", " [/INST]"},
     .begin = "<s>",
     .turns = {{"[SYSTEM_PROMPT]", "", "[/SYSTEM_PROMPT]"}, {"[INST]", "", "[/INST]"}, {"", "", "</s>"}}},
    {.name = "Mistral (V7)",
     .needs = {"[SYSTEM_PROMPT] ", "[INST] "},
     .lacks = {" [/INST]", " [/SYSTEM_PROMPT]"},
     .tokens = {"[SYSTEM_PROMPT]", "[/INST]"},
     .begin = "<s>",
     .turns = {{"[SYSTEM_PROMPT]", " ", "[/SYSTEM_PROMPT]"}, {"[INST]", " ", "[/INST]"}, {"", "", "</s>"}},
     .answer = " "},
    {.name = "Mistral (V1)", /* [INST] is text, not a token; its tokenizer adds the space before it */
     .needs = {" [INST] ", " [/INST]"},
     .lacks = {"<<SYS>>", "[SYSTEM_PROMPT]"},
     .tokens = {"<s>", "</s>"},
     .begin = "<s>",
     .turns = {{NULL}, {"", " [INST] ", "", " [/INST]"}, {"", "", "</s>"}},
     .answer = " ",
     .folds = CHAT_FOLD_FIRST},
    MISTRAL_3("Mistral (V3, system message first)", "[INST] ", " ", "loop.first", "loop.last", NULL, CHAT_FOLD_FIRST),
    MISTRAL_3("Mistral (V3)", "[INST] ", " ", NULL, NULL, NULL, CHAT_FOLD_LAST),
    MISTRAL_3("Mistral (V3 of Tekken, system message first)", "[INST]", "", "loop.first", "loop.last", "[INST] ",
              CHAT_FOLD_FIRST),
    MISTRAL_3("Mistral (V3 of Tekken)", "[INST]", "", NULL, "[INST] ", NULL, CHAT_FOLD_LAST),
};
static const struct chat_layout *const chatml = &layouts[1];

static const char *template_of(const struct text_tokenizer *tokenizer)
{
    const struct json *value = json_get(tokenizer->config, "chat_template");
    if (json_kind(value) == JSON_ARRAY) /* several, by name; the first is the default */
        value = json_get(json_at(value, 0), "template");
    return json_string(value, NULL);
}

static bool has_tokens(const struct text_tokenizer *tokenizer, const struct chat_layout *layout)
{
    const char *const *tokens = layout->tokens[0] ? layout->tokens : layout->needs;
    return text_token_id(tokenizer, tokens[0]) >= 0 && text_token_id(tokenizer, tokens[1]) >= 0;
}

static bool is_written_by(const struct chat_layout *layout, const char *text)
{
    for (i64 i = 0; i < COUNT_OF(layout->needs); i++)
        if (layout->needs[i] && !strstr(text, layout->needs[i]))
            return false;
    for (i64 i = 0; i < COUNT_OF(layout->lacks); i++)
        if (layout->lacks[i] && strstr(text, layout->lacks[i]))
            return false;
    return true;
}

/* NULL if there is no layout, or an unknown one. */
static const struct chat_layout *find_layout(const struct text_tokenizer *tokenizer)
{
    const char *text = template_of(tokenizer);
    for (i64 i = 0; text && i < COUNT_OF(layouts); i++)
        if (is_written_by(&layouts[i], text) && has_tokens(tokenizer, &layouts[i]))
            return &layouts[i];
    return !text && has_tokens(tokenizer, chatml) ? chatml : NULL;
}

static void list_layouts(struct buffer *out)
{
    for (i64 i = 0; i < COUNT_OF(layouts); i++)
        buffer_printf(out, "%s%s", i ? ", " : "", layouts[i].name);
}

static int encode(struct id_list *out, const struct text_tokenizer *tokenizer, const char *text, i64 length, bool plain)
{
    return text_encode(tokenizer, out, text, length, &(struct encode_options){.plain = plain, .inside = true});
}

static i32 first_id(const struct text_tokenizer *tokenizer, const char *text)
{
    struct id_list ids = {0};
    i32 id = encode(&ids, tokenizer, text, (i64)strlen(text), false) == 0 && ids.count ? ids.ids[0] : -1;
    id_list_release(&ids);
    return id;
}

/* False for a SentencePiece model alone, which encodes control pieces as text. */
static bool begins_with_token(const struct text_tokenizer *tokenizer, const struct chat_layout *layout)
{
    return !layout->begin || text_token_is_special(tokenizer, first_id(tokenizer, layout->begin));
}

const struct chat_layout *text_chat_layout(const struct text_tokenizer *tokenizer)
{
    const struct chat_layout *layout = find_layout(tokenizer);
    struct buffer known = {0};
    list_layouts(&known);
    if (!layout && template_of(tokenizer))
        error_set("%s: chat_template of its tokenizer_config.json is none of the layouts that are known (%s), or the "
                  "tokenizer lacks its tokens; without chat_template it is ChatML, whose tokens `weft tokenize FILE -o "
                  "DIR` adds",
                  tokenizer->origin, known.data);
    else if (!layout)
        error_set("%s: a conversation, but the text tokenizer has neither a chat_template in tokenizer_config.json nor "
                  "ChatML's tokens <|im_start|> and <|im_end|>, which `weft tokenize FILE -o DIR` adds",
                  tokenizer->origin);
    else if (!begins_with_token(tokenizer, layout)) {
        error_set(
            "%s: %s, with which the chat layout %s begins, is no token to a SentencePiece model alone: put the same "
            "tokenizer's tokenizer.json beside it",
            tokenizer->origin, layout->begin, layout->name);
        layout = NULL;
    }
    buffer_release(&known);
    return layout;
}

const char *text_chat_template(const struct text_tokenizer *tokenizer)
{
    const char *own = template_of(tokenizer);
    return own ? own : find_layout(tokenizer) ? chat_template : NULL;
}

enum chat_fold chat_folds_system(const struct chat_layout *layout)
{
    return layout->folds;
}

/* ---- Pieces ---- */

static const struct chat_turn *find_turn(const struct text_tokenizer *tokenizer, const struct chat_layout *layout,
                                         const char *role)
{
    for (int i = 0; i < ROLES; i++)
        if (strcmp(role, role_names[i]) == 0 && layout->turns[i].mark)
            return &layout->turns[i];
    error_set("%s: a message of the role %s, which its chat layout, %s, does not have", tokenizer->origin, role,
              layout->name);
    return NULL;
}

int text_chat_begin(struct id_list *out, const struct text_tokenizer *tokenizer, const struct chat_layout *layout)
{
    return layout->begin ? encode(out, tokenizer, layout->begin, (i64)strlen(layout->begin), false) : 0;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

void chat_trim(const struct chat_layout *layout, bool first, bool last, const char **text, i64 *length)
{
    while (layout->trims && first && *length > 0 && is_space(**text))
        ++*text, --*length;
    while (layout->trims && last && *length > 0 && is_space((*text)[*length - 1]))
        --*length;
}

int text_chat_head(struct id_list *out, const struct text_tokenizer *tokenizer, const struct chat_layout *layout,
                   const char *role, const char *text, i64 length)
{
    const struct chat_turn *turn = find_turn(tokenizer, layout, role);
    struct buffer lead = {0};
    if (!turn || encode(out, tokenizer, turn->mark, (i64)strlen(turn->mark), false) < 0)
        return -1;
    buffer_append(&lead, turn->lead, (i64)strlen(turn->lead));
    buffer_append(&lead, text, length);
    int status = encode(out, tokenizer, lead.data ? lead.data : "", lead.length, true);
    buffer_release(&lead);
    return status;
}

const char *chat_ending(const struct chat_layout *layout, const char *role)
{
    for (int i = 0; i < ROLES; i++)
        if (strcmp(role, role_names[i]) == 0 && layout->turns[i].ending)
            return layout->turns[i].ending;
    return "";
}

const char *chat_before_answer(const struct chat_layout *layout)
{
    return layout->answer ? layout->answer : "";
}

int text_chat_text(struct id_list *out, const struct text_tokenizer *tokenizer, const char *text, i64 length)
{
    return encode(out, tokenizer, text, length, true);
}

int text_chat_tail(struct id_list *out, const struct text_tokenizer *tokenizer, const struct chat_layout *layout,
                   const char *role)
{
    const struct chat_turn *turn = find_turn(tokenizer, layout, role);
    return turn ? encode(out, tokenizer, turn->after, (i64)strlen(turn->after), false) : -1;
}

void text_chat_marks(i32 *begin, i32 *end, const struct text_tokenizer *tokenizer)
{
    const struct chat_layout *layout = find_layout(tokenizer);
    if (!layout)
        return;
    *begin = first_id(tokenizer, layout->turns[ROLE_USER].mark);
    *end = first_id(tokenizer, layout->turns[ROLE_ASSISTANT].after);
}
