/* Limits on memory: those of the shell (ulimit -v and -d), of a control group, and of
 * WEFT_MEMORY_LIMIT. Work that does not fit ends here, with a message and without unfinished
 * files. */
#define _GNU_SOURCE /* strsep */
#include "core/core.h"
#include "core/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- What is used: no function here allocates ---- */

/* Reads a small file. Returns its length, 0 if there is none. */
static i64 read_small(char *out, i64 most, const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = descriptor < 0 ? 0 : read(descriptor, out, (size_t)most - 1);
    if (descriptor >= 0)
        close(descriptor);
    length = length < 0 ? 0 : length;
    out[length] = 0;
    return length;
}

/* Bytes of this process after `name` ("VmSize:") in /proc/self/status. */
static i64 process_bytes(const char *name)
{
    char text[4096];
    read_small(text, sizeof text, "/proc/self/status");
    const char *line = strstr(text, name);
    return line ? (i64)strtoll(line + strlen(name), NULL, 10) * 1024 : 0;
}

/* ---- Limits ---- */

struct memory_limit {
    const char *name; /* NULL: no limit */
    i64 bytes, used;
};

/* The tighter of the shell's two limits. A private writable mapping counts in both. */
static struct memory_limit address_limit(void)
{
    struct rlimit space, data;
    struct memory_limit limit = {NULL, INT64_MAX, 0};
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < INT64_MAX)
        limit = (struct memory_limit){"ulimit -v", (i64)space.rlim_cur, process_bytes("VmSize:")};
    if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur < INT64_MAX) {
        i64 used = process_bytes("VmData:");
        if ((i64)data.rlim_cur - used < limit.bytes - limit.used)
            limit = (struct memory_limit){"ulimit -d", (i64)data.rlim_cur, used};
    }
    return limit;
}

i64 memory_address_left(void)
{
    struct memory_limit limit = address_limit();
    return limit.name ? max_i64(0, limit.bytes - limit.used) : INT64_MAX;
}

/* Control groups: version 2 has one tree, version 1 one for memory. A container may show its own
 * group as the root of the tree. */
static struct {
    pthread_once_t once;
    i64 bytes; /* INT64_MAX: no limit */
    bool group;
    char usage[512]; /* file with the counts of the group */
    const char *counts[2];
} resident = {.once = PTHREAD_ONCE_INIT};

static i64 read_limit(const char *folder, const char *file)
{
    char path[600], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    i64 length = read_small(text, sizeof text, path);
    char *end;
    long long bytes = strtoll(text, &end, 10);
    return length && end > text && bytes < (1LL << 60) ? (i64)bytes : INT64_MAX;
}

/* Takes the tightest limit among a group and those above it. */
static void look_up(const char *tree, const char *group, const char *limit, const char *const counts[2])
{
    char folder[512];
    i64 root = snprintf(folder, sizeof folder, "%s", tree);
    snprintf(folder + root, sizeof folder - (size_t)root, "%s", group);
    for (;;) {
        i64 bytes = read_limit(folder, limit);
        if (bytes < resident.bytes) {
            resident.bytes = bytes;
            resident.group = true;
            snprintf(resident.usage, sizeof resident.usage, "%.490s/memory.stat", folder);
            resident.counts[0] = counts[0], resident.counts[1] = counts[1];
        }
        char *slash = strrchr(folder, '/');
        if (!slash || slash - folder < root)
            return;
        *slash = 0;
    }
}

static void find_resident_limit(void)
{
    static const char *const unified[2] = {"\nanon ", "\nshmem "}, *const split[2] = {"\ntotal_rss ", NULL};
    char text[4096], *line, *rest = text;
    resident.bytes = INT64_MAX;
    read_small(text, sizeof text, "/proc/self/cgroup");
    while ((line = strsep(&rest, "\n"))) { /* ID:CONTROLLERS:PATH */
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (path && strncmp(names, "::", 2) == 0)
            look_up("/sys/fs/cgroup", path + 1, "memory.max", unified);
        else if (path && strstr(names, "memory"))
            look_up("/sys/fs/cgroup/memory", path + 1, "memory.limit_in_bytes", split);
    }
    const char *wanted = getenv("WEFT_MEMORY_LIMIT");
    i64 bytes = wanted && *wanted ? (i64)strtoll(wanted, NULL, 10) : INT64_MAX;
    if (bytes > 0 && bytes < resident.bytes) {
        resident.bytes = bytes;
        resident.group = false;
    }
}

/* Memory that the system cannot take back: without caches of files. */
static struct memory_limit resident_limit(void)
{
    char text[8192] = "\n";
    i64 used = 0;
    pthread_once(&resident.once, find_resident_limit);
    if (resident.bytes == INT64_MAX)
        return (struct memory_limit){NULL, INT64_MAX, 0};
    if (!resident.group)
        return (struct memory_limit){"WEFT_MEMORY_LIMIT", resident.bytes, process_bytes("RssAnon:")};
    read_small(text + 1, sizeof text - 1, resident.usage);
    for (int i = 0; i < 2 && resident.counts[i]; i++) {
        const char *count = strstr(text, resident.counts[i]);
        used += count ? (i64)strtoll(count + strlen(resident.counts[i]), NULL, 10) : 0;
    }
    return (struct memory_limit){"control group", resident.bytes, used};
}

/* ---- The end ---- */

static _Atomic(const char *) work, smaller;

void memory_advise(const char *now, const char *make_smaller)
{
    atomic_store(&work, now);
    atomic_store(&smaller, make_smaller);
}

static void append_size(char *out, i64 most, i64 bytes)
{
    snprintf(out, (size_t)most, bytes < 1 << 20 ? "%.0f kB" : "%.1f MB", (double)bytes / (bytes < 1 << 20 ? 1e3 : 1e6));
}

/* One thread writes the message; others that come here meanwhile wait for its end. */
static void end_with(const struct memory_limit *limit, const char *asked)
{
    static atomic_flag ending = ATOMIC_FLAG_INIT;
    static _Thread_local bool own;
    char text[2048], held[32] = "", most[32] = "";
    if (own)
        _exit(STATUS_FAILED); /* the removal of files ran out of memory */
    if (atomic_flag_test_and_set(&ending))
        for (;;)
            pause();
    own = true;
    const char *doing = atomic_load(&work), *advice = atomic_load(&smaller);
    append_size(held, sizeof held, limit->used);
    append_size(most, sizeof most, limit->bytes);
    int length = limit->name
                     ? snprintf(text, sizeof text,
                                "\nweft: out of memory%s%s: %s, %s are in use, and %s allows %s. Raise it%s%s\n",
                                doing ? " in " : "", doing ? doing : "", asked, held, limit->name, most,
                                advice ? ", or make smaller: " : "", advice ? advice : "")
                     : snprintf(text, sizeof text,
                                "\nweft: out of memory%s%s: %s, and the system has no more. End other programs%s%s\n",
                                doing ? " in " : "", doing ? doing : "", asked, advice ? ", or make smaller: " : "",
                                advice ? advice : "");
    ssize_t written = write(STDERR_FILENO, text, (size_t)min_i64(length, (i64)sizeof text - 1));
    (void)written;
    files_discard();
    _exit(STATUS_FAILED);
}

void memory_exhausted(i64 bytes, const char *what)
{
    char size[32], asked[256];
    struct memory_limit limit = address_limit(), other = resident_limit();
    if (!limit.name || (other.name && other.bytes - other.used < bytes && limit.bytes - limit.used >= bytes))
        limit = other;
    append_size(size, sizeof size, bytes);
    snprintf(asked, sizeof asked, bytes > 0 ? "%s needs %s more" : "%s got no memory", what, size);
    end_with(&limit, asked);
    _exit(STATUS_FAILED);
}

void memory_expect(i64 bytes, const char *what)
{
    struct memory_limit limit = resident_limit();
    char size[32], asked[256];
    if (!limit.name || limit.used + bytes <= limit.bytes)
        return;
    append_size(size, sizeof size, bytes);
    snprintf(asked, sizeof asked, "%s needs %s more", what, size);
    end_with(&limit, asked);
}

void thread_start(pthread_t *thread, void *(*run)(void *), void *context, const char *what)
{
    int code = pthread_create(thread, NULL, run, context);
    if (code == 0)
        return;
    struct rlimit stack, processes;
    i64 bytes = getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < INT64_MAX ? (i64)stack.rlim_cur : 8 << 20;
    if (memory_address_left() < 2 * bytes)
        memory_exhausted(bytes, what);
    long long most = getrlimit(RLIMIT_NPROC, &processes) == 0 ? (long long)processes.rlim_cur : -1;
    out_of_memory("%s cannot start: %s; the user may have %lld threads (ulimit -u), and the control group may allow "
                  "fewer (pids.max): end other programs, or set WEFT_THREADS to a smaller number",
                  what, strerror(code), most);
}
