/* One training step: micro-batches forward and backward, weights of losses, the update. */
#include "train/step.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Hook of the tape: starts the all-reduce of buckets whose gradients are complete. */
static void reduce_complete_buckets(void *context, struct tape *tape)
{
    struct trainer *t = context;
    buckets_advance(t->buckets, t->last_of_chunk ? tape->passed : NOTHING_PASSED);
}

void trainer_open(struct trainer *trainer, struct model *model, i64 reserved_bytes)
{
    struct pipeline_schedule schedule;
    memset(trainer, 0, sizeof *trainer);
    trainer->model = model;
    trainer->sums = step_sums_open(model->device);
    for (int kind = 0; kind < TARGETS; kind++)
        trainer->balance.weight[kind] = 1;
    trainer->buckets = buckets_open(&model->weights, model->parallel);
    deal_open(&trainer->deal, &model->parallel->layout);
    deal_to(&trainer->deal, 0);
    pipeline_schedule_init(&schedule, model->parallel, &trainer->deal);
    trainer->in_flight_count = pipeline_warmup(&schedule) + 1;
    trainer->in_flight = memory_alloc(trainer->in_flight_count * (i64)sizeof *trainer->in_flight);
    for (i64 i = 0; i < trainer->in_flight_count; i++) {
        struct tape *tape = &trainer->in_flight[i].tape;
        tape_open(tape, model->device, model->weights.dtype, reserved_bytes);
        tape->after = reduce_complete_buckets;
        tape->after_context = trainer;
        model_segments_open(tape, model);
        arena_open(&trainer->in_flight[i].arena, (i64)1 << 32);
        trainer->in_flight[i].arena.sparse = true; /* a batch has room for vision input at every position */
    }
}

int trainer_open_teacher(struct trainer *trainer, double weight, i64 reserved_bytes)
{
    const struct layout *layout = &trainer->model->parallel->layout;
    if (layout->pipeline * layout->chunks > 1)
        return error_usage("elastic.distill: the full model teaches on ranks that hold all layers, and --layout has a "
                           "pipeline: expected elastic.distill: 0, or a layout without pipeline and chunks");
    if (layout->expert > 1)
        return error_usage("elastic.distill: the full model teaches on ranks that hold all experts, and --layout has "
                           "%lld expert ranks: expected elastic.distill: 0, or a layout without expert ranks",
                           (long long)layout->expert);
    trainer->teacher.weight = (float)weight;
    trainer->teacher_tape = memory_alloc(sizeof *trainer->teacher_tape);
    tape_open(trainer->teacher_tape, trainer->model->device, trainer->model->weights.dtype, reserved_bytes);
    trainer->teacher_tape->as_trained = true;
    return 0;
}

void trainer_close(struct trainer *trainer)
{
    if (trainer->teacher_tape)
        tape_close(trainer->teacher_tape);
    memory_free(trainer->teacher_tape);
    for (i64 i = 0; i < trainer->in_flight_count; i++) {
        tape_close(&trainer->in_flight[i].tape);
        arena_close(&trainer->in_flight[i].arena);
    }
    memory_free(trainer->in_flight);
    deal_close(&trainer->deal);
    buckets_close(trainer->buckets);
    step_sums_close(trainer->model->device, trainer->sums);
    i64 bytes = model_use_count(&trainer->model->config) * (i64)sizeof *trainer->expected;
    device_free(trainer->model->device, trainer->expected_there, bytes);
    memory_free(trainer->expected);
}

static struct micro_batch *find_in_flight(struct trainer *t, const struct pipeline_task *task)
{
    for (i64 i = 0; i < t->in_flight_count; i++) {
        struct micro_batch *f = &t->in_flight[i];
        if (task->forward ? !f->busy : f->busy && f->chunk == task->chunk && f->micro == task->micro)
            return f;
    }
    panic("chunk %lld of micro-batch %lld is not in flight", (long long)task->chunk, (long long)task->micro);
}

static struct elastic_draw draw_at(const struct trainer *t, i64 step, i64 pass)
{
    return (struct elastic_draw){.settings = t->elastic,
                                 .config = &t->model->config,
                                 .order = t->model->order,
                                 .seed = t->seed,
                                 .step = step,
                                 .steps = t->lr.total,
                                 .pass = pass};
}

/* The first chunk's rank expects the assignments of all layers. */
static void pick(struct submodel *sub, struct trainer *t, struct arena *arena, i64 step, i64 chunk, i64 pass,
                 const struct batch *batch)
{
    const struct model_config *c = &t->model->config;
    if (!t->elastic) {
        submodel_full(sub, c);
        if (t->sub)
            *sub = *t->sub;
        return;
    }
    const struct elastic_draw draw = draw_at(t, step, pass);
    elastic_pick(sub, arena, &draw, batch);
    if (t->expected && chunk == 0 && sub->counts_all)
        elastic_expect(t->expected, sub, c, batch);
}

static void clear_expected(struct trainer *t)
{
    i64 bytes = model_use_count(&t->model->config) * (i64)sizeof *t->expected;
    if (!t->elastic || t->elastic->balance == BALANCE_FULL)
        return;
    if (!t->expected) {
        t->expected = memory_alloc(bytes);
        t->expected_there = device_alloc(t->model->device, bytes);
    }
    memset(t->expected, 0, (size_t)bytes);
}

/* Runs the full model on the batch if it is to teach `sub`. Returns the teacher or NULL. */
static const struct teacher *teach(struct step_result *result, struct trainer *t, i64 step, const struct batch *batch,
                                   const struct submodel *sub)
{
    struct submodel full;
    struct model_config config = t->model->config;
    if (!t->teacher_tape || (t->elastic && !elastic_is_taught(t->elastic, sub, &config, t->seed, step, batch)))
        return NULL;
    t->teacher.all = !t->elastic;
    model_teach(&t->teacher, t->teacher_tape, t->model, batch);
    submodel_full(&full, &config);
    config.mtp = false; /* not taught */
    result->flops += step_flops(&config, batch, &full);
    return &t->teacher;
}

static i64 passes_of(const struct trainer *t, i64 step)
{
    return t->elastic ? elastic_pass_count(t->elastic, step, t->lr.total) : 1;
}

/* Runs one micro-batch through one chunk of the layers (all layers without a pipeline): fills the
 * batch, picks a sub-model, runs the forward and the objective. */
static int run_forward(struct step_result *result, struct trainer *t, i64 step, const struct pipeline_task *task,
                       const double *totals)
{
    struct micro_batch *f = find_in_flight(t, task);
    struct submodel sub;
    struct forward out;
    struct forward_options options = {.recompute = t->recompute,
                                      .want_entropy = t->want_entropy,
                                      .chunk = task->chunk,
                                      .over = &t->sums->end.squares};
    double begin = clock_s(), factors[TARGETS];
    i64 passes = passes_of(t, step), micro = task->micro / passes, pass = task->micro % passes;
    trainer_factors(factors, t, totals);
    for (int kind = 0; kind < TARGETS && pass; kind++)
        factors[kind] *= elastic_pass_weight(t->elastic, pass);
    options.factors = t->from_losses ? NULL : factors;
    arena_reset(&f->arena, 0);
    if (t->source.fill(t->source.context, step, micro, &f->batch, &f->arena))
        return -1;
    result->wait_s += clock_s() - begin;
    options.routes = t->source.routes ? t->source.routes(t->source.context, step, micro) : NULL;
    pick(&sub, t, &f->arena, step, task->chunk, pass, &f->batch);
    options.keep_routes = t->routing && sub.counts;
    options.teacher = teach(result, t, step, &f->batch, &sub);
    tape_clear(&f->tape, true);
    model_forward(&out, &f->tape, t->model, &f->batch, &sub, &options);
    if (options.keep_routes)
        routing_monitor_add(t->routing, &f->arena, t->model, &f->batch, &sub, out.routes);
    f->busy = true;
    f->chunk = task->chunk;
    f->micro = task->micro;
    if (t->objective)
        t->objective(t, f, &out, totals);
    if (pass == 0) /* losses are those of the full model */
        step_sums_add(t->model->device, t->sums, &out, &t->model->config);
    if (task->chunk + 1 == model_chunks(t->model)) {
        result->positions += pass == 0 ? step_positions(&f->batch) : 0;
        result->flops += 3 * step_flops(&t->model->config, &f->batch, &sub);
    }
    return 0;
}

/* last: this is the chunk's last backward of the step. */
static void run_backward(struct trainer *t, const struct pipeline_task *task, bool last)
{
    struct micro_batch *f = find_in_flight(t, task);
    t->last_of_chunk = last;
    tape_backward(&f->tape);
    f->busy = false;
}

/* Sums the counters of all ranks; each rank counted its own micro-batches and layers. */
static void sum_over_ranks(struct trainer *t, const struct step_result *result)
{
    const struct parallel *ranks = t->model->parallel;
    struct device *device = t->model->device;
    i64 experts = model_use_count(&t->model->config);
    double counted[2] = {result->flops, (double)result->positions};
    device_put(device, &t->sums->flops, counted, sizeof counted);
    struct comm *comms[2] = {ranks->data, ranks->pipeline};
    const struct comm_sum sums[] = {
        step_sums_joined(t->sums),
        {t->model->usage, model_usage_count(&t->model->config), DTYPE_F32},
        {t->expected_there, t->expected ? experts : 0, DTYPE_F64},
        {t->sums->divergence, t->teacher_tape ? COUNT_OF(t->sums->divergence) * 2 : 0, DTYPE_F64},
    };
    if (t->expected)
        device_put(device, t->expected_there, t->expected, experts * (i64)sizeof *t->expected);
    for (int i = 0; i < 2; i++)
        comm_all_reduce_list(comms[i], sums, COUNT_OF(sums));
}

/* Stops the run if expert rows overflowed a buffer; the update was suppressed. The rank with the
 * largest overflow reports it. */
static void stop_on_overflow(struct comm *world, const struct step_end *mine)
{
    struct step_end *ends = memory_alloc(world->size * (i64)sizeof *ends);
    i64 *bytes = memory_alloc(world->size * (i64)sizeof *bytes), worst = 0;
    for (i64 r = 0; r < world->size; r++)
        bytes[r] = sizeof *ends;
    ends[world->rank] = *mine;
    comm_all_gather(comm_host(world), ends, bytes);
    for (i64 r = 1; r < world->size; r++)
        worst = ends[r].over_rows > ends[worst].over_rows ? r : worst;
    bool had_room = ends[worst].over_rows == 0;
    memory_free(bytes);
    memory_free(ends);
    if (had_room)
        return;
    if (worst == world->rank)
        comm_stop(world,
                  "%.0f rows of this rank go to the experts of one rank, the capacity is %.0f: raise --layout "
                  "part=N, or omit it to send a variable number of rows; this step made no update",
                  mine->over_rows, mine->over_capacity);
    comm_barrier(world);
}

/* Moves the running means once per step, after it, so that coefficients are
 * constant within a step. */
static void update_balance(struct trainer *t, const struct step_result *result)
{
    for (int kind = 0; kind < TARGETS; kind++) {
        double mean = step_mean_loss(result, kind), decay = t->running[kind] ? t->balance.decay : 0;
        if (isfinite(mean))
            t->running[kind] = decay * t->running[kind] + (1 - decay) * mean;
    }
}

/* True if a step of many micro-batches is to be given up: one rank looks before each forward, several
 * ranks together before every LOOK_TASKS-th task that all of them have. Ranks of a pipeline do not, since
 * messages are under way between them. */
static bool is_stopped(struct trainer *t, i64 task, const struct pipeline_schedule *schedule)
{
    enum { LOOK_TASKS = 32 };
    struct comm *world = t->model->parallel->world;
    if (!t->stops || (world->size > 1 &&
                      (schedule->ranks > 1 || task == 0 || task % LOOK_TASKS || task >= 2 * deal_least(&t->deal))))
        return false;
    return comm_any(world, interrupted());
}

/* The next micro-batch that this rank begins after task i; -1: none. */
static i64 next_micro(const struct trainer *t, i64 step, const struct pipeline_schedule *schedule, i64 i)
{
    i64 passes = passes_of(t, step), now = pipeline_task_at(schedule, i).micro / passes;
    for (i64 k = i + 1; k < 2 * schedule->count * schedule->chunks; k++) {
        struct pipeline_task task = pipeline_task_at(schedule, k);
        if (task.forward && task.chunk == schedule->rank && task.micro / passes != now)
            return task.micro / passes;
    }
    return -1;
}

/* A GPU's host runs ahead, so it is measured only where it may wait. */
static void measure_pace(struct step_result *result, struct trainer *t, double begin_s, double spent_s, i64 count)
{
    const struct parallel *ranks = t->model->parallel;
    struct device *device = t->model->device;
    double flops = 0;
    if (ranks->world->size == 1 || count == 0 || (device_is_gpu(device) && !t->paces))
        return;
    if (device_is_gpu(device))
        device_get(device, &flops, &t->sums->flops, sizeof flops);
    double busy_s = clock_s() - begin_s - (comm_spent_s(ranks) - spent_s);
    result->pace = (struct rank_pace){.seconds = busy_s / (double)count, .work = result->flops / (double)count};
}

/* Runs all forwards and backwards of this rank. Gradient all-reduces start
 * after the last forward. */
static int run_tasks(struct step_result *result, struct trainer *t, i64 step, const struct pipeline_schedule *schedule,
                     const double *totals)
{
    i64 forwards = schedule->count * schedule->chunks, tasks = 2 * forwards;
    double begin_s = clock_s(), spent_s = comm_spent_s(t->model->parallel);
    i64 last = schedule->count ? deal_micro(schedule->deal, schedule->data_rank, schedule->count - 1) : -1;
    for (i64 i = 0; i < tasks; i++) {
        struct pipeline_task task = pipeline_task_at(schedule, i);
        if (!task.forward) {
            run_backward(t, &task, task.micro == last);
            continue;
        }
        t->next_micro = next_micro(t, step, schedule, i);
        if (is_stopped(t, i, schedule))
            return STAGE_INTERRUPTED;
        if (run_forward(result, t, step, &task, totals))
            return -1;
        if (--forwards == 0)
            buckets_start(t->buckets);
    }
    measure_pace(result, t, begin_s, spent_s, schedule->count);
    begin_s = clock_s();
    buckets_finish(t->buckets);
    result->sum_s = clock_s() - begin_s;
    return 0;
}

/* True if some target of the step has a coefficient. An objective computes its own. */
static bool has_targets(const struct trainer *t, const double totals[TARGETS])
{
    double factors[TARGETS];
    bool found = t->from_losses;
    trainer_factors(factors, t, totals);
    for (int kind = 0; kind < TARGETS; kind++)
        found |= factors[kind] > 0;
    return found;
}

/* Suppresses the update as a gradient that is not finite does. */
static void suppress_update(struct trainer *t)
{
    const double infinite = INFINITY;
    device_put(t->model->device, &t->sums->end.squares, &infinite, sizeof infinite);
}

int train_step(struct step_result *result, struct trainer *t, i64 step)
{
    struct model *model = t->model;
    const struct parallel *ranks = model->parallel;
    struct pipeline_schedule schedule;
    struct step_end end;
    double totals[TARGETS] = {0}, begin = clock_s(), spent_s = comm_spent_s(ranks);
    memset(result, 0, sizeof *result);
    i64 micro_batches = t->source.plan(t->source.context, step, totals);
    if (micro_batches < 0 || pipeline_check(&ranks->layout, micro_batches))
        return -1;
    const struct elastic_draw draw = draw_at(t, step, 0);
    if (t->elastic && elastic_needs_order(&draw) && trainer_fix_order(result, t, step, micro_batches))
        return -1;
    deal_to(&t->deal, micro_batches * passes_of(t, step));
    pipeline_schedule_init(&schedule, ranks, &t->deal);
    result->without_targets = !has_targets(t, totals);
    require(micro_batches > 0, "step %lld has no micro-batch", (long long)step);
    weights_begin_step(&model->weights);
    step_sums_clear(model->device, t->sums);
    clear_expected(t);
    if (t->routing)
        routing_monitor_begin(t->routing);
    int status = run_tasks(result, t, step, &schedule, totals);
    if (status)
        return status;
    sum_over_ranks(t, result);
    if (t->routing)
        routing_monitor_end(t->routing, model);
    double lr = lr_at(&t->lr, step);
    if (result->without_targets)
        suppress_update(t);
    optimizer_step_over(ranks, &model->weights, t->optimizer, lr, step, &t->sums->end.squares);
    model_balance(model, t->expected_there, &t->sums->end.squares, schedule_at(&t->bias_speed, step));
    step_sums_get(result, &end, model->device, t->sums);
    if (isinf(end.squares) && ranks->expert->size > 1)
        stop_on_overflow(ranks->world, &end);
    result->optimizer = optimizer_result_of(result->without_targets ? 0 : end.squares, lr);
    if (!result->optimizer.skipped) /* a skipped update moves no other state either */
        update_balance(t, result);
    result->seconds = clock_s() - begin;
    result->pace.calls_s = comm_spent_s(ranks) - spent_s;
    return 0;
}

double trainer_weight(const struct trainer *t, enum target_kind kind)
{
    const double *running = t->running;
    double reference = running[TARGET_TEXT] ? running[TARGET_TEXT] : 1;
    double own = running[kind] ? running[kind] : reference;
    return t->balance.weight[kind] * (t->balance.posterior && !target_rows[kind].helps ? reference / own : 1);
}

void trainer_factors(double factors[TARGETS], const struct trainer *t, const double totals[TARGETS])
{
    for (int kind = 0; kind < TARGETS; kind++)
        factors[kind] = totals[kind] > 0 ? trainer_weight(t, kind) / totals[kind] : 0;
}

/* ---- Sums ---- */

struct step_sums *step_sums_open(struct device *device)
{
    return device_alloc(device, sizeof(struct step_sums));
}

void step_sums_close(struct device *device, struct step_sums *sums)
{
    device_free(device, sums, sizeof *sums);
}

void step_sums_clear(struct device *device, struct step_sums *sums)
{
    device->ops->zero(device, sums, sizeof *sums);
}

void step_sums_add(struct device *device, struct step_sums *sums, const struct forward *out,
                   const struct model_config *config)
{
    for (int kind = 0; kind < TARGETS; kind++) {
        i64 levels = target_levels(kind, &config->sizes);
        for (i64 level = 0; level < levels; level++) {
            const struct loss *loss = &out->loss[kind][level];
            if (loss->value)
                device->ops->sum_by_stream(device, &sums->loss[kind][0][0], loss->value, out->weight[kind],
                                           out->stream[kind], loss->n, levels);
            if (loss->divergence)
                device->ops->sum_by_stream(device, sums->divergence[kind], loss->divergence, out->taught[kind], NULL,
                                           loss->n, levels);
            if (loss->value && loss->entropy)
                device->ops->sum_by_stream(device, sums->entropy, loss->entropy, out->weight[kind], NULL, loss->n,
                                           levels);
        }
    }
}

struct comm_sum step_sums_joined(struct step_sums *sums)
{
    return (struct comm_sum){sums, (i64)(offsetof(struct step_sums, end) / sizeof(double)), DTYPE_F64};
}

void step_sums_reduce(struct comm *comm, struct step_sums *sums)
{
    const struct comm_sum sum = step_sums_joined(sums);
    comm_all_reduce_list(comm, &sum, 1);
}

void step_sums_get(struct step_result *result, struct step_end *end, struct device *device,
                   const struct step_sums *sums)
{
    struct step_sums s;
    device_get(device, &s, sums, sizeof s);
    for (int stream = 0; stream < LOSS_STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++) {
            result->loss[stream][kind] = s.loss[kind][stream][0];
            result->weight[stream][kind] = s.loss[kind][stream][1];
        }
    for (int kind = 0; kind < TARGETS; kind++) {
        result->divergence[kind] = s.divergence[kind][0];
        result->taught_weight[kind] = s.divergence[kind][1];
    }
    result->entropy = s.entropy[0];
    result->entropy_weight = s.entropy[1];
    result->flops = s.flops;
    result->positions = (i64)s.positions;
    *end = s.end;
}

i64 step_positions(const struct batch *batch)
{
    i64 real = 0;
    for (i64 i = 0; i < batch->n; i++)
        real += batch->sample[i] >= 0;
    return real;
}

double step_mean_loss(const struct step_result *result, enum target_kind kind)
{
    double loss = 0, weight = 0;
    for (int stream = 0; stream < LOSS_STREAMS; stream++) {
        loss += result->loss[stream][kind];
        weight += result->weight[stream][kind];
    }
    return weight > 0 ? loss / weight : NAN;
}

/* Number of visible query-key pairs, from the intervals alone. */
static double visible_pairs(const struct batch *b)
{
    double pairs = 0;
    for (i64 j = 0; j < b->keys; j++) {
        i64 hole = min_i64(b->hole_end[j], b->end[j]) - max_i64(b->hole_begin[j], b->begin[j]);
        pairs += (double)max_i64(0, b->end[j] - b->begin[j] - max_i64(hole, 0));
    }
    return pairs;
}

double step_flops(const struct model_config *config, const struct batch *batch, const struct submodel *sub)
{
    struct model_config c = submodel_config(sub, config);
    if (sub->sample_topk) /* the largest k, of few samples, says little */
        c.topk = min_i64(c.topk, config->topk);
    i64 text = batch->targets[TARGET_TEXT].n + (c.mtp ? batch->targets[TARGET_MTP].n : 0), real = step_positions(batch);
    return model_flops_forward(&c, real, visible_pairs(batch) / (double)max_i64(real, 1), text) +
           model_flops_branches(&c, batch);
}
