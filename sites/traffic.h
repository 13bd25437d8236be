/* The thread of the first rank that moves bytes between sites while the steps run, and keeps the rounds if this site
 * listens. The main thread calls the functions below; none of them waits for the link but traffic_wait and
 * traffic_close. */
#ifndef WEFT_SITES_TRAFFIC_H
#define WEFT_SITES_TRAFFIC_H
#include "core/json.h"
#include "sites/fragments.h"
#include "sites/link.h"
#include "sites/plan.h"
#include "sites/sites.h"

enum traffic_event_kind {
    EVENT_NONE,
    EVENT_ROUND,  /* data: a record without this site's own codes; number: its round */
    EVENT_ANCHOR, /* data: use, anchor; number: version; more: last round with a part of this site */
    EVENT_ASK,    /* a site needs the anchor of the fragment: traffic_anchor */
    EVENT_SITE,   /* data: the name of a site; number: 1 it has come, 0 it has left; more: sites that are here */
    EVENT_SAY     /* data: a warning for the log */
};
struct traffic_event {
    enum traffic_event_kind kind;
    i64 fragment, number, more;
    struct buffer data;
};
struct traffic_start { /* borrowed, but for the key */
    const struct sites_settings *settings;
    const char *folder;
    const struct fragments *fragments;
    const struct json *hello; /* what other sites compare; versions are added */
    u8 key[LINK_KEY_BYTES];
    const i64 *versions;
    bool probes; /* measure the link */
    bool ended;  /* all sites have the last merge: says so to those that do not know it */
};
struct traffic;
struct traffic *traffic_open(const struct traffic_start *start);
/* The next event, or EVENT_NONE. Its data is the caller's. */
struct traffic_event traffic_next(struct traffic *traffic);
/* Waits until there may be an event, for a fifth of a second at most. */
void traffic_wait(struct traffic *traffic);
/* Sites that are here, with this one; 0: it is not known yet; -1: this site cannot go on, *why: a message. */
i64 traffic_here(struct traffic *traffic, const char **why);
bool traffic_is_connected(struct traffic *traffic); /* to the site that listens, or this is it */
bool traffic_listens(struct traffic *traffic);
/* Sends this site's part of a round, and again if it gets lost, until traffic_applied. */
void traffic_part(struct traffic *traffic, i64 fragment, i64 round, struct buffer *part); /* takes the part */
/* This site has the anchor of a version now. own: its part is in it. */
void traffic_applied(struct traffic *traffic, i64 fragment, i64 version);
/* Answers EVENT_ASK for all that wait. merged(name): last round with a part of the site. data is copied. */
void traffic_anchor(struct traffic *traffic, i64 fragment, i64 version, const void *data, i64 bytes,
                    i64 (*merged)(void *context, const char *name, i64 fragment), void *context);
/* The slowest link measured so far; false: none. */
bool traffic_speed(struct traffic *traffic, double *bytes_per_s, double *delay_s);
void traffic_set_plan(struct traffic *traffic, const struct plan *plan); /* of the site that listens, for all */
bool traffic_plan(struct traffic *traffic, struct plan *plan);           /* false: it has not come */
/* This site has all rounds, on disk too. True if all sites have, so that none needs this one any more. */
bool traffic_done(struct traffic *traffic);
bool traffic_all_done(struct traffic *traffic); /* the same, and says nothing */
i64 traffic_bytes(struct traffic *traffic);     /* sent so far */
/* `flush`: sends what is left, and waits until the other sites know that all are done, for half a minute at most. */
void traffic_close(struct traffic *traffic, bool flush);
#endif
