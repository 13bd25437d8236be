/* Shell completion and the man page, generated from the
 * program's tables of commands, options and stage kinds. */
#include "cli/cli.h"
#include "cli/stages.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- Completion ---- */

/* True if an option's argument is a list of literal values
 * such as hf|gguf. Words in capitals are placeholders. */
static bool has_choices(const struct option *o)
{
    if (!o->argument || !strchr(o->argument, '|'))
        return false;
    for (const char *at = o->argument; *at; at++)
        if (isupper((unsigned char)*at) || *at == '@')
            return false;
    return true;
}

static void put_choices(struct buffer *out, const char *argument)
{
    for (const char *at = argument; *at; at++)
        buffer_append(out, *at == '|' ? " " : at, 1);
}

static void put_option_words(void *context, const struct option *options)
{
    struct buffer *out = context;
    for (const struct option *o = options; o->name; o++)
        buffer_printf(out, " %s%s", option_dashes(o), o->name);
}

static void put_bash_choices(void *context, const struct option *options)
{
    struct buffer *out = context;
    for (const struct option *o = options; o->name; o++)
        if (has_choices(o)) {
            buffer_printf(out, "        %s%s) words=\"", option_dashes(o), o->name);
            put_choices(out, o->argument);
            buffer_printf(out, "\" ;;\n");
        }
}

static void put_names(struct buffer *out)
{
    for (const struct command *c = commands; c->name; c++)
        buffer_printf(out, "%s%s", c == commands ? "" : " ", c->name);
}

/* Behind a recipe: what the program itself says of it. A word with `=` is divided there by readline,
 * and its value may be a file. */
static const char recipe_words[] =
    "        for recipe in \"${COMP_WORDS[@]:2:COMP_CWORD-2}\"; do\n"
    "            if [ -z \"$words\" ] && [ -f \"$recipe\" ] && [[ $word$before != *=* ]]; then\n"
    "                words=$(\"${COMP_WORDS[0]}\" completion recipe \"$recipe\" \"$word\" 2>/dev/null)\n"
    "                [ -z \"$words\" ] || compopt +o filenames -o nospace 2>/dev/null\n"
    "            fi\n"
    "        done";

static void put_bash(struct buffer *out)
{
    buffer_printf(out, "# bash completion for weft: source <(weft completion bash)\n_weft() {\n"
                       "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= recipe\n"
                       "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W \"");
    put_names(out);
    buffer_printf(out, "\" -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (const struct command *c = commands; c->name; c++) {
        buffer_printf(out, "    %s)\n        case $before in\n", c->name);
        command_options(c, put_bash_choices, out);
        buffer_printf(out, "        *) [[ $word == -* ]] && words=\"--help");
        command_options(c, put_option_words, out);
        buffer_printf(out, "\" ;;\n        esac");
        if (c->run == command_run || c->run == command_plan)
            buffer_printf(out, "\n%s", recipe_words);
        if (c->run == command_help) {
            buffer_printf(out, "\n        words=\"environment ");
            put_names(out);
            buffer_printf(out, "\"");
        }
        buffer_printf(out, " ;;\n");
    }
    buffer_printf(
        out, "    esac\n    if [ -n \"$words\" ]; then\n        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
             "    else\n        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\n"
             "complete -o filenames -F _weft weft\n");
}

/* Escapes single quotes for a shell: ' becomes '\''. */
static void put_quoted(struct buffer *out, const char *text)
{
    for (const char *at = text; *at; at++)
        if (*at == '\'')
            buffer_printf(out, "'\\''");
        else
            buffer_append(out, at, 1);
}

/* Escapes text for zsh descriptions, in which brackets and colons are special. */
static void put_zsh_text(struct buffer *out, const char *text)
{
    for (const char *at = text; *at; at++) {
        if (strchr("[]:\\", *at))
            buffer_append(out, "\\", 1);
        if (*at == '\'')
            buffer_printf(out, "'\\''");
        else
            buffer_append(out, at, 1);
    }
}

static void put_zsh_options(void *context, const struct option *options)
{
    struct buffer *out = context;
    for (const struct option *o = options; o->name; o++) {
        buffer_printf(out, " \\\n            '%s%s%s[", o->uses ? "*" : "", option_dashes(o), o->name);
        put_zsh_text(out, o->help);
        put_zsh_text(out, option_repeats(o));
        buffer_printf(out, "]");
        if (has_choices(o)) {
            buffer_printf(out, ":value:(");
            put_choices(out, o->argument);
            buffer_printf(out, ")");
        } else if (o->argument) {
            buffer_printf(out, ":%s:_files", strcmp(o->argument, "FILE") == 0 ? "file" : "value");
        }
        buffer_printf(out, "'");
    }
}

static void put_zsh(struct buffer *out)
{
    buffer_printf(out, "#compdef weft\n# zsh completion for weft: source <(weft completion zsh)\n_weft() {\n"
                       "    local -a names\n    names=(");
    for (const struct command *c = commands; c->name; c++) {
        buffer_printf(out, "\n        '%s:", c->name);
        put_zsh_text(out, c->summary);
        buffer_printf(out, "'");
    }
    buffer_printf(out, ")\n    if (( CURRENT == 2 )); then\n        _describe command names\n        return\n    fi\n"
                       "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in\n");
    for (const struct command *c = commands; c->name; c++) {
        buffer_printf(out, "    %s)\n        _arguments '--help[show help]'", c->name);
        command_options(c, put_zsh_options, out);
        buffer_printf(out, " \\\n            '*:file:_files' ;;\n");
    }
    buffer_printf(out, "    esac\n}\ncompdef _weft weft\n");
}

struct fish {
    struct buffer *out;
    const char *command;
};

static void put_fish_options(void *context, const struct option *options)
{
    const struct fish *f = context;
    for (const struct option *o = options; o->name; o++) {
        buffer_printf(f->out, "complete -c weft -n '__fish_seen_subcommand_from %s' %s %s%s -d '", f->command,
                      strlen(o->name) == 1 ? "-s" : "-l", o->name, o->argument ? " -r" : "");
        put_quoted(f->out, o->help);
        put_quoted(f->out, option_repeats(o));
        buffer_printf(f->out, "'");
        if (has_choices(o)) {
            buffer_printf(f->out, " -f -a '");
            put_choices(f->out, o->argument);
            buffer_printf(f->out, "'");
        }
        buffer_printf(f->out, "\n");
    }
}

static void put_fish(struct buffer *out)
{
    buffer_printf(out, "# fish completion for weft: weft completion fish | source\n");
    for (const struct command *c = commands; c->name; c++) {
        buffer_printf(out, "complete -c weft -f -n __fish_use_subcommand -a %s -d '", c->name);
        put_quoted(out, c->summary);
        buffer_printf(out, "'\n");
    }
    for (const struct command *c = commands; c->name; c++)
        command_options(c, put_fish_options, &(struct fish){out, c->name});
}

/* Stages and keys of the recipe's head; settings, behind the dot of a stage. */
static int put_recipe(struct buffer *out, const char *path, const char *word)
{
    struct recipe recipe;
    int status = recipe_open(&recipe, path, NULL, 0);
    if (status == 0 && !strchr(word, '.'))
        buffer_printf(out, "run=\nseed=\nprecision=\n");
    for (i64 i = 0; i < recipe.count && status == 0; i++) {
        const struct recipe_stage *s = &recipe.stages[i];
        if (!strchr(word, '.'))
            buffer_printf(out, "%s\n", s->name);
        for (const struct setting *row = s->kind->table; row->key && strchr(word, '.'); row++)
            if (row->help)
                buffer_printf(out, "%s.%s=\n", s->name, row->key);
    }
    recipe_close(&recipe);
    return status;
}

int command_completion(int argc, char **argv)
{
    static const struct {
        const char *shell;
        void (*put)(struct buffer *out);
    } shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};
    struct arguments a;
    struct buffer out = {0};
    const struct option options[] = {{NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 3);
    bool of_recipe = status == 0 && strcmp(a.positional[0], "recipe") == 0;
    if (of_recipe && a.count == 1)
        status = error_usage("weft completion recipe: expected the path of a recipe");
    else if (of_recipe)
        status = put_recipe(&out, a.positional[1], a.count > 2 ? a.positional[2] : "");
    else if (status == 0 && a.count > 1)
        status = error_usage("weft completion %s: unexpected argument \"%s\"", a.positional[0], a.positional[1]);
    if (status)
        return status < 0 ? command_failed() : 0;
    for (i64 i = 0; i < COUNT_OF(shells); i++)
        if (strcmp(a.positional[0], shells[i].shell) == 0)
            shells[i].put(&out);
    if (!out.length && !of_recipe) {
        error_usage("weft completion %s: expected bash, zsh, fish or recipe", a.positional[0]);
        return command_failed();
    }
    printf("%s", out.data ? out.data : "");
    buffer_release(&out);
    return 0;
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
    buffer_printf(out, ".SH RECIPES\nA recipe is a YAML file with the keys \\fBrun\\fR (output folder), \\fBseed\\fR, "
                       "\\fBprecision\\fR and \\fBstages\\fR, a mapping from stage names to a kind and its settings.\n"
                       "The name of another stage as a value refers to its output. A path begins with / ./ or ../ and\n"
                       "a URL with https:// or s3://. STAGE.key=value on the command line overrides a setting.\n");
    for (const struct stage_kind *k = stage_kinds; k->name; k++)
        put_man_kind(out, k);
    put_man_environment(out);
    buffer_printf(out,
                  ".SH FILES\nOutputs appear under their final name once complete. A command killed by\n"
                  "SIGKILL may leave NAME.tmp\\-PID\\-weftN next to an output; the next command that writes there\n"
                  "removes it.\n"
                  ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nfailed\n.TP\n2\nwrong usage\n.TP\n130\n"
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
