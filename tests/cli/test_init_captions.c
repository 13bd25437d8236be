/* `weft init`: captions by folders and names of files, or none; and shapes by the proportions of pictures. */
#include "tests/init_fixture.h"
#include "tests/tar_text.h"

/* ---- Captions by name ---- */

/* Calls `weft init` for a folder; words: of --captions, NULL: none. */
static int init_captions(const char *folder, const char *word)
{
    return word ? WEFT("init", folder, "--captions", word) : WEFT("init", folder);
}

TEST(folders_of_classes_are_captions)
{
    char *classes = new_folder("classes"), *file = in_folder("my.yaml"), *out = in_folder("classes-run"),
         *word = string_format("run=%s", out);
    put_class(classes, "cat", 0, 30);
    put_class(classes, "black_dog", 40, 30);
    expect_recipe(classes, "bpe vis shards base grid samples routing export report");
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

    void *all[] = {classes, file, out, word};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

TEST(names_of_files_are_captions)
{
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

TEST(without_captions_tokenizers_are_a_recipe)
{
    char *alone = new_folder("wordless"), *file = in_folder("my.yaml"), *out = in_folder("wordless-run"),
         *word = string_format("run=%s", out), *page = path_join(out, "report.html");
    put_pictures(alone, 60, false);
    text_in(alone, "000.txt", "words that are not read");
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
    void *all[] = {alone, file, out, word, page};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* ---- Proportions ---- */

TEST(shapes_follow_the_pictures)
{
    char *folder = new_folder("sized"), *file = in_folder("my.yaml"), *out = in_folder("sized-run"),
         *word = string_format("run=%s", out), *vision = path_join(out, "vis");
    put_sized(folder, 0, 60, 40, 30);
    expect_recipe(folder, "bpe vis shards base grid samples routing export report");
    if (WEFT("run", file, word, "bpe.vocabulary=300", "vis.steps=1", "vis.batch=1", "vis.channels=[8, 8]", "bpe",
             "vis"))
        fail_msg("%s", complained.data);
    assert_int_equal(WEFT("inspect", vision), 0);
    assert_non_null(strstr(said.data, "64x48"));
    assert_null(strstr(complained.data, "padded"));
    void *all[] = {folder, file, out, word, vision};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

int main(void)
{
    return tests_run(make_folder, clear_folder);
}
