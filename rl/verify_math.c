#include "rl/verify_inside.h"

static bool one_of(struct text_span s, const char *const *list, i64 count)
{
    for (i64 i = 0; i < count; i++)
        if (same(s, span_of(list[i])))
            return true;
    return false;
}

/* ---- Values without formatting ---- */

struct math_value {
    struct buffer text;
    i64 unit;  /* offset of the unit; -1: none */
    bool list; /* has commas before spaces, so they do not separate thousands */
};

static struct text_span text_of(const struct math_value *v)
{
    return (struct text_span){v->text.data ? v->text.data : "", v->text.length};
}

static struct text_span amount_of(const struct math_value *v)
{
    return part(text_of(v), 0, v->unit < 0 ? v->text.length : v->unit);
}

static struct text_span unit_of(const struct math_value *v)
{
    return part(text_of(v), v->unit < 0 ? v->text.length : v->unit, v->text.length);
}

static char last_of(const struct math_value *v)
{
    return v->text.length ? v->text.data[v->text.length - 1] : 0;
}

static i64 space_at(struct text_span s)
{
    static const char *const spaces[] = {" ", "\n", "\t", "~", "\\,", "\\;", "\\:", "\\ "};
    for (i64 i = 0; i < COUNT_OF(spaces); i++)
        if (begins(s, spaces[i]))
            return (i64)strlen(spaces[i]);
    return 0;
}

/* Skips white space, but keeps it between digits: 1 1/2 is not 11/2. */
static i64 take_space(struct math_value *v, struct text_span s)
{
    i64 n = 0;
    for (i64 more; (more = space_at(part(s, n, s.length))); n += more) {
    }
    bool digit = n < s.length && isdigit((u8)s.at[n]);
    if (n && digit && isdigit((u8)last_of(v)))
        buffer_append(&v->text, " ", 1);
    v->list |= n && digit && last_of(v) == ',';
    return n;
}

/* Matches "", "^2" and "^{2}". */
static bool is_power(struct text_span s)
{
    bool group = s.length == 4 && s.at[1] == '{' && s.at[3] == '}';
    return s.length == 0 || (s.at[0] == '^' && (group || s.length == 2) && isdigit((u8)s.at[group ? 2 : 1]));
}

/* Words that change the number before them are not units. */
static bool is_unit(struct text_span s)
{
    static const char *const others[] = {"i", "j", "e", "hundred", "thousand", "million", "billion", "trillion"};
    struct text_span word = trimmed(s);
    bool named = word.length && !isdigit((u8)word.at[0]) && !memchr(word.at, '\\', (size_t)word.length);
    return named && !one_of(word, others, COUNT_OF(others));
}

/* Appends the words in {...} after \text, and notes whether
 * they are a unit. Returns the bytes consumed. */
static i64 take_words(struct math_value *v, struct text_span s)
{
    struct text_span inside = s.length && s.at[0] == '{' ? braces(s) : (struct text_span){s.at, -1};
    if (inside.length < 0)
        return 0;
    struct text_span rest = trimmed(part(s, inside.length + 2, s.length));
    v->unit = v->text.length && is_unit(inside) && is_power(rest) ? v->text.length : -1;
    for (i64 i = 0; i < inside.length; i++)
        if (!isspace((u8)inside.at[i]) && inside.at[i] != '$')
            buffer_append(&v->text, inside.at + i, 1);
    return inside.length + 2;
}

/* Handles a LaTeX command at s: "\" and letters or one other
 * character. Returns the bytes consumed. */
static i64 take_command(struct math_value *v, struct text_span s)
{
    static const char *const dress[] = {"left", "right", "displaystyle", "!", "$"};
    static const char *const words[] = {"text", "textbf", "textit", "mathrm", "mathbf"};
    static const char *const fractions[] = {"dfrac", "tfrac", "cfrac"};
    i64 n = 1;
    while (n < s.length && isalpha((u8)s.at[n]))
        n++;
    n += n == 1 && s.length > 1;
    struct text_span name = part(s, 1, n);
    if (one_of(name, words, COUNT_OF(words)))
        return n + take_words(v, part(s, n, s.length));
    if (one_of(name, fractions, COUNT_OF(fractions)))
        buffer_append(&v->text, "\\frac", 5);
    else if (same(name, span_of("%")))
        buffer_append(&v->text, "%", 1);
    else if (!one_of(name, dress, COUNT_OF(dress)))
        buffer_append(&v->text, s.at, n);
    return n;
}

/* Removes braces around one character: \frac{1}{2} becomes \frac12, {,} a comma. */
static void close_brace(struct buffer *t)
{
    i64 n = t->length;
    bool single =
        n >= 2 && t->data[n - 2] == '{' && !strchr("{}\\", t->data[n - 1]) && (n < 3 || t->data[n - 3] != '\\');
    if (single)
        t->data[n - 2] = t->data[n - 1];
    else
        buffer_append(t, "}", 1);
    t->length -= single;
    t->data[t->length] = 0;
}

static i64 take_piece(struct math_value *v, struct text_span s)
{
    static const char minus[] = "\xe2\x88\x92"; /* U+2212 */
    i64 space = take_space(v, s);
    if (space)
        return space;
    if (s.at[0] == '\\')
        return take_command(v, s);
    if (begins(s, minus))
        return buffer_append(&v->text, "-", 1), 3;
    if (s.at[0] == '}')
        close_brace(&v->text);
    else if (s.at[0] != '$')
        buffer_append(&v->text, s.at, 1);
    return 1;
}

/* Keeps bytes [begin, end). */
static void keep_range(struct buffer *t, i64 begin, i64 end)
{
    memmove(t->data, t->data + begin, (size_t)(end - begin));
    t->length = end - begin;
    t->data[t->length] = 0;
}

static void strip_wrapping(struct buffer *t)
{
    while (t->length > 1 && t->data[0] == '{' && braces((struct text_span){t->data, t->length}).length == t->length - 2)
        keep_range(t, 1, t->length - 1);
    if (t->length == 3 && t->data[0] == '(' && isalpha((u8)t->data[1]) && t->data[2] == ')')
        keep_range(t, 1, 2);
}

static void find_degrees(struct math_value *v)
{
    static const char *const degrees[] = {"^\\circ", "^{\\circ}", "\\degree", "\xc2\xb0"};
    struct text_span s = text_of(v);
    for (i64 i = 0; i < COUNT_OF(degrees); i++) {
        i64 begin = s.length - (i64)strlen(degrees[i]);
        if (begin > 0 && begins(part(s, begin, s.length), degrees[i]))
            v->unit = begin;
    }
}

/* Strips formatting: "$", spaces, \left, \right, \text{...}, \dfrac, a final full stop. */
static void strip_formatting(struct math_value *v, struct text_span s)
{
    *v = (struct math_value){.unit = -1};
    s = trimmed(s);
    if (s.length && s.at[s.length - 1] == '.')
        s.length--;
    for (i64 i = 0; i < s.length;)
        i += take_piece(v, part(s, i, s.length));
    if (v->text.length) {
        strip_wrapping(&v->text);
        find_degrees(v);
    }
}

static i64 name_length(const struct math_value *v) /* length of "x=", else 0 */
{
    struct text_span s = text_of(v);
    bool named = s.length > 2 && isalpha((u8)s.at[0]) && s.at[1] == '=' && !memchr(s.at + 2, '=', (size_t)s.length - 2);
    return named ? 2 : 0;
}

static void drop_name(struct math_value *v)
{
    i64 n = name_length(v);
    if (n)
        keep_range(&v->text, n, v->text.length);
    v->unit = v->unit > n ? v->unit - n : -1;
}

/* Compares two values. A name or a unit may be missing on one side. */
static bool equal_values(struct text_span a, struct text_span b)
{
    struct math_value x, y;
    strip_formatting(&x, a);
    strip_formatting(&y, b);
    if (!name_length(&x) || !name_length(&y)) {
        drop_name(&x);
        drop_name(&y);
    }
    bool units = unit_of(&x).length == 0 || unit_of(&y).length == 0 || same(unit_of(&x), unit_of(&y));
    bool equal = y.text.length && (same(text_of(&x), text_of(&y)) ||
                                   (units && x.list == y.list && equal_numbers(amount_of(&x), amount_of(&y))));
    buffer_release(&x.text);
    buffer_release(&y.text);
    return equal;
}

/* ---- Position of the value in an answer ---- */

bool last_boxed(struct text_span *out, struct text_span s)
{
    const char *at = find_last(s, "\\boxed{");
    if (!at)
        return false;
    *out = braces((struct text_span){at + 6, s.at + s.length - at - 6});
    return out->length >= 0;
}

/* Length in bytes of a minus sign that ends at `begin`; 0 if there is none or if it follows a
 * digit, a letter or a bracket, as a subtraction does. */
static i64 sign_before(struct text_span s, i64 begin)
{
    static const char minus[] = "\xe2\x88\x92"; /* U+2212 */
    i64 n = begin > 0 && s.at[begin - 1] == '-' ? 1 : 0;
    if (begin >= 3 && begins(part(s, begin - 3, begin), minus))
        n = 3;
    char before = n && begin > n ? s.at[begin - n - 1] : ' ';
    return isalnum((u8)before) || strchr(")]}", before) ? 0 : n;
}

/* Start of the number: skips leading dots ("x...12", "the end.12"), commas and slashes. */
static i64 skip_marks(struct text_span s, i64 begin)
{
    i64 digit = begin;
    while (!isdigit((u8)s.at[digit]))
        digit++;
    bool decimal = digit > begin && s.at[digit - 1] == '.' && (digit < 2 || s.at[digit - 2] != '.') &&
                   (digit < 2 || !isalpha((u8)s.at[digit - 2]));
    return digit - decimal;
}

static bool last_number(struct text_span *out, struct text_span s)
{
    i64 end = s.length;
    while (end && !isdigit((u8)s.at[end - 1]))
        end--;
    if (end == 0)
        return false;
    i64 begin = end;
    while (begin && (isdigit((u8)s.at[begin - 1]) || strchr(".,/", s.at[begin - 1])))
        begin--;
    begin = skip_marks(s, begin);
    struct text_span after = part(s, end, s.length);
    end += begins(after, "%") ? 1 : begins(after, "\\%") ? 2 : 0;
    *out = part(s, begin - sign_before(s, begin), end);
    return true;
}

static struct text_span line_after(const char *at, struct text_span s)
{
    i64 left = s.at + s.length - at;
    const char *newline = memchr(at, '\n', (size_t)left);
    return (struct text_span){at, newline ? newline - at : left};
}

double verify_math(struct text_span truth, struct text_span answer)
{
    struct text_span found, inside;
    const char *hashes = find_last(answer, "####");
    if (last_boxed(&inside, truth))
        truth = inside;
    if (last_boxed(&found, answer))
        return equal_values(found, truth);
    if (hashes)
        return equal_values(line_after(hashes + 4, answer), truth);
    return last_number(&found, answer) && equal_values(found, truth);
}

/* ---- gsm8k ---- */

/* Compares without "," and "$", as verl does. */
static bool equal_without_commas(struct text_span a, struct text_span b)
{
    struct buffer x = {0}, y = {0};
    buffer_append(&x, "", 0);
    buffer_append(&y, "", 0);
    for (i64 i = 0; i < a.length; i++)
        if (!strchr(",$", a.at[i]))
            buffer_append(&x, a.at + i, 1);
    for (i64 i = 0; i < b.length; i++)
        if (!strchr(",$", b.at[i]))
            buffer_append(&y, b.at + i, 1);
    bool equal = equal_values((struct text_span){x.data, x.length}, (struct text_span){y.data, y.length});
    buffer_release(&x);
    buffer_release(&y);
    return equal;
}

/* Takes the last match of "#### (\-?[0-9\.\,]+)" in the last
 * 300 characters (verl's strict gsm8k rule). */
double verify_gsm8k(struct text_span truth, struct text_span answer)
{
    i64 from = answer.length;
    for (i64 characters = 0; from > 0 && characters < 300; characters += ((u8)answer.at[from] & 0xc0) != 0x80)
        from--;
    struct text_span tail = {answer.at + from, answer.length - from}, search = tail;
    for (const char *at; (at = find_last(search, "#### ")); search.length = at - search.at) {
        struct text_span number = {at + 5, 0};
        i64 left = tail.at + tail.length - number.at;
        number.length = left > 0 && number.at[0] == '-';
        i64 sign = number.length;
        while (number.length < left &&
               (isdigit((u8)number.at[number.length]) || strchr(".,", number.at[number.length])))
            number.length++;
        if (number.length > sign)
            return equal_without_commas(number, truth);
    }
    return 0;
}
