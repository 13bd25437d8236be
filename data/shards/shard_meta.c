/* shards.json: the sizes of a folder's samples. */
#include "data/shards/shard_layout.h"
#include "tokenizers/vision/vision.h"

struct token_sizes shard_token_sizes(const struct shard_meta *m)
{
    struct token_sizes sizes = m->sizes;
    sizes.patch_values = m->cell_features ? VISION_GROUP * m->stride * m->stride * 3 : 0;
    for (i64 i = 0; i < m->shape_count; i++)
        sizes.scales = max_i64(sizes.scales, m->shapes[i].shape.scale_count);
    return sizes;
}

static struct json *shape_json(const struct shard_shape *shape)
{
    struct json *out = json_object(), *scales = json_array(), *amplitude = json_array();
    for (i64 k = 0; k < shape->shape.scale_count; k++) {
        json_push(scales, scale_json(shape->shape.scales[k]));
        json_push(amplitude, json_of_number((double)shape->amplitude[k]));
    }
    json_set(out, "video", json_of_bool(shape->shape.video));
    json_set(out, "frames", json_of_integer(shape->shape.frames));
    json_set(out, "h", json_of_integer(shape->h));
    json_set(out, "w", json_of_integer(shape->w));
    json_set(out, "scales", scales);
    json_set(out, "amplitude", amplitude);
    return out;
}

static struct json *meta_json(const struct shard_meta *meta)
{
    struct json *out = json_object(), *shapes = json_array();
    for (i64 i = 0; i < meta->shape_count; i++)
        json_push(shapes, shape_json(&meta->shapes[i]));
    json_set(out, "version", json_of_integer(SHARD_VERSION));
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++)
        if (token_size_rows[i].shard_key &&
            (!token_size_rows[i].optional || token_size_of(&meta->sizes, &token_size_rows[i])))
            json_set(out, token_size_rows[i].shard_key,
                     json_of_integer(token_size_of(&meta->sizes, &token_size_rows[i])));
    json_set(out, "shapes", shapes);
    return out;
}

u64 shard_meta_hash(const struct shard_meta *meta)
{
    struct buffer text = {0};
    struct json *value = meta_json(meta);
    json_print(&text, value, 0);
    u64 hash = hash_bytes(text.data, text.length, 0);
    json_free(value);
    buffer_release(&text);
    return hash;
}

char *shard_meta_difference(const struct shard_meta *a, const struct shard_meta *b)
{
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++) {
        const struct token_size_row *row = &token_size_rows[i];
        i64 in_a = token_size_of(&a->sizes, row), in_b = token_size_of(&b->sizes, row);
        if (row->shard_key && in_a != in_b)
            return string_format("%s: %s %lld and %lld", tokenizer_names[row->tokenizer], row->shard_key,
                                 (long long)in_a, (long long)in_b);
    }
    return shard_meta_hash(a) == shard_meta_hash(b) ? NULL : string_copy("vision: its shapes");
}

int shard_meta_save(const struct shard_meta *meta, const char *directory)
{
    char *path = path_join(directory, "shards.json");
    struct json *value = meta_json(meta);
    int status = json_save(path, value);
    json_free(value);
    memory_free(path);
    return status;
}

/* Reads a required integer within [low, most]. */
static int need(i64 *out, const struct json *object, const char *key, i64 low, i64 most, const char *origin)
{
    if (json_need_integer(out, object, key, origin) < 0)
        return -1;
    return *out >= low && *out <= most ? 0
                                       : error_set("%s: key %s: %lld is not within %lld and %lld", origin, key,
                                                   (long long)*out, (long long)low, (long long)most);
}

static int parse_scales(struct shard_shape *out, const struct json *value, const char *origin)
{
    const struct json *scales = json_get(value, "scales"), *amplitude = json_get(value, "amplitude");
    i64 count = json_count(scales);
    if (count < 1 || count > SCALES_MOST || json_count(amplitude) != count)
        return error_set("%s: key shapes: expected 1 to %d scales and as many amplitudes, found %lld and %lld", origin,
                         SCALES_MOST, (long long)count, (long long)json_count(amplitude));
    out->shape.scale_count = count;
    for (i64 k = 0; k < count; k++) {
        struct scale *scale = &out->shape.scales[k];
        if (!scale_parse(scale, json_at(scales, k)) ||
            (k == 0 ? scale_positions(*scale) != 1 : !scale_grows(scale[-1], *scale)))
            return error_set("%s: key shapes: scale %lld is %lld x %lld; scales ascend from 1 to at most 1024", origin,
                             (long long)k + 1, (long long)scale->h, (long long)scale->w);
        out->amplitude[k] = (float)json_number(json_at(amplitude, k), 0);
    }
    return 0;
}

static int parse_shape(struct shard_shape *out, const struct json *value, const char *origin)
{
    out->shape.video = json_bool(json_get(value, "video"), false);
    return need(&out->shape.frames, value, "frames", 1, 1 << 20, origin) < 0 ||
                   need(&out->h, value, "h", 1, 1024, origin) < 0 || need(&out->w, value, "w", 1, 1024, origin) < 0
               ? -1
               : parse_scales(out, value, origin);
}

static int parse_meta(struct shard_meta *out, const struct json *value, const char *origin)
{
    i64 version;
    const struct json *shapes = json_get(value, "shapes");
    if (json_need_integer(&version, value, "version", origin) < 0)
        return -1;
    if (version != SHARD_VERSION)
        return error_set("%s: version %lld, this program reads version %d; prepare the shards again", origin,
                         (long long)version, SHARD_VERSION);
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++) {
        const struct token_size_row *row = &token_size_rows[i];
        bool stored = row->shard_key && (!row->optional || json_get(value, row->shard_key));
        if (stored && need(token_size(&out->sizes, row), value, row->shard_key, 0, row->most, origin) < 0)
            return -1;
    }
    out->shape_count = json_count(shapes);
    if (out->shape_count > SHAPES_MOST)
        return error_set("%s: %lld shapes, at most %d are possible", origin, (long long)out->shape_count, SHAPES_MOST);
    for (i64 i = 0; i < out->shape_count; i++)
        if (parse_shape(&out->shapes[i], json_at(shapes, i), origin) < 0)
            return -1;
    return 0;
}

int shard_meta_load(struct shard_meta *meta, const char *directory)
{
    *meta = (struct shard_meta){0};
    char *path = path_join(directory, "shards.json");
    struct json *value = file_exists(path) ? json_load(path) : NULL;
    int status = value ? parse_meta(meta, value, path) : -1;
    if (!file_exists(path))
        error_set("%s: no shards.json there: expected a folder that prepare made", directory);
    json_free(value);
    memory_free(path);
    return status;
}

static i64 given_bytes(const struct shard_meta *meta, const struct shard_part *p)
{
    i64 cells = (i64)p->height * p->width, pixels = cells * meta->stride * meta->stride * 3;
    if (p->frames < 1 || p->frames > 1 << 20 || cells == 0 || cells > 1 << 20 || meta->cell_features == 0)
        return -1;
    return p->frames * cells * meta->cell_features * 2 + (1 + 4 * ((i64)p->frames - 1)) * pixels;
}

static i64 made_bytes(const struct shard_meta *meta, const struct shard_part *p)
{
    if (p->shape >= meta->shape_count || p->frames < 1 || p->frames > 1 << 20 || meta->bits == 0)
        return -1;
    const struct shard_shape *shape = &meta->shapes[p->shape];
    bool video = stream_rows[p->kind].moves;
    return shape->shape.video == video && (video || p->frames == 1) ? p->frames * shape->h * shape->w * meta->bits * 2
                                                                    : -1;
}

i64 shard_payload_bytes(const struct shard_meta *meta, const struct shard_part *p)
{
    if (p->kind == PART_VOICE)
        return meta->voice && p->count == 1 ? meta->voice * 4 : -1;
    if (p->kind >= STREAMS)
        return -1;
    switch (stream_rows[p->kind].form) {
    case FORM_IDS:
        return p->count * 4LL;
    case FORM_CELLS:
        return given_bytes(meta, p);
    case FORM_SCALES:
        return made_bytes(meta, p);
    case FORM_CODES:
        break;
    }
    i64 codes = list_width(input_rows[stream_rows[p->kind].input].ids, &meta->sizes);
    return codes ? p->count * 2LL * codes : -1;
}

char *shard_path(const char *directory, i64 number)
{
    return string_format("%s/%05lld.shard", directory, (long long)number);
}
