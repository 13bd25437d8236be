#include "train/step_memory.h"

#include "core/json.h"

/* ---- Counting ---- */

static i64 weights_parts(const struct step_memory *m)
{
    return m->copies + m->masters + m->moments + m->gradients;
}

/* Rounding between the weights and at the ends of their arenas. */
static i64 weights_rounding(const struct weights *w, i64 parts)
{
    i64 behind = arena_rounding_bytes(w->device, &w->memory) + arena_rounding_bytes(w->device, &w->rounded);
    return behind ? behind + w->memory.peak_bytes + w->rounded.peak_bytes - parts : 0;
}

void step_memory_add_weights(struct step_memory *out, const struct weights *weights)
{
    i64 before = weights_parts(out);
    out->gradients += weights->grad_elements * 4;
    out->copies += weights->rounded.used_bytes;
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        i64 share = w->share_rows * w->columns * 4;
        out->copies += w->value.rows * w->value.columns * dtype_bytes(w->value.dtype) + w->image_bytes;
        out->masters += w->master && w->value.dtype != DTYPE_F32 ? share : 0;
        out->moments += w->m ? 2 * share : 0;
    }
    out->rounding += weights_rounding(weights, weights_parts(out) - before);
}

void step_memory_add_site(struct step_memory *out, const struct weights *weights)
{
    struct weights shadow;
    i64 bytes = 0;
    weights_open_shadow(&shadow, weights);
    for (i64 i = 0; i < shadow.count; i++)
        bytes += 2 * shadow.list[i].share_rows * shadow.list[i].columns * 4;
    out->sites += bytes;
    out->rounding += weights_rounding(&shadow, bytes);
    weights_close(&shadow);
}

void step_memory_add_tape(struct step_memory *out, const struct tape *tape)
{
    out->activations += tape_peak_bytes(tape);
    out->rounding += tape_rounding_bytes(tape);
}

/* A batch reserves room for vision input at every position; memory without vision
 * input is never touched. */
static i64 untouched_bytes(const struct micro_batch *f, const struct model_config *c)
{
    i64 positions = c->cell_features ? f->batch.n - f->batch.inputs[INPUT_VISION_IN].n : 0;
    return positions * CELLS * (4 * c->cell_features + c->patch_values);
}

void step_memory_of(struct step_memory *out, const struct trainer *t)
{
    *out = (struct step_memory){.backend = device_held_bytes(t->model->device), .buckets = buckets_memory(t->buckets)};
    step_memory_add_weights(out, &t->model->weights);
    if (t->teacher_tape) {
        step_memory_add_tape(out, t->teacher_tape);
        out->host += t->teacher_tape->host.peak_bytes + t->teacher_tape->staged.peak_bytes;
    }
    for (i64 i = 0; i < t->in_flight_count; i++) {
        const struct micro_batch *f = &t->in_flight[i];
        step_memory_add_tape(out, &f->tape);
        out->host += f->tape.host.peak_bytes + f->tape.staged.peak_bytes + f->arena.peak_bytes -
                     untouched_bytes(f, &t->model->config);
    }
}

/* ---- Parts ---- */

enum step_memory_place { ON_HOST, ON_GPU, ON_GPU_BY_DATA };
static const struct step_memory_part {
    const char *name;
    size_t offset;
    enum step_memory_place place;
} parts[] = {
    {"weights", offsetof(struct step_memory, copies), ON_GPU},
    {"masters", offsetof(struct step_memory, masters), ON_GPU},
    {"moments", offsetof(struct step_memory, moments), ON_GPU},
    {"gradients", offsetof(struct step_memory, gradients), ON_GPU},
    {"sites", offsetof(struct step_memory, sites), ON_GPU},
    {"cache", offsetof(struct step_memory, cache), ON_GPU},
    {"activations", offsetof(struct step_memory, activations), ON_GPU_BY_DATA},
    {"host", offsetof(struct step_memory, host), ON_HOST},
    {"buckets", offsetof(struct step_memory, buckets), ON_GPU_BY_DATA},
    {"backend", offsetof(struct step_memory, backend), ON_HOST},
    {"program", offsetof(struct step_memory, program), ON_HOST},
    {"rounding", offsetof(struct step_memory, rounding), ON_GPU_BY_DATA},
};

static i64 bytes_of(const struct step_memory *m, const struct step_memory_part *part)
{
    return *(const i64 *)((const char *)m + part->offset);
}

static i64 sum_from(const struct step_memory *m, enum step_memory_place least)
{
    i64 bytes = 0;
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        bytes += parts[i].place >= least ? bytes_of(m, &parts[i]) : 0;
    return bytes;
}

static void print_from(struct buffer *out, const struct step_memory *m, enum step_memory_place least, double unit)
{
    const char *comma = "";
    for (i64 i = 0; i < COUNT_OF(parts); i++) {
        i64 bytes = parts[i].place >= least ? bytes_of(m, &parts[i]) : 0;
        if (bytes)
            buffer_printf(out, "%s%s %.*f", comma, parts[i].name, unit >= 1e9 ? 3 : 1, (double)bytes / unit);
        comma = bytes ? ", " : comma;
    }
}

i64 step_memory_total(const struct step_memory *m)
{
    return sum_from(m, ON_HOST);
}

i64 step_memory_gpu(const struct step_memory *m)
{
    return sum_from(m, ON_GPU);
}

void step_memory_print(struct buffer *out, const struct step_memory *m, double unit)
{
    print_from(out, m, ON_HOST, unit);
}

struct json *step_memory_json(const struct step_memory *m)
{
    struct json *j = json_object();
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        json_set(j, parts[i].name, json_of_integer(bytes_of(m, &parts[i])));
    json_set(j, "total", json_of_integer(step_memory_total(m)));
    return j;
}

void step_memory_estimate(struct memory_estimate *out, const struct step_memory *m)
{
    enum step_memory_place least = out->with_host ? ON_HOST : ON_GPU;
    out->bytes = sum_from(m, least);
    out->data_bytes = sum_from(m, ON_GPU_BY_DATA);
    print_from(&out->parts, m, least, 1e6);
}
