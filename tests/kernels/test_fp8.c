/* FP8: rounding of single numbers (against the casts of ml_dtypes, tests/golden/fp8) and the scales
 * that blocks share. */
#include <math.h>
#include <string.h>

#include "core/json.h"
#include "kernels/round_fp8.h"
#include "tests/device.h"

enum { FORMATS = 2, BLOCKS = 3 };
static struct device device, other; /* other: the CPU at ISA level AVX2 */

static u32 bits_of(float value)
{
    u32 bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static double uniform(u32 a, u32 b)
{
    return rng_uniform((struct rng_key){23, RNG_TEST}, a, b, 0, 0);
}

/* Runs the op on a dense host matrix, in place. */
static void round_on(struct device *d, void *x, enum dtype dtype, i64 rows, i64 columns, enum fp8 format,
                     enum fp8_blocks blocks, const struct groups *groups)
{
    i64 bytes = rows * columns * dtype_bytes(dtype);
    void *data = to_device(d, x, bytes);
    struct matrix m = matrix_of(data, dtype, rows, columns);
    d->ops->round_fp8(d, m, m, format, blocks, 1, groups);
    device_get(d, x, data, bytes);
    device_free(d, data, bytes);
}

/* ---- One number ---- */

enum { CODES_MOST = 128 };
struct fp8_cast {
    double value[CODES_MOST], first[CODES_MOST], past;
    i64 count;
};

static struct fp8_cast load_cast(enum fp8 format)
{
    struct fp8_cast cast;
    struct json *all = json_load(GOLDEN "/fp8/rounding.json");
    assert_non_null(all);
    const struct json *j = json_get(all, format == FP8_E4M3 ? "e4m3" : "e5m2");
    cast.count = json_count(json_get(j, "value"));
    assert_true(cast.count > 100 && cast.count <= CODES_MOST && json_count(json_get(j, "first")) == cast.count);
    json_numbers(cast.value, cast.count, json_get(j, "value"));
    json_numbers(cast.first, cast.count, json_get(j, "first"));
    cast.past = json_number(json_get(j, "past"), 0);
    json_free(all);
    return cast;
}

/* Value that bf16 `pattern` is cast to; saturates at the largest finite number. */
static float cast_of(const struct fp8_cast *cast, bf16 pattern)
{
    i64 code = 0;
    while (code + 1 < cast->count && cast->first[code + 1] <= (pattern & 0x7fff))
        code++;
    return (pattern & 0x8000 ? -1.0f : 1.0f) * (float)cast->value[code];
}

static void expect_bits(float got, float expected, bf16 pattern)
{
    if (bits_of(got) != bits_of(expected) && !(isnan(got) && isnan(expected)))
        fail_msg("bf16 %04x becomes %.9g, expected %.9g", pattern, (double)got, (double)expected);
}

TEST(numbers_become_what_casts_make_them)
{
    for (int format = 0; format < FORMATS; format++) {
        struct fp8_cast cast = load_cast((enum fp8)format);
        for (i64 pattern = 0; pattern < 1 << 16; pattern++) {
            float x = bf16_to_f32((bf16)pattern);
            float expected = (pattern & 0x7fff) < 0x7f80 ? cast_of(&cast, (bf16)pattern) : NAN;
            expect_bits(fp8_round(x, 1, 1, (enum fp8)format), expected, (bf16)pattern);
        }
    }
}

/* Rows whose maximum equals the format's maximum have scale 1. */
TEST(blocks_of_scale_1_are_cast)
{
    for (int format = 0; format < FORMATS; format++) {
        struct fp8_cast cast = load_cast((enum fp8)format);
        i64 largest = bf16_from_f32((float)cast.value[cast.count - 1]), rows = ceil_div(2 * (largest + 1), 127);
        bf16 *x = memory_alloc(rows * 128 * 2), *given = memory_alloc(rows * 128 * 2);
        for (i64 i = 0; i < rows * 128; i++) {
            i64 number = min_i64(i / 128 * 127 + i % 128 - 1, 2 * largest + 1);
            given[i] = i % 128 == 0 ? (bf16)largest : (bf16)(number / 2 | (number % 2 ? 0x8000 : 0));
        }
        memcpy(x, given, (size_t)rows * 128 * 2);
        round_on(&device, x, DTYPE_BF16, rows, 128, (enum fp8)format, FP8_ALONG_ROWS, NULL);
        for (i64 i = 0; i < rows * 128; i++)
            expect_bits(bf16_to_f32(x[i]), cast_of(&cast, given[i]), given[i]);
        memory_free(x);
        memory_free(given);
    }
}

/* ---- A block ---- */

enum { CASE_COLUMNS = 6 };
struct block_case {
    enum fp8 format;
    float given[CASE_COLUMNS], expected[CASE_COLUMNS];
};
static const struct block_case block_cases[] = {
    /* ties round to even, also among subnormals */
    {FP8_E4M3, {448, 17, 19, -17, 0x1p-10f, 0x1.8p-9f}, {448, 16, 20, -16, 0, 0x1p-8f}},
    {FP8_E5M2, {57344, 9, 11, -9, 0x1p-17f, 0x1.8p-16f}, {57344, 8, 12, -8, 0, 0x1p-15f}},
    /* a maximum just above the format's takes the next scale; one just above half of it does not */
    {FP8_E4M3, {450, 1, 0x1p-9f, 0x1.8p-8f, 3, 0}, {448, 1, 0, 0x1p-7f, 3, 0}},
    {FP8_E4M3, {226, 1, 0x1p-9f, 0x1.8p-8f, 3, 0}, {224, 1, 0x1p-9f, 0x1.8p-8f, 3, 0}},
    {FP8_E5M2, {57600, 1, 0x1p-16f, 0x1.8p-15f, 3, 0}, {57344, 1, 0, 0x1p-14f, 3, 0}},
    /* scales are at most 2^119 (2^112): the largest numbers are clipped, none becomes infinite */
    {FP8_E4M3,
     {0x1.fep127f, 0x1.cp127f, 0x1.8p127f, -0x1.fep127f, 1, 0},
     {0x1.cp127f, 0x1.cp127f, 0x1.8p127f, -0x1.cp127f, 0, 0}},
    {FP8_E5M2,
     {0x1.fep127f, 0x1.cp127f, 0x1.4p127f, -0x1.fep127f, 1, 0},
     {0x1.cp127f, 0x1.cp127f, 0x1.4p127f, -0x1.cp127f, 0, 0}},
    /* scales are at least 2^-117 (2^-110): no result is subnormal in bf16 */
    {FP8_E4M3,
     {0x1p-126f, 0x1.8p-126f, 0x1p-127f, 0x1.8p-127f, -0x1p-130f, 0},
     {0x1p-126f, 0x1p-125f, 0, 0x1p-126f, -0.0f, 0}},
    {FP8_E5M2,
     {0x1p-126f, 0x1.8p-126f, 0x1p-127f, 0x1.8p-127f, -0x1p-130f, 0},
     {0x1p-126f, 0x1p-125f, 0, 0x1p-126f, -0.0f, 0}},
    /* NaN and infinity become NaN and do not count for the scale; zeros keep their signs */
    {FP8_E4M3, {NAN, INFINITY, -INFINITY, 450, -0.0f, 0}, {NAN, NAN, NAN, 448, -0.0f, 0}},
    {FP8_E5M2, {NAN, INFINITY, -INFINITY, 9, -0.0f, 0}, {NAN, NAN, NAN, 8, -0.0f, 0}},
    {FP8_E4M3, {-0.0f, 0, INFINITY, -0.0f, 0, 0}, {-0.0f, 0, NAN, -0.0f, 0, 0}},
};

static void check_block(const struct block_case *c, enum fp8_blocks blocks)
{
    bf16 narrow[CASE_COLUMNS];
    float wide[CASE_COLUMNS];
    bool down = blocks == FP8_ALONG_COLUMNS;
    memcpy(wide, c->given, sizeof wide);
    for (int i = 0; i < CASE_COLUMNS; i++)
        narrow[i] = bf16_from_f32(c->given[i]);
    round_on(&device, wide, DTYPE_F32, down ? CASE_COLUMNS : 1, down ? 1 : CASE_COLUMNS, c->format, blocks, NULL);
    round_on(&device, narrow, DTYPE_BF16, down ? CASE_COLUMNS : 1, down ? 1 : CASE_COLUMNS, c->format, blocks, NULL);
    for (int i = 0; i < CASE_COLUMNS; i++) {
        expect_bits(wide[i], c->expected[i], bf16_from_f32(c->given[i]));
        expect_bits(bf16_to_f32(narrow[i]), c->expected[i], bf16_from_f32(c->given[i]));
    }
}

TEST(blocks_share_the_least_scale_that_holds_them)
{
    for (i64 i = 0; i < COUNT_OF(block_cases); i++)
        for (int blocks = 0; blocks < BLOCKS; blocks++)
            check_block(&block_cases[i], (enum fp8_blocks)blocks);
}

enum { ROWS = 300, COLUMNS = 260, COUNT = ROWS * COLUMNS };

/* Magnitudes are close within one part of the matrix and
 * anywhere in f32 between parts; some are NaN. */
static void draw_magnitudes(float *x)
{
    for (u32 i = 0; i < COUNT; i++) {
        u32 place = i / COLUMNS / 100 * 16 + i % COLUMNS / 90;
        double size = ldexp(1 + uniform(i, 1), (int)(uniform(place, 2) * 254 - 126 - uniform(i, 3) * 20));
        x[i] = (float)(uniform(i, 4) < 0.5 ? size : -size);
        if (uniform(i, 5) < 0.01)
            x[i] = uniform(i, 6) < 0.5 ? NAN : (float)INFINITY;
    }
}

/* Results are exact in bf16, neither subnormal nor infinite, idempotent under rounding, and bitwise
 * equal on every device. */
static void check_rounded(enum fp8 format, enum fp8_blocks blocks)
{
    static float given[COUNT], x[COUNT], y[COUNT];
    draw_magnitudes(given);
    memcpy(x, given, sizeof x);
    memcpy(y, given, sizeof y);
    round_on(&device, x, DTYPE_F32, ROWS, COLUMNS, format, blocks, NULL);
    round_on(&other, y, DTYPE_F32, ROWS, COLUMNS, format, blocks, NULL);
    assert_memory_equal(x, y, sizeof x);
    round_on(&device, y, DTYPE_F32, ROWS, COLUMNS, format, blocks, NULL);
    assert_memory_equal(x, y, sizeof x);
    for (i64 i = 0; i < COUNT; i++) {
        bool fits = (bits_of(x[i]) & 0xffff) == 0 && (x[i] == 0 || fabsf(x[i]) >= 0x1p-126f);
        if (isfinite(given[i]) ? !isfinite(x[i]) || !fits : !isnan(x[i]))
            fail_msg("%.9g becomes %.9g", (double)given[i], (double)x[i]);
    }
}

TEST(what_comes_out_is_bf16_and_stays)
{
    for (int format = 0; format < FORMATS; format++)
        for (int blocks = 0; blocks < BLOCKS; blocks++)
            check_rounded((enum fp8)format, (enum fp8_blocks)blocks);
}

/* Each expert's rows are rounded as without the other experts. */
TEST(groups_do_not_meet)
{
    enum { GROUPS = 3 };
    static const i32 offsets[GROUPS + 1] = {0, 48, 48, 288};
    static float x[COUNT], alone[COUNT];
    struct groups groups = {GROUPS, to_device(&device, offsets, sizeof offsets), NULL};
    for (int blocks = FP8_ALONG_ROWS; blocks <= FP8_ALONG_COLUMNS; blocks++) {
        draw_magnitudes(x);
        memcpy(alone, x, sizeof x);
        round_on(&device, x, DTYPE_F32, ROWS, COLUMNS, FP8_E4M3, (enum fp8_blocks)blocks, &groups);
        for (i64 g = 0; g < GROUPS; g++)
            round_on(&device, alone + offsets[g] * COLUMNS, DTYPE_F32, offsets[g + 1] - offsets[g], COLUMNS, FP8_E4M3,
                     (enum fp8_blocks)blocks, NULL);
        assert_memory_equal(x, alone, sizeof x);
    }
    device_free(&device, (void *)(uintptr_t)groups.offsets, sizeof offsets);
}

int main(void)
{
    test_device_open(&device);
    device_open_cpu(&other);
    device_use(&other, &cpu_v3_kernels);
    int failed = tests_run(NULL, NULL);
    device_close(&device);
    device_close(&other);
    return failed;
}
