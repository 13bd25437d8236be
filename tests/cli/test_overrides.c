/* `weft run`: settings of the command line that the next call does not repeat, and stages of some
 * kinds alone. */
#include <string.h>
#include "core/json.h"
#include "tests/cli_fixture.h"

/* Three stages; `small` and `text` read `half`. */
static char *write_recipe(const char *name, const char *experts)
{
    char *path = string_format("%s/%s.yaml", shards, name),
         *text = string_format("run: %s/%s\nstages:\n"
                               "  half: {kind: extract, from: %s, experts: %s, layers: 0-3}\n"
                               "  small: {kind: command, argv: [touch, $OUT/file]}\n"
                               "  text: {kind: export, from: half}\n",
                               shards, name, model_folder, experts);
    assert_int_equal(file_replace(path, text, (i64)strlen(text)), 0);
    memory_free(text);
    return path;
}

static void expect_no_complaint(const char *part)
{
    if (strstr(complained.data, part))
        fail_msg("unexpected \"%s\" in: %s", part, complained.data);
}

TEST(overrides_that_are_not_repeated_are_named)
{
    static const char says[] = "kept: the last call had other settings on its command line: ";
    char *path = write_recipe("kept", "4"), *file = in_folder("kept/overrides.json");
    if (WEFT("run", path, "small"))
        fail_msg("%s", complained.data);
    assert_false(file_exists(file)); /* nothing was overridden */
    for (int again = 0; again < 2; again++) {
        if (WEFT("run", path, "half", "half.experts=3", "half.topk=1"))
            fail_msg("%s", complained.data);
        expect_no_complaint(says);
    }
    expect_complaint("half: done before");
    /* A call of other stages neither drops them nor speaks of them. */
    if (WEFT("run", path, "small", "text"))
        fail_msg("%s", complained.data);
    expect_no_complaint(says);
    for (int again = 0; again < 2; again++) { /* refused, and so it is the next time */
        assert_int_equal(WEFT("run", path), 1);
        expect_complaint(says);
        expect_complaint("half.experts=\"3\" (now \"4\"), half.topk=\"1\" (now null)\n");
        expect_complaint("made with other settings");
    }
    assert_int_equal(WEFT("run", path, "half.topk=1"), 1);
    expect_complaint("command line: half.experts=\"3\" (now \"4\")\n");
    if (WEFT("run", path, "half.topk=1", "half.experts=3"))
        fail_msg("%s", complained.data);
    expect_no_complaint(says);
    if (WEFT("run", path, "--redo"))
        fail_msg("%s", complained.data);
    expect_complaint(says);
    if (WEFT("run", path)) /* the record follows what was run */
        fail_msg("%s", complained.data);
    expect_no_complaint(says);
    memory_free(path);
    memory_free(file);
}

TEST(overrides_of_the_head_and_of_lists_are_named)
{
    char *path = write_recipe("head", "4"), *file = in_folder("head/overrides.json");
    if (WEFT("run", path, "half", "small", "seed=7", "precision=f32", "half.experts=3", "small.argv=[touch, $OUT/b]"))
        fail_msg("%s", complained.data);
    assert_int_equal(WEFT("run", path, "half", "small"), 1);
    expect_complaint("half.experts=\"3\" (now \"4\")");
    expect_complaint("small.argv=[\"touch\",\"$OUT/b\"] (now [\"touch\",\"$OUT/file\"])");
    expect_complaint("seed=7 (now 1)");
    expect_no_complaint("precision="); /* the run keeps it */
    memory_free(path);
    path = write_recipe("head", "3"); /* in the recipe it is the same setting */
    if (WEFT("run", path, "half", "seed=7"))
        fail_msg("%s", complained.data);
    expect_no_complaint("the last call");
    expect_complaint("half: done before");
    assert_int_equal(file_replace(file, "{", 1), 0); /* a damaged record stops nothing */
    if (WEFT("run", path, "half", "seed=7"))
        fail_msg("%s", complained.data);
    memory_free(path);
    memory_free(file);
}

TEST(stages_of_some_kinds_run_alone)
{
    char *path = write_recipe("kinds", "4"), *half = in_folder("kinds/half"), *text = in_folder("kinds/text"),
         *small = in_folder("kinds/small");
    assert_int_equal(WEFT("run", path, "--kinds", "extract,grids"), 2);
    expect_complaint("there is no stage kind \"grids\"; the kinds: command, tokenizer-text, ");
    assert_int_equal(WEFT("run", path, "--kinds", "extract,"), 2);
    assert_int_equal(WEFT("run", path, "--kinds=export,command"), 1);
    expect_complaint("read stages that are not done: half. Run those first");
    assert_int_equal(WEFT("run", path, "--kinds", "rl"), 2);
    expect_complaint("the stages: half (extract), small (command), text (export)");
    assert_int_equal(WEFT("run", path, "small", "--kinds", "export"), 2);
    assert_false(file_exists(half));
    if (WEFT("run", path, "--kinds", "command,extract"))
        fail_msg("%s", complained.data);
    assert_true(file_exists(half) && file_exists(small) && !file_exists(text));
    if (WEFT("run", path, "--kinds", "export"))
        fail_msg("%s", complained.data);
    assert_true(file_exists(text));
    /* Without a recipe, or without a value, they are listed. */
    assert_int_equal(WEFT("run", "--kinds"), 0);
    assert_non_null(strstr(said.data, "kind rl: "));
    assert_int_equal(WEFT("run", "--kinds", "grid"), 0);
    assert_non_null(strstr(said.data, "kind grid: "));
    assert_null(strstr(said.data, "kind rl: "));
    assert_int_equal(WEFT("run", path, "--kinds"), 0);
    assert_non_null(strstr(said.data, "kind rl: "));
    memory_free(path);
    memory_free(half);
    memory_free(text);
    memory_free(small);
}

int main(void)
{
    return tests_run(make, clear);
}
