/* The program as a process: exit statuses, messages, and no partial output. */
#define _GNU_SOURCE /* pipe2, posix_openpt */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/json.h"
#include "tests/cli_fixture.h"

/* ---- Usage ---- */

TEST(usage_is_told)
{
    const char *const nothing[] = {NULL};
    assert_int_equal(run("", nothing), 2);
    assert_int_equal(WEFT("--help"), 0);
    assert_int_equal(WEFT("extract", "--help"), 0);
    assert_non_null(strstr(said.data, "--experts"));
}

TEST(a_run_is_told_from_its_models)
{
    char *folder = in_folder("a-run"), *file = path_join(folder, "run.json");
    assert_int_equal(directory_make(folder), 0);
    assert_int_equal(WEFT("generate", folder, "--prompt", "a"), 1);
    assert_null(strstr(complained.data, "this is a run"));
    assert_int_equal(file_replace(file, "{}", 2), 0);
    assert_int_equal(WEFT("generate", folder, "--prompt", "a"), 1);
    expect_complaint("expected a model directory, and this is a run");
    memory_free(folder);
    memory_free(file);
}

TEST(routing_says_where_its_page_is)
{
    char *out = in_folder("routing"), *wrote = string_format("wrote %s: routing.html", out),
         *page = path_join(out, "routing.html");
    assert_int_equal(WEFT("routing", model_folder, "--data", shards, "--part", "train", "-o", out), 0);
    expect_complaint(wrote);
    assert_true(file_exists(page));
    memory_free(out);
    memory_free(wrote);
    memory_free(page);
}

TEST(completion_and_man_name_every_command)
{
    static const char *const names[] = {"run",     "tokenize", "logits",  "compare", "extract",
                                        "routing", "grid",     "inspect", "verify"};
    const char *const outputs[][5] = {{"completion", "words", "--", "", NULL}, {"man", NULL}};
    for (i64 i = 0; i < COUNT_OF(outputs); i++) {
        assert_int_equal(run("", outputs[i]), 0);
        for (i64 n = 0; n < COUNT_OF(names); n++)
            assert_non_null(strstr(said.data, names[n]));
    }
    assert_non_null(strstr(said.data, "kind: pretrain"));
}

/* ---- Models ---- */

TEST(compare_tells_equal_from_different)
{
    assert_int_equal(WEFT("compare", GOLDEN "/moe/tied-shared2-bias", "--to", GOLDEN "/moe/tied-shared2-bias"), 0);
    assert_int_equal(WEFT("compare", GOLDEN "/moe/tied-shared2-bias", "--to", GOLDEN "/moe/headdim-top1-fused"), 1);
}

/* ---- compare against references that are wrong ---- */

#define REFERENCE GOLDEN "/moe/untied-gqa4-dense0"

enum { TENSORS_MOST = 256 };
struct reference { /* tensors of a golden file, to be changed and saved beside it */
    struct safetensors set;
    struct tensor_source tensors[TENSORS_MOST];
    i64 count;
};

static void open_reference(struct reference *r, const char *file)
{
    char *path = path_join(REFERENCE, file);
    assert_int_equal(safetensors_open(&r->set, path), 0);
    assert_true(r->set.count <= TENSORS_MOST);
    r->count = r->set.count;
    for (i64 i = 0; i < r->count; i++) {
        const struct tensor_view *v = &r->set.tensors[i];
        r->tensors[i] = (struct tensor_source){.name = v->name, .dtype = v->dtype, .rank = v->rank, .data = v->data};
        memcpy(r->tensors[i].shape, v->shape, sizeof v->shape);
    }
    memory_free(path);
}

static void save_reference(struct reference *r, const char *file)
{
    char *folder = in_folder("reference"), *path = path_join(folder, file);
    assert_int_equal(directory_make(folder), 0);
    assert_int_equal(safetensors_save(path, r->tensors, r->count, NULL), 0);
    safetensors_close(&r->set);
    memory_free(folder);
    memory_free(path);
}

static struct tensor_source *find_tensor(struct reference *r, const char *name)
{
    for (i64 i = 0; i < r->count; i++)
        if (strcmp(r->tensors[i].name, name) == 0)
            return &r->tensors[i];
    fail_msg("no %s", name);
    return NULL;
}

enum wrong { AS_IT_IS, CUT, BEYOND, WIDE, NOT_A_NUMBER, RENAMED, LEFT_OUT, NEAR, FAR };

/* Parts of its value, of the largest and of the norm. */
static float tolerance_of(const char *name)
{
    return strcmp(name, "loss") == 0 ? 1e-5f : strcmp(name, "logits") == 0 ? 2e-5f : 1e-4f;
}

static void spoil(struct reference *r, const char *name, enum wrong wrong, void *values, i64 bytes)
{
    struct tensor_source *t = find_tensor(r, name);
    memcpy(values, t->data, (size_t)bytes);
    t->data = values;
    if (wrong == CUT)
        t->shape[t->rank - 1] = 1;
    if (wrong == BEYOND)
        *(i32 *)values = 320; /* out of range: equals the vocabulary */
    if (wrong == NOT_A_NUMBER)
        *(float *)values = NAN;
    for (i64 i = 0; (wrong == NEAR || wrong == FAR) && i < bytes / 4; i++)
        ((float *)values)[i] *= 1 + (wrong == NEAR ? 0.5f : 2) * tolerance_of(name);
    if (wrong == RENAMED)
        t->name = "another";
    if (wrong == LEFT_OUT)
        *t = r->tensors[--r->count];
    if (wrong == WIDE) {
        t->dtype = DTYPE_I64;
        for (i64 i = bytes / 4 - 1; i >= 0; i--)
            ((i64 *)values)[i] = ((i32 *)values)[i];
    }
}

static int compare_spoiled(const char *file, const char *name, enum wrong wrong)
{
    static struct reference r;
    char *folder = in_folder("reference");
    const char *files[] = {"expected.safetensors", "grads.safetensors"};
    void *values = NULL;
    assert_int_equal(directory_remove(folder), 0);
    for (int i = 0; i < 2; i++) {
        open_reference(&r, files[i]);
        if (wrong != AS_IT_IS && strcmp(files[i], file) == 0) {
            i64 bytes = safetensors_find(&r.set, name)->bytes;
            values = memory_alloc(2 * bytes);
            spoil(&r, name, wrong, values, bytes);
        }
        save_reference(&r, files[i]);
    }
    int status = WEFT("compare", REFERENCE, "--to", folder);
    memory_free(values);
    memory_free(folder);
    return status;
}

TEST(compare_does_not_believe_a_reference)
{
    static const struct {
        const char *file, *name;
        enum wrong wrong;
        int status;
        const char *says;
    } cases[] = {
        {"expected.safetensors", "input_ids", AS_IT_IS, 0, ""},
        {"expected.safetensors", "input_ids", WIDE, 0, ""},
        {"expected.safetensors", "prompt", WIDE, 0, ""},
        {"expected.safetensors", "loss", LEFT_OUT, 0, ""},
        {"expected.safetensors", "input_ids", BEYOND, 1, "input_ids[0] is 320, the vocabulary has 320"},
        {"expected.safetensors", "input_ids", LEFT_OUT, 1, "expected a tensor input_ids"},
        {"expected.safetensors", "input_ids", CUT, 1, "input_ids"},
        {"expected.safetensors", "prompt", BEYOND, 1, "prompt[0] is 320"},
        {"expected.safetensors", "generated", LEFT_OUT, 1, "expected a tensor generated"},
        {"expected.safetensors", "logits", CUT, 1, "logits is F32 ["},
        {"expected.safetensors", "logits", NOT_A_NUMBER, 1, "1 comparisons differ"},
        {"expected.safetensors", "loss", NOT_A_NUMBER, 1, "1 comparisons differ"},
        {"expected.safetensors", "loss", NEAR, 0, ""},
        {"expected.safetensors", "loss", FAR, 1, "1 comparisons differ"},
        {"expected.safetensors", "logits", NEAR, 0, ""},
        {"expected.safetensors", "logits", FAR, 1, "1 comparisons differ"},
        {"grads.safetensors", "lm_head.weight", NEAR, 0, ""},
        {"grads.safetensors", "lm_head.weight", FAR, 1, "1 comparisons differ"},
        {"grads.safetensors", "lm_head.weight", CUT, 1, "lm_head.weight is F32 ["},
        {"grads.safetensors", "lm_head.weight", NOT_A_NUMBER, 1, "comparisons differ"},
        {"grads.safetensors", "lm_head.weight", RENAMED, 1, "another is no weight"},
        {"grads.safetensors", "lm_head.weight", LEFT_OUT, 1, "no gradient of lm_head.weight"},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        int status = compare_spoiled(cases[i].file, cases[i].name, cases[i].wrong);
        if (status != cases[i].status)
            fail_msg("case %lld, %s: status %d: %s", (long long)i, cases[i].name, status, complained.data);
        expect_complaint(cases[i].says);
    }
}

/* ---- Numbers that are none ---- */

TEST(weights_that_are_not_finite_are_refused)
{
    static const char *const formats[] = {"hf", "gguf"};
    static struct reference r;
    char *broken = in_folder("broken"), *out = in_folder("exported"), *config = path_join(broken, "config.json"),
         *weights = path_join(broken, "model.safetensors");
    open_reference(&r, "model.safetensors");
    i64 bytes = safetensors_find(&r.set, "lm_head.weight")->bytes;
    void *values = memory_alloc(2 * bytes);
    spoil(&r, "lm_head.weight", NOT_A_NUMBER, values, bytes);
    assert_int_equal(directory_make(broken), 0);
    assert_int_equal(safetensors_save(weights, r.tensors, r.count, NULL), 0);
    safetensors_close(&r.set);
    copy_cut(config, REFERENCE "/config.json", -1);
    for (i64 i = 0; i < COUNT_OF(formats); i++) {
        assert_int_equal(WEFT("export", broken, "-o", out, "--to", formats[i]), 1);
        expect_complaint("lm_head.weight contains non-finite numbers");
        expect_absent(out);
    }
    assert_int_equal(WEFT("extract", broken, "-o", out, "--topk", "1"), 1);
    expect_complaint("lm_head.weight contains non-finite numbers");
    assert_int_equal(WEFT("logits", broken, "--ids", REFERENCE "/expected.safetensors", "-o", out), 1);
    expect_complaint("lm_head.weight contains non-finite numbers");
    expect_absent(out);
    memory_free(values);
    memory_free(broken);
    memory_free(out);
    memory_free(config);
    memory_free(weights);
}

/* ---- tokenize ---- */

static void put_changed(const char *to, const char *from, const char *const *changes)
{
    struct buffer content = {0};
    assert_int_equal(file_read(&content, from), 0);
    for (i64 i = 0; changes[i]; i += 2) {
        struct buffer next = {0};
        char *at = strstr(content.data, changes[i]);
        assert_non_null(at);
        buffer_append(&next, content.data, at - content.data);
        buffer_printf(&next, "%s%s", changes[i + 1], at + strlen(changes[i]));
        buffer_release(&content);
        content = next;
    }
    assert_int_equal(file_replace(to, content.data, content.length), 0);
    buffer_release(&content);
}

TEST(keys_of_a_config_may_be_null_or_whole_reals)
{
    static const char *const changes[] = {"\"moe_k\": 2",
                                          "\"moe_k\": 2.0",
                                          "\"moe_num_shared_experts\": 2",
                                          "\"moe_num_shared_experts\": null",
                                          "\"hidden_act\": \"silu\"",
                                          "\"hidden_act\": null",
                                          NULL};
    char *folder = in_folder("reals"), *config = path_join(folder, "config.json"),
         *weights = path_join(folder, "model.safetensors");
    assert_int_equal(directory_make(folder), 0);
    put_changed(config, GOLDEN "/moe/tied-shared2-bias/config.json", changes);
    assert_int_equal(symlink(GOLDEN "/moe/tied-shared2-bias/model.safetensors", weights), 0);
    if (WEFT("compare", folder, "--to", GOLDEN "/moe/tied-shared2-bias"))
        fail_msg("%s", complained.data);
    memory_free(folder);
    memory_free(config);
    memory_free(weights);
}

static pid_t start_tokenize(int in)
{
    pid_t child = fork();
    if (child == 0) {
        char *out = in_folder("stdout"), *err = in_folder("stderr");
        if (dup2(in, 0) < 0 || !freopen(out, "w", stdout) || !freopen(err, "w", stderr))
            _exit(99);
        weft_become((char *[]){"weft", "tokenize", GOLDEN "/tokenizer/qwen2", NULL});
    }
    return child;
}

static int ended(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(tokenize_tells_an_end_from_a_failure)
{
    int ends[2], unread = 1;
    int folder = open(shards, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(ended(start_tokenize(folder)), 1);
    read_output(&complained, "stderr");
    expect_complaint("stdin: cannot be read: Is a directory");
    close(folder);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "{\"text\":\"a\"}\n", 13), 13);
    pid_t child = start_tokenize(ends[0]);
    for (; unread; poll(NULL, 0, 1)) {
        assert_int_equal(ioctl(ends[0], FIONREAD, &unread), 0);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    }
    assert_int_equal(kill(child, SIGINT), 0);
    assert_int_equal(ended(child), 130);
    close(ends[0]);
    close(ends[1]);
}

/* What a command prints with a terminal as stdout; a terminal makes "\r\n" of line feeds. */
static void run_on_terminal(struct buffer *out, const char *in, char **argv)
{
    char block[4096];
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int other = open(ptsname(terminal), O_RDWR | O_NOCTTY); /* keeps what the child has written */
    assert_true(other >= 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        open_as(0, in, O_RDONLY);
        if (dup2(other, 1) < 0)
            _exit(99);
        weft_become(argv);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(other);
    buffer_clear(out);
    for (ssize_t count; (count = read(terminal, block, sizeof block)) > 0;)
        buffer_append(out, block, count);
    close(terminal);
}

/* U+202E turns the direction of text, U+009B begins a command of a terminal. */
TEST(results_are_escaped_on_a_terminal_alone)
{
    static const char line[] = "{\"truth\":\"\xe2\x80\xae\xc2\x9b\",\"answer\":\"\xc3\xa4\"}\n";
    char *in = in_folder("foreign.jsonl");
    struct buffer shown = {0};
    assert_int_equal(file_replace(in, line, (i64)strlen(line)), 0);
    assert_int_equal(run(line, (const char *const[]){"verify", "exact", NULL}), 0);
    assert_string_equal(said.data, "{\"truth\":\"\xe2\x80\xae\xc2\x9b\",\"answer\":\"\xc3\xa4\",\"score\":0.0}\n");
    run_on_terminal(&shown, in, (char *[]){"weft", "verify", "exact", NULL});
    assert_string_equal(shown.data, "{\"truth\":\"\\u202e\\u009b\",\"answer\":\"\xc3\xa4\",\"score\":0.0}\r\n");
    buffer_release(&shown);
    memory_free(in);
}

TEST(tokenize_there_and_back)
{
    const char *input = "{\"text\":\"Words, 123 \\u00e9\\u4f60 \\n end\",\"other\":1}\n\n{\"text\":\"\"}\n";
    const char *const encode[] = {"tokenize", GOLDEN "/tokenizer/qwen2", NULL};
    const char *const decode[] = {"tokenize", GOLDEN "/tokenizer/qwen2", "--decode", NULL};
    assert_int_equal(run(input, encode), 0);
    char *ids = string_copy(said.data);
    assert_int_equal(run(ids, decode), 0);
    assert_string_equal(said.data, "{\"text\":\"Words, 123 \u00e9\u4f60 \\n end\"}\n{\"text\":\"\"}\n");
    assert_int_equal(run("{\"ids\":[64,3070]}\n{\"ids\":[64,3070],\"skip_special\":true}\n", decode), 0);
    assert_string_equal(said.data, "{\"text\":\"a<|im_end|>\"}\n{\"text\":\"a\"}\n");
    assert_int_equal(run("{\"text\":1}\n", encode), 1);
    expect_complaint("stdin:1");
    assert_int_equal(run("{\"ids\":[99999999]}\n", decode), 1);
    memory_free(ids);
}

TEST(verify_scores_lines_by_a_rule)
{
    static const char lines[] = "{\"truth\":\"1/2\",\"answer\":\"\\\\boxed{0.5}\",\"id\":7}\n\n"
                                "{\"truth\":42,\"answer\":\"\\\\boxed{41}\"}";
    const char *const math[] = {"verify", "math", NULL}, *const choice[] = {"verify", "choice", "-", NULL};
    char *path = in_folder("lines.jsonl");
    const char *const file[] = {"verify", "math", path, NULL};
    assert_int_equal(run(lines, math), 0);
    assert_string_equal(said.data, "{\"truth\":\"1/2\",\"answer\":\"\\\\boxed{0.5}\",\"id\":7,\"score\":1.0}\n"
                                   "{\"truth\":42,\"answer\":\"\\\\boxed{41}\",\"score\":0.0}\n");
    assert_int_equal(file_replace(path, lines, (i64)strlen(lines)), 0);
    assert_int_equal(run("", file), 0);
    assert_non_null(strstr(said.data, "\"score\":1.0}"));
    assert_int_equal(run("{\"truth\":\"B\",\"answer\":\"B\"}\n{\"truth\":\"x\",\"answer\":\"B\"}\n", choice), 1);
    expect_complaint("stdin, line 2");
    assert_int_equal(run("{\"answer\":\"B\"}\n", choice), 1);
    expect_complaint("\"truth\"");
    assert_int_equal(run("{\n", math), 1);
    assert_int_equal(WEFT("verify", SOURCE_TREE "/tests/cases/verify.jsonl"), 0); /* each line has its rule */
    memory_free(path);
}

/* Long and short lines, valid and mixed, over several
 * blocks: each gives the same output as alone. */
TEST(tokenize_keeps_lines_in_order_over_blocks)
{
    enum { LINES = 9000, WORDS = 100, LONG = 400000 };
    const char *const encode[] = {"tokenize", GOLDEN "/tokenizer/qwen2", NULL};
    struct buffer input = {0}, expected = {0};
    assert_int_equal(run("{\"text\":\" one\"}\n", encode), 0);
    char *one = string_format("%.*s", (int)strcspn(said.data + 8, "]"), said.data + 8);
    for (int i = 0; i < LINES; i++) {
        int words = i == LINES / 2 ? LONG : i % WORDS;
        buffer_printf(&input, i % 7 ? "{\"text\":\"" : "{\"meta\":{},\"text\":\"");
        buffer_printf(&expected, "{\"ids\":[");
        for (int w = 0; w < words; w++) {
            buffer_append(&input, " one", 4);
            buffer_printf(&expected, w ? ",%s" : "%s", one);
        }
        buffer_printf(&input, i % 5 ? "\"}\n" : "\"}\r\n\n");
        buffer_printf(&expected, "]}\n");
    }
    setenv("WEFT_THREADS", "3", 1);
    assert_int_equal(run(input.data, encode), 0);
    assert_true(said.length == expected.length && memcmp(said.data, expected.data, (size_t)said.length) == 0);
    buffer_printf(&input, "{\"text\":\" one\"}\n{\"text\":\n{\"text\":\"\"}");
    buffer_printf(&expected, "{\"ids\":[%s]}\n", one);
    assert_int_equal(run(input.data, encode), 1);
    setenv("WEFT_THREADS", "1", 1);
    assert_true(said.length == expected.length && memcmp(said.data, expected.data, (size_t)said.length) == 0);
    expect_complaint("stdin:10802:");
    memory_free(one);
    buffer_release(&input);
    buffer_release(&expected);
}

TEST(tokenize_puts_the_template_around_and_adds_tokens)
{
    char *copy = in_folder("extended");
    const char *const whole[] = {"tokenize", GOLDEN "/tokenizer/families/llama2.json", NULL};
    const char *const plain[] = {"tokenize", GOLDEN "/tokenizer/families/llama2.json", "--plain", NULL};
    const char *const extended[] = {"tokenize", copy, "--plain", NULL};
    assert_int_equal(run("{\"text\":\"\"}\n", whole), 0);
    assert_string_equal(said.data, "{\"ids\":[1]}\n");
    assert_int_equal(run("{\"text\":\"\"}\n", plain), 0);
    assert_string_equal(said.data, "{\"ids\":[]}\n");
    assert_int_equal(WEFT("tokenize", GOLDEN "/tokenizer/families/llama2.json", "-o", copy), 0);
    assert_int_equal(run("{\"text\":\"<|endoftext|>\"}\n", extended), 0);
    assert_null(strchr(said.data, ','));
}

TEST(extract_leaves_a_whole_model_or_nothing)
{
    char *out = in_folder("half");
    assert_int_equal(WEFT("extract", model_folder, "-o", out, "--experts", "4", "--topk", "1"), 0);
    assert_int_equal(WEFT("inspect", out, "--json"), 0);
    struct json *j = json_parse(said.data, said.length, "stdout");
    assert_int_equal(json_integer(json_get(json_get(j, "sizes"), "experts"), -1), 4);
    assert_int_equal(json_kind(json_get(j, "tokenizer.json")), JSON_OBJECT);
    assert_int_equal(json_kind(json_get(j, "weft/vision")), JSON_OBJECT);
    json_free(j);
    assert_int_equal(WEFT("extract", model_folder, "-o", out), 1); /* already exists */
    expect_complaint("exists");
    memory_free(out);
}

TEST(what_stands_beside_an_output_stays)
{
    static const char *const commands[] = {"extract", "export"};
    char *mine = in_folder("beside.tmp/mine"), *folder = in_folder("beside.tmp"), *out = in_folder("beside"),
         *slashed = in_folder("beside//"), *config = path_join(out, "config.json");
    assert_int_equal(directory_make(folder), 0);
    assert_int_equal(file_replace(mine, "", 0), 0);
    for (i64 i = 0; i < COUNT_OF(commands); i++) {
        if (WEFT(commands[i], model_folder, "-o", slashed))
            fail_msg("%s", complained.data);
        assert_true(file_exists(config));
        assert_true(file_exists(mine));
        assert_int_equal(directory_remove(out), 0);
    }
    assert_int_equal(directory_remove(folder), 0);
    expect_absent(out);
    char *all[] = {mine, folder, out, slashed, config};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* ---- inspect ---- */

TEST(truncated_models_exit_with_1)
{
    char *cut = in_folder("cut"), *out = in_folder("from-cut");
    char *to = path_join(cut, "model.safetensors"), *config = path_join(cut, "config.json");
    assert_int_equal(directory_make(cut), 0);
    copy_cut(config, GOLDEN "/moe/tied-shared2-bias/config.json", -1); /* its last newline */
    copy_cut(to, GOLDEN "/moe/tied-shared2-bias/model.safetensors", -100);
    assert_int_equal(WEFT("extract", cut, "-o", out, "--topk", "1"), 1);
    expect_complaint("model.safetensors");
    expect_absent(out);
    assert_int_equal(WEFT("inspect", cut), 1);
    assert_int_equal(WEFT("inspect", to), 1);
    copy_cut(to, GOLDEN "/moe/tied-shared2-bias/model.safetensors", 20);
    assert_int_equal(WEFT("inspect", to), 1);
    expect_complaint("model.safetensors");
    memory_free(cut);
    memory_free(out);
    memory_free(to);
    memory_free(config);
}

static void expect_kind(const char *path, const char *kind)
{
    if (WEFT("inspect", path, "--json"))
        fail_msg("inspect %s: %s", path, complained.data);
    struct json *j = json_parse(said.data, said.length, "stdout");
    assert_non_null(j);
    assert_string_equal(json_string(json_get(j, "kind"), ""), kind);
    json_free(j);
    assert_int_equal(WEFT("inspect", path), 0); /* human-readable output */
    assert_true(said.length > 0);
}

static i64 figure_of(const struct json *all, const char *part, const char *name)
{
    return json_integer(json_get(json_get(json_get(all, "parts"), part), name), 0);
}

/* Makes the folder `again` anew; what is said of both is the sum of what is said of each, and the longest sample. */
static void expect_sums(char *path, const char *runs, const char *again)
{
    static const char *const parts[] = {"train", "validation"}, *const names[] = {"samples", "positions", "shards",
                                                                                  "bytes", "longest"};
    char *to = string_format("run=%s/%s", runs, again);
    struct json *each[3];
    if (WEFT("run", path, to, "--redo", "shards"))
        fail_msg("%s", complained.data);
    for (i64 i = 0; i < 3; i++) {
        char *folder = i < 2 ? string_format("%s/%lld/shards", runs, (long long)i) : string_copy(runs);
        assert_int_equal(WEFT("inspect", folder, "--json"), 0);
        each[i] = json_parse(said.data, said.length, "stdout");
        memory_free(folder);
    }
    for (i64 p = 0; p < COUNT_OF(parts); p++)
        for (i64 n = 0; n < COUNT_OF(names); n++) {
            i64 a = figure_of(each[0], parts[p], names[n]), b = figure_of(each[1], parts[p], names[n]);
            i64 sum = strcmp(names[n], "longest") == 0 ? max_i64(a, b) : a + b;
            assert_true(a > 0 || p > 0);
            if (figure_of(each[2], parts[p], names[n]) != sum)
                fail_msg("%s of %s: %lld and %lld, together %lld", names[n], parts[p], (long long)a, (long long)b,
                         (long long)figure_of(each[2], parts[p], names[n]));
        }
    for (i64 i = 0; i < 3; i++)
        json_free(each[i]);
    memory_free(to);
}

/* Accepts lists and folders like `data`, and adds up to the output of one call. */
TEST(inspect_sums_up_folders_of_shards)
{
    char *lines = in_folder("many.jsonl"), *runs = in_folder("many"), *parts = in_folder("many/"),
         *partial = in_folder("many/2/shards.partial"), *path = in_folder("many.yaml"),
         *meta = path_join(partial, "shards.json");
    struct buffer t = {0};
    for (i64 i = 0; i < 40; i++)
        buffer_printf(&t, "{\"text\": \"line %lld of forty\"}\n", (long long)i);
    assert_int_equal(file_replace(lines, t.data, t.length), 0);
    buffer_clear(&t);
    buffer_printf(&t, "run: %s\nstages:\n  shards: {kind: prepare, data: %s, text: %s}\n", runs, lines, model_folder);
    assert_int_equal(file_replace(path, t.data, t.length), 0);
    for (i64 i = 0; i < 2; i++) {
        char *to = string_format("run=%s/%lld", runs, (long long)i);
        if (WEFT("run", path, to))
            fail_msg("%s", complained.data);
        memory_free(to);
    }
    expect_kind(parts, "folder of shard folders");
    assert_int_equal(WEFT("inspect", runs, "--json"), 0);
    struct json *j = json_parse(said.data, said.length, "stdout"), *folders = json_get(j, "folders");
    struct json *all = json_get(j, "parts"), *first = json_at(folders, 0);
    assert_int_equal(json_count(folders), 2);
    assert_string_equal(json_string(json_get(first, "folder"), ""), "0/shards");
    i64 train = json_integer(json_get(first, "train"), 0), validation = json_integer(json_get(first, "validation"), 0);
    assert_int_equal(train + validation, 40);
    assert_int_equal(json_integer(json_get(json_get(all, "train"), "samples"), 0), 2 * train);
    struct json *direction = json_at(json_get(json_get(all, "train"), "directions"), 0);
    assert_int_equal(json_integer(json_get(direction, "samples"), 0), 2 * train);
    json_free(j);
    buffer_clear(&t);
    for (i64 i = 0; i < 30; i++)
        buffer_printf(&t, "{\"text\": \"a line that is longer, %lld of thirty\"}\n", (long long)i);
    assert_int_equal(file_replace(lines, t.data, t.length), 0);
    expect_sums(path, runs, "0");
    expect_sums(path, runs, "1");
    assert_int_equal(directory_make(partial) || file_replace(meta, "{}", 2), 0);
    assert_int_equal(WEFT("inspect", runs), 1);
    expect_complaint("shards.partial: not finished");
    char *all_names[] = {lines, runs, parts, partial, path, meta};
    for (i64 i = 0; i < COUNT_OF(all_names); i++)
        memory_free(all_names[i]);
    buffer_release(&t);
}

TEST(inspect_takes_names_of_columns)
{
    char *path = in_folder("named.jsonl");
    const char lines[] = "{\"body\": \"one\", \"text\": \"no\"}\n{\"body\": \"two\"}\n";
    assert_int_equal(file_replace(path, lines, sizeof lines - 1), 0);
    assert_int_equal(WEFT("inspect", path, "--columns", "text=body", "--json"), 0);
    struct json *j = json_parse(said.data, said.length, "stdout");
    assert_int_equal(json_integer(json_get(json_at(json_get(j, "samples"), 0), "samples"), 0), 2);
    json_free(j);
    assert_int_equal(WEFT("inspect", path, "--columns", "body=text"), 2);
    expect_complaint("messages, question");
    assert_int_equal(WEFT("inspect", path, "--columns", "text=1,header=no"), 2);
    assert_int_equal(WEFT("inspect", path, "--columns", "text=1,header=false,separator=;,folder=a,ending=wav"), 0);
    assert_int_equal(WEFT("inspect", path, "--columns", "text"), 2);
    memory_free(path);
}

TEST(inspect_knows_every_kind)
{
    static const struct {
        const char *name, *kind;
    } cases[] = {
        {"", "shards"},
        {"model", "model"},
        {"checkpoints", "checkpoint"},
        {"model/weft/vision", "vision tokenizer"},
        {"model/weft/audio", "audio tokenizer"},
        {"text", "tokenizer"},
        {"picture.png", "PNG picture"},
        {"film.mp4", "clip"},
        {"noise.wav", "sound"},
        {"model/weft/extra.safetensors", "safetensors"},
        {"model/tokenizer.json", "tokenizer"},
        {"checkpoints/step-000007", "checkpoint"},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *path = *cases[i].name ? in_folder(cases[i].name) : string_copy(shards);
        expect_kind(path, cases[i].kind);
        memory_free(path);
    }
    expect_kind(SOURCE_TREE "/recipes/quickstart.yaml", "recipe");
    assert_int_equal(WEFT("inspect", SOURCE_TREE "/LICENSE"), 1);
}

TEST(one_wrong_byte_is_found)
{
    static const char *const names[] = {"checkpoints/step-000007/model.safetensors", "train/00000.shard"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct buffer content = {0};
        char *path = in_folder(names[i]);
        assert_int_equal(file_read(&content, path), 0);
        content.data[content.length / 2] ^= 1;
        assert_int_equal(file_replace(path, content.data, content.length), 0);
        assert_int_equal(WEFT("inspect", i == 0 ? checkpoints : shards), 1);
        content.data[content.length / 2] ^= 1;
        assert_int_equal(file_replace(path, content.data, content.length), 0);
        assert_int_equal(WEFT("inspect", i == 0 ? checkpoints : shards), 0);
        buffer_release(&content);
        memory_free(path);
    }
}

TEST(gguf_headers_cut_anywhere_are_refused)
{
    char *whole = in_folder("whole.gguf"), *cut = in_folder("cut.gguf");
    assert_int_equal(WEFT("export", GOLDEN "/moe/tied-shared2-bias", "--to", "gguf", "-o", whole), 0);
    expect_kind(whole, "gguf");
    for (i64 bytes = 0; bytes < 2000; bytes += 173) {
        copy_cut(cut, whole, bytes);
        assert_int_equal(WEFT("inspect", cut), 1);
    }
    memory_free(whole);
    memory_free(cut);
}

TEST(gguf_names_the_end_of_an_answer)
{
    static const char key[] = "tokenizer.ggml.eot_token_id";
    char *path = in_folder("ends.gguf");
    struct buffer file = {0};
    struct text_tokenizer *tokenizer = text_tokenizer_load(model_folder);
    u32 value[2];
    assert_non_null(tokenizer);
    if (WEFT("export", model_folder, "--to", "gguf", "-o", path))
        fail_msg("%s", complained.data);
    assert_int_equal(file_read(&file, path), 0);
    const char *at = memmem(file.data, (size_t)file.length, key, sizeof key - 1);
    assert_non_null(at);
    memcpy(value, at + sizeof key - 1, sizeof value); /* type u32, id */
    assert_int_equal(value[0], 4);
    assert_int_equal(value[1], text_token_id(tokenizer, "<|im_end|>"));
    text_tokenizer_free(tokenizer);
    buffer_release(&file);
    memory_free(path);
}

/* The same file as in the model. */
static void expect_same_in(const char *folder, const char *name)
{
    struct buffer is = {0}, was = {0};
    char *path = path_join(folder, name), *from = path_join(model_folder, name);
    assert_int_equal(file_read(&was, from), 0);
    assert_int_equal(file_read(&is, path), 0);
    assert_int_equal(is.length, was.length);
    assert_memory_equal(is.data, was.data, (size_t)was.length);
    buffer_release(&is);
    buffer_release(&was);
    memory_free(path);
    memory_free(from);
}

static void expect_export(const char *format, const char *dtype, const char *stored, u32 file_type)
{
    static const char key[] = "general.file_type\4\0\0"; /* type u32 = 4, in 4 bytes */
    char *recipe = in_folder("exports.yaml"), *hf = in_folder("exports/e/hf"),
         *path = in_folder("exports/e/model.gguf");
    char *text = string_format("run: %s/exports\nstages:\n  e: {kind: export, from: %s, to: %s, dtype: %s}\n", shards,
                               model_folder, format, dtype);
    bool gguf = strcmp(format, "hf") != 0;
    struct safetensors set;
    struct buffer file = {0};
    u32 type;
    assert_int_equal(file_replace(recipe, text, (i64)strlen(text)), 0);
    if (WEFT("run", recipe, "--redo", "e"))
        fail_msg("%s", complained.data);
    assert_int_equal(file_exists(path), gguf);
    assert_int_equal(file_is_directory(hf), strcmp(format, "gguf") != 0);
    if (file_is_directory(hf)) {
        expect_same_in(hf, "tokenizer.json");
        expect_same_in(hf, "tokenizer_config.json");
        assert_int_equal(safetensors_open_model(&set, hf), 0);
        assert_string_equal(dtype_name(safetensors_find(&set, "model.embed_tokens.weight")->dtype), stored);
        safetensors_close(&set);
    }
    if (gguf) {
        assert_int_equal(file_read(&file, path), 0);
        const char *at = memmem(file.data, (size_t)file.length, key, sizeof key);
        assert_non_null(at);
        memcpy(&type, at + sizeof key, sizeof type);
        assert_int_equal(type, file_type);
    }
    buffer_release(&file);
    char *all[] = {recipe, hf, path, text};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* The stage writes the formats that it is asked for, in the type that it is asked for. The model is
 * stored in f32; general.file_type of llama.cpp is 0 for F32 and 32 for BF16. */
TEST(exports_have_the_format_and_type_asked_for)
{
    expect_export("both", "bf16", "BF16", 32);
    expect_export("both", "f32", "F32", 0);
    expect_export("hf", "stored", "F32", 0);
    expect_export("gguf", "bf16", "BF16", 32);
}

/* Layers, experts and top-k of the sub-model that fits in the given memory. */
static char *fitting(const char *memory)
{
    char *out = in_folder("fitting");
    struct model_config c;
    if (WEFT("extract", model_folder, "-o", out, "--memory", memory, "--data", shards, "--part", "train"))
        fail_msg("%s: %s", memory, complained.data);
    assert_int_equal(model_config_load(&c, out), 0);
    assert_int_equal(directory_remove(out), 0);
    memory_free(out);
    return string_format("%lld %lld %lld", (long long)c.layers, (long long)c.experts, (long long)c.topk);
}

TEST(sizes_of_memory_have_suffixes_of_1024)
{
    static const char *const equal[][2] = {
        {"310k", "317440"}, {"0.3M", "314572"}, {"0.0003G", "322122"}, {"0.0000003T", "329853"}};
    char *whole = fitting("1T");
    for (i64 i = 0; i < COUNT_OF(equal); i++) {
        char *one = fitting(equal[i][0]), *other = fitting(equal[i][1]);
        assert_string_equal(one, other);
        assert_string_not_equal(one, whole);
        memory_free(one);
        memory_free(other);
    }
    memory_free(whole);
}

int main(void)
{
    return tests_run(make, clear);
}
