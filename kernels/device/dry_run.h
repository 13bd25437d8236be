/* Memory estimate of a piece of work before it begins: on a GPU, and on a CPU whose memory is limited by a
 * control group, ulimit or WEFT_MEMORY_LIMIT.
 *
 * A dry run executes the work's own code on the meta backend, which computes nothing and grows its
 * arenas by the same blocks as the GPU. If the GPU has less memory left than that takes, smaller
 * work is tried in the same way, and the message names the largest that fits:
 *
 *     a step takes 67.1 MB of GPU memory (weights 1.2, activations 65.9), 50.3 are left;
 *     batch.micro_rows=4 would take 33.6 MB
 *
 * It is an error if the part that does not depend on the data does not fit. The part that does is an
 * upper bound: if only the sum does not fit, a GPU gets a warning. On a CPU that is an error too, since a
 * control group kills what exceeds it without a word.
 *
 * A stage needs one function `run`, which reads the stage's settings through `context`, and a list
 * of the keys that make it smaller (routing/routing.c):
 *
 *     static const struct reduction reductions[] = {{"length"}, {0}};
 *     struct routing_settings s = *settings;
 *     const struct dry_run check = {s.from, run, &s, SMALLER_MODEL, &s, routing_table, reductions};
 *     if (dry_run_check(&check, device))
 *         return -1;
 *
 * The key and the value that the message offers come from the settings table. Work without a table, such
 * as most commands, has a callback `smaller`. */
#ifndef WEFT_DRY_RUN_H
#define WEFT_DRY_RUN_H
#include "core/settings.h"
#include "kernels/kernels.h"

struct memory_estimate {
    i64 bytes;           /* peak memory of the device; 0: the size of the arenas of `meta` */
    i64 data_bytes;      /* the part of `bytes` that depends on the data */
    bool with_host;      /* on a CPU: `bytes` counts host memory too */
    struct buffer parts; /* "weights 1.2, moments 2.4", in MB; may stay empty */
};

/* One setting that makes a stage smaller. A flag becomes true. An integer becomes 0 if the table allows
 * 0, else it is halved while the table allows it. Reductions are tried in order, and each goes on from
 * the settings that the one before has left. */
struct reduction {
    const char *key; /* key in the stage's settings table; NULL ends the list */
    i64 least;       /* if > 0, an integer is halved, but not below this */
    bool with_next;  /* each step also reduces the next setting of the list */
    bool from_given; /* starts from the settings as given, not from those the last one left */
};
enum { REDUCTIONS_MOST = 8 };

struct dry_run {
    const char *what; /* subject of the message: "a step" */
    /* Runs the work on `meta`, opened like the GPU, and closes what it opened. The log is silent,
     * since the work itself will log the same lines. 0, or -1 and a message. */
    int (*run)(struct memory_estimate *out, struct device *meta, void *context);
    void *context;
    const char *otherwise; /* advice if nothing smaller fits: "take a smaller model" */
    /* A stage: its settings, a copy that the dry run changes, with their table and reductions. */
    void *settings;
    const struct setting *table;
    const struct reduction *reductions;
    /* Other work: takes the next step to smaller work, and appends its name, "ids of [4,64]".
     * False: there is none. NULL: dry_run_reduce. */
    bool (*smaller)(struct buffer *name, struct dry_run *work);
    /* Requests or prompts decoded at a time; may be NULL. They are halved first, until the work fits,
     * and a line says so. The caller then uses the number that is left. */
    i64 *slots;
    const char *slots_name; /* "requests" */
    /* Internal: number of the reduction, whether it has begun, and the values as given. */
    i64 at;
    bool begun;
    i64 given[REDUCTIONS_MOST];
};
/* 0: the work may fit, or nothing limits it. -1 and a message: it does not fit, or `run` failed.
 * Other results of `run` are passed on. All pointers are borrowed during the call. */
int dry_run_check(const struct dry_run *work, const struct device *device);
/* For `smaller`: takes the next step of the reductions, if there is one, and appends the settings
 * that differ from the given ones: "batch.micro_rows=4 recompute=true". */
bool dry_run_reduce(struct buffer *name, struct dry_run *work);
/* Restores the given settings and starts again with the first reduction. For a `smaller` that goes on to
 * make the work smaller in another way. */
void dry_run_restart(struct dry_run *work);

#endif
