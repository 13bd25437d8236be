/* Vision input [R 2.2.2]: a ViT reads the pixels of each cell of the vision encoder's grid; its output and the
 * encoder's own features (before quantisation) are merged, four neighbouring cells at a time, by self-attention among
 * the eight tokens, which then stand side by side before the projection to the backbone. Their mean, which the report
 * takes, is the special case of equal columns: it forgets which cell of the four a token is, and behind an encoder this
 * small captions were learned several times more slowly (bench/LOG.md). Both kinds of token enter at an RMS of 1: so do
 * the encoder's features, whose scale is the tokenizer's affair. A cell of a clip's latent frame carries the pixels of
 * all frames the latent frame spans. */
#include "model/inside.h"

/* Cells of one image or latent frame attend to each other: positions of one bidirectional block share `begin`. */
static struct intervals cell_intervals(struct pass *p, const struct input_list *in)
{
    i64 n = in->n * CELLS;
    i32 *columns = arena_alloc(&p->tape->host, n * 5 * 4);
    for (i64 first = 0, next; first < in->n; first = next) {
        next = first + 1;
        while (next < in->n && p->batch->begin[in->position[next]] == p->batch->begin[in->position[first]])
            next++;
        for (i64 i = first * CELLS; i < next * CELLS; i++) {
            columns[i] = (i32)i;
            columns[n + i] = (i32)(first * CELLS);
            columns[2 * n + i] = (i32)(next * CELLS);
            columns[3 * n + i] = columns[4 * n + i] = 0;
        }
    }
    const i32 *c = upload(p, columns, n * 5 * 4);
    return (struct intervals){n, n, c, c + n, c + 2 * n, c + 3 * n, c + 4 * n};
}

/* The position's coordinates, a cell's own in height and width: cell 2r + c stands half a step from the centre. */
static float *cell_coordinates(struct pass *p, const struct input_list *in)
{
    float *out = arena_alloc(&p->tape->host, in->n * CELLS * 12);
    for (i64 i = 0; i < in->n * CELLS; i++) {
        const float *at = p->batch->coordinates + 3 * in->position[i / CELLS];
        out[3 * i] = at[0];
        out[3 * i + 1] = 2 * at[1] + (float)(i % CELLS / 2) - 0.5f;
        out[3 * i + 2] = 2 * at[2] + (float)(i % CELLS % 2) - 0.5f;
    }
    return upload(p, out, in->n * CELLS * 12);
}

static struct tensor *patches(struct pass *p, const struct input_list *in)
{
    i64 columns = p->model->config.patch_values, count = in->n * CELLS * columns;
    float *values = arena_alloc(&p->tape->host, count * 4);
    for (i64 i = 0; i < count; i++)
        values[i] = (float)in->pixels[i] * (2 / 255.0f) - 1;
    struct tensor *pixels = model_floats(p, values, in->n * CELLS, columns);
    return model_linear(p, pixels, p->model->vision_in.patch);
}

static struct tensor *vit(struct pass *p, const struct input_list *in)
{
    const struct model_config *c = &p->model->config;
    struct attention a = {.heads = c->vit_heads,
                          .kv_heads = c->vit_heads,
                          .width = c->vit_width / c->vit_heads,
                          .theta = 10000,
                          .t_pairs = 0,
                          .positions = cell_coordinates(p, in),
                          .intervals = cell_intervals(p, in)};
    struct tensor *x = patches(p, in);
    for (i64 i = 0; i < c->vit_layers; i++)
        x = model_block(p, x, &p->model->vision_in.layer[i], &a);
    return op_rmsnorm(p->tape, x, &p->model->vision_in.norm->value, (float)c->norm_eps);
}

/* Rows 2K i + k hold the encoder's features, 2K i + K + k the ViT's. */
static struct tensor *side_by_side(struct pass *p, struct tensor *features, struct tensor *vision)
{
    i64 cells = features->rows;
    i32 *index = arena_alloc(&p->tape->host, 2 * cells * 4);
    for (i64 i = 0; i < cells; i++) {
        index[i] = (i32)(i / CELLS * 2 * CELLS + i % CELLS);
        index[cells + i] = index[i] + CELLS;
    }
    const i32 *at = upload(p, index, 2 * cells * 4);
    struct place places[2] = {{features, at}, {vision, at + cells}};
    return op_place(p->tape, 2 * cells, features->columns, features->dtype, places, 2);
}

static struct attention merger_attention(struct pass *p, i64 n)
{
    const struct model_config *c = &p->model->config;
    i64 rows = n * 2 * CELLS;
    i32 *columns = arena_alloc(&p->tape->host, rows * 5 * 4);
    float *zeros = arena_alloc(&p->tape->host, rows * 12);
    for (i64 i = 0; i < rows; i++) {
        columns[i] = (i32)i;
        columns[rows + i] = (i32)(i / (2 * CELLS) * 2 * CELLS);
        columns[2 * rows + i] = columns[rows + i] + 2 * CELLS;
        columns[3 * rows + i] = columns[4 * rows + i] = 0;
        zeros[3 * i] = zeros[3 * i + 1] = zeros[3 * i + 2] = 0;
    }
    const i32 *u = upload(p, columns, rows * 5 * 4);
    return (struct attention){.heads = c->vit_heads,
                              .kv_heads = c->vit_heads,
                              .width = c->vit_width / c->vit_heads,
                              .theta = 10000,
                              .positions = upload(p, zeros, rows * 12),
                              .intervals = {rows, rows, u, u + rows, u + 2 * rows, u + 3 * rows, u + 4 * rows}};
}

struct tensor *vision_in_forward(struct pass *p, const struct input_list *in)
{
    const struct vision_in_weights *v = &p->model->vision_in;
    const struct model_config *c = &p->model->config;
    struct attention a = merger_attention(p, in->n);
    float eps = (float)c->norm_eps;
    struct tensor *cells = model_floats(p, in->features, in->n * CELLS, c->cell_features);
    struct tensor *features = op_rmsnorm(p->tape, model_linear(p, cells, v->features), &v->features_norm->value, eps);
    struct tensor *merged = side_by_side(p, features, vit(p, in));
    struct tensor *n = op_rmsnorm(p->tape, merged, &v->merge_norm->value, eps);
    struct tensor *attended = op_attention(p->tape, model_linear(p, n, v->merge_qkv), &a);
    struct tensor *z = op_add(p->tape, merged, model_linear(p, attended, v->merge_out));
    return model_linear(p, op_view(p->tape, z, 2 * CELLS * c->vit_width), v->project);
}
