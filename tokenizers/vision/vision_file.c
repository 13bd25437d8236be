/* The vision tokenizer's folder: config.json and weights.safetensors. */
#include "core/inventory.h"
#include "core/safetensors.h"
#include "kernels/device/dry_run.h"
#include "tokenizers/vision/vision.h"

#include <string.h>

int vision_save(const struct vision *vision, const char *directory)
{
    struct weight_list list;
    char *config_path = path_join(directory, "config.json"), *path = path_join(directory, "weights.safetensors");
    struct json *config = vision_config_json(&vision->config);
    weights_list(&list, &vision->weights, FILE_HF, DTYPE_F32, NULL);
    int status = json_save(config_path, config) || safetensors_save(path, list.tensors, list.count, NULL) ? -1 : 0;
    weight_list_release(&list);
    json_free(config);
    memory_free(config_path);
    memory_free(path);
    return status;
}

int vision_config_load(struct vision_config *config, const char *directory)
{
    char *path = path_join(directory, "config.json");
    struct json *value = json_load(path);
    int status = value ? vision_config_parse(config, value, path) : -1;
    json_free(value);
    memory_free(path);
    return status;
}

/* True if the rows and columns that `base` has are the same in `grown`. */
static int same_part(const struct tensor_view *base, const struct tensor_view *grown)
{
    i64 count = tensor_view_elements(base), more = tensor_view_elements(grown);
    i64 columns = base->shape[base->rank - 1], width = grown->shape[grown->rank - 1], rows = count / columns;
    if (base->rank != grown->rank || columns > width || rows > more / width)
        return 0;
    float *a = memory_alloc(count * 4), *b = memory_alloc(more * 4);
    int same = tensor_view_to_f32(a, base) || tensor_view_to_f32(b, grown) ? -1 : 1;
    for (i64 r = 0; r < rows && same == 1; r++)
        same = memcmp(a + r * columns, b + r * width, (size_t)columns * 4) == 0;
    memory_free(a);
    memory_free(b);
    return same;
}

static int bits_stay(const struct safetensors *base, const struct safetensors *grown)
{
    int same = 1;
    for (i64 i = 0; i < base->count && same == 1; i++) {
        const struct tensor_view *a = &base->tensors[i], *b = safetensors_find(grown, a->name);
        if (strncmp(a->name, "decoder.", 8) != 0)
            same = b && tensor_view_elements(a) ? same_part(a, b) : 0;
    }
    return same;
}

int vision_bits_stay(const char *base, const char *grown)
{
    struct vision_config configs[2];
    struct safetensors sets[2];
    char *paths[2] = {path_join(base, "weights.safetensors"), path_join(grown, "weights.safetensors")};
    int same = vision_config_load(&configs[0], base) || vision_config_load(&configs[1], grown) ? -1 : 1;
    if (same == 1 && (configs[0].stride != configs[1].stride || configs[0].inflated != configs[1].inflated ||
                      configs[0].centred != configs[1].centred || configs[0].shape_count != configs[1].shape_count))
        same = 0;
    int open = 0;
    while (same == 1 && open < 2)
        if (safetensors_open(&sets[open], paths[open]))
            same = -1;
        else
            open++;
    if (same == 1)
        same = bits_stay(&sets[0], &sets[1]);
    while (open > 0)
        safetensors_close(&sets[--open]);
    memory_free(paths[0]);
    memory_free(paths[1]);
    return same;
}

struct vision_work {
    const struct vision_config *config;
    enum dtype dtype;
    bool training;
};

static int open_on_meta(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct vision_work *w = context;
    struct vision vision;
    (void)out;
    vision_open(&vision, meta, w->config, w->dtype, w->training);
    vision_close(&vision);
    return 0;
}

int vision_load(struct vision *vision, struct device *device, const char *directory, enum dtype dtype, bool training)
{
    struct vision_config config;
    struct safetensors set;
    struct vision_work work = {&config, dtype, training};
    const struct dry_run check = {directory, open_on_meta, &work,
                                  .otherwise = "take a smaller tokenizer, or --device cpu"};
    if (inventory_check(directory) || vision_config_load(&config, directory) || dry_run_check(&check, device))
        return -1;
    char *path = path_join(directory, "weights.safetensors");
    int status = safetensors_open(&set, path);
    if (status == 0 && safetensors_verify(&set, path) < 0) {
        safetensors_close(&set);
        status = -1;
    }
    if (status == 0) {
        vision_open(vision, device, &config, dtype, training);
        status = weights_load(&vision->weights, &set, FILE_HF, path);
        safetensors_close(&set);
        if (status)
            vision_close(vision);
    }
    memory_free(path);
    return status;
}
