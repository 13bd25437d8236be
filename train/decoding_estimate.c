/* Memory estimate of a decoder: a dry run of its steps on the meta backend
 * with the actual requests. */
#include "train/memory_estimate.h"

/* Enough for every scale of a long clip; the steps of text and audio are all alike. */
enum { STEPS_MOST = 256 };

/* ---- One decoder ---- */

/* Amplitudes for the meta backend, whose device memory is host memory. */
static const float ones[SCALES_MOST] = {[0 ... SCALES_MOST - 1] = 1};

/* Returns -1 if the grammar rejects a prompt. */
static i64 columns_of(const struct decoding_work *w)
{
    i64 columns = w->columns;
    for (i64 i = 0; i < w->count && !w->columns && columns >= 0; i++) {
        i64 own = request_cache_rows(w->options, &w->requests[i]);
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
static void decode(struct step_memory *out, const struct decoding_work *w, const struct decoder_options *o)
{
    struct decoder d;
    i64 total = 0;
    for (i64 i = 0; i < w->count; i++)
        total += w->requests[i].copies;
    struct generate_request *requests = memory_alloc(w->count * (i64)sizeof *requests);
    struct answer *answers = memory_alloc(total * (i64)sizeof *answers), *waiting = answers;
    for (i64 i = 0; i < w->count; i++) {
        requests[i] = w->requests[i];
        requests[i].choices = largest(o->vocabulary, &w->requests[i]);
        requests[i].choice_count = min_i64(1, w->requests[i].choice_count);
        for (int k = 0; k < COUNT_OF(requests[i].stop); k++)
            requests[i].stop[k] = -1;
    }
    for (i64 i = 0; i < total && w->begin; i++)
        w->begin(w->context, &answers[i]);
    decoder_open(&d, o, w->slots, columns_of(w));
    for (i64 step = 0, next = 0; step < STEPS_MOST; step++) {
        for (; next < w->count && decoder_add(&d, waiting, &requests[next]) == 0; next++)
            waiting += requests[next].copies;
        if (!decoder_step(&d))
            break;
        while (decoder_take(&d))
            ;
    }
    out->cache += d.cache.memory.peak_bytes;
    out->rounding += arena_rounding_bytes(o->model->device, &d.cache.memory);
    step_memory_add_tape(out, &d.tape);
    decoder_close(&d);
    for (i64 i = 0; i < total; i++)
        answer_release(&answers[i]);
    memory_free(answers);
    memory_free(requests);
}

void decoding_estimate(struct step_memory *out, const struct decoding_work *w, struct model *meta)
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
    decode(out, w, &o);
}

/* ---- Does it fit ---- */

struct shorter_decoding {
    const struct decoding_work *given;
    struct generate_request *requests; /* the given ones, with shorter answers */
    i64 part, most;                    /* `most` / `part`: the longest answer */
};

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct shorter_decoding *s = context;
    const struct model *given = s->given->options->model;
    struct decoding_work w = *s->given;
    struct step_memory memory = {0};
    struct model model;
    w.requests = s->requests;
    int status = model_open(&model, meta, &given->config, given->weights.dtype, false, NULL);
    if (status == 0)
        decoding_estimate(&memory, &w, &model);
    model_close(&model);
    step_memory_estimate(out, &memory);
    out->data_bytes = 0;
    return status;
}

/* Answers 1/2, 1/4, ... as long. */
static bool shorten(struct buffer *name, struct dry_run *d)
{
    struct shorter_decoding *s = d->context;
    s->part *= 2;
    for (i64 i = 0; i < s->given->count; i++)
        s->requests[i].most = max_i64(1, s->given->requests[i].most / s->part);
    buffer_printf(name, "answers of at most %lld", (long long)(s->most / s->part));
    return s->part <= s->most && !s->given->fixed_length;
}

int decoding_check_memory(struct decoding_work *w)
{
    struct shorter_decoding s = {w, memory_alloc(max_i64(1, w->count) * (i64)sizeof *s.requests), 1, 0};
    const struct dry_run check = {"decoding",
                                  run,
                                  &s,
                                  "take weights of 8 or 4 bits (--weights), a shorter prompt or a smaller model",
                                  .smaller = shorten,
                                  .slots = &w->slots,
                                  .slots_name = "requests"};
    for (i64 i = 0; i < w->count; i++) {
        s.requests[i] = w->requests[i];
        s.most = max_i64(s.most, w->requests[i].most);
    }
    /* The decoder's caller reports prompts that the grammar rejects. */
    int status = w->count && columns_of(w) >= 0 ? dry_run_check(&check, w->options->model->device) : 0;
    memory_free(s.requests);
    return status;
}
