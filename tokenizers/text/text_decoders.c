/* Decoders rewrite the tokens' strings before they are joined. The table maps names to kinds; a
 * Sequence is flattened. */
#define _GNU_SOURCE /* for memmem */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

enum { MOST_STEPS = 64, GROWN = 2 };

struct text_decoder;
/* Writes all strings of `from` to `to`, which is empty. Returns 0, GROWN if they became too long, or -1
 * with a message. */
typedef int apply_fn(const struct text_decoder *step, const struct text_tokenizer *tokenizer, struct token_strings *to,
                     const struct token_strings *from, struct regex_scratch *scratch);
typedef int read_fn(struct text_decoder *step, const struct json *value, const struct json_origin *source);
struct decoder_kind {
    const char *name;
    apply_fn *apply;
    read_fn *read;
};
struct text_decoder {
    const struct decoder_kind *kind;
    char *place; /* key in the file, for messages */
    struct finder find;
    char *content, *delimiter; /* Replace; WordPiece's prefix; CTC's pad token; BPEDecoder's suffix. delimiter: CTC */
    u32 character;             /* Strip, Metaspace */
    i64 start, stop;           /* Strip */
    bool cleanup, strip_first, strip_all;
};

/* ---- Lists of strings ---- */
static void end_string(struct token_strings *list, i32 id)
{
    if (list->count == list->capacity) {
        i64 old = list->capacity;
        list->capacity = max_i64(64, 2 * old);
        list->ends = memory_resize(list->ends, old * 8, list->capacity * 8);
        list->ids = memory_resize(list->ids, old * 4, list->capacity * 4);
    }
    list->ids[list->count] = id;
    list->ends[list->count++] = list->bytes.length;
}

void token_strings_push(struct token_strings *list, const char *string, i64 length, i32 id)
{
    buffer_append(&list->bytes, string, length);
    end_string(list, id);
}

void token_strings_release(struct token_strings *list)
{
    buffer_release(&list->bytes);
    memory_free(list->ends);
    memory_free(list->ids);
    *list = (struct token_strings){0};
}

static const char *string_at(const struct token_strings *list, i64 i, i64 *length)
{
    i64 begin = i ? list->ends[i - 1] : 0;
    *length = list->ends[i] - begin;
    return list->bytes.data + begin;
}

/* ---- Bytes ---- */
/* Emits one U+FFFD for each maximal ill-formed part, as Unicode recommends (chapter 3, "U+FFFD
 * substitution"). */
void append_lossy(struct buffer *out, const u8 *bytes, i64 length)
{
    i64 good = 0, part;
    for (i64 i = 0; i < length; i += part) {
        if (utf8_sequence(&part, bytes + i, length - i))
            continue;
        buffer_append(out, bytes + good, i - good);
        buffer_append(out, "\xef\xbf\xbd", 3);
        good = i + part;
    }
    buffer_append(out, bytes + good, length - good);
}

/* Appends the bytes that a token's characters represent, or the string itself if one of them
 * represents none. */
static void append_bytes(struct buffer *out, const char *string, i64 length)
{
    i64 before = out->length;
    for (i64 i = 0; i < length;) {
        u32 c;
        i += utf8_decode(&c, (const u8 *)string + i);
        int byte = char_to_byte(c);
        if (byte < 0) {
            out->length = before;
            buffer_append(out, string, length);
            return;
        }
        buffer_append(out, &(char){(char)byte}, 1);
    }
}

static int apply_byte_level(const struct text_decoder *step, const struct text_tokenizer *tokenizer,
                            struct token_strings *to, const struct token_strings *from, struct regex_scratch *scratch)
{
    (void)step, (void)tokenizer, (void)scratch;
    struct buffer bytes = {0};
    for (i64 i = 0; i < from->count; i++) {
        i64 length;
        const char *string = string_at(from, i, &length);
        append_bytes(&bytes, string, length);
    }
    append_lossy(&to->bytes, (const u8 *)(bytes.length ? bytes.data : ""), bytes.length);
    end_string(to, -1);
    buffer_release(&bytes);
    return 0;
}

int byte_piece(const char *content, i64 length)
{
    int value = 0;
    if (length != 6 || memcmp(content, "<0x", 3) != 0 || content[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        char c = content[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* A run of byte tokens becomes text if it is valid UTF-8, else one U+FFFD per byte. */
static void flush_bytes(struct token_strings *to, struct buffer *bytes)
{
    if (bytes->length == 0)
        return;
    if (utf8_invalid_at((const u8 *)bytes->data, bytes->length) < 0)
        token_strings_push(to, bytes->data, bytes->length, -1);
    else
        for (i64 i = 0; i < bytes->length; i++)
            token_strings_push(to, "\xef\xbf\xbd", 3, -1);
    buffer_clear(bytes);
}

static int apply_byte_fallback(const struct text_decoder *step, const struct text_tokenizer *tokenizer,
                               struct token_strings *to, const struct token_strings *from,
                               struct regex_scratch *scratch)
{
    (void)step, (void)tokenizer, (void)scratch;
    struct buffer bytes = {0};
    for (i64 i = 0; i < from->count; i++) {
        i64 length;
        const char *string = string_at(from, i, &length);
        int byte = byte_piece(string, length);
        if (byte >= 0) {
            buffer_append(&bytes, &(char){(char)byte}, 1);
            continue;
        }
        flush_bytes(to, &bytes);
        token_strings_push(to, string, length, from->ids[i]);
    }
    flush_bytes(to, &bytes);
    buffer_release(&bytes);
    return 0;
}

/* ---- Strings ---- */
static int apply_fuse(const struct text_decoder *step, const struct text_tokenizer *tokenizer, struct token_strings *to,
                      const struct token_strings *from, struct regex_scratch *scratch)
{
    (void)step, (void)tokenizer, (void)scratch;
    token_strings_push(to, from->bytes.data, from->bytes.length, -1);
    return 0;
}

static int read_text(char **out, const struct json *value, const char *key, const struct json_origin *source)
{
    const struct json *text = json_get(value, key);
    struct json_origin place = source_of(source, key, -1);
    if (json_kind(text) != JSON_STRING || strlen(json_string(text, "")) != (size_t)json_string_length(text))
        return refuse(&place, text, "a text without U+0000");
    *out = string_copy(json_string(text, ""));
    return 0;
}

static int read_replace(struct text_decoder *step, const struct json *value, const struct json_origin *source)
{
    struct json_origin place = source_of(source, "pattern", -1);
    return finder_init(&step->find, json_get(value, "pattern"), &place) ||
                   read_text(&step->content, value, "content", source)
               ? -1
               : 0;
}

static int apply_replace(const struct text_decoder *step, const struct text_tokenizer *tokenizer,
                         struct token_strings *to, const struct token_strings *from, struct regex_scratch *scratch)
{
    (void)tokenizer;
    for (i64 i = 0; i < from->count; i++) {
        i64 length, done = 0;
        const char *string = string_at(from, i, &length);
        struct find_cursor cursor = {0};
        int found = 0;
        while (length && (found = finder_next(&step->find, &cursor, scratch, (const u8 *)string, length)) > 0) {
            buffer_append(&to->bytes, string + done, cursor.begin - done);
            buffer_append(&to->bytes, step->content, (i64)strlen(step->content));
            done = cursor.end;
            if (to->bytes.length > from->most)
                return GROWN;
        }
        if (found < 0)
            return -1;
        buffer_append(&to->bytes, string + done, length - done);
        end_string(to, from->ids[i]);
    }
    return 0;
}

static int read_character(u32 *out, const struct json *value, const char *key, const struct json_origin *source)
{
    const struct json *text = json_get(value, key);
    i64 length = json_string_length(text);
    if (json_kind(text) != JSON_STRING || length == 0 || utf8_decode(out, (const u8 *)json_string(text, "")) != length)
        return refuse(source, value, "a single character");
    return 0;
}

static int read_strip(struct text_decoder *step, const struct json *value, const struct json_origin *source)
{
    step->start = json_integer(json_get(value, "start"), -1);
    step->stop = json_integer(json_get(value, "stop"), -1);
    if (step->start < 0 || step->stop < 0)
        return refuse(source, value, "Strip with start and stop, 0 or more");
    return read_character(&step->character, value, "content", source);
}

/* HF panics if `stop` exceeds the characters left and all of them are the content; this version
 * strips them all. */
static int apply_strip(const struct text_decoder *step, const struct text_tokenizer *tokenizer,
                       struct token_strings *to, const struct token_strings *from, struct regex_scratch *scratch)
{
    (void)tokenizer, (void)scratch;
    for (i64 i = 0; i < from->count; i++) {
        i64 length, begin = 0;
        const char *string = string_at(from, i, &length);
        u32 c;
        for (i64 n = 0; n < step->start && begin < length; n++) {
            int bytes = utf8_decode(&c, (const u8 *)string + begin);
            if (c != step->character)
                break;
            begin += bytes;
        }
        for (i64 n = 0; n < step->stop && length > begin; n++) {
            i64 last = utf8_before((const u8 *)string, length);
            utf8_decode(&c, (const u8 *)string + last);
            if (c != step->character)
                break;
            length = last;
        }
        token_strings_push(to, string + begin, length - begin, from->ids[i]);
    }
    return 0;
}

static int read_metaspace(struct text_decoder *step, const struct json *value, const struct json_origin *source)
{
    bool never = strcmp(json_string(json_get(value, "prepend_scheme"), "always"), "never") == 0;
    step->strip_first = !never && json_bool(json_get(value, "add_prefix_space"), true);
    return read_character(&step->character, value, "replacement", source);
}

static int apply_metaspace(const struct text_decoder *step, const struct text_tokenizer *tokenizer,
                           struct token_strings *to, const struct token_strings *from, struct regex_scratch *scratch)
{
    (void)tokenizer, (void)scratch;
    for (i64 i = 0; i < from->count; i++) {
        i64 length;
        const char *string = string_at(from, i, &length);
        for (i64 at = 0; at < length;) {
            u32 c;
            int bytes = utf8_decode(&c, (const u8 *)string + at);
            if (c != step->character)
                buffer_append(&to->bytes, string + at, bytes);
            else if (i > 0 || !step->strip_first)
                buffer_append(&to->bytes, " ", 1);
            at += bytes;
        }
        end_string(to, from->ids[i]);
    }
    return 0;
}

/* ---- Words ---- */
/* Replaces all occurrences of `from` in text[begin..], left to right. */
static void replace_all(struct buffer *text, i64 begin, const char *from, const char *to)
{
    i64 from_length = (i64)strlen(from), to_length = (i64)strlen(to), done = begin, kept = begin;
    if (from_length == 0)
        return;
    struct buffer out = {0};
    for (;;) {
        const char *found = text->length > done
                                ? memmem(text->data + done, (size_t)(text->length - done), from, (size_t)from_length)
                                : NULL;
        if (!found)
            break;
        buffer_append(&out, text->data + kept, found - (text->data + kept));
        buffer_append(&out, to, to_length);
        done = kept = found - text->data + from_length;
    }
    if (kept > begin) {
        buffer_append(&out, text->data + kept, text->length - kept);
        text->length = begin;
        buffer_append(text, out.data, out.length);
    }
    buffer_release(&out);
}

static void clean_up(struct buffer *text, i64 begin)
{
    static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (i64 i = 0; i < COUNT_OF(pairs); i++)
        replace_all(text, begin, pairs[i][0], pairs[i][1]);
}

static int read_wordpiece(struct text_decoder *step, const struct json *value, const struct json_origin *source)
{
    step->cleanup = json_bool(json_get(value, "cleanup"), true);
    return read_text(&step->content, value, "prefix", source);
}

static int apply_wordpiece(const struct text_decoder *step, const struct text_tokenizer *tokenizer,
                           struct token_strings *to, const struct token_strings *from, struct regex_scratch *scratch)
{
    (void)tokenizer, (void)scratch;
    i64 prefix = (i64)strlen(step->content);
    for (i64 i = 0; i < from->count; i++) {
        i64 length, begin = to->bytes.length;
        const char *string = string_at(from, i, &length);
        bool continues = i && length >= prefix && memcmp(string, step->content, (size_t)prefix) == 0;
        if (i && !continues)
            buffer_append(&to->bytes, " ", 1);
        buffer_append(&to->bytes, string + (continues ? prefix : 0), length - (continues ? prefix : 0));
        if (step->cleanup)
            clean_up(&to->bytes, begin);
        end_string(to, from->ids[i]);
    }
    return 0;
}

static int read_bpe(struct text_decoder *step, const struct json *value, const struct json_origin *source)
{
    return read_text(&step->content, value, "suffix", source);
}

static int apply_bpe(const struct text_decoder *step, const struct text_tokenizer *tokenizer, struct token_strings *to,
                     const struct token_strings *from, struct regex_scratch *scratch)
{
    (void)tokenizer, (void)scratch;
    for (i64 i = 0; i < from->count; i++) {
        i64 length, begin = to->bytes.length;
        const char *string = string_at(from, i, &length);
        buffer_append(&to->bytes, string, length);
        replace_all(&to->bytes, begin, step->content, i + 1 < from->count ? " " : "");
        end_string(to, from->ids[i]);
    }
    return 0;
}

static int read_ctc(struct text_decoder *step, const struct json *value, const struct json_origin *source)
{
    step->cleanup = json_bool(json_get(value, "cleanup"), true);
    return read_text(&step->content, value, "pad_token", source) ||
                   read_text(&step->delimiter, value, "word_delimiter_token", source)
               ? -1
               : 0;
}

static int apply_ctc(const struct text_decoder *step, const struct text_tokenizer *tokenizer, struct token_strings *to,
                     const struct token_strings *from, struct regex_scratch *scratch)
{
    (void)tokenizer, (void)scratch;
    const char *last = NULL;
    i64 last_length = -1;
    for (i64 i = 0; i < from->count; i++) {
        i64 length, begin = to->bytes.length;
        const char *string = string_at(from, i, &length);
        bool again = length == last_length && memcmp(string, last, (size_t)length) == 0;
        last = string, last_length = length;
        if (again)
            continue;
        buffer_append(&to->bytes, string, length);
        replace_all(&to->bytes, begin, step->content, "");
        if (step->cleanup) {
            clean_up(&to->bytes, begin);
            replace_all(&to->bytes, begin, step->delimiter, " ");
        }
        if (to->bytes.length > begin)
            end_string(to, from->ids[i]);
    }
    return 0;
}

/* ---- SentencePiece ---- */
/* Byte pieces become text if they are valid UTF-8, else one U+FFFD per byte. */
static void append_byte_run(struct buffer *out, struct buffer *bytes)
{
    const u8 *at = (const u8 *)bytes->data;
    for (i64 i = 0, part; i < bytes->length; i += part) {
        if (utf8_sequence(&part, at + i, bytes->length - i)) {
            buffer_append(out, at + i, part);
            continue;
        }
        buffer_append(out, "\xef\xbf\xbd", 3);
        part = 1;
    }
    buffer_clear(bytes);
}

static void append_spaced(struct buffer *out, const char *string, i64 length)
{
    i64 begin = out->length;
    buffer_append(out, string, length);
    replace_all(out, begin, "\xe2\x96\x81", " ");
}

static int apply_sentencepiece(const struct text_decoder *step, const struct text_tokenizer *tokenizer,
                               struct token_strings *to, const struct token_strings *from,
                               struct regex_scratch *scratch)
{
    (void)scratch;
    struct buffer bytes = {0}, *out = &to->bytes;
    bool at_begin = true, taken = false;
    for (i64 i = 0; i < from->count; i++) {
        i64 length;
        const char *string = string_at(from, i, &length);
        u8 type = tokenizer->tokens[from->ids[i]].type;
        if (type == PIECE_BYTE) {
            buffer_append(&bytes, &(char){(char)byte_piece(string, length)}, 1);
            continue;
        }
        append_byte_run(out, &bytes);
        if (taken || out->length)
            at_begin = false;
        taken = false;
        if (type == PIECE_UNKNOWN)
            buffer_append(out, step->content, (i64)strlen(step->content));
        if (type == PIECE_UNKNOWN || type == PIECE_CONTROL)
            continue;
        bool mark = at_begin && step->strip_first && length >= 3 && memcmp(string, "\xe2\x96\x81", 3) == 0;
        taken = mark && !step->strip_all;
        append_spaced(out, string + (mark ? 3 : 0), length - (mark ? 3 : 0));
    }
    append_byte_run(out, &bytes);
    end_string(to, -1);
    buffer_release(&bytes);
    return 0;
}

/* ---- The table ---- */
static const struct decoder_kind KINDS[] = {
    {"ByteLevel", apply_byte_level, NULL},
    {"Replace", apply_replace, read_replace},
    {"ByteFallback", apply_byte_fallback, NULL},
    {"Fuse", apply_fuse, NULL},
    {"Strip", apply_strip, read_strip},
    {"Metaspace", apply_metaspace, read_metaspace},
    {"WordPiece", apply_wordpiece, read_wordpiece},
    {"BPEDecoder", apply_bpe, read_bpe},
    {"CTC", apply_ctc, read_ctc},
};
static const struct decoder_kind SENTENCEPIECE = {"SentencePiece", apply_sentencepiece, NULL};

static struct text_decoder *push_step(struct decoders *chain)
{
    i64 size = (i64)sizeof *chain->steps;
    chain->steps = memory_resize(chain->steps, chain->count * size, (chain->count + 1) * size);
    return &chain->steps[chain->count++];
}

static int refuse_decoder(const struct json_origin *source, const char *name)
{
    const char *known[COUNT_OF(KINDS) + 2] = {"Sequence"};
    for (i64 i = 0; i < COUNT_OF(KINDS); i++)
        known[i + 1] = KINDS[i].name;
    return refuse_kind(source, name, known);
}

int decoders_read(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source)
{
    struct decoders *chain = &tokenizer->decoders;
    const char *name = kind_of(value);
    if (json_kind(value) == JSON_NULL)
        return 0;
    if (strcmp(name, "Sequence") == 0)
        return sequence_read(tokenizer, value, "decoders", decoders_read, source);
    if (chain->count == MOST_STEPS)
        return error_set("%s: %s: more than %d decoders", source->origin, source->place, MOST_STEPS);
    for (i64 i = 0; i < COUNT_OF(KINDS); i++) {
        if (strcmp(name, KINDS[i].name) != 0)
            continue;
        struct text_decoder *step = push_step(chain);
        step->kind = &KINDS[i];
        step->place = string_copy(source->place);
        return KINDS[i].read ? KINDS[i].read(step, value, source) : 0;
    }
    return refuse_decoder(source, name);
}

bool decoders_are_byte_level(const struct decoders *chain)
{
    return chain->count == 1 && chain->steps[0].kind->apply == apply_byte_level;
}

void decoders_add_sentencepiece(struct decoders *chain, bool strip_first, bool strip_all, const char *unknown)
{
    struct text_decoder *step = push_step(chain);
    step->kind = &SENTENCEPIECE;
    step->strip_first = strip_first, step->strip_all = strip_all;
    step->content = string_copy(unknown);
}

void decoders_release(struct decoders *chain)
{
    for (i64 i = 0; i < chain->count; i++) {
        finder_release(&chain->steps[i].find);
        memory_free(chain->steps[i].place);
        memory_free(chain->steps[i].content);
        memory_free(chain->steps[i].delimiter);
    }
    memory_free(chain->steps);
    *chain = (struct decoders){0};
}

int decoders_apply(const struct decoders *chain, const struct text_tokenizer *tokenizer, struct token_strings *strings,
                   struct regex_scratch *scratch)
{
    const i64 length = strings->bytes.length + strings->count;
    strings->most = most_grown(length);
    for (i64 i = 0; i < chain->count; i++) {
        struct token_strings to = {0};
        const struct text_decoder *step = &chain->steps[i];
        buffer_append(&to.bytes, "", 0);
        to.most = strings->most;
        int status = step->kind->apply(step, tokenizer, &to, strings, scratch);
        if (status == 0 && to.bytes.length > to.most)
            status = GROWN;
        if (status) {
            token_strings_release(&to);
            return status < 0 ? -1 : refuse_growth(tokenizer->origin, step->place ? step->place : "decoder", length);
        }
        token_strings_release(strings);
        *strings = to;
    }
    return 0;
}
