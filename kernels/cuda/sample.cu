/* Draws from logits, a block a row. Nothing is sorted: the level of logits that holds the k-th, the end of the nucleus
 * or the draw is found by narrowing an interval of levels, each pass over the row measuring what lies above three cuts.
 * A row of 150k bf16 is read up to three times 16 times from L2. Sums are f64, over threads in a fixed tree. */
#include "kernels/cuda/cuda.h"

enum { WIDE = 1 << 13, WIDE_THREADS = 1024, CUTS = 3, SEGMENTS = 256 };

template <typename T> struct row {
    const T *x;
    i64 n;
    float most, scale; /* p = exp((x - most) scale) */
};

/* Floats as numbers of the same order. */
__device__ static u32 level_of(float x)
{
    u32 bits = __float_as_uint(x == 0 ? 0 : x); /* -0 is 0 */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ static float value_of(u32 level)
{
    return __uint_as_float(level & 0x80000000u ? level & 0x7fffffffu : ~level);
}

template <typename T> __device__ static double probability(const struct row<T> &row, float x)
{
    return (double)expf((x - row.most) * row.scale);
}

struct found {
    u32 level;
    double above; /* mass or number of what is above that level */
};
struct goal {
    double amount;
    bool passed, counted; /* more than the amount, or at least; numbers, or masses */
};

/* NaN reaches all and is reached by all. */
__device__ static bool reached(const struct goal &goal, double sum)
{
    return goal.passed ? !(sum <= goal.amount) : !(sum < goal.amount);
}

/* The highest level in [low, high) such that it and what is above reach the goal; low does, high counts as if it did
 * not. One of the row has that level, whatever the goal, if one has high - 1. */
template <typename T>
__device__ static struct found find_level(const struct row<T> &row, u64 low, u64 high, const struct goal &goal)
{
    double above = 0;
    while (high - low > 1) {
        u64 step = (high - low) / (CUTS + 1) > 0 ? (high - low) / (CUTS + 1) : 1;
        double sums[CUTS] = {0};
        COLUMNS(i, row.n)
        {
            float x = to_f32(row.x[i]);
            u64 level = level_of(x);
            if (level < low + step)
                continue;
            double mass = goal.counted ? 1 : probability(row, x);
            for (int cut = 0; cut < CUTS; cut++)
                sums[cut] += level >= low + (u64)(cut + 1) * step ? mass : 0;
        }
        for (int cut = 0; cut < CUTS; cut++)
            sums[cut] = block_sum(sums[cut]);
        int cut = CUTS;
        while (cut > 0 && (low + (u64)cut * step >= high || !reached(goal, sums[cut - 1])))
            cut--;
        if (cut < CUTS) {
            high = low + (u64)(cut + 1) * step;
            above = sums[cut];
        }
        low += (u64)cut * step;
    }
    return {(u32)low, above};
}

template <typename T> __device__ static double mass_from(const struct row<T> &row, u64 level)
{
    double mass = 0;
    COLUMNS(i, row.n)
    {
        float x = to_f32(row.x[i]);
        if (level_of(x) >= level)
            mass += probability(row, x);
    }
    return block_sum(mass);
}

/* The nth id, from 1, of a level; the last one where there are fewer. */
template <typename T> __device__ static i32 find_id(const struct row<T> &row, u32 level, i64 nth)
{
    SHARED(i32, id, 1);
    SHARED(int, counts, WIDE_THREADS / WARP_THREADS);
    i64 before = 0;
    int warp = threadIdx.x / WARP_THREADS, lane = threadIdx.x % WARP_THREADS, warps = blockDim.x / WARP_THREADS;
    for (i64 first = 0; first < row.n && before < nth; first += blockDim.x) {
        i64 i = first + threadIdx.x, rank = before;
        bool is = i < row.n && level_of(to_f32(row.x[i])) == level;
        unsigned same = __ballot_sync(0xffffffffu, is);
        if (lane == 0)
            counts[warp] = __popc(same);
        __syncthreads();
        for (int w = 0; w < warps; w++) {
            rank += w < warp ? counts[w] : 0;
            before += counts[w];
        }
        rank += __popc(same & ((1u << lane) - 1)) + 1;
        if (is && (rank == nth || (rank == before && before < nth)))
            id[0] = (i32)i;
        __syncthreads();
    }
    return id[0];
}

struct kept { /* what is above the last level, and of that one the first `ties` ids */
    struct found last;
    double ties, mass;
};

/* From the top_k most probable, of those the fewest that hold top_p of their mass (Holtzman et al. 2019). */
template <typename T>
__device__ static struct kept keep_most_probable(const struct row<T> &row, double mass, const struct sampling &s)
{
    u64 end = (u64)level_of(row.most) + 1;
    struct found last = {0, 0};
    double ties = (double)row.n, kept = mass;
    if (s.top_k > 0 && s.top_k < row.n) {
        last = find_level(row, 0, end, {(double)s.top_k, false, true});
        ties = (double)s.top_k - last.above;
        kept = mass_from(row, (u64)last.level + 1) + ties * probability(row, value_of(last.level));
    }
    if (s.top_p < 1) {
        struct found nucleus = find_level(row, last.level, end, {(double)s.top_p * kept, false, false});
        double p = probability(row, value_of(nucleus.level)), needed = ceil((s.top_p * kept - nucleus.above) / p);
        ties = fmin(fmax(needed, 1.0), nucleus.level == last.level ? ties : (double)row.n);
        kept = nucleus.above + ties * p;
        last = nucleus;
    }
    return {last, ties, kept};
}

template <typename T>
__device__ static i32 draw_most_probable(const struct row<T> &row, double mass, const struct sampling &s, double u)
{
    u64 end = (u64)level_of(row.most) + 1;
    struct kept kept = keep_most_probable(row, mass, s);
    double target = u * kept.mass;
    struct found drawn = find_level(row, kept.last.level, end, {target, true, false});
    double p = probability(row, value_of(drawn.level)), nth = p > 0 ? floor((target - drawn.above) / p) + 1 : 1;
    nth = fmin(fmax(nth, 1.0), drawn.level == kept.last.level ? kept.ties : (double)row.n);
    return find_id(row, drawn.level, (i64)nth);
}

__device__ static bool cuts_off(const struct sampling &s)
{
    return s.top_k > 0 || s.top_p < 1;
}

template <typename T> __device__ static double warp_mass(const struct row<T> &row, i64 begin, i64 end)
{
    double mass = 0;
    for (i64 i = begin + threadIdx.x % WARP_THREADS; i < end; i += WARP_THREADS)
        mass += probability(row, to_f32(row.x[i]));
    for (int step = WARP_THREADS / 2; step; step /= 2)
        mass += __shfl_xor_sync(0xffffffffu, mass, step);
    return mass;
}

/* By one warp: the first of [begin, end) at which a running sum passes the target; the last that is possible where the
 * two ways of summing differ in the last bit. */
template <typename T>
__device__ static i64 pass_target(const struct row<T> &row, i64 begin, i64 end, double sum, double target)
{
    int lane = threadIdx.x % WARP_THREADS;
    i64 last = begin;
    for (i64 first = begin; first < end; first += WARP_THREADS) {
        double p = first + lane < end ? probability(row, to_f32(row.x[first + lane])) : 0, running = p;
        for (int step = 1; step < WARP_THREADS; step *= 2) {
            double below = __shfl_up_sync(0xffffffffu, running, step);
            running += lane >= step ? below : 0;
        }
        unsigned possible = __ballot_sync(0xffffffffu, p > 0);
        unsigned passed = __ballot_sync(0xffffffffu, p > 0 && sum + running > target);
        if (passed)
            return first + __ffs((int)passed) - 1;
        if (possible)
            last = first + WARP_THREADS - 1 - __clz((int)possible);
        sum += __shfl_sync(0xffffffffu, running, WARP_THREADS - 1);
    }
    return last;
}

/* The first id at which the running sum passes u of the total. Warps sum segments; the one in which that happens is
 * walked. */
template <typename T> __device__ static i32 draw_all(const struct row<T> &row, double u)
{
    SHARED(double, masses, SEGMENTS);
    SHARED(i32, id, 1);
    i64 length = (row.n + SEGMENTS - 1) / SEGMENTS, count;
    length = (length + WARP_THREADS - 1) / WARP_THREADS * WARP_THREADS;
    count = (row.n + length - 1) / length;
    for (i64 s = threadIdx.x / WARP_THREADS; s < count; s += blockDim.x / WARP_THREADS) {
        double mass = warp_mass(row, s * length, s * length + length < row.n ? s * length + length : row.n);
        if (threadIdx.x % WARP_THREADS == 0)
            masses[s] = mass;
    }
    __syncthreads();
    if (threadIdx.x < WARP_THREADS) {
        double target = 0, sum = 0;
        i64 s = 0;
        for (i64 i = 0; i < count; i++)
            target += u * masses[i];
        while (s + 1 < count && sum + masses[s] <= target)
            sum += masses[s++];
        while (s > 0 && masses[s] == 0) /* nothing past it is possible */
            sum -= masses[--s];
        i64 end = (s + 1) * length < row.n ? (s + 1) * length : row.n;
        i32 passed = (i32)pass_target(row, s * length, end, sum, target);
        if (threadIdx.x == 0)
            id[0] = passed;
    }
    __syncthreads();
    return id[0];
}

/* The highest level of a row, and of its ids the smallest, inverted. */
template <typename T> __device__ static u64 find_best(const T *x, i64 n)
{
    u64 best = 0;
    COLUMNS(i, n)
    {
        u64 candidate = (u64)level_of(to_f32(x[i])) << 32 | (u32) ~(u32)i;
        best = candidate > best ? candidate : best;
    }
    return block_combine(best, (u64)0, larger());
}

template <typename T>
static __global__ __launch_bounds__(WIDE_THREADS) void draw_codes(i32 *code, float *logprob, struct matrix logits,
                                                                  const u32 *identity, struct sampling s)
{
    grid_wait();
    i64 index = blockIdx.x;
    const T *x = row_of<T>(logits, index);
    u64 best = find_best(x, logits.columns);
    bool greedy = s.temperature <= 0;
    struct row<T> row = {
        x, logits.columns, value_of((u32)(best >> 32)), greedy ? 1 : 1 / s.temperature
    };
    i32 drawn = (i32) ~(u32)best;
    double mass = 1;
    if (!greedy) {
        const u32 *key = identity + index * 4;
        double u = rng_uniform_on_device(s.key, key[0], key[1], key[2], key[3]);
        mass = mass_from(row, 0);
        drawn = cuts_off(s) ? draw_most_probable(row, mass, s, u) : draw_all(row, u);
    }
    if (threadIdx.x > 0)
        return;
    code[index] = drawn;
    logprob[index] = greedy ? 0 : (to_f32(x[drawn]) - row.most) / s.temperature - (float)log(mass);
}

extern "C" void cuda_sample(struct device *device, i32 *code, float *logprob, struct matrix logits, const u32 *identity,
                            const struct sampling *sampling)
{
    unsigned threads = logits.columns >= WIDE ? (unsigned)WIDE_THREADS : threads_for(logits.columns);
    if (logits.rows > 0)
        LAUNCH_BY_DTYPE(device, logits.dtype, draw_codes, (unsigned)logits.rows, threads, 0, code, logprob, logits,
                        identity, *sampling);
}

/* A row of probabilities: 0 below the last level that is kept, and of that one past the last id. */
template <typename T>
static __global__ __launch_bounds__(WIDE_THREADS) void fill_probabilities(struct matrix out, struct matrix logits,
                                                                          struct sampling s)
{
    grid_wait();
    const T *x = row_of<T>(logits, blockIdx.x);
    float *p = row_of<float>(out, blockIdx.x);
    u64 best = find_best(x, logits.columns);
    bool greedy = s.temperature <= 0;
    struct row<T> row = {
        x, logits.columns, value_of((u32)(best >> 32)), greedy ? 1 : 1 / s.temperature
    };
    struct kept kept = {{(u32)(best >> 32), 0}, 1, 1};
    if (!greedy)
        kept = {{0, 0}, (double)row.n, mass_from(row, 0)};
    if (!greedy && cuts_off(s))
        kept = keep_most_probable(row, kept.mass, s);
    u32 least = kept.last.level;
    i64 last = least > 0 ? find_id(row, least, (i64)kept.ties) : -1;
    COLUMNS(i, row.n)
    {
        float value = to_f32(x[i]);
        u32 level = level_of(value);
        bool is = level > least || (level == least && i <= last);
        p[i] = is ? (float)(probability(row, value) / kept.mass) : 0;
    }
}

extern "C" void cuda_probabilities(struct device *device, struct matrix out, struct matrix logits,
                                   const struct sampling *sampling)
{
    unsigned threads = logits.columns >= WIDE ? (unsigned)WIDE_THREADS : threads_for(logits.columns);
    require(out.dtype == DTYPE_F32 && out.rows == logits.rows && out.columns == logits.columns,
            "probabilities of other rows, or of %s", dtype_name(out.dtype));
    if (logits.rows > 0)
        LAUNCH_BY_DTYPE(device, logits.dtype, fill_probabilities, (unsigned)logits.rows, threads, 0, out, logits,
                        *sampling);
}

__device__ static float softplus(float x)
{
    return fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
}

/* A thread four bits, which one draw serves; which four is the upper half of the identity's last word. */
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
