/* im2col (Chellapilla et al. 2006): the taps of each position of a convolution's input, side by
 * side. */
#ifndef WEFT_CPU_PATCHES_H
#define WEFT_CPU_PATCHES_H
#include "kernels/cpu/cpu.h"

/* Sources of the taps of a patch. For each axis, source[position * kernel + tap] is the coordinate
 * read, or -1 for zero. run[...] is the number of taps of the last axis, from this one on, that are
 * all zero or adjacent in memory: one copy. A line of taps is one (kernel_t, kernel_h) with all
 * taps of the last axis. */
struct patches {
    struct matrix x;
    i64 from[3], to[3], kernel[3];
    const i32 *source[3], *run;
    bool identity; /* every patch is the row itself */
};

/* Opens the patches of x. backward: positions are those of the input, x holds gradients of the
 * output, and taps are counted from the end. The tables are in worker 0's slot PATCHES_SLOT until
 * the next call. */
enum { PATCHES_SLOT = 5, TURNED_SLOT = 6, PARTIAL_SLOT = 6 };
void CPU(patches_open)(struct patches *patches, struct matrix x, const struct conv *conv, bool backward);

/* Gathers lines [line, line + lines) of the patches of positions [first, first + count). Patches
 * are patch_bytes apart. */
void CPU(patches_gather)(char *out, i64 patch_bytes, const struct patches *patches, i64 first, i64 count, i64 line,
                         i64 lines);

/* A part of the weight gradient: dw [out, columns of its lines] (+)= dy^T patches over positions
 * [begin, end). */
struct patches_part {
    struct matrix dw;
    bool add;
    i64 begin, end, line, lines;
};
typedef void patches_sum(const struct patches_part *part, struct matrix dy, const struct patches *patches, int worker);
/* Computes the whole weight gradient. It is cut by shapes alone and parts are summed in order. Uses
 * worker 0's slot PARTIAL_SLOT. */
void CPU(patches_gradient)(struct matrix dw, struct matrix dy, const struct patches *patches, bool add,
                           patches_sum *sum);

static inline i64 patches_lines(const struct patches *patches)
{
    return patches->kernel[0] * patches->kernel[1];
}
static inline i64 patches_line_columns(const struct patches *patches)
{
    return patches->kernel[2] * patches->x.columns;
}

#endif
