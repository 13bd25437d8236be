/* Pre-tokenizers of tokenizer.json as splitters. The table maps names to kinds; each kind adds one
 * or more steps to the chain. A Sequence is flattened. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

struct splitter *splitters_push(struct splitters *chain, const struct json_origin *source)
{
    if (chain->count == MAX_SPLITTERS) {
        error_set("%s: %s: more than %d steps of pre-tokenisation", source->origin, source->place, MAX_SPLITTERS);
        return NULL;
    }
    struct splitter *step = &chain->steps[chain->count++];
    *step = (struct splitter){.kind = SPLIT_OTHER, .classes = unicode_classes()};
    return step;
}

/* ---- Spans: a match, or the gap before the next one ---- */
typedef bool is_match_fn(const struct splitter *splitter, u32 c);

static inline i64 span_of_character(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text,
                                    i64 at, i64 length, is_match_fn *is_match)
{
    for (i64 i = at; i < length;) {
        u32 c;
        int bytes = utf8_decode(&c, text + i);
        if (is_match(splitter, c)) {
            cursor->matched = i == at;
            return i == at ? i + bytes : i;
        }
        i += bytes;
    }
    cursor->matched = false;
    return length;
}

static bool has_property(const struct splitter *splitter, u32 c)
{
    return char_properties(c) & splitter->property;
}

static i64 span_of_property(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at,
                            i64 length)
{
    return span_of_character(splitter, cursor, text, at, length, has_property);
}

static bool is_space(const struct splitter *splitter, u32 c)
{
    return char_class(splitter->classes, c) & CHAR_SPACE;
}

static i64 span_of_space(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at,
                         i64 length)
{
    return span_of_character(splitter, cursor, text, at, length, is_space);
}

static bool is_character(const struct splitter *splitter, u32 c)
{
    return c == splitter->character;
}

static i64 span_of_one(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length)
{
    return span_of_character(splitter, cursor, text, at, length, is_character);
}

/* Spans of \w+|[^\w\s]+ and the white space between them. */
static i64 span_of_words(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at,
                         i64 length)
{
    u32 c;
    i64 end = at + utf8_decode(&c, text + at);
    u8 class = char_class(splitter->classes, c) & (CHAR_WORD | CHAR_SPACE);
    while (end < length) {
        int bytes = utf8_decode(&c, text + end);
        if ((char_class(splitter->classes, c) & (CHAR_WORD | CHAR_SPACE)) != class)
            break;
        end += bytes;
    }
    cursor->matched = class & CHAR_SPACE;
    return end;
}

static i64 span_of_width(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at,
                         i64 length)
{
    cursor->matched = false;
    for (i64 n = 0; n < splitter->width && at < length; n++) {
        u32 c;
        at += utf8_decode(&c, text + at);
    }
    return at;
}

/* ---- Rewriting ---- */
static bool prefix_space(const struct splitter *splitter, struct buffer *out, const u8 *text, i64 length, bool first)
{
    (void)splitter, (void)first;
    if (text[0] == ' ')
        return false;
    buffer_append(out, " ", 1);
    buffer_append(out, text, length);
    return true;
}

static bool to_byte_characters(const struct splitter *splitter, struct buffer *out, const u8 *text, i64 length,
                               bool first)
{
    (void)splitter, (void)first;
    for (i64 i = 0; i < length; i++) {
        u8 bytes[4];
        buffer_append(out, bytes, utf8_encode(bytes, byte_to_char(text[i])));
    }
    return true;
}

bool splitter_is_byte_level(const struct splitter *splitter)
{
    return splitter->rewrite == to_byte_characters;
}

static bool mark_spaces(const struct splitter *splitter, struct buffer *out, const u8 *text, i64 length, bool first)
{
    u8 mark[4];
    u32 c;
    int bytes = utf8_encode(mark, splitter->character);
    utf8_decode(&c, text);
    bool marked = c == splitter->character || c == ' ';
    if (!marked && (splitter->prepend == PREPEND_ALWAYS || (splitter->prepend == PREPEND_FIRST && first)))
        buffer_append(out, mark, bytes);
    for (i64 i = 0; i < length;) {
        const u8 *space = memchr(text + i, ' ', (size_t)(length - i));
        i64 end = space ? space - text : length;
        buffer_append(out, text + i, end - i);
        if (space)
            buffer_append(out, mark, bytes);
        i = end + (space != NULL);
    }
    return true;
}

/* ---- Reading ---- */
typedef int read_fn(struct splitters *chain, const struct json *value, const struct json_origin *source);

static const struct {
    const char *name;
    enum split_behavior behavior;
} BEHAVIORS[] = {{"Isolated", BEHAVIOR_ISOLATED},
                 {"Removed", BEHAVIOR_REMOVED},
                 {"Contiguous", BEHAVIOR_CONTIGUOUS},
                 {"MergedWithPrevious", BEHAVIOR_PREVIOUS},
                 {"MergedWithNext", BEHAVIOR_NEXT}};

static int read_behavior(enum split_behavior *out, const struct json *value, const char *fallback,
                         const struct json_origin *source)
{
    const char *name = json_string(json_get(value, "behavior"), fallback);
    for (i64 i = 0; i < COUNT_OF(BEHAVIORS); i++)
        if (strcmp(name, BEHAVIORS[i].name) == 0)
            return *out = BEHAVIORS[i].behavior, 0;
    return refuse(source, value, "behavior Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext");
}

static int push_spans(struct splitters *chain, const struct json_origin *source, span_fn *span,
                      enum split_behavior behavior, u8 property)
{
    struct splitter *step = splitters_push(chain, source);
    if (!step)
        return -1;
    step->span = span, step->behavior = behavior, step->property = property;
    return 0;
}

static int read_whitespace(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    (void)value;
    return push_spans(chain, source, span_of_words, BEHAVIOR_REMOVED, 0);
}

static int read_whitespace_split(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    (void)value;
    return push_spans(chain, source, span_of_space, BEHAVIOR_REMOVED, 0);
}

static int read_bert(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    (void)value;
    return push_spans(chain, source, span_of_space, BEHAVIOR_REMOVED, 0) ||
                   push_spans(chain, source, span_of_property, BEHAVIOR_ISOLATED, PROPERTY_PUNCTUATION)
               ? -1
               : 0;
}

static int read_punctuation(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    enum split_behavior behavior;
    return read_behavior(&behavior, value, "Isolated", source)
               ? -1
               : push_spans(chain, source, span_of_property, behavior, PROPERTY_PUNCTUATION);
}

static int read_digits(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    bool single = json_bool(json_get(value, "individual_digits"), false);
    return push_spans(chain, source, span_of_property, single ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS,
                      PROPERTY_NUMERIC);
}

static int read_character(u32 *out, const struct json *value, const char *key, const struct json_origin *source)
{
    const struct json *text = json_get(value, key);
    i64 length = json_string_length(text);
    if (json_kind(text) != JSON_STRING || length == 0 || utf8_decode(out, (const u8 *)json_string(text, "")) != length)
        return refuse(source, value, "a single character to cut at");
    return 0;
}

static int read_delimiter(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    struct splitter *step = splitters_push(chain, source);
    if (!step || read_character(&step->character, value, "delimiter", source))
        return -1;
    step->span = span_of_one, step->behavior = BEHAVIOR_REMOVED;
    return 0;
}

static int read_fixed(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    i64 width = json_integer(json_get(value, "length"), 5);
    if (width < 1)
        return refuse(source, value, "FixedLength with length 1 or more");
    if (push_spans(chain, source, span_of_width, BEHAVIOR_ISOLATED, 0))
        return -1;
    chain->steps[chain->count - 1].width = width;
    return 0;
}

static int read_prepend(enum prepend_scheme *out, const struct json *value, const struct json_origin *source)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name = json_string(json_get(value, "prepend_scheme"), "always");
    int scheme = 0;
    while (scheme < COUNT_OF(names) && strcmp(name, names[scheme]) != 0)
        scheme++;
    bool without = json_get(value, "add_prefix_space") && !json_bool(json_get(value, "add_prefix_space"), true);
    if (scheme == COUNT_OF(names) || (without && scheme != PREPEND_NEVER))
        return refuse(source, value, "prepend_scheme always, first or never; never where add_prefix_space is false");
    *out = (enum prepend_scheme)scheme;
    return 0;
}

static int read_metaspace(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    struct splitter *step = splitters_push(chain, source);
    if (!step || read_character(&step->character, value, "replacement", source) ||
        read_prepend(&step->prepend, value, source))
        return -1;
    step->rewrite = mark_spaces;
    step->place = string_copy(source->place);
    if (!json_bool(json_get(value, "split"), true))
        return 0;
    struct splitter *cut = splitters_push(chain, source);
    if (!cut)
        return -1;
    cut->span = span_of_one, cut->behavior = BEHAVIOR_NEXT, cut->character = step->character;
    return 0;
}

static int read_split(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    const struct json *pattern = json_get(value, "pattern");
    const char *regex = json_string(json_get(pattern, "Regex"), "");
    struct json_origin place = source_of(source, "pattern", -1);
    enum split_behavior behavior;
    bool invert = json_bool(json_get(value, "invert"), false);
    struct splitter *step = splitters_push(chain, source);
    if (!step || finder_init(&step->find, pattern, &place) || read_behavior(&behavior, value, "", source))
        return -1;
    bool whole = (behavior == BEHAVIOR_ISOLATED && !invert) || (behavior == BEHAVIOR_REMOVED && invert);
    if (whole && *regex) /* a hand-written splitter leaves no gaps, so both behaviors agree */
        splitter_use_known(step, regex);
    step->behavior = step->kind == SPLIT_OTHER ? behavior : BEHAVIOR_ISOLATED;
    step->invert = step->kind == SPLIT_OTHER && invert;
    return 0;
}

static int read_byte_level(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    struct splitter *step;
    if (json_bool(json_get(value, "add_prefix_space"), true)) {
        if (!(step = splitters_push(chain, source)))
            return -1;
        step->rewrite = prefix_space;
        step->place = string_copy(source->place);
    }
    if (json_bool(json_get(value, "use_regex"), true)) {
        if (!(step = splitters_push(chain, source)) || splitter_init(step, REGEX_GPT2, false, source->origin))
            return -1;
    }
    if (!(step = splitters_push(chain, source)))
        return -1;
    step->rewrite = to_byte_characters;
    step->place = string_copy(source->place);
    return 0;
}

static int read_scripts(struct splitters *chain, const struct json *value, const struct json_origin *source)
{
    (void)value;
    return push_spans(chain, source, span_of_script, BEHAVIOR_REMOVED, 0);
}

static const struct {
    const char *name;
    read_fn *read;
} KINDS[] = {
    {"Split", read_split},
    {"ByteLevel", read_byte_level},
    {"Metaspace", read_metaspace},
    {"Digits", read_digits},
    {"Punctuation", read_punctuation},
    {"Whitespace", read_whitespace},
    {"WhitespaceSplit", read_whitespace_split},
    {"BertPreTokenizer", read_bert},
    {"CharDelimiterSplit", read_delimiter},
    {"FixedLength", read_fixed},
    {"UnicodeScripts", read_scripts},
};

int splitters_read(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source)
{
    const char *name = kind_of(value), *known[COUNT_OF(KINDS) + 2] = {"Sequence"};
    if (json_kind(value) == JSON_NULL)
        return 0;
    if (strcmp(name, "Sequence") == 0)
        return sequence_read(tokenizer, value, "pretokenizers", splitters_read, source);
    for (i64 i = 0; i < COUNT_OF(KINDS); i++)
        if (strcmp(name, KINDS[i].name) == 0)
            return KINDS[i].read(&tokenizer->splitters, value, source);
    for (i64 i = 0; i < COUNT_OF(KINDS); i++)
        known[i + 1] = KINDS[i].name;
    return refuse_kind(source, name, known);
}
