/* Vendor libraries, loaded on first use. A program built for them also starts, and does everything
 * else, on machines without them. */
#ifndef WEFT_CORE_LIBRARY_H
#define WEFT_CORE_LIBRARY_H
#include "core/core.h"

struct library_function {
    const char *name;
    void *to; /* pointer to fill */
};
/* Tables from an X-macro LIST(F) that expands to F(function) for each function. `struct {
 * LIST(LIBRARY_POINTER) } lib;` declares the pointers as lib.function, and {LIST(LIBRARY_FUNCTION)}
 * is the table that library_open fills. */
#define LIBRARY_POINTER(function) __typeof__(function) *function;
#define LIBRARY_FUNCTION(function) {#function, &lib.function},
/* Opens the first loadable of `files` (file name or path; NULL: this program) and keeps it open
 * until the program exits. Returns -1 and the linker's message about the first file, or about the
 * function it lacks. */
int library_open(const struct library_function *functions, i64 count, const char *const *files, i64 file_count);

#endif
