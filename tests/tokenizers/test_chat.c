/* Conversations in the chat templates of other models: the ids match transformers
 * (tests/golden/chat, tests/golden/chat_templates), and what is learned of them. */
#include "tests/chat_fixture.h"
#include "tests/cases.h"

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
TEST(prompts_are_those_of_transformers)
{
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
        if (prompts_load(&prompts, path, tokenizer, NULL, 0))
            fail_msg("%s", error_text());
        assert_ids(prompts.list[0].ids.ids, prompts.list[0].ids.count, json_get(json_at(cases, i), "prompt_ids"), 0, i);
        prompts_release(&prompts);
        text_tokenizer_free(tokenizer);
        memory_free(path);
    }
}

/* True if these ids are white space. */
static bool is_blank(const struct text_tokenizer *tokenizer, const struct json *ids, i64 from)
{
    struct id_list list = {0};
    struct buffer text = {0};
    for (i64 i = from; i < json_count(ids); i++)
        id_list_push(&list, (i32)json_integer(json_at(ids, i), -1));
    assert_int_equal(text_decode(tokenizer, &text, list.ids, list.count, false), 0);
    bool blank = text.length == 0 || text.length == (i64)strspn(text.data, " \n");
    id_list_release(&list);
    buffer_release(&text);
    return blank;
}

static void prepare_record(struct id_list *ids, struct json *record, const char *title)
{
    prepare_on_day(ids, record, title, NULL, NULL);
}

/* Compares all ids of the one sample, part by part; white space behind the last answer has no
 * counterpart. */
TEST(shards_hold_those_of_transformers)
{
    for (i64 i = 0; i < json_count(cases); i++) {
        struct text_tokenizer *tokenizer = tokenizer_of_case(i);
        struct json *line = json_object();
        struct id_list ids = {0};
        json_set(line, "messages", json_copy(json_get(json_at(cases, i), "messages")));
        prepare_record(&ids, line, "case");
        const struct json *expected = json_get(json_at(cases, i), "ids");
        assert_ids(ids.ids, ids.count, expected, json_count(expected) - ids.count, i);
        assert_true(is_blank(tokenizer, expected, ids.count));
        id_list_release(&ids);
        text_tokenizer_free(tokenizer);
    }
}

/* ---- Templates of published families ---- */

/* Calls `check` with each line of chat_templates/cases.jsonl and a tokenizer made for it. */
static void each_family(void (*check)(const struct json *family, struct chat *chat, void *context), void *context)
{
    struct buffer file = {0};
    assert_int_equal(file_read(&file, GOLDEN "/chat_templates/cases.jsonl"), 0);
    i64 number = 0;
    for (char *line = file.data, *end; line < file.data + file.length; line = end + 1) {
        end = strchr(line, '\n');
        struct json *family = json_parse_line(line, end - line, "cases.jsonl", ++number);
        const char *name = json_string(json_get(family, "family"), "");
        struct buffer template = {0};
        char *path = string_format("%s/chat_templates/%s.jinja", GOLDEN, name);
        assert_int_equal(file_read(&template, path), 0);
        put_tokenizer(json_string(json_get(family, "tokenizer"), ""), json_get(family, "special"),
                      json_get(family, "added"));
        struct json *config = json_copy(json_get(family, "roles"));
        json_set(config, "chat_template", json_of_bytes(template.data, template.length));
        put("tokenizer_config.json", config);
        struct text_tokenizer *tokenizer = load_folder();
        struct chat *chat = text_chat_open(tokenizer);
        if (!chat)
            fail_msg("%s: %s", name, error_text());
        check(family, chat, context);
        text_chat_close(chat);
        text_tokenizer_free(tokenizer);
        buffer_release(&template);
        memory_free(path);
        json_free(family);
    }
    assert_true(number >= 40);
    buffer_release(&file);
}

/* A conversation of an answer and another question ends with what stands behind the answer. */
static void check_after_answer(const char *name, const struct chat *chat, const struct json *question,
                               const struct id_list *all)
{
    struct id_list after = {0};
    if (text_chat_after_answer(&after, chat, json_string(json_get(question, "content"), "")))
        fail_msg("%s: %s", name, error_text());
    if (after.count > all->count ||
        memcmp(after.ids, all->ids + all->count - after.count, (size_t)after.count * sizeof *after.ids) != 0)
        fail_msg("%s: what stands behind an answer", name);
    id_list_release(&after);
}

static void compare_ids(const struct json *family, struct chat *chat, void *context)
{
    i64 *count = context;
    const struct json *list = json_get(family, "cases");
    for (i64 i = 0; i < json_count(list); i++, ++*count) {
        const struct json *c = json_at(list, i), *expected = json_get(c, "ids");
        const char *name = json_string(json_get(family, "family"), ""), *title = json_string(json_get(c, "name"), "");
        struct chat_request request = request_of(c);
        struct chat_ids ids = {0};
        struct buffer text = {0};
        if (text_chat_encode(&ids, chat, &request))
            fail_msg("%s, %s: %s", name, title, error_text());
        assert_int_equal(text_chat_text(&text, chat, &request), 0);
        for (i64 k = 0; k < max_i64(ids.ids.count, json_count(expected)); k++)
            if (k >= ids.ids.count || ids.ids.ids[k] != json_integer(json_at(expected, k), -1))
                fail_msg("%s, %s: id %lld of %lld in:\n%s", name, title, (long long)k, (long long)ids.ids.count,
                         text.data);
        /* Falcon-3 ends only the last answer with a token; others are one word with the line feed behind them. */
        if (strcmp(title, "question") == 0 && strcmp(name, "falcon_3") != 0)
            check_after_answer(name, chat, json_at(request.messages, 2), &ids.ids);
        buffer_release(&text);
        chat_ids_release(&ids);
    }
}

/* Records with tools, calls, thoughts and variables. */
static void prepare_cases(const struct json *family, struct chat *chat, void *context)
{
    static const char *const titles[] = {"call", "thoughts and call", "other name", "switched off", "developer"};
    i64 *count = context;
    const char *name = json_string(json_get(family, "family"), "");
    const struct json *list = json_get(family, "cases");
    struct text_tokenizer *tokenizer = load_folder();
    (void)chat;
    bool wanted = strcmp(name, "qwen_3") == 0 || strcmp(name, "gpt_oss") == 0 || strcmp(name, "kimi_k2") == 0;
    for (i64 i = 0; i < json_count(list) && wanted; i++)
        for (i64 k = 0; k < COUNT_OF(titles); k++) {
            const struct json *c = json_at(list, i), *variables = json_get(c, "variables"), *expected;
            if (strcmp(json_string(json_get(c, "name"), ""), titles[k]) != 0)
                continue;
            struct json *record = json_object(), *others = json_object();
            struct json_iterator at;
            struct id_list ids = {0};
            json_set(record, "messages", json_copy(json_get(c, "messages")));
            for (bool more = json_first(&at, variables); more; more = json_next(&at, variables))
                json_set(strcmp(at.key, "tools") == 0 ? record : others, at.key, json_copy(at.value));
            json_set(record, "chat_template_kwargs", others);
            prepare_record(&ids, record, titles[k]);
            expected = json_get(c, "ids");
            assert_ids(ids.ids, ids.count, expected, json_count(expected) - ids.count, i);
            assert_true(is_blank(tokenizer, expected, ids.count));
            id_list_release(&ids);
            ++*count;
        }
    text_tokenizer_free(tokenizer);
}

TEST(records_reach_the_template)
{
    i64 count = 0;
    each_family(prepare_cases, &count);
    assert_true(count >= 9);
}

TEST(families_are_those_of_transformers)
{
    i64 count = 0;
    each_family(compare_ids, &count);
    assert_true(count > 500);
}

static void compare_learned(const struct json *family, struct chat *chat, void *context)
{
    i64 *count = context;
    const struct json *list = json_get(family, "cases");
    struct text_tokenizer *tokenizer = load_folder();
    struct buffer text = {0};
    for (i64 i = 0; i < json_count(list); i++) {
        const struct json *c = json_at(list, i);
        const char *name = json_string(json_get(family, "family"), ""), *title = json_string(json_get(c, "name"), "");
        if (json_bool(json_get(c, "prompt"), false))
            continue;
        if (learn(&text, chat, tokenizer, c, NULL))
            fail_msg("%s, %s: %s", name, title, error_text());
        bool first = strncmp(json_string(json_get(family, "tokenizer"), ""), "qwen2/", 6) == 0;
        EACH_CASE (row, "chat_learned.jsonl") {
            if (!first || strcmp(case_text(row, "family"), name) != 0 ||
                strcmp(case_text(row, "conversation"), title) != 0)
                continue;
            case_expect(row, "learned", text.data);
            ++*count;
        }
    }
    buffer_release(&text);
    text_tokenizer_free(tokenizer);
}

TEST(answers_are_learned_with_their_end)
{
    i64 count = 0;
    each_family(compare_learned, &count);
    assert_int_equal(count, 22); /* each line, once */
}

static void compare_masks(const struct json *family, struct chat *chat, void *context)
{
    i64 *count = context;
    const struct json *list = json_get(family, "cases");
    for (i64 i = 0; i < json_count(list); i++) {
        const struct json *c = json_at(list, i), *mask = json_get(c, "mask");
        struct chat_request request = request_of(c);
        struct chat_ids ids = {0};
        bool wanted[16];
        memset(wanted, 1, sizeof wanted);
        request.learned = wanted;
        if (!mask)
            return;
        if (text_chat_encode(&ids, chat, &request))
            fail_msg("%s: %s", json_string(json_get(c, "name"), ""), error_text());
        assert_int_equal(ids.ids.count, json_count(mask));
        for (i64 r = 0, k = 0; r < ids.run_count; r++)
            for (; k < ids.runs[r].end; k++)
                if (ids.runs[r].learned != (json_integer(json_at(mask, k), -1) == 1))
                    fail_msg("%s: id %lld", json_string(json_get(c, "name"), ""), (long long)k);
        ++*count;
        chat_ids_release(&ids);
    }
}

TEST(marks_of_generation_are_those_of_transformers)
{
    i64 count = 0;
    each_family(compare_masks, &count);
    assert_true(count >= 12);
}

static i32 id_of_mark(const struct text_tokenizer *tokenizer, const struct json *mark)
{
    const char *text = json_string(mark, NULL);
    return text ? text_token_id(tokenizer, text) : -1;
}

static void compare_marks(const struct json *family, struct chat *chat, void *context)
{
    i64 *count = context;
    (void)chat;
    EACH_CASE (c, "chat_marks.jsonl") {
        i32 begin = -1, end = -1;
        if (strcmp(case_text(c, "family"), json_string(json_get(family, "family"), "")) != 0)
            continue;
        struct text_tokenizer *tokenizer = load_folder();
        text_chat_marks(&begin, &end, tokenizer);
        if (begin != id_of_mark(tokenizer, json_get(c->row, "begin")) ||
            end != id_of_mark(tokenizer, json_get(c->row, "end")))
            case_wrong(c, "%d, %d", begin, end);
        text_tokenizer_free(tokenizer);
        ++*count;
    }
}

TEST(ends_of_answers_are_found)
{
    i64 count = 0;
    each_family(compare_marks, &count);
    assert_true(count >= 9);
}

int main(void)
{
    return tests_run(make, clear);
}
