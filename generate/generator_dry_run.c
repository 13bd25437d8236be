/* Dry runs of what a generator does, on the meta backend. */
#include "generate/generator.h"

static int into_picture(struct generator *s, i32 token)
{
    struct answer answer = {.has_medium = true};
    u8 *pixels = NULL;
    i64 size[3], i = 0;
    double rate_hz;
    for (; i < s->vocabulary.shape_count && s->vocabulary.shape[i] != token;)
        i++;
    const struct vision_shape *shape = &s->vision.config.shapes[i];
    u8 *bits = memory_alloc(shape->latent_frames * vision_tokens(shape) * s->vision.config.bits);
    answer.medium = (struct media_block){.shape = i, .frames = shape->latent_frames, .bits = bits};
    int status = answer_pixels(&pixels, size, &rate_hz, s, &answer);
    memory_free(pixels);
    memory_free(bits);
    return status;
}

static int into_sound(struct generator *s, i64 frames)
{
    struct answer answer = {.has_medium = true};
    float *samples = NULL;
    i64 count;
    i32 *codes = memory_alloc(frames * s->model.config.levels * 4);
    answer.medium = (struct media_block){.frames = frames, .codes = codes};
    int status = answer_samples(&samples, &count, s, &answer, 0);
    memory_free(samples);
    memory_free(codes);
    return status;
}

int generator_dry_run_medium(struct generator *s, const struct prompt *p)
{
    int status = 0;
    if (p->to == MODALITY_AUDIO)
        return into_sound(s, p->most);
    if (!modality_has_form(p->to, FORM_SCALES))
        return 0;
    for (i64 i = 0; i < p->choice_count && status == 0; i++)
        status = into_picture(s, p->choices[i]);
    return p->choice_count ? status : into_picture(s, p->opening[0]);
}

int generator_dry_run_answer(struct generator *s, const struct prompt *p, const struct generator_options *o)
{
    struct answer answer = {0};
    struct generate_request request = prompt_request(p, 0, 1);
    if (generator_run(&answer, s, &request, 1, o))
        return -1;
    return generator_dry_run_medium(s, p);
}

void generator_dry_run_picture(struct generator *s, const struct vision_shape *shape)
{
    i64 cells = shape->latent_frames * shape->h * shape->w;
    u8 *pixels = memory_alloc(shape->frames * shape->height * shape->width * 3);
    float *features = memory_alloc(cells * s->vision.config.channels[1] * 4);
    vision_encode(&s->vision, NULL, features, pixels, 1, shape->frames, shape->height, shape->width);
    memory_free(pixels);
    memory_free(features);
}

void generator_dry_run_sound(struct generator *s, i64 frames)
{
    i64 count = frames * audio_frame_samples(s->audio.config.rate_hz);
    float *samples = memory_alloc(count * 4);
    i32 *codes = memory_alloc(frames * s->audio.config.levels * 4);
    audio_encode(&s->audio, &(struct audio_item){samples, count, codes}, 1);
    memory_free(samples);
    memory_free(codes);
}
