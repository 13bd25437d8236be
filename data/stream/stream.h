/* A stream: shards that are prepared while somebody reads them. A stage `prepare` with `stream.on` makes a folder like
 * a shard folder in which the shards are missing:
 *
 *   shards.json, text/ vision/ audio/   as in one
 *   stream.json                         how to make the shards: settings of prepare, seed, precision
 *
 * Whoever reads it keeps a ring, a folder of closed shards with a part of it for each of the stream's parts:
 *
 *   RING/0/00000012/   index, 00000.shard: a shard of part 0, and the index of it alone
 *   RING/0/end.json    once it is known: how many shards the part has
 *   RING/0/making-P/   what prepare is at, in pass P
 *   RING/0/reader-R    where reader R is, if there are several: the number of a shard
 *
 * A process of its own fills each part, at most so many shards ahead of the reader, which tells it over a socket, its
 * stdin, which shard it is at: i64 each, the first time the first one that is wanted at all. It is ended with the
 * reader; killed, it is started again, and goes on to the same bytes. The shards of pass P are those of pass 0 once
 * more, numbered on. What is closed appears whole, by a rename.
 *
 * Several processes may read one ring (ring_read_as): each has processes of its own that would fill it, of which the
 * first does while the others wait for its lock, at most so many shards ahead of the slowest reader. Shards go once all
 * are past them; a reader that comes back at one that has gone has it made again. */
#ifndef WEFT_DATA_STREAM_H
#define WEFT_DATA_STREAM_H
#include "data/prepare/prepare.h"

/* A ring to those who are asked for its shards: of which run it is, and which of the run's, one for all ranks or one a
 * machine. */
struct ring_name {
    u64 run;
    i64 reader, readers;
};

/* ---- The reader's side: ring.c ---- */
struct ring;
/* filler: the words of a program, NULL at the end, behind which come --fill DIR --part I/N STREAM; borrowed. NULL:
 * another process has the ring filled, this one looks on. */
struct ring *ring_open(const char *directory, const char *stream, const char *const *filler);
void ring_close(struct ring *ring); /* ends what fills it; what is in it stays */
/* As one of several, whom the filler's words (--readers N) know of; what it is past, they remove. */
void ring_read_as(struct ring *ring, i64 reader);
i64 ring_parts(const struct ring *ring);
/* Waits until shard `number` of a pass is closed: 0, and its folder (memory_free); 1: the part has no more; -1 and a
 * message. */
int ring_shard(char **directory, struct ring *ring, i64 part, i64 pass, i64 number);
int ring_passed(struct ring *ring, i64 part, i64 pass, i64 number); /* shards before it are not wanted any more */
bool ring_keeps(const struct ring *ring);                           /* them all the same: stream.keep */
i64 ring_shards(const struct ring *ring, i64 part);                 /* -1: not known yet */
/* Called while a shard is waited for, some times a second; -1 and a message: no more. */
void ring_while_waiting(struct ring *ring, int (*call)(void *context), void *context);
double ring_waited_s(const struct ring *ring); /* so far */
i64 ring_restarts(const struct ring *ring);    /* of processes that were killed */

/* ---- Its other end: ring_fill.c ---- */
/* Fills a part of a ring until the reader, at the other end of `control`, is gone: 1; -1 with a message. */
struct ring_request {
    const char *directory, *stream; /* directory: of the part */
    const char *data;               /* where the stream's sources stand here; NULL: where it says */
    i64 part;
    i64 readers; /* 0: the one that `control` belongs to, which removes itself what it has passed */
    int control;
    const char *servers;   /* addresses of weft serve-tokens, white space or commas between; NULL: it prepares itself */
    struct ring_name name; /* what servers know the ring by */
    struct device *device;
};
int ring_fill(const struct ring_request *request);

/* ring_part.c: what stands in a part of a ring. */
char *ring_shard_path(const char *directory, i64 number); /* memory_free */
bool ring_has(const char *directory, i64 number);
i64 ring_end(const char *directory); /* shards of the part; -1: not known yet */
int ring_set_end(const char *directory, i64 shards);
i64 ring_first_missing(const char *directory, i64 first);
/* The shard's file is moved there. */
int ring_put(const char *directory, i64 number, const char *shard, const struct text *index);
int ring_remove_before(const char *directory, i64 number);
int ring_put_reader(const char *directory, i64 reader, i64 number);
/* Of `count` readers; *all: each has said where it is. -1: none has. */
i64 ring_slowest(bool *all, const char *directory, i64 count);
int ring_mend(const char *directory); /* what a killed process was putting there: finished, or removed */
#endif
