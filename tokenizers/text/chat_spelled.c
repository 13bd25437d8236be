/* Finds the marks of a rendered conversation that are text of its messages. If a string of the
 * conversation contains a mark, or ends with the beginning of one, the conversation is rendered a
 * second time with the first character of each such mark changed to a private character. The two
 * renderings then differ only in these characters, and no mark begins where one stands. Contents
 * stay whole, because templates look at them, trim them and cut them.
 *
 * If the renderings differ elsewhere, the template depends on the spelled mark, and the conversation
 * is refused. One case is not found: a mark whose pieces stand in one string, around a text that the
 * template takes out. */
#define _GNU_SOURCE /* memmem */
#include "tokenizers/text/chat_inside.h"

#include <string.h>

enum { SPELLED = 0x10e000 }; /* the private character */
#define SPELLED_BYTES "\xf4\x8e\x80\x80"

/* ---- Marks ---- */

static bool bucket_has(const struct chat *chat, const struct matcher *matcher, const char *text, i64 length,
                       bool partial)
{
    const struct text_tokenizer *t = chat->tokenizer;
    u8 first = (u8)*text;
    for (i64 i = matcher->first[first]; i < matcher->first[first + 1]; i++) {
        const struct added_token *token = &t->added[matcher->order[i]];
        i64 count = token->match_length;
        if (chat->marks[token->id] && (count <= length) != partial &&
            memcmp(tokenizer_string(t, token->match), text, (size_t)min_i64(count, length)) == 0)
            return true;
    }
    return false;
}

/* A mark begins at text[0]; at the end of a string, the beginning of one suffices. */
static bool spells_mark(const struct chat *chat, const char *text, i64 length, i64 string_end)
{
    const struct text_tokenizer *t = chat->tokenizer;
    const struct matcher *matchers[] = {&t->raw, &t->normalized};
    for (i64 k = 0; k < COUNT_OF(matchers); k++) {
        const struct matcher *m = matchers[k];
        if (m->first[(u8)*text] == m->first[(u8)*text + 1])
            continue;
        if (matcher_longest(t, m, (const u8 *)text, length) && bucket_has(chat, m, text, length, false))
            return true;
        if (string_end < chat->most_bytes && bucket_has(chat, m, text, string_end, true))
            return true;
    }
    return false;
}

bool chat_next_mark(struct template_span *mark, i32 *id, i64 *at, const struct chat_work *w, i64 end)
{
    const struct text_tokenizer *t = w->chat->tokenizer;
    const u8 *text = (const u8 *)chat_output(&w->shown);
    i64 b = 0;
    for (i64 i = *at; i < end; i++) {
        if (!w->chat->starts[text[i]])
            continue;
        while (b < w->barred_count && w->barred[b] < i)
            b++;
        if (b < w->barred_count && w->barred[b] == i)
            continue;
        const struct added_token *token = matcher_longest(t, &t->raw, text + i, end - i);
        if (!token)
            token = matcher_longest(t, &t->normalized, text + i, end - i);
        if (!token)
            continue;
        if (w->chat->marks[token->id]) {
            *mark = (struct template_span){i, i + token->match_length};
            *id = token->id;
            *at = mark->end;
            return true;
        }
        i += token->match_length - 1;
    }
    *at = end;
    return false;
}

/* ---- Strings ---- */

static i64 end_without_blanks(const char *text, i64 length)
{
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) && text[length - 1])
        length--;
    return length;
}

/* Appends the string with private characters; `out` NULL: only looks. True if there are any. */
static bool alter_string(struct buffer *out, const struct chat *chat, const char *text, i64 length)
{
    i64 end = end_without_blanks(text, length), done = 0;
    bool any = false;
    u32 c;
    for (i64 i = 0; i < length; i++) {
        if (!chat->starts[(u8)text[i]] || !spells_mark(chat, text + i, length - i, max_i64(end - i, 0)))
            continue;
        any = true;
        if (!out)
            return true;
        buffer_append(out, text + done, i - done);
        buffer_append(out, SPELLED_BYTES, 4);
        done = i + utf8_decode(&c, (const u8 *)text + i);
    }
    if (out)
        buffer_append(out, text + done, length - done);
    return any;
}

static bool has_spelled(const struct chat *chat, const struct json *value)
{
    struct json_iterator at;
    if (json_kind(value) == JSON_STRING)
        return alter_string(NULL, chat, json_string(value, ""), json_string_length(value));
    for (i64 i = 0; json_kind(value) == JSON_ARRAY && i < json_count(value); i++)
        if (has_spelled(chat, json_at(value, i)))
            return true;
    for (bool more = json_first(&at, value); more; more = json_next(&at, value))
        if (alter_string(NULL, chat, at.key, (i64)strlen(at.key)) || has_spelled(chat, at.value))
            return true;
    return false;
}

/* A copy with private characters in strings and keys. */
static struct json *altered(const struct chat *chat, const struct json *value)
{
    struct json_iterator at;
    struct buffer text = {0};
    struct json *out = NULL;
    if (json_kind(value) == JSON_STRING) {
        alter_string(&text, chat, json_string(value, ""), json_string_length(value));
        out = json_of_utf8(text.data ? text.data : "", text.length);
    } else if (json_kind(value) == JSON_ARRAY) {
        out = json_array();
        for (i64 i = 0; i < json_count(value); i++)
            json_push(out, altered(chat, json_at(value, i)));
    } else if (json_kind(value) == JSON_OBJECT) {
        out = json_object();
        for (bool more = json_first(&at, value); more; more = json_next(&at, value)) {
            buffer_clear(&text);
            alter_string(&text, chat, at.key, (i64)strlen(at.key));
            json_set(out, text.data ? text.data : "", altered(chat, at.value));
        }
    } else {
        out = json_copy(value);
    }
    buffer_release(&text);
    return out;
}

/* ---- Both renderings ---- */

static void bar(struct chat_work *w, i64 at)
{
    if ((w->barred_count & (w->barred_count - 1)) == 0) {
        i64 size = (i64)sizeof *w->barred;
        w->barred = memory_resize(w->barred, w->barred_count * size, max_i64(1, 2 * w->barred_count) * size);
    }
    w->barred[w->barred_count++] = at;
}

/* Sets the offsets where a private character stands in the other text. False: they differ. */
static bool compare(struct chat_work *w, const struct template_output *other)
{
    const char *a = chat_output(&w->shown), *b = chat_output(other);
    i64 i = 0, k = 0;
    u32 c;
    while (i < w->shown.text.length && k < other->text.length) {
        if (other->text.length - k >= 4 && memcmp(b + k, SPELLED_BYTES, 4) == 0) {
            bar(w, i);
            i += utf8_decode(&c, (const u8 *)a + i);
            k += 4;
        } else if (a[i++] != b[k++]) {
            return false;
        }
    }
    return i == w->shown.text.length && k == other->text.length;
}

int chat_find_spelled(struct chat_work *w)
{
    const struct chat *chat = w->chat;
    struct chat_request again = *w->request;
    struct chat_work second = *w;
    struct template_output other;
    if (!has_spelled(chat, w->messages) && !has_spelled(chat, again.variables))
        return 0;
    if (memmem(chat_output(&w->shown), (size_t)w->shown.text.length, SPELLED_BYTES, 4))
        return error_set("a conversation with the private character U+%X beside the text of a special token", SPELLED);
    struct json *messages = altered(chat, w->messages);
    struct json *variables = again.variables ? altered(chat, again.variables) : NULL;
    again.variables = variables;
    second.request = &again;
    bool same = chat_render(&other, &second, messages, w->count, again.prompt) == 0 && compare(w, &other);
    template_output_release(&other);
    json_free(messages);
    json_free(variables);
    return same ? 0 : error_set("a message spells a special token, on which its chat template depends");
}
