#include "kernels/cuda/cuda.h"

/* Nearest word by |r - c|^2 = |r|^2 + |c|^2 - 2 r.c; the first term is the same for all words and
 * is dropped. A block keeps ROWS rows through all levels. It multiplies them by WORDS words at a
 * time, STEP columns at a time, in f32, because the products decide the nearest word. Each thread
 * handles the words lane, lane + LANES, ... of some rows. */
enum { ROWS = 32, WORDS = 64, STEP = 16, LANES = 16, ROWS_OF_THREAD = ROWS * LANES / BLOCK_THREADS };
enum { WORDS_OF_THREAD = WORDS / LANES, NO_WORD = 0x7fffffff };

struct vectors_problem {
    i32 *codes;
    float *sum, *residual, *rest, *norms; /* workspace: rest [rows, d], norms [levels * words] */
    struct matrix x;
    const float *books;
    i64 first, rows, levels, words; /* rows of this piece */
};

static __global__ void word_norms(float *norms, const float *books, i64 words, i64 d)
{
    grid_wait();
    GRID_STRIDE(i, words * WARP_THREADS)
    {
        i64 word = i / WARP_THREADS, lane = i % WARP_THREADS;
        float sum = 0;
        for (i64 c = lane; c < d; c += WARP_THREADS)
            sum = fmaf(books[word * d + c], books[word * d + c], sum);
        for (int step = WARP_THREADS / 2; step; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0)
            norms[word] = sum;
    }
}

struct nearest_word {
    float distance;
    i32 word;
};
__device__ static bool is_nearer(struct nearest_word a, struct nearest_word b)
{
    return a.distance < b.distance || (a.distance == b.distance && a.word < b.word);
}

/* Loads STEP columns of `count` rows of `from`, transposed. Zeros past the ends. */
template <int rows> __device__ static void load_transposed(float *tile, const float *from, i64 count, i64 d, i64 column)
{
    for (int i = (int)threadIdx.x; i < rows * STEP; i += BLOCK_THREADS) {
        i64 row = i / STEP, c = i % STEP;
        tile[c * (rows + 1) + row] = row < count && column + c < d ? from[row * d + column + c] : 0.0f;
    }
}

__device__ static void multiply_words(float (&sum)[ROWS_OF_THREAD][WORDS_OF_THREAD], const float *rest, i64 rows,
                                      const float *book, i64 words, i64 d)
{
    SHARED(float, a, STEP *(ROWS + 1));
    SHARED(float, b, STEP *(WORDS + 1));
    int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
    for (i64 column = 0; column < d; column += STEP) {
        __syncthreads();
        load_transposed<ROWS>(a, rest, rows, d, column);
        load_transposed<WORDS>(b, book, words, d, column);
        __syncthreads();
#pragma unroll
        for (int c = 0; c < STEP; c++)
#pragma unroll
            for (int i = 0; i < ROWS_OF_THREAD; i++)
#pragma unroll
                for (int j = 0; j < WORDS_OF_THREAD; j++)
                    sum[i][j] = fmaf(a[c * (ROWS + 1) + group * ROWS_OF_THREAD + i],
                                     b[c * (WORDS + 1) + lane + j * LANES], sum[i][j]);
    }
}

/* Writes the nearest word of each of the block's rows to `found`: the smallest id on ties, 0 if all
 * distances are NaN. */
__device__ static void find_nearest(i32 *found, const struct vectors_problem &p, const float *rest, i64 rows, i64 level)
{
    struct nearest_word best[ROWS_OF_THREAD];
    int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
    for (int i = 0; i < ROWS_OF_THREAD; i++)
        best[i] = {INFINITY, NO_WORD};
    for (i64 word = 0; word < p.words; word += WORDS) {
        float sum[ROWS_OF_THREAD][WORDS_OF_THREAD] = {};
        const float *norms = p.norms + level * p.words;
        multiply_words(sum, rest, rows, p.books + (level * p.words + word) * p.x.columns, p.words - word, p.x.columns);
        for (int i = 0; i < ROWS_OF_THREAD; i++)
            for (int j = 0; j < WORDS_OF_THREAD; j++) {
                i64 id = word + lane + j * LANES;
                struct nearest_word other = {id < p.words ? fmaf(-2.0f, sum[i][j], norms[id]) : NAN, (i32)id};
                if (is_nearer(other, best[i]))
                    best[i] = other;
            }
    }
    for (int i = 0; i < ROWS_OF_THREAD; i++) {
        for (int step = LANES / 2; step; step /= 2) {
            struct nearest_word other = {__shfl_xor_sync(0xffffffffu, best[i].distance, step),
                                         __shfl_xor_sync(0xffffffffu, best[i].word, step)};
            if (is_nearer(other, best[i]))
                best[i] = other;
        }
        if (lane == 0)
            found[group * ROWS_OF_THREAD + i] = best[i].word == NO_WORD ? 0 : best[i].word;
    }
}

static __global__ void walk_levels(struct vectors_problem p)
{
    grid_wait();
    SHARED(i32, found, ROWS);
    i64 d = p.x.columns, piece = (i64)blockIdx.x * ROWS, first = p.first + piece;
    i64 rows = p.rows - piece < ROWS ? p.rows - piece : (i64)ROWS;
    float *rest = p.rest + piece * d, *sum = p.sum + first * d;
    COLUMNS(i, rows * d)
    {
        rest[i] = element_of(p.x, first + i / d, i % d);
        sum[i] = 0;
    }
    for (i64 level = 0; level < p.levels; level++) {
        __syncthreads();
        find_nearest(found, p, rest, rows, level);
        __syncthreads();
        COLUMNS(i, rows)
        p.codes[(first + i) * p.levels + level] = found[i];
        COLUMNS(i, rows * d)
        {
            i64 row = i / d, c = i % d;
            float word = p.books[(level * p.words + found[row]) * d + c], before = rest[i];
            if (p.residual)
                p.residual[((first + row) * p.levels + level) * d + c] = before;
            sum[i] += word;
            rest[i] = before - word;
        }
    }
}

extern "C" void cuda_quantize_vectors(struct device *device, i32 *codes, float *sum, float *residual, struct matrix x,
                                      const float *codebooks, i64 levels, i64 codes_count)
{
    i64 norms = round_up(levels * codes_count, 32), d = max_i64(x.columns, 1);
    float *memory = (float *)cuda_workspace_of(device, "quantize_vectors", (norms + min_i64(x.rows, ROWS) * d) * 4);
    i64 most = (cuda_handles_of(device)->workspace_bytes / 4 - norms) / d, piece = max_i64(most / ROWS, 1) * ROWS;
    struct vectors_problem p = {codes, sum, residual, memory + norms, memory, x, codebooks, 0, 0, levels, codes_count};
    if (x.rows == 0 || levels == 0)
        return;
    LAUNCH(device, word_norms, blocks_for(levels * codes_count * WARP_THREADS), BLOCK_THREADS, 0, p.norms, codebooks,
           levels * codes_count, x.columns);
    for (; p.first < x.rows; p.first += piece) {
        p.rows = min_i64(piece, x.rows - p.first);
        LAUNCH(device, walk_levels, (unsigned)ceil_div(p.rows, ROWS), BLOCK_THREADS, 0, p);
    }
}
