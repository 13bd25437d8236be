/* Sources: captions that are the names of folders and files, and empty captions. */
#include "data/sources/media_list.h"
#include "data/sources/source_readers.h"
#include "tests/source_cases.h"

static const struct source_columns of_folders = {.captions = CAPTIONS_FOLDER};

TEST(names_become_captions)
{
    EACH_CASE (c, "caption_names.jsonl") {
        struct buffer caption = {0};
        bool folder = strcmp(case_text(c, "captions"), "folder") == 0;
        caption_from_name(&caption, case_text(c, "path"), folder ? CAPTIONS_FOLDER : CAPTIONS_NAME);
        buffer_append(&caption, "", 1);
        case_expect(c, "caption", caption.data);
        buffer_release(&caption);
    }
}

TEST(media_get_captions)
{
    check_sources("captions.jsonl");
}

/* Folders with media that have captions, empty ones, and none. */
static void put_folders(void)
{
    static const char *const files[][2] = {{"names/cat/IMG_1.png", "A"},
                                           {"names/cat/told.png", "B"},
                                           {"names/cat/told.txt", "its own words"},
                                           {"names/wild/black_dog/a big dog 2.png", "C"},
                                           {"names/wild/black_dog/bark.wav", "D"},
                                           {"names/top.png", "E"},
                                           {"blank/a.png", "A"},
                                           {"blank/a.txt", ""},
                                           {"blank/c.wav", "C"},
                                           {"blank/c.srt", " \n"},
                                           {"blank/e.png", "E"},
                                           {"blank/e.json", "{\"width\": 3}"},
                                           {"blank/f.png", "F"},
                                           {"blank/f.txt", "words"},
                                           {"blank/no/g.png", "G"}};
    put_all(files, COUNT_OF(files));
}

/* Interrupted behind any sample, the rest is the same. */
TEST(a_position_among_names_is_resumed)
{
    const struct source_columns columns = {.captions = CAPTIONS_FILES}, named = {.captions = CAPTIONS_FOLDER};
    const char *const folders[] = {"blank", "names"};
    put_folders();
    for (i64 f = 0; f < 2; f++)
        for (i64 cut = 0; cut < 6; cut++) {
            const struct source_request request = {.columns = f ? &named : &columns};
            char *path = path_join(directory, folders[f]);
            struct source *whole = source_open(path, &request), *first = source_open(path, &request),
                          *second = source_open(path, &request);
            struct sample a, b;
            enum source_result result = SOURCE_SAMPLE;
            for (i64 i = 0; i < cut && result != SOURCE_END; i++) {
                result = source_next(first, &a);
                assert_int_equal(source_next(whole, &b), result);
                sample_release(&a);
                sample_release(&b);
            }
            struct json *at = source_state(first);
            assert_int_equal(source_resume(second, at), 0);
            for (result = SOURCE_SAMPLE; result != SOURCE_END;) {
                result = source_next(whole, &a);
                assert_int_equal(source_next(second, &b), result);
                if (result == SOURCE_SAMPLE)
                    assert_int_equal(a.key, b.key);
                sample_release(&a);
                sample_release(&b);
            }
            i64 count, other, done, total;
            const struct source_note *notes = source_notes(whole, &count), *others = source_notes(second, &other);
            assert_int_equal(count, other);
            for (i64 i = 0; i < count; i++)
                assert_string_equal(notes[i].what, others[i].what);
            source_progress(second, &done, &total);
            assert_int_equal(done, total);
            json_free(at);
            source_close(whole);
            source_close(first);
            source_close(second);
            memory_free(path);
        }
}

/* As the TensorFlow flowers come: a packed tar of class folders. */
TEST(packed_tars_of_classes_are_read)
{
    struct buffer tar = {0};
    tar_member(&tar, "flowers/LICENSE.txt", "of the pictures");
    tar_member(&tar, "flowers/daisy/100080576_f52e8ee070_n.jpg", "A");
    tar_member(&tar, "flowers/sun_flower/1008566138.jpg", "B");
    tar_end(&tar);
    static const char *const packers[][2] = {{"gzip", "tgz"}, {"bzip2", "tbz2"}, {"xz", "TXZ"}, {"zstd", "tzst"}};
    char *plain = put_file("plain.tar", tar.data, tar.length);
    for (i64 i = 0; i < COUNT_OF(packers); i++) {
        char *name = string_format("flowers.%s", packers[i][1]);
        char *command = string_format("%s -c %s > %s/%s 2>&1", packers[i][0], plain, directory, name);
        char *expected = string_format("captioned image'A' text'daisy'\ncaptioned image'B' text'sun flower'\n"
                                       "1 files that describe a dataset (%s:flowers/LICENSE)\n",
                                       name);
        if (system(command) == 0) /* the program is there */
            expect_source(name, &(struct source_request){.columns = &of_folders, .media_alone = true}, expected);
        memory_free(name);
        memory_free(command);
        memory_free(expected);
    }
    memory_free(plain);
    buffer_release(&tar);
}

/* Python's zipfile wrote it without seeking: fruit/Äpfel/1.png, deflated, with its sizes behind it, a
 * file of macOS, and fruit/pear/2.png as it is. */
static const char zip[] =
    "\x50\x4b\x03\x04\x14\x00\x08\x00\x00\x00\x00\x00\x21\x50\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x06\x00\x00\x00\x66\x72\x75\x69\x74\x2f\x50\x4b\x07\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x50\x4b\x03\x04\x14\x00\x08\x08\x08\x00\x00\x00\x21\x50\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x12\x00\x00\x00\x66\x72\x75\x69\x74\x2f\xc3\x84\x70\x66\x65\x6c\x2f\x31\x2e\x70\x6e\x67"
    "\x73\x74\x24\x0e\x00\x00\x50\x4b\x07\x08\x30\x8c\xe9\x2a\x06\x00\x00\x00\x28\x00\x00\x00\x50\x4b\x03"
    "\x04\x14\x00\x08\x00\x08\x00\x00\x00\x21\x50\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x16\x00"
    "\x00\x00\x5f\x5f\x4d\x41\x43\x4f\x53\x58\x2f\x66\x72\x75\x69\x74\x2f\x2e\x5f\x31\x2e\x70\x6e\x67\xab"
    "\x00\x00\x50\x4b\x07\x08\x83\x16\xdc\x8c\x03\x00\x00\x00\x01\x00\x00\x00\x50\x4b\x03\x04\x14\x00\x08"
    "\x00\x00\x00\x00\x00\x21\x50\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x66\x72"
    "\x75\x69\x74\x2f\x70\x65\x61\x72\x2f\x32\x2e\x70\x6e\x67\x42\x50\x4b\x07\x08\x31\xcf\xd0\x4a\x01\x00"
    "\x00\x00\x01\x00\x00\x00\x50\x4b\x01\x02\x14\x03\x14\x00\x08\x00\x00\x00\x00\x00\x21\x50\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x01\x00\x00"
    "\x00\x00\x66\x72\x75\x69\x74\x2f\x50\x4b\x01\x02\x14\x03\x14\x00\x08\x08\x08\x00\x00\x00\x21\x50\x30"
    "\x8c\xe9\x2a\x06\x00\x00\x00\x28\x00\x00\x00\x12\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x01"
    "\x34\x00\x00\x00\x66\x72\x75\x69\x74\x2f\xc3\x84\x70\x66\x65\x6c\x2f\x31\x2e\x70\x6e\x67\x50\x4b\x01"
    "\x02\x14\x03\x14\x00\x08\x00\x08\x00\x00\x00\x21\x50\x83\x16\xdc\x8c\x03\x00\x00\x00\x01\x00\x00\x00"
    "\x16\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x01\x7a\x00\x00\x00\x5f\x5f\x4d\x41\x43\x4f\x53"
    "\x58\x2f\x66\x72\x75\x69\x74\x2f\x2e\x5f\x31\x2e\x70\x6e\x67\x50\x4b\x01\x02\x14\x03\x14\x00\x08\x00"
    "\x00\x00\x00\x00\x21\x50\x31\xcf\xd0\x4a\x01\x00\x00\x00\x01\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x80\x01\xc1\x00\x00\x00\x66\x72\x75\x69\x74\x2f\x70\x65\x61\x72\x2f\x32\x2e\x70"
    "\x6e\x67\x50\x4b\x05\x06\x00\x00\x00\x00\x04\x00\x04\x00\xf6\x00\x00\x00\x00\x01\x00\x00\x00\x00";

TEST(members_of_zips_are_read)
{
    memory_free(put_file("fruit.zip", zip, sizeof zip - 1));
    for (int alone = 0; alone < 2; alone++)
        expect_source("fruit.zip", &(struct source_request){.columns = &of_folders, .media_alone = alone},
                      "captioned image'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' text'\xc3\x84pfel'\n"
                      "captioned image'B' text'pear'\n"
                      "1 members whose name is not KEY.EXTENSION (fruit.zip)\n");
    char *path = path_join(directory, "fruit.zip");
    struct source *source = source_open(path, NULL);
    struct sample sample;
    while (source_next(source, &sample) != SOURCE_END)
        sample_release(&sample);
    i64 count;
    assert_string_equal(source_ending(source_files(source, &count)), ".zip");
    source_close(source);
    source = source_open(path, &(struct source_request){.media_alone = true});
    assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
    assert_int_equal(sample.parts[0].at, -1); /* not in the file as it is */
    sample_release(&sample);
    source_close(source);
    memory_free(path);
    for (i64 cut = 20; cut < 256; cut += 8) { /* where its directory begins */
        path = put_file("cut.zip", zip, cut);
        source = source_open(path, &(struct source_request){.media_alone = true});
        enum source_result result;
        while ((result = source_next(source, &sample)) == SOURCE_SAMPLE)
            sample_release(&sample);
        assert_int_equal(result, SOURCE_DAMAGED);
        source_close(source);
        memory_free(path);
    }
}

/* The name of a file may hold any bytes; a caption is UTF-8. */
TEST(names_that_are_no_text_are_refused)
{
    static const char *const files[][2] = {{"bytes/a red house.png", "A"}, {"bytes/gr\xfcn house.png", "B"}};
    put_all(files, COUNT_OF(files));
    expect_source("bytes", &(struct source_request){.columns = &(struct source_columns){.captions = CAPTIONS_NAME}},
                  "captioned image@bytes/a red house.png text'a red house'\nbad: bytes/gr\\xfcn house.png: byte 2 of a "
                  "text is not "
                  "UTF-8\n");
}

/* Several jobs read each medium once, with the same caption. */
TEST(jobs_share_the_media)
{
    const struct source_columns columns = {.captions = CAPTIONS_FOLDER};
    char *path = path_join(directory, "names");
    u64 sums[2] = {0};
    i64 counts[2] = {0};
    put_folders();
    for (i64 jobs = 1; jobs <= 3; jobs += 2)
        for (i64 job = 0; job < jobs; job++) {
            struct source *source =
                source_open(path, &(struct source_request){.columns = &columns, .job = job, .jobs = jobs});
            struct sample sample;
            while (source_next(source, &sample) == SOURCE_SAMPLE) {
                const struct buffer *text = &sample.parts[1].bytes;
                sums[jobs > 1] += sample.key ^ hash_bytes(text->data, text->length, 0);
                counts[jobs > 1]++;
                sample_release(&sample);
            }
            source_close(source);
        }
    assert_int_equal(counts[0], 4);
    assert_int_equal(counts[1], 4);
    assert_int_equal(sums[0], sums[1]);
    memory_free(path);
}

/* The list that `generate` reads, with the captions that prepare learned. */
TEST(lists_of_media_have_captions_of_names)
{
    const struct source_columns columns = {.captions = CAPTIONS_FOLDER};
    char *path = path_join(directory, "names");
    struct media_list list;
    struct buffer all = {0};
    put_folders();
    assert_int_equal(media_list(&list, &(struct media_request){.data = path, .columns = &columns, .kinds = ~0u}), 0);
    for (i64 i = 0; i < list.count; i++)
        buffer_printf(&all, "%s\n", list.media[i].text);
    assert_string_equal(all.data, "its own words\ncat\n\nblack dog\nblack dog\n");
    media_list_release(&list);
    buffer_release(&all);
    memory_free(path);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
