/* Ops: every case of cases/ on the CPU, behind the wall and on the meta backend, or those of the ops that arguments
 * name; norms, rope and swiglu against torch. */
#include "cases/cases.h"
#include "tests/golden.h"

#define NAME(name, arguments, names) #name,
static const char *const op_names[] = {WEFT_OPS(NAME)};

static char **wanted; /* names of ops, ending with NULL; none: all */

static bool is_wanted(const struct op_case *c)
{
    bool named = !*wanted;
    for (char **name = wanted; *name; name++)
        named |= strcmp(*name, c->name) == 0;
    return named;
}

static void every_op_has_a_case(void **state)
{
    (void)state;
    for (i64 i = 0; i < COUNT_OF(op_names); i++)
        if (!case_find(op_names[i]))
            fail_msg("op %s has no case in cases/", op_names[i]);
    const struct op_case *c;
    i64 count = 0;
    while ((c = case_at(count)) != NULL) {
        assert_ptr_equal(case_find(c->name), c);
        count++;
    }
    assert_int_equal(count, COUNT_OF(op_names));
}

static void check_all(struct device *device, const struct check_scope *scope)
{
    const struct op_case *c;
    for (i64 i = 0; (c = case_at(i)) != NULL; i++)
        if (is_wanted(c) && case_check(c, device, scope) != 0)
            fail_msg("%s: %s", device_name(device), error_text());
    device_close(device);
}

static void on_the_cpu_they_are_plain_loops(void **state)
{
    struct device device;
    (void)state;
    device_open_cpu(&device);
    check_all(&device, &(struct check_scope){.workers = true});
}

static bool is_same(const struct kernels *a, const struct kernels *b, const char *op)
{
#define SAME(name, arguments, names)                                                                                   \
    if (strcmp(op, #name) == 0)                                                                                        \
        return a->name == b->name;
    WEFT_OPS(SAME)
    return false;
}

/* Those kernels that the level has to itself. */
static void check_level(const char *level, const struct kernels *fastest)
{
    struct device device;
    const struct op_case *c;
    setenv("WEFT_CPU", level, 1);
    device_open_cpu(&device);
    for (i64 i = 0; (c = case_at(i)) != NULL; i++)
        if (is_wanted(c) && !is_same(device.ops, fastest, c->name) &&
            case_check(c, &device, &(struct check_scope){.few = true}) != 0)
            fail_msg("%s: %s", device_name(&device), error_text());
    device_close(&device);
    unsetenv("WEFT_CPU");
}

static void at_each_level_they_are_plain_loops(void **state)
{
    struct device device;
    const struct kernels *fastest;
    (void)state;
    if (getenv("WEFT_CPU"))
        skip();
    device_open_cpu(&device);
    fastest = device.ops;
    device_close(&device);
    check_level("v3", fastest);
    check_level("v4", fastest);
    check_level("pairs", fastest);
}

/* What an op is handed is device memory, as far as it says. */
static void behind_the_wall_they_are_plain_loops(void **state)
{
    struct device device;
    (void)state;
    device_open_guarded(&device);
    check_all(&device, &(struct check_scope){.few = true});
}

/* ---- The check itself: an op that is wrong in one place ---- */
static struct kernels broken;

static void last_is_wrong(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    cpu_v3_kernels.add(device, out, a, b);
    if (out.rows > 0 && out.dtype == DTYPE_F32)
        ((float *)out.data)[(out.rows - 1) * out.stride + out.columns - 1] += 0.01f;
}

static void writes_behind_a_row(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    cpu_v3_kernels.add(device, out, a, b);
    if (out.rows > 0 && out.stride > out.columns)
        ((u8 *)out.data)[out.columns * dtype_bytes(out.dtype)] = 0;
}

static void writes_an_input(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    if (b.rows > 0)
        ((u8 *)b.data)[1] = 0x11;
    cpu_v3_kernels.add(device, out, a, b);
}

static void differs_in_time(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    static int calls;
    cpu_v3_kernels.add(device, out, a, b);
    if (out.rows > 0)
        *(u8 *)out.data ^= (u8)(++calls & 1); /* far below the tolerance */
}

static void what_is_wrong_is_found(void **state)
{
    static const struct {
        void (*add)(struct device *device, struct matrix out, struct matrix a, struct matrix b);
        const char *message;
    } wrong[] = {{last_is_wrong, "add variant 0, F32, rows 1, columns 37, depth 0, gap 5, out: [0,36] is "},
                 {writes_behind_a_row, "gap 5, out: written behind row 0"},
                 {writes_an_input, "b: an input, written at [0,0]"},
                 {differs_in_time, "out: other bits again"}};
    struct device device;
    (void)state;
    device_open_cpu(&device);
    broken = cpu_v3_kernels;
    device.ops = &broken;
    for (i64 i = 0; i < COUNT_OF(wrong); i++) {
        broken.add = wrong[i].add;
        assert_int_equal(case_check(case_find("add"), &device, &(struct check_scope){.few = true}), -1);
        if (!strstr(error_text(), wrong[i].message))
            fail_msg("expected \"%s\" in: %s", wrong[i].message, error_text());
    }
    device_close(&device);
}

/* ---- The meta backend ---- */
static bool has_elements(const struct op_run *run)
{
    for (int k = 0; k < run->count; k++)
        if (run->operands[k].rows * run->operands[k].columns == 0)
            return false;
    return run->rows > 0;
}

static int count_run(const struct op_case *c, struct op_run *run, void *context)
{
    struct device *meta = context;
    meta->cost = (struct cost){0};
    op_open(run, c);
    op_put(run, meta);
    c->call(meta, run);
    bool costs = meta->cost.bytes > 0 && (meta->cost.flops > 0) == c->multiplies;
    bool right = meta->cost.calls > 0 && (costs || !has_elements(run));
    op_release(run, meta);
    return right ? 0 : error_set("%s counts %g flops, %g bytes", c->name, meta->cost.flops, meta->cost.bytes);
}

static void meta_counts_them(void **state)
{
    struct device meta;
    const struct op_case *c;
    (void)state;
    device_open_meta(&meta);
    for (i64 i = 0; (c = case_at(i)) != NULL; i++)
        if (is_wanted(c) && case_each(c, true, count_run, &meta) != 0)
            fail_msg("meta: %s", error_text());
    device_close(&meta);
}
/* ---- Golden files ---- */
static void check_golden_rmsnorm(struct golden *g)
{
    const struct kernels *ops = g->device.ops;
    struct matrix x = golden_matrix(g, "x"), w = golden_matrix(g, "w"), dy = golden_matrix(g, "dy");
    struct matrix y = golden_new(g, DTYPE_F32, x.rows, x.columns), dw = golden_new(g, DTYPE_F32, 1, x.columns);
    float *rstd = golden_alloc(g, x.rows * 4), eps = *(float *)golden_load(g, "eps");
    ops->rmsnorm(&g->device, y, rstd, x, w, eps);
    golden_check(g, "y", y, 1e-5, 1e-7);
    ops->rmsnorm_backward(&g->device, y, dw, dy, x, w, rstd, false, false);
    golden_check(g, "dx", y, 1e-4, 1e-6);
    golden_check(g, "dw", dw, 1e-5, 1e-6);
    y = golden_new(g, DTYPE_BF16, x.rows, x.columns);
    ops->rmsnorm(&g->device, y, rstd, golden_bf16(g, x), golden_bf16(g, w), eps);
    golden_check(g, "y_bf16", y, 0, 0); /* the same bits */
}

static void rmsnorm_is_that_of_torch(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/ops/rmsnorm.safetensors");
    for (int i = 0; i < 2; i++) {
        g.prefix = i ? "1." : "0.";
        check_golden_rmsnorm(&g);
    }
    golden_close(&g);
}

/* [1, heads, T, D] as in the file, from or to [T, heads * D]. */
static void swap_heads(float *out, const float *x, i64 first, i64 second, i64 d)
{
    for (i64 i = 0; i < first; i++)
        for (i64 j = 0; j < second; j++)
            memcpy(out + (j * first + i) * d, x + (i * second + j) * d, (size_t)d * 4);
}

static struct matrix turned(struct golden *g, const char *name, bool inverse)
{
    const i64 *shape = golden_view(g, name)->shape, heads = shape[1], t = shape[2], d = shape[3];
    const float *axis = golden_load(g, "positions"), theta = *(float *)golden_load(g, "theta");
    struct matrix x = golden_new(g, DTYPE_F32, t, heads * d), y = golden_new(g, DTYPE_F32, t, heads * d);
    float *positions = golden_alloc(g, t * 3 * 4);
    for (i64 i = 0; i < t * 3; i++)
        positions[i] = axis[i / 3];
    swap_heads(x.data, golden_load(g, name), heads, t, d);
    g->device.ops->rope(&g->device, x, positions, heads, theta, d / 4, inverse);
    swap_heads(y.data, x.data, t, heads, d);
    return y;
}

/* HF's angles are f32: at position 131071 they are 3e-4 from the exact ones, which ours are. */
static void rope_is_exact_and_near_that_of_transformers(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/ops/rope.safetensors");
    for (int i = 0; i < 2; i++) {
        g.prefix = i ? "1." : "0.";
        golden_check(&g, "y_f64", turned(&g, "x", false), 1e-6, 1e-6);
        golden_check(&g, "y", turned(&g, "x", false), 0, i ? 1e-4 : 3e-2);
        golden_check(&g, "dx", turned(&g, "dy", true), 0, i ? 1e-4 : 3e-2);
    }
    golden_close(&g);
}

static void swiglu_is_that_of_torch(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/ops/swiglu.safetensors");
    g.prefix = "0.";
    struct matrix gate = golden_matrix(&g, "gate"), up = golden_matrix(&g, "up");
    i64 n = gate.columns;
    struct matrix both = golden_new(&g, DTYPE_F32, gate.rows, 2 * n), y = golden_new(&g, DTYPE_F32, gate.rows, n);
    struct matrix d = golden_new(&g, DTYPE_F32, gate.rows, 2 * n), half = golden_new(&g, DTYPE_F32, gate.rows, n);
    const struct kernels *ops = g.device.ops;
    ops->copy(&g.device, matrix_columns(both, 0, n), gate, 1, false);
    ops->copy(&g.device, matrix_columns(both, n, n), up, 1, false);
    ops->swiglu(&g.device, y, both);
    golden_check(&g, "y", y, 1e-5, 1e-7);
    ops->swiglu_backward(&g.device, d, NULL, golden_matrix(&g, "dy"), both);
    ops->copy(&g.device, half, matrix_columns(d, 0, n), 1, false);
    golden_check(&g, "dgate", half, 1e-5, 1e-6);
    ops->copy(&g.device, half, matrix_columns(d, n, n), 1, false);
    golden_check(&g, "dup", half, 1e-5, 1e-6);
    golden_close(&g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_case),
        cmocka_unit_test(on_the_cpu_they_are_plain_loops),
        cmocka_unit_test(at_each_level_they_are_plain_loops),
        cmocka_unit_test(behind_the_wall_they_are_plain_loops),
        cmocka_unit_test(what_is_wrong_is_found),
        cmocka_unit_test(meta_counts_them),
        cmocka_unit_test(rmsnorm_is_that_of_torch),
        cmocka_unit_test(rope_is_exact_and_near_that_of_transformers),
        cmocka_unit_test(swiglu_is_that_of_torch),
    };
    wanted = argv + 1;
    for (int i = 1; i < argc; i++)
        if (!case_find(argv[i])) {
            print_error("%s: no op of that name in WEFT_OPS (kernels/kernels.h)\n", argv[i]);
            return 2;
        }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
