/* Text, numbers, media and tables as HTML. Whatever comes from a run is escaped here. */
#ifndef WEFT_REPORT_HTML_H
#define WEFT_REPORT_HTML_H
#include "core/core.h"

void html_text(struct text *out, const char *text); /* also good in quoted attributes; NULL is nothing */
/* "<TAG class='CLASS'>text</TAG>" with the text formatted, then escaped; class "" or NULL: none. */
void html_element(struct text *out, const char *tag, const char *class, const char *format, ...) PRINTF(4, 5);
void html_id(struct text *out, const char *text); /* letters, digits and dashes of it: for ids and links */

/* How a figure is told. Not finite: an en dash. */
enum unit {
    UNIT_NUMBER,  /* as many digits as `digits` says */
    UNIT_COUNT,   /* 14.9 M */
    UNIT_BYTES,   /* 1.1 GiB */
    UNIT_SECONDS, /* 8 min 10 s */
    UNIT_SHARE,   /* of 1, as percent */
    UNIT_DECIBEL,
};
void put_figure(struct text *out, double value, enum unit unit, int digits); /* plain text */

/* A file as "data:TYPE;base64,..." by the end of its name: png, svg, mp4, wav. -1: another end, or it cannot be read.
 */
int html_data_uri(struct text *out, const char *path);
/* A word as a shell reads it back. */
void shell_word(struct text *out, const char *word);
#endif
