#include "kernels/cpu/rows.h"

/* The log-probability is that of the whole distribution at the given temperature, regardless of
 * top_k and top_p. At temperature 0 it is the limit, 0. */
struct sample_job {
    i32 *code;
    u8 *bits;
    float *logprob;
    struct matrix logits;
    const u32 *identity; /* [N, 4] */
    const struct sampling *sampling;
    i64 rows_tile;
};
struct sample_candidate {
    float p;
    i32 id;
};
enum { BLOCK = 64 };

static i32 largest(const float *x, i64 n)
{
    float most = row_max(x, n, DTYPE_F32);
    for (i64 i = 0; i < n; i++)
        if (x[i] == most)
            return (i32)i;
    return 0;
}

/* p = exp((x - most) / temperature); returns their sum. */
static float fill_probabilities(float *p, const float *x, float most, float temperature, i64 n)
{
    float scale = 1 / temperature, sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++) {
        p[i] = vector_exp((x[i] - most) * scale);
        sum += p[i];
    }
    return sum;
}

/* The first index of p [n] at which the running sum exceeds u times the total. Skips whole blocks
 * before it. */
static i32 draw(const float *p, i64 n, double u)
{
    double target = 0, sum = 0;
    for (i64 i = 0; i < n; i += BLOCK)
        target += u * row_sum(p + i, min_i64(BLOCK, n - i));
    i64 id = 0, last = 0;
    for (; id + BLOCK < n; id += BLOCK) {
        double block = row_sum(p + id, BLOCK);
        if (sum + block > target)
            break;
        sum += block;
    }
    for (; id < n; id++) {
        sum += p[id];
        if (p[id] > 0 && sum > target)
            return (i32)id;
    }
    /* The two ways of summing may differ in the last bit. */
    for (id = 0; id < n; id++)
        last = p[id] > 0 ? id : last;
    return (i32)last;
}

static bool before(struct sample_candidate a, struct sample_candidate b)
{
    return a.p > b.p || (a.p == b.p && a.id < b.id);
}

/* Heap operations; the top is the least probable. */
static void sift_down(struct sample_candidate *heap, i64 n, i64 at)
{
    struct sample_candidate moved = heap[at];
    for (i64 child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(heap[child], heap[child + 1]))
            child++;
        if (!before(moved, heap[child]))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void make_heap(struct sample_candidate *heap, i64 n)
{
    for (i64 i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
}

static void sort_heap(struct sample_candidate *heap, i64 n)
{
    while (--n > 0) {
        struct sample_candidate last = heap[0];
        heap[0] = heap[n];
        heap[n] = last;
        sift_down(heap, n, 0);
    }
}

/* Writes the `limit` most probable of those with p >= least in decreasing order. Returns their
 * number. */
static i64 most_probable(struct sample_candidate *out, const float *p, i64 n, i64 limit, float least)
{
    i64 count = 0;
    for (i64 i = 0; i < n; i++) {
        struct sample_candidate next = {p[i], (i32)i};
        if (next.p < least || (count == limit && !before(next, out[0])))
            continue;
        if (count < limit) {
            out[count++] = next;
            if (count == limit)
                make_heap(out, count);
        } else {
            out[0] = next;
            sift_down(out, count, 0);
        }
    }
    if (count < limit)
        make_heap(out, count);
    sort_heap(out, count);
    return count;
}

struct sample_nucleus { /* the first elements of a sorted list */
    i64 count;
    double mass;
};

/* Keeps the top_k most probable, and of those the fewest that hold top_p of their mass (Holtzman et
 * al. 2019). Without top_k, all that are below (1 - top_p) mass / n hold too little together to be
 * needed. */
static struct sample_nucleus find_nucleus(struct sample_candidate *list, const float *p, i64 n, float mass,
                                          const struct sampling *s)
{
    i64 limit = s->top_k > 0 ? min_i64(s->top_k, n) : n;
    float least = s->top_k > 0 ? 0 : 0.99f * (1 - s->top_p) * mass / (float)n; /* 0.99: sums are rounded */
    i64 count = most_probable(list, p, n, limit, least);
    double total = s->top_k > 0 ? 0 : mass;
    struct sample_nucleus kept = {0};
    for (i64 i = 0; s->top_k > 0 && i < count; i++)
        total += list[i].p;
    while (kept.count < count && (kept.count == 0 || kept.mass < s->top_p * total))
        kept.mass += list[kept.count++].p;
    return kept;
}

static i32 draw_most_probable(struct sample_candidate *list, const float *p, i64 n, float mass,
                              const struct sampling *s, double u)
{
    struct sample_nucleus kept = find_nucleus(list, p, n, mass, s);
    double sum = 0;
    for (i64 i = 0; i < kept.count; i++) {
        sum += list[i].p;
        if (sum > u * kept.mass)
            return list[i].id;
    }
    return list[0].id;
}

static bool cuts_off(const struct sampling *s)
{
    return s->top_k > 0 || s->top_p < 1;
}

static void sample_row(const struct sample_job *job, i64 row, const float *x, float *p, struct sample_candidate *list)
{
    const struct sampling *s = job->sampling;
    const u32 *identity = job->identity + row * 4;
    i64 n = job->logits.columns;
    if (s->temperature <= 0) {
        job->code[row] = largest(x, n);
        job->logprob[row] = 0;
        return;
    }
    float most = row_max(x, n, DTYPE_F32), mass = fill_probabilities(p, x, most, s->temperature, n);
    double u = rng_uniform(s->key, identity[0], identity[1], identity[2], identity[3]);
    i32 code = cuts_off(s) ? draw_most_probable(list, p, n, mass, s, u) : draw(p, n, u);
    job->code[row] = code;
    job->logprob[row] = (x[code] - most) / s->temperature - logf(mass);
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct sample_job *job = context;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    float *buffer = CPU(scratch)(worker, 0, n * 4), *p = CPU(scratch)(worker, 1, n * 4);
    struct sample_candidate *list = CPU(scratch)(worker, 2, n * (i64)sizeof *list);
    for (i64 i = begin; i < end; i++)
        sample_row(job, i, row_load(buffer, job->logits, i), p, list);
}

void CPU(sample)(struct device *device, i32 *code, float *logprob, struct matrix logits, const u32 *identity,
                 const struct sampling *sampling)
{
    (void)device;
    struct sample_job job = {
        .code = code, .logprob = logprob, .logits = logits, .identity = identity, .sampling = sampling};
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_tile, &job);
}

/* One draw serves four bits. The index of the four goes into the upper half of the identity's last
 * word, which levels leave free. The log-probability is the sum over the row's bits. */
static void sample_bits_row(const struct sample_job *job, i64 row, const float *x)
{
    const struct sampling *s = job->sampling;
    const u32 *identity = job->identity + row * 4;
    i64 n = job->logits.columns;
    u32 draws[4];
    double logprob = 0;
    for (i64 i = 0; i < n; i++) {
        u8 *bit = &job->bits[row * n + i];
        if (s->temperature <= 0) {
            *bit = x[i] > 0;
            continue;
        }
        if (i % 4 == 0)
            rng_draw(draws, s->key, identity[0], identity[1], identity[2], identity[3] ^ (u32)(i / 4) << 16);
        float scaled = x[i] / s->temperature;
        *bit = draws[i % 4] * 0x1p-32 < vector_sigmoid(scaled);
        logprob -= vector_softplus(*bit ? -scaled : scaled);
    }
    job->logprob[row] = (float)logprob;
}

static void run_bits(void *context, i64 tile, int worker)
{
    const struct sample_job *job = context;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    float *buffer = CPU(scratch)(worker, 0, n * 4);
    for (i64 i = begin; i < end; i++)
        sample_bits_row(job, i, row_load(buffer, job->logits, i));
}

void CPU(sample_bits)(struct device *device, u8 *bits, float *logprob, struct matrix logits, const u32 *identity,
                      const struct sampling *sampling)
{
    (void)device;
    struct sample_job job = {
        .bits = bits, .logprob = logprob, .logits = logits, .identity = identity, .sampling = sampling};
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_bits, &job);
}
