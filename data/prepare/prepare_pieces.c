/* Splits long files into several samples: windows of a clip (one seek each) and pieces of a sound
 * (one pass). They are encoded in batches of their own, so memory use does not grow with the
 * file. */
#include "data/prepare/prepare_internal.h"
#include "data/media/silence.h"

enum { AT_ONCE = 64 };

struct piece_batch {
    struct prepare *prepare;
    const struct item *file; /* the item made from the beginning of the long file */
    struct item items[AT_ONCE];
    i64 count, most;
};

bool prepare_wants_windows(const struct prepare *p)
{
    return p->settings->windows.every_s > 0 || p->settings->windows.most > 1;
}

bool prepare_is_cut_sound(const struct prepare *p, const struct item *item)
{
    return p->settings->cut_sounds && item->too_long && !item->problem && item->sample.layout == SAMPLE_CAPTIONED;
}

bool prepare_has_pieces(const struct prepare *p, const struct item *item)
{
    bool windows = prepare_wants_windows(p) && item->clip_cut && !item->problem && !item->too_long &&
                   item->sample.layout == SAMPLE_CAPTIONED;
    return windows || prepare_is_cut_sound(p, item);
}

/* Writes the records of a piece, or counts the reason why it has none. */
static void write_piece(struct prepare *p, const struct item *item)
{
    if (item->problem) {
        item_skip(p, item);
        return;
    }
    film_sound_count(p, item);
    p->counts.too_long += item->too_long;
    if (!item->left_out && !item->too_long &&
        (!p->curation || curation_keep_window(p->curation, &item->curate, &item->sample)))
        prepare_write(p, item);
}

/* Releases a piece without what it borrows of the file's sample. */
static void release_piece(struct item *item)
{
    for (i64 i = 0; item->encoded && i < item->sample.count; i++)
        encoded_part_release(&item->encoded[i]);
    for (i64 i = 1; i < item->sample.count; i++)
        buffer_release(&item->sample.parts[i].bytes);
    memory_free(item->sample.parts);
    memory_free(item->sample.name);
    item->sample = (struct sample){0};
    item_release(item);
}

/* Decodes, encodes and writes the pieces collected. */
static int write_pieces(struct piece_batch *batch)
{
    struct prepare *p = batch->prepare;
    prepare_decode(p, batch->items, batch->count);
    bool stopped = interrupted();
    if (!stopped)
        media_encode(p, batch->items, batch->count);
    for (i64 i = 0; i < batch->count; i++) {
        if (!stopped)
            write_piece(p, &batch->items[i]);
        release_piece(&batch->items[i]);
    }
    batch->count = 0;
    return stopped ? INTERRUPTED_WITHIN : 0;
}

/* Adds a piece with its own name and texts; everything else is borrowed from the whole file's
 * sample. sound: the decoded piece of a sound, which it takes; NULL: a window of a clip. Writes the
 * batch once it is full. */
static int add_piece(struct piece_batch *batch, double from_s, const struct sound *sound)
{
    const struct sample *whole = &batch->file->sample;
    struct item *item = &batch->items[batch->count++];
    *item = (struct item){.sample = *whole, .from_s = from_s};
    if (sound)
        item->piece = *sound;
    item->sample.name = string_format("%s@%.3f", whole->name, from_s);
    item->sample.parts = memory_alloc(whole->count * (i64)sizeof *whole->parts);
    for (i64 i = 0; i < whole->count; i++) {
        struct sample_part *part = &item->sample.parts[i];
        *part = whole->parts[i];
        part->bytes = i ? (struct buffer){0} : part->bytes;
        if (i)
            buffer_append(&part->bytes, whole->parts[i].bytes.data, whole->parts[i].bytes.length);
    }
    return batch->count == batch->most ? write_pieces(batch) : 0;
}

/* ---- Clips ---- */

/* Plans the windows of a clip: sets the distance between their starts, returns their number. Each
 * window lies fully inside the clip. */
static i64 plan_windows(double *every_s, const struct prepare *p, double seconds, double window_s)
{
    i64 most = p->settings->windows.most;
    double room_s = seconds - window_s;
    *every_s = p->settings->windows.every_s;
    if (room_s <= 0)
        return 1;
    if (*every_s > 0) {
        i64 count = 1 + (i64)(room_s / *every_s);
        return most ? min_i64(count, most) : count;
    }
    *every_s = most > 1 ? room_s / (double)(most - 1) : 0;
    return max_i64(1, most);
}

static int add_windows(struct piece_batch *batch, const struct file_view *file, const char *origin)
{
    const struct vision_shape *shape = &batch->prepare->vision.config.shapes[batch->file->encoded[0].shape];
    double seconds, every_s, window_s = shape->rate_hz > 0 ? (double)shape->frames / shape->rate_hz : 0;
    if (media_seconds(&seconds, file->data, file->bytes, origin) < 0)
        return -1;
    i64 count = plan_windows(&every_s, batch->prepare, seconds, window_s);
    int status = 0;
    for (i64 k = 1; k < count && status == 0; k++)
        status = add_piece(batch, (double)k * every_s, NULL);
    return status;
}

/* ---- Sounds ---- */

static int add_sound_pieces(struct piece_batch *batch, const struct file_view *file, const char *origin)
{
    const struct prepare_settings *s = batch->prepare->settings;
    struct silence_cutter cutter;
    struct sound piece;
    double from_s;
    int more = 1, status = 0;
    if (silence_cutter_open(&cutter, file->data, file->bytes, origin, prepare_rate_hz(batch->prepare),
                            s->audio_seconds) < 0)
        return -1;
    while (status == 0 && (more = silence_cutter_next(&cutter, &piece, &from_s)) > 0)
        status = add_piece(batch, from_s, &piece);
    silence_cutter_close(&cutter);
    return status ? status : more;
}

/* ---- Both ---- */

/* If a long file is damaged, the pieces before the damage stay. */
int prepare_write_pieces(struct prepare *p, const struct item *item)
{
    if (!prepare_has_pieces(p, item))
        return 0;
    struct piece_batch *batch = memory_alloc(sizeof *batch);
    batch->prepare = p;
    batch->file = item;
    batch->most = prepare_batch_items(p, AT_ONCE);
    const struct sample_part *part = &item->sample.parts[0];
    struct file_view file = {(const u8 *)part->bytes.data, part->bytes.length};
    const char *origin = part->path ? part->path : item->sample.name;
    int status = part->path ? file_map(&file, part->path) : 0;
    if (status == 0) {
        status =
            part->kind == MODALITY_AUDIO ? add_sound_pieces(batch, &file, origin) : add_windows(batch, &file, origin);
        if (part->path)
            file_unmap(&file);
    }
    if (status < 0) {
        log_warn("skipped: the rest of %s: %s", item->sample.name, error_text());
        p->counts.bad++;
        status = 0;
    }
    if (status == 0 && batch->count)
        status = write_pieces(batch);
    memory_free(batch);
    return status;
}
