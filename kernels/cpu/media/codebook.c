/* Training of codebooks: moving averages, revival of unused codes, rounds of k-means. Sums run over
 * rows in order. */
#include "kernels/codebook.h"
#include "kernels/cpu/cpu.h"

enum { SLOT_COUNTS, SLOT_SUMS, SLOT_REVIVED };

/* The rows that update the words of a level. */
struct codebook_rows {
    const i32 *codes;
    const float *values;
    i64 n, codes_stride, stride;
};
struct codebook_level { /* one level */
    const struct codebooks *books;
    float *words, *use, *unseen; /* [K, d], [K], [K] */
    double *counts, *sums;       /* counts [K] and sums [K, d] of each code's rows */
    i64 level, attempt;
};

static void open_sums(struct codebook_level *b, int worker)
{
    i64 k = b->books->codes;
    b->counts = CPU(scratch)(worker, SLOT_COUNTS, k * 8);
    b->sums = CPU(scratch)(worker, SLOT_SUMS, k * b->books->width * 8);
}

static void gather_sums(struct codebook_level *b, const struct codebook_rows *rows)
{
    i64 d = b->books->width;
    memset(b->counts, 0, (size_t)b->books->codes * 8);
    memset(b->sums, 0, (size_t)(b->books->codes * d) * 8);
    for (i64 i = 0; i < rows->n && rows->codes; i++) {
        i64 code = rows->codes[i * rows->codes_stride];
        const float *row = rows->values + i * rows->stride;
        double *sum = b->sums + code * d;
        b->counts[code]++;
        for (i64 c = 0; c < d; c++)
            sum[c] += (double)row[c];
    }
}

static void take_drawn(struct codebook_level *b, i64 code, const struct codebook_rows *rows)
{
    i64 d = b->books->width;
    i64 at = rng_below(b->books->key, rows->n, (u32)b->books->step, (u32)b->level, (u32)code, (u32)b->attempt);
    memcpy(b->words + code * d, rows->values + at * rows->stride, (size_t)d * 4);
}

static void move_word(struct codebook_level *b, i64 code)
{
    double decay = b->books->decay, count = b->counts[code];
    double before = decay * (double)b->use[code], after = moved_count(before, count, decay);
    float *word = b->words + code * b->books->width;
    const double *sum = b->sums + code * b->books->width;
    b->unseen[code] = count > 0 ? 0 : b->unseen[code] + 1;
    if (count > 0)
        for (i64 c = 0; c < b->books->width; c++)
            word[c] = moved_word(word[c], sum[c], before, after, decay);
    b->use[code] = (float)after;
}

static i64 revive(struct codebook_level *b, const struct codebook_rows *rows)
{
    i64 revived = 0;
    for (i64 code = 0; code < b->books->codes; code++) {
        const struct codebooks *s = b->books;
        if (!is_worn(b->use[code], b->unseen[code], s->least, s->patience, (double)rows->n / (double)s->codes))
            continue;
        take_drawn(b, code, rows);
        b->use[code] = (float)rows->n / (float)b->books->codes;
        b->unseen[code] = 0;
        revived++;
    }
    return revived;
}

struct move_job {
    const struct codebooks *books;
    float *words, *use, *unseen;
    const i32 *codes;
    const float *residual;
    i64 n, *revived; /* [L] */
};

static void run_level(void *context, i64 level, int worker)
{
    const struct move_job *job = context;
    const struct codebooks *s = job->books;
    struct codebook_level b = {.books = s,
                               .words = job->words + level * s->codes * s->width,
                               .use = job->use + level * s->codes,
                               .unseen = job->unseen + level * s->codes,
                               .level = level};
    struct codebook_rows rows = {job->codes + level, job->residual + level * s->width, job->n, s->levels,
                                 s->levels * s->width};
    open_sums(&b, worker);
    gather_sums(&b, &rows);
    for (i64 code = 0; code < s->codes; code++)
        move_word(&b, code);
    job->revived[level] = revive(&b, &rows);
}

void CPU(codebook_move)(struct device *device, float *words, float *use, float *unseen, double *revived,
                        const i32 *codes, const float *residual, i64 n, const struct codebooks *books)
{
    struct move_job job = {books, words, use, unseen, codes, residual, n, NULL};
    (void)device;
    job.revived = CPU(scratch)(0, SLOT_REVIVED, books->levels * 8);
    workers_run(books->levels, run_level, &job);
    for (i64 level = 0; level < books->levels; level++)
        revived[0] += (double)job.revived[level];
}

void CPU(codebook_mean)(struct device *device, float *words, const i32 *codes, struct matrix x, i64 level, i64 attempt,
                        const struct codebooks *books)
{
    struct codebook_level b = {.books = books, .words = words, .level = level, .attempt = attempt};
    struct codebook_rows rows = {codes, x.data, x.rows, 1, x.stride};
    i64 d = books->width;
    (void)device;
    open_sums(&b, 0);
    gather_sums(&b, &rows);
    for (i64 code = 0; code < books->codes; code++) {
        for (i64 c = 0; c < d && b.counts[code] > 0; c++)
            words[code * d + c] = (float)(b.sums[code * d + c] / b.counts[code]);
        if (b.counts[code] == 0)
            take_drawn(&b, code, &rows);
    }
}
