/* A random model with all 3 tokenizers, a checkpoint of it and
 * a few media files, for tests of the program. */
#ifndef WEFT_TESTS_MODEL_FIXTURE_H
#define WEFT_TESTS_MODEL_FIXTURE_H
#include "data/media/media.h"
#include "tests/shard_fixture.h"
#include "tests/toy.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/vision.h"
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
    const char *shards; /* folder with the text tokenizer to install */
};

static inline int fixture_save_model(void *context, const char *directory)
{
    const struct fixture_parts *parts = context;
    return model_save(parts->model, directory) || copy_tokenizers(directory, parts->shards);
}

/* Writes SHARDS/model with all 3 tokenizers and SHARDS/checkpoints with 1 checkpoint at step 7. */
static inline void fixture_model(const char *shards, struct device *device)
{
    struct model model;
    char *folder = path_join(shards, "model"), *checkpoints = path_join(shards, "checkpoints");
    struct model_config c = toy_config(4, TOY_ALL & ~(unsigned)TOY_SHARED);
    c.vocabulary = round_up(fixture_meta.vocabulary, 16);
    toy_open(&model, device, &c, true);
    double *use = memory_alloc(model_use_count(&c) * 8); /* as after training */
    for (i64 i = 0; i < model_use_count(&c); i++)
        use[i] = (double)(1 + i * 5 % 7);
    model_use_put(&model, use);
    memory_free(use);
    struct fixture_parts saved = {&model, shards};
    require(directory_make(folder) == 0 && fixture_save_model(&saved, folder) == 0, "%s", error_text());
    struct checkpoint_parts parts = {&model.weights, fixture_save_model, &saved};
    require(directory_make(checkpoints) == 0 && checkpoint_save(checkpoints, 7, &parts, NULL) == 0, "%s", error_text());
    model_close(&model);
    fixture_save_tokenizers(folder, device);
    memory_free(folder);
    memory_free(checkpoints);
}

/* Writes picture.png, film.mp4 (no sound) and noise.wav. */
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
