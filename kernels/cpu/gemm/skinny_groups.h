/* Grouped gemm in decoding: pieces of groups that have few rows each. The padding rows of a group
 * are zeros at its end. */
#ifndef WEFT_KERNELS_CPU_GEMM_SKINNY_GROUPS_H
#define WEFT_KERNELS_CPU_GEMM_SKINNY_GROUPS_H
#include "kernels/cpu/cpu.h"

static inline void check_end(const struct groups *groups, i64 rows, const char *op)
{
    i32 end = groups->offsets[groups->count];
    require(end <= rows, "%s: groups of %d rows in %lld", op, end, (long long)rows);
}

/* Rows begin .. begin + rows - 1 of a group, multiplied by slice `member` of the stacked
 * weights. */
struct row_piece {
    i64 member, begin, rows;
};

static inline i64 member_of(const struct groups *groups, i64 group)
{
    return groups->member ? groups->member[group] : group;
}

/* Upper bound of the number of pieces of at most `most` rows. */
static inline i64 pieces_bound(const struct groups *groups, i64 most)
{
    return groups->offsets[groups->count] / most + groups->count;
}

/* Cuts all groups into pieces of at most `most` rows. Returns their number. */
static inline i64 cut_groups(struct row_piece *pieces, const struct groups *groups, i64 most)
{
    i64 count = 0;
    for (i64 i = 0; i < groups->count; i++)
        for (i64 at = groups->offsets[i], end = groups->offsets[i + 1]; at < end; at += most)
            pieces[count++] = (struct row_piece){member_of(groups, i), at, min_i64(most, end - at)};
    return count;
}

static inline bool row_is_zero(struct matrix m, const i32 *rows, i64 row)
{
    row = rows ? rows[row] : row;
    if (row < 0)
        return true;
    const u8 *bytes = matrix_at(m, row, 0);
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)(m.columns * element_bytes(m.dtype)) - 1) == 0;
}

/* The number of rows of a piece without its trailing rows of zeros. `from` gathers rows of a; NULL:
 * rows in place. */
static inline i64 rows_there(struct matrix a, const i32 *from, const struct row_piece *piece)
{
    i64 rows = piece->rows;
    while (rows > 0 && row_is_zero(a, from, piece->begin + rows - 1))
        rows--;
    return rows;
}

/* Sets the rows of a piece from `rows` on to zero. */
static inline void clear_behind(struct matrix out, const struct row_piece *piece, i64 rows)
{
    for (; rows < piece->rows; rows++)
        memset(matrix_at(out, piece->begin + rows, 0), 0, (size_t)(out.columns * element_bytes(out.dtype)));
}

/* The number of rows of a in a piece. If `clears`, the output rows of its padding are set to
 * zero. */
static inline i64 rows_of_piece(struct matrix out, struct matrix a, const struct row_piece *piece, bool clears)
{
    i64 rows = rows_there(a, NULL, piece);
    if (clears)
        clear_behind(out, piece, rows);
    return rows;
}

#endif
