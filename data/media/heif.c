/* Reads HEIF and AVIF through libheif, which applies the file's turns, mirrors and crops. */
#include "data/media/picture.h"
#include <libheif/heif.h>
#include <string.h>

static int refuse(const char *origin, struct heif_error error)
{
    return error_set("%s: a HEIF picture: %s", origin, error.message);
}

/* Colours stated by numbers (nclx). */
static int take_numbers(struct picture *out, const struct heif_image_handle *handle, const char *origin)
{
    struct heif_color_profile_nclx *numbers = NULL;
    int status = 0;
    if (heif_image_handle_get_nclx_color_profile(handle, &numbers).code == heif_error_Ok && numbers)
        status = profile_of_numbers(&out->profile, (int)numbers->color_primaries,
                                    (int)numbers->transfer_characteristics, origin);
    heif_nclx_color_profile_free(numbers);
    return status;
}

static void take_profile(struct picture *out, const struct heif_image_handle *handle)
{
    i64 bytes = (i64)heif_image_handle_get_raw_color_profile_size(handle);
    enum heif_color_profile_type type = heif_image_handle_get_color_profile_type(handle);
    if (bytes <= 0 || (type != heif_color_profile_type_prof && type != heif_color_profile_type_rICC))
        return;
    u8 *profile = memory_alloc(bytes);
    if (heif_image_handle_get_raw_color_profile(handle, profile).code == heif_error_Ok)
        buffer_append(&out->profile, profile, bytes);
    memory_free(profile);
}

static int take_pixels(struct picture *out, const struct heif_image *image, const char *origin)
{
    int stride;
    i64 channels = out->inks == INKS_RGBA ? 4 : 3;
    const u8 *rows = heif_image_get_plane_readonly(image, heif_channel_interleaved, &stride);
    out->height = heif_image_get_height(image, heif_channel_interleaved);
    out->width = heif_image_get_width(image, heif_channel_interleaved);
    if (!rows || out->height < 1 || out->width < 1)
        return error_set("%s: a HEIF picture without pixels", origin);
    out->pixels = memory_alloc(out->height * out->width * channels);
    for (i64 y = 0; y < out->height; y++)
        memcpy(out->pixels + y * out->width * channels, rows + y * stride, (size_t)(out->width * channels));
    return 0;
}

/* Divides the colours by the transparency with which the file has multiplied them. */
static void divide_by_alpha(struct picture *out)
{
    u8 *pixel = out->pixels;
    for (i64 i = 0; i < out->height * out->width; i++, pixel += 4)
        for (int c = 0; c < 3 && pixel[3]; c++)
            pixel[c] = (u8)min_i64(255, (pixel[c] * 255 + pixel[3] / 2) / pixel[3]);
}

/* ---- AVIF with fewer chroma than luma samples ---- */

/* libheif repeats chroma samples; readers of AVIF take the mean of the four around a pixel, as JPEG's do. */
struct heif_planes {
    const u8 *rows[4]; /* luma, Cb, Cr, alpha */
    int stride[4];
    i64 height[4], width[4];
    bool wide;                   /* samples of 16 bits */
    double red, blue, low, span; /* H.273: Kr, Kb; luma of black, and from there to white */
    double middle, chroma_span;
};

static int sample_at(const struct heif_planes *p, int plane, i64 y, i64 x)
{
    const u8 *row = p->rows[plane] + max_i64(0, min_i64(y, p->height[plane] - 1)) * p->stride[plane];
    x = max_i64(0, min_i64(x, p->width[plane] - 1));
    return p->wide ? ((const u16 *)(const void *)row)[x] : row[x];
}

/* Chroma stands between the luma samples that it belongs to. */
static double chroma_at(const struct heif_planes *p, int plane, i64 y, i64 x)
{
    bool half_x = p->width[plane] < p->width[0], half_y = p->height[plane] < p->height[0];
    i64 cx = half_x ? x / 2 : x, cy = half_y ? y / 2 : y;
    i64 side_x = half_x ? cx + (x & 1 ? 1 : -1) : cx, side_y = half_y ? cy + (y & 1 ? 1 : -1) : cy;
    return (9 * sample_at(p, plane, cy, cx) + 3 * sample_at(p, plane, cy, side_x) +
            3 * sample_at(p, plane, side_y, cx) + sample_at(p, plane, side_y, side_x)) /
           16.0;
}

static u8 level(double value)
{
    return (u8)(value <= 0 ? 0 : value >= 1 ? 255 : value * 255 + 0.5);
}

static void planes_to_rgb(u8 *rgb, const struct heif_planes *p, i64 channels)
{
    double green = 1 - p->red - p->blue;
    for (i64 y = 0; y < p->height[0]; y++)
        for (i64 x = 0; x < p->width[0]; x++, rgb += channels) {
            double luma = (sample_at(p, 0, y, x) - p->low) / p->span;
            double b = luma + 2 * (1 - p->blue) * (chroma_at(p, 1, y, x) - p->middle) / p->chroma_span;
            double r = luma + 2 * (1 - p->red) * (chroma_at(p, 2, y, x) - p->middle) / p->chroma_span;
            rgb[0] = level(r);
            rgb[1] = level((luma - p->red * r - p->blue * b) / green);
            rgb[2] = level(b);
        }
}

/* Sets the conversion. False for one that libheif does. */
static bool set_conversion(struct heif_planes *p, const struct heif_image *image, int bits)
{
    struct heif_color_profile_nclx *numbers = NULL;
    int matrix = 6;
    bool full = true;
    if (heif_image_get_nclx_color_profile(image, &numbers).code == heif_error_Ok && numbers) {
        matrix = numbers->matrix_coefficients == 2 ? 6 : (int)numbers->matrix_coefficients;
        full = numbers->full_range_flag;
    }
    heif_nclx_color_profile_free(numbers);
    p->red = matrix == 1 ? 0.2126 : matrix == 9 ? 0.2627 : 0.299;
    p->blue = matrix == 1 ? 0.0722 : matrix == 9 ? 0.0593 : 0.114;
    double one = 1 << (bits - 8), most = (1 << bits) - 1;
    p->low = full ? 0 : 16 * one;
    p->span = full ? most : 219 * one;
    p->middle = 128 * one;
    p->chroma_span = full ? most : 224 * one;
    return matrix == 1 || matrix == 5 || matrix == 6 || matrix == 9;
}

/* How chroma is stored, by the first av1C box of a picture that is not grey (AV1-ISOBMFF, 2.3.3). */
static enum heif_chroma stored_chroma(const u8 *bytes, i64 count)
{
    enum { GREY = 16, HALF_WIDTH = 8, HALF_HEIGHT = 4, LOOKED_AT = 1 << 16 };
    for (i64 at = 0; at + 8 <= min_i64(count, LOOKED_AT); at++) {
        u8 flags = bytes[at + 6];
        if (memcmp(bytes + at, "av1C", 4) == 0 && !(flags & GREY))
            return flags & HALF_HEIGHT ? heif_chroma_420 : flags & HALF_WIDTH ? heif_chroma_422 : heif_chroma_444;
    }
    return heif_chroma_444;
}

/* Sets plane i, of which all samples have `bits`. */
static bool set_plane(struct heif_planes *p, const struct heif_image *image, int i, int bits)
{
    static const enum heif_channel channels[4] = {heif_channel_Y, heif_channel_Cb, heif_channel_Cr, heif_channel_Alpha};
    p->rows[i] = heif_image_get_plane_readonly(image, channels[i], &p->stride[i]);
    p->height[i] = heif_image_get_height(image, channels[i]);
    p->width[i] = heif_image_get_width(image, channels[i]);
    return p->rows[i] && p->height[i] > 0 && p->width[i] > 0 &&
           heif_image_get_bits_per_pixel_range(image, channels[i]) == bits;
}

/* Reads a picture whose chroma is stored in this form. False: libheif has to convert it. */
static bool read_smooth(struct picture *out, const struct heif_image_handle *handle, enum heif_chroma chroma)
{
    struct heif_image *image = NULL;
    struct heif_planes p = {0};
    if (heif_decode_image(handle, &image, heif_colorspace_YCbCr, chroma, NULL).code != heif_error_Ok)
        return false;
    int bits = heif_image_get_bits_per_pixel_range(image, heif_channel_Y), planes = out->inks == INKS_RGBA ? 4 : 3;
    bool fits = heif_image_get_chroma_format(image) == chroma && bits >= 8 && bits <= 16;
    for (int i = 0; i < planes && fits; i++)
        fits = set_plane(&p, image, i, bits);
    fits = fits && (planes == 3 || (p.height[3] == p.height[0] && p.width[3] == p.width[0]));
    p.wide = bits > 8;
    if (fits && set_conversion(&p, image, bits)) {
        out->height = p.height[0];
        out->width = p.width[0];
        out->pixels = memory_alloc(out->height * out->width * planes);
        planes_to_rgb(out->pixels, &p, planes);
        for (i64 i = 0; i < out->height * out->width && planes == 4; i++)
            out->pixels[4 * i + 3] =
                level(sample_at(&p, 3, i / out->width, i % out->width) / (double)((1 << bits) - 1));
    }
    heif_image_release(image);
    return out->pixels != NULL;
}

static int read_handle(struct picture *out, const struct heif_image_handle *handle, const char *origin,
                       enum heif_chroma chroma)
{
    struct heif_image *image = NULL;
    bool clear = heif_image_handle_has_alpha_channel(handle);
    out->inks = clear ? INKS_RGBA : INKS_RGB;
    int status = 0;
    if (chroma == heif_chroma_444 || !read_smooth(out, handle, chroma)) {
        struct heif_error error =
            heif_decode_image(handle, &image, heif_colorspace_RGB,
                              clear ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB, NULL);
        status = error.code == heif_error_Ok ? take_pixels(out, image, origin) : refuse(origin, error);
        heif_image_release(image);
    }
    if (status == 0 && clear && heif_image_handle_is_premultiplied_alpha(handle))
        divide_by_alpha(out);
    if (status == 0)
        take_profile(out, handle);
    if (status == 0 && !out->profile.length)
        status = take_numbers(out, handle, origin);
    return status;
}

int heif_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request)
{
    *out = (struct picture){0};
    struct heif_context *context = heif_context_alloc();
    struct heif_image_handle *handle = NULL;
    require_memory(context, "libheif");
    struct heif_error error = heif_context_read_from_memory_without_copy(context, bytes, (size_t)count, NULL);
    if (error.code == heif_error_Ok)
        error = heif_context_get_primary_image_handle(context, &handle);
    int status = error.code == heif_error_Ok ? 0 : refuse(origin, error);
    if (status == 0)
        status = picture_check_size(heif_image_handle_get_height(handle), heif_image_handle_get_width(handle), origin,
                                    request);
    if (status == 0)
        status =
            read_handle(out, handle, origin,
                        bytes_match(bytes, count, 4, "ftypavif", 8) ? stored_chroma(bytes, count) : heif_chroma_444);
    heif_image_handle_release(handle);
    heif_context_free(context);
    return status;
}
