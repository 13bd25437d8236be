/* weft plan RECIPE: estimates what the training stages of a recipe will need per rank, without data
 * and without running them. A training step runs on the meta backend with batches of random shapes
 * and the full model, an upper bound for sub-models. */
#include "pipeline/plan_media.h"
#include "pipeline/plan_time.h"
#include "pipeline/pipeline.h"
#include "tokenizer_training/tokenizer_training.h"
#include "core/json.h"
#include "data/loader/mixer.h"
#include "data/curate/dedup.h"
#include "data/prepare/prepare.h"
#include "dist/dist.h"
#include "rl/rl.h"
#include "submodels/submodels.h"
#include "train/memory_estimate.h"

#include <stdio.h>
#include <string.h>

/* What a run has on the heap besides: the cache of the text tokenizer (2 MB), the order of samples and
 * the rows of a window (2 MB), the tokenizer and states as JSON (1 MB). */
enum { HEAP_BYTES = 5 << 20 };

struct plan_command { /* plan of one stage */
    const struct plan_place *place;
    struct device *device; /* that would read the media of `prepare` */
    struct model_config config;
    const struct pretrain_settings *settings;
    struct step_work work;         /* from the command's options */
    const struct cluster *cluster; /* NULL: speeds are not known */
    bool search;                   /* all layouts of the cluster's ranks */
    double load;                   /* of expert ranks, by counts of use */
    struct step_needs needs;
    struct foreseen time; /* of a step, with a cluster */
    i64 active;           /* active parameters */
    i64 program_bytes;    /* of this process before it plans: a run has the same libraries */
    struct json *sources; /* shares of a mixture whose shards exist, or NULL */
};

/* ---- Config of a stage's model: its settings and tokenizers, or the model it starts from ---- */

static const struct recipe_stage *find_stage(const struct recipe *r, const char *name, const char *kind)
{
    for (i64 i = 0; name && i < r->count; i++)
        if (strcmp(r->stages[i].name, name) == 0 && (!kind || strcmp(r->stages[i].kind->name, kind) == 0))
            return &r->stages[i];
    return NULL;
}

bool recipe_trains_backbone(const struct recipe_stage *s)
{
    return strcmp(s->kind->name, "pretrain") == 0 || strcmp(s->kind->name, "sft") == 0;
}

static int sizes_of_stages(struct model_config *c, const struct recipe *r, const struct prepare_settings *p)
{
    struct token_sizes sizes = {0};
    for (int i = 0; i < TOKENIZERS; i++) {
        char kind[32];
        snprintf(kind, sizeof kind, "tokenizer-%s", tokenizer_names[i]);
        const struct recipe_stage *s = find_stage(r, p->tokenizer[i], kind);
        bool given = p->tokenizer[i] && *p->tokenizer[i];
        if (!s && (given || i == TOKENIZER_TEXT)) {
            error_set("%s: tokenizers that are no stages of the recipe: their sizes are known once the shards are made",
                      r->path);
            return PLAN_UNKNOWN;
        }
        s = s ? first_tokenizer(r, s) : NULL;
        if (s && !s->skips && s->kind->sizes(&sizes, s->settings))
            return -1;
    }
    model_config_set_tokens(c, &sizes);
    return 0;
}

/* Sizes of the tokenizers of the first source of `data`, followed through stages of kind dedup:
 * from its shards if they exist, else from the stages that will make them. */
static int tokenizer_sizes(struct model_config *c, const struct recipe *r, const char *data)
{
    char *first = data_line(data, 0);
    const struct recipe_stage *s;
    /* The loop is bounded, since a stage may name itself. */
    for (i64 i = 0; i < r->count && (s = find_stage(r, first, "dedup")); i++) {
        memory_free(first);
        first = data_line(((const struct dedup_settings *)s->settings)->data, 0);
    }
    const struct recipe_stage *prepare = find_stage(r, first, "prepare");
    char *folder = prepare ? path_join(prepare->home, first) : string_copy(first),
         *file = path_join(folder, "shards.json");
    int status = !prepare || file_exists(file) ? pretrain_sizes(c, folder) : sizes_of_stages(c, r, prepare->settings);
    memory_free(file);
    memory_free(folder);
    memory_free(first);
    return status;
}

/* Config of the model a stage starts from: read from its folder if it exists, else that of the
 * stage that makes it. */
static int config_of_reference(struct model_config *c, const struct recipe *r, const struct recipe_stage *s,
                               const char *reference)
{
    const struct recipe_stage *from = find_stage(r, reference, NULL);
    if (from && from >= s)
        return error_usage("%s: stage %s reads %s, which is not an earlier stage", r->path, s->name, reference);
    char *folder = from ? path_join(from->home, reference) : string_copy(reference),
         *file = path_join(folder, "config.json");
    int status = from && !file_exists(file) ? recipe_stage_config(c, r, from) : model_config_load(c, folder);
    memory_free(file);
    memory_free(folder);
    return status;
}

/* Sizes depend only on how many layers and experts are kept, so the missing use counts do not matter. */
int recipe_cut_config(struct model_config *c, const struct submodel_options *options)
{
    struct device meta;
    struct submodel sub;
    struct arena arena;
    struct model *model = memory_alloc(sizeof *model);
    device_open_meta(&meta);
    arena_open(&arena, 64 << 20);
    int status = model_open(model, &meta, c, DTYPE_F32, false, NULL);
    if (status == 0)
        status = submodel_parse(&sub, &arena, options, model);
    if (status == 0)
        *c = submodel_config(&sub, c);
    model_close(model);
    arena_close(&arena);
    device_close(&meta);
    memory_free(model);
    return status;
}

static bool is_rl(const struct recipe_stage *s)
{
    return strcmp(s->kind->name, "rl") == 0;
}

/* Returns 0, -1 and a message, or PLAN_UNKNOWN and a message if earlier stages must run first. */
int recipe_stage_config(struct model_config *c, const struct recipe *r, const struct recipe_stage *s)
{
    if (recipe_trains_backbone(s)) {
        const struct pretrain_settings *settings = s->settings;
        const char *other = settings->continues && *settings->continues ? settings->continues : settings->from;
        if (other && *other)
            return config_of_reference(c, r, s, other);
        *c = pretrain_config(settings);
        return tokenizer_sizes(c, r, settings->data.all);
    }
    if (strcmp(s->kind->name, "extract") == 0) {
        const struct extract_settings *settings = s->settings;
        int status = config_of_reference(c, r, s, settings->from);
        if (status == 0 && extract_has_target(settings)) {
            error_set("%s: what fits the target of stage %s is known once it has run", r->path, s->name);
            return PLAN_UNKNOWN;
        }
        return status ? status : recipe_cut_config(c, &settings->sub);
    }
    if (is_rl(s))
        return config_of_reference(c, r, s, ((const struct rl_settings *)s->settings)->from);
    error_set("%s: the sizes of what stage %s makes are known once it has run", r->path, s->name);
    return PLAN_UNKNOWN;
}

/* ---- Sources of a mixture ---- */

/* True if the shards of all sources exist. */
static bool shards_exist(const struct source_list *list)
{
    struct string_list folders;
    bool all = true;
    for (i64 i = 0; i < list->count && all; i++) {
        all = shard_folders_list(&folders, list->values[i].data) == 0;
        string_list_free(folders.values, folders.count);
    }
    return all;
}

/* Plans the mixture. Missing shards are no error: p->sources stays NULL. */
static int plan_sources(struct plan_command *p, const struct recipe *r)
{
    const struct source_list *data = &p->settings->data;
    struct source_list list = plan_sources_resolved(r, data);
    struct mixer *mixer = NULL;
    int status = 0;
    bool known = data->count > 0 && shards_exist(&list);
    if (known) {
        mixer = mixer_open(&list, "train", &p->settings->loader, p->place->stage->seed);
        p->sources = json_array();
        status = mixer ? 0 : -1;
    }
    for (i64 i = 0; i < data->count && known && status == 0; i++) {
        struct mixer_source m;
        status = mixer_source(mixer, i, p->settings->steps, &m);
        if (status)
            break;
        struct json *source = json_object();
        double shown = (double)(m.rows * p->needs.length); /* positions */
        json_set(source, "name", json_of_string(m.name));
        json_set(source, "samples", json_of_integer(m.samples));
        json_set(source, "epoch_positions", json_of_number(m.epoch));
        json_set(source, "rows", json_of_integer(m.rows));
        json_set(source, "epochs", json_of_number(m.epoch > 0 ? shown / m.epoch : 0));
        json_push(p->sources, source);
    }
    mixer_close(mixer);
    plan_sources_release(&list);
    return status;
}

/* ---- Output ---- */

/* 0: no speed is known. */
static double steps_seconds(const struct plan_command *p, double gflops)
{
    if (p->cluster)
        return p->time.seconds * (double)p->settings->steps;
    if (gflops <= 0)
        return 0;
    return p->needs.flops / (double)p->work.ranks / (gflops * 1e9) * (double)p->settings->steps;
}

static void put_sources(struct buffer *out, const struct plan_command *p)
{
    double rows = 0;
    for (i64 i = 0; i < json_count(p->sources); i++)
        rows += json_number(json_get(json_at(p->sources, i), "rows"), 0);
    for (i64 i = 0; i < json_count(p->sources); i++) {
        const struct json *s = json_at(p->sources, i);
        char *name = text_escaped(json_string(json_get(s, "name"), ""));
        buffer_printf(out, "  source   %-12s %5.1f %% of the rows, %.2f epochs of %lld %s, %.3f M positions\n", name,
                      100 * json_number(json_get(s, "rows"), 0) / rows, json_number(json_get(s, "epochs"), 0),
                      (long long)json_integer(json_get(s, "samples"), 0),
                      plural(json_integer(json_get(s, "samples"), 0), "sample", "samples"),
                      json_number(json_get(s, "epoch_positions"), 0) * 1e-6);
        memory_free(name);
    }
}

static double disk_bytes(const struct plan_command *p)
{
    i64 kept = p->settings->training.keep + best_on(&p->settings->best);
    double sites = sites_are_on(&p->settings->sites) ? 8.0 * (double)p->needs.parameters * (double)(kept + 1) : 0;
    return plan_disk_bytes(p->needs.parameters, kept, p->work.dtype) + sites;
}

/* Two snapshots of masters and moments in f32 (dist/snapshot.h), of all ranks together. */
static double snapshot_bytes(const struct plan_command *p)
{
    return p->work.ranks > 1 ? 24.0 * (double)p->needs.parameters : 0;
}

static void put_traffic(struct buffer *out, const struct plan_command *p)
{
    const struct bucket_times *s = &p->needs.sums;
    if (p->work.ranks == 1)
        return;
    buffer_printf(out, "  traffic  %10.3f GB a step, sent by the rank that sends most", p->needs.traffic * 1e-9);
    if (p->cluster && p->cluster->host_count > 1)
        buffer_printf(out, "; %.3f GB by a host to others", p->time.far_bytes * 1e-9);
    buffer_printf(out, "\n");
    if (s->count)
        buffer_printf(out, "  sums     %10.3f GB of gradients in %lld %s while the backward runs", s->bytes * 1e-9,
                      (long long)s->count, plural(s->count, "bucket, which goes", "buckets, which go"));
    if (s->count && p->work.flops_per_s > 0 && p->work.bytes_per_s > 0)
        buffer_printf(out, ": %.3f s per step at %g GB/s, %.3f s not overlapped", s->seconds,
                      p->work.bytes_per_s * 1e-9, s->exposed_s);
    if (s->count)
        buffer_printf(out, "\n");
}

static void put_time(struct buffer *out, const struct plan_command *p)
{
    const struct foreseen *t = &p->time;
    buffer_printf(out, "  time     %10.1f s, %.3f s a step: %.3f computing, %.3f in messages, %.3f waiting for ranks",
                  steps_seconds(p, 0), t->seconds, t->computing_s, t->links_s, t->waiting_s);
    if (p->load > 1)
        buffer_printf(out, "; the busiest expert rank has %.2f times the mean of rows", p->load);
    buffer_printf(out, "\n");
}

static void put_plan(struct buffer *out, const struct plan_command *p, double gflops)
{
    const struct step_memory *m = &p->needs.memory;
    struct buffer parts = {0};
    buffer_printf(out, "%s: %.2f M parameters, %.2f M active, %lld %s of %lld x %lld positions, %lld rank%s\n",
                  p->place->label, (double)p->needs.parameters * 1e-6, (double)p->active * 1e-6,
                  (long long)p->settings->steps, plural(p->settings->steps, "step", "steps"), (long long)p->needs.rows,
                  (long long)p->needs.length, (long long)p->work.ranks, p->work.ranks == 1 ? "" : "s");
    buffer_printf(out, "  memory   %10.3f GB", (double)step_memory_total(m) * 1e-9);
    buffer_printf(out, p->work.ranks > 1 ? " on rank %lld, which needs most:" : ":", (long long)p->needs.worst_rank);
    step_memory_print(&parts, m, 1e9);
    buffer_printf(out, " %s\n", parts.data);
    buffer_release(&parts);
    if (p->work.gpu)
        buffer_printf(out, "           beside it, not counted: the CUDA context, recorded graphs%s\n",
                      p->work.ranks > 1 ? ", NCCL's connections" : "");
    if (snapshot_bytes(p) > 0)
        buffer_printf(out, "           beside it, not counted: %.3f GB of snapshots of all ranks, with `weft launch`\n",
                      snapshot_bytes(p) * 1e-9);
    buffer_printf(out,
                  "  disk     %10.3f GB: %lld %s kept%s, one more while it is written, and the model; without "
                  "tokenizers\n",
                  disk_bytes(p) * 1e-9, (long long)p->settings->training.keep,
                  plural(p->settings->training.keep, "checkpoint", "checkpoints"),
                  best_on(&p->settings->best) ? ", and the best one" : "");
    buffer_printf(out, "  flops    %10.2f GFLOP a step, of all ranks, in the mean\n", p->needs.flops * 1e-9);
    put_traffic(out, p);
    if (p->cluster)
        put_time(out, p);
    else if (gflops > 0)
        buffer_printf(out, "  time     %10.1f s at %g GFLOP/s a rank\n", steps_seconds(p, gflops), gflops);
    put_sources(out, p);
}

static void put_json(struct buffer *out, const struct plan_command *p, double gflops)
{
    struct json *j = json_object();
    plan_put_place(j, p->place);
    json_set(j, "parameters", json_of_integer(p->needs.parameters));
    json_set(j, "active", json_of_integer(p->active));
    json_set(j, "ranks", json_of_integer(p->work.ranks));
    json_set(j, "rank", json_of_integer(p->needs.worst_rank));
    json_set(j, "bytes", step_memory_json(&p->needs.memory));
    json_set(j, "snapshots", json_of_number(snapshot_bytes(p)));
    json_set(j, "disk", json_of_number(disk_bytes(p)));
    json_set(j, "flops", json_of_number(p->needs.flops));
    if (p->sources)
        json_set(j, "sources", json_copy(p->sources));
    json_set(j, "traffic", json_of_number(p->needs.traffic));
    json_set(j, "buckets", json_of_integer(p->needs.sums.count));
    json_set(j, "sums", json_of_number(p->needs.sums.bytes));
    if (gflops > 0 && p->work.bytes_per_s > 0) {
        json_set(j, "sum_seconds", json_of_number(p->needs.sums.seconds));
        json_set(j, "sum_seconds_exposed", json_of_number(p->needs.sums.exposed_s));
    }
    if (steps_seconds(p, gflops) > 0)
        json_set(j, "seconds", json_of_number(steps_seconds(p, gflops)));
    if (p->cluster)
        json_set(j, "step", plan_time_json(&p->time));
    plan_put_line(out, j);
    json_free(j);
}

static void put_skipped(const struct plan_total *total, const struct plan_place *place)
{
    struct json *j = json_object();
    plan_put_place(j, place);
    json_set(j, "skipped", json_of_string(place->stage->skips));
    if (total->json)
        plan_put_line(total->out, j);
    else
        buffer_printf(total->out, "%s: skipped: %s\n", place->label, place->stage->skips);
    json_free(j);
}

static int estimate(struct plan_command *p, const struct recipe *r)
{
    int status = 0;
    if (p->cluster)
        return plan_load(&p->load, r, p->place->stage, &p->work) ||
                       step_foresee(&p->time, &p->needs, &p->work, p->cluster, p->load)
                   ? -1
                   : 0;
    for (i64 rank = 0; rank < p->work.ranks && status == 0; rank++)
        status = step_estimate(&p->needs, &p->work, rank);
    return status;
}

/* Plans a stage and appends the plan. Returns 0, -1 and a message, or PLAN_UNKNOWN and a message. */
static int plan_stage(struct plan_total *total, const struct recipe *r, const struct plan_place *place,
                      const struct plan_command *with, double gflops)
{
    const struct recipe_stage *s = place->stage;
    struct plan_command p = *with;
    int status = 0, failed = 0; /* failed: the error does not name the stage yet */
    p.place = place;
    if (s->skips) {
        put_skipped(total, place);
    } else if (strcmp(s->kind->name, "prepare") == 0) {
        status = plan_prepare(total, r, place, with->device);
    } else if (is_rl(s)) {
        const struct stage stage = {.device = with->device, .dtype = p.work.dtype, .fp8 = p.work.fp8};
        status = plan_rl(total, r, place, &stage, p.work.gpu, p.work.gpu ? 0 : with->program_bytes + HEAP_BYTES);
        failed = status < 0;
    } else if (is_refiner(s)) {
        status = plan_refiner(total, r, place, p.work.dtype, p.work.gpu, gflops);
        failed = status < 0;
    } else if (!recipe_trains_backbone(s)) {
        failed = plan_tokenizer(total, r, place, p.work.dtype, p.work.gpu, gflops);
    } else if ((status = recipe_stage_config(&p.config, r, s)) == 0) {
        p.settings = p.work.settings = s->settings;
        p.work.config = &p.config;
        p.active = model_parameters_active(&p.config);
        failed = p.search ? plan_search(total, r, place, &p.work, p.cluster, with->program_bytes + HEAP_BYTES)
                          : estimate(&p, r);
        if (p.search)
            return failed ? error_prefix("%s: stage %s", r->path, place->label) : 0;
        if (p.settings->elastic_on)
            p.needs.flops *= elastic_passes_cost(&p.settings->elastic, &p.config, p.settings->steps);
        p.needs.memory.program = p.work.gpu ? 0 : with->program_bytes + HEAP_BYTES; /* in host memory */
        if (!failed)
            failed = plan_sources(&p, r);
        if (!failed) {
            (total->json ? put_json : put_plan)(total->out, &p, gflops);
            plan_need(total, place, step_memory_total(&p.needs.memory), disk_bytes(&p));
            total->seconds += (double)place->runs * steps_seconds(&p, gflops);
        }
        json_free(p.sources);
    }
    return failed ? error_prefix("%s: stage %s", r->path, place->label) : status;
}

/* The runs that have the plan of a run's stage: those of other seeds, which need the same. */
static struct plan_place place_of(const struct recipe_runs *runs, i64 run, i64 stage)
{
    const struct recipe_stage *s = &runs->list[run].stages[stage];
    struct plan_place place = {.stage = s, .arm = s->by_arm ? runs->list[run].arm : NULL};
    for (i64 k = 0; k < runs->count; k++) {
        const struct recipe *other = &runs->list[k];
        bool same = !place.arm || strcmp(place.arm, other->arm) == 0;
        place.runs += same && other->chosen && recipe_runs_maker(runs, k, stage, true) == k;
    }
    bool parts = s->by_arm || s->by_seed;
    place.label = !parts ? string_copy(s->name)
                  : place.arm
                      ? string_format("%s (arm %s, %lld run%s)", s->name, place.arm, (long long)place.runs,
                                      place.runs == 1 ? "" : "s")
                      : string_format("%s (%lld run%s)", s->name, (long long)place.runs, place.runs == 1 ? "" : "s");
    return place;
}

static void put_total(const struct recipe_runs *runs, const struct plan_total *t)
{
    struct buffer *out = t->out;
    i64 chosen = 0;
    for (i64 i = 0; i < runs->count; i++)
        chosen += runs->list[i].chosen;
    if (t->json) {
        struct json *j = json_object(), *sum = json_object();
        json_set(sum, "runs", json_of_integer(chosen));
        json_set(sum, "disk", json_of_number(t->disk));
        if (t->seconds > 0)
            json_set(sum, "seconds", json_of_number(t->seconds));
        json_set(sum, "unknown", json_of_integer(t->unknown));
        json_set(j, "total", sum);
        plan_put_line(out, j);
        json_free(j);
        return;
    }
    buffer_printf(out, "all of %lld %s\n  disk     %10.3f GB\n", (long long)chosen, plural(chosen, "run", "runs"),
                  t->disk * 1e-9);
    if (t->seconds > 0)
        buffer_printf(out, "  time     %10.1f s of training, one run after another\n", t->seconds);
    if (t->unknown)
        buffer_printf(out, "  without %lld plan%s that cannot be made yet\n", (long long)t->unknown,
                      t->unknown == 1 ? "" : "s");
}

/* Plans the selected stages and appends each plan; of a recipe with arms or seeds for each arm, and the
 * sum. Stages that cannot be planned yet are named; that is an error only if no stage could be planned. */
static int plan_runs(struct plan_total *total, const struct recipe_runs *runs, const struct plan_command *with,
                     const struct plan_machine *machine, double gflops)
{
    i64 chosen = 0, planned = 0;
    for (i64 i = 0; i < runs->list[0].count; i++)
        for (i64 k = 0; k < runs->count; k++) {
            const struct recipe *r = &runs->list[k];
            const struct recipe_stage *s = &r->stages[i];
            bool first = r->chosen && recipe_runs_maker(runs, k, i, true) == k;
            for (i64 other = 0; other < k; other++) /* the same with another seed */
                first &= !runs->list[other].chosen || (s->by_arm && runs->list[other].arm != r->arm);
            if (!first || !s->selected ||
                !(strcmp(s->kind->name, "prepare") == 0 || recipe_trains_backbone(s) || is_media_tokenizer(s) ||
                  is_refiner(s) || is_rl(s)))
                continue;
            struct plan_place place = place_of(runs, k, i);
            int status = plan_stage(total, r, &place, with, gflops);
            if (status > 0) {
                log_info("stage %s is not planned: %s", place.label, error_text());
                total->unknown += place.runs;
            }
            memory_free(place.label);
            if (status < 0)
                return -1;
            chosen++;
            planned += status == 0;
        }
    if (chosen == 0)
        return error_usage(
            "%s: no stage of kind tokenizer-vision, tokenizer-audio, refiner, prepare, pretrain, sft or rl "
            "was chosen: only those are planned",
            runs->list[0].path);
    if (planned && runs->arm_count + runs->seed_count)
        put_total(runs, total);
    if (total->planned)
        plan_verdict(total, machine, runs->list[0].root);
    return planned ? 0 : -1;
}

int recipe_plan(struct buffer *out, const struct plan_options *o)
{
    struct recipe_runs runs;
    struct plan_total total = {.out = out, .json = o->json};
    struct plan_machine machine = {o->ranks, (i64)(o->memory_gb * 1e9), o->gpu};
    struct plan_command with = {.program_bytes = o->program_bytes, .device = o->device};
    with.work = (struct step_work){
        .ranks = o->ranks, .gpu = o->gpu, .flops_per_s = o->gflops * 1e9, .bytes_per_s = o->gbytes * 1e9};
    struct cluster cluster = {0};
    if (o->cluster && plan_cluster(&cluster, &with.work, &machine, o))
        return -1;
    with.cluster = o->cluster ? &cluster : NULL;
    with.search = o->search;
    if (!o->cluster && layout_parse(&with.work.layout, o->layout, o->ranks))
        return -1;
    int status = recipe_runs_open(&runs, o->words[0], o->words + 1, o->word_count - 1, o->arm, o->seed);
    for (i64 i = 0; i < runs.count && status == 0; i++)
        if (runs.list[i].chosen && (status = recipe_check(&runs.list[i], &with.work.layout, false)) == 0)
            recipe_skips(&runs.list[i]);
    if (status == 0) {
        const char *precision = runs.list[0].precision;
        bool f32 = strcmp(precision, "f32") == 0, automatic = strcmp(precision, "auto") == 0;
        bool has_bf16 = o->gpu || o->device->has_bf16;
        with.work.fp8 = strcmp(precision, "fp8") == 0;
        with.work.dtype = f32 || (automatic && !has_bf16) ? DTYPE_F32 : DTYPE_BF16;
        status = plan_runs(&total, &runs, &with, &machine, o->gflops);
    }
    recipe_runs_close(&runs);
    cluster_release(&cluster);
    return status;
}
