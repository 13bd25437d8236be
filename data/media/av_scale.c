/* Converts decoded frames to RGB: reads colours by the frame's own metadata, blends transparency
 * onto the background before scaling, and turns the frame as the file says. */
#include "data/media/av_scale.h"
#include "data/media/light.h"
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/mastering_display_metadata.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
#include <string.h>

void scaler_release(struct scaler *scaler)
{
    sws_freeContext(scaler->sws);
    av_frame_free(&scaler->even);
    av_frame_free(&scaler->rgb);
    memory_free(scaler->native);
    memory_free(scaler->scaled);
}

static const i32 *stream_matrix(const AVStream *stream)
{
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 30, 100)
    const AVCodecParameters *parameters = stream->codecpar;
    const AVPacketSideData *side =
        av_packet_side_data_get(parameters->coded_side_data, parameters->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    return side && side->size >= 36 ? (const i32 *)(const void *)side->data : NULL;
#else
    size_t bytes = 0;
    const u8 *data = av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
    return data && bytes >= 36 ? (const i32 *)(const void *)data : NULL;
#endif
}

/* Reads the display matrix x' = m[0] x + m[3] y, y' = m[1] x + m[4] y. Phones store pictures
 * sideways and record the turn there. */
struct orientation orientation_of(const AVFrame *frame, const AVStream *stream)
{
    const AVFrameSideData *side = av_frame_get_side_data(frame, AV_FRAME_DATA_DISPLAYMATRIX);
    const i32 *m = NULL;
    if (side && side->size >= 36)
        m = (const i32 *)(const void *)side->data;
    else if (stream)
        m = stream_matrix(stream);
    if (!m)
        return (struct orientation){0};
    if (llabs(m[0]) >= llabs(m[3]))
        return (struct orientation){false, m[0] < 0, m[4] < 0};
    return (struct orientation){true, m[3] < 0, m[1] < 0};
}

static bool has_transparency(int format)
{
    const AVPixFmtDescriptor *descriptor = av_pix_fmt_desc_get(format);
    return descriptor && (descriptor->flags & (AV_PIX_FMT_FLAG_ALPHA | AV_PIX_FMT_FLAG_PAL));
}

static bool is_yuv(int format)
{
    const AVPixFmtDescriptor *descriptor = av_pix_fmt_desc_get(format);
    return descriptor && !(descriptor->flags & AV_PIX_FMT_FLAG_RGB) && descriptor->nb_components >= 3;
}

static void set_colours(struct SwsContext *sws, const AVFrame *frame)
{
    int *from_table, *to_table, from_range, to_range, brightness, contrast, saturation;
    if (sws_getColorspaceDetails(sws, &from_table, &from_range, &to_table, &to_range, &brightness, &contrast,
                                 &saturation) < 0 ||
        !is_yuv(frame->format))
        return;
    if (frame->color_range != AVCOL_RANGE_UNSPECIFIED)
        from_range = frame->color_range == AVCOL_RANGE_JPEG;
    sws_setColorspaceDetails(sws, sws_getCoefficients((int)frame->colorspace), from_range, to_table, 1, brightness,
                             contrast, saturation);
}

/* Sets the position of subsampled chroma, in 1/256 of the luma distance. Unspecified video has it
 * at the left of two columns (H.264, E.2.1), stills have it between them. */
static void set_chroma_place(struct SwsContext *sws, const AVFrame *frame, int location)
{
    const AVPixFmtDescriptor *descriptor = av_pix_fmt_desc_get(frame->format);
    bool left =
        location == AVCHROMA_LOC_LEFT || location == AVCHROMA_LOC_TOPLEFT || location == AVCHROMA_LOC_BOTTOMLEFT;
    bool top = location == AVCHROMA_LOC_TOP || location == AVCHROMA_LOC_TOPLEFT;
    bool bottom = location == AVCHROMA_LOC_BOTTOM || location == AVCHROMA_LOC_BOTTOMLEFT;
    if (is_yuv(frame->format) && descriptor->log2_chroma_w == 1)
        av_opt_set_int(sws, "src_h_chr_pos", left ? 0 : 128, 0);
    if (is_yuv(frame->format) && descriptor->log2_chroma_h == 1)
        av_opt_set_int(sws, "src_v_chr_pos", top ? 0 : bottom ? 256 : 128, 0);
}

/* True if the source must be padded. swscale stretches chroma over all luma rows and columns; if
 * their number is odd, it gets one more, which is cut off afterwards. */
static bool wants_even(const struct scale_key *key)
{
    const AVPixFmtDescriptor *descriptor = av_pix_fmt_desc_get(key->format);
    bool wide = key->width & 1 && descriptor->log2_chroma_w == 1,
         high = key->height & 1 && descriptor->log2_chroma_h == 1;
    return is_yuv(key->format) && (wide || high);
}

static AVFrame *frame_with_room(int format, int width, int height)
{
    AVFrame *frame = av_frame_alloc();
    require_memory(frame, "libav");
    frame->format = format;
    frame->width = width;
    frame->height = height;
    require_memory(av_frame_get_buffer(frame, 0) == 0, "a picture");
    return frame;
}

static int open_sws(struct scaler *scaler, const AVFrame *from, int location)
{
    const AVFrame *to = scaler->rgb;
    scaler->sws = sws_alloc_context();
    require_memory(scaler->sws, "libav");
    const struct {
        const char *name;
        i64 value;
    } options[] = {{"srcw", from->width},
                   {"srch", from->height},
                   {"src_format", from->format},
                   {"dstw", to->width},
                   {"dsth", to->height},
                   {"dst_format", to->format},
                   {"sws_flags", SWS_LANCZOS | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT}};
    for (i64 i = 0; i < COUNT_OF(options); i++)
        av_opt_set_int(scaler->sws, options[i].name, options[i].value, 0);
    set_chroma_place(scaler->sws, from, location);
    int code = sws_init_context(scaler->sws, NULL, NULL);
    if (code >= 0)
        set_colours(scaler->sws, from);
    return code;
}

/* Sets up the scaler for a key. Transparent pixels are blended before scaling, because their
 * colours are arbitrary, often black. */
static int scaler_set(struct scaler *scaler, const struct scale_key *key, const AVFrame *frame)
{
    if (scaler->sws && memcmp(&scaler->key, key, sizeof *key) == 0)
        return 0;
    scaler_release(scaler);
    *scaler = (struct scaler){.rules = scaler->rules, .crop = scaler->crop, .key = *key};
    bool bright = key->light != LIGHT_SDR;
    bool even = wants_even(key) && !bright, clear = has_transparency(key->format) && !bright;
    int width = key->width + (even && key->width & 1), height = key->height + (even && key->height & 1);
    scaler->resizes = (even || clear) && (key->width != key->out_width || key->height != key->out_height);
    bool native = even || scaler->resizes;
    int format = bright ? AV_PIX_FMT_RGB48 : clear ? AV_PIX_FMT_RGBA : AV_PIX_FMT_RGB24;
    scaler->rgb = frame_with_room(format, native ? width : key->out_width, native ? height : key->out_height);
    if (even) {
        scaler->even = frame_with_room(key->format, width, height);
        scaler->even->color_range = frame->color_range;
        scaler->even->colorspace = frame->colorspace;
    }
    if (bright)
        scaler->scaled = memory_alloc((i64)key->out_width * key->out_height * 3);
    if (scaler->resizes) {
        scaler->native = memory_alloc((i64)key->width * key->height * 3);
        scaler->scaled = memory_alloc((i64)key->out_width * key->out_height * 3);
    }
    return open_sws(scaler, even ? scaler->even : frame, key->location);
}

/* Copies the planes of `frame` into `even`, and repeats the last row and column where `even` has
 * one more. */
static void fill_even(AVFrame *even, const AVFrame *frame)
{
    const AVPixFmtDescriptor *descriptor = av_pix_fmt_desc_get(frame->format);
    for (int plane = 0; plane < 4 && even->data[plane]; plane++) {
        bool chroma = plane == 1 || plane == 2;
        int step = descriptor->comp[plane < descriptor->nb_components ? plane : 1].step;
        int width = chroma ? AV_CEIL_RSHIFT(frame->width, descriptor->log2_chroma_w) : frame->width;
        int height = chroma ? AV_CEIL_RSHIFT(frame->height, descriptor->log2_chroma_h) : frame->height;
        int wanted = chroma ? width : even->width, rows = chroma ? height : even->height;
        for (int y = 0; y < rows; y++) {
            u8 *to = even->data[plane] + (i64)y * even->linesize[plane];
            memcpy(to, frame->data[plane] + (i64)min_i64(y, height - 1) * frame->linesize[plane],
                   (size_t)(width * step));
            if (wanted > width)
                memcpy(to + width * step, to + (width - 1) * step, (size_t)step);
        }
    }
}

static int convert(struct scaler *scaler, const AVFrame *frame)
{
    if (scaler->even)
        fill_even(scaler->even, frame);
    const AVFrame *from = scaler->even ? scaler->even : frame;
    return sws_scale(scaler->sws, (const u8 *const *)from->data, from->linesize, 0, from->height, scaler->rgb->data,
                     scaler->rgb->linesize);
}

/* Tone-maps the scaled HDR frame to sRGB; scaling itself works on the HDR values. */
static const u8 *dim(i64 *row_bytes, struct scaler *scaler)
{
    const AVFrame *rgb = scaler->rgb;
    *row_bytes = (i64)rgb->width * 3;
    for (i64 y = 0; y < rgb->height; y++)
        light_to_srgb(scaler->scaled + y * *row_bytes, (const u16 *)(const void *)(rgb->data[0] + y * rgb->linesize[0]),
                      rgb->width, (enum light)scaler->key.light, scaler->key.peak);
    return scaler->scaled;
}

/* Converts the frame to RGB of the key's output size, rows *row_bytes apart, valid until the next
 * call. NULL with libav's error in *code. */
static const u8 *scale_pixels(i64 *row_bytes, int *code, struct scaler *scaler, const AVFrame *frame)
{
    const struct scale_key *key = &scaler->key;
    const AVFrame *rgb = scaler->rgb;
    u8 *rows = rgb->data[0];
    *row_bytes = rgb->linesize[0];
    *code = convert(scaler, frame);
    if (*code < 0)
        return NULL;
    if (key->light != LIGHT_SDR)
        return dim(row_bytes, scaler);
    for (i64 y = 0; y < rgb->height && rgb->format == AV_PIX_FMT_RGBA; y++)
        pixels_blend(rows + y * *row_bytes, rows + y * *row_bytes, rgb->width, scaler->rules->background);
    if (!scaler->resizes)
        return rows;
    for (i64 y = 0; y < key->height; y++)
        memcpy(scaler->native + y * key->width * 3, rows + y * *row_bytes, (size_t)key->width * 3);
    pixels_resize(scaler->scaled, key->out_height, key->out_width, scaler->native, key->height, key->width);
    *row_bytes = (i64)key->out_width * 3;
    return scaler->scaled;
}

void shown_shape(double *height, double *width, const AVFrame *frame, struct orientation turn)
{
    AVRational pixel = frame->sample_aspect_ratio;
    double across = frame->width * (pixel.num > 0 && pixel.den > 0 ? av_q2d(pixel) : 1), down = frame->height;
    *height = turn.transposed ? across : down;
    *width = turn.transposed ? down : across;
}

static enum light light_of(const AVFrame *frame)
{
    return !is_yuv(frame->format)                       ? LIGHT_SDR
           : frame->color_trc == AVCOL_TRC_SMPTE2084    ? LIGHT_PQ
           : frame->color_trc == AVCOL_TRC_ARIB_STD_B67 ? LIGHT_HLG
                                                        : LIGHT_SDR;
}

/* Peak luminance in cd/m2: of the content (MaxCLL), else of the mastering display, else 1000. */
static int peak_of(const AVFrame *frame)
{
    enum { USUAL = 1000, MOST = 10000 };
    const AVFrameSideData *side = av_frame_get_side_data(frame, AV_FRAME_DATA_CONTENT_LIGHT_LEVEL);
    if (side && ((const AVContentLightMetadata *)(const void *)side->data)->MaxCLL)
        return (int)min_i64(((const AVContentLightMetadata *)(const void *)side->data)->MaxCLL, MOST);
    side = av_frame_get_side_data(frame, AV_FRAME_DATA_MASTERING_DISPLAY_METADATA);
    const AVMasteringDisplayMetadata *display = side ? (const void *)side->data : NULL;
    if (!display || !display->has_luminance || display->max_luminance.den <= 0 || display->max_luminance.num <= 0)
        return USUAL;
    return (int)min_i64((i64)av_q2d(display->max_luminance), MOST);
}

int scale_frame(u8 *out, i64 height, i64 width, struct scaler *scaler, const AVFrame *frame, struct orientation turn,
                int chroma_location)
{
    double shown_height, shown_width;
    i64 whole_height, whole_width;
    shown_shape(&shown_height, &shown_width, frame, turn);
    picture_fill(&whole_height, &whole_width, shown_height, shown_width, height, width, scaler->crop);
    i64 inner_height = min_i64(whole_height, height), inner_width = min_i64(whole_width, width);
    struct scale_key key = {.width = frame->width,
                            .height = frame->height,
                            .format = frame->format,
                            .space = (int)frame->colorspace,
                            .range = (int)frame->color_range,
                            .location = chroma_location,
                            .out_width = (int)(turn.transposed ? whole_height : whole_width),
                            .out_height = (int)(turn.transposed ? whole_width : whole_height),
                            .light = light_of(frame)};
    if (key.light != LIGHT_SDR)
        key.peak = peak_of(frame);
    int code = scaler_set(scaler, &key, frame);
    if (code < 0)
        return code;
    i64 row_bytes;
    const u8 *pixels = scale_pixels(&row_bytes, &code, scaler, frame);
    if (!pixels)
        return code;
    if (inner_height != height || inner_width != width)
        memset(out, 255, (size_t)(height * width * 3));
    i64 rows = turn.transposed ? inner_width : inner_height, columns = turn.transposed ? inner_height : inner_width;
    pixels += (key.out_height - rows) / 2 * row_bytes + (key.out_width - columns) / 2 * 3;
    pixels_place(out + ((height - inner_height) / 2 * width + (width - inner_width) / 2) * 3, width, pixels, row_bytes,
                 rows, columns, turn);
    return 0;
}
