/* Sampling from logits, one block per row. Nothing is sorted. A bisection over the ordered bit
 * patterns of floats (levels) finds the level of the k-th logit, the end of the nucleus, or the
 * draw; each pass over the row measures the mass above 3 cuts, so 16 passes suffice. For a wide
 * row, the candidates are first copied to shared memory if there are few of them. Sums are f64, in
 * a fixed tree of threads. */
#include "kernels/cuda/draw/draw.h"

enum { CUTS = 3, CANDIDATES_MOST = WIDE, BINS = WIDE_THREADS };
constexpr float BINS_PER_NAT = 16;

template <typename T> struct row {
    const T *x;
    const i32 *ids; /* NULL: 0, 1, ... */
    i64 n;
    float most, scale; /* p = exp((x - most) scale) */

    __device__ float operator()(i64 i) const { return to_f32(x[i]); }
};

/* Maps a float to an integer of the same order, and back. */
__device__ static u32 level_of(float x)
{
    u32 bits = __float_as_uint(x == 0 ? 0 : x); /* -0 becomes 0 */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ static float value_of(u32 level)
{
    return __uint_as_float(level & 0x80000000u ? level & 0x7fffffffu : ~level);
}

template <typename T> __device__ static float probability(const struct row<T> &row, float x)
{
    return expf((x - row.most) * row.scale);
}

/* Sums over the block; every thread gets the result. */
template <int N> __device__ static void sum_all(double (&sums)[N])
{
    SHARED(double, warps, N *(WIDE_THREADS / WARP_THREADS));
    unsigned lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS, count = blockDim.x / WARP_THREADS;
    __syncthreads(); /* for the previous call */
#pragma unroll
    for (int k = 0; k < N; k++) {
        sums[k] = warp_combine(sums[k], sum_operator());
        if (lane == 0)
            warps[k * count + warp] = sums[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++)
        sums[k] = warp_combine(lane < count ? warps[k * count + lane] : 0, sum_operator());
}

struct sample_level {
    u32 level;
    double above; /* mass or count above that level */
};
struct sample_goal {
    double amount;
    bool passed, counted; /* passed: sum > amount, else sum >= amount; counted: counts, else masses */
};

/* True if the sum reaches the goal. A NaN reaches every goal, and any sum reaches a NaN goal. */
__device__ static bool reached(const struct sample_goal &goal, double sum)
{
    return goal.passed ? !(sum <= goal.amount) : !(sum < goal.amount);
}

/* The highest level of low .. high such that the elements at or above it reach the goal. `low` is
 * assumed to reach it, and the elements above `high` not to. If an element has level `high`, then
 * some element has the returned level, whatever the goal. */
template <typename T>
__device__ static struct sample_level find_level(const struct row<T> &row, u32 low, u32 high,
                                                 const struct sample_goal &goal)
{
    double above = 0;
    while (low < high) {
        u32 step = (high - low) / (CUTS + 1) > 0 ? (high - low) / (CUTS + 1) : 1, lowest = low, width = high - low;
        double sums[CUTS] = {0};
        visit_row(row.n, row, [&](i64, float x) {
            u32 level = level_of(x);
            double mass = goal.counted ? 1 : (double)probability(row, x);
#pragma unroll
            for (int cut = 0; cut < CUTS; cut++)
                sums[cut] += level >= lowest + (u32)(cut + 1) * step ? mass : 0;
        });
        sum_all(sums);
#pragma unroll
        for (int cut = CUTS; cut-- > 0;) {
            u32 up = (u32)(cut + 1) * step;
            if (up > width || low > lowest)
                continue;
            if (reached(goal, sums[cut]))
                low = lowest + up;
            else
                high = lowest + up - 1, above = sums[cut];
        }
    }
    return {low, above};
}

template <typename T> __device__ static double mass_from(const struct row<T> &row, u64 level)
{
    double mass[1] = {0};
    visit_row(row.n, row, [&](i64, float x) { mass[0] += level_of(x) >= level ? (double)probability(row, x) : 0; });
    sum_all(mass);
    return mass[0];
}

/* The nth id (from 1) of a level, or the last one if there are fewer. */
template <typename T> __device__ static i32 find_id(const struct row<T> &row, u32 level, i64 nth)
{
    i32 last = 0;
    visit_ranked(
        row.n, nth, row, [&](float x) { return level_of(x) == level; },
        [&](i64 rank, i64 i, float) { last = rank <= nth ? (i32)i : last; });
    last = block_combine(last, 0, max_operator());
    return row.ids ? row.ids[last] : last;
}

struct nucleus_cut { /* all above the last level, and the first `ties` ids of it */
    struct sample_level last;
    double ties, mass;
};

/* Among the top_k most probable, the fewest that hold top_p of their mass (Holtzman et al. 2019).
 */
template <typename T>
__device__ static struct nucleus_cut find_nucleus(const struct row<T> &row, double mass, const struct sampling &s)
{
    u32 end = level_of(row.most);
    struct sample_level last = {0, 0};
    double ties = (double)row.n, kept = mass;
    if (s.top_k > 0) {
        double count = s.top_k < row.n ? (double)s.top_k : (double)row.n;
        last = find_level(row, 0, end, {count, false, true});
        ties = count - last.above;
        kept = mass_from(row, (u64)last.level + 1) + ties * (double)probability(row, value_of(last.level));
    }
    if (s.top_p < 1) {
        struct sample_level nucleus = find_level(row, last.level, end, {(double)s.top_p * kept, false, false});
        double p = (double)probability(row, value_of(nucleus.level)),
               needed = ceil((s.top_p * kept - nucleus.above) / p);
        ties = fmin(fmax(needed, 1.0), nucleus.level == last.level ? ties : (double)row.n);
        kept = nucleus.above + ties * p;
        last = nucleus;
    }
    return {last, ties, kept};
}

__device__ static double uniform_of(const struct sampling &s, const u32 *identity)
{
    const u32 *key = identity + (i64)blockIdx.x * 4;
    return rng_uniform_on_device(s.key, key[0], key[1], key[2], key[3]);
}

template <typename T>
__device__ static i32 draw_most_probable(const struct row<T> &row, double mass, const struct sampling &s,
                                         const u32 *identity)
{
    u32 end = level_of(row.most);
    struct nucleus_cut kept = find_nucleus(row, mass, s);
    double target = uniform_of(s, identity) * kept.mass;
    struct sample_level drawn = find_level(row, kept.last.level, end, {target, true, false});
    double p = (double)probability(row, value_of(drawn.level)), nth = p > 0 ? floor((target - drawn.above) / p) + 1 : 1;
    nth = fmin(fmax(nth, 1.0), drawn.level == kept.last.level ? kept.ties : (double)row.n);
    return find_id(row, drawn.level, (i64)nth);
}

/* ---- Candidates in shared memory ---- */
__host__ __device__ static bool cuts_off(const struct sampling &s)
{
    return s.temperature > 0 && (s.top_k > 0 || s.top_p < 1);
}

static size_t candidates_bytes(const struct sampling &s)
{
    return cuts_off(s) ? CANDIDATES_MOST * (sizeof(float) + sizeof(i32)) : 0;
}

/* Histogram bin of a logit by its distance to the maximum; the last bin holds the rest. */
template <typename T> __device__ static i32 bin_of(const struct row<T> &row, float x)
{
    return (i32)fminf((row.most - x) * row.scale * BINS_PER_NAT, BINS - 1);
}

/* Returns the mass of the row and fills the histogram. */
template <typename T> __device__ static double fill_bins(i32 *counts, const struct row<T> &row)
{
    double mass[1] = {0};
    counts[threadIdx.x] = 0;
    __syncthreads();
    visit_row(row.n, row, [&](i64, float x) {
        i32 bin = bin_of(row, x);
        mass[0] += (double)probability(row, x);
        if (bin < BINS - 1)
            atomicAdd(&counts[bin], 1);
    });
    sum_all(mass);
    return mass[0];
}

/* The first bin such that it and the bins before it certainly contain everything kept: with top_k
 * at least k elements, otherwise the mass after it is at most what top_p cuts off. BINS if there is
 * none, or if it holds more than CANDIDATES_MOST elements. */
__device__ static i32 find_bin(const i32 *counts, i64 n, double mass, const struct sampling &s)
{
    const double more = 1.001; /* margin for the rounded bin edges */
    i32 bin = (i32)threadIdx.x, count = bin < BINS - 1 ? counts[bin] : 0, all;
    double most = count * (double)expf(-(float)bin / BINS_PER_NAT), total;
    i64 number = block_scan(count, &all) + count;
    double behind = -most - block_scan(most, &total);
    behind += total + (double)(n - all) * (double)expf(-(float)(BINS - 1) / BINS_PER_NAT);
    bool holds = s.top_k > 0 ? number >= (s.top_k < n ? s.top_k : n) : more * behind <= (1 - (double)s.top_p) * mass;
    return BINS - block_combine(holds && number <= CANDIDATES_MOST ? BINS - bin : 0, 0, max_operator());
}

/* Returns the row's mass and copies the candidates if they are few; otherwise out->n is 0.
 * `candidates` has room for CANDIDATES_MOST values and as many ids. */
template <typename T>
__device__ static double gather_candidates(struct row<float> *out, float *candidates, const struct row<T> &row,
                                           const struct sampling &s)
{
    SHARED(i32, counts, BINS);
    i32 *ids = (i32 *)(candidates + CANDIDATES_MOST);
    bool fits = row.n <= CANDIDATES_MOST;
    double mass = fits ? mass_from(row, 0) : fill_bins(counts, row);
    i32 last = fits ? BINS : find_bin(counts, row.n, mass, s);
    i64 count = 0;
    if (fits || last < BINS)
        count = visit_ranked(
            row.n, row.n, row, [&](float x) { return bin_of(row, x) <= last; },
            [&](i64 rank, i64 i, float x) { candidates[rank - 1] = x, ids[rank - 1] = (i32)i; });
    __syncthreads();
    *out = {candidates, ids, count, row.most, row.scale};
    return mass;
}

/* The highest level of a row, and below it (in the low 32 bits, inverted) the smallest id that has
 * it. */
template <typename T> __device__ static u64 find_best(const T *x, i64 n)
{
    u32 level = 0;
    i64 best = 0;
    visit_row(
        n, [&](i64 i) { return to_f32(x[i]); },
        [&](i64 i, float value) {
            best = level_of(value) > level ? i : best;
            level = level_of(value) > level ? level_of(value) : level;
        });
    return block_combine((u64)level << 32 | (u32) ~(u32)best, (u64)0, max_operator());
}

template <typename T> __device__ static row<T> row_at(struct matrix logits, float most, float temperature)
{
    return {row_of<T>(logits, blockIdx.x), NULL, logits.columns, most, temperature > 0 ? 1 / temperature : 1};
}

template <typename T>
static __global__ __launch_bounds__(WIDE_THREADS) void draw_codes(i32 *code, float *logprob, struct matrix logits,
                                                                  const u32 *identity, struct sampling s)
{
    DYNAMIC_SHARED(float, shared);
    grid_wait();
    i64 index = blockIdx.x;
    u64 best = find_best(row_of<T>(logits, index), logits.columns);
    struct row<T> all = row_at<T>(logits, value_of((u32)(best >> 32)), s.temperature);
    i64 drawn = (u32) ~(u32)best;
    float log_mass = 0;
    double mass;
    if (cuts_off(s)) {
        struct row<float> candidates;
        mass = gather_candidates(&candidates, shared, all, s);
        log_mass = (float)log(mass);
        drawn = candidates.n > 0 ? draw_most_probable(candidates, mass, s, identity)
                                 : draw_most_probable(all, mass, s, identity);
    } else if (s.temperature > 0) {
        i64 passed =
            draw_by_weight(&mass, all.n, uniform_of(s, identity), all, [&](float x) { return probability(all, x); });
        log_mass = (float)log(mass);
        drawn = passed < 0 ? drawn : passed;
    }
    if (threadIdx.x > 0)
        return;
    code[index] = (i32)drawn;
    logprob[index] = s.temperature > 0 ? (all(drawn) - all.most) / s.temperature - log_mass : 0;
}

extern "C" void cuda_sample(struct device *device, i32 *code, float *logprob, struct matrix logits, const u32 *identity,
                            const struct sampling *sampling)
{
    if (logits.rows > 0)
        LAUNCH_BY_DTYPE(device, logits.dtype, draw_codes, (unsigned)logits.rows, threads_of_row(logits.columns),
                        candidates_bytes(*sampling), code, logprob, logits, identity, *sampling);
}

__device__ static float softplus(float x)
{
    return fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
}

/* One thread draws four bits from one random block. The index of the four is mixed into the upper
 * half of the identity's last word. */
template <typename T>
static __global__ void draw_bits(u8 *bits, float *logprob, struct matrix logits, const u32 *identity, struct sampling s)
{
    grid_wait();
    i64 row = blockIdx.x, n = logits.columns;
    const T *x = row_of<T>(logits, row);
    const u32 *key = identity + row * 4;
    double sum = 0;
    COLUMNS(group, (n + 3) / 4)
    {
        u32 draws[4];
        rng_draw_on_device(draws, s.key, key[0], key[1], key[2], key[3] ^ (u32)group << 16);
        for (int k = 0; k < 4 && group * 4 + k < n; k++) {
            i64 i = group * 4 + k;
            float scaled = s.temperature > 0 ? to_f32(x[i]) / s.temperature : 0;
            bool bit = s.temperature > 0 ? draws[k] * 0x1p-32 < (double)sigmoid(scaled) : to_f32(x[i]) > 0;
            bits[row * n + i] = bit;
            sum -= s.temperature > 0 ? (double)softplus(bit ? -scaled : scaled) : 0;
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        logprob[row] = (float)sum;
}

extern "C" void cuda_sample_bits(struct device *device, u8 *bits, float *logprob, struct matrix logits,
                                 const u32 *identity, const struct sampling *sampling)
{
    LAUNCH_ROWS(device, logits.dtype, draw_bits, logits.rows, ceil_div(logits.columns, 4), bits, logprob, logits,
                identity, *sampling);
}
