/* What sites say to each other, and what is answered. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sites/codec.h"
#include "sites/traffic_inside.h"

enum { PROBE_BYTES = 1 << 20, ANSWER_S = 3 };

/* ---- Greeting ---- */

static struct json *versions_json(const i64 *versions, i64 count)
{
    struct json *list = json_array();
    for (i64 f = 0; f < count; f++)
        json_push(list, json_of_integer(versions[f]));
    return list;
}

static void say_json(struct peer_site *p, enum link_kind kind, struct json *message)
{
    struct buffer text = {0};
    json_print(&text, message, 0);
    peer_say(p, kind, 0, 0, 0, text.data, text.length);
    buffer_release(&text);
    json_free(message);
}

static struct json *plan_json(const struct plan *plan)
{
    struct json *j = json_object();
    json_set(j, "steps", json_of_integer(plan->steps));
    json_set(j, "bits", json_of_integer(plan->bits));
    json_set(j, "delay", json_of_integer(plan->delay));
    return j;
}

void messages_say_plan(struct traffic *t, struct peer_site *p)
{
    say_json(p, LINK_PLAN, plan_json(&t->plan));
}

void messages_greet(struct traffic *t, struct peer_site *p)
{
    if (t->listens) { /* shows that it knows the key */
        peer_say(p, LINK_COUNT, 0, t->here, 0, NULL, 0);
        return;
    }
    struct json *hello = json_copy(t->start.hello);
    json_set(hello, "name", json_of_string(t->start.settings->name));
    json_set(hello, "versions", versions_json(t->version, t->rounds.fragments));
    json_set(hello, "plan", plan_json(&t->plan)); /* for a site that listens and was started again */
    say_json(p, LINK_HELLO, hello);
}

/* Appends the first member of two values that differs, as a path. False: they are the same. */
static bool find_difference(struct buffer *out, const struct json *a, const struct json *b)
{
    struct json_iterator it;
    struct buffer left = {0}, right = {0};
    json_print(&left, a, 0);
    json_print(&right, b, 0);
    bool same = left.length == right.length && memcmp(left.data, right.data, (size_t)left.length) == 0;
    buffer_release(&left);
    buffer_release(&right);
    if (same)
        return false;
    for (bool more = json_kind(b) == JSON_OBJECT && json_first(&it, a); more; more = json_next(&it, a)) {
        i64 length = out->length;
        buffer_printf(out, "%s%s", length ? "." : "", it.key);
        if (find_difference(out, it.value, json_get(b, it.key)))
            return true;
        out->length = length;
    }
    return true;
}

/* Sets the message why a site is not welcome; 0 if it is. */
static int judge(struct traffic *t, const struct json *hello)
{
    static const struct {
        const char *member, *why;
    } parts[] = {{"sites", "its version of Weft has another protocol"},
                 {"recipe", "its recipe differs"},
                 {"model", "its model has other weights"},
                 {"weights", "it began with other weights (seed, from)"}};
    struct buffer where = {0};
    const char *name = json_string(json_get(hello, "name"), "");
    int status = 0;
    for (i64 i = 0; i < COUNT_OF(parts) && status == 0; i++)
        if (find_difference(&where, json_get(t->start.hello, parts[i].member), json_get(hello, parts[i].member)))
            status = error_set("%s%s%s", parts[i].why, where.length ? " in " : "", where.length ? where.data : "");
    if (status == 0 && !site_name_is_good(name))
        status = error_set("it has no name");
    if (status == 0 && json_count(json_get(hello, "versions")) != t->rounds.fragments)
        status = error_set("it has other fragments");
    if (status == 0 && t->strict && !rounds_knows(&t->rounds, name) && t->rounds.site_count >= t->rounds.least)
        status = error_set("the %lld %s of this run are known (sites.least): others may come with sites.grace_s",
                           (long long)t->rounds.least, plural(t->rounds.least, "site", "sites"));
    buffer_release(&where);
    return status;
}

static void allow_all(struct traffic *t, struct peer_site *p)
{
    i64 part = 0, anchor = 0;
    for (i64 f = 0; f < t->rounds.fragments; f++) {
        struct part_sizes sizes = fragment_sizes(t->start.fragments, f);
        i64 most = sizes.code_bytes[32] + sizes.code_bytes[16];
        part = max_i64(part, most + 8 * sizes.uses + (i64)sizeof(struct part_head));
        anchor = max_i64(anchor, 8 * sizes.uses + 4 * fragment_elements(t->start.fragments, f));
    }
    link_allow(p->link, LINK_PART, part);
    link_allow(p->link, LINK_ROUND, 8 + SITES_MOST * (part + 8));
    link_allow(p->link, LINK_ANCHOR, anchor);
    link_allow(p->link, LINK_PROBE, PROBE_BYTES);
}

static void take_versions(i64 *versions, const struct json *list, i64 count)
{
    for (i64 f = 0; f < count; f++)
        versions[f] = max_i64(0, json_integer(json_at(list, f), 0));
}

static void take_plan(struct traffic *t, const struct json *j)
{
    enum { STEPS_MOST = 1000000 };
    struct plan p = {json_integer(json_get(j, "steps"), 0), json_integer(json_get(j, "bits"), 0),
                     json_integer(json_get(j, "delay"), -1)};
    if (t->plan.steps || p.steps < 1 || p.steps > STEPS_MOST || p.bits < 0 || p.bits > 32 ||
        !codec_knows((int)p.bits) || p.delay < 0 || p.delay >= p.steps)
        return;
    t->plan = p;
    pthread_cond_broadcast(&t->changed);
}

/* The message is the reason. */
static void refuse(struct traffic *t, struct peer_site *p, const struct json *hello)
{
    struct json *answer = json_object();
    traffic_say(t, "site %s at %s is refused: %s", json_string(json_get(hello, "name"), "?"), p->address, error_text());
    json_set(answer, "refused", json_of_string(error_text()));
    say_json(p, LINK_WELCOME, answer);
    p->leaves = true;
}

static void welcome(struct traffic *t, struct peer_site *p, const struct json *hello)
{
    i64 versions[FRAGMENTS_MOST];
    struct json *answer = json_object();
    take_versions(versions, json_get(hello, "versions"), t->rounds.fragments);
    if ((p->site = rounds_join(&t->rounds, json_string(json_get(hello, "name"), ""), versions)) < 0) {
        json_free(answer);
        refuse(t, p, hello);
        return;
    }
    strcpy(p->name, t->rounds.sites[p->site].name);
    p->welcomed = true;
    allow_all(t, p);
    json_set(answer, "name", json_of_string(t->start.settings->name));
    say_json(p, LINK_WELCOME, answer);
    take_plan(t, json_get(hello, "plan"));
    if (t->plan.steps)
        messages_say_plan(t, p);
    traffic_count(t);
    traffic_event(t, EVENT_SITE, 0, 1, t->here, p->name, (i64)strlen(p->name) + 1);
    for (i64 f = 0; f < t->rounds.fragments; f++)
        traffic_settle(t, p, f);
    if (t->all_done)
        peer_say(p, LINK_DONE, 0, 0, 0, NULL, 0);
}

/* The number of the connection to the site of a name; -1: there is none. */
static i64 connection_of(const struct traffic *t, const char *name)
{
    i64 i = t->peer_count - 1;
    while (i >= 0 && !(t->peers[i]->welcomed && strcmp(t->peers[i]->name, name) == 0))
        i--;
    return i;
}

static void hear_hello(struct traffic *t, struct peer_site *p, const struct json *hello)
{
    i64 other = judge(t, hello) ? -2 : connection_of(t, json_string(json_get(hello, "name"), ""));
    if (other == -2) {
        refuse(t, p, hello);
    } else if (other < 0) {
        welcome(t, p, hello);
    } else {
        p->hello = json_copy(hello);
        p->asked_s = clock_s();
        peer_say(t->peers[other], LINK_PROBE, 0, 0, 0, NULL, 0);
    }
}

/* A machine that was lost leaves a connection that says nothing more. Its site comes back in its place, but not in that
 * of one that lives. */
void messages_decide(struct traffic *t)
{
    for (i64 i = 0; i < t->peer_count; i++) {
        struct peer_site *p = t->peers[i];
        struct json *hello = p->hello;
        i64 other = hello ? connection_of(t, json_string(json_get(hello, "name"), "")) : -1;
        bool lives = other >= 0 && t->peers[other]->heard_s > p->asked_s;
        if (!hello || (other >= 0 && !lives && clock_s() - fmax(p->asked_s, t->peers[other]->moved_s) < ANSWER_S))
            continue;
        p->hello = NULL;
        if (lives) {
            error_set("a site of the name %s is here already", t->peers[other]->name);
            refuse(t, p, hello);
        } else {
            if (other >= 0)
                peers_drop(t, other, "it does not answer, and has come again");
            welcome(t, p, hello);
        }
        json_free(hello);
        i = -1; /* the list has changed */
    }
}

static void probe(struct peer_site *p, enum probe which)
{
    i64 bytes = which == PROBE_SPEED ? PROBE_BYTES : 1;
    char *data = memory_alloc(bytes);
    p->probe = which;
    p->probe_s = clock_s();
    peer_say(p, LINK_PROBE, 0, 0, 0, data, bytes);
    memory_free(data);
}

static void be_welcome(struct traffic *t, struct peer_site *p, const struct json *answer)
{
    const char *why = json_string(json_get(answer, "refused"), NULL);
    const char *name = json_string(json_get(answer, "name"), "");
    if (why || !site_name_is_good(name)) {
        p->leaves = true;
        p->refused = why && t->met;
        if (p->refused)
            peers_tell(t, "refuses this one", why);
        else if (why)
            traffic_fail(t, "the site at %s refuses this one: %s", p->address, why);
        return;
    }
    strcpy(p->name, name);
    p->welcomed = t->met = true;
    t->told[0] = 0;
    allow_all(t, p);
    traffic_event(t, EVENT_SITE, 0, 1, 2, p->name, (i64)strlen(p->name) + 1);
    for (i64 f = 0; f < t->rounds.fragments; f++)
        if (t->own[f].round > t->version[f])
            peer_say(p, LINK_PART, f, t->own[f].round, 0, t->own[f].data.data, t->own[f].data.length);
    if (t->done)
        peer_say(p, LINK_DONE, 0, 0, 0, NULL, 0);
    if (t->start.probes && t->speed == 0)
        probe(p, PROBE_DELAY);
}

/* ---- Speeds ---- */

static void note_speed(struct traffic *t, double bytes_per_s, double delay_s)
{
    if (bytes_per_s > 0 && (t->speed == 0 || bytes_per_s < t->speed))
        t->speed = bytes_per_s;
    t->delay_s = delay_s > t->delay_s ? delay_s : t->delay_s;
    pthread_cond_broadcast(&t->changed);
}

static void hear_probed(struct traffic *t, struct peer_site *p)
{
    double spent = clock_s() - p->probe_s;
    if (p->probe == PROBE_DELAY) {
        t->delay_s = spent;
        probe(p, PROBE_SPEED);
    } else if (p->probe == PROBE_SPEED) {
        double speed = PROBE_BYTES / fmax(spent - t->delay_s, 1e-4);
        p->probe = PROBE_ENDED;
        note_speed(t, speed, t->delay_s);
        peer_say(p, LINK_SPEED, 0, (i64)speed, (i64)(t->delay_s * 1e6), NULL, 0);
    }
}

/* ---- Rounds and anchors ---- */

static void hear_part(struct traffic *t, struct peer_site *p, const struct link_head *head, const struct buffer *data)
{
    struct part_sizes sizes = fragment_sizes(t->start.fragments, head->fragment);
    struct part part;
    if (part_read(&part, (const u8 *)data->data, data->length, &sizes) || part.head.omitted ||
        fragment_check(t->start.fragments, head->fragment, &part))
        traffic_say(t, "a part of site %s is left out: %s", p->name, error_text());
    else {
        p->sent[head->fragment] = head->number;
        traffic_take_part(t, p->site, head->fragment, head->number, data->data, data->length);
    }
}

/* Completes a record with this site's own codes, which were left out. -1 and a message if it is none. */
static int complete(struct buffer *out, struct traffic *t, i64 fragment, i64 round, const struct buffer *data)
{
    struct part_sizes sizes = fragment_sizes(t->start.fragments, fragment);
    struct buffer parts[SITES_MOST] = {0};
    struct record record;
    const struct own_part *own = &t->own[fragment];
    int status = record_read(&record, (const u8 *)data->data, data->length, &sizes);
    for (i64 i = 0; i < record.count && status == 0; i++) {
        const struct part *part = &record.parts[i];
        if (!part->head.omitted && (status = fragment_check(t->start.fragments, fragment, part)) == 0)
            buffer_append(&parts[i], part->use - sizeof part->head,
                          (i64)sizeof part->head + 8 * part->head.uses + part->head.code_bytes);
        else if (strcmp(part->head.name, t->start.settings->name) == 0 && own->round == round)
            buffer_append(&parts[i], own->data.data, own->data.length);
        else if (status == 0)
            status = error_set("codes of %s are missing", part->head.name);
    }
    if (status == 0)
        record_write(out, parts, record.count, NULL);
    for (i64 i = 0; i < record.count; i++)
        buffer_release(&parts[i]);
    return status;
}

static void hear_round(struct traffic *t, struct peer_site *p, const struct link_head *head, const struct buffer *data)
{
    struct buffer record = {0};
    if (head->number != t->version[head->fragment] + 1)
        return; /* it had come before the link broke */
    if (complete(&record, t, head->fragment, head->number, data)) {
        traffic_say(t, "a round of site %s is left out: %s", p->name, error_text());
    } else if (traffic_keep_round(t, head->fragment, head->number, &record) &&
               (!t->strict || t->own[head->fragment].round == head->number)) { /* else it waits on disk for its step */
        t->version[head->fragment] = head->number;
        traffic_event(t, EVENT_ROUND, head->fragment, head->number, 0, record.data, record.length);
    }
    buffer_release(&record);
}

/* The site that listens goes on from an older checkpoint, and repeats a round; or it lacks this site's part of the open
 * one, which may not have begun here. */
static void hear_need(struct traffic *t, struct peer_site *p, const struct link_head *head)
{
    struct part_sizes sizes = fragment_sizes(t->start.fragments, head->fragment);
    struct buffer text = {0};
    struct record record;
    const struct part *own = NULL;
    const struct own_part *under_way = &t->own[head->fragment];
    if (under_way->round == head->number) {
        peer_say(p, LINK_PART, head->fragment, head->number, 0, under_way->data.data, under_way->data.length);
        return;
    }
    if (traffic_find_round(&text, t, head->fragment, head->number) &&
        record_read(&record, (const u8 *)text.data, text.length, &sizes) == 0)
        own = record_find(&record, t->start.settings->name);
    if (own)
        peer_say(p, LINK_PART, head->fragment, head->number, 0, own->use - sizeof own->head,
                 (i64)sizeof own->head + 8 * own->head.uses + own->head.code_bytes);
    else if (head->number <= t->version[head->fragment])
        peer_say(p, LINK_LOST, head->fragment, head->number, 0, NULL, 0);
    buffer_release(&text);
}

/* Another site keeps a round no more: this one must have it on disk for the step that needs it. */
static void hear_lost(struct traffic *t, struct peer_site *p, const struct link_head *head)
{
    i64 f = head->fragment, version = t->listens ? t->rounds.of[f].version : t->version[f];
    struct buffer record = {0};
    if (t->strict && head->number == version + 1 && !traffic_find_round(&record, t, f, head->number))
        traffic_fail(
            t,
            "round %lld of fragment %lld is neither in sites/ of this stage nor kept by site %s any more: start "
            "all sites anew, each in a new folder (run=), or put back the folder of this stage",
            (long long)head->number, (long long)f, p->name);
    buffer_release(&record);
}

static void hear_anchor(struct traffic *t, struct peer_site *p, const struct link_head *head, const struct buffer *data)
{
    i64 f = head->fragment, uses = fragment_sizes(t->start.fragments, f).uses;
    i64 elements = fragment_elements(t->start.fragments, f),
        ours = t->listens ? t->rounds.of[f].version : t->version[f];
    bool finite = data->length == 8 * uses + 4 * elements;
    for (i64 i = 0; i < elements && finite; i++) {
        float value;
        memcpy(&value, data->data + 8 * uses + 4 * i, 4);
        finite = isfinite(value);
    }
    if (!finite)
        traffic_say(t, "weights that site %s has sent are left out: they do not fit, or are not finite", p->name);
    if (!finite || (t->listens ? head->number <= ours : head->number == ours))
        return;
    t->version[f] = t->listens ? t->version[f] : head->number;
    traffic_event(t, EVENT_ANCHOR, f, head->number, head->more, data->data, data->length);
}

static void hear_json(struct traffic *t, struct peer_site *p, const struct link_head *head, const struct buffer *data)
{
    struct json *message = data->length ? json_parse(data->data, data->length, p->address) : NULL;
    if (json_kind(message) != JSON_OBJECT)
        p->leaves = true;
    else if (t->listens && head->kind == LINK_HELLO && !p->welcomed && !p->hello)
        hear_hello(t, p, message);
    else if (!t->listens && head->kind == LINK_WELCOME && !p->welcomed)
        be_welcome(t, p, message);
    else if (!t->listens && head->kind == LINK_PLAN)
        take_plan(t, message);
    json_free(message);
}

static void hear_of_guests(struct traffic *t, struct peer_site *p, const struct link_head *head,
                           const struct buffer *data)
{
    if (head->kind == LINK_PART)
        hear_part(t, p, head, data);
    else if (head->kind == LINK_ANCHOR)
        hear_anchor(t, p, head, data);
    else if (head->kind == LINK_PROBE)
        peer_say(p, LINK_PROBED, 0, 0, 0, NULL, 0);
    else if (head->kind == LINK_LOST)
        hear_lost(t, p, head);
    else if (head->kind == LINK_SPEED)
        note_speed(t, (double)head->number, 1e-6 * (double)head->more);
    else if (head->kind == LINK_BYE)
        p->leaves = t->rounds.sites[p->site].ended = true;
    if (head->kind == LINK_DONE) {
        t->rounds.sites[p->site].done = true;
        traffic_look_for_end(t);
    }
}

static void hear_of_first(struct traffic *t, struct peer_site *p, const struct link_head *head,
                          const struct buffer *data)
{
    if (head->kind == LINK_ROUND) {
        hear_round(t, p, head, data);
    } else if (head->kind == LINK_ANCHOR) {
        hear_anchor(t, p, head, data);
    } else if (head->kind == LINK_PROBE) {
        peer_say(p, LINK_PROBED, 0, 0, 0, NULL, 0);
    } else if (head->kind == LINK_PROBED) {
        hear_probed(t, p);
    } else if (head->kind == LINK_NEED) {
        hear_need(t, p, head);
    } else if (head->kind == LINK_LOST) {
        hear_lost(t, p, head);
    } else if (head->kind == LINK_ASK) {
        p->wants[head->fragment] = true;
        traffic_event(t, EVENT_ASK, head->fragment, 0, 0, NULL, 0);
    } else if (head->kind == LINK_COUNT) {
        t->here = max_i64(1, head->number);
        pthread_cond_broadcast(&t->changed);
    } else if (head->kind == LINK_PLAN) {
        hear_json(t, p, head, data);
    } else if (head->kind == LINK_DONE) {
        t->all_done = true;
        peer_say(p, LINK_BYE, 0, 0, 0, NULL, 0);
        pthread_cond_broadcast(&t->changed);
    } else if (head->kind == LINK_BYE) {
        p->leaves = true;
    }
}

void messages_hear(struct traffic *t, struct peer_site *p, const struct link_head *head, const struct buffer *payload)
{
    bool fits = head->fragment >= 0 && head->fragment < t->rounds.fragments && head->number >= 0;
    if (!fits)
        p->leaves = true;
    else if (head->kind == LINK_HELLO || head->kind == LINK_WELCOME)
        hear_json(t, p, head, payload);
    else if (p->welcomed && t->listens)
        hear_of_guests(t, p, head, payload);
    else if (p->welcomed)
        hear_of_first(t, p, head, payload);
}
