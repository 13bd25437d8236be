/* Recordings of the audio tokenizer: decoded once, kept as 16-bit samples; crops are
 * drawn by random keys. */
#include "tokenizer_training/audio_step.h"
#include "data/media/media.h"

#include <math.h>
#include <string.h>

/* ---- reading ---- */

static int decode(struct audio_clip *clip, const struct file_view *file)
{
    struct sound sound;
    if (sound_read(&sound, file->data, file->bytes, clip->path, clip->rate_hz ? clip->rate_hz : AUDIO_RATE_HZ))
        return -1;
    clip->samples = sound.samples;
    clip->ends_early = sound_ends_early(file->data, file->bytes);
    clip->values = memory_alloc(sound.samples * 2);
    for (i64 i = 0; i < sound.samples; i++)
        clip->values[i] = (int16_t)lrintf(fminf(fmaxf(sound.values[i], -1), 1) * 32767);
    sound_release(&sound);
    return 0;
}

static int read_clip(struct audio_clip *clip)
{
    struct medium_view view;
    i64 samples = clip->samples;
    if (medium_open(&view, &clip->place))
        return -1;
    int status = decode(clip, &view.file);
    medium_close(&view);
    if (status == 0 && clip->samples != samples) {
        memory_free(clip->values);
        return error_set("%s: its length has changed since it was first read", clip->path);
    }
    return status;
}

static int read_medium(void *context, void *content, const struct medium *medium, const struct file_view *file)
{
    struct audio_clip *clip = content;
    const struct audio_media *media = context;
    clip->path = medium->path;
    clip->rate_hz = media->request.rate_hz ? media->request.rate_hz : AUDIO_RATE_HZ;
    int has = medium->kind == MODALITY_VIDEO ? film_has_sound(file->data, file->bytes, medium->path) : 1;
    return has > 0 ? decode(clip, file) : has; /* a clip without sound has no samples */
}

/* Grows a list by one element; its capacity is the next power of two. */
static void *grown(void *list, i64 count, i64 size)
{
    return count & (count - 1) ? list : memory_resize(list, count * size, max_i64(1, 2 * count) * size);
}

static void release_content(void *content)
{
    memory_free(((struct audio_clip *)content)->values);
}

/* Keeps the samples within memory_mb. Beyond it, a medium that cannot be read again individually
 * goes to a window, or stays in memory if there is none. */
static void place_clip(struct audio_media *media, struct audio_clip *clip, const struct medium *medium)
{
    i64 bytes = clip->samples * 2;
    bool beyond = media->bytes + bytes > media->request.memory_mb << 20;
    if (!beyond || (!clip->place.path && !media->buffer)) {
        media->bytes += bytes;
        return;
    }
    if (!clip->place.path) {
        clip->buffer = media->buffer;
        clip->place.at = media_buffer_add(media->buffer, medium->number, bytes);
        media->streamed = grown(media->streamed, clip->place.at, 8);
        media->streamed[clip->place.at] = media->count;
    }
    memory_free(clip->values);
    clip->values = NULL;
}

static void take_medium(void *context, void *content, struct medium *medium)
{
    struct audio_media *media = context;
    struct audio_clip *clip = content;
    i64 n = media->count, size = (i64)sizeof *clip;
    if (clip->samples == 0) {
        media->mute++;
        return;
    }
    media->early += clip->ends_early;
    media->brief += clip->samples < audio_frame_samples(clip->rate_hz);
    clip->place = medium->place;
    place_clip(media, clip, medium);
    media->samples += clip->samples;
    clip->text = medium->text;
    clip->speaker = medium->speaker;
    media->clips = grown(media->clips, n, size);
    media->clips[media->count++] = *clip;
    medium->path = medium->place.path = medium->text = medium->speaker = NULL;
}

int audio_media_load(struct audio_media *media, const struct media_request *from,
                     const struct audio_media_request *request)
{
    const struct media_buffer_kind kind = {sizeof(struct audio_clip), read_medium, release_content, media};
    struct media_reader reader = {.what = "recordings",
                                  .bad_share = request->bad_share,
                                  .content_bytes = sizeof(struct audio_clip),
                                  .read = read_medium,
                                  .take = take_medium,
                                  .context = media,
                                  .hashes = &media->hashes};
    struct media_request all = *from;
    all.kinds |= 1 << MODALITY_AUDIO;
    *media = (struct audio_media){.request = *request};
    if (request->shuffle_buffer > 0)
        media->buffer = media_buffer_open(&all, &kind, (i64)(request->shuffle_buffer * (1 << 20)));
    int status = media_read(&reader, &all);
    if (media->mute)
        log_info("%s: %lld %s left out", from->data, (long long)media->mute,
                 plural(media->mute, "clip without a sound is", "clips without a sound are"));
    if (media->brief && from->says)
        log_warn("%s: %lld %s shorter than a frame of 80 ms, and %s filled with silence: leave such sounds out",
                 from->data, (long long)media->brief, plural(media->brief, "recording is", "recordings are"),
                 plural(media->brief, "is", "are"));
    if (media->early)
        log_warn("%s: %lld %s", from->data, (long long)media->early,
                 plural(media->early, "sound ends before its header says: it is used as far as it goes; copy it again",
                        "sounds end before their header says: they are used as far as they go; copy them again"));
    if (status)
        audio_media_release(media);
    return status;
}

static void clip_free(struct audio_clip *clip)
{
    memory_free(clip->path);
    memory_free(clip->place.path);
    memory_free(clip->text);
    memory_free(clip->speaker);
    memory_free(clip->values);
}

void audio_media_release(struct audio_media *media)
{
    for (i64 i = 0; i < media->count; i++)
        clip_free(&media->clips[i]);
    memory_free(media->clips);
    memory_free(media->streamed);
    hash_list_release(&media->hashes);
    media_buffer_close(media->buffer);
    *media = (struct audio_media){0};
}

static int show_clip(struct audio_clip *out, const struct audio_clip *clip)
{
    const struct audio_clip *shown = media_buffer_get(clip->buffer, clip->place.at);
    if (!shown)
        return -1;
    out->values = shown->values;
    return shown->samples == clip->samples
               ? 0
               : error_set("%s: its length has changed since it was first read", clip->path);
}

/* The clip with its samples in memory. *own: the caller must free them. */
static int need_values(struct audio_clip *out, const struct audio_clip *clip, bool *own)
{
    *out = *clip;
    *own = clip->values == NULL && !clip->buffer;
    return *own ? read_clip(out) : clip->buffer ? show_clip(out, clip) : 0;
}

float *audio_clip_samples(const struct audio_clip *clip, i64 *frames)
{
    struct audio_clip held;
    bool own;
    if (need_values(&held, clip, &own))
        return NULL;
    *frames = audio_frames(clip->rate_hz, held.samples);
    float *out = memory_alloc(*frames * audio_frame_samples(clip->rate_hz) * 4);
    for (i64 i = 0; i < held.samples; i++)
        out[i] = (float)held.values[i] / 32767;
    if (own)
        memory_free(held.values);
    return out;
}

/* ---- crops ---- */

enum draw { DRAW_USED, DRAW_SPEED, DRAW_GAIN, DRAW_NOISE, DRAW_CUT, DRAW_EQUALISER }; /* index of an item's draws */

struct audio_data_drawn {
    const struct audio_draw *draw;
    u32 item;
};

static double uniform(const struct audio_data_drawn *d, enum draw which, u32 index, double low, double high)
{
    struct rng_key key = {d->draw->seed, RNG_AUGMENT};
    return low + (high - low) * rng_uniform(key, (u32)d->draw->step, d->item, which, index);
}

static double normal(const struct audio_data_drawn *d, enum draw which, u32 index)
{
    return rng_normal((struct rng_key){d->draw->seed, RNG_AUGMENT}, (u32)d->draw->step, d->item, which, index);
}

static float value_at(const struct audio_clip *clip, i64 at)
{
    return at >= 0 && at < clip->samples ? (float)clip->values[at] / 32767 : 0;
}

/* Samples at begin, begin + speed, ..., by cubic interpolation of the 4 neighbours
 * (Catmull & Rom 1974). */
static void copy_resampled(float *out, i64 n, const struct audio_clip *clip, double begin, double speed)
{
    for (i64 i = 0; i < n; i++) {
        double at = begin + speed * (double)i;
        i64 left = (i64)floor(at);
        float t = (float)(at - (double)left), a = value_at(clip, left - 1), b = value_at(clip, left);
        float c = value_at(clip, left + 1), d = value_at(clip, left + 2);
        out[i] = b + 0.5f * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
    }
}

static void copy_plain(float *out, i64 n, const struct audio_clip *clip, i64 begin)
{
    for (i64 i = 0; i < n; i++)
        out[i] = value_at(clip, begin + i);
}

static void add_noise(float *out, i64 n, const struct audio_data_drawn *d, float size)
{
    struct rng_key key = {d->draw->seed, RNG_AUGMENT};
    for (i64 i = 0; i < n; i += 4) {
        u32 words[4];
        rng_draw(words, key, (u32)d->draw->step, d->item, DRAW_NOISE, 1 + (u32)(i / 4));
        for (i64 j = 0; j < 4 && i + j < n; j++)
            /* sqrt(3) * uniform -1..1: std 1 */
            out[i + j] += size * ((float)(words[j] >> 8) * 0x1p-23f - 1) * 1.7320508f;
    }
}

static void draw_response(float *response, i64 bins, const struct audio_data_drawn *d)
{
    static const double pi = 3.14159265358979323846;
    double height[4], phase[4], cut = (double)bins;
    for (u32 j = 0; j < 4; j++) {
        height[j] = 0.25 * normal(d, DRAW_EQUALISER, j);
        phase[j] = uniform(d, DRAW_EQUALISER, 4 + j, 0, 2 * pi);
    }
    if (uniform(d, DRAW_CUT, 0, 0, 1) < 1.0 / 3)
        cut = uniform(d, DRAW_CUT, 1, 0.4, 0.9) * (double)bins;
    for (i64 k = 0; k < bins; k++) {
        double neper = 0, above = fmax(0, (double)k - cut);
        for (int j = 0; j < 4; j++)
            neper += height[j] * cos(pi * (j + 1) * (double)k / (double)bins + phase[j]);
        response[k] = (float)exp(neper - above); /* 8.7 dB of attenuation per bin above the edge */
    }
}

static i64 draw_begin(const struct audio_data_drawn *d, const struct audio_clip *clip, i64 span)
{
    struct rng_key key = {d->draw->seed, RNG_CROP};
    i64 spare = clip->samples - span,
        place = rng_below(key, (spare < 0 ? -spare : spare) + 1, (u32)d->draw->step, d->item, 1, 0);
    return spare < 0 ? -place : place;
}

static void draw_augmented(float *out, float *response, const struct audio_data_drawn *d, const struct audio_clip *clip)
{
    i64 n = d->draw->samples;
    double speed = uniform(d, DRAW_SPEED, 0, 0, 1) < 2.0 / 3 ? uniform(d, DRAW_SPEED, 1, 0.85, 1.2) : 1;
    float gain = (float)exp(0.3 * normal(d, DRAW_GAIN, 0));
    copy_resampled(out, n, clip, (double)draw_begin(d, clip, (i64)((double)n * speed)), speed);
    for (i64 i = 0; i < n; i++)
        out[i] *= gain;
    add_noise(out, n, d, (float)uniform(d, DRAW_NOISE, 0, 0, 0.002));
    draw_response(response, d->draw->bins, d);
}

/* Draws one of all recordings. If it is in a window, draws again among the window whose turn it is.
 * Windows take turns in archive order, each for as many draws on average as it has recordings. */
static const struct audio_clip *drawn_clip(const struct audio_media *media, const struct audio_draw *draw, i64 item)
{
    struct rng_key key = {draw->seed, RNG_CROP};
    const struct audio_clip *clip = &media->clips[rng_below(key, media->count, (u32)draw->step, (u32)item, 0, 0)];
    if (!clip->buffer)
        return clip;
    i64 streamed = media_buffer_count(clip->buffer);
    double turns = ((double)draw->step * (double)draw->n + (double)item) / (double)media->count;
    i64 at = media_buffer_window_of(clip->buffer, (i64)((turns - floor(turns)) * (double)streamed));
    i64 begin = media_buffer_window_begin(clip->buffer, at),
        n = media_buffer_window_begin(clip->buffer, at + 1) - begin;
    return &media->clips[media->streamed[begin + rng_below(key, n, (u32)draw->step, (u32)item, 1, 0)]];
}

struct crops_job {
    float *samples, *response;
    const struct audio_draw *draw;
    struct audio_clip *clips; /* [n] clips with their samples */
    bool *own;                /* [n] true: free the samples */
};

static void run_crop(void *context, i64 i, int worker)
{
    const struct crops_job *job = context;
    const struct audio_draw *draw = job->draw;
    struct audio_data_drawn d = {draw, (u32)i};
    float *samples = job->samples + i * draw->samples, *response = job->response + i * draw->bins;
    (void)worker;
    if (uniform(&d, DRAW_USED, 0, 0, 1) < draw->augment) {
        draw_augmented(samples, response, &d, &job->clips[i]);
        return;
    }
    copy_plain(samples, draw->samples, &job->clips[i], draw_begin(&d, &job->clips[i], draw->samples));
    for (i64 k = 0; k < draw->bins; k++)
        response[k] = 1;
}

/* Holds the samples during the draw. A window is not thread-safe and moves on, so its samples are
 * copied before the workers start. */
static int hold_values(struct audio_clip *out, const struct audio_clip *clip, bool *own)
{
    if (need_values(out, clip, own))
        return -1;
    if (!*own && clip->buffer) {
        const int16_t *shown = out->values;
        out->values = memory_alloc(out->samples * 2);
        memcpy(out->values, shown, (size_t)out->samples * 2);
        *own = true;
    }
    return 0;
}

int audio_media_draw(float *samples, float *response, const struct audio_media *media, const struct audio_draw *draw)
{
    struct crops_job job = {samples, response, draw, memory_alloc(draw->n * (i64)sizeof *job.clips),
                            memory_alloc(draw->n * (i64)sizeof *job.own)};
    i64 held = 0;
    while (held < draw->n && hold_values(&job.clips[held], drawn_clip(media, draw, held), &job.own[held]) == 0)
        held++;
    for (i64 i = 0; i < draw->n && draw->drawn; i++)
        draw->drawn[i] = (i32)(drawn_clip(media, draw, i) - media->clips);
    if (held == draw->n)
        workers_run(draw->n, run_crop, &job);
    for (i64 i = 0; i < held; i++)
        if (job.own[i])
            memory_free(job.clips[i].values);
    memory_free(job.clips);
    memory_free(job.own);
    return held == draw->n ? 0 : -1;
}
