/* What the rows of WEFT_OPS state. Every matrix and every array of every op has a statement, whose
 * size is the one that op_cases allots. Other operands stop the program and are named. The bytes
 * that the meta backend counts follow. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/each.h"
#include "kernels/shapes.h"
#include "op_cases/op_cases.h"
#include "tests/test.h"

/* ---- Statements beside the operands of op_cases ---- */
static const struct op_run *seen_run;
static i64 seen_calls, seen_arrays;

static void expect_named(const struct statement *statement, const char *name, const void *data)
{
    i64 i = 0;
    while (i < statement->count && statement->list[i].data != data)
        i++;
    if (data && i == statement->count)
        fail_msg("%s: the statement does not name %s", statement->op, name);
}

static void expect_matrix(const struct statement *statement, const char *name, const struct matrix *m)
{
    expect_named(statement, name, m);
}

static void expect_array(const struct statement *statement, const char *name, const void *const *array)
{
    expect_named(statement, name, *array);
}

static void expect_nothing(const struct statement *statement, const char *name, ...)
{
    (void)statement;
    (void)name;
}

/* An array is as long as its operand in op_cases. */
static void expect_lengths(const struct statement *statement)
{
    for (i64 i = 0; i < statement->count; i++) {
        const struct stated *s = &statement->list[i];
        for (int k = 0; k < seen_run->count; k++) {
            const struct operand *o = &seen_run->operands[k];
            if (o->data != s->data || s->properties & IS_MATRIX || s->rows == UNSTATED)
                continue;
            seen_arrays++;
            i64 spare = strcmp(statement->op, "zero") == 0 ? operand_bytes(o) - operand_bytes(o) / 2 : 0;
            if (stated_bytes(s) + spare != operand_bytes(o))
                fail_msg("%s: %s [%s, %s] has %lld bytes, its case %lld", statement->op, s->text->name, s->text->rows,
                         s->text->columns, (long long)stated_bytes(s), (long long)operand_bytes(o));
        }
    }
}

#define POINTERS(type) const type * : expect_array, type * : expect_array
#define EXPECT(unused, x)                                                                                              \
    _Generic((x),                                                                                                      \
        struct matrix: expect_matrix,                                                                                  \
        POINTERS(void),                                                                                                \
        POINTERS(float),                                                                                               \
        POINTERS(double),                                                                                              \
        POINTERS(i32),                                                                                                 \
        POINTERS(u32),                                                                                                 \
        POINTERS(u8),                                                                                                  \
        const i64 *: expect_array,                                                                                     \
        const struct scale *: expect_array,                                                                            \
        default: expect_nothing)(&statement_, #x, (void *)&x);
#define OP(name, arguments, names, ...)                                                                                \
    static void see_##name arguments                                                                                   \
    {                                                                                                                  \
        STATEMENT(name, __VA_ARGS__)                                                                                   \
        statement_check(&statement_);                                                                                  \
        expect_lengths(&statement_);                                                                                   \
        EACH(EXPECT, , UNWRAP names)                                                                                   \
        seen_calls++;                                                                                                  \
    }
WEFT_OPS(OP)
#undef OP
#define OP(name, arguments, names, ...) .name = see_##name,
static const struct kernels see_kernels = {WEFT_OPS(OP)};
#undef OP

static int see(const struct op_case *c, struct op_run *run, void *device)
{
    op_open(run, c);
    op_put(run, device);
    seen_run = run;
    c->call(device, run);
    op_leave(run, device);
    op_release(run, device);
    return 0;
}

TEST(statements_fit_the_operands_of_op_cases)
{
    struct device device;
    const struct op_case *c;
    device_open_cpu(&device);
    device.ops = &see_kernels;
    for (i64 i = 0; (c = case_at(i)) != NULL; i++) {
        seen_calls = 0;
        assert_int_equal(case_each(c, &(struct check_scope){.small_shapes = true}, see, &device), 0);
        if (seen_calls == 0)
            fail_msg("%s: its cases do not call it", c->name);
    }
    assert_in_range(seen_arrays, 1000, INT64_MAX);
    device_close(&device);
}

/* ---- Operands that are not as stated ---- */
enum { N = 3, C = 4 };
static struct device device;
static float memory[3 * N * C];

static struct matrix f32(i64 rows, i64 columns)
{
    return matrix_of(memory, DTYPE_F32, rows, columns);
}

static void short_output(void)
{
    device.ops->rmsnorm(&device, f32(N, C - 1), memory, f32(N, C), f32(1, C), 1e-5f);
}

static void long_weight(void)
{
    device.ops->rmsnorm(&device, f32(N, C), memory, f32(N, C), f32(1, C + 1), 1e-5f);
}

static void transposed_product(void)
{
    device.ops->matmul(&device, f32(N, N), f32(N, C), false, f32(C, N), true, false);
}

static void other_dtype(void)
{
    device.ops->add(&device, f32(N, C), f32(N, C), matrix_of(memory, DTYPE_BF16, N, C));
}

static void statistics_in_bf16(void)
{
    device.ops->column_sums(&device, matrix_of(memory, DTYPE_BF16, 1, C), f32(N, C), false);
}

static void no_targets(void)
{
    device.ops->cross_entropy(&device, memory, memory, NULL, f32(N, C), NULL);
}

static void no_matrix(void)
{
    device.ops->swiglu(&device, f32(N, C), matrix_of(NULL, DTYPE_F32, N, 2 * C));
}

static void odd_heads(void)
{
    device.ops->rope(&device, f32(N, C), memory, 3, 1e4f, 0, false);
}

static void other_member(void)
{
    struct conv conv = {1, 2, 2, {1, 1, N}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}, {0}};
    device.ops->conv(&device, f32(N, 2), f32(N, 3), f32(2, 2), &conv);
}

/* Runs `wrong` in a child process, which must panic with the message. */
static void assert_refused(void (*wrong)(void), const char *message)
{
    char text[4096] = {0};
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        wrong();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t used = 0, more = 1; more > 0 && used < (ssize_t)sizeof text - 1; used += more)
        more = read(ends[0], text + used, sizeof text - 1 - (size_t)used);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        fail_msg("not refused: %s", message);
    if (!strstr(text, message))
        fail_msg("expected \"%s\" in: %s", message, text);
}

TEST(other_operands_are_refused)
{
    static const struct {
        void (*wrong)(void);
        const char *message;
    } rows[] = {
        {short_output, "rmsnorm: y is F32 [3,3], expected F32 [N, C] = [3,4]"},
        {long_weight, "rmsnorm: w is F32 [1,5], expected [1, C] = [1,4]"},
        {transposed_product, "matmul: b is F32 [4,3], expected F32 [transpose_b ? N : K, transpose_b ? K : N] = [3,4]"},
        {other_dtype, "add: b is BF16 [3,4], expected F32 [N, C] = [3,4]"},
        {statistics_in_bf16, "column_sums: out is BF16 [1,4], expected F32 [1, C] = [1,4]"},
        {no_targets, "cross_entropy: target is NULL, expected [N, 1] = [3,1]"},
        {no_matrix, "swiglu: gate_up is NULL, expected F32 [N, 2 * F] = [3,8]"},
        {odd_heads, "rope: expected C % (2 * heads) == 0 && t_pairs >= 0 && t_pairs <= C / (2 * heads); x [3,4]"},
        {other_member, "conv: x is F32 [3,3], expected F32 [conv->batch * product3(conv->size), conv->in] = [3,2]"},
    };
    void (*const opens[])(struct device *) = {device_open_cpu, device_open_meta};
    for (i64 d = 0; d < COUNT_OF(opens); d++) {
        opens[d](&device);
        for (i64 i = 0; i < COUNT_OF(rows); i++)
            assert_refused(rows[i].wrong, rows[i].message);
        device_close(&device);
    }
}

/* ---- Bytes ---- */
static double bytes_since(double *before)
{
    double bytes = device.cost.bytes - *before;
    *before = device.cost.bytes;
    return bytes;
}

TEST(bytes_follow_from_statements)
{
    double before = 0;
    i32 ids[2 * N] = {0};
    u8 bits[N * C] = {0};
    device_open_meta(&device);
    device.ops->copy(&device, f32(N, C), f32(N, C), 1, false);
    assert_true(bytes_since(&before) == 2 * N * C * 4);
    device.ops->copy(&device, f32(N, C), f32(N, C), 1, true); /* reads what it adds to */
    assert_true(bytes_since(&before) == 3 * N * C * 4);
    device.ops->rmsnorm(&device, f32(N, C), memory, f32(N, C), f32(1, C), 1e-5f); /* without vectors */
    assert_true(bytes_since(&before) == 2 * N * C * 4);
    device.ops->bit_cross_entropy(&device, memory, NULL, f32(N, C), bits);
    assert_true(bytes_since(&before) == N * C * 4 + N * C);
    device.ops->copy_ids(&device, ids, ids + N, N); /* vectors alone */
    assert_true(bytes_since(&before) == 2 * N * 4);
    device_close(&device);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
