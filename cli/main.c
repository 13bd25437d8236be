#include "cli/cli.h"
#include "pipeline/pipeline.h"
#include "rl/verify.h"
#include "core/temporary.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct command commands[] = {
    {"init", "DATA... [-o FILE]", "look at folders of data and write the recipe for them", command_init},
    {"run", "RECIPE [STAGE...] [STAGE.key=value...] [--kinds KIND,...]", "run the stages of a recipe in order",
     command_run, true},
    {"launch", "[-n N] [--least N] [--meet HOST:PORT] [--layout SIZES] run RECIPE ... | doctor --ranks ...",
     "run a recipe on several ranks, here and on machines that meet this one, and go on when ranks die or join",
     command_launch, true},
    {"tokenize", "MODEL|TOKENIZER [--decode] [--plain] [-o DIR]", "encode text to ids or decode ids (JSON lines)",
     command_tokenize},
    {"logits", "MODEL --ids IN.safetensors -o OUT.safetensors", "compute logits and loss of given ids", command_logits},
    {"compare", "MODEL --to DIR", "compare logits, gradients and greedy tokens with reference tensors",
     command_compare},
    {"generate", "MODEL --prompt TEXT [--image F] [--video F] [--audio F] [--to KIND] [-o F]",
     "generate text, a picture, a clip or sound from a prompt of any modality", command_generate, true},
    {"chat", "MODEL [--system TEXT] [sampling and sub-model options]",
     "talk with a model; pictures, clips and sounds may be shown to it, and it answers with text", command_chat, true},
    {"eval", "MODEL --data DIR|FILE [--json] [sub-model options]",
     "measure held-out loss on shards, or rewards on prompts", command_eval, true},
    {"extract", "MODEL -o OUT|--name NAME [sub-model options] [target] [--data DIR]",
     "extract a sub-model as a separate checkpoint, or name it", command_extract, true},
    {"grid", "MODEL --data DIR", "measure loss, parameters and speed of a grid of sub-models and of those with names",
     command_grid, true},
    {"routing", "MODEL --data DIR -o DIR [sub-model options]",
     "measure expert usage per stream; write tables and figures", command_routing, true},
    {"reconstruct", "MODEL FILE... -o DIR", "encode and decode media; write results next to the originals",
     command_reconstruct, true},
    {"verify", "[" VERIFIER_RULES "] [FILE]",
     "score answers by a verifier of rl: JSON lines {\"truth\":..,\"answer\":..} of FILE or stdin; without a rule each "
     "names its \"verifier\"",
     command_verify},
    {"inspect", "PATH [--json]", "describe a model, tokenizer, shards, run or data, and verify checksums",
     command_inspect},
    {"export", "MODEL -o OUT --to hf|gguf", "export the text backbone for other software", command_export},
    {"report", "RUN...", "rewrite report.html of a run, or combine several runs or compare arms in one page",
     command_report},
    {"plan",
     "RECIPE [STAGE...] [STAGE.key=value...] [--ranks N] [--layout SIZES] [--gpu] "
     "[--cluster FILE [--search]]",
     "estimate memory, disk, flops, traffic and time of training stages without running them", command_plan},
    {"serve-tokens", "STREAM", "prepare the shards of a stream for training stages on this or other machines",
     command_serve_tokens, true},
    {"bench", "NAME|all | op [OP|all]", "run benchmarks, relative to references of the same run", command_bench},
    {"doctor", "[--ranks RECIPE [STAGE] [STAGE.key=value...] [-o FILE]]",
     "report capabilities of this machine and build, or measure ranks for `weft plan --cluster`", command_doctor},
    {"completion", "bash|zsh|fish | words -- WORD... | recipe RECIPE [WORD]",
     "print a shell completion script: source <(weft completion bash); words: what may stand for the last WORD, which "
     "the scripts ask; recipe: what may follow a recipe",
     command_completion},
    {"man", "", "print the man page: weft man | man -l -", command_man},
    {"help", "[COMMAND|environment]", "describe a command, or the environment variables", command_help},
    {"version", "", "print the version, the compiler, instruction sets and libraries", command_version},
    {NULL, NULL, NULL, NULL, false},
};

static void usage(FILE *out)
{
    fprintf(out, "weft: an elastic multimodal pre-training pipeline\n\nusage: weft COMMAND [ARGUMENTS]\n\n");
    for (const struct command *c = commands; c->name; c++)
        fprintf(out, "  %-12s %s\n", c->name, c->summary);
    fprintf(out, "\n`weft help COMMAND` or `weft COMMAND --help` describes a command and its options,\n"
                 "`weft help environment` the environment variables.\n"
                 "A recipe, a configuration or a file of lines may be a stream: /dev/stdin, /dev/fd/N, <(COMMAND).\n"
                 "Other pipes, and devices and sockets, are refused as files.\n");
}

static const struct command *find_command(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[64];
    int n = 0;
    for (const struct command *c = commands; c->name; c++)
        names[n++] = c->name;
    names[n] = NULL;
    if (stage_kind_find(name)) {
        error_usage("there is no command \"%s\": it is a kind of stage, which a recipe names and `weft run RECIPE` "
                    "runs; `weft run --kinds %s` lists its settings",
                    name, name);
        return command_failed();
    }
    const char *near = string_nearest(name, names);
    error_usage("there is no command \"%s\"%s%s%s; `weft --help` lists them", name, near ? ", did you mean \"" : "",
                near ? near : "", near ? "\"" : "");
    return command_failed();
}

/* Flushes stdout and fails if output was lost, without a message if nobody reads it (`| head`). */
static int flush_output(int status)
{
    bool lost = ferror(stdout) != 0;
    if ((fflush(stdout) || lost) && status == 0) {
        if (output_is_unread())
            return 128 + SIGPIPE;
        error_set("stdout: the output is incomplete: free disk space and run again");
        return command_failed();
    }
    return status;
}

int command_help(int argc, char **argv)
{
    struct arguments a;
    const struct option options[] = {{NULL}};
    int status = options_parse(&a, argc, argv, options, 0, 1);
    if (status)
        return status < 0 ? command_failed() : 0;
    if (a.count == 0) {
        usage(stdout);
        return 0;
    }
    if (strcmp(a.positional[0], "environment") == 0) {
        environment_print();
        return 0;
    }
    const struct command *command = find_command(a.positional[0]);
    char *words[] = {(char *)(uintptr_t)a.positional[0], "--help", NULL};
    return command ? command->run(2, words) : unknown_command(a.positional[0]);
}

/* Takes the numbers 0, 1 and 2 where they are closed, so that no file gets one of them and receives what
 * is printed. Reading and writing there fails as before. */
static void reserve_streams(void)
{
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++)
        if (fcntl(number, F_GETFD) < 0) /* then it is the lowest that is free, which open takes */
            require(open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY) == number, "/dev/null is missing");
}

int weft_main(int argc, char **argv)
{
    reserve_streams();
    program_called(argc ? argv[0] : "");
    if (stack_check())
        return command_failed();
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    bool helps = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    const struct command *command = find_command(helps                               ? "help"
                                                 : strcmp(argv[1], "--version") == 0 ? "version"
                                                                                     : argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    if (environment_check())
        return command_failed();
    (command->looks ? signals_catch : signals_end)();
    memory_advise(command->name, NULL);
    int status = command->run(argc - 1, argv + 1);
    workers_stop();
    temporaries_remove(); /* of an error that did not */
    return flush_output(status);
}
