/* A sound through an encoder of libavcodec and back through its decoder, packet by packet and without a container. */
#include "data/media/file_kind.h"
#include <libavcodec/avcodec.h>
#include <math.h>

struct recoder {
    const char *name;
    AVCodecContext *encoder, *decoder;
    AVFrame *in, *decoded;
    AVPacket *packet;
    struct sound *out;
    i64 capacity, *bits;
    i64 packets, counted; /* so far; how many of them hold the sound */
};

bool sound_codec_exists(const struct sound_codec *codec)
{
    return avcodec_find_encoder_by_name(codec->encoder) && avcodec_find_decoder_by_name(codec->decoder);
}

static int open_encoder(struct recoder *r, const struct sound_codec *codec, i64 rate_hz)
{
    const AVCodec *found = avcodec_find_encoder_by_name(codec->encoder);
    AVDictionary *options = NULL;
    if (!found)
        return error_set("%s: this libavcodec has no such encoder; install the one of Debian or Ubuntu", r->name);
    r->encoder = avcodec_alloc_context3(found);
    require_memory(r->encoder, "libav");
    r->encoder->sample_rate = (int)rate_hz;
    r->encoder->sample_fmt = AV_SAMPLE_FMT_S16;
    r->encoder->ch_layout = (AVChannelLayout)AV_CHANNEL_LAYOUT_MONO;
    r->encoder->time_base = (AVRational){1, (int)rate_hz};
    r->encoder->thread_count = 1;
    if (codec->bit_rate)
        r->encoder->bit_rate = codec->bit_rate;
    if (codec->option)
        av_dict_set(&options, codec->option, codec->value, 0);
    int code = avcodec_open2(r->encoder, found, &options);
    bool unknown = code >= 0 && av_dict_count(options) > 0;
    av_dict_free(&options);
    if (unknown)
        return error_set("%s: this libavcodec's encoder has no setting \"%s\"", r->name, codec->option);
    return code < 0 ? av_problem(r->name, "cannot start", code) : 0;
}

static int open_decoder(struct recoder *r, const struct sound_codec *codec)
{
    const AVCodec *found = avcodec_find_decoder_by_name(codec->decoder);
    AVCodecParameters *parameters = avcodec_parameters_alloc();
    if (!found) {
        avcodec_parameters_free(&parameters);
        return error_set("%s: this libavcodec has no decoder %s; install the one of Debian or Ubuntu", r->name,
                         codec->decoder);
    }
    r->decoder = avcodec_alloc_context3(found);
    require_memory(r->decoder && parameters, "libav");
    int code = avcodec_parameters_from_context(parameters, r->encoder);
    if (code >= 0)
        code = avcodec_parameters_to_context(r->decoder, parameters);
    avcodec_parameters_free(&parameters);
    r->decoder->thread_count = 1;
    if (code >= 0)
        code = avcodec_open2(r->decoder, found, NULL);
    return code < 0 ? av_problem(r->name, "cannot start its decoder", code) : 0;
}

/* Appends the samples of the decoded frame. */
static int take_samples(struct recoder *r)
{
    const AVFrame *frame = r->decoded;
    struct sound *out = r->out;
    i64 wanted = out->samples + frame->nb_samples;
    enum AVSampleFormat format = av_get_packed_sample_fmt(frame->format);
    if (format != AV_SAMPLE_FMT_FLT && format != AV_SAMPLE_FMT_S16)
        return error_set("%s: its decoder writes samples of format %s; expected s16 or flt", r->name,
                         av_get_sample_fmt_name(frame->format));
    out->rate_hz = frame->sample_rate;
    if (wanted > r->capacity) {
        out->values = memory_resize(out->values, r->capacity * 4, 2 * wanted * 4);
        r->capacity = 2 * wanted;
    }
    for (i64 i = 0; i < frame->nb_samples; i++) /* one channel: planar or not */
        out->values[out->samples + i] = format == AV_SAMPLE_FMT_FLT
                                            ? ((const float *)frame->data[0])[i]
                                            : (float)((const int16_t *)frame->data[0])[i] / 32768.0f;
    out->samples = wanted;
    return 0;
}

/* Decodes a packet; NULL: what the decoder still holds. */
static int decode_packet(struct recoder *r, const AVPacket *packet)
{
    int code = avcodec_send_packet(r->decoder, packet), status = 0;
    while (code >= 0 && status == 0 && (code = avcodec_receive_frame(r->decoder, r->decoded)) >= 0)
        status = take_samples(r);
    return status < 0 || code >= 0 || code == AVERROR(EAGAIN) || code == AVERROR_EOF
               ? status
               : av_problem(r->name, "cannot decode what it wrote", code);
}

/* Encodes a frame; NULL: what the encoder still holds. */
static int encode_frame(struct recoder *r, const AVFrame *frame)
{
    int code = avcodec_send_frame(r->encoder, frame), status = 0;
    while (code >= 0 && status == 0 && (code = avcodec_receive_packet(r->encoder, r->packet)) >= 0) {
        *r->bits += r->packets++ < r->counted ? 8 * (i64)r->packet->size : 0;
        status = decode_packet(r, r->packet);
        av_packet_unref(r->packet);
    }
    return status < 0 || code >= 0 || code == AVERROR(EAGAIN) || code == AVERROR_EOF
               ? status
               : av_problem(r->name, "cannot encode", code);
}

static int recode_all(struct recoder *r, const struct sound *in, i64 tail)
{
    AVFrame *frame = r->in;
    i64 at_once = r->encoder->frame_size, status = 0;
    r->counted = ceil_div(in->samples, at_once);
    frame->nb_samples = (int)at_once;
    frame->format = r->encoder->sample_fmt;
    frame->sample_rate = r->encoder->sample_rate;
    frame->ch_layout = (AVChannelLayout)AV_CHANNEL_LAYOUT_MONO;
    int code = av_frame_get_buffer(frame, 0);
    if (code < 0)
        return av_problem(r->name, "cannot make frames", code);
    for (i64 at = 0; at < in->samples + tail && status == 0; at += at_once) {
        code = av_frame_make_writable(frame);
        if (code < 0)
            return av_problem(r->name, "cannot make frames", code);
        for (i64 i = 0; i < at_once; i++) {
            double value = at + i < in->samples ? (double)in->values[at + i] : 0;
            ((int16_t *)frame->data[0])[i] = (int16_t)lrint(fmin(fmax(value, -1), 1) * 32767);
        }
        frame->pts = at;
        status = encode_frame(r, frame);
    }
    if (status == 0)
        status = encode_frame(r, NULL);
    return status == 0 ? decode_packet(r, NULL) : -1;
}

int sound_recode(struct sound *out, i64 *bits, const struct sound *in, const struct sound_codec *codec, double tail_s)
{
    struct recoder r = {.name = codec->encoder, .out = out, .bits = bits};
    *out = (struct sound){0};
    *bits = 0;
    av_capture_log();
    r.in = av_frame_alloc();
    r.decoded = av_frame_alloc();
    r.packet = av_packet_alloc();
    require_memory(r.in && r.decoded && r.packet, "libav");
    int status = open_encoder(&r, codec, in->rate_hz);
    if (status == 0)
        status = open_decoder(&r, codec);
    if (status == 0)
        status = recode_all(&r, in, (i64)(tail_s * (double)in->rate_hz));
    avcodec_free_context(&r.encoder);
    avcodec_free_context(&r.decoder);
    av_frame_free(&r.in);
    av_frame_free(&r.decoded);
    av_packet_free(&r.packet);
    if (status < 0)
        sound_release(out);
    return status;
}
