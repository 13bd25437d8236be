/* The program itself: exit statuses, messages, and that nothing half-made stays behind. */
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include "core/json.h"
#include "tests/model_fixture.h"
#include <cmocka.h>

extern char **environ;
static char *shards, *model_folder, *checkpoints;
static struct device device;
static struct text said, complained; /* of the last run: stdout, stderr */

/* ---- Running it ---- */

static char *in_folder(const char *name)
{
    return path_join(shards, name);
}

static void read_output(struct text *out, const char *name)
{
    char *path = in_folder(name);
    text_release(out);
    assert_int_equal(file_read(out, path), 0);
    text_append(out, "", 0);
    memory_free(path);
}

static int spawn(char *const *argv, const char *input)
{
    char *in = in_folder("stdin"), *out = in_folder("stdout"), *err = in_folder("stderr");
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    assert_int_equal(file_replace(in, input, (i64)strlen(input)), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, in, O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_addopen(&actions, 2, err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_int_equal(posix_spawn(&child, WEFT_PROGRAM, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(waitpid(child, &status, 0), child);
    memory_free(in);
    memory_free(out);
    memory_free(err);
    if (!WIFEXITED(status))
        fail_msg("weft %s was ended by signal %d", argv[1] ? argv[1] : "", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static int run(const char *input, const char *const *words)
{
    const char *argv[32] = {"weft"};
    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    int status = spawn((char *const *)argv, input);
    read_output(&said, "stdout");
    read_output(&complained, "stderr");
    return status;
}
#define WEFT(...) run("", (const char *const[]){__VA_ARGS__, NULL})

static void expect_complaint(const char *part)
{
    if (!complained.data || !strstr(complained.data, part))
        fail_msg("expected \"%s\" in: %s", part, complained.data ? complained.data : "(nothing)");
}

static void expect_absent(const char *path)
{
    char *temporary = string_format("%s.tmp", path);
    assert_false(file_exists(path));
    assert_false(file_exists(temporary));
    memory_free(temporary);
}

static int make(void **state)
{
    (void)state;
    setenv("WEFT_THREADS", "1", 1);
    device_open_cpu(&device);
    shards = fixture_shards("cli", 80, 40);
    model_folder = in_folder("model");
    checkpoints = in_folder("checkpoints");
    fixture_model(shards, &device);
    fixture_media(shards);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    directory_remove(shards);
    memory_free(shards);
    memory_free(model_folder);
    memory_free(checkpoints);
    text_release(&said);
    text_release(&complained);
    device_close(&device);
    return 0;
}

/* ---- Usage ---- */

static void wrong_usage_exits_with_2_and_suggests(void **state)
{
    (void)state;
    const char *const nothing[] = {NULL};
    assert_int_equal(run("", nothing), 2);
    assert_int_equal(WEFT("--help"), 0);
    assert_int_equal(WEFT("extrct"), 2);
    expect_complaint("did you mean \"extract\"");
    assert_int_equal(WEFT("extract", model_folder, "--exprts", "3"), 2);
    expect_complaint("did you mean --experts");
    assert_int_equal(WEFT("extract", model_folder), 2);
    expect_complaint("-o DIR");
    assert_int_equal(WEFT("logits"), 2);
    assert_int_equal(WEFT("grid", model_folder, "--data", shards, "--rows", "many"), 2);
    assert_int_equal(WEFT("grid", model_folder, "--data", shards, "--layers", "0"), 2); /* takes no sub-model */
    assert_int_equal(WEFT("extract", "--help"), 0);
    assert_non_null(strstr(said.data, "--experts"));
}

static void missing_files_exit_with_1(void **state)
{
    (void)state;
    char *out = in_folder("nothing");
    assert_int_equal(WEFT("extract", "/nowhere/at-all", "-o", out), 1);
    expect_complaint("/nowhere/at-all");
    expect_absent(out);
    assert_int_equal(WEFT("logits", model_folder, "--ids", "/nowhere.safetensors", "-o", out), 1);
    assert_int_equal(WEFT("tokenize", "/nowhere"), 1);
    assert_int_equal(WEFT("inspect", "/nowhere"), 1);
    assert_int_equal(WEFT("routing", model_folder, "--data", "/nowhere", "-o", out), 1);
    expect_absent(out);
    memory_free(out);
}

static void completion_and_man_name_every_command(void **state)
{
    (void)state;
    static const char *const names[] = {"run",     "tokenize", "logits", "compare",
                                        "extract", "routing",  "grid",   "inspect"};
    const char *const outputs[][3] = {
        {"completion", "bash", NULL}, {"completion", "zsh", NULL}, {"completion", "fish", NULL}, {"man", NULL}};
    for (i64 i = 0; i < COUNT_OF(outputs); i++) {
        assert_int_equal(run("", outputs[i]), 0);
        for (i64 n = 0; n < COUNT_OF(names); n++)
            assert_non_null(strstr(said.data, names[n]));
        assert_non_null(strstr(said.data, "experts")); /* an option of extract */
    }
    assert_non_null(strstr(said.data, "kind: pretrain"));
    assert_int_equal(WEFT("completion", "tcsh"), 2);
}

/* ---- Models ---- */

static void compare_tells_equal_from_different(void **state)
{
    (void)state;
    assert_int_equal(WEFT("compare", GOLDEN "/moe/tied-shared2-bias", "--to", GOLDEN "/moe/tied-shared2-bias"), 0);
    assert_int_equal(WEFT("compare", GOLDEN "/moe/tied-shared2-bias", "--to", GOLDEN "/moe/headdim-top1-fused"), 1);
}

static void tokenize_there_and_back(void **state)
{
    (void)state;
    const char *input = "{\"text\":\"Words, 123 \\u00e9\\u4f60 \\n end\",\"other\":1}\n\n{\"text\":\"\"}\n";
    const char *const encode[] = {"tokenize", GOLDEN "/tokenizer/qwen2", NULL};
    const char *const decode[] = {"tokenize", GOLDEN "/tokenizer/qwen2", "--decode", NULL};
    assert_int_equal(run(input, encode), 0);
    char *ids = string_copy(said.data);
    assert_int_equal(run(ids, decode), 0);
    assert_string_equal(said.data, "{\"text\":\"Words, 123 \u00e9\u4f60 \\n end\"}\n{\"text\":\"\"}\n");
    assert_int_equal(run("{\"text\":1}\n", encode), 1);
    expect_complaint("stdin:1");
    assert_int_equal(run("{\"ids\":[99999999]}\n", decode), 1);
    memory_free(ids);
}

static void extract_leaves_a_whole_model_or_nothing(void **state)
{
    (void)state;
    char *out = in_folder("half");
    static const char *const bad[][2] = {
        {"--layers", "9"}, {"--experts", "0"}, {"--experts", "1-"}, {"--topk", "3"}, {"--experts", "1,7-9"}};
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(WEFT("extract", model_folder, "-o", out, bad[i][0], bad[i][1]), 2);
        expect_complaint(bad[i][0]);
        expect_absent(out);
    }
    assert_int_equal(WEFT("extract", model_folder, "-o", out, "--experts", "4", "--topk", "1"), 0);
    assert_int_equal(WEFT("inspect", out, "--json"), 0);
    struct json *j = json_parse(said.data, said.length, "stdout");
    assert_int_equal(json_integer(json_get(json_get(j, "sizes"), "experts"), -1), 4);
    assert_int_equal(json_kind(json_get(j, "tokenizer.json")), JSON_OBJECT);
    assert_int_equal(json_kind(json_get(j, "weft/vision")), JSON_OBJECT);
    json_free(j);
    assert_int_equal(WEFT("extract", model_folder, "-o", out), 1); /* exists */
    expect_complaint("exists");
    memory_free(out);
}

/* ---- inspect ---- */

/* The first `bytes`, or all but the last -bytes. */
static void copy_cut(const char *to, const char *from, i64 bytes)
{
    struct text content = {0};
    assert_int_equal(file_read(&content, from), 0);
    assert_int_equal(file_replace(to, content.data, bytes < 0 ? content.length + bytes : bytes), 0);
    text_release(&content);
}

static void truncated_models_exit_with_1(void **state)
{
    (void)state;
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
    assert_int_equal(WEFT("inspect", path), 0); /* for people */
    assert_true(said.length > 0);
}

static void inspect_knows_every_kind(void **state)
{
    (void)state;
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

static void one_wrong_byte_is_found(void **state)
{
    (void)state;
    static const char *const names[] = {"checkpoints/step-000007/model.safetensors", "train/00000.shard"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct text content = {0};
        char *path = in_folder(names[i]);
        assert_int_equal(file_read(&content, path), 0);
        content.data[content.length / 2] ^= 1;
        assert_int_equal(file_replace(path, content.data, content.length), 0);
        assert_int_equal(WEFT("inspect", i == 0 ? checkpoints : shards), 1);
        content.data[content.length / 2] ^= 1;
        assert_int_equal(file_replace(path, content.data, content.length), 0);
        assert_int_equal(WEFT("inspect", i == 0 ? checkpoints : shards), 0);
        text_release(&content);
        memory_free(path);
    }
}

static void gguf_headers_cut_anywhere_are_refused(void **state)
{
    (void)state;
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

static void a_recipe_with_an_unknown_key_is_named_by_line(void **state)
{
    (void)state;
    char *path = in_folder("bad.yaml");
    const char *recipe = "run: out/x\nstages:\n  b:\n    kind: pretrain\n    data: /tmp\n    stepz: 3\n";
    assert_int_equal(file_replace(path, recipe, (i64)strlen(recipe)), 0);
    assert_int_equal(WEFT("inspect", path), 1);
    expect_complaint("bad.yaml:6");
    expect_complaint("steps");
    assert_int_equal(WEFT("run", path), 2);
    memory_free(path);
}

/* ---- Commands that write folders ---- */

static void reconstruct_puts_media_side_by_side(void **state)
{
    (void)state;
    static const char *const made[] = {"picture.png", "film.mp4", "noise.wav", "noise-original.wav"};
    char *picture = in_folder("picture.png"), *film = in_folder("film.mp4"), *noise = in_folder("noise.wav"),
         *out = in_folder("back");
    if (WEFT("reconstruct", model_folder, picture, film, noise, "-o", out, "--json"))
        fail_msg("%s", complained.data);
    for (i64 i = 0; i < COUNT_OF(made); i++) {
        char *path = path_join(out, made[i]);
        assert_true(file_exists(path));
        memory_free(path);
    }
    assert_non_null(strstr(said.data, "PSNR"));
    assert_non_null(strstr(said.data, "log-mel"));
    assert_int_equal(directory_remove(out), 0);
    assert_int_equal(WEFT("reconstruct", model_folder, picture, SOURCE_TREE "/LICENSE", "-o", out), 1);
    expect_absent(out);
    assert_int_equal(WEFT("reconstruct", shards, picture, "-o", out), 1);
    expect_complaint("no vision tokenizer");
    memory_free(picture);
    memory_free(film);
    memory_free(noise);
    memory_free(out);
}

static void grid_prints_one_object_a_sub_model(void **state)
{
    (void)state;
    if (WEFT("grid", model_folder, "--data", shards, "--part", "train", "--length", "128", "--rows", "4", "--tokens",
             "4", "--json"))
        fail_msg("%s", complained.data);
    char *end = strchr(said.data, '\n');
    struct json *first = json_parse(said.data, end - said.data, "stdout");
    assert_string_equal(json_string(json_get(first, "name"), ""), "full");
    assert_true(json_number(json_get(json_get(first, "loss"), "text"), 0) > 0);
    json_free(first);
}

/* Without shards, without data: the stages say what the tokenizers will be. */
static void plan_knows_a_stage_that_has_not_run(void **state)
{
    (void)state;
    const char *recipe = SOURCE_TREE "/recipes/quickstart.yaml";
    double bytes[2];
    for (int ranks = 1; ranks <= 2; ranks++) {
        if (WEFT("plan", recipe, "base", "run=/nowhere/at-all", "--ranks", ranks == 1 ? "1" : "2", "--json"))
            fail_msg("%s", complained.data);
        struct json *plan = json_parse(said.data, said.length, "stdout");
        assert_string_equal(json_string(json_get(plan, "stage"), ""), "base");
        assert_true(json_number(json_get(plan, "flops"), 0) > 0);
        assert_true((json_number(json_get(plan, "traffic"), 0) > 0) == (ranks > 1));
        bytes[ranks - 1] = json_number(json_get(json_get(plan, "bytes"), "moments"), 0);
        json_free(plan);
    }
    assert_true(bytes[1] < 0.51 * bytes[0]);
    assert_int_equal(WEFT("plan", recipe, "bpe"), 2);
    expect_complaint("pretrain or sft");
    assert_int_equal(WEFT("plan", recipe, "more", "run=/nowhere/at-all"), 1);
    expect_complaint("half");
    assert_int_equal(WEFT("plan", recipe, "base", "--ranks", "3", "--layout", "data=2"), 2);
}

static void a_recipe_runs_extract_grid_and_routing(void **state)
{
    (void)state;
    static const char *const made[] = {"half/config.json", "grid/grid.json", "look/routing.html"};
    char *path = in_folder("small.yaml");
    struct text recipe = {0};
    text_printf(&recipe,
                "run: %s/run\nstages:\n"
                "  half: {kind: extract, from: %s, experts: 4, layers: 0-3}\n"
                "  grid: {kind: grid, from: half, data: %s, part: train, length: 128, rows: 4, decode_tokens: 4}\n"
                "  look: {kind: routing, from: half, data: %s, part: train, length: 128}\n",
                shards, model_folder, shards, shards);
    assert_int_equal(file_replace(path, recipe.data, recipe.length), 0);
    if (WEFT("run", path))
        fail_msg("%s", complained.data);
    for (i64 i = 0; i < COUNT_OF(made); i++) {
        char *file = string_format("%s/run/%s", shards, made[i]);
        assert_true(file_exists(file));
        memory_free(file);
    }
    text_release(&recipe);
    memory_free(path);
}

/* The first call leaves a file and fails; the second one would stumble over it. */
static void a_command_begins_in_an_empty_folder(void **state)
{
    (void)state;
    char *path = in_folder("command.yaml"), *made = in_folder("command/one/file");
    struct text recipe = {0};
    text_printf(&recipe,
                "run: %s/command\nstages:\n"
                "  one: {kind: command, argv: [sh, -c, 'test ! -e $OUT/file && touch $OUT/file && test -e %s/go']}\n",
                shards, shards);
    assert_int_equal(file_replace(path, recipe.data, recipe.length), 0);
    assert_int_equal(WEFT("run", path), 1);
    expect_complaint("sh ended with status 1");
    char *go = in_folder("go"), *partial = in_folder("command/one.partial");
    assert_int_equal(file_replace(go, "", 0), 0);
    int lock = open(partial, O_RDONLY | O_DIRECTORY); /* as a run that is at work holds it */
    assert_true(lock >= 0 && flock(lock, LOCK_EX) == 0);
    assert_int_equal(WEFT("run", path), 1);
    expect_complaint("another weft run is at work");
    close(lock);
    if (WEFT("run", path))
        fail_msg("%s", complained.data);
    assert_true(file_exists(made));
    text_release(&recipe);
    memory_free(go);
    memory_free(partial);
    memory_free(made);
    memory_free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_usage_exits_with_2_and_suggests),
        cmocka_unit_test(missing_files_exit_with_1),
        cmocka_unit_test(completion_and_man_name_every_command),
        cmocka_unit_test(compare_tells_equal_from_different),
        cmocka_unit_test(tokenize_there_and_back),
        cmocka_unit_test(extract_leaves_a_whole_model_or_nothing),
        cmocka_unit_test(truncated_models_exit_with_1),
        cmocka_unit_test(inspect_knows_every_kind),
        cmocka_unit_test(one_wrong_byte_is_found),
        cmocka_unit_test(gguf_headers_cut_anywhere_are_refused),
        cmocka_unit_test(a_recipe_with_an_unknown_key_is_named_by_line),
        cmocka_unit_test(reconstruct_puts_media_side_by_side),
        cmocka_unit_test(grid_prints_one_object_a_sub_model),
        cmocka_unit_test(plan_knows_a_stage_that_has_not_run),
        cmocka_unit_test(a_recipe_runs_extract_grid_and_routing),
        cmocka_unit_test(a_command_begins_in_an_empty_folder),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
