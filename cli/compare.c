/* weft compare MODEL --to DIR: this model against a folder of reference tensors, as tests/golden/moe holds them. */
#include "cli/cli.h"
#include "core/json.h"
#include "model/decode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct comparison {
    struct model model;
    struct safetensors expected, grads;
    bool has_grads, json;
    int failures;
};

static float *values_of(const struct safetensors *set, const char *name, i64 *count)
{
    const struct tensor_view *view = safetensors_find(set, name);
    if (!view)
        return NULL;
    *count = tensor_view_elements(view);
    float *out = memory_alloc(*count * 4);
    if (tensor_view_to_f32(out, view) == 0)
        return out;
    memory_free(out);
    return NULL;
}

static void report(struct comparison *c, const char *name, double difference, double tolerance, const char *unit)
{
    bool good = difference <= tolerance;
    c->failures += !good;
    if (c->json) {
        struct text line = {0};
        struct json *j = json_object();
        json_set(j, "name", json_of_string(name));
        json_set(j, "difference", json_of_number(difference));
        json_set(j, "tolerance", json_of_number(tolerance));
        json_set(j, "unit", json_of_string(unit));
        json_set(j, "ok", json_of_bool(good));
        json_print(&line, j, 0);
        printf("%s\n", line.data);
        text_release(&line);
        json_free(j);
    } else {
        printf("%-64s %.3e of %s, at most %.0e  %s\n", name, difference, unit, tolerance, good ? "ok" : "DIFFERS");
    }
}

static double relative_to_largest(const float *got, const float *want, i64 n)
{
    double most = 0, off = 0;
    for (i64 i = 0; i < n; i++) {
        most = fmax(most, fabs(want[i]));
        off = isnan(got[i]) ? INFINITY : fmax(off, fabs((double)got[i] - want[i]));
    }
    return most > 0 ? off / most : off;
}

static double squares(const float *x, i64 n)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* floor: a gradient that is zero up to rounding (a top-1 router's) is measured against all gradients together. */
static double relative_to_norm(const float *got, const float *want, i64 n, double floor)
{
    double off = 0;
    for (i64 i = 0; i < n; i++)
        off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    return isnan(off) ? INFINITY : sqrt(off) / fmax(sqrt(squares(want, n)), floor);
}

static double norm_of_all(const struct safetensors *set)
{
    double sum = 0;
    for (i64 i = 0; i < set->count; i++) {
        i64 n;
        float *x = values_of(set, set->tensors[i].name, &n);
        sum += x ? squares(x, n) : 0;
        memory_free(x);
    }
    return sqrt(sum);
}

static int compare_forward(struct comparison *c, struct tape *tape, struct arena *arena)
{
    const struct tensor_view *ids = safetensors_find(&c->expected, "input_ids");
    struct batch batch;
    struct submodel sub;
    struct forward out;
    i64 n;
    if (!ids || ids->rank != 2 || ids->dtype != DTYPE_I32)
        return error_set("expected.safetensors: input_ids must be I32 [B,T]");
    float *logits = values_of(&c->expected, "logits", &n), *loss = values_of(&c->expected, "loss", &n);
    i32 *copied = arena_alloc(arena, ids->bytes);
    memcpy(copied, ids->data, (size_t)ids->bytes);
    batch_of_ids(&batch, arena, copied, ids->shape[0], ids->shape[1], true);
    submodel_full(&sub, &c->model.config);
    model_forward(&out, tape, &c->model, &batch, &sub, NULL);
    double sum = 0, count = (double)(batch.n - batch.rows);
    for (i64 i = 0; i < batch.n; i++) {
        sum += batch.targets[TARGET_TEXT].weight[i] * out.loss[TARGET_TEXT][0].value[i];
        out.coefficient[TARGET_TEXT][0][i] = (float)(batch.targets[TARGET_TEXT].weight[i] / count);
    }
    if (logits)
        report(c, "logits",
               relative_to_largest(out.logits[TARGET_TEXT][0]->data, logits, batch.n * c->model.config.vocabulary),
               2e-5, "the largest");
    if (loss)
        report(c, "loss", fabs(sum / count - loss[0]) / loss[0], 1e-5, "its value");
    tape_backward(tape);
    memory_free(logits);
    memory_free(loss);
    return 0;
}

/* Gradients leave through the table, so that they carry their names on disk. */
static void compare_gradients(struct comparison *c)
{
    struct weight_list list;
    double floor = 1e-5 * norm_of_all(&c->grads);
    weights_settle_gradients(&c->model.weights);
    for (i64 i = 0; i < c->model.weights.count; i++) {
        struct weight *w = &c->model.weights.list[i];
        if (w->value.needs_grad)
            memcpy(w->master, w->value.grad, (size_t)(w->parts * w->rows * w->columns) * 4);
    }
    weights_list(&list, &c->model.weights, FILE_HF, DTYPE_F32);
    for (i64 i = 0; i < list.count; i++) {
        i64 n;
        char name[256];
        float *want = values_of(&c->grads, list.tensors[i].name, &n);
        if (!want)
            continue;
        snprintf(name, sizeof name, "gradient %s", list.tensors[i].name);
        report(c, name, relative_to_norm(list.tensors[i].data, want, n, floor), 1e-4, "the norm");
        memory_free(want);
    }
    weight_list_release(&list);
}

static void compare_greedy(struct comparison *c)
{
    const struct tensor_view *prompt = safetensors_find(&c->expected, "prompt");
    const struct tensor_view *generated = safetensors_find(&c->expected, "generated");
    struct submodel sub;
    i64 wrong = 0;
    if (!prompt || !generated)
        return;
    i64 length = tensor_view_elements(prompt), count = tensor_view_elements(generated);
    i32 *from = memory_alloc(length * 4), *want = memory_alloc(count * 4), *got = memory_alloc(count * 4);
    memcpy(from, prompt->data, (size_t)length * 4);
    memcpy(want, generated->data, (size_t)count * 4);
    submodel_full(&sub, &c->model.config);
    decode_greedy(got, NULL, &c->model, &sub, from, length, count, -1);
    for (i64 i = 0; i < count; i++)
        wrong += got[i] != want[i];
    report(c, "greedy tokens that differ", (double)wrong, 0, "0");
    memory_free(from);
    memory_free(want);
    memory_free(got);
}

static int open_reference(struct comparison *c, const char *folder)
{
    char *expected = path_join(folder, "expected.safetensors"), *grads = path_join(folder, "grads.safetensors");
    int status = safetensors_open(&c->expected, expected);
    if (status == 0 && file_exists(grads)) {
        status = safetensors_open(&c->grads, grads);
        c->has_grads = status == 0;
    }
    memory_free(expected);
    memory_free(grads);
    return status;
}

static int run_comparison(struct comparison *c, const char *model, const char *folder)
{
    struct tape tape;
    struct arena arena;
    if (open_reference(c, folder) || model_load(&c->model, cli_device(), model, DTYPE_F32, true))
        return -1;
    compare_greedy(c);
    arena_open(&arena, (i64)1 << 30, false);
    tape_open(&tape, cli_device(), DTYPE_F32, (i64)16 << 30);
    tape_clear(&tape, true);
    weights_begin_step(&c->model.weights);
    int status = compare_forward(c, &tape, &arena);
    if (status == 0 && c->has_grads)
        compare_gradients(c);
    tape_close(&tape);
    arena_close(&arena);
    model_close(&c->model);
    return status;
}

int command_compare(int argc, char **argv)
{
    static struct comparison c;
    struct arguments a;
    const char *to = NULL;
    const struct option options[] = {{"to", "DIR", &to, NULL, "folder with expected.safetensors and grads.safetensors"},
                                     {"json", NULL, NULL, &c.json, "one JSON object a line"},
                                     {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status == 0 && !to)
        status = error_usage("weft compare: --to DIR is missing");
    if (status)
        return status < 0 ? command_failed() : 0;
    if (run_comparison(&c, a.positional[0], to))
        return command_failed();
    safetensors_close(&c.expected);
    if (c.has_grads)
        safetensors_close(&c.grads);
    if (c.failures)
        fprintf(stderr, "weft: %d comparisons differ beyond tolerance\n", c.failures);
    return c.failures ? 1 : 0;
}
