/* Sources: samples of WebDataset, whose members stand side by side in archives. */
#include "data/sources/source_readers.h"
#include "tests/sample_text.h"
#include "tests/tar_text.h"

/* Adds a member with a pax header, like a long name has. */
static void add_pax(struct buffer *tar)
{
    i64 at = tar->length;
    u32 sum = 0;
    tar_member(tar, "PaxHeader", "19 path=long/n.png\n");
    tar->data[at + 156] = 'x';
    memset(tar->data + at + 148, ' ', 8);
    for (i64 i = 0; i < 512; i++)
        sum += (u8)tar->data[at + i];
    snprintf(tar->data + at + 148, 8, "%06o", sum);
}

static void members_say_where_they_stand(void **state)
{
    struct buffer tar = {0};
    struct sample sample;
    tar_member(&tar, "a.png", "PNG");
    tar_member(&tar, "a.txt", "an apple");
    add_pax(&tar);
    tar_member(&tar, "short.png", "second PNG");
    tar_member(&tar, "long/n.txt", "a pear");
    tar_end(&tar);
    char *path = put_file("where.tar", tar.data, tar.length);
    struct source *source = source_open(path, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
        const struct sample_part *part = &sample.parts[0];
        assert_string_equal(part->within, path);
        assert_memory_equal(tar.data + part->at, part->bytes.data, (size_t)part->bytes.length);
        assert_int_equal(part->bytes.length, i ? 10 : 3);
        sample_release(&sample);
    }
    source_close(source);
    buffer_release(&tar);
    memory_free(path);
    (void)state;
}

static void members_with_one_key_are_a_sample(void **state)
{
    struct buffer tar = {0};
    tar_member(&tar, "d.x/a.png", "PNG");
    tar_member(&tar, "d.x/a.TXT", "apple");
    tar_member(&tar, "d.x/b.json", "{\"caption\": \"pear\"}");
    tar_member(&tar, "d.x/b.wav", "RIFF");
    tar_member(&tar, "__meta__.txt", "no");
    tar_member(&tar, "c.txt", "alone");
    tar_member(&tar, "d.cls", "7");
    tar_member(&tar, "e.jpg", "JPG");
    tar_member(&tar, "f.txt", "1");
    tar_member(&tar, "f.txt", "2");
    tar_member(&tar, "g.p1.png", "P1");
    tar_member(&tar, "g.json", "{\"texts\": [\"see\", null], \"images\": [null, \"p1.png\"]}");
    tar_member(&tar, "h.json",
               "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"image\": \"h.jpg\"}]}]}");
    tar_member(&tar, "h.jpg", "HJ");
    tar_member(&tar, "i.jpg", "IJ");
    tar_member(&tar, "i.json", "{\"messages\": null, \"texts\": null, \"text\": null, \"caption\": \"plum\"}");
    tar_member(&tar, "j.jpg", "thumb");
    tar_member(&tar, "j.mp4", "JV");
    tar_member(&tar, "j.txt", "a clip");
    tar_end(&tar);
    expect(put_file("set.tar", tar.data, tar.length), "captioned image'PNG' text'apple'\n"
                                                      "captioned audio'RIFF' text'pear'\n"
                                                      "bad\n"
                                                      "mixed text'see' image'P1'\n"
                                                      "chat <user> image'HJ'\n"
                                                      "captioned image'IJ' text'plum'\n"
                                                      "captioned video'JV' text'a clip'\n");
    expect(put_file("cut.tar", tar.data, 512 + 512 + 512 + 2), "damaged\n");
    buffer_release(&tar);
    (void)state;
}

/* A name that a sample has already begins the next one, as in tars that were joined. */
static void repeated_names_are_samples_of_their_own(void **state)
{
    struct buffer tar = {0};
    for (int times = 0; times < 2; times++) {
        tar_member(&tar, "a.png", times ? "SECOND" : "FIRST");
        tar_member(&tar, "a.txt", times ? "two" : "one");
        tar_end(&tar);
    }
    tar_member(&tar, "b.png", "ALONE");
    tar_member(&tar, "b.png", "LATER");
    tar_member(&tar, "b.txt", "three");
    tar_end(&tar);
    expect(put_file("joined.tar", tar.data, tar.length), "captioned image'FIRST' text'one'\n"
                                                         "captioned image'SECOND' text'two'\n"
                                                         "bad\n"
                                                         "captioned image'LATER' text'three'\n");
    buffer_release(&tar);
    (void)state;
}

/* Names with dots: members of one key are a sample each name, and none gets the text of another. */
static void names_with_dots_keep_their_texts(void **state)
{
    struct buffer tar = {0};
    tar_member(&tar, "v1.2-a.png", "RED");
    tar_member(&tar, "v1.2-b.png", "BLUE");
    tar_member(&tar, "v1.2-b.txt", "blue");
    tar_member(&tar, "v1.2-c.txt", "of none");
    tar_member(&tar, "w1.2-a.png", "ALONE");
    tar_member(&tar, "w1.2-b.txt", "of another");
    tar_member(&tar, "x.1.mp4", "X1");
    tar_member(&tar, "x.1.json", "{\"caption\": \"one\"}");
    tar_member(&tar, "x.2.mp4", "X2");
    tar_member(&tar, "x.2.jpg", "thumb");
    tar_member(&tar, "x.2.txt", "two");
    tar_member(&tar, "y.left.jpg", "Y");
    tar_member(&tar, "y.txt", "the key's");
    tar_member(&tar, "z.jpg", "Z");
    tar_member(&tar, "z.mask.png", "MASK");
    tar_member(&tar, "z.txt", "whole");
    tar_member(&tar, "r.1.json", "{\"messages\": [{\"role\": \"user\", \"content\": \"1?\"}]}");
    tar_member(&tar, "r.2.json", "{\"messages\": [{\"role\": \"user\", \"content\": \"2?\"}]}");
    tar_member(&tar, "u.ac3", "AC3");
    tar_member(&tar, "u.txt", "of what is not read");
    tar_end(&tar);
    char *path = put_file("dots.tar", tar.data, tar.length);
    expect(string_copy(path), "captioned image'BLUE' text'blue'\n"
                              "bad\n"
                              "captioned video'X1' text'one'\n"
                              "captioned video'X2' text'two'\n"
                              "captioned image'Y' text'the key's'\n"
                              "captioned image'Z' text'whole'\n"
                              "chat <user> text'1?'\n"
                              "chat <user> text'2?'\n");
    struct source *source = source_open(path, NULL);
    struct sample sample;
    struct buffer notes = {0};
    i64 count;
    for (enum source_result r; (r = source_next(source, &sample)) != SOURCE_END;)
        sample_release(&sample);
    const struct source_note *list = source_notes(source, &count);
    for (i64 i = 0; i < count; i++)
        buffer_printf(&notes, "%lld %s\n", (long long)list[i].count, list[i].what);
    assert_string_equal(notes.data, "2 media without a text of the same name up to the last dot\n"
                                    "1 members ending in .txt beside what their sample is made of\n"
                                    "1 members ending in .jpg beside what their sample is made of\n"
                                    "1 texts beside a medium that is not read\n"
                                    "1 members ending in .ac3\n");
    source_close(source);
    buffer_release(&notes);
    buffer_release(&tar);
    memory_free(path);
    (void)state;
}

/* A key of more members than a sample may have, in names with dots. */
static void keys_of_many_members_are_cut_between_names(void **state)
{
    struct buffer tar = {0}, expected = {0};
    for (int i = 0; i < 5000; i++) {
        char name[32], text[32];
        snprintf(name, sizeof name, "a.%05d.png", i);
        snprintf(text, sizeof text, "P%d", i);
        tar_member(&tar, name, text);
        snprintf(name, sizeof name, "a.%05d.txt", i);
        snprintf(text, sizeof text, "text %d", i);
        tar_member(&tar, name, text);
        buffer_printf(&expected, "captioned image'P%d' text'text %d'\n", i, i);
    }
    tar_end(&tar);
    expect(put_file("many.tar", tar.data, tar.length), expected.data);
    buffer_release(&tar);
    buffer_release(&expected);
    (void)state;
}

/* The same caption in a folder, a tar and a table. */
static void captions_are_cleaned_alike(void **state)
{
    static const char caption[] = "\xef\xbb\xbf a red\r\napple \t\r\n\r\n";
    struct buffer tar = {0};
    tar_member(&tar, "a.png", "PNG");
    tar_member(&tar, "a.txt", caption);
    tar_member(&tar, "b.png", "PNG");
    tar_member(&tar, "b.json", "{\"caption\": \"an apple\\r\\n\"}");
    tar_member(&tar, "c.png", "PNG");
    tar_member(&tar, "c.txt", "\r\n");
    tar_end(&tar);
    expect(put_file("bom.tar", tar.data, tar.length), "captioned image'PNG' text' a red\r\napple'\n"
                                                      "captioned image'PNG' text'an apple'\n");
    assert_int_equal(directory_make(path_of("bom")), 0);
    memory_free(put_text("bom/a.png", "PNG"));
    memory_free(put_text("bom/a.txt", caption));
    memory_free(put_text("bom/b.png", "PNG"));
    memory_free(put_text("bom/b.json", "{\"caption\": \"an apple\\r\\n\"}"));
    expect(string_copy(path_of("bom")),
           "captioned image@bom/a.png text' a red\r\napple'\ncaptioned image@bom/b.png text'an apple'\n");
    expect(put_text("bom.csv", "image,text\na.png,\"\xef\xbb\xbf a red\r\napple \t\r\n\r\n\"\nb.png,\" \n\"\n"),
           "captioned image@a.png text' a red\r\napple'\n");
    expect(put_text("bom.jsonl", "{\"image\": \"a.png\", \"text\": \"\\ufeff an apple \\r\\n\"}\n"),
           "captioned image@a.png text' an apple'\n");
    buffer_release(&tar);
    (void)state;
}

static void documents_in_archives_are_texts(void **state)
{
    struct buffer tar = {0};
    tar_member(&tar, "docs/README.md", "of the archive");
    tar_member(&tar, "docs/a.md", "one");
    tar_member(&tar, "docs/b.rst", "two");
    tar_member(&tar, "docs/c.png", "PNG");
    tar_member(&tar, "docs/c.md", "long");
    tar_member(&tar, "docs/c.txt", "pear");
    tar_end(&tar);
    expect(put_file("docs.tar", tar.data, tar.length),
           "plain text'one'\nplain text'two'\ncaptioned image'PNG' text'pear'\n");
    buffer_release(&tar);
    (void)state;
}

/* Of every ending that is read a medium and its caption; of every other ending neither is, and the
 * caption is no document. */
static void endings_of_media_are_read_or_left_out_with_their_texts(void **state)
{
    i64 left_out = 0, count;
    assert_int_equal(directory_make(path_of("ends")), 0);
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++)
        for (int unread = 0; unread < 2; unread++) {
            char word[32];
            int length;
            const char *at = unread ? modality_rows[kind].unread : modality_rows[kind].suffixes;
            for (; sscanf(at, " %31s%n", word, &length) == 1; at += length, left_out += unread) {
                char *medium = string_format("ends/x-%s.%s", word, word), *text = string_format("ends/x-%s.txt", word);
                memory_free(put_text(medium, "bytes"));
                memory_free(put_text(text, word));
                memory_free(medium);
                memory_free(text);
            }
        }
    assert_true(medium_kind("ts") == MODALITY_VIDEO && medium_kind("jfif") == MODALITY_IMAGE &&
                medium_kind("mka") == MODALITY_AUDIO && medium_kind("wma") == MODALITY_AUDIO && medium_kind("ac3") < 0);
    memory_free(put_text("ends/y.ac3", "bytes"));
    memory_free(put_text("ends/y.srt", "00:00:01,000 --> 00:00:02,000\nsaid\n"));
    memory_free(put_text("ends/z.ac3", "bytes"));
    memory_free(put_text("ends/z.mp3", "bytes"));
    memory_free(put_text("ends/z.txt", "of the mp3"));
    struct source *source = source_open(path_of("ends"), NULL);
    struct sample sample;
    i64 given = 0;
    while (source_next(source, &sample) == SOURCE_SAMPLE) {
        const char *dash = strstr(sample.parts[0].path ? sample.parts[0].path : "", "/x-");
        assert_int_equal(sample.layout, SAMPLE_CAPTIONED);
        assert_int_equal(sample.count, 2);
        if (dash)
            assert_true(strncmp(dash + 3, sample.parts[1].bytes.data, (size_t)sample.parts[1].bytes.length) == 0);
        given++;
        sample_release(&sample);
    }
    const struct source_file *files = source_files(source, &count);
    assert_int_equal(count, 2 * (given + left_out) + 3);
    for (i64 i = 0; i < count; i++)
        left_out -= files[i].why && strcmp(files[i].why, "texts beside a medium that is not read") == 0;
    assert_int_equal(left_out, -1);
    source_close(source);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_say_where_they_stand),
        cmocka_unit_test(members_with_one_key_are_a_sample),
        cmocka_unit_test(repeated_names_are_samples_of_their_own),
        cmocka_unit_test(names_with_dots_keep_their_texts),
        cmocka_unit_test(keys_of_many_members_are_cut_between_names),
        cmocka_unit_test(captions_are_cleaned_alike),
        cmocka_unit_test(documents_in_archives_are_texts),
        cmocka_unit_test(endings_of_media_are_read_or_left_out_with_their_texts),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
