/* `weft init`: the recipe for six kinds of folders, as the reader of recipes takes it, and what is
 * refused; and stages of a recipe whose medium the data do not hold. */
#include "data/sources/sources.h"
#include "tests/cases.h"
#include "tests/init_fixture.h"

/* ---- Folders of data ---- */

static i64 number_of(const struct json *list, i64 index)
{
    return json_integer(json_at(list, index), 0);
}

/* Puts what a list says: [KIND, ARGUMENTS..]. */
static void put_kind(struct cases *c, const char *folder, const struct json *list)
{
    const char *kind = json_string(json_at(list, 0), ""), *word = json_string(json_at(list, 1), NULL);
    i64 first = number_of(list, 1), second = number_of(list, 2);
    char *inside = path_join(folder, word ? word : json_string(json_at(list, 2), ""));
    if (strcmp(kind, "pictures") == 0)
        for (i64 i = second; i < second + first; i++) {
            put_picture(folder, i);
            put_numbered(folder, ".txt", i, "a grey square");
        }
    else if (strcmp(kind, "bare pictures") == 0)
        put_pictures(folder, first, false);
    else if (strcmp(kind, "class") == 0)
        put_class(folder, word, second, number_of(list, 3));
    else if (strcmp(kind, "sized") == 0)
        put_sized(folder, first, second, number_of(list, 3), number_of(list, 4));
    else if (strcmp(kind, "texts") == 0 && directory_make(inside) == 0)
        put_texts(inside, first);
    else if (strcmp(kind, "lines") == 0)
        put_lines(folder, first);
    else if (strcmp(kind, "chats") == 0)
        put_chats(folder, first);
    else if (strcmp(kind, "long chats") == 0)
        put_long_chats(folder, word, second, number_of(list, 3));
    else if (strcmp(kind, "sounds") == 0)
        put_sounds(folder, first, json_number(json_at(list, 2), 0));
    else if (strcmp(kind, "clips") == 0)
        put_clips(folder, first, second, json_string(json_at(list, 3), NULL), json_string(json_at(list, 4), NULL));
    else
        fail_msg("tests/cases/%s:%lld: there is no kind \"%s\"", c->name, (long long)c->line, kind);
    memory_free(inside);
}

/* Each of the key's parts is in the text, or none. */
static void check_parts(struct cases *c, const char *key, const struct buffer *text, bool there)
{
    const struct json *parts = json_get(c->row, key);
    for (i64 i = 0; i < json_count(parts); i++)
        if ((strstr(text->data, json_string(json_at(parts, i), "")) != NULL) != there)
            case_wrong(c, "%s: %s", key, text->data);
}

/* The recipe on stdout, as its reader takes it. */
static void check_recipe(struct cases *c)
{
    char *file = in_folder("my.yaml");
    struct buffer names = {0};
    struct json_iterator it;
    assert_int_equal(file_replace(file, said.data, said.length), 0);
    if (WEFT("inspect", file, "--json"))
        fail_msg("tests/cases/%s:%lld: %s", c->name, (long long)c->line, complained.data);
    json_free(recipe);
    recipe = json_parse(said.data, (i64)strlen(said.data), "stdout");
    const struct json *stages = json_get(recipe, "stages"), *settings = json_get(c->row, "settings");
    for (bool more = json_first(&it, stages); more; more = json_next(&it, stages))
        buffer_printf(&names, "%s%s", names.length ? " " : "", it.key);
    case_expect(c, "stages", names.data);
    for (bool more = json_first(&it, settings); more; more = json_next(&it, settings)) {
        char *stage = string_copy(it.key), *key = strchr(stage, '.');
        *key++ = 0;
        buffer_clear(&names);
        json_print(&names, it.value, 0);
        const char *found = setting_of(stage, key);
        if (strcmp(found, names.data) != 0)
            case_wrong(c, "%s is %s", it.key, found);
        memory_free(stage);
    }
    buffer_release(&names);
    memory_free(file);
}

TEST(each_folder_gets_its_recipe_or_a_reason)
{
    EACH_CASE (c, "init.jsonl") {
        char *folder = new_folder("data");
        const struct json *kinds = json_get(c->row, "put"), *files = json_get(c->row, "files");
        const struct json *words = json_get(c->row, "init");
        struct json_iterator file;
        for (i64 i = 0; i < json_count(kinds); i++)
            put_kind(c, folder, json_at(kinds, i));
        for (bool more = json_first(&file, files); more; more = json_next(&file, files))
            text_in(folder, file.key, json_string(file.value, ""));
        int status = WEFT("init", folder, json_string(json_at(words, 0), NULL), json_string(json_at(words, 1), NULL));
        if (status != json_integer(json_get(c->row, "status"), 0))
            case_wrong(c, "status %d: %s", status, complained.data);
        else if (status && said.length > 0)
            case_wrong(c, "it is refused and printed: %s", said.data);
        check_parts(c, "says", &complained, true);
        check_parts(c, "not_said", &complained, false);
        check_parts(c, "prints", &said, true);
        check_parts(c, "not_printed", &said, false);
        if (json_get(c->row, "stages") && status == 0)
            check_recipe(c);
        assert_int_equal(directory_remove(folder), 0);
        memory_free(folder);
    }
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
    text_in(folder, "shown.jsonl", lines.data);
    buffer_release(&lines);
    memory_free(inside);
}

/* Pictures without a vision tokenizer are not wanted. */
TEST(a_folder_without_a_sample_says_why)
{
    char *folder = new_folder("blind"), *file = in_folder("blind.yaml"), *out = in_folder("blind-run");
    put_pictures(folder, 30, true);
    char *text = string_format("run: %s\nstages:\n  bpe: {kind: tokenizer-text, data: %s, vocabulary: 512}\n"
                               "  shards: {kind: prepare, data: %s, text: bpe, directions: [image-in]}\n",
                               out, folder, folder);
    assert_int_equal(file_replace(file, text, (i64)strlen(text)), 0);
    assert_int_equal(WEFT("run", file), 1);
    expect_complaint("no sample for training among 30: 0 could not be read, 30 were not wanted or have no tokenizer");
    char *all[] = {folder, file, out, text};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* LLaVA's layout: the only pictures are in conversations. The tokenizer trains on them. */
TEST(pictures_of_conversations_get_a_tokenizer)
{
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
TEST(a_recipe_goes_on_from_a_model)
{
    char *folder = new_folder("further"), *heard = new_folder("further/heard"), *model = new_folder("trained/base"),
         *old = new_folder("trained/shards"), *vision = new_folder("trained/base/weft/vision"),
         *file = path_join(old, "shards.json");
    put_model(model);
    put_texts(folder, 60);
    put_pictures(folder, 60, true);
    put_sounds(heard, 30, 0.5);
    text_in(vision, "config.json", "{}");
    assert_int_equal(WEFT("init", folder, "--from", model), 1);
    expect_complaint("the model has no tokenizer.json");
    text_in(model, "tokenizer.json", "{}");
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

    text_in(model, "identity.json",
            "{\"settings\": {\"data\": \"shards\", \"mixture\": {\"text\": 0.5, \"image_in\": 30, \"image_out\": 10, "
            "\"chat\": 2}}}");
    expect_recipe_from(folder, model, "shards before base grid after samples routing export report"); /* it is gone */
    text_in(old, "shards.json", "{}");
    expect_recipe_from(folder, model,
                       "shards before old-before base grid after old-after samples routing export report");
    quoted[strlen(quoted) - 1] = 0;
    assert_non_null(strstr(setting_of("base", "data"), old));
    assert_non_null(strstr(setting_of("old-after", "data"), old));
    expect_setting("base", "heldout", "\"shards\"");
    expect_setting("base", "mixture.chat", "2.0"); /* of the shards alone */
    expect_setting("base", "mixture.video_in", "0.0");

    text_in(model, "config.json", "{}");
    assert_int_equal(WEFT("init", folder, "--from", model), 1);
    expect_complaint("config.json");
    assert_int_equal(WEFT("init", folder, "--from", "/nowhere"), 1);
    expect_complaint("--from /nowhere: there is no such folder; expected the folder of a model");
    char *all[] = {folder, heard, model, old, vision, file, quoted, parts};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* Written with a relative path, and read from a folder where that path leads nowhere. */
TEST(a_recipe_runs_from_any_folder)
{
    char *here = getcwd(NULL, 0), *top = realpath(shards, NULL), *data = new_folder("Fotos Größe");
    char *expected = string_format("\"%s/Fotos Größe\"", top), *run = string_format("\"%s/out/Fotos-Größe\"", top);
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

TEST(several_folders_share_their_tokenizers)
{
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

TEST(what_cannot_be_trained_on_is_refused)
{
    char *empty = new_folder("empty"), *lines = new_folder("lines"), *there = in_folder("there.yaml"),
         *inside = path_join(lines, "my.yaml"), *rar = in_folder("photos.rar");
    refuse("/nowhere/at/all", "there is no /nowhere/at/all");
    refuse(empty, "nothing there that can be read");
    text_in(shards, "photos.rar", "PK");
    refuse(rar, "photos.rar: an archive of a kind that is not read: unpack it into a folder");
    put_texts(lines, 3);
    text_in(shards, "there.yaml", "mine");
    assert_int_equal(WEFT("init", lines, "-o", there), 1);
    expect_complaint("there.yaml exists");
    assert_int_equal(WEFT("init", lines, "-o", inside), 1);
    expect_complaint("lies in the data");
    assert_false(file_exists(inside));
    assert_int_equal(WEFT("init"), 2);
    char *all[] = {empty, lines, there, inside, rar};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

TEST(the_next_command_is_quoted)
{
    char *chats = new_folder("quoted"), *file = in_folder("my odd recipe.yaml");
    put_chats(chats, 12);
    assert_int_equal(WEFT("init", chats, "-o", file), 0);
    expect_complaint("next: weft run '");
    memory_free(file);
    memory_free(chats);
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

TEST(stages_without_their_medium_are_skipped)
{
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
    text_in(shards, "skip.yaml", text.data);
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
    return tests_run(make_folder, clear_folder);
}
