/* kind command: a program of the user's, or one of ours; $OUT in its arguments is the folder it may write to. */
#include "cli/stage_command.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const struct setting command_table[] = {SETTING(struct command_settings, argv, "argv", STRINGS, NULL, 0, 0, NULL,
                                                "program and arguments; $OUT is the stage's folder"),
                                        {0}};

/* Programs built beside this one are found without a path. */
static char *find_program(const char *name)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (strchr(name, '/') || n < 0)
        return string_copy(name);
    self[n] = 0;
    char *slash = strrchr(self, '/');
    *slash = 0;
    char *beside = path_join(self, name);
    if (file_exists(beside))
        return beside;
    memory_free(beside);
    return string_copy(name);
}

static char *substitute(const char *text, const char *out)
{
    struct text result = {0};
    for (const char *at = text, *mark;; at = mark + 4) {
        mark = strstr(at, "$OUT");
        text_append(&result, at, mark ? mark - at : (i64)strlen(at));
        if (!mark)
            return result.data;
        text_append(&result, out, (i64)strlen(out));
    }
}

static int wait_for(pid_t child, const char *name)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return error_errno("waiting for %s", name);
        else if (interrupted())
            kill(child, SIGTERM);
    if (interrupted())
        return STAGE_INTERRUPTED;
    if (WIFSIGNALED(status))
        return error_set("%s was ended by signal %d", name, WTERMSIG(status));
    return WEXITSTATUS(status)
               ? error_set("%s ended with status %d: its messages stand above", name, WEXITSTATUS(status))
               : 0;
}

int command_stage(const void *settings, const struct stage *stage)
{
    const struct command_settings *s = settings;
    char **argv = memory_alloc((s->argv.count + 1) * (i64)sizeof *argv);
    pid_t child;
    if (s->argv.count == 0)
        return error_usage("argv is empty");
    for (i64 i = 0; i < s->argv.count; i++)
        argv[i] = substitute(s->argv.values[i], stage->out);
    char *program = find_program(argv[0]);
    int number = posix_spawnp(&child, program, NULL, NULL, argv, environ);
    int status = number ? error_set("cannot start %s: %s", program, strerror(number)) : wait_for(child, argv[0]);
    for (i64 i = 0; i < s->argv.count; i++)
        memory_free(argv[i]);
    memory_free(argv);
    memory_free(program);
    return status;
}
