/* Reconstruction quality of the tokenizers on held-out media. */
#include "report/media.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    OPEN_PAIRS = 5,
    OPEN_VIEWS = 3,
    OPEN_SOUNDS = 3,
    SMALL = 128 /* pixels */
};              /* a row; further pairs are folded */

/* ---- Vision: CSS cuts the pairs from one image, which the page contains once ---- */

struct tokenizers_sheet {
    i64 pairs, parts, frames, rows, columns, height, width, index;
    double rate_hz;
    const char *what;         /* "held-out picture" */
    const struct json *views; /* names of the parts; NULL: the usual ones */
};

/* What the parts of an item are: an original and its copies. */
static const char *part_name(const struct tokenizers_sheet *s, i64 part)
{
    static const char *const names[] = {"original", "enlarged", "refined"};
    if (s->views)
        return json_string(json_at(s->views, part), "");
    return s->parts == 2 && part == 1 ? "from tokens" : names[part];
}

/* CSS background-position of item `at` of `count`, in percent. */
static double sprite_position(i64 at, i64 count)
{
    return count > 1 ? 100 * (double)at / (double)(count - 1) : 0;
}

static void put_cell(struct page *p, const struct tokenizers_sheet *s, i64 pair, i64 part)
{
    i64 items_a_row = max_i64(1, s->columns / s->parts), row = pair / items_a_row;
    i64 column = pair % items_a_row * s->parts + part;
    if (s->frames > 1) {
        row = s->parts * pair + part;
        column = 0;
    }
    html_element(&p->html, "small", NULL, "%s", part_name(s, part));
    buffer_printf(&p->html, "<i role='img' aria-label='%s %lld, ", s->what, (long long)pair + 1);
    html_text(&p->html, part_name(s, part));
    buffer_printf(&p->html, "' class='s%lld' style='background-position:%.3f%% %.3f%%", (long long)s->index,
                  sprite_position(column, s->columns), sprite_position(row, s->rows));
    if (s->frames > 1)
        buffer_printf(&p->html, ";animation:play %.3fs steps(%lld,jump-none) infinite",
                      (double)s->frames / (s->rate_hz > 0 ? s->rate_hz : 8), (long long)s->frames);
    buffer_printf(&p->html, "'></i>");
}

static void put_cells(struct page *p, const struct tokenizers_sheet *s, i64 begin, i64 end)
{
    const char *class = s->width > SMALL ? "media sheet large" : s->views ? "media sheet four" : "media sheet";
    if (begin)
        buffer_printf(&p->html, "<div class='%s'>", class);
    else
        row_open(p, class);
    for (i64 i = begin; i < end; i++) {
        buffer_printf(&p->html, "<figure class='pair'><div class='two-up'>");
        for (i64 part = 0; part < s->parts; part++) {
            buffer_printf(&p->html, "<div>");
            put_cell(p, s, i, part);
            buffer_printf(&p->html, "</div>");
        }
        buffer_printf(&p->html, "</div></figure>");
    }
    buffer_printf(&p->html, "</div>");
}

/* Adds the image to the page's style once. False if it is missing. */
static bool add_sheet(struct page *p, struct tokenizers_sheet *s, const struct run_stage *stage, const struct json *j)
{
    char *path = stage_file(stage, json_string(json_get(j, "file"), NULL));
    const struct json *views = json_get(j, "views");
    i64 parts = json_integer(json_get(j, "parts"), 2) == 3 ? 3 : 2;
    *s = (struct tokenizers_sheet){.pairs = json_integer(json_get(j, "pairs"), 0),
                                   .parts = views ? max_i64(json_count(views), 1) : parts,
                                   .frames = json_integer(json_get(j, "frames"), 1),
                                   .rows = json_integer(json_get(j, "rows"), 0),
                                   .columns = json_integer(json_get(j, "columns"), 0),
                                   .height = json_integer(json_get(j, "height"), 1),
                                   .width = json_integer(json_get(j, "width"), 1),
                                   .index = p->sheets,
                                   .rate_hz = json_number(json_get(j, "rate_hz"), 0),
                                   .views = views};
    i64 begin = p->css.length, room = s->frames > 1 ? s->rows / s->parts : s->rows * (s->columns / s->parts);
    s->pairs = min_i64(s->pairs, room);
    buffer_printf(&p->css, ".s%lld{background-size:%lld%% %lld%%;background-image:url(", (long long)s->index,
                  (long long)(100 * s->columns), (long long)(100 * s->rows));
    bool there = path && s->pairs > 0 && html_data_uri(&p->css, path) == 0;
    if (there) {
        buffer_printf(&p->css, ")}\n.sheet .s%lld{aspect-ratio:%lld/%lld}\n", (long long)s->index, (long long)s->width,
                      (long long)s->height);
        p->sheets++;
    } else if (p->css.data)
        truncate_text(&p->css, begin);
    memory_free(path);
    return there;
}

static void put_sheet(struct page *p, const struct run_stage *stage, const struct json *j, const char *what)
{
    struct tokenizers_sheet s;
    if (!add_sheet(p, &s, stage, j))
        return;
    i64 open = s.views ? OPEN_VIEWS : OPEN_PAIRS;
    s.what = what;
    put_cells(p, &s, 0, min_i64(s.pairs, open));
    if (s.pairs > open) {
        fold_open(p, "%lld more", (long long)(s.pairs - open));
        put_cells(p, &s, open, s.pairs);
        fold_close(p);
    }
}

static const struct {
    const char *key, *title, *what;
} vision_kinds[] = {{"stills_held_out", "Pictures it never saw", "New picture"},
                    {"clips_held_out", "Clips it never saw", "New clip"},
                    {"stills_training", "Pictures it was trained on", "Training picture"},
                    {"clips_training", "Clips it was trained on", "Training clip"}};

static void put_vision_table(struct page *p, const struct json *file)
{
    static const char *const heads[] = {"<media", "PSNR, dB", "number", "entropy of a bit, by scale",
                                        "dead bits, by scale"};
    bool scaled = false;
    table_open(p, heads, COUNT_OF(heads));
    for (i64 i = 0; i < COUNT_OF(vision_kinds); i++) {
        const struct json *kind = json_get(file, vision_kinds[i].key), *scales = json_get(kind, "scales");
        struct buffer entropy = {0}, dead = {0};
        if (!kind)
            continue;
        scaled |= json_count(scales) > 0;
        for (i64 k = 0; k < json_count(scales); k++) {
            const struct json *scale = json_at(scales, k);
            buffer_printf(&entropy, "%s%.2f", k ? " \u00b7 " : "", json_number(json_get(scale, "entropy_bits"), 0));
            buffer_printf(&dead, "%s%lld", k ? " \u00b7 " : "",
                          (long long)json_integer(json_get(scale, "dead_bits"), 0));
        }
        buffer_printf(&p->html, "<tr>");
        html_element(&p->html, "td", "w", "%s", vision_kinds[i].title);
        cell_figure(p, number_at(kind, "psnr_db"), UNIT_NUMBER, 2);
        cell_figure(p, number_at(kind, "items"), UNIT_NUMBER, 0);
        cell_words(p, "%s", entropy.data ? entropy.data : "");
        cell_words(p, "%s", dead.data ? dead.data : "");
        buffer_printf(&p->html, "</tr>");
        buffer_release(&entropy);
        buffer_release(&dead);
    }
    table_close(p);
    if (scaled)
        put_note(p,
                 "Scales from coarse to fine. The entropy of a bit is 1 if half of its values are 1, and 0 if all are "
                 "equal. A bit is dead if more than 99\u00a0%% of its values are equal.");
}

static void put_row(struct page *p, const char *name, double value, enum unit unit, int digits)
{
    if (!isfinite(value))
        return;
    buffer_printf(&p->html, "<tr>");
    cell_words(p, "%s", name);
    cell_figure(p, value, unit, digits);
    buffer_printf(&p->html, "</tr>");
}

/* What a linear probe tells of held-out captions from codes alone. kind: "level 0". */
static void put_words(struct page *p, const struct json *probe, const char *kind)
{
    if (!probe)
        return;
    char *right = string_format("likeliest word of new captions told right from %s (the most frequent: %.1f\u00a0%%)",
                                kind, 100 * number_at(probe, "right_chance"));
    char *mean = string_format("average precision of %lld words, told from %s (chance: %.3f)",
                               (long long)json_integer(json_get(probe, "words"), 0), kind,
                               number_at(probe, "average_precision_chance"));
    put_row(p, right, number_at(probe, "right"), UNIT_SHARE, 1);
    put_row(p, mean, number_at(probe, "average_precision"), UNIT_NUMBER, 3);
    memory_free(right);
    memory_free(mean);
}

static void put_vision_words(struct page *p, const struct json *file)
{
    static const char *const heads[] = {"figure", "value"};
    const struct json *stills = json_get(file, "words_probe"), *clips = json_get(file, "words_probe_clips");
    if (!stills && !clips)
        return;
    table_open(p, heads, COUNT_OF(heads));
    put_words(p, stills, "the codes of a picture");
    put_words(p, clips, "the codes of a clip");
    table_close(p);
}

/* The tokenizer beside codecs that have as many bytes for a picture. */
static void put_vision_codecs(struct page *p, const struct run_stage *s, const struct json *codecs)
{
    static const char *const heads[] = {"<by", "bytes a picture", "PSNR, dB", "SSIM", "edges"};
    const struct json *rows = json_get(codecs, "rows");
    if (json_count(rows) == 0)
        return;
    html_element(&p->html, "h4", NULL, "Beside codecs of as many bytes, %lld new pictures",
                 (long long)json_integer(json_get(codecs, "items"), 0));
    table_open(p, heads, COUNT_OF(heads));
    for (i64 i = 0; i < json_count(rows); i++) {
        const struct json *row = json_at(rows, i);
        buffer_printf(&p->html, "<tr>");
        html_element(&p->html, "td", "w", "%s", json_string(json_get(row, "name"), ""));
        cell_figure(p, number_at(row, "bytes"), UNIT_NUMBER, 0);
        cell_figure(p, number_at(row, "psnr_db"), UNIT_NUMBER, 2);
        cell_figure(p, number_at(row, "ssim"), UNIT_NUMBER, 3);
        cell_figure(p, number_at(row, "edges"), UNIT_SHARE, 0);
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
    put_note(p, "A codec gets each picture in the size and quality that bring it nearest to the original. Edges are "
                "differences of neighbouring pixels, as a share of the original's.");
    put_sheet(p, s, json_get(codecs, "sheet"), "New picture");
}

/* Pairs of media of one shape. */
static void put_shape(struct page *p, const struct run_stage *s, const struct json *shape, i64 kind)
{
    double psnr = json_number(json_get(shape, "psnr_db"), NAN);
    struct buffer title = {0};
    buffer_printf(&title, "%s, %s", vision_kinds[kind].title, json_string(json_get(shape, "shape"), ""));
    if (!isnan(psnr))
        buffer_printf(&title, ": %.2f\u00a0dB", psnr);
    html_element(&p->html, "h4", NULL, "%s", title.data);
    buffer_release(&title);
    put_sheet(p, s, json_get(shape, "sheet"), vision_kinds[kind].what);
}

static void put_vision(struct page *p, const struct run_stage *s, const struct json *file)
{
    group_open(p, "%s: pictures and clips through tokens", s->name);
    put_vision_table(p, file);
    put_vision_words(p, file);
    put_vision_codecs(p, s, json_get(json_get(file, "stills_held_out"), "codecs"));
    for (i64 i = 0; i < COUNT_OF(vision_kinds); i++) {
        const struct json *kind = json_get(file, vision_kinds[i].key), *shapes = json_get(kind, "shapes");
        if (json_get(kind, "sheet")) {
            html_element(&p->html, "h4", NULL, "%s", vision_kinds[i].title);
            put_sheet(p, s, json_get(kind, "sheet"), vision_kinds[i].what);
        }
        for (i64 k = 0; k < json_count(shapes); k++) {
            if (k == 1)
                fold_open(p, "%s: %lld more shapes", vision_kinds[i].title, (long long)json_count(shapes) - 1);
            put_shape(p, s, json_at(shapes, k), i);
        }
        if (json_count(shapes) > 1)
            fold_close(p);
    }
    group_close(p, s);
}

/* ---- The refiner ---- */

static const struct {
    const char *key, *title, *what;
} refined_kinds[] = {{"refined_stills_held_out", "Pictures it never saw", "New picture"},
                     {"refined_clips_held_out", "Clips it never saw", "New clip"},
                     {"refined_stills_training", "Pictures it was trained on", "Training picture"}};

static void put_refined_row(struct page *p, const char *title, const struct json *kind, const char *part,
                            const char *name)
{
    const struct json *of = json_get(kind, part);
    buffer_printf(&p->html, "<tr>");
    html_element(&p->html, "td", "w", "%s, %s", title, name);
    cell_figure(p, number_at(of, "psnr_db"), UNIT_NUMBER, 2);
    cell_figure(p, number_at(of, "ssim"), UNIT_NUMBER, 3);
    cell_figure(p, number_at(of, "edges"), UNIT_SHARE, 1);
    cell_figure(p, number_at(kind, "items"), UNIT_NUMBER, 0);
    buffer_printf(&p->html, "</tr>");
}

static void put_refiner(struct page *p, const struct run_stage *s, const struct json *file)
{
    static const char *const heads[] = {"<media", "PSNR, dB", "SSIM", "edges", "number"};
    group_open(p, "%s: decoded pictures, twice as large", s->name);
    table_open(p, heads, COUNT_OF(heads));
    for (i64 i = 0; i < COUNT_OF(refined_kinds); i++) {
        const struct json *kind = json_get(file, refined_kinds[i].key);
        if (!kind)
            continue;
        put_refined_row(p, refined_kinds[i].title, kind, "bicubic", "bicubic");
        put_refined_row(p, refined_kinds[i].title, kind, "refined", "refined");
    }
    table_close(p);
    put_note(p,
             "Against originals of the larger size. Edges: the sum of absolute differences of neighbouring pixels as "
             "a share of the original's; less is softer.");
    for (i64 i = 0; i < COUNT_OF(refined_kinds); i++) {
        const struct json *kind = json_get(file, refined_kinds[i].key);
        if (!json_get(kind, "sheet"))
            continue;
        html_element(&p->html, "h4", NULL, "%s", refined_kinds[i].title);
        put_sheet(p, s, json_get(kind, "sheet"), refined_kinds[i].what);
    }
    group_close(p, s);
}

/* ---- Audio ---- */

static void put_levels(struct page *p, const struct json *file, const char *key, const char *title)
{
    const struct json *levels = json_get(json_get(file, key), "levels");
    for (i64 i = 0; i < json_count(levels); i++) {
        char *name = string_format("codes of level %lld in even use on %s (%lld never used)", (long long)i, title,
                                   (long long)json_integer(json_get(json_at(levels, i), "dead"), 0));
        put_row(p, name, number_at(json_at(levels, i), "perplexity"), UNIT_NUMBER, 0);
        memory_free(name);
    }
}

static void put_audio_table(struct page *p, const struct json *file)
{
    static const char *const heads[] = {"figure", "value"};
    const struct json *distance = json_get(file, "held_out_distance"), *probe = json_get(file, "digit_probe");
    table_open(p, heads, COUNT_OF(heads));
    put_row(p, "log-mel distance on new voices, in nats, all levels", number_at(distance, "log_mel"), UNIT_NUMBER, 3);
    put_row(p, "with level 0 alone", number_at(distance, "log_mel_level_0"), UNIT_NUMBER, 3);
    put_row(p, "of the mean spectrum, for comparison", number_at(distance, "log_mel_mean_spectrum"), UNIT_NUMBER, 3);
    for (i64 i = 0; i < json_count(json_get(probe, "accuracy")); i++) {
        char *name = string_format("accuracy on spoken digits from level %lld only (chance: 10\u00a0%%)", (long long)i);
        put_row(p, name, json_number(json_at(json_get(probe, "accuracy"), i), NAN), UNIT_SHARE, 1);
        memory_free(name);
    }
    put_words(p, json_get(file, "words_probe"), "level 0");
    put_levels(p, file, "held_out", "new voices");
    table_close(p);
    if (json_count(json_get(json_get(file, "held_out"), "levels")))
        put_note(p, "Codes in even use: as many codes, all used equally often, have the same entropy.");
}

static const struct {
    const char *key, *picture, *title;
} codec_sounds[] = {{"codec2", "codec2_picture", "codec2"}, {"opus", "opus_picture", "Opus"}};

/* The tokenizer beside codecs of speech. */
static void put_audio_codecs(struct page *p, const struct json *codecs)
{
    static const char *const heads[] = {"<by", "bit/s", "log-mel distance", "below 3.6 kHz"};
    const struct json *rows = json_get(codecs, "rows");
    if (json_count(rows) == 0)
        return;
    html_element(&p->html, "h4", NULL, "Beside codecs of speech, %lld new recordings",
                 (long long)json_integer(json_get(codecs, "recordings"), 0));
    table_open(p, heads, COUNT_OF(heads));
    for (i64 i = 0; i < json_count(rows); i++) {
        const struct json *row = json_at(rows, i);
        buffer_printf(&p->html, "<tr>");
        html_element(&p->html, "td", "w", "%s", json_string(json_get(row, "name"), ""));
        cell_figure(p, number_at(row, "bits_per_s"), UNIT_NUMBER, 0);
        cell_figure(p, number_at(row, "log_mel"), UNIT_NUMBER, 3);
        cell_figure(p, number_at(row, "log_mel_low"), UNIT_NUMBER, 3);
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
    put_note(p,
             "All as loud as the original and without their delay. codec2 keeps 4\u00a0kHz, and so does Opus at such "
             "rates, which costs them the bands above.");
}

static void put_sound_pair(struct page *p, const struct run_stage *s, const struct json *one, int kind)
{
    const char *text = json_string(json_get(one, "text"), "");
    struct sound_card own = {"original", json_string(json_get(one, "original"), NULL),
                             json_string(json_get(one, "original_picture"), NULL), 1};
    struct sound_card again = {"from tokens", json_string(json_get(one, "reconstructed"), NULL),
                               json_string(json_get(one, "reconstructed_picture"), NULL), 1};
    (void)kind;
    buffer_printf(&p->html, "<figure class='pair'>");
    put_sound(p, s, &own, text);
    put_sound(p, s, &again, text);
    for (i64 i = 0; i < COUNT_OF(codec_sounds); i++) {
        const char *wav = json_string(json_get(one, codec_sounds[i].key), NULL);
        struct sound_card other = {codec_sounds[i].title, wav,
                                   json_string(json_get(one, codec_sounds[i].picture), NULL), 1};
        if (wav)
            put_sound(p, s, &other, text);
    }
    buffer_printf(&p->html, "<figcaption>");
    html_text(&p->html, text);
    buffer_printf(&p->html, "</figcaption></figure>");
}

static void put_audio(struct page *p, const struct run_stage *s, const struct json *file)
{
    const struct media_set set = {"Held-out voices", json_get(file, "shown")};
    group_open(p, "%s: speech through tokens", s->name);
    put_audio_table(p, file);
    put_audio_codecs(p, json_get(file, "held_out_codecs"));
    put_media_sets(p, s, &set, 1, "media sounds", OPEN_SOUNDS, 0, put_sound_pair);
    if (json_count(set.list))
        put_note(p, "Time runs to the right, mel bands from 0 to 8 kHz upwards; bright is loud.");
    group_close(p, s);
}

static void put_common(struct page *p, const struct json *file)
{
    double held_out = number_at(file, "held_out_files"), common = number_at(file, "held_out_trained_on");
    if (isfinite(common) && common > 0)
        put_note(p, "%.0f of the %.0f held-out files are training files too, so the figures of new media flatter.",
                 common, held_out);
}

void put_tokenizers(struct page *p)
{
    section_open(p, "tokenizers", "Tokenizers",
                 "Media encoded into tokens and decoded: an upper bound on the quality of any model.");
    for (i64 i = 0; i < p->runs[0].count && p->run_count == 1; i++) {
        const struct run_stage *s = &p->runs[0].stages[i];
        struct json *file = stage_json(s, "report.json");
        bool vision = json_get(file, "stills_held_out") || json_get(file, "stills_training");
        if (vision)
            put_vision(p, s, file);
        else if (json_get(file, "training") || json_get(file, "held_out_distance"))
            put_audio(p, s, file);
        else if (json_get(file, "refined_stills_training") || json_get(file, "refined_clips_held_out"))
            put_refiner(p, s, file);
        put_common(p, file);
        json_free(file);
    }
    section_close(p);
}
