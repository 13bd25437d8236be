#include "pipeline/members.h"

#include "dist/dist.h"
#include "pipeline/identity.h"

#include <string.h>

static bool writes(const struct members *m)
{
    return m->stage->ranks->world->rank == 0;
}

static char *path_of(const struct members *m)
{
    return path_join(m->stage->out, "members.jsonl");
}

/* Reads the journal up to its last line, which is parsed. *last NULL: there is none, or it is damaged and
 * part of `text`. */
static int read_journal(struct buffer *text, struct json **last, const char *path)
{
    *last = NULL;
    buffer_append(text, "", 0);
    if (!file_exists(path))
        return 0;
    if (file_read(text, path))
        return -1;
    i64 length = text->length, begin, number = 1;
    while (length > 0 && text->data[length - 1] == '\n')
        length--;
    for (begin = length; begin > 0 && text->data[begin - 1] != '\n'; begin--)
        ;
    for (i64 i = 0; i < begin; i++)
        number += text->data[i] == '\n';
    *last = length > begin ? json_parse_line(text->data + begin, length - begin, path, number) : NULL;
    if (length > begin && !*last)
        log_warn("%s; this run cannot be replayed", error_text());
    text->length = *last ? begin : length;
    if (!*last && length > 0)
        buffer_append(text, "\n", 1);
    return 0;
}

static void add_line(struct buffer *text, const struct json *line)
{
    if (!line)
        return;
    json_print(text, line, 0);
    buffer_append(text, "\n", 1);
}

static struct json *ended(const char *how)
{
    struct json *left = json_object();
    json_set(left, "how", json_of_string(how));
    return left;
}

/* A world that could not say how it ended. */
static void close_line(const struct members *m, struct json *line)
{
    const char *world = json_string(json_get(line, "world"), NULL);
    struct json *left = NULL;
    if (!line || json_get(line, "left"))
        return;
    if (world && m->options->ranks_left)
        left = m->options->ranks_left(m->options->ranks_context, world);
    json_set(line, "left", left ? left : ended("not known"));
}

/* NULL: sums go to all ranks at once. */
static struct json *machines_of(struct comm *world)
{
    const struct comm_machines *m = comm_host(world)->machines;
    struct json *list = m->count > 1 ? json_array() : NULL;
    for (i64 r = 0; r < world->size && list; r++)
        json_push(list, json_of_integer(m->of[r]));
    return list;
}

/* NULL: they lie in a row. */
static struct json *experts_of(const struct members *m)
{
    struct json *list = m->placement ? json_array() : NULL;
    for (i64 l = 0; l < m->layers && list; l++) {
        struct json *layer = json_array();
        for (i64 i = 0; i < m->experts; i++)
            json_push(layer, json_of_integer(m->placement[l * m->experts + i]));
        json_push(list, layer);
    }
    return list;
}

static struct json *line_of(const struct members *m, i64 done, bool begins)
{
    const struct parallel *ranks = m->stage->ranks;
    struct json *line = json_object();
    struct json *machines = machines_of(ranks->world), *experts = experts_of(m);
    struct buffer layout = {0};
    layout_print(&layout, &ranks->layout);
    json_set(line, "step", json_of_integer(done));
    json_set(line, "begins", json_of_bool(begins));
    json_set(line, "ranks", json_of_integer(ranks->world->size));
    json_set(line, "layout", json_of_string(layout.data));
    if (machines)
        json_set(line, "machines", machines);
    json_set(line, "deal", json_of_string("even"));
    if (experts)
        json_set(line, "experts", experts);
    json_set(line, "device", json_of_string(device_name(m->stage->device)));
    json_set(line, "stage", json_of_string(m->stage->name));
    json_set(line, "of", identity_digests(m->identity));
    buffer_release(&layout);
    return line;
}

static int begin(void *context, i64 done, bool begins)
{
    struct members *m = context;
    struct json *last, *line;
    struct buffer text = {0};
    if (!writes(m))
        return 0;
    char *path = path_of(m);
    int status = read_journal(&text, &last, path);
    close_line(m, last);
    line = line_of(m, done, begins);
    if (status == 0 && m->options->ranks_begin)
        status = m->options->ranks_begin(m->options->ranks_context, line, path);
    add_line(&text, last);
    add_line(&text, line);
    if (status == 0)
        status = file_replace(path, text.data, text.length);
    m->begun = status == 0;
    m->done = done;
    json_free(last);
    json_free(line);
    buffer_release(&text);
    memory_free(path);
    return status;
}

static bool change(void *context, i64 done)
{
    struct members *m = context;
    m->done = done;
    return m->options->ranks_change && m->options->ranks_change(m->options->ranks_context, done);
}

/* Adds a deal to the line of this world. */
static int note_deal(const struct members *m, i64 done, const i64 *parts, i64 groups)
{
    struct json *last, *one = json_object(), *list = json_array(), *deals;
    struct buffer text = {0};
    char *path = path_of(m);
    int status = read_journal(&text, &last, path);
    for (i64 g = 0; g < groups; g++)
        json_push(list, json_of_integer(parts[g]));
    json_set(one, "step", json_of_integer(done));
    json_set(one, "parts", list);
    deals = json_get(last, "deals") ? json_copy(json_get(last, "deals")) : json_array();
    json_push(deals, one);
    if (last) {
        json_set(last, "deal", json_of_string("speed"));
        json_set(last, "deals", deals);
        add_line(&text, last);
    } else {
        json_free(deals);
    }
    if (status == 0 && last)
        status = file_replace(path, text.data, text.length);
    json_free(last);
    buffer_release(&text);
    memory_free(path);
    return status;
}

/* The line is written before the step that is dealt so, for a snapshot may hold it. */
static int deal(void *context, i64 done, i64 *parts, i64 groups)
{
    struct members *m = context;
    const struct run_options *o = m->options;
    bool same = true;
    if (o->ranks_deal)
        o->ranks_deal(o->ranks_context, m->stage->name, done, parts, groups);
    for (i64 g = 0; g < groups; g++)
        same &= parts[g] == (m->parts ? m->parts[g] : parts[0]);
    if (same)
        return 0;
    if (!m->parts)
        m->parts = memory_alloc(groups * (i64)sizeof *m->parts);
    memcpy(m->parts, parts, (size_t)groups * sizeof *parts);
    return writes(m) ? note_deal(m, done, parts, groups) : 0;
}

static int place(void *context, i32 *placement, i64 layers, i64 experts)
{
    struct members *m = context;
    const struct run_options *o = m->options;
    i64 bytes = layers * experts * (i64)sizeof *placement;
    if (o->ranks_place && o->ranks_place(o->ranks_context, m->stage->name, placement, layers, experts))
        return -1;
    memory_free(m->placement);
    m->placement = placement_is_in_a_row(placement, layers, experts) ? NULL : memory_alloc(bytes);
    m->layers = layers;
    m->experts = experts;
    if (m->placement)
        memcpy(m->placement, placement, (size_t)bytes);
    return 0;
}

void members_watch(struct members *m, struct stage *stage)
{
    stage->ranks_begin = begin;
    stage->ranks_change = change;
    stage->ranks_deal = deal;
    stage->ranks_place = place;
    stage->ranks_context = m;
}

int members_end(struct members *m, int status)
{
    const char *how = status == 0                   ? "done"
                      : status == STAGE_INTERRUPTED ? "interrupted"
                      : status == STAGE_RANKS       ? "others go on"
                                                    : NULL;
    struct json *last;
    struct buffer text = {0};
    memory_free(m->parts);
    memory_free(m->placement);
    m->parts = NULL;
    m->placement = NULL;
    if (!m->begun || !how)
        return 0;
    char *path = path_of(m);
    int written = read_journal(&text, &last, path);
    if (written == 0 && last) {
        struct json *left = ended(how);
        json_set(left, "step", json_of_integer(m->done));
        json_set(last, "left", left);
        add_line(&text, last);
        written = file_replace(path, text.data, text.length);
    }
    json_free(last);
    buffer_release(&text);
    memory_free(path);
    return written;
}
