/* Who is merged when: the list of rounds that the site which listens keeps. No sockets, no clock and no weights.
 *
 *     closed     0 1 2 ... version      open: version + 1, from its first part on
 *
 * A round closes when all sites that are here and up to date have sent their part and at least `least` have, or when
 * grace_s has passed. A part of a closed round is late: its numbers come again in the site's next one. */
#ifndef WEFT_SITES_ROUNDS_H
#define WEFT_SITES_ROUNDS_H
#include "sites/merge.h"

enum { ROUNDS_FRAGMENTS = 4 };
struct rounds_site {
    char name[SITE_NAME_BYTES];
    bool here, done, ended;        /* done: it has the last round; ended: it knows that all have */
    i64 version[ROUNDS_FRAGMENTS]; /* of its anchors */
};
struct rounds {
    i64 fragments, least;
    double grace_s; /* 0: none */
    struct rounds_site sites[SITES_MOST];
    i64 site_count;
    struct rounds_of_fragment {
        i64 version, part_count;
        struct buffer parts[SITES_MOST];
        double opened_s; /* when the first part of the open round came */
    } of[ROUNDS_FRAGMENTS];
};
enum rounds_verdict { ROUNDS_TAKEN, ROUNDS_LATE, ROUNDS_TWICE, ROUNDS_STRANGE };

void rounds_release(struct rounds *rounds);
/* The site's number; -1 and a message if one of that name is here, or if there are too many. */
i64 rounds_join(struct rounds *rounds, const char *name, const i64 *versions);
void rounds_leave(struct rounds *rounds, i64 site); /* its parts stay */
i64 rounds_here(const struct rounds *rounds);
bool rounds_knows(const struct rounds *rounds, const char *name); /* a site of that name has been here */
bool rounds_has_part(const struct rounds *rounds, i64 fragment, const char *name); /* of the open round */
/* Takes a checked part of a site for a round. */
enum rounds_verdict rounds_add(struct rounds *rounds, i64 site, i64 fragment, i64 round, const void *part, i64 bytes,
                               double now_s);
bool rounds_closes(const struct rounds *rounds, i64 fragment, double now_s);
/* Closes the open round. The parts stay in of[fragment] until rounds_done. Sites that were up to date are so again. */
void rounds_close(struct rounds *rounds, i64 fragment);
void rounds_done(struct rounds *rounds, i64 fragment);
/* The anchor is another one now: drops the parts of the open round. */
void rounds_set(struct rounds *rounds, i64 fragment, i64 version);
#endif
