/* Text, numbers, media and shell words as HTML. All functions append to `out`, and escape what
 * comes from a run. */
#ifndef WEFT_REPORT_HTML_H
#define WEFT_REPORT_HTML_H
#include "core/core.h"

void html_text(struct buffer *out, const char *text); /* also safe in quoted attributes; NULL: nothing */
/* Appends "<TAG class='CLASS'>text</TAG>". The text is
 * formatted, then escaped. class NULL or "": none. */
void html_element(struct buffer *out, const char *tag, const char *class, const char *format, ...) PRINTF(4, 5);
void html_id(struct buffer *out, const char *text); /* keeps letters, digits and dashes, for ids and links */

/* Formats of a number. A value that is not finite becomes an en dash. */
enum unit {
    UNIT_NUMBER,  /* with `digits` decimals */
    UNIT_COUNT,   /* 14.9 M */
    UNIT_BYTES,   /* 1.1 GiB */
    UNIT_SECONDS, /* 8 min 10 s */
    UNIT_SHARE,   /* fraction of 1, as a percentage */
    UNIT_DECIBEL,
};
void put_figure(struct buffer *out, double value, enum unit unit, int digits); /* plain text */

/* Appends a file as "data:TYPE;base64,...". The type follows the file name: png, jpg, mp4 or wav.
 * -1: another type, or unreadable. */
int html_data_uri(struct buffer *out, const char *path);
/* Appends a word quoted for a POSIX shell. */
void shell_word(struct buffer *out, const char *word);
#endif
