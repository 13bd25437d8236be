#include "submodels/repair.h"

#include "data/shards/shards.h"
#include "submodels/record.h"
#include "submodels/submodels.h"
#include "train/pretrain.h"

#include <string.h>

enum { ROWS_MOST = 16 }; /* of held-out losses before and after */

struct repair_plan {
    struct pretrain_settings settings;
    const struct setting *table; /* of settings */
    bool chat;                   /* the stage sft */
};

static void plan_release(struct repair_plan *p)
{
    settings_release(&p->settings, p->table);
}

static bool is_given(const char *text)
{
    return text && *text;
}

/* ---- The settings ---- */

static void replace(char **text, const char *with)
{
    memory_free(*text);
    *text = string_copy(with);
}

/* A schedule that counts the steps of the run before stays at its last value. */
static void stop_schedule(struct schedule *s, i64 step)
{
    double value = schedule_at(s, step);
    if (s->count == 0)
        return;
    s->count = 1;
    s->steps[0] = 0;
    s->values[0] = value;
    s->linear = false;
}

static void stop_schedules(struct repair_plan *p)
{
    struct source_list *data = &p->settings.data;
    i64 last = p->settings.steps - 1;
    for (const struct setting *row = p->table; row->key; row++)
        if (row->type == SETTING_SCHEDULE)
            stop_schedule((struct schedule *)((char *)&p->settings + row->offset), last);
    for (i64 i = 0; i < data->count; i++) {
        stop_schedule(&data->values[i].share, last);
        stop_schedule(&data->values[i].weight, last);
        data->values[i].epochs = 0;
    }
}

/* Names of other stages become paths. */
static void resolve_inputs(struct repair_plan *p, const struct record *record)
{
    for (const struct setting *row = p->table; row->key; row++) {
        char **lines;
        for (i64 i = 0; (lines = setting_lines(&p->settings, row, i)) && is_given(*lines); i++) {
            char *paths = record_paths(record, *lines);
            memory_free(*lines);
            *lines = paths;
        }
        setting_lines_done(&p->settings, row);
    }
}

static bool has_shards(const struct repair_plan *p)
{
    bool has = is_given(p->settings.data.all);
    char *folders = string_copy(has ? p->settings.data.all : ""), *rest = folders;
    for (char *folder; has && (folder = strsep(&rest, "\n"));)
        has = file_is_directory(folder) && shard_folders_exist(folder);
    memory_free(folders);
    return has;
}

/* recorded: NULL: the defaults. data: NULL: as recorded. */
static int read_settings(struct repair_plan *p, const struct json *recorded, const char *data)
{
    const struct setting_override overrides[] = {{.key = "data", .value = data}, {.key = "heldout", .value = ""}};
    struct buffer text = {0};
    if (recorded)
        json_print(&text, recorded, 0);
    struct yaml *yaml = recorded ? yaml_parse(text.data, text.length, RECORD_FILE) : NULL;
    int status =
        recorded && !yaml ? -1 : settings_read(&p->settings, p->table, yaml_root(yaml), NULL, overrides, data ? 2 : 0);
    yaml_free(yaml);
    buffer_release(&text);
    return status;
}

static bool trains(const struct record *record)
{
    return strcmp(record_kind(record), "pretrain") == 0 || strcmp(record_kind(record), "sft") == 0;
}

static int plan_read(struct repair_plan *p, const char *from, const char *data)
{
    struct record record;
    *p = (struct repair_plan){.table = pretrain_table};
    record_open(&record, from);
    while (!trains(&record) && record_before(&record))
        continue;
    const struct json *recorded = trains(&record) ? record.settings : NULL;
    p->chat = recorded && strcmp(record_kind(&record), "sft") == 0;
    p->table = p->chat ? sft_table : pretrain_table;
    int status = recorded ? read_settings(p, recorded, NULL) : 0;
    if (status == 0)
        resolve_inputs(p, &record);
    if (status == 0 && !has_shards(p) && is_given(data)) {
        settings_release(&p->settings, p->table);
        memset(&p->settings, 0, sizeof p->settings);
        status = read_settings(p, recorded, data);
    }
    if (status == 0 && !has_shards(p))
        status = error_usage("repair: no record of %s names shards that are still there: expected data (--data DIR), "
                             "the shards to train on",
                             from);
    record_close(&record);
    if (status)
        plan_release(p);
    return status;
}

/* ---- The run ---- */

static void set_steps(struct repair_plan *p, const struct repair_settings *r, const char *cut)
{
    struct pretrain_settings *s = &p->settings;
    struct optimizer_settings *o = &s->optimizer;
    double least = o->lr * o->min_lr_ratio;
    stop_schedules(p);
    replace(&s->from, cut);
    memory_free(s->continues);
    memory_free(s->best.measure);
    s->continues = s->best.measure = NULL;
    s->heldout_rows = s->heldout_rows ? min_i64(s->heldout_rows, ROWS_MOST) : ROWS_MOST;
    s->best.patience = s->routing_steps = s->heldout_steps = s->grid_steps = 0;
    s->elastic_on = false;
    s->steps = r->steps;
    o->lr *= r->lr_share;
    o->min_lr_ratio = o->lr > least ? least / o->lr : 1;
    o->warmup = 0;
    o->shape = LR_WSD;
    o->decay_share = 1;
}

int repair_run(const struct repair_settings *settings, const char *from, const char *cut, const char *data,
               const struct stage *stage)
{
    struct repair_plan p;
    if (plan_read(&p, from, data))
        return -1;
    set_steps(&p, settings, cut);
    log_info("repair: %lld %s of %s on %s, from a learning rate of %g", (long long)settings->steps,
             plural(settings->steps, "step", "steps"), p.chat ? "sft" : "pretrain", p.settings.data.all,
             p.settings.optimizer.lr);
    int status = (p.chat ? sft_stage : pretrain_stage)(&p.settings, stage);
    plan_release(&p);
    return status;
}

int repair_submodel(struct model *out, struct model *from, const struct submodel *sub,
                    const struct repair_settings *settings, const char *directory, const char *data, const char *folder)
{
    char *cut = path_join(folder, "cut"), *trained = path_join(folder, "trained");
    const struct stage stage = {.name = "repair",
                                .out = trained,
                                .temporary = true,
                                .seed = 1,
                                .recipe_seed = 1,
                                .device = from->device,
                                .dtype = from->weights.dtype,
                                .ranks = parallel_alone()};
    int status = directory_make(cut) || directory_make(trained) || submodel_save(cut, from, sub) ? -1 : 0;
    if (status == 0)
        status = repair_run(settings, directory, cut, data, &stage);
    if (status == 0)
        status = model_load(out, from->device, trained, DTYPE_OTHER, false);
    memory_free(cut);
    memory_free(trained);
    return status;
}

int repair_check(const struct repair_settings *settings, const char *from, const char *data)
{
    struct repair_plan p;
    if (settings->steps == 0)
        return 0;
    if (plan_read(&p, from, data))
        return -1;
    plan_release(&p);
    return 0;
}
