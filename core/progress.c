/* Progress bars: one line of a terminal that is drawn anew, or now and then a line of a log. */
#include "core/log_inside.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void progress_init(struct progress *progress, const char *label, i64 total)
{
    *progress = (struct progress){label, total, 0, clock_s(), 0, isatty(STDERR_FILENO) != 0};
    progress->shown_s = progress->terminal ? 0 : progress->begin_s;
}

void progress_init_late(struct progress *progress, const char *label, i64 total)
{
    progress_init(progress, label, total);
    progress->shown_s = progress->begin_s;
}

static void format_duration(char *out, size_t size, double seconds)
{
    i64 s = (i64)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, size, "%dh%02dm", (int)(s / 3600), (int)(s / 60 % 60));
    else
        snprintf(out, size, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

/* A part of a bar's line is shown whole or not at all. */
struct bar_part {
    const char *before, *text; /* before: what separates it from the part before */
    i64 bytes;                 /* of `text` */
    bool shown;
};
enum { BAR_LABEL, BAR_CELLS, BAR_PERCENT, BAR_LEFT, BAR_NOTE, BAR_PARTS = 20 };

/* Cuts a note behind each ", " into parts, of which the first are the most important ones. Returns
 * the number of all parts. */
static int add_note(struct bar_part *parts, const char *note)
{
    int count = BAR_NOTE;
    const char *next = note;
    do {
        const char *at = next, *end = count < BAR_PARTS - 1 ? strstr(at, ", ") : NULL;
        parts[count] = (struct bar_part){count == BAR_NOTE ? "  " : ", ", at, end ? end - at : (i64)strlen(at), false};
        count++;
        next = end ? end + 2 : NULL;
    } while (next);
    return count;
}

/* The bar itself may be left out for what stands behind it. */
static void choose_parts(struct bar_part *parts, int count, i64 columns)
{
    static const int first[] = {BAR_PERCENT, BAR_LEFT, BAR_LABEL, BAR_NOTE, BAR_CELLS};
    for (int i = 0; i < count; i++) {
        struct bar_part *part = &parts[i < COUNT_OF(first) ? first[i] : i];
        i64 wanted = text_columns(part->before, (i64)strlen(part->before)) + text_columns(part->text, part->bytes);
        part->shown = wanted <= columns;
        columns -= part->shown ? wanted : 0;
        if (!part->shown && part != &parts[BAR_CELLS])
            return;
    }
}

static void draw_bar(const struct progress *progress, const char *left, const char *note)
{
    enum { CELLS = 24 };
    static const char full[] = "########################", empty[] = "........................";
    struct buffer line = {0};
    char bar[CELLS + 4], percent[16], time[48];
    i64 total = max_i64(progress->total, 1);
    int cells = (int)(progress->done * CELLS / total);
    char *label = text_escaped(progress->label), *said = text_escaped(note);
    snprintf(bar, sizeof bar, "[%.*s%.*s]", cells, full, CELLS - cells, empty);
    snprintf(percent, sizeof percent, "%3d%%", (int)(progress->done * 100 / total));
    snprintf(time, sizeof time, "%s left", left);
    struct bar_part parts[BAR_PARTS] = {[BAR_LABEL] = {"", label, (i64)strlen(label), false},
                                        [BAR_CELLS] = {" ", bar, (i64)strlen(bar), false},
                                        [BAR_PERCENT] = {" ", percent, (i64)strlen(percent), false},
                                        [BAR_LEFT] = {" ", time, (i64)strlen(time), false}};
    int count = add_note(parts, said);
    choose_parts(parts, count, terminal_columns() - 1);
    for (int i = 0; i < count; i++)
        if (parts[i].shown)
            buffer_printf(&line, "%s%.*s", line.length ? parts[i].before : "", (int)parts[i].bytes, parts[i].text);
    fprintf(stderr, "\r%s\033[K", line.length ? line.data : "");
    buffer_release(&line);
    memory_free(label);
    memory_free(said);
    log_bar_is_open = true;
}

static void draw_progress(struct progress *progress, double now, const char *note)
{
    char left[32] = "?";
    double spent = now - progress->begin_s;
    i64 since = progress->done - progress->before;
    if (since > 0)
        format_duration(left, sizeof left, spent * (double)(progress->total - progress->done) / (double)since);
    progress->shown_s = now;
    if (log_level_now < LOG_NORMAL)
        return;
    if (progress->terminal)
        draw_bar(progress, left, note);
    else
        log_info("%s %lld/%lld, %s left  %s", progress->label, (long long)progress->done, (long long)progress->total,
                 left, note);
}

void progress_update(struct progress *progress, i64 done, const char *format, ...)
{
    char note[512] = "";
    double now = clock_s();
    progress->done = min_i64(done, progress->total);
    if (now - progress->shown_s < (progress->terminal ? 0.1 : 10) && !(progress->terminal && done >= progress->total))
        return;
    if (format) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(note, sizeof note, format, arguments);
        va_end(arguments);
    }
    draw_progress(progress, now, note);
}

void progress_clear(struct progress *progress)
{
    if (progress->terminal && log_bar_is_open)
        fputs("\r\033[K", stderr);
    log_bar_is_open = false;
}

void progress_close(struct progress *progress)
{
    char spent[32];
    format_duration(spent, sizeof spent, clock_s() - progress->begin_s);
    if (progress->terminal && log_bar_is_open)
        fputs("\r\033[K", stderr);
    log_bar_is_open = false;
    log_info("%s: %lld of %lld in %s", progress->label, (long long)progress->done, (long long)progress->total, spent);
}
