/* Keeps the query strings of addresses, mostly signatures that grant access for a while. They stay
 * in this process and the ones it starts to fill rings. Addresses are known, written and shown
 * without them, so that a new signature does not change anything made from the file. */
#define _GNU_SOURCE /* memfd_create */
#include "data/remote/remote.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct signed_address {
    char *address, *query; /* query: begins with `?` */
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct signed_address *known; /* sorted by address */
static i64 known_count, known_capacity;

static int compare_addresses(const void *a, const void *b)
{
    return strcmp(((const struct signed_address *)a)->address, ((const struct signed_address *)b)->address);
}

static struct signed_address *find(const char *address)
{
    struct signed_address wanted = {.address = (char *)(uintptr_t)address};
    return known_count ? bsearch(&wanted, known, (size_t)known_count, sizeof wanted, compare_addresses) : NULL;
}

/* Appends at the end; call sort_unique() afterwards to sort. */
static void append(char *address, const char *query)
{
    if (known_count == known_capacity) {
        i64 next = max_i64(64, 2 * known_capacity), size = sizeof *known;
        known = memory_resize(known, known_capacity * size, next * size);
        known_capacity = next;
    }
    known[known_count++] = (struct signed_address){address, string_copy(query)};
}

/* Sorts the list and removes duplicates. An address with two different queries is an error. */
static int sort_unique(void)
{
    const char *twice = NULL;
    i64 kept = 0;
    qsort(known, (size_t)known_count, sizeof *known, compare_addresses);
    for (i64 i = 0; i < known_count; i++) {
        if (kept == 0 || strcmp(known[kept - 1].address, known[i].address) != 0) {
            known[kept++] = known[i];
            continue;
        }
        twice = strcmp(known[kept - 1].query, known[i].query) != 0 ? known[kept - 1].address : twice;
        memory_free(known[i].address);
        memory_free(known[i].query);
    }
    known_count = kept;
    return twice ? error_set("%s: given with two different queries: files are identified by the part before the `?`",
                             twice)
                 : 0;
}

/* Copies the pattern without its queries; each reaches from `?` to the end of its word. */
static char *without_queries(const char *pattern)
{
    struct buffer out = {0};
    bool inside = false;
    buffer_append(&out, "", 0);
    for (const char *at = pattern; *at;) {
        size_t length = strcspn(at, "?");
        for (size_t i = 0; i < length; i++)
            inside = at[i] == '{' || (inside && at[i] != '}');
        buffer_append(&out, at, (i64)length);
        at += length;
        at += *at ? strcspn(at, inside ? ",}" : "") : 0;
    }
    return out.data;
}

static int remember(const char *pattern)
{
    char **addresses;
    i64 count;
    if (address_expand(&addresses, &count, pattern) < 0)
        return error_set(
            "%.*s: the ranges of an address with `?`: expected {000..127} or {a,b} before it, or {a?.., b?..}, "
            "in which `,` is %%2C",
            (int)strcspn(pattern, "?{"), pattern);
    pthread_mutex_lock(&lock);
    for (i64 i = 0; i < count; i++) {
        const char *query = strchr(addresses[i], '?');
        if (query)
            append(string_format("%.*s", (int)(query - addresses[i]), addresses[i]), query);
    }
    int status = sort_unique();
    pthread_mutex_unlock(&lock);
    string_list_free(addresses, count);
    return status;
}

int address_hide(char **out, const char *pattern)
{
    bool has = strncmp(pattern, "s3:", 3) != 0 && strchr(pattern, '?') && !strchr(pattern, '#');
    *out = NULL;
    if (has && remember(pattern) < 0)
        return -1;
    *out = has ? without_queries(pattern) : string_copy(pattern);
    return 0;
}

void address_share_query(const char *to, const char *from)
{
    pthread_mutex_lock(&lock);
    const struct signed_address *source = find(from);
    if (source && !find(to)) {
        append(string_copy(to), source->query);
        sort_unique();
    }
    pthread_mutex_unlock(&lock);
}

char *address_with_query(const char *address)
{
    pthread_mutex_lock(&lock);
    const struct signed_address *found = find(address);
    char *whole = string_format("%s%s", address, found ? found->query : "");
    pthread_mutex_unlock(&lock);
    return whole;
}

/* ---- Transfer to another process: lines ADDRESS?QUERY ---- */

int address_queries_file(void)
{
    struct buffer all = {0};
    pthread_mutex_lock(&lock);
    for (i64 i = 0; i < known_count; i++)
        buffer_printf(&all, "%s%s\n", known[i].address, known[i].query);
    pthread_mutex_unlock(&lock);
    int descriptor = all.length ? memfd_create("addresses", MFD_CLOEXEC) : -1;
    if (descriptor >= 0 && write(descriptor, all.data, (size_t)all.length) != all.length) {
        close(descriptor);
        descriptor = -1;
    }
    buffer_release(&all);
    return descriptor;
}

int address_queries_take(int descriptor)
{
    struct stat status;
    if (fstat(descriptor, &status))
        return error_errno("descriptor %d of addresses", descriptor);
    char *all = memory_alloc((i64)status.st_size + 1), *end;
    if (pread(descriptor, all, (size_t)status.st_size, 0) != status.st_size) {
        memory_free(all);
        return error_errno("descriptor %d of addresses cannot be read", descriptor);
    }
    all[status.st_size] = 0;
    pthread_mutex_lock(&lock);
    for (char *at = all; (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        char *query = strchr(at, '?');
        if (query)
            append(string_format("%.*s", (int)(query - at), at), query);
    }
    int result = sort_unique();
    pthread_mutex_unlock(&lock);
    memory_free(all);
    close(descriptor);
    return result;
}
