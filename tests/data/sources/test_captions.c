/* Sources: captions that are the names of folders and files, and empty captions. */
#include "core/json.h"
#include "data/sources/media_list.h"
#include "data/sources/source_readers.h"
#include "tests/sample_text.h"
#include "tests/tar_text.h"

/* Compares the samples of a source, and its notes: COUNT WHAT (FIRST). */
static void expect_captions(const char *name, int captions, bool alone, const char *expected)
{
    const struct source_columns columns = {.captions = captions};
    char *path = path_join(directory, name);
    struct source *source = source_open(path, &(struct source_request){.columns = &columns, .media_alone = alone});
    struct buffer all = {0};
    struct sample sample;
    enum source_result result;
    i64 count;
    if (!source)
        fail_msg("%s", error_text());
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        if (result != SOURCE_SAMPLE)
            buffer_printf(&all, "%s: %s", result == SOURCE_BAD ? "bad" : "damaged", error_text() + strlen(path));
        for (i64 i = 0; i < sample.count; i++)
            draw_part(&all, &sample.parts[i]);
        buffer_printf(&all, "\n");
        sample_release(&sample);
    }
    const struct source_note *notes = source_notes(source, &count);
    for (i64 i = 0; i < count; i++)
        buffer_printf(&all, "%lld %s (%s)\n", (long long)notes[i].count, notes[i].what,
                      notes[i].first + strlen(directory) + 1);
    assert_string_equal(all.data ? all.data : "", expected);
    source_close(source);
    buffer_release(&all);
    memory_free(path);
}

static void expect_name(const char *path, enum source_captions captions, const char *expected)
{
    struct buffer caption = {0};
    caption_from_name(&caption, path, captions);
    buffer_append(&caption, "", 1);
    if (strcmp(caption.data, expected) != 0)
        fail_msg("%s: \"%s\", expected \"%s\"", path, caption.data, expected);
    buffer_release(&caption);
}

static void names_of_files_are_words_without_numbers(void **state)
{
    static const char *const names[][2] = {
        {"a red house 03.jpg", "a red house"},
        {"a/b/a_red-house.jpg", "a red house"},
        {"cat.0.jpg", "cat"},
        {"Abyssinian_100.jpg", "Abyssinian"},
        {"dog12.png", "dog"},
        {"cat (2).jpeg", "cat"},
        {"003 - a tall tree.webp", "a tall tree"},
        {"1. ein Haus.png", "ein Haus"},
        {"3 red houses.png", "3 red houses"},
        {"new york 7.png", "new york"},
        {"St. Peter's Basilica.jpg", "St. Peter's Basilica"},
        {"the.old.mill.jpg", "the old mill"},
        {"gro\xc3\x9f\x65s_Haus 12.jpg", "gro\xc3\x9f\x65s Haus"},
        {"\xe7\x8c\xab_04.jpg", "\xe7\x8c\xab"},
        {"iphone 15 pro.jpg", "iphone 15 pro"},
        {"IMG_20240512_101010_beach.jpg", "beach"},
        {"0_jackson_12.wav", "0 jackson"},
        {"no ending", "no ending"},
        /* cameras, phones, programs, numbers, hashes */
        {"IMG_1234.jpg", ""},
        {"img_e1234.HEIC", ""},
        {"DSC0001.JPG", ""},
        {"DSCN0012.JPG", ""},
        {"_DSC4321.jpg", ""},
        {"_MG_1234.jpg", ""},
        {"P1010023.JPG", ""},
        {"100_0042.jpg", ""},
        {"GOPR0123.mp4", ""},
        {"MVI_0042.avi", ""},
        {"DJI_0001.jpg", ""},
        {"PXL_20240512_101010123.jpg", ""},
        {"20240512_101010.jpg", ""},
        {"IMG-20240512-WA0007.jpg", ""},
        {"WhatsApp Image 2024-05-12 at 10.10.10 (1).jpeg", ""},
        {"Screenshot 2024-05-12 at 10.10.10.png", ""},
        {"image (1).png", ""},
        {"untitled.png", ""},
        {"000123.jpg", ""},
        {"n01440764_10026.JPEG", ""},
        {"10815824_2997e03d76.jpg", ""},
        {"550e8400-e29b-41d4-a716-446655440000.png", ""},
        {"d41d8cd98f00b204e9800998ecf8427e.png", ""},
        {"___.png", ""},
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(names); i++)
        expect_name(names[i][0], CAPTIONS_NAME, names[i][1]);
}

static void the_innermost_folder_is_a_caption(void **state)
{
    static const char *const names[][2] = {
        {"cat/1.jpg", "cat"},
        {"animals/black_cat/1.jpg", "black cat"},
        {"animals/T-shirt/1.jpg", "T shirt"},
        {"train/cat/1.jpg", "cat"},
        {"cat/train/1.jpg", "cat"},
        {"cat/Validation/1.jpg", "cat"},
        {"001.Black_footed_Albatross/1.jpg", "Black footed Albatross"},
        {"7/1.png", "7"},
        {"route 66/1.png", "route 66"},
        {"./cat/1.jpg", "cat"},
        {"1.jpg", ""},
        {"train/1.jpg", ""},

    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(names); i++)
        expect_name(names[i][0], CAPTIONS_FOLDER, names[i][1]);
}

static void media_of_folders_and_tars_get_names(void **state)
{
    static const char *const files[][2] = {{"names/cat/IMG_1.png", "A"},
                                           {"names/cat/told.png", "B"},
                                           {"names/cat/told.txt", "its own words"},
                                           {"names/wild/black_dog/a big dog 2.png", "C"},
                                           {"names/wild/black_dog/bark.wav", "D"},
                                           {"names/top.png", "E"}};
    struct buffer tar = {0};
    (void)state;
    put_all(files, COUNT_OF(files));
    expect_captions("names", CAPTIONS_FILES, false,
                    " image@names/cat/told.png text'its own words'\n"
                    "3 pictures without a line or text file that refers to them (names/cat/IMG_1.png)\n"
                    "1 sounds without a line or text file that refers to them (names/wild/black_dog/bark.wav)\n");
    expect_captions("names", CAPTIONS_FOLDER, false,
                    " image@names/cat/told.png text'its own words'\n image@names/cat/IMG_1.png text'cat'\n"
                    " image@names/wild/black_dog/a big dog 2.png text'black dog'\n"
                    " audio@names/wild/black_dog/bark.wav text'black dog'\n"
                    "1 pictures in no folder that names them (captions: folder) (names/top.png)\n");
    expect_captions("names", CAPTIONS_FOLDER, true,
                    " image@names/cat/told.png text'its own words'\n image@names/cat/IMG_1.png text'cat'\n"
                    " image@names/top.png\n image@names/wild/black_dog/a big dog 2.png text'black dog'\n"
                    " audio@names/wild/black_dog/bark.wav text'black dog'\n");
    expect_captions("names", CAPTIONS_NAME, false,
                    " image@names/cat/told.png text'its own words'\n image@names/top.png text'top'\n"
                    " image@names/wild/black_dog/a big dog 2.png text'a big dog'\n"
                    " audio@names/wild/black_dog/bark.wav text'bark'\n"
                    "1 pictures whose names say nothing, as those of cameras (captions: name) (names/cat/IMG_1.png)\n");
    expect_captions("names", CAPTIONS_NONE, true,
                    " image@names/cat/told.png\n image@names/cat/IMG_1.png\n image@names/top.png\n"
                    " image@names/wild/black_dog/a big dog 2.png\n audio@names/wild/black_dog/bark.wav\n");

    tar_member(&tar, "cat/IMG_1.png", "A");
    tar_member(&tar, "cat/told.png", "B");
    tar_member(&tar, "cat/told.txt", "its own words");
    tar_member(&tar, "wild/black_dog/v1.2 of a dog 2.png", "C");
    tar_member(&tar, "top.png", "E");
    tar_end(&tar);
    memory_free(put_file("names.tar", tar.data, tar.length));
    expect_captions("names.tar", CAPTIONS_FOLDER, false,
                    " image'A' text'cat'\n image'B' text'its own words'\n image'C' text'black dog'\n"
                    "1 media in no folder of their tar, which would name them (captions: folder) (names.tar:top)\n");
    expect_captions("names.tar", CAPTIONS_NAME, false,
                    " image'B' text'its own words'\n image'C' text'v1.2 of a dog'\n image'E' text'top'\n"
                    "1 media in tars whose names say nothing (captions: name) (names.tar:cat/IMG_1)\n");
    expect_captions("names.tar", CAPTIONS_NONE, true, " image'A'\n image'B'\n image'C'\n image'E'\n");
    expect_captions("names.tar", CAPTIONS_NONE, false,
                    "4 media whose captions are not read (captions: none) (names.tar:cat/IMG_1)\n");
    buffer_release(&tar);
}

/* Lines come before names; a line without a caption leaves its medium to them. */
static void lines_come_before_names(void **state)
{
    static const char *const files[][2] = {
        {"lines/cat/1.png", "A"},
        {"lines/cat/2.png", "B"},
        {"lines/metadata.jsonl",
         "{\"file_name\": \"cat/1.png\", \"text\": \"one\"}\n{\"file_name\": \"cat/2.png\"}\n"}};
    (void)state;
    put_all(files, COUNT_OF(files));
    for (int alone = 0; alone < 2; alone++)
        expect_captions(
            "lines", CAPTIONS_FOLDER, alone,
            " image@lines/cat/1.png text'one'\n image@lines/cat/2.png text'cat'\n"
            "1 records whose key \"file_name\" names a medium without a caption, which gets that of its name "
            "(lines/metadata.jsonl:2)\n");
    expect_captions("lines", CAPTIONS_NONE, true, " image@lines/cat/1.png\n image@lines/cat/2.png\n");
    expect_captions(
        "lines", CAPTIONS_NONE, false,
        "bad: /metadata.jsonl:2: a file without a caption: expected {\"file_name\": FILE, \"text\": CAPTION}\n"
        "1 media whose captions are not read (captions: none) (lines/metadata.jsonl:1)\n"
        "1 pictures without a line or text file that refers to them (lines/cat/2.png)\n");
}

static void empty_captions_are_counted_as_such(void **state)
{
    static const char *const files[][2] = {{"blank/a.png", "A"},   {"blank/a.txt", ""},
                                           {"blank/b.png", "B"},   {"blank/b.txt", "\xef\xbb\xbf \r\n\t\n"},
                                           {"blank/c.wav", "C"},   {"blank/c.srt", " \n"},
                                           {"blank/d.png", "D"},   {"blank/d.json", "{\"caption\": \"\"}"},
                                           {"blank/e.png", "E"},   {"blank/e.json", "{\"width\": 3}"},
                                           {"blank/f.png", "F"},   {"blank/f.txt", "words"},
                                           {"blank/no/g.png", "G"}};
    struct buffer tar = {0};
    (void)state;
    put_all(files, COUNT_OF(files));
    expect_captions("blank", CAPTIONS_FILES, false,
                    " image@blank/f.png text'words'\n"
                    "3 pictures whose caption files are empty (blank/a.txt)\n"
                    "1 sounds whose caption files are empty (blank/c.srt)\n"
                    "2 pictures without a line or text file that refers to them (blank/e.png)\n");
    expect_captions("blank/no", CAPTIONS_FILES, true, " image@blank/no/g.png\n");
    for (i64 i = 0; i + 1 < COUNT_OF(files); i++)
        tar_member(&tar, files[i][0] + 6, files[i][1]);
    tar_end(&tar);
    memory_free(put_file("blank.tar", tar.data, tar.length));
    expect_captions("blank.tar", CAPTIONS_FILES, false,
                    "bad: :c: a medium without a text: expected .txt or .json next to it (tar --sort=name puts them "
                    "there), or captions: folder or name, which take the names of folders and files\n"
                    "bad: :e: a medium without a text: expected .txt or .json next to it (tar --sort=name puts them "
                    "there), or captions: folder or name, which take the names of folders and files\n"
                    " image'F' text'words'\n"
                    "3 media in tars whose captions are empty (blank.tar:a)\n");
    memory_free(put_file("blank.csv", "image,text\na.png,\nb.png,words\nc.png,\" \"\n", 40));
    expect_captions("blank.csv", CAPTIONS_FILES, false,
                    " image@b.png text'words'\n"
                    "2 records whose key \"text\" is empty, so that their medium has no caption (blank.csv:2)\n");
    buffer_release(&tar);
}

/* Interrupted behind any sample, the rest is the same. */
static void a_position_among_names_is_resumed(void **state)
{
    const struct source_columns columns = {.captions = CAPTIONS_FILES}, named = {.captions = CAPTIONS_FOLDER};
    const char *const folders[] = {"blank", "names"};
    (void)state;
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

/* As the TensorFlow flowers come: a packed tar of class folders; and archives that are not read. */
static void packed_tars_of_classes_are_read(void **state)
{
    struct buffer tar = {0};
    (void)state;
    tar_member(&tar, "flowers/LICENSE.txt", "of the pictures");
    tar_member(&tar, "flowers/daisy/100080576_f52e8ee070_n.jpg", "A");
    tar_member(&tar, "flowers/sun_flower/1008566138.jpg", "B");
    tar_end(&tar);
    static const char *const packers[][2] = {{"gzip", "tgz"}, {"bzip2", "tbz2"}, {"xz", "TXZ"}, {"zstd", "tzst"}};
    char *plain = put_file("plain.tar", tar.data, tar.length);
    for (i64 i = 0; i < COUNT_OF(packers); i++) {
        char *name = string_format("flowers.%s", packers[i][1]);
        char *command = string_format("%s -c %s > %s/%s 2>&1", packers[i][0], plain, directory, name);
        char *expected = string_format(" image'A' text'daisy'\n image'B' text'sun flower'\n"
                                       "1 files that describe a dataset (%s:flowers/LICENSE)\n",
                                       name);
        if (system(command) == 0) /* the program is there */
            expect_captions(name, CAPTIONS_FOLDER, true, expected);
        memory_free(name);
        memory_free(command);
        memory_free(expected);
    }
    memory_free(plain);
    static const char *const files[][2] = {{"zips/a.7z", "7z"}, {"zips/cat/1.png", "A"}, {"zips/LICENSE.txt", "free"}};
    put_all(files, COUNT_OF(files));
    expect_captions(
        "zips", CAPTIONS_FOLDER, false,
        " image@zips/cat/1.png text'cat'\n1 archives ending in .7z, which are not read: expected their files in "
        "a folder or a .tar (zips/a.7z)\n");
    char *path = path_join(directory, "zips/a.7z");
    assert_null(source_open(path, NULL));
    assert_non_null(strstr(error_text(), "an archive of a kind that is not read"));
    memory_free(path);
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

static void members_of_zips_are_read(void **state)
{
    (void)state;
    memory_free(put_file("fruit.zip", zip, sizeof zip - 1));
    for (int alone = 0; alone < 2; alone++)
        expect_captions("fruit.zip", CAPTIONS_FOLDER, alone,
                        " image'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' text'\xc3\x84pfel'\n image'B' text'pear'\n"
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
static void names_that_are_no_text_are_refused(void **state)
{
    static const char *const files[][2] = {{"bytes/a red house.png", "A"}, {"bytes/gr\xfcn house.png", "B"}};
    (void)state;
    put_all(files, COUNT_OF(files));
    expect_captions("bytes", CAPTIONS_NAME, false,
                    " image@bytes/a red house.png text'a red house'\nbad: /gr\\xfcn house.png: byte 2 of a text is not "
                    "UTF-8\n");
}

/* Several jobs read each medium once, with the same caption. */
static void jobs_share_the_media(void **state)
{
    const struct source_columns columns = {.captions = CAPTIONS_FOLDER};
    char *path = path_join(directory, "names");
    u64 sums[2] = {0};
    i64 counts[2] = {0};
    (void)state;
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
static void lists_of_media_have_captions_of_names(void **state)
{
    const struct source_columns columns = {.captions = CAPTIONS_FOLDER};
    char *path = path_join(directory, "names");
    struct media_list list;
    struct buffer all = {0};
    (void)state;
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_files_are_words_without_numbers), cmocka_unit_test(the_innermost_folder_is_a_caption),
        cmocka_unit_test(media_of_folders_and_tars_get_names),      cmocka_unit_test(lines_come_before_names),
        cmocka_unit_test(empty_captions_are_counted_as_such),       cmocka_unit_test(a_position_among_names_is_resumed),
        cmocka_unit_test(packed_tars_of_classes_are_read),          cmocka_unit_test(members_of_zips_are_read),
        cmocka_unit_test(names_that_are_no_text_are_refused),       cmocka_unit_test(jobs_share_the_media),
        cmocka_unit_test(lists_of_media_have_captions_of_names),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
