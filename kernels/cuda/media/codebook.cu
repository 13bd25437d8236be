/* Codebook training: moving averages, revival of dead words, and rounds of k-means. One warp owns
 * one word. It scans the codes of all rows, 32 at a time, and adds the rows assigned to its word in
 * order, in f64. */
#include "kernels/cuda/cuda.h"

#include "kernels/codebook.h"

enum { WARPS = 4, COLUMNS_OF_LANE = 4, COLUMNS_AT_ONCE = COLUMNS_OF_LANE * WARP_THREADS };

struct word_rows { /* rows that the words of a level average */
    const i32 *codes;
    const float *values;
    i64 n, codes_stride, stride;
};

/* Sums columns first + lane, first + lane + 32, ... over the rows with this code. Returns the
 * number of rows. */
__device__ static i64 gather_sums(double (&sum)[COLUMNS_OF_LANE], const struct word_rows &rows, i64 code, i64 first,
                                  i64 width)
{
    i64 count = 0;
    int lane = (int)threadIdx.x % WARP_THREADS;
    for (int j = 0; j < COLUMNS_OF_LANE; j++)
        sum[j] = 0;
    for (i64 i = 0; i < rows.n && rows.codes; i += WARP_THREADS) {
        bool mine = i + lane < rows.n && rows.codes[(i + lane) * rows.codes_stride] == code;
        unsigned found = __ballot_sync(0xffffffffu, mine);
        count += __popc(found);
        for (; found; found &= found - 1) {
            const float *row = rows.values + (i + __ffs((int)found) - 1) * rows.stride;
            for (int j = 0; j < COLUMNS_OF_LANE; j++) {
                i64 c = first + lane + j * WARP_THREADS;
                sum[j] += c < width ? (double)row[c] : 0;
            }
        }
    }
    return count;
}

__device__ static const float *drawn_row(const struct word_rows &rows, const struct codebooks &books, i64 level,
                                         i64 code, i64 attempt)
{
    u32 out[4];
    rng_draw_on_device(out, books.key, (u32)books.step, (u32)level, (u32)code, (u32)attempt);
    return rows.values + philox_below(out, rows.n) * rows.stride;
}

__device__ static void copy_row(float *word, const float *row, i64 width)
{
    for (i64 c = threadIdx.x % WARP_THREADS; c < width; c += WARP_THREADS)
        word[c] = row[c];
}

struct word_state {
    float *words, *use, *unseen; /* [L*K, d], [L*K] */
    i32 *revived;                /* [L*K] in the workspace */
};

static __global__ void move_words(struct word_state s, const i32 *codes, const float *residual, i64 n,
                                  struct codebooks books)
{
    grid_wait();
    i64 index = (i64)blockIdx.x * WARPS + threadIdx.x / WARP_THREADS, lane = threadIdx.x % WARP_THREADS;
    if (index >= books.levels * books.codes)
        return;
    i64 level = index / books.codes, code = index % books.codes, d = books.width, count = 0;
    struct word_rows rows = {codes + level, residual + level * d, n, books.levels, books.levels * d};
    double before = books.decay * (double)s.use[index], after = before, sum[COLUMNS_OF_LANE];
    float *word = s.words + index * d, unseen = s.unseen[index];
    for (i64 first = 0; first == 0 || first < d; first += COLUMNS_AT_ONCE) {
        count = gather_sums(sum, rows, code, first, d);
        after = moved_count(before, (double)count, books.decay);
        for (int j = 0; j < COLUMNS_OF_LANE && count > 0; j++) {
            i64 c = first + lane + j * WARP_THREADS;
            if (c < d)
                word[c] = moved_word(word[c], sum[j], before, after, books.decay);
        }
    }
    unseen = count > 0 ? 0 : unseen + 1;
    bool revived = is_worn((float)after, unseen, books.least, books.patience, (double)n / (double)books.codes);
    if (revived)
        copy_row(word, drawn_row(rows, books, level, code, 0), d);
    __syncwarp(); /* all lanes have read use and unseen */
    if (lane == 0) {
        s.use[index] = revived ? (float)n / (float)books.codes : (float)after;
        s.unseen[index] = revived ? 0 : unseen;
        s.revived[index] = revived;
    }
}

static __global__ void count_revived(double *revived, const i32 *flags, i64 count)
{
    grid_wait();
    double sum = 0;
    COLUMNS(i, count) sum += flags[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        revived[0] += sum;
}

extern "C" void cuda_codebook_move(struct device *device, float *words, float *use, float *unseen, double *revived,
                                   const i32 *codes, const float *residual, i64 n, const struct codebooks *books)
{
    i64 count = books->levels * books->codes;
    require(n > 0, "codebook_move of no rows: there is none to draw");
    if (count == 0)
        return;
    struct word_state state = {words, use, unseen, (i32 *)cuda_workspace_of(device, "codebook_move", count * 4)};
    LAUNCH(device, move_words, (unsigned)ceil_div(count, WARPS), WARPS * WARP_THREADS, 0, state, codes, residual, n,
           *books);
    LAUNCH(device, count_revived, 1, threads_for(count), 0, revived, state.revived, count);
}

static __global__ void mean_words(float *words, struct word_rows rows, i64 level, i64 attempt, struct codebooks books)
{
    grid_wait();
    i64 code = (i64)blockIdx.x * WARPS + threadIdx.x / WARP_THREADS, lane = threadIdx.x % WARP_THREADS, count = 0;
    if (code >= books.codes)
        return;
    float *word = words + code * books.width;
    double sum[COLUMNS_OF_LANE];
    for (i64 first = 0; first == 0 || first < books.width; first += COLUMNS_AT_ONCE) {
        count = gather_sums(sum, rows, code, first, books.width);
        for (int j = 0; j < COLUMNS_OF_LANE && count > 0; j++) {
            i64 c = first + lane + j * WARP_THREADS;
            if (c < books.width)
                word[c] = (float)(sum[j] / (double)count);
        }
    }
    if (count == 0)
        copy_row(word, drawn_row(rows, books, level, code, attempt), books.width);
}

extern "C" void cuda_codebook_mean(struct device *device, float *words, const i32 *codes, struct matrix x, i64 level,
                                   i64 attempt, const struct codebooks *books)
{
    require(x.rows > 0, "codebook_mean of no rows: there is none to draw");
    struct word_rows rows = {codes, (const float *)x.data, x.rows, 1, x.stride};
    if (books->codes > 0)
        LAUNCH(device, mean_words, (unsigned)ceil_div(books->codes, WARPS), WARPS * WARP_THREADS, 0, words, rows, level,
               attempt, *books);
}
