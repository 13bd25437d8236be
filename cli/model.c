/* weft logits MODEL --ids FILE -o FILE: logits and loss of given ids. */
#include "cli/cli.h"
#include "core/json.h"
#include "core/settings.h"
#include "kernels/device/dry_run.h"
#include "submodels/submodels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Logits ---- */

struct logits_job {
    const struct safetensors *set;
    const char *in, *out; /* out NULL: no file */
    const struct submodel_options *options;
    i64 shape[2]; /* [B,T] of the ids to read; 0: all */
};

static void read_device(const struct tensor_source *source, void *out, i64 at, i64 bytes)
{
    device_get(source->context, out, (const char *)source->data + at, bytes);
}

static int save_logits(const char *out, struct model *model, const struct forward *forward, float loss,
                       const i64 shape[2])
{
    const struct tensor_source tensors[2] = {
        {.name = "logits",
         .dtype = DTYPE_F32,
         .rank = 3,
         .shape = {shape[0], shape[1], model->config.vocabulary},
         .data = forward->logits[TARGET_TEXT][0]->data,
         .read = read_device,
         .context = model->device},
        {.name = "loss", .dtype = DTYPE_F32, .rank = 1, .shape = {1}, .data = &loss}};
    return safetensors_save(out, tensors, 2, NULL);
}

static int make_logits(const char *out, struct model *model, const struct submodel *sub, const i32 *ids,
                       const i64 shape[2])
{
    struct arena arena;
    struct tape tape;
    struct batch batch;
    struct forward forward;
    arena_open(&arena, (i64)1 << 32);
    tape_open(&tape, model->device, model->weights.dtype, (i64)32 << 30);
    tape_clear(&tape, false);
    batch_of_ids(&batch, &arena, ids, shape[0], shape[1], true);
    model_forward(&forward, &tape, model, &batch, sub, NULL);
    float loss = (float)forward_mean_loss(&forward, &tape, TARGET_TEXT);
    int status = out ? save_logits(out, model, &forward, loss, shape) : 0;
    tape_close(&tape);
    arena_close(&arena);
    return status;
}

static int run_job(struct model *model, struct logits_job *job)
{
    struct submodel sub;
    struct arena arena;
    i64 shape[2];
    arena_open(&arena, 64 << 20);
    i32 *ids = read_ids(shape, job->set, "input_ids", model->config.vocabulary, job->in);
    int status = ids ? submodel_parse(&sub, &arena, job->options, model) : -1;
    if (ids && !job->shape[0])
        memcpy(job->shape, shape, sizeof shape);
    if (status == 0)
        status = make_logits(job->out, model, &sub, ids, job->shape);
    memory_free(ids);
    arena_close(&arena);
    return status;
}

/* ---- Memory estimate ---- */

struct logits_work {
    struct model_source weights;
    struct logits_job job; /* without a file to write */
    i64 given[2];          /* [B,T] of all ids */
};

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    struct logits_work *w = context;
    struct model model;
    (void)out;
    if (model_load_source(&model, meta, &w->weights))
        return -1;
    int status = run_job(&model, &w->job);
    model_close(&model);
    if (!w->given[0])
        memcpy(w->given, w->job.shape, sizeof w->given);
    return status;
}

/* Halves the rows, then the length; then takes fewer bits a weight. */
static bool smaller(struct buffer *name, struct dry_run *d)
{
    struct logits_work *w = d->context;
    i64 *shape = w->job.shape;
    if (shape[0] == 1 && shape[1] == 1) {
        memcpy(shape, w->given, sizeof w->given);
        return model_source_smaller(name, &w->weights);
    }
    shape[shape[0] == 1] /= 2;
    buffer_printf(name, "ids of [%lld,%lld]", (long long)shape[0], (long long)shape[1]);
    model_source_name(name, &w->weights);
    return true;
}

static int run_logits(const struct model_source *weights, struct logits_job *job)
{
    struct model model;
    struct logits_work w = {.weights = *weights, .job = *job};
    w.job.out = NULL;
    const struct dry_run check = {weights->directory, run, &w, .smaller = smaller, .otherwise = SMALLER_MODEL};
    if (dry_run_check(&check, cli_device()) || model_load_source(&model, cli_device(), weights))
        return -1;
    int status = run_job(&model, job);
    model_close(&model);
    return status;
}

/* ---- The command ---- */

struct logits_command {
    char *from;
    int dtype, weights;
    struct submodel_options sub;
    const char *ids, *out;
};
static const struct setting logits_table[] = {
    SETTING(struct logits_command, from, "from", REFERENCE, NULL, 0, 0, NULL, "model"),
    SETTING(struct logits_command, dtype, "dtype", CHOICE, "f32", 0, 0, "f32|bf16", "compute precision"),
    SETTING(struct logits_command, weights, "weights", CHOICE, "stored", 0, 0, WEIGHTS_CHOICES, WEIGHTS_HELP),
    SUBMODEL_ROWS(struct logits_command, sub),
    {0}};

static int run_command(void *context, const char *argument)
{
    const struct logits_command *w = context;
    struct model_source model = {.directory = w->from, .dtype = w->dtype ? DTYPE_BF16 : DTYPE_F32};
    struct safetensors set;
    (void)argument;
    model_source_take(&model, w->weights);
    if (!w->ids || !w->out)
        return error_usage("weft logits: --ids FILE and -o FILE are needed");
    if (w->dtype && !cli_device()->has_bf16)
        log_warn("this machine has no fast bf16 products");
    if (safetensors_open(&set, w->ids))
        return -1;
    int status = run_logits(&model, &(struct logits_job){.set = &set, .in = w->ids, .out = w->out, .options = &w->sub});
    safetensors_close(&set);
    return status;
}

int command_logits(int argc, char **argv)
{
    struct logits_command w = {0};
    const struct option own[] = {{"ids", "FILE", &w.ids, NULL, "safetensors file with input_ids [B,T]"},
                                 {"o", "FILE", &w.out, NULL, "output safetensors: logits f32 [B,T,V], loss"},
                                 DEVICE_OPTION,
                                 {NULL}};
    const struct settings_command c = {logits_table, own, &w, &w.sub, NULL, run_command, &w, .own_first = true};
    return settings_command_run(argc, argv, &c);
}
