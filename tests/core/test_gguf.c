/* The reader of GGUF on bytes written by hand, after the format's specification (ggml, docs/gguf.md). */
#include "core/gguf.h"
#include "tests/scratch.h"

static struct buffer bytes;

static void put(const void *data, i64 count)
{
    buffer_append(&bytes, data, count);
}

static void put_integer(u64 value, int width)
{
    put(&value, width);
}

static void put_name(const char *name)
{
    put_integer(strlen(name), 8);
    put(name, (i64)strlen(name));
}

static void put_key(const char *name, u32 type, const void *value, i64 width)
{
    put_name(name);
    put_integer(type, 4);
    put(value, width);
}

static void put_list(const char *name, u64 count)
{
    put_name(name);
    put_integer(GGUF_ARRAY, 4);
    put_integer(GGUF_U32, 4);
    put_integer(count, 8);
    for (u64 i = 0; i < count; i++)
        put_integer(i, 4);
}

TEST(every_type_of_value_is_read)
{
    struct gguf_file file;
    buffer_clear(&bytes);
    put("GGUF\3\0\0\0", 8);
    put_integer(2, 8);
    put_integer(14, 8);
    put_key("u8", 0, "\xff", 1);
    put_key("i8", 1, "\xff", 1);
    put_key("u16", 2, "\xfe\xff", 2);
    put_key("i16", 3, "\xfe\xff", 2);
    put_key("u32", GGUF_U32, "\xfd\xff\xff\xff", 4);
    put_key("i32", GGUF_I32, "\xfd\xff\xff\xff", 4);
    put_key("f32", GGUF_F32, &(float){1.5f}, 4);
    put_key("bool", GGUF_BOOL, "\1", 1);
    put_name("text");
    put_integer(GGUF_STRING, 4);
    put_name("of bytes");
    put_key("i64", 11, &(i64){-5}, 8);
    put_key("f64", 12, &(double){0.1}, 8);
    put_list("few", 8);
    put_list("many", 9);
    put_key("general.alignment", GGUF_U32, "\100\0\0\0", 4);
    put_name("a");
    put_integer(2, 4);
    put_integer(3, 8);
    put_integer(5, 8);
    put_integer(GGML_F32, 4);
    put_integer(0, 8);
    put_name("b");
    put_integer(1, 4);
    put_integer(7, 8);
    put_integer(GGML_BF16, 4);
    put_integer(64, 8);
    i64 header = bytes.length;
    memory_free(put_file("all.gguf", bytes.data, bytes.length));
    succeed(gguf_open(&file, path_of("all.gguf")));
    struct buffer keys = {0};
    json_print(&keys, file.keys, 0);
    assert_string_equal(keys.data, "{\"u8\":255,\"i8\":-1,\"u16\":65534,\"i16\":-2,\"u32\":4294967293,\"i32\":-3,"
                                   "\"f32\":1.5,\"bool\":true,\"text\":\"of bytes\",\"i64\":-5,\"f64\":0.1,"
                                   "\"few\":[0,1,2,3,4,5,6,7],\"many\":\"9 values\",\"general.alignment\":64}");
    assert_int_equal(file.key_count, 14);
    assert_int_equal(file.tensor_count, 2);
    assert_int_equal(file.parameters, 3 * 5 + 7);
    assert_memory_equal(file.tensors[1].name, "b", 1);
    assert_int_equal(file.tensors[1].name_length, 1);
    assert_int_equal(file.tensors[0].rank, 2);
    assert_int_equal(file.tensors[0].dims[1], 5);
    assert_int_equal(file.tensors[1].type, GGML_BF16);
    assert_int_equal(file.tensors[1].offset, 64);
    assert_int_equal(file.data, (header + 63) / 64 * 64);
    gguf_close(&file);
    buffer_release(&keys);
}

TEST(a_damaged_header_is_refused)
{
    static const struct {
        i64 at;
        const char *put, *says;
    } cases[] = {
        {0, "GGUX", "expected GGUF, version 2 or 3"},
        {4, "\1\0\0\0", "version 1"},
        {32, "\15\0\0\0", "a value of type 13, which GGUF does not have"},
        {32, "\10\0\0\0", "a string goes past the end of the file"},
        {24, "\377\377\377\377", "a key goes past the end"},
        {16, "\2\0\0\0", "goes past the end of the file, which has 73 bytes"},
        {49, "\11\0\0\0", "a tensor of rank 9"},
        {53, "\0\0\0\0\0\0\0\200", "too large to be true"},
        {65, "\377\377\377\377", "begins at byte 4294967295"},
    };
    for (i64 i = -1; i < COUNT_OF(cases); i++) {
        struct gguf_file file;
        buffer_clear(&bytes);
        put("GGUF\2\0\0\0", 8);
        put_integer(1, 8);
        put_integer(1, 8);
        put_key("", 4, "\1\0\0\0", 4); /* its type at 32 */
        put_name("a");                 /* its rank at 49 */
        put_integer(1, 4);
        put_integer(2, 8); /* at 53 */
        put_integer(GGML_F32, 4);
        put_integer(0, 8); /* at 65 */
        if (i >= 0)
            memcpy(bytes.data + cases[i].at, cases[i].put, cases[i].at == 53 ? 8 : 4);
        memory_free(put_file("bad.gguf", bytes.data, bytes.length));
        int status = gguf_open(&file, path_of("bad.gguf"));
        if (i < 0) {
            succeed(status);
            gguf_close(&file);
            continue;
        }
        assert_int_equal(status, -1);
        assert_says("bad.gguf");
        assert_says(cases[i].says);
    }
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
