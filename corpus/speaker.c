/* The program weft-speaker: speech synthesis with the library espeak-ng. The library carries state
 * between utterances and is not thread-safe, so the program loads the voices once and forks for
 * every utterance; the result does not depend on earlier ones. This plans 1/3 of the time of
 * running the program espeak-ng each time. It is a separate program because a fork is slower the
 * more libraries a process maps. */
#include "core/core.h"
#include "corpus/speaker.h"
#include <errno.h>
#include <espeak-ng/speak_lib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct buffer spoken;

static bool write_all(const void *data, i64 bytes)
{
    for (i64 done = 0; done < bytes;) {
        ssize_t count = write(STDOUT_FILENO, (const char *)data + done, (size_t)(bytes - done));
        if (count < 0 && errno != EINTR)
            return false;
        done += max_i64(count, 0);
    }
    return true;
}

static int keep_samples(short *samples, int count, espeak_EVENT *events)
{
    (void)events;
    if (samples && count > 0)
        buffer_append(&spoken, (const char *)samples, (i64)count * 2);
    return 0;
}

/* Selects a voice as the program espeak-ng does: by name, otherwise by language; either may have a
 * variant behind a plus. */
static bool choose_voice(const char *name)
{
    espeak_VOICE wanted = {.languages = name};
    return espeak_SetVoiceByName(name) == EE_OK || espeak_SetVoiceByProperties(&wanted) == EE_OK;
}

static bool speak(const struct speaker_request *request, int rate_hz)
{
    struct speaker_reply reply = {-1, rate_hz};
    srand(1); /* espeak-ng uses rand() for breath noise, and a library may have called it */
    if (choose_voice(request->voice)) {
        espeak_SetParameter(espeakRATE, request->speed, 0);
        espeak_SetParameter(espeakPITCH, request->pitch, 0);
        espeak_Synth(request->said, strlen(request->said) + 1, 0, POS_CHARACTER, 0, espeakCHARS_UTF8, NULL, NULL);
        reply.samples = (int)(spoken.length / 2);
    }
    return write_all(&reply, sizeof reply) && write_all(spoken.data, spoken.length);
}

int main(void)
{
    struct speaker_request request;
    int rate_hz = espeak_Initialize(AUDIO_OUTPUT_SYNCHRONOUS, 0, NULL, espeakINITIALIZE_DONT_EXIT), status = 0;
    if (rate_hz < 0)
        return 1;
    espeak_SetSynthCallback(keep_samples);
    espeak_ListVoices(NULL); /* load once here, not in each child */
    while (status == 0 && read(STDIN_FILENO, &request, sizeof request) == (ssize_t)sizeof request) {
        pid_t child = fork();
        if (child == 0)
            _exit(speak(&request, rate_hz) ? 0 : 1);
        status = child < 0 || waitpid(child, &status, 0) < 0 || status != 0;
    }
    return status;
}
