/* What a stage reads by path, as one number: names, sizes and contents (XXH3) of all files below it, so that no edit
 * passes for what was read before. What a file's contents hash to is kept in RUN/inputs.cache, a line a file, and
 * believed as long as its size, inode and times of modification and change are the same: the last of them no program
 * can set. Of an address its files' names, sizes and what the server says changes when they do (ETag). */
#ifndef WEFT_CLI_INPUTS_H
#define WEFT_CLI_INPUTS_H
#include "core/core.h"

/* Older runs knew names and sizes alone; their digests have no such mark. */
#define INPUT_MARK "xxh3-"
/* `run`: the run's folder. Where `parts` share the files of `path` (setting part of `prepare`; 0: none do), of files
 * that this one does not read, and of media, names and sizes count alone, so that n of them do not read everything n
 * times. memory_free; NULL and a message where it was interrupted. What cannot be read counts as its name. */
char *input_digest(const char *path, const char *run, i64 part, i64 parts);
/* The same as programs told it that read shards wholly, instead of the index beside them, which has their checksums. */
char *input_digest_before(const char *path, const char *run);
#endif
