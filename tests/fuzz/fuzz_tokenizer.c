/* Fuzz target: any bytes as a tokenizer.json are read or refused. An accepted tokenizer encodes and
 * decodes text without a crash; its ids decode, and encoding twice gives the same ids. */
#include "tokenizers/text/text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char sample[] =
    "I'll see: a  b\r\n\n\t12345 caf\xc3\xa9 e\xcc\x81 <|x|> \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x99\x82  ";

/* Returns 0, or -1 if the vocabulary or the expression cannot encode the text. */
static int encode(struct id_list *out, const struct text_tokenizer *tokenizer, const char *text, i64 length)
{
    const struct encode_options dropped = {.dropout = 0.3, .key = {1, RNG_TEST}};
    struct id_list other = {0};
    if (text_encode(tokenizer, &other, text, length, &dropped) == 0) {
        struct buffer shown = {0};
        require(text_decode(tokenizer, &shown, other.ids, other.count, true) == 0, "%s", error_text());
        buffer_release(&shown);
    }
    id_list_release(&other);
    return text_encode(tokenizer, out, text, length, NULL);
}

static void check_again(const struct text_tokenizer *tokenizer, const struct id_list *ids, const char *text, i64 length)
{
    struct buffer shown = {0};
    struct id_list again = {0};
    require(text_decode(tokenizer, &shown, ids->ids, ids->count, false) == 0, "%s", error_text());
    require(encode(&again, tokenizer, text, length) == 0, "%s", error_text());
    require(again.count == ids->count &&
                (!ids->count || !memcmp(again.ids, ids->ids, (size_t)ids->count * sizeof(i32))),
            "a second encoding differs");
    text_encode(tokenizer, &again, shown.length ? shown.data : "", shown.length,
                &(struct encode_options){.plain = true});
    buffer_release(&shown);
    id_list_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    log_set_level(LOG_QUIET);
    struct text_tokenizer *tokenizer = text_tokenizer_parse((const char *)data, (i64)size, "fuzz.json");
    if (!tokenizer)
        return 0;
    struct id_list ids = {0};
    if (encode(&ids, tokenizer, sample, (i64)sizeof sample - 1) == 0)
        check_again(tokenizer, &ids, sample, (i64)sizeof sample - 1);
    id_list_release(&ids);
    encode(&ids, tokenizer, (const char *)data, (i64)size); /* often not UTF-8 */
    id_list_release(&ids);
    text_tokenizer_free(tokenizer);
    return 0;
}
