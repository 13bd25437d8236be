/* Sets of real numbers in their spellings: intervals, inequalities, \mathbb{R}, sets with a condition,
 * unions, and all of these without some points. A set is a sorted list of pieces, so two spellings of
 * a set have the same list. Bounds are constants; sets with others are compared as lists are. */
#include "rl/verify_inside.h"

#include <math.h>

enum { PIECES_MOST = 32, NESTED_MOST = 6 };

struct real_bound {
    double at;
    bool closed, rounded;
};
struct real_piece {
    struct real_bound low, high;
};
struct real_set {
    struct real_piece list[PIECES_MOST];
    i64 count;
    struct text_span variable; /* of an inequality; empty: none */
    bool is_interval;          /* written as an interval, which may be a point of the plane as well */
};

/* ---- Pieces ---- */

static bool same_place(const struct real_bound *a, const struct real_bound *b)
{
    if (isinf(a->at) || isinf(b->at))
        return a->at == b->at;
    double most = fmax(fabs(a->at), fabs(b->at));
    return a->rounded || b->rounded ? nearly_equal(a->at, b->at) : fabs(a->at - b->at) <= 1e-11 * most + 1e-13;
}

static bool is_empty(const struct real_piece *p)
{
    bool point = same_place(&p->low, &p->high);
    return point ? !p->low.closed || !p->high.closed || isinf(p->low.at) : p->low.at > p->high.at;
}

static bool add_piece(struct real_set *set, struct real_piece piece)
{
    if (is_empty(&piece))
        return true;
    if (set->count == PIECES_MOST)
        return false;
    i64 at = set->count++;
    for (; at > 0 && set->list[at - 1].low.at > piece.low.at; at--)
        set->list[at] = set->list[at - 1];
    set->list[at] = piece;
    return true;
}

/* Joins pieces that overlap or touch in a point that one of them has. */
static void join_pieces(struct real_set *set)
{
    i64 kept = 0;
    for (i64 i = 0; i < set->count; i++) {
        struct real_piece next = set->list[i], *last = kept ? &set->list[kept - 1] : NULL;
        bool touches = last && same_place(&last->high, &next.low);
        if (!last || (touches ? !last->high.closed && !next.low.closed : next.low.at > last->high.at)) {
            set->list[kept++] = next;
            continue;
        }
        if (same_place(&last->low, &next.low))
            last->low.closed |= next.low.closed;
        if (same_place(&last->high, &next.high))
            last->high.closed |= next.high.closed;
        else if (next.high.at > last->high.at)
            last->high = next.high;
    }
    set->count = kept;
}

static bool unite(struct real_set *set, const struct real_set *other)
{
    bool fits = true;
    for (i64 i = 0; i < other->count; i++)
        fits = fits && add_piece(set, other->list[i]);
    join_pieces(set);
    return fits;
}

static bool intersect(struct real_set *set, const struct real_set *other)
{
    struct real_set out = {0};
    bool fits = true;
    for (i64 i = 0; i < set->count; i++)
        for (i64 k = 0; k < other->count; k++) {
            const struct real_piece *a = &set->list[i], *b = &other->list[k];
            struct real_piece both = {a->low.at > b->low.at ? a->low : b->low,
                                      a->high.at < b->high.at ? a->high : b->high};
            if (same_place(&a->low, &b->low))
                both.low.closed = a->low.closed && b->low.closed;
            if (same_place(&a->high, &b->high))
                both.high.closed = a->high.closed && b->high.closed;
            fits = fits && add_piece(&out, both);
        }
    memcpy(set->list, out.list, sizeof out.list);
    set->count = out.count;
    return fits;
}

static struct real_set all_reals(void)
{
    struct real_set all = {.count = 1};
    all.list[0] = (struct real_piece){{.at = -INFINITY}, {.at = INFINITY}};
    return all;
}

static bool remove_point(struct real_set *set, struct real_bound point)
{
    struct real_set others = {0};
    point.closed = false;
    return add_piece(&others, (struct real_piece){{.at = -INFINITY}, point}) &&
           add_piece(&others, (struct real_piece){point, {.at = INFINITY}}) && intersect(set, &others);
}

/* ---- Reading ---- */

static bool read_set(struct real_set *out, struct text_span s, i64 depth);

static bool read_bound(struct real_bound *out, struct text_span s)
{
    i64 sign = s.length && strchr("+-", s.at[0]) ? 1 : 0;
    struct text_span size = part(s, sign, s.length);
    *out = (struct real_bound){0};
    if (!same(size, span_of("\\infty")) && !same(size, span_of("\xe2\x88\x9e"))) /* U+221E */
        return constant_value(&out->at, &out->rounded, s);
    out->at = sign && s.at[0] == '-' ? -INFINITY : INFINITY;
    return true;
}

/* A letter, with an index or without, or the name of a Greek one. */
static i64 variable_length(struct text_span s)
{
    static const char *const greek[] = {"\\theta", "\\alpha",  "\\beta",  "\\lambda", "\\mu",
                                        "\\phi",   "\\varphi", "\\omega", "\\gamma",  "\\delta"};
    for (i64 i = 0; i < COUNT_OF(greek); i++)
        if (begins(s, greek[i]))
            return (i64)strlen(greek[i]);
    i64 n = s.length && isalpha((u8)s.at[0]) && s.at[0] != 'e' && s.at[0] != 'i' ? 1 : 0;
    return n && s.length > 2 && s.at[1] == '_' ? 3 : n;
}

static bool is_variable(struct text_span s)
{
    return s.length && variable_length(s) == s.length;
}

static bool read_interval(struct real_set *out, struct text_span s)
{
    if (s.length < 5 || !strchr("([", s.at[0]) || !strchr(")]", s.at[s.length - 1]))
        return false;
    struct text_span inside = part(s, 1, s.length - 1);
    i64 at = find_outside(inside, ",", 0), other = find_outside(inside, ";", 0);
    at = at < 0 ? other : at;
    struct real_piece piece;
    if (at < 0 || !read_bound(&piece.low, part(inside, 0, at)) ||
        !read_bound(&piece.high, part(inside, at + 1, inside.length)))
        return false;
    piece.low.closed = s.at[0] == '[' && !isinf(piece.low.at);
    piece.high.closed = s.at[s.length - 1] == ']' && !isinf(piece.high.at);
    out->is_interval = true;
    return piece.low.at < piece.high.at && add_piece(out, piece);
}

/* A sign of an inequality: which side is less, and whether the bound belongs to the set. */
struct order_sign {
    const char *text;
    bool less, closed, unequal;
};
static const struct order_sign signs[] = {{"\\le", true, true, false},  {"\\ge", false, true, false},
                                          {"<", true, false, false},    {">", false, false, false},
                                          {"\\ne", false, false, true}, {"=", false, true, true}};

static const struct order_sign *first_sign(i64 *at, struct text_span s)
{
    const struct order_sign *found = NULL;
    for (i64 i = 0; i < COUNT_OF(signs); i++) {
        i64 place = find_outside(s, signs[i].text, 0);
        if (place < 0 || (found && place >= *at))
            continue;
        found = &signs[i];
        *at = place;
    }
    return found;
}

/* Keeps of the set what is below (or above) a bound, or all but it, or it alone. */
static bool take_bound(struct real_set *out, const struct order_sign *sign, bool below, struct real_bound bound)
{
    struct real_set half = {0};
    if (sign->unequal && !sign->closed)
        return remove_point(out, bound);
    bound.closed = sign->closed && !isinf(bound.at);
    struct real_piece piece = {{.at = -INFINITY}, {.at = INFINITY}};
    if (below || sign->unequal)
        piece.high = bound;
    if (!below || sign->unequal)
        piece.low = bound;
    return add_piece(&half, piece) && intersect(out, &half);
}

/* x<A, A<x, A<x<B, x\ne A, x=A */
static bool read_relation(struct real_set *out, struct text_span s)
{
    i64 at = 0, next = 0;
    const struct order_sign *sign = first_sign(&at, s), *second;
    struct real_bound bound;
    if (!sign)
        return false;
    struct text_span left = part(s, 0, at), rest = part(s, at + (i64)strlen(sign->text), s.length);
    second = first_sign(&next, rest);
    struct text_span middle = second ? part(rest, 0, next) : rest;
    bool turned = is_variable(left);
    out->variable = turned ? left : middle;
    bool known = is_variable(out->variable) && !(turned && second) && read_bound(&bound, turned ? middle : left);
    struct real_set all = all_reals();
    memcpy(out->list, all.list, sizeof all.list);
    out->count = all.count;
    if (!known || !take_bound(out, sign, turned == sign->less, bound))
        return false;
    if (!second)
        return true;
    return !sign->unequal && second->less == sign->less && !second->unequal &&
           read_bound(&bound, part(rest, next + (i64)strlen(second->text), rest.length)) &&
           take_bound(out, second, second->less, bound);
}

/* \{1,2\} without its points, or one point. */
static bool read_without(struct real_set *out, struct text_span points)
{
    struct real_bound bound;
    bool set = begins(points, "\\{") && points.length > 4;
    struct text_span rest = set ? part(points, 2, points.length - 2) : points;
    while (rest.length) {
        i64 n = 0;
        while (n < rest.length && !strchr(",;", rest.at[n]))
            n++;
        if (!read_bound(&bound, part(rest, 0, n)) || isinf(bound.at) || !remove_point(out, bound))
            return false;
        rest = part(rest, min_i64(n + 1, rest.length), rest.length);
    }
    return true;
}

static bool is_reals(struct text_span s)
{
    static const char *const names[] = {"\\mathbbR",      "\\R",      "\xe2\x84\x9d", /* U+211D */
                                        "allrealnumbers", "allreals", "allrealnumber", "realnumbers"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (same(s, span_of(names[i])))
            return true;
    return false;
}

/* Removes "x\in\mathbb{R}" and the mark behind it: the condition remains. False: another set. */
static bool read_condition(struct text_span *s, struct text_span *variable)
{
    static const char *const marks[] = {"\\mid", "\\vert", "|", ":"};
    i64 n = variable_length(*s);
    *variable = part(*s, 0, n);
    struct text_span rest = part(*s, n, s->length);
    i64 in = begins(rest, "\\in\\mathbbR") ? 11 : begins(rest, "\\in\\R") ? 5 : 0;
    rest = part(rest, in, rest.length);
    for (i64 i = 0; n && i < COUNT_OF(marks); i++)
        if (begins(rest, marks[i])) {
            *s = part(rest, (i64)strlen(marks[i]), rest.length);
            return true;
        }
    return false;
}

static bool same_variable(struct real_set *out, struct text_span variable)
{
    if (out->variable.length && variable.length && !same(out->variable, variable))
        return false;
    if (variable.length)
        out->variable = variable;
    return true;
}

static bool read_builder(struct real_set *out, struct text_span s, i64 depth)
{
    struct text_span condition = part(s, 2, s.length - 2), variable;
    return read_condition(&condition, &variable) && read_set(out, condition, depth) && same_variable(out, variable);
}

/* Several sets: all of them at once if they have common numbers, or else one or another of them. */
static bool read_several(struct real_set *out, struct text_span s, const char *mark, bool united, i64 depth)
{
    struct real_set one, all = {0}, common = all_reals();
    bool ordered = false;
    for (i64 at = 0; at >= 0;) {
        at = find_outside(s, mark, 0);
        struct text_span next = at < 0 ? s : part(s, 0, at);
        if (!read_set(&one, next, depth) || !same_variable(&all, one.variable) || !unite(&all, &one) ||
            !intersect(&common, &one))
            return false;
        i64 place = 0;
        const struct order_sign *sign = first_sign(&place, next);
        ordered |= !sign || strcmp(sign->text, "=") != 0;
        s = at < 0 ? s : part(s, at + (i64)strlen(mark), s.length);
    }
    *out = all;
    if (united || common.count == 0)
        return ordered;
    *out = common;
    out->variable = all.variable;
    return ordered;
}

static bool read_set(struct real_set *out, struct text_span s, i64 depth)
{
    static const char *const without[] = {"\\setminus", "\\backslash"};
    *out = (struct real_set){0};
    if (depth > NESTED_MOST || s.length == 0)
        return false;
    if (find_outside(s, "\\cup", 0) >= 0)
        return read_several(out, s, "\\cup", true, depth + 1);
    if (find_outside(s, ";", 0) >= 0)
        return read_several(out, s, ";", false, depth + 1);
    if (find_outside(s, ",", 0) >= 0)
        return read_several(out, s, ",", false, depth + 1);
    for (i64 i = 0; i < COUNT_OF(without); i++) {
        i64 at = find_outside(s, without[i], 0);
        if (at > 0)
            return read_set(out, part(s, 0, at), depth + 1) &&
                   read_without(out, part(s, at + (i64)strlen(without[i]), s.length));
    }
    i64 n = variable_length(s);
    if (n && begins(part(s, n, s.length), "\\in"))
        return read_set(out, part(s, n + 3, s.length), depth + 1) && same_variable(out, part(s, 0, n));
    if (is_reals(s)) {
        *out = all_reals();
        return true;
    }
    if (begins(s, "\\mathbbR-\\{")) {
        *out = all_reals();
        return read_without(out, part(s, 9, s.length));
    }
    if (begins(s, "\\{") && s.length > 4 && begins(part(s, s.length - 2, s.length), "\\}"))
        return read_builder(out, s, depth + 1);
    return read_interval(out, s) || read_relation(out, s);
}

/* ---- Comparing ---- */

bool equal_sets(struct text_span a, struct text_span b)
{
    struct real_set x, y;
    if (!read_set(&x, a, 0) || !read_set(&y, b, 0) || (x.is_interval && y.is_interval) || x.count != y.count ||
        (x.variable.length && y.variable.length && !same(x.variable, y.variable)))
        return false;
    for (i64 i = 0; i < x.count; i++) {
        const struct real_piece *p = &x.list[i], *q = &y.list[i];
        if (!same_place(&p->low, &q->low) || !same_place(&p->high, &q->high) || p->low.closed != q->low.closed ||
            p->high.closed != q->high.closed)
            return false;
    }
    return x.count > 0;
}
