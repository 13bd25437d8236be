/* Ops: every case of cases/, or the cases of the ops given as arguments, on the CPU, the guarded
 * device and the meta backend; norms, rope and swiglu against torch. */
#include "op_cases/op_cases.h"
#include "tests/golden.h"
#include "tests/sanitized.h"

enum { LEVELS = 3 };
#define NAME(name, arguments, names, ...) #name,
static const char *const op_names[] = {WEFT_OPS(NAME)};

static char **wanted; /* NULL-terminated names of ops; NULL: all */

static bool is_wanted(const struct op_case *c)
{
    bool named = !*wanted;
    for (char **name = wanted; *name; name++)
        named |= strcmp(*name, c->name) == 0;
    return named;
}

TEST(every_op_has_a_case)
{
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

/* ---- All devices against the same references ---- */

static bool is_same(const struct kernels *a, const struct kernels *b, const char *op)
{
#define SAME(name, arguments, names, ...)                                                                              \
    if (strcmp(op, #name) == 0)                                                                                        \
        return a->name == b->name;
    WEFT_OPS(SAME)
    return false;
}

/* Few shapes, for slow devices and the meta backend. Fast
 * devices are checked with 1, 2 and 4 workers. */
static const struct check_scope small_shapes = {.small_shapes = true};

static void check_case(const struct op_case *c, struct device *cpu, struct device *levels, struct device *guarded,
                       struct device *meta)
{
    struct check checks[3 + LEVELS];
    i64 count = 0;
    struct check_scope scope = {.workers = true, .small_shapes = is_sanitized(), .alternating = !is_nightly()};
    checks[count++] = (struct check){cpu, scope};
    checks[count++] = (struct check){guarded, small_shapes};
    checks[count++] = (struct check){meta, small_shapes};
    for (i64 i = 0; i < LEVELS; i++) /* only kernels that differ from the CPU's own level */
        if (levels[i].ops && !is_same(levels[i].kernels, cpu->kernels, c->name))
            checks[count++] = (struct check){&levels[i], small_shapes};
    if (case_check_each(c, checks, count) != 0)
        fail_msg("%s", error_text());
}

/* Runs each case on the CPU, on the guarded device (op arguments are device memory), at each lower
 * ISA level, and on the meta backend for its counts. */
TEST(on_each_device_they_are_plain_loops)
{
    static const char *const names[LEVELS] = {"v3", "v4", "pairs"};
    struct device cpu, guarded, meta, levels[LEVELS] = {{0}};
    const struct op_case *c;
    device_open_cpu(&cpu);
    device_open_guarded(&guarded);
    device_open_meta(&meta);
    for (i64 i = 0; !getenv("WEFT_CPU") && i < LEVELS; i++) {
        setenv("WEFT_CPU", names[i], 1);
        device_open_cpu(&levels[i]);
        unsetenv("WEFT_CPU");
    }
    for (i64 i = 0; (c = case_at(i)) != NULL; i++)
        if (is_wanted(c))
            check_case(c, &cpu, levels, &guarded, &meta);
    for (i64 i = 0; i < LEVELS; i++)
        if (levels[i].ops)
            device_close(&levels[i]);
    device_close(&meta);
    device_close(&guarded);
    device_close(&cpu);
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
        *(u8 *)out.data ^= (u8)(++calls & 1); /* a change far below the tolerance */
}

TEST(what_is_wrong_is_found)
{
    static const struct {
        void (*add)(struct device *device, struct matrix out, struct matrix a, struct matrix b);
        const char *message;
    } wrong[] = {{last_is_wrong, "add variant 0, F32, rows 1, columns 37, depth 0, gap 5, out: [0,36] is "},
                 {writes_behind_a_row, "gap 5, out: written behind row 0"},
                 {writes_an_input, "b: an input, written at [0,0]"},
                 {differs_in_time, "out: other bits again"}};
    struct device device;
    device_open_cpu(&device);
    broken = cpu_v3_kernels;
    device.ops = &broken;
    for (i64 i = 0; i < COUNT_OF(wrong); i++) {
        broken.add = wrong[i].add;
        assert_int_equal(case_check(case_find("add"), &device, &small_shapes), -1);
        if (!strstr(error_text(), wrong[i].message))
            fail_msg("expected \"%s\" in: %s", wrong[i].message, error_text());
    }
    device_close(&device);
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
    golden_check(g, "y_bf16", y, 0, 0); /* bitwise equal */
}

TEST(rmsnorm_is_that_of_torch)
{
    struct golden g;
    golden_open(&g, GOLDEN "/ops/rmsnorm.safetensors");
    for (int i = 0; i < 2; i++) {
        g.prefix = i ? "1." : "0.";
        check_golden_rmsnorm(&g);
    }
    golden_close(&g);
}

/* Swaps the first two axes: [1, heads, T, D] of the file to or from [T, heads * D]. */
static void swap_heads(float *out, const float *x, i64 first, i64 second, i64 d)
{
    for (i64 i = 0; i < first; i++)
        for (i64 j = 0; j < second; j++)
            memcpy(out + (j * first + i) * d, x + (i * second + j) * d, (size_t)d * 4);
}

static struct matrix rotated(struct golden *g, const char *name, bool inverse)
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

/* HF's angles are f32: at position 131071 they are off by 3e-4, while the op's are exact. */
TEST(rope_is_exact_and_near_that_of_transformers)
{
    struct golden g;
    golden_open(&g, GOLDEN "/ops/rope.safetensors");
    for (int i = 0; i < 2; i++) {
        g.prefix = i ? "1." : "0.";
        golden_check(&g, "y_f64", rotated(&g, "x", false), 1e-6, 1e-6);
        golden_check(&g, "y", rotated(&g, "x", false), 0, i ? 1e-4 : 3e-2);
        golden_check(&g, "dx", rotated(&g, "dy", true), 0, i ? 1e-4 : 3e-2);
    }
    golden_close(&g);
}

TEST(swiglu_is_that_of_torch)
{
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
    wanted = argv + 1;
    for (int i = 1; i < argc; i++)
        if (!case_find(argv[i])) {
            print_error("%s: no op of that name in WEFT_OPS (kernels/kernels.h)\n", argv[i]);
            return 2;
        }
    return tests_run(NULL, NULL);
}
