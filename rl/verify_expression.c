/* Equality of formulas and of lists of them. A formula is parsed and evaluated with random numbers
 * in place of its variables (Schwartz 1980, Zippel 1979): modulo the prime 2^61 - 1 while it is
 * rational, which decides exactly, and as a complex number otherwise. Variables are real and of
 * either sign: |x| is not x, and ln(x^2) is not 2 ln x. This takes a bounded time, where a computer algebra system may
 * not end on 9^(9^9). */
#include "rl/verify_inside.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>

enum { LENGTH_MOST = 1000, DEPTH_MOST = 40, PARTS_MOST = 64, FACTORIAL_MOST = 3000, DENOMINATOR_MOST = 99 };
/* Draws of variables: the first two positive, the third negative, the others of either sign. From the
 * eleventh on their size is from 0.01 to a million, since |x-100| is 100-x for small ones. */
enum { POSITIVE_DRAWS = 2, NEAR_DRAWS = 10, DRAWS = 40 };

/* ---- Numbers modulo 2^61 - 1 ---- */

static const u64 prime = ((u64)1 << 61) - 1;

static u64 modular_product(u64 a, u64 b)
{
    return (u64)((unsigned __int128)a * b % prime);
}

static u64 modular_power(u64 base, u64 exponent)
{
    u64 out = 1;
    for (; exponent; exponent >>= 1, base = modular_product(base, base))
        if (exponent & 1)
            out = modular_product(out, base);
    return out;
}

/* ---- Values ---- */

struct formula_value {
    double complex number; /* may overflow if `rational` */
    double largest;        /* largest summand: differences far below it are rounding */
    u64 residue;           /* if `rational` */
    bool rational;         /* a quotient of polynomials with rational coefficients */
    bool constant;         /* no variables */
    bool rounded;          /* has decimals */
    bool unreal;           /* a step has no real value, such as the root of a negative number */
    bool imaginary;        /* contains i */
    bool unlogged;         /* has the logarithm of a negative number, not below exp */
};
struct formula {
    struct text_span rest;
    i64 depth, bars; /* bars: open "|" */
    u64 draw;        /* selects the numbers in place of variables */
    bool failed;
    bool decimal; /* \log without a base is that of 10, not the natural one */
};

static struct formula_value value_of_integer(i64 n)
{
    u64 residue = (u64)(n < 0 ? (i64)prime + n : n);
    return (struct formula_value){.number = (double)n, .residue = residue, .rational = true, .constant = true};
}

static struct formula_value value_of_real(double complex number)
{
    return (struct formula_value){.number = number, .constant = true};
}

static struct formula_value combine(struct formula_value a, struct formula_value b, char operation)
{
    struct formula_value out = {.rational = a.rational && b.rational,
                                .constant = a.constant && b.constant,
                                .rounded = a.rounded || b.rounded,
                                .unreal = a.unreal || b.unreal,
                                .imaginary = a.imaginary || b.imaginary,
                                .unlogged = a.unlogged || b.unlogged,
                                .largest = fmax(a.largest, b.largest)};
    switch (operation) {
    case '+':
        out.largest = fmax(out.largest, fmax(cabs(a.number), cabs(b.number)));
        out.number = a.number + b.number;
        out.residue = (a.residue + b.residue) % prime;
        break;
    case '-':
        out.largest = fmax(out.largest, fmax(cabs(a.number), cabs(b.number)));
        out.number = a.number - b.number;
        out.residue = (a.residue + prime - b.residue) % prime;
        break;
    case '*':
        out.number = a.number * b.number;
        out.residue = modular_product(a.residue, b.residue);
        break;
    default:
        out.number = a.number / b.number;
        out.residue = modular_product(a.residue, modular_power(b.residue, prime - 2));
        if (b.rational && b.residue == 0) {
            out.number = NAN;
            out.rational = false;
        }
    }
    return out;
}

static bool is_integer(const struct formula_value *v)
{
    double real = creal(v->number);
    return v->rational && v->constant && cimag(v->number) == 0 && fabs(real) < 9e15 && real == rint(real);
}

static bool is_real(double complex x)
{
    return cimag(x) == 0;
}

/* The result of a function of real numbers that left them. */
static void note_unreal(struct formula_value *out, bool real_before)
{
    out->unreal |= real_before && fabs(cimag(out->number)) > 1e-12 * cabs(out->number);
}

/* A power of a negative number whose exponent is a quotient with an odd denominator: the real one, as in
 * (-8)^{1/3} = -2. The principal value otherwise. */
static double complex power_of(double complex base, double complex exponent)
{
    double e = creal(exponent);
    if (!is_real(base) || !is_real(exponent) || creal(base) >= 0)
        return cpow(base, exponent);
    for (int q = 1; q <= DENOMINATOR_MOST; q += 2)
        if (fabs(e * q - rint(e * q)) < 1e-12 * q)
            return (fmod(rint(e * q), 2) == 0 ? 1 : -1) * pow(-creal(base), e);
    return cpow(base, exponent);
}

static struct formula_value raise(struct formula_value base, struct formula_value exponent)
{
    struct formula_value out = combine(base, exponent, '*');
    out.number = power_of(base.number, exponent.number);
    out.unlogged = base.unlogged;
    note_unreal(&out, is_real(base.number) && is_real(exponent.number));
    out.rational = base.rational && is_integer(&exponent);
    if (out.rational) {
        double n = fabs(creal(exponent.number));
        out.number = n == 0 ? 1 : n == 1 ? base.number : n == 2 ? base.number * base.number : power_of(base.number, n);
        out.residue = modular_power(base.residue, (u64)n);
        if (creal(exponent.number) < 0)
            out = combine(value_of_integer(1), out, '/');
    }
    return out;
}

/* Square roots of squares of integers stay rational. */
static struct formula_value square_root(struct formula_value v)
{
    double root = rint(sqrt(fmax(0, creal(v.number))));
    if (is_integer(&v) && root * root == creal(v.number))
        return value_of_integer((i64)root);
    bool real = is_real(v.number);
    v.number = csqrt(v.number);
    v.rational = false;
    note_unreal(&v, real);
    return v;
}

/* ---- Parsing ---- */

static struct formula_value parse_whole(struct formula *f);
static struct formula_value parse_factor(struct formula *f);

static struct formula_value fail(struct formula *f)
{
    f->failed = true;
    f->rest.length = 0;
    return value_of_integer(0);
}

static bool accept(struct formula *f, const char *word)
{
    bool found = begins(f->rest, word);
    if (found)
        f->rest = part(f->rest, (i64)strlen(word), f->rest.length);
    return found;
}

static char next_of(const struct formula *f)
{
    return f->rest.length ? f->rest.at[0] : 0;
}

static struct formula_value parse_group(struct formula *f, const char *close)
{
    struct formula_value out = ++f->depth > DEPTH_MOST ? fail(f) : parse_whole(f);
    f->depth--;
    return accept(f, close) ? out : fail(f);
}

/* True for a comma before three digits. Those of lists have been split off before. */
static bool separates_thousands(struct text_span s)
{
    i64 n = 1;
    while (n < s.length && n < 5 && isdigit((u8)s.at[n]))
        n++;
    return begins(s, ",") && n == 4;
}

/* The period of digits that end in "...", such as 0.1666...; 0: they have none. */
static i64 period_of(const char *text, i64 digits)
{
    i64 decimals = digits - 1 - (strchr(text, '.') - text);
    for (i64 period = 1; period <= decimals / 2; period++) {
        i64 times = 1;
        while ((times + 1) * period <= decimals &&
               memcmp(text + digits - period, text + digits - (times + 1) * period, (size_t)period) == 0)
            times++;
        if (times >= (period == 1 ? 3 : 2))
            return period;
    }
    return 0;
}

/* Reads which digits of decimals repeat, as in 0.1\overline{6}, 0.1\dot{6} and 0.1666..., and appends a
 * space and these digits to the text. Returns their number; 0: none do. */
static i64 repeating_digits(char *text, i64 digits, struct formula *f)
{
    static const char *const bars[] = {"\\overline", "\\bar", "\\dot"}, *const dots[] = {"\\ldots", "\\dots", "\\cdots",
                                                                                         "...", ".."};
    i64 count = 0, room = NUMBER_MOST - 2 - digits;
    for (i64 i = 0; i < COUNT_OF(dots); i++)
        if (accept(f, dots[i])) {
            count = period_of(text, digits);
            if (count == 0 || count > room)
                return fail(f), 0;
            memmove(text + digits + 1 - count, text + digits - count, (size_t)count);
            text[digits - count] = ' ';
            text[digits + 1] = 0;
            return count;
        }
    bool marked = true;
    text[digits] = ' ';
    while (marked && count < room) {
        bool group = false;
        marked = false;
        for (i64 i = 0; i < COUNT_OF(bars) && !marked; i++)
            marked = accept(f, bars[i]);
        group = marked && accept(f, "{");
        marked |= count > 0; /* 0.\dot{1}4285\dot{7} */
        if (!marked || !isdigit((u8)next_of(f)))
            break;
        do {
            text[digits + ++count] = next_of(f);
            f->rest = part(f->rest, 1, f->rest.length);
        } while (group && count < room && isdigit((u8)next_of(f)));
        if (group && !accept(f, "}"))
            return fail(f), 0;
    }
    text[digits + (count ? count + 1 : 0)] = 0;
    return count;
}

/* The value of "0.1 6": the digits behind the space repeat. */
static struct formula_value repeating_value(const char *text)
{
    struct formula_value out = value_of_integer(0), ten = value_of_integer(10), scale = value_of_integer(1),
                         period = value_of_integer(0), nines = value_of_integer(1);
    bool decimals = false, repeats = false;
    for (const char *at = text; *at; at++) {
        decimals |= *at == '.';
        repeats |= *at == ' ';
        if (!isdigit((u8)*at))
            continue;
        struct formula_value *sum = repeats ? &period : &out, digit = value_of_integer(*at - '0');
        *sum = combine(combine(*sum, ten, '*'), digit, '+');
        if (repeats)
            nines = combine(nines, ten, '*');
        else if (decimals)
            scale = combine(scale, ten, '*');
    }
    period = combine(period, combine(nines, value_of_integer(1), '-'), '/');
    return combine(combine(out, period, '+'), scale, '/');
}

/* Digits with decimals; "2 2/3" is a mixed number, and so is 2\frac{2}{3}. */
static struct formula_value parse_digits(struct formula *f)
{
    struct formula_value out = value_of_integer(0), ten = value_of_integer(10), scale = value_of_integer(1);
    i64 digits = 0, decimals = -1;
    char text[NUMBER_MOST];
    for (; digits < NUMBER_MOST - 1; f->rest = part(f->rest, 1, f->rest.length)) {
        if (digits && decimals < 0 && separates_thousands(f->rest))
            continue;
        if (!isdigit((u8)next_of(f)) && (next_of(f) != '.' || decimals >= 0))
            break;
        text[digits++] = next_of(f);
        if (next_of(f) == '.') {
            decimals = 0;
            continue;
        }
        out = combine(combine(out, ten, '*'), value_of_integer(next_of(f) - '0'), '+');
        if (decimals >= 0) {
            scale = combine(scale, ten, '*');
            decimals++;
        }
    }
    if (digits == 0 || digits >= NUMBER_MOST - 1)
        return fail(f);
    text[digits] = 0;
    i64 repeated = decimals < 0 ? 0 : repeating_digits(text, digits, f);
    if (digits == 1 && decimals == 0 && !repeated)
        return fail(f);
    if (repeated)
        return repeating_value(text);
    out = combine(out, scale, '/');
    out.number = strtod(text, NULL);
    out.rounded = decimals > 0;
    return out;
}

/* A variable stands for a random number of 0.5 to 2.5, or of -2.5 to -0.5; in the far draws for one of
 * 0.01 to a million of either sign. Its name includes its index. */
static struct formula_value parse_variable(struct formula *f, i64 length)
{
    struct text_span name = part(f->rest, 0, length);
    f->rest = part(f->rest, length, f->rest.length);
    if (same(name, span_of("e")))
        return value_of_real(M_E);
    if (same(name, span_of("i")))
        return (struct formula_value){.number = I, .constant = true, .imaginary = true};
    if (accept(f, "_")) {
        if (next_of(f) == '{' && braces(f->rest).length < 0)
            return fail(f);
        i64 n = next_of(f) == '{' ? braces(f->rest).length + 2 : min_i64(1, f->rest.length);
        f->rest = part(f->rest, n, f->rest.length);
        name.length += 1 + n;
    }
    u64 hash = hash_bytes(name.at, name.length, f->draw);
    double drawn = ldexp((double)(hash >> 11), -53);
    double number = f->draw <= NEAR_DRAWS ? 0.5 + 2 * drawn : pow(10, 8 * drawn - 2);
    bool negative = f->draw > POSITIVE_DRAWS && (f->draw == POSITIVE_DRAWS + 1 || (hash & 1));
    return (struct formula_value){.number = negative ? -number : number, .residue = hash % prime, .rational = true};
}

/* Takes an argument of \frac, \sqrt or ^: {...} or one character. */
static struct formula_value parse_argument(struct formula *f)
{
    accept(f, " "); /* \frac 1 2, \log_2 8 */
    if (accept(f, "{"))
        return parse_group(f, "}");
    if (isalpha((u8)next_of(f)))
        return parse_variable(f, 1);
    if (!isdigit((u8)next_of(f)))
        return parse_factor(f);
    struct formula_value out = value_of_integer(next_of(f) - '0');
    f->rest = part(f->rest, 1, f->rest.length);
    return out;
}

static struct formula_value parse_fraction(struct formula *f)
{
    struct formula_value above = parse_argument(f), below = parse_argument(f);
    return combine(above, below, '/');
}

static struct formula_value parse_number(struct formula *f)
{
    struct formula_value whole = parse_digits(f), above, below;
    struct formula before = *f;
    if (whole.rounded || !is_integer(&whole))
        return whole;
    if (accept(f, " ")) {
        above = parse_digits(f);
        below = accept(f, "/") ? parse_digits(f) : fail(f);
        bool proper = creal(above.number) < creal(below.number);
        return proper ? combine(whole, combine(above, below, '/'), '+') : fail(f);
    }
    if (!accept(f, "\\frac"))
        return whole;
    struct text_span arguments = f->rest;
    struct formula_value fraction = parse_fraction(f);
    arguments.length = f->rest.at - arguments.at;
    bool plain = !f->failed;
    for (i64 i = 0; i < arguments.length; i++)
        plain &= isdigit((u8)arguments.at[i]) || strchr("{}", arguments.at[i]);
    if (plain && creal(fraction.number) < 1)
        return combine(whole, fraction, '+');
    *f = before;
    return whole;
}

/* A function, one divided by it if `inverted`, and the inverse function that \sin^{-1} means. */
struct formula_function {
    const char *name;
    double complex (*call)(double complex);
    bool inverted;
    double complex (*inverse)(double complex);
};
static const struct formula_function functions[] = {
    {"arcsinh", casinh, false, NULL}, {"arccosh", cacosh, false, NULL}, {"arctanh", catanh, false, NULL},
    {"arcsin", casin, false, NULL},   {"arccos", cacos, false, NULL},   {"arctan", catan, false, NULL},
    {"sinh", csinh, false, casinh},   {"cosh", ccosh, false, cacosh},   {"tanh", ctanh, false, catanh},
    {"coth", ctanh, true, NULL},      {"sech", ccosh, true, NULL},      {"csch", csinh, true, NULL},
    {"sin", csin, false, casin},      {"cos", ccos, false, cacos},      {"tan", ctan, false, catan},
    {"cot", ctan, true, NULL},        {"sec", ccos, true, NULL},        {"csc", csin, true, NULL},
    {"exp", cexp, false, clog},       {"ln", clog, false, cexp},        {"log", clog, false, NULL},
    {"lg", clog, false, NULL}};

static struct formula_value parse_call(struct formula *f, const struct formula_function *function)
{
    struct formula_value power = value_of_integer(1), base = value_of_real(M_E), x;
    bool logarithm = strcmp(function->name, "log") == 0;
    if (strcmp(function->name, "lg") == 0 || (logarithm && f->decimal))
        base = value_of_integer(10);
    if (logarithm && accept(f, "_"))
        base = parse_argument(f);
    if (accept(f, "^"))
        power = parse_argument(f);
    accept(f, " ");
    x = parse_factor(f);
    while (isalpha((u8)next_of(f)) || begins(f->rest, "\\pi")) /* \sin 2x */
        x = combine(x, parse_factor(f), '*');
    bool real = is_real(x.number), negative = real && creal(x.number) < 0,
         inverse = creal(power.number) == -1 && !power.imaginary;
    if (inverse && !function->inverse)
        return fail(f);
    x.number = inverse ? function->inverse(x.number) : function->call(x.number);
    if (function->inverted)
        x.number = 1 / x.number;
    if (function->call == clog && creal(base.number) != M_E)
        x.number = is_real(base.number) && creal(base.number) <= 0 ? NAN : x.number / clog(base.number);
    x.rational = false;
    x.constant &= base.constant;
    note_unreal(&x, real);
    if (function->call == cexp)
        x.unlogged = false;
    else if (function->call == clog && !inverse)
        x.unlogged |= negative;
    return inverse ? x : raise(x, power);
}

static struct formula_value binomial(struct formula *f, struct formula_value n, struct formula_value k)
{
    struct formula_value out = value_of_integer(1), divisor = value_of_integer(1);
    double most = creal(k.number);
    double complex number = 1;
    if (!n.rational || (n.constant && !is_integer(&n)) || !is_integer(&k) || most < 0 || most > FACTORIAL_MOST)
        return fail(f);
    for (i64 i = 0; i < most; i++) { /* times (n - i) / (i + 1); one division modulo the prime, which is slow */
        out = combine(out, combine(n, value_of_integer(i), '-'), '*');
        divisor = combine(divisor, value_of_integer(i + 1), '*');
        number = number * (n.number - (double)i) / (double)(i + 1);
    }
    out = combine(out, divisor, '/');
    out.number = most < 60 && n.constant ? rint(creal(number)) : number;
    return out;
}

static struct formula_value parse_binomial(struct formula *f)
{
    struct formula_value n = parse_argument(f);
    return binomial(f, n, parse_argument(f));
}

/* A number that a function of real numbers has rounded to an integer. */
static struct formula_value parse_rounding(struct formula *f, const char *close, double (*round)(double))
{
    struct formula_value inside = parse_group(f, close);
    if (!is_real(inside.number))
        return fail(f);
    double nearest = rint(creal(inside.number)), distance = fabs(creal(inside.number) - nearest);
    double number = distance < 1e-11 * fmax(1, fabs(nearest)) ? nearest : round(creal(inside.number));
    if (inside.constant && fabs(number) < 9e15)
        return value_of_integer((i64)number);
    inside.number = number;
    inside.rational = false;
    return inside;
}

static struct formula_value factorial(struct formula *f, struct formula_value of)
{
    struct formula_value out = value_of_integer(1);
    double n = creal(of.number);
    if (!of.constant && is_real(of.number)) { /* (n+1)!/n!, by the gamma function */
        of.number = tgamma(n + 1);
        of.rational = false;
        return of;
    }
    if (!is_integer(&of) || n < 0 || n > FACTORIAL_MOST)
        return fail(f);
    for (i64 i = 2; i <= n; i++)
        out = combine(out, value_of_integer(i), '*');
    return out;
}

static struct formula_value parse_word(struct formula *f, bool command)
{
    static const char *const greek[] = {"alpha", "beta",  "gamma", "delta", "epsilon", "theta", "lambda", "mu",   "nu",
                                        "rho",   "sigma", "tau",   "phi",   "varphi",  "psi",   "omega",  "infty"};
    i64 n = 0;
    while (n < f->rest.length && isalpha((u8)f->rest.at[n]))
        n++;
    struct text_span word = part(f->rest, 0, n);
    for (i64 i = 0; i < COUNT_OF(functions); i++)
        if ((command || same(word, span_of(functions[i].name))) && accept(f, functions[i].name))
            return parse_call(f, &functions[i]);
    if (accept(f, "pi") || accept(f, "\xcf\x80"))
        return value_of_real(M_PI);
    if (command && accept(f, "frac"))
        return parse_fraction(f);
    if (command && accept(f, "binom"))
        return parse_binomial(f);
    if (command && accept(f, "lfloor"))
        return parse_rounding(f, "\\rfloor", floor);
    if (command && accept(f, "lceil"))
        return parse_rounding(f, "\\rceil", ceil);
    if (accept(f, "sqrt")) {
        struct formula_value index = accept(f, "[") ? parse_group(f, "]") : value_of_integer(2);
        struct formula_value inside = parse_argument(f);
        return creal(index.number) == 2 ? square_root(inside) : raise(inside, combine(value_of_integer(1), index, '/'));
    }
    for (i64 i = 0; command && i < COUNT_OF(greek); i++)
        if (begins(word, greek[i]))
            return parse_variable(f, (i64)strlen(greek[i]));
    /* Longer words are text, not products: "act" is not "cat". */
    return command || n == 0 || n > 2 ? fail(f) : parse_variable(f, 1);
}

static struct formula_value parse_absolute(struct formula *f, const char *close)
{
    f->bars++;
    struct formula_value inside = parse_group(f, close);
    f->bars--;
    if (!inside.imaginary)
        return square_root(combine(inside, inside, '*'));
    inside.number = cabs(inside.number); /* |3+4i| */
    inside.rational = inside.imaginary = false;
    return inside;
}

static struct formula_value parse_base(struct formula *f)
{
    static const char *const bars[][2] = {{"|", "|"}, {"\\lvert", "\\rvert"}, {"\\vert", "\\vert"}};
    if (isdigit((u8)next_of(f)) || next_of(f) == '.')
        return parse_number(f);
    if (accept(f, "("))
        return parse_group(f, ")");
    if (accept(f, "["))
        return parse_group(f, "]");
    if (accept(f, "{"))
        return parse_group(f, "}");
    for (i64 i = 0; i < COUNT_OF(bars); i++)
        if (accept(f, bars[i][0]))
            return parse_absolute(f, bars[i][1]);
    return parse_word(f, accept(f, "\\"));
}

static bool accept_degree(struct formula *f)
{
    return accept(f, "^\\circ") || accept(f, "^{\\circ}") || accept(f, "\\degree") || accept(f, "\xc2\xb0");
}

static struct formula_value parse_factor(struct formula *f)
{
    struct formula_value out = ++f->depth > DEPTH_MOST ? fail(f) : parse_base(f);
    while (!f->failed) {
        if (accept(f, "%")) {
            out = combine(out, value_of_integer(100), '/');
        } else if (accept(f, "!")) {
            out = factorial(f, out);
        } else if (accept_degree(f)) {
            out = combine(out, value_of_real(M_PI / 180), '*');
        } else if (accept(f, "^")) {
            struct formula_value sign = value_of_integer(accept(f, "-") ? -1 : 1);
            struct formula_value power = isdigit((u8)next_of(f)) ? parse_digits(f) : parse_argument(f);
            out = raise(out, combine(sign, power, '*'));
        } else {
            break;
        }
    }
    f->depth--;
    return out;
}

static bool accept_times(struct formula *f)
{
    return accept(f, "*") || accept(f, "\\cdot") || accept(f, "\\times") || accept(f, "\xc2\xb7") ||
           accept(f, "\xc3\x97");
}

static bool begins_factor(const struct formula *f)
{
    char next = next_of(f);
    bool ends = begins(f->rest, "\\div") || begins(f->rest, "\\rvert") || begins(f->rest, "\\rfloor") ||
                begins(f->rest, "\\rceil") || begins(f->rest, "\\choose") || (begins(f->rest, "\\vert") && f->bars);
    if (isdigit((u8)next) && f->rest.at[-1] == '!') /* 3!2! */
        return true;
    return isalpha((u8)next) || next == '(' || next == '{' || (next == '\\' && !ends) || (next == '|' && !f->bars);
}

static struct formula_value parse_product(struct formula *f)
{
    struct formula_value out = parse_factor(f);
    while (!f->failed && f->rest.length) {
        if (accept_times(f))
            out = combine(out, parse_factor(f), '*');
        else if (accept(f, "/") || accept(f, "\\div"))
            out = combine(out, parse_factor(f), '/');
        else if (begins_factor(f))
            out = combine(out, parse_factor(f), '*');
        else
            break;
    }
    return out;
}

static struct formula_value parse_sum(struct formula *f)
{
    bool minus = accept(f, "-");
    if (!minus)
        accept(f, "+");
    struct formula_value out = parse_product(f);
    if (minus)
        out = combine(value_of_integer(0), out, '-');
    while (!f->failed && (next_of(f) == '+' || next_of(f) == '-')) {
        char operation = next_of(f);
        f->rest = part(f->rest, 1, f->rest.length);
        out = combine(out, parse_product(f), operation);
    }
    return out;
}

/* A sum, or the binomial {n \choose k}. */
static struct formula_value parse_whole(struct formula *f)
{
    struct formula_value out = parse_sum(f);
    return accept(f, "\\choose") ? binomial(f, out, parse_sum(f)) : out;
}

static bool evaluate_as(struct formula_value *out, struct text_span s, u64 draw, bool decimal)
{
    struct formula f = {.rest = s, .draw = draw, .decimal = decimal}, plain = f;
    *out = parse_whole(&f);
    struct formula_value power, whole = parse_digits(&plain);
    if (accept(&plain, "e") || accept(&plain, "E")) { /* 1.5e-3; elsewhere e is Euler's number */
        power = value_of_integer(accept(&plain, "-") ? -1 : 1);
        power = combine(power, parse_digits(&plain), '*');
        if (!plain.failed && plain.rest.length == 0) {
            *out = combine(whole, raise(value_of_integer(10), power), '*');
            return out->rational;
        }
    }
    bool finite = isfinite(creal(out->number)) && isfinite(cimag(out->number));
    return !f.failed && f.rest.length == 0 && (out->rational || finite);
}

static bool evaluate(struct formula_value *out, struct text_span s, u64 draw)
{
    return evaluate_as(out, s, draw, false);
}

bool constant_value(double *value, bool *rounded, struct text_span s)
{
    struct formula_value v;
    if (s.length == 0 || s.length > LENGTH_MOST || !evaluate(&v, s, 1) || !v.constant || !is_real(v.number))
        return false;
    *value = creal(v.number);
    *rounded = v.rounded;
    return true;
}

bool is_formula(struct text_span s)
{
    struct formula_value v;
    return s.length && s.length <= LENGTH_MOST && evaluate(&v, s, 1);
}

static bool near(double complex x, double complex y)
{
    return cabs(x - y) <= 1e-11 * fmax(cabs(x), cabs(y)) + 1e-13;
}

/* True if two formulas with variables are the same at a draw: equal, or both without a real value
 * although neither contains i. So sqrt(x^3) is x sqrt(x), but 2 ln x is not ln(x^2). */
static bool equal_reals(const struct formula_value *x, const struct formula_value *y)
{
    bool neither = !x->imaginary && !y->imaginary && x->unreal && y->unreal;
    bool logged = x->imaginary || y->imaginary || x->unlogged == y->unlogged; /* ln(x/y) is not ln x-ln y */
    return neither || (logged && near(x->number, y->number));
}

/* The same at a far draw, where sums of large numbers lose digits: they differ by more than that. */
static bool equal_far(const struct formula_value *x, const struct formula_value *y)
{
    double most = fmax(cabs(x->number), cabs(y->number)), largest = fmax(x->largest, y->largest);
    return equal_reals(x, y) ||
           (x->unlogged == y->unlogged && cabs(x->number - y->number) <= 1e-4 * most + 1e-7 * largest);
}

static bool equal_formulas_as(struct text_span a, struct text_span b, bool decimal)
{
    for (u64 draw = 1; draw <= DRAWS; draw++) {
        struct formula_value x, y;
        bool defined = evaluate_as(&x, a, draw, decimal) && evaluate_as(&y, b, draw, decimal);
        if (draw > POSITIVE_DRAWS) {
            if (defined && !(draw > NEAR_DRAWS ? equal_far(&x, &y) : equal_reals(&x, &y)))
                return false;
            continue;
        }
        if (!defined)
            return false;
        if (x.rational && y.rational && x.residue == y.residue && draw == POSITIVE_DRAWS)
            return true;
        if (x.rational && y.rational && x.residue == y.residue)
            continue;
        bool real = is_real(x.number) && is_real(y.number);
        if (x.constant && y.constant && (x.rounded || y.rounded))
            return real && nearly_equal(creal(x.number), creal(y.number));
        if ((x.rational && y.rational) || !near(x.number, y.number))
            return false;
        if (x.constant && y.constant)
            return true;
    }
    return true;
}

/* \log without a base may be either: \log 100 is 2, and \log 2 is \ln 2. */
static bool equal_formulas(struct text_span a, struct text_span b)
{
    bool either = find_last(a, "\\log") || find_last(b, "\\log");
    return equal_formulas_as(a, b, false) || (either && equal_formulas_as(a, b, true));
}

/* ---- Lists, sets, tuples, intervals, unions, relations ---- */

static bool equal_at(struct text_span a, struct text_span b, i64 depth);

i64 find_outside(struct text_span s, const char *separator, i64 from)
{
    i64 depth = 0;
    for (i64 i = 0; i < s.length; i++) {
        if (depth == 0 && i >= from && begins(part(s, i, s.length), separator))
            return i;
        depth += strchr("([{", s.at[i]) ? 1 : strchr(")]}", s.at[i]) ? -1 : 0;
    }
    return -1;
}

struct value_list {
    struct text_span parts[PARTS_MOST];
    i64 count;
    bool ordered;
    char open, close; /* brackets; 0: none */
};

static void split(struct value_list *out, struct text_span s, const char *separator)
{
    i64 from = 0;
    *out = (struct value_list){0};
    for (i64 at; out->count < PARTS_MOST - 1 && (at = find_outside(s, separator, from)) >= 0;
         from = at + (i64)strlen(separator))
        out->parts[out->count++] = part(s, from, at);
    out->parts[out->count++] = part(s, from, s.length);
}

/* True if the bracket that opens at the first character closes at the last one. */
static bool is_enclosed(struct text_span s)
{
    i64 depth = 0;
    if (s.length < 2 || !strchr("([{", s.at[0]) || !strchr(")]}", s.at[s.length - 1]))
        return false;
    for (i64 i = 0; i < s.length; i++) {
        depth += strchr("([{", s.at[i]) ? 1 : strchr(")]}", s.at[i]) ? -1 : 0;
        if (depth == 0)
            return i == s.length - 1;
    }
    return false;
}

/* "1,2", "1;2" and "\{1,2\}" are lists without an order, (1,2) and [1,2] with one. */
static void read_list(struct value_list *out, struct text_span s)
{
    const char *comma = s.length && memchr(s.at, ';', (size_t)s.length) ? ";" : ",";
    *out = (struct value_list){.count = 1, .parts = {s}};
    bool set = begins(s, "\\{") && s.length >= 4 && begins(part(s, s.length - 2, s.length), "\\}");
    if (set && is_enclosed(part(s, 1, s.length))) {
        split(out, part(s, 2, s.length - 2), comma);
        out->open = '{';
    } else if (is_enclosed(s) && find_outside(part(s, 1, s.length - 1), comma, 0) >= 0) {
        split(out, part(s, 1, s.length - 1), comma);
        out->ordered = true;
        out->open = s.at[0];
        out->close = s.at[s.length - 1];
    } else if (*comma == ';' || !in_thousands(s)) {
        split(out, s, comma);
    }
}

static bool equal_lists(const struct value_list *a, const struct value_list *b, i64 depth)
{
    bool used[PARTS_MOST] = {false};
    if (a->count != b->count)
        return false;
    for (i64 i = 0; i < a->count; i++) {
        i64 at = a->ordered ? i : 0, end = a->ordered ? i + 1 : b->count;
        while (at < end && (used[at] || !equal_at(a->parts[i], b->parts[at], depth + 1)))
            at++;
        if (at == end)
            return false;
        used[at] = true;
    }
    return true;
}

/* The sides of "a=b"; false if it is no equation. */
static bool sides_of(struct text_span sides[2], struct text_span s)
{
    i64 at = find_outside(s, "=", 0);
    if (at <= 0 || at + 1 >= s.length)
        return false;
    sides[0] = part(s, 0, at);
    sides[1] = part(s, at + 1, s.length);
    return find_outside(sides[1], "=", 0) < 0;
}

/* True if an equation states a value, x=5. Such a one must be given as it is: 2x=10 is not solved. */
static bool states_value(struct text_span s, const struct text_span sides[2])
{
    struct formula_value v;
    return name_length(s) > 0 && evaluate(&v, sides[1], 1) && v.constant;
}

/* True if two equations differ by a constant factor, as y=2x+1 and 2y-4x=2 do. */
static bool equal_equations(struct text_span a, struct text_span b)
{
    struct text_span left[2], right[2];
    double complex factor = 0;
    u64 residue = 0;
    if (!sides_of(left, a) || !sides_of(right, b) || states_value(a, left) || states_value(b, right))
        return false;
    for (u64 draw = 1; draw <= NEAR_DRAWS; draw++) {
        struct formula_value v[4];
        bool defined = true, real = true;
        for (int i = 0; i < 4; i++) {
            defined = defined && evaluate(&v[i], i < 2 ? left[i] : right[i - 2], draw);
            real = real && defined && !v[i].unreal;
        }
        if (!defined || !real) {
            if (draw <= POSITIVE_DRAWS)
                return false;
            continue;
        }
        struct formula_value x = combine(v[0], v[1], '-'), y = combine(v[2], v[3], '-'), q = combine(x, y, '/');
        if (x.constant || y.constant || (q.rational ? x.residue == 0 || y.residue == 0 : cabs(x.number) < 1e-9))
            return false;
        if (draw > 1 && (q.rational ? q.residue != residue : cabs(q.number - factor) > 1e-8 * cabs(factor)))
            return false;
        residue = q.residue;
        factor = q.number;
    }
    return true;
}

/* "a=b" equals "b=a", and x<1 equals 1>x. */
static bool equal_relations(bool *found, struct text_span a, struct text_span b, i64 depth)
{
    static const char *const signs[][2] = {{"=", "="}, {"\\le", "\\ge"}, {"\\ge", "\\le"},
                                           {"<", ">"}, {">", "<"},       {"\\ne", "\\ne"}};
    for (i64 i = 0; i < COUNT_OF(signs); i++) {
        i64 at = find_outside(a, signs[i][0], 0), length = (i64)strlen(signs[i][0]);
        if (at < 0)
            continue;
        *found = true;
        struct text_span left = part(a, 0, at), right = part(a, at + length, a.length);
        i64 straight = find_outside(b, signs[i][0], 0), turned = find_outside(b, signs[i][1], 0);
        if (straight >= 0 && equal_at(left, part(b, 0, straight), depth + 1) &&
            equal_at(right, part(b, straight + length, b.length), depth + 1))
            return true;
        return turned >= 0 && equal_at(right, part(b, 0, turned), depth + 1) &&
               equal_at(left, part(b, turned + length, b.length), depth + 1);
    }
    return false;
}

/* Replaces each \pm in the text by both signs: "-5,5" for "\pm5". */
static bool both_signs(struct buffer *out, struct text_span s)
{
    static const char *const marks[] = {"\\pm", "\xc2\xb1"};
    bool found = false;
    for (int sign = 0; sign < 2; sign++) {
        for (i64 i = 0; i < s.length; i++) {
            struct text_span rest = part(s, i, s.length);
            i64 n = begins(rest, marks[0]) ? 3 : begins(rest, marks[1]) ? 2 : 0;
            found |= n > 0;
            buffer_append(out, n ? &"+-"[sign] : rest.at, 1);
            i += n ? n - 1 : 0;
        }
        if (sign == 0)
            buffer_append(out, ",", 1);
    }
    return found;
}

/* x\in\{1,2\} and x=1,2: the same name before the same values. */
static bool same_named_values(struct text_span a, struct text_span b, i64 depth)
{
    i64 x = name_length(a), y = name_length(b), name = 0;
    while (name < x && name < y && a.at[name] == b.at[name] && !strchr("=\\", a.at[name]))
        name++;
    return name && strchr("=\\", a.at[name]) && strchr("=\\", b.at[name]) && (a.at[name] != b.at[name]) &&
           equal_at(part(a, x, a.length), part(b, y, b.length), depth + 1);
}

/* "(x,y)=(1,2)" as "x=1;y=2". False: it is no such text. */
static bool name_members(struct buffer *out, struct text_span s)
{
    struct value_list names, values;
    i64 n = name_length(s);
    if (n < 6 || s.at[0] != '(')
        return false;
    read_list(&names, part(s, 0, n - 1));
    read_list(&values, part(s, n, s.length));
    for (i64 i = 0; names.count > 1 && names.count == values.count && i < names.count; i++) {
        buffer_printf(out, "%s", i ? ";" : "");
        buffer_append(out, names.parts[i].at, names.parts[i].length);
        buffer_append(out, "=", 1);
        buffer_append(out, values.parts[i].at, values.parts[i].length);
    }
    return out->length > 0;
}

/* Values with names, in two spellings. */
static bool equal_named(struct text_span a, struct text_span b, i64 depth)
{
    struct buffer x = {0}, y = {0};
    bool ours = name_members(&x, a), theirs = name_members(&y, b);
    bool equal = ours != theirs && equal_at(ours ? (struct text_span){x.data, x.length} : a,
                                            theirs ? (struct text_span){y.data, y.length} : b, depth + 1);
    buffer_release(&x);
    buffer_release(&y);
    return equal || same_named_values(a, b, depth);
}

/* Matrices with equal entries. */
static bool equal_matrices(struct text_span a, struct text_span b, i64 depth)
{
    static const char begin[] = "\\begin{pmatrix}", end[] = "\\end{pmatrix}";
    i64 first = (i64)strlen(begin), last = (i64)strlen(end);
    if (!begins(a, begin) || !begins(b, begin) || a.length < first + last || b.length < first + last ||
        !begins(part(a, a.length - last, a.length), end) || !begins(part(b, b.length - last, b.length), end))
        return false;
    struct text_span s[2] = {part(a, first, a.length - last), part(b, first, b.length - last)};
    while (s[0].length && s[1].length) {
        i64 n[2], mark[2];
        for (int i = 0; i < 2; i++) {
            i64 row = find_outside(s[i], "\\\\", 0), cell = find_outside(s[i], "&", 0);
            bool ends = cell < 0 || (row >= 0 && row < cell);
            n[i] = !ends ? cell : row < 0 ? s[i].length : row;
            mark[i] = !ends ? 1 : row < 0 ? 0 : 2;
        }
        if (mark[0] != mark[1] || !equal_at(part(s[0], 0, n[0]), part(s[1], 0, n[1]), depth + 1))
            return false;
        for (int i = 0; i < 2; i++)
            s[i] = part(s[i], n[i] + mark[i], s[i].length);
    }
    return s[0].length == 0 && s[1].length == 0;
}

static bool equal_at(struct text_span a, struct text_span b, i64 depth)
{
    struct buffer x = {0}, y = {0};
    i64 named = name_length(a);
    if (depth > 6 || a.length == 0 || b.length == 0)
        return false;
    bool equation = find_outside(named ? b : a, "=", 0) >= 0; /* y=2x+1 beside 2x+1=y */
    if ((named == 0) != (name_length(b) == 0) && !equation)
        return equal_at(part(a, named, a.length), part(b, name_length(b), b.length), depth + 1);
    if (same(a, b) || equal_numbers(a, b) || equal_sets(a, b) || equal_matrices(a, b, depth) ||
        equal_named(a, b, depth))
        return true;
    if (find_last(a, "\\pm") || find_last(b, "\\pm") || find_last(a, "\xc2\xb1") || find_last(b, "\xc2\xb1")) {
        bool ours = both_signs(&x, a), theirs = both_signs(&y, b);
        struct text_span left = ours ? (struct text_span){x.data, x.length} : a,
                         right = theirs ? (struct text_span){y.data, y.length} : b;
        bool equal = equal_at(left, right, depth + 1);
        buffer_release(&x);
        buffer_release(&y);
        return equal;
    }
    struct value_list left, right;
    split(&left, a, "\\cup");
    split(&right, b, "\\cup");
    if (left.count > 1 || right.count > 1)
        return equal_lists(&left, &right, depth);
    read_list(&left, a);
    read_list(&right, b);
    if (left.count > 1 || right.count > 1 || left.open == '{' || right.open == '{') {
        bool same_brackets = left.open == right.open && left.close == right.close;
        bool both_sets = !left.ordered && !right.ordered && left.count > 1;
        return (same_brackets || both_sets) && equal_lists(&left, &right, depth);
    }
    bool relation = false;
    if (equal_relations(&relation, a, b, depth))
        return true;
    return relation ? equal_equations(a, b) : equal_formulas(a, b);
}

bool is_equation(struct text_span s)
{
    return find_outside(s, "=", 0) >= 0;
}

bool equal_expressions(struct text_span a, struct text_span b)
{
    return a.length <= LENGTH_MOST && b.length <= LENGTH_MOST && equal_at(a, b, 0);
}
