/* Options that are given more than once: repeated in their order, or refused, but never dropped. */
#include <string.h>
#include "cli/cli.h"
#include "pipeline/pipeline.h"
#include "core/json.h"
#include "core/settings.h"
#include "tests/cli_fixture.h"

struct names_of_options {
    const struct setting *table;
    i64 found;
};

/* Counts the settings of the table that have an option of their name. */
static void look_for_settings(void *context, const struct option *options)
{
    struct names_of_options *n = context;
    n->found = 0;
    for (const struct setting *s = n->table; s->key; s++) {
        char *name = string_copy(s->key);
        for (char *at = name; *at; at++)
            *at = *at == '_' || *at == '.' ? '-' : *at;
        for (const struct option *o = options; o->name; o++)
            n->found += strcmp(o->name, name) == 0;
        memory_free(name);
    }
}

/* `generate` and `report` have commands that do something else. */
TEST(stages_and_their_commands_have_the_same_settings)
{
    i64 compared = 0;
    for (const struct stage_kind *k = stage_kinds; k->name; k++)
        for (const struct command *c = commands; c->name; c++) {
            struct names_of_options n = {k->table, 0};
            i64 settings = 0;
            if (strcmp(c->name, k->name) != 0 || strcmp(c->name, "generate") == 0 || strcmp(c->name, "report") == 0)
                continue;
            for (const struct setting *s = k->table; s->key; s++)
                settings += s->help && strcmp(s->key, "from") != 0;
            command_options(c, look_for_settings, &n);
            if (n.found != settings)
                fail_msg("%s: %lld of %lld settings are options", c->name, (long long)n.found, (long long)settings);
            compared++;
        }
    assert_int_equal(compared, 5); /* grid, extract, export, eval, routing */
}

static char *losses_in(const struct json *result)
{
    struct buffer text = {0};
    json_print(&text, json_get(result, "losses"), 0);
    return text.data;
}

/* The stage and the command measure the same sub-model in the same form. */
TEST(the_stage_eval_takes_a_sub_model)
{
    char *recipe = in_folder("eval.yaml"), *folder = in_folder("eval-run");
    char *text =
        string_format("run: %s\nprecision: f32\nstages:\n  e: {kind: eval, from: %s, data: %s, part: train, length: "
                      "64, topk: 1, weights: int8}\n",
                      folder, model_folder, shards);
    FILE *file = fopen(recipe, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    if (WEFT("run", recipe))
        fail_msg("%s", complained.data);
    char *path = path_join(folder, "e/eval.json");
    struct json *of_stage = json_load(path);
    static const char *const forms[][2] = {{"1", "int8"}, {"2", "int8"}, {"1", "stored"}};
    char *losses[1 + COUNT_OF(forms)] = {losses_in(of_stage)};
    for (i64 i = 0; i < COUNT_OF(forms); i++) {
        if (WEFT("eval", model_folder, "--data", shards, "--part", "train", "--length", "64", "--topk", forms[i][0],
                 "--weights", forms[i][1], "--json"))
            fail_msg("%s", complained.data);
        struct json *j = json_parse(said.data, said.length, "stdout");
        losses[1 + i] = losses_in(j);
        json_free(j);
    }
    assert_string_equal(losses[0], losses[1]);
    assert_string_not_equal(losses[0], losses[2]);
    assert_string_not_equal(losses[0], losses[3]);
    for (i64 i = 0; i < COUNT_OF(losses); i++)
        memory_free(losses[i]);
    json_free(of_stage);
    assert_int_equal(directory_remove(folder), 0);
    memory_free(path);
    memory_free(text);
    memory_free(recipe);
    memory_free(folder);
}

static char *answer_to(const char *a, const char *b, const char *c, const char *d)
{
    const char *words[] = {"generate", model_folder, "--to", "image", "-o", NULL, a, b, c, d, NULL};
    struct buffer png = {0};
    char *out = in_folder("answer.png");
    words[5] = out;
    if (run("", words))
        fail_msg("%s", complained.data);
    assert_int_equal(file_read(&png, out), 0);
    assert_int_equal(directory_remove(out), 0);
    char *hash = string_format("%016llx", (unsigned long long)hash_bytes(png.data, png.length, 0));
    buffer_release(&png);
    memory_free(out);
    return hash;
}

/* All answers differ, since each prompt has other parts or another order. */
TEST(media_of_a_prompt_are_all_used_in_their_order)
{
    char *picture = in_folder("picture.png"), *noise = in_folder("noise.wav"), *other = in_folder("other.png");
    u8 pixels[32 * 32 * 3];
    for (i64 i = 0; i < COUNT_OF(pixels); i++)
        pixels[i] = (u8)(i * 7 % 251);
    assert_int_equal(image_write_png(other, pixels, 32, 32), 0);
    char *answers[] = {
        answer_to("--image", picture, NULL, NULL),         answer_to("--image", other, NULL, NULL),
        answer_to("--image", picture, "--image", other),   answer_to("--image", other, "--image", picture),
        answer_to("--image", picture, "--image", picture), answer_to("--image", picture, "--audio", noise),
        answer_to("--audio", noise, "--image", picture)};
    for (i64 i = 0; i < COUNT_OF(answers); i++)
        for (i64 k = 0; k < i; k++)
            if (strcmp(answers[i], answers[k]) == 0)
                fail_msg("prompts %lld and %lld have the same answer", (long long)k, (long long)i);
    for (i64 i = 0; i < COUNT_OF(answers); i++)
        memory_free(answers[i]);
    memory_free(picture);
    memory_free(noise);
    memory_free(other);
}

TEST(a_prompt_with_too_many_media_is_refused)
{
    const char *words[40] = {"generate", model_folder, "--prompt", "a"};
    char *noise = in_folder("noise.wav");
    for (int i = 0; i < 17; i++) { /* `run` takes at most 31 words */
        char *word = string_format("--audio=%s", noise);
        words[4 + i] = word;
    }
    assert_int_equal(run("", words), 1);
    expect_complaint("a prompt has at most 16");
    for (int i = 0; i < 17; i++)
        memory_free((char *)(uintptr_t)words[4 + i]);
    memory_free(noise);
}

TEST(help_says_which_options_may_be_repeated)
{
    assert_int_equal(WEFT("generate", "--help"), 0);
    assert_non_null(strstr(said.data, "media keep the order of the arguments; may be repeated"));
}

TEST(an_override_is_refused_if_it_is_there_twice)
{
    const char *recipe = SOURCE_TREE "/recipes/quickstart.yaml";
    assert_int_equal(WEFT("run", recipe, "base.steps=3", "run=/dev/null/a", "base.steps=4"), 2);
    expect_complaint("base.steps is given twice, \"3\" and \"4\"");
    assert_int_equal(WEFT("plan", recipe, "base", "base.model={width: 64}", "base.model.layers=7", "run=/dev/null/a"),
                     0);
    assert_int_equal(WEFT("run", recipe, "run=/dev/null/a", "run=/dev/null/b"), 2);
    expect_complaint("run is given twice, \"/dev/null/a\" and \"/dev/null/b\"");
    assert_int_equal(WEFT("plan", recipe, "seed=1", "seed=1", "base"), 2);
    expect_complaint("seed is given twice");
    assert_int_equal(WEFT("plan", recipe, "base", "base.steps=3", "sft.steps=4", "run=/dev/null/a"), 0);
}

/* Both ends of a range are in it, and a value is the whole word. */
TEST(values_of_options_are_within_their_range)
{
    static const struct {
        const char *text;
        i64 value;
        bool good;
    } integers[] = {
        {NULL, 7, true},  {"3", 3, true}, {"9", 9, true},   {"2", 0, false},   {"10", 0, false},
        {"-5", 0, false}, {"", 0, false}, {"4x", 0, false}, {"4.0", 0, false}, {"99999999999999999999", 0, false}};
    static const struct {
        const char *text;
        double value;
        bool good;
    } numbers[] = {{NULL, 0.25, true}, {"0", 0, true},    {"1", 1, true},    {"5e-1", 0.5, true},
                   {"-0.1", 0, false}, {"1.1", 0, false}, {"nan", 0, false}, {"0.5 ", 0, false}};
    static const struct {
        const char *text;
        enum dtype dtype;
        int bits;
    } weights[] = {{"stored", DTYPE_OTHER, 0},
                   {"f32", DTYPE_F32, 0},
                   {"bf16", DTYPE_BF16, 0},
                   {"int8", DTYPE_OTHER, 8},
                   {"int4", DTYPE_OTHER, 4}};
    for (i64 i = 0; i < COUNT_OF(integers); i++) {
        int status = 0;
        i64 value = option_integer(integers[i].text, "n", 7, 3, 9, &status);
        if ((status == 0) != integers[i].good || (status == 0 && value != integers[i].value))
            fail_msg("%s: %lld", integers[i].text ? integers[i].text : "absent", (long long)value);
    }
    for (i64 i = 0; i < COUNT_OF(numbers); i++) {
        int status = 0;
        double value = option_number(numbers[i].text, "x", 0.25, 0, 1, &status);
        if ((status == 0) != numbers[i].good || (status == 0 && value != numbers[i].value))
            fail_msg("%s: %g", numbers[i].text ? numbers[i].text : "absent", value);
    }
    for (i64 i = 0; i < COUNT_OF(weights); i++) {
        struct model_source source = {.dtype = DTYPE_OTHER, .bits = 3};
        int choice = setting_choice(WEIGHTS_CHOICES, weights[i].text);
        assert_true(choice >= 0);
        model_source_take(&source, choice);
        if (source.dtype != weights[i].dtype || source.bits != weights[i].bits)
            fail_msg("%s: dtype %d, %d bits", weights[i].text, (int)source.dtype, source.bits);
    }
    assert_int_equal(setting_choice(WEIGHTS_CHOICES, "int2"), -1);
}

/* Behind -- words are no options. */
TEST(words_behind_two_dashes_are_arguments)
{
    assert_int_equal(WEFT("inspect", "--", "--json"), 1);
    expect_complaint("--json");
    if (strstr(complained.data, "unknown option"))
        fail_msg("%s", complained.data);
    assert_int_equal(WEFT("inspect", "--jsoon", "--"), 2);
    expect_complaint("unknown option --jsoon, did you mean --json?");
}

int main(void)
{
    return tests_run(make, clear);
}
