/* Normalizers rewrite a text before pre-tokenization. The table maps the names in tokenizer.json
 * to kinds; a Sequence is flattened. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

enum { MOST_STEPS = 64, GROWN = 2 };

struct normalizer;
/* Returns 1 if `out` holds the changed text, 0 if no buffer was written, GROWN if it became too long,
 * -1 with a message. */
typedef int apply_fn(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                     struct regex_scratch *scratch);
typedef int read_fn(struct normalizer *step, const struct json *value, const struct json_origin *source);
struct normalizer_kind {
    const char *name;
    apply_fn *apply;
    read_fn *read; /* NULL: no settings */
};
struct normalizer {
    const struct normalizer_kind *kind;
    char *origin, *place; /* file and key, for messages */
    struct finder find;
    char *content;
    i64 content_length;
    bool strip_left, strip_right;
    bool clean, space_chinese, strip_accents, lower; /* settings of BertNormalizer */
    struct charsmap *charsmap;
    struct sentencepiece_rules rules;
};

/* ---- Characters ---- */
static void append_character(struct buffer *out, u32 c)
{
    u8 bytes[4];
    buffer_append(out, bytes, utf8_encode(bytes, c));
}

static void begin(struct buffer *out)
{
    buffer_clear(out);
    buffer_append(out, "", 0);
}

static i64 first_bytes(const struct buffer *text)
{
    u32 c;
    return text->length ? utf8_decode(&c, (const u8 *)text->data) : 0;
}

/* Unicode normal forms. */
static int apply_nfc(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                     struct regex_scratch *scratch)
{
    (void)step, (void)scratch;
    if (!unicode_nfc(out, normal->text, normal->length))
        return 0;
    normal->origin = max_i64(normal->origin, normal->origin ? first_bytes(out) : 0); /* a mark may have joined it */
    return 1;
}

#define APPLY_FORM(name, form)                                                                                         \
    static int name(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,                 \
                    struct regex_scratch *scratch)                                                                     \
    {                                                                                                                  \
        (void)step, (void)scratch;                                                                                     \
        unicode_normalize(out, normal->text, normal->origin, form);                                                    \
        i64 origin = out->length;                                                                                      \
        unicode_normalize(out, normal->text, normal->length, form);                                                    \
        normal->origin = origin && out->length ? max_i64(origin, first_bytes(out)) : 0;                                \
        return 1;                                                                                                      \
    }
APPLY_FORM(apply_nfd, FORM_NFD)
APPLY_FORM(apply_nfkd, FORM_NFKD)
APPLY_FORM(apply_nfkc, FORM_NFKC)

static void lower_text(struct buffer *out, const u8 *text, i64 length)
{
    begin(out);
    for (i64 i = 0; i < length;) {
        u32 c;
        i += utf8_decode(&c, text + i);
        append_character(out, char_lower(c));
        if (c == 0x130)
            append_character(out, 0x307);
    }
}

static int apply_lowercase(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                           struct regex_scratch *scratch)
{
    (void)step, (void)scratch;
    lower_text(out, normal->text, normal->origin);
    normal->origin = out->length;
    lower_text(out, normal->text, normal->length);
    return 1;
}

/* Drops the characters that have a property. */
static void drop_property(struct normalized_text *normal, struct buffer *out, u8 property)
{
    i64 origin = 0;
    begin(out);
    for (i64 i = 0; i < normal->length;) {
        u32 c;
        int bytes = utf8_decode(&c, normal->text + i);
        if (!(char_properties(c) & property))
            buffer_append(out, normal->text + i, bytes);
        i += bytes;
        if (i == normal->origin)
            origin = out->length;
    }
    normal->origin = origin;
}

static int apply_strip_accents(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                               struct regex_scratch *scratch)
{
    (void)step, (void)scratch;
    drop_property(normal, out, PROPERTY_MARK);
    return 1;
}

static bool is_space(u32 c)
{
    return char_class(unicode_classes(), c) & CHAR_SPACE;
}

static int apply_strip(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                       struct regex_scratch *scratch)
{
    (void)out, (void)scratch;
    u32 c;
    while (step->strip_left && normal->length) {
        int bytes = utf8_decode(&c, normal->text);
        if (!is_space(c))
            break;
        normal->text += bytes, normal->length -= bytes;
        normal->origin = max_i64(0, normal->origin - bytes);
    }
    while (step->strip_right && normal->length) {
        i64 last = utf8_before(normal->text, normal->length);
        utf8_decode(&c, normal->text + last);
        if (!is_space(c))
            break;
        normal->length = last;
    }
    return 0; /* the text stays in place and gets shorter */
}

static int read_strip(struct normalizer *step, const struct json *value, const struct json_origin *source)
{
    const struct json *left = json_get(value, "strip_left"), *right = json_get(value, "strip_right");
    if (json_kind(left) != JSON_BOOL || json_kind(right) != JSON_BOOL)
        return refuse(source, value, "Strip with strip_left and strip_right");
    step->strip_left = json_bool(left, false);
    step->strip_right = json_bool(right, false);
    return 0;
}

static bool nmt_drops(u32 c)
{
    return (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
}

static bool nmt_spaces(u32 c)
{
    return c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
           c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
}

static int apply_nmt(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                     struct regex_scratch *scratch)
{
    (void)step, (void)scratch;
    i64 origin = 0;
    begin(out);
    for (i64 i = 0; i < normal->length;) {
        u32 c;
        int bytes = utf8_decode(&c, normal->text + i);
        if (nmt_spaces(c))
            buffer_append(out, " ", 1);
        else if (!nmt_drops(c))
            buffer_append(out, normal->text + i, bytes);
        i += bytes;
        if (i == normal->origin)
            origin = out->length;
    }
    normal->origin = origin;
    return 1;
}

/* ---- Strings ---- */
static int read_content(struct normalizer *step, const struct json *value, const char *key,
                        const struct json_origin *source)
{
    const struct json *content = json_get(value, key);
    i64 length = json_string_length(content);
    if (json_kind(content) != JSON_STRING || strlen(json_string(content, "")) != (size_t)length)
        return refuse(source, value, "a text to put in, without U+0000");
    step->content = string_copy(json_string(content, ""));
    step->content_length = length;
    return 0;
}

static int read_prepend(struct normalizer *step, const struct json *value, const struct json_origin *source)
{
    return read_content(step, value, "prepend", source);
}

static int apply_prepend(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                         struct regex_scratch *scratch)
{
    (void)scratch;
    if (normal->length == 0)
        return 0;
    begin(out);
    buffer_append(out, step->content, step->content_length);
    buffer_append(out, normal->text, normal->length);
    normal->origin += normal->origin ? step->content_length : 0;
    return 1;
}

static int read_replace(struct normalizer *step, const struct json *value, const struct json_origin *source)
{
    struct json_origin pattern = source_of(source, "pattern", -1);
    return finder_init(&step->find, json_get(value, "pattern"), &pattern) ||
                   read_content(step, value, "content", source)
               ? -1
               : 0;
}

static int apply_replace(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                         struct regex_scratch *scratch)
{
    struct find_cursor cursor = {0};
    i64 done = 0, origin = normal->origin;
    int found;
    bool any = false;
    while ((found = finder_next(&step->find, &cursor, scratch, normal->text, normal->length)) > 0) {
        if (!any)
            begin(out);
        any = true;
        if (cursor.end <= normal->origin) /* the last character of a match decides the origin of its replacement */
            origin += step->content_length - (cursor.end - cursor.begin);
        else if (cursor.begin < normal->origin)
            origin -= normal->origin - cursor.begin;
        buffer_append(out, normal->text + done, cursor.begin - done);
        buffer_append(out, step->content, step->content_length);
        done = cursor.end;
        if (out->length > normal->most)
            return GROWN;
    }
    if (found < 0 || !any)
        return found;
    buffer_append(out, normal->text + done, normal->length - done);
    normal->origin = origin;
    return 1;
}

/* ---- BERT ---- */
static bool is_chinese(u32 c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static int read_bert(struct normalizer *step, const struct json *value, const struct json_origin *source)
{
    const struct json *accents = json_get(value, "strip_accents");
    if (json_kind(accents) != JSON_NULL && json_kind(accents) != JSON_BOOL)
        return refuse(source, value, "BertNormalizer with strip_accents true, false or null");
    step->clean = json_bool(json_get(value, "clean_text"), true);
    step->space_chinese = json_bool(json_get(value, "handle_chinese_chars"), true);
    step->lower = json_bool(json_get(value, "lowercase"), true);
    step->strip_accents = json_bool(accents, step->lower);
    return 0;
}

/* Drops control characters, maps white space to spaces, and puts spaces around Chinese
 * characters. */
static void bert_clean(const struct normalizer *step, struct normalized_text *normal, struct buffer *out)
{
    i64 origin = 0;
    begin(out);
    for (i64 i = 0; i < normal->length;) {
        u32 c;
        int bytes = utf8_decode(&c, normal->text + i);
        bool dropped = step->clean && (c == 0 || char_properties(c) & PROPERTY_CONTROL);
        bool apart = step->space_chinese && is_chinese(c);
        if (!dropped && step->clean && is_space(c))
            buffer_append(out, " ", 1);
        else if (!dropped) {
            buffer_append(out, " ", apart);
            buffer_append(out, normal->text + i, bytes);
            buffer_append(out, " ", apart);
        }
        i += bytes;
        if (i == normal->origin)
            origin = out->length;
    }
    normal->origin = origin;
}

static int apply_bert(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                      struct regex_scratch *scratch)
{
    struct buffer other = {0};
    struct normalized_text now = *normal;
    bert_clean(step, &now, out);
    now.text = (const u8 *)out->data, now.length = out->length;
    if (step->strip_accents) {
        apply_nfd(step, &now, &other, scratch);
        now.text = (const u8 *)other.data, now.length = other.length;
        drop_property(&now, out, PROPERTY_ACCENT);
        now.text = (const u8 *)out->data, now.length = out->length;
    }
    if (step->lower) {
        apply_lowercase(step, &now, &other, scratch);
        struct buffer held = *out;
        *out = other, other = held;
    }
    normal->origin = now.origin;
    buffer_release(&other);
    return 1;
}

/* ---- Tables ---- */
static int read_precompiled(struct normalizer *step, const struct json *value, const struct json_origin *source)
{
    const struct json *map = json_get(value, "precompiled_charsmap");
    struct buffer bytes = {0};
    if (json_kind(map) != JSON_STRING || !base64_decode(&bytes, json_string(map, ""), json_string_length(map))) {
        buffer_release(&bytes);
        return error_set("%s: %s.precompiled_charsmap is not base64", source->origin, source->place);
    }
    step->charsmap = charsmap_open((const u8 *)bytes.data, bytes.length, source->origin);
    buffer_release(&bytes);
    return step->charsmap ? 0 : error_prefix("%s", source->place);
}

/* HF replaces a whole cluster of fewer than 6 bytes by the replacement of the shortest key it
 * begins with. All other clusters are mapped character by character. */
static int apply_precompiled(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                             struct regex_scratch *scratch)
{
    (void)scratch;
    const u8 *text = normal->text;
    i64 origin = normal->origin, end;
    begin(out);
    for (i64 i = 0; i < normal->length; i = end) {
        i64 at = i, taken;
        end = grapheme_end(text, i, normal->length);
        const char *whole = end - i < 6 ? charsmap_find(step->charsmap, &taken, text + i, end - i, false) : NULL;
        if (whole) {
            buffer_append(out, whole, (i64)strlen(whole));
            at = end;
        }
        while (at < end) {
            u32 c;
            int bytes = utf8_decode(&c, text + at);
            const char *part = charsmap_find(step->charsmap, &taken, text + at, bytes, false);
            buffer_append(out, part ? part : (const char *)text + at, part ? (i64)strlen(part) : bytes);
            at += bytes;
        }
        if (out->length > normal->most)
            return GROWN;
        if (i == 0 && origin) /* first replacement character of a cluster, or all of them for a single character */
            origin = end > normal->origin ? first_bytes(out) : out->length;
    }
    normal->origin = origin && out->length ? max_i64(origin, 1) : 0;
    return 1;
}

static int apply_byte_level(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                            struct regex_scratch *scratch)
{
    (void)step, (void)scratch;
    i64 origin = 0;
    begin(out);
    for (i64 i = 0; i < normal->length; i++) {
        append_character(out, byte_to_char(normal->text[i]));
        origin = i < normal->origin ? out->length : origin;
    }
    normal->origin = origin;
    return 1;
}

/* ---- SentencePiece ---- */
static const char SPACE_MARK[] = "\xe2\x96\x81"; /* U+2581 */

/* The normalized form of the longest known prefix of `text`: its bytes and length, and the length
 * of the prefix in *taken. */
static const u8 *normalized_prefix(const struct sentencepiece_rules *rules, i64 *bytes, i64 *taken, const u8 *text,
                                   i64 length)
{
    u32 c;
    if (rules->kept && trie_longest(rules->kept, text, length, taken) >= 0)
        return *bytes = *taken, text;
    const char *found = rules->charsmap ? charsmap_find(rules->charsmap, taken, text, length, true) : NULL;
    if (found)
        return *bytes = (i64)strlen(found), (const u8 *)found;
    return *bytes = *taken = utf8_decode(&c, text), text;
}

static void append_space(const struct sentencepiece_rules *rules, struct buffer *out)
{
    buffer_append(out, rules->escape_whitespaces ? SPACE_MARK : " ", rules->escape_whitespaces ? 3 : 1);
}

static i64 skip_leading_spaces(const struct sentencepiece_rules *rules, const u8 *text, i64 length)
{
    i64 i = 0, bytes, taken;
    while (rules->remove_extra_whitespaces && i < length) {
        const u8 *part = normalized_prefix(rules, &bytes, &taken, text + i, length - i);
        if (bytes != 1 || *part != ' ')
            break;
        i += taken;
    }
    return i;
}

static void trim_spaces(const struct sentencepiece_rules *rules, struct buffer *out)
{
    const char *space = rules->escape_whitespaces ? SPACE_MARK : " ";
    i64 width = rules->escape_whitespaces ? 3 : 1;
    while (out->length >= width && memcmp(out->data + out->length - width, space, (size_t)width) == 0)
        out->length -= width;
}

static int apply_sentencepiece(const struct normalizer *step, struct normalized_text *normal, struct buffer *out,
                               struct regex_scratch *scratch)
{
    (void)scratch;
    const struct sentencepiece_rules *rules = &step->rules;
    i64 at = skip_leading_spaces(rules, normal->text, normal->length), bytes, taken;
    bool after_space = rules->remove_extra_whitespaces;
    begin(out);
    if (at == normal->length)
        return 1;
    if (!rules->whitespace_as_suffix && rules->add_dummy_prefix)
        append_space(rules, out);
    for (; at < normal->length; at += taken) {
        const u8 *part = normalized_prefix(rules, &bytes, &taken, normal->text + at, normal->length - at);
        while (after_space && bytes && *part == ' ')
            part++, bytes--;
        for (i64 i = 0; i < bytes; i++)
            part[i] == ' ' ? append_space(rules, out) : buffer_append(out, part + i, 1);
        if (bytes)
            after_space = part[bytes - 1] == ' ';
        after_space &= rules->remove_extra_whitespaces;
        if (out->length > normal->most)
            return GROWN;
    }
    if (rules->remove_extra_whitespaces)
        trim_spaces(rules, out);
    if (rules->whitespace_as_suffix && rules->add_dummy_prefix)
        append_space(rules, out);
    return 1;
}

/* ---- The table ---- */
static const struct normalizer_kind KINDS[] = {
    {"NFC", apply_nfc, NULL},
    {"NFD", apply_nfd, NULL},
    {"NFKC", apply_nfkc, NULL},
    {"NFKD", apply_nfkd, NULL},
    {"Lowercase", apply_lowercase, NULL},
    {"StripAccents", apply_strip_accents, NULL},
    {"Strip", apply_strip, read_strip},
    {"Nmt", apply_nmt, NULL},
    {"Prepend", apply_prepend, read_prepend},
    {"Replace", apply_replace, read_replace},
    {"BertNormalizer", apply_bert, read_bert},
    {"Precompiled", apply_precompiled, read_precompiled},
    {"ByteLevel", apply_byte_level, NULL},
};
static const struct normalizer_kind SENTENCEPIECE = {"SentencePiece", apply_sentencepiece, NULL};

static struct normalizer *push_step(struct normalizers *chain)
{
    i64 size = (i64)sizeof *chain->steps;
    chain->steps = memory_resize(chain->steps, chain->count * size, (chain->count + 1) * size);
    return &chain->steps[chain->count++];
}

static int refuse_normalizer(const struct json_origin *source, const char *name)
{
    const char *known[COUNT_OF(KINDS) + 2] = {"Sequence"};
    for (i64 i = 0; i < COUNT_OF(KINDS); i++)
        known[i + 1] = KINDS[i].name;
    return refuse_kind(source, name, known);
}

int normalizers_read(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source)
{
    struct normalizers *chain = &tokenizer->normalizers;
    const char *name = kind_of(value);
    if (json_kind(value) == JSON_NULL)
        return 0;
    if (strcmp(name, "Sequence") == 0)
        return sequence_read(tokenizer, value, "normalizers", normalizers_read, source);
    if (chain->count == MOST_STEPS)
        return error_set("%s: %s: more than %d normalizers", source->origin, source->place, MOST_STEPS);
    for (i64 i = 0; i < COUNT_OF(KINDS); i++) {
        if (strcmp(name, KINDS[i].name) != 0)
            continue;
        struct normalizer *step = push_step(chain);
        step->kind = &KINDS[i];
        step->origin = string_copy(source->origin);
        step->place = string_copy(source->place);
        return KINDS[i].read ? KINDS[i].read(step, value, source) : 0;
    }
    return refuse_normalizer(source, name);
}

void normalizers_add_sentencepiece(struct normalizers *chain, const struct sentencepiece_rules *rules)
{
    struct normalizer *step = push_step(chain);
    step->kind = &SENTENCEPIECE;
    step->rules = *rules;
    step->charsmap = rules->charsmap;
}

void normalizers_release(struct normalizers *chain)
{
    for (i64 i = 0; i < chain->count; i++) {
        finder_release(&chain->steps[i].find);
        memory_free(chain->steps[i].origin);
        memory_free(chain->steps[i].place);
        memory_free(chain->steps[i].content);
        charsmap_close(chain->steps[i].charsmap);
    }
    memory_free(chain->steps);
    *chain = (struct normalizers){0};
}

int normalizers_apply(const struct normalizers *chain, struct normalized_text *normal, struct buffer buffers[2],
                      struct regex_scratch *scratch)
{
    int next = 0;
    const i64 length = normal->length;
    normal->most = most_grown(length);
    for (i64 i = 0; i < chain->count; i++) {
        struct buffer *out = &buffers[next];
        const struct normalizer *step = &chain->steps[i];
        int changed = step->kind->apply(step, normal, out, scratch);
        if (changed < 0)
            return -1;
        if (changed && out->length > normal->most)
            return refuse_growth(step->origin ? step->origin : "the tokenizer",
                                 step->place ? step->place : "normalizer", length);
        if (!changed)
            continue;
        normal->text = (const u8 *)out->data, normal->length = out->length;
        next = 1 - next;
    }
    return 0;
}

bool normalizers_are_nfc(const struct normalizers *chain)
{
    for (i64 i = 0; i < chain->count; i++)
        if (chain->steps[i].kind->apply != apply_nfc)
            return false;
    return chain->count > 0;
}
