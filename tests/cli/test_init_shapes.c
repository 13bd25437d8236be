/* `weft init`: the shapes that are chosen for proportions, and the positions that pictures then take. */
#include "survey/init.h"
#include "tests/test.h"

#include <math.h>

/* `each` pictures (clips: clips) of each of these proportions; 0 ends the list. */
static struct init_shapes choose(const double *proportions, i64 each, bool clips)
{
    double all[400];
    i64 count = 0;
    for (i64 i = 0; proportions[i] > 0; i++)
        for (i64 k = 0; k < each; k++)
            all[count++] = proportions[i];
    struct init_data data = {0};
    enum modality kind = clips ? MODALITY_VIDEO : MODALITY_IMAGE;
    data.probes[kind] = (struct init_probe){.opened = count, .proportions = all, .size_count = count};
    data.kinds[init_captioned(kind)].samples = count;
    const struct init_plan plan = {.data = &data, .count = 1};
    struct init_shapes shapes;
    init_shapes_choose(&shapes, &plan);
    return shapes;
}

static void expect_shapes(const struct init_shapes *s, const char *expected)
{
    struct buffer text = {0};
    for (i64 i = 0; i < s->list.count; i++) {
        buffer_printf(&text, "%s%lldx%lld ", i ? " " : "", (long long)s->list.items[i].width,
                      (long long)s->list.items[i].height);
        init_put_proportions(&text, s->list.items[i]);
        buffer_printf(&text, " %.0f", 100 * s->share[i]);
    }
    assert_string_equal(text.data, expected);
    buffer_release(&text);
}

TEST(each_proportion_that_is_frequent_gets_its_shape)
{
    struct init_shapes s = choose((double[]){4.0 / 3, 0}, 40, false);
    expect_shapes(&s, "64x48 4:3 100");
    assert_false(s.usual);
    s = choose((double[]){1, 0}, 40, false);
    expect_shapes(&s, "64x64 1:1 100");
    assert_true(s.usual);
    s = choose((double[]){5.0 / 3, 3.0 / 5, 0}, 40, false); /* the usual shapes */
    expect_shapes(&s, "80x48 5:3 50 48x80 3:5 50");
    s = choose((double[]){4.0 / 3, 3.0 / 4, 3, 0}, 40, false);
    assert_int_equal(s.list.count, 3);
    assert_float_equal(s.loss.cut + s.loss.white, 0, 1e-9);
    /* In the usual shapes 4:3 and 3:4 lose a tenth and are a ninth white, 3:1 is white by
     * 1 - (5/9) / 0.9 */
    assert_float_equal(s.before.cut, 0.1, 1e-9);
    assert_float_equal(s.before.white, (2 * (1.0 - 0.8 / 0.9) + 1 - (5.0 / 9) / 0.9) / 3, 1e-9);
    double one_of_many[] = {3,    1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33,
                            1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33,
                            1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 1.33, 0};
    s = choose(one_of_many, 1, false);
    expect_shapes(&s, "64x48 4:3 100");
    double many[] = {1, 1.5, 2, 3, 0.7, 0.5, 0.34, 1.25, 1.33, 1.78, 0};
    s = choose(many, 40, false);
    assert_true(s.list.count > 3 && s.list.count <= ASPECTS_MOST);
    assert_true(s.loss.cut + s.loss.white < s.before.cut + s.before.white);
    s = choose((double[]){0}, 0, false);
    expect_shapes(&s, "64x64 1:1 100");
}

/* Scales of 4 x 3 cells: 1, 2 x 2, 3 x 2 and 4 x 3; three marks around. Merged cells: 2 x 2. */
TEST(positions_follow_the_shapes)
{
    struct init_shapes s = choose((double[]){1, 0}, 40, false);
    assert_float_equal(s.picture_in, 4 + 3, 1e-9);
    assert_float_equal(s.picture_out, 1 + 4 + 9 + 16 + 3, 1e-9);
    assert_float_equal(s.clip_in, 3 * 4 + 3, 1e-9);
    assert_float_equal(s.clip_out, 3 * 30 + 3, 1e-9);
    s = choose((double[]){4.0 / 3, 0}, 40, true);
    assert_float_equal(s.picture_in, 4 + 3, 1e-9);
    assert_float_equal(s.picture_out, 1 + 4 + 6 + 12 + 3, 1e-9);
    assert_float_equal(s.clip_in, 3 * 4 + 3, 1e-9);
    assert_float_equal(s.clip_out, 3 * 23 + 3, 1e-9);
    s = choose((double[]){1.5, 0}, 40, false); /* 6 x 4 cells: 1, 3 x 2, 5 x 3, 6 x 4 */
    assert_float_equal(s.picture_in, 6 + 3, 1e-9);
    assert_float_equal(s.picture_out, 1 + 6 + 15 + 24 + 3, 1e-9);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
