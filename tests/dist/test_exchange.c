/* Expert rows between ranks in training: how often a step's host waits for its GPU, and the message
 * for rows beyond the capacity of their part. test_walls checks that both exchanges match bit for
 * bit. The program runs itself again as ranks. */
#include "tests/device.h"
#include "tests/ranks.h"
#include "tests/toy_train.h"

enum { WARM = 2, STEPS = 4, MICRO_BATCHES = 4, LAYERS = 3, SAMPLES = 6 };

static struct device device;

/* ---- Code of the ranks ---- */

static struct {
    void (*wait)(struct device *device);
    i64 count;
} waits;

static void count_wait(struct device *on)
{
    waits.count++;
    waits.wait(on);
}

static void count_waits(void)
{
    if (device.wait == count_wait)
        return;
    waits.wait = device.wait;
    device.wait = count_wait;
}

/* Trains a toy; returns how often the host waited for the device in the last step. */
static i64 train(struct comm *world, const struct layout *layout, bool recompute)
{
    struct arena arena;
    struct parallel parallel;
    struct toy_run *run = memory_alloc(sizeof *run);
    const struct model_config config = toy_config(LAYERS, TOY_ALL & ~TOY_DENSE);
    arena_open(&arena, 64 << 20);
    require(parallel_open(&parallel, world, layout) == 0, "%s", error_text());
    if (device.wait)
        count_waits();
    toy_run_open_over(run, &device, &config, MICRO_BATCHES, &parallel);
    run->trainer.lr = (struct lr_schedule){.peak = 1e-3, .total = STEPS};
    run->trainer.recompute = recompute;
    for (i64 i = 0; i < MICRO_BATCHES; i++)
        toy_batch_init(&run->batches[i], &arena, SAMPLES, (struct rng_key){2, RNG_TEST}, SAMPLES * (i32)i);
    i64 asked = 0;
    for (i64 step = 0; step < STEPS; step++) {
        i64 before = waits.count;
        toy_step(run, step);
        if (layout->capacity_factor > 0) {
            printf("a step was taken\n");
            fflush(stdout);
        }
        asked = waits.count - before;
    }
    toy_run_close(run);
    memory_free(run);
    parallel_close(&parallel);
    arena_close(&arena);
    return asked;
}

static void run_waits(struct comm *world)
{
    const i64 micro_batches = MICRO_BATCHES / world->size;
    for (int recompute = 0; recompute < 2; recompute++) {
        struct layout parts = {.data = world->size, .expert = world->size}, exact = parts;
        parts.capacity_factor = 2;
        i64 of_parts = train(world, &parts, recompute), of_exact = train(world, &exact, recompute);
        if (world->rank == 0)
            printf("%s: a warm step waits %lld times, %lld where the host learns the counts\n",
                   recompute ? "recomputed" : "kept", (long long)of_parts, (long long)of_exact);
        EXPECT(of_parts == 1);
        EXPECT(of_exact >= 1 + (1 + recompute) * LAYERS * micro_batches);
    }
}

/* Capacity for what a balanced router sends. */
static void run_small_parts(struct comm *world)
{
    train(world, &(struct layout){.data = world->size, .expert = 2, .capacity_factor = 1}, false);
}

static int run_rank(const char *what)
{
    struct comm *world = ranks_world(&device);
    (strcmp(what, "waits") == 0 ? run_waits : run_small_parts)(world);
    comm_close(world);
    return 0;
}

/* ---- The parent process ---- */

static int run_over_tcp(struct buffer *said, int ranks, const char *what)
{
    char path[1024];
    ranks_own_path(path);
    return ranks_run_over_tcp(said, ranks, ranks, path, what);
}

TEST(a_warm_step_waits_for_its_result_alone)
{
#ifdef WEFT_ON_GPU
    struct buffer said = {0};
    int status = run_over_tcp(&said, 2, "waits");
    print_message("%s", said.data);
    assert_int_equal(status, 0);
    buffer_release(&said);
#else
    skip();
#endif
}

static i64 times(const char *text, const char *word)
{
    i64 count = 0;
    for (; (text = strstr(text, word)); text += strlen(word))
        count++;
    return count;
}

static void check_small_parts(struct buffer *said, int status)
{
    bool right = status > 0 && status < 124 && said->data && times(said->data, "raise --layout part=N") == 1 &&
                 times(said->data, "the capacity is") == 1 && times(said->data, "a step was taken") == 0;
    if (!right)
        fail_msg("status %d\n%s", status, said->data);
    print_message("%s", said->data);
    buffer_release(said);
}

TEST(rows_without_room_end_all_ranks_with_one_message)
{
    struct buffer said = {0};
    check_small_parts(&said, run_over_tcp(&said, 2, "small-parts"));
    check_small_parts(&said, run_over_tcp(&said, 4, "small-parts"));
    if (!ranks_missing())
        check_small_parts(&said, ranks_run(&said, 2, "small-parts"));
}

int main(int count, char **arguments)
{
    test_device_open(&device);
    if (count > 1)
        return run_rank(arguments[1]);
    return tests_run(NULL, NULL);
}
