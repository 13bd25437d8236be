/* The speaker vectors of a folder, by shard and speaker: another recording of the same speaker is drawn
 * from the same shard, so that shards which come one by one give the draws of a finished folder. */
#include "data/shards/shard_layout.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const struct shard_voice *x = a, *y = b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x->speaker != y->speaker)
        return x->speaker < y->speaker ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

void shard_voices_list(struct shard_folder *f)
{
    i64 count = 0;
    for (i64 i = 0; i < f->part_count; i++)
        count += f->parts[i].kind == PART_VOICE;
    f->voices = count ? memory_alloc(count * (i64)sizeof *f->voices) : NULL;
    for (i64 i = 0; i < f->part_count; i++)
        if (f->parts[i].kind == PART_VOICE)
            f->voices[f->voice_count++] = (struct shard_voice){f->parts[i].shard, f->parts[i].frames, i};
    if (count)
        qsort(f->voices, (size_t)count, sizeof *f->voices, compare);
}

/* Index of the first entry that does not come before `key`. */
static i64 find(const struct shard_folder *f, struct shard_voice key)
{
    i64 low = 0, high = f->voice_count;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (compare(&f->voices[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

i64 shards_other_voice(const struct shards *shards, i64 part, double share)
{
    const struct shard_folder *f = shards_folder_of_part(shards, part);
    const struct shard_part *p = &f->parts[part - f->first_part];
    i64 first = find(f, (struct shard_voice){p->shard, p->frames, 0});
    i64 end = find(f, (struct shard_voice){p->shard, p->frames, INT64_MAX});
    i64 own = find(f, (struct shard_voice){p->shard, p->frames, part - f->first_part}), others = end - first - 1;
    if (others < 1)
        return -1;
    i64 drawn = first + min_i64(others - 1, (i64)(share * (double)others));
    return f->first_part + f->voices[drawn + (drawn >= own)].part;
}
