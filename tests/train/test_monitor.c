/* Measurements while a stage trains: the counts of experts are those that balance the router, a
 * collapsed layer is told once, held-out rows are the same in every call and have every kind of
 * target, and no measurement moves the weights. */
#define _GNU_SOURCE          /* memmem */
#include "tests/toy_train.h" /* first: its parameters share the name of `device` below */

#include "core/json.h"
#include "tests/pretrain_toy.h"
#include "tests/files.h"
#include "train/heldout_set.h"
#include "train/routing_monitor.h"

#include <fcntl.h>
#include <math.h>

enum { LAYERS = 4, SAMPLES = 7, STEPS = 8, SEED = 6, PUSHED_LAYER = 2 };
static struct arena arena;

static int make(void **state)
{
    arena_open(&arena, (i64)1 << 30);
    return make_shards(state, "monitor");
}

static int clear(void **state)
{
    arena_close(&arena);
    return remove_shards(state);
}

/* ---- The router ---- */

static void open_toy(struct toy_run *run, double lr, double bias_speed)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    arena_reset(&arena, 0);
    toy_run_open(run, &device, &c, 2);
    run->count = TOY_BATCHES;
    run->trainer.lr = (struct lr_schedule){.peak = lr, .shape = LR_CONSTANT};
    run->bias_speed = bias_speed;
    for (i64 i = 0; i < TOY_BATCHES; i++)
        toy_batch_init(&run->batches[i], &arena, SAMPLES, (struct rng_key){(u64)i, RNG_TEST}, 0);
}

TEST(counts_are_those_that_balance_the_bias)
{
    static struct toy_run run;
    struct elastic_settings elastic = {.depth_full = SCHEDULE_CONSTANT(0.5),
                                       .depth_drop = SCHEDULE_CONSTANT(0.5),
                                       .experts_full = SCHEDULE_CONSTANT(0.6),
                                       .expert_groups = 1,
                                       .topk_full = SCHEDULE_CONSTANT(0.5),
                                       .topk_min = 1,
                                       .slice_rows = 1};
    struct routing_monitor m;
    i64 counted = 0, silent = 0;
    open_toy(&run, 1e-3, 1e-2);
    const struct model_config *c = &run.model.config;
    i64 n = model_use_count(c);
    double *before = memory_alloc(n * 8), *after = memory_alloc(n * 8);
    run.trainer.elastic = &elastic;
    routing_monitor_open(&m, c, 0);
    for (i64 step = 0; step < 12; step++) {
        run.trainer.recompute = step % 2;
        run.trainer.routing = &m;
        model_use_get(before, &run.model);
        toy_step(&run, step);
        model_use_get(after, &run.model);
        for (i64 l = 0; l < m.counts.layers; l++)
            for (i64 e = 0; e < c->experts; e++) {
                i64 sum = 0, at = m.counts.layer[l] * c->experts + e;
                for (int s = 0; s < STREAMS; s++)
                    sum += routing_use(&m.counts, l, s)[e];
                assert_int_equal(sum, (i64)(after[at] - before[at]));
                counted += sum;
                silent += sum == 0;
            }
    }
    assert_true(counted > 0 && silent > 0); /* some steps draw fewer experts in every slice */
    routing_monitor_close(&m);
    toy_run_close(&run);
    memory_free(before);
    memory_free(after);
}

/* The spread of the bias that the measured step chose by. */
TEST(the_spread_is_that_of_the_bias)
{
    static struct toy_run run;
    struct routing_monitor m;
    float bias[64] = {0};
    open_toy(&run, 1e-3, 0);
    i64 experts = run.model.config.experts;
    for (i64 e = 0; e < experts; e++)
        bias[e] = e % 2 ? 0.75f : 0.25f;
    toy_set_weight(&run.model.weights, run.model.layer[PUSHED_LAYER].bias, bias);
    routing_monitor_open(&m, &run.model.config, 0);
    run.trainer.routing = &m;
    toy_step(&run, 0);
    for (i64 l = 0; l < m.counts.layers; l++)
        if (m.counts.layer[l] == PUSHED_LAYER)
            assert_float_equal(m.bias[l], 0.25, 1e-7);
    routing_monitor_close(&m);
    toy_run_close(&run);
}

/* What `steps` steps after `warmup` log. The router of a layer is pushed to two experts up to step
 * `pushed`, and to three up to `recovered`; buffer_release. */
static struct buffer said_of(i64 warmup, i64 pushed, i64 recovered, i64 steps)
{
    static struct toy_run run;
    struct routing_monitor m;
    struct buffer said = {0};
    const char *log = path_of("log");
    const float push[64] = {[1] = 100, [2] = 99}, third[64] = {[1] = 100, [3] = 99}, even[64] = {0};
    open_toy(&run, 0, 0);
    routing_monitor_open(&m, &run.model.config, warmup);
    run.trainer.routing = &m;
    fflush(stderr);
    int before = dup(STDERR_FILENO), file = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(file, STDERR_FILENO);
    for (i64 step = 0; step < steps; step++) {
        const float *bias = step < pushed ? push : step >= recovered ? even : step % 2 ? third : push;
        toy_set_weight(&run.model.weights, run.model.layer[PUSHED_LAYER].bias, bias);
        toy_step(&run, step);
        routing_monitor_look(&m, &run.model, "toy", step + 1);
    }
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    close(file);
    succeed(file_read(&said, log));
    buffer_append(&said, "", 0);
    routing_monitor_close(&m);
    toy_run_close(&run);
    return said;
}

static void says(i64 warmup, i64 pushed, i64 recovered, i64 steps, const char *warning)
{
    struct buffer said = said_of(warmup, pushed, recovered, steps);
    const char *at = strstr(said.data, "the router of layer");
    if (warning ? !at || !strstr(said.data, warning) || strstr(at + 1, "the router of layer") : at != NULL)
        fail_msg("warm-up %d, pushed up to steps %d and %d of %d: %s", (int)warmup, (int)pushed, (int)recovered,
                 (int)steps, said.data);
    buffer_release(&said);
}

TEST(a_collapsed_layer_is_told_once)
{
    says(0, 0, 0, 45, NULL);
    says(0, 45, 45, 20, NULL);
    says(0, 45, 45, 45, "warning: toy: step 21: the router of layer 2 has collapsed: since step 11");
    says(0, 15, 15, 45, NULL); /* it recovers */
    says(0, 11, 21, 45, NULL); /* at the second look it uses 3 of 8, after 2 at the first */
    says(30, 45, 45, 45, NULL);
    says(30, 60, 60, 60, "warning: toy: step 50: the router of layer 2");
}

/* ---- Held-out rows ---- */

static struct heldout_set set_of(i64 rows, enum heldout_chats chats)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    struct heldout_pass pass = {
        .directory = shards, .split = "validation", .length = 128, .most_rows = rows, .chats = chats};
    struct heldout_set set;
    c.vocabulary = round_up(fixture_meta.vocabulary, 16);
    succeed(heldout_set_open(&set, &pass, &c));
    return set;
}

/* Bits 1 << kind of the targets, and of the streams of text targets. */
static unsigned kinds_in(const struct heldout_set *set, unsigned *streams)
{
    unsigned kinds = 0;
    *streams = 0;
    for (i64 i = 0; i < set->count; i++)
        for (int kind = 0; kind < TARGETS; kind++) {
            const struct target_list *list = &set->batches[i].targets[kind];
            for (i64 t = 0; t < list->n; t++)
                if (list->weight[t] > 0) {
                    kinds |= 1u << kind;
                    *streams |= kind == TARGET_TEXT ? 1u << list->stream[t] : 0;
                }
        }
    return kinds;
}

TEST(few_rows_have_every_kind_of_target)
{
    unsigned streams;
    for (i64 rows = 1; rows <= 20; rows += 3) {
        struct heldout_set set = set_of(rows, CHATS_ALIKE);
        i64 n = 0;
        assert_int_equal(kinds_in(&set, &streams), (1u << TARGETS) - 1);
        assert_true(streams & 1u << LOSS_CHAT && streams & 1u << STREAM_TEXT && streams & 1u << STREAM_IMAGE_IN);
        for (i64 i = 0; i < set.count; i++)
            n += set.batches[i].n;
        assert_in_range(n, 1, max_i64(rows, DIRECTIONS) * 128);
        heldout_set_close(&set);
    }
    struct heldout_set set = set_of(4, CHATS_ALONE);
    kinds_in(&set, &streams);
    assert_int_equal(streams, 1u << LOSS_CHAT);
    assert_true(set.count > 0);
    heldout_set_close(&set);
}

/* One kind of samples takes all rows. */
TEST(a_single_kind_takes_all_rows)
{
    char *folder = string_copy(path_of("texts")), *part = path_join(folder, "validation"), *whole = shards;
    succeed(directory_make(folder));
    fixture_tokenizer(folder);
    succeed(shard_meta_save(&fixture_meta, folder));
    struct shard_writer *writer = shard_writer_open(part, &fixture_meta, 20000);
    assert_non_null(writer);
    for (i64 i = 0; i < 60; i++) {
        struct shard_part text = fixture_text(writer, i, 100);
        shard_write_sample(writer, DIRECTION_TEXT, "a text", &text, 1);
        shard_write_break(writer);
    }
    succeed(shard_writer_close(writer));
    shards = folder;
    struct heldout_set set = set_of(6, CHATS_ALIKE), none = set_of(6, CHATS_ALONE);
    i64 n = 0;
    shards = whole;
    for (i64 i = 0; i < set.count; i++)
        n += set.batches[i].n;
    assert_int_equal(n, 6 * 128);
    assert_int_equal(none.count, 0);
    heldout_set_close(&set);
    heldout_set_close(&none);
    memory_free(folder);
    memory_free(part);
}

/* ---- The stage ---- */

#define MONITORED "routing_steps: 2, heldout_steps: 2, grid_steps: 4, heldout_steps_rows: 3"

static void train(const char *name, const char *more)
{
    char *settings = string_format("steps: %d, checkpoint_steps: 2, keep: 9, %s", STEPS, more);
    pretrain_toy(name, (struct stage){.seed = SEED, .dtype = DTYPE_F32}, settings);
    memory_free(settings);
}

/* The lines of metrics.jsonl; json_free each. */
static void read_lines(struct json *lines[STEPS], const char *name)
{
    struct buffer text = {0};
    char *path = path_join(path_of(name), "metrics.jsonl"), *line, *end;
    i64 n = 0;
    succeed(file_read(&text, path));
    for (line = text.data; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        assert_true(n < STEPS);
        lines[n++] = json_parse(line, end - line, path);
    }
    assert_int_equal(n, STEPS);
    buffer_release(&text);
    memory_free(path);
}

static void free_lines(struct json *lines[STEPS])
{
    for (i64 i = 0; i < STEPS; i++)
        json_free(lines[i]);
}

static i64 keys_of(const struct json *line, const char *begin)
{
    struct json_iterator it;
    i64 found = 0;
    for (bool more = json_first(&it, line); more; more = json_next(&it, line))
        found += strncmp(it.key, begin, strlen(begin)) == 0;
    return found;
}

/* routing/LAYER/overlap/STREAM/STREAM, in the order of modalities.h, as readers of the log look for it. */
static void expect_order_of_overlaps(const struct json *line)
{
    struct json_iterator it;
    for (bool more = json_first(&it, line); more; more = json_next(&it, line)) {
        const char *at = strstr(it.key, "/overlap/"), *second = at ? strchr(at + 9, '/') : NULL;
        int one = -1, other = -1;
        for (int s = 0; second && s < STREAMS; s++) {
            size_t length = strlen(stream_rows[s].name);
            if (strncmp(at + 9, stream_rows[s].name, length) == 0 && at[9 + length] == '/')
                one = s;
            if (strcmp(second + 1, stream_rows[s].name) == 0)
                other = s;
        }
        if (at && (one < 0 || one >= other))
            fail_msg("%s", it.key);
    }
}

TEST(each_measurement_stands_at_its_step)
{
    static const char *const points[] = {"full", "k/2", "experts 1/2", "layers -1/8"};
    struct json *lines[STEPS];
    i64 routed = 0; /* steps whose slice ran all experts */
    train("measured", MONITORED);
    read_lines(lines, "measured");
    for (i64 step = 1; step <= STEPS; step++) {
        const struct json *line = lines[step - 1];
        assert_int_equal(keys_of(line, "heldout/") > 0, step % 2 == 0);
        assert_int_equal(keys_of(line, "grid/") > 0, step % 4 == 0);
        assert_true(step % 2 == 0 || keys_of(line, "routing/") == 0);
        routed += keys_of(line, "routing/") > 0;
        expect_order_of_overlaps(line);
        for (int kind = 0; kind < TARGETS && step % 4 == 0; kind++)
            for (i64 i = 0; i < COUNT_OF(points); i++) {
                char *key = string_format("grid/%s/%s", points[i], target_rows[kind].name);
                char *held = string_format("heldout/%s", target_rows[kind].name);
                double loss = json_number(json_get(line, key), NAN), full = json_number(json_get(line, held), NAN);
                assert_true(isfinite(full) && isfinite(loss) == !target_rows[kind].helps);
                if (isfinite(loss) && (loss == full) != (i == 0)) /* the same rows, another model */
                    fail_msg("%s: %.9g, the full model %.9g", key, loss, full);
                memory_free(key);
                memory_free(held);
            }
    }
    assert_true(routed > 0);
    free_lines(lines);
}

/* All members of the last checkpoint's state, but for the history of measurements. */
static void same_states(const char *without, const char *with)
{
    char *a = string_format("%s/checkpoints/step-%06d/weft/state.json", path_of(without), STEPS);
    char *b = string_format("%s/checkpoints/step-%06d/weft/state.json", path_of(with), STEPS);
    struct json *one = json_load(a), *other = json_load(b);
    const struct json *state = json_get(one, "state"), *measured = json_get(other, "state");
    struct json_iterator it;
    assert_true(json_count(state) > 3 && json_count(measured) == json_count(state) + 1);
    assert_int_equal(json_count(json_get(json_get(measured, "best"), "history")), STEPS / 2);
    for (bool more = json_first(&it, state); more; more = json_next(&it, state)) {
        struct buffer x = {0}, y = {0};
        json_print(&x, it.value, 0);
        json_print(&y, json_get(measured, it.key), 0);
        assert_string_equal(x.data, y.data);
        buffer_release(&x);
        buffer_release(&y);
    }
    json_free(one);
    json_free(other);
    memory_free(a);
    memory_free(b);
}

TEST(measurements_move_nothing)
{
    static const char *const files[] = {"model.safetensors", "weft/extra.safetensors", "weft/optimizer.safetensors"};
    train("unmeasured", "recompute: false");
    train("recomputed", MONITORED ", recompute: true");
    same_states("unmeasured", "measured");
    same_states("unmeasured", "recomputed");
    for (i64 i = 0; i < COUNT_OF(files); i++) {
        char *without = string_format("unmeasured/checkpoints/step-%06d/%s", STEPS, files[i]);
        char *with = string_format("measured/checkpoints/step-%06d/%s", STEPS, files[i]);
        char *again = string_format("recomputed/checkpoints/step-%06d/%s", STEPS, files[i]);
        assert_true(same_files(path_of(without), path_of(with)));
        assert_true(same_files(path_of(without), path_of(again)));
        memory_free(without);
        memory_free(with);
        memory_free(again);
    }
}

/* The measured keys of a line, as text; buffer_release. */
static struct buffer measured_of(const struct json *line)
{
    static const char *const begins[] = {"routing/", "heldout/", "grid/", "loss"};
    struct json *kept = json_object();
    struct json_iterator it;
    struct buffer text = {0};
    for (bool more = json_first(&it, line); more; more = json_next(&it, line))
        for (i64 i = 0; i < COUNT_OF(begins); i++)
            if (strncmp(it.key, begins[i], strlen(begins[i])) == 0)
                json_set(kept, it.key, json_copy(it.value));
    json_print(&text, kept, 0);
    json_free(kept);
    return text;
}

TEST(a_resumed_run_measures_the_same_once)
{
    struct json *whole[STEPS], *resumed[STEPS];
    train("resumed", MONITORED);
    for (i64 done = 6; done <= STEPS; done += 2) {
        char *checkpoint = string_format("resumed/checkpoints/step-%06lld", (long long)done);
        succeed(directory_remove(path_of(checkpoint)));
        memory_free(checkpoint);
    }
    train("resumed", MONITORED);
    read_lines(whole, "measured");
    read_lines(resumed, "resumed");
    for (i64 i = 0; i < STEPS; i++) {
        struct buffer a = measured_of(whole[i]), b = measured_of(resumed[i]);
        assert_string_equal(a.data, b.data);
        buffer_release(&a);
        buffer_release(&b);
    }
    free_lines(whole);
    free_lines(resumed);
}

TEST(events_have_every_value)
{
    char name[32];
    struct buffer events = {0};
    succeed(directory_make(path_of("many")));
    struct metrics *m = metrics_open(path_of("many"), 0);
    assert_non_null(m);
    metrics_begin(m, 1);
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof name, "value-%d-", i);
        metrics_put(m, name, i);
    }
    succeed(metrics_end(m));
    metrics_close(m);
    char *command = string_format("cat %s/events.out.tfevents.* > %s", path_of("many"), path_of("many/all"));
    assert_int_equal(system(command), 0);
    succeed(file_read(&events, path_of("many/all")));
    assert_non_null(memmem(events.data, (size_t)events.length, "value-0-", 8));
    assert_non_null(memmem(events.data, (size_t)events.length, "value-599-", 10));
    buffer_release(&events);
    memory_free(command);
}

int main(void)
{
    return tests_run(make, clear);
}
