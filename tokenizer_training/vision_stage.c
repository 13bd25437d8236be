#include "tokenizer_training/memory_estimate.h"
#include "tokenizer_training/tokenizer_start.h"
#include "tokenizer_training/code_use.h"
#include "data/sources/media_list.h"
#include "train/events.h"

#define ROW(member, ...) SETTING(struct vision_settings, member, __VA_ARGS__)
const struct setting vision_stage_table[] = {
    ROW(data, "data", REFERENCE, NULL, 0, 0, NULL,
        "folder of images and clips, as for `prepare`; captions optional, media of conversations too; its validation "
        "split is held out"),
    SPLIT_ROWS(struct vision_settings),
    START_ROWS(struct vision_settings, "all|decoder|bits",
               "; bits: the first bits stay as they are, and more `bits` learn"),
    ROW(steps, "steps", INTEGER, "4000", 1, 1e9, NULL, "training steps on stills"),
    ROW(clip_steps, "clip_steps", INTEGER, "600", 0, 1e9, NULL,
        "subsequent training steps on clips; 0: a tokenizer for stills only"),
    ROW(batch, "batch", INTEGER, "8", 1, 65536, NULL, "stills per step"),
    ROW(clip_batch, "clip_batch", INTEGER, "4", 1, 65536, NULL, "clips per step"),
    ROW(still_batch, "still_batch", INTEGER, "16", 1, 65536, NULL, "stills per still step of the clip phase"),
    ROW(still_share, "still_share", NUMBER, "0.25", 0, 0.9, NULL, "share of still steps in the clip phase"),
    ROW(size, "size", INTEGER, "64", 8, 4096, NULL,
        "side of a square image, pixels; other shapes (aspects) have about as many pixels"),
    ROW(areas, "areas", INTEGERS, "", 8, 4096, NULL,
        "sides of further areas, each at least twice the one before; a picture or clip is trained in the area nearest "
        "to "
        "its own, and in those below it"),
    ROW(frames, "frames", INTEGER, "9", 1, 1025, NULL, "frames per clip: 5, 9, 13, ..."),
    ROW(rate_hz, "rate_hz", NUMBER, "8", 0, 1000, NULL,
        "frames per second sampled from clips, in training and in use; 0: all frames, and generated clips play at 8"),
    ROW(stride, "stride", INTEGER, "16", 8, 16, NULL, "pixels per latent position: 8 or 16"),
    ROW(bits, "bits", INTEGER, "32", 1, 256, NULL, "bits per vision token"),
    ROW(channels, "channels", INTEGERS, "[64, 128]", 1, 4096, NULL,
        "network width at 1/4 resolution, and at the latent grid"),
    ROW(blocks, "blocks", INTEGERS, "[1, 1]", 0, VISION_BLOCKS_MOST, NULL, "residual blocks at each resolution"),
    ROW(scales, "scales", INTEGERS, "", 1, 4096, NULL,
        "scale sides of the square, coarse to fine; other shapes in proportion; none: 1, 2, 3, 4, 6, 8, 12, ... up to "
        "the grid"),
    ROW(augment, "augment", NUMBER, "0.6", 0, 1, NULL, "share of items randomly flipped, rotated, scaled and shifted"),
    ROW(amplitude_keep, "amplitude_keep", NUMBER, "0.99", 0, 1, NULL,
        "decay of the running means of |u_k| and of the latent (centre)"),
    ROW(centre, "centre", BOOL, "false", 0, 0, NULL,
        "bits of the latent around its running mean, one of stills and one of clips"),
    ROW(clip_lr, "clip_lr", NUMBER, "0.5", 0, 10, NULL, "peak learning rate on clips, relative to optimizer.lr"),
#define WEIGHT(KEY, name, each, metric, weight, help)                                                                  \
    ROW(loss.of[VISION_##KEY], "loss." #name, NUMBER, weight, 0, 1e6, NULL, help),
#define OWN(...)
    VISION_LOSS_ROWS(WEIGHT, OWN)
        ROW(loss.sharpness, "loss.sharpness", NUMBER, "0.125", 1e-6, 1e3, NULL,
            "slope in the entropy term, sigmoid(sharpness * u / a); larger values spread the bits more evenly"),
    DISCRIMINATOR_ROWS(struct vision_settings),
    SEMANTIC_ROWS(struct vision_settings, loss.of[VISION_SEMANTIC]),
    ASPECT_ROWS(struct vision_settings),
    PICTURE_ROWS(struct vision_settings),
    ROW(memory_mb, "memory_mb", INTEGER, "4096", 0, 1e9, NULL,
        "MiB of decoded media kept in memory; others are decoded again when drawn, except from packed archives and "
        "tables"),
    SHUFFLE_ROW(struct vision_settings),
    USE_ROW(struct vision_settings, "250", "bits"),
    ROW(bad_share, "bad_share", NUMBER, "0.05", 0, 1, NULL, "maximum share of unreadable media"),
    TRAINING_ROWS(struct vision_settings, "1000"),
    OPTIMIZER_ROWS(struct vision_settings, "3e-3", "0.95", "0"),
    {0}};

/* ---- media ---- */

static i64 total(const struct vision_media *m)
{
    return m->still_count + m->clip_count;
}

/* Shapes that media of a kind have, the most frequent first. */
static void shapes_in_use(struct aspect_list *out, const struct vision_media *m, bool clips)
{
    i64 counts[ASPECT_LIST_MOST];
    *out = (struct aspect_list){0};
    for (i64 i = 0; i < m->request.shapes[clips].count; i++) {
        i64 count = vision_media_count(m, clips, i), at = out->count;
        if (count == 0)
            continue;
        for (; at > 0 && counts[at - 1] < count; at--) {
            counts[at] = counts[at - 1];
            out->items[at] = out->items[at - 1];
        }
        counts[at] = count;
        out->items[at] = m->request.shapes[clips].items[i];
        out->count++;
    }
}

static void log_margins(const struct vision_media *m)
{
    double white = m->white / (double)max_i64(total(m), 1), cut = m->cropped / (double)max_i64(total(m), 1);
    if (white > 0.001 || cut > 0.001)
        log_info("to fit their shapes pictures and clips are cropped by %.1f %% of their area and padded with white by "
                 "%.1f %% (aspects.crop, aspects.most, aspects.shapes)",
                 100 * cut, 100 * white);
}

int vision_stage_shapes(struct aspect_list *out, const struct vision_settings *s)
{
    int status = aspects_make(out, &s->aspects, s->size, s->stride);
    i64 before = s->size;
    for (i64 i = 0; i < s->areas.count && status == 0; before = s->areas.values[i++])
        status = aspects_add_area(out, &s->aspects, before, s->areas.values[i], s->stride);
    return status;
}

static int read_request(struct vision_media_request *out, const struct vision_settings *s)
{
    *out = (struct vision_media_request){.frames = s->frames,
                                         .rate_hz = s->rate_hz,
                                         .side_least = s->stride,
                                         .bad_share = s->bad_share,
                                         .memory_mb = s->memory_mb,
                                         .shuffle_buffer = s->shuffle_buffer};
    if (picture_rules_read(&out->rules, &s->pictures) < 0 || vision_stage_shapes(&out->shapes[0], s) < 0)
        return -1;
    out->shapes[1] = out->shapes[0];
    out->crop = out->shapes[0].count > 1 ? s->aspects.crop : 0;
    return 0;
}

/* Media get the shapes of the tokenizer that training starts from; clips get those of stills if it has none
 * of clips. */
static int request_shapes(struct vision_media_request *out, const struct vision_config *base)
{
    struct aspect_list lists[2] = {{0}, {0}};
    for (i64 i = 0; i < base->shape_count; i++) {
        const struct vision_shape *s = &base->shapes[i];
        struct aspect_list *list = &lists[s->frames > 1];
        if (list->count == ASPECT_LIST_MOST)
            return error_set("the tokenizer to start from has more than %d shapes of a kind", ASPECT_LIST_MOST);
        list->items[list->count++] = (struct aspect){s->height, s->width, s->area};
        out->crop = s->crop;
    }
    if (lists[0].count == 0)
        return error_set("the tokenizer to start from has no shape of stills");
    out->shapes[0] = lists[0];
    out->shapes[1] = lists[lists[1].count > 0];
    return 0;
}

/* Held-out media get only shapes that are trained on. base: NULL, or the tokenizer to start from. */
static int load_media(struct vision_media *train, struct vision_media *held_out, const struct vision_settings *s,
                      const struct vision_config *base, u64 seed)
{
    struct media_request from = {s->data, SPLIT_TRAIN, seed, s->validation, s->test, &s->columns, .says = true};
    struct vision_media_request request;
    if (read_request(&request, s) < 0 || (base && request_shapes(&request, base) < 0))
        return -1;
    int status = vision_media_load(train, &from, &request);
    if (status == 0 && total(train) == 0)
        status = error_set("%s: no pictures and no clips to train with", s->data);
    if (status)
        return status;
    log_margins(train);
    request.crop = train->cropped > 0 || base ? request.crop : 0; /* no crop if every medium fits exactly */
    /* without stills, frames of clips replace them */
    shapes_in_use(&request.shapes[0], train, train->still_count == 0);
    if (train->clip_count)
        shapes_in_use(&request.shapes[1], train, true);
    from.split = SPLIT_VALIDATION;
    from.says = false;
    status = vision_media_load(held_out, &from, &request);
    if (status == 0 && total(held_out) < HELD_OUT_LEAST)
        log_warn("%s: %lld held-out pictures and clips are fewer than %d: figures of new media say little", s->data,
                 (long long)total(held_out), HELD_OUT_LEAST);
    if (status == 0)
        held_out->trained_on = media_in_common(s->data, &held_out->hashes, &train->hashes);
    return status;
}

/* Of stills, then of clips. */
static int load_targets(struct semantic_targets *out, const struct vision_settings *s, const struct vision_media *m)
{
    struct semantic_medium *list = memory_alloc(total(m) * (i64)sizeof *list);
    for (i64 i = 0; i < total(m); i++) {
        const struct vision_label *label =
            i < m->still_count ? &m->still_labels[i] : &m->clip_labels[i - m->still_count];
        list[i] = (struct semantic_medium){label->path, label->text};
    }
    int status = semantic_targets_open(out, &s->semantic, list, total(m), s->data);
    memory_free(list);
    return status;
}

/* ---- configuration ---- */

/* The scales of `scales` are those of the smallest area; larger ones have the usual ones. */
static int add_shape(struct vision_config *config, const struct vision_settings *s, struct aspect shape, bool clips)
{
    i64 usual[VISION_SCALES_MOST], *sides = usual, count = 0;
    if (!shape.area && s->scales.count) {
        sides = s->scales.values;
        count = s->scales.count;
    } else if (shape.area <= s->areas.count)
        count = vision_usual_sides(usual, (shape.area ? s->areas.values[shape.area - 1] : s->size) / s->stride);
    else
        sides = NULL; /* of a tokenizer to start from */
    if (vision_add_shape(config, clips ? s->frames : 1, shape.height, shape.width, clips ? s->rate_hz : 0, sides,
                         count))
        return -1;
    config->shapes[config->shape_count - 1].area = shape.area;
    return 0;
}

static int add_shapes(struct vision_config *config, const struct vision_settings *s, const struct vision_media *media,
                      bool clips)
{
    struct aspect_list list;
    shapes_in_use(&list, media, clips || media->still_count == 0);
    for (i64 i = 0; i < list.count; i++) {
        if (add_shape(config, s, list.items[i], clips))
            return -1;
        config->shapes[config->shape_count - 1].crop = media->cropped > 0 ? media->request.crop : 0;
    }
    return 0;
}

/* All but the shapes. */
static int begin_config(struct vision_config *config, const struct vision_settings *s)
{
    if (s->channels.count != 2 || s->blocks.count != 2)
        return error_usage("channels and blocks are lists of two");
    *config = (struct vision_config){.stride = s->stride, .bits = s->bits, .centred = s->centre};
    for (int i = 0; i < 2; i++) {
        config->channels[i] = s->channels.values[i];
        config->blocks[i] = s->blocks.values[i];
    }
    if (s->stride != 8 && s->stride != 16)
        return error_usage("stride is %lld; expected 8 or 16", (long long)s->stride);
    return 0;
}

/* Which shapes of aspects are used, and whether there are clips, is known once the media are read. */
int vision_check_settings(const void *settings)
{
    const struct vision_settings *s = settings;
    struct vision_config config;
    struct vision_media_request request;
    return source_columns_check(&s->columns) || begin_config(&config, s) || read_request(&request, s) ||
                   tokenizer_start_check(&s->start) || semantic_check(&s->semantic, s->start.train) ||
                   lr_check(&s->optimizer, s->steps, "steps")
               ? -1
               : 0;
}

int vision_stage_config(struct vision_config *config, const struct vision_settings *s, const struct vision_media *media,
                        bool clips)
{
    if (begin_config(config, s))
        return -1;
    if (clips && s->frames == 1)
        return error_usage("frames is 1; a clip has 5, 9, 13, ... frames (clip_steps: 0 trains on stills alone)");
    if (add_shapes(config, s, media, false) || (clips && add_shapes(config, s, media, true)))
        return -1;
    return vision_config_check(config);
}

/* ---- running ---- */

struct vision_stage_run {
    struct vision_trainer trainer;
    struct tokenizer_start start;
    struct vision_use use;
    const char *name; /* of the stage */
    /* per step on stills, on clips, and on stills among clips, each without and with the discriminator; 0:
     * not counted yet */
    double flops[6][VISION_SHAPES_MOST];
};

static double flops_of(struct vision_stage_run *run, i64 step, const struct vision_step_result *y)
{
    struct vision_batch batch = vision_step_batch(&run->trainer, step);
    i64 shape = batch.shape - run->trainer.vision.config.shapes;
    i64 kind = step < run->trainer.still_steps ? 0 : y->clips ? 1 : 2;
    double *flops = &run->flops[2 * kind + y->discriminates][shape];
    if (*flops == 0)
        *flops = vision_step_flops(&run->trainer, step);
    return *flops;
}

static int begin(void *context, i64 step, const struct json *state, const char *folder)
{
    struct vision_stage_run *run = context;
    i64 stills = json_integer(json_get(state, "still_steps"), run->trainer.still_steps);
    if (step > stills && stills != run->trainer.still_steps)
        return error_usage("steps is %lld, and %s has gone on to clips after %lld: expected steps: %lld and more "
                           "clip_steps",
                           (long long)run->trainer.still_steps, folder, (long long)stills, (long long)stills);
    if (step > run->trainer.still_steps)
        vision_inflate(&run->trainer.vision);
    run->trainer.begun |= json_bool(json_get(state, "begun"), false);
    return semantic_check_state(&run->trainer.semantic, state, folder);
}

/* Losses of features are there if they are wanted, once the discriminator learns; semantics if they are wanted. */
static bool is_shown(const struct vision_trainer *t, i64 loss, const struct vision_step_result *y)
{
    if (loss == VISION_SEMANTIC)
        return t->targets != NULL;
    return (loss != VISION_FEATURES && loss != VISION_GRAM) || (y->discriminates && t->settings->loss.of[loss] > 0);
}

static int run_step(void *context, i64 step, struct training_step *said)
{
    struct vision_stage_run *run = context;
    struct vision_step_result y;
    if (vision_step(&y, &run->trainer, step) < 0)
        return -1;
    metrics_put(said->metrics, y.clips ? "clips/loss" : "stills/loss", y.loss);
    metrics_put(said->metrics, y.clips ? "clips/psnr_db" : "stills/psnr_db", y.psnr_db);
    for (i64 i = 0; i < VISION_LOSSES; i++)
        if (*vision_loss_metrics[i] && is_shown(&run->trainer, i, &y))
            metrics_put(said->metrics, vision_loss_metrics[i], y.losses.of[i]);
    if (y.discriminates)
        discriminator_put_metrics(said->metrics, &run->trainer.discriminator.common);
    said->optimizer = y.optimizer;
    said->count = (double)y.frames;
    said->flops = flops_of(run, step, &y);
    buffer_printf(&said->note, "%s loss %.4f, %.2f dB", y.clips ? "clips" : "stills", y.loss, y.psnr_db);
    if (run->trainer.vision.config.shape_count > 1 + (run->trainer.clip_steps > 0))
        buffer_printf(&said->note, ", %s", y.shape->name);
    if (use_is_due(run->trainer.settings->use_steps, step + 1))
        vision_use_measure(&run->use, said->metrics, &run->trainer.vision, run->name, step + 1);
    return 0;
}

static int write_state(void *context, struct json *state, const char *folder)
{
    const struct vision_stage_run *run = context;
    (void)folder;
    tokenizer_put_seed(state, run->trainer.seed);
    json_set(state, "still_steps", json_of_integer(run->trainer.still_steps));
    semantic_put_state(&run->trainer.semantic, state);
    if (run->trainer.begun)
        json_set(state, "begun", json_of_bool(true));
    return 0;
}

static int save(void *context, const char *folder)
{
    const struct vision_stage_run *run = context;
    return vision_save(&run->trainer.vision, folder);
}

static int train(struct vision_stage_run *run, const struct stage *stage, const struct vision_media *held_out)
{
    struct vision_trainer *t = &run->trainer;
    const struct vision_media *m = t->media;
    struct further_weights more[2];
    i64 more_count = 0;
    if (vision_has_discriminator(t->settings))
        more[more_count++] = (struct further_weights){"discriminator", &t->discriminator.common.weights};
    if (t->targets)
        more[more_count++] = (struct further_weights){"semantic", &t->semantic.weights};
    const struct vision_step_result first = {0};
    struct training training = {.stage = stage,
                                .settings = &t->settings->training,
                                .steps = t->still_steps + t->clip_steps,
                                .unit = "pictures",
                                .weights = &t->vision.weights,
                                .more = more,
                                .more_count = more_count,
                                .continues = run->start.base.checkpoints,
                                .context = run,
                                .begin = begin,
                                .step = run_step,
                                .save = save,
                                .state = write_state};
    log_info("%s: %lld %s, %lld %s, %.1f MB; %.2f M parameters, %.1f MB; %.2f GFLOP a step on stills", stage->name,
             (long long)m->still_count, plural(m->still_count, "picture", "pictures"), (long long)m->clip_count,
             plural(m->clip_count, "clip", "clips"), (double)m->bytes * 1e-6,
             (double)weights_parameters(&t->vision.weights) * 1e-6, (double)weights_bytes(&t->vision.weights) * 1e-6,
             flops_of(run, 0, &first) * 1e-9);
    vision_init(&t->vision, stage->seed);
    int status = vision_start_load(&t->vision, &run->start);
    if (status == 0 && t->settings->use_steps)
        status = vision_use_open(&run->use, t, held_out);
    if (status == 0)
        status = training_run(&training);
    vision_use_close(&run->use);
    if (status == 0)
        status = vision_report(t, held_out, stage->out);
    return status ? status : events_add_folder(stage->out, "samples", training.steps);
}

/* The configuration of the tokenizer to start from, with shapes of clips if it is to learn them. */
static int started_config(struct vision_config *config, const struct vision_stage_run *run, bool clips)
{
    const struct tokenizer_start *start = &run->start;
    i64 scales = config->shapes[0].scale_count, before = config->shape_count;
    for (i64 i = 0; i < config->shape_count; i++)
        clips &= config->shapes[i].frames == 1;
    if (!clips)
        return 0;
    if (start->base.folder || run->trainer.settings->start.train != TRAIN_ALL)
        return error_usage(
            "the tokenizer of %s has no shapes of clips, and %s keeps its shapes: expected clip_steps: 0",
            start->folder, start->base.folder ? "continue" : tokenizer_train_name(run->trainer.settings->start.train));
    if (add_shapes(config, run->trainer.settings, run->trainer.media, true))
        return -1;
    return config->shapes[before].scale_count == scales
               ? 0
               : error_usage("clips would have %lld scales, and the tokenizer of %s has %lld: set scales to its own",
                             (long long)config->shapes[before].scale_count, start->folder, (long long)scales);
}

static int run_stage(struct vision_stage_run *run, const struct stage *stage, const struct vision_media *held_out)
{
    struct vision_trainer *t = &run->trainer;
    const struct vision_settings *s = t->settings;
    bool clips = s->clip_steps > 0 && t->media->clip_count > 0;
    struct vision_config config = run->start.vision;
    config.bits = s->bits;
    config.kept_bits = s->start.train == TRAIN_ALL        ? 0
                       : s->bits > run->start.vision.bits ? run->start.vision.bits
                                                          : run->start.vision.kept_bits;
    if (s->clip_steps > 0 && !clips)
        log_warn("%s: no clips in %s: a tokenizer of stills", stage->name, s->data);
    int status =
        run->start.folder ? started_config(&config, run, clips) : vision_stage_config(&config, s, t->media, clips);
    if (status || (clips && lr_check(&s->optimizer, s->clip_steps, "clip_steps")))
        return -1;
    t->seed = tokenizer_start_seed(&run->start, stage->seed);
    t->begun = s->start.from && *s->start.from && s->start.train != TRAIN_BITS;
    t->still_steps = s->steps;
    t->clip_steps = clips ? s->clip_steps : 0;
    vision_trainer_open(t, stage->device, &config, stage->dtype);
    status = train(run, stage, held_out);
    vision_trainer_close(t);
    return status;
}

int vision_stage(const void *settings, const struct stage *stage)
{
    struct vision_settings own = *(const struct vision_settings *)settings;
    struct vision_media media = {0}, held_out = {0};
    struct semantic_targets targets = {0};
    struct vision_stage_run run = {.name = stage->name, .trainer = {.settings = &own, .media = &media}};
    if (vision_start_open(&run.start, &own))
        return -1;
    int status = codec_check_memory(vision_stage_table, &own, stage);
    if (status == 0)
        status = load_media(&media, &held_out, &own, run.start.folder ? &run.start.vision : NULL, stage->recipe_seed);
    if (status == 0 && semantic_is_wanted(&own.semantic)) {
        status = load_targets(&targets, &own, &media);
        run.trainer.targets = &targets;
    }
    if (status == 0)
        status = run_stage(&run, stage, &held_out);
    vision_media_release(&media);
    vision_media_release(&held_out);
    semantic_targets_release(&targets);
    tokenizer_start_close(&run.start);
    return status;
}

int vision_stage_sizes(struct token_sizes *sizes, const void *settings)
{
    const struct vision_settings *s = settings;
    struct vision_config vision = {.stride = s->stride, .bits = s->bits};
    if (s->channels.count != 2)
        return error_usage("channels is a list of two");
    for (i64 i = 0; i <= s->areas.count; i++) {
        i64 side = i ? s->areas.values[i - 1] : s->size;
        if (add_shape(&vision, s, (struct aspect){side, side, i}, false))
            return -1;
        sizes->scales = max_i64(sizes->scales, vision.shapes[i].scale_count);
    }
    sizes->bits = s->bits;
    sizes->cell_features = s->channels.values[1];
    sizes->patch_values = VISION_GROUP * s->stride * s->stride * 3;
    return 0;
}

char *vision_stage_absent(const void *settings)
{
    const struct vision_settings *s = settings;
    if (!media_are_absent(s->data, &s->columns, 1u << MODALITY_IMAGE | 1u << MODALITY_VIDEO))
        return NULL;
    return string_format("%s holds no pictures and no clips", s->data);
}
