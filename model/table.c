/* The backbone's table of weights: each weight's name, name on disk, shape, initialisation, weight
 * decay and split over the ranks. */
#include "model/family.h"
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

void table_at(struct table_builder *b, const char *stem, const char *prefix, i64 number)
{
    b->stem = stem;
    b->prefix = prefix;
    b->number = number;
}

/* "layers.{l}." and "out" -> "layers.3.out" */
static const char *name_of(const struct table_builder *b, char *out, size_t size, const char *before, const char *name)
{
    char pattern[192];
    snprintf(pattern, sizeof pattern, "%s%s", before, name);
    family_layer_name(out, size, pattern, b->number);
    return out;
}

static struct weight *end_row(struct table_builder *b, const char *name)
{
    b->row.name = name_of(b, b->name, sizeof b->name, b->stem, name);
    if (b->extra) {
        b->row.file = FILE_EXTRA;
        b->row.tensor_axis = AXIS_NONE;
    }
    return weights_add(&b->model->weights, &b->row);
}

/* Appends one piece to the row: `rows` rows under the name on disk, where
 * {e} stands for the part. */
static void push_piece(struct table_builder *b, i64 rows, const char *disk)
{
    int i = 0;
    while (b->row.pieces[i].name)
        i++;
    b->row.pieces[i] = (struct weight_piece){name_of(b, b->disk[i], sizeof b->disk[i], b->prefix, disk), rows};
}

/* The same, named by the family. */
static void push_role(struct table_builder *b, i64 rows, enum weight_role role)
{
    const struct family_weight *names = &b->names[role];
    push_piece(b, rows, names->disk);
    if (names->fused)
        b->row.fused = name_of(b, b->fused, sizeof b->fused, b->prefix, names->fused);
}

/* Begins a row of a layer. Layers take most of the flops, so their weights may use FP8. */
static void begin_layer_row(struct table_builder *b, i64 matrices, i64 rows, i64 columns)
{
    begin_row(b, matrices, rows, columns);
    b->row.fp8 = true;
}

struct weight *table_matrix(struct table_builder *b, const char *name, const char *disk, i64 rows, i64 columns,
                            enum tensor_axis axis)
{
    begin_row(b, 1, rows, columns);
    push_piece(b, rows, disk);
    b->row.tensor_axis = axis;
    return end_row(b, name);
}

/* Initialisation of the matrices whose output is added to the residual stream. */
static enum weight_init output_init(const struct table_builder *b)
{
    return b->model->config.zero_init ? INIT_ZEROS : INIT_NORMAL;
}

static struct weight *output_matrix(struct table_builder *b, const char *name, enum weight_role role, i64 rows,
                                    i64 columns)
{
    struct weight *w = table_matrix(b, name, b->names[role].disk, rows, columns, AXIS_COLUMNS);
    w->spec.fp8 = true;
    w->spec.init = output_init(b);
    return w;
}

/* An embedding that heads read too, so several chunks of a pipeline hold it. */
struct weight *table_shared_matrix(struct table_builder *b, const char *name, const char *disk, i64 rows, i64 columns)
{
    begin_row(b, 1, rows, columns);
    push_piece(b, rows, disk);
    b->row.shared = true;
    return end_row(b, name);
}

struct weight *table_norm(struct table_builder *b, const char *name, const char *disk, i64 columns)
{
    begin_row(b, 1, 1, columns);
    push_piece(b, 1, disk);
    b->row.disk_rank = 1;
    b->row.init = INIT_ONES;
    b->row.decay = b->row.multiplied = false;
    return end_row(b, name);
}

/* `up` follows `gate` in enum weight_role. */
static struct weight *gate_up(struct table_builder *b, const char *name, enum weight_role gate, i64 width, i64 columns)
{
    begin_layer_row(b, 1, 2 * width, columns);
    push_role(b, width, gate);
    push_role(b, width, gate + 1);
    b->row.tensor_axis = AXIS_ROWS;
    return end_row(b, name);
}

void table_attention(struct table_builder *b, struct layer_weights *l, i64 width, i64 heads, i64 kv_heads,
                     i64 head_width)
{
    i64 q = heads * head_width, kv = kv_heads * head_width;
    l->norm1 = table_norm(b, "norm1", b->names[ROLE_NORM1].disk, width);
    begin_layer_row(b, 1, q + 2 * kv, width);
    push_role(b, q, ROLE_Q);
    push_role(b, kv, ROLE_K);
    push_role(b, kv, ROLE_V);
    b->row.tensor_axis = AXIS_ROWS;
    l->qkv = end_row(b, "qkv");
    l->out = output_matrix(b, "out", ROLE_OUT, width, q);
    l->norm2 = table_norm(b, "norm2", b->names[ROLE_NORM2].disk, width);
}

void table_dense(struct table_builder *b, struct layer_weights *l, i64 width, i64 dense_width)
{
    l->gate_up = gate_up(b, "gate_up", ROLE_GATE, dense_width, width);
    l->down = output_matrix(b, "down", ROLE_DOWN, width, dense_width);
}

/* A row of F32 values of each expert, which no optimizer trains. */
static struct weight *bias_row(struct table_builder *b, const char *name)
{
    b->row.type = TYPE_F32;
    b->row.init = INIT_ZEROS;
    b->row.trained = b->row.decay = false;
    b->row.elastic = ELASTIC_EXPERT_COLUMNS;
    return end_row(b, name);
}

static void router_rows(struct table_builder *b, struct layer_weights *l)
{
    const struct model_config *c = &b->model->config;
    begin_row(b, 1, c->experts, c->width);
    push_role(b, c->experts, ROLE_ROUTER);
    b->row.type = TYPE_F32;
    b->row.elastic = ELASTIC_EXPERT_ROWS;
    b->row.decay = false;
    l->router = end_row(b, "router");
    if (!b->names[ROLE_BIAS].disk)
        return;
    begin_row(b, 1, 1, c->experts);
    push_role(b, 1, ROLE_BIAS);
    l->bias = bias_row(b, "bias");
}

/* One matrix for each expert; its pieces have been pushed. */
static struct weight *expert_row(struct table_builder *b, enum tensor_axis axis, const char *name)
{
    b->row.expert_axis = true;
    b->row.tensor_axis = axis;
    b->row.elastic = ELASTIC_EXPERT_MATRICES;
    return end_row(b, name);
}

static void moe_rows(struct table_builder *b, struct layer_weights *l)
{
    const struct model_config *c = &b->model->config;
    i64 shared = c->shared_experts * c->expert_width;
    router_rows(b, l);
    begin_layer_row(b, c->experts, 2 * c->expert_width, c->width);
    push_role(b, c->expert_width, ROLE_EXPERT_GATE);
    push_role(b, c->expert_width, ROLE_EXPERT_UP);
    l->experts_gate_up = expert_row(b, AXIS_ROWS, "experts_gate_up");
    begin_layer_row(b, c->experts, c->width, c->expert_width);
    b->row.init = output_init(b);
    push_role(b, c->width, ROLE_EXPERT_DOWN);
    l->experts_down = expert_row(b, AXIS_COLUMNS, "experts_down");
    if (!c->shared_experts)
        return;
    l->shared_gate_up = gate_up(b, "shared_gate_up", ROLE_SHARED_GATE, shared, c->width);
    l->shared_down = output_matrix(b, "shared_down", ROLE_SHARED_DOWN, c->width, shared);
}

static void backbone_rows(struct table_builder *b)
{
    struct model *m = b->model;
    const struct model_config *c = &m->config;
    const char *embed = b->names[ROLE_EMBED].disk, *head = b->names[ROLE_HEAD].disk;
    b->layer = -1;
    table_at(b, "", "", 0);
    m->embed = c->tied || c->mtp ? table_shared_matrix(b, "embed", embed, c->vocabulary, c->width)
                                 : table_matrix(b, "embed", embed, c->vocabulary, c->width, AXIS_NONE);
    m->embed->spec.multiplied = c->tied;
    for (i64 i = 0; i < c->layers; i++) {
        b->layer = i;
        table_at(b, "layers.{l}.", model_family(c)->layer, i);
        table_attention(b, &m->layer[i], c->width, c->heads, c->kv_heads, c->head_width);
        if (i < c->first_moe_layer)
            table_dense(b, &m->layer[i], c->width, c->dense_width);
        else
            moe_rows(b, &m->layer[i]);
    }
    b->layer = c->layers;
    table_at(b, "", "", 0);
    m->norm = table_norm(b, "norm", b->names[ROLE_NORM].disk, c->width);
    m->head = c->tied ? m->embed : table_matrix(b, "head", head, c->vocabulary, c->width, AXIS_NONE);
}

static void reduced_bias_row(struct table_builder *b, i64 layer)
{
    b->layer = layer;
    table_at(b, "layers.{l}.", "weft.", layer);
    begin_row(b, 1, 1, b->model->config.experts);
    push_piece(b, 1, "reduced_bias.{l}");
    b->model->layer[layer].reduced_bias = bias_row(b, "reduced_bias");
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
    struct table_builder b = {.model = model, .names = model_family(config)->weights};
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
    b.names = model_families[0]->weights; /* in every family */
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
    memory_free(model->order);
    device_free(model->device, model->usage, model_usage_count(&model->config) * (i64)sizeof *model->usage);
    weights_close(&model->weights);
    memset(model, 0, sizeof *model);
}
