/* Ids to text. */
#include "tokenizers/text_internal.h"

/* One U+FFFD for each maximal ill-formed part, as Unicode recommends (chapter 3, "U+FFFD substitution"). */
static void append_lossy(struct text *out, const u8 *bytes, i64 length)
{
    i64 good = 0, part;
    for (i64 i = 0; i < length; i += part) {
        if (utf8_sequence(&part, bytes + i, length - i))
            continue;
        text_append(out, bytes + good, i - good);
        text_append(out, "\xef\xbf\xbd", 3);
        good = i + part;
    }
    text_append(out, bytes + good, length - good);
}

int text_decode(const struct text_tokenizer *tokenizer, struct text *out, const i32 *ids, i64 count, bool skip_special)
{
    struct text bytes = {0};
    for (i64 i = 0; i < count; i++) {
        if (!text_token_content(tokenizer, ids[i])) {
            text_release(&bytes);
            return error_set("id %d at place %lld is not in %s; ids go from 0 to %lld", (int)ids[i], (long long)i,
                             tokenizer->origin, (long long)tokenizer->vocabulary - 1);
        }
        const struct token *token = &tokenizer->tokens[ids[i]];
        if (!(skip_special && token->skipped))
            text_append(&bytes, tokenizer_string(tokenizer, token->bytes), token->bytes_length);
    }
    append_lossy(out, (const u8 *)(bytes.length ? bytes.data : ""), bytes.length);
    text_release(&bytes);
    return 0;
}
