/* Links out of a tree of data into the kernel's own trees. */
#ifndef WEFT_CORE_SYSTEM_FOLDER_H
#define WEFT_CORE_SYSTEM_FOLDER_H
#include "core/core.h"

/* True for a link into /proc, /sys or /dev (but for /dev/shm), which no walk follows: what is there has
 * no end, no size, or acts when it is read. */
bool leads_to_system(const char *path);
#endif
