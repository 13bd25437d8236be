/* Evaluation of a model. On prompts: the mean reward of its answers. On shards: the held-out loss
 * of each stream next to that by frequency alone, and bits per byte of text. */
#ifndef WEFT_RL_EVAL_H
#define WEFT_RL_EVAL_H
#include "submodels/submodels.h"
#include "rl/grader.h"
#include "train/heldout.h"

struct eval_scores {
    double reward, error;          /* mean over prompts; its standard error */
    double entropy, length, ended; /* means: nats per id, ids per answer, share of answers that ended */
    double reordered;              /* share of texts that are the ground truth in another order */
    i64 prompts, answers, texts;   /* texts: prompts that ask for text */
};
struct eval_details {     /* optional output per answer */
    double *best;         /* [prompts] best reward of the prompt's answers; may be NULL */
    struct json *answers; /* receives the first 12: prompt, ground_truth, answer, reward; may be NULL */
    double *mean;         /* [prompts] mean reward; may be NULL */
    /* With a folder: an answer that is a medium is written there, as NAME-3.png, and named as `file`. */
    const char *folder, *name;
    struct generator *media;
};
/* Samples `copies` answers to every prompt at `temperature` (0: greedy) and grades them. Returns 0,
 * -1 and a message, or ROLLOUT_STOPPED if interrupted. */
int eval_prompts(struct eval_scores *out, const struct eval_details *kept, struct sampler *sampler,
                 struct grader *grader, const struct prompts *prompts, double temperature, i64 copies, u64 seed);
/* True if the answer has the characters of the ground truth, but in another order; white space does
 * not count. Such an answer follows another convention, e.g. a descending order. */
bool is_reordered(const char *answer, i64 length, const char *ground_truth);
/* Share of the bits or codes in which the first two answers to a prompt differ, of the frames that both
 * have; NaN: they are no media, of two shapes, or empty. How alike a policy's media have become. */
double media_distance(const struct rollout_group *rollout_group, const struct sampler *sampler);
/* Accumulate scores over rollout groups that are done and graded: start from zeros, add each
 * rollout group, then turn the sums into means. */
void eval_scores_add(struct eval_scores *scores, const struct rollout_group *rollout_group);
void eval_scores_finish(struct eval_scores *scores);
struct json *eval_scores_json(const struct eval_scores *scores);

struct eval_settings {
    char *from, *data, *split;
    const char *out; /* no setting: folder for prompts.jsonl and unsolved.jsonl; NULL: none */
    i64 rows, length, limit, copies, max_tokens;
    double temperature, ngrams;
    bool exchanged;
    int weights; /* of WEIGHTS_CHOICES */
    struct submodel_options sub;
    struct grader_settings grader;
};
extern const struct setting eval_table[];
int eval_check_settings(const void *settings); /* of what a recipe says alone */
int eval_check_machine(const void *settings);  /* whether this system has what they ask for */
/* $OUT/eval.json. Of prompts of text alone also $OUT/prompts.jsonl, the prompts with the best reward of their answers
 * as extra_info.pass and the mean as extra_info.reward, and $OUT/unsolved.jsonl, those whose best is below 1. */
int eval_stage(const void *settings, const struct stage *stage);
/* Loads settings->from and evaluates it, after a check of the memory. base: the precision, and whether
 * `weights` may be suggested. Returns as eval_model. */
struct json *eval_directory(const struct eval_settings *settings, struct device *device,
                            const struct model_source *base, u64 seed);
/* Evaluates a loaded model on settings->data, a shard folder or a file of prompts. Returns one
 * object of results, which the caller frees with json_free; NULL and a message on failure. */
struct json *eval_model(struct model *model, const struct submodel *sub, const struct eval_settings *settings,
                        u64 seed);

/* Mean nats a target of texts by bigrams and by trigrams (baselines/baselines.h) of a drawn share
 * settings->ngrams of the training texts, on the held-out rows that heldout_measure would take if there
 * were texts alone; with all rows, on its targets. NaN without such targets. -1 and a message, or
 * STAGE_INTERRUPTED. */
int eval_ngrams(double nats[2], struct model *model, const struct eval_settings *settings, u64 seed);

/* Appends results as text without the last line feed: a table of losses, a sentence on rewards. */
void eval_print(struct buffer *out, const struct json *result);

#define GRADER_ROWS(type)                                                                                              \
    SETTING(type, grader.verifier, "verifier", CHOICE, "auto", 0, 0, VERIFIER_CHOICES,                                 \
            "verifier of answers; auto: as each prompt specifies"),                                                    \
        SETTING(type, grader.program, "program", STRINGS, "", 0, 0, NULL,                                              \
                "verifier command and arguments; reads JSON lines, returns scores or observations"),                   \
        SETTING(type, grader.judge, "judge", REFERENCE, "", 0, 0, NULL,                                                \
                "verifier model: directory of a frozen model that reads, sees or hears the made media"),               \
        SETTING(type, grader.limits.seconds, "program_seconds", NUMBER, "60", 0.01, 1e6, NULL,                         \
                "time limit for all answers of a step, seconds"),                                                      \
        SETTING(type, grader.limits.memory_mb, "program_memory", INTEGER, "0", 0, 1e9, NULL,                           \
                "memory of all processes of the program together, MB; 0: half of the machine's"),                      \
        SETTING(type, grader.limits.processes, "program_processes", INTEGER, "256", 0, 1e6, NULL,                      \
                "processes of the program at a time, with 4 threads for each and 1024 more; 0: no limit"),             \
        SETTING(type, grader.limits.file_mb, "program_file", INTEGER, "1024", 0, 1e9, NULL,                            \
                "size of each file the program writes, MB; 0: no limit"),                                              \
        SETTING(type, grader.limits.environment, "program_environment", STRINGS, "", 0, 0, NULL,                       \
                "environment variables of the program, beside PATH, HOME, LANG, LC_*, TZ, TMPDIR, LD_LIBRARY_PATH"),   \
        SETTING(type, grader.limits.sandbox, "sandbox", CHOICE, "off", 0, 0, "off|on",                                 \
                "on: the program reaches no network, sockets, devices or processes, and writes only to TMPDIR"),       \
        SETTING(type, grader.failures, "program_failures", INTEGER, "3", 0, 1e6, NULL,                                 \
                "consecutive timeouts or crashes allowed; prompts of such a step are not learned from"),               \
        SETTING(type, grader.turns, "turns", INTEGER, "0", 0, 1000, NULL, "maximum observations per answer")

#endif
