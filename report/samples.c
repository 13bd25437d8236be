/* Media generated from captions and text generated from media, next to the originals. */
#include "report/media.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KIND_IMAGE, KIND_VIDEO, KIND_AUDIO, KINDS };
static const char *const kind_keys[KINDS] = {"image", "video", "audio"};
static const char *const kind_made[KINDS] = {"Pictures made from words", "Clips made from words", "Words spoken"};
static const char *const kind_told[KINDS] = {"Pictures described", "Clips described", "Speech written down"};
static const struct {
    const char *key, *name;
} parts[] = {{"test", "captions it never saw, test"},
             {"validation", "captions it never saw, validation"},
             {"train", "captions it was trained on"}};
enum { PARTS = COUNT_OF(parts), VALIDATION = 1 };

static const char *name_at(const struct json *j, const char *key)
{
    return json_string(json_get(j, key), NULL);
}

static const struct json *set_of(const struct json *file, int part, int kind, const char *end)
{
    char key[64];
    snprintf(key, sizeof key, "%s/%s%s", parts[part].key, kind_keys[kind], end);
    return json_get(file, key);
}

/* ---- Media from captions ---- */

/* by: the object with the shares of pairs. */
static void put_pair_row(struct page *p, const char *title, const struct json *set, const struct json *by, int kind)
{
    buffer_printf(&p->html, "<tr><td class='w'>%s</td>", title);
    cell_figure(p, number_at(set, "captions"), UNIT_NUMBER, 0);
    cell_figure(p, number_at(by, "pair"), UNIT_SHARE, 1);
    cell_interval(p, number_at(by, "pair_low"), number_at(by, "pair_high"));
    cell_figure(p, number_at(by, "retrieval"), UNIT_SHARE, 1);
    cell_figure(p, number_at(by, kind == KIND_AUDIO ? "length" : "ridge"), UNIT_SHARE, 1);
    cell_figure(p, 0.5, UNIT_SHARE, 0);
    buffer_printf(&p->html, "<td>");
    if (by == set)
        buffer_printf(&p->html, "%lld", (long long)json_integer(json_get(set, "first"), 0));
    buffer_printf(&p->html, "</td></tr>");
}

/* Shares of pairs in which the output is nearer to its own original, beside those of answers that
 * need no model. explained: what all tables have in common was said before. */
static void put_pairs(struct page *p, const struct json *file, int kind, bool *explained)
{
    static const char *const heads[] = {
        "<captions of",        "made",   "nearer to own original", "95\u00a0%", "by nearest caption",
        "by ridge regression", "chance", "nearest of all"};
    static const char *const sound_heads[] = {
        "<captions of", "made",   "nearer to own original", "95\u00a0%", "by nearest caption",
        "by length",    "chance", "nearest of all"};
    bool any = false;
    for (int i = 0; i < PARTS; i++) {
        const struct json *set = set_of(file, i, kind, ""), *aligned = json_get(set, "aligned");
        char *title = string_format("%s%s", parts[i].key, kind == KIND_AUDIO ? ", as it sounds" : "");
        if (isfinite(number_at(set, "pair"))) {
            if (!any)
                table_open(p, kind == KIND_AUDIO ? sound_heads : heads,
                           kind == KIND_AUDIO ? COUNT_OF(sound_heads) : COUNT_OF(heads));
            any = true;
            if (isfinite(number_at(aligned, "pair"))) { /* none was of like length */
                char *equal = string_format("%s, at equal length", parts[i].key);
                put_pair_row(p, equal, set, aligned, kind);
                memory_free(equal);
            }
            put_pair_row(p, title, set, set, kind);
        }
        memory_free(title);
    }
    if (!any)
        return;
    table_close(p);
    if (!*explained)
        put_note(p,
                 "A pair is an output and the original of another caption. By nearest caption: the training medium "
                 "whose caption shares most words takes the place of the output; for captions of train, one of "
                 "another caption. Nearest of all counts the outputs to which no original is nearer than their own.");
    if (kind == KIND_AUDIO)
        put_note(p,
                 "By length: a flat spectrum as long as the number of letters suggests. At equal length, outputs are "
                 "stretched to the original and compared only with originals of like length.");
    *explained = true;
    for (int i = 0; i < PARTS; i++) {
        const struct json *set = set_of(file, i, kind, "");
        double common = number_at(set, "trained_on");
        if (isfinite(common) && common > 0)
            put_note(p, "%.0f of the %.0f files of %s are training files too, so their figures flatter.", common,
                     number_at(set, "captions"), parts[i].key);
    }
}

static void put_pair(struct page *p, const struct run_stage *s, const struct json *item)
{
    const char *text = json_string(json_get(item, "text"), "");
    char *own = string_format("Original: %s", text), *made = string_format("Made from the words: %s", text);
    buffer_printf(&p->html, "<figure class='pair'><div class='two-up'>");
    put_titled_medium(p, s, "original", name_at(item, "original"), own);
    put_titled_medium(p, s, "made", name_at(item, "made"), made);
    buffer_printf(&p->html, "</div><figcaption>");
    html_text(&p->html, text);
    buffer_printf(&p->html, "</figcaption></figure>");
    memory_free(own);
    memory_free(made);
}

static void put_sounds(struct page *p, const struct run_stage *s, const struct json *item)
{
    const char *text = json_string(json_get(item, "text"), ""), *own = name_at(item, "original");
    const char *made = name_at(item, "made");
    char *about_own = string_format("Original: %s", text), *about_made = string_format("Spoken by the model: %s", text);
    double own_s = sound_seconds(s, own), made_s = sound_seconds(s, made), longer = fmax(fmax(own_s, made_s), 1e-3);
    struct sound_card cards[] = {{"original", own, name_at(item, "original_picture"), own_s / longer},
                                 {"made", made, name_at(item, "made_picture"), made_s / longer}};
    buffer_printf(&p->html, "<figure class='pair'>");
    put_sound(p, s, &cards[0], about_own);
    put_sound(p, s, &cards[1], about_made);
    buffer_printf(&p->html, "<figcaption>");
    html_text(&p->html, text);
    buffer_printf(&p->html, "</figcaption></figure>");
    memory_free(about_own);
    memory_free(about_made);
}

static void put_made(struct page *p, const struct run_stage *s, const struct json *item, int kind)
{
    if (kind == KIND_AUDIO)
        put_sounds(p, s, item);
    else
        put_pair(p, s, item);
}

/* ---- Text from media ---- */

static void put_description(struct page *p, const struct run_stage *s, const struct json *item, int kind)
{
    const char *text = json_string(json_get(item, "text"), ""), *said = json_string(json_get(item, "said"), "");
    bool same = strcmp(text, said) == 0;
    i64 begin = p->html.length;
    buffer_printf(&p->html, "<figure class='said told%s'>", kind == KIND_AUDIO ? " wide-medium" : "");
    bool seen = put_medium(p, s, name_at(item, "original"), text);
    if (!seen) {
        truncate_text(&p->html, begin);
        buffer_printf(&p->html, "<div class='said told wide-medium'>");
    }
    buffer_printf(&p->html, "<dl><dt>output</dt><dd%s>", same ? " class='same'" : "");
    html_text(&p->html, *said ? said : "(nothing)");
    buffer_printf(&p->html, "</dd><dt>%s</dt>", same ? "word for word right" : "right would be");
    if (!same)
        html_element(&p->html, "dd", NULL, "%s", text);
    buffer_printf(&p->html, seen ? "</dl></figure>" : "</dl></div>");
}

static void put_told(struct page *p, const struct json *file, int kind)
{
    static const char *const heads[] = {"<part",         "described", "word for word",     "95\u00a0%",
                                        "words right",   "95\u00a0%", "best fixed answer", "nearest medium's",
                                        "other captions"};
    bool any = false;
    for (int i = 0; i < PARTS; i++) {
        const struct json *set = set_of(file, i, kind, "-to-text");
        double media = number_at(set, "media"), low, high;
        if (!(media > 0))
            continue;
        if (!any)
            table_open(p, heads, COUNT_OF(heads));
        any = true;
        share_interval(&low, &high, number_at(set, "exact") / media, media);
        buffer_printf(&p->html, "<tr><td class='w'>%s</td>", parts[i].key);
        cell_figure(p, media, UNIT_NUMBER, 0);
        cell_figure(p, number_at(set, "exact"), UNIT_NUMBER, 0);
        cell_interval(p, low, high);
        cell_figure(p, number_at(set, "words"), UNIT_SHARE, 1);
        cell_interval(p, number_at(set, "words_low"), number_at(set, "words_high"));
        cell_figure(p, number_at(set, "words_fixed"), UNIT_SHARE, 1);
        cell_figure(p, number_at(set, "words_nearest"), UNIT_SHARE, 1);
        cell_figure(p, number_at(set, "words_exchanged"), UNIT_SHARE, 1);
        buffer_printf(&p->html, "</tr>");
    }
    if (any)
        table_close(p);
}

/* Accuracy by class of words, on the first part that was measured. */
static void put_classes(struct page *p, const struct json *file, int kind)
{
    static const char *const heads[] = {"<words",    "captions with such", "right",
                                        "95\u00a0%", "best fixed answer",  "nearest medium's"};
    const struct json *set = NULL, *classes;
    int part = 0;
    for (int i = PARTS - 1; i >= 0; i--)
        if (json_count(json_get(set_of(file, i, kind, "-to-text"), "classes"))) {
            set = set_of(file, i, kind, "-to-text");
            part = i;
        }
    classes = json_get(set, "classes");
    if (json_count(classes) == 0)
        return;
    fold_open(p, "By classes of words");
    put_note(p,
             "The best fixed answer does not look: \u201c%s\u201d scores highest on training captions. On %s, by "
             "classes of words that stand in for each other in training captions:",
             json_string(json_get(set, "words_fixed_answer"), ""), parts[part].key);
    table_open(p, heads, COUNT_OF(heads));
    for (i64 c = 0; c < json_count(classes); c++) {
        const struct json *class = json_at(classes, c), *words = json_get(class, "words");
        buffer_printf(&p->html, "<tr><td class='w'>");
        for (i64 w = 0; w < json_count(words) && w < 6; w++) {
            buffer_printf(&p->html, "%s", w ? ", " : "");
            html_text(&p->html, json_string(json_at(words, w), ""));
        }
        buffer_printf(&p->html, "%s</td>", json_count(words) > 6 ? ", .." : json_count(words) ? "" : "rarer words");
        cell_figure(p, number_at(class, "media"), UNIT_NUMBER, 0);
        cell_figure(p, number_at(class, "right"), UNIT_SHARE, 0);
        cell_interval(p, number_at(class, "low"), number_at(class, "high"));
        cell_figure(p, number_at(class, "fixed"), UNIT_SHARE, 0);
        cell_figure(p, number_at(class, "nearest"), UNIT_SHARE, 0);
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
    fold_close(p);
}

static void put_texts(struct page *p, const struct run_stage *s, const struct json *list)
{
    group_open(p, "Texts continued");
    if (json_count(list)) {
        buffer_printf(&p->html, "<div class='words'>");
        for (i64 i = 0; i < json_count(list); i++) {
            buffer_printf(&p->html, "<p class='said answer'><b>");
            html_text(&p->html, json_string(json_get(json_at(list, i), "prompt"), ""));
            buffer_printf(&p->html, "</b>");
            html_text(&p->html, json_string(json_get(json_at(list, i), "said"), ""));
            buffer_printf(&p->html, "</p>");
        }
        buffer_printf(&p->html, "</div>");
    }
    group_close(p, s);
}

/* ---- The stage ---- */

/* Samples of each part. Those of validation are shown if the part test was not measured. */
static i64 sets_of(struct media_set *sets, char (*titles)[64], const struct json *file, int kind, const char *end,
                   const char *preposition)
{
    bool tested = json_count(json_get(set_of(file, 0, kind, end), "shown")) > 0;
    i64 count = 0;
    for (int i = 0; i < PARTS; i++)
        if (!tested || i != VALIDATION) {
            snprintf(titles[count], sizeof titles[count], "%s %s", preposition, parts[i].name);
            sets[count] = (struct media_set){titles[count], json_get(set_of(file, i, kind, end), "shown")};
            count++;
        }
    return count;
}

static void put_stage(struct page *p, const struct run_stage *s, const struct json *file)
{
    enum { PAIRS_A_ROW = 4, SOUNDS_A_ROW = 3, WORDS_A_ROW = 3 };
    struct media_set sets[PARTS];
    char titles[PARTS][64];
    bool explained = false;
    for (int kind = 0; kind < KINDS; kind++) {
        bool sound = kind == KIND_AUDIO;
        group_open(p, "%s", kind_made[kind]);
        i64 count = sets_of(sets, titles, file, kind, "", "From");
        put_media_sets(p, s, sets, count, sound ? "media sounds" : "media", sound ? SOUNDS_A_ROW : PAIRS_A_ROW, kind,
                       put_made);
        put_pairs(p, file, kind, &explained);
        group_close(p, s);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        group_open(p, "%s", kind_told[kind]);
        i64 count = sets_of(sets, titles, file, kind, "-to-text", "Of");
        put_media_sets(p, s, sets, count, "words", WORDS_A_ROW, kind, put_description);
        put_told(p, file, kind);
        put_classes(p, file, kind);
        group_close(p, s);
    }
    put_texts(p, s, json_get(file, "text"));
}

/* The first set of pictures, or else of clips, in the order of `parts`: original above output. */
void put_strip(struct page *p)
{
    enum { SHOWN = 8 };
    for (int k = 0; k < 2 * PARTS; k++)
        for (i64 i = 0; i < p->runs[0].count; i++) {
            const struct run_stage *s = &p->runs[0].stages[i];
            struct json *file = stage_json(s, "samples.json");
            const struct json *list = json_get(set_of(file, k % PARTS, k / PARTS, ""), "shown");
            i64 begin = p->html.length, pairs = 0;
            buffer_printf(&p->html, "<p class='soft'>Original above, made from the words below. From %s:</p>",
                          parts[k % PARTS].name);
            buffer_printf(&p->html, "<div class='strip'>");
            for (i64 n = 0; n < json_count(list) && pairs < SHOWN; n++) {
                const char *text = json_string(json_get(json_at(list, n), "text"), "");
                char *own = string_format("Original: %s", text), *made = string_format("Made from the words: %s", text);
                i64 one = p->html.length;
                buffer_printf(&p->html, "<figure>");
                bool both = put_medium(p, s, name_at(json_at(list, n), "original"), own) &&
                            put_medium(p, s, name_at(json_at(list, n), "made"), made);
                html_element(&p->html, "figcaption", NULL, "%s", text);
                buffer_printf(&p->html, "</figure>");
                if (!both)
                    truncate_text(&p->html, one);
                pairs += both;
                memory_free(own);
                memory_free(made);
            }
            buffer_printf(&p->html, "</div>");
            json_free(file);
            if (pairs)
                return;
            truncate_text(&p->html, begin);
        }
}

void put_samples(struct page *p)
{
    section_open(p, "samples", "Samples",
                 "Originals next to media generated from their captions, and captions next to generated descriptions. "
                 "The samples are random, not selected. One seed: intervals tell the error of drawing these media, not "
                 "the spread over trainings, which the page of several runs shows.");
    for (i64 i = 0; i < p->runs[0].count && p->run_count == 1; i++) {
        struct json *file = stage_json(&p->runs[0].stages[i], "samples.json");
        if (file)
            put_stage(p, &p->runs[0].stages[i], file);
        json_free(file);
    }
    section_close(p);
}
