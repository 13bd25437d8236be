/* Preparing from addresses: after a server outage, a second call continues to the same bytes; parts
 * and estimates match those of local files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/prepare/prepare.h"
#include "data/remote/remote.h"
#include "kernels/kernels.h"
#include "sequence/grammar.h"
#include "tests/http_server.h"
#include "tests/scratch.h"
#include "tokenizers/text/text.h"

enum { FILES = 4, LINES = 700 };
static struct device device;
static struct server server;
static struct served_file files[FILES];
static struct buffer contents[FILES];
static char names[FILES][32], *data;
static const char *const written[] = {"train/index", "train/00000.shard", "validation/index", "validation/00000.shard"};

static void make_tokenizer(void)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 330, .special_tokens = grammar_special_tokens});
    assert_int_equal(text_trainer_feed(trainer, "line after line of many words, again and again a line", 54), 0);
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    assert_int_equal(directory_make(path_of("bpe")) || text_tokenizer_save(tokenizer, path_of("bpe")), 0);
    text_tokenizer_free(tokenizer);
}

static int make(void **state)
{
    remote_retry = (struct remote_retry){
        .tries = 3, .tries_unknown = 2, .pause_s = 0.01, .pause_most_s = 0.02, .stall_s = TEST_SECONDS_MOST};
    setenv("no_proxy", "*", 1);
    if (make_directory(state) < 0)
        return -1;
    device_open_cpu(&device);
    make_tokenizer();
    for (int i = 0; i < FILES; i++) {
        for (int k = 0; k < LINES; k++)
            buffer_printf(&contents[i], "{\"text\": \"line %d of file %d, again and again\"}\n", k, i);
        snprintf(names[i], sizeof names[i], "/d/f-%02d.jsonl", i);
        files[i] = (struct served_file){
            .path = names[i], .bytes = contents[i].data, .count = contents[i].length, .etag = "\"1\""};
        assert_int_equal(directory_make(path_of("d")), 0);
        assert_int_equal(file_replace(path_of(names[i]), contents[i].data, contents[i].length), 0);
    }
    server_open(&server, files, FILES);
    data = string_format("%s/d/f-{00..%02d}.jsonl", server.url, FILES - 1);
    return 0;
}

static int clear(void **state)
{
    server_close(&server);
    device_close(&device);
    memory_free(data);
    for (int i = 0; i < FILES; i++)
        buffer_release(&contents[i]);
    return remove_directory(state);
}

static struct prepare_settings settings_of(char *from, char *part)
{
    return (struct prepare_settings){.data = from,
                                     .tokenizer[TOKENIZER_TEXT] = path_of("bpe"),
                                     .bad_share = 0.05,
                                     .validation = 0.2,
                                     .dropout_copies = 1,
                                     .audio_seconds = 30,
                                     .shard_bytes = 1 << 20,
                                     .part = part};
}

static int prepare(const char *out, char *from, char *part)
{
    struct prepare_settings s = settings_of(from, part);
    return directory_make(path_of(out)) < 0 ? -1 : prepare_stage(&s, path_of(out), 1, &device, DTYPE_F32);
}

static u64 hash_of_file(const char *out, const char *file, i64 *bytes)
{
    struct buffer content = {0};
    char *path = string_format("%s/%s", path_of(out), file);
    assert_int_equal(file_read(&content, path), 0);
    u64 hash = hash_bytes(content.data, content.length, 0);
    *bytes = content.length;
    buffer_release(&content);
    memory_free(path);
    return hash;
}

static u64 hash_of(const char *out, i64 *bytes)
{
    u64 hash = 0;
    *bytes = 0;
    for (i64 i = 0, count; i < COUNT_OF(written); i++, *bytes += count)
        hash = 31 * hash + hash_of_file(out, written[i], &count);
    return hash;
}

static void shut(int file, int status)
{
    pthread_mutex_lock(&server.lock);
    files[file].status = status;
    pthread_mutex_unlock(&server.lock);
}

/* The progress saved counts no sample of the batch that was cut off: all that were read are
 * written. */
static void assert_all_read_are_written(const char *out)
{
    char *path = string_format("%s/progress.json", path_of(out));
    struct json *j = json_load(path);
    const struct json *counts = json_get(j, "counts"); /* samples, records, read, .. */
    i64 samples = 0;
    assert_non_null(counts);
    for (int split = 0; split < SPLITS; split++)
        samples += json_integer(json_at(counts, split), -1);
    assert_true(samples > 0);
    assert_int_equal(json_integer(json_at(counts, SPLITS + SPLITS * DIRECTIONS), -1), samples);
    json_free(j);
    memory_free(path);
}

TEST(what_a_server_leaves_is_gone_on_with)
{
    succeed(prepare("whole", data, NULL));
    pthread_mutex_lock(&server.lock);
    files[2].cuts = 1000;
    files[2].part = 1000;
    pthread_mutex_unlock(&server.lock);
    assert_int_equal(prepare("broken", data, NULL), -1);
    assert_says("/d/f-02.jsonl: byte 3000:");
    assert_says("giving up after 3 tries");
    assert_all_read_are_written("broken");
    pthread_mutex_lock(&server.lock);
    files[2].cuts = files[0].requests = 0;
    pthread_mutex_unlock(&server.lock);
    succeed(prepare("broken", data, NULL));
    assert_int_equal(files[0].requests, 1); /* for its size: it is not read again */
    i64 bytes;
    assert_true(hash_of("broken", &bytes) == hash_of("whole", &bytes));
    shut(1, 404);
    assert_int_equal(prepare("none", data, NULL), -1);
    assert_says("/d/f-01.jsonl: HTTP 404: there is no such file");
    shut(1, 0);
}

/* Compares shards except the names in the index. */
static void assert_same_shards(const char *here, const char *there)
{
    i64 bytes;
    for (int i = 1; i < COUNT_OF(written); i += 2)
        assert_true(hash_of_file(here, written[i], &bytes) == hash_of_file(there, written[i], &bytes));
}

TEST(they_become_what_files_of_a_disk_do)
{
    succeed(prepare("disk", path_of("d"), NULL));
    assert_same_shards("disk", "whole");
    succeed(prepare("disk1", path_of("d"), "1/3"));
    succeed(prepare("part1", data, "1/3"));
    assert_same_shards("disk1", "part1");
}

TEST(what_it_will_write_is_estimated)
{
    struct prepare_estimate e;
    i64 made;
    hash_of("whole", &made);
    struct prepare_settings s = settings_of(data, NULL);
    succeed(prepare_estimate(&e, &s, &device));
    assert_int_equal(e.files, FILES);
    assert_float_equal(e.made / (double)made, 1, 0.05);
    shut(3, 500);
    assert_int_equal(prepare_estimate(&e, &s, &device), -1);
    assert_says("HTTP 500: giving up after 3 tries");
    shut(3, 0);
}

int main(void)
{
    return tests_run(make, clear);
}
