/* Placements of experts on expert ranks by their use. */
#include "dist/dist.h"
#include "tests/test.h"

enum { EXPERTS = 8 };

static void expect_placement(const double *use, i64 ranks, const i32 *expected)
{
    i32 placement[EXPERTS];
    placement_by_use(placement, use, 1, EXPERTS, ranks);
    for (i64 i = 0; i < EXPERTS; i++)
        if (placement[i] != expected[i])
            fail_msg("%lld ranks: place %lld has expert %d, expected %d", (long long)ranks, (long long)i, placement[i],
                     expected[i]);
    assert_true(placement_is_right(placement, 1, EXPERTS, ranks));
}

/* By hand, with the loads of the ranks behind each turn. */
TEST(the_most_used_go_to_the_least_loaded_rank_first)
{
    /* 9 -> 0; 7 -> 1; 6 -> 1 (9, 13); 5 -> 0 (14, 13); 4 -> 1 (14, 17); 3 -> 0 (17, 17); 2 -> 0 (19, 17); 1 -> 1 */
    const double uneven[EXPERTS] = {3, 9, 1, 7, 2, 6, 4, 5};
    expect_placement(uneven, 2, (const i32[]){0, 1, 4, 7, 2, 3, 5, 6});
    /* 9 : 7 : 6 : 5, then 4 -> 3, 3 -> 2, 2 -> 1, 1 -> 0 */
    expect_placement(uneven, 4, (const i32[]){1, 2, 3, 4, 0, 5, 6, 7});
    expect_placement(uneven, 8, (const i32[]){1, 3, 5, 7, 6, 0, 4, 2});
    /* 90 fills no rank: the others go to 1 until it has four */
    const double one[EXPERTS] = {1, 1, 1, 1, 1, 90, 1, 1};
    expect_placement(one, 2, (const i32[]){4, 5, 6, 7, 0, 1, 2, 3});
}

TEST(without_use_experts_lie_in_a_row)
{
    const double none[2 * EXPERTS] = {0};
    i32 placement[2 * EXPERTS];
    for (i64 ranks = 1; ranks <= EXPERTS; ranks *= 2) {
        placement_by_use(placement, none, 2, EXPERTS, ranks);
        assert_true(placement_is_in_a_row(placement, 2, EXPERTS));
        assert_true(placement_is_right(placement, 2, EXPERTS, ranks));
    }
    placement[EXPERTS] = 1;
    placement[EXPERTS + 1] = 0;
    assert_false(placement_is_in_a_row(placement, 2, EXPERTS));
}

/* All placements with as many experts a rank are tried. */
static double busiest(const double *use, const i32 *placement, i64 ranks)
{
    double most = 0;
    for (i64 r = 0; r < ranks; r++) {
        double load = 0;
        for (i64 i = 0; i < EXPERTS / ranks; i++)
            load += use[placement[r * (EXPERTS / ranks) + i]];
        most = load > most ? load : most;
    }
    return most;
}

TEST(the_busiest_rank_is_close_to_the_best_possible)
{
    const struct rng_key key = {3, RNG_TEST};
    for (u32 draw = 0; draw < 200; draw++) {
        double use[EXPERTS], best = 1e9;
        i32 placement[EXPERTS], half[EXPERTS];
        for (u32 e = 0; e < EXPERTS; e++)
            use[e] = rng_uniform(key, draw, e, 0, 0);
        placement_by_use(placement, use, 1, EXPERTS, 2);
        for (unsigned set = 0; set < 1U << EXPERTS; set++) {
            i64 in = 0, out = EXPERTS / 2;
            if (__builtin_popcount(set) != EXPERTS / 2)
                continue;
            for (i32 e = 0; e < EXPERTS; e++)
                half[set >> e & 1 ? in++ : out++] = e;
            double load = busiest(use, half, 2);
            best = load < best ? load : best;
        }
        assert_true(placement_is_right(placement, 1, EXPERTS, 2));
        assert_true(busiest(use, placement, 2) <= 4.0 / 3 * best);
    }
}

TEST(wrong_placements_are_noticed)
{
    static const i32 wrong[][EXPERTS] = {
        {0, 1, 2, 3, 4, 5, 6, 6}, {0, 1, 2, 3, 4, 5, 6, 8}, {-1, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 2, 3, 4, 5, 6, 7}};
    for (i64 i = 0; i < COUNT_OF(wrong); i++)
        assert_false(placement_is_right(wrong[i], 1, EXPERTS, 2));
    assert_true(placement_is_right((const i32[]){4, 5, 6, 7, 0, 1, 2, 3}, 1, EXPERTS, 2));
    assert_false(placement_is_right((const i32[]){4, 5, 6, 7, 0, 1, 2, 3}, 1, EXPERTS, 1)); /* not ascending on one */
    assert_false(placement_is_right((const i32[]){0, 1, 2, 3, 4, 5, 6, 7}, 1, EXPERTS, 3));
}

int main(void)
{
    return tests_run(NULL, NULL);
}
