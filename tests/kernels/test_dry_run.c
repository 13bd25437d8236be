/* Dry runs on a GPU that has a given number of bytes left: which smaller work is tried, what the
 * message says, and whether it is an error. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/device/dry_run.h"
#include "tests/test.h"

enum { MB = 1000000, MODEL_MB = 10 };

static i64 left_mb;

static i64 left(const struct device *device)
{
    (void)device;
    return left_mb * MB;
}

static const struct memory gpu_memory = {.left = left};
static const struct device gpu = {.memory = &gpu_memory};

struct dry_stage {
    i64 rows, length, clips;
    bool recompute;
};
#define ROW(member, type, low) SETTING(struct dry_stage, member, #member, type, NULL, low, 1e9, NULL, "")
static const struct setting table[] = {
    ROW(rows, INTEGER, 1), ROW(length, INTEGER, 8), ROW(clips, INTEGER, 0), ROW(recompute, BOOL, 0), {0}};

static struct buffer tried; /* "rows x length, clips, recompute; " of each dry run */

/* The model, which is certain, and as many MB as positions, 4 times that where all is kept. */
static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct dry_stage *s = context;
    (void)meta;
    log_warn("a line of the work");
    buffer_printf(&tried, "%lldx%lld,%lld,%d;", (long long)s->rows, (long long)s->length, (long long)s->clips,
                  s->recompute);
    out->data_bytes = (s->rows * s->length * (s->recompute ? 1 : 4) + s->clips) * MB;
    out->bytes = out->data_bytes + MODEL_MB * MB;
    buffer_printf(&out->parts, "model %d", MODEL_MB);
    return 0;
}

/* Runs a check with `mb` left; captures what it logs. */
static int check(char said[1024], const struct dry_run *work, i64 mb)
{
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    left_mb = mb;
    buffer_clear(&tried);
    error_set("no error");
    int status = dry_run_check(work, &gpu);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    ssize_t n = read(ends[0], said, 1023);
    said[n > 0 ? n : 0] = 0;
    close(ends[0]);
    return status;
}

static struct dry_run work_of(struct dry_stage *s, const struct reduction *reductions)
{
    return (struct dry_run){"a step", run, s, "make it smaller", s, table, reductions};
}

TEST(work_that_fits_is_run_once)
{
    char said[1024];
    struct dry_stage s = {4, 16, 0, false};
    const struct reduction reductions[] = {{"rows"}, {0}};
    const struct dry_run work = work_of(&s, reductions);
    assert_int_equal(check(said, &work, 4 * 16 * 4 + MODEL_MB), 0);
    assert_string_equal(tried.data, "4x16,0,0;");
    assert_string_equal(said, "");
}

/* All kinds of reductions, none of which fits. */
TEST(each_reduction_is_tried_in_its_order)
{
    char said[1024];
    struct dry_stage s = {6, 20, 3, false};
    const struct reduction reductions[] = {
        {"clips"},  {"rows"}, {"recompute", .from_given = true}, {"rows", .least = 2, .with_next = true},
        {"length"}, {0}};
    const struct dry_run work = work_of(&s, reductions);
    assert_int_equal(check(said, &work, 1), -1);
    assert_string_equal(tried.data, "6x20,3,0;"
                                    "6x20,0,0;3x20,0,0;1x20,0,0;"
                                    "6x20,3,1;3x10,3,1;");
    assert_string_equal(error_text(), "a step takes 493.0 MB of GPU memory (model 10), 1.0 are left; nothing smaller "
                                      "would do, not even rows=3 recompute=true length=10: make it smaller");
    assert_string_equal(said, "");
}

/* The first that fits is named; what depends on the data is a warning. */
TEST(the_largest_that_fits_is_named)
{
    char said[1024];
    const struct reduction reductions[] = {{"rows"}, {"recompute", .from_given = true}, {"rows"}, {0}};
    struct dry_stage s = {8, 16, 0, false}, t = s;
    const struct dry_run few = work_of(&s, reductions), recomputed = work_of(&t, reductions);
    assert_int_equal(check(said, &few, 4 * 16 * 4 + MODEL_MB), 0);
    assert_non_null(strstr(said, "warning: a step takes 522.0 MB of GPU memory (model 10), 266.0 are left; rows=4 "
                                 "would take 266.0 MB\n"));
    assert_int_equal(check(said, &recomputed, 16 + MODEL_MB), 0);
    assert_non_null(strstr(said, "; rows=1 recompute=true would take 26.0 MB\n"));
    assert_null(strstr(said, "a line of the work"));
}

/* ---- Without settings ---- */

static int run_slots(struct memory_estimate *out, struct device *meta, void *context)
{
    (void)meta;
    out->bytes = *(const i64 *)context * MB;
    return 0;
}

TEST(slots_are_lowered_and_the_log_says_so)
{
    char said[1024];
    i64 slots = 16;
    const struct dry_run work = {
        "decoding", run_slots, &slots, "take a smaller model", .slots = &slots, .slots_name = "prompts"};
    assert_int_equal(check(said, &work, 5), 0);
    assert_int_equal(slots, 4);
    assert_non_null(strstr(said, "4 prompts at a time, not 16: "));
    assert_int_equal(check(said, &work, 0), -1);
    assert_int_equal(slots, 1);
    assert_string_equal(said, "");
    assert_string_equal(error_text(), "decoding takes 1.0 MB of GPU memory, 0.0 are left; take a smaller model");
}

static bool halve_seats(struct buffer *name, struct dry_run *d)
{
    i64 *slots = d->context;
    *slots /= 2;
    buffer_printf(name, "%lld of them", (long long)*slots);
    return *slots > 0;
}

static int run_arena(struct memory_estimate *out, struct device *meta, void *context)
{
    struct arena arena;
    (void)out;
    device_arena_open(meta, &arena, 64 << 20);
    arena_alloc(&arena, *(const i64 *)context);
    device_arena_close(meta, &arena);
    return device_is_gpu(meta) && !meta->has_fp8 ? 0 : -1;
}

TEST(arenas_are_counted_where_run_gives_no_bytes)
{
    char said[1024];
    i64 bytes = GROW_BYTES + 1;
    const struct dry_run work = {"it", run_arena, &bytes, "", .smaller = halve_seats};
    assert_int_equal(check(said, &work, 2 * GROW_BYTES / MB + 1), 0);
    assert_int_equal(check(said, &work, GROW_BYTES / MB + 1), -1);
    assert_string_equal(error_text(), "it takes 67.1 MB of GPU memory, 34.0 are left; 16777216 of them would take "
                                      "33.6 MB");
}

static int refuse(struct memory_estimate *out, struct device *meta, void *context)
{
    (void)out, (void)meta;
    return context ? 1 : error_set("the work's own message");
}

TEST(what_run_returns_is_passed_on)
{
    char said[1024];
    struct device cpu;
    const struct dry_run fails = {"it", refuse, NULL, ""}, interrupted = {"it", refuse, &cpu, ""};
    assert_int_equal(check(said, &fails, 1), -1);
    assert_string_equal(error_text(), "the work's own message");
    assert_int_equal(check(said, &interrupted, 1), 1);
    device_open_cpu(&cpu);
    assert_int_equal(dry_run_check(&fails, &cpu), 0);
    device_close(&cpu);
}

int main(void)
{
    int failed = tests_run(NULL, NULL);
    buffer_release(&tried);
    workers_stop();
    return failed;
}
