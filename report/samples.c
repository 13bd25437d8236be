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
} parts[] = {{"validation", "captions it never saw"}, {"train", "captions it was trained on"}};

static const char *name_at(const struct json *j, const char *key)
{
    return json_string(json_get(j, key), NULL);
}

/* ---- Media from captions ---- */

static void put_titled_medium(struct page *p, const struct run_stage *s, const char *title, const char *file,
                              const char *about)
{
    buffer_printf(&p->html, "<div><small>%s</small>", title);
    if (!put_medium(p, s, file, about))
        buffer_printf(&p->html, "<span class='nothing'>no output</span>");
    buffer_printf(&p->html, "</div>");
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

static void put_generated(struct page *p, const struct run_stage *s, const struct json *set, int kind,
                          const char *split)
{
    const struct json *list = json_get(set, "shown");
    double pair = number_at(set, "pair");
    if (json_count(list) == 0)
        return;
    html_element(&p->html, "h4", NULL, "From %s", split);
    if (isfinite(pair))
        put_note(p,
                 "%.1f %% of pairs nearer to their own original than to another's (chance: 50 %%); nearest of all "
                 "%lld: %lld (chance: 1).",
                 100 * pair, (long long)json_integer(json_get(set, "captions"), 0),
                 (long long)json_integer(json_get(set, "first"), 0));
    buffer_printf(&p->html, "<div class='media%s'>", kind == KIND_AUDIO ? " sounds" : "");
    for (i64 i = 0; i < json_count(list); i++)
        if (kind == KIND_AUDIO)
            put_sounds(p, s, json_at(list, i));
        else
            put_pair(p, s, json_at(list, i));
    buffer_printf(&p->html, "</div>");
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

static void put_descriptions(struct page *p, const struct run_stage *s, const struct json *set, int kind,
                             const char *split)
{
    const struct json *list = json_get(set, "shown");
    if (json_count(list) == 0)
        return;
    html_element(&p->html, "h4", NULL, "Of %s", split);
    long long exact = json_integer(json_get(set, "exact"), 0), media = json_integer(json_get(set, "media"), 0);
    if (isfinite(number_at(set, "words")))
        put_note(p,
                 "%lld of %lld word for word. Words right: %.0f %% (%.0f to %.0f, 95 %% interval); with captions "
                 "exchanged %.0f %%.",
                 exact, media, 100 * number_at(set, "words"), 100 * number_at(set, "words_low"),
                 100 * number_at(set, "words_high"), 100 * number_at(set, "words_exchanged"));
    else
        put_note(p, "%lld of %lld word for word.", exact, media);
    buffer_printf(&p->html, "<div class='words'>");
    for (i64 i = 0; i < json_count(list); i++)
        put_description(p, s, json_at(list, i), kind);
    buffer_printf(&p->html, "</div>");
}

static void put_texts(struct page *p, const struct run_stage *s, const struct json *list)
{
    group_open(p, "Texts gone on with");
    if (json_count(list)) {
        buffer_printf(&p->html, "<div class='words'>");
        for (i64 i = 0; i < json_count(list); i++) {
            buffer_printf(&p->html, "<p class='said'><b>");
            html_text(&p->html, json_string(json_get(json_at(list, i), "prompt"), ""));
            buffer_printf(&p->html, "</b> ");
            html_text(&p->html, json_string(json_get(json_at(list, i), "said"), ""));
            buffer_printf(&p->html, "</p>");
        }
        buffer_printf(&p->html, "</div>");
    }
    group_close(p, s);
}

/* ---- The stage ---- */

static void put_stage(struct page *p, const struct run_stage *s, const struct json *file)
{
    char key[64];
    for (int kind = 0; kind < KINDS; kind++) {
        group_open(p, "%s", kind_made[kind]);
        for (i64 i = 0; i < COUNT_OF(parts); i++) {
            snprintf(key, sizeof key, "%s/%s", parts[i].key, kind_keys[kind]);
            put_generated(p, s, json_get(file, key), kind, parts[i].name);
        }
        group_close(p, s);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        group_open(p, "%s", kind_told[kind]);
        for (i64 i = 0; i < COUNT_OF(parts); i++) {
            snprintf(key, sizeof key, "%s/%s-to-text", parts[i].key, kind_keys[kind]);
            put_descriptions(p, s, json_get(file, key), kind, parts[i].name);
        }
        group_close(p, s);
    }
    put_texts(p, s, json_get(file, "text"));
}

void put_samples(struct page *p)
{
    section_open(p, "samples", "Samples",
                 "Originals next to media generated from their captions, and captions next to generated descriptions. "
                 "The samples are random, not selected.");
    for (i64 i = 0; i < p->runs[0].count && p->run_count == 1; i++) {
        struct json *file = stage_json(&p->runs[0].stages[i], "samples.json");
        if (file)
            put_stage(p, &p->runs[0].stages[i], file);
        json_free(file);
    }
    section_close(p);
}
