/* The vision input of the toy against plain loops in double: a ViT over the pixels of a picture's
 * or latent frame's cells, its output beside the encoder's features, both scaled to an RMS of 1,
 * attention among the 8 tokens of a position, which are then concatenated and projected. The
 * reference output is read through a sub-model without layers. */
#include <math.h>

#include "tests/test.h"
#include "tests/toy.h"

enum { SAMPLES = 9, VIT_LAYERS = 2, TOKENS = 2 * CELLS, ROWS_MOST = 64 };

static struct device device;
static struct arena arena;
static struct model model;

/* ---- Plain loops over rows of doubles ---- */

static double *rows(i64 n, i64 columns)
{
    return arena_alloc(&arena, n * columns * 8);
}

static double *times(const double *x, i64 n, const struct weight *w) /* x w^T */
{
    i64 in = w->columns, out = w->rows;
    float *values = toy_weight(&device, w);
    double *y = rows(n, out);
    for (i64 i = 0; i < n; i++)
        for (i64 o = 0; o < out; o++) {
            double sum = 0;
            for (i64 c = 0; c < in; c++)
                sum += x[i * in + c] * values[o * in + c];
            y[i * out + o] = sum;
        }
    memory_free(values);
    return y;
}

static double *normed(const double *x, i64 n, const struct weight *w)
{
    i64 width = w->columns;
    float *values = toy_weight(&device, w);
    double *y = rows(n, width);
    for (i64 i = 0; i < n; i++) {
        double squares = 0;
        for (i64 c = 0; c < width; c++)
            squares += x[i * width + c] * x[i * width + c];
        double scale = 1 / sqrt(squares / (double)width + model.config.norm_eps);
        for (i64 c = 0; c < width; c++)
            y[i * width + c] = x[i * width + c] * scale * values[c];
    }
    memory_free(values);
    return y;
}

static double *sum_of(const double *a, const double *b, i64 n)
{
    double *y = rows(n, 1);
    for (i64 i = 0; i < n; i++)
        y[i] = a[i] + b[i];
    return y;
}

static double *gated(const double *gate_up, i64 n, i64 width)
{
    double *y = rows(n, width);
    for (i64 i = 0; i < n * width; i++) {
        double gate = gate_up[i / width * 2 * width + i % width], up = gate_up[(i / width * 2 + 1) * width + i % width];
        y[i] = gate / (1 + exp(-gate)) * up;
    }
    return y;
}

/* Rotary embedding: pair j rotates by height for even j,
 * by width for odd j. at NULL: no rotation. */
static void turn(double *head, i64 width, const double *at)
{
    for (i64 j = 0; at && j < width / 2; j++) {
        double angle = at[j % 2] * pow(10000, -2.0 * (double)j / (double)width);
        double x = head[2 * j], y = head[2 * j + 1];
        head[2 * j] = x * cos(angle) - y * sin(angle);
        head[2 * j + 1] = x * sin(angle) + y * cos(angle);
    }
}

static void attend_from(double *out, const double *qkv, i64 n, i64 row, i64 head, i64 width, i64 all)
{
    double score[ROWS_MOST], total = 0;
    const double *q = qkv + row * 3 * all + head * width;
    for (i64 j = 0; j < n; j++) {
        const double *k = qkv + j * 3 * all + all + head * width;
        score[j] = 0;
        for (i64 d = 0; d < width; d++)
            score[j] += q[d] * k[d];
        score[j] = exp(score[j] / sqrt((double)width));
        total += score[j];
    }
    for (i64 d = 0; d < width; d++) {
        out[d] = 0;
        for (i64 j = 0; j < n; j++)
            out[d] += score[j] / total * qkv[j * 3 * all + 2 * all + head * width + d];
    }
}

/* Full attention among n rows. at: [n, 2] or NULL. */
static double *attended(double *qkv, i64 n, const double *at)
{
    i64 all = model.config.vit_width, heads = model.config.vit_heads, width = all / heads;
    double *out = rows(n, all);
    require(n <= ROWS_MOST, "%lld rows", (long long)n);
    for (i64 i = 0; i < n; i++)
        for (i64 head = 0; head < 2 * heads; head++) /* heads of q, then of k */
            turn(qkv + i * 3 * all + head * width, width, at ? at + 2 * i : NULL);
    for (i64 i = 0; i < n; i++)
        for (i64 head = 0; head < heads; head++)
            attend_from(out + i * all + head * width, qkv, n, i, head, width, all);
    return out;
}

/* ---- The formulas ---- */

/* ViT over the cells of `count` positions, entries [first, first + count) of the list. */
static double *vit(const struct batch *b, const struct input_list *in, i64 first, i64 count)
{
    const struct vision_in_weights *v = &model.vision_in;
    i64 n = count * CELLS, width = model.config.vit_width;
    double *pixels = rows(n, TOY_PATCH), *at = rows(n, 2);
    for (i64 i = 0; i < n * TOY_PATCH; i++)
        pixels[i] = in->pixels[first * CELLS * TOY_PATCH + i] / 127.5 - 1;
    for (i64 i = 0; i < n; i++) { /* centre of the cell, half a step from that of its position */
        const float *position = b->coordinates + 3 * in->position[first + i / CELLS];
        at[2 * i] = 2 * (double)position[1] + (i % CELLS < 2 ? -0.5 : 0.5);
        at[2 * i + 1] = 2 * (double)position[2] + (i % 2 ? 0.5 : -0.5);
    }
    double *x = times(pixels, n, v->patch);
    for (i64 layer = 0; layer < VIT_LAYERS; layer++) {
        const struct layer_weights *l = &v->layer[layer];
        double *heads = attended(times(normed(x, n, l->norm1), n, l->qkv), n, at);
        x = sum_of(x, times(heads, n, l->out), n * width);
        double *inside = gated(times(normed(x, n, l->norm2), n, l->gate_up), n, l->down->columns);
        x = sum_of(x, times(inside, n, l->down), n * width);
    }
    return normed(x, n, v->norm);
}

/* The tokens of a position: the encoder's features of its 4 cells, then the ViT's. */
static double *merged(const struct input_list *in, i64 entry, const double *seen)
{
    const struct vision_in_weights *v = &model.vision_in;
    i64 width = model.config.vit_width;
    double *cells = rows(CELLS, TOY_FEATURES), *tokens = rows(TOKENS, width);
    for (i64 i = 0; i < CELLS * TOY_FEATURES; i++)
        cells[i] = (double)in->features[entry * CELLS * TOY_FEATURES + i];
    memcpy(tokens, normed(times(cells, CELLS, v->features), CELLS, v->features_norm), (size_t)(CELLS * width) * 8);
    memcpy(tokens + CELLS * width, seen, (size_t)(CELLS * width) * 8);
    double *heads = attended(times(normed(tokens, TOKENS, v->merge_norm), TOKENS, v->merge_qkv), TOKENS, NULL);
    return times(sum_of(tokens, times(heads, TOKENS, v->merge_out), TOKENS * width), 1, v->project);
}

static float *entered(const struct batch *b) /* [n, C] */
{
    struct tape tape;
    struct forward out;
    struct submodel none;
    submodel_full(&none, &model.config);
    none.layer_count = 0;
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_clear(&tape, false);
    model_forward(&out, &tape, &model, b, &none, NULL);
    float *hidden = toy_tensor(&device, out.hidden);
    tape_close(&tape);
    return hidden;
}

static void check_position(const float *got, const double *want, i64 position)
{
    double size = 0;
    for (i64 c = 0; c < model.config.width; c++)
        size = fmax(size, fabs(want[c]));
    for (i64 c = 0; c < model.config.width; c++)
        if (!(fabs(got[c] - want[c]) <= 2e-5 * size))
            fail_msg("position %d, column %d: %.7g, expected %.7g", (int)position, (int)c, (double)got[c], want[c]);
}

TEST(what_enters_is_that_of_plain_loops)
{
    struct model_config c = toy_config(4, TOY_ALL);
    struct toy_batch b;
    i64 frames = 0;
    c.vit_layers = VIT_LAYERS;
    toy_open(&model, &device, &c, false);
    toy_batch_init(&b, &arena, SAMPLES, (struct rng_key){4, RNG_TEST}, 0);
    const struct input_list *in = &b.batch.inputs[INPUT_VISION_IN];
    const i32 *group = b.groups.group;
    float *hidden = entered(&b.batch);
    for (i64 first = 0, end; first < in->n; first = end, frames++) {
        for (end = first; end < in->n && group[in->position[end]] == group[in->position[first]];)
            end++;
        double *seen = vit(&b.batch, in, first, end - first);
        for (i64 i = first; i < end; i++)
            check_position(hidden + in->position[i] * c.width, merged(in, i, seen + (i - first) * CELLS * c.vit_width),
                           in->position[i]);
    }
    assert_true(frames > 4 && in->n > frames);
    memory_free(hidden);
    model_close(&model);
}

int main(void)
{
    device_open_cpu(&device);
    arena_open(&arena, (i64)1 << 30);
    return tests_run(NULL, NULL);
}
