#include "data/media/picture.h"

#include <string.h>

void picture_release(struct picture *picture)
{
    memory_free(picture->pixels);
    memory_free(picture->deep);
    buffer_release(&picture->profile);
    *picture = (struct picture){0};
}

int picture_check_size(i64 height, i64 width, const char *origin, const struct image_request *request)
{
    i64 most = request->rules->most_pixels;
    if (height < 1 || width < 1)
        return error_set("%s: a picture of %lldx%lld; expected at least one pixel", origin, (long long)height,
                         (long long)width);
    if (width <= most / height)
        return 0;
    return error_set("%s: a picture of %lldx%lld, larger than %lld pixels; make it smaller, or raise "
                     "pictures.most_pixels if it may be so large",
                     origin, (long long)height, (long long)width, (long long)most);
}

/* CMYK to RGB without a profile: each ink's remaining light times that of black. In-place. */
static void inks_to_rgb(u8 *pixels, i64 count)
{
    const u8 *in = pixels;
    for (u8 *out = pixels; count > 0; count--, in += 4, out += 3) {
        int black = in[3];
        for (int c = 0; c < 3; c++)
            out[c] = (u8)((in[c] * black + 127) / 255);
    }
}

void picture_narrow(struct picture *picture)
{
    i64 count = picture->height * picture->width * (picture->inks == INKS_RGB ? 3 : 4);
    picture->pixels = (u8 *)picture->deep;
    for (i64 i = 0; i < count; i++)
        picture->pixels[i] = deep_to_byte(picture->deep[i]);
    picture->pixels = memory_resize(picture->pixels, 2 * count, count);
    picture->deep = NULL;
}

static void to_rgb(struct picture *picture, const struct picture_rules *rules)
{
    i64 count = picture->height * picture->width;
    if (picture->profile.length || picture->lab)
        colours_to_srgb(picture);
    if (picture->deep)
        picture_narrow(picture);
    if (picture->inks == INKS_RGB)
        return;
    if (picture->inks == INKS_CMYK)
        inks_to_rgb(picture->pixels, count);
    else
        pixels_blend(picture->pixels, picture->pixels, count, rules->background);
    picture->pixels = memory_resize(picture->pixels, count * 4, count * 3);
    picture->inks = INKS_RGB;
}

static void turn(struct clip *clip, struct orientation how)
{
    i64 height = clip->height, width = clip->width, out_width = how.transposed ? height : width;
    u8 *turned = memory_alloc(height * width * 3);
    pixels_place(turned, out_width, clip->pixels, width * 3, height, width, how);
    memory_free(clip->pixels);
    clip->pixels = turned;
    clip->width = out_width;
    clip->height = how.transposed ? width : height;
    if (how.transposed) {
        i64 stored_height = clip->stored_height;
        clip->stored_height = clip->stored_width;
        clip->stored_width = stored_height;
    }
}

void picture_finish(struct clip *out, struct picture *picture, const struct image_request *request)
{
    to_rgb(picture, request->rules);
    *out = (struct clip){.frames = 1,
                         .height = picture->height,
                         .width = picture->width,
                         .pixels = picture->pixels,
                         .stored_height = picture->stored_height,
                         .stored_width = picture->stored_width};
    picture->pixels = NULL;
    if (picture->orientation > 1)
        turn(out, orientation_of_exif(picture->orientation));
}
