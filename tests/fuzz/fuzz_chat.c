/* Fuzz target: any bytes up to the first 0 as a chat template, the others as the text of its messages.
 * The template is run or refused, and the text of a message never becomes a mark. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const tokens[] = {"<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<s>", "</s>", NULL};

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

static void push(struct json *messages, const char *role, const char *text, i64 length)
{
    struct json *message = json_object();
    json_set(message, "role", json_of_string(role));
    json_set(message, "content", json_of_bytes(text, length));
    json_push(messages, message);
}

static i64 count_marks(const struct text_tokenizer *tokenizer, const struct chat_ids *ids)
{
    i64 count = 0;
    for (i64 i = 0; i < ids->ids.count; i++)
        count += text_token_is_special(tokenizer, ids->ids.ids[i]);
    return count;
}

/* Lays out a question and its answer. ChatML writes four marks, whatever they say. */
static void converse(const struct text_tokenizer *tokenizer, const struct chat *chat, bool chatml, const char *text,
                     i64 length)
{
    static const bool learned[] = {false, true};
    struct json *messages = json_array();
    struct chat_ids ids = {0};
    push(messages, "user", text, length);
    push(messages, "assistant", text, length);
    struct chat_request request = {.messages = messages, .learned = learned};
    if (text_chat_encode(&ids, chat, &request) < 0)
        require(!chatml || strstr(error_text(), "private character"), "ChatML refuses: %s", error_text());
    else
        require(!chatml || count_marks(tokenizer, &ids) == 4, "the text of a message became a token");
    for (i64 i = 0, from = 0; i < ids.run_count; from = ids.runs[i++].end)
        require(ids.runs[i].end >= from && ids.runs[i].end <= ids.ids.count, "a run outside of the ids");
    chat_ids_release(&ids);
    json_free(messages);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct text_tokenizer *tokenizer;
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t length = end ? (size_t)(end - data) : size;
    const char *text = end ? (const char *)end + 1 : "";
    i64 rest = end ? (i64)(size - length) - 1 : 0;
    if (size == 0)
        return 0;
    if (!tokenizer)
        tokenizer = make_tokenizer();
    tokenizer->chat_templates = NULL;
    struct chat *plain = text_chat_open(tokenizer);
    require(plain, "%s", error_text());
    converse(tokenizer, plain, true, text, rest);
    text_chat_close(plain);
    tokenizer->chat_templates = json_object();
    json_set(tokenizer->chat_templates, "default", json_of_bytes((const char *)data, (i64)length));
    struct chat *chat = text_chat_open(tokenizer);
    require(chat || *error_text(), "a refused template leaves no message");
    if (chat)
        converse(tokenizer, chat, false, text, rest);
    text_chat_close(chat);
    json_free(tokenizer->chat_templates);
    return 0;
}
