/* What the end of a file's name says. */
#ifndef WEFT_DATA_FILE_NAME_H
#define WEFT_DATA_FILE_NAME_H
#include "core/core.h"

const char *name_extension(const char *name);              /* behind the last dot; "" */
i64 name_unpacked_length(const char *name);                /* without .gz, .zst, .xz, .bz2, .lz4 at its end */
bool is_one_of(const char *words, const char *word);       /* separated by spaces; without regard to case */
bool name_ends_with(const char *name, const char *suffix); /* without regard to case */

#endif
