/* Options that are given more than once: repeated in their order, or refused, but never dropped. */
#include <string.h>
#include "tests/cli_fixture.h"

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
static void media_of_a_prompt_are_all_used_in_their_order(void **state)
{
    char *picture = in_folder("picture.png"), *noise = in_folder("noise.wav"), *other = in_folder("other.png");
    u8 pixels[32 * 32 * 3];
    (void)state;
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

static void a_prompt_with_too_many_media_is_refused(void **state)
{
    const char *words[40] = {"generate", model_folder, "--prompt", "a"};
    char *noise = in_folder("noise.wav");
    (void)state;
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

static void an_option_of_one_value_is_refused_if_it_is_there_twice(void **state)
{
    static const struct {
        const char *words[8], *says;
    } cases[] = {
        {{"generate", "model", "--prompt", "a", "--prompt", "b"}, "--prompt is given twice, \"a\" and \"b\""},
        {{"generate", "model", "--prompt=a", "--to=text", "--to=text"}, "--to is given twice"},
        {{"extract", "model", "-o", "a", "-o=b"}, "-o is given twice"},
        {{"extract", "model", "-o", "a", "--layers", "0", "--layers", "1"}, "--layers is given twice"},
        {{"grid", "model", "--data", "a", "--data", "a"}, "--data is given twice"},
        {{"report", "model", "-o", "a", "-o", ""}, "-o is given twice"},
        {{"run", "recipe.yaml", "--layout", "data=1", "--layout", "data=1"}, "--layout is given twice"},
        {{"inspect", "model", "--device", "cpu", "--device", "cuda"}, "unknown option --device"},
        {{"eval", "model", "--device", "cpu", "--device", "cpu"}, "--device is given twice"},
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(run("", cases[i].words), 2);
        expect_complaint(cases[i].says);
    }
    assert_int_equal(WEFT("generate", "--help"), 0);
    assert_non_null(strstr(said.data, "media keep the order of the arguments; may be repeated"));
}

static void an_override_is_refused_if_it_is_there_twice(void **state)
{
    const char *recipe = SOURCE_TREE "/recipes/quickstart.yaml";
    (void)state;
    assert_int_equal(WEFT("run", recipe, "base.steps=3", "run=/dev/null/a", "base.steps=4"), 2);
    expect_complaint("base.steps is given twice, \"3\" and \"4\"");
    assert_int_equal(WEFT("plan", recipe, "base", "base.model={width: 64}", "base.model.layers=6", "run=/dev/null/a"),
                     0);
    assert_int_equal(WEFT("run", recipe, "run=/dev/null/a", "run=/dev/null/b"), 2);
    expect_complaint("run is given twice, \"/dev/null/a\" and \"/dev/null/b\"");
    assert_int_equal(WEFT("plan", recipe, "seed=1", "seed=1", "base"), 2);
    expect_complaint("seed is given twice");
    assert_int_equal(WEFT("plan", recipe, "base", "base.steps=3", "sft.steps=4", "run=/dev/null/a"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(media_of_a_prompt_are_all_used_in_their_order),
        cmocka_unit_test(a_prompt_with_too_many_media_is_refused),
        cmocka_unit_test(an_option_of_one_value_is_refused_if_it_is_there_twice),
        cmocka_unit_test(an_override_is_refused_if_it_is_there_twice),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
