/* Fuzz target: any bytes up to the first 0 as a chat template, the others as the text of its
 * messages. A layout is found or refused, and the text of a message never becomes a special
 * token. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Tokens of all layouts of text_chat.c. */
static const char *const tokens[] = {"<|im_start|>",
                                     "<|im_end|>",
                                     "<|im_sep|>",
                                     "<|start_header_id|>",
                                     "<|end_header_id|>",
                                     "<|eot_id|>",
                                     "<|begin_of_text|>",
                                     "<start_of_turn>",
                                     "<end_of_turn>",
                                     "<bos>",
                                     "<|end|>",
                                     "<|user|>",
                                     "<|assistant|>",
                                     "<|system|>",
                                     "<\uff5cUser\uff5c>",
                                     "<\uff5cAssistant\uff5c>",
                                     "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
                                     "<\uff5cend\u2581of\u2581sentence\uff5c>",
                                     "<|begin_of_sentence|>",
                                     "<|end_of_sentence|>",
                                     "[INST]",
                                     "[/INST]",
                                     "[SYSTEM_PROMPT]",
                                     "[/SYSTEM_PROMPT]",
                                     "<s>",
                                     "</s>",
                                     NULL};

/* A tokenizer of single bytes, in the format of tiktoken, with all tokens. */
static struct text_tokenizer *make_tokenizer(void)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char settings[] = "{\"pattern\":\"o200k\"}";
    struct buffer lines = {0};
    for (int i = 0; i < 256; i++)
        buffer_printf(&lines, "%c%c== %d\n", digits[i >> 2], digits[(i & 3) << 4], i);
    struct json *config = json_parse(settings, sizeof settings - 1, "config");
    struct text_tokenizer *tokenizer = tiktoken_parse(lines.data, lines.length, config, "fuzz.tiktoken");
    require(tokenizer && tokenizer_seal(tokenizer) == 0 && text_tokenizer_add_special(tokenizer, tokens) == 0, "%s",
            error_text());
    json_free(config);
    buffer_release(&lines);
    return tokenizer;
}

static void check_plain(const struct text_tokenizer *tokenizer, const struct id_list *ids, i64 from)
{
    for (i64 i = from; i < ids->count; i++)
        require(!text_token_is_special(tokenizer, ids->ids[i]), "the text of a message became token %d", ids->ids[i]);
}

/* Encodes a conversation of one message of each role that the layout has. */
static void converse(const struct text_tokenizer *tokenizer, const struct chat_layout *layout, const char *text,
                     i64 length)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "", "developer"};
    struct id_list ids = {0};
    require(text_chat_begin(&ids, tokenizer, layout) == 0, "%s", error_text());
    for (i64 i = 0; i < COUNT_OF(roles); i++) {
        const char *said = text;
        i64 bytes = length, head = ids.count;
        chat_trim(layout, true, true, &said, &bytes);
        require(bytes >= 0 && said >= text && said + bytes <= text + length, "a trimmed text outside of its own");
        if (text_chat_head(&ids, tokenizer, layout, roles[i], "", 0) < 0) {
            require(*error_text(), "a refused role leaves no message");
            continue;
        }
        ids.count = head;
        if (text_chat_head(&ids, tokenizer, layout, roles[i], said, bytes) < 0)
            break;
        i64 begin = ids.count;
        if (text_chat_text(&ids, tokenizer, said, bytes) < 0)
            break;
        check_plain(tokenizer, &ids, begin);
        require(text_chat_tail(&ids, tokenizer, layout, roles[i]) == 0, "%s", error_text());
        require(chat_ending(layout, roles[i]) && chat_before_answer(layout), "no text");
    }
    id_list_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct text_tokenizer *tokenizer;
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t length = end ? (size_t)(end - data) : size;
    if (size == 0)
        return 0;
    if (!tokenizer)
        tokenizer = make_tokenizer();
    tokenizer->config = json_object();
    struct json *template = json_of_bytes((const char *)data, (i64)length);
    if (size % 2) { /* a list of named templates */
        struct json *list = json_array(), *named = json_object();
        json_set(named, "template", template);
        json_push(list, named);
        template = list;
    }
    json_set(tokenizer->config, "chat_template", template);
    i32 begin = -1, finish = -1;
    const struct chat_layout *layout = text_chat_layout(tokenizer);
    require(layout || *error_text(), "a refused template leaves no message");
    text_chat_marks(&begin, &finish, tokenizer);
    if (layout) {
        require(text_chat_template(tokenizer) && finish >= -1, "a layout without a template");
        converse(tokenizer, layout, end ? (const char *)end + 1 : "", end ? (i64)(size - length) - 1 : 0);
    }
    json_free(tokenizer->config);
    tokenizer->config = NULL;
    return 0;
}
