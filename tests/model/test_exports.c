/* What exports state about a model and its tokenizer: every key of GGUF, config.json and
 * generation_config.json, read back by a parser of this test. Names and meanings are those of
 * llama.cpp and transformers. Hardly any two values of the model are equal. */
#include "core/json.h"
#include "tests/scratch.h"
#include "tests/toy.h"
#include "tokenizers/text/text.h"

#include <math.h>

enum { VOCABULARY = 16, TOKENS = 11 };

static struct device device;
static struct model model;
static struct text_tokenizer *tokenizer;

/* <t> is added but not special, <s> special; the post-processor adds <s>. Ids from 11 on are padding. */
static const char tokenizer_json[] =
    "{\"added_tokens\":[{\"id\":8,\"content\":\"<s>\",\"special\":true},{\"id\":9,\"content\":\"<t>\"},"
    "{\"id\":10,\"content\":\"<|im_end|>\",\"special\":true}],"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[8],"
    "\"tokens\":[\"<s>\"]}}},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"\\u0120\":3,\"ab\":4,\"\\u0120a\":5,\"abc\":6,"
    "\"d\":7},\"merges\":[[\"a\",\"b\"],[\"\\u0120\",\"a\"],[\"ab\",\"c\"]]}}";

static int setup(void **state)
{
    struct model_config c = toy_config(5, 0);
    device_open_cpu(&device);
    c.vocabulary = VOCABULARY;
    c.topk = 3;
    c.shared_experts = 2;
    c.first_moe_layer = 2;
    c.kv_heads = 2;
    c.width = 24;
    c.rope_theta = 12345;
    c.norm_eps = 3e-6;
    c.norm_min = 1e-9;
    c.init_std = 0.25;
    c.max_positions = 777;
    c.pad_id = 7;
    c.bos_id = 8;
    c.eos_id = 6;
    model_config_add_end(&c, 10);
    toy_open(&model, &device, &c, false);
    tokenizer = text_tokenizer_parse(tokenizer_json, sizeof tokenizer_json - 1, "test");
    if (!tokenizer)
        fail_msg("%s", error_text());
    return make_directory(state);
}

static int teardown(void **state)
{
    text_tokenizer_free(tokenizer);
    model_close(&model);
    device_close(&device);
    return remove_directory(state);
}

/* ---- GGUF ---- */

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

static struct buffer file;
static i64 at;

static u64 take(int bytes)
{
    u64 value = 0;
    assert_true(at + bytes <= file.length);
    memcpy(&value, file.data + at, (size_t)bytes);
    at += bytes;
    return value;
}

static void take_string(struct buffer *out)
{
    i64 length = (i64)take(8);
    assert_true(at + length <= file.length);
    buffer_append(out, file.data + at, length);
    at += length;
}

/* A value as text: an array as its elements between spaces. */
static void take_value(struct buffer *out, u32 type)
{
    float real;
    u32 bits;
    if (type == ARRAY) {
        u32 inner = (u32)take(4);
        u64 count = take(8);
        buffer_printf(out, "%u x%llu", inner, (unsigned long long)count);
        for (u64 i = 0; i < count; i++) {
            buffer_append(out, " ", 1);
            take_value(out, inner);
        }
    } else if (type == STRING) {
        take_string(out);
    } else if (type == F32) {
        bits = (u32)take(4);
        memcpy(&real, &bits, 4);
        buffer_printf(out, "%g", (double)real);
    } else {
        buffer_printf(out, "%lld", (long long)take(type == BOOL ? 1 : 4));
    }
}

/* "KEY TYPE VALUE" of each key, in lines. Leaves `at` behind the last. */
static void list_keys(struct buffer *out, i64 *tensors)
{
    assert_memory_equal(file.data, "GGUF\3\0\0\0", 8);
    at = 8;
    *tensors = (i64)take(8);
    i64 count = (i64)take(8);
    for (i64 i = 0; i < count; i++) {
        take_string(out);
        u32 type = (u32)take(4);
        buffer_printf(out, " %u ", type);
        take_value(out, type);
        buffer_append(out, "\n", 1);
    }
}

#define MODEL "ernie4_5-moe."
static const char model_lines[] =
    "general.architecture 8 ernie4_5-moe\n"
    "general.name 8 weft\n"
    "general.file_type 4 32\n" MODEL "context_length 4 777\n" MODEL "embedding_length 4 24\n" MODEL
    "block_count 4 5\n" MODEL "feed_forward_length 4 48\n" MODEL "attention.head_count 4 4\n" MODEL
    "attention.head_count_kv 4 2\n" MODEL "attention.key_length 4 8\n" MODEL "attention.value_length 4 8\n" MODEL
    "attention.layer_norm_rms_epsilon 6 3e-06\n" MODEL "rope.freq_base 6 12345\n" MODEL "expert_count 4 8\n" MODEL
    "expert_used_count 4 3\n" MODEL "expert_feed_forward_length 4 16\n" MODEL "interleave_moe_layer_step 4 1\n" MODEL
    "leading_dense_block_count 4 2\n" MODEL "vocab_size 4 16\n" MODEL "expert_shared_count 4 2\n" MODEL
    "expert_shared_feed_forward_length 4 32\n";

/* Types of tokens: 1 normal, 3 control, 4 user defined, 5 unused. */
static const char token_lines[] = "tokenizer.ggml.model 8 gpt2\n"
                                  "tokenizer.ggml.pre 8 gpt-2\n"
                                  "tokenizer.ggml.tokens 9 8 x16 a b c \xc4\xa0 ab \xc4\xa0"
                                  "a abc d <s> <t> <|im_end|> [PAD11] [PAD12] [PAD13] [PAD14] [PAD15]\n"
                                  "tokenizer.ggml.token_type 9 5 x16 1 1 1 1 1 1 1 1 3 4 3 5 5 5 5 5\n"
                                  "tokenizer.ggml.merges 9 8 x3 a b \xc4\xa0 a ab c\n"
                                  "tokenizer.ggml.bos_token_id 4 8\n"
                                  "tokenizer.ggml.eos_token_id 4 6\n"
                                  "tokenizer.ggml.padding_token_id 4 7\n"
                                  "tokenizer.ggml.add_bos_token 7 0\n";

TEST(gguf_states_the_model_and_its_tokens)
{
    struct buffer lines = {0};
    char *path = path_of("model.gguf"), *want = string_format("%s%s", model_lines, token_lines);
    i64 tensors;
    succeed(model_save_gguf(&model, tokenizer, path, DTYPE_BF16));
    succeed(file_read(&file, path));
    list_keys(&lines, &tensors);
    /* 6 of attention and norms; 3 of a dense layer; a router, its bias, 3 of experts and 3 shared of another */
    assert_int_equal(tensors, 3 + 2 * (6 + 3) + 3 * (6 + 8));
    assert_string_equal(lines.data, want);
    buffer_release(&lines);
    buffer_release(&file);
    memory_free(want);
}

/* Values, numbers of them, their order and type of each tensor: 0 f32, 30 bf16. */
TEST(gguf_says_of_what_type_its_values_are)
{
    static const struct {
        enum dtype dtype;
        const char *file_type;
        u32 embedding;
    } cases[] = {{DTYPE_F32, "general.file_type 4 0\n", 0}, {DTYPE_BF16, "general.file_type 4 32\n", 30}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct buffer lines = {0}, name = {0};
        char *path = path_of(i ? "narrow.gguf" : "wide.gguf");
        i64 tensors;
        succeed(model_save_gguf(&model, NULL, path, cases[i].dtype));
        succeed(file_read(&file, path));
        list_keys(&lines, &tensors);
        assert_non_null(strstr(lines.data, cases[i].file_type));
        assert_non_null(strstr(lines.data, "tokenizer.ggml.model 8 none\n"));
        take_string(&name);
        assert_string_equal(name.data, "token_embd.weight");
        assert_int_equal(take(4), 2);
        assert_int_equal(take(8), 24);
        assert_int_equal(take(8), VOCABULARY);
        assert_int_equal(take(4), cases[i].embedding);
        buffer_release(&lines);
        buffer_release(&name);
        buffer_release(&file);
    }
}

/* ---- transformers ---- */

static void expect_json(const char *name, const char *want)
{
    char *path = path_of(name);
    struct json *j = json_load(path), *expected = json_parse(want, (i64)strlen(want), "expected");
    struct json_iterator it;
    struct buffer is = {0}, wanted = {0};
    assert_non_null(j);
    assert_non_null(expected);
    for (bool more = json_first(&it, expected); more; more = json_next(&it, expected)) {
        buffer_clear(&is);
        buffer_clear(&wanted);
        json_print(&is, json_get(j, it.key), 0);
        json_print(&wanted, it.value, 0);
        if (!json_get(j, it.key) || strcmp(is.data, wanted.data) != 0)
            fail_msg("%s: %s is %s, not %s", name, it.key, is.data, wanted.data);
    }
    assert_int_equal(json_count(j), json_count(expected));
    buffer_release(&is);
    buffer_release(&wanted);
    json_free(expected);
    json_free(j);
}

TEST(configs_state_the_model)
{
    for (int narrow = 0; narrow < 2; narrow++) {
        char *want = string_format(
            "{\"architectures\":[\"Ernie4_5_MoeForCausalLM\"],\"model_type\":\"ernie4_5_moe\",\"vocab_size\":16,"
            "\"hidden_size\":24,\"intermediate_size\":48,\"num_hidden_layers\":5,\"num_attention_heads\":4,"
            "\"num_key_value_heads\":2,\"head_dim\":8,\"max_position_embeddings\":777,\"moe_intermediate_size\":16,"
            "\"moe_k\":3,\"moe_num_experts\":8,\"moe_num_shared_experts\":2,\"moe_layer_start_index\":2,"
            "\"moe_layer_end_index\":4,\"moe_layer_interval\":1,\"pad_token_id\":7,\"bos_token_id\":8,"
            "\"eos_token_id\":[6,10],\"hidden_act\":\"silu\",\"initializer_range\":0.25,\"rms_norm_eps\":3e-06,"
            "\"moe_norm_min\":1e-09,\"use_bias\":false,\"use_cache\":true,\"tie_word_embeddings\":false,"
            "\"output_router_logits\":false,\"rope_theta\":12345.0,"
            "\"rope_parameters\":{\"rope_theta\":12345.0,\"rope_type\":\"default\"},\"dtype\":\"%s\","
            "\"torch_dtype\":\"%s\"}",
            narrow ? "bfloat16" : "float32", narrow ? "bfloat16" : "float32");
        succeed(directory_make(path_of("hf")));
        succeed(model_save_hf(&model, path_of("hf"), narrow ? DTYPE_BF16 : DTYPE_F32));
        expect_json("hf/config.json", want);
        expect_json("hf/generation_config.json", "{\"bos_token_id\":8,\"eos_token_id\":[6,10],\"pad_token_id\":7}");
        memory_free(want);
    }
}

/* Defaults of transformers' Ernie4_5_MoeConfig (5.24.0). */
TEST(keys_left_out_have_the_values_of_transformers)
{
    struct model_config c;
    char *path = path_of("least");
    succeed(directory_make(path));
    memory_free(put_text("least/config.json", "{\"model_type\":\"ernie4_5_moe\",\"vocab_size\":32,\"hidden_size\":64,"
                                              "\"num_hidden_layers\":3,\"num_attention_heads\":4,"
                                              "\"intermediate_size\":96,\"eos_token_id\":[2,5,9]}"));
    succeed(model_config_load(&c, path));
    assert_int_equal(c.experts, 64);
    assert_int_equal(c.topk, 6);
    assert_int_equal(c.expert_width, 1536);
    assert_int_equal(c.shared_experts, 2);
    assert_int_equal(c.first_moe_layer, 1);
    assert_true(c.tied);
    assert_float_equal(c.rope_theta, 500000, 0);
    assert_float_equal(c.norm_eps, 1e-5, 1e-12);
    assert_float_equal(c.norm_min, 1e-12, 1e-18);
    assert_float_equal(c.init_std, 0.02, 1e-12);
    assert_int_equal(c.max_positions, 131072);
    assert_int_equal(c.eos_id, 2);
    assert_int_equal(c.more_end_count, 2);
    assert_int_equal(c.more_ends[0], 5);
    assert_int_equal(c.more_ends[1], 9);
}

int main(void)
{
    return tests_run(setup, teardown);
}
