/* Records: the same rows in every file format; column names select the kind of sample; unknown
 * names are refused with a list of those present. */
#include "tests/source_cases.h"

static char *form(const char *name, const char *suffix)
{
    return string_format("%s/tables/forms/%s.%s", GOLDEN, name, suffix);
}

TEST(rows_of_tables_are_samples)
{
    check_sources("records.jsonl");
}

/* Common Voice: tables beside the folder clips. */
TEST(recordings_are_known_by_path_and_sentence)
{
    static const char table[] =
        "client_id\tpath\tsentence\tup_votes\ns1\ta.mp3\t\"Yes\", he said.\t2\ns2\tb.mp3\t\t2\n";
    char *folder = path_join(directory, "cv/clips");
    assert_int_equal(directory_make(folder), 0);
    memory_free(put_text("cv/clips/a.mp3", "ID3"));
    char *path = put_text("cv/validated.tsv", table), *clip = path_join(folder, "a.mp3");
    struct source *source = source_open(path, NULL);
    struct sample sample;
    assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
    assert_int_equal(sample.layout, SAMPLE_CAPTIONED);
    assert_string_equal(sample.parts[0].path, clip);
    assert_string_equal(sample.parts[1].bytes.data, "\"Yes\", he said.");
    assert_string_equal(sample.speaker, "s1");
    sample_release(&sample);
    assert_int_equal(source_next(source, &sample), SOURCE_END);
    i64 notes;
    const struct source_note *note = source_notes(source, &notes);
    assert_int_equal(notes, 2); /* up_votes is the other */
    assert_string_equal(note[1].what, "records whose key \"sentence\" is empty, so that their medium has no caption");
    source_close(source);
    memory_free(path);
    memory_free(clip);
    memory_free(folder);
}

/* Keys of messages that nothing reads are noted, and cost no record. */
TEST(keys_of_messages_pass_no_record)
{
    char *path = put_text("keys.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"id\": 5}]}\n");
    struct source *source = source_open(path, NULL);
    struct sample sample;
    i64 count;
    while (source_next(source, &sample) != SOURCE_END)
        sample_release(&sample);
    source_notes(source, &count);
    assert_int_equal(count, 1);
    assert_int_equal(source_files(source, &count)->passed, 0);
    source_close(source);
    memory_free(path);
}

TEST(bytes_that_are_no_text_are_refused)
{
    memory_free(put_text("latin.csv", "text,n\nab\xff,1\nfine,2\n"));
    expect_source("latin.csv", NULL,
                  "bad: latin.csv:2: column text is not UTF-8\nplain text'fine'\n"
                  "1 tables with the column \"n\", which is not read (latin.csv)\n");
}

/* A quote that is not closed swallows lines, and each of them is counted. */
TEST(stray_quotes_lose_no_row_uncounted)
{
    struct buffer rows = {0}, expected = {0};
    buffer_printf(&rows, "text,n\nfirst,1\n\"open,2\n");
    buffer_printf(&expected, "plain text'first'\nbad: s.csv:3: a quote that is not closed\n");
    for (int i = 0; i < 100; i++) {
        buffer_printf(&rows, "row,%d\n", i);
        buffer_printf(&expected,
                      "bad: s.csv:3: a further line of the bad row that begins there: is a quote not closed?\n");
    }
    buffer_printf(&expected, "1 tables with the column \"n\", which is not read (s.csv)\n");
    memory_free(put_text("s.csv", rows.data));
    expect_source("s.csv", NULL, expected.data);
    buffer_release(&rows);
    buffer_release(&expected);
}

TEST(parts_are_named_by_shards_of_tables)
{
    static const char *const names[] = {"set/main/train-00000-of-00001.parquet",
                                        "set/main/test-00000-of-00001.parquet"};
    struct buffer bytes = {0};
    struct sample sample;
    char *from = form("qa", "parquet"), *below = path_join(directory, "set/main"), *set = path_join(directory, "set");
    i64 count[SPLITS] = {0};
    assert_int_equal(directory_make(below) || file_read(&bytes, from), 0);
    for (i64 i = 0; i < 2; i++) {
        char *path = path_join(directory, names[i]);
        assert_int_equal(file_replace(path, bytes.data, bytes.length), 0);
        memory_free(path);
    }
    struct source *source = source_open(set, NULL);
    for (; source_next(source, &sample) == SOURCE_SAMPLE; sample_release(&sample))
        count[sample.split]++;
    assert_int_equal(count[SPLIT_TRAIN], 2);
    assert_int_equal(count[SPLIT_TEST], 2);
    source_close(source);
    buffer_release(&bytes);
    memory_free(from);
    memory_free(below);
    memory_free(set);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
