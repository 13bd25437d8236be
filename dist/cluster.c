#include "dist/cluster.h"

#include "core/settings.h"

#include <stdio.h>
#include <string.h>

struct host_line {
    double memory_gb;
};
struct rank_line {
    char *host;
    double speeds[WORK_KINDS]; /* GFLOP/s or GB/s */
    double call_us;
};
struct link_line {
    double latency_us, gbytes, busy;
};
#define LOW 1e-9
#define HIGH 1e12
static const struct setting host_table[] = {SETTING(struct host_line, memory_gb, "memory_gb", NUMBER, NULL, LOW, HIGH,
                                                    NULL, "GB that its ranks may use together"),
                                            {0}};
#define SPEED(kind, key, help) SETTING(struct rank_line, speeds[kind], key, NUMBER, NULL, LOW, HIGH, NULL, help)
static const struct setting rank_table[] = {
    SETTING(struct rank_line, host, "host", STRING, NULL, 0, 0, NULL, "name of one of the hosts"),
    SPEED(WORK_PRODUCTS, "products_gflops", "GFLOP/s of dense products"),
    SPEED(WORK_EXPERTS, "experts_gflops", "GFLOP/s of products of experts"),
    SPEED(WORK_ATTENTION, "attention_gflops", "GFLOP/s of attention"),
    SPEED(WORK_UPDATE, "update_gbytes", "GB/s of the optimizer"),
    SPEED(WORK_OTHER, "other_gbytes", "GB/s of all other ops"),
    SETTING(struct rank_line, call_us, "call_us", NUMBER, "0", 0, 1e9, NULL, "microseconds between ops"),
    {0}};
static const struct setting link_table[] = {
    SETTING(struct link_line, latency_us, "latency_us", NUMBER, NULL, 0, 1e9, NULL, "microseconds of a message"),
    SETTING(struct link_line, gbytes, "gbytes", NUMBER, NULL, LOW, HIGH, NULL, "GB/s"),
    SETTING(struct link_line, busy, "busy", NUMBER, "0", 0, 1, NULL,
            "share of a transfer in which the rank cannot compute"),
    {0}};
static const char *const parts[] = {"hosts", "ranks", "links", NULL};
static const char *const link_names[] = {"same_host", "other_host", NULL};

static bool is_one_of(const char *word, const char *const *names)
{
    while (*names && strcmp(*names, word) != 0)
        names++;
    return *names;
}

static int check_keys(const struct yaml_node *mapping, const char *const *known, const char *expected)
{
    for (i64 i = 0; i < yaml_count(mapping); i++)
        if (!is_one_of(yaml_key(mapping, i), known))
            return error_usage("%s: unknown key \"%s\": expected %s", yaml_key_where(mapping, i), yaml_key(mapping, i),
                               expected);
    return 0;
}

static int read_hosts(struct cluster *c, const struct yaml_node *hosts)
{
    c->hosts = memory_alloc(max_i64(yaml_count(hosts), 1) * (i64)sizeof *c->hosts);
    for (; c->host_count < yaml_count(hosts); c->host_count++) {
        struct host_line line = {0};
        if (settings_read(&line, host_table, yaml_value(hosts, c->host_count), NULL, NULL, 0))
            return error_prefix("host %s", yaml_key(hosts, c->host_count));
        c->hosts[c->host_count] =
            (struct cluster_host){string_copy(yaml_key(hosts, c->host_count)), (i64)(line.memory_gb * 1e9)};
    }
    return 0;
}

static int read_rank(struct cluster *c, const struct yaml_node *node)
{
    struct rank_line line = {0};
    struct cluster_rank *rank = &c->ranks[c->count];
    int status = settings_read(&line, rank_table, node, NULL, NULL, 0);
    if (status == 0) {
        *rank = (struct cluster_rank){.call_s = line.call_us * 1e-6};
        for (int k = 0; k < WORK_KINDS; k++)
            rank->per_s[k] = line.speeds[k] * 1e9;
        while (rank->host < c->host_count && strcmp(c->hosts[rank->host].name, line.host) != 0)
            rank->host++;
        if (rank->host == c->host_count)
            status = error_usage("%s: host \"%s\" is none of `hosts`", yaml_where(node), line.host);
    }
    settings_release(&line, rank_table);
    return status ? error_prefix("rank %lld", (long long)c->count) : 0;
}

static int read_ranks(struct cluster *c, const struct yaml_node *ranks)
{
    bool used[c->host_count + 1];
    memset(used, 0, sizeof used);
    c->ranks = memory_alloc(max_i64(yaml_count(ranks), 1) * (i64)sizeof *c->ranks);
    for (; c->count < yaml_count(ranks); c->count++) {
        if (read_rank(c, yaml_value(ranks, c->count)))
            return -1;
        used[c->ranks[c->count].host] = true;
    }
    for (i64 h = 0; h < c->host_count; h++)
        if (!used[h])
            return error_usage("%s: host %s has no rank: expected one in `ranks`, or no such host", yaml_where(ranks),
                               c->hosts[h].name);
    return 0;
}

/* Whether two ranks lie on one host, or on two. */
static bool has_pairs(const struct cluster *c, bool far)
{
    for (i64 r = 0; r < c->count; r++)
        for (i64 s = 0; s < r; s++)
            if ((c->ranks[r].host != c->ranks[s].host) == far)
                return true;
    return false;
}

static int read_links(struct cluster *c, const struct yaml_node *links, const struct yaml_node *root)
{
    struct cluster_link *const all[] = {&c->near, &c->far};
    if (check_keys(links, link_names, "same_host or other_host"))
        return -1;
    for (int i = 0; i < 2; i++) {
        const struct yaml_node *node = yaml_get(links, link_names[i]);
        struct link_line line = {0};
        if (!node && has_pairs(c, i))
            return error_usage("%s: links.%s is missing: %s", yaml_where(links ? links : root), link_names[i],
                               i ? "the ranks lie on several hosts" : "a host has several ranks");
        if (!node)
            continue;
        if (settings_read(&line, link_table, node, NULL, NULL, 0))
            return error_prefix("links.%s", link_names[i]);
        *all[i] = (struct cluster_link){line.latency_us * 1e-6, line.gbytes * 1e9, line.busy};
    }
    return 0;
}

static int read_cluster(struct cluster *c, const struct yaml_node *root, const char *path)
{
    const struct yaml_node *hosts = yaml_get(root, "hosts"), *ranks = yaml_get(root, "ranks");
    if (!yaml_is_mapping(root))
        return error_usage("%s: expected a mapping with hosts, ranks and links, as `weft doctor --ranks` writes it",
                           path);
    if (check_keys(root, parts, "hosts, ranks or links"))
        return -1;
    if (!yaml_is_mapping(hosts) || !yaml_is_sequence(ranks) || yaml_count(ranks) == 0)
        return error_usage("%s: expected `hosts`, a mapping, and `ranks`, a list with at least one rank",
                           yaml_where(root));
    if (yaml_count(ranks) > WORLD_MOST)
        return error_usage("%s: %lld ranks: expected at most %d", yaml_where(ranks), (long long)yaml_count(ranks),
                           WORLD_MOST);
    if (yaml_get(root, "links") && !yaml_is_mapping(yaml_get(root, "links")))
        return error_usage("%s: links: expected a mapping", yaml_where(root));
    return read_hosts(c, hosts) || read_ranks(c, ranks) ? -1 : read_links(c, yaml_get(root, "links"), root);
}

int cluster_load(struct cluster *c, const char *path)
{
    struct yaml *yaml = yaml_load(path);
    *c = (struct cluster){0};
    int status = yaml ? read_cluster(c, yaml_root(yaml), path) : -1;
    yaml_free(yaml);
    if (status)
        cluster_release(c);
    return status;
}

static void print_link(struct buffer *out, const char *name, const struct cluster_link *link)
{
    if (link->bytes_per_s > 0)
        buffer_printf(out, "  %s: {latency_us: %.4g, gbytes: %.4g, busy: %.2f}\n", name, link->latency_s * 1e6,
                      link->bytes_per_s * 1e-9, link->busy);
}

void cluster_print(struct buffer *out, const struct cluster *c)
{
    buffer_printf(out, "hosts:\n");
    for (i64 h = 0; h < c->host_count; h++)
        buffer_printf(out, "  %s: {memory_gb: %.3f}\n", c->hosts[h].name, (double)c->hosts[h].memory_bytes * 1e-9);
    buffer_printf(out, "ranks:\n");
    for (i64 r = 0; r < c->count; r++) {
        const struct cluster_rank *k = &c->ranks[r];
        buffer_printf(out, "  - {host: %s", c->hosts[k->host].name);
        for (int i = 0; i < WORK_KINDS; i++)
            buffer_printf(out, ", %s: %.4g", rank_table[1 + i].key, k->per_s[i] * 1e-9);
        buffer_printf(out, ", call_us: %.3g}\n", k->call_s * 1e6);
    }
    if (c->near.bytes_per_s > 0 || c->far.bytes_per_s > 0)
        buffer_printf(out, "links:\n");
    print_link(out, link_names[0], &c->near);
    print_link(out, link_names[1], &c->far);
}

void cluster_release(struct cluster *c)
{
    for (i64 h = 0; h < c->host_count; h++)
        memory_free(c->hosts[h].name);
    memory_free(c->hosts);
    memory_free(c->ranks);
    *c = (struct cluster){0};
}

u64 *cluster_machines(const struct cluster *c)
{
    u64 *names = memory_alloc(c->count * (i64)sizeof *names);
    for (i64 r = 0; r < c->count; r++)
        names[r] = (u64)c->ranks[r].host;
    return names;
}
