/* The grid's layers and experts, chosen by held-out samples. */
#include "submodels/choice.h"

#include "data/shards/shards.h"
#include "submodels/submodels.h"

#include <stdio.h>
#include <string.h>

/* ---- The part ---- */

/* 1: every folder has the part, and it has samples; -1: a message. */
static int has_samples(const char *data, const char *part)
{
    struct string_list folders = {0};
    struct shards shards;
    int status = shard_folders_list(&folders, data), found = 1;
    for (i64 i = 0; i < folders.count; i++) {
        char *path = path_join(folders.values[i], part);
        found &= file_exists(path);
        memory_free(path);
    }
    string_list_free(folders.values, folders.count);
    if (status || !found)
        return status;
    if (shards_open(&shards, data, part))
        return -1;
    found = shards.sample_count > 0;
    shards_close(&shards);
    return found;
}

int grid_choice_part(const char **part, const struct grid_settings *s)
{
    static const char *const parts[] = {"validation", "train"};
    *part = s->choose_part && *s->choose_part ? s->choose_part : NULL;
    for (i64 i = 0; i < COUNT_OF(parts) && !*part && s->choose != GRID_BY_USE; i++) {
        int has = strcmp(parts[i], s->split) == 0 ? 0 : has_samples(s->data, parts[i]);
        if (has < 0)
            return -1;
        *part = has ? parts[i] : NULL;
    }
    return 0;
}

/* ---- The choice ---- */

/* The layers that stay, from the point before that has the fewest of those with enough. */
static int keep_layers(struct submodel *kept, const struct grid_result *before, struct choice *choice, i64 layers)
{
    submodel_full(kept, &choice->model->config);
    for (i64 i = 0; i < before->count; i++) {
        const struct submodel *sub = &before->points[i].sub;
        if (sub->layer_count < layers || sub->layer_count >= kept->layer_count)
            continue;
        kept->layer_count = sub->layer_count;
        memcpy(kept->layer, sub->layer, sizeof kept->layer);
    }
    return choice_layers_greedy(kept, choice, layers);
}

static int choose(struct grid_result *out, struct choice *choice, const struct size_list *family, double *scores)
{
    struct model *model = choice->model;
    const struct model_config *c = &model->config;
    struct grid_shape shapes[GRID_SHAPES];
    struct submodel full, layers;
    i64 count = elastic_grid_shapes(shapes, c, family), fewest = c->experts;
    int status = 0;
    for (i64 i = 0; i < count; i++)
        fewest = min_i64(fewest, shapes[i].experts);
    submodel_full(&full, c);
    if (fewest < c->experts)
        status = choice_experts(scores, choice, CRITERION_AUTO, &full, fewest);
    for (i64 i = 0; i < count && status == 0; i++) {
        struct grid_point *point = &out->points[out->count];
        status = keep_layers(&layers, out, choice, shapes[i].layers);
        if (status)
            break;
        grid_point_set(point, &out->memory, model, &shapes[i], &layers, scores);
        point->chosen = shapes[i].experts < c->experts || shapes[i].layers < c->layers ? "data" : NULL;
        out->count++;
    }
    return status;
}

int grid_choose(struct grid_result *out, struct model *model, const struct heldout_pass *pass,
                const struct size_list *family)
{
    struct choice choice;
    double begin = clock_s();
    int status = choice_open(&choice, model, pass);
    if (status)
        return status;
    double *scores = memory_alloc(model_use_count(&model->config) * 8);
    out->count = 0;
    snprintf(out->chosen_on, sizeof out->chosen_on, "%s", pass->split);
    status = choose(out, &choice, family, scores);
    if (status == 0)
        log_info("layers and experts of sub-models chosen by %lld %s over %s in %.1f s", (long long)choice.forwards,
                 plural(choice.forwards, "pass", "passes"), pass->split, clock_s() - begin);
    memory_free(scores);
    choice_close(&choice);
    return status;
}
