/* Conversations with a model: `weft chat` from a pipe, `weft generate --messages` and `weft eval`. */
#include "tests/chat_command_fixture.h"

/* ---- Running it ---- */

static void expect_one_line(void)
{
    const char *end = strchr(complained.data, '\n');
    if (!end || end[1])
        fail_msg("expected one line: %s", complained.data);
}

/* A text of the random model, which also says 0 bytes: they become spaces. memory_free */
static char *without_zeros(const char *text, i64 length)
{
    char *out = memory_alloc(length + 1);
    for (i64 i = 0; i < length; i++)
        out[i] = text[i] ? text[i] : ' ';
    return out;
}

/* What the last call printed, without the line feed at its end. */
static char *answer(void)
{
    assert_true(said.length > 0 && said.data[said.length - 1] == '\n');
    return without_zeros(said.data, said.length - 1);
}

static char *text_of(const struct json *value)
{
    return without_zeros(json_string(value, ""), json_string_length(value));
}

/* The answer of `weft chat` to lines of input. */
static char *chat(const char *input)
{
    expect(WEFT(input, "chat", model, "--greedy", "--max-tokens", "12"), 0);
    return answer();
}

static void assert_text(const struct json *value, const char *expected)
{
    char *text = text_of(value);
    assert_string_equal(text, expected);
    memory_free(text);
}

static struct json *message(const char *role, const char *content)
{
    struct json *j = json_object();
    json_set(j, "role", json_of_string(role));
    json_set(j, "content", json_of_string(content));
    return j;
}

/* ---- Answers ---- */

/* What the model says greedily behind these ids, in which control tokens are spelled out. */
static char *continued(const char *layout)
{
    struct generator generator;
    struct prompt prompt;
    struct id_list ids = {0};
    struct buffer text = {0};
    struct answer said_of = {0};
    struct generator_options options = {.sampling = {0, 1, 0, {1, RNG_SAMPLING}}, .slots = 1};
    succeed(generator_open(&generator, &device, &(struct model_source){.directory = model, .dtype = DTYPE_F32}));
    prompt_init(&prompt, MODALITY_TEXT);
    succeed(text_encode(generator.text, &ids, layout, (i64)strlen(layout), NULL));
    succeed(prompt_ids(&prompt, ids.ids, ids.count) || prompt_ask(&prompt, &generator, NULL, 12));
    struct generate_request request = prompt_request(&prompt, 0, 1);
    succeed(generator_run(&said_of, &generator, &request, 1, &options));
    succeed(answer_text(&text, &generator, &prompt, &said_of));
    char *out = without_zeros(text.data, text.length);
    buffer_release(&text);
    id_list_release(&ids);
    answer_release(&said_of);
    prompt_release(&prompt);
    generator_close(&generator);
    return out;
}

/* The oracle is the same model on the layout written out by hand. It does not end with a message. */
TEST(the_whole_conversation_is_the_prompt)
{
    char *first = chat("2 + 2\n"), *both = chat("2 + 2\nand now 54\n");
    assert_int_equal(strlen(said.data), said.length); /* an argument has no 0 byte */
    char *prompt = string_format("<|im_start|>user\n2 + 2<|im_end|>\n<|im_start|>assistant\n%s<|im_end|>\n"
                                 "<|im_start|>user\nand now 54<|im_end|>\n<|im_start|>assistant\n",
                                 first);
    assert_int_equal(strncmp(both, first, strlen(first)), 0);
    const char *second = both + strlen(first) + 1;
    char *shown = continued(prompt);
    if (strncmp(shown, second, strlen(second)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", shown, second);
    memory_free(shown);
    char *alone = chat("and now 54\n"); /* so the first turn mattered */
    assert_string_not_equal(alone, second);
    char *again = chat("2 + 2\n/reset\nand now 54\n");
    assert_string_equal(again + strlen(first) + 1, alone);
    memory_free(first);
    memory_free(both);
    memory_free(prompt);
    memory_free(alone);
    memory_free(again);
}

/* Prompts whose ground truth is what the chat answers get the full reward of eval. The answers to
 * these have no token of a shape: this random model would say some, and only eval allows them. */
TEST(answers_score_as_eval_says)
{
    static const char *const asked[] = {"sort 312", "how many?", "a house", "2 + 2",   "words",
                                        "one two",  "/x",        "/ hi",    "tell me", "go"};
    struct buffer lines = {0};
    for (i64 i = 0; i < COUNT_OF(asked); i++) {
        char *input = string_format("%s%s\n", asked[i][0] == '/' ? "/" : "", asked[i]);
        struct json *j = json_object(), *list = json_array(), *reward = json_object();
        json_push(list, message("user", asked[i]));
        memory_free(chat(input));
        json_set(reward, "ground_truth", json_of_string(said.data)); /* eval too reads to a 0 byte */
        json_set(j, "prompt", list);
        json_set(j, "reward_model", reward);
        json_print(&lines, j, 0);
        buffer_append(&lines, "\n", 1);
        json_free(j);
        memory_free(input);
    }
    memory_free(put_file("prompts.jsonl", lines.data, lines.length));
    expect(WEFT("", "eval", model, "--data", "prompts.jsonl", "--verifier", "exact", "--max-tokens", "12", "--json"),
           0);
    struct json *result = json_parse(said.data, said.length, "eval");
    assert_true(json_number(json_get(result, "reward"), 0) == 1);
    assert_int_equal(json_integer(json_get(result, "prompts"), 0), COUNT_OF(asked));
    json_free(result);
    buffer_release(&lines);
}

/* The options of the stage `eval`, with the same names, values and defaults. */
TEST(eval_runs_a_program_as_the_stage_does)
{
    static const char prompt[] = "{\"prompt\": [{\"role\": \"user\", \"content\": \"sort 21\"}], "
                                 "\"reward_model\": {\"style\": \"program\", \"ground_truth\": \"12\"}}\n",
                      judge[] = "#!/bin/sh\necho $1 > touched\nwhile read -r line; do echo '{\"score\": 0.5}'; done\n";
    memory_free(put_file("judged.jsonl", prompt, (i64)sizeof prompt - 1));
    memory_free(put_file("judge.sh", judge, (i64)sizeof judge - 1));
    assert_int_equal(chmod(path_of("judge.sh"), 0755), 0);
#define JUDGED "eval", model, "--data", "judged.jsonl", "--max-tokens", "4", "--program", "[./judge.sh, word]"
    expect(WEFT("", JUDGED, "--json"), 0);
    assert_non_null(strstr(said.data, "\"reward\":0.5"));
    assert_true(file_exists(path_of("touched")));
    succeed(directory_remove(path_of("touched")));
    int status = WEFT("", JUDGED, "--sandbox", "on", "--json");
    if (status) { /* the same words that the stage has on a system without user namespaces */
        expect_complaint("sandbox: off");
    } else {
        assert_non_null(strstr(said.data, "\"reward\":0.5"));
        assert_false(file_exists(path_of("touched")));
    }
    expect(WEFT("", JUDGED, "--program-seconds", "x"), 2);
    expect_complaint("weft eval: program_seconds: expected a number");
    expect(WEFT("", JUDGED, "--sandbox", "yes"), 2);
    expect_complaint("expected one of off|on");
#undef JUDGED
}

/* ---- Files of messages ---- */

TEST(a_saved_conversation_goes_on)
{
    char *both = chat("/image picture.png\nwhat is it?\n/audio noise.wav\n/video film.mp4\nand these?\n"
                      "/save saved.json\n");
    expect_complaint("wrote saved.json, 4 messages");
    struct json *all = json_load(path_of("saved.json")), *list = json_get(all, "messages");
    assert_int_equal(json_count(list), 4);
    const struct json *content = json_get(json_at(list, 2), "content");
    assert_int_equal(json_count(content), 3);
    char *film = path_of("film.mp4");
    assert_string_equal(json_string(json_get(json_at(content, 0), "type"), ""), "audio");
    assert_string_equal(json_string(json_get(json_at(content, 1), "video"), ""), film);
    assert_string_equal(json_string(json_get(json_at(content, 2), "text"), ""), "and these?");
    /* without the last answer, it is answered once more */
    struct json *cut = json_array();
    for (i64 i = 0; i < 3; i++)
        json_push(cut, json_copy(json_at(list, i)));
    char *last = text_of(json_get(json_at(list, 3), "content"));
    assert_true(strlen(both) > strlen(last));
    assert_string_equal(both + strlen(both) - strlen(last), last);
    struct buffer text = {0};
    json_print(&text, cut, 2);
    memory_free(put_file("cut.json", text.data, text.length));
    expect(WEFT("", "generate", model, "--messages", "cut.json", "--greedy", "--max-tokens", "12"), 0);
    char *again = answer();
    assert_string_equal(again, last);
    memory_free(again);
    memory_free(last);
    buffer_release(&text);
    json_free(cut);
    json_free(all);
    memory_free(both);
}

/* /save keeps files and links, wherever they lead; devices are written. */
TEST(saving_replaces_only_when_asked)
{
    memory_free(put_text("notes.json", "mine"));
    succeed(directory_remove(path_of("link.json")));
    succeed(directory_remove(path_of("gone.json")));
    assert_int_equal(symlink("notes.json", path_of("link.json")), 0);
    assert_int_equal(symlink("nowhere.json", path_of("gone.json")), 0);
    static const char *const names[] = {"notes.json", "link.json", "gone.json"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *input = string_format("a\n/save %s\nb\n", names[i]);
        struct buffer kept = {0};
        expect(WEFT(input, "chat", model, "--greedy", "--max-tokens", "1"), 1);
        char *says =
            string_format("line 2: %s exists: choose another name, or replace it by /save! %s", names[i], names[i]);
        expect_complaint(says);
        succeed(file_read(&kept, path_of("notes.json")));
        assert_int_equal(kept.length, 4);
        assert_false(file_exists(path_of("nowhere.json")));
        buffer_release(&kept);
        memory_free(says);
        memory_free(input);
    }
    expect(WEFT("a\n/save! notes.json\n/save /dev/null\n", "chat", model, "--greedy", "--max-tokens", "1"), 0);
    expect_complaint("wrote notes.json, 2 messages");
    struct json *all = json_load(path_of("notes.json"));
    assert_int_equal(json_count(json_get(all, "messages")), 2);
    json_free(all);
}

TEST(lines_of_messages_get_lines_of_answers)
{
    static const char lines[] =
        "{\"id\":7,\"messages\":[{\"role\":\"user\",\"content\":\"sort 312\"}]}\n \t\r\n"
        "[{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":\"user\",\"content\":[\"so\","
        "{\"type\":\"image\",\"image\":\"picture.png\"}]}]\n"
        "{\"conversations\":[{\"from\":\"human\",\"value\":\"sort 312\"}]}\n";
    char *one = chat("sort 312\n");
    expect(WEFT(lines, "generate", model, "--messages", "-", "--greedy", "--max-tokens", "12"), 0);
    const char *at = said.data;
    for (i64 i = 0; i < 3; i++) {
        const char *end = strchr(at, '\n');
        assert_non_null(end);
        struct json *j = json_parse(at, end - at, "line"), *list = json_get(j, "messages");
        assert_int_equal(json_count(list), i == 1 ? 3 : 2);
        const struct json *last = json_at(list, json_count(list) - 1);
        assert_string_equal(json_string(json_get(last, "role"), ""), "assistant");
        if (i != 1)
            assert_text(json_get(last, "content"), one);
        assert_int_equal(json_integer(json_get(j, "id"), 0), i == 0 ? 7 : 0);
        json_free(j);
        at = end + 1;
    }
    assert_string_equal(at, "");
    /* into a file */
    expect(WEFT(lines, "generate", model, "--messages", "-", "--greedy", "-o", "out.jsonl"), 0);
    expect_complaint("wrote out.jsonl, 3 conversations with their answers");
    assert_int_equal(said.length, 0);
    memory_free(one);
}

/* More conversations than are answered at a time, all alike: each has draws of its own. */
TEST(each_conversation_is_drawn_for_itself)
{
    enum { COUNT = 2 * GENERATE_SLOTS };
    struct buffer lines = {0};
    char *answers[COUNT];
    for (i64 i = 0; i < COUNT; i++)
        buffer_printf(&lines, "{\"messages\":[{\"role\":\"user\",\"content\":\"sort 312\"}]}\n");
    expect(WEFT(lines.data, "generate", model, "--messages", "-", "--max-tokens", "8"), 0);
    const char *at = said.data;
    for (i64 i = 0; i < COUNT; i++) {
        const char *end = strchr(at, '\n');
        assert_non_null(end);
        struct json *j = json_parse(at, end - at, "line");
        answers[i] = text_of(json_get(json_at(json_get(j, "messages"), 1), "content"));
        for (i64 k = 0; k < i; k++)
            if (strlen(answers[i]) > 4 && strcmp(answers[i], answers[k]) == 0)
                fail_msg("answers %lld and %lld are the same: %s", (long long)k, (long long)i, answers[i]);
        json_free(j);
        at = end + 1;
    }
    for (i64 i = 0; i < COUNT; i++)
        memory_free(answers[i]);
    buffer_release(&lines);
}

#define ASK(content) "{\"messages\":[{\"role\":\"user\",\"content\":" content "}]}"
TEST(messages_are_a_file_of_their_own)
{
    memory_free(put_text("m.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"));
    expect(WEFT("", "generate", model, "--messages", "no.jsonl"), 1);
    expect_complaint("no.jsonl");
    expect(WEFT("", "generate", model, "--messages", "m.jsonl", "--prompt", "a"), 2);
    expect(WEFT("", "generate", model, "--messages", "m.jsonl", "--to", "image", "-o", "a.png"), 2);
    expect_complaint("an answer to messages is text");
}

/* ---- Input from a pipe ---- */

TEST(bad_lines_end_a_pipe_with_one_line)
{
    static const struct {
        const char *input, *says;
        int answers; /* lines on stdout */
    } rows[] = {
        {"a\n/image no.png\nb\n", "line 2: no.png: cannot be opened", 1},
        {"/image stdin\nb\n", "line 1: ", 0},
        {"/image film.mp4.png\nb\n", "line 1: film.mp4.png: ", 0},
        {"/imag picture.png\n", "line 1: /imag: there is no such command, did you mean /image?", 0},
        {"/image\n", "line 1: /image needs a FILE", 0},
        {"/reset now\n", "line 1: /reset takes no argument", 0},
        {"/save x.json\n", "line 1: /save x.json: nothing was said yet", 0},
        {"a\n/save no/such/x.json\n", "line 2: no/such/x.json", 1},
        {"a\nb\xff\n", "line 2: byte 1 of a message is not UTF-8", 1},
    };
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        expect(WEFT(rows[i].input, "chat", model, "--greedy", "--max-tokens", "1"), 1);
        expect_complaint(rows[i].says);
        expect_one_line();
        i64 lines = 0;
        for (i64 k = 0; k < said.length; k++)
            lines += said.data[k] == '\n';
        assert_true(rows[i].answers ? lines >= rows[i].answers : said.length == 0);
        assert_false(file_exists(path_of("x.json")));
    }
    expect(WEFT("\n \t\na\n", "chat", model, "--greedy", "--max-tokens", "1"), 0); /* blank lines are left out */
    expect_complaint("line 1: an empty line is no message");
    expect_complaint("line 2: an empty line is no message");
    assert_true(said.length > 0);
    expect(WEFT("a\n/exit\n/nothing\n", "chat", model, "--max-tokens", "1"), 0);
    expect(WEFT("a\n/quit\n/nothing\n", "chat", model, "--max-tokens", "1"), 0);
    assert_int_equal(complained.length, 0);
    expect(WEFT("", "chat", model), 0);
    assert_int_equal(said.length, 0);
}

/* Fine-tuning on conversations leaves the end of a message in the config; that they were among the samples of
 * pre-training is another thing. */
TEST(a_model_that_was_not_fine_tuned_is_named)
{
    static const char seen[] = "{\"end\": [{\"stream\": \"chat\"}]}";
    char *path = path_join(model, "heldout.json");
    for (int i = 0; i < 3; i++) {
        set_ends(i == 2);
        succeed(directory_remove(path));
        if (i > 0)
            succeed(file_replace(path, seen, (i64)strlen(seen)));
        expect(WEFT("a\n", "chat", model, "--greedy", "--max-tokens", "1"), 0);
        if (i < 2) {
            expect_complaint("never to have been fine-tuned on chats");
            expect_one_line();
        } else {
            assert_int_equal(complained.length, 0);
        }
    }
    succeed(directory_remove(path));
    memory_free(path);
}

/* Control characters of the data do not reach the terminal. */
TEST(a_chat_begins_with_what_was_taught)
{
    static const char taught[] =
        "{\"conversations\": 9, \"prompts\": [\"sort 312\", \"a\\u001bb\"], \"media\": [\"image\"]}";
    char *path = path_join(model, TAUGHT_FILE);
    succeed(file_replace(path, taught, (i64)strlen(taught)));
    expect(WEFT("a\n", "chat", model, "--greedy", "--max-tokens", "1"), 0);
    expect_complaint("taught:  \"sort 312\", \"a\\u001bb\", /image FILE\n");
    expect_one_line();
    succeed(file_replace(path, "{", 1));
    expect(WEFT("a\n", "chat", model, "--greedy", "--max-tokens", "1"), 0);
    expect_complaint("what the model was taught is unknown");
    expect_one_line();
    succeed(directory_remove(path));
    memory_free(path);
}

/* The draws are those of a temperature of 0.7, unless another is given. */
TEST(a_chat_draws_at_seven_tenths)
{
    expect(WEFT("tell me\n", "chat", model, "--max-tokens", "24"), 0);
    char *usual = answer();
    expect(WEFT("tell me\n", "chat", model, "--max-tokens", "24", "--temperature", "0.7"), 0);
    char *same = answer();
    expect(WEFT("tell me\n", "chat", model, "--max-tokens", "24", "--temperature", "1"), 0);
    char *other = answer();
    assert_string_equal(usual, same);
    assert_string_not_equal(usual, other);
    memory_free(usual);
    memory_free(same);
    memory_free(other);
}

TEST(output_that_nobody_reads_ends_quietly)
{
    int in[2], out[2];
    assert_true(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    close(out[0]);
    assert_int_equal(write(in[1], "a\nb\n", 4), 4);
    close(in[1]);
    char *words[] = {"weft", "chat", model, "--greedy", "--max-tokens", "2", NULL};
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0)
            _exit(99);
        open_as(2, path_of("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        weft_become(words);
    }
    close(in[0]);
    close(out[1]);
    int status = end_of(child);
    succeed(file_read(&complained, path_of("stderr")));
    buffer_append(&complained, "", 1);
    expect(status, 128 + SIGPIPE);
    assert_string_equal(complained.data, "");
}

TEST(variables_reach_the_template)
{
    static const char moody[] =
        "{\"chat_template\": \"{% if mood != 'glad' %}{{ raise_exception('no mood') }}{% endif %}"
        "{{ messages[0].content }}\"}";
    struct buffer config = {0};
    char *path = path_join(model, "tokenizer_config.json");
    succeed(file_read(&config, path));
    succeed(file_replace(path, moody, sizeof moody - 1));
    expect(WEFT("a\n", "chat", model), 1);
    expect_complaint("no mood");
    expect(WEFT("a\n", "chat", model, "--variables", "{\"mood\": \"glad\"}"), 0);
    expect(WEFT("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": {\"mood\": "
                "\"glad\"}}\n",
                "generate", model, "--messages", "-"),
           0);
    expect(WEFT("a\n", "chat", model, "--variables", "[1]"), 2);
    expect_complaint("--variables: expected an object");
    succeed(file_replace(path, config.data, config.length));
    buffer_release(&config);
    memory_free(path);
}

TEST(a_chat_template_that_is_no_program_is_refused)
{
    struct buffer config = {0};
    char *path = path_join(model, "tokenizer_config.json");
    succeed(file_read(&config, path));
    static const char unfinished[] = "{\"chat_template\": \"{{ unknown\"}",
                      silent[] = "{\"chat_template\": \"{{ unknown }}\"}";
    succeed(file_replace(path, unfinished, sizeof unfinished - 1));
    expect(WEFT("a\n", "chat", model), 1);
    expect_complaint("tokenizer_config.json");
    expect_one_line();
    expect(WEFT(ASK("\"a\""), "generate", model, "--messages", "-"), 1);
    expect_one_line();
    succeed(file_replace(path, silent, sizeof silent - 1));
    expect(WEFT(ASK("\"a\""), "generate", model, "--messages", "-"), 1);
    expect_complaint("its chat template writes nothing");
    expect_one_line();
    succeed(file_replace(path, config.data, config.length));
    buffer_release(&config);
    memory_free(path);
}

/* ---- A conversation in the program ---- */

static void open_conversation(struct conversation *c, struct generator *generator)
{
    succeed(generator_open(generator, &device, &(struct model_source){.directory = model, .dtype = DTYPE_F32}));
    succeed(conversation_open(c, generator));
}

static const struct conversation_options greedy = {.decoding = {.sampling = {0, 1, 0, {1, RNG_SAMPLING}}}, .most = 8};

static void say(struct conversation *c, const char *role, const char *text)
{
    succeed(conversation_say(c, role, text, (i64)strlen(text)));
}

static char *answer_of(struct conversation *c, const struct conversation_options *o) /* memory_free */
{
    succeed(conversation_fit(c, o->most));
    succeed(conversation_answer(c, 1, 0, NULL, o));
    const struct buffer *text = &c->said.parts[c->said.count - 1].bytes;
    return string_format("%.*s", (int)text->length, text->data ? text->data : "");
}

static i64 count_ids(const struct generator *g, const char *text)
{
    struct id_list ids = {0};
    succeed(text_encode(g->text, &ids, text, (i64)strlen(text), NULL));
    i64 count = ids.count;
    id_list_release(&ids);
    return count;
}

TEST(the_oldest_turns_are_left_out)
{
    static const char words[] = "some words that fill the context of the model until no more of them fit";
    struct generator generator;
    struct conversation c, fresh;
    open_conversation(&c, &generator);
    i64 turn = count_ids(&generator, words) + 8;
    generator.model.config.max_positions = 3 * turn; /* room for 2 turns */
    say(&c, "system", "be brief");
    for (i64 i = 0; i < 4; i++) {
        char *text = string_format("%lld: %s", (long long)i, words);
        say(&c, "user", text);
        memory_free(text);
        if (i < 3)
            say(&c, "assistant", "yes");
    }
    char *dropped = answer_of(&c, &greedy);
    i64 first = c.first;
    assert_true(first > 1 && strcmp(c.said.parts[first].role, "user") == 0);
    assert_int_equal(conversation_messages(&c), 9); /* all of it is saved */
    /* The same answer as without the turns, but with the system message. */
    succeed(conversation_open(&fresh, &generator));
    say(&fresh, "system", "be brief");
    for (i64 i = first; i < c.said.count - 1; i++) {
        char *text = string_format("%.*s", (int)c.said.parts[i].bytes.length, c.said.parts[i].bytes.data);
        say(&fresh, c.said.parts[i].role, text);
        memory_free(text);
    }
    char *kept = answer_of(&fresh, &greedy);
    assert_int_equal(fresh.first, 0);
    assert_string_equal(dropped, kept);
    /* A message that is too long alone is refused, and nothing changes. */
    generator.model.config.max_positions = turn;
    i64 before = c.first, messages = conversation_messages(&c);
    struct buffer longest = {0};
    for (i64 i = 0; i < 9; i++)
        buffer_append(&longest, words, (i64)strlen(words));
    succeed(conversation_say(&c, "user", longest.data, longest.length));
    assert_int_equal(conversation_fit(&c, 8), -1);
    assert_says("do not fit into the model's length");
    conversation_take_back(&c);
    assert_true(c.first == before && conversation_messages(&c) == messages);
    buffer_release(&longest);
    memory_free(dropped);
    memory_free(kept);
    conversation_close(&fresh);
    conversation_close(&c);
    generator_close(&generator);
}

struct pieces {
    struct buffer all;
    i64 count;
};

static void take_piece(void *context, const char *text, i64 length)
{
    struct pieces *p = context;
    assert_int_equal(text_invalid_utf8(text, length), -1);
    assert_true(length > 0);
    buffer_append(&p->all, text, length);
    p->count++;
}

/* The vocabulary of the fixture is mostly single bytes, so drawn ids often are parts of characters. */
TEST(whole_characters_are_streamed)
{
    struct generator generator;
    struct conversation c;
    struct pieces pieces = {0};
    const struct conversation_show show = {take_piece, &pieces};
    struct conversation_options options = {
        .decoding = {.sampling = {1, 1, 0, {5, RNG_SAMPLING}}}, .most = 300, .show = &show};
    i64 parts = 0;
    open_conversation(&c, &generator);
    for (i64 i = 0; i < 12; i++) {
        pieces.all.length = 0;
        conversation_reset(&c);
        say(&c, "user", "words");
        options.decoding.sampling.key.seed = (u64)i;
        char *text = answer_of(&c, &options);
        const struct buffer *kept = &c.said.parts[c.said.count - 1].bytes;
        assert_int_equal(pieces.all.length, kept->length);
        assert_memory_equal(pieces.all.data, kept->data, (size_t)kept->length);
        for (i64 k = 0; k + 1 < kept->length; k++) /* two-byte letters that two ids made */
            parts += (kept->data[k] & 0xe0) == 0xc0;
        memory_free(text);
    }
    assert_true(parts > 0 && pieces.count > 12);
    buffer_release(&pieces.all);
    conversation_close(&c);
    generator_close(&generator);
}

int main(void)
{
    return tests_run(setup, teardown);
}
