/* Skinny ops of the decode sequence: few rows, with fused prologue and epilogue. */
#include "op_cases/op_cases.h"

#include <math.h>

#define EPS 1e-5

static i64 depth_of(const struct op_run *run)
{
    return run->depth > 0 ? run->depth : run->columns;
}

/* RMSNorm of x [n, width], rounded as the op rounds it. */
static void norm_reference(struct op_run *run, double *out, int x, int norm, i64 n)
{
    i64 width = run->operands[x].columns;
    for (i64 i = 0; i < n; i++) {
        const double *from = op_values(run, x) + i * width;
        double squares = 0;
        for (i64 k = 0; k < width; k++)
            squares += from[k] * from[k];
        double scale = 1 / sqrt(squares / (double)width + (double)(float)EPS);
        for (i64 k = 0; k < width; k++)
            out[i * width + k] = op_round(op_round(from[k] * scale, run->dtype) * op_values(run, norm)[k], run->dtype);
    }
}

static double dot(const double *x, const double *y, i64 n)
{
    double sum = 0;
    for (i64 k = 0; k < n; k++)
        sum += x[k] * y[k];
    return sum;
}

static double swiglu(double gate, double up)
{
    return gate / (1 + exp(-gate)) * up;
}

/* ---- matmul_skinny: skinny gemm [rows, depth] by [columns, depth] ----
 * variant % 4: alone, gated (SwiGLU), added to a matrix, or q, k and v of two heads and one kv
 * head written to a cache. Further bits: 4: a norm before it, 8: w in f32, 16: out in the dtype of
 * x. */
enum { SKINNY_X, SKINNY_NORM, SKINNY_W, SKINNY_ADD, SKINNY_OUT, SKINNY_POSITIONS, SKINNY_INDEX, SKINNY_K, SKINNY_V };
enum { ALONE, GATED, ADDED, CACHED };
static const struct op_shape skinny_shapes[] = {{1, 1, 1},     {1, 37, 40},    {4, 301, 123}, {8, 70, 64},
                                                {33, 130, 48}, {64, 9, 300},   {17, 40, 96},  {20, 3, 48},
                                                {3, 24, 2088}, {12, 16, 1024}, {-1}};

static int skinny_kind(const struct op_run *run)
{
    return run->variant % 4;
}
static bool skinny_has_norm(const struct op_run *run)
{
    return run->variant / 4 & 1;
}
static i64 skinny_rows(const struct op_run *run)
{
    return min_i64(run->rows, skinny_has_norm(run) ? SKINNY_NORMED_ROWS : SKINNY_ROWS);
}
static enum dtype skinny_out(const struct op_run *run)
{
    return run->variant / 16 & 1 ? run->dtype : DTYPE_F32;
}
static i64 skinny_pairs(const struct op_run *run) /* pairs of a head */
{
    return ceil_div(run->columns, 8);
}
static i64 skinny_columns(const struct op_run *run)
{
    return skinny_kind(run) == CACHED ? 8 * skinny_pairs(run) : run->columns;
}

static void setup_skinny_cache(struct op_run *run)
{
    i64 n = skinny_rows(run), width = 2 * skinny_pairs(run);
    op_array(run, "positions", INPUT, DTYPE_F32, n * 3);
    op_array(run, "index", INPUT, DTYPE_I32, n);
    op_operand(run, "k", UPDATED, skinny_out(run), n + 3, width, run->gap);
    op_operand(run, "v", UPDATED, skinny_out(run), n + 3, width, run->gap);
    for (i64 i = 0; i < n * 3; i++)
        op_values(run, SKINNY_POSITIONS)[i] = fabs(op_random(i, 1, 1)) * (i % 5 == 0 ? 60000 : 40);
    for (i64 i = 0; i < n; i++)
        op_values(run, SKINNY_INDEX)[i] = i % 4 == 2 ? -1 : (double)(n + 2 - i);
}

static void setup_skinny(struct op_run *run)
{
    i64 m = skinny_rows(run), n = skinny_columns(run), k = depth_of(run);
    op_matrix(run, "x", INPUT, m, k);
    op_matrix(run, "norm", INPUT, 1, k);
    op_operand(run, "w", INPUT, run->variant / 8 & 1 ? DTYPE_F32 : run->dtype, n * (skinny_kind(run) == GATED ? 2 : 1),
               k, run->gap);
    op_operand(run, "add", INPUT, skinny_out(run), m, n, run->gap);
    op_operand(run, "out", OUTPUT, skinny_out(run), m, n, run->gap);
    setup_skinny_cache(run);
}

static void call_skinny(struct device *device, struct op_run *run)
{
    const struct rope_cache cache = {.k = op_as_matrix(run, SKINNY_K),
                                     .v = op_as_matrix(run, SKINNY_V),
                                     .positions = op_data(run, SKINNY_POSITIONS),
                                     .index = op_data(run, SKINNY_INDEX),
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .t_pairs = skinny_pairs(run) / 3,
                                     .theta = 1e4f};
    struct gemm_fusion fusion = {.eps = EPS, .gated = skinny_kind(run) == GATED};
    if (skinny_has_norm(run))
        fusion.norm = op_as_matrix(run, SKINNY_NORM);
    if (skinny_kind(run) == ADDED)
        fusion.add = op_as_matrix(run, SKINNY_ADD);
    if (skinny_kind(run) == CACHED)
        fusion.cache = &cache;
    device->ops->matmul_skinny(device, op_as_matrix(run, SKINNY_OUT), op_as_matrix(run, SKINNY_X),
                               op_as_matrix(run, SKINNY_W), &fusion);
}

static void rotate_row(struct op_run *run, i64 row)
{
    i64 pairs = skinny_pairs(run), t_pairs = pairs / 3, kept = (i64)op_values(run, SKINNY_INDEX)[row];
    double *x = op_values(run, SKINNY_OUT) + row * 8 * pairs;
    for (i64 i = 0; i < 3 * pairs; i++) {
        i64 j = i % pairs, axis = j >= pairs - t_pairs ? 0 : j % 2 == 0 ? 1 : 2;
        double angle = op_values(run, SKINNY_POSITIONS)[row * 3 + axis] * pow(1e4, -(double)j / (double)pairs);
        double a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos(angle) - b * sin(angle);
        x[2 * i + 1] = b * cos(angle) + a * sin(angle);
    }
    for (i64 c = 0; kept >= 0 && c < 2 * pairs; c++) {
        op_values(run, SKINNY_K)[kept * 2 * pairs + c] = x[4 * pairs + c];
        op_values(run, SKINNY_V)[kept * 2 * pairs + c] = x[6 * pairs + c];
    }
}

static void reference_skinny(struct op_run *run)
{
    i64 m = skinny_rows(run), n = skinny_columns(run), k = depth_of(run);
    double *x = memory_alloc(max_i64(m * k * 8, 1)), *out = op_values(run, SKINNY_OUT);
    const double *w = op_values(run, SKINNY_W);
    for (i64 i = 0; i < m * k; i++)
        x[i] = op_values(run, SKINNY_X)[i];
    if (skinny_has_norm(run))
        norm_reference(run, x, SKINNY_X, SKINNY_NORM, m);
    for (i64 i = 0; i < m * n; i++) {
        const double *row = x + i / n * k;
        double y = dot(row, w + i % n * k, k);
        out[i] = skinny_kind(run) == ALONE ? y : op_round(y, skinny_out(run));
        if (skinny_kind(run) == GATED)
            out[i] = swiglu(out[i], op_round(dot(row, w + (n + i % n) * k, k), skinny_out(run)));
        else if (skinny_kind(run) == ADDED)
            out[i] += op_values(run, SKINNY_ADD)[i];
    }
    for (i64 i = 0; skinny_kind(run) == CACHED && i < m; i++)
        rotate_row(run, i);
    memory_free(x);
}

/* ---- experts_skinny_in, experts_skinny_out: C = columns, F = depth, K of E experts, fewer at some
 * positions ----
 * bit 0: a shared expert of width 1.5 F, bit 1: the experts are members of a larger set. */
enum { K = 3, EXPERTS = 7, MEMBERS = 9 };
enum { EXPERTS_X, EXPERTS_NORM, GATE_UP, DOWN, SHARED_GATE_UP, SHARED_DOWN, OFFSETS, MEMBER, SOURCE, SLOT, WEIGHTS };
enum { INSIDE = WEIGHTS + 1, SHARED, EXPERTS_OUT };
static const struct op_shape experts_shapes[] = {{1, 1, 1},    {1, 64, 48},  {3, 37, 21}, {16, 40, 72},
                                                 {9, 24, 300}, {5, 136, 64}, {8, 40, 8},  {-1}};

static bool has_shared(const struct op_run *run)
{
    return run->variant & 1;
}
static i64 slices_of(const struct op_run *run)
{
    return run->variant & 2 ? MEMBERS : EXPERTS;
}
static i64 positions_of(const struct op_run *run)
{
    return min_i64(run->rows, SKINNY_NORMED_ROWS);
}
static i64 bound_of(const struct op_run *run)
{
    return groups_rows_bound(positions_of(run) * K, EXPERTS);
}
static i64 shared_width(const struct op_run *run)
{
    return depth_of(run) + depth_of(run) / 2;
}
static i64 slice_of(const struct op_run *run, i64 group) /* slice of the weights */
{
    return run->variant & 2 ? MEMBERS - 1 - group : group;
}

/* The k-th expert of a position, -1 for none. Some experts get no position, one gets most of
 * them. */
static i64 expert_of(i64 position, i64 k)
{
    const i64 experts[K] = {4, position % 4, position % 3 == 0 ? -1 : 5};
    return position % 5 == 3 && k > 0 ? -1 : experts[k] == 4 && k > 0 ? -1 : experts[k];
}

static void fill_order(struct op_run *run)
{
    double *offsets = op_values(run, OFFSETS), *slot = op_values(run, SLOT), *source = op_values(run, SOURCE);
    i64 row = 0;
    for (i64 r = 0; r < bound_of(run); r++)
        source[r] = -1;
    for (i64 e = 0; e < EXPERTS; e++) {
        offsets[e] = (double)row;
        for (i64 a = 0; a < positions_of(run) * K; a++) {
            if (expert_of(a / K, a % K) < 0)
                slot[a] = -1;
            if (expert_of(a / K, a % K) != e)
                continue;
            source[row] = (double)(a / K);
            slot[a] = (double)row++;
        }
        row = round_up(row, GROUP_ROWS);
        op_values(run, MEMBER)[e] = (double)slice_of(run, e);
    }
    offsets[EXPERTS] = (double)row;
}

static void setup_experts(struct op_run *run, bool out)
{
    i64 n = positions_of(run), c = run->columns, f = depth_of(run), s = shared_width(run);
    op_matrix(run, "x", INPUT, n, c);
    op_matrix(run, "norm", INPUT, 1, c);
    op_matrix(run, "gate_up", INPUT, slices_of(run) * 2 * f, c);
    op_matrix(run, "down", INPUT, slices_of(run) * c, f);
    op_matrix(run, "shared_gate_up", INPUT, 2 * s, c);
    op_matrix(run, "shared_down", INPUT, c, s);
    op_array(run, "offsets", INPUT, DTYPE_I32, EXPERTS + 1);
    op_array(run, "member", INPUT, DTYPE_I32, EXPERTS);
    op_array(run, "source", INPUT, DTYPE_I32, bound_of(run));
    op_array(run, "slot", INPUT, DTYPE_I32, n * K);
    op_array(run, "weights", INPUT, DTYPE_F32, n * K);
    op_matrix(run, "inside", out ? INPUT : UPDATED, bound_of(run), f);
    op_matrix(run, "shared", out || !has_shared(run) ? INPUT : OUTPUT, n, s);
    if (out)
        op_matrix(run, "out", OUTPUT, n, c);
    fill_order(run);
}

static void setup_experts_in(struct op_run *run)
{
    setup_experts(run, false);
}

static void setup_experts_out(struct op_run *run)
{
    setup_experts(run, true);
}

static struct matrix shared_or_none(const struct op_run *run, int index)
{
    return has_shared(run) ? op_as_matrix(run, index) : (struct matrix){0};
}

static struct skinny_experts experts_of(const struct op_run *run)
{
    return (struct skinny_experts){
        .gate_up = op_as_matrix(run, GATE_UP),
        .down = op_as_matrix(run, DOWN),
        .shared_gate_up = shared_or_none(run, SHARED_GATE_UP),
        .shared_down = shared_or_none(run, SHARED_DOWN),
        .experts = slices_of(run),
        .groups = {EXPERTS, op_data(run, OFFSETS), run->variant & 2 ? op_data(run, MEMBER) : NULL},
        .rows_bound = bound_of(run),
        .source = op_data(run, SOURCE),
        .slot = op_data(run, SLOT),
        .weights = op_data(run, WEIGHTS),
        .k_max = K};
}

static void call_experts_in(struct device *device, struct op_run *run)
{
    struct skinny_experts experts = experts_of(run);
    device->ops->experts_skinny_in(device, op_as_matrix(run, INSIDE), shared_or_none(run, SHARED),
                                   op_as_matrix(run, EXPERTS_X), op_as_matrix(run, EXPERTS_NORM), EPS, &experts);
}

/* SwiGLU of row x [columns] with the gate and up rows of `index` from row `first` on; `width`
 * outputs. NULL x gives zeros. */
static void swiglu_reference(struct op_run *run, double *out, const double *x, int index, i64 first, i64 width)
{
    i64 c = run->columns;
    const double *w = op_values(run, index) + first * c;
    for (i64 j = 0; j < width; j++)
        out[j] =
            x ? swiglu(op_round(dot(x, w + j * c, c), run->dtype), op_round(dot(x, w + (width + j) * c, c), run->dtype))
              : 0;
}

static void reference_experts_in(struct op_run *run)
{
    i64 n = positions_of(run), c = run->columns, f = depth_of(run), s = shared_width(run);
    const double *offsets = op_values(run, OFFSETS), *source = op_values(run, SOURCE);
    double *x = memory_alloc(max_i64(n * c * 8, 1));
    norm_reference(run, x, EXPERTS_X, EXPERTS_NORM, n);
    for (i64 g = 0; g < EXPERTS; g++)
        for (i64 r = (i64)offsets[g]; r < (i64)offsets[g + 1]; r++)
            swiglu_reference(run, op_values(run, INSIDE) + r * f, source[r] < 0 ? NULL : x + (i64)source[r] * c,
                             GATE_UP, slice_of(run, g) * 2 * f, f);
    for (i64 i = 0; has_shared(run) && i < n; i++)
        swiglu_reference(run, op_values(run, SHARED) + i * s, x + i * c, SHARED_GATE_UP, 0, s);
    memory_free(x);
}

static void call_experts_out(struct device *device, struct op_run *run)
{
    struct skinny_experts experts = experts_of(run);
    device->ops->experts_skinny_out(device, op_as_matrix(run, EXPERTS_OUT), op_as_matrix(run, EXPERTS_X),
                                    op_as_matrix(run, INSIDE), shared_or_none(run, SHARED), &experts);
}

static void reference_experts_out(struct op_run *run)
{
    i64 n = positions_of(run), c = run->columns, f = depth_of(run), s = shared_width(run);
    for (i64 i = 0; i < n * c; i++) {
        double sum = op_values(run, EXPERTS_X)[i];
        if (has_shared(run))
            sum += op_round(dot(op_values(run, SHARED) + i / c * s, op_values(run, SHARED_DOWN) + i % c * s, s),
                            run->dtype);
        for (i64 k = 0; k < K; k++) {
            i64 e = expert_of(i / c, k), a = i / c * K + k;
            if (e < 0)
                continue;
            const double *inside = op_values(run, INSIDE) + (i64)op_values(run, SLOT)[a] * f;
            const double *w = op_values(run, DOWN) + (slice_of(run, e) * c + i % c) * f;
            sum += op_values(run, WEIGHTS)[a] * op_round(dot(inside, w, f), run->dtype);
        }
        op_values(run, EXPERTS_OUT)[i] = sum;
    }
}

const struct op_case skinny_cases[] = {
    {"matmul_skinny", 32, setup_skinny, call_skinny, reference_skinny, .usual = {16, 1024, 1024}, .depth_step = 1,
     .shapes = skinny_shapes, .bf16_slack = 8e-3, .f32_slack = 2e-5, .multiplies = true},
    {"experts_skinny_in", 4, setup_experts_in, call_experts_in, reference_experts_in, .usual = {16, 1024, 512},
     .depth_step = 1, .shapes = experts_shapes, .bf16_slack = 8e-3, .f32_slack = 2e-5, .multiplies = true},
    {"experts_skinny_out", 4, setup_experts_out, call_experts_out, reference_experts_out, .usual = {16, 1024, 512},
     .depth_step = 1, .shapes = experts_shapes, .bf16_slack = 8e-3, .f32_slack = 2e-5, .multiplies = true},
    {0},
};
