/* Sources: every form of file and of sample, plain and compressed; errors are reported with their
 * place and skipped. */
#include "tests/sample_text.h"
#include "tests/tar_text.h"

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
    expect(put_file("tools.jsonl", text, sizeof text - 1), "chat <user> text'7*6?' <assistant> text "
                                                           "<tool> text'42' <assistant> text\n"
                                                           "chat <assistant> text\n"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_become_samples),
        cmocka_unit_test(messages_hold_any_media),
        cmocka_unit_test(names_say_where),
        cmocka_unit_test(text_is_cut_at_blank_lines),
        cmocka_unit_test(compressed_files_are_read),
        cmocka_unit_test(indexed_documents_are_ids),
        cmocka_unit_test(damaged_indexes_are_refused),
        cmocka_unit_test(folders_are_read_by_name),
        cmocka_unit_test(a_null_counts_as_absent),
        cmocka_unit_test(calls_of_tools_are_said),
        cmocka_unit_test(a_byte_order_mark_is_no_text),
        cmocka_unit_test(damaged_files_are_passed),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
