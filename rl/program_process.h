/* Internal to program.c: a process with limits. */
#ifndef WEFT_RL_PROGRAM_PROCESS_H
#define WEFT_RL_PROGRAM_PROCESS_H
#include "rl/program.h"

#include <sys/types.h>

/* Starts a program in a session of its own. It has no open files but `ends`: its stdin, stdout and
 * stderr. -1 and a message if it cannot be started or put into its sandbox. open_pipes: whether the
 * sandbox leaves named pipes writable; may be NULL. */
int process_start(pid_t *process, char *const *argv, const int ends[3], const struct program_limits *limits,
                  bool *open_pipes);
/* Threads that so many processes may have together. */
i64 process_threads_most(i64 processes);
/* Bytes that all processes of a program may have together. */
i64 process_memory_most(const struct program_limits *limits);

#endif
