/* Fuzz target: any bytes as a SentencePiece model or a tiktoken file (the first byte selects) are
 * read or refused. An accepted tokenizer encodes and decodes text without a crash, and its ids
 * decode. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char sample[] =
    "I'll see: a  b\r\n\n\t12345 caf\xc3\xa9 e\xcc\x81 <|x|> \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x99\x82 \xe2\x96\x81 ";

static void try_text(const struct text_tokenizer *tokenizer, const char *text, i64 length)
{
    struct id_list ids = {0};
    struct buffer shown = {0};
    if (text_encode(tokenizer, &ids, text, length, &(struct encode_options){.add_template = true}) == 0)
        require(text_decode(tokenizer, &shown, ids.ids, ids.count, false) == 0, "%s", error_text());
    buffer_release(&shown);
    id_list_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"<|boi|>", "<s>", NULL};
    static const char settings[] = "{\"pattern\":\"o200k\"}";
    log_set_level(LOG_QUIET);
    if (size == 0)
        return 0;
    struct json *config = json_parse(settings, sizeof settings - 1, "config");
    struct text_tokenizer *tokenizer = data[0] & 1 ? sentencepiece_parse(data + 1, (i64)size - 1, "fuzz.model")
                                                   : tiktoken_parse(data + 1, (i64)size - 1, config, "fuzz.tiktoken");
    json_free(config);
    if (tokenizer && tokenizer_seal(tokenizer) == 0 && text_tokenizer_add_special(tokenizer, names) == 0) {
        try_text(tokenizer, sample, (i64)sizeof sample - 1);
        try_text(tokenizer, (const char *)data, (i64)size);
    }
    text_tokenizer_free(tokenizer);
    return 0;
}
