#include "tensor/weights.h"

#include <stdio.h>
#include <string.h>

/* "a.{e}.b" -> "a.7.b" */
static void part_name(char *out, size_t size, const char *pattern, i64 part)
{
    const char *mark = strstr(pattern, "{e}");
    if (mark)
        snprintf(out, size, "%.*s%lld%s", (int)(mark - pattern), pattern, (long long)part, mark + 3);
    else
        snprintf(out, size, "%s", pattern);
}

static void shape_text(char *out, size_t size, int rank, const i64 *shape)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i ? "," : "", (long long)shape[i]);
    snprintf(out + used, size - used, "]");
}

static int wrong_shape(const char *origin, const struct tensor_view *view, int rank, const i64 *shape)
{
    char found[128], expected[128];
    shape_text(found, sizeof found, view->rank, view->shape);
    shape_text(expected, sizeof expected, rank, shape);
    return error_set("%s: tensor %s has shape %s, expected %s: the configuration does not describe these weights",
                     origin, view->name, found, expected);
}

static int check_shape(const char *origin, const struct tensor_view *view, int rank, const i64 *shape)
{
    i64 skip = 0; /* [1,E] may stand where [E] is meant, and the other way round */
    if (view->rank == rank + 1 && view->shape[0] == 1)
        skip = 1;
    if (view->rank != rank + skip || memcmp(view->shape + skip, shape, (size_t)rank * sizeof *shape) != 0)
        return wrong_shape(origin, view, rank, shape);
    return 0;
}

/* Rows from `row` on of this rank's slice are rows [first, +rows) and this rank's columns of a logical block of floats.
 */
static void put_block(struct weight *w, i64 row, const float *in, i64 first, i64 rows)
{
    for (i64 r = 0; r < rows; r++)
        weight_put(w, row + r, 0, in + (first + r) * w->spec.columns + w->first_column, w->columns);
}

static float *view_values(const struct tensor_view *view, const char *origin)
{
    float *values = memory_alloc(tensor_view_elements(view) * 4);
    if (tensor_view_to_f32(values, view) == 0)
        return values;
    memory_free(values);
    error_prefix("%s", origin);
    return NULL;
}

static int load_piece(struct weight *w, const struct safetensors *set, i64 part, int piece, i64 row, const char *origin)
{
    char name[512];
    i64 shape[2] = {w->spec.pieces[piece].rows, w->spec.columns};
    int rank = w->spec.disk_rank;
    part_name(name, sizeof name, w->spec.pieces[piece].name, w->first_part + part);
    const struct tensor_view *view = safetensors_find(set, name);
    if (!view)
        return error_set("%s: tensor %s is missing: is this the checkpoint its config.json describes?", origin, name);
    if (check_shape(origin, view, rank, rank == 2 ? shape : shape + 1))
        return -1;
    float *values = view_values(view, origin);
    if (!values)
        return -1;
    put_block(w, part * w->rows + row, values, w->piece_first[piece], w->piece_rows[piece]);
    memory_free(values);
    return 0;
}

static int load_fused(struct weight *w, const struct tensor_view *view, const char *origin)
{
    i64 shape[3] = {w->spec.parts, w->spec.rows, w->spec.columns};
    int skip = w->spec.parts == 1;
    if (check_shape(origin, view, 3 - skip, shape + skip))
        return -1;
    float *values = view_values(view, origin);
    if (!values)
        return -1;
    for (i64 part = 0, row = 0; part < w->parts; part++) {
        i64 base = (w->first_part + part) * w->spec.rows;
        for (int i = 0; i < 4 && w->spec.pieces[i].name; i++) {
            put_block(w, row, values, base + w->piece_first[i], w->piece_rows[i]);
            row += w->piece_rows[i];
            base += w->spec.pieces[i].rows;
        }
    }
    memory_free(values);
    return 0;
}

static int load_one(struct weight *w, const struct safetensors *set, const char *origin)
{
    const struct tensor_view *fused = w->spec.fused && w->parts ? safetensors_find(set, w->spec.fused) : NULL;
    if (fused)
        return load_fused(w, fused, origin);
    for (i64 part = 0; part < w->parts; part++) {
        i64 row = 0;
        for (int i = 0; i < 4 && w->spec.pieces[i].name; row += w->piece_rows[i++])
            if (load_piece(w, set, part, i, row, origin))
                return -1;
    }
    return 0;
}

int weights_load(struct weights *weights, const struct safetensors *set, enum weight_file file, const char *origin)
{
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        if (w->spec.file == file && load_one(w, set, origin))
            return -1;
        weight_clear_moments(w);
    }
    return 0;
}

static struct tensor_source *push(struct weight_list *list)
{
    if (list->count == list->capacity) {
        i64 next = max_i64(256, 2 * list->capacity), size = (i64)sizeof *list->tensors;
        list->tensors = memory_resize(list->tensors, list->capacity * size, next * size);
        list->capacity = next;
    }
    return &list->tensors[list->count++];
}

static const char *keep_name(struct weight_list *list, const char *name)
{
    i64 bytes = (i64)strlen(name) + 1;
    return memcpy(arena_alloc(&list->memory, bytes), name, (size_t)bytes);
}

static const void *as_dtype(struct weight_list *list, const struct weight *w, enum dtype dtype)
{
    i64 n = w->parts * w->rows * w->columns;
    if (dtype == DTYPE_F32)
        return w->master;
    if (w->value.dtype == dtype)
        return w->value.data;
    bf16 *out = arena_alloc(&list->memory, n * 2);
    for (i64 i = 0; i < n; i++)
        out[i] = bf16_from_f32(w->master[i]);
    return out;
}

static void list_one(struct weight_list *list, const struct weight *w, enum dtype dtype)
{
    const char *data = as_dtype(list, w, dtype);
    char name[512];
    for (i64 part = 0; part < w->parts; part++)
        for (int i = 0; i < 4 && w->spec.pieces[i].name; i++) {
            struct tensor_source *t = push(list);
            part_name(name, sizeof name, w->spec.pieces[i].name, part);
            *t = (struct tensor_source){.name = keep_name(list, name),
                                        .dtype = dtype,
                                        .rank = w->spec.disk_rank,
                                        .shape = {w->spec.pieces[i].rows, w->columns},
                                        .data = data};
            if (t->rank == 1)
                t->shape[0] = w->columns;
            data += w->spec.pieces[i].rows * w->columns * dtype_bytes(dtype);
        }
}

static void open_list(struct weight_list *list, const struct weights *weights)
{
    const struct weights_layout *l = &weights->layout;
    require(l->data_ranks * l->tensor_ranks * l->chunk_ranks == 1, "one rank must hold all that is listed");
    *list = (struct weight_list){0};
    arena_open(&list->memory, weights_bytes(weights) + weights->count * 4096 + (64 << 20), false);
}

void weights_list(struct weight_list *list, const struct weights *weights, enum weight_file file, enum dtype dtype)
{
    open_list(list, weights);
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        if (w->spec.file == file)
            list_one(list, w, w->spec.type == TYPE_F32 ? DTYPE_F32 : dtype);
    }
}

void weight_list_release(struct weight_list *list)
{
    memory_free(list->tensors);
    arena_close(&list->memory);
    *list = (struct weight_list){0};
}

static void list_state(struct weight_list *list, const struct weight *w, const char *kind, const float *data)
{
    char name[512];
    if (!data)
        return;
    snprintf(name, sizeof name, "%s.%s", kind, w->spec.name);
    *push(list) = (struct tensor_source){.name = keep_name(list, name),
                                         .dtype = DTYPE_F32,
                                         .rank = 2,
                                         .shape = {w->parts * w->rows, w->columns},
                                         .data = data};
}

void weights_list_optimizer(struct weight_list *list, const struct weights *weights)
{
    open_list(list, weights);
    for (i64 i = 0; i < weights->count; i++) {
        list_state(list, &weights->list[i], "master", weights->list[i].master);
        list_state(list, &weights->list[i], "m", weights->list[i].m);
        list_state(list, &weights->list[i], "v", weights->list[i].v);
    }
}

static bool is_whole(const struct weight *w)
{
    return w->share_rows == w->spec.parts * w->spec.rows && w->columns == w->spec.columns;
}

/* Copies of all rows of this rank's slice, also of those whose masters other ranks keep. */
static void put_slice(struct weight *w, const float *logical)
{
    struct weight all = *w;
    i64 n = w->parts * w->rows;
    float *slice = memory_alloc(n * w->columns * 4);
    all.share_first = 0;
    all.share_rows = n;
    weight_share_from_logical(slice, &all, logical);
    for (i64 row = 0; row < n; row++)
        weight_put(w, row, 0, slice + row * w->columns, w->columns);
    memory_free(slice);
}

static int load_cut(struct weight *w, const struct tensor_view *view, float *out, bool is_master, const char *origin)
{
    float *logical = view_values(view, origin);
    if (!logical)
        return -1;
    if (is_master)
        put_slice(w, logical);
    else
        weight_share_from_logical(out, w, logical);
    memory_free(logical);
    return 0;
}

static int load_state(struct weight *w, const struct safetensors *set, const char *kind, float *out, const char *origin)
{
    char name[512];
    i64 shape[2] = {w->spec.parts * w->spec.rows, w->spec.columns};
    if (!out || w->parts == 0)
        return 0;
    snprintf(name, sizeof name, "%s.%s", kind, w->spec.name);
    const struct tensor_view *view = safetensors_find(set, name);
    if (!view)
        return error_set("%s: tensor %s is missing", origin, name);
    if (check_shape(origin, view, 2, shape))
        return -1;
    return is_whole(w) ? tensor_view_to_f32(out, view) : load_cut(w, view, out, strcmp(kind, "master") == 0, origin);
}

int weights_load_optimizer(struct weights *weights, const struct safetensors *set, const char *origin)
{
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        if (load_state(w, set, "master", w->master, origin) || load_state(w, set, "m", w->m, origin) ||
            load_state(w, set, "v", w->v, origin))
            return -1;
    }
    weights_refresh(weights);
    return 0;
}
