/* safetensors: golden bytes, files of the reference writer survive a round trip unchanged, and
 * every kind of broken header is refused with a message that names it. */
#include "core/json.h"
#include "core/safetensors.h"
#include "tests/scratch.h"

#include <math.h>

static const char golden[] = "\x58\0\0\0\0\0\0\0"
                             "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
                             "\"data_offsets\":[0,8]}}   "
                             "\0\0\x80\x3f\0\0\0\x40";

TEST(the_golden_file_is_written_and_read)
{
    float values[2] = {1, 2}, read[2];
    struct tensor_source source = {"a", DTYPE_F32, 1, {2}, values};
    succeed(safetensors_save(path_of("a.safetensors"), &source, 1, (const char *const[]){"format", "pt", NULL}));
    struct buffer text = {0};
    succeed(file_read(&text, path_of("a.safetensors")));
    assert_int_equal(text.length, sizeof golden - 1);
    assert_memory_equal(text.data, golden, sizeof golden - 1);
    buffer_release(&text);

    struct safetensors set;
    succeed(safetensors_open(&set, path_of("a.safetensors")));
    const struct tensor_view *view = safetensors_find(&set, "a");
    assert_non_null(view);
    assert_int_equal(view->dtype, DTYPE_F32);
    assert_int_equal(tensor_view_elements(view), 2);
    succeed(tensor_view_to_f32(read, view));
    assert_true(read[0] == 1 && read[1] == 2);
    assert_string_equal(json_string(json_get(set.metadata, "format"), ""), "pt");
    assert_null(safetensors_find(&set, "b"));
    safetensors_close(&set);
}

static void save_again(const char *path, const struct safetensors *set)
{
    struct tensor_source *sources = memory_alloc(set->count * (i64)sizeof *sources);
    for (i64 i = 0; i < set->count; i++) {
        const struct tensor_view *view = &set->tensors[i];
        sources[i] = (struct tensor_source){view->name, view->dtype, view->rank, {0}, view->data};
        memcpy(sources[i].shape, view->shape, sizeof view->shape);
    }
    succeed(safetensors_save(path, sources, set->count, (const char *const[]){"format", "pt", NULL}));
    memory_free(sources);
}

TEST(files_of_the_reference_are_rewritten_byte_for_byte)
{
    static const char *const names[] = {
        "untied-gqa4-dense0/model.safetensors",          "tied-shared2-bias/model.safetensors",
        "headdim-top1-fused/model.safetensors",          "sharded-bf16/model-00001-of-00004.safetensors",
        "sharded-bf16/model-00003-of-00004.safetensors",
    };
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct safetensors set;
        struct file_view before, after;
        char *path = string_format(GOLDEN "/moe/%s", names[i]);
        succeed(safetensors_open(&set, path));
        assert_true(set.count > 0);
        save_again(path_of("again.safetensors"), &set);
        succeed(file_map(&before, path));
        succeed(file_map(&after, path_of("again.safetensors")));
        assert_int_equal(before.bytes, after.bytes);
        assert_memory_equal(before.data, after.data, (size_t)before.bytes);
        file_unmap(&before);
        file_unmap(&after);
        safetensors_close(&set);
        memory_free(path);
    }
}

struct reads { /* what the sources of a test were asked for, in order */
    char order[64];
    i64 next;
};

static void read_noted(const struct tensor_source *source, void *out, i64 at, i64 bytes)
{
    struct reads *reads = source->context;
    assert_int_equal(at, reads->next); /* once, from the beginning to the end */
    reads->next = at + bytes < tensor_source_bytes(source) ? at + bytes : 0;
    if (at == 0)
        strcat(reads->order, source->name);
    memcpy(out, (const char *)source->data + at, (size_t)bytes);
}

/* A source whose reads are calls that several ranks make together: the same file as from memory, one
 * pass over each tensor, and the same reads where nothing is written. */
TEST(sources_are_read_once_in_the_order_of_the_file)
{
    enum { LONG = (5 << 20) / 4 }; /* more than is read at a time */
    float *values = memory_alloc(LONG * 4);
    struct reads reads = {0};
    struct buffer plain = {0}, read = {0};
    for (i64 i = 0; i < LONG; i++)
        values[i] = (float)i;
    struct tensor_source sources[] = {
        {"b", DTYPE_F32, 1, {LONG}, values}, {"c", DTYPE_BF16, 2, {3, 2}, values}, {"a", DTYPE_F32, 1, {3}, values}};
    succeed(safetensors_save(path_of("plain.safetensors"), sources, 3, NULL));
    succeed(file_read(&plain, path_of("plain.safetensors")));
    for (int i = 0; i < 3; i++) {
        sources[i].read = read_noted;
        sources[i].context = &reads;
    }
    succeed(safetensors_save(path_of("read.safetensors"), sources, 3, NULL));
    assert_string_equal(reads.order, "abc");
    succeed(file_read(&read, path_of("read.safetensors")));
    assert_int_equal(read.length, plain.length);
    assert_memory_equal(read.data, plain.data, (size_t)plain.length);
    assert_int_equal(safetensors_check(path_of("read.safetensors")), 1);
    reads = (struct reads){0};
    succeed(safetensors_save(NULL, sources, 3, NULL));
    assert_string_equal(reads.order, "abc");
    reads = (struct reads){0};
    succeed(safetensors_save_sharded(NULL, "model", sources, 3, 16)); /* as listed, one tensor a file */
    assert_string_equal(reads.order, "bca");
    buffer_release(&plain);
    buffer_release(&read);
    memory_free(values);
}

TEST(flipped_bits_do_not_fit_the_checksum)
{
    const float values[3] = {1, 2, 3};
    const struct tensor_source sources[] = {
        {"b", DTYPE_F32, 1, {3}, values}, {"a", DTYPE_BF16, 2, {1, 2}, values}, {"none", DTYPE_F32, 1, {0}, NULL}};
    char *path = path_of("sums.safetensors");
    struct buffer file = {0};
    succeed(safetensors_save(path, sources, COUNT_OF(sources), NULL));
    assert_int_equal(safetensors_check(path), 1);
    succeed(file_read(&file, path));
    for (i64 i = file.length - 16; i < file.length; i++) { /* data of the tensors */
        file.data[i] ^= 4;
        succeed(file_replace(path, file.data, file.length));
        file.data[i] ^= 4;
        assert_int_equal(safetensors_check(path), -1);
        assert_says("checksum");
    }
    char *name = strstr(file.data + 8, "\"a\"");
    name[1] = 'c';
    succeed(file_replace(path, file.data, file.length));
    assert_int_equal(safetensors_check(path), -1);
    buffer_release(&file);
    assert_int_equal(safetensors_check(GOLDEN "/moe/tied-shared2-bias/model.safetensors"), 0);
}

TEST(a_sharded_model_is_one_set)
{
    struct safetensors set;
    succeed(safetensors_open_model(&set, GOLDEN "/moe/sharded-bf16"));
    assert_int_equal(set.file_count, 4);
    struct json *index = json_load(GOLDEN "/moe/sharded-bf16/model.safetensors.index.json");
    assert_int_equal(set.count, json_count(json_get(index, "weight_map")));
    i64 parameters = 0;
    for (i64 i = 0; i < set.count; i++) {
        parameters += tensor_view_elements(&set.tensors[i]);
        assert_ptr_equal(safetensors_find(&set, set.tensors[i].name), &set.tensors[i]);
    }
    assert_int_equal(parameters, json_integer(json_get(json_get(index, "metadata"), "total_parameters"), -1));
    assert_int_equal(safetensors_find(&set, "model.embed_tokens.weight")->dtype, DTYPE_BF16);
    json_free(index);
    safetensors_close(&set);
    succeed(safetensors_open_model(&set, GOLDEN "/moe/tied-shared2-bias"));
    assert_int_equal(set.file_count, 1);
    safetensors_close(&set);
}

TEST(all_numeric_types_convert_to_f32)
{
    const bf16 brain[2] = {0x3fc0, 0xff80};
    const u16 half[6] = {0x3e00, 0x8000, 0x0001, 0x7bff, 0xfc00, 0x7e00};
    const double wide[1] = {-0.5};
    const i32 narrow[1] = {-7};
    const i64 large[1] = {(i64)1 << 40};
    const u8 bytes[1] = {1};
    const struct tensor_source sources[] = {
        {"bf16", DTYPE_BF16, 1, {2}, brain},  {"f16", DTYPE_F16, 2, {2, 3}, half}, {"f64", DTYPE_F64, 0, {0}, wide},
        {"i32", DTYPE_I32, 1, {1}, narrow},   {"i64", DTYPE_I64, 1, {1}, large},   {"u8", DTYPE_U8, 1, {1}, bytes},
        {"none", DTYPE_F32, 2, {0, 4}, NULL},
    };
    const char *const metadata[] = {"format", "pt", "step", "12", NULL};
    succeed(safetensors_save(path_of("types.safetensors"), sources, COUNT_OF(sources), metadata));
    struct safetensors set;
    succeed(safetensors_open(&set, path_of("types.safetensors")));
    assert_string_equal(json_string(json_get(set.metadata, "step"), ""), "12");
    float out[6];
    succeed(tensor_view_to_f32(out, safetensors_find(&set, "bf16")));
    assert_true(out[0] == 1.5f && out[1] == -INFINITY);
    succeed(tensor_view_to_f32(out, safetensors_find(&set, "f16")));
    assert_true(out[0] == 1.5f && out[1] == 0 && signbit(out[1]) && out[2] == 0x1p-24f && out[3] == 65504);
    assert_true(out[4] == -INFINITY && isnan(out[5]));
    succeed(tensor_view_to_f32(out, safetensors_find(&set, "f64")));
    assert_true(out[0] == -0.5f && safetensors_find(&set, "f64")->rank == 0);
    succeed(tensor_view_to_f32(out, safetensors_find(&set, "i32")));
    assert_true(out[0] == -7);
    succeed(tensor_view_to_f32(out, safetensors_find(&set, "i64")));
    assert_true(out[0] == 0x1p40f);
    succeed(tensor_view_to_f32(out, safetensors_find(&set, "none")));
    assert_int_equal(tensor_view_elements(safetensors_find(&set, "none")), 0);
    assert_int_equal(tensor_view_to_f32(out, safetensors_find(&set, "u8")), -1);
    assert_says("u8");
    safetensors_close(&set);
}

/* Writes a file with this header and `data_bytes` zero bytes of data. */
static const char *written(const char *header, i64 data_bytes)
{
    struct buffer text = {0};
    u64 length = strlen(header);
    buffer_append(&text, &length, 8);
    buffer_append(&text, header, (i64)length);
    for (i64 i = 0; i < data_bytes; i++)
        buffer_append(&text, "", 1);
    succeed(file_replace(path_of("bad.safetensors"), text.data, text.length));
    buffer_release(&text);
    return path_of("bad.safetensors");
}

static void assert_refused(const char *header, i64 data_bytes, const char *expected)
{
    struct safetensors set;
    assert_int_equal(safetensors_open(&set, written(header, data_bytes)), -1);
    assert_says(expected);
    assert_says("bad.safetensors");
}

#define ENTRY(name, type, shape, begin, end)                                                                           \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

TEST(bad_headers_are_refused)
{
    assert_refused("{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("b", "F32", "[1]", 8, 12) "}", 12, "hole");
    assert_refused("{" ENTRY("a", "F32", "[1]", 4, 8) "}", 8, "hole");
    assert_refused("{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 4, 12) "}", 12, "overlap");
    assert_refused("{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("b", "F32", "[1]", 0, 4) "}", 4, "overlap");
    assert_refused("{" ENTRY("a", "F32", "[1]", 0, 4) "}", 5, "1 byte after");
    assert_refused("{}", 5, "5 bytes after");
    assert_refused("{" ENTRY("a", "F32", "[2]", 0, 8) "}", 7, "cut short");
    assert_refused("{" ENTRY("a", "F32", "[2]", 0, 4) "}", 4, "ask for 8 bytes");
    assert_refused("{" ENTRY("a", "F32", "[1]", 4, 0) "}", 4, "data_offsets");
    assert_refused("{" ENTRY("a", "F32", "[1]", -4, 0) "}", 4, "data_offsets");
    assert_refused("{" ENTRY("a", "F32", "[1]", 0.0, 4) "}", 4, "data_offsets");
    assert_refused("{" ENTRY("a", "F32", "[4294967296,4294967296]", 0, 0) "}", 0, "too large");
    assert_refused("{" ENTRY("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, "too large");
    assert_refused("{" ENTRY("a", "F32", "[99999999999999999999]", 0, 0) "}", 0, "no size");
    assert_refused("{" ENTRY("a", "F32", "[-1]", 0, 4) "}", 4, "no size");
    assert_refused("{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "9 dimensions");
    assert_refused("{" ENTRY("a", "F32", "1", 0, 4) "}", 4, "shape");
    assert_refused("{" ENTRY("a", "F33", "[1]", 0, 4) "}", 4, "unknown dtype F33");
    assert_refused("{" ENTRY("a", "F4", "[1]", 0, 0) "}", 0, "whole number of bytes");
    assert_refused("{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("a", "F32", "[1]", 4, 8) "}", 8, "duplicate");
    assert_refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets");
    assert_refused("{\"a\":3}", 4, "object");
    assert_refused("{\"__metadata__\":{\"format\":1}}", 0, "format");
    assert_refused("{\"__metadata__\":[]}", 0, "__metadata__");
    assert_refused("[]", 0, "byte 8");
    assert_refused("", 0, "byte 8");
    assert_refused("{\"a\":", 0, "JSON");
    assert_refused("{} x", 0, "JSON");
}

static void assert_bytes_refused(const void *bytes, i64 count, const char *expected)
{
    struct safetensors set;
    succeed(file_replace(path_of("bad.safetensors"), bytes, count));
    assert_int_equal(safetensors_open(&set, path_of("bad.safetensors")), -1);
    assert_says(expected);
}

TEST(bad_lengths_are_refused)
{
    struct safetensors set;
    assert_bytes_refused("", 0, "too few");
    assert_bytes_refused("\1\0\0", 3, "too few");
    assert_bytes_refused("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "18446744073709551615");
    assert_bytes_refused("\3\0\0\0\0\0\0\0{}", 10, "cut short");
    assert_bytes_refused("\0\xe1\xf5\x05\0\0\0\0{}", 10, "cut short");
    for (i64 length = 0; length < (i64)sizeof golden - 1; length++)
        assert_bytes_refused(golden, length, "bad.safetensors");
    assert_int_equal(safetensors_open(&set, path_of("absent")), -1);
    assert_says("absent");
    assert_int_equal(safetensors_open(&set, directory), -1);
    assert_int_equal(safetensors_open_model(&set, directory), -1);
    assert_says("no weights");
}

TEST(legal_corner_cases_are_read)
{
    struct safetensors set;
    succeed(safetensors_open(&set, written("{}", 0)));
    assert_int_equal(set.count, 0);
    assert_null(set.metadata);
    assert_null(safetensors_find(&set, "a"));
    safetensors_close(&set);
    succeed(
        safetensors_open(&set, written(" {" ENTRY("z", "F32", "[0]", 1, 1) "," ENTRY("b", "BOOL", "[1]", 0, 1) "," //
                                       ENTRY("e", "F4", "[2]", 1, 2) "," ENTRY("s", "F32", "[]", 2, 6) "}\n ",
                                       6)));
    assert_int_equal(set.count, 4);
    assert_string_equal(set.tensors[0].name, "b");
    assert_int_equal(set.tensors[0].dtype, DTYPE_OTHER);
    assert_int_equal(set.tensors[1].bytes, 1);
    assert_int_equal(tensor_view_elements(&set.tensors[2]), 1);
    safetensors_close(&set);
}

TEST(shards_are_cut_by_size_and_open_as_one_model)
{
    float values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const struct tensor_source sources[] = {
        {"c", DTYPE_F32, 1, {2}, values},
        {"a", DTYPE_F32, 1, {2}, values + 2},
        {"b", DTYPE_F32, 1, {6}, values + 1}, /* larger than a shard */
        {"d", DTYPE_F32, 1, {1}, values + 7},
    };
    struct safetensors set;
    succeed(safetensors_save_sharded(directory, "model", sources, 4, 16));
    assert_true(file_exists(path_of("model-00003-of-00003.safetensors")));
    succeed(safetensors_open_model(&set, directory));
    assert_int_equal(set.file_count, 3);
    assert_int_equal(set.count, 4);
    assert_memory_equal(safetensors_find(&set, "b")->data, values + 1, 24);
    safetensors_close(&set);
    struct json *index = json_load(path_of("model.safetensors.index.json"));
    assert_int_equal(json_integer(json_get(json_get(index, "metadata"), "total_size"), 0), 44);
    assert_int_equal(json_integer(json_get(json_get(index, "metadata"), "total_parameters"), 0), 11);
    assert_string_equal(json_string(json_get(json_get(index, "weight_map"), "d"), ""),
                        "model-00003-of-00003.safetensors");
    json_free(index);

    assert_int_equal(unlink(path_of("model-00002-of-00003.safetensors")), 0);
    assert_int_equal(safetensors_open_model(&set, directory), -1);
    assert_says("model-00002-of-00003.safetensors");
    succeed(safetensors_save_sharded(directory, "model", sources, 4, 1000));
    succeed(safetensors_open_model(&set, directory));
    assert_int_equal(set.file_count, 1);
    safetensors_close(&set);
    assert_int_equal(unlink(path_of("model.safetensors")), 0);
}

static void assert_index_refused(const char *index, const char *expected)
{
    struct safetensors set;
    succeed(file_replace(path_of("model.safetensors.index.json"), index, (i64)strlen(index)));
    assert_int_equal(safetensors_open_model(&set, directory), -1);
    assert_says(expected);
}

TEST(bad_indexes_are_refused)
{
    succeed(file_replace(path_of("x.safetensors"), golden, sizeof golden - 1));
    succeed(file_replace(path_of("y.safetensors"), golden, sizeof golden - 1));
    assert_index_refused("{}", "weight_map");
    assert_index_refused("{\"weight_map\":{}}", "weight_map");
    assert_index_refused("{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "in the folder of the index");
    assert_index_refused("{\"weight_map\":{\"a\":7}}", "in the folder of the index");
    assert_index_refused("{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"x.safetensors\"}}", "tensor b");
    assert_index_refused("{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"y.safetensors\"}}", "more than one");
    assert_index_refused("{\"weight_map\":", "JSON");
}

TEST(bad_sources_are_refused)
{
    float value = 0;
    i64 id = 0;
    const struct tensor_source twice[] = {{"a", DTYPE_F32, 0, {0}, &value}, {"a", DTYPE_I64, 0, {0}, &id}};
    const struct tensor_source reserved = {"__metadata__", DTYPE_F32, 0, {0}, &value};
    assert_int_equal(safetensors_save(path_of("t.safetensors"), twice, 2, NULL), -1);
    assert_says("tensor a");
    assert_int_equal(safetensors_save(path_of("t.safetensors"), &reserved, 1, NULL), -1);
    assert_int_equal(safetensors_save_sharded(directory, "t", twice, 2, 4), -1);
    assert_says("same name");
    assert_int_equal(safetensors_save("/nonexistent/t", twice, 1, NULL), -1);
    assert_says("/nonexistent/t");
    assert_false(file_exists(path_of("t.safetensors")));
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
