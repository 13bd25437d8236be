/* The prompts that a chat shows, taken from shards of conversations in several chat templates; and sources
 * of fine-tuning that hold none. */
#include "train/taught.h"

#include "core/json.h"
#include "data/prepare/prepare.h"
#include "tests/prepare_fixture.h"
#include "train/pretrain.h"

static const char llama2[] =
    "{% if messages[0]['role'] == 'system' %}{% set system = '<<SYS>>\\n' + messages[0]['content'] "
    "+ '\\n<</SYS>>\\n\\n' %}{% set messages = messages[1:] %}{% else %}{% set system = '' %}"
    "{% endif %}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + (system if "
    "loop.first else '') + m['content'] + ' [/INST]' }}{% else %}{{ ' ' + m['content'] + "
    "'<|endoftext|>' }}{% endif %}{% endfor %}";
static const char without_system[] = "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no') }}"
                                     "{% endif %}{{ m['role'] + ': ' + m['content'] + '<|endoftext|>\\n' }}{% endfor %}"
                                     "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

static const char begins[] = "{{ '<|endoftext|>' }}{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}"
                             "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

/* Shards NAME of these lines, in a template; NULL: ChatML. */
static char *shards_of(const char *name, const char *template, const char *lines)
{
    char *text = string_format("%s/%s-text", directory, name), *data = string_format("%s/%s-data", directory, name);
    char *out = path_join(directory, name), *file = path_join(data, "a.jsonl");
    prepare_tokenizer(text);
    if (template) {
        char *config = path_join(text, "chat_template.jinja");
        succeed(file_replace(config, template, (i64)strlen(template)));
        memory_free(config);
    }
    succeed(directory_make(data));
    succeed(file_replace(file, lines, (i64)strlen(lines)));
    struct prepare_settings settings = prepare_text_settings(data, text);
    prepare_in(&settings, out, NULL, NULL);
    memory_free(text);
    memory_free(data);
    memory_free(file);
    return out;
}

static void expect_taught(const struct source_list *data, const char *expected)
{
    struct buffer text = {0};
    struct json *j = taught_of_shards(data);
    if (!j)
        fail_msg("%s", error_text());
    json_print(&text, j, 0);
    assert_string_equal(text.data, expected);
    json_free(j);
    buffer_release(&text);
}

#define TURN(user, answer)                                                                                             \
    "{\"role\": \"user\", \"content\": \"" user "\"}, {\"role\": \"assistant\", \"content\": \"" answer "\"}"
#define CHAT(user, answer) "{\"messages\": [" TURN(user, answer) "]}\n"
#define ORDERED(user, answer)                                                                                          \
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, " TURN(user, answer) "]}\n"

/* Frequent prompts come first, then those that begin like many others; no word begins two. What spans lines, reads as
 * a command of the chat or is not the first message is left out. */
TEST(prompts_are_first_messages_of_users)
{
    static const char lines[] = CHAT("sort 312", "123") CHAT("sort 11", "11") CHAT("sort 4", "4") CHAT("Hello!", "Hi.")
        CHAT("who are you", "A model.") CHAT("Hello!", "Hi.") CHAT("hello", "Hi.") CHAT("two\\nlines", "No.")
            CHAT("/image", "No.") "{\"messages\": [" TURN("bye", "Bye.") ", " TURN("later", "Bye.") "]}\n" CHAT(
                "Who is it?", "I.") CHAT("zebra", "A horse.");
    char *shards = shards_of("plain", NULL, lines);
    expect_taught(&(struct source_list){.all = shards},
                  "{\"conversations\":12,\"prompts\":[\"Hello!\",\"sort 4\",\"Who is it?\",\"bye\"],\"media\":[]}");
    memory_free(shards);
}

/* The words alone are shown, whatever stands around them. */
TEST(templates_are_taken_off)
{
    static const struct {
        const char *name, *template, *lines, *expected;
    } cases[] = {
        {"chatml", NULL, ORDERED("sort 312", "123") CHAT("hello", "Hi."), "\"hello\",\"sort 312\""},
        {"llama", llama2, ORDERED("sort 312", "123") CHAT("hello", "Hi."), "\"hello\""},
        {"begins", begins, ORDERED("sort 312", "123") CHAT("hello", "Hi."), "\"hello\",\"sort 312\""},
        {"refuses", without_system, CHAT("sort 312", "123") CHAT("hello", "Hi."), "\"hello\",\"sort 312\""},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *shards = shards_of(cases[i].name, cases[i].template, cases[i].lines);
        char *expected = string_format("{\"conversations\":2,\"prompts\":[%s],\"media\":[]}", cases[i].expected);
        expect_taught(&(struct source_list){.all = shards}, expected);
        memory_free(shards);
        memory_free(expected);
    }
}

/* A small source is shown beside a large one. */
TEST(each_source_has_its_turn)
{
    char *large = shards_of("large", NULL,
                            CHAT("a", "1") CHAT("a", "1") CHAT("b", "1") CHAT("b", "1") CHAT("c", "1") CHAT("d", "1")
                                CHAT("e", "1"));
    char *small = shards_of("small", NULL, CHAT("z", "1"));
    char *all = string_format("%s\n%s", large, small);
    struct data_source sources[] = {{.name = "large", .data = large}, {.name = "small", .data = small}};
    expect_taught(&(struct source_list){all, sources, 2},
                  "{\"conversations\":8,\"prompts\":[\"a\",\"z\",\"b\",\"c\"],\"media\":[]}");
    memory_free(large);
    memory_free(small);
    memory_free(all);
}

static void expect_absent(const struct source_list *data, const char *expected)
{
    struct pretrain_settings s = {.data = *data};
    char *reason = sft_stage_absent(&s);
    assert_string_equal(reason ? reason : "", expected);
    memory_free(reason);
}

/* A share of each step cannot come from a source that has none, so the stage is skipped and says which. */
TEST(a_source_without_conversations_is_named)
{
    char *texts = shards_of("texts", NULL, "{\"text\": \"some words\"}\n"),
         *chats = shards_of("chats", NULL, CHAT("a", "1")), *all = string_format("%s\n%s", texts, chats),
         *alone = string_format("%s holds no conversations", texts);
    struct data_source sources[] = {{.name = "task", .data = texts}, {.name = "talk", .data = chats}};
    expect_absent(&(struct source_list){.all = texts}, alone);
    expect_absent(&(struct source_list){.all = chats}, "");
    expect_absent(&(struct source_list){.all = all}, "");
    expect_absent(&(struct source_list){all, sources, 2}, "source task holds no conversations");
    expect_absent(&(struct source_list){all, sources + 1, 1}, "");
    memory_free(texts);
    memory_free(chats);
    memory_free(all);
    memory_free(alone);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
