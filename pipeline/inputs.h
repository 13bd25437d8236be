/* Digest of a stage's input: one hash of the names, sizes and contents (XXH3) of all files below a
 * path, so that every edit is noticed. Hashes of files are cached in RUN/inputs.cache, one line per
 * file. A cached hash is valid while size, inode, modification time and change time are unchanged;
 * programs cannot set the change time. For a URL the digest covers the names and sizes of its files
 * and the server's version (ETag). */
#ifndef WEFT_PIPELINE_INPUTS_H
#define WEFT_PIPELINE_INPUTS_H
#include "core/core.h"

/* Prefix of digests of contents. Digests without it, from
 * older runs, cover names and sizes only. */
#define INPUT_MARK "xxh3-"
/* run: the run's folder, for the cache. job, jobs: setting part of `prepare`; jobs 0: the input
 * is not shared. For a shared input, media and the files that other jobs read enter by name and
 * size only, so that n jobs do not read everything n times. Unreadable files enter by name. Free
 * with memory_free. NULL and a message if interrupted. */
char *input_digest(const char *path, const char *run, i64 job, i64 jobs);
/* Rules of digests, the present one first, for the recognition of older runs' inputs. A folder that
 * links repeat entered as often as it occurred; before that, shards themselves were hashed and not only
 * the index with their checksums. */
enum input_rule { INPUT_RULE, INPUT_REPEATED_LINKS, INPUT_WHOLE_SHARDS, INPUT_RULES };
char *input_digest_before(const char *path, const char *run, enum input_rule rule);
#endif
