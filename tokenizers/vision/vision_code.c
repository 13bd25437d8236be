/* Batched encoding and decoding: pixels, latents and bits. */
#include "tokenizers/vision/vision.h"

#include <math.h>
#include <string.h>

/* One forward pass processes one piece: large enough to keep all workers busy, small enough to
 * stay near the caches.
 *
 * Long clips are cut in time, and each part starts CONTEXT latent frames early. The temporal
 * layers look back two frames before and two latent frames after the reduction (encoder), and two
 * latent frames before and two frames after the expansion (decoder). The first frame of a part is
 * treated as the beginning of a clip, so it must be farther away than that. */
enum { PART_LATENT = 32, CONTEXT = 4, PATCH = 4 };

static i64 clips_of_piece(i64 n, i64 frames, i64 height, i64 width)
{
    return max_i64(1, min_i64(n, VISION_PIECE_PIXELS / (frames * height * width)));
}

/* Reorders rows (time, n, positions) to (n, time, positions) in f32. */
static void get_rows(struct vision *vision, float *out, struct tensor *x, i64 frames, i64 n)
{
    struct tape *tape = &vision->tape;
    i64 positions = x->rows / (frames * n);
    const i64 shape[4] = {frames, n, positions, x->columns};
    const i64 order[4] = {1, 0, 2, 3};
    struct tensor *ordered = op_permute(tape, op_scale(tape, x, 1, DTYPE_F32), 4, shape, order, x->columns);
    device_get(vision->device, out, ordered->data, x->rows * x->columns * 4);
}

static void encode_piece(struct vision *vision, float *latent, float *features, const u8 *pixels,
                         struct vision_size size)
{
    struct tape *tape = &vision->tape;
    i64 frames = vision_latent_frames(size.frames);
    tape_clear(tape, false);
    struct tensor *f = vision_features(tape, vision, vision_patches(tape, vision, pixels, size), size);
    if (features)
        get_rows(vision, features, f, frames, size.n);
    if (latent)
        get_rows(vision, latent, vision_latent(tape, vision, f, size.frames > 1), frames, size.n);
}

/* Encodes one long clip in parts; the latents of the context are recomputed and dropped. */
static void encode_long(struct vision *vision, float *latent, float *features, const u8 *pixels,
                        struct vision_size size)
{
    i64 stride = vision->config.stride, cells = size.height / stride * (size.width / stride),
        c = vision->config.channels[1];
    i64 total = vision_latent_frames(size.frames), d = vision->config.bits, most = CONTEXT + PART_LATENT;
    float *latents = memory_alloc(most * cells * d * 4), *feature = memory_alloc(most * cells * c * 4);
    for (i64 begin = 0, skip; begin < total; begin += PART_LATENT) {
        skip = min_i64(begin, CONTEXT);
        i64 count = min_i64(PART_LATENT, total - begin), first = begin - skip;
        struct vision_size part = {1, vision_frames(skip + count), size.height, size.width};
        encode_piece(vision, latents, feature, pixels + VISION_GROUP * first * size.height * size.width * 3, part);
        if (latent)
            memcpy(latent + begin * cells * d, latents + skip * cells * d, (size_t)(count * cells * d) * 4);
        if (features)
            memcpy(features + begin * cells * c, feature + skip * cells * c, (size_t)(count * cells * c) * 4);
    }
    memory_free(latents);
    memory_free(feature);
}

void vision_encode(struct vision *vision, float *latent, float *features, const u8 *pixels, i64 n, i64 frames,
                   i64 height, i64 width)
{
    i64 stride = vision->config.stride, out = vision_latent_frames(frames) * (height / stride) * (width / stride);
    i64 d = vision->config.bits, c = vision->config.channels[1], count = clips_of_piece(n, frames, height, width);
    for (i64 i = 0; i < n; i += count) {
        struct vision_size size = {min_i64(count, n - i), frames, height, width};
        bool is_long = vision_latent_frames(frames) > CONTEXT + PART_LATENT;
        (is_long ? encode_long : encode_piece)(vision, latent ? latent + i * out * d : NULL,
                                               features ? features + i * out * c : NULL,
                                               pixels + i * frames * height * width * 3, size);
    }
}

/* ---- decoding ---- */

/* Converts patches of rows (time, n, h, w) to bytes [n, frames - skip, height, width, 3]. */
static void get_pixels(struct vision *vision, u8 *pixels, const struct tensor *patches, struct vision_size s, i64 skip)
{
    struct tape *tape = &vision->tape;
    struct device *device = vision->device;
    i64 frame = s.height * s.width * 3, bytes = s.n * s.frames * frame;
    const i64 shape[6] = {s.frames, s.n, s.height / PATCH, s.width / PATCH, PATCH, PATCH * 3};
    const i64 order[6] = {1, 0, 2, 4, 3, 5};
    u8 *narrow = tape_alloc(tape, bytes), *ordered = tape_alloc(tape, bytes);
    device->ops->narrow_bytes(device, narrow, tensor_matrix(patches), 1, 127.5f);
    device->ops->permute(device, ordered, narrow, DTYPE_U8, 6, shape, order);
    for (i64 i = 0; i < s.n; i++)
        device_get(device, pixels + i * (s.frames - skip) * frame, ordered + (i * s.frames + skip) * frame,
                   (s.frames - skip) * frame);
}

/* Decodes sum [n, T', positions, d]; the first `skip` frames of each clip are not stored. */
static void decode_piece(struct vision *vision, u8 *pixels, const float *sum, struct vision_size size, i64 skip)
{
    struct tape *tape = &vision->tape;
    i64 stride = vision->config.stride, frames = vision_latent_frames(size.frames), d = vision->config.bits;
    i64 positions = size.height / stride * (size.width / stride);
    const i64 shape[4] = {size.n, frames, positions, d};
    const i64 order[4] = {1, 0, 2, 3};
    tape_clear(tape, false);
    struct tensor *x = tape_tensor(tape, DTYPE_F32, size.n * frames * positions, d);
    device_put(vision->device, x->data, sum, x->rows * d * 4);
    x = op_permute(tape, x, 4, shape, order, d);
    get_pixels(vision, pixels, vision_pixels(tape, vision, x, size), size, skip);
}

static void decode_long(struct vision *vision, u8 *pixels, const float *sum, struct vision_size size)
{
    i64 stride = vision->config.stride, values = size.height / stride * (size.width / stride) * vision->config.bits;
    i64 total = vision_latent_frames(size.frames), frame_bytes = size.height * size.width * 3;
    for (i64 begin = 0; begin < total; begin += PART_LATENT) {
        i64 skip = min_i64(begin, CONTEXT), count = min_i64(PART_LATENT, total - begin);
        struct vision_size part = {1, vision_frames(skip + count), size.height, size.width};
        i64 skip_frames = skip ? vision_frames(skip) : 0, first_frame = begin ? vision_frames(begin) : 0;
        decode_piece(vision, pixels + first_frame * frame_bytes, sum + (begin - skip) * values, part, skip_frames);
    }
}

void vision_decode(struct vision *vision, u8 *pixels, const float *sum, i64 n, i64 latent_frames, i64 h, i64 w)
{
    i64 stride = vision->config.stride, frames = vision_frames(latent_frames), height = h * stride, width = w * stride;
    i64 count = clips_of_piece(n, frames, height, width);
    for (i64 i = 0; i < n; i += count) {
        struct vision_size size = {min_i64(count, n - i), frames, height, width};
        u8 *out = pixels + i * frames * height * width * 3;
        const float *in = sum + i * latent_frames * h * w * vision->config.bits;
        if (latent_frames > CONTEXT + PART_LATENT)
            decode_long(vision, out, in, size);
        else
            decode_piece(vision, out, in, size, 0);
    }
}

/* ---- bits ---- */

const float *vision_amplitude(const struct vision *vision, const struct vision_shape *shape)
{
    return (const float *)vision->at.amplitude->value.data + shape->amplitude * VISION_SCALES_MOST;
}

/* Buffers on the tape for n latent frames at once: bits [n, tokens, d], latent and sum [n, h, w,
 * d]. */
struct vision_code_coded {
    i64 n, bits_count, values;
    u8 *bits;
    float *latent, *sum;
};

static struct vision_code_coded open_coded(struct vision *vision, i64 n, const struct vision_shape *shape)
{
    struct tape *tape = &vision->tape;
    i64 stride = vision->config.stride, d = vision->config.bits;
    struct vision_code_coded c = {.n = clips_of_piece(n, 1, shape->h * stride, shape->w * stride),
                                  .bits_count = vision_tokens(shape) * d,
                                  .values = shape->h * shape->w * d};
    tape_clear(tape, false);
    c.bits = tape_alloc(tape, c.n * c.bits_count);
    c.latent = tape_alloc(tape, c.n * c.values * 4);
    c.sum = tape_alloc(tape, c.n * c.values * 4);
    return c;
}

void vision_quantize(struct vision *vision, u8 *bits, float *sum, const float *latent, i64 n,
                     const struct vision_shape *shape)
{
    struct device *device = vision->device;
    struct vision_code_coded c = open_coded(vision, n, shape);
    for (i64 i = 0; i < n; i += c.n) {
        i64 count = min_i64(c.n, n - i);
        device_put(device, c.latent, latent + i * c.values, count * c.values * 4);
        device->ops->quantize_bits(device, c.bits, c.sum, NULL, c.latent, NULL, count, shape->h, shape->w,
                                   vision->config.bits, shape->scales, shape->scale_count,
                                   vision_amplitude(vision, shape));
        device_get(device, bits + i * c.bits_count, c.bits, count * c.bits_count);
        device_get(device, sum + i * c.values, c.sum, count * c.values * 4);
    }
}

void vision_dequantize(struct vision *vision, float *sum, const u8 *bits, i64 n, const struct vision_shape *shape)
{
    struct device *device = vision->device;
    struct vision_code_coded c = open_coded(vision, n, shape);
    i64 d = vision->config.bits, first = scale_positions(shape->scales[0]);
    float *inputs = tape_alloc(&vision->tape, c.n * (vision_tokens(shape) - first + 1) * d * 4);
    for (i64 i = 0; i < n; i += c.n) {
        i64 count = min_i64(c.n, n - i);
        device_put(device, c.bits, bits + i * c.bits_count, count * c.bits_count);
        device->ops->dequantize_bits(device, inputs, c.sum, c.bits, count, shape->h, shape->w, d, shape->scales,
                                     shape->scale_count, vision_amplitude(vision, shape));
        device_get(device, sum + i * c.values, c.sum, count * c.values * 4);
    }
}

void vision_reconstruct(struct vision *vision, u8 *out, u8 *bits, const u8 *pixels, i64 n,
                        const struct vision_shape *shape)
{
    i64 frames = n * shape->latent_frames, values = frames * shape->h * shape->w * vision->config.bits;
    float *latent = memory_alloc(values * 4), *sum = memory_alloc(values * 4);
    u8 *own = bits ? NULL : memory_alloc(frames * vision_tokens(shape) * vision->config.bits);
    vision_encode(vision, latent, NULL, pixels, n, shape->frames, shape->height, shape->width);
    vision_quantize(vision, bits ? bits : own, sum, latent, frames, shape);
    vision_decode(vision, out, sum, n, shape->latent_frames, shape->h, shape->w);
    memory_free(latent);
    memory_free(sum);
    memory_free(own);
}

double vision_square_error(const u8 *a, const u8 *b, i64 count)
{
    i64 sum = 0;
    for (i64 i = 0; i < count; i++) {
        i32 difference = (i32)a[i] - (i32)b[i];
        sum += (i64)difference * difference;
    }
    return (double)sum / (255.0 * 255.0) / (double)max_i64(count, 1);
}

double vision_psnr(double square_error)
{
    return square_error > 0 ? -10 * log10(square_error) : INFINITY;
}
