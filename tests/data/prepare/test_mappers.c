/* Preparing in parts: n processes that share the files of a folder produce the samples of one
 * process, each in its own folder; a list or a folder of such folders reads as one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/json.h"
#include "data/loader/packer.h"
#include "data/prepare/prepare.h"
#include "tests/files.h"
#include "kernels/kernels.h"
#include "tokenizers/text/text.h"

enum { FILES = 11, PARTS = 3 };
static char *folder, *corpus, *text_folder;
static struct device device;

static void make_tokenizer(const char *out, i64 vocabulary)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = vocabulary, .special_tokens = grammar_special_tokens});
    assert_int_equal(text_trainer_feed(trainer, "line after line of many words, again and again a line", 54), 0);
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    assert_int_equal(directory_make(out) || text_tokenizer_save(tokenizer, out), 0);
    text_tokenizer_free(tokenizer);
}

static int make(void **state)
{
    (void)state;
    folder = string_format("/dev/shm/weft-mappers-%ld", (long)getpid());
    corpus = path_join(folder, "corpus");
    text_folder = path_join(folder, "bpe");
    directory_remove(folder);
    assert_int_equal(directory_make(corpus), 0);
    device_open_cpu(&device);
    make_tokenizer(text_folder, 330);
    for (i64 i = 0; i < FILES; i++) {
        struct buffer lines = {0};
        char *name = string_format("f%02lld.jsonl", (long long)i);
        for (i64 k = 0; k < 20 + 3 * i; k++)
            buffer_printf(&lines, "{\"text\": \"line %lld of file %lld, again and again\"}\n", (long long)k,
                          (long long)i);
        text_in(corpus, name, lines.data);
        memory_free(name);
        buffer_release(&lines);
    }
    text_in(corpus, "what.xyz", "nobody reads this");
    return 0;
}

static int clear(void **state)
{
    (void)state;
    device_close(&device);
    directory_remove(folder);
    memory_free(folder);
    memory_free(corpus);
    memory_free(text_folder);
    return 0;
}

/* ---- Contents of a folder ---- */

static int prepare(const char *name, const char *part, const char *text)
{
    struct prepare_settings s = {.data = corpus,
                                 .tokenizer[TOKENIZER_TEXT] = (char *)text,
                                 .bad_share = 0.05,
                                 .validation = 0.2,
                                 .dropout = 0.3,
                                 .dropout_copies = 2,
                                 .audio_seconds = 30,
                                 .shard_bytes = 4096,
                                 .part = (char *)part};
    char *out = path_join(folder, name);
    directory_remove(out);
    assert_int_equal(directory_make(out), 0);
    int status = prepare_stage(&s, out, 1, &device, DTYPE_F32);
    memory_free(out);
    return status;
}

static void prepare_parts(const char *under)
{
    for (int i = 0; i < PARTS; i++) {
        char *name = string_format("%s/%d", under, i), *part = string_format("%d/%d", i, PARTS);
        if (prepare(name, part, text_folder) != 0)
            fail_msg("%s", error_text());
        memory_free(name);
        memory_free(part);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the origin and the ids of each sample, as sorted lines. */
static char **samples_of(i64 *count, const char *data, const char *part)
{
    struct shards s;
    if (shards_open(&s, data, part) < 0)
        fail_msg("%s", error_text());
    char **lines = memory_alloc((s.sample_count + 1) * (i64)sizeof *lines);
    for (i64 i = 0; i < s.sample_count; i++) {
        struct buffer line = {0};
        struct shard_sample sample = shards_sample(&s, i);
        const i32 *ids = shards_payload(&s, (i64)sample.first_part);
        buffer_printf(&line, "%s", shards_name(&s, i));
        for (u32 k = 0; k < shards_part(&s, (i64)sample.first_part)->count; k++)
            buffer_printf(&line, " %d", ids[k]);
        lines[i] = line.data;
    }
    *count = s.sample_count;
    shards_close(&s);
    qsort(lines, (size_t)*count, sizeof *lines, by_text);
    return lines;
}

static void expect_same_samples(const char *one, const char *other, const char *part)
{
    i64 count, others;
    char **a = samples_of(&count, one, part), **b = samples_of(&others, other, part);
    assert_int_equal(count, others);
    assert_true(count > 20);
    for (i64 i = 0; i < count; i++) {
        assert_string_equal(a[i], b[i]);
        memory_free(a[i]);
        memory_free(b[i]);
    }
    memory_free(a);
    memory_free(b);
}

static u64 hash_below(const char *path, u64 seed)
{
    char **names;
    i64 count;
    struct buffer content = {0};
    if (!file_is_directory(path)) {
        assert_int_equal(file_read(&content, path), 0);
        seed = hash_bytes(content.data, content.length, seed);
        buffer_release(&content);
        return seed;
    }
    assert_int_equal(directory_list(&names, &count, path), 0);
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(path, names[i]);
        seed = hash_below(below, hash_bytes(names[i], (i64)strlen(names[i]), seed));
        memory_free(below);
    }
    string_list_free(names, count);
    return seed;
}

/* ---- Tests ---- */

TEST(parts_together_are_the_whole)
{
    char *whole = path_join(folder, "whole"), *parts = path_join(folder, "parts");
    assert_int_equal(prepare("whole", NULL, text_folder), 0);
    prepare_parts("parts");
    expect_same_samples(whole, parts, "train");
    expect_same_samples(whole, parts, "validation");
    char *list = string_format("%s/2\n%s/0\n%s/1", parts, parts, parts);
    expect_same_samples(whole, list, "train");
    memory_free(list);
    memory_free(whole);
    memory_free(parts);
}

TEST(copies_of_a_part_are_the_same_bytes)
{
    char *one = path_join(folder, "parts/1"), *other = path_join(folder, "copy");
    assert_int_equal(prepare("copy", "1/3", text_folder), 0);
    assert_true(hash_below(one, 0) == hash_below(other, 0));
    char *both = string_format("%s\n%s", one, other);
    struct shards s;
    assert_int_equal(shards_open(&s, both, "train"), -1);
    assert_non_null(strstr(error_text(), "the same samples"));
    memory_free(both);
    both = string_format("%s\n%s", one, one);
    assert_int_equal(shards_open(&s, both, "train"), -1);
    assert_non_null(strstr(error_text(), "named twice"));
    memory_free(both);
    memory_free(one);
    memory_free(other);
}

TEST(more_parts_than_files_leave_some_empty)
{
    char *empty = path_join(folder, "empty");
    struct shards s;
    assert_int_equal(prepare("empty", "11/12", text_folder), 0);
    assert_int_equal(shards_open(&s, empty, "train"), 0);
    assert_int_equal(s.sample_count, 0);
    shards_close(&s);
    directory_remove(empty);
    memory_free(empty);
}

TEST(a_part_that_cannot_be_is_refused)
{
    static const char *const wrong[] = {"3/3", "-1/3", "1", "1/0", "x/2", "1/2x"};
    for (i64 i = 0; i < COUNT_OF(wrong); i++) {
        assert_int_equal(prepare("wrong", wrong[i], text_folder), -1);
        assert_non_null(strstr(error_text(), wrong[i]));
    }
    char *path = path_join(folder, "wrong");
    directory_remove(path);
    memory_free(path);
}

TEST(what_does_not_belong_together_is_refused)
{
    char *other = path_join(folder, "bpe2"), *parts = path_join(folder, "parts"), *two = path_join(folder, "two");
    struct shards s;
    make_tokenizer(other, 310);
    assert_int_equal(prepare("two/a", "0/3", text_folder), 0);
    assert_int_equal(prepare("two/b", "1/3", other), 0);
    assert_int_equal(shards_open(&s, two, "train"), -1);
    assert_non_null(strstr(error_text(), "other tokenizers (text: vocabulary "));
    assert_non_null(strstr(error_text(), " and 310); prepare both with the same"));
    char *made = path_join(parts, "3"), *partial = path_join(parts, "3.partial"), *from = path_join(folder, "two/a");
    assert_int_equal(rename(from, partial), 0);
    assert_int_equal(shards_open(&s, parts, "train"), -1);
    assert_non_null(strstr(error_text(), "not finished"));
    assert_int_equal(directory_remove(partial), 0);
    assert_int_equal(shards_open(&s, corpus, "train"), -1);
    assert_non_null(strstr(error_text(), "no shards.json"));
    char *all[] = {other, parts, two, made, partial, from};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

TEST(the_packer_shows_every_sample_of_all_parts)
{
    static i64 zero[1];
    static double rows[] = {4}, length[] = {256};
    char *parts = path_join(folder, "parts");
    struct loader_settings settings = {
        .rows = {zero, rows, 1}, .length = {zero, length, 1}, .micro_rows = 4, .mixture = {1}, .in_order = true};
    struct loader *loader = loader_open(parts, "train", &settings, 1);
    struct loader_step step = {.rows = 1};
    struct batch batch;
    struct arena arena;
    struct shards s;
    i64 shown = 0;
    if (!loader)
        fail_msg("%s", error_text());
    arena_open(&arena, (i64)1 << 28);
    for (i64 i = 0; step.rows; i++) {
        assert_int_equal(loader_step(loader, i, &step), 0);
        shown += step.samples;
        if (step.rows && loader_batch(loader, i, 0, &batch, &arena) < 0)
            fail_msg("%s", error_text());
        arena_reset(&arena, 0);
    }
    assert_int_equal(shards_open(&s, parts, "train"), 0);
    assert_int_equal(shown, s.sample_count);
    shards_close(&s);
    arena_close(&arena);
    loader_close(loader);
    memory_free(parts);
}

/* ---- Resuming ---- */

static void read_rest(struct buffer *out, struct source *source, i64 most)
{
    struct sample sample;
    enum source_result result;
    while (most-- && (result = source_next(source, &sample)) != SOURCE_END) {
        buffer_printf(out, "%s\n", result == SOURCE_SAMPLE ? sample.name : error_text());
        sample_release(&sample);
    }
}

TEST(a_source_goes_on_without_the_files_before)
{
    static const struct source_request request = {.validation = 0.2, .job = 1, .jobs = 3};
    struct buffer all = {0}, first = {0}, rest = {0};
    struct source *source = source_open(corpus, &request);
    read_rest(&all, source, -1);
    source_close(source);
    source = source_open(corpus, &request);
    read_rest(&first, source, 60); /* within f04.jsonl, after the 23 of f01.jsonl */
    struct json *reached = source_state(source);
    source_close(source);
    char *path = path_join(corpus, "f01.jsonl");
    struct buffer kept = {0};
    assert_int_equal(file_read(&kept, path) || file_replace(path, "\n", 1), 0);
    source = source_open(corpus, &request);
    assert_int_equal(source_resume(source, reached), 0);
    read_rest(&rest, source, -1);
    source_close(source);
    char *both = string_format("%s%s", first.data, rest.data);
    assert_string_equal(all.data, both);
    assert_int_equal(file_replace(path, kept.data, kept.length), 0);
    json_free(reached);
    memory_free(both);
    memory_free(path);
    struct buffer *texts[] = {&all, &first, &rest, &kept};
    for (i64 i = 0; i < COUNT_OF(texts); i++)
        buffer_release(texts[i]);
}

/* ---- Room ---- */

TEST(it_stops_before_the_disk_is_full_and_goes_on)
{
    char *whole = path_join(folder, "whole/train"), *out = path_join(folder, "room"), *train = path_join(out, "train");
    struct prepare_settings s = {.data = corpus,
                                 .tokenizer[TOKENIZER_TEXT] = text_folder,
                                 .bad_share = 0.05,
                                 .validation = 0.2,
                                 .dropout = 0.3,
                                 .dropout_copies = 2,
                                 .audio_seconds = 30,
                                 .shard_bytes = 4096};
    assert_int_equal(directory_make(out), 0);
    setenv("WEFT_SPARE_BYTES", "1e18", 1);
    assert_int_equal(prepare_stage(&s, out, 1, &device, DTYPE_F32), -1);
    assert_non_null(strstr(error_text(), "free disk space and run again"));
    unsetenv("WEFT_SPARE_BYTES");
    assert_int_equal(prepare_stage(&s, out, 1, &device, DTYPE_F32), 0);
    assert_true(hash_below(whole, 0) == hash_below(train, 0));
    memory_free(whole);
    memory_free(out);
    memory_free(train);
}

TEST(what_it_will_write_is_estimated)
{
    struct prepare_settings s = {.data = corpus,
                                 .tokenizer[TOKENIZER_TEXT] = text_folder,
                                 .bad_share = 0.05,
                                 .dropout_copies = 1,
                                 .audio_seconds = 30,
                                 .shard_bytes = 1 << 20};
    struct prepare_estimate e;
    double made = 0;
    char *out = path_join(folder, "estimated");
    assert_int_equal(prepare_estimate(&e, &s, &device), 0);
    assert_int_equal(e.files, FILES);
    assert_int_equal(directory_make(out) || prepare_stage(&s, out, 1, &device, DTYPE_F32), 0);
    for (int split = 0; split < SPLITS; split++) {
        char *index = string_format("%s/%s/index", out, split_names[split]),
             *shard = string_format("%s/%s/00000.shard", out, split_names[split]);
        made += (double)(file_bytes(index) + (file_exists(shard) ? file_bytes(shard) : 0));
        memory_free(index);
        memory_free(shard);
    }
    assert_float_equal(e.made / made, 1, 0.02);
    memory_free(out);
}

/* Ids of other programs end with the end token of a document or without it (`preprocess_data.py
 * --append-eod` of Megatron): a shard holds them without it, for a sample ends with it anyway. */
TEST(given_ids_are_kept_without_their_end)
{
    /* Megatron's own writer: documents of 3 and 2 ids as u16. */
    static const u8 index[] = {0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0,
                               0,    0,    0,    0,    0,    3,    0,    0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
                               0,    0,    0,    0,    0,    0,    0,    0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                               0,    0,    0,    1,    0,    0,    0,    0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
    char *given = path_join(folder, "given"), *out = path_join(folder, "from-ids");
    char *names[] = {path_join(given, "m.idx"), path_join(given, "m.bin")};
    struct prepare_settings s = {
        .data = given, .tokenizer[TOKENIZER_TEXT] = text_folder, .shard_bytes = 4096, .audio_seconds = 30};
    struct text_tokenizer *tokenizer = text_tokenizer_load(text_folder);
    assert_non_null(tokenizer);
    const u16 ids[] = {41, 42, (u16)text_token_id(tokenizer, "<|endoftext|>"), 44, 45};
    assert_int_equal(directory_make(given) || directory_make(out), 0);
    assert_int_equal(file_replace(names[0], (const char *)index, sizeof index), 0);
    assert_int_equal(file_replace(names[1], (const char *)ids, sizeof ids), 0);
    if (prepare_stage(&s, out, 1, &device, DTYPE_F32))
        fail_msg("%s", error_text());
    i64 count;
    char **lines = samples_of(&count, out, "train");
    assert_int_equal(count, 2);
    assert_string_equal(strchr(lines[0], ' '), " 41 42");
    assert_string_equal(strchr(lines[1], ' '), " 44 45");
    for (i64 i = 0; i < 2; i++) {
        memory_free(lines[i]);
        memory_free(names[i]);
    }
    text_tokenizer_free(tokenizer);
    memory_free(lines);
    memory_free(given);
    memory_free(out);
}

int main(void)
{
    return tests_run(make, clear);
}
