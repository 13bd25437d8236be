/* `weft init`: the recipe for six kinds of folders, as the reader of recipes takes it, and what is
 * refused; and stages of a recipe whose medium the data do not hold. */
#include <stdlib.h>
#include <unistd.h>
#include "core/json.h"
#include "data/media/media.h"
#include "data/sources/sources.h"
#include "tests/cli_fixture.h"
#include "tests/tar_text.h"

static int make_folder(void **state)
{
    (void)state;
    setenv("WEFT_THREADS", "1", 1);
    shards = string_format("/tmp/weft-init.%d", (int)getpid());
    return directory_make(shards);
}

static int clear_folder(void **state)
{
    (void)state;
    directory_remove(shards);
    memory_free(shards);
    buffer_release(&said);
    buffer_release(&complained);
    return 0;
}

/* ---- Folders ---- */

static char *new_folder(const char *name)
{
    char *folder = in_folder(name);
    assert_int_equal(directory_make(folder), 0);
    return folder;
}

static void put(const char *folder, const char *name, const char *text)
{
    char *path = path_join(folder, name);
    assert_int_equal(file_replace(path, text, (i64)strlen(text)), 0);
    memory_free(path);
}

static void put_numbered(const char *folder, const char *form, i64 number, const char *text)
{
    char name[64];
    snprintf(name, sizeof name, "%03lld%s", (long long)number, form);
    put(folder, name, text);
}

static void put_picture(const char *folder, i64 number)
{
    char *path = string_format("%s/%03lld.png", folder, (long long)number);
    u8 pixels[4 * 4 * 3];
    memset(pixels, (int)number, sizeof pixels);
    assert_int_equal(image_write_png(path, pixels, 4, 4), 0);
    memory_free(path);
}

static void put_pictures(const char *folder, i64 count, bool captions)
{
    for (i64 i = 0; i < count; i++) {
        put_picture(folder, i);
        if (captions)
            put_numbered(folder, ".txt", i, "a grey square");
    }
}

static void put_texts(const char *folder, i64 count)
{
    for (i64 i = 0; i < count; i++)
        put_numbered(folder, "-text.txt", i, "It was a dark night, and nobody was out in the rain.\n");
}

static void put_chats(const char *folder, i64 count)
{
    struct buffer lines = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&lines,
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"say %lld\"}, {\"role\": \"assistant\", "
                      "\"content\": \"%lld\"}]}\n",
                      (long long)i, (long long)i);
    buffer_append(&lines, "", 1);
    put(folder, "chats.jsonl", lines.data);
    buffer_release(&lines);
}

static void put_sounds(const char *folder, i64 count, double seconds)
{
    struct sound sound;
    sound_init(&sound, (i64)(8000 * seconds), 8000);
    for (i64 i = 0; i < count; i++) {
        char *path = string_format("%s/%03lld.wav", folder, (long long)i);
        assert_int_equal(sound_write_wav(path, &sound), 0);
        put_numbered(folder, ".txt", i, "silence");
        memory_free(path);
    }
    sound_release(&sound);
}

/* Clips of one frame a second. */
static void put_clips(const char *folder, i64 count, i64 seconds, const char *ending, const char *words)
{
    struct clip clip;
    clip_init(&clip, seconds, 16, 16, 1);
    memset(clip.pixels, 90, (size_t)(seconds * 16 * 16 * 3));
    for (i64 i = 0; i < count; i++) {
        char *path = string_format("%s/%03lld.mp4", folder, (long long)i);
        assert_int_equal(clip_write_mp4(path, &clip), 0);
        put_numbered(folder, ending, i, words);
        memory_free(path);
    }
    clip_release(&clip);
}

/* ---- Recipes ---- */

static struct json *recipe; /* of the last folder, as the reader of recipes resolves it */

static const char *setting_of(const char *stage, const char *key)
{
    static struct buffer text;
    const struct json *at = json_get(json_get(json_get(recipe, "stages"), stage), "settings");
    char *copy = string_copy(key), *rest = copy;
    for (char *word; (word = strsep(&rest, "."));)
        at = json_get(at, word);
    buffer_clear(&text);
    json_print(&text, at, 0);
    buffer_append(&text, "", 1);
    memory_free(copy);
    return text.data;
}

static void expect_setting(const char *stage, const char *key, const char *value)
{
    const char *found = setting_of(stage, key);
    if (strcmp(found, value) != 0)
        fail_msg("%s.%s is %s, expected %s", stage, key, found, value);
}

static void expect_recipe_from(const char *folder, const char *model, const char *stages)
{
    struct buffer names = {0};
    struct json_iterator it;
    char *file = in_folder("my.yaml");
    unlink(file);
    if ((model ? WEFT("init", folder, "--from", model, "-o", file) : WEFT("init", folder, "-o", file)) ||
        WEFT("inspect", file, "--json"))
        fail_msg("%s: %s", folder, complained.data);
    json_free(recipe);
    recipe = json_parse(said.data, (i64)strlen(said.data), "stdout");
    for (bool more = json_first(&it, json_get(recipe, "stages")); more;
         more = json_next(&it, json_get(recipe, "stages")))
        buffer_printf(&names, "%s%s", names.length ? " " : "", it.key);
    assert_string_equal(names.data, stages);
    buffer_release(&names);
    memory_free(file);
}

static void expect_recipe(const char *folder, const char *stages)
{
    expect_recipe_from(folder, NULL, stages);
}

static void every_kind_of_folder_gets_the_stages_it_needs(void **state)
{
    (void)state;
    char *photos = new_folder("photos"), *texts = new_folder("texts"), *chats = new_folder("chats"),
         *sounds = new_folder("sounds"), *films = new_folder("films"), *mixed = new_folder("mixed");
    put_pictures(photos, 60, true);
    expect_recipe(photos, "bpe vis shards base grid samples routing export report");
    expect_setting("shards", "vision", "\"vis\"");
    expect_setting("shards", "audio", "null");
    expect_setting("vis", "clip_steps", "0");
    expect_setting("samples", "prompts", "[]");
    assert_string_equal(setting_of("base", "mixture.image_in"), setting_of("base", "mixture.image_out"));

    put_texts(texts, 60);
    expect_recipe(texts, "bpe shards base grid samples routing export report");
    expect_setting("shards", "vision", "null");
    expect_setting("samples", "prompts", "[\"It was a\"]");
    expect_setting("bpe", "vocabulary", "1024");

    put_chats(chats, 60);
    put(chats, "led.jsonl",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"You are kind\"}, {\"role\": "
        "\"user\", \"content\": \"who are you?\"}, {\"role\": \"assistant\", \"content\": "
        "\"kind\"}]}\n");
    expect_recipe(chats, "bpe shards base grid sft samples routing export report");
    expect_setting("samples", "prompts", "[\"say 0\",\"say 1\",\"say 2\"]");
    put(chats, "chats.jsonl", "");
    WEFT("init", chats);
    assert_non_null(strstr(said.data, "prompts: [\"who are you?\"]"));
    put_chats(chats, 60);
    expect_recipe(chats, "bpe shards base grid sft samples routing export report");
    expect_setting("sft", "from", "\"base\"");

    put_sounds(sounds, 4, 0.5);
    expect_recipe(sounds, "bpe aud shards base grid samples routing export report");
    expect_setting("shards", "audio", "\"aud\"");
    expect_setting("shards", "cut_sounds", "false");
    put_sounds(sounds, 4, 31);
    expect_recipe(sounds, "bpe aud shards base grid samples routing export report");
    expect_setting("shards", "cut_sounds", "true");

    put_clips(films, 3, 90, ".txt", "a grey wall");
    expect_recipe(films, "bpe vis shards base grid samples routing export report");
    expect_setting("shards", "windows.every_s", "1.5");
    expect_setting("shards", "film_sound", "\"none\"");
    assert_string_not_equal(setting_of("vis", "clip_steps"), "0");

    put_pictures(mixed, 60, true);
    put_texts(mixed, 60);
    put_chats(mixed, 60);
    expect_recipe(mixed, "bpe vis shards base grid sft samples routing export report");
    char *all[] = {photos, texts, chats, sounds, films, mixed};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* A conversation about picture `number`, which is no line's or caption's. */
static void put_shown_pictures(const char *folder, i64 count)
{
    struct buffer lines = {0};
    char *inside = path_join(folder, "shown");
    assert_int_equal(directory_make(inside), 0);
    put_pictures(inside, count, false);
    for (i64 i = 0; i < count; i++)
        buffer_printf(&lines,
                      "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"image\": "
                      "\"shown/%03lld.png\"}]}, {\"role\": \"assistant\", \"content\": \"grey\"}]}\n",
                      (long long)i);
    buffer_append(&lines, "", 1);
    put(folder, "shown.jsonl", lines.data);
    buffer_release(&lines);
    memory_free(inside);
}

/* A tokenizer is of use only for media that the model learns from. */
static void media_that_teach_no_words_get_no_tokenizer(void **state)
{
    (void)state;
    char *texts = new_folder("stray"), *clips = new_folder("stray-clips"), *file;
    put_texts(texts, 60);
    put_pictures(texts, 3, false);
    expect_recipe(texts, "bpe shards base grid samples routing export report");
    expect_setting("shards", "vision", "null");
    assert_int_equal(WEFT("init", texts), 0);
    expect_complaint("3 pictures without captions, from which only a tokenizer can learn");

    put_clips(clips, 3, 4, ".srt", "");
    put_pictures(clips, 60, true);
    for (i64 i = 0; i < 3; i++) {
        file = string_format("%s/%03lld.srt", clips, (long long)i);
        unlink(file);
        memory_free(file);
        file = string_format("%s/%03lld.mp4", clips, (long long)i);
        char *other = string_format("%s/alone-%lld.mp4", clips, (long long)i);
        assert_int_equal(rename(file, other), 0);
        memory_free(file);
        memory_free(other);
    }
    expect_recipe(clips, "bpe vis shards base grid samples routing export report");
    expect_setting("vis", "clip_steps", "0");

    memory_free(texts);
    memory_free(clips);
}

/* LLaVA's layout: the only pictures are in conversations. The tokenizer trains on them. */
static void pictures_of_conversations_get_a_tokenizer(void **state)
{
    (void)state;
    char *shown = new_folder("told-of"), *recipe_file = in_folder("my.yaml"), *out = in_folder("told-run"),
         *word = string_format("run=%s", out);
    put_shown_pictures(shown, 30);
    expect_recipe(shown, "bpe vis shards base grid sft samples routing export report");
    expect_setting("shards", "vision", "\"vis\"");
    assert_int_equal(WEFT("init", shown), 0);
    assert_null(strstr(complained.data, "left out"));
    assert_non_null(strstr(said.data, "epochs of 30 pictures"));
    if (WEFT("run", recipe_file, word, "vis.steps=1", "vis.size=32", "vis.batch=1", "vis.channels=[8, 8]", "bpe", "vis",
             "shards"))
        fail_msg("%s", complained.data);
    expect_complaint("vis: done in");
    assert_null(strstr(complained.data, "not wanted"));
    assert_int_equal(WEFT("inspect", out), 0);
    void *all[] = {shown, recipe_file, out, word};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* Conversations whose answers have `bytes` bytes. */
static void put_long_chats(const char *folder, const char *name, i64 count, i64 bytes)
{
    struct buffer lines = {0};
    for (i64 i = 0; i < count; i++) {
        buffer_printf(&lines,
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"say %lld\"}, {\"role\": \"assistant\", "
                      "\"content\": \"",
                      (long long)i);
        for (i64 k = 0; k < bytes / 5; k++)
            buffer_append(&lines, "word ", 5);
        buffer_printf(&lines, "\"}]}\n");
    }
    buffer_append(&lines, "", 1);
    put(folder, name, lines.data);
    buffer_release(&lines);
}

static void rows_are_as_long_as_most_conversations(void **state)
{
    (void)state;
    char *folder = new_folder("long-chats");
    put_long_chats(folder, "a.jsonl", 100, 500);
    expect_recipe(folder, "bpe shards base grid sft samples routing export report");
    expect_setting("base", "batch.length", "512.0");
    assert_null(strstr(complained.data, "longer than a row"));
    put_long_chats(folder, "b.jsonl", 1, 5000); /* one of 101: rows stay, and it is named */
    expect_recipe(folder, "bpe shards base grid sft samples routing export report");
    expect_setting("base", "batch.length", "512.0");
    assert_int_equal(WEFT("init", folder), 0);
    expect_complaint("1 of 101 x conversation: by their sizes longer than a row of 512 positions");
    put_long_chats(folder, "b.jsonl", 40, 5000);
    put_long_chats(folder, "c.jsonl", 2, 40000);
    expect_recipe(folder, "bpe shards base grid half more sft samples routing export report");
    expect_setting("base", "batch.length", "2048.0");
    expect_setting("sft", "batch.length", "2048.0");
    assert_int_equal(WEFT("init", folder), 0);
    assert_non_null(strstr(said.data, "# Rows of 2048, as more than 2 % of the samples are longer than 1024."));
    expect_complaint("2 of 142 x conversation: by their sizes longer than a row of 2048 positions");
    put_long_chats(folder, "c.jsonl", 90, 40000);
    expect_recipe(folder, "bpe shards base grid half more sft samples routing export report");
    expect_setting("base", "batch.length", "4096.0");
    memory_free(folder);
}

static void too_little_data_are_warned_of(void **state)
{
    (void)state;
    char *folder = new_folder("tiny");
    put(folder, "a.txt", "twenty bytes of text");
    put(folder, "b.txt", "twenty bytes of more.");
    assert_int_equal(WEFT("init", folder), 0);
    expect_complaint("too little to learn from: 43 bytes of text and 0 media");
    struct buffer text = {0};
    for (i64 i = 0; i < 6000; i++)
        buffer_printf(&text, "Line %lld says that there are many lines.\n", (long long)i);
    buffer_append(&text, "", 1);
    put(folder, "b.txt", text.data);
    assert_int_equal(WEFT("init", folder), 0);
    assert_null(strstr(complained.data, "too little"));
    buffer_release(&text);
    memory_free(folder);
}

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

/* Sizes follow from the number of positions. */
static void put_lines(const char *folder, i64 count)
{
    struct buffer text = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&text, "Line %lld says that there are many lines, and that no two of them agree.\n",
                      (long long)i);
    buffer_append(&text, "", 1);
    put(folder, "all.txt", text.data);
    buffer_release(&text);
}

static void larger_data_get_more_steps_and_a_sub_model(void **state)
{
    (void)state;
    char *folder = new_folder("large");
    put_lines(folder, 4000);
    expect_recipe(folder, "bpe shards base grid samples routing export report");
    expect_setting("base", "model.width", "96");
    expect_setting("base", "mixture.text", "25.0");
    put_lines(folder, 60000);
    expect_recipe(folder, "bpe shards base grid half more samples routing export report");
    expect_setting("bpe", "vocabulary", "4096");
    expect_setting("half", "layers", "\"0,2,4-7\"");
    expect_setting("more", "from", "\"half\"");
    assert_true(atoll(setting_of("base", "steps")) >= 1000 && atoll(setting_of("base", "steps")) <= 3000);
    memory_free(folder);
}

/* Shown 48 times, 60 texts of 52 bytes and about 17 ids are run through in few steps, by a small model,
 * whose best step is kept; where nothing is held out, none is best. */
static void few_data_get_few_steps_and_keep_the_best(void **state)
{
    (void)state;
    char *folder = new_folder("few texts"), *one = new_folder("one text");
    put_texts(folder, 60);
    put_chats(folder, 60);
    expect_recipe(folder, "bpe shards base grid sft samples routing export report");
    expect_setting("base", "model.width", "64");
    expect_setting("base", "keep_best", "\"heldout\"");
    expect_setting("sft", "keep_best", "\"heldout\"");
    expect_setting("base", "patience", "6");
    expect_setting("base", "mixture.text", "48.0");
    double steps = atof(setting_of("base", "steps")), rows = atof(setting_of("base", "batch.rows"));
    double share = 1 - atof(setting_of("shards", "validation"));
    double positions = 48 * 60 * share * ((53 + 7) / 3.3 + 8), of_steps = steps * rows * 512;
    assert_true(of_steps > 0.8 * positions && of_steps < 1.2 * positions);
    put(one, "a.txt", "It was a dark night, and nobody was out in the rain.\n");
    expect_recipe(one, "bpe shards base grid samples routing export report");
    expect_setting("base", "keep_best", "null");
    memory_free(folder);
    memory_free(one);
}

/* ---- Going on from a model ---- */

static void put_model(const char *folder)
{
    struct model model;
    struct model_config c = toy_config(2, 0);
    device_open_cpu(&device);
    toy_open(&model, &device, &c, false);
    assert_int_equal(model_save(&model, folder), 0);
    model_close(&model);
    device_close(&device);
}

/* With its tokenizers, the mixture of its training, and its shards beside the new ones. */
static void a_recipe_goes_on_from_a_model(void **state)
{
    (void)state;
    char *folder = new_folder("further"), *heard = new_folder("further/heard"), *model = new_folder("trained/base"),
         *old = new_folder("trained/shards"), *vision = new_folder("trained/base/weft/vision"),
         *file = path_join(old, "shards.json");
    put_model(model);
    put_texts(folder, 60);
    put_pictures(folder, 60, true);
    put_sounds(heard, 30, 0.5);
    put(vision, "config.json", "{}");
    assert_int_equal(WEFT("init", folder, "--from", model), 1);
    expect_complaint("the model has no tokenizer.json");
    put(model, "tokenizer.json", "{}");
    expect_recipe_from(folder, model, "shards before base grid after samples routing export report");
    assert_int_equal(WEFT("init", folder, "--from", model), 0);
    expect_complaint("has no audio tokenizer: sounds are left out");
    char *quoted = string_format("\"%s\"", model), *parts = string_format("\"%s\"", vision);
    expect_setting("shards", "text", quoted);
    expect_setting("shards", "vision", parts);
    expect_setting("shards", "audio", "null");
    expect_setting("base", "from", quoted);
    expect_setting("before", "from", quoted);
    expect_setting("after", "from", "\"base\"");
    expect_setting("base", "data", "\"shards\"");
    assert_int_equal(WEFT("init", folder, "--from", model), 0);
    assert_non_null(strstr(said.data, "image_in: "));
    assert_null(strstr(said.data, "audio_in"));

    put(model, "identity.json",
        "{\"settings\": {\"data\": \"shards\", \"mixture\": {\"text\": 0.5, \"image_in\": 30, \"image_out\": 10, "
        "\"chat\": 2}}}");
    expect_recipe_from(folder, model, "shards before base grid after samples routing export report"); /* it is gone */
    put(old, "shards.json", "{}");
    expect_recipe_from(folder, model,
                       "shards before old-before base grid after old-after samples routing export report");
    quoted[strlen(quoted) - 1] = 0;
    assert_non_null(strstr(setting_of("base", "data"), old));
    assert_non_null(strstr(setting_of("old-after", "data"), old));
    expect_setting("base", "heldout", "\"shards\"");
    expect_setting("base", "mixture.chat", "2.0"); /* of the shards alone */
    expect_setting("base", "mixture.video_in", "0.0");

    put(model, "config.json", "{}");
    assert_int_equal(WEFT("init", folder, "--from", model), 1);
    expect_complaint("config.json");
    assert_int_equal(WEFT("init", folder, "--from", "/nowhere"), 1);
    expect_complaint("--from /nowhere: there is no such folder; expected the folder of a model");
    char *all[] = {folder, heard, model, old, vision, file, quoted, parts};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

static void subtitles_and_short_clips_decide_about_windows(void **state)
{
    (void)state;
    char *shorts = new_folder("shorts"), *told = new_folder("told");
    put_clips(shorts, 3, 4, ".txt", "a grey wall");
    expect_recipe(shorts, "bpe vis shards base grid samples routing export report");
    expect_setting("shards", "windows.every_s", "0.0");
    put_clips(told, 3, 4, ".srt", "1\n00:00:00,000 --> 00:00:03,000\nhere is a wall\n");
    expect_recipe(told, "bpe vis shards base grid samples routing export report");
    expect_setting("shards", "windows.every_s", "1.5");
    memory_free(shorts);
    memory_free(told);
}

/* The share that is written draws as many as it says. */
static void twenty_samples_are_held_out_where_there_are_as_many(void **state)
{
    (void)state;
    char *folder = new_folder("share"), *named = new_folder("named"), *validation = path_join(named, "validation"),
         *few = new_folder("few");
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

    put_texts(named, 30);
    assert_int_equal(directory_make(validation), 0);
    put_texts(validation, 3);
    WEFT("init", named);
    expect_complaint("train 30, validation 3");
    expect_complaint("3 held-out samples are fewer than 20");
    assert_null(strstr(said.data, "validation:"));

    put_texts(few, 6);
    expect_recipe(few, "bpe shards base grid samples routing export report");
    WEFT("init", few);
    assert_non_null(strstr(said.data, "validation: 0."));
    memory_free(copy);
    memory_free(folder);
    memory_free(named);
    memory_free(validation);
    memory_free(few);
}

/* Written with a relative path, and read from a folder where that path leads nowhere. */
static void a_recipe_runs_from_any_folder(void **state)
{
    char *here = getcwd(NULL, 0), *top = realpath(shards, NULL), *data = new_folder("Fotos Größe");
    char *expected = string_format("\"%s/Fotos Größe\"", top), *run = string_format("\"%s/out/Fotos-Größe\"", top);
    (void)state;
    put_texts(data, 60);
    assert_int_equal(chdir(shards), 0);
    expect_recipe("./Fotos Größe", "bpe shards base grid samples routing export report");
    expect_setting("bpe", "data", expected);
    expect_setting("shards", "data", expected);
    assert_int_equal(chdir("Fotos Größe"), 0);
    struct buffer name = {0};
    json_print(&name, json_get(recipe, "run"), 0);
    assert_string_equal(name.data, run);
    buffer_clear(&name);
    expect_recipe(".", "bpe shards base grid samples routing export report"); /* beside the data that it stands in */
    json_print(&name, json_get(recipe, "run"), 0);
    assert_string_equal(name.data, run);
    assert_int_equal(chdir(here), 0);
    buffer_release(&name);
    memory_free(expected);
    memory_free(data);
    memory_free(run);
    free(here);
    free(top);
}

static void several_folders_share_their_tokenizers(void **state)
{
    (void)state;
    char *a = new_folder("a"), *b = new_folder("b"), *file = in_folder("two.yaml");
    put_texts(a, 40);
    put_pictures(b, 40, true);
    if (WEFT("init", a, b, "-o", file) || WEFT("inspect", file, "--json"))
        fail_msg("%s", complained.data);
    json_free(recipe);
    recipe = json_parse(said.data, (i64)strlen(said.data), "stdout");
    expect_setting("base", "data", "[\"shards\",\"shards-2\"]");
    expect_setting("shards", "vision", "\"vis\"");
    expect_setting("shards-2", "vision", "\"vis\"");
    assert_non_null(strstr(setting_of("bpe", "data"), "/a\""));
    assert_non_null(strstr(setting_of("vis", "data"), "/b\""));
    assert_non_null(strstr(setting_of("samples", "data"), "/b\""));
    memory_free(a);
    memory_free(b);
    memory_free(file);
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

/* ---- What is refused ---- */

static void refuse(const char *folder, const char *says)
{
    char *file = in_folder("refused.yaml");
    assert_int_equal(WEFT("init", folder, "-o", file), 1);
    expect_complaint(says);
    expect_absent(file);
    assert_string_equal(said.data, "");
    memory_free(file);
}

static void what_cannot_be_trained_on_is_refused(void **state)
{
    (void)state;
    char *empty = new_folder("empty"), *broken = new_folder("broken"), *alone = new_folder("alone"),
         *lines = new_folder("lines"), *model = new_folder("model"), *there = in_folder("there.yaml"),
         *inside = path_join(lines, "my.yaml");
    refuse("/nowhere/at/all", "there is no /nowhere/at/all");
    refuse(empty, "nothing there that can be read");
    put(shards, "photos.rar", "PK");
    char *rar = in_folder("photos.rar");
    refuse(rar, "photos.rar: an archive of a kind that is not read: unpack it into a folder");
    memory_free(rar);
    put(broken, "a.jpg", "no picture");
    put(broken, "a.txt", "a caption");
    refuse(broken, "1 of 1 entries cannot be read");
    put_pictures(alone, 3, false);
    refuse(alone, "media without captions (3)");
    put(alone, "list.csv", "picture,title\n000.png,grey\n");
    refuse(alone, "Its columns are: picture, title");
    put(lines, "a.jsonl", "{\"text\": 3\n");
    refuse(lines, "entries cannot be read");
    put(model, "config.json", "{\"model_type\": \"llama\"}");
    refuse(model, "model, not data");
    put_texts(lines, 3);
    put(shards, "there.yaml", "mine");
    assert_int_equal(WEFT("init", lines, "-o", there), 1);
    expect_complaint("there.yaml exists");
    assert_int_equal(WEFT("init", lines, "-o", inside), 1);
    expect_complaint("lies in the data");
    assert_false(file_exists(inside));
    assert_int_equal(WEFT("init"), 2);
    char *all[] = {empty, broken, alone, lines, model, there, inside};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

static void some_unreadable_pictures_are_allowed_for(void **state)
{
    (void)state;
    char *folder = new_folder("damaged");
    put_pictures(folder, 27, true);
    for (i64 i = 27; i < 30; i++) {
        put_numbered(folder, ".png", i, "no picture");
        put_numbered(folder, ".txt", i, "a caption");
    }
    expect_recipe(folder, "bpe vis shards base grid samples routing export report");
    expect_setting("vis", "bad_share", "0.2");
    expect_setting("shards", "bad_share", "0.2");
    expect_setting("bpe", "bad_share", "0.05");
    assert_int_equal(WEFT("init", folder), 0);
    expect_complaint("3 of 30 opened pictures cannot be read");
    char *chats = new_folder("odd-roles"), *file = in_folder("my odd recipe.yaml");
    put_chats(chats, 12);
    put(chats, "odd.jsonl", "{\"messages\": [{\"role\": \"narrator\", \"content\": \"Once\"}]}\n");
    expect_recipe(chats, "bpe shards base grid sft samples routing export report");
    expect_setting("bpe", "bad_share", "0.17");
    assert_int_equal(WEFT("init", chats, "-o", file), 0);
    expect_complaint("next: weft run '");
    memory_free(file);
    memory_free(chats);
    memory_free(folder);
}

/* ---- Skipped stages ---- */

/* names: of stages, ended by NULL. */
static int call_skipping(const char *command, const char *const *names, const char *path, const char *data,
                         const char *run_folder)
{
    char *run_word = string_format("run=%s", run_folder), *words[4];
    static const char *const stages[] = {"vis", "aud", "shards"};
    words[3] = NULL;
    for (i64 i = 0; i < 3; i++)
        words[i] = string_format("%s.data=%s", stages[i], data);
    const char *all[12] = {command, path, run_word, words[0], words[1], words[2]};
    for (i64 i = 0; names[i]; i++)
        all[6 + i] = names[i];
    int status = run("", all);
    for (i64 i = 0; i < 3; i++)
        memory_free(words[i]);
    memory_free(run_word);
    return status;
}

static int run_skipping(const char *path, const char *data, const char *run_folder)
{
    return call_skipping("run", (const char *const[]){NULL}, path, data, run_folder);
}

/* What the plan says to be skipped is what the run skips, before it and after it. */
static void expect_plan(const char *path, const char *data, const char *run_folder, bool ran)
{
    const char *const names[] = {"vis", "aud", "shards", ran ? "sft" : NULL, NULL};
    if (call_skipping("plan", names, path, data, run_folder))
        fail_msg("%s", complained.data);
    assert_non_null(strstr(said.data, "vis: skipped: "));
    assert_non_null(strstr(said.data, "plain holds no pictures and no clips\n"));
    assert_non_null(strstr(said.data, "aud: skipped: "));
    assert_int_equal(strstr(said.data, "sft: skipped: ") != NULL, ran); /* its shards must be there */
    assert_int_equal(strstr(said.data, "shards: about ") != NULL, ran);
}

static void expect_reference(const char *run_folder, const char *stage, const char *key, const char *value)
{
    char *path = string_format("%s/%s/done.json", run_folder, stage);
    struct json *done = json_load(path);
    assert_string_equal(json_string(json_get(json_get(json_get(done, "identity"), "inputs"), key), ""), value);
    json_free(done);
    memory_free(path);
}

static void stages_without_their_medium_are_skipped(void **state)
{
    (void)state;
    char *folder = new_folder("plain"), *path = in_folder("skip.yaml"), *out = in_folder("run"),
         *page = path_join(out, "report.html"), *vision = path_join(out, "shards/vision"), *words = new_folder("words");
    struct buffer text = {0};
    put_texts(folder, 30);
    put_texts(words, 30);
    buffer_printf(
        &text,
        "run: x\nstages:\n  bpe: {kind: tokenizer-text, data: %s, vocabulary: 300}\n"
        "  vis: {kind: tokenizer-vision, data: bpe, steps: 1, size: 32, clip_steps: 0, batch: 1, channels: [8, 8]}\n"
        "  aud: {kind: tokenizer-audio, data: bpe, steps: 1}\n"
        "  shards: {kind: prepare, data: bpe, text: bpe, vision: vis, audio: aud}\n"
        "  sft: {kind: sft, from: %s, data: shards}\n"
        "  rl: {kind: rl, from: sft, prompts: %s}\n"
        "  report: {kind: report}\n",
        words, words, words);
    buffer_append(&text, "", 1);
    put(shards, "skip.yaml", text.data);
    expect_plan(path, folder, out, false);
    if (run_skipping(path, folder, out))
        fail_msg("%s", complained.data);
    expect_complaint("vis: skipped: ");
    expect_complaint("plain holds no pictures and no clips");
    expect_complaint("aud: skipped: ");
    expect_complaint("plain holds no sounds");
    expect_complaint("sft: skipped: ");
    expect_complaint("holds no conversations");
    expect_complaint("rl: skipped: it reads sft, which was skipped");
    expect_complaint("made:    bpe, shards in");
    expect_complaint("skipped: aud (");
    expect_reference(out, "shards", "vis", "skipped");
    assert_false(file_exists(vision));
    buffer_clear(&text);
    assert_int_equal(file_read(&text, page), 0);
    buffer_append(&text, "", 1);
    assert_non_null(strstr(text.data, "Skipped: aud ("));
    assert_int_equal(WEFT("inspect", out), 0);
    assert_non_null(strstr(said.data, "skipped"));
    expect_plan(path, folder, out, true);

    if (run_skipping(path, folder, out)) /* again: the same, without looking */
        fail_msg("%s", complained.data);
    expect_complaint("vis: skipped: ");
    expect_complaint("shards: done before");

    /* With a picture its stage runs. What was made without it is refused as other changes are. */
    put_picture(folder, 1);
    assert_int_equal(call_skipping("plan", (const char *const[]){"vis", "aud", NULL}, path, folder, out), 0);
    assert_null(strstr(said.data, "vis: skipped: "));
    assert_non_null(strstr(said.data, "aud: skipped: "));
    if (run_skipping(path, folder, out) == 0)
        fail_msg("shards of other inputs were taken: %s", complained.data);
    expect_complaint("vis: done in");
    expect_complaint("shards was made with other settings or inputs");
    expect_complaint("aud: skipped: ");

    char *all[] = {folder, words, path, out, page, vision};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
    buffer_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_folder_gets_the_stages_it_needs),
        cmocka_unit_test(media_that_teach_no_words_get_no_tokenizer),
        cmocka_unit_test(pictures_of_conversations_get_a_tokenizer),
        cmocka_unit_test(rows_are_as_long_as_most_conversations),
        cmocka_unit_test(too_little_data_are_warned_of),
        cmocka_unit_test(media_without_captions_are_told_once),
        cmocka_unit_test(larger_data_get_more_steps_and_a_sub_model),
        cmocka_unit_test(few_data_get_few_steps_and_keep_the_best),
        cmocka_unit_test(a_recipe_goes_on_from_a_model),
        cmocka_unit_test(subtitles_and_short_clips_decide_about_windows),
        cmocka_unit_test(twenty_samples_are_held_out_where_there_are_as_many),
        cmocka_unit_test(a_recipe_runs_from_any_folder),
        cmocka_unit_test(several_folders_share_their_tokenizers),
        cmocka_unit_test(folders_of_classes_are_captions),
        cmocka_unit_test(names_of_files_are_captions),
        cmocka_unit_test(without_captions_tokenizers_are_a_recipe),
        cmocka_unit_test(captions_that_cannot_be_taken_are_named),
        cmocka_unit_test(shapes_follow_the_pictures),
        cmocka_unit_test(what_cannot_be_trained_on_is_refused),
        cmocka_unit_test(some_unreadable_pictures_are_allowed_for),
        cmocka_unit_test(stages_without_their_medium_are_skipped),
    };
    int status = cmocka_run_group_tests(tests, make_folder, clear_folder);
    json_free(recipe);
    return status;
}
