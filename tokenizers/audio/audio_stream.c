/* Encoding and decoding in chunks, by a causal tokenizer: each call runs the network over the new frames and over what
 * they depend on.
 *
 *     remembered frames      | new frames |
 *     10, read alone         | coded      |     encoder: 8 frames, and the windows of the samples before
 *     12, decoded once more  | decoded    |     decoder: 11 frames, and the windows of the frame before */
#include "tokenizers/audio/audio.h"

#include <string.h>

enum { BEFORE_CODED = 10, BEFORE_SAID = 12 };

void audio_stream_open(struct audio_stream *stream, struct audio_tokenizer *audio)
{
    require(audio->config.causal, "chunks of a tokenizer that is not causal");
    *stream = (struct audio_stream){.audio = audio};
}

void audio_stream_close(struct audio_stream *stream)
{
    buffer_release(&stream->samples);
    buffer_release(&stream->codes);
    *stream = (struct audio_stream){0};
}

/* Forgets the first bytes, all but the last `kept`. */
static void forget(struct buffer *buffer, i64 kept)
{
    i64 gone = buffer->length - kept;
    if (gone <= 0)
        return;
    memmove(buffer->data, buffer->data + gone, (size_t)kept);
    buffer->length = kept;
}

i64 audio_stream_encode(struct audio_stream *s, i32 *codes, const float *samples, i64 count, bool last)
{
    i64 levels = s->audio->config.levels, frame = audio_frame_samples(s->audio->config.rate_hz);
    buffer_append(&s->samples, (const char *)samples, count * 4);
    s->heard += count;
    i64 whole = last ? ceil_div(s->heard, frame) : s->heard / frame, fresh = whole - s->coded;
    if (fresh <= 0)
        return 0;
    i64 begin = s->heard - s->samples.length / 4, end = min_i64(whole * frame, s->heard); /* begin: of a frame */
    i64 old = s->coded - begin / frame;
    i32 *all = memory_alloc((old + fresh) * levels * 4);
    audio_encode(s->audio, &(struct audio_item){(const float *)s->samples.data, end - begin, all}, 1);
    memcpy(codes, all + old * levels, (size_t)(fresh * levels) * 4);
    memory_free(all);
    s->coded = whole;
    forget(&s->samples, (s->heard - max_i64(0, whole - BEFORE_CODED) * frame) * 4);
    return fresh;
}

void audio_stream_decode(struct audio_stream *s, float *samples, const i32 *codes, i64 frames)
{
    i64 levels = s->audio->config.levels, frame = audio_frame_samples(s->audio->config.rate_hz);
    if (frames <= 0)
        return;
    i64 old = s->codes.length / (4 * levels);
    buffer_append(&s->codes, (const char *)codes, frames * levels * 4);
    float *all = memory_alloc((old + frames) * frame * 4);
    audio_decode(s->audio, all, (const i32 *)s->codes.data, old + frames, NULL);
    memcpy(samples, all + old * frame, (size_t)(frames * frame) * 4);
    memory_free(all);
    s->said += frames;
    forget(&s->codes, BEFORE_SAID * levels * 4);
}
