/* The stage `command`: runs a program. $OUT in its arguments is the stage's folder, which is empty
 * at the start: the remains of an interrupted call are removed. */
#define _GNU_SOURCE /* pipe2 */
#include "cli/stage_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const struct setting command_table[] = {SETTING(struct command_settings, argv, "argv", STRINGS, NULL, 0, 0, NULL,
                                                "program and arguments; $OUT is the output folder"),
                                        {0}};

/* Finds a program in the folder of this executable, else leaves the name for PATH. */
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
    struct buffer result = {0};
    for (const char *at = text, *mark;; at = mark + 4) {
        mark = strstr(at, "$OUT");
        buffer_append(&result, at, mark ? mark - at : (i64)strlen(at));
        if (!mark)
            return result.data;
        buffer_append(&result, out, (i64)strlen(out));
    }
}

/* Empties the folder except for identity.json. */
static int clear_folder(const char *out)
{
    char **names;
    i64 count;
    int status = directory_list(&names, &count, out);
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(out, names[i]);
        if (status == 0 && strcmp(names[i], "identity.json") != 0)
            status = directory_remove(path);
        memory_free(path);
    }
    string_list_free(names, count);
    return status;
}

/* Runs in the child. It is killed when its parent dies, so
 * that no two programs ever write to one folder. */
static _Noreturn void exec_program(const char *program, char **argv, pid_t parent, int report)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        execvp(program, argv);
    ssize_t written = write(report, &errno, sizeof errno);
    _exit(written == sizeof errno ? 127 : 126);
}

/* Starts the program. The pipe closes on exec; before that it carries errno of a failure. */
static int start(pid_t *child, const char *program, char **argv)
{
    int report[2], number = 0;
    pid_t parent = getpid();
    *child = -1;
    if (pipe2(report, O_CLOEXEC))
        return error_errno("cannot start %s", program);
    *child = fork();
    if (*child == 0)
        exec_program(program, argv, parent, report[1]);
    close(report[1]);
    if (*child < 0)
        number = errno;
    else if (read(report[0], &number, sizeof number) == sizeof number)
        waitpid(*child, NULL, 0);
    close(report[0]);
    return number ? error_set("cannot start %s: %s", program, strerror(number)) : 0;
}

static int wait_for(pid_t child, const char *name)
{
    int status;
    bool told = false;
    for (pid_t ended; (ended = waitpid(child, &status, WNOHANG)) != child; poll(NULL, 0, 10)) {
        if (ended < 0 && errno != EINTR)
            return error_errno("waiting for %s", name);
        if (interrupted() && !told)
            told = kill(child, SIGTERM) == 0;
    }
    if (interrupted())
        return error_interrupted();
    if (WIFSIGNALED(status))
        return error_set("%s was ended by signal %d", name, WTERMSIG(status));
    return WEXITSTATUS(status)
               ? error_set("%s exited with status %d: see its messages above", name, WEXITSTATUS(status))
               : 0;
}

int command_stage(const void *settings, const struct stage *stage)
{
    const struct command_settings *s = settings;
    char **argv = memory_alloc((s->argv.count + 1) * (i64)sizeof *argv);
    pid_t child;
    if (s->argv.count == 0)
        return error_usage("argv is empty");
    if (clear_folder(stage->out))
        return -1;
    for (i64 i = 0; i < s->argv.count; i++)
        argv[i] = substitute(s->argv.values[i], stage->out);
    char *program = find_program(argv[0]);
    int status = start(&child, program, argv);
    if (status == 0)
        status = wait_for(child, argv[0]);
    for (i64 i = 0; i < s->argv.count; i++)
        memory_free(argv[i]);
    memory_free(argv);
    memory_free(program);
    return status;
}
