/* Reads and writes PNG through libpng. Its errors return by longjmp, so state that must survive one
 * lives in a struct. */
#include "data/media/picture.h"
#include "data/media/whole.h"
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

/* Deflate compresses at most 1032 : 1. A header that promises more pixels than that lacks the
 * data. */
enum { DEFLATE_RATIO_MAX = 1032 };

struct png_reader {
    const u8 *bytes;
    i64 count, at;
    const struct image_request *request;
    png_structp png;
    png_infop info;
    u8 *pixels; /* [height, width, channels] */
    struct buffer profile;
    bool deep; /* 16 bits a channel, which the profile converts */
    i64 height, width, channels;
    png_bytep *rows;
    char problem[200];
};

static void keep_problem(png_structp png, png_const_charp problem)
{
    struct png_reader *reader = png_get_error_ptr(png);
    snprintf(reader->problem, sizeof reader->problem, "%s", problem);
    png_longjmp(png, 1);
}

static void ignore_warning(png_structp png, png_const_charp warning)
{
    (void)png;
    (void)warning;
}

static void give_bytes(png_structp png, png_bytep out, png_size_t wanted)
{
    struct png_reader *reader = png_get_io_ptr(png);
    if ((i64)wanted > reader->count - reader->at)
        png_error(png, "the data ends too early");
    memcpy(out, reader->bytes + reader->at, wanted);
    reader->at += (i64)wanted;
}

/* Finds what cICP states in front of the pixels (PNG, 3rd edition, 11.3.2.6). libpng knows the chunk
 * only from 1.6.46 on. */
static const u8 *find_numbers(const struct png_reader *reader)
{
    for (i64 at = 8; at + 16 <= reader->count && memcmp(reader->bytes + at + 4, "IDAT", 4) != 0;) {
        i64 bytes = (i64)big_endian(reader->bytes + at, 4);
        if (memcmp(reader->bytes + at + 4, "cICP", 4) == 0 && bytes == 4)
            return reader->bytes + at + 8;
        at += 12 + bytes;
    }
    return NULL;
}

/* gAMA and cHRM. Many programs write those of sRGB with a gamma of 1/2.2, which is to be sRGB. */
static void take_gamma(struct png_reader *reader)
{
    static const double srgb[8] = {0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06};
    double gamma = 0, xy[8], away = 0;
    bool curve = png_get_gAMA(reader->png, reader->info, &gamma) && gamma > 0.1 && gamma < 10;
    if (!png_get_cHRM(reader->png, reader->info, &xy[0], &xy[1], &xy[2], &xy[3], &xy[4], &xy[5], &xy[6], &xy[7]))
        memcpy(xy, srgb, sizeof xy);
    for (int i = 0; i < 8; i++)
        away = fmax(away, fabs(xy[i] - srgb[i]));
    if ((curve && fabs(gamma * 2.2 - 1) > 0.05) || away > 0.005)
        profile_of_display(&reader->profile, xy, curve ? 1 / gamma : 0);
}

/* Of several statements the first one counts: cICP, sRGB, a profile, gamma (4.3). */
static void take_colours(struct png_reader *reader)
{
    char *name;
    int method, intent;
    png_bytep bytes = NULL;
    png_uint_32 count = 0;
    const u8 *numbers = find_numbers(reader);
    if (numbers && numbers[3] != 1)
        png_error(reader->png, "narrow range (cICP), which is not read; convert it to full range");
    if (numbers) {
        if (profile_of_numbers(&reader->profile, numbers[0], numbers[1], "cICP") < 0)
            png_error(reader->png, error_text());
    } else if (png_get_sRGB(reader->png, reader->info, &intent)) {
        return;
    } else if (png_get_iCCP(reader->png, reader->info, &name, &method, &bytes, &count)) {
        buffer_append(&reader->profile, bytes, count);
    } else {
        take_gamma(reader);
    }
    reader->deep = reader->profile.length && png_get_bit_depth(reader->png, reader->info) == 16;
}

/* Makes libpng output RGB, or RGBA if the picture has transparency, for any colour type and depth:
 * of 8 bits, or of 16 if a profile converts these. */
static void request_rgb(struct png_reader *reader)
{
    png_structp png = reader->png;
    bool clear =
        png_get_color_type(png, reader->info) & PNG_COLOR_MASK_ALPHA || png_get_valid(png, reader->info, PNG_INFO_tRNS);
    reader->channels = clear ? 4 : 3;
    png_set_expand(png);
    if (!reader->deep)
        png_set_scale_16(png);
    else
        png_set_swap(png); /* to this machine's order */
    png_set_gray_to_rgb(png);
    if (clear)
        png_set_add_alpha(png, 0xffff, PNG_FILLER_AFTER);
    png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
}

static void read_header(struct png_reader *reader)
{
    png_read_info(reader->png, reader->info);
    reader->height = png_get_image_height(reader->png, reader->info);
    reader->width = png_get_image_width(reader->png, reader->info);
    i64 packed_bytes = (i64)png_get_rowbytes(reader->png, reader->info) * reader->height;
    if (picture_check_size(reader->height, reader->width, "its header", reader->request) < 0)
        png_error(reader->png, error_text());
    if (packed_bytes / DEFLATE_RATIO_MAX > reader->count)
        png_error(reader->png, "fewer bytes than its size needs; copy it again");
}

static void read_pixels(struct png_reader *reader)
{
    take_colours(reader);
    request_rgb(reader);
    i64 row_bytes = reader->width * reader->channels * (reader->deep ? 2 : 1);
    if ((i64)png_get_rowbytes(reader->png, reader->info) != row_bytes)
        png_error(reader->png, "could not be turned into RGB");
    reader->pixels = memory_alloc(reader->height * row_bytes);
    reader->rows = memory_alloc(reader->height * (i64)sizeof *reader->rows);
    for (i64 y = 0; y < reader->height; y++)
        reader->rows[y] = reader->pixels + y * row_bytes;
    png_read_image(reader->png, reader->rows);
    png_read_end(reader->png, reader->info);
}

static int reader_run(struct png_reader *reader)
{
    if (setjmp(png_jmpbuf(reader->png)))
        return -1;
    png_set_user_limits(reader->png, 1 << 20, 1 << 20);
    png_set_chunk_malloc_max(reader->png, 1 << 24);
    /* Losing a damaged profile would change the colours. */
    png_set_crc_action(reader->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_read_fn(reader->png, reader, give_bytes);
    read_header(reader);
    read_pixels(reader);
    return 0;
}

static void take_notes(struct picture *out, const struct png_reader *reader)
{
#ifdef PNG_eXIf_SUPPORTED
    png_bytep bytes = NULL;
    png_uint_32 count = 0;
    if (png_get_eXIf_1(reader->png, reader->info, &count, &bytes))
        out->orientation = exif_orientation(bytes, count);
#endif
}

int png_read(struct picture *out, const void *bytes, i64 count, const char *origin, const struct image_request *request)
{
    struct png_reader reader = {.bytes = bytes, .count = count, .request = request};
    reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, keep_problem, ignore_warning);
    require(reader.png, "libpng cannot start");
    reader.info = png_create_info_struct(reader.png);
    require_memory(reader.info, "libpng");
    int status = reader_run(&reader);
    *out = (struct picture){.inks = reader.channels == 4 ? INKS_RGBA : INKS_RGB,
                            .height = reader.height,
                            .width = reader.width,
                            .pixels = reader.deep ? NULL : reader.pixels,
                            .deep = reader.deep ? (u16 *)(void *)reader.pixels : NULL,
                            .profile = reader.profile};
    if (status == 0)
        take_notes(out, &reader);
    png_destroy_read_struct(&reader.png, &reader.info, NULL);
    memory_free(reader.rows);
    return status == 0 ? 0
                       : error_set("%s: PNG picture: %s (at byte %lld of %lld)", origin, reader.problem,
                                   (long long)reader.at, (long long)count);
}

static void take_bytes(png_structp png, png_bytep bytes, png_size_t count)
{
    buffer_append(png_get_io_ptr(png), bytes, (i64)count);
}

static void nothing_to_flush(png_structp png)
{
    (void)png;
}

/* Panics: writing to memory cannot fail, so an error here is the program's. */
static void writing_failed(png_structp png, png_const_charp problem)
{
    (void)png;
    panic("libpng cannot write: %s", problem);
}

void image_encode_png(struct buffer *out, const u8 *pixels, i64 height, i64 width)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, writing_failed, ignore_warning);
    require(png, "libpng cannot start");
    png_infop info = png_create_info_struct(png);
    require_memory(info, "libpng");
    png_set_write_fn(png, out, take_bytes, nothing_to_flush);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (i64 y = 0; y < height; y++)
        png_write_row(png, pixels + y * width * 3);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
}
