/* Codebooks: the residual vector quantizer. */
#include "op_cases/op_cases.h"

#include <math.h>
#include <string.h>

static const struct rng_key key = {23, RNG_TEST};

/* ---- quantize_vectors: `depth` codewords per level; bit 0: no residual ----
 * The second half of a codebook repeats the first, whose codewords must win the ties. Numbers lie
 * on a grid, where float and double agree on the nearest codeword. */
enum { VECTOR_X, VECTOR_BOOKS, VECTOR_CODES, VECTOR_SUM, VECTOR_RESIDUAL };
enum { DEPTH = 3 };
static const struct op_shape vector_shapes[] = {{0, 3, 2}, {1, 1, 2}, {3, 40, 2}, {131, 13, 38}, {70, 64, 128}, {-1}};

static void to_grid(struct op_run *run, int index)
{
    const struct operand *o = &run->operands[index];
    for (i64 i = 0; i < o->rows * o->columns; i++)
        o->values[i] = floor(o->values[i] * 4) / 4;
}

static void setup_quantize_vectors(struct op_run *run)
{
    i64 d = run->columns, half = run->depth / 2;
    op_matrix(run, "x", INPUT, run->rows, d);
    op_array(run, "codebooks", INPUT, DTYPE_F32, DEPTH * run->depth * d);
    op_array(run, "codes", OUTPUT, DTYPE_I32, run->rows * DEPTH);
    op_operand(run, "sum", OUTPUT, DTYPE_F32, run->rows, d, 0);
    op_operand(run, "residual", run->variant & 1 ? INPUT : OUTPUT, DTYPE_F32, run->rows * DEPTH, d, 0);
    to_grid(run, VECTOR_X);
    to_grid(run, VECTOR_BOOKS);
    double *books = op_values(run, VECTOR_BOOKS);
    for (i64 l = 0; l < DEPTH; l++)
        memcpy(books + (l * run->depth + half) * d, books + l * run->depth * d, (size_t)(half * d) * 8);
}

static void call_quantize_vectors(struct device *device, struct op_run *run)
{
    device->ops->quantize_vectors(device, op_data(run, VECTOR_CODES), op_data(run, VECTOR_SUM),
                                  run->variant & 1 ? NULL : op_data(run, VECTOR_RESIDUAL), op_as_matrix(run, VECTOR_X),
                                  op_data(run, VECTOR_BOOKS), DEPTH, run->depth);
}

static i64 nearest_word(const double *x, const double *book, i64 words, i64 d)
{
    i64 best = 0;
    double least = INFINITY;
    for (i64 w = 0; w < words; w++) {
        double sum = 0;
        for (i64 c = 0; c < d; c++)
            sum += (x[c] - book[w * d + c]) * (x[c] - book[w * d + c]);
        best = sum < least ? w : best;
        least = fmin(least, sum);
    }
    return best;
}

static void reference_quantize_vectors(struct op_run *run)
{
    i64 d = run->columns;
    double *rest = memory_alloc(d * 8);
    for (i64 i = 0; i < run->rows; i++) {
        memcpy(rest, op_values(run, VECTOR_X) + i * d, (size_t)d * 8);
        for (i64 l = 0; l < DEPTH; l++) {
            const double *book = op_values(run, VECTOR_BOOKS) + l * run->depth * d;
            i64 code = nearest_word(rest, book, run->depth, d);
            op_values(run, VECTOR_CODES)[i * DEPTH + l] = (double)code;
            if (!(run->variant & 1))
                memcpy(op_values(run, VECTOR_RESIDUAL) + (i * DEPTH + l) * d, rest, (size_t)d * 8);
            for (i64 c = 0; c < d; c++) {
                op_values(run, VECTOR_SUM)[i * d + c] += book[code * d + c];
                rest[c] -= book[code * d + c];
            }
        }
    }
    memory_free(rest);
}

/* ---- Codebook training; the last codeword of a level is never used ---- */

enum { LEVELS = 2, CODES = 5, STEP = 9 };

static struct codebooks books_of(const struct op_run *run)
{
    return (struct codebooks){LEVELS, CODES, run->columns, 0.75, run->variant ? 0.4 : 0, 2, key, STEP};
}

static i64 vectors_of(const struct op_run *run)
{
    return max_i64(run->rows, 1); /* drawing needs at least one vector */
}

static int codes(struct op_run *run, i64 count)
{
    int index = op_array(run, "codes", INPUT, DTYPE_I32, count);
    for (i64 i = 0; i < count; i++)
        op_values(run, index)[i] = (double)rng_below(key, CODES - 1, (u32)i, 0, 0, 0);
    return index;
}

static void setup_move(struct op_run *run)
{
    i64 n = vectors_of(run), words = LEVELS * CODES;
    op_array(run, "words", UPDATED, DTYPE_F32, words * run->columns);
    int use = op_array(run, "use", UPDATED, DTYPE_F32, words),
        unseen = op_array(run, "unseen", UPDATED, DTYPE_F32, words);
    op_array(run, "revived", UPDATED, DTYPE_F64, 1);
    codes(run, n * LEVELS);
    op_array(run, "residual", INPUT, DTYPE_F32, n * LEVELS * run->columns);
    for (i64 i = 0; i < words; i++) {
        op_values(run, use)[i] = fabs(op_values(run, use)[i]);
        op_values(run, unseen)[i] = (double)(i % 4);
    }
}

static void call_move(struct device *device, struct op_run *run)
{
    struct codebooks books = books_of(run);
    device->ops->codebook_move(device, op_data(run, 0), op_data(run, 1), op_data(run, 2), op_data(run, 3),
                               op_data(run, 4), op_data(run, 5), vectors_of(run), &books);
}

static double residual_at(const struct op_run *run, i64 row, i64 level, i64 c)
{
    return op_values(run, 5)[(row * LEVELS + level) * run->columns + c];
}

static i64 count_of(const struct op_run *run, i64 level, i64 code)
{
    i64 count = 0;
    for (i64 i = 0; i < vectors_of(run); i++)
        count += (i64)op_values(run, 4)[i * LEVELS + level] == code;
    return count;
}

static void move_reference(struct op_run *run)
{
    for (i64 w = 0; w < LEVELS * CODES; w++) {
        i64 level = w / CODES, code = w % CODES, count = count_of(run, level, code);
        double *use = &op_values(run, 1)[w], *unseen = &op_values(run, 2)[w],
               *word = op_values(run, 0) + w * run->columns;
        double before = 0.75 * *use, after = before + 0.25 * (double)count;
        double even = (double)vectors_of(run) / CODES;
        bool returns = (count == 0 && *unseen >= 2) || after < (run->variant ? 0.4 : 0) * even;
        i64 drawn = rng_below(key, vectors_of(run), STEP, (u32)level, (u32)code, 0);
        for (i64 c = 0; c < run->columns; c++) {
            double sum = 0;
            for (i64 i = 0; i < vectors_of(run); i++)
                if ((i64)op_values(run, 4)[i * LEVELS + level] == code)
                    sum += residual_at(run, i, level, c);
            if (count > 0)
                word[c] = (before * word[c] + 0.25 * sum) / after;
            if (returns)
                word[c] = residual_at(run, drawn, level, c);
        }
        *use = returns ? even : after;
        *unseen = count > 0 || returns ? 0 : *unseen + 1;
        *op_values(run, 3) += returns;
    }
}

static void setup_mean(struct op_run *run)
{
    i64 n = vectors_of(run);
    op_array(run, "words", OUTPUT, DTYPE_F32, CODES * run->columns);
    codes(run, n);
    op_floats(run, "x", INPUT, n, run->columns);
}

static void call_mean(struct device *device, struct op_run *run)
{
    struct codebooks books = books_of(run);
    device->ops->codebook_mean(device, op_data(run, 0), run->variant ? NULL : op_data(run, 1), op_as_matrix(run, 2), 1,
                               4, &books);
}

static void mean_reference(struct op_run *run)
{
    i64 n = vectors_of(run);
    for (i64 w = 0; w < CODES * run->columns; w++) {
        i64 code = w / run->columns, c = w % run->columns, count = 0;
        double sum = 0;
        for (i64 i = 0; i < n && !run->variant; i++)
            if ((i64)op_values(run, 1)[i] == code) {
                sum += op_values(run, 2)[i * run->columns + c];
                count++;
            }
        i64 drawn = rng_below(key, n, STEP, 1, (u32)code, 4);
        op_values(run, 0)[w] = count ? sum / (double)count : op_values(run, 2)[drawn * run->columns + c];
    }
}

const struct op_case code_cases[] = {
    {"quantize_vectors", 2, setup_quantize_vectors, call_quantize_vectors, reference_quantize_vectors,
     .usual = {4096, 64, 256}, .depth_step = 2, .shapes = vector_shapes, .multiplies = true},
    {"codebook_move", 2, setup_move, call_move, move_reference, .usual = {4096, 64}, .alike = ONE_DTYPE | NO_GAPS},
    {"codebook_mean", 2, setup_mean, call_mean, mean_reference, .usual = {4096, 64}, .alike = ONE_DTYPE},
    {0},
};
