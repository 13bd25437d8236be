/* Media of the vision tokenizer: decoded once, kept as bytes as far as memory allows,
 * drawn by random keys. */
#include "tokenizer_training/vision_step.h"
#include "data/media/media.h"
#include "data/shapes/shaped.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_FRAMES = 8 };

/* ---- reading ---- */

struct vision_data_load {
    struct vision_media *media;
    const struct vision_media_request *request;
};
/* One decoded medium: in its nearest area, then in those below it. */
struct vision_data_content {
    i64 count;
    bool is_tiny; /* a side is below side_least */
    struct vision_data_item {
        struct clip clip;
        i64 shape;     /* index into request.shapes */
        bool enlarged; /* a still smaller than its shape */
    } items[AREAS_MOST];
};

static void release_content(void *content)
{
    struct vision_data_content *c = content;
    for (i64 i = 0; i < c->count; i++)
        clip_release(&c->items[i].clip);
    c->count = 0;
}

/* Lists the shapes of a height x width medium: of its nearest area, then of those below it. */
static void list_shapes(struct vision_data_content *out, const struct aspect_list *shapes, double height, double width)
{
    out->count = 0;
    for (i64 area = aspect_nearest_area(shapes, height, width); area >= 0; area--) {
        i64 shape = aspect_nearest_of(shapes, area, height, width);
        if (shape >= 0)
            out->items[out->count++].shape = shape;
    }
}

/* The shapes follow from the size of the first frame. */
static int decode_clip(struct vision_data_content *out, const struct vision_media_request *r,
                       const struct file_view *file, const char *origin)
{
    double height = 1, width = 1;
    const struct aspect_list *shapes = &r->shapes[1];
    if (shapes->count > 1 && clip_shown_size(&height, &width, file->data, file->bytes, origin, &r->rules) < 0)
        return -1;
    list_shapes(out, shapes, height, width);
    for (i64 i = 0; i < out->count; i++) {
        struct aspect shape = shapes->items[out->items[i].shape];
        /* one extra frame shows whether the clip is longer */
        struct clip_request wanted = {r->rate_hz,     KEPT_FRAMES * r->frames + 1, shape.height, shape.width, &r->rules,
                                      .crop = r->crop};
        if (clip_read(&out->items[i].clip, file->data, file->bytes, origin, &wanted) < 0)
            return -1;
    }
    return 0;
}

static int decode_still(struct vision_data_content *out, const struct vision_media_request *r,
                        const struct file_view *file, const char *origin)
{
    struct image_request still = {.rules = &r->rules};
    struct clip stored;
    const struct aspect_list *shapes = &r->shapes[0];
    for (i64 i = 0; i < shapes->count; i++) {
        still.fit_height = max_i64(still.fit_height, shapes->items[i].height);
        still.fit_width = max_i64(still.fit_width, shapes->items[i].width);
    }
    if (image_read_as(&stored, file->data, file->bytes, origin, &still))
        return -1;
    i64 height = stored.stored_height ? stored.stored_height : stored.height;
    i64 width = stored.stored_width ? stored.stored_width : stored.width;
    list_shapes(out, shapes, (double)height, (double)width);
    out->is_tiny = min_i64(height, width) < r->side_least;
    for (i64 i = 0; i < out->count; i++) {
        struct aspect shape = shapes->items[out->items[i].shape];
        out->items[i].enlarged = height < shape.height && width < shape.width;
        clip_fill(&out->items[i].clip, &stored, shape.height, shape.width, r->crop);
    }
    clip_release(&stored);
    return 0;
}

static int decode(struct vision_data_content *out, const struct vision_media_request *request, enum modality kind,
                  const struct file_view *file, const char *origin)
{
    int status = (kind == MODALITY_VIDEO ? decode_clip : decode_still)(out, request, file, origin);
    if (status < 0)
        release_content(out);
    return status;
}

static int read_medium(void *context, void *content, const struct medium *medium, const struct file_view *file)
{
    return decode(content, ((struct vision_data_load *)context)->request, medium->kind, file, medium->path);
}

static struct medium_place copy_place(const struct medium_place *place)
{
    struct medium_place copy = *place;
    copy.path = place->path ? string_copy(place->path) : NULL;
    return copy;
}

static struct vision_label copy_label(const struct medium *medium)
{
    return (struct vision_label){string_copy(medium->path), string_copy(medium->text)};
}

/* Copies the pixels; a clip with fewer than `least` frames repeats its last one. */
static u8 *take_pixels(struct clip *clip, i64 least)
{
    i64 frame = clip->height * clip->width * 3, frames = max_i64(clip->frames, least);
    u8 *pixels = memory_alloc(frames * frame);
    for (i64 f = 0; f < frames; f++)
        memcpy(pixels + f * frame, clip->pixels + min_i64(f, clip->frames - 1) * frame, (size_t)frame);
    clip->frames = frames;
    return pixels;
}

/* Grows a list by one element; its capacity is the next power of two. */
static void *grown(void *list, i64 count, i64 size)
{
    return count & (count - 1) ? list : memory_resize(list, count * size, max_i64(1, 2 * count) * size);
}

/* Keeps the pixels within memory_mb. Beyond it, returns NULL if the medium can be read again or
 * goes to a window; else keeps it anyway. */
static u8 *keep_pixels(struct vision_media *media, struct clip *clip, i64 least, struct medium_place *place, i64 number,
                       struct media_buffer *window)
{
    i64 bytes = max_i64(clip->frames, least) * clip->height * clip->width * 3;
    bool beyond = media->bytes + bytes > media->request.memory_mb << 20;
    if (beyond && (place->path || window)) {
        clip->frames = max_i64(clip->frames, least);
        if (!place->path)
            place->at = media_buffer_add(window, number, bytes);
        return NULL;
    }
    media->bytes += bytes;
    return take_pixels(clip, least);
}

/* A medium of several areas is listed once for each. */
static void take_still(struct vision_media *media, struct vision_data_item *item, const struct medium *medium,
                       struct media_buffer *window)
{
    i64 n = media->still_count++;
    struct clip *clip = &item->clip;
    media->small_count += item->enlarged;
    media->still_shape = grown(media->still_shape, n, 1);
    media->still_shape[n] = (u8)item->shape;
    media->stills = grown(media->stills, n, sizeof(u8 *));
    media->still_inner = grown(media->still_inner, n, sizeof(struct content_size));
    media->still_places = grown(media->still_places, n, sizeof medium->place);
    media->still_inner[n] = (struct content_size){clip->inner_height, clip->inner_width};
    media->still_places[n] = copy_place(&medium->place);
    media->stills[n] = keep_pixels(media, clip, 1, &media->still_places[n], medium->number, window);
    media->still_labels = grown(media->still_labels, n, sizeof(struct vision_label));
    media->still_labels[n] = copy_label(medium);
}

static void take_clip(struct vision_media *media, struct vision_data_item *item, const struct medium *medium,
                      struct media_buffer *window)
{
    i64 n = media->clip_count++;
    struct clip *clip = &item->clip;
    media->clip_shape = grown(media->clip_shape, n, 1);
    media->clip_shape[n] = (u8)item->shape;
    media->clips = grown(media->clips, n, sizeof(u8 *));
    media->clip_frames = grown(media->clip_frames, n, sizeof(i64));
    media->clip_inner = grown(media->clip_inner, n, sizeof(struct content_size));
    media->clip_places = grown(media->clip_places, n, sizeof medium->place);
    media->clip_inner[n] = (struct content_size){clip->inner_height, clip->inner_width};
    media->clip_places[n] = copy_place(&medium->place);
    media->clips[n] = keep_pixels(media, clip, media->request.frames, &media->clip_places[n], medium->number, window);
    media->clip_frames[n] = clip->frames;
    media->clip_labels = grown(media->clip_labels, n, sizeof(struct vision_label));
    media->clip_labels[n] = copy_label(medium);
}

/* Drops the extra frame; returns true if the clip was longer than the frames kept. */
static bool cut_clip(struct clip *clip, const struct vision_media_request *request)
{
    bool longer = clip->frames > KEPT_FRAMES * request->frames;
    clip->frames -= longer;
    return longer;
}

/* A medium that can only be read in order, and does not fit into memory, is used in its nearest area alone. */
static void take_medium(void *context, void *content, struct medium *medium)
{
    struct vision_media *media = ((const struct vision_data_load *)context)->media;
    struct vision_data_content *c = content;
    media->tiny_count += c->is_tiny;
    media->short_count += medium->kind == MODALITY_VIDEO && c->items[0].clip.frames < media->request.frames;
    for (i64 i = 0; i < c->count; i++) {
        struct vision_data_item *item = &c->items[i];
        bool still = medium->kind == MODALITY_IMAGE, again = i > 0 && !medium->place.path;
        i64 bytes = item->clip.frames * item->clip.height * item->clip.width * 3;
        media->cut_count += cut_clip(&item->clip, &media->request) && i == 0;
        if (again && media->bytes + bytes > media->request.memory_mb << 20)
            continue;
        media->white += shaped_margin(&item->clip);
        media->cropped += item->clip.cut;
        if (still)
            take_still(media, item, medium, media->still_buffer);
        else
            take_clip(media, item, medium, media->clip_buffer);
    }
    release_content(c);
}

/* ---- windows ---- */

static int read_content(void *context, void *content, const struct medium *medium, const struct file_view *file)
{
    const struct vision_media_request *request = context;
    struct vision_data_content *c = content;
    if (decode(c, request, medium->kind, file, medium->path) < 0)
        return -1;
    for (i64 i = 0; i < c->count; i++)
        cut_clip(&c->items[i].clip, request);
    return 0;
}

static void open_windows(struct vision_media *media, const struct media_request *from)
{
    const struct media_buffer_kind kind = {sizeof(struct vision_data_content), read_content, release_content,
                                           &media->request};
    i64 bytes = (i64)(media->request.shuffle_buffer * (1 << 20));
    if (media->request.shuffle_buffer <= 0)
        return;
    media->still_buffer = media_buffer_open(from, &kind, bytes);
    media->clip_buffer = media_buffer_open(from, &kind, bytes);
}

/* Reorders the window media within an epoch of `count` media of one shape: they keep the places of
 * window media in `order`, but follow the order of the windows. */
static void order_windows(i32 *order, i64 count, const struct vision_media *media, bool clips, i64 shape, u64 seed,
                          u32 epoch)
{
    const struct media_buffer *window = clips ? media->clip_buffer : media->still_buffer;
    const struct medium_place *places = clips ? media->clip_places : media->still_places;
    u8 *const *kept = clips ? media->clips : media->stills;
    i64 all = clips ? media->clip_count : media->still_count, streamed = media_buffer_count(window), next = 0;
    if (streamed == 0)
        return;
    i32 *index = memory_alloc(streamed * 4), *shuffled = memory_alloc(streamed * 4);
    for (i64 i = 0; i < all; i++)
        if (!kept[i] && !places[i].path)
            index[places[i].at] = (i32)i;
    media_buffer_order(shuffled, window, seed, epoch, clips);
    for (i64 i = 0; i < count; i++) {
        if (kept[order[i]] || places[order[i]].path)
            continue;
        while (vision_media_shape(media, clips, index[shuffled[next]]) != shape)
            next++;
        order[i] = index[shuffled[next++]];
    }
    memory_free(index);
    memory_free(shuffled);
}

int vision_media_load(struct vision_media *media, const struct media_request *from,
                      const struct vision_media_request *request)
{
    struct vision_data_load load = {media, request};
    struct media_reader reader = {.what = "pictures and clips",
                                  .bad_share = request->bad_share,
                                  .content_bytes = sizeof(struct vision_data_content),
                                  .read = read_medium,
                                  .take = take_medium,
                                  .context = &load,
                                  .hashes = &media->hashes};
    struct media_request all = *from;
    all.kinds = 1 << MODALITY_IMAGE | 1 << MODALITY_VIDEO;
    *media = (struct vision_media){.request = *request};
    open_windows(media, &all);
    int status = media_read(&reader, &all);
    media->bad_count = reader.bad_count;
    if (media->tiny_count && from->says)
        log_warn("%s: %lld %s a side of fewer than %lld pixels, the stride, and %s enlarged: leave tiny pictures out",
                 from->data, (long long)media->tiny_count, plural(media->tiny_count, "picture has", "pictures have"),
                 (long long)request->side_least, plural(media->tiny_count, "is", "are"));
    if (media->short_count && from->says)
        log_warn("%s: %lld %s fewer than %lld %s: the last one is repeated (frames, rate_hz)", from->data,
                 (long long)media->short_count, plural(media->short_count, "clip has", "clips have"),
                 (long long)request->frames, plural(request->frames, "frame", "frames"));
    if (media->cut_count)
        log_warn("%s: %lld %s more than %lld %s: only so many from their beginning are used", from->data,
                 (long long)media->cut_count, plural(media->cut_count, "clip has", "clips have"),
                 (long long)(KEPT_FRAMES * request->frames),
                 plural((KEPT_FRAMES * request->frames), "frame", "frames"));
    if (status)
        vision_media_release(media);
    return status;
}

static void release_some(u8 **pixels, struct medium_place *places, i64 count)
{
    for (i64 i = 0; i < count; i++) {
        memory_free(pixels[i]);
        if (places)
            memory_free(places[i].path);
    }
    memory_free(pixels);
    memory_free(places);
}

static void release_labels(struct vision_label *labels, i64 count)
{
    for (i64 i = 0; i < count && labels; i++) {
        memory_free(labels[i].path);
        memory_free(labels[i].text);
    }
    memory_free(labels);
}

void vision_media_release(struct vision_media *media)
{
    release_labels(media->still_labels, media->still_count);
    release_labels(media->clip_labels, media->clip_count);
    release_some(media->stills, media->still_places, media->still_count);
    release_some(media->clips, media->clip_places, media->clip_count);
    memory_free(media->clip_frames);
    memory_free(media->still_shape);
    memory_free(media->clip_shape);
    memory_free(media->still_inner);
    memory_free(media->clip_inner);
    hash_list_release(&media->hashes);
    media_buffer_close(media->still_buffer);
    media_buffer_close(media->clip_buffer);
    *media = (struct vision_media){0};
}

/* ---- shapes ---- */

i64 vision_media_shape(const struct vision_media *media, bool clip, i64 index)
{
    const u8 *shapes = clip ? media->clip_shape : media->still_shape;
    return shapes ? shapes[index] : 0;
}

i64 vision_media_count(const struct vision_media *media, bool clip, i64 shape)
{
    i64 all = clip ? media->clip_count : media->still_count, count = 0;
    for (i64 i = 0; i < all; i++)
        count += vision_media_shape(media, clip, i) == shape;
    return count;
}

static int compare_i32(const void *a, const void *b)
{
    return (*(const i32 *)a > *(const i32 *)b) - (*(const i32 *)a < *(const i32 *)b);
}

i32 *vision_media_order(const struct vision_media *media, bool clips, i64 most, u64 seed)
{
    i64 count = clips ? media->clip_count : media->still_count;
    i32 *order = memory_alloc(max_i64(count, 1) * 4);
    rng_permutation(order, count, (struct rng_key){seed, RNG_SHUFFLE}, UINT32_MAX, clips);
    if (media_buffer_count(clips ? media->clip_buffer : media->still_buffer))
        qsort(order, (size_t)min_i64(count, most), sizeof *order, compare_i32);
    return order;
}

static i64 frame_bytes(const struct vision_media *media, bool clips, i64 shape)
{
    struct aspect size = media->request.shapes[clips].items[shape];
    return size.height * size.width * 3;
}

/* ---- decoding again ---- */

static const struct vision_data_item *item_of_shape(const struct vision_data_content *content, i64 shape)
{
    for (i64 i = 0; i < content->count; i++)
        if (content->items[i].shape == shape)
            return &content->items[i];
    return NULL;
}

/* A copy of the medium in its window; NULL and a message on error. */
static u8 *read_window(const struct vision_media *media, bool is_clip, i64 index)
{
    const struct medium_place *place = is_clip ? &media->clip_places[index] : &media->still_places[index];
    i64 least = is_clip ? media->request.frames : 1, frames = is_clip ? media->clip_frames[index] : 1;
    const struct vision_data_content *shown =
        media_buffer_get(is_clip ? media->clip_buffer : media->still_buffer, place->at);
    if (!shown)
        return NULL;
    const struct vision_data_item *item = item_of_shape(shown, vision_media_shape(media, is_clip, index));
    if (!item || max_i64(item->clip.frames, least) != frames) {
        error_set("a clip of a packed archive or a table has not as many frames, or not the shape, as when it was read "
                  "first");
        return NULL;
    }
    struct clip copy = item->clip;
    return take_pixels(&copy, least);
}

static u8 *read_again(const struct vision_media *media, bool is_clip, i64 index)
{
    const struct medium_place *place = is_clip ? &media->clip_places[index] : &media->still_places[index];
    i64 least = is_clip ? media->request.frames : 1, frames = is_clip ? media->clip_frames[index] : 1;
    if (!place->path)
        return read_window(media, is_clip, index);
    struct medium_view view;
    struct vision_data_content content = {0};
    u8 *pixels = NULL;
    if (medium_open(&view, place) < 0)
        return NULL;
    if (decode(&content, &media->request, is_clip ? MODALITY_VIDEO : MODALITY_IMAGE, &view.file, place->path) == 0) {
        const struct vision_data_item *item = item_of_shape(&content, vision_media_shape(media, is_clip, index));
        struct clip clip = item ? item->clip : (struct clip){0};
        cut_clip(&clip, &media->request);
        if (!item)
            error_set("%s: has another size or other proportions than when it was read first", place->path);
        else if (max_i64(clip.frames, least) != frames)
            error_set("%s: has %lld %s, but had %lld when it was read first", place->path,
                      (long long)max_i64(clip.frames, least), plural(max_i64(clip.frames, least), "frame", "frames"),
                      (long long)frames);
        else
            pixels = take_pixels(&clip, least);
    }
    release_content(&content);
    medium_close(&view);
    return pixels;
}

/* Pixels of a medium, NULL and a message on error. *own: pixels for the caller to free, or NULL. */
static const u8 *pixels_of(u8 **own, const struct vision_media *media, bool clip, i64 index)
{
    const u8 *kept = clip ? media->clips[index] : media->stills[index];
    *own = kept ? NULL : read_again(media, clip, index);
    return kept ? kept : *own;
}

int vision_media_copy(u8 *pixels, const struct vision_media *media, bool clip, i64 index, i64 frames)
{
    u8 *own;
    const u8 *from = pixels_of(&own, media, clip, index);
    if (from)
        memcpy(pixels, from, (size_t)(frames * frame_bytes(media, clip, vision_media_shape(media, clip, index))));
    memory_free(own);
    return from ? 0 : -1;
}

/* ---- augmentation ---- */

enum { FRACTION = 8, ONE = 1 << FRACTION };

/* Affine map from output to source positions, relative to the picture's centre. */
struct warp {
    double xx, xy, x0, yx, yy, y0;
};

static double draw_between(struct rng_key key, i64 step, i64 item, u32 which, double low, double high)
{
    return low + (high - low) * rng_uniform(key, (u32)step, (u32)item, which, 0);
}

/* Flip, rotation up to 0.25 radian, scale 0.8 to 1.18, shift up to 5/64 of the size. whole: no rotation, no scale, and
 * shifts by whole pixels. */
static struct warp draw_warp(struct rng_key key, i64 step, i64 item, struct aspect size, bool whole)
{
    double flip = draw_between(key, step, item, 1, -1, 1) < 0 ? -1 : 1,
           turn = draw_between(key, step, item, 2, -0.25, 0.25);
    double scale = 1 / draw_between(key, step, item, 3, 0.8, 1.18);
    double across = 5.0 / 64 * (double)size.width, down = 5.0 / 64 * (double)size.height;
    double dx = draw_between(key, step, item, 4, -across, across), dy = draw_between(key, step, item, 5, -down, down);
    if (whole)
        return (struct warp){flip, 0, -flip * round(dx), 0, 1, -round(dy)};
    double c = cos(turn) * scale, s = sin(turn) * scale;
    return (struct warp){flip * c, flip * s, -flip * (c * dx + s * dy), -s, c, s * dx - c * dy};
}

static inline const u8 *pixel_at(const u8 *picture, struct aspect size, i64 x, i64 y)
{
    static const u8 white[3] = {255, 255, 255};
    return x >= 0 && y >= 0 && x < size.width && y < size.height ? picture + (y * size.width + x) * 3 : white;
}

/* Bilinear interpolation, white outside the picture. x and y are fixed point, 1 / ONE pixel, from
 * the centre of the first pixel. */
static inline void sample_pixel(u8 out[3], const u8 *picture, struct aspect size, i64 x, i64 y)
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

static void warp_picture(u8 *out, const u8 *picture, struct aspect size, const struct warp *w)
{
    double middle = 0.5 * (double)(size.width - 1), centre = 0.5 * (double)(size.height - 1);
    for (i64 y = 0; y < size.height; y++) {
        double v = (double)y - centre;
        double x0 = (w->xy * v + w->x0 - w->xx * middle + middle) * ONE,
               y0 = (w->yy * v + w->y0 - w->yx * middle + centre) * ONE;
        for (i64 x = 0; x < size.width; x++)
            sample_pixel(out + (y * size.width + x) * 3, picture, size, (i64)floor(x0 + w->xx * ONE * (double)x),
                         (i64)floor(y0 + w->yx * ONE * (double)x));
    }
}

/* ---- drawing ---- */

struct draw_job {
    u8 *pixels;
    const struct vision_media *media;
    const struct vision_draw *draw;
    bool clips;
    const i32 *index; /* [n] medium of each item */
    u8 **shown;       /* [n] pixels from a window; NULL: not in a window */
    char **problems;  /* [n] error messages; NULL: none */
};

static void put_item(u8 *out, const struct draw_job *job, i64 item, const u8 *source)
{
    const struct vision_draw *d = job->draw;
    struct aspect size = job->media->request.shapes[job->clips].items[d->shape];
    i64 bytes = frame_bytes(job->media, job->clips, d->shape);
    struct rng_key key = {d->seed, RNG_AUGMENT};
    bool warps = draw_between(key, d->step, item, 0, 0, 1) < d->augment;
    struct warp warp = draw_warp(key, d->step, item, size, d->whole);
    for (i64 f = 0; warps && f < d->frames; f++)
        warp_picture(out + f * bytes, source + f * bytes, size, &warp);
    if (!warps)
        memcpy(out, source, (size_t)(d->frames * bytes));
}

/* Draws one item. Frames of a longer clip start at a random frame. If the folder has no stills, a
 * frame of a clip replaces a still. */
static void run_item(void *context, i64 item, int worker)
{
    const struct draw_job *job = context;
    const struct vision_draw *d = job->draw;
    i64 bytes = frame_bytes(job->media, job->clips, d->shape), start = 0;
    u8 *own = job->shown[item];
    (void)worker;
    const u8 *source = own ? own : pixels_of(&own, job->media, job->clips, job->index[item]);
    if (!source) {
        job->problems[item] = string_copy(error_text()); /* error messages are per thread */
        return;
    }
    if (job->clips) {
        i64 starts = job->media->clip_frames[job->index[item]] - d->frames + 1;
        start = rng_below((struct rng_key){d->seed, RNG_CROP}, starts, (u32)d->step, (u32)item, 0, 0);
    }
    put_item(job->pixels + item * d->frames * bytes, job, item, source + start * bytes);
    memory_free(own);
}

/* Copies the media in windows, in order, before the workers start: a window is not thread-safe. */
static int show_items(u8 **shown, const struct vision_media *media, bool clips, const i32 *index, i64 n)
{
    const struct medium_place *places = clips ? media->clip_places : media->still_places;
    u8 *const *kept = clips ? media->clips : media->stills;
    for (i64 i = 0; i < n; i++) {
        if (kept[index[i]] || places[index[i]].path)
            continue;
        shown[i] = read_window(media, clips, index[i]);
        if (!shown[i])
            return -1;
    }
    return 0;
}

static int first_problem(char **problems, i64 n)
{
    int status = 0;
    for (i64 i = 0; i < n; i++) {
        if (problems[i] && status == 0)
            status = error_set("%s", problems[i]);
        memory_free(problems[i]);
    }
    return status;
}

/* Order of one epoch of the media of a shape. */
static void order_shape(i32 *order, i64 count, const struct vision_media *media, bool clips,
                        const struct vision_draw *draw, u32 epoch)
{
    i32 *items = memory_alloc(count * 4);
    i64 all = clips ? media->clip_count : media->still_count, n = 0;
    for (i64 i = 0; i < all; i++)
        if (vision_media_shape(media, clips, i) == draw->shape)
            items[n++] = (i32)i;
    rng_permutation(order, count, (struct rng_key){draw->seed, RNG_SHUFFLE}, epoch,
                    (u32)draw->shape << 1 | (draw->frames == 1));
    for (i64 i = 0; i < count; i++)
        order[i] = items[order[i]];
    order_windows(order, count, media, clips, draw->shape, draw->seed, epoch);
    memory_free(items);
}

int vision_media_draw(u8 *pixels, const struct vision_media *media, const struct vision_draw *draw)
{
    bool clips = draw->frames > 1 || media->still_count == 0;
    i64 count = vision_media_count(media, clips, draw->shape), epoch = -1;
    require(count > 0, "a batch of media where there are none");
    i32 *order = memory_alloc(count * 4), *index = memory_alloc(draw->n * 4);
    char **problems = memory_alloc(draw->n * (i64)sizeof *problems);
    for (i64 i = 0; i < draw->n; i++) {
        i64 at = draw->first + i;
        if (at / count != epoch) {
            epoch = at / count;
            order_shape(order, count, media, clips, draw, (u32)epoch);
        }
        index[i] = order[at % count];
    }
    if (draw->drawn)
        memcpy(draw->drawn, index, (size_t)draw->n * 4);
    u8 **shown = memory_alloc(draw->n * (i64)sizeof *shown);
    struct draw_job job = {pixels, media, draw, clips, index, shown, problems};
    int status = show_items(shown, media, clips, index, draw->n);
    if (status == 0) {
        workers_run(draw->n, run_item, &job);
        status = first_problem(problems, draw->n);
    } else {
        for (i64 i = 0; i < draw->n; i++)
            memory_free(shown[i]);
    }
    memory_free(shown);
    memory_free(problems);
    memory_free(index);
    memory_free(order);
    return status;
}
