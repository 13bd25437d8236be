/* shapes: expands what the rows of WEFT_OPS state about operands (kernels.h), for whoever wraps ops.
 * STATEMENT lists the operands of a call; statement_check panics if one is not as stated;
 * statement_bytes counts what the op moves. Rows may declare lengths as i64. */
#ifndef WEFT_SHAPES_H
#define WEFT_SHAPES_H
#include "kernels/conv.h"

enum stated_property {
    OR_NULL = 1,
    TWICE = 2,  /* read and written */
    FLOATS = 4, /* F32 */
    WIDER = 8,  /* F32, or as the others */
    ANY = 16,   /* any dtype */
    IS_MATRIX = 32,
    IS_HOST = 64 /* a list in host memory */
};
enum { STATED_MOST = 16, UNSTATED = -1 /* a length that depends on data */ };
struct stated_text {
    const char *name, *rows, *columns;
};
struct stated {
    const struct stated_text *text;
    const void *data;  /* the struct matrix, or the array */
    i64 rows, columns; /* as stated */
    unsigned properties;
    int element_bytes; /* of an array */
};
struct statement {
    const char *op;
    i64 count;
    struct stated list[STATED_MOST];
};
void statement_check(const struct statement *statement);
_Noreturn void statement_refuse(const struct statement *statement, const char *condition);
/* Bytes read and written: each operand once, TWICE twice. Vectors do not count beside matrices. */
double statement_bytes(const struct statement *statement);
/* UNSTATED, or the bytes of an array. */
i64 stated_bytes(const struct stated *operand);

/* clang-format off */
/* Declares and fills statement_ in a function with the arguments of the op. */
#define STATEMENT(name, ...)                                                                                           \
    struct statement statement_;                                                                                       \
    statement_.op = #name;                                                                                             \
    statement_.count = 0;                                                                                              \
    __VA_ARGS__
#define IS(x, rows, ...) IS_WITH(x, rows, __VA_ARGS__, 0, )
#define IS_WITH(x, rows_, columns_, properties_, ...)                                                                  \
    {                                                                                                                  \
        static const struct stated_text text_ = {#x, #rows_, #columns_};                                               \
        statement_.list[statement_.count++] = (struct stated){                                                         \
            &text_, _Generic((x), struct matrix: &(x), default: (x)), rows_, columns_,                                 \
            (unsigned)(properties_) | _Generic((x), struct matrix: IS_MATRIX, const i64 *: IS_HOST,                    \
                                               const struct scale *: IS_HOST, default: 0),                             \
            _Generic((x), struct matrix: 0, default: (int)sizeof *_Generic((x), struct matrix: "", default: (x)))};    \
    }
#define SIZES(x, ...) SIZES_WITH(x, __VA_ARGS__, 0, )
#define SIZES_WITH(x, N, C, properties, ...)                                                                           \
    i64 N = (x).rows, C = (x).columns;                                                                                 \
    (void)N, (void)C;                                                                                                  \
    IS(x, N, C, properties)
#define WHERE(...)                                                                                                     \
    if (!(__VA_ARGS__))                                                                                                \
        statement_refuse(&statement_, #__VA_ARGS__);

/* Statements that rows share. */
#define SORTED(E, N, K)                                                                                                \
    IS(sorted->offsets, E + 1, 1) IS(sorted->slot, N, K) IS(sorted->source, sorted->rows_bound, 1)
#define ROPE_CACHE(x, to)                                                                                              \
    i64 width = to->k.columns / to->kv_heads;                                                                          \
    IS(to->k, to->k.rows, to->kv_heads * width, ANY) IS(to->v, to->v.rows, to->kv_heads * width, ANY)                  \
    IS(to->positions, 3 * (x).rows, 1) IS(to->index, (x).rows, 1)                                                      \
    WHERE(to->k.dtype == (x).dtype && to->v.dtype == (x).dtype)                                                        \
    WHERE((x).columns == (to->heads + 2 * to->kv_heads) * width && width % 2 == 0)                                     \
    WHERE(to->t_pairs >= 0 && 2 * to->t_pairs <= width)
#define SKINNY_EXPERTS                                                                                                 \
    IS(inside, experts->rows_bound, F) IS(shared, N, S, OR_NULL) IS(experts->source, experts->rows_bound, 1)           \
    IS(experts->slot, N, experts->k_max) IS(experts->weights, N, experts->k_max)                                       \
    WHERE(N <= SKINNY_NORMED_ROWS && N * experts->k_max <= SKINNY_ASSIGNMENTS)
#define CONV(x, y)                                                                                                     \
    IS(x, conv->batch * product3(conv->size), conv->in) IS(y, conv->batch * conv_out_positions(conv), conv->out)       \
    WHERE((x).rows > 0 && (y).rows > 0)
#define ATTENTION(q, k)                                                                                                \
    WHERE(heads % kv_heads == 0)                                                                                       \
    i64 D = (q).columns / heads;                                                                                       \
    IS(q, intervals->queries, heads * D) IS(k, intervals->keys, kv_heads * D)
#define STFT(x, spectrum, parts)                                                                                       \
    SIZES(x, B, S, FLOATS)                                                                                             \
    WHERE(n_fft >= 4 && n_fft % 2 == 0 && n_fft < 1 << 20 && hop > 0)                                                  \
    WHERE(S > n_fft / 2) /* so that it can be reflected */                                                             \
    IS(spectrum, B * (S / hop + 1), (parts) * (n_fft / 2 + 1), FLOATS)
/* clang-format on */

static inline i64 positions_of(const struct scale *scales, i64 count)
{
    i64 positions = 0;
    for (i64 k = 0; k < count; k++)
        positions += scale_positions(scales[k]);
    return positions;
}

static inline i64 product_of(const i64 *list, i64 count)
{
    i64 product = 1;
    for (i64 i = 0; i < count; i++)
        product *= list[i];
    return product;
}

#endif
