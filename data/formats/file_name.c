#include "data/formats/file_name.h"

#include <string.h>
#include <strings.h>

const char *name_extension(const char *name)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash + 1 : name, '.');
    return dot ? dot + 1 : "";
}

bool is_one_of(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; length && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncasecmp(at, word, length) == 0 && (at[length] == ' ' || at[length] == 0))
            return true;
    return false;
}

i64 name_unpacked_length(const char *name)
{
    const char *extension = name_extension(name);
    i64 length = (i64)strlen(name);
    return is_one_of("gz zst xz bz2 lz4", extension) ? length - (i64)strlen(extension) - 1 : length;
}

bool name_ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcasecmp(name + n - m, suffix) == 0;
}
