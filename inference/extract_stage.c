#include "inference/inference.h"

#include "inference/proof.h"
#include "train/pretrain.h"

const struct setting extract_table[] = {
    SETTING(struct extract_settings, from, "from", REFERENCE, NULL, 0, 0, NULL, "model to extract from"),
    SUBMODEL_ROWS(struct extract_settings, sub),
    {0}};

/* on: what the logits were compared on */
static void log_sizes(const struct model *model, const struct model *extracted, const struct submodel *sub,
                      const char *on)
{
    log_info("kept %lld of %lld layers, %lld of %lld experts, top-%lld of %lld: %.2f of the parameters; logits equal "
             "bit for bit %s",
             (long long)sub->layer_count, (long long)model->config.layers, (long long)sub->expert_count,
             (long long)model->config.experts, (long long)sub->topk, (long long)model->config.topk,
             (double)weights_parameters(&extracted->weights) / (double)weights_parameters(&model->weights), on);
}

int extract_directory(const char *from, const char *out, const struct submodel_options *options, struct device *device)
{
    struct model model, extracted;
    struct submodel sub;
    struct arena arena;
    struct buffer on = {0};
    if (model_load(&model, device, from, DTYPE_OTHER, false))
        return -1;
    arena_open(&arena, 64 << 20);
    int status = submodel_parse(&sub, &arena, options, &model);
    if (status == 0)
        status = elastic_extract(&extracted, &model, &sub);
    if (status == 0) {
        status = proof_heads(&on, &extracted, &model, &sub, from);
        if (status == 0)
            status = model_save(&extracted, out);
        if (status == 0)
            status = copy_tokenizers(out, from);
        if (status == 0)
            status = loss_weights_copy(out, from);
        if (status == 0)
            log_sizes(&model, &extracted, &sub, on.data);
        model_close(&extracted);
    }
    buffer_release(&on);
    arena_close(&arena);
    model_close(&model);
    return status;
}

int extract_stage(const void *settings, const struct stage *stage)
{
    const struct extract_settings *s = settings;
    return extract_directory(s->from, stage->out, &s->sub, stage->device);
}
