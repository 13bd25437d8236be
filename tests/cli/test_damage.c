/* Damage of a finished run: whoever reads a damaged file names it, and nothing is read as a default. */
#include "core/inventory.h"
#include "core/json.h"
#include "tests/cli_fixture.h"
#include "train/heldout.h"

#define SIZES "steps: 2, heldout_rows: 1, batch: {rows: 1, length: 128, micro_rows: 1}, elastic: {on: false}"
#define MODEL                                                                                                          \
    "model: {width: 32, layers: 4, heads: 2, kv_heads: 1, head_width: 16, experts: 4, expert_width: 16, vit_layers: "  \
    "1, vit_width: 16, vit_heads: 2}"

static char *recipe, *run_folder, *data; /* data: the shards alone, since changed inputs are refused */

static char *in_run(const char *name)
{
    return path_join(run_folder, name);
}

static int setup(void **state)
{
    struct buffer text = {0};
    make(state);
    data = in_folder("data");
    char *copy = string_format(
        "cd %s && mkdir data && cp -r train text shards.json data && ln -s train data/validation", shards);
    require(system(copy) == 0, "%s", copy);
    recipe = in_folder("damage.yaml");
    run_folder = in_folder("run");
    buffer_printf(&text,
                  "run: %s\nprecision: f32\nstages:\n  base: {kind: pretrain, data: %s, " SIZES ", " MODEL "}\n"
                  "  grid: {kind: grid, from: base, data: %s, rows: 1, decode_tokens: 1}\n",
                  run_folder, data, data);
    require(file_replace(recipe, text.data, text.length) == 0, "%s", error_text());
    require(WEFT("run", recipe) == 0, "%s", complained.data);
    buffer_release(&text);
    memory_free(copy);
    return 0;
}

static int teardown(void **state)
{
    memory_free(recipe);
    memory_free(run_folder);
    memory_free(data);
    return clear(state);
}

/* ---- Damages ---- */

enum damage_way { FLIPPED, ZEROED, CUT, DELETED, WAYS };

static void damage(const char *path, enum damage_way way, struct buffer *whole)
{
    struct buffer damaged = {0};
    i64 tail;
    assert_int_equal(file_read(whole, path), 0);
    buffer_append(&damaged, whole->data, whole->length);
    tail = damaged.length / 4 + 1;
    if (way == FLIPPED)
        damaged.data[damaged.length / 2] ^= 1;
    if (way == ZEROED)
        memset(damaged.data + damaged.length - tail, 0, (size_t)tail);
    if (way == DELETED)
        assert_int_equal(remove(path), 0);
    else
        assert_int_equal(file_replace(path, damaged.data, way == CUT ? damaged.length / 2 : damaged.length), 0);
    buffer_release(&damaged);
    inventory_forget(); /* the program runs in a fork of this process */
}

static void repair(const char *path, struct buffer *whole)
{
    assert_int_equal(file_replace(path, whole->data, whole->length), 0);
    inventory_forget();
    buffer_release(whole);
}

static void expect_silence(const char *file)
{
    if (strstr(complained.data, strrchr(file, '/') ? strrchr(file, '/') + 1 : file))
        fail_msg("%s is named: %s", file, complained.data);
}

static void expect_named(const char *file, const char *const *words, bool refused)
{
    char *path = in_run(file);
    for (enum damage_way way = FLIPPED; way < WAYS; way++) {
        struct buffer whole = {0};
        assert_int_equal(run("{\"text\":\"a\"}\n", words), 0);
        expect_silence(file);
        damage(path, way, &whole);
        int status = run("{\"text\":\"a\"}\n", words);
        if (refused ? status != 1 : status != 0)
            fail_msg("%s, damage %d: status %d: %s", file, (int)way, status, complained.data);
        expect_complaint(strrchr(file, '/') ? strrchr(file, '/') + 1 : file);
        repair(path, &whole);
    }
    memory_free(path);
}
#define REFUSED(file, ...) expect_named(file, (const char *const[]){__VA_ARGS__, NULL}, true)
#define WARNED(file, ...) expect_named(file, (const char *const[]){__VA_ARGS__, NULL}, false)

TEST(what_a_model_needs_is_refused_when_damaged)
{
    char *base = in_run("base");
    REFUSED("base/tokenizer.json", "tokenize", base);
    REFUSED("base/config.json", "generate", base, "--prompt", "a", "--max-tokens", "1");
    REFUSED("base/weft/loss_weights.json", "grid", base, "--data", data);
    memory_free(base);
}

TEST(the_page_names_what_is_left_out)
{
    char *page = in_folder("page.html");
    WARNED("base/heldout.json", "report", run_folder, "-o", page);
    WARNED("base/metrics.jsonl", "report", run_folder, "-o", page);
    WARNED("grid/grid.json", "report", run_folder, "-o", page);
    WARNED("grid/done.json", "report", run_folder, "-o", page);
    memory_free(page);
}

/* Files beside the stages' folders have checksums of their own. */
TEST(files_of_the_run_have_checksums)
{
    static const char *const names[] = {"timings.jsonl", "run.json"};
    char *page = in_folder("page.html");
    for (i64 i = 0; i < COUNT_OF(names); i++)
        for (enum damage_way way = FLIPPED; way < WAYS - i; way++) { /* without run.json it is no run */
            struct buffer whole = {0};
            char *path = in_run(names[i]);
            damage(path, way, &whole);
            assert_int_equal(WEFT("report", run_folder, "-o", page), 0);
            expect_complaint(names[i]);
            repair(path, &whole);
            memory_free(path);
        }
    memory_free(page);
}

TEST(an_edit_is_taken_if_the_user_says_so)
{
    struct buffer whole = {0};
    char *base = in_run("base"), *weights = in_run("base/" LOSS_WEIGHTS_FILE),
         *inventory = in_run("base/" INVENTORY_FILE);
    assert_int_equal(file_read(&whole, weights), 0);
    assert_int_equal(file_replace(weights, "{\"text\": 2}", 11), 0);
    inventory_forget();
    assert_int_equal(WEFT("grid", base, "--data", data), 1);
    expect_complaint("weft inspect");
    assert_int_equal(WEFT("inspect", base), 1);
    expect_complaint("loss_weights.json");
    assert_int_equal(WEFT("inspect", base, "--accept"), 0);
    assert_int_equal(WEFT("grid", base, "--data", data), 0);
    assert_int_equal(WEFT("inspect", model_folder, "--accept"), 2); /* no stage made it */
    repair(weights, &whole);
    assert_int_equal(WEFT("grid", base, "--data", data), 1);
    assert_int_equal(remove(inventory), 0); /* a stage of an older version */
    inventory_forget();
    assert_int_equal(WEFT("grid", base, "--data", data), 0);
    assert_int_equal(WEFT("inspect", base, "--accept"), 0);
    memory_free(base);
    memory_free(weights);
    memory_free(inventory);
}

/* A call that is killed between its inventory and the new name of its folder. */
TEST(a_kill_after_the_inventory_is_resumed)
{
    char *base = in_run("base"), *partial = in_run("base.partial"), *done = in_run("base.partial/done.json");
    char *inventory = in_run("base/" INVENTORY_FILE);
    assert_int_equal(rename(base, partial), 0);
    inventory_forget();
    assert_int_equal(remove(done), 0);
    if (WEFT("run", recipe, "base"))
        fail_msg("%s", complained.data);
    expect_complaint("resuming from step 2");
    assert_true(file_exists(inventory));
    assert_int_equal(WEFT("inspect", base), 0);
    memory_free(base);
    memory_free(partial);
    memory_free(done);
    memory_free(inventory);
}

/* ---- Tokenizers beside shards ---- */

TEST(a_damaged_tokenizer_is_named_before_training)
{
    static const char *const names[] = {"weights.safetensors", "config.json"};
    char *from = path_join(model_folder, "weft/vision"), *to = path_join(data, "vision"), *out = in_folder("other");
    char *command = string_format("cp -r %s %s", from, to), *set = string_format("run=%s", out);
    assert_int_equal(system(command), 0);
    for (i64 i = 0; i < COUNT_OF(names); i++)
        for (enum damage_way way = i ? ZEROED : FLIPPED; way < WAYS; way++) {
            struct buffer whole = {0};
            char *path = path_join(to, names[i]);
            damage(path, way, &whole);
            assert_int_equal(WEFT("run", recipe, "base", set), 1);
            expect_complaint(names[i]);
            repair(path, &whole);
            memory_free(path);
        }
    assert_int_equal(WEFT("run", recipe, "base", set), 0);
    char *copy = string_format("%s/base/weft/vision/weights.safetensors", out);
    assert_true(file_exists(copy));
    assert_int_equal(directory_remove(to), 0);
    memory_free(copy);
    memory_free(from);
    memory_free(to);
    memory_free(out);
    memory_free(command);
    memory_free(set);
}

TEST(a_damaged_tokenizer_of_a_model_is_named)
{
    struct buffer whole = {0};
    char *path = path_join(model_folder, "weft/vision/weights.safetensors"), *picture = in_folder("picture.png");
    char *out = in_folder("pictures");
    damage(path, FLIPPED, &whole);
    assert_int_equal(WEFT("reconstruct", model_folder, picture, "-o", out), 1);
    expect_complaint("weights.safetensors: the checksum");
    repair(path, &whole);
    assert_int_equal(WEFT("reconstruct", model_folder, picture, "-o", out), 0);
    memory_free(path);
    memory_free(picture);
    memory_free(out);
}

/* ---- Closed descriptors ---- */

TEST(closed_streams_take_no_file)
{
    struct buffer text = {0};
    int status;
    char *out = in_folder("closed"), *set = string_format("run=%s", out);
    char *argv[] = {"weft", "run", recipe, "base", set, NULL}, *path = string_format("%s/base/metrics.jsonl", out);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        for (int number = 0; number <= 2; number++)
            close(number);
        weft_become(argv);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(file_read(&text, path), 0);
    i64 lines = 0;
    for (char *line = text.data, *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
        struct json *j = json_parse_line(line, end - line, path, lines + 1);
        assert_int_equal(json_integer(json_get(j, "step"), -1), lines + 1);
        json_free(j);
    }
    assert_int_equal(lines, 2);
    buffer_release(&text);
    memory_free(out);
    memory_free(set);
    memory_free(path);
}

int main(void)
{
    return tests_run(setup, teardown);
}
