#define _GNU_SOURCE /* RTLD_NEXT, renameat2 */
#include "tests/faults/inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FRAMES_MOST = 16 };
struct fault_plan *fault_plan;
static bool counting;

void faults_begin(void)
{
    counting = true;
}

/* Counts a call. True, with errno, if it is to fail. */
static bool fails(enum fault_kind kind)
{
    struct fault_plan *p = fault_plan;
    if (!p || !counting)
        return false;
    i64 number = __atomic_add_fetch(&p->calls[kind], 1, __ATOMIC_RELAXED);
    if (kind != p->kind || !p->number || (p->lasts ? number < p->number : number != p->number))
        return false;
    p->failed++;
    if (p->shown) {
        void *frames[FRAMES_MOST];
        counting = false; /* backtrace takes memory */
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MOST), STDERR_FILENO);
        counting = true;
    }
    errno = p->error;
    return true;
}

/* Messages are not the point: output to terminals and pipes passes. */
static bool fails_for(int descriptor, enum fault_kind kind)
{
    return descriptor > STDERR_FILENO && fails(kind);
}

#define NEXT(result, name, ...)                                                                                        \
    static result (*next)(__VA_ARGS__);                                                                                \
    if (!next)                                                                                                         \
    *(void **)&next = dlsym(RTLD_NEXT, #name)

/* ---- Files ---- */

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails(FAULT_OPEN) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

FILE *fopen(const char *path, const char *mode)
{
    NEXT(FILE *, fopen, const char *, const char *);
    return fails(FAULT_OPEN) ? NULL : next(path, mode);
}

DIR *opendir(const char *path)
{
    NEXT(DIR *, opendir, const char *);
    return fails(FAULT_OPEN) ? NULL : next(path);
}

ssize_t read(int descriptor, void *data, size_t bytes)
{
    return fails_for(descriptor, FAULT_READ) ? -1 : syscall(SYS_read, descriptor, data, bytes);
}

ssize_t pread(int descriptor, void *data, size_t bytes, off_t offset)
{
    return fails_for(descriptor, FAULT_READ) ? -1 : syscall(SYS_pread64, descriptor, data, bytes, offset);
}

struct dirent *readdir(DIR *directory)
{
    NEXT(struct dirent *, readdir, DIR *);
    return fails(FAULT_READ) ? NULL : next(directory);
}

ssize_t write(int descriptor, const void *data, size_t bytes)
{
    if (fails_for(descriptor, FAULT_WRITE))
        return -1;
    return syscall(SYS_write, descriptor, data, bytes > 1 && fails_for(descriptor, FAULT_SHORT) ? bytes / 2 : bytes);
}

ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t offset)
{
    return fails_for(descriptor, FAULT_WRITE) ? -1 : syscall(SYS_pwrite64, descriptor, data, bytes, offset);
}

int fflush(FILE *file)
{
    NEXT(int, fflush, FILE *);
    return file && fileno(file) > STDERR_FILENO && fails(FAULT_WRITE) ? EOF : next(file);
}

int fsync(int descriptor)
{
    return fails(FAULT_SYNC) ? -1 : (int)syscall(SYS_fsync, descriptor);
}

int fdatasync(int descriptor)
{
    return fails(FAULT_SYNC) ? -1 : (int)syscall(SYS_fdatasync, descriptor);
}

int close(int descriptor)
{
    int status = (int)syscall(SYS_close, descriptor);
    return fails_for(descriptor, FAULT_CLOSE) ? -1 : status;
}

int fclose(FILE *file)
{
    NEXT(int, fclose, FILE *);
    int status = next(file);
    return fails(FAULT_CLOSE) ? EOF : status;
}

int rename(const char *from, const char *to)
{
    return fails(FAULT_RENAME) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return fails(FAULT_RENAME) ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int link(const char *from, const char *to)
{
    return fails(FAULT_RENAME) ? -1 : (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path)
{
    return fails(FAULT_REMOVE) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return fails(FAULT_REMOVE) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

int remove(const char *path)
{
    NEXT(int, remove, const char *);
    return fails(FAULT_REMOVE) ? -1 : next(path);
}

int mkdir(const char *path, mode_t mode)
{
    return fails(FAULT_DIRECTORY) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int ftruncate(int descriptor, off_t bytes)
{
    return fails(FAULT_TRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, descriptor, bytes);
}

int stat(const char *path, struct stat *out)
{
    return fails(FAULT_STATUS) ? -1 : fstatat(AT_FDCWD, path, out, 0);
}

int lstat(const char *path, struct stat *out)
{
    return fails(FAULT_STATUS) ? -1 : fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

int fstat(int descriptor, struct stat *out)
{
    return fails_for(descriptor, FAULT_STATUS) ? -1 : fstatat(descriptor, "", out, AT_EMPTY_PATH);
}

/* ---- Memory ---- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
extern char __executable_start, etext;

static bool memory_fails(const void *caller)
{
    const char *at = caller;
    int before = errno;
    bool failed = fails(at >= &__executable_start && at < &etext ? FAULT_MEMORY : FAULT_LIBRARY);
    errno = failed ? ENOMEM : before;
    return failed;
}

#define MEMORY_FAILS() memory_fails(__builtin_return_address(0))

void *mmap(void *at, size_t bytes, int access, int flags, int descriptor, off_t offset)
{
    if (descriptor < 0 ? MEMORY_FAILS() : fails(FAULT_MAP))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, access, flags, descriptor, offset);
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

void *malloc(size_t bytes)
{
    return MEMORY_FAILS() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return MEMORY_FAILS() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return MEMORY_FAILS() ? NULL : __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return MEMORY_FAILS() ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = MEMORY_FAILS() ? NULL : __libc_memalign(alignment, bytes);
    *out = block;
    return block ? 0 : ENOMEM;
}
