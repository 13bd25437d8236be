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

static void put_cell(struct page *p, const struct json *value)
{
    struct buffer text = {0};
    if (value)
        json_print(&text, value, 0);
    html_element(&p->html, "td", "w", "%s", text.data ? text.data : "");
    buffer_release(&text);
}

/* Compares the values at one path in all runs' stages, and adds a row for each that differs. */
static void put_differences(struct page *p, const struct json **values, const char *path)
{
    bool object = false, same = true;
    struct json_iterator it;
    for (i64 r = 0; r < p->run_count; r++) {
        object |= json_kind(values[r]) == JSON_OBJECT;
        same &= same_json(values[r], values[0]);
    }
    if (same)
        return;
    if (!object) {
        buffer_printf(&p->html, "<tr>");
        cell_words(p, "%s", path);
        for (i64 r = 0; r < p->run_count; r++)
            put_cell(p, values[r]);
        buffer_printf(&p->html, "</tr>");
        return;
    }
    const struct json **below = memory_alloc(p->run_count * (i64)sizeof *below);
    for (bool more = json_first(&it, values[0]); more; more = json_next(&it, values[0])) {
        char *name = string_format("%s.%s", path, it.key);
        for (i64 r = 0; r < p->run_count; r++)
            below[r] = json_get(values[r], it.key);
        put_differences(p, below, name);
        memory_free(name);
    }
    memory_free(below);
}

static void put_all_differences(struct page *p)
{
    static const char *const keys[] = {"seed", "precision", "settings"};
    const char **heads = memory_alloc((p->run_count + 1) * (i64)sizeof *heads);
    const struct json **values = memory_alloc(p->run_count * (i64)sizeof *values);
    char **left = memory_alloc(p->run_count * (i64)sizeof *left); /* headings of text columns */
    heads[0] = "setting";
    for (i64 r = 0; r < p->run_count; r++)
        heads[r + 1] = left[r] = string_format("<%s", p->runs[r].name);
    table_open(p, heads, p->run_count + 1);
    i64 begin = p->html.length;
    for (i64 i = 0; i < p->stage_count; i++)
        for (i64 k = i ? 2 : 0; k < COUNT_OF(keys); k++) { /* seed and precision are per run */
            i64 there = 0;
            for (i64 r = 0; r < p->run_count; r++) {
                const struct run_stage *s = run_find(&p->runs[r], p->stages[i]);
                values[r] = s ? json_get(s->identity, keys[k]) : NULL;
                there += values[r] != NULL;
            }
            char *path = string_copy(k == 2 ? p->stages[i] : keys[k]);
            if (there == p->run_count)
                put_differences(p, values, path);
            memory_free(path);
        }
    if (p->html.length == begin)
        buffer_printf(&p->html, "<tr><td colspan='%lld'>nothing</td></tr>", (long long)p->run_count + 1);
    table_close(p);
    for (i64 r = 0; r < p->run_count; r++)
        memory_free(left[r]);
    memory_free(left);
    memory_free(heads);
    memory_free(values);
}

void put_settings(struct page *p)
{
    section_open(p, "again", "Settings",
                 p->run_count > 1 ? "What differs between the runs, of the seed, the precision and the settings of "
                                    "each stage."
                                  : "Settings of every stage as it ran, and the command that runs it again: finished "
                                    "stages are skipped, interrupted ones resume.");
    if (p->run_count > 1)
        put_all_differences(p);
    else
        for (i64 i = 0; i < p->runs[0].count; i++)
            put_stage(p, &p->runs[0], &p->runs[0].stages[i]);
    section_close(p);
}
