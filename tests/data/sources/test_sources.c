/* Sources: every form of file and of sample, plain and compressed; errors are reported with their
 * place and skipped. */
#include "tests/source_cases.h"

TEST(files_become_samples)
{
    check_sources("sources.jsonl");
    assert_null(source_open("/nowhere/at/all", NULL));
}

TEST(names_say_where)
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
}

TEST(text_is_cut_at_blank_lines)
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
    memory_free(put_file("bad.txt", "ab\xff", 3));
    expect_source("bad.txt", NULL, "bad: bad.txt:1: byte 2 of a text is not UTF-8\n");
    memory_free(put_file("short.txt", "\xef\xbb", 2));
    expect_source("short.txt", NULL, "bad: short.txt:1: byte 0 of a text is not UTF-8\n");
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

TEST(compressed_files_are_read)
{
    const char line[] = "{\"text\": \"packed\"}\n";
    struct buffer gz = {0}, zst = {0};
    gzip(&gz, line, sizeof line - 1);
    zstd(&zst, line, sizeof line - 1);
    memory_free(put_file("x.jsonl.gz", gz.data, gz.length));
    expect_source("x.jsonl.gz", NULL, "plain text'packed'\n");
    memory_free(put_file("x.jsonl.zst", zst.data, zst.length));
    expect_source("x.jsonl.zst", NULL, "plain text'packed'\n");
    memory_free(put_file("X.JSONL.GZ", gz.data, gz.length));
    expect_source("X.JSONL.GZ", NULL, "plain text'packed'\n");
    memory_free(put_file("X.JSONL.ZST", zst.data, zst.length));
    expect_source("X.JSONL.ZST", NULL, "plain text'packed'\n");
    memory_free(put_file("y.jsonl.gz", gz.data, gz.length / 2));
    expect_source(
        "y.jsonl.gz", NULL,
        "damaged: y.jsonl.gz: byte 21: the file ends within the gzip member that begins at byte 0: it is cut short\n");
    buffer_release(&gz);
    buffer_release(&zst);
}

/* ---- Megatron: the golden bytes of its own writer, documents [1,2,3] and [4,5] as u16 ---- */

static const u8 golden_idx[] = {0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0,
                                0,    0,    0,    0,    0,    3,    0,    0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
                                0,    0,    0,    0,    0,    0,    0,    0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                0,    0,    0,    1,    0,    0,    0,    0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};

static const u8 golden_bin[] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0};

TEST(damaged_indexes_are_refused)
{
    memory_free(put_file("m.bin", golden_bin, sizeof golden_bin));
    for (i64 kept = 0; kept < (i64)sizeof golden_idx; kept++) {
        struct sample sample;
        char *path = put_file("m.idx", golden_idx, kept);
        struct source *source = source_open(path, NULL);
        assert_int_equal(source_next(source, &sample), SOURCE_DAMAGED);
        assert_int_equal(source_next(source, &sample), SOURCE_END);
        source_close(source);
        memory_free(path);
    }
    u8 bad[sizeof golden_idx];
    memcpy(bad, golden_idx, sizeof bad);
    bad[34] = 200; /* a sequence past the end of the ids */
    memory_free(put_file("m.idx", bad, sizeof bad));
    expect_source("m.idx", NULL,
                  "bad: m.idx:0: sequence 0: 200 ids at byte 0 lie outside m.bin of 10 bytes\nplain ids,4,5\n");
    memset(bad + 26, 0, 8);
    bad[33] = 0x80; /* smallest possible number of documents */
    memory_free(put_file("m.idx", bad, sizeof bad));
    expect_source("m.idx", NULL,
                  "damaged: m.idx: byte 18: 2 sequences and -9223372036854775808 marks of documents do not fit into 82 "
                  "bytes: cut short\n");
}

TEST(damaged_files_are_passed)
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
    expect_source(
        "torn", NULL,
        "plain text'first'\ndamaged: torn/a.tar: byte 1539: Truncated tar archive\n"
        "damaged: torn/b.txt.gz: byte 29: the file ends within the gzip member that begins at byte 0: it is cut short\n"
        "plain text'whole\n'\ndamaged: torn/d.jsonl: cannot be opened: No such file or directory\n");
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
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
