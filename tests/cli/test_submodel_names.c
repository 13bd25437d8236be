/* Named sub-models: every command takes MODEL@NAME as it takes the same choice by options, and the
 * file of names is checked when it is read. */
#include <string.h>
#include "core/json.h"
#include "submodels/submodels.h"
#include "tests/cli_fixture.h"

static const char lists[] = "[[],[1,3,4,7],[0,1,2,3],[2,4,6,7]]";

static char *named(const char *name)
{
    return string_format("%s@%s", model_folder, name);
}

static void remove_names(void)
{
    char *path = path_join(model_folder, "weft/submodels.json");
    if (file_exists(path))
        assert_int_equal(directory_remove(path), 0);
    memory_free(path);
}

/* What the command says with these words behind MODEL. */
static char *output_of(const char *model, const char *const *words)
{
    const char *all[24] = {words[0], model};
    for (i64 i = 1; (all[i + 1] = words[i]); i++)
        ;
    if (run("", all))
        fail_msg("%s: %s", words[0], complained.data);
    return string_copy(said.data ? said.data : "");
}

TEST(a_name_is_the_choice_that_made_it)
{
    char *model = named("small"), *out = in_folder("out.safetensors"), *ids = in_folder("none");
    remove_names();
    if (WEFT("extract", model_folder, "--name", "small", "--layers", "0,2,3", "--experts", lists, "--topk", "1"))
        fail_msg("%s", complained.data);
    const char *const commands[][10] = {
        {"generate", "--prompt", "a word", "--greedy", "--max-tokens", "9"},
        {"eval", "--data", shards, "--part", "train", "--length", "128", "--rows", "4"},
    };
    for (i64 i = 0; i < COUNT_OF(commands); i++) {
        const char *chosen[24] = {commands[i][0], "--layers", "0,2,3", "--experts", lists, "--topk", "1"};
        for (i64 k = 1; commands[i][k]; k++)
            chosen[6 + k] = commands[i][k];
        char *by_name = output_of(model, commands[i]), *by_options = output_of(model_folder, chosen);
        char *whole = output_of(model_folder, commands[i]);
        assert_string_equal(by_name, by_options);
        assert_string_not_equal(by_name, whole);
        memory_free(by_name);
        memory_free(by_options);
        memory_free(whole);
    }
    memory_free(model);
    memory_free(out);
    memory_free(ids);
}

TEST(extracts_exports_and_grids_take_names)
{
    char *model = named("small"), *out = in_folder("cut"), *hf = in_folder("hf"), *gguf = in_folder("cut.gguf");
    char *pictures = in_folder("looked");
    struct model_config c;
    if (WEFT("extract", model, "-o", out))
        fail_msg("%s", complained.data);
    assert_int_equal(model_config_load(&c, out), 0);
    assert_int_equal(c.layers, 3);
    assert_int_equal(c.experts, 4);
    assert_int_equal(c.topk, 1);
    if (WEFT("export", model, "-o", hf) || WEFT("export", model, "-o", gguf, "--to", "gguf"))
        fail_msg("%s", complained.data);
    assert_int_equal(model_config_load(&c, hf), 0);
    assert_int_equal(c.layers, 3);
    assert_int_equal(c.experts, 4);
    if (WEFT("routing", model, "--data", shards, "--part", "train", "-o", pictures))
        fail_msg("%s", complained.data);
    if (WEFT("grid", model_folder, "--data", shards, "--part", "train", "--length", "64", "--rows", "2",
             "--decode-tokens", "2", "--rounds", "2", "--json"))
        fail_msg("%s", complained.data);
    assert_non_null(strstr(said.data, "\"@small\""));
    assert_non_null(strstr(said.data, "\"k/2\""));
    if (WEFT("grid", model, "--data", shards, "--part", "train", "--length", "64", "--rows", "2", "--decode-tokens",
             "2", "--rounds", "2", "--json"))
        fail_msg("%s", complained.data);
    char *first = strstr(said.data, "\"name\":\"full\""), *second = strstr(said.data, "\"name\":\"@small\"");
    assert_true(first && second && first < second);
    assert_null(strstr(said.data, "\"k/2\""));
    assert_int_equal(directory_remove(out) || directory_remove(hf) || directory_remove(pictures), 0);
    memory_free(model);
    memory_free(out);
    memory_free(hf);
    memory_free(gguf);
    memory_free(pictures);
}

TEST(wrong_names_are_refused)
{
    char *model = named("small"), *other = named("large");
    assert_int_equal(WEFT("extract", model_folder, "--name", "small", "--topk", "1"), 2);
    expect_complaint("has one of this name");
    assert_int_equal(WEFT("extract", model_folder, "--name", "a/b", "--topk", "1"), 2);
    expect_complaint("letters, digits");
    assert_int_equal(WEFT("extract", model_folder, "--name", "", "--topk", "1"), 2);
    assert_int_equal(WEFT("extract", model_folder, "--name", "a", "-o", "b", "--topk", "1"), 2);
    expect_complaint("-o DIR or --name NAME");
    assert_int_equal(WEFT("eval", other, "--data", shards), 2);
    expect_complaint("has no sub-model of this name: expected one of small");
    assert_int_equal(WEFT("eval", model, "--data", shards, "--topk", "1"), 2);
    expect_complaint("names a sub-model: expected no --layers");
    memory_free(model);
    memory_free(other);
}

/* A stage that reads the model is still done when the model gets a name. */
TEST(a_name_changes_no_input)
{
    char *recipe = in_folder("names.yaml"), *text;
    text = string_format("run: %s/names\nstages:\n  cut: {kind: extract, from: %s, topk: 1}\n", shards, model_folder);
    assert_int_equal(file_replace(recipe, text, (i64)strlen(text)), 0);
    if (WEFT("run", recipe) || WEFT("extract", model_folder, "--name", "later", "--topk", "1"))
        fail_msg("%s", complained.data);
    assert_int_equal(WEFT("run", recipe), 0);
    expect_complaint("done before");
    memory_free(text);
    memory_free(recipe);
}

static u64 hash_of(const char *folder)
{
    struct buffer file = {0};
    char *path = path_join(folder, "model.safetensors");
    assert_int_equal(file_read(&file, path), 0);
    u64 hash = hash_bytes(file.data, file.length, 0);
    buffer_release(&file);
    memory_free(path);
    return hash;
}

/* Options of the command are settings of the stage, with its defaults: both cut out the same. */
TEST(the_command_does_what_the_stage_does)
{
#define FEW "--rows", "4", "--length", "64"
    static const char *const options[][6] = {{"--criterion", "use", FEW},
                                             {"--criterion", "weight", FEW},
                                             {"--criterion", "man", FEW},
                                             {"--criterion", "reap", FEW},
                                             {"--criterion", "man", "--length", "32"},
                                             {"--criterion", "man", "--for", "text"}};
#undef FEW
    char *recipe = in_folder("cuts.yaml");
    struct buffer text = {0};
    u64 hashes[COUNT_OF(options)];
    buffer_printf(&text, "run: %s/cuts\nstages:\n", shards);
    for (i64 i = 0; i < COUNT_OF(options); i++) {
        const char *words[20] = {"extract", model_folder, "--experts", "4", "--data", shards, "--part", "train", "-o"};
        char *out = string_format("%s/cut-%lld", shards, (long long)i);
        words[9] = out;
        buffer_printf(&text, "  s%lld: {kind: extract, from: %s, experts: \"4\", data: %s, part: train", (long long)i,
                      model_folder, shards);
        for (int k = 0; k < 6 && options[i][k]; k += 2) {
            words[10 + k] = options[i][k];
            words[11 + k] = options[i][k + 1];
            buffer_printf(&text, ", %s: %s", options[i][k] + 2, options[i][k + 1]);
        }
        buffer_printf(&text, "}\n");
        if (run("", words))
            fail_msg("%s", complained.data);
        hashes[i] = hash_of(out);
        memory_free(out);
    }
    assert_int_equal(file_replace(recipe, text.data, text.length), 0);
    if (WEFT("run", recipe))
        fail_msg("%s", complained.data);
    for (i64 i = 0; i < COUNT_OF(options); i++) {
        char *out = string_format("%s/cuts/s%lld", shards, (long long)i);
        if (hash_of(out) != hashes[i])
            fail_msg("%s %s", options[i][0], options[i][1]);
        memory_free(out);
    }
    for (i64 i = 0; i < 4; i++) /* criteria choose other experts of this model: one taken for another is seen */
        for (i64 k = 0; k < i; k++)
            assert_true(hashes[i] != hashes[k]);
    buffer_release(&text);
    memory_free(recipe);
}

int main(void)
{
    return tests_run(make, clear);
}
