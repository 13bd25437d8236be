/* Names the form of a thing from its bounding box and the fraction of it that it fills. */
#include "corpus/corpus.h"

const char *const form_words[FORM_WORDS] = {"tall", "wide", "round", "square", "thin"};

/* A disc fills 78.5 % of its bounding box. */
static const char *body_of(double filled, double height, double width)
{
    bool even = height < 1.18 * width && width < 1.18 * height;
    if (height > 1.4 * width)
        return "tall";
    if (width > 1.4 * height)
        return "wide";
    return !even || filled < 0.74 ? "" : filled < 0.92 ? "round" : "square";
}

void describe_form(struct buffer *out, i64 pixels, i64 height, i64 width)
{
    double filled = (double)pixels / (double)(height * width);
    const char *body = body_of(filled, (double)height, (double)width), *thin = filled < 0.45 ? "thin" : "";
    buffer_printf(out, "%s%s%s", body, *body && *thin ? " " : "", thin);
}

void looks_add(struct looks *looks, i64 y, i64 x, int colour)
{
    looks->top = looks->pixels ? min_i64(looks->top, y) : y;
    looks->left = looks->pixels ? min_i64(looks->left, x) : x;
    looks->bottom = max_i64(looks->bottom, y);
    looks->right = max_i64(looks->right, x);
    looks->colours[colour]++;
    looks->pixels++;
}

void describe_looks(struct buffer *out, const struct looks *looks)
{
    i64 begin = out->length;
    describe_form(out, looks->pixels, looks->bottom - looks->top + 1, looks->right - looks->left + 1);
    if (out->length > begin)
        buffer_append(out, ", ", 2);
    describe_colours(out, looks->colours);
}
