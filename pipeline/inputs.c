#include "pipeline/inputs.h"
#include "core/inventory.h"
#include "data/sources/sources.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH_MOST = 16, AT_ONCE = 256, REPEATED_MOST = 1000000 };
static const i64 second_ns = 1000000000, shown_bytes = (i64)1 << 30;

struct input_file { /* state of a file when it was hashed */
    char *path;
    i64 bytes, modified_ns, changed_ns;
    u64 inode, hash;
    bool is_file, is_hashed;
    bool by_size;  /* contents are not hashed */
    char *problem; /* why it may be read, but could not be; NULL: nothing */
};
struct input_files {
    struct input_file *files;
    i64 count, capacity;
};

static struct input_file *push(struct input_files *list, const struct input_file *file)
{
    if (list->count == list->capacity) {
        i64 next = max_i64(256, 2 * list->capacity), size = (i64)sizeof *file;
        list->files = memory_resize(list->files, list->capacity * size, next * size);
        list->capacity = next;
    }
    list->files[list->count] = *file;
    return &list->files[list->count++];
}

static void list_release(struct input_files *list)
{
    for (i64 i = 0; i < list->count; i++) {
        memory_free(list->files[i].path);
        memory_free(list->files[i].problem);
    }
    memory_free(list->files);
    *list = (struct input_files){0};
}

/* ---- File list ---- */

static i64 nanoseconds(const struct timespec *time)
{
    return (i64)time->tv_sec * second_ns + (i64)time->tv_nsec;
}

/* Keeps the present message if the path may be read: then the disk or the system failed, and the
 * digest must not depend on that. */
static void note_problem(struct input_file *k)
{
    if (!k->problem && access(k->path, R_OK) == 0)
        k->problem = string_copy(error_text());
}

static bool is_named(const char *path, const char *ending)
{
    size_t length = strlen(path), end = strlen(ending);
    return length > end && strcmp(path + length - end, ending) == 0;
}

/* Names of sub-models in a model directory choose parts of it and change nothing of it. The inventory of
 * a stage follows from its files. */
static bool is_about_others(const char *path)
{
    if (!is_named(path, "/" INVENTORY_FILE))
        return is_named(path, "/weft/submodels.json");
    char *done = string_format("%.*s/done.json", (int)(strrchr(path, '/') - path), path);
    bool is = file_exists(done);
    memory_free(done);
    return is;
}

/* A folder that is not listed enters as a name. `again`: by an older rule folders are listed as often as
 * links lead to them, up to REPEATED_MOST files. */
static void list_files(struct input_files *list, struct folder_visits *visits, bool again, const char *path, int depth)
{
    struct stat status;
    char **names;
    i64 count;
    bool found = stat(path, &status) == 0;
    if (!found)
        error_errno("%s: cannot be read", path);
    bool system = depth > 0 && leads_to_system(path); /* enters as a name, too */
    bool listed = found && S_ISDIR(status.st_mode) && depth < DEPTH_MOST && !system &&
                  (folder_visit(visits, path) || (again && list->count < REPEATED_MOST));
    if (listed && directory_list(&names, &count, path) == 0) {
        for (i64 i = 0; i < count; i++) {
            char *below = path_join(path, names[i]);
            if (!is_about_others(below))
                list_files(list, visits, again, below, depth + 1);
            memory_free(below);
        }
        string_list_free(names, count);
        return;
    }
    struct input_file *file = push(list, &(struct input_file){.path = string_copy(path)});
    if (!found || listed)
        note_problem(file);
    if (!found || !S_ISREG(status.st_mode) || system)
        return;
    file->is_file = true;
    file->bytes = (i64)status.st_size;
    file->modified_ns = nanoseconds(&status.st_mtim);
    file->changed_ns = nanoseconds(&status.st_ctim);
    file->inode = (u64)status.st_ino;
}

/* ---- The cache: HASH BYTES MODIFIED CHANGED INODE PATH, sorted by path; last, "# XXH3" of the lines ---- */

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct input_file *)a)->path, ((const struct input_file *)b)->path);
}

/* True if the lines fit their hash, or if there is none, in a cache of an older version. */
static bool check_seal(struct buffer *text)
{
    char *seal = text->length ? strstr(text->data, "\n# ") : NULL;
    if (!seal)
        return text->length == 0 || text->data[text->length - 1] == '\n';
    return strtoull(seal + 3, NULL, 16) == hash_bytes(text->data, seal + 1 - text->data, 0);
}

static void cache_load(struct input_files *cache, const char *path)
{
    struct buffer text = {0};
    if (!file_exists(path) || file_read(&text, path) < 0)
        return;
    if (!check_seal(&text)) /* all is hashed anew */
        buffer_clear(&text);
    buffer_append(&text, "", 0);
    for (char *line = text.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        unsigned long long hash, inode;
        long long bytes, modified, changed;
        int at = 0;
        *end = 0;
        if (sscanf(line, "%llx %lld %lld %lld %llu %n", &hash, &bytes, &modified, &changed, &inode, &at) == 5 && at > 0)
            push(cache,
                 &(struct input_file){string_copy(line + at), bytes, modified, changed, inode, hash, true, true});
    }
    if (cache->count)
        qsort(cache->files, (size_t)cache->count, sizeof *cache->files, compare_paths);
    buffer_release(&text);
}

static bool is_below(const char *path, const char *root)
{
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 &&
           (path[length] == 0 || path[length] == '/' || (length && root[length - 1] == '/'));
}

static void print_known(struct buffer *out, const struct input_file *k)
{
    if (!strchr(k->path, '\n'))
        buffer_printf(out, "%016llx %lld %lld %lld %llu %s\n", (unsigned long long)k->hash, (long long)k->bytes,
                      (long long)k->modified_ns, (long long)k->changed_ns, (unsigned long long)k->inode, k->path);
}

/* Files changed within the last 2 s are not cached, since they
 * may change again without a new timestamp. */
static void cache_save(const struct input_files *cache, const struct input_files *files, const char *root,
                       const char *path, i64 begin_ns)
{
    struct buffer out = {0};
    for (i64 i = 0; i < cache->count; i++)
        if (!is_below(cache->files[i].path, root))
            print_known(&out, &cache->files[i]);
    for (i64 i = 0; i < files->count; i++) {
        const struct input_file *k = &files->files[i];
        if (k->is_hashed && max_i64(k->modified_ns, k->changed_ns) < begin_ns - 2 * second_ns)
            print_known(&out, k);
    }
    if (out.length)
        buffer_printf(&out, "# %016llx\n", (unsigned long long)hash_bytes(out.data, out.length, 0));
    if (file_replace(path, out.data ? out.data : "", out.length) < 0)
        log_warn("%s", error_text());
    buffer_release(&out);
}

static bool needs_hash(const struct input_file *k)
{
    return k->is_file && !k->is_hashed && !k->by_size;
}

/* Takes hashes from the cache. Returns the number of bytes left to hash. */
static i64 use_cached(struct input_files *files, const struct input_files *cache)
{
    i64 bytes = 0;
    for (i64 i = 0; i < files->count; i++) {
        struct input_file *k = &files->files[i];
        const struct input_file *was =
            cache->count ? bsearch(k, cache->files, (size_t)cache->count, sizeof *k, compare_paths) : NULL;
        if (k->is_file && was && was->bytes == k->bytes && was->modified_ns == k->modified_ns &&
            was->changed_ns == k->changed_ns && was->inode == k->inode) {
            k->hash = was->hash;
            k->is_hashed = true;
        }
        bytes += needs_hash(k) ? k->bytes : 0;
    }
    return bytes;
}

/* ---- Contents ---- */

static void hash_one(void *context, i64 tile, int worker)
{
    struct input_file *k = (struct input_file *)context + tile;
    struct file_view view;
    (void)worker;
    if (!needs_hash(k) || interrupted())
        return;
    if (file_map(&view, k->path) < 0) {
        note_problem(k);
        return;
    }
    k->hash = hash_bytes(view.data, view.bytes, 0);
    k->is_hashed = true;
    file_unmap(&view);
}

static int hash_contents(struct input_files *files, i64 bytes)
{
    struct progress progress;
    i64 done = 0;
    if (bytes >= shown_bytes)
        progress_init(&progress, "bytes of inputs", bytes);
    for (i64 at = 0; at < files->count && !interrupted(); at += AT_ONCE) {
        i64 n = min_i64(AT_ONCE, files->count - at);
        for (i64 i = at; i < at + n; i++)
            done += needs_hash(&files->files[i]) ? files->files[i].bytes : 0;
        workers_run(n, hash_one, files->files + at);
        if (bytes >= shown_bytes)
            progress_update(&progress, done, "%lld %s", (long long)(at + n), plural(at + n, "file", "files"));
    }
    if (bytes >= shown_bytes)
        progress_close(&progress);
    return interrupted() ? error_interrupted() : 0;
}

static char *digest_of(const struct input_files *files, const char *root)
{
    struct buffer all = {0};
    for (i64 i = 0; i < files->count; i++) {
        const struct input_file *k = &files->files[i];
        const char *name = k->path + strlen(root);
        u64 numbers[] = {k->is_hashed && !k->by_size, (u64)k->bytes, k->by_size ? 0 : k->hash};
        buffer_append(&all, name, (i64)strlen(name) + 1);
        buffer_append(&all, numbers, sizeof numbers);
    }
    char *digest = string_format(INPUT_MARK "%016llx", (unsigned long long)hash_bytes(all.data, all.length, 0));
    buffer_release(&all);
    return digest;
}

static void set_by_size(struct input_files *list, char *path, bool by_size)
{
    struct input_file wanted = {.path = path},
                      *k = bsearch(&wanted, list->files, (size_t)list->count, sizeof wanted, compare_paths);
    if (k)
        k->by_size = by_size;
}

static int skip_other_jobs(struct input_files *list, const char *path, i64 job, i64 jobs)
{
    struct source *source = source_open(path, &(struct source_request){.job = job, .jobs = jobs});
    i64 count = 0;
    const struct source_file *files = source ? source_files(source, &count) : NULL;
    if (list->count)
        qsort(list->files, (size_t)list->count, sizeof *list->files, compare_paths);
    for (i64 i = 0; i < count; i++)
        set_by_size(list, files[i].path, !source_file_is_dealt(&files[i]) || files[i].elsewhere);
    for (i64 i = 0; i < count; i++)
        if (files[i].use == FILE_SAMPLES && !files[i].elsewhere && files[i].caption)
            set_by_size(list, files[i].caption, false);
    source_close(source);
    return source ? 0 : -1;
}

static int check_problems(const struct input_files *files)
{
    for (i64 i = 0; i < files->count; i++)
        if (files->files[i].problem)
            return error_set("%s", files->files[i].problem);
    return 0;
}

/* The index next to a shard holds checksums of the shard's contents, which readers verify, so the
 * shard itself is not hashed. */
static void skip_indexed(struct input_files *list)
{
    static const char ending[] = ".shard";
    size_t end = sizeof ending - 1;
    struct stat status;
    for (i64 i = 0; i < list->count; i++) {
        struct input_file *k = &list->files[i];
        const char *slash = strrchr(k->path, '/');
        size_t length = strlen(k->path);
        if (!slash || length < end || strcmp(k->path + length - end, ending) != 0)
            continue;
        char *index = string_format("%.*s/index", (int)(slash - k->path), k->path);
        bool found = stat(index, &status) == 0;
        if (!found && errno != ENOENT) {
            error_errno("%s: cannot be read", index);
            note_problem(k);
        }
        k->by_size |= found;
        memory_free(index);
    }
}

/* Digest of a URL from the server's metadata, since reading
 * its contents would take as long as the stage. */
static char *digest_of_address(const char *address, i64 job, i64 jobs)
{
    struct source *source = source_open(address, &(struct source_request){.job = job, .jobs = jobs});
    struct buffer all = {0};
    i64 count;
    const struct source_file *files = source ? source_files(source, &count) : NULL;
    for (i64 i = 0; files && i < count; i++) {
        const char *version = files[i].version && !files[i].elsewhere ? files[i].version : "";
        buffer_append(&all, files[i].path, (i64)strlen(files[i].path) + 1);
        buffer_append(&all, &files[i].bytes, sizeof files[i].bytes);
        buffer_append(&all, version, (i64)strlen(version) + 1);
    }
    char *digest =
        source ? string_format(INPUT_MARK "%016llx", (unsigned long long)hash_bytes(all.data, all.length, 0)) : NULL;
    buffer_release(&all);
    source_close(source);
    return digest;
}

static char *digest_below(const char *path, const char *run, i64 job, i64 jobs, enum input_rule rule)
{
    struct timespec now;
    struct input_files files = {0}, cache = {0};
    struct folder_visits visits = {.depth_most = DEPTH_MOST - 1};
    char *stored = path_join(run, "inputs.cache");
    clock_gettime(CLOCK_REALTIME, &now);
    list_files(&files, &visits, rule != INPUT_RULE, path, 0);
    folder_visits_release(&visits);
    if (jobs > 1 && skip_other_jobs(&files, path, job, jobs) < 0) {
        list_release(&files);
        memory_free(stored);
        return NULL;
    }
    if (rule != INPUT_WHOLE_SHARDS)
        skip_indexed(&files);
    cache_load(&cache, stored);
    i64 bytes = use_cached(&files, &cache);
    bool fresh = false;
    for (i64 i = 0; i < files.count; i++)
        fresh |= needs_hash(&files.files[i]);
    int status = fresh ? hash_contents(&files, bytes) : 0;
    char *digest = status < 0 || check_problems(&files) < 0 ? NULL : digest_of(&files, path);
    if (digest && fresh)
        cache_save(&cache, &files, path, stored, nanoseconds(&now));
    list_release(&files);
    list_release(&cache);
    memory_free(stored);
    return digest;
}

char *input_digest(const char *path, const char *run, i64 job, i64 jobs)
{
    if (is_address(path))
        return digest_of_address(path, job, jobs);
    return digest_below(path, run, job, jobs, INPUT_RULE);
}

char *input_digest_before(const char *path, const char *run, enum input_rule rule)
{
    if (is_address(path))
        return digest_of_address(path, 0, 0);
    return digest_below(path, run, 0, 0, rule);
}
