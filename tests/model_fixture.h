/* A random model with all three tokenizers, a checkpoint of it, and a few media: for tests of the program. */
#ifndef WEFT_TESTS_MODEL_FIXTURE_H
#define WEFT_TESTS_MODEL_FIXTURE_H
#include "data/media.h"
#include "model/model.h"
#include "tests/shard_fixture.h"
#include "tokenizers/audio.h"
#include "tokenizers/vision.h"
#include "train/pretrain.h"

static inline void fixture_save_tokenizers(const char *model, struct device *device)
{
    struct vision_config config = {.stride = 8, .bits = 6, .channels = {8, 5}, .blocks = {1, 1}, .inflated = true};
    struct audio_config sizes = {.width = 16, .latent = 8, .levels = 2, .codes = 16};
    struct vision vision;
    struct audio_tokenizer audio;
    char *to_vision = path_join(model, "weft/vision"), *to_audio = path_join(model, "weft/audio");
    require(!vision_add_shape(&config, 1, 32, 32, 0, NULL, 0) && !vision_add_shape(&config, 9, 16, 16, 8, NULL, 0),
            "%s", error_text());
    vision_open(&vision, device, &config, DTYPE_F32, false);
    vision_init(&vision, 1);
    audio_open(&audio, device, &sizes, DTYPE_F32, false);
    weights_init(&audio.weights, 1);
    require(!directory_make(to_vision) && !directory_make(to_audio), "%s", error_text());
    require(!vision_save(&vision, to_vision) && !audio_save(&audio, to_audio), "%s", error_text());
    vision_close(&vision);
    audio_close(&audio);
    memory_free(to_vision);
    memory_free(to_audio);
}

struct fixture_parts {
    const struct model *model;
    const char *shards; /* whose tokenizer it gets */
};

static inline int fixture_save_model(void *context, const char *directory)
{
    const struct fixture_parts *parts = context;
    return model_save(parts->model, directory) || install_tokenizers(directory, parts->shards);
}

/* SHARDS/model, with all three tokenizers, and SHARDS/checkpoints, one of step 7. */
static inline void fixture_model(const char *shards, struct device *device)
{
    struct model model;
    char *folder = path_join(shards, "model"), *checkpoints = path_join(shards, "checkpoints");
    struct model_config c = {.vocabulary = round_up(fixture_meta.vocabulary, 16),
                             .width = 32,
                             .layers = 4,
                             .heads = 2,
                             .kv_heads = 1,
                             .head_width = 16,
                             .dense_width = 32,
                             .experts = 8,
                             .topk = 2,
                             .expert_width = 16,
                             .first_moe_layer = 1,
                             .tied = true,
                             .rope_theta = 1e6,
                             .norm_eps = 1e-5,
                             .norm_min = 1e-12,
                             .init_std = 0.5,
                             .max_positions = 4096,
                             .bits = 6,
                             .scales = 5,
                             .cell_features = 5,
                             .patch_values = 4 * 8 * 8 * 3,
                             .vit_layers = 1,
                             .vit_width = 16,
                             .vit_heads = 2,
                             .levels = 2,
                             .codes = 16,
                             .mtp = true,
                             .t_pairs = 2};
    require(model_open(&model, device, &c, DTYPE_F32, true, NULL) == 0, "%s", error_text());
    weights_init(&model.weights, 3);
    struct fixture_parts saved = {&model, shards};
    require(directory_make(folder) == 0 && fixture_save_model(&saved, folder) == 0, "%s", error_text());
    struct checkpoint_parts parts = {&model.weights, fixture_save_model, &saved};
    require(directory_make(checkpoints) == 0 && checkpoint_save(checkpoints, 7, &parts, NULL) == 0, "%s", error_text());
    model_close(&model);
    fixture_save_tokenizers(folder, device);
    memory_free(folder);
    memory_free(checkpoints);
}

/* picture.png, film.mp4 without sound, noise.wav */
static inline void fixture_media(const char *folder)
{
    struct clip clip;
    struct sound sound;
    char *picture = path_join(folder, "picture.png"), *film = path_join(folder, "film.mp4"),
         *noise = path_join(folder, "noise.wav");
    clip_init(&clip, 9, 32, 32, 8);
    for (i64 i = 0; i < 9 * 32 * 32 * 3; i++)
        clip.pixels[i] = (u8)(i / 3072 * 20 + i % 50);
    sound_init(&sound, 20000, 16000);
    for (i64 i = 0; i < sound.samples; i++)
        sound.values[i] = 0.3f * (float)((i * i / 37) % 200 - 100) / 100;
    require(!image_write_png(picture, clip.pixels, 32, 32) && !clip_write_mp4(film, &clip) &&
                !sound_write_wav(noise, &sound),
            "%s", error_text());
    clip_release(&clip);
    sound_release(&sound);
    memory_free(picture);
    memory_free(film);
    memory_free(noise);
}

#endif
