/* Sounds through libav: mono, resampled. */
#include "data/av_input.h"
#include <libswresample/swresample.h>
#include <math.h>
#include <string.h>

struct mixer {
    struct av_input input;
    struct SwrContext *swr; /* NULL while the rate is as wanted */
    struct sound *out;
    i64 capacity, wanted_hz;
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
                         mixer->input.origin, (long long)SOUND_SAMPLES_MAX);
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
        return room < 0 ? av_problem(mixer->input.origin, "resampling", (int)room) : -1;
    if (!mixer->swr) {
        memcpy(out->values + out->samples, mixer->mono, (size_t)samples * sizeof(float));
        out->samples += samples;
        return 0;
    }
    u8 *to[1] = {(u8 *)(out->values + out->samples)};
    const u8 *from[1] = {(const u8 *)mixer->mono};
    int made = swr_convert(mixer->swr, to, (int)room, samples ? from : NULL, (int)samples);
    if (made < 0)
        return av_problem(mixer->input.origin, "resampling", made);
    out->samples += made;
    return 0;
}

static int choose_rate(struct mixer *mixer, int rate_hz)
{
    const char *origin = mixer->input.origin;
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
    const AVFrame *frame = mixer->input.frame;
    if (!mixer->rate_hz && choose_rate(mixer, frame->sample_rate) < 0)
        return -1;
    if (frame->sample_rate != mixer->rate_hz)
        return error_set("%s: the sample rate changes from %lld to %d in the middle; convert it to one rate",
                         mixer->input.origin, (long long)mixer->rate_hz, frame->sample_rate);
    mix_to_mono(mixer, frame);
    mixer->samples += frame->nb_samples;
    return append_samples(mixer, frame->nb_samples);
}

/* A FLAC file states its samples, or 0 where it was written to a pipe; nothing else in it says where its end is. */
static int check_end(const struct mixer *mixer)
{
    const struct av_input *input = &mixer->input;
    bool states = input->format->duration_estimation_method == AVFMT_DURATION_FROM_STREAM;
    i64 stated = states ? max_i64(input->stream->duration, 0) : 0;
    if (strcmp(input->kind->reader, "flac") != 0 || (mixer->samples >= stated && !input->end_damaged))
        return 0;
    return error_set("%s: cut short or damaged: %lld whole samples of a FLAC sound that states %lld; copy it again",
                     input->origin, (long long)mixer->samples, (long long)stated);
}

static int mixer_open(struct mixer *mixer, const void *bytes, i64 count, const char *origin)
{
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (!kind || (kind->class != FILE_CONTAINER && kind->class != FILE_SOUND))
        return error_set("%s: expected a sound (WAV, FLAC, MP3, Ogg, AAC, AIFF) or a video with sound, found %s",
                         origin, file_describe(bytes, count));
    return input_open(&mixer->input, bytes, count, origin, kind) < 0 ||
                   input_select(&mixer->input, AVMEDIA_TYPE_AUDIO) < 0
               ? -1
               : 0;
}

static void mixer_close(struct mixer *mixer)
{
    input_close(&mixer->input);
    swr_free(&mixer->swr);
    memory_free(mixer->mono);
}

/* Resampling overshoots a little. */
static void clamp_from(struct sound *sound, i64 first)
{
    for (i64 i = first; i < sound->samples; i++)
        sound->values[i] = clamp_sample(sound->values[i]);
}

/* 1: more stands in mixer->out than before, or may after the next call. 0: the sound has ended, and was whole. */
static int mix_more(struct mixer *mixer)
{
    struct av_input *input = &mixer->input;
    i64 before = mixer->out->samples;
    int more = input_next(input);
    if (more < 0 || (more > 0 && input->frame->nb_samples > 0 && mix_frame(mixer) < 0))
        return -1;
    if (more == 0 &&
        (check_end(mixer) < 0 || input_check_damage(input) < 0 || (mixer->swr && append_samples(mixer, 0) < 0)))
        return -1;
    clamp_from(mixer->out, before);
    return more;
}

static int mix(struct mixer *mixer, i64 most_samples)
{
    const struct av_input *input = &mixer->input;
    int more = 1;
    while (more > 0 && !(most_samples && mixer->out->samples > most_samples))
        more = mix_more(mixer);
    if (more < 0 || input_check_damage(input) < 0)
        return -1;
    return mixer->out->samples ? 0 : error_set("%s: %s with no samples in it", input->origin, input->kind->name);
}

int sound_read(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz)
{
    return sound_read_most(out, bytes, count, origin, rate_hz, 0);
}

int sound_read_most(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz, i64 most_samples)
{
    *out = (struct sound){0};
    struct mixer mixer = {.out = out, .wanted_hz = rate_hz};
    int status = mixer_open(&mixer, bytes, count, origin);
    if (status == 0)
        status = mix(&mixer, most_samples);
    mixer_close(&mixer);
    if (status < 0)
        sound_release(out);
    return status;
}

/* ---- Streams ---- */

struct sound_stream {
    struct mixer mixer;
    struct sound held;
    i64 given; /* of the held samples */
    bool ended;
};

struct sound_stream *sound_stream_open(const void *bytes, i64 count, const char *origin, i64 rate_hz)
{
    struct sound_stream *stream = memory_alloc(sizeof *stream);
    *stream = (struct sound_stream){.mixer = {.wanted_hz = rate_hz}};
    stream->mixer.out = &stream->held;
    if (mixer_open(&stream->mixer, bytes, count, origin) == 0)
        return stream;
    sound_stream_close(stream);
    return NULL;
}

i64 sound_stream_read(struct sound_stream *stream, float *out, i64 most)
{
    struct sound *held = &stream->held;
    while (stream->given == held->samples && !stream->ended) {
        stream->given = held->samples = 0;
        int more = mix_more(&stream->mixer);
        if (more < 0)
            return -1;
        stream->ended = more == 0;
    }
    i64 taken = min_i64(most, held->samples - stream->given);
    if (taken > 0)
        memcpy(out, held->values + stream->given, (size_t)taken * sizeof *out);
    stream->given += taken;
    return taken;
}

void sound_stream_close(struct sound_stream *stream)
{
    if (!stream)
        return;
    mixer_close(&stream->mixer);
    sound_release(&stream->held);
    memory_free(stream);
}
