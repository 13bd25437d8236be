/* Remote files: every format reads as from a disk, over connections that break, stall or are
 * refused for a while; a file that changes during reading, a server without ranges, and credentials
 * are handled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/remote/blob.h"
#include "data/remote/remote.h"
#include "data/sources/sources.h"
#include "tests/http_server.h"
#include "tests/source_text.h"
#include "tests/tar_text.h"
#include "tests/test.h"

static struct server server;

static int quickly(void **state)
{
    (void)state;
    remote_retry = (struct remote_retry){
        .tries = 4, .tries_unknown = 2, .pause_s = 0.01, .pause_most_s = 0.02, .stall_s = TEST_SECONDS_MOST};
    setenv("no_proxy", "*", 1);
    unsetenv("AWS_ENDPOINT_URL_S3");
    log_set_level(LOG_QUIET);
    return 0;
}

/* ---- one file ---- */

static void make_tar(struct buffer *tar, int samples)
{
    for (int i = 0; i < samples; i++) {
        char name[32], text[4096];
        snprintf(name, sizeof name, "%04d.txt", i);
        memset(text, 'a' + i % 26, sizeof text);
        text[sizeof text - 1] = 0;
        tar_member(tar, name, text);
        snprintf(name, sizeof name, "%04d.png", i);
        tar_member(tar, name, text + i % 4000);
    }
    tar_end(tar);
}

/* Appends the samples at the address, one per line, and the error that ended reading. */
static void read_served(struct buffer *out, struct served_file *file)
{
    server_open(&server, file, 1);
    char *address = string_format("%s%s", server.url, file->path);
    source_print(out, address);
    memory_free(address);
    server_close(&server);
}

static void assert_reads(struct served_file *file, const char *expected)
{
    struct buffer drawn = {0};
    read_served(&drawn, file);
    if (strcmp(drawn.data ? drawn.data : "", expected) != 0)
        fail_msg("%s: %.2000s\nis not\n%.2000s", file->path, drawn.data ? drawn.data : "", expected);
    buffer_release(&drawn);
}

TEST(formats_give_what_they_give_from_a_disk)
{
    static const char *const names[] = {"text.parquet",    "cauldron.parquet", "chat.parquet",   "chat.arrow",
                                        "sharegpt.arrow",  "qa.csv",           "qa.json",        "alpaca.jsonl",
                                        "packed.jsonl.xz", "packed.csv.lz4",   "packed.json.bz2"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *path = string_format("%s/tables/forms/%s", GOLDEN, names[i]), *served = string_format("/%s", names[i]);
        struct buffer bytes = {0}, expected = {0};
        assert_int_equal(file_read(&bytes, path), 0);
        source_print(&expected, path);
        assert_true(expected.length > 20 && !strstr(expected.data, "damaged"));
        assert_reads(&(struct served_file){.path = served, .bytes = bytes.data, .count = bytes.length, .etag = "\"1\""},
                     expected.data);
        buffer_release(&bytes);
        buffer_release(&expected);
        memory_free(path);
        memory_free(served);
    }
}

static struct buffer tar, tar_reads; /* 200 samples in 1.6 MB, and their expected listing */

static int make(void **state)
{
    make_tar(&tar, 200);
    read_served(&tar_reads, &(struct served_file){.path = "/a.tar", .bytes = tar.data, .count = tar.length});
    return quickly(state);
}

static int clear(void **state)
{
    (void)state;
    buffer_release(&tar);
    buffer_release(&tar_reads);
    return 0;
}

static struct served_file a_tar(void)
{
    return (struct served_file){
        .path = "/a.tar", .bytes = tar.data, .count = tar.length, .etag = "\"1\"", .part = 500000};
}

TEST(a_tar_is_its_samples)
{
    i64 lines = 0;
    for (const char *c = tar_reads.data; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 200);
    assert_null(strstr(tar_reads.data, "damaged"));
    assert_non_null(strstr(tar_reads.data, "captioned image"));
}

TEST(what_breaks_goes_on_where_it_was)
{
    struct served_file reset = a_tar(), stall = a_tar(), cut = a_tar(), busy = a_tar(), plain = a_tar();
    reset.resets = 2;
    assert_reads(&reset, tar_reads.data);
    assert_int_equal(reset.requests, 4);      /* one of them for the size */
    assert_true(reset.last_first <= 1000000); /* bytes received before a reset may be lost */
    assert_non_null(strstr(reset.last, "If-Match: \"1\""));
    struct remote_retry usual = remote_retry;
    stall.stalls = 1;
    remote_retry.stall_s = 0.2;
    /* enough even if the server is slow for other reasons */
    remote_retry.tries = remote_retry.tries_unknown = 1000;
    assert_reads(&stall, tar_reads.data);
    assert_true(stall.stalls == 0 && stall.last_first >= 500000);
    remote_retry = usual;
    cut.cuts = 2;
    assert_reads(&cut, tar_reads.data);
    assert_int_equal(cut.last_first, 1000000);
    busy.unavailable = 2;
    assert_reads(&busy, tar_reads.data);
    assert_int_equal(busy.requests, 4);
    assert_reads(&plain, tar_reads.data);
    assert_int_equal(plain.requests, 2);
    assert_int_equal(plain.with_range, 1);
}

TEST(a_server_without_ranges_begins_anew)
{
    struct served_file file = a_tar(), unnamed = a_tar();
    file.no_ranges = true;
    file.cuts = 2;
    assert_reads(&file, tar_reads.data);
    assert_int_equal(file.last_first, 500000);
    unnamed.no_ranges = unnamed.no_length = true; /* the connection's end marks the file's end */
    unnamed.etag = NULL;
    assert_reads(&unnamed, tar_reads.data);
}

static void assert_ends(struct served_file *file, const char *said, const char *also)
{
    struct buffer drawn = {0};
    read_served(&drawn, file);
    if (!drawn.data || !strstr(drawn.data, said) || !strstr(drawn.data, also) || strstr(drawn.data, "damaged"))
        fail_msg("...%s\ndoes not say %s", drawn.data + max_i64(0, drawn.length - 400), said);
    buffer_release(&drawn);
}

TEST(a_file_that_changes_is_not_read_on)
{
    struct served_file file = a_tar(), longer = a_tar();
    file.cuts = 1;
    file.later = "\"2\"";
    assert_ends(&file, "unreachable: http://127.0.0.1", "changed");
    longer.etag = longer.later = NULL; /* then its size reveals the change */
    server_open(&server, &longer, 1);
    char *address = string_format("%s/a.tar", server.url);
    struct blob *blob = blob_open(address);
    char first[16];
    assert_int_equal(blob_read_at(blob, first, 0, 16), 0);
    pthread_mutex_lock(&server.lock);
    longer.count -= 512;
    pthread_mutex_unlock(&server.lock);
    i64 count;
    for (char block[4096]; (count = blob_read(blob, block, sizeof block)) > 0;)
        ;
    assert_int_equal(count, -1);
    assert_non_null(strstr(error_text(), "changed"));
    blob_close(blob);
    memory_free(address);
    server_close(&server);
}

TEST(files_beside_are_not_asked_for)
{
    static const char line[] = "{\"image\": \"/etc/passwd\", \"text\": \"a\"}\n{\"text\": \"b\"}\n";
    struct served_file file = {.path = "/a.jsonl", .bytes = line, .count = sizeof line - 1};
    server_open(&server, &file, 1);
    char *address = string_format("%s/a.jsonl", server.url);
    struct source *source = source_open(address, NULL);
    struct sample sample;
    assert_int_equal(source_next(source, &sample), SOURCE_BAD);
    assert_non_null(strstr(error_text(), "/a.jsonl:1: /etc/passwd: media beside an address"));
    assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
    sample_release(&sample);
    source_close(source);
    server_close(&server);
    memory_free(address);
}

/* Writes the golden bytes of Megatron's own writer, as in test_sources.c, many times over. */
static void make_pair(struct buffer *index, struct buffer *ids, i64 documents)
{
    buffer_append(index, "MMIDIDX\0\0\1\0\0\0\0\0\0\0\x8", 18);
    i64 counts[] = {documents, documents + 1};
    buffer_append(index, counts, 16);
    for (i64 i = 0; i < documents; i++)
        buffer_append(index, &(i32){(i32)(i % 300)}, 4);
    for (i64 i = 0; i < documents; i++) {
        buffer_append(index, &ids->length, 8);
        for (u16 k = 0; k < i % 300; k++)
            buffer_append(ids, &(u16){(u16)(i + k)}, 2);
    }
    for (i64 i = 0; i <= documents; i++)
        buffer_append(index, &i, 8);
}

TEST(pairs_of_index_and_ids_are_read_by_windows)
{
    struct buffer index = {0}, ids = {0}, here = {0}, there = {0};
    char folder[] = "/tmp/weft-test.XXXXXX";
    make_pair(&index, &ids, 20000); /* 400 KB and 6 MB: more than a window and a block */
    char *path = string_format("%s/m.idx", mkdtemp(folder)), *beside = string_format("%s/m.bin", folder);
    assert_int_equal(file_replace(path, index.data, index.length), 0);
    assert_int_equal(file_replace(beside, ids.data, ids.length), 0);
    source_print(&here, path);
    assert_true(here.length > 20000 * 30 && !strstr(here.data, "damaged"));
    struct served_file files[] = {
        {.path = "/m.idx", .bytes = index.data, .count = index.length, .etag = "\"1\""},
        {.path = "/m.bin", .bytes = ids.data, .count = ids.length, .etag = "\"1\"", .cuts = 2}};
    files[1].part = 100000;
    server_open(&server, files, 2);
    char *addresses[] = {string_format("%s/m.idx", server.url), string_format("%s/m.bin", server.url)};
    for (i64 i = 0; i < 2; i++, buffer_release(&there)) {
        source_print(&there, addresses[i]);
        assert_string_equal(here.data, there.data);
    }
    assert_true(files[1].requests < 16);
    files[1].bytes = "";
    files[1].count = 0;
    files[1].etag = "\"2\"";
    source_print(&there, addresses[0]);
    assert_non_null(strstr(there.data, "bad\n"));
    files[1].status = 404;
    buffer_release(&there);
    source_print(&there, addresses[0]);
    assert_non_null(strstr(there.data, "m.bin: HTTP 404"));
    server_close(&server);
    for (i64 i = 0; i < 2; i++)
        memory_free(addresses[i]);
    assert_int_equal(directory_remove(folder), 0);
    memory_free(path);
    memory_free(beside);
    buffer_release(&index);
    buffer_release(&ids);
    buffer_release(&here);
    buffer_release(&there);
}

TEST(tables_need_ranges)
{
    char *path = string_format("%s/tables/forms/text.parquet", GOLDEN);
    struct buffer bytes = {0}, large = {0};
    assert_int_equal(file_read(&bytes, path), 0);
    struct served_file small = {.path = "/a.parquet", .bytes = bytes.data, .count = bytes.length, .no_ranges = true};
    struct buffer drawn = {0};
    read_served(&drawn, &small); /* a full response is accepted if it holds the range */
    assert_null(strstr(drawn.data, "unreachable"));
    buffer_append(&large, bytes.data, bytes.length);
    while (large.length < 5 << 20)
        buffer_append(&large, bytes.data, bytes.length);
    assert_ends(
        &(struct served_file){.path = "/a.parquet", .bytes = large.data, .count = large.length, .no_ranges = true},
        "unreachable", "the server answers no ranges");
    buffer_release(&drawn);
    buffer_release(&bytes);
    buffer_release(&large);
    memory_free(path);
}

TEST(what_will_not_change_is_asked_for_once)
{
    static const struct {
        int status;
        const char *says;
    } answers[] = {{404, "HTTP 404: there is no such file"},
                   {403, "HTTP 403: it may not be read: credentials of its host are looked for in ~/.netrc"},
                   {418, "HTTP 418: expected 200 or 206"}};
    for (i64 i = 0; i < COUNT_OF(answers); i++) {
        struct served_file file = a_tar();
        file.status = answers[i].status;
        file.bytes = "a secret";
        assert_ends(&file, answers[i].says, "cannot be opened");
        assert_int_equal(file.requests, 1);
    }
}

TEST(patience_ends)
{
    struct served_file file = a_tar(), never = a_tar();
    file.cuts = 100;
    file.part = 100000;
    assert_ends(&file, "1444224 bytes remaining to read", "giving up after 4 tries");
    never.unavailable = 100;
    assert_ends(&never, "HTTP 503: giving up after 4 tries", "cannot be opened");
    assert_int_equal(never.requests, 4);
}

static void expect_given_up(const char *address, const char *message)
{
    u8 byte;
    struct remote *remote = remote_open(address);
    assert_int_equal(remote_read_at(remote, &byte, 0, 1), -1);
    assert_non_null(strstr(error_text(), message));
    remote_close(remote);
}

/* Nobody listens at a closed port; no other test uses this host name. */
TEST(who_never_answered_is_soon_given_up)
{
    struct served_file file = a_tar();
    u8 byte;
    server_open(&server, &file, 1);
    char *address = string_format("http://localhost%s/a.tar", strrchr(server.url, ':')),
         *near = string_format("%s0/a.tar", server.url);
    server_close(&server);
    expect_given_up(address, "giving up after 2 tries");
    memory_free(address);
    server_open(&server, &file, 1);
    address = string_format("%s/a.tar", server.url);
    struct remote *remote = remote_open(address);
    assert_int_equal(remote_read_at(remote, &byte, 0, 1), 0);
    remote_close(remote);
    server_close(&server);
    expect_given_up(address, "giving up after 4 tries");
    assert_false(remote_host_has_answered(near));
    memory_free(address);
    memory_free(near);
}

/* Longer than the read-ahead, and long enough to reset the retry count several times. */
TEST(a_long_file_comes_whole)
{
    i64 count = 20 << 20, read, got = 0;
    char *bytes = memory_alloc(count), *block = memory_alloc(1 << 20);
    for (i64 i = 0; i < count; i++)
        bytes[i] = (char)(i * i >> 7);
    struct served_file file = {
        .path = "/long.tar", .bytes = bytes, .count = count, .etag = "W/\"1\"", .resets = 8, .part = 2 << 20};
    server_open(&server, &file, 1);
    char *address = string_format("%s/long.tar", server.url);
    struct blob *blob = blob_open(address);
    while ((read = blob_read(blob, block, 1 << 20)) > 0) {
        assert_memory_equal(block, bytes + got, (size_t)read);
        got += read;
    }
    assert_int_equal(got, count);
    assert_int_equal(blob_bytes(blob), count);
    assert_null(strstr(file.last, "If-Match")); /* weak ETags match nothing */
    blob_close(blob);
    file.resets = 1;
    blob = blob_open(address);
    assert_int_equal(blob_bytes(blob), count);
    assert_int_equal(blob_read_at(blob, block, 5 << 20, 1 << 20), 0);
    assert_memory_equal(block, bytes + (5 << 20), 1 << 20);
    assert_int_equal(blob_read_at(blob, block, count - 10, 11), -1);
    assert_non_null(strstr(error_text(), "the file ends"));
    blob_close(blob);
    blob = blob_open(address); /* closing in the middle does not wait for the rest */
    assert_true(blob_read(blob, block, 100) > 0);
    blob_close(blob);
    server_close(&server);
    memory_free(address);
    memory_free(bytes);
    memory_free(block);
}

/* ---- many files ---- */

static void expect_listing(const char *pattern, const char *expected)
{
    struct buffer out = {0};
    struct source *source = source_open(pattern, NULL);
    i64 count = 0;
    const struct source_file *files = source ? source_files(source, &count) : NULL;
    if (!source)
        buffer_printf(&out, "%s", error_text());
    for (i64 i = 0; i < count; i++)
        buffer_printf(&out, "%s %lld %d%s\n", strrchr(files[i].path, '/') + 1, (long long)files[i].bytes,
                      files[i].split,
                      files[i].use == FILE_SAMPLES  ? ""
                      : files[i].use == FILE_BESIDE ? " beside"
                                                    : " left out");
    source_close(source);
    if (!strstr(out.data ? out.data : "", expected))
        fail_msg("%s: %s does not hold %s", pattern, out.data ? out.data : "", expected);
    buffer_release(&out);
}

TEST(ranges_are_files_of_a_folder)
{
    static const char line[] = "{\"text\": \"a line\"}\n";
    struct served_file files[] = {{.path = "/d/s-08.jsonl", .bytes = line, .count = sizeof line - 1},
                                  {.path = "/d/s-09.jsonl", .bytes = line, .count = sizeof line - 1},
                                  {.path = "/d/s-10.jsonl", .bytes = line, .count = sizeof line - 1},
                                  {.path = "/d/train/x.jsonl", .bytes = line, .count = 0},
                                  {.path = "/d/val/x.jsonl", .bytes = line, .count = sizeof line - 1}};
    server_open(&server, files, COUNT_OF(files));
    char *names[] = {string_format("%s/d/s-{08..10}.jsonl", server.url),
                     string_format("%s/d/{val,train}/x.jsonl", server.url),
                     string_format("%s/d/s-{08..11}.jsonl", server.url), string_format("%s/d/", server.url),
                     string_format("%s/d/s-{8.jsonl", server.url)};
    expect_listing(names[0], "s-08.jsonl 19 -1\ns-09.jsonl 19 -1\ns-10.jsonl 19 -1\n");
    expect_listing(names[1], "x.jsonl 0 0\nx.jsonl 19 1\n");
    expect_listing(names[2], "s-11.jsonl: HTTP 404 (NoSuchKey): there is no such file");
    expect_listing(names[3], "HTTP has no folder listings");
    expect_listing(names[4], "`{8.jsonl` is no range");
    struct source *source = source_open(names[0], &(struct source_request){.job = 1, .jobs = 3});
    struct sample sample;
    assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
    assert_non_null(strstr(sample.name, "/d/s-09.jsonl:1"));
    sample_release(&sample);
    assert_int_equal(source_next(source, &sample), SOURCE_END);
    source_close(source);
    server_close(&server);
    for (i64 i = 0; i < COUNT_OF(names); i++)
        memory_free(names[i]);
}

TEST(addresses_hold_no_credentials)
{
    expect_listing("https://user:secret@host/a.tar", "https://...@host/a.tar: an address with credentials");
    assert_null(source_open("https://user:secret@host/a.tar", NULL));
    assert_null(strstr(error_text(), "secret"));
    assert_null(source_open("https://host/a.tar?sig=secret#end", NULL));
    assert_null(strstr(error_text(), "secret"));
    expect_listing("s3://", "without a host or bucket");
}

/* ---- s3 ---- */

static void point_to_server(const char *user)
{
    setenv("AWS_ENDPOINT_URL", server.url, 1);
    setenv("AWS_REGION", "eu-central-1", 1);
    if (user)
        setenv("AWS_ACCESS_KEY_ID", user, 1);
    else
        unsetenv("AWS_ACCESS_KEY_ID");
    setenv("AWS_SECRET_ACCESS_KEY", "verysecret", 1);
    setenv("AWS_SESSION_TOKEN", "tokenofthree", 1);
}

/* The query string is sent unchanged; names omit it. */
TEST(signatures_are_sent_and_not_shown)
{
    static const char line[] = "{\"text\": \"a line\"}\n";
    struct buffer index = {0}, ids = {0}, drawn = {0};
    make_pair(&index, &ids, 2);
    struct served_file files[] = {
        {.path = "/d/a.jsonl?X-Sig=secret%2Fa%3D&n=1", .bytes = line, .count = sizeof line - 1},
        {.path = "/d/b.jsonl?X-Sig=secret2", .bytes = line, .count = sizeof line - 1},
        {.path = "/d/b.jsonl?all", .bytes = line, .count = sizeof line - 1},
        {.path = "/m.idx?all", .bytes = index.data, .count = index.length},
        {.path = "/m.bin?all", .bytes = ids.data, .count = ids.length},
        {.path = "/n.idx?1", .bytes = index.data, .count = index.length},
        {.path = "/n.bin?2", .bytes = ids.data, .count = ids.length}};
    server_open(&server, files, COUNT_OF(files));
    char *names[] = {string_format("%s/d/a.jsonl?X-Sig=secret%%2Fa%%3D&n=1", server.url),
                     string_format("%s/d/{a.jsonl?X-Sig=secret%%2Fa%%3D&n=1,b.jsonl?X-Sig=secret2}", server.url),
                     string_format("%s/d/{b,c}.jsonl?all", server.url),
                     string_format("%s/m.idx?all", server.url),
                     string_format("%s/{n.idx?1,n.bin?2}", server.url),
                     string_format("%s/x.jsonl?secret", server.url),
                     string_format("%s/x-{1.jsonl?secret", server.url)};
    expect_listing(names[0], "a.jsonl 19 -1\n");
    source_print(&drawn, names[1]);
    assert_non_null(strstr(drawn.data, " a.jsonl:1\nplain text 6 "));
    assert_non_null(strstr(drawn.data, " b.jsonl:1\n"));
    expect_listing(names[2], "/d/b.jsonl: given with two different queries");
    expect_listing(names[3], "m.bin 2 -1 beside\nm.idx 82 -1\n");
    expect_listing(names[4], "n.bin 2 -1 beside\nn.idx 82 -1\n");
    expect_listing(names[5], "/x.jsonl: HTTP 404");
    assert_null(strstr(error_text(), "secret"));
    expect_listing(names[6], "the ranges of an address with `?`");
    assert_null(strstr(error_text(), "secret"));
    server_close(&server);
    for (i64 i = 0; i < COUNT_OF(names); i++)
        memory_free(names[i]);
    buffer_release(&drawn);
    buffer_release(&index);
    buffer_release(&ids);
}

TEST(folders_of_a_bucket_are_listed)
{
#define OBJECT(key, size) "<Contents><Key>" key "</Key><ETag>&quot;e&quot;</ETag><Size>" #size "</Size></Contents>"
    static const char one[] = "<?xml version=\"1.0\"?>\n<ListBucketResult><Name>b</Name>" OBJECT("d/e/", 0)
        OBJECT("d/test/1 &amp; 2.tar", 7) OBJECT("d/test/a.jpg", 9) OBJECT("d/test/a.txt", 5)
            OBJECT("d/train-00.tar", 512) "<IsTruncated>true</IsTruncated><NextContinuationToken>a+b/c=</"
                                          "NextContinuationToken></ListBucketResult>";
    static const char two[] = "<ListBucketResult>" OBJECT("d/train-00.parquet", 3) OBJECT("d/.hidden/x.tar", 1)
        OBJECT("d/a.png", 9) OBJECT("d/train.jsonl", 20) "<IsTruncated>false</IsTruncated></ListBucketResult>";
    static const char line[] = "{\"text\": \"from s3\"}\n";
    struct served_file files[] = {
        {.path = "/b/?list-type=2&prefix=d%2F", .bytes = one, .count = sizeof one - 1},
        {.path = "/b/?continuation-token=a%2Bb%2Fc%3D&list-type=2&prefix=d%2F", .bytes = two, .count = sizeof two - 1},
        {.path = "/b/d/t%20%26.jsonl", .bytes = line, .count = sizeof line - 1}};
    server_open(&server, files, COUNT_OF(files));
    point_to_server("AKIDEXAMPLE");
    expect_listing("s3://b/d", "train-00.parquet 3 0 beside\ntrain-00.tar 512 0\ntrain.jsonl 20 0\n1 & 2.tar 7 2\n"
                               "a.jpg 9 2 left out\na.txt 5 2 left out\n");
    expect_listing("s3://b/d", "x.tar 1 -2 left out\na.png 9 -2 left out\n");
    expect_listing("s3://b/d/t &.jsonl", "t &.jsonl 20 -1\n");
    assert_non_null(strstr(files[2].last, "Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"));
    assert_non_null(strstr(files[2].last, "/eu-central-1/s3/aws4_request"));
    assert_non_null(strstr(files[2].last, "x-amz-security-token: tokenofthree"));
    assert_non_null(strstr(files[2].last, "x-amz-content-sha256: e3b0c44298fc1c14"));
    assert_non_null(strstr(files[2].last, "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token"));
    point_to_server(NULL);
    expect_listing("s3://b/d/t &.jsonl", "t &.jsonl 20 -1\n");
    assert_null(strstr(files[2].last, "Authorization"));
    assert_null(strstr(files[2].last, "token"));
    server_close(&server);
}

TEST(foreign_listings_lead_nowhere)
{
    static const char *const pages[] = {
        "",
        "<html>",
        "<ListBucketResult",
        "<ListBucketResult><Contents><Key>a</Key></ListBucketResult>",
        "<ListBucketResult><Contents></Contents><Contents><Key></Key></Contents>",
        "<ListBucketResult><Contents><Key>&#</Key></Contents><Contents><Key>&#x</Key></Contents>",
        "<ListBucketResult><Contents><Key>&#xffffffffffff;&#55;&amp;amp;&unknown;</Key><Size>x</Size></Contents>"};
    static const i64 counts[] = {0, 0, 0, 0, 0, 0, 1};
    for (i64 i = 0; i < COUNT_OF(pages); i++) {
        struct remote_list list = {0};
        struct buffer page = {0};
        char *token;
        buffer_append(&page, pages[i], (i64)strlen(pages[i]));
        assert_int_equal(s3_listing_read(&list, &token, &page, "s3://b/"), i < 2 ? -1 : 0);
        assert_int_equal(list.count, counts[i]);
        if (i == 6)
            assert_non_null(strstr(list.objects[0].address, "7&amp;&unknown;"));
        memory_free(token);
        remote_list_release(&list);
        buffer_release(&page);
    }
}

TEST(refusals_of_a_bucket_say_what_to_do)
{
    static const char body[] = "<Error><Code>AccessDenied</Code><AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId></Error>";
    struct served_file files[] = {{.path = "/b/a.tar", .status = 403, .bytes = body},
                                  {.path = "/b/c.tar", .status = 301, .head = "x-amz-bucket-region: us-west-2\r\n"}};
    server_open(&server, files, COUNT_OF(files));
    point_to_server("AKIDEXAMPLE");
    expect_listing("s3://b/a.tar", "s3://b/a.tar: HTTP 403 (AccessDenied): it may not be read with the credentials of");
    assert_null(strstr(error_text(), "AKIDEXAMPLE"));
    expect_listing("s3://b/c.tar", "the bucket is elsewhere: set AWS_REGION=us-west-2");
    point_to_server(NULL);
    expect_listing("s3://b/a.tar", "it may not be read without credentials: set AWS_ACCESS_KEY_ID");
    expect_listing("s3://none/a.tar", "s3://none/a.tar: HTTP 404 (NoSuchKey)");
    server_close(&server);
}

int main(void)
{
    return tests_run(make, clear);
}
