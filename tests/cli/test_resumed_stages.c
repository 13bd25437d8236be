/* Every stage that trains, killed behind its first, a middle and its last checkpoint: the files it ends
 * with are those of a run that never stopped, each field of its metrics but times included. And what the
 * results say of themselves is what the settings asked for. */
#include "core/json.h"
#include "dist/dist.h"
#include "rl/rl.h"
#include "tests/model_fixture.h"
#include "tests/scratch.h"
#include "tokenizer_training/tokenizer_training.h"

enum { STEPS = 4, CLIPS_FROM = 2 };
static char *shards, *others;
static struct device device;

static char *make_shards(const char *name, i64 count)
{
    char *folder = fixture_shards(name, count, 30), *validation = path_join(folder, "validation");
    require(symlink("train", validation) == 0, "cannot link %s", validation);
    memory_free(validation);
    return folder;
}

/* The name `small`: without a layer, half of the experts, one for a token. */
static void name_sub_model(void)
{
    struct submodel_options options = {"0,2-3", "4", "1"};
    struct model model;
    struct submodel sub;
    struct arena arena;
    char *folder = path_join(shards, "model");
    arena_open(&arena, 1 << 20);
    succeed(model_load(&model, &device, folder, DTYPE_F32, true));
    succeed(submodel_parse(&sub, &arena, &options, &model));
    succeed(submodel_name_save(folder, "small", &sub, &model.config));
    model_close(&model);
    arena_close(&arena);
    memory_free(folder);
}

static int make(void **state)
{
    device_open_cpu(&device);
    log_set_level(LOG_QUIET);
    shards = make_shards("resumed-stages", 120);
    others = make_shards("resumed-others", 60);
    char *media = path_join(shards, "media");
    fixture_model(shards, &device);
    name_sub_model();
    succeed(directory_make(media));
    fixture_media(media);
    memory_free(media);
    make_directory(state);
    struct buffer prompts = {0};
    for (i64 i = 0; i < 6; i++)
        buffer_printf(&prompts,
                      "{\"prompt\": \"words %lld of this text\", \"reward_model\": {\"style\": \"regex\", "
                      "\"ground_truth\": \"[a-m]\"}, \"extra_info\": {\"think\": \"</think> one two three\"}}\n",
                      (long long)i);
    succeed(file_replace(path_of("prompts.jsonl"), prompts.data, prompts.length));
    buffer_clear(&prompts);
    for (i64 i = 0; i < 6; i++)
        buffer_printf(&prompts, "{\"prompt\": \"words %lld\", \"to\": \"%s\"}\n", (long long)i,
                      i % 3 == 0   ? "image"
                      : i % 3 == 1 ? "video"
                                   : "audio");
    succeed(file_replace(path_of("media.jsonl"), prompts.data, prompts.length));
    buffer_clear(&prompts); /* the score: two digits of a file's checksum */
    buffer_printf(&prompts, "while read -r line; do\n"
                            "  file=$(printf %%s \"$line\" | sed 's/.*\"\\([^\"]*weft-answers[^\"]*\\)\".*/\\1/')\n"
                            "  echo \"{\\\"score\\\": $(cksum < \"$file\" | cut -c1-2)}\"\n"
                            "done\n");
    succeed(file_replace(path_of("judge"), prompts.data, prompts.length));
    buffer_release(&prompts);
    return 0;
}

static int clear(void **state)
{
    directory_remove(shards);
    directory_remove(others);
    memory_free(shards);
    memory_free(others);
    device_close(&device);
    return remove_directory(state);
}

/* ---- The stages; $ and ~ are folders of shards, @ is that of the test ---- */

#define BATCH "steps: 4, batch: {rows: 2, length: 64, micro_rows: 1}, heldout_rows: 1, grid_steps: 2, "
static const struct resumed_stage {
    const char *name;
    int (*run)(const void *settings, const struct stage *stage);
    const struct setting *table;
    const char *settings;
} stages[] = {
    {"pretrain", pretrain_stage, pretrain_table,
     "data: {one: $, other: ~}, " BATCH "loss: {posterior: true}, elastic: {start: 0, slice_rows: 1}, "
     "model: {width: 40, layers: 5, heads: 4, kv_heads: 2, head_width: 12, dense_layers: 1, dense_width: 24, "
     "experts: 8, topk: 3, expert_width: 16, shared_experts: 1, norm_min: 1e-9, tied: false, rope_theta: 1234, "
     "init_std: 0.05, zero_init: true, audio_layers: [2, 4], vit_layers: 1, vit_width: 20, vit_heads: 2}"},
    {"sft", sft_stage, sft_table, "from: $/model, data: $, " BATCH "elastic: {on: false}"},
    {"rl", rl_stage, rl_table,
     "from: $/model, prompts: @/prompts.jsonl, eval_prompts: @/prompts.jsonl, eval_steps: 2, steps: 4, "
     "prompts_per_step: 2, group: 3, buffer_batches: 2, max_tokens: 8, kl: 0.01, mask: {share: 0.5}, hint: {share: 1}"},
    {"rl-of-media", rl_stage, rl_table,
     "from: $/model, prompts: @/media.jsonl, steps: 4, prompts_per_step: 2, group: 3, buffer_batches: 2, seats: 3, "
     "max_tokens: 8, weigh_scales: true, verifier: program, program: [sh, @/judge]"},
    {"rl-of-a-sub-model", rl_stage, rl_table,
     "from: $/model, sub: small, prompts: @/media.jsonl, steps: 4, prompts_per_step: 2, group: 3, max_tokens: 8, "
     "verifier: program, program: [sh, @/judge]"},
    {"stills", vision_stage, vision_stage_table,
     "data: $/media, validation: 0, steps: 4, clip_steps: 0, size: 32, stride: 8, bits: 6, channels: [8, 5], batch: 2, "
     "augment: 0.5"},
    {"clips", vision_stage, vision_stage_table,
     "data: $/media, validation: 0, steps: 2, clip_steps: 2, size: 32, stride: 8, bits: 6, channels: [8, 5], batch: 2, "
     "clip_batch: 1, still_batch: 2, frames: 9, augment: 0.5, "
     "rate_hz: 5, blocks: [2, 1], scales: [1, 4], centre: true"},
    {"audio", audio_stage, audio_stage_table,
     "data: $/media, validation: 0, steps: 4, width: 16, latent: 8, codes: 16, levels: 2, batch: 2, augment: 0.5, "
     "vocoder_rounds: 2, revival: 0.2"},
    {"waves", audio_stage, audio_stage_table,
     "data: $/media, validation: 0, steps: 4, width: 16, latent: 8, codes: 16, levels: 2, batch: 2, augment: 0.5, "
     "decoder: istft, log_magnitude: 0.5, causal: true, level_dropout: 0.5"},
};

static int run(const struct resumed_stage *s, const char *name)
{
    static max_align_t values[1024];
    struct buffer text = {0};
    struct stage stage = {.name = "stage",
                          .out = path_of(name),
                          .seed = 7,
                          .recipe_seed = 7,
                          .device = &device,
                          .dtype = DTYPE_F32,
                          .ranks = parallel_alone()};
    buffer_printf(&text, "{checkpoint_steps: 1, keep: 99, ");
    for (const char *at = s->settings; *at; at++)
        if (strchr("$~@", *at))
            buffer_printf(&text, "%s", *at == '$' ? shards : *at == '~' ? others : directory);
        else
            buffer_append(&text, at, 1);
    buffer_printf(&text, "}");
    memset(values, 0, sizeof values);
    struct yaml *recipe = yaml_parse(text.data, text.length, s->name);
    assert_non_null(recipe);
    succeed(settings_read(values, s->table, yaml_root(recipe), NULL, NULL, 0));
    succeed(directory_make(stage.out));
    int status = s->run(values, &stage);
    settings_release(values, s->table);
    yaml_free(recipe);
    buffer_release(&text);
    return status;
}

/* ---- Files ---- */

/* Names of all files below a folder, in order. */
static void list_files(struct buffer *out, const char *folder, const char *below)
{
    char **names;
    i64 count;
    succeed(directory_list(&names, &count, folder));
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(folder, names[i]), *name = string_format("%s%s", below, names[i]),
             *inside = string_format("%s/", name);
        if (file_is_directory(path))
            list_files(out, path, inside);
        else if (strncmp(names[i], "events.out", 10) != 0) /* times in binary; a copy of metrics.jsonl */
            buffer_printf(out, "%s\n", name);
        memory_free(path);
        memory_free(name);
        memory_free(inside);
    }
    string_list_free(names, count);
}

static bool is_of_time(const char *key)
{
    static const char *const names[] = {"time", "seconds", "wait_share", "memory_bytes"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (strcmp(key, names[i]) == 0)
            return true;
    return name_ends_with(key, "_s") || name_ends_with(key, "_seconds"); /* also per second */
}

/* Without times, which are never the same. */
static struct json *timeless(const struct json *value)
{
    struct json_iterator it;
    struct json *out = json_kind(value) == JSON_OBJECT  ? json_object()
                       : json_kind(value) == JSON_ARRAY ? json_array()
                                                        : json_copy(value);
    for (bool more = json_first(&it, value); more; more = json_next(&it, value))
        if (!is_of_time(it.key))
            json_set(out, it.key, timeless(it.value));
    for (i64 i = 0; json_kind(value) == JSON_ARRAY && i < json_count(value); i++)
        json_push(out, timeless(json_at(value, i)));
    return out;
}

/* The content of a file; lines of JSON without their times. */
static struct buffer content_of(const char *folder, const char *name)
{
    struct buffer file = {0}, out = {0};
    char *path = path_join(path_of(folder), name);
    succeed(file_read(&file, path));
    bool lines = name_ends_with(name, ".jsonl"), whole = name_ends_with(name, ".json");
    for (char *at = file.data, *end; (lines || whole) && at && at < file.data + file.length; at = end + 1) {
        end = lines ? strchr(at, '\n') : file.data + file.length;
        struct json *j = json_parse(at, end - at, path), *kept = timeless(j);
        assert_non_null(j);
        json_print(&out, kept, 0);
        buffer_printf(&out, "\n");
        json_free(j);
        json_free(kept);
    }
    if (!lines && !whole)
        buffer_append(&out, file.data, file.length);
    buffer_release(&file);
    memory_free(path);
    return out;
}

static void expect_same_file(const char *a, const char *b, const char *name)
{
    struct buffer x = content_of(a, name), y = content_of(b, name);
    i64 at = 0, most = min_i64(x.length, y.length);
    while (at < most && x.data[at] == y.data[at])
        at++;
    if (at < most || x.length != y.length) {
        i64 from = max_i64(0, at - 200);
        fail_msg("%s of %s and %s differ at byte %lld:\n%.400s\n%.400s", name, a, b, (long long)at, x.data + from,
                 y.data + from);
    }
    buffer_release(&x);
    buffer_release(&y);
}

static void expect_same_folder(const char *a, const char *b)
{
    struct buffer x = {0}, y = {0};
    list_files(&x, path_of(a), "");
    list_files(&y, path_of(b), "");
    assert_string_equal(x.data, y.data);
    for (char *name = x.data, *end; (end = strchr(name, '\n')); name = end + 1) {
        *end = 0;
        expect_same_file(a, b, name);
    }
    buffer_release(&x);
    buffer_release(&y);
}

/* Copies what a run leaves that is killed: checkpoints up to `step`, and logs that may be longer. */
static void copy_killed(const char *to, const char *from, int step)
{
    struct buffer names = {0};
    char last[32];
    snprintf(last, sizeof last, "checkpoints/step-%06d", step);
    list_files(&names, path_of(from), "");
    for (char *name = names.data, *end; (end = strchr(name, '\n')); name = end + 1) {
        *end = 0;
        bool kept = strncmp(name, "checkpoints/", 12) == 0 ? strncmp(name, last, strlen(last)) <= 0
                                                           : name_ends_with(name, ".jsonl");
        if (!kept)
            continue;
        char *in = path_join(path_of(from), name), *out = path_join(path_of(to), name), *slash = strrchr(out, '/');
        *slash = 0;
        succeed(directory_make(out));
        *slash = '/';
        succeed(file_copy(out, in));
        memory_free(in);
        memory_free(out);
    }
    buffer_release(&names);
}

TEST(a_resumed_stage_has_the_files_of_one_that_never_stopped)
{
    static const int killed[] = {1, CLIPS_FROM, STEPS};
    for (i64 i = 0; i < COUNT_OF(stages); i++) {
        char *whole = string_format("%s-whole", stages[i].name);
        succeed(run(&stages[i], whole));
        for (i64 k = 0; k < COUNT_OF(killed); k++) {
            char *name = string_format("%s-%d", stages[i].name, killed[k]);
            copy_killed(name, whole, killed[k]);
            succeed(run(&stages[i], name));
            expect_same_folder(whole, name);
            memory_free(name);
        }
        memory_free(whole);
    }
}

/* Use of bits and codes, measured at each step: the same weights, and the same figures after a kill. */
TEST(measuring_the_use_of_a_code_moves_nothing)
{
    for (i64 i = 0; i < COUNT_OF(stages); i++) {
        struct resumed_stage with = stages[i];
        if (with.run != vision_stage && with.run != audio_stage)
            continue;
        char *settings = string_format("%s, use_steps: 1", with.settings),
             *whole = string_format("%s-whole", with.name), *name = string_format("%s-measured", with.name),
             *again = string_format("%s-again", with.name);
        with.settings = settings;
        succeed(run(&with, name));
        expect_same_file(whole, name, "weights.safetensors");
        struct buffer lines = content_of(name, "metrics.jsonl");
        assert_non_null(strstr(lines.data, "\"use/"));
        copy_killed(again, name, CLIPS_FROM);
        succeed(run(&with, again));
        expect_same_folder(name, again);
        buffer_release(&lines);
        char *blocks[] = {settings, whole, name, again};
        for (i64 k = 0; k < COUNT_OF(blocks); k++)
            memory_free(blocks[k]);
    }
}

/* What other programs and later stages read of the runs above, by the settings that were given. */
TEST(results_have_the_sizes_asked_for)
{
    static const struct {
        const char *run, *parts[24];
    } cases[] = {
        {"clips",
         {"\"stride\":8", "\"bits\":6", "\"channels\":[8,5]", "\"blocks\":[2,1]", "\"inflated\":true",
          "\"centred\":true",
          "[{\"name\":\"32x32\",\"frames\":1,\"height\":32,\"width\":32,\"rate_hz\":0.0,\"scales\":[1,4]},"
          "{\"name\":\"32x32x9\",\"frames\":9,\"height\":32,\"width\":32,\"rate_hz\":5.0,\"scales\":[1,4]}]"}},
        {"stills",
         {"\"inflated\":false", "\"blocks\":[1,1]",
          "[{\"name\":\"32x32\",\"frames\":1,\"height\":32,\"width\":32,\"rate_hz\":0.0,\"scales\":[1,2,3,4]}]"}},
        {"audio", {"\"levels\":2", "\"codes\":16", "\"width\":16", "\"latent\":8"}},
        {"pretrain",
         {"\"hidden_size\":40",
          "\"intermediate_size\":24",
          "\"num_hidden_layers\":5",
          "\"num_attention_heads\":4",
          "\"num_key_value_heads\":2",
          "\"head_dim\":12",
          "\"moe_intermediate_size\":16",
          "\"moe_k\":3",
          "\"moe_num_experts\":8",
          "\"moe_num_shared_experts\":1",
          "\"moe_layer_start_index\":1",
          "\"moe_layer_end_index\":4",
          "\"initializer_range\":0.05,",
          "\"moe_norm_min\":1e-09",
          "\"tie_word_embeddings\":false",
          "\"rope_theta\":1234.0",
          "\"max_position_embeddings\":64",
          "\"vit_layers\":1,\"vit_width\":20,\"vit_heads\":2",
          "\"audio_layers\":[2,4]",
          "\"mtp\":true",
          "\"zero_init\":true",
          "\"torch_dtype\":\"float32\""}},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *whole = string_format("%s-whole", cases[i].run);
        struct buffer config = content_of(whole, "config.json");
        for (i64 k = 0; k < COUNT_OF(cases[i].parts) && cases[i].parts[k]; k++)
            if (!strstr(config.data, cases[i].parts[k]))
                fail_msg("%s: %s is not in\n%s", cases[i].run, cases[i].parts[k], config.data);
        buffer_release(&config);
        memory_free(whole);
    }
}

int main(void)
{
    return tests_run(make, clear);
}
