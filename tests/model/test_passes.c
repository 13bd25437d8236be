/* Forwards without a backward hold one layer and a few rows of logits at a time, and compute the same as
 * those that keep all. */
#include "tests/test.h"
#include "tests/toy.h"

#include <math.h>

enum { WORDS = 70000, MOST = 160 };
static struct device device;

static struct model_config wordy(i64 layers)
{
    struct model_config c = toy_config(layers, TOY_SHARED);
    c.vocabulary = WORDS;
    return c;
}

struct pass_result { /* of one pass over rows of ids */
    float losses[MOST], hidden[MOST * 32];
    i64 peak_bytes;
};

static void run(struct pass_result *out, struct model *model, i64 rows, i64 length, bool recording,
                const struct forward_options *options)
{
    struct arena arena;
    struct tape tape;
    struct batch batch;
    struct submodel full;
    struct forward forward;
    i32 ids[MOST];
    for (u32 i = 0; i < rows * length; i++)
        ids[i] = (i32)rng_below((struct rng_key){9, RNG_TEST}, WORDS, i, 0, 0, 0);
    arena_open(&arena, 16 << 20);
    tape_open(&tape, &device, DTYPE_F32, (i64)4 << 30);
    tape_clear(&tape, recording);
    batch_of_ids(&batch, &arena, ids, rows, length, true);
    submodel_full(&full, &model->config);
    model_forward(&forward, &tape, model, &batch, &full, options);
    const struct loss *loss = &forward.loss[TARGET_TEXT][0];
    if (loss->value)
        device_get(&device, out->losses, loss->value, loss->n * 4);
    device_get(&device, out->hidden, forward.hidden->data, rows * length * 32 * 4);
    out->peak_bytes = tape_peak_bytes(&tape);
    tape_close(&tape);
    arena_close(&arena);
}

static struct pass_result one, other;

TEST(losses_are_those_of_whole_logits)
{
    static const i64 lengths[] = {8, 64, 66, 130, 160};
    const struct forward_options alone = {.losses_only = true};
    struct model_config c = wordy(2);
    struct model model;
    toy_open(&model, &device, &c, false);
    for (i64 i = 0; i < COUNT_OF(lengths); i++) {
        i64 n = lengths[i];
        run(&one, &model, 1, n, false, NULL);
        run(&other, &model, 1, n, false, &alone);
        assert_memory_equal(one.losses, other.losses, (size_t)n * 4);
        assert_true(one.losses[0] > 1); /* about log(WORDS) */
        if (n > 128)
            assert_true(other.peak_bytes < one.peak_bytes - (n - 80) * WORDS * 4);
    }
    model_close(&model);
}

struct seen {
    float *all; /* logits in their order */
    i64 rows, most_rows;
};

static void see(void *context, enum target_kind kind, i64 level, const struct tensor *logits)
{
    struct seen *s = context;
    assert_int_equal(kind, TARGET_TEXT);
    assert_int_equal(level, 0);
    device_get(&device, s->all + s->rows * WORDS, logits->data, logits->rows * WORDS * 4);
    s->rows += logits->rows;
    s->most_rows = max_i64(s->most_rows, logits->rows);
}

/* The losses are recounted from the logits that were seen. */
TEST(logits_are_seen_in_pieces)
{
    struct seen seen = {memory_alloc(MOST * WORDS * 4), 0, 0};
    const struct forward_options options = {.see_logits = see, .logits_context = &seen};
    struct model_config c = wordy(2);
    struct model model;
    toy_open(&model, &device, &c, false);
    run(&one, &model, 1, MOST, false, NULL);
    run(&other, &model, 1, MOST, false, &options);
    assert_int_equal(seen.rows, MOST);
    assert_in_range(seen.most_rows, 32, 64);
    for (u32 i = 0; i + 1 < MOST; i++) {
        const float *logits = seen.all + i * WORDS;
        i64 next = (i64)rng_below((struct rng_key){9, RNG_TEST}, WORDS, i + 1, 0, 0, 0);
        double sum = 0;
        for (i64 w = 0; w < WORDS; w++)
            sum += exp((double)logits[w]);
        assert_true(fabs(log(sum) - (double)logits[next] - (double)one.losses[i]) < 1e-4);
    }
    memory_free(seen.all);
    model_close(&model);
}

TEST(layers_take_the_place_of_one_another)
{
    const struct forward_options alone = {.losses_only = true};
    i64 peaks[2];
    for (int i = 0; i < 2; i++) {
        struct model_config c = wordy(i ? 8 : 2);
        struct model model;
        toy_open(&model, &device, &c, false);
        run(&one, &model, 2, MOST / 2, true, NULL);
        run(&other, &model, 2, MOST / 2, false, &alone);
        assert_memory_equal(one.hidden, other.hidden, sizeof one.hidden);
        peaks[i] = other.peak_bytes;
        model_close(&model);
    }
    if (peaks[1] > peaks[0] + 4096) /* staged numbers of each layer */
        fail_msg("8 layers took %lld bytes, 2 layers %lld", (long long)peaks[1], (long long)peaks[0]);
}

static int open_device(void **state)
{
    (void)state;
    device_open_cpu(&device);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    return 0;
}

int main(void)
{
    return tests_run(open_device, close_device);
}
