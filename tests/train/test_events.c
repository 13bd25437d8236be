/* TensorBoard event files, compared byte for byte. */
#include "tests/events_fixture.h"
#include "tests/scratch.h"
#include "train/events.h"
#include "train/train.h"

#include <stdio.h>
#include <string.h>

static void assert_hex(const struct buffer *record, const char *hex)
{
    assert_int_equal((i64)strlen(hex), 2 * record->length);
    for (i64 i = 0; i < record->length; i++) {
        char two[3];
        snprintf(two, sizeof two, "%02x", (u8)record->data[i]);
        assert_memory_equal(two, hex + 2 * i, 2);
    }
}

TEST(the_first_record_names_the_version)
{
    struct buffer event = {0}, record = {0};
    events_encode(&event, 0, 1700000000.0, "brain.Event:2", NULL, 0);
    events_record(&record, event.data, event.length);
    assert_hex(&record, "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
    buffer_release(&event);
    buffer_release(&record);
}

TEST(a_scalar_is_written_as_tensorboard_reads_it)
{
    struct buffer event = {0}, record = {0};
    const struct event_value value = {"loss", 2.5};
    events_encode(&event, 7, 1700000000.0, NULL, &value, 1);
    events_record(&record, event.data, event.length);
    assert_hex(&record, "1a00000000000000129bd82d0900000040fc54d94110072a0d0a0b0a046c6f73731500002040"
                        "2d15b4a5");
    buffer_release(&event);
    buffer_release(&record);
}

static struct buffer golden(const char *name)
{
    struct buffer content = {0};
    char *path = string_format("%s/events/%s", GOLDEN, name);
    assert_int_equal(file_read(&content, path), 0);
    memory_free(path);
    return content;
}

static void assert_golden(const struct buffer *event, const char *name)
{
    struct buffer want = golden(name);
    assert_int_equal(event->length, want.length);
    assert_memory_equal(event->data, want.data, want.length);
    buffer_release(&want);
}

TEST(settings_are_hyperparameters_and_a_text)
{
    struct buffer event = {0}, text = golden("settings.json");
    struct json *settings = json_parse(text.data, text.length, "settings.json");
    assert_non_null(settings);
    events_encode_settings(&event, 1700000000.0, settings);
    assert_golden(&event, "settings.event");
    json_free(settings);
    buffer_release(&text);
    buffer_release(&event);
}

TEST(a_picture_keeps_its_bytes_and_words)
{
    struct buffer event = {0}, png = golden("picture.png"), cut = {0};
    assert_true(
        events_encode_picture(&event, 7, 1700000000.0, "test/image/00 made", "a red hat", png.data, png.length));
    assert_golden(&event, "picture.event");
    assert_false(events_encode_picture(&cut, 7, 0, "", "", png.data, 20));
    assert_false(events_encode_picture(&cut, 7, 0, "", "", "GIF89a and more bytes than a header has", 39));
    assert_int_equal(cut.length, 0);
    buffer_release(&png);
    buffer_release(&event);
}

static i64 event_files(void)
{
    i64 files;
    struct buffer all = events_in(directory, &files);
    buffer_release(&all);
    return files;
}

/* The settings come with the metrics, and pictures in a file of their own. */
TEST(a_stage_has_its_settings_and_pictures)
{
    static const char identity[] = "{\"kind\":\"pretrain\",\"seed\":3,\"settings\":{\"optimizer\":{\"lr\":0.5}}}";
    static const char half[] = "\012\014optimizer.lr\022\011\021\0\0\0\0\0\0\340?"; /* 0.5 as a double */
    static const char rows[] = "| kind | \"pretrain\" |\n| seed | 3 |\n| optimizer.lr | 0.5 |\n";
    struct buffer png = golden("picture.png");
    char *path = path_join(directory, "identity.json"), *samples = path_join(directory, "samples");
    succeed(file_replace(path, identity, (i64)strlen(identity)));
    struct metrics *m = metrics_open(directory, 0);
    assert_non_null(m);
    metrics_close(m);
    succeed(events_add_folder(directory, "samples", 9)); /* there is none */
    assert_int_equal(event_files(), 1);
    assert_true(events_have(directory, half, sizeof half - 1) && events_have(directory, rows, sizeof rows - 1));
    succeed(directory_make(samples));
    char *picture = path_join(samples, "hat.png"), *other = path_join(samples, "notes.txt");
    succeed(file_replace(picture, png.data, png.length));
    succeed(file_replace(other, "no picture", 10));
    succeed(events_add_folder(directory, "samples", 9));
    assert_int_equal(event_files(), 2); /* of one process in one second */
    assert_true(events_have_file(directory, "samples/hat.png") && events_have(directory, "samples/hat", 11));
    assert_true(events_have(directory, half, sizeof half - 1));
    succeed(file_replace(picture, "no picture", 10));
    assert_int_equal(events_add_folder(directory, "samples", 9), -1);
    assert_non_null(strstr(error_text(), "hat.png: expected a PNG file"));
    char *blocks[] = {path, samples, picture, other};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    buffer_release(&png);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
