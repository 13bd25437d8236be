/* Prompts from files, the verifiers that they name, and their order. */
#include "core/settings.h"
#include "rl/grader.h"

#include <string.h>
#include "tests/cases.h"
#include "tests/prompt_fixture.h"

static enum verifier dispatched(const char *source, const char *ability, const char *style)
{
    enum verifier out;
    struct task task = {.data_source = source, .ability = ability, .style = style, .origin = "here"};
    return verifier_of(&out, &task) ? VERIFY_AUTO : out;
}

TEST(test_dispatch)
{
    assert_int_equal(dispatched("weft/sort", "sorting", "rule"), VERIFY_EXACT);
    assert_int_equal(dispatched("openai/gsm8k", "math", "rule"), VERIFY_GSM8K);
    assert_int_equal(dispatched("lighteval/MATH", "", "rule"), VERIFY_MATH);
    assert_int_equal(dispatched("mine", "math", "rule"), VERIFY_MATH);
    assert_int_equal(dispatched("openai/gsm8k", "math", "regex"), VERIFY_REGEX);
    assert_int_equal(dispatched("mine", "asr", ""), VERIFY_WER);
    assert_int_equal(dispatched("mine", "", "program"), VERIFY_PROGRAM);
    assert_int_equal(dispatched("mine", "cooking", "rule"), VERIFY_AUTO);
    assert_non_null(strstr(error_text(), "cooking"));
}

TEST(test_prompts)
{
    struct prompts p;
    struct buffer text = {0};
    assert_int_equal(load(&p, "a.jsonl",
                          "{\"data_source\":\"weft/sort\",\"prompt\":[{\"role\":\"system\",\"content\":\"be brief\"},"
                          "{\"role\":\"user\",\"content\":\"<|im_end|>\"}],\"reward_model\":{\"ground_truth\":72}}\n\n"
                          "{\"prompt\":\"hi\",\"extra_info\":{\"think\":\"well <|im_end|>\",\"pass\":0.5}}"),
                     0);
    assert_int_equal(p.count, 2);
    assert_string_equal(p.list[0].ground_truth, "72");
    assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, false), 0);
    assert_string_equal(text.data, "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n<|im_end|><|im_end|>\n"
                                   "<|im_start|>assistant\n");
    buffer_clear(&text);
    assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, true), 0);
    /* the content's marker is not a special token */
    assert_string_equal(text.data, "system\nbe brief\nuser\n<|im_end|>\nassistant\n");
    buffer_clear(&text);
    assert_int_equal(text_decode(tokenizer, &text, p.list[1].think.ids, p.list[1].think.count, false), 0);
    assert_string_equal(text.data, "<think>\nwell <|im_end|>");
    for (i64 i = 0; i < p.list[1].think.count; i++)
        assert_false(text_token_is_special(tokenizer, p.list[1].think.ids[i]));
    assert_true(p.list[1].pass == 0.5);
    assert_true(p.list[0].pass < 0); /* not known */
    buffer_release(&text);
    prompts_release(&p);
}

/* Contents that are lists of texts, as OpenAI's messages have them. */
TEST(contents_may_be_lists_of_texts)
{
    struct prompts p;
    struct buffer text = {0};
    assert_int_equal(
        load(&p, "parts.jsonl",
             "{\"prompt\":[{\"role\":\"system\",\"content\":[\"be \",{\"text\":\"brief\"}]},{\"role\":\"user\","
             "\"content\":[{\"type\":\"text\",\"text\":\"sort 31\"}]}],\"reward_model\":{\"ground_truth\":\"13\"}}"),
        0);
    assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, false), 0);
    assert_string_equal(text.data, "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nsort 31<|im_end|>\n"
                                   "<|im_start|>assistant\n");
    buffer_release(&text);
    prompts_release(&p);
    assert_int_equal(load(&p, "nan.json", "[{\"prompt\": \"sort 31\", \"score\": NaN}]"), 0);
    prompts_release(&p);
    assert_int_equal(load(&p, "media.jsonl",
                          "{\"prompt\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"image\":\"a.png\"}]}]}"),
                     -1);
    assert_non_null(strstr(error_text(), "part 1 has the type \"image\": prompts are text only"));
}

TEST(prompts_may_stand_in_a_table)
{
    struct prompts p;
    struct buffer text = {0};
    assert_int_equal(prompts_load(&p, GOLDEN "/tables/forms/verl.parquet", tokenizer, NULL, 0), 0);
    assert_int_equal(p.count, 1);
    assert_string_equal(p.list[0].data_source, "openai/gsm8k");
    assert_string_equal(p.list[0].ground_truth, "6");
    assert_string_equal(p.list[0].style, "rule");
    assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, false), 0);
    assert_string_equal(text.data, "<|im_start|>user\n2*3?<|im_end|>\n<|im_start|>assistant\n");
    buffer_release(&text);
    prompts_release(&p);
    assert_int_equal(prompts_load(&p, GOLDEN "/tables/forms/text.parquet", tokenizer, NULL, 0), -1);
    assert_non_null(strstr(error_text(), "text.parquet:1: key prompt"));
}

/* GSM8K's own format: the answer stands behind the last mark. */
TEST(answers_of_gsm8k_stand_behind_the_last_mark)
{
    struct prompts p;
    assert_int_equal(load(&p, "g.jsonl", "{\"question\":\"2*3?\",\"answer\":\"#### 5 is wrong\\n2*3=6\\n#### 6\"}"), 0);
    assert_string_equal(p.list[0].ground_truth, "6");
    assert_string_equal(p.list[0].data_source, "openai/gsm8k");
    prompts_release(&p);
}

#define PROMPT(text, truth) "{\"prompt\":\"" text "\",\"reward_model\":{\"ground_truth\":\"" truth "\"}}\n"

TEST(held_out_prompts_are_compared_with_those_of_training)
{
    struct prompts train, held_out;
    const char *truth;
    assert_int_equal(
        load(&train, "train.jsonl", PROMPT("one", "a") PROMPT("two", "b") PROMPT("three", "b") PROMPT("four", "c")), 0);
    assert_int_equal(load(&held_out, "held.jsonl",
                          PROMPT("five", "b") PROMPT("three", "z") PROMPT("one", "a") PROMPT("thre", "y")
                              PROMPT("three", "b")),
                     0);
    assert_int_equal(prompts_in_common(&held_out, &train), 3); /* whatever their truth */
    assert_int_equal(prompts_in_common(&train, &held_out), 2);
    assert_float_equal(prompts_constant(&held_out, &train, &truth), 0.4, 1e-12);
    assert_string_equal(truth, "b");
    prompts_release(&train);
    prompts_release(&held_out);
}

/* Puts a template beside a copy of the tokenizer, and loads the prompt with it. */
static void expect_prompt(const char *template, const char *line, const char *prompt, const char *think)
{
    char *copy = string_format("/dev/shm/weft-templates-%ld", (long)getpid());
    char *config = path_join(copy, "tokenizer_config.json"), *path = path_join(copy, "prompts.jsonl");
    struct json *settings = json_object();
    struct prompts p;
    struct buffer text = {0}, thoughts = {0};
    assert_int_equal(text_tokenizer_save(tokenizer, copy), 0);
    json_set(settings, "chat_template", json_of_string(template));
    assert_int_equal(json_save(config, settings), 0);
    assert_int_equal(file_replace(path, line, (i64)strlen(line)), 0);
    struct text_tokenizer *own = text_tokenizer_load(copy);
    assert_non_null(own);
    if (prompts_load(&p, path, own, NULL, 0))
        fail_msg("%s", error_text());
    assert_int_equal(text_decode(own, &text, p.list[0].ids.ids, p.list[0].ids.count, false), 0);
    assert_int_equal(text_decode(own, &thoughts, p.list[0].think.ids, p.list[0].think.count, false), 0);
    assert_string_equal(text.data, prompt);
    assert_string_equal(thoughts.data ? thoughts.data : "", think);
    prompts_release(&p);
    text_tokenizer_free(own);
    buffer_release(&text);
    buffer_release(&thoughts);
    assert_int_equal(directory_remove(copy), 0);
    json_free(settings);
    memory_free(path);
    memory_free(config);
    memory_free(copy);
}

TEST(templates_get_what_prompts_have)
{
    static const char template[] =
        "{% for t in tools %}{{ t.name }} {% endfor %}{{ mood }}{% for m in messages %}"
        "[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
        "{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]<think>\n{% endif %}";
    expect_prompt(template,
                  "{\"prompt\": [{\"role\": \"developer\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
                  "null, \"tool_calls\": [{\"function\": {\"name\": \"g\"}}]}, {\"role\": \"tool\", \"content\": "
                  "[{\"type\": \"text\", \"text\": \"b\"}, \"c\"]}], \"tools\": [{\"name\": \"f\"}], "
                  "\"chat_template_kwargs\": \"{\\\"mood\\\": \\\"glad\\\"}\", \"reward_model\": {\"ground_truth\": "
                  "\"1\"}, \"extra_info\": {\"think\": \"hm\"}}\n",
                  "f glad[developer]a[assistant]g[tool]bc[assistant]<think>\n", "hm");
    expect_prompt(
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{\"prompt\": \"a\", \"reward_model\": {\"ground_truth\": \"1\"}, \"extra_info\": {\"think\": \"hm\"}}\n", "a",
        "<think>\nhm");
}

TEST(questions_are_prompts_as_published)
{
    static const char *const names[] = {"qa.parquet", "qa.jsonl",           "qa.json",
                                        "qa.csv",     "packed_qa.jsonl.gz", "packed_qa.json.xz"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct prompts p;
        enum verifier verifier;
        struct buffer text = {0};
        char *path = string_format("%s/tables/forms/%s", GOLDEN, names[i]);
        assert_int_equal(prompts_load(&p, path, tokenizer, NULL, 0), 0);
        assert_int_equal(p.count, 2);
        assert_string_equal(p.list[0].ground_truth, "2");
        assert_int_equal(verifier_of(&verifier, &p.list[1]), 0);
        assert_int_equal(verifier, VERIFY_GSM8K);
        assert_int_equal(text_decode(tokenizer, &text, p.list[1].ids.ids, p.list[1].ids.count, false), 0);
        assert_string_equal(text.data, "<|im_start|>user\n2*3?<|im_end|>\n<|im_start|>assistant\n");
        buffer_release(&text);
        prompts_release(&p);
        memory_free(path);
    }
}

/* A context, choices, earlier turns and a system message are asked; other keys are counted. */
TEST(prompts_are_asked_or_refused)
{
    EACH_CASE (c, "prompts.jsonl") {
        struct prompts p;
        struct buffer text = {0};
        const char *message = json_string(json_get(c->row, "message"), NULL);
        if (load(&p, case_text(c, "file"), case_text(c, "text"))) {
            if (!message || !strstr(error_text(), message))
                case_wrong(c, "%s", error_text());
            continue;
        }
        if (message) {
            case_wrong(c, "it is read");
            continue;
        }
        char *asked = string_format("%s\nassistant\n", case_text(c, "asked"));
        assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, true), 0);
        if (strcmp(text.data, asked) != 0)
            case_wrong(c, "asked is %s", text.data);
        case_expect(c, "truth", p.list[0].ground_truth);
        if (p.notes.count != json_integer(json_get(c->row, "notes"), 0))
            case_wrong(c, "%lld notes", (long long)p.notes.count);
        memory_free(asked);
        buffer_release(&text);
        prompts_release(&p);
    }
}

#define TRUTH "\"reward_model\": {\"style\": \"exact\", \"ground_truth\": \"1\"}}"

/* Marks leave prompts out; cells of tables are JSON; a list of one truth is this one. */
TEST(prompts_are_left_out_or_read_whole)
{
    struct prompts p;
    assert_int_equal(load(&p, "m.jsonl",
                          "{\"prompt\": \"a\", \"weight\": 0, " TRUTH "\n{\"prompt\": \"b\", \"ignore\": true, " TRUTH
                          "\n{\"prompt\": \"c\", \"train\": false, " TRUTH "\n{\"prompt\": \"d\", \"label\": 0, " TRUTH
                          "\n{\"prompt\": \"e\", \"reward_model\": {\"style\": \"math\", \"ground_truth\": [\"34\"]}}"),
                     0);
    assert_int_equal(p.count, 2);
    assert_string_equal(p.list[1].ground_truth, "34");
    prompts_release(&p);
    assert_int_equal(load(&p, "m.csv",
                          "prompt,reward_model\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"q\"\"}]\",\"{"
                          "\"\"ground_truth\"\": \"\"7\"\"}\"\n"),
                     0);
    struct buffer text = {0};
    assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, false), 0);
    assert_string_equal(text.data, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
    assert_string_equal(p.list[0].ground_truth, "7");
    buffer_release(&text);
    prompts_release(&p);
    assert_int_equal(load(&p, "i.jsonl",
                          "{\"prompt\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"q\", "
                          "\"image\": \"a.png\"}]}], " TRUTH),
                     -1);
    assert_non_null(strstr(error_text(), "prompts are text only"));
}

TEST(test_order_has_each_prompt_once_an_epoch)
{
    struct prompt_order order;
    i64 seen[7] = {0}, moved = 0;
    prompt_order_init(&order, 7, 3);
    for (i64 i = 0; i < 21; i++)
        seen[prompt_order_at(&order, i)]++;
    for (i64 i = 0; i < 7; i++) {
        assert_int_equal(seen[i], 3);
        moved += prompt_order_at(&order, i) != prompt_order_at(&order, i + 7);
    }
    assert_true(moved > 0);
    prompt_order_release(&order);
}

int main(void)
{
    return tests_run(open_tokenizer, close_tokenizer);
}
