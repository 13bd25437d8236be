/* What the files of this folder share: the ranks of this machine, and connections of launchers. */
#ifndef WEFT_LAUNCHER_INSIDE_H
#define WEFT_LAUNCHER_INSIDE_H
#include "core/json.h"
#include "core/secret.h"
#include "launcher/launcher.h"

#include <poll.h>
#include <sys/types.h>

enum { LOOK_MS = 50, LISTED_MOST = 512 };

/* ---- ranks.c ---- */
/* How a rank ended; a worse end explains the better ones of others. */
enum rank_end {
    RANK_RUNS,
    RANK_DONE,
    RANK_SAVED,    /* interrupted, or because other ranks are to go on */
    RANK_FOLLOWED, /* another rank ended, or the launcher ended it for that reason */
    RANK_HUNG,     /* it did not end by itself when others had */
    RANK_FAILED,
    RANK_KILLED /* by a signal, or stopped */
};
struct rank_process {
    pid_t id;
    i64 number;         /* in the world */
    int link, messages; /* -1: closed */
    struct buffer line; /* what it says, up to the end of a line */
    char *last, *how;   /* its last line; how it ended; NULL: none */
    bool stopped, ended_here;
    double stopped_s;
    enum rank_end end;
    int status; /* exit status */
};
struct replay;
struct rank_world { /* one machine's part of a world */
    i64 generation, first, count, size, port;
    const char *host;   /* of rank 0 */
    const char *layout; /* NULL: data ranks */
    /* Of the first machine, else NULL and 0: */
    const char *name;            /* of the world, in members.jsonl */
    const struct json *left;     /* {name of a world before: how its ranks left} */
    const struct replay *replay; /* NULL: none */
    i64 at;                      /* the world of the replay */
    const int *snapshots;        /* NULL: ranks of other machines cannot read it */
};
struct ranks {
    const struct launcher_settings *settings;
    struct rank_process *list;
    i64 count, generation, oom_kills;
    double silence_s;
    double grace_s; /* left until those that run are killed; negative: they are not to end */
    i64 step;       /* of rank 0, if it is here: steps that are complete */
    i64 reports;    /* that it has sent in this generation */
    bool replays;   /* it is at the stage of the replay */
    bool replayed;  /* in any generation */
};
/* `forked` is called in each rank, to close what only the launcher needs. */
void ranks_start(struct ranks *ranks, const struct rank_world *world, void (*forked)(void *context), void *context);
/* Reads what ranks say, notices ends and stops, and kills whose time is over. passed_s: since the last
 * call, without time during which this process was stopped. */
void ranks_step(struct ranks *ranks, double passed_s);
void ranks_end(struct ranks *ranks, double grace_s); /* kills after that time; an earlier end stays */
/* To all that run. SIGUSR1: save and end. Unlike SIGTERM it ends no rank at once that has had a signal, for
 * batch systems signal all processes of a job. */
void ranks_signal(const struct ranks *ranks, int number);
void ranks_ask(const struct ranks *ranks); /* asks rank 0 that other ranks go on */
bool ranks_are_gone(const struct ranks *ranks);
enum rank_end ranks_worst(const struct ranks *ranks); /* of the ends so far */
/* {"done":n, "saved":n, "bad":[{"rank":n, "end":n, "usage":b, "how":"..."}]} of ranks that are gone. */
struct json *ranks_outcome(const struct ranks *ranks);
i64 ranks_list(const struct ranks *ranks, struct pollfd *list, i64 count); /* returns the new count */
void ranks_release(struct ranks *ranks);

/* ---- replay.c ---- */
struct replay_world {
    i64 ranks, first, end; /* steps that are complete when it begins and ends; end 0: that of the stage */
    char *layout, *device;
    struct json *deals;    /* of members.jsonl; NULL: none */
    struct json *machines; /* of members.jsonl; NULL: all ranks are on one */
    struct json *experts;  /* of members.jsonl; NULL: they lie in a row */
};
struct replay {
    const char *path;
    char *stage;
    struct json *of; /* what the run is recognized by */
    struct replay_world *list;
    i64 count;
};
struct replay *replay_open(const char *path); /* NULL and a message */
void replay_close(struct replay *replay);     /* NULL: nothing */
/* Whether a world that is about to write `line` into `journal` is world `at` of the replay. 0, or -1 and a
 * message. */
int replay_check(const struct replay *replay, i64 at, const struct json *line, const char *journal);

/* The machine that a rank was on. */
i64 replay_machine(const struct replay_world *world, i64 rank);
/* Fills in the parts of the step after `done`. */
void replay_deal(i64 *parts, i64 groups, const struct replay_world *world, i64 done);
/* Fills in the placement of experts. 0, or -1 and a message if the journal is of a model with others. */
int replay_place(i32 *placement, i64 layers, i64 experts, const struct replay *replay, i64 at);

/* ---- meeting.c ---- */
struct launcher_peer { /* the connection to another launcher */
    int socket;
    char *name; /* HOST:PORT */
    struct buffer in;
    char nonce[2 * SECRET_BYTES + 1]; /* that this end has drawn, in hexadecimal digits */
    double silent_s, beat_s;
    char *gone; /* why it is no more; NULL: it is there */
};
struct launcher_peer *peer_open(int socket);
void peer_close(struct launcher_peer *peer);                      /* NULL: nothing */
void peer_send(struct launcher_peer *peer, struct json *message); /* frees the message */
struct json *peer_next(struct launcher_peer *peer);               /* NULL: nothing has come; json_free */
void peer_lose(struct launcher_peer *peer, const char *why);      /* it is gone; an earlier reason stays */
/* Sends signs of life, and notices their absence. */
void peer_step(struct launcher_peer *peer, double passed_s, double silence_s);
/* {"name": value} and so on, from pairs of a name and a value; NULL ends them. */
struct json *message_of(const char *name, struct json *value, ...) __attribute__((sentinel));

/* Finds the first launcher at settings->meet: *first is then the greeted connection to it. If this one is
 * it, *first is NULL and *listener listens. -1 and a message. */
int meeting_open(struct launcher_peer **first, int *listener, const struct launcher_settings *settings);
struct launcher_peer *meeting_accept(int listener); /* greets a guest; NULL: nobody has come */
/* What a guest answers, from what both have drawn. */
struct json *meeting_answer(const char *of_first, const char *own, const struct launcher_settings *settings);
/* Judges what a guest answered. Returns how many ranks it can start, or 0 and a message, which the guest has got. */
i64 meeting_judge(struct launcher_peer *guest, const struct json *answer, const struct launcher_settings *settings);

/* ---- messages.c ---- */
/* Whether a message begins a world with at most `ranks` ranks here. Fills in what it says; host is borrowed. */
bool message_is_start(struct rank_world *out, const struct json *message, i64 ranks);
bool message_is_outcome(const struct json *outcome); /* as ranks_outcome makes it */

/* ---- launcher.c ---- */
bool launcher_took_again(void); /* SIGALRM came since the last call: the ranks are to end and begin again */

int lead(const struct launcher_settings *settings, int listener);                  /* as launcher_run */
int follow(const struct launcher_settings *settings, struct launcher_peer *first); /* the same */
#endif
