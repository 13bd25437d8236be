#include "tensor/weights.h"

#include <math.h>
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
    i64 skip = 0; /* [1,E] and [E] are interchangeable */
    if (view->rank == rank + 1 && view->shape[0] == 1)
        skip = 1;
    if (view->rank != rank + skip || memcmp(view->shape + skip, shape, (size_t)rank * sizeof *shape) != 0)
        return wrong_shape(origin, view, rank, shape);
    return 0;
}

/* Puts whole rows, restricted to this rank's columns, to this rank's slice from row `row` on. */
static void put_block(struct weights *weights, struct weight *w, i64 row, const float *in, i64 rows)
{
    bool whole = w->columns == w->spec.columns;
    float *cut = whole ? NULL : memory_alloc(rows * w->columns * 4);
    for (i64 r = 0; r < rows && !whole; r++)
        memcpy(cut + r * w->columns, in + r * w->spec.columns + w->first_column, (size_t)w->columns * 4);
    weight_put(weights, w, row, rows, whole ? in : cut);
    memory_free(cut);
}

static void pass_values(const struct tensor_view *view, i64 first, i64 count)
{
    struct tensor_view part = tensor_view_part(view, first, count);
    file_pass(part.data, part.bytes);
}

/* Values [first, +count) of a tensor as f32. */
static int view_values(float *out, const struct tensor_view *view, i64 first, i64 count, const char *origin)
{
    struct tensor_view part = tensor_view_part(view, first, count);
    return tensor_view_to_f32(out, &part) ? error_prefix("%s", origin) : 0;
}

/* The same; a value that is not finite is an error. */
static int finite_values(float *out, const struct tensor_view *view, i64 first, i64 count, const char *origin)
{
    if (view_values(out, view, first, count, origin))
        return -1;
    for (i64 i = 0; i < count; i++)
        if (!isfinite(out[i]))
            return error_set("%s: %s contains non-finite numbers (element %lld is %g): its training diverged", origin,
                             view->name, (long long)(first + i), (double)out[i]);
    return 0;
}

/* Puts rows [first, +rows) of a tensor to this rank's slice from row `row` on, a block at a time. */
static int put_view(struct weights *weights, struct weight *w, i64 row, const struct tensor_view *view, i64 first,
                    i64 rows, const char *origin)
{
    enum { BLOCK_BYTES = 2 << 20, BLOCK_ROWS = 32 };
    i64 columns = w->spec.columns, most = max_i64(BLOCK_ROWS, BLOCK_BYTES / (4 * columns) / BLOCK_ROWS * BLOCK_ROWS);
    float *values = memory_alloc(min_i64(most, rows) * columns * 4);
    int status = 0;
    for (i64 at = 0; at < rows && status == 0; at += most) {
        i64 count = min_i64(most, rows - at);
        status = finite_values(values, view, (first + at) * columns, count * columns, origin);
        pass_values(view, (first + at) * columns, count * columns);
        if (status == 0)
            put_block(weights, w, row + at, values, count);
    }
    memory_free(values);
    return status;
}

/* Puts a whole matrix, of which a tensor is the first rows and columns; the rest is 0. */
static int put_grown(struct weights *weights, struct weight *w, const struct tensor_view *view, i64 rows, i64 columns,
                     const char *origin)
{
    const struct weight_spec *s = &w->spec;
    require(s->matrices == 1 && !s->pieces[1].name && w->rows == s->rows, "%s cannot grow", s->name);
    float *stored = memory_alloc(rows * columns * 4), *values = memory_alloc(s->rows * s->columns * 4);
    int status = finite_values(stored, view, 0, rows * columns, origin);
    for (i64 r = 0; r < rows; r++)
        memcpy(values + r * s->columns, stored + r * columns, (size_t)columns * 4);
    if (status == 0)
        put_block(weights, w, 0, values, s->rows);
    memory_free(stored);
    memory_free(values);
    return status;
}

static int load_piece(struct weights *weights, struct weight *w, const struct safetensors *set, i64 part, int piece,
                      i64 row, const char *origin)
{
    char name[512];
    bool grows = w->spec.stored_rows || w->spec.stored_columns;
    i64 shape[2] = {w->spec.stored_rows ? w->spec.stored_rows : w->spec.pieces[piece].rows,
                    w->spec.stored_columns ? w->spec.stored_columns : w->spec.columns};
    int rank = w->spec.disk_rank;
    part_name(name, sizeof name, w->spec.pieces[piece].name, weight_part_number(w, part));
    const struct tensor_view *view = safetensors_find(set, name);
    if (!view)
        return error_set("%s: tensor %s is missing: is this the checkpoint its config.json describes?", origin, name);
    if (check_shape(origin, view, rank, rank == 2 ? shape : shape + 1))
        return -1;
    if (grows)
        return put_grown(weights, w, view, shape[0], shape[1], origin);
    return put_view(weights, w, part * w->rows + row, view, w->piece_first[piece], w->piece_rows[piece], origin);
}

static int load_fused(struct weights *weights, struct weight *w, const struct tensor_view *view, const char *origin)
{
    i64 shape[3] = {w->spec.matrices, w->spec.rows, w->spec.columns};
    int skip = w->spec.matrices == 1;
    if (check_shape(origin, view, 3 - skip, shape + skip))
        return -1;
    for (i64 part = 0, row = 0; part < w->matrices; part++) {
        i64 base = weight_part_number(w, part) * w->spec.rows;
        for (int i = 0; i < 4 && w->spec.pieces[i].name; i++) {
            if (put_view(weights, w, row, view, base + w->piece_first[i], w->piece_rows[i], origin))
                return -1;
            row += w->piece_rows[i];
            base += w->spec.pieces[i].rows;
        }
    }
    return 0;
}

static int load_one(struct weights *weights, struct weight *w, const struct safetensors *set, const char *origin)
{
    const struct tensor_view *fused = w->spec.fused && w->matrices ? safetensors_find(set, w->spec.fused) : NULL;
    if (fused)
        return load_fused(weights, w, fused, origin);
    for (i64 part = 0; part < w->matrices; part++) {
        i64 row = 0;
        for (int i = 0; i < 4 && w->spec.pieces[i].name; row += w->piece_rows[i++])
            if (load_piece(weights, w, set, part, i, row, origin))
                return -1;
    }
    return 0;
}

/* ---- Tensors that no weight reads ---- */

enum name_use { NAME_UNKNOWN, NAME_READ, NAME_REPEATED };

static void mark_name(u8 *uses, const struct safetensors *set, const char *name, enum name_use use)
{
    const struct tensor_view *view = safetensors_find(set, name);
    if (view)
        uses[view - set->tensors] = (u8)use;
}

/* Beside the fused form of a weight its pieces are not read. */
static void mark_weight(u8 *uses, const struct safetensors *set, const struct weight_spec *s)
{
    bool fused = s->fused && safetensors_find(set, s->fused);
    char name[512];
    if (fused)
        mark_name(uses, set, s->fused, NAME_READ);
    for (i64 part = 0; part < s->matrices; part++)
        for (int i = 0; i < 4 && s->pieces[i].name; i++) {
            part_name(name, sizeof name, s->pieces[i].name, part);
            mark_name(uses, set, name, fused ? NAME_REPEATED : NAME_READ);
        }
}

static bool has_part(const char *name, const char *const *parts)
{
    while (*parts && (**parts == '=' ? strcmp(name, *parts + 1) != 0 : !strstr(name, *parts)))
        parts++;
    return *parts != NULL;
}

int weights_check_names(const struct weights *weights, const struct safetensors *set, enum weight_file file,
                        const char *const *harmless, const char *origin)
{
    u8 *uses = memory_alloc(max_i64(set->count, 1));
    int status = 0;
    for (i64 i = 0; i < weights->count; i++)
        if (weights->list[i].spec.file == file)
            mark_weight(uses, set, &weights->list[i].spec);
    for (i64 i = 0; i < set->count && status == 0; i++) {
        const char *name = set->tensors[i].name;
        if (uses[i] == NAME_REPEATED)
            status = error_set("%s: tensor %s stands beside another tensor of the same weights: remove one of both",
                               origin, name);
        else if (uses[i] == NAME_UNKNOWN && !has_part(name, harmless))
            status = error_set("%s: tensor %s has no place in the model that config.json describes (transformers would "
                               "warn and leave it out): correct config.json, or remove the tensor",
                               origin, name);
    }
    memory_free(uses);
    return status;
}

int weights_load(struct weights *weights, const struct safetensors *set, enum weight_file file, const char *origin)
{
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        bool is_read = w->spec.file == file && weights->device->backend != BACKEND_META;
        if (is_read && load_one(weights, w, set, origin))
            return -1;
        weight_clear_moments(weights, w);
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

static void read_device(const struct tensor_source *source, void *out, i64 at, i64 bytes)
{
    device_get(source->context, out, (const char *)source->data + at, bytes);
}

/* A tensor, or a part of one, of a table that ranks hold in parts: the data of its source. */
struct listed_part {
    const struct weight *weight;
    enum weight_state state;
    i64 first, element_bytes; /* first: element of the unsharded matrix */
};

static void read_part(const struct tensor_source *source, void *out, i64 at, i64 bytes)
{
    struct weights_reader *reader = source->context;
    const struct listed_part *p = source->data;
    reader->read(reader, out, p->weight, p->state, p->first + at / p->element_bytes, bytes / p->element_bytes);
}

static struct tensor_source source_of_part(struct weight_list *list, const struct weights_reader *reader,
                                           const struct weight *w, enum weight_state state, enum dtype dtype, i64 first)
{
    struct listed_part *p = arena_alloc(&list->memory, sizeof *p);
    *p = (struct listed_part){w, state, first, dtype_bytes(dtype)};
    return (struct tensor_source){
        .dtype = dtype, .data = p, .read = read_part, .context = (void *)(uintptr_t)reader}; /* only read */
}

/* Tells the reader of a source how to convert: place 0 of the source is `data`, and bytes count in
 * the dtype asked for. */
struct conversion {
    struct device *device;
    const char *data;
    enum dtype from, to;
};

static void read_converted(const struct tensor_source *source, void *out, i64 at, i64 bytes)
{
    const struct conversion *c = source->context;
    i64 first = ((const char *)source->data + at - c->data) / dtype_bytes(c->to), count = bytes / dtype_bytes(c->to);
    void *stored = memory_alloc(count * dtype_bytes(c->from));
    device_get(c->device, stored, c->data + first * dtype_bytes(c->from), count * dtype_bytes(c->from));
    for (i64 i = 0; i < count; i++) {
        if (c->to == DTYPE_BF16)
            ((bf16 *)out)[i] = bf16_from_f32(((const float *)stored)[i]);
        else
            ((float *)out)[i] = bf16_to_f32(((const bf16 *)stored)[i]);
    }
    memory_free(stored);
}

/* Reads from the device, and converts if it has no such copy. */
static struct tensor_source source_of(struct weight_list *list, const struct weights *weights, const struct weight *w,
                                      enum dtype dtype)
{
    struct tensor_source source = {.dtype = dtype, .read = read_device, .context = weights->device};
    require(w->value.data || w->matrices == 0, "%s is kept in %d bits only", w->spec.name, weights->bits);
    source.data = dtype == DTYPE_F32 && w->master ? w->master : w->value.data;
    if (w->value.dtype == dtype || (dtype == DTYPE_F32 && w->master))
        return source;
    struct conversion *c = arena_alloc(&list->memory, (i64)sizeof *c);
    *c = (struct conversion){weights->device, w->value.data, w->value.dtype, dtype};
    source.read = read_converted;
    source.context = c;
    return source;
}

static void list_one(struct weight_list *list, const struct weights *weights, const struct weight *w, enum dtype dtype,
                     const struct weights_reader *reader)
{
    struct tensor_source source = {0};
    i64 columns = w->spec.columns, row = 0;
    char name[512];
    enum weight_state state = dtype == w->value.dtype ? STATE_COPY : STATE_MASTER; /* copies travel less */
    require(!reader || state == STATE_COPY || dtype == DTYPE_F32, "%s: of ranks' parts none is rounded", w->spec.name);
    if (!reader)
        source = source_of(list, weights, w, dtype);
    const char *data = source.data;
    for (i64 part = 0; part < w->spec.matrices; part++)
        for (int i = 0; i < 4 && w->spec.pieces[i].name; row += w->spec.pieces[i++].rows) {
            if (reader)
                source = source_of_part(list, reader, w, state, dtype, row * columns);
            else
                source.data = data + row * columns * dtype_bytes(dtype);
            part_name(name, sizeof name, w->spec.pieces[i].name, part);
            source.name = keep_name(list, name);
            source.rank = w->spec.disk_rank;
            source.shape[0] = source.rank == 1 ? columns : w->spec.pieces[i].rows;
            source.shape[1] = columns;
            *push(list) = source;
        }
}

static void open_list(struct weight_list *list, const struct weights *weights, const struct weights_reader *reader)
{
    const struct weights_layout *l = &weights->layout;
    require(reader || l->data_ranks * l->tensor_ranks * l->chunk_ranks == 1, "one rank must hold all that is listed");
    *list = (struct weight_list){0};
    arena_open(&list->memory, weights_bytes(weights) + weights->count * 4096 + (64 << 20));
}

void weights_list(struct weight_list *list, const struct weights *weights, enum weight_file file, enum dtype dtype,
                  const struct weights_reader *reader)
{
    open_list(list, weights, reader);
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        if (w->spec.file == file)
            list_one(list, weights, w, w->spec.type == TYPE_F32 ? DTYPE_F32 : dtype, reader);
    }
}

void weight_list_release(struct weight_list *list)
{
    memory_free(list->tensors);
    arena_close(&list->memory);
    *list = (struct weight_list){0};
}

static void list_state(struct weight_list *list, const struct weights *weights, const struct weight *w,
                       enum weight_state state, const struct weights_reader *reader)
{
    static const char *const kinds[] = {[STATE_MASTER] = "master", [STATE_M] = "m", [STATE_V] = "v"};
    const float *const data[] = {[STATE_MASTER] = w->master, [STATE_M] = w->m, [STATE_V] = w->v};
    struct tensor_source source = {
        .dtype = DTYPE_F32, .data = data[state], .read = read_device, .context = weights->device};
    char name[512];
    if (reader)
        source = source_of_part(list, reader, w, state, DTYPE_F32, 0);
    snprintf(name, sizeof name, "%s.%s", kinds[state], w->spec.name);
    source.name = keep_name(list, name);
    source.rank = 2;
    source.shape[0] = w->spec.matrices * w->spec.rows;
    source.shape[1] = w->spec.columns;
    *push(list) = source;
}

enum weight_state weight_last_state(const struct weights *weights, const struct weight *w)
{
    return weights->shadow ? STATE_M : weights->training && w->spec.trained ? STATE_V : STATE_MASTER;
}

void weights_list_optimizer(struct weight_list *list, const struct weights *weights,
                            const struct weights_reader *reader)
{
    open_list(list, weights, reader);
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        for (enum weight_state state = STATE_MASTER; state <= weight_last_state(weights, w); state++)
            list_state(list, weights, w, state, reader);
    }
}

enum { LOAD_BYTES = 1 << 20 }; /* rows read at a time: no rank holds another's part of a checkpoint */

static int load_state(struct weights *weights, struct weight *w, const struct safetensors *set, const char *kind,
                      float *out, const char *origin)
{
    char name[512];
    i64 shape[2] = {w->spec.matrices * w->spec.rows, w->spec.columns};
    if (!out || w->matrices == 0)
        return 0;
    snprintf(name, sizeof name, "%s.%s", kind, w->spec.name);
    const struct tensor_view *view = safetensors_find(set, name);
    if (!view)
        return error_set("%s: tensor %s is missing", origin, name);
    if (check_shape(origin, view, 2, shape))
        return -1;
    struct weight read = *w;
    bool of_slice = strcmp(kind, "master") == 0; /* the copy needs rows whose masters other ranks keep, too */
    read.share_first = of_slice ? 0 : w->share_first;
    read.share_rows = of_slice ? w->matrices * w->rows : w->share_rows;
    i64 most = max_i64(1, LOAD_BYTES / (w->columns * 4));
    float *rows = memory_alloc(max_i64(1, min_i64(most, read.share_rows)) * w->columns * 4);
    int status = 0;
    for (i64 row = 0; row < read.share_rows && status == 0; row += most) {
        i64 count = min_i64(most, read.share_rows - row);
        for (i64 i = 0; i < count && status == 0; i++)
            status = view_values(rows + i * w->columns, view, weight_logical_at(&read, read.share_first + row + i),
                                 w->columns, origin);
        i64 begin = weight_logical_at(&read, read.share_first + row);
        pass_values(view, begin, weight_logical_at(&read, read.share_first + row + count - 1) + w->columns - begin);
        if (status == 0 && of_slice)
            weight_put(weights, w, row, count, rows);
        else if (status == 0)
            device_put(weights->device, out + row * w->columns, rows, count * w->columns * 4);
    }
    memory_free(rows);
    return status;
}

int weights_load_optimizer(struct weights *weights, const struct safetensors *set, const char *origin)
{
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        if (load_state(weights, w, set, "master", w->master, origin) ||
            load_state(weights, w, set, "m", w->m, origin) || load_state(weights, w, set, "v", w->v, origin))
            return -1;
    }
    return 0;
}
