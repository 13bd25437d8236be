/* Charts as inline SVG, 360 units wide: two fit side by side on a desktop screen and one fills a
 * phone, with readable text on both. Colors are classes "c0" to "c7" of the page's style, light or
 * dark. `about` is the text alternative for screen readers. */
#ifndef WEFT_REPORT_CHART_H
#define WEFT_REPORT_CHART_H
#include "core/core.h"

enum { CHART_COLOURS = 8 };

struct chart_line { /* long lines: means of bins, with a min-max band */
    const char *name;
    int colour;
    const double *x, *y; /* finite, x ascending */
    i64 n;
    const double *low, *high; /* a band, such as the range over runs, in place of that of bins; NULL: none */
};
struct chart_mark {
    const char *name; /* label next to the mark */
    double x, y;
    int colour;
    bool main; /* larger, ringed */
};
struct chart {
    const char *about; /* text alternative */
    const char *x_name, *y_name;
    const struct chart_line *lines;
    i64 line_count;
    const struct chart_mark *marks;
    i64 mark_count;
    bool from_zero, percent; /* y axis from 0; values as percentages */
    double reference;        /* y of a dashed line; NaN: none */
    const char *reference_name;
};
/* Appends the chart. Appends nothing and returns false if no point is finite. */
bool chart_draw(struct buffer *out, const struct chart *chart);

/* A row per range: a line from an open dot (before) to a full one (after), with a tick at
 * `reference`, the value without learning. */
struct chart_range {
    const char *name;
    double before, after, reference; /* NaN: none */
    int colour;
};
bool chart_ranges(struct buffer *out, const char *about, const char *x_name, const struct chart_range *rows, i64 count);

/* A heat map. `most` has the strongest color; NaN is an empty cell. */
struct heat_map {
    const char *about;
    i64 rows, columns;
    const double *values; /* [rows, columns] */
    const char *const *row_names;
    const char *const *column_names; /* NULL: column_numbers, of which some are shown */
    const i32 *column_numbers;
    const char *column_title;
    double most;
    bool print; /* print values in the cells */
};
void chart_heat_map(struct buffer *out, const struct heat_map *heat);
/* Writes a chart as a file of its own, with the page's style. 0, or -1 and a message. */
int chart_save(const char *path, const struct buffer *chart);
#endif
