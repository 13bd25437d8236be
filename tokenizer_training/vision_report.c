/* Report of a trained vision tokenizer on held-out media: numbers and pictures. */
#include "tokenizer_training/code_use.h"
#include "tokenizer_training/picture_report.h"
#include "tokenizer_training/vision_codecs.h"
#include "data/shapes/shaped.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHEET_PAIRS = 48, SHEET_CLIPS = 12, MOST_ITEMS = 256, CODED_ITEMS = 64, TOGETHER = 16 };

struct vision_report_measured {
    /* sum over the items of the mean squared error within their pictures */
    double square_error, squares; /* squares: sum of the squares of these errors */
    i64 items;
    double rebuilt_error; /* sum over the items, as from principal components; NaN: not measured */
    double edges[2];      /* sums of picture_edges, of originals and of reconstructions */
    struct code_use use;
    struct vision_codecs codecs; /* of held-out pictures */
};

static double psnr_of(const struct vision_report_measured *m)
{
    return vision_psnr(m->square_error / (double)m->items);
}

/* Media of one kind. */
struct vision_report_items {
    const struct vision_media *media;
    bool clips;
    const struct content_size *inner;
    i64 count;
    i32 *order; /* random order of measurement */
};

/* Copies items [first, first + n) of the order, reconstructs them and adds
 * their errors and bits. */
static int measure_some(struct vision_report_measured *m, struct picture_sheet *sheet, struct vision *vision,
                        const struct vision_report_items *items, i64 first, i64 n, const struct vision_shape *shape)
{
    i64 pixels = shape->frames * shape->height * shape->width * 3, d = vision->config.bits;
    u8 *in = memory_alloc(n * pixels), *again = memory_alloc(n * pixels);
    u8 *bits = memory_alloc(n * shape->latent_frames * vision_tokens(shape) * d);
    int status = 0;
    for (i64 i = 0; i < n && status == 0; i++)
        status = vision_media_copy(in + i * pixels, items->media, items->clips, items->order[first + i], shape->frames);
    if (status == 0) {
        vision_reconstruct(vision, again, bits, in, n, shape);
        code_use_add_bits(&m->use, bits, n * shape->latent_frames, shape);
    }
    for (i64 i = 0; i < n && status == 0; i++) {
        struct content_size inner = items->inner[items->order[first + i]];
        struct clip item = {.frames = shape->frames,
                            .height = shape->height,
                            .width = shape->width,
                            .pixels = in + i * pixels,
                            .inner_height = inner.height,
                            .inner_width = inner.width};
        double error = shaped_square_error(&item, again + i * pixels);
        m->square_error += error;
        m->squares += error * error;
        m->edges[0] += picture_edges(&item, item.pixels);
        m->edges[1] += picture_edges(&item, again + i * pixels);
        picture_sheet_put(sheet, first + i, (const u8 *[]){in + i * pixels, again + i * pixels});
    }
    memory_free(in);
    memory_free(again);
    memory_free(bits);
    return status;
}

static int measure(struct vision_report_measured *m, struct picture_sheet *sheet, struct vision *vision,
                   const struct vision_report_items *items, const struct vision_shape *shape)
{
    code_use_init(&m->use, true, shape->scale_count, vision->config.bits);
    m->items = items->count;
    int status = 0;
    for (i64 i = 0; i < m->items && status == 0; i += TOGETHER)
        status = interrupted() ? STAGE_INTERRUPTED
                               : measure_some(m, sheet, vision, items, i, min_i64(TOGETHER, m->items - i), shape);
    return status;
}

/* Those of the reconstructions as a share of the originals'; NaN: the originals have none. */
static double edges_share(const struct vision_report_measured *m)
{
    return m->edges[0] > 0 ? m->edges[1] / m->edges[0] : NAN;
}

static struct json *scales_json(const struct code_use *use, const struct vision_shape *shape, struct buffer *line)
{
    struct json *out = json_array();
    i64 dead_bits = 0;
    buffer_printf(line, "; entropy of a bit by scale");
    for (i64 k = 0; k < shape->scale_count; k++) {
        double entropy = code_use_entropy(use, k);
        i64 dead = code_use_dead(use, k);
        struct json *scale = json_object();
        json_set(scale, "scale", scale_json(shape->scales[k]));
        json_set(scale, "entropy_bits", json_of_number(entropy));
        json_set(scale, "dead_bits", json_of_integer(dead));
        json_push(out, scale);
        buffer_printf(line, " %.2f", entropy);
        dead_bits += dead;
    }
    buffer_printf(line, ", %lld of %lld dead", (long long)dead_bits, (long long)(shape->scale_count * use->width));
    return out;
}

/* Items of one shape among the first `most` drawn ones. */
static struct vision_report_items items_of_shape(const struct vision_report_items *all, i64 shape, i64 most)
{
    struct vision_report_items some = *all;
    some.count = 0;
    some.order = memory_alloc(max_i64(most, 1) * 4);
    for (i64 i = 0; i < most; i++)
        if (vision_media_shape(all->media, all->clips, all->order[i]) == shape)
            some.order[some.count++] = all->order[i];
    return some;
}

/* The file name includes the shape if there are several. */
static void name_sheet(char out[96], const char *kind, const struct vision_shape *shape, bool several)
{
    snprintf(out, 96, several ? "%s-%s.png" : "%s.png", kind, shape->name);
}

static bool are_new_pictures(const struct vision_trainer *t, const struct vision_report_items *items)
{
    return !items->clips && items->media != t->media;
}

/* Of held-out pictures; NaN of other media. */
static double rebuilt_error(struct vision_trainer *t, const struct vision_report_items *items,
                            const struct vision_shape *shape)
{
    double sum = 0;
    i64 used;
    if (!are_new_pictures(t, items) || t->media->still_buffer)
        return NAN;
    return vision_components_error(&sum, &used, t, items->media, items->order, items->count, shape) ? NAN : sum;
}

/* Standard error of the PSNR over items, by that of the mean error. */
static double psnr_error(const struct vision_report_measured *m)
{
    double n = (double)m->items, mean = m->square_error / n;
    double variance = fmax(m->squares / n - mean * mean, 0) / (n - 1);
    return n > 1 && mean > 0 ? 10 / log(10) * sqrt(variance) / mean : NAN;
}

/* Measures and shows the media of one shape, and adds them to `all`. drawn: media of all shapes. */
static int report_shape(struct vision_report_measured *all, struct json *shapes, struct vision_trainer *t,
                        const struct vision_report_items *items, i64 drawn, const struct vision_shape *shape,
                        const char *kind, const char *folder)
{
    bool clips = shape->frames > 1;
    struct vision_report_measured m = {0};
    char name[96];
    i64 shown = min_i64(items->count, clips ? SHEET_CLIPS : SHEET_PAIRS);
    struct picture_sheet sheet = picture_sheet_open(shape->height, shape->width, shape->frames, shown, 2);
    int status = measure(&m, &sheet, &t->vision, items, shape);
    all->square_error += m.square_error;
    all->squares += m.squares;
    for (int i = 0; i < 2; i++)
        all->edges[i] += m.edges[i];
    all->rebuilt_error += rebuilt_error(t, items, shape);
    if (status == 0 && are_new_pictures(t, items)) /* each shape as often as there are pictures of it */
        status = vision_codecs_add(&all->codecs, t, items->media, items->order,
                                   ceil_div(items->count * CODED_ITEMS, max_i64(drawn, CODED_ITEMS)), shape, folder);
    all->items += m.items;
    code_use_join(&all->use, &m.use);
    struct json *entry = json_object();
    json_set(entry, "shape", json_of_string(shape->name));
    json_set(entry, "items", json_of_integer(m.items));
    json_set(entry, "psnr_db", json_of_number(psnr_of(&m)));
    name_sheet(name, kind, shape, shaped_count(&t->vision.config, clips) > 1);
    json_set(entry, "sheet", picture_sheet_json(&sheet, name, shape->rate_hz));
    json_push(shapes, entry);
    int closed = picture_sheet_close(&sheet, folder, name);
    code_use_release(&m.use);
    return status ? status : closed;
}

/* Reports each shape of a kind, in the order of the configuration. */
static int report_shapes(struct vision_report_measured *all, struct json *shapes, struct vision_trainer *t,
                         const struct vision_report_items *items, bool clips, const char *kind, const char *folder)
{
    const struct vision_config *c = &t->vision.config;
    i64 most = min_i64(items->count, MOST_ITEMS);
    int status = 0;
    for (i64 i = 0; i < c->shape_count && status == 0; i++)
        for (i64 k = 0; k < items->media->request.shapes[items->clips].count && status == 0; k++) {
            struct aspect size = items->media->request.shapes[items->clips].items[k];
            if (vision_shape_of(c, clips, size) != &c->shapes[i])
                continue;
            struct vision_report_items some = items_of_shape(items, k, most);
            if (some.count)
                status = report_shape(all, shapes, t, &some, most, &c->shapes[i], kind, folder);
            memory_free(some.order);
        }
    return status;
}

/* "; 64x64 31.20 dB of 40, 80x48 30.10 dB of 12" */
static void log_shapes(struct buffer *line, const struct json *shapes)
{
    for (i64 i = 0; json_count(shapes) > 1 && i < json_count(shapes); i++) {
        const struct json *s = json_at(shapes, i);
        buffer_printf(line, "%s %s %.2f dB of %lld", i ? "," : ";", json_string(json_get(s, "shape"), ""),
                      json_number(json_get(s, "psnr_db"), INFINITY), (long long)json_integer(json_get(s, "items"), 0));
    }
}

/* A kind with only one shape gets that shape's sheet. */
static struct json *kind_json(const struct vision_report_measured *m, struct json *shapes,
                              const struct vision_shape *shape, struct buffer *line)
{
    struct json *entry = json_object();
    json_set(entry, "items", json_of_integer(m->items));
    json_set(entry, "psnr_db", json_of_number(psnr_of(m)));
    json_set(entry, "psnr_db_error", json_of_number(psnr_error(m)));
    if (isfinite(m->rebuilt_error))
        json_set(entry, "psnr_db_components", json_of_number(vision_psnr(m->rebuilt_error / (double)m->items)));
    struct json *codecs = vision_codecs_json(&m->codecs);
    if (codecs)
        json_set(entry, "codecs", codecs);
    json_set(entry, "edges", json_of_number(edges_share(m)));
    json_set(entry, "psnr_of", json_of_string("the mean squared error within pictures, pixels in 0..1"));
    json_set(entry, "scales", scales_json(&m->use, shape, line));
    if (json_count(shapes) == 1)
        json_set(entry, "sheet", json_copy(json_get(json_at(shapes, 0), "sheet")));
    if (json_count(shapes) == 1)
        json_free(shapes);
    else
        json_set(entry, "shapes", shapes);
    return entry;
}

static int report_kind(struct json *report, struct vision_trainer *t, struct vision_report_items items,
                       const char *kind, const char *folder)
{
    if (items.count == 0)
        return 0;
    const struct vision_config *c = &t->vision.config;
    const struct vision_shape *shape = &c->shapes[0]; /* with the most scales */
    struct vision_report_measured m = {0};
    struct buffer line = {0};
    struct json *shapes = json_array();
    for (i64 i = 1; i < c->shape_count; i++)
        shape = c->shapes[i].scale_count > shape->scale_count ? &c->shapes[i] : shape;
    code_use_init(&m.use, true, VISION_SCALES_MOST, c->bits);
    items.order = vision_media_order(items.media, items.clips, MOST_ITEMS, t->seed);
    int status = report_shapes(&m, shapes, t, &items, items.clips, kind, folder);
    if (m.edges[0] > 0)
        buffer_printf(&line, "; edges %.3f of the original's", edges_share(&m));
    log_shapes(&line, shapes);
    json_set(report, kind, kind_json(&m, shapes, shape, &line));
    log_info("%s: PSNR %.2f dB (of the mean error of %lld, pixels in 0..1)%s", kind, psnr_of(&m), (long long)m.items,
             line.data);
    if (isfinite(m.rebuilt_error))
        log_info("%s: PSNR %.2f dB from principal components of training pictures, of as many bytes", kind,
                 vision_psnr(m.rebuilt_error / (double)m.items));
    memory_free(items.order);
    code_use_release(&m.use);
    buffer_release(&line);
    return status;
}

/* ---- words of captions ---- */

enum { WORDS_STILLS = 600, WORDS_CLIPS = 200 };

/* Adds the mean of the code's sums over positions and latent frames, of `n` media of a shape. */
static int add_means(struct semantic_set *set, struct vision *vision, const struct vision_report_items *items,
                     i64 first, i64 n, const struct vision_shape *s)
{
    const struct vision_label *labels = items->clips ? items->media->clip_labels : items->media->still_labels;
    i64 pixels = s->frames * s->height * s->width * 3, d = vision->config.bits, rows = s->latent_frames * s->h * s->w;
    u8 *in = memory_alloc(n * pixels), *bits = memory_alloc(n * s->latent_frames * vision_tokens(s) * d);
    float *latent = memory_alloc(n * rows * d * 4), *sum = memory_alloc(n * rows * d * 4);
    int status = 0;
    for (i64 i = 0; i < n && status == 0; i++)
        status = vision_media_copy(in + i * pixels, items->media, items->clips, items->order[first + i], s->frames);
    if (status == 0) {
        vision_encode(vision, latent, NULL, in, n, s->frames, s->height, s->width);
        vision_quantize(vision, bits, sum, latent, n * s->latent_frames, s);
    }
    for (i64 i = 0; i < n && status == 0; i++) {
        const struct vision_label *label = &labels[items->order[first + i]];
        float *mean = set->features + set->count * d;
        for (i64 at = 0; at < rows * d; at++)
            mean[at % d] += sum[i * rows * d + at] / (float)rows;
        set->media[set->count++] = (struct semantic_medium){label->path, label->text};
    }
    memory_free(in);
    memory_free(bits);
    memory_free(latent);
    memory_free(sum);
    return status;
}

static int means_of_kind(struct semantic_set *set, struct vision_trainer *t, const struct vision_media *media,
                         bool clips)
{
    const struct vision_config *c = &t->vision.config;
    struct vision_report_items all = {.media = media, .clips = clips};
    i64 count = clips ? media->clip_count : media->still_count;
    i64 most = min_i64(count, clips ? WORDS_CLIPS : WORDS_STILLS);
    int status = 0;
    *set = (struct semantic_set){memory_alloc(max_i64(most, 1) * c->bits * 4),
                                 memory_alloc(max_i64(most, 1) * (i64)sizeof *set->media), 0};
    all.order = vision_media_order(media, clips, most, t->seed);
    for (i64 k = 0; k < media->request.shapes[clips].count && status == 0; k++) {
        const struct vision_shape *shape = vision_shape_of(c, clips, media->request.shapes[clips].items[k]);
        struct vision_report_items some = items_of_shape(&all, k, most);
        for (i64 i = 0; i < some.count && shape && status == 0; i += TOGETHER)
            status = interrupted() ? STAGE_INTERRUPTED
                                   : add_means(set, &t->vision, &some, i, min_i64(TOGETHER, some.count - i), shape);
        memory_free(some.order);
    }
    memory_free(all.order);
    return status;
}

static bool has_captions(const struct vision_label *labels, i64 count)
{
    bool has = false;
    for (i64 i = 0; i < count && labels; i++)
        has |= *labels[i].text != 0;
    return has;
}

/* Which words of captions a linear probe tells from the codes of stills, and of clips. */
static int report_words(struct json *report, struct vision_trainer *t, const struct vision_media *held_out, bool clips)
{
    const struct vision_media *m = t->media;
    struct semantic_set train = {0}, other = {0};
    if (!has_captions(clips ? m->clip_labels : m->still_labels, clips ? m->clip_count : m->still_count) ||
        !(clips ? held_out->clip_labels : held_out->still_labels))
        return 0;
    int status = means_of_kind(&train, t, m, clips);
    if (status == 0)
        status = means_of_kind(&other, t, held_out, clips);
    if (status == 0)
        semantic_report(report, clips ? "words_probe_clips" : "words_probe",
                        clips ? "codes of clips" : "codes of stills", &train, &other, t->vision.config.bits);
    semantic_set_release(&train);
    semantic_set_release(&other);
    return status;
}

int vision_report(struct vision_trainer *t, const struct vision_media *held_out, const char *folder)
{
    struct json *report = json_object();
    char *path = path_join(folder, "report.json");
    int status = 0;
    json_set(report, "parameters", json_of_integer(weights_parameters(&t->vision.weights)));
    json_set(report, "held_out_files", json_of_integer(held_out->hashes.count));
    json_set(report, "held_out_trained_on", json_of_integer(held_out->trained_on));
    if (vision_has_discriminator(t->settings))
        json_set(report, "discriminator", discriminator_json(&t->discriminator.common));
    const struct vision_media *media[2] = {held_out, t->media};
    static const char *const stills[2] = {"stills_held_out", "stills_training"};
    static const char *const clips[2] = {"clips_held_out", "clips_training"};
    for (int i = 0; i < 2 && status == 0; i++) {
        struct vision_report_items items = {media[i], false, media[i]->still_inner, media[i]->still_count, NULL};
        status = report_kind(report, t, items, stills[i], folder);
    }
    for (int i = 0; i < 2 && status == 0 && t->clip_steps > 0; i++) {
        struct vision_report_items items = {media[i], true, media[i]->clip_inner, media[i]->clip_count, NULL};
        status = report_kind(report, t, items, clips[i], folder);
    }
    for (int kind = 0; kind < 2 && status == 0; kind++)
        status = kind == 0 || t->clip_steps > 0 ? report_words(report, t, held_out, kind) : 0;
    if (status == 0)
        status = json_save(path, report);
    json_free(report);
    memory_free(path);
    return status;
}
