/* Memory estimate of a tokenizer's training: its own steps on the meta backend, on one synthetic
 * picture, clip or recording. */
#include "tokenizer_training/foresee.h"

#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/vision_step.h"
#include "train/fits.h"

#include <stdio.h>

static void add_needs(struct codec_needs *needs, const struct weights *weights, const struct tape *tape, i64 host_bytes)
{
    struct step_memory *m = &needs->memory;
    *m = (struct step_memory){.backend = device_held_bytes(tape->device)};
    step_memory_add_tape(m, tape);
    m->host = tape->host.peak_bytes + tape->staged.peak_bytes + host_bytes;
    step_memory_add_weights(m, weights);
    needs->parameters = weights_parameters(weights);
}

/* ---- Vision ---- */

/* The first still step among clips; -1: none. */
static i64 first_among(const struct vision_trainer *t)
{
    i64 end = t->still_steps + t->clip_steps;
    for (i64 step = t->still_steps; t->settings->still_share > 0 && step < end; step++)
        if (!vision_step_batch(t, step).clips)
            return step;
    return -1;
}

/* Runs a step; *flops: its flops, 0 if there is no such step. */
static int run_vision_step(double *flops, struct vision_trainer *t, i64 step)
{
    struct device *device = t->vision.device;
    struct vision_step_result result;
    double before = device->cost.flops;
    *flops = 0;
    if (step < 0 || step >= t->still_steps + t->clip_steps)
        return 0;
    int status = vision_step(&result, t, step);
    *flops = device->cost.flops - before;
    return status;
}

/* Runs one step of each kind and a second one on stills, which starts with
 * the tape of the first. */
static int run_vision(struct codec_needs *needs, struct vision_trainer *t)
{
    double first, stills, clips, among, share = t->settings->still_share;
    if (run_vision_step(&first, t, 0) || run_vision_step(&stills, t, 1) || run_vision_step(&clips, t, t->still_steps) ||
        run_vision_step(&among, t, first_among(t)))
        return -1;
    needs->steps = t->still_steps + t->clip_steps;
    needs->flops = first * (double)t->still_steps + (double)t->clip_steps * ((1 - share) * clips + share * among);
    return 0;
}

static int foresee_vision(struct codec_needs *needs, struct vision_trainer *t, struct device *meta, enum dtype dtype)
{
    const struct vision_settings *s = t->settings;
    struct vision_config config;
    int status = vision_stage_config(&config, s, t->media, t->clip_steps > 0);
    if (status)
        return status;
    i64 frames = max_i64(max_i64(s->batch, s->still_batch), t->clip_steps ? s->clip_batch * s->frames : 0);
    vision_trainer_open(t, meta, &config, dtype);
    status = run_vision(needs, t);
    add_needs(needs, &t->vision.weights, &t->tape, frames * s->size * s->size * 3);
    vision_trainer_close(t);
    return status;
}

int vision_foresee(struct codec_needs *needs, const struct vision_settings *s, struct device *meta, enum dtype dtype)
{
    u8 *white = memory_alloc(s->frames * s->size * s->size * 3);
    struct aspect_list square = {1, {{s->size, s->size}}};
    struct inner whole = {s->size, s->size};
    i64 frames = s->frames;
    struct vision_media media = {.request = {.shapes = {square, square}, .frames = s->frames},
                                 .still_count = 1,
                                 .clip_count = 1,
                                 .stills = &white,
                                 .clips = &white,
                                 .clip_frames = &frames,
                                 .still_inner = &whole,
                                 .clip_inner = &whole};
    struct vision_trainer trainer = {
        .settings = s, .media = &media, .still_steps = s->steps, .clip_steps = s->clip_steps};
    *needs = (struct codec_needs){.media_bytes = s->memory_mb << 20};
    int status = foresee_vision(needs, &trainer, meta, dtype);
    memory_free(white);
    return status;
}

/* ---- Audio ---- */

/* Adds the audio tokenizer's own arena, which holds tables of neighbours. */
static void add_own(struct step_memory *m, const struct audio_tokenizer *audio)
{
    m->activations += audio->arena.peak_bytes;
    m->rounding += arena_rounding_bytes(audio->device, &audio->arena);
}

/* Runs a step without codes, the first with codes (after k-means), and the next one. */
static int run_audio(struct codec_needs *needs, struct audio_trainer *t)
{
    const i64 steps[] = {0, t->start, t->start + 1};
    struct audio_result result;
    for (i64 i = 0; i < COUNT_OF(steps); i++)
        if (steps[i] < t->settings->steps && audio_step(&result, t, steps[i]))
            return -1;
    needs->steps = t->settings->steps;
    needs->flops = audio_step_flops(t) * (double)needs->steps;
    return 0;
}

int audio_foresee(struct codec_needs *needs, const struct audio_settings *s, struct device *meta, enum dtype dtype)
{
    int16_t silence[1] = {0};
    struct audio_clip clip = {.values = silence, .samples = COUNT_OF(silence)};
    struct audio_media media = {.clips = &clip, .count = 1, .samples = clip.samples};
    struct audio_trainer trainer = {.settings = s, .media = &media};
    *needs = (struct codec_needs){.media_bytes = s->memory_mb << 20};
    if (audio_config_check(&s->config))
        return -1;
    audio_trainer_open(&trainer, meta, dtype);
    int status = run_audio(needs, &trainer);
    add_needs(needs, &trainer.audio.weights, &trainer.tape,
              (trainer.frames * AUDIO_FRAME_SAMPLES + s->batch * trainer.audio.mel.bins) * 4);
    add_own(&needs->memory, &trainer.audio);
    audio_trainer_close(&trainer);
    return status;
}

/* ---- Settings that fit ---- */

typedef int foresee_fn(struct step_memory *out, const void *settings, i64 part, const struct stage *stage);
/* A tokenizer's settings and the estimate of a step with batches divided by `part`. */
struct codec_wanted {
    const void *settings;
    const struct stage *stage;
    foresee_fn *foresee;
    void (*name)(char *out, i64 bytes, const void *settings, i64 part);
    i64 most; /* largest divisor that changes a batch */
};

static i64 part_of(i64 batch, i64 part)
{
    return max_i64(1, batch / part);
}

static struct vision_settings vision_part(const struct vision_settings *s, i64 part)
{
    struct vision_settings less = *s;
    less.batch = part_of(s->batch, part);
    less.clip_batch = part_of(s->clip_batch, part);
    less.still_batch = part_of(s->still_batch, part);
    return less;
}

static int foresee_vision_part(struct step_memory *out, const void *settings, i64 part, const struct stage *stage)
{
    struct vision_settings less = vision_part(settings, part);
    struct codec_needs needs;
    struct device meta;
    device_open_meta(&meta);
    device_meta_gpu(&meta, stage->device->has_fp8);
    int status = vision_foresee(&needs, &less, &meta, stage->dtype);
    device_close(&meta);
    *out = needs.memory;
    return status;
}

static void name_vision_part(char *out, i64 bytes, const void *settings, i64 part)
{
    struct vision_settings less = vision_part(settings, part);
    int n = snprintf(out, (size_t)bytes, "batch=%lld", (long long)less.batch);
    if (less.clip_steps)
        snprintf(out + n, (size_t)(bytes - n), " clip_batch=%lld still_batch=%lld", (long long)less.clip_batch,
                 (long long)less.still_batch);
}

static int foresee_audio_part(struct step_memory *out, const void *settings, i64 part, const struct stage *stage)
{
    struct audio_settings less = *(const struct audio_settings *)settings;
    struct codec_needs needs;
    struct device meta;
    less.batch = part_of(less.batch, part);
    device_open_meta(&meta);
    device_meta_gpu(&meta, stage->device->has_fp8);
    int status = audio_foresee(&needs, &less, &meta, stage->dtype);
    device_close(&meta);
    *out = needs.memory;
    return status;
}

static void name_audio_part(char *out, i64 bytes, const void *settings, i64 part)
{
    snprintf(out, (size_t)bytes, "batch=%lld",
             (long long)part_of(((const struct audio_settings *)settings)->batch, part));
}

static void say_what_fits(struct text *out, const void *context, i64 left_bytes)
{
    const struct codec_wanted *w = context;
    struct step_memory m;
    char name[96];
    for (i64 part = 2; part < 2 * w->most; part *= 2) {
        w->name(name, sizeof name, w->settings, part);
        if (w->foresee(&m, w->settings, part, w->stage) == 0 && memory_offer(out, &m, left_bytes, "%s", name))
            return;
    }
    text_printf(out, "no smaller batch would do: make the tokenizer smaller, or what it takes at once");
}

static int check_memory(const struct codec_wanted *w)
{
    struct memory_wanted all = {.what = "a step", .say_what_fits = say_what_fits, .context = w};
    struct step_memory *m = &all.memory;
    if (device_left_bytes(w->stage->device) == INT64_MAX)
        return 0;
    if (w->foresee(m, w->settings, 1, w->stage))
        return -1;
    all.certain_bytes = m->copies + m->masters + m->moments + m->gradients;
    return memory_check(&all, w->stage->device);
}

int vision_check_memory(const struct vision_settings *s, const struct stage *stage)
{
    i64 most = max_i64(s->batch, s->clip_steps ? max_i64(s->clip_batch, s->still_batch) : 0);
    return check_memory(&(struct codec_wanted){s, stage, foresee_vision_part, name_vision_part, most});
}

int audio_check_memory(const struct audio_settings *s, const struct stage *stage)
{
    return check_memory(&(struct codec_wanted){s, stage, foresee_audio_part, name_audio_part, s->batch});
}
