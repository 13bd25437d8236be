/* Cases against what a device makes of them. */
#include "cases/cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GAP = 5, PROBES = 48, FEW_PROBES = 8, MANY_ELEMENTS = 4096, FEW_MOST = 1 << 18 };

static const struct op_shape row_shapes[] = {{0, 3},    {1, 1},     {1, 37},   {3, 1},     {3, 3}, {7, 37},
                                             {1000, 3}, {1000, 37}, {5, 1300}, {3, 20000}, {-1}};
static const struct op_shape few_shapes[] = {{0, 3}, {1, 37}, {7, 37}, {130, 3}, {2, 1300}, {-1}};

PRINTF(4, 5)
static int wrong(const struct op_case *c, const struct op_run *run, const struct operand *o, const char *format, ...)
{
    char what[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return error_set("%s variant %d, %s, rows %lld, columns %lld, depth %lld, gap %lld, %s: %s", c->name, run->variant,
                     dtype_name(run->dtype), (long long)run->rows, (long long)run->columns, (long long)run->depth,
                     (long long)run->gap, o->name, what);
}

static int check_gaps(const struct op_case *c, const struct op_run *run)
{
    for (int k = 0; k < run->count; k++) {
        const struct operand *o = &run->operands[k];
        i64 size = dtype_bytes(o->dtype);
        for (i64 i = 0; i < o->rows; i++) {
            const u8 *gap = (const u8 *)o->image + (i * o->stride + o->columns) * size;
            for (i64 b = 0; b < (o->stride - o->columns) * size; b++)
                if (gap[b] != 0xa5)
                    return wrong(c, run, o, "written behind row %lld", (long long)i);
        }
    }
    return 0;
}

static bool are_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static int check_inputs(const struct op_case *c, const struct op_run *run)
{
    for (int k = 0; k < run->count; k++) {
        const struct operand *o = &run->operands[k];
        for (i64 i = 0; o->role == INPUT && i < o->rows; i++)
            for (i64 j = 0; j < o->columns; j++)
                if (!are_same(operand_at(o, i, j), o->values[i * o->columns + j]))
                    return wrong(c, run, o, "an input, written at [%lld,%lld]", (long long)i, (long long)j);
    }
    return 0;
}

static u64 outputs_hash(const struct op_run *run, int k)
{
    return hash_bytes(run->operands[k].image, operand_bytes(&run->operands[k]), 0);
}

static void run_once(const struct op_case *c, struct op_run *run, struct device *device)
{
    op_put(run, device);
    c->call(device, run);
    op_get(run, device);
}

/* Twice; on a CPU from 1, 2 and 4 workers. */
static int check_bits(const struct op_case *c, struct op_run *run, struct device *device, bool workers)
{
    u64 kept[OPERANDS_MAX];
    for (int time = 0; time < (workers ? 3 : 2); time++) {
        if (workers && workers_count() != 1 << time)
            workers_start(1 << time);
        run_once(c, run, device);
        for (int k = 0; k < run->count; k++) {
            u64 hash = outputs_hash(run, k);
            if (time > 0 && hash != kept[k])
                return wrong(c, run, &run->operands[k], "other bits %s", workers ? "by more workers" : "again");
            kept[k] = hash;
        }
    }
    return 0;
}

/* Rounding once or twice in the operand's dtype, and f32 sums on the scale of the largest value; the longest of them
 * may be one chain where a sanitizer keeps loops from being vectorised. Ids and bytes are exact. */
static double tolerance_of(const struct op_case *c, const struct op_run *run, const struct operand *o, double wanted,
                           double largest)
{
    double relative = o->dtype == DTYPE_BF16 ? 0x3p-8 : run->columns > 1000 ? 1e-4 : 1e-5;
    double slack = fmax(run->dtype == DTYPE_BF16 ? c->bf16_slack : c->f32_slack, 4e-6);
    if (o->dtype == DTYPE_I32 || o->dtype == DTYPE_I64 || o->dtype == DTYPE_U8)
        return 0;
    return relative * fabs(wanted) + slack * largest + 1e-30;
}

static int check_value(const struct op_case *c, const struct op_run *run, const struct operand *o, i64 i,
                       double expected, double largest)
{
    i64 row = i / o->columns, column = i % o->columns;
    double got = operand_at(o, row, column);
    if (fabs(got - expected) <= tolerance_of(c, run, o, expected, largest) || are_same(got, expected))
        return 0;
    return wrong(c, run, o, "[%lld,%lld] is %.9g, expected %.9g", (long long)row, (long long)column, got, expected);
}

static double largest_of(const struct operand *o)
{
    double largest = 0;
    for (i64 i = 0; i < o->rows * o->columns; i++)
        largest = isfinite(o->values[i]) ? fmax(largest, fabs(o->values[i])) : largest;
    return largest;
}

static int check_reference(const struct op_case *c, struct op_run *run)
{
    c->reference(run);
    for (int k = 0; k < run->count; k++) {
        const struct operand *o = &run->operands[k];
        double largest = fmax(largest_of(o), c->cancels ? 1 : 0);
        for (i64 i = 0; o->role != INPUT && o->input < 0 && i < o->rows * o->columns; i++)
            if (check_value(c, run, o, i, o->values[i], largest))
                return -1;
    }
    return 0;
}

static double difference_quotient(const struct op_case *c, struct op_run *run, double *x)
{
    double kept = *x, h = 1e-5 * fmax(1, fabs(kept));
    *x = kept + h;
    double above = c->objective(run);
    *x = kept - h;
    double below = c->objective(run);
    *x = kept;
    return (above - below) / (2 * h);
}

/* All elements of small operands, some of large ones, the last among them. */
static i64 probes_of(i64 elements)
{
    return elements > MANY_ELEMENTS ? FEW_PROBES : elements > 2 * PROBES ? PROBES : elements;
}

static int check_gradient(const struct op_case *c, struct op_run *run, int k)
{
    const struct operand *o = &run->operands[k];
    i64 elements = o->rows * o->columns, probes = probes_of(elements);
    for (i64 probe = 0; probe < probes; probe++) {
        i64 i = probes == elements ? probe : probe == 0 ? elements - 1 : op_below(elements, probe, k);
        double slope = difference_quotient(c, run, &run->operands[o->input].values[i]);
        if (check_value(c, run, o, i, slope + (o->role == UPDATED ? o->values[i] : 0), 2))
            return -1;
    }
    return 0;
}

static int check_gradients(const struct op_case *c, struct op_run *run)
{
    for (int k = 0; k < run->count; k++)
        if (run->operands[k].input >= 0 && check_gradient(c, run, k))
            return -1;
    return 0;
}

struct checking {
    struct device *device;
    const struct check_scope *scope;
};

static int check_run(const struct op_case *c, struct op_run *run, void *context)
{
    const struct checking *checking = context;
    if (checking->scope->bf16 && run->dtype != DTYPE_BF16)
        return 0;
    op_open(run, c);
    int status = check_bits(c, run, checking->device, checking->scope->workers);
    if (status == 0)
        status = check_gaps(c, run) || check_inputs(c, run) ? -1 : 0;
    if (status == 0 && c->objective)
        status = check_gradients(c, run);
    if (status == 0 && c->reference)
        status = check_reference(c, run);
    op_release(run, checking->device);
    return status;
}

static i64 volume_of(const struct op_shape *s)
{
    return s->rows * s->columns * max_i64(s->depth, 1);
}

/* Of few, where dtypes and gaps both matter: f32 with gaps and bf16 without, or the other way round, in turn. */
static bool left_out(const struct op_case *c, const struct op_shape *s, i64 number, unsigned way)
{
    bool gaps = way & NO_GAPS, narrow = way & ONE_DTYPE;
    return volume_of(s) > FEW_MOST || (c->alike == 0 && (gaps != narrow) != (number % 2 == 1));
}

int case_each(const struct op_case *c, bool few, int (*see)(const struct op_case *c, struct op_run *run, void *context),
              void *context)
{
    const struct op_shape *shapes = c->shapes ? c->shapes : few ? few_shapes : row_shapes;
    for (const struct op_shape *s = shapes; s->rows >= 0; s++)
        for (int variant = 0; variant < max_i64(c->variants, 1); variant++)
            for (unsigned way = 0; way < 4; way++) {
                if (way & c->alike || (few && left_out(c, s, s - shapes + variant, way)))
                    continue;
                struct op_run run = {.rows = s->rows,
                                     .columns = s->columns,
                                     .depth = s->depth,
                                     .variant = variant,
                                     .dtype = way & ONE_DTYPE ? DTYPE_BF16 : DTYPE_F32,
                                     .gap = way & NO_GAPS ? GAP : 0};
                if (see(c, &run, context))
                    return -1;
            }
    return 0;
}

int case_check(const struct op_case *c, struct device *device, const struct check_scope *scope)
{
    struct checking checking = {device, scope};
    return case_each(c, scope->few, check_run, &checking);
}
