/* The loop of every training stage. */
#include "dist/dist.h"
#include "train/train.h"

#include <math.h>
#include <stdio.h>

enum { SKIPPED_MOST = 20 }; /* skipped steps in a row that end a stage */

struct training_loop { /* State of one call. */
    const struct training *t;
    struct comm *world;
    struct metrics *metrics; /* NULL except on rank 0 */
    struct json *state;      /* state of the checkpoint being written */
    char *checkpoints;
    struct progress bar;
    double speed, flops; /* per second, running means */
    i64 skipped;         /* steps up to now, in a row, whose gradient norm was not finite */
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
    return status || !t->state ? status : t->state(t->context, l->state, folder);
}

/* Masters, moments and the model for other readers: nearly all of a checkpoint. */
i64 checkpoint_bytes(i64 parameters, enum dtype dtype)
{
    return parameters * (12 + dtype_bytes(dtype));
}

static int check_room(const struct training_loop *l, const char *path)
{
    const struct weights *w = l->t->weights;
    return disk_check(path, checkpoint_bytes(weights_parameters(w), w->dtype), "the next checkpoint");
}

static int write_checkpoint(struct training_loop *l, struct weights *weights, i64 done)
{
    struct checkpoint_parts parts = {weights, write_files, l};
    if (check_room(l, l->t->stage->out))
        return -1;
    l->state = json_object();
    int status = checkpoint_save(l->checkpoints, done, &parts, l->state);
    if (status == 0)
        status = checkpoint_settle(l->checkpoints, done, l->t->settings->keep);
    json_free(l->state);
    return status;
}

/* All ranks gather the weights. Rank 0 writes them as a checkpoint, or as the stage's
 * result if done is -1. */
static int save(struct training_loop *l, i64 done)
{
    const struct training *t = l->t;
    struct weights *whole = t->gather ? t->gather(t->context) : t->weights;
    int status = 0;
    if (is_first(l))
        status = metrics_check(l->metrics);
    if (is_first(l) && status == 0)
        status = done < 0 ? t->save(t->context, t->stage->out) : write_checkpoint(l, whole, done);
    if (t->gather)
        t->release(t->context);
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
    char *folder = state ? checkpoint_path(checkpoints, done) : NULL;
    int status = 0;
    if (state)
        log_info("%s: resuming from step %lld%s%s", t->stage->name, (long long)done,
                 checkpoints == l->checkpoints ? "" : " of ", checkpoints == l->checkpoints ? "" : checkpoints);
    if (is_first(l)) {
        status = check_room(l, t->stage->out);
        l->metrics = status ? NULL : metrics_open(t->stage->out, done);
        status = l->metrics ? 0 : -1;
    }
    if (status == 0 && t->begin)
        status = t->begin(t->context, done, state, folder);
    memory_free(folder);
    return status;
}

/* Resumes from the last checkpoint, else from that of the stage to continue,
 * else from the beginning. */
static int resume(struct training_loop *l, i64 *done)
{
    struct json *state;
    const char *from = l->checkpoints, *other = l->t->continues;
    if (checkpoint_resume(from, done, l->t->weights, &state))
        return -1;
    if (*done < 0 && other) {
        from = other;
        if (checkpoint_resume(from, done, l->t->weights, &state))
            return -1;
        if (*done < 0)
            return error_set("%s: there is no checkpoint to continue from", other);
    }
    int status = check_together(l, *done);
    if (status == 0 && is_first(l))
        status = checkpoint_settle(l->checkpoints, *done, l->t->settings->keep);
    *done = max_i64(*done, 0);
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

/* Share of the measured peak; 0 if the speed exceeds it, because then other work ran
 * during the measurement. */
static double share_of_peak(const struct training_loop *l, double flops_per_s)
{
    double peak = l->t->stage->peak_gflops * 1e9;
    return flops_per_s < peak ? flops_per_s / peak : 0;
}

static void show(struct training_loop *l, i64 done, const struct training_step *x, double seconds)
{
    const char *unit = l->t->unit, *note = x->note.data ? x->note.data : "";
    double speed = update_mean(&l->speed, x->count / seconds);
    double share = share_of_peak(l, update_mean(&l->flops, x->flops / seconds));
    if (share > 0)
        progress_update(&l->bar, done, "%s, %.0f %s/s, %.0f %% of peak", note, speed, unit, 100 * share);
    else
        progress_update(&l->bar, done, "%s, %.0f %s/s", note, speed, unit);
}

/* seconds: duration of the whole step. */
static int report(struct training_loop *l, i64 done, const struct training_step *x, double seconds)
{
    char name[64];
    double busy = x->seconds > 0 ? x->seconds : seconds, share = share_of_peak(l, x->flops / busy);
    snprintf(name, sizeof name, "%s_per_s", l->t->unit);
    metrics_put(l->metrics, "lr", x->optimizer.lr);
    metrics_put(l->metrics, "grad_norm", x->optimizer.grad_norm);
    metrics_put(l->metrics, "skipped", (double)x->optimizer.skipped);
    metrics_put(l->metrics, "seconds", seconds);
    if (x->count > 0) /* a step of reinforcement learning may have no samples to learn from */
        metrics_put(l->metrics, name, x->count / busy);
    if (share > 0)
        metrics_put(l->metrics, "peak_share", share);
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

static int run_step(struct training_loop *l, i64 step)
{
    const struct training *t = l->t;
    struct training_step said = {.metrics = l->metrics, .bar = &l->bar};
    i64 done = step + 1;
    double begin = clock_s();
    metrics_begin(l->metrics, done);
    int status = t->step(t->context, step, &said);
    if (status == 0)
        status = report(l, done, &said, clock_s() - begin);
    if (status == 0)
        status = check_skipped(l, done, &said.optimizer);
    buffer_release(&said.note);
    if (status)
        return status == STAGE_INTERRUPTED && save(l, step) ? -1 : status;
    bool stop = comm_any(l->world, interrupted());
    if ((stop || done == t->steps || done % t->settings->checkpoint_steps == 0) && save(l, done))
        return -1;
    return stop && done < t->steps ? STAGE_INTERRUPTED : 0;
}

int training_run(const struct training *t)
{
    struct training_loop l = {
        .t = t, .world = t->stage->ranks->world, .checkpoints = path_join(t->stage->out, "checkpoints")};
    i64 done;
    int status = resume(&l, &done);
    if (status == 0) {
        progress_init(&l.bar, t->stage->name, t->steps);
        l.bar.before = done;
        for (; done < t->steps && status == 0; done++)
            status = run_step(&l, done);
        progress_close(&l.bar);
    }
    if (status == 0)
        status = save(&l, -1);
    metrics_close(l.metrics);
    memory_free(l.checkpoints);
    return status;
}
