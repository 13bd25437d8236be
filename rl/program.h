/* External programs as rewards and environments. The program reads JSON lines on stdin and writes
 * one line for each on stdout:
 *
 *   stdin   {"id":0,"data_source":..,"ability":..,"prompt":[..],"response":"..",
 *            "ground_truth":..,"extra_info":{..},"turn":0}
 *   stdout  {"score":0.5}   or   {"observation":"text given to the model, which then continues"}
 *
 * Answers are in the order of the questions, or in any order with their "id". One time limit covers
 * all lines. When the program has answered or a limit has passed, it and all processes that it
 * started are killed, those in sessions of their own too: while a program runs, this process adopts
 * orphans (PR_SET_CHILD_SUBREAPER).
 *
 * The program sees few environment variables, has no open files but its three streams and no
 * terminal, and gains no privileges from set-user-ID files (no_new_privs). Its messages on stderr are
 * passed on up to 64 KiB, escaped. A sandbox (program_sandbox.c, program_calls.c) also takes from it
 * the network, sockets by path, devices, other processes, keys and writing, except to a TMPDIR of its
 * own. */
#ifndef WEFT_RL_PROGRAM_H
#define WEFT_RL_PROGRAM_H
#include "core/json.h"
#include "core/settings.h"

struct program_limits {
    double seconds; /* for all answers; also limits the CPU time of a process, times CPUs */
    i64 memory_mb;  /* of all its processes, and address space of each; 0: half of the machine's */
    i64 processes;  /* at a time, the program included, with 4 threads for each and 1024 more; 0: no limit */
    i64 file_mb;    /* of each file written; in a sandbox, of all in TMPDIR; 0: no limit */
    struct string_list environment; /* names of variables that the program gets, beside the usual ones */
    int sandbox;                    /* 1: on */
};
/* Asks `count` questions within `seconds`. answers [count]: one object each, which the caller frees
 * with json_free. argv ends with NULL. -1 and a message, and no answers, if the program cannot be
 * started, ends too early, exceeds a limit or writes anything else. A score beyond 1e6 and an
 * observation of more than 1 MiB are such things. */
int program_ask(struct json **answers, char *const *argv, struct json *const *questions, i64 count,
                const struct program_limits *limits);
/* -1 and a message if this system does not permit a sandbox. */
int program_check_sandbox(void);

#endif
