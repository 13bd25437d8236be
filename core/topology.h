/* Where this process may run: CPUs and the memories (NUMA nodes) they are near to, as Linux describes them. */
#ifndef WEFT_CORE_TOPOLOGY_H
#define WEFT_CORE_TOPOLOGY_H
#include "core/core.h"

enum { CPUS_MOST = 1024, NODES_MOST = 64 };
struct cpu_place {
    int cpu, node; /* cpu -1: anywhere */
};

/* The places of `count` workers, node by node; a second hardware thread of a core comes only when every core has work.
 * may_run [CPUS_MOST]; root: /sys/devices/system, or what stands for it. What is not described there is node 0 and a
 * core of its own. Returns how many there are: at most `count`, fewer where there are fewer CPUs. */
int topology_places(struct cpu_place *places, int count, const bool *may_run, const char *root);

/* CPUs of the calling thread's mask into may_run [CPUS_MOST]; returns their number. */
int topology_mask(bool *may_run);

/* Holds the calling thread to these CPUs; the system's refusal changes nothing. */
void topology_hold(const bool *cpus);

/* Pages that the calling thread touches first come from each of the nodes in turn (nodes: a bit each), of threads it
 * starts too; 0: from the nearest, which is how threads begin. A policy that numactl set stays. Whether it is so. */
bool topology_spread(u64 nodes);

/* A pool of this many workers on these places, which nothing holds there: groups follow from the nodes. */
void workers_start_at(const struct cpu_place *places, int count);

#endif
