/* Sources: folders of media with captions, records that name files, and the parts that names say. */
#include <sys/stat.h>
#include <sys/wait.h>
#include "data/sources/source_readers.h"
#include "tests/source_cases.h"

/* ---- folders ---- */

TEST(folders_give_captioned_media)
{
    check_sources("source_folders.jsonl");
}

static void link_to(const char *name, const char *target)
{
    char *path = path_join(directory, name);
    assert_int_equal(symlink(target, path), 0);
    memory_free(path);
}

/* Without a memory of folders the two loops would show each text 2^16 times. */
TEST(linked_folders_are_read_once)
{
    static const char *const files[][2] = {
        {"linked/train/a.txt", "one"}, {"linked/test/b.txt", "two"}, {"beside/c.txt", "three"}};
    put_all(files, COUNT_OF(files));
    link_to("linked/a-copy", "train");
    link_to("linked/self", ".");
    link_to("linked/train/up", "..");
    link_to("linked/there", "../beside");
    link_to("linked/there-again", "../beside");
    link_to("linked/dangling", "dangling");
    expect_source(
        "linked", NULL,
        "plain text'one\n'\nplain text'two\n'\n4 links to folders that are read by another name (linked/a-copy)\n"
        "1 files of unknown type (linked/dangling)\n1 files beside the part train, in no part (linked/there/c.txt)\n");
}

/* What a run writes beside the output of a stage, and prompts of every format, are not noted; a
 * done.json of the data is read, and what truly has no text is noted. */
TEST(what_is_no_data_is_not_noted)
{
#define PROMPT                                                                                                         \
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"2 + 2\"}], \"reward_model\": {\"ground_truth\": \"4\"}}"
    static const char done[] = "{\n  \"hash\": \"c45a6f4b811ab607\",\n  \"identity\": {\"kind\": \"command\"}\n}\n";
    static const char *const files[][2] = {{"made/train/a.txt", "text"},
                                           {"made/done.json", done},
                                           {"made/identity.json", "{\"kind\": \"command\"}\n"},
                                           {"made/inventory.json", "{\"format\": 1, \"files\": {}}\n"},
                                           {"made/train/part/done.json", done},
                                           {"made/train/part/identity.json", "{\"kind\": \"command\"}\n"},
                                           {"made/train/p.json", "[" PROMPT ", " PROMPT "]"},
                                           {"made/train/p.jsonl", PROMPT "\n" PROMPT "\n"},
                                           {"own/done.json", "[{\"text\": \"to do\"}]"},
                                           {"own/identity.json", "[{\"text\": \"a card\"}]"},
                                           {"own/lacking.jsonl", "{\"prompt\": \"2 + 2\"}\n" PROMPT "\n"
                                                                 "{\"prompt\": \"2 + 2\", \"reward_model\": null}\n"},
                                           {"pair/done.json", "{\"caption\": \"said\"}"},
                                           {"pair/identity.json", "{\"caption\": \"who\"}"},
                                           {"dealt/a.txt", "a"},
                                           {"dealt/done.json", done},
                                           {"dealt/z.txt", "z"},
                                           {"alone/a.txt", "text"},
                                           {"alone/b.png", "P"}};
    struct sample sample;
    i64 count;
    put_all(files, COUNT_OF(files));
    assert_int_equal(file_copy(path_of("made/train/p.parquet"), GOLDEN "/tables/forms/verl.parquet"), 0);
    expect_source("made", NULL, "plain text'text\n'\n");

    struct source *source = source_open(path_of("made"), NULL);
    while (source_next(source, &sample) != SOURCE_END)
        sample_release(&sample);
    const struct source_file *all = source_files(source, &count);
    for (i64 i = 0; i < count; i++)
        assert_true(all[i].passed == 0 && all[i].bad == 0);
    i64 prompts = source_prompts(source);
    assert_int_equal(prompts, 5); /* one of the table */
    struct json *position = source_state(source);
    source_close(source);
    source = source_open(path_of("made"), NULL);
    assert_int_equal(source_resume(source, position), 0);
    assert_int_equal(source_prompts(source), prompts);
    source_close(source);
    json_free(position);

    /* Shares of jobs are as if state were data: of older runs they are. */
    source = source_open(path_of("dealt"), &(struct source_request){.job = 1, .jobs = 2});
    assert_int_equal(source_next(source, &sample), SOURCE_END);
    source_close(source);

    source = source_open(path_of("alone"), &(struct source_request){.media_alone = true});
    assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
    sample_release(&sample);
    source_notes(source, &count);
    assert_int_equal(count, 0);
    source_close(source);
    put_all((const char *const[][2]){{"texts/a.txt", "text"}}, 1);
    assert_null(source_open(path_of("texts"), &(struct source_request){.media_alone = true}));
    assert_says("1 text-only files");
#undef PROMPT
}

/* A pipe has no writer: an open that waits for one ends the test by SIGALRM. */
TEST(what_is_no_file_is_not_opened)
{
    static const char *const files[][2] = {{"special/a.png", "P"},
                                           {"special/b.png", "P"},
                                           {"special/c.txt", "text"},
                                           {"special/m.jsonl", "{\"image\": \"p.png\", \"text\": \"x\"}\n"}};
    alarm(TEST_SECONDS_MOST);
    put_all(files, COUNT_OF(files));
    assert_int_equal(mkfifo(path_of("special/a.txt"), 0600), 0);
    assert_int_equal(mkfifo(path_of("special/d.jsonl"), 0600), 0);
    assert_int_equal(mkfifo(path_of("special/p.png"), 0600), 0);
    link_to("special/b.json", "/dev/zero");
    link_to("special/e.txt", "d.jsonl");
    link_to("special/f.tar", "/dev/zero");
    link_to("special/g.parquet", "d.jsonl");
    expect_source(
        "special", NULL,
        "bad: special/a.txt: expected a file, found a named pipe\n"
        "bad: special/b.json: expected a file, found a device\n"
        "captioned image@special/p.png text'x'\n1 " LONE_TEXTS " (special/c.txt)\n"
        "4 pipes, sockets and devices (special/d.jsonl)\n1 links into /proc, /sys and /dev (special/f.tar)\n");
    static const char *const names[] = {"special/d.jsonl", "special/e.txt", "special/f.tar", "special/g.parquet"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *path = path_join(directory, names[i]);
        struct source *source = source_open(path, NULL);
        struct sample sample;
        assert_non_null(source);
        assert_int_equal(source_next(source, &sample), SOURCE_DAMAGED);
        assert_says("expected a file, found a");
        source_close(source);
        memory_free(path);
    }
    alarm(0);
}

/* border/in/deep/lines.jsonl names each file of a row by itself. */
static void put_lines(const char *const *references, i64 count)
{
    struct buffer lines = {0};
    for (i64 i = 0; i < count; i++) {
        bool here = references[i][0] == '@';
        buffer_printf(&lines, "{\"image\": \"%s%s\", \"text\": \"%lld\"}\n", here ? path_of("border") : "",
                      references[i] + here, (long long)i);
    }
    memory_free(put_file("border/in/deep/lines.jsonl", lines.data, lines.length));
    buffer_release(&lines);
}

TEST(records_name_media_of_their_data)
{
    static const char *const files[][2] = {{"border/in/a.png", "P"},
                                           {"border/in/deep/b.png", "P"},
                                           {"border/inside/c.png", "P"},
                                           {"border/media/d.png", "P"},
                                           {"border/in/deep/lines.jsonl", ""}};
    static const char *const inside[] = {"b.png",       "../a.png",         "../deep/../a.png",
                                         "@/in/a.png",  "@/link/a.png",     "file://b.png",
                                         "missing.png", "../missing/x.png", "../inner.png"};
    static const char *const outside[] = {
        "../../inside/c.png", "@/inside/c.png",      "file:///etc/passwd",      "/etc/passwd",
        "../out.png",         "../folder/c.png",     "../../missing.png",       "/missing.png",
        "../up/inside/c.png", "../../link/../a.png", "../folder/../media/d.png"};
    char *media = path_join(directory, "border/media");
    put_all(files, COUNT_OF(files));
    link_to("border/link", "in");
    link_to("border/in/inner.png", "deep/b.png");
    link_to("border/in/out.png", "../inside/c.png");
    link_to("border/in/folder", "../inside");
    link_to("border/in/up", "..");
    put_lines(outside, COUNT_OF(outside));
    for (int i = 0; i < 2; i++) { /* the data may be a link themselves */
        char *path = path_join(directory, i ? "border/link/deep" : "border/in");
        struct source *source = source_open(path, NULL);
        struct sample sample;
        i64 count, noted = 0;
        while (source_next(source, &sample) != SOURCE_END)
            fail_msg("a sample: %s", sample.count ? sample.parts[0].path : error_text());
        const struct source_note *notes = source_notes(source, &count);
        for (i64 k = 0; k < count; k++)
            if (strstr(notes[k].what, "`outside: allow`"))
                noted = notes[k].count;
        assert_int_equal(noted, COUNT_OF(outside));
        source_close(source);
        memory_free(path);
    }
    for (int allow = 0; allow < 3; allow++) {
        struct source_columns columns = {.outside = allow == 2 ? OUTSIDE_ALLOW : OUTSIDE_REFUSE,
                                         .folder = allow == 1 ? media : NULL};
        static const char *const of_folder[] = {"d.png", "./d.png", "@/media/d.png", "@/inside/c.png",
                                                "../inside/c.png"};
        if (allow == 1)
            put_lines(of_folder, COUNT_OF(of_folder));
        else
            put_lines(allow ? outside : inside, allow ? COUNT_OF(outside) : COUNT_OF(inside));
        char *path = path_join(directory, "border/in/deep/lines.jsonl");
        struct source *source =
            source_open(allow == 1 ? path : path_of("border/link"), &(struct source_request){.columns = &columns});
        struct sample sample;
        i64 samples = 0;
        while (source_next(source, &sample) == SOURCE_SAMPLE) {
            samples++;
            sample_release(&sample);
        }
        assert_int_equal(samples, allow == 2 ? COUNT_OF(outside) : allow == 1 ? 3 : COUNT_OF(inside));
        source_close(source);
        memory_free(path);
    }
    memory_free(media);
}

/* Runs in a child process as user nobody, because the tests may run as root, who may read
 * everything. */
TEST(what_may_not_be_read_is_passed)
{
    static const char *const files[][2] = {{"shut/a.txt", "a"}, {"shut/b.txt", "b"}, {"shut/deep/c.txt", "c"}};
    put_all(files, COUNT_OF(files));
    char *file = path_join(directory, "shut/a.txt"), *below = path_join(directory, "shut/deep");
    assert_int_equal(chmod(directory, 0755) || chmod(file, 0) || chmod(below, 0), 0);
    pid_t child = fork();
    if (child == 0) {
        struct sample sample;
        char *path = path_join(directory, "shut");
        char seen[8] = {0};
        int n = 0;
        if (geteuid() == 0 && setuid(65534))
            _exit(9);
        struct source *source = source_open(path, NULL);
        for (enum source_result result; source && n < 7 && (result = source_next(source, &sample)) != SOURCE_END;)
            seen[n++] = result == SOURCE_SAMPLE ? sample.parts[0].bytes.data[0] : '!';
        _exit(strcmp(seen, "!b!") != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(below, 0755), 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    memory_free(file);
    memory_free(below);
}

/* ---- parts ---- */

/* NAME:PART of each sample: train, validation, or x for test. */
static void draw_parts(struct buffer *out, const char *name, const struct source_request *request)
{
    char *path = path_join(directory, name);
    struct source *source = source_open(path, request);
    struct sample sample;
    if (!source)
        fail_msg("%s", error_text());
    while (source_next(source, &sample) == SOURCE_SAMPLE) {
        buffer_printf(out, "%s:%c\n", sample.name + strlen(path) + 1, "tvx"[sample.split]);
        sample_release(&sample);
    }
    source_close(source);
    memory_free(path);
}

static void expect_parts(const char *name, const char *expected)
{
    struct buffer drawn = {0};
    draw_parts(&drawn, name, &(struct source_request){.validation = 0.5, .test = 0.5});
    assert_string_equal(drawn.data, expected);
    buffer_release(&drawn);
}

TEST(names_say_the_part)
{
    static const char *const files[][2] = {{"p1/test/a.txt", "1"},
                                           {"p1/train/deep/test/b.txt", "2"},
                                           {"p1/val/c.txt", "3"},
                                           {"p1/d.txt", "4"},
                                           {"p2/books/a.txt", "1"},
                                           {"p2/validation/b.txt", "2"},
                                           {"p3/test.jsonl", "{\"text\": \"1\"}"},
                                           {"p3/train-0.txt", "2"},
                                           {"p3/testimony.txt", "3"}};
    put_all(files, COUNT_OF(files));
    expect_parts("p1", "train/deep/test/b.txt:1:t\nval/c.txt:1:v\ntest/a.txt:1:x\n");
    expect_parts("p2", "books/a.txt:1:t\nvalidation/b.txt:1:v\n");
    expect_parts("p3", "train-0.txt:1:t\ntest.jsonl:1:x\n");
}

TEST(metadata_may_stand_above_the_parts)
{
    static const char *const files[][2] = {{"up/train/a.png", "P"},
                                           {"up/test/b.png", "P"},
                                           {"up/c.png", "P"},
                                           {"up/metadata.jsonl", "{\"file_name\": \"test/b.png\", \"text\": \"1\"}\n"
                                                                 "{\"file_name\": \"train/a.png\", \"text\": \"2\"}\n"
                                                                 "{\"file_name\": \"c.png\", \"text\": \"3\"}\n"}};
    put_all(files, COUNT_OF(files));
    expect_parts("up", "metadata.jsonl:1:x\nmetadata.jsonl:2:t\n");
}

/* Five captions of one picture are in the same split,
 * independently of the folder's path and other files. */
TEST(draws_follow_the_medium)
{
    struct buffer lines = {0}, first = {0}, second = {0};
    struct source_request request = {.seed = 3, .validation = 0.5};
    char *sides = memory_alloc(41), *path = path_join(directory, "drawn"), *moved = path_join(directory, "moved");
    assert_int_equal(directory_make(path), 0);
    for (i64 i = 0; i < 200; i++)
        buffer_printf(&lines, "{\"image\": \"%s%lld.png\", \"text\": \"said %lld\"}\n", i % 3 ? "" : "x/../",
                      (long long)i % 40, (long long)i);
    memory_free(put_file("drawn/captions.jsonl", lines.data, lines.length));
    draw_parts(&first, "drawn", &request);
    const char *at = first.data;
    i64 held_out = 0;
    for (i64 i = 0; i < 200; i++, at = strchr(at, '\n') + 1) {
        char side = strchr(at, '\n')[-1];
        assert_true(i < 40 || sides[i % 40] == side);
        sides[i % 40] = side;
        held_out += side == 'v';
    }
    assert_in_range(held_out, 50, 150);
    assert_int_equal(rename(path, moved), 0);
    draw_parts(&second, "moved", &request);
    assert_string_equal(first.data, second.data);
    buffer_release(&lines);
    buffer_release(&first);
    buffer_release(&second);
    memory_free(sides);
    memory_free(path);
    memory_free(moved);
}

/* Documents are texts, and their names say no part. */
TEST(documents_are_texts)
{
    static const char *const pages[][2] = {
        {"pages/a.md", "one"},       {"pages/b.MARKDOWN", "two"},   {"pages/c.rst", "three"},
        {"pages/README.md", "four"}, {"pages/training.md", "five"}, {"pages/test-plan.rst", "six"},
        {"pages/ls.1.gz", "?"},      {"pages/changelog.gz", "?"},   {"pages/old.zst", "?"}};
    put_all(pages, COUNT_OF(pages));
    char *command = string_format("echo packed | gzip > %s/pages/e.md.gz", directory);
    assert_int_equal(system(command), 0);
    memory_free(command);
    expect_source("pages", NULL,
                  "plain text'four\n'\nplain text'one\n'\nplain text'two\n'\nplain text'three\n'\n"
                  "plain text'packed\n'\nplain text'six\n'\nplain text'five\n'\n"
                  "2 files ending in .gz whose names do not say what is in them: expected NAME.txt.gz, .md.gz, "
                  ".jsonl.gz, .json.gz, .csv.gz, .tsv.gz or .tar.gz (pages/changelog.gz)\n1 files ending in .zst whose "
                  "names do not say what is in them: expected NAME.txt.zst, .md.zst, .jsonl.zst, .json.zst, .csv.zst, "
                  ".tsv.zst or .tar.zst (pages/old.zst)\n");
    for (i64 i = 0; i < COUNT_OF(pages); i++) /* one document by its own name */
        if (strstr(pages[i][0], "README"))
            expect_source(pages[i][0], NULL, "plain text'four\n'\n");
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
