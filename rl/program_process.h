/* Internal to program.c: a process with limits. */
#ifndef WEFT_RL_PROGRAM_PROCESS_H
#define WEFT_RL_PROGRAM_PROCESS_H
#include "rl/program.h"

#include <sys/types.h>

/* Starts a program in a process group of its own. ends: its stdin, stdout and stderr. -1 and a
 * message if it cannot be started or put into its sandbox. */
int process_start(pid_t *process, char *const *argv, const int ends[3], const struct program_limits *limits);

#endif
