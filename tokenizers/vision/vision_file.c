/* The vision tokenizer's folder: config.json and weights.safetensors. */
#include "kernels/device/rehearsal.h"
#include "tokenizers/vision/vision.h"

int vision_save(const struct vision *vision, const char *directory)
{
    struct weight_list list;
    char *config_path = path_join(directory, "config.json"), *path = path_join(directory, "weights.safetensors");
    struct json *config = vision_config_json(&vision->config);
    weights_list(&list, &vision->weights, FILE_HF, DTYPE_F32);
    int status = json_save(config_path, config) || safetensors_save(path, list.tensors, list.count, NULL) ? -1 : 0;
    weight_list_release(&list);
    json_free(config);
    memory_free(config_path);
    memory_free(path);
    return status;
}

static int load_config(struct vision_config *config, const char *directory)
{
    char *path = path_join(directory, "config.json");
    struct json *value = json_load(path);
    int status = value ? vision_config_parse(config, value, path) : -1;
    json_free(value);
    memory_free(path);
    return status;
}

static int check_memory(const struct device *device, const struct vision_config *config, const char *directory,
                        enum dtype dtype, bool training)
{
    struct rehearsal rehearsal;
    struct vision vision;
    if (!rehearsal_open(&rehearsal, device))
        return 0;
    vision_open(&vision, &rehearsal.meta, config, dtype, training);
    vision_close(&vision);
    int status = rehearsal_check(&rehearsal, directory, "take a smaller tokenizer, or --device cpu");
    rehearsal_close(&rehearsal);
    return status;
}

int vision_load(struct vision *vision, struct device *device, const char *directory, enum dtype dtype, bool training)
{
    struct vision_config config;
    struct safetensors set;
    if (load_config(&config, directory) || check_memory(device, &config, directory, dtype, training))
        return -1;
    char *path = path_join(directory, "weights.safetensors");
    int status = safetensors_open(&set, path);
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
