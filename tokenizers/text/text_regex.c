/* Regular expressions of tokenizer.json, written for Oniguruma and run by PCRE2. Only this file
 * uses PCRE2.
 *
 * Where the two engines differ, the pattern is rewritten (white space, words, newer letters,
 * lines, nested classes) or refused (\h and others): a wrong cut would silently change every id. */
#include "tokenizers/text/text_internal.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum { HEAP_MOST_KIB = 512 << 10 };

struct regex {
    pcre2_code *code;
    char *pattern, *origin;
};
struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* PCRE2's \s includes U+180E, which left White_Space in Unicode 6.3. */
static const char SPACES[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
                             "\\x{205f}\\x{3000}";
static const char NOT_SPACES[] = "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"
                                 "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"
                                 "\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}";

/* Rewrites \p{Han} and other scripts to mean the script only; since 10.40 PCRE2 also matches
 * characters shared with other scripts. Returns the length of the escape, or 0 if there is none. */
static i64 rewrite_script(struct buffer *out, const char *pattern, bool in_class)
{
    static const char *const scripts[] = {"Han",      "Hiragana", "Katakana", "Hangul", "Latin",     "Greek",
                                          "Cyrillic", "Arabic",   "Hebrew",   "Thai",   "Devanagari"};
    const char *kind = PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40 ? "sc:" : "";
    for (i64 i = 0; i < COUNT_OF(scripts); i++) {
        size_t length = strlen(scripts[i]);
        if ((pattern[1] != 'p' && pattern[1] != 'P') || pattern[2] != '{' ||
            strncmp(pattern + 3, scripts[i], length) != 0 || pattern[3 + length] != '}')
            continue;
        bool young = i == 0 && pattern[1] == 'p'; /* ideographs added in Unicode 15 */
        buffer_printf(out, "%s\\%c{%s%s}%s%s", in_class || !young ? "" : "[", pattern[1], kind, scripts[i],
                      young ? "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}" : "",
                      in_class || !young ? "" : "]");
        return (i64)length + 4;
    }
    return 0;
}

/* Rewrites \p{L}, \p{Lu}, ... to include characters newer than PCRE2's tables. Returns the length
 * of the escape, or 0 if there is none. */
static i64 rewrite_category(struct buffer *out, const char *pattern, bool in_class)
{
    const char *name = pattern + 3, *end = strchr(pattern, '}');
    i64 length = end ? end - name : 0;
    if (strncmp(pattern, "\\p{", 3) != 0 || length < 1 || length > 2 || !strchr("LMNPS", name[0]))
        return 0;
    buffer_printf(out, "%s\\p{%.*s}", in_class ? "" : "[", (int)length, name);
    for (int i = 0; i < NEW_CHARACTER_COUNT; i++)
        if (strncmp(NEW_CHARACTERS[i].category, name, (size_t)length) == 0)
            buffer_printf(out, "\\x{%x}-\\x{%x}", NEW_CHARACTERS[i].first, NEW_CHARACTERS[i].last);
    buffer_printf(out, in_class ? "" : "]");
    return end + 1 - pattern;
}

/* Appends the members of \w for a class, as in Oniguruma: Alphabetic, marks, decimal numbers and
 * connectors. Outside of brackets Oniguruma uses its own table for the first 256 characters, which
 * includes superscripts and fractions. */
static void append_word(struct buffer *out, bool in_class)
{
    buffer_printf(out, "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}%s", in_class ? "" : "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}");
    for (int i = 0; i < ALPHABETIC_SYMBOL_COUNT; i++)
        buffer_printf(out, "\\x{%x}-\\x{%x}", ALPHABETIC_SYMBOLS[i].first, ALPHABETIC_SYMBOLS[i].last);
    for (int i = 0; i < NEW_CHARACTER_COUNT; i++)
        if (strchr("LM", NEW_CHARACTERS[i].category[0]) || strcmp(NEW_CHARACTERS[i].category, "Nd") == 0)
            buffer_printf(out, "\\x{%x}-\\x{%x}", NEW_CHARACTERS[i].first, NEW_CHARACTERS[i].last);
}

static bool is_word_in_class(const u8 *classes, u32 c)
{
    bool joins = c == 0x200c || c == 0x200d; /* members of Rust's \w, not of Oniguruma's */
    return char_class(classes, c) & CHAR_WORD && !joins;
}

/* Appends all other characters as ranges, because a class cannot contain another one's
 * complement. */
static void append_not_word(struct buffer *out)
{
    const u8 *classes = unicode_classes();
    for (u32 c = 0, last; c < 0x110000; c = last + 1) {
        last = c;
        if (is_word_in_class(classes, c) || (c >= 0xd800 && c <= 0xdfff))
            continue;
        while (last + 1 < 0x110000 && last + 1 != 0xd800 && !is_word_in_class(classes, last + 1))
            last++;
        buffer_printf(out, "\\x{%x}-\\x{%x}", c, last);
    }
}

/* Rewrites \w \W \b \B; c is the letter. PCRE2's versions exclude marks and connectors but include
 * all numbers. */
static void rewrite_word(struct buffer *out, char c, bool in_class)
{
    if (in_class) {
        c == 'w' ? append_word(out, true) : append_not_word(out);
        return;
    }
    struct buffer word = {0};
    append_word(&word, false);
    if (c == 'w' || c == 'W')
        buffer_printf(out, "[%s%s]", c == 'W' ? "^" : "", word.data);
    else
        buffer_printf(out, "(?:(?<=[%s])(?%c[%s])|(?<![%s])(?%c[%s]))", word.data, c == 'b' ? '!' : '=', word.data,
                      word.data, c == 'b' ? '=' : '!', word.data);
    buffer_release(&word);
}

/* Rewrites the escape at pattern[i]. Returns its end, or -1 with a message. */
static i64 rewrite_escape(struct buffer *out, const char *pattern, i64 i, bool in_class, const char *origin)
{
    char c = pattern[i + 1];
    i64 category = rewrite_category(out, pattern + i, in_class);
    if (!category && c)
        category = rewrite_script(out, pattern + i, in_class);
    if (category)
        return i + category;
    if (c == 0 || strchr("hHXRKCyY", c))
        return error_set("%s: regular expression %s: \\%c at byte %lld is not supported; use a class in brackets",
                         origin, pattern, c ? c : ' ', (long long)i);
    if (c == 'w' || c == 'W' || (!in_class && (c == 'b' || c == 'B')))
        rewrite_word(out, c, in_class);
    else if (c == 's' || c == 'S')
        buffer_printf(out, in_class ? "%s" : "[%s]", c == 's' ? SPACES : NOT_SPACES);
    else
        buffer_append(out, pattern + i, 2);
    return i + 2;
}

static int refuse_nested(const char *pattern, i64 i, const char *origin)
{
    return error_set(
        "%s: regular expression %s: a class within a class or && at byte %lld is not supported; write one class",
        origin, pattern, (long long)i);
}

static int rewrite(struct buffer *out, const char *pattern, const char *origin)
{
    bool in_class = false;
    for (i64 i = 0; pattern[i];) {
        char c = pattern[i];
        if (c == '\\') {
            i = rewrite_escape(out, pattern, i, in_class, origin);
            if (i < 0)
                return -1;
            continue;
        }
        if (in_class && ((c == '[' && pattern[i + 1] != ':') || (c == '&' && pattern[i + 1] == '&')))
            return refuse_nested(pattern, i, origin);
        i64 length = 1;
        if (!in_class && c == '[') /* the bracket in "[]" and "[^]" is a literal */
            length += pattern[i + 1] == '^' ? 1 + (pattern[i + 2] == ']') : pattern[i + 1] == ']';
        else if (in_class && c == '[')
            length = strstr(pattern + i, ":]") ? strstr(pattern + i, ":]") + 2 - (pattern + i) : 2;
        if (in_class && strncmp(pattern + i, "[:word:]", 8) == 0)
            append_word(out, true);
        else
            buffer_append(out, pattern + i, length);
        in_class = in_class ? c != ']' : c == '[';
        i += length;
    }
    return 0;
}

static struct regex *open_as(const char *pattern, const char *origin, u32 options)
{
    struct buffer plain = {0}, rewritten = {0};
    int status = regex_expand_classes(&plain, pattern, origin);
    if (status == 0)
        status = rewrite(&rewritten, plain.data, origin);
    buffer_release(&plain);
    if (status) {
        buffer_release(&rewritten);
        return NULL;
    }
    int code;
    PCRE2_SIZE offset;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    require_memory(context, "a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* Oniguruma's . and $ know no other newline */
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)rewritten.data, (PCRE2_SIZE)rewritten.length,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | options, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (!compiled) {
        PCRE2_UCHAR message[256];
        pcre2_get_error_message(code, message, sizeof message);
        error_set("%s: regular expression %s: %s", origin, pattern, (const char *)message);
        buffer_release(&rewritten);
        return NULL;
    }
    buffer_release(&rewritten);
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* on failure pcre2_match interprets */
    struct regex *regex = memory_alloc(sizeof *regex);
    *regex = (struct regex){compiled, string_copy(pattern), string_copy(origin)};
    return regex;
}

struct regex *regex_open(const char *pattern, const char *origin)
{
    return open_as(pattern, origin, PCRE2_MULTILINE);
}

struct regex *regex_open_rust(const char *pattern, const char *origin)
{
    return open_as(pattern, origin, PCRE2_DOLLAR_ENDONLY);
}

void regex_close(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    memory_free(regex->pattern);
    memory_free(regex->origin);
    memory_free(regex);
}

struct regex_scratch *regex_scratch_open(void)
{
    struct regex_scratch *scratch = memory_alloc(sizeof *scratch);
    scratch->data = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    scratch->stack = pcre2_jit_stack_create(32 << 10, 8 << 20, NULL);
    require_memory(scratch->data && scratch->context, "a regular expression");
    pcre2_set_heap_limit(scratch->context, HEAP_MOST_KIB);
    if (scratch->stack)
        pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
    return scratch;
}

void regex_scratch_close(struct regex_scratch *scratch)
{
    if (!scratch)
        return;
    pcre2_jit_stack_free(scratch->stack);
    pcre2_match_context_free(scratch->context);
    pcre2_match_data_free(scratch->data);
    memory_free(scratch);
}

/* Steps back grow with the text: one run of a class may give up each of its characters, for each
 * alternative. Catastrophic backtracking, which grows with a power of it, ends with an error. */
static u32 match_limit(i64 bytes)
{
    enum { LEAST = 1000000, PER_BYTE = 32 };
    return (u32)min_i64(LEAST + PER_BYTE * bytes, UINT32_MAX);
}

int regex_find(i64 *begin, i64 *end, const struct regex *regex, struct regex_scratch *scratch, const u8 *text, i64 from,
               i64 length)
{
    u32 options = PCRE2_NO_UTF_CHECK;
    pcre2_set_match_limit(scratch->context, match_limit(length - from));
    int found =
        pcre2_match(regex->code, text, (PCRE2_SIZE)length, (PCRE2_SIZE)from, options, scratch->data, scratch->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* groups take stack for each repetition; without JIT they take the heap */
        found = pcre2_match(regex->code, text, (PCRE2_SIZE)length, (PCRE2_SIZE)from, options | PCRE2_NO_JIT,
                            scratch->data, scratch->context);
    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0) {
        PCRE2_UCHAR message[256];
        pcre2_get_error_message(found, message, sizeof message);
        return error_set("%s: regular expression %s failed at byte %lld of the text: %s; simplify it", regex->origin,
                         regex->pattern, (long long)from, (const char *)message);
    }
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(scratch->data);
    *begin = (i64)offsets[0], *end = (i64)offsets[1];
    if (*end < *begin || *begin < from) /* possible with \K and lookbehind */
        return error_set("%s: regular expression %s matched backwards", regex->origin, regex->pattern);
    return 1;
}
