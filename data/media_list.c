#include "data/media_list.h"

#include "data/captions.h"

#include <string.h>

enum { AT_ONCE = 256 }; /* files, so that what is not kept of them does not pile up */

static struct medium *add(struct media_list *list)
{
    if (list->count == list->capacity) {
        i64 next = max_i64(256, 2 * list->capacity), size = (i64)sizeof *list->media;
        list->media = memory_resize(list->media, list->capacity * size, next * size);
        list->capacity = next;
    }
    return &list->media[list->count++];
}

static void add_line(void *context, const char *folder, const struct json *line)
{
    struct media_list *list = context;
    if (!line)
        add(list)->problem = string_copy(error_text());
    for (int key = 0; list->keys[key]; key++) {
        char *path = captions_path(folder, line, list->keys[key]);
        if (!path)
            continue;
        *add(list) = (struct medium){.key = key,
                                     .path = path,
                                     .text = string_copy(json_string(json_get(line, "text"), "")),
                                     .speaker = string_copy(json_string(json_get(line, "speaker"), ""))};
        return;
    }
}

int media_list(struct media_list *list, const char *folder, const char *const *keys)
{
    *list = (struct media_list){.folder = folder, .keys = keys};
    return captions_read(folder, add_line, list);
}

void media_list_release(struct media_list *list)
{
    for (i64 i = 0; i < list->count; i++) {
        struct medium *m = &list->media[i];
        memory_free(m->path);
        memory_free(m->problem);
        memory_free(m->text);
        memory_free(m->speaker);
    }
    memory_free(list->media);
    *list = (struct media_list){0};
}

struct job {
    const struct media_reader *reader;
    struct medium *media;
    char *contents;
};

static void read_one(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    const struct media_reader *r = job->reader;
    struct medium *m = &job->media[tile];
    (void)worker;
    if (m->problem || interrupted())
        return;
    m->read = r->read(r->context, job->contents + tile * r->content_bytes, m) == 0;
    if (!m->read)
        m->problem = string_copy(error_text()); /* the message belongs to this thread */
}

static void take_one(struct media_list *list, const struct media_reader *r, void *content, struct medium *m)
{
    if (m->problem) {
        log_warn("skipped: %s", m->problem);
        list->bad_count++;
    } else if (m->read) {
        r->take(r->context, content, m);
    }
}

int media_read(struct media_list *list, const struct media_reader *r)
{
    char *contents = memory_alloc(AT_ONCE * r->content_bytes);
    for (i64 at = 0; at < list->count; at += AT_ONCE) {
        struct job job = {r, list->media + at, contents};
        i64 n = min_i64(AT_ONCE, list->count - at);
        memset(contents, 0, (size_t)(n * r->content_bytes));
        workers_run(n, read_one, &job);
        for (i64 i = 0; i < n; i++)
            take_one(list, r, contents + i * r->content_bytes, &job.media[i]);
    }
    memory_free(contents);
    if (interrupted())
        return error_interrupted();
    if ((double)list->bad_count > r->bad_share * (double)list->count)
        return error_set("%s: %lld of %lld %s cannot be read, more than the share of %g that may be bad", list->folder,
                         (long long)list->bad_count, (long long)list->count, r->what, r->bad_share);
    return 0;
}
