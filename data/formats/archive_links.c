#include "data/formats/archive_links.h"

#include "data/remote/blob.h"

#include <stdlib.h>
#include <string.h>

enum { HOPS_MOST = 16 }; /* links to links */

struct linked_member {
    u64 name, target; /* hashes; target: of a link, else 0 */
    i64 number, at, bytes;
};
struct archive_links {
    char *path;
    struct linked_member *members; /* by name, then by number; NULL: not read yet */
    i64 count, capacity;
    struct archive_file *cursor; /* for members that are compressed */
    i64 cursor_at;               /* number of its next member */
};

struct archive_links *archive_links_open(const char *path)
{
    struct archive_links *l = memory_alloc(sizeof *l);
    l->path = string_copy(path);
    return l;
}

void archive_links_close(struct archive_links *l)
{
    if (!l)
        return;
    archive_file_close(l->cursor);
    memory_free(l->members);
    memory_free(l->path);
    memory_free(l);
}

/* Hash of a name below `folder`, its first `length` bytes, without `.`, `..` and double slashes. A `..`
 * that leads out of the tar stays: ../a.png is not its a.png. */
static u64 name_hash(const char *folder, size_t length, const char *name)
{
    char *all = string_format("%.*s/%s", (int)length, folder, name), *out = string_copy(all), *end = out;
    for (char *save, *word = strtok_r(all, "/", &save); word; word = strtok_r(NULL, "/", &save)) {
        size_t bytes = strlen(word);
        if (strcmp(word, ".") == 0)
            continue;
        bool up = strcmp(word, "..") == 0;
        if (up && end > out && !(end - out >= 3 && memcmp(end - 3, "/..", 3) == 0)) {
            while (end > out && *--end != '/')
                ;
            continue;
        }
        *end++ = '/';
        memcpy(end, word, bytes);
        end += bytes;
    }
    u64 hash = hash_bytes(out, end - out, 0);
    memory_free(all);
    memory_free(out);
    return hash ? hash : 1;
}

static u64 target_hash(const char *name, const char *target, bool symbolic)
{
    const char *slash = symbolic && *target != '/' ? strrchr(name, '/') : NULL;
    return name_hash(name, slash ? (size_t)(slash - name) : 0, target);
}

static int compare_members(const void *a, const void *b)
{
    const struct linked_member *left = a, *right = b;
    if (left->name != right->name)
        return left->name < right->name ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* Lists all members. Behind damage nothing is listed: who reads the tar reports it. */
static int list_members(struct archive_links *l)
{
    const char *name;
    struct archive_file *file = archive_file_open(l->path, true);
    if (!file)
        return -1;
    while (archive_file_next(file, &name) == 1) {
        if (l->count == l->capacity) {
            i64 next = max_i64(256, 2 * l->capacity), size = (i64)sizeof *l->members;
            l->members = memory_resize(l->members, l->capacity * size, next * size);
            l->capacity = next;
        }
        bool symbolic;
        const char *target = archive_file_link(file, &symbolic);
        l->members[l->count] = (struct linked_member){
            .name = name_hash("", 0, name),
            .target = target ? target_hash(name, target, symbolic) : 0,
            .number = l->count,
            .at = archive_file_member_at(file),
            .bytes = archive_file_member_bytes(file),
        };
        l->count++;
    }
    archive_file_close(file);
    if (l->count)
        qsort(l->members, (size_t)l->count, sizeof *l->members, compare_members);
    return 0;
}

/* The member of a name: the last one in front of the member `number`, else the first one behind it. */
static const struct linked_member *find(const struct archive_links *l, u64 name, i64 number)
{
    i64 low = 0, high = l->count;
    while (low < high) {
        i64 middle = (low + high) / 2;
        const struct linked_member *m = &l->members[middle];
        if (m->name < name || (m->name == name && m->number < number))
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && l->members[low - 1].name == name)
        return &l->members[low - 1];
    return low < l->count && l->members[low].name == name ? &l->members[low] : NULL;
}

static int read_in_order(struct archive_links *l, struct buffer *out, const struct linked_member *m)
{
    const char *name;
    int status = 1;
    if (!l->cursor || l->cursor_at > m->number) {
        archive_file_close(l->cursor);
        l->cursor = archive_file_open(l->path, true);
        l->cursor_at = 0;
    }
    while (l->cursor && status == 1 && l->cursor_at <= m->number) {
        status = archive_file_next(l->cursor, &name);
        l->cursor_at++;
    }
    return l->cursor && status == 1 && archive_file_read_all(l->cursor, out) == 0 ? 1 : -1;
}

static int read_at(const struct archive_links *l, struct buffer *out, const struct linked_member *m)
{
    struct blob *blob = blob_open(l->path);
    struct blob_span span = {0};
    int status = blob ? blob_span(blob, &span, m->at, m->bytes) : -1;
    if (status == 0)
        buffer_append(out, span.data, m->bytes);
    if (status == 0)
        blob_span_release(&span);
    blob_close(blob);
    return status < 0 ? -1 : 1;
}

int archive_links_read(struct archive_links *l, struct buffer *out, i64 *at, const struct archive_link *link)
{
    if (!l->members && list_members(l) < 0)
        return -1;
    const struct linked_member *m = find(l, target_hash(link->name, link->target, link->symbolic), link->number);
    for (int hops = 0; m && m->target && hops < HOPS_MOST; hops++)
        m = find(l, m->target, m->number);
    if (!m || m->target)
        return 0;
    if (m->bytes > ARCHIVE_MEMBER_BYTES_MAX)
        return error_set("%s: a member of more than %d bytes", l->path, ARCHIVE_MEMBER_BYTES_MAX);
    *at = m->at;
    return m->at >= 0 ? read_at(l, out, m) : read_in_order(l, out, m);
}
