/* weft init: the recipe, with the numbers at hand as comments. */
#include "survey/init.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The recipe ---- */

static void put_string(struct buffer *out, const char *text)
{
    struct json *value = json_of_string(text);
    json_print(out, value, 0);
    json_free(value);
}

static void put_path(struct buffer *out, const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./";
    if (path[strspn(path, plain)] == 0)
        buffer_printf(out, "%s", path);
    else
        put_string(out, path);
}

/* Absolute, so that the recipe runs from any folder. */
static void put_place(struct buffer *out, const char *path)
{
    char *real = is_address(path) ? NULL : realpath(path, NULL);
    put_path(out, real ? real : path);
    free(real);
}

static void put_samples(struct buffer *out, const struct init_data *d)
{
    buffer_printf(out, "    data: ");
    put_place(out, d->path);
    buffer_printf(out, "\n");
    if (d->columns.captions != CAPTIONS_FILES)
        buffer_printf(out, "    captions: %s\n", captions_word((enum source_captions)d->columns.captions));
    if (!d->names_splits && d->validation != init_shares[0])
        buffer_printf(out, "    validation: %g\n", d->validation);
}

/* With the share of unreadable samples, which `generate` has no setting for. kinds: modalities whose
 * unreadable media count in the stage. */
static void put_data(struct buffer *out, const struct init_data *d, u32 kinds)
{
    double bad = 0;
    put_samples(out, d);
    for (int m = 0; m < MODALITIES; m++)
        if (kinds >> m & 1 && d->probes[m].opened)
            bad = fmax(bad, (double)d->probes[m].unreadable / (double)d->probes[m].opened);
    i64 samples = d->bad;
    for (int k = 0; k < OUTCOMES; k++)
        samples += d->kinds[k].samples;
    bad = fmax(bad, (double)d->bad / (double)max_i64(1, samples));
    if (bad > 0.02) /* bad_share is 0.05 */
        buffer_printf(out, "    bad_share: %.2f # %.0f %% of them cannot be read\n", fmin(1, 0.05 + 1.5 * bad),
                      100 * bad);
}

static i64 between(double value, i64 least, i64 most)
{
    i64 rounded = (i64)(value / 100) * 100;
    return min_i64(max_i64(rounded, least), most);
}

static void put_text_tokenizer(struct buffer *out, const struct init_plan *p)
{
    bool little = p->text_bytes < 1e5;
    const struct init_data *texts = &p->data[p->texts];
    buffer_printf(out,
                  "  # Vocabulary by the %.*f %s of text: 1024 below 0.2 MB, 2048 below 2 MB, 4096 below 30 MB.\n"
                  "  bpe:\n    kind: tokenizer-text\n",
                  little ? 1 : 2, p->text_bytes * (little ? 1e-3 : 1e-6), little ? "kB" : "MB");
    put_data(out, texts, 0);
    buffer_printf(out, "    vocabulary: %lld\n", (long long)p->vocabulary);
    if (p->text_bytes > 8e6)
        buffer_printf(out, "    bytes: %s\n", p->size->small ? "8000000" : "100000000");
}

/* Shapes with their pixels and shares, in words. */
static void put_shares(struct buffer *out, const struct init_shapes *s)
{
    for (i64 i = 0; i < s->list.count; i++) {
        buffer_printf(out, "%s", i ? ", " : "");
        init_put_proportions(out, s->list.items[i]);
        buffer_printf(out, " for %.0f %%", 100 * s->share[i]);
    }
}

static void put_shapes(struct buffer *out, const struct init_shapes *s)
{
    if (s->usual)
        return;
    buffer_printf(out, "    # Width to height of %lld looked at: ", (long long)s->looked);
    put_shares(out, s);
    buffer_printf(
        out,
        ".\n    # Pictures are cut by %.1f %% and white by %.1f %%, with the usual shapes by %.1f %% and %.1f "
        "%%.\n    aspects: {shapes: [",
        100 * s->loss.cut, 100 * s->loss.white, 100 * s->before.cut, 100 * s->before.white);
    for (i64 i = 0; i < s->list.count; i++) {
        buffer_printf(out, "%s\"", i ? ", " : "");
        init_put_proportions(out, s->list.items[i]);
        buffer_printf(out, "\"");
    }
    buffer_printf(out, "]}\n");
}

/* What was chosen for pictures and clips. */
static void log_shapes(const struct init_plan *p)
{
    struct buffer text = {0};
    const struct init_shapes *s = &p->shapes;
    if (p->pictures < 0 || s->looked == 0)
        return;
    put_shares(&text, s);
    buffer_printf(&text, " of %lld looked at: pictures are cut by %.1f %% and white by %.1f %%", (long long)s->looked,
                  100 * s->loss.cut, 100 * s->loss.white);
    if (!s->usual)
        buffer_printf(&text, ", with the usual shapes by %.1f %% and %.1f %%", 100 * s->before.cut,
                      100 * s->before.white);
    log_info("shapes of pictures%s, width to height: %s (vis.aspects)", s->usual ? ", the usual ones" : "", text.data);
    buffer_release(&text);
}

static void put_tokenizers(struct buffer *out, const struct init_plan *p)
{
    bool large = !p->size->small;
    if (p->wordless)
        buffer_printf(out, "  # No captions, so no words: tokenizers of media alone.\n");
    else
        put_text_tokenizer(out, p);
    if (p->pictures >= 0) {
        const struct init_data *d = &p->data[p->pictures];
        double stills = init_media_of(p, d, MODALITY_IMAGE), clips = init_media_of(p, d, MODALITY_VIDEO);
        i64 steps = between(30 * fmax(stills, clips) / 8, 2000, large ? 20000 : 6000),
            clip_steps = p->clips ? between(30 * clips / 4, 400, large ? 4000 : 1000) : 0;
        buffer_printf(out, "\n  # %lld steps of 8 pictures: about %.0f epochs of %.0f %s.\n", (long long)steps,
                      8 * (double)steps / fmax(stills, clips), fmax(stills, clips),
                      stills >= clips ? "pictures" : "clips");
        buffer_printf(out, "  vis:\n    kind: tokenizer-vision\n");
        put_data(out, d, 1u << MODALITY_IMAGE | 1u << MODALITY_VIDEO);
        buffer_printf(out, "    steps: %lld\n    clip_steps: %lld\n    optimizer: {lr: 4.5e-3, cautious: true}\n",
                      (long long)steps, (long long)clip_steps);
        put_shapes(out, &p->shapes);
    }
    if (p->sounds >= 0) {
        const struct init_data *d = &p->data[p->sounds];
        double seconds = init_mean_seconds(d, MODALITY_AUDIO) * init_media_of(p, d, MODALITY_AUDIO);
        if (p->film_sound && init_has_sound(d))
            seconds += init_film_seconds(d);
        i64 steps = between(20 * seconds / 15, 1200, large ? 10000 : 3000);
        buffer_printf(out, "\n  # %lld steps of 12 crops of 1.28 s: about %.0f epochs of %.0f s of sound.\n",
                      (long long)steps, 15.36 * (double)steps / fmax(seconds, 1), seconds);
        buffer_printf(out, "  aud:\n    kind: tokenizer-audio\n");
        put_data(out, d, 1u << MODALITY_AUDIO | 1u << MODALITY_VIDEO);
        if (p->film_sound && init_has_sound(d))
            buffer_printf(out, "    films: true # the sound of clips\n");
        buffer_printf(out, "    steps: %lld\n    optimizer: {lr: 3e-3, cautious: true}\n", (long long)steps);
    }
}

/* The shards of folder i; a list of all for i < 0. */
static void put_shards_name(struct buffer *out, const struct init_plan *p, i64 i)
{
    if (i >= 0 && i > 0)
        buffer_printf(out, "shards-%lld", (long long)i + 1);
    else if (i == 0 || p->count == 1)
        buffer_printf(out, "shards");
    else
        for (i64 k = 0; k < p->count; k++) {
            buffer_printf(out, "%s", k ? ", " : "[");
            put_shards_name(out, p, k);
            buffer_printf(out, "%s", k == p->count - 1 ? "]" : "");
        }
}

static void put_model_part(struct buffer *out, const char *key, const struct init_model *model, const char *part)
{
    char *path = *part ? path_join(model->directory, part) : string_copy(model->directory);
    buffer_printf(out, "    %s: ", key);
    put_path(out, path);
    buffer_printf(out, "\n");
    memory_free(path);
}

static void put_tokenizer_names(struct buffer *out, const struct init_plan *p)
{
    static const char *const keys[] = {"text", "vision", "audio"}, *const stages[] = {"bpe", "vis", "aud"},
                             *const parts[] = {"", "weft/vision", "weft/audio"};
    /* all of a model's, so that its shards can be mixed with these */
    const bool used[] = {true, p->from ? p->from->vision : p->pictures >= 0, p->from ? p->from->audio : p->sounds >= 0};
    for (i64 i = 0; i < COUNT_OF(keys); i++)
        if (used[i] && p->from)
            put_model_part(out, keys[i], p->from, parts[i]);
        else if (used[i])
            buffer_printf(out, "    %s: %s\n", keys[i], stages[i]);
}

static void put_shards(struct buffer *out, const struct init_plan *p)
{
    buffer_printf(out, "\n  # Samples, encoded once.\n");
    for (i64 i = 0; i < p->count; i++) {
        const struct init_data *d = &p->data[i];
        const struct init_kind *clips = &d->kinds[init_captioned(MODALITY_VIDEO)];
        buffer_printf(out, "  ");
        put_shards_name(out, p, i);
        buffer_printf(out, ":\n    kind: prepare\n");
        put_data(out, d, ~0u);
        put_tokenizer_names(out, p);
        if (p->film_sound && clips->samples && init_has_sound(d))
            buffer_printf(out, "    film_sound: take # the sound of a clip follows it\n");
        if (p->clips && clips->samples && init_has_films(d))
            buffer_printf(out,
                          "    windows: {every_s: %.3g} # films of %.0f s on average: about %.0f windows, each with "
                          "%s\n",
                          init_window_every_s(d), init_mean_seconds(d, MODALITY_VIDEO),
                          init_pieces_of(d, MODALITY_VIDEO), clips->subtitled ? "its subtitles" : "the whole caption");
        if (p->sounds >= 0 && init_cuts_sounds(d))
            buffer_printf(out, "    cut_sounds: true # some last longer than 30 s: cut at their quietest points\n");
    }
}

/* Two digits of a number of times. */
static void put_times(struct buffer *out, double times)
{
    double unit = times > 0 ? pow(10, floor(log10(times)) - 1) : 1;
    buffer_printf(out, "%.6g", round(times / unit) * unit);
}

/* Shards of the model's training are shown beside the data. */
static bool mixes_old(const struct init_plan *p)
{
    return p->from && p->from->shards;
}

static void put_mixture(struct buffer *out, const struct init_plan *p)
{
    bool first = true;
    buffer_printf(out, "    mixture: {");
    for (int d = 0; d < DIRECTIONS; d++) {
        char name[INIT_KEY];
        if (p->mixture[d] == 0 && !mixes_old(p)) /* not there; the default is 1 */
            continue;
        init_direction_key(name, (enum direction)d);
        buffer_printf(out, "%s%s: ", first ? "" : ", ", name);
        put_times(out, p->mixture[d]);
        first = false;
    }
    buffer_printf(out, "}\n");
}

/* How often the run shows a sample of each kind. */
static void put_shown(struct buffer *out, const struct init_plan *p)
{
    static const struct {
        enum direction direction;
        const char *what;
    } rows[] = {{DIRECTION_TEXT, "each text"},
                {DIRECTION_IMAGE_IN, "each picture in both directions"},
                {DIRECTION_VIDEO_IN, "each clip in both directions"},
                {DIRECTION_AUDIO_IN, "each sound in both directions"},
                {DIRECTION_CHAT, "each conversation"}};
    bool first = true;
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        if (p->times[rows[i].direction] == 0)
            continue;
        buffer_printf(out, "%s  #   %s about ", first ? "" : ",\n", rows[i].what);
        put_times(out, p->times[rows[i].direction]);
        buffer_printf(out, " times");
        first = false;
    }
    buffer_printf(out, ".\n");
}

static void put_batch(struct buffer *out, const struct init_plan *p)
{
    buffer_printf(out, "    batch: {rows: %lld, length: %lld, micro_rows: %lld}\n", (long long)p->rows,
                  (long long)p->length, (long long)min_i64(p->rows, 4));
}

static void put_shards_line(struct buffer *out, const struct init_plan *p)
{
    buffer_printf(out, "    data: ");
    put_shards_name(out, p, -1);
    buffer_printf(out, "\n");
}

static bool has_held_out(const struct init_plan *p, enum outcome first, enum outcome last)
{
    i64 sum = 0;
    for (i64 i = 0; i < p->count; i++)
        for (int k = first; k <= (int)last; k++)
            sum += init_held_out(&p->data[i], (enum outcome)k);
    return sum > 0;
}

/* The result is the best of twenty measurements, and the stage ends after six without a better one. */
static void put_keep_best(struct buffer *out, i64 steps)
{
    enum { MEASURED = 20, PATIENCE = 6, MEASURED_ROWS = 32 };
    i64 every = max_i64(1, steps / MEASURED);
    buffer_printf(out,
                  "    heldout_steps: %lld\n    heldout_steps_rows: %d\n    keep_best: heldout\n    patience: %d\n",
                  (long long)(every > 10 ? every / 5 * 5 : every), MEASURED_ROWS, PATIENCE);
}

/* Of further training: a third of the usual one, and less for wider models. */
static double lr_of(const struct init_model *model)
{
    enum { WIDTH = 192 };
    return 1e-3 * fmin(1, (double)WIDTH / (double)model->width);
}

/* Three rows in four are of the data, and one of what the model was trained on, if that is known. */
static void put_base_data(struct buffer *out, const struct init_plan *p)
{
    if (p->from)
        put_model_part(out, "from", p->from, "");
    if (!mixes_old(p)) {
        put_shards_line(out, p);
        return;
    }
    buffer_printf(out, "    data:\n      mine: {data: ");
    put_shards_name(out, p, -1);
    buffer_printf(out, ", share: 3}\n      before: {data: ");
    put_path(out, p->from->shards);
    buffer_printf(out, ", share: 1} # so that the model keeps what it knows\n    heldout: ");
    put_shards_name(out, p, -1);
    buffer_printf(out, "\n");
}

/* name: of the stage; of the model to go on from, or of base. */
static void put_eval(struct buffer *out, const struct init_plan *p, const char *name, bool after, bool old)
{
    enum { OLD_ROWS = 64 };
    buffer_printf(out, "  %s:\n    kind: eval\n", name);
    if (after)
        buffer_printf(out, "    from: base\n");
    else
        put_model_part(out, "from", p->from, "");
    if (!old) {
        put_shards_line(out, p);
    } else {
        buffer_printf(out, "    data: ");
        put_path(out, p->from->shards);
        buffer_printf(out, "\n    rows: %d\n", OLD_ROWS);
    }
    if (p->length != 512)
        buffer_printf(out, "    length: %lld\n", (long long)p->length);
}

/* Losses before or after, on the data and on what the model was trained on. */
static void put_evals(struct buffer *out, const struct init_plan *p, bool after)
{
    if (!p->from)
        return;
    buffer_printf(out, "\n  # Held-out losses %s.\n", after ? "after it" : "before training goes on");
    if (has_held_out(p, BECOMES_TEXT, OUTCOMES - 1))
        put_eval(out, p, after ? "after" : "before", after, false);
    if (mixes_old(p))
        put_eval(out, p, after ? "old-after" : "old-before", after, true);
}

static void put_base(struct buffer *out, const struct init_plan *p)
{
    bool small = p->size->small;
    buffer_printf(out, "\n  # %lld steps of %lld x %lld positions. They show\n", (long long)p->steps,
                  (long long)p->rows, (long long)p->length);
    put_shown(out, p);
    if (p->length > p->size->length)
        buffer_printf(out, "  # Rows of %lld, as more than 2 %% of the samples are longer than %lld.\n",
                      (long long)p->length, (long long)p->length / 2);
    if (!small)
        buffer_printf(out, "  # `weft plan` estimates time and memory.\n");
    buffer_printf(out, "  base:\n    kind: pretrain\n");
    put_base_data(out, p);
    buffer_printf(out, "    steps: %lld\n%s", (long long)p->steps, small ? "    heldout_rows: 0\n" : "");
    if (has_held_out(p, BECOMES_TEXT, OUTCOMES - 1))
        put_keep_best(out, p->steps);
    put_batch(out, p);
    if (!p->from)
        buffer_printf(out, "    model: %s\n    optimizer: {lr: %g, %s}\n", p->size->model, p->size->lr,
                      p->size->optimizer);
    else
        buffer_printf(out, "    optimizer: {lr: %.2g, warmup: -50, weight_decay: 0.1}\n", lr_of(p->from));
    put_mixture(out, p);
    if (p->pictures >= 0 || (mixes_old(p) && p->from->vision))
        buffer_printf(out, "    pack: {flip_most: 0.05}\n");
    buffer_printf(out, "\n  grid:\n    kind: grid\n    from: base\n");
    put_shards_line(out, p);
    if (p->length != 512)
        buffer_printf(out, "    length: %lld\n", (long long)p->length);
    if (!p->half)
        return;
    buffer_printf(out,
                  "\n  # A sub-model of about half the active parameters, cut out and trained a little further.\n"
                  "  half:\n    kind: extract\n    from: base\n    layers: %s\n    experts: \"%s\"\n    topk: \"%s\"\n",
                  p->size->half, p->size->half_experts, p->size->half_topk);
    buffer_printf(out, "  more:\n    kind: pretrain\n    from: half\n");
    put_shards_line(out, p);
    buffer_printf(out, "    steps: %lld\n%s", (long long)(p->steps / 15), small ? "    heldout_rows: 0\n" : "");
    put_batch(out, p);
    put_mixture(out, p);
    if (p->pictures >= 0)
        buffer_printf(out, "    pack: {flip_most: 0.05}\n");
    buffer_printf(out, "    elastic: {on: false}\n    optimizer: {lr: %g, warmup: -10}\n", p->size->lr / 3);
}

static void put_sft(struct buffer *out, const struct init_plan *p)
{
    i64 rows = p->size->small ? 2 : 8;
    double step = (double)(rows * p->length);
    i64 steps = min_i64(max_i64((i64)(3 * p->chat_positions / step), 30), p->size->small ? 1000 : 5000);
    if (!p->chats)
        return;
    buffer_printf(
        out,
        "\n  # %lld steps of %lld x %lld positions: about %.1f epochs of the conversations.\n  sft:\n    kind: "
        "sft\n    from: base\n",
        (long long)steps, (long long)rows, (long long)p->length, step * (double)steps / fmax(p->chat_positions, 1));
    put_shards_line(out, p);
    buffer_printf(out, "    steps: %lld\n%s", (long long)steps, p->size->small ? "    heldout_rows: 0\n" : "");
    if (has_held_out(p, BECOMES_CHAT, BECOMES_CHAT))
        put_keep_best(out, steps);
    buffer_printf(out,
                  "    batch: {rows: %lld, length: %lld, micro_rows: 2}\n    optimizer: {lr: 1e-3, warmup: -20, "
                  "cautious: true}\n",
                  (long long)rows, (long long)p->length);
}

static void put_rest(struct buffer *out, const struct init_plan *p)
{
    i64 count = 0;
    buffer_printf(out, "\n  samples:\n    kind: generate\n    from: base\n");
    put_samples(out, &p->data[p->shown]);
    for (i64 i = 0; i < p->count; i++)
        for (i64 k = 0; k < INIT_PROMPTS && p->data[i].prompts[k] && count < INIT_PROMPTS; k++) {
            buffer_printf(out, "%s", count++ ? ", " : "    prompts: [");
            put_string(out, p->data[i].prompts[k]);
        }
    buffer_printf(out, "%s  routing:\n    kind: routing\n    from: base\n", count ? "]\n" : "");
    put_shards_line(out, p);
    if (p->length != 512)
        buffer_printf(out, "    length: %lld\n", (long long)p->length);
    buffer_printf(out, "  export:\n    kind: export\n    from: base\n  report:\n    kind: report\n");
}

/* Samples that no row holds are left out. */
static void warn_of_sizes(const struct init_plan *p)
{
    for (int k = BECOMES_IDS + 1; k < OUTCOMES; k++) {
        i64 longer = init_longer_than(p, (enum outcome)k, p->length),
            samples = (i64)init_samples_of(p, (enum outcome)k);
        if (longer)
            log_warn("%lld of %lld x %s: by their sizes longer than a row of %lld positions (base.batch.length), so "
                     "that they will be left out: split them, or make the rows longer",
                     (long long)longer, (long long)samples, outcome_name(k), (long long)p->length);
    }
    if (p->few)
        log_warn("the data are too little to learn from: %.0f bytes of text and %.0f media. After %lld steps the model "
                 "would know them by heart and little else: add data",
                 p->text_bytes, p->media, (long long)p->steps);
}

int init_put_recipe(struct buffer *out, const struct init_data *data, i64 count, const struct init_model *from,
                    const char *run)
{
    struct init_plan plan;
    if (plan_init(&plan, data, count, from))
        return -1;
    log_shapes(&plan);
    if (!plan.wordless)
        warn_of_sizes(&plan);
    buffer_printf(out, "# Written by `weft init`. `weft run` with this file runs it; STAGE.key=value changes any "
                       "setting, and\n# `weft run --kinds` lists them all. Keys beside `stages` compare settings, each "
                       "over several seeds in place of\n# one: `arms: {NAME: {STAGE.key: value}}` and `seeds: [1, 2, "
                       "3]`.\nrun: ");
    put_path(out, run);
    buffer_printf(out, "\nseed: %d\nprecision: auto\nstages:\n", INIT_SEED);
    if (!from)
        put_tokenizers(out, &plan);
    if (plan.wordless) {
        buffer_printf(out, "  report:\n    kind: report\n");
        return 0;
    }
    put_shards(out, &plan);
    put_evals(out, &plan, false);
    put_base(out, &plan);
    put_evals(out, &plan, true);
    put_sft(out, &plan);
    put_rest(out, &plan);
    return 0;
}
