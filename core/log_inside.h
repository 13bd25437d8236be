/* The state that log.c, progress.c and signals.c share: what the last line of a terminal shows. */
#ifndef WEFT_CORE_LOG_INSIDE_H
#define WEFT_CORE_LOG_INSIDE_H
#include "core/core.h"

#include <signal.h>

extern volatile enum log_level log_level_now;
extern volatile sig_atomic_t log_bar_is_open; /* the terminal's last line shows a progress bar */

#endif
