#include "sites/traffic.h"

#include "core/thread.h"
#include "sites/journal.h"
#include "sites/traffic_inside.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { TURN_MS = 100, FLUSH_S = 30, COME_BACK_S = 3 };

static void wake(const struct traffic *t)
{
    u64 one = 1;
    (void)!write(t->wake, &one, sizeof one);
}

void traffic_event(struct traffic *t, enum traffic_event_kind kind, i64 fragment, i64 number, i64 more,
                   const void *data, i64 bytes)
{
    if (t->event_count == t->event_capacity) {
        i64 next = max_i64(16, 2 * t->event_capacity), size = (i64)sizeof *t->events;
        t->events = memory_resize(t->events, t->event_capacity * size, next * size);
        t->event_capacity = next;
    }
    struct traffic_event *e = &t->events[t->event_count++];
    *e = (struct traffic_event){.kind = kind, .fragment = fragment, .number = number, .more = more};
    buffer_append(&e->data, data, bytes);
    pthread_cond_broadcast(&t->changed);
}

void traffic_say(struct traffic *t, const char *format, ...)
{
    struct buffer text = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_vprintf(&text, format, arguments);
    va_end(arguments);
    traffic_event(t, EVENT_SAY, 0, 0, 0, text.data, text.length + 1);
    buffer_release(&text);
}

void traffic_fail(struct traffic *t, const char *format, ...)
{
    struct buffer text = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_vprintf(&text, format, arguments);
    va_end(arguments);
    if (!t->failed)
        t->failed = string_copy(text.data);
    buffer_release(&text);
    pthread_cond_broadcast(&t->changed);
}

/* ---- Rounds ---- */

bool traffic_find_round(struct buffer *out, struct traffic *t, i64 fragment, i64 round)
{
    struct part_sizes sizes = fragment_sizes(t->start.fragments, fragment);
    int found = t->strict ? journal_find_round(out, t->start.folder, fragment, round, &sizes) : 0;
    if (found < 0)
        traffic_say(t, "%s", error_text());
    return found > 0;
}

bool traffic_keep_round(struct traffic *t, i64 fragment, i64 round, const struct buffer *record)
{
    if (!t->strict || journal_keep_round(t->start.folder, fragment, round, record->data, record->length) == 0)
        return true;
    traffic_fail(t, "round %lld of fragment %lld cannot be kept, which a run that is resumed needs: %s",
                 (long long)round, (long long)fragment, error_text());
    return false;
}

/* This site has the anchor of a version that was not made here. */
static void reach(struct traffic *t, i64 fragment, i64 version)
{
    rounds_set(&t->rounds, fragment, version);
    t->rounds.sites[t->own_site].version[fragment] = version;
    for (i64 i = 0; i < t->peer_count; i++)
        if (t->peers[i]->welcomed)
            traffic_settle(t, t->peers[i], fragment);
}

static struct peer_site *peer_of(const struct traffic *t, i64 site)
{
    i64 i = 0;
    while (i < t->peer_count && t->peers[i]->site != site)
        i++;
    return i < t->peer_count ? t->peers[i] : NULL;
}

/* Takes a part, of this site too. Of a round that lies on disk the record is the answer. */
void traffic_take_part(struct traffic *t, i64 site, i64 fragment, i64 round, const void *data, i64 bytes)
{
    struct rounds *r = &t->rounds;
    struct buffer record = {0};
    struct peer_site *p = peer_of(t, site);
    i64 next = r->of[fragment].version + 1;
    if (round <= next && traffic_find_round(&record, t, fragment, round)) {
        if (site == t->own_site)
            traffic_event(t, EVENT_ROUND, fragment, round, 0, record.data, record.length);
        if (p && round == r->sites[site].version[fragment] + 1) {
            peer_say(p, LINK_ROUND, fragment, round, 0, record.data, record.length);
            r->sites[site].version[fragment] = round;
        }
        if (round == next) /* closed before this site was started again */
            reach(t, fragment, round);
    } else if (p && t->strict && round < next) {
        peer_say(p, LINK_LOST, fragment, round, 0, NULL, 0);
    } else if (rounds_add(r, site, fragment, round, data, bytes, clock_s()) == ROUNDS_STRANGE) {
        traffic_say(t, "a part of round %lld of fragment %lld, expected %lld: it is left out", (long long)round,
                    (long long)fragment, (long long)next);
    }
    buffer_release(&record);
}

static void close_round(struct traffic *t, i64 fragment)
{
    struct rounds *r = &t->rounds;
    struct rounds_of_fragment *o = &r->of[fragment];
    i64 round = o->version + 1;
    struct buffer whole = {0};
    record_write(&whole, o->parts, o->part_count, NULL);
    for (i64 i = 0; i < t->peer_count; i++) {
        struct peer_site *p = t->peers[i];
        if (!p->welcomed || r->sites[p->site].version[fragment] != o->version)
            continue;
        struct buffer record = {0};
        record_write(&record, o->parts, o->part_count, p->sent[fragment] == round ? p->name : NULL);
        peer_say(p, LINK_ROUND, fragment, round, 0, record.data, record.length);
        buffer_release(&record);
    }
    rounds_close(r, fragment);
    rounds_done(r, fragment);
    if (traffic_keep_round(t, fragment, round, &whole))
        traffic_event(t, EVENT_ROUND, fragment, round, 0, whole.data, whole.length);
    buffer_release(&whole);
    for (i64 i = 0; i < t->peer_count; i++)
        if (t->peers[i]->welcomed)
            traffic_settle(t, t->peers[i], fragment);
}

void traffic_close_rounds(struct traffic *t)
{
    for (i64 f = 0; f < t->rounds.fragments; f++)
        if (rounds_closes(&t->rounds, f, clock_s()))
            close_round(t, f);
}

void traffic_settle(struct traffic *t, struct peer_site *p, i64 fragment)
{
    i64 theirs = t->rounds.sites[p->site].version[fragment], ours = t->rounds.of[fragment].version;
    if (theirs < ours && !t->strict && !p->wants[fragment]) { /* else it sends its parts again, and gets the rounds */
        p->wants[fragment] = true;
        traffic_event(t, EVENT_ASK, fragment, 0, 0, NULL, 0);
    } else if (theirs > ours) {
        peer_say(p, t->strict ? LINK_NEED : LINK_ASK, fragment, ours + 1, 0, NULL, 0);
    } else if (theirs == ours && t->strict && !rounds_has_part(&t->rounds, fragment, p->name)) {
        peer_say(p, LINK_NEED, fragment, ours + 1, 0, NULL, 0); /* if it has sent it to an earlier life of this site */
    }
}

void traffic_look_for_end(struct traffic *t)
{
    const struct rounds *r = &t->rounds;
    i64 done = 0;
    bool all = t->done;
    for (i64 i = 0; i < r->site_count; i++) {
        const struct rounds_site *s = &r->sites[i];
        bool same = s->done;
        for (i64 f = 0; f < r->fragments; f++)
            same &= s->version[f] == r->of[f].version;
        done += same;
        all &= same || (!s->here && !s->done);
    }
    if (t->all_done || !all || done < r->least)
        return;
    t->all_done = true;
    for (i64 i = 0; i < t->peer_count; i++)
        if (t->peers[i]->welcomed)
            peer_say(t->peers[i], LINK_DONE, 0, 0, 0, NULL, 0);
    pthread_cond_broadcast(&t->changed);
}

void traffic_count(struct traffic *t)
{
    t->here = rounds_here(&t->rounds);
    for (i64 i = 0; i < t->peer_count; i++)
        if (t->peers[i]->welcomed)
            peer_say(t->peers[i], LINK_COUNT, 0, t->here, 0, NULL, 0);
    pthread_cond_broadcast(&t->changed);
}

/* ---- The thread ---- */

static bool has_output(const struct traffic *t)
{
    i64 bytes = 0;
    for (i64 i = 0; i < t->peer_count && bytes == 0; i++)
        link_output(t->peers[i]->link, &bytes);
    return bytes > 0;
}

/* Whether a site may still wait to hear that all are done: it is connected, or its link broke just now. */
static bool has_waiting_site(const struct traffic *t)
{
    bool waits = false;
    for (i64 i = 0; t->listens && t->all_done && i < t->rounds.site_count; i++)
        waits |= i != t->own_site && t->rounds.sites[i].done && !t->rounds.sites[i].ended;
    return waits && (t->peer_count > 0 || clock_s() - t->left_s < COME_BACK_S);
}

static void turn(struct traffic *t)
{
    struct pollfd list[PEERS_MOST + 2] = {{t->wake, POLLIN, 0}, {t->listener, POLLIN, 0}};
    i64 count = t->peer_count, bytes;
    for (i64 i = 0; i < count; i++) {
        link_output(t->peers[i]->link, &bytes);
        list[2 + i] =
            (struct pollfd){t->peers[i]->socket, (short)(POLLIN | (bytes || t->peers[i]->connecting ? POLLOUT : 0)), 0};
    }
    pthread_mutex_unlock(&t->lock);
    poll(list, (nfds_t)(2 + count), TURN_MS);
    pthread_mutex_lock(&t->lock);
    u64 woken;
    if (list[0].revents)
        (void)!read(t->wake, &woken, sizeof woken);
    for (i64 i = 0; i < count; i++)
        if (list[2 + i].revents)
            peers_move(t, t->peers[i], list[2 + i].revents);
    if (list[1].revents)
        peers_accept(t);
}

static void *run(void *context)
{
    struct traffic *t = context;
    double end_s = 0;
    pthread_mutex_lock(&t->lock);
    while (!t->stop || (t->flush && (has_output(t) || has_waiting_site(t)) && clock_s() < end_s)) {
        if (!t->stop)
            end_s = clock_s() + FLUSH_S;
        if (!t->listens && !t->stop)
            peers_connect(t);
        turn(t);
        peers_sweep(t);
        if (t->listens) {
            messages_decide(t);
            traffic_close_rounds(t);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

struct traffic *traffic_open(const struct traffic_start *start)
{
    struct traffic *t = memory_alloc(sizeof *t);
    const struct sites_settings *s = start->settings;
    pthread_condattr_t monotonic;
    t->start = *start;
    t->listener = -1;
    t->strict = s->grace_s == 0;
    t->here = 1;
    t->done = t->all_done = start->ended;
    memcpy(t->version, start->versions, (size_t)start->fragments->count * 8);
    t->rounds = (struct rounds){.fragments = start->fragments->count, .least = s->least, .grace_s = s->grace_s};
    for (i64 f = 0; f < start->fragments->count; f++)
        t->rounds.of[f].version = start->versions[f];
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    require(t->wake >= 0, "no eventfd");
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    thread_start(&t->thread, run, t, "for the links to other sites");
    return t;
}

void traffic_close(struct traffic *t, bool flush)
{
    pthread_mutex_lock(&t->lock);
    for (i64 i = 0; i < t->peer_count; i++)
        if (t->peers[i]->welcomed)
            peer_say(t->peers[i], LINK_BYE, 0, 0, 0, NULL, 0);
    t->stop = true;
    t->flush = flush;
    wake(t);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    while (t->peer_count > 0)
        peers_drop(t, t->peer_count - 1, NULL);
    rounds_release(&t->rounds);
    for (i64 i = 0; i < t->event_count; i++)
        buffer_release(&t->events[i].data);
    for (i64 f = 0; f < FRAGMENTS_MOST; f++)
        buffer_release(&t->own[f].data);
    if (t->listener >= 0)
        close(t->listener);
    close(t->wake);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    memory_free(t->events);
    memory_free(t->failed);
    memory_free(t);
}

/* ---- Calls of the main thread ---- */

struct traffic_event traffic_next(struct traffic *t)
{
    struct traffic_event e = {EVENT_NONE};
    pthread_mutex_lock(&t->lock);
    if (t->event_count > 0) {
        e = t->events[0];
        memmove(t->events, t->events + 1, (size_t)(--t->event_count) * sizeof *t->events);
    }
    pthread_mutex_unlock(&t->lock);
    return e;
}

void traffic_wait(struct traffic *t)
{
    enum { WAIT_NS = 200000000, SECOND_NS = 1000000000 };
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += WAIT_NS;
    end.tv_sec += end.tv_nsec / SECOND_NS;
    end.tv_nsec %= SECOND_NS;
    pthread_mutex_lock(&t->lock);
    if (t->event_count == 0)
        pthread_cond_timedwait(&t->changed, &t->lock, &end);
    pthread_mutex_unlock(&t->lock);
}

i64 traffic_here(struct traffic *t, const char **why)
{
    pthread_mutex_lock(&t->lock);
    *why = t->failed;
    i64 here = t->failed ? -1 : t->met ? t->here : 0;
    pthread_mutex_unlock(&t->lock);
    return here;
}

bool traffic_is_connected(struct traffic *t)
{
    pthread_mutex_lock(&t->lock);
    bool is = t->listens || peers_upstream(t);
    pthread_mutex_unlock(&t->lock);
    return is;
}

bool traffic_listens(struct traffic *t)
{
    pthread_mutex_lock(&t->lock);
    bool is = t->listens;
    pthread_mutex_unlock(&t->lock);
    return is;
}

void traffic_part(struct traffic *t, i64 fragment, i64 round, struct buffer *part)
{
    struct buffer record = {0};
    pthread_mutex_lock(&t->lock);
    struct own_part *own = &t->own[fragment];
    struct peer_site *up = peers_upstream(t);
    buffer_release(&own->data);
    *own = (struct own_part){round, *part};
    *part = (struct buffer){0};
    if (t->listens)
        traffic_take_part(t, t->own_site, fragment, round, own->data.data, own->data.length);
    else if (up && round > t->version[fragment]) /* the other site may lack a round that lies here on disk */
        peer_say(up, LINK_PART, fragment, round, 0, own->data.data, own->data.length);
    if (!t->listens && traffic_find_round(&record, t, fragment, round)) {
        t->version[fragment] = round;
        traffic_event(t, EVENT_ROUND, fragment, round, 0, record.data, record.length);
    }
    buffer_release(&record);
    wake(t);
    pthread_mutex_unlock(&t->lock);
}

void traffic_applied(struct traffic *t, i64 fragment, i64 version)
{
    pthread_mutex_lock(&t->lock);
    buffer_release(&t->own[fragment].data);
    t->own[fragment].round = 0;
    if (t->listens && version > t->rounds.of[fragment].version)
        reach(t, fragment, version);
    wake(t);
    pthread_mutex_unlock(&t->lock);
}

void traffic_anchor(struct traffic *t, i64 fragment, i64 version, const void *data, i64 bytes,
                    i64 (*merged)(void *context, const char *name, i64 fragment), void *context)
{
    pthread_mutex_lock(&t->lock);
    for (i64 i = 0; i < t->peer_count; i++) {
        struct peer_site *p = t->peers[i];
        if (!p->welcomed || !p->wants[fragment])
            continue;
        p->wants[fragment] = false;
        peer_say(p, LINK_ANCHOR, fragment, version, merged(context, p->name, fragment), data, bytes);
        if (t->listens)
            t->rounds.sites[p->site].version[fragment] = version;
        if (t->listens)
            traffic_settle(t, p, fragment); /* the round may have been closed meanwhile */
    }
    wake(t);
    pthread_mutex_unlock(&t->lock);
}

bool traffic_speed(struct traffic *t, double *bytes_per_s, double *delay_s)
{
    pthread_mutex_lock(&t->lock);
    *bytes_per_s = t->speed;
    *delay_s = t->delay_s;
    pthread_mutex_unlock(&t->lock);
    return *bytes_per_s > 0;
}

void traffic_set_plan(struct traffic *t, const struct plan *plan)
{
    pthread_mutex_lock(&t->lock);
    t->plan = *plan;
    for (i64 i = 0; i < t->peer_count; i++)
        if (t->listens && t->peers[i]->welcomed)
            messages_say_plan(t, t->peers[i]);
    wake(t);
    pthread_mutex_unlock(&t->lock);
}

bool traffic_plan(struct traffic *t, struct plan *plan)
{
    pthread_mutex_lock(&t->lock);
    *plan = t->plan;
    pthread_mutex_unlock(&t->lock);
    return plan->steps > 0;
}

bool traffic_done(struct traffic *t)
{
    pthread_mutex_lock(&t->lock);
    struct peer_site *up = peers_upstream(t);
    if (!t->done && up)
        peer_say(up, LINK_DONE, 0, 0, 0, NULL, 0);
    t->done = true;
    if (t->listens) {
        t->rounds.sites[t->own_site].done = true;
        traffic_look_for_end(t);
    }
    wake(t);
    pthread_mutex_unlock(&t->lock);
    return traffic_all_done(t);
}

bool traffic_all_done(struct traffic *t)
{
    pthread_mutex_lock(&t->lock);
    bool all = t->all_done;
    pthread_mutex_unlock(&t->lock);
    return all;
}

i64 traffic_bytes(struct traffic *t)
{
    pthread_mutex_lock(&t->lock);
    i64 bytes = t->sent_bytes;
    pthread_mutex_unlock(&t->lock);
    return bytes;
}
