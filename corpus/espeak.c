/* Utterances by espeak-ng: each worker sends requests to a speech process of its own
 * (speaker.c). */
#define _GNU_SOURCE /* pipe2 */
#include "corpus/corpus.h"
#include "corpus/speaker.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { PATIENCE_MS = 30000 };

/* Path of weft-speaker, which is installed beside this program. */
static int find_program(char path[PATH_MAX])
{
    static const char name[] = "weft-speaker";
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - sizeof name);
    if (length < 0)
        return error_errno("reading /proc/self/exe");
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, name);
    return 0;
}

static int speaker_start(struct speaker *speaker)
{
    char path[PATH_MAX], *arguments[] = {path, NULL};
    int to[2], from[2];
    /* Close-on-exec, because a sibling process that inherits an end would keep the pipe open. A
     * request is one atomic write. */
    _Static_assert(sizeof(struct speaker_request) <= PIPE_BUF, "a request fits into a pipe at once");
    if (find_program(path) < 0)
        return -1;
    if (pipe2(to, O_CLOEXEC) < 0)
        return error_errno("no pipe for espeak-ng");
    if (pipe2(from, O_CLOEXEC) < 0) {
        close(to[0]);
        close(to[1]);
        return error_errno("no pipe for espeak-ng");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    int code = posix_spawn(&speaker->process, path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    speaker->to = to[1];
    speaker->from = from[0];
    if (code == 0)
        return 0;
    close(to[1]);
    close(from[0]);
    *speaker = (struct speaker){0};
    return error_set("no process for espeak-ng: %s: %s", path, strerror(code));
}

static int read_all(int file, void *out, i64 bytes, double deadline_s)
{
    for (i64 done = 0; done < bytes;) {
        struct pollfd watched = {.fd = file, .events = POLLIN};
        int left_ms = (int)((deadline_s - clock_s()) * 1000);
        int ready = left_ms > 0 ? poll(&watched, 1, left_ms) : 0;
        ssize_t count = ready > 0 ? read(file, (char *)out + done, (size_t)(bytes - done)) : 0;
        if (ready == 0)
            return error_set("espeak-ng gave no output for %d s", PATIENCE_MS / 1000);
        if ((ready < 0 || count < 0) && errno != EINTR)
            return error_errno("reading from espeak-ng");
        if (ready > 0 && count == 0)
            return error_set("the process of espeak-ng ended; is the package espeak-ng-data installed?");
        done += ready > 0 ? max_i64(count, 0) : 0;
    }
    return 0;
}

/* Receives an utterance into `out`, at the library's sample rate. */
static int collect(struct sound *out, const struct speaker *speaker, const struct utterance *utterance)
{
    double deadline_s = clock_s() + PATIENCE_MS / 1000.0;
    struct speaker_reply reply;
    if (read_all(speaker->from, &reply, sizeof reply, deadline_s) < 0)
        return -1;
    if (reply.samples < 0)
        return error_set("espeak-ng has no voice \"%s\"; is the package espeak-ng-data installed?", utterance->voice);
    int16_t *samples = memory_alloc(max_i64(reply.samples, 1) * 2);
    int status = read_all(speaker->from, samples, reply.samples * 2, deadline_s);
    if (status == 0) {
        sound_init(out, reply.samples, reply.rate_hz);
        for (i64 i = 0; i < reply.samples; i++)
            out->values[i] = (float)samples[i] / 32768;
    }
    memory_free(samples);
    return status;
}

int utterance_speak(struct sound *out, struct speaker *speaker, const struct utterance *utterance, i64 rate_hz)
{
    struct speaker_request request = {.speed = utterance->speed, .pitch = utterance->pitch};
    struct sound own;
    struct buffer wav = {0};
    require(strlen(utterance->voice) < VOICE_BYTES && strlen(utterance->text) < SAID_BYTES, "an utterance too long");
    strcpy(request.voice, utterance->voice);
    strcpy(request.said, utterance->text);
    if (!speaker->process && speaker_start(speaker) < 0)
        return -1;
    ssize_t written;
    while ((written = write(speaker->to, &request, sizeof request)) < 0 && errno == EINTR)
        ;
    if (written < 0)
        return error_errno("writing to the process of espeak-ng");
    if (collect(&own, speaker, utterance) < 0)
        return -1;
    sound_encode_wav(&wav, &own);
    int status = sound_read(out, wav.data, wav.length, "espeak-ng", rate_hz);
    sound_release(&own);
    buffer_release(&wav);
    return status;
}

void speaker_close(struct speaker *speaker)
{
    if (!speaker->process)
        return;
    close(speaker->to);
    close(speaker->from);
    kill(speaker->process, SIGTERM); /* a hung process would not notice the closed pipe */
    while (waitpid(speaker->process, NULL, 0) < 0 && errno == EINTR)
        ;
    *speaker = (struct speaker){0};
}
