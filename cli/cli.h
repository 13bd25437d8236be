/* cli: one table of subcommands, one way to read options. Results go to stdout or -o, everything else to stderr.
 * Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted and saved. */
#ifndef WEFT_CLI_H
#define WEFT_CLI_H
#include "elastic/elastic.h"
#include "train/train.h"

struct option {
    const char *name;     /* without dashes; "o" is written -o */
    const char *argument; /* what its value is called; NULL: a flag */
    const char **value;   /* set when given */
    bool *flag;
    const char *help;
};
struct arguments {
    const char *const *positional; /* in argv, moved to its front */
    int count;
};
int weft_main(int argc, char **argv); /* the whole program */

struct command {
    const char *name, *synopsis, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns an exit status */
    bool looks;                        /* at interrupted(); others are ended by the signal */
};
extern const struct command commands[]; /* ends with a NULL name */

/* Reads options (NULL name ends the table) and positionals; prints help and returns 1 on --help, -1 on wrong usage (the
 * message is set), 0 otherwise. */
int options_parse(struct arguments *arguments, int argc, char **argv, const struct option *options, int least,
                  int most);
/* Shows `see` the options of a command, which must read them before it does anything else. */
void command_options(const struct command *command, void (*see)(void *context, const struct option *options),
                     void *context);
/* The last line of a command: prints the message that stands and returns its exit status. */
int command_failed(void);
int64_t option_integer(const char *text, const char *name, i64 fallback, i64 low, i64 high, int *status);
double option_number(const char *text, const char *name, double fallback, double low, double high, int *status);

/* --weights: what the backbone's products read once a model is loaded. */
#define WEIGHTS_OPTION(text)                                                                                           \
    {                                                                                                                  \
        "weights", "stored|int8|int4", &(text), NULL, "of the backbone's products: numbers of 8 or 4 bits (stored)"    \
    }
int option_weights(const char *text, int *status); /* bits; 0: as they are stored */
struct model;
void narrow_model(struct model *model, int bits);
/* model_load on the device that was asked for, and that. Whether it fits is checked before. */
struct model_work;
int load_model(struct model *model, const struct model_work *work);

#define SUBMODEL_OPTIONS(o)                                                                                            \
    {"layers", "LIST", &(o).layers, NULL, "sub-model: layers kept, e.g. 0,2,4-7; those with audio heads must stay"},   \
        {"experts", "N|LIST|@FILE", &(o).experts, NULL,                                                                \
         "sub-model: the N most used experts, a list, or one list a layer"},                                           \
    {                                                                                                                  \
        "topk", "K", &(o).topk, NULL, "sub-model: experts each token chooses"                                          \
    }

/* A folder that appears whole or not at all: `write` fills a temporary one beside it, OUT.tmp-PID-N, which stays behind
 * only where the process is killed. What exists already is refused. Keeps the status and message of `write`. */
int output_folder(const char *out, int (*write)(void *context, const char *folder), void *context);
/* device.c: opened once, as --device says or by itself; -1 and a message: there is none such. */
#define DEVICE_OPTION                                                                                                  \
    {                                                                                                                  \
        "device", "auto|cpu|cuda|cuda:N", &cli_device_wanted, NULL,                                                    \
            "where it computes (cpu); auto: a GPU, if there is one"                                                    \
    }
extern const char *cli_device_wanted;
int cli_device_open(void);
struct device *cli_device(void);
/* A tensor of ids, I32 or I64 [B,T], none of them beyond the vocabulary: memory_free; NULL and a message. */
struct safetensors;
i32 *read_ids(i64 shape[2], const struct safetensors *set, const char *name, i64 vocabulary, const char *path);

int command_tokenize(int argc, char **argv);
int command_logits(int argc, char **argv);
int command_compare(int argc, char **argv);
int command_extract(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_export(int argc, char **argv);
int command_routing(int argc, char **argv);
int command_grid(int argc, char **argv);
int command_reconstruct(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_run(int argc, char **argv);
int command_report(int argc, char **argv);
int command_serve_tokens(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_completion(int argc, char **argv);
int command_man(int argc, char **argv);
#endif
