/* Image decoding relative to libjpeg-turbo, libpng, libwebp and libheif alone, in alternating
 * calls, CPU time of one thread. Not part of the build: bench/peers/pictures.sh compiles it, makes
 * the pictures and runs it. */
#include "data/shapes/shaped.h"

#include <libheif/heif.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>

#include <jpeglib.h> /* needs stdio.h before it */

enum { ROUNDS = 9, SIDE = 256 };

/* Decodes every pixel by the library alone; errors end the program. */
static void alone_jpeg(const struct file_view *file)
{
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, file->data, (unsigned long)file->bytes);
    jpeg_read_header(&jpeg, TRUE);
    jpeg_start_decompress(&jpeg);
    i64 row_bytes = (i64)jpeg.output_width * jpeg.output_components;
    u8 *pixels = malloc((size_t)(row_bytes * jpeg.output_height));
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW row = pixels + jpeg.output_scanline * row_bytes;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
    free(pixels);
}

static void alone_png(const struct file_view *file)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    require(png_image_begin_read_from_memory(&image, file->data, (size_t)file->bytes), "%s", image.message);
    image.format = PNG_FORMAT_RGB;
    u8 *pixels = malloc(PNG_IMAGE_SIZE(image));
    require(png_image_finish_read(&image, NULL, pixels, 0, NULL), "%s", image.message);
    free(pixels);
}

static void alone_webp(const struct file_view *file)
{
    int width, height;
    u8 *pixels = WebPDecodeRGB(file->data, (size_t)file->bytes, &width, &height);
    require(pixels, "libwebp cannot read it");
    WebPFree(pixels);
}

static void alone_heif(const struct file_view *file)
{
    struct heif_context *context = heif_context_alloc();
    struct heif_image_handle *handle;
    struct heif_image *image;
    struct heif_error e = heif_context_read_from_memory_without_copy(context, file->data, (size_t)file->bytes, NULL);
    if (e.code == heif_error_Ok)
        e = heif_context_get_primary_image_handle(context, &handle);
    if (e.code == heif_error_Ok)
        e = heif_decode_image(handle, &image, heif_colorspace_RGB, heif_chroma_interleaved_RGB, NULL);
    require(e.code == heif_error_Ok, "%s", e.message);
    heif_image_release(image);
    heif_image_handle_release(handle);
    heif_context_free(context);
}

static void alone(const struct file_view *file)
{
    if (file->data[0] == 0x89)
        alone_png(file);
    else if (memcmp(file->data, "RIFF", 4) == 0)
        alone_webp(file);
    else if (file->data[0] == 0xff)
        alone_jpeg(file);
    else
        alone_heif(file);
}

static void ours_whole(const struct file_view *file, const char *path)
{
    struct clip clip;
    require(image_read(&clip, file->data, file->bytes, path) == 0, "%s", error_text());
    clip_release(&clip);
}

static void ours_small(const struct file_view *file, const char *path)
{
    const struct vision_shape shape = {.frames = 1, .height = SIDE, .width = SIDE};
    struct clip clip;
    require(shaped_image_read(&clip, &shape, NULL, file->data, file->bytes, path) == 0, "%s", error_text());
    clip_release(&clip);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, ascending);
    return values[ROUNDS / 2];
}

int main(int count, char **paths)
{
    for (int i = 1; i < count; i++) {
        struct file_view file;
        require(file_map(&file, paths[i]) == 0, "%s", error_text());
        double by_library[ROUNDS], whole[ROUNDS], small[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            double begin = clock_cpu_s();
            alone(&file);
            by_library[round] = clock_cpu_s() - begin;
            ours_whole(&file, paths[i]);
            whole[round] = clock_cpu_s() - begin - by_library[round];
            ours_small(&file, paths[i]);
            small[round] = clock_cpu_s() - begin - by_library[round] - whole[round];
        }
        double library = median(by_library);
        printf("%s: library alone %.1f ms, read here %.2f of it, read and scaled to %d: %.2f\n", paths[i],
               1000 * library, median(whole) / library, SIDE, median(small) / library);
        file_unmap(&file);
    }
    return 0;
}
