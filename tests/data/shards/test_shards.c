/* Shards: a written folder reads back, and truncated or changed files are refused. */
#include <stdio.h>
#include <string.h>
#include "tests/shard_fixture.h"
#include "tests/test.h"

enum { SAMPLES = 64 };
static char *folder, *index_path, *shard_file;

TEST(each_shard_holds_whole_samples)
{
    struct shards s;
    char *many = fixture_shards("shards-whole", 300, 60);
    assert_int_equal(shards_open(&s, many, "train"), 0);
    assert_true(s.shard_count > 3);
    for (i64 i = 0; i < s.sample_count; i++) {
        struct shard_sample sample = shards_sample(&s, i);
        for (i64 k = 1; k < sample.parts; k++)
            assert_int_equal(shards_part(&s, (i64)sample.first_part + k)->shard,
                             shards_part(&s, (i64)sample.first_part)->shard);
    }
    shards_close(&s);
    assert_int_equal(directory_remove(many), 0);
    memory_free(many);
}

static int make(void **state)
{
    (void)state;
    folder = fixture_shards("shards", SAMPLES, 40);
    index_path = path_join(folder, "train/index");
    shard_file = path_join(folder, "train/00001.shard");
    return 0;
}

static int clear(void **state)
{
    (void)state;
    directory_remove(folder);
    memory_free(folder);
    memory_free(index_path);
    memory_free(shard_file);
    return 0;
}

TEST(what_is_written_is_read)
{
    struct shards s;
    if (shards_open(&s, folder, "train") < 0)
        fail_msg("%s", error_text());
    assert_int_equal(s.sample_count, SAMPLES);
    assert_true(s.shard_count > 2);
    assert_string_equal(shards_name(&s, 9), "sample:9");
    assert_int_equal(shards_verify(&s), 0);
    const struct shard_sample *text = &s.folders[0].samples[8];
    assert_int_equal(text->direction, DIRECTION_TEXT);
    assert_int_equal(text->parts, 2);
    const i32 *ids = shards_payload(&s, (i64)text->first_part);
    assert_int_equal(ids[0], 108);
    assert_memory_equal(shards_payload(&s, (i64)text->first_part + 1), "a note", 6);
    for (i64 i = 0; i < s.part_count; i++)
        shards_prefetch(&s, i);
    shards_close(&s);
}

TEST(meta_reads_back)
{
    struct shard_meta meta;
    assert_int_equal(shard_meta_load(&meta, folder), 0);
    assert_int_equal(meta.shapes[1].shape.video, true);
    assert_int_equal(meta.shapes[0].shape.scales[2].w, 4);
    assert_true(meta.shapes[0].amplitude[1] == 0.4f);
}

static void spoil(const char *path, i64 at, u8 flip)
{
    FILE *file = fopen(path, "r+b");
    int byte = (fseek(file, at, SEEK_SET), fgetc(file));
    fseek(file, at, SEEK_SET);
    fputc(byte ^ flip, file);
    fclose(file);
}

static void refused(const char *path, const char *says)
{
    struct shards s;
    int status = shards_open(&s, folder, "train");
    if (status == 0) {
        status = shards_verify(&s);
        shards_close(&s);
    }
    assert_int_equal(status, -1);
    if (!strstr(error_text(), path) || !strstr(error_text(), says))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", error_text(), path, says);
}

/* A shard ends at the first break at which it has shard_bytes, to the byte. */
TEST(a_shard_ends_at_its_size)
{
    static const struct {
        i64 shard_bytes, first, second; /* bytes: a header of 16, and 64 a sample */
    } cases[] = {{144, 144, 144}, {145, 208, 80}};
    char *path = string_format("%s-sizes", folder), *first = path_join(path, "00000.shard"),
         *second = path_join(path, "00001.shard");
    for (i64 k = 0; k < COUNT_OF(cases); k++) {
        static const u8 payload[64];
        assert_int_equal(directory_remove(path), 0);
        struct shard_writer *w = shard_writer_open(path, &fixture_meta, cases[k].shard_bytes);
        assert_non_null(w);
        for (i64 i = 0; i < 4; i++) {
            struct shard_part part = {.kind = PART_NOTE};
            shard_write_payload(w, &part, payload, sizeof payload);
            shard_write_sample(w, DIRECTION_TEXT, "s", &part, 1);
            shard_write_break(w);
        }
        assert_int_equal(shard_writer_close(w), 0);
        assert_int_equal(file_bytes(first), cases[k].first);
        assert_int_equal(file_bytes(second), cases[k].second);
    }
    assert_int_equal(directory_remove(path), 0);
    memory_free(path);
    memory_free(first);
    memory_free(second);
}

/* Sides of a shape in cells: 1 to 1024. */
TEST(sides_of_a_shape_have_a_limit)
{
    static const struct {
        i64 h, w;
        bool good;
    } cases[] = {{1024, 4, true}, {4, 1024, true}, {1025, 4, false}, {4, 1025, false}, {0, 4, false}, {4, 0, false}};
    char *path = string_format("%s-sides", folder);
    assert_int_equal(directory_make(path), 0);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct shard_meta meta = fixture_meta, read;
        meta.shapes[0].h = cases[i].h;
        meta.shapes[0].w = cases[i].w;
        assert_int_equal(shard_meta_save(&meta, path), 0);
        if ((shard_meta_load(&read, path) == 0) != cases[i].good)
            fail_msg("%lld x %lld: %s", (long long)cases[i].h, (long long)cases[i].w, error_text());
    }
    assert_int_equal(directory_remove(path), 0);
    memory_free(path);
}

TEST(any_changed_byte_of_the_index_is_noticed)
{
    i64 bytes = file_bytes(index_path);
    for (i64 at = 0; at < bytes; at += at < 64 ? 1 : 37) {
        spoil(index_path, at, 0x10);
        refused(index_path, "");
        spoil(index_path, at, 0x10);
    }
}

TEST(changed_payloads_are_named_with_their_place)
{
    struct shards s;
    assert_int_equal(shards_open(&s, folder, "train"), 0);
    i64 part = s.part_count / 2;
    char *path = string_format("%s/train/%05u.shard", folder, s.folders[0].parts[part].shard), says[64];
    snprintf(says, sizeof says, "byte %llu", (unsigned long long)s.folders[0].parts[part].offset);
    i64 at = (i64)(s.folders[0].parts[part].offset + s.folders[0].parts[part].bytes / 2);
    shards_close(&s);
    spoil(path, at, 1);
    refused(path, says);
    spoil(path, at, 1);
    memory_free(path);
}

TEST(shards_are_mapped_when_a_payload_is_wanted)
{
    struct shards s;
    i64 mapped = 0;
    assert_int_equal(shards_open(&s, folder, "train"), 0);
    assert_true(s.shard_count > 3);
    for (i64 i = 0; i < s.shard_count; i++)
        assert_null(s.folders[0].files[i].data);
    assert_non_null(shards_payload(&s, s.part_count / 2));
    for (i64 i = 0; i < s.shard_count; i++)
        mapped += s.folders[0].files[i].data != NULL;
    assert_int_equal(mapped, 1);
    shards_close(&s);
}

TEST(files_cut_short_are_refused)
{
    const char *paths[] = {index_path, shard_file};
    for (i64 i = 0; i < 2; i++) {
        struct buffer whole = {0};
        assert_int_equal(file_read(&whole, paths[i]), 0);
        const i64 kept[] = {0, 7, 20, whole.length / 2, whole.length - 1};
        for (i64 k = 0; k < COUNT_OF(kept); k++) {
            assert_int_equal(file_replace(paths[i], whole.data, kept[k]), 0);
            refused(paths[i], "short");
        }
        assert_int_equal(file_replace(paths[i], whole.data, whole.length), 0);
        buffer_release(&whole);
    }
}

TEST(other_metas_and_missing_shards_are_refused)
{
    struct shard_meta other = fixture_meta;
    other.bits++;
    assert_int_equal(shard_meta_save(&other, folder), 0);
    refused(index_path, "shards.json");
    assert_int_equal(shard_meta_save(&fixture_meta, folder), 0);
    char *away = string_format("%s.away", shard_file);
    rename(shard_file, away);
    refused(shard_file, "");
    rename(away, shard_file);
    memory_free(away);
}

TEST(an_abandoned_writer_leaves_no_index)
{
    char *path = path_join(folder, "other"), *index = path_join(path, "index");
    struct shard_writer *writer = shard_writer_open(path, &fixture_meta, 1000);
    for (i64 i = 0; i < 8; i++)
        fixture_sample(writer, i, 20);
    shard_writer_abandon(writer);
    assert_false(file_exists(index));
    memory_free(index);
    memory_free(path);
}

TEST(payloads_can_be_shared)
{
    char *path = path_join(folder, "shared");
    struct shard_writer *writer = shard_writer_open(path, &fixture_meta, 1000);
    struct shard_part part = fixture_text(writer, 1, 4);
    shard_write_sample(writer, DIRECTION_TEXT, "a", &part, 1);
    shard_write_sample(writer, DIRECTION_CHAT, "b", &part, 1);
    assert_int_equal(shard_writer_close(writer), 0);
    struct shards s;
    assert_int_equal(shards_open(&s, path, NULL), 0);
    assert_int_equal(s.part_count, 2);
    assert_ptr_equal(shards_payload(&s, 0), shards_payload(&s, 1));
    shards_close(&s);
    memory_free(path);
}

/* Samples 11 and 12 stand in both parts, 11 twice in the held-out one; 1001 to 1003 do not. */
TEST(held_out_samples_of_the_training_part_are_counted)
{
    static const i64 held[] = {11, 1001, 12, 1002, 11, 1003};
    struct shards_common c;
    bool only[DIRECTIONS] = {false};
    char *part = path_join(folder, "held");
    struct shard_writer *writer = shard_writer_open(part, &fixture_meta, 20000);
    assert_non_null(writer);
    for (i64 i = 0; i < COUNT_OF(held); i++)
        fixture_sample(writer, held[i], 40);
    assert_int_equal(shard_writer_close(writer), 0);
    assert_int_equal(shards_in_common(&c, folder, folder, "held", NULL), 0);
    assert_int_equal(c.heldout, COUNT_OF(held));
    assert_int_equal(c.common, 3);
    only[12 % FIXTURE_DIRECTIONS] = true;
    assert_int_equal(shards_in_common(&c, folder, folder, "held", only), 0);
    assert_int_equal(c.common, 1);
    assert_int_equal(shards_in_common(&c, folder, folder, "none", NULL), 0);
    assert_int_equal(c.heldout + c.common, 0);
    memory_free(part);
}

int main(void)
{
    return tests_run(make, clear);
}
