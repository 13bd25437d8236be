#include "core/library.h"

#include <dlfcn.h>

int library_open(const struct library_function *functions, i64 count, const char *const *files, i64 file_count)
{
    void *library = dlopen(files[0], RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        error_set("%s", dlerror());
    for (i64 i = 1; i < file_count && !library; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return -1;
    for (i64 i = 0; i < count; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function)
            return error_set("%s", dlerror());
        *(void **)functions[i].to = function;
    }
    return 0;
}
