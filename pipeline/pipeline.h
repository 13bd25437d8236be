/* pipeline: recipes, and the stages that they are made of.
 *
 * In: a recipe in YAML and words such as STAGE.key=value. Out: a folder for each stage, timings and
 * run.json. The caller closes a recipe; a stage owns only its folder while it runs.
 *
 * Where is what: stages.c is the table of kinds of stages; stage_command.c and stage_report.c are the
 * kinds `command` and `report`. recipe.c reads a recipe and resolves references, recipe_check.c
 * refuses contradictions between stages, arms.c makes the runs of arms and seeds, overrides.c keeps
 * what the command line gave. run.c runs the stages, skips what is done and chooses the precision;
 * identity.c compares settings and inputs, inputs.c digests inputs. members.c notes
 * which ranks trained. plan.c, plan_media.c, plan_time.c and plan_verdict.c say what a recipe will
 * need; measure.c measures the ranks for that. */
#ifndef WEFT_PIPELINE_H
#define WEFT_PIPELINE_H
#include "core/settings.h"
#include "sequence/modalities.h"
#include "train/train.h"

struct layout;
struct model_config;
struct submodel_options;

enum stage_work {
    LIGHT,
    HEAVY, /* its speed is compared with a matrix product's */
    /* Like HEAVY, and all ranks take part. Other stages run on
     * the first rank while the others wait. */
    ON_RANKS,
};
struct stage_kind {
    const char *name, *help;
    const struct setting *table;
    size_t settings_bytes;
    int (*run)(const void *settings, const struct stage *stage); /* 0, -1 or STAGE_INTERRUPTED */
    enum stage_work work;
    /* True: the stage runs each time, since it shows the
     * results of other stages and takes no time. */
    bool each_time;
    /* Checks the settings before any stage runs, when references are not resolved, and again before
     * this one does. May be NULL. */
    int (*check)(const void *settings);
    /* Checks, before any stage runs, that this machine has what the settings ask for. May be NULL. */
    int (*check_machine)(const void *settings);
    const char *smaller; /* settings that make it take less memory; NULL: none */
    const char *stops;   /* what is said at once when a signal comes; NULL: it begins anew with the next call */
    int (*sizes)(struct token_sizes *sizes, const void *settings); /* sizes of the tokenizer that the stage makes */
    /* Why the stage has nothing to do, since its data hold nothing of its medium (memory_free);
     * NULL if they may. Such a stage is skipped. NULL: the kind always runs. */
    char *(*absent)(const void *settings);
};
extern const struct stage_kind stage_kinds[];               /* ends with a NULL name */
const struct stage_kind *stage_kind_find(const char *name); /* NULL if there is none */

/* ---- Recipes ---- */
struct recipe_stage {
    const char *name; /* borrowed from the document */
    const struct stage_kind *kind;
    void *settings;         /* struct of the kind; references are resolved to paths */
    struct json *resolved;  /* settings as JSON, with references as written; stored and hashed */
    struct json *inputs;    /* reference -> digest of its contents; filled when the stage is due */
    struct json *overrides; /* STAGE.key -> value as resolved, of the keys that the command line gave */
    bool selected, needed;  /* needed: by a selected stage, and not done (recipe_select_kinds) */
    bool hides;             /* a URL had a query after `?`, which is not in the settings */
    bool by_arm, by_seed;   /* the arms, or the seeds, each have a stage of this name */
    char *home;             /* folder that holds the stage's folder */
    u64 seed;               /* that its draws begin with */
    char *skips;            /* recipe_skips: why `weft run` would skip it; NULL: nothing is known that says so */
    const char *lacks;      /* a skipped stage that it reads, so that it is skipped as well; or NULL */
};
/* One run of a recipe: of an arm and a seed, where it has arms and seeds. Before recipe_open the caller
 * sets the members of the first part, which are borrowed. */
struct recipe {
    struct yaml *document;
    const char *path;
    const char *arm;                /* NULL: the recipe has no arms */
    const char *only_arm;           /* --arm: no other arm runs; NULL: all do */
    const struct yaml_node *values; /* of the arm, {STAGE.key: value, ...} */
    bool has_seeds;                 /* `seed` is one of them */
    u64 seed;

    char *root, *run; /* folder of all runs, and of this one: ROOT/ARM/SEED, without what there is none of */
    char *precision;
    struct json *overrides; /* likewise of `seed` and `precision` */
    bool redo;              /* --redo: also checks URLs of finished stages for changes */
    bool chosen;            /* by --arm and --seed */
    struct recipe_stage *stages;
    i64 count;
};
/* Reads and checks one run. words: stage names, STAGE.key=value, run=, seed=, precision=. Without
 * stage names all stages are selected. 0, or -1 and a message. */
int recipe_open(struct recipe *recipe, const char *const *words, int word_count);
void recipe_close(struct recipe *recipe);
int recipe_parse_seed(u64 *out, const char *text); /* -1, without a message: not a whole number from 0 */
bool recipe_is_name(const char *name);             /* letters, digits, - and _ */
/* True if the keys are the same, or one is above the other, as model and model.width. */
bool recipe_keys_overlap(const char *a, const char *b);

/* ---- The runs of a recipe: one, or one for each arm and seed ----
 *
 * A stage belongs to the arms if an arm sets one of its keys, or if it reads a stage that does; likewise
 * to the seeds if `seed_stages` names it. Without that list the seeds have the stages of the arms, and
 * without arms all. Its folder lies in ROOT/ARM/SEED, ROOT/ARM or ROOT/SEED; a stage that belongs to
 * neither is made once, in ROOT, with the seed 1. A stage's draws depend on its seed and its name alone,
 * so that the arms of a seed begin with the same weights and see the same data. */
struct recipe_runs {
    struct yaml *document;
    struct recipe *list; /* the arms of the first seed, then of the next one, so that pairs are next to each other */
    i64 count, arm_count, seed_count; /* the latter 0: the recipe has none */
};
/* words: see recipe_open. arm, seed: of the runs to choose; NULL: all. A stage that runs each time shows
 * all runs, and is left out of a choice unless `words` names it. 0, or -1 and a message. */
int recipe_runs_open(struct recipe_runs *runs, const char *path, const char *const *words, int word_count,
                     const char *arm, const char *seed);
void recipe_runs_close(struct recipe_runs *runs);
/* The first run that makes a stage in the same folder as `run` does. */
i64 recipe_runs_maker(const struct recipe_runs *runs, i64 run, i64 stage, bool chosen);
/* "arm depth, seed 2: 5 of 12", the runs of a stage, or "" if all runs share it. Free with memory_free. */
char *recipe_runs_label(const struct recipe_runs *runs, i64 run, i64 stage);
/* Refuses what the selected stages would fail at once earlier ones are done: settings that contradict
 * each other or those of other stages, and stages in a wrong order. Stages that are done are not
 * checked, unless --redo may repeat them. layout: of the ranks; NULL: unknown. `runs`: also what they
 * expect of this machine, and that the stages that they read are done, or run before them. 0, or -1
 * and a message. */
int recipe_check(struct recipe *recipe, const struct layout *layout, bool runs);
bool recipe_trains_backbone(const struct recipe_stage *stage);
/* Config of the model that a stage trains or makes (plan.c): from its settings, and the tokenizers or the model that it
 * starts from. 0, -1 and a message, or 1 and a message if earlier stages must run first. */
int recipe_stage_config(struct model_config *config, const struct recipe *recipe, const struct recipe_stage *stage);
/* Makes the config of a model that of a sub-model (plan.c). 0, or -1 and a message. */
int recipe_cut_config(struct model_config *config, const struct submodel_options *options);
struct recipe_stage *recipe_stage_of(struct recipe *recipe, const char *reference); /* NULL: it is a path */
/* The keys of a recipe; ends with a NULL name. */
extern const struct recipe_key {
    const char *name, *value, *help;
} recipe_keys[];
void recipe_help(struct buffer *out); /* appends a line for each */
bool recipe_stage_is_done(const struct recipe_stage *stage);
/* Narrows the selection to stages of these kinds, a list with commas. -1 and a message if a kind does
 * not exist or none of the stages has it, or if they read stages that neither are done nor stay
 * selected. */
int recipe_select_kinds(struct recipe *recipe, const char *kinds);
/* Calls `visit` with each line of a setting and stores the line that `visit` leaves, if it is not
 * empty. */
int recipe_each_reference(struct recipe *recipe, struct recipe_stage *stage, const struct setting *row,
                          int (*visit)(struct recipe *recipe, struct recipe_stage *stage, const struct setting *row,
                                       char **line));
/* The resolved value of STAGE.key; NULL if there is none. Free with json_free. */
struct json *recipe_value(const struct recipe *recipe, const char *key);
/* Sets `skips` of all stages, as far as their data exist already. Nothing is fetched from addresses. */
void recipe_skips(struct recipe *recipe);
/* True if one of the names, a list with commas, is that of the kind. */
bool stage_kind_is_in(const struct stage_kind *kind, const char *names);
int stage_kinds_check(const char *names); /* -1 and a message if a name is that of no kind */

/* ---- What the command line overrode: RUN/overrides.json, {"STAGE.key": value, ...} ---- */
/* Logs the values that the run's last call overrode and that now differ, if there are any. precision:
 * the one in use. */
void overrides_compare(const struct recipe *recipe, const char *precision);
/* Replaces the values of a stage, and those of `seed` and `precision`, by the present ones. folder:
 * that of the run, open. 0, or -1 and a message. */
int overrides_keep(const struct recipe *recipe, const struct recipe_stage *stage, const char *precision, int folder);
/* Resolves references and digests inputs. A reference to a skipped stage becomes empty if it is an
 * optional tokenizer; otherwise `lacks` names that stage. */
int recipe_resolve(struct recipe *recipe, struct recipe_stage *stage);

/* ---- Running and planning a recipe ---- */
struct run_options {
    const char *const *words; /* RECIPE, then see recipe_open */
    int word_count;
    const char *arm, *seed, *kinds, *layout; /* NULL: all; layout: of the ranks, NULL: data parallel */
    const char *cluster;                     /* file of speeds by which the time of a step is foreseen; NULL: none */
    bool redo;
    struct device *device;
    const char *program;       /* version, which all ranks must have */
    const char *const *filler; /* struct stage */
    /* Asked before each step of a stage on ranks; `done` steps are complete. True on any rank: the stage
     * saves, and recipe_run returns STAGE_INTERRUPTED on all. NULL: the ranks stay. */
    bool (*ranks_change)(void *context, i64 done);
    /* For members.jsonl (pipeline/members.h), on the first rank; NULL: nothing. ranks_begin completes the
     * line of this world, or refuses to begin. ranks_left says how the ranks of an earlier world left
     * (json_free), or NULL. */
    int (*ranks_begin)(void *context, struct json *line, const char *journal);
    struct json *(*ranks_left)(void *context, const char *world);
    /* Replaces the parts of the deal (dist/deal.h, [groups]) of the step after `done`, on every rank; NULL: they stay.
     */
    void (*ranks_deal)(void *context, const char *stage, i64 done, i64 *parts, i64 groups);
    /* Replaces the placement of experts (struct stage), on every rank; NULL: it stays. 0, or -1 and a message. */
    int (*ranks_place)(void *context, const char *stage, i32 *placement, i64 layers, i64 experts);
    void *ranks_context;
    const int *snapshots; /* as in struct stage */
};
/* Runs the chosen stages on the ranks that a launcher started. Returns 0, -1 and a message, or
 * STAGE_INTERRUPTED. After -1 do not call it again in this process. */
int recipe_run(const struct run_options *options);

/* Starts the workers of a rank of several: its share of the cores, unless WEFT_THREADS says how many. */
struct launch_info;
void ranks_start_workers(const struct launch_info *launch);

struct measure_options {
    const char *const *words; /* as above */
    int word_count;
    struct device *device;
    const char *program; /* as above */
};
/* Appends the cluster of the ranks that a launcher started (dist/cluster.h), as they measured it with the step of the
 * first chosen stage that trains a backbone (measure.c). first: this is the first rank. Returns 0, or -1 and a
 * message. */
int recipe_measure(struct buffer *out, bool *first, const struct measure_options *options);

struct plan_options {
    const char *const *words; /* as above */
    int word_count;
    const char *arm, *seed, *layout;
    const char *cluster; /* file whose ranks and speeds are planned for; NULL: none */
    i64 ranks;           /* 0: those of the cluster, or 1 */
    bool gpu, json, search;
    double gflops, gbytes, memory_gb; /* per rank; of a machine or a GPU; 0: unknown */
    i64 program_bytes;                /* of this process: a run has the same libraries */
    struct device *device;            /* that would read the media of `prepare` */
};
/* Appends what the chosen stages will need, as lines for people or as JSON. Returns 0, or -1 and a message;
 * `out` then has the plans made before. */
int recipe_plan(struct buffer *out, const struct plan_options *options);
#endif
