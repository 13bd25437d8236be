/* Memory estimate of a tokenizer's training: its own steps on the meta backend, on one synthetic
 * picture, clip or recording. */
#include "tokenizer_training/memory_estimate.h"

#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/refiner_step.h"
#include "tokenizer_training/vision_step.h"

static void add_needs(struct tokenizer_needs *needs, const struct weights *weights, const struct tape *tape,
                      i64 host_bytes)
{
    struct step_memory *m = &needs->memory;
    *m = (struct step_memory){.backend = device_held_bytes(tape->device)};
    step_memory_add_tape(m, tape);
    m->host = tape->host.peak_bytes + tape->staged.peak_bytes + host_bytes;
    step_memory_add_weights(m, weights);
    needs->parameters = weights_parameters(weights);
}

static void add_semantics(struct tokenizer_needs *needs, const struct semantic *semantic)
{
    if (semantic->targets)
        step_memory_add_weights(&needs->memory, &semantic->weights);
}

static void add_discriminator(struct tokenizer_needs *needs, const struct discriminator *d)
{
    step_memory_add_tape(&needs->memory, &d->tape);
    step_memory_add_weights(&needs->memory, &d->weights);
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
static int run_kinds(struct tokenizer_needs *needs, struct vision_trainer *t)
{
    double first, stills, clips, among, share = t->settings->still_share;
    if (run_vision_step(&first, t, 0) || run_vision_step(&stills, t, 1) || run_vision_step(&clips, t, t->still_steps) ||
        run_vision_step(&among, t, first_among(t)))
        return -1;
    needs->steps = t->still_steps + t->clip_steps;
    needs->flops = first * (double)t->still_steps + (double)t->clip_steps * ((1 - share) * clips + share * among);
    return 0;
}

/* Runs the last step on stills and the last on clips, if the discriminator has begun by then. Adds what its
 * steps take more than others. */
static int run_discriminator(struct tokenizer_needs *needs, struct vision_trainer *t,
                             const struct vision_settings *without)
{
    const struct vision_settings *with = t->settings;
    i64 begin = vision_discriminator_begin(t), ends[] = {t->still_steps, t->still_steps + t->clip_steps}, before = 0;
    for (int i = 0; i < COUNT_OF(ends); before = ends[i++]) {
        double flops, plain;
        i64 count = ends[i] - max_i64(begin, before), step = ends[i] - 1;
        for (; step > max_i64(begin, before) && vision_step_batch(t, step).clips != (i > 0); step--) {
        }
        if (count <= 0)
            continue;
        t->settings = without;
        int status = run_vision_step(&plain, t, step);
        t->settings = with;
        if (status || run_vision_step(&flops, t, step))
            return -1;
        needs->flops += (double)count * (flops - plain);
    }
    return 0;
}

static int run_vision(struct tokenizer_needs *needs, struct vision_trainer *t)
{
    const struct vision_settings *own = t->settings;
    struct vision_settings without = *own;
    without.discriminator.weight = without.loss.of[VISION_FEATURES] = without.loss.of[VISION_GRAM] = 0;
    t->settings = &without;
    int status = run_kinds(needs, t);
    t->settings = own;
    return status == 0 && vision_has_discriminator(own) ? run_discriminator(needs, t, &without) : status;
}

static int estimate_vision(struct tokenizer_needs *needs, struct vision_trainer *t, struct device *meta,
                           enum dtype dtype)
{
    const struct vision_settings *s = t->settings;
    struct vision_config config;
    int status = vision_stage_config(&config, s, t->media, t->clip_steps > 0);
    if (status)
        return status;
    i64 frames = max_i64(max_i64(s->batch, s->still_batch), t->clip_steps ? s->clip_batch * s->frames : 0);
    vision_trainer_open(t, meta, &config, dtype);
    status = run_vision(needs, t);
    struct aspect shape = t->media->request.shapes[0].items[0];
    add_needs(needs, &t->vision.weights, &t->tape, frames * shape.height * shape.width * 3);
    if (vision_has_discriminator(s))
        add_discriminator(needs, &t->discriminator.common);
    add_semantics(needs, &t->semantic);
    vision_trainer_close(t);
    return status;
}

/* The shape with the most pixels. */
static int largest_shape(struct aspect_list *out, const struct vision_settings *s)
{
    struct aspect_list all;
    if (vision_stage_shapes(&all, s) < 0)
        return -1;
    *out = (struct aspect_list){1, {all.items[0]}};
    for (i64 i = 1; i < all.count; i++)
        if (all.items[i].height * all.items[i].width > out->items[0].height * out->items[0].width)
            out->items[0] = all.items[i];
    return 0;
}

static int vision_estimate(struct tokenizer_needs *needs, const struct vision_settings *s, struct device *meta,
                           enum dtype dtype)
{
    struct aspect_list largest;
    if (largest_shape(&largest, s) < 0)
        return -1;
    struct content_size whole = {largest.items[0].height, largest.items[0].width};
    u8 *white = memory_alloc(s->frames * whole.height * whole.width * 3);
    i64 frames = s->frames;
    struct vision_media media = {.request = {.shapes = {largest, largest}, .frames = s->frames},
                                 .still_count = 1,
                                 .clip_count = 1,
                                 .stills = &white,
                                 .clips = &white,
                                 .clip_frames = &frames,
                                 .still_inner = &whole,
                                 .clip_inner = &whole};
    struct semantic_targets targets = {0};
    struct vision_trainer trainer = {
        .settings = s, .media = &media, .still_steps = s->steps, .clip_steps = s->clip_steps};
    if (semantic_is_wanted(&s->semantic)) {
        semantic_targets_of_zeros(&targets, &s->semantic, media.still_count + media.clip_count);
        trainer.targets = &targets;
    }
    *needs = (struct tokenizer_needs){.media_bytes = s->memory_mb << 20};
    int status = estimate_vision(needs, &trainer, meta, dtype);
    semantic_targets_release(&targets);
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

/* Runs a step without codes, the first with codes (after k-means), and the next one; with a discriminator the last
 * one too. */
static int run_audio(struct tokenizer_needs *needs, struct audio_trainer *t)
{
    const i64 last = t->settings->steps - 1, steps[] = {0, t->start, t->start + 1, last};
    i64 count = COUNT_OF(steps) - !audio_has_discriminator(t->settings);
    struct audio_result result;
    for (i64 i = 0; i < count; i++)
        if (steps[i] <= last && audio_step(&result, t, steps[i]))
            return -1;
    needs->steps = t->settings->steps;
    i64 before = min_i64(audio_discriminator_begin(t), needs->steps);
    needs->flops =
        (double)before * audio_step_flops(t, 0) + (double)(needs->steps - before) * audio_step_flops(t, last);
    return 0;
}

static int audio_estimate(struct tokenizer_needs *needs, const struct audio_settings *s, struct device *meta,
                          enum dtype dtype)
{
    int16_t silence[1] = {0};
    struct audio_clip clip = {.values = silence, .samples = COUNT_OF(silence)};
    struct audio_media media = {.clips = &clip, .count = 1, .samples = clip.samples};
    struct semantic_targets targets = {0};
    struct audio_trainer trainer = {.settings = s, .media = &media};
    *needs = (struct tokenizer_needs){.media_bytes = s->memory_mb << 20};
    if (audio_config_check(&s->config) || audio_discriminator_check(s))
        return -1;
    if (semantic_is_wanted(&s->semantic)) {
        semantic_targets_of_zeros(&targets, &s->semantic, media.count);
        trainer.targets = &targets;
    }
    audio_trainer_open(&trainer, meta, dtype);
    int status = run_audio(needs, &trainer);
    add_needs(needs, &trainer.audio.weights, &trainer.tape,
              (trainer.frames * audio_frame_samples(s->config.rate_hz) + s->batch * trainer.audio.mel.bins) * 4);
    add_own(&needs->memory, &trainer.audio);
    if (audio_has_discriminator(s))
        add_discriminator(needs, &trainer.discriminator.common);
    add_semantics(needs, &trainer.semantic);
    audio_trainer_close(&trainer);
    semantic_targets_release(&targets);
    return status;
}

/* ---- Does it fit ---- */

int tokenizer_estimate(struct tokenizer_needs *needs, const struct setting *table, const void *settings,
                       struct device *meta, enum dtype dtype)
{
    return table == vision_stage_table  ? vision_estimate(needs, settings, meta, dtype)
           : table == audio_stage_table ? audio_estimate(needs, settings, meta, dtype)
                                        : refiner_estimate(needs, settings, meta, dtype);
}

struct codec_work {
    const struct setting *table;
    union {
        struct vision_settings vision;
        struct audio_settings audio;
    } settings;
    enum dtype dtype;
};

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct codec_work *w = context;
    struct tokenizer_needs needs = {0};
    int status = tokenizer_estimate(&needs, w->table, &w->settings, meta, w->dtype);
    step_memory_estimate(out, &needs.memory);
    return status;
}

int codec_check_memory(const struct setting *table, const void *settings, const struct stage *stage)
{
    static const struct reduction batch[] = {{"batch"}, {0}};
    static const struct reduction batches[] = {
        {"batch", .with_next = true}, {"clip_batch", .with_next = true}, {"still_batch"}, {0}};
    struct codec_work w = {.table = table, .dtype = stage->dtype};
    struct dry_run check = {"a step",    run,   &w,   "make the tokenizer smaller, or what it takes at once",
                            &w.settings, table, batch};
    if (table == audio_stage_table)
        w.settings.audio = *(const struct audio_settings *)settings;
    else
        w.settings.vision = *(const struct vision_settings *)settings;
    if (table == vision_stage_table && w.settings.vision.clip_steps)
        check.reductions = batches;
    return dry_run_check(&check, stage->device);
}
