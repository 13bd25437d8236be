/* Mixed sources: shares hold to within one row at every step, epochs end on the exact sample, a
 * single source matches a run without mixer, and nothing depends on micro-batches or the resume
 * step. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "data/loader/mixer.h"
#include "data/loader/plan.h"
#include "kernels/kernels.h"
#include "tests/shard_fixture.h"
#include "tests/test.h"

enum { SOURCES = 3, ROWS = 10, LENGTH = 128 };
static const i64 sample_counts[SOURCES] = {400, 1200, 80};
static char *folders[SOURCES];
static char *const names[SOURCES] = {"web", "books", "code"};
static struct arena arena;
static i64 zero_step[1];
static double some_rows[] = {ROWS}, some_length[] = {LENGTH}, values[SOURCES];
static const struct loader_settings plain = {.rows = {zero_step, some_rows, 1},
                                             .length = {zero_step, some_length, 1},
                                             .micro_rows = 2,
                                             .mixture = {1, 1, 1, 1, 1, 1, 1, 1},
                                             .condition[MODALITY_TEXT] = 1,
                                             .flip_most = 0.2};

static int make(void **state)
{
    (void)state;
    for (i64 i = 0; i < SOURCES; i++) {
        char *name = string_format("mixer-%s", names[i]);
        folders[i] = fixture_shards(name, sample_counts[i], 120 - 20 * i);
        memory_free(name);
    }
    arena_open(&arena, (i64)1 << 32);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    arena_close(&arena);
    for (i64 i = 0; i < SOURCES; i++) {
        directory_remove(folders[i]);
        memory_free(folders[i]);
    }
    return 0;
}

/* Three sources with shares 5 : 3 : 2. */
static struct source_list sources_of(struct data_source list[SOURCES])
{
    static const double shares[SOURCES] = {5, 3, 2};
    for (i64 i = 0; i < SOURCES; i++) {
        values[i] = shares[i];
        list[i] = (struct data_source){
            .name = names[i], .data = folders[i], .share = {.steps = zero_step, .values = &values[i], .count = 1}};
    }
    return (struct source_list){.values = list, .count = SOURCES};
}

static struct mixer *open_mixer(const struct source_list *list, const struct loader_settings *settings)
{
    struct mixer *m = mixer_open(list, "train", settings, 5);
    if (!m)
        fail_msg("%s", error_text());
    return m;
}

static i64 rows_of(struct mixer *m, i64 number, i64 step)
{
    const struct step_plan *plan = mixer_plan(m, number, step);
    if (!plan)
        fail_msg("%s", error_text());
    return plan->rows.count;
}

static u64 hash_row(const struct batch *b, i64 row, i64 length)
{
    u64 hash = hash_bytes(b->stream + row * length, length, 0);
    const struct target_list *text = &b->targets[TARGET_TEXT];
    for (i64 i = 0; i < text->n; i++)
        if (text->position[i] / length == row)
            hash = hash_bytes(&text->ids[i], 4, hash);
    return hash;
}

static void hash_step(struct mixer *m, i64 step, i64 micro_rows, u64 *hashes)
{
    struct loader_step s;
    assert_int_equal(mixer_step(m, step, &s), 0);
    assert_int_equal(s.rows, ROWS);
    for (i64 micro = 0; micro < s.micro_batches; micro++) {
        struct batch b;
        arena_reset(&arena, 0);
        if (mixer_batch(m, step, micro, &b, &arena) < 0)
            fail_msg("%s", error_text());
        for (i64 row = 0; row < b.rows; row++)
            hashes[micro * micro_rows + row] = hash_row(&b, row, s.length);
    }
}

/* ---- Tests ---- */

TEST(one_source_is_as_without_a_mixer)
{
    struct source_list list = {.all = folders[0]};
    struct mixer *m = open_mixer(&list, &plain);
    struct loader *l = loader_open(folders[0], "train", &plain, 5);
    u64 hashes[ROWS];
    for (i64 step = 0; step < 30; step++) {
        hash_step(m, step, 2, hashes);
        for (i64 micro = 0; micro < ROWS / 2; micro++) {
            struct batch b;
            arena_reset(&arena, 0);
            assert_int_equal(loader_batch(l, step, micro, &b, &arena), 0);
            assert_true(hash_row(&b, 0, LENGTH) == hashes[2 * micro] &&
                        hash_row(&b, 1, LENGTH) == hashes[2 * micro + 1]);
        }
    }
    loader_close(l);
    mixer_close(m);
}

TEST(shares_hold_to_a_row_at_every_step)
{
    i64 steps[] = {0, 40, 90};
    double changing[] = {1, 6, 0};
    struct data_source all[SOURCES];
    struct source_list list = sources_of(all);
    all[2].share = (struct schedule){steps, changing, 3, true};
    struct mixer *m = open_mixer(&list, &plain);
    double due[SOURCES] = {0};
    i64 given[SOURCES] = {0};
    for (i64 step = 0; step < 150; step++) {
        double share[SOURCES] = {5, 3, schedule_at(&all[2].share, step)};
        i64 rows = 0;
        for (i64 i = 0; i < SOURCES; i++) {
            due[i] += ROWS * share[i] / (share[0] + share[1] + share[2]);
            given[i] += rows_of(m, i, step);
            rows += rows_of(m, i, step);
            assert_true(fabs(due[i] - (double)given[i]) < 1.001);
        }
        assert_int_equal(rows, ROWS);
        assert_true(step < 91 || rows_of(m, 2, step) == 0);
    }
    mixer_close(m);
}

/* Without shares, sources are shown in proportion to their positions times `weight`. */
TEST(weights_are_times_what_a_source_has)
{
    struct data_source all[SOURCES];
    struct source_list list = sources_of(all);
    double twice = 2, given[SOURCES] = {0};
    for (i64 i = 0; i < SOURCES; i++)
        all[i].share = (struct schedule){0};
    all[0].weight = (struct schedule){zero_step, &twice, 1};
    struct mixer *m = open_mixer(&list, &plain);
    struct mixer_source source;
    for (i64 step = 0; step < 2000; step++)
        for (i64 i = 0; i < SOURCES; i++)
            given[i] += (double)rows_of(m, i, step);
    double epoch[SOURCES];
    for (i64 i = 0; i < SOURCES; i++) {
        assert_int_equal(mixer_source(m, i, 2000, &source), 0);
        assert_string_equal(source.name, names[i]);
        assert_int_equal(source.samples, sample_counts[i]);
        assert_true((double)source.rows == given[i]);
        epoch[i] = given[i] / source.epoch;
    }
    assert_float_equal(epoch[0] / epoch[1], 2, 0.002);
    assert_float_equal(epoch[2] / epoch[1], 1, 0.01);
    mixer_close(m);
}

static void add_shown(struct mixer *m, i64 number, i64 step, i64 *shown)
{
    const struct step_plan *plan = mixer_plan(m, number, step);
    for (i64 i = 0; i < plan->rows.entries.count; i++)
        shown[plan->rows.entries.data[i].sample] += plan->rows.entries.data[i].length;
}

static i64 length_of(i64 number, i64 sample, i64 row_length)
{
    struct loader *l = loader_open(folders[number], "train", &plain, 5);
    struct sample_measure measure;
    loader_parts(l, &(struct plan_entry){.sample = sample}, &l->given);
    grammar_measure(&measure, &l->vocabulary, l->given.parts, l->given.count, l->given.end);
    bool text = is_plain_text(l, sample);
    loader_close(l);
    return text || measure.length <= row_length ? measure.length : 0;
}

/* Every sample is shown exactly `epochs` times; then the other sources fill all rows. */
static void expect_end(double epochs, const struct loader_settings *settings, i64 whole, i64 within)
{
    struct data_source all[SOURCES];
    struct source_list list = sources_of(all);
    all[2].epochs = epochs;
    struct mixer *m = open_mixer(&list, settings);
    i64 shown[80] = {0}, ended = 0, times = 0;
    for (i64 step = 0; step < 400; step++) {
        add_shown(m, 2, step, shown);
        if (rows_of(m, 2, step) > 0)
            ended = step;
        assert_int_equal(rows_of(m, 0, step) + rows_of(m, 1, step) + rows_of(m, 2, step), ROWS);
    }
    assert_true(ended < 390);
    for (i64 i = 0; i < 80; i++) {
        i64 length = length_of(2, i, within);
        assert_true(length == 0 ? shown[i] == 0
                                : shown[i] % length == 0 && shown[i] / length - whole <= (epochs > (double)whole));
        assert_true(length == 0 || shown[i] / length >= whole);
        times += length ? shown[i] / length - whole : 0;
    }
    assert_true((epochs > (double)whole) == (times > 0));
    mixer_close(m);
}

TEST(epochs_end_to_the_sample)
{
    i64 steps[] = {0, 7, 13};
    double lengths[] = {LENGTH, 2 * LENGTH, LENGTH};
    struct loader_settings settings = plain;
    expect_end(1, &settings, 1, LENGTH);
    expect_end(3, &settings, 3, LENGTH);
    expect_end(1.5, &settings, 1, LENGTH);
    settings.length = (struct schedule){steps, lengths, 2};
    struct data_source all[SOURCES];
    struct source_list list = sources_of(all);
    all[2].epochs = 2;
    struct mixer *m = open_mixer(&list, &settings);
    i64 shown[80] = {0};
    for (i64 step = 0; step < 300; step++)
        add_shown(m, 2, step, shown);
    for (i64 i = 0; i < 80; i++) {
        i64 length = length_of(2, i, LENGTH);
        assert_true(length == 0 || shown[i] == 2 * length); /* the longer rows hold more samples, all of these twice */
    }
    mixer_close(m);
}

/* Loss denominators are the target weights of all rows, over all sources; `seen` counts the cells
 * that are seen. */
TEST(totals_are_of_all_sources)
{
    struct data_source all[SOURCES];
    struct source_list list = sources_of(all);
    struct mixer *m = open_mixer(&list, &plain);
    for (i64 step = 0; step < 3; step++) {
        struct loader_step s;
        double totals[TARGETS] = {0};
        i64 seen = 0;
        assert_int_equal(mixer_step(m, step, &s), 0);
        for (i64 micro = 0; micro < s.micro_batches; micro++) {
            struct batch b;
            arena_reset(&arena, 0);
            assert_int_equal(mixer_batch(m, step, micro, &b, &arena), 0);
            for (int kind = 0; kind < TARGETS; kind++)
                for (i64 i = 0; i < b.targets[kind].n; i++)
                    totals[kind] += (double)b.targets[kind].weight[i];
            seen += b.inputs[INPUT_VISION_IN].n;
        }
        assert_true(seen > 0);
        assert_int_equal(seen, s.seen);
        for (int kind = 0; kind < TARGETS; kind++)
            assert_float_equal(totals[kind], s.totals[kind], 1e-3);
    }
    mixer_close(m);
}

/* Source 2, of 80 samples, is the furthest for its share; with the order turned round, it is the first. */
TEST(the_epoch_is_that_of_the_furthest_source)
{
    for (int turned = 0; turned < 2; turned++) {
        struct data_source all[SOURCES], other[SOURCES];
        struct source_list list = sources_of(all);
        for (i64 i = 0; i < SOURCES; i++)
            other[i] = all[SOURCES - 1 - i];
        list.values = turned ? other : all;
        struct mixer *m = open_mixer(&list, &plain);
        struct loader_step s, one;
        i64 furthest = turned ? 0 : SOURCES - 1;
        assert_int_equal(mixer_step(m, 150, &s), 0);
        for (i64 i = 0; i < SOURCES; i++) {
            assert_int_equal(mixer_source_step(m, i, 150, &one), 0);
            assert_true(i == furthest ? one.epoch == s.epoch : one.epoch < s.epoch);
        }
        mixer_close(m);
    }
}

TEST(where_all_end_the_step_is_named)
{
    struct data_source all[SOURCES];
    struct source_list list = sources_of(all);
    struct mixer_source source;
    for (i64 i = 0; i < SOURCES; i++)
        all[i].epochs = 1;
    struct mixer *m = open_mixer(&list, &plain);
    assert_int_equal(mixer_source(m, 0, 20, &source), 0);
    assert_int_equal(mixer_source(m, 0, 2000, &source), -1);
    assert_non_null(strstr(error_text(), "all sources have shown their epochs"));
    mixer_close(m);
}

TEST(it_goes_on_anywhere_and_by_any_micro_batch)
{
    struct data_source all[SOURCES];
    struct source_list list = sources_of(all);
    struct loader_settings settings = plain;
    u64 one[ROWS], other[ROWS];
    all[2].epochs = 2;
    struct mixer *m = open_mixer(&list, &settings);
    for (i64 step = 0; step < 60; step++)
        hash_step(m, step, 2, one);
    settings.micro_rows = 5;
    struct mixer *resumed = open_mixer(&list, &settings);
    hash_step(resumed, 59, 5, other);
    assert_memory_equal(one, other, sizeof one);
    hash_step(m, 3, 2, one);
    hash_step(resumed, 3, 5, other);
    assert_memory_equal(one, other, sizeof one);
    mixer_close(m);
    mixer_close(resumed);
}

int main(void)
{
    return tests_run(make, clear);
}
