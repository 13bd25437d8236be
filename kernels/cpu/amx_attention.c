/* Products of attention on tiles: sums lie in the second cache and are read and written there as tiles. attention.c and
 * its companions are compiled for this level too, and call what is here. */
#include "kernels/cpu/amx.h"

bool cpu_amx_has_operands(void)
{
    return true;
}

/* Blocks of 32 rows, each [width / 32] of 2 kB: the rows are the depth, or (transposed) columns of b. */
const void *cpu_amx_operand(void *out, const void *dense, i64 rows, i64 width, bool transposed)
{
    struct matrix m = matrix_of((void *)(uintptr_t)dense, DTYPE_BF16, rows, width);
    char *to = out;
    for (i64 row = 0; row < rows; row += AMX_BLOCK)
        for (i64 column = 0; column < width; column += AMX_BLOCK, to += AMX_STEP_BYTES)
            amx_pack_b(to, m, transposed, transposed ? column : row, transposed ? row : column);
    return out;
}

INLINED void load_sums(const float *c, i64 row_bytes, bool add)
{
    if (add) {
        _tile_loadd(0, c, (size_t)row_bytes);
        _tile_loadd(1, c + 16, (size_t)row_bytes);
        _tile_loadd(2, (const char *)c + 16 * row_bytes, (size_t)row_bytes);
        _tile_loadd(3, (const char *)c + 16 * row_bytes + 64, (size_t)row_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
}

INLINED void multiply(float *c, i64 c_bytes, const char *a, i64 a_bytes, const char *b, i64 b_step, i64 steps, bool add)
{
    load_sums(c, c_bytes, add);
    for (i64 step = 0; step < steps; step++, a += AMX_BLOCK * 2, b += b_step) {
        _tile_loadd(6, b, 64);
        _tile_loadd(4, a, (size_t)a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 1024, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * a_bytes, (size_t)a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, (size_t)c_bytes);
    _tile_stored(1, c + 16, (size_t)c_bytes);
    _tile_stored(2, (char *)c + 16 * c_bytes, (size_t)c_bytes);
    _tile_stored(3, (char *)c + 16 * c_bytes + 64, (size_t)c_bytes);
}

/* b is an operand as made above; rows of a and c are there up to a multiple of 32. */
void cpu_amx_gemm(void *c, const void *a, const void *b, const struct gemm *g)
{
    bool turned = g->transpose_b;
    i64 b_step = turned ? AMX_STEP_BYTES : g->n / AMX_BLOCK * AMX_STEP_BYTES;
    i64 panel = turned ? g->k / AMX_BLOCK * AMX_STEP_BYTES : AMX_STEP_BYTES;
    require(g->n % AMX_BLOCK == 0 && g->k % AMX_BLOCK == 0 && !g->transpose_a && g->out_dtype == DTYPE_F32,
            "a product of attention of [%lld,%lld,%lld]", (long long)g->m, (long long)g->n, (long long)g->k);
    amx_begin();
    for (i64 i = 0; i < g->m; i += AMX_BLOCK)
        for (i64 j = 0; j < g->n; j += AMX_BLOCK)
            multiply((float *)c + i * g->ldc + j, g->ldc * 4, (const char *)a + i * g->lda * 2, g->lda * 2,
                     (const char *)b + j / AMX_BLOCK * panel, b_step, g->k / AMX_BLOCK, g->add);
    amx_end();
}

void amx_attention(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                   struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
    if (amx_has_attention(q, k, heads, kv_heads))
        cpu_amx_attention(device, out, lse, q, k, v, heads, kv_heads, intervals);
    else
        cpu_v4_attention(device, out, lse, q, k, v, heads, kv_heads, intervals);
}

void amx_attention_backward(struct device *device, struct matrix dq, struct matrix dk, struct matrix dv,
                            struct matrix dout, struct matrix out, const float *lse, struct matrix q, struct matrix k,
                            struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
    if (amx_has_attention(q, k, heads, kv_heads))
        cpu_amx_attention_backward(device, dq, dk, dv, dout, out, lse, q, k, v, heads, kv_heads, intervals);
    else
        cpu_v4_attention_backward(device, dq, dk, dv, dout, out, lse, q, k, v, heads, kv_heads, intervals);
}
