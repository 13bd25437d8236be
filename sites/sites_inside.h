/* What the files behind sites.h share. */
#ifndef WEFT_SITES_INSIDE_H
#define WEFT_SITES_INSIDE_H
#include "sites/plan.h"
#include "sites/sites.h"
#include "sites/traffic.h"

enum { MEASURED_STEPS = 4, SAVED_MOST = 16 };
struct of_fragment {
    i64 version; /* of the anchor */
    i64 round;   /* under way; 0: none */
    i64 begun;   /* the step at which it began; -1: none did */
    i64 due;     /* the step at which it is applied, if all sites are required */
    i64 bits;
    i64 last;                   /* at the end: LAST_... */
    double tokens, tokens_sent; /* of this site when its last part in a merge was made; of the part under way */
};
struct merged_site { /* last rounds with a part of another site */
    char name[SITE_NAME_BYTES];
    i64 round[FRAGMENTS_MOST];
};
struct sites {
    struct sites_stage stage;
    struct fragments fragments;
    struct traffic *traffic; /* on the first rank */
    struct json *hello;
    struct of_fragment of[FRAGMENTS_MOST];
    struct merged_site merged[SITES_MOST];
    i64 merged_count;
    double tokens;          /* that this site has seen */
    double *use, *use_sent; /* [layers, experts] counts at the anchor, and of the parts under way */
    struct plan plan;       /* steps 0: not known yet */
    i64 planned;            /* the step at which they were known */
    double step_s[MEASURED_STEPS];
    i64 measured;
    struct ready { /* a round that has come */
        i64 round;
        struct buffer record;
    } ready[FRAGMENTS_MOST];
    struct traffic_event event; /* that is looked at now: an anchor, or the question for one */
    bool strict, changed;       /* all sites are required; weights were moved, and wait for fragments_spread */
    i64 end;                    /* END_... */
    double late_s;              /* when the last merge, or the wait for others to end, is given up */
    double trial_s;             /* that a merge of all fragments takes of the steps' time; 0: not known */
    double merge_s, wait_s;     /* spent in merges by this process, and waiting for other sites */
    double told_s;              /* when a wait was told of; 0: no wait */
    u64 start_hash;
    i64 saved[SAVED_MOST][FRAGMENTS_MOST], saved_count; /* versions in the last checkpoints */
};

/* What all ranks do next, as the first one says. */
enum order_kind { ORDER_GO, ORDER_STOP, ORDER_FAIL, ORDER_BEGIN, ORDER_APPLY, ORDER_TAKE, ORDER_READ, ORDER_TRY };
enum { LAST_NOT, LAST_SENT, LAST_MERGED };
enum { END_NOT, END_ALONE, END_ALL }; /* the last merge is behind it; and is known to be behind all others */
struct order {
    i64 kind, fragment, own, settle, keep;
};

static inline bool site_is_first_rank(const struct sites *s)
{
    return s->stage.ranks->world->rank == 0;
}
static inline i64 site_use_count(const struct sites *s) /* of experts in all layers */
{
    return s->stage.layers * s->stage.experts;
}

static inline struct plan site_given_plan(const struct sites *s)
{
    const struct sites_settings *given = s->stage.settings;
    return (struct plan){given->steps, given->bits == SITES_BITS_AUTO ? 0 : 2 << given->bits, given->delay};
}

/* state.c: takes back what sites_state has said. */
void state_restore(struct sites *sites, const struct json *state);

/* exchange.c: what orders do, on all ranks. */
void exchange_send(struct sites *sites, i64 fragment); /* codes of what is under way go out */
int exchange_begin(struct sites *sites, i64 fragment, i64 done);
int exchange_apply(struct sites *sites, const struct order *order, i64 done);
void exchange_take(struct sites *sites, const struct order *order);
void exchange_read(struct sites *sites, i64 fragment);
int exchange_try(struct sites *sites); /* measures trial_s; nothing may be under way */

/* schedule.c: what comes next, on the first rank. */
struct order schedule_next(struct sites *sites, i64 done); /* before a step */
struct order schedule_last(struct sites *sites, i64 done); /* behind the last one: all fragments once more */
void schedule_look(struct sites *sites, i64 done);         /* notes what other sites have sent */
/* Waits a little. False: this site is asked to stop. */
bool schedule_wait(struct sites *sites, const char *for_what);
#endif
