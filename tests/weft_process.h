/* The program itself as a process of a test. Its shared libraries take longer to load than most runs last, so that a
 * fork runs its commands where CMakeLists.txt links them into the test; elsewhere it is executed. */
#ifndef WEFT_TESTS_WEFT_PROCESS_H
#define WEFT_TESTS_WEFT_PROCESS_H
#include "core/core.h"
#include "tests/tier.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int weft_main(int count, char **words) __attribute__((weak)); /* of cli/main.c */

/* In a fork, whose descriptors are as the program shall have them. A fork has one thread, which is all there may be. */
static inline _Noreturn void weft_become(char **words)
{
    if (weft_main) {
        int count = 0;
        require(workers_count() == 1, "a fork that runs the program needs WEFT_THREADS=1");
        for (int number = 1; number < NSIG; number++) { /* cmocka catches some */
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

/* Its end; what it says to stderr goes to the file `err`, what it says to stdout is left out. */
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

/* `more` without words between its spaces: those behind the ones that are there, at most `most` in all. */
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
