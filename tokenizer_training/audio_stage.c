#include "tokenizer_training/code_use.h"
#include "tokenizer_training/memory_estimate.h"
#include "tokenizer_training/tokenizer_start.h"
#include "data/sources/media_list.h"
#include "train/events.h"

#define ROW(member, ...) SETTING(struct audio_settings, member, __VA_ARGS__)
const struct setting audio_stage_table[] = {
    ROW(data, "data", REFERENCE, NULL, 0, 0, NULL,
        "folder of recordings, as for `prepare`; captions optional, media of conversations too; its validation split "
        "is held out"),
    SPLIT_ROWS(struct audio_settings),
    START_ROWS(struct audio_settings, "all|decoder", ""),
    ROW(films, "films", BOOL, "false", 0, 0, NULL, "also use the sound of clips; silent clips are counted"),
    ROW(steps, "steps", INTEGER, "2000", 1, 1e9, NULL, "training steps"),
    ROW(batch, "batch", INTEGER, "12", 1, 65536, NULL, "crops per step"),
    ROW(crop_s, "crop_s", NUMBER, "1.28", 0.08, (double)MEL_SPECTRA_TOGETHER *AUDIO_HOP / AUDIO_RATE_HZ, NULL,
        "crop length, seconds; rounded to 0.08 s frames"),
    AUDIO_CONFIG_ROWS(struct audio_settings),
    ROW(unquantised_share, "unquantised_share", NUMBER, "0.3", 0, 1, NULL,
        "share of steps before k-means initializes the codebooks"),
#define FIXED(...)
#define WEIGHT(KEY, name, each, metric, weight, help)                                                                  \
    ROW(weights[AUDIO_##KEY], #name, NUMBER, weight, 0, 1e6, NULL, help),
    AUDIO_LOSS_ROWS(FIXED, WEIGHT, FIXED)
        ROW(codebook_decay, "codebook_decay", NUMBER, "0.95", 0, 1, NULL, "decay of the codebooks' running means"),
    ROW(revival, "revival", NUMBER, "0", 0, 0.9, NULL,
        "share of an even use below which a code begins anew at a random sound; 0: only codes that are not used"),
    ROW(level_dropout, "level_dropout", NUMBER, "0", 0, 1, NULL,
        "share of crops of which the decoder hears the first levels alone, one to all: each number of levels is then a "
        "code of its own"),
    DISCRIMINATOR_ROWS(struct audio_settings),
    SEMANTIC_ROWS(struct audio_settings, weights[AUDIO_SEMANTIC]),
    ROW(augment, "augment", NUMBER, "0.2", 0, 1, NULL, "share of crops with simulated rooms and microphones"),
    ROW(vocoder_rounds, "vocoder_rounds", INTEGER, "16", 1, 10000, NULL, "Griffin-Lim iterations of the report"),
    ROW(memory_mb, "memory_mb", INTEGER, "2048", 0, 1e9, NULL,
        "MiB of recordings kept in memory; others are decoded again when drawn, except from packed archives and "
        "tables"),
    SHUFFLE_ROW(struct audio_settings),
    USE_ROW(struct audio_settings, "200", "codes"),
    ROW(bad_share, "bad_share", NUMBER, "0.05", 0, 1, NULL, "maximum share of unreadable recordings"),
    TRAINING_ROWS(struct audio_settings, "500"),
    OPTIMIZER_ROWS(struct audio_settings, "2e-3", "0.98", "1e-3"),
    {0}};

/* ---- recordings ---- */

static int load_media(struct audio_media *train, struct audio_media *held_out, const struct audio_settings *s, u64 seed)
{
    struct media_request from = {s->data, SPLIT_TRAIN, seed,         s->validation,
                                 s->test, &s->columns, .says = true, .kinds = s->films ? 1 << MODALITY_VIDEO : 0};
    const struct audio_media_request request = {s->bad_share, s->memory_mb, s->shuffle_buffer, s->config.rate_hz};
    int status = audio_media_load(train, &from, &request);
    if (status == 0 && train->count == 0)
        status = error_set("%s: no recordings to train with", s->data);
    from.split = SPLIT_VALIDATION;
    from.says = false;
    if (status == 0)
        status = audio_media_load(held_out, &from, &request);
    if (status == 0 && held_out->count < HELD_OUT_LEAST)
        log_warn("%s: %lld held-out recordings are fewer than %d: figures of new recordings say little", s->data,
                 (long long)held_out->count, HELD_OUT_LEAST);
    if (status == 0)
        held_out->trained_on = media_in_common(s->data, &held_out->hashes, &train->hashes);
    return status;
}

static int load_targets(struct semantic_targets *out, const struct audio_settings *s, const struct audio_media *media)
{
    struct semantic_medium *list = memory_alloc(media->count * (i64)sizeof *list);
    for (i64 i = 0; i < media->count; i++)
        list[i] = (struct semantic_medium){media->clips[i].path, media->clips[i].text};
    int status = semantic_targets_open(out, &s->semantic, list, media->count, s->data);
    memory_free(list);
    return status;
}

/* ---- running ---- */

struct audio_stage_run {
    struct audio_trainer trainer;
    struct tokenizer_start start;
    struct audio_use use;
    const char *name; /* of the stage */
};

static int run_step(void *context, i64 step, struct training_step *said)
{
    struct audio_stage_run *run = context;
    struct audio_trainer *t = &run->trainer;
    struct audio_result y;
    if (audio_step(&y, t, step))
        return -1;
    metrics_put(said->metrics, "loss", y.loss);
    for (i64 i = 0; i < AUDIO_LOSSES; i++)
        if (audio_loss_applies(t->settings, i))
            metrics_put(said->metrics, audio_loss_metrics[i], y.losses[i]);
    metrics_put(said->metrics, "revived", (double)y.revived);
    if (y.discriminates)
        discriminator_put_metrics(said->metrics, &t->discriminator.common);
    said->optimizer = y.optimizer;
    said->count = (double)t->frames;
    said->flops = audio_step_flops(t, step);
    buffer_printf(&said->note, "loss %.4f, log-mel %.3f%s", y.loss, y.losses[AUDIO_DISTANCE],
                  step < t->start ? " without codes" : "");
    if (use_is_due(t->settings->use_steps, step + 1) && step >= t->start)
        audio_use_measure(&run->use, said->metrics, &t->audio, run->name, step + 1);
    return 0;
}

/* The codes of a continued stage began at its own step. */
static int begin(void *context, i64 step, const struct json *state, const char *folder)
{
    struct audio_stage_run *run = context;
    (void)step;
    run->trainer.start = json_integer(json_get(state, "codes_from"), run->trainer.start);
    return semantic_check_state(&run->trainer.semantic, state, folder);
}

static int write_state(void *context, struct json *state, const char *folder)
{
    const struct audio_stage_run *run = context;
    (void)folder;
    tokenizer_put_seed(state, run->trainer.seed);
    json_set(state, "codes_from", json_of_integer(run->trainer.start));
    semantic_put_state(&run->trainer.semantic, state);
    return 0;
}

static int save(void *context, const char *folder)
{
    const struct audio_stage_run *run = context;
    return audio_save(&run->trainer.audio, folder);
}

static int train(struct audio_stage_run *run, const struct stage *stage, const struct audio_media *held_out)
{
    struct audio_trainer *t = &run->trainer;
    struct further_weights more[2];
    i64 more_count = 0;
    if (audio_has_discriminator(t->settings))
        more[more_count++] = (struct further_weights){"discriminator", &t->discriminator.common.weights};
    if (t->targets)
        more[more_count++] = (struct further_weights){"semantic", &t->semantic.weights};
    struct training training = {.stage = stage,
                                .settings = &t->settings->training,
                                .steps = t->settings->steps,
                                .unit = "frames",
                                .weights = &t->audio.weights,
                                .more = more,
                                .more_count = more_count,
                                .continues = run->start.base.checkpoints,
                                .context = run,
                                .begin = begin,
                                .step = run_step,
                                .save = save,
                                .state = write_state};
    log_info("%s: %lld %s, %.0f s, %.1f MB; %.2f M parameters, %.1f MB; %.2f GFLOP a step", stage->name,
             (long long)t->media->count, plural(t->media->count, "recording", "recordings"),
             (double)t->media->samples / (double)t->audio.mel.rate_hz, (double)t->media->bytes * 1e-6,
             (double)weights_parameters(&t->audio.weights) * 1e-6, (double)weights_bytes(&t->audio.weights) * 1e-6,
             audio_step_flops(t, 0) * 1e-9);
    weights_init(&t->audio.weights, stage->seed);
    int status = audio_start_load(&t->audio, &run->start);
    if (status == 0 && t->settings->use_steps)
        status = audio_use_open(&run->use, t, held_out);
    if (status == 0)
        status = training_run(&training);
    audio_use_close(&run->use);
    if (status == 0)
        status = audio_report(t, held_out, stage->out);
    return status ? status : events_add_folder(stage->out, "samples", training.steps);
}

int audio_check_settings(const void *settings)
{
    const struct audio_settings *s = settings;
    return source_columns_check(&s->columns) || audio_config_check(&s->config) || tokenizer_start_check(&s->start) ||
                   (!tokenizer_starts(&s->start) && audio_discriminator_check(s)) ||
                   semantic_check(&s->semantic, s->start.train) || lr_check(&s->optimizer, s->steps, "steps")
               ? -1
               : 0;
}

int audio_stage(const void *settings, const struct stage *stage)
{
    struct audio_settings own = *(const struct audio_settings *)settings;
    struct audio_media media = {0}, held_out = {0};
    struct semantic_targets targets = {0};
    struct audio_stage_run run = {.name = stage->name, .trainer = {.settings = &own, .media = &media}};
    if (audio_start_open(&run.start, &own, stage->dtype))
        return -1;
    run.trainer.seed = tokenizer_start_seed(&run.start, stage->seed);
    int status = audio_discriminator_check(&own);
    if (status == 0)
        status = codec_check_memory(audio_stage_table, &own, stage);
    if (status == 0)
        status = load_media(&media, &held_out, &own, stage->recipe_seed);
    if (status == 0 && semantic_is_wanted(&own.semantic)) {
        status = load_targets(&targets, &own, &media);
        run.trainer.targets = &targets;
    }
    if (status == 0) {
        audio_trainer_open(&run.trainer, stage->device, stage->dtype);
        status = train(&run, stage, &held_out);
        audio_trainer_close(&run.trainer);
    }
    audio_media_release(&media);
    audio_media_release(&held_out);
    semantic_targets_release(&targets);
    tokenizer_start_close(&run.start);
    return status;
}

int audio_stage_sizes(struct token_sizes *sizes, const void *settings)
{
    const struct audio_settings *s = settings;
    sizes->levels = s->config.levels;
    sizes->codes = s->config.codes;
    return 0;
}

char *audio_stage_absent(const void *settings)
{
    const struct audio_settings *s = settings;
    if (!media_are_absent(s->data, &s->columns, 1u << MODALITY_AUDIO | (s->films ? 1u << MODALITY_VIDEO : 0)))
        return NULL;
    return string_format("%s holds no sounds%s", s->data, s->films ? " and no clips" : "");
}
