/* weft compare MODEL --to DIR: compares a model with a folder of reference tensors such as
 * tests/golden/moe. */
#include "cli/cli.h"
#include "core/json.h"
#include "model/family.h"
#include "model/generate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct comparison {
    struct model model;
    struct safetensors expected, grads;
    char *expected_path, *grads_path;
    bool has_grads, json;
    int made, failures;
};

static bool same_shape(const struct tensor_view *view, const struct tensor_source *like)
{
    bool same = view->rank == like->rank;
    for (int d = 0; same && d < like->rank; d++)
        same = view->shape[d] == like->shape[d];
    return same;
}

static void print_shape(struct buffer *out, const i64 *shape, int rank)
{
    for (int d = 0; d < rank; d++)
        buffer_printf(out, "%s%lld", d ? "," : "", (long long)shape[d]);
}

static int misshapen(const struct tensor_view *view, const struct tensor_source *like, const char *path)
{
    struct buffer is = {0}, wanted = {0};
    print_shape(&is, view->shape, view->rank);
    print_shape(&wanted, like->shape, like->rank);
    error_set("%s: %s is %s [%s], expected floating point numbers [%s]", path, view->name, dtype_name(view->dtype),
              is.data ? is.data : "", wanted.data);
    buffer_release(&is);
    buffer_release(&wanted);
    return -1;
}

/* Finds the reference tensor with the name and shape of `like`. *out stays NULL if there is none. */
static int view_like(const struct tensor_view **out, const struct safetensors *set, const struct tensor_source *like,
                     const char *path)
{
    const struct tensor_view *view = *out = safetensors_find(set, like->name);
    if (view && (!same_shape(view, like) || view->dtype == DTYPE_I32 || view->dtype == DTYPE_I64))
        return misshapen(view, like, path);
    return 0;
}

/* The same, converted to f32. */
static int values_like(float **out, const struct safetensors *set, const struct tensor_source *like, const char *path)
{
    const struct tensor_view *view;
    *out = NULL;
    if (view_like(&view, set, like, path))
        return -1;
    if (!view)
        return 0;
    *out = memory_alloc(tensor_view_elements(view) * 4);
    if (tensor_view_to_f32(*out, view) == 0)
        return 0;
    memory_free(*out);
    *out = NULL;
    return misshapen(view, like, path);
}

static void report(struct comparison *c, const char *name, double difference, double tolerance, const char *unit)
{
    bool good = difference <= tolerance;
    c->made++;
    c->failures += !good;
    if (c->json) {
        struct json *j = json_object();
        json_set(j, "name", json_of_string(name));
        json_set(j, "difference", json_of_number(difference));
        json_set(j, "tolerance", json_of_number(tolerance));
        json_set(j, "unit", json_of_string(unit));
        json_set(j, "ok", json_of_bool(good));
        output_json(j);
        json_free(j);
    } else {
        char *shown = text_escaped(name);
        printf("%-64s %.3e of %s, at most %.0e  %s\n", shown, difference, unit, tolerance, good ? "ok" : "DIFFERS");
        memory_free(shown);
    }
}

/* Maximum absolute difference relative to the largest reference value; infinite for NaN. Compares n values
 * in device memory, a piece at a time. False if the reference cannot be read. */
static bool relative_to_largest(double *out, const float *got, const struct tensor_view *want, i64 n)
{
    enum { PIECE = 1 << 16 };
    double most = 0, off = 0;
    float *a = memory_alloc(PIECE * 4), *b = memory_alloc(PIECE * 4);
    bool readable = true;
    for (i64 first = 0; first < n && readable; first += PIECE) {
        i64 count = min_i64(PIECE, n - first);
        struct tensor_view part = tensor_view_part(want, first, count);
        device_get(cli_device(), a, got + first, count * 4);
        readable = tensor_view_to_f32(b, &part) == 0;
        file_pass(part.data, part.bytes);
        for (i64 i = 0; i < count && readable; i++) {
            double difference = fabs((double)a[i] - b[i]);
            most = fmax(most, fabs(b[i]));
            off = isnan(difference) ? INFINITY : fmax(off, difference);
        }
    }
    *out = most > 0 ? off / most : off;
    memory_free(a);
    memory_free(b);
    return readable;
}

static double squares(const float *x, i64 n)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* L2 norm of the difference relative to the reference. floor: lower bound of the denominator, for
 * gradients that are zero up to rounding (those of a top-1 router), which are compared with the
 * norm of all gradients. */
static double relative_to_norm(const float *got, const float *want, i64 n, double floor)
{
    double off = 0;
    for (i64 i = 0; i < n; i++)
        off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    if (off == 0)
        return 0;
    return isnan(off) ? INFINITY : sqrt(off) / fmax(sqrt(squares(want, n)), floor);
}

static double norm_of_all(const struct safetensors *set)
{
    double sum = 0;
    for (i64 i = 0; i < set->count; i++) {
        float *x = memory_alloc(tensor_view_elements(&set->tensors[i]) * 4);
        if (tensor_view_to_f32(x, &set->tensors[i]) == 0)
            sum += squares(x, tensor_view_elements(&set->tensors[i]));
        memory_free(x);
    }
    return sqrt(sum);
}

/* got: device memory */
static int report_forward(struct comparison *c, const float *got, double mean, const i64 shape[2])
{
    const struct tensor_source like_logits = {
        .name = "logits", .rank = 3, .shape = {shape[0], shape[1], c->model.config.vocabulary}};
    const struct tensor_source like_loss = {.name = "loss", .rank = 1, .shape = {1}};
    const struct tensor_view *logits;
    float *loss = NULL;
    double off = 0;
    int status = view_like(&logits, &c->expected, &like_logits, c->expected_path);
    if (status == 0)
        status = values_like(&loss, &c->expected, &like_loss, c->expected_path);
    if (status == 0 && logits && !relative_to_largest(&off, got, logits, tensor_view_elements(logits)))
        status = misshapen(logits, &like_logits, c->expected_path);
    if (status == 0 && logits)
        report(c, "logits", off, 2e-5, "the largest");
    if (status == 0 && loss)
        report(c, "loss", fabs(mean - loss[0]) / fabs(loss[0]), 1e-5, "its value");
    memory_free(loss);
    return status;
}

static int compare_forward(struct comparison *c, struct tape *tape, struct arena *arena)
{
    struct batch batch;
    struct submodel sub;
    struct forward out;
    i64 shape[2];
    i32 *ids = read_ids(shape, &c->expected, "input_ids", c->model.config.vocabulary, c->expected_path);
    if (!ids)
        return -1;
    if (shape[1] < 2) {
        memory_free(ids);
        return error_set("%s: input_ids has rows of one id; a loss needs two", c->expected_path);
    }
    batch_of_ids(&batch, arena, ids, shape[0], shape[1], true);
    submodel_full(&sub, &c->model.config);
    model_forward(&out, tape, &c->model, &batch, &sub, NULL);
    struct device *device = c->model.device;
    int status = report_forward(c, out.logits[TARGET_TEXT][0]->data, forward_mean_loss(&out, tape, TARGET_TEXT), shape);
    if (c->has_grads) {
        device->ops->coefficients(device, out.coefficient[TARGET_TEXT][0], out.weight[TARGET_TEXT], batch.n,
                                  1 / (double)(batch.n - batch.rows));
        tape_backward(tape);
    }
    memory_free(ids);
    return status;
}

/* Copies gradients over the master weights, so that the weight
 * list gives them their names on disk. */
static void list_gradients(struct weight_list *list, struct weights *weights)
{
    weights_settle_gradients(weights);
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        i64 rows = w->matrices * w->rows;
        if (w->value.needs_grad)
            weights->device->ops->copy(weights->device, matrix_of(w->master, DTYPE_F32, rows, w->columns),
                                       matrix_of(w->value.grad, DTYPE_F32, rows, w->columns), 1, false);
    }
    weights_list(list, weights, FILE_HF, DTYPE_F32, NULL);
}

/* The router's bias has an update rule of its own and no gradient. */
static bool has_gradient(const struct comparison *c, const char *name)
{
    const char *bias = model_family(&c->model.config)->weights[ROLE_BIAS].disk;
    return !bias || !strstr(name, bias);
}

static const struct tensor_source *find_source(const struct weight_list *list, const char *name)
{
    for (i64 i = 0; i < list->count; i++)
        if (strcmp(list->tensors[i].name, name) == 0)
            return &list->tensors[i];
    return NULL;
}

static int check_names(const struct comparison *c, const struct weight_list *list)
{
    for (i64 i = 0; i < c->grads.count; i++)
        if (!find_source(list, c->grads.tensors[i].name))
            return error_set("%s: %s is no weight of the model", c->grads_path, c->grads.tensors[i].name);
    for (i64 i = 0; i < list->count; i++)
        if (has_gradient(c, list->tensors[i].name) && !safetensors_find(&c->grads, list->tensors[i].name))
            return error_set("%s: no gradient of %s: expected one of every weight", c->grads_path,
                             list->tensors[i].name);
    return 0;
}

static int compare_gradient(struct comparison *c, const struct tensor_source *got, double floor)
{
    float *want;
    char name[256];
    if (values_like(&want, &c->grads, got, c->grads_path))
        return -1;
    float *values = tensor_source_copy(got);
    snprintf(name, sizeof name, "gradient %s", got->name);
    report(c, name, relative_to_norm(values, want, tensor_source_bytes(got) / 4, floor), 1e-4, "the norm");
    memory_free(values);
    memory_free(want);
    return 0;
}

static int compare_gradients(struct comparison *c)
{
    struct weight_list list;
    double floor = 1e-3 * norm_of_all(&c->grads);
    list_gradients(&list, &c->model.weights);
    int status = check_names(c, &list);
    for (i64 i = 0; status == 0 && i < list.count; i++)
        if (has_gradient(c, list.tensors[i].name))
            status = compare_gradient(c, &list.tensors[i], floor);
    weight_list_release(&list);
    return status;
}

static void report_greedy(struct comparison *c, const i32 *prompt, i64 length, const i32 *want, i64 count)
{
    struct submodel sub;
    i64 wrong = 0;
    i32 *got = memory_alloc(count * 4);
    submodel_full(&sub, &c->model.config);
    decode_greedy(got, &c->model, &sub, prompt, length, count);
    for (i64 i = 0; i < count; i++)
        wrong += got[i] != want[i];
    report(c, "greedy tokens that differ", (double)wrong, 0, "0");
    memory_free(got);
}

static int compare_greedy(struct comparison *c)
{
    i64 asked[2], told[2], vocabulary = c->model.config.vocabulary;
    if (!safetensors_find(&c->expected, "prompt") && !safetensors_find(&c->expected, "generated"))
        return 0;
    i32 *prompt = read_ids(asked, &c->expected, "prompt", vocabulary, c->expected_path);
    i32 *generated = prompt ? read_ids(told, &c->expected, "generated", vocabulary, c->expected_path) : NULL;
    int status = prompt && generated ? 0 : -1;
    if (status == 0 && (asked[0] != 1 || told[0] != 1))
        status = error_set("%s: prompt and generated have %lld and %lld %s, expected one", c->expected_path,
                           (long long)asked[0], (long long)told[0], plural(told[0], "row", "rows"));
    if (status == 0)
        report_greedy(c, prompt, asked[1], generated, told[1]);
    memory_free(prompt);
    memory_free(generated);
    return status;
}

static int open_reference(struct comparison *c, const char *folder)
{
    c->expected_path = path_join(folder, "expected.safetensors");
    c->grads_path = path_join(folder, "grads.safetensors");
    if (safetensors_open(&c->expected, c->expected_path))
        return -1;
    c->has_grads = file_exists(c->grads_path);
    return c->has_grads ? safetensors_open(&c->grads, c->grads_path) : 0;
}

static int compare_training(struct comparison *c)
{
    struct tape tape;
    struct arena arena;
    arena_open(&arena, (i64)1 << 30);
    tape_open(&tape, cli_device(), DTYPE_F32, (i64)16 << 30);
    tape_clear(&tape, c->has_grads);
    if (c->has_grads)
        weights_begin_step(&c->model.weights);
    int status = compare_forward(c, &tape, &arena);
    if (status == 0 && c->has_grads)
        status = compare_gradients(c);
    tape_close(&tape);
    arena_close(&arena);
    return status;
}

static int run_comparison(struct comparison *c, const char *model, const char *folder)
{
    if (open_reference(c, folder) || model_load(&c->model, cli_device(), model, DTYPE_F32, c->has_grads))
        return -1;
    int status = compare_greedy(c);
    if (status == 0)
        status = compare_training(c);
    if (status == 0 && c->made == 0)
        status =
            error_set("%s: nothing to compare in it: expected logits, loss, or prompt and generated", c->expected_path);
    model_close(&c->model);
    return status;
}

int command_compare(int argc, char **argv)
{
    static struct comparison c;
    struct arguments a;
    const char *to = NULL;
    const struct option options[] = {{"to", "DIR", &to, NULL, "folder of expected.safetensors [and grads.safetensors]"},
                                     {"json", NULL, NULL, &c.json, "print one JSON object per line"},
                                     DEVICE_OPTION,
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
    memory_free(c.expected_path);
    memory_free(c.grads_path);
    if (c.failures)
        fprintf(stderr, "weft: %d comparisons differ beyond tolerance\n", c.failures);
    return c.failures ? 1 : 0;
}
