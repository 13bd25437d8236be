/* Fragments of a table of weights and what merges do to them, against plain arithmetic, and on ranks of several layouts
 * against one rank. */
#include <math.h>

#include "sites/fragments.h"
#include "tests/device.h"
#include "tests/ranks.h"

enum { LAYERS = 5, EXPERTS = 4 };
static struct device device;

/* A table with all ways to be sharded: rows, columns and experts, a vector, and a bias that is not trained. */
static void open_table(struct weights *w, const struct parallel *ranks, enum dtype dtype)
{
    struct weights_layout place = parallel_place(&ranks->layout, ranks->world->rank);
    char name[32];
    place.layers = LAYERS;
    weights_open(w, &device, dtype, true, &place);
    for (i64 layer = -1; layer <= LAYERS; layer++) {
        struct weight_spec specs[] = {weight_matrix("rows", 8, 72), weight_matrix("columns", 6, 160),
                                      weight_matrix("experts", 6, 40), weight_matrix("norm", 1, 30),
                                      weight_matrix("bias", 1, EXPERTS)};
        specs[0].tensor_axis = AXIS_ROWS;
        specs[1].tensor_axis = AXIS_COLUMNS;
        specs[2].matrices = EXPERTS;
        specs[2].expert_axis = true;
        specs[3].type = specs[4].type = TYPE_F32;
        specs[4].trained = specs[4].multiplied = false;
        for (i64 i = 0; i < COUNT_OF(specs); i++) {
            snprintf(name, sizeof name, "%s.%lld", specs[i].pieces[0].name, (long long)layer);
            specs[i].name = specs[i].pieces[0].name = name;
            specs[i].layer = layer;
            weights_add(w, &specs[i]);
        }
    }
    weights_allocate(w);
    weights_init(w, 3);
}

/* What a site's steps do to number `at` of a weight. */
static float step_of(const struct weight *w, i64 at, i64 site)
{
    u32 name = (u32)hash_bytes(w->spec.name, (i64)strlen(w->spec.name), 0);
    return 0.01f * (float)rng_normal((struct rng_key){9, RNG_TEST}, name, (u32)at, (u32)site, 0);
}

static void take_steps(struct weights *weights, i64 site)
{
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        float *values = memory_alloc(max_i64(1, w->columns) * 4);
        for (i64 row = w->share_first; row < w->share_first + w->share_rows; row++) {
            weight_get(weights, w, row, 1, values);
            for (i64 c = 0; c < w->columns; c++)
                values[c] += step_of(w, weight_logical_at(w, row) + c, site);
            weight_put(weights, w, row, 1, values);
        }
        memory_free(values);
    }
}

/* The part of a site that has come by this table: tokens and use differ from site to site. */
static struct buffer part_of(struct fragments *f, i64 fragment, int bits, i64 site)
{
    struct part_sizes sizes = fragment_sizes(f, fragment);
    struct part_head head = {
        .tokens = 100.0 * (double)(site + 1), .bits = bits, .uses = sizes.uses, .code_bytes = sizes.code_bytes[bits]};
    struct buffer part = {0};
    u8 *codes = memory_alloc(sizes.code_bytes[bits]);
    double *use = memory_alloc(max_i64(1, sizes.uses) * 8);
    for (i64 i = 0; i < sizes.uses; i++)
        use[i] = (double)((i + site) % 3); /* with zeros */
    snprintf(head.name, sizeof head.name, "site-%lld", (long long)site);
    require(fragment_measure(f, fragment) == 0, "%s", error_text());
    fragment_encode(f, fragment, bits, codes);
    part_write(&part, &head, use, codes);
    memory_free(codes);
    memory_free(use);
    return part;
}

static struct record *record_of(struct buffer *text, const struct fragments *f, i64 fragment,
                                const struct buffer *parts, i64 count)
{
    struct part_sizes sizes = fragment_sizes(f, fragment);
    struct record *record = memory_alloc(sizeof *record);
    buffer_clear(text);
    record_write(text, parts, count, NULL);
    require(record_read(record, (const u8 *)text->data, text->length, &sizes) == 0, "%s", error_text());
    return record;
}

/* Reads number `at` of an unsharded matrix, on one rank. */
static float number_of(const struct weights *weights, const struct weight *w, i64 at)
{
    float *row = memory_alloc(w->columns * 4);
    weight_get(weights, w, at / w->columns, 1, row);
    float value = row[at % w->columns];
    memory_free(row);
    return value;
}

static void check_coverage(const struct fragments *f)
{
    i64 elements = 0, layers[LAYERS + 1], seen = 0;
    for (i64 i = 0; i < f->count; i++) {
        elements += fragment_elements(f, i);
        seen += fragment_layers(layers, f, i);
    }
    assert_int_equal(f->count, FRAGMENTS_MOST);
    assert_int_equal(elements, (LAYERS + 2) * (8 * 72 + 6 * 160 + EXPERTS * 6 * 40 + 30 + EXPERTS));
    assert_int_equal(seen, LAYERS);
}

/* Whether all weights are their first values and the mean of both sites' steps. */
static void check_mean(const struct fragments *f, const struct weights *merged)
{
    struct weights fresh;
    open_table(&fresh, parallel_alone(), DTYPE_F32);
    for (i64 i = 0; i < fresh.count; i++) {
        struct weight *w = &fresh.list[i];
        i64 layers[LAYERS + 1], place = -1;
        i64 count = fragment_layers(layers, f, fragment_of_layer(f, w->spec.layer));
        for (i64 k = 0; k < count && w->spec.expert_axis; k++)
            place = layers[k] == w->spec.layer ? k : place;
        for (i64 at = 0; at < w->spec.matrices * w->spec.rows * w->spec.columns; at++) {
            double shares[] = {100, 200}, expected = number_of(&fresh, w, at);
            i64 expert = at / (w->spec.rows * w->spec.columns);
            for (i64 s = 0; s < 2 && place >= 0; s++)
                shares[s] = (double)((place * EXPERTS + expert + s) % 3);
            for (i64 s = 0; s < 2; s++)
                expected += shares[s] / (shares[0] + shares[1]) * (double)step_of(w, at, s);
            double found = number_of(merged, &merged->list[i], at);
            if (fabs(expected - found) > 1e-6)
                fail_msg("%s, %lld: %g, expected %g", w->spec.name, (long long)at, found, expected);
        }
    }
    weights_close(&fresh);
}

/* Two sites in one process, 32 bits and no rounding: the mean of what SGD with both gradients would do, those of
 * experts weighed by use. */
TEST(two_sites_are_averaged_by_tokens_and_experts_by_use)
{
    struct weights tables[2];
    struct fragments f[2];
    struct buffer parts[2], text = {0};
    for (i64 s = 0; s < 2; s++) {
        open_table(&tables[s], parallel_alone(), DTYPE_F32);
        fragments_open(&f[s], &tables[s], parallel_alone(), LAYERS, EXPERTS);
        fragments_set_anchors(&f[s]);
        take_steps(&tables[s], s);
    }
    check_coverage(&f[0]);
    assert_int_equal(fragments_hash(&f[0]), fragments_hash(&f[1]));
    for (i64 fragment = 0; fragment < f[0].count; fragment++) {
        for (i64 s = 0; s < 2; s++)
            parts[s] = part_of(&f[s], fragment, 32, s);
        struct record *record = record_of(&text, &f[0], fragment, parts, 2);
        for (i64 s = 0; s < 2; s++)
            fragment_apply(&f[s], fragment, record, true, false);
        memory_free(record);
        for (i64 s = 0; s < 2; s++)
            buffer_release(&parts[s]);
    }
    for (i64 s = 0; s < 2; s++)
        check_mean(&f[0], &tables[s]);
    assert_int_equal(fragments_hash(&f[0]), fragments_hash(&f[1]));
    for (i64 s = 0; s < 2; s++) {
        fragments_close(&f[s]);
        weights_close(&tables[s]);
    }
    buffer_release(&text);
}

/* What is rounded away is not lost: the sum of what was sent and what masters still differ in is the sum of all steps.
 */
TEST(what_few_bits_round_away_is_sent_later)
{
    enum { ROUNDS = 6 };
    struct weights table, fresh;
    struct fragments f;
    struct buffer text = {0};
    double left = 0, steps = 0;
    open_table(&table, parallel_alone(), DTYPE_F32);
    open_table(&fresh, parallel_alone(), DTYPE_F32);
    fragments_open(&f, &table, parallel_alone(), LAYERS, EXPERTS);
    fragments_set_anchors(&f);
    for (i64 round = 0; round < ROUNDS; round++) {
        take_steps(&table, round);
        struct buffer part = part_of(&f, 1, 4, 0);
        struct record *record = record_of(&text, &f, 1, &part, 1);
        take_steps(&table, 100 + round); /* while it is on its way */
        fragment_apply(&f, 1, record, true, false);
        memory_free(record);
        buffer_release(&part);
    }
    for (i64 i = 0; i < table.count; i++) {
        struct weight *w = &table.list[i], *anchor = &f.shadow.list[i];
        for (i64 at = 0; at < w->spec.matrices * w->spec.rows * w->spec.columns; at++) {
            double sum = 0, now = number_of(&table, w, at), sent = number_of(&f.shadow, anchor, at);
            for (i64 round = 0; round < ROUNDS; round++)
                sum += (double)step_of(w, at, round) + (double)step_of(w, at, 100 + round);
            double start = number_of(&fresh, &fresh.list[i], at);
            if (fabs(start + sum - now) > 2e-6) /* alone a site goes where its steps lead */
                fail_msg("%s, %lld: %g, expected %g", w->spec.name, (long long)at, now, start + sum);
            if (fragment_of_layer(&f, w->spec.layer) != 1)
                assert_true(sent == start);
            else if (w->spec.trained) {
                double last = (double)step_of(w, at, 100 + ROUNDS - 1);
                left += (now - sent - last) * (now - sent - last); /* rounded away in the last round */
                steps += (sum - last) * (sum - last);
            }
        }
    }
    print_message("left of what was done: %g\n", sqrt(left / steps));
    assert_true(left > 0 && left < 0.01 * steps);
    fragments_close(&f);
    weights_close(&table);
    weights_close(&fresh);
    buffer_release(&text);
}

/* A late site keeps its whole difference; one that takes an anchor keeps it or drops it. */
TEST(a_late_site_keeps_its_difference)
{
    struct weights tables[2];
    struct fragments f[2];
    struct buffer parts[2], text = {0};
    for (i64 s = 0; s < 2; s++) {
        open_table(&tables[s], parallel_alone(), DTYPE_F32);
        fragments_open(&f[s], &tables[s], parallel_alone(), LAYERS, EXPERTS);
        fragments_set_anchors(&f[s]);
        take_steps(&tables[s], s);
        parts[s] = part_of(&f[s], 0, 4, s);
    }
    struct record *record = record_of(&text, &f[0], 0, parts, 1); /* without site 1 */
    fragment_apply(&f[0], 0, record, true, false);
    fragment_apply(&f[1], 0, record, false, false);
    assert_int_equal(fragments_hash(&f[0]), fragments_hash(&f[1]));
    float *anchor = memory_alloc(fragment_elements(&f[0], 0) * 4);
    for (int keep = 1; keep >= 0; keep--) {
        fragment_read_anchor(&f[0], 0, anchor);
        for (i64 i = 0; i < fragment_elements(&f[0], 0); i++)
            anchor[i] += 1;
        for (i64 i = 0; i < tables[1].count; i++) {
            struct weight *w = &tables[1].list[i];
            float difference = number_of(&tables[1], w, 1) - number_of(&f[1].shadow, &f[1].shadow.list[i], 1);
            if (fragment_of_layer(&f[1], w->spec.layer) == 0)
                assert_true(fabsf(difference - step_of(w, 1, 1)) < 1e-6f);
        }
        fragment_take(&f[1], 0, anchor, keep, false);
    }
    for (i64 i = 0; i < tables[1].count; i++) {
        struct weight *w = &tables[1].list[i];
        if (fragment_of_layer(&f[1], w->spec.layer) == 0)
            assert_true(number_of(&tables[1], w, 1) == number_of(&f[1].shadow, &f[1].shadow.list[i], 1));
    }
    for (i64 s = 0; s < 2; s++) {
        buffer_release(&parts[s]);
        fragments_close(&f[s]);
        weights_close(&tables[s]);
    }
    memory_free(record);
    memory_free(anchor);
    buffer_release(&text);
}

TEST(weights_that_are_not_finite_are_not_sent)
{
    struct weights table;
    struct fragments f;
    open_table(&table, parallel_alone(), DTYPE_F32);
    fragments_open(&f, &table, parallel_alone(), LAYERS, EXPERTS);
    fragments_set_anchors(&f);
    weight_put(&table, weights_find(&table, "norm.2"), 0, 1, (const float[30]){[4] = NAN});
    assert_int_equal(fragment_measure(&f, fragment_of_layer(&f, 1)), 0);
    assert_int_equal(fragment_measure(&f, fragment_of_layer(&f, 2)), -1);
    assert_non_null(strstr(error_text(), "norm.2 has numbers that are not finite"));
    fragments_close(&f);
    weights_close(&table);
}

/* ---- On ranks ---- */

struct ranks_case {
    const char *layout;
    enum dtype dtype;
    int ranks;
};

/* Merges of two sites, of which this is one: the hash of all codes, anchors and masters, on the first rank. */
static u64 merge_all(const struct parallel *ranks, enum dtype dtype)
{
    struct weights table;
    struct fragments f;
    struct buffer text = {0};
    u64 hash = 0;
    open_table(&table, ranks, dtype);
    fragments_open(&f, &table, ranks, LAYERS, EXPERTS);
    fragments_set_anchors(&f);
    for (i64 round = 0; round < 3; round++)
        for (i64 fragment = 0; fragment < f.count; fragment++) {
            take_steps(&table, round);
            struct buffer parts[] = {part_of(&f, fragment, round == 1 ? 8 : 4, 0), {0}};
            buffer_append(&parts[1], parts[0].data,
                          parts[0].length); /* the other site: the same numbers, less of them */
            ((struct part_head *)(void *)parts[1].data)->tokens = 37;
            strcpy(((struct part_head *)(void *)parts[1].data)->name, "the-other");
            struct record *record = record_of(&text, &f, fragment, parts, 2);
            hash = hash_bytes(parts[0].data, parts[0].length, hash);
            take_steps(&table, 50 + round);
            fragment_apply(&f, fragment, record, round < 2, round == 2 && fragment == 3);
            fragments_spread(&f);
            memory_free(record);
            buffer_release(&parts[0]);
            buffer_release(&parts[1]);
        }
    float *anchor = memory_alloc(fragment_elements(&f, 2) * 4);
    fragment_read_anchor(&f, 2, anchor);
    fragment_take(&f, 2, anchor, false, false);
    fragments_set_anchors(&f); /* to the masters */
    u64 anchors = fragments_hash(&f);
    memory_free(anchor);
    buffer_release(&text);
    fragments_close(&f);
    weights_close(&table);
    return hash_bytes(&anchors, sizeof anchors, hash);
}

static int run_ranks(void *context)
{
    const struct ranks_case *c = context;
    struct comm *world = ranks_world(&device);
    struct layout layout;
    struct parallel parallel;
    EXPECT(layout_parse(&layout, c->layout, world->size) == 0);
    EXPECT(parallel_open(&parallel, world, &layout) == 0);
    u64 hash = merge_all(&parallel, c->dtype);
    if (world->rank == 0)
        printf("hash %016llx\n", (unsigned long long)hash);
    parallel_close(&parallel);
    comm_close(world);
    return 0;
}

TEST(ranks_of_any_layout_merge_to_the_same_bits)
{
    static const struct ranks_case cases[] = {{"data=2", DTYPE_F32, 2},          {"data=3", DTYPE_BF16, 3},
                                              {"expert=2", DTYPE_BF16, 2},       {"data=4,expert=2", DTYPE_F32, 4},
                                              {"tensor=2", DTYPE_BF16, 2},       {"pipeline=2", DTYPE_F32, 2},
                                              {"data=2,tensor=2", DTYPE_BF16, 4}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct buffer said = {0};
        struct ranks_case c = cases[i];
        char expected[64];
        buffer_append(&said, "", 0);
        snprintf(expected, sizeof expected, "hash %016llx",
                 (unsigned long long)merge_all(parallel_alone(), cases[i].dtype));
        if (ranks_fork(&said, c.ranks, run_ranks, &c) != 0 || !strstr(said.data, expected))
            fail_msg("%s: expected %s in: %s", c.layout, expected, said.data);
        buffer_release(&said);
    }
}

static int open_device(void **state)
{
    (void)state;
    setenv("WEFT_THREADS", "1", 1);
    workers_start(1);
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
