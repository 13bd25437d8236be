/* The refiner's configuration and its folder: config.json and weights.safetensors. */
#include "core/inventory.h"
#include "core/safetensors.h"
#include "kernels/device/dry_run.h"
#include "tokenizers/vision/refiner.h"

#include <string.h>

static const char kind[] = "refiner";

int refiner_config_check(const struct refiner_config *c)
{
    for (i64 i = 0; i < REFINER_LEVELS; i++)
        if (c->channels[i] < 1 || c->channels[i] > 4096)
            return error_usage("%lld %s of a refiner; expected 1 to 4096", (long long)c->channels[i],
                               plural(c->channels[i], "channel", "channels"));
    if (c->blocks < 1 || 2 * c->blocks > VISION_BLOCKS_MOST)
        return error_usage("%lld %s of a refiner; expected 1 to %d", (long long)c->blocks,
                           plural(c->blocks, "block", "blocks"), VISION_BLOCKS_MOST / 2);
    if (c->steps < 1 || c->steps > REFINER_STEPS_MOST)
        return error_usage("%lld %s of sampling; expected 1 to %d", (long long)c->steps,
                           plural(c->steps, "step", "steps"), REFINER_STEPS_MOST);
    if (!(c->noise > 0 && c->noise <= 4) || !(c->temperature >= 0 && c->temperature <= 4))
        return error_usage("noise %g and temperature %g of a refiner; expected above 0 and 0, at most 4", c->noise,
                           c->temperature);
    if (c->size_count < 1 || c->size_count > VISION_SHAPES_MOST)
        return error_usage("a refiner of %lld %s of pictures; expected 1 to %d", (long long)c->size_count,
                           plural(c->size_count, "size", "sizes"), VISION_SHAPES_MOST);
    for (i64 i = 0; i < c->size_count; i++) {
        const struct refiner_size *s = &c->sizes[i];
        if (s->height < 4 || s->width < 4 || s->height % 4 || s->width % 4 || s->height > 4096 || s->width > 4096)
            return error_usage("a refiner of pictures of %lldx%lld; expected multiples of 4, up to 4096",
                               (long long)s->height, (long long)s->width);
    }
    return 0;
}

int refiner_check_size(const struct refiner *r, const char *directory, i64 height, i64 width)
{
    struct buffer known = {0};
    for (i64 i = 0; i < r->config.size_count; i++) {
        const struct refiner_size *s = &r->config.sizes[i];
        if (s->height == height && s->width == width) {
            buffer_release(&known);
            return 0;
        }
        buffer_printf(&known, "%s %lldx%lld", i ? "," : "", (long long)s->height, (long long)s->width);
    }
    error_set("%s refines pictures of%s, and the tokenizer makes %lldx%lld: train a refiner on pictures of this "
              "tokenizer",
              directory, known.data, (long long)height, (long long)width);
    buffer_release(&known);
    return -1;
}

/* ---- config.json ---- */

static struct json *config_json(const struct refiner_config *c)
{
    struct json *out = json_object(), *channels = json_array(), *sizes = json_array();
    json_set(out, "kind", json_of_string(kind));
    json_set(out, "factor", json_of_integer(REFINER_FACTOR));
    for (i64 i = 0; i < REFINER_LEVELS; i++)
        json_push(channels, json_of_integer(c->channels[i]));
    json_set(out, "channels", channels);
    json_set(out, "blocks", json_of_integer(c->blocks));
    json_set(out, "noise", json_of_number(c->noise));
    json_set(out, "temperature", json_of_number(c->temperature));
    json_set(out, "steps", json_of_integer(c->steps));
    for (i64 i = 0; i < c->size_count; i++) {
        struct json *size = json_array();
        json_push(size, json_of_integer(c->sizes[i].height));
        json_push(size, json_of_integer(c->sizes[i].width));
        json_push(sizes, size);
    }
    json_set(out, "sizes", sizes);
    return out;
}

static int config_parse(struct refiner_config *c, const struct json *value, const char *origin)
{
    const struct json *channels = json_get(value, "channels"), *sizes = json_get(value, "sizes");
    const char *says = json_string(json_get(value, "kind"), "");
    *c = (struct refiner_config){.noise = json_number(json_get(value, "noise"), 0),
                                 .temperature = json_number(json_get(value, "temperature"), -1)};
    if (strcmp(says, kind) != 0)
        return error_set("%s: this is no refiner but a \"%s\": expected the folder of a stage refiner", origin, says);
    if (json_integer(json_get(value, "factor"), 0) != REFINER_FACTOR)
        return error_set("%s: factor %lld; this version makes pictures %d times as large", origin,
                         (long long)json_integer(json_get(value, "factor"), 0), REFINER_FACTOR);
    if (json_need_integer(&c->blocks, value, "blocks", origin) || json_need_integer(&c->steps, value, "steps", origin))
        return -1;
    for (i64 i = 0; i < REFINER_LEVELS; i++)
        c->channels[i] = json_integer(json_at(channels, i), 0);
    c->size_count = json_count(sizes);
    for (i64 i = 0; i < c->size_count && i < VISION_SHAPES_MOST; i++)
        c->sizes[i] = (struct refiner_size){json_integer(json_at(json_at(sizes, i), 0), 0),
                                            json_integer(json_at(json_at(sizes, i), 1), 0)};
    return refiner_config_check(c) ? error_prefix("%s", origin) : 0;
}

static int config_load(struct refiner_config *config, const char *directory)
{
    char *path = path_join(directory, "config.json");
    struct json *value = json_load(path);
    int status = value ? config_parse(config, value, path) : -1;
    json_free(value);
    memory_free(path);
    return status;
}

/* ---- the folder ---- */

int refiner_save(const struct refiner *r, const char *directory)
{
    struct weight_list list;
    char *config_path = path_join(directory, "config.json"), *path = path_join(directory, "weights.safetensors");
    struct json *config = config_json(&r->config);
    weights_list(&list, &r->weights, FILE_HF, DTYPE_F32, NULL);
    int status = json_save(config_path, config) || safetensors_save(path, list.tensors, list.count, NULL) ? -1 : 0;
    weight_list_release(&list);
    json_free(config);
    memory_free(config_path);
    memory_free(path);
    return status;
}

struct refiner_work {
    const struct refiner_config *config;
    enum dtype dtype;
};

/* Sampling of the largest pictures. */
static int sample_on_meta(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct refiner_work *w = context;
    const struct refiner_size *largest = w->config->sizes;
    struct refiner refiner;
    (void)out;
    for (i64 i = 1; i < w->config->size_count; i++)
        if (w->config->sizes[i].height * w->config->sizes[i].width > largest->height * largest->width)
            largest = &w->config->sizes[i];
    i64 count = largest->height * largest->width * 3;
    u8 *in = memory_alloc(count), *made = memory_alloc(count * REFINER_FACTOR * REFINER_FACTOR);
    refiner_open(&refiner, meta, w->config, w->dtype, false);
    refiner_sample(&refiner, made, in, 1, largest->height, largest->width, &(struct refiner_draw){0});
    refiner_close(&refiner);
    memory_free(in);
    memory_free(made);
    return 0;
}

int refiner_load(struct refiner *r, struct device *device, const char *directory, enum dtype dtype)
{
    struct refiner_config config;
    struct safetensors set;
    struct refiner_work work = {&config, dtype};
    const struct dry_run check = {directory, sample_on_meta, &work,
                                  .otherwise = "take a smaller refiner, or --device cpu"};
    if (inventory_check(directory) || config_load(&config, directory) || dry_run_check(&check, device))
        return -1;
    char *path = path_join(directory, "weights.safetensors");
    int status = safetensors_open(&set, path);
    if (status == 0 && safetensors_verify(&set, path) < 0) {
        safetensors_close(&set);
        status = -1;
    }
    if (status == 0) {
        refiner_open(r, device, &config, dtype, false);
        status = weights_load(&r->weights, &set, FILE_HF, path);
        safetensors_close(&set);
        if (status)
            refiner_close(r);
    }
    memory_free(path);
    return status;
}
