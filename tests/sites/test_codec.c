/* Numbers in few bits, against plain loops in f64; shares and sums of parts, against numbers by hand. */
#include <math.h>

#include <stdio.h>

#include "sites/codec.h"
#include "sites/merge.h"
#include "tests/test.h"

static float draw(i64 i)
{
    return (float)rng_normal((struct rng_key){7, RNG_TEST}, (u32)i, 0, 0, 0) * powf(10, (float)(i % 7) - 5);
}

/* What the description of the codec says, in f64: scale of the block in bf16, the nearest code. */
static double expected_value(const float *values, i64 count, int bits, i64 i)
{
    double largest = 0, most = bits == 4 ? 7 : 127;
    i64 begin = i / CODEC_BLOCK * CODEC_BLOCK;
    for (i64 k = begin; k < min_i64(count, begin + CODEC_BLOCK); k++)
        largest = fmax(largest, fabs((double)values[k]));
    double scale = bf16_to_f32(bf16_from_f32((float)(largest / most)));
    double code = scale > 0 ? nearbyint((double)values[i] / scale) : 0;
    return scale * fmax(-most, fmin(most, code));
}

TEST(numbers_come_back_as_the_nearest_code_of_their_block)
{
    enum { MOST = 3 * CODEC_BLOCK + 5 };
    static const int bits[] = {4, 8};
    float values[MOST], back[MOST], again[MOST];
    u8 codes[4 * MOST], second[4 * MOST];
    for (i64 count = 1; count <= MOST; count += 13)
        for (i64 b = 0; b < COUNT_OF(bits); b++) {
            for (i64 i = 0; i < count; i++)
                values[i] = draw(i + 1000 * b);
            codec_encode(codes, bits[b], values, count);
            assert_int_equal(codec_bytes(bits[b], count), 2 * ((count + 63) / 64) + (count * bits[b] + 7) / 8);
            codec_decode(back, bits[b], codes, count);
            for (i64 i = 0; i < count; i++) /* a tie of f64 may be none of f32 */
                if (fabs((double)back[i] - expected_value(values, count, bits[b], i)) > 1e-6 * fabs((double)back[i]))
                    fail_msg("%d bits, %lld of %lld: %g, not %g", bits[b], (long long)i, (long long)count,
                             (double)back[i], expected_value(values, count, bits[b], i));
            codec_encode(second, bits[b], back, count); /* of what a checkpoint has */
            assert_memory_equal(codes, second, (size_t)codec_bytes(bits[b], count));
            codec_decode(again, bits[b], second, count);
            assert_memory_equal(back, again, (size_t)count * 4);
        }
}

TEST(many_bits_are_bf16_and_f32)
{
    float values[] = {1.0f, -3.14159265f, 1e-20f, 0}, back[4];
    u8 codes[16];
    codec_encode(codes, 32, values, 4);
    assert_int_equal(codec_bytes(32, 4), 16);
    codec_decode(back, 32, codes, 4);
    assert_memory_equal(values, back, sizeof values);
    codec_encode(codes, 16, values, 4);
    assert_int_equal(codec_bytes(16, 4), 8);
    codec_decode(back, 16, codes, 4);
    for (int i = 0; i < 4; i++)
        assert_true(back[i] == bf16_to_f32(bf16_from_f32(values[i])));
    assert_false(codec_knows(2));
}

TEST(codes_that_are_not_finite_are_noticed)
{
    static const int bits[] = {4, 8, 16, 32};
    float values[8] = {0};
    u8 codes[64];
    for (i64 b = 0; b < COUNT_OF(bits); b++) {
        codec_encode(codes, bits[b], values, 8);
        assert_true(codec_is_finite(bits[b], codes, 8));
        memset(codes, 0xff, sizeof codes); /* NaN as a scale or a number */
        assert_false(codec_is_finite(bits[b], codes, 8));
    }
}

/* ---- Parts and shares ---- */

static const struct part_sizes two_uses = {2, {[4] = 6, [8] = 6 + 2, [16] = 16, [32] = 32}};

/* A part with 8 numbers in 32 bits. */
static struct buffer part_of(const char *name, double tokens, double use, double other, const float values[8])
{
    struct buffer part = {0};
    struct part_head head = {.tokens = tokens, .bits = 32, .uses = 2, .code_bytes = 32};
    snprintf(head.name, sizeof head.name, "%s", name);
    part_write(&part, &head, (const double[]){use, other}, (const u8 *)values);
    return part;
}

TEST(shares_follow_from_tokens_and_those_of_experts_from_use)
{
    static const float one[8] = {1, 1, 1, 1, 2, 2, 2, 2}, two[8] = {-3, -3, -3, -3, 6, 6, 6, 6};
    struct buffer parts[] = {part_of("west", 300, 0, 0, two), part_of("east", 100, 40, 0, one)}, text = {0};
    struct record record;
    double share[2], shares[2 * SITES_MOST];
    float change[8], scratch[8];
    record_write(&text, parts, 2, NULL);
    assert_int_equal(record_read(&record, (u8 *)text.data, text.length, &two_uses), 0);
    assert_string_equal(record.parts[0].head.name, "east"); /* by name, whoever came first */
    record_shares(share, &record, -1);
    assert_true(share[0] == 0.25 && share[1] == 0.75);
    record_shares(share, &record, 0);
    assert_true(share[0] == 1 && share[1] == 0); /* west did not use the expert, so it changes nothing there */
    record_shares(share, &record, 1);
    assert_true(share[0] == 0.25 && share[1] == 0.75); /* nobody did */
    record_shares(shares, &record, 0);
    record_shares(shares + SITES_MOST, &record, -1);
    const struct share_runs runs = {.first = 4, .each = 8, .shares = shares}; /* a matrix ends within the window */
    assert_int_equal(record_change(change, scratch, &record, &runs, (i64[33]){0}, false, 8), 0);
    for (int i = 0; i < 8; i++)
        assert_true(change[i] == (i < 4 ? 1.0f : 0.25f * 2 + 0.75f * 6));
    for (int i = 0; i < 2; i++)
        buffer_release(&parts[i]);
    buffer_release(&text);
}

TEST(sites_that_have_seen_no_token_change_nothing)
{
    static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct buffer part = part_of("a", 0, 0, 0, values), text = {0};
    struct record record;
    double share[1];
    record_write(&text, &part, 1, NULL);
    assert_int_equal(record_read(&record, (u8 *)text.data, text.length, &two_uses), 0);
    record_shares(share, &record, 0);
    assert_true(share[0] == 0);
    buffer_release(&part);
    buffer_release(&text);
}

static void expect_refused(struct buffer *text, const char *why)
{
    struct record record;
    assert_int_equal(record_read(&record, (u8 *)text->data, text->length, &two_uses), -1);
    if (!strstr(error_text(), why))
        fail_msg("expected \"%s\", found: %s", why, error_text());
}

TEST(records_that_are_none_are_refused)
{
    static const float values[8] = {0};
    struct buffer parts[] = {part_of("a", 1, 0, 0, values), part_of("a", 1, 0, 0, values)}, text = {0};
    record_write(&text, parts, 2, NULL);
    expect_refused(&text, "names a behind a");
    buffer_clear(&text);
    record_write(&text, parts, 1, NULL);
    text.length--;
    expect_refused(&text, "cut short");
    text.length++;
    buffer_append(&text, "x", 1);
    expect_refused(&text, "1 bytes behind its end");
    buffer_clear(&text);
    record_write(&text, parts, 1, NULL);
    *(i64 *)(void *)text.data = SITES_MOST + 1;
    expect_refused(&text, "expected 1 to 64");
    buffer_clear(&text);
    struct part_head *head = (void *)parts[0].data;
    head->tokens = NAN;
    record_write(&text, parts, 1, NULL);
    expect_refused(&text, "counts that are none");
    head->tokens = 1;
    head->bits = 5;
    buffer_clear(&text);
    record_write(&text, parts, 1, NULL);
    expect_refused(&text, "does not fit this model");
    for (int i = 0; i < 2; i++)
        buffer_release(&parts[i]);
    buffer_release(&text);
}

/* A record that leaves a site's codes out has all else of it. */
TEST(own_codes_are_left_out)
{
    static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct buffer parts[] = {part_of("b", 5, 1, 2, values), part_of("a", 7, 3, 4, values)}, text = {0};
    struct record record;
    record_write(&text, parts, 2, "b");
    assert_int_equal(record_read(&record, (u8 *)text.data, text.length, &two_uses), 0);
    assert_int_equal(record.parts[0].head.omitted, 0);
    assert_memory_equal(record.parts[0].codes, values, sizeof values);
    assert_int_equal(record.parts[1].head.omitted, 1);
    assert_true(record.parts[1].head.tokens == 5 && part_use(&record.parts[1], 1) == 2);
    for (int i = 0; i < 2; i++)
        buffer_release(&parts[i]);
    buffer_release(&text);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
