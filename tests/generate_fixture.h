/* Shared by the tests of generation: the toy that makes every medium, the options of its decoder,
 * and whole samples with their answers, laid out and run as in training. */
#ifndef WEFT_GENERATE_FIXTURE_H
#define WEFT_GENERATE_FIXTURE_H
#include "model/generate.h"
#include "tests/device.h"
#include "tests/toy.h"

static struct device device; /* the CPU, then the guarded device */
static const float amplitude[3] = {0.5f, 0.4f, 0.3f};
static float *amplitude_there;
static int behind_the_wall;

static const i32 *audio_layers; /* of each level of the model's codes; NULL: the top layers */

static inline void make_model(struct model *model)
{
    struct model_config config = toy_config(4, TOY_TIED | TOY_MADE | TOY_AUDIO);
    for (i64 level = 0; audio_layers && level < TOY_LEVELS; level++)
        config.audio_layer[config.audio_layer_count++] = audio_layers[level];
    toy_open(model, &device, &config, false);
}

static inline struct decoder_options make_options(struct model *model, const struct submodel *sub)
{
    static const float *amplitudes[2];
    static const i64 grid[4] = {3, 3, 2, 2};
    amplitudes[0] = amplitudes[1] = amplitude_there;
    return (struct decoder_options){.model = model,
                                    .sub = sub,
                                    .vocabulary = &toy_vocabulary,
                                    .amplitude = amplitudes,
                                    .grid = grid,
                                    .sampling = {.temperature = 0, .top_p = 1, .key = {1, RNG_SAMPLING}}};
}

static inline void dequantize(float *inputs, const u8 *bits, i64 frames, const struct shape *shape)
{
    i64 edge = shape->scales[shape->scale_count - 1].h, bytes = frames * shape_tokens(shape) * TOY_BITS,
        values = frames * shape_positions(shape) * TOY_BITS * 4;
    u8 *coded = device_alloc(&device, bytes);
    float *there = device_alloc(&device, values);
    device_put(&device, coded, bits, bytes);
    device.ops->dequantize_bits(&device, there, NULL, coded, frames, edge, edge, TOY_BITS, shape->scales,
                                shape->scale_count, amplitude_there);
    device_get(&device, inputs, there, values);
    device_free(&device, coded, bytes);
    device_free(&device, there, values);
}

/* Lays the sample with its answer like the packer. */
static inline void lay_known(struct batch *b, struct arena *arena, const struct decoder_options *from,
                             const struct part *parts, i64 count, const struct media_block *medium)
{
    struct grammar g;
    const struct vocabulary *v = from->vocabulary;
    grammar_init(&g, v, &(struct grammar_options){.window = from->model->config.window});
    grammar_begin(&g);
    g.weight = 1;
    for (i64 i = 0; i < count; i++)
        assert_int_equal(grammar_part(&g, &parts[i]), 0);
    assert_int_equal(grammar_end(&g, TOY_END), 0);
    batch_init(b, arena, grammar_length(&g), &toy_widths);
    batch_lay(b, 0, &g, 0);
    if (medium->bits) {
        const struct shape *shape = &v->shapes[medium->shape];
        i64 rows = shape_positions(shape), at = 0;
        float *inputs = arena_alloc(arena, medium->frames * rows * TOY_BITS * 4);
        dequantize(inputs, medium->bits, medium->frames, shape);
        for (i64 i = 0; i < medium->frames * rows * TOY_BITS; i++)
            b->inputs[INPUT_VISION_OUT].features[at++] = inputs[i] * shape_input_scale(amplitude, shape->scale_count);
        memcpy(b->targets[TARGET_VISION].bits, medium->bits, (size_t)(medium->frames * shape_tokens(shape) * TOY_BITS));
    }
    if (medium->codes) {
        i64 n = medium->frames * TOY_LEVELS;
        memcpy(b->inputs[INPUT_AUDIO].ids, medium->codes, (size_t)n * 4);
        memcpy(b->targets[TARGET_AUDIO].ids, medium->codes, (size_t)n * 4);
        for (i64 l = 0; l < TOY_LEVELS; l++)
            b->inputs[INPUT_AUDIO].ids[n + l] = b->targets[TARGET_AUDIO].ids[n + l] = TOY_CODES;
    }
    grammar_release(&g);
}

static inline void forward_known(struct forward *out, struct tape *tape, struct model *model,
                                 const struct submodel *sub, const struct batch *b)
{
    tape_open(tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(tape, false);
    model_forward(out, tape, model, b, sub, NULL);
}

static int open_device(void **state)
{
    (void)state;
    (behind_the_wall ? device_open_guarded : test_device_open)(&device);
    amplitude_there = device_alloc(&device, sizeof amplitude);
    device_put(&device, amplitude_there, amplitude, sizeof amplitude);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_free(&device, amplitude_there, sizeof amplitude);
    device_close(&device);
    return 0;
}

#endif
