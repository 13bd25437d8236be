#include "launcher/launcher_inside.h"
#include "dist/dist.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t asked_again;

static void note_again(int number)
{
    (void)number;
    asked_again = 1;
}

bool launcher_took_again(void)
{
    bool asked = asked_again;
    asked_again = 0;
    return asked;
}

static int check(const struct launcher_settings *s)
{
    i64 most = s->meet ? WORLD_MOST : s->ranks;
    if (s->replay)
        return 0;
    if (s->least > s->ranks)
        return error_usage("--least %lld is above -n %lld: expected at most the ranks that this machine starts",
                           (long long)s->least, (long long)s->ranks);
    if (layout_fit(s->layout, s->least, most))
        return 0;
    struct layout layout;
    layout_parse(&layout, s->layout, s->ranks);
    char *why = string_copy(error_text());
    error_usage("--layout %s fits no number of ranks from %lld to %lld: %s", s->layout, (long long)s->least,
                (long long)most, why);
    memory_free(why);
    return -1;
}

int launcher_run(const struct launcher_settings *s)
{
    struct launcher_peer *first = NULL;
    int listener = -1;
    setenv("WEFT_SILENCE_S", "15", 0);
    if (check(s) || (s->meet && meeting_open(&first, &listener, s)))
        return -1;
    signals_say("the ranks save and end");
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = note_again}, NULL);
    return first ? follow(s, first) : lead(s, listener);
}
