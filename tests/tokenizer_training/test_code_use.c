/* Use of bits and codes: against plain counting, and what is warned of. */
#include "tests/vision_fixture.h"
#include "tokenizer_training/code_use.h"

static u32 drawn(u32 a, u32 b, u32 most)
{
    return (u32)(draw(a, b) * most);
}

/* Bits of two scales, 1 x 1 and 2 x 2: some rare, some in even use. */
TEST(bits_are_counted_by_scale)
{
    enum { FRAMES = 250, BITS = 5, TOKENS = 5 };
    const struct vision_config config = toy_config(false);
    const struct vision_shape *shape = &config.shapes[0];
    static u8 bits[FRAMES][TOKENS][BITS];
    static const double shares[BITS] = {0, 0.004, 0.5, 0.98, 1};
    struct code_use use;
    assert_int_equal(vision_tokens(shape), TOKENS);
    for (u32 f = 0; f < FRAMES; f++)
        for (u32 t = 0; t < TOKENS; t++)
            for (u32 b = 0; b < BITS; b++)
                bits[f][t][b] = draw(f * TOKENS + t, b) < shares[b];
    code_use_init(&use, true, shape->scale_count, BITS);
    code_use_add_bits(&use, bits[0][0], 100, shape);
    code_use_add_bits(&use, bits[100][0], FRAMES - 100, shape);
    for (i64 k = 0; k < 2; k++) {
        i64 first = k ? 1 : 0, end = k ? TOKENS : 1, dead = 0;
        double entropy = 0, n = (double)(FRAMES * (end - first));
        for (i64 b = 0; b < BITS; b++) {
            double ones = 0;
            for (i64 f = 0; f < FRAMES; f++)
                for (i64 t = first; t < end; t++)
                    ones += bits[f][t][b];
            double p = ones / n, q = 1 - p;
            entropy -= (p > 0 ? p * log2(p) : 0) + (q > 0 ? q * log2(q) : 0);
            assert_int_equal(code_use_is_dead(&use, k, b), p < 0.01 || q < 0.01);
            dead += p < 0.01 || q < 0.01;
        }
        assert_true(dead >= 3 && dead < BITS);
        assert_int_equal(code_use_dead(&use, k), dead);
        assert_float_equal(code_use_entropy(&use, k), entropy / BITS, 1e-12);
    }
    code_use_release(&use);
}

/* Exactly one in a hundred is not dead, and nothing counted is. */
TEST(a_bit_is_dead_below_one_in_a_hundred)
{
    struct code_use use, more;
    code_use_init(&use, true, 1, 4);
    code_use_init(&more, true, 1, 4);
    assert_int_equal(code_use_dead(&use, 0), 4);
    use.seen[0] = 200;
    use.uses[0] = 2;
    use.uses[1] = 1;
    use.uses[2] = 198;
    use.uses[3] = 199;
    for (i64 b = 0; b < 4; b++)
        assert_int_equal(code_use_is_dead(&use, 0, b), b % 2);
    more.seen[0] = 100;
    more.uses[1] = 2;
    code_use_join(&use, &more);
    assert_int_equal(use.seen[0], 300);
    assert_int_equal(use.uses[1], 3);
    assert_false(code_use_is_dead(&use, 0, 1));
    assert_true(code_use_is_dead(&use, 0, 0));
    code_use_release(&use);
    code_use_release(&more);
}

/* Frames in silence do not count. */
TEST(codes_are_counted_by_level)
{
    enum { FRAMES = 300, LEVELS = 2, CODES = 16 };
    static i32 codes[FRAMES][LEVELS];
    static u8 sounds[FRAMES];
    struct code_use use;
    for (u32 f = 0; f < FRAMES; f++) {
        sounds[f] = f % 3 != 0;
        codes[f][0] = (i32)(f % 3 ? drawn(f, 0, 10) : 15);
        codes[f][1] = (i32)drawn(f, 1, CODES);
    }
    code_use_init(&use, false, LEVELS, CODES);
    code_use_add_codes(&use, codes[0], sounds, FRAMES);
    for (i64 level = 0; level < LEVELS; level++) {
        double bits = 0;
        i64 dead = 0, seen = 0;
        for (i64 c = 0; c < CODES; c++) {
            double n = 0;
            for (i64 f = 0; f < FRAMES; f++)
                n += sounds[f] && codes[f][level] == c;
            seen += (i64)n;
            dead += n == 0;
            bits -= n > 0 ? n / 200 * log2(n / 200) : 0;
        }
        assert_int_equal(seen, 200);
        assert_int_equal(use.seen[level], 200);
        assert_int_equal(code_use_dead(&use, level), dead);
        assert_int_equal(dead > 0, level == 0);
        assert_float_equal(code_use_perplexity(&use, level), pow(2, bits), 1e-9);
    }
    code_use_release(&use);
}

/* What is dead at three looks in a row stays dead; only more of it is told again. */
TEST(what_stays_dead_is_told_once)
{
    struct code_use use;
    struct use_watch watch;
    char *said[8];
    code_use_init(&use, true, 2, 3);
    use_watch_open(&watch, "stills", 2, 3);
    use.seen[0] = use.seen[1] = 10;
    for (i64 i = 0; i < 6; i++)
        use.uses[i] = 5;
    use.uses[4] = 10;
    for (i64 look = 0; look < 8; look++) {
        use.uses[1] = look == 1 ? 5 : 0; /* alive once: its looks begin anew */
        said[look] = use_watch_look(&watch, &use);
        assert_int_equal(said[look] != NULL, look == 2 || look == 4);
    }
    assert_non_null(strstr(said[2], "1 of 6 bits stay dead in training media, by scale 0 1:"));
    assert_non_null(strstr(said[4], "2 of 6 bits stay dead in training media, by scale 1 1:"));
    for (i64 look = 0; look < 8; look++)
        memory_free(said[look]);
    use_watch_close(&watch);
    code_use_release(&use);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
