#include "train/events.h"
#include "train/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct metrics {
    char *path;
    FILE *file;
    struct json *line, *nonfinite;
    struct events *events;
    struct event_value *values;
    i64 step, count, capacity;
};

/* Keeps complete lines up to the step the run resumes from. The run writes a torn last line
 * and later lines again. A damaged line is dropped with a warning. */
static int drop_lines_after(const char *path, i64 done)
{
    struct buffer all = {0}, kept = {0};
    int status = file_exists(path) ? file_read(&all, path) : 0;
    i64 number = 0;
    for (char *line = all.data, *end; status == 0 && line && (end = strchr(line, '\n')); line = end + 1) {
        struct json *j = json_parse_line(line, end - line, path, ++number);
        if (!j)
            log_warn("%s; the line is dropped", error_text());
        if (j && json_integer(json_get(j, "step"), -1) <= done)
            buffer_append(&kept, line, end + 1 - line);
        json_free(j);
    }
    if (status == 0)
        status = file_replace(path, kept.data ? kept.data : "", kept.length);
    buffer_release(&all);
    buffer_release(&kept);
    return status;
}

/* The stage's settings, with its kind, seed and precision before them. */
static int write_settings(struct events *events, const char *directory)
{
    static const char *const names[] = {"kind", "seed", "precision"};
    char *path = path_join(directory, "identity.json");
    struct json *identity = file_exists(path) ? json_load(path) : NULL, *all = json_object();
    const struct json *settings = json_get(identity, "settings");
    struct json_iterator it;
    int status = 0;
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (json_get(identity, names[i]))
            json_set(all, names[i], json_copy(json_get(identity, names[i])));
    for (bool more = json_first(&it, settings); more; more = json_next(&it, settings))
        json_set(all, it.key, json_copy(it.value));
    if (identity)
        status = events_write_settings(events, (double)time(NULL), all);
    json_free(identity);
    json_free(all);
    memory_free(path);
    return status;
}

struct metrics *metrics_open(const char *directory, i64 done)
{
    struct metrics *m = memory_alloc(sizeof *m);
    m->path = path_join(directory, "metrics.jsonl");
    if (drop_lines_after(m->path, done) == 0) {
        int descriptor = file_open_append(m->path);
        m->file = descriptor < 0 ? NULL : fdopen(descriptor, "ae");
    }
    m->events = m->file ? events_open(directory) : NULL;
    if (m->events && write_settings(m->events, directory) == 0)
        return m;
    events_close(m->events);
    if (m->file)
        fclose(m->file);
    memory_free(m->path);
    memory_free(m);
    return NULL;
}

/* Frees the current line, finished or not. */
static void free_line(struct metrics *m)
{
    for (i64 i = 0; i < m->count; i++)
        memory_free((char *)(uintptr_t)m->values[i].tag);
    m->count = 0;
    json_free(m->line);
    json_free(m->nonfinite);
    m->line = m->nonfinite = NULL;
}

void metrics_begin(struct metrics *m, i64 step)
{
    if (!m)
        return;
    free_line(m);
    m->step = step;
    m->line = json_object();
    json_set(m->line, "step", json_of_integer(step));
    json_set(m->line, "time", json_of_number((double)time(NULL)));
}

void metrics_put(struct metrics *m, const char *name, double value)
{
    if (!m)
        return;
    json_set(m->line, name, json_of_number(value));
    if (isfinite(value)) {
        if (m->count == m->capacity) {
            i64 next = max_i64(64, 2 * m->capacity), bytes = (i64)sizeof *m->values;
            m->values = memory_resize(m->values, m->capacity * bytes, next * bytes);
            m->capacity = next;
        }
        m->values[m->count++] = (struct event_value){string_copy(name), value}; /* callers reuse the name's buffer */
        return;
    }
    if (!m->nonfinite)
        m->nonfinite = json_array();
    json_push(m->nonfinite, json_of_string(name));
}

struct json *metrics_values(const struct metrics *m)
{
    struct json *out = json_object();
    for (i64 i = 0; m && i < m->count; i++)
        json_set(out, m->values[i].tag, json_of_number(m->values[i].value));
    return out;
}

void metrics_put_all(struct metrics *m, const struct json *values)
{
    struct json_iterator it;
    for (bool more = json_first(&it, values); more; more = json_next(&it, values))
        metrics_put(m, it.key, json_number(it.value, NAN));
}

int metrics_check(const struct metrics *m)
{
    return m ? file_check_there(fileno(m->file), m->path) : 0;
}

int metrics_end(struct metrics *m)
{
    struct buffer text = {0};
    if (!m)
        return 0;
    if (m->nonfinite)
        json_set(m->line, "nonfinite", m->nonfinite); /* the line owns it now */
    m->nonfinite = NULL;
    json_print(&text, m->line, 0);
    buffer_append(&text, "\n", 1);
    bool written = fwrite(text.data, 1, (size_t)text.length, m->file) == (size_t)text.length && fflush(m->file) == 0;
    int status = written ? metrics_check(m) : error_errno("%s", m->path);
    if (status == 0)
        status = events_write(m->events, m->step, (double)time(NULL), m->values, m->count);
    buffer_release(&text);
    free_line(m);
    return status;
}

void metrics_close(struct metrics *m)
{
    if (!m)
        return;
    fclose(m->file);
    events_close(m->events);
    free_line(m);
    memory_free(m->values);
    memory_free(m->path);
    memory_free(m);
}
