#include "kernels/cuda/cuda.h"

/* A block handles one row, or in the backward one row after another. A thread holds HELD runs of a
 * row in registers; the runs of all threads form a part. All loads of a part are issued before the
 * first is used, and a row that is a single part is read only once. */
enum { HELD = 2, BLOCKS_MOST = 1024 /* blocks of the backward, each with its own sums of dw */, ROWS_LEAST = 4 };

template <typename T, int N> struct row_part {
    packed<T, N> runs[HELD];
};
template <int N> __device__ static i64 part_columns(void)
{
    return (i64)HELD * blockDim.x * N;
}
/* Loop over the parts of a row; `first` is this thread's first column of a part. */
#define PARTS(N, first, columns) for (i64 first = threadIdx.x * (N); first < (columns); first += part_columns<N>())

/* Loads a part; zeros past the last column. */
template <typename T, int N> __device__ static row_part<T, N> load_part(struct matrix m, i64 row, i64 first)
{
    struct row_part<T, N> part;
    for (int i = 0; i < HELD; i++) {
        i64 column = first + i * (i64)blockDim.x * N;
        part.runs[i] = m.data && column < m.columns ? load_packed<N>(row_of<T>(m, row) + column) : 0;
    }
    return part;
}
template <typename T, int N>
__device__ static void store_part(struct matrix m, i64 row, i64 first, const struct row_part<T, N> &part)
{
    for (int i = 0; i < HELD; i++) {
        i64 column = first + i * (i64)blockDim.x * N;
        if (column < m.columns)
            *(packed<T, N> *)(row_of<T>(m, row) + column) = part.runs[i];
    }
}

/* Loads the part of w, which may have either dtype or no data. */
template <int N> __device__ static row_part<float, N> load_weights(struct matrix w, i64 first)
{
    if (w.dtype != DTYPE_BF16)
        return load_part<float, N>(w, 0, first);
    struct row_part<bf16, N> narrow = load_part<bf16, N>(w, 0, first);
    struct row_part<float, N> part;
    for (int i = 0; i < HELD; i++)
        part.runs[i] = narrow.runs[i];
    return part;
}
template <int N>
__device__ static elements<float, N> weights_of(struct matrix w, const struct row_part<float, N> &part, int i)
{
    elements<float, N> wide = unpack<float, N>(part.runs[i]);
    elements<bf16, N> narrow = unpack<bf16, N>((packed<bf16, N>)part.runs[i]);
    for (int k = 0; k < N; k++)
        wide.at[k] = !w.data ? 1 : w.dtype == DTYPE_BF16 ? to_f32(narrow.at[k]) : wide.at[k];
    return wide;
}

template <typename T, int N>
__device__ static void add_part(struct row_part<T, N> *to, const struct row_part<T, N> &other)
{
    for (int i = 0; i < HELD; i++) {
        elements<T, N> run = unpack<T, N>(to->runs[i]), added = unpack<T, N>(other.runs[i]);
        for (int k = 0; k < N; k++)
            run.at[k] = from_f32<T>(to_f32(run.at[k]) + to_f32(added.at[k]));
        to->runs[i] = pack(run);
    }
}
template <typename T, int N> __device__ static float squares_of(const struct row_part<T, N> &part)
{
    float sum = 0;
    for (int i = 0; i < HELD; i++) {
        elements<T, N> run = unpack<T, N>(part.runs[i]);
        for (int k = 0; k < N; k++)
            sum += to_f32(run.at[k]) * to_f32(run.at[k]);
    }
    return sum;
}

/* If b has data, sum = x + b is normalized and stored; otherwise x is. */
template <typename T, int N>
static __global__ void normalize(struct matrix y, float *rstd, struct matrix sum, struct matrix x, struct matrix b,
                                 struct matrix w, float eps)
{
    grid_wait();
    i64 row = blockIdx.x;
    struct row_part<T, N> from = {
    };
    struct row_part<float, N> weights = {
    };
    float squares = 0;
    PARTS(N, first, x.columns)
    {
        from = load_part<T, N>(x, row, first);
        struct row_part<T, N> added = load_part<T, N>(b, row, first);
        weights = load_weights<N>(w, first);
        if (b.data)
            add_part(&from, added);
        store_part(sum, row, first, from);
        squares += squares_of(from);
    }
    float r = 1.0f / sqrtf(block_sum(squares) / (float)x.columns + eps);
    if (threadIdx.x == 0)
        rstd[row] = r;
    PARTS(N, first, x.columns)
    {
        if (x.columns > part_columns<N>()) {
            from = load_part<T, N>(b.data ? sum : x, row, first);
            weights = load_weights<N>(w, first);
        }
        for (int i = 0; i < HELD; i++) {
            elements<T, N> run = unpack<T, N>(from.runs[i]);
            elements<float, N> weight = weights_of(w, weights, i);
            for (int k = 0; k < N; k++)
                run.at[k] = from_f32<T>(weight.at[k] * to_f32(from_f32<T>(to_f32(run.at[k]) * r)));
            from.runs[i] = pack(run);
        }
        store_part(y, row, first, from);
    }
}

static void run(struct device *device, struct matrix y, float *rstd, struct matrix sum, struct matrix x,
                struct matrix b, struct matrix w, float eps)
{
    LAUNCH_ROWS_OF_RUNS(device, in_quads(y, sum, x, b, w), x.dtype, normalize, x.rows, ceil_div(x.columns, HELD), y,
                        rstd, sum, x, b, w, eps);
}

extern "C" void cuda_rmsnorm(struct device *device, struct matrix y, float *rstd, struct matrix x, struct matrix w,
                             float eps)
{
    struct matrix none = {};
    run(device, y, rstd, none, x, none, w, eps);
}

extern "C" void cuda_add_rmsnorm(struct device *device, struct matrix sum, struct matrix y, float *rstd,
                                 struct matrix a, struct matrix b, struct matrix w, float eps)
{
    run(device, y, rstd, sum, a, b, w, eps);
}

struct norm_gradient {
    struct matrix dx, dy, x, w;
    struct matrix partials; /* dw of each block [blocks, columns]; data NULL: not computed */
    const float *rstd;
    i64 rows; /* rows per block */
    bool add; /* add to dx */
};

/* The operands of one part. */
template <typename T, int N> struct operands {
    struct row_part<T, N> dy, x, dx;
    struct row_part<float, N> w;
    float r;
};
template <typename T, int N>
__device__ static operands<T, N> load_operands(const struct norm_gradient &g, i64 row, i64 first)
{
    operands<T, N> at = {load_part<T, N>(g.dy, row, first), load_part<T, N>(g.x, row, first)};
    at.w = load_weights<N>(g.w, first);
    if (g.add)
        at.dx = load_part<T, N>(g.dx, row, first);
    at.r = g.rstd[row];
    return at;
}

template <typename T, int N>
__device__ static float dot_of(const struct operands<T, N> &at, const struct norm_gradient &g)
{
    float sum = 0;
    for (int i = 0; i < HELD; i++) {
        elements<T, N> dy = unpack<T, N>(at.dy.runs[i]), x = unpack<T, N>(at.x.runs[i]);
        elements<float, N> w = weights_of(g.w, at.w, i);
        for (int k = 0; k < N; k++)
            sum += to_f32(dy.at[k]) * w.at[k] * to_f32(x.at[k]);
    }
    return sum;
}

/* With g = w . dy and n = x . r: dx = r (g - n mean(g n)), and sums += dy . n. */
template <typename T, int N>
__device__ static row_part<T, N> derive(const struct operands<T, N> &at, struct row_part<float, N> *sums,
                                        const struct norm_gradient &g, float mean)
{
    struct row_part<T, N> out;
    for (int i = 0; i < HELD; i++) {
        elements<T, N> dy = unpack<T, N>(at.dy.runs[i]), x = unpack<T, N>(at.x.runs[i]);
        elements<T, N> dx = unpack<T, N>(at.dx.runs[i]);
        elements<float, N> w = weights_of(g.w, at.w, i), sum = unpack<float, N>(sums->runs[i]);
        for (int k = 0; k < N; k++) {
            float n = to_f32(x.at[k]) * at.r, own = at.r * (to_f32(dy.at[k]) * w.at[k] - n * mean);
            sum.at[k] += to_f32(dy.at[k]) * n;
            dx.at[k] = from_f32<T>(g.add ? to_f32(dx.at[k]) + own : own);
        }
        out.runs[i] = pack(dx);
        sums->runs[i] = pack(sum);
    }
    return out;
}

/* One block handles a run of rows. If a row is a single part, the sums of dw stay in registers;
 * otherwise they are kept in partials. */
template <typename T, int N> static __global__ void backward_rows(struct norm_gradient g)
{
    grid_wait();
    i64 begin = blockIdx.x * g.rows, end = begin + g.rows < g.x.rows ? begin + g.rows : g.x.rows, columns = g.x.columns;
    bool whole = columns <= part_columns<N>();
    operands<T, N> at = {};
    struct row_part<float, N> sums = {
    };
    for (i64 row = begin; row < end; row++) {
        float dot = 0;
        PARTS(N, first, columns)
        {
            at = load_operands<T, N>(g, row, first);
            dot += dot_of(at, g);
        }
        float mean = at.r * block_sum(dot) / (float)columns;
        PARTS(N, first, columns)
        {
            if (!whole) {
                at = load_operands<T, N>(g, row, first);
                sums = row > begin ? load_part<float, N>(g.partials, blockIdx.x, first) : row_part<float, N>{};
            }
            store_part(g.dx, row, first, derive(at, &sums, g, mean));
            if (!whole || row == end - 1)
                store_part(g.partials, blockIdx.x, first, sums);
        }
    }
}

extern "C" void cuda_rmsnorm_backward(struct device *device, struct matrix dx, struct matrix dw, struct matrix dy,
                                      struct matrix x, struct matrix w, const float *rstd, bool add_dx, bool add_dw)
{
    i64 rows = max_i64(ceil_div(x.rows, BLOCKS_MOST), ROWS_LEAST), blocks = ceil_div(x.rows, rows);
    struct matrix partials = {};
    if (dw.data)
        partials = matrix_of(cuda_workspace_of(device, "rmsnorm_backward", blocks * x.columns * 4), DTYPE_F32, blocks,
                             x.columns);
    struct norm_gradient g = {dx, dy, x, w, partials, rstd, rows, add_dx};
    LAUNCH_ROWS_OF_RUNS(device, in_quads(dx, dy, x, w), x.dtype, backward_rows, blocks, ceil_div(x.columns, HELD), g);
    if (dw.data)
        cuda_add_partials(device, (float *)dw.data, (const float *)partials.data, blocks, x.columns, add_dw);
}
