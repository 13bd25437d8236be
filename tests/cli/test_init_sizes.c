/* `weft init`: the size of the model, the steps, the rows and what is held out, by the amount of data. */
#include "data/sources/sources.h"
#include "tests/init_fixture.h"

TEST(larger_data_get_more_steps)
{
    char *folder = new_folder("large");
    put_lines(folder, 60000);
    expect_recipe(folder, "bpe shards base grid half more samples routing export report");
    assert_true(atoll(setting_of("base", "steps")) >= 1000 && atoll(setting_of("base", "steps")) <= 3000);
    memory_free(folder);
}

/* Shown 48 times, 60 texts of 52 bytes and about 17 ids are run through in few steps, by a small model,
 * whose best step is kept. */
TEST(few_data_get_few_steps)
{
    char *folder = new_folder("few texts");
    put_texts(folder, 60);
    put_chats(folder, 60);
    expect_recipe(folder, "bpe shards base grid sft samples routing export report");
    double steps = atof(setting_of("base", "steps")), rows = atof(setting_of("base", "batch.rows"));
    double share = 1 - atof(setting_of("shards", "validation"));
    double positions = 48 * 60 * share * ((53 + 7) / 3.3 + 8), of_steps = steps * rows * 512;
    assert_true(of_steps > 0.8 * positions && of_steps < 1.2 * positions);
    memory_free(folder);
}

/* The share that is written draws as many as it says. */
TEST(twenty_samples_are_held_out_where_there_are_as_many)
{
    char *folder = new_folder("share");
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
    memory_free(copy);
    memory_free(folder);
}

int main(void)
{
    return tests_run(make_folder, clear_folder);
}
