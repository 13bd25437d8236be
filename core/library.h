/* Libraries of vendors that are opened when they are first needed: a program that was built for them starts, and does
 * everything else, where they are not. */
#ifndef WEFT_CORE_LIBRARY_H
#define WEFT_CORE_LIBRARY_H
#include "core/core.h"

struct library_function {
    const char *name;
    void *to; /* the pointer that will be it */
};
/* Of the list LIST(F), F(function) for each: `struct { LIST(LIBRARY_POINTER) } lib;` has them as lib.function, and
 * {LIST(LIBRARY_FUNCTION)} is the list that library_open fills. */
#define LIBRARY_POINTER(function) __typeof__(function) *function;
#define LIBRARY_FUNCTION(function) {#function, &lib.function},
/* The first of `files` (file or path; NULL: this program) that can be opened, for as long as the program runs. -1 and a
 * message with what the linker says of the first one, or the function it lacks. */
int library_open(const struct library_function *functions, i64 count, const char *const *files, i64 file_count);

#endif
