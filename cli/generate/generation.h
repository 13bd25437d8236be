/* The settings of drawing answers that `generate` and `chat` share, and what they open for it. */
#ifndef WEFT_GENERATION_H
#define WEFT_GENERATION_H
#include "cli/cli.h"
#include "core/settings.h"
#include "generate/generator.h"

enum { CONVERSATION_IDS = 256 }; /* ids of an answer to messages, by default */
struct generation_settings {
    char *from; /* the command's argument */
    double temperature, top_p;
    i64 seed, most; /* most: ids of an answer; 0: by its kind */
    int weights;
    struct submodel_options sub;
    bool greedy;                /* an option of its own */
    struct model_source source; /* what `from` and `weights` say */
};
/* Rows of a command's table, whose struct has a `struct generation_settings member`. */
#define GENERATION_ROWS(type, member, usual_temperature, most_help)                                                    \
    SETTING(type, member.from, "from", REFERENCE, NULL, 0, 0, NULL, "model"),                                          \
        SETTING(type, member.temperature, "temperature", NUMBER, usual_temperature, 0, 100, NULL,                      \
                "sampling temperature; 0: greedy"),                                                                    \
        SETTING(type, member.top_p, "top_p", NUMBER, "1", 0, 1, NULL, "nucleus sampling: cumulative probability"),     \
        SETTING(type, member.seed, "seed", INTEGER, "1", 0, 0x1p63, NULL, "sampling seed"),                            \
        SETTING(type, member.most, "max_tokens", INTEGER, "0", 0, 1 << 20, NULL, most_help),                           \
        SETTING(type, member.weights, "weights", CHOICE, "stored", 0, 0, WEIGHTS_CHOICES, WEIGHTS_HELP),               \
        SUBMODEL_ROWS(type, member.sub)
#define GREEDY_OPTION(member)                                                                                          \
    {                                                                                                                  \
        "greedy", NULL, NULL, &(member).greedy, "draw nothing: temperature 0"                                          \
    }
/* Takes what the options say together; the model's folder is known. usual: the default temperature. */
int generation_take(struct generation_settings *settings, const char *command, double usual);

struct generation {
    struct generator_options options;
    struct submodel sub;
    struct arena arena;
};
/* Chooses the sub-model. The generation must be closed, also
 * after -1. */
int generation_open(struct generation *generation, struct generator *generator,
                    const struct generation_settings *settings);
void generation_close(struct generation *generation);

/* messages.c: answers the conversations of a text, JSON lines or one JSON document, and prints
 * the answers or writes them to the file `out` (NULL: stdout). path names the text in messages. On
 * the meta backend nothing is printed. */
int messages_answer(struct generator *generator, const struct generation *generation, const struct buffer *text,
                    const char *path, i64 most, const char *out);

#endif
