/* Host and device memory are separate: whole training steps on the guarded device, whose memory is
 * inaccessible outside ops, collectives, put and get, match the plain CPU bit for bit; and the
 * guard stops invalid accesses. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "elastic/elastic.h"
#include "tests/test.h"
#include "tests/toy.h"
#include "train/synthetic_batches.h"

enum { ROWS = 4, MICRO_ROWS = 2, LENGTH = 192, STEPS = 3 };
static struct model_config config;
static const struct elastic_settings draws = {.depth_full = SCHEDULE_CONSTANT(0.3),
                                              .depth_drop = SCHEDULE_CONSTANT(0.3),
                                              .experts_full = SCHEDULE_CONSTANT(0.3),
                                              .expert_groups = 1,
                                              .topk_full = SCHEDULE_CONSTANT(0.5),
                                              .topk_min = 1,
                                              .topk_max = 3,
                                              .slice_rows = MICRO_ROWS};

struct guarded_variant {
    enum dtype dtype;
    bool elastic, recompute;
    i64 chunks; /* pipeline chunks within one process */
    bool fp8;
};

/* Hash of all masters, moments, use counts and losses after STEPS steps. */
static u64 run_steps(struct device *device, const struct guarded_variant *v)
{
    struct model *model = memory_alloc(sizeof *model);
    struct trainer *trainer = memory_alloc(sizeof *trainer);
    struct synthetic_batches batches;
    struct parallel parallel;
    struct comm *world = comm_open(device, &(struct launch_info){.size = 1, .local_size = 1});
    struct optimizer_settings optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1};
    u64 hash = 0;
    assert_int_equal(parallel_open(&parallel, world, &(struct layout){.chunks = v->chunks}), 0);
    require(model_open(model, device, &config, v->dtype, true, &parallel) == 0, "%s", error_text());
    if (v->fp8)
        weights_fp8(&model->weights);
    weights_init(&model->weights, 1);
    trainer_open(trainer, model, (i64)1 << 30);
    synthetic_batches_init(&batches, &config, ROWS, MICRO_ROWS, LENGTH, 7);
    trainer->source = synthetic_batches_source(&batches);
    trainer->optimizer = &optimizer;
    trainer->lr = (struct lr_schedule){.peak = 1e-2};
    trainer->balance.posterior = true;
    trainer->balance.decay = 0.9;
    trainer->elastic = v->elastic ? &draws : NULL;
    trainer->recompute = v->recompute;
    trainer->want_entropy = true;
    for (i64 step = 0; step < STEPS; step++) {
        struct step_result result;
        assert_int_equal(train_step(&result, trainer, step), 0);
        assert_true(result.optimizer.grad_norm > 0 && !result.optimizer.skipped);
        hash = hash_bytes(result.loss, sizeof result.loss, hash);
        hash = hash_bytes(&result.entropy, sizeof result.entropy, hash);
    }
    double *use = memory_alloc(model_use_count(&config) * 8);
    model_use_get(use, model);
    hash = hash_bytes(use, model_use_count(&config) * 8, hash);
    memory_free(use);
    for (i64 i = 0; i < model->weights.count; i++) {
        const struct weight *w = &model->weights.list[i];
        i64 count = w->share_rows * w->columns;
        float *values = memory_alloc(count * 4);
        weight_get(&model->weights, w, 0, w->share_rows, values);
        hash = hash_bytes(values, count * 4, hash);
        memory_free(values);
    }
    synthetic_batches_release(&batches);
    trainer_close(trainer);
    model_close(model);
    memory_free(trainer);
    memory_free(model);
    parallel_close(&parallel);
    comm_close(world);
    return hash;
}

/* ---- The guard ---- */

static struct device device;

static void read_directly(float *x)
{
    volatile float value = x[3];
    (void)value;
}

static void write_directly(float *x)
{
    x[3] = 1;
}

static void read_after_free(float *x)
{
    device_free(&device, x, 256);
    read_directly(x);
}

static void op_on_host_memory(float *x)
{
    float host[4];
    device.ops->add(&device, matrix_of(x, DTYPE_F32, 1, 4), matrix_of(x, DTYPE_F32, 1, 4),
                    matrix_of(host, DTYPE_F32, 1, 4));
}

static void op_past_the_end(float *x)
{
    device.ops->fill(&device, x + 1024, 1, 0);
}

/* A kernel that is wrong: it writes one page behind its array. */
static void fill_too_much(struct device *of, float *out, i64 count, float value)
{
    (void)of;
    for (i64 i = 0; i < count; i++)
        out[1024 + i] = value;
}

static void op_past_its_array(float *x)
{
    struct kernels wrong = *device.kernels;
    (void)x;
    wrong.fill = fill_too_much;
    device.kernels = &wrong;
    device.ops->fill(&device, device_alloc(&device, 8192), 1024, 0);
}

static void host_columns(float *x)
{
    static const i32 column[4];
    struct intervals v = {4, 4, column, column, column, column, column};
    struct matrix m = matrix_of(x, DTYPE_F32, 4, 4);
    device.ops->attention(&device, m, x + 16, m, m, m, 1, 1, &v);
}

static void get_from_the_host(float *x)
{
    float host[4] = {0}, out[4];
    (void)x;
    device_get(&device, out, host, sizeof host);
}

static void put_into_the_host(float *x)
{
    float host[4], out[4] = {0};
    (void)x;
    device_put(&device, host, out, sizeof out);
}

/* Runs `wrong` in a child process, which must be killed before it returns. */
static void assert_stopped(void (*wrong)(float *x))
{
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        signal(SIGSEGV, SIG_DFL); /* sanitizers report it as an error of their own */
        signal(SIGABRT, SIG_DFL);
        wrong(device_alloc(&device, 4096));
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

TEST(the_wall_refuses)
{
    device_open_guarded(&device);
    void (*const wrong[])(float *) = {read_directly,     write_directly,    read_after_free,
                                      op_on_host_memory, op_past_the_end,   op_past_its_array,
                                      host_columns,      get_from_the_host, put_into_the_host};
    for (i64 i = 0; i < COUNT_OF(wrong); i++)
        assert_stopped(wrong[i]);
    device_close(&device);
}

TEST(the_wall_opens_for_ops)
{
    float host[4] = {1, 2, 3, 4}, out[4];
    device_open_guarded(&device);
    float *x = device_alloc(&device, sizeof host);
    device_put(&device, x, host, sizeof host);
    struct matrix m = matrix_of(x, DTYPE_F32, 1, 4);
    device.ops->add(&device, m, m, m);
    device_get(&device, out, x, sizeof out);
    for (int i = 0; i < 4; i++)
        assert_true(out[i] == 2 * host[i]);
    device_free(&device, x, sizeof host);
    device_close(&device);
}

/* ---- Whole steps ---- */

static void check_variant(const struct guarded_variant *v)
{
    struct device cpu, guarded;
    device_open_cpu(&cpu);
    device_open_guarded(&guarded);
    assert_int_equal(run_steps(&guarded, v), run_steps(&cpu, v));
    device_close(&guarded);
    device_close(&cpu);
}

TEST(steps_of_all_modalities)
{
    check_variant(&(struct guarded_variant){DTYPE_F32, false, false, 1});
}

TEST(steps_in_bf16)
{
    check_variant(&(struct guarded_variant){DTYPE_BF16, false, false, 1});
}

TEST(steps_in_8_bits)
{
    check_variant(&(struct guarded_variant){DTYPE_BF16, true, true, 2, true});
}

TEST(steps_of_sub_models_recomputed)
{
    check_variant(&(struct guarded_variant){DTYPE_F32, true, true, 1});
}

TEST(steps_of_a_pipeline)
{
    check_variant(&(struct guarded_variant){DTYPE_F32, true, false, 2});
}

int main(void)
{
    config = toy_config(6, TOY_ALL & ~(unsigned)TOY_TIED);
    return tests_run(NULL, NULL);
}
