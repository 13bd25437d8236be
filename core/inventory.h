/* What a finished stage made. `weft run` writes inventory.json into the folder of a stage when the stage
 * is done: path, size and XXH3 of every file, so that damage of a disk or a copy is noticed by whoever
 * reads the file later.
 *
 *   {"format": 1, "files": {"config.json": {"bytes": 612, "xxh3": "8c7a..."}, ...}, "weft.xxh3": ...}
 *
 * A safetensors file with its own checksum has the XXH3 of its header alone ("header"), which contains
 * that checksum; a shard beside its index has its size alone, since the index has the checksums of its
 * payloads. Their readers verify the rest. Checkpoints have inventories of their own, and TensorBoard's
 * event files checksums in each record, so neither is listed.
 *
 * file_map, file_read and file_copy verify a file when this process first reads it. They look for the
 * inventory in its folder and up to seven above; a folder without one, such as that of an older version,
 * is read as it is. That a file is absent is noticed by those who open a folder, with inventory_check. */
#ifndef WEFT_INVENTORY_H
#define WEFT_INVENTORY_H
#include "core/core.h"

#define INVENTORY_FILE "inventory.json"
/* Writes the inventory of a folder that no other process writes to. An older one is replaced. */
int inventory_save(const char *folder);
/* 0 if every file that is listed at or below `path` is there with its size, or if no inventory is
 * known; else -1 and a message. */
int inventory_check(const char *path);
int inventory_check_all(const char *path); /* compares the contents, too */
/* 0 if a file is what its inventory says, or is not listed; else -1 and a message. Each file is hashed
 * once. */
int inventory_verify(const char *path, const void *data, i64 bytes);
int inventory_verify_file(const char *path); /* the same; reads the file only if it is listed */
/* Forgets what was read: a folder was replaced or removed. */
void inventory_forget(void);
#endif
