/* Routing statistics: known counts give known overlaps and entropies; all choices of a small random
 * model are counted; a router biased to one expert shows in the numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "core/json.h"
#include "data/media/media.h"
#include "submodels/proof.h"
#include "routing/routing.h"
#include "submodels/grid_speed.h"
#include "submodels/submodels.h"
#include "tests/cut_fixture.h"
#include "tests/shard_fixture.h"
#include "tests/test.h"
#include "tests/toy.h"
#include "train/pretrain.h"
#include "train/taught.h"

enum { EXPERTS = 8, TOPK = 2, LAYERS = 4, PUSHED_LAYER = 2, PUSHED_EXPERT = 5 };
static char *shards, *model_folder, *out_folder;
static struct device device;

TEST(overlap_is_that_of_the_most_used_quarter)
{
    const i64 a[8] = {10, 9, 1, 0, 0, 0, 0, 0}, b[8] = {0, 5, 7, 1, 0, 0, 0, 0}, even[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const i64 one[8] = {3}, last[8] = {0, 0, 0, 0, 0, 0, 2, 2}, none[8] = {0};
    assert_float_equal(routing_overlap(a, b, 8), 1 / 3.0, 1e-12); /* {0,1} and {1,2} */
    assert_float_equal(routing_overlap(a, even, 8), 1, 1e-12);    /* ties go to the smaller id */
    assert_float_equal(routing_overlap(a, one, 8), 0.5, 1e-12);   /* unused experts are excluded */
    assert_float_equal(routing_overlap(a, last, 8), 0, 1e-12);
    assert_float_equal(routing_overlap(a, none, 8), 0, 1e-12);
    assert_true(isnan(routing_overlap(none, none, 8)));
}

TEST(entropy_is_one_where_use_is_even)
{
    const i64 even[4] = {3, 3, 3, 3}, half[4] = {5, 0, 5, 0}, one[4] = {0, 0, 9, 0}, none[4] = {0},
              uneven[4] = {1, 1, 2, 0};
    assert_float_equal(routing_entropy(even, 4), 1, 1e-12);
    assert_float_equal(routing_entropy(half, 4), 0.5, 1e-12);
    assert_float_equal(routing_entropy(one, 4), 0, 1e-12);
    assert_float_equal(routing_entropy(uneven, 4), 0.75, 1e-12); /* 1.5 bits of 2 */
    assert_true(isnan(routing_entropy(none, 4)));
    assert_true(isnan(routing_entropy(even, 1)));
}

TEST(load_is_the_most_used_over_the_mean)
{
    const i64 even[4] = {3, 3, 3, 3}, half[4] = {5, 0, 5, 0}, one[4] = {0, 0, 9, 0}, none[4] = {0};
    assert_float_equal(routing_load(even, 4), 1, 1e-12);
    assert_float_equal(routing_load(half, 4), 2, 1e-12);
    assert_float_equal(routing_load(one, 4), 4, 1e-12);
    assert_true(isnan(routing_load(none, 4)));
    assert_float_equal(routing_unused(even, 4), 0, 1e-12);
    assert_float_equal(routing_unused(half, 4), 0.5, 1e-12);
    assert_float_equal(routing_unused(one, 4), 0.75, 1e-12);
    assert_true(isnan(routing_unused(none, 4)));
}

TEST(load_of_ranks_is_that_of_the_worst_layer)
{
    const double use[12] = {0, 0, 0, 0, 5, 1, 1, 1, 3, 3, 3, 3};
    i64 layer;
    assert_float_equal(routing_rank_load(&layer, use, NULL, 3, 4, 2), 1.5, 1e-12);
    assert_int_equal(layer, 1);
    assert_float_equal(routing_rank_load(&layer, use, NULL, 3, 4, 4), 2.5, 1e-12);
    assert_float_equal(routing_rank_load(&layer, use, NULL, 3, 4, 1), 1, 1e-12);
    assert_true(isnan(routing_rank_load(&layer, use, NULL, 1, 4, 2)));
    const double uses[12] = {0, 0, 0, 0, 5, 4, 1, 2, 1, 1, 4, 2};
    const i32 placement[12] = {0, 1, 2, 3, 0, 2, 1, 3, 0, 1, 2, 3};
    assert_float_equal(routing_rank_load(&layer, uses, placement, 3, 4, 2), 1.5, 1e-12);
    assert_int_equal(layer, 2);
    assert_float_equal(routing_rank_load_mean(uses, placement, 3, 4, 2), 1.25, 1e-12); /* 6 : 6, 2 : 6; one is unused */
    assert_float_equal(routing_rank_load_mean(uses, NULL, 3, 4, 2), 1.5, 1e-12);       /* 9 : 3, 2 : 6 */
    assert_true(isnan(routing_rank_load_mean(uses, NULL, 1, 4, 2)));
}

TEST(padding_and_dropped_layers_are_not_counted)
{
    struct model_config config = {.layers = 3, .experts = 4, .topk = 2, .first_moe_layer = 1};
    const i32 kept[3] = {0, 2, 3};
    struct submodel sub = {.layer_count = 2, .layer = {0, 2}, .expert_count = 3, .topk = 2};
    i32 sample[3] = {0, 0, -1};
    u8 stream[3] = {STREAM_TEXT, STREAM_AUDIO, STREAM_TEXT};
    struct batch batch = {.n = 3, .sample = sample, .stream = stream};
    const i32 routes[3 * 3 * 2] = {-1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, 0, 2, 2, -1, 1, 1};
    struct routing_counts c;
    for (i64 i = 0; i < 3; i++)
        sub.expert[i] = i == 2 ? kept : NULL;
    routing_counts_init(&c, &config, &sub);
    routing_count(&c, &batch, routes, NULL);
    assert_int_equal(c.layers, 1);
    assert_int_equal(c.layer[0], 2);
    assert_memory_equal(c.expert, kept, sizeof kept);
    assert_int_equal(c.positions[STREAM_TEXT], 1);
    assert_int_equal(c.positions[STREAM_AUDIO], 1);
    const i64 text[3] = {1, 0, 1}, audio[3] = {0, 0, 1};
    assert_memory_equal(routing_use(&c, 0, STREAM_TEXT), text, sizeof text);
    assert_memory_equal(routing_use(&c, 0, STREAM_AUDIO), audio, sizeof audio);
    routing_count(&c, &batch, routes, (const i32[]){1}); /* the sample drew a smaller k */
    assert_memory_equal(routing_use(&c, 0, STREAM_TEXT), text, sizeof text);
    assert_int_equal(c.positions[STREAM_TEXT], 1);
    routing_counts_release(&c);
}

/* ---- A small random model over shards of every kind ---- */

static void make_model(void)
{
    const float push[EXPERTS] = {[PUSHED_EXPERT] = 100}; /* every position chooses this expert */
    struct model model;
    struct model_config c = toy_config(LAYERS, TOY_ALL & ~(unsigned)TOY_SHARED);
    c.vocabulary = round_up(fixture_meta.vocabulary, 16);
    toy_open(&model, &device, &c, false);
    toy_set_weight(&model.weights, model.layer[PUSHED_LAYER].bias, push);
    double use[LAYERS * EXPERTS];
    for (i64 i = 0; i < LAYERS * EXPERTS; i++)
        use[i] = (double)(i * 5 % 7);
    model_use_put(&model, use);
    require(directory_make(model_folder) == 0 && model_save(&model, model_folder) == 0, "%s", error_text());
    require(copy_tokenizers(model_folder, shards) == 0, "%s", error_text());
    model_close(&model);
}

static int make(void **state)
{
    (void)state;
    device_open_cpu(&device);
    shards = fixture_shards("routing", 200, 40);
    model_folder = path_join(shards, "model");
    out_folder = path_join(shards, "out");
    make_model();
    return 0;
}

static int clear(void **state)
{
    (void)state;
    directory_remove(shards);
    memory_free(shards);
    memory_free(model_folder);
    memory_free(out_folder);
    device_close(&device);
    return 0;
}

static struct json *look(struct routing_settings s)
{
    s.from = model_folder;
    s.data = shards;
    s.split = (char *)"train";
    s.length = 128;
    assert_int_equal(directory_remove(out_folder), 0);
    assert_int_equal(directory_make(out_folder), 0);
    if (routing_measure(&s, out_folder, &device))
        fail_msg("%s", error_text());
    char *path = path_join(out_folder, "routing.json");
    struct json *j = json_load(path);
    assert_non_null(j);
    memory_free(path);
    return j;
}

/* Every position of a stream chooses `topk` experts in every MoE layer. */
static void check_sums(const struct json *j, i64 topk)
{
    for (i64 l = 0; l < json_count(json_get(j, "layers")); l++)
        for (int s = 0; s <= STREAM_AUDIO; s++) {
            const struct json *stream =
                json_get(json_get(json_at(json_get(j, "layers"), l), "streams"), stream_rows[s].name);
            i64 sum = 0, positions = json_integer(json_get(json_get(j, "positions"), stream_rows[s].name), -1);
            for (i64 e = 0; e < json_count(json_get(stream, "counts")); e++)
                sum += json_integer(json_at(json_get(stream, "counts"), e), 0);
            assert_true(positions > 0);
            assert_int_equal(sum, topk * positions);
        }
}

TEST(every_choice_is_counted)
{
    struct json *j = look((struct routing_settings){0});
    assert_int_equal(json_count(json_get(j, "layers")), LAYERS - 1);
    check_sums(j, TOPK);
    const struct json *layer = json_at(json_get(j, "layers"), PUSHED_LAYER - 1);
    for (int s = 0; s <= STREAM_AUDIO; s++) {
        const struct json *counts = json_get(json_get(json_get(layer, "streams"), stream_rows[s].name), "counts");
        assert_int_equal(json_integer(json_at(counts, PUSHED_EXPERT), -1),
                         json_integer(json_get(json_get(j, "positions"), stream_rows[s].name), 0));
    }
    json_free(j);
}

TEST(a_submodels_experts_keep_their_ids)
{
    struct json *j = look((struct routing_settings){.sub = {"0-3", "1,3-6", "1"}});
    const struct json *layer = json_at(json_get(j, "layers"), PUSHED_LAYER - 1);
    const struct json *audio = json_get(json_get(json_get(layer, "streams"), "audio"), "counts");
    check_sums(j, 1);
    assert_int_equal(json_integer(json_at(json_get(layer, "experts"), 3), -1), PUSHED_EXPERT);
    assert_int_equal(json_integer(json_at(audio, 3), -1), json_integer(json_get(json_get(j, "positions"), "audio"), 0));
    json_free(j);
}

static i64 times_in(const char *name, const char *word)
{
    struct buffer text = {0};
    char *path = path_join(out_folder, name);
    i64 times = 0;
    assert_int_equal(file_read(&text, path), 0);
    for (const char *at = text.data; (at = strstr(at, word)) != NULL; at++)
        times++;
    buffer_release(&text);
    memory_free(path);
    return times;
}

static i64 lines_of(const char *name)
{
    return times_in(name, "\n");
}

TEST(files_hold_what_they_should)
{
    static const char *const pictures[] = {"use-first",      "use-middle",   "use-last", "overlap-first",
                                           "overlap-middle", "overlap-last", "entropy"};
    json_free(look((struct routing_settings){.trace = 7, .rows = 40}));
    assert_int_equal(lines_of("use.csv"), 1 + (LAYERS - 1) * STREAMS * EXPERTS);
    assert_int_equal(lines_of("entropy.csv"), 1 + (LAYERS - 1) * STREAMS);
    assert_int_equal(lines_of("overlap.csv"), 1 + (LAYERS - 1) * STREAMS * (STREAMS - 1));
    assert_int_equal(lines_of("trace.jsonl"), 7 * (LAYERS - 1));
    for (i64 i = 0; i < COUNT_OF(pictures); i++) {
        struct buffer svg = {0};
        char *path = string_format("%s/%s.svg", out_folder, pictures[i]);
        assert_int_equal(file_read(&svg, path), 0);
        assert_int_equal(strncmp(svg.data, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 360 ", 57), 0);
        assert_true(strstr(svg.data, "<style>:root{") && strcmp(svg.data + svg.length - 7, "</svg>\n") == 0);
        buffer_release(&svg);
        memory_free(path);
    }
    assert_int_equal(times_in("routing.html", "<svg "), 2 * (LAYERS - 1) + 1);
}

TEST(shards_of_other_tokenizers_are_refused)
{
    struct routing_settings s = {.from = model_folder, .data = shards, .split = (char *)"validation", .length = 128};
    assert_int_equal(routing_measure(&s, out_folder, &device), -1);
    assert_non_null(strstr(error_text(), "validation"));
    struct model model;
    assert_int_equal(model_load(&model, &device, model_folder, DTYPE_F32, false), 0);
    model.config.levels = 1;
    struct heldout_pass pass = {.directory = shards, .split = "train", .length = 128};
    struct submodel full;
    submodel_full(&full, &model.config);
    assert_int_equal(heldout_walk(&pass, &model, &full), -1);
    assert_non_null(strstr(error_text(), "audio levels"));
    model_close(&model);
}

/* ---- GPU memory of a pass ---- */

/* Bytes of blocks in addition to the model's. */
static i64 bytes_taken(const struct model_config *config, const struct heldout_pass *pass, bool dry)
{
    struct device meta;
    struct model model;
    struct submodel full;
    device_open_meta(&meta);
    device_meta_gpu(&meta, true);
    assert_int_equal(model_open(&model, &meta, config, DTYPE_F32, false, NULL), 0);
    i64 weights = meta.backed_most_bytes;
    submodel_full(&full, config);
    if (dry ? heldout_dry_run(&model, NULL, pass) : heldout_walk(pass, &model, &full))
        fail_msg("%s", error_text());
    i64 bytes = meta.backed_most_bytes - weights;
    model_close(&model);
    device_close(&meta);
    return bytes;
}

static void expect_largest(const struct model_config *config)
{
    const i64 lengths[] = {64, 128, 256, 512};
    i64 larger = 0;
    for (i64 i = 0; i < COUNT_OF(lengths); i++) {
        struct heldout_pass all = {.directory = shards, .split = "train", .length = lengths[i]}, first = all;
        first.most_rows = 2;
        i64 bytes = bytes_taken(config, &all, false), few = bytes_taken(config, &first, false);
        print_message("%lld positions: %lld blocks, the first rows %lld\n", (long long)lengths[i],
                      (long long)(bytes / GROW_BYTES), (long long)(few / GROW_BYTES));
        assert_int_equal(bytes_taken(config, &all, true), bytes);
        assert_int_equal(bytes_taken(config, &first, true), few);
        larger += bytes > few;
    }
    assert_true(larger > 0);
}

/* Models whose memory is dominated by text targets, and by vision inputs. */
TEST(a_pass_takes_what_its_largest_batches_take)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL & ~(unsigned)TOY_SHARED), seen;
    c.vocabulary = round_up(fixture_meta.vocabulary, 16);
    seen = c;
    c.vocabulary <<= 9;
    seen.vit_width = 4096;
    expect_largest(&c);
    expect_largest(&seen);
}

/* ---- The other two stages on the same model ---- */

/* A sub-model that takes 0.8 of the full model's time, on a machine that is slower in some rounds
 * than others by far more than that, and two rounds in which something else ran during one of the
 * two. */
TEST(what_slows_a_whole_round_does_not_change_the_ratio)
{
    enum { ROUNDS = 11 };
    double seconds[ROUNDS][2];
    struct grid_speed full, part;
    for (i64 r = 0; r < ROUNDS; r++) {
        double slow = 0.001 * (1 + (double)(r * 7 % ROUNDS));
        seconds[r][0] = slow;
        seconds[r][1] = slow * 0.8;
    }
    seconds[3][0] *= 40;
    seconds[8][1] *= 40;
    grid_speed_summarize(&full, seconds[0], ROUNDS, 2, 0, 1);
    grid_speed_summarize(&part, seconds[0], ROUNDS, 2, 1, 1);
    assert_float_equal(full.ratio, 1, 1e-12);
    assert_float_equal(part.ratio, 1.25, 1e-12);
    assert_float_equal(part.ratio_low, 1.25, 1e-12);
    assert_float_equal(part.ratio_high, 1.25, 1e-12);
    assert_true(full.low < full.per_s && full.per_s < full.high); /* rounds differ */
    assert_true(part.low < part.per_s && part.per_s < part.high);
    double plain[5][1] = {{0.1}, {0.2}, {0.25}, {0.5}, {1}};
    grid_speed_summarize(&full, plain[0], 5, 1, 0, 2);
    assert_float_equal(full.per_s, 8, 1e-12);
    assert_float_equal(full.low, 4, 1e-12);
    assert_float_equal(full.high, 10, 1e-12);
}

/* Losses by stream in grid.json: those of the same pass alone. */
static void grid_has_losses_by_stream(const struct grid_result *r, const struct grid_settings *s)
{
    struct model model;
    assert_int_equal(model_load(&model, &device, s->from, DTYPE_OTHER, false), 0);
    for (i64 i = 0; i < r->count; i++) {
        struct heldout h;
        i64 finite = 0;
        assert_int_equal(heldout_measure(&h, &model, &r->points[i].sub, s->data, s->split, s->length, s->rows), 0);
        struct json *j = grid_point_json(r, i);
        for (int stream = 0; stream < LOSS_STREAMS; stream++)
            for (int kind = 0; kind < TARGETS; kind++) {
                char *name = string_format("%s/%s", heldout_stream_name(stream), target_rows[kind].name);
                double expected = heldout_loss(&h, stream, kind);
                double written = json_number(json_get(json_get(j, "streams"), name), NAN);
                finite += isfinite(expected);
                assert_true(isfinite(expected) ? written == expected : isnan(written));
                memory_free(name);
            }
        assert_true(finite >= 4);
        json_free(j);
    }
    model_close(&model);
}

TEST(a_grid_measures_models_no_larger_than_the_full_one)
{
    struct grid_settings s = {.from = model_folder,
                              .data = shards,
                              .split = (char *)"train",
                              .rows = 4,
                              .length = 128,
                              .decode_tokens = 16,
                              .rounds = 3};
    struct grid_result r;
    struct buffer table = {0};
    if (grid_measure_all(&r, &s, &device))
        fail_msg("%s", error_text());
    assert_true(r.count >= 5);
    assert_string_equal(r.points[0].name, "full");
    for (i64 i = 0; i < r.count; i++) {
        assert_true(isfinite(r.points[i].loss[TARGET_TEXT]) && isfinite(r.points[i].loss_all));
        assert_true(r.points[i].active <= r.points[0].active && r.points[i].parameters <= r.points[0].parameters);
        const struct grid_speed *speeds[] = {&r.points[i].decode, &r.points[i].prefill};
        assert_true(r.points[i].tokens_per_s == r.points[i].decode.per_s);
        for (i64 k = 0; k < 2; k++) {
            assert_true(0 < speeds[k]->low && speeds[k]->low <= speeds[k]->per_s);
            assert_true(speeds[k]->per_s <= speeds[k]->high && isfinite(speeds[k]->high));
            assert_true(i > 0 || speeds[k]->ratio == 1);
        }
    }
    grid_has_losses_by_stream(&r, &s);
    grid_print(&table, &r);
    print_message("%s", table.data);
    char *streams = strstr(table.data, "loss by stream"), shown[32];
    assert_non_null(streams);
    assert_non_null(strstr(streams, "image-out/vision"));
    snprintf(shown, sizeof shown, " %.4f", r.streams[r.count - 1][STREAM_TEXT][TARGET_TEXT]);
    assert_non_null(strstr(strstr(streams, r.points[r.count - 1].name), shown));
    double before = 0;
    for (char *line = strchr(table.data, '\n') + 1, *end; (end = strchr(line, '\n')) && line < streams; line = end + 1)
        for (i64 i = 0; i < r.count; i++) { /* rows are in the order of their ratio */
            i64 n = (i64)strlen(r.points[i].name);
            if (strncmp(line, r.points[i].name, (size_t)n) != 0 || line[n] != ' ' || line[n + 1] != ' ')
                continue;
            assert_true(r.points[i].decode.ratio >= before);
            before = r.points[i].decode.ratio;
        }
    assert_true(before > 0);
    buffer_release(&table);
    grid_result_release(&r);
}

TEST(an_extracted_model_has_its_tokenizers)
{
    char *taught = path_join(model_folder, TAUGHT_FILE);
    assert_int_equal(file_replace(taught, "{}\n", 3), 0);
    memory_free(taught);
    struct extract_settings s = {.from = model_folder, .sub = {NULL, "4", "1"}};
    struct stage stage = {.name = "half", .out = out_folder, .device = &device, .dtype = DTYPE_F32};
    struct model_config config;
    assert_int_equal(directory_remove(out_folder), 0);
    assert_int_equal(directory_make(out_folder), 0);
    if (extract_stage(&s, &stage))
        fail_msg("%s", error_text());
    assert_int_equal(model_config_load(&config, out_folder), 0);
    assert_int_equal(config.experts, 4);
    static const char *const files[] = {"tokenizer.json", TAUGHT_FILE};
    for (i64 i = 0; i < COUNT_OF(files); i++) {
        char *path = path_join(out_folder, files[i]);
        assert_true(file_exists(path));
        memory_free(path);
    }
}

/* A stage names its data in identity.json; one that starts from another model follows that. */
static void put_identity(const char *folder, const char *settings)
{
    char *path = path_join(folder, "identity.json"), *text = string_format("{\"settings\": %s}", settings);
    assert_int_equal(directory_make(folder), 0);
    assert_int_equal(file_replace(path, text, (i64)strlen(text)), 0);
    memory_free(path);
    memory_free(text);
}

TEST(a_cut_is_compared_on_the_shards_of_its_model)
{
    struct model model, cut;
    struct submodel sub;
    struct arena arena;
    struct buffer on = {0};
    struct proof_logits masked;
    const struct submodel_options options = {NULL, "4", "1"};
    i32 ids[64];
    char *settings = string_format("{\"data\": {\"one\": {\"data\": [\"%s\"]}}}", shards);
    assert_null(proof_shards(model_folder));
    put_identity(model_folder, settings);
    put_identity(out_folder, "{\"from\": \"model\", \"data\": null}");
    char *found = proof_shards(out_folder);
    assert_string_equal(found, shards);
    arena_open(&arena, 64 << 20);
    assert_int_equal(model_load(&model, &device, model_folder, DTYPE_F32, false), 0);
    assert_int_equal(submodel_parse(&sub, &arena, &options, &model), 0);
    char *cut_folder = string_format("%s-cut", model_folder);
    assert_int_equal(toy_cut(&cut, &model, &sub, cut_folder), 0);
    memory_free(cut_folder);
    if (proof_logits_take(&masked, &model, &sub, model_folder) ||
        proof_logits_compare(&on, &masked, &cut, model_folder))
        fail_msg("%s", error_text());
    print_message("%s\n", on.data);
    assert_non_null(strstr(on.data, "on random samples: text, mtp, vision, audio"));
    assert_non_null(strstr(on.data, "; on 4 rows of "));
    assert_true(proof_ids(ids, COUNT_OF(ids), &model, model_folder));
    for (i64 i = 0; i < COUNT_OF(ids); i++)
        assert_in_range(ids[i], 0, model.config.vocabulary - 1);
    struct weight *head = weights_find(&cut.weights, "vision.head");
    float *values = toy_weight(&device, head);
    values[0] += 1;
    toy_set_weight(&cut.weights, head, values);
    assert_int_equal(proof_logits_compare(&on, &masked, &cut, model_folder), -1);
    assert_non_null(strstr(error_text(), "logits of vision"));
    memory_free(values);
    buffer_release(&on);
    proof_logits_release(&masked);
    model_close(&cut);
    model_close(&model);
    arena_close(&arena);
    memory_free(found);
    memory_free(settings);
}

int main(void)
{
    return tests_run(make, clear);
}
