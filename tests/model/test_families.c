/* The tables of model families against each other and against files: whatever a family names is written
 * and read back, and what it cannot have is refused. */
#include "core/gguf.h"
#include "model/family.h"
#include "tests/scratch.h"
#include "tests/toy.h"

#include <math.h>

static struct device device;

static const struct family_key *const *lists_of(const struct model_family *family)
{
    static const struct family_key *lists[4];
    lists[0] = family->keys;
    lists[1] = shared_keys;
    lists[2] = weft_keys;
    return lists;
}

static bool is_number(const struct family_key *row)
{
    return row->holds < MODEL_NUMBERS_END && row->absent != AS_ABOVE;
}

TEST(every_number_has_one_key)
{
    for (i64 f = 0; model_families[f]; f++) {
        i64 keys[MODEL_NUMBERS_END] = {0};
        for (i64 i = 0; lists_of(model_families[f])[i]; i++)
            for (const struct family_key *row = lists_of(model_families[f])[i]; row->holds; row++)
                if (is_number(row))
                    keys[row->holds]++;
        for (int n = NUMBER_vocabulary; n < MODEL_NUMBERS_END; n++)
            if (keys[n] != 1)
                fail_msg("%s: the number at byte %lld of its struct has %lld keys", model_families[f]->model_type,
                         (long long)model_numbers[n].member, (long long)keys[n]);
    }
}

/* Gives a number that the toy leaves 0 a value of its own, and a flag another than if its key is absent. */
static void set_number(struct model_config *c, const struct family_key *row)
{
    void *out = model_number(c, row->holds);
    const struct number_row *number = &model_numbers[row->holds];
    bool constant = !row->key;
    if (number->type == NUMBER_IS_BOOL)
        *(bool *)out = constant == (row->absent != 0);
    else if (number->type == NUMBER_IS_NUMBER && (constant || *(double *)out == row->absent))
        *(double *)out = constant ? row->absent : 0.125 + row->holds;
    else if (number->type != NUMBER_IS_NUMBER && (constant || *(i64 *)out == 0 || *(i64 *)out == row->absent))
        *(i64 *)out = constant ? (i64)row->absent : *(i64 *)out == 0 ? (i64)row->holds : *(i64 *)out + 1;
}

/* A valid configuration in which hardly a number is as if its key were absent. */
static struct model_config config_of(i64 family)
{
    struct model_config c = toy_config(5, TOY_ALL & ~TOY_TIED);
    c.family = family;
    c.head_width = 12;
    c.first_moe_layer = 2;
    c.shared_experts = 3;
    c.t_pairs = 2;
    for (i64 i = 0; lists_of(model_families[family])[i]; i++)
        for (const struct family_key *row = lists_of(model_families[family])[i]; row->holds; row++)
            if (is_number(row))
                set_number(&c, row);
    return c;
}

/* Saves a model of random weights in a folder, and returns its config.json. */
static struct json *save_model(i64 family, const char *folder)
{
    struct model model;
    struct model_config c = config_of(family);
    char *path = path_join(path_of(folder), "config.json");
    toy_open(&model, &device, &c, false);
    succeed(directory_make(path_of(folder)));
    succeed(model_save(&model, path_of(folder)));
    model_close(&model);
    struct json *j = json_load(path);
    memory_free(path);
    assert_non_null(j);
    return j;
}

TEST(every_number_comes_back)
{
    for (i64 f = 0; model_families[f]; f++) {
        struct model_config is, was = config_of(f);
        json_free(save_model(f, "model"));
        succeed(model_config_load(&is, path_of("model")));
        assert_int_equal(is.family, f);
        for (i64 i = 0; lists_of(model_families[f])[i]; i++)
            for (const struct family_key *row = lists_of(model_families[f])[i]; row->holds; row++) {
                if (!is_number(row))
                    continue;
                struct json *a = model_number_json(&was, row->holds), *b = model_number_json(&is, row->holds);
                double wrote = json_number(a, json_bool(a, false)), read = json_number(b, json_bool(b, false));
                if (wrote != read || (row->key && wrote == row->absent))
                    fail_msg("%s: %s: wrote %g, read %g, and %g if it is absent", model_families[f]->model_type,
                             row->key, wrote, read, row->absent);
                json_free(a);
                json_free(b);
            }
    }
}

/* Puts a value under a key, "a.b" for b in the object a, and loads the configuration. */
static int load_with(struct json *j, const char *key, struct json *value)
{
    struct model_config c;
    char above[64];
    const char *dot = strchr(key, '.');
    snprintf(above, sizeof above, "%.*s", dot ? (int)(dot - key) : 0, key);
    json_set(dot ? json_get(j, above) : j, dot ? dot + 1 : key, value);
    succeed(directory_make(path_of("changed")));
    char *path = path_join(path_of("changed"), "config.json");
    succeed(json_save(path, j));
    memory_free(path);
    return model_config_load(&c, path_of("changed"));
}

static void expect_refused(i64 family, const char *key, struct json *value, const char *why)
{
    struct json *j = save_model(family, "model");
    for (const struct family_key *row = model_families[family]->keys; row->holds; row++)
        if (row->holds == KEY_LAST_LAYER) /* not as the layers that the value may be */
            json_set(j, row->key, json_of_null());
    if (load_with(j, key, value) == 0)
        fail_msg("%s: another value of %s is taken", model_families[family]->model_type, key);
    assert_says("changed/config.json");
    assert_says(key);
    assert_says(why);
    json_free(j);
}

TEST(what_a_family_cannot_have_is_refused)
{
    for (i64 f = 0; model_families[f]; f++)
        for (i64 i = 0; lists_of(model_families[f])[i]; i++)
            for (const struct family_key *row = lists_of(model_families[f])[i]; row->holds; row++) {
                const struct model_config c = config_of(f);
                struct json *fits = row->why ? family_value(row, &c) : NULL;
                if (!row->why)
                    continue;
                expect_refused(f, row->key, json_of_string("other"), row->why);
                expect_refused(f, row->key,
                               json_kind(fits) == JSON_BOOL ? json_of_bool(!json_bool(fits, false))
                                                            : json_of_integer(json_integer(fits, 7) + 1),
                               row->why);
                json_free(fits);
                struct json *j = save_model(f, "model");
                succeed(load_with(j, row->key, json_of_null()));
                json_free(j);
            }
}

TEST(sizes_out_of_bounds_are_refused_by_their_keys)
{
    for (i64 f = 0; model_families[f]; f++)
        for (i64 i = 0; lists_of(model_families[f])[i]; i++)
            for (const struct family_key *row = lists_of(model_families[f])[i]; row->holds; row++) {
                const struct number_row *number = &model_numbers[row->holds < MODEL_NUMBERS_END ? row->holds : 0];
                if (!number->most || !row->key)
                    continue;
                char *range = string_format("expected %lld to %lld", (long long)number->least, (long long)number->most);
                expect_refused(f, row->key, json_of_integer(number->least - 1), range);
                expect_refused(f, row->key, json_of_integer(number->most + 1), range);
                memory_free(range);
            }
}

/* Sizes of tokenizers without a key in "weft" are not read from it. */
TEST(a_key_without_a_name_is_no_size)
{
    struct model_config was = config_of(0), is;
    struct json *j = save_model(0, "model");
    succeed(load_with(j, "weft.", json_of_integer(5)));
    succeed(model_config_load(&is, path_of("changed")));
    assert_memory_equal(&is.sizes, &was.sizes, sizeof is.sizes);
    json_free(j);
}

TEST(a_width_that_no_number_can_hold_is_refused)
{
    expect_refused(0, "head_dim", json_of_integer(INT64_MAX), "expected 1 to 65536");
    expect_refused(0, "head_dim", json_of_integer(INT64_MIN), "expected 1 to 65536");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void expect_unique(char **names, i64 count, const char *what)
{
    qsort(names, (size_t)count, sizeof *names, by_text);
    for (i64 i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            fail_msg("%s: two are called %s", what, names[i]);
    for (i64 i = 0; i < count; i++)
        memory_free(names[i]);
}

TEST(names_on_disk_are_unique)
{
    static const enum weight_file files[] = {FILE_HF, FILE_EXTRA};
    char *names[4096];
    for (i64 f = 0; model_families[f]; f++) {
        struct model model;
        struct model_config c = config_of(f);
        i64 count = 0;
        toy_open(&model, &device, &c, false);
        for (i64 i = 0; i < COUNT_OF(files); i++) {
            struct weight_list list;
            weights_list(&list, &model.weights, files[i], DTYPE_F32, NULL);
            for (i64 t = 0; t < list.count; t++)
                names[count++] = string_copy(list.tensors[t].name);
            weight_list_release(&list);
        }
        for (i64 i = 0; i < model.weights.count; i++)
            if (model.weights.list[i].spec.fused)
                names[count++] = string_copy(model.weights.list[i].spec.fused);
        expect_unique(names, count, "safetensors");
        model_close(&model);
    }
}

/* The tensors of a GGUF hold the same numbers as those of model.safetensors. */
TEST(a_gguf_has_all_weights)
{
    char *names[4096];
    for (i64 f = 0; model_families[f]; f++) {
        struct model model;
        struct gguf_file file;
        struct model_config c = config_of(f);
        if (!model_families[f]->gguf)
            continue;
        c.norm_min = 1e-12; /* what readers of GGUF do */
        toy_open(&model, &device, &c, false);
        i64 parameters = 0, tensors = 0;
        for (i64 i = 0; i < model.weights.count; i++) {
            const struct weight *w = &model.weights.list[i];
            for (i64 p = 0; w->spec.file == FILE_HF && p < 4 && w->spec.pieces[p].name; p++, tensors++)
                parameters += w->matrices * w->spec.pieces[p].rows * w->columns;
        }
        succeed(model_save_gguf(&model, NULL, path_of("model.gguf"), DTYPE_F32));
        succeed(gguf_open(&file, path_of("model.gguf")));
        assert_int_equal(file.tensor_count, tensors);
        assert_int_equal(file.parameters, parameters);
        assert_int_equal(json_count(file.keys), file.key_count);
        for (i64 t = 0; t < file.tensor_count; t++)
            names[t] = string_format("%.*s", (int)file.tensors[t].name_length, file.tensors[t].name);
        expect_unique(names, file.tensor_count, "GGUF");
        gguf_close(&file);
        model_close(&model);
    }
}

enum { IDS = 24, OLD = 1 << 18 };

/* Output of the last layer, [IDS, 32], of all experts or of a choice of them. */
static void run_layers(float *out, struct model *model, bool chosen)
{
    static const i32 some[] = {1, 3, 4, 6};
    struct arena arena;
    struct tape tape;
    struct batch batch;
    struct submodel sub;
    struct forward forward;
    i32 ids[IDS];
    for (i32 i = 0; i < IDS; i++)
        ids[i] = (7 * i + 3) % TOY_VOCABULARY;
    arena_open(&arena, 16 << 20);
    tape_open(&tape, &device, DTYPE_F32, 64 << 20);
    tape_clear(&tape, false);
    float *old = memory_alloc(OLD * 4); /* what the memory held before */
    for (i64 i = 0; i < OLD; i++)
        old[i] = (float)(i % 11);
    device_put(&device, tape_alloc(&tape, OLD * 4), old, OLD * 4);
    memory_free(old);
    tape_clear(&tape, false);
    batch_of_ids(&batch, &arena, ids, 1, IDS, true);
    submodel_full(&sub, &model->config);
    if (chosen)
        sub.expert_count = COUNT_OF(some);
    for (i64 layer = 0; chosen && layer < sub.layer_count; layer++)
        sub.expert[layer] = some;
    model_forward(&forward, &tape, model, &batch, &sub, NULL);
    device_get(&device, out, forward.hidden->data, IDS * 32 * 4);
    tape_close(&tape);
    arena_close(&arena);
}

/* As in a family without a name for it. */
TEST(no_bias_chooses_as_one_of_zeros)
{
    float zeros[IDS * 32], none[IDS * 32];
    const double squares = 1;
    struct model model;
    struct model_config c = toy_config(2, 0);
    double *sum = device_alloc(&device, 8);
    device_put(&device, sum, &squares, 8);
    toy_open(&model, &device, &c, true);
    for (int chosen = 0; chosen < 2; chosen++) {
        struct weight *bias[2] = {model.layer[0].bias, model.layer[1].bias};
        run_layers(zeros, &model, chosen);
        model.layer[0].bias = model.layer[1].bias = NULL;
        run_layers(none, &model, chosen);
        assert_memory_equal(none, zeros, sizeof none);
        model_balance(&model, NULL, sum, 1);
        model.layer[0].bias = bias[0];
        model.layer[1].bias = bias[1];
    }
    float *after = toy_weight(&device, model.layer[0].bias);
    for (i64 e = 0; e < c.experts; e++)
        assert_float_equal(after[e], 0, 0);
    memory_free(after);
    model_close(&model);
    device_free(&device, sum, 8);
}

TEST(a_subset_is_chosen_by_its_own_bias)
{
    static const float values[8] = {0, 0.5f, 0, -0.5f, 0.25f, 0, -0.25f, 1};
    float zeros[IDS * 32], own[IDS * 32], as_all[IDS * 32];
    struct model model;
    struct model_config c = toy_config(2, 0);
    c.reduced_bias = true;
    toy_open(&model, &device, &c, false);
    run_layers(zeros, &model, true);
    for (i64 i = 0; i < c.layers; i++)
        toy_set_weight(&model.weights, model.layer[i].reduced_bias, values);
    run_layers(own, &model, true);
    for (i64 i = 0; i < c.layers; i++) {
        model.layer[i].reduced_bias = NULL;
        toy_set_weight(&model.weights, model.layer[i].bias, values);
    }
    run_layers(as_all, &model, true);
    assert_memory_equal(own, as_all, sizeof own);
    assert_memory_not_equal(own, zeros, sizeof own);
    model_close(&model);
}

static int setup(void **state)
{
    device_open_cpu(&device);
    return make_directory(state);
}

static int teardown(void **state)
{
    device_close(&device);
    return remove_directory(state);
}

int main(void)
{
    return tests_run(setup, teardown);
}
