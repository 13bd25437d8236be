/* What the networks of pictures have in common: rows of a table of weights, 3x3 convolutions, residual blocks. */
#include "tokenizers/vision/vision_blocks.h"

#include <stdio.h>

const float vision_norm_eps = 1e-6f;

struct weight *vision_add_matrix(struct weights *weights, const char *name, i64 rows, i64 columns,
                                 enum weight_init init)
{
    struct weight_spec spec = weight_matrix(name, rows, columns);
    spec.init = init;
    return weights_add(weights, &spec);
}

struct weight *vision_add_vector(struct weights *weights, const char *name, i64 columns, enum weight_init init)
{
    struct weight_spec row = {.name = name,
                              .matrices = 1,
                              .rows = 1,
                              .columns = columns,
                              .pieces = {{name, 1}},
                              .disk_rank = 1,
                              .trained = true,
                              .init = init,
                              .type = TYPE_F32};
    return weights_add(weights, &row);
}

void vision_add_blocks(struct weights *weights, struct vision_block *blocks, i64 count, const char *stem, i64 channels)
{
    char name[64];
    for (i64 i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s.%lld.norm.weight", stem, (long long)i);
        blocks[i].norm = vision_add_vector(weights, name, channels, INIT_ONES);
        snprintf(name, sizeof name, "%s.%lld.in.weight", stem, (long long)i);
        blocks[i].in = vision_add_matrix(weights, name, channels, 9 * channels, INIT_NORMAL);
        snprintf(name, sizeof name, "%s.%lld.out.weight", stem, (long long)i);
        blocks[i].out = vision_add_matrix(weights, name, channels, 9 * channels, INIT_ZEROS);
    }
}

struct conv vision_conv_of(const struct tensor *x, const struct weight *w, struct vision_grid g)
{
    return (struct conv){.batch = g.frames * g.n,
                         .in = x->columns,
                         .out = w->rows,
                         .size = {1, g.h, g.w},
                         .kernel = {1, 3, 3},
                         .stride = {1, 1, 1},
                         .dilation = {1, 1, 1},
                         .pad_front = {0, 1, 1},
                         .pad_back = {0, 1, 1}};
}

struct tensor *vision_conv3x3(struct tape *tape, struct tensor *x, struct weight *w, struct vision_grid g)
{
    struct conv conv = vision_conv_of(x, w, g);
    return op_conv(tape, x, &w->value, &conv);
}

struct tensor *vision_run_blocks(struct tape *tape, struct tensor *x, const struct vision_block *blocks, i64 count,
                                 struct vision_grid g)
{
    for (i64 i = 0; i < count; i++) {
        struct tensor *inside = op_rmsnorm(tape, x, &blocks[i].norm->value, vision_norm_eps);
        inside = op_activate(tape, vision_conv3x3(tape, inside, blocks[i].in, g), ACTIVATION_SILU);
        x = op_add_onto(tape, vision_conv3x3(tape, inside, blocks[i].out, g), x);
    }
    return x;
}
