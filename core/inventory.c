#include "core/inventory.h"

#include "core/json.h"
#include "core/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FORMAT = 1, LEVELS_MOST = 8, AT_ONCE = 256 };

enum inventory_rule { BY_CONTENT, BY_HEADER, BY_SIZE };
struct inventory_entry {
    char *path; /* below the folder of the inventory */
    i64 bytes;
    u64 hash;
    enum inventory_rule rule;
    bool verified;
};
struct inventory {
    char *folder, *problem; /* problem: why the inventory cannot be used; NULL: it can */
    struct inventory_entry *entries;
    i64 count, capacity;
    struct inventory *next;
};

/* ---- Writing ---- */

static struct inventory_entry *push(struct inventory *v, const struct inventory_entry *entry)
{
    if (v->count == v->capacity) {
        i64 next = max_i64(64, 2 * v->capacity), size = (i64)sizeof *entry;
        v->entries = memory_resize(v->entries, v->capacity * size, next * size);
        v->capacity = next;
    }
    v->entries[v->count] = *entry;
    return &v->entries[v->count++];
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Files that have checksums of their own, that later commands change by intent, or that nothing reads. */
static bool is_left_out(const char *path)
{
    return strcmp(path, INVENTORY_FILE) == 0 || strcmp(path, "checkpoints") == 0 ||
           strncmp(path, "events.out.tfevents.", 20) == 0 || strcmp(path, "weft/submodels.json") == 0;
}

/* Links are left out: what they lead to is not what the stage made. */
static int list_files(struct inventory *v, const char *below)
{
    char **names, *folder = *below ? path_join(v->folder, below) : string_copy(v->folder);
    i64 count;
    int status = directory_list(&names, &count, folder);
    for (i64 i = 0; status == 0 && i < count; i++) {
        char *path = *below ? path_join(below, names[i]) : string_copy(names[i]), *full = path_join(folder, names[i]);
        struct stat found;
        if (lstat(full, &found) < 0)
            status = error_errno("%s: cannot be read", full);
        else if (!is_left_out(path) && S_ISDIR(found.st_mode))
            status = list_files(v, path);
        else if (!is_left_out(path) && S_ISREG(found.st_mode))
            push(v, &(struct inventory_entry){.path = string_copy(path)});
        memory_free(path);
        memory_free(full);
    }
    if (status == 0)
        string_list_free(names, count);
    memory_free(folder);
    return status;
}

static bool has_index(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *index = string_format("%.*s/index", (int)(slash - path), path);
    bool found = file_exists(index);
    memory_free(index);
    return found;
}

struct inventory_hashing {
    struct inventory *inventory;
    i64 first;
    char *problem; /* of the first file that failed */
    pthread_mutex_t lock;
};

static int hash_entry(struct inventory_entry *e, const char *path)
{
    struct file_view view;
    if (ends_with(path, ".shard") && has_index(path)) {
        e->rule = BY_SIZE;
        e->bytes = file_bytes(path);
        return e->bytes < 0 ? -1 : 0;
    }
    if (file_map(&view, path) < 0)
        return -1;
    i64 header = ends_with(path, ".safetensors") ? safetensors_header_bytes(view.data, view.bytes) : 0;
    e->rule = header ? BY_HEADER : BY_CONTENT;
    e->bytes = view.bytes;
    e->hash = hash_bytes(view.data, header ? header : view.bytes, 0);
    file_unmap(&view);
    return 0;
}

static void hash_one(void *context, i64 tile, int worker)
{
    struct inventory_hashing *h = context;
    struct inventory_entry *e = &h->inventory->entries[h->first + tile];
    char *path = path_join(h->inventory->folder, e->path);
    (void)worker;
    if (!interrupted() && hash_entry(e, path) < 0) {
        pthread_mutex_lock(&h->lock);
        if (!h->problem)
            h->problem = string_copy(error_text());
        pthread_mutex_unlock(&h->lock);
    }
    memory_free(path);
}

static int hash_all(struct inventory *v)
{
    struct inventory_hashing h = {.inventory = v, .lock = PTHREAD_MUTEX_INITIALIZER};
    for (; h.first < v->count && !h.problem && !interrupted(); h.first += AT_ONCE)
        workers_run(min_i64(AT_ONCE, v->count - h.first), hash_one, &h);
    int status = h.problem ? error_set("%s", h.problem) : interrupted() ? error_interrupted() : 0;
    memory_free(h.problem);
    return status;
}

static struct json *inventory_json(const struct inventory *v)
{
    struct json *j = json_object(), *files = json_object();
    for (i64 i = 0; i < v->count; i++) {
        const struct inventory_entry *e = &v->entries[i];
        struct json *entry = json_object();
        char digest[20];
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)e->hash);
        json_set(entry, "bytes", json_of_integer(e->bytes));
        if (e->rule != BY_SIZE)
            json_set(entry, e->rule == BY_HEADER ? "header" : "xxh3", json_of_string(digest));
        json_set(files, e->path, entry);
    }
    json_set(j, "format", json_of_integer(FORMAT));
    json_set(j, "files", files);
    return j;
}

static void inventory_free(struct inventory *v)
{
    for (i64 i = 0; i < v->count; i++)
        memory_free(v->entries[i].path);
    memory_free(v->entries);
    memory_free(v->folder);
    memory_free(v->problem);
    memory_free(v);
}

int inventory_save(const char *folder)
{
    struct inventory *v = memory_alloc(sizeof *v);
    char *path = path_join(folder, INVENTORY_FILE);
    *v = (struct inventory){.folder = string_copy(folder)};
    int status = remove(path) < 0 && errno != ENOENT ? error_errno("%s: cannot be replaced", path) : 0;
    inventory_forget();
    if (status == 0)
        status = list_files(v, "");
    if (status == 0)
        status = hash_all(v);
    if (status == 0) {
        struct json *j = inventory_json(v);
        status = json_save_sealed(path, j);
        json_free(j);
    }
    inventory_forget();
    inventory_free(v);
    memory_free(path);
    return status;
}

/* ---- Reading ---- */

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct inventory_entry *)a)->path, ((const struct inventory_entry *)b)->path);
}

static int read_entry(struct inventory *v, const char *name, const struct json *from, const char *path)
{
    const char *content = json_string(json_get(from, "xxh3"), NULL);
    const char *header = json_string(json_get(from, "header"), NULL), *digest = content ? content : header;
    struct inventory_entry e = {.bytes = json_integer(json_get(from, "bytes"), -1),
                                .hash = digest ? strtoull(digest, NULL, 16) : 0,
                                .rule = content  ? BY_CONTENT
                                        : header ? BY_HEADER
                                                 : BY_SIZE};
    if (e.bytes < 0)
        return error_set("%s: %s: expected {\"bytes\": .., \"xxh3\": ..}", path, name);
    e.path = string_copy(name);
    push(v, &e);
    return 0;
}

static int read_inventory(struct inventory *v, const char *path)
{
    struct json *j = json_load(path);
    struct json_iterator it;
    int status = j ? 0 : -1;
    if (status == 0 &&
        (json_integer(json_get(j, "format"), 0) != FORMAT || json_kind(json_get(j, "files")) != JSON_OBJECT))
        status = error_set("%s: expected an inventory of format %d", path, FORMAT);
    for (bool more = status == 0 && json_first(&it, json_get(j, "files")); more && status == 0;
         more = json_next(&it, json_get(j, "files")))
        status = read_entry(v, it.key, it.value, path);
    if (v->count)
        qsort(v->entries, (size_t)v->count, sizeof *v->entries, compare_entries);
    json_free(j);
    return status;
}

static struct inventory *load(const char *folder, const char *path)
{
    struct inventory *v = memory_alloc(sizeof *v);
    *v = (struct inventory){.folder = string_copy(folder)};
    if (read_inventory(v, path) < 0)
        v->problem =
            string_format("%s; what is in %s cannot be verified: restore it, or, if all files there are right, "
                          "`weft inspect %s --accept` writes it anew",
                          error_text(), folder, folder);
    return v;
}

/* ---- Which inventory lists what a folder holds ---- */

struct inventory_place { /* of a folder; the hash 0: free */
    u64 hash;
    struct inventory *inventory; /* NULL: there is none */
    char *below;                 /* path of the folder below the inventory's, "" or "weft/vision/" */
};
static struct {
    pthread_mutex_t lock;            /* for all of this, and for `verified` of entries */
    struct inventory *all, *retired; /* retired ones may still be in use */
    struct inventory_place *places;  /* [capacity], a power of two, open addressing */
    i64 count, capacity;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void clear_places(void)
{
    for (i64 i = 0; i < known.capacity; i++)
        memory_free(known.places[i].below);
    memory_free(known.places);
    known.places = NULL;
    known.count = known.capacity = 0;
}

void inventory_forget(void)
{
    pthread_mutex_lock(&known.lock);
    while (known.all) {
        struct inventory *next = known.all->next;
        known.all->next = known.retired;
        known.retired = known.all;
        known.all = next;
    }
    clear_places();
    pthread_mutex_unlock(&known.lock);
}

/* A file of this name that is no inventory is passed over: others use it, too. */
static bool is_ours(const char *folder, const char *path)
{
    struct buffer text = {0};
    char *done = path_join(folder, "done.json");
    bool is = file_exists(path) && (file_exists(done) || (file_read(&text, path) == 0 && strstr(text.data, JSON_SEAL)));
    buffer_release(&text);
    memory_free(done);
    return is;
}

static struct inventory *inventory_of(const char *folder)
{
    for (struct inventory *v = known.all; v; v = v->next)
        if (strcmp(v->folder, folder) == 0)
            return v;
    char *path = path_join(folder, INVENTORY_FILE);
    struct inventory *v = is_ours(folder, path) ? load(folder, path) : NULL;
    if (v) {
        v->next = known.all;
        known.all = v;
    }
    memory_free(path);
    return v;
}

static struct inventory_place *slot_of(u64 hash)
{
    i64 at = (i64)(hash & (u64)(known.capacity - 1));
    while (known.places[at].hash && known.places[at].hash != hash)
        at = (at + 1) & (known.capacity - 1);
    return &known.places[at];
}

static void make_room(void)
{
    struct inventory_place *before = known.places;
    i64 capacity = known.capacity;
    if (2 * known.count < capacity)
        return;
    known.capacity = max_i64(64, 2 * capacity);
    known.places = memory_alloc(known.capacity * (i64)sizeof *before);
    for (i64 i = 0; i < capacity; i++)
        if (before[i].hash)
            *slot_of(before[i].hash) = before[i];
    memory_free(before);
}

/* The nearest inventory at or above a folder. */
static void find_inventory(struct inventory_place *place, const char *folder)
{
    char *real = realpath(folder, NULL), *at = real ? string_copy(real) : NULL;
    for (int level = 0; at && level < LEVELS_MOST && !place->inventory; level++) {
        place->inventory = inventory_of(at);
        char *slash = strrchr(at, '/');
        if (!place->inventory && (!slash || slash == at))
            break;
        if (place->inventory)
            place->below = real[strlen(at)] ? string_format("%s/", real + strlen(at) + 1) : string_copy("");
        else
            *slash = 0;
    }
    memory_free(at);
    free(real);
}

/* Call with the lock. The place is valid until another one is looked for. */
static const struct inventory_place *place_of(const char *folder, i64 length)
{
    u64 hash = max_i64(1, (i64)(hash_bytes(folder, length, 0) >> 1));
    make_room();
    struct inventory_place *place = slot_of(hash);
    if (place->hash == 0) {
        char *name = string_format("%.*s", (int)length, folder);
        struct inventory_place found = {.hash = hash};
        find_inventory(&found, name);
        *place = found;
        known.count++;
        memory_free(name);
    }
    return place;
}

/* Call with the lock. *path: what the inventory calls the file (memory_free), if there is one. */
static struct inventory *find_entry(struct inventory_entry **entry, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const struct inventory_place *place = slash ? place_of(path, max_i64(1, slash - path)) : place_of(".", 1);
    *entry = NULL;
    if (!place->inventory)
        return NULL;
    struct inventory_entry wanted = {.path = string_format("%s%s", place->below, name)};
    if (place->inventory->count)
        *entry = bsearch(&wanted, place->inventory->entries, (size_t)place->inventory->count, sizeof wanted,
                         compare_entries);
    memory_free(wanted.path);
    return place->inventory;
}

/* ---- Comparing ---- */

static bool is_inventory(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, INVENTORY_FILE) == 0;
}

static int refuse(const char *path, const struct inventory *v, const char *what)
{
    return error_set("%s: %s, by the " INVENTORY_FILE
                     " of its stage: it was damaged or changed; copy it again, rerun the "
                     "stage (--redo), or, if it was edited by intent, `weft inspect %s --accept`",
                     path, what, v->folder);
}

static int compare(const char *path, const struct inventory *v, const struct inventory_entry *e, const void *data,
                   i64 bytes)
{
    if (bytes != e->bytes) {
        char *what = string_format("%lld %s, expected %lld", (long long)bytes, plural(bytes, "byte", "bytes"),
                                   (long long)e->bytes);
        refuse(path, v, what);
        memory_free(what);
        return -1;
    }
    i64 hashed = e->rule == BY_HEADER ? safetensors_header_bytes(data, bytes) : bytes;
    if (e->rule == BY_SIZE || hash_bytes(data, hashed, 0) == e->hash)
        return 0;
    return refuse(path, v, "its checksum differs");
}

/* The inventory of a file that has to be checked: the file was not verified yet, or its inventory cannot
 * be used. NULL: nothing to do. */
static struct inventory *find_due(struct inventory_entry **entry, const char *path)
{
    pthread_mutex_lock(&known.lock);
    struct inventory *v = find_entry(entry, path);
    bool due = v && (v->problem || (*entry && !(*entry)->verified));
    pthread_mutex_unlock(&known.lock);
    return due ? v : NULL;
}

int inventory_verify(const char *path, const void *data, i64 bytes)
{
    struct inventory_entry *entry;
    struct inventory *v = is_inventory(path) ? NULL : find_due(&entry, path);
    if (!v)
        return 0;
    if (v->problem)
        return error_set("%s", v->problem);
    if (compare(path, v, entry, data, bytes) < 0)
        return -1;
    pthread_mutex_lock(&known.lock);
    entry->verified = true;
    pthread_mutex_unlock(&known.lock);
    return 0;
}

int inventory_verify_file(const char *path)
{
    struct inventory_entry *entry;
    struct file_view view;
    if (!find_due(&entry, path))
        return 0;
    int status = file_map(&view, path);
    if (status == 0)
        file_unmap(&view);
    return status;
}

static int check_entry(const struct inventory *v, const struct inventory_entry *e, bool contents)
{
    struct stat found;
    char *path = path_join(v->folder, e->path);
    int status = 0;
    if (stat(path, &found) < 0)
        status = errno == ENOENT ? refuse(path, v, "it is missing") : error_errno("%s: cannot be read", path);
    if (status == 0 && (i64)found.st_size != e->bytes)
        status = compare(path, v, e, NULL, (i64)found.st_size);
    if (status == 0 && contents)
        status = inventory_verify_file(path);
    if (status == 0 && contents && e->rule == BY_HEADER)
        status = safetensors_check(path) < 0 ? -1 : 0;
    memory_free(path);
    return status;
}

static int check_below(const char *path, bool contents)
{
    pthread_mutex_lock(&known.lock);
    const struct inventory_place *place = place_of(path, (i64)strlen(path));
    const struct inventory *v = place->inventory;
    char *below = v ? string_copy(place->below) : NULL;
    pthread_mutex_unlock(&known.lock);
    int status = v && v->problem ? error_set("%s", v->problem) : 0;
    for (i64 i = 0; v && i < v->count && status == 0; i++)
        if (strncmp(v->entries[i].path, below, strlen(below)) == 0)
            status = check_entry(v, &v->entries[i], contents);
    memory_free(below);
    return status;
}

int inventory_check(const char *path)
{
    return check_below(path, false);
}

int inventory_check_all(const char *path)
{
    return check_below(path, true);
}
