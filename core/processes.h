/* The processes that descend from this one, and whether others go on, as /proc lists them. */
#ifndef WEFT_CORE_PROCESSES_H
#define WEFT_CORE_PROCESSES_H
#include "core/core.h"

#include <sys/types.h>

struct process_list {
    pid_t *ids;
    i64 count, capacity;
};
void process_list_release(struct process_list *list);
/* Lists the children of this process. The functions below leave these and their descendants out,
 * and measure or kill all others; orphans are among them while this process is a subreaper. */
void processes_note(struct process_list *children);
struct processes_use {
    i64 processes, threads;
    i64 bytes; /* of memory and swap */
};
/* Memory that several processes share counts in each of them, or once if `share_out`, which takes
 * milliseconds for each GB. Only counts the processes if there are more than `most`. */
void processes_measure(struct processes_use *out, const struct process_list *apart, i64 most, bool share_out);
/* When a process began, in a unit of the system: with its id this names it, also once the id was given
 * to another. 0: there is no such process. */
i64 process_began(pid_t id);
/* The process that has a lock (flock) on a file or folder; 0: none that is seen here. */
pid_t lock_holder(const char *path);
bool processes_end(const struct process_list *apart); /* false: some are left after 5 s */

#endif
