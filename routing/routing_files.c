/* Routing counts as JSON and CSV. */
#include "routing/routing.h"

#include <math.h>

static struct json *stream_json(const struct routing_counts *c, i64 layer, enum stream stream)
{
    struct json *j = json_object(), *counts = json_array();
    const i64 *use = routing_use(c, layer, stream);
    for (i64 e = 0; e < c->experts; e++)
        json_push(counts, json_of_integer(use[e]));
    json_set(j, "counts", counts);
    json_set(j, "entropy", json_of_number(routing_entropy(use, c->experts)));
    return j;
}

static struct json *overlap_json(const struct routing_counts *c, i64 layer)
{
    struct json *rows = json_array();
    for (int a = 0; a < STREAMS; a++) {
        struct json *row = json_array();
        for (int b = 0; b < STREAMS; b++)
            json_push(row,
                      json_of_number(routing_overlap(routing_use(c, layer, a), routing_use(c, layer, b), c->experts)));
        json_push(rows, row);
    }
    return rows;
}

static struct json *layer_json(const struct routing_counts *c, i64 layer)
{
    struct json *j = json_object(), *experts = json_array(), *streams = json_object();
    for (i64 e = 0; e < c->experts; e++)
        json_push(experts, json_of_integer(c->expert[layer * c->experts + e]));
    for (int s = 0; s < STREAMS; s++)
        if (c->positions[s])
            json_set(streams, stream_rows[s].name, stream_json(c, layer, s));
    json_set(j, "layer", json_of_integer(c->layer[layer]));
    json_set(j, "experts", experts);
    json_set(j, "streams", streams);
    json_set(j, "overlap", overlap_json(c, layer));
    return j;
}

struct json *routing_json(const struct routing_counts *c)
{
    struct json *j = json_object(), *names = json_array(), *positions = json_object(), *layers = json_array();
    for (int s = 0; s < STREAMS; s++) {
        json_push(names, json_of_string(stream_rows[s].name));
        json_set(positions, stream_rows[s].name, json_of_integer(c->positions[s]));
    }
    for (i64 l = 0; l < c->layers; l++)
        json_push(layers, layer_json(c, l));
    json_set(j, "streams", names);
    json_set(j, "positions", positions);
    json_set(j, "topk", json_of_integer(c->topk));
    json_set(j, "experts", json_of_integer(c->experts));
    json_set(j, "layers", layers);
    return j;
}

static void put_number(struct buffer *out, double value)
{
    if (isfinite(value))
        buffer_printf(out, ",%.6f\n", value);
    else
        buffer_printf(out, ",\n");
}

static void use_csv(struct buffer *out, const struct routing_counts *c, i64 l, enum stream s)
{
    const i64 *use = routing_use(c, l, s);
    for (i64 e = 0; e < c->experts && c->positions[s]; e++) {
        buffer_printf(out, "%d,%s,%d,%lld", c->layer[l], stream_rows[s].name, c->expert[l * c->experts + e],
                      (long long)use[e]);
        put_number(out, (double)use[e] / (double)c->positions[s]);
    }
}

static void overlap_csv(struct buffer *out, const struct routing_counts *c, i64 l, enum stream s)
{
    for (int other = 0; other < STREAMS; other++)
        if (other != (int)s && c->positions[s] && c->positions[other]) {
            buffer_printf(out, "%d,%s,%s", c->layer[l], stream_rows[s].name, stream_rows[other].name);
            put_number(out, routing_overlap(routing_use(c, l, s), routing_use(c, l, other), c->experts));
        }
}

static void entropy_csv(struct buffer *out, const struct routing_counts *c, i64 l, enum stream s)
{
    if (c->positions[s]) {
        buffer_printf(out, "%d,%s", c->layer[l], stream_rows[s].name);
        put_number(out, routing_entropy(routing_use(c, l, s), c->experts));
    }
}

static const struct {
    const char *name, *head;
    void (*rows)(struct buffer *out, const struct routing_counts *counts, i64 layer, enum stream stream);
} tables[] = {
    {"use.csv", "layer,stream,expert,positions,frequency\n", use_csv},
    {"overlap.csv", "layer,stream,other,iou\n", overlap_csv},
    {"entropy.csv", "layer,stream,entropy\n", entropy_csv},
};

int routing_save_tables(const struct routing_counts *c, const char *directory)
{
    int status = 0;
    for (i64 t = 0; t < COUNT_OF(tables) && status == 0; t++) {
        struct buffer out = {0};
        char *path = path_join(directory, tables[t].name);
        buffer_printf(&out, "%s", tables[t].head);
        for (i64 l = 0; l < c->layers; l++)
            for (int s = 0; s < STREAMS; s++)
                tables[t].rows(&out, c, l, s);
        status = file_replace(path, out.data, out.length);
        buffer_release(&out);
        memory_free(path);
    }
    return status;
}
