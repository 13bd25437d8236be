/* ops of the mixture of experts: routing, sorting, dispatch and combine, against plain loops and the golden file. */
#include "tests/ops.h"

#define NORM_MIN 1e-12f

static i64 draw(i64 bound, i64 a, i64 b) /* 0 .. bound - 1 */
{
    return rng_below((struct rng_key){29, RNG_TEST}, bound, (u32)a, (u32)b, 0, 0);
}

static void softmax(double *p, const double *x, i64 n)
{
    double most = -INFINITY, sum = 0;
    for (i64 i = 0; i < n; i++)
        most = fmax(most, x[i]);
    for (i64 i = 0; i < n; i++)
        sum += p[i] = exp(x[i] - most);
    for (i64 i = 0; i < n; i++)
        p[i] /= sum;
}

/* ---- route: E = columns, k from 0 to 4 by position; bit 0: no usage ---- */
enum { ROUTE_LOGITS, ROUTE_BIAS, ROUTE_TOPK, ROUTE_COUNTED, ROUTE_P, ROUTE_EXPERTS, ROUTE_WEIGHTS, ROUTE_USAGE };

static i64 k_max_of(const struct op_run *run)
{
    return min_i64(run->columns, 4);
}

static void setup_route(struct op_run *run)
{
    i64 n = run->rows, k = k_max_of(run);
    op_operand(run, "logits", INPUT, DTYPE_F32, n, run->columns, run->gap);
    op_array(run, "bias", INPUT, DTYPE_F32, run->columns);
    op_array(run, "topk", INPUT, DTYPE_I32, n);
    op_array(run, "counted", INPUT, DTYPE_U8, n);
    op_array(run, "p", OUTPUT, DTYPE_F32, n * run->columns);
    op_array(run, "experts", OUTPUT, DTYPE_I32, n * k);
    op_array(run, "weights", OUTPUT, DTYPE_F32, n * k);
    op_array(run, "usage", UPDATED, DTYPE_F32, run->columns);
    for (i64 i = 0; i < n; i++) {
        op_values(run, ROUTE_TOPK)[i] = (double)draw(k + 1, i, 0);
        op_values(run, ROUTE_COUNTED)[i] = (double)draw(2, i, 1);
    }
    for (i64 e = 0; e < run->columns; e++)
        op_values(run, ROUTE_USAGE)[e] = (double)e;
}

static void call_route(struct device *device, struct op_run *run)
{
    device->ops->route(device, op_data(run, ROUTE_P), op_data(run, ROUTE_EXPERTS), op_data(run, ROUTE_WEIGHTS),
                       run->variant & 1 ? NULL : op_data(run, ROUTE_USAGE), op_as_matrix(run, ROUTE_LOGITS),
                       op_data(run, ROUTE_BIAS), op_data(run, ROUTE_TOPK), op_data(run, ROUTE_COUNTED),
                       &(struct router){k_max_of(run), NORM_MIN});
}

static bool is_taken(const double *experts, i64 count, i64 e)
{
    for (i64 j = 0; j < count; j++)
        if ((i64)experts[j] == e)
            return true;
    return false;
}

static void reference_route(struct op_run *run)
{
    i64 n = run->columns, k = k_max_of(run);
    for (i64 i = 0; i < run->rows; i++) {
        double *p = op_values(run, ROUTE_P) + i * n, *experts = op_values(run, ROUTE_EXPERTS) + i * k, sum = 0;
        softmax(p, op_values(run, ROUTE_LOGITS) + i * n, n);
        for (i64 j = 0; j < k; j++) {
            i64 best = -1;
            for (i64 e = 0; j < (i64)op_values(run, ROUTE_TOPK)[i] && e < n; e++)
                if (!is_taken(experts, j, e) &&
                    (best < 0 || p[e] + op_values(run, ROUTE_BIAS)[e] > p[best] + op_values(run, ROUTE_BIAS)[best]))
                    best = e;
            experts[j] = (double)best;
            sum += best < 0 ? 0 : p[best];
            if (best >= 0 && op_values(run, ROUTE_COUNTED)[i] > 0 && !(run->variant & 1))
                op_values(run, ROUTE_USAGE)[best] += 1;
        }
        for (i64 j = 0; j < k; j++)
            op_values(run, ROUTE_WEIGHTS)[i * k + j] = experts[j] < 0 ? 0 : p[(i64)experts[j]] / fmax(sum, NORM_MIN);
    }
}

/* ---- route_backward: bit 0: the sum is held at norm_min ---- */
enum { UNROUTE_LOGITS, UNROUTE_P, UNROUTE_EXPERTS, UNROUTE_WEIGHTS, UNROUTE_DWEIGHTS, UNROUTE_DLOGITS };

static double norm_min_of(const struct op_run *run)
{
    return run->variant & 1 ? 1.5 : NORM_MIN;
}

/* weights of one row's experts, given in `experts` with -1 at the end */
static void weigh(double *weights, const double *p, const double *experts, i64 k, double norm_min)
{
    double sum = 0;
    for (i64 j = 0; j < k; j++)
        sum += experts[j] < 0 ? 0 : p[(i64)experts[j]];
    for (i64 j = 0; j < k; j++)
        weights[j] = experts[j] < 0 ? 0 : p[(i64)experts[j]] / fmax(sum, norm_min);
}

static void setup_route_backward(struct op_run *run)
{
    i64 n = run->rows, e = run->columns, k = k_max_of(run);
    op_matrix(run, "logits", INPUT, n, e);
    op_array(run, "p", INPUT, DTYPE_F32, n * e);
    op_array(run, "experts", INPUT, DTYPE_I32, n * k);
    op_array(run, "weights", INPUT, DTYPE_F32, n * k);
    op_array(run, "dweights", INPUT, DTYPE_F32, n * k);
    op_gradient(run, "dlogits", OUTPUT, run->dtype, UNROUTE_LOGITS);
    for (i64 i = 0; i < n; i++) {
        double *logits = op_values(run, UNROUTE_LOGITS) + i * e, *p = op_values(run, UNROUTE_P) + i * e;
        double *experts = op_values(run, UNROUTE_EXPERTS) + i * k;
        for (i64 j = 0; j < e; j++)
            logits[j] = op_round((float)logits[j], run->dtype);
        softmax(p, logits, e);
        for (i64 j = 0; j < k; j++)
            experts[j] = j < i % (k + 1) ? (double)((draw(e, i, 0) + j) % e) : -1;
        weigh(op_values(run, UNROUTE_WEIGHTS) + i * k, p, experts, k, norm_min_of(run));
    }
}

static void call_route_backward(struct device *device, struct op_run *run)
{
    device->ops->route_backward(device, op_as_matrix(run, UNROUTE_DLOGITS), op_data(run, UNROUTE_DWEIGHTS),
                                op_data(run, UNROUTE_P), op_data(run, UNROUTE_EXPERTS), op_data(run, UNROUTE_WEIGHTS),
                                &(struct router){k_max_of(run), (float)norm_min_of(run)});
}

static double objective_route(struct op_run *run)
{
    i64 e = run->columns, k = k_max_of(run);
    double sum = 0, weights[4], *p = memory_alloc(e * 8);
    for (i64 i = 0; i < run->rows; i++) {
        softmax(p, op_values(run, UNROUTE_LOGITS) + i * e, e);
        weigh(weights, p, op_values(run, UNROUTE_EXPERTS) + i * k, k, norm_min_of(run));
        for (i64 j = 0; j < k; j++)
            sum += op_values(run, UNROUTE_DWEIGHTS)[i * k + j] * weights[j];
    }
    memory_free(p);
    return sum;
}

/* ---- route_balance ---- */
static void setup_route_balance(struct op_run *run)
{
    op_array(run, "bias", UPDATED, DTYPE_F32, run->columns);
    op_array(run, "usage", UPDATED, DTYPE_F32, run->columns);
    op_array(run, "use", UPDATED, DTYPE_F64, run->columns);
    for (i64 e = 0; e < run->columns; e++)
        op_values(run, 1)[e] = (double)(run->rows == 7 ? 5 : draw(9, e, 0)); /* one case of equal use */
}

static void call_route_balance(struct device *device, struct op_run *run)
{
    device->ops->route_balance(device, op_data(run, 0), op_data(run, 1), op_data(run, 2), run->columns, 0.125f);
}

static void reference_route_balance(struct op_run *run)
{
    double *bias = op_values(run, 0), *usage = op_values(run, 1), mean = 0;
    for (i64 e = 0; e < run->columns; e++)
        mean += usage[e] / (double)run->columns;
    for (i64 e = 0; e < run->columns; e++) {
        bias[e] += fabs(usage[e] - mean) < 1e-6 ? 0 : usage[e] < mean ? 0.125 : -0.125;
        op_values(run, 2)[e] += usage[e];
        usage[e] = 0;
    }
}

/* ---- route_sort: E = columns, K = 3 ---- */
enum { SORT_EXPERTS, SORT_OFFSETS, SORT_SLOT, SORT_SOURCE };

static i64 sort_rows(const struct op_run *run)
{
    return groups_rows_bound(run->rows * 3, run->columns);
}

static void setup_route_sort(struct op_run *run)
{
    op_array(run, "experts", INPUT, DTYPE_I32, run->rows * 3);
    op_array(run, "offsets", OUTPUT, DTYPE_I32, run->columns + 1);
    op_array(run, "slot", OUTPUT, DTYPE_I32, run->rows * 3);
    op_array(run, "source", OUTPUT, DTYPE_I32, sort_rows(run));
    for (i64 a = 0; a < run->rows * 3; a++)
        op_values(run, SORT_EXPERTS)[a] = (double)draw(run->columns + 1, a, 0) - 1;
}

static void call_route_sort(struct device *device, struct op_run *run)
{
    device->ops->route_sort(device, op_data(run, SORT_OFFSETS), op_data(run, SORT_SLOT), op_data(run, SORT_SOURCE),
                            sort_rows(run), op_data(run, SORT_EXPERTS), run->rows, 3, run->columns, GROUP_ROWS);
}

static void reference_route_sort(struct op_run *run)
{
    i64 row = 0;
    for (i64 r = 0; r < sort_rows(run); r++)
        op_values(run, SORT_SOURCE)[r] = -1;
    for (i64 e = 0; e < run->columns; e++) {
        op_values(run, SORT_OFFSETS)[e] = (double)row;
        for (i64 a = 0; a < run->rows * 3; a++)
            if ((i64)op_values(run, SORT_EXPERTS)[a] == e) {
                op_values(run, SORT_SOURCE)[row] = (double)(a / 3);
                op_values(run, SORT_SLOT)[a] = (double)row++;
            }
        row = round_up(row, GROUP_ROWS);
    }
    op_values(run, SORT_OFFSETS)[run->columns] = (double)row;
    for (i64 a = 0; a < run->rows * 3; a++)
        if (op_values(run, SORT_EXPERTS)[a] < 0)
            op_values(run, SORT_SLOT)[a] = -1;
}

/* ---- dispatch, combine (bit 0: add, bit 1: no weights), combine_backward (bit 1) ---- */
enum { MOE_X, MOE_Y, MOE_SLOT, MOE_SOURCE, MOE_ROWS, MOE_WEIGHTS, MOE_DY, MOE_DWEIGHTS };
enum { K = 3 };

static i64 bound_of(const struct op_run *run)
{
    return run->rows * K + 9;
}
static i64 rows_of(const struct op_run *run)
{
    return run->rows * K + 4;
}

/* x [N, C] by position, y [bound, C] by sorted row; assignments stand at scattered rows, some nowhere. */
static void setup_moe(struct op_run *run, enum role x, enum role y)
{
    i64 n = run->rows;
    op_matrix(run, "x", x, n, run->columns);
    op_matrix(run, "y", y, bound_of(run), run->columns);
    op_array(run, "slot", INPUT, DTYPE_I32, n * K);
    op_array(run, "source", INPUT, DTYPE_I32, bound_of(run));
    op_array(run, "rows", INPUT, DTYPE_I32, 1);
    op_array(run, "weights", INPUT, DTYPE_F32, n * K);
    i32 *order = memory_alloc(rows_of(run) * 4);
    rng_permutation(order, rows_of(run), (struct rng_key){4, RNG_TEST}, 0, 0);
    for (i64 r = 0; r < bound_of(run); r++)
        op_values(run, MOE_SOURCE)[r] = -1;
    for (i64 a = 0; a < n * K; a++) {
        op_values(run, MOE_SLOT)[a] = a % 5 == 2 ? -1 : order[a];
        if (a % 5 != 2)
            op_values(run, MOE_SOURCE)[order[a]] = (double)(a / K);
    }
    op_values(run, MOE_ROWS)[0] = (double)rows_of(run);
    memory_free(order);
}

static void setup_dispatch(struct op_run *run)
{
    setup_moe(run, INPUT, UPDATED);
}
static void setup_combine(struct op_run *run)
{
    setup_moe(run, run->variant & 1 ? UPDATED : OUTPUT, INPUT);
}

static void setup_combine_backward(struct op_run *run)
{
    setup_moe(run, INPUT, INPUT);
    op_matrix(run, "dy", UPDATED, bound_of(run), run->columns);
    op_array(run, "dweights", UPDATED, DTYPE_F32, run->rows * K);
}

static void call_dispatch(struct device *device, struct op_run *run)
{
    device->ops->dispatch(device, op_as_matrix(run, MOE_Y), op_as_matrix(run, MOE_X), op_data(run, MOE_SOURCE),
                          op_data(run, MOE_ROWS));
}

static void reference_dispatch(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < rows_of(run) * n; i++) {
        i64 from = (i64)op_values(run, MOE_SOURCE)[i / n];
        op_values(run, MOE_Y)[i] = from < 0 ? 0 : op_values(run, MOE_X)[from * n + i % n];
    }
}

static const float *weights_of(const struct op_run *run)
{
    return run->variant & 2 ? NULL : op_data(run, MOE_WEIGHTS);
}

static void call_combine(struct device *device, struct op_run *run)
{
    device->ops->combine(device, op_as_matrix(run, MOE_X), op_as_matrix(run, MOE_Y), op_data(run, MOE_SLOT),
                         weights_of(run), K, run->variant & 1);
}

static void reference_combine(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows * n; i++) {
        double sum = run->variant & 1 ? op_values(run, MOE_X)[i] : 0;
        for (i64 a = i / n * K; a < (i / n + 1) * K; a++) {
            i64 slot = (i64)op_values(run, MOE_SLOT)[a];
            double weight = run->variant & 2 ? 1 : op_values(run, MOE_WEIGHTS)[a];
            sum += slot < 0 ? 0 : weight * op_values(run, MOE_Y)[slot * n + i % n];
        }
        op_values(run, MOE_X)[i] = sum;
    }
}

static void call_combine_backward(struct device *device, struct op_run *run)
{
    device->ops->combine_backward(device, op_as_matrix(run, MOE_DY),
                                  run->variant & 2 ? NULL : op_data(run, MOE_DWEIGHTS), op_as_matrix(run, MOE_X),
                                  op_as_matrix(run, MOE_Y), op_data(run, MOE_SLOT), op_data(run, MOE_SOURCE),
                                  op_data(run, MOE_ROWS), weights_of(run), K);
}

static void reference_combine_backward(struct op_run *run)
{
    i64 n = run->columns;
    memset(op_values(run, MOE_DY), 0, (size_t)(rows_of(run) * n) * 8);
    for (i64 a = 0; a < run->rows * K; a++) {
        i64 slot = (i64)op_values(run, MOE_SLOT)[a];
        double weight = run->variant & 2 ? 1 : op_values(run, MOE_WEIGHTS)[a], dot = 0;
        for (i64 c = 0; slot >= 0 && c < n; c++) {
            double d = op_values(run, MOE_X)[a / K * n + c];
            op_values(run, MOE_DY)[slot * n + c] = weight * d;
            dot += d * op_values(run, MOE_Y)[slot * n + c];
        }
        if (!(run->variant & 2))
            op_values(run, MOE_DWEIGHTS)[a] = dot;
    }
}

static const struct op_case cases[] = {
    {"route", 2, setup_route, call_route, reference_route, NULL},
    {"route_backward", 2, setup_route_backward, call_route_backward, NULL, objective_route},
    {"route_balance", 1, setup_route_balance, call_route_balance, reference_route_balance, NULL},
    {"route_sort", 1, setup_route_sort, call_route_sort, reference_route_sort, NULL},
    {"dispatch", 1, setup_dispatch, call_dispatch, reference_dispatch, NULL},
    {"combine", 4, setup_combine, call_combine, reference_combine, NULL},
    {"combine_backward", 4, setup_combine_backward, call_combine_backward, reference_combine_backward, NULL},
};

static void ops_are_plain_loops_in_double(void **state)
{
    (void)state;
    op_check_cases(cases, COUNT_OF(cases));
}

/* ---- Choices ---- */
static void equal_scores_choose_the_smaller_expert(void **state)
{
    (void)state;
    struct device device;
    device_open_cpu(&device);
    enum { E = 40 };
    float logits[E] = {0}, bias[E] = {0}, p[E], weights[4], usage[E] = {0};
    i32 experts[4], topk = 4;
    u8 counted = 1;
    logits[33] = 1;
    struct matrix m = matrix_of(logits, DTYPE_F32, 1, E);
    device.ops->route(&device, p, experts, weights, usage, m, bias, &topk, &counted, &(struct router){4, NORM_MIN});
    assert_memory_equal(experts, ((i32[]){33, 0, 1, 2}), sizeof experts);
    assert_true(usage[33] == 1 && usage[2] == 1 && usage[3] == 0);
    device_close(&device);
}

/* A loss that has become NaN must be reported by the trainer, so routing it must neither crash nor repeat an expert. */
static void nan_scores_still_choose_different_experts(void **state)
{
    (void)state;
    struct device device;
    device_open_cpu(&device);
    float logits[5] = {NAN, 1, NAN, 2, -INFINITY}, bias[5] = {0}, p[5], weights[5], usage[5] = {0};
    i32 experts[5], topk = 5, seen = 0;
    u8 counted = 1;
    device.ops->route(&device, p, experts, weights, usage, matrix_of(logits, DTYPE_F32, 1, 5), bias, &topk, &counted,
                      &(struct router){5, NORM_MIN});
    for (int j = 0; j < 5; j++)
        seen |= 1 << experts[j];
    assert_int_equal(seen, 31);
    device_close(&device);
}

static void check_golden(struct golden *g)
{
    const struct kernels *ops = g->device.ops;
    struct matrix logits = golden_matrix(g, "logits"), dy = golden_matrix(g, "dy");
    i64 n = logits.rows, e = logits.columns, k = dy.columns;
    struct matrix p = golden_new(g, DTYPE_F32, n, e), weights = golden_new(g, DTYPE_F32, n, k);
    struct matrix dlogits = golden_new(g, DTYPE_F32, n, e);
    i32 *experts = golden_alloc(g, n * k * 4), *topk = golden_alloc(g, n * 4);
    float *usage = golden_alloc(g, e * 4);
    for (i64 i = 0; i < n; i++)
        topk[i] = (i32)k;
    ops->route(&g->device, p.data, experts, weights.data, usage, logits, golden_load(g, "bias"), topk,
               golden_alloc(g, n), &(struct router){k, NORM_MIN});
    golden_check(g, "p", p, 1e-5, 1e-8);
    golden_check(g, "y", weights, 1e-5, 1e-7);
    assert_memory_equal(experts, golden_load(g, "experts"), n * k * 4);
    ops->route_backward(&g->device, dlogits, dy.data, p.data, experts, weights.data, &(struct router){k, NORM_MIN});
    golden_check(g, "dlogits", dlogits, 1e-5, 1e-6);
}

static void routing_is_that_of_torch(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/ops/topk.safetensors");
    for (int i = 0; i < 3; i++) {
        g.prefix = (const char *[]){"0.", "1.", "2."}[i];
        check_golden(&g);
    }
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_plain_loops_in_double),
        cmocka_unit_test(equal_scores_choose_the_smaller_expert),
        cmocka_unit_test(nan_scores_still_choose_different_experts),
        cmocka_unit_test(routing_is_that_of_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
