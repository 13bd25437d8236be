/* Memory estimate of a decoder: a dry run of its steps on the meta backend
 * with the actual requests. */
#include "train/foresee.h"

#include "train/fits.h"

/* Enough for every scale of a long clip; the steps of text and audio are all alike. */
enum { STEPS_MOST = 256 };

/* ---- One decoder ---- */

/* Amplitudes for the meta backend, whose device memory is host memory. */
static const float ones[SCALES_MOST] = {[0 ... SCALES_MOST - 1] = 1};

/* Returns -1 if the grammar rejects a prompt. */
static i64 columns_of(const struct decoding_wanted *w)
{
    i64 columns = w->columns;
    for (i64 i = 0; i < w->count && !w->columns && columns >= 0; i++) {
        i64 own = request_columns(w->options, &w->requests[i]);
        columns = own < 0 ? -1 : max_i64(columns, own);
    }
    return columns;
}

/* The shape with the most positions among the choices. */
static const i32 *largest(const struct vocabulary *v, const struct generate_request *r)
{
    const i32 *choice = r->choices;
    i64 most = -1;
    for (i64 i = 0; i < r->choice_count; i++)
        for (i64 k = 0; k < v->shape_count; k++)
            if (v->shape[k] == r->choices[i] && shape_positions(&v->shapes[k]) > most) {
                most = shape_positions(&v->shapes[k]);
                choice = &r->choices[i];
            }
    return choice;
}

/* The meta backend draws the first allowed id, so stop ids are removed and no text ends early. */
static void run(struct step_memory *out, const struct decoding_wanted *w, const struct decoder_options *o)
{
    struct decoder d;
    i64 total = 0;
    for (i64 i = 0; i < w->count; i++)
        total += w->requests[i].copies;
    struct generate_request *requests = memory_alloc(w->count * (i64)sizeof *requests);
    struct answer *answers = memory_alloc(total * (i64)sizeof *answers);
    for (i64 i = 0; i < w->count; i++) {
        requests[i] = w->requests[i];
        requests[i].choices = largest(o->vocabulary, &w->requests[i]);
        requests[i].choice_count = min_i64(1, w->requests[i].choice_count);
        for (int k = 0; k < COUNT_OF(requests[i].stop); k++)
            requests[i].stop[k] = -1;
    }
    for (i64 i = 0; i < total && w->begin; i++)
        w->begin(w->context, &answers[i]);
    decoder_open(&d, o, w->seats, columns_of(w));
    decoder_begin(&d, answers, requests, w->count);
    for (i64 step = 0; step < STEPS_MOST && decoder_step(&d); step++)
        ;
    out->cache += d.cache.memory.peak_bytes;
    out->rounding += arena_rounding_bytes(o->model->device, &d.cache.memory);
    step_memory_add_tape(out, &d.tape);
    decoder_close(&d);
    for (i64 i = 0; i < total; i++)
        answer_release(&answers[i]);
    memory_free(answers);
    memory_free(requests);
}

void decoding_foresee(struct step_memory *out, const struct decoding_wanted *w, struct model *meta)
{
    struct decoder_options o = *w->options;
    const float *amplitude[SHAPES_MOST];
    struct vocabulary endless = *o.vocabulary;
    endless.end = -1;
    for (i64 i = 0; i < SHAPES_MOST; i++)
        amplitude[i] = ones;
    o.model = meta;
    o.vocabulary = &endless;
    o.amplitude = o.amplitude ? amplitude : NULL;
    run(out, w, &o);
}

/* ---- Settings that fit ---- */

static int foresee(struct step_memory *out, const struct decoding_wanted *w)
{
    const struct model *given = w->options->model;
    struct device meta;
    struct model model;
    *out = (struct step_memory){0};
    device_open_meta(&meta);
    device_meta_gpu(&meta, given->device->has_fp8);
    int status = model_open(&model, &meta, &given->config, given->weights.dtype, false, NULL);
    if (status == 0)
        decoding_foresee(out, w, &model);
    model_close(&model);
    device_close(&meta);
    return status;
}

/* Tries answers 1/2, 1/4, ... as long. If none fits, suggests quantized weights. */
static void say_what_fits(struct text *out, const void *context, i64 left_bytes)
{
    const struct decoding_wanted *w = context;
    struct decoding_wanted shorter = *w;
    struct step_memory m;
    struct generate_request *requests = memory_alloc(w->count * (i64)sizeof *requests);
    i64 most = 0;
    bool done = false;
    for (i64 i = 0; i < w->count; i++)
        most = max_i64(most, w->requests[i].most);
    shorter.requests = requests;
    for (i64 part = 2; part <= most && !w->fixed_length && !done; part *= 2) {
        for (i64 i = 0; i < w->count; i++) {
            requests[i] = w->requests[i];
            requests[i].most = max_i64(1, w->requests[i].most / part);
        }
        done = foresee(&m, &shorter) == 0 &&
               memory_offer(out, &m, left_bytes, "answers of at most %lld", (long long)(most / part));
    }
    if (!done)
        text_printf(out, "%s would do: take weights of 8 or 4 bits (--weights), a shorter prompt or a smaller model",
                    w->fixed_length ? "nothing shorter" : "no shorter answers");
    memory_free(requests);
}

static i64 missing(struct step_memory *m, const struct decoding_wanted *w)
{
    return foresee(m, w) ? -1 : max_i64(0, step_memory_gpu(m) - device_left_bytes(w->options->model->device));
}

int decoding_check_memory(struct decoding_wanted *w)
{
    struct memory_wanted all = {.what = "decoding", .say_what_fits = say_what_fits, .context = w};
    i64 asked = w->seats, more = 1;
    if (device_left_bytes(w->options->model->device) == INT64_MAX || w->count == 0 || columns_of(w) < 0)
        return 0; /* the decoder's caller reports such prompts */
    for (; (more = missing(&all.memory, w)) > 0 && w->seats > 1;)
        w->seats /= 2;
    if (more < 0)
        return -1;
    if (more == 0 && w->seats < asked)
        log_info("%lld requests at a time, not %lld: so many fit into what is left of the GPU's memory",
                 (long long)w->seats, (long long)asked);
    all.certain_bytes = step_memory_gpu(&all.memory);
    return memory_check(&all, w->options->model->device);
}
