/* Prompts in a batch: their loss weight, when they are dropped; and bits of a still that no later
 * scale corrects. */
#include "data/loader/plan.h"
#include "tests/scratch.h"
#include "tests/shard_fixture.h"

static char *folder;
static struct arena arena;
static i64 zero_step[1];
static double one_row[] = {1}, long_row[] = {400};

static int make(void **state)
{
    (void)state;
    fixture_meta.shapes[0] = (struct shard_shape){{.scale_count = 1, .scales = {{1, 1}}, .frames = 1}, 1, 1, {0.5f}};
    folder = fixture_shards("conditions", 400, 30);
    arena_open(&arena, (i64)1 << 30);
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

static struct loader_settings settings_of(enum direction direction)
{
    struct loader_settings s = {.rows = {zero_step, one_row, 1},
                                .length = {zero_step, long_row, 1},
                                .micro_rows = 1,
                                .condition[MODALITY_TEXT] = 0.25,
                                .condition[MODALITY_AUDIO] = 0.5};
    s.mixture[direction] = 1;
    return s;
}

/* Loads the first step with 1 row; *words: the ids of its only sample's texts, for chats of the
 * last text only. */
static struct batch first_batch(const struct loader_settings *s, i64 *words)
{
    struct batch b;
    struct loader *l = loader_open(folder, "train", s, 5);
    if (!l)
        fail_msg("%s", error_text());
    arena_reset(&arena, 0);
    succeed(loader_batch(l, 0, 0, &b, &arena));
    struct shard_sample sample = shards_sample(&l->shards, plan_step(l, 0)->rows.entries.data[0].sample);
    for (i64 i = 0; i < sample.parts; i++) {
        const struct shard_part *part = shards_part(&l->shards, (i64)sample.first_part + i);
        *words = part->kind == STREAM_TEXT ? part->count : *words;
    }
    loader_close(l);
    return b;
}

/* Counts the targets among word ids (100 to 131; brackets and ends excluded) before row_end, and
 * requires this weight of each. */
static i64 count_words(const struct batch *b, float weight, i64 row_end)
{
    const struct target_list *t = &b->targets[TARGET_TEXT];
    i64 count = 0;
    for (i64 i = 0; i < t->n && t->position[i] < row_end; i++)
        if (t->ids[i] >= 100 && t->ids[i] < 132) {
            assert_float_equal(t->weight[i], weight, 1e-7);
            count++;
        }
    return count;
}

static i64 end_of_first(const struct batch *b) /* sample of the row */
{
    i64 end = 0;
    while (end < b->n && b->sample[end] == b->sample[0])
        end++;
    return end;
}

TEST(captions_weigh_what_is_said)
{
    struct loader_settings s = settings_of(DIRECTION_IMAGE_OUT);
    i64 words = 0;
    s.in_order = true;
    struct batch b = first_batch(&s, &words);
    assert_int_equal(count_words(&b, 0.25f, end_of_first(&b)), words - 1); /* the first id has no prediction */
    s.condition[MODALITY_TEXT] = 0;
    b = first_batch(&s, &words);
    assert_int_equal(count_words(&b, 0, end_of_first(&b)), 0);
}

TEST(sounds_weigh_what_is_said_of_sounds)
{
    struct loader_settings s = settings_of(DIRECTION_AUDIO_IN);
    i64 words = 0;
    s.in_order = true;
    struct batch b = first_batch(&s, &words);
    assert_true(b.targets[TARGET_AUDIO].n > 0);
    for (i64 i = 0; i < b.targets[TARGET_AUDIO].n; i++)
        assert_float_equal(b.targets[TARGET_AUDIO].weight[i], 0.5, 1e-7);
    assert_int_equal(count_words(&b, 1, end_of_first(&b)), words);
}

/* Only the answer of a conversation is a target, whatever the caption weight. */
TEST(questions_of_chats_are_no_targets)
{
    struct loader_settings s = settings_of(DIRECTION_CHAT);
    i64 words = 0;
    s.in_order = true;
    s.condition[MODALITY_TEXT] = 1;
    struct batch b = first_batch(&s, &words);
    assert_int_equal(count_words(&b, 1, end_of_first(&b)), words);
}

/* Prompts are dropped (for guidance) only when media are generated. */
TEST(prompts_of_media_alone_are_dropped)
{
    struct loader_settings made = settings_of(DIRECTION_IMAGE_OUT), given = settings_of(DIRECTION_AUDIO_IN);
    i64 words = 0;
    made.condition_drop = given.condition_drop = 1;
    struct batch b = first_batch(&made, &words);
    assert_int_equal(count_words(&b, 0, b.n), 0);
    assert_true(b.targets[TARGET_VISION].n > 0);
    b = first_batch(&given, &words);
    assert_true(b.inputs[INPUT_AUDIO].n > 0);
}

/* A still of one scale: the summed bits equal the targets. */
TEST(the_last_scale_of_a_still_is_never_flipped)
{
    struct loader_settings s = settings_of(DIRECTION_IMAGE_OUT);
    struct loader *l;
    s.flip_most = 0.5;
    l = loader_open(folder, "train", &s, 5);
    assert_non_null(l);
    for (i64 step = 0; step < 4; step++) {
        struct batch b;
        arena_reset(&arena, 0);
        succeed(loader_batch(l, step, 0, &b, &arena));
        assert_true(b.targets[TARGET_VISION].n > 0);
        for (i64 i = 0; i < b.targets[TARGET_VISION].n * 6; i++)
            assert_int_equal(b.inputs[INPUT_VISION_OUT].features[i] > 0, b.targets[TARGET_VISION].bits[i]);
    }
    loader_close(l);
}

/* Of 50 samples, or of 5. A pass is as many epochs as show 16 samples; epochs count on from pass to pass. */
TEST(shares_of_an_epoch_are_met)
{
    static const struct {
        double share;
        i64 slots, epochs; /* of a pass */
        bool few;
    } cases[] = {{4 / 3.0, 67, 1, false}, {0.1, 20, 4, false}, {0.02, 16, 16, false},
                 {1, 50, 1, false},       {2, 100, 1, false},  {1.5, 23, 3, true}};
    char *few = fixture_shards("conditions-few", 5 * FIXTURE_DIRECTIONS, 30);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct loader_settings s = settings_of(DIRECTION_IMAGE_OUT);
        i64 shown[3 * 16] = {0}, sum = 0;
        s.mixture[DIRECTION_IMAGE_OUT] = cases[i].share;
        struct loader *l = loader_open(cases[i].few ? few : folder, "train", &s, 5);
        assert_non_null(l);
        assert_int_equal(l->order.slots, cases[i].slots);
        for (i64 place = 0; place < 3 * cases[i].slots; place++)
            shown[order_at(l, place).epoch]++;
        for (i64 epoch = 0; epoch < 3 * cases[i].epochs; epoch++) {
            assert_true(shown[epoch] > 0);
            sum += shown[epoch];
            if ((epoch + 1) % cases[i].epochs == 0)
                assert_int_equal(sum, (epoch + 1) / cases[i].epochs * cases[i].slots);
        }
        loader_close(l);
    }
    directory_remove(few);
    memory_free(few);
}

int main(void)
{
    return tests_run(make, clear);
}
