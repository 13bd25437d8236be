/* Estimates the output size of prepare from some samples of its files: for each format, bytes
 * written per byte read. */
#include "data/prepare/prepare_internal.h"
#include "data/shards/shard_layout.h"

#include <string.h>

enum { FORMATS_MOST = 16, FILES_MOST = 16, SAMPLES_MOST = 256, SEEN_MOST = 1 << 14, READ_MOST = 1 << 26 };

struct prepare_estimate_format {
    const struct reader_kind *reader;
    i64 files, bytes, taken; /* totals; taken: files sampled */
    double read, made;       /* bytes of the sampled files, and of the output they would yield in full */
};
struct estimating {
    struct prepare *prepare;
    struct source *source;
    struct prepare_estimate_format formats[FORMATS_MOST];
    i64 count;
    struct prepare_estimate *out;
};

static i64 stored(i64 bytes)
{
    return round_up(bytes, SHARD_ALIGN);
}

static i64 medium_bytes(const struct prepare *p, const struct encoded_part *m)
{
    i64 bytes = 0;
    for (i64 i = 0; i < m->sound_count; i++)
        bytes += stored(m->sounds[i].code_frames * p->meta.levels * 2);
    if (!m->clip.pixels)
        return bytes;
    const struct shard_shape *shape = &p->meta.shapes[m->shape];
    i64 cells = m->clip.height / p->meta.stride * (m->clip.width / p->meta.stride);
    if (m->in)
        bytes +=
            stored(m->frames * cells * p->meta.cell_features * 2 + m->clip.frames * m->clip.height * m->clip.width * 3);
    if (m->out)
        bytes += stored(m->frames * shape->h * shape->w * p->meta.bits * 2);
    return bytes;
}

/* Bytes of an item's payloads and index entries: one record per direction, its parts and its
 * name. */
static i64 item_bytes(const struct prepare *p, const struct item *item)
{
    i64 bytes = 0, parts = max_i64(item->sample.count, item->chat.run_count), records = 1;
    if (item->problem || item->left_out || item->too_long)
        return 0;
    if (item->chat.ids.count)
        bytes += stored(item->chat.ids.count * 4);
    for (i64 i = 0; i < item->sample.count; i++) {
        const struct encoded_part *m = &item->encoded[i];
        bytes += stored(m->ids.count * 4) + medium_bytes(p, m);
        parts += m->clip.pixels ? m->sound_count : 0;
        if (item->sample.layout == SAMPLE_CAPTIONED)
            records = max_i64(records, (i64)m->in + m->out);
    }
    if (item->sample.layout == SAMPLE_CAPTIONED)
        bytes += stored(item->sample.parts[item->sample.count - 1].bytes.length), parts++;
    return bytes + records * ((i64)sizeof(struct shard_sample) + parts * (i64)sizeof(struct shard_part) +
                              (i64)strlen(item->sample.name) + 1);
}

static struct prepare_estimate_format *format_of(struct estimating *e, const struct source_file *file)
{
    for (i64 i = 0; i < e->count; i++)
        if (e->formats[i].reader == file->reader)
            return &e->formats[i];
    require(e->count < FORMATS_MOST, "more than %d formats", FORMATS_MOST);
    e->formats[e->count] = (struct prepare_estimate_format){.reader = file->reader};
    return &e->formats[e->count++];
}

static bool is_due(const struct estimating *e, const struct source_file *file)
{
    return (file->use == FILE_SAMPLES || source_file_waits(e->source, file)) && !file->elsewhere;
}

/* Evenly spaced samples of a file. When the list is full, every second one is dropped and the
 * stride doubles. */
struct picked {
    struct item items[SAMPLES_MOST];
    i64 count, seen, stride;
};

static void pick(struct picked *p, struct sample *sample)
{
    if (p->seen++ % p->stride != 0) {
        sample_release(sample);
        return;
    }
    if (p->count == SAMPLES_MOST) {
        for (i64 i = 0; i < SAMPLES_MOST; i++)
            if (i % 2)
                item_release(&p->items[i]);
            else
                p->items[i / 2] = p->items[i];
        p->count = SAMPLES_MOST / 2;
        p->stride *= 2;
    }
    p->items[p->count++] = (struct item){.sample = *sample};
}

/* Reads the beginning of a file and processes some of its samples, without the media tokenizers. */
static int take_file(struct estimating *e, i64 index, struct prepare_estimate_format *format)
{
    struct picked *p = memory_alloc(sizeof *p);
    struct sample sample;
    i64 files, position = 0, total;
    enum source_result result = SOURCE_SAMPLE;
    p->stride = 1;
    while (p->seen < SEEN_MOST && position < READ_MOST && (result == SOURCE_SAMPLE || result == SOURCE_BAD)) {
        result = source_next_in(e->source, index, &sample);
        if (result == SOURCE_SAMPLE)
            pick(p, &sample);
        source_progress(e->source, &position, &total);
    }
    i64 bytes = source_files(e->source, &files)[index].bytes;
    bool whole = result == SOURCE_END || result == SOURCE_DAMAGED;
    prepare_decode(e->prepare, p->items, p->count);
    double made = 0;
    for (i64 i = 0; i < p->count; i++) {
        made += (double)item_bytes(e->prepare, &p->items[i]);
        item_release(&p->items[i]);
    }
    format->read += (double)bytes;
    if (p->count)
        format->made += made * (double)p->seen / (double)p->count *
                        (whole ? 1 : (double)bytes / (double)min_i64(bytes, max_i64(1, position)));
    e->out->samples += p->count;
    e->out->files_read++;
    memory_free(p);
    return result == SOURCE_UNREACHABLE ? -1 : 0;
}

/* Samples up to FILES_MOST evenly spaced files of each format. */
static int take_files(struct estimating *e)
{
    i64 count;
    const struct source_file *files = source_files(e->source, &count);
    for (i64 i = 0; i < count; i++)
        if (is_due(e, &files[i])) {
            struct prepare_estimate_format *f = format_of(e, &files[i]);
            f->files++;
            f->bytes += files[i].bytes;
        }
    i64 at[FORMATS_MOST] = {0};
    int status = 0;
    for (i64 i = 0; i < count && status == 0 && !interrupted(); i++) {
        if (!is_due(e, &files[i]))
            continue;
        struct prepare_estimate_format *f = format_of(e, &files[i]);
        if (at[f - e->formats]++ * FILES_MOST >= f->taken * f->files && f->taken < FILES_MOST) {
            f->taken++;
            status = take_file(e, i, f);
        }
    }
    return interrupted() ? error_interrupted() : status;
}

int prepare_estimate(struct prepare_estimate *out, const struct prepare_settings *settings, struct device *device)
{
    struct prepare *p = memory_alloc(sizeof *p);
    *p = (struct prepare){.settings = settings, .out = "", .dtype = DTYPE_F32};
    struct estimating e = {.prepare = p, .out = out};
    *out = (struct prepare_estimate){0};
    int status = prepare_open(p, device);
    if (status == 0) {
        e.source = source_open(settings->data,
                               &(struct source_request){.columns = &settings->columns, .job = p->job, .jobs = p->jobs});
        status = e.source ? take_files(&e) : -1;
    }
    for (i64 i = 0; i < e.count; i++) {
        out->files += e.formats[i].files;
        out->read += (double)e.formats[i].bytes;
        out->made += e.formats[i].read > 0 ? e.formats[i].made / e.formats[i].read * (double)e.formats[i].bytes : 0;
    }
    source_close(e.source);
    prepare_close(p);
    memory_free(p);
    return status;
}
