/* Folders of arbitrary user files: a stage notices changed inputs, inspect reports what becomes of
 * the files, and prepare resumes after a kill. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/json.h"
#include "tests/files.h"
#include "tests/weft_process.h"

static char *folder;
static struct buffer said, complained; /* stdout and stderr of the last run */

static char *in_folder(const char *name)
{
    return path_join(folder, name);
}

static void read_output(struct buffer *out, const char *name)
{
    char *path = in_folder(name);
    assert_int_equal(file_read(out, path), 0);
    memory_free(path);
}

static int run(const char *const *words)
{
    const char *argv[32] = {"weft"};
    char *out = in_folder("stdout"), *err = in_folder("stderr");
    int status;
    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen(out, "w", stdout) || !freopen(err, "w", stderr))
            _exit(99);
        weft_become((char **)(uintptr_t)argv);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    read_output(&said, "stdout");
    read_output(&complained, "stderr");
    memory_free(out);
    memory_free(err);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}
#define WEFT(...) run((const char *const[]){__VA_ARGS__, NULL})

static void expect_in(const struct buffer *text, const char *part)
{
    if (!text->data || !strstr(text->data, part))
        fail_msg("expected \"%s\" in: %s", part, text->data ? text->data : "(nothing)");
}

static int make(void **state)
{
    (void)state;
    setenv("WEFT_THREADS", "1", 1);
    folder = string_format("/dev/shm/weft-folders-%ld", (long)getpid());
    return directory_remove(folder) || directory_make(folder);
}

static int clear(void **state)
{
    (void)state;
    directory_remove(folder);
    buffer_release(&said);
    buffer_release(&complained);
    memory_free(folder);
    return 0;
}

/* ---- Inputs of a finished stage ---- */

static void put_recipe(const char *name, const char *data)
{
    struct buffer yaml = {0};
    buffer_printf(&yaml, "run: %s/run\nstages:\n  bpe: {kind: tokenizer-text, data: %s, vocabulary: 300}\n", folder,
                  data);
    text_in(folder, name, yaml.data);
    buffer_release(&yaml);
}

static void copy_times(const char *path, const struct stat *from)
{
    const struct timespec times[2] = {from->st_atim, from->st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

TEST(an_edit_of_equal_length_is_seen)
{
    char *data = in_folder("books"), *recipe = in_folder("books.yaml"), *file = in_folder("books/a.txt");
    struct stat before;
    text_in(folder, "books/a.txt", "the first text\n");
    put_recipe("books.yaml", data);
    assert_int_equal(WEFT("run", recipe), 0);
    assert_int_equal(WEFT("run", recipe), 0);
    expect_in(&complained, "bpe: done before");
    assert_int_equal(stat(file, &before), 0);
    int descriptor = open(file, O_WRONLY); /* written in place, so the inode stays the same */
    assert_int_equal(pwrite(descriptor, "The", 3, 0), 3);
    close(descriptor);
    copy_times(file, &before);
    assert_int_equal(WEFT("run", recipe), 1);
    expect_in(&complained, "other settings or inputs: inputs.");
    expect_in(&complained, "--redo");
    assert_int_equal(WEFT("run", recipe, "--redo"), 0);
    assert_int_equal(WEFT("run", recipe), 0);
    expect_in(&complained, "bpe: done before");
    memory_free(data);
    memory_free(recipe);
    memory_free(file);
}

TEST(a_page_is_of_the_stages_as_they_are)
{
    char *recipe = in_folder("paged.yaml"), *page = in_folder("paged/report.html");
    struct buffer yaml = {0}, html = {0};
    text_in(folder, "pages/a.txt", "the first text\n");
    buffer_printf(&yaml,
                  "run: %s/paged\nstages:\n  bpe: {kind: tokenizer-text, data: %s/pages, vocabulary: 300}\n"
                  "  page: {kind: report}\n",
                  folder, folder);
    text_in(folder, "paged.yaml", yaml.data);
    assert_int_equal(WEFT("run", recipe), 0);
    assert_int_equal(WEFT("run", recipe, "bpe.vocabulary=310"), 1);
    assert_int_equal(WEFT("run", recipe, "bpe.vocabulary=310", "--redo"), 0);
    assert_int_equal(file_read(&html, page), 0);
    expect_in(&html, ">310<");
    assert_null(strstr(html.data, ">300<"));
    assert_int_equal(WEFT("run", recipe, "page"), 0); /* a stage run alone appears too */
    expect_in(&complained, "page: done in");
    buffer_release(&yaml);
    buffer_release(&html);
    memory_free(recipe);
    memory_free(page);
}

/* Files of the source tree are old enough for their hashes to be cached. */
TEST(contents_are_read_once)
{
    char *recipe = in_folder("kept.yaml"), *cache = in_folder("run/inputs.cache");
    struct buffer kept = {0};
    put_recipe("kept.yaml", SOURCE_TREE "/tests/golden/tokenizer/train");
    assert_int_equal(WEFT("run", recipe, "--redo"), 0);
    assert_int_equal(file_read(&kept, cache), 0);
    char *line = strstr(kept.data, "/tests/golden/");
    if (!line)
        skip(); /* a tree unpacked a second ago */
    while (line > kept.data && line[-1] != '\n')
        line--;
    line[0] = line[0] == '0' ? '1' : '0';
    assert_int_equal(file_replace(cache, kept.data, kept.length), 0);
    assert_int_equal(WEFT("run", recipe), 0); /* a damaged cache is not used */
    char *seal = strstr(kept.data, "\n# ");
    assert_non_null(seal);
    assert_int_equal(file_replace(cache, kept.data, seal + 1 - kept.data), 0);
    assert_int_equal(WEFT("run", recipe), 1); /* the cached hash was used */
    assert_int_equal(unlink(cache), 0);
    assert_int_equal(WEFT("run", recipe), 0);
    buffer_release(&kept);
    memory_free(recipe);
    memory_free(cache);
}

/* ---- inspect on a folder ---- */

static const char *text_at(const struct json *list, i64 index, const char *key)
{
    return json_string(json_get(json_at(list, index), key), "");
}

static i64 number_at(const struct json *list, i64 index, const char *key)
{
    return json_integer(json_get(json_at(list, index), key), -1);
}

TEST(inspect_says_what_becomes_of_every_file)
{
    char *data = in_folder("mixed"), *lines = in_folder("mixed/c.jsonl");
    for (i64 i = 0; i < 20; i++) {
        char *picture = string_format("mixed/%02lld.jpg", (long long)i),
             *text = string_format("mixed/%02lld.txt", (long long)i);
        text_in(folder, picture, "J");
        text_in(folder, text, "said\n");
        memory_free(picture);
        memory_free(text);
    }
    text_in(folder, "mixed/a.orc", "?");
    text_in(folder, "mixed/b.png", "P");
    text_in(folder, "mixed/c.jsonl",
            "{\"image\": \"d.png\", \"text\": \"x\"}\n{\"score\": 2}\n{\"image\": \"no.png\", \"text\": \"x\"}\n");
    text_in(folder, "mixed/d.png", "P");
    assert_int_equal(WEFT("inspect", data, "--json"), 0);
    struct json *j = json_parse(said.data, said.length, "inspect");
    const struct json *samples = json_get(j, "samples"), *left_out = json_get(j, "left_out"),
                      *files = json_get(j, "listing");
    assert_int_equal(json_count(samples), 1);
    assert_string_equal(text_at(samples, 0, "becomes"), "captioned picture");
    assert_int_equal(number_at(samples, 0, "samples"), 21);
    assert_int_equal(json_count(left_out), 3);
    assert_string_equal(text_at(left_out, 0, "what"), "files ending in .orc, which are not supported");
    assert_string_equal(text_at(left_out, 1, "what"), "lines without a text, a file or messages");
    assert_string_equal(text_at(left_out, 2, "what"), "pictures without a line or text file that refers to them");
    assert_int_equal(json_integer(json_get(j, "bad"), 0), 1);
    assert_non_null(strstr(text_at(json_get(j, "bad_first"), 0, "why"), "no.png"));
    assert_int_equal(json_count(files), 44);
    i64 seen = 0;
    for (i64 i = 0; i < json_count(files); i++) {
        const char *name = text_at(files, i, "file"), *becomes = text_at(files, i, "becomes");
        seen += strcmp(name, "b.png") == 0 && strcmp(becomes, "nothing") == 0;
        seen += strcmp(name, "d.png") == 0 && strcmp(becomes, "a medium that a line or its name captions") == 0;
        seen += strcmp(name, "07.txt") == 0 && strcmp(becomes, "part of a sample") == 0;
        seen += strcmp(name, "c.jsonl") == 0 && number_at(files, i, "passed") == 1;
    }
    assert_int_equal(seen, 4);
    json_free(j);
    assert_int_equal(WEFT("inspect", data), 0);
    expect_in(&said, "captioned picture       21\n");
    expect_in(&said, ".jsonl      1        2    0  captioned picture\n");
    expect_in(&said, "mixed/a.orc");
    assert_int_equal(WEFT("inspect", lines), 0);
    expect_in(&said, "captioned picture        1\n");
    memory_free(data);
    memory_free(lines);
}

/* ---- Kill and resume ---- */

static pid_t begin_within(rlim_t bytes, const char *recipe, const char *name)
{
    char *where = string_format("run=%s/%s", folder, name), *err = in_folder("stderr");
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {bytes, bytes};
        int descriptor = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (descriptor < 0 || dup2(descriptor, 2) < 0 || (bytes && setrlimit(RLIMIT_FSIZE, &limit)))
            _exit(9);
        weft_become((char *[]){"weft", "run", (char *)(uintptr_t)recipe, where, NULL});
    }
    memory_free(where);
    memory_free(err);
    return child;
}

/* Runs with a file size limit, so that a write fails midway; 0: no limit. */
static int run_within(rlim_t bytes, const char *recipe, const char *name)
{
    int status;
    pid_t child = begin_within(bytes, recipe, name);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Kills the run after its first saved progress, unless it ends first. */
static void run_killed(const char *recipe, const char *name)
{
    int status;
    bool ended = false;
    char *progress = string_format("%s/%s/shards.partial/progress.json", folder, name);
    pid_t child = begin_within(0, recipe, name);
    while (!file_exists(progress) && !ended) {
        usleep(500);
        ended = waitpid(child, &status, WNOHANG) == child;
    }
    if (!ended)
        assert_true(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    memory_free(progress);
}

static void list_below(struct buffer *out, const char *path, const char *name)
{
    char **names;
    i64 count;
    struct buffer content = {0};
    if (file_is_directory(path)) {
        assert_int_equal(directory_list(&names, &count, path), 0);
        for (i64 i = 0; i < count; i++) {
            char *below = path_join(path, names[i]), *longer = string_format("%s/%s", name, names[i]);
            list_below(out, below, longer);
            memory_free(below);
            memory_free(longer);
        }
        string_list_free(names, count);
        return;
    }
    assert_int_equal(file_read(&content, path), 0);
    buffer_printf(out, "%s %lld %016llx\n", name, (long long)content.length,
                  (unsigned long long)hash_bytes(content.data, content.length, 0));
    buffer_release(&content);
}

/* Appends garbage behind the last saved position, like a torn write; it must be ignored. */
static void spoil_tables(const char *name)
{
    char *path = string_format("%s/%s/shards.partial/train/samples.part", folder, name);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs("torn", file);
    fclose(file);
    memory_free(path);
}

TEST(a_killed_prepare_goes_on_to_the_same_bytes)
{
    struct buffer lines = {0}, yaml = {0}, whole = {0}, again = {0};
    char *recipe = in_folder("kill.yaml");
    for (i64 i = 0; i < 6000; i++)
        buffer_printf(&lines, i % 50 == 7 ? "no sample\n" : "{\"text\": \"line %lld of many\"}\n", (long long)i);
    text_in(folder, "kill/a.jsonl", lines.data);
    text_in(folder, "kill/b.txt", "the last text\n");
    buffer_printf(&yaml,
                  "run: /none\nstages:\n"
                  "  bpe: {kind: tokenizer-text, data: %s/kill, vocabulary: 300}\n"
                  "  shards: {kind: prepare, data: %s/kill, text: bpe, validation: 0.3, test: 0.1, shard_bytes: 16384, "
                  "dropout: 0.1, filter: {duplicates: near, personal: mask}}\n",
                  folder, folder);
    text_in(folder, "kill.yaml", yaml.data);
    assert_int_equal(run_within(0, recipe, "whole"), 0);
    assert_int_equal(run_within(60000, recipe, "cut"), 1);
    spoil_tables("cut");
    assert_int_equal(run_within(100000, recipe, "cut"), 1);
    read_output(&complained, "stderr");
    expect_in(&complained, "goes on behind ");
    spoil_tables("cut");
    assert_int_equal(run_within(0, recipe, "cut"), 0);
    run_killed(recipe, "killed");
    assert_int_equal(run_within(0, recipe, "killed"), 0);
    char *first = in_folder("whole/shards"), *second = in_folder("cut/shards"), *third = in_folder("killed/shards");
    list_below(&whole, first, "");
    list_below(&again, second, "");
    assert_string_equal(whole.data, again.data);
    buffer_clear(&again);
    list_below(&again, third, "");
    assert_string_equal(whole.data, again.data);
    assert_null(strstr(whole.data, "part "));
    assert_null(strstr(whole.data, "progress.json"));
    struct buffer *texts[] = {&lines, &yaml, &whole, &again};
    for (i64 i = 0; i < COUNT_OF(texts); i++)
        buffer_release(texts[i]);
    memory_free(recipe);
    memory_free(first);
    memory_free(second);
    memory_free(third);
}

/* ---- Outputs of other versions, and links ---- */

TEST(what_an_older_version_made_is_refused_with_the_reason)
{
    char *data = in_folder("old"), *recipe = in_folder("old.yaml"), *done = in_folder("run/bpe/done.json");
    text_in(folder, "old/a.txt", "a text\n");
    put_recipe("old.yaml", data);
    assert_int_equal(WEFT("run", recipe, "--redo"), 0);
    struct json *j = json_load(done);
    struct json *inputs = json_copy(json_get(json_get(j, "identity"), "inputs"));
    json_set(inputs, data, json_of_string("0123456789abcdef"));
    struct json *identity = json_copy(json_get(j, "identity"));
    json_set(identity, "inputs", inputs);
    json_set(j, "identity", identity);
    json_set(j, "hash", json_of_string("fedcba9876543210"));
    assert_int_equal(json_save(done, j), 0);
    assert_int_equal(WEFT("run", recipe), 1);
    expect_in(&complained, "by an older version, which did not look into the files");
    json_free(j);
    memory_free(data);
    memory_free(recipe);
    memory_free(done);
}

/* Adds an input like older programs did, which hashed shards completely. */
static void add_file(struct buffer *all, const char *name)
{
    struct buffer content = {0};
    char *path = string_format("%s/indexed%s", folder, name);
    assert_int_equal(file_read(&content, path), 0);
    u64 numbers[] = {1, (u64)content.length, hash_bytes(content.data, content.length, 0)};
    buffer_append(all, name, (i64)strlen(name) + 1);
    buffer_append(all, numbers, sizeof numbers);
    buffer_release(&content);
    memory_free(path);
}

static void give_digest_of_before(const char *done, const char *data)
{
    struct buffer all = {0};
    add_file(&all, "/a.txt");
    add_file(&all, "/x/00000.shard");
    add_file(&all, "/x/index");
    char *digest = string_format("xxh3-%016llx", (unsigned long long)hash_bytes(all.data, all.length, 0));
    struct json *j = json_load(done), *inputs = json_get(json_get(j, "identity"), "inputs");
    assert_string_not_equal(json_string(json_get(inputs, data), ""), digest);
    json_set(inputs, data, json_of_string(digest));
    assert_int_equal(json_save(done, j), 0);
    json_free(j);
    memory_free(digest);
    buffer_release(&all);
}

/* An index holds the checksums of its shards: only the index is read, and results of older
 * programs, which read both, stay valid. */
TEST(shards_are_known_by_their_index)
{
    char *data = in_folder("indexed"), *recipe = in_folder("indexed.yaml"), *done = in_folder("run/bpe/done.json");
    text_in(folder, "indexed/a.txt", "a text of words\n");
    text_in(folder, "indexed/x/index", "checksums");
    text_in(folder, "indexed/x/00000.shard", "payloads");
    put_recipe("indexed.yaml", data);
    assert_int_equal(WEFT("run", recipe, "--redo"), 0);
    give_digest_of_before(done, data);
    assert_int_equal(WEFT("run", recipe), 0);
    expect_in(&complained, "done before");
    text_in(folder, "indexed/x/index", "checksumz");
    assert_int_equal(WEFT("run", recipe), 1);
    memory_free(data);
    memory_free(recipe);
    memory_free(done);
}

/* Adds /NAME with the content "words\n", as programs did that followed links as often as they
 * occurred. */
static void add_words(struct buffer *all, const char *name)
{
    u64 numbers[] = {1, 6, hash_bytes("words\n", 6, 0)};
    buffer_append(all, name, (i64)strlen(name) + 1);
    buffer_append(all, numbers, sizeof numbers);
}

/* What is behind them changes with each look, and has no end. */
TEST(links_into_the_system_are_not_followed)
{
    static const char *const links[][2] = {{"system/fd", "/proc/self/fd"},
                                           {"system/net", "/sys/class/net"},
                                           {"system/all", "/dev"},
                                           {"system/status.txt", "/proc/self/status"}};
    char *data = in_folder("system"), *recipe = in_folder("system.yaml");
    text_in(folder, "system/a.txt", "a text of words\n");
    put_recipe("system.yaml", data);
    for (i64 i = 0; i < COUNT_OF(links); i++) {
        char *link = in_folder(links[i][0]);
        assert_int_equal(symlink(links[i][1], link), 0);
        memory_free(link);
    }
    assert_int_equal(WEFT("run", recipe, "--redo"), 0);
    expect_in(&complained, "skipped: 4 links into /proc, /sys and /dev (first: ");
    assert_int_equal(WEFT("run", recipe), 0);
    expect_in(&complained, "done before");
    memory_free(data);
    memory_free(recipe);
}

/* A folder that a link repeats enters once. What an older program made of it stays valid. */
TEST(a_linked_folder_enters_once)
{
    char *data = in_folder("twice"), *recipe = in_folder("twice.yaml"), *done = in_folder("run/bpe/done.json");
    char *link = in_folder("twice/link"), *loop = in_folder("twice/texts/loop");
    struct buffer all = {0};
    text_in(folder, "twice/texts/a.txt", "words\n");
    put_recipe("twice.yaml", data);
    assert_int_equal(symlink("texts", link), 0);
    assert_int_equal(WEFT("run", recipe, "--redo"), 0);
    expect_in(&complained, "(links to folders that are read by another name)");
    assert_int_equal(WEFT("run", recipe), 0);
    expect_in(&complained, "done before");
    add_words(&all, "/link/a.txt");
    add_words(&all, "/texts/a.txt");
    char *digest = string_format("xxh3-%016llx", (unsigned long long)hash_bytes(all.data, all.length, 0));
    struct json *j = json_load(done), *inputs = json_get(json_get(j, "identity"), "inputs");
    assert_string_not_equal(json_string(json_get(inputs, data), ""), digest);
    json_set(inputs, data, json_of_string(digest));
    assert_int_equal(json_save(done, j), 0);
    assert_int_equal(WEFT("run", recipe), 0);
    expect_in(&complained, "done before");
    assert_int_equal(symlink("..", loop), 0); /* by the older rule 2^16 files */
    assert_int_equal(WEFT("run", recipe), 1);
    text_in(folder, "twice/texts/a.txt", "wordz\n");
    assert_int_equal(WEFT("run", recipe), 1);
    json_free(j);
    buffer_release(&all);
    memory_free(digest);
    memory_free(data);
    memory_free(recipe);
    memory_free(done);
    memory_free(link);
    memory_free(loop);
}

TEST(inspect_obeys_no_name)
{
    char *data = in_folder("named"), *loop = in_folder("named/loop"), *more = in_folder("named/more");
    text_in(folder, "named/a.txt", "text\n");
    text_in(folder, "named/\x1b[2J\n\xe2\x80\xae.orc", "?");
    text_in(folder, "named/lines.jsonl",
            "{\"image\": \"/dev/zero\", \"text\": \"x\"}\n{\"image\": \"../x.png\", \"text\": \"x\"}\n");
    assert_int_equal(symlink(".", loop) || symlink("loop", more), 0);
    assert_int_equal(WEFT("inspect", data), 0);
    expect_in(&said, "named/\\u001b[2J\\u000a\\u202e.orc");
    expect_in(&said, "`outside: allow`");
    assert_null(strpbrk(said.data, "\x1b\xe2"));
    assert_int_equal(WEFT("inspect", data, "--json"), 0);
    assert_null(strpbrk(said.data, "\x1b\xe2"));
    struct json *j = json_parse(said.data, said.length, "inspect");
    assert_string_equal(text_at(json_get(j, "listing"), 0, "file"), "\x1b[2J\n\xe2\x80\xae.orc");
    json_free(j);
    assert_int_equal(WEFT("inspect", data, "--columns", "outside=allow"), 0);
    assert_null(strstr(said.data, "`outside: allow`"));
    memory_free(data);
    memory_free(loop);
    memory_free(more);
}

int main(void)
{
    setenv("WEFT_THREADS", "1", 1);
    return tests_run(make, clear);
}
