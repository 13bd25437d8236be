/* The mounts of a sandboxed program, and where it may open files for writing. program_calls.c has its
 * system calls. */
#define _GNU_SOURCE /* O_PATH */
#include "rl/program_sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    bool written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0)
        close(file);
    return written ? 0 : -1;
}

/* ---- Mounts ---- */

/* Makes all mounts read-only and without devices. */
static int restrict_mounts(void)
{
    enum { READ_ONLY = 1, NO_SET_USER_ID = 2, NO_DEVICES = 4 }; /* MOUNT_ATTR_RDONLY, _NOSUID, _NODEV */
    enum { RECURSIVE = 0x8000 };                                /* AT_RECURSIVE */
    struct {
        u64 set, clear, propagation, user_namespace;
    } attributes = {.set = READ_ONLY | NO_SET_USER_ID | NO_DEVICES};
    return (int)syscall(SYS_mount_setattr, -1, "/", RECURSIVE, &attributes, sizeof attributes);
}

static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};

/* Opens the devices as mounts of their own, which restrict_mounts does not change. Those but the first,
 * which every shell needs, may be missing (-1). */
static int open_devices(int *out)
{
    enum { CLONE = 1 }; /* OPEN_TREE_CLONE */
    for (int i = COUNT_OF(devices) - 1; i >= 0; i--)
        out[i] = (int)syscall(SYS_open_tree, AT_FDCWD, devices[i], CLONE | O_CLOEXEC);
    return out[0] < 0 ? -1 : 0;
}

/* A user who is not root here may not make devices, so those of the system are mounted. */
static int make_dev(const int *opened, const char *room)
{
    static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
                                           {"/proc/self/fd/0", "/dev/stdin"},
                                           {"/proc/self/fd/1", "/dev/stdout"},
                                           {"/proc/self/fd/2", "/dev/stderr"}};
    enum { FROM_DESCRIPTOR = 4 }; /* MOVE_MOUNT_F_EMPTY_PATH */
    if (mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=64k,nr_inodes=64"))
        return -1;
    for (int i = 0; i < COUNT_OF(devices); i++) {
        int file = opened[i] < 0 ? -1 : open(devices[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (file < 0)
            continue;
        close(file);
        if (syscall(SYS_move_mount, opened[i], "", AT_FDCWD, devices[i], FROM_DESCRIPTOR))
            return -1;
        close(opened[i]);
    }
    for (int i = 0; i < COUNT_OF(links); i++)
        if (symlink(links[i][0], links[i][1]))
            return -1;
    if (mkdir("/dev/shm", 0755) || mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, room))
        return -1;
    return mount(NULL, "/dev", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

const char *sandbox_enter(struct sandbox_plan *plan)
{
    int opened[COUNT_OF(devices)];
    if (write_text("/proc/self/setgroups", "deny") || write_text("/proc/self/uid_map", plan->id_map[0]) ||
        write_text("/proc/self/gid_map", plan->id_map[1]))
        return "mapping users";
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return "private mounts";
    if (open_devices(opened))
        return "/dev/null";
    if (restrict_mounts())
        return "read-only mounts (Linux 5.12 or newer)";
    if (make_dev(opened, plan->room))
        return "a /dev of its own";
    /* /proc shows the processes of the namespace only; a container may refuse that, not hiding it. */
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL) &&
        mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, NULL))
        return "hiding processes";
    return NULL;
}

/* ---- Files for writing ---- */

/* A named pipe on a read-only mount can be opened for writing. Landlock forbids that; it may be
 * missing. It also forbids renaming between folders unless that is named (from its version 2). */
static int bar_writing(bool *missing)
{
    int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    *missing = version < 1;
    if (*missing)
        return 0;
    u64 access = LANDLOCK_ACCESS_FS_WRITE_FILE | (version > 1 ? LANDLOCK_ACCESS_FS_REFER : 0);
    struct landlock_ruleset_attr handled = {.handled_access_fs = access};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    struct landlock_path_beneath_attr own = {.allowed_access = access,
                                             .parent_fd = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (rules < 0 || own.parent_fd < 0 || syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &own, 0))
        return -1;
    return (int)syscall(SYS_landlock_restrict_self, rules, 0); /* exec closes both */
}

const char *sandbox_restrict(struct sandbox_plan *plan)
{
    if (bar_writing(&plan->open_pipes))
        return "Landlock";
    return sandbox_bar_calls() ? "a filter of system calls" : NULL;
}
