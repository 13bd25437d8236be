/* `weft init`: the size of the model, the steps, the rows and what is held out, by the amount of data. */
#include "data/sources/sources.h"
#include "tests/init_fixture.h"

static void rows_are_as_long_as_most_conversations(void **state)
{
    (void)state;
    char *folder = new_folder("long-chats");
    put_long_chats(folder, "a.jsonl", 100, 500);
    expect_recipe(folder, "bpe shards base grid sft samples routing export report");
    expect_setting("base", "batch.length", "512.0");
    assert_null(strstr(complained.data, "longer than a row"));
    put_long_chats(folder, "b.jsonl", 1, 5000); /* one of 101: rows stay, and it is named */
    expect_recipe(folder, "bpe shards base grid sft samples routing export report");
    expect_setting("base", "batch.length", "512.0");
    assert_int_equal(WEFT("init", folder), 0);
    expect_complaint("1 of 101 x conversation: by their sizes longer than a row of 512 positions");
    put_long_chats(folder, "b.jsonl", 40, 5000);
    put_long_chats(folder, "c.jsonl", 2, 40000);
    expect_recipe(folder, "bpe shards base grid half more sft samples routing export report");
    expect_setting("base", "batch.length", "2048.0");
    expect_setting("sft", "batch.length", "2048.0");
    assert_int_equal(WEFT("init", folder), 0);
    assert_non_null(strstr(said.data, "# Rows of 2048, as more than 2 % of the samples are longer than 1024."));
    expect_complaint("2 of 142 x conversation: by their sizes longer than a row of 2048 positions");
    put_long_chats(folder, "c.jsonl", 90, 40000);
    expect_recipe(folder, "bpe shards base grid half more sft samples routing export report");
    expect_setting("base", "batch.length", "4096.0");
    memory_free(folder);
}

static void too_little_data_are_warned_of(void **state)
{
    (void)state;
    char *folder = new_folder("tiny");
    put(folder, "a.txt", "twenty bytes of text");
    put(folder, "b.txt", "twenty bytes of more.");
    assert_int_equal(WEFT("init", folder), 0);
    expect_complaint("too little to learn from: 43 bytes of text and 0 media");
    struct buffer text = {0};
    for (i64 i = 0; i < 6000; i++)
        buffer_printf(&text, "Line %lld says that there are many lines.\n", (long long)i);
    buffer_append(&text, "", 1);
    put(folder, "b.txt", text.data);
    assert_int_equal(WEFT("init", folder), 0);
    assert_null(strstr(complained.data, "too little"));
    buffer_release(&text);
    memory_free(folder);
}

/* Sizes follow from the number of positions. */
static void put_lines(const char *folder, i64 count)
{
    struct buffer text = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&text, "Line %lld says that there are many lines, and that no two of them agree.\n",
                      (long long)i);
    buffer_append(&text, "", 1);
    put(folder, "all.txt", text.data);
    buffer_release(&text);
}

static void larger_data_get_more_steps_and_a_sub_model(void **state)
{
    (void)state;
    char *folder = new_folder("large");
    put_lines(folder, 4000);
    expect_recipe(folder, "bpe shards base grid samples routing export report");
    expect_setting("base", "model.width", "96");
    expect_setting("base", "mixture.text", "25.0");
    put_lines(folder, 60000);
    expect_recipe(folder, "bpe shards base grid half more samples routing export report");
    expect_setting("bpe", "vocabulary", "4096");
    expect_setting("half", "layers", "\"0,2,4-7\"");
    expect_setting("more", "from", "\"half\"");
    assert_true(atoll(setting_of("base", "steps")) >= 1000 && atoll(setting_of("base", "steps")) <= 3000);
    memory_free(folder);
}

/* Shown 48 times, 60 texts of 52 bytes and about 17 ids are run through in few steps, by a small model,
 * whose best step is kept; where nothing is held out, none is best. */
static void few_data_get_few_steps_and_keep_the_best(void **state)
{
    (void)state;
    char *folder = new_folder("few texts"), *one = new_folder("one text");
    put_texts(folder, 60);
    put_chats(folder, 60);
    expect_recipe(folder, "bpe shards base grid sft samples routing export report");
    expect_setting("base", "model.width", "64");
    expect_setting("base", "keep_best", "\"heldout\"");
    expect_setting("sft", "keep_best", "\"heldout\"");
    expect_setting("base", "patience", "6");
    expect_setting("base", "mixture.text", "48.0");
    double steps = atof(setting_of("base", "steps")), rows = atof(setting_of("base", "batch.rows"));
    double share = 1 - atof(setting_of("shards", "validation"));
    double positions = 48 * 60 * share * ((53 + 7) / 3.3 + 8), of_steps = steps * rows * 512;
    assert_true(of_steps > 0.8 * positions && of_steps < 1.2 * positions);
    put(one, "a.txt", "It was a dark night, and nobody was out in the rain.\n");
    expect_recipe(one, "bpe shards base grid samples routing export report");
    expect_setting("base", "keep_best", "null");
    memory_free(folder);
    memory_free(one);
}

/* The share that is written draws as many as it says. */
static void twenty_samples_are_held_out_where_there_are_as_many(void **state)
{
    (void)state;
    char *folder = new_folder("share"), *named = new_folder("named"), *validation = path_join(named, "validation"),
         *few = new_folder("few");
    put_pictures(folder, 70, true);
    expect_recipe(folder, "bpe vis shards base grid samples routing export report");
    double share = strtod(setting_of("shards", "validation"), NULL);
    char *copy = string_copy(setting_of("shards", "validation"));
    assert_true(share > 0.2 && share <= 0.4);
    assert_string_equal(setting_of("vis", "validation"), copy);
    assert_string_equal(setting_of("bpe", "validation"), copy);
    assert_string_equal(setting_of("samples", "validation"), copy);
    struct source *source = source_open(folder, &(struct source_request){.seed = 1, .validation = share});
    struct sample sample;
    i64 held_out = 0;
    while (source_next(source, &sample) == SOURCE_SAMPLE) {
        held_out += sample.split == SPLIT_VALIDATION;
        sample_release(&sample);
    }
    source_close(source);
    assert_true(held_out >= HELD_OUT_LEAST && held_out < 40);
    assert_int_equal(WEFT("init", folder), 0);
    assert_null(strstr(complained.data, "fewer than"));

    put_texts(named, 30);
    assert_int_equal(directory_make(validation), 0);
    put_texts(validation, 3);
    WEFT("init", named);
    expect_complaint("train 30, validation 3");
    expect_complaint("3 held-out samples are fewer than 20");
    assert_null(strstr(said.data, "validation:"));

    put_texts(few, 6);
    expect_recipe(few, "bpe shards base grid samples routing export report");
    WEFT("init", few);
    assert_non_null(strstr(said.data, "validation: 0."));
    memory_free(copy);
    memory_free(folder);
    memory_free(named);
    memory_free(validation);
    memory_free(few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_as_long_as_most_conversations),
        cmocka_unit_test(too_little_data_are_warned_of),
        cmocka_unit_test(larger_data_get_more_steps_and_a_sub_model),
        cmocka_unit_test(few_data_get_few_steps_and_keep_the_best),
        cmocka_unit_test(twenty_samples_are_held_out_where_there_are_as_many),
    };
    return cmocka_run_group_tests(tests, make_folder, clear_folder);
}
