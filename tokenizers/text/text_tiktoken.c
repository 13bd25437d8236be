/* tiktoken files. Each line holds a token's bytes in base64 and its rank, which is both its id and
 * its merge priority. The pattern and the special tokens are not in the file.
 * tokenizer_config.json beside it gives the pattern ("pattern": a name below, or "pat_str": the
 * expression) and the special tokens ("added_tokens_decoder", by id). Without either key a file
 * name that begins with a pattern's name (cl100k_base.tiktoken) selects that pattern. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <stdlib.h>
#include <string.h>

#define O200K_WORD "[^\\r\\n\\p{L}\\p{N}]?"
#define O200K_ENDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
#define O200K_REST "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
#define LINES_AND_SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"

/* Patterns of published models: OpenAI's encodings, Qwen, Llama 3, Kimi K2. */
static const struct {
    const char *name, *expression;
} PATTERNS[] = {
    {"r50k", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"},
    {"p50k", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"},
    {"gpt2", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"},
    {"cl100k", "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|"
               "\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"},
    {"o200k", O200K_WORD "[" UPPER "]*[" LOWER "]+" O200K_ENDS O200K_WORD "[" UPPER "]+[" LOWER
                         "]*" O200K_ENDS O200K_REST "[\\r\\n/]*" LINES_AND_SPACES},
    {"qwen", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
             " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" LINES_AND_SPACES},
    {"llama3", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
               " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" LINES_AND_SPACES},
    {"kimi", "[\\p{Han}]+|" O200K_WORD "[" UPPER "&&[^\\p{Han}]]*[" LOWER "&&[^\\p{Han}]]+" O200K_ENDS O200K_WORD
             "[" UPPER "&&[^\\p{Han}]]+[" LOWER "&&[^\\p{Han}]]*" O200K_ENDS O200K_REST "[\\r\\n]*" LINES_AND_SPACES},
};

static const char *pattern_of(const char *name) /* matches by prefix; NULL if unknown */
{
    for (i64 i = 0; i < COUNT_OF(PATTERNS); i++)
        if (strncmp(name, PATTERNS[i].name, strlen(PATTERNS[i].name)) == 0)
            return PATTERNS[i].expression;
    return NULL;
}

static int no_pattern(const char *origin)
{
    struct buffer all = {0};
    for (i64 i = 0; i < COUNT_OF(PATTERNS); i++)
        buffer_printf(&all, "%s%s", i ? ", " : "", PATTERNS[i].name);
    error_set("%s: a tiktoken file does not say how text is cut; put {\"pattern\": NAME} or {\"pat_str\": EXPRESSION} "
              "into tokenizer_config.json beside it, NAME one of %s",
              origin, all.data);
    buffer_release(&all);
    return -1;
}

/* ---- Lines ---- */
static int bad_line(const char *origin, i64 line, const char *expected)
{
    return error_set("%s:%lld: expected %s", origin, (long long)line, expected);
}

/* Adds a token under its byte-level name: each byte as the character that represents it. */
static int add_token(struct text_tokenizer *tokenizer, const struct buffer *bytes, i64 rank, i64 line)
{
    struct buffer name = {0};
    for (i64 i = 0; i < bytes->length; i++) {
        u8 character[4];
        buffer_append(&name, character, utf8_encode(character, byte_to_char((u8)bytes->data[i])));
    }
    int status = tokenizer_add(tokenizer, name.data, name.length, rank);
    buffer_release(&name);
    return status ? error_prefix("line %lld", (long long)line) : 0;
}

static int read_line(struct text_tokenizer *tokenizer, const char *text, i64 length, i64 line)
{
    const char *space = memchr(text, ' ', (size_t)length);
    struct buffer bytes = {0};
    i64 rank = 0, at = space ? space + 1 - text : length;
    int status = 0;
    bool digits = at < length && length - at <= 9;
    for (; digits && at < length; at++) {
        digits = text[at] >= '0' && text[at] <= '9';
        rank = rank * 10 + (text[at] - '0');
    }
    if (!space || !digits || !base64_decode(&bytes, text, space - text) || bytes.length == 0)
        status = bad_line(tokenizer->origin, line, "BASE64 RANK");
    else
        status = add_token(tokenizer, &bytes, rank, line);
    buffer_release(&bytes);
    return status;
}

static int read_lines(struct text_tokenizer *tokenizer, const char *text, i64 length)
{
    i64 line = 1;
    for (i64 at = 0; at < length; line++) {
        const char *end = memchr(text + at, '\n', (size_t)(length - at));
        i64 stop = end ? end - text : length, last = stop - (stop > at && text[stop - 1] == '\r');
        if (last > at && read_line(tokenizer, text + at, last - at, line))
            return -1;
        at = stop + 1;
    }
    return tokenizer->model_tokens ? 0 : bad_line(tokenizer->origin, 1, "BASE64 RANK; the file holds no token");
}

/* ---- The chain ---- */
static int add_pattern(struct text_tokenizer *tokenizer, const struct json *config)
{
    const char *slash = strrchr(tokenizer->origin, '/');
    const char *given = json_string(json_get(config, "pat_str"), NULL);
    const char *name = json_string(json_get(config, "pattern"), slash ? slash + 1 : tokenizer->origin);
    const char *expression = given ? given : pattern_of(name);
    struct json_origin source = {.origin = tokenizer->origin, .place = "pattern"};
    if (!expression)
        return no_pattern(tokenizer->origin);
    struct splitter *step = splitters_push(&tokenizer->splitters, &source);
    splitter_use_known(step, expression);
    if (step->kind == SPLIT_OTHER && !(step->find.regex = regex_open_rust(expression, tokenizer->origin)))
        return -1;
    step->behavior = step->kind == SPLIT_OTHER ? BEHAVIOR_REMOVED : BEHAVIOR_ISOLATED; /* drops gaps */
    step->invert = step->kind == SPLIT_OTHER;
    tokenizer->pattern = string_copy(expression);
    return 0;
}

static int find_pairs(struct text_tokenizer *tokenizer)
{
    u32 *ranks = memory_alloc(tokenizer->vocabulary * 4);
    for (i64 id = 0; id < tokenizer->vocabulary; id++) {
        ranks[id] = (u32)id;
        if (tokenizer->tokens[id].content >= 0)
            string_table_add(&tokenizer->by_bytes, tokenizer, true, (i32)id);
    }
    int status = bpe_pairs_from_tokens(tokenizer, ranks, true);
    memory_free(ranks);
    return status;
}

struct text_tokenizer *tiktoken_parse(const void *bytes, i64 length, const struct json *config, const char *origin)
{
    struct text_tokenizer *tokenizer = tokenizer_new(origin);
    tokenizer->model = &MODEL_BPE;
    tokenizer->ignore_merges = tokenizer->byte_level = true;
    struct json_origin source = {.origin = origin};
    struct json *decoder = json_parse("{\"type\":\"ByteLevel\"}", 20, "decoder");
    int status = read_lines(tokenizer, bytes, length) || add_pattern(tokenizer, config) || find_pairs(tokenizer) ||
                 decoders_read(tokenizer, decoder, &source);
    json_free(decoder);
    if (status) {
        text_tokenizer_free(tokenizer);
        return NULL;
    }
    buffer_append(&tokenizer->raw_file, bytes, length);
    tokenizer->raw_name = "tokenizer.tiktoken";
    return tokenizer;
}
