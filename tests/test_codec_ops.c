/* Ops of the tokenizers' transforms and codebooks against plain double loops. */
#include "tests/ops.h"

static const struct rng_key key = {23, RNG_TEST};

/* An F32 matrix, whatever the activations are. */
static int floats(struct op_run *run, const char *name, enum role role, i64 rows, i64 columns)
{
    return op_operand(run, name, role, DTYPE_F32, rows, columns, run->gap);
}

/* ---- narrow_bytes ---- */

/* In steps that both dtypes hold exactly, so that what is half way is so. */
static void setup_narrow(struct op_run *run)
{
    op_array(run, "bytes", OUTPUT, DTYPE_U8, run->rows * run->columns);
    int x = op_operand(run, "x", INPUT, run->dtype, run->rows, run->columns, 0);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, x)[i] = floor(op_values(run, x)[i] * 64) / 64;
}

static void call_narrow(struct device *device, struct op_run *run)
{
    device->ops->narrow_bytes(device, op_data(run, 0), op_as_matrix(run, 1), 1, 127.5f);
}

static void narrow_reference(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, 0)[i] = fmin(255, fmax(0, floor((op_values(run, 1)[i] + 1) * 127.5 + 0.5)));
}

/* ---- map, multiply_rows, multiply_ratio ---- */

enum { REPEAT = 3 };

static void setup_map(struct op_run *run)
{
    floats(run, "out", OUTPUT, run->rows, run->columns);
    floats(run, "x", INPUT, run->rows, run->columns);
}

static void call_map(struct device *device, struct op_run *run)
{
    device->ops->map(device, op_as_matrix(run, 0), op_as_matrix(run, 1), (enum map)run->variant, 0.25f);
}

static void map_reference(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++) {
        double x = op_values(run, 1)[i], above = fmax(x, 0.25);
        op_values(run, 0)[i] = run->variant == MAP_LOG ? log(above) : run->variant == MAP_MAX ? above : exp(x);
    }
}

static void setup_rows(struct op_run *run)
{
    floats(run, "x", UPDATED, run->rows, run->columns);
    op_array(run, "by", INPUT, DTYPE_F32, ceil_div(run->rows, REPEAT) * run->columns);
}

static void call_rows(struct device *device, struct op_run *run)
{
    device->ops->multiply_rows(device, op_as_matrix(run, 0), op_data(run, 1), REPEAT);
}

static void rows_reference(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, 0)[i] *= op_values(run, 1)[i / run->columns / REPEAT * run->columns + i % run->columns];
}

static void setup_ratio(struct op_run *run)
{
    floats(run, "x", UPDATED, run->rows, run->columns);
    floats(run, "over", INPUT, run->rows, run->columns);
    int under = floats(run, "under", INPUT, run->rows, run->columns);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, under)[i] = fabs(op_values(run, under)[i]);
}

static void call_ratio(struct device *device, struct op_run *run)
{
    device->ops->multiply_ratio(device, op_as_matrix(run, 0), op_as_matrix(run, 1), op_as_matrix(run, 2), 0.5f);
}

static void ratio_reference(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, 0)[i] *= op_values(run, 1)[i] / (op_values(run, 2)[i] + 0.5);
}

/* ---- phases ---- */

static i64 spectra_of(const struct op_run *run) /* the last magnitude counts twice */
{
    return run->rows ? run->rows + 1 : 0;
}

static double magnitude_at(const struct op_run *run, i64 row, i64 k)
{
    return op_values(run, 1)[min_i64(row, run->rows - 1) * run->columns + k];
}

static void setup_draw(struct op_run *run)
{
    floats(run, "spectrum", OUTPUT, spectra_of(run), 2 * run->columns);
    floats(run, "magnitude", INPUT, run->rows, run->columns);
}

static void call_draw(struct device *device, struct op_run *run)
{
    device->ops->phases_draw(device, op_as_matrix(run, 0), op_as_matrix(run, 1), key);
}

static void draw_reference(struct op_run *run)
{
    for (i64 f = 0; f < spectra_of(run); f++)
        for (i64 k = 0; k < run->columns; k++) {
            double angle = 2 * acos(-1) * rng_uniform(key, (u32)f, (u32)k, 0, 0), *re = op_values(run, 0);
            re[f * 2 * run->columns + k] = magnitude_at(run, f, k) * cos(angle);
            re[(f * 2 + 1) * run->columns + k] = magnitude_at(run, f, k) * sin(angle);
        }
}

/* Away from zero, where the direction of a float is its rounding's. */
static void setup_push(struct op_run *run)
{
    setup_draw(run);
    int now = floats(run, "now", INPUT, spectra_of(run), 2 * run->columns);
    int last = floats(run, "last", INPUT, spectra_of(run), 2 * run->columns);
    for (i64 i = 0; i < spectra_of(run) * 2 * run->columns; i++) {
        op_values(run, now)[i] = (i % 2 ? 3 : -3) + op_values(run, now)[i] / 4;
        op_values(run, last)[i] /= 4;
    }
}

static void call_push(struct device *device, struct op_run *run)
{
    device->ops->phases_push(device, op_as_matrix(run, 0), op_as_matrix(run, 2), op_as_matrix(run, 3),
                             op_as_matrix(run, 1), 0.99f);
}

static void push_reference(struct op_run *run)
{
    const double *now = op_values(run, 2), *last = op_values(run, 3), momentum = (double)0.99f;
    for (i64 f = 0; f < spectra_of(run); f++)
        for (i64 k = 0; k < run->columns; k++) {
            i64 re = f * 2 * run->columns + k, im = re + run->columns;
            double a = now[re] + momentum * (now[re] - last[re]), b = now[im] + momentum * (now[im] - last[im]);
            op_values(run, 0)[re] = magnitude_at(run, f, k) * a / hypot(a, b);
            op_values(run, 0)[im] = magnitude_at(run, f, k) * b / hypot(a, b);
        }
}

/* ---- codebooks ---- */

enum { LEVELS = 2, CODES = 5, STEP = 9 };

static struct codebooks books_of(const struct op_run *run)
{
    return (struct codebooks){LEVELS, CODES, run->columns, 0.75, 2, key, STEP};
}

static i64 vectors_of(const struct op_run *run)
{
    return max_i64(run->rows, 1); /* something must be there to draw */
}

static int codes(struct op_run *run, i64 count)
{
    int index = op_array(run, "codes", INPUT, DTYPE_I32, count);
    for (i64 i = 0; i < count; i++) /* the last word is nobody's */
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
        bool returns = count == 0 && *unseen >= 2;
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
        *use = returns ? (double)vectors_of(run) / CODES : after;
        *unseen = count > 0 || returns ? 0 : *unseen + 1;
        *op_values(run, 3) += returns;
    }
}

static void setup_mean(struct op_run *run)
{
    i64 n = vectors_of(run);
    op_array(run, "words", OUTPUT, DTYPE_F32, CODES * run->columns);
    codes(run, n);
    floats(run, "x", INPUT, n, run->columns);
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

static const struct op_case cases[] = {
    {"narrow_bytes", 1, setup_narrow, call_narrow, narrow_reference, NULL},
    {"map", 3, setup_map, call_map, map_reference, NULL},
    {"multiply_rows", 1, setup_rows, call_rows, rows_reference, NULL},
    {"multiply_ratio", 1, setup_ratio, call_ratio, ratio_reference, NULL},
    {"phases_draw", 1, setup_draw, call_draw, draw_reference, NULL},
    {"phases_push", 1, setup_push, call_push, push_reference, NULL},
    {"codebook_move", 1, setup_move, call_move, move_reference, NULL},
    {"codebook_mean", 2, setup_mean, call_mean, mean_reference, NULL},
};

static void ops_are_plain_loops_in_double(void **state)
{
    (void)state;
    op_check_cases(cases, COUNT_OF(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ops_are_plain_loops_in_double)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
