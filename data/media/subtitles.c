#include "data/media/subtitles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct subtitles_lines {
    const char *at, *end;
};
struct subtitles_line {
    const char *begin;
    i64 length;
};

static bool next_line(struct subtitles_line *out, struct subtitles_lines *lines)
{
    if (lines->at == lines->end)
        return false;
    const char *feed = memchr(lines->at, '\n', (size_t)(lines->end - lines->at));
    const char *end = feed ? feed : lines->end;
    *out = (struct subtitles_line){lines->at, end - lines->at};
    lines->at = feed ? feed + 1 : lines->end;
    if (out->length && out->begin[out->length - 1] == '\r')
        out->length--;
    return true;
}

/* Parses [hours:]minutes:seconds with an optional fraction after a comma or point. Returns its
 * length in characters, 0 if it is none. */
static i64 read_time(double *out, const char *text, i64 length)
{
    double sum = 0, unit = 1;
    i64 at = 0, colons = 0;
    for (double number = 0;; at++) {
        char c = at < length ? text[at] : 0;
        if (c >= '0' && c <= '9' && unit == 1) {
            number = number * 10 + (c - '0');
        } else if (c >= '0' && c <= '9') {
            number += (c - '0') * unit;
            unit /= 10;
        } else if (c == ':' && unit == 1 && colons < 2) {
            sum = (sum + number) * 60;
            number = 0;
            colons++;
        } else if ((c == '.' || c == ',') && unit == 1) {
            unit = 0.1;
        } else {
            *out = sum + number;
            return colons ? at : 0;
        }
    }
}

static bool read_times(double *from_s, double *until_s, const struct subtitles_line *line)
{
    static const char arrow[] = "-->";
    i64 length = line->length;
    const char *text = line->begin;
    i64 used = read_time(from_s, text, length);
    for (text += used, length -= used; length > 0 && *text == ' '; length--)
        text++;
    if (!used || length < 3 || memcmp(text, arrow, 3) != 0)
        return false;
    for (text += 3, length -= 3; length > 0 && *text == ' '; length--)
        text++;
    return read_time(until_s, text, length) > 0;
}

/* Appends a line's words without markup such as <i>, <00:00:01.000> and {\an8}. */
static void add_words(struct buffer *out, const struct subtitles_line *line)
{
    const char *end = line->begin + line->length;
    for (const char *at = line->begin; at < end; at++) {
        char closes = *at == '<' ? '>' : *at == '{' && at + 1 < end && at[1] == '\\' ? '}' : 0;
        const char *close = closes ? memchr(at, closes, (size_t)(end - at)) : NULL;
        if (close)
            at = close;
        else
            buffer_append(out, at, 1);
    }
}

bool subtitles_named(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (strcasecmp(dot, ".srt") == 0 || strcasecmp(dot, ".vtt") == 0);
}

i64 subtitles_words(struct buffer *out, const char *file, i64 bytes, double from_s, double until_s)
{
    struct subtitles_lines lines = {file, file + bytes};
    struct subtitles_line line;
    double begin_s, end_s;
    i64 cues = 0;
    while (next_line(&line, &lines)) {
        if (!read_times(&begin_s, &end_s, &line))
            continue;
        cues++;
        while (next_line(&line, &lines) && line.length)
            if (begin_s < until_s && end_s > from_s) {
                if (out->length)
                    buffer_append(out, " ", 1);
                add_words(out, &line);
            }
    }
    return cues;
}

/* ---- Events and cues ---- */

/* Updates the drawing state by an override block: {\..\p1..} begins a drawing, {\p0} ends it. \pos
 * and \pbo are unrelated. */
static bool draws(const char *at, const char *close, bool drawing)
{
    for (; at + 2 < close; at++)
        if (at[0] == '\\' && at[1] == 'p' && at[2] >= '0' && at[2] <= '9')
            drawing = at[2] > '0';
    return drawing;
}

static const char *event_text(const char *event)
{
    for (int field = 0; field < 8; field++) {
        const char *comma = strchr(event, ',');
        if (!comma)
            return "";
        event = comma + 1;
    }
    return event;
}

void subtitles_event(struct buffer *out, const char *event)
{
    bool drawing = false;
    const char *at = event_text(event);
    if (out->length && *at)
        buffer_append(out, " ", 1);
    while (*at) {
        const char *close = *at == '{' ? strchr(at, '}') : NULL;
        bool breaks = (at[0] == '\\' && at[1] && strchr("Nnh", at[1])) || *at == '\r' || *at == '\n';
        /* An escaped brace is a plain character. */
        at += at[0] == '\\' && (at[1] == '{' || at[1] == '}');
        if (close)
            drawing = draws(at, close, drawing);
        else if (breaks)
            buffer_append(out, " ", 1);
        else if (!drawing)
            buffer_append(out, at, 1);
        at = close ? close + 1 : at + 1 + (breaks && *at == '\\');
    }
}

static void write_time(struct buffer *out, double time_s)
{
    i64 ms = (i64)(fmin(time_s, 1e9) * 1000 + 0.5);
    buffer_printf(out, "%02lld:%02lld:%02lld,%03lld", (long long)(ms / 3600000), (long long)(ms / 60000 % 60),
                  (long long)(ms / 1000 % 60), (long long)(ms % 1000));
}

void subtitles_write(struct buffer *out, double begin_s, double end_s, const char *words)
{
    write_time(out, begin_s);
    buffer_printf(out, " --> ");
    write_time(out, end_s);
    buffer_printf(out, "\n%s\n\n", words);
}
