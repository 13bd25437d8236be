#include "train/pretrain.h"

#include "core/json.h"
#include "tokenizers/audio.h"
#include "tokenizers/vision.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROW(member, ...) SETTING(struct pretrain_settings, member, __VA_ARGS__)
#define COMMON_ROWS(steps_default, elastic_default, rows_default, lr_default)                                          \
    ROW(data, "data", REFERENCE, NULL, 0, 0, NULL, "shards"),                                                          \
        ROW(steps, "steps", INTEGER, steps_default, 1, 1e9, NULL, "optimizer steps"),                                  \
        ROW(checkpoint_steps, "checkpoint_steps", INTEGER, "200", 1, 1e9, NULL, "steps between checkpoints"),          \
        ROW(keep, "keep", INTEGER, "2", 1, 1e6, NULL, "checkpoints kept"),                                             \
        ROW(heldout_rows, "heldout_rows", INTEGER, "64", 0, 1e9, NULL, "rows of held-out measurements; 0: all"),       \
        ROW(grid_steps, "grid_steps", INTEGER, "0", 0, 1e9, NULL,                                                      \
            "steps between held-out losses of a grid of sub-models; 0: never"),                                        \
        ROW(recompute, "recompute", BOOL, "false", 0, 0, NULL, "keep only the layers' inputs for the backward"),       \
        ROW(elastic_on, "elastic.on", BOOL, elastic_default, 0, 0, NULL, "draw sub-models while training"),            \
        ELASTIC_ROWS(struct pretrain_settings), LOADER_ROWS(struct pretrain_settings, rows_default, "512"),            \
        OPTIMIZER_ROWS(struct pretrain_settings, lr_default, "0.95", "0.05"),                                          \
        ROW(bias_speed, "bias_speed", SCHEDULE, "1e-3", 0, 1, NULL, "step of the router's balancing bias"),            \
        ROW(text_weight, "loss.text", NUMBER, "1", 0, 1e6, NULL, "weight of next-id targets"),                         \
        ROW(mtp_weight, "loss.mtp", SCHEDULE, "0.3", 0, 1e6, NULL, "weight of multi-token prediction"),                \
        ROW(vision_weight, "loss.vision", NUMBER, "1", 0, 1e6, NULL, "weight of vision bits"),                         \
        ROW(audio_weight, "loss.audio", NUMBER, "1", 0, 1e6, NULL, "weight of audio codes"),                           \
        ROW(posterior, "loss.posterior", BOOL, "true", 0, 0, NULL,                                                     \
            "rescale target kinds by their running means to the interval of text's")

const struct setting pretrain_table[] = {
    COMMON_ROWS("1000", "true", "16", "2e-3"),
    ROW(from, "from", REFERENCE, "", 0, 0, NULL, "model to start from, with new moments; its sizes hold"),
    ROW(model.width, "model.width", INTEGER, "192", 8, 1e6, NULL, "C"),
    ROW(model.layers, "model.layers", INTEGER, "8", 1, LAYERS_MOST, NULL, "L"),
    ROW(model.heads, "model.heads", INTEGER, "6", 1, 1024, NULL, "H"),
    ROW(model.kv_heads, "model.kv_heads", INTEGER, "2", 1, 1024, NULL, "G"),
    ROW(model.head_width, "model.head_width", INTEGER, "32", 2, 1024, NULL, "D"),
    ROW(model.first_moe_layer, "model.dense_layers", INTEGER, "0", 0, LAYERS_MOST, NULL,
        "layers without experts, at the bottom"),
    ROW(model.dense_width, "model.dense_width", INTEGER, "512", 1, 1e6, NULL, "feed-forward width of those"),
    ROW(model.experts, "model.experts", INTEGER, "16", 1, 65536, NULL, "E"),
    ROW(model.topk, "model.topk", INTEGER, "2", 1, 1024, NULL, "K"),
    ROW(model.expert_width, "model.expert_width", INTEGER, "128", 1, 1e6, NULL, "F"),
    ROW(model.shared_experts, "model.shared_experts", INTEGER, "0", 0, 64, NULL, "always active experts"),
    ROW(model.tied, "model.tied", BOOL, "true", 0, 0, NULL, "one matrix for embedding and text head"),
    ROW(model.mtp, "model.mtp", BOOL, "true", 0, 0, NULL, "one multi-token-prediction block"),
    ROW(model.rope_theta, "model.rope_theta", NUMBER, "1000000", 1, 1e12, NULL, "base of rotary positions"),
    ROW(model.init_std, "model.init_std", NUMBER, "0.02", 0, 10, NULL, "standard deviation of initial weights"),
    ROW(model.vit_layers, "model.vit_layers", INTEGER, "2", 0, VIT_LAYERS_MOST, NULL, "layers of the vision encoder"),
    ROW(model.vit_width, "model.vit_width", INTEGER, "96", 2, 1e5, NULL, "its width"),
    ROW(model.vit_heads, "model.vit_heads", INTEGER, "3", 1, 1024, NULL, "its heads"),
    {0}};

const struct setting sft_table[] = {
    COMMON_ROWS("200", "false", "16", "5e-4"),
    ROW(from, "from", REFERENCE, NULL, 0, 0, NULL, "model to start from, with new moments"),
    {0}};

struct run { /* of one call */
    const struct pretrain_settings *s;
    const struct stage *stage;
    struct model model;
    struct trainer trainer;
    struct loader *loader;
    struct metrics *metrics;
    struct json *heldout;
    char *checkpoints;
    bool told; /* that samples are left out */
};

/* ---- The model: sizes of the settings and the tokenizers, or a model that exists ---- */

struct model_config pretrain_config(const struct pretrain_settings *s)
{
    struct model_config c = s->model;
    c.norm_eps = 1e-5;
    c.norm_min = 1e-12;
    c.max_positions = 131072;
    c.t_pairs = c.head_width / 2 * 20 / 64; /* as the head of 64 pairs of the report keeps 20 for time */
    return c;
}

int pretrain_sizes(struct model_config *c, const char *shards)
{
    struct shard_meta meta;
    char *path = path_join(shards, "text");
    struct text_tokenizer *tokenizer = text_tokenizer_load(path);
    int status = tokenizer ? shard_meta_load(&meta, shards) : -1;
    if (status == 0) {
        c->vocabulary = round_up(text_vocabulary(tokenizer), 16);
        c->pad_id = c->eos_id = c->bos_id = max_i64(0, text_token_id(tokenizer, "<|endoftext|>"));
        c->bits = meta.bits;
        for (i64 i = 0; i < meta.shape_count; i++)
            c->scales = max_i64(c->scales, meta.shapes[i].shape.scale_count + 1);
        c->cell_features = meta.cell_features;
        c->patch_values = meta.cell_features ? VISION_GROUP * meta.stride * meta.stride * 3 : 0;
        c->levels = meta.levels;
        c->codes = meta.codes;
    }
    if (tokenizer)
        text_tokenizer_free(tokenizer);
    memory_free(path);
    return status;
}

static int open_new_model(struct run *r)
{
    struct model_config c = pretrain_config(r->s);
    if (pretrain_sizes(&c, r->s->data))
        return -1;
    if (2 * c.levels > c.layers)
        return error_usage("%lld audio levels need as many of the top layers, at most half of model.layers %lld",
                           (long long)c.levels, (long long)c.layers);
    if (model_open(&r->model, r->stage->device, &c, r->stage->dtype, true, r->stage->ranks))
        return error_prefix("model");
    weights_init(&r->model.weights, r->stage->seed);
    return 0;
}

static int open_model(struct run *r)
{
    int status = r->s->from && *r->s->from
                     ? model_load_over(r->stage->ranks, &r->model, r->stage->device, r->s->from, r->stage->dtype, true)
                     : open_new_model(r);
    if (status == 0)
        log_info("model: %.2f M parameters, %.2f M active", (double)weights_parameters(&r->model.weights) * 1e-6,
                 (double)model_parameters_active(&r->model.config) * 1e-6);
    return status;
}

static bool is_first(const struct run *r)
{
    return r->stage->ranks->world->rank == 0;
}

/* ---- Data ---- */

static i64 plan(void *context, i64 step, double totals[TARGETS])
{
    struct run *r = context;
    struct loader_step planned;
    if (loader_step(r->loader, step, &planned))
        return -1;
    memcpy(totals, planned.totals, sizeof planned.totals);
    return planned.micro_batches;
}

static int fill(void *context, i64 step, i64 micro, struct batch *batch, struct arena *arena)
{
    struct run *r = context;
    if (loader_batch(r->loader, step, micro, batch, arena))
        return -1;
    loader_prefetch(r->loader, step, micro + r->stage->ranks->layout.data);
    return 0;
}

static void open_trainer(struct run *r)
{
    struct trainer *t = &r->trainer;
    trainer_open(t, &r->model, (i64)64 << 30);
    t->source = (struct batch_source){r, plan, fill, NULL};
    t->optimizer = &r->s->optimizer;
    t->elastic = r->s->elastic_on ? &r->s->elastic : NULL;
    t->lr = lr_of_settings(&r->s->optimizer, r->s->steps);
    t->bias_speed = r->s->bias_speed;
    t->balance = (struct balance_settings){
        {r->s->text_weight, 0, r->s->vision_weight, r->s->audio_weight}, r->s->posterior, 0.98};
    t->seed = r->stage->seed;
    t->recompute = r->s->recompute;
}

/* ---- Held-out losses ---- */

static int measure_heldout(struct run *r, const char *when)
{
    struct heldout h;
    struct submodel full;
    i64 length = (i64)schedule_at(&r->s->loader.length, r->s->steps);
    submodel_full(&full, &r->model.config);
    int status = heldout_measure(&h, &r->model, &full, r->s->data, "validation", length, r->s->heldout_rows);
    if (status)
        return status;
    if (is_first(r) && strcmp(when, "start") == 0)
        heldout_warn(&h, "validation", length);
    struct json *j = heldout_json(&h);
    for (i64 i = 0; i < json_count(j); i++)
        log_info("held-out %-6s %-10s %-7s %.4f (unigram %.4f)", when,
                 json_string(json_get(json_at(j, i), "stream"), ""), json_string(json_get(json_at(j, i), "target"), ""),
                 json_number(json_get(json_at(j, i), "loss"), 0), json_number(json_get(json_at(j, i), "unigram"), 0));
    json_set(r->heldout, when, j);
    return 0;
}

/* Goes into the line of the step that is next. */
static int measure_grid(struct run *r, i64 step)
{
    struct grid_point points[16];
    struct arena arena;
    i64 length = (i64)schedule_at(&r->s->loader.length, step);
    int status = 0;
    arena_open(&arena, 64 << 20, false);
    i64 n = elastic_grid(points, COUNT_OF(points), &arena, &r->model);
    for (i64 i = 0; i < n && status == 0; i++) {
        struct heldout h;
        char name[96];
        status = heldout_measure(&h, &r->model, &points[i].sub, r->s->data, "validation", length, 8);
        snprintf(name, sizeof name, "grid/%s/text", points[i].name);
        if (r->metrics && status == 0)
            metrics_put(r->metrics, name, heldout_mean(&h, TARGET_TEXT));
    }
    arena_close(&arena);
    return status;
}

/* ---- Checkpoints ---- */

static i64 use_count(const struct run *r)
{
    return r->model.config.layers * max_i64(r->model.config.experts, 1);
}

struct whole { /* what the first rank writes */
    const struct run *run;
    struct model model;
};

static int save_whole(void *context, const char *directory)
{
    const struct whole *whole = context;
    return model_save(&whole->model, directory) || install_tokenizers(directory, whole->run->s->data) ? -1 : 0;
}

static int write_checkpoint(struct run *r, struct whole *whole, i64 step)
{
    struct weights *const list[] = {&whole->model.weights};
    struct checkpoint_parts parts = {list, 1, save_whole, whole};
    struct json *state = json_object(), *running = json_array(), *use = json_array();
    for (int kind = 0; kind < TARGETS; kind++)
        json_push(running, json_of_number(r->trainer.running[kind]));
    for (i64 i = 0; i < use_count(r); i++)
        json_push(use, json_of_number(r->model.use[i]));
    json_set(state, "running_losses", running);
    json_set(state, "expert_use", use);
    json_set(state, "heldout", json_copy(r->heldout));
    int status = checkpoint_save(r->checkpoints, step, &parts, state);
    if (status == 0)
        status = checkpoint_settle(r->checkpoints, step, r->s->keep);
    json_free(state);
    return status;
}

/* All ranks bring their weights together; the first one writes, as a checkpoint or (step -1) as the stage's result. */
static int save(void *context, i64 step)
{
    struct run *r = context;
    struct whole whole = {.run = r};
    int status = 0;
    model_gather(&whole.model, &r->model);
    if (is_first(r))
        status = step < 0 ? save_whole(&whole, r->stage->out) : write_checkpoint(r, &whole, step);
    model_gather_release(&whole.model, &r->model);
    return status;
}

/* *step: the first one to do. Every rank reads its own. */
static int resume(struct run *r, i64 *step)
{
    struct weights *const list[] = {&r->model.weights};
    struct checkpoint_parts parts = {list, 1, NULL, NULL};
    struct json *state;
    if (checkpoint_resume(r->checkpoints, step, &parts, &state))
        return -1;
    if (state) {
        for (int kind = 0; kind < TARGETS; kind++)
            r->trainer.running[kind] = json_number(json_at(json_get(state, "running_losses"), kind), 0);
        for (i64 i = 0; i < use_count(r); i++)
            r->model.use[i] = json_number(json_at(json_get(state, "expert_use"), i), 0);
        json_free(r->heldout);
        r->heldout = json_copy(json_get(state, "heldout"));
        log_info("goes on from step %lld", (long long)*step);
    }
    *step = max_i64(*step, 0);
    json_free(state);
    i64 first = *step;
    comm_broadcast(r->stage->ranks->world, &first, sizeof first, 0);
    return first == *step ? 0
                          : error_set("%s: this rank would go on from step %lld, the first from %lld: they do not see "
                                      "the same files",
                                      r->checkpoints, (long long)*step, (long long)first);
}

/* ---- The loop ---- */

static void log_step(struct run *r, const struct step_result *x)
{
    struct metrics *m = r->metrics;
    char name[64];
    for (int kind = 0; kind < TARGETS; kind++)
        if (isfinite(step_mean_loss(x, kind))) {
            snprintf(name, sizeof name, "loss/%s", target_names[kind]);
            metrics_put(m, name, step_mean_loss(x, kind));
        }
    for (int stream = 0; stream < STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++)
            if (x->weight[stream][kind] > 0) {
                snprintf(name, sizeof name, "loss/%s/%s", stream_names[stream], target_names[kind]);
                metrics_put(m, name, x->loss[stream][kind] / x->weight[stream][kind]);
            }
    metrics_put(m, "lr", x->optimizer.lr);
    metrics_put(m, "grad_norm", x->optimizer.grad_norm);
    metrics_put(m, "tokens_per_s", (double)x->positions / x->seconds);
    metrics_put(m, "peak_share", x->flops / x->seconds * 1e-9 / r->stage->peak_gflops);
    metrics_put(m, "wait_share", x->wait_s / x->seconds);
}

/* Of the kinds of targets there are. */
static void show(struct progress *bar, const struct run *r, i64 step, const struct step_result *x)
{
    static const enum target_kind shown[] = {TARGET_TEXT, TARGET_VISION, TARGET_AUDIO};
    struct text losses = {0};
    for (i64 i = 0; i < COUNT_OF(shown); i++)
        if (isfinite(step_mean_loss(x, shown[i])))
            text_printf(&losses, "%s %.3f ", target_names[shown[i]], step_mean_loss(x, shown[i]));
    progress_update(bar, step, "%s %.0f tok/s  %.0f %% of peak", losses.data ? losses.data : "",
                    (double)x->positions / x->seconds, 100 * x->flops / x->seconds * 1e-9 / r->stage->peak_gflops);
    text_release(&losses);
}

/* The first time; how many there were is said at the end. */
static void tell_left_out(struct run *r, bool at_end)
{
    i64 count = loader_left_out(r->loader);
    if (count == 0 || !is_first(r) || (r->told && !at_end))
        return;
    r->told = true;
    log_warn("%lld samples shown %s are longer than batch.length and were left out", (long long)count,
             at_end ? "in all" : "so far");
}

static int run_step(void *context, i64 step, struct progress *bar)
{
    struct run *r = context;
    struct step_result result;
    bool grid_due = step && r->s->grid_steps && step % r->s->grid_steps == 0;
    if (r->metrics)
        metrics_begin(r->metrics, step + 1);
    int status = grid_due ? measure_grid(r, step) : 0;
    if (status == STAGE_INTERRUPTED)
        return save(r, step) ? -1 : STAGE_INTERRUPTED;
    r->trainer.balance.weight[TARGET_MTP] = r->model.config.mtp ? schedule_at(&r->s->mtp_weight, step) : 0;
    if (status || train_step(&result, &r->trainer, step))
        return -1;
    if (r->metrics)
        log_step(r, &result);
    if (r->metrics && metrics_end(r->metrics))
        return -1;
    tell_left_out(r, false);
    show(bar, r, step + 1, &result);
    return 0;
}

static int finish(struct run *r)
{
    char *path = path_join(r->stage->out, "heldout.json");
    tell_left_out(r, true);
    int status = measure_heldout(r, "end");
    if (status == 0 && is_first(r))
        status = json_save(path, r->heldout);
    if (status == 0)
        status = save(r, -1);
    memory_free(path);
    return status;
}

static int train(struct run *r)
{
    i64 step;
    if (resume(r, &step))
        return -1;
    if (is_first(r)) {
        if (checkpoint_settle(r->checkpoints, step, r->s->keep))
            return -1;
        r->metrics = metrics_open(r->stage->out, step);
        if (!r->metrics)
            return -1;
    }
    if (!r->heldout)
        r->heldout = json_object();
    struct training loop = {r->stage, r->s->steps, r->s->checkpoint_steps, run_step, save, r};
    int status = step == 0 ? measure_heldout(r, "start") : 0;
    if (status == 0)
        status = training_run(&loop, step);
    return status ? status : finish(r);
}

static int run_stage(const struct pretrain_settings *s, const struct stage *stage)
{
    struct run *r = memory_alloc(sizeof *r);
    r->s = s;
    r->stage = stage;
    r->checkpoints = path_join(stage->out, "checkpoints");
    struct loader_settings loader = s->loader;
    loader.slice_rows = s->elastic_on ? s->elastic.slice_rows : loader.micro_rows;
    int status = open_model(r);
    if (status == 0 && s->elastic_on)
        status = elastic_check(&s->elastic, &r->model.config, stage->ranks->layout.expert);
    if (status == 0) {
        if (loader.window == 0)
            loader.window = r->model.config.window;
        r->model.config.window = loader.window;
        r->loader = loader_open(s->data, "train", &loader, stage->seed);
        if (r->loader) {
            open_trainer(r);
            status = train(r);
            trainer_close(&r->trainer);
            loader_close(r->loader);
        } else {
            status = -1;
        }
        metrics_close(r->metrics);
        model_close(&r->model);
    }
    json_free(r->heldout);
    memory_free(r->checkpoints);
    memory_free(r);
    return status;
}

int pretrain_stage(const void *settings, const struct stage *stage)
{
    return run_stage(settings, stage);
}

/* Conversations alone; what else the shards hold is not looked at. */
int sft_stage(const void *settings, const struct stage *stage)
{
    struct pretrain_settings s = *(const struct pretrain_settings *)settings;
    for (int d = 0; d < DIRECTIONS; d++)
        s.loader.mixture[d] = d == DIRECTION_CHAT ? s.loader.mixture[d] : 0;
    return run_stage(&s, stage);
}
