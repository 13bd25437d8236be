/* The time of a step, from the traces of all ranks and the speeds of a cluster. */
#include "dist/cluster.h"

#include <math.h>
#include <string.h>

enum { IN_FLIGHT = 2 }; /* buckets of gradients, as in buckets.c */

struct post { /* what a rank sent in one call: when it comes to each rank of the comm */
    double *arrivals;
    double gone_s; /* the last message has left */
};
struct posts {
    struct post *list;
    i64 count; /* in order; not yet posted ones have no arrivals */
};
struct message {
    i64 comm, to, tag;
    double arrival_s;
    bool taken;
};
struct bucket {
    const struct trace_event *event;
    double ready_s, begun_s, sum_s;
};
struct actor { /* a rank */
    const struct trace *trace;
    const struct cluster_rank *rank;
    double now_s, computing_s;
    double debt_s; /* what buckets under way take from the ops to come */
    i64 at;        /* its next event */
    bool blocked;
    struct posts *posts; /* [comms, TRACE_CHANNELS] */
    struct message *messages;
    i64 message_count, message_capacity;
    struct bucket *buckets;
    i64 bucket_count, bucket_capacity, begun, ended;
    bool far;                  /* the oldest bucket's sum is between machines */
    double ended_s[IN_FLIGHT]; /* when bucket i % IN_FLIGHT ended */
    double port_s, sent_bytes; /* the rank's way to its host's ranks is free */
};
struct play {
    const struct foresee_work *work;
    struct actor *actors;
    i64 count;
    double *link_s, *far_bytes; /* [hosts] the way to other hosts is free */
};

/* ---- Messages ---- */

static double load_of(const struct play *p, const struct trace_comm *comm)
{
    return strcmp(comm->name, "expert") == 0 ? p->work->load : 1;
}

/* Sends bytes at a time; returns when they have come. */
static double send_bytes(struct play *p, i64 from, i64 to, double bytes, double now_s)
{
    const struct cluster *c = p->work->cluster;
    struct actor *a = &p->actors[from];
    i64 host = c->ranks[from].host;
    bool far = host != c->ranks[to].host;
    const struct cluster_link *link = far ? &c->far : &c->near;
    double *free_s = far ? &p->link_s[host] : &a->port_s;
    *free_s = fmax(*free_s, now_s) + bytes / link->bytes_per_s;
    a->sent_bytes += bytes;
    p->far_bytes[host] += far ? bytes : 0;
    return *free_s + link->latency_s;
}

static struct post *post_at(struct actor *a, i64 comm, enum trace_channel channel, i64 number)
{
    struct posts *posts = &a->posts[comm * TRACE_CHANNELS + channel];
    return number < posts->count && posts->list[number].arrivals ? &posts->list[number] : NULL;
}

/* bytes [size]: to each rank of the comm. */
static void post(struct play *p, i64 rank, i64 comm, enum trace_channel channel, i64 number, const i64 *bytes,
                 double now_s)
{
    struct actor *a = &p->actors[rank];
    const struct trace_comm *c = &a->trace->comms[comm];
    struct posts *posts = &a->posts[comm * TRACE_CHANNELS + channel];
    i64 size = (i64)sizeof *posts->list;
    if (number >= posts->count) {
        i64 next = max_i64(number + 1, 2 * posts->count);
        posts->list = memory_resize(posts->list, posts->count * size, next * size);
        memset(posts->list + posts->count, 0, (size_t)((next - posts->count) * size));
        posts->count = next;
    }
    struct post *x = &posts->list[number];
    x->arrivals = memory_alloc(c->size * (i64)sizeof *x->arrivals);
    x->gone_s = now_s;
    for (i64 i = 1; i < c->size; i++) {
        i64 to = (c->rank + i) % c->size;
        if (!bytes[to])
            continue;
        x->arrivals[to] = send_bytes(p, rank, c->world[to], (double)bytes[to] * load_of(p, c), now_s);
        bool far = p->work->cluster->ranks[rank].host != p->work->cluster->ranks[c->world[to]].host;
        x->gone_s = far ? x->gone_s : a->port_s;
    }
}

/* When all that was posted to a rank has come. -1: somebody has not posted yet. */
static double arrival(const struct play *p, i64 rank, i64 comm, enum trace_channel channel, i64 number)
{
    const struct trace_comm *c = &p->actors[rank].trace->comms[comm];
    double last_s = 0;
    for (i64 r = 0; r < c->size; r++) {
        struct post *x = post_at(&p->actors[c->world[r]], comm, channel, number);
        if (!x)
            return -1;
        last_s = fmax(last_s, r == c->rank ? x->gone_s : x->arrivals[c->rank]);
    }
    return last_s;
}

/* ---- Buckets ---- */

/* The part of a bucket's transfers that its rank cannot compute in. */
static double busy_s(const struct play *p, const struct actor *a, const struct trace_event *e)
{
    const struct cluster *c = p->work->cluster;
    const struct trace_comm *comm = &a->trace->comms[e->comm];
    const i64 *bytes = a->trace->bytes + e->bytes;
    double sum_s = 0;
    for (i64 r = 0; r < comm->size; r++) {
        bool far = c->ranks[comm->world[r]].host != a->rank->host;
        const struct cluster_link *link = far ? &c->far : &c->near;
        sum_s += (double)(bytes[r] + bytes[comm->size + r]) > 0
                     ? link->busy * (double)(bytes[r] + bytes[comm->size + r]) / link->bytes_per_s
                     : 0;
    }
    return sum_s;
}

static bool goes_far(const struct actor *a, const struct bucket *b)
{
    const struct trace_comm *comm = &a->trace->comms[b->event->comm];
    const i64 *far = a->trace->bytes + b->event->bytes + comm->size;
    for (i64 r = 0; r < comm->size; r++)
        if (far[r])
            return true;
    return false;
}

/* Begins the next bucket, or ends the oldest one under way. False: neither is possible yet. */
static bool move_bucket(struct play *p, i64 rank)
{
    struct actor *a = &p->actors[rank];
    if (a->begun < a->bucket_count && a->begun - a->ended < IN_FLIGHT) {
        struct bucket *b = &a->buckets[a->begun];
        b->begun_s = fmax(b->ready_s, a->begun >= IN_FLIGHT ? a->ended_s[a->begun % IN_FLIGHT] : 0);
        b->sum_s = b->event->summed_bytes / a->rank->per_s[WORK_OTHER];
        a->debt_s += b->sum_s + busy_s(p, a, b->event);
        post(p, rank, b->event->comm, CHANNEL_BUCKETS, 2 * b->event->number, a->trace->bytes + b->event->bytes,
             b->begun_s);
        a->begun++;
        return true;
    }
    if (a->ended == a->begun)
        return false;
    struct bucket *b = &a->buckets[a->ended];
    const struct trace_comm *comm = &a->trace->comms[b->event->comm];
    double come_s = arrival(p, rank, b->event->comm, CHANNEL_BUCKETS, 2 * b->event->number + a->far);
    if (come_s < 0)
        return false;
    if (!a->far && goes_far(a, b)) {
        post(p, rank, b->event->comm, CHANNEL_BUCKETS, 2 * b->event->number + 1,
             a->trace->bytes + b->event->bytes + comm->size, fmax(come_s, b->begun_s));
        a->far = true;
        return true;
    }
    a->ended_s[a->ended++ % IN_FLIGHT] = fmax(come_s, b->begun_s) + b->sum_s;
    a->far = false;
    return true;
}

static void move_buckets(struct play *p)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (i64 r = 0; r < p->count; r++)
            while (move_bucket(p, r))
                moved = true;
    }
}

/* ---- Events ---- */

static double seconds_of(const struct play *p, const struct actor *a, const struct trace_event *e)
{
    double sum_s = (double)e->calls * a->rank->call_s;
    for (int k = 0; k < WORK_KINDS; k++)
        sum_s += e->work[k] * (k == WORK_EXPERTS ? p->work->load : 1) / a->rank->per_s[k];
    return sum_s;
}

/* The update is not repeated for sub-models. Buckets take half of the time at most, until they have what they need. */
static void compute(struct play *p, struct actor *a, const struct trace_event *e)
{
    double update_s = e->work[WORK_UPDATE] / a->rank->per_s[WORK_UPDATE];
    double own_s = (seconds_of(p, a, e) - update_s) * p->work->passes + update_s, debt_s = fmin(a->debt_s, own_s);
    a->debt_s -= debt_s;
    own_s += debt_s;
    a->now_s += own_s;
    a->computing_s += own_s;
    if (p->work->rank_s)
        p->work->rank_s[a - p->actors] += own_s - update_s;
}

static void add_bucket(struct actor *a, const struct trace_event *e)
{
    i64 size = (i64)sizeof *a->buckets;
    if (a->bucket_count == a->bucket_capacity) {
        i64 next = grown_capacity(a->bucket_capacity, a->bucket_count + 1, size);
        a->buckets = memory_resize(a->buckets, a->bucket_capacity * size, next * size);
        a->bucket_capacity = next;
    }
    a->buckets[a->bucket_count++] = (struct bucket){.event = e, .ready_s = a->now_s};
}

static void add_message(struct play *p, i64 rank, const struct trace_event *e)
{
    struct actor *a = &p->actors[rank];
    i64 to = a->trace->comms[e->comm].world[e->peer], size = (i64)sizeof *a->messages;
    if (a->message_count == a->message_capacity) {
        i64 next = grown_capacity(a->message_capacity, a->message_count + 1, size);
        a->messages = memory_resize(a->messages, a->message_capacity * size, next * size);
        a->message_capacity = next;
    }
    a->messages[a->message_count++] =
        (struct message){e->comm, to, e->number, send_bytes(p, rank, to, (double)e->bytes, a->now_s), false};
}

/* False: it has not been sent yet. */
static bool take_message(struct play *p, i64 rank, const struct trace_event *e)
{
    struct actor *a = &p->actors[rank], *from = &p->actors[a->trace->comms[e->comm].world[e->peer]];
    for (i64 i = 0; i < from->message_count; i++) {
        struct message *m = &from->messages[i];
        if (m->taken || m->comm != e->comm || m->to != rank || m->tag != e->number)
            continue;
        m->taken = true;
        a->now_s = fmax(a->now_s, m->arrival_s);
        return true;
    }
    return false;
}

/* Does what the next event of a rank says. False: it waits for another rank. Its work is done before, once. */
static bool play_event(struct play *p, i64 rank, bool first)
{
    struct actor *a = &p->actors[rank];
    const struct trace_event *e = &a->trace->events[a->at];
    double come_s;
    if (first)
        compute(p, a, e);
    switch (e->kind) {
    case TRACE_POST:
        post(p, rank, e->comm, e->channel, e->number, a->trace->bytes + e->bytes, a->now_s);
        return true;
    case TRACE_WAIT:
        come_s = arrival(p, rank, e->comm, e->channel, e->number);
        a->now_s = fmax(a->now_s, come_s);
        return come_s >= 0;
    case TRACE_BUCKET:
        add_bucket(a, e);
        move_buckets(p);
        return true;
    case TRACE_BUCKETS_END:
        move_buckets(p);
        if (a->ended < a->bucket_count)
            return false;
        a->now_s = fmax(a->now_s, a->ended ? a->ended_s[(a->ended - 1) % IN_FLIGHT] : 0);
        a->debt_s = 0;
        return true;
    case TRACE_SEND:
        add_message(p, rank, e);
        return true;
    case TRACE_RECEIVE:
        return take_message(p, rank, e);
    case TRACE_END:
        return true;
    }
    return true;
}

/* The rank that is earliest, of those that neither wait nor are done; -1: none. */
static i64 next_rank(const struct play *p)
{
    i64 next = -1;
    for (i64 r = 0; r < p->count; r++) {
        const struct actor *a = &p->actors[r];
        if (!a->blocked && a->at < a->trace->count && (next < 0 || a->now_s < p->actors[next].now_s))
            next = r;
    }
    return next;
}

static int play_all(struct play *p)
{
    bool *begun = memory_alloc(p->count * (i64)sizeof *begun);
    i64 rank, left = 0;
    while ((rank = next_rank(p)) >= 0) {
        struct actor *a = &p->actors[rank];
        bool done = play_event(p, rank, !begun[rank]);
        begun[rank] = !done;
        a->blocked = !done;
        a->at += done;
        for (i64 r = 0; r < p->count && done; r++)
            p->actors[r].blocked = false;
    }
    for (i64 r = 0; r < p->count; r++)
        left += p->actors[r].at < p->actors[r].trace->count;
    memory_free(begun);
    return left ? error_set("the steps of %lld %s wait for each other: they do not fit together", (long long)left,
                            plural(left, "rank", "ranks"))
                : 0;
}

static void collect(struct foreseen *out, const struct play *p)
{
    double least_s = INFINITY, calls_s = 0;
    *out = (struct foreseen){0};
    for (i64 r = 0; r < p->count; r++)
        out->seconds = fmax(out->seconds, p->actors[r].now_s);
    for (i64 r = 0; r < p->count; r++) {
        const struct actor *a = &p->actors[r];
        out->computing_s += a->computing_s / (double)p->count;
        calls_s += (out->seconds - a->computing_s) / (double)p->count;
        least_s = fmin(least_s, out->seconds - a->computing_s);
        out->sent_bytes = fmax(out->sent_bytes, a->sent_bytes);
    }
    out->links_s = least_s;
    out->waiting_s = calls_s - least_s;
    for (i64 h = 0; h < p->work->cluster->host_count; h++)
        out->far_bytes = fmax(out->far_bytes, p->far_bytes[h]);
}

static void release(struct play *p)
{
    for (i64 r = 0; r < p->count; r++) {
        struct actor *a = &p->actors[r];
        for (i64 i = 0; i < a->trace->comm_count * TRACE_CHANNELS; i++) {
            for (i64 k = 0; k < a->posts[i].count; k++)
                memory_free(a->posts[i].list[k].arrivals);
            memory_free(a->posts[i].list);
        }
        memory_free(a->posts);
        memory_free(a->messages);
        memory_free(a->buckets);
    }
    memory_free(p->actors);
    memory_free(p->link_s);
    memory_free(p->far_bytes);
}

int foresee(struct foreseen *out, const struct foresee_work *work)
{
    const struct cluster *c = work->cluster;
    struct play p = {.work = work,
                     .count = c->count,
                     .actors = memory_alloc(c->count * (i64)sizeof *p.actors),
                     .link_s = memory_alloc(c->host_count * (i64)sizeof *p.link_s),
                     .far_bytes = memory_alloc(c->host_count * (i64)sizeof *p.far_bytes)};
    for (i64 r = 0; r < c->count; r++) {
        struct actor *a = &p.actors[r];
        *a = (struct actor){.trace = &work->traces[r], .rank = &c->ranks[r]};
        a->posts = memory_alloc(a->trace->comm_count * TRACE_CHANNELS * (i64)sizeof *a->posts);
    }
    if (work->rank_s)
        memset(work->rank_s, 0, (size_t)c->count * sizeof *work->rank_s);
    int status = play_all(&p);
    collect(out, &p);
    release(&p);
    return status;
}
