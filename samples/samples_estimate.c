/* Memory estimate of the stage `generate`. The shapes of the originals are known only from their
 * files, so every shape of a kind is tried, and sounds of the requested length. */
#include "samples/samples_inside.h"
#include "kernels/device/dry_run.h"

/* Estimates one answer at a time, since the decoder takes as
 * many more as fit. shape: NULL for sounds. */
static int run_answer(struct generator *meta, const struct samples_settings *s, enum modality kind, const char *shape)
{
    struct prompt p;
    const struct generator_options one = {.sampling = {0, 1, 0, {0, RNG_SAMPLING}}, .slots = 1};
    prompt_init(&p, kind);
    p.guidance = s->guidance;
    int status = prompt_text(&p, meta, "a");
    if (status == 0)
        status = prompt_ask(&p, meta, shape, 0);
    if (status == 0)
        status = generator_dry_run_answer(meta, &p, &one);
    if (status == 0 && s->texts && kind == MODALITY_AUDIO)
        generator_dry_run_sound(meta, p.most);
    prompt_release(&p);
    return status;
}

static int run_shape(struct generator *meta, const struct samples_settings *s, const struct vision_shape *shape)
{
    if (run_answer(meta, s, shape->frames > 1 ? MODALITY_VIDEO : MODALITY_IMAGE, shape->name))
        return -1;
    if (s->texts && meta->model.config.cell_features)
        generator_dry_run_picture(meta, shape);
    return 0;
}

static int run_shapes(struct generator *meta, const struct samples_settings *s, bool clips)
{
    const struct vision_config *c = &meta->vision.config;
    int status = 0;
    for (i64 i = 0; meta->has_vision && i < c->shape_count && status == 0; i++)
        if ((c->shapes[i].frames > 1) == clips)
            status = run_shape(meta, s, &c->shapes[i]);
    return status;
}

/* Follows the stage's order, since decoders are allocated next to what the tokenizers have
 * allocated before. */
static int run_kinds(struct generator *meta, const struct samples_settings *s, struct mel_distance *mel)
{
    const float silence = 0;
    i64 spectra;
    if ((s->pictures && run_shapes(meta, s, false)) || (s->clips && run_shapes(meta, s, true)))
        return -1;
    if (meta->has_audio && s->sounds) {
        mel_distance_spectra(mel, &spectra, &silence, 1);
        if (run_answer(meta, s, MODALITY_AUDIO, NULL))
            return -1;
    }
    return s->texts ? run_answer(meta, s, MODALITY_TEXT, NULL) : 0;
}

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct samples_settings *s = context;
    struct generator generator;
    struct mel_distance mel;
    const struct model_source source = {.directory = s->from, .dtype = DTYPE_OTHER, .fixed = true};
    (void)out;
    if (generator_open(&generator, meta, &source))
        return -1;
    mel_distance_open(&mel, meta, AUDIO_RATE_HZ);
    int status = run_kinds(&generator, s, &mel);
    mel_distance_close(&mel);
    generator_close(&generator);
    return status;
}

int samples_check_memory(const struct samples_settings *settings, const struct device *device)
{
    static const struct reduction reductions[] = {
        {"clips"}, {"sounds", .from_given = true}, {"clips"}, {"pictures"}, {0}};
    struct samples_settings s = *settings;
    const struct dry_run check = {s.from, run, &s, SMALLER_MODEL, &s, samples_table, reductions};
    return dry_run_check(&check, device);
}
