/* Reads sounds: mixed to mono and resampled. libav decodes and resamples; wave.c reads what
 * libsndfile knows. */
#include "data/media/av_input.h"
#include "data/media/wave.h"
#include <libavutil/opt.h>
#include <libswresample/swresample.h>
#include <math.h>
#include <string.h>

/* Mixes the channels of a sound to mono and resamples it. */
struct av_sound_mixer {
    struct av_input input;
    struct wave_reader *wave; /* NULL: libav decodes */
    struct SwrContext *swr;   /* NULL if no resampling is needed */
    struct sound *out;
    bool whole; /* the result will hold the whole sound */
    i64 capacity, wanted_hz;
    i64 rate_hz, samples; /* source stream: its rate, its samples so far */
    float *mono;
    double *sum; /* over the channels */
    i64 mono_capacity;
};

/* Clamps to -1..1. Float files may hold anything; NaN becomes 0, silence. */
static inline double clamped(double value)
{
    double below = value < -1 ? -1 : 0, above = value < 1 ? value : 1;
    return value >= -1 ? above : below;
}

static void reserve_mono(struct av_sound_mixer *mixer, i64 samples)
{
    if (samples <= mixer->mono_capacity)
        return;
    memory_free(mixer->mono);
    memory_free(mixer->sum);
    mixer->mono = memory_alloc(samples * (i64)sizeof(float));
    mixer->sum = memory_alloc(samples * (i64)sizeof(double));
    mixer->mono_capacity = samples;
}

/* Adds all channels of samples of `type` into sum[], each at `stride`, and leaves the switch. */
#define MIX(type, value)                                                                                               \
    for (int c = 0; c < channels; c++) {                                                                               \
        const type *from = planar ? (const type *)frame->extended_data[c] : (const type *)frame->extended_data[0] + c; \
        if (stride == 1)                                                                                               \
            _Pragma("omp simd") for (i64 i = 0; i < count; i++) sum[i] += value(from[i]);                              \
        else if (stride == 2)                                                                                          \
            _Pragma("omp simd") for (i64 i = 0; i < count; i++) sum[i] += value(from[2 * i]);                          \
        else                                                                                                           \
            for (i64 i = 0; i < count; i++)                                                                            \
                sum[i] += value(from[i * stride]);                                                                     \
    }                                                                                                                  \
    break
#define OF_U8(x) (((x)-128) / 128.0)
#define OF_S16(x) ((x) / 32768.0)
#define OF_S32(x) ((x) / 2147483648.0)
#define OF_S64(x) ((double)(x) / 9223372036854775808.0)
#define OF_FLOAT(x) ((double)(x))

static void add_channels(double *sum, const AVFrame *frame)
{
    enum AVSampleFormat format = frame->format;
    const bool planar = av_sample_fmt_is_planar(format);
    const int channels = frame->ch_layout.nb_channels;
    const i64 count = frame->nb_samples, stride = planar ? 1 : channels;
    switch (av_get_packed_sample_fmt(format)) {
    case AV_SAMPLE_FMT_U8:
        MIX(u8, OF_U8);
    case AV_SAMPLE_FMT_S16:
        MIX(int16_t, OF_S16);
    case AV_SAMPLE_FMT_S32:
        MIX(i32, OF_S32);
    case AV_SAMPLE_FMT_S64:
        MIX(i64, OF_S64);
    case AV_SAMPLE_FMT_FLT:
        MIX(float, OF_FLOAT);
    case AV_SAMPLE_FMT_DBL:
        MIX(double, OF_FLOAT);
    default:
        break;
    }
}

/* Codecs that store float samples as they are. Those that lose something overshoot a little. */
static bool stores_floats(const struct av_input *input)
{
    static const enum AVCodecID codecs[] = {AV_CODEC_ID_PCM_F16LE, AV_CODEC_ID_PCM_F24LE, AV_CODEC_ID_PCM_F32LE,
                                            AV_CODEC_ID_PCM_F32BE, AV_CODEC_ID_PCM_F64LE, AV_CODEC_ID_PCM_F64BE,
                                            AV_CODEC_ID_WAVPACK};
    for (i64 i = 0; i < COUNT_OF(codecs); i++)
        if (input->codec->codec_id == codecs[i])
            return true;
    return false;
}

static int mix_to_mono(struct av_sound_mixer *mixer, const AVFrame *frame)
{
    const i64 samples = frame->nb_samples;
    const double channels = frame->ch_layout.nb_channels;
    reserve_mono(mixer, samples);
    double *sum = mixer->sum;
    float *mono = mixer->mono;
    memset(sum, 0, (size_t)samples * sizeof *sum);
    add_channels(sum, frame);
    double most = 0;
    for (i64 i = 0; i < samples && stores_floats(&mixer->input); i++)
        most = fmax(most, fabs(sum[i] / channels));
    if (most > 1)
        return error_set("%s: float samples up to %g; expected -1 to 1: scale it, or write it as a WAV file",
                         mixer->input.origin, most);
#pragma omp simd
    for (i64 i = 0; i < samples; i++)
        mono[i] = (float)clamped(sum[i] / channels);
    return 0;
}

static int reserve_samples(struct av_sound_mixer *mixer, i64 more)
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

/* Resamples and appends the mixer's mono samples. samples 0: flushes the resampler. */
static int append_samples(struct av_sound_mixer *mixer, i64 samples)
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

/* Opens the resampler, soxr in libswresample. It keeps 0.95 of the lower rate's band: at 16 kHz, 7.6
 * kHz lose nothing, 7.8 kHz lose 6 dB, and what lies above 8.05 kHz is 120 dB down. The bits depend
 * neither on how the samples are cut into calls nor on the threads. */
static int open_resampler(struct av_sound_mixer *mixer)
{
    enum { SOXR_BYTES = 16 << 20 };
    AVChannelLayout mono = AV_CHANNEL_LAYOUT_MONO;
    memory_free(memory_alloc(SOXR_BYTES)); /* soxr needs up to 3 MB and does not check its allocations */
    av_capture_log();
    int code = swr_alloc_set_opts2(&mixer->swr, &mono, AV_SAMPLE_FMT_FLT, (int)mixer->out->rate_hz, &mono,
                                   AV_SAMPLE_FMT_FLT, (int)mixer->rate_hz, 0, NULL);
    if (code < 0 || (code = av_opt_set(mixer->swr, "resampler", "soxr", 0)) < 0 ||
        (code = av_opt_set_double(mixer->swr, "precision", 20, 0)) < 0 ||
        (code = av_opt_set_double(mixer->swr, "cutoff", 0.95, 0)) < 0)
        return av_problem(mixer->input.origin, "resampling", code);
    if ((code = swr_init(mixer->swr)) >= 0)
        return 0;
    return strstr(swresample_configuration(), "libsoxr")
               ? av_problem(mixer->input.origin, "resampling", code)
               : error_set("%s: cannot be resampled from %lld to %lld samples a second: this libswresample is built "
                           "without libsoxr; install the one of Debian or Ubuntu",
                           mixer->input.origin, (long long)mixer->rate_hz, (long long)mixer->out->rate_hz);
}

static int choose_rate(struct av_sound_mixer *mixer, int rate_hz)
{
    const char *origin = mixer->input.origin;
    if (rate_hz < 1000 || rate_hz > 768000)
        return error_set("%s: a sound of %d samples a second; expected 1000 to 768000", origin, rate_hz);
    mixer->rate_hz = rate_hz;
    mixer->out->rate_hz = mixer->wanted_hz ? mixer->wanted_hz : rate_hz;
    return mixer->out->rate_hz == rate_hz ? 0 : open_resampler(mixer);
}

/* Reserves room for the whole sound by the file's stated length, which may be wrong. */
static int reserve_all(struct av_sound_mixer *mixer)
{
    static const double most_samples = 1 << 22;
    /* Far below 0 if the file states no duration. */
    double stated_s = mixer->wave ? (double)wave_samples(mixer->wave) / (double)mixer->rate_hz
                                  : (double)mixer->input.format->duration / AV_TIME_BASE;
    double samples = (stated_s + 0.5) * (double)mixer->out->rate_hz;
    return samples > 0 ? reserve_samples(mixer, (i64)(samples < most_samples ? samples : most_samples)) : 0;
}

static int check_rate(struct av_sound_mixer *mixer, int rate_hz)
{
    if (!mixer->rate_hz && (choose_rate(mixer, rate_hz) < 0 || (mixer->whole && reserve_all(mixer) < 0)))
        return -1;
    if (rate_hz != mixer->rate_hz)
        return error_set("%s: the sample rate changes from %lld to %d in the middle; convert it to one rate",
                         mixer->input.origin, (long long)mixer->rate_hz, rate_hz);
    return 0;
}

static int mix_frame(struct av_sound_mixer *mixer)
{
    const AVFrame *frame = mixer->input.frame;
    if (check_rate(mixer, frame->sample_rate) < 0)
        return -1;
    mixer->samples += frame->nb_samples;
    return mix_to_mono(mixer, frame) < 0 ? -1 : append_samples(mixer, frame->nb_samples);
}

/* Checks the end of a FLAC file. It states its number of samples, or 0 if written to a pipe;
 * nothing else marks its end. */
static int check_end(const struct av_sound_mixer *mixer)
{
    const struct av_input *input = &mixer->input;
    bool states = input->format->duration_estimation_method == AVFMT_DURATION_FROM_STREAM;
    i64 stated = states ? max_i64(input->stream->duration, 0) : 0;
    if (strcmp(input->kind->reader, "flac") != 0 || (mixer->samples >= stated && !input->end_damaged))
        return 0;
    return error_set("%s: cut short or damaged: %lld %s of a FLAC sound that states %lld; copy it again", input->origin,
                     (long long)mixer->samples, plural(mixer->samples, "whole sample", "whole samples"),
                     (long long)stated);
}

/* Refuses PCM whose samples do not fill their containers: libav reads them one behind the other. */
static int check_containers(const struct av_input *input)
{
    const AVCodecParameters *stream = input->stream->codecpar;
    int bits = av_get_exact_bits_per_sample(stream->codec_id), channels = stream->ch_layout.nb_channels;
    bool pcm = strncmp(avcodec_get_name(stream->codec_id), "pcm_", 4) == 0 && bits >= 8;
    if (!pcm || stream->block_align <= 0 || stream->block_align == channels * (bits / 8))
        return 0;
    return error_set(
        "%s: a sound of %d bits in frames of %d bytes for %d channels; expected frames of %d bytes: write it "
        "again",
        input->origin, bits, stream->block_align, channels, channels * (bits / 8));
}

static int mixer_open(struct av_sound_mixer *mixer, const void *bytes, i64 count, const char *origin)
{
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (!kind || (kind->class != FILE_CONTAINER && kind->class != FILE_SOUND))
        return error_set("%s: expected a sound (WAV, FLAC, MP3, Ogg, AAC, AIFF) or a video with sound, found %s",
                         origin, file_describe(bytes, count));
    mixer->input.origin = origin;
    mixer->input.kind = kind;
    int opened = wave_open(&mixer->wave, bytes, count, origin, kind);
    if (opened)
        return opened < 0 ? -1 : 0;
    return input_open(&mixer->input, bytes, count, origin, kind) < 0 ||
                   input_select(&mixer->input, AVMEDIA_TYPE_AUDIO) < 0 || check_containers(&mixer->input) < 0
               ? -1
               : 0;
}

static void mixer_close(struct av_sound_mixer *mixer)
{
    input_close(&mixer->input);
    wave_close(mixer->wave);
    swr_free(&mixer->swr);
    memory_free(mixer->mono);
    memory_free(mixer->sum);
}

/* Clamps samples from `first` on: resampling overshoots a little. */
static void clamp_from(struct sound *sound, i64 first)
{
    float *values = sound->values;
    const i64 end = sound->samples;
#pragma omp simd
    for (i64 i = first; i < end; i++)
        values[i] = (float)clamped(values[i]);
}

/* Appends the next samples of a file that libsndfile reads. Returns like mix_next. */
static int mix_wave(struct av_sound_mixer *mixer)
{
    enum { AT_ONCE = 4096 };
    reserve_mono(mixer, AT_ONCE);
    i64 got = wave_read(mixer->wave, mixer->mono, AT_ONCE);
    if (got < 0 || check_rate(mixer, wave_rate_hz(mixer->wave)) < 0 || (got > 0 && append_samples(mixer, got) < 0))
        return -1;
    return got > 0;
}

/* Decodes and appends one frame. 1: more may follow; 0: the sound has ended and was whole; -1: a
 * message. */
static int mix_next(struct av_sound_mixer *mixer)
{
    struct av_input *input = &mixer->input;
    int more = input_next(input);
    if (more < 0 || (more > 0 && input->frame->nb_samples > 0 && mix_frame(mixer) < 0))
        return -1;
    return more == 0 && (check_end(mixer) < 0 || input_check_damage(input) < 0) ? -1 : more;
}

static int mix_more(struct av_sound_mixer *mixer)
{
    i64 before = mixer->out->samples;
    int more = mixer->wave ? mix_wave(mixer) : mix_next(mixer);
    if (more == 0 && mixer->swr && append_samples(mixer, 0) < 0)
        return -1;
    clamp_from(mixer->out, before);
    return more;
}

static int mix(struct av_sound_mixer *mixer, i64 most_samples)
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
    struct av_sound_mixer mixer = {.out = out, .wanted_hz = rate_hz, .whole = most_samples == 0};
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
    struct av_sound_mixer mixer;
    struct sound held;
    i64 given; /* held samples already returned */
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

/* ---- Sound of a section of a film ---- */

/* Reads a section of a film's sound. Sample positions count from the section's beginning. */
struct film_section {
    struct av_sound_mixer mixer;
    /* zero_s: time of the first video frame; from_s: the section's begin, relative to zero_s. */
    double zero_s, from_s;
    double seconds;
    i64 at, given; /* at: end of the frame before; given: samples of the section so far */
    bool any;      /* a frame has been placed */
};

static i64 section_samples(const struct film_section *w)
{
    return llrint(w->seconds * (double)w->mixer.rate_hz);
}

/* Sample position of a frame by its timestamp. Timestamps are rounded: a frame within 20 ms of its
 * expected position follows the previous one without a gap. */
static i64 frame_begin(const struct film_section *w)
{
    const struct av_input *input = &w->mixer.input;
    i64 stamp = input->frame->best_effort_timestamp, rate_hz = w->mixer.rate_hz;
    double time_s = stamp == AV_NOPTS_VALUE ? 0 : (double)stamp * av_q2d(input->stream->time_base) - w->zero_s;
    i64 begin = llrint((time_s - w->from_s) * (double)rate_hz), near = rate_hz / 50;
    bool follows = w->any && (stamp == AV_NOPTS_VALUE || (begin - w->at < near && w->at - begin < near));
    return follows ? w->at : begin;
}

static int append_silence(struct film_section *w, i64 until)
{
    enum { AT_ONCE = 4096 };
    reserve_mono(&w->mixer, AT_ONCE);
    memset(w->mixer.mono, 0, AT_ONCE * sizeof(float));
    for (i64 n; w->given < until; w->given += n) {
        n = min_i64(AT_ONCE, until - w->given);
        if (append_samples(&w->mixer, n) < 0)
            return -1;
    }
    return 0;
}

/* Appends the part of the current frame that lies in the section. */
static int place_frame(struct film_section *w)
{
    struct av_sound_mixer *m = &w->mixer;
    if (check_rate(m, m->input.frame->sample_rate) < 0)
        return -1;
    i64 samples = m->input.frame->nb_samples, begin = frame_begin(w);
    i64 end = min_i64(begin + samples, section_samples(w)), first = max_i64(begin, w->given);
    w->at = begin + samples;
    w->any = true;
    if (w->at <= 0)
        /* Frames before the section are decoded only to reach it. */
        m->input.packets = m->input.damaged = 0;
    if (first >= end)
        return 0;
    if (append_silence(w, first) < 0 || mix_to_mono(m, m->input.frame) < 0)
        return -1;
    memmove(m->mono, m->mono + first - begin, (size_t)(end - first) * sizeof(float));
    w->given = end;
    return append_samples(m, end - first);
}

/* Seeks to `before_s` before the section, by the video's index if there is one; 0: to the film's
 * beginning. */
static int seek_before(struct film_section *w, const AVStream *video, double before_s)
{
    struct av_input *input = &w->mixer.input;
    double wanted_s = w->zero_s + w->from_s - before_s;
    const AVStream *by = video ? video : input->stream;
    i64 stamp = before_s > 0 ? (i64)(wanted_s / av_q2d(by->time_base)) : by->start_time;
    if (input_seek(input, by->index, stamp) < 0)
        return before_s > 0 ? 0 : error_set("%s: %s that does not support seeking", input->origin, input->kind->name);
    avcodec_flush_buffers(input->codec);
    input->draining = false;
    return 0;
}

static double frame_time_s(const struct av_input *input)
{
    i64 stamp = input->frame->best_effort_timestamp;
    return stamp == AV_NOPTS_VALUE ? -INFINITY : (double)stamp * av_q2d(input->stream->time_base);
}

/* Decodes the first frame at or a little before the section; decoders begin with incomplete frames.
 * If a seek by video frames lands behind the section, it seeks further back. Returns input_next's
 * result. */
static int first_frame(struct film_section *w, const AVStream *video)
{
    static const double before_s[] = {0.5, 4, 30, 0};
    struct av_input *input = &w->mixer.input;
    double latest_s = w->zero_s + w->from_s - 0.2;
    int more = 0;
    if (w->from_s < 1 || input_jumps(input, input->stream->index, NULL))
        return input_next(input);
    for (i64 i = 0; i < COUNT_OF(before_s); i++) {
        if (w->from_s <= before_s[i])
            continue;
        if (seek_before(w, video, before_s[i]) < 0)
            return -1;
        more = input_next(input);
        if (more < 0 || (more > 0 && frame_time_s(input) <= latest_s))
            return more;
    }
    return more;
}

static int mix_section(struct film_section *w, const AVStream *video)
{
    struct av_sound_mixer *m = &w->mixer;
    int more = first_frame(w, video);
    while (more > 0) {
        if (m->input.frame->nb_samples > 0 && place_frame(w) < 0)
            return -1;
        if (w->any && w->at >= section_samples(w))
            break;
        more = input_next(&m->input);
    }
    if (more < 0 || input_check_damage(&m->input) < 0 || (w->given && m->swr && append_samples(m, 0) < 0))
        return -1;
    m->out->samples = min_i64(m->out->samples, llrint(w->seconds * (double)m->out->rate_hz));
    clamp_from(m->out, 0);
    return 0;
}

/* 1: opened, with sound; 0: no sound; -1: a message. */
static int open_film(struct av_input *input, const void *bytes, i64 count, const char *origin)
{
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (!kind || kind->class != FILE_CONTAINER)
        return 0;
    if (input_open(input, bytes, count, origin, kind) < 0)
        return -1;
    return input_best_stream(input, AVMEDIA_TYPE_AUDIO) != NULL;
}

int film_has_sound(const void *bytes, i64 count, const char *origin)
{
    struct av_input input = {0};
    int has = open_film(&input, bytes, count, origin);
    input_close(&input);
    return has;
}

static int read_section(struct film_section *w, const void *bytes, i64 count, const char *origin)
{
    struct av_input *input = &w->mixer.input;
    int has = open_film(input, bytes, count, origin);
    if (has <= 0)
        return has;
    const AVStream *video = input_best_stream(input, AVMEDIA_TYPE_VIDEO);
    if (input_select(input, AVMEDIA_TYPE_AUDIO) < 0 || check_containers(input) < 0)
        return -1;
    const AVStream *first = video ? video : input->stream;
    w->zero_s = first->start_time == AV_NOPTS_VALUE ? 0 : (double)first->start_time * av_q2d(first->time_base);
    return mix_section(w, video);
}

int film_sound_read(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz, double from_s,
                    double seconds)
{
    *out = (struct sound){0};
    struct film_section section = {.mixer = {.out = out, .wanted_hz = rate_hz}, .from_s = from_s, .seconds = seconds};
    int status = read_section(&section, bytes, count, origin);
    mixer_close(&section.mixer);
    if (status < 0 || out->samples == 0)
        sound_release(out);
    return status;
}
