/* Keys of records beside those of their form: what they change is in the sample, or the record is
 * refused or counted by the key's name. The expected texts are written by hand after what the
 * trainers named in docs/collections.md make of such records. */
#include "tests/source_cases.h"

TEST(keys_change_samples_or_are_named)
{
    check_sources("record_keys.jsonl");
}

TEST(a_record_names_its_split)
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
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
