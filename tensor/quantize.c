/* Quantizes weights to 8 or 4 bits, once, after a model is loaded for inference. */
#include "kernels/quantized.h"
#include "tensor/weights.h"

#include <math.h>
#include <string.h>

enum { CODES = 16, BLOCK = 32, BLOCKS_OF_STEP = QUANTIZED_COLUMNS / BLOCK };
static const signed char book[CODES] = QUANTIZED_CODEBOOK;

/* ---- A row in 8 bits ---- */

static float round_row(signed char *v, const float *x, i64 n, float scale)
{
    double with = 0, own = 0; /* sums of x v and v^2; their ratio is the least-squares scale */
    for (i64 i = 0; i < n; i++) {
        float whole = scale > 0 ? rintf(x[i] / scale) : 0;
        whole = whole > 127 ? 127 : whole < -127 ? -127 : whole;
        v[i] = (signed char)whole;
        with += (double)x[i] * whole;
        own += (double)whole * whole;
    }
    return own > 0 ? (float)(with / own) : 0;
}

static double square_error(const signed char *v, const float *x, i64 n, float scale)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++) {
        double d = x[i] - (double)scale * v[i];
        sum += d * d;
    }
    return sum;
}

static float largest_of(const float *x, i64 n)
{
    float most = 0;
    for (i64 i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* Clips the largest values of a row if that lowers the total square error. */
static float quantize_row_8(signed char *v, const float *x, i64 n)
{
    enum { TRIALS = 10 };
    float largest = largest_of(x, n), best_trial = largest / 127;
    double least = INFINITY;
    for (int i = 0; i < TRIALS; i++) {
        float trial = largest / 127 * (1 - 0.03f * (float)i), scale = round_row(v, x, n, trial);
        double error = square_error(v, x, n, scale);
        if (error < least) {
            least = error;
            best_trial = trial;
        }
    }
    return round_row(v, x, n, best_trial);
}

/* ---- A row in 4 bits ---- */

/* Square error of a block if each number becomes the nearest of the 16 values. */
static float error_of(const float *x, const float *value)
{
    float best[BLOCK], sum = 0;
    for (int i = 0; i < BLOCK; i++)
        best[i] = INFINITY;
    for (int code = 0; code < CODES; code++)
        for (int i = 0; i < BLOCK; i++) {
            float d = x[i] - value[code], error = d * d;
            best[i] = error < best[i] ? error : best[i];
        }
    for (int i = 0; i < BLOCK; i++)
        sum += best[i];
    return sum;
}

static void nearest_codes(u8 *codes, const float *x, const float *value)
{
    for (int i = 0; i < BLOCK; i++) {
        float least = INFINITY;
        for (int code = 0; code < CODES; code++) {
            float d = x[i] - value[code];
            codes[i] = d * d < least ? (u8)code : codes[i];
            least = d * d < least ? d * d : least;
        }
    }
}

static float error_of_scale(const float *x, float scale)
{
    float value[CODES];
    for (int code = 0; code < CODES; code++)
        value[code] = scale * (float)book[code];
    return error_of(x, value);
}

/* The scale, of either sign, that fits the codebook to a block: tries three magnitudes per sign,
 * then both neighbours of the best. */
static float block_scale(const float *x)
{
    static const float share[3] = {0.8f, 0.95f, 1.1f};
    float largest = largest_of(x, BLOCK) / 127, least = INFINITY, best = 0, middle;
    for (int i = 0; i < 6 && largest > 0; i++) {
        float scale = (i % 2 ? -largest : largest) * share[i / 2], error = error_of_scale(x, scale);
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    middle = best;
    for (int side = -1; side <= 1 && largest > 0; side += 2) {
        float scale = middle + 0.06f * (float)side * largest, error = error_of_scale(x, scale);
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

/* Chooses the factor near `wanted` with the least error, and the codes for it. */
static u8 choose_factor(u8 *codes, const float *x, float row_scale, float wanted)
{
    int middle = QUANTIZED_FACTOR_ZERO + (int)rintf(wanted), best = QUANTIZED_FACTOR_ZERO;
    float least = INFINITY, value[CODES];
    for (int factor = middle - 1; factor <= middle + 1; factor++) {
        for (int code = 0; code < CODES; code++)
            value[code] = row_scale * (float)quantized_value(book[code], factor);
        float error = factor < 0 || factor >= QUANTIZED_FACTOR_COUNT ? INFINITY : error_of(x, value);
        if (error < least) {
            least = error;
            best = factor;
        }
    }
    for (int code = 0; code < CODES; code++)
        value[code] = row_scale * (float)quantized_value(book[code], best);
    nearest_codes(codes, x, value);
    return (u8)best;
}

/* Quantizes a row to codes and factors, block by block. x is zero-padded to whole blocks. */
static float quantize_row_4(u8 *codes, u8 *factors, const float *x, i64 blocks)
{
    float largest = 0;
    double with = 0, own = 0;
    float *scale = memory_alloc(blocks * 4);
    for (i64 b = 0; b < blocks; b++) {
        scale[b] = block_scale(x + b * BLOCK);
        largest = fabsf(scale[b]) > largest ? fabsf(scale[b]) : largest;
    }
    for (i64 b = 0; b < blocks; b++) {
        float wanted = largest > 0 ? scale[b] / largest * QUANTIZED_FACTOR_ZERO : 0;
        factors[b] = choose_factor(codes + b * BLOCK, x + b * BLOCK, largest, wanted);
        for (int i = 0; i < BLOCK; i++) {
            double v = quantized_value(book[codes[b * BLOCK + i]], factors[b]);
            with += x[b * BLOCK + i] * v;
            own += v * v;
        }
    }
    memory_free(scale);
    return own > 0 ? (float)(with / own) : 0;
}

/* ---- A weight ---- */

struct quantize_job {
    const struct weight *weight;
    struct quantized_weight to; /* host memory, filled row by row */
    const char *from;           /* host copy of the weight */
    i64 steps, strips;
};

static void place_row_8(const struct quantize_job *job, i64 row, const signed char *v)
{
    signed char *codes = (signed char *)(uintptr_t)job->to.codes;
    for (i64 step = 0; step < job->steps; step++)
        memcpy(codes + ((row / QUANTIZED_ROWS * job->steps + step) * QUANTIZED_ROWS + row % QUANTIZED_ROWS) *
                           QUANTIZED_COLUMNS,
               v + step * QUANTIZED_COLUMNS, QUANTIZED_COLUMNS);
}

static void place_row_4(const struct quantize_job *job, i64 row, const u8 *codes, const u8 *factors)
{
    for (i64 step = 0; step < job->steps; step++) {
        i64 at = (row / QUANTIZED_ROWS * job->steps + step) * QUANTIZED_ROWS + row % QUANTIZED_ROWS;
        u8 *to = (u8 *)(uintptr_t)job->to.codes + at * BLOCK;
        const u8 *first = codes + step * QUANTIZED_COLUMNS;
        for (int i = 0; i < BLOCK; i++)
            to[i] = (u8)(first[i] | first[BLOCK + i] << 4);
        memcpy((u8 *)(uintptr_t)job->to.factors + at * BLOCKS_OF_STEP, factors + step * BLOCKS_OF_STEP, BLOCKS_OF_STEP);
    }
}

static void quantize_row(void *context, i64 tile, int worker)
{
    const struct quantize_job *job = context;
    i64 columns = job->to.columns, width = job->steps * QUANTIZED_COLUMNS;
    i64 row = tile / job->to.rows * job->strips * QUANTIZED_ROWS + tile % job->to.rows;
    float *x = memory_alloc(width * 4), *scale = (float *)(uintptr_t)&job->to.scale[row];
    u8 *codes = memory_alloc(width), *factors = memory_alloc(width / BLOCK);
    (void)worker;
    memset(x, 0, (size_t)width * 4);
    for (i64 c = 0; c < columns; c++)
        x[c] = job->weight->value.dtype == DTYPE_F32 ? ((const float *)job->from)[tile * columns + c]
                                                     : bf16_to_f32(((const bf16 *)job->from)[tile * columns + c]);
    if (job->to.bits == 8) {
        *scale = quantize_row_8((signed char *)codes, x, width);
        place_row_8(job, row, (const signed char *)codes);
    } else {
        *scale = quantize_row_4(codes, factors, x, width / BLOCK);
        place_row_4(job, row, codes, factors);
    }
    memory_free(x);
    memory_free(codes);
    memory_free(factors);
}

struct quantized_sizes { /* all in bytes */
    i64 codes, factors, scale;
};
static struct quantized_sizes sizes_of(const struct weight *w, int bits)
{
    i64 rows = w->matrices * quantized_strips(w->rows) * QUANTIZED_ROWS,
        width = quantized_steps(w->columns) * QUANTIZED_COLUMNS;
    return (struct quantized_sizes){rows * width * bits / 8, bits == 4 ? rows * width / BLOCK : 0, rows * 4};
}

/* The meta backend has no values to read or write. */
static bool has_values(const struct weights *weights)
{
    return weights->device->backend != BACKEND_META;
}

static void get(const struct weights *weights, void *host, const void *from, i64 bytes)
{
    if (has_values(weights))
        device_get(weights->device, host, from, bytes);
}

static void *put(struct weights *weights, struct arena *to, void *host, i64 bytes)
{
    void *there = arena_alloc(to, bytes);
    if (has_values(weights))
        device_put(weights->device, there, host, bytes);
    memory_free(host);
    return there;
}

static void quantize_weight(struct weights *weights, struct weight *w, int bits, struct arena *to)
{
    struct quantized_sizes size = sizes_of(w, bits);
    i64 bytes = w->value.rows * w->value.columns * dtype_bytes(w->value.dtype);
    char *copy = memory_alloc(bytes);
    void *codes = memory_alloc(size.codes), *factors = memory_alloc(max_i64(size.factors, 1));
    float *scale = memory_alloc(size.scale);
    memset(codes, 0, (size_t)size.codes);
    memset(factors, QUANTIZED_FACTOR_ZERO, (size_t)size.factors);
    memset(scale, 0, (size_t)size.scale);
    get(weights, copy, w->value.data, bytes);
    struct quantize_job job = {w,
                               {codes, factors, scale, w->matrices, w->rows, w->columns, bits},
                               copy,
                               quantized_steps(w->columns),
                               quantized_strips(w->rows)};
    if (has_values(weights))
        workers_run(w->matrices * w->rows, quantize_row, &job);
    memory_free(copy);
    w->quantized = job.to;
    w->quantized.codes = put(weights, to, codes, size.codes);
    w->quantized.factors = put(weights, to, factors, size.factors);
    w->quantized.scale = put(weights, to, scale, size.scale);
    w->value.quantized = &w->quantized;
}

static bool is_quantized(const struct weight *w)
{
    const struct weight_spec *s = &w->spec;
    return s->multiplied && s->file == FILE_HF && s->type == TYPE_ACTIVATION && w->matrices > 0 && s->disk_rank == 2;
}
static bool is_kept(const struct weight *w) /* an embedding (layer < 0), or not quantized at all */
{
    return !is_quantized(w) || w->spec.layer < 0;
}

static void move_copy(struct weights *weights, struct weight *w, struct arena *to)
{
    i64 bytes = w->value.rows * w->value.columns * dtype_bytes(w->value.dtype);
    void *host = memory_alloc(max_i64(bytes, 1));
    get(weights, host, w->value.data, bytes);
    w->value.data = put(weights, to, host, bytes);
}

void weights_quantize(struct weights *weights, int bits)
{
    i64 bytes = 4096;
    struct arena to;
    require(!weights->training && (bits == 8 || bits == 4), "weights of %d bits", bits);
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        struct quantized_sizes size = is_quantized(w) ? sizes_of(w, bits) : (struct quantized_sizes){0};
        bytes += size.codes + size.factors + size.scale + 1024;
        bytes += is_kept(w) ? w->value.rows * w->value.columns * dtype_bytes(w->value.dtype) : 0;
    }
    device_arena_open(weights->device, &to, bytes);
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        if (is_quantized(w))
            quantize_weight(weights, w, bits, &to);
        if (is_kept(w))
            move_copy(weights, w, &to);
        else
            w->value.data = NULL;
        w->master = w->value.dtype == DTYPE_F32 ? w->value.data : NULL;
    }
    device_arena_close(weights->device, &weights->memory);
    weights->memory = to;
    weights->grads = NULL;
    weights->written = NULL;
}
