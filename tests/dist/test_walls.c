/* Toys trained on 1 rank, on 2 data, 2 expert or 2 tensor ranks, and as pipelines of 2 chunks have
 * the same gradients in the first step and the same losses over 8 steps (nightly 20), and a
 * checkpoint of any layout continues in any other. The program runs itself again as ranks over TCP
 * or under mpirun; they write their results to a folder. An emulated GPU runs one toy, emulated AMX
 * tiles the bf16 one. In this file a wall is a case: a number of ranks, a layout and a
 * transport. */
#include <math.h>

#include "tests/device.h"
#include "tests/ranks.h"
#include "tests/toy.h"
#include "tests/files.h"
#include "train/step.h"

enum { STEPS_MOST = 20, ROWS = 2, LENGTH = 24, MICRO = 4 };

/* Defined in tests/amx: if linked, bf16 products run on emulated tiles. */
void *tiles_scratch(int worker, int slot, i64 bytes) __attribute__((weak));

enum { ON_GPU = 2, ON_TILES = 4 }; /* tests there; only bf16 products use tiles */
static struct device device;
static i64 steps, half; /* steps of a run, and the step of its checkpoint */

static void set_steps(void)
{
    bool on_gpu = device.backend == BACKEND_CUDA;
    steps = on_gpu ? (is_nightly() ? 4 : 2) : is_nightly() ? STEPS_MOST : 8;
    half = steps / 2;
}

/* ---- Toys ---- */

#define DRAWS                                                                                                          \
    .depth_full = SCHEDULE_CONSTANT(0.2), .depth_drop = SCHEDULE_CONSTANT(0.6),                                        \
    .experts_full = SCHEDULE_CONSTANT(0.3), .experts_min = 4, .expert_groups = 2, .topk_full = SCHEDULE_CONSTANT(0.5), \
    .topk_min = 1, .topk_max = 3, .slice_rows = ROWS, .distill = 0.8
static const struct elastic_settings draws = {DRAWS}, counted = {DRAWS, .balance = BALANCE_ALL}; /* for the bias */
/* {layers, experts, topk}: two sizes in passes beside the full model */
static i64 sizes[] = {3, 4, 1, 4, 0, 0};
static const struct elastic_settings family = {
    .family = {sizes, 2}, .passes = 1, .pass_weight = 0.5, .expert_groups = 2, .slice_rows = ROWS};
static const struct elastic_settings nested = {
    .family = {sizes, 2}, .passes = 1, .pass_weight = 0.5, .expert_groups = 2, .slice_rows = ROWS, .nested = true};

struct walls_toy {
    const char *name;
    i64 layers;
    unsigned parts;
    const struct elastic_settings *elastic;
    bool recompute, bf16;
    double bias_speed, distill_weight; /* distill_weight 0: no teacher */
    i64 micro;                         /* micro-batches of a step; 0: MICRO */
    struct model_config config;        /* main fills it from layers and parts */
};
static struct walls_toy toys[] = {
    {"moe", 2, 0, NULL, false, false, 0},
    {"shared", 2, TOY_DENSE | TOY_SHARED | TOY_TIED, NULL, true, false, 1e-2},
    {"elastic", 5, TOY_TIED | TOY_MTP, &draws, false, false, 1e-2},
    {"elastic-recompute", 4, 0, &counted, true, false, 1e-2},
    {"family", 5, TOY_TIED | TOY_MTP, &family, false, false, 1e-2},
    {"nested", 5, TOY_TIED | TOY_MTP, &nested, false, false, 1e-2},
    {"bf16", 2, TOY_DENSE | TOY_SHARED | TOY_TIED, NULL, false, true, 1e-2},
    {"distilled", 5, TOY_TIED | TOY_MTP, &draws, true, false, 1e-2, 0.6},
    {"wide", 2, TOY_SHARED, &counted, false, false, 1e-2, 0, 8},
};

static void make_toys(void)
{
    for (i64 i = 0; i < COUNT_OF(toys); i++) {
        toys[i].config = toy_config(toys[i].layers, toys[i].parts);
        toys[i].config.init_std = 0.08; /* learns more evenly than a larger value */
    }
}

static const struct walls_toy *find_toy(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(toys); i++)
        if (strcmp(toys[i].name, name) == 0)
            return &toys[i];
    panic("no toy %s", name);
}

/* ---- Layouts ---- */

struct walls_wall {
    const char *name;
    int ranks;
    struct layout layout;
    const char *like;     /* case with the same bits, compared if it ran before; NULL: none */
    bool mpi;             /* under mpirun instead of over TCP */
    i64 parts[2];         /* of the deal of micro-batches; {0}: even */
    bool placed;          /* experts do not lie in a row */
    const char *machines; /* a letter for each rank; NULL: all are on one */
};
static const struct walls_wall walls[] = {
    {"chunks", 1, {.chunks = 2}},
    {"data", 2, {.data = 2}},
    {"expert", 2, {.data = 2, .expert = 2}},
    {"tensor", 2, {.tensor = 2}},
    {"pipeline", 2, {.pipeline = 2}},
    {"interleaved", 2, {.pipeline = 2, .chunks = 2}},
    {"expert-tensor", 4, {.data = 2, .expert = 2, .tensor = 2}},
    {"replica", 4, {.data = 4, .expert = 2}},
    {"eight-experts", 8, {.data = 8, .expert = 8}}, /* one expert each */
    {"eight-experts-parts", 8, {.data = 8, .expert = 8, .capacity_factor = 8}, "eight-experts"},
    {"expert-pipeline", 4, {.data = 2, .expert = 2, .pipeline = 2}},
    {"expert-mpi", 2, {.data = 2, .expert = 2}, "expert", true},
    {"pipeline-mpi", 2, {.pipeline = 2}, "pipeline", true},
    {"expert-parts", 2, {.data = 2, .expert = 2, .capacity_factor = 2}, "expert"}, /* with capacity for all rows */
    {"replica-parts", 4, {.data = 4, .expert = 2, .capacity_factor = 2}, "replica"},
    {"expert-tensor-parts", 4, {.data = 2, .expert = 2, .tensor = 2, .capacity_factor = 2}, "expert-tensor"},
    {"expert-pipeline-parts", 4, {.data = 2, .expert = 2, .pipeline = 2, .capacity_factor = 2}, "expert-pipeline"},
    {"data-buckets", 2, {.data = 2, .bucket_bytes = 1000}, "data"},
    {"expert-buckets", 2, {.data = 2, .expert = 2, .bucket_bytes = 1 << 12}, "expert"},
    {"expert-buckets-mpi", 2, {.data = 2, .expert = 2, .bucket_bytes = 1 << 12}, "expert", true},
    {"replica-buckets", 4, {.data = 4, .expert = 2, .bucket_bytes = 1 << 14}, "replica"},
    {"interleaved-buckets", 2, {.pipeline = 2, .chunks = 2, .bucket_bytes = 1 << 14}, "interleaved"},
    {"expert-pipeline-buckets", 4, {.data = 2, .expert = 2, .pipeline = 2, .bucket_bytes = 1 << 12}, "expert-pipeline"},
    {"expert-placed", 2, {.data = 2, .expert = 2}, .placed = true},
    {"expert-placed-parts", 2, {.data = 2, .expert = 2, .capacity_factor = 2}, "expert-placed", .placed = true},
    {"expert-placed-buckets", 2, {.data = 2, .expert = 2, .bucket_bytes = 1 << 12}, "expert-placed", .placed = true},
    {"expert-tensor-placed", 4, {.data = 2, .expert = 2, .tensor = 2}, .placed = true},
    {"replica-placed", 4, {.data = 4, .expert = 2}, .placed = true},
    {"replica-placed-parts", 4, {.data = 4, .expert = 2, .capacity_factor = 2}, "replica-placed", .placed = true},
    {"expert-pipeline-placed", 4, {.data = 2, .expert = 2, .pipeline = 2}, .placed = true},
    {"eight-experts-placed", 8, {.data = 8, .expert = 8}, .placed = true},
    {"data-machines", 4, {.data = 4}, .machines = "aabb"},
    {"data-machines-buckets", 4, {.data = 4, .bucket_bytes = 1000}, "data-machines", .machines = "aabb"},
    {"data-machines-mpi", 4, {.data = 4}, "data-machines", true, .machines = "aabb"},
    {"replica-machines", 4, {.data = 4, .expert = 2}, .machines = "abbb"},
    {"data-dealt", 2, {.data = 2}, .parts = {1000, 333}},
    {"data-dealt-buckets", 2, {.data = 2, .bucket_bytes = 1000}, "data-dealt", .parts = {1000, 333}},
    {"replica-dealt", 4, {.data = 4, .expert = 2}, .parts = {333, 1000}},
    {"tensor-dealt", 4, {.data = 2, .tensor = 2}, .parts = {333, 1000}},
    {"pipeline-dealt", 4, {.data = 2, .pipeline = 2}, .parts = {1000, 333}},
    {"interleaved-dealt", 4, {.data = 2, .pipeline = 2, .chunks = 2}, .parts = {1000, 333}},
};

static const struct walls_wall *find_wall(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(walls); i++)
        if (strcmp(walls[i].name, name) == 0)
            return &walls[i];
    panic("no wall %s", name);
}

/* ---- Data: each id partly predicts the next, so that a model can learn ---- */

static i64 plan(void *context, i64 step, double totals[TARGETS])
{
    const struct walls_toy *toy = context;
    i64 micro = toy->micro ? toy->micro : MICRO;
    (void)step;
    totals[TARGET_TEXT] = (double)(micro * ROWS * (LENGTH - 1));
    totals[TARGET_MTP] = toy->config.mtp ? (double)(micro * ROWS * (LENGTH - 2)) : 0;
    return micro;
}

static void add_mtp(struct batch *b)
{
    struct target_list *list = &b->targets[TARGET_MTP];
    const i32 *ids = b->inputs[INPUT_TEXT].ids;
    for (i64 i = 0; i < b->n; i++)
        if (i % LENGTH < LENGTH - 2) {
            list->position[list->n] = (i32)i;
            list->ids[list->n] = ids[i + 2];
            list->weight[list->n] = 1;
            list->stream[list->n++] = STREAM_TEXT;
        }
}

static const struct trainer *filled; /* of the run that goes on */

/* The trainer has said before which micro-batch comes next. Chunks go through some of them again. */
static void check_next(i64 step, i64 micro)
{
    static i64 last_step, last = -1, next = -1;
    bool again = step == last_step && micro == last, chunks = filled && filled->model->parallel->layout.chunks > 1;
    if (filled && !again && !chunks && next >= 0 && (next != micro || step != last_step))
        panic("micro-batch %lld of step %lld comes behind %lld, which announced %lld", (long long)micro,
              (long long)step, (long long)last, (long long)next);
    last_step = step;
    last = micro;
    next = filled ? filled->next_micro : -1;
}

static int fill(void *context, i64 step, i64 micro, struct batch *batch, struct arena *arena)
{
    const struct walls_toy *toy = context;
    check_next(step, micro);
    i32 ids[ROWS * LENGTH];
    for (u32 i = 0; i < ROWS * LENGTH; i++) {
        u32 draw = rng_u32((struct rng_key){1, RNG_TEST}, (u32)step, (u32)micro, i, 0);
        ids[i] = i % LENGTH && draw % 3 ? (ids[i - 1] * 7 + 3) % TOY_VOCABULARY : (i32)(draw % TOY_VOCABULARY);
    }
    batch_of_ids(batch, arena, ids, ROWS, LENGTH, false);
    for (i64 i = 0; i < batch->n; i++)
        batch->sample[i] += (i32)(micro * ROWS);
    batch->first_row = micro * ROWS;
    batch->slice = micro;
    if (toy->config.mtp)
        add_mtp(batch);
    return 0;
}

/* ---- A run ---- */

static const i64 *dealt; /* parts of this rank's deal; NULL: it is even */
static bool placed;      /* experts do not lie in a row */

struct walls_run {
    const struct walls_toy *toy;
    struct parallel parallel;
    struct model model;
    struct trainer trainer;
    struct optimizer_settings optimizer;
    struct schedule bias_speed;
    i64 bias_step;
    double bias_value;
};

/* In each layer otherwise, and each rank holds some that are neither its first ones nor neighbours. */
static void place_experts(struct model *model)
{
    const struct model_config *c = &model->config;
    i64 count = model_use_count(c), ranks = model->parallel->layout.expert;
    double *use = memory_alloc(count * (i64)sizeof *use);
    i32 *placement = memory_alloc(count * (i64)sizeof *placement);
    for (i64 i = 0; i < count; i++)
        use[i] = (double)(1 + i * 5 % 8 + i / c->experts * (i % 3));
    placement_by_use(placement, use, c->layers, c->experts, ranks);
    for (i64 l = 0; l < c->layers; l++)
        require(!placement_is_in_a_row(placement + l * c->experts, 1, c->experts), "layer %lld is in a row",
                (long long)l);
    weights_place_experts(&model->weights, placement);
    memory_free(use);
    memory_free(placement);
}

static void open_run(struct walls_run *r, const struct walls_toy *toy, struct comm *world, const struct layout *layout,
                     double lr)
{
    memset(r, 0, sizeof *r);
    r->toy = toy;
    if (parallel_open(&r->parallel, world, layout) ||
        model_open(&r->model, &device, &toy->config, toy->bf16 ? DTYPE_BF16 : DTYPE_F32, true, &r->parallel))
        comm_stop(world, "%s", error_text());
    if (placed)
        place_experts(&r->model);
    weights_init(&r->model.weights, 3);
    trainer_open(&r->trainer, &r->model, (i64)1 << 28);
    r->optimizer =
        (struct optimizer_settings){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 0.5};
    r->bias_value = toy->bias_speed;
    r->bias_speed = (struct schedule){&r->bias_step, &r->bias_value, 1, false};
    r->trainer.optimizer = &r->optimizer;
    r->trainer.lr = (struct lr_schedule){.peak = lr};
    r->trainer.bias_speed = r->bias_speed;
    r->trainer.source = (struct batch_source){(void *)(uintptr_t)toy, plan, fill, NULL};
    r->trainer.elastic = toy->elastic;
    r->trainer.recompute = toy->recompute;
    r->trainer.balance.weight[TARGET_MTP] = 0.3;
    r->trainer.seed = 5;
    filled = &r->trainer;
    r->trainer.paces = dealt != NULL;
    if (dealt)
        deal_set(&r->trainer.deal, dealt);
    if (toy->distill_weight > 0 && trainer_open_teacher(&r->trainer, toy->distill_weight, (i64)1 << 28))
        comm_stop(world, "%s", error_text());
}

static void close_run(struct walls_run *r)
{
    filled = NULL;
    trainer_close(&r->trainer);
    model_close(&r->model);
    parallel_close(&r->parallel);
}

/* Three quarters of a step are one rank's, and each rank knows its own pace. */
static void check_deal(const struct walls_run *r, const struct step_result *result)
{
    const struct deal *d = &r->trainer.deal;
    const struct parallel *p = &r->parallel;
    i64 fast = dealt && dealt[0] < dealt[1], count = d->counts[p->data->rank];
    bool is_fast = p->data->rank / d->group == fast;
    if (dealt && count != d->total / d->ranks * (is_fast ? 3 : 1) / 2)
        comm_stop(p->world, "this rank takes %lld of %lld micro-batches", (long long)count, (long long)d->total);
    if ((dealt || device.backend == BACKEND_CPU) && p->world->size > 1 &&
        (result->pace.seconds <= 0 || result->pace.seconds * (double)count > result->seconds))
        comm_stop(p->world, "%g s a micro-batch, %g s a step", result->pace.seconds, result->seconds);
}

static struct step_result one_step(struct walls_run *r, i64 step)
{
    struct step_result result;
    if (train_step(&result, &r->trainer, step))
        comm_stop(r->parallel.world, "%s", error_text());
    check_deal(r, &result);
    return result;
}

/* Moves gradients into the masters, so that the code that
 * gathers and saves masters handles them. */
static void put_gradients(struct weights *weights)
{
    weights_settle_gradients(weights);
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        if (w->value.needs_grad && w->share_rows)
            device.ops->copy(
                &device, matrix_of(w->master, DTYPE_F32, w->share_rows, w->columns),
                matrix_of((float *)w->value.grad + w->share_first * w->columns, DTYPE_F32, w->share_rows, w->columns),
                1, false);
    }
}

/* Collective: on rank 0, a matrix read in short windows, whose ends cut rows, is that read at once. */
static void check_windows(const struct model *model)
{
    enum { WINDOW = 997 };
    struct comm *world = model->parallel->world;
    struct weights_reader reader = zero_reader(&model->weights, model->parallel);
    for (i64 i = 0; i < model->weights.count && world->size > 1; i++) {
        const struct weight *w = &model->weights.list[i];
        i64 elements = w->spec.matrices * w->spec.rows * w->spec.columns;
        float *whole = memory_alloc(elements * 4), *parts = memory_alloc(elements * 4);
        reader.read(&reader, whole, w, STATE_MASTER, 0, elements);
        for (i64 first = 0; first < elements; first += WINDOW)
            reader.read(&reader, parts + first, w, STATE_MASTER, first, min_i64(WINDOW, elements - first));
        if (memcmp(whole, parts, (size_t)elements * 4) != 0)
            panic("%s: windows of %d differ from the whole", w->spec.name, WINDOW);
        memory_free(whole);
        memory_free(parts);
    }
}

/* Collective; rank 0 writes. */
static void save_list(const char *folder, const char *name, const struct model *model, enum weight_file file)
{
    struct weight_list list;
    struct comm *world = model->parallel->world;
    struct weights_reader over = zero_reader(&model->weights, model->parallel);
    char *path = world->rank ? NULL : path_join(folder, name);
    weights_list(&list, &model->weights, file, DTYPE_F32, world->size > 1 ? &over : NULL);
    if (list.count && safetensors_save(path, list.tensors, list.count, NULL))
        panic("%s", error_text());
    weight_list_release(&list);
    memory_free(path);
}

static void save_gradients(const char *folder, const struct walls_toy *toy, struct comm *world,
                           const struct layout *layout)
{
    struct walls_run *r = memory_alloc(sizeof *r);
    open_run(r, toy, world, layout, 0);
    r->bias_value = 0; /* the files hold biases beside the gradients */
    double norm = one_step(r, 0).optimizer.grad_norm;
    put_gradients(&r->model.weights);
    zero_gather_copies(&r->model.weights, &r->parallel);
    if (world->rank == 0) {
        char *path = path_join(folder, "norm");
        if (file_replace(path, &norm, sizeof norm))
            panic("%s", error_text());
        memory_free(path);
    }
    check_windows(&r->model);
    save_list(folder, "gradients.safetensors", &r->model, FILE_HF);
    save_list(folder, "extra.safetensors", &r->model, FILE_EXTRA);
    close_run(r);
    memory_free(r);
}

static void save_checkpoint(struct walls_run *r, const char *folder, i64 step)
{
    struct json *state = json_object();
    struct checkpoint_parts parts = {.weights = &r->model.weights, .ranks = &r->parallel};
    if (r->model.order)
        json_set(state, "order", json_of_numbers(r->model.order, model_order_count(&r->model.config)));
    if (checkpoint_save(r->parallel.world->rank ? NULL : folder, step, &parts, state))
        panic("%s", error_text());
    json_free(state);
}

/* Saves the losses of steps [first, steps). first = half resumes from a checkpoint; first = 0 saves
 * one at half. */
static void save_losses(const char *folder, const char *from, const struct walls_toy *toy, struct comm *world,
                        const struct layout *layout)
{
    struct walls_run *r = memory_alloc(sizeof *r);
    double losses[STEPS_MOST] = {0};
    i64 first = 0;
    open_run(r, toy, world, layout, 3e-3);
    if (from) {
        struct json *state;
        struct checkpoint_parts parts = {.weights = &r->model.weights};
        if (checkpoint_resume(from, &first, &parts, &state))
            comm_stop(world, "%s", error_text());
        require(first == half, "the checkpoint in %s is of step %lld", from, (long long)first);
        const struct json *order = json_get(state, "order");
        i64 count = model_order_count(&r->model.config);
        double *ranks = memory_alloc(count * (i64)sizeof *ranks);
        json_numbers(ranks, count, order);
        if (order)
            model_set_order(&r->model, ranks);
        memory_free(ranks);
        json_free(state);
    }
    for (i64 step = first; step < steps; step++) {
        struct step_result result = one_step(r, step);
        losses[step] = step_mean_loss(&result, TARGET_TEXT);
        if (step + 1 == half && !from)
            save_checkpoint(r, folder, half);
    }
    char *path = path_join(folder, from ? "resumed" : "losses");
    if (world->rank == 0 && file_replace(path, losses, sizeof losses))
        panic("%s", error_text());
    memory_free(path);
    close_run(r);
    memory_free(r);
}

/* Runs all checks of a layout in `folder`; `reference` is the folder of the 1-rank run, or NULL. */
static void run_wall(const char *folder, const char *reference, const struct walls_toy *toy, struct comm *world,
                     const struct layout *layout)
{
    save_gradients(folder, toy, world, layout);
    save_losses(folder, NULL, toy, world, layout);
    if (reference)
        save_losses(folder, reference, toy, world, layout);
}

/* ---- Comparing ---- */

static double squares(const float *x, i64 n)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

struct weights_difference {
    double norm, off; /* squared norms over all tensors */
    double worst;     /* largest error of one tensor relative to its norm */
    char worst_name[128];
};

static float *floats_of(const struct tensor_view *view)
{
    float *out = memory_alloc(tensor_view_elements(view) * 4);
    assert_int_equal(tensor_view_to_f32(out, view), 0);
    return out;
}

static void compare_tensor(struct weights_difference *d, const struct tensor_view *want, const struct tensor_view *got)
{
    i64 n = tensor_view_elements(want);
    if (!got || tensor_view_elements(got) != n)
        fail_msg("%s is missing or misshapen", want->name);
    float *x = floats_of(want), *y = floats_of(got);
    double norm = squares(x, n);
    for (i64 i = 0; i < n; i++)
        y[i] -= x[i];
    double off = squares(y, n);
    d->norm += norm;
    d->off += off;
    if (norm > 0 && sqrt(off / norm) > d->worst) {
        d->worst = sqrt(off / norm);
        snprintf(d->worst_name, sizeof d->worst_name, "%s", want->name);
    }
    assert_true(norm > 0 || off == 0);
    memory_free(x);
    memory_free(y);
}

static void compare_file(struct weights_difference *d, const char *reference, const char *folder, const char *name)
{
    struct safetensors want, got;
    char *a = path_join(reference, name), *b = path_join(folder, name);
    assert_int_equal(file_exists(a), file_exists(b));
    if (file_exists(a)) {
        if (safetensors_open(&want, a) || safetensors_open(&got, b))
            fail_msg("%s", error_text());
        assert_int_equal(want.count, got.count);
        for (i64 i = 0; i < want.count; i++)
            compare_tensor(d, &want.tensors[i], safetensors_find(&got, want.tensors[i].name));
        safetensors_close(&want);
        safetensors_close(&got);
    }
    memory_free(a);
    memory_free(b);
}

/* The norm used for clipping counts every gradient once. */
static void check_norm(const char *folder, double want, double tolerance)
{
    struct buffer text = {0};
    char *path = path_join(folder, "norm");
    assert_int_equal(file_read(&text, path), 0);
    double norm = *(const double *)text.data;
    if (!(fabs(norm - want) < tolerance * want))
        fail_msg("%s: norm %.9g, of the gradients %.9g", folder, norm, want);
    buffer_release(&text);
    memory_free(path);
}

/* Compares the files that must not depend on the bucket size. */
static void expect_same_bits(const char *folder, const char *other)
{
    const char *names[] = {"gradients.safetensors", "norm", "losses"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        expect_same_file(folder, other, names[i]);
}

static double compare_losses(const char *reference, const char *folder, const char *name, i64 first)
{
    struct buffer want = {0}, got = {0};
    char *a = path_join(reference, "losses"), *b = path_join(folder, name);
    double worst = 0;
    if (file_read(&want, a) || file_read(&got, b))
        fail_msg("%s", error_text());
    const double *x = (const double *)want.data, *y = (const double *)got.data;
    for (i64 step = first; step < steps; step++)
        worst = fmax(worst, isfinite(y[step]) ? fabs(x[step] - y[step]) / x[step] : INFINITY);
    buffer_release(&want);
    buffer_release(&got);
    memory_free(a);
    memory_free(b);
    return worst;
}

static void expect_learning(const char *folder)
{
    struct buffer text = {0};
    char *path = path_join(folder, "losses");
    assert_int_equal(file_read(&text, path), 0);
    const double *losses = (const double *)text.data;
    assert_true(losses[steps - 1] < 0.99 * losses[0]);
    buffer_release(&text);
    memory_free(path);
}

static void compare(const struct walls_toy *toy, const struct walls_wall *wall, const char *reference,
                    const char *folder)
{
    struct weights_difference d = {0};
    double tolerance = toy->bf16 ? 3e-2 : 1e-5; /* bf16 rounds differently, so a position may choose another expert */
    compare_file(&d, reference, folder, "gradients.safetensors");
    compare_file(&d, reference, folder, "extra.safetensors");
    check_norm(folder, sqrt(d.norm), tolerance);
    double gradients = sqrt(d.off / d.norm), losses = compare_losses(reference, folder, "losses", 0);
    double resumed = compare_losses(reference, folder, "resumed", half);
    print_message("%-18s %-16s gradients off by %.1e of the norm (worst %.1e, %s), losses %.1e, resumed %.1e\n",
                  toy->name, wall->name, gradients, d.worst, d.worst_name, losses, resumed);
    assert_true(gradients < tolerance);
    assert_true(toy->bf16 || d.worst < 1e-4);
    assert_true(losses < tolerance);
    assert_true(resumed < tolerance);
}

/* ---- The parent process ---- */

static char *scratch_path(const char *toy, const char *wall)
{
    return string_format("/tmp/weft-walls-%d/%s/%s", (int)getpid(), toy, wall);
}

static char *scratch_folder(const char *toy, const char *wall)
{
    char *path = scratch_path(toy, wall);
    if (directory_remove(path) || directory_make(path))
        fail_msg("%s", error_text());
    return path;
}

/* Arguments of one rank. */
struct walls_task {
    const struct walls_toy *toy;
    const struct walls_wall *wall;
    const char *folder, *reference;
};

static int run_rank(void *context)
{
    const struct walls_task *task = context;
    ranks_take_machine(task->wall->machines);
    struct comm *world = ranks_world(&device);
    dealt = task->wall->parts[0] ? task->wall->parts : NULL;
    placed = task->wall->placed;
    run_wall(task->folder, task->reference, task->toy, world, &task->wall->layout);
    comm_close(world);
    return 0;
}

/* Runs the ranks: as forks, or, since a fork cannot use a GPU, as new processes. */
static void run_in_ranks(struct walls_task *task)
{
    struct buffer said = {0};
    char *arguments = string_format("%s %s %s %s", task->toy->name, task->wall->name, task->folder, task->reference);
    char path[1024];
    int ranks = task->wall->ranks;
    ranks_own_path(path);
    int status = task->wall->mpi                  ? ranks_run(&said, ranks, arguments)
                 : device.backend == BACKEND_CUDA ? ranks_run_over_tcp(&said, ranks, ranks, path, arguments)
                                                  : ranks_fork(&said, ranks, run_rank, task);
    if (status)
        fail_msg("%s as %s: status %d\n%s", task->toy->name, task->wall->name, status, said.data);
    buffer_release(&said);
    memory_free(arguments);
}

static void go_on_alone(const struct walls_toy *toy, const struct walls_wall *wall, struct comm *alone,
                        const char *reference, const char *folder)
{
    save_losses(folder, folder, toy, alone, &(struct layout){0});
    double resumed = compare_losses(reference, folder, "resumed", half);
    if (resumed >= (toy->bf16 ? 2e-2 : 1e-5))
        fail_msg("%s: a checkpoint of %s goes on as one rank with losses off by %g", toy->name, wall->name, resumed);
}

#define AT_NIGHT "!" /* prefix of a nightly-only case whose coverage another case has in daily runs */

static void check_toy(const struct walls_toy *toy, const char *const *names, i64 count)
{
    struct comm *alone = comm_open(&device, &(struct launch_info){.size = 1});
    char *reference = scratch_folder(toy->name, "one");
    run_wall(reference, NULL, toy, alone, &(struct layout){0});
    if (steps > 2)
        expect_learning(reference);
    for (i64 i = 0; i < count; i++) {
        bool at_night = *names[i] == *AT_NIGHT;
        const struct walls_wall *wall = find_wall(names[i] + at_night);
        if (at_night && !is_nightly())
            continue;
        if (wall->mpi && ranks_missing()) {
            print_message("%s as %s: skipped, %s\n", toy->name, wall->name, ranks_missing());
            continue;
        }
        char *folder = scratch_folder(toy->name, wall->name);
        if (wall->ranks == 1)
            run_wall(folder, reference, toy, alone, &wall->layout);
        else
            run_in_ranks(&(struct walls_task){toy, wall, folder, reference});
        compare(toy, wall, reference, folder);
        char *other = wall->like ? scratch_path(toy->name, wall->like) : NULL;
        if (wall->like && file_exists(other))
            expect_same_bits(folder, other);
        memory_free(other);
        go_on_alone(toy, wall, alone, reference, folder);
        memory_free(folder);
    }
    memory_free(reference);
    comm_close(alone);
}

#define CHECK_TOY(name, ...)                                                                                           \
    do {                                                                                                               \
        const char *const of[] = {__VA_ARGS__};                                                                        \
        check_toy(find_toy(name), of, COUNT_OF(of));                                                                   \
    } while (0)

TEST(experts_in_every_layer)
{
    CHECK_TOY("moe", "chunks", "data", "data-dealt", "data-dealt-buckets", "data-machines", "data-machines-buckets",
              "data-machines-mpi", "expert", "expert-mpi", "expert-parts", "expert-buckets", "expert-buckets-mpi",
              "expert-placed", "expert-placed-parts", "expert-placed-buckets", "tensor", "pipeline", "pipeline-mpi");
}

/* A rank serves one expert, which a micro-batch may not use. */
TEST(an_expert_a_rank)
{
    CHECK_TOY("wide", "replica", "eight-experts", "eight-experts-parts", "eight-experts-placed");
}

TEST(dense_layer_shared_expert_tied_embeddings)
{
    CHECK_TOY("shared", "chunks", "data", "data-buckets", "expert", "expert-parts", "tensor", "pipeline",
              "expert-tensor");
}

/* Micro-batches of different slices keep different layers,
 * and expert ranks serve layers that they skip. */
TEST(elastic_draws)
{
    CHECK_TOY("elastic", "chunks", "data", "expert", "expert-parts", "tensor", "interleaved", "interleaved-buckets",
              "replica", "replica-buckets", "replica-machines", "replica-parts", "expert-pipeline",
              "expert-pipeline-buckets", "expert-pipeline-parts", "replica-placed", "replica-placed-parts",
              "expert-pipeline-placed");
}

TEST(elastic_draws_recomputed)
{
    CHECK_TOY("elastic-recompute", "expert", "expert-parts", "interleaved", "expert-tensor", "expert-tensor-parts",
              "expert-tensor-placed");
}

/* Each micro-batch runs twice, and ranks share the passes out. */
TEST(passes_of_a_family)
{
    CHECK_TOY("family", "data", "expert", "expert-placed", "tensor", "interleaved", "replica-buckets", "data-dealt",
              "replica-dealt", "tensor-dealt", "pipeline-dealt", "interleaved-dealt");
}

/* Each rank adds what the experts do on its rows before any sub-model is drawn. */
TEST(nested_draws)
{
    CHECK_TOY("nested", "data", "data-buckets");
}

/* The full model teaches some sub-models. Ranks without a teacher in a step wait for nobody. */
TEST(distillation)
{
    CHECK_TOY("distilled", "data", "data-buckets", "tensor");
}

TEST_IN(TESTS_PLAIN | ON_TILES, bf16_roughly)
{
    if (!device.has_bf16) {
        print_message("skipped: no bf16 on this machine\n");
        skip();
    }
    CHECK_TOY("bf16", "data", "expert", "expert-parts", "tensor", "pipeline");
}

TEST_IN(ON_GPU, experts_over_nccl)
{
    CHECK_TOY("moe", AT_NIGHT "data", "data-buckets", "data-dealt", AT_NIGHT "expert", AT_NIGHT "expert-mpi",
              "expert-parts", "expert-placed", "expert-placed-parts", "expert-buckets-mpi", AT_NIGHT "tensor",
              "pipeline");
}

TEST_IN(ON_GPU, bf16_over_tensor_ranks)
{
    CHECK_TOY("bf16", "tensor");
}

/* ---- On the meta backend, without data ---- */

struct rank_traffic {      /* bytes sent by 1 rank */
    double passes, update; /* passes: forward and backward; update: gradient sums and weight copies */
};

static struct rank_traffic count_traffic(const struct walls_toy *toy, const struct layout *layout, i64 ranks)
{
    struct device meta;
    struct parallel parallel;
    struct model model;
    struct tape tape;
    struct arena arena;
    struct batch batch;
    struct submodel sub;
    struct forward out;
    struct rank_traffic traffic;
    device_open_meta(&meta);
    struct comm *world = comm_open_meta(&meta, 0, ranks);
    assert_int_equal(parallel_open(&parallel, world, layout), 0);
    assert_int_equal(model_open(&model, &meta, &toy->config, DTYPE_F32, true, &parallel), 0);
    tape_open(&tape, &meta, DTYPE_F32, (i64)1 << 28);
    arena_open(&arena, 1 << 20);
    tape_clear(&tape, true);
    fill((void *)(uintptr_t)toy, 0, 0, &batch, &arena);
    submodel_full(&sub, &toy->config);
    struct forward_options options = {.recompute = toy->recompute, .over = tape_alloc(&tape, 3 * 8)};
    model_forward(&out, &tape, &model, &batch, &sub, &options);
    tape_backward(&tape);
    traffic.passes = meta.cost.traffic;
    struct buckets *buckets = buckets_open(&model.weights, &parallel);
    buckets_finish(buckets);
    buckets_close(buckets);
    zero_gather_copies(&model.weights, &parallel);
    traffic.update = meta.cost.traffic - traffic.passes;
    arena_close(&arena);
    tape_close(&tape);
    model_close(&model);
    parallel_close(&parallel);
    comm_close(world);
    device_close(&meta);
    return traffic;
}

static void expect_bytes(double got, double want, double slack)
{
    if (fabs(got - want) > slack)
        fail_msg("%.0f bytes are counted, %.0f expected", got, want);
}

/* Toy "moe": 2 MoE layers, untied; N positions of C columns, K experts each. Of two ranks, each
 * sends half of the data in a reduce, and half again in the gather. */
TEST(meta_ranks_count_the_traffic_of_a_step)
{
    const struct walls_toy *toy = find_toy("moe");
    const struct model_config *c = &toy->config;
    double hidden = 4.0 * ROWS * LENGTH * (double)c->width, layers = (double)c->layers, rows = (double)c->topk;
    double experts = 4.0 * layers * (double)(c->experts * 3 * c->width * c->expert_width), all = 0;
    double exchanged = layers * rows * (4 * hidden + 4.0 * ROWS * LENGTH) / 2; /* includes gradients of the weights */
    struct model model;
    assert_int_equal(model_open(&model, &device, c, DTYPE_F32, true, NULL), 0);
    all = 4.0 * (double)weights_parameters(&model.weights);
    model_close(&model);
    struct rank_traffic data = count_traffic(toy, &(struct layout){.data = 2}, 2);
    struct rank_traffic tensor = count_traffic(toy, &(struct layout){.tensor = 2}, 2);
    struct rank_traffic expert = count_traffic(toy, &(struct layout){.data = 2, .expert = 2}, 2);
    struct rank_traffic parts = count_traffic(toy, &(struct layout){.data = 2, .expert = 2, .capacity_factor = 2}, 2);
    struct rank_traffic pipeline = count_traffic(toy, &(struct layout){.pipeline = 2}, 2);
    expect_bytes(data.passes, 0, 0);
    expect_bytes(data.update, all / 2 + all / 2, 0);
    expect_bytes(tensor.passes, layers * (4 * hidden + 4.0 * ROWS * LENGTH * rows), 0);
    expect_bytes(tensor.update, 0, 0);
    expect_bytes(expert.passes, exchanged, layers * 4 * (double)c->experts + sizeof(i64) + LAYERS_MOST);
    expect_bytes(expert.update, all - experts, 0);
    expect_bytes(parts.passes - expert.passes, exchanged, 0); /* twice the rows */
    expect_bytes(pipeline.passes, hidden, 0);
}

static int remove_scratch(void **state)
{
    char *path = string_format("/tmp/weft-walls-%d", (int)getpid());
    (void)state;
    directory_remove(path);
    memory_free(path);
    return 0;
}

int main(int count, char **arguments)
{
    setenv("WEFT_THREADS", "1", 1);
    test_device_open(&device);
    make_toys();
    set_steps();
    if (count > 4) /* TOY WALL FOLDER REFERENCE: run as one of the ranks */
        return run_rank(
            &(struct walls_task){find_toy(arguments[1]), find_wall(arguments[2]), arguments[3], arguments[4]});
    if (device.backend == BACKEND_CUDA)
        return tests_run_group(ON_GPU, "gpu_tests", NULL, remove_scratch);
    if (tiles_scratch && !is_nightly())
        return tests_run_group(ON_TILES, "tiles_tests", NULL, remove_scratch);
    return tests_run(NULL, remove_scratch);
}
