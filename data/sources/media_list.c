#include "data/sources/media_list.h"

#include <string.h>
#include <sys/stat.h>

enum { AT_ONCE = 256 }; /* batch size, which bounds the media held at once */

typedef int medium_fn(void *context, struct medium *medium); /* owns the medium */

void medium_release(struct medium *m)
{
    memory_free(m->path);
    memory_free(m->place.path);
    memory_free(m->problem);
    memory_free(m->text);
    memory_free(m->speaker);
    buffer_release(&m->bytes);
    *m = (struct medium){0};
}

/* ---- Locations ---- */

int medium_open(struct medium_view *view, const struct medium_place *place)
{
    *view = (struct medium_view){0};
    if (place->bytes < 0)
        return file_map(&view->file, place->path);
    view->blob = blob_open(place->path);
    if (!view->blob || blob_span(view->blob, &view->span, place->at, place->bytes) < 0) {
        medium_close(view);
        return -1;
    }
    view->file = (struct file_view){view->span.data, view->span.bytes};
    return 0;
}

void medium_close(struct medium_view *view)
{
    if (!view->blob)
        file_unmap(&view->file);
    blob_span_release(&view->span);
    blob_close(view->blob);
    *view = (struct medium_view){0};
}

static struct medium_place place_of(const struct sample_part *part)
{
    if (part->path)
        return (struct medium_place){string_copy(part->path), 0, -1};
    return (struct medium_place){part->within ? string_copy(part->within) : NULL, part->at, part->bytes.length};
}

/* ---- Media from samples ---- */

static char *text_of(const struct sample *sample)
{
    bool said = sample->count > 1 && sample->parts[1].kind == MODALITY_TEXT && sample->parts[1].bytes.data;
    return string_copy(said ? sample->parts[1].bytes.data : "");
}

/* Moves part i out of the sample. A medium of a conversation or a document has no text of its own. */
static struct medium medium_of(struct sample *sample, i64 i)
{
    struct sample_part *part = &sample->parts[i];
    struct medium m = {.kind = part->kind,
                       .path = part->path ? part->path : string_copy(sample->name),
                       .bytes = part->bytes,
                       .place = place_of(part),
                       .carried = !part->path,
                       .text = sample->layout == SAMPLE_CAPTIONED ? text_of(sample) : string_copy(""),
                       .speaker = string_copy(sample->speaker ? sample->speaker : "")};
    part->path = NULL;
    part->bytes = (struct buffer){0};
    return m;
}

static void push_medium(struct media_list *list, struct medium medium)
{
    if (list->count == list->capacity) {
        i64 next = max_i64(256, 2 * list->capacity), size = (i64)sizeof *list->media;
        list->media = memory_resize(list->media, list->capacity * size, next * size);
        list->capacity = next;
    }
    list->media[list->count++] = medium;
}

/* Media that only conversations and documents show follow the others, each file once. Those whose
 * bytes come with the sample cannot wait: they come at once, each content once. */
struct media_stream {
    struct media_request request;
    struct source *source;
    i64 given;
    struct hash_set seen;          /* paths of media with captions or alone, and contents of carried ones inside */
    struct media_list now, inside; /* media to return next; files that samples show */
    i64 now_at, inside_at;
    bool ended;
};

static bool is_new(struct media_stream *stream, const struct medium *m)
{
    u64 hash =
        m->carried ? hash_bytes(m->bytes.data ? m->bytes.data : "", m->bytes.length, 1) : source_path_hash(m->path);
    return hash_set_add(&stream->seen, hash);
}

/* Queues the media of a sample that are requested; an unreadable entry becomes a medium with a
 * problem. */
static void take_sample(struct media_stream *stream, enum source_result result, struct sample *sample)
{
    if (sample->split != stream->request.split)
        return;
    if (result != SOURCE_SAMPLE) {
        push_medium(&stream->now, (struct medium){.problem = string_copy(error_text())});
        return;
    }
    bool captioned = sample->layout == SAMPLE_CAPTIONED;
    for (i64 i = 0; i < (captioned ? 1 : sample->count); i++) {
        if (sample->parts[i].kind == SAMPLE_IDS || sample->parts[i].kind == MODALITY_TEXT ||
            !(stream->request.kinds >> sample->parts[i].kind & 1))
            continue;
        struct medium m = medium_of(sample, i);
        if (captioned && !m.carried)
            is_new(stream, &m);
        if (captioned)
            push_medium(&stream->now, m);
        else if (!m.carried)
            push_medium(&stream->inside, m);
        else if (is_new(stream, &m))
            push_medium(&stream->now, m);
        else
            medium_release(&m);
    }
}

struct media_stream *media_stream_open(const struct media_request *request)
{
    struct source *source = source_open(request->data, &(struct source_request){.seed = request->seed,
                                                                                .validation = request->validation,
                                                                                .test = request->test,
                                                                                .columns = request->columns,
                                                                                .media_alone = true});
    if (!source)
        return NULL;
    struct media_stream *stream = memory_alloc(sizeof *stream);
    *stream = (struct media_stream){.request = *request, .source = source};
    return stream;
}

/* Queues more media. 0: there are no more. */
static int read_more(struct media_stream *stream)
{
    struct sample sample;
    stream->now.count = stream->now_at = 0;
    while (stream->now.count == 0 && !stream->ended) {
        enum source_result result = source_next(stream->source, &sample);
        if (result == SOURCE_UNREACHABLE)
            return -1;
        stream->ended = result == SOURCE_END;
        if (stream->ended)
            break;
        take_sample(stream, result, &sample);
        sample_release(&sample);
    }
    while (stream->now.count == 0 && stream->inside_at < stream->inside.count) {
        struct medium *m = &stream->inside.media[stream->inside_at++];
        if (is_new(stream, m))
            push_medium(&stream->now, *m);
        else
            medium_release(m);
        *m = (struct medium){0};
    }
    return stream->now.count > 0;
}

int media_stream_next(struct media_stream *stream, struct medium *out)
{
    int more = stream->now_at < stream->now.count ? 1 : read_more(stream);
    if (more <= 0)
        return more;
    *out = stream->now.media[stream->now_at++];
    out->number = stream->given++;
    return 1;
}

void media_stream_close(struct media_stream *stream)
{
    if (!stream)
        return;
    for (i64 i = stream->now_at; i < stream->now.count; i++)
        medium_release(&stream->now.media[i]);
    stream->now.count = 0;
    media_list_release(&stream->now);
    media_list_release(&stream->inside);
    hash_set_release(&stream->seen);
    source_close(stream->source);
    memory_free(stream);
}

static int visit(const struct media_request *request, medium_fn *see, void *context)
{
    struct media_stream *stream = media_stream_open(request);
    struct medium medium;
    int status = stream ? 0 : -1, more = 1;
    while (status == 0 && (more = media_stream_next(stream, &medium)) > 0)
        status = see(context, &medium);
    if (status == 0 && more == 0 && request->says)
        source_log(stream->source, true);
    media_stream_close(stream);
    return status == 0 ? more : status;
}

/* ---- Listing ---- */

static int add_medium(void *context, struct medium *medium)
{
    buffer_release(&medium->bytes);
    push_medium(context, *medium);
    return 0;
}

int media_list(struct media_list *list, const struct media_request *request)
{
    *list = (struct media_list){0};
    return visit(request, add_medium, list);
}

void media_list_release(struct media_list *list)
{
    for (i64 i = 0; i < list->count; i++)
        medium_release(&list->media[i]);
    memory_free(list->media);
    *list = (struct media_list){0};
}

/* ---- Media of a kind ---- */

/* True if no sample of the source has a part of these kinds. */
static bool lacks_parts(struct source *source, u32 kinds)
{
    struct sample sample;
    enum source_result result;
    bool lacks = true;
    while (lacks && (result = source_next(source, &sample)) != SOURCE_END) {
        for (i64 i = 0; result == SOURCE_SAMPLE && i < sample.count; i++)
            lacks = lacks && !(kinds >> sample.parts[i].kind & 1);
        lacks = lacks && result != SOURCE_UNREACHABLE;
        sample_release(&sample);
    }
    return lacks;
}

bool media_are_absent(const char *data, const struct source_columns *columns, u32 kinds)
{
    struct source *all = source_open(data, &(struct source_request){.columns = columns});
    if (!all)
        return false; /* nothing there can be read */
    source_close(all);
    struct source *media = source_open(data, &(struct source_request){.columns = columns, .media_alone = true});
    bool absent = !media || lacks_parts(media, kinds); /* not opened: texts alone */
    source_close(media);
    return absent;
}

/* ---- Reading ---- */

struct media_list_job {
    struct media_reader *reader;
    struct medium media[AT_ONCE];
    char *contents;
    i64 count, bytes; /* bytes: total size of the files, where known */
};

static void read_one(void *context, i64 tile, int worker)
{
    struct media_list_job *job = context;
    struct media_reader *r = job->reader;
    struct medium *m = &job->media[tile];
    struct file_view file = {(const u8 *)m->bytes.data, m->bytes.length};
    (void)worker;
    if (m->problem || interrupted())
        return;
    int status = m->carried ? 0 : file_map(&file, m->path);
    m->read = status == 0 && r->read(r->context, job->contents + tile * r->content_bytes, m, &file) == 0;
    if (!m->read)
        m->problem = string_copy(error_text()); /* error_text() is thread-local */
    else if (r->hashes)
        m->hash = hash_bytes(file.data, file.bytes, 0);
    if (status == 0 && !m->carried)
        file_unmap(&file);
}

static void take_one(struct media_reader *r, void *content, struct medium *m)
{
    if (m->problem) {
        log_warn("skipped: %s", m->problem);
        r->bad_count++;
    } else if (m->read) {
        if (r->hashes)
            hash_list_add(r->hashes, m->hash);
        r->take(r->context, content, m);
    }
    r->count++;
    medium_release(m);
}

static int read_all(struct media_list_job *job)
{
    struct media_reader *r = job->reader;
    memset(job->contents, 0, (size_t)(job->count * r->content_bytes));
    workers_run(job->count, read_one, job);
    for (i64 i = 0; i < job->count; i++)
        take_one(r, job->contents + i * r->content_bytes, &job->media[i]);
    job->count = job->bytes = 0;
    return interrupted() ? error_interrupted() : 0;
}

/* Collects media and reads a full batch. Batches of large files are small, because their contents
 * grow with them. */
static int gather(void *context, struct medium *medium)
{
    enum { FEW = 8, LARGE_BYTES = 1 << 28 };
    struct media_list_job *job = context;
    struct stat info;
    bool known = !medium->problem && !medium->carried && stat(medium->path, &info) == 0;
    job->bytes += known ? (i64)info.st_size : medium->bytes.length;
    job->media[job->count++] = *medium;
    bool full = job->count == AT_ONCE || (job->count >= FEW && job->bytes >= LARGE_BYTES);
    return full ? read_all(job) : 0;
}

int media_read(struct media_reader *r, const struct media_request *request)
{
    struct media_list_job *job = memory_alloc(sizeof *job);
    job->reader = r;
    job->contents = memory_alloc(AT_ONCE * r->content_bytes);
    r->count = r->bad_count = 0;
    int status = visit(request, gather, job);
    if (status == 0)
        status = read_all(job);
    memory_free(job->contents);
    memory_free(job);
    if (status == 0 && (double)r->bad_count > r->bad_share * (double)r->count)
        status = error_set("%s: %lld of %lld %s cannot be read, more than the share of %g that may be bad",
                           request->data, (long long)r->bad_count, (long long)r->count, r->what, r->bad_share);
    return status;
}

i64 media_in_common(const char *data, const struct hash_list *held_out, struct hash_list *train)
{
    i64 common = hash_list_common(held_out, train);
    if (common)
        log_warn("%s: %lld of %lld held-out files are training files too, byte for byte, so the figures of new media "
                 "flatter",
                 data, (long long)common, (long long)held_out->count);
    return common;
}
