#include "submodels/grid_speed.h"

#include "model/generate.h"
#include "train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { START = 16 }; /* positions before the decoded ones */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. Quantiles between two of them are interpolated. */
static double quantile(double *values, i64 n, double share)
{
    double at = share * (double)(n - 1);
    i64 below = (i64)at, above = min_i64(below + 1, n - 1);
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[below] + (at - (double)below) * (values[above] - values[below]);
}

void grid_speed_summarize(struct grid_speed *out, const double *seconds, i64 rounds, i64 points, i64 point,
                          double positions)
{
    double *speed = memory_alloc(rounds * (i64)sizeof *speed), *ratio = memory_alloc(rounds * (i64)sizeof *ratio);
    for (i64 r = 0; r < rounds; r++) {
        speed[r] = positions / seconds[r * points + point];
        ratio[r] = seconds[r * points] / seconds[r * points + point];
    }
    *out = (struct grid_speed){.per_s = quantile(speed, rounds, 0.5),
                               .low = quantile(speed, rounds, 0.25),
                               .high = quantile(speed, rounds, 0.75),
                               .ratio = quantile(ratio, rounds, 0.5),
                               .ratio_low = quantile(ratio, rounds, 0.25),
                               .ratio_high = quantile(ratio, rounds, 0.75)};
    memory_free(speed);
    memory_free(ratio);
}

struct timed_decoder {
    struct decoder decoder;
    struct decoder_options options;
};

/* Seconds of the first forward, which reads the prompt; *step: the median of those after it. */
static double time_request(double *step, struct timed_decoder *t, const i32 *prompt, i64 length, i64 most)
{
    struct answer answer = {0};
    struct part part = {.kind = STREAM_TEXT, .ids = prompt, .count = length};
    struct generate_request request = {
        .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = most, .copies = 1};
    double *steps = memory_alloc(most * (i64)sizeof *steps), begin, first;
    i64 count = 0;
    require(decoder_add(&t->decoder, &answer, &request) == 0, "%s", error_text());
    begin = clock_s();
    decoder_step(&t->decoder);
    first = clock_s() - begin;
    for (begin = clock_s(); count < most && !interrupted() && decoder_step(&t->decoder); count++) {
        double now = clock_s();
        steps[count] = now - begin;
        begin = now;
    }
    decoder_drop(&t->decoder, NULL);
    *step = count ? quantile(steps, count, 0.5) : first;
    memory_free(steps);
    answer_release(&answer);
    return first;
}

static void time_point(double *decode, double *prefill, struct timed_decoder *t, const i32 *prompt,
                       const struct grid_speed_settings *s)
{
    double one;
    *prefill = time_request(&one, t, prompt, s->prompt, 1);
    time_request(decode, t, prompt, min_i64(START, s->prompt), s->tokens + 1);
}

int grid_speed_measure(struct grid_point *points, i64 count, struct model *model, const struct grid_speed_settings *s)
{
    struct timed_decoder *timed = memory_alloc(count * (i64)sizeof *timed);
    i64 cells = s->rounds * count, opened = 0;
    double *decode = memory_alloc(cells * (i64)sizeof *decode), *prefill = memory_alloc(cells * (i64)sizeof *prefill);
    double ignored[2];
    i32 *prompt = memory_alloc(s->prompt * 4);
    bool stopped = false;
    struct progress bar;
    for (u32 i = 0; i < s->prompt; i++)
        prompt[i] = (i32)rng_below((struct rng_key){5, RNG_TEST}, model->config.vocabulary, i, 0, 0, 0);
    for (; opened < count && !stopped; opened++) {
        i64 i = opened;
        timed[i].options =
            (struct decoder_options){.model = model, .sub = &points[i].sub, .vocabulary = &vocabulary_of_text};
        decoder_open(&timed[i].decoder, &timed[i].options, 1, s->prompt + START + s->tokens + 1);
        time_point(&ignored[0], &ignored[1], &timed[i], prompt, s); /* takes its memory */
        stopped = interrupted();
    }
    progress_init_late(&bar, "rounds of speed", s->rounds * count);
    for (i64 r = 0; r < s->rounds && !stopped; r++) {
        for (i64 turn = 0; turn < count && !stopped; turn++) {
            i64 i = (r + turn) % count;
            time_point(&decode[r * count + i], &prefill[r * count + i], &timed[i], prompt, s);
            progress_update(&bar, r * count + turn + 1, NULL);
            stopped = interrupted();
        }
    }
    progress_clear(&bar);
    for (i64 i = 0; i < opened; i++) {
        decoder_close(&timed[i].decoder);
        if (stopped || s->rounds == 0)
            continue;
        grid_speed_summarize(&points[i].decode, decode, s->rounds, count, i, 1);
        grid_speed_summarize(&points[i].prefill, prefill, s->rounds, count, i, (double)s->prompt);
        points[i].tokens_per_s = points[i].decode.per_s;
    }
    memory_free(timed);
    memory_free(decode);
    memory_free(prefill);
    memory_free(prompt);
    return stopped ? STAGE_INTERRUPTED : 0;
}
