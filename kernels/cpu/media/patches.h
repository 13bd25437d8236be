/* Patches of a convolution's input: the taps of each position side by side (im2col; Chellapilla et al. 2006). */
#ifndef WEFT_CPU_PATCHES_H
#define WEFT_CPU_PATCHES_H
#include "kernels/cpu/cpu.h"

/* Where the taps of a patch come from. Per axis source[position * kernel + tap] is the coordinate read, or -1 for
 * zero; run[...] is how many taps of the last axis, from this one on, are zero or neighbours in memory: one copy.
 * A line of taps is one of (kernel_t, kernel_h), and all of the last axis. */
struct patches {
    struct matrix x;
    i64 from[3], to[3], kernel[3];
    const i32 *source[3], *run;
    bool identity; /* every patch is the row itself */
};

/* backward: positions are those of the input, x holds gradients of the output, and taps are counted from the end.
 * Tables lie in worker 0's slot PATCHES_SLOT until the next call. */
enum { PATCHES_SLOT = 5, TURNED_SLOT = 6, PARTIAL_SLOT = 6 };
void CPU(patches_open)(struct patches *patches, struct matrix x, const struct conv *conv, bool backward);

/* Patches of positions [first, first + count), of each the lines [line, line + lines); patch_bytes apart. */
void CPU(patches_gather)(char *out, i64 patch_bytes, const struct patches *patches, i64 first, i64 count, i64 line,
                         i64 lines);

/* Of the gradient of the weights: dw [out, its lines' columns] (+)= dy^T patches over positions [begin, end). */
struct patches_part {
    struct matrix dw;
    bool add;
    i64 begin, end, line, lines;
};
typedef void patches_sum(const struct patches_part *part, struct matrix dy, const struct patches *patches, int worker);
/* All of it, cut by shapes alone, parts summed in order; slot PARTIAL_SLOT of worker 0 is in use. */
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
