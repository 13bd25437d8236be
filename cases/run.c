/* Operands: values in double, their images in memory on the host, and in device memory. */
#include "cases/cases.h"

#include <math.h>
#include <string.h>

enum { PATTERN = 0xa5 }; /* what gaps and outputs hold before the op runs */

double op_random(i64 a, i64 b, i64 c)
{
    return 4 * rng_uniform((struct rng_key){17, RNG_TEST}, (u32)a, (u32)b, (u32)c, 0) - 2;
}

i64 op_below(i64 bound, i64 a, i64 b)
{
    return rng_below((struct rng_key){29, RNG_TEST}, bound, (u32)a, (u32)b, 0, 0);
}

int op_operand(struct op_run *run, const char *name, enum role role, enum dtype dtype, i64 rows, i64 columns, i64 gap)
{
    require(run->count < OPERANDS_MAX, "%s is operand number %d", name, run->count);
    struct operand *o = &run->operands[run->count];
    *o = (struct operand){name, dtype, role, rows, columns, columns + gap, -1, NULL, NULL, NULL};
    o->image = memory_alloc(max_i64(operand_bytes(o), 1));
    o->values = memory_alloc(max_i64(rows * columns * 8, 1));
    for (i64 i = 0; role != OUTPUT && i < rows * columns; i++)
        o->values[i] = op_random(i, run->count, rows);
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
    for (i64 i = 0; i < o->rows * o->columns; i++)
        o->values[i] = op_random(i, index, o->rows);
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

double operand_at(const struct operand *o, i64 row, i64 column)
{
    i64 i = row * o->stride + column;
    switch (o->dtype) {
    case DTYPE_F32:
        return (double)((const float *)o->image)[i];
    case DTYPE_BF16:
        return (double)bf16_to_f32(((const bf16 *)o->image)[i]);
    case DTYPE_F64:
        return ((const double *)o->image)[i];
    case DTYPE_I32:
        return ((const i32 *)o->image)[i];
    case DTYPE_I64:
        return (double)((const i64 *)o->image)[i];
    default:
        return ((const u8 *)o->image)[i];
    }
}

static void image_write(struct operand *o, i64 row, i64 column, double value)
{
    i64 i = row * o->stride + column;
    switch (o->dtype) {
    case DTYPE_F32:
        ((float *)o->image)[i] = (float)value;
        break;
    case DTYPE_BF16:
        ((bf16 *)o->image)[i] = bf16_from_f32((float)value);
        break;
    case DTYPE_F64:
        ((double *)o->image)[i] = value;
        break;
    case DTYPE_I32:
        ((i32 *)o->image)[i] = (i32)value;
        break;
    case DTYPE_I64:
        ((i64 *)o->image)[i] = (i64)value;
        break;
    default:
        ((u8 *)o->image)[i] = (u8)(i32)value;
        break;
    }
}

static void image_of_values(struct operand *o)
{
    memset(o->image, PATTERN, (size_t)operand_bytes(o));
    for (i64 i = 0; o->role != OUTPUT && i < o->rows; i++)
        for (i64 j = 0; j < o->columns; j++)
            image_write(o, i, j, o->values[i * o->columns + j]);
}

/* ---- A run ---- */
void op_open(struct op_run *run, const struct op_case *c)
{
    run->count = 0;
    c->setup(run);
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        image_of_values(o);
        for (i64 i = 0; o->role != OUTPUT && i < o->rows; i++)
            for (i64 j = 0; j < o->columns; j++)
                o->values[i * o->columns + j] = operand_at(o, i, j);
    }
}

void op_put(struct op_run *run, struct device *device)
{
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        bool first = !o->data;
        if (first)
            o->data = device_alloc(device, max_i64(operand_bytes(o), 1));
        if (!first && o->role == INPUT)
            continue;
        image_of_values(o);
        device_put(device, o->data, o->image, operand_bytes(o));
    }
}

void op_get(struct op_run *run, struct device *device)
{
    for (int k = 0; k < run->count; k++)
        device_get(device, run->operands[k].image, run->operands[k].data, operand_bytes(&run->operands[k]));
}

void op_release(struct op_run *run, struct device *device)
{
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        device_free(device, o->data, max_i64(operand_bytes(o), 1));
        memory_free(o->image);
        memory_free(o->values);
    }
    run->count = 0;
}
