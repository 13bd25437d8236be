/* The vision tokenizer's folder: config.json and weights.safetensors. */
#include "core/inventory.h"
#include "core/safetensors.h"
#include "kernels/device/dry_run.h"
#include "tokenizers/vision/vision.h"

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
