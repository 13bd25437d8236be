/* Vision input [R 2.2.2]. A ViT reads the pixels of each cell of the vision encoder's grid. Its
 * output and the encoder's features (before quantisation) are merged for 4 neighbouring cells at a
 * time: the 8 tokens run through self-attention and are concatenated before the projection to the
 * backbone. The report takes their mean instead, which is the special case of equal columns. The
 * mean loses which of the 4 cells a token belongs to, and with an encoder this small captions were
 * learned several times more slowly (bench/archive/LOG.md). Both kinds of token enter with an RMS
 * of 1, also the encoder's features, whose scale depends on the tokenizer. A cell of a clip's
 * latent frame carries the pixels of all frames that the latent frame spans. */
#include "model/inside.h"

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
    struct attention a = branch_attention(p, &p->cells);
    struct tensor *x = patches(p, in);
    for (i64 i = 0; i < c->vit_layers; i++)
        x = model_block(p, x, &p->model->vision_in.layer[i], &a);
    return op_rmsnorm(p->tape, x, &p->model->vision_in.norm->value, (float)c->norm_eps);
}

static struct tensor *side_by_side(struct pass *p, struct tensor *features, struct tensor *vision)
{
    i64 cells = features->rows;
    struct place places[2] = {{features, p->side_by_side}, {vision, p->side_by_side + cells}};
    return op_place(p->tape, 2 * cells, features->columns, features->dtype, places, 2);
}

struct tensor *vision_in_forward(struct pass *p, const struct input_list *in)
{
    const struct vision_in_weights *v = &p->model->vision_in;
    const struct model_config *c = &p->model->config;
    struct attention a = branch_attention(p, &p->merger);
    float eps = (float)c->norm_eps;
    struct tensor *cells = model_floats(p, in->features, in->n * CELLS, c->cell_features);
    struct tensor *features = op_rmsnorm(p->tape, model_linear(p, cells, v->features), &v->features_norm->value, eps);
    struct tensor *merged = side_by_side(p, features, vit(p, in));
    struct tensor *n = op_rmsnorm(p->tape, merged, &v->merge_norm->value, eps);
    struct tensor *attended = op_attention(p->tape, model_linear(p, n, v->merge_qkv), &a);
    struct tensor *z = op_add_onto(p->tape, model_linear(p, attended, v->merge_out), merged);
    return model_linear(p, op_view(p->tape, z, 2 * CELLS * c->vit_width), v->project);
}
