/* weft init: the shapes of the vision tokenizer, by the proportions of the pictures and clips that were
 * opened. Of those that the default stride allows, the one with which they lose least is taken, then
 * further ones as long as each saves more than it costs. */
#include "survey/init.h"
#include "tokenizers/vision/vision.h"

#include <math.h>
#include <stdio.h>

/* The defaults of tokenizer-vision. AROUND: positions around a picture. */
enum { SIZE = 64, STRIDE = 16, SIDE = SIZE / STRIDE, FRAMES = 9, AROUND = 3 };
static const double crop = 0.1;
/* A shape is taken if it saves this much, as a share of all pixels, and this share of media has it. */
static const double saves_least = 0.01, share_least = 0.03;

struct init_sizes { /* proportions, each for a share of all media */
    double *proportions, *weights;
    i64 count;
};

static void add_sizes(struct init_sizes *out, const struct init_plan *p, const struct init_data *d, enum modality kind)
{
    const struct init_probe *probe = &d->probes[kind];
    double media = init_media_of(p, d, kind);
    for (i64 i = 0; i < probe->size_count && media > 0; i++) {
        i64 size = out->count * 8;
        out->proportions = memory_resize(out->proportions, size, size + 8);
        out->weights = memory_resize(out->weights, size, size + 8);
        out->proportions[out->count] = probe->proportions[i];
        out->weights[out->count++] = media / (double)probe->size_count;
    }
}

static bool has_shape(const struct aspect_list *list, struct aspect a)
{
    for (i64 i = 0; i < list->count; i++)
        if (list->items[i].height == a.height && list->items[i].width == a.width)
            return true;
    return false;
}

/* What the media lose in the mean: cut and white, and for the choice also 0.08 for twice as many cells
 * as the square, as in aspect_of. share: of the media that get each shape; NULL: not wanted. */
static double mean_loss(struct init_loss *out, double *share, const struct aspect_list *list,
                        const struct init_sizes *sizes)
{
    double all = 0, cost = 0;
    *out = (struct init_loss){0};
    for (i64 i = 0; i < list->count && share; i++)
        share[i] = 0;
    for (i64 i = 0; i < sizes->count; i++) {
        double cut, white, weight = sizes->weights[i];
        i64 nearest = aspect_nearest(list, 1, sizes->proportions[i]);
        struct aspect a = list->items[nearest];
        aspect_loss(&cut, &white, a, sizes->proportions[i], list->count > 1 ? crop : 0);
        out->cut += weight * cut;
        out->white += weight * white;
        cost += weight * 0.08 * fabs(log2((double)(a.height * a.width) / (SIZE * SIZE)));
        all += weight;
        if (share)
            share[nearest] += weight;
    }
    for (i64 i = 0; i < list->count && share; i++)
        share[i] /= all;
    out->cut /= all;
    out->white /= all;
    return out->cut + out->white + cost / all;
}

/* Adds the shape with which the media lose least. False: none saves enough. */
static bool add_shape(struct aspect_list *list, double *loss, const struct init_sizes *sizes)
{
    struct aspect_list best = *list;
    double least = list->count ? *loss - saves_least : INFINITY, share[ASPECTS_MOST];
    struct init_loss unused;
    for (i64 rows = 1; rows <= 2 * SIDE * SIDE; rows++)
        for (i64 columns = 1; columns * rows <= 2 * SIDE * SIDE; columns++) {
            struct aspect_list with = *list;
            struct aspect a = aspect_of((double)columns / (double)rows, SIZE, STRIDE);
            if (a.height != rows * STRIDE || a.width != columns * STRIDE || has_shape(list, a))
                continue;
            with.items[with.count++] = a;
            double now = mean_loss(&unused, share, &with, sizes);
            if (now < least && share[with.count - 1] >= share_least) {
                least = now;
                best = with;
            }
        }
    bool added = best.count > list->count;
    *loss = added ? least : *loss;
    *list = best;
    return added;
}

/* The shapes that have media, the most frequent first. */
static void order_shapes(struct init_shapes *out, const struct init_sizes *sizes)
{
    struct aspect_list all = out->list;
    double share[ASPECTS_MOST];
    mean_loss(&out->loss, share, &all, sizes);
    out->list.count = 0;
    for (i64 i = 0; i < all.count; i++) {
        i64 at = out->list.count;
        if (share[i] == 0)
            continue;
        for (; at > 0 && out->share[at - 1] < share[i]; at--) {
            out->share[at] = out->share[at - 1];
            out->list.items[at] = out->list.items[at - 1];
        }
        out->share[at] = share[i];
        out->list.items[at] = all.items[i];
        out->list.count++;
    }
}

/* Positions of a medium of each shape, in the mean. */
static void count_positions(struct init_shapes *out)
{
    i64 frames = vision_latent_frames(FRAMES);
    out->picture_in = out->picture_out = 0;
    for (i64 i = 0; i < out->list.count; i++) {
        struct vision_config config = {.stride = STRIDE, .bits = 1};
        struct aspect a = out->list.items[i];
        i64 sides[VISION_SCALES_MOST], count = vision_usual_sides(sides, SIDE);
        if (vision_add_shape(&config, 1, a.height, a.width, 0, sides, count) < 0)
            continue;
        const struct vision_shape *s = &config.shapes[0];
        out->picture_in += out->share[i] * (double)((s->h + 1) / 2 * ((s->w + 1) / 2));
        out->picture_out += out->share[i] * (double)vision_tokens(s);
    }
    out->clip_in = (double)frames * out->picture_in + AROUND;
    out->clip_out = (double)frames * out->picture_out + AROUND;
    out->picture_in += AROUND;
    out->picture_out += AROUND;
}

void init_shapes_choose(struct init_shapes *out, const struct init_plan *p)
{
    static const struct aspect_settings usual = {.most = 2, .count = 7};
    struct init_sizes sizes = {0};
    struct init_shapes chosen = {0};
    double loss = 0;
    *out = (struct init_shapes){.list = {1, {{SIZE, SIZE}}}, .share = {1}, .usual = true};
    for (i64 i = 0; i < p->count; i++) {
        add_sizes(&sizes, p, &p->data[i], MODALITY_IMAGE);
        add_sizes(&sizes, p, &p->data[i], MODALITY_VIDEO);
    }
    if (sizes.count) {
        require(aspects_make(&out->list, &usual, SIZE, STRIDE) == 0, "%s", error_text());
        double before = mean_loss(&out->loss, NULL, &out->list, &sizes);
        order_shapes(out, &sizes);
        out->looked = sizes.count;
        while (chosen.list.count < ASPECTS_MOST && add_shape(&chosen.list, &loss, &sizes))
            ;
        if (loss < before - saves_least) {
            chosen.looked = sizes.count;
            chosen.before = out->loss;
            order_shapes(&chosen, &sizes);
            *out = chosen;
        }
    }
    count_positions(out);
    memory_free(sizes.proportions);
    memory_free(sizes.weights);
}

static i64 common_divisor(i64 a, i64 b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* Proportions of a shape: 4:3. */
void init_put_proportions(struct buffer *out, struct aspect a)
{
    i64 divisor = common_divisor(a.width, a.height);
    buffer_printf(out, "%lld:%lld", (long long)(a.width / divisor), (long long)(a.height / divisor));
}
