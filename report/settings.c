/* Reproduction: the command and the settings of every stage;
 * for several runs, their differences. */
#include "report/page.h"

#include <string.h>

/* Writes settings by path, as in the recipe's STAGE.key=value. */
static void put_settings_of(struct page *p, const struct json *value, const char *path)
{
    struct json_iterator it;
    if (json_kind(value) == JSON_OBJECT) {
        for (bool more = json_first(&it, value); more; more = json_next(&it, value)) {
            char *below = *path ? string_format("%s.%s", path, it.key) : string_copy(it.key);
            put_settings_of(p, it.value, below);
            memory_free(below);
        }
        return;
    }
    struct buffer text = {0};
    if (json_kind(value) == JSON_STRING)
        buffer_printf(&text, "%s", json_string(value, ""));
    else if (json_kind(value) == JSON_REAL)
        buffer_printf(&text, "%g", json_number(value, 0));
    else
        json_print(&text, value, 0);
    buffer_printf(&p->html, "<tr><td>");
    html_text(&p->html, path);
    buffer_printf(&p->html, "</td><td class='w'>");
    html_text(&p->html, text.data);
    buffer_printf(&p->html, "</td></tr>");
    buffer_release(&text);
}

static void put_stage(struct page *p, const struct run *run, const struct run_stage *s)
{
    static const char *const heads[] = {"setting", "<value"};
    char *command = command_of(run, s);
    buffer_printf(&p->html, "<details><summary>");
    html_text(&p->html, s->name);
    buffer_printf(&p->html, "</summary>");
    put_made_by(p, command);
    if (json_count(json_get(s->identity, "settings"))) {
        table_open(p, heads, COUNT_OF(heads));
        put_settings_of(p, json_get(s->identity, "settings"), "");
        table_close(p);
    }
    buffer_printf(&p->html, "</details>");
    memory_free(command);
}

/* ---- Differences between runs ---- */

static bool same_json(const struct json *a, const struct json *b)
{
    struct buffer left = {0}, right = {0};
    json_print(&left, a, 0);
    json_print(&right, b, 0);
    bool same = left.length == right.length && memcmp(left.data, right.data, (size_t)left.length) == 0;
    buffer_release(&left);
    buffer_release(&right);
    return same;
}

struct settings_table {
    const struct run *runs;
    i64 count;
    struct json *rows;
};

/* A row: the setting, and its value in each run that has it. */
static void push_row(struct settings_table *t, const char *setting, const struct json *const *values)
{
    struct json *row = json_object(), *all = json_object();
    for (i64 r = 0; r < t->count; r++)
        if (values[r])
            json_set(all, t->runs[r].name, json_copy(values[r]));
    json_set(row, "setting", json_of_string(setting));
    json_set(row, "values", all);
    json_push(t->rows, row);
}

/* Compares the values at one path in the runs that have the stage, and pushes a row for each that
 * differs. there: the runs that are compared. */
static void find_differences(struct settings_table *t, const struct json *const *values, const bool *there,
                             const char *path)
{
    bool object = false, same = true;
    const struct json *first = NULL;
    struct json *seen = json_object();
    struct json_iterator it;
    for (i64 r = t->count - 1; r >= 0; r--)
        first = there[r] ? values[r] : first;
    for (i64 r = 0; r < t->count; r++)
        if (there[r]) {
            object |= json_kind(values[r]) == JSON_OBJECT;
            same &= same_json(values[r], first);
        }
    if (!same && !object)
        push_row(t, path, values);
    const struct json **below = memory_alloc(t->count * (i64)sizeof *below);
    for (i64 r = 0; r < t->count && !same && object; r++) /* any run may have keys that others lack */
        for (bool more = there[r] && json_first(&it, values[r]); more; more = json_next(&it, values[r])) {
            char *name = *path ? string_format("%s.%s", path, it.key) : string_copy(it.key);
            for (i64 k = 0; k < t->count && !json_get(seen, it.key); k++)
                below[k] = there[k] ? json_get(values[k], it.key) : NULL;
            if (!json_get(seen, it.key))
                find_differences(t, below, there, name);
            json_set(seen, it.key, json_of_bool(true));
            memory_free(name);
        }
    memory_free(below);
    json_free(seen);
}

/* Of files and folders that no stage of the run made: other stages differ by their own settings. */
static void find_other_inputs(struct settings_table *t, const struct json *const *inputs, const bool *there,
                              const char *stage)
{
    const struct json **digests = memory_alloc(t->count * (i64)sizeof *digests);
    struct json_iterator it;
    i64 first = 0;
    while (first < t->count && !there[first])
        first++;
    for (bool more = first < t->count && json_first(&it, inputs[first]); more; more = json_next(&it, inputs[first])) {
        char *maker = string_format("%.*s", (int)strcspn(it.key, "/"), it.key);
        bool same = true, all = true;
        for (i64 r = 0; r < t->count; r++) {
            digests[r] = there[r] ? json_get(inputs[r], it.key) : NULL;
            all &= !there[r] || digests[r];
            same &= !there[r] || same_json(digests[r], it.value);
        }
        char *name = string_format("%s: content of %s", stage, it.key);
        if (all && !same && !run_find(&t->runs[first], maker))
            push_row(t, name, digests);
        memory_free(name);
        memory_free(maker);
    }
    memory_free(digests);
}

static void find_stage_differences(struct settings_table *t, const char *stage, bool first)
{
    static const char *const keys[] = {"seed", "precision", "kind", "settings"};
    const struct json **values = memory_alloc(t->count * (i64)sizeof *values);
    bool *there = memory_alloc(t->count);
    i64 count = 0;
    for (i64 r = 0; r < t->count; r++) {
        const struct run_stage *s = run_find(&t->runs[r], stage);
        there[r] = s && s->identity;
        values[r] = there[r] ? json_get(s->identity, "kind") : NULL;
        count += there[r];
    }
    char *name = string_format("stage %s", stage);
    if (count < t->count && count)
        push_row(t, name, values);
    memory_free(name);
    for (i64 k = first ? 0 : 2; k < COUNT_OF(keys) && count; k++) { /* seed and precision are per run */
        for (i64 r = 0; r < t->count; r++)
            values[r] = there[r] ? json_get(run_find(&t->runs[r], stage)->identity, keys[k]) : NULL;
        char *path = k < 2 ? string_copy(keys[k]) : k == 2 ? string_format("%s.kind", stage) : string_copy(stage);
        find_differences(t, values, there, path);
        memory_free(path);
    }
    for (i64 r = 0; r < t->count; r++)
        values[r] = there[r] ? json_get(run_find(&t->runs[r], stage)->identity, "inputs") : NULL;
    find_other_inputs(t, values, there, stage);
    memory_free(values);
    memory_free(there);
}

struct json *settings_that_differ(const struct run *runs, i64 count)
{
    struct settings_table t = {runs, count, json_array()};
    bool first = true;
    for (i64 r = 0; r < count; r++)
        for (i64 i = 0; i < runs[r].count; i++) {
            const char *stage = runs[r].stages[i].name;
            bool known = false;
            for (i64 before = 0; before < r; before++)
                known |= run_find(&runs[before], stage) != NULL;
            if (!known)
                find_stage_differences(&t, stage, first);
            first = false;
        }
    return t.rows;
}

void put_setting_value(struct buffer *out, const struct json *value)
{
    if (json_kind(value) == JSON_STRING)
        buffer_printf(out, "%s", json_string(value, ""));
    else if (value)
        json_print(out, value, 0);
}

static void put_all_differences(struct page *p)
{
    struct json *rows = settings_that_differ(p->runs, p->run_count);
    const char **heads = memory_alloc((p->run_count + 1) * (i64)sizeof *heads);
    char **left = memory_alloc(p->run_count * (i64)sizeof *left); /* headings of text columns */
    heads[0] = "setting";
    for (i64 r = 0; r < p->run_count; r++)
        heads[r + 1] = left[r] = string_format("<%s", p->runs[r].name);
    table_open(p, heads, p->run_count + 1);
    for (i64 i = 0; i < json_count(rows); i++) {
        buffer_printf(&p->html, "<tr>");
        cell_words(p, "%s", json_string(json_get(json_at(rows, i), "setting"), ""));
        for (i64 r = 0; r < p->run_count; r++) {
            struct buffer text = {0};
            put_setting_value(&text, json_get(json_get(json_at(rows, i), "values"), p->runs[r].name));
            html_element(&p->html, "td", "w", "%s", text.data ? text.data : "");
            buffer_release(&text);
        }
        buffer_printf(&p->html, "</tr>");
    }
    if (json_count(rows) == 0)
        buffer_printf(&p->html, "<tr><td colspan='%lld'>nothing</td></tr>", (long long)p->run_count + 1);
    table_close(p);
    for (i64 r = 0; r < p->run_count; r++)
        memory_free(left[r]);
    memory_free(left);
    memory_free(heads);
    json_free(rows);
}

void put_settings(struct page *p)
{
    section_open(p, "again", p->run_count > 1 ? "Settings that differ" : "Settings",
                 p->run_count > 1 ? "What differs between the runs, of the seed, the precision, the settings of each "
                                    "stage and the files that no stage made. What is equal is left out. Blank: the run "
                                    "does not have it."
                                  : "Settings of every stage as it ran, and the command that runs it again: finished "
                                    "stages are skipped, interrupted ones resume.");
    if (p->run_count > 1)
        put_all_differences(p);
    else
        for (i64 i = 0; i < p->runs[0].count; i++)
            put_stage(p, &p->runs[0], &p->runs[0].stages[i]);
    section_close(p);
}
