/* Loop plan of the op `permute`: axes of length 1 are dropped, and axes that stay neighbours are
 * merged. */
#ifndef WEFT_PERMUTE_H
#define WEFT_PERMUTE_H
#include "kernels/kernels.h"

enum { PERMUTE_RANK_MOST = 8 };
/* Axes of out, outermost first: lengths, and strides in x and out, in elements. */
struct permute_axes {
    int rank;
    i64 size[PERMUTE_RANK_MOST], from[PERMUTE_RANK_MOST], to[PERMUTE_RANK_MOST];
};

static inline void permute_append_axis(struct permute_axes *axes, i64 size, i64 from)
{
    int last = axes->rank - 1;
    if (size == 1)
        return;
    if (last >= 0 && axes->from[last] == from * size) {
        axes->size[last] *= size;
        axes->from[last] = from;
        return;
    }
    axes->size[axes->rank] = size;
    axes->from[axes->rank++] = from;
}

/* Fills the plan. Returns false if there is nothing to move. */
static inline bool permute_axes_of(struct permute_axes *axes, int rank, const i64 *shape, const i64 *order)
{
    i64 stride[PERMUTE_RANK_MOST], elements = 1, to = 1;
    require(rank >= 1 && rank <= PERMUTE_RANK_MOST, "permute: rank %d", rank);
    for (int a = rank - 1; a >= 0; a--) {
        stride[a] = elements;
        elements *= shape[a];
    }
    axes->rank = 0;
    for (int a = 0; a < rank; a++)
        permute_append_axis(axes, shape[order[a]], stride[order[a]]);
    if (axes->rank == 0) {
        axes->size[0] = axes->from[0] = 1;
        axes->rank = 1;
    }
    for (int a = axes->rank - 1; a >= 0; a--) {
        axes->to[a] = to;
        to *= axes->size[a];
    }
    return elements > 0;
}

/* Product of the lengths of all axes except the last and `skip`. */
static inline i64 permute_places(const struct permute_axes *axes, int skip)
{
    i64 count = 1;
    for (int a = 0; a < axes->rank - 1; a++)
        count *= a == skip ? 1 : axes->size[a];
    return count;
}

/* The axis that has stride 1 in x. */
static inline int permute_unit_axis(const struct permute_axes *axes)
{
    int axis = 0;
    while (axes->from[axis] != 1)
        axis++;
    return axis;
}

#endif
