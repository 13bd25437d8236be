#include "core/log_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

volatile enum log_level log_level_now = LOG_NORMAL;
volatile sig_atomic_t log_bar_is_open;

static const char *program = "weft";

void program_called(const char *argument)
{
    program = strchr(argument, '/') ? argument : "weft";
}

const char *program_name(void)
{
    return program;
}

enum log_level log_set_level(enum log_level next)
{
    enum log_level before = log_level_now;
    log_level_now = next;
    return before;
}

/* ---- Lines that fit the terminal ---- */

int terminal_columns(void)
{
    struct winsize window = {0};
    const char *wanted = getenv("COLUMNS");
    int columns = wanted ? atoi(wanted) : 0;
    if (!isatty(STDERR_FILENO))
        return 0;
    if (columns > 0)
        return columns;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col ? window.ws_col : 80;
}

/* First and last characters of ranges that take two columns (Unicode, East Asian Width: W and F). */
static const u32 wide[][2] = {{0x1100, 0x115f},  {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xa960, 0xa97c},
                              {0xac00, 0xd7a3},  {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                              {0xffe0, 0xffe6},  {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff},
                              {0x20000, 0x3fffd}};

static i64 columns_of_point(u32 point)
{
    if ((point >= 0x300 && point < 0x370) || point == 0x200d || (point >= 0xfe00 && point < 0xfe10))
        return 0; /* drawn over the character before */
    for (i64 i = 0; i < COUNT_OF(wide); i++)
        if (point >= wide[i][0] && point <= wide[i][1])
            return 2;
    return 1;
}

i64 text_columns(const char *text, i64 bytes)
{
    i64 columns = 0;
    for (i64 i = 0, step; i < bytes; i += step) {
        u32 point = (u8)text[i];
        step = max_i64(utf8_length(text + i, bytes - i), 1);
        if (step > 1)
            point &= 0x7fu >> step;
        for (i64 k = 1; k < step; k++)
            point = point << 6 | ((u8)text[i + k] & 0x3f);
        columns += columns_of_point(point);
    }
    return columns;
}

void text_wrap(struct buffer *out, const char *text, int columns)
{
    static const char indent[] = "  ";
    i64 used = 0, length = (i64)strlen(text);
    if (columns == 0) {
        buffer_append(out, text, length);
        return;
    }
    for (i64 at = 0; at < length;) {
        i64 spaces = (i64)strspn(text + at, " "), word = (i64)strcspn(text + at + spaces, " ");
        i64 wanted = text_columns(text + at + spaces, word);
        if (used > 0 && word > 0 && used + spaces + wanted > columns) {
            buffer_printf(out, "\n%s", indent);
            used = (i64)strlen(indent);
        } else {
            buffer_append(out, text + at, spaces);
            used += spaces;
        }
        buffer_append(out, text + at + spaces, word);
        used += wanted;
        at += spaces + word;
    }
}

void log_put(const char *prefix, const char *text)
{
    struct buffer line = {0};
    char *escaped = text_escaped(text), *whole = string_format("%s%s", prefix, escaped);
    int columns = terminal_columns();
    if (log_bar_is_open)
        buffer_printf(&line, "\r\033[K");
    text_wrap(&line, whole, (int)max_i64(columns - 1, 0));
    buffer_printf(&line, "\n");
    fputs(line.data, stderr);
    memory_free(escaped);
    memory_free(whole);
    buffer_release(&line);
}

static void write_line(const char *prefix, const char *format, va_list arguments)
{
    struct buffer line = {0};
    buffer_vprintf(&line, format, arguments);
    log_put(prefix, line.data);
    buffer_release(&line);
}

#define DEFINE_LOG(name, least, prefix)                                                                                \
    void name(const char *format, ...)                                                                                 \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
        if (log_level_now < (least))                                                                                   \
            return;                                                                                                    \
        va_start(arguments, format);                                                                                   \
        write_line(prefix, format, arguments);                                                                         \
        va_end(arguments);                                                                                             \
    }
DEFINE_LOG(log_info, LOG_NORMAL, "")
DEFINE_LOG(log_warn, LOG_QUIET, "warning: ")

/* ---- Clocks, and what the process uses ---- */

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double clock_s(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double clock_cpu_s(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

i64 memory_private_bytes(void)
{
    char line[256];
    long long kb, sum = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Private_%*[^:]: %lld kB", &kb) == 1)
            sum += kb;
    if (file)
        fclose(file);
    return sum * 1024;
}

i64 memory_peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (i64)usage.ru_maxrss * 1024;
}
