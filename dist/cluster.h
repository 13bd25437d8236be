/* A cluster as `weft doctor --ranks` measured it, or as somebody writes it to ask "what if", and the time of a step on
 * it.
 *
 *     hosts:
 *       node1: {memory_gb: 60}
 *     ranks:
 *       - {host: node1, products_gflops: 40, experts_gflops: 30, attention_gflops: 20, update_gbytes: 8,
 *          other_gbytes: 5, call_us: 2}
 *     links:
 *       same_host: {latency_us: 40, gbytes: 2, busy: 0.9}
 *       other_host: {latency_us: 200, gbytes: 0.118, busy: 0.2}
 *
 * In: a file; traces of the steps of all ranks (trace.h). Out: struct foreseen. */
#ifndef WEFT_DIST_CLUSTER_H
#define WEFT_DIST_CLUSTER_H
#include "dist/trace.h"

struct cluster_host {
    char *name;
    i64 memory_bytes; /* of all its ranks together */
};
struct cluster_rank {
    i64 host;                 /* index of `hosts` */
    double per_s[WORK_KINDS]; /* flops or bytes a second */
    double call_s;            /* of the host, for each op */
};
struct cluster_link {
    double latency_s; /* that a message adds to a step, beside its bytes */
    double
        bytes_per_s; /* that a rank sends to ranks of its host while they send too; or all of a host to other hosts */
    double busy;     /* share of the time of a transfer that the rank cannot compute meanwhile, 0 .. 1 */
};
struct cluster {
    struct cluster_host *hosts;
    struct cluster_rank *ranks; /* by their numbers in the world */
    i64 host_count, count;
    struct cluster_link near, far; /* bytes_per_s 0: there are no such pairs of ranks */
};
/* Returns -1 and a message with path and line: an unknown key, a rank of no host, a speed that is not above 0, no link
 * between ranks that need one. */
int cluster_load(struct cluster *cluster, const char *path);
void cluster_print(struct buffer *out, const struct cluster *cluster); /* as cluster_load reads it */
void cluster_release(struct cluster *cluster);
/* Measures the links of each kind that there is. Collective over the world; host_of [ranks]. */
void cluster_measure_links(struct cluster *cluster, struct comm *world, const i64 *host_of);
u64 *cluster_machines(const struct cluster *cluster); /* [count] for comm_open_trace; memory_free */

/* Time of a step. The three parts are means over ranks, and their sum is `seconds`. */
struct foreseen {
    double seconds;
    double computing_s; /* ops, and what buckets of gradients take from them */
    double links_s;     /* in calls of comms, of the rank that spends least there: it waits least for others */
    double waiting_s;   /* what the ranks are longer in calls than that one */
    double sent_bytes;  /* by the rank that sends most */
    double far_bytes;   /* by the host that sends most to others */
};
struct foresee_work {
    const struct cluster *cluster;
    const struct trace *traces; /* [count] of the ranks in order */
    double passes;              /* how much longer a step computes than the one of the traces (sub-models) */
    double load;                /* rows of the busiest expert rank over the mean, in the mean of layers */
    double *rank_s; /* [count], filled in: seconds that each computes without the update; NULL: not wanted */
};
/* Runs all ranks' events by the cluster's speeds. Each rank computes on its own. Messages of a rank to ranks of its
 * host go one behind the other at the speed of that link, and so do those of all ranks of a host to other hosts. A call
 * ends when all that it waits for has come. Of buckets of gradients two are under way beside the computing, as in
 * buckets.c. Returns -1 and a message if the traces do not fit together. */
int foresee(struct foreseen *out, const struct foresee_work *work);

/* ---- Beside a run ---- */
struct rank_pace;
enum { FORESEEN_SKIPS = 2, FORESEEN_STEPS = 5 };
struct foreseen_check {
    struct foreseen foreseen;              /* filled in by the caller; seconds 0: nothing was foreseen */
    struct foreseen steps[FORESEEN_STEPS]; /* as measured, without bytes */
    i64 seen;                              /* steps so far */
};
/* Adds a step; the first few are left out. all [ranks]: paces of the ranks (dist/deal.h); NULL: one rank. Fills in
 * *measured, the step of median length, and returns true once, when there are enough. */
bool foreseen_add(struct foreseen *measured, struct foreseen_check *check, double seconds, const struct rank_pace *all,
                  i64 ranks);
/* Appends both, and the part that differs most if the seconds do by more than 15 %. */
void foreseen_say(struct buffer *out, const struct foreseen *foreseen, const struct foreseen *measured);

#endif
