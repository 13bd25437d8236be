/* launcher: `weft launch`. It starts the ranks of this machine, notices how they end, and starts them
 * again in the world that is left. It holds no mathematics and reads no files of a run, but the
 * journal of a replay: where a run goes on is in its checkpoints.
 *
 *     first launcher (lead.c)      keeps the list of machines, decides on each world, has rank 0
 *          |  |   TCP: a line of JSON a message (meeting.c, messages.c)
 *          |  +-- other launchers (follow.c), which do as they are told
 *          |
 *          +----- ranks of this machine (ranks.c): forks that run `weft run`, which meet over TCP
 *                 (dist) and talk with their launcher over a socket pair: the step, and whether
 *                 other ranks are to go on
 *
 * A world is one start of the ranks; the generation is its number. If a rank ends that should not, all
 * launchers end theirs, and the first one judges: the place of a rank that was killed, stopped or
 * failed stays empty, and the others begin the next generation, as many as the layout fits. If too few
 * are left, all places are filled again. A machine that comes is taken in between two steps: all ranks
 * save and end, and a larger world begins. SIGALRM of a launcher asks for the same ranks again. After five worlds in a
 * row that ended at once the first launcher gives up.
 *
 * A replay (replay.c) repeats the worlds of a members.jsonl, each from the step at which it began to that of
 * the next one.
 *
 * Who is first (launcher.c, meeting.c): whoever can listen at --meet while nobody answers there. If it
 * is gone, all others end their ranks and themselves.
 *
 * In: the settings below, and WEFT_SILENCE_S, WEFT_SECRET and WEFT_WAIT_S. Out: lines on stderr, among
 * them those of the ranks, and an exit status. Ranks die with their launcher (PR_SET_PDEATHSIG). */
#ifndef WEFT_LAUNCHER_H
#define WEFT_LAUNCHER_H
#include "core/json.h"

enum { LAUNCHER_WORDS_MOST = 256 };
struct launcher_settings {
    i64 ranks, least;    /* of this machine at the most; of the whole world */
    const char *meet;    /* HOST:PORT; NULL: this machine alone */
    const char *layout;  /* as layout_parse reads it, for any number of ranks; NULL: data ranks */
    const char *replay;  /* members.jsonl whose worlds are repeated, whatever `ranks` and `layout` are; NULL: none */
    bool once;           /* the first rank that dies ends all: the command has nothing to go on from */
    const char *version; /* of the program, which all machines must have */
    /* The command line of a rank, at most LAUNCHER_WORDS_MOST: "weft", "run", RECIPE, ...; ends with NULL */
    char **words;
    int (*run)(int count, char **words); /* runs it in a fork of this process; returns an exit status */
};
/* Returns when the run is done, interrupted or given up: an exit status, or -1 and a message. */
int launcher_run(const struct launcher_settings *settings);

/* ---- In a rank ---- */
bool launcher_has_started(void); /* this process is a rank of a launcher */
/* For ranks_change of struct run_options: tells the launcher the step, and returns whether it asks for
 * other ranks. */
bool launcher_asks(void *context, i64 done);
/* For ranks_begin of struct run_options: completes a line of members.jsonl, and refuses one that is not what
 * a replay repeats. */
int launcher_begins(void *context, struct json *line, const char *journal);
/* For ranks_deal of struct run_options: in a replay, the parts that the journal has. */
void launcher_deals(void *context, const char *stage, i64 done, i64 *parts, i64 groups);
/* For ranks_place of struct run_options: in a replay, the placement of experts that the journal has. */
int launcher_places(void *context, const char *stage, i32 *placement, i64 layers, i64 experts);
/* Memory that outlives the ranks of this machine, if all ranks are on it; NULL: none. */
const int *launcher_snapshots(void);
/* For ranks_left: how the ranks of a world of this launcher left; NULL: it is of another one. json_free */
struct json *launcher_left(void *context, const char *world);

#endif
