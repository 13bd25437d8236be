/* What the program says of itself: help, version, environment variables, completion of command lines. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/json.h"
#include "tests/cli_fixture.h"

TEST(help_of_a_command_is_that_of_its_option)
{
    static const char *const names[] = {"run", "generate", "help", "version", "doctor"};
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
TEST(the_version_is_that_of_the_changelog)
{
    struct buffer log = {0};
    char version[32];
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
    assert_null(strstr(json_string(json_get(j, "libraries"), "CUDA"), "CUDA")); /* it is linked with none */
    static const char *const others[] = {"compiler", "libraries", "instructions"};
    for (i64 i = 0; i < COUNT_OF(others); i++)
        assert_true(strlen(json_string(json_get(j, others[i]), "")) > 3);
    json_free(j);
    assert_int_equal(WEFT("--version"), 0);
    assert_int_equal(strncmp(said.data, "weft ", 5), 0);
    assert_non_null(strstr(said.data, version));
    buffer_release(&log);
}

/* Messages of wrong code name the file as the tree does, wherever it was built. */
TEST(files_are_named_as_the_tree_does)
{
    assert_string_equal(__FILE__, "tests/cli/test_help.c");
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

TEST(every_environment_variable_of_the_code_is_described)
{
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

/* ---- Completion ---- */

#define RECIPE SOURCE_TREE "/recipes/smoke.yaml"

/* What the scripts of all shells ask: `some` is among the words, `none` is not. */
TEST(the_program_offers_words_for_a_command_line)
{
    static const struct {
        const char *words[6], *some, *none;
    } lines[] = {
        {{""}, "run\trun the stages", "run="},
        {{"run", RECIPE, ""}, "\nbase\ttrain the backbone\n", "steps"},
        {{"run", RECIPE, "--redo", "ba"}, "\nbase\t", "--redo"},
        {{"run", RECIPE, "bpe", "base.st"}, "\nbase.steps=\toptimizer steps\n", "\nbase\t"},
        {{"run", "--kinds", "rl", RECIPE, ""}, NULL, "\nbase\t"}, /* --kinds may have no value: rl is the recipe */
        {{"plan", "--ranks", "2", RECIPE, "se"}, "seed=\t", "--ranks"},
        {{"plan", "--ranks", "2", RECIPE, "--"}, "--layout\t", "--ranks\t"},
        {{"plan", RECIPE, "--ranks=2", "--"}, "--layout\t", "--ranks\t"},
        {{"launch", "-n", "2", ""}, "run\t", "base"},
        {{"launch", "--l"}, "--least\t", "--redo\t"},
        {{"launch", "-n", "2", "run", RECIPE, "ba"}, "\nbase\t", "--least"},
        {{"launch", "run", RECIPE, "--"}, "--redo\t", "--least\t"},
        {{"run", "/nowhere.yaml", "ba"}, NULL, "base"},
        {{"run", RECIPE, "base.data=/wo"}, NULL, "base"},
        {{"run", ""}, NULL, "a"}, /* a file */
        {{"export", "model", "--to", ""}, "hf\ngguf\n", "--"},
        {{"export", "model", "--to=g"}, "--to=hf\n--to=gguf\n", "-o"},
        {{"run", "--device", ""}, "auto\ncpu\ncuda\n", "cuda:N"},
        {{"generate", "--image", "a", "--prompt", "b", "-"}, "--image\t", "--prompt\t"},
        {{"verify", "g"}, "gsm8k\n", "FILE"},
        {{"verify", "math", ""}, NULL, "gsm8k"},
        {{"help", "gen"}, "generate\t", NULL},
        {{"help", "gen"}, "environment\t", NULL},
        {{"help", "run", ""}, NULL, "generate"},
        {{"nothing", ""}, NULL, "e"},
    };
    for (i64 i = 0; i < COUNT_OF(lines); i++) {
        const char *words[10] = {"completion", "words", "--"};
        memcpy(words + 3, lines[i].words, sizeof lines[i].words);
        assert_int_equal(run("", words), 0);
        if (lines[i].some && !strstr(said.data, lines[i].some))
            fail_msg("line %lld: expected %s in: %s", (long long)i, lines[i].some, said.data);
        if (lines[i].none && strstr(said.data, lines[i].none))
            fail_msg("line %lld: unexpected %s in: %s", (long long)i, lines[i].none, said.data);
    }
    assert_int_equal(WEFT("completion", "words"), 0);
    assert_int_equal(WEFT("completion", "recipe", RECIPE, "base.st"), 0);
    assert_non_null(strstr(said.data, "\nbase.steps=\n"));
}

/* A recipe with a setting that a run refuses is still being written. */
TEST(a_wrong_recipe_is_completed_too)
{
    static const char recipe[] = "run: out\nstages:\n  tune: {kind: sft, data: /tmp}\n";
    char *path = in_folder("wrong.yaml");
    assert_int_equal(file_replace(path, recipe, (i64)strlen(recipe)), 0);
    assert_int_equal(WEFT("run", path), 2);
    expect_complaint("from is missing");
    assert_int_equal(WEFT("completion", "words", "--", "run", path, "tune.fr"), 0);
    assert_non_null(strstr(said.data, "tune.from="));
    memory_free(path);
}

struct line {
    const char *typed, *becomes; /* behind `weft `; the only completion, with the space that follows */
};
static const struct line lines[] = {
    {"exp", "export "},
    {"run " RECIPE " bas", "run " RECIPE " base "},
    {"run " RECIPE " bpe base.steps", "run " RECIPE " bpe base.steps="},
    {"plan " RECIPE " sho", "plan " RECIPE " sho"},
    {"plan " RECIPE " --layo", "plan " RECIPE " --layout "},
    {"export model --to g", "export model --to gguf "},
    {"export model --to=g", "export model --to=gguf "},
    {"run " RECIPE " base.data=" SOURCE_TREE "/LICEN", "run " RECIPE " base.data=" SOURCE_TREE "/LICENSE "},
    {"inspect " SOURCE_TREE "/LICEN", "inspect " SOURCE_TREE "/LICENSE "},
};

/* Writes the script of a shell and a script that asks it, runs `sh -c` with both, and returns what that prints. */
static char *ask_shell(const char *shell, const char *asks, const char *typed)
{
    char *script = in_folder("weft.completion"), *ask = in_folder("ask.completion"), *out = in_folder("out.completion");
    struct buffer text = {0};
    assert_int_equal(WEFT("completion", shell), 0);
    assert_int_equal(file_replace(script, said.data, said.length), 0);
    assert_int_equal(file_replace(ask, asks, (i64)strlen(asks)), 0);
    assert_int_equal(file_replace(out, "", 0), 0);
    setenv("WEFT_ASKED", WEFT_PROGRAM, 1);
    setenv("LINE", typed, 1);
    setenv("SCRIPT", script, 1);
    setenv("OUT", out, 1);
    /* Files here begin as the words do, and are not offered beside them. */
    static const char *const files[] = {"exports.txt", "base.txt", "base.steps.txt", "gguf.txt"};
    for (i64 i = 0; i < COUNT_OF(files); i++) {
        char *file = in_folder(files[i]);
        assert_int_equal(file_replace(file, "", 0), 0);
        memory_free(file);
    }
    char *command = string_format("cd %s && timeout 120 %s %s </dev/null >%s.said 2>&1", shards, shell, ask, out);
    if (system(command))
        fail_msg("%s failed, see %s.said", command, out);
    assert_int_equal(file_read(&text, out), 0);
    buffer_append(&text, "", 1);
    memory_free(command);
    memory_free(script);
    memory_free(ask);
    memory_free(out);
    return text.data;
}

/* The script prints the completed line. */
static void expect_lines(const char *shell, const char *asks)
{
    char *finding = string_format("command -v %s >/dev/null", shell);
    bool absent = system(finding) != 0;
    memory_free(finding);
    if (absent) {
        print_message("%s is not installed: what it completes is not tried\n", shell);
        skip();
    }
    for (i64 i = 0; i < COUNT_OF(lines); i++) {
        char *typed = string_format("weft %s", lines[i].typed),
             *becomes = string_format("weft %s|\n", lines[i].becomes), *line = ask_shell(shell, asks, typed);
        assert_string_equal(line, becomes);
        memory_free(line);
        memory_free(typed);
        memory_free(becomes);
    }
}

/* Readline's part, dividing the line at blanks, = and : and putting a space behind, is played by the script. */
TEST(bash_completes_what_the_program_offers)
{
    expect_lines("bash", "weft() { \"$WEFT_ASKED\" \"$@\"; }\n"
                         "compopt() { [[ $* != *nospace* ]] || space=; }\n"
                         "source \"$SCRIPT\"\n"
                         "space=' '\n"
                         "COMP_WORDS=(${LINE//=/ = })\n"
                         "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                         "_weft\n"
                         "word=${COMP_WORDS[COMP_CWORD]}\n"
                         "[[ ${#COMPREPLY[@]} -eq 0 ]] || LINE=${LINE%\"$word\"}$COMPREPLY$space\n"
                         "[[ ${#COMPREPLY[@]} -le 1 ]] || LINE=${COMPREPLY[*]}\n"
                         "echo \"$LINE|\" >\"$OUT\"\n");
}

/* An interactive zsh in a terminal: a tab completes, and ^X says what the line has become. */
TEST(zsh_completes_what_the_program_offers)
{
    expect_lines("zsh", "zmodload zsh/zpty\n"
                        "zpty z zsh -f -i\n"
                        "zpty -w z 'weft() { \"$WEFT_ASKED\" \"$@\" }\n"
                        "autoload -Uz compinit; compinit -u -D\n"
                        "source \"$SCRIPT\"\n"
                        "finish() { print -r -- \"$BUFFER|\" >\"$OUT\"; exit }\n"
                        "zle -N finish; bindkey \"^X\" finish; bindkey \"^I\" complete-word'\n"
                        "zpty -w -n z \"$LINE\"$'\\t\\x18'\n"
                        "while zpty -r z said; do print -r -- \"$said\"; done\n");
}

TEST(fish_completes_what_the_program_offers)
{
    expect_lines("fish", "function weft; $WEFT_ASKED $argv; end\n"
                         "source $SCRIPT\n"
                         "set -l all (complete -C $LINE | string replace -r '\\t.*' '')\n"
                         "set -l last (string split ' ' -- $LINE)[-1]\n"
                         "set -l whole $LINE\n"
                         "if test (count $all) -eq 1\n"
                         "    set whole (string replace -r -- (string escape --style=regex -- $last)'$' '' $LINE)$all\n"
                         "    string match -q -- '*=' $all; or set whole $whole' '\n"
                         "end\n"
                         "echo $whole'|' >$OUT\n");
}

int main(void)
{
    return tests_run(make, clear);
}
