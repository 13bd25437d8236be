#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dist/sockets.h"
#include "sites/journal.h"
#include "sites/sites_inside.h"

int sites_check(const struct sites_settings *s)
{
    u8 key[LINK_KEY_BYTES];
    char *host, port[8];
    if (!sites_are_on(s))
        return 0;
    if (socket_address_split(&host, port, s->meet))
        return error_prefix("sites.meet");
    memory_free(host);
    if (!s->name || !site_name_is_good(s->name))
        return error_usage("sites.name is \"%s\": expected 1 to %d letters, digits, or one of -_.",
                           s->name ? s->name : "", SITE_NAME_BYTES - 1);
    if (s->steps && s->delay >= s->steps)
        return error_usage("sites.delay is %lld: expected less than sites.steps, which is %lld", (long long)s->delay,
                           (long long)s->steps);
    if (!s->key || !*s->key)
        return error_usage(
            "sites.key is missing: expected a file with a key that all sites share (openssl rand -hex 32)");
    return link_key_load(key, s->key);
}

u64 sites_seed(const struct sites_settings *s, u64 seed)
{
    return sites_are_on(s) ? hash_bytes(s->name, (i64)strlen(s->name), seed) : seed;
}

struct sites *sites_open(const struct sites_stage *stage)
{
    struct sites *s = memory_alloc(sizeof *s);
    s->stage = *stage;
    s->strict = stage->settings->grace_s == 0;
    fragments_open(&s->fragments, stage->weights, stage->ranks, stage->layers, stage->experts);
    s->use = memory_alloc(max_i64(1, site_use_count(s)) * 8);
    s->use_sent = memory_alloc(max_i64(1, site_use_count(s)) * 8);
    for (i64 f = 0; f < s->fragments.count; f++)
        s->of[f].begun = -1;
    return s;
}

struct weights *sites_weights(struct sites *s)
{
    return &s->fragments.shadow;
}

void sites_close(struct sites *s)
{
    if (!s)
        return;
    if (s->traffic)
        traffic_close(s->traffic, s->end);
    for (i64 f = 0; f < FRAGMENTS_MOST; f++)
        buffer_release(&s->ready[f].record);
    buffer_release(&s->event.data);
    memory_free(s->use);
    memory_free(s->use_sent);
    json_free(s->hello);
    fragments_close(&s->fragments);
    memory_free(s);
}

void sites_count(struct sites *s, double tokens, double seconds)
{
    s->tokens += tokens;
    s->step_s[s->measured++ % MEASURED_STEPS] = seconds;
}

/* Follows orders of the first rank until it says go. */
static int follow(struct sites *s, i64 done, struct order (*next)(struct sites *s, i64 done))
{
    struct comm *host = comm_host(s->stage.ranks->world);
    struct order order = {0};
    int status = 0;
    do {
        if (site_is_first_rank(s))
            order = status ? (struct order){.kind = ORDER_FAIL} : next(s, done);
        comm_broadcast(host, &order, sizeof order, 0);
        i64 f = order.fragment;
        double begun_s = clock_s();
        if (order.kind == ORDER_BEGIN && exchange_begin(s, f, done))
            return -1;
        if (order.kind == ORDER_APPLY)
            status = exchange_apply(s, &order, done);
        if (order.kind == ORDER_TAKE)
            exchange_take(s, &order);
        if (order.kind == ORDER_READ)
            exchange_read(s, f);
        if (order.kind == ORDER_TRY && exchange_try(s))
            return -1;
        if (order.kind == ORDER_FAIL && status == 0)
            status = site_is_first_rank(s) ? -1 : error_set("the first rank has failed");
        s->merge_s += clock_s() - begun_s;
    } while (order.kind > ORDER_FAIL);
    if (s->changed)
        fragments_spread(&s->fragments);
    s->changed = false;
    return order.kind == ORDER_STOP ? 1 : status;
}

int sites_turn(struct sites *s, i64 done)
{
    return follow(s, done, schedule_next);
}

int sites_end(struct sites *s)
{
    enum { MARGIN_S = 10 };
    if (s->end)
        return 0;
    if (s->late_s == 0 && site_is_first_rank(s))
        log_info("%s: the last merge", s->stage.name);
    if (s->late_s == 0)
        s->late_s = clock_s() + (s->strict ? (double)launch_wait_s() : 2 * s->stage.settings->grace_s + MARGIN_S);
    s->told_s = 0;
    int status = follow(s, s->stage.steps, schedule_last);
    if (status)
        return status;
    s->end = site_is_first_rank(s) && traffic_all_done(s->traffic) ? END_ALL : END_ALONE;
    if (site_is_first_rank(s))
        log_info("%s: %.1f MB were sent to other sites; merges took %.1f s, and %.1f s were spent waiting for sites",
                 s->stage.name, 1e-6 * (double)traffic_bytes(s->traffic), s->merge_s, s->wait_s);
    return 0;
}

int sites_clear(struct sites *s)
{
    int status = 0;
    if (site_is_first_rank(s) && s->end == END_ALL) {
        char *below = path_join(s->stage.out, "sites");
        status = directory_remove(below);
        memory_free(below);
    }
    return status;
}

static u64 hash_of_table(const struct weights *w)
{
    struct buffer text = {0};
    for (i64 i = 0; i < w->count; i++) {
        const struct weight_spec *a = &w->list[i].spec;
        buffer_printf(&text, "%s %lld %lld %lld %lld\n", a->name, (long long)a->matrices, (long long)a->rows,
                      (long long)a->columns, (long long)a->layer);
    }
    u64 hash = hash_bytes(text.data, text.length, 0);
    buffer_release(&text);
    return hash;
}

static void set_hash(struct json *j, const char *name, u64 hash)
{
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    json_set(j, name, json_of_string(text));
}

static int open_traffic(struct sites *s, i64 done)
{
    i64 versions[FRAGMENTS_MOST];
    const struct sites_settings *given = s->stage.settings;
    struct traffic_start start = {.settings = given,
                                  .folder = s->stage.out,
                                  .fragments = &s->fragments,
                                  .versions = versions,
                                  .ended = s->end == END_ALL,
                                  .probes = s->plan.steps == 0};
    for (i64 f = 0; f < s->fragments.count; f++)
        versions[f] = s->of[f].version;
    if (link_key_load(start.key, given->key) || journal_open(s->stage.out, done, versions, s->fragments.count))
        return -1;
    if (s->strict && journal_make_rounds(s->stage.out))
        return error_prefix("%s: merges must be kept if all sites are required (sites.grace_s)", s->stage.name);
    s->hello = json_object();
    json_set(s->hello, "sites", json_of_integer(2));
    json_set(s->hello, "recipe", json_copy(s->stage.recipe));
    set_hash(s->hello, "model", hash_of_table(s->stage.weights));
    set_hash(s->hello, "weights", s->start_hash);
    start.hello = s->hello;
    s->traffic = traffic_open(&start);
    if (s->plan.steps)
        traffic_set_plan(s->traffic, &s->plan);
    return 0;
}

/* 0, 1: interrupted, -1 and a message. */
static int wait_for_sites(struct sites *s, i64 done)
{
    const struct sites_settings *given = s->stage.settings;
    const char *why;
    double end_s = given->grace_s > 0 ? clock_s() + given->grace_s : INFINITY;
    bool goes_on = true, whole = s->strict && journal_is_whole(s->stage.out); /* then nobody need come */
    i64 here;
    while (goes_on && !whole && (here = traffic_here(s->traffic, &why)) >= 0 && here < given->least &&
           clock_s() < end_s) {
        schedule_look(s, done);
        goes_on = schedule_wait(s, "other sites");
    }
    schedule_look(s, done);
    return traffic_here(s->traffic, &why) < 0 ? error_set("%s: %s", s->stage.name, why) : goes_on ? 0 : 1;
}

/* The stage had ended when its last checkpoint was made: another site may wait for word of that. */
static int tell_of_end(struct sites *s, i64 done)
{
    enum { COMES_S = 3 };
    const char *why;
    double end_s = clock_s() + COMES_S;
    if (s->end != END_ALL)
        return 0;
    if (open_traffic(s, done))
        return -1;
    while (clock_s() < end_s && traffic_here(s->traffic, &why) <= 1)
        traffic_wait(s->traffic);
    return 0;
}

int sites_begin(struct sites *s, i64 done, const struct json *state)
{
    struct comm *host = comm_host(s->stage.ranks->world);
    i64 status = 0, repeats[FRAGMENTS_MOST];
    if (state) {
        state_restore(s, state);
        s->end = done == s->stage.steps ? s->end : END_NOT;
    } else {
        fragments_set_anchors(&s->fragments);
        s->start_hash = fragments_hash(&s->fragments);
        if (site_use_count(s))
            s->stage.use_get(s->use, s->stage.context);
    }
    struct plan plan = site_given_plan(s);
    if (plan_is_given(&plan))
        s->plan = plan;
    if (site_is_first_rank(s))
        status = s->end ? tell_of_end(s, done) : open_traffic(s, done) ? -1 : wait_for_sites(s, done);
    comm_broadcast(host, &status, sizeof status, 0);
    if (status || s->end)
        return status < 0 && !site_is_first_rank(s) ? error_set("the first rank has failed") : (int)status;
    for (i64 f = 0; f < s->fragments.count; f++)
        repeats[f] = s->of[f].round;
    comm_broadcast(host, repeats, sizeof repeats, 0);
    for (i64 f = 0; f < s->fragments.count; f++)
        if (repeats[f])
            exchange_send(s, f);
    return 0;
}
