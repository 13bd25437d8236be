/* Files with more or other tensors than config.json describes: what is used, what is harmless, what is
 * refused. The logits are those of transformers (tests/golden/moe) for the same weights. */
#include "tests/scratch.h"

#include <math.h>

#include "tests/device.h"
#include "dist/dist.h"
#include "model/model.h"
#include "tests/toy.h"

static struct device device;

/* The golden model with further tensors, or without one, in the scratch folder. */
struct variant {
    struct safetensors golden;
    const char *folder;
    struct tensor_source list[4096];
    i64 count;
};
static struct variant v;

static void begin_variant(const char *golden)
{
    char *path = string_format("%s/moe/%s", GOLDEN, golden);
    v.folder = path;
    v.count = 0;
    succeed(safetensors_open_model(&v.golden, path));
    for (i64 i = 0; i < v.golden.count; i++) {
        const struct tensor_view *t = &v.golden.tensors[i];
        struct tensor_source *to = &v.list[v.count++];
        *to = (struct tensor_source){.name = t->name, .dtype = t->dtype, .rank = t->rank, .data = t->data};
        memcpy(to->shape, t->shape, sizeof t->shape);
    }
}

static void add(const char *name, enum dtype dtype, i64 rows, i64 columns, const void *data)
{
    v.list[v.count++] =
        (struct tensor_source){.name = name, .dtype = dtype, .rank = 2, .shape = {rows, columns}, .data = data};
}

static void leave_out(const char *name)
{
    for (i64 i = 0; i < v.count; i++)
        if (strcmp(v.list[i].name, name) == 0) {
            v.list[i] = v.list[--v.count];
            return;
        }
    fail_msg("no tensor %s", name);
}

static int load_variant(struct model *model)
{
    char *from = path_join(v.folder, "config.json");
    succeed(file_copy(path_of("config.json"), from));
    succeed(safetensors_save(path_of("model.safetensors"), v.list, v.count, NULL));
    memory_free(from);
    return model_load(model, &device, directory, DTYPE_F32, false);
}

static void end_variant(void)
{
    safetensors_close(&v.golden);
    memory_free((char *)(uintptr_t)v.folder);
}

/* Logits of class c are those of transformers for class (c + turned) % V. */
static void assert_logits(struct model *model, i64 turned)
{
    struct safetensors expected;
    struct tape tape;
    struct arena arena;
    struct batch batch;
    struct submodel sub;
    struct forward out;
    char *path = path_join(v.folder, "expected.safetensors");
    succeed(safetensors_open(&expected, path));
    const struct tensor_view *ids = safetensors_find(&expected, "input_ids");
    const float *want = safetensors_find(&expected, "logits")->data;
    i64 n = ids->shape[0] * ids->shape[1], classes = model->config.vocabulary;
    arena_open(&arena, 64 << 20);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, false);
    batch_of_ids(&batch, &arena, ids->data, ids->shape[0], ids->shape[1], true);
    submodel_full(&sub, &model->config);
    model_forward(&out, &tape, model, &batch, &sub, NULL);
    float *own = to_host(&device, out.logits[TARGET_TEXT][0]->data, n * classes * 4);
    double most = 0, off = 0;
    for (i64 i = 0; i < n; i++)
        for (i64 c = 0; c < classes; c++) {
            double value = want[i * classes + (c + turned) % classes];
            most = fmax(most, fabs(value));
            off = fmax(off, fabs(value - own[i * classes + c]));
        }
    if (!(off <= 2e-5 * most))
        fail_msg("logits differ by %g of %g", off, most);
    memory_free(own);
    tape_close(&tape);
    arena_close(&arena);
    safetensors_close(&expected);
    memory_free(path);
}

/* Row r of the result is row (r + turned) % rows of the embeddings, as f32 or f64. memory_free */
static void *turned_embeddings(i64 turned, enum dtype dtype, i64 *rows, i64 *columns)
{
    const struct tensor_view *embed = safetensors_find(&v.golden, "model.embed_tokens.weight");
    const float *from = embed->data;
    i64 r = *rows = embed->shape[0], c = *columns = embed->shape[1];
    void *out = memory_alloc(r * c * 8);
    for (i64 i = 0; i < r * c; i++) {
        float value = from[(i / c + turned) % r * c + i % c];
        if (dtype == DTYPE_F64)
            ((double *)out)[i] = (double)value;
        else
            ((float *)out)[i] = value;
    }
    return out;
}

/* transformers 5 ties the head of a file only if it equals the embeddings (tie_weights: "both are
 * present in the checkpoints with different values, so we will NOT tie them"). */
TEST(a_head_beside_tied_embeddings_is_used_if_it_differs)
{
    static const struct {
        i64 turned;
        enum dtype dtype;
        bool tied;
    } cases[] = {{0, DTYPE_F32, true}, {0, DTYPE_F64, true}, {1, DTYPE_F32, false}, {5, DTYPE_F64, false}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct model model;
        struct model_config config;
        i64 rows, columns;
        begin_variant("tied-shared2-bias");
        void *head = turned_embeddings(cases[i].turned, cases[i].dtype, &rows, &columns);
        add("lm_head.weight", cases[i].dtype, rows, columns, head);
        succeed(load_variant(&model));
        succeed(model_config_load(&config, directory));
        assert_int_equal(config.tied, cases[i].tied);
        assert_int_equal(model.config.tied, cases[i].tied);
        assert_logits(&model, cases[i].turned);
        model_close(&model);
        memory_free(head);
        end_variant();
    }
}

/* Names of tensors that the configurations of the golden models have no place for. */
TEST(tensors_without_a_place_are_refused_by_name)
{
    static const struct {
        const char *golden, *name;
    } cases[] = {
        {"tied-shared2-bias", "model.layers.0.self_attn.q_proj.bias"},
        {"tied-shared2-bias", "model.layers.1.mlp.experts.0.gate_proj.bias"},
        {"tied-shared2-bias", "model.layers.1.mlp.shared_experts.down_proj.bias"},
        {"tied-shared2-bias", "model.layers.1.mlp.gate.bias"},
        {"tied-shared2-bias", "model.norm.bias"},
        {"tied-shared2-bias", "lm_head.bias"},
        {"tied-shared2-bias", "model.lm_head.weight"},
        {"tied-shared2-bias", "model.layers.0.self_attn.q_norm.weight"},
        {"tied-shared2-bias", "model.layers.0.self_attn.k_norm.weight"},
        {"tied-shared2-bias", "model.layers.2.input_layernorm.weight"},
        {"tied-shared2-bias", "model.layers.1.mlp.experts.8.gate_proj.weight"},
        {"untied-gqa4-dense0", "model.layers.0.mlp.experts.0.gate_proj.weight"}, /* layer 0 is dense */
        {"untied-gqa4-dense0", "model.layers.1.mlp.gate_proj.weight"},           /* layer 1 is not */
        {"tied-shared2-bias", "vision_model.blocks.0.attn.qkv.weight"},
        {"tied-shared2-bias", "model.resampler_model.mlp.weight"},
        {"tied-shared2-bias", "model.embed_tokens.weight_scale"},
        {"untied-gqa4-dense0", "model.layers.1.mlp.shared_experts.gate_proj.weight"},
        {"untied-gqa4-dense0", "model.layers.1.mlp.shared_experts.up_proj.weight"},
    };
    static const float zeros[64];
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct model model;
        begin_variant(cases[i].golden);
        add(cases[i].name, DTYPE_F32, 8, 8, zeros);
        if (load_variant(&model) == 0)
            fail_msg("%s was left out without a word", cases[i].name);
        assert_says(cases[i].name);
        assert_says("transformers would warn and leave it out");
        end_variant();
    }
}

TEST(two_tensors_of_the_same_weights_are_refused)
{
    static const char *const cases[][2] = {
        {"headdim-top1-fused", "model.layers.1.mlp.experts.0.gate_proj.weight"},
        {"headdim-top1-fused", "model.layers.1.mlp.experts.4.down_proj.weight"},
        {"headdim-top1-fused", "model.layers.1.mlp.moe_statics.e_score_correction_bias"},
        {"tied-shared2-bias", "model.layers.1.mlp.gate.moe_statics.e_score_correction_bias"},
    };
    static const float zeros[64];
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct model model;
        begin_variant(cases[i][0]);
        add(cases[i][1], DTYPE_F32, 1, 8, zeros);
        assert_int_equal(load_variant(&model), -1);
        assert_says("stands beside another tensor of the same weights");
        end_variant();
    }
}

TEST(what_logits_do_not_depend_on_is_left_out)
{
    static const char *const names[] = {"model.mtp_block.0.self_attn.q_proj.weight", "model.mtp_emb_norm.0.weight",
                                        "model.mtp_linear_proj.0.weight",
                                        "model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"};
    static const float zeros[64];
    struct model model;
    begin_variant("tied-shared2-bias");
    for (i64 i = 0; i < COUNT_OF(names); i++)
        add(names[i], DTYPE_F32, 8, 8, zeros);
    succeed(load_variant(&model));
    assert_logits(&model, 0);
    model_close(&model);
    end_variant();
}

TEST(missing_tensors_are_named)
{
    static const char *const names[] = {
        "model.layers.1.mlp.moe_statics.e_score_correction_bias", "model.layers.1.mlp.experts.7.up_proj.weight",
        "model.layers.1.mlp.shared_experts.up_proj.weight", "model.embed_tokens.weight"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct model model;
        begin_variant("tied-shared2-bias");
        leave_out(names[i]);
        assert_int_equal(load_variant(&model), -1);
        assert_says(names[i]);
        end_variant();
    }
}

/* ---- Training ---- */

static bool is_one_of(const char *name, const char *const *endings)
{
    const char *dot = strrchr(name, '.');
    for (; *endings; endings++)
        if (strcmp(dot ? dot + 1 : name, *endings) == 0)
            return true;
    return false;
}

/* Norms begin with ones. Router and norms do not decay, and the router's bias is no weight that is
 * trained. With zero_init each branch of the residual stream begins with nothing. */
TEST(weights_begin_and_decay_by_their_part)
{
    static const char *const branches[] = {"out", "down", "experts_down", "shared_down", NULL};
    for (int zeros = 0; zeros < 2; zeros++) {
        struct model model;
        struct model_config c = toy_config(2, TOY_ALL | TOY_DENSE);
        i64 kinds[4] = {0};
        c.zero_init = zeros;
        toy_open(&model, &device, &c, true);
        for (i64 i = 0; i < model.weights.count; i++) {
            const struct weight_spec *s = &model.weights.list[i].spec;
            const char *last = strrchr(s->name, '.') ? strrchr(s->name, '.') + 1 : s->name;
            bool norm = strstr(last, "norm") || strstr(s->name, ".norm."), router = strcmp(last, "router") == 0,
                 bias = strcmp(last, "bias") == 0,
                 branch = is_one_of(s->name, branches) && strncmp(s->name, "merger", 6) != 0;
            enum weight_init init = norm ? INIT_ONES : bias || (zeros && branch) ? INIT_ZEROS : INIT_NORMAL;
            if (s->init != init || s->decay != !(norm || router || bias) || s->trained != !bias ||
                (s->type == TYPE_F32) != (router || bias) || s->init_std != (float)c.init_std)
                fail_msg("%s: begins as %d, decays %d, is trained %d, has type %d", s->name, (int)s->init, s->decay,
                         s->trained, (int)s->type);
            kinds[norm ? 0 : router || bias ? 1 : branch ? 2 : 3]++;
        }
        assert_true(kinds[0] == 17 && kinds[1] == 2 && kinds[2] == 9 && kinds[3] > 10);
        model_close(&model);
    }
}

/* 5 layers, the first of them dense; 4 heads, 2 of keys, widths of 48 and 16, 8 experts. */
TEST(sizes_that_ranks_do_not_divide_are_refused)
{
    static const struct {
        struct layout layout;
        const char *says;
    } cases[] = {
        {{.tensor = 3, .expert = 1, .pipeline = 1, .chunks = 1}, "4 attention heads on tensor ranks (3)"},
        {{.tensor = 4, .expert = 1, .pipeline = 1, .chunks = 1}, "2 key-value heads on tensor ranks (4)"},
        {{.tensor = 1, .expert = 3, .pipeline = 1, .chunks = 1}, "8 experts on expert ranks (3)"},
        {{.tensor = 1, .expert = 1, .pipeline = 6, .chunks = 1}, "5 layers cannot be cut into 6 chunks"},
        {{.tensor = 1, .expert = 1, .pipeline = 2, .chunks = 3}, "5 layers cannot be cut into 6 chunks"},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct model model;
        struct model_config c = toy_config(5, TOY_DENSE);
        struct parallel ranks = *parallel_alone();
        ranks.layout = cases[i].layout;
        assert_int_equal(model_open(&model, &device, &c, DTYPE_F32, false, &ranks), -1);
        assert_says(cases[i].says);
    }
    static const struct {
        i64 dense_width, expert_width;
        const char *says;
    } widths[] = {{49, 16, "49 feed-forward columns on tensor ranks (2)"},
                  {48, 17, "17 columns of an expert on tensor ranks (2)"}};
    for (i64 i = 0; i < COUNT_OF(widths); i++) {
        struct model model;
        struct model_config c = toy_config(5, TOY_DENSE);
        struct parallel ranks = *parallel_alone();
        ranks.layout.tensor = 2;
        c.dense_width = widths[i].dense_width;
        c.expert_width = widths[i].expert_width;
        assert_int_equal(model_open(&model, &device, &c, DTYPE_F32, false, &ranks), -1);
        assert_says(widths[i].says);
    }
}

/* model.h: that of dense layers; without these, that of the experts of a token together. */
TEST(the_mtp_block_is_as_wide_as_a_layer)
{
    for (int dense = 0; dense < 2; dense++) {
        struct model model;
        struct model_config c = toy_config(2, TOY_MTP);
        c.topk = 3;
        c.dense_width = dense ? 40 : 0;
        toy_open(&model, &device, &c, false);
        assert_int_equal(model.config.mtp_width, dense ? 40 : 3 * 16);
        assert_int_equal(weights_find(&model.weights, "mtp.down")->columns, dense ? 40 : 3 * 16);
        model_close(&model);
    }
}

int main(void)
{
    test_device_open(&device);
    return tests_run(make_directory, remove_directory);
}
