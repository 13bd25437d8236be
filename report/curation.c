/* Documents that curation removed, by rule, with examples. */
#include "report/page.h"

#include <stdio.h>

static void put_examples(struct page *p, const struct json *examples)
{
    buffer_printf(&p->html, "<td class='w'>");
    for (i64 i = 0; i < json_count(examples); i++) {
        const struct json *one = json_at(examples, i);
        buffer_printf(&p->html, "%s<code>", i ? "<br>" : "");
        html_text(&p->html, json_string(json_get(one, "name"), ""));
        buffer_printf(&p->html, "</code> ");
        html_text(&p->html, json_string(json_get(one, "text"), ""));
    }
    buffer_printf(&p->html, "</td>");
}

static void put_rules(struct page *p, const struct run_stage *s, const struct json *j)
{
    static const char *const heads[] = {"<left out", "samples", "share", "<the first of them"};
    const struct json *rules = json_get(j, "rules");
    double all = number_at(j, "samples"), masked = json_number(json_get(j, "masked"), 0);
    group_open(p, "%s: %.0f of %.0f samples kept", s->name, number_at(j, "kept"), all);
    if (json_count(rules))
        table_open(p, heads, COUNT_OF(heads));
    for (i64 i = 0; i < json_count(rules); i++) {
        const struct json *rule = json_at(rules, i);
        buffer_printf(&p->html, "<tr>");
        cell_words(p, "%s", json_string(json_get(rule, "rule"), ""));
        cell_figure(p, number_at(rule, "count"), UNIT_NUMBER, 0);
        cell_figure(p, number_at(rule, "count") / all, UNIT_SHARE, 1);
        put_examples(p, json_get(rule, "examples"));
        buffer_printf(&p->html, "</tr>");
    }
    if (json_count(rules))
        table_close(p);
    if (masked > 0)
        put_note(p, "%.0f addresses and numbers of persons are masked in %.0f samples.", masked,
                 number_at(j, "masked_samples"));
    if (json_number(json_get(j, "forgotten"), 0) > 0)
        put_note(p, "The table of seen keys exceeded filter.memory_bytes: distant duplicates are kept.");
    group_close(p, s);
}

void put_curation(struct page *p)
{
    section_open(p, "curation", "Curation",
                 "Samples that the filters of prepare dropped, by the first rule that matched, and "
                 "the first few of each.");
    for (i64 i = 0; i < p->stage_count; i++) {
        const struct run_stage *s = NULL;
        for (i64 r = 0; r < p->run_count && !s; r++)
            s = run_find(&p->runs[r], p->stages[i]);
        struct json *j = s ? stage_json(s, "curation.json") : NULL;
        if (j)
            put_rules(p, s, j);
        json_free(j);
    }
    section_close(p);
}
