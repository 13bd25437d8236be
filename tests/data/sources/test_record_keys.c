/* Keys of records beside those of their form: what they change is in the sample, or the record is
 * refused or counted by the key's name. The expected texts are written by hand after what the
 * trainers named in docs/collections.md make of such records. */
#include "tests/source_cases.h"

static void keys_change_samples_or_are_named(void **state)
{
    (void)state;
    check_sources("record_keys.jsonl");
}

static void a_record_names_its_split(void **state)
{
    static const enum split expected[] = {SPLIT_TEST, SPLIT_VALIDATION, SPLIT_TRAIN};
    char *path = put_text("own.jsonl", "{\"text\": \"a\", \"split\": \"test\"}\n{\"text\": \"b\", \"split\": \"dev\"}\n"
                                       "{\"text\": \"c\", \"split\": \"train\"}\n");
    struct source *source = source_open(path, &(struct source_request){.validation = 0, .test = 0});
    struct sample sample;
    for (i64 i = 0; i < COUNT_OF(expected); i++) {
        assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
        assert_int_equal(sample.split, expected[i]);
        sample_release(&sample);
    }
    source_close(source);
    memory_free(path);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_change_samples_or_are_named),
        cmocka_unit_test(a_record_names_its_split),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
