/* Sources: samples of WebDataset, whose members stand side by side in archives. */
#include "data/sources/source_readers.h"
#include "tests/source_cases.h"

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

TEST(members_say_where_they_stand)
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
}

TEST(members_with_one_key_are_a_sample)
{
    struct buffer tar = {0};
    check_sources("tar_samples.jsonl");
    tar_member(&tar, "a.png", "PNG");
    tar_member(&tar, "a.txt", "apple");
    memory_free(put_file("cut.tar", tar.data, 512 + 512 + 512 + 2));
    expect_source("cut.tar", NULL, "damaged: cut.tar: byte 1538: Truncated tar archive\n");
    buffer_release(&tar);
}

/* A name that a sample has already begins the next one, as in tars that were joined. */
TEST(repeated_names_are_samples_of_their_own)
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
    memory_free(put_file("joined.tar", tar.data, tar.length));
    expect_source("joined.tar", NULL,
                  "captioned image'FIRST' text'one'\n"
                  "captioned image'SECOND' text'two'\n"
                  "bad: joined.tar:b: a medium without a text: expected .txt or .json next to it (tar --sort=name puts "
                  "them there), or captions: folder or name, which take the names of folders and files\n"
                  "captioned image'LATER' text'three'\n");
    buffer_release(&tar);
}

/* A key of more members than a sample may have, in names with dots. */
TEST(keys_of_many_members_are_cut_between_names)
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
    memory_free(put_file("many.tar", tar.data, tar.length));
    expect_source("many.tar", NULL, expected.data);
    buffer_release(&tar);
    buffer_release(&expected);
}

/* Of every ending that is read a medium and its caption; of every other ending neither is, and the
 * caption is no document. */
TEST(endings_of_media_are_read_or_left_out_with_their_texts)
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
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
