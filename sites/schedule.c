/* When fragments are sent and rounds applied; how many steps and bits the link allows. On the first rank. */
#include <math.h>
#include <string.h>

#include "sites/journal.h"
#include "sites/plan.h"
#include "sites/sites_inside.h"

enum { BITS_AT_END = 8 };

static void note_site(struct sites *s, const struct traffic_event *e, i64 done)
{
    struct json *line = json_object();
    json_set(line, "step", json_of_integer(done));
    json_set(line, e->number ? "joined" : "left", json_of_string(e->data.data));
    log_info("%s: site %s %s", s->stage.name, e->data.data, e->number ? "is here" : "has left");
    if (journal_add(s->stage.out, line))
        log_warn("%s", error_text());
    json_free(line);
}

/* Looks at events up to one that needs all ranks: it is in s->event, or in s->ready. */
void schedule_look(struct sites *s, i64 done)
{
    while (s->event.kind == EVENT_NONE) {
        struct traffic_event e = traffic_next(s->traffic);
        if (e.kind == EVENT_NONE)
            return;
        struct ready *ready = &s->ready[e.fragment];
        if (e.kind == EVENT_SAY)
            log_warn("%s: %s", s->stage.name, e.data.data);
        if (e.kind == EVENT_SITE)
            note_site(s, &e, done);
        if (e.kind == EVENT_ANCHOR || e.kind == EVENT_ASK) {
            s->event = e;
        } else if (e.kind == EVENT_ROUND) {
            buffer_release(&ready->record);
            *ready = (struct ready){e.number, e.data};
            return; /* the next one must not take its place */
        } else {
            buffer_release(&e.data);
        }
    }
}

static i64 slot_of(const struct sites *s, i64 f)
{
    return f * s->plan.steps / s->fragments.count;
}

static bool is_due(const struct sites *s, i64 f, i64 done)
{
    const struct of_fragment *o = &s->of[f];
    return s->plan.steps && done > s->planned && done % s->plan.steps == slot_of(s, f) && !o->round && o->begun != done;
}

static double median_step(const struct sites *s)
{
    double list[MEASURED_STEPS];
    memcpy(list, s->step_s, sizeof list);
    for (i64 i = 1; i < MEASURED_STEPS; i++)
        for (i64 k = i; k > 0 && list[k - 1] > list[k]; k--) {
            double other = list[k];
            list[k] = list[k - 1];
            list[k - 1] = other;
        }
    return list[MEASURED_STEPS / 2];
}

static void choose_plan(struct sites *s, double bytes_per_s, double delay_s)
{
    const char *why;
    struct plan_measures m = {.step_s = fmax(1e-4, median_step(s)),
                              .merge_s = s->trial_s,
                              .bytes_per_s = bytes_per_s,
                              .delay_s = delay_s,
                              .fragments = s->fragments.count,
                              .given = site_given_plan(s)};
    for (i64 f = 0; f < s->fragments.count; f++)
        for (i64 bits = 4; bits <= 32; bits *= 2)
            m.bytes[bits] += (double)fragment_sizes(&s->fragments, f).code_bytes[bits] *
                             (double)max_i64(1, traffic_here(s->traffic, &why) - 1);
    s->plan = plan_choose(&m);
    traffic_set_plan(s->traffic, &s->plan);
    log_info("%s: the link carries %.1f MB/s and takes %.0f ms there and back, a step %.2f s, a merge of all weights "
             "%.2f s: merges every %lld steps in %lld bits, %lld %s after sending",
             s->stage.name, 1e-6 * bytes_per_s, 1e3 * delay_s, m.step_s, m.merge_s, (long long)s->plan.steps,
             (long long)s->plan.bits, (long long)s->plan.delay, plural(s->plan.delay, "step", "steps"));
}

/* False: the plan must be waited for. */
static bool plan(struct sites *s, i64 done)
{
    double bytes_per_s, delay_s;
    if (s->plan.steps || done < MEASURED_STEPS)
        return true;
    if (!traffic_plan(s->traffic, &s->plan) && traffic_listens(s->traffic) &&
        traffic_speed(s->traffic, &bytes_per_s, &delay_s))
        choose_plan(s, bytes_per_s, delay_s);
    s->planned = s->plan.steps ? done : 0;
    return s->plan.steps || !s->strict;
}

static struct order order_of(const struct sites *s, enum order_kind kind, i64 f)
{
    struct order o = {.kind = kind, .fragment = f};
    const struct of_fragment *own = &s->of[f];
    if (kind == ORDER_APPLY) {
        struct record *record = memory_alloc(sizeof *record);
        struct part_sizes sizes = fragment_sizes(&s->fragments, f);
        require(record_read(record, (const u8 *)s->ready[f].record.data, s->ready[f].record.length, &sizes) == 0, "%s",
                error_text());
        o.own = own->round == s->ready[f].round && record_find(record, s->stage.settings->name);
        o.settle = o.own && s->of[f].last == LAST_SENT;
        memory_free(record);
    }
    if (kind == ORDER_TAKE) {
        o.own = own->round && s->event.more == own->round;
        o.keep = o.own || s->event.more <= own->version;
    }
    return o;
}

/* A round that can be applied; -1: none. `all`: whether it is due or not. */
static i64 ready_fragment(struct sites *s, i64 done, bool all)
{
    for (i64 f = 0; f < s->fragments.count; f++) {
        struct ready *ready = &s->ready[f];
        if (ready->record.length && ready->round != s->of[f].version + 1)
            buffer_release(&ready->record);
        if (ready->record.length && (all || !s->strict || s->of[f].due <= done))
            return f;
    }
    return -1;
}

/* Whether this site cannot go on, and a message. */
static bool has_failed(const struct sites *s)
{
    const char *why;
    return traffic_here(s->traffic, &why) < 0 && error_set("%s: %s", s->stage.name, why);
}

bool schedule_wait(struct sites *s, const char *for_what)
{
    enum { TELL_AFTER_S = 5 };
    s->told_s = s->told_s > 0 ? s->told_s : clock_s() + TELL_AFTER_S;
    if (clock_s() > s->told_s) {
        const char *why;
        i64 here = traffic_here(s->traffic, &why);
        log_info("%s: waits for %s; %lld %s here, %lld %s needed", s->stage.name, for_what, (long long)here,
                 plural(here, "site is", "sites are"), (long long)s->stage.settings->least,
                 plural(s->stage.settings->least, "is", "are"));
        s->told_s = INFINITY;
    }
    double begun_s = clock_s();
    traffic_wait(s->traffic);
    s->wait_s += clock_s() - begun_s;
    return !interrupted();
}

struct order schedule_next(struct sites *s, i64 done)
{
    for (bool goes_on = true; goes_on;) {
        if (has_failed(s))
            return order_of(s, ORDER_FAIL, 0);
        schedule_look(s, done);
        i64 f = ready_fragment(s, done, false);
        if (f >= 0)
            return order_of(s, ORDER_APPLY, f);
        if (s->event.kind == EVENT_ANCHOR || s->event.kind == EVENT_ASK)
            return order_of(s, s->event.kind == EVENT_ASK ? ORDER_READ : ORDER_TAKE, s->event.fragment);
        if (!s->plan.steps && done >= MEASURED_STEPS && s->trial_s == 0 && traffic_listens(s->traffic))
            return order_of(s, ORDER_TRY, 0);
        bool waits = !plan(s, done);
        for (f = 0; f < s->fragments.count; f++)
            waits |= s->strict && s->of[f].round && s->of[f].due <= done;
        for (f = 0; f < s->fragments.count && !waits; f++)
            if (is_due(s, f, done) && (s->strict || traffic_is_connected(s->traffic))) {
                s->of[f].due = done + s->plan.delay;
                s->of[f].bits = s->plan.bits;
                return order_of(s, ORDER_BEGIN, f);
            }
        if (!waits) {
            s->told_s = 0;
            return order_of(s, ORDER_GO, 0);
        }
        goes_on = schedule_wait(s, "parts of other sites");
    }
    return order_of(s, ORDER_STOP, 0);
}

/* Whether this site ends without knowing that all have the last merge. */
static bool gives_up(struct sites *s, i64 missing)
{
    const char *why, *name = s->stage.name;
    bool alone = traffic_here(s->traffic, &why) <= 1, connected = traffic_is_connected(s->traffic);
    if (s->strict && !alone)
        s->late_s = clock_s() + (double)launch_wait_s();
    bool late = clock_s() > s->late_s;
    if (s->strict ? missing || !late : connected && !late && (missing || !alone))
        return false;
    if (s->strict)
        log_warn("%s: no other site has been here for %lld s (WEFT_WAIT_S): one that lacks the last merge needs a copy "
                 "of sites/ in this stage's folder to end",
                 name, (long long)launch_wait_s());
    else if (missing)
        log_warn("%s: the last steps of this site are merged with no other: %s", name,
                 connected ? "its parts were late" : "it is not connected");
    else
        log_warn("%s: ends without knowing whether the other sites have the same last merge: their weights may differ",
                 name);
    return true;
}

struct order schedule_last(struct sites *s, i64 done)
{
    bool goes_on = true;
    while (goes_on) {
        if (has_failed(s))
            return order_of(s, ORDER_FAIL, 0);
        schedule_look(s, done);
        i64 f = ready_fragment(s, done, true), missing = 0;
        if (f >= 0)
            return order_of(s, ORDER_APPLY, f);
        if (s->event.kind == EVENT_ANCHOR || s->event.kind == EVENT_ASK)
            return order_of(s, s->event.kind == EVENT_ASK ? ORDER_READ : ORDER_TAKE, s->event.fragment);
        for (f = 0; f < s->fragments.count; f++)
            missing += s->of[f].last != LAST_MERGED;
        if (!missing && s->strict && !journal_is_whole(s->stage.out) && journal_set_whole(s->stage.out) < 0)
            return order_of(s, ORDER_FAIL, 0);
        if ((!missing && traffic_done(s->traffic)) || gives_up(s, missing))
            return order_of(s, ORDER_GO, 0);
        for (f = 0; f < s->fragments.count; f++) {
            if (s->of[f].last == LAST_NOT && !s->of[f].round) {
                s->of[f].last = LAST_SENT;
                s->of[f].due = done;
                s->of[f].bits = max_i64(s->plan.bits, BITS_AT_END);
                return order_of(s, ORDER_BEGIN, f);
            }
        }
        goes_on = schedule_wait(s, missing ? "the last merge" : "other sites to end");
    }
    return order_of(s, ORDER_STOP, 0);
}
