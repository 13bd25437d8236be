/* Sources: which text belongs to which medium, in folders and tars. Nothing of a collection vanishes:
 * what is no sample is counted with a reason. */
#include "data/sources/source_readers.h"
#include "tests/sample_text.h"
#include "tests/tar_text.h"

/* Compares the samples of a source, and its notes: COUNT WHAT. */
static void expect_noted(const char *name, int lone_texts, const char *expected)
{
    const struct source_columns columns = {.lone_texts = lone_texts};
    char *path = path_join(directory, name);
    struct source *source = source_open(path, &(struct source_request){.columns = &columns});
    struct buffer all = {0};
    struct sample sample;
    enum source_result result;
    i64 count;
    if (!source)
        fail_msg("%s", error_text());
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        if (result != SOURCE_SAMPLE)
            buffer_printf(&all, "%s: %s", result == SOURCE_BAD ? "bad" : "damaged", error_text() + strlen(path));
        for (i64 i = 0; i < sample.count; i++)
            draw_part(&all, &sample.parts[i]);
        buffer_printf(&all, "\n");
        sample_release(&sample);
    }
    const struct source_note *notes = source_notes(source, &count);
    for (i64 i = 0; i < count; i++)
        buffer_printf(&all, "%lld %s\n", (long long)notes[i].count, notes[i].what);
    assert_string_equal(all.data, expected);
    source_close(source);
    buffer_release(&all);
    memory_free(path);
}

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

/* What kohya's scripts, taggers, img2dataset, gallery-dl and yt-dlp write. */
static void captions_have_the_names_that_tools_write(void **state)
{
    static const char *const files[][2] = {{"a.png", "A"},
                                           {"a.png.txt", "one more ending"},
                                           {"b.png", "B"},
                                           {"b.txt", "another ending"},
                                           {"b.png.json", "{\"width\": 3}"},
                                           {"c.png", "C"},
                                           {"c.png.json", "{\"caption\": \"of JSON\"}"},
                                           {"d.png", "D"},
                                           {"d.png.caption", "a caption"},
                                           {"e.mp4", "E"},
                                           {"e.mp4.txt", "a film"}};
    (void)state;
    put_both("tools", files, COUNT_OF(files));
    expect_noted("tools", LONE_TEXTS_AUTO,
                 " image@tools/a.png text'one more ending'\n image@tools/b.png text'another ending'\n"
                 " image@tools/c.png text'of JSON'\n image@tools/d.png text'a caption'\n"
                 " video@tools/e.mp4 text'a film'\n");
    expect_noted("tools.tar", LONE_TEXTS_AUTO,
                 " image'A' text'one more ending'\n image'B' text'another ending'\n image'C' text'of JSON'\n"
                 " image'D' text'a caption'\n video'E' text'a film'\n1 members ending in .json\n");
    static const char *const more[][2] = {{"more/a.png", "A"},
                                          {"more/a.png.txt", "of a.png"},
                                          {"more/a.jpg", "J"},
                                          {"more/a.jpg.txt", "of a.jpg"},
                                          {"more/B.PNG", "B"},
                                          {"more/b.txt", "in other capitals"},
                                          {"more/c.jxl", "C"},
                                          {"more/c.jxl.txt", "of what is not read"},
                                          {"more/d.png", "D"},
                                          {"more/d.txt", "the second by name"},
                                          {"more/d.caption", "the first by name"},
                                          {"more/e.mp4", "E"},
                                          {"more/e.info.json", "{\"id\": 1}"},
                                          {"more/e.en.srt", "1\n00:00:00,000 --> 00:00:01,000\nwords\n"}};
    put_all(more, COUNT_OF(more));
    expect_noted(
        "more", LONE_TEXTS_AUTO,
        " image@more/B.PNG text'in other capitals'\n image@more/a.jpg text'of a.jpg'\n"
        " image@more/a.png text'of a.png'\n image@more/d.png text'the first by name'\n video@more/e.mp4 text'words'\n"
        "1 files ending in .jxl, which are not supported\n1 texts beside a medium that is not read\n"
        "1 captions of media that have another one beside them\n"
        "1 files ending in .json that hold one object and belong to no medium\n");
}

/* A short text without its medium is a caption among captioned media, and else a document. */
static void captions_without_a_medium_are_counted(void **state)
{
    static char longer[CAPTION_BYTES_MAX + 2];
    memset(longer, 'x', sizeof longer - 1);
    const char *const some[][2] = {
        {"1.png", "A"}, {"1.txt", "one"},          {"2.png", "B"},   {"2.txt", "two"}, {"3.txt", "deleted"},
        {"4.orc", "?"}, {"4.txt", "of an ending"}, {"5.txt", longer}};
    static const char *const few[][2] = {{"1.png", "A"}, {"1.txt", "one"}, {"2.txt", "a text"}, {"3.txt", "another"}};
    (void)state;
    put_both("some", some, COUNT_OF(some));
    put_both("few", few, COUNT_OF(few));
#define DOCUMENT "text'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'"
    expect_noted("some", LONE_TEXTS_AUTO,
                 " image@some/1.png text'one'\n image@some/2.png text'two'\n " DOCUMENT "\n"
                 "2 " LONE_TEXTS "\n1 files ending in .orc, which are not supported\n");
    expect_noted("some", LONE_TEXTS_READ,
                 " image@some/1.png text'one'\n image@some/2.png text'two'\n text'deleted\n'\n"
                 " text'of an ending\n'\n " DOCUMENT "\n1 files ending in .orc, which are not supported\n");
    expect_noted("some.tar", LONE_TEXTS_AUTO,
                 " image'A' text'one'\n image'B' text'two'\n " DOCUMENT "\n"
                 "2 " LONE_TEXTS "\n1 members ending in .orc\n");
    expect_noted("few", LONE_TEXTS_AUTO, " image@few/1.png text'one'\n text'a text\n'\n text'another\n'\n");
    expect_noted("few.tar", LONE_TEXTS_AUTO, " image'A' text'one'\n text'a text'\n text'another'\n");
    expect_noted("few.tar", LONE_TEXTS_LEAVE, " image'A' text'one'\n2 " LONE_TEXTS "\n");
    expect_noted("few", LONE_TEXTS_LEAVE, " image@few/1.png text'one'\n2 " LONE_TEXTS "\n");
}

/* A text named like a picture that has no caption is no page, wherever it stands. */
static void texts_named_like_a_medium_are_counted(void **state)
{
    static const char *const files[][2] = {{"named/a.png", "A"},
                                           {"named/a_caption.txt", "underscore"},
                                           {"named/images/1.jpg", "J"},
                                           {"named/labels/1.txt", "0 0.5 0.5 0.1 0.1"},
                                           {"named/labels/10.txt", "a text"},
                                           {"named/images/b.heic", "B"},
                                           {"named/images/b.txt.gz", ""},
                                           {"named/c.txt", "a text"}};
    static const char *const capitals[][2] = {{"A.PNG", "A"}, {"a.txt", "small"}, {"b.txt", "a text"}};
    (void)state;
    put_all(files, COUNT_OF(files));
    expect_noted("named", LONE_TEXTS_AUTO,
                 " text'a text\n'\n text'a text\n'\n3 " NAMED_TEXTS
                 "\n3 pictures without a line or text file that refers to them\n");
    put_both("capitals", capitals, COUNT_OF(capitals));
    expect_noted("capitals", LONE_TEXTS_LEAVE, " image@capitals/A.PNG text'small'\n1 " LONE_TEXTS "\n");
    expect_noted("capitals.tar", LONE_TEXTS_AUTO,
                 "bad: :A: a medium without a text: expected .txt or .json next to it (tar --sort=name puts them "
                 "there), or captions: folder or name, which take the names of folders and files\n1 " NAMED_TEXTS
                 "\n1 " LONE_TEXTS "\n");
    /* As `tar` writes a folder that is not sorted: half of the pairs are further away than is looked. */
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

/* Names of fields: the only medium and the only text of a key belong together. */
static void fields_of_a_key_are_a_pair(void **state)
{
    static const char *const files[][2] = {
        {"1.image.png", "A"}, {"1.caption.txt", "one"},   {"2.input.png", "B"}, {"2.output.txt", "two"},
        {"3.png", "C"},       {"3.caption.txt", "three"}, {"4.image.png", "D"}, {"4.txt", "four"},
        {"5.1-a.png", "RED"}, {"5.1-b.txt", "of another"}};
    (void)state;
    put_both("fields", files, COUNT_OF(files));
    expect_noted("fields.tar", LONE_TEXTS_AUTO,
                 " image'A' text'one'\n image'B' text'two'\n image'C' text'three'\n image'D' text'four'\n"
                 "bad: :5: a medium, and texts of other names such as .1-b.txt: expected .txt or .json of its "
                 "name\n");
    expect_noted("fields", LONE_TEXTS_AUTO,
                 " image@fields/1.image.png text'one'\n image@fields/2.input.png text'two'\n"
                 " image@fields/3.png text'three'\n image@fields/4.image.png text'four'\n"
                 "1 " LONE_TEXTS "\n1 pictures without a line or text file that refers to them\n");
    static const char *const several[][2] = {{"1.left.png", "L"},  {"1.right.png", "R"}, {"1.txt", "of both"},
                                             {"2.image.png", "I"}, {"2.title.txt", "t"}, {"2.text.txt", "u"},
                                             {"3.left.png", "L"},  {"3.right.png", "R"}, {"3.right.txt", "right"}};
    put_both("several", several, COUNT_OF(several));
    expect_noted("several.tar", LONE_TEXTS_AUTO,
                 "bad: :1.left: 2 media, and the text .txt that has the name of none: expected a text of the name "
                 "of each\n"
                 "bad: :1.right: 2 media, and the text .txt that has the name of none: expected a text of the name "
                 "of each\n"
                 "bad: :2: a medium, and texts of other names such as .title.txt: expected .txt or .json of "
                 "its name\n"
                 " image'R' text'right'\n1 media without a text of the same name up to the last dot\n");
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

/* Hard links as `cp -l` makes them, and symbolic ones, also to members that follow. */
static void links_in_tars_have_the_bytes_of_their_targets(void **state)
{
    static const char expected[] = " image'RED' text'one'\n image'RED' text'two'\n image'RED' text'three'\n"
                                   " image'BLUE' text'four'\n image'BLUE' text'blue'\n image'RED' text'one'\n"
                                   "3 media that are links to what the tar does not hold, with their texts\n";
    struct buffer tar = {0};
    struct sample sample;
    (void)state;
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
    expect_noted("links.tar", LONE_TEXTS_AUTO, expected);
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
    expect_noted("links.tar.gz", LONE_TEXTS_AUTO, expected);
    memory_free(command);
    memory_free(packed);
    memory_free(path);
    buffer_release(&tar);
}

/* `cat a.tar b.tar`, what stands behind the end mark, and a tar without one. */
static void tars_behind_one_another_are_read(void **state)
{
    struct buffer one = {0}, two = {0}, all = {0};
    (void)state;
    tar_member(&one, "1.png", "A");
    tar_member(&one, "1.txt", "one");
    buffer_append(&all, one.data, one.length);
    memory_free(put_file("open.tar", one.data, one.length));
    expect_noted("open.tar", LONE_TEXTS_AUTO,
                 " image'A' text'one'\n1 tars without the mark of their end: they may have been cut short\n");
    tar_end(&one);
    tar_end(&all);
    tar_end(&all);
    tar_member(&two, "2.png", "B");
    tar_member(&two, "2.txt", "two");
    tar_end(&two);
    buffer_append(&all, two.data, two.length);
    memory_free(put_file("cat.tar", all.data, all.length));
    expect_noted("cat.tar", LONE_TEXTS_AUTO, " image'A' text'one'\n image'B' text'two'\n");
    buffer_append(&one, "something else behind it", 24);
    memory_free(put_file("tail.tar", one.data, one.length));
    expect_noted("tail.tar", LONE_TEXTS_AUTO, " image'A' text'one'\ndamaged: : byte 3072: Truncated tar archive\n");
    buffer_clear(&all); /* cut within a member: what is in front of it is a pair, and no page of text */
    tar_member(&all, "1.png", "A");
    tar_member(&all, "1.txt", "one");
    tar_member(&all, "2.png", "B");
    memory_free(put_file("cut.tar", all.data, all.length - 511));
    expect_noted(
        "cut.tar", LONE_TEXTS_AUTO,
        " image'A' text'one'\ndamaged: : byte 2561: Truncated input file (needed 511 bytes, only 0 available)\n");
    buffer_release(&one);
    buffer_release(&two);
    buffer_release(&all);
}

/* Headers of tars have a checksum: with one bit changed, the tar says what it said, or is damaged. */
static void no_changed_bit_of_a_header_changes_a_sample(void **state)
{
    struct buffer tar = {0};
    (void)state;
    tar_member(&tar, "1.png", "A");
    tar_member(&tar, "1.txt", "one");
    tar_end(&tar);
    for (i64 bit = 0; bit < 2 * 8 * 512; bit += 61) {
        i64 at = bit / 8 % 512 + (bit / 8 / 512) * 1024;
        struct buffer drawn = {0};
        tar.data[at] = (char)(tar.data[at] ^ 1 << bit % 8);
        char *path = put_file("bit.tar", tar.data, tar.length);
        draw(&drawn, path);
        if (!strstr(drawn.data, "damaged\n") && strcmp(drawn.data, "captioned image'A' text'one'\n") != 0)
            fail_msg("byte %lld: %s", (long long)at, drawn.data);
        tar.data[at] = (char)(tar.data[at] ^ 1 << bit % 8);
        buffer_release(&drawn);
        memory_free(path);
    }
    buffer_release(&tar);
}

/* `cat a.csv b.csv`, ids behind those of an index, and UTF-16 as Windows writes it. */
static void what_is_not_read_is_named(void **state)
{
    /* Megatron's own writer: documents [1,2,3] and [4,5] as u16. */
    static const u8 index[] = {0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0,
                               0,    0,    0,    0,    0,    3,    0,    0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
                               0,    0,    0,    0,    0,    0,    0,    0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                               0,    0,    0,    1,    0,    0,    0,    0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
    static const u8 ids[] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0};
    (void)state;
    assert_int_equal(directory_make(path_of("ids")), 0);
    memory_free(put_file("ids/m.idx", index, sizeof index));
    memory_free(put_file("ids/m.bin", ids, sizeof ids));
    expect_noted("ids", LONE_TEXTS_AUTO,
                 " ids,1,2,3\n ids,4,5\n1 indexes that name fewer ids than the .bin beside them holds\n");
    memory_free(put_file("two.csv", "text,n\none,1\n\xef\xbb\xbftext,n\ntwo,2\n", 29));
    expect_noted("two.csv", LONE_TEXTS_AUTO,
                 " text'one'\nbad: :3: the names of the columns again: two tables, one behind the other\n text'two'\n"
                 "1 tables with the column \"n\", which is not read\n");
    memory_free(put_file("word.csv", "text\ntext\n", 10));
    expect_noted("word.csv", LONE_TEXTS_AUTO, " text'text'\n");
    memory_free(put_file("wide.txt",
                         "\xff\xfe"
                         "a\0b\0",
                         6));
    expect_noted("wide.txt", LONE_TEXTS_AUTO, "bad: :1: a text in UTF-16: expected UTF-8 (iconv -f UTF-16 -t UTF-8)\n");
}

/* Corpora of speech and of captions state what media hold in one text for many. */
static void lists_of_media_are_no_pages(void **state)
{
    static const char *const files[][2] = {
        {"lists/84/84-1.trans.txt",
         "84-1-0000 GO DO YOU HEAR\n84-1-0001\tBUT IN LESS\r\n\n84-1-0009 OF NONE\n84-1-0002 \n"},
        {"lists/84/84-1-0000.flac", "A"},
        {"lists/84/84-1-0001.flac", "B"},
        {"lists/84/84-1-0002.flac", "C"},
        {"lists/84/notes.txt", "84 readers read\nbooks aloud\n"},
        {"lists/flickr/captions.txt", "image,caption\n1.jpg,A child .\n1.jpg,A girl .\n"},
        {"lists/flickr/images/1.jpg", "J"},
        {"lists/tokens/2.png", "P"},
        {"lists/tokens/token.txt", "2.png#0\tA dog .\n2.png#1\tIt runs .\n"},
        {"lists/wav/S1/B1.wav", "W"},
        {"lists/transcript/all.txt", "B1 ni hao\n"}};
    (void)state;
    put_all(files, COUNT_OF(files));
    expect_noted("lists", LONE_TEXTS_AUTO,
                 " audio@lists/84/84-1-0000.flac text'GO DO YOU HEAR'\n"
                 " audio@lists/84/84-1-0001.flac text'BUT IN LESS'\n"
                 "bad: /84/84-1.trans.txt:4: a line without the name of a medium in this folder: expected NAME TEXT\n"
                 "bad: /84/84-1.trans.txt:5: a name of a medium without a text behind it\n"
                 " text'84 readers read\nbooks aloud\n'\n"
                 " image@lists/tokens/2.png text'A dog .'\n image@lists/tokens/2.png text'It runs .'\n"
                 "2 " LISTS "\n2 sounds without a line or text file that refers to them\n"
                 "1 pictures without a line or text file that refers to them\n");
}

/* Names that differ in how a letter with a mark is written, and media with a word more than their text. */
static void names_of_other_spelling_are_counted(void **state)
{
    static const char *const files[][2] = {{"spelt/cafe\xcc\x81.png", "A"},       {"spelt/caf\xc3\xa9.txt", "NFC"},
                                           {"spelt/wav/p225_001_mic1.flac", "B"}, {"spelt/txt/p225_001.txt", "of both"},
                                           {"spelt/txt/p225.txt", "a text"},      {"spelt/__MACOSX/b.png", "?"},
                                           {"spelt/__MACOSX/b.txt", "Mac OS X"}};
    (void)state;
    put_all(files, COUNT_OF(files));
    expect_noted("spelt", LONE_TEXTS_AUTO,
                 " text'a text\n'\n1 hidden files and folders\n2 " NAMED_TEXTS "\n"
                 "1 pictures without a line or text file that refers to them\n"
                 "1 sounds without a line or text file that refers to them\n");
}

/* What downloads leave in place of a text. */
static void bytes_that_are_no_text_are_named(void **state)
{
#define POINTER "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    static const char *const files[][2] = {
        {"left/a.png", "A"}, {"left/a.txt", POINTER}, {"left2/b.txt", POINTER}, {"left2/c.md", "text"}};
    (void)state;
    put_all(files, COUNT_OF(files));
    memory_free(put_file("left2/d.txt", "o\0n\0e\0", 6));
    expect_noted("left", LONE_TEXTS_AUTO, "bad: /a.txt: a pointer of Git LFS instead of the file: git lfs pull\n");
    expect_noted("left2", LONE_TEXTS_AUTO,
                 "bad: /b.txt:1: a pointer of Git LFS instead of the file: git lfs pull\n text'text\n'\n"
                 "bad: /d.txt:1: byte 1 of a text is 0: expected UTF-8 (if it is UTF-16: iconv -f UTF-16 -t UTF-8)\n");
}

/* Files that give no sample for any other reason. */
static void empty_files_are_counted(void **state)
{
    static const char *const files[][2] = {{"empty/a.txt", ""},
                                           {"empty/b.txt", " \n\t\n"},
                                           {"empty/c.jsonl", "\n\n"},
                                           {"empty/d.csv", ""},
                                           {"empty/e.json", "[]"},
                                           {"empty/f.txt", "text"},
                                           {"empty/g.png", "PNG"},
                                           {"empty/g.txt", ""},
                                           {"empty/h.jsonl",
                                            "{\"prompt\": \"p\", \"reward_model\": {\"style\": \"rule\", "
                                            "\"ground_truth\": \"1\"}}\n"}};
    (void)state;
    put_all(files, COUNT_OF(files));
    expect_noted("empty", LONE_TEXTS_READ,
                 "damaged: /d.csv: is empty: expected a line with the names of its columns\n text'text\n'\n"
                 "4 files with nothing in them\n"
                 "1 pictures whose caption files are empty\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captions_have_the_names_that_tools_write),
        cmocka_unit_test(captions_without_a_medium_are_counted),
        cmocka_unit_test(texts_named_like_a_medium_are_counted),
        cmocka_unit_test(fields_of_a_key_are_a_pair),
        cmocka_unit_test(links_in_tars_have_the_bytes_of_their_targets),
        cmocka_unit_test(tars_behind_one_another_are_read),
        cmocka_unit_test(no_changed_bit_of_a_header_changes_a_sample),
        cmocka_unit_test(lists_of_media_are_no_pages),
        cmocka_unit_test(names_of_other_spelling_are_counted),
        cmocka_unit_test(bytes_that_are_no_text_are_named),
        cmocka_unit_test(empty_files_are_counted),
        cmocka_unit_test(what_is_not_read_is_named),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
