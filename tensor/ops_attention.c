#include "tensor/inside.h"
#include "tensor/ops.h"

struct attention_record {
    struct tape_record record;
    struct tensor *qkv, *out;
    float *lse;
    struct attention attention;
};

static struct matrix query_part(struct matrix qkv, const struct attention *a)
{
    return matrix_columns(qkv, 0, a->heads * a->width);
}

static struct matrix key_part(struct matrix qkv, const struct attention *a)
{
    return matrix_columns(qkv, a->heads * a->width, a->kv_heads * a->width);
}

static struct matrix value_part(struct matrix qkv, const struct attention *a)
{
    return matrix_columns(qkv, (a->heads + a->kv_heads) * a->width, a->kv_heads * a->width);
}

/* q and k are adjacent columns, so one call rotates both. */
static void rotate(struct device *device, struct matrix qkv, const struct attention *a, bool inverse)
{
    i64 heads = a->heads + a->kv_heads;
    device->ops->rope(device, matrix_columns(qkv, 0, heads * a->width), a->positions, heads, a->theta, a->t_pairs,
                      inverse);
}

static void attention_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct attention_record *self = (struct attention_record *)base;
    const struct attention *a = &self->attention;
    struct matrix dout = tape_output_gradient(self->out), qkv = tensor_matrix(self->qkv);
    if (!dout.data)
        return;
    struct gradient d = tape_gradient(tape, self->qkv);
    require(d.matrix.data && !d.add, "qkv has one use");
    device->ops->attention_backward(device, query_part(d.matrix, a), key_part(d.matrix, a), value_part(d.matrix, a),
                                    dout, tensor_matrix(self->out), self->lse, query_part(qkv, a), key_part(qkv, a),
                                    value_part(qkv, a), a->heads, a->kv_heads, &a->intervals);
    rotate(device, d.matrix, a, true);
}

struct rope_cache rope_cache_of(const struct attention *a)
{
    return (struct rope_cache){.k = a->cache->k,
                               .v = a->cache->v,
                               .positions = a->positions,
                               .index = a->cache_row,
                               .heads = a->heads,
                               .kv_heads = a->kv_heads,
                               .t_pairs = a->t_pairs,
                               .theta = a->theta};
}

static float *attend(struct tape *tape, struct tensor *out, struct matrix q, struct matrix k, struct matrix v,
                     const struct attention *a)
{
    float *lse = tape_alloc(tape, out->rows * a->heads * 4);
    tape->device->ops->attention(tape->device, tensor_matrix(out), lse, q, k, v, a->heads, a->kv_heads, &a->intervals);
    return lse;
}

struct tensor *attend_cached(struct tape *tape, struct tensor *qkv, const struct attention *a)
{
    require(!tape->recording, "attention through a cache is not differentiable");
    struct tensor *out = tape_tensor(tape, qkv->dtype, qkv->rows, a->heads * a->width);
    attend(tape, out, query_part(tensor_matrix(qkv), a), matrix_rows(a->cache->k, 0, a->intervals.keys),
           matrix_rows(a->cache->v, 0, a->intervals.keys), a);
    return out;
}

struct tensor *op_attention(struct tape *tape, struct tensor *qkv, const struct attention *a)
{
    struct matrix all = tensor_matrix(qkv);
    if (a->cache) {
        struct rope_cache cache = rope_cache_of(a);
        tape->device->ops->rope_cache(tape->device, all, &cache);
        return attend_cached(tape, qkv, a);
    }
    rotate(tape->device, all, a, false);
    struct tensor *out = tape_tensor(tape, qkv->dtype, qkv->rows, a->heads * a->width);
    float *lse = attend(tape, out, query_part(all, a), key_part(all, a), value_part(all, a), a);
    struct attention_record *r = tape_record(tape, sizeof *r, attention_backward, &qkv, 1, &out, 1);
    KEEP(r, .qkv = qkv, .out = out, .lse = lse, .attention = *a);
    return out;
}
