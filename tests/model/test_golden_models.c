/* The backbone against transformers: logits, loss and weight gradients by name, for every folder of
 * tests/golden/moe. */
#include <math.h>
#include <string.h>

#include "tests/device.h"
#include "model/model.h"

static struct device device;

static float *values_of(const struct safetensors *set, const char *name, i64 *count)
{
    const struct tensor_view *view = safetensors_find(set, name);
    if (!view)
        fail_msg("no tensor %s", name);
    *count = tensor_view_elements(view);
    float *out = memory_alloc(*count * 4);
    assert_int_equal(tensor_view_to_f32(out, view), 0);
    return out;
}

static void open_file(struct safetensors *set, const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    if (safetensors_open(set, path))
        fail_msg("%s", error_text());
    memory_free(path);
}

static double largest(const float *x, i64 n)
{
    double most = 0;
    for (i64 i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

static double largest_difference(const float *x, const float *y, i64 n)
{
    double most = 0;
    for (i64 i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i] - y[i]));
    return most;
}

static void check_gradients(struct model *model, const char *folder)
{
    struct safetensors grads;
    struct weight_list list;
    open_file(&grads, folder, "grads.safetensors");
    weights_settle_gradients(&model->weights);
    for (i64 i = 0; i < model->weights.count; i++) {
        struct weight *w = &model->weights.list[i];
        float *gradient = to_host(&device, w->value.grad, w->value.needs_grad ? w->share_rows * w->columns * 4 : 0);
        if (w->value.needs_grad)
            weight_put(&model->weights, w, 0, w->share_rows, gradient);
        memory_free(gradient);
    }
    weights_list(&list, &model->weights, FILE_HF, DTYPE_F32, NULL);
    i64 compared = 0;
    for (i64 i = 0; i < list.count; i++) {
        i64 n;
        if (!safetensors_find(&grads, list.tensors[i].name))
            continue;
        float *want = values_of(&grads, list.tensors[i].name, &n);
        double norm = 0, wrong = 0;
        float *got = to_host(&device, list.tensors[i].data, n * 4);
        for (i64 j = 0; j < n; j++) {
            norm += (double)want[j] * want[j];
            wrong += ((double)want[j] - got[j]) * ((double)want[j] - got[j]);
        }
        if (sqrt(wrong) > 1e-4 * sqrt(norm) + 1e-7)
            fail_msg("%s: %s differs by %g of norm %g", folder, list.tensors[i].name, sqrt(wrong), sqrt(norm));
        memory_free(got);
        memory_free(want);
        compared++;
    }
    assert_int_equal(compared, grads.count);
    weight_list_release(&list);
    safetensors_close(&grads);
}

/* Every position counts once for each expert it chose, recomputed or not. */
static void check_usage(const struct model *model, i64 positions)
{
    const struct model_config *c = &model->config;
    float *usage = to_host(&device, model->usage, c->layers * c->experts * 4);
    for (i64 layer = c->first_moe_layer; layer < c->layers; layer++) {
        double sum = 0;
        for (i64 e = 0; e < c->experts; e++)
            sum += usage[layer * c->experts + e];
        assert_true(sum == (double)(positions * c->topk));
    }
    memory_free(usage);
}

static void check_folder(const char *name, bool recompute)
{
    char *folder = path_join(GOLDEN "/moe", name);
    struct model model;
    struct safetensors expected;
    struct tape tape;
    struct arena arena;
    struct batch batch;
    struct submodel sub;
    struct forward out;
    i64 n;
    if (model_load(&model, &device, folder, DTYPE_F32, true))
        fail_msg("%s", error_text());
    open_file(&expected, folder, "expected.safetensors");
    const struct tensor_view *ids = safetensors_find(&expected, "input_ids");
    arena_open(&arena, 64 << 20);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, true);
    weights_begin_step(&model.weights);
    batch_of_ids(&batch, &arena, ids->data, ids->shape[0], ids->shape[1], true);
    submodel_full(&sub, &model.config);
    model_forward(&out, &tape, &model, &batch, &sub, &(struct forward_options){.recompute = recompute});
    float *logits = values_of(&expected, "logits", &n);
    float *own = to_host(&device, out.logits[TARGET_TEXT][0]->data, n * 4);
    double off = largest_difference(own, logits, n) / largest(logits, n);
    memory_free(own);
    if (off > 2e-5)
        fail_msg("%s: logits differ by %g of the largest", name, off);
    double loss = forward_mean_loss(&out, &tape, TARGET_TEXT);
    device.ops->coefficients(&device, out.coefficient[TARGET_TEXT][0], out.weight[TARGET_TEXT], batch.n,
                             1 / (double)(batch.n - batch.rows));
    float *want = values_of(&expected, "loss", &n);
    assert_true(fabs(loss - want[0]) < 1e-5 * want[0]);
    tape_backward(&tape);
    check_gradients(&model, folder);
    check_usage(&model, batch.n);
    memory_free(logits);
    memory_free(want);
    tape_close(&tape);
    arena_close(&arena);
    safetensors_close(&expected);
    model_close(&model);
    memory_free(folder);
}

static const char *const folders[] = {"untied-gqa4-dense0", "tied-shared2-bias", "sharded-bf16", "headdim-top1-fused"};

TEST(logits_and_gradients_equal_the_reference)
{
    for (i64 i = 0; i < COUNT_OF(folders); i++)
        check_folder(folders[i], false);
}

TEST(recomputed_layers_give_the_same)
{
    for (i64 i = 0; i < COUNT_OF(folders); i++)
        check_folder(folders[i], true);
}

int main(void)
{
    test_device_open(&device);
    return tests_run(NULL, NULL);
}
