/* Kind of a medium by its file name extension. */
#include "data/sources/source_readers.h"

#include <string.h>
#include <strings.h>

int medium_kind(const char *extension)
{
    const char *dot = strrchr(extension, '.');
    for (int kind = 0; kind < MODALITIES; kind++)
        if (is_one_of(modality_rows[kind].suffixes, dot ? dot + 1 : extension))
            return kind;
    return -1;
}

int medium_kind_unread(const char *extension)
{
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++)
        if (is_one_of(modality_rows[kind].unread, extension))
            return kind;
    return -1;
}

int medium_leading(i64 rank)
{
    for (int kind = 0; kind < MODALITIES; kind++)
        if (modality_rows[kind].leads == rank + 1)
            return kind;
    return -1;
}

const char *document_suffix(const char *name)
{
    static const char *const suffixes[] = {".md", ".markdown", ".rst"};
    i64 length = name_unpacked_length(name);
    for (i64 i = 0; i < COUNT_OF(suffixes); i++) {
        i64 suffix = (i64)strlen(suffixes[i]);
        if (length >= suffix && strncasecmp(name + length - suffix, suffixes[i], (size_t)suffix) == 0)
            return suffixes[i];
    }
    return NULL;
}
