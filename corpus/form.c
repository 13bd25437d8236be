/* Names the form of a thing from its bounding box and the fraction of it that it fills. */
#include "corpus/corpus.h"

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
