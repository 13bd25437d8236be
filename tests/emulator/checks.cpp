/* Handlers of the checks that the compiler inserts into kernels (-fsanitize=alignment,bounds): the
 * first field of their data is the source location. */
#include "inside.h"

namespace
{
struct place {
    const char *file;
    uint32_t line, column;
};
struct type {
    uint16_t kind, info;
    char name[1];
};
struct access {
    place at;
    const type *of;
    unsigned char log_alignment, kind;
};
struct index_of {
    place at;
    const type *array, *index;
};
} // namespace

/* weak: with the compiler's own sanitizer, handlers of these names exist */
extern "C" {
__attribute__((weak)) void __ubsan_handle_type_mismatch_v1_abort(void *data, uintptr_t pointer)
{
    const access *a = (const access *)data;
    emu::fault("%s:%u: a misaligned access: %s at %p, which is no multiple of %u", a->at.file, a->at.line, a->of->name,
               (void *)pointer, 1u << a->log_alignment);
}

__attribute__((weak)) void __ubsan_handle_out_of_bounds_abort(void *data, uintptr_t index)
{
    const index_of *i = (const index_of *)data;
    emu::fault("%s:%u: index %lld is outside of %s", i->at.file, i->at.line, (long long)index, i->array->name);
}
}
