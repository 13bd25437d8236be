/* Fixture for tests of conversations as ids: tokenizers of the golden cases in a folder, and what shards hold. */
#ifndef WEFT_TESTS_CHAT_FIXTURE_H
#define WEFT_TESTS_CHAT_FIXTURE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/json.h"
#include "data/prepare/chat.h"
#include "data/prepare/prepare.h"
#include "data/shards/shards.h"
#include "kernels/kernels.h"
#include "rl/prompts.h"
#include "sequence/grammar.h"
#include "tests/test.h"
#include "tokenizers/text/text.h"

static char *folder;
static struct json *cases;

static inline int make(void **state)
{
    (void)state;
    folder = string_format("/dev/shm/weft-chat-%ld", (long)getpid());
    directory_remove(folder);
    cases = json_load(GOLDEN "/chat/cases.json");
    return cases ? directory_make(folder) : -1;
}

static inline int clear(void **state)
{
    (void)state;
    directory_remove(folder);
    memory_free(folder);
    json_free(cases);
    return 0;
}

static inline void put(const char *name, struct json *value)
{
    char *path = path_join(folder, name);
    assert_int_equal(json_save(path, value), 0);
    memory_free(path);
    json_free(value);
}

static inline bool is_added(const struct json *added, const char *content)
{
    for (i64 i = 0; i < json_count(added); i++)
        if (strcmp(json_string(json_get(json_at(added, i), "content"), ""), content) == 0)
            return true;
    return false;
}

/* Writes a golden tokenizer with added tokens into the folder. */
static inline void put_tokenizer(const char *name, const struct json *specials, const struct json *others)
{
    char *path = string_format("%s/tokenizer/%s.json", GOLDEN, name);
    struct json *table = json_load(path), *added = json_get(table, "added_tokens");
    const struct json *lists[] = {specials, others};
    i64 next = json_count(json_get(json_get(table, "model"), "vocab"));
    memory_free(path);
    for (i64 i = 0; i < json_count(added); i++)
        next = max_i64(next, json_integer(json_get(json_at(added, i), "id"), 0) + 1);
    for (i64 k = 0; k < 2; k++)
        for (i64 i = 0; i < json_count(lists[k]); i++) {
            static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
            struct json *token = json_object();
            if (is_added(added, json_string(json_at(lists[k], i), ""))) {
                json_free(token);
                continue;
            }
            json_set(token, "id", json_of_integer(next++));
            json_set(token, "content", json_copy(json_at(lists[k], i)));
            for (i64 f = 0; f < COUNT_OF(flags); f++)
                json_set(token, flags[f], json_of_bool(false));
            json_set(token, "special", json_of_bool(k == 0));
            json_push(added, token);
        }
    put("tokenizer.json", table);
}

static inline struct text_tokenizer *load_folder(void)
{
    struct text_tokenizer *tokenizer = text_tokenizer_load(folder);
    if (!tokenizer)
        fail_msg("%s", error_text());
    return tokenizer;
}

/* Loads the golden tokenizer with special tokens and a template (NULL: none). The roles of tokens
 * that templates name are those that the specials suggest. */
static inline struct text_tokenizer *tokenizer_of(const struct json *specials, const char *template)
{
    static const char *const begins[] = {"<s>", "<bos>", "<|begin_of_text|>", "<|begin_of_sentence|>",
                                         "<\uff5cbegin\u2581of\u2581sentence\uff5c>"};
    struct json *config = json_object();
    put_tokenizer("qwen2/tokenizer", specials, NULL);
    for (i64 i = 0; i < json_count(specials); i++)
        for (i64 k = 0; k < COUNT_OF(begins); k++)
            if (strcmp(json_string(json_at(specials, i), ""), begins[k]) == 0)
                json_set(config, "bos_token", json_of_string(begins[k]));
    if (template)
        json_set(config, "chat_template", json_of_string(template));
    put("tokenizer_config.json", config);
    return load_folder();
}

/* Prepares a record with the tokenizer of the folder, and collects the ids of its one sample. day: the
 * setting. began: the day of an unfinished call. Both may be NULL. */
static inline void prepare_on_day(struct id_list *ids, struct json *record, const char *title, char *day,
                                  const char *began)
{
    struct device device;
    char *data = path_join(folder, "c.json"), *out = path_join(folder, "out");
    struct prepare_settings s = {
        .data = data, .tokenizer[TOKENIZER_TEXT] = folder, .audio_seconds = 30, .shard_bytes = 1 << 20, .day = day};
    struct json *list = json_array();
    struct shards shards;
    bool answered = false;
    device_open_cpu(&device);
    json_push(list, record);
    put("c.json", list);
    directory_remove(out);
    assert_int_equal(directory_make(out), 0);
    if (began) {
        struct json *progress = json_object();
        json_set(progress, "day", json_of_string(began));
        put("out/progress.json", progress);
    }
    if (prepare_stage(&s, out, 1, &device, DTYPE_F32) || shards_open(&shards, out, "train"))
        fail_msg("%s: %s", title, error_text());
    for (i64 part = 0; part < shards.part_count; part++) {
        const struct shard_part *p = shards_part(&shards, part);
        const i32 *values = p->kind == STREAM_TEXT ? shards_payload(&shards, part) : NULL;
        for (i64 k = 0; values && k < p->count; k++)
            id_list_push(ids, values[k]);
        answered |= values && !p->condition;
    }
    assert_true(answered);
    shards_close(&shards);
    memory_free(data);
    memory_free(out);
}

static inline struct chat_request request_of(const struct json *c)
{
    return (struct chat_request){.messages = json_get(c, "messages"),
                                 .variables = json_get(c, "variables"),
                                 .prompt = json_bool(json_get(c, "prompt"), false)};
}

/* Appends the texts that are learned, each in brackets. */
static inline void put_learned(struct buffer *out, const struct chat_ids *ids, const struct text_tokenizer *tokenizer)
{
    for (i64 i = 0, from = 0; i < ids->run_count; from = ids->runs[i++].end) {
        if (!ids->runs[i].learned || ids->runs[i].end == from)
            continue;
        struct buffer text = {0};
        assert_int_equal(text_decode(tokenizer, &text, ids->ids.ids + from, ids->runs[i].end - from, false), 0);
        buffer_printf(out, "[%s]", text.data);
        buffer_release(&text);
    }
}

/* Lays out messages with the answers for which `learned` has a 1 (NULL: all); puts what is learned. */
static inline int learn(struct buffer *out, const struct chat *chat, const struct text_tokenizer *tokenizer,
                        const struct json *c, const char *learned)
{
    struct chat_request request = request_of(c);
    struct chat_ids ids = {0};
    bool wanted[16];
    for (i64 i = 0; i < COUNT_OF(wanted); i++)
        wanted[i] = !learned || (i < (i64)strlen(learned) && learned[i] == '1');
    request.learned = wanted;
    request.trims = true;
    buffer_clear(out);
    int status = text_chat_encode(&ids, chat, &request);
    if (status == 0)
        put_learned(out, &ids, tokenizer);
    chat_ids_release(&ids);
    return status;
}

#endif
