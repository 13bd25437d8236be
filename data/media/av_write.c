/* Writes clips as H.264 in MP4, in memory. Deterministic: one thread, fixed options, no timestamps
 * or version strings in the container, so the same clip gives the same bytes. */
#include "data/media/file_kind.h"
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
#include <string.h>

struct mp4_writer {
    AVFormatContext *format;
    AVCodecContext *codec;
    AVStream *stream;
    struct SwsContext *sws;
    AVFrame *rgb, *frame; /* rgb: with room behind its rows, which swscale reads past */
    AVPacket *packet;
};

static void writer_release(struct mp4_writer *writer)
{
    avcodec_free_context(&writer->codec);
    sws_freeContext(writer->sws);
    av_frame_free(&writer->rgb);
    av_frame_free(&writer->frame);
    av_packet_free(&writer->packet);
    if (writer->format && writer->format->pb) {
        u8 *left = NULL;
        avio_close_dyn_buf(writer->format->pb, &left);
        av_free(left);
    }
    avformat_free_context(writer->format);
}

static void describe_codec(AVCodecContext *codec, const struct clip *clip)
{
    AVRational rate = av_d2q(clip->rate_hz, 90000);
    codec->width = (int)clip->width;
    codec->height = (int)clip->height;
    codec->pix_fmt = AV_PIX_FMT_YUV420P;
    codec->framerate = rate;
    codec->time_base = av_inv_q(rate);
    codec->thread_count = 1;
    codec->flags |= AV_CODEC_FLAG_BITEXACT | AV_CODEC_FLAG_GLOBAL_HEADER;
    codec->color_range = AVCOL_RANGE_MPEG;
    codec->colorspace = AVCOL_SPC_SMPTE170M; /* swscale's default matrix */
    codec->color_primaries = AVCOL_PRI_SMPTE170M;
    codec->color_trc = AVCOL_TRC_SMPTE170M;
    codec->chroma_sample_location = AVCHROMA_LOC_CENTER; /* swscale's default chroma position */
}

static int open_codec(struct mp4_writer *writer, const struct clip *clip)
{
    const AVCodec *encoder = avcodec_find_encoder_by_name("libx264");
    if (!encoder)
        return error_set(
            "this libavcodec cannot write H.264 (no libx264 in it); install the distribution's libavcodec");
    writer->codec = avcodec_alloc_context3(encoder);
    require_memory(writer->codec, "libav");
    describe_codec(writer->codec, clip);
    AVDictionary *options = NULL;
    av_dict_set(&options, "preset", "medium", 0);
    av_dict_set(&options, "crf", "16", 0);
    /* With AVX-512, x264's macroblock tree reads past the end of short rows. The bytes of a small
     * clip would depend on the previous contents of memory. */
    av_dict_set(&options, "mbtree", "0", 0);
    int code = avcodec_open2(writer->codec, encoder, &options);
    av_dict_free(&options);
    return code < 0 ? av_problem("libx264", "cannot start", code) : 0;
}

static int open_container(struct mp4_writer *writer)
{
    int code = avformat_alloc_output_context2(&writer->format, NULL, "mp4", NULL);
    if (code < 0)
        return av_problem("MP4", "cannot start", code);
    writer->format->flags |= AVFMT_FLAG_BITEXACT;
    writer->stream = avformat_new_stream(writer->format, NULL);
    require_memory(writer->stream, "libav");
    writer->stream->time_base = writer->codec->time_base;
    writer->stream->avg_frame_rate = writer->codec->framerate;
    code = avcodec_parameters_from_context(writer->stream->codecpar, writer->codec);
    if (code >= 0)
        code = avio_open_dyn_buf(&writer->format->pb);
    if (code >= 0)
        code = avformat_write_header(writer->format, NULL);
    return code < 0 ? av_problem("MP4", "cannot start", code) : 0;
}

static int open_frame(struct mp4_writer *writer, const struct clip *clip)
{
    int width = (int)clip->width, height = (int)clip->height;
    writer->packet = av_packet_alloc();
    writer->rgb = av_frame_alloc();
    writer->frame = av_frame_alloc();
    require_memory(writer->packet && writer->rgb && writer->frame, "libav");
    writer->rgb->format = AV_PIX_FMT_RGB24;
    writer->rgb->width = width;
    writer->rgb->height = height;
    writer->frame->format = AV_PIX_FMT_YUV420P;
    writer->frame->width = width;
    writer->frame->height = height;
    writer->sws = sws_getContext(width, height, AV_PIX_FMT_RGB24, width, height, AV_PIX_FMT_YUV420P,
                                 SWS_LANCZOS | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP | SWS_BITEXACT, NULL, NULL, NULL);
    int code = writer->sws ? av_frame_get_buffer(writer->frame, 0) : AVERROR(EINVAL);
    code = code < 0 ? code : av_frame_get_buffer(writer->rgb, 0);
    return code < 0 ? av_problem("MP4", "cannot make frames", code) : 0;
}

static int write_packets(struct mp4_writer *writer)
{
    int code;
    while ((code = avcodec_receive_packet(writer->codec, writer->packet)) == 0) {
        writer->packet->stream_index = writer->stream->index;
        writer->packet->duration = 1; /* without it the last frame gets no duration */
        av_packet_rescale_ts(writer->packet, writer->codec->time_base, writer->stream->time_base);
        code = av_interleaved_write_frame(writer->format, writer->packet);
        if (code < 0)
            break;
    }
    return code == AVERROR(EAGAIN) || code == AVERROR_EOF ? 0 : code;
}

static int write_frame(struct mp4_writer *writer, const u8 *pixels, i64 index)
{
    AVFrame *rgb = writer->rgb;
    for (i64 row = 0, bytes = 3 * rgb->width; row < rgb->height; row++)
        memcpy(rgb->data[0] + row * rgb->linesize[0], pixels + row * bytes, (size_t)bytes);
    /* The encoder may still hold the previous one. */
    int code = av_frame_make_writable(writer->frame);
    if (code < 0)
        return code;
    code = sws_scale(writer->sws, (const u8 *const *)rgb->data, rgb->linesize, 0, rgb->height, writer->frame->data,
                     writer->frame->linesize);
    if (code < 0)
        return code;
    writer->frame->pts = index;
    code = avcodec_send_frame(writer->codec, writer->frame);
    return code < 0 ? code : write_packets(writer);
}

static int write_all(struct mp4_writer *writer, const struct clip *clip)
{
    int code = 0;
    for (i64 i = 0; i < clip->frames && code >= 0; i++)
        code = write_frame(writer, clip->pixels + i * clip->height * clip->width * 3, i);
    if (code >= 0)
        code = avcodec_send_frame(writer->codec, NULL);
    if (code >= 0)
        code = write_packets(writer);
    if (code >= 0)
        code = av_write_trailer(writer->format);
    return code < 0 ? av_problem("MP4", "cannot write", code) : 0;
}

static void take_bytes(struct buffer *out, struct mp4_writer *writer)
{
    u8 *bytes = NULL;
    int count = avio_close_dyn_buf(writer->format->pb, &bytes);
    writer->format->pb = NULL;
    buffer_append(out, bytes, count);
    av_free(bytes);
}

int clip_encode_mp4(struct buffer *out, const struct clip *clip)
{
    if (clip->frames < 1 || clip->width < 2 || clip->height < 2 || clip->width % 2 || clip->height % 2)
        return error_set("H.264 wants frames of even height and width, not %lld of %lldx%lld", (long long)clip->frames,
                         (long long)clip->height, (long long)clip->width);
    if (!(clip->rate_hz > 0 && clip->rate_hz <= 1000))
        return error_set("a clip of %g frames a second; expected above 0, at most 1000", clip->rate_hz);
    av_capture_log();
    struct mp4_writer writer = {0};
    int status = open_codec(&writer, clip);
    if (status == 0)
        status = open_container(&writer);
    if (status == 0)
        status = open_frame(&writer, clip);
    if (status == 0)
        status = write_all(&writer, clip);
    if (status == 0)
        take_bytes(out, &writer);
    writer_release(&writer);
    return status;
}
