#include "generate/judge.h"

#include "data/shapes/shaped.h"
#include "train/memory_estimate.h"

#include <math.h>
#include <string.h>

enum { SLOTS = 24 }; /* media described at a time */

int judge_open(struct judge *j, struct device *device, const char *directory, enum dtype dtype)
{
    const struct model_source source = {.directory = directory, .dtype = dtype, .fixed = true};
    *j = (struct judge){0};
    if (generator_open(&j->generator, device, &source))
        return error_prefix("judge");
    j->directory = directory;
    return 0;
}

void judge_close(struct judge *j)
{
    if (j->directory)
        generator_close(&j->generator);
    *j = (struct judge){0};
}

/* ---- What it reads ---- */

static bool reads(const struct generator *g, enum modality kind)
{
    if (kind == MODALITY_AUDIO)
        return g->has_audio;
    return g->has_vision && g->model.config.cell_features && generator_shape(g, kind == MODALITY_VIDEO);
}

/* Frames that a reader with shapes of `rate_hz` (0: every frame) gets of a clip. */
static i64 frames_seen(const struct vision_shape *clip, double rate_hz)
{
    double made_hz = clip->rate_hz > 0 ? clip->rate_hz : VISION_RATE_HZ;
    return rate_hz > 0 ? 1 + (i64)floor((double)(clip->frames - 1) * rate_hz / made_hz + 1e-6) : clip->frames;
}

static int check_clips(const struct judge *j, const struct generator *makes)
{
    const struct vision_config *made = &makes->vision.config, *read = &j->generator.vision.config;
    for (i64 i = 0; i < made->shape_count; i++) {
        const struct vision_shape *clip = &made->shapes[i];
        if (clip->frames == 1)
            continue;
        const struct vision_shape *nearest =
            &read->shapes[shaped_nearest(read, true, (double)clip->height, (double)clip->width)];
        i64 seen = frames_seen(clip, nearest->rate_hz);
        if (seen > nearest->frames)
            return error_set("judge %s: of a clip %s, %lld %s long, it reads the first %lld: expected a judge whose "
                             "vision tokenizer has clips as long as the policy's",
                             j->directory, clip->name, (long long)seen, plural(seen, "frame", "frames"),
                             (long long)nearest->frames);
    }
    return 0;
}

int judge_check(const struct judge *j, const struct generator *makes, enum modality kind)
{
    const struct generator *g = &j->generator;
    bool sound = kind == MODALITY_AUDIO, has = sound ? g->has_audio : g->has_vision;
    if (!reads(g, kind) && !has && (sound ? g->model.config.levels : g->model.config.bits))
        return error_set("judge %s: it is to read %s, and its tokenizer is missing: expected the folder weft/%s in it",
                         j->directory, modality_rows[kind].many, sound ? "audio" : "vision");
    if (!reads(g, kind))
        return error_set("judge %s: it reads no %s: expected a model that was trained to describe them", j->directory,
                         modality_rows[kind].many);
    return kind == MODALITY_VIDEO ? check_clips(j, makes) : 0;
}

/* ---- Reading ---- */

static int ask(struct prompt *p, struct judge *j, const struct judged_medium *m)
{
    prompt_init(p, MODALITY_TEXT);
    if (prompt_medium_of(p, &j->generator, m->kind, m->file.data, m->file.length, "an answer"))
        return error_prefix("judge %s", j->directory);
    return prompt_ask(p, &j->generator, NULL, JUDGE_TOKENS);
}

int judge_describe(struct buffer *texts, struct judge *j, const struct judged_medium *media, i64 count)
{
    i64 room = max_i64(count, 1), asked = 0;
    struct prompt *prompts = memory_alloc(room * (i64)sizeof *prompts);
    struct generate_request *requests = memory_alloc(room * (i64)sizeof *requests);
    struct answer *answers = memory_alloc(room * (i64)sizeof *answers);
    const struct generator_options greedy = {.sampling = {0, 1, 0, {0, RNG_SAMPLING}}, .slots = SLOTS};
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++, asked++) {
        status = ask(&prompts[i], j, &media[i]);
        requests[i] = prompt_request(&prompts[i], (u32)i, 1);
    }
    if (status == 0 && count)
        status = generator_run(answers, &j->generator, requests, count, &greedy);
    for (i64 i = 0; i < asked; i++) {
        if (status == 0)
            status = answer_text(&texts[i], &j->generator, &prompts[i], &answers[i]);
        buffer_append(&texts[i], "", 0);
        answer_release(&answers[i]);
        prompt_release(&prompts[i]);
    }
    memory_free(prompts);
    memory_free(requests);
    memory_free(answers);
    return status;
}

/* ---- Memory ---- */

/* A prompt of one medium without content, and its memory. */
struct empty_medium {
    struct part part;
    struct media_block block;
};

static void largest_picture(struct empty_medium *out, const struct generator *g, bool video)
{
    const struct vision_config *v = &g->vision.config;
    i64 d = g->model.config.cell_features, patch = g->model.config.patch_values;
    enum stream kind = stream_of_form(FORM_CELLS, video);
    for (i64 i = 0; i < v->shape_count; i++) {
        const struct vision_shape *s = &v->shapes[i];
        i64 height = ceil_div(s->h, 2), width = ceil_div(s->w, 2);
        if ((s->frames > 1) != video ||
            s->latent_frames * height * width <= out->part.frames * out->part.height * out->part.width)
            continue;
        out->part = (struct part){.kind = kind, .frames = s->latent_frames, .height = height, .width = width};
        out->block = (struct media_block){.kind = kind, .frames = s->latent_frames, .frame_positions = height * width};
    }
    i64 cells = out->block.frames * out->block.frame_positions * CELLS;
    out->block.features = memory_alloc(max_i64(cells * d, 1) * 4);
    out->block.pixels = memory_alloc(max_i64(cells * patch, 1));
}

static void longest_sound(struct empty_medium *out, const struct generator *g, i64 frames)
{
    out->part = (struct part){.kind = STREAM_AUDIO, .count = frames};
    out->block = (struct media_block){.kind = STREAM_AUDIO, .frames = frames};
    out->block.codes = memory_alloc((frames + 1) * g->model.config.levels * 4);
}

/* Adds a decoder of as many media of a kind as are read at a time. */
static void estimate_kind(struct step_memory *out, struct judge *j, enum modality kind, i64 sound_frames)
{
    struct generator *g = &j->generator;
    struct empty_medium medium = {0};
    struct generate_request requests[SLOTS];
    struct submodel full;
    submodel_full(&full, &g->model.config);
    if (kind == MODALITY_AUDIO)
        longest_sound(&medium, g, sound_frames);
    else
        largest_picture(&medium, g, kind == MODALITY_VIDEO);
    for (i64 i = 0; i < SLOTS; i++)
        requests[i] = (struct generate_request){
            .parts = &medium.part, .part_count = 1, .media = &medium.block, .most = JUDGE_TOKENS, .copies = 1};
    const struct decoder_options o = {
        .model = &g->model, .sub = &full, .vocabulary = &g->vocabulary, .amplitude = g->amplitude, .grid = g->grid};
    decoding_estimate(out, &(struct decoding_work){.options = &o, .requests = requests, .count = SLOTS, .slots = SLOTS},
                      &g->model);
    memory_free((void *)medium.block.features);
    memory_free((void *)medium.block.pixels);
    memory_free((void *)medium.block.codes);
}

void judge_estimate(struct step_memory *out, struct judge *j, const bool *makes, i64 sound_frames)
{
    struct generator *g = &j->generator;
    step_memory_add_weights(out, &g->model.weights);
    if (g->has_vision)
        step_memory_add_weights(out, &g->vision.weights);
    if (g->has_audio)
        step_memory_add_weights(out, &g->audio.weights);
    for (i64 i = 0; i < g->vision.config.shape_count && g->has_vision; i++) {
        const struct vision_shape *shape = &g->vision.config.shapes[i];
        if (makes[shape->frames > 1 ? MODALITY_VIDEO : MODALITY_IMAGE])
            generator_dry_run_picture(g, shape);
    }
    if (g->has_audio && makes[MODALITY_AUDIO])
        generator_dry_run_sound(g, sound_frames);
    if (g->has_vision)
        step_memory_add_tape(out, &g->vision.tape);
    if (g->has_audio)
        step_memory_add_tape(out, &g->audio.tape);
    struct step_memory before = *out;
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++) {
        struct step_memory with = before;
        if (!makes[kind] || !reads(g, (enum modality)kind))
            continue;
        estimate_kind(&with, j, (enum modality)kind, sound_frames);
        *out = step_memory_gpu(&with) > step_memory_gpu(out) ? with : *out;
    }
}
