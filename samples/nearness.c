/* Nearness of generated media to their originals, its sampling error, and what answers that are not
 * generated reach: the training medium of the nearest caption, ridge regression from words to pixels, and
 * for speech a mean spectrum of the length that the caption's letters predict. */
#include "samples/caption_accuracy.h"
#include "samples/samples_inside.h"

#include "data/media/media.h"
#include "data/shapes/shaped.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* ---- Distances ---- */

static double pixel_distance(const u8 *a, i64 a_count, const u8 *b, i64 b_count)
{
    i64 n = min_i64(a_count, b_count);
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return n ? sum / (double)n : INFINITY;
}

static double spectral_distance(const float *a, i64 a_count, const float *b, i64 b_count)
{
    const float silence = logf(0.01f);
    i64 n = max_i64(a_count, b_count) * AUDIO_BANDS;
    double sum = 0;
    for (i64 i = 0; i < n; i++) {
        float x = i < a_count * AUDIO_BANDS ? a[i] : silence, y = i < b_count * AUDIO_BANDS ? b[i] : silence;
        sum += fabs((double)x - y);
    }
    return n ? sum / (double)n : INFINITY;
}

/* Mean squared difference of pixels. An original of another shape is scaled and cropped to the
 * generated shape, without padding. */
static double fitted_pixel_distance(const struct vision_config *config, const struct sample_item *generated,
                                    const struct sample_item *original)
{
    if (generated->shape == original->shape)
        return pixel_distance(generated->generated, generated->generated_count, original->original,
                              original->original_count);
    const struct vision_shape *to = &config->shapes[generated->shape], *from = &config->shapes[original->shape];
    struct clip cut, whole = {.frames = original->original_count / (from->height * from->width * 3),
                              .height = from->height,
                              .width = from->width,
                              .pixels = original->original};
    clip_fill(&cut, &whole, to->height, to->width, 1);
    double sample_distance = pixel_distance(generated->generated, generated->generated_count, cut.pixels,
                                            cut.frames * to->height * to->width * 3);
    clip_release(&cut);
    return sample_distance;
}

/* Mean difference of the spectra after the generated sound was stretched to the original's length. */
static double aligned_distance(const struct sample_item *generated, const struct sample_item *original)
{
    i64 from = generated->generated_count, to = original->original_count;
    double sum = 0;
    if (from == 0 || to == 0)
        return INFINITY;
    for (i64 f = 0; f < to; f++) {
        double at = ((double)f + 0.5) * (double)from / (double)to - 0.5;
        i64 low = max_i64((i64)floor(at), 0), high = min_i64(low + 1, from - 1);
        low = min_i64(low, from - 1);
        double part = fmin(fmax(at - (double)low, 0), 1);
        const float *a = generated->generated_mel + low * AUDIO_BANDS,
                    *b = generated->generated_mel + high * AUDIO_BANDS;
        const float *c = original->original_mel + f * AUDIO_BANDS;
        for (i64 k = 0; k < AUDIO_BANDS; k++)
            sum += fabs((1 - part) * a[k] + part * b[k] - c[k]);
    }
    return sum / (double)(to * AUDIO_BANDS);
}

static double sample_distance(const struct samples_run *r, enum modality kind, bool aligned,
                              const struct sample_item *generated, const struct sample_item *original)
{
    if (kind == MODALITY_AUDIO && !generated->generated_mel)
        return INFINITY;
    if (kind == MODALITY_AUDIO)
        return aligned ? aligned_distance(generated, original)
                       : spectral_distance(generated->generated_mel, generated->generated_count, original->original_mel,
                                           original->original_count);
    return fitted_pixel_distance(&r->generator.vision.config, generated, original);
}

/* ---- Shares of pairs ---- */

struct nearness {
    double pair, low, high; /* share of pairs won by the own original; its 95 % interval */
    double pairs;           /* compared */
    i64 first, five;
};

/* Jackknife over media (Efron and Stein 1981): leaves each out, as output and as original. Pairs
 * that share a medium are not independent, so their number says nothing about the error.
 * won, all: [count] pairs that the medium is part of. */
static void nearness_error(struct nearness *n, const double *won, const double *all, i64 count, double nearer)
{
    double sum = 0, squares = 0;
    for (i64 i = 0; i < count; i++)
        sum += (nearer - won[i]) / (n->pairs - all[i]);
    for (i64 i = 0; i < count; i++) {
        double difference = (nearer - won[i]) / (n->pairs - all[i]) - sum / (double)count;
        squares += difference * difference;
    }
    double reach = 1.96 * sqrt(squares * (double)(count - 1) / (double)count);
    n->low = isfinite(reach) ? fmax(n->pair - reach, 0) : NAN;
    n->high = isfinite(reach) ? fmin(n->pair + reach, 1) : NAN;
}

/* aligned: sounds are compared at one length, and only with originals whose length is within a
 * factor of 1.25 of their own original's. */
static struct nearness nearness_of(const struct samples_run *r, const struct sample_set *set, bool aligned)
{
    struct nearness n = {0};
    double nearer = 0, *won = memory_alloc(max_i64(set->count, 1) * 2 * (i64)sizeof *won), *all = won + set->count;
    for (i64 i = 0; i < set->count; i++) {
        const struct sample_item *own = &set->items[i];
        double original = sample_distance(r, set->kind, aligned, own, own);
        i64 before = 0;
        for (i64 k = 0; k < set->count; k++) {
            const struct sample_item *other = &set->items[k];
            if (k == i || (aligned && 5 * min_i64(own->original_count, other->original_count) <
                                          4 * max_i64(own->original_count, other->original_count)))
                continue;
            bool other_nearer = !(original < sample_distance(r, set->kind, aligned, own, other));
            before += other_nearer;
            nearer += !other_nearer;
            won[i] += !other_nearer;
            won[k] += !other_nearer;
            all[i]++;
            all[k]++;
            n.pairs++;
        }
        n.first += before == 0;
        n.five += before < 5;
    }
    n.pair = n.pairs > 0 ? nearer / n.pairs : NAN;
    nearness_error(&n, won, all, set->count, nearer);
    memory_free(won);
    return n;
}

static void set_pair(struct json *j, const struct nearness *n)
{
    json_set(j, "pair", json_of_number(n->pair));
    json_set(j, "pair_low", json_of_number(n->low));
    json_set(j, "pair_high", json_of_number(n->high));
}

struct json *sample_nearness(const struct samples_run *r, const struct sample_set *set)
{
    struct json *j = json_object();
    struct nearness n = nearness_of(r, set, false);
    json_set(j, "captions", json_of_integer(set->count));
    json_set(j, "unreadable", json_of_integer(set->unreadable));
    set_pair(j, &n);
    json_set(j, "first", json_of_integer(n.first));
    json_set(j, "first_five", json_of_integer(n.five));
    if (set->kind == MODALITY_AUDIO) {
        struct json *aligned = json_object();
        n = nearness_of(r, set, true);
        set_pair(aligned, &n);
        json_set(aligned, "pairs", json_of_number(n.pairs));
        json_set(j, "aligned", aligned);
    }
    return j;
}

/* ---- Baselines ---- */

/* Copies the set with originals borrowed and nothing generated. */
static struct sample_set without_output(const struct sample_set *set)
{
    struct sample_set out = *set;
    out.items = memory_alloc(max_i64(set->count, 1) * (i64)sizeof *out.items);
    for (i64 i = 0; i < set->count; i++) {
        out.items[i] = set->items[i];
        out.items[i].generated = NULL;
        out.items[i].generated_mel = NULL;
        out.items[i].generated_count = 0;
    }
    return out;
}

/* Adds the set's share of pairs as baseline KEY, and frees what takes the place of outputs. */
static void set_baseline(struct json *j, const char *key, const struct samples_run *r, struct sample_set *set)
{
    json_set(j, key, json_of_number(nearness_of(r, set, false).pair));
    if (set->kind == MODALITY_AUDIO)
        json_set(json_get(j, "aligned"), key, json_of_number(nearness_of(r, set, true).pair));
    for (i64 i = 0; i < set->count; i++) {
        memory_free(set->items[i].generated);
        memory_free(set->items[i].generated_mel);
    }
    memory_free(set->items);
}

/* The training medium whose caption shares most words with `text`; the first of several. For
 * training captions, one of another caption. NULL: none. */
static const char *nearest_training(const struct captioned_media *training, const char *text, bool another)
{
    i64 best = -1;
    double most = -1;
    for (i64 i = 0; i < training->count && i < TRAINING_MOST; i++) {
        double share =
            another && strcmp(training->captions[i], text) == 0 ? -1 : caption_accuracy(text, training->captions[i]);
        if (share > most) {
            most = share;
            best = i;
        }
    }
    return best < 0 ? NULL : training->paths[best];
}

/* Moves the original of `found` to the place of an output of `item`, in the item's shape. */
static void take_original(const struct samples_run *r, enum modality kind, struct sample_item *item,
                          struct sample_item *found)
{
    const struct vision_shape *shapes = r->generator.vision.config.shapes;
    if (kind == MODALITY_AUDIO) {
        item->generated_mel = found->original_mel;
        found->original_mel = NULL;
    } else if (found->shape == item->shape) {
        item->generated = found->original;
        found->original = NULL;
    } else {
        const struct vision_shape *to = &shapes[item->shape], *from = &shapes[found->shape];
        struct clip fitted, whole = {.frames = found->original_count / (from->height * from->width * 3),
                                     .height = from->height,
                                     .width = from->width,
                                     .pixels = found->original};
        clip_fill(&fitted, &whole, to->height, to->width, 1);
        item->generated = fitted.pixels;
        item->generated_count = fitted.frames * to->height * to->width * 3;
        return;
    }
    item->generated_count = found->original_count;
}

static void add_retrieval(struct json *j, struct samples_run *r, const struct sample_set *set)
{
    const struct captioned_media *training = &r->media[set->kind][SPLIT_TRAIN];
    struct sample_set other = without_output(set);
    for (i64 i = 0; i < set->count; i++) {
        const char *path = nearest_training(training, set->items[i].text, set->split == SPLIT_TRAIN);
        struct sample_item found = {.path = path ? string_copy(path) : NULL};
        if (path && sample_load_original(r, set->kind, &found))
            log_warn("skipped: %s", error_text());
        else if (path)
            take_original(r, set->kind, &other.items[i], &found);
        sample_item_release(&found);
    }
    set_baseline(j, "retrieval", r, &other);
}

static i64 letters_of(const char *text)
{
    i64 letters = 0;
    for (; *text; text++)
        letters += !isspace((unsigned char)*text) && ((u8)*text & 0xc0) != 0x80; /* not inside a character */
    return letters;
}

/* Fits the number of spectra to the number of letters by least squares, over training sounds. */
static void fit_lengths(struct sound_lengths *out, const struct sample_set *set)
{
    double n = (double)set->count, x = 0, y = 0, xx = 0, xy = 0, frames = 0;
    for (i64 i = 0; i < set->count; i++) {
        const struct sample_item *item = &set->items[i];
        double letters = (double)letters_of(item->text), spectra = (double)item->original_count;
        x += letters / n;
        y += spectra / n;
        xx += letters * letters / n;
        xy += letters * spectra / n;
        frames += spectra;
        for (i64 k = 0; k < item->original_count * AUDIO_BANDS; k++)
            out->mean[k % AUDIO_BANDS] += item->original_mel[k];
    }
    for (i64 k = 0; k < AUDIO_BANDS; k++)
        out->mean[k] /= frames;
    out->slope = xx - x * x > 1e-9 ? (xy - x * y) / (xx - x * x) : 0;
    out->base = y - out->slope * x;
    out->known = frames > 0;
}

static int add_length(struct json *j, struct samples_run *r, const struct sample_set *set)
{
    if (!r->lengths.known) {
        struct sample_set training;
        int status = sample_set_choose(&training, r, MODALITY_AUDIO, SPLIT_TRAIN, r->s->sounds);
        if (status == 0)
            sample_set_load(r, &training);
        if (status == 0)
            fit_lengths(&r->lengths, &training);
        sample_set_release(&training);
        if (status || !r->lengths.known)
            return status;
    }
    struct sample_set other = without_output(set);
    for (i64 i = 0; i < set->count; i++) {
        struct sample_item *item = &other.items[i];
        i64 spectra = max_i64(llround(r->lengths.base + r->lengths.slope * (double)letters_of(item->text)), 1);
        item->generated_count = spectra;
        item->generated_mel = memory_alloc(spectra * AUDIO_BANDS * 4);
        for (i64 k = 0; k < spectra * AUDIO_BANDS; k++)
            item->generated_mel[k] = (float)r->lengths.mean[k % AUDIO_BANDS];
    }
    set_baseline(j, "length", r, &other);
    return 0;
}

static int add_ridge(struct json *j, struct samples_run *r, const struct sample_set *set)
{
    struct sample_set other = without_output(set);
    int status = ridge_predict(r, &other);
    set_baseline(j, "ridge", r, &other);
    return status;
}

int sample_baselines(struct json *j, struct samples_run *r, const struct sample_set *set)
{
    if (list_captioned(r, set->kind, SPLIT_TRAIN))
        return -1;
    if (r->media[set->kind][SPLIT_TRAIN].count == 0)
        return 0;
    add_retrieval(j, r, set);
    if (set->kind == MODALITY_AUDIO)
        return add_length(j, r, set);
    return set->split == SPLIT_TRAIN ? 0 : add_ridge(j, r, set); /* a regression knows its own rows by heart */
}
