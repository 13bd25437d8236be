/* The instructions of ptx.h and hopper.h and the barriers of blocks and warps: each one, in a small
 * kernel, matches plain loops, and the emulated GPU detects one that is missing or wrong. Also run
 * on a real GPU (test_instructions_gpu), to check that the emulated one behaves like it. */
#include "tests/gpu_child.h"
#include "kernels/cuda/hopper.h"
#include "kernels/round_fp8.h"

/* Small integers, so that sums are exact. */
static struct matrix whole_numbers(bf16 *values, i64 rows, i64 columns, i64 seed)
{
    for (i64 i = 0; i < rows * columns; i++)
        values[i] = bf16_from_f32((float)((i * 7 + seed + i / columns) % 9 - 4));
    return matrix_of(upload(values, rows * columns), DTYPE_BF16, rows, columns);
}

struct gemm_shape {
    i64 m, n, k;
    bool a_transposed, b_transposed; /* stored transposed: [k, m], [k, n] instead of [m, k], [n, k] */
};
/* Checks out [m, n] against a b. */
static void expect_gemm(const float *out, const bf16 *a, const bf16 *b, struct gemm_shape s)
{
    static float got[64 * 256];
    cuda_get(&gpu, got, out, s.m * s.n * 4);
    for (i64 i = 0; i < s.m; i++)
        for (i64 j = 0; j < s.n; j++) {
            float sum = 0;
            for (i64 k = 0; k < s.k; k++)
                sum += bf16_to_f32(a[s.a_transposed ? k * s.m + i : i * s.k + k]) *
                       bf16_to_f32(b[s.b_transposed ? k * s.n + j : j * s.k + k]);
            if (got[i * s.n + j] != sum)
                _exit(WRONG_RESULT);
        }
}

/* ---- Ampere: d [16, 16] of a [16, 16] and b^T [16, 16], by ldmatrix and mma ---- */
template <bool TRANSPOSED> __global__ void multiply_by_a_warp(float *out, const bf16 *a, const bf16 *b)
{
    grid_wait();
    struct rows {
        bf16 at[16][24]; /* padded; rows stay multiples of 16 bytes */
    };
    SHARED(rows, left, 1);
    SHARED(rows, right, 1);
    u32 of_a[4], of_b[4];
    float d[2][4] = {};
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) {
        left->at[i / 16][i % 16] = a[i];
        (TRANSPOSED ? right->at[i % 16][i / 16] : right->at[i / 16][i % 16]) = b[i];
    }
    __syncwarp();
    load_matrices(of_a, &left->at[lane % 16][lane / 16 * 8]);
    if (TRANSPOSED)
        load_matrices_transposed(of_b, &right->at[lane % 16][lane / 16 * 8]);
    else
        load_matrices(of_b, &right->at[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
    mma(d[0], of_a, of_b);
    mma(d[1], of_a, of_b + 2);
    for (int i = 0; i < 8; i++)
        out[(lane / 4 + i / 2 % 2 * 8) * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i / 4][i % 4];
}
template <bool TRANSPOSED> static void warp_gemm()
{
    static bf16 a[256], b[256];
    float *out = device_array<float>(256);
    struct matrix of_a = whole_numbers(a, 16, 16, 1), of_b = whole_numbers(b, 16, 16, 2);
    LAUNCH(&gpu, multiply_by_a_warp<TRANSPOSED>, 1, 32, 0, out, (const bf16 *)of_a.data, (const bf16 *)of_b.data);
    expect_gemm(out, a, b, {16, 16, 16, false, false});
}

/* ---- Hopper ---- */
static bool has_hopper()
{
    struct cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    return properties.major == 9;
}

/* Address of an element in a swizzled box. */
[[maybe_unused]] __device__ static bf16 *in_box(bf16 *box, int row, int column)
{
    return box + row * TILE_COLUMNS + (column ^ row % 8 * 8);
}

/* ---- A box of an array of three dimensions, that juts out on each side ---- */
enum { BOX_ROWS = 4, BOX_OUTER = 2, BOX_SIZE = TILE_COLUMNS * BOX_ROWS * BOX_OUTER };
enum { WAITED_FOR_NOTHING = 1, NO_BARRIER, NO_FENCE_OF_BARRIER };

template <int BUG>
__global__ void load_a_box(float *out, const __grid_constant__ tile_map map, int column, int row, int outer)
{
    grid_wait();
#ifdef WEFT_HOPPER
    DYNAMIC_SHARED(bf16, box);
    SHARED(u64, full, 1);
    if (threadIdx.x == 0 && BUG != NO_BARRIER) {
        mbarrier_init(full, 1);
        if (BUG != NO_FENCE_OF_BARRIER)
            fence_proxy_async();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expecting(full, BOX_SIZE * 2);
        tile_load(box, &map, full, column, row, outer);
    }
    if (BUG != WAITED_FOR_NOTHING)
        mbarrier_wait(full, 0);
    for (int i = threadIdx.x; i < BOX_SIZE; i += 32)
        out[i] = to_f32(*in_box(box, i / TILE_COLUMNS, i % TILE_COLUMNS));
#endif
}

template <int BUG> static void boxes_of_the_copy_engine()
{
    enum { COLUMNS_ = 72, ROWS = 5, OUTER = 2 };
    static bf16 values[COLUMNS_ * ROWS * OUTER];
    static const int places[][3] = {{0, 0, 0}, {8, 1, -1}, {16, 2, 1}, {-3, -2, 0}};
    static float got[BOX_SIZE];
    if (!has_hopper())
        return;
    struct matrix m = whole_numbers(values, OUTER * ROWS, COLUMNS_, 3);
    tile_map map = tile_map_of({m.data, {COLUMNS_, ROWS, OUTER}, {COLUMNS_, ROWS * COLUMNS_}, {BOX_ROWS, BOX_OUTER}});
    float *out = device_array<float>(BOX_SIZE);
    for (const int(&at)[3] : places) {
        LAUNCH(&gpu, load_a_box<BUG>, 1, 32, BOX_SIZE * 2, out, map, at[0], at[1], at[2]);
        cuda_get(&gpu, got, out, sizeof got);
        for (int i = 0; i < BOX_SIZE; i++) {
            int c = at[0] + i % TILE_COLUMNS, r = at[1] + i / TILE_COLUMNS % BOX_ROWS;
            int o = at[2] + i / TILE_COLUMNS / BOX_ROWS;
            bool inside = c >= 0 && c < COLUMNS_ && r >= 0 && r < ROWS && o >= 0 && o < OUTER;
            if (got[i] != (inside ? bf16_to_f32(values[(o * ROWS + r) * COLUMNS_ + c]) : 0))
                _exit(WRONG_RESULT);
        }
    }
}

/* Stores two boxes of 16 rows, one after the other, from the same shared memory; the second reaches
 * past the array. */
enum { STORED_ROWS = 16, NO_FENCE_OF_STORE = 1, OVERWRITTEN, NOT_READ_AT_THE_END };
template <int BUG> __global__ void store_boxes(const __grid_constant__ tile_map map)
{
    grid_wait();
#ifdef WEFT_HOPPER
    DYNAMIC_SHARED(bf16, box);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = threadIdx.x; i < STORED_ROWS * TILE_COLUMNS; i += 32)
            *in_box(box, i / TILE_COLUMNS, i % TILE_COLUMNS) = from_f32<bf16>((float)(i % 100 + turn));
        if (BUG != NO_FENCE_OF_STORE)
            fence_proxy_async();
        __syncwarp();
        if (threadIdx.x == 0) {
            tile_store(&map, box, turn * TILE_COLUMNS, 0, 0);
            tile_stores_commit();
            if (BUG != OVERWRITTEN && (BUG != NOT_READ_AT_THE_END || turn == 0))
                tile_stores_wait_read<0>();
        }
        __syncwarp();
    }
    if (threadIdx.x == 0 && BUG == OVERWRITTEN)
        tile_stores_wait_read<0>();
#endif
}

template <int BUG> static void boxes_are_stored()
{
    enum { COLUMNS_ = 104, STRIDE = 112 };
    static bf16 values[STORED_ROWS * STRIDE];
    if (!has_hopper())
        return;
    for (i64 i = 0; i < COUNT_OF(values); i++)
        values[i] = bf16_from_f32(-1);
    struct matrix m = matrix_of(upload(values, COUNT_OF(values)), DTYPE_BF16, STORED_ROWS, COLUMNS_);
    m.stride = STRIDE;
    LAUNCH(&gpu, store_boxes<BUG>, 1, 32, STORED_ROWS * TILE_COLUMNS * 2, tile_map_of(m, 1, STORED_ROWS));
    cuda_get(&gpu, values, m.data, sizeof values);
    for (int i = 0; i < STORED_ROWS * STRIDE; i++) {
        int row = i / STRIDE, column = i % STRIDE, turn = column / TILE_COLUMNS;
        float stored = (float)((row * TILE_COLUMNS + column % TILE_COLUMNS) % 100 + turn);
        if (bf16_to_f32(values[i]) != (column < COLUMNS_ ? stored : -1))
            _exit(WRONG_RESULT);
    }
}

/* ---- Products of a warpgroup: d [64, N], a and b in boxes, K in steps of one ---- */
enum { M = 64, K = 128, STEPS = K / TILE_COLUMNS };
enum { LOADED_WITHOUT_WAIT = 1, PRODUCT_WITHOUT_WAIT, NO_FENCE_OF_PRODUCT, OTHER_LAYOUT };
template <int N> struct tiles {
    bf16 a[M * TILE_COLUMNS], b[N * TILE_COLUMNS];
};
enum { COLUMN_BOX = TILE_COLUMNS * TILE_COLUMNS }; /* elements of a box of columns: 64 along k */

template <enum tile_layout lies>
__device__ static void load_operand(bf16 *to, const tile_map *map, int count, u64 *full, int k)
{
#ifdef WEFT_HOPPER
    if (lies == BY_ROWS)
        tile_load(to, map, full, k, 0, 0);
    for (int i = 0; lies == BY_COLUMNS && i < count / TILE_COLUMNS; i++)
        tile_load(to + i * COLUMN_BOX, map, full, i * TILE_COLUMNS, k, 0);
#endif
}

template <int HALF> __device__ static void store_accumulators(float *out, const float (&d)[HALF])
{
    for (int i = 0; i < HALF; i++) {
        int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
        out[row * 2 * HALF + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = d[i];
    }
}

template <int BUG, enum tile_layout layout_a, enum tile_layout layout_b, int N>
__global__ void multiply(float *out, const __grid_constant__ tile_map a, const __grid_constant__ tile_map b)
{
    grid_wait();
#ifdef WEFT_HOPPER
    DYNAMIC_SHARED(tiles<N>, tile);
    SHARED(u64, full, 1);
    float d[N / 2];
    u64 of_a = tile_descriptor(tile->a, COLUMN_BOX * 2), of_b = tile_descriptor(tile->b, COLUMN_BOX * 2);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_proxy_async();
    }
    __syncthreads();
    for (int step = 0; step < STEPS; step++) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expecting(full, sizeof(tiles<N>));
            load_operand<layout_a>(tile->a, &a, M, full, step * TILE_COLUMNS);
            load_operand<layout_b>(tile->b, &b, N, full, step * TILE_COLUMNS);
        }
        if (BUG != LOADED_WITHOUT_WAIT || step == 0)
            mbarrier_wait(full, step % 2);
        keep_in_place(d);
        if (BUG != NO_FENCE_OF_PRODUCT)
            warpgroup_fence();
#pragma unroll
        for (int k = 0; k < TILE_COLUMNS; k += 16)
            warpgroup_mma<layout_a, BUG == OTHER_LAYOUT ? BY_ROWS : layout_b>(
                d, further<layout_a>(of_a, k), further < BUG == OTHER_LAYOUT ? BY_ROWS : layout_b > (of_b, k),
                step || k);
        warpgroup_commit();
        if (BUG != PRODUCT_WITHOUT_WAIT || step + 1 == STEPS)
            warpgroup_wait<0>();
        keep_in_place(d);
        __syncthreads();
    }
    store_accumulators(out, d);
#endif
}

/* Operand stored as [rows, K], or transposed as [K, rows]. */
static struct matrix operand_of(bf16 *values, i64 rows, bool transposed, i64 seed)
{
    return transposed ? whole_numbers(values, K, rows, seed) : whole_numbers(values, rows, K, seed);
}

template <int BUG, enum tile_layout layout_a, enum tile_layout layout_b, int N> static void warpgroup_gemm()
{
    static bf16 a[M * K], b[N * K];
    if (!has_hopper())
        return;
    float *out = device_array<float>(M * N);
    tile_map of_a = tile_map_of(operand_of(a, M, layout_a == BY_COLUMNS, 1), 1, 64);
    tile_map of_b = tile_map_of(operand_of(b, N, layout_b == BY_COLUMNS, 2), 1, layout_b == BY_ROWS ? N : 64);
    CUDA_CHECK(cudaFuncSetAttribute((multiply<BUG, layout_a, layout_b, N>), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)sizeof(tiles<N>)));
    LAUNCH(&gpu, (multiply<BUG, layout_a, layout_b, N>), 1, 128, sizeof(tiles<N>), out, of_a, of_b);
    expect_gemm(out, a, b, {M, N, K, layout_a == BY_COLUMNS, layout_b == BY_COLUMNS});
}

/* A product that must overwrite an accumulator with old values. */
template <int N>
__global__ void multiply_anew(float *out, const __grid_constant__ tile_map a, const __grid_constant__ tile_map b)
{
    grid_wait();
#ifdef WEFT_HOPPER
    typedef bf16 box[1][64 * TILE_COLUMNS];
    DYNAMIC_SHARED(tiles<N>, tile);
    SHARED(u64, full, 1);
    float d[N / 2];
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_proxy_async();
        mbarrier_arrive_expecting(full, sizeof(tiles<N>));
        tile_load(tile->a, &a, full, 0, 0, 0);
        tile_load(tile->b, &b, full, 0, 0, 0);
    }
    __syncthreads();
    for (int i = 0; i < N / 2; i++)
        d[i] = (float)threadIdx.x;
    mbarrier_wait(full, 0);
    warpgroup_fence();
    multiply_rows<TILE_COLUMNS>(d, *(const box *)tile->a, *(const box *)tile->b);
    warpgroup_commit();
    warpgroup_wait<0>();
    keep_in_place(d);
    store_accumulators(out, d);
#endif
}
template <int N> static void overwriting_gemm()
{
    static bf16 a[M * TILE_COLUMNS], b[N * TILE_COLUMNS];
    if (!has_hopper())
        return;
    float *out = device_array<float>(M * N);
    tile_map of_a = tile_map_of(whole_numbers(a, M, TILE_COLUMNS, 1), 1, M);
    tile_map of_b = tile_map_of(whole_numbers(b, N, TILE_COLUMNS, 2), 1, N);
    LAUNCH(&gpu, multiply_anew<N>, 1, 128, sizeof(tiles<N>), out, of_a, of_b);
    expect_gemm(out, a, b, {M, N, TILE_COLUMNS, false, false});
}

/* Products with a in registers; threads write b to its box. */
enum { NO_FENCE_OF_OPERAND = 1 };
template <int BUG, int N> __global__ void multiply_registers(float *out, const bf16 *a, const bf16 *b)
{
    grid_wait();
#ifdef WEFT_HOPPER
    DYNAMIC_SHARED(bf16, tile);
    float d[N / 2];
    u32 of_a[4];
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = threadIdx.x; i < 16 * N; i += 128)
        *in_box(tile + i % N / TILE_COLUMNS * COLUMN_BOX, i / N, i % TILE_COLUMNS) = b[i];
    if (BUG != NO_FENCE_OF_OPERAND)
        fence_proxy_async();
    __syncthreads();
    for (int i = 0; i < 4; i++)
        of_a[i] = *(const u32 *)&a[(row + i % 2 * 8) * 16 + column + i / 2 * 8];
    warpgroup_fence();
    warpgroup_mma<BY_COLUMNS>(d, of_a, tile_descriptor(tile, COLUMN_BOX * 2), false);
    warpgroup_commit();
    warpgroup_wait<0>();
    keep_in_place(d);
    store_accumulators(out, d);
#endif
}

template <int BUG, int N> static void register_gemm()
{
    static bf16 a[M * 16], b[16 * N];
    if (!has_hopper())
        return;
    float *out = device_array<float>(M * N);
    struct matrix of_a = whole_numbers(a, M, 16, 1), of_b = whole_numbers(b, 16, N, 2);
    LAUNCH(&gpu, (multiply_registers<BUG, N>), 1, 128, N / TILE_COLUMNS * COLUMN_BOX * 2, out, (const bf16 *)of_a.data,
           (const bf16 *)of_b.data);
    expect_gemm(out, a, b, {M, N, 16, false, true});
}

/* ---- Products in 8 bits: d [64, 128] of boxes that jut out along k ---- */
enum { CODES_N = 128, CODES_K = 200, CODES_STRIDE = 208, CODES_STEPS = 2 };
enum { OTHER_FORMAT = 1, HALF_AS_FAR, NOT_FIRST };
struct code_tiles {
    u8 a[M][TILE_ROW_BYTES], b[CODES_N][TILE_ROW_BYTES];
};

template <int BUG, enum fp8 format>
__global__ void multiply_codes(float *out, const __grid_constant__ tile_map a, const __grid_constant__ tile_map b)
{
    grid_wait();
#ifdef WEFT_HOPPER
    constexpr enum fp8 other = format == FP8_E4M3 ? FP8_E5M2 : FP8_E4M3;
    DYNAMIC_SHARED(code_tiles, tile);
    SHARED(u64, full, 1);
    float d[CODES_N / 2], before[CODES_N / 2];
    u64 of_a = tile_descriptor(tile->a), of_b = tile_descriptor(tile->b);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_proxy_async();
    }
    __syncthreads();
    for (int i = 0; i < CODES_N / 2; i++)
        before[i] = 0, d[i] = (float)threadIdx.x;
    for (int step = 0; step < CODES_STEPS; step++) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expecting(full, sizeof(code_tiles));
            tile_load(tile->a, &a, full, step * TILE_ROW_BYTES, 0, 0);
            tile_load(tile->b, &b, full, step * TILE_ROW_BYTES, 0, 0);
        }
        mbarrier_wait(full, step % 2);
        keep_in_place(d);
        warpgroup_fence();
        warpgroup_mma_fp8<BUG == OTHER_FORMAT ? other : format, BUG != NOT_FIRST>(d, of_a, of_b);
#pragma unroll
        for (int k = 32; k < TILE_ROW_BYTES; k += 32)
            warpgroup_mma_fp8<format, false>(d, fp8_further(of_a, k),
                                             fp8_further(of_b, BUG == HALF_AS_FAR ? k / 2 : k));
        warpgroup_commit();
        warpgroup_wait<0>();
        keep_in_place(d);
        for (int i = 0; i < CODES_N / 2; i++)
            before[i] += d[i];
        __syncthreads();
    }
    store_accumulators(out, before);
#endif
}

/* Value of an FP8 code (OCP OFP8). */
static float number_of_code(int code, enum fp8 format)
{
    int bits = format == FP8_E4M3 ? 3 : 2, bias = format == FP8_E4M3 ? 7 : 15;
    int exponent = (code & 0x7f) >> bits, mantissa = code & ((1 << bits) - 1);
    float size = exponent ? ldexpf((float)((1 << bits) + mantissa), exponent - bias - bits)
                          : ldexpf((float)mantissa, 1 - bias - bits);
    return code & 0x80 ? -size : size;
}
static u8 small_code(i64 number, enum fp8 format) /* -4 .. 4 */
{
    static const u8 sizes[2][5] = {{0, 0x38, 0x40, 0x44, 0x48}, {0, 0x3c, 0x40, 0x42, 0x44}};
    return (u8)(sizes[format][number < 0 ? -number : number] | (number < 0 ? 0x80 : 0));
}

template <int BUG, enum fp8 format> static void run_codes(const u8 *a, const u8 *b)
{
    static float got[M * CODES_N];
    float *out = device_array<float>(M * CODES_N);
    const u8 *of_a = upload(a, M * CODES_STRIDE), *of_b = upload(b, CODES_N * CODES_STRIDE);
    tile_map map_a = tile_map_of({of_a, {CODES_K, M, 1}, {CODES_STRIDE, M * CODES_STRIDE}, {M, 1}, true});
    tile_map map_b =
        tile_map_of({of_b, {CODES_K, CODES_N, 1}, {CODES_STRIDE, CODES_N * CODES_STRIDE}, {CODES_N, 1}, true});
    LAUNCH(&gpu, (multiply_codes<BUG, format>), 1, 128, sizeof(code_tiles), out, map_a, map_b);
    cuda_get(&gpu, got, out, sizeof got);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < CODES_N; j++) {
            float sum = 0;
            for (int k = 0; k < CODES_K; k++)
                sum +=
                    number_of_code(a[i * CODES_STRIDE + k], format) * number_of_code(b[j * CODES_STRIDE + k], FP8_E4M3);
            if (got[i * CODES_N + j] != sum)
                _exit(WRONG_RESULT);
        }
}

/* Small integers first; then each finite code of a, and of b, alone. */
template <int BUG, enum fp8 format> static void fp8_wgmma()
{
    static u8 a[M * CODES_STRIDE], b[CODES_N * CODES_STRIDE];
    if (!has_hopper())
        return;
    for (i64 i = 0; i < COUNT_OF(a); i++)
        a[i] = small_code((i * 7 + i / CODES_STRIDE) % 9 - 4, format);
    for (i64 i = 0; i < COUNT_OF(b); i++)
        b[i] = small_code((i * 5 + i / CODES_STRIDE) % 9 - 4, FP8_E4M3);
    run_codes<BUG, format>(a, b);
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    for (int i = 0; i < 256; i++) {
        bool finite = format == FP8_E4M3 ? (i & 0x7f) != 0x7f : (i & 0x7c) != 0x7c;
        a[i / 4 * CODES_STRIDE + i % 4 * 33] = finite ? (u8)i : 0;
    }
    for (int k = 0; k < 4; k++)
        b[k * CODES_STRIDE + k * 33] = small_code(1, FP8_E4M3);
    run_codes<BUG, format>(a, b);
    memset(a, 0, sizeof a);
    a[0] = small_code(1, format);
    for (int j = 0; j < CODES_N; j++)
        b[j * CODES_STRIDE] = j == 0x7f ? 0 : (u8)j;
    run_codes<BUG, format>(a, b);
}

/* The conversions of round_fp8.h match the list of codes, both ways. */
static void codes_are_numbers()
{
    for (int format = 0; format < 2; format++)
        for (int code = 0; code < 256; code++) {
            if (format == FP8_E4M3 ? (code & 0x7f) == 0x7f : (code & 0x7c) == 0x7c)
                continue;
            float number = number_of_code(code, (enum fp8)format);
            if (fp8_number((u8)code, (enum fp8)format) != number || fp8_code(number, (enum fp8)format) != code)
                _exit(WRONG_RESULT);
        }
}

/* ---- Registers from one warpgroup to two others ---- */
enum { NOBODY_GIVES = 1, ONE_WARP_TAKES };
template <int BUG> __global__ void __launch_bounds__(384, 1) hand_over_registers(float *out)
{
    grid_wait();
#ifdef WEFT_HOPPER
    if (threadIdx.x / WARPGROUP_THREADS == 2) {
        if (BUG != NOBODY_GIVES)
            registers_give<40>();
    } else if (BUG != ONE_WARP_TAKES || threadIdx.x < 32) {
        registers_take<232>();
    }
    out[threadIdx.x] = (float)threadIdx.x;
#endif
}
template <int BUG> static void registers_change_hands()
{
    if (!has_hopper())
        return;
    float *out = device_array<float>(384);
    LAUNCH(&gpu, hand_over_registers<BUG>, 1, 384, 0, out);
    expect_line(out, 384, 0, 1);
}

/* ---- Small things, each into a row of `out` of 32 ---- */
__global__ void small_things(float *out)
{
    grid_wait();
    int lane = threadIdx.x;
    SHARED(int, counter, 1);
    float rows[] = {
        __shfl_up_sync(~0u, (float)lane, 1) + (lane == 0), /* 1, 0, 1, 2, ... */
        __shfl_down_sync(~0u, (float)lane, 1),             /* 1, 2, ..., 31, 31 */
        __shfl_sync(~0u, (float)lane, lane / 8, 8),        /* lane / 8 within its group of 8 */
        (float)__popc(__ballot_sync(~0u, lane % 3 == 0)),
        (float)__all_sync(~0u, lane < 31),
        (float)__any_sync(~0u, lane == 31),
        (float)__syncthreads_count(lane < 7),
        (float)__syncthreads_or(lane == 5),
        (float)__syncthreads_and(lane == 5),
    };
    if (lane == 0)
        counter[0] = 0;
    __syncthreads();
    atomicAdd(counter, lane);
    __syncthreads();
    for (int i = 0; i < 9; i++)
        out[i * 32 + lane] = rows[i];
    out[9 * 32 + lane] = (float)counter[0];
    out[10 * 32 + lane] = block_max((float)(lane * 5 % 32));
    out[11 * 32 + lane] = (float)block_sum(0.1 * lane);
}
static void meetings_mean_what_they_say()
{
    float *out = device_array<float>(12 * 32), got[12 * 32];
    LAUNCH(&gpu, small_things, 1, 32, 0, out);
    cuda_get(&gpu, got, out, sizeof got);
    for (int lane = 0; lane < 32; lane++) {
        float wanted[12] = {(float)(lane == 0 ? 1 : lane - 1),
                            (float)(lane == 31 ? 31 : lane + 1),
                            (float)(lane / 8 * 9),
                            11,
                            0,
                            1,
                            7,
                            1,
                            0,
                            496,
                            31,
                            49.6f};
        for (int i = 0; i < 12; i++)
            if (got[i * 32 + lane] != wanted[i])
                _exit(WRONG_RESULT);
    }
}

__global__ void shift(float *data)
{
    grid_wait();
    float next = threadIdx.x + 1 < blockDim.x ? data[threadIdx.x + 1] : (float)blockDim.x;
    __syncthreads();
    data[threadIdx.x] = next;
}
static void graphs_run_again()
{
    cudaStream_t stream = cuda_queue_of(&gpu);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *data = counting(THREADS);
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    LAUNCH(&gpu, shift, 1, THREADS, 0, data);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    expect_line(data, THREADS, 0, 1);
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    expect_line(data, THREADS, 1, 1);
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    expect_line(data, THREADS - 1, 2, 1);
    CUDA_CHECK(cudaGraphExecDestroy(exec));
}

/* ---- Overlapping launches: each reads late writes of other blocks of the previous one ---- */
enum { GRID = 64, LAUNCHES = 20, TURNS = 64 };
__global__ void add_slowly(float *out, const float *in)
{
    const volatile float *from = in + (blockIdx.x + GRID / 2) % GRID * 32 + threadIdx.x;
    float value = 0;
    prefetch(in);
    grid_wait();
    for (int i = 0; i < (int)(blockIdx.x % 4) * TURNS + 1; i++)
        value = *from;
    out[blockIdx.x * 32 + threadIdx.x] = value + 1;
}
static void launch_a_line(float *data, float *other)
{
    for (int i = 0; i < LAUNCHES; i++)
        LAUNCH(&gpu, add_slowly, GRID, 32, 0, i % 2 ? data : other, (const float *)(i % 2 ? other : data));
}
static void launches_overlap()
{
    float zeros[GRID * 32] = {}, *data = upload(zeros, GRID * 32), *other = device_array<float>(GRID * 32);
    cudaStream_t stream = cuda_queue_of(&gpu);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    launch_a_line(data, other);
    expect_line(data, GRID * 32, LAUNCHES, 0);
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch_a_line(data, other);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
        CUDA_CHECK(cudaGraphLaunch(exec, stream));
    expect_line(data, GRID * 32, 4 * LAUNCHES, 0);
    CUDA_CHECK(cudaGraphExecDestroy(exec));
}

#if defined(WEFT_EMULATED) && !defined(__SANITIZE_THREAD__)
TEST(left_out_they_are_missed)
{
#define PLANTED(bug, name, words)                                                                                      \
    {                                                                                                                  \
#bug, name < bug>, name < 0>, words                                                                            \
    }
#define PRODUCT(bug, words)                                                                                            \
    {                                                                                                                  \
#bug, warpgroup_gemm < bug, BY_ROWS, BY_COLUMNS, 128>, warpgroup_gemm < 0, BY_ROWS, BY_COLUMNS, 128>, words    \
    }
    static const struct planted_bug planted[] = {
        PLANTED(WAITED_FOR_NOTHING, boxes_of_the_copy_engine, NULL),
        PLANTED(NO_BARRIER, boxes_of_the_copy_engine, "an mbarrier that nobody has initialised"),
        PLANTED(NO_FENCE_OF_BARRIER, boxes_of_the_copy_engine, "a fence.proxy.async is missing"),
        PLANTED(NO_FENCE_OF_STORE, boxes_are_stored, NULL),
        PLANTED(OVERWRITTEN, boxes_are_stored, NULL),
        PLANTED(NOT_READ_AT_THE_END, boxes_are_stored, "ended before its boxes were read"),
        PRODUCT(LOADED_WITHOUT_WAIT, NULL),
        PRODUCT(PRODUCT_WITHOUT_WAIT, NULL),
        PRODUCT(OTHER_LAYOUT, NULL),
        PRODUCT(NO_FENCE_OF_PRODUCT, "that does not begin behind a wgmma.fence"),
        {"NO_FENCE_OF_OPERAND", register_gemm<NO_FENCE_OF_OPERAND, 64>, register_gemm<0, 64>, NULL},
        {"OTHER_FORMAT", fp8_wgmma<OTHER_FORMAT, FP8_E4M3>, fp8_wgmma<0, FP8_E4M3>, NULL},
        {"HALF_AS_FAR", fp8_wgmma<HALF_AS_FAR, FP8_E5M2>, fp8_wgmma<0, FP8_E5M2>, NULL},
        {"NOT_FIRST", fp8_wgmma<NOT_FIRST, FP8_E4M3>, fp8_wgmma<0, FP8_E4M3>, NULL},
        PLANTED(NOBODY_GIVES, registers_change_hands, "setmaxnreg: others must give registers back"),
        PLANTED(ONE_WARP_TAKES, registers_change_hands, "wait at setmaxnreg"),
    };
    are_caught(planted, COUNT_OF(planted));
}
#endif

/* ---- Named barriers: one warp hands its numbers to the other and goes on ---- */
__global__ void pass_on(float *out)
{
    grid_wait();
    SHARED(float, all, 32);
    if (threadIdx.x < 32) {
        all[threadIdx.x] = (float)threadIdx.x;
        __threadfence_block();
        barrier_arrive_only(1, 64);
    } else {
        barrier_sync(1, 64);
        out[threadIdx.x - 32] = all[63 - threadIdx.x];
    }
}
static void named_barriers_hand_over()
{
    float *out = device_array<float>(32);
    LAUNCH(&gpu, pass_on, 1, 64, 0, out);
    expect_line(out, 32, 31, -1);
}

TEST(instructions_mean_what_they_say)
{
    passes_in_all_modes("a box of the copy engine", boxes_of_the_copy_engine<0>);
    passes_in_all_modes("boxes are stored", boxes_are_stored<0>);
    passes_in_all_modes("products of rows by rows, 64", warpgroup_gemm<0, BY_ROWS, BY_ROWS, 64>);
    passes_in_all_modes("products of rows by rows, 128", warpgroup_gemm<0, BY_ROWS, BY_ROWS, 128>);
    passes_in_all_modes("products of rows by rows, 256", warpgroup_gemm<0, BY_ROWS, BY_ROWS, 256>);
    passes_in_all_modes("products of rows by columns", warpgroup_gemm<0, BY_ROWS, BY_COLUMNS, 256>);
    passes_in_all_modes("products of columns by columns", warpgroup_gemm<0, BY_COLUMNS, BY_COLUMNS, 128>);
    passes_in_all_modes("products of columns by rows", warpgroup_gemm<0, BY_COLUMNS, BY_ROWS, 64>);
    passes_in_all_modes("products anew, 64", overwriting_gemm<64>);
    passes_in_all_modes("products anew, 128", overwriting_gemm<128>);
    passes_in_all_modes("products of registers, 64", register_gemm<0, 64>);
    passes_in_all_modes("products of registers, 128", register_gemm<0, 128>);
    passes_in_all_modes("products of e4m3", fp8_wgmma<0, FP8_E4M3>);
    passes_in_all_modes("products of e5m2", fp8_wgmma<0, FP8_E5M2>);
    passes_in_all_modes("codes", codes_are_numbers);
    passes_in_all_modes("registers change hands", registers_change_hands<0>);
    passes_in_all_modes("a warp's products", warp_gemm<false>);
    passes_in_all_modes("a warp's products, transposed", warp_gemm<true>);
    passes_in_all_modes("named barriers", named_barriers_hand_over);
    passes_in_all_modes("meetings", meetings_mean_what_they_say);
    passes_in_all_modes("graphs", graphs_run_again);
    passes_in_all_modes("launches that overlap", launches_overlap);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
