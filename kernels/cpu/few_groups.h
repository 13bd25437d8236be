/* Pieces of groups that decoding leaves with few rows each: what a group was rounded up by are zeros behind them. */
#ifndef WEFT_CPU_FEW_GROUPS_H
#define WEFT_CPU_FEW_GROUPS_H
#include "kernels/cpu/cpu.h"

struct piece {
    i64 member, begin, rows;
};

static inline i64 member_of(const struct groups *groups, i64 group)
{
    return groups->member ? groups->member[group] : group;
}

static inline i64 pieces_bound(const struct groups *groups, i64 most)
{
    return groups->offsets[groups->count] / most + groups->count;
}

static inline i64 cut_few_rows(struct piece *pieces, const struct groups *groups, i64 most)
{
    i64 count = 0;
    for (i64 i = 0; i < groups->count; i++)
        for (i64 at = groups->offsets[i], end = groups->offsets[i + 1]; at < end; at += most)
            pieces[count++] = (struct piece){member_of(groups, i), at, min_i64(most, end - at)};
    return count;
}

static inline bool row_is_zero(struct matrix m, i64 row)
{
    const u8 *bytes = matrix_at(m, row, 0);
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)(m.columns * element_bytes(m.dtype)) - 1) == 0;
}

/* How many rows of the piece there are; those behind them become zeros of `out` at the hands of who clears. */
static inline i64 rows_of_piece(struct matrix out, struct matrix a, const struct piece *piece, bool clears)
{
    i64 rows = piece->rows;
    while (rows > 0 && row_is_zero(a, piece->begin + rows - 1)) {
        rows--;
        if (clears)
            memset(matrix_at(out, piece->begin + rows, 0), 0, (size_t)(out.columns * element_bytes(out.dtype)));
    }
    return rows;
}

#endif
