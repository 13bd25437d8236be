/* Subtitles inside films read like those beside them: in second n the films of tests/media/films
 * say "second n". */
#include "data/media/media.h"
#include "data/sources/sources.h"
#include "data/media/subtitles.h"
#include "tests/scratch.h"

#include <math.h>

static const char films[] = SOURCE_TREE "/tests/media/films/";

static i64 read_film(struct buffer *words, const char *name, const char *language, double from_s, double until_s)
{
    char *path = string_format("%s%s", films, name);
    struct file_view file;
    struct buffer cues = {0};
    succeed(file_map(&file, path));
    i64 count = film_subtitles(&cues, file.data, file.bytes, name, language);
    buffer_clear(words);
    if (count > 0)
        assert_int_equal(subtitles_words(words, cues.data, cues.length, from_s, until_s), count);
    buffer_release(&cues);
    file_unmap(&file);
    memory_free(path);
    return count;
}

TEST(each_kind_is_read_with_its_times)
{
    static const char *const names[] = {"mov_text.mp4", "webvtt.mkv"};
    struct buffer words = {0};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        assert_int_equal(read_film(&words, names[i], NULL, 0, INFINITY), 6);
        assert_string_equal(words.data, "second 0 second 1 second 2 second 3 second 4 second 5");
        read_film(&words, names[i], "", 1.95, 4.05);
        assert_string_equal(words.data, "second 2 second 3");
    }
    assert_int_equal(read_film(&words, "ass.mkv", NULL, 0, INFINITY), 2); /* drawings are not words */
    assert_string_equal(words.data, "second, or so 0 second 2");
    buffer_release(&words);
}

TEST(the_stream_that_a_player_shows_is_read)
{
    struct buffer words = {0};
    assert_int_equal(read_film(&words, "subrip.mkv", NULL, 0, 2), 6); /* the default track, which is not forced */
    assert_string_equal(words.data, "Sekunde 0 Sekunde 1");
    assert_int_equal(read_film(&words, "subrip.mkv", "eng", 0, 2), 6);
    assert_string_equal(words.data, "second 0 second 1");
    assert_int_equal(read_film(&words, "subrip.mkv", "fre", 0, 2), 0);
    assert_int_equal(read_film(&words, "mute.mp4", NULL, 0, 2), 0);
    buffer_release(&words);
}

TEST(events_are_words)
{
    struct buffer words = {0};
    subtitles_event(&words, "0,0,Default,,0,0,0,,a{\\i1}b\\Nc, \\{d\\}");
    assert_string_equal(words.data, "ab c, {d}");
    subtitles_event(&words, "1,0,Default,,0,0,0,,{\\pos(1,2)\\p1}m 0 0{\\p0}e{open");
    assert_string_equal(words.data, "ab c, {d} e{open");
    subtitles_event(&words, "too,few");
    assert_string_equal(words.data, "ab c, {d} e{open");
    buffer_clear(&words);
    subtitles_write(&words, 3661.5, 3662.25, "late");
    assert_string_equal(words.data, "01:01:01,500 --> 01:01:02,250\nlate\n\n");
    buffer_release(&words);
}

/* ---- samples ---- */

static void copy(const char *name, const char *film)
{
    struct buffer bytes = {0};
    char *path = string_format("%s%s", films, film);
    succeed(file_read(&bytes, path));
    succeed(file_replace(path_of(name), bytes.data, bytes.length));
    buffer_release(&bytes);
    memory_free(path);
}

static void put(const char *name, const char *text)
{
    succeed(file_replace(path_of(name), text, (i64)strlen(text)));
}

/* Returns the names of the samples and their words. */
static char *read_all(const struct source_request *request)
{
    struct buffer all = {0};
    struct sample sample;
    enum source_result result;
    struct source *source = source_open(path_of("in"), request);
    assert_non_null(source);
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        const char *name = result == SOURCE_SAMPLE ? strrchr(sample.name, '/') + 1 : "bad";
        buffer_printf(&all, "%s: %s%s\n", name, sample.count > 1 ? sample.parts[1].bytes.data : "",
                      sample.cues.length ? " *" : "");
        sample_release(&sample);
    }
    source_close(source);
    return all.data;
}

static void assert_samples(const struct source_request *request, const char *expected)
{
    char *all = read_all(request);
    assert_string_equal(all ? all : "", expected);
    memory_free(all);
}

static void make_folder(void)
{
    directory_remove(path_of("in"));
    succeed(directory_make(path_of("in")));
    copy("in/ass.mkv", "ass.mkv");
    copy("in/beside.mkv", "ass.mkv");
    copy("in/mute.mp4", "mute.mp4");
    put("in/beside.srt", "1\n00:00:01,100 --> 00:00:01,900\nbeside\n\n");
}

TEST(what_stands_beside_a_film_counts_first)
{
    struct source_columns none = {.subtitles = (char *)"none"};
    make_folder();
    assert_samples(NULL, "beside.mkv: beside\nass.mkv: second, or so 0 second 2 *\n");
    assert_samples(&(struct source_request){.columns = &none}, "beside.mkv: beside\n");
    assert_samples(&(struct source_request){.media_alone = true}, "beside.mkv: beside\nass.mkv: \nmute.mp4: \n");
    copy("in/named.mkv", "ass.mkv");
    copy("in/silent.mkv", "subrip.mkv");
    put("in/captions.jsonl", "{\"video\": \"named.mkv\", \"text\": \"a caption\"}\n{\"video\": \"silent.mkv\"}\n"
                             "{\"video\": \"mute.mp4\"}\n");
    assert_samples(NULL, "beside.mkv: beside\n"
                         "captions.jsonl:1: a caption\n"
                         "captions.jsonl:2: Sekunde 0 Sekunde 1 Sekunde 2 Sekunde 3 Sekunde 4 Sekunde 5 *\n"
                         "bad: \n"
                         "ass.mkv: second, or so 0 second 2 *\n");
}

/* Each film is read by exactly one of several mappers. */
TEST(parts_hold_what_the_whole_does)
{
    i64 samples = 0;
    make_folder();
    for (i64 part = 0; part < 3; part++) {
        char *all = read_all(&(struct source_request){.job = part, .jobs = 3});
        for (const char *at = all; at && (at = strchr(at, '\n')); at++)
            samples++;
        memory_free(all);
    }
    assert_int_equal(samples, 2);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
