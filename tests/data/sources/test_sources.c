/* Sources: every form of file and of sample, plain and compressed; errors are reported with their
 * place and skipped. */
#include <sys/stat.h>
#include <sys/wait.h>
#include "data/sources/source_readers.h"
#include "data/sources/sources.h"
#include "tests/scratch.h"
#include "tests/tar_text.h"
#include "tests/tier.h"

static void draw_part(struct buffer *out, const struct sample_part *part)
{
    if (part->role)
        buffer_printf(out, " <%s>", part->role);
    buffer_printf(out, " %s", part->kind == SAMPLE_IDS ? "ids" : modality_rows[part->kind].name);
    if (part->path)
        buffer_printf(out, "@%s",
                      strncmp(part->path, directory, strlen(directory)) == 0 ? part->path + strlen(directory) + 1
                                                                             : part->path);
    for (i64 i = 0; part->kind == SAMPLE_IDS && i < part->bytes.length / 4; i++)
        buffer_printf(out, ",%d", ((const i32 *)part->bytes.data)[i]);
    if (part->kind != SAMPLE_IDS && part->bytes.length)
        buffer_printf(out, "'%.*s'", (int)min_i64(part->bytes.length, 60), part->bytes.data);
}

/* Appends all samples of a source, one per line: FORM PARTS, "bad" or "damaged". */
static void draw(struct buffer *out, const char *path)
{
    static const char *const forms[] = {"plain", "captioned", "chat", "mixed"};
    const struct source_columns columns = {.outside = OUTSIDE_ALLOW}; /* some name files of / */
    struct source *source = source_open(path, &(struct source_request){.columns = &columns});
    struct sample sample;
    enum source_result result;
    if (!source)
        fail_msg("%s", error_text());
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        if (result != SOURCE_SAMPLE) {
            buffer_printf(out, result == SOURCE_BAD ? "bad\n" : "damaged\n");
            continue;
        }
        buffer_printf(out, "%s", forms[sample.layout]);
        for (i64 i = 0; i < sample.count; i++)
            draw_part(out, &sample.parts[i]);
        buffer_printf(out, "\n");
        sample_release(&sample);
    }
    source_close(source);
}

static void expect(char *path, const char *expected)
{
    struct buffer drawn = {0};
    draw(&drawn, path);
    assert_string_equal(drawn.data ? drawn.data : "", expected);
    buffer_release(&drawn);
    memory_free(path);
}

static void lines_become_samples(void **state)
{
    const char text[] = "{\"text\": \"one\"}\n\n"
                        "{\"image\": \"a/b.png\", \"text\": \"red apple\"}\n"
                        "{\"audio\": \"/abs.wav\", \"caption\": \"seven\", \"speaker\": \"x\"}\n"
                        "{\"question\": \"1+1?\", \"answer\": \"2\"}\n"
                        "{\"prompt\": [{\"role\": \"user\", \"content\": \"x\"}], \"reward_model\": {}}\n"
                        "not json\n"
                        "{\"video\": \"v.mp4\"}\n"
                        "{\"text\": 5}\n"
                        "{\"text\": \"\"}\n"
                        "{\"text\": \"last\"}";
    expect(put_file("lines.jsonl", text, sizeof text - 1), "plain text'one'\n"
                                                           "captioned image@a/b.png text'red apple'\n"
                                                           "captioned audio@/abs.wav text'seven'\n"
                                                           "chat <user> text'1+1?' <assistant> text'2'\n"
                                                           "bad\nbad\nbad\n"
                                                           "plain text'last'\n");
    (void)state;
}

static void messages_hold_any_media(void **state)
{
    const char text[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"<image> and <image>?\"}, {\"role\": \"assistant\", "
        "\"content\": \"yes\"}],"
        " \"images\": [\"1.png\", {\"image\": \"2.png\"}]}\n"
        "{\"messages\": [{\"role\": \"system\", \"content\": \"\"}, {\"role\": \"user\", \"content\": [{\"type\": "
        "\"text\", \"text\": "
        "\"hear\"}, {\"type\": \"audio\", \"audio\": \"h.wav\"}]}, {\"role\": \"assistant\", \"content\": [{\"type\": "
        "\"image_url\", "
        "\"image_url\": {\"url\": \"file:///p.png\"}}]}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"no <image> list\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"<image>\"}], \"images\": []}\n"
        "{\"messages\": [{\"content\": \"no role\"}]}\n"
        "{\"messages\": [{\"role\": \"user\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"image\": \"https://x/y.png\"}]}]}\n"
        "{\"texts\": [\"a\", null, \"b\"], \"images\": [null, \"i.png\", null]}\n";
    expect(put_file("chat.jsonl", text, sizeof text - 1),
           "chat <user> image@1.png text' and ' image@2.png text'?' <assistant> text'yes'\n"
           "chat <system> text <user> text'hear' audio@h.wav <assistant> image@/p.png\n"
           "chat <user> text'no <image> list'\n"
           "bad\nbad\nbad\nbad\n"
           "mixed text'a' image@i.png text'b'\n");
    (void)state;
}

static void a_null_counts_as_absent(void **state)
{
    const char text[] = "{\"image\": null, \"messages\": null, \"text\": \"plain\"}\n"
                        "{\"image\": \"a.png\", \"video\": null, \"text\": null, \"caption\": \"cap\"}\n"
                        "{\"image\": null, \"audio\": \"h.wav\", \"text\": \"heard\"}\n"
                        "{\"messages\": null, \"question\": \"1+1?\", \"answer\": \"2\"}\n"
                        "{\"messages\": [{\"role\": \"user\", \"content\": \"an <image>\"}], \"images\": null}\n"
                        "{\"image\": \"a.png\", \"text\": null, \"caption\": null}\n"
                        "{\"text\": null}\n";
    expect(put_file("null.jsonl", text, sizeof text - 1), "plain text'plain'\n"
                                                          "captioned image@a.png text'cap'\n"
                                                          "captioned audio@h.wav text'heard'\n"
                                                          "chat <user> text'1+1?' <assistant> text'2'\n"
                                                          "chat <user> text'an <image>'\n"
                                                          "bad\n");
    (void)state;
}

static void calls_of_tools_are_said(void **state)
{
    const char text[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"7*6?\"}, {\"role\": \"assistant\", \"content\": null, "
        "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"mul\", \"arguments\": \"{}\"}}]}, "
        "{\"role\": \"tool\", \"content\": \"42\"}, {\"role\": \"assistant\", \"content\": null}]}\n"
        "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": {\"a\": 1}}]}]}\n"
        "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{}]}]}\n";
    expect(put_file("tools.jsonl", text, sizeof text - 1),
           "chat <user> text'7*6?' <assistant> text'<tool_call>\n{\"name\": \"mul\", \"arguments\": {}}\n</tool_call>' "
           "<tool> text'42' <assistant> text\n"
           "chat <assistant> text'<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>'\n"
           "bad\n");
    (void)state;
}

static void names_say_where(void **state)
{
    char *path = put_file("where.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}", 26);
    struct source *source = source_open(path, NULL);
    struct sample sample;
    assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
    assert_non_null(strstr(sample.name, "where.jsonl:1"));
    sample_release(&sample);
    assert_int_equal(source_next(source, &sample), SOURCE_BAD);
    assert_non_null(strstr(error_text(), "where.jsonl:2"));
    assert_int_equal(source_next(source, &sample), SOURCE_END);
    source_close(source);
    memory_free(path);
    (void)state;
}

static void text_is_cut_at_blank_lines(void **state)
{
    struct buffer whole = {0}, again = {0};
    struct sample sample;
    for (i64 i = 0; i < 20000; i++)
        buffer_printf(&whole, "line %lld%s\n", (long long)i, i % 10 == 9 ? "\n" : "");
    char *path = put_file("long.txt", whole.data, whole.length);
    struct source *source = source_open(path, NULL);
    i64 pieces = 0;
    for (; source_next(source, &sample) == SOURCE_SAMPLE; pieces++) {
        buffer_append(&again, sample.parts[0].bytes.data, sample.parts[0].bytes.length);
        assert_memory_equal(sample.parts[0].bytes.data, "line", 4);
        assert_int_equal(sample.goes_on, again.length < whole.length);
        sample_release(&sample);
    }
    assert_in_range(pieces, 4, 8);
    assert_string_equal(again.data, whole.data);
    source_close(source);
    buffer_release(&whole);
    buffer_release(&again);
    memory_free(path);
    expect(put_file("bad.txt", "ab\xff", 3), "bad\n");
    expect(put_file("empty.txt", "", 0), "");
    (void)state;
}

static void a_byte_order_mark_is_no_text(void **state)
{
    expect(put_file("mark.txt",
                    "\xef\xbb\xbf"
                    "one\n\xef\xbb\xbf"
                    "two\n",
                    14),
           "plain text'one\n\xef\xbb\xbf"
           "two\n'\n");
    expect(put_file("mark.jsonl", "\xef\xbb\xbf{\"text\": \"one\"}\n", 19), "plain text'one'\n");
    expect(put_file("short.txt", "\xef\xbb", 2), "bad\n");
    (void)state;
}

/* ---- compressed: stored blocks, written by hand ---- */

static u32 crc32_of(const u8 *bytes, i64 count)
{
    u32 crc = ~0u;
    for (i64 i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void gzip(struct buffer *out, const char *bytes, u16 count)
{
    const u8 head[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1};
    u16 sizes[] = {count, (u16)~count};
    u32 tail[] = {crc32_of((const u8 *)bytes, count), count};
    buffer_append(out, head, sizeof head);
    buffer_append(out, sizes, 4);
    buffer_append(out, bytes, count);
    buffer_append(out, tail, 8);
}

static void zstd(struct buffer *out, const char *bytes, u8 count)
{
    const u8 head[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, count, (u8)(1 | count << 3), (u8)(count >> 5), 0};
    buffer_append(out, head, sizeof head);
    buffer_append(out, bytes, count);
}

static void compressed_files_are_read(void **state)
{
    const char line[] = "{\"text\": \"packed\"}\n";
    struct buffer gz = {0}, zst = {0};
    gzip(&gz, line, sizeof line - 1);
    zstd(&zst, line, sizeof line - 1);
    expect(put_file("x.jsonl.gz", gz.data, gz.length), "plain text'packed'\n");
    expect(put_file("x.jsonl.zst", zst.data, zst.length), "plain text'packed'\n");
    expect(put_file("X.JSONL.GZ", gz.data, gz.length), "plain text'packed'\n");
    expect(put_file("X.JSONL.ZST", zst.data, zst.length), "plain text'packed'\n");
    expect(put_file("y.jsonl.gz", gz.data, gz.length / 2), "damaged\n");
    buffer_release(&gz);
    buffer_release(&zst);
    (void)state;
}

/* ---- WebDataset ---- */

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
                                                      "plain text'alone'\n"
                                                      "bad\nbad\n"
                                                      "mixed text'see' image'P1'\n"
                                                      "chat <user> image'HJ'\n"
                                                      "captioned image'IJ' text'plum'\n"
                                                      "captioned video'JV' text'a clip'\n");
    expect(put_file("cut.tar", tar.data, 512 + 512 + 512 + 2), "damaged\n");
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
                                                      "captioned image'PNG' text'an apple'\nbad\n");
    assert_int_equal(directory_make(path_of("bom")), 0);
    memory_free(put_text("bom/a.png", "PNG"));
    memory_free(put_text("bom/a.txt", caption));
    memory_free(put_text("bom/b.png", "PNG"));
    memory_free(put_text("bom/b.json", "{\"caption\": \"an apple\\r\\n\"}"));
    expect(string_copy(path_of("bom")),
           "captioned image@bom/a.png text' a red\r\napple'\ncaptioned image@bom/b.png text'an apple'\n");
    expect(put_text("bom.csv", "image,text\na.png,\"\xef\xbb\xbf a red\r\napple \t\r\n\r\n\"\nb.png,\" \n\"\n"),
           "captioned image@a.png text' a red\r\napple'\nbad\n");
    expect(put_text("bom.jsonl", "{\"image\": \"a.png\", \"text\": \"\\ufeff an apple \\r\\n\"}\n"),
           "captioned image@a.png text' an apple'\n");
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

/* ---- Megatron: the golden bytes of its own writer, documents [1,2,3] and [4,5] as u16 ---- */

static const u8 golden_idx[] = {0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0,
                                0,    0,    0,    0,    0,    3,    0,    0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
                                0,    0,    0,    0,    0,    0,    0,    0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                0,    0,    0,    1,    0,    0,    0,    0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
static const u8 golden_bin[] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0};

static void indexed_documents_are_ids(void **state)
{
    memory_free(put_file("m.bin", golden_bin, sizeof golden_bin));
    assert_int_equal(sizeof golden_idx, 82);
    expect(put_file("m.idx", golden_idx, sizeof golden_idx), "plain ids,1,2,3\nplain ids,4,5\n");
    expect(path_join(directory, "m.bin"), "plain ids,1,2,3\nplain ids,4,5\n");
    (void)state;
}

static void damaged_indexes_are_refused(void **state)
{
    for (i64 kept = 0; kept < (i64)sizeof golden_idx; kept++) {
        struct buffer drawn = {0};
        char *path = put_file("m.idx", golden_idx, kept);
        draw(&drawn, path);
        assert_string_equal(drawn.data, "damaged\n");
        buffer_release(&drawn);
        memory_free(path);
    }
    u8 bad[sizeof golden_idx];
    memcpy(bad, golden_idx, sizeof bad);
    bad[34] = 200; /* a sequence past the end of the ids */
    expect(put_file("m.idx", bad, sizeof bad), "bad\nplain ids,4,5\n");
    memset(bad + 26, 0, 8);
    bad[33] = 0x80; /* smallest possible number of documents */
    expect(put_file("m.idx", bad, sizeof bad), "damaged\n");
    (void)state;
}

static void folders_are_read_by_name(void **state)
{
    char *sub = path_join(directory, "sub");
    assert_int_equal(directory_make(sub), 0);
    memory_free(put_file("sub/b.txt", "two", 3));
    memory_free(put_file("sub/captions.jsonl", "{\"image\": \"x.png\", \"text\": \"y\"}\n", 32));
    memory_free(put_file("sub/a.txt", "one", 3));
    memory_free(put_file("sub/x.png", "?", 1));
    expect(string_copy(sub), "plain text'one\n'\nplain text'two\n'\ncaptioned image@sub/x.png text'y'\n");
    memory_free(sub);
    assert_null(source_open("/nowhere/at/all", NULL));
    char *path = put_file("x.xyz", "", 0);
    assert_null(source_open(path, NULL));
    assert_non_null(strstr(error_text(), ".jsonl"));
    memory_free(path);
    (void)state;
}

/* ---- folders ---- */

static void put_all(const char *const files[][2], i64 count)
{
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(directory, files[i][0]), *slash = strrchr(path, '/');
        *slash = 0;
        assert_int_equal(directory_make(path), 0);
        memory_free(path);
        memory_free(put_file(files[i][0], files[i][1], (i64)strlen(files[i][1])));
    }
}

static void a_text_beside_a_medium_is_its_caption(void **state)
{
    static const char *const files[][2] = {{"laion/1.JPG", "J"},
                                           {"laion/1.txt", "red apple\n"},
                                           {"laion/1.json", "{\"caption\": \"no\"}"},
                                           {"laion/2.jpg", "J"},
                                           {"laion/2.json", "{\"caption\": \"pear\"}"},
                                           {"laion/3.mp4", "V"},
                                           {"laion/3.jpg", "J"},
                                           {"laion/3.txt", "a clip"},
                                           {"laion/4.wav", "W"},
                                           {"laion/4.transcript", "said"},
                                           {"laion/5.png", "P"},
                                           {"laion/6.txt", "alone"},
                                           {"laion/7.orc", "?"},
                                           {"laion/8.png", "P"},
                                           {"laion/8.json", "{\"width\": 3}"},
                                           {"laion/.hidden.txt", "h"},
                                           {"laion/README", "r"}};
    put_all(files, COUNT_OF(files));
    char *path = path_join(directory, "laion");
    expect(string_copy(path), "captioned image@laion/1.JPG text'red apple'\n"
                              "captioned image@laion/2.jpg text'pear'\n"
                              "captioned video@laion/3.mp4 text'a clip'\n"
                              "captioned audio@laion/4.wav text'said'\n"
                              "plain text'alone\n'\n");
    struct source *source = source_open(path, NULL);
    struct sample sample;
    struct buffer all = {0};
    i64 count;
    while (source_next(source, &sample) == SOURCE_SAMPLE)
        sample_release(&sample);
    const struct source_note *notes = source_notes(source, &count);
    for (i64 i = 0; i < count; i++)
        buffer_printf(&all, "%lld %s: %s\n", (long long)notes[i].count, notes[i].what,
                      notes[i].first + strlen(path) + 1);
    assert_string_equal(all.data, "1 hidden files and folders: .hidden.txt\n"
                                  "1 files ending in .orc, which are not supported: 7.orc\n"
                                  "1 files of unknown type: README\n"
                                  "1 media next to a clip of the same name, which has the caption: 3.jpg\n"
                                  "2 pictures without a line or text file that refers to them: 5.png\n");
    source_close(source);
    buffer_release(&all);
    memory_free(path);
    (void)state;
}

/* Appends the samples as `draw` does, and one line per note: COUNT WHAT. */
static void expect_noted(const char *name, const struct source_columns *columns, const char *expected)
{
    char *path = path_join(directory, name);
    struct buffer drawn = {0};
    struct sample sample;
    enum source_result result;
    i64 count;
    struct source *source = source_open(path, &(struct source_request){.columns = columns});
    if (!source)
        fail_msg("%s", error_text());
    buffer_append(&drawn, "", 0);
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        buffer_printf(&drawn, "%s", result == SOURCE_SAMPLE ? "sample" : "bad");
        for (i64 i = 0; i < sample.count; i++)
            draw_part(&drawn, &sample.parts[i]);
        buffer_printf(&drawn, "\n");
        sample_release(&sample);
    }
    const struct source_note *notes = source_notes(source, &count);
    for (i64 i = 0; i < count; i++)
        buffer_printf(&drawn, "%lld %.20s\n", (long long)notes[i].count, notes[i].what);
    assert_string_equal(drawn.data, expected);
    source_close(source);
    buffer_release(&drawn);
    memory_free(path);
}

static void link_to(const char *name, const char *target)
{
    char *path = path_join(directory, name);
    assert_int_equal(symlink(target, path), 0);
    memory_free(path);
}

/* Without a memory of folders the two loops would show each text 2^16 times. */
static void linked_folders_are_read_once(void **state)
{
    static const char *const files[][2] = {
        {"linked/train/a.txt", "one"}, {"linked/test/b.txt", "two"}, {"beside/c.txt", "three"}};
    (void)state;
    put_all(files, COUNT_OF(files));
    link_to("linked/a-copy", "train");
    link_to("linked/self", ".");
    link_to("linked/train/up", "..");
    link_to("linked/there", "../beside");
    link_to("linked/there-again", "../beside");
    link_to("linked/dangling", "dangling");
    expect_noted("linked", NULL,
                 "sample text'one\n'\nsample text'two\n'\n4 links to folders tha\n1 files of unknown typ\n1 files "
                 "beside the par\n");
}

/* What a run writes beside the output of a stage, and prompts of every format, are not noted; a
 * done.json of the data is read, and what truly has no text is noted. */
static void what_is_no_data_is_not_noted(void **state)
{
#define PROMPT                                                                                                         \
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"2 + 2\"}], \"reward_model\": {\"ground_truth\": \"4\"}}"
    static const char done[] = "{\n  \"hash\": \"c45a6f4b811ab607\",\n  \"identity\": {\"kind\": \"command\"}\n}\n";
    static const char *const files[][2] = {{"made/train/a.txt", "text"},
                                           {"made/done.json", done},
                                           {"made/identity.json", "{\"kind\": \"command\"}\n"},
                                           {"made/train/part/done.json", done},
                                           {"made/train/part/identity.json", "{\"kind\": \"command\"}\n"},
                                           {"made/train/p.json", "[" PROMPT ", " PROMPT "]"},
                                           {"made/train/p.jsonl", PROMPT "\n" PROMPT "\n"},
                                           {"own/done.json", "[{\"text\": \"to do\"}]"},
                                           {"own/identity.json", "[{\"text\": \"a card\"}]"},
                                           {"own/lacking.jsonl", "{\"prompt\": \"2 + 2\"}\n" PROMPT "\n"
                                                                 "{\"prompt\": \"2 + 2\", \"reward_model\": null}\n"},
                                           {"pair/done.jpg", "J"},
                                           {"pair/done.json", "{\"caption\": \"said\"}"},
                                           {"pair/identity.jpg", "J"},
                                           {"pair/identity.json", "{\"caption\": \"who\"}"},
                                           {"dealt/a.txt", "a"},
                                           {"dealt/done.json", done},
                                           {"dealt/z.txt", "z"},
                                           {"alone/a.txt", "text"},
                                           {"alone/b.png", "P"}};
    struct sample sample;
    i64 count;
    (void)state;
    put_all(files, COUNT_OF(files));
    assert_int_equal(file_copy(path_of("made/train/p.parquet"), GOLDEN "/tables/forms/verl.parquet"), 0);
    expect_noted("made", NULL, "sample text'text\n'\n");
    expect_noted("own", NULL, "sample text'to do'\nsample text'a card'\n2 lines without a text\n");
    expect_noted("pair", NULL, "sample image@pair/done.jpg text'said'\nsample image@pair/identity.jpg text'who'\n");

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
static void what_is_no_file_is_not_opened(void **state)
{
    static const char *const files[][2] = {{"special/a.png", "P"},
                                           {"special/b.png", "P"},
                                           {"special/c.txt", "text"},
                                           {"special/m.jsonl", "{\"image\": \"p.png\", \"text\": \"x\"}\n"}};
    (void)state;
    alarm(TEST_SECONDS_MOST);
    put_all(files, COUNT_OF(files));
    assert_int_equal(mkfifo(path_of("special/a.txt"), 0600), 0);
    assert_int_equal(mkfifo(path_of("special/d.jsonl"), 0600), 0);
    assert_int_equal(mkfifo(path_of("special/p.png"), 0600), 0);
    link_to("special/b.json", "/dev/zero");
    link_to("special/e.txt", "d.jsonl");
    link_to("special/f.tar", "/dev/zero");
    link_to("special/g.parquet", "d.jsonl");
    expect_noted("special", NULL,
                 "bad\nbad\nsample text'text\n'\nsample image@special/p.png text'x'\n5 pipes, sockets and d\n");
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

static void records_name_media_of_their_data(void **state)
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
    (void)state;
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

static void metadata_names_its_files(void **state)
{
    static const char *const files[][2] = {{"hf/metadata.jsonl",
                                            "{\"file_name\": \"a.png\", \"text\": \"one\"}\n"
                                            "{\"file_name\": \"./b.MP4\", \"caption\": \"two\"}\n"
                                            "{\"file_name\": \"c.flac\", \"transcription\": \"three\"}\n"
                                            "{\"file_name\": \"d.doc\", \"text\": \"four\"}\n{\"score\": 1}\n"},
                                           {"list/captions.csv", "filename,caption\na.JPG,one\nb.py,two\n"},
                                           {"list/more.csv", "path,caption\nb.wav,three\n"},
                                           {"list/code.csv", "filename,text\nb.py,four\n"},
                                           {"list/a.JPG", "P"},
                                           {"list/b.wav", "S"},
                                           {"hf/a.png", "P"},
                                           {"hf/b.MP4", "V"},
                                           {"hf/c.flac", "F"}};
    put_all(files, COUNT_OF(files));
    char *path = path_join(directory, "hf");
    expect(string_copy(path), "captioned image@hf/a.png text'one'\n"
                              "captioned video@hf/./b.MP4 text'two'\n"
                              "captioned audio@hf/c.flac text'three'\n"
                              "bad\n");
    struct source *source = source_open(path, NULL);
    struct sample sample;
    i64 count;
    while (source_next(source, &sample) != SOURCE_END)
        sample_release(&sample);
    const struct source_note *notes = source_notes(source, &count);
    assert_int_equal(count, 1);
    assert_string_equal(notes[0].what, "lines without a text, a file or messages");
    assert_non_null(strstr(notes[0].first, "metadata.jsonl:5"));
    source_close(source);
    memory_free(path);
    expect(path_join(directory, "list"), "captioned image@list/a.JPG text'one'\n"
                                         "bad\n"
                                         "plain text'four'\n"
                                         "captioned audio@list/b.wav text'three'\n");
    (void)state;
}

static void damaged_files_are_passed(void **state)
{
    struct buffer tar = {0}, gz = {0};
    static const char *const files[][2] = {{"torn/c.txt", "whole"}};
    put_all(files, COUNT_OF(files));
    gzip(&gz, "a text that is cut", 18);
    memory_free(put_file("torn/b.txt.gz", gz.data, gz.length - 12));
    tar_member(&tar, "a.txt", "first");
    tar_member(&tar, "b.txt", "second");
    memory_free(put_file("torn/a.tar", tar.data, 3 * 512 + 3));
    char *link = path_join(directory, "torn/d.jsonl"), *path = path_join(directory, "torn");
    assert_int_equal(symlink("nowhere", link), 0);
    expect(string_copy(path), "plain text'first'\ndamaged\ndamaged\nplain text'whole\n'\ndamaged\n");
    struct source *source = source_open(path, NULL);
    struct sample sample;
    i64 named = 0;
    for (enum source_result result; (result = source_next(source, &sample)) != SOURCE_END; sample_release(&sample))
        named += result == SOURCE_DAMAGED && strstr(error_text(), "/torn/") != NULL;
    assert_int_equal(named, 3);
    assert_true(source_lost(source) < 1);
    source_close(source);
    buffer_release(&gz);
    buffer_release(&tar);
    memory_free(link);
    memory_free(path);
    (void)state;
}

/* Runs in a child process as user nobody, because the tests may run as root, who may read
 * everything. */
static void what_may_not_be_read_is_passed(void **state)
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
    (void)state;
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

static void names_say_the_part(void **state)
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
    (void)state;
}

static void metadata_may_stand_above_the_parts(void **state)
{
    static const char *const files[][2] = {{"up/train/a.png", "P"},
                                           {"up/test/b.png", "P"},
                                           {"up/c.png", "P"},
                                           {"up/metadata.jsonl", "{\"file_name\": \"test/b.png\", \"text\": \"1\"}\n"
                                                                 "{\"file_name\": \"train/a.png\", \"text\": \"2\"}\n"
                                                                 "{\"file_name\": \"c.png\", \"text\": \"3\"}\n"}};
    put_all(files, COUNT_OF(files));
    expect_parts("up", "metadata.jsonl:1:x\nmetadata.jsonl:2:t\n");
    (void)state;
}

/* Five captions of one picture are in the same split,
 * independently of the folder's path and other files. */
static void draws_follow_the_medium(void **state)
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
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_become_samples),
        cmocka_unit_test(messages_hold_any_media),
        cmocka_unit_test(names_say_where),
        cmocka_unit_test(text_is_cut_at_blank_lines),
        cmocka_unit_test(compressed_files_are_read),
        cmocka_unit_test(members_say_where_they_stand),
        cmocka_unit_test(members_with_one_key_are_a_sample),
        cmocka_unit_test(names_with_dots_keep_their_texts),
        cmocka_unit_test(keys_of_many_members_are_cut_between_names),
        cmocka_unit_test(captions_are_cleaned_alike),
        cmocka_unit_test(endings_of_media_are_read_or_left_out_with_their_texts),
        cmocka_unit_test(indexed_documents_are_ids),
        cmocka_unit_test(damaged_indexes_are_refused),
        cmocka_unit_test(folders_are_read_by_name),
        cmocka_unit_test(a_text_beside_a_medium_is_its_caption),
        cmocka_unit_test(linked_folders_are_read_once),
        cmocka_unit_test(what_is_no_data_is_not_noted),
        cmocka_unit_test(what_is_no_file_is_not_opened),
        cmocka_unit_test(records_name_media_of_their_data),
        cmocka_unit_test(metadata_names_its_files),
        cmocka_unit_test(damaged_files_are_passed),
        cmocka_unit_test(what_may_not_be_read_is_passed),
        cmocka_unit_test(names_say_the_part),
        cmocka_unit_test(metadata_may_stand_above_the_parts),
        cmocka_unit_test(draws_follow_the_medium),
        cmocka_unit_test(a_null_counts_as_absent),
        cmocka_unit_test(calls_of_tools_are_said),
        cmocka_unit_test(a_byte_order_mark_is_no_text),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
