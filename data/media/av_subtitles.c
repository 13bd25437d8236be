/* Reads a film's text subtitles through libav. Subtitles stored as pictures are ignored. */
#include "data/media/av_input.h"
#include "data/media/subtitles.h"
#include <math.h>
#include <string.h>
#include <strings.h>

static bool is_text(const AVStream *stream)
{
    const AVCodecDescriptor *codec = avcodec_descriptor_get(stream->codecpar->codec_id);
    return stream->codecpar->codec_type == AVMEDIA_TYPE_SUBTITLE && codec && codec->props & AV_CODEC_PROP_TEXT_SUB;
}

/* Compares the stream's language tag, of 2 or 3 letters: en, eng. */
static bool has_language(const AVStream *stream, const char *wanted)
{
    const AVDictionaryEntry *tag = av_dict_get(stream->metadata, "language", NULL, 0);
    return !wanted || !*wanted || (tag && strcasecmp(tag->value, wanted) == 0);
}

/* Ranks a stream, higher is better. Forced tracks hold only foreign words, those for the hard of
 * hearing include noises, comment tracks hold other speakers. */
static int rank_of(const AVStream *stream)
{
    int is = stream->disposition;
    return (is & AV_DISPOSITION_DEFAULT ? 1 : 0) - (is & AV_DISPOSITION_HEARING_IMPAIRED ? 2 : 0) -
           (is & AV_DISPOSITION_FORCED ? 4 : 0) - (is & AV_DISPOSITION_COMMENT ? 8 : 0);
}

static AVStream *choose_stream(const struct av_input *input, const char *language)
{
    AVStream *best = NULL;
    for (unsigned i = 0; i < input->format->nb_streams; i++) {
        AVStream *stream = input->format->streams[i];
        if (is_text(stream) && has_language(stream, language) && (!best || rank_of(stream) > rank_of(best)))
            best = stream;
    }
    for (unsigned i = 0; best && i < input->format->nb_streams; i++)
        if (input->format->streams[i] != best)
            input->format->streams[i]->discard = AVDISCARD_ALL;
    return best;
}

/* Stream time of the clip clock's zero: the first video frame, or the first sound frame without
 * video. */
static double zero_of(const struct av_input *input)
{
    const AVStream *stream = input_best_stream(input, AVMEDIA_TYPE_VIDEO);
    if (!stream)
        stream = input_best_stream(input, AVMEDIA_TYPE_AUDIO);
    return stream && stream->start_time != AV_NOPTS_VALUE ? (double)stream->start_time * av_q2d(stream->time_base) : 0;
}

/* Assumed duration of a cue that states none, in seconds. */
static const double usual_s = 3;

static i64 write_cue(struct buffer *out, const struct av_input *input, const AVSubtitle *said, double zero_s)
{
    const AVPacket *packet = input->packet;
    double unit_s = av_q2d(input->stream->time_base);
    double begin_s = (double)packet->pts * unit_s - zero_s + said->start_display_time * 1e-3;
    double end_s = begin_s + (packet->duration > 0 ? (double)packet->duration * unit_s : usual_s);
    struct buffer words = {0};
    for (unsigned i = 0; i < said->num_rects; i++)
        if (said->rects[i]->ass)
            subtitles_event(&words, said->rects[i]->ass);
    i64 cues = words.length > 0 && packet->pts != AV_NOPTS_VALUE && end_s > 0;
    if (cues)
        subtitles_write(out, fmax(begin_s, 0), end_s, words.data);
    buffer_release(&words);
    return cues;
}

static i64 read_packet(struct buffer *out, struct av_input *input, double zero_s)
{
    AVSubtitle said = {0};
    int given = 0;
    i64 cues = 0;
    input->packets++;
    if (avcodec_decode_subtitle2(input->codec, &said, &given, input->packet) < 0)
        input->damaged++;
    else if (given)
        cues = write_cue(out, input, &said, zero_s);
    if (given)
        avsubtitle_free(&said);
    return cues;
}

static i64 read_cues(struct buffer *out, struct av_input *input)
{
    double zero_s = zero_of(input);
    i64 cues = 0;
    int code;
    while ((code = av_read_frame(input->format, input->packet)) >= 0) {
        if (input->packet->stream_index == input->stream->index)
            cues += read_packet(out, input, zero_s);
        av_packet_unref(input->packet);
    }
    if (code != AVERROR_EOF && !avio_feof(input->io))
        return av_problem(input->origin, input->kind->name, code);
    return input_check_damage(input) < 0 ? -1 : cues;
}

static i64 read_film(struct buffer *out, struct av_input *input, const void *bytes, i64 count, const char *origin,
                     const char *language)
{
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (!kind || kind->class != FILE_CONTAINER)
        return 0;
    if (input_open(input, bytes, count, origin, kind) < 0)
        return -1;
    input->stream = choose_stream(input, language);
    const AVCodec *decoder = input->stream ? avcodec_find_decoder(input->stream->codecpar->codec_id) : NULL;
    if (!decoder)
        return 0;
    return input_open_decoder(input, decoder) < 0 ? -1 : read_cues(out, input);
}

i64 film_subtitles(struct buffer *out, const void *bytes, i64 count, const char *origin, const char *language)
{
    struct av_input input = {0};
    i64 cues = read_film(out, &input, bytes, count, origin, language);
    input_close(&input);
    return cues;
}
