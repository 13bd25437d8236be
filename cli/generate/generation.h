/* The options of drawing answers that `generate` and `chat` share, and what they open for it. */
#ifndef WEFT_GENERATION_H
#define WEFT_GENERATION_H
#include "cli/cli.h"
#include "generate/generator.h"

enum { CONVERSATION_IDS = 256 }; /* ids of an answer to messages, by default */
struct generation_arguments {
    const char *seed, *most, *temperature, *top_p, *weights;
    bool greedy;
    struct submodel_options sub;
    /* parsed from the strings above; most_ids 0: not given */
    i64 seed_number, most_ids;
    double temperature_number, top_p_number;
    struct model_source source; /* without its directory */
};
#define SAMPLING_OPTIONS(r, usual)                                                                                     \
    {"greedy", NULL, NULL, &(r).greedy, "greedy decoding"},                                                            \
        {"temperature", "T", &(r).temperature, NULL, "sampling temperature (default " usual ")"},                      \
        {"top-p", "P", &(r).top_p, NULL, "nucleus sampling threshold, 0 to 1 (default 1)"},                            \
    {                                                                                                                  \
        "seed", "N", &(r).seed, NULL, "sampling seed (default 1)"                                                      \
    }
/* Parses the values. command: its name, for messages. temperature: its default. */
int generation_parse(struct generation_arguments *arguments, const char *command, double temperature);

struct generation {
    struct generator_options options;
    struct submodel sub;
    struct arena arena;
};
/* Chooses the sub-model. The generation must be closed, also
 * after -1. */
int generation_open(struct generation *generation, struct generator *generator,
                    const struct generation_arguments *arguments);
void generation_close(struct generation *generation);

/* messages.c: answers the conversations of a text, JSON lines or one JSON document, and prints
 * the answers or writes them to the file `out` (NULL: stdout). path names the text in messages. On
 * the meta backend nothing is printed. */
int messages_answer(struct generator *generator, const struct generation *generation, const struct buffer *text,
                    const char *path, i64 most, const char *out);

#endif
