#include "submodels/submodels.h"

#include "core/json.h"
#include "data/sources/sources.h"
#include "submodels/grid_speed.h"
#include "kernels/device/dry_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFILL_MOST = 512 }; /* positions of the prompt whose reading is timed */

#define ROW(member, key, type, fallback, low, high, help)                                                              \
    SETTING(struct grid_settings, member, key, type, fallback, low, high, NULL, help)
const struct setting grid_table[] = {
    ROW(from, "from", REFERENCE, NULL, 0, 0, "model whose sub-models are measured"),
    ROW(data, "data", REFERENCES, NULL, 0, 0, DATA_HELP),
    ROW(split, "part", STRING, "validation", 0, 0, "split of the shards"),
    ROW(rows, "rows", INTEGER, "64", 0, 1e9, "maximum rows to measure; 0: all"),
    ROW(length, "length", INTEGER, "512", 8, 1 << 20, "positions per row"),
    ROW(decode_tokens, "decode_tokens", INTEGER, "64", 1, 1e6, "tokens that each sub-model decodes in a round"),
    ROW(rounds, "rounds", INTEGER, "12", 1, 10000, "rounds over all sub-models in which their speed is measured"),
    SETTING(struct grid_settings, choose, "choose", CHOICE, "auto", 0, 0, "auto|data|use",
            "layers and experts that stay: data (those that samples need most, as extract with data), use (the first "
            "of the order that training fixed, or else the experts that it used most, and layers evenly spread); "
            "auto: use if there is an order and no choose_part, else data"),
    ROW(choose_part, "choose_part", STRING, "", 0, 0,
        "split by which data chooses; none: validation, or train where part is validation or validation is empty"),
    ROW(choose_rows, "choose_rows", INTEGER, "4", 1, 1e9, "maximum rows of each direction by which data chooses"),
    SETTING(struct grid_settings, family, "family", SIZES, "", 1, 65536, ELASTIC_SIZE_NAMES,
            "sizes to measure in place of the grid, [{layers: 12, experts: 32, topk: 4}, ...]"),
    REPAIR_ROWS(struct grid_settings, repair),
    {0}};

static bool is_given(const char *text)
{
    return text && *text;
}

static int check_choice(const struct grid_settings *s)
{
    if (is_given(s->choose_part) && s->choose == GRID_BY_USE)
        return error_usage("choose_part: %s: nothing is chosen by samples: expected choose: data", s->choose_part);
    return 0;
}

int grid_check_settings(const void *settings)
{
    const struct grid_settings *s = settings;
    return split_check("part", s->split) || split_check("choose_part", s->choose_part) || check_choice(s) ? -1 : 0;
}

/* The pass by which the settings choose. split NULL: they do not choose by data. */
static int choice_pass(struct heldout_pass *pass, const struct grid_settings *s)
{
    *pass = (struct heldout_pass){.directory = s->data, .length = s->length, .most_rows = s->choose_rows};
    return s->name ? 0 : grid_choice_part(&pass->split, s);
}

static struct grid_speed_settings speed_of(const struct grid_settings *s, i64 rounds)
{
    return (struct grid_speed_settings){rounds, min_i64(s->length, PREFILL_MOST), s->decode_tokens};
}

/* ---- Sub-models ---- */

static int add_name(struct grid_result *out, const struct model *model, const char *directory, const char *name)
{
    struct grid_point *point = &out->points[out->count];
    struct submodel_name named;
    if (out->count == GRID_MOST)
        return error_set("%s: the grid has room for %d sub-models: remove some of weft/submodels.json", directory,
                         GRID_MOST);
    if (submodel_name_load(&named, directory, name))
        return -1;
    memset(point, 0, sizeof *point);
    int status = submodel_parse(&point->sub, &out->memory, &named.options, model);
    submodel_name_release(&named);
    if (status)
        return -1;
    snprintf(point->name, sizeof point->name, "@%s", name);
    point->chosen = "name";
    grid_point_set_size(point, model);
    out->count++;
    return 0;
}

static void warn_without_counts(const struct model *model, const struct grid_settings *s)
{
    if (model->config.first_moe_layer < model->config.layers && !model_has_use(model))
        log_warn("%s does not count how often its experts are used: no sub-models with fewer experts are measured; "
                 "choose: data (--choose data) measures which are needed, on another part than %s",
                 s->from, s->split);
}

/* The grid without names. What nested draws have trained stays, unless samples are asked for. On the
 * meta backend it is chosen as without samples: sizes are the same. */
static int list_grid(struct grid_result *out, struct model *model, const struct grid_settings *s)
{
    struct heldout_pass pass = {0};
    bool meta = model->device->backend == BACKEND_META,
         ordered = s->choose == GRID_AUTO && model->order && !is_given(s->choose_part);
    if (elastic_check_sizes("family", &s->family, 1, &model->config))
        return -1;
    if (!meta && !s->name && !ordered && choice_pass(&pass, s))
        return -1;
    if (pass.split)
        return grid_choose(out, model, &pass, &s->family);
    if (!meta && !s->name && !ordered && s->choose != GRID_BY_USE)
        log_warn("%s: neither validation nor train has samples beside those measured: sub-models are chosen by use",
                 s->data);
    out->count = elastic_grid(out->points, s->name ? 1 : GRID_MOST, &out->memory, model, &s->family);
    if (!meta && !s->name)
        warn_without_counts(model, s);
    return 0;
}

/* The grid, and the sub-models with names. */
static int list_points(struct grid_result *out, struct model *model, const struct grid_settings *s)
{
    struct json_iterator each;
    arena_open(&out->memory, 64 << 20);
    int status = list_grid(out, model, s);
    if (status)
        return status;
    if (s->name)
        return add_name(out, model, s->from, s->name);
    struct json *names = submodel_names(s->from);
    status = names ? 0 : -1;
    for (bool more = json_first(&each, names); more && status == 0; more = json_next(&each, names))
        status = add_name(out, model, s->from, each.key);
    json_free(names);
    return status;
}

/* ---- Memory estimate: the full model over held-out rows, then the decoders of all sub-models ---- */

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct grid_settings *s = context;
    const struct heldout_pass pass = {s->data, s->split, s->length, s->rows};
    const struct grid_speed_settings speed = speed_of(s, 0);
    struct heldout_pass chosen;
    struct grid_result grid;
    struct model model;
    (void)out;
    if (choice_pass(&chosen, s) || model_load(&model, meta, s->from, DTYPE_OTHER, false))
        return -1;
    int status = chosen.split ? heldout_dry_run(&model, NULL, &chosen) : 0;
    if (status == 0)
        status = heldout_dry_run(&model, NULL, &pass);
    if (status == 0) {
        status = list_points(&grid, &model, s);
        if (status == 0)
            status = grid_speed_measure(grid.points, grid.count, &model, &speed);
        arena_close(&grid.memory);
    }
    model_close(&model);
    return status;
}

/* ---- Measuring ---- */

static int measure_point(struct grid_result *out, i64 number, struct model *model, const struct submodel *sub,
                         const struct grid_settings *s)
{
    struct grid_point *point = &out->points[number];
    struct heldout h;
    double weights[TARGETS];
    int status = heldout_measure(&h, model, sub, s->data, s->split, s->length, s->rows);
    if (status)
        return status;
    if (number == 0)
        heldout_warn(&h, s->split, s->length);
    if (loss_weights_load(weights, s->from))
        return -1;
    for (int kind = 0; kind < TARGETS; kind++)
        point->loss[kind] = heldout_mean(&h, kind);
    for (int stream = 0; stream < LOSS_STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++)
            out->streams[number][stream][kind] = heldout_loss(&h, stream, kind);
    point->loss_all = heldout_sum(&h, weights);
    return 0;
}

/* Cuts the point out, trains it on, and measures what comes of it. */
static int measure_repaired(struct grid_result *out, i64 number, struct model *model, const struct grid_settings *s)
{
    const char *temporary = getenv("TMPDIR");
    char *beside = path_join(temporary && *temporary ? temporary : "/tmp", "weft-grid"),
         *folder = directory_make_temporary(beside);
    struct model repaired;
    struct submodel full;
    log_info("%s:", out->points[number].name);
    int status =
        folder ? repair_submodel(&repaired, model, &out->points[number].sub, &s->repair, s->from, s->data, folder) : -1;
    if (status == 0) {
        submodel_full(&full, &repaired.config);
        status = measure_point(out, number, &repaired, &full, s);
        model_close(&repaired);
    }
    if (folder && directory_remove(folder) && status == 0)
        status = -1;
    memory_free(beside);
    memory_free(folder);
    return status;
}

static int measure_points(struct grid_result *out, struct model *model, const struct grid_settings *s)
{
    const struct grid_speed_settings speed = speed_of(s, s->rounds);
    struct progress bar;
    int status = 0;
    progress_init(&bar, "sub-models", out->count);
    for (i64 i = 0; i < out->count && status == 0; i++) {
        bool repairs = i > 0 && s->repair.steps;
        status = repairs ? measure_repaired(out, i, model, s) : measure_point(out, i, model, &out->points[i].sub, s);
        progress_update(&bar, i + 1, "%s", out->points[i].name);
    }
    progress_close(&bar);
    return status ? status : grid_speed_measure(out->points, out->count, model, &speed);
}

int grid_measure_all(struct grid_result *out, const struct grid_settings *s, struct device *device)
{
    static const struct reduction reductions[] = {{"length", .with_next = true}, {"decode_tokens"}, {0}};
    struct grid_settings tried = *s;
    const struct dry_run check = {s->from, run, &tried, SMALLER_MODEL, &tried, grid_table, reductions};
    struct model model;
    memset(out, 0, sizeof *out);
    if (check_choice(s) || repair_check(&s->repair, s->from, s->data) || dry_run_check(&check, device) ||
        model_load(&model, device, s->from, DTYPE_OTHER, false))
        return -1;
    out->config = model.config;
    out->repaired = s->repair.steps;
    int status = list_points(out, &model, s);
    if (status == 0)
        status = measure_points(out, &model, s);
    model_close(&model);
    if (status)
        grid_result_release(out);
    return status;
}

void grid_result_release(struct grid_result *result)
{
    arena_close(&result->memory);
    result->count = 0;
}

static struct json *speed_json(const struct grid_speed *speed)
{
    struct json *j = json_object();
    json_set(j, "per_s", json_of_number(speed->per_s));
    json_set(j, "per_s_low", json_of_number(speed->low));
    json_set(j, "per_s_high", json_of_number(speed->high));
    json_set(j, "ratio", json_of_number(speed->ratio));
    json_set(j, "ratio_low", json_of_number(speed->ratio_low));
    json_set(j, "ratio_high", json_of_number(speed->ratio_high));
    return j;
}

/* Name of a stream's losses of one kind. */
static char *column_name(int stream, int kind)
{
    return string_format("%s/%s", heldout_stream_name(stream), target_rows[kind].name);
}

struct json *grid_point_json(const struct grid_result *r, i64 i)
{
    const struct grid_point *p = &r->points[i];
    struct json *j = json_object(), *loss = json_object(), *streams = json_object();
    for (int kind = 0; kind < TARGETS; kind++)
        if (isfinite(p->loss[kind]))
            json_set(loss, target_rows[kind].name, json_of_number(p->loss[kind]));
    for (int stream = 0; stream < LOSS_STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++)
            if (isfinite(r->streams[i][stream][kind])) {
                char *name = column_name(stream, kind);
                json_set(streams, name, json_of_number(r->streams[i][stream][kind]));
                memory_free(name);
            }
    json_set(j, "name", json_of_string(p->name));
    if (p->chosen)
        json_set(j, "chosen", json_of_string(p->chosen));
    if (p->chosen && strcmp(p->chosen, "data") == 0)
        json_set(j, "chosen_on", json_of_string(r->chosen_on));
    json_set(j, "submodel", submodel_to_json(&p->sub, &r->config));
    json_set(j, "parameters", json_of_integer(p->parameters));
    json_set(j, "active", json_of_integer(p->active));
    json_set(j, "bytes", json_of_integer(p->bytes));
    json_set(j, "cost", json_of_number(p->cost));
    if (i > 0 && r->repaired)
        json_set(j, "repaired_steps", json_of_integer(r->repaired));
    json_set(j, "loss", loss);
    json_set(j, "loss_all", json_of_number(p->loss_all));
    json_set(j, "streams", streams);
    json_set(j, "tokens_per_s", json_of_number(p->tokens_per_s));
    json_set(j, "decode", speed_json(&p->decode));
    json_set(j, "prefill", speed_json(&p->prefill));
    return j;
}

static void put_loss(struct buffer *out, double loss)
{
    if (isfinite(loss))
        buffer_printf(out, " %8.4f", loss);
    else
        buffer_printf(out, " %8s", "-");
}

static int by_decoding(const void *a, const void *b)
{
    const struct grid_point *x = *(const struct grid_point *const *)a, *y = *(const struct grid_point *const *)b;
    return x->decode.ratio != y->decode.ratio ? (x->decode.ratio > y->decode.ratio ? 1 : -1) : (x > y) - (x < y);
}

static void put_speed(struct buffer *out, const struct grid_speed *speed)
{
    buffer_printf(out, " %9.1f %6.3f %5.3f-%5.3f", speed->per_s, speed->ratio, speed->ratio_low, speed->ratio_high);
}

/* The losses of the streams that the full model has losses of. */
static void print_streams(struct buffer *out, const struct grid_result *r, const struct grid_point *const *order)
{
    buffer_printf(out, "%-30s", "loss by stream");
    for (int stream = 0; stream < LOSS_STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++)
            if (isfinite(r->streams[0][stream][kind])) {
                char *name = column_name(stream, kind);
                buffer_printf(out, " %16s", name);
                memory_free(name);
            }
    buffer_printf(out, "\n");
    for (i64 i = 0; i < r->count; i++) {
        buffer_printf(out, "%-30s", order[i]->name);
        for (int stream = 0; stream < LOSS_STREAMS; stream++)
            for (int kind = 0; kind < TARGETS; kind++)
                if (isfinite(r->streams[0][stream][kind]))
                    buffer_printf(out, " %16.4f", r->streams[order[i] - r->points][stream][kind]);
        buffer_printf(out, "\n");
    }
}

void grid_print(struct buffer *out, const struct grid_result *r)
{
    const struct grid_point *order[GRID_MOST];
    buffer_printf(out, "%-30s %6s %7s %4s %9s %9s %9s %8s", "sub-model", "layers", "experts", "topk", "params M",
                  "active M", "MB", "all");
    for (int kind = 0; kind < TARGETS; kind++)
        buffer_printf(out, " %8s", target_rows[kind].name);
    buffer_printf(out, " %9s %6s %11s %9s %6s %11s  %s\n", "decode/s", "ratio", "quartiles", "prefill/s", "ratio",
                  "quartiles", "chosen by");
    for (i64 i = 0; i < r->count; i++)
        order[i] = &r->points[i];
    qsort(order, (size_t)r->count, sizeof order[0], by_decoding);
    for (i64 i = 0; i < r->count; i++) {
        const struct grid_point *p = order[i];
        buffer_printf(out, "%-30s %6lld %7lld %4lld %9.2f %9.2f %9.1f", p->name, (long long)p->sub.layer_count,
                      (long long)p->sub.expert_count, (long long)p->sub.topk, (double)p->parameters * 1e-6,
                      (double)p->active * 1e-6, (double)p->bytes * 1e-6);
        put_loss(out, p->loss_all);
        for (int kind = 0; kind < TARGETS; kind++)
            put_loss(out, p->loss[kind]);
        put_speed(out, &p->decode);
        put_speed(out, &p->prefill);
        buffer_printf(out, "  %s", p->chosen ? p->chosen : "-");
        if (p->chosen && strcmp(p->chosen, "data") == 0)
            buffer_printf(out, " (%s)", r->chosen_on);
        buffer_append(out, "\n", 1);
    }
    print_streams(out, r, order);
}

static int save(const struct grid_result *r, const char *directory)
{
    struct json *all = json_array();
    char *path = path_join(directory, "grid.json");
    for (i64 i = 0; i < r->count; i++)
        json_push(all, grid_point_json(r, i));
    int status = json_save(path, all);
    json_free(all);
    memory_free(path);
    return status;
}

int grid_stage(const void *settings, const struct stage *stage)
{
    struct grid_result result;
    struct buffer table = {0};
    int status = grid_measure_all(&result, settings, stage->device);
    if (status)
        return status;
    grid_print(&table, &result);
    for (char *rest = table.data, *line; (line = strsep(&rest, "\n")) && (rest || *line);)
        log_info("%s", line);
    status = save(&result, stage->out);
    buffer_release(&table);
    grid_result_release(&result);
    return status;
}
