/* What a checkpoint has of a site, beside the table of anchors. */
#include <stdio.h>
#include <string.h>

#include "sites/journal.h"
#include "sites/sites_inside.h"

static const struct {
    const char *name;
    size_t offset;
} integers[] = {{"version", offsetof(struct of_fragment, version)}, {"round", offsetof(struct of_fragment, round)},
                {"begun", offsetof(struct of_fragment, begun)},     {"due", offsetof(struct of_fragment, due)},
                {"bits", offsetof(struct of_fragment, bits)},       {"last", offsetof(struct of_fragment, last)}};

static i64 *integer_of(struct of_fragment *o, i64 i)
{
    return (i64 *)(void *)((char *)o + integers[i].offset);
}

/* Rounds that lie behind the oldest checkpoint are needed no more: with as many versions as checkpoints may be. Another
 * site may lack the last one, if its link broke. */
static void drop_rounds(struct sites *s)
{
    if (s->saved_count == SAVED_MOST) {
        memmove(s->saved[0], s->saved[1], sizeof s->saved - sizeof s->saved[0]);
        s->saved_count--;
    }
    i64 *now = s->saved[s->saved_count++], back = min_i64(s->stage.keep, SAVED_MOST - 1);
    for (i64 f = 0; f < s->fragments.count; f++) {
        now[f] = s->of[f].version;
        if (s->strict && s->saved_count > back &&
            journal_drop_rounds(s->stage.out, f, min_i64(s->saved[s->saved_count - 1 - back][f], now[f] - 1)))
            log_warn("%s: %s", s->stage.name, error_text());
    }
}

struct json *sites_state(struct sites *s, bool checkpoint)
{
    struct json *j = json_object(), *list = json_array(), *merged = json_object();
    char hash[20];
    for (i64 f = 0; f < s->fragments.count; f++) {
        struct json *one = json_object();
        for (i64 i = 0; i < COUNT_OF(integers); i++)
            json_set(one, integers[i].name, json_of_integer(*integer_of(&s->of[f], i)));
        json_set(one, "tokens", json_of_number(s->of[f].tokens));
        json_set(one, "tokens_sent", json_of_number(s->of[f].tokens_sent));
        json_push(list, one);
    }
    for (i64 i = 0; i < s->merged_count; i++) {
        struct json *rounds = json_array();
        for (i64 f = 0; f < s->fragments.count; f++)
            json_push(rounds, json_of_integer(s->merged[i].round[f]));
        json_set(merged, s->merged[i].name, rounds);
    }
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->start_hash);
    json_set(j, "fragments", list);
    json_set(j, "merged", merged);
    json_set(j, "tokens", json_of_number(s->tokens));
    json_set(j, "use", json_of_numbers(s->use, site_use_count(s)));
    json_set(j, "use_sent", json_of_numbers(s->use_sent, site_use_count(s)));
    json_set(j, "steps", json_of_integer(s->plan.steps));
    json_set(j, "bits", json_of_integer(s->plan.bits));
    json_set(j, "delay", json_of_integer(s->plan.delay));
    json_set(j, "planned", json_of_integer(s->planned));
    json_set(j, "end", json_of_integer(s->end));
    json_set(j, "start", json_of_string(hash));
    if (checkpoint)
        drop_rounds(s);
    return j;
}

void state_restore(struct sites *s, const struct json *j)
{
    struct json_iterator it;
    for (i64 f = 0; f < s->fragments.count; f++) {
        const struct json *one = json_at(json_get(j, "fragments"), f);
        for (i64 i = 0; i < COUNT_OF(integers); i++)
            *integer_of(&s->of[f], i) = json_integer(json_get(one, integers[i].name), 0);
        s->of[f].tokens = json_number(json_get(one, "tokens"), 0);
        s->of[f].tokens_sent = json_number(json_get(one, "tokens_sent"), 0);
    }
    for (bool more = json_first(&it, json_get(j, "merged")); more && s->merged_count < SITES_MOST;
         more = json_next(&it, json_get(j, "merged"))) {
        struct merged_site *m = &s->merged[s->merged_count++];
        snprintf(m->name, sizeof m->name, "%s", it.key);
        for (i64 f = 0; f < s->fragments.count; f++)
            m->round[f] = json_integer(json_at(it.value, f), 0);
    }
    s->tokens = json_number(json_get(j, "tokens"), 0);
    json_numbers(s->use, site_use_count(s), json_get(j, "use"));
    json_numbers(s->use_sent, site_use_count(s), json_get(j, "use_sent"));
    s->plan = (struct plan){json_integer(json_get(j, "steps"), 0), json_integer(json_get(j, "bits"), 0),
                            json_integer(json_get(j, "delay"), 0)};
    s->planned = json_integer(json_get(j, "planned"), 0);
    s->end = json_integer(json_get(j, "end"), END_NOT);
    sscanf(json_string(json_get(j, "start"), "0"), "%llx", (unsigned long long *)&s->start_hash);
}
