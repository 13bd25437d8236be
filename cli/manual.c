/* Shell completion and the man page, made from the
 * program's tables of commands, options and stage kinds. */
#include "cli/cli.h"
#include "pipeline/pipeline.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- Completion: the scripts of all shells ask `weft completion words` ---- */

static void put_word(struct buffer *out, const char *word, const char *help)
{
    buffer_printf(out, "%s%s%s\n", word, help && *help ? "\t" : "", help ? help : "");
}

/* Puts the literal words of a list such as hf|gguf, up to a space. Words in capitals are placeholders. */
static void put_choices(struct buffer *out, const char *prefix, const char *list)
{
    size_t length = strcspn(list, " ");
    if (!memchr(list, '|', length))
        return;
    for (const char *at = list; at < list + length; at++) {
        size_t word = strcspn(at, "| ]");
        bool literal = word > 0;
        for (size_t i = 0; i < word; i++)
            literal &= islower((unsigned char)at[i]) || isdigit((unsigned char)at[i]) || at[i] == '-';
        if (literal)
            buffer_printf(out, "%s%.*s\n", prefix, (int)word, at);
        at += word;
    }
}

/* True if an arm sets the key, which the command line then may not. */
static bool is_of_arms(const struct recipe_runs *runs, const char *stage, const char *key)
{
    char *name = string_format("%s.%s", stage, key);
    bool found = false;
    for (i64 r = 0; r < runs->count; r++)
        for (i64 i = 0; i < yaml_count(runs->list[r].values); i++)
            found |= recipe_keys_overlap(yaml_key(runs->list[r].values, i), name);
    memory_free(name);
    return found;
}

/* Stages and keys of the recipe's head; settings, behind the dot of a stage. */
static int put_recipe(struct buffer *out, const char *path, const char *word, bool helps)
{
    static const char *const head[][2] = {
        {"run=", "folder of the run"}, {"seed=", "seed of all random draws"}, {"precision=", "auto, bf16, fp8 or f32"}};
    struct recipe_runs runs;
    int status = recipe_runs_open(&runs, path, NULL, 0, NULL, NULL);
    for (i64 i = 0; i < COUNT_OF(head) && status == 0 && !strchr(word, '.'); i++)
        if (i != 1 || runs.seed_count == 0) /* seeds take the place of seed= */
            put_word(out, head[i][0], helps ? head[i][1] : NULL);
    for (i64 i = 0; status == 0 && i < runs.list[0].count; i++) {
        const struct recipe_stage *s = &runs.list[0].stages[i];
        if (!strchr(word, '.'))
            put_word(out, s->name, helps ? s->kind->help : NULL);
        for (const struct setting *row = s->kind->table; row->key && strchr(word, '.'); row++) {
            char *name = string_format("%s.%s=", s->name, row->key);
            if (row->help && !is_of_arms(&runs, s->name, row->key))
                put_word(out, name, helps ? row->help : NULL);
            memory_free(name);
        }
    }
    recipe_runs_close(&runs);
    return status;
}

/* Values of --arm and --seed. */
static void put_run_choices(struct buffer *out, const char *path, const char *prefix, const char *option)
{
    bool arms = strcmp(option, "arm") == 0;
    struct recipe_runs runs;
    if (!path || !file_exists(path) || !(arms || strcmp(option, "seed") == 0))
        return;
    int status = recipe_runs_open(&runs, path, NULL, 0, NULL, NULL);
    for (i64 i = 0; i < runs.count && status == 0; i++) {
        const struct recipe *r = &runs.list[i];
        if (arms && r->arm && i < runs.arm_count)
            buffer_printf(out, "%s%s\n", prefix, r->arm);
        else if (!arms && r->has_seeds && i % max_i64(runs.arm_count, 1) == 0)
            buffer_printf(out, "%s%llu\n", prefix, (unsigned long long)r->seed);
    }
    recipe_runs_close(&runs);
}

struct completion {
    struct buffer *out;
    const struct command *command;
    const char *const *words; /* behind the command; the last one is to be completed */
    int count;
};

/* An option of one value is offered once. */
static void put_options(const struct completion *c, const struct option *options)
{
    for (const struct option *o = options; o->name; o++) {
        const char *value;
        bool given = false;
        for (int i = 0; i + 1 < c->count && !o->uses; i++)
            given |= c->words[i][0] == '-' && option_find(options, c->words[i], &value) == o;
        if (!given)
            buffer_printf(c->out, "%s%s\t%s%s\n", option_dashes(o), o->name, o->help, option_repeats(o));
    }
    put_word(c->out, "--help", "describe the command");
}

static void put_names(struct buffer *out)
{
    for (const struct command *c = commands; c->name; c++)
        put_word(out, c->name, c->summary);
}

/* What may stand for the last word. Nothing: a file. */
static void put_words(void *context, const struct option *options)
{
    const struct completion *c = context;
    const char *last = c->words[c->count - 1], *first = NULL, *value = NULL;
    const struct option *open = NULL; /* it expects a value */
    for (int i = 0; i + 1 < c->count; i++) {
        const char *word = c->words[i];
        bool is_option = !open && word[0] == '-' && word[1];
        const struct option *found = is_option ? option_find(options, word, &value) : NULL;
        if (!open && !is_option && !first)
            first = word;
        open = found && found->argument && !value && found->argument[0] != '[' ? found : NULL;
    }
    bool recipes = c->command->run == command_run || c->command->run == command_plan;
    if (open) {
        put_choices(c->out, "", open->argument);
        put_run_choices(c->out, recipes ? first : NULL, "", open->name);
    } else if (last[0] == '-') {
        const struct option *found = option_find(options, last, &value);
        char *prefix = string_format("%.*s=", (int)strcspn(last, "="), last);
        if (!strchr(last, '='))
            put_options(c, options);
        else if (found && found->argument)
            put_choices(c->out, prefix, found->argument);
        if (found && strchr(last, '='))
            put_run_choices(c->out, recipes ? first : NULL, prefix, found->name);
        memory_free(prefix);
    } else if (recipes && first) {
        if (!strchr(last, '=') && file_exists(first))
            put_recipe(c->out, first, last, true);
    } else if (c->command->run == command_help && !first) {
        put_word(c->out, "environment", "the environment variables");
        put_names(c->out);
    } else if (c->command->run == command_launch && !first) {
        put_word(c->out, "run", "the command of the ranks");
        put_word(c->out, "doctor", "measures the ranks, with --ranks RECIPE");
    } else if (!first) {
        put_choices(c->out, "", c->command->synopsis);
    }
}

/* words: of a command line, behind the program's name. */
static void complete(struct buffer *out, const char *const *words, int count)
{
    if (count < 2) {
        put_names(out);
        return;
    }
    for (int i = 1; i + 1 < count && strcmp(words[0], "launch") == 0; i++)
        if (strcmp(words[i], "run") == 0 ||
            strcmp(words[i], "doctor") == 0) { /* the rest is a command line of its own */
            words += i;
            count -= i;
        }
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, words[0]) == 0)
            command_options(c, put_words, &(struct completion){out, c, words + 1, count - 1});
}

/* Readline divides words at = and : and completes what follows the last one. */
static const char bash_script[] =
    "# bash completion for weft: source <(weft completion bash)\n"
    "_weft() {\n"
    "    local word= before prefix line any= i words=() IFS=$'\\n'\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        before=$word word=${COMP_WORDS[i]}\n"
    "        if [[ $i -gt 1 && ($word == [=:]* || $before == [=:]) ]]; then\n"
    "            words[-1]+=$word\n"
    "        else\n"
    "            words+=(\"$word\")\n"
    "        fi\n"
    "    done\n"
    "    word=${words[-1]}\n"
    "    prefix=${word%\"${word##*[=:]}\"}\n"
    "    COMPREPLY=()\n"
    "    for line in $(\"${COMP_WORDS[0]}\" completion words -- \"${words[@]}\" 2>/dev/null); do\n"
    "        any=1 line=${line%%$'\\t'*}\n"
    "        [[ $line != \"$word\"* ]] || COMPREPLY+=(\"${line#\"$prefix\"}\")\n"
    "    done\n"
    "    if [ -z \"$any\" ]; then\n"
    "        COMPREPLY=($(compgen -f -- \"${word#\"$prefix\"}\"))\n"
    "    else\n"
    "        compopt +o filenames 2>/dev/null\n"
    "        [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null\n"
    "    fi\n"
    "}\n"
    "complete -o filenames -F _weft weft\n";

static const char zsh_script[] =
    "#compdef weft\n"
    "# zsh completion for weft: source <(weft completion zsh), or this as the file _weft in a folder of fpath\n"
    "_weft() {\n"
    "    local line name\n"
    "    local -a given closed open\n"
    "    integer result=1\n"
    "    given=(\"${(@Q)words[2,CURRENT]}\")\n"
    "    given[-1]=$PREFIX\n"
    "    for line in \"${(@f)$(\"${(Q)words[1]}\" completion words -- \"${given[@]}\" 2>/dev/null)}\"; do\n"
    "        name=${line%%$'\\t'*}\n"
    "        [[ $line != *$'\\t'* ]] || line=${name//:/\\\\:}:${line#*$'\\t'}\n"
    "        if [[ $name == *= ]]; then\n"
    "            open+=(\"$line\")\n"
    "        elif [[ -n $name ]]; then\n"
    "            closed+=(\"$line\")\n"
    "        fi\n"
    "    done\n"
    "    if (( ! $#open && ! $#closed )); then\n"
    "        compset -P '*='\n"
    "        _files\n"
    "        return\n"
    "    fi\n"
    "    (( ! $#closed )) || _describe -t words word closed && result=0\n"
    "    (( ! $#open )) || _describe -t settings setting open -S '' && result=0\n"
    "    return result\n"
    "}\n"
    "if [[ ${funcstack[1]-} == _weft ]]; then _weft \"$@\"; else compdef _weft weft; fi\n";

static const char fish_script[] = "# fish completion for weft: weft completion fish | source\n"
                                  "function __weft_words\n"
                                  "    set -l words (commandline -opc) (commandline -ct)\n"
                                  "    $words[1] completion words -- $words[2..-1] 2>/dev/null\n"
                                  "end\n"
                                  "complete -c weft -f -a '(__weft_words)'\n"
                                  "complete -c weft -n 'not __weft_words | string length -q' -F\n";

int command_completion(int argc, char **argv)
{
    static const char *const scripts[][2] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
    struct arguments a;
    struct buffer out = {0};
    const struct option options[] = {{NULL}};
    int status = options_parse(&a, argc, argv, options, 1, INT_MAX);
    if (status)
        return status < 0 ? command_failed() : 0;
    const char *what = a.positional[0], *script = NULL;
    bool words = strcmp(what, "words") == 0, of_recipe = strcmp(what, "recipe") == 0;
    for (i64 i = 0; i < COUNT_OF(scripts); i++)
        script = strcmp(what, scripts[i][0]) == 0 ? scripts[i][1] : script;
    if (!script && !words && !of_recipe)
        status = error_usage("weft completion %s: expected bash, zsh, fish, words or recipe", what);
    else if (!words && a.count > (of_recipe ? 3 : 1))
        status = error_usage("weft completion %s: unexpected argument \"%s\"", what, a.positional[of_recipe ? 3 : 1]);
    else if (of_recipe && a.count == 1)
        status = error_usage("weft completion recipe: expected the path of a recipe");
    else if (of_recipe)
        status = put_recipe(&out, a.positional[1], a.count > 2 ? a.positional[2] : "", false);
    else if (words)
        complete(&out, a.positional + 1, a.count - 1);
    if (status == 0)
        printf("%s", script ? script : out.data ? out.data : "");
    buffer_release(&out);
    return status ? command_failed() : 0;
}

/* ---- The man page: roff ---- */

/* Escapes text for roff: dashes become minus signs, and a leading dot or quote is no request. */
static void put_roff(struct buffer *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        buffer_printf(out, "\\&");
    for (const char *at = text; *at; at++)
        if (*at == '-' || *at == '\\')
            buffer_printf(out, *at == '-' ? "\\-" : "\\e");
        else
            buffer_append(out, at, 1);
}

static void put_roff_line(struct buffer *out, const char *text)
{
    put_roff(out, text);
    buffer_append(out, "\n", 1);
}

static void put_man_options(void *context, const struct option *options)
{
    struct buffer *out = context;
    for (const struct option *o = options; o->name; o++) {
        buffer_printf(out, ".TP\n\\fB%s%s\\fR ", strlen(o->name) == 1 ? "\\-" : "\\-\\-", o->name);
        put_roff_line(out, o->argument ? o->argument : "");
        put_roff(out, o->help);
        put_roff_line(out, option_repeats(o));
    }
}

static void put_man_command(struct buffer *out, const struct command *c)
{
    buffer_printf(out, ".SS weft %s ", c->name);
    put_roff_line(out, c->synopsis);
    put_roff_line(out, c->summary);
    command_options(c, put_man_options, out);
}

static void put_man_kind(struct buffer *out, const struct stage_kind *kind)
{
    buffer_printf(out, ".SS kind: %s\n", kind->name);
    put_roff_line(out, kind->help);
    for (const struct setting *s = kind->table; s->key; s++) {
        if (!s->help)
            continue;
        buffer_printf(out, ".TP\n\\fB");
        put_roff(out, s->key);
        buffer_printf(out, "\\fR%s", s->fallback ? *s->fallback ? " = " : "" : " (required)");
        put_roff_line(out, s->fallback ? s->fallback : "");
        put_roff_line(out, s->help);
    }
}

static void put_man_environment(struct buffer *out)
{
    buffer_printf(out, ".SH ENVIRONMENT\n");
    for (const struct environment_variable *v = environment_variables; v->names; v++) {
        buffer_printf(out, v->help ? ".TP\n\\fB" : ".SS ");
        put_roff(out, v->names);
        buffer_printf(out, v->help ? "\\fR=" : "");
        put_roff_line(out, v->help ? v->value : "");
        if (v->help)
            put_roff_line(out, v->help);
    }
}

static void put_man(struct buffer *out)
{
    buffer_printf(
        out, ".TH WEFT 1\n.SH NAME\nweft \\- an elastic multimodal pre-training pipeline\n.SH SYNOPSIS\n"
             ".B weft\nCOMMAND [ARGUMENTS]\n.SH DESCRIPTION\n"
             "Weft encodes text, images, video and sound as groups of tokens and trains a sparse model (mixture of\n"
             "experts) to predict the next group. One run trains a family of sub-models. Results go to standard\n"
             "output or to the file or folder after \\fB\\-o\\fR, messages to standard error.\n.SH COMMANDS\n");
    for (const struct command *c = commands; c->name; c++)
        put_man_command(out, c);
    buffer_printf(out, ".SH RECIPES\nA recipe is a YAML file with these keys:\n");
    for (const struct recipe_key *k = recipe_keys; k->name; k++) {
        buffer_printf(out, ".TP\n\\fB");
        put_roff(out, k->name);
        buffer_printf(out, "\\fR: ");
        put_roff_line(out, k->value);
        put_roff_line(out, k->help);
    }
    buffer_printf(out,
                  ".PP\nThe name of another stage as a value refers to its output. A path begins with / ./ or ../ and\n"
                  "a URL with https:// or s3://. STAGE.key=value on the command line overrides a setting. The\n"
                  "value is taken as the shell passes it; [ and { begin a YAML list or mapping.\n");
    for (const struct stage_kind *k = stage_kinds; k->name; k++)
        put_man_kind(out, k);
    put_man_environment(out);
    buffer_printf(out,
                  ".SH FILES\nOutputs appear under their final name once complete. A command killed by\n"
                  "SIGKILL may leave NAME.tmp\\-PID\\-weftN next to an output; the next command that writes there\n"
                  "removes it.\n"
                  ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nfailed\n.TP\n2\nwrong usage\n.TP\n3\n"
                  "this rank ended because another one did\n.TP\n130\n"
                  "interrupted, progress saved\n.TP\n141\nnobody reads standard output any more\n");
}

int command_man(int argc, char **argv)
{
    struct arguments a;
    struct buffer out = {0};
    const struct option options[] = {{NULL}};
    int status = options_parse(&a, argc, argv, options, 0, 0);
    if (status)
        return status < 0 ? command_failed() : 0;
    put_man(&out);
    printf("%s", out.data);
    buffer_release(&out);
    return 0;
}
