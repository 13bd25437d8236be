/* Decoding with CUDA graphs on the emulated GPU: the same draws as without, for any output and any
 * number of requests, and no recorded op has arguments that change from step to step. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/device.h"
#include "model/generate.h"
#include "tests/test.h"
#include "tests/toy.h"

enum { REQUESTS = 5, COPIES = 2, ANSWERS = REQUESTS * COPIES };

static struct device gpu;
static float *amplitude_there;

/* ---- Answers ---- */

struct graphs_answers {
    struct answer answers[ANSWERS];
    long launches, graphs, changed;
};

/* opening of the answers, and whether they choose a shape; every other one is guided, or none */
struct graphs_opening {
    i32 opening[2];
    i64 opening_count;
    bool chooses, guided;
};

/* Prompts and answers of different lengths, so that slots become free at different steps. */
static void fill_requests(struct generate_request *requests, struct part *parts, const struct graphs_opening *b)
{
    static const i32 prompt[REQUESTS + 3] = {3, 7, 11, 20, 2, 31, 9, 15}, choices[1] = {TOY_IMAGE};
    bool media = b && (b->opening_count || b->chooses);
    bool is_sound = media && b->opening[0] == TOY_BOA;
    i64 most = is_nightly() ? 9 : 5, most_of_media = is_sound && !is_nightly() ? 6 : 30;
    for (i64 i = 0; i < REQUESTS; i++) {
        parts[i] = (struct part){.kind = STREAM_TEXT, .ids = prompt + i, .count = 2 + i % 2};
        requests[i] = (struct generate_request){.parts = &parts[i],
                                                .part_count = 1,
                                                .opening = media ? b->opening : NULL,
                                                .opening_count = media ? b->opening_count : 0,
                                                .choices = choices,
                                                .choice_count = media && b->chooses,
                                                .guided = media && b->guided && i % 2 == 0,
                                                .guidance = 2,
                                                .media_only = media,
                                                .stop = {-1, -1, -1, -1},
                                                .most = media ? most_of_media : most - i % 3,
                                                .copies = COPIES,
                                                .identity = (u32)i};
    }
}

/* Daily runs use as few layers as the test needs: experts dominate the time of a step. */
static struct model_config config_of(unsigned parts, bool media)
{
    struct model_config c = toy_config(is_nightly() ? 3 : parts & (TOY_DENSE | TOY_AUDIO) ? 2 : 1, parts);
    if (media && !is_nightly())
        c.first_moe_layer = c.layers;
    return c;
}

static void draw(struct graphs_answers *out, struct model *model, struct decoder_options o, const char *graphs,
                 const struct graphs_opening *b)
{
    struct submodel sub;
    struct part parts[REQUESTS];
    struct generate_request requests[REQUESTS];
    fill_requests(requests, parts, b);
    submodel_full(&sub, &model->config);
    o.sub = &sub;
    struct emu_counts before = emu_counts;
    setenv("WEFT_GRAPHS", graphs, 1);
    memset(out, 0, sizeof *out);
    assert_int_equal(generate(out->answers, &o, requests, REQUESTS, 2, NULL), 0);
    unsetenv("WEFT_GRAPHS");
    out->launches = emu_counts.launches - before.launches;
    out->graphs = emu_counts.graphs - before.graphs;
    out->changed = emu_counts.changed_nodes - before.changed_nodes;
}

static void check_equal(const struct answer *a, const struct answer *b, const struct model_config *c, i64 route_width)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->has_medium, b->has_medium);
    assert_int_equal(a->medium.frames, b->medium.frames);
    assert_int_equal(a->routes.count, b->routes.count);
    if (a->count) {
        assert_memory_equal(a->ids, b->ids, (size_t)a->count * 4);
        assert_memory_equal(a->logprob, b->logprob, (size_t)a->count * 4);
    }
    if (a->medium.codes)
        assert_memory_equal(a->medium.codes, b->medium.codes, (size_t)(a->medium.frames * c->levels * 4));
    if (a->medium.bits)
        assert_memory_equal(
            a->medium.bits, b->medium.bits,
            (size_t)(a->medium.frames * shape_tokens(&toy_vocabulary.shapes[a->medium.shape]) * c->bits));
    if (a->routes.count)
        assert_memory_equal(a->routes.list, b->routes.list, (size_t)(a->routes.count * route_width * 2));
}

/* Compares graphs off, on, and recorded again each time. */
static void check_draws(unsigned parts, struct decoder_options o, const struct graphs_opening *b)
{
    static struct graphs_answers plain, graphs, update;
    struct model model;
    const struct model_config config = config_of(parts, b != NULL);
    toy_open(&model, &gpu, &config, false);
    o.model = &model;
    i64 width = o.keep_routes ? config.layers * config.topk : 0;
    draw(&plain, &model, o, "0", b);
    draw(&graphs, &model, o, "1", b);
    draw(&update, &model, o, "update", b);
    assert_int_equal(plain.graphs, 0);
    assert_true(graphs.graphs > 0 && graphs.launches < plain.launches);
    assert_int_equal(update.changed, 0);
    print_message("%ld launches, %ld with graphs, %ld of them graphs\n", plain.launches, graphs.launches,
                  graphs.graphs);
    for (i64 i = 0; i < ANSWERS; i++) {
        check_equal(&plain.answers[i], &graphs.answers[i], &config, width);
        check_equal(&plain.answers[i], &update.answers[i], &config, width);
        answer_release(&plain.answers[i]);
        answer_release(&graphs.answers[i]);
        answer_release(&update.answers[i]);
    }
    model_close(&model);
}

static struct decoder_options options_of(const struct vocabulary *vocabulary)
{
    static const float *amplitudes[2];
    static const i64 grid[4] = {3, 3, 2, 2};
    amplitudes[0] = amplitudes[1] = amplitude_there;
    return (struct decoder_options){.vocabulary = vocabulary,
                                    .amplitude = amplitudes,
                                    .grid = grid,
                                    .sampling = {.temperature = 1, .top_p = 0.95f, .key = {1, RNG_SAMPLING}}};
}

TEST(text_is_the_same_by_graphs)
{
    struct decoder_options o = options_of(&vocabulary_of_text);
    check_draws(TOY_TIED | TOY_SHARED | TOY_DENSE, o, NULL);
    o.keep_routes = o.want_entropy = true; /* like rollouts */
    check_draws(TOY_TIED, o, NULL);
}

TEST(sound_is_the_same_by_graphs)
{
    struct graphs_opening b = {{TOY_BOA}, 1, false, false};
    if (is_nightly())
        check_draws(TOY_TIED | TOY_AUDIO, options_of(&toy_vocabulary), &b);
    b.guided = true;
    check_draws(TOY_TIED | TOY_AUDIO, options_of(&toy_vocabulary), &b);
}

TEST(pictures_are_the_same_by_graphs)
{
    struct graphs_opening b = {{TOY_IMAGE, TOY_BOI}, 2, false, false};
    if (is_nightly()) {
        check_draws(TOY_TIED | TOY_MADE, options_of(&toy_vocabulary), &b);
        b.guided = true;
        check_draws(TOY_TIED | TOY_MADE, options_of(&toy_vocabulary), &b);
    }
    b = (struct graphs_opening){.chooses = true, .guided = true};
    check_draws(TOY_TIED | TOY_MADE, options_of(&toy_vocabulary), &b);
}

/* At most one request comes at each step. */
static void draw_round(struct decoder *d, struct answer *answers, struct generate_request *requests, int round)
{
    static const i32 forbidden[3] = {5, 20, 31};
    i64 count = is_nightly() ? REQUESTS : 2, next = 0;
    for (i64 i = 0; i < count; i++) {
        requests[i].forbidden = forbidden;
        requests[i].forbidden_count = round;
    }
    do {
        while (decoder_take(d))
            ;
        next += next < count && decoder_add(d, answers + next * COPIES, &requests[next]) == 0;
    } while (decoder_step(d));
}

/* One decoder for several rounds of requests, like rollouts; each round has its own keys,
 * temperature and forbidden ids. */
static void draw_rounds(struct answer *answers, struct model *model, const char *graphs)
{
    struct submodel sub;
    struct decoder d;
    struct part parts[REQUESTS];
    struct generate_request requests[REQUESTS];
    struct decoder_options o = options_of(&vocabulary_of_text);
    fill_requests(requests, parts, NULL);
    submodel_full(&sub, &model->config);
    o.model = model;
    o.sub = &sub;
    setenv("WEFT_GRAPHS", graphs, 1);
    decoder_open(&d, &o, 2, 32);
    for (int round = 0; round < 3; round++) {
        d.options.sampling.key.seed = (u64)(1 + round / 2);
        d.options.sampling.temperature = round ? 1 : 2;
        draw_round(&d, answers + round * ANSWERS, requests, round);
    }
    decoder_close(&d);
    unsetenv("WEFT_GRAPHS");
}

TEST(rounds_of_a_decoder_draw_with_their_own_keys)
{
    enum { ROUNDS = 3 };
    static struct answer plain[ROUNDS * ANSWERS], graphs[ROUNDS * ANSWERS], update[ROUNDS * ANSWERS];
    struct model model;
    const struct model_config config = is_nightly() ? toy_config(2, TOY_TIED) : config_of(TOY_TIED, true);
    toy_open(&model, &gpu, &config, false);
    draw_rounds(plain, &model, "0");
    draw_rounds(graphs, &model, "1");
    long before = emu_counts.changed_nodes;
    draw_rounds(update, &model, "update");
    for (i64 i = 0; i < ROUNDS * ANSWERS; i++) {
        check_equal(&plain[i], &graphs[i], &config, 0);
        check_equal(&plain[i], &update[i], &config, 0);
        answer_release(&plain[i]);
        answer_release(&graphs[i]);
        answer_release(&update[i]);
    }
    assert_int_equal(emu_counts.changed_nodes, before);
    model_close(&model);
}

/* ---- Sensitivity of the checks above ---- */

/* Fills by a recording; returns true if it was replayed. */
static bool fill_by(struct device *device, struct recordings *recordings, i64 key, float *there, float value)
{
    bool replayed = device_replay(device, recordings, &key, sizeof key);
    for (bool done = replayed; !done;) {
        device->ops->fill(device, there, 1, value);
        done = device_recorded(device, recordings);
    }
    return replayed;
}

/* An op whose argument is missing from the key: replays use the old value, except in update mode.
 * Returns the result. */
static float fill_with_steps(const char *graphs, long *changed)
{
    enum { KEY = 7 };
    const i64 key = KEY;
    float *there = device_alloc(&gpu, 4), last;
    struct emu_counts before = emu_counts;
    setenv("WEFT_GRAPHS", graphs, 1);
    struct recordings *recordings = device_recordings_open(&gpu);
    for (int step = 0; step < 5; step++)
        fill_by(&gpu, recordings, key, there, (float)step);
    device_get(&gpu, &last, there, 4);
    device_recordings_close(&gpu, recordings);
    unsetenv("WEFT_GRAPHS");
    device_free(&gpu, there, 4);
    *changed = emu_counts.changed_nodes - before.changed_nodes;
    return last;
}

TEST(a_stale_argument_is_seen)
{
    long changed;
    assert_true(fill_with_steps("0", &changed) == 4);
    assert_true(fill_with_steps("1", &changed) == 1); /* the recorded value */
    assert_true(fill_with_steps("update", &changed) == 4);
    assert_int_equal(changed, 3);
}

/* More keys than are kept: the oldest are recorded again. */
TEST(recordings_that_were_dropped_come_again)
{
    enum { KEYS = 40 };
    float *there = device_alloc(&gpu, 4), value;
    struct recordings *recordings = device_recordings_open(&gpu);
    for (int round = 0; round < 2; round++)
        for (i64 key = 0; key < KEYS; key++)
            for (int time = 0; time < 3; time++) {
                assert_int_equal(fill_by(&gpu, recordings, key, there, (float)key), time == 2);
                device_get(&gpu, &value, there, 4);
                assert_true(value == (float)key);
            }
    device_recordings_close(&gpu, recordings);
    device_free(&gpu, there, 4);
}

/* ---- Recordings that a driver refuses ---- */

enum { STEPS = 5, RECORDED = 1, REPLAYED = 3 };
static const struct refusal {
    const char *function;
    int step;
    const char *captured;
} refusals[] = {
    {"cudaStreamBeginCapture", RECORDED, "beginning to record a CUDA graph failed (invalid value)"},
    {"cudaLaunchKernel", RECORDED, "recording a CUDA graph failed (an earlier failure during capture)"},
    {"cudaStreamEndCapture", RECORDED, "recording a CUDA graph failed (an earlier failure during capture)"},
    {"cudaGraphInstantiate", RECORDED, "making a CUDA graph failed (out of memory)"},
    {"cudaGraphLaunch", RECORDED, "launching a CUDA graph failed (out of memory)"},
    {"cudaGraphLaunch", REPLAYED, "launching a CUDA graph failed (out of memory)"},
};

/* Redirects stderr to a file until it is read. */
static int saved_stderr;
static FILE *captured;
static void capture_stderr(void)
{
    captured = tmpfile();
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    dup2(fileno(captured), STDERR_FILENO);
}

static const char *captured_stderr(void)
{
    static char text[4096];
    fflush(stderr);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    rewind(captured);
    text[fread(text, 1, sizeof text - 1, captured)] = 0;
    fclose(captured);
    return text;
}

static long times_in(const char *text, const char *word)
{
    long times = 0;
    for (; (text = strstr(text, word)); text++)
        times++;
    return times;
}

/* The driver refuses one key at one step; the other is recorded and replayed as usual. The value of
 * a step tells whether its ops ran, since a replay would write the recorded one. */
static void check_refusal(const struct refusal *r)
{
    struct device device;
    float value;
    assert_int_equal(device_open_cuda(&device, 0), 0);
    struct recordings *recordings = device_recordings_open(&device);
    float *there = device_alloc(&device, 4), *other = device_alloc(&device, 4);
    long before = emu_counts.graphs;
    capture_stderr();
    for (int step = 0; step < STEPS; step++) {
        if (step == r->step)
            emu_fail_next(r->function);
        bool replayed = fill_by(&device, recordings, 1, there, (float)step);
        assert_int_equal(replayed, r->step == REPLAYED && step > RECORDED && step < REPLAYED);
        device_get(&device, &value, there, 4);
        assert_true(value == (float)(replayed ? RECORDED : step));
        assert_int_equal(fill_by(&device, recordings, 2, other, 7), step > RECORDED);
    }
    const char *text = captured_stderr();
    assert_int_equal(times_in(text, "warning:"), 1);
    assert_true(strstr(text, r->captured) && strstr(text, "WEFT_GRAPHS=0"));
    assert_int_equal(emu_counts.graphs - before, STEPS - RECORDED + (r->step == REPLAYED ? REPLAYED - RECORDED : 0));
    device_recordings_close(&device, recordings);
    device_free(&device, there, 4);
    device_free(&device, other, 4);
    device_close(&device);
}

TEST(a_refused_recording_runs_op_by_op)
{
    for (i64 i = 0; i < COUNT_OF(refusals); i++)
        check_refusal(&refusals[i]);
}

/* Ops that were called for a failed recording run again. */
TEST(answers_are_the_same_where_recordings_fail)
{
    static struct graphs_answers plain, graphs;
    struct model model;
    const struct model_config config = config_of(TOY_TIED | TOY_SHARED | TOY_DENSE, true);
    struct decoder_options o = options_of(&vocabulary_of_text);
    toy_open(&model, &gpu, &config, false);
    o.model = &model;
    draw(&plain, &model, o, "0", NULL);
    /* daily runs refuse a launch only */
    i64 first = is_nightly() ? 0 : 1, end = is_nightly() ? COUNT_OF(refusals) : 2;
    for (i64 i = first; i < end; i++) {
        emu_fail_next(refusals[i].function);
        draw(&graphs, &model, o, "1", NULL);
        assert_true(graphs.graphs > 0); /* other shapes are recorded */
        for (i64 a = 0; a < ANSWERS; a++) {
            check_equal(&plain.answers[a], &graphs.answers[a], &config, 0);
            answer_release(&graphs.answers[a]);
        }
    }
    for (i64 a = 0; a < ANSWERS; a++)
        answer_release(&plain.answers[a]);
    model_close(&model);
}

int main(void)
{
    static const float amplitude[3] = {0.5f, 0.4f, 0.3f};
    setenv("WEFT_THREADS", "1", 0); /* products are so small that waking a thread costs more */
    if (device_open_cuda(&gpu, 0))
        panic("%s", error_text());
    amplitude_there = device_alloc(&gpu, sizeof amplitude);
    device_put(&gpu, amplitude_there, amplitude, sizeof amplitude);
    int failed = tests_run(NULL, NULL);
    device_free(&gpu, amplitude_there, sizeof amplitude);
    device_close(&gpu);
    return failed;
}
