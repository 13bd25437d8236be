/* Conversations as ids: what is learned, marks that a message spells, where templates come from, media,
 * and what is refused. */
#include "tests/cases.h"
#include "tests/chat_fixture.h"

/* ---- What is learned ---- */

static struct json *parse(const char *text)
{
    struct json *value = json_parse(text, (i64)strlen(text), "test");
    if (!value)
        fail_msg("%s", error_text());
    return value;
}

static struct text_tokenizer *chatml_tokenizer(const char *template)
{
    struct json *marks = parse("[\"<|im_start|>\", \"<|im_end|>\", \"<s>\"]");
    struct text_tokenizer *tokenizer = tokenizer_of(marks, template);
    json_free(marks);
    return tokenizer;
}

/* Puts what is learned, each answer in brackets, or why the conversation is refused. */
static void put_learned_or_reason(struct buffer *out, const struct text_tokenizer *tokenizer, const struct json *c,
                                  const char *wanted)
{
    struct chat *chat = text_chat_open(tokenizer);
    assert_non_null(chat);
    if (learn(out, chat, tokenizer, c, wanted))
        buffer_printf(out, "%s", error_text());
    text_chat_close(chat);
}

/* Puts the tokens, special ones in braces, or why the conversation is refused. */
static void put_tokens(struct buffer *out, const struct text_tokenizer *tokenizer, const struct json *c)
{
    struct chat *chat = text_chat_open(tokenizer);
    struct chat_request request = request_of(c);
    struct chat_ids ids = {0};
    assert_non_null(chat);
    if (text_chat_encode(&ids, chat, &request))
        buffer_printf(out, "%s", error_text());
    for (i64 i = 0; i < ids.ids.count; i++) {
        struct buffer one = {0};
        bool special = text_token_is_special(tokenizer, ids.ids.ids[i]);
        assert_int_equal(text_decode(tokenizer, &one, &ids.ids.ids[i], 1, false), 0);
        buffer_printf(out, special ? "{%s}" : "%s", one.data);
        buffer_release(&one);
    }
    chat_ids_release(&ids);
    text_chat_close(chat);
}

/* Puts the layout of a message with two pictures and its answer, or why it is refused: media as their numbers,
 * what is learned in brackets. */
static void put_media(struct buffer *out, const struct text_tokenizer *tokenizer)
{
    struct chat *chat = text_chat_open(tokenizer);
    struct sample sample = {.layout = SAMPLE_CHAT};
    struct chat_ids ids = {0};
    assert_non_null(chat);
    for (i64 i = 0; i < 5; i++) {
        struct sample_part *part = sample_add(&sample, i == 1 || i == 2 ? MODALITY_IMAGE : MODALITY_TEXT);
        static const char *const texts[] = {" look", NULL, NULL, " here ", "fine"};
        if (texts[i])
            buffer_append(&part->bytes, texts[i], (i64)strlen(texts[i]));
        part->role = i == 0 ? string_copy("user") : i == 4 ? string_copy("assistant") : NULL;
    }
    if (chat_lay_out(&ids, chat, &sample, false))
        buffer_printf(out, "%s", error_text());
    for (i64 i = 0, from = 0; i < ids.run_count; from = ids.runs[i++].end) {
        struct buffer text = {0};
        assert_int_equal(text_decode(tokenizer, &text, ids.ids.ids + from, ids.runs[i].end - from, false), 0);
        buffer_printf(out, ids.runs[i].learned ? "[%s]" : "%s", text.data ? text.data : "");
        if (ids.runs[i].medium >= 0)
            buffer_printf(out, "(%d)", ids.runs[i].medium);
        buffer_release(&text);
    }
    chat_ids_release(&ids);
    sample_release(&sample);
    text_chat_close(chat);
}

TEST(conversations_are_laid_out_or_refused)
{
    EACH_CASE (c, "chat_layouts.jsonl") {
        static const char *const kinds[] = {"learned", "ids", "media"};
        const struct json *conversation = json_get(c->row, "conversation");
        const char *message = json_string(json_get(c->row, "message"), NULL);
        struct text_tokenizer *tokenizer = chatml_tokenizer(case_text(c, "template"));
        struct buffer out = {0};
        if (!conversation)
            put_media(&out, tokenizer);
        else if (json_get(c->row, "ids"))
            put_tokens(&out, tokenizer, conversation);
        else
            put_learned_or_reason(&out, tokenizer, conversation, json_string(json_get(c->row, "wanted"), NULL));
        if (message && !strstr(out.data, message))
            case_wrong(c, "gives %s", out.data);
        for (i64 i = 0; i < COUNT_OF(kinds); i++)
            if (json_get(c->row, kinds[i]))
                case_expect(c, kinds[i], out.data ? out.data : "");
        buffer_release(&out);
        text_tokenizer_free(tokenizer);
    }
}

/* ---- Marks that a message spells ---- */

/* Added tokens that are not special: those that the template writes around texts cannot be spelled. */
TEST(marks_need_not_be_special)
{
    static const struct {
        const char *token;
        i64 count;
    } rows[] = {{"<turn>", 2}, {"</turn>", 2}, {"<tag>", 2}};
    struct json *none = json_array(), *added = parse("[\"<turn>\", \"</turn>\", \"<tag>\"]"), *config = json_object();
    put_tokenizer("qwen2/tokenizer", none, added);
    json_set(config, "chat_template",
             json_of_string("{% for m in messages %}{{ '<turn>' + m.content + '</turn>' }}{% endfor %}"));
    put("tokenizer_config.json", config);
    struct text_tokenizer *tokenizer = load_folder();
    struct chat *chat = text_chat_open(tokenizer);
    struct json *c = parse("{\"messages\": [{\"role\": \"user\", \"content\": \"a</turn><turn>b<tag>\"}, {\"role\": "
                           "\"assistant\", \"content\": \"<tag>\"}]}");
    struct chat_request request = request_of(c);
    struct chat_ids ids = {0};
    assert_int_equal(text_chat_encode(&ids, chat, &request), 0);
    for (i64 k = 0; k < COUNT_OF(rows); k++) {
        i64 count = 0;
        for (i64 i = 0; i < ids.ids.count; i++)
            count += ids.ids.ids[i] == text_token_id(tokenizer, rows[k].token);
        assert_int_equal(count, rows[k].count);
    }
    chat_ids_release(&ids);
    json_free(c);
    json_free(none);
    json_free(added);
    text_chat_close(chat);
    text_tokenizer_free(tokenizer);
}

/* ---- Where templates come from ---- */

static void put_text(const char *name, const char *text)
{
    char *path = path_join(folder, name);
    assert_int_equal(file_replace(path, text, (i64)strlen(text)), 0);
    memory_free(path);
}

static void remove_file(const char *name)
{
    char *path = path_join(folder, name);
    unlink(path);
    memory_free(path);
}

static void expect_text(const char *conversation, const char *expected)
{
    struct text_tokenizer *tokenizer = load_folder();
    struct chat *chat = text_chat_open(tokenizer);
    struct json *c = parse(conversation);
    struct chat_request request = request_of(c);
    struct buffer text = {0};
    if (!chat || text_chat_text(&text, chat, &request))
        buffer_printf(&text, "%s", error_text());
    if (!strstr(text.data ? text.data : "", expected))
        fail_msg("%s, expected %s", text.data, expected);
    buffer_release(&text);
    json_free(c);
    text_chat_close(chat);
    text_tokenizer_free(tokenizer);
}

static const char hello[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}";
static const char hello_tools[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"variables\": {\"tools\": [{\"name\": \"f\"}]}}";

static void put_config(const char *text)
{
    struct json *none = json_array();
    put_tokenizer("qwen2/tokenizer", none, NULL);
    json_free(none);
    put("tokenizer_config.json", parse(text));
}

TEST(templates_are_chosen_by_name)
{
    put_config("{\"chat_template\": [{\"name\": \"rag\", \"template\": \"R{{ messages[0].content }}\"}, {\"name\": "
               "\"default\", \"template\": \"D{{ messages[0].content }}\"}, {\"name\": \"tool_use\", \"template\": "
               "\"T{{ messages[0].content }}{{ tools[0].name }}\"}]}");
    expect_text(hello, "Dhello");
    expect_text(hello_tools, "Thellof");
    put_config("{\"chat_template\": [{\"name\": \"rag\", \"template\": \"R\"}, {\"name\": \"tool_use\", \"template\": "
               "\"T\"}]}");
    expect_text(hello, "none is named \"default\"");
    put_config("{\"chat_template\": [{\"name\": \"default\", \"template\": \"D{{ messages[0].content }}\"}, {\"name\": "
               "\"tool_use\", \"template\": \"{{ messages[\"}]}");
    expect_text(hello, "Dhello");
    expect_text(hello_tools, "tool_use");
}

TEST(template_files_go_before_the_config)
{
    put_config("{\"chat_template\": \"C{{ messages[0].content }}\"}");
    put_text("chat_template.json", "{\"chat_template\": \"J{{ messages[0].content }}\"}");
    expect_text(hello, "Chello");
    put_config("{}");
    expect_text(hello, "Jhello");
    put_config("{\"chat_template\": \"C{{ messages[0].content }}\"}");
    put_text("chat_template.jinja", "F{{ messages[0].content }}\n");
    expect_text(hello, "Fhello");
    char *more = path_join(folder, "additional_chat_templates");
    assert_int_equal(directory_make(more), 0);
    memory_free(more);
    put_text("additional_chat_templates/tool_use.jinja", "A{{ messages[0].content }}");
    expect_text(hello_tools, "Ahello");
    expect_text(hello, "Fhello");
    remove_file("chat_template.jinja");
    expect_text(hello, "none is named \"default\"");
    remove_file("additional_chat_templates/tool_use.jinja");
    remove_file("chat_template.json");
    expect_text(hello, "Chello");
}

/* A tokenizer saved elsewhere lays conversations out as before, whichever file its template was in. */
TEST(a_copy_has_the_template)
{
    static const char *const files[] = {"tokenizer_config.json", "chat_template.jinja", "chat_template.json"};
    static const char source[] = "{{ bos_token }}X\n{{ messages[0].content }} \u00e4\n";
    for (i64 i = 0; i < COUNT_OF(files); i++) {
        char *copy = path_join(folder, "copy");
        struct json *config = json_object(), *other = json_object();
        const char *name;
        put_config("{}");
        json_set(config, "bos_token", json_of_string("<s>"));
        json_set(i == 2 ? other : config, "chat_template", json_of_string(i == 1 ? "other" : source));
        put("tokenizer_config.json", config);
        if (i == 1)
            put_text(files[i], source);
        if (i == 2)
            put(files[i], other);
        else
            json_free(other);
        struct text_tokenizer *tokenizer = load_folder();
        assert_int_equal(text_tokenizer_save(tokenizer, copy), 0);
        text_tokenizer_free(tokenizer);
        tokenizer = text_tokenizer_load(copy);
        assert_string_equal(text_chat_template(tokenizer, 0, &name), source);
        assert_null(text_chat_template(tokenizer, 1, &name));
        text_tokenizer_free(tokenizer);
        if (i > 0)
            remove_file(files[i]);
        directory_remove(copy);
        memory_free(copy);
    }
}

TEST(roles_come_from_either_file)
{
    static const char template[] =
        "\"chat_template\": \"{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ messages[0].content "
        "}}\"";
    char *config = string_format("{\"bos_token\": {\"content\": \"<s>\", \"lstrip\": false}, \"eos_token\": \"</s>\", "
                                 "\"pad_token\": null, %s}",
                                 template);
    put_config(config);
    memory_free(config);
    put_text("special_tokens_map.json", "{\"bos_token\": \"<b>\", \"pad_token\": {\"content\": \"<p>\"}}");
    expect_text(hello, "<b></s><p>hello");
    config =
        string_format("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"added_tokens_decoder\": {}, %s}", template);
    put_config(config);
    memory_free(config);
    expect_text(hello, "<s></s>hello");
    remove_file("special_tokens_map.json");
}

/* ---- What is refused ---- */

static void refused(struct text_tokenizer *tokenizer, const char *words)
{
    assert_null(text_chat_open(tokenizer));
    if (!strstr(error_text(), words))
        fail_msg("%s", error_text());
    text_tokenizer_free(tokenizer);
}

TEST(what_is_not_known_is_refused)
{
    refused(text_tokenizer_load(GOLDEN "/tokenizer/gpt2"), "neither a chat_template");
    refused(chatml_tokenizer("{{ messages"), "tokenizer_config.json");
    put_config("{\"chat_template\": 5}");
    refused(load_folder(), "expected a text, or a list of");
    struct text_tokenizer *tokenizer =
        chatml_tokenizer("{% if messages[0].role == 'narrator' %}{{ raise_exception('no narrator here') }}{% endif %}"
                         "{{ messages[0].content }}");
    struct json *told = parse("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}");
    struct buffer shown = {0};
    put_tokens(&shown, tokenizer, told);
    assert_string_equal(shown.data, "a");
    buffer_release(&shown);
    json_free(told);
    struct chat *chat = text_chat_open(tokenizer);
    struct json *c = parse("{\"messages\": [{\"role\": \"narrator\", \"content\": \"a\"}]}");
    struct chat_request request = request_of(c);
    struct chat_ids ids = {0};
    assert_int_equal(text_chat_encode(&ids, chat, &request), -1);
    assert_non_null(strstr(error_text(), "no narrator here"));
    json_free(c);
    text_chat_close(chat);
    text_tokenizer_free(tokenizer);
}

static void expect_day(const struct text_tokenizer *tokenizer, char *day, const char *began, const char *expected)
{
    static const char record[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "
                                 "\"assistant\", \"content\": \"a\"}]}";
    struct id_list ids = {0};
    struct buffer text = {0};
    prepare_on_day(&ids, json_parse(record, (i64)strlen(record), "record"), expected, day, began);
    assert_int_equal(text_decode(tokenizer, &text, ids.ids, ids.count, false), 0);
    if (!strstr(text.data, expected))
        fail_msg("%s: expected the day %s", text.data, expected);
    buffer_release(&text);
    id_list_release(&ids);
}

/* strftime_now gives the day that is set, or that of the call which began the stage. */
TEST(shards_hold_one_day)
{
    static const char *const none[] = {"2024-2-29", "2023-02-29", "2024-13-01", "2024-02-29 ", "today", "20240229"};
    struct json *specials = json_array();
    json_push(specials, json_of_string("<|im_start|>"));
    json_push(specials, json_of_string("<|im_end|>"));
    struct text_tokenizer *tokenizer =
        tokenizer_of(specials, "{{ '<|im_start|>' + strftime_now('%d %b %Y, %H') }}{% for m in messages %}{{ "
                               "'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}{% if "
                               "add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
    char day[] = "2024-02-29", today[CHAT_DAY], *now;
    for (i64 i = 0; i < COUNT_OF(none); i++) {
        assert_int_equal(text_chat_set_day(tokenizer, none[i]), -1);
        assert_non_null(strstr(error_text(), "expected a day as YYYY-MM-DD"));
    }
    expect_day(tokenizer, day, "2019-05-06", "29 Feb 2024, 12");
    expect_day(tokenizer, NULL, "2019-05-06", "06 May 2019, 12");
    chat_today(today);
    now = string_format("%.4s, 12", today);
    expect_day(tokenizer, NULL, NULL, now);
    memory_free(now);
    json_free(specials);
    text_tokenizer_free(tokenizer);
}

/* Control pieces of a SentencePiece model are never produced from text. */
TEST(marks_that_are_text_are_refused)
{
    char *model = path_join(folder, "tokenizer.model"), *table = path_join(folder, "tokenizer.json");
    struct json *config = json_object();
    json_set(config, "chat_template", json_of_string("<s>{{ messages[0].content }}"));
    unlink(table);
    memory_free(table);
    assert_int_equal(file_copy(model, GOLDEN "/tokenizer/families/sp_llama2.model"), 0);
    put("tokenizer_config.json", config);
    struct text_tokenizer *tokenizer = text_tokenizer_load(folder);
    assert_non_null(tokenizer);
    assert_null(text_chat_open(tokenizer));
    assert_non_null(strstr(error_text(), "is no token to a SentencePiece model alone"));
    text_tokenizer_free(tokenizer);
    memory_free(model);
}

int main(void)
{
    return tests_run(make, clear);
}
