/* The on-disk layout of the files in a shard folder, byte for byte. shard_write.c writes it and
 * shard_read.c maps it. */
#ifndef WEFT_DATA_SHARD_LAYOUT_H
#define WEFT_DATA_SHARD_LAYOUT_H
#include "data/shards/shards.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "index and shards are mapped as they are: little-endian"
#endif

enum { SHARD_ALIGN = 16 };
#define INDEX_MAGIC "WEFTINDX"
#define SHARD_MAGIC "WEFTSHRD"

struct index_header {
    char magic[8];
    u32 version, shard_count;
    u64 sample_count, part_count, names_bytes;
    u64 meta_hash; /* shard_meta_hash: hash of shards.json's content */
    /* Hash of this header with hash = 0; that value seeds the hash of everything behind the
     * header. */
    u64 hash;
    u64 first_shard; /* number in the first shard's header; not 0 only in a single-shard index */
};
struct shard_header {
    char magic[8];
    u32 version, number;
};
/* A shard's entry in the index is its size in bytes, u64. */

_Static_assert(sizeof(struct index_header) == 64, "index header");
_Static_assert(sizeof(struct shard_header) == SHARD_ALIGN, "shard header");
_Static_assert(sizeof(struct shard_part) == 48 && sizeof(struct shard_sample) == 16, "index entries");

/* The header of an index with these tables, in this order: samples, parts, shard sizes, names. */
struct index_header index_header_of(const struct shard_meta *meta, const struct file_view tables[SHARD_TABLES],
                                    i64 first_shard);
u64 shard_meta_hash(const struct shard_meta *meta);
void shard_voices_list(struct shard_folder *folder); /* sets its voices from its parts */
char *shard_path(const char *directory, i64 number); /* free with memory_free */
static inline u64 index_hash(const struct index_header *header, const void *rest, i64 bytes)
{
    struct index_header blank = *header;
    blank.hash = 0;
    return hash_bytes(rest, bytes, hash_bytes(&blank, sizeof blank, 0));
}

#endif
