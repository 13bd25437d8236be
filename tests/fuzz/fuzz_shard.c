/* Fuzz target: any bytes as the index of a shard folder (checksum fixed up, so that the code behind
 * it is reached), as shards.json, or as a shard are read or refused; every opened folder can be
 * read through. */
#include "data/shards/shard_layout.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct shard_meta meta = {
    .vocabulary = 300,
    .bits = 2,
    .cell_features = 3,
    .stride = 2,
    .levels = 1,
    .codes = 4,
    .shape_count = 1,
    .shapes = {{{.scale_count = 2, .scales = {{1, 1}, {2, 2}}, .frames = 1}, 2, 2, {1, 1}}}};

static void put(const char *directory, const char *name, const void *bytes, i64 count)
{
    char *path = path_join(directory, name);
    FILE *file = fopen(path, "wb");
    require(file && fwrite(bytes, 1, (size_t)count, file) == (size_t)count && fclose(file) == 0, "%s cannot be written",
            path);
    memory_free(path);
}

static void put_index(const char *directory, const uint8_t *data, i64 size, bool repair)
{
    struct index_header header;
    struct buffer index = {0};
    buffer_append(&index, data, size);
    if (repair && size >= (i64)sizeof header) {
        memcpy(&header, index.data, sizeof header);
        memcpy(header.magic, INDEX_MAGIC, 8);
        header.version = SHARD_VERSION;
        header.meta_hash = shard_meta_hash(&meta);
        header.hash = index_hash(&header, index.data + sizeof header, size - (i64)sizeof header);
        memcpy(index.data, &header, sizeof header);
    }
    put(directory, "index", index.data, index.length);
    buffer_release(&index);
}

static void read_through(const char *directory)
{
    struct shards shards;
    if (shards_open(&shards, directory, NULL) < 0) {
        require(*error_text(), "a refused folder leaves no message");
        return;
    }
    for (i64 i = 0; i < shards.sample_count; i++)
        require(strlen(shards_name(&shards, i)) < (size_t)shards_folder_of_sample(&shards, i)->names_bytes,
                "a name without end");
    for (i64 i = 0; i < shards.part_count; i++) {
        const u8 *payload = shards_payload(&shards, i);
        volatile u8 last =
            payload && shards.folders[0].parts[i].bytes ? payload[shards.folders[0].parts[i].bytes - 1] : 0;
        (void)last;
    }
    shards_close(&shards);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char directory[64], part[80];
    static bool fresh = true; /* shards.json must be written */
    u8 shard[256] = SHARD_MAGIC;
    if (size == 0)
        return 0;
    snprintf(directory, sizeof directory, "/dev/shm/fuzz-shard-%ld", (long)getpid());
    snprintf(part, sizeof part, "%s/train", directory);
    if (fresh)
        require(directory_make(part) == 0 && shard_meta_save(&meta, directory) == 0, "%s", error_text());
    shard[8] = SHARD_VERSION;
    put(part, "00000.shard", shard, sizeof shard);
    fresh = data[0] % 4 == 3;
    if (fresh)
        put(directory, "shards.json", data + 1, (i64)size - 1);
    put_index(part, data + 1, (i64)size - 1, data[0] % 4 != 0);
    read_through(part);
    return 0;
}
