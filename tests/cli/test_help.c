/* What the program says of itself: help, version, environment variables, completion of recipes. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/json.h"
#include "tests/cli_fixture.h"

static void help_of_a_command_is_that_of_its_option(void **state)
{
    static const char *const names[] = {"run", "generate", "help", "version", "doctor"};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        assert_int_equal(WEFT("help", names[i]), 0);
        char *one = string_copy(said.data);
        assert_non_null(strstr(one, "usage: weft "));
        assert_int_equal(WEFT(names[i], "--help"), 0);
        assert_string_equal(one, said.data);
        memory_free(one);
    }
    assert_int_equal(WEFT("help"), 0);
    char *all = string_copy(said.data);
    assert_int_equal(WEFT("--help"), 0);
    assert_string_equal(all, said.data);
    memory_free(all);
    assert_int_equal(WEFT("help", "extrct"), 2);
    expect_complaint("did you mean \"extract\"");
    assert_int_equal(WEFT("help", "run", "grid"), 2);
}

/* The first line is the version at the head of CHANGELOG.md. */
static void the_version_is_that_of_the_changelog(void **state)
{
    struct buffer log = {0};
    char version[32];
    (void)state;
    assert_int_equal(file_read(&log, SOURCE_TREE "/CHANGELOG.md"), 0);
    buffer_append(&log, "", 1);
    const char *head = strstr(log.data, "\n## ");
    assert_non_null(head);
    snprintf(version, sizeof version, "%.*s", (int)strcspn(head + 4, " \n"), head + 4);
    assert_int_equal(WEFT("version", "--json"), 0);
    struct json *j = json_parse(said.data, said.length, "stdout");
    const char *given = json_string(json_get(j, "weft"), "");
    assert_int_equal(strncmp(given, version, strlen(version)), 0);
    assert_int_equal(strstr(given, "(commit ") != NULL, file_exists(SOURCE_TREE "/.git"));
    static const char *const others[] = {"compiler", "libraries", "instructions"};
    for (i64 i = 0; i < COUNT_OF(others); i++)
        assert_true(strlen(json_string(json_get(j, others[i]), "")) > 3);
    json_free(j);
    assert_int_equal(WEFT("--version"), 0);
    assert_int_equal(strncmp(said.data, "weft ", 5), 0);
    assert_non_null(strstr(said.data, version));
    buffer_release(&log);
}

/* ---- Environment variables ---- */

static bool is_letter(char c)
{
    return isupper((u8)c) || isdigit((u8)c) || c == '_';
}

static bool is_known(const char *name, size_t length)
{
    if (length > 9 && strncmp(name, "WEFT_EMU_", 9) == 0) /* listed in their own header */
        return true;
    for (const char *at = said.data; (at = strstr(at, name)); at++)
        if (!is_letter(at[-1]) && !is_letter(at[length]))
            return true;
    return false;
}

static i64 found; /* variables in the code */

/* `name` begins behind a mark; what is no name, such as a path, ends at once. */
static void check_name(const char *file, const char *name, char end)
{
    size_t length = 0;
    while (is_letter(name[length]))
        length++;
    if (length < 3 || !isupper((u8)name[0]) || (end && name[length] != end))
        return;
    char *copy = string_format("%.*s", (int)length, name);
    found++;
    if (!is_known(copy, length))
        fail_msg("%s reads %s, which `weft help environment` does not name", file, copy);
    memory_free(copy);
}

static void check_source(const char *path)
{
    static const char *const marks[] = {"getenv(\"", "variable(\"", "\"WEFT_", "${WEFT_", "export WEFT_", " WEFT_"};
    struct buffer text = {0};
    const char *dot = strrchr(path, '.');
    bool script = strstr(path, "/scripts/") || strstr(path, "/.ci/"),
         code = dot && (strcmp(dot, ".c") == 0 || strcmp(dot, ".h") == 0 || strcmp(dot, ".cu") == 0);
    if (!script && !code)
        return;
    assert_int_equal(file_read(&text, path), 0);
    buffer_append(&text, "", 1);
    for (i64 i = 0; i < COUNT_OF(marks); i++)
        for (const char *at = text.data; (i < 3 ? code : script) && (at = strstr(at, marks[i])); at++) {
            const char *name = at + strlen(marks[i]) - (i >= 2 ? 5 : 0);
            check_name(path, name, i < 3 ? '"' : i == 3 ? 0 : '=');
        }
    buffer_release(&text);
}

static void check_folder(const char *folder, bool top)
{
    char **names;
    i64 count;
    assert_int_equal(directory_list(&names, &count, folder), 0);
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(folder, names[i]);
        bool other = top && (strncmp(names[i], "build", 5) == 0 || strcmp(names[i], "tests") == 0 ||
                             strcmp(names[i], "out") == 0 || strcmp(names[i], ".git") == 0);
        if (!other && file_is_directory(path))
            check_folder(path, false);
        else if (!other)
            check_source(path);
        memory_free(path);
    }
    string_list_free(names, count);
}

static void every_environment_variable_of_the_code_is_described(void **state)
{
    (void)state;
    assert_int_equal(WEFT("help", "environment"), 0);
    found = 0;
    check_folder(SOURCE_TREE, true);
    assert_true(found > 40); /* the search finds them */
    check_name("itself", "WEFT_THREADS\"", '"');
    assert_false(is_known("WEFT_THREA", 10));
    char *listed = string_copy(said.data);
    assert_int_equal(WEFT("man"), 0);
    for (const char *at = listed; (at = strstr(at, "WEFT_")); at += 5) {
        char *name = string_format("%.*s", (int)strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), at);
        assert_non_null(strstr(said.data, name));
        memory_free(name);
    }
    memory_free(listed);
}

/* ---- Completion of a recipe ---- */

/* Words that bash offers, each with a blank before and after it. */
static char *offered(const char *script, const char *words)
{
    char *line = string_format("source %s; weft() { cat %s.$2; }; COMP_WORDS=(weft %s); COMP_CWORD=$((${#COMP_WORDS[@]}"
                               " - 1)); _weft; echo \" ${COMPREPLY[*]} \"",
                               script, script, words);
    char *out = string_format("%s.out", script);
    struct buffer text = {0};
    char *command = string_format("bash -c '%s' >%s 2>&1", line, out);
    assert_int_equal(system(command), 0);
    assert_int_equal(file_read(&text, out), 0);
    buffer_append(&text, "", 1);
    memory_free(line);
    memory_free(out);
    memory_free(command);
    return text.data;
}

static void expect_offer(const char *script, const char *words, const char *some, const char *none)
{
    char *offer = offered(script, words);
    if (some && !strstr(offer, some))
        fail_msg("%s: expected%sin:%s", words, some, offer);
    if (none && strstr(offer, none))
        fail_msg("%s: unexpected%sin:%s", words, none, offer);
    memory_free(offer);
}

/* In the place of the program, a function prints what the program said of the same words. */
static void bash_completes_stages_and_settings_of_a_recipe(void **state)
{
    char *script = in_folder("weft.bash"), *words = in_folder("weft.bash.recipe");
    const char *recipe = SOURCE_TREE "/recipes/smoke.yaml";
    (void)state;
    assert_int_equal(WEFT("completion", "bash"), 0);
    assert_int_equal(file_replace(script, said.data, said.length), 0);
    assert_int_equal(WEFT("completion", "recipe", recipe), 0);
    assert_int_equal(file_replace(words, said.data, said.length), 0);
    expect_offer(script, "run " SOURCE_TREE "/recipes/smoke.yaml \"\"", " base ", "steps");
    expect_offer(script, "run " SOURCE_TREE "/recipes/smoke.yaml --redo ba", " base ", " grid ");
    expect_offer(script, "plan " SOURCE_TREE "/recipes/smoke.yaml se", " seed= ", NULL);
    expect_offer(script, "run /nowhere.yaml ba", NULL, " base ");
    expect_offer(script, "run " SOURCE_TREE "/recipes/smoke.yaml --re", " --redo ", " base ");
    expect_offer(script, "help gen", " generate ", NULL);
    assert_int_equal(WEFT("completion", "recipe", recipe, "base.st"), 0);
    assert_int_equal(file_replace(words, said.data, said.length), 0);
    expect_offer(script, "run " SOURCE_TREE "/recipes/smoke.yaml base.st", " base.steps= ", " vis.steps= ");
    assert_int_equal(WEFT("completion", "recipe"), 2);
    assert_int_equal(WEFT("completion", "recipe", "/nowhere.yaml"), 1);
    assert_int_equal(WEFT("completion", "bash", "zsh"), 2);
    memory_free(script);
    memory_free(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_of_a_command_is_that_of_its_option),
        cmocka_unit_test(the_version_is_that_of_the_changelog),
        cmocka_unit_test(every_environment_variable_of_the_code_is_described),
        cmocka_unit_test(bash_completes_stages_and_settings_of_a_recipe),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
