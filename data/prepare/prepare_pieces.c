/* Splits long files into several samples: windows of a clip (one seek each) and pieces of a sound
 * (one pass). They are encoded in batches of their own, so memory use does not grow with the
 * file. */
#include "data/prepare/prepare_internal.h"
#include "data/media/silence.h"

enum { AT_ONCE = 64 };

struct pieces {
    struct prepare *prepare;
    const struct item *of;
    struct item items[AT_ONCE];
    i64 count, most;
};

bool prepare_has_windows(const struct prepare *p)
{
    return p->settings->windows.every_s > 0 || p->settings->windows.most > 1;
}

bool prepare_cuts(const struct prepare *p, const struct item *item)
{
    return p->settings->cut_sounds && item->too_long && !item->problem && item->sample.layout == SAMPLE_CAPTIONED;
}

/* Adds an item with its own name and texts; everything else is borrowed from the whole file's
 * sample. */
static struct item *add(struct pieces *pieces, double from_s)
{
    const struct item *of = pieces->of;
    struct item *item = &pieces->items[pieces->count++];
    *item = (struct item){.sample = of->sample, .from_s = from_s};
    item->sample.name = string_format("%s@%.3f", of->sample.name, from_s);
    item->sample.parts = memory_alloc(of->sample.count * (i64)sizeof *of->sample.parts);
    for (i64 i = 0; i < of->sample.count; i++) {
        struct sample_part *part = &item->sample.parts[i];
        *part = of->sample.parts[i];
        part->bytes = i ? (struct text){0} : part->bytes;
        if (i)
            text_append(&part->bytes, of->sample.parts[i].bytes.data, of->sample.parts[i].bytes.length);
    }
    return item;
}

/* Releases an item without what it borrows. */
static void release(struct item *item)
{
    for (i64 i = 0; item->made && i < item->sample.count; i++)
        made_release(&item->made[i]);
    for (i64 i = 1; i < item->sample.count; i++)
        text_release(&item->sample.parts[i].bytes);
    memory_free(item->sample.parts);
    memory_free(item->sample.name);
    item->sample = (struct sample){0};
    item_release(item);
}

static void take(struct prepare *p, struct item *item)
{
    if (item->problem) {
        log_warn("skipped: %s: %s", item->sample.name, item->problem);
        p->counts.bad++;
        return;
    }
    film_sound_tell(p, item);
    p->counts.too_long += item->too_long;
    if (!item->left_out && !item->too_long &&
        (!p->curation || curation_keep_window(p->curation, &item->curate, &item->sample)))
        prepare_write(p, item);
}

static int make(struct pieces *pieces)
{
    struct prepare *p = pieces->prepare;
    prepare_read(p, pieces->items, pieces->count);
    bool stopped = interrupted();
    if (!stopped)
        prepare_encode(p, pieces->items, pieces->count);
    for (i64 i = 0; i < pieces->count; i++) {
        if (!stopped)
            take(p, &pieces->items[i]);
        release(&pieces->items[i]);
    }
    pieces->count = 0;
    return stopped ? INTERRUPTED_WITHIN : 0;
}

static int make_if_full(struct pieces *pieces)
{
    return pieces->count == pieces->most ? make(pieces) : 0;
}

/* ---- Clips ---- */

static double window_seconds(const struct pieces *pieces)
{
    const struct vision_shape *s = &pieces->prepare->vision.config.shapes[pieces->of->made[0].shape];
    return s->rate_hz > 0 ? (double)s->frames / s->rate_hz : 0;
}

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

static int further_windows(struct pieces *pieces, const struct file_view *file, const char *origin)
{
    double seconds, every_s;
    if (media_seconds(&seconds, file->data, file->bytes, origin) < 0)
        return -1;
    i64 count = plan_windows(&every_s, pieces->prepare, seconds, window_seconds(pieces));
    int status = 0;
    for (i64 k = 1; k < count && status == 0; k++) {
        add(pieces, (double)k * every_s);
        status = make_if_full(pieces);
    }
    return status;
}

/* ---- Sounds ---- */

static int cut_sound(struct pieces *pieces, const struct file_view *file, const char *origin)
{
    const struct prepare_settings *s = pieces->prepare->settings;
    struct silence_cutter cutter;
    struct sound piece;
    double from_s;
    int more = 1, status = 0;
    if (silence_cutter_open(&cutter, file->data, file->bytes, origin, AUDIO_RATE_HZ, s->audio_seconds) < 0)
        return -1;
    while (status == 0 && (more = silence_cutter_next(&cutter, &piece, &from_s)) > 0) {
        add(pieces, from_s)->piece = piece;
        status = make_if_full(pieces);
    }
    silence_cutter_close(&cutter);
    return status ? status : more;
}

/* ---- Both ---- */

static int all_pieces(struct pieces *pieces)
{
    const struct sample_part *part = &pieces->of->sample.parts[0];
    struct file_view file = {(const u8 *)part->bytes.data, part->bytes.length};
    const char *origin = part->path ? part->path : pieces->of->sample.name;
    if (part->path && file_map(&file, part->path) < 0)
        return -1;
    int status =
        part->kind == MODALITY_AUDIO ? cut_sound(pieces, &file, origin) : further_windows(pieces, &file, origin);
    if (part->path)
        file_unmap(&file);
    return status;
}

static bool wants_windows(const struct prepare *p, const struct item *item)
{
    return prepare_has_windows(p) && item->clip_cut && !item->problem && !item->too_long &&
           item->sample.layout == SAMPLE_CAPTIONED;
}

bool prepare_has_further(const struct prepare *p, const struct item *item)
{
    return wants_windows(p, item) || prepare_cuts(p, item);
}

/* If a long file is damaged, the pieces before the damage stay. */
int prepare_further(struct prepare *p, const struct item *item)
{
    if (!prepare_has_further(p, item))
        return 0;
    struct pieces *pieces = memory_alloc(sizeof *pieces);
    pieces->prepare = p;
    pieces->of = item;
    pieces->most = prepare_batch_items(p, AT_ONCE);
    int status = all_pieces(pieces);
    if (status < 0) {
        log_warn("skipped: the rest of %s: %s", item->sample.name, error_text());
        p->counts.bad++;
        status = 0;
    }
    if (status == 0 && pieces->count)
        status = make(pieces);
    memory_free(pieces);
    return status;
}
