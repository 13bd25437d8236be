/* weft plan for the stages around a backbone: tokenizers of media, shards, reinforcement learning. */
#include "pipeline/plan_media.h"

#include "tokenizer_training/memory_estimate.h"
#include "tokenizer_training/refiner_step.h"
#include "core/json.h"
#include "data/prepare/prepare.h"
#include "rl/rl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

char *plan_resolved(const struct recipe *r, const char *lines)
{
    struct buffer out = {0};
    for (i64 i = 0; i < data_lines(lines); i++) {
        char *line = data_line(lines, i);
        size_t length = strcspn(line, "/");
        const char *home = NULL;
        for (i64 k = 0; k < r->count; k++)
            if (strlen(r->stages[k].name) == length && strncmp(r->stages[k].name, line, length) == 0)
                home = r->stages[k].home;
        buffer_printf(&out, "%s%s%s%s", i ? "\n" : "", home ? home : "", home ? "/" : "", line);
        memory_free(line);
    }
    return out.data;
}

struct source_list plan_sources_resolved(const struct recipe *r, const struct source_list *sources)
{
    struct source_list out = *sources;
    out.all = plan_resolved(r, sources->all ? sources->all : "");
    out.values = memory_alloc(max_i64(1, sources->count) * (i64)sizeof *out.values);
    for (i64 i = 0; i < sources->count; i++) {
        out.values[i] = sources->values[i];
        out.values[i].data = plan_resolved(r, sources->values[i].data);
    }
    return out;
}

void plan_sources_release(struct source_list *sources)
{
    for (i64 i = 0; i < sources->count; i++)
        memory_free(sources->values[i].data);
    memory_free(sources->values);
    memory_free(sources->all);
}

void plan_put_line(struct buffer *out, const struct json *line)
{
    json_print(out, line, 0);
    buffer_append(out, "\n", 1);
}

double plan_disk_bytes(i64 parameters, i64 kept, enum dtype dtype)
{
    double one = (double)checkpoint_bytes(parameters, dtype);
    return one * (double)(kept + 1) + (double)(parameters * dtype_bytes(dtype));
}

void plan_put_place(struct json *out, const struct plan_place *place)
{
    const struct recipe_stage *s = place->stage;
    json_set(out, "stage", json_of_string(s->name));
    if (place->arm)
        json_set(out, "arm", json_of_string(place->arm));
    if (s->by_arm || s->by_seed)
        json_set(out, "runs", json_of_integer(place->runs));
}

/* ---- Shards ---- */

static bool is_skipped(const struct recipe *r, const char *stage)
{
    for (i64 i = 0; i < r->count; i++)
        if (strcmp(r->stages[i].name, stage) == 0)
            return r->stages[i].skips != NULL;
    return false;
}

int plan_prepare(struct plan_total *total, const struct recipe *r, const struct plan_place *place,
                 struct device *device)
{
    const struct recipe_stage *s = place->stage;
    struct prepare_settings settings = *(const struct prepare_settings *)s->settings;
    struct prepare_estimate e;
    bool all = true; /* what it reads exists */
    int status = PLAN_UNKNOWN;
    for (int i = -1; i < TOKENIZERS; i++) {
        char **reference = i < 0 ? &settings.data : &settings.tokenizer[i];
        bool given = *reference && **reference && !(i >= 0 && is_skipped(r, *reference));
        *reference = given ? plan_resolved(r, *reference) : string_copy("");
        all &= !given || is_address(*reference) || file_exists(*reference);
    }
    if (all)
        status = prepare_estimate(&e, &settings, device);
    else
        error_set("other stages make what it reads; once they have run, it can be");
    struct json *j = json_object();
    plan_put_place(j, place);
    if (status == 0 && total->json) {
        json_set(j, "disk", json_of_integer(llround(e.made)));
        json_set(j, "read", json_of_integer(llround(e.read)));
        json_set(j, "files", json_of_integer(e.files));
        json_set(j, "files_read", json_of_integer(e.files_read));
        plan_put_line(total->out, j);
    } else if (status == 0)
        buffer_printf(
            total->out, "%s: about %.3f GB of shards from %.3f GB, by %lld %s of %lld of %lld %s%s\n", place->label,
            e.made * 1e-9, e.read * 1e-9, (long long)e.samples, plural(e.samples, "sample", "samples"),
            (long long)e.files_read, (long long)e.files, plural(e.files, "file", "files"),
            settings.stream.on ? "; made while a stage trains on them, which keeps those since its oldest checkpoint"
                               : "");
    if (status == 0)
        plan_need(total, place, 0, e.made);
    json_free(j);
    memory_free(settings.data);
    for (int i = 0; i < TOKENIZERS; i++)
        memory_free(settings.tokenizer[i]);
    return status;
}

/* ---- Tokenizers and refiners ---- */

static bool is_kind(const struct recipe_stage *s, const char *kind)
{
    return strcmp(s->kind->name, kind) == 0;
}

bool is_media_tokenizer(const struct recipe_stage *s)
{
    return is_kind(s, "tokenizer-vision") || is_kind(s, "tokenizer-audio");
}

/* The loop is bounded, since a stage may name itself. */
const struct recipe_stage *first_tokenizer(const struct recipe *r, const struct recipe_stage *s)
{
    for (i64 turn = 0; turn < r->count && is_media_tokenizer(s); turn++) {
        const char *start = tokenizer_start_of(s->kind->table, s->settings);
        const struct recipe_stage *from = NULL;
        for (i64 i = 0; start && i < r->count; i++)
            from = strcmp(r->stages[i].name, start) == 0 && r->stages[i].kind == s->kind ? &r->stages[i] : from;
        if (!from)
            break;
        s = from;
    }
    return s;
}

static void put_needs(struct buffer *out, const struct plan_place *place, const struct tokenizer_needs *needs,
                      double disk, double gflops)
{
    struct buffer parts = {0};
    step_memory_print(&parts, &needs->memory, 1e9);
    buffer_printf(out, "%s: %.2f M parameters, %lld %s\n", place->label, (double)needs->parameters * 1e-6,
                  (long long)needs->steps, plural(needs->steps, "step", "steps"));
    buffer_printf(out, "  memory   %10.3f GB: %s; and media, at most %.3f (memory_mb)\n",
                  (double)step_memory_total(&needs->memory) * 1e-9, parts.data, (double)needs->media_bytes * 1e-9);
    buffer_release(&parts);
    buffer_printf(out, "  disk     %10.3f GB: its checkpoints, and what it makes\n", disk * 1e-9);
    buffer_printf(out, "  flops    %10.2f GFLOP a step, in the mean\n", needs->flops / (double)needs->steps * 1e-9);
    if (gflops > 0)
        buffer_printf(out, "  time     %10.1f s at %g GFLOP/s\n", needs->flops / (gflops * 1e9), gflops);
}

static void put_needs_json(struct buffer *out, const struct plan_place *place, const struct tokenizer_needs *needs,
                           double disk, double gflops)
{
    struct json *j = json_object();
    plan_put_place(j, place);
    json_set(j, "parameters", json_of_integer(needs->parameters));
    json_set(j, "steps", json_of_integer(needs->steps));
    json_set(j, "bytes", step_memory_json(&needs->memory));
    json_set(j, "media", json_of_integer(needs->media_bytes));
    json_set(j, "disk", json_of_number(disk));
    json_set(j, "flops", json_of_number(needs->flops / (double)needs->steps));
    if (gflops > 0)
        json_set(j, "seconds", json_of_number(needs->flops / (gflops * 1e9)));
    plan_put_line(out, j);
    json_free(j);
}

/* Appends what a tokenizer or refiner needs, and adds it to the total. Its media are a cache. */
static void add_needs(struct plan_total *total, const struct plan_place *place, const struct tokenizer_needs *needs,
                      double disk, double gflops)
{
    (total->json ? put_needs_json : put_needs)(total->out, place, needs, disk, gflops);
    plan_need(total, place, step_memory_total(&needs->memory), disk);
    total->seconds += gflops > 0 ? (double)place->runs * needs->flops / (gflops * 1e9) : 0;
}

static void open_meta(struct device *meta, bool gpu)
{
    device_open_meta(meta);
    if (gpu)
        device_meta_gpu(meta, true);
}

int plan_tokenizer(struct plan_total *total, const struct recipe *r, const struct plan_place *place, enum dtype dtype,
                   bool gpu, double gflops)
{
    const struct recipe_stage *s = place->stage;
    bool vision = is_kind(s, "tokenizer-vision");
    const struct vision_settings *pictures = s->settings;
    const struct audio_settings *sounds = s->settings;
    i64 keep = vision ? pictures->training.keep : sounds->training.keep;
    struct tokenizer_needs needs;
    struct device meta;
    open_meta(&meta, gpu);
    union {
        struct vision_settings vision;
        struct audio_settings audio;
    } own;
    memcpy(&own, s->settings, vision ? sizeof own.vision : sizeof own.audio);
    tokenizer_take_sizes(s->kind->table, &own, first_tokenizer(r, s)->settings);
    int status = tokenizer_estimate(&needs, s->kind->table, &own, &meta, dtype);
    if (status == 0)
        add_needs(total, place, &needs, plan_disk_bytes(needs.parameters, keep, dtype), gflops);
    device_close(&meta);
    return status;
}

bool is_refiner(const struct recipe_stage *s)
{
    return is_kind(s, "refiner");
}

int plan_refiner(struct plan_total *total, const struct recipe *r, const struct plan_place *place, enum dtype dtype,
                 bool gpu, double gflops)
{
    struct refiner_settings settings = *(const struct refiner_settings *)place->stage->settings;
    struct tokenizer_needs needs;
    struct device meta;
    int status = PLAN_UNKNOWN;
    settings.vision = plan_resolved(r, settings.vision);
    open_meta(&meta, gpu);
    if (file_exists(settings.vision))
        status = tokenizer_estimate(&needs, refiner_stage_table, &settings, &meta, dtype);
    else
        error_set("its tokenizer, %s, is not there yet", settings.vision);
    if (status == 0)
        add_needs(total, place, &needs, plan_disk_bytes(needs.parameters, settings.training.keep, dtype), gflops);
    device_close(&meta);
    memory_free(settings.vision);
    return status;
}

/* ---- Reinforcement learning ---- */

/* A copy with references as paths. Release it with release_copy. */
static struct rl_settings *copy_resolved(const struct recipe *r, const struct rl_settings *settings)
{
    struct rl_settings *s = memory_alloc(sizeof *s);
    *s = *settings;
    s->from = plan_resolved(r, s->from);
    s->grader.judge = plan_resolved(r, s->grader.judge ? s->grader.judge : "");
    s->prompts = plan_sources_resolved(r, &settings->prompts);
    s->eval_prompts = plan_sources_resolved(r, &settings->eval_prompts);
    return s;
}

static void release_copy(struct rl_settings *s)
{
    plan_sources_release(&s->prompts);
    plan_sources_release(&s->eval_prompts);
    memory_free(s->from);
    memory_free(s->grader.judge);
    memory_free(s);
}

/* Whether all that the lines name exists. */
static bool are_there(const char *lines)
{
    bool all = true;
    for (i64 i = 0; i < data_lines(lines); i++) {
        char *line = data_line(lines, i);
        all &= !*line || file_exists(line);
        memory_free(line);
    }
    return all;
}

static bool inputs_exist(const struct rl_settings *s)
{
    return are_there(s->from) && are_there(s->grader.judge) && are_there(s->prompts.all) &&
           are_there(s->eval_prompts.all);
}

static void put_rl(struct buffer *out, const struct plan_place *place, const struct rl_settings *s,
                   const struct rl_needs *needs, double disk)
{
    struct buffer parts = {0};
    step_memory_print(&parts, &needs->memory, 1e9);
    buffer_printf(out, "%s: %.2f M parameters, %.2f M active, %lld %s of %lld %s x %lld %s; %lld %s\n", place->label,
                  (double)needs->parameters * 1e-6, (double)needs->active * 1e-6, (long long)s->steps,
                  plural(s->steps, "step", "steps"), (long long)s->prompts_per_step,
                  plural(s->prompts_per_step, "prompt", "prompts"), (long long)s->group,
                  plural(s->group, "answer", "answers"), (long long)needs->prompts,
                  plural(needs->prompts, "prompt is there", "prompts are there"));
    buffer_printf(out, "  memory   %10.3f GB at most, if no answer ends early: %s\n",
                  (double)step_memory_total(&needs->memory) * 1e-9, parts.data);
    buffer_printf(out, "  disk     %10.3f GB: its checkpoints, and the model\n", disk * 1e-9);
    buffer_release(&parts);
}

static void put_rl_json(struct buffer *out, const struct plan_place *place, const struct rl_needs *needs, double disk)
{
    struct json *j = json_object();
    plan_put_place(j, place);
    json_set(j, "parameters", json_of_integer(needs->parameters));
    json_set(j, "active", json_of_integer(needs->active));
    json_set(j, "prompts", json_of_integer(needs->prompts));
    json_set(j, "heldout_prompts", json_of_integer(needs->held_out));
    json_set(j, "bytes", step_memory_json(&needs->memory));
    json_set(j, "disk", json_of_number(disk));
    plan_put_line(out, j);
    json_free(j);
}

int plan_rl(struct plan_total *total, const struct recipe *r, const struct plan_place *place, const struct stage *stage,
            bool gpu, i64 program_bytes)
{
    struct rl_settings *s = copy_resolved(r, place->stage->settings);
    struct rl_needs needs;
    struct device meta;
    int status = PLAN_UNKNOWN;
    open_meta(&meta, gpu);
    if (inputs_exist(s))
        status = rl_stage_needs(&needs, s, stage, &meta);
    else
        error_set("other stages make what it reads; once they have run, it can be");
    if (status == 0) {
        needs.memory.program = program_bytes;
        double disk = plan_disk_bytes(needs.parameters, s->training.keep + best_on(&s->best), stage->dtype);
        if (total->json)
            put_rl_json(total->out, place, &needs, disk);
        else
            put_rl(total->out, place, s, &needs, disk);
        plan_need(total, place, step_memory_total(&needs.memory), disk);
    }
    device_close(&meta);
    release_copy(s);
    return status;
}
