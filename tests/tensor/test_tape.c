/* The tape: the backward of every op of tensor/ops.h against central differences of its forward. A
 * case that calls an op twice on the same tensors also checks that the second gradient adds to the
 * first. */
#include "core/core.h"
#include "tensor/ops.h"
#include "tests/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAVES = 3, ROWS_MOST = 64, VALUES_MOST = 256 };
static const double step = 4e-3, tolerance = 2e-3;
static struct device device;

struct tape_trial {
    struct tape tape;
    struct tensor x[LEAVES];
    float weight[ROWS_MOST];
    float *coefficient, *noise; /* copies in device memory: the weights, and VALUES_MOST of noise */
    double objective;
};
struct tape_case {
    const char *ops; /* name of the op, or of several used together */
    void (*run)(struct tape_trial *t);
    int runs;
    struct {
        i64 rows, columns, parts;
    } leaves[LEAVES];
};

static float random_float(u32 a, u32 b)
{
    return (float)(2 * rng_uniform((struct rng_key){11, RNG_TEST}, a, b, 0, 0) - 1);
}

/* Copies an operand to device memory; valid until the trial's tape is cleared. */
#define PUT(t, values) put(t, values, sizeof(values))
static void *put(struct tape_trial *t, const void *values, i64 bytes)
{
    void *out = tape_stage_copy(&t->tape, values, bytes);
    tape_put(&t->tape);
    return out;
}

static void add_loss(struct tape_trial *t, const float *value, i64 n)
{
    float values[ROWS_MOST];
    assert_true(n <= ROWS_MOST);
    device_get(t->tape.device, values, value, n * 4);
    for (i64 i = 0; i < n; i++)
        t->objective += (double)t->weight[i] * (double)values[i];
}

/* Adds the objective of an op with an output: its L2 distance to noise. */
static void finish(struct tape_trial *t, struct tensor *y)
{
    assert_true(y->rows * y->columns <= VALUES_MOST);
    struct tensor *target = op_borrow(&t->tape, t->noise, DTYPE_F32, y->rows, y->columns);
    struct loss loss = op_distance(&t->tape, y, target, DISTANCE_L2, t->coefficient);
    add_loss(t, loss.value, loss.n);
}

/* ---- the cases ---- */

static void run_linear(struct tape_trial *t)
{
    finish(t, op_linear(&t->tape, &t->x[0], &t->x[1], DTYPE_F32));
}

static struct tensor *constant(struct tape_trial *t, i64 rows, i64 columns)
{
    assert_true(rows * columns <= VALUES_MOST);
    return op_borrow(&t->tape, t->noise, DTYPE_F32, rows, columns);
}

static void finish_experts(struct tape_trial *t, struct tensor *y, const struct routing *r, struct tensor *a,
                           struct tensor *b)
{
    struct tensor *out = tape_tensor(&t->tape, DTYPE_F32, r->n, y->columns);
    op_combine(&t->tape, out, y, r, a, b);
    finish(t, out);
}

static void run_experts(struct tape_trial *t)
{
    static const i32 chosen[] = {0, 2, 1, 3, 2, 0, 3, 1, 0, 1};
    static const u8 counted[5];
    const struct routing_inputs in = {.counted = PUT(t, counted), .replay = PUT(t, chosen), .router = {2, 1e-6f}};
    struct routing *r = op_route(&t->tape, constant(t, 5, 4), &in);
    struct expert_rows rows = op_dispatch(&t->tape, &t->x[0], r);
    finish_experts(t, op_linear_grouped(&t->tape, rows.x, &t->x[1], rows.groups), r, NULL, &t->x[0]);
}

/* Gathered rows against copied rows. */
static void run_gated_experts(struct tape_trial *t)
{
    static const i32 chosen[] = {0, 2, 1, 3, 2, 0, 3, 1, 0, 1};
    static const u8 counted[5];
    const struct routing_inputs in = {.counted = PUT(t, counted), .replay = PUT(t, chosen), .router = {2, 1e-6f}};
    struct routing *r = op_route(&t->tape, &t->x[0], &in);
    struct expert_rows sorted = op_sorted(&t->tape, &t->x[1], r), copied = op_dispatch(&t->tape, &t->x[1], r);
    struct tensor *first = op_linear_grouped_swiglu(&t->tape, &sorted, &t->x[2]);
    struct tensor *second = op_linear_grouped_swiglu(&t->tape, &copied, &t->x[2]);
    finish_experts(t, op_add(&t->tape, first, second), r, NULL, NULL);
}

static void run_bias(struct tape_trial *t)
{
    finish(t, op_bias(&t->tape, &t->x[0], &t->x[1]));
}

static void run_conv(struct tape_trial *t)
{
    const struct conv conv = {1, 2, 3, {2, 3, 3}, {2, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}};
    finish(t, op_conv(&t->tape, &t->x[0], &t->x[1], &conv));
}

static void run_rmsnorm(struct tape_trial *t)
{
    finish(t, op_rmsnorm(&t->tape, &t->x[0], &t->x[1], 1e-5f));
    finish(t, op_rmsnorm(&t->tape, &t->x[0], NULL, 1e-5f));
}

static void run_add_rmsnorm(struct tape_trial *t)
{
    struct tensor *made = op_scale(&t->tape, &t->x[1], 1, DTYPE_F32), *sum;
    struct tensor *y = op_add_rmsnorm(&t->tape, &sum, &t->x[0], made, &t->x[2], 1e-5f);
    finish(t, sum);
    finish(t, y);
}

static void run_add(struct tape_trial *t)
{
    finish(t, op_add(&t->tape, &t->x[0], &t->x[1]));
}

static void run_add_onto(struct tape_trial *t)
{
    finish(t, op_add_onto(&t->tape, op_scale(&t->tape, &t->x[1], 1, DTYPE_F32), &t->x[0]));
}

static void run_add_to_itself(struct tape_trial *t)
{
    finish(t, op_add(&t->tape, &t->x[0], &t->x[0]));
}

/* Gradients that share memory: one is accumulated into before the others are read, another
 * afterwards. */
static void run_sums(struct tape_trial *t)
{
    struct tape *tape = &t->tape;
    struct tensor *sum = op_add(tape, &t->x[0], &t->x[1]);
    struct tensor *more = op_add(tape, sum, op_activate(tape, op_scale(tape, sum, 0.7f, DTYPE_F32), ACTIVATION_SILU));
    struct tensor *viewed = op_view(tape, op_add(tape, op_add(tape, more, &t->x[1]), more), 3);
    finish(t, viewed);
    finish(t, op_activate(tape, more, ACTIVATION_GELU));
}

static void run_scale(struct tape_trial *t)
{
    finish(t, op_scale(&t->tape, &t->x[0], 0.7f, DTYPE_F32));
}

static void run_norm_linear(struct tape_trial *t)
{
    finish(t, op_norm_linear(&t->tape, &t->x[0], &t->x[1], 1e-5f, &t->x[2], DTYPE_F32));
}

static void run_linear_swiglu(struct tape_trial *t)
{
    finish(t, op_linear_swiglu(&t->tape, &t->x[0], &t->x[1]));
}

static void run_add_linear(struct tape_trial *t)
{
    finish(t, op_add_linear(&t->tape, &t->x[0], &t->x[1], &t->x[2]));
}

/* A constant operand has no gradient. */
static void run_add_linear_norm(struct tape_trial *t)
{
    struct tensor *sum, *norm = constant(t, 1, 3);
    struct tensor *n = op_add_linear_norm(&t->tape, &sum, &t->x[0], &t->x[1], &t->x[2], norm, 1e-5f);
    finish(t, sum);
    finish(t, op_linear(&t->tape, n, constant(t, 4, 3), DTYPE_F32));
    finish(t, op_linear_swiglu(&t->tape, n, constant(t, 4, 3)));
}

static void run_linear_exact(struct tape_trial *t)
{
    finish(t, op_linear_exact(&t->tape, &t->x[0], &t->x[1]));
}

static void run_swiglu(struct tape_trial *t)
{
    finish(t, op_swiglu(&t->tape, &t->x[0]));
}

static void run_activate(struct tape_trial *t)
{
    finish(t, op_activate(&t->tape, &t->x[0], ACTIVATION_SILU));
    finish(t, op_activate(&t->tape, &t->x[0], ACTIVATION_GELU));
}

static void run_permute(struct tape_trial *t)
{
    finish(t, op_permute(&t->tape, &t->x[0], 3, (const i64[]){2, 3, 4}, (const i64[]){1, 2, 0}, 4));
}

static void run_view(struct tape_trial *t)
{
    finish(t, op_view(&t->tape, &t->x[0], 2));
}

static void run_rows(struct tape_trial *t)
{
    finish(t, op_add(&t->tape, op_rows(&t->tape, &t->x[0], 3, 2), op_rows(&t->tape, &t->x[0], 2, 2)));
}

static void run_concat(struct tape_trial *t)
{
    struct tensor *const parts[] = {&t->x[0], &t->x[1]};
    finish(t, op_concat(&t->tape, parts, 2));
}

static void run_gather(struct tape_trial *t)
{
    static const i32 index[] = {2, 0, -1, 2, 1};
    finish(t, op_gather(&t->tape, &t->x[0], PUT(t, index), COUNT_OF(index)));
}

/* The second call adds to the gradient of the first. */
static void run_select(struct tape_trial *t)
{
    static const i32 index[] = {4, -1, 0, 2}, other[] = {0, 1};
    finish(t, op_select(&t->tape, &t->x[0], PUT(t, index), COUNT_OF(index)));
    finish(t, op_select(&t->tape, &t->x[0], PUT(t, other), COUNT_OF(other)));
}

static void run_place(struct tape_trial *t)
{
    static const i32 first[] = {4, 0}, second[] = {1, -1, 5};
    const struct placement places[] = {{&t->x[0], PUT(t, first)}, {&t->x[1], PUT(t, second)}};
    finish(t, op_place(&t->tape, 6, 3, DTYPE_F32, places, 2));
}

static struct attention attention_of_six(struct tape_trial *t)
{
    static const i32 query[] = {0, 1, 2, 3, 4, 5}, end[] = {6, 6, 6, 6, 6, 6};
    static const i32 hole_begin[] = {0, 3, 0, 0, 0, 0}, hole_end[] = {0, 5, 0, 0, 0, 0};
    const i32 *at = PUT(t, query);
    return (struct attention){.heads = 2,
                              .kv_heads = 1,
                              .width = 4,
                              .theta = 100,
                              .t_pairs = 1,
                              .positions = t->noise,
                              .intervals = {6, 6, at, at, PUT(t, end), PUT(t, hole_begin), PUT(t, hole_end)}};
}

/* The op rotates its input in place, so it gets a copy. */
static void run_attention(struct tape_trial *t)
{
    const struct attention a = attention_of_six(t);
    finish(t, op_attention(&t->tape, op_scale(&t->tape, &t->x[0], 1, DTYPE_F32), &a));
}

/* Without recording, it uses a cache that holds only these positions. */
static void run_norm_attention(struct tape_trial *t)
{
    struct attention a = attention_of_six(t);
    float *kept = tape_alloc(&t->tape, 2 * 6 * 4 * 4);
    const struct attention_cache cache = {matrix_of(kept, DTYPE_F32, 6, 4), matrix_of(kept + 24, DTYPE_F32, 6, 4)};
    if (!t->tape.recording) {
        a.cache = &cache;
        a.cache_row = a.intervals.query;
    }
    finish(t, op_norm_attention(&t->tape, &t->x[0], &t->x[1], 1e-5f, &t->x[2], &a));
}

static void run_cross_entropy(struct tape_trial *t)
{
    static const i32 target[] = {1, 4, 0};
    struct loss loss = op_cross_entropy(&t->tape, &t->x[0], PUT(t, target), t->coefficient, false, NULL);
    add_loss(t, loss.value, loss.n);
}

static void run_linear_cross_entropy(struct tape_trial *t)
{
    static const i32 target[] = {1, 4, -100};
    struct loss loss =
        op_linear_cross_entropy(&t->tape, &t->x[0], &t->x[1], PUT(t, target), t->coefficient, false, NULL);
    add_loss(t, loss.value, loss.n);
}

static void run_bit_cross_entropy(struct tape_trial *t)
{
    static const u8 bits[] = {1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0};
    struct loss loss = op_bit_cross_entropy(&t->tape, &t->x[0], PUT(t, bits), t->coefficient, false, NULL);
    add_loss(t, loss.value, loss.n);
}

/* The mixed loss less the teacher's entropy, which is constant. */
static const float teacher_weights[] = {0.75f, 0, 1};
static void add_mixed_loss(struct tape_trial *t, const struct loss *loss)
{
    float hard[3], soft[3];
    assert_int_equal(loss->n, 3);
    device_get(t->tape.device, hard, loss->value, sizeof hard);
    device_get(t->tape.device, soft, loss->divergence, sizeof soft);
    for (int i = 0; i < 3; i++) {
        double weight = (double)teacher_weights[i];
        t->objective += (double)t->weight[i] * ((1 - weight) * (double)hard[i] + weight * (double)soft[i]);
    }
}

static void run_soft_cross_entropy(struct tape_trial *t)
{
    static const i32 target[] = {1, 4, 0};
    const struct soft_targets soft = {constant(t, 3, 5), PUT(t, teacher_weights)};
    struct loss loss = op_cross_entropy(&t->tape, &t->x[0], PUT(t, target), t->coefficient, false, &soft);
    add_mixed_loss(t, &loss);
}

/* By h alone: a weight of the head moves the teacher too. */
static void run_soft_linear_cross_entropy(struct tape_trial *t)
{
    static const i32 target[] = {1, 4, 2};
    const struct soft_targets soft = {constant(t, 3, 4), PUT(t, teacher_weights)};
    struct loss loss =
        op_linear_cross_entropy(&t->tape, &t->x[0], constant(t, 5, 4), PUT(t, target), t->coefficient, false, &soft);
    add_mixed_loss(t, &loss);
}

static void run_soft_bit_cross_entropy(struct tape_trial *t)
{
    static const u8 bits[] = {1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0};
    const struct soft_targets soft = {constant(t, 3, 4), PUT(t, teacher_weights)};
    struct loss loss = op_bit_cross_entropy(&t->tape, &t->x[0], PUT(t, bits), t->coefficient, false, &soft);
    add_mixed_loss(t, &loss);
}

static void run_distance(struct tape_trial *t)
{
    struct tensor *y = op_borrow(&t->tape, t->noise, DTYPE_F32, t->x[0].rows, t->x[0].columns);
    for (int kind = DISTANCE_L1; kind <= DISTANCE_L2; kind++) {
        struct loss loss = op_distance(&t->tape, &t->x[0], y, (enum distance)kind, t->coefficient);
        add_loss(t, loss.value, loss.n);
    }
}

/* Away from the least, above which the derivative of the logarithms' distance is the true one, and from the target. */
static void run_distance_of_logarithms(struct tape_trial *t)
{
    static const float three[] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, far[] = {9, 0, 9, 0, 9, 0, 9, 0, 9, 0, 9, 0};
    struct tensor *x = op_add(&t->tape, &t->x[0], op_borrow(&t->tape, PUT(t, three), DTYPE_F32, 3, 4));
    struct tensor *y = op_borrow(&t->tape, PUT(t, far), DTYPE_F32, 3, 4);
    struct loss loss = op_distance(&t->tape, x, y, DISTANCE_LOG, t->coefficient);
    add_loss(t, loss.value, loss.n);
}

static void run_stft_magnitude(struct tape_trial *t)
{
    finish(t, op_stft_magnitude(&t->tape, &t->x[0], 8, 2));
}

/* Of magnitudes. */
static void run_log1p(struct tape_trial *t)
{
    finish(t, op_log1p(&t->tape, op_stft_magnitude(&t->tape, &t->x[0], 8, 2), 0.3f));
}

static void run_polar(struct tape_trial *t)
{
    finish(t, op_polar(&t->tape, &t->x[0]));
}

/* Two signals of three spectra. */
static void run_stft_inverse(struct tape_trial *t)
{
    finish(t, op_stft_inverse(&t->tape, &t->x[0], 2, 8, 2));
}

/* Three groups of two rows, each with a weight of one. */
static void run_convergence(struct tape_trial *t)
{
    struct loss loss = op_convergence(&t->tape, &t->x[0], constant(t, 6, 5), 2, 0.5f);
    float values[3];
    assert_int_equal(loss.n, 3);
    device_get(t->tape.device, values, loss.value, sizeof values);
    for (i64 i = 0; i < loss.n; i++)
        t->objective += 0.5 * (double)values[i];
}

/* The loss is the sum of the products with the gradient that is given. */
static void run_add_gradient(struct tape_trial *t)
{
    struct tensor *given = constant(t, 3, 4);
    float x[12], g[12];
    device_get(t->tape.device, x, t->x[0].data, sizeof x);
    device_get(t->tape.device, g, given->data, sizeof g);
    op_add_gradient(&t->tape, &t->x[0], tensor_matrix(given));
    for (i64 i = 0; i < COUNT_OF(x); i++)
        t->objective += (double)x[i] * (double)g[i];
}

static void run_bit_entropy(struct tape_trial *t)
{
    static const struct scale scales[] = {{1, 1}, {2, 2}};
    static const float amplitudes[] = {0.5f, 0.25f};
    const float *amplitude = PUT(t, amplitudes);
    const struct bit_grid grid = {1, 2, 2, scales, 2, amplitude, 1.5f};
    u8 *bits = tape_alloc(&t->tape, 5 * 3);
    float *sum = tape_alloc(&t->tape, 4 * 3 * 4), *u = tape_alloc(&t->tape, 5 * 3 * 4);
    t->tape.device->ops->quantize_bits(t->tape.device, bits, sum, u, t->x[0].data, NULL, 1, 2, 2, 3, scales, 2,
                                       amplitude);
    add_loss(t, op_bit_entropy(&t->tape, &t->x[0], u, &grid, t->coefficient).value, 1);
}

/* With its own values substituted, the gradient is the true one. */
static void run_straight_through(struct tape_trial *t)
{
    struct tensor *y = op_borrow(&t->tape, t->x[0].data, DTYPE_F32, t->x[0].rows, t->x[0].columns);
    finish(t, op_straight_through(&t->tape, &t->x[0], y));
}

/* On a GPU without recording this takes 2 launches; gradients are those of the separate ops. */
static void run_skinny_experts(struct tape_trial *t)
{
    static const i32 chosen[] = {0, 2, 1, -1, 2, 3, -1, -1, 0, 1};
    static const u8 counted[5];
    struct tape *tape = &t->tape;
    const struct routing_inputs in = {.counted = PUT(t, counted), .replay = PUT(t, chosen), .router = {2, 1e-6f}};
    const struct experts e = {&t->x[1], &t->x[2], constant(t, 10, 4), constant(t, 4, 5)};
    struct tensor *sum,
        *n = op_add_linear_norm(tape, &sum, &t->x[0], &t->x[0], constant(t, 4, 4), constant(t, 1, 4), 1e-5f);
    bool skinny = op_takes_skinny_experts(tape, n, 2, &e);
    assert_int_equal(skinny, device_is_gpu(tape->device) && !tape->recording);
    struct tensor *shared =
        skinny ? NULL : op_linear(tape, op_linear_swiglu(tape, n, e.shared_gate_up), e.shared_down, DTYPE_F32);
    struct routing *r = op_route(tape, op_linear_exact(tape, n, constant(t, 4, 4)), &in);
    if (skinny) {
        finish(t, op_skinny_experts(tape, sum, n, r, &e));
        return;
    }
    struct expert_rows rows = op_sorted(tape, n, r);
    struct tensor *inside = op_linear_grouped_swiglu(tape, &rows, e.gate_up);
    finish_experts(t, op_linear_grouped(tape, inside, e.down, rows.groups), r, sum, shared);
}

static const struct tape_case cases[] = {
    {"linear", run_linear, 2, {{5, 4}, {3, 4}}},
    {"dispatch linear_grouped combine", run_experts, 1, {{5, 3}, {12, 3, 4}}},
    {"route sorted dispatch linear_grouped_swiglu combine", run_gated_experts, 1, {{5, 4}, {5, 3}, {24, 3, 4}}},
    {"bias", run_bias, 2, {{5, 4}, {1, 4}}},
    {"conv", run_conv, 2, {{18, 2}, {3, 36}}},
    {"rmsnorm", run_rmsnorm, 2, {{5, 6}, {1, 6}}},
    {"add_rmsnorm", run_add_rmsnorm, 2, {{5, 6}, {5, 6}, {1, 6}}},
    {"add", run_add, 2, {{5, 6}, {5, 6}}},
    {"add_onto", run_add_onto, 2, {{5, 6}, {5, 6}}},
    {"add", run_add_to_itself, 2, {{5, 6}}},
    {"add", run_sums, 2, {{5, 6}, {5, 6}}},
    {"scale", run_scale, 2, {{5, 6}}},
    {"norm_linear", run_norm_linear, 3, {{5, 4}, {1, 4}, {3, 4}}},
    {"linear_swiglu", run_linear_swiglu, 2, {{5, 4}, {6, 4}}},
    {"add_linear", run_add_linear, 3, {{5, 3}, {5, 4}, {3, 4}}},
    {"add_linear_norm", run_add_linear_norm, 2, {{5, 3}, {5, 4}, {3, 4}}},
    {"takes_skinny_experts skinny_experts", run_skinny_experts, 1, {{5, 4}, {24, 4, 4}, {16, 3, 4}}},
    {"linear_exact", run_linear_exact, 2, {{5, 4}, {3, 4}}},
    {"swiglu", run_swiglu, 1, {{5, 6}}},
    {"activate", run_activate, 2, {{5, 6}}},
    {"permute", run_permute, 2, {{6, 4}}},
    {"view", run_view, 2, {{6, 4}}},
    {"rows", run_rows, 2, {{6, 4}}},
    {"concat", run_concat, 2, {{4, 2}, {4, 3}}},
    {"gather", run_gather, 2, {{3, 4}}},
    {"select", run_select, 2, {{5, 4}}},
    {"place", run_place, 2, {{2, 3}, {3, 3}}},
    {"attention", run_attention, 2, {{6, 16}}},
    {"norm_attention", run_norm_attention, 2, {{6, 4}, {1, 4}, {16, 4}}},
    {"cross_entropy", run_cross_entropy, 1, {{3, 5}}},
    {"linear_cross_entropy", run_linear_cross_entropy, 2, {{3, 4}, {5, 4}}},
    {"bit_cross_entropy", run_bit_cross_entropy, 1, {{3, 4}}},
    {"cross_entropy", run_soft_cross_entropy, 1, {{3, 5}}},
    {"linear_cross_entropy", run_soft_linear_cross_entropy, 1, {{3, 4}}},
    {"bit_cross_entropy", run_soft_bit_cross_entropy, 1, {{3, 4}}},
    {"distance", run_distance, 2, {{3, 4}}},
    {"distance", run_distance_of_logarithms, 2, {{3, 4}}},
    {"convergence", run_convergence, 2, {{6, 5}}},
    {"polar", run_polar, 2, {{5, 6}}},
    {"stft_magnitude", run_stft_magnitude, 2, {{2, 12}}},
    {"log1p stft_magnitude", run_log1p, 2, {{2, 12}}},
    {"stft_inverse", run_stft_inverse, 2, {{6, 10}}},
    {"bit_entropy", run_bit_entropy, 2, {{4, 3}}},
    {"straight_through", run_straight_through, 2, {{3, 4}}},
    {"add_gradient", run_add_gradient, 2, {{3, 4}}},
};

/* ---- gradients ---- */

static double objective(struct tape_trial *t, const struct tape_case *c, bool recording)
{
    tape_clear(&t->tape, recording);
    t->objective = 0;
    for (int i = 0; i < c->runs; i++)
        c->run(t);
    return t->objective;
}

static float *draw_floats(u32 stream, i64 count)
{
    float *values = memory_alloc(count * 4);
    for (i64 i = 0; i < count; i++)
        values[i] = random_float(stream, (u32)i);
    float *out = to_device(&device, values, count * 4);
    memory_free(values);
    return out;
}

static void open_trial(struct tape_trial *t, const struct tape_case *c)
{
    memset(t, 0, sizeof *t);
    tape_open(&t->tape, &device, DTYPE_F32, 1 << 22);
    for (u32 i = 0; i < ROWS_MOST; i++)
        t->weight[i] = 1 + 0.5f * random_float(0, i);
    t->coefficient = to_device(&device, t->weight, sizeof t->weight);
    t->noise = draw_floats(1, VALUES_MOST);
    for (u32 k = 0; k < LEAVES && c->leaves[k].rows; k++) {
        i64 rows = c->leaves[k].rows, columns = c->leaves[k].columns, parts = c->leaves[k].parts;
        float *data = draw_floats(2 + k, rows * columns);
        t->x[k] =
            (struct tensor){.data = data, .rows = rows, .columns = columns, .needs_grad = true, .matrices = parts};
        t->x[k].dtype = t->x[k].grad_dtype = DTYPE_F32;
        if (!parts)
            continue;
        t->x[k].matrices_written = device_alloc(&device, parts);
        t->x[k].grad = device_alloc(&device, rows * columns * 4);
        device.ops->zero(&device, t->x[k].matrices_written, parts);
    }
}

/* The objective with element i of input k replaced by `value`. */
static double objective_at(struct tape_trial *t, const struct tape_case *c, int k, i64 i, float value)
{
    device_put(t->tape.device, (float *)t->x[k].data + i, &value, 4);
    return objective(t, c, false);
}

static void check_leaf(struct tape_trial *t, const struct tape_case *c, int k, const float *gradient)
{
    i64 count = t->x[k].rows * t->x[k].columns;
    float *data = to_host(t->tape.device, t->x[k].data, count * 4), most = 0.1f;
    for (i64 i = 0; i < count; i++)
        most = fmaxf(most, fabsf(gradient[i]));
    for (i64 i = 0; i < count; i++) {
        double above = objective_at(t, c, k, i, data[i] + (float)step);
        double slope = (above - objective_at(t, c, k, i, data[i] - (float)step)) / (2 * step);
        device_put(t->tape.device, (float *)t->x[k].data + i, &data[i], 4);
        if (!(fabs(slope - (double)gradient[i]) <= tolerance * (double)most))
            fail_msg("%s: element %d of input %d: gradient %g, by differences %g", c->ops, (int)i, k,
                     (double)gradient[i], slope);
    }
    memory_free(data);
}

static void close_trial(struct tape_trial *t)
{
    for (int k = 0; k < LEAVES; k++) {
        i64 bytes = t->x[k].rows * t->x[k].columns * 4;
        device_free(&device, t->x[k].data, bytes);
        device_free(&device, t->x[k].matrices_written, t->x[k].matrices);
        if (t->x[k].matrices)
            device_free(&device, t->x[k].grad, bytes);
    }
    device_free(&device, t->coefficient, sizeof t->weight);
    device_free(&device, t->noise, VALUES_MOST * 4);
    tape_close(&t->tape);
}

static void check_case(const struct tape_case *c)
{
    static struct tape_trial t;
    float *gradients[LEAVES] = {NULL};
    open_trial(&t, c);
    objective(&t, c, true);
    tape_backward(&t.tape);
    for (int k = 0; k < LEAVES && t.x[k].data; k++) {
        assert_non_null(t.x[k].grad);
        gradients[k] = to_host(&device, t.x[k].grad, t.x[k].rows * t.x[k].columns * 4);
    }
    for (int k = 0; k < LEAVES && t.x[k].data; k++) {
        check_leaf(&t, c, k, gradients[k]);
        memory_free(gradients[k]);
    }
    close_trial(&t);
}

TEST(gradients_match_differences)
{
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        check_case(&cases[i]);
}

/* ---- fused linear cross entropy: row chunks against the whole ---- */

enum { HEAD_ROWS = 2300, HEAD_WIDTH = 8, HEAD_IDS = 40 };
struct head_trial {
    struct tape tape;
    struct tensor h, w, teacher;
    i32 *target;
    float *coefficient, *weight;
    float *loss, *dh, *dw, *divergence; /* host memory; divergence NULL: no teacher */
};

static struct tensor leaf(u32 stream, i64 rows, i64 columns)
{
    return (struct tensor){.data = draw_floats(stream, rows * columns),
                           .rows = rows,
                           .columns = columns,
                           .dtype = DTYPE_F32,
                           .grad_dtype = DTYPE_F32,
                           .needs_grad = true};
}

static void run_head(struct head_trial *t, bool chunks, bool taught)
{
    struct soft_targets soft = {&t->teacher, NULL}, *teacher = taught ? &soft : NULL;
    i32 target[HEAD_ROWS];
    for (i64 i = 0; i < HEAD_ROWS; i++)
        target[i] = i % 7 == 3 ? -100 : (i32)(i * 31 % HEAD_IDS);
    tape_open(&t->tape, &device, DTYPE_F32, 1 << 24);
    tape_clear(&t->tape, true);
    t->h = leaf(2, HEAD_ROWS, HEAD_WIDTH);
    t->w = leaf(3, HEAD_IDS, HEAD_WIDTH);
    t->coefficient = draw_floats(4, HEAD_ROWS);
    soft.weight = t->weight = draw_floats(6, HEAD_ROWS);
    t->target = to_device(&device, target, sizeof target);
    t->teacher = leaf(5, HEAD_ROWS, HEAD_WIDTH);
    t->teacher.needs_grad = false;
    if (taught && !chunks) {
        struct tensor fixed = t->w;
        fixed.needs_grad = false;
        soft.teacher = op_linear(&t->tape, &t->teacher, &fixed, DTYPE_F32);
    }
    struct loss loss = chunks
                           ? op_linear_cross_entropy(&t->tape, &t->h, &t->w, t->target, t->coefficient, false, teacher)
                           : op_cross_entropy(&t->tape, op_linear(&t->tape, &t->h, &t->w, DTYPE_F32), t->target,
                                              t->coefficient, false, teacher);
    tape_backward(&t->tape);
    t->loss = to_host(&device, loss.value, HEAD_ROWS * 4);
    t->divergence = taught ? to_host(&device, loss.divergence, HEAD_ROWS * 4) : NULL;
    t->dh = to_host(&device, t->h.grad, HEAD_ROWS * HEAD_WIDTH * 4);
    t->dw = to_host(&device, t->w.grad, HEAD_IDS * HEAD_WIDTH * 4);
}

static void close_head(struct head_trial *t)
{
    float *host[] = {t->loss, t->dh, t->dw, t->divergence};
    for (i64 i = 0; i < COUNT_OF(host); i++)
        memory_free(host[i]);
    device_free(&device, t->h.data, HEAD_ROWS * HEAD_WIDTH * 4);
    device_free(&device, t->teacher.data, HEAD_ROWS * HEAD_WIDTH * 4);
    device_free(&device, t->w.data, HEAD_IDS * HEAD_WIDTH * 4);
    device_free(&device, t->coefficient, HEAD_ROWS * 4);
    device_free(&device, t->weight, HEAD_ROWS * 4);
    device_free(&device, t->target, HEAD_ROWS * 4);
    tape_close(&t->tape);
}

static void expect_alike(const char *what, const float *chunks, const float *whole, i64 count)
{
    for (i64 i = 0; i < count; i++)
        if (!(fabsf(chunks[i] - whole[i]) <= 1e-5f * (1 + fabsf(whole[i]))))
            fail_msg("%s: element %d is %.9g by chunks, %.9g whole", what, (int)i, (double)chunks[i], (double)whole[i]);
}

TEST(chunks_of_a_head_are_the_whole_in_less_memory)
{
    static struct head_trial chunks, whole;
    for (int taught = 0; taught < 2; taught++) {
        run_head(&chunks, true, taught);
        run_head(&whole, false, taught);
        expect_alike("loss", chunks.loss, whole.loss, HEAD_ROWS);
        if (taught)
            expect_alike("divergence", chunks.divergence, whole.divergence, HEAD_ROWS);
        expect_alike("dh", chunks.dh, whole.dh, HEAD_ROWS * HEAD_WIDTH);
        expect_alike("dw", chunks.dw, whole.dw, HEAD_IDS * HEAD_WIDTH);
        assert_true(3 * chunks.tape.arena.peak_bytes < 2 * whole.tape.arena.peak_bytes);
        close_head(&chunks);
        close_head(&whole);
    }
}

/* ---- completion of a weight's gradient ---- */

enum { SQUARE = 4, WEIGHTS = 3, RECORDS_MOST = 32 };
struct use_trial {
    struct tape tape;
    struct tensor w[WEIGHTS];
    i64 seen[RECORDS_MOST][WEIGHTS]; /* remaining uses after each record */
    i64 records;
};

static struct tensor weight_leaf(u32 stream)
{
    struct tensor w = leaf(stream, SQUARE, SQUARE);
    w.matrices = 1;
    w.matrices_written = device_alloc(&device, 1);
    w.grad = device_alloc(&device, SQUARE * SQUARE * 4);
    return w;
}

static void see(void *context, struct tape *tape)
{
    struct use_trial *t = context;
    (void)tape;
    assert_true(t->records < RECORDS_MOST);
    for (int i = 0; i < WEIGHTS; i++)
        t->seen[t->records][i] = t->w[i].uses;
    t->records++;
}

static void open_uses(struct use_trial *t)
{
    *t = (struct use_trial){.records = 0};
    tape_open(&t->tape, &device, DTYPE_F32, 1 << 20);
    tape_clear(&t->tape, true);
    t->tape.after = see;
    t->tape.after_context = t;
    for (u32 i = 0; i < WEIGHTS; i++)
        t->w[i] = weight_leaf(20 + i);
}

static void close_uses(struct use_trial *t, struct tensor *x)
{
    for (int i = 0; i < WEIGHTS; i++) {
        device_free(&device, t->w[i].data, SQUARE * SQUARE * 4);
        device_free(&device, t->w[i].grad, SQUARE * SQUARE * 4);
        device_free(&device, t->w[i].matrices_written, 1);
    }
    device_free(&device, x->data, SQUARE * SQUARE * 4);
    tape_close(&t->tape);
}

static void seed_ones(struct tape *tape, struct tensor *y)
{
    float ones[SQUARE * SQUARE];
    for (i64 i = 0; i < SQUARE * SQUARE; i++)
        ones[i] = 1;
    device_put(&device, tape_gradient(tape, y).matrix.data, ones, sizeof ones);
}

static struct tensor *multiply_twice(struct tape *tape, void *w, struct tensor *x)
{
    return op_linear(tape, op_linear(tape, x, w, DTYPE_F32), w, DTYPE_F32);
}

/* Index of the backward record after which the weight has no uses left. */
static i64 record_of_last_use(const struct use_trial *t, int w)
{
    i64 at = 0;
    while (at < t->records && t->seen[at][w])
        at++;
    return at;
}

/* y = w0 (w1 (w0 (w0 x))), with the two inner products in a block; w2 is unused. */
TEST(uses_end_with_the_last_record)
{
    static struct use_trial t;
    for (int recomputed = 0; recomputed < 2; recomputed++) {
        open_uses(&t);
        struct tensor x = leaf(30, SQUARE, SQUARE);
        struct tensor *inner =
            recomputed ? tape_recompute(&t.tape, multiply_twice, &t.w[0], &x) : multiply_twice(&t.tape, &t.w[0], &x);
        struct tensor *y = op_linear(&t.tape, op_linear(&t.tape, inner, &t.w[1], DTYPE_F32), &t.w[0], DTYPE_F32);
        assert_true(t.w[0].uses == 3 && t.w[1].uses == 1 && t.w[2].uses == 0);
        seed_ones(&t.tape, y);
        tape_backward(&t.tape);
        assert_int_equal(t.seen[0][0], 2);
        assert_int_equal(record_of_last_use(&t, 1), 1);
        assert_int_equal(record_of_last_use(&t, 0), 3);
        assert_int_equal(record_of_last_use(&t, 2), 0);
        assert_int_equal(t.records, recomputed ? 5 : 4);
        close_uses(&t, &x);
    }
}

/* Two micro-batches in flight, a block without gradient, and a forward without recording. */
TEST(uses_are_counted_over_tapes_and_dead_blocks)
{
    static struct use_trial t, other;
    open_uses(&t);
    struct tensor x = leaf(30, SQUARE, SQUARE);
    tape_open(&other.tape, &device, DTYPE_F32, 1 << 20);
    tape_clear(&other.tape, false);
    op_linear(&other.tape, &x, &t.w[0], DTYPE_F32);
    assert_int_equal(t.w[0].uses, 0);
    tape_clear(&other.tape, true);
    struct tensor *first = op_linear(&t.tape, &x, &t.w[0], DTYPE_F32);
    tape_recompute(&t.tape, multiply_twice, &t.w[2], &x);
    struct tensor *second = op_linear(&other.tape, &x, &t.w[0], DTYPE_F32);
    assert_true(t.w[0].uses == 2 && t.w[2].uses == 2);
    seed_ones(&t.tape, first);
    tape_backward(&t.tape);
    assert_true(t.w[0].uses == 1 && t.w[2].uses == 0);
    seed_ones(&other.tape, second);
    tape_backward(&other.tape);
    assert_int_equal(t.w[0].uses, 0);
    tape_close(&other.tape);
    close_uses(&t, &x);
}

static struct tensor *multiply(struct tape *tape, void *w, struct tensor *x)
{
    return op_linear(tape, x, w, DTYPE_F32);
}

/* y = x + w x: the sum passes one gradient to the block's output and to its input, where the block
 * adds its own. It must stay allocated behind the block. */
TEST(a_block_adds_to_a_gradient_that_its_input_shares)
{
    static struct use_trial t;
    float got[2][SQUARE * SQUARE];
    for (int recomputed = 0; recomputed < 2; recomputed++) {
        open_uses(&t);
        struct tensor x = leaf(30, SQUARE, SQUARE);
        struct tensor *inner =
            recomputed ? tape_recompute(&t.tape, multiply, &t.w[0], &x) : multiply(&t.tape, &t.w[0], &x);
        struct tensor *y = op_add(&t.tape, inner, &x);
        seed_ones(&t.tape, y);
        tape_backward(&t.tape);
        const struct arena *arena = &t.tape.arena;
        assert_true((char *)x.grad + sizeof got[0] <= arena->base + arena->used_bytes);
        device_get(&device, got[recomputed], x.grad, sizeof got[0]);
        close_uses(&t, &x);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

TEST(a_mark_is_passed_on_the_way_back)
{
    static struct use_trial t;
    open_uses(&t);
    struct tensor x = leaf(30, SQUARE, SQUARE);
    tape_mark(&t.tape, 7);
    struct tensor *y = op_linear(&t.tape, &x, &t.w[0], DTYPE_F32);
    tape_mark(&t.tape, 8);
    assert_int_equal(t.tape.passed, NOTHING_PASSED);
    seed_ones(&t.tape, y);
    tape_backward(&t.tape);
    assert_int_equal(t.tape.passed, 7);
    assert_true(t.records == 3 && t.seen[0][0] == 1 && t.seen[1][0] == 0);
    tape_clear(&t.tape, true);
    assert_int_equal(t.tape.passed, NOTHING_PASSED);
    close_uses(&t, &x);
}

/* F32 values may have a gradient in BF16: those of a product with BF16 inputs have one. */
TEST(a_permuted_gradient_has_the_dtype_of_its_input)
{
    static const float given[6] = {1, 2, 3, 4, 5, 6}, expected[6] = {1, 3, 5, 2, 4, 6};
    for (int adds = 0; adds < 2; adds++) {
        struct tape tape;
        bf16 got[6];
        tape_open(&tape, &device, DTYPE_BF16, (i64)1 << 22);
        tape_clear(&tape, true);
        struct tensor *x = tape_tensor(&tape, DTYPE_F32, 2, 3), *g = tape_tensor(&tape, DTYPE_F32, 3, 2);
        device.ops->fill(&device, x->data, 6, 1);
        device_put(&device, g->data, given, sizeof given);
        x->grad_dtype = DTYPE_BF16;
        x->needs_grad = true;
        for (int i = 0; i <= adds; i++)
            op_add_gradient(&tape, op_permute(&tape, x, 2, (const i64[]){2, 3}, (const i64[]){1, 0}, 2),
                            tensor_matrix(g));
        tape_backward(&tape);
        device_get(&device, got, x->grad, sizeof got);
        for (i64 i = 0; i < 6; i++)
            assert_float_equal(bf16_to_f32(got[i]), (1 + adds) * expected[i], 0);
        tape_close(&tape);
    }
}

/* ---- completeness of the table ---- */

static bool is_listed(const char *op, size_t length)
{
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        for (const char *at = cases[i].ops; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
            if (strncmp(at, op, length) == 0 && (at[length] == ' ' || at[length] == 0))
                return true;
    return length == strlen("borrow") && strncmp(op, "borrow", length) == 0; /* makes a tensor without recording */
}

TEST(every_op_has_a_case)
{
    i64 found = 0;
    struct buffer text = {0};
    assert_int_equal(file_read(&text, SOURCE_TREE "/tensor/ops.h"), 0);
    for (const char *at = text.data; (at = strstr(at, "op_")) != NULL; at += 3) {
        size_t length = strspn(at + 3, "abcdefghijklmnopqrstuvwxyz_");
        if (at[3 + length] != '(' || (at[-1] != '*' && at[-1] != ' '))
            continue;
        if (!is_listed(at + 3, length))
            fail_msg("tensor/ops.h: op_%.*s has no case in tests/tensor/test_tape.c", (int)length, at + 3);
        found++;
    }
    assert_true(found > 20);
    buffer_release(&text);
}

static int run(const char *name)
{
    return tests_run_as(name, NULL, NULL);
}

int main(void)
{
    return on_both_devices(&device, run);
}
