/* The packer: rows are full, hold each sample once per epoch, and are the same for any micro-batch
 * split and after any resume; the batch contents match the shards. */
#include <signal.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "data/loader/plan.h"
#include "kernels/kernels.h"
#include "tests/shard_fixture.h"
#include "tests/test.h"

enum { SAMPLES = 4000, LENGTH = 128 };
static char *folder;
static struct arena arena;
static i64 zero_step[1];
static double some_rows[] = {16}, some_length[] = {LENGTH};
static struct loader_settings plain = {.rows = {zero_step, some_rows, 1},
                                       .length = {zero_step, some_length, 1},
                                       .micro_rows = 4,
                                       .mixture = {1, 1, 1, 1, 1, 1, 1, 1},
                                       .condition[MODALITY_TEXT] = 1};

static int make(void **state)
{
    (void)state;
    folder = fixture_shards("packer", SAMPLES, 200);
    arena_open(&arena, (i64)1 << 32);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    arena_close(&arena);
    directory_remove(folder);
    memory_free(folder);
    return 0;
}

static struct loader *open_with(const struct loader_settings *settings)
{
    struct loader *l = loader_open(folder, "train", settings, 5);
    if (!l)
        fail_msg("%s", error_text());
    return l;
}

TEST(rows_are_full)
{
    struct loader *l = open_with(&plain);
    double positions = 0, room = 0;
    for (i64 step = 0; step < 100; step++) {
        struct loader_step s;
        assert_int_equal(loader_step(l, step, &s), 0);
        assert_int_equal(s.rows, 16);
        assert_int_equal(s.micro_batches, 4);
        positions += (double)s.positions;
        room += (double)(s.rows * s.length);
    }
    print_message("%.2f %% of positions are real\n", 100 * positions / room);
    assert_true(positions / room >= 0.95);
    loader_close(l);
}

TEST(steps_mix_all_targets)
{
    struct loader *l = open_with(&plain);
    i64 lacking[TARGETS] = {0};
    for (i64 step = 0; step < 200; step++) {
        struct loader_step s;
        assert_int_equal(loader_step(l, step, &s), 0);
        for (int kind = 0; kind < TARGETS; kind++)
            lacking[kind] += s.totals[kind] == 0;
    }
    loader_close(l);
    assert_int_equal(lacking[TARGET_TEXT] + lacking[TARGET_MTP], 0);
    assert_in_range(lacking[TARGET_VISION], 0, 2);
    assert_in_range(lacking[TARGET_AUDIO], 0, 16);
}

/* Every step mixes all targets. By chance, (7/8)^27, 1 step in 40 has no sound to generate. */
/* The plan of a step of thousands of rows looks for a signal; that of another is made. */
TEST(a_long_plan_stops)
{
    struct loader_settings settings = plain;
    struct loader_step s;
    double many = 10000;
    i64 first = 0;
    settings.rows = (struct schedule){.count = 1, .steps = &first, .values = &many};
    struct loader *l = open_with(&plain), *large = open_with(&settings);
    signals_catch();
    raise(SIGINT);
    assert_int_equal(loader_step(l, 0, &s), 0);
    assert_int_equal(loader_step(large, 0, &s), -1);
    assert_int_equal(error_status(), STATUS_INTERRUPTED);
    assert_true(interrupted_forget());
    signal(SIGINT, SIG_DFL);
    assert_int_equal(loader_step(large, 0, &s), 0);
    assert_int_equal(s.rows, many);
    loader_close(l);
    loader_close(large);
}

/* Counts positions of each sample shown in an epoch, over the first `steps` steps. */
static void count_epoch(struct loader *l, i64 steps, i32 epoch, i64 *seen, i64 *last_epoch)
{
    for (i64 step = 0; step < steps; step++) {
        const struct step_plan *plan = plan_step(l, step);
        assert_non_null(plan);
        for (i64 i = 0; i < plan->rows.entries.count; i++) {
            const struct plan_entry *e = &plan->rows.entries.data[i];
            seen[e->sample] += e->epoch == epoch ? e->length : 0;
            *last_epoch = max_i64(*last_epoch, e->epoch);
        }
    }
}

static i64 whole_length(struct loader *l, i64 sample)
{
    struct plan_entry entry = {.sample = (i32)sample};
    struct sample_measure measure;
    loader_parts(l, &entry, &l->given);
    grammar_measure(&measure, &l->vocabulary, l->given.parts, l->given.count, l->given.end);
    return measure.length;
}

static void expect_once(const struct loader_settings *settings, i64 steps)
{
    struct loader *l = open_with(settings);
    i64 *seen = memory_alloc(SAMPLES * 8), last = 0;
    struct left_out left_out = {{0}}, told;
    count_epoch(l, steps, 0, seen, &last);
    assert_true(last >= 2); /* the windows of the first 2 epochs are done */
    for (i64 i = 0; i < SAMPLES; i++) {
        bool fits = i % FIXTURE_DIRECTIONS == DIRECTION_TEXT || whole_length(l, i) <= LENGTH;
        assert_int_equal(seen[i], fits ? whole_length(l, i) : 0);
        left_out.samples[i % FIXTURE_DIRECTIONS] += !fits;
    }
    told = loader_left_out(l);
    assert_memory_equal(&told, &left_out, sizeof told);
    assert_true(told.samples[DIRECTION_CHAT] > 0 && left_out_total(&told) > told.samples[DIRECTION_CHAT]);
    memory_free(seen);
    loader_close(l);
}

TEST(each_sample_is_seen_once_an_epoch)
{
    expect_once(&plain, 500);
}

TEST(rows_of_another_length_lose_nothing)
{
    i64 steps[] = {0, 10, 30};
    double lengths[] = {LENGTH, 2 * LENGTH, LENGTH};
    struct loader_settings changing = plain;
    changing.length = (struct schedule){steps, lengths, 3};
    struct loader *l = open_with(&changing);
    i64 *seen = memory_alloc(SAMPLES * 8), last = 0;
    count_epoch(l, 500, 0, seen, &last);
    for (i64 i = 0; i < SAMPLES; i++) /* samples too long for short rows appear only in long rows, if at all */
        if (whole_length(l, i) <= LENGTH || i % FIXTURE_DIRECTIONS == DIRECTION_TEXT)
            assert_int_equal(seen[i], whole_length(l, i));
    memory_free(seen);
    loader_close(l);
}

/* ---- samples longer than a row ---- */

static struct left_out left_out_of_length(double length)
{
    struct loader_settings settings = plain;
    settings.length.values = &length;
    struct loader *l = open_with(&settings);
    assert_non_null(plan_step(l, 0));
    struct left_out told = loader_left_out(l);
    loader_close(l);
    return told;
}

/* Read shard by shard, each counts once from the step on at which rows have their length, however
 * often it passes by, and a resumed run has the counts of one that was not interrupted. */
TEST(long_samples_count_once_shard_by_shard)
{
    enum { ALL = 900, BEHIND = 25 };
    static i64 steps[] = {0, 250, 300};
    static double lengths[] = {LENGTH, LENGTH / 2, LENGTH};
    struct left_out told[ALL], whole[] = {left_out_of_length(LENGTH), left_out_of_length(LENGTH / 2)};
    struct loader_cursor cursors[ALL];
    struct loader_settings settings = plain;
    settings.shuffle_shards = 3;
    settings.length = (struct schedule){steps, lengths, 3};
    struct loader *l = open_with(&settings);
    for (i64 step = 0; step < ALL; step++) {
        assert_non_null(plan_step(l, step));
        told[step] = loader_left_out(l);
        cursors[step] = loader_cursor(l);
        for (int d = 0; d < DIRECTIONS; d++)
            assert_true(told[step].samples[d] <= whole[step >= 250 && step < 300].samples[d]);
    }
    loader_close(l);
    assert_true(left_out_total(&told[0]) < left_out_total(&told[20]));
    assert_memory_equal(&told[249], &whole[0], sizeof told[0]);
    assert_true(left_out_total(&told[250]) > 0); /* of the window whose rows were packed anew */
    assert_memory_equal(&told[ALL - 1], &whole[0], sizeof told[0]);
    for (i64 begin = 1; begin + BEHIND < ALL; begin += 31) {
        l = open_with(&settings);
        loader_begin_at(l, &cursors[begin - 1]);
        for (i64 step = begin; step < begin + BEHIND; step++) {
            assert_non_null(plan_step(l, step));
            struct left_out now = loader_left_out(l);
            assert_memory_equal(&now, &told[step], sizeof now);
        }
        loader_close(l);
    }
}

/* ---- contents of a row, independent of its place in a batch ---- */

static u64 list_hash(const i32 *position, i64 n, const void *payload, i64 bytes, i64 begin, i64 end, u64 hash)
{
    for (i64 i = 0; payload && i < n; i++) {
        i64 at = position[i] - begin;
        if (position[i] >= begin && position[i] < end)
            hash = hash_bytes((const u8 *)payload + i * bytes, bytes, hash_bytes(&at, 8, hash));
    }
    return hash;
}

static u64 column_hash(const struct batch *b, i64 begin, i64 end)
{
    u64 hash = 0;
    for (i64 i = begin; i < end; i++) {
        bool hole = b->hole_end[i] > b->hole_begin[i];
        i64 values[] = {b->sample[i],
                        b->stream[i],
                        b->begin[i] - begin,
                        b->end[i] - begin,
                        hole ? b->hole_begin[i] - begin : 0,
                        hole ? b->hole_end[i] - begin : 0};
        hash = hash_bytes(b->coordinates + 3 * i, 12, hash_bytes(values, sizeof values, hash));
    }
    return hash;
}

static u64 row_hash(const struct batch *b, i64 row)
{
    i64 length = b->n / b->rows, begin = row * length, end = begin + length,
        m[] = {4, 4 * 2, 5 * 4 * 4, 4 * 4 * 8 * 8 * 3};
    u64 h = column_hash(b, begin, end);
    const struct input_list *in = b->inputs;
    const struct target_list *t = b->targets;
    h = list_hash(in[0].position, in[0].n, in[0].ids, m[0], begin, end, h);
    h = list_hash(in[1].position, in[1].n, in[1].features, m[2], begin, end, h);
    h = list_hash(in[1].position, in[1].n, in[1].pixels, m[3], begin, end, h);
    h = list_hash(in[2].position, in[2].n, in[2].features, 6 * 4, begin, end, h);
    h = list_hash(in[2].position, in[2].n, in[2].scale, 4, begin, end, h);
    h = list_hash(in[3].position, in[3].n, in[3].ids, m[1], begin, end, h);
    for (int kind = 0; kind < TARGETS; kind++) {
        h = list_hash(t[kind].position, t[kind].n, t[kind].ids, kind == TARGET_AUDIO ? 8 : 4, begin, end, h);
        h = list_hash(t[kind].position, t[kind].n, t[kind].bits, 6, begin, end, h);
        h = list_hash(t[kind].position, t[kind].n, t[kind].weight, 4, begin, end, h);
        h = list_hash(t[kind].position, t[kind].n, t[kind].stream, 1, begin, end, h);
    }
    return h;
}

static void hash_step(struct loader *l, i64 step, u64 *hashes, double totals[TARGETS])
{
    struct loader_step s;
    assert_int_equal(loader_step(l, step, &s), 0);
    memset(totals, 0, TARGETS * sizeof *totals);
    for (i64 micro = 0; micro < s.micro_batches; micro++) {
        struct batch b;
        arena_reset(&arena, 0);
        if (loader_batch(l, step, micro, &b, &arena) < 0)
            fail_msg("%s", error_text());
        for (i64 row = 0; row < b.rows; row++)
            hashes[b.first_row + row] = row_hash(&b, row);
        for (int kind = 0; kind < TARGETS; kind++)
            for (i64 i = 0; i < b.targets[kind].n; i++)
                totals[kind] += (double)b.targets[kind].weight[i];
    }
    for (int kind = 0; kind < TARGETS; kind++)
        assert_float_equal(totals[kind], s.totals[kind], 1e-3);
}

static struct loader_settings all_options(void)
{
    struct loader_settings s = plain;
    s.condition_drop = 0.3;
    s.flip_most = 0.3;
    s.flip_drift = 0.02;
    s.reweight = true;
    s.window = 1;
    s.frame_mask = 0.3;
    s.condition[MODALITY_AUDIO] = 0.5;
    return s;
}

TEST(any_split_gives_the_same_rows)
{
    u64 one[16], other[16];
    double totals[TARGETS];
    struct loader_settings settings = all_options();
    struct loader *whole = open_with(&settings);
    for (settings.micro_rows = 1; settings.micro_rows <= 16; settings.micro_rows *= 2) {
        struct loader *split = open_with(&settings);
        for (i64 step = 0; step < 3; step++) {
            hash_step(whole, step, one, totals);
            hash_step(split, step, other, totals);
            assert_memory_equal(one, other, sizeof one);
        }
        loader_close(split);
    }
    loader_close(whole);
}

TEST(resuming_equals_going_on)
{
    u64 one[16], other[16];
    double totals[TARGETS];
    struct loader_settings settings = all_options();
    struct loader *first = open_with(&settings);
    for (i64 step = 0; step <= 150; step++)
        hash_step(first, step, one, totals);
    struct loader *resumed = open_with(&settings);
    hash_step(resumed, 150, other, totals);
    assert_memory_equal(one, other, sizeof one);
    hash_step(first, 20, one, totals); /* and backwards */
    hash_step(resumed, 20, other, totals);
    assert_memory_equal(one, other, sizeof one);
    struct loader *seeded = loader_open(folder, "train", &settings, 6);
    hash_step(seeded, 20, other, totals);
    assert_memory_not_equal(one, other, sizeof one);
    loader_close(seeded);
    loader_close(resumed);
    loader_close(first);
}

TEST(samples_do_not_see_each_other)
{
    struct loader_settings settings = all_options();
    struct loader *l = open_with(&settings);
    struct batch b;
    arena_reset(&arena, 0);
    assert_int_equal(loader_batch(l, 0, 0, &b, &arena), 0);
    for (i64 i = 0; i < b.n; i++)
        for (i64 j = 0; j < b.n; j++) {
            bool sees = b.begin[j] <= i && i < b.end[j] && !(b.hole_begin[j] <= i && i < b.hole_end[j]);
            if (i == j)
                assert_true(sees);
            else if (b.sample[i] != b.sample[j] || i / LENGTH != j / LENGTH)
                assert_false(sees);
        }
    loader_close(l);
}

/* ---- contents, against the shards read directly: in order, one sample a row ---- */

static i64 open_alone(struct loader **l, struct batch *b, enum direction direction, double flip_most)
{
    static double one_row[] = {1}, long_row[] = {400};
    struct loader_settings settings = plain;
    settings.rows = (struct schedule){zero_step, one_row, 1};
    settings.length = (struct schedule){zero_step, long_row, 1};
    settings.micro_rows = 1;
    memset(settings.mixture, 0, sizeof settings.mixture);
    settings.mixture[direction] = 1;
    settings.in_order = flip_most == 0;
    settings.flip_most = flip_most;
    *l = open_with(&settings);
    arena_reset(&arena, 0);
    assert_int_equal(loader_batch(*l, 0, 0, b, &arena), 0);
    return plan_step(*l, 0)->rows.entries.data[0].sample;
}

static const struct shard_part *medium_of(struct loader *l, i64 sample, const void **payload)
{
    for (i64 i = (i64)l->shards.folders[0].samples[sample].first_part;; i++)
        if (l->shards.folders[0].parts[i].kind != STREAM_TEXT) {
            *payload = shards_payload(&l->shards, i);
            return &l->shards.folders[0].parts[i];
        }
}

TEST(audio_codes_are_those_of_the_shard)
{
    struct loader *l;
    struct batch b;
    const void *payload;
    i64 sample = open_alone(&l, &b, DIRECTION_AUDIO_OUT, 0);
    const struct shard_part *part = medium_of(l, sample, &payload);
    const u16 *codes = payload;
    for (i64 i = 0; i < part->count * 2; i++) {
        assert_int_equal(b.inputs[INPUT_AUDIO].ids[i], codes[i]);
        assert_int_equal(b.targets[TARGET_AUDIO].ids[i], codes[i]);
    }
    assert_int_equal(b.inputs[INPUT_AUDIO].ids[part->count * 2], 16);
    assert_int_equal(b.targets[TARGET_AUDIO].ids[part->count * 2 + 1], 16);
    loader_close(l);
}

/* Checks cell (row, column) of latent frame f against a direct formula. */
static void check_cell(const struct shard_part *part, const void *payload, const struct input_list *in, i64 entry,
                       i64 k, i64 f, i64 row, i64 column)
{
    const bf16 *features = payload;
    const u8 *pixels = (const u8 *)(features + part->frames * 12 * 5), *out = in->pixels + (entry * 4 + k) * 4 * 192;
    for (i64 i = 0; i < 5; i++)
        assert_true(in->features[(entry * 4 + k) * 5 + i] ==
                    bf16_to_f32(features[((f * 3 + row) * 4 + column) * 5 + i]));
    for (i64 t = 0; t < 4; t++)
        for (i64 y = 0; y < 8; y++)
            for (i64 x = 0; x < 24; x++) {
                i64 frame = f == 0 ? 0 : 4 * f - 3 + t;
                assert_int_equal(out[t * 192 + y * 24 + x], pixels[(frame * 24 + row * 8 + y) * 96 + column * 24 + x]);
            }
}

TEST(cells_hold_their_features_and_pixels)
{
    struct loader *l;
    struct batch b;
    const void *payload;
    i64 sample = open_alone(&l, &b, DIRECTION_VIDEO_IN, 0);
    const struct shard_part *part = medium_of(l, sample, &payload);
    for (i64 f = 0; f < 3; f++)
        for (i64 cell = 0; cell < 4; cell++) /* 2 x 2 positions of a 3 x 4 grid: the lower ones repeat row 2 */
            for (i64 k = 0; k < 4; k++)
                check_cell(part, payload, &b.inputs[INPUT_VISION_IN], f * 4 + cell, k, f,
                           min_i64(cell / 2 * 2 + k / 2, 2), cell % 2 * 2 + k % 2);
    assert_int_equal(plan_step(l, 0)->rows.entries.data[0].length - 12 - 2,
                     l->shards.folders[0].parts[l->shards.folders[0].samples[sample].first_part + 1].count);
    loader_close(l);
}

struct packer_coded {
    u8 bits[3 * 21 * 6];
    float inputs[3 * 21 * 6], sum[3 * 16 * 6];
};

static void code(struct packer_coded *out, struct loader *l, const struct shard_part *part, const bf16 *latent,
                 const u8 *flip)
{
    const struct shard_shape *s = &l->shards.meta.shapes[part->shape];
    float x[3 * 16 * 6];
    u8 summed[3 * 21 * 6];
    i64 n = part->frames, values = n * s->h * s->w * 6, tokens = n * shape_tokens(&s->shape) * 6;
    for (i64 i = 0; i < values; i++)
        x[i] = bf16_to_f32(latent[i]);
    l->device->ops->quantize_bits(l->device, out->bits, out->sum, NULL, x, flip, n, s->h, s->w, 6, s->shape.scales,
                                  s->shape.scale_count, s->amplitude);
    for (i64 i = 0; i < tokens; i++)
        summed[i] = out->bits[i] ^ (flip ? flip[i] : 0);
    l->device->ops->dequantize_bits(l->device, out->inputs, NULL, summed, n, s->h, s->w, 6, s->shape.scales,
                                    s->shape.scale_count, s->amplitude);
}

TEST(bits_and_sums_are_those_of_the_latents)
{
    static const enum direction directions[] = {DIRECTION_IMAGE_OUT, DIRECTION_VIDEO_OUT};
    for (i64 i = 0; i < 2; i++) {
        struct loader *l;
        struct batch b;
        const void *payload;
        struct packer_coded coded;
        i64 sample = open_alone(&l, &b, directions[i], 0);
        const struct shard_part *part = medium_of(l, sample, &payload);
        const struct shard_shape *s = &l->shards.meta.shapes[part->shape];
        i64 inputs = part->frames * shape_positions(&s->shape) * 6;
        float scale = shape_input_scale(s->amplitude, s->shape.scale_count);
        code(&coded, l, part, payload, NULL);
        assert_memory_equal(b.targets[TARGET_VISION].bits, coded.bits,
                            (size_t)(part->frames * shape_tokens(&s->shape) * 6));
        for (i64 v = 0; v < inputs; v++)
            assert_true(b.inputs[INPUT_VISION_OUT].features[v] == coded.inputs[v] * scale);
        loader_close(l);
    }
}

/* Scale 1 is never corrected, so its targets stay fixed; its flipped bits show in the inputs of
 * scale 2. Returns their number. */
static i64 check_flips(struct loader *l, i64 step)
{
    struct batch b;
    const void *payload;
    struct packer_coded coded;
    u8 flip[21 * 6] = {0};
    i64 sample = plan_step(l, step)->rows.entries.data[0].sample, flipped = 0;
    const struct shard_part *part = medium_of(l, sample, &payload);
    float size = 0.5f * shape_input_scale(l->shards.meta.shapes[0].amplitude, 3);
    arena_reset(&arena, 0);
    assert_int_equal(loader_batch(l, step, 0, &b, &arena), 0);
    code(&coded, l, part, payload, NULL);
    assert_memory_equal(b.targets[TARGET_VISION].bits, coded.bits, 6);
    for (i64 i = 0; i < 6; i++) {
        float summed = b.inputs[INPUT_VISION_OUT].features[i];
        assert_float_equal(fabsf(summed), size, 1e-6);
        flip[i] = (summed > 0) != coded.bits[i];
        flipped += flip[i];
    }
    code(&coded, l, part, payload, flip); /* the targets of scale 2 follow from the flips of scale 1 alone */
    assert_memory_equal(b.targets[TARGET_VISION].bits + 6, coded.bits + 6, 24);
    return flipped;
}

TEST(flipped_bits_are_summed_and_corrected)
{
    struct loader *l;
    struct batch b;
    i64 flipped = 0;
    open_alone(&l, &b, DIRECTION_IMAGE_OUT, 0.5);
    for (i64 step = 0; step < 100; step++)
        flipped += check_flips(l, step);
    assert_in_range(flipped, 100, 200); /* out of 600: the share is uniform in [0, 0.5] */
    loader_close(l);
}

/* Counts flipped bits of scale 1 per latent frame, over `clips` steps of one clip each, from the
 * sign of scale 2's inputs. */
static void count_frame_flips(double flipped[3], const struct loader_settings *s, i64 clips)
{
    struct loader *l = open_with(s);
    memset(flipped, 0, 3 * sizeof *flipped);
    for (i64 step = 0; step < clips; step++) {
        struct batch b;
        const void *payload;
        struct packer_coded coded;
        i64 sample = plan_step(l, step)->rows.entries.data[0].sample;
        const struct shard_part *part = medium_of(l, sample, &payload);
        i64 inputs = shape_positions(&l->shards.meta.shapes[1].shape),
            tokens = shape_tokens(&l->shards.meta.shapes[1].shape);
        arena_reset(&arena, 0);
        assert_int_equal(loader_batch(l, step, 0, &b, &arena), 0);
        code(&coded, l, part, payload, NULL);
        for (i64 f = 0; f < 3; f++)
            for (i64 bit = 0; bit < 6; bit++)
                flipped[f] +=
                    (b.inputs[INPUT_VISION_OUT].features[f * inputs * 6 + bit] > 0) != coded.bits[f * tokens * 6 + bit];
    }
    loader_close(l);
}

/* Flip rate near 0 in the first frame, 0.2 in the second, 0.4 in the third: 480 and 960 of 2400,
 * within 5 standard deviations. The rate stops growing at 0.5. */
TEST(flips_grow_with_each_frame)
{
    static double one_row[] = {1}, long_row[] = {400};
    struct loader_settings s = plain;
    double flipped[3];
    s.rows = (struct schedule){zero_step, one_row, 1};
    s.length = (struct schedule){zero_step, long_row, 1};
    s.micro_rows = 1;
    memset(s.mixture, 0, sizeof s.mixture);
    s.mixture[DIRECTION_VIDEO_OUT] = 1;
    s.flip_most = 1e-9;
    s.flip_drift = 0.2;
    count_frame_flips(flipped, &s, 400);
    assert_true(flipped[0] == 0);
    assert_true(fabs(flipped[1] - 480) < 5 * sqrt(2400 * 0.2 * 0.8));
    assert_true(fabs(flipped[2] - 960) < 5 * sqrt(2400 * 0.4 * 0.6));
    s.flip_drift = 0.4;
    count_frame_flips(flipped, &s, 400);
    assert_true(fabs(flipped[2] - 1200) < 5 * sqrt(2400 * 0.5 * 0.5));
    s.flip_most = 0; /* the switch of both */
    count_frame_flips(flipped, &s, 400);
    assert_true(flipped[0] + flipped[1] + flipped[2] == 0);
}

/* ---- options ---- */

static i64 entries_in(struct loader *l, i64 steps, enum direction direction, i64 epoch)
{
    i64 count = 0;
    for (i64 step = 0; step < steps; step++)
        for (i64 i = 0; i < plan_step(l, step)->rows.entries.count; i++) {
            const struct plan_entry *e = &plan_step(l, step)->rows.entries.data[i];
            count += l->shards.folders[0].samples[e->sample].direction == direction && e->epoch == epoch;
        }
    return count;
}

TEST(the_mixture_says_how_often)
{
    struct loader_settings settings = plain;
    settings.mixture[DIRECTION_IMAGE_IN] = 0;
    settings.mixture[DIRECTION_CHAT] = 0.5;
    settings.mixture[DIRECTION_VIDEO_OUT] = 2;
    struct loader *l = open_with(&settings), *once = open_with(&plain);
    assert_int_equal(entries_in(l, 500, DIRECTION_IMAGE_IN, 0), 0);
    assert_int_equal(entries_in(l, 500, DIRECTION_VIDEO_OUT, 0), 2 * entries_in(once, 500, DIRECTION_VIDEO_OUT, 0));
    double half = (double)entries_in(l, 500, DIRECTION_CHAT, 0) / (double)entries_in(once, 500, DIRECTION_CHAT, 0);
    assert_true(half > 0.4 && half < 0.6);
    loader_close(once);
    loader_close(l);
}

/* A sample shown several times per epoch is corrupted and masked differently each time. */
TEST(every_showing_draws_anew)
{
    struct loader_settings settings = plain;
    settings.mixture[DIRECTION_IMAGE_OUT] = 3;
    struct loader *l = open_with(&settings);
    i64 count = 0, most = 2000;
    struct plan_entry *all = memory_alloc(most * (i64)sizeof *all);
    for (i64 step = 0; step < 60; step++)
        for (i64 i = 0; i < plan_step(l, step)->rows.entries.count && count < most; i++)
            if (l->shards.folders[0].samples[plan_step(l, step)->rows.entries.data[i].sample].direction ==
                DIRECTION_IMAGE_OUT)
                all[count++] = plan_step(l, step)->rows.entries.data[i];
    assert_true(count > 50);
    for (i64 i = 0; i < count; i++)
        for (i64 j = 0; j < i; j++)
            assert_false(all[i].sample == all[j].sample && entry_showing(&all[i]) == entry_showing(&all[j]));
    memory_free(all);
    loader_close(l);
}

TEST(conditions_are_dropped_for_media_that_are_made)
{
    struct loader_settings settings = plain;
    settings.condition_drop = 0.25;
    struct loader *l = open_with(&settings);
    i64 dropped[FIXTURE_DIRECTIONS] = {0};
    for (i64 i = 0; i < SAMPLES; i++) {
        loader_parts(l, &(struct plan_entry){.sample = (i32)i}, &l->given);
        dropped[i % FIXTURE_DIRECTIONS] += i % FIXTURE_DIRECTIONS != DIRECTION_TEXT && l->given.count == 1;
    }
    for (int d = 0; d < FIXTURE_DIRECTIONS; d++) {
        bool made = d == DIRECTION_IMAGE_OUT || d == DIRECTION_VIDEO_OUT || d == DIRECTION_AUDIO_OUT;
        assert_in_range(dropped[d], made ? 90 : 0, made ? 160 : 0);
    }
    loader_close(l);
}

static void expect_one_pass(bool drawn)
{
    struct loader_settings settings = all_options();
    settings.in_order = true;
    settings.drawn = drawn;
    struct loader *l = open_with(&settings);
    struct loader_step s;
    i64 *seen = memory_alloc(SAMPLES * 8), step = 0;
    for (; loader_step(l, step, &s) == 0 && s.rows > 0; step++)
        for (i64 i = 0; i < plan_step(l, step)->rows.entries.count; i++)
            seen[plan_step(l, step)->rows.entries.data[i].sample] += plan_step(l, step)->rows.entries.data[i].length;
    for (i64 i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], whole_length(l, i) <= LENGTH || i % FIXTURE_DIRECTIONS == 0 ? whole_length(l, i) : 0);
    assert_int_equal(loader_step(l, step + 7, &s), 0);
    assert_int_equal(s.rows, 0);
    memory_free(seen);
    loader_close(l);
}

TEST(in_order_there_is_one_pass)
{
    expect_one_pass(false);
    expect_one_pass(true);
}

/* In order, held out, a sample is whole: no frames are hidden from later ones. */
TEST(in_order_no_frames_are_hidden)
{
    u64 one[16], other[16];
    double totals[TARGETS];
    struct loader_settings settings = all_options();
    settings.in_order = true;
    struct loader *masked = open_with(&settings);
    settings.frame_mask = 0;
    struct loader *whole = open_with(&settings);
    for (i64 step = 0; step < 5; step++) {
        hash_step(masked, step, one, totals);
        hash_step(whole, step, other, totals);
        assert_memory_equal(one, other, sizeof one);
    }
    loader_close(masked);
    loader_close(whole);
}

/* The first few rows of a pass come from all over the shards. */
TEST(a_drawn_order_makes_the_first_rows_a_sample)
{
    struct loader_settings settings = plain;
    for (int drawn = 0; drawn < 2; drawn++) {
        settings.in_order = true;
        settings.drawn = drawn;
        struct loader *l = open_with(&settings);
        const struct step_plan *first = plan_step(l, 0);
        i64 late = 0, count = first->rows.entries.count;
        for (i64 i = 0; i < count; i++)
            late += first->rows.entries.data[i].sample >= SAMPLES / 2;
        assert_true(drawn ? late * 4 > count && late * 4 < 3 * count : late == 0);
        loader_close(l);
    }
}

TEST(long_texts_go_on_in_the_next_piece)
{
    struct loader *l = open_with(&plain);
    for (i64 step = 0; step < 50; step++) {
        const struct step_plan *plan = plan_step(l, step);
        for (i64 i = 0; i < plan->rows.entries.count; i++) {
            const struct plan_entry *e = &plan->rows.entries.data[i];
            if (e->count == 0 || e->first > 0)
                continue;
            /* the first piece fills its row and predicts the first id of the next one */
            assert_int_equal(e->length, LENGTH);
            struct batch b;
            i64 row = 0;
            while (plan->rows.offset[row + 1] <= i)
                row++;
            arena_reset(&arena, 0);
            assert_int_equal(loader_batch(l, step, row / 4, &b, &arena), 0);
            const struct target_list *t = &b.targets[TARGET_TEXT];
            i64 last = (row % 4 + 1) * LENGTH - 1, at = 0;
            while (t->position[at] != last)
                at++;
            assert_int_equal(t->ids[at], 100 + (e->sample + 7 * LENGTH) % 32);
            loader_close(l);
            return;
        }
    }
    fail_msg("no long text in 50 steps");
}

/* A document split into two samples has one end: the first
 * sample has no target at its last position. */
TEST(a_text_in_two_samples_ends_once)
{
    char *part = path_join(folder, "cut");
    struct loader_settings settings = plain;
    struct loader_step s;
    struct batch b;
    struct shard_writer *writer = shard_writer_open(part, &fixture_meta, 20000);
    struct shard_part first = fixture_text(writer, 1, 50), second = fixture_text(writer, 2, 30);
    shard_write_sample(writer, DIRECTION_TEXT, "a", &first, 1);
    shard_write_resume(writer);
    shard_write_sample(writer, DIRECTION_TEXT, "b", &second, 1);
    assert_int_equal(shard_writer_close(writer), 0);
    settings.in_order = true;
    struct loader *l = loader_open(folder, "cut", &settings, 5);
    assert_int_equal(loader_step(l, 0, &s), 0);
    assert_int_equal(s.totals[TARGET_TEXT], 49 + 30);
    arena_reset(&arena, 0);
    assert_int_equal(loader_batch(l, 0, 0, &b, &arena), 0);
    assert_int_equal(b.targets[TARGET_TEXT].n, 49 + 30);
    loader_close(l);
    memory_free(part);
}

TEST(what_cannot_be_filled_is_an_error)
{
    struct loader_settings settings = plain;
    struct loader_step s;
    memset(settings.mixture, 0, sizeof settings.mixture);
    struct loader *l = open_with(&settings);
    assert_int_equal(loader_step(l, 0, &s), -1);
    assert_non_null(strstr(error_text(), "no sample"));
    loader_close(l);
    settings.micro_rows = 3;
    settings.slice_rows = 4;
    assert_null(loader_open(folder, "train", &settings, 1));
    assert_null(loader_open(folder, "nowhere", &plain, 1));
}

TEST(building_is_fast)
{
    struct loader_settings settings = all_options();
    struct loader *l = open_with(&settings);
    struct loader_step s;
    double planned = clock_s();
    assert_int_equal(loader_step(l, 400, &s), 0);
    planned = clock_s() - planned;
    double built = clock_s();
    for (i64 micro = 0; micro < 4; micro++) {
        struct batch b;
        arena_reset(&arena, 0);
        assert_int_equal(loader_batch(l, 400, micro, &b, &arena), 0);
    }
    built = clock_s() - built;
    print_message("planned 400 steps in %.1f ms; built %lld positions in %.2f ms, %.0f ns each\n", planned * 1e3,
                  (long long)s.positions, built * 1e3, built * 1e9 / (double)s.positions);
    loader_close(l);
}

/* Each has the prompt of another one of its direction, which differs in both, and keeps the rest. */
TEST(prompts_are_exchanged_within_a_direction)
{
    struct loader_settings exchanged = plain;
    exchanged.in_order = exchanged.exchange = true;
    struct loader *l = open_with(&exchanged);
    i64 lenders = 0, *lent = memory_alloc(SAMPLES * 8);
    for (i64 i = 0; i < SAMPLES; i++) {
        struct shard_sample own = shards_sample(&l->shards, i);
        bool apart = own.direction == DIRECTION_TEXT || own.direction == DIRECTION_CHAT;
        if (apart) {
            assert_int_equal(l->exchanged[i], -1);
            continue;
        }
        assert_in_range(l->exchanged[i], 0, SAMPLES - 1);
        struct shard_sample other = shards_sample(&l->shards, l->exchanged[i]);
        assert_int_equal(other.direction, own.direction);
        loader_parts_whole(l, i, &l->given);
        assert_int_equal(l->given.count, 2);
        assert_int_equal(l->given.index[0], other.first_part);
        assert_int_equal(l->given.index[1], own.first_part + 1);
        for (u64 part = 0; part < 2; part++)
            assert_true(shards_part(&l->shards, (i64)(own.first_part + part))->hash !=
                        shards_part(&l->shards, (i64)(other.first_part + part))->hash);
        lenders += lent[l->exchanged[i]]++ == 0;
    }
    assert_true(lenders > SAMPLES / 2); /* of three quarters: few lend to several */
    memory_free(lent);
    loader_close(l);
}

/* A row's positions hold the other's prompt, of its length and ids. */
TEST(exchanged_rows_hold_the_other_prompt)
{
    struct loader_settings exchanged = plain;
    struct batch b;
    exchanged.in_order = exchanged.exchange = true;
    exchanged.mixture[DIRECTION_IMAGE_IN] = exchanged.mixture[DIRECTION_VIDEO_IN] = 0;
    exchanged.mixture[DIRECTION_AUDIO_IN] = 0;
    struct loader *l = open_with(&exchanged);
    const struct step_plan *plan = plan_step(l, 0);
    assert_non_null(plan);
    assert_int_equal(loader_batch(l, 0, 0, &b, &arena), 0);
    const struct plan_entry *first = &plan->rows.entries.data[0];
    i64 other = l->exchanged[first->sample], part = (i64)shards_sample(&l->shards, other).first_part;
    const i32 *ids = shards_payload(&l->shards, part);
    assert_int_equal(b.sample[0], 0);
    for (i64 i = 0; i < shards_part(&l->shards, part)->count; i++)
        assert_int_equal(b.inputs[INPUT_TEXT].ids[i], ids[i]);
    arena_reset(&arena, 0);
    loader_close(l);
}

int main(void)
{
    return tests_run(make, clear);
}
