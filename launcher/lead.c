/* The first launcher: it keeps the list of machines, and decides on each world.
 *
 *     IDLE  -- enough ranks, back-off is over -->  RUNS  -- a rank ends, a machine is gone -->  ENDS
 *       ^                                                                                      |
 *       +------------------- all ranks of all machines are gone: judge ------------------------+
 *
 * To other launchers: {"start": GENERATION, "first", "count", "size", "port", "host"}, {"end": SECONDS}
 * (ranks that still run then are killed), {"say": LINE}, {"over": STATUS, "why"}. From them:
 * {"generation", "ends": BAD}, {"generation", "gone": OUTCOME} (ranks_outcome), {"stop"}, {"again"}. */
#define _GNU_SOURCE /* memfd_create */
#include "launcher/launcher_inside.h"
#include "dist/dist.h"
#include "dist/sockets.h"

#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* AT_ONCE_S: a world that lasted so long has not ended at once, whether it took steps or not */
enum { GRACE_S = 2, GUESTS_MOST = 32, GUEST_S = 20, FAILURES_MOST = 5, AT_ONCE_S = 60, BACK_OFF_PARTS = 30 };

struct machine {
    struct launcher_peer *peer; /* NULL: this machine */
    i64 ranks, places;          /* that it can start; of them those whose rank was not lost */
    i64 count, lost;            /* in the present world; of them those that explain its end */
    bool begun;                 /* a world with ranks of it has begun a step */
    struct json *outcome;       /* of its ranks, when they are gone; NULL: they are not, or there were none */
};
enum phase { IDLE, RUNS, ENDS };
struct leader {
    const struct launcher_settings *settings;
    struct ranks ranks;
    int listener; /* -1: none */
    struct launcher_peer **guests;
    struct machine *machines; /* the first is this one */
    i64 guest_count, machine_count;
    char *host; /* of rank 0, for all machines */
    enum phase phase;
    i64 generation, size, size_most;      /* size_most: below one that the recipe does not allow */
    double wait_s, lived_s;               /* until the next world may begin; of this one */
    i64 failures;                         /* worlds in a row that ended at once */
    bool begun;                           /* a step of any world */
    bool asked, stops, told, waits, over; /* told: ranks know that it stops; waits: it was said */
    struct buffer present, next; /* why this world is another one, and the next; empty: it is said, or nothing is */
    char name[32];               /* of the present world, for members.jsonl */
    struct json *left;           /* {name of a world before: how its ranks left} */
    struct replay *replay;       /* NULL: none */
    i64 at;                      /* its world that goes on, or that is next */
    int snapshots;               /* memory that ranks of this machine share with those after them; -1: none */
    int status;
};

static struct machine *machine_at(struct leader *l, i64 i)
{
    return &l->machines[i];
}

static void send_to_all(struct leader *l, const struct json *message)
{
    for (i64 i = 1; i < l->machine_count; i++)
        peer_send(machine_at(l, i)->peer, json_copy(message));
}

static void send_and_free(struct leader *l, struct json *message)
{
    send_to_all(l, message);
    json_free(message);
}

/* ---- What is said ---- */

static void add_change(struct leader *l, const char *text)
{
    buffer_printf(&l->next, "%s%s", l->next.length ? "; " : "", text);
}

static void say(struct leader *l, const char *text)
{
    char *line = string_format("launch: %s", text);
    log_info("%s", line);
    send_and_free(l, message_of("say", json_of_string(line), NULL));
    memory_free(line);
}

static void say_change(struct leader *l)
{
    const char *what = l->ranks.reports == 0 ? plural(l->size, "has taken no step", "have taken no step")
                                             : plural(l->size, "goes on from step", "go on from step");
    struct buffer text = {0};
    buffer_printf(&text, "%s; %lld %s", l->present.data, (long long)l->size, what);
    if (l->ranks.reports > 0)
        buffer_printf(&text, " %lld", (long long)l->ranks.step);
    if (l->present.length > 0)
        say(l, text.data);
    buffer_clear(&l->present);
    buffer_release(&text);
}

/* The run is over. status -1: with the error message. */
static void finish(struct leader *l, int status)
{
    struct json *message = message_of("over", json_of_integer(status < 0 ? error_status() : status), NULL);
    if (status < 0)
        json_set(message, "why", json_of_string(error_text()));
    send_and_free(l, message);
    l->status = status;
    l->over = true;
}

/* ---- The next world ---- */

static i64 fitting(const struct leader *l)
{
    i64 places = 0;
    for (i64 i = 0; i < l->machine_count; i++)
        places += l->machines[i].places;
    return layout_fit(l->settings->layout, l->settings->least, min_i64(places, l->size_most));
}

/* As many ranks as the layout fits. If too few places are left, all are filled again, and those of this
 * machine if it has none for rank 0. */
static i64 choose_size(struct leader *l)
{
    struct machine *own = machine_at(l, 0);
    if (l->replay)
        return own->ranks = own->places = l->replay->list[l->at].ranks;
    own->places = own->places ? own->places : own->ranks;
    i64 size = fitting(l);
    for (i64 i = 0; i < l->machine_count && size == 0; i++)
        machine_at(l, i)->places = machine_at(l, i)->ranks;
    return size ? size : fitting(l);
}

/* A port that nobody has. It is free again until rank 0 takes it. */
static i64 free_port(void)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;
    int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&six, sizeof six)) {
        if (s >= 0)
            close(s);
        s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        require(s >= 0 && bind(s, (struct sockaddr *)&four, sizeof four) == 0, "no free port");
    }
    getsockname(s, (struct sockaddr *)&own, &length);
    close(s);
    return ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                           : ((struct sockaddr_in *)&own)->sin_port);
}

static void close_in_rank(void *context)
{
    struct leader *l = context;
    if (l->listener >= 0)
        close(l->listener);
    for (i64 i = 0; i < l->guest_count; i++)
        close(l->guests[i]->socket);
    for (i64 i = 1; i < l->machine_count; i++)
        close(machine_at(l, i)->peer->socket);
}

static void say_replay(const struct leader *l)
{
    const struct replay_world *w = &l->replay->list[l->at];
    char end[32] = "the end";
    if (w->end > 0)
        snprintf(end, sizeof end, "step %lld", (long long)w->end);
    log_info("launch: replay of stage %s: %lld %s from step %lld to %s", l->replay->stage, (long long)w->ranks,
             plural(w->ranks, "rank", "ranks"), (long long)w->first, end);
}

static void start(struct leader *l)
{
    struct rank_world w = {.generation = ++l->generation,
                           .size = l->size,
                           .port = free_port(),
                           .host = l->host,
                           .layout = l->replay ? l->replay->list[l->at].layout : l->settings->layout,
                           .name = l->name,
                           .left = l->left,
                           .replay = l->replay,
                           .at = l->at};
    struct rank_world own = {0};
    snprintf(strchr(l->name, '.'), 24, ".%lld", (long long)l->generation);
    l->phase = RUNS;
    l->asked = l->waits = false;
    buffer_append(&l->present, l->next.data, l->next.length);
    buffer_clear(&l->next);
    l->lived_s = 0;
    for (i64 i = 0, left = l->size; i < l->machine_count; i++) {
        struct machine *m = machine_at(l, i);
        m->count = w.count = min_i64(m->places, left);
        m->lost = 0;
        json_free(m->outcome);
        m->outcome = NULL;
        if (i == 0)
            own = w;
        else if (m->count > 0)
            peer_send(m->peer, message_of("start", json_of_integer(w.generation), "first", json_of_integer(w.first),
                                          "count", json_of_integer(w.count), "size", json_of_integer(w.size), "port",
                                          json_of_integer(w.port), "host", json_of_string(w.host), NULL));
        left -= m->count;
        w.first += m->count;
    }
    own.snapshots = own.count == l->size && l->snapshots >= 0 ? &l->snapshots : NULL;
    if (!own.snapshots && l->snapshots >= 0) /* what this world does makes them void */
        (void)!ftruncate(l->snapshots, 0);
    ranks_start(&l->ranks, &own, close_in_rank, l);
    if (l->replay)
        say_replay(l);
    if (l->generation == 1)
        log_info("launch: %lld %s here; as processes they are called weft-rank-0 and so on", (long long)own.count,
                 plural(own.count, "rank begins", "ranks begin"));
}

static void begin_if_possible(struct leader *l)
{
    if (l->wait_s > 0)
        return;
    l->size = choose_size(l);
    if (l->size > 0) {
        start(l);
    } else if (l->listener < 0) {
        error_set("no number of ranks from %lld to %lld fits the recipe and the layout%s%s",
                  (long long)l->settings->least, (long long)l->settings->ranks, l->next.length ? ": " : "",
                  l->next.length ? l->next.data : "");
        finish(l, -1);
    } else if (!l->waits) {
        l->waits = true;
        log_info("launch: waiting for more machines at %s: their ranks and those of this one are too few for --least "
                 "%lld%s%s",
                 l->settings->meet, (long long)l->settings->least, l->settings->layout ? " and --layout " : "",
                 l->settings->layout ? l->settings->layout : "");
    }
}

/* ---- The end of a world ---- */

static void end_world(struct leader *l, double grace_s)
{
    ranks_end(&l->ranks, grace_s);
    send_and_free(l, message_of("end", json_of_number(grace_s), NULL));
    l->phase = ENDS;
}

/* Why a world ended. */
struct verdict {
    enum rank_end worst;
    i64 lost, saved;
    bool first_done;    /* rank 0 */
    bool usage;         /* all that failed said that this number of ranks or the call is wrong */
    i64 newcomer;       /* a machine that never began a step, and whose rank ended so; 0: none */
    struct buffer text; /* "rank 3: killed, signal 9, rank 4: ..." */
    char *how;          /* "rank 3: killed, signal 9", the first of them */
};

static void remove_machine(struct leader *l, i64 i)
{
    struct machine *m = machine_at(l, i);
    peer_close(m->peer);
    json_free(m->outcome);
    memmove(m, m + 1, (size_t)(l->machine_count - i - 1) * sizeof *m);
    l->machine_count--;
    l->size_most = INT64_MAX;
}

/* Adds the ranks of a machine that ended for the worst reason. left: for all of them. */
static void collect_ranks(struct verdict *v, struct leader *l, i64 machine, struct json *left)
{
    struct machine *m = machine_at(l, machine);
    const struct json *bad = json_get(m->outcome, "bad");
    for (i64 i = 0; i < json_count(bad); i++) {
        const struct json *rank = json_at(bad, i);
        const char *how = json_string(json_get(rank, "how"), "");
        json_push(left, message_of("rank", json_copy(json_get(rank, "rank")), "how", json_of_string(how), NULL));
        if (json_integer(json_get(rank, "end"), 0) != (i64)v->worst)
            continue;
        char *text = string_format("rank %lld: %s", (long long)json_integer(json_get(rank, "rank"), 0), how);
        buffer_printf(&v->text, "%s%s", v->text.length ? ", " : "", text);
        v->usage &= json_bool(json_get(rank, "usage"), false);
        v->newcomer = machine > 0 && !m->begun ? machine : v->newcomer;
        if (v->how)
            memory_free(text);
        else
            v->how = text;
        v->lost++;
        m->lost++;
    }
}

/* A rank that ended for a worse reason explains the ends of others, and so does a machine that is gone. */
static struct verdict collect(struct leader *l)
{
    struct verdict v = {.usage = true, .first_done = l->ranks.list && l->ranks.list[0].end == RANK_DONE};
    struct json *left = json_array();
    for (i64 i = l->machine_count - 1; i > 0; i--) {
        const struct machine *m = machine_at(l, i);
        if (!m->peer->gone)
            continue;
        buffer_printf(&v.text, "%smachine %s: %s", v.text.length ? ", " : "", m->peer->name, m->peer->gone);
        json_push(left,
                  message_of("machine", json_of_string(m->peer->name), "how", json_of_string(m->peer->gone), NULL));
        v.lost += m->count;
        v.worst = RANK_KILLED;
        remove_machine(l, i);
    }
    for (i64 i = 0; i < l->machine_count; i++) {
        const struct json *outcome = machine_at(l, i)->outcome, *bad = json_get(outcome, "bad");
        v.saved += json_integer(json_get(outcome, "saved"), 0);
        for (i64 k = 0; k < json_count(bad); k++)
            v.worst = (enum rank_end)max_i64((i64)v.worst, json_integer(json_get(json_at(bad, k), "end"), 0));
    }
    for (i64 i = 0; i < l->machine_count; i++)
        collect_ranks(&v, l, i, left);
    buffer_append(&v.text, "", 0);
    json_set(l->left, l->name, message_of("step", json_of_integer(l->ranks.step), "ranks", left, NULL));
    return v;
}

/* A machine whose ranks fail before they took part in a step, so that the others go on without it. */
static void turn_away(struct leader *l, const struct verdict *v)
{
    struct machine *m = machine_at(l, v->newcomer);
    char *text = string_format("machine %s may not join: %s", m->peer->name, v->how);
    peer_send(m->peer, message_of("over", json_of_integer(STATUS_FAILED), "why", json_of_string(v->how), NULL));
    remove_machine(l, v->newcomer);
    add_change(l, text);
    memory_free(text);
}

/* The ranks begin again: at once if a step was done, else after a while that doubles. A machine that is gone
 * does not end the next world, so it is no failure. */
static void count_failure(struct leader *l, const struct verdict *v)
{
    bool at_once = l->ranks.reports < 2 && l->lived_s<AT_ONCE_S, machines_only = v->lost> 0 && !v->how;
    if (!machines_only)
        l->failures = at_once ? l->failures + 1 : 0;
    l->wait_s = l->failures ? ldexp(l->ranks.silence_s / BACK_OFF_PARTS, (int)l->failures - 1) : 0;
    if (l->failures < FAILURES_MOST)
        return;
    error_set("the ranks ended at once %d times in a row, the last time for this: %s; nothing is started again",
              FAILURES_MOST, v->text.data);
    finish(l, -1);
}

static void judge_death(struct leader *l, const struct verdict *v)
{
    char step[64] = "before a step";
    if (l->ranks.reports > 0)
        snprintf(step, sizeof step, "at step %lld", (long long)l->ranks.step);
    char *text = string_format("%lld of %lld %s left %s (%s)", (long long)v->lost, (long long)l->size,
                               plural(l->size, "rank", "ranks"), step, v->text.data);
    add_change(l, text);
    memory_free(text);
    for (i64 i = 0; i < l->machine_count; i++)
        machine_at(l, i)->places -= machine_at(l, i)->lost;
    count_failure(l, v);
}

/* True if the ranks of a replay have saved at the end of their world. The next one is then due. */
static bool end_of_replayed(struct leader *l, const struct verdict *v)
{
    const struct replay_world *w = l->replay ? &l->replay->list[l->at] : NULL;
    bool ends = w && w->end > 0 && l->ranks.replays && l->ranks.step >= w->end && v->saved > 0;
    l->at += ends;
    return ends;
}

static void finish_done(struct leader *l)
{
    if (!l->replay || l->ranks.replayed) {
        finish(l, 0);
        return;
    }
    error_set("nothing was repeated: stage %s of %s did not train: it is no stage of this call, or is done in the "
              "folder of the run; give another (run=FOLDER)",
              l->replay->stage, l->replay->path);
    finish(l, -1);
}

/* All ranks are gone: whether others begin, and which. */
static void judge(struct leader *l)
{
    struct verdict v = collect(l);
    bool failed = v.worst == RANK_FAILED, asked = l->asked || end_of_replayed(l, &v);
    l->phase = IDLE;
    l->wait_s = 0;
    say_change(l);
    if (v.first_done) {
        finish_done(l);
    } else if (l->stops || (v.lost == 0 && v.saved > 0 && !asked)) {
        if (v.lost > 0 && v.saved == 0)
            error_set("%s, while all were to save and end; the last checkpoint stands", v.text.data);
        finish(l, v.lost > 0 && v.saved == 0 ? -1 : STATUS_INTERRUPTED);
    } else if (failed && v.newcomer) {
        turn_away(l, &v);
    } else if (failed && v.usage && l->begun && l->size > l->settings->least && !l->replay) {
        char *text = string_format("%lld ranks do not fit the recipe (%s)", (long long)l->size, v.how);
        l->size_most = l->size - 1;
        add_change(l, text);
        memory_free(text);
    } else if (v.lost > 0 && !failed && l->settings->once) {
        error_set("%s; a command that needs all ranks ends with it: give the same call again", v.text.data);
        finish(l, -1);
    } else if (failed && (!l->begun || v.usage)) {
        (void)(v.usage ? error_usage("%s", v.how)
                       : error_set("%s; nothing is started again before a first step", v.how));
        finish(l, -1);
    } else if (v.lost > 0) {
        judge_death(l, &v);
    } else if (!asked || v.saved == 0) { /* they ended because of others, of which nothing is known */
        v.how = string_copy("it did not respond to the others");
        buffer_printf(&v.text, "%s", v.how);
        v.lost = 1;
        judge_death(l, &v);
    }
    buffer_release(&v.text);
    memory_free(v.how);
}

/* Those that run save and end, and the next world begins. */
static void ask(struct leader *l)
{
    if (l->phase != RUNS || l->asked)
        return;
    l->asked = true;
    ranks_ask(&l->ranks);
}

static void begin_again(struct leader *l)
{
    if (l->phase == RUNS && !l->asked && !l->stops)
        add_change(l, plural(l->size, "the rank is asked to begin again", "the ranks are asked to begin again"));
    ask(l);
}

/* ---- Machines ---- */

/* Takes a machine in. If its ranks fit, those that run are asked to save and to end. */
static void admit(struct leader *l, struct launcher_peer *peer, i64 ranks)
{
    l->machines = memory_resize(l->machines, l->machine_count * (i64)sizeof *l->machines,
                                (l->machine_count + 1) * (i64)sizeof *l->machines);
    l->machines[l->machine_count++] = (struct machine){.peer = peer, .ranks = ranks, .places = ranks};
    l->size_most = INT64_MAX;
    i64 fits = fitting(l);
    bool larger = l->phase != RUNS || fits > l->size;
    char *text =
        string_format("machine %s joins with %lld %s", peer->name, (long long)ranks, plural(ranks, "rank", "ranks"));
    if (larger) {
        add_change(l, text);
    } else {
        char *line = string_format("%s, which wait: %lld of all ranks fit the layout", text, (long long)fits);
        say(l, line);
        memory_free(line);
    }
    if (larger)
        ask(l);
    memory_free(text);
}

/* Guests are connections that have not shown that they are launchers. */
static void step_guests(struct leader *l, double passed_s)
{
    struct launcher_peer *guest = l->listener >= 0 ? meeting_accept(l->listener) : NULL;
    if (guest && l->guest_count == GUESTS_MOST) { /* the oldest has said nothing for the longest time */
        peer_close(l->guests[0]);
        memmove(l->guests, l->guests + 1, (size_t)--l->guest_count * sizeof *l->guests);
    }
    if (guest)
        l->guests[l->guest_count++] = guest;
    for (i64 i = 0; i < l->guest_count;) {
        guest = l->guests[i];
        struct json *answer = peer_next(guest);
        guest->silent_s += passed_s;
        bool drop = guest->gone || guest->silent_s > GUEST_S;
        i64 ranks = answer ? meeting_judge(guest, answer, l->settings) : 0;
        if (answer && ranks == 0)
            log_info("launch: machine %s may not join: %s", guest->name, error_text());
        if (answer && ranks > 0)
            admit(l, guest, ranks);
        else if (answer || drop)
            peer_close(guest);
        if (answer || drop)
            memmove(l->guests + i, l->guests + i + 1, (size_t)(--l->guest_count - i) * sizeof *l->guests);
        else
            i++;
        json_free(answer);
    }
}

static void hear(struct leader *l, struct machine *m, struct json *message)
{
    bool now = json_integer(json_get(message, "generation"), 0) == l->generation;
    struct json *gone = json_get(message, "gone");
    if (json_get(message, "stop"))
        l->stops = true;
    if (json_get(message, "again"))
        begin_again(l);
    if (gone && !message_is_outcome(gone)) {
        peer_lose(m->peer, "it sends what no launcher does");
        return;
    }
    if (now && gone && !m->outcome)
        m->outcome = json_copy(gone);
    if (now && l->phase == RUNS && (gone || json_get(message, "ends"))) {
        bool bad = gone ? json_count(json_get(gone, "bad")) > 0 : json_bool(json_get(message, "ends"), false);
        end_world(l, bad ? GRACE_S : l->ranks.silence_s);
    }
}

static void step_machines(struct leader *l, double passed_s)
{
    for (i64 i = 1; i < l->machine_count; i++) {
        struct machine *m = machine_at(l, i);
        for (struct json *message; (message = peer_next(m->peer)); json_free(message))
            hear(l, m, message);
        peer_step(m->peer, passed_s, l->ranks.silence_s);
        if (!m->peer->gone)
            continue;
        if (l->phase == RUNS && m->count > 0)
            end_world(l, GRACE_S);
        if (l->phase != IDLE && m->count > 0) /* it is judged with the others */
            continue;
        char *text = string_format("machine %s has left (%s)", m->peer->name, m->peer->gone);
        add_change(l, text);
        memory_free(text);
        remove_machine(l, i--);
    }
}

/* ---- The loop ---- */

static bool all_are_gone(struct leader *l)
{
    bool gone = ranks_are_gone(&l->ranks);
    for (i64 i = 1; i < l->machine_count; i++) {
        const struct machine *m = machine_at(l, i);
        gone &= m->count == 0 || m->outcome || m->peer->gone;
    }
    return gone;
}

static void note_step(struct leader *l)
{
    if (l->ranks.reports == 0 || l->phase == IDLE)
        return;
    for (i64 i = 0; i < l->machine_count; i++)
        machine_at(l, i)->begun |= machine_at(l, i)->count > 0;
    l->begun = true;
    say_change(l);
}

static void step(struct leader *l, double passed_s)
{
    enum rank_end worst;
    ranks_step(&l->ranks, passed_s);
    step_machines(l, passed_s);
    step_guests(l, passed_s);
    note_step(l);
    l->lived_s += passed_s;
    l->wait_s -= passed_s;
    l->stops |= interrupted();
    if (launcher_took_again())
        begin_again(l);
    if (l->stops && l->phase == RUNS && !l->told) {
        l->told = true;
        ranks_signal(&l->ranks, SIGUSR1);
    }
    worst = ranks_worst(&l->ranks);
    if (l->phase == RUNS && worst != RANK_RUNS)
        end_world(l, worst > RANK_SAVED ? GRACE_S : l->ranks.silence_s);
    if (l->phase == ENDS && all_are_gone(l)) {
        machine_at(l, 0)->outcome = ranks_outcome(&l->ranks);
        judge(l);
    }
    if (l->phase == IDLE && l->stops && !l->over)
        finish(l, STATUS_INTERRUPTED);
    if (l->phase == IDLE && !l->over)
        begin_if_possible(l);
}

static void wait_for_news(struct leader *l)
{
    struct pollfd list[LISTED_MOST];
    i64 count = 0;
    if (l->listener >= 0)
        list[count++] = (struct pollfd){.fd = l->listener, .events = POLLIN};
    for (i64 i = 0; i < l->guest_count; i++)
        list[count++] = (struct pollfd){.fd = l->guests[i]->socket, .events = POLLIN};
    for (i64 i = 1; i < l->machine_count && count < LISTED_MOST / 2; i++)
        list[count++] = (struct pollfd){.fd = machine_at(l, i)->peer->socket, .events = POLLIN};
    poll(list, (nfds_t)ranks_list(&l->ranks, list, count), LOOK_MS);
}

int lead(const struct launcher_settings *settings, int listener)
{
    struct leader l = {.settings = settings,
                       .ranks = {.settings = settings, .silence_s = (double)launch_silence_s(NULL), .grace_s = -1},
                       .listener = listener,
                       .snapshots = memfd_create("weft-snapshots", MFD_CLOEXEC),
                       .size_most = INT64_MAX,
                       .guests = memory_alloc(GUESTS_MOST * (i64)sizeof *l.guests),
                       .machines = memory_alloc(sizeof *l.machines),
                       .machine_count = 1};
    char port[8];
    u8 id[4];
    secret_draw(id, sizeof id);
    snprintf(l.name, sizeof l.name, "%02x%02x%02x%02x.", id[0], id[1], id[2], id[3]);
    l.left = json_object();
    l.machines[0] = (struct machine){.ranks = settings->ranks, .places = settings->ranks};
    if (settings->replay && !(l.replay = replay_open(settings->replay)))
        finish(&l, -1);
    if (!settings->meet)
        l.host = string_copy("127.0.0.1");
    else if (socket_address_split(&l.host, port, settings->meet))
        finish(&l, -1);
    for (double before_s = clock_s(); !l.over;) {
        double now_s = clock_s(), passed_s = now_s - before_s < 1 ? now_s - before_s : 1;
        before_s = now_s;
        step(&l, passed_s);
        if (!l.over)
            wait_for_news(&l);
    }
    ranks_release(&l.ranks);
    while (l.guest_count)
        peer_close(l.guests[--l.guest_count]);
    for (i64 i = 0; i < l.machine_count; i++) {
        peer_close(machine_at(&l, i)->peer);
        json_free(machine_at(&l, i)->outcome);
    }
    if (listener >= 0)
        close(listener);
    if (l.snapshots >= 0)
        close(l.snapshots);
    memory_free(l.guests);
    memory_free(l.machines);
    memory_free(l.host);
    json_free(l.left);
    replay_close(l.replay);
    buffer_release(&l.present);
    buffer_release(&l.next);
    return l.status;
}
