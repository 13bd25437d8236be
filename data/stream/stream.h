/* A stream: shards that are prepared while a run reads them. The stage `prepare` with `stream.on`
 * writes a folder like a shard folder, without the shards:
 *
 *   shards.json, text/ vision/ audio/   as in a shard folder
 *   stream.json                         the recipe of the shards: prepare settings, seed, precision
 *
 * The reader keeps a ring: a folder of closed shards, with a subfolder for each partition of the
 * stream:
 *
 *   RING/0/00000012/   index, 00000.shard: one shard of partition 0 and an index of only that shard
 *   RING/0/end.json    the number of shards of the partition, once it is known
 *   RING/0/making-B/   prepare's working folder in the pass whose first shard is number B
 *   RING/0/reader-R    position of reader R, if there are several: a shard number
 *
 * One process per partition fills the ring, up to a bounded number of shards ahead of the reader.
 * The reader sends it the number of its current shard (i64) over a socket, which is the filler's
 * stdin; the first message is the first shard needed at all. The filler ends with the reader. A
 * killed filler is restarted and produces the same bytes. The shards of pass P repeat those of
 * pass 0, numbered on. A closed shard appears atomically, by a rename.
 *
 * Several processes may read one ring (ring_read_as). Each starts its own fillers; the first one
 * fills the partition while the others wait for its lock, and it stays within the bound ahead of
 * the slowest reader. A shard is removed once all readers have passed it. If a reader goes back to
 * a removed shard, it is made again.
 *
 * Where is what: ring.c is the reader's side, ring_fill.c the process that fills one partition by
 * running prepare or asking servers, ring_partition.c the files of a partition, and what a killed
 * filler left. tokens.h is the protocol of `weft serve-tokens`: tokens.c has its messages and
 * checks, tokens_serve.c answers over HTTP, tokens_fetch.c asks and receives. A ring owns its
 * fillers, and ring_close ends them; the files stay. */
#ifndef WEFT_DATA_STREAM_H
#define WEFT_DATA_STREAM_H
#include "data/prepare/prepare.h"

/* Identifies a ring to a server: the run, and the reader among the run's readers (one for all
 * ranks, or one per machine). */
struct ring_name {
    u64 run;
    i64 reader, readers;
};

/* ---- The reader's side: ring.c ---- */
struct ring;
/* Opens a ring on `directory`. filler: the command line of the filler, NULL-terminated and
 * borrowed, to which the ring appends --fill DIR --part I/N STREAM. filler NULL: another process
 * fills the ring, this one only reads it. */
struct ring *ring_open(const char *directory, const char *stream, const char *const *filler);
/* Tells the fillers to end, without waiting for them. True once they have. */
bool ring_stop(struct ring *ring);
void ring_close(struct ring *ring); /* ends the fillers; keeps the content */
/* Registers as reader `reader` of several. The filler's command line must hold --readers N; the
 * fillers remove the shards that all readers have passed. */
void ring_read_as(struct ring *ring, i64 reader);
i64 ring_partitions(const struct ring *ring);
/* Looks for shard `number` of a pass, and has it made. Returns RING_SHARD and its folder (memory_free),
 * RING_ENDED if the partition has no more shards, RING_MAKING if it is not closed yet, or -1 with a
 * message. ring_shard waits until it is. */
enum { RING_SHARD, RING_ENDED, RING_MAKING };
int ring_look(char **directory, struct ring *ring, i64 partition, i64 pass, i64 number);
int ring_shard(char **directory, struct ring *ring, i64 partition, i64 pass, i64 number);
int ring_passed(struct ring *ring, i64 partition, i64 pass, i64 number); /* drops shards before `number` */
bool ring_keeps(const struct ring *ring);                                /* stream.keep: passed shards are kept */
i64 ring_shards(const struct ring *ring, i64 partition);                 /* -1: not known yet */
double ring_waited_s(const struct ring *ring);                           /* total waiting time */
i64 ring_restarts(const struct ring *ring);                              /* restarts of killed fillers */

/* ---- The filler's side: ring_fill.c ---- */
/* Fills a partition of a ring until the reader at the other end of `control` is gone. Returns 1
 * then, or -1 with a message. */
struct ring_request {
    const char *directory, *stream; /* directory: the partition's folder */
    const char *data;               /* path of the stream's sources on this machine; NULL: as in the stream */
    i64 partition;
    i64 readers; /* 0: a sole reader, which removes passed shards itself */
    int control;
    /* Addresses of weft serve-tokens, separated by spaces or commas. NULL: runs prepare itself. */
    const char *servers;
    struct ring_name name; /* the ring's name for the servers */
    struct device *device;
};
int ring_fill(const struct ring_request *request);

/* ring_partition.c: the files in a partition of a ring. */
char *ring_shard_path(const char *directory, i64 number); /* free with memory_free */
bool ring_has(const char *directory, i64 number);
i64 ring_end(const char *directory); /* shards of the partition; -1: not known yet */
int ring_set_end(const char *directory, i64 shards);
i64 ring_first_missing(const char *directory, i64 first);
/* Adds shard `number`: moves the shard file in and writes its index. */
int ring_put(const char *directory, i64 number, const char *shard, const struct buffer *index);
int ring_remove_before(const char *directory, i64 number);
int ring_put_reader(const char *directory, i64 reader, i64 number);
/* Position of the slowest of `count` readers, -1 if none has registered. *all: every reader has. */
i64 ring_slowest(bool *all, const char *directory, i64 count);
int ring_recover(const char *directory); /* finishes or removes what a killed process left */
#endif
