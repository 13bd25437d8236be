/* The processes that descend from this one, as /proc lists them. */
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
 * and count or kill all others; orphans are among them while this process is a subreaper. */
void processes_note(struct process_list *children);
i64 processes_count(const struct process_list *apart);
bool processes_end(const struct process_list *apart); /* false: some are left after 5 s */

#endif
