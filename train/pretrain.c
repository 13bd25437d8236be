#include "train/pretrain.h"

#include "core/json.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/vision.h"
#include "data/loader/mixer.h"
#include "train/base_checkpoint.h"
#include "train/memory_estimate.h"
#include "train/monitor.h"
#include "train/routing_counts.h"
#include "train/shard_order.h"
#include "train/shard_ring.h"
#include "train/taught.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct pretrain_run { /* State of one call of the stage. */
    const struct pretrain_settings *s;
    const struct stage *stage;
    struct model model;
    struct trainer trainer;
    struct monitor monitor;
    struct mixer *mixer;
    struct shard_order order;
    struct shard_ring ring;
    double *shown; /* positions of each source so far */
    struct json *heldout;
    struct left_out left_out;               /* after the last step */
    bool told;                              /* the warning about left-out samples was logged */
    bool learned;                           /* a step had targets */
    i64 idle;                               /* steps of this call without targets */
    struct base_checkpoint base_checkpoint; /* checkpoint of the stage to continue, if any */
    bool chat;                              /* the stage is sft */
    bool drawn;                             /* the weights have values without a checkpoint */
    struct foreseen_check foreseen;         /* on the first rank */
    u64 seed;                               /* seed of this stage, or of the stage that began a continued run */
    struct sites *sites;                    /* NULL: this site trains alone */
    struct json *sites_recipe;
};

static bool is_given(const char *reference)
{
    return reference && *reference;
}

/* ---- The model: new, with sizes from settings and tokenizers, or loaded ---- */

static i64 longest_row(const struct pretrain_settings *s)
{
    double longest = 0;
    for (i64 i = 0; i < s->loader.length.count; i++)
        longest = fmax(longest, s->loader.length.values[i]);
    return (i64)longest;
}

bool pretrain_distills(const struct pretrain_settings *s)
{
    return s->elastic_on && s->elastic.distill > 0;
}

struct model_config pretrain_config(const struct pretrain_settings *s)
{
    struct model_config c = s->model;
    c.norm_eps = 1e-5;
    c.max_positions = longest_row(s);
    c.reduced_bias = s->elastic_on && s->elastic.balance == BALANCE_WIDTH;
    c.audio_layer_count = min_i64(s->audio_layers.count, LEVELS_MOST);
    for (i64 i = 0; i < c.audio_layer_count; i++)
        c.audio_layer[i] = (i32)s->audio_layers.values[i];
    c.t_pairs = c.head_width / 2 * 20 / 64; /* the report's head of 64 pairs keeps 20 for time */
    return c;
}

int pretrain_sizes(struct model_config *c, const char *data)
{
    struct shard_meta meta;
    char *shards = shard_folders_first(data), *path = shards ? path_join(shards, "text") : NULL;
    struct text_tokenizer *tokenizer = path ? text_tokenizer_load(path) : NULL;
    int status = tokenizer ? shard_meta_load(&meta, shards) : -1;
    if (status == 0) {
        struct token_sizes sizes = shard_token_sizes(&meta);
        sizes.vocabulary = text_vocabulary(tokenizer);
        model_config_set_tokens(c, &sizes);
        c->pad_id = c->eos_id = c->bos_id = max_i64(0, text_token_id(tokenizer, "<|endoftext|>"));
    }
    if (tokenizer)
        text_tokenizer_free(tokenizer);
    memory_free(shards);
    memory_free(path);
    return status;
}

static int check_memory(const struct pretrain_run *r, const struct model_config *c)
{
    const struct stage *stage = r->stage;
    return step_check_memory(&(struct step_work){.settings = r->s,
                                                 .config = c,
                                                 .dtype = stage->dtype,
                                                 .fp8 = stage->fp8,
                                                 .layout = stage->ranks->layout,
                                                 .ranks = stage->ranks->world->size},
                             stage->ranks->world->rank, stage->device);
}

bool pretrain_experts_in_a_row(const struct pretrain_settings *s)
{
    return s->elastic_on && s->elastic.expert_groups > 1;
}

static int place_by_use(struct pretrain_run *r, double *use)
{
    return routing_place_experts(&r->model, r->stage, use, pretrain_experts_in_a_row(r->s));
}

/* By the use that the model has counted. */
static int place_experts(void *context)
{
    struct pretrain_run *r = context;
    double *use = memory_alloc(model_use_count(&r->model.config) * (i64)sizeof *use);
    model_use_get(use, &r->model);
    int status = place_by_use(r, use);
    memory_free(use);
    return status;
}

static int open_new_model(struct pretrain_run *r)
{
    struct model_config c = pretrain_config(r->s);
    if (pretrain_sizes(&c, r->s->data.all))
        return -1;
    if (c.audio_layer_count && c.audio_layer_count != c.levels)
        return error_usage("model.audio_layers has %lld %s, and %s has %lld audio levels: expected as many",
                           (long long)c.audio_layer_count, plural(c.audio_layer_count, "entry", "entries"),
                           r->s->data.all, (long long)c.levels);
    if (c.audio_layer_count == 0 && 2 * c.levels > c.layers)
        return error_usage("%lld %s as many of the top layers, at most half of model.layers %lld", (long long)c.levels,
                           plural(c.levels, "audio level needs", "audio levels need"), (long long)c.layers);
    if (check_memory(r, &c))
        return -1;
    if (model_open(&r->model, r->stage->device, &c, r->stage->dtype, true, r->stage->ranks))
        return error_prefix("model");
    r->drawn = false;
    if (place_experts(r)) {
        model_close(&r->model);
        return -1;
    }
    return 0;
}

/* Bits of a vision token: those of the shards, if a model to start from has fewer. */
static int grow_bits(struct model_config *c, const struct pretrain_run *r, const char *from)
{
    struct shard_meta meta;
    char *shards = r->base_checkpoint.folder || c->bits == 0 ? NULL : shard_folders_first(r->s->data.all);
    int status = shards && shard_meta_load(&meta, shards) ? -1 : 0;
    i64 bits = shards && status == 0 ? meta.bits : 0;
    if (bits > c->bits) {
        status = base_tokenizers_grow(from, shards);
        log_info("vision tokens have %lld bits, %lld of them new", (long long)bits, (long long)(bits - c->bits));
        c->bits = bits;
    }
    memory_free(shards);
    return status;
}

static int open_old_model(struct pretrain_run *r, const char *from)
{
    struct model_config c;
    if (model_config_load(&c, from) || grow_bits(&c, r, from) || check_memory(r, &c))
        return -1;
    const struct model_over options = {.dtype = r->stage->dtype, .bits = c.bits, .place = place_experts, .context = r};
    return model_load_over(r->stage->ranks, &r->model, r->stage->device, from, &options);
}

/* An answer ends at the end of a message or of a sample. */
static int add_ends(struct model_config *c, const char *data)
{
    struct vocabulary v;
    char *shards = shard_folders_first(data), *path = shards ? path_join(shards, "text") : NULL;
    struct text_tokenizer *tokenizer = path ? text_tokenizer_load(path) : NULL;
    int status = tokenizer ? vocabulary_init(&v, tokenizer, NULL, 0) : -1;
    if (status == 0) {
        model_config_add_end(c, v.end);
        model_config_add_end(c, v.message_end);
    }
    text_tokenizer_free(tokenizer);
    memory_free(shards);
    memory_free(path);
    return status;
}

static int open_model(struct pretrain_run *r)
{
    const char *from = r->base_checkpoint.folder ? r->base_checkpoint.folder : r->s->from;
    r->drawn = true;
    int status = is_given(from) ? open_old_model(r, from) : open_new_model(r);
    if (status == 0) {
        r->model.config.max_positions = max_i64(r->model.config.max_positions, longest_row(r->s));
        if (r->chat && add_ends(&r->model.config, r->s->data.all)) {
            model_close(&r->model);
            status = -1;
        }
    }
    if (status == 0 && r->stage->fp8)
        weights_fp8(&r->model.weights);
    if (status == 0)
        log_info("model: %.2f M parameters, %.2f M active", (double)weights_parameters(&r->model.weights) * 1e-6,
                 (double)model_parameters_active(&r->model.config) * 1e-6);
    return status;
}

static bool is_first(const struct pretrain_run *r)
{
    return r->stage->ranks->world->rank == 0;
}

/* ---- Data ---- */

static i64 plan(void *context, i64 step, double totals[TARGETS])
{
    struct pretrain_run *r = context;
    struct loader_step planned;
    if (mixer_step(r->mixer, step, &planned))
        return -1;
    memcpy(totals, planned.totals, sizeof planned.totals);
    return planned.micro_batches;
}

static int fill(void *context, i64 step, i64 micro, struct batch *batch, struct arena *arena)
{
    struct pretrain_run *r = context;
    if (mixer_batch(r->mixer, step, micro, batch, arena))
        return -1;
    if (r->trainer.next_micro >= 0)
        mixer_prefetch(r->mixer, step, r->trainer.next_micro);
    return 0;
}

static bool is_ever_positive(const struct schedule *schedule)
{
    for (i64 i = 0; i < schedule->count; i++)
        if (schedule->values[i] > 0)
            return true;
    return false;
}

static int refuse_targets(const struct pretrain_run *r)
{
    return error_set("%s: an epoch has no targets, so nothing can be learned: expected answers in its conversations, "
                     "or other samples that `mixture` shows and a weight of `loss` above 0 for their kind",
                     r->s->data.all);
}

/* Refuses samples without targets of any kind that has a weight. Samples of streams are not known
 * in advance. */
static int check_targets(struct pretrain_run *r)
{
    double weight[TARGETS];
    memcpy(weight, r->s->loss_weight, sizeof weight);
    weight[TARGET_MTP] = r->model.config.mtp && is_ever_positive(&r->s->mtp_weight);
    return mixer_has_targets(r->mixer, weight) ? 0 : refuse_targets(r);
}

/* Called after each step: warns of the first one without targets. A stream whose first epoch had
 * none is refused here. */
static int check_step(struct pretrain_run *r, i64 step, bool without_targets)
{
    struct loader_step planned;
    r->learned |= !without_targets;
    if (without_targets && r->idle++ == 0 && is_first(r))
        log_warn("%s: step %lld has no targets and moves no weight; later ones are counted", r->stage->name,
                 (long long)step + 1);
    if (r->learned || !mixer_goes_by_shards(r->mixer))
        return 0;
    if (mixer_step(r->mixer, step, &planned) < 0)
        return -1;
    return planned.epoch > 1 ? refuse_targets(r) : 0;
}

static int open_trainer(struct pretrain_run *r)
{
    struct trainer *t = &r->trainer;
    const struct elastic_settings *elastic = &r->s->elastic;
    trainer_open(t, &r->model, (i64)64 << 30);
    if (pretrain_distills(r->s) && trainer_open_teacher(t, elastic->distill_weight, (i64)64 << 30))
        return -1;
    if (r->s->elastic_on && elastic->nested && trainer_check_nested(t))
        return -1;
    t->source = (struct batch_source){r, plan, fill, NULL};
    t->optimizer = &r->s->optimizer;
    t->elastic = r->s->elastic_on ? elastic : NULL;
    t->lr = lr_of_settings(&r->s->optimizer, r->s->steps);
    t->bias_speed = r->s->bias_speed;
    t->balance = (struct balance_settings){.posterior = r->s->posterior, .decay = 0.98};
    memcpy(t->balance.weight, r->s->loss_weight, sizeof t->balance.weight);
    t->seed = sites_seed(&r->s->sites, r->seed);
    t->recompute = r->s->recompute;
    t->stops = true;
    t->paces = r->s->deal == DEAL_SPEED;
    return 0;
}

/* ---- Held-out losses ---- */

/* NULL: there are no held-out shards on disk. */
static const char *heldout_shards(const struct pretrain_run *r)
{
    return is_given(r->s->heldout) ? r->s->heldout : data_has_stream(r->s->data.all) ? NULL : r->s->data.all;
}

/* A stage that shows conversations only measures only these. */
static int measure_part(struct heldout *out, struct pretrain_run *r, const struct submodel *sub, i64 length, i64 rows)
{
    return (r->chat ? heldout_measure_chats : heldout_measure)(out, &r->model, sub, heldout_shards(r), "validation",
                                                               length, rows);
}

/* Counts held-out samples that the stage trains on: those of its directions, and of all sources. */
static int count_common(struct pretrain_run *r)
{
    struct shards_common c;
    bool directions[DIRECTIONS];
    for (int d = 0; d < DIRECTIONS; d++)
        directions[d] = r->s->loader.mixture[d] > 0;
    if (data_has_stream(r->s->data.all))
        return 0;
    if (shards_in_common(&c, r->s->data.all, heldout_shards(r), "validation", directions) < 0)
        return -1;
    if (c.common && is_first(r))
        log_warn("held-out: %lld of %lld %s of the validation part %s trained on, so its losses flatter",
                 (long long)c.common, (long long)c.heldout, plural(c.heldout, "sample", "samples"),
                 plural(c.common, "is", "are"));
    json_set(r->heldout, "samples", json_of_integer(c.heldout));
    json_set(r->heldout, "trained_on", json_of_integer(c.common));
    return 0;
}

/* Warns of losses above those of a predictor that knows only the frequency of each target. */
static void warn_of_frequency(const struct pretrain_run *r, const struct heldout *h)
{
    struct buffer known = {0}, unlearned = {0};
    for (int stream = 0; stream < LOSS_MARKS; stream++)
        for (int kind = 0; kind < TARGETS; kind++) {
            double loss = heldout_loss(h, stream, (enum target_kind)kind), frequency = h->unigram[stream][kind];
            struct buffer *losses = r->trainer.running[kind] < frequency ? &known : &unlearned;
            if (!target_rows[kind].helps && loss > frequency)
                buffer_printf(losses, "%s%s %s %.3f (%.3f)", losses->length ? ", " : "", heldout_stream_name(stream),
                              target_rows[kind].name, loss, frequency);
        }
    if (known.length)
        log_warn("%s: held-out losses are worse than those of frequency alone (in brackets): %s: the model knows the "
                 "training data by heart. Stop earlier (keep_best), or add data",
                 r->stage->name, known.data);
    if (unlearned.length)
        log_warn("%s: held-out losses are worse than those of frequency alone (in brackets): %s: the model has learned "
                 "too little. Train longer, or add data",
                 r->stage->name, unlearned.data);
    buffer_release(&known);
    buffer_release(&unlearned);
}

static int measure_heldout(struct pretrain_run *r, const char *when)
{
    struct heldout h;
    struct submodel full;
    i64 length = (i64)schedule_at(&r->s->loader.length, r->s->steps);
    submodel_full(&full, &r->model.config);
    if (!heldout_shards(r)) {
        json_set(r->heldout, when, json_array());
        return 0;
    }
    int status = measure_part(&h, r, &full, length, r->s->heldout_rows);
    if (status)
        return status;
    if (is_first(r) && strcmp(when, "start") == 0)
        heldout_warn(&h, "validation", length);
    if (left_out_total(&h.left_out))
        json_set(r->heldout, "not_measured", left_out_json(&h.left_out));
    struct json *j = heldout_json(&h);
    if (json_count(j) == 0 && is_first(r))
        log_info("held-out %s: nothing is measured: no %s to predict in the validation part of %s", when,
                 r->chat ? "answers of conversations" : "samples", heldout_shards(r));
    for (i64 i = 0; i < json_count(j); i++) {
        const struct json *one = json_at(j, i);
        log_info("held-out %-6s %-10s %-7s %.4f (unigram %.4f, a uniform guess %.4f)", when,
                 json_string(json_get(one, "stream"), ""), json_string(json_get(one, "target"), ""),
                 json_number(json_get(one, "loss"), 0), json_number(json_get(one, "unigram"), 0),
                 json_number(json_get(one, "uniform"), 0));
    }
    json_set(r->heldout, when, j);
    if (is_first(r) && strcmp(when, "end") == 0)
        warn_of_frequency(r, &h);
    return 0;
}

static int open_monitor(struct pretrain_run *r)
{
    struct heldout_pass pass = {.directory = heldout_shards(r),
                                .split = "validation",
                                .length = (i64)schedule_at(&r->s->loader.length, r->s->steps),
                                .most_rows = r->s->heldout_steps_rows,
                                .chats = r->chat ? CHATS_ALONE : CHATS_ALIKE};
    return monitor_open(&r->monitor, r->s, r->stage->name, &pass, &r->model);
}

/* ---- Callbacks of the loop ---- */

static struct json *use_json(const struct pretrain_run *r)
{
    i64 count = model_use_count(&r->model.config);
    double *use = memory_alloc(count * (i64)sizeof *use);
    model_use_get(use, &r->model);
    struct json *j = json_of_numbers(use, count);
    memory_free(use);
    return j;
}

static void restore_use(struct pretrain_run *r, const struct json *j)
{
    i64 count = model_use_count(&r->model.config);
    double *use = memory_alloc(count * (i64)sizeof *use);
    json_numbers(use, count, j);
    model_use_put(&r->model, use);
    memory_free(use);
}

static void restore_order(struct pretrain_run *r, const struct json *j)
{
    i64 count = model_order_count(&r->model.config);
    double *order = memory_alloc(count * (i64)sizeof *order);
    json_numbers(order, count, j);
    if (j)
        model_set_order(&r->model, order);
    memory_free(order);
}

/* Before a checkpoint of this state is read. */
static int place(void *context, const struct json *state)
{
    struct pretrain_run *r = context;
    i64 count = model_use_count(&r->model.config);
    double *use = memory_alloc(count * (i64)sizeof *use);
    json_numbers(use, count, json_get(state, "expert_use"));
    int status = place_by_use(r, use);
    memory_free(use);
    return status;
}

/* The last step's weight is saved with the model, also if no step is left after a resume. */
static void set_mtp_weight(struct pretrain_run *r, i64 step)
{
    r->trainer.balance.weight[TARGET_MTP] = r->model.config.mtp ? schedule_at(&r->s->mtp_weight, max_i64(step, 0)) : 0;
}

/* What the model's files and heldout.json say of the steps so far. */
static int restore(void *context, i64 step, const struct json *state, const char *folder)
{
    struct pretrain_run *r = context;
    (void)folder;
    set_mtp_weight(r, step - 1);
    json_numbers(r->trainer.running, TARGETS, json_get(state, "running_losses"));
    restore_use(r, json_get(state, "expert_use"));
    restore_order(r, json_get(state, "order"));
    if (json_count(json_get(state, "shown")) == r->s->data.count)
        json_numbers(r->shown, r->s->data.count, json_get(state, "shown"));
    r->left_out = left_out_of_json(json_get(state, "left_out"));
    return 0;
}

/* The time of a step, by the speeds of a cluster that has as many ranks. */
static int foresee_step(struct pretrain_run *r)
{
    const struct stage *stage = r->stage;
    const struct model_config *c = &r->model.config;
    const struct step_work work = {.settings = r->s,
                                   .config = c,
                                   .dtype = stage->dtype,
                                   .fp8 = stage->fp8,
                                   .layout = stage->ranks->layout,
                                   .ranks = stage->ranks->world->size};
    struct step_needs needs;
    if (!is_first(r) || !stage->cluster)
        return 0;
    if (stage->cluster->count != work.ranks) {
        log_warn("%s: the time of a step is not foreseen: --cluster has %lld %s, and %lld train", stage->name,
                 (long long)stage->cluster->count, plural(stage->cluster->count, "rank", "ranks"),
                 (long long)work.ranks);
        return 0;
    }
    double *use = memory_alloc(model_use_count(c) * (i64)sizeof *use);
    model_use_get(use, &r->model);
    double load = step_expert_load(use, &work);
    memory_free(use);
    return step_foresee(&r->foreseen.foreseen, &needs, &work, stage->cluster, load);
}

static int begin_or_restore(struct pretrain_run *r, i64 step, const struct json *state, const char *folder)
{
    set_mtp_weight(r, step - 1);
    if (!state && !r->drawn)
        weights_init(&r->model.weights, r->seed);
    if (!state)
        return routing_check_room(&r->model, r->stage) || (heldout_shards(r) && count_common(r))
                   ? -1
                   : measure_heldout(r, "start");
    if (restore(r, step, state, folder) || routing_check_room(&r->model, r->stage))
        return -1;
    json_free(r->heldout);
    r->heldout = json_copy(json_get(state, "heldout"));
    r->learned = step > 0;
    return shard_order_resume(&r->order, state);
}

static int begin(void *context, i64 step, const struct json *state, const char *folder)
{
    struct pretrain_run *r = context;
    int status = begin_or_restore(r, step, state, folder);
    if (status == 0 && r->sites)
        status = sites_begin(r->sites, step, json_get(state, "sites"));
    return status ? status : foresee_step(r);
}

static int measure(double *value, void *context, i64 step, struct metrics *metrics)
{
    struct pretrain_run *r = context;
    (void)metrics; /* monitor_measure put the losses */
    return monitor_best(value, &r->monitor, &r->model, step);
}

static int write_state(void *context, struct json *state, const char *folder)
{
    struct pretrain_run *r = context;
    char seed[20];
    snprintf(seed, sizeof seed, "%016llx", (unsigned long long)r->seed);
    json_set(state, "seed", json_of_string(seed));
    json_set(state, "running_losses", json_of_numbers(r->trainer.running, TARGETS));
    json_set(state, "expert_use", use_json(r));
    if (r->model.order)
        json_set(state, "order", json_of_numbers(r->model.order, model_order_count(&r->model.config)));
    json_set(state, "heldout", json_copy(r->heldout));
    if (r->sites)
        json_set(state, "sites", sites_state(r->sites, folder != NULL));
    if (left_out_total(&r->left_out))
        json_set(state, "left_out", left_out_json(&r->left_out));
    shard_order_save(&r->order, state);
    if (r->s->data.count)
        json_set(state, "shown", json_of_numbers(r->shown, r->s->data.count));
    return 0;
}

/* Saves the weights by which the losses of all target kinds are summed when models are compared. */
static int save_loss_weights(const struct pretrain_run *r, const char *folder)
{
    struct json *j = json_object();
    char *path = path_join(folder, LOSS_WEIGHTS_FILE);
    for (int kind = 0; kind < TARGETS; kind++)
        json_set(j, target_rows[kind].name, json_of_number(trainer_weight(&r->trainer, kind)));
    int status = json_save(path, j);
    json_free(j);
    memory_free(path);
    return status;
}

static int save(void *context, const char *folder)
{
    struct pretrain_run *r = context;
    if (!folder)
        return model_save(&r->model, NULL);
    char *shards = shard_folders_first(r->s->data.all);
    int status = !shards || model_save(&r->model, folder) || save_loss_weights(r, folder) ? -1 : 0;
    if (status == 0)
        status = copy_tokenizers(folder, shards);
    if (status == 0 && r->chat)
        status = taught_save(folder, &r->s->data);
    memory_free(shards);
    return status;
}

static void log_losses(struct training_step *said, const struct step_result *x)
{
    char name[64];
    for (int kind = 0; kind < TARGETS; kind++)
        if (isfinite(step_mean_loss(x, kind))) {
            snprintf(name, sizeof name, "loss/%s", target_rows[kind].name);
            metrics_put(said->metrics, name, step_mean_loss(x, kind));
        }
    for (int stream = 0; stream < STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++)
            if (x->weight[stream][kind] > 0) {
                snprintf(name, sizeof name, "loss/%s/%s", stream_rows[stream].name, target_rows[kind].name);
                metrics_put(said->metrics, name, x->loss[stream][kind] / x->weight[stream][kind]);
            }
    for (int kind = 0; kind < TARGETS; kind++)
        if (x->taught_weight[kind] > 0) {
            snprintf(name, sizeof name, "distill/%s", target_rows[kind].name);
            metrics_put(said->metrics, name, x->divergence[kind] / x->taught_weight[kind]);
        }
    for (int kind = 0; kind < TARGETS; kind++)
        if (!target_rows[kind].helps && isfinite(step_mean_loss(x, kind)))
            buffer_printf(&said->note, "%s%s %.3f", said->note.length ? " " : "", target_rows[kind].name,
                          step_mean_loss(x, kind));
}

/* Counts the samples that rows of the step's length leave out. Warns as soon as there are some. */
static void note_left_out(struct pretrain_run *r, i64 step)
{
    struct buffer streams = {0};
    r->left_out = mixer_left_out(r->mixer);
    left_out_put(&streams, &r->left_out);
    if (streams.length && is_first(r) && !r->told) {
        r->told = true;
        log_warn("%s: samples longer than a row of %lld positions (batch.length) are left out of training: %s%s",
                 r->stage->name, (long long)schedule_at(&r->s->loader.length, step), streams.data,
                 mixer_goes_by_shards(r->mixer) ? " so far" : "");
    }
    buffer_release(&streams);
}

/* Reports each source's share of the step's positions. */
static int log_sources(struct pretrain_run *r, i64 step, struct training_step *said)
{
    struct loader_step all, one;
    char name[96];
    if (r->s->data.count == 0)
        return 0;
    if (mixer_step(r->mixer, step, &all))
        return -1;
    for (i64 i = 0; i < r->s->data.count; i++) {
        if (mixer_source_step(r->mixer, i, step, &one))
            return -1;
        r->shown[i] += (double)one.positions;
        snprintf(name, sizeof name, "source/%s", r->s->data.values[i].name);
        metrics_put(said->metrics, name, (double)one.positions / (double)all.positions);
    }
    return 0;
}

static struct json *sources_json(struct pretrain_run *r, i64 step)
{
    struct json *list = json_array();
    struct mixer_source source;
    for (i64 i = 0; i < r->s->data.count && mixer_source(r->mixer, i, step, &source) == 0; i++) {
        struct json *j = json_object();
        json_set(j, "name", json_of_string(source.name));
        json_set(j, "samples", json_of_integer(source.samples));
        json_set(j, "epoch_positions", json_of_number(source.epoch));
        json_set(j, "rows", json_of_integer(source.rows));
        json_set(j, "positions", json_of_number(r->shown[i]));
        json_set(j, "epochs", json_of_number(source.epoch > 0 ? r->shown[i] / source.epoch : 0));
        json_push(list, j);
    }
    return list;
}

static int save_sources(struct pretrain_run *r)
{
    struct json *list = sources_json(r, r->s->steps);
    char *path = path_join(r->stage->out, "sources.json");
    int status = json_count(list) ? json_save(path, list) : 0;
    json_free(list);
    memory_free(path);
    return status;
}

/* Releases shards that no checkpoint can need. The last checkpoint was settled before this step. */
static int pass_shards(struct pretrain_run *r, i64 step)
{
    if (!r->ring.mine || step == 0 || step % r->s->training.checkpoint_steps)
        return 0;
    char *checkpoints = path_join(r->stage->out, "checkpoints");
    int status = shard_order_pass(&r->order, checkpoints, r->s->training.keep);
    memory_free(checkpoints);
    return status;
}

/* ---- Other sites ---- */

static void site_use_get(double *use, void *context)
{
    model_use_get(use, &((struct pretrain_run *)context)->model);
}

static void site_use_put(void *context, const double *use)
{
    model_use_put(&((struct pretrain_run *)context)->model, use);
}

/* What all sites must share. Each has its own data, rows, ranks and precision. */
static struct json *shared_settings(const struct pretrain_run *r)
{
    static const char *const names[] = {"steps", "model", "optimizer", "elastic", "loss", "bias_speed"};
    static const char *const of_sites[] = {"steps", "bits", "least", "grace_s"};
    struct json *all = settings_to_json(r->s, r->chat ? sft_table : pretrain_table), *out = json_object();
    struct json *sites = json_object();
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (json_get(all, names[i]))
            json_set(out, names[i], json_copy(json_get(all, names[i])));
    for (i64 i = 0; i < COUNT_OF(of_sites); i++)
        json_set(sites, of_sites[i], json_copy(json_get(json_get(all, "sites"), of_sites[i])));
    json_set(out, "sites", sites);
    json_free(all);
    return out;
}

static void open_sites(struct pretrain_run *r)
{
    if (!sites_are_on(&r->s->sites))
        return;
    r->sites_recipe = shared_settings(r);
    r->sites = sites_open(&(struct sites_stage){.settings = &r->s->sites,
                                                .name = r->stage->name,
                                                .out = r->stage->out,
                                                .weights = &r->model.weights,
                                                .ranks = r->stage->ranks,
                                                .steps = r->s->steps,
                                                .keep = r->s->training.keep,
                                                .recipe = r->sites_recipe,
                                                .layers = r->model.config.layers,
                                                .experts = r->model.config.experts,
                                                .use_get = site_use_get,
                                                .use_put = site_use_put,
                                                .context = r});
}

static void close_sites(struct pretrain_run *r)
{
    sites_close(r->sites);
    json_free(r->sites_recipe);
    r->sites = NULL;
}

/* A step waits for shards before it computes anything, so an interrupted wait leaves the state
 * intact. With several ranks the others may not have waited, so it is an error there. */
static int step_failed(const struct pretrain_run *r)
{
    return error_status() == STATUS_INTERRUPTED && r->stage->ranks->world->size == 1 ? STAGE_INTERRUPTED : -1;
}

/* Steps of the last merge that a signal ends are taken up by the next call. */
static int finish(void *context)
{
    struct pretrain_run *r = context;
    int status = sites_end(r->sites);
    return status > 0 ? STAGE_INTERRUPTED : status;
}

static int run_step(void *context, i64 step, struct training_step *said)
{
    struct pretrain_run *r = context;
    struct step_result x;
    if (pass_shards(r, step))
        return -1;
    int turned = r->sites ? sites_turn(r->sites, step) : 0;
    if (turned)
        return turned < 0 ? -1 : STAGE_INTERRUPTED;
    r->trainer.routing = monitor_routing(&r->monitor, step + 1);
    set_mtp_weight(r, step);
    int status = train_step(&x, &r->trainer, step);
    if (status) {
        set_mtp_weight(r, step - 1); /* an interrupted step is saved as if it had not begun */
        return status == STAGE_INTERRUPTED ? status : step_failed(r);
    }
    if (log_sources(r, step, said))
        return -1;
    log_losses(said, &x);
    shard_order_report(&r->order, said, x.seconds);
    metrics_put(said->metrics, "wait_share", x.wait_s / x.seconds);
    if (r->trainer.model->parallel->world->size > 1)
        metrics_put(said->metrics, "sum_share", x.sum_s / x.seconds);
    said->optimizer = x.optimizer;
    said->count = (double)x.positions;
    said->seconds = x.seconds;
    said->flops = x.flops;
    said->pace = x.pace;
    if (r->sites)
        sites_count(r->sites, (double)x.positions, x.seconds);
    if (r->sites && step + 1 == r->s->steps && sites_end(r->sites) < 0) /* interrupted: `finish` goes on */
        return -1;
    monitor_measure(&r->monitor, said->metrics, &r->model, step + 1);
    note_left_out(r, step);
    return check_step(r, step, x.without_targets);
}

static int train(struct pretrain_run *r)
{
    open_sites(r);
    struct further_weights anchors = {"sites", r->sites ? sites_weights(r->sites) : NULL};
    struct training training = {.stage = r->stage,
                                .settings = &r->s->training,
                                .steps = r->s->steps,
                                .unit = "tokens",
                                .weights = &r->model.weights,
                                .more = &anchors,
                                .more_count = r->sites != NULL,
                                .snapshots = true,
                                .deal = &r->trainer.deal,
                                .by_speed = r->s->deal == DEAL_SPEED,
                                .foreseen = &r->foreseen,
                                .continues = r->base_checkpoint.checkpoints,
                                .best = &r->s->best,
                                .context = r,
                                .place = place,
                                .begin = begin,
                                .measure = measure,
                                .restore = restore,
                                .step = run_step,
                                .finish = r->sites ? finish : NULL,
                                .save = save,
                                .state = write_state};
    if (open_monitor(r)) {
        close_sites(r);
        return -1;
    }
    int status = open_trainer(r) ? -1 : training_run(&training);
    if (status == 0 && r->sites)
        status = sites_clear(r->sites);
    monitor_close(&r->monitor);
    close_sites(r);
    if (r->idle > 1 && is_first(r))
        log_warn("%s: %lld %s had no targets", r->stage->name, (long long)r->idle, plural(r->idle, "step", "steps"));
    /* frees memory for the held-out tape */
    trainer_close(&r->trainer);
    if (status)
        return status;
    status = measure_heldout(r, "end");
    if (status == 0 && is_first(r)) {
        char *path = path_join(r->stage->out, "heldout.json");
        if (left_out_total(&r->left_out))
            json_set(r->heldout, "left_out", left_out_json(&r->left_out));
        json_set(r->heldout, "parameters", json_of_integer(weights_parameters(&r->model.weights)));
        json_set(r->heldout, "active", json_of_integer(model_parameters_active(&r->model.config)));
        status = json_save(path, r->heldout) || save_sources(r) || shard_order_save_waiting(&r->order, r->stage->out)
                     ? -1
                     : 0;
        memory_free(path);
    }
    return status;
}

/* A schedule is constant after its last point, so later steps need no check. */
int pretrain_check_batches(const struct loader_settings *loader, const struct layout *layout, i64 first, i64 steps)
{
    const struct schedule *rows = &loader->rows;
    i64 last = min_i64(steps - 1, max_i64(first, rows->count ? rows->steps[rows->count - 1] : 0));
    for (i64 step = first; step <= last; step++) {
        i64 now = (i64)schedule_at(rows, step);
        if (pipeline_check(layout, ceil_div(now, loader->micro_rows)))
            return error_prefix("batch.rows is %lld at step %lld", (long long)now, (long long)step);
    }
    return 0;
}

/* If every source is finite, plans the whole run first, so that it cannot
 * run out of data midway. */
static int check_epochs(struct pretrain_run *r)
{
    struct mixer_source last;
    const struct source_list *data = &r->s->data;
    for (i64 i = 0; i < data->count; i++)
        if (data->values[i].epochs == 0)
            return 0;
    return data->count ? mixer_source(r->mixer, 0, r->s->steps, &last) : 0;
}

static int open_data(struct pretrain_run *r, const struct loader_settings *given)
{
    struct loader_settings loader = *given;
    if (data_has_stream(r->s->data.all) && shard_ring_init(&r->ring, r->stage) < 0)
        return -1;
    loader.ring.directory = r->ring.directory;
    loader.ring.filler = shard_ring_filler(&r->ring);
    r->order.mixer = r->mixer = mixer_open(&r->s->data, "train", &loader, sites_seed(&r->s->sites, r->seed));
    return r->mixer ? check_epochs(r) : -1;
}

/* Call last. Returns `status`, or the status of removing the ring. */
static int close_data(struct pretrain_run *r, int status)
{
    mixer_close(r->mixer);
    if (status == 0)
        status = shard_ring_remove(&r->ring);
    shard_ring_release(&r->ring);
    return status;
}

/* The first rank also says what it notices. */
static int check_elastic(const struct pretrain_run *r)
{
    const struct elastic_settings *s = &r->s->elastic;
    if (!r->s->elastic_on)
        return 0;
    return is_first(r) ? elastic_check(s, &r->model.config, r->stage->ranks->layout.expert)
                       : elastic_check_settings(s, &r->model.config);
}

static int run_with_model(struct pretrain_run *r)
{
    struct loader_settings loader = r->s->loader;
    loader.slice_rows = r->s->elastic_on ? r->s->elastic.slice_rows : loader.micro_rows;
    if (check_elastic(r))
        return -1;
    if (loader.window == 0)
        loader.window = r->model.config.window;
    r->model.config.window = loader.window;
    if (pretrain_check_batches(&loader, &r->stage->ranks->layout, r->base_checkpoint.step, r->s->steps))
        return -1;
    if ((r->s->heldout_steps || r->s->grid_steps) && !heldout_shards(r))
        return error_usage("%s measures held-out losses: expected `heldout`, finished shards",
                           r->s->grid_steps ? "grid_steps" : "heldout_steps");
    if (open_data(r, &loader) < 0)
        return close_data(r, -1);
    r->shown = memory_alloc(mixer_count(r->mixer) * 8);
    struct token_sizes sizes = model_token_sizes(&r->model.config), given = shard_token_sizes(mixer_meta(r->mixer));
    int status = token_sizes_check(&sizes, &given, r->s->data.all);
    if (status == 0)
        status = check_targets(r);
    if (status == 0)
        status = train(r);
    memory_free(r->shown);
    return close_data(r, status);
}

static int open_base_checkpoint(struct pretrain_run *r)
{
    if (!is_given(r->s->continues))
        return 0;
    if (base_checkpoint_open(&r->base_checkpoint, r->s->continues) || base_checkpoint_check(&r->base_checkpoint, r->s))
        return -1;
    r->seed = r->base_checkpoint.seed;
    return 0;
}

static int run_stage(const struct pretrain_settings *s, const struct stage *stage, bool chat)
{
    struct pretrain_run *r = memory_alloc(sizeof *r);
    r->s = s;
    r->stage = stage;
    r->chat = chat;
    r->seed = stage->seed;
    r->heldout = json_object();
    char *shards = shard_folders_check(s->data.all) < 0 ? NULL : shard_folders_first(s->data.all);
    int status = !shards || copy_tokenizers_check(shards) < 0 ? -1 : open_base_checkpoint(r);
    memory_free(shards);
    if (status == 0)
        status = open_model(r);
    if (status == 0) {
        status = run_with_model(r);
        model_close(&r->model);
    }
    base_checkpoint_close(&r->base_checkpoint);
    json_free(r->heldout);
    memory_free(r);
    return status;
}

/* Sizes that come from tokenizers are not known yet; any will do. */
static int check_new_model(const struct pretrain_settings *s)
{
    struct model_config c = pretrain_config(s);
    if (s->audio_layers.count > LEVELS_MOST)
        return error_usage("model.audio_layers has %lld %s, at most %d levels are possible",
                           (long long)s->audio_layers.count, plural(s->audio_layers.count, "entry", "entries"),
                           LEVELS_MOST);
    /* Levels of audio codes are known if the settings name their layers. */
    model_config_set_tokens(&c, &(struct token_sizes){.vocabulary = 256, .levels = c.audio_layer_count, .codes = 1});
    if (model_config_check(&c))
        return error_prefix("model");
    return s->elastic_on ? elastic_check_settings(&s->elastic, &c) : 0;
}

static int check_sites(const struct pretrain_settings *s)
{
    if (sites_are_on(&s->sites) && best_on(&s->best))
        return error_usage(
            "keep_best with sites: each site would keep another step; the last one has the weights of all");
    if (sites_are_on(&s->sites) && s->elastic.nested)
        return error_usage("elastic.nested with sites: each site would fix an order of its own for smaller sizes");
    return sites_check(&s->sites);
}

int pretrain_check_settings(const void *settings)
{
    const struct pretrain_settings *s = settings;
    if (is_given(s->from) && is_given(s->continues))
        return error_usage("from and continue are exclusive: start from a model, or continue a stage");
    if (check_sites(s) || lr_check(&s->optimizer, s->steps, "steps") ||
        best_check(&s->best, "heldout_steps", s->heldout_steps))
        return -1;
    if (s->elastic_on && s->elastic.slice_rows % s->loader.micro_rows)
        return error_usage("batch.micro_rows %lld must divide the %lld %s of an elastic slice (elastic.slice_rows)",
                           (long long)s->loader.micro_rows, (long long)s->elastic.slice_rows,
                           plural(s->elastic.slice_rows, "row", "rows"));
    return is_given(s->from) || is_given(s->continues) ? 0 : check_new_model(s);
}

int sft_check_settings(const void *settings)
{
    const struct pretrain_settings *s = settings;
    if (!is_given(s->from) && !is_given(s->continues))
        return error_usage("from is missing: expected the model to tune, or `continue` with a stage");
    return pretrain_check_settings(settings);
}

int pretrain_stage(const void *settings, const struct stage *stage)
{
    return run_stage(settings, stage, false);
}

/* Trains on conversations only; other samples in the shards are ignored. */
int sft_stage(const void *settings, const struct stage *stage)
{
    struct pretrain_settings s = *(const struct pretrain_settings *)settings;
    for (int d = 0; d < DIRECTIONS; d++)
        s.loader.mixture[d] = d == DIRECTION_CHAT ? s.loader.mixture[d] : 0;
    return run_stage(&s, stage, true);
}

/* True if the shards cannot be read yet, too. */
static bool may_hold_chats(const char *data)
{
    struct shards shards;
    if (shards_open(&shards, data, "train") < 0)
        return true;
    bool found = false;
    for (i64 i = 0; i < shards.sample_count && !found; i++)
        found = shards_sample(&shards, i).direction == DIRECTION_CHAT;
    shards_close(&shards);
    return found;
}

char *sft_stage_absent(const void *settings)
{
    const struct source_list *data = &((const struct pretrain_settings *)settings)->data;
    if (data_has_stream(data->all))
        return NULL;
    for (i64 i = 0; i < data->count; i++)
        if (!may_hold_chats(data->values[i].data))
            return string_format("source %s holds no conversations", data->values[i].name);
    return data->count || may_hold_chats(data->all) ? NULL
           : data_lines(data->all) > 1              ? string_copy("the shards hold no conversations")
                                                    : string_format("%s holds no conversations", data->all);
}
