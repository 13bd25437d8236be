#include "kernels/shapes.h"

#include <string.h>

static const struct matrix *matrix_in(const struct stated *o)
{
    const struct matrix *m = o->properties & IS_MATRIX ? o->data : NULL;
    return m && !m->data && o->properties & OR_NULL ? NULL : m;
}

/* The matrix whose dtype the others have; NULL: there is none. */
static const struct matrix *matrix_like(const struct statement *statement)
{
    for (i64 i = 0; i < statement->count; i++)
        if (!(statement->list[i].properties & (FLOATS | WIDER | ANY)) && matrix_in(&statement->list[i]))
            return matrix_in(&statement->list[i]);
    return NULL;
}

_Noreturn static void panic_of(const struct statement *statement, const struct stated *o, const struct matrix *like)
{
    const struct matrix *m = matrix_in(o);
    struct buffer text = {0};
    buffer_printf(&text, "%s: %s is ", statement->op, o->text->name);
    if (m && (m->data || m->rows * m->columns == 0))
        buffer_printf(&text, "%s [%lld,%lld]", dtype_name(m->dtype), (long long)m->rows, (long long)m->columns);
    else
        buffer_printf(&text, "NULL");
    buffer_printf(&text, ", expected");
    if (m && o->properties & (FLOATS | WIDER))
        buffer_printf(&text, " F32%s", o->properties & WIDER && like ? " or" : "");
    if (m && like && !(o->properties & (FLOATS | ANY)))
        buffer_printf(&text, " %s", dtype_name(like->dtype));
    panic("%s [%s, %s] = [%lld,%lld]", text.data, o->text->rows, o->text->columns, (long long)o->rows,
          (long long)o->columns);
}

_Noreturn void statement_refuse(const struct statement *statement, const char *condition)
{
    struct buffer text = {0};
    for (i64 i = 0; i < statement->count; i++) {
        const struct matrix *m = matrix_in(&statement->list[i]);
        if (m)
            buffer_printf(&text, "%s %s [%lld,%lld]", text.length ? "," : ";", statement->list[i].text->name,
                          (long long)m->rows, (long long)m->columns);
    }
    panic("%s: expected %s%s", statement->op, condition, text.length ? text.data : "");
}

void statement_check(const struct statement *statement)
{
    const struct matrix *like = matrix_like(statement);
    for (i64 i = 0; i < statement->count; i++) {
        const struct stated *o = &statement->list[i];
        const struct matrix *m = matrix_in(o);
        unsigned p = o->properties;
        if (!m) {
            if (!o->data && !(p & OR_NULL) && o->rows * o->columns > 0)
                panic_of(statement, o, like);
            continue;
        }
        bool has_dtype = p & ANY || (p & (FLOATS | WIDER) && m->dtype == DTYPE_F32) ||
                         (!(p & FLOATS) && (!like || m->dtype == like->dtype));
        if (m->rows != o->rows || m->columns != o->columns || !has_dtype || (!m->data && m->rows * m->columns != 0))
            panic_of(statement, o, like);
    }
}

i64 stated_bytes(const struct stated *o)
{
    return o->rows == UNSTATED ? UNSTATED : o->rows * o->columns * o->element_bytes;
}

static int rank_of(const struct stated *o)
{
    return (o->properties & IS_HOST) ? 0 : (strcmp(o->text->rows, "1") != 0) + (strcmp(o->text->columns, "1") != 0);
}

double statement_bytes(const struct statement *statement)
{
    double bytes = 0;
    int most = 0;
    for (i64 i = 0; i < statement->count; i++)
        most = rank_of(&statement->list[i]) > most ? rank_of(&statement->list[i]) : most;
    for (i64 i = 0; i < statement->count; i++) {
        const struct stated *o = &statement->list[i];
        const struct matrix *m = matrix_in(o);
        if (rank_of(o) < most || o->rows == UNSTATED || !(o->properties & IS_MATRIX ? (const void *)m : o->data))
            continue;
        bytes += (double)o->rows * (double)o->columns * (double)(m ? dtype_bytes(m->dtype) : o->element_bytes) *
                 (o->properties & TWICE ? 2 : 1);
    }
    return bytes;
}

/* ---- The ops of a device ---- */

#define OP(name, arguments, names, ...)                                                                                \
    static void checked_##name arguments                                                                               \
    {                                                                                                                  \
        STATEMENT(name, __VA_ARGS__)                                                                                   \
        statement_check(&statement_);                                                                                  \
        device->kernels->name names;                                                                                   \
    }
WEFT_OPS(OP)
#undef OP
#define OP(name, arguments, names, ...) .name = checked_##name,
static const struct kernels checked_kernels = {WEFT_OPS(OP)};
#undef OP

void device_use(struct device *device, const struct kernels *kernels)
{
    device->kernels = kernels;
    device->ops = &checked_kernels;
}
