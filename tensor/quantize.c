/* Quantizes weights to 8 or 4 bits, row by row, as a model is loaded for inference. */
#include "kernels/quantized.h"
#include "tensor/inside.h"

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

static bool is_quantized(const struct weights *weights, const struct weight *w)
{
    const struct weight_spec *s = &w->spec;
    return weights->bits && s->multiplied && s->file == FILE_HF && s->type == TYPE_ACTIVATION && w->matrices > 0 &&
           s->disk_rank == 2;
}

struct quantized_sizes { /* all in bytes */
    i64 codes, factors, scale;
};
static struct quantized_sizes sizes_of(i64 strips, i64 columns, int bits)
{
    i64 rows = strips * QUANTIZED_ROWS, width = quantized_steps(columns) * QUANTIZED_COLUMNS;
    return (struct quantized_sizes){rows * width * bits / 8, bits == 4 ? rows * width / BLOCK : 0, rows * 4};
}

i64 quantized_bytes(const struct weights *weights, const struct weight *w)
{
    struct quantized_sizes size = sizes_of(w->matrices * quantized_strips(w->rows), w->columns, weights->bits);
    return is_quantized(weights, w) ? size.codes + size.factors + size.scale + 1024 : 0;
}

bool quantized_replaces(const struct weights *weights, const struct weight *w)
{
    return is_quantized(weights, w) && w->spec.layer >= 0; /* an embedding, of layer -1, is looked up too */
}

/* Strips of the stacked parts, in host memory. */
struct strips {
    void *codes;
    u8 *factors;
    float *scale;
    i64 first, count;
};

static void open_strips(struct strips *s, i64 first, i64 count, const struct quantized_weight *q)
{
    struct quantized_sizes size = sizes_of(count, q->columns, q->bits);
    *s = (struct strips){memory_alloc(size.codes), memory_alloc(size.factors), memory_alloc(size.scale), first, count};
    memset(s->factors, QUANTIZED_FACTOR_ZERO, (size_t)size.factors);
}

/* Copies the strips to the device, or from it, and frees nothing. */
static void move_strips(struct device *device, struct strips *s, const struct quantized_weight *q, bool to_device)
{
    struct quantized_sizes at = sizes_of(s->first, q->columns, q->bits), size = sizes_of(s->count, q->columns, q->bits);
    const struct {
        void *host;
        const void *device;
        i64 bytes;
    } parts[] = {{s->codes, (const char *)q->codes + at.codes, size.codes},
                 {s->factors, q->factors + at.factors, size.factors},
                 {s->scale, (const char *)q->scale + at.scale, size.scale}};
    for (i64 i = 0; i < COUNT_OF(parts); i++) {
        if (parts[i].bytes == 0)
            continue;
        if (to_device)
            device_put(device, (void *)(uintptr_t)parts[i].device, parts[i].host, parts[i].bytes);
        else
            device_get(device, parts[i].host, parts[i].device, parts[i].bytes);
    }
}

static void close_strips(struct strips *s)
{
    memory_free(s->codes);
    memory_free(s->factors);
    memory_free(s->scale);
}

struct quantize_job {
    const struct quantized_weight *form;
    struct strips to; /* of one part */
    i64 first_row;    /* row of `to` that tile 0 writes */
    const float *from;
    enum dtype dtype; /* to which values are rounded first */
};

static void place_row_8(const struct quantize_job *job, i64 row, const signed char *v)
{
    signed char *codes = job->to.codes;
    i64 steps = quantized_steps(job->form->columns);
    for (i64 step = 0; step < steps; step++)
        memcpy(codes +
                   ((row / QUANTIZED_ROWS * steps + step) * QUANTIZED_ROWS + row % QUANTIZED_ROWS) * QUANTIZED_COLUMNS,
               v + step * QUANTIZED_COLUMNS, QUANTIZED_COLUMNS);
}

static void place_row_4(const struct quantize_job *job, i64 row, const u8 *codes, const u8 *factors)
{
    i64 steps = quantized_steps(job->form->columns);
    for (i64 step = 0; step < steps; step++) {
        i64 at = (row / QUANTIZED_ROWS * steps + step) * QUANTIZED_ROWS + row % QUANTIZED_ROWS;
        u8 *to = (u8 *)job->to.codes + at * BLOCK;
        const u8 *first = codes + step * QUANTIZED_COLUMNS;
        for (int i = 0; i < BLOCK; i++)
            to[i] = (u8)(first[i] | first[BLOCK + i] << 4);
        memcpy(job->to.factors + at * BLOCKS_OF_STEP, factors + step * BLOCKS_OF_STEP, BLOCKS_OF_STEP);
    }
}

static void quantize_row(void *context, i64 tile, int worker)
{
    const struct quantize_job *job = context;
    i64 columns = job->form->columns, width = quantized_steps(columns) * QUANTIZED_COLUMNS, row = job->first_row + tile;
    float *x = memory_alloc(width * 4);
    u8 *codes = memory_alloc(width), *factors = memory_alloc(width / BLOCK);
    (void)worker;
    for (i64 c = 0; c < columns; c++) {
        float value = job->from[tile * columns + c];
        x[c] = job->dtype == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(value)) : value;
    }
    if (job->form->bits == 8) {
        job->to.scale[row] = quantize_row_8((signed char *)codes, x, width);
        place_row_8(job, row, (const signed char *)codes);
    } else {
        job->to.scale[row] = quantize_row_4(codes, factors, x, width / BLOCK);
        place_row_4(job, row, codes, factors);
    }
    memory_free(x);
    memory_free(codes);
    memory_free(factors);
}

/* Rows [row, +rows) of one part. A strip of which only some rows are put keeps the others. */
static void put_rows(struct weights *weights, struct weight *w, i64 part, i64 row, i64 rows, const float *values)
{
    i64 first = row / QUANTIZED_ROWS, end = quantized_strips(row + rows);
    struct quantize_job job = {
        .form = &w->quantized, .first_row = row % QUANTIZED_ROWS, .from = values, .dtype = w->value.dtype};
    open_strips(&job.to, part * quantized_strips(w->rows) + first, end - first, &w->quantized);
    if (row % QUANTIZED_ROWS || (row + rows) % QUANTIZED_ROWS)
        move_strips(weights->device, &job.to, &w->quantized, false);
    workers_run(rows, quantize_row, &job);
    move_strips(weights->device, &job.to, &w->quantized, true);
    close_strips(&job.to);
}

/* The meta backend has no values to read or write. */
static bool has_values(const struct weights *weights)
{
    return weights->device->backend != BACKEND_META;
}

void quantized_put(struct weights *weights, struct weight *w, i64 row, i64 rows, const float *values)
{
    while (rows > 0 && has_values(weights)) {
        i64 part = row / w->rows, count = min_i64(rows, (part + 1) * w->rows - row);
        put_rows(weights, w, part, row % w->rows, count, values);
        values += count * w->columns;
        row += count;
        rows -= count;
    }
}

/* Rows that pad the last strip of a part are never put: they are zero from the beginning. */
void quantized_allocate(struct weights *weights, struct weight *w)
{
    i64 strips = quantized_strips(w->rows);
    struct quantized_sizes size = sizes_of(w->matrices * strips, w->columns, weights->bits);
    struct strips last;
    w->quantized = (struct quantized_weight){.codes = arena_alloc(&weights->memory, size.codes),
                                             .factors = arena_alloc(&weights->memory, size.factors),
                                             .scale = arena_alloc(&weights->memory, size.scale),
                                             .parts = w->matrices,
                                             .rows = w->rows,
                                             .columns = w->columns,
                                             .bits = weights->bits};
    w->forms.quantized = &w->quantized;
    open_strips(&last, 0, 1, &w->quantized);
    for (i64 part = 0; part < w->matrices && w->rows % QUANTIZED_ROWS && has_values(weights); part++) {
        last.first = (part + 1) * strips - 1;
        move_strips(weights->device, &last, &w->quantized, true);
    }
    close_strips(&last);
}

void weights_quantize(struct weights *weights, int bits)
{
    require(!weights->training && !weights->memory.base && (bits == 8 || bits == 4),
            "weights of %d bits in a table that trains or is allocated", bits);
    weights->bits = bits;
}
