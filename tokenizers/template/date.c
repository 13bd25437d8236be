/* strftime_now. */
#include "tokenizers/template/inside.h"

#include <string.h>
#include <time.h>

struct jinja_value jinja_strftime(struct jinja_run *run, struct jinja_value format)
{
    enum { LONGEST = 1000 };
    char text[4 * LONGEST];
    struct tm parts;
    time_t now = run->template->has_time ? (time_t)run->template->time_s : time(NULL);
    if (format.kind != JINJA_TEXT || format.text->length > LONGEST)
        jinja_fail(run, "strftime_now: expected a format of at most %d bytes", LONGEST);
    char words[LONGEST + 1];
    memcpy(words, format.text->bytes, (size_t)format.text->length);
    words[format.text->length] = 0;
    if (!(run->template->has_time ? gmtime_r(&now, &parts) : localtime_r(&now, &parts)))
        jinja_fail(run, "strftime_now: the time is out of range");
    size_t length = strftime(text, sizeof text, words, &parts);
    return jinja_text_copy(run, text, (i64)length);
}
