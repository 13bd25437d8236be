/* cli: the command line. One table lists the subcommands, and one parser reads their options.
 * Results go to stdout or to the file or folder after -o, everything else to stderr. Exit status: 0
 * done, 1 failed, 2 wrong usage, 3 another rank ended, 130 interrupted with progress saved.
 *
 * In: argv. Out: an exit status, files, and lines on stdout. A command owns what it opens until
 * it returns; the device is opened once, by device.c.
 *
 * Where is what: main.c lists the commands, options.c parses; most commands are a file of their
 * name, and settings_command.c runs those that do what a stage does. What `run` and `plan` do is in
 * pipeline/, what `inspect` and `init` do in survey/. model.c loads a model for a command, ids.c reads
 * ids for it; manual.c makes the man page and completions, environment.c lists the environment
 * variables; output.c makes a folder appear at once; weft.c is main. In generate/, generation.c has the options that
 * `generate` and `chat` share, messages.c answers files of conversations, and line_editor.c reads the
 * lines of a chat. */
#ifndef WEFT_CLI_H
#define WEFT_CLI_H
#include "submodels/submodels.h"
#include "train/train.h"

/* Values of options that may be repeated. Options that share a list keep the order of the arguments. */
enum { OPTION_USES_MOST = 64 };
struct option_uses {
    struct option_use {
        const char *name, *value;
    } uses[OPTION_USES_MOST];
    int count;
};
struct option {
    const char *name;     /* without dashes; "o" is written -o */
    const char *argument; /* name of its value in the help; NULL: a flag; in brackets: the value may be left out */
    const char **value;   /* set to the value if given; given twice, it is refused */
    bool *flag;           /* set if given without a value */
    const char *help;
    struct option_uses *uses; /* in place of `value`: the option may be repeated, which the help then says */
};
struct arguments {
    const char *const *positional; /* moved to the front of argv */
    int count;
};
int weft_main(int argc, char **argv); /* runs the program; returns the exit status */

struct command {
    const char *name, *synopsis, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns an exit status */
    bool looks;                        /* polls interrupted(); the signal ends other commands */
};
extern const struct command commands[]; /* ends with a NULL name */

/* Reads options (the table ends with a NULL name) and `least` to `most` positionals. Returns 0; 1
 * after printing the help (--help); -1 and a message on wrong usage. */
int options_parse(struct arguments *arguments, int argc, char **argv, const struct option *options, int least,
                  int most);
/* The option that a word such as --name or --name=value gives, and its value, or NULL. NULL: none. */
const struct option *option_find(const struct option *options, const char *word, const char **inline_value);
const char *option_dashes(const struct option *option);  /* - or -- */
const char *option_repeats(const struct option *option); /* what its help says if it may be repeated */
/* Calls `see` with the option table of a command. The command
 * must parse its options before it does anything else. */
void command_options(const struct command *command, void (*see)(void *context, const struct option *options),
                     void *context);
/* A command that does what a stage does, to the model that its argument names (MODEL or MODEL@NAME).
 * Its options are the settings of the stage, such as --max-tokens for max_tokens, with the same
 * defaults, ranges and help. `from` has no option: it is the argument. An option of `own` replaces the
 * one of that name. Paths are taken as the shell passed them. Returns an exit status. */
struct setting;
struct settings_command {
    const struct setting *table;
    const struct option *own;           /* ends with a NULL name */
    void *settings;                     /* zeroed; filled and released here */
    struct submodel_options *sub;       /* what MODEL@NAME and the options of the table select; may be NULL */
    int (*check)(const void *settings); /* may be NULL */
    /* `settings` and `sub` are filled, `from` without @NAME. Returns 0, -1 and a message, or STAGE_INTERRUPTED. */
    int (*run)(void *context, const char *argument);
    void *context;
    bool own_first; /* in the help */
};
int settings_command_run(int argc, char **argv, const struct settings_command *command);
/* Ends a failed command: prints the current error message and returns its exit status. */
int command_failed(void);
/* Parse an option's value. NULL gives the fallback. A value outside [low, high] sets *status
 * to that of a usage error, with a message; otherwise *status is unchanged. */
int64_t option_integer(const char *text, const char *name, i64 fallback, i64 low, i64 high, int *status);
double option_number(const char *text, const char *name, double fallback, double low, double high, int *status);

/* The index of the text in "a|b|c"; NULL gives 0. */
int option_choice(const char *text, const char *name, const char *choices, int *status);

/* A variable that is read from the environment; several names with one meaning are separated by commas.
 * A row without help is the title of the rows after it. */
extern const struct environment_variable {
    const char *names, *value, *help;
} environment_variables[]; /* ends with NULL names */
void environment_print(void);
/* 0, or -1 and a message that names the first variable with a value that means nothing. */
int environment_check(void);

struct json;
/* Print to stdout. output_text: names and texts are escaped (text_escape), line feeds and tabs stay;
 * output_json: one line of JSON, escaped likewise. output_result: bytes that the command was asked for,
 * as they are in a file or pipe, escaped on a terminal. -1 and a message if they cannot be written. */
int output_text(const char *text, i64 length);
int output_json(const struct json *value);
int output_result(const char *text, i64 length);
/* Creates a folder atomically: `write` fills a temporary folder next to it (core/temporary.h), which
 * is then renamed. An existing `out` is refused, also if it appeared in the meantime. Returns the
 * status, and keeps the message, of `write`. */
int output_folder(const char *out, int (*write)(void *context, const char *folder), void *context);
/* cli_device_open opens the device of --device once; -1 and a message if there is no such device.
 * cli_device returns it, owned by device.c. */
#define DEVICE_OPTION                                                                                                  \
    {                                                                                                                  \
        "device", "auto|cpu|cuda|cuda:N", &cli_device_wanted, NULL,                                                    \
            "device: cpu (default), cuda, cuda:N, or auto (a GPU if present)"                                          \
    }
#define LAYOUT_OPTION(text)                                                                                            \
    {                                                                                                                  \
        "layout", "SIZES", &(text), NULL,                                                                              \
            "rank layout: data=,expert=,tensor=,pipeline=,chunks=,receive=,part=,bucket= (MiB)"                        \
    }
extern const char *cli_device_wanted;
int cli_device_open(void);
struct device *cli_device(void);
/* Reads a tensor of ids, I32 or I64 [B,T], and checks them against the vocabulary. Free with
 * memory_free. NULL and a message on failure. */
struct safetensors;
i32 *read_ids(i64 shape[2], const struct safetensors *set, const char *name, i64 vocabulary, const char *path);

int command_tokenize(int argc, char **argv);
int command_logits(int argc, char **argv);
int command_compare(int argc, char **argv);
int command_extract(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_export(int argc, char **argv);
int command_routing(int argc, char **argv);
int command_grid(int argc, char **argv);
int command_reconstruct(int argc, char **argv);
int command_init(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_run(int argc, char **argv);
int command_launch(int argc, char **argv);
int command_report(int argc, char **argv);
int command_serve_tokens(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_bench(int argc, char **argv);
const char *program_version(void); /* "0.1.0 (commit 1234abcd)"; static */
int command_doctor(int argc, char **argv);
int command_version(int argc, char **argv);
int command_help(int argc, char **argv);
int command_completion(int argc, char **argv);
int command_man(int argc, char **argv);
#endif
