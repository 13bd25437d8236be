#include "routing/routing.h"
#include "report/report.h"

#include "data/sources/sources.h"
#include "kernels/device/dry_run.h"
#include "train/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(member, key, type, fallback, low, high, help)                                                              \
    SETTING(struct routing_settings, member, key, type, fallback, low, high, NULL, help)
const struct setting routing_table[] = {
    ROW(from, "from", REFERENCE, NULL, 0, 0, "model to analyse"),
    ROW(data, "data", REFERENCES, NULL, 0, 0, DATA_HELP),
    ROW(split, "part", STRING, "validation", 0, 0, "split of the shards"),
    ROW(rows, "rows", INTEGER, "0", 0, 1e9, "maximum rows to analyse; 0: all"),
    ROW(length, "length", INTEGER, "512", 8, 1 << 20, "positions per row"),
    ROW(trace, "trace", INTEGER, "0", 0, 1e9, "positions to log individually with their experts"),
    SUBMODEL_ROWS(struct routing_settings, sub),
    {0}};

struct trace_state { /* state of one pass */
    struct routing_counts counts;
    i64 trace, position;
    struct file_writer writer;
};

static void trace_position(struct trace_state *trace_state, const struct batch *batch, const i32 *routes, i64 i,
                           struct buffer *line)
{
    const struct routing_counts *c = &trace_state->counts;
    for (i64 l = 0; l < c->layers; l++) {
        const i32 *chosen = routes + (c->layer[l] * batch->n + i) * c->topk;
        buffer_clear(line);
        buffer_printf(line, "{\"position\":%lld,\"sample\":%d,\"stream\":\"%s\",\"layer\":%d,\"experts\":[",
                      (long long)trace_state->position, batch->sample[i], stream_rows[batch->stream[i]].name,
                      c->layer[l]);
        for (i64 k = 0; k < c->topk && chosen[k] >= 0; k++)
            buffer_printf(line, "%s%d", k ? "," : "", c->expert[l * c->experts + chosen[k]]);
        buffer_printf(line, "]}\n");
        file_write(&trace_state->writer, line->data, line->length);
    }
}

static void count_batch(void *context, const struct batch *batch, const struct forward *forward, const i32 *routes)
{
    (void)forward;
    struct trace_state *trace_state = context;
    struct buffer line = {0};
    routing_count(&trace_state->counts, batch, routes, NULL);
    for (i64 i = 0; i < batch->n && trace_state->position < trace_state->trace; i++)
        if (batch->sample[i] >= 0) {
            trace_position(trace_state, batch, routes, i, &line);
            trace_state->position++;
        }
    buffer_release(&line);
}

static struct heldout_pass pass_of(const struct routing_settings *s)
{
    return (struct heldout_pass){s->data, s->split, s->length, s->rows, .want_routes = true};
}

/* Opens trace.jsonl if wanted, and closes it on every path. */
static int run_pass(struct trace_state *trace_state, const struct routing_settings *s, const char *out,
                    struct model *model, const struct submodel *sub)
{
    struct heldout_pass pass = pass_of(s);
    pass.visit = count_batch;
    pass.context = trace_state;
    trace_state->trace = s->trace;
    if (s->trace == 0)
        return heldout_walk(&pass, model, sub);
    char *path = path_join(out, "trace.jsonl");
    int status = file_writer_open(&trace_state->writer, path);
    memory_free(path);
    if (status)
        return -1;
    status = heldout_walk(&pass, model, sub);
    if (status)
        file_writer_abandon(&trace_state->writer);
    else
        status = file_writer_commit(&trace_state->writer);
    return status;
}

static int save(const struct routing_settings *s, const char *out, const struct trace_state *trace_state,
                const struct model *model, const struct submodel *sub)
{
    struct json *j = routing_json(&trace_state->counts);
    char *path = path_join(out, "routing.json");
    json_set(j, "part", json_of_string(s->split));
    json_set(j, "submodel", submodel_to_json(sub, &model->config));
    int status = json_save(path, j);
    if (status == 0)
        status = routing_save_tables(&trace_state->counts, out);
    if (status == 0)
        status = report_routing(out, j);
    json_free(j);
    memory_free(path);
    return status;
}

static int measure(const struct routing_settings *s, const char *out, struct model *model)
{
    struct trace_state trace_state = {0};
    struct submodel sub;
    struct arena arena;
    arena_open(&arena, 64 << 20);
    int status = submodel_parse(&sub, &arena, &s->sub, model);
    if (status == 0) {
        routing_counts_init(&trace_state.counts, &model->config, &sub);
        status = trace_state.counts.layers
                     ? run_pass(&trace_state, s, out, model, &sub)
                     : error_set("%s: no layer has experts, so there is no routing to measure", s->from);
        if (status == 0)
            status = save(s, out, &trace_state, model, &sub);
        routing_counts_release(&trace_state.counts);
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
    int status = submodel_dry_run(&model, &s->sub, &pass);
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

int routing_check_settings(const void *settings)
{
    return split_check("part", ((const struct routing_settings *)settings)->split);
}

int routing_stage(const void *settings, const struct stage *stage)
{
    int status = routing_measure(settings, stage->out, stage->device);
    return status == 0 ? events_add_folder(stage->out, "", 0) : status;
}
