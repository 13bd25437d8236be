/* Lists the files at an address: named files, whose sizes are asked for, and folders at s3://. */
#include "core/thread.h"
#include "data/remote/remote.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 16, PAGE_BYTES_MOST = 1 << 26 };

void remote_list_release(struct remote_list *list)
{
    for (i64 i = 0; i < list->count; i++) {
        memory_free(list->objects[i].address);
        memory_free(list->objects[i].version);
    }
    memory_free(list->objects);
    memory_free(list->folder);
    *list = (struct remote_list){0};
}

void remote_list_add(struct remote_list *list, char *address, i64 bytes, char *version)
{
    if (list->count == list->capacity) {
        i64 next = max_i64(64, 2 * list->capacity), size = (i64)sizeof *list->objects;
        list->objects = memory_resize(list->objects, list->capacity * size, next * size);
        list->capacity = next;
    }
    list->objects[list->count++] = (struct remote_object){address, bytes, version};
}

/* ---- Sizes, several requests in parallel to hide latency ---- */

/* Sizes to ask for, shared by the threads. */
struct size_requests {
    struct remote_list *list;
    atomic_llong next;
    atomic_bool failed;
    pthread_mutex_t lock;
    char *problem; /* the first error */
};

static void *ask_sizes(void *context)
{
    struct size_requests *q = context;
    struct http *http = http_open();
    i64 i;
    while (!atomic_load(&q->failed) && (i = atomic_fetch_add(&q->next, 1)) < q->list->count) {
        struct remote_object *object = &q->list->objects[i];
        if (object->bytes >= 0 || (http && remote_stat(object, http) == 0))
            continue;
        pthread_mutex_lock(&q->lock);
        if (!q->problem)
            q->problem = string_copy(error_text());
        pthread_mutex_unlock(&q->lock);
        atomic_store(&q->failed, true);
    }
    http_close(http);
    return NULL;
}

static int find_sizes(struct remote_list *list)
{
    struct size_requests q = {.list = list};
    pthread_t threads[AT_ONCE];
    i64 unknown = 0;
    for (i64 i = 0; i < list->count; i++)
        unknown += list->objects[i].bytes < 0;
    i64 count = min_i64(AT_ONCE, unknown);
    pthread_mutex_init(&q.lock, NULL);
    for (i64 i = 0; i < count; i++)
        thread_start(&threads[i], ask_sizes, &q, "a thread to ask for sizes");
    for (i64 i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&q.lock);
    int status = interrupted() ? error_interrupted() : q.problem ? error_set("%s", q.problem) : 0;
    memory_free(q.problem);
    return status;
}

/* ---- Folders ---- */

static int list_folder(struct remote_list *list, const char *folder)
{
    char *prefix = string_format("%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/"), *token = NULL;
    int status = 0;
    do {
        struct buffer page = {0};
        struct http_target target;
        s3_listing_init(&target, prefix, token);
        memory_free(token);
        token = NULL;
        status = remote_ask(&page, PAGE_BYTES_MOST, &target, prefix);
        if (status == 0)
            status = s3_listing_read(list, &token, &page, prefix);
        http_target_release(&target);
        buffer_release(&page);
    } while (status == 0 && token);
    memory_free(token);
    memory_free(prefix);
    return status;
}

/* Orders addresses like a recursive walk: a slash sorts before all characters but after the end of
 * a name. */
static int compare_objects(const void *a, const void *b)
{
    const char *x = ((const struct remote_object *)a)->address, *y = ((const struct remote_object *)b)->address;
    while (*x && *x == *y)
        x++, y++;
    int left = *x == '/' ? 1 : 2 * (u8)*x, right = *y == '/' ? 1 : 2 * (u8)*y;
    return left - right;
}

/* Megatron's index and token ids. */
static const char *const pair[] = {".idx", ".bin"};

static bool is_of_pair(const char *address)
{
    size_t length = strlen(address), end = strlen(pair[0]);
    return length > end &&
           (strcmp(address + length - end, pair[0]) == 0 || strcmp(address + length - end, pair[1]) == 0);
}

/* Adds a file. Either file of a Megatron pair adds both. */
static void add_file(struct remote_list *list, const char *address)
{
    if (!is_of_pair(address)) {
        remote_list_add(list, string_copy(address), -1, NULL);
        return;
    }
    for (i64 i = 0; i < COUNT_OF(pair); i++) {
        char *name = string_format("%.*s%s", (int)(strlen(address) - strlen(pair[i])), address, pair[i]);
        address_share_query(name, address);
        remote_list_add(list, name, -1, NULL);
    }
}

/* Removes duplicates of Megatron pairs that were named by both files. `list` must be sorted. */
static void drop_repeated(struct remote_list *list)
{
    i64 kept = 0;
    for (i64 i = 0; i < list->count; i++) {
        struct remote_object *object = &list->objects[i];
        bool repeated =
            is_of_pair(object->address) && kept && strcmp(list->objects[kept - 1].address, object->address) == 0;
        if (repeated) {
            memory_free(object->address);
            memory_free(object->version);
        } else {
            list->objects[kept++] = *object;
        }
    }
    list->count = kept;
}

static int add_address(struct remote_list *list, const char *address, bool (*is_file)(const char *))
{
    if (is_file(address)) {
        add_file(list, address);
        return 0;
    }
    if (strncmp(address, "s3:", 3) == 0)
        return list_folder(list, address);
    return error_set("%s: unknown file type, and HTTP has no folder listings: expected .tar, "
                     ".jsonl, .parquet, .arrow, ... such as https://HOST/shard-{000..127}.tar",
                     address);
}

/* The pattern up to the last slash before its file name or its first `{`. */
static char *folder_of(const char *pattern, bool is_file)
{
    size_t length = strcspn(pattern, "{");
    bool cut = pattern[length] || is_file;
    while (length && cut && pattern[length - 1] != '/')
        length--;
    while (length && pattern[length - 1] == '/')
        length--;
    return string_format("%.*s", (int)length, pattern);
}

static int check_pattern(const char *pattern)
{
    const char *host = strstr(pattern, "://") + 3;
    return strcspn(host, "{") < strcspn(host, "/")
               ? error_set("%s: a range within the name of a host or bucket: expected one in the path", pattern)
               : address_check(pattern);
}

int remote_list(struct remote_list *list, const char *pattern, bool (*is_file)(const char *))
{
    char **addresses;
    i64 count;
    *list = (struct remote_list){0};
    if (check_pattern(pattern) < 0 || address_expand(&addresses, &count, pattern) < 0)
        return -1;
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++)
        status = add_address(list, addresses[i], is_file);
    string_list_free(addresses, count);
    if (list->count)
        qsort(list->objects, (size_t)list->count, sizeof *list->objects, compare_objects);
    drop_repeated(list);
    if (status == 0)
        status = find_sizes(list);
    list->folder = folder_of(pattern, is_file(pattern));
    if (status < 0)
        remote_list_release(list);
    return status;
}
