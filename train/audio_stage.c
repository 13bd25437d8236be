#include "train/audio_stage.h"
#include "train/audio_step.h"
#include "train/captions.h"

#include <string.h>

#define ROW(member, ...) SETTING(struct audio_settings, member, __VA_ARGS__)
const struct setting audio_stage_table[] = {
    ROW(data, "data", REFERENCE, NULL, 0, 0, NULL,
        "captions.jsonl in it, in its train/ and validation/, or in folders in it; held-out voices: validation/ in or "
        "beside it"),
    ROW(steps, "steps", INTEGER, "2000", 1, 1e9, NULL, "steps"),
    ROW(batch, "batch", INTEGER, "12", 1, 65536, NULL, "crops of a step"),
    ROW(crop_s, "crop_s", NUMBER, "1.28", 0.08, 600, NULL, "length of a crop, seconds; rounded to frames of 0.08"),
    AUDIO_CONFIG_ROWS(struct audio_settings),
    ROW(unquantised_share, "unquantised_share", NUMBER, "0.3", 0, 1, NULL,
        "share of the steps before k-means makes the codebooks"),
    ROW(commitment, "commitment", NUMBER, "0.25", 0, 1e6, NULL, "weight of (latent - its code)^2, each level"),
    ROW(codebook_decay, "codebook_decay", NUMBER, "0.95", 0, 1, NULL, "decay of the codebooks' running means"),
    ROW(augment, "augment", NUMBER, "0.2", 0, 1, NULL, "share of crops made to sound like other rooms and microphones"),
    ROW(vocoder_rounds, "vocoder_rounds", INTEGER, "16", 1, 10000, NULL, "Griffin-Lim rounds of the report"),
    ROW(memory_mb, "memory_mb", INTEGER, "2048", 0, 1e9, NULL,
        "recordings kept in memory; those beyond are read again when drawn"),
    ROW(bad_share, "bad_share", NUMBER, "0.05", 0, 1, NULL, "share of recordings that may be unreadable"),
    ROW(checkpoint_steps, "checkpoint_steps", INTEGER, "500", 1, 1e9, NULL, "steps between checkpoints"),
    OPTIMIZER_ROWS(struct audio_settings, "2e-3", "0.98", "1e-3"),
    {0}};

/* ---- recordings ---- */

static int load_media(struct audio_media *train, struct audio_media *held_out, const struct audio_settings *s)
{
    struct captions_folders folders;
    int status = captions_find(&folders, s->data, "{\"audio\": PATH, \"text\": ...}");
    if (status == 0)
        status = audio_media_load(train, folders.train, s->bad_share, s->memory_mb);
    if (status == 0 && train->count == 0)
        status = error_set("%s: no recordings in captions.jsonl", folders.train);
    if (status == 0 && folders.held_out)
        status = audio_media_load(held_out, folders.held_out, s->bad_share, s->memory_mb);
    captions_folders_release(&folders);
    return status;
}

/* ---- running ---- */

enum { KEEP = 2 }; /* checkpoints */

struct run {
    struct audio_trainer trainer;
    const struct stage *stage;
    struct checkpoint_parts parts;
    struct weights *weights[1];
    struct metrics *metrics;
    char *checkpoints;
    double flops, seconds; /* of a step; running mean */
};

static int save_tokenizer(void *context, const char *directory)
{
    return audio_save(context, directory);
}

static int save_checkpoint(void *context, i64 done)
{
    struct run *run = context;
    int status = checkpoint_save(run->checkpoints, done, &run->parts, NULL);
    return status ? status : checkpoint_settle(run->checkpoints, done, KEEP);
}

static int write_metrics(struct run *run, i64 step, const struct audio_result *r, double seconds)
{
    metrics_begin(run->metrics, step);
    metrics_put(run->metrics, "loss", r->loss);
    metrics_put(run->metrics, "log_mel", r->distance);
    metrics_put(run->metrics, "commitment", r->commitment);
    metrics_put(run->metrics, "revived", (double)r->revived);
    metrics_put(run->metrics, "lr", r->optimizer.lr);
    metrics_put(run->metrics, "grad_norm", r->optimizer.grad_norm);
    metrics_put(run->metrics, "seconds", seconds);
    return metrics_end(run->metrics);
}

static void show_progress(struct run *run, i64 step, const struct audio_result *r, double seconds, struct progress *bar)
{
    run->seconds += (run->seconds > 0 ? 0.05 : 1) * (seconds - run->seconds);
    double peak = run->stage->peak_gflops, share = peak > 0 ? run->flops / run->seconds / peak * 1e-7 : 0;
    progress_update(bar, step + 1, "loss %.4f, log-mel %.3f%s, %.0f frames/s, %.0f %% of peak", r->loss, r->distance,
                    step < run->trainer.start ? " without codes" : "", (double)run->trainer.frames / run->seconds,
                    share);
}

static int run_step(void *context, i64 step, struct progress *bar)
{
    struct run *run = context;
    struct audio_result result;
    double start_s = clock_s();
    if (audio_step(&result, &run->trainer, step))
        return -1;
    double seconds = clock_s() - start_s;
    show_progress(run, step, &result, seconds, bar);
    return write_metrics(run, step, &result, seconds);
}

/* From the last checkpoint, or from the beginning. */
static int begin_run(struct run *run, i64 *begin)
{
    struct json *state = NULL;
    weights_init(&run->trainer.audio.weights, run->stage->seed);
    if (checkpoint_resume(run->checkpoints, begin, &run->parts, &state))
        return -1;
    json_free(state);
    if (checkpoint_settle(run->checkpoints, *begin, KEEP))
        return -1;
    *begin = max_i64(*begin, 0);
    if (*begin)
        log_info("%s: goes on from step %lld", run->stage->name, (long long)*begin);
    run->metrics = metrics_open(run->stage->out, *begin - 1);
    return run->metrics ? 0 : -1;
}

static int train(struct run *run, const struct audio_media *held_out)
{
    struct audio_trainer *t = &run->trainer;
    i64 begin;
    run->flops = audio_step_flops(t);
    log_info("%s: %lld recordings, %.0f s, %.1f MB; %.2f M parameters, %.1f MB; %.2f GFLOP a step", run->stage->name,
             (long long)t->media->count, (double)t->media->samples / AUDIO_RATE_HZ, (double)t->media->bytes * 1e-6,
             (double)weights_parameters(&t->audio.weights) * 1e-6, (double)weights_bytes(&t->audio.weights) * 1e-6,
             run->flops * 1e-9);
    struct training loop = {run->stage, t->settings->steps, t->settings->checkpoint_steps,
                            run_step,   save_checkpoint,    run};
    int status = begin_run(run, &begin);
    if (status == 0)
        status = training_run(&loop, begin);
    if (run->metrics)
        metrics_close(run->metrics);
    if (status == 0)
        status = audio_save(&t->audio, run->stage->out);
    if (status == 0)
        status = audio_report(t, held_out, run->stage->out);
    return status;
}

static int run_stage(const struct audio_settings *settings, const struct stage *stage, const struct audio_media *media,
                     const struct audio_media *held_out)
{
    struct run run = {.trainer = {.settings = settings, .media = media, .seed = stage->seed},
                      .stage = stage,
                      .checkpoints = path_join(stage->out, "checkpoints")};
    audio_trainer_open(&run.trainer, stage->device, stage->dtype);
    run.weights[0] = &run.trainer.audio.weights;
    run.parts = (struct checkpoint_parts){run.weights, 1, save_tokenizer, &run.trainer.audio};
    int status = train(&run, held_out);
    audio_trainer_close(&run.trainer);
    memory_free(run.checkpoints);
    return status;
}

int audio_stage(const void *settings, const struct stage *stage)
{
    const struct audio_settings *s = settings;
    struct audio_media media = {0}, held_out = {0};
    int status = audio_config_check(&s->config);
    if (status == 0)
        status = load_media(&media, &held_out, s);
    if (status == 0)
        status = run_stage(s, stage, &media, &held_out);
    audio_media_release(&media);
    audio_media_release(&held_out);
    return status;
}
