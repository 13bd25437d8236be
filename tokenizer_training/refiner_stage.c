#include "tokenizer_training/refiner_step.h"

#include "kernels/device/dry_run.h"
#include "tokenizer_training/memory_estimate.h"
#include "data/sources/media_list.h"
#include "train/events.h"

#include <math.h>
#include <string.h>

#define ROW(member, ...) SETTING(struct refiner_settings, member, __VA_ARGS__)
const struct setting refiner_stage_table[] = {
    ROW(data, "data", REFERENCE, NULL, 0, 0, NULL,
        "folder of images and clips, as for `prepare`, at twice the tokenizer's size or larger; its validation split "
        "is held out"),
    ROW(vision, "vision", REFERENCE, NULL, 0, 0, NULL, "vision tokenizer whose decoded pictures it refines"),
    SPLIT_ROWS(struct refiner_settings),
    ROW(steps, "steps", INTEGER, "2000", 1, 1e9, NULL, "training steps"),
    ROW(batch, "batch", INTEGER, "8", 1, 65536, NULL, "pictures, or frames of clips, per step"),
    ROW(clip_share, "clip_share", NUMBER, "0.25", 0, 1, NULL, "share of the steps on frames of clips"),
    ROW(channels, "channels", INTEGERS, "[32, 64, 128]", 1, 4096, NULL,
        "network width at 1/2, 1/4 and 1/8 of the resolution that is made"),
    ROW(blocks, "blocks", INTEGER, "1", 1, VISION_BLOCKS_MOST / 2, NULL,
        "residual blocks on each side of the two finer resolutions; twice as many at the coarsest"),
    ROW(augment, "augment", NUMBER, "0.8", 0, 1, NULL, "share of items randomly flipped and shifted by whole pixels"),
    ROW(noise, "noise", NUMBER, "0.2", 1e-3, 4, NULL,
        "standard deviation of the noise on the enlarged picture that the flow begins with, pixels in -1..1"),
    ROW(degraded, "degraded", NUMBER, "0.5", 0, 1, NULL,
        "share of decoded pictures that noise and blur of a random strength degrade, of which the network is told"),
    ROW(sampling_steps, "sampling_steps", INTEGER, "8", 1, REFINER_STEPS_MOST, NULL, "steps of sampling"),
    ROW(temperature, "temperature", NUMBER, "0.6", 0, 4, NULL, "share of the noise that sampling begins with"),
    PICTURE_ROWS(struct refiner_settings),
    ROW(memory_mb, "memory_mb", INTEGER, "4096", 0, 1e9, NULL,
        "MiB of decoded media kept in memory; others are decoded again when drawn, except from packed archives and "
        "tables"),
    SHUFFLE_ROW(struct refiner_settings),
    ROW(bad_share, "bad_share", NUMBER, "0.05", 0, 1, NULL, "maximum share of unreadable media"),
    TRAINING_ROWS(struct refiner_settings, "1000"),
    OPTIMIZER_ROWS(struct refiner_settings, "2e-3", "0.95", "0"),
    {0}};

/* ---- configuration ---- */

/* All but the sizes. */
static int begin_config(struct refiner_config *out, const struct refiner_settings *s)
{
    if (s->channels.count != REFINER_LEVELS)
        return error_usage("channels is a list of %d", REFINER_LEVELS);
    *out = (struct refiner_config){
        .blocks = s->blocks, .noise = s->noise, .temperature = s->temperature, .steps = s->sampling_steps};
    for (i64 i = 0; i < REFINER_LEVELS; i++)
        out->channels[i] = s->channels.values[i];
    return 0;
}

int refiner_check_settings(const void *settings)
{
    const struct refiner_settings *s = settings;
    struct refiner_config config;
    struct picture_rules rules;
    return source_columns_check(&s->columns) || begin_config(&config, s) || picture_rules_read(&rules, &s->pictures) ||
                   lr_check(&s->optimizer, s->steps, "steps")
               ? -1
               : 0;
}

/* Sizes of the tokenizer's pictures and clips, each once. */
static int add_sizes(struct refiner_config *out, const struct vision_config *vision)
{
    for (i64 i = 0; i < vision->shape_count; i++) {
        const struct vision_shape *s = &vision->shapes[i];
        bool known = false;
        for (i64 k = 0; k < out->size_count; k++)
            known |= out->sizes[k].height == s->height && out->sizes[k].width == s->width;
        if (!known)
            out->sizes[out->size_count++] = (struct refiner_size){s->height, s->width};
    }
    return refiner_config_check(out);
}

/* ---- media ---- */

/* Media get twice the shapes of the tokenizer; clips those of stills if it has none of clips. */
static int request_media(struct vision_media_request *out, const struct refiner_settings *s,
                         const struct vision_config *vision)
{
    *out = (struct vision_media_request){
        .frames = 1, .bad_share = s->bad_share, .memory_mb = s->memory_mb, .shuffle_buffer = s->shuffle_buffer};
    for (i64 i = 0; i < vision->shape_count; i++) {
        const struct vision_shape *shape = &vision->shapes[i];
        struct aspect_list *list = &out->shapes[shape->frames > 1];
        if (list->count == ASPECT_LIST_MOST)
            return error_set("the tokenizer has more than %d shapes of a kind", ASPECT_LIST_MOST);
        list->items[list->count++] =
            (struct aspect){REFINER_FACTOR * shape->height, REFINER_FACTOR * shape->width, shape->area};
        out->crop = shape->crop;
        out->frames = max_i64(out->frames, shape->frames);
        out->rate_hz = fmax(out->rate_hz, shape->rate_hz);
    }
    if (out->shapes[0].count == 0)
        return error_set("%s: a tokenizer without a shape of stills", s->vision);
    if (out->shapes[1].count == 0)
        out->shapes[1] = out->shapes[0];
    return picture_rules_read(&out->rules, &s->pictures);
}

static int load_media(struct vision_media *train, struct vision_media *held_out, const struct refiner_settings *s,
                      const struct vision_config *vision, u64 seed)
{
    struct media_request from = {s->data, SPLIT_TRAIN, seed, s->validation, s->test, &s->columns};
    struct vision_media_request request;
    if (request_media(&request, s, vision))
        return -1;
    int status = vision_media_load(train, &from, &request);
    if (status == 0 && train->still_count == 0 && (request.frames == 1 || train->clip_count == 0))
        status = error_set("%s: no pictures%s to train with", s->data, request.frames > 1 ? " and no clips" : "");
    if (status)
        return status;
    if (train->small_count)
        log_warn("%s: %lld of %lld %s smaller than twice the tokenizer's, and enlarged: a refiner learns no details "
                 "there",
                 s->data, (long long)train->small_count, (long long)train->still_count,
                 plural(train->still_count, "picture is", "pictures are"));
    from.split = SPLIT_VALIDATION;
    status = vision_media_load(held_out, &from, &request);
    if (status == 0 && held_out->still_count + held_out->clip_count < HELD_OUT_LEAST)
        log_warn("%s: %lld held-out pictures and clips are fewer than %d: figures of new media say little", s->data,
                 (long long)(held_out->still_count + held_out->clip_count), HELD_OUT_LEAST);
    if (status == 0)
        held_out->trained_on = media_in_common(s->data, &held_out->hashes, &train->hashes);
    return status;
}

/* ---- running ---- */

struct refiner_run {
    struct refiner_trainer trainer;
    double flops;
};

static int run_step(void *context, i64 step, struct training_step *said)
{
    struct refiner_run *run = context;
    struct refiner_step_result y;
    if (refiner_step(&y, &run->trainer, step))
        return -1;
    metrics_put(said->metrics, "loss", y.loss);
    said->optimizer = y.optimizer;
    said->count = (double)run->trainer.settings->batch;
    said->flops = run->flops;
    buffer_printf(&said->note, "loss %.4f", y.loss);
    return 0;
}

static int save(void *context, const char *folder)
{
    const struct refiner_run *run = context;
    return refiner_save(&run->trainer.refiner, folder);
}

static int train(struct refiner_run *run, const struct stage *stage, const struct vision_media *held_out)
{
    struct refiner_trainer *t = &run->trainer;
    struct training training = {.stage = stage,
                                .settings = &t->settings->training,
                                .steps = t->settings->steps,
                                .unit = "pictures",
                                .weights = &t->refiner.weights,
                                .context = run,
                                .step = run_step,
                                .save = save};
    run->flops = refiner_step_flops(t);
    log_info("%s: %lld %s, %lld %s, %.1f MB; %.2f M parameters, %.1f MB; %.2f GFLOP a step", stage->name,
             (long long)t->media->still_count, plural(t->media->still_count, "picture", "pictures"),
             (long long)t->media->clip_count, plural(t->media->clip_count, "clip", "clips"),
             (double)t->media->bytes * 1e-6, (double)weights_parameters(&t->refiner.weights) * 1e-6,
             (double)weights_bytes(&t->refiner.weights) * 1e-6, run->flops * 1e-9);
    weights_init(&t->refiner.weights, stage->seed);
    int status = training_run(&training);
    if (status == 0)
        status = refiner_report(t, held_out, stage->out);
    return status ? status : events_add_folder(stage->out, "samples", training.steps);
}

/* ---- does it fit ---- */

/* Pictures, enlarged ones, rows and velocities of a step. */
static i64 step_host_bytes(i64 n, struct aspect size)
{
    i64 values = n * size.height * size.width * 3;
    return values * (2 + 4) + values / REFINER_VALUES * REFINER_INPUTS * 4;
}

static i64 tape_host_bytes(const struct tape *tape)
{
    return tape->host.peak_bytes + tape->staged.peak_bytes;
}

/* Two steps on a white still. The second has the tape of the first, and its flops count for all. */
static int estimate(struct tokenizer_needs *needs, const struct refiner_settings *s, const struct vision_config *of,
                    struct device *meta, enum dtype dtype)
{
    struct vision vision;
    struct vision_media media = {.still_count = 1};
    struct refiner_trainer t = {.settings = s, .media = &media, .vision = &vision};
    struct refiner_config config;
    struct refiner_step_result result;
    *needs = (struct tokenizer_needs){.media_bytes = s->memory_mb << 20, .steps = s->steps};
    if (begin_config(&config, s) || add_sizes(&config, of) || request_media(&media.request, s, of))
        return -1;
    struct aspect size = media.request.shapes[0].items[0];
    u8 *white = memory_alloc(size.height * size.width * 3);
    media.stills = &white;
    vision_open(&vision, meta, of, dtype, false);
    refiner_trainer_open(&t, &config, dtype);
    int status = refiner_step(&result, &t, 0);
    double before = meta->cost.flops;
    if (status == 0)
        status = refiner_step(&result, &t, 1);
    needs->flops = (meta->cost.flops - before) * (double)s->steps;
    needs->parameters = weights_parameters(&t.refiner.weights);
    step_memory_add_tape(&needs->memory, &t.tape);
    step_memory_add_weights(&needs->memory, &t.refiner.weights);
    step_memory_add_tape(&needs->memory, &vision.tape);
    step_memory_add_weights(&needs->memory, &vision.weights);
    needs->memory.backend = device_held_bytes(meta);
    needs->memory.host = tape_host_bytes(&t.tape) + tape_host_bytes(&vision.tape) + step_host_bytes(s->batch, size);
    refiner_trainer_close(&t);
    vision_close(&vision);
    memory_free(white);
    return status;
}

int refiner_estimate(struct tokenizer_needs *needs, const struct refiner_settings *settings, struct device *meta,
                     enum dtype dtype)
{
    struct vision_config vision;
    return vision_config_load(&vision, settings->vision) || estimate(needs, settings, &vision, meta, dtype) ? -1 : 0;
}

struct refiner_work {
    struct refiner_settings settings;
    const struct vision_config *vision;
    enum dtype dtype;
};

static int run_dry(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct refiner_work *w = context;
    struct tokenizer_needs needs;
    int status = estimate(&needs, &w->settings, w->vision, meta, w->dtype);
    step_memory_estimate(out, &needs.memory);
    return status;
}

static int check_memory(const struct refiner_settings *s, const struct vision_config *vision, const struct stage *stage)
{
    static const struct reduction reductions[] = {{"batch"}, {0}};
    struct refiner_work w = {*s, vision, stage->dtype};
    const struct dry_run check = {"a step",  run_dry, &w, "make the refiner smaller", &w.settings, refiner_stage_table,
                                  reductions};
    return dry_run_check(&check, stage->device);
}

static int run_stage(struct refiner_run *run, const struct stage *stage)
{
    struct refiner_trainer *t = &run->trainer;
    struct vision_media media = {0}, held_out = {0};
    struct refiner_config config;
    int status = begin_config(&config, t->settings) || add_sizes(&config, &t->vision->config) ||
                         check_memory(t->settings, &t->vision->config, stage)
                     ? -1
                     : load_media(&media, &held_out, t->settings, &t->vision->config, stage->recipe_seed);
    t->media = &media;
    if (status == 0) {
        refiner_trainer_open(t, &config, stage->dtype);
        status = train(run, stage, &held_out);
        refiner_trainer_close(t);
    }
    vision_media_release(&media);
    vision_media_release(&held_out);
    return status;
}

int refiner_stage(const void *settings, const struct stage *stage)
{
    struct vision vision;
    struct refiner_run run = {.trainer = {.settings = settings, .vision = &vision, .seed = stage->seed}};
    if (vision_load(&vision, stage->device, run.trainer.settings->vision, stage->dtype, false))
        return -1;
    int status = run_stage(&run, stage);
    vision_close(&vision);
    return status;
}

char *refiner_stage_absent(const void *settings)
{
    const struct refiner_settings *s = settings;
    if (!media_are_absent(s->data, &s->columns, 1u << MODALITY_IMAGE | 1u << MODALITY_VIDEO))
        return NULL;
    return string_format("%s holds no pictures and no clips", s->data);
}
