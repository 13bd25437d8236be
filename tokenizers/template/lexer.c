/* The source as tokens. The whitespace beside tags goes here: what `-` takes away, the line feed behind
 * a block (trim_blocks) and the spaces before one (lstrip_blocks). */
#include "tokenizers/template/inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct jinja_scan {
    struct jinja_parser *parser;
    const char *text; /* with line feeds alone as line ends */
    i64 length, at;
    int line;
    bool line_starts; /* the last token ended with a line feed */
};

static bool starts(const struct jinja_scan *scan, i64 at, const char *word)
{
    i64 length = (i64)strlen(word);
    return at + length <= scan->length && memcmp(scan->text + at, word, (size_t)length) == 0;
}

static int lines(const char *text, i64 length)
{
    int count = 0;
    for (i64 i = 0; i < length; i++)
        count += text[i] == '\n';
    return count;
}

/* Goes on behind `end`. */
static void advance(struct jinja_scan *scan, i64 end)
{
    scan->line += lines(scan->text + scan->at, end - scan->at);
    if (end > scan->at)
        scan->line_starts = scan->text[end - 1] == '\n';
    scan->at = end;
}

static struct jinja_token *push(struct jinja_scan *scan, enum jinja_token_kind kind)
{
    struct jinja_parser *parser = scan->parser;
    if (parser->count == parser->capacity) {
        i64 bytes = parser->capacity * (i64)sizeof *parser->tokens;
        parser->capacity = max_i64(64, parser->capacity * 2);
        parser->tokens = jinja_grow(parser->run, parser->tokens, bytes, parser->capacity * (i64)sizeof *parser->tokens);
    }
    struct jinja_token *token = &parser->tokens[parser->count++];
    *token = (struct jinja_token){.kind = kind, .line = scan->line};
    return token;
}

_Noreturn static void fail(struct jinja_scan *scan, const char *message)
{
    scan->parser->run->line = scan->line;
    jinja_fail(scan->parser->run, "%s", message);
}

static i64 skip_spaces(const struct jinja_scan *scan, i64 at)
{
    return at + jinja_spaces_before(scan->text + at, scan->length - at);
}

/* End of a tag whose closing mark is at `at`, or -1. `sign` may stand before the mark: - takes away
 * the spaces that follow, + keeps the line feed that a block would lose. */
static i64 tag_end(const struct jinja_scan *scan, i64 at, const char *mark, bool block)
{
    bool minus = at < scan->length && scan->text[at] == '-', plus = block && at < scan->length && scan->text[at] == '+';
    i64 begin = at + (minus || plus);
    if (!starts(scan, begin, mark))
        return -1;
    i64 end = begin + 2;
    if (minus)
        return skip_spaces(scan, end);
    return block && !plus && end < scan->length && scan->text[end] == '\n' ? end + 1 : end;
}

/* Length of the text from `begin` to a tag at `end` without what the tag takes away. */
static i64 kept_length(const struct jinja_scan *scan, i64 begin, i64 end, char sign, bool variable)
{
    const char *text = scan->text + begin;
    i64 length = end - begin;
    if (sign == '-')
        return length - jinja_spaces_behind(text, length);
    if (sign == '+' || variable)
        return length;
    i64 line = length;
    while (line > 0 && text[line - 1] != '\n')
        line--;
    bool blank = line < length && jinja_spaces_before(text + line, length - line) == length - line;
    return (line > 0 || scan->line_starts) && blank ? line : length;
}

static void push_data(struct jinja_scan *scan, i64 end, char sign, bool variable)
{
    i64 length = kept_length(scan, scan->at, end, sign, variable);
    if (length > 0)
        push(scan, JINJA_TOKEN_DATA)->value = jinja_text(scan->parser->run, scan->text + scan->at, length);
}

static char sign_at(const struct jinja_scan *scan, i64 at)
{
    char sign = at < scan->length ? scan->text[at] : 0;
    return sign == '-' || sign == '+' ? sign : 0;
}

static void scan_comment(struct jinja_scan *scan, i64 begin)
{
    for (i64 at = begin; at < scan->length; at++) {
        i64 end = tag_end(scan, at, "#}", true);
        if (end >= 0) {
            advance(scan, end);
            return;
        }
    }
    fail(scan, "a comment has no end: expected #}");
}

/* Reads from `at` a word of a block tag, with spaces around it. Returns the place behind, or -1. */
static i64 tag_word(const struct jinja_scan *scan, i64 at, const char *word)
{
    at = skip_spaces(scan, at);
    return starts(scan, at, word) ? skip_spaces(scan, at + (i64)strlen(word)) : -1;
}

/* Place behind `{% raw %}` at `at`, or -1. A line feed behind it stays. */
static i64 raw_begin(const struct jinja_scan *scan, i64 at)
{
    i64 begin = at + 2 + (sign_at(scan, at + 2) != 0), end = tag_word(scan, begin, "raw");
    if (end < 0)
        return -1;
    if (starts(scan, end, "-%}"))
        return skip_spaces(scan, end + 3);
    return starts(scan, end, "%}") ? end + 2 : -1;
}

static void scan_raw(struct jinja_scan *scan)
{
    for (i64 at = scan->at; at < scan->length; at++) {
        if (!starts(scan, at, "{%"))
            continue;
        char sign = sign_at(scan, at + 2);
        i64 word = tag_word(scan, at + 2 + (sign != 0), "endraw"),
            end = word < 0 ? -1 : tag_end(scan, word, "%}", true);
        if (end < 0)
            continue;
        push_data(scan, at, sign, false);
        advance(scan, end);
        return;
    }
    fail(scan, "a raw block has no end: expected {% endraw %}");
}

/* ---- Inside of tags ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

/* The number of `digits` hexadecimal digits at `at`. */
static u32 hex_number(struct jinja_scan *scan, i64 at, i64 end, int digits)
{
    u32 number = 0;
    for (int i = 0; i < digits; i++) {
        int digit = at + i < end ? hex_digit(scan->text[at + i]) : -1;
        if (digit < 0)
            fail(scan, "an escape in a text is cut short: expected \\xhh, \\uhhhh or \\Uhhhhhhhh");
        number = number << 4 | (u32)digit;
    }
    if (number > 0x10ffff || (number >= 0xd800 && number < 0xe000))
        fail(scan, "an escape in a text names no character: surrogates are not supported");
    return number;
}

/* Appends what the escape behind the backslash at `at` means. Returns the place behind it. */
static i64 scan_escape(struct jinja_scan *scan, struct jinja_builder *out, i64 at, i64 end)
{
    static const char names[] = "\\'\"abfnrtv", meanings[] = "\\'\"\a\b\f\n\r\t\v";
    struct jinja_run *run = scan->parser->run;
    char c = scan->text[at + 1], bytes[4];
    const char *name = c ? strchr(names, c) : NULL;
    u32 point = 0;
    i64 next = at + 2;
    if (c == '\n')
        return next;
    if (name) {
        jinja_append(run, out, &meanings[name - names], 1);
        return next;
    }
    if (c == 'N')
        fail(scan, "\\N{...} in a text is not supported: write the character itself");
    if (c >= '0' && c <= '7') {
        for (next = at + 1; next < end && next < at + 4 && scan->text[next] >= '0' && scan->text[next] <= '7'; next++)
            point = point * 8 + (u32)(scan->text[next] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        point = hex_number(scan, next, end, digits);
        next += digits;
    } else {
        jinja_append(run, out, "\\", 1);
        return at + 1;
    }
    jinja_append(run, out, bytes, jinja_encode(bytes, point));
    return next;
}

static void scan_text(struct jinja_scan *scan)
{
    char quote = scan->text[scan->at];
    struct jinja_builder out = {0};
    i64 begin = scan->at + 1, end = begin;
    while (end < scan->length && scan->text[end] != quote)
        end += scan->text[end] == '\\' ? 2 : 1;
    if (end >= scan->length)
        fail(scan, "a text in a tag has no end: expected its closing quote");
    for (i64 at = begin; at < end;) {
        if (scan->text[at] == '\\') {
            at = scan_escape(scan, &out, at, end);
            continue;
        }
        const char *next = memchr(scan->text + at, '\\', (size_t)(end - at));
        i64 plain = next ? next - (scan->text + at) : end - at;
        jinja_append(scan->parser->run, &out, scan->text + at, plain);
        at += plain;
    }
    push(scan, JINJA_TOKEN_CONSTANT)->value = jinja_built(scan->parser->run, &out);
    advance(scan, end + 1);
}

/* Digits, each may have an underscore before it but the first. Returns the place behind. */
static i64 digits_end(const struct jinja_scan *scan, i64 at, int base, bool prefixed)
{
    for (i64 begin = at; at < scan->length; at++) {
        bool underscore = scan->text[at] == '_' && (at > begin || prefixed) && at + 1 < scan->length;
        int digit = hex_digit(scan->text[at + underscore]);
        if (digit < 0 || digit >= base)
            break;
        at += underscore;
    }
    return at;
}

/* Place behind the float at `at`, or -1 if it is an integer. */
static i64 float_end(const struct jinja_scan *scan, i64 at)
{
    i64 end = digits_end(scan, at, 10, false), fraction = end;
    if (at > 0 && scan->text[at - 1] == '.')
        return -1;
    if (starts(scan, end, ".") && digits_end(scan, end + 1, 10, false) > end + 1)
        fraction = digits_end(scan, end + 1, 10, false);
    if (fraction < scan->length && (scan->text[fraction] | 0x20) == 'e') {
        i64 exponent = fraction + 1 + (sign_at(scan, fraction + 1) != 0);
        i64 behind = digits_end(scan, exponent, 10, false);
        if (behind > exponent)
            return behind;
    }
    return fraction > end ? fraction : -1;
}

static void scan_number(struct jinja_scan *scan)
{
    char digits[400], letter = scan->at + 1 < scan->length ? (char)(scan->text[scan->at + 1] | 0x20) : 0;
    int base = scan->text[scan->at] != '0' ? 10 : letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    i64 begin = scan->at + (base != 10 ? 2 : 0), end = digits_end(scan, begin, base, base != 10), count = 0;
    i64 behind_float = base == 10 ? float_end(scan, begin) : -1;
    if (base != 10 && end == begin) { /* the digit 0 before a name */
        begin = scan->at;
        end = begin + 1;
        base = 10;
    }
    if (behind_float >= 0) {
        end = behind_float;
    } else if (base == 10 && scan->text[begin] == '0') { /* zeros alone; the digits behind are a number of their own */
        for (i64 at = begin; at < end; at++)
            if (scan->text[at] != '0' && scan->text[at] != '_') {
                end = at;
                break;
            }
    }
    for (i64 at = begin; at < end; at++)
        if (scan->text[at] != '_' && count < (i64)sizeof digits - 1)
            digits[count++] = scan->text[at];
    digits[count] = 0;
    errno = 0;
    struct jinja_value value =
        behind_float >= 0 ? jinja_real(strtod(digits, NULL)) : jinja_integer((i64)strtoll(digits, NULL, base));
    if (count == (i64)sizeof digits - 1 || (behind_float < 0 && errno == ERANGE))
        fail(scan, "a number is too large: expected one of 64 bits");
    push(scan, JINJA_TOKEN_CONSTANT)->value = value;
    advance(scan, end);
}

static i64 name_end(const struct jinja_scan *scan, i64 at)
{
    while (at < scan->length) {
        i64 bytes;
        u32 point = jinja_point(scan->text + at, scan->length - at, &bytes);
        bool letter = point < 128 ? point == '_' || (jinja_classes(point) & (JINJA_ALPHA | JINJA_DECIMAL))
                                  : (jinja_classes(point) & (JINJA_ALPHA | JINJA_DECIMAL)) != 0;
        if (!letter)
            break;
        at += bytes;
    }
    return at;
}

/* The longest come first. */
static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

static const char *operator_at(const struct jinja_scan *scan)
{
    for (i64 i = 0; i < COUNT_OF(operators); i++)
        if (starts(scan, scan->at, operators[i]))
            return operators[i];
    return NULL;
}

/* Brackets that are open, so that }} in a dict does not end the tag. */
struct jinja_brackets {
    char open[JINJA_NESTING_MOST];
    int count;
};

static void check_brackets(struct jinja_scan *scan, struct jinja_brackets *brackets, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *open = strchr(opening, c), *close = strchr(closing, c);
    if (open) {
        if (brackets->count == JINJA_NESTING_MOST)
            fail(scan, "too many nested brackets: expected at most 100");
        brackets->open[brackets->count++] = closing[open - opening];
    } else if (close && (brackets->count == 0 || brackets->open[--brackets->count] != c)) {
        scan->parser->run->line = scan->line;
        jinja_fail(scan->parser->run, "unexpected '%c': no such bracket is open", c);
    }
}

static void scan_operator(struct jinja_scan *scan, struct jinja_brackets *brackets)
{
    const char *operation = operator_at(scan);
    if (!operation) {
        i64 bytes;
        scan->parser->run->line = scan->line;
        jinja_point(scan->text + scan->at, scan->length - scan->at, &bytes);
        jinja_fail(scan->parser->run, "unexpected character '%.*s' in a tag", (int)bytes, scan->text + scan->at);
    }
    if (!operation[1])
        check_brackets(scan, brackets, *operation);
    push(scan, JINJA_OPERATOR)->operation = operation;
    advance(scan, scan->at + (i64)strlen(operation));
}

/* Tokens up to the end of a tag. */
static void scan_tag(struct jinja_scan *scan, bool block)
{
    struct jinja_brackets brackets = {.count = 0};
    struct jinja_run *run = scan->parser->run;
    for (;;) {
        i64 end = brackets.count ? -1 : tag_end(scan, scan->at, block ? "%}" : "}}", block);
        if (end >= 0) {
            push(scan, block ? JINJA_BLOCK_END : JINJA_VARIABLE_END);
            advance(scan, end);
            return;
        }
        i64 behind = skip_spaces(scan, scan->at);
        if (behind > scan->at) {
            advance(scan, behind);
            continue;
        }
        if (scan->at >= scan->length)
            fail(scan, block ? "a tag has no end: expected %}" : "an output has no end: expected }}");
        char c = scan->text[scan->at];
        if (c == '\'' || c == '"') {
            scan_text(scan);
        } else if (c >= '0' && c <= '9') {
            scan_number(scan);
        } else if ((behind = name_end(scan, scan->at)) > scan->at) {
            struct jinja_value name = jinja_text(run, scan->text + scan->at, behind - scan->at);
            push(scan, JINJA_TOKEN_NAME)->value = name;
            advance(scan, behind);
        } else {
            scan_operator(scan, &brackets);
        }
    }
}

/* Copies the source with line feeds alone as line ends, and without the last one. */
static void normalise(struct jinja_scan *scan, const char *text, i64 length)
{
    char *out = jinja_alloc(scan->parser->run, max_i64(length, 1));
    i64 count = 0;
    for (i64 i = 0; i < length; i++) {
        if (text[i] == '\r') {
            out[count++] = '\n';
            i += i + 1 < length && text[i + 1] == '\n';
        } else {
            out[count++] = text[i];
        }
    }
    scan->text = out;
    scan->length = count > 0 && out[count - 1] == '\n' ? count - 1 : count;
}

static i64 next_tag(const struct jinja_scan *scan)
{
    for (i64 at = scan->at; at + 1 < scan->length; at++)
        if (scan->text[at] == '{' && strchr("{%#", scan->text[at + 1]) && scan->text[at + 1])
            return at;
    return -1;
}

void jinja_scan(struct jinja_parser *parser, const char *text, i64 length)
{
    struct jinja_scan scan = {.parser = parser, .line = 1, .line_starts = true};
    normalise(&scan, text, length);
    for (i64 at; (at = next_tag(&scan)) >= 0;) {
        char kind = scan.text[at + 1], sign = sign_at(&scan, at + 2);
        i64 behind_raw = kind == '%' ? raw_begin(&scan, at) : -1;
        push_data(&scan, at, sign, kind == '{');
        advance(&scan, at);
        if (behind_raw >= 0) {
            advance(&scan, behind_raw);
            scan_raw(&scan);
            continue;
        }
        if (kind != '#')
            push(&scan, kind == '{' ? JINJA_VARIABLE_BEGIN : JINJA_BLOCK_BEGIN);
        advance(&scan, at + 2 + (sign != 0));
        if (kind == '#')
            scan_comment(&scan, scan.at);
        else
            scan_tag(&scan, kind == '%');
    }
    if (scan.at < scan.length)
        push_data(&scan, scan.length, '+', false);
    advance(&scan, scan.length);
    push(&scan, JINJA_END);
}
