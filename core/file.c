#define _GNU_SOURCE /* renameat2, nftw */
#include "core/inventory.h"
#include "core/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BUFFER_BYTES ((i64)1 << 16)
#define OPEN_DIRECTORIES 32

/* ---- Opening ---- */

/* True for names of a descriptor, under which a shell hands over a pipe: /dev/stdin, and /dev/fd/63 or
 * /proc/self/fd/63 for <(COMMAND). */
static bool names_stream(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    for (i64 i = 0; i < COUNT_OF(folders); i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(path, folders[i], length) == 0 && path[length] &&
            !path[length + strspn(path + length, "0123456789")])
            return true;
    }
    return strcmp(path, "/dev/stdin") == 0;
}

/* Refuses what is no file. A stream may be a pipe or a device, such as a terminal. */
static int check_kind(const struct stat *status, const char *path, bool streams)
{
    mode_t mode = status->st_mode;
    bool stream = streams && names_stream(path) && (S_ISFIFO(mode) || S_ISCHR(mode));
    if (S_ISREG(mode) || stream)
        return 0;
    return error_set("%s: expected a file, found %s", path,
                     S_ISDIR(mode)    ? "a directory"
                     : S_ISFIFO(mode) ? "a named pipe"
                     : S_ISSOCK(mode) ? "a socket"
                                      : "a device");
}

/* The first look spares devices an open, which may act on them. The second is at what was opened,
 * which may have changed since. Opening a pipe without O_NONBLOCK waits for a writer. */
static int open_kind(const char *path, int how, bool streams)
{
    struct stat status;
    if (stat(path, &status) == 0 && check_kind(&status, path, streams) < 0)
        return -1;
    int descriptor = open(path, how | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (descriptor < 0)
        return error_errno("%s: cannot be opened", path);
    int flags = fcntl(descriptor, F_GETFL);
    int result =
        fstat(descriptor, &status) < 0 ? error_errno("%s: cannot be opened", path) : check_kind(&status, path, streams);
    if (result == 0 && (flags < 0 || fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) < 0))
        result = error_errno("%s: cannot be opened", path);
    if (result == 0)
        return descriptor;
    close(descriptor);
    return -1;
}

int file_open(const char *path)
{
    return open_kind(path, O_RDONLY, true);
}

int file_open_append(const char *path)
{
    return open_kind(path, O_WRONLY | O_APPEND | O_CREAT, false);
}

/* ---- Mappings ---- */

struct file_mapping {
    const u8 *data;
    i64 bytes;
    char *path, *shown; /* shown: escaped, for a message out of a signal handler */
    struct file_mapping *next;
};
/* Nothing is read from a mapped file while the lock is held, so a fault cannot find its own thread
 * holding it. */
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct file_mapping *mappings;
static struct sigaction handled_before;

/* Ends the program with a message when a page of a mapped file cannot be read. Any other fault is
 * left to the handler that was installed before. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    const u8 *at = info->si_addr;
    pthread_mutex_lock(&mappings_lock);
    struct file_mapping *m = mappings;
    i64 page_bytes = sysconf(_SC_PAGESIZE);
    while (m && (at < m->data || at >= m->data + round_up(m->bytes, page_bytes)))
        m = m->next;
    if (m) {
        char text[4096];
        struct stat status;
        bool shorter = stat(m->path, &status) == 0 && status.st_size < m->bytes;
        int length = snprintf(text, sizeof text, "\nweft: %s: byte %lld cannot be read: %s\n", m->shown,
                              (long long)(at - m->data),
                              shorter ? "the file was made shorter while it was read; copy it again and run again"
                                      : "its disk or network failed; check them and run again");
        ssize_t written = write(STDERR_FILENO, text, (size_t)min_i64(length, (i64)sizeof text - 1));
        (void)written;
        text[length < (int)sizeof text ? length - 1 : (int)sizeof text - 1] = 0;
        fatal_tell(text + strlen("\nweft: "));
        temporaries_remove();
        _exit(STATUS_FAILED);
    }
    pthread_mutex_unlock(&mappings_lock);
    sigaction(number, &handled_before, NULL); /* the access is repeated */
}

static void handle_bus_errors(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, &handled_before);
}

static void note_mapping(const struct file_view *view, const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct file_mapping *m = memory_alloc(sizeof *m);
    *m = (struct file_mapping){
        .data = view->data, .bytes = view->bytes, .path = string_copy(path), .shown = text_escaped(path)};
    pthread_once(&once, handle_bus_errors);
    pthread_mutex_lock(&mappings_lock);
    m->next = mappings;
    mappings = m;
    pthread_mutex_unlock(&mappings_lock);
}

static void forget_mapping(const struct file_view *view)
{
    pthread_mutex_lock(&mappings_lock);
    struct file_mapping **at = &mappings;
    while (*at && (*at)->data != view->data)
        at = &(*at)->next;
    struct file_mapping *m = *at;
    if (m)
        *at = m->next;
    pthread_mutex_unlock(&mappings_lock);
    if (m) {
        memory_free(m->path);
        memory_free(m->shown);
    }
    memory_free(m);
}

/* A fault maps pages around it, too: 64 kB, or the whole block of the cache that the page lies in, of at
 * most AROUND_BYTES. Such windows are passed whole. */
void file_pass(const void *data, i64 bytes)
{
    enum { AROUND_BYTES = 2 << 20 };
    const u8 *at = data;
    pthread_mutex_lock(&mappings_lock);
    const struct file_mapping *m = mappings;
    while (m && (at < m->data || at + bytes > m->data + m->bytes))
        m = m->next;
    if (m) {
        i64 before = (at - m->data) / AROUND_BYTES * AROUND_BYTES;
        i64 end = min_i64(round_up(at + bytes - m->data, AROUND_BYTES), m->bytes);
        madvise((void *)(uintptr_t)(m->data + before), (size_t)(end - before), MADV_DONTNEED);
    }
    pthread_mutex_unlock(&mappings_lock);
}

static int map_descriptor(struct file_view *view, int descriptor, const char *path)
{
    struct stat status;
    if (fstat(descriptor, &status) < 0)
        return error_errno("%s: cannot be read", path);
    if (check_kind(&status, path, false) < 0)
        return -1;
    *view = (struct file_view){.data = (const u8 *)"", .bytes = 0};
    if (status.st_size == 0)
        return 0;
    void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED && errno == ENOMEM) /* not a fault of the file, which must not be skipped */
        memory_exhausted((i64)status.st_size, path);
    if (data == MAP_FAILED)
        return error_errno("%s: cannot be mapped into memory", path);
    *view = (struct file_view){.data = data, .bytes = (i64)status.st_size};
    note_mapping(view, path);
    return 0;
}

int file_map(struct file_view *view, const char *path)
{
    *view = (struct file_view){0};
    int descriptor = file_open(path);
    if (descriptor < 0)
        return -1;
    int status = map_descriptor(view, descriptor, path);
    close(descriptor);
    if (status == 0 && inventory_verify(path, view->data, view->bytes) < 0) {
        file_unmap(view);
        status = -1;
    }
    return status;
}

void file_unmap(struct file_view *view)
{
    if (view->bytes) {
        forget_mapping(view);
        munmap((void *)view->data, (size_t)view->bytes);
    }
    *view = (struct file_view){0};
}

/* ---- Whole files ---- */

static int refuse_size(const char *path, i64 most_bytes)
{
    return error_set("%s: more than %lld %s, too many for a file of its kind", path, (long long)most_bytes,
                     plural(most_bytes, "byte", "bytes"));
}

static int read_descriptor(struct buffer *out, int descriptor, const char *path, i64 most_bytes)
{
    struct stat file;
    if (fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode) && (i64)file.st_size > most_bytes)
        return refuse_size(path, most_bytes);
    char *buffer = memory_alloc(BUFFER_BYTES);
    ssize_t count;
    do {
        count = read(descriptor, buffer, (size_t)BUFFER_BYTES);
        if (count > 0)
            buffer_append(out, buffer, count);
    } while ((count > 0 && out->length <= most_bytes) || (count < 0 && errno == EINTR));
    int status = count < 0                  ? error_errno("%s: cannot be read", path)
                 : out->length > most_bytes ? refuse_size(path, most_bytes)
                                            : 0;
    memory_free(buffer);
    return status;
}

int file_read_most(struct buffer *out, const char *path, i64 most_bytes)
{
    buffer_clear(out);
    int descriptor = file_open(path);
    if (descriptor < 0)
        return -1;
    buffer_append(out, "", 0); /* an empty file is "", not NULL */
    int status = read_descriptor(out, descriptor, path, most_bytes);
    close(descriptor);
    if (status == 0)
        status = inventory_verify(path, out->data, out->length);
    if (status < 0)
        buffer_release(out);
    return status;
}

int file_read(struct buffer *out, const char *path)
{
    return file_read_most(out, path, FILE_READ_BYTES_MAX);
}

int file_replace(const char *path, const void *data, i64 bytes)
{
    struct file_writer writer;
    if (file_writer_open(&writer, path) < 0)
        return -1;
    file_write(&writer, data, bytes);
    return file_writer_commit(&writer);
}

int file_copy(const char *to, const char *from)
{
    struct file_writer writer;
    int descriptor = inventory_verify_file(from) < 0 ? -1 : file_open(from);
    int status = descriptor < 0 ? -1 : file_writer_open(&writer, to);
    ssize_t count = 1;
    char *buffer = memory_alloc(BUFFER_BYTES);
    while (status == 0 && (count > 0 || (count < 0 && errno == EINTR))) {
        count = read(descriptor, buffer, (size_t)BUFFER_BYTES);
        if (count > 0)
            file_write(&writer, buffer, count);
    }
    if (status == 0 && count < 0) {
        status = error_errno("%s: cannot be read", from);
        file_writer_abandon(&writer);
    } else if (status == 0) {
        status = file_writer_commit(&writer);
    }
    memory_free(buffer);
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

bool is_address(const char *path)
{
    return strncmp(path, "https://", 8) == 0 || strncmp(path, "http://", 7) == 0 || strncmp(path, "s3://", 5) == 0;
}

/* False if there is nothing at `path`. A disk that fails is no answer: it ends the program. */
static bool stat_or_end(struct stat *status, const char *path)
{
    if (stat(path, status) == 0)
        return true;
    if (errno == EIO || errno == ENOMEM || errno == ESTALE) {
        char text[4096];
        snprintf(text, sizeof text, "%s: it cannot be told if this is there: %s; check its disk and run again", path,
                 strerror(errno));
        fprintf(stderr, "\nweft: %s\n", text);
        fflush(NULL);
        fatal_tell(text);
        temporaries_remove();
        _exit(STATUS_FAILED);
    }
    return false;
}

bool file_exists(const char *path)
{
    struct stat status;
    return stat_or_end(&status, path);
}

bool file_is_directory(const char *path)
{
    struct stat status;
    return stat_or_end(&status, path) && S_ISDIR(status.st_mode);
}

i64 file_bytes(const char *path)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return error_errno("%s: cannot be read", path);
    return (i64)status.st_size;
}

int file_check_there(int descriptor, const char *path)
{
    struct stat opened, named;
    if (fstat(descriptor, &opened) == 0 && stat(path, &named) == 0 && opened.st_dev == named.st_dev &&
        opened.st_ino == named.st_ino)
        return 0;
    return error_set("%s: it was removed, moved or replaced while it was in use; what is written would be lost", path);
}

int directory_make_one(const char *path)
{
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && file_is_directory(path)))
        return 0;
    return error_errno("%s: cannot create the directory", path);
}

static int make_parents(const char *path)
{
    char *part = string_copy(path);
    int status = 0;
    for (char *slash = part + (*part != 0); status == 0 && (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        status = directory_make_one(part);
        *slash = '/';
    }
    memory_free(part);
    return status;
}

int directory_make(const char *path)
{
    return make_parents(path) ? -1 : directory_make_one(path);
}

static char *without_last_slashes(const char *path)
{
    char *bare = string_copy(path);
    for (size_t end = strlen(bare); end > 1 && bare[end - 1] == '/'; end--)
        bare[end - 1] = 0;
    return bare;
}

char *directory_make_temporary(const char *path)
{
    char *bare = without_last_slashes(path), *name;
    if (temporary_folder(&name, bare))
        error_errno("%s: cannot create a folder beside it", path);
    memory_free(bare);
    return name;
}

char *directory_make_beside(const char *path)
{
    char *bare = without_last_slashes(path);
    char *name = make_parents(bare) ? NULL : directory_make_temporary(bare);
    memory_free(bare);
    return name;
}

/* Visitors return 1 and set a message, so that -1 means that nftw itself failed. */
static int walk_tree(const char *path, __nftw_func_t visit)
{
    int status = nftw(path, visit, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS);
    if (status < 0)
        return error_errno("%s: cannot traverse the directory", path);
    return status ? -1 : 0;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    if (remove(path) == 0 || errno == ENOENT)
        return 0;
    error_errno("%s: cannot be removed", path);
    return 1;
}

int directory_remove(const char *path)
{
    struct stat status;
    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : error_errno("%s: cannot be removed", path);
    int result = walk_tree(path, remove_entry);
    inventory_forget();
    temporary_forget(path);
    return result;
}

/* The target of a link is not ours to sweep. */
static bool is_link(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISLNK(status.st_mode);
}

int directory_sweep(const char *path)
{
    char **names;
    i64 count;
    int status = directory_list(&names, &count, path);
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(path, names[i]);
        if (status == 0 && is_temporary(names[i]))
            status = directory_remove(below);
        else if (status == 0 && !is_link(below) && file_is_directory(below))
            status = directory_sweep(below);
        memory_free(below);
    }
    string_list_free(names, count);
    return status;
}

static int sync_path(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return error_errno("%s: cannot be opened to bring it to the disk", path);
    /* EINVAL: the file system does not support fsync. */
    int status = fsync(descriptor) == 0 || errno == EINVAL ? 0 : error_errno("%s: cannot be brought to the disk", path);
    close(descriptor);
    return status;
}

static int sync_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)place;
    return kind != FTW_NS && (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode)) && sync_path(path) < 0;
}

int directory_sync(const char *path)
{
    return walk_tree(path, sync_entry);
}

static int sync_parent(const char *path)
{
    char *parent = string_copy(path);
    i64 length = (i64)strlen(parent);
    while (length > 1 && parent[length - 1] == '/')
        length--;
    while (length > 0 && parent[length - 1] != '/')
        length--;
    parent[length] = 0;
    int status = sync_path(length ? parent : ".");
    memory_free(parent);
    return status;
}

/* Fallback for file systems without RENAME_EXCHANGE. `path` does not exist for a moment. */
static int replace_in_two_steps(const char *temporary, const char *path)
{
    char *aside = string_format("%s.old-%ld", path, (long)getpid());
    int status = 0;
    if (directory_remove(aside) < 0)
        status = -1;
    else if (rename(path, aside) < 0)
        status = error_errno("%s: cannot be moved aside", path);
    else if (rename(temporary, path) < 0) {
        status = error_errno("%s: cannot rename it to %s", temporary, path);
        if (rename(aside, path) < 0)
            status = error_prefix("what stood at %s is now at %s", path, aside);
    } else
        status = directory_remove(aside);
    memory_free(aside);
    return status;
}

static int exchange_or_rename(const char *temporary, const char *path)
{
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE) == 0)
        return directory_remove(temporary);
    if (errno == EINVAL || errno == ENOSYS)
        return replace_in_two_steps(temporary, path);
    if (errno == ENOENT && rename(temporary, path) == 0)
        return 0;
    return error_errno("%s: cannot rename it to %s", temporary, path);
}

int directory_replace(const char *temporary, const char *path)
{
    if (directory_sync(temporary) < 0 || exchange_or_rename(temporary, path) < 0)
        return -1;
    inventory_forget();
    temporary_forget(temporary);
    return sync_parent(path);
}

int file_check_new(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 ? error_set("%s exists: choose another name or remove it", path) : 0;
}

/* Fallback for file systems without RENAME_NOREPLACE. An empty folder, which only one process can
 * make, takes the name for a moment; a link to a file appears only if the name is free. */
static int rename_in_two_steps(const char *temporary, const char *path, bool folder)
{
    if (!folder)
        return link(temporary, path) ? -1 : unlink(temporary);
    if (mkdir(path, 0777))
        return -1;
    if (rename(temporary, path) == 0)
        return 0;
    int number = errno;
    rmdir(path);
    errno = number;
    return -1;
}

/* -1 and errno: EEXIST if `path` exists. */
static int rename_new(const char *temporary, const char *path, bool folder)
{
    int status = renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE);
    if (status && (errno == EINVAL || errno == ENOSYS))
        status = rename_in_two_steps(temporary, path, folder);
    if (status == 0)
        temporary_forget(temporary);
    return status;
}

static int error_taken(const char *path)
{
    return error_set("%s exists: another process made it in the meantime; choose another name or remove it", path);
}

int directory_rename_new(const char *temporary, const char *path)
{
    if (directory_sync(temporary) < 0)
        return -1;
    if (rename_new(temporary, path, true))
        return errno == EEXIST ? error_taken(path) : error_errno("%s: cannot rename it to %s", temporary, path);
    inventory_forget();
    return sync_parent(path);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char **read_names(DIR *directory, i64 *count)
{
    i64 capacity = 0;
    char **names = NULL;
    *count = 0;
    for (struct dirent *entry; errno = 0, (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (*count == capacity) {
            i64 larger = max_i64(16, 2 * capacity);
            names = memory_resize(names, capacity * (i64)sizeof *names, larger * (i64)sizeof *names);
            capacity = larger;
        }
        names[(*count)++] = string_copy(entry->d_name);
    }
    return names;
}

int directory_list(char ***names, i64 *count, const char *path)
{
    *names = NULL;
    *count = 0;
    DIR *directory = opendir(path);
    if (!directory)
        return error_errno("%s: the directory cannot be listed", path);
    *names = read_names(directory, count);
    int status = errno ? error_errno("%s: the directory cannot be listed", path) : 0;
    closedir(directory);
    if (status < 0) {
        string_list_free(*names, *count);
        *names = NULL;
        *count = 0;
    } else if (*count)
        qsort(*names, (size_t)*count, sizeof **names, compare_names);
    return status;
}

void string_list_free(char **names, i64 count)
{
    for (i64 i = 0; i < count; i++)
        memory_free(names[i]);
    memory_free(names);
}

char *path_join(const char *directory, const char *name)
{
    size_t length = strlen(directory);
    return string_format("%s%s%s", directory, length && directory[length - 1] != '/' ? "/" : "", name);
}

/* Resolves a symbolic link, so that a write replaces its target and keeps the link. */
static char *resolve_link(const char *path)
{
    struct stat status;
    if (lstat(path, &status) < 0 || !S_ISLNK(status.st_mode))
        return string_copy(path);
    char *real = realpath(path, NULL);
    char *copy = string_copy(real ? real : path);
    free(real);
    return copy;
}

static void writer_release(struct file_writer *writer)
{
    memory_free(writer->path);
    memory_free(writer->temporary);
    memory_free(writer->buffer);
    *writer = (struct file_writer){.descriptor = -1};
}

int file_writer_open(struct file_writer *writer, const char *path)
{
    struct stat status;
    *writer = (struct file_writer){.path = resolve_link(path)};
    /* Devices and pipes (/dev/stdout, /dev/null) are written directly: a rename would replace them. */
    bool direct = stat(writer->path, &status) == 0 && !S_ISREG(status.st_mode);
    writer->descriptor =
        direct ? open(writer->path, O_WRONLY | O_CLOEXEC) : temporary_file(&writer->temporary, writer->path);
    if (writer->descriptor < 0) {
        error_errno("%s: cannot be written", path);
        writer_release(writer);
        return -1;
    }
    writer->buffer = memory_alloc(BUFFER_BYTES);
    return 0;
}

int file_writer_open_new(struct file_writer *writer, const char *path)
{
    if (file_check_new(path) < 0 || file_writer_open(writer, path) < 0)
        return -1;
    writer->is_new = true;
    return 0;
}

static void write_through(struct file_writer *writer, const u8 *data, i64 bytes)
{
    while (bytes > 0 && !writer->failed_errno) {
        ssize_t count = write(writer->descriptor, data, (size_t)bytes);
        if (count < 0 && errno != EINTR)
            writer->failed_errno = errno;
        if (count > 0) {
            data += count;
            bytes -= count;
        }
    }
}

static void flush(struct file_writer *writer)
{
    write_through(writer, writer->buffer, writer->buffered_bytes);
    writer->buffered_bytes = 0;
}

void file_write(struct file_writer *writer, const void *data, i64 bytes)
{
    writer->written_bytes += bytes;
    if (bytes > BUFFER_BYTES - writer->buffered_bytes)
        flush(writer);
    if (bytes > BUFFER_BYTES) {
        write_through(writer, data, bytes);
    } else if (bytes > 0) {
        memcpy(writer->buffer + writer->buffered_bytes, data, (size_t)bytes);
        writer->buffered_bytes += bytes;
    }
}

void file_write_again(struct file_writer *writer, i64 at, const void *data, i64 bytes)
{
    flush(writer);
    while (bytes > 0 && !writer->failed_errno) {
        ssize_t count = pwrite(writer->descriptor, data, (size_t)bytes, at);
        if (count < 0 && errno != EINTR)
            writer->failed_errno = errno;
        if (count > 0) {
            data = (const char *)data + count;
            bytes -= count;
            at += count;
        }
    }
}

static int close_written(struct file_writer *writer)
{
    flush(writer);
    /* Only a file to be renamed must reach the disk first. Pipes cannot be synced. */
    if (!writer->failed_errno && writer->temporary && fsync(writer->descriptor) < 0 && errno != EINVAL)
        writer->failed_errno = errno;
    if (close(writer->descriptor) < 0 && !writer->failed_errno)
        writer->failed_errno = errno;
    if (!writer->failed_errno && writer->temporary &&
        (writer->is_new ? rename_new(writer->temporary, writer->path, false) : rename(writer->temporary, writer->path)))
        writer->failed_errno = errno;
    if (!writer->failed_errno)
        return 0;
    if (writer->is_new && writer->failed_errno == EEXIST)
        return error_taken(writer->path);
    errno = writer->failed_errno;
    return error_errno("%s: cannot be written (%lld %s)%s", writer->path, (long long)writer->written_bytes,
                       plural(writer->written_bytes, "byte", "bytes"),
                       writer->failed_errno == ENOSPC ? "; free disk space and run again" : "");
}

int file_writer_commit(struct file_writer *writer)
{
    int status = close_written(writer);
    if (status < 0 && writer->temporary)
        unlink(writer->temporary);
    if (writer->temporary)
        temporary_forget(writer->temporary);
    if (status == 0 && writer->temporary)
        status = sync_parent(writer->path);
    writer_release(writer);
    return status;
}

void file_writer_abandon(struct file_writer *writer)
{
    if (writer->descriptor >= 0)
        close(writer->descriptor);
    if (writer->temporary) {
        unlink(writer->temporary);
        temporary_forget(writer->temporary);
    }
    writer_release(writer);
}

/* ---- Disk space ---- */

static double spare_bytes(void)
{
    const char *text = getenv("WEFT_SPARE_BYTES");
    if (text && strcmp(text, "off") == 0)
        return -1e18;
    return text && *text ? strtod(text, NULL) : 16.0 * (1 << 20);
}

double disk_left(const char *path)
{
    struct statvfs disk;
    char *at = string_copy(path);
    int status;
    while ((status = statvfs(at, &disk)) < 0 && strcmp(at, "/") != 0 && strcmp(at, ".") != 0) {
        const char *slash = strrchr(at, '/');
        char *above = !slash        ? string_copy(".")
                      : slash == at ? string_copy("/")
                                    : string_format("%.*s", (int)(slash - at), at);
        memory_free(at);
        at = above;
    }
    memory_free(at);
    if (status < 0 || disk.f_blocks == 0)
        return NAN;
    return fmax(0, (double)disk.f_bavail * (double)disk.f_frsize - fmax(0, spare_bytes()));
}

int disk_check(const char *path, i64 bytes, const char *what)
{
    struct statvfs disk;
    if (statvfs(path, &disk) < 0 || disk.f_blocks == 0) /* the file system reports no size */
        return 0;
    double room = (double)disk.f_bavail * (double)disk.f_frsize, spare = spare_bytes();
    if (room >= (double)bytes + spare)
        return 0;
    return error_set(
        "%s: %.0f MB are free, and %s needs %.0f MB with %.0f MB to spare (WEFT_SPARE_BYTES): free disk space "
        "and run again",
        path, room * 1e-6, what, (double)bytes * 1e-6, spare * 1e-6);
}
