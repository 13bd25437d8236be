/* sites: clusters that train one model together over a slow link. Each site is a run of its own, with its own ranks,
 * layout, shards and folder, and takes its own steps. From time to time the sites merge what their steps have changed
 * (local SGD; DiLoCo: Douillard et al. 2023, arXiv 2311.08105; by fragments, in few bits and beside the steps:
 * Streaming DiLoCo, 2501.18512; clusters over slow links: Nebula-I, 2205.09470).
 *
 *     every n-th layer is a fragment; for each of them, at a site:
 *
 *     anchor   masters after the last merge: the same bits at all sites
 *     due      difference = masters - anchor; its codes (codec.c) are sent. The next steps run
 *     merged   the codes of all sites have come, from each site in full:
 *                  change   = sum over sites of share * codes          (merge.c, in the order of names)
 *                  anchor  += change
 *                  masters += change - own codes, if they are in it
 *
 * What codes have rounded away stays in the masters, so it is part of the next difference: that is the error feedback.
 * If a merge goes on without a site, that site takes the change, keeps its whole difference, and sends it next time.
 * Shares follow from the tokens since the site's last merge, those of experts from the rows that they got there.
 *
 * A merge of a fragment is a round; an anchor's version is the number of its last round. One site, whichever listens at
 * `meet`, keeps the list of rounds (rounds.c), closes them and passes codes on. It is a site like the others; if it
 * ends, the others train on and join when it is there again. All of a round lies in the stage's folder (journal.c)
 * before it is applied if all sites are required, so each step repeats to the same bits. Otherwise a site that is
 * behind gets the whole anchor. Behind the last step all fragments are merged once more, and a site ends when all have
 * these merges; only then the rounds go.
 *
 *     sites.c      the calls of a stage; schedule.c: when fragments are sent and rounds applied; plan.c: how often,
 *                  and in how many bits; exchange.c: what is done then, on all ranks; state.c: what a checkpoint has
 *     fragments.c  fragments of a table of weights, over all ranks of the site
 *     codec.c      numbers in few bits; merge.c: what a site sends, shares, sums
 *     rounds.c     who is merged when; no sockets
 *     link.c       an encrypted, authenticated connection (libsodium); no sockets
 *     traffic.c    the thread that moves bytes and keeps the rounds; peers.c: its connections; messages.c: what
 *                  sites say to each other
 *     journal.c    sites.jsonl, and the rounds on disk
 *
 * Only the first rank of a site talks to other sites. No rank has memory for more than its share and a fragment. */
#ifndef WEFT_SITES_H
#define WEFT_SITES_H
#include "core/json.h"
#include "core/settings.h"
#include "dist/dist.h"

enum { SITES_BITS_AUTO, SITES_BITS_4, SITES_BITS_8, SITES_BITS_16, SITES_BITS_32 };
struct sites_settings {
    char *meet, *name, *key; /* meet empty: no other sites */
    i64 steps, delay, least; /* steps, delay 0: by the link */
    int bits;                /* SITES_BITS_... */
    double grace_s;          /* 0: merges wait for `least` sites, however long */
};
/* Rows for a settings table whose struct has a field `struct sites_settings sites`. */
#define SITES_ROWS(type)                                                                                               \
    SETTING(type, sites.meet, "sites.meet", STRING, "", 0, 0, NULL,                                                    \
            "HOST:PORT where sites that train this model together meet; the one that can listen there merges. Empty: " \
            "this site trains alone"),                                                                                 \
        SETTING(type, sites.name, "sites.name", STRING, "", 0, 0, NULL, "name of this site, another one for each"),    \
        SETTING(type, sites.key, "sites.key", STRING, "", 0, 0, NULL,                                                  \
                "file with the key that all sites share, at least 32 bytes that nobody else may read"),                \
        SETTING(type, sites.steps, "sites.steps", INTEGER, "0", 0, 1e6, NULL,                                          \
                "steps between merges of a weight; 0: as few as the link allows, at least 5"),                         \
        SETTING(type, sites.delay, "sites.delay", INTEGER, "0", 0, 1e6, NULL,                                          \
                "steps from sending to merging, less than sites.steps; 0: as few as the link allows"),                 \
        SETTING(type, sites.bits, "sites.bits", CHOICE, "auto", 0, 0, "auto|4|8|16|32",                                \
                "bits of a number that is sent; auto: 4, or 8 if the link is fast enough"),                            \
        SETTING(type, sites.least, "sites.least", INTEGER, "2", 1, 64, NULL, "sites that a merge needs"),              \
        SETTING(type, sites.grace_s, "sites.grace_s", NUMBER, "0", 0, 1e6, NULL,                                       \
                "seconds after which a merge goes on without sites that are missing; 0: it waits for `least` sites")
/* Checks of the settings alone, and of the key file. -1 and a message. */
int sites_check(const struct sites_settings *settings);
static inline bool sites_are_on(const struct sites_settings *settings)
{
    return settings->meet && *settings->meet;
}
/* A seed that differs from site to site: sites with the same shards see other samples. */
u64 sites_seed(const struct sites_settings *settings, u64 seed);

/* What a stage gives; all is borrowed until sites_close. */
struct sites_stage {
    const struct sites_settings *settings;
    const char *name, *out; /* of the stage; its folder */
    struct weights *weights;
    const struct parallel *ranks;
    i64 steps;                 /* of the stage */
    i64 keep;                  /* checkpoints that are kept */
    const struct json *recipe; /* what must be the same at all sites: messages name the members that differ */
    i64 layers, experts;       /* of the counts of use [layers, experts] */
    void (*use_get)(double *use, void *context); /* on every rank */
    void (*use_put)(void *context, const double *use);
    void *context;
};
struct sites;
/* Functions below are calls of all ranks together. */
struct sites *sites_open(const struct sites_stage *stage);
/* Anchors and what is under way, which checkpoints have beside the stage's weights. */
struct weights *sites_weights(struct sites *sites);
/* Call when the weights and those of sites_weights are loaded. state: member "sites" of the checkpoint's, NULL: the
 * first step comes next. Meets the other sites and waits for `least`, or for grace_s. 0; -1 and a message;
 * 1: interrupted while it waited. */
int sites_begin(struct sites *sites, i64 done, const struct json *state);
/* Call before each step, when `done` are complete: applies merges, and begins those that are due. 1: interrupted while
 * it waited; a checkpoint may be made, and the next call goes on. -1 and a message. */
int sites_turn(struct sites *sites, i64 done);
void sites_count(struct sites *sites, double tokens, double seconds); /* of a step, over all ranks */
/* Call behind the last step: the last merge, after which all sites have the same weights. 1: interrupted; a checkpoint
 * may be made, and the next call goes on, in this run or in one that is resumed. -1 and a message. */
int sites_end(struct sites *sites);
/* On the first rank. checkpoint: it is written to disk, and rounds before the oldest one may go. */
struct json *sites_state(struct sites *sites, bool checkpoint);
/* Call when the result of the stage is saved: removes the rounds, if no site needs them any more. -1 and a message. */
int sites_clear(struct sites *sites);
void sites_close(struct sites *sites); /* NULL: nothing */
#endif
