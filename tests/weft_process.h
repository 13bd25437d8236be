/* Runs the program itself as a process of a test. If CMakeLists.txt links the commands into the
 * test, a fork calls them directly, since loading the shared libraries takes longer than most runs;
 * otherwise the fork executes the binary. */
#ifndef WEFT_TESTS_WEFT_PROCESS_H
#define WEFT_TESTS_WEFT_PROCESS_H
#include "core/core.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int weft_main(int count, char **words) __attribute__((weak)); /* cli/main.c */

/* Becomes the program, in a fork whose descriptors are already set. A fork has 1 thread, so
 * WEFT_THREADS must be 1. */
static inline _Noreturn void weft_become(char **words)
{
    if (weft_main) {
        int count = 0;
        require(workers_count() == 1, "a fork that runs the program needs WEFT_THREADS=1");
        for (int number = 1; number < NSIG; number++) { /* restore defaults: cmocka catches some signals */
            struct sigaction action;
            if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
                signal(number, SIG_DFL);
        }
        while (words[count])
            count++;
        log_set_level(LOG_NORMAL);
        int status = weft_main(count, words);
        fflush(NULL);
        _exit(status);
    }
    execv(WEFT_PROGRAM, words);
    _exit(97);
}

/* Runs the program and returns its exit status; stderr goes to the file `err`, stdout is
 * discarded. */
static inline int weft_run_quietly(char **words, const char *err)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int out = open("/dev/null", O_WRONLY), descriptor = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (out < 0 || descriptor < 0 || dup2(out, 1) < 0 || dup2(descriptor, 2) < 0)
            _exit(99);
        weft_become(words);
    }
    require(waitpid(child, &status, 0) == child, "no child");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Splits `more` at spaces and appends its words to
 * `words`, up to `most` in total. Modifies `more`. */
static inline void weft_add_words(char **words, int most, char *more)
{
    int count = 0;
    while (words[count])
        count++;
    for (char *word; count + 1 < most && (word = strsep(&more, " "));)
        if (*word)
            words[count++] = word;
}

#endif
