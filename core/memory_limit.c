/* Limits on memory: those of the shell (ulimit -v and -d), of a control group, and of
 * WEFT_MEMORY_LIMIT. Work that does not fit ends here, with a message and without unfinished
 * files. */
#define _GNU_SOURCE /* strsep */
#include "core/core.h"
#include "core/temporary.h"
#include "core/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
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

i64 system_count(const char *path, const char *name)
{
    char text[16384], line[64];
    snprintf(line, sizeof line, "\n%s", name);
    text[0] = '\n';
    read_small(text + 1, sizeof text - 1, path);
    const char *found = strstr(text, line);
    return found ? (i64)strtoll(found + strlen(line), NULL, 10) : -1;
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
 * group as the root of the tree. The groups above one limit it too, and others may use their memory. */
enum { GROUPS_MOST = 16 };
struct group_limit {
    i64 bytes;
    char usage[512]; /* file with the counts of the group */
    const char *const *counts;
};
static struct {
    pthread_mutex_t lock;
    pid_t process;  /* that looked for the limits: a fork may have others */
    i64 own_bytes;  /* WEFT_MEMORY_LIMIT; INT64_MAX: no limit */
    i64 base_bytes; /* private memory besides the heap before anything was promised */
    struct group_limit groups[GROUPS_MOST];
    int group_count;
} resident = {.lock = PTHREAD_MUTEX_INITIALIZER};

static i64 read_limit(const char *folder, const char *file)
{
    char path[600], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    i64 length = read_small(text, sizeof text, path);
    char *end;
    long long bytes = strtoll(text, &end, 10);
    return length && end > text && bytes < (1LL << 60) ? (i64)bytes : INT64_MAX;
}

/* Takes the limits of a group and of those above it. */
static void look_up(const char *tree, const char *group, const char *limit, const char *const *counts)
{
    char folder[512];
    i64 root = snprintf(folder, sizeof folder, "%s", tree);
    snprintf(folder + root, sizeof folder - (size_t)root, "%s", group);
    for (;;) {
        i64 bytes = read_limit(folder, limit);
        if (bytes < INT64_MAX && resident.group_count < GROUPS_MOST) {
            struct group_limit *g = &resident.groups[resident.group_count++];
            *g = (struct group_limit){.bytes = bytes, .counts = counts};
            snprintf(g->usage, sizeof g->usage, "%.490s/memory.stat", folder);
        }
        char *slash = strrchr(folder, '/');
        if (!slash || slash - folder < root)
            return;
        *slash = 0;
    }
}

/* Small blocks are not promised: malloc has their memory from the system. */
static i64 heap_bytes(void)
{
    struct mallinfo2 heap = mallinfo2();
    return (i64)heap.arena + (i64)heap.hblkhd;
}

static void find_resident_limits(void)
{
    static const char *const unified[] = {"\nanon ",         "\nshmem ",      "\nslab_unreclaimable ",
                                          "\nkernel_stack ", "\npagetables ", NULL};
    static const char *const split[] = {"\ntotal_rss ", "\ntotal_shmem ", NULL};
    char text[4096], *line, *rest = text;
    const char *wanted = getenv("WEFT_MEMORY_LIMIT");
    i64 bytes = wanted ? (i64)strtoll(wanted, NULL, 10) : 0;
    resident.group_count = 0;
    read_small(text, sizeof text, "/proc/self/cgroup");
    while ((line = strsep(&rest, "\n"))) { /* ID:CONTROLLERS:PATH */
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (path && strncmp(names, "::", 2) == 0)
            look_up("/sys/fs/cgroup", path + 1, "memory.max", unified);
        else if (path && strstr(names, "memory"))
            look_up("/sys/fs/cgroup/memory", path + 1, "memory.limit_in_bytes", split);
    }
    resident.own_bytes = bytes > 0 ? bytes : INT64_MAX;
    resident.base_bytes = max_i64(0, process_bytes("RssAnon:") - heap_bytes());
}

/* Memory of the group that the system cannot take back: without caches of files. */
static i64 group_used(const struct group_limit *g)
{
    char text[8192] = "\n";
    i64 used = 0;
    read_small(text + 1, sizeof text - 1, g->usage);
    for (int i = 0; g->counts[i]; i++) {
        const char *count = strstr(text, g->counts[i]);
        used += count ? (i64)strtoll(count + strlen(g->counts[i]), NULL, 10) : 0;
    }
    return used;
}

/* ---- Promises ---- */

static _Atomic i64 promised, promised_most, promised_then, expected_most;

/* What this process will use once all that is promised is touched. */
static i64 committed(i64 own)
{
    return max_i64(own, resident.base_bytes + heap_bytes() + atomic_load(&promised));
}

/* The limit that leaves the least, and what counts as used of it. A group keeps 1/64 for pages that
 * the system itself needs. */
static struct memory_limit resident_limit(void)
{
    struct memory_limit tightest = {NULL, INT64_MAX, 0};
    pthread_mutex_lock(&resident.lock);
    if (resident.process != getpid())
        find_resident_limits();
    resident.process = getpid();
    pthread_mutex_unlock(&resident.lock);
    if (resident.own_bytes == INT64_MAX && resident.group_count == 0)
        return tightest;
    i64 own = process_bytes("RssAnon:");
    if (resident.own_bytes < INT64_MAX)
        tightest = (struct memory_limit){"WEFT_MEMORY_LIMIT", resident.own_bytes, committed(own)};
    for (int i = 0; i < resident.group_count; i++) {
        const struct group_limit *g = &resident.groups[i];
        i64 others = max_i64(0, group_used(g) - own);
        struct memory_limit limit = {"its control group", g->bytes - g->bytes / 64, others + committed(own)};
        if (limit.bytes - limit.used < tightest.bytes - tightest.used)
            tightest = limit;
    }
    return tightest;
}

struct memory_room memory_room(void)
{
    struct memory_limit limit = resident_limit(), other = address_limit();
    if (other.name && other.bytes - other.used < limit.bytes - limit.used)
        limit = other;
    return (struct memory_room){limit.name, limit.bytes, limit.name ? max_i64(0, limit.bytes - limit.used) : INT64_MAX};
}

i64 memory_promised_since(void)
{
    i64 now = atomic_load(&promised), since = atomic_load(&promised_most) - atomic_load(&promised_then);
    atomic_store(&promised_then, now);
    atomic_store(&promised_most, now);
    return since;
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
    int length =
        limit->name
            ? snprintf(
                  text, sizeof text,
                  "\nweft: out of memory%s%s: %s, %s are in use or promised with it, and %s allows %s. Raise it%s%s\n",
                  doing ? " in " : "", doing ? doing : "", asked, held, limit->name, most,
                  advice ? ", or make smaller: " : "", advice ? advice : "")
            : snprintf(text, sizeof text,
                       "\nweft: out of memory%s%s: %s, and the system has no more. End other programs%s%s\n",
                       doing ? " in " : "", doing ? doing : "", asked, advice ? ", or make smaller: " : "",
                       advice ? advice : "");
    ssize_t written = write(STDERR_FILENO, text, (size_t)min_i64(length, (i64)sizeof text - 1));
    (void)written;
    text[length < (int)sizeof text ? length - 1 : (int)sizeof text - 1] = 0;
    fatal_tell(text + strlen("\nweft: "));
    temporaries_remove();
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

/* Checks anew when the sum has grown by a step; what was there at a time may be there again. */
void memory_promise(i64 bytes, const char *what)
{
    enum { STEP_BYTES = 4 << 20 };
    i64 sum = atomic_fetch_add(&promised, bytes) + bytes, most = atomic_load(&promised_most);
    char size[32], asked[256];
    while (sum > most && !atomic_compare_exchange_weak(&promised_most, &most, sum))
        ;
    if (bytes <= 0 || sum <= atomic_load(&expected_most))
        return;
    struct memory_limit limit = resident_limit();
    atomic_store(&expected_most, sum + STEP_BYTES);
    if (!limit.name || limit.used + (bytes < STEP_BYTES ? STEP_BYTES : 0) <= limit.bytes)
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
    out_of_memory("%s cannot start: %s; the user may have %lld %s (ulimit -u), and the control group may allow "
                  "fewer (pids.max): end other programs, or set WEFT_THREADS to a smaller number",
                  what, strerror(code), most, plural(most, "thread", "threads"));
}

/* ---- The stack ---- */

int stack_check(void)
{
    enum { LEAST = 1 << 20, WANTED = 8 << 20 };
    struct rlimit limit;
    pthread_attr_t attributes;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= LEAST)
        return 0;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < WANTED ? limit.rlim_max : WANTED;
    if (limit.rlim_cur < LEAST || setrlimit(RLIMIT_STACK, &limit))
        return error_set("the limit of the stack is %lld KiB (ulimit -s): expected at least %d",
                         (long long)before >> 10, LEAST >> 10);
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, limit.rlim_cur) == 0) /* a default is that of the start, too low */
        pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
    return 0;
}
