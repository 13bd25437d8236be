/* Decoding: ids to text. */
#define _GNU_SOURCE /* for memmem */
#include "tokenizers/text/text_internal.h"

#include <string.h>

static int unknown_id(const struct text_tokenizer *tokenizer, i32 id, i64 place)
{
    return error_set("id %d at place %lld is not in %s; ids go from 0 to %lld", (int)id, (long long)place,
                     tokenizer->origin, (long long)tokenizer->vocabulary - 1);
}

/* Fast path for ByteLevel alone: concatenates the tokens' bytes. */
static int decode_bytes(const struct text_tokenizer *tokenizer, struct buffer *out, const i32 *ids, i64 count,
                        bool skip_special)
{
    struct buffer bytes = {0};
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        const struct token *token = &tokenizer->tokens[ids[i]];
        if (!text_token_content(tokenizer, ids[i]))
            status = unknown_id(tokenizer, ids[i], i);
        else if (!(skip_special && token->skipped))
            buffer_append(&bytes, tokenizer_string(tokenizer, token->bytes), token->bytes_length);
    }
    if (status == 0)
        append_lossy(out, (const u8 *)(bytes.length ? bytes.data : ""), bytes.length);
    buffer_release(&bytes);
    return status;
}

static int push_strings(const struct text_tokenizer *tokenizer, struct token_strings *strings, const i32 *ids,
                        i64 count, bool skip_special)
{
    for (i64 i = 0; i < count; i++) {
        if (!text_token_content(tokenizer, ids[i]))
            return unknown_id(tokenizer, ids[i], i);
        const struct token *token = &tokenizer->tokens[ids[i]];
        if (skip_special && token->skipped)
            continue;
        if (tokenizer->decoders.count == 0 && strings->count)
            buffer_append(&strings->bytes, " ", 1);
        token_strings_push(strings, tokenizer_string(tokenizer, token->shown), token->shown_length, ids[i]);
    }
    return 0;
}

int text_decode(const struct text_tokenizer *tokenizer, struct buffer *out, const i32 *ids, i64 count,
                bool skip_special)
{
    if (tokenizer->decodes_bytes)
        return decode_bytes(tokenizer, out, ids, count, skip_special);
    struct regex_scratch *scratch = regex_scratch_open();
    struct token_strings strings = {0};
    buffer_append(&strings.bytes, "", 0);
    int status = push_strings(tokenizer, &strings, ids, count, skip_special);
    if (status == 0)
        status = decoders_apply(&tokenizer->decoders, tokenizer, &strings, scratch);
    if (status == 0)
        buffer_append(out, strings.bytes.data, strings.bytes.length);
    token_strings_release(&strings);
    regex_scratch_close(scratch);
    return status;
}

i64 text_decoded_bytes(const struct text_tokenizer *tokenizer, const i32 *ids, i64 count)
{
    static const char ill_formed[] = "\xef\xbf\xbd";
    struct buffer text = {0};
    struct id_list known = {0};
    i64 bytes = 0;
    for (i64 i = 0; i < count; i++)
        if (text_token_content(tokenizer, ids[i]) && tokenizer->decodes_bytes)
            bytes += tokenizer->tokens[ids[i]].skipped ? 0 : tokenizer->tokens[ids[i]].bytes_length;
        else if (text_token_content(tokenizer, ids[i]))
            id_list_push(&known, ids[i]);
    int status = text_decode(tokenizer, &text, known.ids, known.count, true);
    bytes += text.length;
    const char *end = text.data + text.length;
    for (const char *at = text.data; at && (at = memmem(at, (size_t)(end - at), ill_formed, 3)) != NULL; at += 3)
        bytes -= 2;
    buffer_release(&text);
    id_list_release(&known);
    return status < 0 ? -1 : bytes;
}
