/* Operands: their values in double, host images and device memory. */
#include "op_cases/op_cases.h"

#include <math.h>
#include <string.h>

enum { PATTERN = 0xa5 }; /* initial contents of gaps and outputs */

/* Returns 32 random bits: splitmix64's finalizer. Cases draw so often that the training generator
 * would dominate their run time. */
static inline u64 mixed(u64 a, u64 b, u64 c)
{
    u64 x = a * 0x9e3779b97f4a7c15u + b * 0xd1342543de82ef95u + c * 0xaf251af3b0f025b5u + 0x2545f4914f6cdd1du;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) >> 32;
}

static inline double random_at(i64 a, i64 b, i64 c)
{
    return (double)(i64)mixed((u64)a, (u64)b, (u64)c) * 0x1p-30 - 2;
}

double op_random(i64 a, i64 b, i64 c)
{
    return random_at(a, b, c);
}

i64 op_below(i64 bound, i64 a, i64 b)
{
    require(bound > 0 && bound <= (i64)1 << 31, "op_below: bound %lld", (long long)bound);
    return (i64)(mixed((u64)a, (u64)b, ~(u64)0) * (u64)bound >> 32);
}

static void fill_random(struct operand *o, i64 number)
{
    for (i64 i = 0; i < o->rows * o->columns; i++)
        o->values[i] = random_at(i, number, o->rows);
}

int op_operand(struct op_run *run, const char *name, enum role role, enum dtype dtype, i64 rows, i64 columns, i64 gap)
{
    require(run->count < OPERANDS_MAX, "%s is operand number %d", name, run->count);
    struct operand *o = &run->operands[run->count];
    *o = (struct operand){name, dtype, role, rows, columns, columns + gap, -1, NULL, NULL, NULL, NULL};
    o->values = memory_alloc(max_i64(rows * columns * 8, 1));
    if (role != OUTPUT)
        fill_random(o, run->count);
    return run->count++;
}

int op_matrix(struct op_run *run, const char *name, enum role role, i64 rows, i64 columns)
{
    return op_operand(run, name, role, run->dtype, rows, columns, run->gap);
}

int op_floats(struct op_run *run, const char *name, enum role role, i64 rows, i64 columns)
{
    return op_operand(run, name, role, DTYPE_F32, rows, columns, run->gap);
}

int op_array(struct op_run *run, const char *name, enum role role, enum dtype dtype, i64 count)
{
    return op_operand(run, name, role, dtype, 1, count, 0);
}

void op_arriving(struct op_run *run, int index, const char *name)
{
    struct operand *o = &run->operands[index];
    o->role = INPUT;
    o->name = name;
    fill_random(o, index);
}

int op_gradient(struct op_run *run, const char *name, enum role role, enum dtype dtype, int input)
{
    const struct operand *of = &run->operands[input];
    int index = op_operand(run, name, role, dtype, of->rows, of->columns, of->stride - of->columns);
    run->operands[index].input = input;
    return index;
}

struct matrix op_as_matrix(const struct op_run *run, int index)
{
    const struct operand *o = &run->operands[index];
    struct matrix m = matrix_of(o->data, o->dtype, o->rows, o->columns);
    m.stride = o->stride;
    return m;
}

void *op_data(const struct op_run *run, int index)
{
    return run->operands[index].data;
}

double *op_values(const struct op_run *run, int index)
{
    return run->operands[index].values;
}

double op_round(double value, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? (double)bf16_to_f32(bf16_from_f32((float)value)) : value;
}

void op_round_all(struct op_run *run, int index)
{
    struct operand *o = &run->operands[index];
    for (i64 i = 0; i < o->rows * o->columns; i++)
        o->values[i] = op_round((double)(float)o->values[i], o->dtype);
}

void op_fill_below(struct op_run *run, int index, i64 bound, i64 first)
{
    struct operand *o = &run->operands[index];
    for (i64 i = 0; i < o->rows * o->columns; i++)
        o->values[i] = (double)(op_below(bound, i, index) + first);
}

double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

double log_sum_exp(const double *x, i64 n)
{
    double most = -INFINITY, sum = 0;
    for (i64 i = 0; i < n; i++)
        most = fmax(most, x[i]);
    for (i64 i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

/* ---- Memory ---- */
i64 operand_bytes(const struct operand *o)
{
    return o->rows * o->stride * dtype_bytes(o->dtype);
}

static double element_of(const void *image, const struct operand *o, i64 row, i64 column)
{
    i64 i = row * o->stride + column;
    switch (o->dtype) {
    case DTYPE_F32:
        return (double)((const float *)image)[i];
    case DTYPE_BF16:
        return (double)bf16_to_f32(((const bf16 *)image)[i]);
    case DTYPE_F64:
        return ((const double *)image)[i];
    case DTYPE_I32:
        return ((const i32 *)image)[i];
    case DTYPE_I64:
        return (double)((const i64 *)image)[i];
    default:
        return ((const u8 *)image)[i];
    }
}

double operand_at(const struct operand *o, i64 row, i64 column)
{
    return element_of(o->image, o, row, column);
}

double operand_before(const struct operand *o, i64 row, i64 column)
{
    return element_of(o->before, o, row, column);
}

/* Stores values in a row of an image and reads the rounded values back. */
#define ROUND_ROW(type, to, from)                                                                                      \
    for (i64 j = 0; j < o->columns; j++) {                                                                             \
        ((type *)row)[j] = to(values[j]);                                                                              \
        values[j] = from(((type *)row)[j]);                                                                            \
    }
#define AS_FLOAT(x) ((float)(x))
#define AS_BF16(x) bf16_from_f32((float)(x))
#define OF_BF16(x) ((double)bf16_to_f32(x))
#define AS_DOUBLE(x) ((double)(x))
#define AS_I32(x) ((i32)(x))
#define AS_I64(x) ((i64)(x))
#define AS_U8(x) ((u8)(i32)(x))

static void round_row(const struct operand *o, void *row, double *values)
{
    switch (o->dtype) {
    case DTYPE_F32:
        ROUND_ROW(float, AS_FLOAT, AS_DOUBLE)
        break;
    case DTYPE_BF16:
        ROUND_ROW(bf16, AS_BF16, OF_BF16)
        break;
    case DTYPE_F64:
        ROUND_ROW(double, AS_DOUBLE, AS_DOUBLE)
        break;
    case DTYPE_I32:
        ROUND_ROW(i32, AS_I32, AS_DOUBLE)
        break;
    case DTYPE_I64:
        ROUND_ROW(i64, AS_I64, AS_DOUBLE)
        break;
    default:
        ROUND_ROW(u8, AS_U8, AS_DOUBLE)
        break;
    }
}

/* Creates the image to upload, and rounds values to its contents. */
static void make_before(struct operand *o)
{
    i64 row_bytes = o->stride * dtype_bytes(o->dtype);
    o->before = memory_alloc(max_i64(operand_bytes(o), 1));
    memset(o->before, PATTERN, (size_t)operand_bytes(o));
    for (i64 i = 0; o->role != OUTPUT && i < o->rows; i++)
        round_row(o, (u8 *)o->before + i * row_bytes, o->values + i * o->columns);
}

/* ---- A run ---- */
void op_open(struct op_run *run, const struct op_case *c)
{
    run->count = 0;
    c->setup(run);
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        make_before(o);
        o->image = memory_alloc(max_i64(operand_bytes(o), 1));
    }
}

void op_put(struct op_run *run, struct device *device)
{
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        bool first = !o->data;
        if (first)
            o->data = device_alloc(device, max_i64(operand_bytes(o), 1));
        if (first || o->role != INPUT)
            device_put(device, o->data, o->before, operand_bytes(o));
    }
}

void op_get(struct op_run *run, struct device *device)
{
    for (int k = 0; k < run->count; k++)
        device_get(device, run->operands[k].image, run->operands[k].data, operand_bytes(&run->operands[k]));
}

void op_leave(struct op_run *run, struct device *device)
{
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        device_free(device, o->data, max_i64(operand_bytes(o), 1));
        o->data = NULL;
    }
}

void op_release(struct op_run *run, struct device *device)
{
    op_leave(run, device);
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        memory_free(o->before);
        memory_free(o->image);
        memory_free(o->values);
    }
    run->count = 0;
}
