/* Use of codes during the training of the audio tokenizer. */
#include "tokenizer_training/code_use.h"

#include <string.h>

/* 200 s, and 20 s of one recording. */
enum { FRAMES_MOST = 2500, FRAMES_OF_ONE = 250 };

/* Copies the beginning of a recording. Returns -1 and a message if it cannot be read. */
static int copy_sound(struct audio_use_sound *out, struct audio_tokenizer *audio, const struct audio_clip *clip)
{
    i64 frames;
    float *samples = audio_clip_samples(clip, &frames);
    if (!samples)
        return -1;
    out->frames = min_i64(frames, FRAMES_OF_ONE);
    i64 bytes = out->frames * audio_frame_samples(clip->rate_hz) * 4;
    out->samples = memory_alloc(bytes);
    memcpy(out->samples, samples, (size_t)bytes);
    out->sounds = audio_sounding(audio, out->samples, out->frames);
    memory_free(samples);
    return 0;
}

int audio_use_open(struct audio_use *use, struct audio_trainer *t, const struct audio_media *held_out)
{
    const struct audio_media *media[USE_SETS] = {t->media, held_out};
    const struct audio_config *c = &t->audio.config;
    int status = 0;
    *use = (struct audio_use){.sounds = memory_alloc(USE_SETS * FRAMES_MOST * (i64)sizeof *use->sounds)};
    use_watch_open(&use->watch, "codes", c->levels, c->codes);
    for (int set = 0; set < USE_SETS; set++) {
        i64 count = media[set]->count, frames = 0;
        i32 *order = memory_alloc(max_i64(count, 1) * 4);
        rng_permutation(order, count, (struct rng_key){t->seed, RNG_SHUFFLE}, UINT32_MAX, (u32)set);
        for (i64 i = 0; i < count && media_buffer_count(media[set]->buffer); i++)
            order[i] = (i32)i; /* a window moves forwards */
        for (i64 i = 0; i < count && frames < FRAMES_MOST && status == 0; i++) {
            struct audio_use_sound *sound = &use->sounds[use->count++];
            *sound = (struct audio_use_sound){.set = set};
            status = copy_sound(sound, &t->audio, &media[set]->clips[order[i]]);
            frames += max_i64(sound->frames, 1);
        }
        memory_free(order);
    }
    return status;
}

void audio_use_close(struct audio_use *use)
{
    for (i64 i = 0; i < use->count; i++) {
        memory_free(use->sounds[i].samples);
        memory_free(use->sounds[i].sounds);
    }
    memory_free(use->sounds);
    use_watch_close(&use->watch);
    *use = (struct audio_use){0};
}

static void count_set(struct code_use *counts, struct audio_tokenizer *audio, const struct audio_use *use, int set)
{
    struct audio_item *items = memory_alloc(max_i64(use->count, 1) * (i64)sizeof *items);
    for (i64 i = 0; i < use->count; i++)
        if (use->sounds[i].set == set)
            items[i] = (struct audio_item){use->sounds[i].samples,
                                           use->sounds[i].frames * audio_frame_samples(audio->config.rate_hz),
                                           memory_alloc(use->sounds[i].frames * audio->config.levels * 4)};
    audio_encode(audio, items, use->count);
    for (i64 i = 0; i < use->count; i++) {
        if (items[i].codes)
            code_use_add_codes(counts, items[i].codes, use->sounds[i].sounds, use->sounds[i].frames);
        memory_free(items[i].codes);
    }
    memory_free(items);
}

void audio_use_measure(struct audio_use *use, struct metrics *metrics, struct audio_tokenizer *audio, const char *name,
                       i64 done)
{
    for (int set = 0; set < USE_SETS; set++) {
        struct code_use counts;
        code_use_init(&counts, false, audio->config.levels, audio->config.codes);
        count_set(&counts, audio, use, set);
        use_watch_put(metrics, &use->watch, set, &counts);
        char *warning = set == USE_TRAINING && counts.seen[0] ? use_watch_look(&use->watch, &counts) : NULL;
        if (warning)
            log_warn("%s: step %lld: %s", name, (long long)done, warning);
        memory_free(warning);
        code_use_release(&counts);
    }
}
