/* Bad input to the program: recipes, media, texts, models, options, shards (bad_input.h). */
#define _GNU_SOURCE /* unshare */
#include "tests/bad_input.h"
#include "tests/cases.h"

/* ---- What is refused ---- */

/* Characters up to U+00FF as single bytes, in place. */
static void to_latin1(char *text)
{
    u8 *out = (u8 *)text;
    for (const u8 *at = out; *at; at++, out++) {
        *out = *at < 0xc0 ? *at : (u8)(*at << 6 | (at[1] & 0x3f));
        at += *at >= 0xc0;
    }
    *out = 0;
}

/* A string of a case, or its bytes in Latin-1; NULL: none. memory_free */
static char *text_of(struct cases *c, const struct json *value)
{
    if (json_kind(value) != JSON_STRING)
        return NULL;
    char *text = string_copy(json_string(value, ""));
    if (json_get(c->row, "bytes"))
        to_latin1(text);
    return text;
}

/* Puts `folder`, a copy of one beside work; `files`; r.yaml of `head` and `stage`; and `damage`. */
static void put_case(struct cases *c)
{
    static const char *const ways[] = {"copied", "text", "empty", "half", "flipped", "rubbish", "replaced", "gone"};
    const struct json *damage = json_get(c->row, "damage"), *files = json_get(c->row, "files");
    const char *folder = json_string(json_get(c->row, "folder"), NULL), *how = json_string(json_get(damage, "how"), "");
    const char *head = json_string(json_get(c->row, "head"), ""), *stage = json_string(json_get(c->row, "stage"), NULL);
    struct json_iterator file;
    clear_work();
    if (folder) {
        char *to = path_join(work, folder), *from = path_join(root, folder);
        copy_tree(to, from);
        memory_free(to);
        memory_free(from);
    }
    for (bool more = json_first(&file, files); more; more = json_next(&file, files)) {
        char *text = text_of(c, file.value);
        do_damage(&(struct damage){file.key, TEXT, NULL, text});
        memory_free(text);
    }
    if (*head || stage) {
        char *text = string_format("run: out\n%sstages:\n"
                                   "  first: {kind: command, argv: [sh, -c, 'touch $OUT/file']}\n  b: {kind: %s}\n",
                                   head, stage ? stage : "pretrain, data: first, steps: 3, model: {experts: 8}");
        do_damage(&(struct damage){"r.yaml", TEXT, NULL, text});
        memory_free(text);
    }
    for (i64 i = 0; damage && i < COUNT_OF(ways); i++)
        if (strcmp(ways[i], how) == 0)
            do_damage(&(struct damage){
                json_string(json_get(damage, "file"), NULL), (enum how)i, json_string(json_get(damage, "from"), NULL),
                json_string(json_get(damage, "text"), NULL), json_string(json_get(damage, "by"), NULL)});
}

/* Runs the program in an environment of the case. */
static int run_case(struct cases *c, const char *const *words)
{
    struct json_iterator variable;
    const struct json *environment = json_get(c->row, "environment");
    char *input = text_of(c, json_get(c->row, "input")), *before = NULL;
    bool set = json_first(&variable, environment);
    if (set) {
        before = getenv(variable.key) ? string_copy(getenv(variable.key)) : NULL;
        setenv(variable.key, json_string(variable.value, ""), 1);
    }
    int status = run_set(words, &(struct setting_of_run){.input = input});
    if (set && before)
        setenv(variable.key, before, 1);
    else if (set)
        unsetenv(variable.key);
    memory_free(before);
    memory_free(input);
    return status;
}

static void check_refused(struct cases *c, const struct json *list)
{
    const struct json *parts = json_get(c->row, "says");
    const char *words[WORDS_MOST + 1] = {NULL}, *says[5] = {NULL};
    struct buffer before = {0};
    put_case(c);
    buffer_append(&before, "", 0);
    list_tree(&before, work);
    require(json_count(list) <= WORDS_MOST && json_count(parts) < COUNT_OF(says), "%s: too many words", c->text);
    for (i64 i = 0; i < json_count(list); i++)
        words[i] = text_of(c, json_at(list, i));
    for (i64 i = 0; i < json_count(parts); i++)
        says[i] = json_string(json_at(parts, i), NULL);
    int status = run_case(c, words);
    char *fault = fault_of_failure(words, status, (int)case_number(c, "status"), says);
    fault = fault ? fault : fault_of_tree(words, &before);
    const char *prints = json_string(json_get(c->row, "prints"), NULL);
    if (!fault && (prints ? !said.data || !strstr(said.data, prints) : said.length > 0))
        fault = string_format("%s printed \"%.100s\"", words[0], said.data ? said.data : "");
    if (fault)
        case_wrong(c, "%s", fault);
    memory_free(fault);
    for (i64 i = 0; words[i]; i++)
        memory_free((char *)(uintptr_t)words[i]);
    buffer_release(&before);
}

/* tests/cases/refused.jsonl: each ends with its status and one message, and leaves nothing behind. */
TEST(what_cannot_be_done_is_refused)
{
    EACH_CASE (c, "refused.jsonl") {
        const struct json *list = json_get(c->row, "weft");
        bool several = json_kind(json_at(list, 0)) == JSON_ARRAY;
#ifndef WEFT_WITH_LANGUAGES /* then any language is refused by a run alone */
        if (strcmp(json_string(json_get(c->row, "needs"), ""), "languages") == 0)
            continue;
#endif
        for (i64 i = 0; i < (several ? json_count(list) : 1); i++)
            check_refused(c, several ? json_at(list, i) : list);
    }
}

/* The sizes match the tokenizer's own files, but not the model. */
TEST(tokenizers_of_another_model_are_refused)
{
    static const char *const words[] = {"generate", "model", "--image", "../picture.png", NULL};
    static const char *const says[] = {"model", "3 audio levels", "not trained together", NULL};
    struct audio_config sizes = {.width = 16, .latent = 8, .levels = 3, .codes = 16};
    struct audio_tokenizer audio;
    char *model = path_join(root, "model"), *copy = path_join(work, "model"), *other = path_join(copy, "weft/audio");
    clear_work();
    copy_tree(copy, model);
    audio_open(&audio, &device, &sizes, DTYPE_F32, false);
    weights_init(&audio.weights, 1);
    require(audio_save(&audio, other) == 0, "%s", error_text());
    audio_close(&audio);
    expect_failure(words, run_set(words, &(struct setting_of_run){0}), 1, says);
    memory_free(model);
    memory_free(copy);
    memory_free(other);
}

TEST(other_suffixes_than_those_of_media_are_free)
{
    static const char *const pictures[] = {"b.PNG", "b", "b.v1", "../work/b.d"}, *const texts[] = {"b.txt", "b.md",
                                                                                                   "b.json"};
    clear_work();
    for (i64 i = 0; i < COUNT_OF(pictures); i++)
        assert_int_equal(WEFT("generate", "../model", "--prompt", "a", "--to", "image", "-o", pictures[i]), 0);
    for (i64 i = 0; i < COUNT_OF(texts); i++)
        assert_int_equal(WEFT("generate", "../model", "--prompt", "a", "-o", texts[i]), 0);
}

/* Guidance warns if the settings saved beside the model show training from scratch without
 * dropped prompts. */
TEST(guidance_of_a_model_that_had_all_prompts_is_spoken_of)
{
    static const struct {
        const char *settings;
        bool told;
    } rows[] = {{"{\"pack\":{\"condition_drop\":0.0}}", true},
                {"{\"from\":null,\"pack\":{\"condition_drop\":0}}", true},
                {"{\"pack\":{\"condition_drop\":0.1}}", false},
                {"{\"from\":\"base\",\"pack\":{\"condition_drop\":0.0}}", false},
                {"{\"rows\":4}", false}};
    char *path = path_join(root, "model/identity.json");
    clear_work();
    for (i64 i = 0; i <= COUNT_OF(rows); i++) { /* the last case has no file */
        char *text = string_format("{\"settings\":%s}", i < COUNT_OF(rows) ? rows[i].settings : "");
        if (i < COUNT_OF(rows))
            put_file(path, text, (i64)strlen(text));
        else
            require(remove(path) == 0, "%s", path);
        assert_int_equal(WEFT("generate", "../model", "--prompt", "a", "--to", "image", "-o", "out.png"), 0);
        assert_null(strstr(complained.data, "guidance"));
        assert_int_equal(
            WEFT("generate", "../model", "--prompt", "a", "--to", "image", "-o", "out.png", "--guidance", "2"), 0);
        bool told = strstr(complained.data, "guidance 2: ../model was trained without dropped conditions") != NULL;
        assert_int_equal(told, i < COUNT_OF(rows) && rows[i].told);
        memory_free(text);
    }
    memory_free(path);
}

int main(void)
{
    return tests_run(make, clear);
}
