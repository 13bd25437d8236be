/* Convolutions over time, height and width. */
#include "op_cases/op_cases.h"

/* Convolutions to check. With rows > 0, for timing: 3x3 over that many positions of 16x16 pictures
 * with `columns` channels. */
static const struct conv convs[] = {
    {2, 3, 5, {1, 7, 9}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {1, 4, 3, {5, 6, 7}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}},
    {3, 6, 2, {6, 1, 1}, {3, 1, 1}, {1, 1, 1}, {2, 1, 1}, {4, 0, 0}, {0, 0, 0}},
    {2, 5, 7, {1, 8, 11}, {1, 4, 2}, {1, 3, 2}, {1, 2, 3}, {0, 5, 2}, {0, 1, 4}},
    {2, 8, 9, {2, 5, 5}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {2, 8, 9, {3, 5, 5}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {2, 2, 3, {4, 4, 4}, {2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {3, 32, 40, {1, 16, 16}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {4, 24, 24, {5, 8, 8}, {3, 1, 1}, {1, 1, 1}, {1, 1, 1}, {2, 0, 0}, {0, 0, 0}},
    {1, 1, 1, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {1, 80, 72, {1, 3, 7}, {1, 3, 3}, {1, 1, 2}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {1, 4, 3, {1, 48, 48}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {1, 72, 80, {1, 12, 13}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {2, 80, 96, {5, 9, 9}, {3, 2, 2}, {2, 2, 1}, {1, 2, 3}, {2, 1, 1}, {0, 1, 2}},
    {2, 8, 12, {5, 3, 4}, {4, 1, 1}, {4, 1, 1}, {1, 1, 1}, {3, 0, 0}, {0, 0, 0}},
    {2, 16, 8, {3, 5, 6}, {1, 3, 3}, {1, 2, 1}, {1, 1, 1}, {0, 1, 1}, {0, 0, 1}},
    {1, 72, 2, {1, 3, 400}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
};
static const struct op_shape conv_shapes[] = {{0}, {-1}};
enum { CONV_X, CONV_W, CONV_Y };
enum { SIDE = 16 };

/* The convolution of a variant. In the backward cases bit 0 of the variant is `add`, and the rest
 * selects the convolution. */
static struct conv conv_of(const struct op_run *run, int variant)
{
    if (run->rows == 0)
        return convs[variant];
    return (struct conv){max_i64(run->rows / (SIDE * SIDE), 1),
                         run->columns,
                         run->columns,
                         {1, SIDE, SIDE},
                         {1, 3, 3},
                         {1, 1, 1},
                         {1, 1, 1},
                         {0, 1, 1},
                         {0, 1, 1}};
}

static i64 taps_of(const struct conv *c)
{
    return c->kernel[0] * c->kernel[1] * c->kernel[2];
}

static i64 positions_in(const struct conv *c)
{
    return c->batch * c->size[0] * c->size[1] * c->size[2];
}

static i64 positions_out(const struct conv *c)
{
    return c->batch * conv_out_size(c, 0) * conv_out_size(c, 1) * conv_out_size(c, 2);
}

/* Input position that tap `tap` of output position `row` reads; -1 outside. */
static i64 source_of(const struct conv *c, i64 row, i64 tap)
{
    const i64 *k = c->kernel;
    i64 size[3] = {conv_out_size(c, 0), conv_out_size(c, 1), conv_out_size(c, 2)};
    i64 at[3] = {row / (size[1] * size[2]) % size[0], row / size[2] % size[1], row % size[2]};
    i64 part[3] = {tap / (k[1] * k[2]), tap / k[2] % k[1], tap % k[2]};
    i64 source = row / (size[0] * size[1] * size[2]);
    for (int a = 0; a < 3; a++) {
        i64 from = at[a] * c->stride[a] - c->pad_front[a] + part[a] * c->dilation[a];
        if (from < 0 || from >= c->size[a])
            return -1;
        source = source * c->size[a] + from;
    }
    return source;
}

static void setup_operands(struct op_run *run, const struct conv *c, enum role x, enum role w, enum role y)
{
    op_matrix(run, x == INPUT ? "x" : "dx", x, positions_in(c), c->in);
    op_operand(run, w == INPUT ? "w" : "dw", w, w == INPUT ? run->dtype : DTYPE_F32, c->out, taps_of(c) * c->in,
               run->gap);
    op_matrix(run, y == INPUT ? "dy" : "y", y, positions_out(c), c->out);
}

/* Calls `take` for the products x[source, i] w[o, tap, i] y[row, o] of the convolution, for all i
 * at once. */
static void each_product(struct op_run *run, const struct conv *c,
                         void (*take)(double *restrict x, double *restrict w, double *restrict y, i64 in))
{
    for (i64 row = 0; row < positions_out(c); row++)
        for (i64 tap = 0; tap < taps_of(c); tap++) {
            i64 source = source_of(c, row, tap);
            for (i64 o = 0; source >= 0 && o < c->out; o++)
                take(op_values(run, CONV_X) + source * c->in, op_values(run, CONV_W) + (o * taps_of(c) + tap) * c->in,
                     op_values(run, CONV_Y) + row * c->out + o, c->in);
        }
}

static void setup_conv(struct op_run *run)
{
    struct conv c = conv_of(run, run->variant);
    setup_operands(run, &c, INPUT, INPUT, OUTPUT);
}

static void call_conv(struct device *device, struct op_run *run)
{
    struct conv c = conv_of(run, run->variant);
    device->ops->conv(device, op_as_matrix(run, CONV_Y), op_as_matrix(run, CONV_X), op_as_matrix(run, CONV_W), &c);
}

static void take_y(double *restrict x, double *restrict w, double *restrict y, i64 in)
{
    double sum = 0;
    for (i64 i = 0; i < in; i++)
        sum += x[i] * w[i];
    *y += sum;
}

static void reference_conv(struct op_run *run)
{
    struct conv c = conv_of(run, run->variant);
    each_product(run, &c, take_y);
}

static void setup_conv_backward_data(struct op_run *run)
{
    struct conv c = conv_of(run, run->variant / 2);
    setup_operands(run, &c, run->variant & 1 ? UPDATED : OUTPUT, INPUT, INPUT);
}

static void call_conv_backward_data(struct device *device, struct op_run *run)
{
    struct conv c = conv_of(run, run->variant / 2);
    device->ops->conv_backward_data(device, op_as_matrix(run, CONV_X), op_as_matrix(run, CONV_Y),
                                    op_as_matrix(run, CONV_W), &c, run->variant & 1);
}

static void take_dx(double *restrict dx, double *restrict w, double *restrict dy, i64 in)
{
    for (i64 i = 0; i < in; i++)
        dx[i] += w[i] * *dy;
}

static void reference_conv_backward_data(struct op_run *run)
{
    struct conv c = conv_of(run, run->variant / 2);
    each_product(run, &c, take_dx);
}

static void setup_conv_backward_weights(struct op_run *run)
{
    struct conv c = conv_of(run, run->variant / 2);
    setup_operands(run, &c, INPUT, run->variant & 1 ? UPDATED : OUTPUT, INPUT);
}

static void call_conv_backward_weights(struct device *device, struct op_run *run)
{
    struct conv c = conv_of(run, run->variant / 2);
    device->ops->conv_backward_weights(device, op_as_matrix(run, CONV_W), op_as_matrix(run, CONV_Y),
                                       op_as_matrix(run, CONV_X), &c, run->variant & 1);
}

static void take_dw(double *restrict x, double *restrict dw, double *restrict dy, i64 in)
{
    for (i64 i = 0; i < in; i++)
        dw[i] += x[i] * *dy;
}

static void reference_conv_backward_weights(struct op_run *run)
{
    struct conv c = conv_of(run, run->variant / 2);
    each_product(run, &c, take_dw);
}

const struct op_case conv_cases[] = {
    {"conv", COUNT_OF(convs), setup_conv, call_conv, reference_conv, .usual = {4096, 64}, .shapes = conv_shapes,
     .multiplies = true},
    {"conv_backward_data", 2 * COUNT_OF(convs), setup_conv_backward_data, call_conv_backward_data,
     reference_conv_backward_data, .usual = {4096, 64}, .shapes = conv_shapes, .multiplies = true},
    {"conv_backward_weights", 2 * COUNT_OF(convs), setup_conv_backward_weights, call_conv_backward_weights,
     reference_conv_backward_weights, .usual = {4096, 64}, .shapes = conv_shapes, .multiplies = true},
    {0},
};
