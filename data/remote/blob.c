#include "data/remote/blob.h"

#include "core/inventory.h"
#include "data/remote/remote.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Limit for addresses, since lengths stated in a file may be wrong. */
#define SPAN_BYTES_MOST ((i64)1 << 33)

/* Larger files that a stage made are read piece by piece, unverified. */
#define VERIFIED_BYTES_MOST ((i64)1 << 28)

struct blob {
    char *path;
    struct remote *remote; /* NULL: a local file, described by the fields below */
    int descriptor;
    i64 bytes, at; /* at: position of blob_read */
    struct file_view view;
};

struct blob *blob_open(const char *path)
{
    struct stat status;
    struct blob *b = memory_alloc(sizeof *b);
    *b = (struct blob){.path = string_copy(path), .descriptor = -1, .bytes = -1};
    if (is_address(path)) {
        b->remote = remote_open(path);
        if (b->remote)
            return b;
    } else {
        b->descriptor =
            file_bytes(path) <= VERIFIED_BYTES_MOST && inventory_verify_file(path) < 0 ? -1 : file_open(path);
        if (b->descriptor >= 0 && fstat(b->descriptor, &status) == 0) {
            b->bytes = S_ISREG(status.st_mode) ? (i64)status.st_size : -1;
            return b;
        }
        if (b->descriptor >= 0)
            error_errno("%s: cannot be read", path);
    }
    blob_close(b);
    return NULL;
}

i64 blob_bytes(struct blob *b)
{
    return b->remote ? remote_bytes(b->remote) : b->bytes;
}

i64 blob_read(struct blob *b, void *out, i64 most)
{
    ssize_t count;
    if (b->remote)
        return remote_read(b->remote, out, most);
    do
        count = read(b->descriptor, out, (size_t)most);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return error_errno("%s: byte %lld: cannot be read", b->path, (long long)b->at);
    b->at += count;
    return count;
}

i64 blob_skip(struct blob *b, i64 bytes)
{
    i64 passed = b->bytes >= 0 ? max_i64(0, min_i64(bytes, b->bytes - b->at)) : 0;
    if (b->remote || passed == 0 || lseek(b->descriptor, passed, SEEK_CUR) < 0)
        return 0;
    b->at += passed;
    return passed;
}

static int read_local(struct blob *b, void *out, i64 offset, i64 bytes)
{
    for (i64 done = 0; done < bytes;) {
        ssize_t count = pread(b->descriptor, (char *)out + done, (size_t)(bytes - done), (off_t)(offset + done));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return error_errno("%s: byte %lld: cannot be read", b->path, (long long)(offset + done));
        if (count == 0)
            return error_set("%s: byte %lld: the file ends, expected %lld %s more", b->path, (long long)(offset + done),
                             (long long)(bytes - done), plural(bytes - done, "byte", "bytes"));
        done += count;
    }
    return 0;
}

int blob_read_at(struct blob *b, void *out, i64 offset, i64 bytes)
{
    return b->remote ? remote_read_at(b->remote, out, offset, bytes) : read_local(b, out, offset, bytes);
}

void blob_close(struct blob *b)
{
    if (!b)
        return;
    remote_close(b->remote);
    if (b->descriptor >= 0)
        close(b->descriptor);
    file_unmap(&b->view);
    memory_free(b->path);
    memory_free(b);
}

/* ---- Spans ---- */

static int map_span(struct blob *b, struct blob_span *out, i64 offset, i64 bytes)
{
    if (!b->view.data && file_map(&b->view, b->path) < 0)
        return -1;
    if (offset > b->view.bytes || bytes > b->view.bytes - offset)
        return error_set("%s: byte %lld: the file ends, expected %lld %s more", b->path, (long long)b->view.bytes,
                         (long long)(offset + bytes - b->view.bytes),
                         plural(offset + bytes - b->view.bytes, "byte", "bytes"));
    *out = (struct blob_span){b->view.data + offset, bytes, NULL};
    return 0;
}

int blob_span(struct blob *b, struct blob_span *out, i64 offset, i64 bytes)
{
    *out = (struct blob_span){0};
    if (!b->remote)
        return map_span(b, out, offset, bytes);
    if (bytes > SPAN_BYTES_MOST)
        return error_set("%s: byte %lld: %lld %s at once, of an address at most %lld: copy the file to this machine",
                         b->path, (long long)offset, (long long)bytes, plural(bytes, "byte", "bytes"),
                         (long long)SPAN_BYTES_MOST);
    void *memory = memory_alloc(max_i64(1, bytes));
    *out = (struct blob_span){memory, bytes, memory};
    if (remote_read_at(b->remote, memory, offset, bytes) == 0)
        return 0;
    blob_span_release(out);
    return -1;
}

/* Releases a span. Mapped pages are dropped from memory; they are read again if needed. */
void blob_span_release(struct blob_span *span)
{
    u64 page = (u64)sysconf(_SC_PAGESIZE), first = (u64)(uintptr_t)span->data;
    u64 begin = first & ~(page - 1), end = (first + (u64)span->bytes) & ~(page - 1);
    if (span->bytes && !span->memory && end > begin)
        madvise((void *)(uintptr_t)begin, end - begin, MADV_DONTNEED);
    memory_free(span->memory);
    *span = (struct blob_span){0};
}
