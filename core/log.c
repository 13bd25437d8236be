#include "core/temporary.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static enum log_level level = LOG_NORMAL;
static bool bar_is_open; /* the terminal's last line shows a progress bar */

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
    enum log_level before = level;
    level = next;
    return before;
}

static void put_escaped(const char *text)
{
    char *escaped = text_escaped(text);
    fputs(escaped, stderr);
    memory_free(escaped);
}

static void write_line(const char *prefix, const char *format, va_list arguments)
{
    struct buffer line = {0};
    buffer_vprintf(&line, format, arguments);
    if (bar_is_open)
        fputs("\r\033[K", stderr);
    fputs(prefix, stderr);
    put_escaped(line.data);
    fputc('\n', stderr);
    buffer_release(&line);
}

#define DEFINE_LOG(name, least, prefix)                                                                                \
    void name(const char *format, ...)                                                                                 \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
        if (level < (least))                                                                                           \
            return;                                                                                                    \
        va_start(arguments, format);                                                                                   \
        write_line(prefix, format, arguments);                                                                         \
        va_end(arguments);                                                                                             \
    }
DEFINE_LOG(log_info, LOG_NORMAL, "")
DEFINE_LOG(log_warn, LOG_QUIET, "warning: ")

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

void progress_init(struct progress *progress, const char *label, i64 total)
{
    *progress = (struct progress){label, total, 0, clock_s(), 0, isatty(STDERR_FILENO) != 0};
    progress->shown_s = progress->terminal ? 0 : progress->begin_s;
}

static void format_duration(char *out, size_t size, double seconds)
{
    i64 s = (i64)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, size, "%dh%02dm", (int)(s / 3600), (int)(s / 60 % 60));
    else
        snprintf(out, size, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

/* Columns of UTF-8 whose characters have one each. */
static i64 columns_of(const char *text, i64 bytes)
{
    i64 count = 0;
    for (i64 i = 0; i < bytes; i++)
        count += ((u8)text[i] & 0xc0) != 0x80;
    return count;
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
        i64 wanted = columns_of(part->before, (i64)strlen(part->before)) + columns_of(part->text, part->bytes);
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
    struct winsize window = {0};
    struct buffer line = {0};
    char bar[CELLS + 4], percent[16], time[48];
    i64 total = max_i64(progress->total, 1);
    int cells = (int)(progress->done * CELLS / total);
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col ? window.ws_col : 80;
    char *label = text_escaped(progress->label), *said = text_escaped(note);
    snprintf(bar, sizeof bar, "[%.*s%.*s]", cells, full, CELLS - cells, empty);
    snprintf(percent, sizeof percent, "%3d%%", (int)(progress->done * 100 / total));
    snprintf(time, sizeof time, "%s left", left);
    struct bar_part parts[BAR_PARTS] = {[BAR_LABEL] = {"", label, (i64)strlen(label), false},
                                        [BAR_CELLS] = {" ", bar, (i64)strlen(bar), false},
                                        [BAR_PERCENT] = {" ", percent, (i64)strlen(percent), false},
                                        [BAR_LEFT] = {" ", time, (i64)strlen(time), false}};
    int count = add_note(parts, said);
    choose_parts(parts, count, columns - 1);
    for (int i = 0; i < count; i++)
        if (parts[i].shown)
            buffer_printf(&line, "%s%.*s", line.length ? parts[i].before : "", (int)parts[i].bytes, parts[i].text);
    fprintf(stderr, "\r%s\033[K", line.length ? line.data : "");
    buffer_release(&line);
    memory_free(label);
    memory_free(said);
    bar_is_open = true;
}

static void draw_progress(struct progress *progress, double now, const char *note)
{
    char left[32] = "?";
    double spent = now - progress->begin_s;
    i64 since = progress->done - progress->before;
    if (since > 0)
        format_duration(left, sizeof left, spent * (double)(progress->total - progress->done) / (double)since);
    progress->shown_s = now;
    if (level < LOG_NORMAL)
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

void progress_close(struct progress *progress)
{
    char spent[32];
    format_duration(spent, sizeof spent, clock_s() - progress->begin_s);
    if (progress->terminal && bar_is_open)
        fputs("\r\033[K", stderr);
    bar_is_open = false;
    log_info("%s: %lld of %lld in %s", progress->label, (long long)progress->done, (long long)progress->total, spent);
}

static volatile sig_atomic_t caught;

/* Batch systems warn with these before a time limit, some of them repeatedly (SIGXCPU each second). */
static bool warns(int number)
{
    return number == SIGUSR1 || number == SIGUSR2 || number == SIGXCPU;
}

/* A second signal ends the program, unless one of the two is a warning. */
static void on_signal(int number)
{
    if (caught && warns(number))
        return;
    if (caught && !warns(caught)) {
        temporaries_remove();
        _exit(128 + number);
    }
    caught = number;
}

static void end_at_once(int number)
{
    temporaries_remove();
    _exit(128 + number);
}

bool output_is_unread(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) > 0 && (out.revents & (POLLERR | POLLHUP));
}

/* Sockets cause the signal too; their writers see EPIPE. */
static void end_if_unread(int number)
{
    int before = errno;
    if (output_is_unread())
        end_at_once(number);
    errno = before;
}

/* Signals that end the program: of a person, of the system, and the warnings of batch systems (Slurm:
 * --signal, Grid Engine: -notify, s_rt and s_cpu, LSF: USR2). */
static const int ending[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};

/* Runs handlers on their own stack, and never on a worker (workers.c). Code generated by a library
 * may keep values below the stack pointer, where a signal frame would overwrite them. */
static void set_handler(void (*handler)(int), void (*unread)(int))
{
    static char stack[1 << 16];
    struct sigaction action, before;
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    for (i64 i = 0; i < COUNT_OF(ending); i++)
        sigaction(ending[i], &action, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* ignored: by nohup */
        sigaction(SIGHUP, &action, NULL);
    action.sa_handler = unread;
    sigaction(SIGPIPE, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit becomes a failed write */
}

void signals_catch(void)
{
    set_handler(on_signal, SIG_IGN);
}

void signals_end(void)
{
    set_handler(end_at_once, end_if_unread);
}

bool interrupted(void)
{
    return caught != 0;
}

bool interrupted_forget(void)
{
    if (caught == SIGINT)
        caught = 0;
    return caught == 0;
}

/* The signals are let in by pselect alone, so none can come between the look at the flag and the
 * wait. */
bool interrupted_wait(int descriptor)
{
    sigset_t held, before;
    fd_set wanted;
    int ready = 0;
    sigemptyset(&held);
    sigaddset(&held, SIGHUP);
    for (i64 i = 0; i < COUNT_OF(ending); i++)
        sigaddset(&held, ending[i]);
    pthread_sigmask(SIG_BLOCK, &held, &before);
    while (!caught && ready <= 0) {
        FD_ZERO(&wanted);
        FD_SET(descriptor, &wanted);
        ready = pselect(descriptor + 1, &wanted, NULL, NULL, NULL, &before);
        if (ready < 0 && errno != EINTR)
            break; /* the read will say why */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !caught;
}
