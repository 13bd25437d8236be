/* Internal to program.c: a process with limits, and the processes that descend from it. */
#ifndef WEFT_RL_PROGRAM_PROCESS_H
#define WEFT_RL_PROGRAM_PROCESS_H
#include "rl/program.h"

#include <sys/types.h>

/* Starts a program in a process group of its own. ends: its stdin, stdout and stderr. -1 and a
 * message if it cannot be started or put into its sandbox. */
int process_start(pid_t *process, char *const *argv, const int ends[3], const struct program_limits *limits);

struct process_list {
    pid_t *ids;
    i64 count, capacity;
};
void process_list_release(struct process_list *list);
/* Lists the children of this process. The functions below leave these and their descendants out,
 * and count or kill all others; orphans are among them while this process is a subreaper. */
void processes_note(struct process_list *children);
i64 processes_count(const struct process_list *apart);
bool processes_end(const struct process_list *apart); /* false: some are left after 5 s */

#endif
