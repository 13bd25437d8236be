/* Training media as the baselines of the scores need them: their pixels, and a few numbers of each by which
 * the nearest one is found. */
#include "samples/samples_inside.h"

#include "data/shapes/shaped.h"

#include <math.h>
#include <string.h>

enum {
    READ_MOST = 4000, /* media of a kind */
    BLOCK = 64,
    READ_BYTES_MOST = 256 << 20, /* of their pixels */
    GRID = 8,                    /* pictures are averaged over 8 x 8 cells */
    CLIP_POINTS = 9,             /* of a clip, evenly from its first to its last frame */
    SOUND_POINTS = 24,
    SOUND_BANDS = AUDIO_BANDS / 2,
};

i64 feature_width(enum modality kind)
{
    return kind == MODALITY_IMAGE   ? GRID * GRID * 3
           : kind == MODALITY_VIDEO ? CLIP_POINTS * GRID * GRID * 3
                                    : SOUND_POINTS * SOUND_BANDS + 1;
}

static void average_cells(float *out, const u8 *pixels, i64 height, i64 width)
{
    for (i64 y = 0; y < GRID; y++)
        for (i64 x = 0; x < GRID; x++) {
            i64 top = y * height / GRID, bottom = max_i64((y + 1) * height / GRID, top + 1);
            i64 left = x * width / GRID, right = max_i64((x + 1) * width / GRID, left + 1);
            float *cell = out + (y * GRID + x) * 3;
            for (i64 c = 0; c < 3; c++) {
                double sum = 0;
                for (i64 i = top; i < bottom; i++)
                    for (i64 k = left; k < right; k++)
                        sum += pixels[(i * width + k) * 3 + c];
                cell[c] = (float)(sum / (double)((bottom - top) * (right - left)));
            }
        }
}

/* The spectra from the first to the last that sounds, at SOUND_POINTS times, two bands in one; less most
 * of each band's mean, which tells voices apart rather than words; and how long it sounds. */
static void sound_features(float *out, const float *mel, i64 spectra, double seconds_each)
{
    const float silence = logf(0.01f), loud = silence + 0.3f, mean_taken = 0.7f;
    i64 first = spectra, last = 0;
    for (i64 f = 0; f < spectra; f++) {
        float mean = 0;
        for (i64 k = 0; k < AUDIO_BANDS; k++)
            mean += mel[f * AUDIO_BANDS + k] / AUDIO_BANDS;
        first = mean > loud && first == spectra ? f : first;
        last = mean > loud ? f : last;
    }
    first = first >= last ? 0 : first;
    last = first >= last ? max_i64(spectra - 1, 0) : last;
    for (i64 b = 0; b < SOUND_BANDS; b++) {
        float mean = 0;
        for (i64 t = 0; t < SOUND_POINTS; t++) {
            double at = (double)first + (double)(last - first) * (double)t / (SOUND_POINTS - 1);
            i64 low = (i64)at, high = min_i64(low + 1, last);
            float part = (float)(at - (double)low), value = silence;
            if (spectra) {
                const float *a = mel + low * AUDIO_BANDS + 2 * b, *c = mel + high * AUDIO_BANDS + 2 * b;
                value = ((1 - part) * (a[0] + a[1]) + part * (c[0] + c[1])) / 2;
            }
            out[t * SOUND_BANDS + b] = value;
            mean += value / SOUND_POINTS;
        }
        for (i64 t = 0; t < SOUND_POINTS; t++)
            out[t * SOUND_BANDS + b] -= mean_taken * mean;
    }
    out[SOUND_POINTS * SOUND_BANDS] = (float)((double)(last - first + 1) * seconds_each * 30);
}

void medium_features(float *out, const struct samples_run *r, enum modality kind, const struct sample_item *item)
{
    if (kind == MODALITY_AUDIO) {
        sound_features(out, item->original_mel, item->original_count, (double)r->mel.mel.hop / AUDIO_RATE_HZ);
        return;
    }
    const struct vision_shape *shape = &r->generator.vision.config.shapes[item->shape];
    i64 frame = shape->height * shape->width * 3, frames = max_i64(item->original_count / frame, 1);
    i64 points = kind == MODALITY_VIDEO ? CLIP_POINTS : 1;
    for (i64 p = 0; p < points; p++) {
        i64 at = points > 1 ? llround((double)(p * (frames - 1)) / (double)(points - 1)) : 0;
        average_cells(out + p * GRID * GRID * 3, item->original + at * frame, shape->height, shape->width);
    }
}

struct training_block { /* media that are read at a time, by the workers */
    struct samples_run *r;
    enum modality kind;
    struct sample_item *items;
    float *features; /* [BLOCK, width] */
    bool *readable;
};

static void read_one(void *context, i64 i, int worker)
{
    struct training_block *b = context;
    struct sample_item *item = &b->items[i];
    (void)worker;
    b->readable[i] = sample_load_original(b->r, b->kind, item) == 0;
    if (b->readable[i])
        medium_features(b->features + i * feature_width(b->kind), b->r, b->kind, item);
    memory_free(item->original_mel);
    item->original_mel = NULL;
}

/* Reads a block and keeps what could be read. Returns the bytes of pixels. Spectra of sounds are computed
 * by the workers together, one sound after the other. */
static i64 read_block(struct samples_run *r, enum modality kind, const i32 *order, i64 count)
{
    struct training_media *t = &r->training[kind];
    const struct captioned_media *all = &r->media[kind][SPLIT_TRAIN];
    struct sample_item items[BLOCK] = {{0}};
    bool readable[BLOCK];
    struct training_block b = {r, kind, items, memory_alloc(BLOCK * t->width * 4), readable};
    i64 bytes = 0;
    for (i64 i = 0; i < count; i++) {
        items[i].text = string_copy(all->captions[order[i]]);
        items[i].path = string_copy(all->paths[order[i]]);
    }
    for (i64 i = 0; kind == MODALITY_AUDIO && i < count; i++)
        read_one(&b, i, 0);
    if (kind != MODALITY_AUDIO)
        workers_run(count, read_one, &b);
    for (i64 i = 0; i < count; i++) {
        if (!readable[i]) {
            sample_item_release(&items[i]);
            continue;
        }
        memcpy(t->features + t->count * t->width, b.features + i * t->width, (size_t)t->width * 4);
        bytes += kind == MODALITY_AUDIO ? 0 : items[i].original_count;
        t->items[t->count++] = items[i];
    }
    memory_free(b.features);
    return bytes;
}

int training_media_read(struct samples_run *r, enum modality kind)
{
    struct training_media *t = &r->training[kind];
    const struct captioned_media *all = &r->media[kind][SPLIT_TRAIN];
    i64 bytes = 0, width = feature_width(kind);
    if (t->read)
        return 0;
    if (list_captioned(r, kind, SPLIT_TRAIN))
        return -1;
    i64 most = min_i64(all->count, READ_MOST);
    i32 *order = memory_alloc(max_i64(all->count, 1) * 4);
    rng_permutation(order, all->count, (struct rng_key){r->stage->seed, RNG_SPLIT}, (u32)kind - MODALITY_IMAGE, 2);
    *t = (struct training_media){.read = true,
                                 .width = width,
                                 .items = memory_alloc(max_i64(most, 1) * (i64)sizeof *t->items),
                                 .features = memory_alloc(max_i64(most * width, 1) * 4)};
    for (i64 i = 0; i < most && bytes < READ_BYTES_MOST; i += BLOCK)
        bytes += read_block(r, kind, order + i, min_i64(BLOCK, most - i));
    memory_free(order);
    return 0;
}

void training_media_release(struct training_media *t)
{
    for (i64 i = 0; i < t->count; i++)
        sample_item_release(&t->items[i]);
    memory_free(t->items);
    memory_free(t->features);
}

i64 training_media_nearest(const struct training_media *t, const float *features, const char *path)
{
    i64 best = -1;
    double least = INFINITY;
    for (i64 i = 0; i < t->count; i++) {
        const float *other = t->features + i * t->width;
        double sum = 0;
        if (strcmp(t->items[i].path, path) == 0)
            continue;
        for (i64 k = 0; k < t->width && sum < least; k++)
            sum += ((double)features[k] - other[k]) * ((double)features[k] - other[k]);
        if (sum < least) {
            least = sum;
            best = i;
        }
    }
    return best;
}
