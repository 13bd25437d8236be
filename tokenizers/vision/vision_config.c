/* Configuration of the vision tokenizer: shapes, limits, config.json. */
#include "tokenizers/vision/vision.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

i64 vision_latent_frames(i64 frames)
{
    return 1 + (frames - 1) / VISION_GROUP;
}

i64 vision_frames(i64 latent_frames)
{
    return 1 + VISION_GROUP * (latent_frames - 1);
}

i64 vision_tokens(const struct vision_shape *shape)
{
    i64 tokens = 0;
    for (i64 k = 0; k < shape->scale_count; k++)
        tokens += scale_positions(shape->scales[k]);
    return tokens;
}

/* 1, 2, 3, 4, 6, 8, 12, 16, ..., as in Infinity's lists, ending at the grid itself. */
i64 vision_usual_sides(i64 sides[VISION_SCALES_MOST], i64 grid)
{
    i64 count = 0;
    for (i64 s = 1; s < grid && count < VISION_SCALES_MOST - 1; s += s < 4 ? 1 : s < 8 ? 2 : s / 4)
        sides[count++] = s;
    sides[count++] = grid;
    return count;
}

bool scale_grows(struct scale before, struct scale scale)
{
    return scale.h >= before.h && scale.w >= before.w && scale_positions(scale) > scale_positions(before);
}

static int check_scales(const struct vision_shape *s)
{
    struct scale last = s->scale_count ? s->scales[s->scale_count - 1] : (struct scale){0, 0};
    for (i64 k = 0; k < s->scale_count; k++)
        if (s->scales[k].h < 1 || s->scales[k].w < 1 || (k && !scale_grows(s->scales[k - 1], s->scales[k])))
            return error_usage("scales of %s must rise, and start at 1 or more", s->name);
    if (last.h != s->h || last.w != s->w)
        return error_usage("the last scale of %s must be its latent grid, %lld x %lld", s->name, (long long)s->h,
                           (long long)s->w);
    return 0;
}

/* Fills the scales from those of a square, in the shape's proportions. */
static int fill_scales(struct vision_shape *s, const i64 *sides, i64 count)
{
    i64 last = sides[count - 1], cells = s->h * s->w;
    if (s->h == s->w ? last != s->h : last * last > 2 * cells || 2 * last * last < cells)
        return error_usage("the last scale of %s is %lld x %lld; it must be its latent grid, %lld x %lld, or a square "
                           "of about as many positions",
                           s->name, (long long)last, (long long)last, (long long)s->h, (long long)s->w);
    for (i64 k = 0; k < count; k++) {
        double share = (double)sides[k] / (double)last;
        s->scales[k].h = sides[k] == 1 ? 1 : max_i64(1, llround(share * (double)s->h));
        s->scales[k].w = sides[k] == 1 ? 1 : max_i64(1, llround(share * (double)s->w));
    }
    s->scale_count = count;
    return 0;
}

/* True if both shapes share a row of amplitudes: equally many scales, and areas within a factor of
 * 2. */
static bool same_family(const struct vision_shape *a, const struct vision_shape *b)
{
    i64 x = a->h * a->w, y = b->h * b->w;
    return a->scale_count == b->scale_count && x < 2 * y && y < 2 * x;
}

static void name_shape(struct vision_shape *s)
{
    if (s->frames > 1)
        snprintf(s->name, sizeof s->name, "%lldx%lldx%lld", (long long)s->width, (long long)s->height,
                 (long long)s->frames);
    else
        snprintf(s->name, sizeof s->name, "%lldx%lld", (long long)s->width, (long long)s->height);
}

static int shape_init(struct vision_shape *s, const struct vision_config *config, i64 frames, i64 height, i64 width)
{
    *s = (struct vision_shape){.frames = frames,
                               .height = height,
                               .width = width,
                               .latent_frames = vision_latent_frames(frames),
                               .h = height / config->stride,
                               .w = width / config->stride};
    name_shape(s);
    if (frames < 1 || (frames - 1) % VISION_GROUP)
        return error_usage("%s: %lld %s; a clip has 1, 5, 9, ... frames", s->name, (long long)frames,
                           plural(frames, "frame", "frames"));
    if (s->h < 1 || s->w < 1 || height % config->stride || width % config->stride)
        return error_usage("%s: height and width must be multiples of the stride, %lld", s->name,
                           (long long)config->stride);
    return 0;
}

static int push_shape(struct vision_config *config, struct vision_shape *s)
{
    if (config->shape_count == VISION_SHAPES_MOST)
        return error_usage("more than %d shapes of pictures and clips: lower aspects.count", VISION_SHAPES_MOST);
    if (check_scales(s))
        return -1;
    s->amplitude = config->shape_count;
    for (i64 i = config->shape_count - 1; i >= 0; i--)
        s->amplitude = same_family(s, &config->shapes[i]) ? config->shapes[i].amplitude : s->amplitude;
    config->shapes[config->shape_count++] = *s;
    return 0;
}

int vision_add_shape(struct vision_config *config, i64 frames, i64 height, i64 width, double rate_hz, const i64 *sides,
                     i64 side_count)
{
    struct vision_shape s;
    i64 usual[VISION_SCALES_MOST];
    if (side_count > VISION_SCALES_MOST)
        return error_usage("more than %d scales of a vision shape", VISION_SCALES_MOST);
    if (shape_init(&s, config, frames, height, width))
        return -1;
    s.rate_hz = rate_hz;
    if (!sides) {
        side_count = vision_usual_sides(usual, s.h == s.w ? s.h : max_i64(2, llround(sqrt((double)(s.h * s.w)))));
        sides = usual;
    }
    return side_count < 1 || fill_scales(&s, sides, side_count) ? -1 : push_shape(config, &s);
}

int vision_config_check(const struct vision_config *c)
{
    if (c->stride != 8 && c->stride != 16)
        return error_usage("stride of the vision tokenizer is %lld; expected 8 or 16", (long long)c->stride);
    if (c->bits < 1 || c->bits > 256)
        return error_usage("%lld %s of a vision token; expected 1 to 256", (long long)c->bits,
                           plural(c->bits, "bit", "bits"));
    if (c->kept_bits < 0 || c->kept_bits > c->bits)
        return error_usage("the first %lld bits of %lld are kept: expected at most as many as there are",
                           (long long)c->kept_bits, (long long)c->bits);
    for (int i = 0; i < 2; i++) {
        if (c->channels[i] < 1 || c->channels[i] > 4096)
            return error_usage("%lld %s of the vision tokenizer; expected 1 to 4096", (long long)c->channels[i],
                               plural(c->channels[i], "channel", "channels"));
        if (c->blocks[i] < 0 || c->blocks[i] > VISION_BLOCKS_MOST)
            return error_usage("%lld %s; expected 0 to %d", (long long)c->blocks[i],
                               plural(c->blocks[i], "residual block", "residual blocks"), VISION_BLOCKS_MOST);
    }
    if (c->shape_count < 1)
        return error_usage("a vision tokenizer without shapes");
    for (i64 i = 0; i < c->shape_count; i++)
        if (check_scales(&c->shapes[i]))
            return -1;
    return 0;
}

/* ---- config.json ---- */

struct json *scale_json(struct scale scale)
{
    struct json *out = scale.h == scale.w ? json_of_integer(scale.h) : json_array();
    if (scale.h != scale.w) {
        json_push(out, json_of_integer(scale.h));
        json_push(out, json_of_integer(scale.w));
    }
    return out;
}

bool scale_parse(struct scale *out, const struct json *value)
{
    bool pair = json_count(value) == 2;
    out->h = json_integer(pair ? json_at(value, 0) : value, 0);
    out->w = pair ? json_integer(json_at(value, 1), 0) : out->h;
    return out->h >= 1 && out->w >= 1 && out->h <= 1024 && out->w <= 1024;
}

static struct json *shape_json(const struct vision_shape *s)
{
    struct json *out = json_object(), *scales = json_array();
    json_set(out, "name", json_of_string(s->name));
    json_set(out, "frames", json_of_integer(s->frames));
    json_set(out, "height", json_of_integer(s->height));
    json_set(out, "width", json_of_integer(s->width));
    json_set(out, "rate_hz", json_of_number(s->rate_hz));
    for (i64 k = 0; k < s->scale_count; k++)
        json_push(scales, scale_json(s->scales[k]));
    json_set(out, "scales", scales);
    if (s->crop > 0)
        json_set(out, "crop", json_of_number(s->crop));
    if (s->area)
        json_set(out, "area", json_of_integer(s->area));
    return out;
}

struct json *vision_config_json(const struct vision_config *c)
{
    struct json *out = json_object(), *channels = json_array(), *blocks = json_array(), *shapes = json_array();
    json_set(out, "kind", json_of_string("vision"));
    json_set(out, "stride", json_of_integer(c->stride));
    json_set(out, "bits", json_of_integer(c->bits));
    for (int i = 0; i < 2; i++) {
        json_push(channels, json_of_integer(c->channels[i]));
        json_push(blocks, json_of_integer(c->blocks[i]));
    }
    json_set(out, "channels", channels);
    json_set(out, "blocks", blocks);
    json_set(out, "inflated", json_of_bool(c->inflated));
    if (c->centred)
        json_set(out, "centred", json_of_bool(true));
    if (c->kept_bits)
        json_set(out, "kept_bits", json_of_integer(c->kept_bits));
    for (i64 i = 0; i < c->shape_count; i++)
        json_push(shapes, shape_json(&c->shapes[i]));
    json_set(out, "shapes", shapes);
    return out;
}

static int parse_shape(struct vision_config *config, const struct json *value, const char *origin)
{
    i64 frames, height, width;
    struct vision_shape s;
    const struct json *list = json_get(value, "scales");
    if (json_need_integer(&frames, value, "frames", origin) || json_need_integer(&height, value, "height", origin) ||
        json_need_integer(&width, value, "width", origin))
        return -1;
    i64 count = json_count(list), most = 1 << 16;
    if (count < 1 || count > VISION_SCALES_MOST || frames > most || height > most || width > most)
        return error_set("%s: a shape of %lld %s of %lld x %lld with %lld scales", origin, (long long)frames,
                         plural(frames, "frame", "frames"), (long long)height, (long long)width, (long long)count);
    if (shape_init(&s, config, frames, height, width))
        return error_prefix("%s", origin);
    s.rate_hz = json_number(json_get(value, "rate_hz"), 0);
    s.area = json_integer(json_get(value, "area"), 0);
    s.crop = fmin(0.5, fmax(0, json_number(json_get(value, "crop"), 0)));
    for (s.scale_count = 0; s.scale_count < count; s.scale_count++)
        if (!scale_parse(&s.scales[s.scale_count], json_at(list, s.scale_count)))
            return error_set("%s: scale %lld of %s is neither a side nor [height, width] of 1 to 1024 positions",
                             origin, (long long)s.scale_count + 1, s.name);
    if (push_shape(config, &s))
        return error_prefix("%s", origin);
    struct vision_shape *pushed = &config->shapes[config->shape_count - 1];
    snprintf(pushed->name, sizeof pushed->name, "%s", json_string(json_get(value, "name"), s.name));
    return 0;
}

int vision_config_parse(struct vision_config *config, const struct json *value, const char *origin)
{
    const struct json *channels = json_get(value, "channels"), *blocks = json_get(value, "blocks");
    const struct json *shapes = json_get(value, "shapes");
    *config = (struct vision_config){.inflated = json_bool(json_get(value, "inflated"), false),
                                     .centred = json_bool(json_get(value, "centred"), false),
                                     .kept_bits = json_integer(json_get(value, "kept_bits"), 0)};
    if (strcmp(json_string(json_get(value, "kind"), "vision"), "vision") != 0)
        return error_set("%s: this is no vision tokenizer but a \"%s\"", origin,
                         json_string(json_get(value, "kind"), ""));
    if (json_need_integer(&config->stride, value, "stride", origin) ||
        json_need_integer(&config->bits, value, "bits", origin))
        return -1;
    if (config->stride != 8 && config->stride != 16)
        return error_set("%s: stride %lld; expected 8 or 16", origin, (long long)config->stride);
    for (int i = 0; i < 2; i++) {
        config->channels[i] = json_integer(json_at(channels, i), 0);
        config->blocks[i] = json_integer(json_at(blocks, i), 1);
    }
    for (i64 i = 0; i < json_count(shapes); i++)
        if (parse_shape(config, json_at(shapes, i), origin))
            return -1;
    return vision_config_check(config) ? error_prefix("%s", origin) : 0;
}
