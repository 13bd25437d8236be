/* Internal to program_process.c: what the sandbox of a program is made of. The new process calls both
 * functions, between clone and exec, so they make system calls only. NULL, or what failed, and errno. */
#ifndef WEFT_RL_PROGRAM_SANDBOX_H
#define WEFT_RL_PROGRAM_SANDBOX_H
#include "core/core.h"

struct sandbox_plan {
    char id_map[2][64]; /* of users and groups */
    char room[96];      /* options of the file system in memory that is its TMPDIR */
    bool open_pipes;    /* out: the system has no Landlock, so named pipes stay writable */
};
/* Sets the maps of the namespaces that clone has made, and shows it other mounts: all read-only and
 * without devices, a /dev of its own, a /proc of its own processes. */
const char *sandbox_enter(struct sandbox_plan *plan);
/* Bars opening anything outside TMPDIR and /dev for writing, and system calls (program_calls.c).
 * After prctl(PR_SET_NO_NEW_PRIVS), and last. */
const char *sandbox_restrict(struct sandbox_plan *plan);
/* Bars system calls. -1 and errno. */
int sandbox_bar_calls(void);

#endif
