#define _GNU_SOURCE
#include "core/topology.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Parses a CPU list in the kernel's format, 0-3,8,10-11. False if the file does not exist. */
static bool read_list(bool *is_in, const char *path)
{
    char line[4096] = "";
    FILE *file = fopen(path, "re");
    memset(is_in, 0, CPUS_MOST * sizeof *is_in);
    if (!file)
        return false;
    const char *at = fgets(line, sizeof line, file);
    fclose(file);
    while (at && *at) {
        char *end;
        long first = strtol(at, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (end == at)
            break;
        for (long cpu = max_i64(first, 0); cpu <= last && cpu < CPUS_MOST; cpu++)
            is_in[cpu] = true;
        at = *end == ',' ? end + 1 : "";
    }
    return true;
}

static void read_nodes(int *node, const char *root)
{
    bool is_in[CPUS_MOST];
    memset(node, 0, CPUS_MOST * sizeof *node);
    for (int i = 0; i < NODES_MOST; i++) {
        char *path = string_format("%s/node/node%d/cpulist", root, i);
        bool there = read_list(is_in, path);
        memory_free(path);
        for (int cpu = 0; there && cpu < CPUS_MOST; cpu++)
            if (is_in[cpu])
                node[cpu] = i;
    }
}

/* Number of runnable hardware threads of the same core that precede this one. */
static int thread_of_core(int cpu, const bool *may_run, const char *root)
{
    bool is_in[CPUS_MOST];
    char *path = string_format("%s/cpu/cpu%d/topology/thread_siblings_list", root, cpu);
    int before = 0;
    if (read_list(is_in, path))
        for (int other = 0; other < cpu; other++)
            before += is_in[other] && may_run[other];
    memory_free(path);
    return before;
}

struct topology_candidate {
    struct cpu_place place;
    int thread;
};

static int by_thread_and_node(const void *a, const void *b)
{
    const struct topology_candidate *x = a, *y = b;
    int order = x->thread != y->thread ? x->thread - y->thread : x->place.node - y->place.node;
    return order ? order : x->place.cpu - y->place.cpu;
}

static int by_node(const void *a, const void *b)
{
    const struct cpu_place *x = a, *y = b;
    return x->node != y->node ? x->node - y->node : x->cpu - y->cpu;
}

int topology_places(struct cpu_place *places, int count, const bool *may_run, const char *root)
{
    int node[CPUS_MOST], found = 0;
    struct topology_candidate *all = memory_alloc(CPUS_MOST * (i64)sizeof *all);
    read_nodes(node, root);
    for (int cpu = 0; cpu < CPUS_MOST; cpu++)
        if (may_run[cpu])
            all[found++] = (struct topology_candidate){{cpu, node[cpu]}, thread_of_core(cpu, may_run, root)};
    qsort(all, (size_t)found, sizeof *all, by_thread_and_node);
    count = (int)min_i64(count, found);
    for (int i = 0; i < count; i++)
        places[i] = all[i].place;
    qsort(places, (size_t)count, sizeof *places, by_node);
    memory_free(all);
    return count;
}

int topology_mask(bool *may_run)
{
    cpu_set_t set;
    bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int count = 0;
    for (int cpu = 0; cpu < CPUS_MOST; cpu++)
        count += may_run[cpu] = known ? CPU_ISSET(cpu, &set) : cpu < online;
    return count;
}

void topology_bind(const bool *cpus)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < CPUS_MOST; cpu++)
        if (cpus[cpu])
            CPU_SET(cpu, &set);
    (void)!sched_setaffinity(0, sizeof set, &set);
}

/* Uses the kernel's constants (set_mempolicy(2)) to avoid a dependency on libnuma for two calls. */
bool topology_spread(u64 nodes)
{
    enum { POLICY_DEFAULT = 0, POLICY_INTERLEAVE = 3 };
    unsigned long mask = nodes, held[16] = {0}; /* 1024 bits, the kernel's maximum number of nodes */
    int policy = -1;
    if (syscall(SYS_get_mempolicy, &policy, held, 8 * sizeof held, NULL, 0L))
        return false;
    if (nodes == 0)
        return policy == POLICY_INTERLEAVE && syscall(SYS_set_mempolicy, POLICY_DEFAULT, NULL, 0L) == 0;
    return policy == POLICY_DEFAULT && syscall(SYS_set_mempolicy, POLICY_INTERLEAVE, &mask, 8 * sizeof mask + 1) == 0;
}
