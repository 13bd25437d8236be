/* The word runs of filter.against, which no sample may share. */
#include "data/curate/curate_inside.h"
#include "data/shards/shards.h"

#include <stdlib.h>

u64 words_hash(const struct word_runs *w, i64 first, i64 count)
{
    return hash_bytes(w->text.data + w->begin[first], w->begin[first + count] - 1 - w->begin[first], 0);
}

static void push(struct run_set *set, u64 hash)
{
    if (set->count == set->capacity) {
        i64 next = max_i64(1024, 2 * set->capacity);
        set->hashes = memory_resize(set->hashes, set->capacity * 8, next * 8);
        set->capacity = next;
    }
    set->hashes[set->count++] = hash;
}

static void add_text(struct run_set *set, const struct word_runs *w, i64 most)
{
    i64 run = min_i64(most, w->count);
    for (i64 i = 0; run && i + run <= w->count; i++)
        push(set, words_hash(w, i, run));
}

static void add_sample(struct run_set *set, const struct sample *sample, i64 run)
{
    for (i64 i = 0; i < sample->count; i++) {
        struct word_runs words = {0};
        if (sample->parts[i].kind == MODALITY_TEXT)
            words_add(&words, sample->parts[i].bytes.data, sample->parts[i].bytes.length);
        add_text(set, &words, run);
        words_release(&words);
    }
}

static int read_collection(struct run_set *set, const char *path, i64 run)
{
    struct source *source = source_open(path, NULL);
    struct sample sample;
    enum source_result result = SOURCE_SAMPLE;
    i64 before = set->count;
    if (!source)
        return -1;
    while (result != SOURCE_END && result != SOURCE_UNREACHABLE && !interrupted()) {
        result = source_next(source, &sample);
        if (result == SOURCE_SAMPLE) {
            add_sample(set, &sample, run);
            sample_release(&sample);
        } else if (result != SOURCE_END && result != SOURCE_UNREACHABLE) {
            log_warn("filter.against: skipped: %s", error_text());
        }
    }
    if (result == SOURCE_END && set->count == before && source_prompts(source))
        log_warn("filter.against: %s: nothing to compare with: %lld %s not compared", path,
                 (long long)source_prompts(source),
                 plural(source_prompts(source), "prompt for reinforcement learning is",
                        "prompts for reinforcement learning are"));
    source_close(source);
    return interrupted() ? error_interrupted() : result == SOURCE_UNREACHABLE ? -1 : 0;
}

static int by_value(const void *a, const void *b)
{
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return (x > y) - (x < y);
}

int run_set_read(struct run_set *set, const char *lines, i64 words)
{
    int status = 0;
    for (i64 i = 0; i < data_lines(lines) && status == 0; i++) {
        char *path = data_line(lines, i);
        status = read_collection(set, path, words);
        memory_free(path);
    }
    if (set->count)
        qsort(set->hashes, (size_t)set->count, 8, by_value);
    return status;
}

bool run_set_has(const struct run_set *set, const struct word_runs *w, i64 most)
{
    i64 run = min_i64(most, w->count);
    for (i64 i = 0; set->count && run && i + run <= w->count; i++) {
        u64 hash = words_hash(w, i, run);
        if (bsearch(&hash, set->hashes, (size_t)set->count, 8, by_value))
            return true;
    }
    return false;
}

void run_set_release(struct run_set *set)
{
    memory_free(set->hashes);
    *set = (struct run_set){0};
}
