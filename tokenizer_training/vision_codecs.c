/* What codecs of pictures, WebP and JPEG, keep of new pictures at as many bytes as the code has. */
#include "data/shapes/shaped.h"
#include "tokenizer_training/picture_report.h"
#include "tokenizer_training/vision_codecs.h"

#include <math.h>
#include <string.h>

enum { SIXTEENTHS = 16, LEAST_SIDE = 8, SHOWN = 12, QUALITY_MOST = 100 };

static const struct codec {
    const char *name;
    i64 (*encode)(struct buffer *out, const u8 *pixels, i64 height, i64 width, i64 quality);
    bool file; /* the whole file must fit, not its code alone */
} codecs[VISION_CODECS] = {{"tokens", NULL, false},
                           {"WebP, without its container", image_encode_webp, false},
                           {"WebP, whole file", image_encode_webp, true},
                           {"JPEG, scan without tables", image_encode_jpeg, false}};
static const i64 views[] = {VISION_TOKENS, VISION_WEBP, VISION_JPEG}; /* on the sheet, behind the original */
static const char *const view_names[] = {"original", "from tokens", "WebP", "JPEG"};

/* One picture and what became of it. */
struct coded {
    struct clip item;         /* the original */
    u8 *again[VISION_CODECS]; /* NULL: no file was small enough */
    i64 bytes[VISION_CODECS];
    double error[VISION_CODECS];
};
struct coding {
    struct coded *list;
    i64 limit; /* bytes of the tokenizer's code */
};

/* The file of the highest quality that fits, in `file`; returns its bytes, or 0: none fits, or -1. */
static i64 fit_quality(struct buffer *file, const struct codec *codec, const u8 *pixels, i64 height, i64 width,
                       i64 limit)
{
    struct buffer tried = {0};
    i64 fits = -1, above = QUALITY_MOST + 1, best = 0;
    while (above - fits > 1 && best >= 0) {
        i64 quality = fits < 0 ? 0 : (fits + above) / 2; /* the lowest first: if it does not fit, none does */
        buffer_clear(&tried);
        i64 code = codec->encode(&tried, pixels, height, width, quality), bytes = codec->file ? tried.length : code;
        if (code < 0)
            best = -1;
        else if (bytes > limit)
            above = quality;
        else {
            fits = quality;
            best = bytes;
            buffer_clear(file);
            buffer_append(file, tried.data, tried.length);
        }
    }
    buffer_release(&tried);
    return best;
}

/* Takes the codec's picture at a size if it is nearer to the original than those before. Returns 0 if no quality
 * fits, 1 if one does, -1 and a message. */
static int try_size(struct coded *c, i64 k, i64 limit, i64 height, i64 width)
{
    i64 bytes = c->item.height * c->item.width * 3;
    u8 *small = memory_alloc(height * width * 3), *again = memory_alloc(bytes);
    struct buffer file = {0};
    struct clip decoded = {0};
    pixels_resize(small, height, width, c->item.pixels, c->item.height, c->item.width);
    i64 used = fit_quality(&file, &codecs[k], small, height, width, limit);
    int status = used > 0 ? image_read(&decoded, file.data, file.length, codecs[k].name) : (int)used;
    if (used > 0 && status == 0) {
        pixels_resize(again, c->item.height, c->item.width, decoded.pixels, height, width);
        double error = shaped_square_error(&c->item, again);
        if (!c->again[k] || error < c->error[k]) {
            u8 *before = c->again[k];
            c->again[k] = again;
            c->error[k] = error;
            c->bytes[k] = used;
            again = before;
        }
        status = 1;
    }
    clip_release(&decoded);
    buffer_release(&file);
    memory_free(small);
    memory_free(again);
    return status;
}

/* A tile is a picture and a codec. */
static void code_one(void *context, i64 tile, int worker)
{
    struct coding *coding = context;
    i64 codecs_alone = VISION_CODECS - 1, k = 1 + tile % codecs_alone;
    struct coded *c = &coding->list[tile / codecs_alone];
    (void)worker;
    for (i64 s = 1; s <= SIXTEENTHS && !interrupted(); s++) {
        i64 height = c->item.height * s / SIXTEENTHS, width = c->item.width * s / SIXTEENTHS;
        if (s < SIXTEENTHS && (height < LEAST_SIDE || width < LEAST_SIDE))
            continue;
        if (try_size(c, k, coding->limit, height, width) <= 0)
            break; /* larger ones do not fit either */
    }
}

static void code_tokens(struct coded *list, struct vision *vision, i64 count, const struct vision_shape *shape,
                        i64 limit)
{
    i64 bytes = shape->height * shape->width * 3;
    for (i64 i = 0; i < count; i++) {
        struct coded *c = &list[i];
        c->again[VISION_TOKENS] = memory_alloc(bytes);
        vision_reconstruct(vision, c->again[VISION_TOKENS], NULL, c->item.pixels, 1, shape);
        c->error[VISION_TOKENS] = shaped_square_error(&c->item, c->again[VISION_TOKENS]);
        c->bytes[VISION_TOKENS] = limit;
    }
}

static void add_coded(struct vision_codecs *all, const struct coded *c)
{
    all->items++;
    all->edges += picture_edges(&c->item, c->item.pixels);
    for (i64 k = 0; k < VISION_CODECS; k++) {
        all->rows[k].absent |= !c->again[k];
        if (!c->again[k])
            continue;
        all->rows[k].square_error += c->error[k];
        all->rows[k].bytes += c->bytes[k];
        all->rows[k].edges += picture_edges(&c->item, c->again[k]);
        all->rows[k].ssim += picture_similarity(&c->item, c->again[k]);
    }
}

/* A place on it stays white where a codec has no picture. */
static int save_sheet(struct vision_codecs *all, const struct coded *list, i64 count, const char *folder)
{
    static const char name[] = "stills_codecs.png";
    const struct clip *first = &list[0].item;
    i64 shown = min_i64(count, SHOWN), bytes = first->height * first->width * 3;
    struct picture_sheet sheet = picture_sheet_open(first->height, first->width, 1, shown, COUNT_OF(view_names));
    struct json *names = json_array();
    u8 *white = memory_alloc(bytes);
    memset(white, 255, (size_t)bytes);
    for (i64 i = 0; i < shown; i++) {
        const u8 *parts[COUNT_OF(view_names)] = {list[i].item.pixels};
        for (i64 v = 0; v < COUNT_OF(views); v++)
            parts[1 + v] = list[i].again[views[v]] ? list[i].again[views[v]] : white;
        picture_sheet_put(&sheet, i, parts);
    }
    for (i64 v = 0; v < COUNT_OF(view_names); v++)
        json_push(names, json_of_string(view_names[v]));
    all->sheet = picture_sheet_json(&sheet, name, 0);
    json_set(all->sheet, "views", names);
    memory_free(white);
    return picture_sheet_close(&sheet, folder, name);
}

int vision_codecs_add(struct vision_codecs *all, struct vision_trainer *trainer, const struct vision_media *held_out,
                      const i32 *order, i64 n, const struct vision_shape *shape, const char *folder)
{
    i64 bytes = shape->height * shape->width * 3;
    struct coding coding = {memory_alloc(max_i64(n, 1) * (i64)sizeof(struct coded)),
                            ceil_div(vision_tokens(shape) * trainer->vision.config.bits, 8)};
    int status = 0;
    for (i64 i = 0; i < n && status == 0; i++) {
        struct content_size inner = held_out->still_inner[order[i]];
        coding.list[i].item = (struct clip){.frames = 1,
                                            .height = shape->height,
                                            .width = shape->width,
                                            .pixels = memory_alloc(bytes),
                                            .inner_height = inner.height,
                                            .inner_width = inner.width};
        status = vision_media_copy(coding.list[i].item.pixels, held_out, false, order[i], 1);
    }
    if (status == 0) {
        code_tokens(coding.list, &trainer->vision, n, shape, coding.limit);
        workers_run(n * (VISION_CODECS - 1), code_one, &coding);
        status = interrupted() ? STAGE_INTERRUPTED : 0;
    }
    for (i64 i = 0; i < n && status == 0; i++)
        add_coded(all, &coding.list[i]);
    if (status == 0 && n > 0 && !all->sheet)
        status = save_sheet(all, coding.list, n, folder);
    for (i64 i = 0; i < n; i++) {
        memory_free(coding.list[i].item.pixels);
        for (i64 k = 0; k < VISION_CODECS; k++)
            memory_free(coding.list[i].again[k]);
    }
    memory_free(coding.list);
    return status;
}

struct json *vision_codecs_json(const struct vision_codecs *all)
{
    double n = (double)all->items;
    if (!all->items)
        return NULL;
    struct json *out = json_object(), *rows = json_array();
    json_set(out, "items", json_of_integer(all->items));
    for (i64 k = 0; k < VISION_CODECS; k++) {
        if (all->rows[k].absent)
            continue;
        struct json *row = json_object();
        json_set(row, "name", json_of_string(codecs[k].name));
        json_set(row, "bytes", json_of_number((double)all->rows[k].bytes / n));
        json_set(row, "psnr_db", json_of_number(vision_psnr(all->rows[k].square_error / n)));
        json_set(row, "ssim", json_of_number(all->rows[k].ssim / n));
        json_set(row, "edges", json_of_number(all->edges > 0 ? all->rows[k].edges / all->edges : NAN));
        json_push(rows, row);
        log_info("new pictures by %s, %.0f bytes: PSNR %.2f dB, SSIM %.3f, edges %.3f of the original's",
                 codecs[k].name, (double)all->rows[k].bytes / n, vision_psnr(all->rows[k].square_error / n),
                 all->rows[k].ssim / n, all->rows[k].edges / all->edges);
    }
    json_set(out, "rows", rows);
    json_set(out, "sheet", all->sheet);
    return out;
}
