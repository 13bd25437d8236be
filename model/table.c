/* The backbone's table of weights: each weight's name, name on disk, shape, initialisation, weight
 * decay and split over the ranks. */
#include "model/inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void begin_row(struct table_builder *b, i64 matrices, i64 rows, i64 columns)
{
    b->row = (struct weight_spec){.matrices = matrices,
                                  .rows = rows,
                                  .columns = columns,
                                  .disk_rank = 2,
                                  .trained = true,
                                  .multiplied = true,
                                  .init_std = (float)b->model->config.init_std,
                                  .layer = b->layer,
                                  .decay = true};
}

static struct weight *end_row(struct table_builder *b, const char *name)
{
    snprintf(b->name, sizeof b->name, "%s", name);
    b->row.name = b->name;
    if (b->extra) {
        b->row.file = FILE_EXTRA;
        b->row.tensor_axis = AXIS_NONE;
    }
    return weights_add(&b->model->weights, &b->row);
}

/* Appends one piece to the row: `rows` rows under the name on disk, where
 * {e} stands for the part. */
static void push_piece(struct table_builder *b, i64 rows, const char *prefix, const char *name)
{
    int i = 0;
    while (b->row.pieces[i].name)
        i++;
    snprintf(b->disk[i], sizeof b->disk[i], "%s%s", prefix, name);
    b->row.pieces[i] = (struct weight_piece){b->disk[i], rows};
}

/* Begins a row of a layer. Layers take most of the flops, so their weights may use FP8. */
static void begin_layer_row(struct table_builder *b, i64 matrices, i64 rows, i64 columns)
{
    begin_row(b, matrices, rows, columns);
    b->row.fp8 = true;
}

struct weight *table_matrix(struct table_builder *b, const char *name, const char *prefix, const char *disk, i64 rows,
                            i64 columns, enum tensor_axis axis)
{
    begin_row(b, 1, rows, columns);
    push_piece(b, rows, prefix, disk);
    b->row.tensor_axis = axis;
    return end_row(b, name);
}

/* Initialisation of the matrices whose output is added to the residual stream. */
static enum weight_init output_init(const struct table_builder *b)
{
    return b->model->config.zero_init ? INIT_ZEROS : INIT_NORMAL;
}

static struct weight *output_matrix(struct table_builder *b, const char *name, const char *prefix, const char *disk,
                                    i64 rows, i64 columns)
{
    struct weight *w = table_matrix(b, name, prefix, disk, rows, columns, AXIS_COLUMNS);
    w->spec.fp8 = true;
    w->spec.init = output_init(b);
    return w;
}

/* An embedding that heads read too, so several chunks of a pipeline hold it. */
struct weight *table_shared_matrix(struct table_builder *b, const char *name, const char *prefix, const char *disk,
                                   i64 rows, i64 columns)
{
    begin_row(b, 1, rows, columns);
    push_piece(b, rows, prefix, disk);
    b->row.shared = true;
    return end_row(b, name);
}

struct weight *table_norm(struct table_builder *b, const char *name, const char *prefix, const char *disk, i64 columns)
{
    begin_row(b, 1, 1, columns);
    push_piece(b, 1, prefix, disk);
    b->row.disk_rank = 1;
    b->row.init = INIT_ONES;
    b->row.decay = b->row.multiplied = false;
    return end_row(b, name);
}

static struct weight *gate_up(struct table_builder *b, const char *name, const char *prefix, i64 width, i64 columns)
{
    begin_layer_row(b, 1, 2 * width, columns);
    push_piece(b, width, prefix, "gate_proj.weight");
    push_piece(b, width, prefix, "up_proj.weight");
    b->row.tensor_axis = AXIS_ROWS;
    return end_row(b, name);
}

void table_attention(struct table_builder *b, struct layer_weights *l, const char *stem, const char *prefix, i64 width,
                     i64 heads, i64 kv_heads, i64 head_width)
{
    char name[128], at[160];
    i64 q = heads * head_width, kv = kv_heads * head_width;
    snprintf(name, sizeof name, "%s.norm1", stem);
    l->norm1 = table_norm(b, name, prefix, "input_layernorm.weight", width);
    snprintf(name, sizeof name, "%s.qkv", stem);
    snprintf(at, sizeof at, "%sself_attn.", prefix);
    begin_layer_row(b, 1, q + 2 * kv, width);
    push_piece(b, q, at, "q_proj.weight");
    push_piece(b, kv, at, "k_proj.weight");
    push_piece(b, kv, at, "v_proj.weight");
    b->row.tensor_axis = AXIS_ROWS;
    l->qkv = end_row(b, name);
    snprintf(name, sizeof name, "%s.out", stem);
    l->out = output_matrix(b, name, at, "o_proj.weight", width, q);
    snprintf(name, sizeof name, "%s.norm2", stem);
    l->norm2 = table_norm(b, name, prefix, "post_attention_layernorm.weight", width);
}

void table_dense(struct table_builder *b, struct layer_weights *l, const char *stem, const char *prefix, i64 width,
                 i64 dense_width)
{
    char name[128], at[160];
    snprintf(at, sizeof at, "%smlp.", prefix);
    snprintf(name, sizeof name, "%s.gate_up", stem);
    l->gate_up = gate_up(b, name, at, dense_width, width);
    snprintf(name, sizeof name, "%s.down", stem);
    l->down = output_matrix(b, name, at, "down_proj.weight", width, dense_width);
}

static void router_rows(struct table_builder *b, struct layer_weights *l, const char *stem, const char *prefix)
{
    const struct model_config *c = &b->model->config;
    char name[128];
    begin_row(b, 1, c->experts, c->width);
    push_piece(b, c->experts, prefix, "mlp.gate.weight");
    b->row.type = TYPE_F32;
    b->row.elastic = ELASTIC_EXPERT_ROWS;
    b->row.decay = false;
    snprintf(name, sizeof name, "%s.router", stem);
    l->router = end_row(b, name);
    begin_row(b, 1, 1, c->experts);
    push_piece(b, 1, prefix, "mlp.moe_statics.e_score_correction_bias");
    snprintf(b->fused, sizeof b->fused, "%smlp.gate.moe_statics.e_score_correction_bias", prefix);
    b->row.fused = b->fused;
    b->row.type = TYPE_F32;
    b->row.init = INIT_ZEROS;
    b->row.trained = b->row.decay = false;
    b->row.elastic = ELASTIC_EXPERT_COLUMNS;
    snprintf(name, sizeof name, "%s.bias", stem);
    l->bias = end_row(b, name);
}

static void expert_rows(struct table_builder *b, struct layer_weights *l, const char *stem, const char *prefix)
{
    const struct model_config *c = &b->model->config;
    char name[128], at[160];
    snprintf(at, sizeof at, "%smlp.experts.{e}.", prefix);
    begin_layer_row(b, c->experts, 2 * c->expert_width, c->width);
    push_piece(b, c->expert_width, at, "gate_proj.weight");
    push_piece(b, c->expert_width, at, "up_proj.weight");
    snprintf(b->fused, sizeof b->fused, "%smlp.experts.gate_up_proj", prefix);
    b->row.fused = b->fused;
    b->row.expert_axis = true;
    b->row.tensor_axis = AXIS_ROWS;
    b->row.elastic = ELASTIC_EXPERT_MATRICES;
    snprintf(name, sizeof name, "%s.experts_gate_up", stem);
    l->experts_gate_up = end_row(b, name);
    begin_layer_row(b, c->experts, c->width, c->expert_width);
    b->row.init = output_init(b);
    push_piece(b, c->width, at, "down_proj.weight");
    snprintf(b->fused, sizeof b->fused, "%smlp.experts.down_proj", prefix);
    b->row.fused = b->fused;
    b->row.expert_axis = true;
    b->row.tensor_axis = AXIS_COLUMNS;
    b->row.elastic = ELASTIC_EXPERT_MATRICES;
    snprintf(name, sizeof name, "%s.experts_down", stem);
    l->experts_down = end_row(b, name);
}

static void moe_rows(struct table_builder *b, struct layer_weights *l, const char *stem, const char *prefix)
{
    const struct model_config *c = &b->model->config;
    char name[128], at[160];
    router_rows(b, l, stem, prefix);
    expert_rows(b, l, stem, prefix);
    if (!c->shared_experts)
        return;
    snprintf(at, sizeof at, "%smlp.shared_experts.", prefix);
    snprintf(name, sizeof name, "%s.shared_gate_up", stem);
    l->shared_gate_up = gate_up(b, name, at, c->shared_experts * c->expert_width, c->width);
    snprintf(name, sizeof name, "%s.shared_down", stem);
    l->shared_down = output_matrix(b, name, at, "down_proj.weight", c->width, c->shared_experts * c->expert_width);
}

static void backbone_rows(struct table_builder *b)
{
    struct model *m = b->model;
    const struct model_config *c = &m->config;
    b->layer = -1;
    m->embed = c->tied || c->mtp
                   ? table_shared_matrix(b, "embed", "model.", "embed_tokens.weight", c->vocabulary, c->width)
                   : table_matrix(b, "embed", "model.", "embed_tokens.weight", c->vocabulary, c->width, AXIS_NONE);
    m->embed->spec.multiplied = c->tied;
    for (i64 i = 0; i < c->layers; i++) {
        char stem[64], prefix[96];
        snprintf(stem, sizeof stem, "layers.%lld", (long long)i);
        snprintf(prefix, sizeof prefix, "model.layers.%lld.", (long long)i);
        b->layer = i;
        table_attention(b, &m->layer[i], stem, prefix, c->width, c->heads, c->kv_heads, c->head_width);
        if (i < c->first_moe_layer)
            table_dense(b, &m->layer[i], stem, prefix, c->width, c->dense_width);
        else
            moe_rows(b, &m->layer[i], stem, prefix);
    }
    b->layer = c->layers;
    m->norm = table_norm(b, "norm", "model.", "norm.weight", c->width);
    m->head = c->tied ? m->embed : table_matrix(b, "head", "", "lm_head.weight", c->vocabulary, c->width, AXIS_NONE);
}

static void reduced_bias_row(struct table_builder *b, i64 layer)
{
    char name[64], disk[64];
    b->layer = layer;
    snprintf(name, sizeof name, "layers.%lld.reduced_bias", (long long)layer);
    snprintf(disk, sizeof disk, "reduced_bias.%lld", (long long)layer);
    begin_row(b, 1, 1, b->model->config.experts);
    push_piece(b, 1, "weft.", disk);
    b->row.type = TYPE_F32;
    b->row.init = INIT_ZEROS;
    b->row.trained = b->row.decay = false;
    b->row.elastic = ELASTIC_EXPERT_COLUMNS;
    b->model->layer[layer].reduced_bias = end_row(b, name);
}

/* Checks that the layout divides every size it splits. */
static int check_layout(const struct model_config *c, const struct layout *l)
{
    const struct {
        i64 size, ranks;
        const char *what;
    } cuts[] = {
        {c->heads, l->tensor, "attention heads on tensor"},
        {c->kv_heads, l->tensor, "key-value heads on tensor"},
        {c->first_moe_layer ? c->dense_width : 0, l->tensor, "feed-forward columns on tensor"},
        {c->experts ? c->expert_width : 0, l->tensor, "columns of an expert on tensor"},
        {c->experts, l->expert, "experts on expert"},
    };
    for (i64 i = 0; i < COUNT_OF(cuts); i++)
        if (cuts[i].size % cuts[i].ranks)
            return error_usage("%lld %s ranks (%lld) do not come out even", (long long)cuts[i].size, cuts[i].what,
                               (long long)cuts[i].ranks);
    if (l->pipeline * l->chunks > c->layers)
        return error_usage("%lld %s cannot be cut into %lld chunks", (long long)c->layers,
                           plural(c->layers, "layer", "layers"), (long long)(l->pipeline * l->chunks));
    return 0;
}

static int open_table(struct model *model, struct device *device, const struct model_config *config, enum dtype dtype,
                      bool training, int bits, const struct parallel *parallel)
{
    struct table_builder b = {.model = model};
    memset(model, 0, sizeof *model);
    model->parallel = parallel ? parallel : parallel_alone();
    if (model_config_check(config) || check_layout(config, &model->parallel->layout))
        return -1;
    struct weights_layout place = parallel_place(&model->parallel->layout, model->parallel->world->rank);
    place.layers = config->layers;
    model->config = *config;
    /* Stored explicitly, so a sub-model with fewer experts keeps the block's width. */
    if (config->mtp && !config->mtp_width)
        model->config.mtp_width = config->dense_width ? config->dense_width : config->topk * config->expert_width;
    model->device = device;
    weights_open(&model->weights, device, dtype, training, &place);
    backbone_rows(&b);
    b.layer = config->layers;
    b.extra = true;
    modality_rows_of_weights(&b);
    for (i64 i = config->first_moe_layer; i < config->layers && config->reduced_bias; i++)
        reduced_bias_row(&b, i);
    if (bits)
        weights_quantize(&model->weights, bits);
    weights_allocate(&model->weights);
    i64 counts = model_use_count(config);
    model->use = device_alloc(device, counts * (i64)sizeof *model->use);
    model->usage = device_alloc(device, model_usage_count(config) * (i64)sizeof *model->usage);
    device->ops->zero(device, model->use, counts * (i64)sizeof *model->use);
    device->ops->zero(device, model->usage, model_usage_count(config) * (i64)sizeof *model->usage);
    return 0;
}

int model_open(struct model *model, struct device *device, const struct model_config *config, enum dtype dtype,
               bool training, const struct parallel *parallel)
{
    return open_table(model, device, config, dtype, training, 0, parallel);
}

int model_open_quantized(struct model *model, struct device *device, const struct model_config *config,
                         enum dtype dtype, int bits)
{
    return open_table(model, device, config, dtype, false, bits, NULL);
}

void model_close(struct model *model)
{
    i64 counts = model_use_count(&model->config);
    device_free(model->device, model->use, counts * (i64)sizeof *model->use);
    device_free(model->device, model->usage, model_usage_count(&model->config) * (i64)sizeof *model->usage);
    weights_close(&model->weights);
    memset(model, 0, sizeof *model);
}
