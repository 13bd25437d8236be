/* Kernels on AMX tiles, emulated by tests/amx: all cases of their ops, and the instructions
 * themselves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "op_cases/op_cases.h"
#include "tests/amx/tiles.h"
#include "tests/test.h"

enum { ROWS = 16, PAIRS = 16, COLUMNS = 16, KEPT = 0x5a };

static u8 *configuration(int tile, int rows, int bytes)
{
    static u8 config[64];
    memset(config, 0, sizeof config);
    config[0] = 1;
    for (int i = 0; i < 8; i++) {
        config[16 + 2 * i] = (u8)(i == tile ? bytes : 64);
        config[48 + i] = (u8)(i == tile ? rows : 16);
    }
    return config;
}

/* ---- Instructions against plain loops ---- */

/* Flushes denormals to zero, on input and output. */
static float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float dot_product(const bf16 *a, const bf16 (*b)[2 * COLUMNS], int column)
{
    float sums[2] = {0};
    for (int k = 0; k < PAIRS; k++)
        for (int i = 0; i < 2; i++)
            sums[i] =
                flushed(fmaf(flushed(bf16_to_f32(a[2 * k + i])), flushed(bf16_to_f32(b[k][2 * column + i])), sums[i]));
    return flushed(sums[0] + sums[1]);
}

/* A number near 1, or, if tiny, small enough that products are denormal. */
static bf16 number(i64 a, i64 b, i64 c, bool tiny)
{
    return bf16_from_f32((float)ldexp(op_random(a, b, c), tiny ? -64 : 0));
}

static void bf16_tiles_are_multiplied(int rows, int columns, bool tiny)
{
    bf16 a[ROWS][2 * PAIRS], b[PAIRS][2 * COLUMNS];
    float sums[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < 2 * PAIRS; k++) {
            a[i][k] = number(i, k, 0, tiny);
            b[i][k] = number(i, k, 1, tiny);
            sums[i][k / 2] = tiny ? (float)ldexp(op_random(i, k, 2), -126) : (float)op_random(i, k, 2);
        }
    u8 *config = configuration(0, rows, 4 * columns);
    config[48 + 4] = (u8)rows;
    config[16 + 2 * 6] = (u8)(4 * columns);
    tiles_configure(config);
    float wanted[ROWS][COLUMNS], got[ROWS][COLUMNS];
    memcpy(wanted, sums, sizeof sums);
    memcpy(got, sums, sizeof sums);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            wanted[i][j] = flushed(flushed(sums[i][j]) + dot_product(a[i], b, j));
    tiles_load(0, sums, sizeof sums[0]);
    tiles_load(4, a, sizeof a[0]);
    tiles_load(6, b, sizeof b[0]);
    tiles_multiply_bf16(0, 4, 6);
    tiles_store(0, got, sizeof got[0]); /* writes nothing outside the configured tile */
    tiles_release();
    assert_memory_equal(got, wanted, sizeof got);
}

TEST(bf16_tiles_have_the_bits_of_the_manual)
{
    for (int tiny = 0; tiny < 2; tiny++) {
        bf16_tiles_are_multiplied(16, 16, tiny);
        bf16_tiles_are_multiplied(16, 1, tiny);
        bf16_tiles_are_multiplied(3, 5, tiny);
    }
}

TEST(int8_tiles_are_exact)
{
    signed char a[ROWS][64], b[16][64];
    i32 sums[ROWS][COLUMNS], wanted[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < 64; k++) {
            a[i][k] = (signed char)(k < 8 ? -128 : op_below(256, i, k) - 128);
            b[i][k] = (signed char)(i < 2 ? -128 : op_below(256, i, k + 64) - 128);
            sums[i][k / 4] = (i32)(op_below(1 << 30, i, k) - (1 << 29));
        }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            wanted[i][j] = sums[i][j];
            for (int k = 0; k < 64; k++)
                wanted[i][j] += a[i][k] * b[k / 4][4 * j + k % 4];
        }
    tiles_configure(configuration(0, 16, 64));
    tiles_load(1, sums, 64);
    tiles_load(5, a, 64);
    tiles_load(7, b, 64);
    tiles_multiply_bytes(1, 5, 7);
    tiles_store(1, sums, 64);
    tiles_release();
    assert_memory_equal(sums, wanted, sizeof sums);
}

/* ---- Errors that the CPU or a reviewer would reject ---- */

static char room[1024];

static void before_a_configuration(void)
{
    tiles_zero(0);
}
static void after_release(void)
{
    tiles_configure(configuration(0, 16, 64));
    tiles_release();
    tiles_load(0, room, 64);
}
static void by_two(void)
{
    tiles_configure(configuration(0, 16, 64));
    tiles_configure(configuration(0, 16, 64));
}
static void of_17_rows(void)
{
    tiles_configure(configuration(0, 17, 64));
}
static void of_68_bytes(void)
{
    tiles_configure(configuration(0, 16, 68));
}
static void of_no_rows(void)
{
    tiles_configure(configuration(3, 0, 0));
    tiles_store(3, room, 64);
}
static void of_other_rows(void)
{
    tiles_configure(configuration(4, 15, 64));
    tiles_multiply_bf16(0, 4, 6);
}
static void of_other_columns(void)
{
    tiles_configure(configuration(6, 16, 4));
    tiles_multiply_bf16(0, 4, 6);
}
static void of_another_depth(void)
{
    tiles_configure(configuration(4, 16, 60));
    tiles_multiply_bytes(0, 4, 6);
}
static void of_the_same_tile(void)
{
    tiles_configure(configuration(0, 16, 64));
    tiles_multiply_bf16(0, 4, 4);
}

static void over_each_other(void)
{
    tiles_configure(configuration(0, 16, 64));
    tiles_store(0, room, 4);
}

TEST(faults_are_panics)
{
    static void (*const wrong[])(void) = {
        before_a_configuration, after_release,    by_two,           of_17_rows,       of_68_bytes,    of_no_rows,
        of_other_rows,          of_other_columns, of_another_depth, of_the_same_tile, over_each_other};
    for (i64 i = 0; i < COUNT_OF(wrong); i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            setrlimit(RLIMIT_CORE, &(struct rlimit){0});
            signal(SIGABRT, SIG_DFL);
            if (!freopen("/dev/null", "w", stderr))
                _exit(1);
            wrong[i]();
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
            fail_msg("fault %lld was not found", (long long)i);
    }
}

/* ---- Kernels ---- */

static bool is_v4(const struct kernels *ops, const char *name)
{
    bool same = false;
#define OP(op, arguments, names, ...) same = strcmp(name, #op) == 0 ? ops->op == cpu_v4_kernels.op : same;
    WEFT_OPS(OP)
#undef OP
    return same;
}

TEST(ops_are_plain_loops_on_tiles)
{
    enum { OPS_ON_TILES = 11 };
    struct device device;
    const struct op_case *c;
    i64 count = 0;
    device_open_cpu(&device);
    assert_int_equal(device.isa, CPU_ISA_AMX);
    for (i64 i = 0; (c = case_at(i)) != NULL; i++)
        if (!is_v4(device.kernels, c->name)) {
            count++;
            if (case_check(c, &device, &(struct check_scope){.bf16 = true, .workers = true}) != 0)
                fail_msg("%s", error_text());
        }
    assert_int_equal(count, OPS_ON_TILES);
    device_close(&device);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
