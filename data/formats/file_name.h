/* Inspects file name suffixes. */
#ifndef WEFT_DATA_FILE_NAME_H
#define WEFT_DATA_FILE_NAME_H
#include "core/core.h"

const char *name_extension(const char *name); /* after the last dot, or "" */
i64 name_unpacked_length(const char *name);   /* length without .gz, .zst, .xz, .bz2, .lz4 */
/* Words are separated by spaces. Ignores case. */
bool is_one_of(const char *words, const char *word);
bool name_ends_with(const char *name, const char *suffix); /* ignores case */

#endif
