/* Which expert rank holds which experts. */
#include "dist/dist.h"

#include <stdlib.h>
#include <string.h>

struct expert_use {
    double use;
    i32 expert;
};

/* The most used first; of equal ones that with the lower number. */
static int by_use(const void *a, const void *b)
{
    const struct expert_use *x = a, *y = b;
    return x->use != y->use ? (x->use < y->use ? 1 : -1) : (x->expert > y->expert) - (x->expert < y->expert);
}

static int ascending(const void *a, const void *b)
{
    i32 x = *(const i32 *)a, y = *(const i32 *)b;
    return (x > y) - (x < y);
}

static void place_layer(i32 *placement, const double *use, i64 experts, i64 ranks)
{
    struct expert_use *list = memory_alloc(max_i64(experts, 1) * (i64)sizeof *list);
    double *load = memory_alloc(ranks * (i64)sizeof *load);
    i64 *held = memory_alloc(ranks * (i64)sizeof *held), own = experts / ranks;
    for (i64 e = 0; e < experts; e++)
        list[e] = (struct expert_use){use[e], (i32)e};
    qsort(list, (size_t)experts, sizeof *list, by_use);
    for (i64 i = 0; i < experts; i++) {
        i64 least = -1;
        for (i64 r = 0; r < ranks; r++)
            if (held[r] < own && (least < 0 || load[r] < load[least]))
                least = r;
        placement[least * own + held[least]++] = list[i].expert;
        load[least] += list[i].use;
    }
    for (i64 r = 0; r < ranks; r++)
        qsort(placement + r * own, (size_t)own, sizeof *placement, ascending);
    memory_free(list);
    memory_free(load);
    memory_free(held);
}

void placement_by_use(i32 *placement, const double *use, i64 layers, i64 experts, i64 ranks)
{
    require(experts % ranks == 0, "%lld experts on %lld ranks", (long long)experts, (long long)ranks);
    for (i64 l = 0; l < layers; l++)
        place_layer(placement + l * experts, use + l * experts, experts, ranks);
}

bool placement_is_in_a_row(const i32 *placement, i64 layers, i64 experts)
{
    i64 at = 0;
    while (at < layers * experts && placement[at] == at % experts)
        at++;
    return at == layers * experts;
}

bool placement_is_right(const i32 *placement, i64 layers, i64 experts, i64 ranks)
{
    u8 *seen = memory_alloc(max_i64(experts, 1));
    bool right = experts % ranks == 0;
    for (i64 l = 0; l < layers && right; l++) {
        const i32 *of = placement + l * experts;
        memset(seen, 0, (size_t)experts);
        for (i64 i = 0; i < experts && right; i++) {
            bool first = i % (experts / ranks) == 0;
            right = of[i] >= 0 && of[i] < experts && !seen[of[i]] && (first || of[i] > of[i - 1]);
            if (right)
                seen[of[i]] = 1;
        }
    }
    memory_free(seen);
    return right;
}
