/* Key figures of a run, read from the files of its stages. */
#include "report/page.h"

#include <math.h>
#include <string.h>

static struct figure *add(struct figures *all, const struct run_stage *stage, const char *label, double value,
                          enum unit unit, int digits)
{
    if (!isfinite(value))
        return NULL;
    if (all->count == all->capacity) {
        i64 next = max_i64(32, 2 * all->capacity);
        all->list = memory_resize(all->list, all->capacity * (i64)sizeof *all->list, next * (i64)sizeof *all->list);
        all->capacity = next;
    }
    struct figure *f = &all->list[all->count++];
    *f = (struct figure){string_copy(stage ? stage->name : "all"), string_copy(label), NAN, value, unit, digits, NULL};
    f->baseline = f->low = f->high = NAN;
    return f;
}

/* Shows a figure on the first screen. The first figure with a tile title wins. */
static void show(struct figures *all, struct figure *f, const char *tile, const char *note, const char *detail)
{
    if (!f)
        return;
    for (const struct figure *other = all->list; other < f; other++)
        if (other->tile && strcmp(other->tile, tile) == 0)
            return;
    f->tile = string_copy(tile);
    f->note = string_copy(note);
    f->detail = string_copy(detail ? detail : "");
}

/* ---- The whole run ---- */

static void add_run(struct figures *all, const struct run *run)
{
    double seconds = NAN, bytes = NAN;
    for (i64 i = 0; i < run->count; i++) {
        const struct run_stage *s = &run->stages[i];
        seconds = isfinite(s->seconds) ? s->seconds + (isfinite(seconds) ? seconds : 0) : seconds;
        bytes = fmax(bytes, s->peak_bytes);
    }
    struct buffer detail = {0};
    if (isfinite(bytes)) {
        buffer_printf(&detail, "at most ");
        put_figure(&detail, bytes, UNIT_BYTES, 0);
        buffer_printf(&detail, " of memory");
    }
    show(all, add(all, NULL, "time", seconds, UNIT_SECONDS, 0), "Time", "all stages together", detail.data);
    add(all, NULL, "peak memory", bytes, UNIT_BYTES, 0);
    buffer_release(&detail);
}

/* ---- Backbones ---- */

static void add_size(struct figures *all, const struct run_stage *s, const struct json *heldout)
{
    double active = number_at(heldout, "active");
    struct buffer detail = {0};
    if (isfinite(active)) {
        put_figure(&detail, active, UNIT_COUNT, 0);
        buffer_printf(&detail, " at work on a token, without the embedding");
    }
    show(all, add(all, s, "parameters", number_at(heldout, "parameters"), UNIT_COUNT, 0), "Parameters",
         "of the backbone, with encoders and heads of media", detail.data);
    add(all, s, "active parameters", active, UNIT_COUNT, 0);
    buffer_release(&detail);
}

static void add_loss(struct figures *all, const struct run_stage *s, const struct json *start, const struct json *end)
{
    const char *stream = json_string(json_get(end, "stream"), ""), *target = json_string(json_get(end, "target"), "");
    char *label = strcmp(stream, target) == 0 ? string_format("held-out loss, %s", stream)
                                              : string_format("held-out loss, %s: %s", stream, target);
    struct figure *f = add(all, s, label, number_at(end, "loss"), UNIT_NUMBER, 3);
    if (f) {
        f->before = number_at(same_target(start, end), "loss");
        bool above = f->before > number_at(end, "uniform"); /* the start is worse than a guess */
        char *detail = above ? string_format("by frequency alone %.2f, by a uniform guess %.2f",
                                             number_at(end, "unigram"), number_at(end, "uniform"))
                             : string_format("by frequency alone %.2f", number_at(end, "unigram"));
        if (strcmp(stream, "text") == 0 && strcmp(target, "text") == 0)
            show(all, f, "Loss on text", "nats a token of held-out texts",
                 isfinite(number_at(end, "unigram")) ? detail : NULL);
        memory_free(detail);
    }
    memory_free(label);
}

static void add_heldout(struct figures *all, const struct run_stage *s)
{
    struct json *j = stage_json(s, "heldout.json");
    const struct json *start = json_get(j, "start"), *end = json_get(j, "end");
    if (j)
        add_size(all, s, j);
    for (i64 i = 0; i < json_count(end); i++)
        add_loss(all, s, start, json_at(end, i));
    json_free(j);
}

static void add_speed(struct figures *all, const struct run_stage *s)
{
    static const char *const keys[][2] = {
        {"tokens_per_s", "tokens/s"}, {"pictures_per_s", "pictures/s"}, {"frames_per_s", "frames/s"}};
    struct metric_series share = series_of(&s->metrics, "peak_share");
    struct metric_series product = series_of(&s->metrics, "product_share");
    struct buffer detail = {0};
    double gflops = stage_gflops(s);
    if (isfinite(gflops))
        buffer_printf(&detail, "%.0f\u00a0GFLOP/s", gflops);
    if (product.n)
        buffer_printf(&detail, ", %.0f\u00a0%% of one matrix product", 100 * series_median(&product));
    for (i64 i = 0; i < COUNT_OF(keys); i++) {
        struct metric_series speed = series_of(&s->metrics, keys[i][0]);
        struct figure *f = add(all, s, keys[i][1], series_median(&speed), UNIT_COUNT, 0);
        if (i == 0)
            show(all, f, "Speed", "tokens/s in training", detail.data);
        series_release(&speed);
    }
    add(all, s, "GFLOP/s", gflops, UNIT_NUMBER, 0);
    add(all, s, "share of one matrix product", series_median(&product), UNIT_SHARE, 1);
    add(all, s, "share of the matrix peak", series_median(&share), UNIT_SHARE, 1);
    series_release(&share);
    series_release(&product);
    buffer_release(&detail);
}

/* ---- Tokenizers ---- */

/* Tokenizers are measured on the part validation. */
static struct figure *on_validation(struct figure *f)
{
    if (f)
        f->part = "validation";
    return f;
}

/* Gives a figure its 95 % interval by its standard error, and its baseline; NaN: not known. */
static struct figure *with_error(struct figure *f, double error, double baseline)
{
    if (f) {
        f->low = f->value - 1.959964 * error;
        f->high = f->value + 1.959964 * error;
        f->baseline = baseline;
    }
    return f;
}

/* How often a linear probe's likeliest word is in the caption. */
static void add_told(struct figures *all, const struct run_stage *s, const char *label, const struct json *report,
                     const char *key)
{
    const struct json *probe = json_get(report, key);
    with_error(on_validation(add(all, s, label, number_at(probe, "right"), UNIT_SHARE, 1)),
               number_at(probe, "right_error"), number_at(probe, "right_chance"));
}

/* Sum of a key over the objects of a list; NaN: there are none. */
static double sum_of(const struct json *list, const char *key)
{
    double sum = 0;
    for (i64 i = 0; i < json_count(list); i++)
        sum += number_at(json_at(list, i), key);
    return json_count(list) ? sum : NAN;
}

/* How the codes of new pictures or clips are used, and how sharp those are. */
static void add_use(struct figures *all, const struct run_stage *s, const char *of, const struct json *set)
{
    const struct json *scales = json_get(set, "scales");
    char *edges = string_format("edges of %s, of the originals'", of), *dead = string_format("dead bits of %s", of),
         *entropy = string_format("entropy of a bit of %s at scale 1", of);
    on_validation(add(all, s, edges, number_at(set, "edges"), UNIT_SHARE, 1));
    on_validation(add(all, s, dead, sum_of(scales, "dead_bits"), UNIT_COUNT, 0));
    on_validation(add(all, s, entropy, number_at(json_at(scales, 0), "entropy_bits"), UNIT_NUMBER, 2));
    memory_free(edges);
    memory_free(dead);
    memory_free(entropy);
}

/* What a refiner makes of new pictures or clips, beside their bicubic enlargement. */
static void add_refined(struct figures *all, const struct run_stage *s, const char *of, const struct json *set)
{
    static const struct {
        const char *key, *name, *share;
        enum unit unit;
        int digits;
    } rows[] = {{"psnr_db", "PSNR", "", UNIT_DECIBEL, 2},
                {"ssim", "SSIM", "", UNIT_NUMBER, 3},
                {"edges", "edges", ", of the originals'", UNIT_SHARE, 1}};
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        char *label = string_format("%s of refined %s%s", rows[i].name, of, rows[i].share);
        struct figure *f = on_validation(
            add(all, s, label, number_at(json_get(set, "refined"), rows[i].key), rows[i].unit, rows[i].digits));
        if (f)
            f->baseline = number_at(json_get(set, "bicubic"), rows[i].key);
        memory_free(label);
    }
}

static void add_kept(struct figures *all, const struct run_stage *s)
{
    struct json *j = stage_json(s, "report.json");
    const struct json *stills = json_get(j, "stills_held_out"), *clips = json_get(j, "clips_held_out");
    const struct json *sound = json_get(j, "held_out_distance"), *probe = json_get(j, "digit_probe");
    add(all, s, "parameters", number_at(j, "parameters"), UNIT_COUNT, 0);
    show(all,
         with_error(on_validation(add(all, s, "PSNR of new pictures", number_at(stills, "psnr_db"), UNIT_DECIBEL, 1)),
                    number_at(stills, "psnr_db_error"), number_at(stills, "psnr_db_components")),
         "Pictures through tokens", "PSNR on held-out pictures", NULL);
    with_error(on_validation(add(all, s, "PSNR of new clips", number_at(clips, "psnr_db"), UNIT_DECIBEL, 1)),
               number_at(clips, "psnr_db_error"), NAN);
    struct figure *f =
        on_validation(add(all, s, "log-mel distance of new sounds", number_at(sound, "log_mel"), UNIT_NUMBER, 3));
    double mean = number_at(sound, "log_mel_mean_spectrum");
    with_error(f, number_at(sound, "log_mel_error"), mean);
    char *detail = string_format("the mean spectrum's is %.2f", mean);
    show(all, f, "Speech through tokens", "log-mel distance in nats on new voices", isfinite(mean) ? detail : NULL);
    on_validation(add(all, s, "dead codes of new sounds", sum_of(json_get(json_get(j, "held_out"), "levels"), "dead"),
                      UNIT_COUNT, 0));
    add_use(all, s, "new pictures", stills);
    add_use(all, s, "new clips", clips);
    add_refined(all, s, "new pictures", json_get(j, "refined_stills_held_out"));
    add_refined(all, s, "new clips", json_get(j, "refined_clips_held_out"));
    add_told(all, s, "caption words told right from level 0 of new sounds", isfinite(mean) ? j : NULL, "words_probe");
    add_told(all, s, "caption words told right from codes of new pictures", stills ? j : NULL, "words_probe");
    add_told(all, s, "caption words told right from codes of new clips", clips ? j : NULL, "words_probe_clips");
    add(all, s, "digit accuracy from level 0", json_number(json_at(json_get(probe, "accuracy"), 0), NAN), UNIT_SHARE,
        1);
    memory_free(detail);
    json_free(j);
}

/* ---- Samples ---- */

static const char *const sample_parts[] = {"test", "validation", "train"};
static const struct {
    const char *key, *name;
} sample_kinds[] = {{"image", "pictures"}, {"video", "clips"}, {"audio", "speech"}};

/* A share of pairs. `by` has its baselines: the better one is kept. */
static struct figure *add_pair(struct figures *all, const struct run_stage *s, const char *part, const char *what,
                               const char *than, const struct json *by)
{
    char *label = string_format("%s from words%s, %s", what, than, part);
    struct figure *f = add(all, s, label, number_at(by, "pair"), UNIT_SHARE, 1);
    if (f) {
        f->part = part;
        f->baseline = fmax(fmax(number_at(by, "retrieval"), number_at(by, "ridge")), number_at(by, "length"));
        f->low = number_at(by, "pair_low");
        f->high = number_at(by, "pair_high");
    }
    memory_free(label);
    return f;
}

static void show_pictures(struct figures *all, struct figure *f)
{
    struct buffer detail = {0};
    if (!f)
        return;
    buffer_printf(&detail, "on %s", f->part);
    if (isfinite(f->low) && isfinite(f->high))
        buffer_printf(&detail, " (95\u00a0%%: %.0f to %.0f\u00a0%%)", 100 * f->low, 100 * f->high);
    if (isfinite(f->baseline))
        buffer_printf(&detail, "; without a network %.0f\u00a0%%", 100 * f->baseline);
    buffer_printf(&detail, "; chance is 50\u00a0%%");
    show(all, f, "Pictures from new captions", "nearer to their own original than to another's", detail.data);
    buffer_release(&detail);
}

static void add_words(struct figures *all, const struct run_stage *s, const char *part, const char *key,
                      const struct json *told)
{
    double media = number_at(told, "media"), exact = number_at(told, "exact") / media;
    char *label = string_format("%s, word for word", key);
    struct figure *f = add(all, s, label, media > 0 ? exact : NAN, UNIT_SHARE, 1);
    if (f) {
        f->part = part;
        share_interval(&f->low, &f->high, exact, media);
    }
    memory_free(label);
    label = string_format("%s, words right", key);
    f = add(all, s, label, number_at(told, "words"), UNIT_SHARE, 1);
    if (f) {
        f->part = part;
        f->baseline = fmax(number_at(told, "words_fixed"), number_at(told, "words_nearest"));
        f->low = number_at(told, "words_low");
        f->high = number_at(told, "words_high");
    }
    memory_free(label);
}

static void add_samples(struct figures *all, const struct run_stage *s)
{
    struct json *j = stage_json(s, "samples.json");
    for (i64 k = 0; k < COUNT_OF(sample_kinds); k++)
        for (i64 i = 0; i < COUNT_OF(sample_parts); i++) {
            const char *part = sample_parts[i], *name = sample_kinds[k].name;
            char *key = string_format("%s/%s", part, sample_kinds[k].key);
            const struct json *made = json_get(j, key), *aligned = json_get(made, "aligned");
            if (json_get(made, "aligned"))
                add_pair(all, s, part, name, " nearer to its own at equal length", aligned);
            struct figure *f = add_pair(all, s, part, name,
                                        sample_kinds[k].key[0] == 'a' ? " nearer to its own by length and sound"
                                                                      : " nearer to their own",
                                        made);
            if (k == 0 && i < 2)
                show_pictures(all, f);
            memory_free(key);
        }
    for (i64 k = 0; k < COUNT_OF(sample_kinds); k++)
        for (i64 i = 0; i < COUNT_OF(sample_parts); i++) {
            char *key = string_format("%s/%s-to-text", sample_parts[i], sample_kinds[k].key);
            add_words(all, s, sample_parts[i], key, json_get(j, key));
            memory_free(key);
        }
    json_free(j);
}

/* ---- Reinforcement learning, evaluation, sub-models ---- */

static void add_rewards(struct figures *all, const struct run_stage *s)
{
    struct json *j = stage_json(s, "rl.json"), *eval = stage_json(s, "eval.json");
    const struct json *start = json_get(json_get(j, "heldout"), "start"),
                      *end = json_get(json_get(j, "heldout"), "end");
    static const char *const how[] = {"sampled", "greedy"};
    for (i64 i = 0; i < COUNT_OF(how); i++) {
        char *label = string_format("reward on held-out prompts, %s", how[i]);
        struct figure *f = add(all, s, label, number_at(json_get(end, how[i]), "reward"), UNIT_NUMBER, 3);
        if (f)
            f->before = number_at(json_get(start, how[i]), "reward");
        double other = number_at(json_get(start, how[i]), "reordered");
        char *detail = isfinite(other)
                           ? string_format("before and after reinforcement learning; before, %.0f\u00a0%% of the "
                                           "answers were right but for their order",
                                           100 * other)
                           : string_copy("before and after reinforcement learning");
        show(all, f, "Reward", "mean on held-out prompts", detail);
        memory_free(detail);
        memory_free(label);
    }
    add(all, s, "mean reward", number_at(eval, "reward"), UNIT_NUMBER, 3);
    add(all, s, "bits per byte of text", number_at(eval, "bits_per_byte"), UNIT_NUMBER, 3);
    json_free(j);
    json_free(eval);
}

/* Parameters of a sub-model that was trained further, as a share of those of the model it was cut
 * from. */
static void add_share(struct figures *all, const struct run *run)
{
    for (i64 i = 0; i < run->count; i++) {
        const struct run_stage *s = &run->stages[i], *cut, *whole;
        const char *from = json_string(json_get(json_get(s->identity, "settings"), "from"), "");
        cut = run_find(run, from);
        if (!cut || strcmp(stage_kind(cut), "extract") != 0)
            continue;
        from = json_string(json_get(json_get(cut->identity, "settings"), "from"), "");
        whole = run_find(run, from);
        struct json *part = stage_json(s, "heldout.json"), *of = whole ? stage_json(whole, "heldout.json") : NULL;
        char *label = string_format("parameters of %s, of those of %s", cut->name, from);
        struct figure *f =
            add(all, s, label, number_at(part, "parameters") / number_at(of, "parameters"), UNIT_SHARE, 1);
        if (f)
            f->part = "";
        memory_free(label);
        json_free(part);
        json_free(of);
    }
}

static void add_grid(struct figures *all, const struct run_stage *s)
{
    struct json *j = stage_json(s, "grid.json");
    for (i64 i = 0; i < json_count(j); i++) {
        char *label = string_format("summed loss of %s", json_string(json_get(json_at(j, i), "name"), ""));
        add(all, s, label, number_at(json_at(j, i), "loss_all"), UNIT_NUMBER, 3);
        memory_free(label);
    }
    json_free(j);
}

void figures_collect_grid(struct figures *all, const struct run *run)
{
    for (i64 k = 0; k < run->count; k++) {
        struct json *j = stage_json(&run->stages[k], "grid.json");
        struct json_iterator it;
        for (i64 i = 0; i < json_count(j); i++) {
            static const char *const keys[] = {"loss", "streams"};
            for (i64 n = 0; n < COUNT_OF(keys); n++) {
                const struct json *loss = json_get(json_at(j, i), keys[n]);
                for (bool more = json_first(&it, loss); more; more = json_next(&it, loss)) {
                    char *label =
                        string_format("loss of %s, %s", json_string(json_get(json_at(j, i), "name"), ""), it.key);
                    add(all, &run->stages[k], label, json_number(it.value, NAN), UNIT_NUMBER, 3);
                    memory_free(label);
                }
            }
        }
        json_free(j);
    }
}

void figures_collect(struct figures *all, const struct run *run)
{
    static void (*const parts[])(struct figures *, const struct run_stage *) = {add_heldout, add_speed,   add_kept,
                                                                                add_samples, add_rewards, add_grid};
    *all = (struct figures){0};
    add_run(all, run);
    for (i64 i = 0; i < run->count; i++)
        for (i64 k = 0; k < COUNT_OF(parts); k++)
            parts[k](all, &run->stages[i]);
    add_share(all, run);
}

void figures_release(struct figures *all)
{
    for (i64 i = 0; i < all->count; i++) {
        struct figure *f = &all->list[i];
        char *texts[] = {f->stage, f->label, f->tile, f->note, f->detail};
        for (i64 k = 0; k < COUNT_OF(texts); k++)
            memory_free(texts[k]);
    }
    memory_free(all->list);
    *all = (struct figures){0};
}

const struct figure *figures_find(const struct figures *all, const char *stage, const char *label)
{
    for (i64 i = 0; i < all->count; i++)
        if (strcmp(all->list[i].stage, stage) == 0 && strcmp(all->list[i].label, label) == 0)
            return &all->list[i];
    return NULL;
}
