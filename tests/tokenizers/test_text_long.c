/* Words of a million characters, and tokenizer files that make texts grow. */
#include "tests/scratch.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

#define FOLDER GOLDEN "/tokenizer/families"

static u64 next_random(u64 *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* ---- BPE: blocks against the whole word ---- */

static int more_bytes(struct symbol_source *source, struct id_list *symbols, i64 least)
{
    for (i64 end = min_i64(source->length, source->at + least); source->at < end; source->at++)
        id_list_push(symbols, source->piece[source->at]);
    return 0;
}

/* Merges of random pairs in a random order, so that ranks need not rise with the lengths. */
static void make_table(struct pair_table *table, u64 *random, i64 letters, i64 merges)
{
    i32 next = 256;
    pair_table_init(table, merges + 1);
    for (i64 i = 0; i < merges; i++) {
        i64 made = next - 256, left = (i64)(next_random(random) % (u64)(letters + made));
        i64 right = (i64)(next_random(random) % (u64)(letters + made));
        i32 a = (i32)(left < letters ? left : 256 + left - letters),
            b = (i32)(right < letters ? right : 256 + right - letters);
        if (pair_find(table, a, b)->rank == NO_RANK)
            pair_table_set(table, a, b, (u32)(next_random(random) % 1000), next++);
    }
}

static void compare_long(u64 seed, i64 letters, i64 merges, i64 length, bool runs)
{
    struct pair_table table;
    struct bpe_scratch scratch = {0};
    struct id_list whole = {0}, out = {0};
    u64 random = seed;
    make_table(&table, &random, letters, merges);
    u8 *word = memory_alloc(length);
    for (i64 i = 0, left = 0; i < length; i++, left--) {
        bool again = runs && left > 0;
        word[i] = again ? word[i - 1] : (u8)(next_random(&random) % (u64)letters);
        left = again ? left : (i64)(next_random(&random) % 100000);
        id_list_push(&whole, word[i]);
    }
    whole.count = bpe_merge(&table, &scratch, whole.ids, whole.count, NULL);
    struct symbol_source source = {more_bytes, NULL, word, length};
    assert_int_equal(bpe_merge_long(&table, &scratch, &source, &out, NULL), 0);
    assert_int_equal(out.count, whole.count);
    assert_memory_equal(out.ids, whole.ids, (size_t)out.count * 4);
    memory_free(table.slots);
    memory_free(word);
    bpe_scratch_release(&scratch);
    id_list_release(&whole);
    id_list_release(&out);
}

TEST(a_long_word_has_the_ids_of_the_whole)
{
    for (u64 seed = 1; seed <= 24; seed++)
        compare_long(seed, 1 + (i64)(seed % 3), 3 + (i64)seed * 2, 3 * BPE_BLOCK + 1000 * (i64)seed + 1, seed % 2);
}

/* ---- Every family takes a million equal characters ---- */

static void encode_run(struct id_list *ids, const struct text_tokenizer *tokenizer, const char *unit, i64 count)
{
    struct buffer text = {0};
    for (i64 i = 0; i < count; i++)
        buffer_append(&text, unit, (i64)strlen(unit));
    ids->count = 0;
    if (text_encode(tokenizer, ids, text.data, text.length, NULL))
        fail_msg("%s", error_text());
    buffer_release(&text);
}

/* The ids of a run are a head, a repeated middle and an end. So the difference between two runs that
 * differ by a multiple of the period can only be in the middle. */
static void compare_runs(const char *path, const char *unit)
{
    enum { SHORT = 3000, LONG = 334 * SHORT, PERIOD = 12 };
    struct text_tokenizer *tokenizer = text_tokenizer_load(path);
    struct id_list few = {0}, some = {0}, many = {0};
    if (!tokenizer)
        fail_msg("%s", error_text());
    encode_run(&few, tokenizer, unit, SHORT);
    encode_run(&some, tokenizer, unit, 2 * SHORT);
    encode_run(&many, tokenizer, unit, LONG);
    i64 same = few.count / 3;
    if (few.count > 100) {
        assert_int_equal(many.count, few.count + (some.count - few.count) * ((LONG - SHORT) / SHORT));
        assert_memory_equal(many.ids, few.ids, (size_t)same * 4);
        assert_memory_equal(many.ids + many.count - same, few.ids + few.count - same, (size_t)same * 4);
        for (i64 i = same; i + PERIOD < many.count - same; i++)
            if (many.ids[i] != many.ids[i + PERIOD])
                fail_msg("%s: '%s': id %lld differs from that %d behind it", path, unit, (long long)i, PERIOD);
    } else {
        assert_int_equal(many.count, few.count);
        assert_memory_equal(many.ids, few.ids, (size_t)few.count * 4);
    }
    id_list_release(&few);
    id_list_release(&some);
    id_list_release(&many);
    text_tokenizer_free(tokenizer);
}

TEST(a_million_equal_characters_are_taken)
{
    static const char *const families[] = {"gpt4o.json",  "deepseek3.json", "bloom.json",     "clip.json",
                                           "llama2.json", "t5.json",        "xlmr.json",      "tt_cl100k",
                                           "tt_kimi",     "tt_o200k",       "sp_gemma.model", "gpt1.json"};
    static const char *const units[] = {"A", "a", "7", " ", "\xe3\x81\x82"};
    for (i64 f = 0; f < COUNT_OF(families); f++)
        for (i64 u = 0; u < COUNT_OF(units); u++)
            if (f == 0 || (f + u) % 3 == 0) {
                char *path = path_join(FOLDER, families[f]);
                compare_runs(path, units[u]);
                memory_free(path);
            }
}

/* ---- Training ---- */

/* The merges that all words, gone through as a whole, give (recorded). */
TEST(a_long_word_trains_the_merges_of_the_whole)
{
    static const char *const none[] = {NULL};
    const struct text_training training = {"qwen2", false, 500, none, false};
    struct text_trainer *trainer = text_trainer_open(&training);
    struct buffer word = {0}, merges = {0};
    u64 random = 1;
    for (i64 i = 0; i < 60000; i++)
        buffer_append(&word, &"aab"[next_random(&random) % 3], 1);
    assert_int_equal(text_trainer_feed(trainer, word.data, word.length), 0);
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    assert_non_null(tokenizer);
    for (i64 i = 0; i < tokenizer->merge_count; i++)
        buffer_printf(&merges, "%d %d %d\n", tokenizer->merges[i].left, tokenizer->merges[i].right,
                      tokenizer->merges[i].id);
    assert_int_equal(tokenizer->merge_count, 244);
    assert_int_equal(hash_bytes(merges.data, merges.length, 0), 0x0f2b9dfeff1b86ecu);
    text_tokenizer_free(tokenizer);
    buffer_release(&word);
    buffer_release(&merges);
}

/* ---- Growth ---- */

static struct text_tokenizer *load_parts(const char *parts)
{
    char *path = path_join(directory, "tokenizer.json");
    char *file =
        string_format("{\"version\":\"1.0\",\"added_tokens\":[],%s,\"model\":{\"type\":\"WordLevel\",\"vocab\":"
                      "{\"a\":0,\"<u>\":1},\"unk_token\":\"<u>\"}}",
                      parts);
    assert_int_equal(file_replace(path, file, (i64)strlen(file)), 0);
    struct text_tokenizer *tokenizer = text_tokenizer_load(path);
    memory_free(file);
    memory_free(path);
    return tokenizer;
}

#define A100 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define LONGER "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"" A100 A100 A100 A100 A100 "\"}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}"
#define EIGHT(x) x "," x "," x "," x "," x "," x "," x "," x

TEST(texts_do_not_grow_without_bound)
{
    static const struct {
        const char *parts, *place;
        bool decodes;
    } cases[] = {
        {"\"normalizer\":" LONGER, "normalizer makes", false},
        {"\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" EIGHT("{\"type\":\"ByteLevel\"}") "]}",
         "normalizer.normalizers[", false},
        {"\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" EIGHT(BYTES) "]}",
         "pre_tokenizer.pretokenizers[", false},
        {"\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}," LONGER "]}",
         "decoder.decoders[1] makes", true},
    };
    struct buffer text = {0};
    for (i64 i = 0; i < 10000; i++)
        buffer_append(&text, i % 2 ? "a" : "\xc3\xa9", i % 2 ? 1 : 2);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct text_tokenizer *tokenizer = load_parts(cases[i].parts);
        struct id_list ids = {0};
        struct buffer shown = {0};
        if (!tokenizer)
            fail_msg("%s", error_text());
        for (i64 n = 0; cases[i].decodes && n < 10000; n++)
            id_list_push(&ids, 0);
        int status = cases[i].decodes ? text_decode(tokenizer, &shown, ids.ids, ids.count, false)
                                      : text_encode(tokenizer, &ids, text.data, text.length, NULL);
        if (status == 0 || !strstr(error_text(), cases[i].place) || !strstr(error_text(), "tokenizer.json"))
            fail_msg("%s: '%s' does not name it", cases[i].place, status ? error_text() : "no error");
        id_list_release(&ids);
        buffer_release(&shown);
        text_tokenizer_free(tokenizer);
    }
    buffer_release(&text);
}

/* A token that stands for many ids, many times. */
TEST(templates_and_tokens_have_a_limit)
{
    struct buffer parts = {0};
    buffer_printf(&parts, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"x\":{\"ids\":[0");
    for (i64 i = 1; i < 500; i++)
        buffer_append(&parts, ",0", 2);
    buffer_printf(&parts, "]}},\"single\":[");
    for (i64 i = 0; i < 500; i++)
        buffer_printf(&parts, "{\"SpecialToken\":{\"id\":\"x\"}},");
    buffer_printf(&parts, "{\"Sequence\":{\"id\":\"A\"}}]}");
    assert_null(load_parts(parts.data));
    assert_non_null(strstr(error_text(), "post_processor.single["));
    buffer_release(&parts);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
