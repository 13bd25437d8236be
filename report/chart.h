/* Charts as inline SVG, drawn for a width of 360: they stand side by side on a desk and alone on a phone, and their
 * letters stay readable in both. Colours are the page's (class "c0" to "c7"), light or dark. */
#ifndef WEFT_REPORT_CHART_H
#define WEFT_REPORT_CHART_H
#include "core/core.h"

enum { CHART_COLOURS = 8 };

struct chart_line { /* long ones are drawn as means of runs of points, with the band between least and most */
    const char *name;
    int colour;
    const double *x, *y; /* finite, x rising */
    i64 n;
};
struct chart_mark {
    const char *name; /* stands beside it */
    double x, y;
    int colour;
    bool main; /* larger, ringed */
};
struct chart {
    const char *about; /* what a reader who cannot see it is told */
    const char *x_name, *y_name;
    const struct chart_line *lines;
    i64 line_count;
    const struct chart_mark *marks;
    i64 mark_count;
    bool from_zero, percent; /* y; percent: shares are printed as such */
    double reference;        /* a dashed line at this y, if it is not NaN */
    const char *reference_name;
};
/* Nothing and false where no point is finite. */
bool chart_draw(struct text *out, const struct chart *chart);

/* From an open dot to a full one, a row each, with a tick where nothing was learnt. */
struct chart_range {
    const char *name;
    double before, after, reference; /* NaN: none */
    int colour;
};
bool chart_ranges(struct text *out, const char *about, const char *x_name, const struct chart_range *rows, i64 count);

/* A table of colours: strong is `most`. NaN: no value. */
struct heat {
    const char *about;
    i64 rows, columns;
    const double *values; /* [rows, columns] */
    const char *const *row_names;
    const char *const *column_names; /* NULL: numbers from column_first, some of them */
    const i32 *column_numbers;
    const char *column_title;
    double most;
    bool print; /* the values in the cells */
};
void chart_heat(struct text *out, const struct heat *heat);
#endif
