/* Sharding of a weight: the matrices, rows and columns of the unsharded matrix that a rank holds,
 * and the rows that it updates. */
#include "tensor/weights.h"

#include <string.h>

static i64 chunk_of(const struct weights_layout *layout, i64 layer)
{
    i64 last = layout->chunks - 1;
    return layer < 0 ? 0 : layer >= layout->layers ? last : ((layer + 1) * layout->chunks - 1) / layout->layers;
}

static bool is_held(const struct weight_spec *spec, const struct weights_layout *layout)
{
    return spec->shared || chunk_of(layout, spec->layer) % layout->chunk_ranks == layout->chunk_rank;
}

static void place_parts(struct weight *w, const struct weights_layout *layout)
{
    i64 ranks = w->spec.expert_axis ? layout->expert_ranks : 1;
    require(w->spec.matrices % ranks == 0, "%s: %lld parts on %lld ranks", w->spec.name, (long long)w->spec.matrices,
            (long long)ranks);
    w->matrices = is_held(&w->spec, layout) ? w->spec.matrices / ranks : 0;
    w->first_matrix = w->spec.expert_axis ? layout->expert_rank * w->matrices : 0;
    w->part_numbers = w->spec.expert_axis && layout->placement
                          ? layout->placement + w->spec.layer * w->spec.matrices + w->first_matrix
                          : NULL;
}

static void place_rows(struct weight *w, const struct weights_layout *layout)
{
    i64 ranks = w->spec.tensor_axis == AXIS_ROWS ? layout->tensor_ranks : 1, first = 0;
    w->rows = 0;
    for (int i = 0; i < 4 && w->spec.pieces[i].name; i++) {
        i64 rows = w->spec.pieces[i].rows;
        require(rows % ranks == 0, "%s: %lld rows on %lld ranks", w->spec.name, (long long)rows, (long long)ranks);
        w->piece_rows[i] = rows / ranks;
        w->piece_first[i] = ranks > 1 ? layout->tensor_rank * w->piece_rows[i] : 0;
        w->rows += w->piece_rows[i];
        first += rows;
    }
    require(first == w->spec.rows, "%s: pieces of %lld rows, not %lld", w->spec.name, (long long)first,
            (long long)w->spec.rows);
}

static void place_columns(struct weight *w, const struct weights_layout *layout)
{
    i64 ranks = w->spec.tensor_axis == AXIS_COLUMNS ? layout->tensor_ranks : 1;
    require(w->spec.columns % ranks == 0, "%s: %lld columns on %lld ranks", w->spec.name, (long long)w->spec.columns,
            (long long)ranks);
    w->columns = w->spec.columns / ranks;
    w->first_column = ranks > 1 ? layout->tensor_rank * w->columns : 0;
}

i64 weight_sharers(const struct weight_spec *spec, const struct weights_layout *layout)
{
    return spec->expert_axis ? layout->data_ranks / layout->expert_ranks : layout->data_ranks;
}

i64 weight_sharer(const struct weight_spec *spec, const struct weights_layout *layout)
{
    return spec->expert_axis ? layout->data_rank / layout->expert_ranks : layout->data_rank;
}

static void place_share(struct weight *w, const struct weights_layout *layout, bool training)
{
    i64 all = w->matrices * w->rows, ranks = weight_sharers(&w->spec, layout), rank = weight_sharer(&w->spec, layout);
    bool cut = training && w->spec.trained;
    w->share_first = cut ? all * rank / ranks : 0;
    w->share_rows = cut ? all * (rank + 1) / ranks - w->share_first : all;
}

void weight_place(struct weight *w, const struct weights_layout *layout, bool training)
{
    place_parts(w, layout);
    place_rows(w, layout);
    place_columns(w, layout);
    place_share(w, layout, training);
}

i64 weight_part_number(const struct weight *w, i64 part)
{
    return w->part_numbers ? w->part_numbers[part] : w->first_matrix + part;
}

i64 weights_placement_count(const struct weights *weights)
{
    for (i64 i = 0; i < weights->count; i++)
        if (weights->list[i].spec.expert_axis)
            return weights->layout.layers * weights->list[i].spec.matrices;
    return 0;
}

void weights_place_experts(struct weights *weights, const i32 *placement)
{
    i64 bytes = weights_placement_count(weights) * (i64)sizeof *placement;
    i32 *copy = placement ? memory_alloc(max_i64(bytes, 1)) : NULL;
    if (copy)
        memcpy(copy, placement, (size_t)bytes);
    memory_free(weights->placement);
    weights->layout.placement = weights->placement = copy;
    for (i64 i = 0; i < weights->count; i++)
        weight_place(&weights->list[i], &weights->layout, weights->training);
}

/* Row of the unsharded matrix (within one part) that is row `row` of a part on this rank. */
static i64 logical_row(const struct weight *w, i64 row)
{
    i64 before = 0;
    for (int i = 0; i < 4; i++) {
        if (row < w->piece_rows[i])
            return before + w->piece_first[i] + row;
        row -= w->piece_rows[i];
        before += w->spec.pieces[i].rows;
    }
    panic("%s: row out of range", w->spec.name);
}

i64 weight_logical_at(const struct weight *w, i64 row)
{
    i64 part = weight_part_number(w, row / w->rows);
    return (part * w->spec.rows + logical_row(w, row % w->rows)) * w->spec.columns + w->first_column;
}
