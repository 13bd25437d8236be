#include "data/shaped.h"

#include <string.h>

int shaped_image_read(struct clip *out, const struct vision_shape *shape, const struct picture_rules *rules,
                      const void *bytes, i64 count, const char *origin)
{
    struct clip stored;
    const struct image_request request = {rules, shape->height, shape->width};
    if (image_read_as(&stored, bytes, count, origin, &request) < 0)
        return -1;
    clip_resize(out, &stored, shape->height, shape->width);
    clip_release(&stored);
    return 0;
}

static void stand_still(struct clip *clip)
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
    asked.max_frames = most_frames ? most_frames + 1 : 0; /* one more shows whether there is more */
    asked.height = shape->height;
    asked.width = shape->width;
    if (clip_read(out, bytes, count, origin, &asked) < 0)
        return -1;
    bool more = most_frames && out->frames > most_frames;
    out->frames -= more;
    out->seconds -= (double)more / out->rate_hz;
    if (longer)
        *longer = more;
    stand_still(out);
    return 0;
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
