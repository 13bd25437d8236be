/* Compressed files: one frame behind another, what else follows, and every damaged bit. The frames
 * were written by gzip 1.12, xz 5.4.1, zstd 1.5.4, bzip2 1.0.8 and lz4 1.9.4 of one line. */
#include "data/formats/archive.h"
#include "data/formats/unpack.h"
#include "tests/scratch.h"

static const char line[] = "{\"text\": \"one apple\"}\n";
static const struct packed_case {
    const char *suffix;
    i64 bytes;
    const char *frame;
} cases[] = {
    {"gz", 42,
     "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\x50\xca\xcf\x4b\x55\x48\x2c\x28\xc8"
     "\x49\x55\xaa\xe5\x02\x00\xa9\x0a\x02\x8f\x16\x00\x00\x00"},
    {"xz", 80,
     "\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\x01\x00\x15\x7b"
     "\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x6f\x6e\x65\x20\x61\x70\x70\x6c\x65\x22\x7d\x0a\x00\x00\x00\x98\x26\xd8\x2b"
     "\x10\x10\xda\xcd\x00\x01\x2e\x16\x56\x09\x55\xdf\x1f\xb6\xf3\x7d\x01\x00\x00\x00\x00\x04\x59\x5a"},
    {"zst", 35,
     "\x28\xb5\x2f\xfd\x24\x16\xb1\x00\x00\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x6f\x6e\x65\x20\x61\x70\x70\x6c\x65"
     "\x22\x7d\x0a\x84\xee\xf6\x8a"},
    {"bz2", 61,
     "\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\xe5\xe1\xd8\xb8\x00\x00\x0a\x59\x80\x00\x10\x50\x00\x00\x10\x22\x05\xc4"
     "\x4a\x20\x00\x22\x8d\xa8\xf5\x31\x3c\xa1\x00\x00\x1e\xcf\xb8\xc7\x45\xd9\x48\xc2\x62\x9c\x7c\x5d\xc9\x14\xe1\x42"
     "\x43\x97\x87\x62\xe0"},
    {"lz4", 41,
     "\x04\x22\x4d\x18\x64\x40\xa7\x16\x00\x00\x80\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x6f\x6e\x65\x20\x61\x70\x70"
     "\x6c\x65\x22\x7d\x0a\x00\x00\x00\x00\x4e\x20\x47\x50"},
};

/* Reads a file as far as it can be read. 0: to its end; -1: damaged. */
static int read_bytes(struct buffer *out, const struct packed_case *c, const struct buffer *bytes)
{
    char name[32], piece[7];
    const char *member;
    i64 count;
    snprintf(name, sizeof name, "packed.%s", c->suffix);
    char *path = put_file(name, bytes->data, bytes->length);
    struct archive_file *file = archive_file_open(path, false);
    int status = file ? archive_file_next(file, &member) : -1;
    buffer_clear(out);
    buffer_append(out, "", 0);
    while (status == 1 && (count = archive_file_read(file, piece, sizeof piece)) != 0) {
        if (count < 0)
            status = -1;
        else
            buffer_append(out, piece, count);
    }
    archive_file_close(file);
    if (status < 0 && !strstr(error_text(), path))
        fail_msg("%s: the file is not named: %s", name, error_text());
    memory_free(path);
    return status < 0 ? -1 : 0;
}

/* A frame with `more` behind it. */
static void join(struct buffer *out, const struct packed_case *c, const char *more, i64 bytes)
{
    buffer_clear(out);
    buffer_append(out, c->frame, c->bytes);
    buffer_append(out, more, bytes);
}

TEST(frames_behind_one_another_are_read)
{
    struct buffer bytes = {0}, text = {0};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        join(&bytes, &cases[i], "", 0);
        assert_int_equal(read_bytes(&text, &cases[i], &bytes), 0);
        assert_string_equal(text.data, line);
        join(&bytes, &cases[i], cases[i].frame, cases[i].bytes);
        assert_int_equal(read_bytes(&text, &cases[i], &bytes), 0);
        assert_int_equal(text.length, 2 * (i64)strlen(line));
        assert_string_equal(text.data + strlen(line), line);
    }
    buffer_release(&bytes);
    buffer_release(&text);
}

/* Skippable frames of zstd and LZ4 (RFC 8878, 3.1.2) hold no data: in front, between and behind. */
TEST(skippable_frames_are_passed_over)
{
    static const char skippable[] = "\x53\x2a\x4d\x18\x04\x00\x00\x00here";
    struct buffer bytes = {0}, text = {0};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        if (strcmp(cases[i].suffix, "zst") != 0 && strcmp(cases[i].suffix, "lz4") != 0)
            continue;
        for (int places = 1; places < 8; places++) {
            buffer_clear(&bytes);
            for (int place = 0; place < 3; place++) {
                if (places >> place & 1)
                    buffer_append(&bytes, skippable, sizeof skippable - 1);
                if (place < 2)
                    buffer_append(&bytes, cases[i].frame, cases[i].bytes);
            }
            if (read_bytes(&text, &cases[i], &bytes) < 0)
                fail_msg("frames %d of %s: %s", places, cases[i].suffix, error_text());
            assert_int_equal(text.length, 2 * (i64)strlen(line));
            buffer_append(&bytes, "junk and more", 13);
            assert_int_equal(read_bytes(&text, &cases[i], &bytes), -1);
        }
        buffer_clear(&bytes);
        buffer_append(&bytes, skippable, 10);
        assert_int_equal(read_bytes(&text, &cases[i], &bytes), -1);
    }
    buffer_release(&bytes);
    buffer_release(&text);
}

TEST(what_follows_a_frame_is_damage)
{
    static const char zeros[512], tail[] = "something else behind it";
    struct buffer bytes = {0}, text = {0};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        join(&bytes, &cases[i], tail, sizeof tail - 1);
        assert_int_equal(read_bytes(&text, &cases[i], &bytes), -1);
        join(&bytes, &cases[i], zeros, sizeof zeros);
        bool padded = strcmp(cases[i].suffix, "zst") != 0; /* libzstd refuses zeros */
        assert_int_equal(read_bytes(&text, &cases[i], &bytes), padded ? 0 : -1);
        join(&bytes, &cases[i], line, sizeof line - 1);
        memmove(bytes.data, bytes.data + cases[i].bytes, sizeof line - 1); /* not compressed at all */
        bytes.length = sizeof line - 1;
        assert_int_equal(read_bytes(&text, &cases[i], &bytes), -1);
    }
    join(&bytes, &cases[0], tail, sizeof tail - 1); /* of gzip, whole members are read nevertheless */
    assert_int_equal(read_bytes(&text, &cases[0], &bytes), -1);
    assert_string_equal(text.data, line);
    assert_non_null(strstr(error_text(), "byte 42"));
    buffer_release(&bytes);
    buffer_release(&text);
}

/* A file with one bit changed says what it said before, or is damaged. So is one that is cut. */
TEST(no_changed_bit_changes_the_text)
{
    struct buffer bytes = {0}, text = {0};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        for (i64 bit = 0; bit < 8 * cases[i].bytes; bit++) {
            join(&bytes, &cases[i], "", 0);
            bytes.data[bit / 8] = (char)(bytes.data[bit / 8] ^ 1 << bit % 8);
            int status = read_bytes(&text, &cases[i], &bytes);
            if (strcmp(text.data, status < 0 ? "" : line) != 0)
                fail_msg("%s, bit %lld: read %d: %s", cases[i].suffix, (long long)bit, status, text.data);
        }
        for (i64 length = 1; length < cases[i].bytes; length++) {
            join(&bytes, &cases[i], "", 0);
            bytes.length = length;
            if (read_bytes(&text, &cases[i], &bytes) == 0)
                fail_msg("%s, cut to %lld bytes: read: %s", cases[i].suffix, (long long)length, text.data);
        }
    }
    buffer_release(&bytes);
    buffer_release(&text);
}

/* Pages of Parquet. */
TEST(blocks_in_memory_are_checked)
{
    const i64 length = (i64)sizeof line - 1;
    struct buffer text = {0}, bytes = {0};
    join(&bytes, &cases[0], "", 0);
    assert_int_equal(unpack_exactly(&text, length, PACKED_GZIP, bytes.data, bytes.length), 0);
    assert_string_equal(text.data, line);
    assert_int_equal(unpack_exactly(&text, length - 1, PACKED_GZIP, bytes.data, bytes.length), -1);
    assert_int_equal(unpack_exactly(&text, length + 1, PACKED_GZIP, bytes.data, bytes.length), -1);
    assert_int_equal(unpack_exactly(&text, length, PACKED_GZIP, bytes.data, bytes.length - 1), -1);
    for (i64 at = 34; at < 42; at++) { /* the CRC and the length */
        join(&bytes, &cases[0], "", 0);
        bytes.data[at] ^= 1;
        assert_int_equal(unpack_exactly(&text, length, PACKED_GZIP, bytes.data, bytes.length), -1);
        assert_non_null(strstr(error_text(), "damaged gzip: incorrect"));
    }
    join(&bytes, &cases[0], cases[0].frame, cases[0].bytes);
    buffer_clear(&text);
    assert_int_equal(unpack_exactly(&text, 2 * length, PACKED_GZIP, bytes.data, bytes.length), 0);
    assert_string_equal(text.data + length, line);
    buffer_release(&text);
    buffer_release(&bytes);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
