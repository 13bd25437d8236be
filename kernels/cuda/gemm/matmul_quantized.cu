/* Gemm with quantized weights (8 or 4 bits), bandwidth-bound. Weights are read once for up to
 * MOST_ROWS rows. A block owns OUTPUTS rows of w; its warps split K, and their partial sums are
 * added in warp order. The result of a row does not depend on the other rows.
 *
 * Codes are expanded in registers to bf16, which is exact for whole numbers up to 128, and
 * multiplied by tensor cores. An f32 activation is split into three bf16 terms, whose sum is exact.
 *
 * Bytes in flight: a lane has 8 loads of 16 bytes in flight, a block 32 KB (half of it for 4 bits
 * and many rows). At a latency of 600 ns, 3.35 TB/s need 2 MB in flight, i.e. 15 KB for each of 132
 * multiprocessors, and 4.8 TB/s need 22 KB. One block per multiprocessor suffices, and two fit.
 * Instructions: 3.35 TB/s are 15 bytes per clock (1.7 GHz) and multiprocessor. For 8 bits that is
 * about 25 instructions on the 64 integer lanes. For 4 bits, at nearly 4 instructions per number,
 * it is 110, so that 4-bit weights reach somewhat more than half of the memory's speed.
 *
 *     w: 16 rows   | unit: warp 0 | warp 1 | .. | warp 7 | warp 0 | ..     along K
 *                    a lane: rows lane / 4 and lane / 4 + 8, 16 neighbours of K
 *
 *     M  rows of a    Mr  8, or MOST_ROWS 64 at once      N  rows of w    Nr  OUTPUTS 16
 *     K  columns      a unit is 64 columns (4 bits: 128) of a warp; split K over WARPS 8 */
#include "kernels/cuda/ptx.h"
#include "kernels/quantized.h"

enum { WARPS = 8, THREADS = WARPS * WARP_THREADS, OUTPUTS = 16, COLUMNS_OF_MMA = 8 };
enum { MOST_TILES = 8, MOST_ROWS = MOST_TILES * COLUMNS_OF_MMA };
enum { RUN = 16, RUN_PAIRS = RUN / 2 }; /* neighbours of K per lane */

struct quantized_gemm {
    struct matrix out, a;
    struct quantized_weight w;
    struct groups groups;
    i64 blocks;  /* blocks of OUTPUTS rows per part */
    bool vector; /* 16-byte reads of a are allowed */
};

struct alignas(16) code_words {
    u32 at[4];
};

/* ---- Weights ----
 * A lane has rows lane / 4 and lane / 4 + 8 of w. It reads K in units: 64 columns of 8 bits, one
 * run per lane, or 128 columns of 4 bits, two runs, in the low and high halves of bytes. */

template <int BITS> struct unit {
    code_words codes[2];
    u16 factors[2]; /* 4 bits: one byte per run */
};
template <int BITS> __device__ constexpr int unit_columns(void)
{
    return BITS == 8 ? QUANTIZED_COLUMNS : 2 * QUANTIZED_COLUMNS;
}
/* Units that a lane has in flight; fewer where the sums of many rows fill the registers. */
template <int BITS, int TILES> __device__ constexpr int units_at_once(void)
{
    return BITS == 8 || TILES == 1 ? 4 : 2;
}

/* First column of run `run` of this lane, in the unit that begins at column k. */
template <int BITS> __device__ static i64 column_of(i64 k, int run)
{
    int t = threadIdx.x % 4;
    return BITS == 8 ? k + RUN * t : k + QUANTIZED_COLUMNS * (t / 2) + RUN * (t % 2) + 32 * run;
}

/* Loads a unit of this lane; `first` is the block's first row in the strip. */
template <int BITS>
__device__ static unit<BITS> load_unit(const struct quantized_weight &w, i64 strip, int first, i64 k)
{
    i64 steps = quantized_steps(w.columns), step = column_of<BITS>(k, 0) / QUANTIZED_COLUMNS;
    int t = threadIdx.x % 4, row = first + threadIdx.x % WARP_THREADS / 4;
    unit<BITS> out = {};
    for (int h = 0; h < 2 && step < steps; h++) {
        i64 at = (strip * steps + step) * QUANTIZED_ROWS + row + 8 * h;
        out.codes[h] = ((const code_words *)w.codes)[at * (BITS / 2) + (BITS == 8 ? t : t % 2)];
        if (BITS == 4)
            out.factors[h] = ((const u16 *)w.factors)[at];
    }
    return out;
}

/* Prefetches the codes of a block of outputs, while the previous launch still runs. */
template <int BITS> __device__ static void fetch_codes(const struct quantized_weight &w, i64 block)
{
    enum { ROW_BYTES = QUANTIZED_COLUMNS * BITS / 8, LINES = OUTPUTS * ROW_BYTES / CACHE_LINE };
    i64 steps = quantized_steps(w.columns), first = block * OUTPUTS;
    for (i64 i = threadIdx.x; i < steps * LINES; i += THREADS) {
        i64 row = (first / QUANTIZED_ROWS * steps + i / LINES) * QUANTIZED_ROWS + first % QUANTIZED_ROWS;
        prefetch((const char *)w.codes + row * ROW_BYTES + i % LINES * CACHE_LINE);
    }
}

/* Fills, for each factor, a table of the values of the 16 codes plus 128. All threads of the block
 * call it. */
__device__ static void fill_tables(code_words *tables)
{
    const signed char book[16] = QUANTIZED_CODEBOOK;
    for (int i = threadIdx.x; i < QUANTIZED_FACTOR_COUNT * 16; i += THREADS)
        ((u8 *)tables)[i] = (u8)(quantized_value(book[i % 16], i / 16) + 128);
    __syncthreads();
}

/* Looks up the four codes in the low half of `codes`. */
__device__ static u32 look_up(const code_words &table, u32 codes)
{
    u32 inside = codes & 0x7777, upper = (codes & 0x8888) >> 1;
    u32 low = __byte_perm(table.at[0], table.at[1], inside), high = __byte_perm(table.at[2], table.at[3], inside);
    return __byte_perm(low, high, upper | 0x3210);
}

/* The numbers of a run plus 128. */
template <int BITS> __device__ static code_words bytes_of(const unit<BITS> &w, int h, int run, const code_words *tables)
{
    code_words out;
    if (BITS == 8) {
        for (int i = 0; i < 4; i++)
            out.at[i] = w.codes[h].at[i] ^ 0x80808080u;
        return out;
    }
    code_words table = tables[w.factors[h] >> 8 * run & 255];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 codes = w.codes[h].at[i] >> 4 * run;
        u32 pairs = (codes & 0x0f0f0f0fu) | (codes >> 4 & 0xf0f0f0f0u); /* results in bytes 0 and 2 */
        out.at[i] = look_up(table, __byte_perm(pairs, 0, 0x4420));
    }
    return out;
}

/* Two bytes to a pair of bf16. A byte placed in the low mantissa bits of 2^23 gives 2^23 + byte;
 * subtracting 2^23 + 128 leaves the number, which is exact in the upper half of the float. */
__device__ static u32 pair_of_bytes(u32 bytes, int first)
{
    float low = __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7440 + first)) - 8388736.0f;
    float high = __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7441 + first)) - 8388736.0f;
    return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}

template <int BITS>
__device__ static void widen(u32 (&out)[2][RUN_PAIRS], const unit<BITS> &w, int run, const code_words *tables)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        code_words bytes = bytes_of(w, h, run, tables);
#pragma unroll
        for (int i = 0; i < RUN_PAIRS; i++)
            out[h][i] = pair_of_bytes(bytes.at[i / 2], 2 * (i % 2));
    }
}

/* ---- Activations: a run of a row as pairs of bf16, with zeros past its end ---- */

template <typename T> __device__ static elements<T, RUN> load_run(const struct quantized_gemm &p, const T *row, i64 k)
{
    elements<T, RUN> out = {};
    if (row && p.vector && k + RUN <= p.a.columns) {
#pragma unroll
        for (int i = 0; i < RUN * (int)sizeof(T) / 16; i++)
            ((code_words *)&out)[i] = ((const code_words *)(row + k))[i];
        return out;
    }
    for (int i = 0; row && i < RUN && k + i < p.a.columns; i++)
        out.at[i] = row[k + i];
    return out;
}

__device__ static void split(u32 (&out)[1][RUN_PAIRS], const elements<bf16, RUN> &x)
{
#pragma unroll
    for (int i = 0; i < RUN_PAIRS; i++)
        out[0][i] = (u32)x.at[2 * i] | (u32)x.at[2 * i + 1] << 16;
}

/* Splits f32 into three bf16: the upper 8 bits of the significand, the next 8, and the rest. */
__device__ static void split(u32 (&out)[3][RUN_PAIRS], elements<float, RUN> x)
{
#pragma unroll
    for (int term = 0; term < 3; term++)
#pragma unroll
        for (int i = 0; i < RUN; i += 2) {
            out[term][i / 2] = __byte_perm(__float_as_uint(x.at[i]), __float_as_uint(x.at[i + 1]), 0x7632);
            x.at[i] -= __uint_as_float(out[term][i / 2] << 16);
            x.at[i + 1] -= __uint_as_float(out[term][i / 2] & 0xffff0000u);
        }
}

/* ---- A block ---- */

/* d += a run of w times the rows from `first` on. w is the first operand of mma, rows of a are the
 * columns of the second. The order of K inside a run is free, so each mma takes four neighbours of
 * a lane. */
template <int TILES, typename T>
__device__ static void multiply_run(float (&d)[TILES][4], const u32 (&w)[2][RUN_PAIRS], const struct quantized_gemm &p,
                                    i64 first, i64 end, i64 k)
{
    enum { TERMS = sizeof(T) == 2 ? 1 : 3 };
    int g = threadIdx.x % WARP_THREADS / 4;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        i64 row = first + tile * COLUMNS_OF_MMA + g;
        if (row - g >= end)
            break;
        u32 x[TERMS][RUN_PAIRS];
        split(x, load_run<T>(p, row < end ? row_of<T>(p.a, row) : NULL, k));
#pragma unroll
        for (int j = 0; j < RUN_PAIRS; j += 2) {
            u32 a[4] = {w[0][j], w[1][j], w[0][j + 1], w[1][j + 1]};
#pragma unroll
            for (int term = TERMS - 1; term >= 0; term--)
                mma(d[tile], a, &x[term][j]);
        }
    }
}

/* Accumulates a warp's units of K: every WARPS-th one. */
template <int BITS, int TILES, typename T>
__device__ static void sum_units(float (&d)[TILES][4], const struct quantized_gemm &p, i64 strip, int row, i64 first,
                                 i64 end, const code_words *tables)
{
    constexpr int wide = unit_columns<BITS>(), AT_ONCE = units_at_once<BITS, TILES>();
    for (i64 k = threadIdx.x / WARP_THREADS * wide; k < p.w.columns; k += WARPS * wide * AT_ONCE) {
        unit<BITS> w[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            w[u] = load_unit<BITS>(p.w, strip, row, k + u * WARPS * wide);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            i64 at = k + u * WARPS * wide;
            if (at >= p.w.columns)
                break;
#pragma unroll
            for (int run = 0; run < 8 / BITS; run++) {
                u32 pairs[2][RUN_PAIRS];
                widen(pairs, w[u], run, tables);
                multiply_run<TILES, T>(d, pairs, p, first, end, column_of<BITS>(at, run));
            }
        }
    }
}

/* Adds the sums of all warps, scales them and stores the outputs of rows [first, end); `begin` is
 * the block's first row of w. */
template <int TILES>
__device__ static void join(float *sums, const float (&d)[TILES][4], const struct quantized_gemm &p, i64 begin,
                            const float *scale, i64 first, i64 end)
{
    enum { ROWS = TILES * COLUMNS_OF_MMA };
    int lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = tile * COLUMNS_OF_MMA + lane % 4 * 2 + i % 2, output = lane / 4 + i / 2 * 8;
            sums[(warp * ROWS + row) * OUTPUTS + output] = d[tile][i];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * OUTPUTS; i += THREADS) {
        i64 row = first + i / OUTPUTS, column = begin + i % OUTPUTS;
        if (row >= end || column >= p.out.columns)
            continue;
        float sum = 0;
        for (int from = 0; from < WARPS; from++)
            sum += sums[from * ROWS * OUTPUTS + i];
        sum *= scale[column];
        if (p.out.dtype == DTYPE_BF16)
            row_of<bf16>(p.out, row)[column] = from_f32<bf16>(sum);
        else
            row_of<float>(p.out, row)[column] = sum;
    }
    __syncthreads(); /* sums are reused next */
}

template <int BITS, int TILES, typename T>
static __global__ void __launch_bounds__(THREADS, 2) multiply(struct quantized_gemm p)
{
    if (!p.groups.offsets) /* the codes of groups depend on the previous launch */
        fetch_codes<BITS>(p.w, blockIdx.x % p.blocks);
    grid_wait();
    enum { ROWS = TILES * COLUMNS_OF_MMA };
    SHARED(code_words, tables, QUANTIZED_FACTOR_COUNT);
    DYNAMIC_SHARED(float, sums); /* [WARPS][ROWS][OUTPUTS] */
    i64 block = blockIdx.x % p.blocks, other = blockIdx.x / p.blocks, part = 0;
    i64 begin = other * ROWS, end = begin + ROWS < p.out.rows ? begin + ROWS : p.out.rows;
    if (p.groups.offsets) {
        begin = p.groups.offsets[other];
        end = p.groups.offsets[other + 1];
        part = p.groups.member ? p.groups.member[other] : other;
    }
    i64 strips = quantized_strips(p.w.rows), strip = part * strips + block * OUTPUTS / QUANTIZED_ROWS;
    if (BITS == 4 && begin < end)
        fill_tables(tables);
    for (i64 first = begin; first < end; first += ROWS) {
        float d[TILES][4] = {};
        sum_units<BITS, TILES, T>(d, p, strip, block * OUTPUTS % QUANTIZED_ROWS, first, end, tables);
        join<TILES>(sums, d, p, block * OUTPUTS, p.w.scale + part * strips * QUANTIZED_ROWS, first, end);
    }
}

template <int BITS, int TILES> static void launch(struct device *device, const struct quantized_gemm &p)
{
    enum { ROWS = TILES * COLUMNS_OF_MMA };
    i64 blocks = p.blocks * (p.groups.offsets ? p.groups.count : ceil_div(p.out.rows, ROWS));
    i64 bytes = WARPS * ROWS * OUTPUTS * 4;
    if (blocks > 0 && p.a.dtype == DTYPE_BF16)
        LAUNCH(device, (multiply<BITS, TILES, bf16>), (unsigned)blocks, THREADS, bytes, p);
    else if (blocks > 0)
        LAUNCH(device, (multiply<BITS, TILES, float>), (unsigned)blocks, THREADS, bytes, p);
}

extern "C" void cuda_matmul_quantized(struct device *device, struct matrix out, struct matrix a,
                                      const struct quantized_weight *w, const struct groups *groups)
{
    require((uintptr_t)w->codes % 16 == 0 && (uintptr_t)w->factors % 2 == 0, "matmul_quantized: codes at %p", w->codes);
    bool vector = (uintptr_t)a.data % 16 == 0 && a.stride * dtype_bytes(a.dtype) % 16 == 0;
    struct quantized_gemm p = {out, a, *w, {}, ceil_div(w->rows, OUTPUTS), vector};
    if (groups)
        p.groups = *groups;
    if (w->bits == 8 && a.rows <= COLUMNS_OF_MMA)
        launch<8, 1>(device, p);
    else if (w->bits == 8)
        launch<8, MOST_TILES>(device, p);
    else if (a.rows <= COLUMNS_OF_MMA)
        launch<4, 1>(device, p);
    else
        launch<4, MOST_TILES>(device, p);
}
