/* Latency and bandwidth of the links between ranks, call after call, so what a call takes from the processor is in it.
 * Of latency each rank sends to the next one that it has such a link to, of bandwidth to all. */
#include "dist/cluster.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 5, FEW = 20, CALL_BYTES = 64, TRANSFER_BYTES = 1 << 20 };
#define SECONDS_LEAST 0.5

struct probe { /* of the links of one kind */
    struct comm *host;
    const i64 *host_of;
    bool far;
    bool alone; /* to the next of them alone */
    i64 peers;  /* ranks that this one has such a link to */
    char *out, *in;
};

/* Of all threads: what is sent is written by another one. */
static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool is_peer(const struct probe *p, i64 of, i64 rank)
{
    return rank != of && (p->host_of[rank] != p->host_of[of]) == p->far;
}

static i64 next_peer(const struct probe *p, i64 of)
{
    i64 size = p->host->size, next = (of + 1) % size;
    while (next != of && !is_peer(p, of, next))
        next = (next + 1) % size;
    return next;
}

/* `bytes` altogether to the peers, and as many from them. */
static void exchange(struct probe *p, i64 bytes)
{
    struct comm *c = p->host;
    i64 each = p->peers ? bytes / (p->alone ? 1 : p->peers) : 0, own = c->rank, in = 0, out = 0;
    for (i64 r = 0; r < c->size; r++) {
        bool to = is_peer(p, own, r) && (!p->alone || next_peer(p, own) == r),
             from = is_peer(p, own, r) && (!p->alone || next_peer(p, r) == own);
        c->in[r] = (struct span){p->in + in, to ? each : 0};
        c->out[r] = (struct span){p->out + out, from ? each : 0};
        in += to ? each : 0;
        out += from ? each : 0;
    }
    if (p->peers)
        comm_exchange(c, c->out, c->in);
}

/* Mean over the ranks that have such links. */
static double mean_over(const struct probe *p, double value)
{
    double sums[2] = {p->peers ? value : 0, p->peers > 0};
    comm_all_reduce(p->host, sums, 2, DTYPE_F64);
    return sums[0] / fmax(sums[1], 1);
}

/* Seconds of a call of `bytes`, and those of the processor. */
static double calls_s(struct probe *p, i64 calls, i64 bytes, double *used_s)
{
    comm_barrier(p->host);
    double begin_s = clock_s(), begin_cpu_s = cpu_s();
    for (i64 i = 0; i < calls; i++)
        exchange(p, bytes);
    *used_s = (cpu_s() - begin_cpu_s) / (double)calls;
    return (clock_s() - begin_s) / (double)calls;
}

/* The least of a few loops, since other load only adds to them; *used_s of the same one. */
static double call_s(struct probe *p, i64 bytes, double *used_s)
{
    double least_s = INFINITY, of_loop_s, few_s = mean_over(p, calls_s(p, FEW, bytes, used_s));
    i64 calls = (i64)fmax(FEW, SECONDS_LEAST / fmax(few_s, 1e-7)); /* the same on all ranks */
    for (int i = 0; i < REPEATS; i++) {
        double seconds = mean_over(p, calls_s(p, calls, bytes, &of_loop_s));
        *used_s = seconds < least_s ? of_loop_s : *used_s;
        least_s = fmin(least_s, seconds);
    }
    return least_s;
}

/* Seconds that pass while this thread computes for one: more if others have the processor, or a limit of it. */
static double slowness(struct probe *p)
{
    volatile i64 turns = 0; /* keeps the loop */
    double begin_s = clock_s(), begin_cpu_s = cpu_s();
    while (clock_s() - begin_s < SECONDS_LEAST)
        for (int i = 0; i < 1000; i++)
            turns = turns + 1;
    return mean_over(p, (clock_s() - begin_s) / (cpu_s() - begin_cpu_s));
}

/* What all ranks of this host send, if each sends `own`; of the host that sends least. */
static double of_host(struct probe *p, double own)
{
    struct comm *c = p->host;
    double rates[c->size], least = INFINITY;
    memset(rates, 0, sizeof rates);
    if (p->peers)
        rates[p->host_of[c->rank]] = own;
    comm_all_reduce(c, rates, c->size, DTYPE_F64);
    for (i64 h = 0; h < c->size; h++)
        least = rates[h] > 0 ? fmin(least, rates[h]) : least;
    return least;
}

static void measure(struct cluster_link *out, struct comm *host, const i64 *host_of, bool far)
{
    struct probe p = {.host = host, .host_of = host_of, .far = far};
    double used_s;
    for (i64 r = 0; r < host->size; r++)
        p.peers += r != host->rank && (host_of[r] != host_of[host->rank]) == far;
    p.out = memory_alloc(TRANSFER_BYTES);
    p.in = memory_alloc(TRANSFER_BYTES);
    p.alone = true;
    out->latency_s = call_s(&p, CALL_BYTES, &used_s);
    p.alone = false;
    double long_s = call_s(&p, TRANSFER_BYTES, &used_s),
           rate = TRANSFER_BYTES / fmax(long_s - out->latency_s, 0.1 * long_s);
    out->bytes_per_s = far ? of_host(&p, rate) : rate;
    out->busy = fmin(1, slowness(&p) * mean_over(&p, used_s) / long_s);
    memory_free(p.out);
    memory_free(p.in);
}

void cluster_measure_links(struct cluster *cluster, struct comm *world, const i64 *host_of)
{
    struct comm *host = comm_host(world);
    bool has[2] = {false, false};
    for (i64 r = 0; r < host->size; r++)
        for (i64 s = 0; s < r; s++)
            has[host_of[r] != host_of[s]] = true;
    for (int far = 0; far < 2; far++)
        if (has[far])
            measure(far ? &cluster->far : &cluster->near, host, host_of, far);
}
