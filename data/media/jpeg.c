/* Reads and writes JPEG through libjpeg-turbo. Its errors return by longjmp, so state that must survive one
 * lives in a struct. */
#include "data/media/picture.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h> /* needs stdio.h first */

#include <jerror.h> /* needs jpeglib.h first */

/* Limit on progressive scans: a scan of a few bytes can make the decoder process all pixels
 * again. */
enum { SCANS_MOST = 200 };

struct jpeg_reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    const char *origin;
    const struct image_request *request;
    struct picture *out;
    char problem[JMSG_LENGTH_MAX + 64];
};

static void on_error(j_common_ptr jpeg)
{
    struct jpeg_reader *reader = jpeg->client_data;
    if (!reader->problem[0])
        jpeg->err->format_message(jpeg, reader->problem);
    longjmp(reader->back, 1);
}

/* True for warnings after which libjpeg fills missing pixels with grey. */
static bool loses_pixels(int code)
{
    static const int codes[] = {JWRN_HIT_MARKER,  JWRN_JPEG_EOF,       JWRN_HUFF_BAD_CODE,
                                JWRN_MUST_RESYNC, JWRN_ARITH_BAD_CODE, JWRN_BOGUS_PROGRESSION};
    for (i64 i = 0; i < COUNT_OF(codes); i++)
        if (codes[i] == code)
            return true;
    return false;
}

static void take_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && loses_pixels(jpeg->err->msg_code))
        on_error(jpeg);
}

static void watch_scans(j_common_ptr jpeg)
{
    struct jpeg_reader *reader = jpeg->client_data;
    if (reader->jpeg.input_scan_number <= SCANS_MOST)
        return;
    snprintf(reader->problem, sizeof reader->problem, "more than %d scans; write it anew", SCANS_MOST);
    on_error(jpeg);
}

/* Chooses the smallest scale of 1/8, 1/4, 1/2 and 1 that leaves at least twice the requested
 * size. */
static void choose_scale(struct jpeg_reader *reader)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    const struct image_request *request = reader->request;
    i64 height = jpeg->image_height, width = jpeg->image_width, fit_height, fit_width;
    jpeg->scale_num = jpeg->scale_denom = 8;
    if (!request->fit_height || !request->fit_width)
        return;
    i64 side = max_i64(request->fit_height, request->fit_width); /* holds for both orientations */
    picture_fit(&fit_height, &fit_width, (double)height, (double)width, side, side);
    for (unsigned eighths = 1; eighths < 8; eighths *= 2)
        if (height * eighths / 8 >= 2 * fit_height && width * eighths / 8 >= 2 * fit_width) {
            jpeg->scale_num = eighths;
            break;
        }
}

static int read_header(struct jpeg_reader *reader)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    jpeg_read_header(jpeg, TRUE);
    if (picture_check_size(jpeg->image_height, jpeg->image_width, reader->origin, reader->request) < 0)
        return -1;
    bool inks = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    reader->out->inks = inks ? INKS_CMYK : INKS_RGB;
    jpeg->out_color_space = inks ? JCS_CMYK : JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW;
    choose_scale(reader);
    return 0;
}

static void read_rows(struct jpeg_reader *reader)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    struct picture *out = reader->out;
    jpeg_start_decompress(jpeg);
    out->height = jpeg->output_height;
    out->width = jpeg->output_width;
    if (jpeg->scale_num < jpeg->scale_denom) {
        out->stored_height = jpeg->image_height;
        out->stored_width = jpeg->image_width;
    }
    i64 row_bytes = out->width * jpeg->output_components;
    out->pixels = memory_alloc(out->height * row_bytes);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = out->pixels + jpeg->output_scanline * row_bytes;
        jpeg_read_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_decompress(jpeg);
}

/* Collects profile and orientation. EXIF is in APP1 after "Exif\0\0", the ICC profile in one or
 * more APP2 segments after "ICC_PROFILE". */
static void take_notes(struct jpeg_reader *reader)
{
    JOCTET *profile;
    unsigned profile_bytes;
    if (jpeg_read_icc_profile(&reader->jpeg, &profile, &profile_bytes)) {
        buffer_append(&reader->out->profile, profile, profile_bytes);
        free(profile);
    }
    for (jpeg_saved_marker_ptr at = reader->jpeg.marker_list; at && !reader->out->orientation; at = at->next)
        if (at->marker == JPEG_APP0 + 1 && bytes_match(at->data, at->data_length, 0, "Exif\0\0", 6))
            reader->out->orientation = exif_orientation(at->data, at->data_length);
}

static int reader_run(struct jpeg_reader *reader, const void *bytes, i64 count)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    if (setjmp(reader->back))
        return error_set("%s: a JPEG picture: %s", reader->origin, reader->problem);
    jpeg_create_decompress(jpeg);
    jpeg->client_data = reader;
    jpeg->progress = &reader->progress;
    reader->progress.progress_monitor = watch_scans;
    jpeg_save_markers(jpeg, JPEG_APP0 + 1, 0xffff);
    jpeg_save_markers(jpeg, JPEG_APP0 + 2, 0xffff);
    jpeg_mem_src(jpeg, bytes, (unsigned long)count);
    if (read_header(reader) < 0)
        return -1;
    take_notes(reader);
    read_rows(reader);
    return 0;
}

int jpeg_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request)
{
    struct jpeg_reader *reader = memory_alloc(sizeof *reader);
    *out = (struct picture){0};
    *reader = (struct jpeg_reader){.origin = origin, .request = request, .out = out};
    reader->jpeg.err = jpeg_std_error(&reader->errors);
    reader->jpeg.client_data = reader;
    reader->errors.error_exit = on_error;
    reader->errors.emit_message = take_message;
    int status = reader_run(reader, bytes, count);
    jpeg_destroy_decompress(&reader->jpeg);
    memory_free(reader);
    return status;
}

/* ---- Writing ---- */

struct jpeg_writer {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf back;
    char problem[JMSG_LENGTH_MAX];
    unsigned char *bytes; /* of malloc */
    unsigned long count;
};

static void on_writer_error(j_common_ptr jpeg)
{
    struct jpeg_writer *writer = jpeg->client_data;
    jpeg->err->format_message(jpeg, writer->problem);
    longjmp(writer->back, 1);
}

static int writer_run(struct jpeg_writer *writer, const u8 *pixels, i64 height, i64 width, i64 quality)
{
    struct jpeg_compress_struct *jpeg = &writer->jpeg;
    if (setjmp(writer->back))
        return error_set("a JPEG picture of %lldx%lld: %s", (long long)height, (long long)width, writer->problem);
    jpeg_create_compress(jpeg);
    jpeg->client_data = writer;
    jpeg_mem_dest(jpeg, &writer->bytes, &writer->count);
    jpeg->image_width = (JDIMENSION)width;
    jpeg->image_height = (JDIMENSION)height;
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, (int)quality, TRUE);
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->optimize_coding = TRUE;
    jpeg_start_compress(jpeg, TRUE);
    while (jpeg->next_scanline < jpeg->image_height) {
        JSAMPROW row = (u8 *)pixels + (i64)jpeg->next_scanline * width * 3;
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
    return 0;
}

/* Bytes of the scan of a file that libjpeg wrote: from behind the header of the scan to the end marker (ITU-T T.81,
 * annex B). */
static i64 scan_bytes(const u8 *bytes, i64 count)
{
    enum { START_OF_SCAN = 0xda, MARKER_BYTES = 2 };
    i64 at = MARKER_BYTES;
    while (bytes[at + 1] != START_OF_SCAN)
        at += MARKER_BYTES + (bytes[at + 2] << 8 | bytes[at + 3]);
    return count - MARKER_BYTES - (at + MARKER_BYTES + (bytes[at + 2] << 8 | bytes[at + 3]));
}

i64 image_encode_jpeg(struct buffer *out, const u8 *pixels, i64 height, i64 width, i64 quality)
{
    struct jpeg_writer *writer = memory_alloc(sizeof *writer);
    writer->jpeg.err = jpeg_std_error(&writer->errors);
    writer->jpeg.client_data = writer;
    writer->errors.error_exit = on_writer_error;
    i64 code = writer_run(writer, pixels, height, width, quality);
    if (code == 0) {
        buffer_append(out, writer->bytes, (i64)writer->count);
        code = scan_bytes(writer->bytes, (i64)writer->count);
    }
    jpeg_destroy_compress(&writer->jpeg);
    free(writer->bytes);
    memory_free(writer);
    return code;
}
