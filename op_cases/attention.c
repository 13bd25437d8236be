/* Attention of `rows` queries over `columns` keys of head width `depth`. */
#include "op_cases/op_cases.h"

#include <math.h>

/* Packed samples with causal keys and bidirectional blocks. Some keys have a hole, and some are
 * seen by no query, including all keys of some samples. */
struct attention_case_layout {
    i64 heads, kv_heads;
    i64 sample, block; /* mean lengths; 0: none */
    bool subset;       /* scattered queries */
    bool holes;
};
static const struct attention_case_layout layouts[] = {{8, 2, 0, 0, false, false},  {3, 3, 60, 20, false, true},
                                                       {2, 1, 90, 7, true, true},   {4, 2, 40, 40, false, false},
                                                       {6, 2, 60, 20, false, true}, {18, 9, 300, 20, true, true}};
/* The last layout and the last shape are for the forward op only: their splits are long enough for
 * a summary of the keys (kernels/cuda/attention/attention.cu). */
/* clang-format off */
#define SHAPES \
    {3, 3, 32}, {1, 257, 64}, {3, 1, 16}, {40, 70, 16}, {130, 130, 64}, {150, 140, 32}, {200, 129, 24}, \
    {130, 257, 40}, {13, 700, 64}, {300, 300, 16}, {20, 70, 96}, {20, 100, 128}, {9, 70, 200}, {3, 1100, 16}, \
    {1, 40000, 16}, {36, 440, 16}, {160, 160, 8}, {130, 260, 72}, {33, 980, 8}, {4, 300, 200}, \
    {600, 70, 8}, {40, 2300, 8}
/* clang-format on */
static const struct op_shape attention_shapes[] = {SHAPES, {2, 16300, 8}, {-1}}, backward_shapes[] = {SHAPES, {-1}};

enum { ATT_Q, ATT_K, ATT_V, ATT_QUERY, ATT_BEGIN, ATT_END, ATT_HOLE_BEGIN, ATT_HOLE_END };
enum { ATT_OUT = ATT_HOLE_END + 1, ATT_LSE, ATT_DOUT, ATT_DQ, ATT_DK, ATT_DV };

static const struct attention_case_layout *layout_of(const struct op_run *run)
{
    return &layouts[run->variant];
}

static i64 length_of(i64 mean, i64 a, i64 b)
{
    return 1 + op_below(2 * mean - 1, a, b);
}

static void fill_keys(struct op_run *run)
{
    const struct attention_case_layout *s = layout_of(run);
    i64 reach = max_i64(run->rows, run->columns), sample_end = 0, samples = 0, block = 0, block_end = 0;
    for (i64 j = 0; j < run->columns; j++) {
        if (j == sample_end) {
            sample_end = s->sample ? j + length_of(s->sample, 103, j) : reach + 1;
            samples++;
        }
        if (j == block_end || j == 0) {
            block = j;
            block_end = min_i64(sample_end, j + (s->block && j % 3 ? length_of(s->block, 104, j) : 1));
        }
        bool hole = s->holes && block % 5 == 1, unseen = s->holes && (j % 97 == 50 || samples % 3 == 0);
        op_values(run, ATT_BEGIN)[j] = (double)block;
        op_values(run, ATT_END)[j] = (double)(unseen ? block : sample_end);
        op_values(run, ATT_HOLE_BEGIN)[j] = hole ? (double)block_end : 0;
        op_values(run, ATT_HOLE_END)[j] = hole ? (double)(block_end + (sample_end - block_end) / 2) : 0;
    }
}

/* Scattered queries stay low enough that every later query still gets an index. */
static void fill_queries(struct op_run *run)
{
    i64 reach = max_i64(run->rows, run->columns), apart = max_i64(1, reach / run->rows), at = 0;
    for (i64 i = 0; i < run->rows; i++, at++) {
        if (layout_of(run)->subset)
            at = min_i64(at + length_of(apart, 105, i) - 1, reach + 5 - run->rows + i);
        op_values(run, ATT_QUERY)[i] = (double)at;
    }
}

static void setup_inputs(struct op_run *run)
{
    static const char *const columns[] = {"begin", "end", "hole_begin", "hole_end"};
    const struct attention_case_layout *s = layout_of(run);
    op_matrix(run, "q", INPUT, run->rows, s->heads * run->depth);
    op_matrix(run, "k", INPUT, run->columns, s->kv_heads * run->depth);
    op_matrix(run, "v", INPUT, run->columns, s->kv_heads * run->depth);
    op_array(run, "query", INPUT, DTYPE_I32, run->rows);
    for (i64 i = 0; i < COUNT_OF(columns); i++)
        op_array(run, columns[i], INPUT, DTYPE_I32, run->columns);
    fill_keys(run);
    fill_queries(run);
}

static struct intervals intervals_of(const struct op_run *run)
{
    return (struct intervals){run->rows,
                              run->columns,
                              op_data(run, ATT_QUERY),
                              op_data(run, ATT_BEGIN),
                              op_data(run, ATT_END),
                              op_data(run, ATT_HOLE_BEGIN),
                              op_data(run, ATT_HOLE_END)};
}

static bool sees(const struct op_run *run, i64 query, i64 key)
{
    double i = op_values(run, ATT_QUERY)[query];
    return op_values(run, ATT_BEGIN)[key] <= i && i < op_values(run, ATT_END)[key] &&
           !(op_values(run, ATT_HOLE_BEGIN)[key] <= i && i < op_values(run, ATT_HOLE_END)[key]);
}

static double dot(const double *a, const double *b, i64 n)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* One head's row of an operand [rows, heads * depth]. */
static double *head_row(const struct op_run *run, int index, i64 row, i64 head)
{
    return op_values(run, index) + row * run->operands[index].columns + head * run->depth;
}

static i64 kv_of(const struct op_run *run, i64 head)
{
    return head / (layout_of(run)->heads / layout_of(run)->kv_heads);
}

/* Computes p [columns] of one head of one query; returns the log-sum-exp. */
static double probabilities(double *p, const struct op_run *run, i64 query, i64 head)
{
    double most = -INFINITY, total = 0;
    for (i64 j = 0; j < run->columns; j++) {
        p[j] = sees(run, query, j)
                   ? dot(head_row(run, ATT_Q, query, head), head_row(run, ATT_K, j, kv_of(run, head)), run->depth) /
                         sqrt((double)run->depth)
                   : -INFINITY;
        most = fmax(most, p[j]);
    }
    for (i64 j = 0; j < run->columns; j++)
        total += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - most);
    for (i64 j = 0; j < run->columns && total > 0; j++)
        p[j] /= total;
    return total > 0 ? most + log(total) : -INFINITY;
}

static void add_scaled(double *out, const double *x, double scale, i64 n)
{
    for (i64 i = 0; i < n; i++)
        out[i] += scale * x[i];
}

static void reference_attention(struct op_run *run)
{
    i64 heads = layout_of(run)->heads;
    double *p = memory_alloc(run->columns * 8);
    for (i64 at = 0; at < run->rows * heads; at++) {
        i64 i = at / heads, head = at % heads;
        op_values(run, ATT_LSE)[at] = probabilities(p, run, i, head);
        for (i64 j = 0; j < run->columns; j++)
            if (p[j] > 0)
                add_scaled(head_row(run, ATT_OUT, i, head), head_row(run, ATT_V, j, kv_of(run, head)), p[j],
                           run->depth);
    }
    memory_free(p);
}

static void setup_attention(struct op_run *run)
{
    setup_inputs(run);
    op_matrix(run, "out", OUTPUT, run->rows, layout_of(run)->heads * run->depth);
    op_operand(run, "lse", OUTPUT, DTYPE_F32, run->rows, layout_of(run)->heads, 0);
}

static void call_attention(struct device *device, struct op_run *run)
{
    struct intervals intervals = intervals_of(run);
    device->ops->attention(device, op_as_matrix(run, ATT_OUT), op_data(run, ATT_LSE), op_as_matrix(run, ATT_Q),
                           op_as_matrix(run, ATT_K), op_as_matrix(run, ATT_V), layout_of(run)->heads,
                           layout_of(run)->kv_heads, &intervals);
}

/* Output and log-sum-exp are those of the forward op. */
static void setup_attention_backward(struct op_run *run)
{
    const struct attention_case_layout *s = layout_of(run);
    setup_attention(run);
    run->operands[ATT_OUT].role = run->operands[ATT_LSE].role = INPUT;
    op_matrix(run, "dout", INPUT, run->rows, s->heads * run->depth);
    op_matrix(run, "dq", OUTPUT, run->rows, s->heads * run->depth);
    op_matrix(run, "dk", OUTPUT, run->columns, s->kv_heads * run->depth);
    op_matrix(run, "dv", OUTPUT, run->columns, s->kv_heads * run->depth);
    for (int k = ATT_Q; k <= ATT_V; k++)
        op_round_all(run, k);
    reference_attention(run);
}

static void call_attention_backward(struct device *device, struct op_run *run)
{
    struct intervals intervals = intervals_of(run);
    device->ops->attention_backward(device, op_as_matrix(run, ATT_DQ), op_as_matrix(run, ATT_DK),
                                    op_as_matrix(run, ATT_DV), op_as_matrix(run, ATT_DOUT), op_as_matrix(run, ATT_OUT),
                                    op_data(run, ATT_LSE), op_as_matrix(run, ATT_Q), op_as_matrix(run, ATT_K),
                                    op_as_matrix(run, ATT_V), layout_of(run)->heads, layout_of(run)->kv_heads,
                                    &intervals);
}

static void reference_attention_backward(struct op_run *run)
{
    i64 heads = layout_of(run)->heads, d = run->depth;
    double *p = memory_alloc(run->columns * 8), *dp = memory_alloc(run->columns * 8);
    for (i64 at = 0; at < run->rows * heads; at++) {
        i64 i = at / heads, head = at % heads, kv = kv_of(run, head);
        const double *dout = head_row(run, ATT_DOUT, i, head);
        double mean = 0;
        probabilities(p, run, i, head);
        for (i64 j = 0; j < run->columns; j++) {
            dp[j] = p[j] > 0 ? dot(dout, head_row(run, ATT_V, j, kv), d) : 0;
            mean += p[j] * dp[j];
        }
        for (i64 j = 0; j < run->columns; j++) {
            double ds = p[j] * (dp[j] - mean) / sqrt((double)d);
            if (p[j] <= 0)
                continue;
            add_scaled(head_row(run, ATT_DQ, i, head), head_row(run, ATT_K, j, kv), ds, d);
            add_scaled(head_row(run, ATT_DK, j, kv), head_row(run, ATT_Q, i, head), ds, d);
            add_scaled(head_row(run, ATT_DV, j, kv), dout, p[j], d);
        }
    }
    memory_free(p);
    memory_free(dp);
}

const struct op_case attention_cases[] = {
    {"attention", COUNT_OF(layouts), setup_attention, call_attention, reference_attention, .usual = {2048, 2048, 64},
     .depth_step = 8, .shapes = attention_shapes, .bf16_slack = 1.2e-2, .multiplies = true},
    {"attention_backward", COUNT_OF(layouts) - 1, setup_attention_backward, call_attention_backward,
     reference_attention_backward, .usual = {2048, 2048, 64}, .depth_step = 8, .shapes = backward_shapes,
     .bf16_slack = 1.2e-2, .cancels = true, .multiplies = true},
    {0},
};
