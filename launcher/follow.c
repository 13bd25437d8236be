/* A launcher that is not the first: its ranks begin and end as the first one says. */
#include "launcher/launcher_inside.h"
#include "dist/dist.h"

#include <math.h>
#include <signal.h>
#include <string.h>

enum { GRACE_S = 2 };

struct follower {
    const struct launcher_settings *settings;
    struct launcher_peer *first;
    struct ranks ranks;
    bool told_end, told_gone; /* the first launcher knows that the ranks end, and that they have */
    bool stops, over;
    int status;
};

static void close_in_rank(void *context)
{
    struct follower *f = context;
    peer_close(f->first);
}

static void start(struct follower *f, const struct json *m)
{
    struct rank_world w;
    if (!message_is_start(&w, m, f->settings->ranks) || !ranks_are_gone(&f->ranks)) {
        f->status = error_set("the first launcher at %s sends what no launcher does", f->settings->meet);
        f->over = true;
        return;
    }
    w.layout = f->settings->layout;
    ranks_start(&f->ranks, &w, close_in_rank, f);
    f->told_end = f->told_gone = false;
    if (w.count > 0)
        log_info("launch: ranks %lld to %lld of %lld begin here", (long long)w.first,
                 (long long)(w.first + w.count - 1), (long long)w.size);
}

static void obey(struct follower *f, const struct json *m)
{
    const char *said = json_string(json_get(m, "say"), NULL);
    if (said)
        log_info("%s", said);
    if (json_get(m, "start"))
        start(f, m);
    else if (json_get(m, "end"))
        ranks_end(&f->ranks, fmax(0, json_number(json_get(m, "end"), 0)));
    if (!json_get(m, "over"))
        return;
    f->over = true;
    f->status = (int)json_integer(json_get(m, "over"), STATUS_FAILED);
    if (f->status && f->status != STATUS_INTERRUPTED)
        f->status = error_set("the first launcher at %s: %s", f->settings->meet,
                              json_string(json_get(m, "why"), "it has given up"));
}

static void report(struct follower *f)
{
    struct ranks *r = &f->ranks;
    struct json *generation = json_of_integer(r->generation);
    enum rank_end worst = ranks_worst(r);
    bool gone = r->generation > 0 && ranks_are_gone(r);
    if (gone && !f->told_gone)
        peer_send(f->first, message_of("generation", json_copy(generation), "gone", ranks_outcome(r), NULL));
    else if (worst != RANK_RUNS && !f->told_end && !gone)
        peer_send(f->first,
                  message_of("generation", json_copy(generation), "ends", json_of_bool(worst > RANK_SAVED), NULL));
    f->told_end |= worst != RANK_RUNS;
    f->told_gone |= gone;
    json_free(generation);
}

int follow(const struct launcher_settings *settings, struct launcher_peer *first)
{
    struct follower f = {.settings = settings,
                         .first = first,
                         .ranks = {.settings = settings, .silence_s = (double)launch_silence_s(NULL), .grace_s = -1}};
    double before_s = clock_s();
    log_info("launch: joins the first launcher at %s with %lld ranks", settings->meet, (long long)settings->ranks);
    while (!f.over) {
        struct pollfd list[LISTED_MOST] = {{.fd = first->socket, .events = POLLIN}};
        poll(list, (nfds_t)ranks_list(&f.ranks, list, 1), LOOK_MS);
        double now_s = clock_s(), passed_s = now_s - before_s < 1 ? now_s - before_s : 1;
        before_s = now_s;
        ranks_step(&f.ranks, passed_s);
        for (struct json *m; !f.over && (m = peer_next(first)); json_free(m))
            obey(&f, m);
        peer_step(first, passed_s, f.ranks.silence_s);
        report(&f);
        if (interrupted() && !f.stops) {
            f.stops = true;
            ranks_signal(&f.ranks, SIGUSR1);
            peer_send(first, message_of("stop", json_of_bool(true), NULL));
        }
        if (launcher_took_again())
            peer_send(first, message_of("again", json_of_bool(true), NULL));
        if (first->gone && !f.over) {
            f.over = true;
            f.status = error_set("the first launcher at %s is gone (%s): its ranks and these end; the same call on all "
                                 "machines resumes",
                                 settings->meet, first->gone);
        }
    }
    ranks_end(&f.ranks, 0);
    while (!ranks_are_gone(&f.ranks)) {
        ranks_step(&f.ranks, 1e-3 * LOOK_MS);
        poll(NULL, 0, 1);
    }
    ranks_release(&f.ranks);
    peer_close(first);
    return f.status;
}
