/* Parts prepared separately, then the stage dedup over them: the kept samples against those of a
 * single call, for known numbers of exact and near duplicates. */
#include "data/curate/curate.h"
#include "data/curate/dedup.h"
#include "tests/prepare_fixture.h"

#include <sys/stat.h>

enum { PARTS = 4, FILES = 8, TEXTS = 40, WORDS = 60, ORIGINALS = 200 };
static const struct rng_key key = {31, RNG_TEST};

/* Prints text `of` with its first `changed` words replaced. */
static void put_line(struct buffer *out, i64 of, i64 changed, i64 draw)
{
    buffer_printf(out, "{\"text\": \"");
    for (i64 w = 0; w < WORDS; w++)
        buffer_printf(out, "%sw%lld", w ? " " : "",
                      (long long)rng_below(key, 5000, (u32)(w < changed ? draw : of), 1, (u32)w, w < changed));
    buffer_printf(out, "\"}\n");
}

/* Writes files whose last texts copy texts of other files exactly or with 2 words changed. */
static void put_files(void)
{
    i64 next = 0, draw = 100000;
    for (i64 file = 0; file < FILES; file++) {
        struct buffer lines = {0};
        char name[32];
        snprintf(name, sizeof name, "data/%lld.jsonl", (long long)file);
        for (i64 i = 0; i < TEXTS; i++, draw++) {
            bool copy = i >= ORIGINALS / FILES;
            i64 of = copy ? rng_below(key, ORIGINALS, (u32)draw, 2, 0, 0) : next++;
            put_line(&lines, of, copy && i % 2 ? 2 : 0, draw);
        }
        memory_free(put_file(name, lines.data, lines.length));
        buffer_release(&lines);
    }
}

static char *part_paths(void)
{
    struct buffer list = {0};
    for (int i = 0; i < PARTS; i++)
        buffer_printf(&list, "%s%s/parts/%d", i ? "\n" : "", directory, i);
    return list.data;
}

static void prepare_parts(int duplicates)
{
    char *data = path_join(directory, "data"), *text = path_join(directory, "bpe");
    struct prepare_settings s = prepare_text_settings(data, text);
    s.filter.duplicates = duplicates;
    directory_remove(path_of("parts"));
    directory_remove(path_of("whole"));
    for (int i = 0; i < PARTS; i++) {
        char part[16], out[128];
        snprintf(part, sizeof part, "%d/%d", i, PARTS);
        snprintf(out, sizeof out, "%s/parts/%d", directory, i);
        prepare_in(&s, out, part, "");
    }
    prepare_in(&s, path_of("whole"), "", "");
    memory_free(data);
    memory_free(text);
}

static i64 count_lines(const char *text)
{
    i64 lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static int make(void **state)
{
    if (make_directory(state) < 0)
        return -1;
    prepare_tokenizer(path_of("bpe"));
    succeed(directory_make(path_of("data")));
    put_files();
    return 0;
}

static void dedup(int duplicates, i64 memory_bytes)
{
    char *paths = part_paths();
    directory_remove(path_of("out"));
    succeed(directory_make(path_of("out")));
    succeed(dedup_stage(&(struct dedup_settings){.data = paths, .duplicates = duplicates, .memory_bytes = memory_bytes},
                        path_of("out")));
    memory_free(paths);
}

TEST(exact_duplicates_of_parts_are_those_of_one_call)
{
    struct shards shards;
    struct stat a, b;
    prepare_parts(DUPLICATES_EXACT);
    dedup(DEDUP_EXACT, 1 << 20);
    char *whole = samples_of(path_of("whole")), *before = samples_of(path_of("parts")),
         *out = samples_of(path_of("out"));
    assert_string_equal(out, whole);
    assert_true(count_lines(before) > count_lines(whole));
    succeed(shards_open(&shards, path_of("out"), "train"));
    succeed(shards_verify(&shards));
    assert_int_equal(shards.folder_count, PARTS);
    shards_close(&shards);
    assert_int_equal(stat(path_of("parts/1/train/00000.shard"), &a) || stat(path_of("out/00001/train/00000.shard"), &b),
                     0);
    assert_int_equal(a.st_ino, b.st_ino);
    char *all[] = {whole, before, out};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* The result has no duplicates, is reproducible byte for byte, and is recognized by filter.seen and
 * by a second dedup. */
TEST(near_duplicates_of_parts_are_left_out)
{
    char *data = path_join(directory, "data"), *text = path_join(directory, "bpe"),
         *deduped = path_join(directory, "out");
    struct prepare_settings s = prepare_text_settings(data, text);
    prepare_parts(DUPLICATES_NEAR);
    dedup(DEDUP_NEAR, 1 << 20);
    char *whole = samples_of(path_of("whole")), *before = samples_of(path_of("parts")), *out = samples_of(deduped);
    assert_in_range(count_lines(out), ORIGINALS, ORIGINALS * 103 / 100);
    assert_in_range(count_lines(whole), ORIGINALS, ORIGINALS * 103 / 100);
    assert_true(count_lines(before) > ORIGINALS * 115 / 100);
    succeed(rename(path_of("out"), path_of("first")));
    dedup(DEDUP_NEAR, 1 << 20);
    char *again = samples_of(deduped);
    assert_string_equal(again, out);
    struct buffer one = {0}, other = {0};
    succeed(file_read(&one, path_of("first/00002/train/index")));
    succeed(file_read(&other, path_of("out/00002/train/index")));
    assert_int_equal(one.length, other.length);
    assert_memory_equal(one.data, other.data, one.length);
    directory_remove(path_of("second"));
    succeed(directory_make(path_of("second")));
    succeed(dedup_stage(&(struct dedup_settings){.data = deduped, .duplicates = DEDUP_NEAR, .memory_bytes = 1 << 20},
                        path_of("second")));
    char *second = samples_of(path_of("second"));
    assert_string_equal(second, out);
    struct device device;
    device_open_cpu(&device);
    s.filter.seen = deduped;
    succeed(directory_make(path_of("new")));
    s.filter.duplicates = DUPLICATES_NEAR;
    s.part = (char *)(uintptr_t) "0/8"; /* may be empty */
    succeed(prepare_stage(&s, path_of("new"), 1, &device, DTYPE_F32));
    char *new = samples_of(path_of("new"));
    assert_int_equal(new ? count_lines(new) : 0, 0);
    device_close(&device);
    buffer_release(&one);
    buffer_release(&other);
    char *all[] = {whole, before, out, again, second, new, data, text, deduped};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* Texts that differ only in non-word characters count as equal; exact mode alone keeps near
 * duplicates. */
TEST(exact_alone_keeps_near_ones)
{
    dedup(DEDUP_EXACT, 1 << 20);
    char *out = samples_of(path_of("out"));
    assert_true(count_lines(out) > ORIGINALS * 103 / 100);
    memory_free(out);
}

TEST(what_cannot_be_told_is_refused)
{
    char *paths = part_paths();
    struct dedup_settings s = {.data = paths, .duplicates = DEDUP_NEAR, .memory_bytes = 1 << 20};
    directory_remove(path_of("out"));
    succeed(directory_make(path_of("out")));
    succeed(file_copy(path_of("parts/1/keys"), path_of("parts/0/keys"))); /* keys of other shards */
    assert_int_equal(dedup_stage(&s, path_of("out")), -1);
    assert_says("parts/1: it has keys for");
    succeed(file_replace(path_of("parts/1/keys"), "12345678abc", 11));
    assert_int_equal(dedup_stage(&s, path_of("out")), -1);
    assert_says("invalid key entry");
    succeed(remove(path_of("parts/1/keys")));
    assert_int_equal(dedup_stage(&s, path_of("out")), -1);
    assert_says("prepared with filter.duplicates");
    memory_free(paths);
}

int main(void)
{
    return tests_run(make, remove_directory);
}
