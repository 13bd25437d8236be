/* Compares the results of a device with the cases. */
#include "op_cases/op_cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GAP = 5, PROBES = 48, FEW_PROBES = 8, MANY_ELEMENTS = 4096, SMALL_MOST = 1 << 18 };

/* Shapes of row-wise ops; the first SMALL_ROW_SHAPES also run on slow devices. */
enum { SMALL_ROW_SHAPES = 5 };
static const struct op_shape row_shapes[] = {{0, 3}, {1, 37},   {7, 37},    {130, 3},  {2, 1300},  {1, 1}, {3, 1},
                                             {3, 3}, {1000, 3}, {1000, 37}, {5, 1300}, {3, 20000}, {-1}};

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
        i64 size = dtype_bytes(o->dtype), gap_bytes = (o->stride - o->columns) * size;
        for (i64 i = 0; gap_bytes > 0 && i < o->rows; i++) {
            i64 gap = (i * o->stride + o->columns) * size;
            if (memcmp((const u8 *)o->image + gap, (const u8 *)o->before + gap, (size_t)gap_bytes) != 0)
                return wrong(c, run, o, "written behind row %lld", (long long)i);
        }
    }
    return 0;
}

static int name_written(const struct op_case *c, const struct op_run *run, const struct operand *o)
{
    i64 size = dtype_bytes(o->dtype), byte = 0;
    while (((const u8 *)o->image)[byte] == ((const u8 *)o->before)[byte])
        byte++;
    return wrong(c, run, o, "an input, written at [%lld,%lld]", (long long)(byte / size / o->stride),
                 (long long)(byte / size % o->stride));
}

static int check_inputs(const struct op_case *c, const struct op_run *run)
{
    for (int k = 0; k < run->count; k++) {
        const struct operand *o = &run->operands[k];
        if (o->role == INPUT && memcmp(o->image, o->before, (size_t)operand_bytes(o)) != 0)
            return name_written(c, run, o);
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

/* Cycles through 1, 4 and 2 workers. Starting workers takes longer than most ops, so a run begins
 * with the workers of the previous one. */
static void start_next_workers(void)
{
    int now = workers_count();
    workers_start(now == 1 ? 4 : now == 4 ? 2 : 1);
}

/* Runs the case and requires identical bits. Two runs; in a sparse scope one run for three of four
 * cases; on a CPU 1, 2 and 4 workers, or two of these counts if alternating. */
static int check_bits(const struct op_case *c, struct op_run *run, struct device *device,
                      const struct check_scope *scope)
{
    u64 kept[OPERANDS_MAX];
    int times = scope->workers && !scope->alternating                   ? 3
                : scope->sparse && (run->shape + run->variant) % 4 != 0 ? 1
                                                                        : 2;
    for (int time = 0; time < times; time++) {
        if (scope->workers && time > 0)
            start_next_workers();
        run_once(c, run, device);
        for (int k = 0; k < run->count; k++) {
            u64 hash = outputs_hash(run, k);
            if (time > 0 && hash != kept[k])
                return wrong(c, run, &run->operands[k], "other bits %s", scope->workers ? "by other workers" : "again");
            kept[k] = hash;
        }
    }
    return 0;
}

/* ---- Expected values: computed once for all devices, into `values` ---- */

/* Central difference of the objective over rows [begin, end), by *x. */
static double difference_quotient(const struct op_case *c, struct op_run *run, double *x, i64 begin, i64 end)
{
    double kept = *x, h = 1e-5 * fmax(1, fabs(kept));
    *x = kept + h;
    double above = c->objective(run, begin, end);
    *x = kept - h;
    double below = c->objective(run, begin, end);
    *x = kept;
    return (above - below) / (2 * h);
}

/* Probes all elements of small operands, and some of large ones, including the last. */
static i64 probes_of(const struct operand *o)
{
    i64 elements = o->rows * o->columns;
    return elements > MANY_ELEMENTS ? FEW_PROBES : elements > 2 * PROBES ? PROBES : elements;
}

static i64 probe_at(const struct operand *o, int k, i64 probe)
{
    i64 elements = o->rows * o->columns;
    return probes_of(o) == elements ? probe : probe == 0 ? elements - 1 : op_below(elements, probe, k);
}

/* Computes the gradient at the probes. An operand with a row for each row of the objective affects
 * only that row. */
static void expect_gradient(const struct op_case *c, struct op_run *run, int k)
{
    struct operand *o = &run->operands[k];
    bool by_rows = o->rows == run->rows;
    for (i64 probe = 0; probe < probes_of(o); probe++) {
        i64 i = probe_at(o, k, probe), row = i / o->columns;
        double *x = &run->operands[o->input].values[i];
        o->values[i] = difference_quotient(c, run, x, by_rows ? row : 0, by_rows ? row + 1 : run->rows);
        if (o->role == UPDATED)
            o->values[i] += operand_before(o, row, i % o->columns);
    }
}

static void expect(const struct op_case *c, struct op_run *run)
{
    for (int k = 0; c->objective && k < run->count; k++)
        if (run->operands[k].input >= 0)
            expect_gradient(c, run, k);
    if (c->reference)
        c->reference(run);
}

/* ---- Results ---- */

static bool is_whole(enum dtype dtype)
{
    return dtype == DTYPE_I32 || dtype == DTYPE_I64 || dtype == DTYPE_U8;
}

struct tolerance {
    double relative, absolute;
};

/* Allows one or two roundings in the operand's dtype, and f32 sums relative to the largest value.
 * The longest sum may be a single chain, because sanitizers prevent vectorization. Ids and bytes
 * must be exact. */
static struct tolerance tolerance_of(const struct op_case *c, const struct op_run *run, const struct operand *o,
                                     double largest)
{
    double relative = o->dtype == DTYPE_BF16 ? 0x3p-8 : run->columns > 1000 ? 1e-4 : 1e-5;
    double slack = fmax(run->dtype == DTYPE_BF16 ? c->bf16_slack : c->f32_slack, 4e-6);
    return is_whole(o->dtype) ? (struct tolerance){0, 0} : (struct tolerance){relative, slack * largest + 1e-30};
}

static bool is_near(double got, double expected, struct tolerance t)
{
    return fabs(got - expected) <= t.relative * fabs(expected) + t.absolute;
}

/* An expected NaN matches NaN; for integers it matches any value in [0, columns). */
static bool are_same(double got, double expected, const struct op_run *run, const struct operand *o)
{
    bool any = is_whole(o->dtype) && got >= 0 && got < (double)run->columns;
    return got == expected || (isnan(expected) && (isnan(got) || any));
}

static int check_value(const struct op_case *c, const struct op_run *run, const struct operand *o, i64 i,
                       struct tolerance t)
{
    i64 row = i / o->columns, column = i % o->columns;
    double got = operand_at(o, row, column), expected = o->values[i];
    if (is_near(got, expected, t) || are_same(got, expected, run, o))
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

static int check_output(const struct op_case *c, const struct op_run *run, const struct operand *o)
{
    struct tolerance t = tolerance_of(c, run, o, fmax(largest_of(o), c->cancels ? 1 : 0));
    for (i64 row = 0; row < o->rows; row++)
        for (i64 column = 0; column < o->columns; column++)
            if (!is_near(operand_at(o, row, column), o->values[row * o->columns + column], t) &&
                check_value(c, run, o, row * o->columns + column, t))
                return -1;
    return 0;
}

static int check_gradient(const struct op_case *c, const struct op_run *run, int k)
{
    const struct operand *o = &run->operands[k];
    struct tolerance t = tolerance_of(c, run, o, 2);
    for (i64 probe = 0; probe < probes_of(o); probe++)
        if (check_value(c, run, o, probe_at(o, k, probe), t))
            return -1;
    return 0;
}

static int check_outputs(const struct op_case *c, const struct op_run *run)
{
    for (int k = 0; k < run->count; k++) {
        const struct operand *o = &run->operands[k];
        if (c->objective && o->input >= 0 && check_gradient(c, run, k))
            return -1;
        if (c->reference && o->input < 0 && o->role != INPUT && check_output(c, run, o))
            return -1;
    }
    return 0;
}

/* ---- Costs counted by the meta backend ---- */
static bool has_elements(const struct op_run *run)
{
    for (int k = 0; k < run->count; k++)
        if (run->operands[k].rows * run->operands[k].columns == 0)
            return false;
    return run->rows > 0;
}

static int check_cost(const struct op_case *c, struct op_run *run, struct device *meta)
{
    meta->cost = (struct cost){0};
    op_put(run, meta);
    c->call(meta, run);
    bool costs = meta->cost.bytes > 0 && (meta->cost.flops > 0) == c->multiplies;
    if (meta->cost.calls > 0 && (costs || !has_elements(run)))
        return 0;
    return error_set("%s variant %d, rows %lld, columns %lld counts %g flops, %g bytes", c->name, run->variant,
                     (long long)run->rows, (long long)run->columns, meta->cost.flops, meta->cost.bytes);
}

/* ---- All runs of a case ---- */

/* Selects half of the dtype and gap combinations if both matter: f32 with gaps and bf16 without,
 * or the opposite, by shape and variant. */
static bool is_alternate(const struct op_case *c, const struct op_run *run)
{
    bool gaps = run->gap > 0, narrow = run->dtype == DTYPE_BF16;
    return c->alike != 0 || (gaps != narrow) == ((run->shape + run->variant) % 2 == 1);
}

static bool is_small(const struct op_case *c, const struct op_run *run)
{
    return (c->shapes || run->shape < SMALL_ROW_SHAPES) &&
           run->rows * run->columns * max_i64(run->depth, 1) <= SMALL_MOST;
}

/* Selects a subset such that each shape runs with some variants and each variant with some shapes,
 * at least two if there are as many. */
static bool is_in_sparse(const struct op_case *c, const struct op_run *run)
{
    int shapes = 0;
    while (c->shapes && c->shapes[shapes].rows >= 0)
        shapes++;
    int step = (int)min_i64(c->shapes ? shapes : SMALL_ROW_SHAPES, c->variants) / 2;
    return step < 2 || (run->shape + run->variant / 2) % step == 0;
}

static bool is_tried(const struct op_case *c, const struct op_run *run, const struct check_scope *scope)
{
    return (!scope->sparse || is_in_sparse(c, run)) && (!scope->bf16 || run->dtype == DTYPE_BF16) &&
           (!scope->small_shapes || is_small(c, run)) &&
           (!(scope->small_shapes || scope->alternating) || is_alternate(c, run));
}

struct check_progress {
    const struct check *checks;
    i64 count;
    bool expects; /* the values of this run are the expected ones */
};

static int check_device(const struct op_case *c, struct op_run *run, const struct check *check,
                        struct check_progress *all)
{
    if (check->device->backend == BACKEND_META)
        return check_cost(c, run, check->device);
    if (check_bits(c, run, check->device, &check->scope) || check_gaps(c, run) || check_inputs(c, run))
        return -1;
    if (!all->expects)
        expect(c, run);
    all->expects = true;
    return check_outputs(c, run);
}

static int check_run(const struct op_case *c, struct op_run *run, void *context)
{
    struct check_progress *all = context;
    bool open = false;
    int status = 0;
    all->expects = false;
    for (i64 i = 0; i < all->count && status == 0; i++) {
        const struct check *check = &all->checks[i];
        if (!is_tried(c, run, &check->scope))
            continue;
        if (!open)
            op_open(run, c);
        open = true;
        if (check_device(c, run, check, all))
            status = error_set("%s: %s", device_name(check->device), error_text());
        op_leave(run, check->device);
    }
    if (open)
        op_release(run, all->checks[0].device);
    return status;
}

int case_each(const struct op_case *c, const struct check_scope *scope,
              int (*see)(const struct op_case *c, struct op_run *run, void *context), void *context)
{
    const struct op_shape *shapes = c->shapes ? c->shapes : row_shapes;
    for (int shape = 0; shapes[shape].rows >= 0; shape++)
        for (int variant = 0; variant < max_i64(c->variants, 1); variant++)
            for (unsigned way = 0; way < 4; way++) {
                struct op_run run = {.rows = shapes[shape].rows,
                                     .columns = shapes[shape].columns,
                                     .depth = shapes[shape].depth,
                                     .shape = shape,
                                     .variant = variant,
                                     .dtype = way & ONE_DTYPE ? DTYPE_BF16 : DTYPE_F32,
                                     .gap = way & NO_GAPS ? GAP : 0};
                if (!(way & c->alike) && is_tried(c, &run, scope) && see(c, &run, context))
                    return -1;
            }
    return 0;
}

int case_check_each(const struct op_case *c, const struct check *checks, i64 count)
{
    struct check_progress all = {.checks = checks, .count = count};
    return case_each(c, &(struct check_scope){0}, check_run, &all);
}

int case_check(const struct op_case *c, struct device *device, const struct check_scope *scope)
{
    return case_check_each(c, &(struct check){device, *scope}, 1);
}
