/* The loop of every training stage. */
#include "dist/cluster.h"
#include "dist/snapshot.h"
#include "train/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SKIPPED_MOST = 20 }; /* skipped steps in a row that end a stage */

struct training_loop { /* State of one call. */
    const struct training *t;
    struct comm *world;
    struct metrics *metrics; /* NULL except on rank 0 */
    struct json *state;      /* state of the checkpoint being written */
    char *checkpoints;
    struct progress bar;
    double speed, flops; /* per second, running means */
    /* GFLOP/s that steps are compared with, of all ranks together; 0: nothing. On a CPU a matrix
     * product measured before the first step, on a GPU the peak that its vendor states. */
    double reference_gflops;
    bool on_gpu;
    struct best best;
    bool ended;        /* BEST_FILE stands: only the best step is to be loaded and saved */
    bool stops;        /* the checkpoint being written is the last of this call */
    i64 begun;         /* completed steps when this call began */
    bool fresh;        /* it began without a checkpoint: what was measured before the first step is in none yet */
    i64 measured;      /* steps after which `line` was measured; -1: none */
    double value;      /* what was measured */
    struct json *line; /* and its figures for the next line of metrics */
    i64 skipped;       /* steps up to now, in a row, whose gradient norm was not finite */
    struct snapshots *snapshots;   /* NULL: none */
    bool from_memory;              /* it began with a snapshot, which no checkpoint on disk has */
    struct rank_pace pace, *paces; /* of the last step: this rank's; [world] all, NULL: they are not measured */
    struct rank_speeds speeds;
    double last_s; /* of the last step; 0: there was none in this call */
};

static bool is_first(const struct training_loop *l)
{
    return l->world->rank == 0;
}

/* ---- Saving and resuming ---- */

static int write_files(void *context, const char *folder)
{
    struct training_loop *l = context;
    const struct training *t = l->t;
    int status = t->save(t->context, folder);
    return status || !t->state || !folder ? status : t->state(t->context, l->state, folder);
}

static int check_room(const struct training_loop *l, const char *path)
{
    const struct weights *w = l->t->weights;
    i64 parameters = weights_parameters(w);
    for (i64 i = 0; i < l->t->more_count; i++)
        parameters += weights_parameters(l->t->more[i].weights);
    return disk_check(path, checkpoint_bytes(parameters, w->dtype), "the next checkpoint");
}

static struct checkpoint_parts parts_of(struct training_loop *l)
{
    const struct training *t = l->t;
    return (struct checkpoint_parts){t->weights, write_files,  l, t->stage->ranks, t->stage->made_by,
                                     t->more,    t->more_count};
}

/* A measurement stands in the line of the next step, which an interrupt discards. */
static struct json *measured_json(const struct training_loop *l)
{
    struct json *j = json_object();
    json_set(j, "step", json_of_integer(l->measured));
    if (isfinite(l->value))
        json_set(j, "value", json_of_number(l->value));
    json_set(j, "line", json_copy(l->line));
    return j;
}

static void measured_get(struct training_loop *l, const struct json *j)
{
    l->measured = json_integer(json_get(j, "step"), -1);
    l->value = json_number(json_get(j, "value"), NAN);
    l->line = l->measured >= 0 ? json_copy(json_get(j, "line")) : NULL;
}

/* What a snapshot has beside the tables: all that a checkpoint has. */
static int print_state(struct buffer *text, struct training_loop *l, i64 done)
{
    const struct training *t = l->t;
    struct json *state = json_object();
    if (l->best.seen >= 0)
        json_set(state, "best", best_json(&l->best));
    if (l->measured == done)
        json_set(state, "measured", measured_json(l));
    int status = t->state ? t->state(t->context, state, NULL) : 0;
    json_print(text, state, 0);
    json_free(state);
    return status;
}

static int take_snapshot(struct training_loop *l, i64 done)
{
    struct buffer text = {0};
    int status = is_first(l) ? print_state(&text, l, done) : 0;
    if (status == 0)
        snapshots_save(l->snapshots, done, text.data, text.length);
    buffer_release(&text);
    return status;
}

static void open_snapshots(struct training_loop *l)
{
    enum { TABLES_MOST = 8 };
    const struct training *t = l->t;
    const struct stage *s = t->stage;
    struct weights *tables[TABLES_MOST] = {t->weights};
    struct buffer run = {0};
    if (!t->snapshots || !s->snapshots || t->more_count >= TABLES_MOST)
        return;
    for (i64 i = 0; i < t->more_count; i++)
        tables[1 + i] = t->more[i].weights;
    buffer_printf(&run, "%s\n", s->out);
    json_print(&run, s->made_by, 0);
    l->snapshots = snapshots_open(&(struct snapshot_file){.descriptor = *s->snapshots,
                                                          .ranks = s->ranks,
                                                          .tables = tables,
                                                          .count = 1 + t->more_count,
                                                          .run = hash_bytes(run.data, run.length, 0)});
    buffer_release(&run);
}

static int place(void *context, const struct json *state)
{
    const struct training *t = ((struct training_loop *)context)->t;
    int status = t->place ? t->place(t->context, state) : 0;
    for (i64 i = 0; i < t->more_count && t->place && status == 0; i++)
        if (weights_placement_count(t->more[i].weights) == weights_placement_count(t->weights))
            weights_place_experts(t->more[i].weights, t->weights->layout.placement);
    return status;
}

/* Takes the newest snapshot if it is newer than the checkpoints. *done stays -1 if there is none. */
static int resume_from_memory(struct training_loop *l, i64 *done, struct json **state)
{
    const char *text;
    i64 bytes;
    *done = -1;
    *state = NULL;
    if (!l->ended)
        open_snapshots(l);
    if (!l->snapshots)
        return 0;
    *done = snapshots_find(l->snapshots, checkpoint_newest(l->checkpoints), &text, &bytes);
    l->from_memory = *done >= 0;
    if (*done < 0)
        return 0;
    *state = json_parse(text, bytes, "snapshot in memory");
    if (!*state || place(l, *state)) {
        json_free(*state);
        return -1;
    }
    snapshots_load(l->snapshots);
    return 0;
}

static int write_checkpoint(struct training_loop *l, i64 done)
{
    struct checkpoint_parts parts = parts_of(l);
    if (!is_first(l))
        return checkpoint_save(NULL, done, &parts, NULL);
    if (check_room(l, l->t->stage->out))
        return -1;
    l->state = json_object();
    if (l->best.seen >= 0)
        json_set(l->state, "best", best_json(&l->best));
    if (l->stops && l->measured == done)
        json_set(l->state, "measured", measured_json(l));
    int status = checkpoint_save(l->checkpoints, done, &parts, l->state);
    if (status == 0)
        status = checkpoint_settle(l->checkpoints, done, l->t->settings->keep, best_kept(&l->best));
    json_free(l->state);
    return status;
}

/* Rank 0 writes a checkpoint, or the stage's result if done is -1. The others send their parts. */
static int save(struct training_loop *l, i64 done)
{
    const struct training *t = l->t;
    int status = is_first(l) ? metrics_check(l->metrics) : 0;
    if (status == 0)
        status = done < 0 ? t->save(t->context, is_first(l) ? t->stage->out : NULL) : write_checkpoint(l, done);
    if (status == 0)
        comm_barrier(l->world); /* no timeout here; a collective of the next step may have one */
    return status;
}

/* Every rank has read its own checkpoint; all must have the same step. */
static int check_together(const struct training_loop *l, i64 done)
{
    i64 first = done;
    comm_broadcast(comm_host(l->world), &first, sizeof first, 0);
    return first == done ? 0
                         : error_set("%s: this rank would resume at step %lld, the first at %lld: they do not see "
                                     "the same files",
                                     l->checkpoints, (long long)done, (long long)first);
}

static int begin_or_resume(struct training_loop *l, i64 done, const char *checkpoints, const struct json *state)
{
    const struct training *t = l->t;
    char *folder = state && !l->from_memory ? checkpoint_path(checkpoints, done) : NULL;
    int status = 0;
    if (state)
        log_info("%s: resuming from step %lld%s%s", t->stage->name, (long long)done,
                 l->from_memory                  ? ", which is in memory"
                 : checkpoints == l->checkpoints ? ""
                                                 : " of ",
                 checkpoints == l->checkpoints ? "" : checkpoints);
    if (t->stage->ranks_begin && !l->ended)
        status = t->stage->ranks_begin(t->stage->ranks_context, done, !state || checkpoints != l->checkpoints);
    if (status == 0 && is_first(l)) {
        status = check_room(l, t->stage->out);
        l->metrics = status ? NULL : metrics_open(t->stage->out, l->ended ? l->best.seen : done);
        status = l->metrics ? 0 : -1;
        const char *out = t->stage->out, *slash = strrchr(out, '/');
        if (status == 0 && !t->stage->temporary)
            log_info("%s: curves for TensorBoard in %s; look: tensorboard --logdir %.*s", t->stage->name, out,
                     slash ? (int)(slash - out) : 1, slash ? out : ".");
    }
    if (status == 0 && t->begin)
        status = t->begin(t->context, done, state, folder);
    memory_free(folder);
    return status;
}

/* A stage whose steps are done leaves its best checkpoint as the newest one. */
static int look_for_end(struct training_loop *l)
{
    char *path = path_join(l->t->stage->out, BEST_FILE);
    struct json *j = best_is_kept(&l->best) && file_exists(path) ? json_load(path) : NULL;
    int status = 0;
    if (j) {
        l->ended = true;
        best_get(&l->best, j);
        status = is_first(l) ? checkpoint_drop_after(l->checkpoints, l->best.step) : 0;
        comm_barrier(l->world);
    } else if (best_is_kept(&l->best) && file_exists(path)) {
        status = -1;
    }
    json_free(j);
    memory_free(path);
    return status;
}

/* Resumes from the last checkpoint, else from that of the stage to continue,
 * else from the beginning. */
static int resume(struct training_loop *l, i64 *done)
{
    struct json *state;
    const char *from = l->checkpoints, *other = l->t->continues;
    struct checkpoint_parts parts = parts_of(l);
    parts.place = place;
    if (look_for_end(l) || resume_from_memory(l, done, &state))
        return -1;
    if (*done < 0 && checkpoint_resume(from, done, &parts, &state))
        return -1;
    if (!l->ended && *done >= 0)
        best_get(&l->best, json_get(state, "best"));
    if (!l->ended && *done >= 0)
        measured_get(l, json_get(state, "measured"));
    if (*done < 0 && other) {
        from = other;
        parts.may_lack = true;
        if (checkpoint_resume(from, done, &parts, &state))
            return -1;
        if (*done < 0)
            return error_set("%s: there is no checkpoint to continue from", other);
    }
    int status = check_together(l, *done);
    if (status == 0 && is_first(l) && !l->from_memory)
        status = checkpoint_settle(l->checkpoints, *done, l->t->settings->keep, best_kept(&l->best));
    l->fresh = *done < 0;
    *done = l->begun = max_i64(*done, 0);
    if (status == 0)
        status = begin_or_resume(l, *done, from, state);
    json_free(state);
    return status;
}

/* ---- Steps ---- */

static double update_mean(double *mean, double now)
{
    return *mean += (*mean > 0 ? 0.05 : 1) * (now - *mean);
}

/* Share of the reference; 0 if the speed exceeds it, because then other work ran during the
 * measurement. */
static double share_of_reference(const struct training_loop *l, double flops_per_s)
{
    double reference = l->reference_gflops * 1e9;
    return flops_per_s < reference ? flops_per_s / reference : 0;
}

/* The matrix that holds most of the trained parameters, all weights of one shape taken together. */
static void commonest_shape(i64 *rows, i64 *columns, const struct weights *w)
{
    i64 most = 0;
    *rows = *columns = 0;
    for (i64 i = 0; i < w->count; i++) {
        const struct weight_spec *a = &w->list[i].spec;
        i64 sum = 0;
        for (i64 j = 0; a->trained && a->rows > 1 && j < w->count; j++) {
            const struct weight_spec *b = &w->list[j].spec;
            sum +=
                b->trained && b->rows == a->rows && b->columns == a->columns ? b->matrices * b->rows * b->columns : 0;
        }
        if (sum > most) {
            most = sum;
            *rows = a->rows;
            *columns = a->columns;
        }
    }
}

/* Measures for a few hundredths of a second what a product of the stage's commonest matrix with up to
 * 1024 rows of inputs reaches. A product of a large matrix takes fewer rows: of many short products
 * some run beside no other load. */
static void calibrate(struct training_loop *l)
{
    const struct stage *s = l->t->stage;
    i64 n, k, m;
    if (!s->calibrated)
        return;
    commonest_shape(&n, &k, l->t->weights);
    m = max_i64(32, min_i64(1024, (i64)2e8 / max_i64(n * k, 1)));
    l->on_gpu = s->device->backend == BACKEND_CUDA;
    if (l->on_gpu)
        l->reference_gflops = kernels_matrix_peak(s->device, s->dtype, 0);
    else if (n && s->device->backend == BACKEND_CPU)
        l->reference_gflops = kernels_gemm_rate(s->device, m, n, k, s->dtype, 0.045);
    comm_all_reduce(comm_host(l->world), &l->reference_gflops, 1, DTYPE_F64);
    if (is_first(l) && l->reference_gflops > 0 && !l->on_gpu)
        log_info("%s: a product of %lld x %lld x %lld reaches %.0f GFLOP/s here", s->name, (long long)m, (long long)n,
                 (long long)k, l->reference_gflops);
}

static void show(struct training_loop *l, i64 done, const struct training_step *x, double seconds)
{
    const char *unit = l->t->unit, *note = x->note.data ? x->note.data : "";
    double speed = update_mean(&l->speed, x->count / seconds);
    double flops = update_mean(&l->flops, x->flops / seconds), share = share_of_reference(l, flops);
    if (share > 0)
        progress_update(&l->bar, done, "%s, %.0f %s/s, %.0f GFLOP/s, %.0f %% of %s", note, speed, unit, flops * 1e-9,
                        100 * share, l->on_gpu ? "peak" : "a product");
    else
        progress_update(&l->bar, done, "%s, %.0f %s/s", note, speed, unit);
}

/* Pages that the process holds now, those of mapped files included; 0: not known. */
static i64 resident_bytes(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%*d %lld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void put_memory(const struct training_loop *l)
{
    i64 bytes = l->metrics ? resident_bytes() : 0;
    if (bytes)
        metrics_put(l->metrics, "memory_bytes", (double)bytes);
    if (l->t->stage->device->backend == BACKEND_CUDA)
        metrics_put(l->metrics, "device_bytes", (double)device_held_bytes(l->t->stage->device));
}

/* seconds: duration of the whole step. */
static int report(struct training_loop *l, i64 done, const struct training_step *x, double seconds)
{
    char name[64];
    double busy = x->seconds > 0 ? x->seconds : seconds, share = share_of_reference(l, x->flops / busy);
    snprintf(name, sizeof name, "%s_per_s", l->t->unit);
    metrics_put(l->metrics, "lr", x->optimizer.lr);
    metrics_put(l->metrics, "grad_norm", x->optimizer.grad_norm);
    metrics_put(l->metrics, "skipped", (double)x->optimizer.skipped);
    metrics_put(l->metrics, "seconds", seconds);
    put_memory(l);
    if (x->count > 0) /* a step of reinforcement learning may have no samples to learn from */
        metrics_put(l->metrics, name, x->count / busy);
    if (x->flops > 0)
        metrics_put(l->metrics, "gflops_per_s", x->flops / busy * 1e-9);
    if (share > 0)
        metrics_put(l->metrics, l->on_gpu ? "peak_share" : "product_share", share);
    if (x->optimizer.skipped && is_first(l))
        log_warn("%s: step %lld: the norm of the gradients is not finite; %lld update%s skipped", l->t->stage->name,
                 (long long)done, (long long)x->optimizer.skipped, x->optimizer.skipped > 1 ? "s are" : " is");
    show(l, done, x, busy);
    return metrics_end(l->metrics);
}

/* Ends a stage that makes no updates any more. */
static int check_skipped(struct training_loop *l, i64 done, const struct optimizer_result *optimizer)
{
    l->skipped = optimizer->skipped && !isfinite(optimizer->grad_norm) ? l->skipped + 1 : 0;
    return l->skipped < SKIPPED_MOST
               ? 0
               : error_set("%s: step %lld: the norm of the gradients was not finite in %d steps in a row, so the "
                           "weights stand still: lower optimizer.lr, or look at the data of these steps",
                           l->t->stage->name, (long long)done, SKIPPED_MOST);
}

/* Takes one step. Its metrics line is open. */
static int run_step(struct training_loop *l, i64 step)
{
    const struct training *t = l->t;
    struct training_step said = {.metrics = l->metrics, .bar = &l->bar};
    double begin = clock_s();
    int status = t->step(t->context, step, &said);
    if (status == 0)
        status = report(l, step + 1, &said, clock_s() - begin);
    l->last_s = said.seconds;
    l->pace = said.pace;
    if (status == 0)
        status = check_skipped(l, step + 1, &said.optimizer);
    buffer_release(&said.note);
    return status;
}

/* Measures, or takes what was measured before an interrupt. The ranks read the same checkpoint. */
static int measure_or_take(double *value, struct training_loop *l, i64 done)
{
    const struct training *t = l->t;
    struct metrics *line = done < t->steps ? l->metrics : NULL;
    if (l->measured == done) {
        *value = l->value;
        metrics_put_all(line, l->line);
        return 0;
    }
    int status = t->measure(value, t->context, done, line);
    if (status)
        return status;
    comm_broadcast(comm_host(l->world), value, sizeof *value, 0);
    json_free(l->line);
    l->line = metrics_values(line);
    l->measured = done;
    l->value = *value;
    return 0;
}

/* Sets *better if the weights after `done` steps have the best measure so far. */
static int measure(struct training_loop *l, i64 done, bool *better)
{
    double value = NAN;
    *better = false;
    if (!l->t->measure || l->ended)
        return 0;
    int status = measure_or_take(&value, l, done);
    if (status == 0 && isfinite(value) && done > l->best.seen)
        *better = best_add(&l->best, done, value) && best_is_kept(&l->best);
    return status;
}

/* Whether any rank stops, whether any asks for other ranks, whether a snapshot is due, and the paces of all: one
 * message for all. */
static void ask_ranks(const struct training_loop *l, bool last, i64 done, bool *stop, bool *change, bool *snapshot)
{
    enum { PACE_VALUES = sizeof *l->paces / sizeof(double) };
    const struct stage *s = l->t->stage;
    bool asks = s->ranks_change && s->ranks_change(s->ranks_context, done) && !last;
    bool due = l->snapshots && is_first(l) && done > l->begun && snapshots_due(l->snapshots);
    float sums[] = {*stop, asks, due};
    const struct comm_sum list[] = {{sums, COUNT_OF(sums), DTYPE_F32},
                                    {l->paces, l->paces ? PACE_VALUES * l->world->size : 0, DTYPE_F64}};
    for (i64 r = 0; l->paces && r < l->world->size; r++)
        l->paces[r] = r == l->world->rank ? l->pace : (struct rank_pace){0};
    comm_all_reduce_list(comm_host(l->world), list, COUNT_OF(list));
    *stop = sums[0] > 0;
    *change = sums[1] > 0 && !*stop;
    *snapshot = sums[2] > 0;
}

/* Seconds a micro-batch of each rank in the step before; of many ranks the median and the most alone. */
static void put_paces(struct training_loop *l)
{
    enum { RANKS_SHOWN = 64 };
    double most = 0;
    char name[32];
    for (i64 r = 0; r < l->world->size; r++) {
        double seconds = l->paces[r].seconds;
        most = fmax(most, seconds);
        snprintf(name, sizeof name, "rank_s/%lld", (long long)r);
        if (seconds > 0 && l->world->size <= RANKS_SHOWN)
            metrics_put(l->metrics, name, seconds);
    }
    if (most > 0 && l->world->size > RANKS_SHOWN) {
        metrics_put(l->metrics, "rank_s/median", speeds_median(&l->speeds, 0));
        metrics_put(l->metrics, "rank_s/most", most);
    }
}

/* total: micro-batches of the step before */
static void tell_deal(const struct training_loop *l, i64 done, i64 total)
{
    enum { RANKS_TOLD = 16 };
    struct deal *d = l->t->deal;
    struct buffer text = {0};
    deal_to(d, total);
    for (i64 r = 0; r < min_i64(d->ranks, RANKS_TOLD); r++)
        buffer_printf(&text, "%s%lld", r ? " : " : "", (long long)d->counts[r]);
    log_info("%s: from step %lld on data ranks take %s%s of %lld micro-batches", l->t->stage->name, (long long)done + 1,
             text.data, d->ranks > RANKS_TOLD ? " : ..." : "", (long long)total);
    buffer_release(&text);
}

/* Looks at the paces of the last step, and deals the micro-batches of the next one. */
static int deal_next(struct training_loop *l, i64 done)
{
    const struct stage *s = l->t->stage;
    struct deal *d = l->t->deal;
    i64 bytes = d->groups * (i64)sizeof(i64), *parts = memory_alloc(bytes), total = d->total;
    int status = 0;
    speeds_add(&l->speeds, l->paces);
    put_paces(l);
    speeds_warn(&l->speeds, l->world, s->name);
    memcpy(parts, d->parts, (size_t)bytes);
    if (l->t->by_speed)
        speeds_deal(parts, &l->speeds, d);
    if (s->ranks_deal)
        status = s->ranks_deal(s->ranks_context, done, parts, d->groups);
    if (status == 0 && memcmp(parts, d->parts, (size_t)bytes) != 0) {
        deal_set(d, parts);
        if (is_first(l) && total > 0)
            tell_deal(l, done, total);
    }
    memory_free(parts);
    return status;
}

/* Compares the last step with what was foreseen, once. The line of the next step is open. */
static void check_foreseen(struct training_loop *l)
{
    struct foreseen_check *check = l->t->foreseen;
    struct foreseen measured;
    struct buffer text = {0};
    if (!check || check->foreseen.seconds == 0 || l->last_s == 0 ||
        !foreseen_add(&measured, check, l->last_s, l->paces, l->world->size))
        return;
    foreseen_say(&text, &check->foreseen, &measured);
    log_info("%s: %s", l->t->stage->name, text.data);
    buffer_release(&text);
    const struct {
        const char *name;
        double value;
    } values[] = {{"foreseen/seconds", check->foreseen.seconds},
                  {"foreseen/computing", check->foreseen.computing_s},
                  {"foreseen/messages", check->foreseen.links_s},
                  {"foreseen/waiting", check->foreseen.waiting_s},
                  {"step/seconds", measured.seconds},
                  {"step/computing", measured.computing_s},
                  {"step/messages", measured.links_s},
                  {"step/waiting", measured.waiting_s}};
    for (i64 i = 0; i < COUNT_OF(values); i++)
        metrics_put(l->metrics, values[i].name, values[i].value);
}

/* One turn of the loop, with `done` steps complete: measures, saves if that is due, and takes the next
 * step. Sets *more if there is one. */
static int turn(struct training_loop *l, i64 done, bool *more)
{
    const struct training *t = l->t;
    bool better;
    metrics_begin(l->metrics, done + 1);
    int status = measure(l, done, &better);
    bool last = done == t->steps || best_ends(&l->best), finishes = last && t->finish;
    if (status == 0 && finishes)
        status = t->finish(t->context);
    if (status && status != STAGE_INTERRUPTED)
        return status;
    bool stop = status || (interrupted() && !last), change = false, snapshot = false;
    ask_ranks(l, last, done, &stop, &change, &snapshot);
    bool ends = stop || change;
    bool begins = ends && (l->fresh || l->from_memory);
    bool due = done > l->begun ? ends || last || done % t->settings->checkpoint_steps == 0 : begins || finishes;
    l->stops = ends;
    if ((due || better) && save(l, done))
        return -1;
    *more = !last && !ends;
    if (*more && snapshot && !due && !better && take_snapshot(l, done))
        return -1;
    if (*more && l->paces && deal_next(l, done))
        return -1;
    if (*more && is_first(l))
        check_foreseen(l);
    if (*more)
        status = run_step(l, done);
    else if (ends)
        status = stop ? STAGE_INTERRUPTED : STAGE_RANKS;
    l->stops = status == STAGE_INTERRUPTED;
    return *more && l->stops && save(l, done) ? -1 : status;
}

/* ---- The result ---- */

static void tell_best(const struct training_loop *l)
{
    enum { LONG_AGO = 5 }; /* the last of as many parts of the steps */
    const struct best *b = &l->best;
    const char *name = l->t->stage->name;
    if (b->step < 0)
        return;
    const char *measure = best_measure(b->settings);
    if (b->step == b->seen && best_is_kept(b))
        log_info("%s: keep_best %s: the last step, %lld, is the best, with %.4f", name, measure, (long long)b->step,
                 b->value);
    else if (best_is_kept(b))
        log_info("%s: keep_best %s: the result is step %lld, with %.4f; step %lld has %.4f", name, measure,
                 (long long)b->step, b->value, (long long)b->seen, b->last);
    else if (LONG_AGO * (b->seen - b->step) > b->seen)
        log_warn("%s: %s was best at step %lld (%.4f), long before the end (%.4f at step %lld): `keep_best: heldout` "
                 "keeps the best step, and `patience` stops earlier",
                 name, measure, (long long)b->step, b->value, b->last, (long long)b->seen);
}

/* BEST_FILE says that no step is left, before the checkpoints after the best one are deleted. */
static int write_best(struct training_loop *l)
{
    char *path = path_join(l->t->stage->out, BEST_FILE);
    struct json *j = best_json(&l->best);
    int status = l->ended ? 0 : json_save(path, j);
    if (status == 0)
        status = checkpoint_drop_after(l->checkpoints, l->best.step);
    json_free(j);
    memory_free(path);
    return status;
}

/* Loads the best checkpoint if it is not the last one. */
static int go_back(struct training_loop *l, i64 done)
{
    const struct training *t = l->t;
    struct json *state;
    i64 step;
    if (is_first(l))
        tell_best(l);
    if (best_kept(&l->best) < 0)
        return 0;
    int status = is_first(l) ? write_best(l) : 0;
    comm_barrier(l->world);
    if (status || l->best.step == done)
        return status;
    struct checkpoint_parts parts = parts_of(l);
    if (checkpoint_resume(l->checkpoints, &step, &parts, &state))
        return -1;
    char *folder = checkpoint_path(l->checkpoints, step);
    status = check_together(l, step);
    if (status == 0 && step != l->best.step)
        status = error_set("%s: the checkpoint of the best step, %lld, is damaged: train anew (--redo)", l->checkpoints,
                           (long long)l->best.step);
    if (status == 0)
        status = t->restore(t->context, step, state, folder);
    memory_free(folder);
    json_free(state);
    return status;
}

int training_run(const struct training *t)
{
    struct training_loop l = {.t = t,
                              .world = t->stage->ranks->world,
                              .checkpoints = path_join(t->stage->out, "checkpoints"),
                              .measured = -1};
    i64 done;
    best_init(&l.best, t->best, t->higher);
    if (t->deal && l.world->size > 1) {
        l.paces = memory_alloc(l.world->size * (i64)sizeof *l.paces);
        speeds_open(&l.speeds, &t->stage->ranks->layout);
    }
    signals_say("%s: the step or measurement that goes on now ends or is given up, then the stage is saved",
                t->stage->name);
    int status = resume(&l, &done);
    if (status == 0) {
        calibrate(&l);
        progress_init(&l.bar, t->stage->name, t->steps);
        l.bar.before = done;
        for (bool more = !l.ended; more && status == 0; done += more && status == 0)
            status = turn(&l, done, &more);
        progress_close(&l.bar);
    }
    if (status == 0)
        status = go_back(&l, done);
    if (status == 0)
        status = save(&l, -1);
    snapshots_close(l.snapshots, status != 0);
    metrics_close(l.metrics);
    json_free(l.line);
    best_release(&l.best);
    speeds_close(&l.speeds);
    memory_free(l.paces);
    memory_free(l.checkpoints);
    return status;
}
