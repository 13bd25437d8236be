#include "kernels/cpu/bytes.h"
#include "kernels/cpu/cpu.h"
#include "kernels/permute.h"

/* Two cases. If the innermost axis stays innermost, runs of it are copied. Otherwise the innermost
 * axes of x and of out span a plane, which is transposed in blocks. */
enum { BLOCK = 32, TILE_BYTES = 64 << 10 };

struct permute_plan {
    char *out;
    const char *x;
    struct permute_axes axes;
    i64 element, tile; /* bytes per element; runs or strips per tile */
};

/* Offsets in x and out of position `index` over all axes but the last and `skip`. */
static void place(const struct permute_axes *axes, i64 index, int skip, i64 *from, i64 *to)
{
    *from = *to = 0;
    for (int a = axes->rank - 2; a >= 0; a--) {
        if (a == skip)
            continue;
        *from += index % axes->size[a] * axes->from[a];
        *to += index % axes->size[a] * axes->to[a];
        index /= axes->size[a];
    }
}

static void run_copies(void *context, i64 tile, int worker)
{
    const struct permute_plan *plan = context;
    i64 length = plan->axes.size[plan->axes.rank - 1] * plan->element, count = permute_places(&plan->axes, -1);
    i64 inner = plan->axes.size[plan->axes.rank - 2], step = plan->axes.from[plan->axes.rank - 2], from = 0, to;
    (void)worker;
    for (i64 i = tile * plan->tile; i < min_i64((tile + 1) * plan->tile, count); i++) {
        if (i % inner == 0 || i == tile * plan->tile)
            place(&plan->axes, i, -1, &from, &to);
        if (length <= 512 && length % 2 == 0)
            copy_short(plan->out + i * length, plan->x + from * plan->element, length);
        else
            memcpy(plan->out + i * length, plan->x + from * plan->element, (size_t)length);
        from += step;
    }
}

/* Copies one piece of an array whose order does not change. */
static void run_piece(void *context, i64 tile, int worker)
{
    const struct permute_plan *plan = context;
    i64 first = tile * TILE_BYTES, bytes = min_i64(TILE_BYTES, plan->axes.size[0] * plan->element - first);
    (void)worker;
    memcpy(plan->out + first, plan->x + first, (size_t)bytes);
}

#define TRANSPOSE(type)                                                                                                \
    static void transpose_##type(void *out, i64 out_stride, const void *in, i64 in_stride, i64 rows, i64 columns)      \
    {                                                                                                                  \
        for (i64 r = 0; r < rows; r++)                                                                                 \
            for (i64 c = 0; c < columns; c++)                                                                          \
                ((type *)out)[r * out_stride + c] = ((const type *)in)[c * in_stride + r];                             \
    }
TRANSPOSE(u8)
TRANSPOSE(u16)
TRANSPOSE(u32)
TRANSPOSE(u64)

static void transpose_block(char *out, i64 out_stride, const char *in, i64 in_stride, i64 rows, i64 columns,
                            i64 element)
{
    if (element == 4)
        transpose_u32(out, out_stride, in, in_stride, rows, columns);
    else if (element == 2)
        transpose_u16(out, out_stride, in, in_stride, rows, columns);
    else if (element == 1)
        transpose_u8(out, out_stride, in, in_stride, rows, columns);
    else
        transpose_u64(out, out_stride, in, in_stride, rows, columns);
}

/* Transposes one strip: BLOCK entries of x's innermost axis (rows of the plane) by all of out's
 * (columns). */
static void transpose_strip(const struct permute_plan *plan, int rows_axis, i64 strip)
{
    int last = plan->axes.rank - 1;
    i64 strips = ceil_div(plan->axes.size[rows_axis], BLOCK), row = strip % strips * BLOCK, from, to;
    i64 rows = min_i64(BLOCK, plan->axes.size[rows_axis] - row), columns = plan->axes.size[last];
    place(&plan->axes, strip / strips, rows_axis, &from, &to);
    from += row;
    to += row * plan->axes.to[rows_axis];
    for (i64 column = 0; column < columns; column += BLOCK)
        transpose_block(plan->out + (to + column) * plan->element, plan->axes.to[rows_axis],
                        plan->x + (from + column * plan->axes.from[last]) * plan->element, plan->axes.from[last], rows,
                        min_i64(BLOCK, columns - column), plan->element);
}

static i64 strips_of(const struct permute_plan *plan, int rows_axis)
{
    return permute_places(&plan->axes, rows_axis) * ceil_div(plan->axes.size[rows_axis], BLOCK);
}

static void run_strips(void *context, i64 tile, int worker)
{
    const struct permute_plan *plan = context;
    int axis = permute_unit_axis(&plan->axes);
    (void)worker;
    for (i64 strip = tile * plan->tile; strip < min_i64((tile + 1) * plan->tile, strips_of(plan, axis)); strip++)
        transpose_strip(plan, axis, strip);
}

void CPU(permute)(struct device *device, void *out, const void *x, enum dtype dtype, int rank, const i64 *shape,
                  const i64 *order)
{
    struct permute_plan plan = {.out = out, .x = x, .element = dtype_bytes(dtype)};
    (void)device;
    if (!permute_axes_of(&plan.axes, rank, shape, order))
        return;
    i64 line = plan.axes.size[plan.axes.rank - 1] * plan.element;
    if (plan.axes.rank == 1) {
        workers_run(ceil_div(line, TILE_BYTES), run_piece, &plan);
    } else if (plan.axes.from[plan.axes.rank - 1] == 1) {
        plan.tile = max_i64(1, TILE_BYTES / line);
        workers_run(ceil_div(permute_places(&plan.axes, -1), plan.tile), run_copies, &plan);
    } else {
        plan.tile = max_i64(1, TILE_BYTES / (line * BLOCK));
        workers_run(ceil_div(strips_of(&plan, permute_unit_axis(&plan.axes)), plan.tile), run_strips, &plan);
    }
}
