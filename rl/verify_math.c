#include "rl/verify_inside.h"

#include <strings.h>

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

/* ---- Units ---- */

/* False for words that change the number before them, or join it to another. */
static bool is_unit_word(struct text_span word)
{
    static const char *const others[] = {"i",        "j",     "e",       "hundred", "thousand", "million",  "billion",
                                         "trillion", "dozen", "percent", "or",      "and",      "to",       "if",
                                         "when",     "for",   "pi",      "sin",     "cos",      "tan",      "ln",
                                         "log",      "exp",   "not",     "plus",    "minus",    "times",    "mod",
                                         "choose",   "base",  "until",   "where",   "with",     "factorial"};
    return word.length && !one_of(word, others, COUNT_OF(others));
}

static bool in_list(struct text_span s, const char *words) /* words between spaces */
{
    for (const char *at = words; *at; at += strcspn(at, " ") + (at[strcspn(at, " ")] != 0))
        if (same(s, (struct text_span){at, (i64)strcspn(at, " ")}))
            return true;
    return false;
}

static i64 count_letters(struct text_span s)
{
    i64 n = 0;
    while (n < s.length && isalpha((u8)s.at[n]))
        n++;
    return n;
}

/* Length of "^2", "^{2}" or "^{-1}"; 0 if s does not begin with one. */
static i64 power_at(struct text_span s)
{
    i64 group = s.length > 1 && s.at[1] == '{', n = 1 + group;
    n += n < s.length && s.at[n] == '-';
    bool power = begins(s, "^") && n < s.length && isdigit((u8)s.at[n]);
    return power && (!group || begins(part(s, n + 1, s.length), "}")) ? n + 1 + group : 0;
}

/* The content of \text{...} and the like at s. Returns the bytes of it all; 0 if there is none. */
static i64 text_at(struct text_span *inside, struct text_span s)
{
    static const char *const commands[] = {"\\text", "\\textbf", "\\textit", "\\mathrm", "\\mathbf", "\\mbox"};
    i64 n = s.length && s.at[0] == '\\' ? 1 + count_letters(part(s, 1, s.length)) : 0;
    struct text_span rest = part(s, n, s.length);
    if (!one_of(part(s, 0, n), commands, COUNT_OF(commands)) || !begins(rest, "{"))
        return 0;
    *inside = braces(rest);
    return inside->length < 0 ? 0 : n + inside->length + 2;
}

/* True if the text inside \text{...} is a unit. */
static bool is_unit(struct text_span s)
{
    s = trimmed(s);
    bool unit = s.length && !isdigit((u8)s.at[0]) && !memchr(s.at, '\\', (size_t)s.length);
    for (i64 i = 0, n; unit && i < s.length; i += max_i64(1, n)) {
        n = count_letters(part(s, i, s.length));
        unit = n == 0 || is_unit_word(part(s, i, i + n));
    }
    return unit;
}

/* True if s is empty or has nothing but units: words, bare or in \text{...}, with powers and
 * quotients. A single bare letter counts if it is the symbol of a unit. */
static bool is_unit_tail(struct text_span s)
{
    struct text_span inside;
    for (i64 i = 0, n; i < s.length; i += n) {
        struct text_span rest = part(s, i, s.length);
        n = space_at(rest);
        if (n == 0)
            n = strchr("/.$", rest.at[0]) ? 1 : begins(rest, "\\cdot") ? 5 : power_at(rest);
        if (n)
            continue;
        n = text_at(&inside, rest);
        if (n && (trimmed(inside).length == 0 || is_unit(inside)))
            continue;
        n = count_letters(rest);
        struct text_span word = part(rest, 0, n);
        if (!is_unit_word(word) || (n == 1 && !in_list(word, "m s g h L N J W V K C")))
            return false;
    }
    return true;
}

static i64 name_of(const struct math_value *v)
{
    return name_length(text_of(v));
}

/* True if a bare unit begins at s: after a space any word, directly after a number only usual ones.
 * "2 cm" has one, "2ab" has none. */
static bool begins_unit(const struct math_value *v, struct text_span s, bool after_space)
{
    i64 letters = count_letters(s);
    struct text_span amount = part(text_of(v), name_of(v), v->text.length);
    bool number = false;
    if (v->unit >= 0 || letters == 0 || !is_unit_tail(s))
        return false;
    if (!after_space && !in_list(part(s, 0, letters), "cm mm km kg mg ml mL mph day days hour hours minutes seconds "
                                                      "degrees dollars cents miles feet meters units"))
        return false;
    for (i64 i = 0; i < amount.length; i++)
        number |= isdigit((u8)amount.at[i]) || amount.at[i] == '\\';
    return number && is_formula(amount);
}

/* ---- Pieces ---- */

/* "or" and "and" are commas, but "or" between inequalities joins their sets. */
static void take_conjunction(struct math_value *v, bool either)
{
    static const char *const signs[] = {"<", ">", "\\le", "\\ge"};
    bool joins = false;
    for (i64 i = 0; i < COUNT_OF(signs); i++)
        joins |= either && find_last(text_of(v), signs[i]);
    v->list |= !joins;
    buffer_append(&v->text, joins ? "\\cup" : ",", joins ? 4 : 1);
}

/* Skips white space, but keeps it between digits: 1 1/2 is not 11/2. " or " and " and " become
 * commas. */
static i64 take_space(struct math_value *v, struct text_span s)
{
    i64 n = 0;
    for (i64 more; (more = space_at(part(s, n, s.length))); n += more) {
    }
    struct text_span rest = part(s, n, s.length);
    bool digit = n < s.length && isdigit((u8)s.at[n]);
    if (n && digit && isdigit((u8)last_of(v)))
        buffer_append(&v->text, " ", 1);
    v->list |= n && digit && last_of(v) == ',';
    if (n && v->text.length && (begins(rest, "or ") || begins(rest, "and "))) {
        take_conjunction(v, rest.at[0] == 'o');
        return n + (rest.at[0] == 'o' ? 2 : 3);
    }
    if (n && begins_unit(v, rest, true))
        v->unit = v->text.length;
    return n;
}

static i64 take_piece(struct math_value *v, struct text_span s);

/* Appends the words in \text{...}, and notes whether they are a unit. */
static void take_words(struct math_value *v, struct text_span inside, struct text_span rest)
{
    struct text_span word = trimmed(inside);
    if (v->text.length && (same(word, span_of("or")) || same(word, span_of("and")))) {
        take_conjunction(v, same(word, span_of("or")));
        return;
    }
    if (v->text.length == 0 && word.length && !memchr(word.at, '{', (size_t)word.length) &&
        (isdigit((u8)word.at[0]) || strchr("-(", word.at[0]))) {
        for (i64 i = 0; i < word.length;) /* \text{3 days} */
            i += take_piece(v, part(word, i, word.length));
        return;
    }
    if (v->unit < 0 && v->text.length && is_unit(inside) && is_unit_tail(rest))
        v->unit = v->text.length;
    for (i64 i = 0; i < inside.length; i++)
        if (!isspace((u8)inside.at[i]) && !strchr("$~", inside.at[i]))
            buffer_append(&v->text, inside.at + i, 1);
}

/* Handles a LaTeX command at s: "\" and letters or one other
 * character. Returns the bytes consumed. */
static i64 take_command(struct math_value *v, struct text_span s)
{
    static const char *const dress[] = {"left", "right", "big",          "Big", "bigl", "bigr",
                                        "Bigl", "Bigr",  "displaystyle", "!",   "$"};
    static const char *const fractions[] = {"dfrac", "tfrac", "cfrac"}, *const choices[] = {"dbinom", "tbinom"};
    struct text_span inside;
    i64 n = text_at(&inside, s);
    if (n) {
        take_words(v, inside, part(s, n, s.length));
        return n;
    }
    n = 1 + count_letters(part(s, 1, s.length));
    n += n == 1 && s.length > 1;
    struct text_span name = part(s, 1, n), rest = part(s, n, s.length);
    if (same(name, span_of("operatorname")) && begins(rest, "{") && braces(rest).length > 0) {
        inside = braces(rest); /* \operatorname{sech} is \sech */
        buffer_append(&v->text, "\\", 1);
        buffer_append(&v->text, inside.at, inside.length);
        return n + inside.length + 2;
    }
    if (one_of(name, fractions, COUNT_OF(fractions)))
        buffer_append(&v->text, "\\frac", 5);
    else if (one_of(name, choices, COUNT_OF(choices)))
        buffer_append(&v->text, "\\binom", 6);
    else if (same(name, span_of("langle")) || same(name, span_of("rangle")))
        buffer_append(&v->text, name.at[0] == 'l' ? "(" : ")", 1);
    else if (in_list(name, "leq geq neq leqslant geqslant leqq geqq"))
        buffer_append(&v->text, s.at, 3);
    else if (same(name, span_of("lbrace")) || same(name, span_of("rbrace")))
        buffer_append(&v->text, name.at[0] == 'l' ? "\\{" : "\\}", 2);
    else if (same(name, span_of("varnothing")))
        buffer_append(&v->text, "\\emptyset", 9);
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
    static const char *const signs[][2] = {
        {"\xe2\x88\x92", "-"},                           /* U+2212 */
        {"<=", "\\le"},        {"\xe2\x89\xa4", "\\le"}, /* U+2264 */
        {">=", "\\ge"},        {"\xe2\x89\xa5", "\\ge"}, /* U+2265 */
    };
    i64 space = take_space(v, s);
    if (space)
        return space;
    if (isdigit((u8)last_of(v)) && begins_unit(v, s, false))
        v->unit = v->text.length;
    if (s.at[0] == '\\')
        return take_command(v, s);
    for (i64 i = 0; i < COUNT_OF(signs); i++)
        if (begins(s, signs[i][0])) {
            buffer_append(&v->text, signs[i][1], (i64)strlen(signs[i][1]));
            return (i64)strlen(signs[i][0]);
        }
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

static void name_empty_set(struct buffer *t)
{
    struct text_span s = {t->data, t->length};
    if (!same(s, span_of("\\{\\}")) && !same(s, span_of("\xe2\x88\x85"))) /* U+2205 */
        return;
    t->length = 0;
    buffer_append(t, "\\emptyset", 9);
}

/* (\begin{array}{cc}..\end{array}) becomes \begin{pmatrix}..\end{pmatrix}. */
static void unify_array(struct buffer *t)
{
    static const char begin[] = "\\begin{array}", end[] = "\\end{array}";
    struct text_span s = {t->data, t->length};
    i64 tail = (i64)strlen(end) + 1, from = 1 + (i64)strlen(begin);
    bool wrapped = t->length > from + tail && strchr("([", t->data[0]) && strchr(")]", t->data[t->length - 1]) &&
                   begins(part(s, 1, s.length), begin) && begins(part(s, s.length - tail, s.length), end);
    if (!wrapped)
        return;
    i64 columns = t->data[from] == '{' ? braces(part(s, from, s.length)).length + 2 : 1;
    char *inside =
        columns > 1 || t->data[from] != '{'
            ? string_format("%.*s", (int)max_i64(0, t->length - tail - from - columns), t->data + from + columns)
            : NULL;
    if (!inside)
        return;
    t->length = 0;
    buffer_printf(t, "\\begin{pmatrix}%s\\end{pmatrix}", inside);
    memory_free(inside);
}

/* Matrices in brackets and in parentheses are the same, also as arrays with brackets of their own; words in \text{...}
 * may end in a full stop. */
static void unify_marks(struct buffer *t)
{
    for (i64 i = 0; i + 9 <= t->length; i++)
        if (memcmp(t->data + i, "{bmatrix}", 9) == 0)
            t->data[i + 1] = 'p';
    unify_array(t);
    if (t->length > 1 && t->data[t->length - 1] == '.' && isalpha((u8)t->data[t->length - 2]))
        t->data[--t->length] = 0;
}

static const char *const degrees[] = {"^\\circ", "^{\\circ}", "\\degree", "\xc2\xb0"};

/* Degrees at the end of a value are a unit, but for those of an angle in a function: \sin 30^\circ. */
static void find_degrees(struct math_value *v)
{
    static const char *const functions[] = {"sin", "cos", "tan", "cot", "sec", "csc"};
    struct text_span s = text_of(v);
    for (i64 i = 0; i < COUNT_OF(functions); i++)
        if (find_last(s, functions[i]))
            return;
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
        name_empty_set(&v->text);
        unify_marks(&v->text);
        find_degrees(v);
    }
}

/* Length of "(x,y)" before "=("; 0 if there is none. */
static i64 names_at(struct text_span s)
{
    i64 n = 1;
    while (n + 1 < s.length && isalpha((u8)s.at[n]) && s.at[n + 1] == ',')
        n += 2;
    bool names = begins(s, "(") && n > 1 && n < s.length && isalpha((u8)s.at[n]);
    return names && begins(part(s, n + 1, s.length), ")=(") ? n + 2 : 0;
}

i64 name_length(struct text_span s)
{
    i64 n = s.length && isalpha((u8)s.at[0]) ? 1 : names_at(s);
    if (n && begins(part(s, n, s.length), "_"))
        n += 2;
    if (n && n + 2 < s.length && s.at[n] == '(' && isalpha((u8)s.at[n + 1]) && s.at[n + 2] == ')')
        n += 3;
    if (n == 0 || n >= s.length)
        return 0;
    struct text_span rest = part(s, n, s.length);
    bool set = begins(rest, "\\in") && rest.length > 4 && strchr("([\\{", rest.at[3]);
    n += set ? 3 : 1;
    return (set || rest.at[0] == '=') && n < s.length && !memchr(s.at + n, '=', (size_t)(s.length - n)) ? n : 0;
}

static void drop_name(struct math_value *v)
{
    i64 n = name_of(v);
    if (n)
        keep_range(&v->text, n, v->text.length);
    v->unit = v->unit > n ? v->unit - n : -1;
}

/* The symbol of a unit that is written out. */
static struct text_span unit_symbol(struct text_span unit)
{
    static const char *const words[][2] = {
        {"meter", "m"},       {"metre", "m"},       {"centimeter", "cm"}, {"centimetre", "cm"}, {"kilometer", "km"},
        {"kilometre", "km"},  {"feet", "ft"},       {"foot", "ft"},       {"inche", "in"},      {"inch", "in"},
        {"millimeter", "mm"}, {"second", "s"},      {"sec", "s"},         {"minute", "min"},    {"hour", "h"},
        {"hr", "h"},          {"gram", "g"},        {"kilogram", "kg"},   {"liter", "L"},       {"litre", "L"},
        {"mile", "mi"},       {"degree", "^\\circ"}};
    for (i64 i = 0; i < COUNT_OF(degrees); i++)
        if (same(unit, span_of(degrees[i])))
            return span_of(degrees[0]);
    unit.length -= unit.length > 1 && unit.at[unit.length - 1] == 's'; /* plural */
    for (i64 i = 0; i < COUNT_OF(words); i++)
        if (same(unit, span_of(words[i][0])))
            return span_of(words[i][1]);
    return unit;
}

static bool same_unit(struct text_span a, struct text_span b)
{
    return a.length == 0 || b.length == 0 || same(unit_symbol(a), unit_symbol(b));
}

/* Commas before spaces become semicolons, so that no reader takes them for separators of
 * thousands. */
static void mark_list(struct math_value *v)
{
    for (i64 i = 0; v->list && i < v->text.length; i++)
        if (v->text.data[i] == ',')
            v->text.data[i] = ';';
}

/* True for words alone: letters, also of other scripts, that are no formula. */
static bool is_words(struct text_span s)
{
    i64 letters = 0;
    for (i64 i = 0; i < s.length; i++) {
        if (!isalpha((u8)s.at[i]) && !(s.at[i] & 0x80) && !strchr("-',", s.at[i]))
            return false;
        letters += isalpha((u8)s.at[i]) != 0;
    }
    return letters >= 3;
}

/* "No solution" and "no solution"; a letter alone keeps its case, as does a name of two, AB. */
static bool same_words(struct text_span a, struct text_span b)
{
    bool no = strncasecmp(a.at, "no", 2) == 0 && a.length == 2;
    return a.length == b.length && ((is_words(a) && is_words(b)) || no) &&
           strncasecmp(a.at, b.at, (size_t)a.length) == 0;
}

/* Length of a sign for degrees at s; 0: there is none. */
static i64 degrees_at(struct text_span s)
{
    for (i64 i = 0; i < COUNT_OF(degrees); i++)
        if (begins(s, degrees[i]))
            return (i64)strlen(degrees[i]);
    return 0;
}

static bool is_angle(const struct math_value *v)
{
    return degrees_at(unit_of(v)) > 0;
}

/* 30^\circ is \frac{\pi}{6}, and both 60^\circ, 120^\circ and 60, 120 are 120^\circ, 60^\circ. */
static bool equal_angles(const struct math_value *x, const struct math_value *y)
{
    if (is_angle(x) != is_angle(y) &&
        equal_expressions(is_angle(x) ? text_of(x) : amount_of(x), is_angle(y) ? text_of(y) : amount_of(y)))
        return true;
    struct text_span amounts[2] = {amount_of(x), amount_of(y)};
    struct buffer plain[2] = {{0}, {0}};
    for (int side = 0; side < 2; side++)
        for (i64 i = 0, n; i < amounts[side].length; i += n ? n : 1) {
            n = degrees_at(part(amounts[side], i, amounts[side].length));
            buffer_append(&plain[side], amounts[side].at + i, n ? 0 : 1);
        }
    bool equal =
        same_unit(unit_of(x), unit_of(y)) && equal_expressions((struct text_span){plain[0].data, plain[0].length},
                                                               (struct text_span){plain[1].data, plain[1].length});
    buffer_release(&plain[0]);
    buffer_release(&plain[1]);
    return equal;
}

/* Compares two values. A name or a unit may be missing on one side. */
static bool equal_values(struct text_span a, struct text_span b)
{
    struct math_value x, y;
    strip_formatting(&x, a);
    strip_formatting(&y, b);
    bool equation = is_equation(text_of(name_of(&x) ? &y : &x)); /* y=2x+1 beside 2x+1=y */
    if ((!name_of(&x) || !name_of(&y)) && !equation) {
        drop_name(&x);
        drop_name(&y);
    }
    bool equal = y.text.length && (same(text_of(&x), text_of(&y)) || same_words(text_of(&x), text_of(&y)));
    if (!equal && same_unit(unit_of(&x), unit_of(&y))) {
        mark_list(&x);
        mark_list(&y);
        equal = equal_expressions(amount_of(&x), amount_of(&y));
    }
    if (!equal && (is_angle(&x) || is_angle(&y)))
        equal = equal_angles(&x, &y);
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

/* Removes asterisks and white space at both ends. */
static struct text_span without_stars(struct text_span s)
{
    s = trimmed(s);
    while (s.length && s.at[0] == '*')
        s = trimmed(part(s, 1, s.length));
    while (s.length && s.at[s.length - 1] == '*')
        s = trimmed(part(s, 0, s.length - 1));
    return s;
}

/* The rest of the line after the last "Answer:", in any case (DAPO, arXiv 2503.14476), or the next
 * line if it is empty. */
static bool after_answer(struct text_span *out, struct text_span s)
{
    for (i64 i = s.length - 7; i >= 0; i--) {
        if (strncasecmp(s.at + i, "answer", 6) != 0 || (i > 0 && isalnum((u8)s.at[i - 1])))
            continue;
        i64 at = i + 6;
        while (at < s.length && strchr("* ", s.at[at]))
            at++;
        if (at >= s.length || s.at[at] != ':')
            continue;
        at++;
        while (at < s.length && (isspace((u8)s.at[at]) || s.at[at] == '*'))
            at++;
        *out = without_stars(line_after(s.at + at, s));
        return true;
    }
    return false;
}

/* The only number of a text with words; false if it has none or several. */
static bool only_number(struct text_span *out, struct text_span s)
{
    if (!last_number(out, s))
        return false;
    for (const char *at = s.at; at < out->at; at++)
        if (isdigit((u8)*at))
            return false;
    return true;
}

static bool is_right(struct text_span truth, struct text_span answer)
{
    struct text_span found, inside;
    const char *hashes = find_last(answer, "####");
    if (last_boxed(&inside, truth))
        truth = inside;
    if (last_boxed(&found, answer))
        return equal_values(found, truth);
    if (hashes)
        return equal_values(without_stars(line_after(hashes + 4, answer)), truth);
    if (after_answer(&found, answer))
        return equal_values(found, truth) || (only_number(&inside, found) && equal_values(inside, truth));
    return last_number(&found, answer) && equal_values(found, truth);
}

int verify_math(double *score, const struct verify_case *c)
{
    *score = is_right(c->truth, c->said);
    return 0;
}

/* ---- gsm8k ---- */

/* The number behind "####", without formatting before it: "$1,234", "**42**". False: there is none. */
static bool number_after(struct text_span *out, struct text_span s)
{
    i64 n = 0, sign, digits = 0;
    while (n < s.length && strchr(" *$\\", s.at[n]))
        n++;
    sign = n;
    n += n < s.length && strchr("+-", s.at[n]);
    n += n > sign && n < s.length && s.at[n] == '$';
    while (n < s.length && (isdigit((u8)s.at[n]) || strchr(".,", s.at[n])))
        digits += isdigit((u8)s.at[n++]) != 0;
    *out = part(s, sign, n);
    return digits > 0;
}

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

int verify_gsm8k(double *score, const struct verify_case *c)
{
    struct text_span search = c->said, number;
    bool found = false;
    for (const char *at; !found && (at = find_last(search, "####")); search.length = at - search.at)
        found = number_after(&number, line_after(at + 4, c->said));
    *score = found && equal_without_commas(number, c->truth);
    return 0;
}
