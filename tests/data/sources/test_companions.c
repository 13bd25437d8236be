/* Sources: which text belongs to which medium, in folders and tars. Nothing of a collection vanishes:
 * what is no sample is counted with a reason. */
#include "data/sources/source_readers.h"
#include "tests/source_cases.h"

/* The same files as a folder and as a tar. */
static void put_both(const char *name, const char *const files[][2], i64 count)
{
    struct buffer tar = {0};
    char *folder = path_join(directory, name), *file = string_format("%s.tar", name);
    assert_int_equal(directory_make(folder), 0);
    for (i64 i = 0; i < count; i++) {
        char *inside = string_format("%s/%s", name, files[i][0]);
        memory_free(put_file(inside, files[i][1], (i64)strlen(files[i][1])));
        memory_free(inside);
        tar_member(&tar, files[i][0], files[i][1]);
    }
    tar_end(&tar);
    memory_free(put_file(file, tar.data, tar.length));
    memory_free(file);
    memory_free(folder);
    buffer_release(&tar);
}

TEST(texts_belong_to_their_media)
{
    check_sources("companions.jsonl");
}

/* A text longer than a caption is a document among captioned media. */
/* Among captioned media, of which there are as many, a text longer than a caption is a document. */
TEST(long_texts_without_a_medium_are_documents)
{
    static char longer[CAPTION_BYTES_MAX + 2];
    memset(longer, 'x', sizeof longer - 1);
    const char *const some[][2] = {
        {"1.png", "A"}, {"1.txt", "one"},          {"2.png", "B"},   {"2.txt", "two"}, {"3.txt", "deleted"},
        {"4.orc", "?"}, {"4.txt", "of an ending"}, {"5.txt", longer}};
    static const struct {
        const char *name, *expected; /* %.200s: the longer text */
        int lone_texts;
    } rows[] = {{"some",
                 "captioned image@some/1.png text'one'\ncaptioned image@some/2.png text'two'\n"
                 "plain text'%.200s'\n2 " LONE_TEXTS " (some/3.txt)\n"
                 "1 files ending in .orc, which are not supported (some/4.orc)\n",
                 LONE_TEXTS_AUTO},
                {"some",
                 "captioned image@some/1.png text'one'\ncaptioned image@some/2.png text'two'\n"
                 "plain text'deleted\n'\nplain text'of an ending\n'\nplain text'%.200s'\n"
                 "1 files ending in .orc, which are not supported (some/4.orc)\n",
                 LONE_TEXTS_READ},
                {"some.tar",
                 "captioned image'A' text'one'\ncaptioned image'B' text'two'\nplain text'%.200s'\n"
                 "2 " LONE_TEXTS " (some.tar:3)\n1 members ending in .orc (some.tar:4)\n",
                 LONE_TEXTS_AUTO}};
    put_both("some", some, COUNT_OF(some));
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        const struct source_columns columns = {.lone_texts = rows[i].lone_texts};
        char *expected = string_format(rows[i].expected, longer);
        expect_source(rows[i].name, &(struct source_request){.columns = &columns}, expected);
        memory_free(expected);
    }
}

/* As `tar` writes a folder that is not sorted: half of the pairs are further away than is looked. */
TEST(texts_far_from_their_medium_are_no_pages)
{
    struct buffer tar = {0};
    for (int i = 0; i < 6000; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.%s", i % 2 ? (7 * i + 5) % 3001 : i / 2, i % 2 ? "txt" : "png");
        tar_member(&tar, name, "x");
    }
    tar_end(&tar);
    char *path = put_file("unsorted.tar", tar.data, tar.length);
    struct source *source = source_open(path, NULL);
    struct sample sample;
    for (enum source_result result; (result = source_next(source, &sample)) != SOURCE_END;) {
        if (result == SOURCE_SAMPLE && sample.layout == SAMPLE_PLAIN)
            fail_msg("%s is a page", sample.name);
        sample_release(&sample);
    }
    source_close(source);
    memory_free(path);
    buffer_release(&tar);
}

/* Makes the last member of a tar a link. */
static void add_link(struct buffer *tar, const char *name, char kind, const char *target)
{
    i64 at = tar->length;
    u32 sum = 0;
    tar_member(tar, name, "");
    tar->data[at + 156] = kind;
    memcpy(tar->data + at + 157, target, strlen(target));
    memset(tar->data + at + 148, ' ', 8);
    for (i64 i = 0; i < 512; i++)
        sum += (u8)tar->data[at + i];
    snprintf(tar->data + at + 148, 8, "%06o", sum);
}

/* expected: %s is the name of the tar. */
static void expect_links(const char *name, const char *expected)
{
    char *text = string_format(expected, name);
    expect_source(name, NULL, text);
    memory_free(text);
}

/* Hard links as `cp -l` makes them, and symbolic ones, also to members that follow. */
TEST(links_in_tars_have_the_bytes_of_their_targets)
{
    static const char expected[] =
        "captioned image'RED' text'one'\ncaptioned image'RED' text'two'\ncaptioned image'RED' text'three'\n"
        "captioned image'BLUE' text'four'\ncaptioned image'BLUE' text'blue'\ncaptioned image'RED' text'one'\n"
        "3 media that are links to what the tar does not hold, with their texts (%s:e/6)\n";
    struct buffer tar = {0};
    struct sample sample;
    tar_member(&tar, "./d/1.png", "RED");
    tar_member(&tar, "./d/1.txt", "one");
    add_link(&tar, "d/2.png", '1', "d/1.png");
    tar_member(&tar, "d/2.txt", "two");
    add_link(&tar, "e/3.png", '2', "../d/2.png");
    tar_member(&tar, "e/3.txt", "three");
    add_link(&tar, "e/4.png", '2', "5.png");
    tar_member(&tar, "e/4.txt", "four");
    tar_member(&tar, "e/5.png", "BLUE");
    tar_member(&tar, "e/5.txt", "blue");
    add_link(&tar, "e/6.png", '1', "d/in-an-earlier-shard.png");
    tar_member(&tar, "e/6.txt", "lost");
    add_link(&tar, "e/7.png", '2', "7.png");
    tar_member(&tar, "e/7.txt", "a link to itself");
    add_link(&tar, "e/77.png", '2', "../../d/1.png");
    tar_member(&tar, "e/77.txt", "outside of the tar");
    add_link(&tar, "f/8.png", '1', "d/1.png");
    add_link(&tar, "f/8.txt", '1', "d/1.txt");
    tar_end(&tar);
    char *path = put_file("links.tar", tar.data, tar.length), *packed = string_format("%s.gz", path);
    expect_links("links.tar", expected);
    struct source *source = source_open(path, NULL);
    for (i64 i = 0; source_next(source, &sample) == SOURCE_SAMPLE; i++) {
        const struct sample_part *part = &sample.parts[0];
        assert_string_equal(part->within, path);
        assert_memory_equal(tar.data + part->at, part->bytes.data, (size_t)part->bytes.length);
        sample_release(&sample);
    }
    source_close(source);
    char *command = string_format("gzip -c %s > %s", path, packed);
    assert_int_equal(system(command), 0);
    expect_links("links.tar.gz", expected);
    memory_free(command);
    memory_free(packed);
    memory_free(path);
    buffer_release(&tar);
}

/* `cat a.tar b.tar`, what stands behind the end mark, and a tar without one. */
TEST(tars_behind_one_another_are_read)
{
    struct buffer one = {0}, two = {0}, all = {0};
    tar_member(&one, "1.png", "A");
    tar_member(&one, "1.txt", "one");
    buffer_append(&all, one.data, one.length);
    memory_free(put_file("open.tar", one.data, one.length));
    expect_source("open.tar", NULL,
                  "captioned image'A' text'one'\n1 tars without the mark of their end: they may have been cut short "
                  "(open.tar)\n");
    tar_end(&one);
    tar_end(&all);
    tar_end(&all);
    tar_member(&two, "2.png", "B");
    tar_member(&two, "2.txt", "two");
    tar_end(&two);
    buffer_append(&all, two.data, two.length);
    memory_free(put_file("cat.tar", all.data, all.length));
    expect_source("cat.tar", NULL, "captioned image'A' text'one'\ncaptioned image'B' text'two'\n");
    buffer_append(&one, "something else behind it", 24);
    memory_free(put_file("tail.tar", one.data, one.length));
    expect_source("tail.tar", NULL,
                  "captioned image'A' text'one'\ndamaged: tail.tar: byte 3072: Truncated tar archive\n");
    buffer_clear(&all); /* cut within a member: what is in front of it is a pair, and no page of text */
    tar_member(&all, "1.png", "A");
    tar_member(&all, "1.txt", "one");
    tar_member(&all, "2.png", "B");
    memory_free(put_file("cut.tar", all.data, all.length - 511));
    expect_source("cut.tar", NULL,
                  "captioned image'A' text'one'\ndamaged: cut.tar: byte 2561: Truncated input file (needed 511 bytes, "
                  "only 0 available)\n");
    buffer_release(&one);
    buffer_release(&two);
    buffer_release(&all);
}

/* Headers of tars have a checksum: with one bit changed, the tar says what it said, or is damaged. */
TEST(no_changed_bit_of_a_header_changes_a_sample)
{
    struct buffer tar = {0};
    tar_member(&tar, "1.png", "A");
    tar_member(&tar, "1.txt", "one");
    tar_end(&tar);
    for (i64 bit = 0; bit < 2 * 8 * 512; bit += 61) {
        i64 at = bit / 8 % 512 + (bit / 8 / 512) * 1024;
        tar.data[at] = (char)(tar.data[at] ^ 1 << bit % 8);
        char *path = put_file("bit.tar", tar.data, tar.length);
        struct json *gives = source_gives(path, NULL);
        bool damaged = false;
        for (i64 i = 0; i < json_count(gives); i++)
            damaged |= strncmp(json_string(json_at(gives, i), ""), "damaged: ", 9) == 0;
        if (!damaged &&
            (json_count(gives) != 1 || strcmp(json_string(json_at(gives, 0), ""), "captioned image'A' text'one'") != 0))
            fail_msg("byte %lld", (long long)at);
        json_free(gives);
        tar.data[at] = (char)(tar.data[at] ^ 1 << bit % 8);
        memory_free(path);
    }
    buffer_release(&tar);
}

TEST(utf16_is_named)
{
    memory_free(put_file("wide.txt",
                         "\xff\xfe"
                         "a\0b\0",
                         6));
    expect_source("wide.txt", NULL, "bad: wide.txt:1: a text in UTF-16: expected UTF-8 (iconv -f UTF-16 -t UTF-8)\n");
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
