#include "kernels/cuda/media/conv.h"
#include "kernels/cuda/ptx.h"
#include "kernels/conv.h"

/* Convolution as an implicit gemm: out [M, N] = sum over k of a b, where im2col patches are never
 * materialized.
 *
 *     pass      M                 N            k                  a               b
 *     FORWARD   output positions  out          tap, in channel    x, gathered     w
 *     DATA      input positions   in           tap, out channel   dy, gathered    w, transposed
 *     WEIGHTS   out               tap, in      output positions   dy, transposed  x, gathered
 *
 * A block computes a tile of M x N, STEP of k at a time, from two tiles in shared memory, while the
 * tiles of the next steps are in flight. bf16 uses tensor cores. "Turned" (transposed): neighbours
 * in memory are not neighbours in k, so the tile is stored k by k. Runs of V elements are loaded at
 * once if all sizes and strides allow it. For the weight gradient, positions are split into chunks
 * whose products are added in order (split-K).
 *
 * The element gathered for position `place` and tap `tap` is at place . stride - pad + tap .
 * dilation. For DATA it is at (place + pad - tap . dilation) / stride, if that is whole: the output
 * that read it. Both terms are linear, so each is computed once, `origin` of a place and `reach` of
 * a tap. Places and taps are incremented from step to step, because a division costs as much as
 * loading a run.
 *
 *                     b, STEP x SIDE
 *                   +---------------+
 *     a, SIDE x STEP| out tile      |   stages of a and b in shared memory: 3 (bf16) or 2 (f32);
 *                   +---------------+   bf16: a warp has SIDE / 2 rows x 32 columns
 *
 *     Mc, Nc  SIDE, 64, or 128 for bf16 with enough tiles         Kc  STEP 32
 *     split K (WEIGHTS): chunks of at least CHUNK_LEAST 512 positions, BLOCKS_WANTED blocks
 *
 * Source: implicit gemm of cuDNN (Chetlur et al. 2014, arXiv 1410.0759). */
enum { STEP = 32, CHUNK_LEAST = 512, BLOCKS_WANTED = 512, BYTES_OF_RUN = 16 };

/* Threads of a block with a tile of SIDE x SIDE. Each warp computes 32 columns of half of the rows.
 */
template <int SIDE> __device__ constexpr int threads_of(void)
{
    return SIDE * 2;
}
template <typename T> __host__ __device__ constexpr int stages_of(void)
{
    return sizeof(T) == 2 ? 3 : 2;
}

/* An index in mixed radix, last digit fastest. Positions: image, time, height, width. k or N: tap
 * (3 digits), channel. */
struct conv_digits {
    int at[4];
};

struct conv_problem {
    struct matrix out, gathered, other;
    struct conv_digits places, taps; /* radix of each digit but the first */
    struct conv_digits rows_of_w;    /* tap, channel: the last two digits */
    int other_channels;              /* channels of the matrix that is not gathered */
    int stride[3], dilation[3], pad[3];
    int from[3];        /* time, height, width of the gathered matrix */
    int m, n, k, chunk; /* chunk: split size of k, a multiple of STEP */
    float *partials;    /* [chunks, m, n]; NULL: a single chunk, written to the output */
    bool add;
};

__device__ static struct conv_digits digits_of(int index, const struct conv_digits &sizes)
{
    struct conv_digits d;
    unsigned rest = (unsigned)index;
#pragma unroll
    for (int i = 3; i > 0; i--) {
        d.at[i] = (int)(rest % (unsigned)sizes.at[i]);
        rest /= (unsigned)sizes.at[i];
    }
    d.at[0] = (int)rest;
    return d;
}

/* Adds `by` to the index. Returns true if a digit other than the last has changed. */
template <int DIGITS> __device__ static bool count_on(struct conv_digits &d, const struct conv_digits &sizes, int by)
{
    d.at[3] += by;
    if (d.at[3] < sizes.at[3])
        return false;
    do {
        d.at[3] -= sizes.at[3];
        d.at[2]++;
#pragma unroll
        for (int i = 2; i > 4 - DIGITS && d.at[i] == sizes.at[i]; i--) {
            d.at[i] = 0;
            d.at[i - 1]++;
        }
    } while (d.at[3] >= sizes.at[3]);
    return true;
}

/* Linear part of an address, for a place or a tap: coordinates, their row, and (DATA) the
 * remainders by the strides, combined in one number. */
struct conv_address {
    int at[3], row, rest;
};

template <enum conv_pass pass>
__device__ static struct conv_address origin_of(const struct conv_problem &p, const struct conv_digits &place)
{
    struct conv_address o = {};
    o.row = place.at[0];
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        int at = place.at[axis + 1], size = p.stride[axis];
        o.at[axis] = pass == DATA ? (at + p.pad[axis]) / size : at * size - p.pad[axis];
        o.rest = pass == DATA ? o.rest * size + (at + p.pad[axis]) % size : 0;
        o.row = o.row * p.from[axis] + o.at[axis];
    }
    return o;
}

template <enum conv_pass pass>
__device__ static struct conv_address reach_of(const struct conv_problem &p, const struct conv_digits &tap)
{
    struct conv_address r = {};
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        int at = tap.at[axis] * p.dilation[axis], size = p.stride[axis];
        r.at[axis] = pass == DATA ? -(at / size) : at;
        r.rest = pass == DATA ? r.rest * size + at % size : 0;
        r.row = r.row * p.from[axis] + r.at[axis];
    }
    return r;
}

/* Address of the gathered element. NULL if it is outside, or (DATA) if no output has read it with
 * this tap. */
template <typename T, enum conv_pass pass>
__device__ static const T *gather(const struct conv_problem &p, const struct conv_address &origin,
                                  const struct conv_address &reach, int channel)
{
    bool is = pass != DATA || origin.rest == reach.rest;
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        is &= (unsigned)(origin.at[axis] + reach.at[axis]) < (unsigned)p.from[axis];
    return is ? row_of<T>(p.gathered, origin.row + reach.row) + channel : NULL;
}

/* A tile of one operand: [SIDE][STEP], or transposed [STEP][SIDE]. Padding puts the elements of a
 * column in different banks, and aligns bf16 rows to 16 bytes. */
template <typename T, bool transposed, int SIDE> struct conv_tile {
    enum { PAD = sizeof(T) == 2 ? 8 : 1, STRIDE = (transposed ? SIDE : STEP) + PAD };
    enum { BYTES = ((transposed ? STEP : SIDE) * STRIDE * (int)sizeof(T) + 15) / 16 * 16 };
};
template <typename T, enum conv_pass pass, int SIDE>
struct conv_tiles {
    typedef conv_tile<T, pass == WEIGHTS, SIDE> a; typedef conv_tile<T, pass != FORWARD, SIDE> b;
    enum {BYTES = a::BYTES + b::BYTES};
};

/* Loads a run, or zeros if `from` is NULL. `valid` is any valid address; nothing is read from it.
 */
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

/* Runs of a tile that this thread loads: one at the same place of every LINES-th line. */
template <typename T, int V, bool transposed, int SIDE> struct lines_of_thread {
    enum { RUNS = (transposed ? SIDE : STEP) / V, LINES = threads_of<SIDE>() / RUNS };
    enum { COUNT = (transposed ? STEP : SIDE) / LINES };
    int run, line;
    __device__ lines_of_thread() : run((int)threadIdx.x % RUNS * V), line((int)threadIdx.x / RUNS) {}
};

/* A thread's position along k, as digits for the operands that need them. */
struct conv_cursor {
    struct conv_digits a, b;
    struct conv_address reach; /* reach of a's tap; WEIGHTS: of b's tap, fixed like its channel */
    int channel;
};

template <typename T, enum conv_pass pass, int V, int SIDE>
__device__ static struct conv_cursor begin(const struct conv_problem &p, int n, int k)
{
    lines_of_thread<T, V, pass == WEIGHTS, SIDE> a;
    lines_of_thread<T, V, pass != FORWARD, SIDE> b;
    struct conv_cursor c = {};
    if (pass == WEIGHTS) {
        struct conv_digits tap = digits_of(n + b.run < p.n ? n + b.run : p.n - 1, p.taps);
        c.reach = reach_of<pass>(p, tap);
        c.channel = tap.at[3];
        c.b = digits_of(k + b.line, p.places);
        return c;
    }
    c.a = digits_of(k + a.run, p.taps);
    c.reach = reach_of<pass>(p, c.a);
    if (pass == DATA)
        c.b = digits_of(k + b.line, p.rows_of_w);
    return c;
}

/* Loads the tile of a at row m and depth k, and advances the cursor by STEP. */
template <typename T, enum conv_pass pass, int V, int SIDE>
__device__ static void load_a(T *to, const struct conv_problem &p, const struct conv_address *origins,
                              struct conv_cursor &c, int m, int k, int end)
{
    constexpr int stride = conv_tile<T, pass == WEIGHTS, SIDE>::STRIDE;
    lines_of_thread<T, V, pass == WEIGHTS, SIDE> at;
#pragma unroll 2
    for (int i = 0; i < at.COUNT; i++) {
        const T *from = NULL;
        int line = at.line + i * at.LINES;
        if (pass == WEIGHTS && k + line < end && m + at.run < p.m)
            from = row_of<T>(p.other, k + line) + m + at.run;
        if (pass != WEIGHTS && k + at.run < end && m + line < p.m)
            from = gather<T, pass>(p, origins[line], c.reach, c.a.at[3]);
        load_run<T, V>(to + line * stride + at.run, from, p.gathered.data);
    }
    if (pass != WEIGHTS && count_on<4>(c.a, p.taps, STEP))
        c.reach = reach_of<pass>(p, c.a);
}

/* Address of b's element, or run of elements, at the cursor. */
template <typename T, enum conv_pass pass>
__device__ static const T *b_at(const struct conv_problem &p, const struct conv_cursor &c, int n)
{
    if (pass == WEIGHTS)
        return gather<T, pass>(p, origin_of<pass>(p, c.b), c.reach, c.channel);
    return row_of<T>(p.other, c.b.at[3]) + (i64)c.b.at[2] * p.other_channels + n;
}

template <typename T, enum conv_pass pass, int V, int SIDE>
__device__ static void load_b(T *to, const struct conv_problem &p, struct conv_cursor &c, int n, int k, int end)
{
    constexpr int stride = conv_tile<T, pass != FORWARD, SIDE>::STRIDE;
    lines_of_thread<T, V, pass != FORWARD, SIDE> at;
#pragma unroll 2
    for (int i = 0; i < at.COUNT; i++) {
        const T *from = NULL;
        int line = at.line + i * at.LINES;
        if (pass == FORWARD && k + at.run < end && n + line < p.n)
            from = row_of<T>(p.other, n + line) + k + at.run;
        if (pass != FORWARD && k + line < end && n + at.run < p.n)
            from = b_at<T, pass>(p, c, n + at.run);
        load_run<T, V>(to + line * stride + at.run, from, p.gathered.data);
        if (pass == DATA)
            count_on<2>(c.b, p.rows_of_w, at.LINES);
        if (pass == WEIGHTS)
            count_on<4>(c.b, p.places, at.LINES);
    }
}

/* Accumulators of a thread. bf16: SIDE / 2 rows x 32 columns of its warp, in the layout of mma.
 * f32: rows y + 8 i and columns 2 x + 32 j and the next of a 64 x 64 tile. */
template <typename T, int SIDE> struct sums;
template <int SIDE> struct sums<bf16, SIDE> {
    float at[SIDE / 32][4][4];
};
template <> struct sums<float, 64> {
    float at[8][4];
};
template <int SIDE> __device__ static int first_row(void)
{
    return (int)threadIdx.x / WARP_THREADS / (SIDE / 32) * (SIDE / 2);
}
template <int SIDE> __device__ static int first_column(void)
{
    return (int)threadIdx.x / WARP_THREADS % (SIDE / 32) * 32;
}

/* Loads four 8 x 8 pieces. Bit `row_bit` of the piece's number adds 8 rows, the other bit adds 8 of
 * k. */
template <bool transposed, int SIDE>
__device__ static void load_pieces(u32 (&out)[4], const bf16 *from, int row, int k, int row_bit)
{
    int lane = (int)threadIdx.x % WARP_THREADS, piece = lane / 8, line = lane % 8;
    int rows = row + (piece >> row_bit & 1) * 8, ks = k + (piece >> (1 - row_bit) & 1) * 8;
    if (transposed)
        load_matrices_transposed(out, from + (ks + line) * conv_tile<bf16, true, SIDE>::STRIDE + rows);
    else
        load_matrices(out, from + (rows + line) * conv_tile<bf16, false, SIDE>::STRIDE + ks);
}

template <enum conv_pass pass, int SIDE>
__device__ static void multiply(sums<bf16, SIDE> &sum, const bf16 *a, const bf16 *b)
{
    int row = first_row<SIDE>(), column = first_column<SIDE>();
#pragma unroll
    for (int k = 0; k < STEP; k += 16) {
        u32 left[SIDE / 32][4], right[2][4];
#pragma unroll
        for (int i = 0; i < SIDE / 32; i++)
            load_pieces<pass == WEIGHTS, SIDE>(left[i], a, row + i * 16, k, 0);
#pragma unroll
        for (int j = 0; j < 2; j++)
            load_pieces<pass != FORWARD, SIDE>(right[j], b, column + j * 16, k, 1);
#pragma unroll
        for (int i = 0; i < SIDE / 32; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                mma(sum.at[i][j], left[i], right[j / 2] + j % 2 * 2);
    }
}

template <enum conv_pass pass, int SIDE>
__device__ static void multiply(sums<float, SIDE> &sum, const float *a, const float *b)
{
    constexpr int a_row = pass == WEIGHTS ? 1 : conv_tile<float, false, SIDE>::STRIDE,
                  a_k = pass == WEIGHTS ? SIDE + 1 : 1;
    constexpr int b_row = pass != FORWARD ? 1 : conv_tile<float, false, SIDE>::STRIDE,
                  b_k = pass != FORWARD ? SIDE + 1 : 1;
    int y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16;
#pragma unroll 4
    for (int k = 0; k < STEP; k++) {
        float left[8], right[4];
#pragma unroll
        for (int i = 0; i < 8; i++)
            left[i] = a[(y + 8 * i) * a_row + k * a_k];
#pragma unroll
        for (int j = 0; j < 4; j++)
            right[j] = b[(2 * x + j / 2 * 32 + j % 2) * b_row + k * b_k];
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum.at[i][j] = fmaf(left[i], right[j], sum.at[i][j]);
    }
}

/* Stores columns n and n + 1. With runs, column n + 1 always exists. */
template <typename Out, int V>
__device__ static void put(Out *out, int columns, int n, bool add, float first, float second)
{
    bool both = V > 1 || n + 1 < columns;
    if (add) {
        first += to_f32(out[0]);
        second += both ? to_f32(out[1]) : 0;
    }
    if (V > 1) {
        put_pair(out, first, second);
        return;
    }
    out[0] = from_f32<Out>(first);
    if (both)
        out[1] = from_f32<Out>(second);
}

template <typename Out, int V>
__device__ static void put_at(const struct conv_problem &p, int m, int n, float first, float second)
{
    if (m >= p.m || n >= p.n)
        return;
    if (p.partials)
        put<float, V>(p.partials + ((i64)blockIdx.z * p.m + m) * p.n + n, p.n, n, false, first, second);
    else
        put<Out, V>(row_of<Out>(p.out, m) + n, p.n, n, p.add, first, second);
}

template <typename Out, int V, int SIDE>
__device__ static void store(const struct conv_problem &p, int m, int n, const sums<bf16, SIDE> &sum)
{
    int lane = (int)threadIdx.x % WARP_THREADS;
    m += first_row<SIDE>() + lane / 4;
    n += first_column<SIDE>() + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < SIDE / 32; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                put_at<Out, V>(p, m + i * 16 + half * 8, n + j * 8, sum.at[i][j][2 * half], sum.at[i][j][2 * half + 1]);
}

template <typename Out, int V, int SIDE>
__device__ static void store(const struct conv_problem &p, int m, int n, const sums<float, SIDE> &sum)
{
    int y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16 * 2;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j += 2)
            put_at<Out, V>(p, m + y + 8 * i, n + x + 16 * j, sum.at[i][j], sum.at[i][j + 1]);
}

template <typename T, enum conv_pass pass, int V, int SIDE>
static __global__ void __launch_bounds__(threads_of<SIDE>(), SIDE == 64 ? 5 : 2) convolve(struct conv_problem p)
{
    grid_wait();
    typedef conv_tiles<T, pass, SIDE> shape;
    constexpr int stages = stages_of<T>();
    DYNAMIC_SHARED(char, memory);
    SHARED(struct conv_address, origins, SIDE);
    int m = (int)blockIdx.x * SIDE, n = (int)blockIdx.y * SIDE, k = (int)blockIdx.z * p.chunk;
    int end = k + p.chunk < p.k ? k + p.chunk : p.k, next = k;
    if (pass != WEIGHTS)
        for (int i = (int)threadIdx.x; i < SIDE; i += threads_of<SIDE>())
            origins[i] = origin_of<pass>(p, digits_of(m + i < p.m ? m + i : p.m - 1, p.places));
    __syncthreads();
    struct conv_cursor c = begin<T, pass, V, SIDE>(p, n, k);
    sums<T, SIDE> sum = {};
    int filled = 0, read = 0;
    auto load = [&] {
        char *to = memory + filled * shape::BYTES;
        filled = filled + 1 < stages ? filled + 1 : 0;
        if (next < end) {
            load_a<T, pass, V, SIDE>((T *)to, p, origins, c, m, next, end);
            load_b<T, pass, V, SIDE>((T *)(to + shape::a::BYTES), p, c, n, next, end);
        }
        next += STEP;
        copies_commit();
    };
    for (int i = 1; i < stages; i++)
        load();
    for (; k < end; k += STEP) {
        copies_wait<stages - 2>();
        __syncthreads(); /* the previous step's tiles are free */
        load();
        const char *from = memory + read * shape::BYTES;
        read = read + 1 < stages ? read + 1 : 0;
        multiply<pass, SIDE>(sum, (const T *)from, (const T *)(from + shape::a::BYTES));
    }
    if (pass == WEIGHTS)
        store<float, V, SIDE>(p, m, n, sum);
    else
        store<T, V, SIDE>(p, m, n, sum);
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

template <typename T, enum conv_pass pass, int V, int SIDE>
static void launch_tiles(struct device *device, const struct conv_problem &p)
{
    i64 chunks = ceil_div(p.k, p.chunk), bytes = stages_of<T>() * conv_tiles<T, pass, SIDE>::BYTES;
    dim3 grid((unsigned)ceil_div(p.m, SIDE), (unsigned)ceil_div(p.n, SIDE), (unsigned)chunks);
    CUDA_CHECK(
        cudaFuncSetAttribute((convolve<T, pass, V, SIDE>), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    LAUNCH(device, (convolve<T, pass, V, SIDE>), grid, SIDE * 2, bytes, p);
}

template <typename T, enum conv_pass pass>
static void launch(struct device *device, const struct conv_problem &p, const struct conv *conv)
{
    constexpr int run = BYTES_OF_RUN / (int)sizeof(T), large = sizeof(T) == 2 ? 128 : 64; /* f32 has no large tiles */
    bool runs = conv->in % run == 0 && conv->out % run == 0 && in_runs(p.gathered, run) && in_runs(p.other, run) &&
                in_runs(p.out, run);
    i64 tiles = ceil_div(p.m, large) * ceil_div(p.n, large) * ceil_div(p.k, p.chunk);
    if (!runs)
        launch_tiles<T, pass, 1, 64>(device, p);
    else if (p.n > 64 && tiles >= cuda_handles_of(device)->multiprocessors)
        launch_tiles<T, pass, run, large>(device, p);
    else
        launch_tiles<T, pass, run, 64>(device, p);
}

template <enum conv_pass pass>
static void launch_dtype(struct device *device, const struct conv_problem &p, const struct conv *conv)
{
    if (p.gathered.dtype == DTYPE_BF16)
        launch<bf16, pass>(device, p, conv);
    else
        launch<float, pass>(device, p, conv);
}

/* True if every patch is the row itself, so that the convolution is a plain gemm. */
static bool is_product(const struct conv *c)
{
    bool is = true;
    for (int axis = 0; axis < 3; axis++)
        is = is && c->kernel[axis] == 1 && c->stride[axis] == 1 && !c->pad_front[axis] && !c->pad_back[axis];
    return is;
}

static struct conv_problem problem_of(const struct conv *c, struct matrix out, struct matrix gathered,
                                      struct matrix other, enum conv_pass pass)
{
    struct conv_problem p = {};
    p.out = out;
    p.gathered = gathered;
    p.other = other;
    p.other_channels = (int)(pass == DATA ? c->in : c->out);
    p.taps.at[3] = (int)(pass == DATA ? c->out : c->in);
    for (int axis = 0; axis < 3; axis++) {
        int in = (int)c->size[axis], size = (int)conv_out_size(c, axis);
        p.taps.at[axis] = (int)c->kernel[axis];
        p.places.at[axis + 1] = pass == DATA ? in : size;
        p.from[axis] = pass == DATA ? size : in;
        p.stride[axis] = (int)c->stride[axis];
        p.dilation[axis] = (int)c->dilation[axis];
        p.pad[axis] = (int)c->pad_front[axis];
    }
    p.rows_of_w = {{1, 1, (int)product3(c->kernel), p.taps.at[3]}};
    i64 k = pass == WEIGHTS ? other.rows : product3(c->kernel) * p.taps.at[3];
    require(max_i64(max_i64(out.rows, gathered.rows), k) <= (i64)1 << 30 && out.columns < (i64)1 << 21,
            "conv: a product [%lld,%lld,%lld]", (long long)out.rows, (long long)out.columns, (long long)k);
    p.m = (int)out.rows;
    p.n = (int)out.columns;
    p.k = (int)k;
    p.chunk = (int)round_up(k, STEP);
    return p;
}

extern "C" void cuda_conv(struct device *device, struct matrix y, struct matrix x, struct matrix w,
                          const struct conv *conv)
{
    if (is_product(conv))
        cuda_matmul(device, y, x, false, w, true, false);
    else if (!cuda_conv_by_cudnn(device, FORWARD, x, w, y, conv, false))
        launch_dtype<FORWARD>(device, problem_of(conv, y, x, w, FORWARD), conv);
}

extern "C" void cuda_conv_backward_data(struct device *device, struct matrix dx, struct matrix dy, struct matrix w,
                                        const struct conv *conv, bool add)
{
    if (is_product(conv)) {
        cuda_matmul(device, dx, dy, false, w, false, add);
        return;
    }
    if (cuda_conv_by_cudnn(device, DATA, dx, w, dy, conv, add))
        return;
    struct conv_problem p = problem_of(conv, dx, dy, w, DATA);
    p.add = add;
    launch_dtype<DATA>(device, p, conv);
}

/* Chooses enough chunks to fill a GPU, as long as each chunk is long enough and the partial
 * products fit the workspace. */
static void cut_weights(struct device *device, struct conv_problem *p)
{
    i64 tiles = ceil_div(p->m, 64) * ceil_div(p->n, 64), bytes = (i64)p->m * p->n * (i64)sizeof(float);
    i64 chunks = min_i64(ceil_div(BLOCKS_WANTED, tiles), ceil_div(p->k, CHUNK_LEAST));
    chunks = min_i64(chunks, cuda_handles_of(device)->workspace_bytes / bytes);
    p->chunk = (int)round_up(ceil_div(p->k, max_i64(chunks, 1)), STEP);
    if (p->chunk < p->k)
        p->partials = (float *)cuda_workspace_of(device, "conv_backward_weights", ceil_div(p->k, p->chunk) * bytes);
}

extern "C" void cuda_conv_backward_weights(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                                           const struct conv *conv, bool add)
{
    if (cuda_conv_by_cudnn(device, WEIGHTS, x, dw, dy, conv, add))
        return;
    struct conv_problem p = problem_of(conv, dw, x, dy, WEIGHTS);
    p.add = add;
    cut_weights(device, &p);
    launch_dtype<WEIGHTS>(device, p, conv);
    if (p.partials)
        LAUNCH(device, add_chunks, blocks_for((i64)p.m * p.n), BLOCK_THREADS, 0, dw, p.partials, ceil_div(p.k, p.chunk),
               add);
}
