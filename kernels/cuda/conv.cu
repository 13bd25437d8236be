#include "kernels/cuda/ptx.h"
#include "kernels/conv.h"

/* A convolution as a product whose patches are never laid out (implicit GEMM): out [M, N] = sum over k of a b.
 *
 *   what      M                 N            k                  a              b
 *   FORWARD   output positions  out          tap, in channel    x, gathered    w
 *   DATA      input positions   in           tap, out channel   dy, gathered   w, turned
 *   WEIGHTS   out               tap, in      output positions   dy, turned     x, gathered
 *
 * A block makes a tile of M x N, STEP of k at a time, from two tiles in shared memory, of which the next ones are
 * loaded while these are multiplied: by tensor cores where they are bf16. "Turned": neighbours in memory are not
 * neighbours in k, so the tile lies k by k. Runs of V elements are loaded at once where all sizes and strides allow it.
 * For the weights positions are cut into chunks whose products are added in their order. */
enum what { FORWARD, DATA, WEIGHTS };
enum {
    TILE = 64,
    STEP = 32,
    THREADS = 128,
    STAGES = 2,
    CHUNK_LEAST = 512,
    BLOCKS_WANTED = 512,
    BYTES_OF_RUN = 16,
    BLOCKS_AT_ONCE = 5
};

struct conv_problem {
    struct matrix out, gathered, other;
    int channels, other_channels; /* of the gathered matrix, and of the one that is not */
    int kernel[3], stride[3], dilation[3], pad[3];
    int from[3], to[3]; /* sizes of the gathered matrix, and of the positions it is gathered for */
    i64 m, n, k, chunk; /* chunk: of k, a multiple of STEP */
    float *partials;    /* [chunks, m, n]; NULL: there is one chunk, which is the output */
    bool add;
};

struct place { /* a position */
    int image, at[3];
};
struct tap { /* which neighbour of it, which channel */
    int at[3], channel;
};

__device__ static struct place place_of(const struct conv_problem &p, i64 position)
{
    unsigned rest = (unsigned)position, w = (unsigned)p.to[2], h = (unsigned)p.to[1], t = (unsigned)p.to[0];
    struct place place;
    place.at[2] = (int)(rest % w);
    rest /= w;
    place.at[1] = (int)(rest % h);
    rest /= h;
    place.at[0] = (int)(rest % t);
    place.image = (int)(rest / t);
    return place;
}

__device__ static struct tap tap_of(const struct conv_problem &p, i64 index)
{
    unsigned i = (unsigned)index, channels = (unsigned)p.channels, rest = i / channels;
    struct tap tap;
    tap.channel = (int)(i % channels);
    tap.at[2] = (int)(rest % (unsigned)p.kernel[2]);
    rest /= (unsigned)p.kernel[2];
    tap.at[1] = (int)(rest % (unsigned)p.kernel[1]);
    tap.at[0] = (int)(rest / (unsigned)p.kernel[1]);
    return tap;
}

/* Output q reads input q . stride - pad + tap . dilation; NULL outside. */
template <typename T, enum what what>
__device__ static const T *gather(const struct conv_problem &p, const struct place &place, const struct tap &tap)
{
    i64 row = place.image;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        int at;
        if (what == DATA) {
            at = place.at[axis] + p.pad[axis] - tap.at[axis] * p.dilation[axis];
            if (p.stride[axis] > 1) {
                if (at % p.stride[axis])
                    return NULL;
                at /= p.stride[axis];
            }
        } else
            at = place.at[axis] * p.stride[axis] - p.pad[axis] + tap.at[axis] * p.dilation[axis];
        if (at < 0 || at >= p.from[axis])
            return NULL;
        row = row * p.from[axis] + at;
    }
    return row_of<T>(p.gathered, row) + tap.channel;
}

/* What a block knows of its rows (FORWARD, DATA: where they are) or columns (WEIGHTS: which taps). */
union known {
    struct place place;
    struct tap tap;
};

/* Run of operand a from row m (of the tile: local) and index k; NULL: zeros. */
template <typename T, enum what what>
__device__ static const T *a_at(const struct conv_problem &p, const union known *known, i64 m, int local, i64 k)
{
    if (m >= p.m)
        return NULL;
    if (what == WEIGHTS)
        return row_of<T>(p.other, k) + m;
    return gather<T, what>(p, known[local].place, tap_of(p, k));
}

template <typename T, enum what what>
__device__ static const T *b_at(const struct conv_problem &p, const union known *known, i64 n, int local, i64 k)
{
    if (n >= p.n)
        return NULL;
    if (what == FORWARD)
        return row_of<T>(p.other, n) + k;
    if (what == WEIGHTS)
        return gather<T, what>(p, place_of(p, k), known[local].tap);
    unsigned tap = (unsigned)k / (unsigned)p.channels, channel = (unsigned)k % (unsigned)p.channels;
    return row_of<T>(p.other, channel) + (i64)tap * p.other_channels + n;
}

/* A tile of one operand: [TILE][STEP], or turned [STEP][TILE]; rows are padded so that a column of them lies in
 * different banks, and begin at multiples of 16 bytes where they are bf16. */
template <typename T, bool turned> struct tile {
    enum { PAD = sizeof(T) == 2 ? 8 : 1, STRIDE = (turned ? TILE : STEP) + PAD };
    enum { BYTES = ((turned ? STEP : TILE) * STRIDE * (int)sizeof(T) + 15) / 16 * 16 };
};

/* `valid` is any address: nothing is read there. */
template <typename T, int V> __device__ static void load_run(T *to, const T *from, const void *valid)
{
    if (V == 1) {
        *to = from ? *from : 0;
        return;
    }
    if (sizeof(T) == 2) {
        copy_async(to, from ? from : valid, from != NULL);
        return;
    }
    float4 run = from ? *(const float4 *)from : make_float4(0, 0, 0, 0);
    to[0] = run.x;
    to[1] = run.y;
    to[2] = run.z;
    to[3] = run.w;
}

template <typename T, enum what what, int V, bool is_a>
__device__ static void load_tile(T *tile_of, const struct conv_problem &p, const union known *known, i64 first, i64 k,
                                 i64 end)
{
    constexpr bool turned = is_a ? what == WEIGHTS : what != FORWARD;
    constexpr int runs = (turned ? TILE : STEP) / V;
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < TILE * STEP / V; i += THREADS) {
        int line = i / runs, run = i % runs * V, local = turned ? run : line, at = turned ? line : run;
        const T *from = NULL;
        if (k + at < end)
            from = is_a ? a_at<T, what>(p, known, first + local, local, k + at)
                        : b_at<T, what>(p, known, first + local, local, k + at);
        load_run<T, V>(tile_of + line * tile<T, turned>::STRIDE + run, from, p.gathered.data);
    }
}

/* Sums of this thread: of its warp's 32 x 32 (bf16: as mma has them), or of rows y + 8 i, columns x + 16 j (f32). */
template <typename T> struct sums;
template <> struct sums<bf16> {
    float at[2][4][4];
};
template <> struct sums<float> {
    float at[8][4];
};

/* Four 8 x 8 pieces: rows +0 or +8 by bit `row_bit` of the piece's number, k by the other one. */
template <bool turned> __device__ static void load_pieces(u32 (&out)[4], const bf16 *from, int row, int k, int row_bit)
{
    int lane = (int)threadIdx.x % WARP_THREADS, piece = lane / 8, line = lane % 8;
    int rows = row + (piece >> row_bit & 1) * 8, ks = k + (piece >> (1 - row_bit) & 1) * 8;
    if (turned)
        load_matrices_transposed(out, from + (ks + line) * tile<bf16, true>::STRIDE + rows);
    else
        load_matrices(out, from + (rows + line) * tile<bf16, false>::STRIDE + ks);
}

template <enum what what> __device__ static void multiply(sums<bf16> &sum, const bf16 *a, const bf16 *b)
{
    int warp = (int)threadIdx.x / WARP_THREADS, row = warp / 2 * 32, column = warp % 2 * 32;
#pragma unroll
    for (int k = 0; k < STEP; k += 16) {
        u32 left[2][4], right[2][4];
        for (int i = 0; i < 2; i++) {
            load_pieces<what == WEIGHTS>(left[i], a, row + i * 16, k, 0);
            load_pieces<what != FORWARD>(right[i], b, column + i * 16, k, 1);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                mma(sum.at[i][j], left[i], right[j / 2] + j % 2 * 2);
    }
}

template <enum what what> __device__ static void multiply(sums<float> &sum, const float *a, const float *b)
{
    constexpr int a_row = what == WEIGHTS ? 1 : tile<float, false>::STRIDE, a_k = what == WEIGHTS ? TILE + 1 : 1;
    constexpr int b_row = what != FORWARD ? 1 : tile<float, false>::STRIDE, b_k = what != FORWARD ? TILE + 1 : 1;
    int y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16;
#pragma unroll 4
    for (int k = 0; k < STEP; k++) {
        float left[8], right[4];
#pragma unroll
        for (int i = 0; i < 8; i++)
            left[i] = a[(y + 8 * i) * a_row + k * a_k];
#pragma unroll
        for (int j = 0; j < 4; j++)
            right[j] = b[(x + 16 * j) * b_row + k * b_k];
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum.at[i][j] = fmaf(left[i], right[j], sum.at[i][j]);
    }
}

template <typename Out> __device__ static void put(const struct conv_problem &p, i64 m, i64 n, float value)
{
    if (m >= p.m || n >= p.n)
        return;
    if (p.partials) {
        p.partials[((i64)blockIdx.z * p.m + m) * p.n + n] = value;
        return;
    }
    Out *out = row_of<Out>(p.out, m) + n;
    *out = from_f32<Out>(p.add ? to_f32(*out) + value : value);
}

template <typename Out> __device__ static void store(const struct conv_problem &p, i64 m, i64 n, const sums<bf16> &sum)
{
    int warp = (int)threadIdx.x / WARP_THREADS, lane = (int)threadIdx.x % WARP_THREADS;
    m += warp / 2 * 32 + lane / 4;
    n += warp % 2 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                put<Out>(p, m + i * 16 + e / 2 * 8, n + j * 8 + e % 2, sum.at[i][j][e]);
}

template <typename Out> __device__ static void store(const struct conv_problem &p, i64 m, i64 n, const sums<float> &sum)
{
    int y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            put<Out>(p, m + y + 8 * i, n + x + 16 * j, sum.at[i][j]);
}

template <typename T, enum what what>
__device__ static void fill_known(union known *known, const struct conv_problem &p, i64 m, i64 n)
{
    for (int i = (int)threadIdx.x; i < TILE; i += THREADS)
        if (what == WEIGHTS)
            known[i].tap = tap_of(p, n + i < p.n ? n + i : p.n - 1);
        else
            known[i].place = place_of(p, m + i < p.m ? m + i : p.m - 1);
    __syncthreads();
}

template <typename T, enum what what, int V>
static __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE) convolve(struct conv_problem p)
{
    grid_wait();
    typedef tile<T, what == WEIGHTS> a_tile;
    typedef tile<T, what != FORWARD> b_tile;
    SHARED(uint4, memory, STAGES * (a_tile::BYTES + b_tile::BYTES) / 16);
    SHARED(union known, known, TILE);
    i64 m = (i64)blockIdx.x * TILE, n = (i64)blockIdx.y * TILE, k = blockIdx.z * p.chunk;
    i64 end = k + p.chunk < p.k ? k + p.chunk : p.k;
    char *stage = (char *)memory, *other = stage + a_tile::BYTES + b_tile::BYTES;
    sums<T> sum = {};
    fill_known<T, what>(known, p, m, n);
    load_tile<T, what, V, true>((T *)stage, p, known, m, k, end);
    load_tile<T, what, V, false>((T *)(stage + a_tile::BYTES), p, known, n, k, end);
    copies_commit();
    for (; k < end; k += STEP) {
        if (k + STEP < end) {
            load_tile<T, what, V, true>((T *)other, p, known, m, k + STEP, end);
            load_tile<T, what, V, false>((T *)(other + a_tile::BYTES), p, known, n, k + STEP, end);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        multiply<what>(sum, (const T *)stage, (const T *)(stage + a_tile::BYTES));
        __syncthreads();
        char *swap = stage;
        stage = other;
        other = swap;
    }
    if (what == WEIGHTS)
        store<float>(p, m, n, sum);
    else
        store<T>(p, m, n, sum);
}

static __global__ void add_chunks(struct matrix dw, const float *partials, i64 chunks, bool add)
{
    grid_wait();
    ELEMENTS(at, dw.rows, dw.columns)
    {
        float *out = row_of<float>(dw, at.row) + at.column, sum = add ? *out : 0;
        for (i64 i = 0; i < chunks; i++)
            sum += partials[(i * dw.rows + at.row) * dw.columns + at.column];
        *out = sum;
    }
}

static bool in_runs(struct matrix m, i64 run)
{
    return (uintptr_t)m.data % BYTES_OF_RUN == 0 && m.stride % run == 0;
}

template <typename T, enum what what>
static void launch(struct device *device, const struct conv_problem &p, const struct conv *conv)
{
    constexpr int run = BYTES_OF_RUN / (int)sizeof(T);
    i64 chunks = ceil_div(p.k, p.chunk);
    dim3 grid((unsigned)ceil_div(p.m, TILE), (unsigned)ceil_div(p.n, TILE), (unsigned)chunks);
    require(p.m < (i64)1 << 31 && p.n < (i64)1 << 21 && p.k < (i64)1 << 31, "conv: a product [%lld,%lld,%lld]",
            (long long)p.m, (long long)p.n, (long long)p.k);
    bool runs = conv->in % run == 0 && conv->out % run == 0 && in_runs(p.gathered, run) && in_runs(p.other, run);
    if (runs)
        LAUNCH(device, (convolve<T, what, run>), grid, THREADS, 0, p);
    else
        LAUNCH(device, (convolve<T, what, 1>), grid, THREADS, 0, p);
}

template <enum what what>
static void launch_dtype(struct device *device, const struct conv_problem &p, const struct conv *conv)
{
    if (p.gathered.dtype == DTYPE_BF16)
        launch<bf16, what>(device, p, conv);
    else
        launch<float, what>(device, p, conv);
}

/* Every patch is the row itself: the convolution is a plain product. */
static bool is_product(const struct conv *c)
{
    bool is = true;
    for (int axis = 0; axis < 3; axis++)
        is = is && c->kernel[axis] == 1 && c->stride[axis] == 1 && !c->pad_front[axis] && !c->pad_back[axis];
    return is;
}

static struct conv_problem problem_of(const struct conv *c, struct matrix out, struct matrix gathered,
                                      struct matrix other, enum what what)
{
    struct conv_problem p = {};
    p.out = out;
    p.gathered = gathered;
    p.other = other;
    p.channels = (int)(what == DATA ? c->out : c->in);
    p.other_channels = (int)(what == DATA ? c->in : c->out);
    for (int axis = 0; axis < 3; axis++) {
        int in = (int)c->size[axis], size = (int)conv_out_size(c, axis);
        p.kernel[axis] = (int)c->kernel[axis];
        p.stride[axis] = (int)c->stride[axis];
        p.dilation[axis] = (int)c->dilation[axis];
        p.pad[axis] = (int)c->pad_front[axis];
        p.from[axis] = what == DATA ? size : in;
        p.to[axis] = what == DATA ? in : size;
    }
    p.m = out.rows;
    p.n = out.columns;
    p.k = what == WEIGHTS ? other.rows : product3(c->kernel) * p.channels;
    p.chunk = round_up(p.k, STEP);
    return p;
}

extern "C" void cuda_conv(struct device *device, struct matrix y, struct matrix x, struct matrix w,
                          const struct conv *conv)
{
    conv_check(conv, x, y, w);
    require(x.dtype == w.dtype && y.dtype == x.dtype, "conv: x is %s, w %s, y %s", dtype_name(x.dtype),
            dtype_name(w.dtype), dtype_name(y.dtype));
    if (is_product(conv))
        cuda_matmul(device, y, x, false, w, true, false);
    else
        launch_dtype<FORWARD>(device, problem_of(conv, y, x, w, FORWARD), conv);
}

extern "C" void cuda_conv_backward_data(struct device *device, struct matrix dx, struct matrix dy, struct matrix w,
                                        const struct conv *conv, bool add)
{
    conv_check(conv, dx, dy, w);
    require(dy.dtype == w.dtype && dx.dtype == dy.dtype, "conv_backward_data: dy is %s, w %s, dx %s",
            dtype_name(dy.dtype), dtype_name(w.dtype), dtype_name(dx.dtype));
    if (is_product(conv)) {
        cuda_matmul(device, dx, dy, false, w, false, add);
        return;
    }
    struct conv_problem p = problem_of(conv, dx, dy, w, DATA);
    p.add = add;
    launch_dtype<DATA>(device, p, conv);
}

/* Enough chunks to fill a GPU, as far as they are long and their products fit the workspace. */
static void cut_weights(struct device *device, struct conv_problem *p)
{
    i64 tiles = ceil_div(p->m, TILE) * ceil_div(p->n, TILE), bytes = p->m * p->n * (i64)sizeof(float);
    i64 chunks = min_i64(ceil_div(BLOCKS_WANTED, tiles), ceil_div(p->k, CHUNK_LEAST));
    chunks = min_i64(chunks, cuda_handles_of(device)->workspace_bytes / bytes);
    p->chunk = round_up(ceil_div(p->k, max_i64(chunks, 1)), STEP);
    if (p->chunk < p->k)
        p->partials = (float *)cuda_workspace_of(device, "conv_backward_weights", ceil_div(p->k, p->chunk) * bytes);
}

extern "C" void cuda_conv_backward_weights(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                                           const struct conv *conv, bool add)
{
    conv_check(conv, x, dy, dw);
    require(dy.dtype == x.dtype && dw.dtype == DTYPE_F32, "conv_backward_weights: dy is %s, x %s, dw %s",
            dtype_name(dy.dtype), dtype_name(x.dtype), dtype_name(dw.dtype));
    struct conv_problem p = problem_of(conv, dw, x, dy, WEIGHTS);
    p.add = add;
    cut_weights(device, &p);
    launch_dtype<WEIGHTS>(device, p, conv);
    if (p.partials)
        LAUNCH(device, add_chunks, blocks_for(p.m * p.n), BLOCK_THREADS, 0, dw, p.partials, ceil_div(p.k, p.chunk),
               add);
}
