/* The refiner of decoded pictures: enlarging, what its network reads and learns, sampling, its folder. */
#include "tests/device.h"
#include "tests/files.h"
#include "tests/scratch.h"
#include "tokenizers/vision/refiner.h"

#include <math.h>

enum { HIGH = 8, WIDE = 12, LOW_BYTES = HIGH * WIDE * 3, BYTES = 4 * LOW_BYTES };

static struct device device;
static const struct refiner_config small = {.channels = {6, 8, 10},
                                            .blocks = 1,
                                            .noise = 0.3,
                                            .temperature = 0.5,
                                            .steps = 2,
                                            .size_count = 1,
                                            .sizes = {{HIGH, WIDE}}};

static double draw(u32 a, u32 b)
{
    return rng_uniform((struct rng_key){12, RNG_TEST}, a, b, 0, 0);
}

static void fill(u8 *pixels, i64 count, u32 which)
{
    for (i64 i = 0; i < count; i++)
        pixels[i] = (u8)(256 * draw(which, (u32)i));
}

/* With weights that are all away from 0. */
static void open_small(struct refiner *r, const struct refiner_config *config, enum dtype dtype)
{
    refiner_open(r, &device, config, dtype, true);
    weights_init(&r->weights, 4);
    for (i64 i = 0; i < r->weights.count; i++) {
        struct weight *w = &r->weights.list[i];
        float *values = weight_values(&r->weights, w);
        for (i64 k = 0; k < w->rows * w->columns; k++)
            values[k] += (float)(0.3 * (draw(100 + (u32)i, (u32)k) - 0.5));
        weight_put(&r->weights, w, 0, w->rows, values);
        memory_free(values);
    }
}

/* ---- pictures ---- */

/* Keys 1981, a = -1/2. */
static double cubic(double x)
{
    x = fabs(x);
    return x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1 : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

TEST(enlarging_is_bicubic)
{
    u8 in[LOW_BYTES], out[BYTES];
    fill(in, LOW_BYTES, 1);
    refiner_enlarge(out, in, HIGH, WIDE);
    for (i64 y = 0; y < 2 * HIGH; y++)
        for (i64 x = 0; x < 2 * WIDE; x++)
            for (i64 c = 0; c < 3; c++) {
                double sum = 0, v = ((double)y + 0.5) / 2 - 0.5, u = ((double)x + 0.5) / 2 - 0.5;
                for (i64 j = -4; j < HIGH + 4; j++)
                    for (i64 i = -4; i < WIDE + 4; i++) {
                        i64 row = max_i64(0, min_i64(j, HIGH - 1)), column = max_i64(0, min_i64(i, WIDE - 1));
                        sum += cubic(v - (double)j) * cubic(u - (double)i) * in[(row * WIDE + column) * 3 + c];
                    }
                assert_float_equal(out[(y * 2 * WIDE + x) * 3 + c], fmin(fmax(sum, 0), 255), 0.5001);
            }
}

TEST(a_state_lies_between_noise_and_the_original)
{
    enum { COUNT = 4000 };
    static u8 original[COUNT], enlarged[COUNT];
    static float z[3][COUNT], velocity[3][COUNT];
    const double times[3] = {0, 0.25, 1};
    double mean = 0, square = 0;
    fill(original, COUNT, 2);
    fill(enlarged, COUNT, 3);
    for (int k = 0; k < 3; k++) {
        const struct refiner_state s = {0.5, times[k], {9, RNG_AUGMENT}, 4, 5};
        refiner_between(z[k], velocity[k], original, enlarged, COUNT, &s);
    }
    for (i64 i = 0; i < COUNT; i++) {
        double end = (double)original[i] / 127.5 - (double)enlarged[i] / 127.5, begin = z[0][i];
        assert_float_equal(z[2][i], end, 1e-6);
        assert_float_equal(z[1][i], 0.75 * begin + 0.25 * end, 1e-6);
        for (int k = 0; k < 3; k++)
            assert_float_equal(velocity[k][i], end - begin, 1e-6);
        mean += begin / COUNT;
        square += begin * begin / COUNT;
    }
    assert_float_equal(mean, 0, 0.04);
    assert_float_equal(sqrt(square), 0.5, 0.03);
}

TEST(rows_hold_the_state_the_picture_and_the_time)
{
    enum { ROWS = HIGH * WIDE, H = 2 * HIGH, W = 2 * WIDE };
    static float rows[ROWS * REFINER_INPUTS], z[BYTES], patches[BYTES], back[BYTES];
    static u8 enlarged[BYTES];
    const double t = 0.3, strength = 0.7;
    fill(enlarged, BYTES, 4);
    for (i64 i = 0; i < BYTES; i++)
        z[i] = (float)draw(5, (u32)i);
    refiner_put_rows(rows, z, enlarged, H, W, t, strength);
    for (i64 y = 0; y < H; y++)
        for (i64 x = 0; x < W; x++)
            for (i64 c = 0; c < 3; c++) {
                const float *row = rows + (y / 2 * (W / 2) + x / 2) * REFINER_INPUTS;
                i64 at = (y % 2 * 2 + x % 2) * 3 + c, pixel = (y * W + x) * 3 + c;
                assert_float_equal(row[at], 4 * z[pixel], 1e-6);
                assert_float_equal(row[12 + at], enlarged[pixel] / 127.5 - 1, 1e-6);
            }
    const double flags[8] = {
        strength,         t, cos(M_PI * t), sin(M_PI * t), cos(2 * M_PI * t), sin(2 * M_PI * t), cos(4 * M_PI * t),
        sin(4 * M_PI * t)};
    for (i64 i = 0; i < ROWS; i++)
        for (int k = 0; k < 8; k++)
            assert_float_equal(rows[i * REFINER_INPUTS + 24 + k], flags[k], 1e-6);
    refiner_to_patches(patches, z, H, W);
    assert_float_equal(patches[12 + 9], z[(W + 3) * 3], 0); /* the second patch, its lower right pixel */
    refiner_of_patches(back, patches, H, W);
    assert_memory_equal(back, z, sizeof z);
}

/* ---- the network ---- */

/* Rows and velocities of two pictures; the caller frees both. */
static struct refiner_batch make_batch(void)
{
    i64 patches = 2 * HIGH * WIDE;
    float *rows = memory_alloc(patches * REFINER_INPUTS * 4), *velocity = memory_alloc(patches * REFINER_VALUES * 4);
    for (i64 i = 0; i < patches * REFINER_INPUTS; i++)
        rows[i] = (float)(2 * draw(20, (u32)i) - 1);
    for (i64 i = 0; i < patches * REFINER_VALUES; i++)
        velocity[i] = (float)(draw(21, (u32)i) - 0.5);
    return (struct refiner_batch){2, 2 * HIGH, 2 * WIDE, rows, velocity};
}

static void free_batch(const struct refiner_batch *b)
{
    memory_free((void *)b->rows);
    memory_free((void *)b->velocity);
}

/* The mean squared error by plain loops. */
static double plain_loss(struct refiner *r, const struct refiner_batch *b)
{
    tape_clear(&r->tape, false);
    weights_pack(&r->weights);
    struct tensor *out = refiner_velocity(&r->tape, r, b);
    i64 count = out->rows * out->columns;
    assert_int_equal(count, b->n * b->height * b->width * 3);
    float *values = to_host(&device, out->data, count * 4);
    double sum = 0;
    for (i64 i = 0; i < count; i++) {
        double off = (double)values[i] - (double)b->velocity[i];
        sum += off * off / (double)count;
    }
    memory_free(values);
    return sum;
}

/* What a weight's loss changes by, from both sides, beside its gradient. Weights of all layers. */
TEST(the_loss_and_its_gradient_are_those_of_plain_loops)
{
    struct refiner r;
    struct tape tape;
    struct refiner_batch b = make_batch();
    open_small(&r, &small, DTYPE_F32);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, true);
    weights_begin_step(&r.weights);
    double *sum = tape_alloc(&tape, sizeof *sum), loss = 0;
    device.ops->zero(&device, sum, sizeof *sum);
    refiner_loss(sum, &tape, &r, &b);
    tape_backward(&tape);
    device_get(&device, &loss, sum, sizeof loss);
    assert_float_equal(loss / (2.0 * HIGH * WIDE), plain_loss(&r, &b), 1e-6);
    for (i64 i = 0; i < r.weights.count; i++) {
        struct weight *w = &r.weights.list[i];
        float *values = weight_values(&r.weights, w);
        i64 count = w->rows * w->columns, at = (i64)(draw(30, (u32)i) * (double)count);
        float *gradient = to_host(&device, w->value.grad, count * 4), kept = values[at];
        double sides[2];
        for (int side = 0; side < 2; side++) {
            values[at] = kept + (side ? 1e-2f : -1e-2f);
            weight_put(&r.weights, w, 0, w->rows, values);
            sides[side] = plain_loss(&r, &b);
        }
        values[at] = kept;
        weight_put(&r.weights, w, 0, w->rows, values);
        double expected = (sides[1] - sides[0]) / 2e-2, found = gradient[at];
        if (fabs(found - expected) > 1e-3 * fabs(expected) + 2e-5)
            fail_msg("%s[%lld]: gradient %g, differences say %g", w->spec.name, (long long)at, found, expected);
        memory_free(values);
        memory_free(gradient);
    }
    tape_close(&tape);
    refiner_close(&r);
    free_batch(&b);
}

/* ---- sampling ---- */

/* Steps of Euler with the network's velocities, in plain loops. */
TEST(sampling_takes_steps_of_euler)
{
    struct refiner r;
    static u8 in[LOW_BYTES], out[BYTES], enlarged[BYTES];
    static float z[BYTES], v[BYTES], rows[HIGH * WIDE * REFINER_INPUTS];
    open_small(&r, &small, DTYPE_F32);
    fill(in, LOW_BYTES, 6);
    const struct refiner_draw d = {.seed = 3, .identity = 7, .strength = 0.4};
    refiner_sample(&r, out, in, 1, HIGH, WIDE, &d);
    refiner_enlarge(enlarged, in, HIGH, WIDE);
    for (i64 i = 0; i < BYTES; i++)
        z[i] = (float)(0.5 * 0.3 * rng_normal((struct rng_key){3, RNG_SAMPLING}, 7, (u32)i, 0, REFINER_SAMPLING));
    for (int k = 0; k < 2; k++) {
        const struct refiner_batch b = {1, 2 * HIGH, 2 * WIDE, rows, NULL};
        refiner_put_rows(rows, z, enlarged, 2 * HIGH, 2 * WIDE, 0.5 * k, 0.4);
        tape_clear(&r.tape, false);
        float *patches = to_host(&device, refiner_velocity(&r.tape, &r, &b)->data, BYTES * 4);
        refiner_of_patches(v, patches, 2 * HIGH, 2 * WIDE);
        memory_free(patches);
        for (i64 i = 0; i < BYTES; i++)
            z[i] += v[i] / 2;
    }
    for (i64 i = 0; i < BYTES; i++)
        assert_float_equal(out[i], fmin(fmax(enlarged[i] + 127.5 * (double)z[i], 0), 255), 0.501);
    refiner_close(&r);
}

static u64 hash_of_sample(const u8 *in, i64 frames, const struct refiner_draw *d, int threads, double temperature)
{
    struct refiner_config config = small;
    struct refiner r;
    u8 *out = memory_alloc(frames * BYTES);
    config.temperature = temperature;
    workers_start(threads);
    open_small(&r, &config, DTYPE_BF16);
    refiner_sample(&r, out, in, frames, HIGH, WIDE, d);
    u64 hash = hash_bytes(out + (frames - 1) * BYTES, BYTES, 0);
    refiner_close(&r);
    memory_free(out);
    return hash;
}

/* Of the last frame. */
TEST(a_sample_depends_on_its_picture_seed_and_identity_alone)
{
    static u8 in[3 * LOW_BYTES];
    const struct refiner_draw d = {.seed = 3, .identity = 7}, other = {.seed = 3, .identity = 8},
                              seeded = {.seed = 4, .identity = 7}, strong = {3, 7, 0.5};
    fill(in, 3 * LOW_BYTES, 8);
    u64 hash = hash_of_sample(in, 3, &d, 1, 0.5);
    assert_int_equal(hash, hash_of_sample(in, 3, &d, 2, 0.5));
    assert_int_equal(hash, hash_of_sample(in + 2 * LOW_BYTES, 1, &d, 2, 0.5));
    assert_int_not_equal(hash, hash_of_sample(in, 1, &d, 2, 0.5));
    assert_int_not_equal(hash, hash_of_sample(in, 3, &other, 2, 0.5));
    assert_int_not_equal(hash, hash_of_sample(in, 3, &seeded, 2, 0.5));
    assert_int_not_equal(hash, hash_of_sample(in, 3, &strong, 2, 0.5));
    assert_int_equal(hash_of_sample(in, 3, &other, 2, 0), hash_of_sample(in, 3, &seeded, 2, 0));
}

/* ---- the folder ---- */

TEST(a_saved_refiner_makes_the_same_pictures)
{
    struct refiner r, again;
    static u8 in[LOW_BYTES], out[2][BYTES];
    const struct refiner_draw d = {.seed = 3};
    char *folder = path_of("refiner");
    fill(in, LOW_BYTES, 9);
    open_small(&r, &small, DTYPE_BF16);
    succeed(directory_make(folder));
    succeed(refiner_save(&r, folder));
    succeed(refiner_load(&again, &device, folder, DTYPE_BF16));
    refiner_sample(&r, out[0], in, 1, HIGH, WIDE, &d);
    refiner_sample(&again, out[1], in, 1, HIGH, WIDE, &d);
    assert_memory_equal(out[0], out[1], BYTES);
    assert_int_equal(refiner_check_size(&again, folder, HIGH, WIDE), 0);
    assert_int_equal(refiner_check_size(&again, folder, WIDE, HIGH), -1);
    assert_says(
        "refines pictures of 8x12, and the tokenizer makes 12x8: train a refiner on pictures of this tokenizer");
    refiner_close(&r);
    refiner_close(&again);
}

TEST(a_folder_that_is_no_refiner_is_refused)
{
#define REST "\"blocks\": 1, \"noise\": 0.3, \"temperature\": 1"
    static const char *const rows[][2] = {
        {"{\"kind\": \"vision\"}", "config.json: this is no refiner but a \"vision\": expected the folder of a stage"},
        {"{\"kind\": \"refiner\", \"factor\": 3}", "factor 3; this version makes pictures 2 times as large"},
        {"{\"kind\": \"refiner\", \"factor\": 2, \"channels\": [1, 1, 1], \"sizes\": [[8, 8]], \"steps\": 9, " REST "}",
         "9 steps of sampling; expected 1 to 8"},
        {"{\"kind\": \"refiner\", \"factor\": 2, \"channels\": [1, 1, 1], \"sizes\": [], \"steps\": 8, " REST "}",
         "a refiner of 0 sizes of pictures; expected 1 to 16"},
        {"{\"kind\": \"refiner\", \"factor\": 2, \"channels\": [1, 1, 1], \"sizes\": [[8, 6]], \"steps\": 8, " REST "}",
         "a refiner of pictures of 8x6; expected multiples of 4"},
        {"{\"kind\": \"refiner\", \"factor\": 2, \"channels\": [1, 1], \"sizes\": [[8, 8]], \"steps\": 8, " REST "}",
         "0 channels of a refiner; expected 1 to 4096"},
        {"{\"kind\": \"refiner\", \"factor\": 2, \"channels\": [1, 1, 1], \"sizes\": [[8, 8]], \"steps\": 8, "
         "\"blocks\": 5, \"noise\": 0.3, \"temperature\": 1}",
         "5 blocks of a refiner; expected 1 to 4"},
        {"{\"kind\": \"refiner\", \"factor\": 2, \"channels\": [1, 1, 1], \"sizes\": [[8, 8]], \"steps\": 8, "
         "\"blocks\": 1, \"noise\": 0, \"temperature\": 1}",
         "noise 0 and temperature 1 of a refiner"}};
    struct refiner r;
    succeed(directory_make(path_of("other")));
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        memory_free(put_text("other/config.json", rows[i][0]));
        assert_int_equal(refiner_load(&r, &device, path_of("other"), DTYPE_F32), -1);
        assert_says(rows[i][1]);
    }
    assert_int_equal(refiner_load(&r, &device, path_of("nowhere"), DTYPE_F32), -1);
}

static int run(const char *name)
{
    return tests_run_as(name, make_directory, remove_directory);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return on_both_devices(&device, run);
}
