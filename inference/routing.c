#include "inference/routing.h"

#include "kernels/device/dry_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(member, key, type, fallback, low, high, help)                                                              \
    SETTING(struct routing_settings, member, key, type, fallback, low, high, NULL, help)
const struct setting routing_table[] = {
    ROW(from, "from", REFERENCE, NULL, 0, 0, "model to analyse"),
    ROW(data, "data", REFERENCES, NULL, 0, 0, DATA_HELP),
    ROW(part, "part", STRING, "validation", 0, 0, "split of the shards"),
    ROW(rows, "rows", INTEGER, "0", 0, 1e9, "maximum rows to analyse; 0: all"),
    ROW(length, "length", INTEGER, "512", 8, 1 << 20, "positions per row"),
    ROW(trace, "trace", INTEGER, "0", 0, 1e9, "positions to log individually with their experts"),
    SUBMODEL_ROWS(struct routing_settings, sub),
    {0}};

struct look { /* state of one pass */
    struct routing_counts counts;
    i64 trace, position;
    struct file_writer writer;
};

static void trace_position(struct look *look, const struct batch *batch, const i32 *routes, i64 i, struct text *line)
{
    const struct routing_counts *c = &look->counts;
    for (i64 l = 0; l < c->layers; l++) {
        const i32 *chosen = routes + (c->layer[l] * batch->n + i) * c->topk;
        text_clear(line);
        text_printf(line, "{\"position\":%lld,\"sample\":%d,\"stream\":\"%s\",\"layer\":%d,\"experts\":[",
                    (long long)look->position, batch->sample[i], stream_rows[batch->stream[i]].name, c->layer[l]);
        for (i64 k = 0; k < c->topk && chosen[k] >= 0; k++)
            text_printf(line, "%s%d", k ? "," : "", c->expert[l * c->experts + chosen[k]]);
        text_printf(line, "]}\n");
        file_write(&look->writer, line->data, line->length);
    }
}

static void look_at(void *context, const struct batch *batch, const struct forward *forward, const i32 *routes)
{
    (void)forward;
    struct look *look = context;
    struct text line = {0};
    routing_count(&look->counts, batch, routes);
    for (i64 i = 0; i < batch->n && look->position < look->trace; i++)
        if (batch->sample[i] >= 0) {
            trace_position(look, batch, routes, i, &line);
            look->position++;
        }
    text_release(&line);
}

static struct heldout_pass pass_of(const struct routing_settings *s)
{
    return (struct heldout_pass){s->data, s->part, s->length, s->rows, .want_routes = true};
}

/* Opens trace.jsonl if wanted, and closes it on every path. */
static int walk(struct look *look, const struct routing_settings *s, const char *out, struct model *model,
                const struct submodel *sub)
{
    struct heldout_pass pass = pass_of(s);
    pass.visit = look_at;
    pass.context = look;
    look->trace = s->trace;
    if (s->trace == 0)
        return heldout_walk(&pass, model, sub);
    char *path = path_join(out, "trace.jsonl");
    int status = file_writer_open(&look->writer, path);
    memory_free(path);
    if (status)
        return -1;
    status = heldout_walk(&pass, model, sub);
    if (status)
        file_writer_abandon(&look->writer);
    else
        status = file_writer_commit(&look->writer);
    return status;
}

static int save(const struct routing_settings *s, const char *out, const struct look *look, const struct model *model,
                const struct submodel *sub)
{
    struct json *j = routing_json(&look->counts);
    char *path = path_join(out, "routing.json");
    json_set(j, "part", json_of_string(s->part));
    json_set(j, "submodel", submodel_to_json(sub, &model->config));
    int status = json_save(path, j);
    if (status == 0)
        status = routing_save_tables(&look->counts, out);
    if (status == 0)
        status = routing_save_pictures(&look->counts, out);
    json_free(j);
    memory_free(path);
    return status;
}

static int measure(const struct routing_settings *s, const char *out, struct model *model)
{
    struct look look = {0};
    struct submodel sub;
    struct arena arena;
    arena_open(&arena, 64 << 20);
    int status = submodel_parse(&sub, &arena, &s->sub, model);
    if (status == 0) {
        routing_counts_init(&look.counts, &model->config, &sub);
        status = look.counts.layers
                     ? walk(&look, s, out, model, &sub)
                     : error_set("%s: no layer of it has experts, so there is no routing to look at", s->from);
        if (status == 0)
            status = save(s, out, &look, model, &sub);
        routing_counts_release(&look.counts);
    }
    arena_close(&arena);
    return status;
}

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct routing_settings *s = context;
    const struct heldout_pass pass = pass_of(s);
    struct model model;
    (void)out;
    if (model_load(&model, meta, s->from, DTYPE_OTHER, false))
        return -1;
    int status = heldout_dry_run(&model, &s->sub, &pass);
    model_close(&model);
    return status;
}

int routing_measure(const struct routing_settings *settings, const char *out, struct device *device)
{
    static const struct reduction reductions[] = {{"length"}, {0}};
    struct routing_settings s = *settings;
    const struct dry_run check = {s.from, run, &s, SMALLER_MODEL, &s, routing_table, reductions};
    struct model model;
    if (dry_run_check(&check, device) || model_load(&model, device, s.from, DTYPE_OTHER, false))
        return -1;
    int status = measure(settings, out, &model);
    model_close(&model);
    return status;
}

int routing_stage(const void *settings, const struct stage *stage)
{
    return routing_measure(settings, stage->out, stage->device);
}
