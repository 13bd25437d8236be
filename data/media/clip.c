/* Allocates and releases clips and sounds. */
#include "data/media/media.h"

void clip_init(struct clip *clip, i64 frames, i64 height, i64 width, double rate_hz)
{
    *clip = (struct clip){.frames = frames, .height = height, .width = width, .rate_hz = rate_hz};
    clip->pixels = memory_alloc(frames * height * width * 3);
}

void clip_release(struct clip *clip)
{
    memory_free(clip->pixels);
    *clip = (struct clip){0};
}

void sound_init(struct sound *sound, i64 samples, i64 rate_hz)
{
    *sound = (struct sound){.samples = samples, .rate_hz = rate_hz};
    sound->values = memory_alloc(samples * (i64)sizeof *sound->values);
}

void sound_release(struct sound *sound)
{
    memory_free(sound->values);
    *sound = (struct sound){0};
}
