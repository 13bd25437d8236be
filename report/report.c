/* Assembles the page: sections in order, header and footer. */
#include "report/page.h"
#include "report/report.h"

#include <string.h>

static void find_stages(struct page *p)
{
    i64 most = 0;
    for (i64 r = 0; r < p->run_count; r++)
        most += p->runs[r].count;
    p->stages = memory_alloc(max_i64(most, 1) * (i64)sizeof *p->stages);
    for (i64 r = 0; r < p->run_count; r++)
        for (i64 i = 0; i < p->runs[r].count; i++) {
            bool known = false;
            for (i64 k = 0; k < p->stage_count; k++)
                known |= strcmp(p->stages[k], p->runs[r].stages[i].name) == 0;
            if (!known)
                p->stages[p->stage_count++] = p->runs[r].stages[i].name;
        }
}

static void put_sections(struct page *p)
{
    static void (*const parts[])(struct page *) = {put_comparison, put_samples, put_tokenizers, put_heldout,
                                                   put_rewards,    put_stages,  put_training,   put_submodels,
                                                   put_routing,    put_sources, put_curation,   put_settings};
    find_stages(p);
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        parts[i](p);
}

static void assemble(struct buffer *out, struct page *p)
{
    struct page head = {.runs = p->runs, .run_count = p->run_count};
    put_summary(&head);
    buffer_printf(out, "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
                       "content='width=device-width,initial-scale=1'><link rel='icon' href='data:,'>");
    buffer_printf(out, "<title>Weft: ");
    if (p->run_count > 1)
        buffer_printf(out, "%lld runs", (long long)p->run_count);
    else
        html_text(out, p->runs[0].name);
    buffer_printf(out,
                  "</title>\n<style>\n%s%s</style></head>\n<body><header>%s<nav aria-label='Sections'>%s</nav></header>"
                  "\n<main>%s</main>\n<footer>This page is one file. %s remakes it from what the stages left behind.",
                  page_style, p->css.data ? p->css.data : "", head.html.data, p->contents.data ? p->contents.data : "",
                  p->html.data ? p->html.data : "", "<code>weft report</code>");
    buffer_printf(out, "</footer>\n<script>%s</script></body></html>\n", page_script);
    buffer_release(&head.html);
}

static int write_page(const char *out, const struct run *runs, i64 count)
{
    struct page p = {.runs = runs, .run_count = count};
    struct buffer whole = {0};
    put_sections(&p);
    assemble(&whole, &p);
    int status = file_replace(out, whole.data, whole.length);
    buffer_release(&whole);
    buffer_release(&p.html);
    buffer_release(&p.contents);
    buffer_release(&p.css);
    memory_free(p.stages);
    return status;
}

int report_write(const char *out, const char *const *runs, i64 count)
{
    struct run *list = memory_alloc(max_i64(count, 1) * (i64)sizeof *list);
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++)
        status = run_open(&list[i], runs[i]);
    if (status == 0) {
        runs_tell_apart(list, count);
        status = write_page(out, list, count);
    }
    for (i64 i = 0; i < count; i++)
        run_close(&list[i]);
    memory_free(list);
    return status;
}
