/* The tables of an index while it grows: in files of its folder, samples.part, parts.part, shards.part and names.part,
 * so that a folder of any number of samples takes the same memory. */
#ifndef WEFT_DATA_SHARD_TABLES_H
#define WEFT_DATA_SHARD_TABLES_H
#include "data/shards/append.h"
#include "data/shards/shard_layout.h"

struct shard_tables {
    char *directory;
    struct appender files[SHARD_TABLES];
    struct shard_sample last; /* waits, as it may go on */
    bool waits;
};
/* Keeps the first `bytes` of each, NULL: none. -1 and a message: nothing is open. */
int shard_tables_open(struct shard_tables *tables, const char *directory, const i64 bytes[SHARD_TABLES]);
/* sample: its name and first part are set here. Failures of writing are remembered. */
void shard_tables_add(struct shard_tables *tables, struct shard_sample sample, const char *name,
                      const struct shard_part *parts);
void shard_tables_go_on(struct shard_tables *tables); /* the sample added last goes on in the next */
void shard_tables_end_shard(struct shard_tables *tables, u64 shard_bytes);
i64 shard_tables_shards(const struct shard_tables *tables); /* that have ended */
/* Everything is on the disk when it returns 0, and bytes says how much of each. */
int shard_tables_sync(struct shard_tables *tables, i64 bytes[SHARD_TABLES]);
/* What was added so far, to be read until it is unmapped. */
int shard_tables_map(struct file_view views[SHARD_TABLES], struct shard_tables *tables);
void shard_tables_unmap(struct file_view views[SHARD_TABLES]);
/* The folder's index of all of it, atomically. */
int shard_tables_write_index(struct shard_tables *tables, const struct shard_meta *meta, i64 first_shard);
void shard_tables_close(struct shard_tables *tables); /* the files stay */
int shard_tables_remove(const char *directory);       /* those files, where there are any */
#endif
