#include "core/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

struct process_entry {
    pid_t id, parent;
    bool found;
};
struct process_table {
    struct process_entry *list;
    i64 count, capacity;
};

/* Reads the beginning of /proc/ID/FILE. An empty text: it cannot be read. */
static void read_text(char *text, size_t size, const char *id, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/%s", id, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = file >= 0 ? read(file, text, size - 1) : -1;
    if (file >= 0)
        close(file);
    text[max_i64(n, 0)] = 0;
}

static void read_entry(struct process_table *t, const char *name)
{
    char text[512];
    read_text(text, sizeof text, name, "stat");
    const char *behind = strrchr(text, ')'); /* the name in parentheses may have any characters */
    long parent;
    if (!behind || sscanf(behind, ") %*c %ld", &parent) != 1)
        return;
    if (t->count == t->capacity) {
        i64 next = max_i64(256, 2 * t->capacity), size = (i64)sizeof *t->list;
        t->list = memory_resize(t->list, t->capacity * size, next * size);
        t->capacity = next;
    }
    t->list[t->count++] = (struct process_entry){(pid_t)strtol(name, NULL, 10), (pid_t)parent, false};
}

static void read_table(struct process_table *t)
{
    DIR *folder = opendir("/proc");
    *t = (struct process_table){0};
    for (struct dirent *e; folder && (e = readdir(folder));)
        if (isdigit((unsigned char)e->d_name[0]))
            read_entry(t, e->d_name);
    if (folder)
        closedir(folder);
}

static int compare_entries(const void *a, const void *b)
{
    pid_t x = ((const struct process_entry *)a)->id, y = ((const struct process_entry *)b)->id;
    return (x > y) - (x < y);
}

static bool is_listed(const struct process_list *list, pid_t id)
{
    for (i64 i = 0; i < list->count; i++)
        if (list->ids[i] == id)
            return true;
    return false;
}

/* Marks all descendants, except for the children in the list and theirs. */
static i64 find_descendants(struct process_table *t, const struct process_list *apart)
{
    i64 count = 0;
    read_table(t);
    if (t->count)
        qsort(t->list, (size_t)t->count, sizeof *t->list, compare_entries);
    for (bool more = true; more;) {
        more = false;
        for (i64 i = 0; i < t->count; i++) {
            struct process_entry *e = &t->list[i];
            if (e->found)
                continue;
            const struct process_entry key = {.id = e->parent};
            const struct process_entry *parent = bsearch(&key, t->list, (size_t)t->count, sizeof key, compare_entries);
            e->found = e->parent == getpid() ? !is_listed(apart, e->id) : parent && parent->found;
            more |= e->found;
            count += e->found;
        }
    }
    return count;
}

void processes_note(struct process_list *children)
{
    struct process_table t;
    read_table(&t);
    *children = (struct process_list){memory_alloc(max_i64(t.count, 1) * (i64)sizeof *children->ids), 0, t.count};
    for (i64 i = 0; i < t.count; i++)
        if (t.list[i].parent == getpid())
            children->ids[children->count++] = t.list[i].id;
    memory_free(t.list);
}

void process_list_release(struct process_list *list)
{
    memory_free(list->ids);
    *list = (struct process_list){0};
}

/* The number behind a name at the beginning of a line; -1: there is none. */
static i64 number_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? (i64)strtoll(at + strlen(name), NULL, 10) : -1;
}

/* Reads the status of a process whose first thread may have ended: then that of another thread. */
static void read_status(char *text, size_t size, char *id)
{
    char path[64], alive[24];
    read_text(text, size, id, "status");
    if (number_of(text, "\nVmRSS:") >= 0 || number_of(text, "\nThreads:") < 2)
        return;
    snprintf(path, sizeof path, "/proc/%.20s/task", id);
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        snprintf(alive, sizeof alive, "%.20s", e->d_name);
        if (!isdigit((unsigned char)alive[0]))
            continue;
        read_text(text, size, alive, "status");
        if (number_of(text, "\nVmRSS:") < 0)
            continue;
        strcpy(id, alive);
        break;
    }
    if (folder)
        closedir(folder);
}

static void add_use(struct processes_use *out, pid_t process, bool share_out)
{
    char id[24], text[4096];
    snprintf(id, sizeof id, "%ld", (long)process);
    read_status(text, sizeof text, id);
    out->threads += max_i64(1, number_of(text, "\nThreads:"));
    i64 kb = max_i64(0, number_of(text, "\nVmRSS:")), swapped = max_i64(0, number_of(text, "\nVmSwap:"));
    i64 own = max_i64(0, number_of(text, "\nVmPTE:")) + max_i64(0, number_of(text, "\nHugetlbPages:"));
    if (share_out) {
        read_text(text, sizeof text, id, "smaps_rollup"); /* of another user: unreadable */
        i64 part = number_of(text, "\nPss:"), part_swapped = number_of(text, "\nSwapPss:");
        kb = part < 0 ? kb : part;
        swapped = part_swapped < 0 ? swapped : part_swapped;
    }
    out->bytes += 1024 * (kb + swapped + own);
}

void processes_measure(struct processes_use *out, const struct process_list *apart, i64 most, bool share_out)
{
    struct process_table t;
    *out = (struct processes_use){.processes = find_descendants(&t, apart)};
    for (i64 i = 0; i < t.count && out->processes <= most; i++)
        if (t.list[i].found)
            add_use(out, t.list[i].id, share_out);
    memory_free(t.list);
}

/* Each round kills what the last one did not see begin. */
bool processes_end(const struct process_list *apart)
{
    for (double begin = clock_s(); clock_s() - begin < 5;) {
        struct process_table t;
        i64 count = find_descendants(&t, apart);
        for (i64 i = 0; i < t.count; i++)
            if (t.list[i].found) {
                kill(t.list[i].id, SIGKILL);
                if (t.list[i].parent == getpid())
                    waitpid(t.list[i].id, NULL, WNOHANG);
            }
        memory_free(t.list);
        if (count == 0)
            return true;
        poll(NULL, 0, 1);
    }
    return false;
}

/* ---- Other processes ---- */

i64 process_began(pid_t id)
{
    char text[1024], name[24], state;
    long long began;
    snprintf(name, sizeof name, "%d", (int)id);
    read_text(text, sizeof text, name, "stat");
    const char *behind = strrchr(text, ')'); /* the state, 18 fields, and the 22nd of all */
    if (!behind || sscanf(behind, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld",
                          &state, &began) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : began; /* ended, but not waited for */
}

pid_t lock_holder(const char *path)
{
    struct stat status;
    char line[256];
    unsigned long long inode;
    unsigned device[2];
    long holder, exact = 0, other = 0; /* other: some file systems state another device than their locks */
    FILE *locks = stat(path, &status) == 0 ? fopen("/proc/locks", "re") : NULL;
    while (locks && fgets(line, sizeof line, locks)) /* 1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF */
        if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%llu", &holder, &device[0], &device[1], &inode) == 4 &&
            inode == status.st_ino) {
            if (device[0] == major(status.st_dev) && device[1] == minor(status.st_dev))
                exact = holder;
            other = holder;
        }
    if (locks)
        fclose(locks);
    return (pid_t)(exact ? exact : other);
}
