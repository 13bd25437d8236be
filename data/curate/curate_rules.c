/* Rules that need only the sample itself, and its content keys. Thread-safe. */
#include "data/curate/curate_inside.h"

#include <math.h>
#include <string.h>

/* Records the first rule that rejects the sample. */
static void reject_if(enum curate_rule *at, enum curate_rule rule, bool holds)
{
    if (holds && *at == CURATE_KEPT)
        *at = rule;
}

static void mask(const struct curation *c, struct curate_item *out, struct buffer *text)
{
    struct buffer masked = {0};
    bool replace = c->s->personal == PERSONAL_MASK;
    out->masked += personal_mask(replace ? &masked : NULL, text->data, text->length);
    if (!replace || out->masked == 0) {
        buffer_release(&masked);
        return;
    }
    buffer_release(text);
    *text = masked;
}

/* The hash of each band's minima, [NEAR_BANDS]. */
static u64 *bands_of(const struct word_runs *w)
{
    u64 minima[NEAR_BANDS * NEAR_ROWS], *bands = memory_alloc(NEAR_BANDS * 8);
    memset(minima, 0xff, sizeof minima);
    for (i64 i = 0; i + NEAR_WORDS <= w->count; i++) {
        u64 hash = words_hash(w, i, NEAR_WORDS);
        /* Multiply and fold: a different hash order for each k. */
        for (u64 k = 0; k < NEAR_BANDS * NEAR_ROWS; k++) {
            u64 value = (hash ^ (k + 1) * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
            value = (value ^ value >> 32) * 0xd6e8feb86659fd93u;
            minima[k] = value < minima[k] ? value : minima[k];
        }
    }
    for (u64 band = 0; band < NEAR_BANDS; band++)
        bands[band] = hash_bytes(minima + band * NEAR_ROWS, NEAR_ROWS * 8, band + 1);
    return bands;
}

static void inspect_scripts(const struct curation *c, struct curate_item *out, const struct buffer *text)
{
    i64 counts[SCRIPTS] = {0}, wanted = 0, letters = script_letters(counts, text->data, text->length);
    for (int i = 0; i < SCRIPTS; i++)
        wanted += c->scripts >> i & 1 ? counts[i] : 0;
    reject_if(&out->rule, CURATE_SCRIPT, c->scripts && (double)wanted < c->s->script_share * (double)letters);
}

static void inspect_text(const struct curation *c, struct curate_item *out, struct buffer *text,
                         enum sample_layout layout)
{
    i64 chars = text_chars(text->data, text->length);
    if (c->s->personal != PERSONAL_KEEP)
        mask(c, out, text);
    if (layout == SAMPLE_PLAIN) {
        reject_if(&out->rule, CURATE_SHORT, chars < c->s->chars_least);
        reject_if(&out->rule, CURATE_LONG, c->s->chars_most > 0 && chars > c->s->chars_most);
    }
    if (layout == SAMPLE_PLAIN || layout == SAMPLE_CHAT)
        inspect_scripts(c, out, text);
}

/* Checks all texts of the sample together, because one turn of a conversation is too short. */
static void inspect_language(const struct curation *c, struct curate_item *out, const struct sample *sample)
{
    struct buffer all = {0};
    for (i64 i = 0; i < sample->count; i++) {
        const struct sample_part *part = &sample->parts[i];
        if (part->kind == MODALITY_TEXT) {
            buffer_append(&all, part->bytes.data, part->bytes.length);
            buffer_append(&all, "\n", 1);
        }
    }
    reject_if(&out->rule, CURATE_LANGUAGE,
              languages_nearness(c->languages, all.data ? all.data : "", all.length) < c->s->language_least);
    buffer_release(&all);
}

void curation_inspect(const struct curation *c, struct curate_item *out, struct sample *sample)
{
    struct word_runs words = {0};
    for (i64 i = 0; i < sample->count; i++) {
        struct sample_part *part = &sample->parts[i];
        if (part->kind == MODALITY_TEXT) {
            inspect_text(c, out, &part->bytes, sample->layout);
            words_add(&words, part->bytes.data, part->bytes.length);
        } else if (part->kind == SAMPLE_IDS) {
            out->content = hash_bytes(part->bytes.data, part->bytes.length, out->content);
            out->has_content = true;
        }
    }
    bool text_alone = sample->layout == SAMPLE_PLAIN || sample->layout == SAMPLE_CHAT;
    if (c->languages && text_alone)
        inspect_language(c, out, sample);
    reject_if(&out->rule, CURATE_PERSONAL, c->s->personal == PERSONAL_DROP && out->masked > 0);
    reject_if(&out->rule, CURATE_AGAINST, run_set_has(&c->against, &words, c->s->against_words));
    if (words.count)
        out->content = hash_bytes(words.text.data, words.text.length, out->content);
    out->has_content |= words.count > 0;
    if (c->s->duplicates == DUPLICATES_NEAR && text_alone && words.count >= NEAR_WORDS)
        out->bands = bands_of(&words);
    words_release(&words);
}

void curation_inspect_shown(const struct curation *c, struct curate_item *out, struct sample *sample)
{
    enum curate_rule before = out->rule;
    out->rule = CURATE_KEPT;
    curation_inspect(c, out, sample);
    reject_if(&out->shown, out->rule, out->rule != CURATE_KEPT);
    out->rule = before;
}

void curation_medium(const struct curation *c, struct curate_item *out, const void *bytes, i64 count)
{
    if (c->s->duplicates)
        out->media = hash_bytes(bytes, count, out->media + 1);
}

void curation_size(const struct curation *c, struct curate_item *out, double height, double width)
{
    double least = fmin(height, width), most = fmax(height, width);
    reject_if(&out->rule, CURATE_SMALL, least < (double)c->s->side_least);
    reject_if(&out->rule, CURATE_ASPECT, c->s->aspect_most > 0 && most > c->s->aspect_most * least);
}

void curation_light(const struct curation *c, struct curate_item *out, const u8 *pixels, i64 frames, i64 frame_bytes)
{
    bool bright = c->s->dark <= 0;
    for (i64 frame = 0; frame < frames && !bright; frame++) {
        i64 sum = 0;
        for (i64 i = 0; i < frame_bytes; i++)
            sum += pixels[frame * frame_bytes + i];
        bright = (double)sum > c->s->dark * 255 * (double)frame_bytes;
    }
    reject_if(&out->shown, CURATE_DARK, !bright);
}

void curation_sound(const struct curation *c, struct curate_item *out, const float *values, i64 count, i64 rate_hz)
{
    double loudest = 0;
    i64 window = max_i64(1, rate_hz / 10);
    for (i64 begin = 0; c->s->silence_db < 0 && begin < count; begin += window) {
        double squares = 0;
        i64 end = min_i64(begin + window, count);
        for (i64 i = begin; i < end; i++)
            squares += (double)values[i] * (double)values[i];
        loudest = fmax(loudest, squares / (double)(end - begin));
    }
    reject_if(&out->shown, CURATE_SILENT, c->s->silence_db < 0 && loudest < pow(10, c->s->silence_db / 10));
}

void curate_item_release(struct curate_item *item)
{
    memory_free(item->bands);
    *item = (struct curate_item){0};
}
