#include "dist/dist.h"
#include "train/train.h"

#include <math.h>

double lr_at(const struct lr_schedule *s, i64 step)
{
    static const double pi = 3.14159265358979323846;
    if (step < s->warmup)
        return s->peak * (double)(step + 1) / (double)s->warmup;
    if (s->shape == LR_CONSTANT)
        return s->peak;
    i64 start = s->shape == LR_COSINE ? s->warmup : s->decay_start;
    if (step < start)
        return s->peak;
    if (step >= s->total)
        return s->min;
    enum lr_decay decay = s->shape == LR_COSINE ? DECAY_COSINE : s->decay;
    double x = (double)(step - start) / (double)(s->total - start);
    double f = decay == DECAY_COSINE ? 0.5 * (1 + cos(pi * x)) : decay == DECAY_LINEAR ? 1 - x : 1 - sqrt(x);
    return s->min + (s->peak - s->min) * f;
}

struct lr_schedule lr_of_settings(const struct optimizer_settings *settings, i64 steps)
{
    i64 warmup = min_i64(settings->warmup, steps / 2);
    return (struct lr_schedule){.peak = settings->lr,
                                .min = settings->lr * settings->min_lr_ratio,
                                .warmup = warmup,
                                .total = steps,
                                .decay_start = max_i64(warmup, steps - (i64)((double)steps * settings->decay_share)),
                                .shape = (enum lr_shape)settings->shape,
                                .decay = (enum lr_decay)settings->decay};
}

/* What of a part this rank updates. A part has one gradient or none: experts apart, everything else whole. */
struct slice {
    i64 first, count;  /* elements of the rank's share */
    void *copy;        /* what products read, where that is no master; NULL */
    const float *grad; /* NULL: none was written */
};

static struct slice slice_of(const struct weight *w, i64 part)
{
    i64 begin = max_i64(part * w->rows, w->share_first);
    i64 end = min_i64((part + 1) * w->rows, w->share_first + w->share_rows), at = begin * w->columns;
    bool written = w->value.grad_written || w->value.parts_written[part];
    return (struct slice){
        .first = (begin - w->share_first) * w->columns,
        .count = max_i64(0, end - begin) * w->columns,
        .copy = w->value.dtype == DTYPE_F32 ? NULL : (char *)w->value.data + at * dtype_bytes(w->value.dtype),
        .grad = written ? (const float *)w->value.grad + at : NULL};
}

static double gradient_norm(struct weights *weights, const struct parallel *parallel)
{
    struct device *device = weights->device;
    double total = 0;
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        bool counted = w->value.needs_grad && shares_counted(w, &weights->layout);
        for (i64 p = 0; counted && p < w->parts; p++) {
            struct slice s = slice_of(w, p);
            if (s.grad && s.count)
                device->ops->sum_squares(device, &total, s.grad, s.count);
        }
    }
    comm_all_reduce(parallel->world, &total, 1, DTYPE_F64);
    return sqrt(total);
}

static void update_weight(struct weights *weights, struct weight *w, const struct adamw *base, float scale)
{
    struct device *device = weights->device;
    struct adamw adamw = *base;
    adamw.lr *= w->spec.lr_factor;
    adamw.decay = w->spec.decay ? base->decay : 0;
    for (i64 p = 0; p < w->parts; p++) {
        struct slice s = slice_of(w, p);
        if (s.count)
            device->ops->adamw(device, w->master + s.first, w->m + s.first, w->v + s.first, s.copy, w->value.dtype,
                               s.grad, scale, s.count, &adamw);
    }
}

struct optimizer_result optimizer_step_over(const struct parallel *parallel, struct weights *weights,
                                            const struct optimizer_settings *settings, double lr, i64 step)
{
    struct optimizer_result result = {gradient_norm(weights, parallel), lr, false};
    double clip = settings->clip;
    if (!isfinite(result.grad_norm)) {
        log_warn("step %lld: the norm of the gradients is not finite; this update is skipped", (long long)step);
        result.skipped = true;
        return result;
    }
    float scale = clip > 0 && result.grad_norm > clip ? (float)(clip / (result.grad_norm + 1e-6)) : 1;
    struct adamw adamw = {
        (float)lr, (float)settings->beta1, (float)settings->beta2, (float)settings->eps, (float)settings->weight_decay,
        step + 1};
    for (i64 i = 0; i < weights->count; i++)
        if (weights->list[i].value.needs_grad)
            update_weight(weights, &weights->list[i], &adamw, scale);
    shares_spread(weights, parallel);
    return result;
}

struct optimizer_result optimizer_step(struct weights *weights, const struct optimizer_settings *settings, double lr,
                                       i64 step)
{
    return optimizer_step_over(parallel_alone(), weights, settings, lr, step);
}
