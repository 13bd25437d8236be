/* Helpers for the tests of pictures, clips and sounds:
 * append integers as bytes, build small files. */
#ifndef WEFT_TESTS_MEDIA_FIXTURE_H
#define WEFT_TESTS_MEDIA_FIXTURE_H
#include "data/media/media.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline void assert_says(const char *wanted)
{
    if (!strstr(error_text(), wanted))
        fail_msg("the message \"%s\" does not contain \"%s\"", error_text(), wanted);
}

static inline void append_be32(struct buffer *out, u32 value)
{
    u8 bytes[4] = {(u8)(value >> 24), (u8)(value >> 16), (u8)(value >> 8), (u8)value};
    buffer_append(out, bytes, 4);
}

static inline void append_le(struct buffer *out, u32 value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        u8 byte = (u8)(value >> (8 * i));
        buffer_append(out, &byte, 1);
    }
}

/* A PNG of 1 pixel. */
static inline void make_small_png(struct buffer *png)
{
    image_encode_png(png, (const u8[]){10, 20, 30}, 1, 1);
}

static inline void make_wav(struct buffer *wav, int format, int channels, int bits, u32 rate_hz, const void *data,
                            i64 bytes)
{
    u32 frame_bytes = (u32)(channels * bits / 8);
    buffer_append(wav, "RIFF", 4);
    append_le(wav, (u32)(36 + bytes), 4);
    buffer_append(wav, "WAVEfmt ", 8);
    append_le(wav, 16, 4);
    append_le(wav, (u32)format, 2);
    append_le(wav, (u32)channels, 2);
    append_le(wav, rate_hz, 4);
    append_le(wav, rate_hz * frame_bytes, 4);
    append_le(wav, frame_bytes, 2);
    append_le(wav, (u32)bits, 2);
    buffer_append(wav, "data", 4);
    append_le(wav, (u32)bytes, 4);
    buffer_append(wav, data, bytes);
}

#endif
