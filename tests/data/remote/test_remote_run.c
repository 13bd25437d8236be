/* A run whose stages have read addresses can resume without them; changes at an address are
 * detected when queried. */
#include <sys/wait.h>
#include <unistd.h>
#include "tests/http_server.h"
#include "tests/scratch.h"
#include "tests/weft_process.h"

static const char lines[] = "{\"text\":\"a small house by a small lake\"}\n{\"text\":\"houses and lakes\"}\n";
static struct buffer said;

static int run(const char *words)
{
    char *err = path_of("stderr");
    char *rest = string_copy(words), *all[8] = {"weft", "run", path_of("recipe.yaml")};
    weft_add_words(all, COUNT_OF(all), rest);
    int status = weft_run_quietly(all, err);
    buffer_release(&said);
    succeed(file_read(&said, err));
    buffer_append(&said, "", 0);
    memory_free(rest);
    return status;
}

static void expect_said(const char *part)
{
    if (!strstr(said.data, part))
        fail_msg("expected \"%s\" in: %s", part, said.data);
}

static void write_recipe(const char *url, int vocabulary)
{
    char *recipe =
        string_format("run: %s\nprecision: f32\nstages:\n  bpe: {kind: tokenizer-text, data: \"%s/a.jsonl\", "
                      "vocabulary: %d}\n",
                      path_of("run"), url, vocabulary);
    succeed(file_replace(path_of("recipe.yaml"), recipe, (i64)strlen(recipe)));
    memory_free(recipe);
}

TEST(what_is_done_asks_no_address)
{
    struct served_file file = {.path = "/a.jsonl", .bytes = lines, .count = sizeof lines - 1, .etag = "\"1\""};
    struct server server;
    server_open(&server, &file, 1);
    write_recipe(server.url, 300);
    assert_int_equal(run(""), 0);
    assert_true(file.requests > 0);
    file.requests = 0;
    assert_int_equal(run(""), 0);
    expect_said("done before");
    assert_int_equal(file.requests, 0);
    assert_int_equal(run("--redo"), 0);
    expect_said("done before");
    assert_true(file.requests > 0);
    file.etag = "\"2\"";
    assert_int_equal(run(""), 0);
    expect_said("done before");
    assert_int_equal(run("--redo"), 0);
    assert_null(strstr(said.data, "done before"));
    file.requests = 0;
    write_recipe(server.url, 310);
    assert_int_equal(run(""), 1); /* without a query */
    expect_said("other settings or inputs: settings.vocabulary");
    assert_int_equal(file.requests, 0);
    server_close(&server);
    write_recipe(server.url, 300);
    assert_int_equal(run(""), 0);
    expect_said("done before");
}

/* A signature may change with every call: finished stages stay valid, and no output contains the
 * signature. */
TEST(a_signature_is_no_setting)
{
    struct served_file files[] = {{.path = "/a.jsonl?sig=secret1", .bytes = lines, .count = sizeof lines - 1},
                                  {.path = "/a.jsonl?sig=secret2", .bytes = lines, .count = sizeof lines - 1}};
    struct server server;
    succeed(directory_remove(path_of("run")));
    server_open(&server, files, 2);
    for (int i = 0; i < 2; i++) {
        char *recipe = string_format("run: %s\nprecision: f32\nstages:\n  bpe: {kind: tokenizer-text, data: "
                                     "\"%s%s\", vocabulary: 300}\n",
                                     path_of("run"), server.url, files[i].path);
        succeed(file_replace(path_of("recipe.yaml"), recipe, (i64)strlen(recipe)));
        memory_free(recipe);
        assert_int_equal(run(i ? "--redo" : ""), 0);
        assert_null(strstr(said.data, "secret"));
    }
    expect_said("done before");
    assert_true(files[0].requests > 0 && files[1].requests > 0);
    server_close(&server);
    char *command = string_format("grep -r secret %s", path_of("run"));
    assert_int_not_equal(system(command), 0);
    memory_free(command);
}

/* The process that fills a stream's ring gets the signature
 * of the current call and never prints it. */
TEST(a_stream_has_the_signature_of_the_call)
{
    struct buffer many = {0};
    for (int i = 0; i < 200; i++)
        buffer_printf(&many, "{\"text\": \"house %d by lake %d, and a small boat\"}\n", i, i * 7 % 13);
    struct served_file files[] = {{.path = "/a.jsonl?sig=secret1", .bytes = many.data, .count = (size_t)many.length},
                                  {.path = "/a.jsonl?sig=secret2", .bytes = many.data, .count = (size_t)many.length}};
    struct server server;
    succeed(directory_remove(path_of("run")));
    server_open(&server, files, 2);
    for (int i = 0; i < 2; i++) {
        char *recipe = string_format(
            "run: %s\nprecision: f32\nstages:\n  bpe: {kind: tokenizer-text, data: \"%s%s\", vocabulary: 300}\n"
            "  shards: {kind: prepare, data: \"%s%s\", text: bpe, shard_bytes: 4096, stream: {on: true}}\n"
            "  %s: {kind: pretrain, data: shards, steps: 3, shuffle_shards: 1, batch: {rows: 2, length: 32, "
            "micro_rows: 1}, model: {width: 16, layers: 1, heads: 1, kv_heads: 1, head_width: 16, experts: 4, "
            "expert_width: 16, vit_layers: 0}}\n",
            path_of("run"), server.url, files[i].path, server.url, files[i].path, i ? "other" : "base");
        succeed(file_replace(path_of("recipe.yaml"), recipe, (i64)strlen(recipe)));
        memory_free(recipe);
        files[i].requests = 0;
        if (run(i ? "other" : ""))
            fail_msg("%s", said.data);
        assert_null(strstr(said.data, "secret"));
        assert_true(files[i].requests > 0);
    }
    server_close(&server);
    char *command = string_format("grep -r secret %s", path_of("run"));
    assert_int_not_equal(system(command), 0);
    memory_free(command);
    buffer_release(&many);
}

static int end(void **state)
{
    buffer_release(&said);
    return remove_directory(state);
}

int main(void)
{
    setenv("WEFT_THREADS", "1", 1);
    setenv("no_proxy", "*", 1);
    return tests_run(make_directory, end);
}
