/* Mixture of experts: routing, sorting, dispatch and combine. */
#include "op_cases/op_cases.h"

#include <math.h>
#include <string.h>

#define NORM_MIN 1e-12f

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

/* ---- Sorted order of assignments to E = columns experts ----
 * 3 operands, of which `first` are the offsets. */
static i64 sorted_rows(const struct op_run *run, i64 k)
{
    return groups_rows_bound(run->rows * k, run->columns);
}

static void op_order(struct op_run *run, i64 k)
{
    op_array(run, "offsets", OUTPUT, DTYPE_I32, run->columns + 1);
    op_array(run, "slot", OUTPUT, DTYPE_I32, run->rows * k);
    op_array(run, "source", OUTPUT, DTYPE_I32, sorted_rows(run, k));
}

static struct sorted_order order_of(struct op_run *run, int first, i64 k)
{
    return (struct sorted_order){op_data(run, first), op_data(run, first + 1), op_data(run, first + 2),
                                 sorted_rows(run, k), GROUP_ROWS};
}

static void reference_order(struct op_run *run, int first, const double *experts, i64 k)
{
    double *offsets = op_values(run, first), *slot = op_values(run, first + 1), *source = op_values(run, first + 2);
    i64 row = 0;
    for (i64 r = 0; r < sorted_rows(run, k); r++)
        source[r] = -1;
    for (i64 a = 0; a < run->rows * k; a++)
        slot[a] = -1;
    for (i64 e = 0; e < run->columns; e++) {
        offsets[e] = (double)row;
        for (i64 a = 0; a < run->rows * k; a++)
            if ((i64)experts[a] == e) {
                source[row] = (double)(a / k);
                slot[a] = (double)row++;
            }
        row = round_up(row, GROUP_ROWS);
    }
    offsets[run->columns] = (double)row;
}

/* Assignment counts around the length of one run of a parallel sort, and above it. */
static const struct op_shape sorted_shapes[] = {{0, 3},    {1, 1},     {1, 37},   {3, 1},    {7, 37},
                                                {130, 3},  {256, 37},  {257, 37}, {750, 40}, {1500, 3},
                                                {2, 1300}, {3, 20000}, {-1}};

/* ---- route ----
 * E = columns, topk from 0 to 4 per position; bit 0: no usage and no scale, bit 1: many equal scores,
 * where the smaller id wins. */
enum {
    ROUTE_LOGITS,
    ROUTE_BIAS,
    ROUTE_TOPK,
    ROUTE_COUNTED,
    ROUTE_SCALE,
    ROUTE_P,
    ROUTE_EXPERTS,
    ROUTE_WEIGHTS,
    ROUTE_USAGE,
    ROUTE_ORDER
};

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
    op_array(run, "scale", INPUT, DTYPE_F32, n);
    op_array(run, "p", OUTPUT, DTYPE_F32, n * run->columns);
    op_array(run, "experts", OUTPUT, DTYPE_I32, n * k);
    op_array(run, "weights", OUTPUT, DTYPE_F32, n * k);
    op_array(run, "usage", UPDATED, DTYPE_F32, run->columns);
    op_order(run, k);
    for (i64 i = 0; i < n; i++) {
        op_values(run, ROUTE_TOPK)[i] = (double)op_below(k + 1, i, 0);
        op_values(run, ROUTE_COUNTED)[i] = (double)op_below(2, i, 1);
    }
    for (i64 e = 0; e < run->columns; e++)
        op_values(run, ROUTE_USAGE)[e] = (double)e;
    for (i64 i = 0; run->variant & 2 && i < n * run->columns; i++)
        op_values(run, ROUTE_LOGITS)[i] = floor(op_values(run, ROUTE_LOGITS)[i]);
    for (i64 e = 0; run->variant & 2 && e < run->columns; e++)
        op_values(run, ROUTE_BIAS)[e] = 0;
}

/* norm_min is small, or, where it `clamps`, above every sum of chosen p. */
static struct router router_of(const struct op_run *run, bool clamps)
{
    return (struct router){k_max_of(run), clamps ? 1.5f : NORM_MIN, 0};
}

/* Weights of one row's experts; unused entries have expert -1 and weight 0. */
static void weigh(double *weights, const double *p, const double *experts, struct router router, double scale)
{
    double sum = 0;
    for (i64 j = 0; j < router.k_max; j++)
        sum += experts[j] < 0 ? 0 : p[(i64)experts[j]];
    for (i64 j = 0; j < router.k_max; j++)
        weights[j] = experts[j] < 0 ? 0 : scale * p[(i64)experts[j]] / fmax(sum, (double)router.norm_min);
}

static void call_route(struct device *device, struct op_run *run)
{
    struct sorted_order order = order_of(run, ROUTE_ORDER, k_max_of(run));
    struct router router = router_of(run, false);
    device->ops->route(device, op_data(run, ROUTE_P), op_data(run, ROUTE_EXPERTS), op_data(run, ROUTE_WEIGHTS), &order,
                       run->variant & 1 ? NULL : op_data(run, ROUTE_USAGE), op_as_matrix(run, ROUTE_LOGITS),
                       op_data(run, ROUTE_BIAS), op_data(run, ROUTE_TOPK), op_data(run, ROUTE_COUNTED),
                       run->variant & 1 ? NULL : op_data(run, ROUTE_SCALE), &router);
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
        double *p = op_values(run, ROUTE_P) + i * n, *experts = op_values(run, ROUTE_EXPERTS) + i * k;
        softmax(p, op_values(run, ROUTE_LOGITS) + i * n, n);
        for (i64 j = 0; j < k; j++) {
            i64 best = -1;
            for (i64 e = 0; j < (i64)op_values(run, ROUTE_TOPK)[i] && e < n; e++)
                if (!is_taken(experts, j, e) &&
                    (best < 0 || p[e] + op_values(run, ROUTE_BIAS)[e] > p[best] + op_values(run, ROUTE_BIAS)[best]))
                    best = e;
            experts[j] = (double)best;
            if (best >= 0 && op_values(run, ROUTE_COUNTED)[i] > 0 && !(run->variant & 1))
                op_values(run, ROUTE_USAGE)[best] += 1;
        }
        weigh(op_values(run, ROUTE_WEIGHTS) + i * k, p, experts, router_of(run, false),
              run->variant & 1 ? 1 : op_values(run, ROUTE_SCALE)[i]);
    }
    reference_order(run, ROUTE_ORDER, op_values(run, ROUTE_EXPERTS), k);
}

/* ---- route_given; bit 0: norm_min clamps the sum, bit 1: no usage and no scale ---- */
enum { GIVEN_LOGITS, GIVEN_EXPERTS, GIVEN_COUNTED, GIVEN_SCALE, GIVEN_P, GIVEN_WEIGHTS, GIVEN_USAGE, GIVEN_ORDER };

/* Distinct experts, fewer than k at most positions. */
static void fill_experts(struct op_run *run, int index)
{
    i64 k = k_max_of(run);
    for (i64 i = 0; i < run->rows; i++)
        for (i64 j = 0; j < k; j++)
            op_values(run, index)[i * k + j] =
                j < i % (k + 1) ? (double)((op_below(run->columns, i, 0) + j) % run->columns) : -1;
}

static void setup_route_given(struct op_run *run)
{
    i64 n = run->rows, k = k_max_of(run);
    op_floats(run, "logits", INPUT, n, run->columns);
    op_array(run, "experts", INPUT, DTYPE_I32, n * k);
    op_array(run, "counted", INPUT, DTYPE_U8, n);
    op_array(run, "scale", INPUT, DTYPE_F32, n);
    op_array(run, "p", OUTPUT, DTYPE_F32, n * run->columns);
    op_array(run, "weights", OUTPUT, DTYPE_F32, n * k);
    op_array(run, "usage", run->variant & 2 ? INPUT : UPDATED, DTYPE_F32, run->columns);
    op_order(run, k);
    fill_experts(run, GIVEN_EXPERTS);
    op_fill_below(run, GIVEN_COUNTED, 2, 0);
    op_fill_below(run, GIVEN_USAGE, 100, 0);
}

static void call_route_given(struct device *device, struct op_run *run)
{
    struct sorted_order order = order_of(run, GIVEN_ORDER, k_max_of(run));
    struct router router = router_of(run, run->variant & 1);
    device->ops->route_given(device, op_data(run, GIVEN_P), op_data(run, GIVEN_WEIGHTS), &order,
                             run->variant & 2 ? NULL : op_data(run, GIVEN_USAGE), op_data(run, GIVEN_EXPERTS),
                             op_as_matrix(run, GIVEN_LOGITS), op_data(run, GIVEN_COUNTED),
                             run->variant & 2 ? NULL : op_data(run, GIVEN_SCALE), &router);
}

static void reference_route_given(struct op_run *run)
{
    i64 n = run->columns, k = k_max_of(run);
    for (i64 i = 0; i < run->rows; i++) {
        double *p = op_values(run, GIVEN_P) + i * n;
        const double *experts = op_values(run, GIVEN_EXPERTS) + i * k;
        softmax(p, op_values(run, GIVEN_LOGITS) + i * n, n);
        weigh(op_values(run, GIVEN_WEIGHTS) + i * k, p, experts, router_of(run, run->variant & 1),
              run->variant & 2 ? 1 : op_values(run, GIVEN_SCALE)[i]);
        for (i64 j = 0; j < k; j++)
            if (experts[j] >= 0 && op_values(run, GIVEN_COUNTED)[i] > 0)
                op_values(run, GIVEN_USAGE)[(i64)experts[j]] += 1;
    }
    reference_order(run, GIVEN_ORDER, op_values(run, GIVEN_EXPERTS), k);
}

/* ---- route_backward: bit 0: norm_min clamps the sum ---- */
enum { UNROUTE_LOGITS, UNROUTE_P, UNROUTE_EXPERTS, UNROUTE_DLOG_WEIGHTS, UNROUTE_DLOGITS };

static void setup_route_backward(struct op_run *run)
{
    i64 n = run->rows, e = run->columns, k = k_max_of(run);
    op_matrix(run, "logits", INPUT, n, e);
    op_array(run, "p", INPUT, DTYPE_F32, n * e);
    op_array(run, "experts", INPUT, DTYPE_I32, n * k);
    op_array(run, "dlog_weights", INPUT, DTYPE_F32, n * k);
    op_gradient(run, "dlogits", OUTPUT, run->dtype, UNROUTE_LOGITS);
    fill_experts(run, UNROUTE_EXPERTS);
    for (i64 i = 0; i < n; i++) {
        double *logits = op_values(run, UNROUTE_LOGITS) + i * e, *p = op_values(run, UNROUTE_P) + i * e;
        for (i64 j = 0; j < e; j++)
            logits[j] = op_round((float)logits[j], run->dtype);
        softmax(p, logits, e);
    }
}

static void call_route_backward(struct device *device, struct op_run *run)
{
    struct router router = router_of(run, run->variant & 1);
    device->ops->route_backward(device, op_as_matrix(run, UNROUTE_DLOGITS), op_data(run, UNROUTE_DLOG_WEIGHTS),
                                op_data(run, UNROUTE_P), op_data(run, UNROUTE_EXPERTS), &router);
}

static double objective_route(struct op_run *run, i64 begin, i64 end)
{
    i64 e = run->columns, k = k_max_of(run);
    double sum = 0, weights[4], *p = memory_alloc(e * 8);
    for (i64 i = begin; i < end; i++) {
        softmax(p, op_values(run, UNROUTE_LOGITS) + i * e, e);
        weigh(weights, p, op_values(run, UNROUTE_EXPERTS) + i * k, router_of(run, run->variant & 1), 0.5);
        for (i64 j = 0; j < k && op_values(run, UNROUTE_EXPERTS)[i * k + j] >= 0; j++)
            sum += op_values(run, UNROUTE_DLOG_WEIGHTS)[i * k + j] * log(weights[j]);
    }
    memory_free(p);
    return sum;
}

/* ---- route_balance: towards the mean; towards what is expected of each expert ---- */
static void setup_route_balance(struct op_run *run)
{
    op_array(run, "bias", UPDATED, DTYPE_F32, run->columns);
    op_array(run, "usage", UPDATED, DTYPE_F32, run->columns);
    op_array(run, "use", UPDATED, DTYPE_F64, run->columns);
    op_array(run, "sum", INPUT, DTYPE_F64, 1);
    op_array(run, "expected", INPUT, DTYPE_F64, run->columns);
    if (run->rows == 1) /* one case of a skipped update */
        op_values(run, 3)[0] = INFINITY;
    for (i64 e = 0; e < run->columns; e++)
        op_values(run, 1)[e] = (double)(run->rows == 7 ? 5 : op_below(9, e, 0)); /* one case of equal usage */
    for (i64 e = 0; e < run->columns; e++) /* above it, equal but for rounding, below it */
        op_values(run, 4)[e] =
            e % 3 == 1 ? op_values(run, 1)[e] * (1 + 0x1p-50) : op_values(run, 1)[e] + (e % 3 ? -1.0 : 1.0) / 3;
}

static void call_route_balance(struct device *device, struct op_run *run)
{
    device->ops->route_balance(device, op_data(run, 0), op_data(run, 1), op_data(run, 2), run->columns,
                               run->variant ? op_data(run, 4) : NULL, op_data(run, 3), 0.125f);
}

static void reference_route_balance(struct op_run *run)
{
    double *bias = op_values(run, 0), *usage = op_values(run, 1), mean = 0;
    for (i64 e = 0; e < run->columns; e++)
        mean += usage[e] / (double)run->columns;
    for (i64 e = 0; e < run->columns; e++) {
        double expected = run->variant ? op_values(run, 4)[e] : mean;
        bias[e] += !isfinite(op_values(run, 3)[0]) || fabs(usage[e] - expected) < 1e-6 ? 0
                   : usage[e] < expected                                               ? 0.125
                                                                                       : -0.125;
        op_values(run, 2)[e] += usage[e];
        usage[e] = 0;
    }
}

/* ---- route_sort: K = 3; variant 1: groups in another order than experts ---- */
enum { SORT_EXPERTS, SORT_GROUP, SORT_ORDER, SORT_K = 3 };

static void setup_route_sort(struct op_run *run)
{
    op_array(run, "experts", INPUT, DTYPE_I32, run->rows * SORT_K);
    op_array(run, "group", INPUT, DTYPE_I32, run->columns);
    op_order(run, SORT_K);
    for (i64 a = 0; a < run->rows * SORT_K; a++)
        op_values(run, SORT_EXPERTS)[a] = (double)op_below(run->columns + 1, a, 0) - 1;
    for (i64 e = 0; e < run->columns; e++)
        op_values(run, SORT_GROUP)[e] = (double)((e + run->columns / 3) % run->columns);
}

static void call_route_sort(struct device *device, struct op_run *run)
{
    struct sorted_order order = order_of(run, SORT_ORDER, SORT_K);
    device->ops->route_sort(device, &order, op_data(run, SORT_EXPERTS), run->variant ? op_data(run, SORT_GROUP) : NULL,
                            run->rows, SORT_K, run->columns);
}

static void reference_route_sort(struct op_run *run)
{
    const double *experts = op_values(run, SORT_EXPERTS);
    i64 assignments = run->rows * SORT_K;
    double *groups = memory_alloc(max_i64(assignments, 1) * (i64)sizeof *groups);
    for (i64 a = 0; a < assignments; a++)
        groups[a] = run->variant && experts[a] >= 0 ? op_values(run, SORT_GROUP)[(i64)experts[a]] : experts[a];
    reference_order(run, SORT_ORDER, groups, SORT_K);
    memory_free(groups);
}

/* ---- route_regroup ----
 * Rows from 3 ranks to E = columns experts; variant 1: one part per rank. */
enum { REGROUP_FROM, REGROUP_OFFSETS, REGROUP_REGROUP, REGROUP_ARRIVED };
enum { RANKS = 3 };

static i64 regroup_sum(const struct op_run *run, i64 ranks)
{
    i64 sum = 0;
    for (i64 i = 0; i < ranks * run->columns; i++)
        sum += (i64)op_values(run, REGROUP_FROM)[i];
    return sum;
}

static i64 regroup_capacity(const struct op_run *run)
{
    return run->variant ? regroup_sum(run, RANKS) + 2 : 0;
}

static void setup_route_regroup(struct op_run *run)
{
    op_array(run, "from", INPUT, DTYPE_I32, RANKS * run->columns);
    op_fill_below(run, REGROUP_FROM, 1 + 2 * ceil_div(run->rows, RANKS * run->columns), 0);
    i64 capacity = regroup_capacity(run), sum = regroup_sum(run, RANKS);
    op_array(run, "offsets", OUTPUT, DTYPE_I32, run->columns + 1);
    op_array(run, "regroup", OUTPUT, DTYPE_I32, groups_rows_bound(sum, run->columns));
    op_array(run, "arrived", OUTPUT, DTYPE_I32, capacity ? RANKS * capacity : sum);
}

static void call_route_regroup(struct device *device, struct op_run *run)
{
    device->ops->route_regroup(device, op_data(run, REGROUP_OFFSETS), op_data(run, REGROUP_REGROUP),
                               op_data(run, REGROUP_ARRIVED), run->operands[REGROUP_REGROUP].columns,
                               op_data(run, REGROUP_FROM), RANKS, run->columns, regroup_capacity(run));
}

static void reference_route_regroup(struct op_run *run)
{
    i64 row = 0, arrival[RANKS], capacity = regroup_capacity(run);
    for (i64 i = 0; i < run->operands[REGROUP_REGROUP].columns; i++)
        op_values(run, REGROUP_REGROUP)[i] = -1;
    for (i64 i = 0; i < run->operands[REGROUP_ARRIVED].columns; i++)
        op_values(run, REGROUP_ARRIVED)[i] = -1;
    for (i64 r = 0; r < RANKS; r++)
        arrival[r] = capacity ? r * capacity : regroup_sum(run, r); /* sorted by expert within a rank */
    for (i64 e = 0; e < run->columns; e++) {
        op_values(run, REGROUP_OFFSETS)[e] = (double)row;
        for (i64 r = 0; r < RANKS; r++)
            for (i64 n = (i64)op_values(run, REGROUP_FROM)[r * run->columns + e]; n > 0; n--) {
                op_values(run, REGROUP_REGROUP)[row] = (double)arrival[r];
                op_values(run, REGROUP_ARRIVED)[arrival[r]++] = (double)row++;
            }
        row = round_up(row, GROUP_ROWS);
    }
    op_values(run, REGROUP_OFFSETS)[run->columns] = (double)row;
}

/* ---- route_capacity ----
 * 6 * rows assignments to E = 3 * columns experts on 3 ranks; variant 1: the capacity is too
 * small. */
enum { CAPACITY_SLOT, CAPACITY_COUNTS, CAPACITY_OVER, CAPACITY_SORTED, CAPACITY_SOURCE };

static i64 rows_for_rank(const struct op_run *run, i64 rank)
{
    i64 rows = 0;
    for (i64 e = rank * run->columns; e < (rank + 1) * run->columns; e++)
        rows += (i64)op_values(run, CAPACITY_COUNTS)[e];
    return rows;
}

/* Rows per part: enough for all assignments, or (variant 1) fewer than a rank's mean share. */
static i64 capacity_of(const struct op_run *run)
{
    return run->variant ? run->rows : 6 * run->rows + 1;
}

static void setup_route_capacity(struct op_run *run)
{
    i64 assignments = 6 * run->rows, sorted = 0;
    op_array(run, "slot", UPDATED, DTYPE_I32, assignments);
    op_array(run, "counts", UPDATED, DTYPE_I32, RANKS * run->columns);
    op_array(run, "over", UPDATED, DTYPE_F64, 3);
    op_array(run, "sorted", INPUT, DTYPE_I32, assignments);
    op_array(run, "source", OUTPUT, DTYPE_I32, RANKS * capacity_of(run));
    for (i64 e = 0; e < RANKS * run->columns; e++)
        op_values(run, CAPACITY_COUNTS)[e] = 0;
    for (i64 a = 0; a < assignments; a++) /* each row's expert; one of seven has none */
        if (a % 7 != 3)
            op_values(run, CAPACITY_COUNTS)[op_below(RANKS * run->columns, a, 0)]++;
    i32 *order = memory_alloc(max_i64(assignments, 1) * 4);
    rng_permutation(order, assignments, (struct rng_key){4, RNG_TEST}, 0, 0);
    for (i64 a = 0; a < assignments; a++)
        op_values(run, CAPACITY_SLOT)[order[a]] = a % 7 == 3 ? -1 : (double)sorted++;
    for (i64 i = 0; i < assignments; i++)
        op_values(run, CAPACITY_SORTED)[i] = (double)op_below(1000, i, 1);
    for (i64 i = 0; i < 3; i++)
        op_values(run, CAPACITY_OVER)[i] = (double)(run->columns == 3 ? 4 * i : 0);
    memory_free(order);
}

static void call_route_capacity(struct device *device, struct op_run *run)
{
    device->ops->route_capacity(device, op_data(run, CAPACITY_SOURCE), op_data(run, CAPACITY_SLOT),
                                op_data(run, CAPACITY_COUNTS), op_data(run, CAPACITY_OVER),
                                op_data(run, CAPACITY_SORTED), 6 * run->rows, capacity_of(run), RANKS,
                                RANKS * run->columns);
}

/* Places the sorted rows one by one: on the rank of their expert, at the next free index of its
 * part. */
static void reference_route_capacity(struct op_run *run)
{
    i64 capacity = capacity_of(run), row = 0, at[RANKS] = {0};
    double *over = op_values(run, CAPACITY_OVER), *slot = op_values(run, CAPACITY_SLOT);
    i64 assignments = 6 * run->rows;
    double *placed = memory_alloc(max_i64(assignments, 1) * 8);
    for (i64 r = 0; r < RANKS; r++)
        if (rows_for_rank(run, r) > capacity) {
            over[0] = INFINITY;
            over[2] = (double)rows_for_rank(run, r) > over[1] ? (double)capacity : over[2];
            over[1] = fmax(over[1], (double)rows_for_rank(run, r));
        }
    for (i64 i = 0; i < RANKS * capacity; i++)
        op_values(run, CAPACITY_SOURCE)[i] = -1;
    for (i64 e = 0; e < RANKS * run->columns; e++) {
        i64 r = e / run->columns, count = (i64)op_values(run, CAPACITY_COUNTS)[e];
        for (i64 i = 0; i < count; i++, row++, at[r]++) {
            bool room = at[r] < capacity;
            placed[row] = room ? (double)(r * capacity + at[r]) : -1;
            if (room)
                op_values(run, CAPACITY_SOURCE)[r * capacity + at[r]] = op_values(run, CAPACITY_SORTED)[row];
            op_values(run, CAPACITY_COUNTS)[e] -= room ? 0 : 1;
        }
    }
    for (i64 a = 0; a < assignments; a++)
        slot[a] = slot[a] < 0 ? -1 : placed[(i64)slot[a]];
    memory_free(placed);
}

/* ---- route_count ----
 * E = columns experts; variant 0 keeps all of them, variant 1 every other one. */
enum { COUNT_OFFSETS, COUNT_MEMBER, COUNT_COUNTS };

static i64 count_kept(const struct op_run *run)
{
    return run->variant ? run->columns / 2 : run->columns;
}

static void setup_route_count(struct op_run *run)
{
    i64 kept = count_kept(run), row = 0;
    op_array(run, "offsets", INPUT, DTYPE_I32, kept + 1);
    op_array(run, "member", INPUT, DTYPE_I32, kept);
    op_array(run, "counts", OUTPUT, DTYPE_I32, run->columns);
    for (i64 e = 0; e <= kept; e++) {
        op_values(run, COUNT_OFFSETS)[e] = (double)row;
        row += op_below(1 + 2 * ceil_div(run->rows, run->columns), e, 0);
    }
    for (i64 e = 0; e < kept; e++)
        op_values(run, COUNT_MEMBER)[e] = (double)(2 * e + 1);
}

static void call_route_count(struct device *device, struct op_run *run)
{
    device->ops->route_count(device, op_data(run, COUNT_COUNTS), op_data(run, COUNT_OFFSETS),
                             run->variant ? op_data(run, COUNT_MEMBER) : NULL, count_kept(run), run->columns);
}

static void reference_route_count(struct op_run *run)
{
    const double *offsets = op_values(run, COUNT_OFFSETS);
    for (i64 e = 0; e < run->columns; e++)
        op_values(run, COUNT_COUNTS)[e] = 0;
    for (i64 e = 0; e < count_kept(run); e++)
        op_values(run, COUNT_COUNTS)[run->variant ? 2 * e + 1 : e] = offsets[e + 1] - offsets[e];
}

/* ---- dispatch, combine, combine_backward; bit 0: add (combine only), bit 1: no weights ---- */
enum { MOE_X, MOE_Y, MOE_SLOT, MOE_SOURCE, MOE_ROWS, MOE_WEIGHTS, MOE_OTHER };
enum { K = 3 };

static const struct op_shape moe_shapes[] = {{0, 3},    {1, 37},   {7, 37},    {130, 3},
                                             {130, 64}, {3, 1032}, {3, 20000}, {-1}};

static i64 bound_of(const struct op_run *run)
{
    return run->rows * K + 9;
}
static i64 rows_of(const struct op_run *run)
{
    return run->rows * K + 4;
}

/* x [N, C] by position, y [bound, C] by sorted row. Assignments have scattered rows; some have
 * none. */
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
/* Number of matrices that combine adds besides out. */
static i64 others_of(const struct op_run *run)
{
    return min_i64(run->variant / 4, run->variant & 1 ? 1 : 2);
}

static void setup_combine(struct op_run *run)
{
    setup_moe(run, run->variant & 1 ? UPDATED : OUTPUT, INPUT);
    for (i64 i = 0; i < others_of(run); i++)
        op_matrix(run, i ? "b" : "a", INPUT, run->rows, run->columns);
}

static void setup_combine_backward(struct op_run *run)
{
    setup_moe(run, INPUT, UPDATED);
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
    struct matrix others[2] = {{0}};
    i64 count = 0;
    if (run->variant & 1)
        others[count++] = op_as_matrix(run, MOE_X);
    for (i64 i = 0; i < others_of(run); i++)
        others[count++] = op_as_matrix(run, MOE_OTHER + i);
    device->ops->combine(device, op_as_matrix(run, MOE_X), others[run->variant / 4 == 2], others[run->variant / 4 != 2],
                         op_as_matrix(run, MOE_Y), op_data(run, MOE_SLOT), weights_of(run), K);
}

static void reference_combine(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows * n; i++) {
        double sum = run->variant & 1 ? op_values(run, MOE_X)[i] : 0;
        for (i64 other = 0; other < others_of(run); other++)
            sum += op_values(run, MOE_OTHER + other)[i];
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
    device->ops->combine_backward(device, op_as_matrix(run, MOE_Y), op_as_matrix(run, MOE_X), op_data(run, MOE_SLOT),
                                  op_data(run, MOE_SOURCE), op_data(run, MOE_ROWS), weights_of(run), K);
}

static void reference_combine_backward(struct op_run *run)
{
    i64 n = run->columns;
    memset(op_values(run, MOE_Y), 0, (size_t)(rows_of(run) * n) * 8);
    for (i64 a = 0; a < run->rows * K; a++) {
        i64 slot = (i64)op_values(run, MOE_SLOT)[a];
        double weight = run->variant & 2 ? 1 : op_values(run, MOE_WEIGHTS)[a];
        for (i64 c = 0; slot >= 0 && c < n; c++)
            op_values(run, MOE_Y)[slot * n + c] = weight * op_values(run, MOE_X)[a / K * n + c];
    }
}

const struct op_case expert_cases[] = {
    {"route", 4, setup_route, call_route, reference_route, .usual = {4096, 64}, .shapes = sorted_shapes,
     .alike = ONE_DTYPE},
    {"route_given", 4, setup_route_given, call_route_given, reference_route_given, .usual = {4096, 64},
     .shapes = sorted_shapes, .alike = ONE_DTYPE},
    {"route_backward", 2, setup_route_backward, call_route_backward, .objective = objective_route, .usual = {4096, 64}},
    {"route_sort", 2, setup_route_sort, call_route_sort, reference_route_sort, .usual = {4096, 64},
     .shapes = sorted_shapes, .alike = ONE_DTYPE | NO_GAPS},
    {"route_regroup", 2, setup_route_regroup, call_route_regroup, reference_route_regroup, .usual = {4096, 64},
     .alike = ONE_DTYPE | NO_GAPS},
    {"route_capacity", 2, setup_route_capacity, call_route_capacity, reference_route_capacity, .usual = {4096, 8},
     .alike = ONE_DTYPE | NO_GAPS},
    {"route_count", 2, setup_route_count, call_route_count, reference_route_count, .usual = {4096, 64},
     .alike = ONE_DTYPE | NO_GAPS},
    {"dispatch", 1, setup_dispatch, call_dispatch, reference_dispatch, .usual = {4096, 512}, .shapes = moe_shapes},
    {"combine", 12, setup_combine, call_combine, reference_combine, .usual = {4096, 512}, .shapes = moe_shapes},
    {"combine_backward", 4, setup_combine_backward, call_combine_backward, reference_combine_backward,
     .usual = {4096, 512}, .shapes = moe_shapes},
    {"route_balance", 2, setup_route_balance, call_route_balance, reference_route_balance, .usual = {4096, 64},
     .alike = ONE_DTYPE | NO_GAPS},
    {0},
};
