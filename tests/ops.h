/* Tests of ops from tables: each case is run in f32 and bf16, on odd shapes, with gaps between rows, by 1, 2 and 4
 * workers, and its outputs are compared with a plain loop in double.
 *
 * A case describes its operands (setup), calls the op (call), and either says what the outputs are (reference) or
 * what they are derivatives of (objective: each gradient is checked by central differences of it). Both read and
 * write `values`, doubles that hold exactly what the op's memory holds. */
#ifndef WEFT_TESTS_OPS_H
#define WEFT_TESTS_OPS_H
#include "core/safetensors.h"
#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define UNUSED_OK __attribute__((unused))

enum { OPERANDS_MAX = 16, GAP = 5, PROBES = 48 };
enum role { INPUT, OUTPUT, UPDATED /* read and written */ };

struct operand {
    const char *name;
    enum dtype dtype;
    enum role role;
    i64 rows, columns, stride;
    int input;      /* of a gradient: the operand it is the derivative by; -1 elsewhere */
    void *data;     /* [rows, stride] */
    double *values; /* [rows, columns] */
};

struct op_run {
    i64 rows, columns; /* nominal: a setup may derive other shapes from them */
    enum dtype dtype;  /* of activations */
    int variant;
    i64 gap;
    int count;
    struct operand operands[OPERANDS_MAX];
};

struct op_case {
    const char *name;
    int variants; /* 0 counts as 1; op_run.variant says which */
    void (*setup)(struct op_run *run);
    void (*call)(struct device *device, struct op_run *run);
    void (*reference)(struct op_run *run);
    double (*objective)(struct op_run *run);
};

/* ---- Operands ---- */
static inline double op_random(i64 a, i64 b, i64 c)
{
    return 4 * rng_uniform((struct rng_key){17, RNG_TEST}, (u32)a, (u32)b, (u32)c, 0) - 2;
}

static inline int op_operand(struct op_run *run, const char *name, enum role role, enum dtype dtype, i64 rows,
                             i64 columns, i64 gap)
{
    assert_true(run->count < OPERANDS_MAX);
    struct operand *o = &run->operands[run->count];
    *o = (struct operand){name, dtype, role, rows, columns, columns + gap, -1, NULL, NULL};
    o->data = memory_alloc(max_i64(rows * o->stride * dtype_bytes(dtype), 1));
    o->values = memory_alloc(max_i64(rows * columns * 8, 1));
    for (i64 i = 0; i < rows * columns; i++)
        o->values[i] = op_random(i, run->count, rows);
    return run->count++;
}

/* A matrix of activations, filled with numbers in [-2, 2); its index. */
static inline UNUSED_OK int op_matrix(struct op_run *run, const char *name, enum role role, i64 rows, i64 columns)
{
    return op_operand(run, name, role, run->dtype, rows, columns, run->gap);
}

/* Memory without gaps, of any type. */
static inline UNUSED_OK int op_array(struct op_run *run, const char *name, enum role role, enum dtype dtype, i64 count)
{
    return op_operand(run, name, role, dtype, 1, count, 0);
}

/* The derivative of the objective by `input`; UPDATED: it adds to what stands there. */
static inline UNUSED_OK int op_gradient(struct op_run *run, const char *name, enum role role, enum dtype dtype,
                                        int input)
{
    const struct operand *of = &run->operands[input];
    int index = op_operand(run, name, role, dtype, of->rows, of->columns, of->stride - of->columns);
    run->operands[index].input = input;
    return index;
}

static inline UNUSED_OK struct matrix op_as_matrix(const struct op_run *run, int index)
{
    const struct operand *o = &run->operands[index];
    return (struct matrix){o->data, o->dtype, o->rows, o->columns, o->stride, NULL};
}

static inline UNUSED_OK void *op_data(const struct op_run *run, int index)
{
    return run->operands[index].data;
}
static inline UNUSED_OK double *op_values(const struct op_run *run, int index)
{
    return run->operands[index].values;
}

static inline double element_read(const struct operand *o, i64 row, i64 column)
{
    i64 i = row * o->stride + column;
    switch (o->dtype) {
    case DTYPE_F32:
        return ((const float *)o->data)[i];
    case DTYPE_BF16:
        return bf16_to_f32(((const bf16 *)o->data)[i]);
    case DTYPE_F64:
        return ((const double *)o->data)[i];
    case DTYPE_I32:
        return ((const i32 *)o->data)[i];
    default:
        return ((const u8 *)o->data)[i];
    }
}

static inline void element_write(struct operand *o, i64 row, i64 column, double value)
{
    i64 i = row * o->stride + column;
    switch (o->dtype) {
    case DTYPE_F32:
        ((float *)o->data)[i] = (float)value;
        break;
    case DTYPE_BF16:
        ((bf16 *)o->data)[i] = bf16_from_f32((float)value);
        break;
    case DTYPE_F64:
        ((double *)o->data)[i] = value;
        break;
    case DTYPE_I32:
        ((i32 *)o->data)[i] = (i32)value;
        break;
    default:
        ((u8 *)o->data)[i] = (u8)(i32)value;
        break;
    }
}

static inline double op_round(double value, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? (double)bf16_to_f32(bf16_from_f32((float)value)) : value;
}

static inline i64 operand_bytes(const struct operand *o)
{
    return o->rows * o->stride * dtype_bytes(o->dtype);
}

/* Memory from values; gaps and outputs hold a pattern. */
static inline void operand_reset(struct operand *o)
{
    memset(o->data, 0xa5, (size_t)operand_bytes(o));
    for (i64 i = 0; o->role != OUTPUT && i < o->rows; i++)
        for (i64 j = 0; j < o->columns; j++)
            element_write(o, i, j, o->values[i * o->columns + j]);
}

/* ---- One run ---- */
static inline void op_setup(struct op_run *run, const struct op_case *c)
{
    run->count = 0;
    c->setup(run);
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        operand_reset(o);
        for (i64 i = 0; o->role != OUTPUT && i < o->rows * o->columns; i++)
            o->values[i] = element_read(o, i / o->columns, i % o->columns);
    }
}

static inline void op_release(struct op_run *run)
{
    for (int k = 0; k < run->count; k++) {
        memory_free(run->operands[k].data);
        memory_free(run->operands[k].values);
    }
}

#define op_fail(c, run, o, ...)                                                                                        \
    do {                                                                                                               \
        print_error("%s variant %d, %s, rows %d, columns %d, gap %d, %s: ", (c)->name, (run)->variant,                 \
                    dtype_name((run)->dtype), (int)(run)->rows, (int)(run)->columns, (int)(run)->gap, (o)->name);      \
        fail_msg(__VA_ARGS__);                                                                                         \
    } while (0)

static inline void check_gaps(const struct op_case *c, const struct op_run *run)
{
    for (int k = 0; k < run->count; k++) {
        const struct operand *o = &run->operands[k];
        for (i64 i = 0; i < o->rows; i++) {
            const u8 *gap = (const u8 *)o->data + (i * o->stride + o->columns) * dtype_bytes(o->dtype);
            for (i64 b = 0; b < (o->stride - o->columns) * dtype_bytes(o->dtype); b++)
                if (gap[b] != 0xa5)
                    op_fail(c, run, o, "written behind row %d", (int)i);
        }
    }
}

/* The same bits from any number of workers: outputs of one are kept and compared with those of two and four. */
static inline void check_workers(const struct op_case *c, struct op_run *run, struct device *device)
{
    void *kept[OPERANDS_MAX];
    for (int workers = 1; workers <= 4; workers *= 2) {
        if (workers_count() != workers)
            workers_start(workers);
        for (int k = 0; k < run->count; k++)
            operand_reset(&run->operands[k]);
        c->call(device, run);
        check_gaps(c, run);
        for (int k = 0; k < run->count; k++) {
            struct operand *o = &run->operands[k];
            if (workers == 1)
                kept[k] = memcpy(memory_alloc(max_i64(operand_bytes(o), 1)), o->data, (size_t)operand_bytes(o));
            else if (memcmp(kept[k], o->data, (size_t)operand_bytes(o)) != 0)
                op_fail(c, run, o, "%d workers give other bits than one", workers);
        }
    }
    for (int k = 0; k < run->count; k++)
        memory_free(kept[k]);
}

/* Rounding once or twice in the operand's dtype, and f32 sums on the scale of the largest value; the longest of them
 * may be one chain where a sanitizer keeps loops from being vectorised. */
static inline double tolerance_of(const struct operand *o, double wanted, double largest, bool wide)
{
    double relative = o->dtype == DTYPE_BF16 ? 0x3p-8 : wide ? 1e-4 : 1e-5;
    return o->dtype == DTYPE_I32 || o->dtype == DTYPE_U8 ? 0 : relative * fabs(wanted) + 4e-6 * largest + 1e-30;
}

static inline void check_value(const struct op_case *c, const struct op_run *run, const struct operand *o, i64 i,
                               double wanted, double largest)
{
    double got = element_read(o, i / o->columns, i % o->columns);
    if (!(fabs(got - wanted) <= tolerance_of(o, wanted, largest, run->columns > 1000)) &&
        !(isinf(wanted) && got == wanted))
        op_fail(c, run, o, "[%d,%d] is %.9g, expected %.9g", (int)(i / o->columns), (int)(i % o->columns), got, wanted);
}

static inline void check_reference(const struct op_case *c, struct op_run *run)
{
    c->reference(run);
    for (int k = 0; k < run->count; k++) {
        const struct operand *o = &run->operands[k];
        double largest = 0;
        for (i64 i = 0; i < o->rows * o->columns; i++)
            largest = isfinite(o->values[i]) ? fmax(largest, fabs(o->values[i])) : largest;
        for (i64 i = 0; o->role != INPUT && o->input < 0 && i < o->rows * o->columns; i++)
            check_value(c, run, o, i, o->values[i], largest);
    }
}

static inline double difference_quotient(const struct op_case *c, struct op_run *run, double *x)
{
    double kept = *x, h = 1e-5 * fmax(1, fabs(kept));
    *x = kept + h;
    double above = c->objective(run);
    *x = kept - h;
    double below = c->objective(run);
    *x = kept;
    return (above - below) / (2 * h);
}

/* All elements of small operands, PROBES of large ones, the last among them. */
static inline void check_gradients(const struct op_case *c, struct op_run *run)
{
    for (int k = 0; k < run->count; k++) {
        const struct operand *o = &run->operands[k];
        i64 elements = o->rows * o->columns, probes = elements > 2 * PROBES ? PROBES : elements;
        for (i64 probe = 0; o->input >= 0 && probe < probes; probe++) {
            i64 i = probes == elements ? probe
                    : probe == 0       ? elements - 1
                                       : rng_below((struct rng_key){5, RNG_TEST}, elements, (u32)probe, (u32)k, 0, 0);
            double slope = difference_quotient(c, run, &run->operands[o->input].values[i]);
            check_value(c, run, o, i, slope + (o->role == UPDATED ? o->values[i] : 0), 2);
        }
    }
}

static inline void op_check(const struct op_case *c, struct device *device, struct op_run *run)
{
    op_setup(run, c);
    check_workers(c, run, device);
    if (c->objective)
        check_gradients(c, run);
    if (c->reference)
        check_reference(c, run);
    op_release(run);
}

static const i64 op_shapes[][2] = {{0, 3}, {1, 1}, {1, 37}, {3, 1}, {3, 3}, {7, 37}, {1000, 3}, {1000, 37}, {3, 20000}};

static inline UNUSED_OK void op_check_cases(const struct op_case *cases, i64 count)
{
    struct device device;
    device_open_cpu(&device);
    for (i64 i = 0; i < count; i++)
        for (i64 s = 0; s < COUNT_OF(op_shapes); s++)
            for (int v = 0; v < max_i64(cases[i].variants, 1); v++)
                for (int way = 0; way < 4; way++)
                    op_check(&cases[i], &device,
                             &(struct op_run){.rows = op_shapes[s][0],
                                              .columns = op_shapes[s][1],
                                              .variant = v,
                                              .dtype = way & 1 ? DTYPE_BF16 : DTYPE_F32,
                                              .gap = way & 2 ? GAP : 0});
    device_close(&device);
}

/* ---- Golden files: tensors of one case, named behind a prefix; memory stays until golden_close ---- */
struct golden {
    struct safetensors file;
    struct device device;
    const char *prefix;
    void *blocks[256];
    int count;
};

static inline UNUSED_OK void golden_open(struct golden *golden, const char *path)
{
    *golden = (struct golden){.prefix = ""};
    if (safetensors_open(&golden->file, path) != 0)
        fail_msg("%s", error_text());
    device_open_cpu(&golden->device);
}

static inline UNUSED_OK void golden_close(struct golden *golden)
{
    while (golden->count > 0)
        memory_free(golden->blocks[--golden->count]);
    safetensors_close(&golden->file);
    device_close(&golden->device);
}

static inline UNUSED_OK void *golden_alloc(struct golden *golden, i64 bytes)
{
    assert_true(golden->count < COUNT_OF(golden->blocks));
    return golden->blocks[golden->count++] = memory_alloc(bytes);
}

static inline UNUSED_OK const struct tensor_view *golden_view(const struct golden *golden, const char *name)
{
    char *full = string_format("%s%s", golden->prefix, name);
    const struct tensor_view *view = safetensors_find(&golden->file, full);
    if (!view)
        fail_msg("no tensor %s", full);
    memory_free(full);
    return view;
}

/* As f32, or as it is for I32. */
static inline UNUSED_OK void *golden_load(struct golden *golden, const char *name)
{
    const struct tensor_view *view = golden_view(golden, name);
    void *out = golden_alloc(golden, tensor_view_elements(view) * 4);
    if (view->dtype == DTYPE_I32)
        memcpy(out, view->data, (size_t)view->bytes);
    else
        assert_int_equal(tensor_view_to_f32(out, view), 0);
    return out;
}

/* The last axis is columns, all others rows. */
static inline UNUSED_OK struct matrix golden_matrix(struct golden *golden, const char *name)
{
    const struct tensor_view *view = golden_view(golden, name);
    i64 columns = view->shape[view->rank - 1];
    return matrix_of(golden_load(golden, name), DTYPE_F32, tensor_view_elements(view) / columns, columns);
}

static inline UNUSED_OK struct matrix golden_bf16(struct golden *golden, struct matrix m)
{
    bf16 *out = golden_alloc(golden, m.rows * m.columns * 2);
    for (i64 i = 0; i < m.rows * m.columns; i++)
        out[i] = bf16_from_f32(((const float *)m.data)[i]);
    return matrix_of(out, DTYPE_BF16, m.rows, m.columns);
}

static inline UNUSED_OK struct matrix golden_new(struct golden *golden, enum dtype dtype, i64 rows, i64 columns)
{
    return matrix_of(golden_alloc(golden, rows * columns * dtype_bytes(dtype)), dtype, rows, columns);
}

/* got: F32 or BF16, in the tensor's order. */
static inline UNUSED_OK void golden_check(struct golden *golden, const char *name, struct matrix got, double relative,
                                          double absolute)
{
    const float *want = golden_load(golden, name);
    i64 count = tensor_view_elements(golden_view(golden, name));
    assert_int_equal(count, got.rows * got.columns);
    for (i64 i = 0; i < count; i++) {
        double value =
            got.dtype == DTYPE_BF16 ? bf16_to_f32(((const bf16 *)got.data)[i]) : ((const float *)got.data)[i];
        if (!(fabs(value - want[i]) <= absolute + relative * fabs((double)want[i])))
            fail_msg("%s%s[%d] is %.9g, expected %.9g", golden->prefix, name, (int)i, value, (double)want[i]);
    }
}

#endif
