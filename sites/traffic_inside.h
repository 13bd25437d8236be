/* What the files of the traffic share: traffic.c (the thread, the calls of the main thread), peers.c (connections) and
 * messages.c (what sites say). All is read and written under the lock. */
#ifndef WEFT_SITES_TRAFFIC_INSIDE_H
#define WEFT_SITES_TRAFFIC_INSIDE_H
#include "sites/rounds.h"
#include "sites/traffic.h"

#include <pthread.h>

enum { GUESTS_MOST = 16, PEERS_MOST = SITES_MOST + GUESTS_MOST };
enum probe { PROBE_NONE, PROBE_DELAY, PROBE_SPEED, PROBE_ENDED };
struct peer_site { /* a connection to another site, or to one that has not said who it is */
    int socket;
    struct link *link;
    char *address;
    bool connecting, welcomed, leaves /* once all is sent */, refused;
    double since_s;
    char name[SITE_NAME_BYTES];
    i64 site;                   /* its number in `rounds`; -1: none */
    bool wants[FRAGMENTS_MOST]; /* it waits for the anchor */
    i64 sent[FRAGMENTS_MOST];   /* round of the last part that came over this connection */
    enum probe probe;
    double probe_s, heard_s, moved_s; /* when bytes came; when they came or went */
    struct json *hello;               /* it waits: a site of its name is here already, and was asked whether it lives */
    double asked_s;
};
struct traffic {
    struct traffic_start start;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int wake;
    bool stop, flush, strict; /* strict: all sites are required, and rounds are on disk */
    bool listens;
    int listener;
    struct peer_site *peers[PEERS_MOST];
    i64 peer_count;
    struct rounds rounds; /* where this site listens */
    i64 own_site;
    struct traffic_event *events;
    i64 event_count, event_capacity;
    struct own_part {
        i64 round; /* 0: none under way */
        struct buffer data;
    } own[FRAGMENTS_MOST];
    i64 version[FRAGMENTS_MOST]; /* of what has come, applied or not; where this site does not listen */
    struct plan plan;            /* steps 0: none yet */
    i64 here, sent_bytes;
    double speed, delay_s; /* speed 0: not measured */
    char *failed;          /* why this site cannot go on: the first reason */
    bool done, all_done;   /* this site has the last round; so have all */
    bool met;              /* this site has been welcome, or it listens: from now on nothing is final */
    int key_faults;
    double retry_s, left_s; /* left_s: when a connection ended */
    char told[256];         /* why the site that listens was not reached */
};

/* traffic.c */
void traffic_event(struct traffic *t, enum traffic_event_kind kind, i64 fragment, i64 number, i64 more,
                   const void *data, i64 bytes);
void traffic_say(struct traffic *t, const char *format, ...) PRINTF(2, 3);
void traffic_fail(struct traffic *t, const char *format, ...) PRINTF(2, 3);
/* A round on disk; false: it is not there, or was damaged, which is said. */
bool traffic_find_round(struct buffer *out, struct traffic *t, i64 fragment, i64 round);
/* Keeps a round on disk if all sites are required. False: it cannot, and has failed. */
bool traffic_keep_round(struct traffic *t, i64 fragment, i64 round, const struct buffer *record);
void traffic_take_part(struct traffic *t, i64 site, i64 fragment, i64 round, const void *data, i64 bytes);
void traffic_close_rounds(struct traffic *t);
/* Has the versions of a site and of this one agree. */
void traffic_settle(struct traffic *t, struct peer_site *p, i64 fragment);
void traffic_look_for_end(struct traffic *t); /* tells all if all are done */
void traffic_count(struct traffic *t);        /* the sites that are here have changed */
/* peers.c */
void peers_tell(struct traffic *t, const char *what, const char *why); /* of the site that listens, but not twice */
void peers_connect(struct traffic *t);
void peers_accept(struct traffic *t);
void peers_move(struct traffic *t, struct peer_site *p, short events);
void peers_drop(struct traffic *t, i64 i, const char *why);
void peers_sweep(struct traffic *t); /* drops what has ended or taken too long */
void peer_say(struct peer_site *p, enum link_kind kind, i64 fragment, i64 number, i64 more, const void *data,
              i64 bytes);
struct peer_site *peers_upstream(struct traffic *t); /* the site that listens; NULL: not connected, or this one does */
/* messages.c */
void messages_greet(struct traffic *t, struct peer_site *p); /* its link can send */
void messages_say_plan(struct traffic *t, struct peer_site *p);
void messages_decide(struct traffic *t); /* about those that wait */
void messages_hear(struct traffic *t, struct peer_site *p, const struct link_head *head, const struct buffer *payload);
#endif
