/* Files and folders that become an output once they are whole: NAME.tmp-PID-weftN beside NAME.
 *
 * While its process lives, a temporary is locked (flock) and listed in a table. A signal or an
 * error that ends the process removes what the table lists. What a killed process (SIGKILL) leaves
 * is swept by the next process that makes a temporary in the same folder, if its lock is free and
 * there is no process PID. */
#ifndef WEFT_CORE_TEMPORARY_H
#define WEFT_CORE_TEMPORARY_H
#include "core/core.h"

/* Creates an empty temporary for `path`, whose folder must exist. *name: memory_free. Returns a
 * descriptor to write the file to, or -1 and errno. */
int temporary_file(char **name, const char *path);
/* 0, or -1 and errno. */
int temporary_folder(char **name, const char *path);
/* Call it when the temporary was renamed or removed. Any other name has no effect. */
void temporary_forget(const char *name);
/* Removes the temporaries of this process. A signal handler may call it. */
void temporaries_remove(void);
/* Makes temporaries_remove remove this folder too, if it holds no file but `only`. Both are borrowed;
 * NULL: no folder. */
void temporaries_remove_empty(const char *folder, const char *only);
/* Removes temporaries that dead processes left in `folder`: all of today's form, and those that
 * older programs made for the file `target` there (NAME.tmp-PID-N; NULL: none). */
void temporaries_sweep(const char *folder, const char *target);
/* True for NAME.tmp, NAME.tmp-12-3 and NAME.tmp-12-weft3. */
bool is_temporary(const char *name);
#endif
