/* Threads that must start: of the worker pool, of readers and writers beside it. */
#ifndef WEFT_CORE_THREAD_H
#define WEFT_CORE_THREAD_H
#include "core/core.h"

#include <pthread.h>

/* `what` names the thread's work. If the system refuses the thread, the program ends with a message
 * that names the limit. */
void thread_start(pthread_t *thread, void *(*run)(void *), void *context, const char *what);

#endif
