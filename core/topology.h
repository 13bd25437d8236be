/* CPU and NUMA topology: the CPUs this process may use and the memory nodes they belong to, as
 * Linux reports them. */
#ifndef WEFT_CORE_TOPOLOGY_H
#define WEFT_CORE_TOPOLOGY_H
#include "core/core.h"

enum { CPUS_MOST = WORKERS_MOST, NODES_MOST = 64 };
struct cpu_place {
    int cpu, node; /* cpu -1: not bound to a CPU */
};

/* Chooses CPUs for `count` workers, sorted by node. Uses a second hardware thread of a core only
 * after every core has one worker.
 * may_run is [CPUS_MOST]; root is /sys/devices/system, or a test directory in its format. A CPU
 * that is not described there is a core of its own on node 0. Returns the number of places:
 * `count`, or fewer if there are fewer CPUs. */
int topology_places(struct cpu_place *places, int count, const bool *may_run, const char *root);

/* Stores the calling thread's affinity mask in may_run [CPUS_MOST]. Returns the number of CPUs. */
int topology_mask(bool *may_run);

/* Binds the calling thread to these CPUs. A refusal by the system has no effect. */
void topology_bind(const bool *cpus);

/* Interleaves pages that the calling thread, or a thread it starts later, touches first over
 * `nodes` (bit mask). nodes = 0 restores the default, the nearest node. A policy set with numactl
 * takes precedence. Returns true if the policy was changed. */
bool topology_spread(u64 nodes);

/* Starts a pool of `count` workers without pinning them. The nodes in `places` only determine the
 * groups. */
void workers_start_at(const struct cpu_place *places, int count);

#endif
