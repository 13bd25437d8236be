/* Video, sound and stills from memory through libav. One thread per decoder: callers run many files at once, and the
 * same bytes give the same frames. */
#include "data/av_scale.h"
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswresample/swresample.h>
#include <math.h>
#include <string.h>

/* ---- A decoded stream of a file in memory ---------------------------------------------------------------------------
 */

struct source {
    const char *origin;
    const struct file_kind *kind;
    const u8 *bytes;
    i64 count, at; /* how far the demuxer has read */
    AVFormatContext *format;
    AVIOContext *io;
    AVStream *stream;
    AVCodecContext *codec;
    AVPacket *packet;
    AVFrame *frame;
    bool draining, end_damaged; /* end_damaged: the last packet is */
    i64 packets, damaged;
};

static int give_bytes(void *opaque, u8 *out, int wanted)
{
    struct source *source = opaque;
    int given = (int)min_i64(wanted, source->count - source->at);
    if (given <= 0)
        return AVERROR_EOF;
    memcpy(out, source->bytes + source->at, (size_t)given);
    source->at += given;
    return given;
}

static int64_t seek_bytes(void *opaque, int64_t offset, int whence)
{
    struct source *source = opaque;
    if (whence & AVSEEK_SIZE)
        return source->count;
    whence &= ~AVSEEK_FORCE;
    i64 base = whence == SEEK_CUR ? source->at : whence == SEEK_END ? source->count : 0;
    if (offset < -base || offset > source->count - base)
        return AVERROR(EINVAL);
    return source->at = base + offset;
}

/* A file may name others (playlists, external tracks): none is opened. */
static int refuse_other_files(AVFormatContext *format, AVIOContext **io, const char *url, int flags,
                              AVDictionary **options)
{
    (void)format, (void)io, (void)url, (void)flags, (void)options;
    return AVERROR(EACCES);
}

static void source_close(struct source *source)
{
    av_frame_free(&source->frame);
    av_packet_free(&source->packet);
    avcodec_free_context(&source->codec);
    avformat_close_input(&source->format);
    if (source->io)
        av_freep(&source->io->buffer);
    avio_context_free(&source->io);
}

static void source_init(struct source *source, const void *bytes, i64 count, const char *origin,
                        const struct file_kind *kind)
{
    enum { BUFFER_BYTES = 1 << 15 };
    av_keep_quiet();
    *source = (struct source){.origin = origin, .kind = kind, .bytes = bytes, .count = count};
    source->packet = av_packet_alloc();
    source->frame = av_frame_alloc();
    source->format = avformat_alloc_context();
    source->io = avio_alloc_context(av_malloc(BUFFER_BYTES), BUFFER_BYTES, 0, source, give_bytes, NULL, seek_bytes);
    require(source->packet && source->frame && source->format && source->io, "no memory for libav");
    source->format->pb = source->io;
    source->format->flags |= AVFMT_FLAG_CUSTOM_IO;
    source->format->io_open = refuse_other_files;
}

static int source_open(struct source *source, const void *bytes, i64 count, const char *origin,
                       const struct file_kind *kind)
{
    source_init(source, bytes, count, origin, kind);
    if (file_check_whole(kind, bytes, count, origin) < 0)
        return -1;
    const AVInputFormat *demuxer = av_find_input_format(kind->reader);
    if (!demuxer)
        return error_set("%s: %s: this libavformat has no '%s' reader; convert the file or install another FFmpeg",
                         origin, kind->name, kind->reader);
    int code = avformat_open_input(&source->format, NULL, demuxer, NULL);
    if (code >= 0)
        code = avformat_find_stream_info(source->format, NULL);
    return code < 0 ? av_problem(origin, kind->name, code) : 0;
}

static bool is_cover(const AVStream *stream)
{
    return stream->disposition & AV_DISPOSITION_ATTACHED_PIC;
}

/* The stream of a type that a player would choose; a sound file's cover picture is no video. NULL: there is none. */
static AVStream *best_stream(const struct source *source, enum AVMediaType type)
{
    int index = av_find_best_stream(source->format, type, -1, -1, NULL, 0);
    if (index < 0 || is_cover(source->format->streams[index]))
        return NULL;
    return source->format->streams[index];
}

/* With AV_EF_EXPLODE libav's reader refuses any tag that it does not know; without, it gives half a picture and says
 * so in the log alone. */
static bool is_tiff(const struct file_kind *kind)
{
    return strcmp(kind->reader, "tiff") == 0;
}

static int open_decoder(struct source *source, const AVCodec *decoder)
{
    source->codec = avcodec_alloc_context3(decoder);
    require(source->codec, "no memory for libav");
    source->codec->thread_count = 1;
    source->codec->max_pixels = PICTURE_PIXELS_MAX;
    if (decoder->type == AVMEDIA_TYPE_AUDIO || (source->kind->class == FILE_STILL && !is_tiff(source->kind)))
        source->codec->err_recognition = AV_EF_CRCCHECK | AV_EF_EXPLODE; /* no half pictures, no sounds made up */
    int code = 0;
    if (source->stream) {
        source->codec->pkt_timebase = source->stream->time_base;
        code = avcodec_parameters_to_context(source->codec, source->stream->codecpar);
    }
    if (code >= 0)
        code = avcodec_open2(source->codec, decoder, NULL);
    return code < 0 ? av_problem(source->origin, source->kind->name, code) : 0;
}

static int source_select(struct source *source, enum AVMediaType type)
{
    source->stream = best_stream(source, type);
    if (!source->stream)
        return error_set("%s: %s without %s in it", source->origin, source->kind->name,
                         type == AVMEDIA_TYPE_VIDEO ? "video" : "sound");
    for (unsigned i = 0; i < source->format->nb_streams; i++)
        if (source->format->streams[i] != source->stream)
            source->format->streams[i]->discard = AVDISCARD_ALL;
    enum AVCodecID id = source->stream->codecpar->codec_id;
    const AVCodec *decoder = avcodec_find_decoder(id);
    if (!decoder)
        return error_set("%s: this libavcodec has no decoder for %s; convert the file or install another FFmpeg",
                         source->origin, avcodec_get_name(id));
    return open_decoder(source, decoder);
}

static void note_damage(struct source *source, bool damaged)
{
    source->damaged += damaged;
    source->end_damaged |= damaged;
}

/* One packet to the decoder, or at the end of the file none: it gives what it still holds. */
static int feed_decoder(struct source *source)
{
    int code = av_read_frame(source->format, source->packet);
    if (code < 0 && code != AVERROR_EOF && !avio_feof(source->io))
        return av_problem(source->origin, source->kind->name, code);
    if (code < 0) {
        source->draining = true;
        avcodec_send_packet(source->codec, NULL);
        return 0;
    }
    if (source->packet->stream_index == source->stream->index) {
        source->packets++;
        source->end_damaged = false;
        note_damage(source, avcodec_send_packet(source->codec, source->packet) < 0);
    }
    av_packet_unref(source->packet);
    return 0;
}

/* Decoders fill what they could not read with what stood there before. */
static bool is_damaged(const AVFrame *frame)
{
    return frame->decode_error_flags || frame->flags & AV_FRAME_FLAG_CORRUPT;
}

/* 1: source->frame holds the next frame. 0: there are no more. */
static int source_next(struct source *source)
{
    for (;;) {
        int code = avcodec_receive_frame(source->codec, source->frame);
        if (code == 0) {
            note_damage(source, is_damaged(source->frame));
            return 1;
        }
        note_damage(source, code != AVERROR(EAGAIN) && code != AVERROR_EOF);
        if (code == AVERROR_EOF || source->draining)
            return 0;
        if (feed_decoder(source) < 0)
            return -1;
    }
}

/* Real files have a bad packet now and then, decoders step over it; a file full of them is not data. */
static int source_check_damage(const struct source *source)
{
    if (source->damaged * 20 <= source->packets)
        return 0;
    const char *complaint = av_complaint(), *between = complaint[0] ? ": " : "";
    return error_set("%s: damaged: %lld of %lld packets could not be decoded%s%s", source->origin,
                     (long long)source->damaged, (long long)source->packets, between, complaint);
}

enum media_kind av_container_kind(const void *bytes, i64 count, const char *origin, const struct file_kind *kind)
{
    struct source source;
    enum media_kind medium = MEDIA_UNKNOWN;
    if (source_open(&source, bytes, count, origin, kind) == 0) {
        if (best_stream(&source, AVMEDIA_TYPE_VIDEO))
            medium = MEDIA_VIDEO;
        else if (best_stream(&source, AVMEDIA_TYPE_AUDIO))
            medium = MEDIA_SOUND;
        else
            error_set("%s: %s without video or sound in it", origin, kind->name);
    }
    source_close(&source);
    return medium;
}

/* ---- Clips ---- */

struct picker {
    struct source source;
    struct scaler scaler;
    struct clip_request request;
    struct clip *out;
    i64 capacity;   /* frames */
    AVFrame *held;  /* the frame before the one the source shows */
    double held_s;  /* its time from the start */
    bool held_kept; /* it is the last frame of out */
};

static bool picker_full(const struct picker *picker)
{
    return picker->request.max_frames > 0 && picker->out->frames >= picker->request.max_frames;
}

/* The container's word on the shape of pixels counts before the stream's. */
static AVRational pixel_shape(const struct source *source, AVFrame *frame)
{
    return av_guess_sample_aspect_ratio(source->format, source->stream, frame);
}

/* Without a size in the request the first frame gives it; pixels then stay as they are, square or not. */
static void choose_size(struct picker *picker, const AVFrame *frame, struct orientation turn)
{
    struct clip *out = picker->out;
    out->height = picker->request.height;
    out->width = picker->request.width;
    if (!out->height) {
        out->height = turn.transposed ? frame->width : frame->height;
        out->width = turn.transposed ? frame->height : frame->width;
    }
}

/* To grow is to copy: where the most is known and takes little, it is there from the start. */
static int reserve_frame(struct picker *picker)
{
    enum { AT_ONCE_BYTES = 1 << 25 };
    struct clip *out = picker->out;
    i64 frame_bytes = out->height * out->width * 3;
    if (out->frames < picker->capacity)
        return 0;
    if ((out->frames + 1) * frame_bytes > CLIP_BYTES_MAX)
        return error_set("%s: longer than %lld frames of %lldx%lld, the most that are held at once; ask for fewer or "
                         "smaller frames, or cut the file",
                         picker->source.origin, (long long)out->frames, (long long)out->height, (long long)out->width);
    i64 wanted = max_i64(16, picker->capacity * 2);
    if (picker->request.max_frames > 0)
        wanted = min_i64(max_i64(wanted, AT_ONCE_BYTES / frame_bytes), picker->request.max_frames);
    wanted = min_i64(wanted, CLIP_BYTES_MAX / frame_bytes);
    out->pixels = memory_resize(out->pixels, picker->capacity * frame_bytes, wanted * frame_bytes);
    picker->capacity = wanted;
    return 0;
}

static int keep_frame(struct picker *picker, AVFrame *frame)
{
    struct clip *out = picker->out;
    struct orientation turn = orientation_of(frame, picker->source.stream);
    frame->sample_aspect_ratio = picker->request.height ? pixel_shape(&picker->source, frame) : (AVRational){1, 1};
    if (!out->height)
        choose_size(picker, frame, turn);
    if (reserve_frame(picker) < 0)
        return -1;
    u8 *pixels = out->pixels + out->frames * out->height * out->width * 3;
    int location = (int)frame->chroma_location;
    if (location == AVCHROMA_LOC_UNSPECIFIED)
        location = picker->source.stream ? AVCHROMA_LOC_LEFT : AVCHROMA_LOC_CENTER;
    int code = scale_frame(pixels, out->height, out->width, &picker->scaler, frame, turn, location);
    if (code < 0)
        return av_problem(picker->source.origin, "a frame could not be scaled", code);
    if (out->frames++ == 0) {
        out->inner_height = turn.transposed ? picker->scaler.key.out_width : picker->scaler.key.out_height;
        out->inner_width = turn.transposed ? picker->scaler.key.out_height : picker->scaler.key.out_width;
    }
    return 0;
}

/* Keeps the held frame for every wanted time before until_s; a repeated frame is copied. */
static int keep_held(struct picker *picker, double until_s)
{
    struct clip *out = picker->out;
    while (!picker_full(picker) && (double)out->frames / picker->request.rate_hz < until_s) {
        if (!picker->held_kept) {
            if (keep_frame(picker, picker->held) < 0)
                return -1;
            picker->held_kept = true;
            continue;
        }
        if (reserve_frame(picker) < 0)
            return -1;
        i64 frame_bytes = out->height * out->width * 3;
        memcpy(out->pixels + out->frames * frame_bytes, out->pixels + (out->frames - 1) * frame_bytes,
               (size_t)frame_bytes);
        out->frames++;
    }
    return 0;
}

static double frame_rate(const struct source *source)
{
    AVRational rate = av_guess_frame_rate(source->format, source->stream, NULL);
    return rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 25;
}

/* Seconds since the first frame; files without times count by their rate, and time never runs back. */
static double frame_time(const struct source *source, i64 first, i64 index, double before_s)
{
    i64 stamp = source->frame->best_effort_timestamp;
    double time_s = stamp == AV_NOPTS_VALUE || first == AV_NOPTS_VALUE
                        ? (double)index / frame_rate(source)
                        : ((double)stamp - (double)first) * av_q2d(source->stream->time_base);
    return fmax(time_s, before_s);
}

/* Nearest in time: a frame stands for the wanted times up to half the way to the next. */
static int pick_by_time(struct picker *picker)
{
    struct source *source = &picker->source;
    i64 first = 0, index = 0;
    int more = 0;
    for (; !picker_full(picker) && (more = source_next(source)) > 0; index++) {
        if (index == 0)
            first = source->frame->best_effort_timestamp;
        double time_s = frame_time(source, first, index, picker->held_s);
        if (index > 0 && keep_held(picker, (picker->held_s + time_s) / 2) < 0)
            return -1;
        av_frame_unref(picker->held);
        av_frame_move_ref(picker->held, source->frame);
        picker->held_s = time_s;
        picker->held_kept = false;
    }
    if (more < 0)
        return -1;
    enum { MICROSECONDS = 1000000 }; /* times are rounded: the end must not yield one more frame */
    return index > 0 ? keep_held(picker, picker->held_s + 1 / frame_rate(source) - 1.0 / MICROSECONDS) : 0;
}

static int pick_every(struct picker *picker)
{
    int more = 0;
    while (!picker_full(picker) && (more = source_next(&picker->source)) > 0)
        if (keep_frame(picker, picker->source.frame) < 0)
            return -1;
    return more;
}

static int open_video(struct source *source, const void *bytes, i64 count, const char *origin,
                      const struct file_kind *kind)
{
    if (!kind || kind->class != FILE_CONTAINER)
        return error_set("%s: expected a video (MP4, MOV, MKV, WebM, AVI, Ogg, GIF), found %s", origin,
                         file_describe(bytes, count));
    return source_open(source, bytes, count, origin, kind) < 0 || source_select(source, AVMEDIA_TYPE_VIDEO) < 0 ? -1
                                                                                                                : 0;
}

static int no_frames(const struct source *source)
{
    return error_set("%s: %s whose video has no frames", source->origin, source->kind->name);
}

static int pick(struct picker *picker, const void *bytes, i64 count, const char *origin)
{
    if (open_video(&picker->source, bytes, count, origin, file_kind_of(bytes, count)) < 0)
        return -1;
    bool by_time = picker->request.rate_hz > 0;
    picker->out->rate_hz = by_time ? picker->request.rate_hz : frame_rate(&picker->source);
    if ((by_time ? pick_by_time(picker) : pick_every(picker)) < 0 || source_check_damage(&picker->source) < 0)
        return -1;
    return picker->out->frames ? 0 : no_frames(&picker->source);
}

int clip_read(struct clip *out, const void *bytes, i64 count, const char *origin, const struct clip_request *request)
{
    require((request->height > 0) == (request->width > 0), "a clip is asked for with both sizes or none");
    *out = (struct clip){0};
    struct picker picker = {.request = *request, .out = out, .held = av_frame_alloc()};
    require(picker.held, "no memory for libav");
    int status = pick(&picker, bytes, count, origin);
    source_close(&picker.source);
    scaler_release(&picker.scaler);
    av_frame_free(&picker.held);
    if (status < 0)
        clip_release(out);
    return status;
}

int clip_shown_size(double *height, double *width, const void *bytes, i64 count, const char *origin)
{
    struct source source = {0};
    int status = open_video(&source, bytes, count, origin, file_kind_of(bytes, count));
    if (status == 0)
        status = source_next(&source);
    if (status == 0)
        no_frames(&source);
    if (status > 0) {
        source.frame->sample_aspect_ratio = pixel_shape(&source, source.frame);
        shown_shape(height, width, source.frame, orientation_of(source.frame, source.stream));
    }
    source_close(&source);
    return status > 0 ? 0 : -1;
}

/* ---- Stills ---- */

static int decode_still(struct source *source)
{
    const AVCodec *decoder = avcodec_find_decoder_by_name(source->kind->reader);
    if (!decoder)
        return error_set("%s: this libavcodec cannot read %s; convert it to PNG", source->origin, source->kind->name);
    if (source->count > INT_MAX / 2)
        return error_set("%s: %s of more than 1 GiB; make it smaller", source->origin, source->kind->name);
    if (open_decoder(source, decoder) < 0)
        return -1;
    int code = av_new_packet(source->packet, (int)source->count);
    if (code >= 0) {
        memcpy(source->packet->data, source->bytes, (size_t)source->count);
        code = avcodec_send_packet(source->codec, source->packet);
    }
    if (code >= 0) {
        avcodec_send_packet(source->codec, NULL);
        code = avcodec_receive_frame(source->codec, source->frame);
    }
    if (code < 0)
        return av_problem(source->origin, source->kind->name, code);
    bool half = is_damaged(source->frame) || (is_tiff(source->kind) && av_complaint()[0]);
    return half ? av_problem(source->origin, source->kind->name, AVERROR_INVALIDDATA) : 0;
}

int av_read_still(struct clip *out, const void *bytes, i64 count, const char *origin, const struct file_kind *kind)
{
    struct picker picker = {.out = out};
    source_init(&picker.source, bytes, count, origin, kind);
    int status = decode_still(&picker.source);
    if (status == 0)
        status = keep_frame(&picker, picker.source.frame);
    source_close(&picker.source);
    scaler_release(&picker.scaler);
    if (status < 0)
        clip_release(out);
    return status;
}

/* ---- Sound ---- */

struct mixer {
    struct source source;
    struct SwrContext *swr; /* NULL while the rate is as wanted */
    struct sound *out;
    i64 capacity, wanted_hz, most_samples;
    i64 rate_hz, samples; /* of the stream */
    float *mono;
    i64 mono_capacity;
};

static double sample_value(const AVFrame *frame, int channel, i64 index)
{
    enum AVSampleFormat format = frame->format;
    if (!av_sample_fmt_is_planar(format)) {
        index = index * frame->ch_layout.nb_channels + channel;
        channel = 0;
    }
    const void *plane = frame->extended_data[channel];
    switch (av_get_packed_sample_fmt(format)) {
    case AV_SAMPLE_FMT_U8:
        return (((const u8 *)plane)[index] - 128) / 128.0;
    case AV_SAMPLE_FMT_S16:
        return ((const int16_t *)plane)[index] / 32768.0;
    case AV_SAMPLE_FMT_S32:
        return ((const i32 *)plane)[index] / 2147483648.0;
    case AV_SAMPLE_FMT_S64:
        return (double)((const i64 *)plane)[index] / 9223372036854775808.0;
    case AV_SAMPLE_FMT_FLT:
        return ((const float *)plane)[index];
    case AV_SAMPLE_FMT_DBL:
        return ((const double *)plane)[index];
    default:
        return 0;
    }
}

/* Float files may hold anything: what is no number is silence. */
static float clamp_sample(double value)
{
    return value >= -1 ? (float)fmin(value, 1) : value < -1 ? -1 : 0;
}

static void mix_to_mono(struct mixer *mixer, const AVFrame *frame)
{
    i64 samples = frame->nb_samples;
    int channels = frame->ch_layout.nb_channels;
    if (samples > mixer->mono_capacity) {
        memory_free(mixer->mono);
        mixer->mono = memory_alloc(samples * (i64)sizeof(float));
        mixer->mono_capacity = samples;
    }
    for (i64 i = 0; i < samples; i++) {
        double sum = 0;
        for (int c = 0; c < channels; c++)
            sum += sample_value(frame, c, i);
        mixer->mono[i] = clamp_sample(sum / channels);
    }
}

static int reserve_samples(struct mixer *mixer, i64 more)
{
    struct sound *out = mixer->out;
    i64 wanted = out->samples + more;
    if (wanted > SOUND_SAMPLES_MAX)
        return error_set("%s: longer than %lld samples, the most that are held at once; cut the file",
                         mixer->source.origin, (long long)SOUND_SAMPLES_MAX);
    if (wanted <= mixer->capacity)
        return 0;
    wanted = max_i64(wanted, mixer->capacity * 2);
    out->values = memory_resize(out->values, mixer->capacity * (i64)sizeof(float), wanted * (i64)sizeof(float));
    mixer->capacity = wanted;
    return 0;
}

/* samples 0: the resampler gives what it still holds */
static int append_samples(struct mixer *mixer, i64 samples)
{
    struct sound *out = mixer->out;
    i64 room = mixer->swr ? swr_get_out_samples(mixer->swr, (int)samples) : samples;
    if (room < 0 || reserve_samples(mixer, room) < 0)
        return room < 0 ? av_problem(mixer->source.origin, "resampling", (int)room) : -1;
    if (!mixer->swr) {
        memcpy(out->values + out->samples, mixer->mono, (size_t)samples * sizeof(float));
        out->samples += samples;
        return 0;
    }
    u8 *to[1] = {(u8 *)(out->values + out->samples)};
    const u8 *from[1] = {(const u8 *)mixer->mono};
    int made = swr_convert(mixer->swr, to, (int)room, samples ? from : NULL, (int)samples);
    if (made < 0)
        return av_problem(mixer->source.origin, "resampling", made);
    out->samples += made;
    return 0;
}

static int choose_rate(struct mixer *mixer, int rate_hz)
{
    const char *origin = mixer->source.origin;
    if (rate_hz < 1000 || rate_hz > 768000)
        return error_set("%s: a sound of %d samples a second; expected 1000 to 768000", origin, rate_hz);
    mixer->rate_hz = rate_hz;
    mixer->out->rate_hz = mixer->wanted_hz ? mixer->wanted_hz : rate_hz;
    if (mixer->out->rate_hz == rate_hz)
        return 0;
    AVChannelLayout mono = AV_CHANNEL_LAYOUT_MONO;
    int code = swr_alloc_set_opts2(&mixer->swr, &mono, AV_SAMPLE_FMT_FLT, (int)mixer->out->rate_hz, &mono,
                                   AV_SAMPLE_FMT_FLT, rate_hz, 0, NULL);
    if (code >= 0)
        code = swr_init(mixer->swr);
    return code < 0 ? av_problem(origin, "resampling", code) : 0;
}

static int mix_frame(struct mixer *mixer)
{
    const AVFrame *frame = mixer->source.frame;
    if (!mixer->rate_hz && choose_rate(mixer, frame->sample_rate) < 0)
        return -1;
    if (frame->sample_rate != mixer->rate_hz)
        return error_set("%s: the sample rate changes from %lld to %d in the middle; convert it to one rate",
                         mixer->source.origin, (long long)mixer->rate_hz, frame->sample_rate);
    mix_to_mono(mixer, frame);
    mixer->samples += frame->nb_samples;
    return append_samples(mixer, frame->nb_samples);
}

/* A FLAC file states its samples, or 0 where it was written to a pipe; nothing else in it says where its end is. */
static int check_end(const struct mixer *mixer)
{
    const struct source *source = &mixer->source;
    bool states = source->format->duration_estimation_method == AVFMT_DURATION_FROM_STREAM;
    i64 stated = states ? max_i64(source->stream->duration, 0) : 0;
    if (strcmp(source->kind->reader, "flac") != 0 || (mixer->samples >= stated && !source->end_damaged))
        return 0;
    return error_set("%s: cut short or damaged: %lld whole samples of a FLAC sound that states %lld; copy it again",
                     source->origin, (long long)mixer->samples, (long long)stated);
}

static bool mixer_full(const struct mixer *mixer)
{
    return mixer->most_samples && mixer->out->samples > mixer->most_samples;
}

static int mix(struct mixer *mixer, const void *bytes, i64 count, const char *origin, const struct file_kind *kind)
{
    struct source *source = &mixer->source;
    if (source_open(source, bytes, count, origin, kind) < 0 || source_select(source, AVMEDIA_TYPE_AUDIO) < 0)
        return -1;
    int more = 0;
    while (!mixer_full(mixer) && (more = source_next(source)) > 0)
        if (source->frame->nb_samples > 0 && mix_frame(mixer) < 0)
            return -1;
    bool whole = !mixer_full(mixer);
    if (more < 0 || (whole && check_end(mixer) < 0) || source_check_damage(source) < 0 ||
        (whole && mixer->swr && append_samples(mixer, 0) < 0))
        return -1;
    if (!mixer->out->samples)
        return error_set("%s: %s with no samples in it", origin, kind->name);
    for (i64 i = 0; i < mixer->out->samples; i++) /* resampling overshoots a little */
        mixer->out->values[i] = clamp_sample(mixer->out->values[i]);
    return 0;
}

int sound_read(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz)
{
    return sound_read_most(out, bytes, count, origin, rate_hz, 0);
}

int sound_read_most(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz, i64 most_samples)
{
    *out = (struct sound){0};
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (!kind || (kind->class != FILE_CONTAINER && kind->class != FILE_SOUND))
        return error_set("%s: expected a sound (WAV, FLAC, MP3, Ogg, AAC, AIFF) or a video with sound, found %s",
                         origin, file_describe(bytes, count));
    struct mixer mixer = {.out = out, .wanted_hz = rate_hz, .most_samples = most_samples};
    int status = mix(&mixer, bytes, count, origin, kind);
    source_close(&mixer.source);
    swr_free(&mixer.swr);
    memory_free(mixer.mono);
    if (status < 0)
        sound_release(out);
    return status;
}
