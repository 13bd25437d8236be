/* Report of a trained refiner on held-out media: numbers and pictures. */
#include "tokenizer_training/picture_report.h"
#include "tokenizer_training/refiner_step.h"

#include "data/shapes/shaped.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHEET_STILLS = 48, SHEET_CLIPS = 8, MOST_STILLS = 128, MOST_CLIPS = 24 };
enum { ORIGINAL, BICUBIC, REFINED, PARTS };

struct refiner_measured {
    i64 items;
    /* sums over the items: mean squared error and similarity of bicubic and refined pictures, edges of all */
    double error[PARTS], similarity[PARTS], edges[PARTS];
    /* sums of the differences of the two PSNRs of an item, and of their squares */
    double gain, gain_squares;
};

/* What one medium and its copies are. */
struct refiner_item {
    struct clip original;
    u8 *decoded, *parts[PARTS];
};

static void item_open(struct refiner_item *item, const struct vision_shape *s, struct content_size inner)
{
    i64 bytes = s->frames * s->height * s->width * 3;
    for (int p = 0; p < PARTS; p++)
        item->parts[p] = memory_alloc(bytes * REFINER_FACTOR * REFINER_FACTOR);
    item->decoded = memory_alloc(bytes);
    item->original = (struct clip){.frames = s->frames,
                                   .height = REFINER_FACTOR * s->height,
                                   .width = REFINER_FACTOR * s->width,
                                   .pixels = item->parts[ORIGINAL],
                                   .inner_height = inner.height,
                                   .inner_width = inner.width};
}

static void item_close(struct refiner_item *item)
{
    for (int p = 0; p < PARTS; p++)
        memory_free(item->parts[p]);
    memory_free(item->decoded);
}

static void add_item(struct refiner_measured *m, const struct refiner_item *item)
{
    double psnr[PARTS];
    for (int p = 0; p < PARTS; p++) {
        double error = p == ORIGINAL ? 0 : shaped_square_error(&item->original, item->parts[p]);
        m->error[p] += error;
        m->similarity[p] += p == ORIGINAL ? 1 : picture_similarity(&item->original, item->parts[p]);
        m->edges[p] += picture_edges(&item->original, item->parts[p]);
        psnr[p] = vision_psnr(fmax(error, 1e-10));
    }
    double gain = psnr[REFINED] - psnr[BICUBIC];
    m->gain += gain;
    m->gain_squares += gain * gain;
    m->items++;
}

/* One kind of media, and what is written about it. */
struct refiner_kind {
    const char *name;
    const struct vision_media *media;
    bool clips;
    i64 most; /* measured */
};

static int measure_item(struct refiner_measured *m, struct picture_sheet *sheet, struct refiner_trainer *t,
                        const struct refiner_kind *kind, i64 index, const struct vision_shape *s)
{
    const struct content_size *inner = kind->clips ? kind->media->clip_inner : kind->media->still_inner;
    struct refiner_item item;
    i64 low = s->height * s->width * 3, frames = s->frames;
    item_open(&item, s, inner[index]);
    int status = vision_media_copy(item.parts[ORIGINAL], kind->media, kind->clips, index, frames);
    if (status == 0) {
        refiner_decoded(item.decoded, t->vision, item.parts[ORIGINAL], 1, s);
        for (i64 f = 0; f < frames; f++)
            refiner_enlarge(item.parts[BICUBIC] + f * low * REFINER_FACTOR * REFINER_FACTOR, item.decoded + f * low,
                            s->height, s->width);
        refiner_sample(&t->refiner, item.parts[REFINED], item.decoded, frames, s->height, s->width,
                       &(struct refiner_draw){.seed = t->seed, .identity = (u32)index});
        picture_sheet_put(sheet, m->items, (const u8 *const *)item.parts);
        add_item(m, &item);
    }
    item_close(&item);
    return status;
}

static struct json *part_json(const struct refiner_measured *m, int part)
{
    struct json *out = json_object();
    double n = (double)m->items;
    json_set(out, "psnr_db", json_of_number(vision_psnr(m->error[part] / n)));
    json_set(out, "ssim", json_of_number(m->similarity[part] / n));
    json_set(out, "edges", json_of_number(m->edges[part] / m->edges[ORIGINAL]));
    return out;
}

static struct json *kind_json(const struct refiner_measured *m)
{
    struct json *out = json_object();
    double n = (double)m->items, mean = m->gain / n, variance = fmax(m->gain_squares / n - mean * mean, 0) / (n - 1);
    json_set(out, "items", json_of_integer(m->items));
    json_set(out, "psnr_of", json_of_string("the mean squared error within pictures, pixels in 0..1"));
    json_set(out, "bicubic", part_json(m, BICUBIC));
    json_set(out, "refined", part_json(m, REFINED));
    json_set(out, "gain_db", json_of_number(mean));
    json_set(out, "gain_db_error", json_of_number(n > 1 ? sqrt(variance) : NAN));
    return out;
}

static void log_kind(const struct refiner_measured *m, const char *name)
{
    double n = (double)m->items, all = m->edges[ORIGINAL];
    log_info("%s: bicubic %.2f dB, similarity %.3f, edges %.3f of the original's; refined %.2f dB, %.3f, %.3f (%lld)",
             name, vision_psnr(m->error[BICUBIC] / n), m->similarity[BICUBIC] / n, m->edges[BICUBIC] / all,
             vision_psnr(m->error[REFINED] / n), m->similarity[REFINED] / n, m->edges[REFINED] / all,
             (long long)m->items);
}

/* All media of a kind count; the sheet has those of one shape, the first one's. */
static int report_kind(struct json *report, struct refiner_trainer *t, const struct refiner_kind *kind,
                       const char *folder)
{
    const struct vision_media *media = kind->media;
    i64 count = min_i64(kind->clips ? media->clip_count : media->still_count, kind->most), shown = 0;
    i32 *order = vision_media_order(media, kind->clips, count, t->seed);
    struct refiner_measured m = {0};
    const struct aspect_list *shapes = &media->request.shapes[kind->clips];
    i64 first = count ? vision_media_shape(media, kind->clips, order[0]) : 0;
    for (i64 i = 0; i < count; i++)
        shown += vision_media_shape(media, kind->clips, order[i]) == first;
    const struct aspect size = shapes->items[first];
    i64 frames = kind->clips ? media->request.frames : 1;
    struct picture_sheet sheet = picture_sheet_open(size.height, size.width, frames,
                                                    min_i64(shown, kind->clips ? SHEET_CLIPS : SHEET_STILLS), PARTS);
    struct picture_sheet none = {0};
    int status = 0;
    for (int pass = 0; pass < 2; pass++) /* those of the sheet first */
        for (i64 i = 0; i < count && status == 0; i++) {
            i64 number = vision_media_shape(media, kind->clips, order[i]);
            if ((number == first) != (pass == 0))
                continue;
            const struct aspect of = {shapes->items[number].height / REFINER_FACTOR,
                                      shapes->items[number].width / REFINER_FACTOR};
            status = interrupted() ? STAGE_INTERRUPTED
                                   : measure_item(&m, pass ? &none : &sheet, t, kind, order[i],
                                                  vision_shape_of(&t->vision->config, kind->clips, of));
        }
    if (m.items && status == 0) {
        char *name = string_format("%s.png", kind->name);
        struct json *j = kind_json(&m);
        json_set(j, "sheet", picture_sheet_json(&sheet, name, kind->clips ? media->request.rate_hz : 0));
        json_set(report, kind->name, j);
        log_kind(&m, kind->name);
        status = picture_sheet_close(&sheet, folder, name);
        memory_free(name);
    } else {
        memory_free(sheet.pixels);
    }
    memory_free(order);
    return status;
}

int refiner_report(struct refiner_trainer *t, const struct vision_media *held_out, const char *folder)
{
    const struct refiner_kind kinds[] = {{"refined_stills_held_out", held_out, false, MOST_STILLS},
                                         {"refined_clips_held_out", held_out, true, MOST_CLIPS},
                                         {"refined_stills_training", t->media, false, SHEET_STILLS}};
    struct json *report = json_object();
    char *path = path_join(folder, "report.json");
    int status = 0;
    json_set(report, "parameters", json_of_integer(weights_parameters(&t->refiner.weights)));
    json_set(report, "held_out_files", json_of_integer(held_out->hashes.count));
    json_set(report, "held_out_trained_on", json_of_integer(held_out->trained_on));
    json_set(report, "sampling_steps", json_of_integer(t->refiner.config.steps));
    for (int i = 0; i < COUNT_OF(kinds) && status == 0; i++)
        if (!kinds[i].clips || held_out->request.frames > 1)
            status = report_kind(report, t, &kinds[i], folder);
    if (status == 0)
        status = json_save(path, report);
    json_free(report);
    memory_free(path);
    return status;
}
