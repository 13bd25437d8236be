/* Text analysis for curation: words, script letters, personal addresses and numbers. */
#include "data/curate/curate.h"

#include <ctype.h>
#include <string.h>

enum { UNSPACED_FIRST = 0x2e80 };

/* Decodes one character of valid UTF-8. Returns its length in bytes. */
static i64 decode(u32 *out, const char *text, i64 left)
{
    u8 first = (u8)*text;
    i64 bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    *out = first < 0x80 ? first : first & (0x7f >> bytes);
    for (i64 i = 1; i < bytes && i < left; i++)
        *out = *out << 6 | ((u8)text[i] & 0x3f);
    return bytes < left ? bytes : left;
}

i64 text_chars(const char *text, i64 length)
{
    i64 count = 0;
    for (i64 i = 0; i < length; i++)
        count += ((u8)text[i] & 0xc0) != 0x80;
    return count;
}

i64 text_at_char(const char *text, i64 length, i64 index)
{
    i64 at = 0;
    while (at < length && index > 0)
        for (at++, index--; at < length && ((u8)text[at] & 0xc0) == 0x80;)
            at++;
    return at;
}

/* ---- Words ---- */

/* Punctuation in U+2000 to U+206F, U+3000 to U+303F and U+FF00 to U+FF0F separates words, as that
 * of ASCII and Latin-1 does. */
static bool is_word(u32 c)
{
    if (c < 0x80)
        return isalnum((int)c);
    return !(c < 0xc0 || (c >= 0x2000 && c < 0x2070) || (c >= 0x3000 && c < 0x3040) || (c >= 0xff00 && c < 0xff10));
}

static void begin_word(struct word_runs *w)
{
    if (w->count + 1 >= w->capacity) {
        i64 next = max_i64(64, 2 * w->capacity);
        w->begin = memory_resize(w->begin, w->capacity * 8, next * 8);
        w->capacity = next;
    }
    if (w->count)
        buffer_append(&w->text, " ", 1);
    w->begin[w->count++] = w->text.length;
}

void words_add(struct word_runs *w, const char *text, i64 length)
{
    bool inside = false;
    u32 c;
    for (i64 at = 0, bytes; at < length; at += bytes) {
        bytes = decode(&c, text + at, length - at);
        if (!is_word(c)) {
            inside = false;
            continue;
        }
        if (!inside || c >= UNSPACED_FIRST)
            begin_word(w);
        inside = c < UNSPACED_FIRST;
        char lower = (char)(c < 0x80 ? tolower((int)c) : 0);
        buffer_append(&w->text, c < 0x80 ? &lower : text + at, bytes);
    }
    if (w->count)
        w->begin[w->count] = w->text.length + 1;
}

void words_release(struct word_runs *w)
{
    buffer_release(&w->text);
    memory_free(w->begin);
    *w = (struct word_runs){0};
}

/* ---- Scripts, by Unicode block ---- */

const char *const script_names[SCRIPTS] = {"latin",   "greek", "cyrillic", "armenian", "hebrew", "arabic", "devanagari",
                                           "bengali", "tamil", "thai",     "georgian", "hangul", "kana",   "han"};
static const struct curate_text_block {
    u32 first, last;
    int script;
} blocks[] = {{0x41, 0x5a, 0},      {0x61, 0x7a, 0},      {0xc0, 0x24f, 0},      {0x370, 0x3ff, 1},
              {0x400, 0x52f, 2},    {0x531, 0x58f, 3},    {0x5d0, 0x5f2, 4},     {0x620, 0x6ff, 5},
              {0x750, 0x77f, 5},    {0x904, 0x97f, 6},    {0x985, 0x9fe, 7},     {0xb85, 0xbff, 8},
              {0xe01, 0xe5b, 9},    {0x10a0, 0x10ff, 10}, {0x1100, 0x11ff, 11},  {0x1e00, 0x1eff, 0},
              {0x1f00, 0x1fff, 1},  {0x3041, 0x30ff, 12}, {0x3130, 0x318f, 11},  {0x3400, 0x4dbf, 13},
              {0x4e00, 0x9fff, 13}, {0xac00, 0xd7a3, 11}, {0xf900, 0xfaff, 13},  {0xfb50, 0xfdff, 5},
              {0xfe70, 0xfefc, 5},  {0xff66, 0xff9d, 12}, {0x20000, 0x323af, 13}};

int script_named(const char *name)
{
    for (int i = 0; i < SCRIPTS; i++)
        if (strcmp(script_names[i], name) == 0)
            return i;
    return -1;
}

/* The script of a letter; SCRIPTS: another script; -1: not a letter. */
static int script_of(u32 c)
{
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        if (c >= blocks[i].first && c <= blocks[i].last)
            return blocks[i].script;
    return c >= 0x530 && !(c >= 0x2000 && c < 0x3041) && c < 0xe000 ? SCRIPTS : -1;
}

i64 script_letters(i64 *counts, const char *text, i64 length)
{
    i64 letters = 0;
    u32 c;
    for (i64 at = 0; at < length;) {
        at += decode(&c, text + at, length - at);
        int script = script_of(c);
        if (script >= 0 && script < SCRIPTS)
            counts[script]++;
        letters += script >= 0;
    }
    return letters;
}

enum { KANA = 12, HAN = 13, HANGUL = 11 };

/* The script of a letter, with Han and kana as one. */
static int main_group(u32 c)
{
    int script = script_of(c);
    return script == KANA ? HAN : script;
}

static int main_script(const char *text, i64 length)
{
    i64 weights[SCRIPTS + 1] = {0};
    int most = 0;
    u32 c;
    for (i64 at = 0; at < length;) {
        at += decode(&c, text + at, length - at);
        int script = main_group(c);
        if (script >= 0)
            weights[script] += script == HAN || script == HANGUL ? 3 : 1;
    }
    for (int i = 1; i <= SCRIPTS; i++)
        most = weights[i] > weights[most] ? i : most;
    return weights[most] ? most : -1;
}

/* True for a letter of the script, for a combining accent behind a letter, and for an apostrophe or
 * hyphen between two letters. */
static bool continues_word(const char *text, i64 at, i64 length, int script, bool behind_letter)
{
    u32 c, next;
    at += decode(&c, text + at, length - at);
    if (main_group(c) == script || (behind_letter && c >= 0x300 && c < 0x370))
        return true;
    if (!behind_letter || at >= length || (c != '\'' && c != '-' && c != 0x2019))
        return false;
    decode(&next, text + at, length - at);
    return main_group(next) == script;
}

void script_letters_of_main(struct buffer *out, const char *text, i64 length)
{
    int script = main_script(text, length);
    bool behind_letter = false;
    u32 c;
    for (i64 at = 0, bytes; at < length && script >= 0; at += bytes) {
        bytes = decode(&c, text + at, length - at);
        bool blank = behind_letter;
        behind_letter = continues_word(text, at, length, script, behind_letter);
        if (behind_letter)
            buffer_append(out, text + at, bytes);
        else if (blank)
            buffer_append(out, " ", 1);
    }
}

/* ---- Personal data ---- */

static bool is_local(char c)
{
    return isalnum((u8)c) || (c && strchr("._%+-", c));
}

static bool is_domain(char c)
{
    return isalnum((u8)c) || c == '.' || c == '-';
}

/* Matches NAME@HOST.TLD around the @ at `at`. Sets *begin and returns the end, or 0 if none. */
static i64 email_at(const char *text, i64 at, i64 length, i64 least, i64 *begin)
{
    i64 first = at, end = at + 1, dot = -1;
    while (first > least && is_local(text[first - 1]))
        first--;
    for (; end < length && is_domain(text[end]); end++)
        dot = text[end] == '.' && end + 2 < length && isalpha((u8)text[end + 1]) && isalpha((u8)text[end + 2]) ? end
                                                                                                               : dot;
    while (end > at + 1 && !isalnum((u8)text[end - 1]))
        end--;
    *begin = first;
    return first < at && dot > at + 1 && dot < end ? end : 0;
}

/* Matches an IPv4 address: 4 numbers up to 255 separated by dots, not followed by a digit or by a
 * dot and a digit. Returns the end, or 0 if none. */
static i64 address_at(const char *text, i64 at, i64 length)
{
    for (int part = 0; part < 4; part++) {
        i64 value = 0, digits = 0;
        for (; at < length && isdigit((u8)text[at]) && digits < 4; at++, digits++)
            value = value * 10 + (text[at] - '0');
        if (digits == 0 || digits > 3 || value > 255)
            return 0;
        if (part < 3 && (at >= length || text[at++] != '.'))
            return 0;
    }
    bool more =
        at < length && (isdigit((u8)text[at]) || (text[at] == '.' && at + 1 < length && isdigit((u8)text[at + 1])));
    return more ? 0 : at;
}

/* True for an area code in parentheses, such as (030). (1920-1999) is not one. */
static bool is_area(const char *text, i64 at, i64 length)
{
    i64 digits = 0;
    while (at + 1 + digits < length && isdigit((u8)text[at + 1 + digits]))
        digits++;
    return text[at] == '(' && digits >= 2 && digits <= 5 && at + 1 + digits < length && text[at + 1 + digits] == ')';
}

/* Matches a phone number such as +49 30 1234567, (030) 123-4567 or 555-123-4567: 7 to 15 digits in
 * groups, introduced by + or an area code, or 3 groups of 3, 3 and 4 digits with one separator
 * between them. Dates, prices and lists of numbers do not match. Returns the end, or 0. */
static i64 phone_at(const char *text, i64 at, i64 length)
{
    i64 digits = 0, groups = 0, group = 0, end = 0, sizes[8] = {0};
    bool marked = text[at] == '+' || is_area(text, at, length);
    i64 i = at + (text[at] == '+');
    for (; i < length && groups < 7; i++) {
        if (isdigit((u8)text[i])) {
            digits++;
            group++;
            end = i + 1;
        } else if (strchr(" -./()", text[i]) && text[i]) {
            bool twice = i > at && strchr(" -./()", text[i - 1]) && text[i] != '(' && text[i - 1] != ')';
            if (twice)
                break;
            sizes[groups] = group;
            groups += group > 0;
            group = 0;
        } else {
            break;
        }
    }
    sizes[groups] = group;
    groups += group > 0;
    bool local = groups == 3 && sizes[0] == 3 && sizes[1] == 3 && sizes[2] == 4;
    bool cut = end < length && isalnum((u8)text[end]);
    return !cut && digits <= 15 && ((marked && digits >= 7 && groups >= 2) || (text[at] == '+' && digits >= 8) || local)
               ? end
               : 0;
}

static bool begins_number(const char *text, i64 at)
{
    bool digit = isdigit((u8)text[at]), mark = text[at] == '+' || text[at] == '(';
    return (digit || mark) && (at == 0 || !(isalnum((u8)text[at - 1]) || strchr(".-/+", text[at - 1])));
}

i64 personal_mask(struct buffer *out, const char *text, i64 length)
{
    i64 found = 0, done = 0;
    for (i64 at = 0; at < length; at++) {
        const char *name = NULL;
        i64 begin = at, end = 0;
        if (text[at] == '@' && (end = email_at(text, at, length, done, &begin)) > 0)
            name = "<email>";
        else if (begins_number(text, at) && (end = address_at(text, at, length)) > 0)
            name = "<ip>";
        else if (begins_number(text, at) && (end = phone_at(text, at, length)) > 0)
            name = "<phone>";
        if (!name)
            continue;
        if (out) {
            buffer_append(out, text + done, begin - done);
            buffer_append(out, name, (i64)strlen(name));
        }
        found++;
        done = end;
        at = end - 1;
    }
    if (out)
        buffer_append(out, text + done, length - done);
    return found;
}
