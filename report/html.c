#include "report/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Escapes a character. Control characters, which HTML must not contain, become spaces. */
static void put_escaped(struct buffer *out, char letter)
{
    static const char special[] = "<>&\"'";
    if (strchr(special, letter))
        buffer_printf(out, "&#%d;", letter);
    else if ((u8)letter < ' ' && letter != '\n' && letter != '\t')
        buffer_append(out, " ", 1);
    else
        buffer_append(out, &letter, 1);
}

void html_text(struct buffer *out, const char *text)
{
    for (; text && *text; text++)
        put_escaped(out, *text);
}

void html_element(struct buffer *out, const char *tag, const char *class, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    char *text = memory_alloc(length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(list);
    if (class && *class)
        buffer_printf(out, "<%s class='%s'>", tag, class);
    else
        buffer_printf(out, "<%s>", tag);
    html_text(out, text);
    buffer_printf(out, "</%s>", tag);
    memory_free(text);
}

void html_id(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || (*text >= '0' && *text <= '9');
        buffer_append(out, plain ? text : "-", 1);
    }
}

/* ---- Numbers: a no-break space joins number and unit ---- */

static void put_count(struct buffer *out, double value)
{
    static const struct {
        double size;
        const char *letter;
    } sizes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    for (i64 i = 0; i < COUNT_OF(sizes); i++)
        if (fabs(value) >= sizes[i].size) {
            double scaled = value / sizes[i].size;
            buffer_printf(out, "%.*f\u00a0%s",
                          fabs(scaled) < 9.995   ? 2
                          : fabs(scaled) < 99.95 ? 1
                                                 : 0,
                          scaled, sizes[i].letter);
            return;
        }
    buffer_printf(out, fabs(value) < 99.95 ? "%.3g" : "%.0f", value);
}

static void put_bytes(struct buffer *out, double value)
{
    double mib = value / (1 << 20);
    if (mib >= 1000)
        buffer_printf(out, "%.1f\u00a0GiB", mib / 1024);
    else
        buffer_printf(out, "%.0f\u00a0MiB", mib);
}

static void put_seconds(struct buffer *out, double value)
{
    i64 s = llround(value);
    if (value < 10)
        buffer_printf(out, "%.1f\u00a0s", value);
    else if (s < 60)
        buffer_printf(out, "%lld\u00a0s", (long long)s);
    else if (s < 3600)
        buffer_printf(out, "%lld\u00a0min %lld\u00a0s", (long long)(s / 60), (long long)(s % 60));
    else
        buffer_printf(out, "%lld\u00a0h %lld\u00a0min", (long long)(s / 3600), (long long)(s % 3600 / 60));
}

void put_figure(struct buffer *out, double value, enum unit unit, int digits)
{
    if (!isfinite(value))
        buffer_printf(out, "\u2013");
    else if (unit == UNIT_COUNT)
        put_count(out, value);
    else if (unit == UNIT_BYTES)
        put_bytes(out, value);
    else if (unit == UNIT_SECONDS)
        put_seconds(out, value);
    else
        buffer_printf(out, "%.*f%s", digits, unit == UNIT_SHARE ? 100 * value : value,
                      unit == UNIT_SHARE     ? "\u00a0%"
                      : unit == UNIT_DECIBEL ? "\u00a0dB"
                                             : "");
}

/* ---- Media ---- */

static void put_base64(struct buffer *out, const u8 *data, i64 n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (i64 i = 0; i < n; i += 3) {
        u32 v = (u32)data[i] << 16 | (i + 1 < n ? (u32)data[i + 1] << 8 : 0) | (i + 2 < n ? data[i + 2] : 0);
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
                        i + 2 < n ? digits[v & 63] : '='};
        buffer_append(out, four, 4);
    }
}

int html_data_uri(struct buffer *out, const char *path)
{
    static const char *const types[][2] = {
        {".png", "image/png"}, {".mp4", "video/mp4"}, {".wav", "audio/wav"}, {".jpg", "image/jpeg"}};
    const char *end = strrchr(path, '.'), *type = NULL;
    struct file_view view;
    for (i64 i = 0; i < COUNT_OF(types) && end; i++)
        type = strcmp(end, types[i][0]) == 0 ? types[i][1] : type;
    if (!type)
        return -1;
    if (file_map(&view, path)) {
        log_warn("%s: left out of the page", error_text());
        return -1;
    }
    buffer_printf(out, "data:%s;base64,", type);
    put_base64(out, view.data, view.bytes);
    file_unmap(&view);
    return 0;
}

void shell_word(struct buffer *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (*word && word[strspn(word, plain)] == 0) {
        buffer_printf(out, "%s", word);
        return;
    }
    buffer_append(out, "'", 1);
    for (; *word; word++)
        if (*word == '\'')
            buffer_printf(out, "'\\''");
        else
            buffer_append(out, word, 1);
    buffer_append(out, "'", 1);
}
