#define _GNU_SOURCE /* gethostname */
#include "train/shard_ring.h"

#include "data/stream/stream.h"
#include "dist/dist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ring_place { /* Place of a rank's ring, exchanged between all ranks. */
    /* hash of the machine and of the folder in WEFT_RING; 0: WEFT_RING is not set */
    u64 disk;
    u64 run;
};

/* Equal for all processes that see the same folder, and stable when the run is resumed. */
static u64 hash_of_folder(const char *path, const char *host)
{
    struct stat status;
    char *whole = realpath(path, NULL);
    bool found = stat(path, &status) == 0;
    char *all = string_format("%s:%s:%llu:%llu", host, whole ? whole : path,
                              host[0] && found ? (unsigned long long)status.st_dev : 0ull,
                              found ? (unsigned long long)status.st_ino : 0ull);
    u64 hash = hash_bytes(all, (i64)strlen(all), 0);
    free(whole);
    memory_free(all);
    return hash;
}

static const char *ring_disk(void)
{
    const char *path = getenv("WEFT_RING");
    return path && *path ? path : NULL;
}

static int find_place(struct ring_place *out, const struct stage *stage)
{
    char host[256] = "";
    const char *disk = ring_disk();
    *out = (struct ring_place){.run = hash_of_folder(stage->out, "")};
    gethostname(host, sizeof host - 1);
    if (disk && directory_make(disk) < 0)
        return error_prefix("WEFT_RING");
    out->disk = disk ? hash_of_folder(disk, host) : 0;
    return 0;
}

/* Places of all ranks; memory_free. */
static struct ring_place *gather_places(const struct stage *stage, const struct ring_place *own)
{
    struct comm *world = comm_host(stage->ranks->world);
    struct ring_place *all = memory_alloc(world->size * (i64)sizeof *all);
    i64 *bytes = memory_alloc(world->size * 8);
    for (i64 i = 0; i < world->size; i++)
        bytes[i] = sizeof *all;
    all[world->rank] = *own;
    comm_all_gather(world, all, bytes);
    memory_free(bytes);
    return all;
}

static i64 first_on_disk(const struct ring_place *all, u64 disk)
{
    i64 rank = 0;
    while (all[rank].disk != disk)
        rank++;
    return rank;
}

/* Numbers the distinct disks and finds this rank's; without WEFT_RING all ranks share one. */
static int number_disks(struct ring_name *name, const struct ring_place *all, i64 rank, i64 ranks)
{
    *name = (struct ring_name){.run = all[0].run};
    for (i64 i = 0; i < ranks; i++) {
        if (!all[i].disk != !all[0].disk)
            return error_set("WEFT_RING names a folder on rank %lld and none on rank %lld: expected one on all or none",
                             (long long)(all[i].disk ? i : 0), (long long)(all[i].disk ? 0 : i));
        name->readers += first_on_disk(all, all[i].disk) == i;
        name->reader += first_on_disk(all, all[i].disk) == i && i < first_on_disk(all, all[rank].disk);
    }
    return 0;
}

static void set_filler_options(struct shard_ring *r, const struct stage *stage, const struct ring_name *name)
{
    i64 count = 0;
    if (!stage->filler)
        return;
    for (; stage->filler[count]; count++)
        r->words[count] = stage->filler[count];
    require(count + 3 <= RING_WORDS_MOST, "%lld words", (long long)count);
    snprintf(r->name, sizeof r->name, "%016llx:%lld/%lld", (unsigned long long)name->run, (long long)name->reader,
             (long long)name->readers);
    r->words[count] = "--as";
    r->words[count + 1] = r->name;
}

int shard_ring_init(struct shard_ring *r, const struct stage *stage)
{
    struct comm *world = stage->ranks->world;
    struct ring_place own;
    struct ring_name name;
    *r = (struct shard_ring){0};
    if (find_place(&own, stage) < 0)
        return -1;
    struct ring_place *all = gather_places(stage, &own);
    int status = number_disks(&name, all, world->rank, world->size);
    if (status == 0) {
        r->mine = first_on_disk(all, own.disk) == world->rank;
        r->directory = own.disk ? string_format("%s/%016llx", ring_disk(), (unsigned long long)name.run)
                                : path_join(stage->out, "ring");
        set_filler_options(r, stage, &name);
    }
    memory_free(all);
    return status;
}

const char *const *shard_ring_filler(const struct shard_ring *r)
{
    return r->mine && r->words[0] ? r->words : NULL;
}

int shard_ring_remove(const struct shard_ring *r)
{
    return r->mine ? directory_remove(r->directory) : 0;
}

void shard_ring_release(struct shard_ring *r)
{
    memory_free(r->directory);
    *r = (struct shard_ring){0};
}
