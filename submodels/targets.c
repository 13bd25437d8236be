/* The sub-models that fit a target of size. */
#include "submodels/submodels.h"

#include <math.h>
#include <string.h>

bool submodel_fits(const struct submodel_size *size, const struct submodel_size *full, const struct submodel_target *t)
{
    return (t->active == 0 || (double)size->active <= t->active * (double)full->active) &&
           (t->parameters == 0 || (double)size->parameters <= t->parameters * (double)full->parameters) &&
           (t->bytes == 0 || size->bytes <= t->bytes);
}

static struct submodel_size size_of(const struct submodel_shape *shape, const struct model *model)
{
    const struct model_config *c = &model->config;
    struct submodel sub;
    submodel_full(&sub, c);
    submodel_keep_layers(&sub, c, model_order_layers(model->order, c), shape->layers);
    sub.expert_count = shape->experts;
    sub.topk = shape->topk;
    return submodel_size(&sub, model);
}

static struct submodel_size size_of_all(const struct model *model)
{
    struct submodel full;
    submodel_full(&full, &model->config);
    return submodel_size(&full, model);
}

static bool fits(const struct model *model, const struct submodel_shape *shape, const struct submodel_target *t)
{
    struct submodel_size all = size_of_all(model), size = size_of(shape, model);
    return submodel_fits(&size, &all, t);
}

/* The numbers of experts that are tried: eighths of all, or all where there are fewer than 8. */
static i64 expert_step(const struct model_config *c)
{
    return max_i64(1, c->experts / 8);
}

/* Replaces *value by the largest one below it in steps, or by the least one; false: there is none. */
static bool lower(i64 *value, i64 step, i64 least)
{
    if (*value <= least)
        return false;
    *value = max_i64(least, *value - step);
    return true;
}

i64 submodel_shapes(struct submodel_shape *shapes, i64 most, const struct model *model,
                    const struct submodel_shape *least, const struct submodel_shape *top,
                    const struct submodel_target *target)
{
    i64 count = 0, step = expert_step(&model->config);
    struct submodel_shape s;
    for (s.layers = top->layers;;) {
        for (s.experts = top->experts;;) {
            /* The largest k that fits; a larger shape with the same k makes this one needless. */
            for (s.topk = s.experts ? min_i64(top->topk, s.experts) : top->topk;
                 s.topk > least->topk && !fits(model, &s, target); s.topk--)
                ;
            bool needless = !fits(model, &s, target);
            for (i64 i = 0; i < count; i++)
                needless |= shapes[i].layers >= s.layers && shapes[i].experts >= s.experts && shapes[i].topk >= s.topk;
            if (!needless && count < most)
                shapes[count++] = s;
            if (!lower(&s.experts, step, max_i64(least->experts, least->topk)))
                break;
        }
        if (!lower(&s.layers, 1, least->layers))
            break;
    }
    return count;
}

bool submodel_shape_in_order(struct submodel_shape *s, const struct model *model, const struct submodel_shape *least,
                             const struct submodel_shape *top, const struct submodel_target *target)
{
    const struct submodel_shape mild = {max_i64(least->layers, ceil_div(3 * top->layers, 4)),
                                        max_i64(least->experts, ceil_div(top->experts, 2)),
                                        max_i64(least->topk, ceil_div(top->topk, 4))};
    const struct submodel_shape *bounds[] = {&mild, least};
    const struct submodel_target active = {.active = target->active};
    i64 step = expert_step(&model->config);
    *s = *top;
    for (int round = 0; round < 2; round++) {
        const struct submodel_shape *b = bounds[round];
        while (!fits(model, s, &active) && lower(&s->topk, 1, b->topk)) /* k changes nothing else */
            ;
        while (!fits(model, s, target) && lower(&s->layers, 1, b->layers))
            ;
        while (!fits(model, s, target) && lower(&s->experts, step, max_i64(b->experts, s->topk)))
            ;
    }
    return fits(model, s, target);
}

/* ---- What a target came to ---- */

enum { TARGETS_MOST = 3 }; /* active, parameters, bytes */

/* In shares, and in bytes. */
static double measure(int target, const struct submodel_size *size, const struct submodel_size *all)
{
    return target == 0   ? (double)size->active / (double)all->active
           : target == 1 ? (double)size->parameters / (double)all->parameters
                         : (double)size->bytes;
}

static char *figure(int target, double value)
{
    return target < 2 ? string_format("%.3f", value) : string_format("%.1f MB", value * 1e-6);
}

/* The shapes with a little more of one axis. Returns their number. */
static int larger_shapes(struct submodel_shape out[3], const char *what[3], const struct submodel_shape *got,
                         const struct submodel_shape *top, const struct model_config *c)
{
    int count = 0;
    if (got->topk < min_i64(top->topk, got->experts)) {
        what[count] = "a larger top-k";
        out[count++] = (struct submodel_shape){got->layers, got->experts, got->topk + 1};
    }
    if (got->layers < top->layers) {
        what[count] = "one more layer";
        out[count++] = (struct submodel_shape){got->layers + 1, got->experts, got->topk};
    }
    if (got->experts < top->experts) {
        what[count] = "the next number of experts";
        out[count++] =
            (struct submodel_shape){got->layers, min_i64(got->experts + expert_step(c), top->experts), got->topk};
    }
    return count;
}

/* Why a target was not reached: the parts of a sub-model are whole, or something else is narrower. */
static char *why_less(int target, double asked, const struct submodel_shape *got, const struct submodel_shape *top,
                      const struct submodel_target *t, const struct model *model, bool by_data)
{
    struct submodel_size all = size_of_all(model);
    struct submodel_shape larger[3];
    const char *what[3], *next = NULL;
    double least = INFINITY;
    int count = larger_shapes(larger, what, got, top, &model->config);
    for (int i = 0; i < count; i++) {
        struct submodel_size size = size_of(&larger[i], model);
        double value = measure(target, &size, &all);
        if (submodel_fits(&size, &all, t))
            return string_format(by_data ? "%s would fit too, but did not lose less on the data"
                                         : "%s would fit too: without data a fixed order of the axes decides",
                                 what[i]);
        if (value > asked && value < least) {
            next = what[i];
            least = value;
        }
    }
    if (count == 0)
        return string_copy("no option leaves more");
    if (!next)
        return string_copy("another target is narrower");
    char *then = figure(target, least), *why = string_format("%s would make it %s", next, then);
    memory_free(then);
    return why;
}

void submodel_target_print(struct buffer *out, const struct submodel *sub, const struct model *model,
                           const struct submodel_shape *top, const struct submodel_target *t, bool by_data)
{
    static const char *const names[TARGETS_MOST] = {"active parameters", "parameters", "weights"};
    const double asked[TARGETS_MOST] = {t->active, t->parameters, (double)t->bytes};
    const struct submodel_shape got = {sub->layer_count, sub->expert_count, sub->topk};
    struct submodel_size all = size_of_all(model), size = submodel_size(sub, model);
    for (int i = 0; i < TARGETS_MOST; i++) {
        if (asked[i] == 0)
            continue;
        double has = measure(i, &size, &all);
        char *wanted = figure(i, asked[i]), *is = figure(i, has);
        char *why = strcmp(wanted, is) == 0 ? NULL : why_less(i, asked[i], &got, top, t, model, by_data);
        buffer_printf(out, "%s%s: asked for at most %s, got %s%s%s", out->length ? "; " : "", names[i], wanted, is,
                      why ? ": " : "", why ? why : "");
        memory_free(wanted);
        memory_free(is);
        memory_free(why);
    }
}
