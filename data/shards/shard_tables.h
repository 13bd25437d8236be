/* The tables of a growing index. They live in files of the folder (samples.part, parts.part,
 * shards.part, names.part), so memory use does not depend on the number of samples. */
#ifndef WEFT_DATA_SHARD_TABLES_H
#define WEFT_DATA_SHARD_TABLES_H
#include "data/shards/append.h"
#include "data/shards/shard_layout.h"

struct shard_tables {
    char *directory;
    struct appender files[SHARD_TABLES];
    struct shard_sample last; /* held back, because shard_tables_resume may still change it */
    bool waits;
};
/* Opens the tables and truncates each to `bytes[i]`; NULL empties them. Returns -1 with a message
 * and leaves nothing open on failure. */
int shard_tables_open(struct shard_tables *tables, const char *directory, const i64 bytes[SHARD_TABLES]);
/* Appends a sample; the function sets its name and first_part. Write failures are remembered until
 * the next sync. */
void shard_tables_add(struct shard_tables *tables, struct shard_sample sample, const char *name,
                      const struct shard_part *parts);
void shard_tables_resume(struct shard_tables *tables); /* the last sample continues in the next */
void shard_tables_end_shard(struct shard_tables *tables, u64 shard_bytes);
i64 shard_tables_shards(const struct shard_tables *tables); /* number of ended shards */
/* Writes and fsyncs all tables; bytes[i] receives the length of each. Returns 0 once all is on
 * disk. */
int shard_tables_sync(struct shard_tables *tables, i64 bytes[SHARD_TABLES]);
/* Maps everything added so far. The views are valid until shard_tables_unmap. */
int shard_tables_map(struct file_view views[SHARD_TABLES], struct shard_tables *tables);
void shard_tables_unmap(struct file_view views[SHARD_TABLES]);
/* Writes the folder's index from all tables, atomically. */
int shard_tables_write_index(struct shard_tables *tables, const struct shard_meta *meta, i64 first_shard);
void shard_tables_close(struct shard_tables *tables); /* keeps the files */
int shard_tables_remove(const char *directory);       /* removes the files, if any */
#endif
