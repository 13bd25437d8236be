/* Memory estimate of the stage `generate`. The shapes of the originals are known only from their
 * files, so every shape of a kind is tried, and sounds of the requested length. */
#include "inference/foresee.h"
#include "inference/samples_inside.h"

/* Estimates one answer at a time, since the decoder takes as
 * many more as fit. shape: NULL for sounds. */
static int rehearse_answer(struct studio *meta, const struct samples_settings *s, enum modality kind, const char *shape)
{
    struct prompt p;
    const struct studio_options one = {.sampling = {0, 1, 0, {0, RNG_SAMPLING}}, .seats = 1};
    prompt_init(&p, kind);
    p.guidance = s->guidance;
    int status = prompt_text(&p, meta, "a");
    if (status == 0)
        status = prompt_ask(&p, meta, shape, 0);
    if (status == 0)
        status = studio_rehearse_answer(meta, &p, &one);
    if (status == 0 && s->texts && kind == MODALITY_AUDIO)
        studio_rehearse_sound(meta, p.most);
    prompt_release(&p);
    return status;
}

static int rehearse_shape(struct studio *meta, const struct samples_settings *s, const struct vision_shape *shape)
{
    if (rehearse_answer(meta, s, shape->frames > 1 ? MODALITY_VIDEO : MODALITY_IMAGE, shape->name))
        return -1;
    if (s->texts && meta->model.config.cell_features)
        studio_rehearse_picture(meta, shape);
    return 0;
}

static int rehearse_shapes(struct studio *meta, const struct samples_settings *s, bool clips)
{
    const struct vision_config *c = &meta->vision.config;
    int status = 0;
    for (i64 i = 0; meta->has_vision && i < c->shape_count && status == 0; i++)
        if ((c->shapes[i].frames > 1) == clips)
            status = rehearse_shape(meta, s, &c->shapes[i]);
    return status;
}

/* Follows the stage's order, since decoders are allocated next to what the tokenizers have
 * allocated before. */
static int rehearse_kinds(struct studio *meta, const struct samples_settings *s, struct mel_distance *mel)
{
    const float silence = 0;
    i64 spectra;
    if ((s->pictures && rehearse_shapes(meta, s, false)) || (s->clips && rehearse_shapes(meta, s, true)))
        return -1;
    if (meta->has_audio && s->sounds) {
        mel_distance_spectra(mel, &spectra, &silence, 1);
        if (rehearse_answer(meta, s, MODALITY_AUDIO, NULL))
            return -1;
    }
    return s->texts ? rehearse_answer(meta, s, MODALITY_TEXT, NULL) : 0;
}

static int rehearse(struct studio *meta, void *context)
{
    struct mel_distance mel;
    mel_distance_open(&mel, meta->device);
    int status = rehearse_kinds(meta, context, &mel);
    mel_distance_close(&mel);
    return status;
}

static bool say_what_fits(struct text *out, const struct studio_work *work, const struct device *device)
{
    static const struct {
        bool pictures, clips, sounds;
        const char *name;
    } left_out[] = {{false, true, false, "clips=0"},
                    {false, false, true, "sounds=0"},
                    {false, true, true, "clips=0 sounds=0"},
                    {true, true, true, "pictures=0 clips=0 sounds=0"}};
    const struct samples_settings *all = work->context;
    for (i64 i = 0; i < COUNT_OF(left_out); i++) {
        struct samples_settings s = *all;
        struct studio_work less = *work;
        less.context = &s;
        s.pictures = left_out[i].pictures ? 0 : s.pictures;
        s.clips = left_out[i].clips ? 0 : s.clips;
        s.sounds = left_out[i].sounds ? 0 : s.sounds;
        if (studio_offer(out, &less, device, left_out[i].name))
            return true;
    }
    return false;
}

int samples_check_memory(const struct samples_settings *settings, const struct device *device)
{
    struct samples_settings s = *settings;
    return studio_check_memory(&(struct studio_work){s.from, DTYPE_OTHER, rehearse, &s, say_what_fits}, device);
}
