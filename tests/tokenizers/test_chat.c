/* Conversations in the chat templates of other models: the ids match transformers
 * (tests/golden/chat) for prompts, for shards, and piece by piece. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/json.h"
#include "data/prepare/prepare.h"
#include "data/shards/shards.h"
#include "kernels/kernels.h"
#include "rl/prompts.h"
#include "sequence/grammar.h"
#include "tokenizers/text/text.h"
#include <cmocka.h>

static char *folder;
static struct json *cases;

static int make(void **state)
{
    (void)state;
    folder = string_format("/dev/shm/weft-chat-%ld", (long)getpid());
    directory_remove(folder);
    cases = json_load(GOLDEN "/chat/cases.json");
    return cases ? directory_make(folder) : -1;
}

static int clear(void **state)
{
    (void)state;
    directory_remove(folder);
    memory_free(folder);
    json_free(cases);
    return 0;
}

static void put(const char *name, struct json *value)
{
    char *path = path_join(folder, name);
    assert_int_equal(json_save(path, value), 0);
    memory_free(path);
    json_free(value);
}

/* Loads the golden tokenizer with special tokens and a template (NULL: none). */
static struct text_tokenizer *tokenizer_of(const struct json *specials, const char *template)
{
    const char *names[16] = {NULL};
    struct text_tokenizer *base = text_tokenizer_load(GOLDEN "/tokenizer/qwen2");
    assert_non_null(base);
    for (i64 i = 0; i < json_count(specials); i++)
        names[i] = json_string(json_at(specials, i), "");
    assert_int_equal(text_tokenizer_add_special(base, names), 0);
    assert_int_equal(text_tokenizer_save(base, folder), 0);
    text_tokenizer_free(base);
    struct json *config = json_object();
    if (template)
        json_set(config, "chat_template", json_of_string(template));
    put("tokenizer_config.json", config);
    struct text_tokenizer *tokenizer = text_tokenizer_load(folder);
    assert_non_null(tokenizer);
    return tokenizer;
}

static struct text_tokenizer *tokenizer_of_case(i64 i)
{
    const struct json *c = json_at(cases, i);
    return tokenizer_of(json_get(c, "specials"), json_string(json_get(c, "template"), ""));
}

static void assert_ids(const i32 *ids, i64 count, const struct json *expected, i64 less, i64 number)
{
    for (i64 k = 0; k < count && k < json_count(expected) - less; k++)
        if (ids[k] != json_integer(json_at(expected, k), -1))
            fail_msg("case %lld: id %lld is %d", (long long)number, (long long)k, ids[k]);
    assert_int_equal(count, json_count(expected) - less);
}

/* A prompt is all messages except the last, which is an answer. */
static void prompts_are_those_of_transformers(void **state)
{
    (void)state;
    for (i64 i = 0; i < json_count(cases); i++) {
        struct text_tokenizer *tokenizer = tokenizer_of_case(i);
        struct json *line = json_object(), *prompt = json_array(), *reward = json_object();
        const struct json *messages = json_get(json_at(cases, i), "messages");
        struct prompts prompts;
        char *path = path_join(folder, "p.json");
        for (i64 k = 0; k + 1 < json_count(messages); k++)
            json_push(prompt, json_copy(json_at(messages, k)));
        json_set(reward, "ground_truth", json_of_string("x"));
        json_set(reward, "style", json_of_string("exact"));
        json_set(line, "prompt", prompt);
        json_set(line, "reward_model", reward);
        struct json *list = json_array();
        json_push(list, line);
        put("p.json", list);
        if (prompts_load(&prompts, path, tokenizer, 0))
            fail_msg("%s", error_text());
        assert_ids(prompts.list[0].ids.ids, prompts.list[0].ids.count, json_get(json_at(cases, i), "prompt_ids"), 0, i);
        prompts_release(&prompts);
        text_tokenizer_free(tokenizer);
        memory_free(path);
    }
}

static i64 tail_count(const struct text_tokenizer *tokenizer)
{
    struct id_list tail = {0};
    assert_int_equal(text_chat_tail(&tail, tokenizer, text_chat_layout(tokenizer), "assistant"), 0);
    i64 count = tail.count;
    id_list_release(&tail);
    return count;
}

/* Compares all ids of the one sample, part by part; ids after the end of the last answer have no
 * counterpart. */
static void shards_hold_those_of_transformers(void **state)
{
    struct device device;
    (void)state;
    device_open_cpu(&device);
    for (i64 i = 0; i < json_count(cases); i++) {
        struct text_tokenizer *tokenizer = tokenizer_of_case(i);
        char *data = path_join(folder, "c.json"), *out = path_join(folder, "out");
        struct prepare_settings s = {
            .data = data, .tokenizer[TOKENIZER_TEXT] = folder, .audio_seconds = 30, .shard_bytes = 1 << 20};
        struct json *line = json_object(), *list = json_array();
        struct shards shards;
        struct id_list ids = {0};
        bool answered = false;
        json_set(line, "messages", json_copy(json_get(json_at(cases, i), "messages")));
        json_push(list, line);
        put("c.json", list);
        directory_remove(out);
        assert_int_equal(directory_make(out), 0);
        if (prepare_stage(&s, out, 1, &device, DTYPE_F32) || shards_open(&shards, out, "train"))
            fail_msg("%s", error_text());
        for (i64 part = 0; part < shards.part_count; part++) {
            const struct shard_part *p = shards_part(&shards, part);
            const i32 *values = p->kind == STREAM_TEXT ? shards_payload(&shards, part) : NULL;
            for (i64 k = 0; values && k < p->count; k++)
                id_list_push(&ids, values[k]);
            answered |= values && !p->condition;
        }
        assert_true(answered);
        assert_ids(ids.ids, ids.count, json_get(json_at(cases, i), "ids"), tail_count(tokenizer) - 1, i);
        id_list_release(&ids);
        shards_close(&shards);
        text_tokenizer_free(tokenizer);
        memory_free(data);
        memory_free(out);
    }
}

static void refused(struct text_tokenizer *tokenizer, const char *words)
{
    assert_null(text_chat_layout(tokenizer));
    if (!strstr(error_text(), words))
        fail_msg("%s", error_text());
    text_tokenizer_free(tokenizer);
}

static const struct json *specials_of(const char *layout)
{
    for (i64 i = 0; i < json_count(cases); i++)
        if (strcmp(json_string(json_get(json_at(cases, i), "layout"), ""), layout) == 0)
            return json_get(json_at(cases, i), "specials");
    fail_msg("no case of %s", layout);
    return NULL;
}

static void what_is_not_known_is_refused(void **state)
{
    struct json *none = json_array(), *chatml = json_array();
    struct id_list ids = {0};
    (void)state;
    json_push(chatml, json_of_string("<|im_start|>"));
    json_push(chatml, json_of_string("<|im_end|>"));
    refused(text_tokenizer_load(GOLDEN "/tokenizer/gpt2"), "neither a chat_template");
    refused(tokenizer_of(chatml, "{{ '[INST] ' + m.content + ' [/INST]' }}"), "none of the layouts");
    const struct json *mistral = specials_of("Mistral");
    refused(tokenizer_of(mistral, "{{ '[INST] ' + m.content + ' [/INST]' }}"),
            "none of the layouts"); /* V1, without space */
    refused(tokenizer_of(mistral, "{{ '[INST] <<SYS>>' + s + '<</SYS>>' + m.content + '[/INST]' }}"), "none of the");
    refused(tokenizer_of(chatml, "{{ 'User: ' + m.content + '\\nAssistant: ' }}"), "none of the layouts");
    refused(tokenizer_of(none, "{{ '<start_of_turn>' + m.content + '<end_of_turn>' }}"), "lacks its tokens");
    struct text_tokenizer *tokenizer = tokenizer_of(chatml, NULL);
    assert_int_equal(text_chat_head(&ids, tokenizer, text_chat_layout(tokenizer), "narrator", "", 0), -1);
    assert_non_null(strstr(error_text(), "narrator"));
    text_tokenizer_free(tokenizer);
    json_free(none);
    json_free(chatml);
}

/* Control pieces of a SentencePiece model are never produced from text. */
static void marks_that_are_text_are_refused(void **state)
{
    char *model = path_join(folder, "tokenizer.model"), *table = path_join(folder, "tokenizer.json");
    struct json *config = json_object();
    (void)state;
    for (i64 i = 0; i < json_count(cases); i++) {
        const char *template = json_string(json_get(json_at(cases, i), "template"), "");
        if (strstr(template, " [INST] ") && !strstr(template, "<<SYS>>"))
            json_set(config, "chat_template", json_of_string(template));
    }
    assert_non_null(json_get(config, "chat_template"));
    unlink(table);
    memory_free(table);
    assert_int_equal(file_copy(model, GOLDEN "/tokenizer/families/sp_llama2.model"), 0);
    put("tokenizer_config.json", config);
    struct text_tokenizer *tokenizer = text_tokenizer_load(folder);
    assert_non_null(tokenizer);
    assert_null(text_chat_layout(tokenizer));
    assert_non_null(strstr(error_text(), "is no token to a SentencePiece model alone"));
    text_tokenizer_free(tokenizer);
    memory_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_those_of_transformers), cmocka_unit_test(shards_hold_those_of_transformers),
        cmocka_unit_test(what_is_not_known_is_refused), cmocka_unit_test(marks_that_are_text_are_refused)};
    return cmocka_run_group_tests(tests, make, clear);
}
