/* `weft init`: captions by folders and names of files, or none; and shapes by the proportions of pictures. */
#include "tests/init_fixture.h"
#include "tests/tar_text.h"

/* What is left without a caption is told once, and one of it is one. */
static void media_without_captions_are_told_once(void **state)
{
    (void)state;
    char *folder = new_folder("once");
    put_texts(folder, 40);
    put_pictures(folder, 2, false);
    put(folder, "x.orc", "?");
    assert_int_equal(WEFT("init", folder), 0);
    expect_complaint("2 pictures without captions, from which only a tokenizer can learn (first: ");
    expect_complaint("x.orc (files ending in .orc, which are not supported)");
    assert_null(strstr(complained.data, "without a line"));
    char *second = path_join(folder, "001.png");
    unlink(second);
    assert_int_equal(WEFT("init", folder), 0);
    expect_complaint("1 picture without a caption, from which only a tokenizer can learn (first: ");
    memory_free(second);
    memory_free(folder);
}

/* ---- Captions by name ---- */

/* Calls `weft init` for a folder; words: of --captions, NULL: none. */
static int init_captions(const char *folder, const char *word)
{
    return word ? WEFT("init", folder, "--captions", word) : WEFT("init", folder);
}

static void put_class(const char *folder, const char *name, i64 first, i64 count)
{
    char *inside = path_join(folder, name);
    assert_int_equal(directory_make(inside), 0);
    for (i64 i = 0; i < count; i++)
        put_picture(inside, first + i);
    memory_free(inside);
}

static void folders_of_classes_are_captions(void **state)
{
    (void)state;
    char *classes = new_folder("classes"), *file = in_folder("my.yaml"), *out = in_folder("classes-run"),
         *word = string_format("run=%s", out);
    put_class(classes, "cat", 0, 30);
    put_class(classes, "black_dog", 40, 30);
    expect_recipe(classes, "bpe vis shards base grid samples routing export report");
    static const char *const stages[] = {"bpe", "vis", "shards", "samples"};
    for (i64 i = 0; i < COUNT_OF(stages); i++)
        expect_setting(stages[i], "captions", "\"folder\"");
    assert_int_equal(init_captions(classes, NULL), 0);
    expect_complaint("captions are the names of folders: \"black dog\" (30), \"cat\" (30); chosen since no medium has "
                     "another and the folders look like classes");
    assert_null(strstr(complained.data, "are the same"));
    assert_int_equal(init_captions(classes, "folder"), 0);
    assert_null(strstr(complained.data, "chosen since"));
    assert_int_equal(init_captions(classes, "files"), 1);
    expect_complaint("media without captions (60)");
    assert_int_equal(WEFT("run", file, word, "bpe.vocabulary=300", "bpe"), 0);
    assert_int_equal(WEFT("inspect", classes), 0);
    assert_non_null(strstr(said.data, "--captions folder captions each by its innermost folder (\"black dog\" of "
                                      "black_dog/040.png; 60 such, 2 different), --captions name by its own name (here "
                                      "they say nothing, first: black_dog/040.png), and --captions none"));
    assert_int_equal(WEFT("inspect", classes, "--columns", "captions=folder"), 0);
    assert_null(strstr(said.data, "without_captions"));

    struct buffer tar = {0}; /* members of a tar have folders, too */
    for (i64 i = 0; i < 60; i++) {
        struct buffer png = {0};
        u8 pixels[12] = {(u8)i};
        char *name = string_format("set/%s/%02lld.png", i < 30 ? "cat" : "black_dog", (long long)i);
        image_encode_png(&png, pixels, 2, 2);
        tar_member_of(&tar, name, png.data, png.length);
        buffer_release(&png);
        memory_free(name);
    }
    tar_end(&tar);
    char *tars = new_folder("tars"), *file_of_tar = path_join(tars, "all.tar");
    assert_int_equal(file_replace(file_of_tar, tar.data, tar.length), 0);
    expect_recipe(tars, "bpe vis shards base grid samples routing export report");
    expect_setting("shards", "captions", "\"folder\"");
    assert_int_equal(init_captions(tars, "none"), 0);
    expect_complaint("60 pictures");
    buffer_release(&tar);
    memory_free(tars);
    memory_free(file_of_tar);

    put(classes, "LICENSE.txt", "free for all"); /* a few texts beside them change nothing */
    put(classes, "notes.md", "taken in spring");
    expect_recipe(classes, "bpe vis shards base grid samples routing export report");
    expect_setting("shards", "captions", "\"folder\"");
    assert_int_equal(init_captions(classes, NULL), 0);
    expect_complaint("1 x text");
    put_texts(classes, 60);
    expect_recipe(classes, "bpe shards base grid samples routing export report"); /* many texts: only advice */
    assert_int_equal(init_captions(classes, NULL), 0);
    expect_complaint("--captions folder captions each by its innermost folder (\"black dog\" of black_dog/040.png");

    char *photos = new_folder("by-year"); /* names of folders that say nothing are not taken unasked */
    put_class(photos, "2023", 0, 5);
    put_class(photos, "2024", 5, 5);
    assert_int_equal(init_captions(photos, NULL), 1);
    expect_complaint(
        "media without captions (10), from which no model can learn words: --captions folder captions each by "
        "its innermost folder (\"2023\" of 2023/000.png; 10 such, 2 different)");
    assert_int_equal(init_captions(photos, "folder"), 0);
    void *all[] = {classes, file, out, word, photos};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

static void names_of_files_are_captions(void **state)
{
    (void)state;
    char *named = new_folder("told-by-name");
    for (i64 i = 0; i < 60; i++) {
        char *from = string_format("%s/%03lld.png", named, (long long)i),
             *to = string_format("%s/%s%lld.png", named,
                                 i > 57  ? "IMG_"
                                 : i % 2 ? "a red house "
                                         : "a green house ",
                                 (long long)i);
        put_picture(named, i);
        assert_int_equal(rename(from, to), 0);
        memory_free(from);
        memory_free(to);
    }
    assert_int_equal(init_captions(named, NULL), 1);
    expect_complaint("--captions folder captions each by its innermost folder (here none is in one, first: ");
    expect_complaint("--captions name by its own name (\"a green house\" of ");
    assert_int_equal(init_captions(named, "name"), 0);
    expect_complaint("captions are the names of files: \"a green house\" (29), \"a red house\" (29)");
    expect_complaint("2 pictures whose names say nothing, as those of cameras (captions: name), from which only a "
                     "tokenizer can learn (first: ");
    assert_non_null(strstr(said.data, "captions: name"));
    memory_free(named);
}

static void without_captions_tokenizers_are_a_recipe(void **state)
{
    (void)state;
    char *alone = new_folder("wordless"), *file = in_folder("my.yaml"), *out = in_folder("wordless-run"),
         *word = string_format("run=%s", out), *page = path_join(out, "report.html"),
         *sounds = new_folder("wordless-sounds");
    put_pictures(alone, 60, false);
    put(alone, "000.txt", "words that are not read");
    put_long_chats(alone, "long.jsonl", 1, 5000);
    unlink(file);
    assert_int_equal(WEFT("init", alone, "--captions", "none", "-o", file), 0);
    expect_complaint("no captions are read: the recipe trains tokenizers of media alone");
    expect_complaint("60 pictures");
    expect_complaint("; 1 text or conversation is not learned");
    assert_null(strstr(complained.data, "captioned picture"));
    assert_int_equal(WEFT("inspect", file, "--json"), 0);
    json_free(recipe);
    recipe = json_parse(said.data, (i64)strlen(said.data), "stdout");
    assert_int_equal(json_count(json_get(recipe, "stages")), 2);
    expect_setting("vis", "captions", "\"none\"");
    expect_setting("vis", "steps", "2000");
    assert_true(strtod(setting_of("vis", "validation"), NULL) > 0.2);
    if (WEFT("run", file, word, "vis.steps=1", "vis.size=32", "vis.batch=1", "vis.channels=[8, 8]"))
        fail_msg("%s", complained.data);
    assert_true(file_exists(page));

    put_sounds(sounds, 4, 0.5);
    assert_int_equal(init_captions(sounds, "none"), 0);
    assert_non_null(strstr(said.data, "kind: tokenizer-audio"));
    assert_null(strstr(said.data, "kind: pretrain"));
    assert_null(strstr(said.data, "kind: tokenizer-text"));
    void *all[] = {alone, file, out, word, page, sounds};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

static void captions_that_cannot_be_taken_are_named(void **state)
{
    (void)state;
    char *top = new_folder("top"), *texts = new_folder("only-texts"), *one = new_folder("one-class"),
         *blank = new_folder("blank");
    put_pictures(top, 12, false);
    assert_int_equal(init_captions(top, "folder"), 1);
    expect_complaint("--captions folder: none of its 12 media is in a folder that names it (first: ");
    assert_int_equal(init_captions(top, "name"), 1);
    expect_complaint("--captions name: the names of its 12 media say nothing, as those of cameras (first: ");
    assert_int_equal(init_captions(top, "folders"), 2);
    expect_complaint("--captions folders: expected folder (");
    put_texts(texts, 30);
    assert_int_equal(init_captions(texts, "none"), 1);
    expect_complaint("--captions none, which learns media alone: 30 text-only files");
    put_class(one, "cat", 0, 1);
    assert_int_equal(init_captions(one, NULL), 1);
    expect_complaint(
        "media without captions (1), from which no model can learn words: --captions folder captions each by "
        "its innermost folder (\"cat\" of cat/000.png; 1 such, 1 different)");
    assert_int_equal(init_captions(one, "folder"), 0);
    expect_complaint("one medium with a caption is all there is");
    assert_null(strstr(complained.data, "are the same"));
    put_class(one, "cat", 0, 30);
    assert_int_equal(init_captions(one, "folder"), 0);
    expect_complaint(
        "all 30 captions are the same: a model learns nothing from them that tells one medium from another");
    put_pictures(one, 2, false);
    assert_int_equal(init_captions(one, "folder"), 0);
    expect_complaint(
        "2 pictures in no folder that names them (captions: folder), from which only a tokenizer can learn");

    put_pictures(blank, 30, true);
    put(blank, "003.txt", "");
    put(blank, "007.txt", " \n");
    assert_int_equal(init_captions(blank, NULL), 0);
    expect_complaint("2 pictures whose caption files are empty, from which only a tokenizer can learn (first: ");
    expect_complaint("003.txt");
    assert_null(strstr(complained.data, "cannot be read"));
    for (i64 i = 0; i < 30; i++)
        put_numbered(blank, ".txt", i, "");
    assert_int_equal(init_captions(blank, NULL), 1);
    expect_complaint("there are caption files, which are empty: 30, first: ");
    char *all[] = {top, texts, one, blank};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* ---- Proportions ---- */

/* Captioned pictures of a size, from number `first` on. */
static void put_sized(const char *folder, i64 first, i64 count, i64 width, i64 height)
{
    u8 *pixels = memory_alloc(height * width * 3);
    for (i64 i = first; i < first + count; i++) {
        char *path = string_format("%s/%03lld.png", folder, (long long)i);
        assert_int_equal(image_write_png(path, pixels, height, width), 0);
        put_numbered(folder, ".txt", i, "a black field");
        memory_free(path);
    }
    memory_free(pixels);
}

static void shapes_follow_the_pictures(void **state)
{
    (void)state;
    char *folder = new_folder("sized"), *file = in_folder("my.yaml"), *out = in_folder("sized-run"),
         *word = string_format("run=%s", out), *vision = path_join(out, "vis");
    put_sized(folder, 0, 60, 40, 40);
    expect_recipe(folder, "bpe vis shards base grid samples routing export report");
    expect_setting("vis", "aspects.shapes", "[]");
    put_sized(folder, 0, 60, 40, 30);
    expect_recipe(folder, "bpe vis shards base grid samples routing export report");
    expect_setting("vis", "aspects.shapes", "[\"4:3\"]");
    assert_int_equal(WEFT("init", folder), 0);
    expect_complaint(
        "shapes of pictures, width to height: 4:3 for 100 % of 60 looked at: pictures are cut by 0.0 % and "
        "white by 0.0 %, with the usual shapes by 10.0 % and 11.1 % (vis.aspects)");
    assert_non_null(strstr(said.data,
                           "    # Width to height of 60 looked at: 4:3 for 100 %.\n    # Pictures are cut by "
                           "0.0 % and white by 0.0 %, with the usual shapes by 10.0 % and 11.1 %.\n"));
    if (WEFT("run", file, word, "bpe.vocabulary=300", "vis.steps=1", "vis.batch=1", "vis.channels=[8, 8]", "bpe",
             "vis"))
        fail_msg("%s", complained.data);
    assert_int_equal(WEFT("inspect", vision), 0);
    assert_non_null(strstr(said.data, "64x48"));
    assert_null(strstr(complained.data, "padded"));

    put_sized(folder, 0, 30, 60, 20); /* half panoramas, and one in sixty of the height */
    put_sized(folder, 59, 1, 30, 40);
    expect_recipe(folder, "bpe vis shards base grid samples routing export report");
    expect_setting("vis", "aspects.shapes", "[\"3:1\",\"4:3\"]");
    void *all[] = {folder, file, out, word, vision};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(media_without_captions_are_told_once),
        cmocka_unit_test(folders_of_classes_are_captions),
        cmocka_unit_test(names_of_files_are_captions),
        cmocka_unit_test(without_captions_tokenizers_are_a_recipe),
        cmocka_unit_test(captions_that_cannot_be_taken_are_named),
        cmocka_unit_test(shapes_follow_the_pictures),
    };
    return cmocka_run_group_tests(tests, make_folder, clear_folder);
}
