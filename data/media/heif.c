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

static int read_handle(struct picture *out, const struct heif_image_handle *handle, const char *origin)
{
    struct heif_image *image = NULL;
    bool clear = heif_image_handle_has_alpha_channel(handle);
    out->inks = clear ? INKS_RGBA : INKS_RGB;
    struct heif_error error = heif_decode_image(
        handle, &image, heif_colorspace_RGB, clear ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB, NULL);
    int status = error.code == heif_error_Ok ? take_pixels(out, image, origin) : refuse(origin, error);
    heif_image_release(image);
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
        status = read_handle(out, handle, origin);
    heif_image_handle_release(handle);
    heif_context_free(context);
    return status;
}
