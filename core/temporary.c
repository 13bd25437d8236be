#define _GNU_SOURCE /* O_DIRECTORY */
#include "core/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char mark[] = ".tmp-", own_mark[] = "-weft";

/* ---- Names ---- */

/* Reads a number without leading zeros; -1: there is none. */
static i64 read_number(const char **at)
{
    size_t digits = strspn(*at, "0123456789");
    i64 number = digits == 0 || digits > 9 || (digits > 1 && **at == '0') ? -1 : strtoll(*at, NULL, 10);
    *at += digits;
    return number;
}

/* The process that made a temporary, from its name; -1: it is none. *own: of today's form. */
static i64 owner_of(const char *name, i64 *stem_bytes, bool *own)
{
    const char *at = NULL;
    for (const char *next = name; (next = strstr(next, mark)); next++)
        at = next;
    if (!at)
        return -1;
    *stem_bytes = at - name;
    at += sizeof mark - 1;
    i64 owner = read_number(&at);
    *own = strncmp(at, own_mark, sizeof own_mark - 1) == 0;
    at += *own ? (i64)sizeof own_mark - 1 : *at == '-';
    return owner > 0 && read_number(&at) >= 0 && !*at ? owner : -1;
}

bool is_temporary(const char *name)
{
    i64 bytes, length = (i64)strlen(name);
    bool own;
    return owner_of(name, &bytes, &own) > 0 || (length > 4 && strcmp(name + length - 4, ".tmp") == 0);
}

/* ---- Removal, by system calls only ---- */

enum { DEPTH_MOST = 12, ENTRIES_BYTES = 2048 };

struct linux_entry { /* of getdents64 */
    u64 inode;
    i64 next;
    u16 bytes;
    u8 kind;
    char name[];
};

static void remove_at(int folder, const char *name, int depth)
{
    _Alignas(8) char entries[ENTRIES_BYTES];
    long count;
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT || depth == DEPTH_MOST)
        return;
    int below = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
        return;
    while ((count = syscall(SYS_getdents64, below, entries, sizeof entries)) > 0)
        for (long at = 0; at < count;) {
            const struct linux_entry *e = (const struct linux_entry *)(entries + at);
            if (strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0)
                remove_at(below, e->name, depth + 1);
            at += e->bytes;
        }
    close(below);
    unlinkat(folder, name, AT_REMOVEDIR);
}

/* ---- The table ---- */

enum { SLOTS = 64 };
enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_LIVE };
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; /* a signal handler relies on `state` alone */
static struct temporary_slot {
    atomic_int state;
    _Atomic pid_t process; /* a fork inherits the table, but not what it lists */
    int lock;              /* a descriptor that holds the lock until the temporary is forgotten */
    char path[PATH_MAX];
} slots[SLOTS];

static bool change_state(struct temporary_slot *s, int from, int to)
{
    return atomic_compare_exchange_strong(&s->state, &from, to);
}

/* If the table is full, or a path too long, a signal leaves this temporary to the next sweep. */
static void list_temporary(const char *path, int lock)
{
    pthread_mutex_lock(&table_lock);
    for (i64 i = 0; i < SLOTS && lock >= 0 && strlen(path) < sizeof slots[0].path; i++) {
        struct temporary_slot *s = &slots[i];
        bool inherited = s->process != getpid() && change_state(s, SLOT_LIVE, SLOT_BUSY);
        if (!inherited && !change_state(s, SLOT_FREE, SLOT_BUSY))
            continue;
        s->process = getpid();
        s->lock = lock;
        lock = -1;
        strcpy(s->path, path);
        atomic_store(&s->state, SLOT_LIVE);
    }
    pthread_mutex_unlock(&table_lock);
    if (lock >= 0)
        close(lock);
}

void temporary_forget(const char *name)
{
    pthread_mutex_lock(&table_lock);
    for (i64 i = 0; i < SLOTS; i++) {
        struct temporary_slot *s = &slots[i];
        if (atomic_load(&s->state) != SLOT_LIVE || s->process != getpid() || strcmp(s->path, name) != 0 ||
            !change_state(s, SLOT_LIVE, SLOT_BUSY))
            continue;
        close(s->lock);
        atomic_store(&s->state, SLOT_FREE);
    }
    pthread_mutex_unlock(&table_lock);
}

static _Atomic(const char *) empty_folder, empty_but;

void temporaries_remove_empty(const char *folder, const char *only)
{
    atomic_store(&empty_folder, NULL);
    atomic_store(&empty_but, only);
    atomic_store(&empty_folder, folder);
}

/* Folders of more entries than fit into the block are not empty. */
static void remove_empty_folder(const char *path, const char *only)
{
    _Alignas(8) char entries[ENTRIES_BYTES];
    int folder = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    long count = folder < 0 ? 0 : syscall(SYS_getdents64, folder, entries, sizeof entries);
    bool others = count <= 0;
    for (long at = 0; at < count;) {
        const struct linux_entry *e = (const struct linux_entry *)(entries + at);
        others |= strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0 && strcmp(e->name, only) != 0;
        at += e->bytes;
    }
    if (!others && (unlinkat(folder, only, 0) == 0 || errno == ENOENT))
        rmdir(path);
    if (folder >= 0)
        close(folder);
}

void temporaries_remove(void)
{
    for (i64 i = 0; i < SLOTS; i++)
        if (slots[i].process == getpid() && change_state(&slots[i], SLOT_LIVE, SLOT_BUSY))
            remove_at(AT_FDCWD, slots[i].path, 0);
    remove_empty_folder(atomic_load(&empty_folder), atomic_load(&empty_but));
}

/* ---- Sweeping ---- */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* True if `descriptor` got the lock of the file or folder that has this name. Without locks on the
 * file system, false: then nobody can tell whether the owner lives. */
static bool lock_named(int descriptor, int folder, const char *name)
{
    struct stat opened, named;
    return flock(descriptor, LOCK_EX | LOCK_NB) == 0 && fstat(descriptor, &opened) == 0 &&
           fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && is_same(&opened, &named);
}

/* The lock tells of owners in other containers, and of those before a number was given again. The
 * number tells of older programs, which do not lock. */
static void sweep_entry(int folder, const char *name, const char *target)
{
    struct stat status;
    i64 stem_bytes;
    bool own;
    i64 owner = owner_of(name, &stem_bytes, &own);
    bool of_target = target && (i64)strlen(target) == stem_bytes && strncmp(name, target, (size_t)stem_bytes) == 0;
    if (owner < 0 || (!own && !of_target))
        return;
    if (owner != getpid() && (kill((pid_t)owner, 0) == 0 || errno != ESRCH))
        return;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) || status.st_uid != geteuid() ||
        (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)))
        return;
    int mode = S_ISDIR(status.st_mode) ? O_RDONLY | O_DIRECTORY : O_RDWR; /* NFS locks what is open for writing */
    int descriptor = openat(folder, name, mode | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return;
    if (lock_named(descriptor, folder, name))
        remove_at(folder, name, 0);
    close(descriptor);
}

void temporaries_sweep(const char *folder, const char *target)
{
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));)
        sweep_entry(dirfd(list), entry->d_name, target);
    if (list)
        closedir(list);
}

/* Sweeps each folder once, because a process may write many files into it. */
static void sweep_beside(const char *path)
{
    enum { FOLDERS = 64 };
    static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
    static struct stat swept[FOLDERS];
    static i64 count;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? string_format("%.*s", (int)(slash - path + 1), path) : string_copy(".");
    struct stat status;
    bool known = stat(folder, &status) != 0;
    pthread_mutex_lock(&guard);
    for (i64 i = 0; i < min_i64(count, FOLDERS) && !known; i++)
        known = is_same(&swept[i], &status);
    if (!known)
        swept[count++ % FOLDERS] = status;
    pthread_mutex_unlock(&guard);
    if (!known)
        temporaries_sweep(folder, slash ? slash + 1 : path);
    memory_free(folder);
}

/* ---- Making ---- */

/* A locked descriptor, or -1 and errno; EEXIST if the name is taken, or was swept before the lock. */
static int make_locked(const char *name, bool folder)
{
    if (folder && mkdir(name, 0777))
        return -1;
    int descriptor = folder ? open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                            : open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && folder && errno != ENOENT)
        rmdir(name);
    if (descriptor < 0)
        return -1;
    bool busy = flock(descriptor, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (!busy && access(name, F_OK) == 0)
        return descriptor;
    close(descriptor);
    errno = EEXIST;
    return -1;
}

static int make_temporary(char **name, const char *path, bool folder)
{
    static atomic_int next;
    sweep_beside(path);
    for (;;) {
        *name = string_format("%s%s%ld%s%d", path, mark, (long)getpid(), own_mark, atomic_fetch_add(&next, 1));
        int descriptor = make_locked(*name, folder), number = errno;
        if (descriptor >= 0) {
            list_temporary(*name, folder ? descriptor : fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
            return descriptor;
        }
        memory_free(*name);
        *name = NULL;
        errno = number;
        if (number != EEXIST)
            return -1;
    }
}

int temporary_file(char **name, const char *path)
{
    return make_temporary(name, path, false);
}

int temporary_folder(char **name, const char *path)
{
    return make_temporary(name, path, true) < 0 ? -1 : 0;
}
