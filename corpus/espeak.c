/* Utterances by the library espeak-ng, which carries state from one to the next and is not for several threads. So each
 * worker has a process of its own, this program once more, which has read the voices; it forks for every utterance, and
 * what is said does not depend on what was said before. A third of the time that the program espeak-ng takes. */
#define _GNU_SOURCE /* pipe2 */
#include "corpus/corpus.h"
#include <errno.h>
#include <espeak-ng/speak_lib.h>
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
enum { PATIENCE_MS = 30000, NAME_BYTES = 64, SAID_BYTES = 1024 };

const char speaker_option[] = "--speak";

struct request {
    int speed, pitch;
    char voice[NAME_BYTES], said[SAID_BYTES];
};
struct reply {
    int samples, rate_hz; /* samples of 16 bits follow; -1: none, for there is no such voice */
};

static bool write_all(int file, const void *data, i64 bytes)
{
    for (i64 done = 0; done < bytes;) {
        ssize_t count = write(file, (const char *)data + done, (size_t)(bytes - done));
        if (count < 0 && errno != EINTR)
            return false;
        done += max_i64(count, 0);
    }
    return true;
}

/* ---- The process that speaks ---- */

static struct text spoken;

static int keep_samples(short *samples, int count, espeak_EVENT *events)
{
    (void)events;
    if (samples && count > 0)
        text_append(&spoken, (const char *)samples, (i64)count * 2);
    return 0;
}

/* As the program does: a name, else a language; either may have a variant behind a plus. */
static bool choose_voice(const char *name)
{
    espeak_VOICE wanted = {.languages = name};
    return espeak_SetVoiceByName(name) == EE_OK || espeak_SetVoiceByProperties(&wanted) == EE_OK;
}

static void say(const struct request *request, int rate_hz)
{
    struct reply reply = {-1, rate_hz};
    if (choose_voice(request->voice)) {
        espeak_SetParameter(espeakRATE, request->speed, 0);
        espeak_SetParameter(espeakPITCH, request->pitch, 0);
        espeak_Synth(request->said, strlen(request->said) + 1, 0, POS_CHARACTER, 0, espeakCHARS_UTF8, NULL, NULL);
        reply.samples = (int)(spoken.length / 2);
    }
    if (write_all(STDOUT_FILENO, &reply, sizeof reply))
        write_all(STDOUT_FILENO, spoken.data, spoken.length);
}

int speaker_serve(void)
{
    struct request request;
    int rate_hz = espeak_Initialize(AUDIO_OUTPUT_SYNCHRONOUS, 0, NULL, espeakINITIALIZE_DONT_EXIT), status = 0;
    if (rate_hz < 0)
        return 1;
    espeak_SetSynthCallback(keep_samples);
    espeak_ListVoices(NULL); /* or each process would read them anew */
    while (read(STDIN_FILENO, &request, sizeof request) == (ssize_t)sizeof request && status == 0) {
        pid_t child = fork();
        if (child == 0) {
            say(&request, rate_hz);
            _exit(0);
        }
        status = child < 0 || waitpid(child, &status, 0) < 0 || status != 0;
    }
    return status;
}

/* ---- Who asks it ---- */

static int speaker_start(struct speaker *speaker)
{
    char *arguments[] = {"weft-corpus", (char *)speaker_option, NULL};
    int to[2], from[2];
    /* Closed on exec: a neighbour that holds an end would keep the pipe open. A request is one write, never in parts.
     */
    _Static_assert(sizeof(struct request) <= PIPE_BUF, "a request fits into a pipe at once");
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
    int code = posix_spawn(&speaker->process, "/proc/self/exe", &actions, NULL, arguments, environ);
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
    return error_set("no process for espeak-ng: %s", strerror(code));
}

static int read_all(int file, void *out, i64 bytes, double deadline_s)
{
    for (i64 done = 0; done < bytes;) {
        struct pollfd watched = {.fd = file, .events = POLLIN};
        int left_ms = (int)((deadline_s - clock_s()) * 1000);
        int ready = left_ms > 0 ? poll(&watched, 1, left_ms) : 0;
        ssize_t count = ready > 0 ? read(file, (char *)out + done, (size_t)(bytes - done)) : 0;
        if (ready == 0)
            return error_set("espeak-ng said nothing for %d s", PATIENCE_MS / 1000);
        if ((ready < 0 || count < 0) && errno != EINTR)
            return error_errno("reading from espeak-ng");
        if (ready > 0 && count == 0)
            return error_set("the process of espeak-ng ended; is the package espeak-ng-data installed?");
        done += ready > 0 ? max_i64(count, 0) : 0;
    }
    return 0;
}

/* `out` at the rate of the library. */
static int collect(struct sound *out, const struct speaker *speaker, const struct utterance *utterance)
{
    double deadline_s = clock_s() + PATIENCE_MS / 1000.0;
    struct reply reply;
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

int utterance_say(struct sound *out, struct speaker *speaker, const struct utterance *utterance, i64 rate_hz)
{
    struct request request = {.speed = utterance->speed, .pitch = utterance->pitch};
    struct sound own;
    struct text wav = {0};
    require(strlen(utterance->voice) < NAME_BYTES && strlen(utterance->text) < SAID_BYTES, "an utterance too long");
    strcpy(request.voice, utterance->voice);
    strcpy(request.said, utterance->text);
    if (!speaker->process && speaker_start(speaker) < 0)
        return -1;
    if (!write_all(speaker->to, &request, sizeof request))
        return error_errno("writing to the process of espeak-ng");
    if (collect(&own, speaker, utterance) < 0)
        return -1;
    sound_encode_wav(&wav, &own);
    int status = sound_read(out, wav.data, wav.length, "espeak-ng", rate_hz);
    sound_release(&own);
    text_release(&wav);
    return status;
}

void speaker_close(struct speaker *speaker)
{
    if (!speaker->process)
        return;
    close(speaker->to);
    close(speaker->from);
    kill(speaker->process, SIGTERM); /* one that hangs would not see that nobody asks any more */
    while (waitpid(speaker->process, NULL, 0) < 0 && errno == EINTR)
        ;
    *speaker = (struct speaker){0};
}
