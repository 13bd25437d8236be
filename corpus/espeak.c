/* One utterance by the program espeak-ng, over a pipe. */
#define _GNU_SOURCE /* pipe2 */
#include "corpus/corpus.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { PATIENCE_MS = 30000 };

static int start(pid_t *child, int *from_child, const struct utterance *utterance)
{
    char speed[16], pitch[16];
    snprintf(speed, sizeof speed, "%d", utterance->speed);
    snprintf(pitch, sizeof pitch, "%d", utterance->pitch);
    char *arguments[] = {"espeak-ng", "-v",       (char *)utterance->voice, "-s", speed, "-p",
                         pitch,       "--stdout", (char *)utterance->text,  NULL};
    int ends[2];
    /* Closed on exec: a neighbour that holds the writing end would keep this pipe open. */
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno("no pipe for espeak-ng");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int code = posix_spawnp(child, "espeak-ng", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *from_child = ends[0];
    if (code == 0)
        return 0;
    close(ends[0]);
    return error_set("espeak-ng cannot be run: %s; install the package espeak-ng", strerror(code));
}

/* Until the pipe's end. */
static int collect(struct text *out, int from_child)
{
    double deadline_s = clock_s() + PATIENCE_MS / 1000.0;
    char buffer[16384];
    for (;;) {
        struct pollfd watched = {.fd = from_child, .events = POLLIN};
        int left_ms = (int)((deadline_s - clock_s()) * 1000);
        int ready = left_ms > 0 ? poll(&watched, 1, left_ms) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return error_set("espeak-ng said nothing for %d s", PATIENCE_MS / 1000);
        ssize_t count = read(from_child, buffer, sizeof buffer);
        if (count < 0 && errno != EINTR)
            return error_errno("reading from espeak-ng");
        if (count == 0)
            return 0;
        if (count > 0)
            text_append(out, buffer, count);
    }
}

static int finish(pid_t child, const struct utterance *utterance)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return error_errno("waiting for espeak-ng");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return error_set("espeak-ng -v %s \"%s\" ended with %s %d; is the voice installed (package espeak-ng-data)?",
                     utterance->voice, utterance->text, WIFSIGNALED(status) ? "signal" : "status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int utterance_say(struct sound *out, const struct utterance *utterance, i64 rate_hz)
{
    struct text wav = {0};
    pid_t child;
    int from_child = -1;
    if (start(&child, &from_child, utterance) < 0)
        return -1;
    int collected = collect(&wav, from_child);
    close(from_child);
    if (collected < 0)
        kill(child, SIGKILL);
    int status = collected < 0 ? (waitpid(child, NULL, 0), -1) : finish(child, utterance);
    if (status == 0)
        status = sound_read(out, wav.data, wav.length, "espeak-ng", rate_hz);
    text_release(&wav);
    return status;
}
