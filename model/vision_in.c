/* Vision input [R 2.2.2]. A ViT reads the pixels of each cell of the vision encoder's grid. Its
 * output and the encoder's features (before quantisation) are merged for 4 neighbouring cells at a
 * time: the 8 tokens run through self-attention and are concatenated before the projection to the
 * backbone. The report takes their mean instead, which is the special case of equal columns. The
 * mean loses which of the 4 cells a token belongs to, and with an encoder this small captions were
 * learned several times more slowly (bench/archive/LOG.md). Both kinds of token enter with an RMS
 * of 1, also the encoder's features, whose scale depends on the tokenizer. A cell of a clip's
 * latent frame carries the pixels of all frames that the latent frame spans. */
#include "model/inside.h"

#include <stdio.h>

struct branch { /* Attention among the positions of a branch (ViT, merger) alone; device memory. */
    struct intervals intervals;
    const float *coordinates; /* [n, 3] */
};
struct vision_in_staged {
    struct branch cells, merger;
    const i32 *side_by_side; /* [2, cells] destination rows of the features and of the ViT's output */
};

static struct vision_in_staged *staged(const struct pass *p)
{
    return p->staged[INPUT_VISION_IN];
}

/* ---- Weights ---- */

void vision_in_weights(struct table_builder *b)
{
    struct vision_in_weights *v = &b->model->vision_in;
    const struct model_config *c = &b->model->config;
    i64 width = c->vit_width;
    b->layer = -1;
    table_at(b, "vit.", "weft.vit.", 0);
    v->patch = table_matrix(b, "patch", "patch.weight", width, c->patch_values, AXIS_NONE);
    for (i64 i = 0; i < c->vit_layers; i++) {
        table_at(b, "vit.{l}.", "weft.vit.layers.{l}.", i);
        table_attention(b, &v->layer[i], width, c->vit_heads, c->vit_heads, width / c->vit_heads);
        table_dense(b, &v->layer[i], width, 2 * width);
    }
    table_at(b, "vit.", "weft.vit.", 0);
    v->norm = table_norm(b, "norm", "norm.weight", width);
    table_at(b, "merger.", "weft.merger.", 0);
    v->features = table_matrix(b, "features", "features.weight", width, c->cell_features, AXIS_NONE);
    v->features_norm = table_norm(b, "features_norm", "features_norm.weight", width);
    v->merge_norm = table_norm(b, "norm", "norm.weight", width);
    v->merge_qkv = table_matrix(b, "qkv", "qkv.weight", 3 * width, width, AXIS_NONE);
    v->merge_out = table_matrix(b, "out", "out.weight", width, width, AXIS_NONE);
    v->project = table_matrix(b, "project", "project.weight", c->width, 2 * CELLS * width, AXIS_NONE);
}

/* ---- Attention ranges, among positions of a branch alone ---- */

/* Positions of one bidirectional block share `begin`. Keys are cache columns while generating. */
static bool same_block(const struct batch *b, i64 first, i64 other)
{
    return b->begin[b->query[first]] == b->begin[b->query[other]];
}

/* Host pointers into the staged block. */
struct put_columns {
    i32 *query, *begin, *end, *hole_begin, *hole_end;
    float *coordinates; /* [n, 3] */
};

static struct put_columns stage_branch(struct pass *p, struct branch *branch, i64 n)
{
    struct put_columns c;
    void *host, *coordinates;
    const i32 *device = tape_stage(p->tape, &host, n * 5 * 4);
    branch->coordinates = tape_stage(p->tape, &coordinates, n * 12);
    branch->intervals = (struct intervals){n, n, device, device + n, device + 2 * n, device + 3 * n, device + 4 * n};
    c = (struct put_columns){.query = host, .coordinates = coordinates};
    c.begin = c.query + n;
    c.end = c.begin + n;
    c.hole_begin = c.end + n;
    c.hole_end = c.hole_begin + n;
    for (i64 i = 0; i < n; i++) {
        c.query[i] = (i32)i;
        c.hole_begin[i] = c.hole_end[i] = 0;
    }
    return c;
}

/* Cells of one image or latent frame attend to each other: its positions are adjacent and share
 * `begin`. A cell has the time coordinate of its position and its own height and width: the 4 cells
 * (index 2r + c) lie half a step from the position's centre. */
static void put_cells(struct pass *p)
{
    const struct input_list *in = &p->batch->inputs[INPUT_VISION_IN];
    struct put_columns c = stage_branch(p, &staged(p)->cells, in->n * CELLS);
    for (i64 first = 0, next; first < in->n; first = next) {
        next = first + 1;
        while (next < in->n && same_block(p->batch, in->position[first], in->position[next]))
            next++;
        for (i64 i = first * CELLS; i < next * CELLS; i++) {
            c.begin[i] = (i32)(first * CELLS);
            c.end[i] = (i32)(next * CELLS);
        }
    }
    for (i64 i = 0; i < in->n * CELLS; i++) {
        const float *at = p->batch->coordinates + 3 * in->position[i / CELLS];
        c.coordinates[3 * i] = at[0];
        c.coordinates[3 * i + 1] = 2 * at[1] + (float)(i % CELLS / 2) - 0.5f;
        c.coordinates[3 * i + 2] = 2 * at[2] + (float)(i % CELLS % 2) - 0.5f;
    }
}

/* The 8 tokens of 4 cells (K = 4) attend to each other without an order. Row 2K i + k holds the
 * encoder's features, row 2K i + K + k the ViT's output. */
static void put_merger(struct pass *p)
{
    i64 n = p->batch->inputs[INPUT_VISION_IN].n, cells = n * CELLS;
    struct put_columns c = stage_branch(p, &staged(p)->merger, 2 * cells);
    void *host;
    staged(p)->side_by_side = tape_stage(p->tape, &host, 2 * cells * 4);
    for (i64 i = 0; i < 2 * cells; i++) {
        c.begin[i] = (i32)(i / (2 * CELLS) * 2 * CELLS);
        c.end[i] = c.begin[i] + 2 * CELLS;
        for (i64 axis = 0; axis < 3; axis++)
            c.coordinates[3 * i + axis] = 0;
    }
    for (i64 i = 0; i < cells; i++) {
        i32 at = (i32)(i / CELLS * 2 * CELLS + i % CELLS);
        ((i32 *)host)[i] = at;
        ((i32 *)host)[cells + i] = at + CELLS;
    }
}

void vision_in_put(struct pass *p)
{
    p->staged[INPUT_VISION_IN] = arena_alloc(&p->tape->host, sizeof(struct vision_in_staged));
    put_cells(p);
    put_merger(p);
}

/* ---- Forward ---- */

/* Maps pixels from 0..255 to -1..1 and projects them to the ViT's width. */
static struct tensor *patches(struct pass *p, const struct input_list *in)
{
    struct tape *tape = p->tape;
    struct tensor *pixels = tape_tensor(tape, tape->activations, in->n * CELLS, p->model->config.patch_values);
    tape->device->ops->widen_bytes(tape->device, tensor_matrix(pixels), in->pixels, 2 / 255.0f, -1);
    return model_linear(p, pixels, p->model->vision_in.patch);
}

/* Branches with the ViT's width differ only in their positions and attention ranges. */
static struct attention branch_attention(const struct pass *p, const struct branch *branch)
{
    const struct model_config *c = &p->model->config;
    return (struct attention){.heads = c->vit_heads,
                              .kv_heads = c->vit_heads,
                              .width = c->vit_width / c->vit_heads,
                              .theta = 10000,
                              .positions = branch->coordinates,
                              .intervals = branch->intervals};
}

static struct tensor *vit(struct pass *p, const struct input_list *in)
{
    const struct model_config *c = &p->model->config;
    struct attention a = branch_attention(p, &staged(p)->cells);
    struct tensor *x = patches(p, in);
    for (i64 i = 0; i < c->vit_layers; i++)
        x = model_block(p, x, &p->model->vision_in.layer[i], &a);
    return op_rmsnorm(p->tape, x, &p->model->vision_in.norm->value, (float)c->norm_eps);
}

static struct tensor *side_by_side(struct pass *p, struct tensor *features, struct tensor *vision)
{
    i64 cells = features->rows;
    struct placement places[2] = {{features, staged(p)->side_by_side}, {vision, staged(p)->side_by_side + cells}};
    return op_place(p->tape, 2 * cells, features->columns, features->dtype, places, 2);
}

struct tensor *vision_in_forward(struct pass *p, const struct input_list *in)
{
    const struct vision_in_weights *v = &p->model->vision_in;
    const struct model_config *c = &p->model->config;
    struct attention a = branch_attention(p, &staged(p)->merger);
    float eps = (float)c->norm_eps;
    struct tensor *cells = model_floats(p, in->features, in->n * CELLS, c->cell_features);
    struct tensor *features = op_rmsnorm(p->tape, model_linear(p, cells, v->features), &v->features_norm->value, eps);
    struct tensor *merged = side_by_side(p, features, vit(p, in));
    struct tensor *n = op_rmsnorm(p->tape, merged, &v->merge_norm->value, eps);
    struct tensor *attended = op_attention(p->tape, model_linear(p, n, v->merge_qkv), &a);
    struct tensor *z = op_add_onto(p->tape, model_linear(p, attended, v->merge_out), merged);
    return model_linear(p, op_view(p->tape, z, 2 * CELLS * c->vit_width), v->project);
}
