/* Which ranks of a comm share a machine, and how sums and gathers go within machines first. */
#include "dist/dist.h"

#include <string.h>

/* Numbers the machines in the order of their first ranks. Returns how many there are. */
static i64 number_machines(i64 *numbers, const u64 *names, i64 size)
{
    i64 *first = memory_alloc(size * (i64)sizeof *first), count = 0;
    for (i64 r = 0; r < size; r++) {
        i64 g = 0;
        while (g < count && names[first[g]] != names[r])
            g++;
        if (g == count)
            first[count++] = r;
        numbers[r] = g;
    }
    memory_free(first);
    return count;
}

/* Index, on machine g, of the rank that carries the share of a rank of another machine. `turn` is the latter's index in
 * the order of machines: shares from elsewhere go round the ranks of a machine. */
static i64 carrier_place(const i64 *start, i64 turn, i64 g)
{
    i64 ranks = start[g + 1] - start[g];
    return (turn < start[g] ? turn : turn - ranks) % ranks;
}

/* start [count + 1]: where the ranks of each machine begin in m->order. */
static void list_shares(struct comm_machines *m, const i64 *start, i64 size)
{
    i64 at = 0;
    for (i64 i = 0; i < m->near; i++) {
        m->begin[i] = at;
        m->shares[at++] = m->ranks[i];
        for (i64 turn = 0; turn < size; turn++)
            if (m->of[m->order[turn]] != m->own && carrier_place(start, turn, m->own) == i)
                m->shares[at++] = m->order[turn];
        m->rounds = max_i64(m->rounds, at - m->begin[i]);
    }
    m->begin[m->near] = at;
    for (i64 g = 0; g < m->count; g++) {
        i64 place = g == m->own ? m->place : carrier_place(start, start[m->own] + m->place, g);
        m->carriers[g] = m->order[start[g] + place];
    }
}

static i64 *numbers_alloc(i64 count)
{
    return memory_alloc(count * (i64)sizeof(i64));
}

struct comm_machines *machines_open(const u64 *names, i64 size, i64 rank)
{
    struct comm_machines *m = memory_alloc(sizeof *m);
    *m = (struct comm_machines){.of = numbers_alloc(size), .count = 1, .order = numbers_alloc(size)};
    m->count = names ? number_machines(m->of, names, size) : 1;
    if (m->count == size) {
        memset(m->of, 0, (size_t)size * sizeof *m->of);
        m->count = 1;
    }
    i64 *start = numbers_alloc(m->count + 1), turn = 0;
    for (i64 g = 0; g < m->count; g++) {
        start[g] = turn;
        for (i64 r = 0; r < size; r++) {
            m->place = r == rank && m->of[r] == g ? turn - start[g] : m->place;
            if (m->of[r] == g)
                m->order[turn++] = r;
        }
    }
    start[m->count] = turn;
    m->own = m->of[rank];
    m->near = start[m->own + 1] - start[m->own];
    m->ranks = m->order + start[m->own];
    m->begin = numbers_alloc(m->near + 1);
    m->shares = numbers_alloc(size);
    m->carriers = numbers_alloc(m->count);
    list_shares(m, start, size);
    memory_free(start);
    return m;
}

struct comm_machines *machines_of_group(const struct comm_machines *parent, const struct rank_group *group, i64 rank)
{
    u64 *names = memory_alloc(group->count * (i64)sizeof *names);
    for (i64 r = 0; r < group->count; r++)
        names[r] = (u64)parent->of[group->first + r * group->stride];
    struct comm_machines *m = machines_open(names, group->count, rank);
    memory_free(names);
    return m;
}

void machines_close(struct comm_machines *m)
{
    if (!m)
        return;
    memory_free(m->of);
    memory_free(m->order);
    memory_free(m->begin);
    memory_free(m->shares);
    memory_free(m->carriers);
    memory_free(m);
}

i64 machines_share(const struct comm_machines *m, i64 near, i64 k)
{
    i64 at = m->begin[near] + k;
    return at < m->begin[near + 1] ? m->shares[at] : -1;
}

void machines_gather(struct comm *comm, char *data, const i64 *bytes, i64 round)
{
    const struct comm_machines *m = comm_host(comm)->machines;
    struct span shares[comm->size + 1], *none = &shares[comm->size];
    *none = (struct span){data, 0};
    for (i64 r = 0; r < comm->size; data += bytes[r++]) {
        shares[r] = (struct span){data, bytes[r]};
        comm->out[r] = comm->in[r] = *none;
    }
    i64 sent = machines_share(m, m->place, round);
    for (i64 i = 0; i < m->near; i++) {
        i64 arrives = machines_share(m, i, round);
        if (i == m->place)
            continue;
        comm->in[m->ranks[i]] = sent < 0 ? *none : shares[sent];
        comm->out[m->ranks[i]] = arrives < 0 ? *none : shares[arrives];
    }
    for (i64 g = 0; g < m->count && round == 0; g++)
        if (g != m->own)
            comm->in[m->carriers[g]] = shares[comm->rank];
    for (i64 k = 1; round == 0 && (sent = machines_share(m, m->place, k)) >= 0; k++)
        comm->out[sent] = shares[sent];
}
