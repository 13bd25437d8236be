/* No leakage: over random packings of samples of all modalities, and over packer rows, the logits
 * of a position are bitwise unchanged whatever other samples or later groups contain. Within an
 * audio frame a level may depend on the levels before it; the multi-token head also gets the next
 * id. */
#include <string.h>

#include "tests/device.h"
#include "data/loader/plan.h"
#include "tests/shard_fixture.h"
#include "tests/toy.h"

enum { PACKINGS = 6, CUTS = 10, ROW = 160, ROWS = 2 };

static struct device device;
static struct arena arena;
static struct loader *loader;
static char *folder;
static i64 zero_step[1];
static double two_rows[] = {ROWS}, short_rows[] = {ROW};

/* A model and the packer that makes batches for it. */
struct leakage_model {
    struct model model;
    i32 first_id, ids; /* range of text ids; brackets are outside and are kept */
    void (*pack)(struct toy_batch *out, i64 number);
};

static void pack_toy(struct toy_batch *out, i64 number)
{
    toy_batch_init(out, &arena, 7, (struct rng_key){(u64)number, RNG_TEST}, (i32)number);
}

static void push_entry(struct toy_groups *groups, const struct plan_entry *entry)
{
    loader_parts(loader, entry, &loader->given);
    for (i64 i = 0; i < loader->given.count; i++)
        toy_push_part(groups, &loader->vocabulary, &loader->given.parts[i]);
}

static void pack_shards(struct toy_batch *out, i64 number)
{
    struct toy_groups *groups = &out->groups;
    assert_int_equal(loader_batch(loader, number, 0, &out->batch, &arena), 0);
    *groups = (struct toy_groups){.group = arena_alloc(&arena, out->batch.n * 4)};
    const struct packed_rows *rows = &plan_step(loader, number)->rows;
    for (i64 row = 0; row < ROWS; row++) {
        for (i64 i = rows->offset[row]; i < rows->offset[row + 1]; i++)
            push_entry(groups, &rows->entries.data[i]);
        toy_push_singles(groups, (row + 1) * ROW - groups->n);
    }
}

static void open_loader(void)
{
    const struct loader_settings settings = {.rows = {zero_step, two_rows, 1},
                                             .length = {zero_step, short_rows, 1},
                                             .micro_rows = ROWS,
                                             .mixture = {0.3, 1, 1, 1, 1, 1, 1, 1},
                                             .condition[MODALITY_TEXT] = 1,
                                             .condition[MODALITY_AUDIO] = 0.5,
                                             .condition_drop = 0.2,
                                             .flip_most = 0.2,
                                             .reweight = true,
                                             .window = 1,
                                             .frame_mask = 0.3};
    folder = fixture_shards("leakage", 200, 20);
    loader = loader_open(folder, "train", &settings, 5);
    require(loader, "%s", error_text());
}

static const i32 *audio_layers; /* of each level; NULL: the top layers */

static void world_open(struct leakage_model *w, void (*pack)(struct toy_batch *, i64))
{
    struct model_config c = toy_config(4, TOY_ALL);
    for (i64 level = 0; audio_layers && level < TOY_LEVELS; level++)
        c.audio_layer[c.audio_layer_count++] = audio_layers[level];
    *w = (struct leakage_model){.ids = TOY_IDS, .pack = pack};
    if (pack == pack_shards) {
        c.vocabulary = round_up(loader->vocabulary.ids, 16);
        w->first_id = 100;
        w->ids = 32;
    }
    toy_open(&w->model, &device, &c, false);
}

/* ---- Outputs of a model ---- */

struct leakage_outputs {
    float *hidden, *logits[TARGETS][TOY_LEVELS];
    i64 columns[TARGETS];
};

static void look(struct leakage_outputs *out, struct leakage_model *w, const struct batch *b)
{
    struct tape tape;
    struct forward forward;
    struct submodel sub;
    i32 *topk = arena_alloc(&arena, 256 * 4);
    submodel_full(&sub, &w->model.config);
    for (i32 i = 0; i < 256; i++) /* per-sample top-k, like elastic draws */
        topk[i] = 1 + i % 2;
    sub.sample_topk = topk;
    memset(out, 0, sizeof *out);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, false);
    model_forward(&forward, &tape, &w->model, b, &sub, NULL);
    out->hidden = toy_tensor(&device, forward.hidden);
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; level < TOY_LEVELS; level++)
            if (forward.logits[kind][level]) {
                out->logits[kind][level] = toy_tensor(&device, forward.logits[kind][level]);
                out->columns[kind] = forward.logits[kind][level]->columns;
            }
    tape_close(&tape);
}

static void forget(struct leakage_outputs *s)
{
    memory_free(s->hidden);
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; level < TOY_LEVELS; level++)
            memory_free(s->logits[kind][level]);
}

/* ---- Disturbance: other ids, features, pixels and codes where `at` [n + 1] is set ---- */

static i64 other(i64 value, i64 bound, i64 salt)
{
    return (value + 1 + salt % (bound - 1)) % bound;
}

static void disturb_ids(struct batch *b, const struct leakage_model *w, const u8 *at)
{
    struct input_list *in = &b->inputs[INPUT_TEXT];
    for (i64 i = 0; i < in->n; i++) {
        i64 value = in->ids[i] - w->first_id;
        if (at[in->position[i]] && value >= 0 && value < w->ids)
            in->ids[i] = w->first_id + (i32)other(value, w->ids, i);
    }
}

static void disturb_codes(i32 *codes, i64 salt)
{
    for (i64 l = 0; l < TOY_LEVELS; l++)
        codes[l] = codes[l] == TOY_CODES ? TOY_CODES : (i32)other(codes[l], TOY_CODES, salt);
}

/* The codes that are inputs at a position are also targets, and inputs of later levels, at the
 * position before it. */
static void disturb_audio(struct batch *b, const u8 *at)
{
    struct input_list *in = &b->inputs[INPUT_AUDIO];
    struct target_list *t = &b->targets[TARGET_AUDIO];
    for (i64 i = 0; i < in->n; i++)
        if (at[in->position[i]])
            disturb_codes(in->ids + i * TOY_LEVELS, in->position[i]);
    for (i64 i = 0; i < t->n; i++)
        if (at[t->position[i] + 1])
            disturb_codes(t->ids + i * TOY_LEVELS, t->position[i] + 1);
}

static void disturb_vision(struct batch *b, const u8 *at)
{
    struct input_list *in = &b->inputs[INPUT_VISION_IN], *out = &b->inputs[INPUT_VISION_OUT];
    for (i64 i = 0; i < in->n * CELLS * TOY_FEATURES; i++)
        if (at[in->position[i / (CELLS * TOY_FEATURES)]])
            in->features[i] = 0.7f * in->features[i] + (float)(i % 3) - 0.9f;
    for (i64 i = 0; i < in->n * CELLS * TOY_PATCH; i++)
        if (at[in->position[i / (CELLS * TOY_PATCH)]])
            in->pixels[i] = (u8)other(in->pixels[i], 256, i * i);
    for (i64 i = 0; i < out->n * TOY_BITS; i++)
        if (at[out->position[i / TOY_BITS]])
            out->features[i] = 0.7f * out->features[i] + (float)(i % 3) - 0.9f;
}

/* ---- Positions that may change ---- */

static bool same_row(const float *a, const float *b, i64 row, i64 columns)
{
    return memcmp(a + row * columns, b + row * columns, (size_t)columns * 4) == 0;
}

static void expect_same(const char *what, const struct leakage_outputs *a, const struct leakage_outputs *b,
                        enum target_kind kind, i64 level, i64 i, i64 position)
{
    if (!same_row(a->logits[kind][level], b->logits[kind][level], i, a->columns[kind]))
        fail_msg("%s: logits of %s %d at position %d moved", what, target_rows[kind].name, (int)level, (int)position);
}

/* at [n + 1]: positions that were disturbed, and so may have changed. */
static void expect_no_leak(const char *what, const struct batch *b, const u8 *at, const struct leakage_outputs *before,
                           const struct leakage_outputs *after)
{
    u8 *told = memory_alloc(b->n); /* its head receives the first codes of the next frame */
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 i = 0; i < b->targets[kind].n; i++) {
            i64 p = b->targets[kind].position[i];
            told[p] |= target_rows[kind].by_level && at[p + 1];
            for (i64 level = 0; level < target_levels((enum target_kind)kind, &toy_widths); level++)
                if (!at[p] && !(at[p + 1] && (kind == TARGET_MTP || level > 0)))
                    expect_same(what, before, after, kind, level, i, p);
        }
    for (i64 p = 0; p < b->n; p++)
        if (!at[p] && !told[p] && !same_row(before->hidden, after->hidden, p, 32))
            fail_msg("%s: the hidden state of position %d moved", what, (int)p);
    memory_free(told);
}

/* Repeats a packing with other contents at the flagged
 * positions; returns true if the last of them changed. */
static bool disturbed(struct leakage_model *w, i64 number, const char *what, const struct toy_batch *original,
                      const u8 *at)
{
    struct toy_batch other_one;
    struct leakage_outputs before, after;
    i64 n = original->batch.n, last = n - 1;
    w->pack(&other_one, number);
    disturb_ids(&other_one.batch, w, at);
    disturb_audio(&other_one.batch, at);
    disturb_vision(&other_one.batch, at);
    look(&before, w, &original->batch);
    look(&after, w, &other_one.batch);
    expect_no_leak(what, &original->batch, at, &before, &after);
    while (!at[last])
        last--;
    bool noticed = !same_row(before.hidden, after.hidden, last, 32);
    forget(&before);
    forget(&after);
    return noticed;
}

/* ---- Isolation of samples, and of past from future ---- */

static i64 draw(i64 bound, i64 packing, i64 cut, i64 what)
{
    return rng_below((struct rng_key){77, RNG_TEST}, bound, (u32)packing, (u32)cut, (u32)what, 0);
}

static i64 draw_position(const struct batch *b, i64 packing, i64 cut)
{
    for (i64 i = 0;; i++) {
        i64 at = draw(b->n, packing, cut, i);
        if (b->sample[at] >= 0)
            return at;
    }
}

/* Flags all of one sample, or its groups from that of `position` on. */
static void flag(u8 *at, const struct toy_batch *b, i64 position, bool later)
{
    memset(at, 0, (size_t)b->batch.n + 1);
    for (i64 i = 0; i < b->batch.n; i++)
        at[i] = b->batch.sample[i] == b->batch.sample[position] &&
                (!later || b->groups.group[i] >= b->groups.group[position]);
}

static void expect_walls(void (*pack)(struct toy_batch *, i64), bool later)
{
    static struct leakage_model w;
    i64 noticed = 0;
    world_open(&w, pack);
    for (i64 number = 0; number < PACKINGS; number++)
        for (i64 cut = 0; cut < CUTS; cut++) {
            struct toy_batch b;
            arena_reset(&arena, 0);
            pack(&b, number);
            u8 *at = arena_alloc(&arena, b.batch.n + 1);
            i64 position = draw_position(&b.batch, number, cut);
            char *what = string_format("packing %d, sample %d, from position %d on", (int)number,
                                       b.batch.sample[position], (int)position);
            flag(at, &b, position, later);
            noticed += disturbed(&w, number, what, &b, at);
            memory_free(what);
        }
    assert_true(noticed > PACKINGS * CUTS * 3 / 4); /* some cuts leave only brackets to disturb */
    model_close(&w.model);
}

TEST(another_sample_moves_nothing)
{
    expect_walls(pack_toy, false);
}

TEST(another_sample_of_the_packer_moves_nothing)
{
    expect_walls(pack_shards, false);
}

TEST(a_later_group_moves_nothing)
{
    expect_walls(pack_toy, true);
}

TEST(a_later_group_of_the_packer_moves_nothing)
{
    expect_walls(pack_shards, true);
}

/* The head of a level sees the earlier levels of the predicted frame and no other. */
TEST(a_level_knows_the_levels_before_it)
{
    static struct leakage_model w;
    world_open(&w, pack_toy);
    for (i64 level = 0; level < TOY_LEVELS; level++) {
        struct toy_batch a, b;
        struct leakage_outputs before, after;
        arena_reset(&arena, 0);
        pack_toy(&a, 0);
        pack_toy(&b, 0);
        const struct target_list *t = &b.batch.targets[TARGET_AUDIO];
        assert_true(t->n > 2);
        i32 *code = &t->ids[(t->n - 1) * TOY_LEVELS + level];
        *code = (*code + 1) % TOY_CODES; /* the last frame; no position after it sees more */
        look(&before, &w, &a.batch);
        look(&after, &w, &b.batch);
        for (i64 i = 0; i < t->n; i++)
            for (i64 l = 0; l < TOY_LEVELS; l++)
                assert_int_equal(
                    same_row(before.logits[TARGET_AUDIO][l], after.logits[TARGET_AUDIO][l], i, TOY_CODES + 1),
                    !(l > level && i == t->n - 1));
        forget(&before);
        forget(&after);
    }
    model_close(&w.model);
}

/* Levels on lower layers, on one layer, and on the last one. */
TEST(heads_on_any_layer_leak_nothing)
{
    static const i32 places[][TOY_LEVELS] = {{0, 0}, {1, 2}, {0, 3}, {3, 3}};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        audio_layers = places[i];
        a_level_knows_the_levels_before_it(state);
        another_sample_moves_nothing(state);
        a_later_group_moves_nothing(state);
    }
    audio_layers = NULL;
}

static int make(void **state)
{
    (void)state;
    test_device_open(&device);
    workers_start(1);
    arena_open(&arena, (i64)1 << 32);
    open_loader();
    return 0;
}

static int clear(void **state)
{
    (void)state;
    loader_close(loader);
    directory_remove(folder);
    memory_free(folder);
    arena_close(&arena);
    return 0;
}

int main(void)
{
    return tests_run(make, clear);
}
