/* Demuxes and decodes with one thread per decoder: callers run many files in parallel, and the same
 * bytes give the same frames. */
#include "data/media/av_input.h"
#include "data/media/av_deinterlace.h"
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <string.h>

static int give_bytes(void *opaque, u8 *out, int wanted)
{
    struct av_input *input = opaque;
    int given = (int)min_i64(wanted, input->count - input->at);
    if (given <= 0)
        return AVERROR_EOF;
    memcpy(out, input->bytes + input->at, (size_t)given);
    const struct ogg_mark *mark = &input->mark;
    for (i64 i = mark->at; mark->at >= 0 && i < mark->at + (i64)sizeof mark->header; i++)
        if (i >= input->at && i < input->at + given)
            out[i - input->at] = mark->header[i - mark->at];
    input->at += given;
    return given;
}

static int64_t seek_bytes(void *opaque, int64_t offset, int whence)
{
    struct av_input *input = opaque;
    if (whence & AVSEEK_SIZE)
        return input->count;
    whence &= ~AVSEEK_FORCE;
    i64 base = whence == SEEK_CUR ? input->at : whence == SEEK_END ? input->count : 0;
    if (offset < -base || offset > input->count - base)
        return AVERROR(EINVAL);
    return input->at = base + offset;
}

/* A file may refer to others (playlists, external tracks); none of them is opened. */
static int refuse_other_files(AVFormatContext *format, AVIOContext **io, const char *url, int flags,
                              AVDictionary **options)
{
    (void)format, (void)io, (void)url, (void)flags, (void)options;
    return AVERROR(EACCES);
}

void input_close(struct av_input *input)
{
    deinterlacer_close(input->deinterlacer);
    av_frame_free(&input->frame);
    av_packet_free(&input->packet);
    avcodec_free_context(&input->codec);
    avformat_close_input(&input->format);
    if (input->io)
        av_freep(&input->io->buffer);
    avio_context_free(&input->io);
}

void input_init(struct av_input *input, const void *bytes, i64 count, const char *origin, const struct file_kind *kind)
{
    enum { BUFFER_BYTES = 1 << 15 };
    av_capture_log();
    *input = (struct av_input){
        .origin = origin, .kind = kind, .bytes = bytes, .count = count, .most_pixels = picture_rules_usual.most_pixels};
    input->mark.at = -1;
    input->packet = av_packet_alloc();
    input->frame = av_frame_alloc();
    input->format = avformat_alloc_context();
    input->io = avio_alloc_context(av_malloc(BUFFER_BYTES), BUFFER_BYTES, 0, input, give_bytes, NULL, seek_bytes);
    require_memory(input->packet && input->frame && input->format && input->io, "libav");
    input->format->pb = input->io;
    input->format->flags |= AVFMT_FLAG_CUSTOM_IO;
    input->format->io_open = refuse_other_files;
    input->format->max_probe_packets = 0; /* probe a WAV's samples by their first packet only */
}

/* Leaves out a cut last frame, which decoders fill up, and bytes in front of the first frame, which
 * hide from libav what that frame says of the encoder's padding. */
static void keep_whole_frames(struct av_input *input)
{
    struct frame_run run = {0};
    bool mp3 = strcmp(input->kind->reader, "mp3") == 0;
    if (mp3)
        mp3_scan(&run, input->bytes, input->count);
    else if (strcmp(input->kind->reader, "aac") == 0)
        adts_scan(&run, input->bytes, input->count);
    if (run.cut_bytes)
        input->count = run.end;
    if (mp3 && run.frames && run.begin > id3_bytes(input->bytes, input->count)) {
        input->bytes += run.begin;
        input->count -= run.begin;
    }
}

int input_open(struct av_input *input, const void *bytes, i64 count, const char *origin, const struct file_kind *kind)
{
    input_init(input, bytes, count, origin, kind);
    if (file_check_whole(kind, bytes, count, origin) < 0)
        return -1;
    if (strcmp(kind->reader, "ogg") == 0)
        input->mark = ogg_mark_end(bytes, count);
    keep_whole_frames(input);
    const AVInputFormat *demuxer = av_find_input_format(kind->reader);
    if (!demuxer)
        return error_set("%s: %s: this libavformat has no '%s' reader; convert the file or install another FFmpeg",
                         origin, kind->name, kind->reader);
    int code = avformat_open_input(&input->format, NULL, demuxer, NULL);
    if (code >= 0)
        code = avformat_find_stream_info(input->format, NULL);
    return code < 0 ? av_problem(origin, kind->name, code) : 0;
}

static bool is_cover(const AVStream *stream)
{
    return stream->disposition & AV_DISPOSITION_ATTACHED_PIC;
}

AVStream *input_best_stream(const struct av_input *input, enum AVMediaType type)
{
    int index = av_find_best_stream(input->format, type, -1, -1, NULL, 0);
    if (index < 0 || is_cover(input->format->streams[index]))
        return NULL;
    return input->format->streams[index];
}

enum { ROW_PADDING = 64 << 16 };

int input_open_decoder(struct av_input *input, const AVCodec *decoder)
{
    input->codec = avcodec_alloc_context3(decoder);
    require_memory(input->codec, "libav");
    input->codec->thread_count = 1;
    /* libav counts row padding; callers check the exact limit. */
    input->codec->max_pixels = input->most_pixels + ROW_PADDING;
    if (decoder->type == AVMEDIA_TYPE_AUDIO) /* refuse made-up sounds */
        input->codec->err_recognition = AV_EF_CRCCHECK | AV_EF_EXPLODE;
    int code = 0;
    if (input->stream) {
        input->codec->pkt_timebase = input->stream->time_base;
        code = avcodec_parameters_to_context(input->codec, input->stream->codecpar);
    }
    if (code >= 0)
        code = avcodec_open2(input->codec, decoder, NULL);
    return code < 0 ? av_problem(input->origin, input->kind->name, code) : 0;
}

/* ---- Transparency beside the picture ---- */

/* WebM keeps transparency as a second picture beside each packet (BlockAdditional 1). Of libav's
 * decoders only libvpx's read it. */
static bool packet_is_clear(const AVPacket *packet)
{
    size_t bytes = 0;
    const u8 *data = av_packet_get_side_data(packet, AV_PKT_DATA_MATROSKA_BLOCKADDITIONAL, &bytes);
    return data && bytes > 8 && big_endian(data, 8) == 1;
}

static const AVCodec *find_clear_decoder(const struct av_input *input)
{
    enum AVCodecID id = input->stream->codecpar->codec_id;
    const AVCodec *decoder = id == AV_CODEC_ID_VP8   ? avcodec_find_decoder_by_name("libvpx")
                             : id == AV_CODEC_ID_VP9 ? avcodec_find_decoder_by_name("libvpx-vp9")
                                                     : NULL;
    if (!decoder)
        error_set("%s: %s with transparency, which this libavcodec cannot read; convert it to VP9, ProRes or frames",
                  input->origin, avcodec_get_name(id));
    return decoder;
}

static const AVCodec *find_decoder(const struct av_input *input)
{
    enum AVCodecID id = input->stream->codecpar->codec_id;
    const AVDictionaryEntry *mode = av_dict_get(input->stream->metadata, "alpha_mode", NULL, 0);
    if (mode && strcmp(mode->value, "0") != 0)
        return find_clear_decoder(input);
    const AVCodec *decoder = avcodec_find_decoder(id);
    if (!decoder)
        error_set("%s: this libavcodec has no decoder for %s; convert the file or install another FFmpeg",
                  input->origin, avcodec_get_name(id));
    return decoder;
}

/* Transparency that the container does not announce shows in the first packet. */
static int watch_transparency(struct av_input *input)
{
    if (input->packets != 1 || input->codec->codec_type != AVMEDIA_TYPE_VIDEO || !packet_is_clear(input->packet))
        return 0;
    const AVCodec *decoder = find_clear_decoder(input);
    if (!decoder || decoder == input->codec->codec)
        return decoder ? 0 : -1;
    avcodec_free_context(&input->codec);
    return input_open_decoder(input, decoder);
}

int input_select(struct av_input *input, enum AVMediaType type)
{
    input->stream = input_best_stream(input, type);
    if (!input->stream)
        return error_set("%s: %s without %s in it", input->origin, input->kind->name,
                         type == AVMEDIA_TYPE_VIDEO ? "video" : "sound");
    for (unsigned i = 0; i < input->format->nb_streams; i++)
        if (input->format->streams[i] != input->stream)
            input->format->streams[i]->discard = AVDISCARD_ALL;
    const AVCodec *decoder = find_decoder(input);
    return decoder ? input_open_decoder(input, decoder) : -1;
}

static void note_damage(struct av_input *input, bool damaged)
{
    input->damaged += damaged;
    input->end_damaged |= damaged;
}

/* Sends one packet to the decoder. At the end of the file, tells it to flush its remaining
 * frames. */
static int feed_decoder(struct av_input *input)
{
    int code = av_read_frame(input->format, input->packet);
    if (code < 0 && code != AVERROR_EOF && !avio_feof(input->io))
        return av_problem(input->origin, input->kind->name, code);
    if (code < 0) {
        input->draining = true;
        avcodec_send_packet(input->codec, NULL);
        return 0;
    }
    if (input->packet->stream_index == input->stream->index) {
        input->packets++;
        input->end_damaged = false;
        input_join_times(input);
        if (watch_transparency(input) < 0)
            return -1;
        note_damage(input, avcodec_send_packet(input->codec, input->packet) < 0);
    }
    av_packet_unref(input->packet);
    return 0;
}

/* True if parts of a frame could not be decoded. Decoders fill those with older contents of the
 * buffer. */
bool frame_is_damaged(const AVFrame *frame)
{
    return frame->decode_error_flags || frame->flags & AV_FRAME_FLAG_CORRUPT;
}

static int decode_next(struct av_input *input)
{
    for (;;) {
        int code = avcodec_receive_frame(input->codec, input->frame);
        if (code == 0) {
            note_damage(input, frame_is_damaged(input->frame));
            return 1;
        }
        note_damage(input, code != AVERROR(EAGAIN) && code != AVERROR_EOF);
        if (code == AVERROR_EOF || input->draining)
            return 0;
        if (feed_decoder(input) < 0)
            return -1;
    }
}

/* Opens the deinterlacer at the first interlaced frame. All later frames go through it; it delays
 * them by one to look ahead. */
static int begin_deinterlacing(struct av_input *input)
{
    bool video = input->stream && input->codec->codec_type == AVMEDIA_TYPE_VIDEO;
    if (input->deinterlacer || !video || !frame_is_interlaced(input->frame))
        return 0;
    input->deinterlacer = deinterlacer_open(input, input->frame);
    return input->deinterlacer ? 0 : -1;
}

int input_next(struct av_input *input)
{
    for (;;) {
        int got = input->deinterlacer ? deinterlacer_take(input->deinterlacer, input->frame) : 0;
        if (got || input->deinterlaced_all)
            return got;
        int more = decode_next(input);
        if (more < 0 || (more > 0 && begin_deinterlacing(input) < 0))
            return -1;
        if (!input->deinterlacer)
            return more;
        input->deinterlaced_all = more == 0;
        if (deinterlacer_give(input->deinterlacer, more ? input->frame : NULL) < 0)
            return -1;
    }
}

int input_check_damage(const struct av_input *input)
{
    if (input->damaged * 20 <= input->packets)
        return 0;
    const char *complaint = av_last_error(), *between = complaint[0] ? ": " : "";
    return error_set("%s: damaged: %lld of %lld %s could not be decoded%s%s", input->origin, (long long)input->damaged,
                     (long long)input->packets, plural(input->packets, "packet", "packets"), between, complaint);
}

enum media_kind av_container_kind(const void *bytes, i64 count, const char *origin, const struct file_kind *kind)
{
    struct av_input input;
    enum media_kind medium = MEDIA_UNKNOWN;
    if (input_open(&input, bytes, count, origin, kind) == 0) {
        if (input_best_stream(&input, AVMEDIA_TYPE_VIDEO))
            medium = MEDIA_VIDEO;
        else if (input_best_stream(&input, AVMEDIA_TYPE_AUDIO))
            medium = MEDIA_SOUND;
        else
            error_set("%s: %s without video or sound in it", origin, kind->name);
    }
    input_close(&input);
    return medium;
}
