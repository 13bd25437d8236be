/* The rules by which the stage dedup drops samples, on hand-written keys. */
#include "core/json.h"
#include "data/curate/curate.h"
#include "data/curate/dedup.h"
#include "tests/scratch.h"
#include "tests/shard_fixture.h"

enum { SAMPLES = 10, KEYS = 3 };

/* Caption, content, one band. Caption 7 may occur twice. Sample 4 repeats the content of sample 1,
 * sample 5 its band; sample 6 has the caption of a dropped one. */
static const u64 keys[SAMPLES][KEYS] = {{7, 100, 1000},  {7, 101, 1001}, {7, 102, 1002},  {8, 100, 1003},
                                        {9, 104, 1000},  {8, 105, 1005}, {10, 106, 1006}, {11, 107, 1007},
                                        {12, 108, 1008}, {13, 109, 1009}};

static i64 count_of(const struct json *report, const char *rule)
{
    const struct json *rules = json_get(report, "rules");
    for (i64 i = 0; i < json_count(rules); i++)
        if (strcmp(json_string(json_get(json_at(rules, i), "rule"), ""), rule) == 0)
            return json_integer(json_get(json_at(rules, i), "count"), -1);
    return 0;
}

TEST(each_goes_by_its_rule)
{
    char *folder = fixture_shards("dedup-keys", SAMPLES, 20), *path = path_join(folder, curation_keys);
    struct buffer file = {0};
    for (i64 i = 0; i < SAMPLES; i++) {
        struct key_entry entry = {.keys = KEYS, .split = 0, .captioned = 1, .records = 1};
        buffer_append(&file, &entry, sizeof entry);
        buffer_append(&file, keys[i], sizeof keys[i]);
    }
    for (int split = 1; split < SPLITS; split++) { /* no samples in these splits */
        char *part = path_join(folder, split_names[split]);
        succeed(shard_writer_close(shard_writer_open(part, &fixture_meta, 1 << 20)));
        memory_free(part);
    }
    succeed(file_replace(path, file.data, file.length));
    succeed(directory_make(path_of("out")));
    succeed(dedup_stage(
        &(struct dedup_settings){.data = folder, .duplicates = DEDUP_NEAR, .caption_times = 2, .memory_bytes = 1 << 20},
        path_of("out")));
    struct json *report = json_load(path_of("out/curation.json"));
    assert_non_null(report);
    assert_int_equal(json_integer(json_get(report, "samples"), -1), SAMPLES);
    assert_int_equal(json_integer(json_get(report, "kept"), -1), SAMPLES - 3);
    assert_int_equal(count_of(report, "with a caption that stands at caption_times others"), 1);
    assert_int_equal(count_of(report, "duplicates of other folders"), 1);
    assert_int_equal(count_of(report, "near duplicates of other folders"), 1);
    json_free(report);
    buffer_release(&file);
    directory_remove(folder);
    memory_free(folder);
    memory_free(path);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
