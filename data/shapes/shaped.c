/* Gives a picture or clip the nearest of the tokenizer's shapes: choice, resizing, margins. */
#include "data/shapes/shaped.h"

#include "data/shapes/aspects.h"

#include <math.h>
#include <string.h>

i64 shaped_nearest(const struct vision_config *config, bool video, double height, double width)
{
    struct aspect_list list = {0};
    i64 index[ASPECT_LIST_MOST];
    for (i64 i = 0; i < config->shape_count; i++) {
        const struct vision_shape *s = &config->shapes[i];
        if (video != (s->frames > 1) || list.count == ASPECT_LIST_MOST)
            continue;
        index[list.count] = i;
        list.items[list.count++] = (struct aspect){s->height, s->width, s->area};
    }
    return list.count ? index[aspect_nearest(&list, height, width)] : -1;
}

i64 shaped_count(const struct vision_config *config, bool video)
{
    i64 count = 0;
    for (i64 i = 0; i < config->shape_count; i++)
        count += video == (config->shapes[i].frames > 1);
    return count;
}

struct image_request shaped_request(const struct vision_config *config, const struct picture_rules *rules)
{
    struct image_request request = {rules, 0, 0};
    for (i64 i = 0; i < config->shape_count; i++) {
        const struct vision_shape *s = &config->shapes[i];
        if (s->frames > 1)
            continue;
        request.fit_height = max_i64(request.fit_height, s->height);
        request.fit_width = max_i64(request.fit_width, s->width);
    }
    return request;
}

void shaped_limit(double *height, double *width, i64 most)
{
    double times = (double)most / sqrt(*height * *width);
    if (most && times < 1) {
        *height *= times;
        *width *= times;
    }
}

i64 shaped_still(struct clip *out, const struct clip *stored, const struct vision_config *config, i64 most)
{
    double height = (double)(stored->stored_height ? stored->stored_height : stored->height);
    double width = (double)(stored->stored_width ? stored->stored_width : stored->width);
    shaped_limit(&height, &width, most);
    i64 i = shaped_nearest(config, false, height, width);
    if (i < 0)
        return error_set("the vision tokenizer has no shape for stills");
    const struct vision_shape *s = &config->shapes[i];
    clip_fill(out, stored, s->height, s->width, s->crop);
    return i;
}

int shaped_image_read(struct clip *out, const struct vision_shape *shape, const struct picture_rules *rules,
                      const void *bytes, i64 count, const char *origin)
{
    struct clip stored;
    const struct image_request request = {rules, shape->height, shape->width};
    if (image_read_as(&stored, bytes, count, origin, &request) < 0)
        return -1;
    clip_fill(out, &stored, shape->height, shape->width, shape->crop);
    clip_release(&stored);
    return 0;
}

static void repeat_last_frame(struct clip *clip)
{
    i64 frames = 1 + round_up(clip->frames - 1, VISION_GROUP), frame = clip->height * clip->width * 3;
    clip->pixels = memory_resize(clip->pixels, clip->frames * frame, frames * frame);
    clip->seconds += (double)(frames - clip->frames) / clip->rate_hz;
    for (; clip->frames < frames; clip->frames++)
        memcpy(clip->pixels + clip->frames * frame, clip->pixels + (clip->frames - 1) * frame, (size_t)frame);
}

int shaped_clip_read(struct clip *out, bool *longer, const struct vision_shape *shape,
                     const struct clip_request *request, const void *bytes, i64 count, const char *origin)
{
    i64 most_frames = request->max_frames;
    struct clip_request asked = *request;
    asked.rate_hz = shape->rate_hz;
    /* One more tells whether the file is longer. */
    asked.max_frames = most_frames ? most_frames + 1 : 0;
    asked.height = shape->height;
    asked.width = shape->width;
    asked.crop = shape->crop;
    if (clip_read(out, bytes, count, origin, &asked) < 0)
        return -1;
    bool more = most_frames && out->frames > most_frames;
    out->frames -= more;
    out->seconds -= (double)more / out->rate_hz;
    if (longer)
        *longer = more;
    repeat_last_frame(out);
    return 0;
}

static i64 clip_shape(const struct vision_config *config, const void *bytes, i64 count, const char *origin)
{
    double height = 1, width = 1;
    if (shaped_count(config, true) > 1 && clip_shown_size(&height, &width, bytes, count, origin, NULL) < 0)
        return -1;
    i64 i = shaped_nearest(config, true, height, width);
    return i >= 0 ? i : error_set("%s: the vision tokenizer has no shape for clips", origin);
}

int shaped_read(struct clip *out, i64 *shape, bool *longer, const struct vision_config *config, bool video,
                i64 most_frames, const void *bytes, i64 count, const char *origin)
{
    struct clip stored;
    *shape = -1;
    if (video) {
        *shape = clip_shape(config, bytes, count, origin);
        if (*shape < 0)
            return -1;
        const struct vision_shape *s = &config->shapes[*shape];
        struct clip_request request = {.max_frames = most_frames < 0 ? s->frames : most_frames};
        return shaped_clip_read(out, longer, s, &request, bytes, count, origin);
    }
    const struct image_request request = shaped_request(config, NULL);
    if (image_read_as(&stored, bytes, count, origin, &request) < 0)
        return -1;
    *shape = shaped_still(out, &stored, config, 0);
    clip_release(&stored);
    return *shape < 0 ? -1 : 0;
}

double shaped_margin(const struct clip *clip)
{
    i64 height = clip->inner_height ? clip->inner_height : clip->height;
    i64 width = clip->inner_width ? clip->inner_width : clip->width;
    bool rounding = clip->height - height <= 1 && clip->width - width <= 1;
    return rounding ? 0 : 1 - (double)(height * width) / (double)(clip->height * clip->width);
}

double shaped_square_error(const struct clip *clip, const u8 *pixels)
{
    i64 height = clip->inner_height ? clip->inner_height : clip->height;
    i64 width = clip->inner_width ? clip->inner_width : clip->width;
    i64 top = (clip->height - height) / 2, left = (clip->width - width) / 2;
    double sum = 0;
    for (i64 y = 0; y < clip->frames * height; y++) {
        i64 row = y / height * clip->height + top + y % height, at = (row * clip->width + left) * 3;
        sum += vision_square_error(clip->pixels + at, pixels + at, width * 3);
    }
    return sum / (double)(clip->frames * height);
}
