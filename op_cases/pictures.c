/* Pictures: resizing, permuting, and the vision quantizer. */
#include "op_cases/op_cases.h"

#include <math.h>

/* ---- resize: `rows` pictures of `columns` channels; bit 0: bilinear ----
 * From depth x depth to half of it if depth > 0, else the sizes of variant / 2. */
struct pictures_sizes {
    i64 h_in, w_in, h_out, w_out;
};
static const struct pictures_sizes sizes[] = {{5, 7, 13, 3}, {16, 16, 5, 6}, {1, 1, 4, 9}, {9, 4, 1, 1}};
static const struct op_shape picture_shapes[] = {{0, 3}, {1, 1}, {3, 5}, {2, 17}, {-1}},
                             bits_shapes[] = {{0, 3}, {1, 1}, {3, 5}, {2, 17}, {1, 1, 64}, {-1}};
enum { RESIZE_X, RESIZE_Y };

static struct pictures_sizes sizes_of(const struct op_run *run)
{
    i64 side = run->depth;
    return side > 0 ? (struct pictures_sizes){side, side, side / 2, side / 2} : sizes[run->variant / 2];
}

static enum resize kind_of(const struct op_run *run)
{
    return run->variant & 1 ? RESIZE_BILINEAR : RESIZE_AREA;
}

/* Weight of input j in output i along one axis. */
static double share_of(enum resize kind, i64 i, i64 out, i64 j, i64 in)
{
    if (kind == RESIZE_AREA) {
        i64 begin = i * in / out, end = ceil_div((i + 1) * in, out);
        return begin <= j && j < end ? 1 / (double)(end - begin) : 0;
    }
    double at = fmax(0, ((double)i + 0.5) * (double)in / (double)out - 0.5);
    i64 low = (i64)at, high = min_i64(low + 1, in - 1);
    return (j == low ? 1 - (at - (double)low) : 0) + (j == high ? at - (double)low : 0);
}

/* Adds weight * from to `to`, over all pairs of an output and an input position; backward goes
 * from outputs to inputs. */
static void resize_loop(double *to, const double *from, const struct op_run *run, bool backward)
{
    struct pictures_sizes s = sizes_of(run);
    i64 ins = s.h_in * s.w_in, outs = s.h_out * s.w_out, c = run->columns;
    for (i64 pair = 0; pair < run->rows * outs * ins; pair++) {
        i64 image = pair / (outs * ins), o = pair / ins % outs, i = pair % ins;
        double share = share_of(kind_of(run), o / s.w_out, s.h_out, i / s.w_in, s.h_in) *
                       share_of(kind_of(run), o % s.w_out, s.w_out, i % s.w_in, s.w_in);
        i64 out = image * outs + o, in = image * ins + i;
        for (i64 k = 0; share > 0 && k < c; k++)
            to[(backward ? in : out) * c + k] += share * from[(backward ? out : in) * c + k];
    }
}

static void setup_sizes(struct op_run *run, bool backward)
{
    struct pictures_sizes s = sizes_of(run);
    op_matrix(run, backward ? "dx" : "x", backward ? UPDATED : INPUT, run->rows * s.h_in * s.w_in, run->columns);
    op_matrix(run, backward ? "dout" : "out", backward ? INPUT : OUTPUT, run->rows * s.h_out * s.w_out, run->columns);
}

static void setup_resize(struct op_run *run)
{
    setup_sizes(run, false);
}

static void call_resize(struct device *device, struct op_run *run)
{
    struct pictures_sizes s = sizes_of(run);
    device->ops->resize(device, op_as_matrix(run, RESIZE_Y), op_as_matrix(run, RESIZE_X), run->rows, s.h_in, s.w_in,
                        s.h_out, s.w_out, kind_of(run));
}

static void reference_resize(struct op_run *run)
{
    resize_loop(op_values(run, RESIZE_Y), op_values(run, RESIZE_X), run, false);
}

static void setup_resize_backward(struct op_run *run)
{
    setup_sizes(run, true);
}

static void call_resize_backward(struct device *device, struct op_run *run)
{
    struct pictures_sizes s = sizes_of(run);
    device->ops->resize_backward(device, op_as_matrix(run, RESIZE_X), op_as_matrix(run, RESIZE_Y), run->rows, s.h_in,
                                 s.w_in, s.h_out, s.w_out, kind_of(run));
}

static void reference_resize_backward(struct op_run *run)
{
    resize_loop(op_values(run, RESIZE_X), op_values(run, RESIZE_Y), run, true);
}

/* ---- permute ----
 * [rows, columns] transposed if rows > 0, else the variant's permutation; depth 1: bytes, 2:
 * 64-bit ids. */
enum { RANK_MOST = 6 };
struct permute_case {
    int rank;
    i64 shape[RANK_MOST], order[RANK_MOST];
};
static const struct permute_case permutations[] = {
    {1, {70001}, {0}},
    {2, {37, 65}, {1, 0}},
    {2, {64, 1}, {1, 0}},
    {3, {3, 40, 70}, {0, 2, 1}},
    {3, {5, 33, 34}, {2, 0, 1}},
    {3, {5, 7, 3}, {1, 0, 2}},
    {4, {2, 33, 5, 35}, {3, 1, 0, 2}},
    {5, {2, 1, 1, 1, 3}, {4, 3, 2, 1, 0}},
    {6, {2, 4, 4, 5, 4, 3}, {0, 1, 3, 2, 4, 5}},
    {6, {2, 3, 4, 3, 2, 5}, {5, 4, 3, 2, 1, 0}},
    {6, {1, 1, 1, 1, 1, 1}, {5, 4, 3, 2, 1, 0}},
    {3, {4, 0, 3}, {2, 1, 0}},
};
static const struct op_shape permute_shapes[] = {{0, 1, 0}, {0, 1, 1}, {0, 1, 2}, {-1}};

static struct permute_case permutation_of(const struct op_run *run)
{
    return run->rows ? (struct permute_case){2, {run->rows, run->columns}, {1, 0}} : permutations[run->variant];
}

static void setup_permute(struct op_run *run)
{
    struct permute_case p = permutation_of(run);
    enum dtype dtype = run->depth == 1 ? DTYPE_U8 : run->depth == 2 ? DTYPE_I64 : run->dtype;
    i64 elements = 1;
    for (int a = 0; a < p.rank; a++)
        elements *= p.shape[a];
    op_array(run, "out", OUTPUT, dtype, elements);
    op_array(run, "x", INPUT, dtype, elements);
    if (run->depth > 0)
        op_fill_below(run, 1, 256, 0);
}

static void call_permute(struct device *device, struct op_run *run)
{
    struct permute_case p = permutation_of(run);
    device->ops->permute(device, op_data(run, 0), op_data(run, 1), run->operands[0].dtype, p.rank, p.shape, p.order);
}

static void reference_permute(struct op_run *run)
{
    struct permute_case p = permutation_of(run);
    i64 stride[RANK_MOST], elements = 1;
    for (int a = p.rank - 1; a >= 0; a--) {
        stride[a] = elements;
        elements *= p.shape[a];
    }
    for (i64 i = 0; i < elements; i++) {
        i64 rest = i, from = 0;
        for (int a = p.rank - 1; a >= 0; a--) {
            from += rest % p.shape[p.order[a]] * stride[p.order[a]];
            rest /= p.shape[p.order[a]];
        }
        op_values(run, 0)[i] = op_values(run, 1)[from];
    }
}

/* ---- Vision quantizer: `rows` pictures of `columns` bits ----
 * By default a 4x4 grid (or depth x depth) with scales 1, 2, 4, ... and numbers that are exact in
 * float; some u are 0, which gives bit 0. bit 0: flipped bits (dequantize: no sum), bit 1: an 8x7
 * grid with other scales, bit 2: no u. */
enum { SCALES_MOST = 8 };
struct bits_case {
    i64 h, w, count, tokens;
    struct scale scales[SCALES_MOST];
};
enum { QUANT_BITS, QUANT_SUM, QUANT_U, QUANT_X, QUANT_FLIP, QUANT_AMPLITUDE };
enum { CODED_INPUTS, CODED_SUM, CODED_BITS, CODED_AMPLITUDE };

static struct bits_case pyramid_of(const struct op_run *run)
{
    static const struct scale odd[] = {{1, 1}, {1, 3}, {4, 2}, {6, 5}};
    bool is_odd = run->variant & 2;
    i64 side = run->depth > 0 ? run->depth : 4;
    struct bits_case p = {.h = is_odd ? 8 : side, .w = is_odd ? 7 : side};
    for (i64 k = 0; is_odd ? k < COUNT_OF(odd) : (i64)1 << k <= side; k++, p.count++)
        p.scales[k] = is_odd ? odd[k] : (struct scale){(i64)1 << k, (i64)1 << k};
    for (i64 k = 0; k < p.count; k++)
        p.tokens += scale_positions(p.scales[k]);
    return p;
}

static void fill_amplitudes(struct op_run *run, int index)
{
    static const double odd[] = {0.9, 0.7, 0.5, 0.25};
    for (i64 k = 0; k < run->operands[index].columns; k++)
        op_values(run, index)[k] = run->variant & 2 ? (double)(float)odd[k] : ldexp(1, -(int)k);
}

static void setup_quantize_bits(struct op_run *run)
{
    struct bits_case p = pyramid_of(run);
    i64 codes = run->rows * p.tokens * run->columns, cells = run->rows * p.h * p.w * run->columns;
    op_array(run, "bits", OUTPUT, DTYPE_U8, codes);
    op_array(run, "sum", OUTPUT, DTYPE_F32, cells);
    op_array(run, "u", run->variant & 4 ? INPUT : OUTPUT, DTYPE_F32, codes);
    op_array(run, "x", INPUT, DTYPE_F32, cells);
    op_fill_below(run, op_array(run, "flip", INPUT, DTYPE_U8, codes), 2, 0);
    op_array(run, "amplitude", INPUT, DTYPE_F32, p.count);
    fill_amplitudes(run, QUANT_AMPLITUDE);
    for (i64 i = 0; i < cells; i++)
        op_values(run, QUANT_X)[i] =
            run->variant & 2 ? (double)(float)op_values(run, QUANT_X)[i] : floor(op_values(run, QUANT_X)[i] * 8) / 8;
}

static void call_quantize_bits(struct device *device, struct op_run *run)
{
    struct bits_case p = pyramid_of(run);
    device->ops->quantize_bits(device, op_data(run, QUANT_BITS), op_data(run, QUANT_SUM),
                               run->variant & 4 ? NULL : op_data(run, QUANT_U), op_data(run, QUANT_X),
                               run->variant & 1 ? op_data(run, QUANT_FLIP) : NULL, run->rows, p.h, p.w, run->columns,
                               p.scales, p.count, op_data(run, QUANT_AMPLITUDE));
}

/* Mean over the area of cell (y, x) of a scale, for one channel of a picture. */
static double lowered(const double *cells, const struct bits_case *p, struct scale scale, i64 y, i64 x, i64 d)
{
    double sum = 0;
    for (i64 i = 0; i < p->h; i++) {
        double share = share_of(RESIZE_AREA, y, scale.h, i, p->h);
        for (i64 j = 0; share > 0 && j < p->w; j++)
            sum += cells[(i * p->w + j) * d] * share * share_of(RESIZE_AREA, x, scale.w, j, p->w);
    }
    return sum;
}

/* Adds sign * tokens of a scale, upsampled to the picture, to cells. */
static void raise(double *cells, const double *tokens, const struct bits_case *p, struct scale scale, double sign,
                  i64 d)
{
    for (i64 i = 0; i < p->h * p->w; i++)
        for (i64 y = 0; y < scale.h; y++) {
            double share = sign * share_of(RESIZE_BILINEAR, i / p->w, p->h, y, scale.h);
            for (i64 x = 0; share != 0 && x < scale.w; x++)
                cells[i * d] += share * share_of(RESIZE_BILINEAR, i % p->w, p->w, x, scale.w) * tokens[y * scale.w + x];
        }
}

/* Quantizes one channel of one picture; overwrites rest [h*w, d]. */
static void quantize_channel(struct op_run *run, double *rest, i64 image, i64 c)
{
    struct bits_case p = pyramid_of(run);
    i64 d = run->columns, code = image * p.tokens * d + c;
    double *tokens = memory_alloc(p.tokens * 8), *sum = op_values(run, QUANT_SUM) + image * p.h * p.w * d + c;
    for (i64 k = 0; k < p.count; k++) {
        struct scale scale = p.scales[k];
        for (i64 t = 0; t < scale_positions(scale); t++, code += d) {
            double u = lowered(rest + c, &p, scale, t / scale.w, t % scale.w, d);
            bool flip = run->variant & 1 && op_values(run, QUANT_FLIP)[code] > 0;
            op_values(run, QUANT_BITS)[code] = u > 0;
            if (!(run->variant & 4))
                op_values(run, QUANT_U)[code] = u;
            tokens[t] = ((u > 0) ^ flip ? 1 : -1) * op_values(run, QUANT_AMPLITUDE)[k];
        }
        raise(sum, tokens, &p, scale, 1, d);
        raise(rest + c, tokens, &p, scale, -1, d);
    }
    memory_free(tokens);
}

static void reference_quantize_bits(struct op_run *run)
{
    struct bits_case p = pyramid_of(run);
    i64 d = run->columns, cells = p.h * p.w * d;
    double *rest = memory_alloc(max_i64(cells, 1) * 8);
    for (i64 image = 0; image < run->rows; image++) {
        for (i64 i = 0; i < cells; i++)
            rest[i] = op_values(run, QUANT_X)[image * cells + i];
        for (i64 c = 0; c < d; c++)
            quantize_channel(run, rest, image, c);
    }
    memory_free(rest);
}

static i64 inputs_of(const struct bits_case *p) /* all scales but the first, and the whole sum */
{
    return p->tokens - scale_positions(p->scales[0]) + 1;
}

static void setup_dequantize_bits(struct op_run *run)
{
    struct bits_case p = pyramid_of(run);
    op_array(run, "inputs", OUTPUT, DTYPE_F32, run->rows * inputs_of(&p) * run->columns);
    op_operand(run, "sum", run->variant & 1 ? INPUT : OUTPUT, DTYPE_F32, run->rows * p.h * p.w, run->columns, 0);
    op_fill_below(run, op_array(run, "bits", INPUT, DTYPE_U8, run->rows * p.tokens * run->columns), 2, 0);
    op_array(run, "amplitude", INPUT, DTYPE_F32, p.count);
    fill_amplitudes(run, CODED_AMPLITUDE);
}

static void call_dequantize_bits(struct device *device, struct op_run *run)
{
    struct bits_case p = pyramid_of(run);
    device->ops->dequantize_bits(device, op_data(run, CODED_INPUTS), run->variant & 1 ? NULL : op_data(run, CODED_SUM),
                                 op_data(run, CODED_BITS), run->rows, p.h, p.w, run->columns, p.scales, p.count,
                                 op_data(run, CODED_AMPLITUDE));
}

/* Dequantizes one channel of one picture; sum [h*w] must be zero. */
static void dequantize_channel(struct op_run *run, double *sum, i64 image, i64 c)
{
    struct bits_case p = pyramid_of(run);
    i64 d = run->columns, code = image * p.tokens * d + c, input = image * inputs_of(&p) * d + c;
    double *tokens = memory_alloc(p.tokens * 8);
    for (i64 k = 0; k < p.count; k++) {
        struct scale scale = p.scales[k];
        for (i64 t = 0; t < scale_positions(scale); t++, code += d) {
            tokens[t] = (op_values(run, CODED_BITS)[code] > 0 ? 1 : -1) * op_values(run, CODED_AMPLITUDE)[k];
            if (k > 0) {
                op_values(run, CODED_INPUTS)[input] = lowered(sum, &p, scale, t / scale.w, t % scale.w, 1);
                input += d;
            }
        }
        raise(sum, tokens, &p, scale, 1, 1);
    }
    op_values(run, CODED_INPUTS)[input] = lowered(sum, &p, (struct scale){1, 1}, 0, 0, 1);
    memory_free(tokens);
}

static void reference_dequantize_bits(struct op_run *run)
{
    struct bits_case p = pyramid_of(run);
    i64 cells = p.h * p.w;
    for (i64 at = 0; at < run->rows * run->columns; at++) {
        i64 image = at / run->columns, c = at % run->columns;
        double *sum = memory_alloc(cells * 8);
        dequantize_channel(run, sum, image, c);
        for (i64 i = 0; i < cells && !(run->variant & 1); i++)
            op_values(run, CODED_SUM)[(image * cells + i) * run->columns + c] = sum[i];
        memory_free(sum);
    }
}

/* ---- bit_entropy of 2 x 2 grids, scales 1 and 2 ----
 * Variant 1: some bits are the same everywhere. */
enum { BIT_TOKENS = 5, BIT_CELLS = 4 };
enum { BITS_U, BITS_AMPLITUDE, BITS_ENTROPY, BITS_MEAN, BITS_MAGNITUDE };
enum { BITSB_U, BITSB_AMPLITUDE, BITSB_MEAN, BITSB_COEFFICIENT, BITSB_DX };
static const struct scale bit_scales[2] = {{1, 1}, {2, 2}};
static const double bit_sharpness = 1.5;

static i64 bit_images(const struct op_run *run)
{
    return max_i64(run->rows, 1);
}

static void setup_bits(struct op_run *run)
{
    i64 count = bit_images(run) * BIT_TOKENS * run->columns;
    op_array(run, "u", INPUT, DTYPE_F32, count);
    op_array(run, "amplitude", INPUT, DTYPE_F32, 2);
    for (i64 i = 0; run->variant && i < count; i++)
        if (i % run->columns % 3 < 2) /* sigmoid(900) is 1, sigmoid(-900) 0 */
            op_values(run, BITS_U)[i] = i % run->columns % 3 ? 300 : -300;
    op_values(run, BITS_AMPLITUDE)[0] = 0.5;
    op_values(run, BITS_AMPLITUDE)[1] = 0.25;
}

/* u of bit c at position i of scale k; positions of all images in sequence. */
static double bit_u(const struct op_run *run, i64 k, i64 i, i64 c)
{
    i64 square = k ? BIT_CELLS : 1;
    return op_values(run, BITS_U)[((i / square) * BIT_TOKENS + k + i % square) * run->columns + c];
}

static double bit_p(const struct op_run *run, i64 k, i64 i, i64 c)
{
    return 1 / (1 + exp(-bit_sharpness / op_values(run, BITS_AMPLITUDE)[k] * bit_u(run, k, i, c)));
}

static double entropy_of_bit(double p)
{
    return p > 0 && p < 1 ? -p * log(p) - (1 - p) * log1p(-p) : 0;
}

static double bit_mean(const struct op_run *run, i64 k, i64 c)
{
    double sum = 0;
    i64 positions = bit_images(run) * (k ? BIT_CELLS : 1);
    for (i64 i = 0; i < positions; i++)
        sum += bit_p(run, k, i, c);
    return sum / (double)positions;
}

static void setup_bit_entropy(struct op_run *run)
{
    setup_bits(run);
    op_array(run, "entropy", OUTPUT, DTYPE_F32, 1);
    op_array(run, "mean_p", OUTPUT, DTYPE_F32, 2 * run->columns);
    op_array(run, "magnitude", OUTPUT, DTYPE_F32, 2);
}

static void call_bit_entropy(struct device *device, struct op_run *run)
{
    device->ops->bit_entropy(device, op_data(run, BITS_ENTROPY), op_data(run, BITS_MEAN), op_data(run, BITS_MAGNITUDE),
                             op_data(run, BITS_U), bit_images(run), run->columns, bit_scales, 2,
                             op_data(run, BITS_AMPLITUDE), (float)bit_sharpness);
}

static void reference_bit_entropy(struct op_run *run)
{
    double entropy = 0;
    for (i64 k = 0; k < 2; k++) {
        i64 positions = bit_images(run) * (k ? BIT_CELLS : 1), values = positions * run->columns;
        double magnitude = 0;
        for (i64 c = 0; c < run->columns; c++) {
            double mean = bit_mean(run, k, c);
            for (i64 i = 0; i < positions; i++) {
                entropy += entropy_of_bit(bit_p(run, k, i, c)) / (2 * (double)values);
                magnitude += fabs(bit_u(run, k, i, c)) / (double)values;
            }
            entropy -= entropy_of_bit(mean) / (2 * (double)run->columns);
            op_values(run, BITS_MEAN)[k * run->columns + c] = mean;
        }
        op_values(run, BITS_MAGNITUDE)[k] = magnitude;
    }
    op_values(run, BITS_ENTROPY)[0] = entropy;
}

static void setup_bit_entropy_backward(struct op_run *run)
{
    setup_bits(run);
    op_array(run, "mean_p", INPUT, DTYPE_F32, 2 * run->columns);
    op_array(run, "coefficient", INPUT, DTYPE_F32, 1);
    op_operand(run, "dx", UPDATED, DTYPE_F32, bit_images(run) * BIT_CELLS, run->columns, 0);
    for (i64 i = 0; i < 2 * run->columns; i++)
        op_values(run, BITSB_MEAN)[i] = bit_mean(run, i / run->columns, i % run->columns);
    op_values(run, BITSB_COEFFICIENT)[0] = (double)(bit_images(run) * run->columns);
}

static void call_bit_entropy_backward(struct device *device, struct op_run *run)
{
    device->ops->bit_entropy_backward(device, op_data(run, BITSB_DX), op_data(run, BITSB_U), op_data(run, BITSB_MEAN),
                                      bit_images(run), 2, 2, run->columns, bit_scales, 2, op_data(run, BITSB_AMPLITUDE),
                                      (float)bit_sharpness, op_data(run, BITSB_COEFFICIENT));
}

/* Derivative by u, averaged over all positions, bits and scales: (logit(mean p) - z) p (1 - p)
 * slope. Each cell has a share in every area that contains it. */
static double bit_slope(const struct op_run *run, i64 k, i64 i, i64 c)
{
    double slope = bit_sharpness / op_values(run, BITSB_AMPLITUDE)[k], p = bit_p(run, k, i, c);
    double mean = op_values(run, BITSB_MEAN)[k * run->columns + c];
    i64 values = bit_images(run) * (k ? BIT_CELLS : 1) * run->columns * 2;
    if (mean <= 0 || mean >= 1)
        return 0;
    return (log(mean / (1 - mean)) - slope * bit_u(run, k, i, c)) * p * (1 - p) * slope / (double)values;
}

static void reference_bit_entropy_backward(struct op_run *run)
{
    for (i64 cell = 0; cell < bit_images(run) * BIT_CELLS; cell++)
        for (i64 c = 0; c < run->columns; c++)
            op_values(run, BITSB_DX)[cell * run->columns + c] +=
                op_values(run, BITSB_COEFFICIENT)[0] *
                (bit_slope(run, 0, cell / BIT_CELLS, c) / BIT_CELLS + bit_slope(run, 1, cell, c));
}

const struct op_case picture_cases[] = {
    {"resize", 2 * COUNT_OF(sizes), setup_resize, call_resize, reference_resize, .usual = {64, 64, 32}, .depth_step = 2,
     .shapes = picture_shapes},
    {"resize_backward", 2 * COUNT_OF(sizes), setup_resize_backward, call_resize_backward, reference_resize_backward,
     .usual = {64, 64, 32}, .depth_step = 2, .shapes = picture_shapes},
    {"permute", COUNT_OF(permutations), setup_permute, call_permute, reference_permute, .usual = {4096, 512},
     .alike = NO_GAPS, .shapes = permute_shapes},
    {"quantize_bits", 8, setup_quantize_bits, call_quantize_bits, reference_quantize_bits, .usual = {64, 16, 16},
     .depth_step = 1, .alike = ONE_DTYPE | NO_GAPS, .shapes = bits_shapes},
    {"dequantize_bits", 4, setup_dequantize_bits, call_dequantize_bits, reference_dequantize_bits,
     .usual = {64, 16, 16}, .depth_step = 1, .alike = ONE_DTYPE | NO_GAPS, .shapes = bits_shapes},
    {"bit_entropy", 2, setup_bit_entropy, call_bit_entropy, reference_bit_entropy, .usual = {1024, 16},
     .alike = ONE_DTYPE | NO_GAPS},
    {"bit_entropy_backward", 2, setup_bit_entropy_backward, call_bit_entropy_backward, reference_bit_entropy_backward,
     .usual = {1024, 16}, .alike = ONE_DTYPE | NO_GAPS},
    {0},
};
