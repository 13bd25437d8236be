/* The vision tokenizer's media: read once, kept as bytes, drawn by keys. */
#include "codecs/vision_step.h"
#include "data/media.h"

#include <math.h>
#include <string.h>

enum { KEPT_FRAMES = 8 };

/* ---- reading ---- */

struct load {
    struct vision_media *media;
    const struct vision_media_request *request;
};

static int read_medium(void *context, void *content, const struct medium *medium, const struct file_view *file)
{
    const struct vision_media_request *request = ((struct load *)context)->request;
    /* one frame more shows whether there are more */
    struct clip_request wanted = {request->rate_hz, KEPT_FRAMES * request->frames + 1, request->size, request->size,
                                  &request->rules};
    const struct image_request still = {&request->rules, request->size, request->size};
    struct clip as_stored = {0};
    if (medium->kind == SAMPLE_VIDEO)
        return clip_read(content, file->data, file->bytes, medium->path, &wanted);
    if (image_read_as(&as_stored, file->data, file->bytes, medium->path, &still))
        return -1;
    clip_resize(content, &as_stored, request->size, request->size);
    clip_release(&as_stored);
    return 0;
}

/* A clip shorter than wanted stands still at its end. */
static u8 *take_pixels(struct clip *clip, i64 least)
{
    i64 frame = clip->height * clip->width * 3, frames = max_i64(clip->frames, least);
    u8 *pixels = memory_alloc(frames * frame);
    for (i64 f = 0; f < frames; f++)
        memcpy(pixels + f * frame, clip->pixels + min_i64(f, clip->frames - 1) * frame, (size_t)frame);
    clip->frames = frames;
    return pixels;
}

/* Room for one more; lists have that of the next power of two. */
static void *grown(void *list, i64 count, i64 size)
{
    return count & (count - 1) ? list : memory_resize(list, count * size, max_i64(1, 2 * count) * size);
}

static void take_medium(void *context, void *content, struct medium *medium)
{
    const struct load *load = context;
    struct vision_media *media = load->media;
    struct clip *clip = content;
    bool longer = clip->frames > KEPT_FRAMES * load->request->frames;
    clip->frames -= longer;
    media->cut_count += longer;
    struct inner inner = {clip->inner_height, clip->inner_width};
    if (medium->kind == SAMPLE_IMAGE) {
        media->stills = grown(media->stills, media->still_count, sizeof(u8 *));
        media->still_inner = grown(media->still_inner, media->still_count, sizeof inner);
        media->still_inner[media->still_count] = inner;
        media->stills[media->still_count++] = take_pixels(clip, 1);
    } else {
        media->clips = grown(media->clips, media->clip_count, sizeof(u8 *));
        media->clip_frames = grown(media->clip_frames, media->clip_count, sizeof(i64));
        media->clip_inner = grown(media->clip_inner, media->clip_count, sizeof inner);
        media->clip_inner[media->clip_count] = inner;
        media->clips[media->clip_count] = take_pixels(clip, load->request->frames);
        media->clip_frames[media->clip_count++] = clip->frames;
    }
    media->bytes += clip->frames * media->size * media->size * 3;
    clip_release(clip);
}

int vision_media_load(struct vision_media *media, const struct media_request *from,
                      const struct vision_media_request *request)
{
    struct load load = {media, request};
    struct media_reader reader = {.what = "pictures and clips",
                                  .bad_share = request->bad_share,
                                  .content_bytes = sizeof(struct clip),
                                  .read = read_medium,
                                  .take = take_medium,
                                  .context = &load};
    struct media_request all = *from;
    all.kinds = 1 << SAMPLE_IMAGE | 1 << SAMPLE_VIDEO;
    *media = (struct vision_media){.size = request->size};
    int status = media_read(&reader, &all);
    media->bad_count = reader.bad_count;
    if (media->cut_count)
        log_warn("%s: %lld clips have more than %lld frames: only so many from their beginning are used", from->data,
                 (long long)media->cut_count, (long long)(KEPT_FRAMES * request->frames));
    if (status)
        vision_media_release(media);
    return status;
}

void vision_media_release(struct vision_media *media)
{
    for (i64 i = 0; i < media->still_count; i++)
        memory_free(media->stills[i]);
    for (i64 i = 0; i < media->clip_count; i++)
        memory_free(media->clips[i]);
    memory_free(media->stills);
    memory_free(media->clips);
    memory_free(media->clip_frames);
    memory_free(media->still_inner);
    memory_free(media->clip_inner);
    *media = (struct vision_media){0};
}

/* ---- augmentation ---- */

enum { FRACTION = 8, ONE = 1 << FRACTION };

struct warp { /* source position of an output one, both from the picture's middle */
    double xx, xy, x0, yx, yy, y0;
};

static double draw_between(struct rng_key key, i64 step, i64 item, u32 which, double low, double high)
{
    return low + (high - low) * rng_uniform(key, (u32)step, (u32)item, which, 0);
}

/* Flip, turn up to a quarter radian, size 0.8 to 1.18, shift up to 5 of 64 pixels. */
static struct warp draw_warp(struct rng_key key, i64 step, i64 item, i64 size)
{
    double flip = draw_between(key, step, item, 1, -1, 1) < 0 ? -1 : 1,
           turn = draw_between(key, step, item, 2, -0.25, 0.25);
    double scale = 1 / draw_between(key, step, item, 3, 0.8, 1.18), shift = 5.0 / 64 * (double)size;
    double dx = draw_between(key, step, item, 4, -shift, shift), dy = draw_between(key, step, item, 5, -shift, shift);
    double c = cos(turn) * scale, s = sin(turn) * scale;
    return (struct warp){flip * c, flip * s, -flip * (c * dx + s * dy), -s, c, s * dx - c * dy};
}

static inline const u8 *pixel_at(const u8 *picture, i64 size, i64 x, i64 y)
{
    static const u8 white[3] = {255, 255, 255};
    return x >= 0 && y >= 0 && x < size && y < size ? picture + (y * size + x) * 3 : white;
}

/* Bilinear, white beyond the edges; x and y are in units of 1 / ONE pixel from the centre of the first. */
static inline void sample_pixel(u8 out[3], const u8 *picture, i64 size, i64 x, i64 y)
{
    i64 left = x >> FRACTION, top = y >> FRACTION;
    i32 u = (i32)(x & (ONE - 1)), v = (i32)(y & (ONE - 1));
    const u8 *a = pixel_at(picture, size, left, top), *b = pixel_at(picture, size, left + 1, top);
    const u8 *c = pixel_at(picture, size, left, top + 1), *d = pixel_at(picture, size, left + 1, top + 1);
    for (int i = 0; i < 3; i++) {
        i32 upper = a[i] * (ONE - u) + b[i] * u, lower = c[i] * (ONE - u) + d[i] * u;
        out[i] = (u8)((upper * (ONE - v) + lower * v + (1 << (2 * FRACTION - 1))) >> (2 * FRACTION));
    }
}

static void warp_picture(u8 *out, const u8 *picture, i64 size, const struct warp *w)
{
    double middle = 0.5 * (double)(size - 1);
    for (i64 y = 0; y < size; y++) {
        double v = (double)y - middle;
        double x0 = (w->xy * v + w->x0 - w->xx * middle + middle) * ONE,
               y0 = (w->yy * v + w->y0 - w->yx * middle + middle) * ONE;
        for (i64 x = 0; x < size; x++)
            sample_pixel(out + (y * size + x) * 3, picture, size, (i64)floor(x0 + w->xx * ONE * (double)x),
                         (i64)floor(y0 + w->yx * ONE * (double)x));
    }
}

/* ---- drawing ---- */

struct draw_job {
    u8 *pixels;
    const struct vision_media *media;
    const struct vision_draw *draw;
    const u8 **source; /* [n] first frame of each item */
};

static void run_item(void *context, i64 item, int worker)
{
    const struct draw_job *job = context;
    const struct vision_draw *d = job->draw;
    i64 size = job->media->size, bytes = size * size * 3;
    struct rng_key key = {d->seed, RNG_AUGMENT};
    bool warps = draw_between(key, d->step, item, 0, 0, 1) < d->augment;
    struct warp warp = draw_warp(key, d->step, item, size);
    u8 *out = job->pixels + item * d->frames * bytes;
    (void)worker;
    for (i64 f = 0; warps && f < d->frames; f++)
        warp_picture(out + f * bytes, job->source[item] + f * bytes, size, &warp);
    if (!warps)
        memcpy(out, job->source[item], (size_t)(d->frames * bytes));
}

/* Where an item's frames begin: of a longer clip somewhere; a still from a folder without stills is a clip's frame. */
static const u8 *item_source(const struct vision_media *media, const struct vision_draw *draw, i64 item, i64 index)
{
    if (draw->frames == 1 && media->still_count)
        return media->stills[index];
    i64 starts = media->clip_frames[index] - draw->frames + 1;
    i64 start = rng_below((struct rng_key){draw->seed, RNG_CROP}, starts, (u32)draw->step, (u32)item, 0, 0);
    return media->clips[index] + start * media->size * media->size * 3;
}

void vision_media_draw(u8 *pixels, const struct vision_media *media, const struct vision_draw *draw)
{
    i64 count = draw->frames == 1 && media->still_count ? media->still_count : media->clip_count, epoch = -1;
    require(count > 0, "a batch of media where there are none");
    i32 *order = memory_alloc(count * 4);
    const u8 **source = memory_alloc(draw->n * (i64)sizeof *source);
    for (i64 i = 0; i < draw->n; i++) {
        i64 at = draw->first + i;
        if (at / count != epoch) {
            epoch = at / count;
            rng_permutation(order, count, (struct rng_key){draw->seed, RNG_SHUFFLE}, (u32)epoch, draw->frames == 1);
        }
        source[i] = item_source(media, draw, i, order[at % count]);
    }
    struct draw_job job = {pixels, media, draw, source};
    workers_run(draw->n, run_item, &job);
    memory_free(order);
    memory_free(source);
}
