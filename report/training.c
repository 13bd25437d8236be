/* Loss, speed and share of the matrix peak of every stage that trains in steps, and losses on
 * held-out samples. */
#include "report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct run_stage *any_stage(const struct page *p, const char *name)
{
    for (i64 r = 0; r < p->run_count; r++)
        if (run_find(&p->runs[r], name))
            return run_find(&p->runs[r], name);
    return NULL;
}

/* False for reinforcement learning, which has its own section. */
static bool has_losses(const struct page *p, const char *stage)
{
    const struct run_stage *s = any_stage(p, stage);
    return stage_trained(p, stage) && s && !json_get(s->metrics.list ? s->metrics.list[0] : NULL, "reward");
}

/* Of the first run that knows them. */
static void put_sizes(struct page *p, const char *stage)
{
    for (i64 r = 0; r < p->run_count; r++) {
        const struct run_stage *s = run_find(&p->runs[r], stage);
        struct buffer sizes = {0};
        bool known = s && run_put_model(&sizes, &p->runs[r], s);
        if (known) {
            const char *from = json_string(json_get(json_get(s->identity, "settings"), "from"), "");
            put_note(p, "%s%s%s%s.", *from ? "From " : "", from, *from ? ": " : "", sizes.data);
        }
        buffer_release(&sizes);
        if (known)
            return;
    }
}

/* Says how the two lines of a loss differ, if a stage measured held-out rows while it trained. */
static void put_heldout_lines(struct page *p, const struct run_stage *s)
{
    static const char *const keys[] = {"heldout/text", "heldout/vision", "heldout/audio", "grid/full/text"};
    bool measured = false;
    for (i64 i = 0; i < s->metrics.count; i++)
        for (i64 k = 0; k < COUNT_OF(keys); k++)
            measured |= isfinite(number_at(s->metrics.list[i], keys[k]));
    if (measured && p->run_count == 1)
        put_note(p,
                 "Held-out: the full model on a few rows, shared out evenly among the kinds of samples. Training: the "
                 "step's mixture and sub-models. So the course of both can be compared, not their level.");
}

/* Seconds a micro-batch over steps, a line for each rank; of many ranks the slowest and the median. */
static void put_ranks(struct page *p, const struct run_stage *s)
{
    enum { LINES_MOST = CHART_COLOURS };
    struct metric_series all[LINES_MOST];
    struct chart_line lines[LINES_MOST];
    char names[LINES_MOST][24];
    i64 count = 0;
    for (i64 i = -2; i < LINES_MOST && count < LINES_MOST; i++) {
        char *key =
            i < 0 ? string_format("rank_s/%s", i < -1 ? "most" : "median") : string_format("rank_s/%lld", (long long)i);
        struct metric_series one = series_of(&s->metrics, key);
        memory_free(key);
        if (one.n == 0) {
            series_release(&one);
            continue;
        }
        snprintf(names[count], sizeof names[0], i < 0 ? (i < -1 ? "slowest" : "median") : "rank %lld", (long long)i);
        all[count] = one;
        lines[count] = (struct chart_line){names[count], (int)count, one.x, one.y, one.n};
        count++;
    }
    if (count)
        figure_chart(p, "Time for a micro-batch, by rank",
                     &(struct chart){.about = "Time for a micro-batch over steps, a line for each rank",
                                     .x_name = "step",
                                     .y_name = "s, without waiting for other ranks",
                                     .lines = lines,
                                     .line_count = (int)count,
                                     .from_zero = true});
    for (i64 i = 0; i < count; i++)
        series_release(&all[i]);
}

void put_training(struct page *p)
{
    static const struct panel panels[] = {
        {"loss/text",
         "Loss on text, captions and marks included",
         "nats a token",
         0,
         false,
         false,
         {"heldout/text", "grid/full/text"}},
        {"loss/vision",
         "Loss on bits of pictures and clips",
         "nats a bit",
         1,
         false,
         false,
         {"heldout/vision", "grid/full/vision"}},
        {"loss/audio", "Loss on codes of sound", "nats a code", 2, false, false, {"heldout/audio", "grid/full/audio"}},
        {"loss/mtp", "Loss on the token after next", "nats a token", 7, false, false, {"heldout/mtp"}},
        {"stills/loss", "Loss on stills", "sum of its terms", 1, false, false},
        {"clips/loss", "Loss on clips", "sum of its terms", 6, false, false},
        {"stills/psnr_db", "PSNR of stills", "dB", 1, false, false},
        {"clips/psnr_db", "PSNR of clips", "dB", 6, false, false},
        {"features_loss", "Distance of features", "share of the original's, summed over layers", 2, false, false},
        {"gram_loss", "Distance of Gram matrices", "share of the original's, summed over layers", 2, false, false},
        {"semantic_loss", "Loss of semantics", "nats a medium, or 1 - cosine", 2, false, false},
        {"discriminator/loss", "Loss of the discriminator", "hinge; 2: it tells nothing", 3, false, false},
        {"discriminator/adversarial", "Adversarial loss", "-mean logit of what is decoded", 3, false, false},
        {"discriminator/weight", "Weight of the adversarial loss", "by the ratio of gradients", 3, true, false},
        {"loss", "Loss", "sum of its terms", 2, false, false},
        {"log_mel", "Log-mel distance", "nats", 2, false, false},
        {"tokens_per_s", "Speed", "tokens/s", 4, true, false},
        {"pictures_per_s", "Speed", "pictures/s", 4, true, false},
        {"frames_per_s", "Speed", "frames/s", 4, true, false},
        {"gflops_per_s", "Speed of arithmetic", "GFLOP/s", 5, true, false},
        {"product_share", "Speed beside one matrix product", "of what a product of the commonest matrix reaches", 5,
         true, true},
        {"peak_share", "Share of the matrix peak", "of the FMA peak, measured before the stage", 5, true, true},
        {"grad_norm", "Norm of the gradient before clipping", "L2", 7, true, false},
        {"lr", "Learning rate", "", 3, true, false},
        {"wait_share", "Waiting for data", "of a step's time", 2, true, true},
        {"sum_share", "Waiting for other ranks' gradients", "of a step's time", 6, true, true},
        {"memory_bytes", "Memory of the process", "GiB", 0, true, false, {NULL}, 1 << 30},
        {"device_bytes", "Memory on the GPU", "GiB", 0, true, false, {NULL}, 1 << 30},
    };
    static const struct panel of_several_runs[] = {
        {"heldout/text", "Held-out loss on text, captions and marks included", "nats a token", 0, false, false},
        {"heldout/vision", "Held-out loss on bits of pictures and clips", "nats a bit", 1, false, false},
        {"heldout/audio", "Held-out loss on codes of sound", "nats a code", 2, false, false},
    };
    section_open(p, "training", "Training",
                 p->run_count > 1
                     ? "Each stage over its steps. Lines are means of neighbouring steps, the pale band spans the "
                       "least and the most of them, up to the edge of the chart."
                     : "Each stage over its steps. Lines are means of neighbouring steps, the pale band spans the "
                       "least and the most of them, up to the edge of the chart. The number beside a line is the mean "
                       "of its last 1\u00a0% of steps.");
    for (i64 i = 0; i < p->stage_count; i++) {
        if (!has_losses(p, p->stages[i]))
            continue;
        const struct run_stage *s = any_stage(p, p->stages[i]);
        bool same = strcmp(s->name, stage_kind(s)) == 0;
        group_open(p, "%s%s%s", s->name, same ? "" : ": ", same ? "" : stage_kind(s));
        put_sizes(p, p->stages[i]);
        put_long_samples(p, p->stages[i], "heldout.json", "left_out", "left out of training");
        put_heldout_lines(p, s);
        i64 begin = p->html.length;
        buffer_printf(&p->html, "<div class='charts'>");
        i64 inside = p->html.length;
        for (i64 k = 0; k < COUNT_OF(panels); k++)
            figure_panel(p, p->stages[i], &panels[k]);
        if (p->run_count == 1) {
            put_ranks(p, s);
            put_best(p, s);
        }
        for (i64 k = 0; k < COUNT_OF(of_several_runs) && p->run_count > 1; k++)
            figure_panel(p, p->stages[i], &of_several_runs[k]);
        if (p->html.length == inside)
            truncate_text(&p->html, begin);
        else
            buffer_printf(&p->html, "</div>");
        group_close(p, s);
        if (p->run_count == 1) {
            put_monitor(p, s);
            put_code_use(p, s);
        }
    }
    section_close(p);
}

/* ---- Data sources of a mixture ---- */

static void put_sources_of(struct page *p, const struct run_stage *s, const struct json *list)
{
    static const char *const heads[] = {"<source", "samples", "rows", "positions", "epochs"};
    group_open(p, "%s", s->name);
    table_open(p, heads, COUNT_OF(heads));
    for (i64 i = 0; i < json_count(list); i++) {
        const struct json *source = json_at(list, i);
        buffer_printf(&p->html, "<tr>");
        cell_words(p, "%s", json_string(json_get(source, "name"), ""));
        cell_figure(p, number_at(source, "samples"), UNIT_NUMBER, 0);
        cell_figure(p, number_at(source, "rows"), UNIT_NUMBER, 0);
        cell_figure(p, number_at(source, "positions"), UNIT_NUMBER, 0);
        cell_figure(p, number_at(source, "epochs"), UNIT_NUMBER, 2);
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
    group_close(p, s);
}

/* Wait for shards that were prepared while the stage trained. */
static void put_waiting(struct page *p, const struct run_stage *s, const struct json *j)
{
    double first = number_at(j, "first_s"), waited = number_at(j, "waited_s") - first;
    double share = waited / fmax(number_at(j, "seconds") - first, 1e-9);
    group_open(p, "%s", s->name);
    put_note(p, "Waiting for data: %.1f\u00a0%% of the steps' time (%.1f s), and %.1f s before the first. %s",
             100 * share, waited, first,
             share < 0.01 ? "Shards were ready in time."
                          : "Preparing shards was slower than training: more processes "
                            "(stream.parts) would help.");
    if (number_at(j, "restarts") > 0)
        put_note(p, "Preparing processes were killed and restarted %.0f times.", number_at(j, "restarts"));
    group_close(p, s);
}

void put_sources(struct page *p)
{
    section_open(
        p, "sources", "Sources",
        "What each source of a mixture gave: rows, positions that were no padding, and how often all of it was "
        "shown; how long shards were waited for that were prepared meanwhile.");
    for (i64 i = 0; i < p->stage_count; i++) {
        const struct run_stage *s = any_stage(p, p->stages[i]);
        struct json *list = s ? stage_json(s, "sources.json") : NULL;
        struct json *waiting = s ? stage_json(s, "waiting.json") : NULL;
        if (json_count(list))
            put_sources_of(p, s, list);
        if (waiting)
            put_waiting(p, s, waiting);
        json_free(waiting);
        json_free(list);
    }
    section_close(p);
}

/* ---- Held-out losses ---- */

struct training_loss { /* one stream and target, means over runs */
    const char *stream, *target;
    double before, after, unigram, uniform;
    double deviation; /* standard deviation of `after` over runs */
};
struct losses {
    struct training_loss *list;
    i64 count;
};

static struct training_loss mean_loss(struct json *const *files, i64 count, const struct json *as)
{
    struct training_loss l = {
        json_string(json_get(as, "stream"), ""), json_string(json_get(as, "target"), ""), 0, 0, 0, 0, 0};
    double n = 0;
    for (i64 r = 0; r < count; r++) {
        const struct json *end = same_target(json_get(files[r], "end"), as);
        const struct json *start = same_target(json_get(files[r], "start"), as);
        if (!isfinite(number_at(end, "loss")))
            continue;
        n++;
        l.before += number_at(start, "loss");
        l.after += number_at(end, "loss");
        l.unigram += number_at(end, "unigram");
        l.uniform += number_at(end, "uniform");
    }
    l.before /= n;
    l.after /= n;
    l.unigram /= n;
    l.uniform /= n;
    for (i64 r = 0; r < count; r++) {
        double loss = number_at(same_target(json_get(files[r], "end"), as), "loss");
        l.deviation += isfinite(loss) ? (loss - l.after) * (loss - l.after) : 0;
    }
    l.deviation = n > 1 ? sqrt(l.deviation / (n - 1)) : NAN;
    return l;
}

static struct losses losses_of(struct json *const *files, i64 count)
{
    const struct json *first = NULL;
    for (i64 r = count - 1; r >= 0; r--)
        first = json_count(json_get(files[r], "end")) ? json_get(files[r], "end") : first;
    struct losses all = {memory_alloc((json_count(first) + 1) * (i64)sizeof *all.list), 0};
    for (i64 i = 0; i < json_count(first); i++) {
        struct training_loss l = mean_loss(files, count, json_at(first, i));
        if (isfinite(l.after))
            all.list[all.count++] = l;
    }
    return all;
}

static char *name_of(const struct training_loss *l)
{
    return strcmp(l->stream, l->target) == 0 ? string_copy(l->stream) : string_format("%s: %s", l->stream, l->target);
}

static void put_ranges(struct page *p, const char *stage, const struct losses *all)
{
    struct chart_range *rows = memory_alloc((all->count + 1) * (i64)sizeof *rows);
    char **names = memory_alloc((all->count + 1) * (i64)sizeof *names);
    char *about = string_format("Held-out losses of %s before and after training; the table has the numbers", stage);
    for (i64 i = 0; i < all->count; i++) {
        const struct training_loss *l = &all->list[i];
        names[i] = name_of(l);
        rows[i] = (struct chart_range){names[i], l->before, l->after, l->unigram, line_colour(l->target)};
    }
    i64 begin = p->html.length;
    figure_open(p, "chart", "From before (ring) to after (dot); the tick is what frequency alone would give");
    if (chart_ranges(&p->html, about, "nats a target", rows, all->count))
        figure_close(p);
    else
        truncate_text(&p->html, begin);
    for (i64 i = 0; i < all->count; i++)
        memory_free(names[i]);
    memory_free(about);
    memory_free(rows);
    memory_free(names);
}

static void put_table(struct page *p, const struct losses *all)
{
    const char *heads[6] = {"stream: target", "before", "after", "by frequency"};
    i64 n = 4;
    bool guessed = false; /* runs of older programs lack it */
    for (i64 i = 0; i < all->count; i++)
        guessed |= isfinite(all->list[i].uniform);
    if (guessed)
        heads[n++] = "uniform guess";
    if (p->run_count > 1)
        heads[n++] = "std over runs";
    table_open(p, heads, n);
    for (i64 i = 0; i < all->count; i++) {
        const struct training_loss *l = &all->list[i];
        char *name = name_of(l);
        buffer_printf(&p->html, "<tr>");
        cell_words(p, "%s", name);
        cell_figure(p, l->before, UNIT_NUMBER, 3);
        buffer_printf(&p->html, "<td><b>%.3f</b></td>", l->after);
        cell_figure(p, l->unigram, UNIT_NUMBER, 3);
        if (guessed)
            cell_figure(p, l->uniform, UNIT_NUMBER, 3);
        if (p->run_count > 1)
            cell_figure(p, l->deviation, UNIT_NUMBER, 3);
        buffer_printf(&p->html, "</tr>");
        memory_free(name);
    }
    table_close(p);
}

static void put_common(struct page *p, const struct json *heldout)
{
    double samples = number_at(heldout, "samples"), common = number_at(heldout, "trained_on");
    if (isfinite(common) && common == 0)
        put_note(p, "None of the %.0f held-out samples is a training sample.", samples);
    else if (isfinite(common))
        put_note(p, "%.0f of the %.0f held-out samples are training samples too, so the losses flatter.", common,
                 samples);
}

static void put_stage_losses(struct page *p, const char *stage)
{
    struct json **files = memory_alloc(p->run_count * (i64)sizeof *files);
    for (i64 r = 0; r < p->run_count; r++) {
        const struct run_stage *s = run_find(&p->runs[r], stage);
        files[r] = s ? stage_json(s, "heldout.json") : NULL;
    }
    struct losses all = losses_of(files, p->run_count);
    group_open(p, "%s", stage);
    put_long_samples(p, stage, "heldout.json", "not_measured", "not measured");
    if (all.count) {
        buffer_printf(&p->html, "<div class='charts'>");
        put_ranges(p, stage, &all);
        put_table(p, &all);
        buffer_printf(&p->html, "</div>");
        if (p->run_count == 1)
            put_common(p, files[0]);
    }
    group_close(p, any_stage(p, stage));
    for (i64 r = 0; r < p->run_count; r++)
        json_free(files[r]);
    memory_free(all.list);
    memory_free(files);
}

void put_heldout(struct page *p)
{
    section_open(
        p, "heldout", "Held-out loss",
        "Of every stream, in nats, by what is predicted: the next token of text, the one after it (mtp), bits of "
        "pictures (vision), codes of sound (audio). Text of a medium is what describes it; marks are the ids "
        "that begin and end media.");
    for (i64 i = 0; i < p->stage_count; i++)
        put_stage_losses(p, p->stages[i]);
    section_close(p);
}
