/* Assembles the page: sections in order, header and footer. */
#include "report/arms.h"
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
    static void (*const parts[])(struct page *) = {put_comparison, put_submodels, put_samples,  put_tokenizers,
                                                   put_heldout,    put_rewards,   put_training, put_stages,
                                                   put_routing,    put_sources,   put_curation};
    find_stages(p);
    if (p->run_count > 1)
        put_settings(p);
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        parts[i](p);
    if (p->run_count == 1)
        put_settings(p);
}

/* The list of sections, beside the page or above it; on a phone it is folded. It stays in view. */
static void put_contents(struct buffer *out, const struct buffer *contents)
{
    if (contents->length)
        buffer_printf(out,
                      "<nav class='side' aria-label='Sections'>%s</nav><details class='toc'><summary>Contents"
                      "</summary><nav aria-label='Sections, folded'>%s</nav></details>",
                      contents->data, contents->data);
}

/* title: NULL: of `runs` runs. */
static void put_head(struct buffer *out, const char *title, i64 runs, const struct buffer *css)
{
    buffer_printf(out, "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
                       "content='width=device-width,initial-scale=1'><link rel='icon' href='data:,'>");
    buffer_printf(out, "<title>Weft: ");
    if (title)
        html_text(out, title);
    else
        buffer_printf(out, "%lld runs", (long long)runs);
    buffer_printf(out, "</title>\n<style>\n%s%s</style></head>\n<body>", page_style, css->data ? css->data : "");
}

static void assemble(struct buffer *out, struct page *p, const struct arms *arms)
{
    struct page head = {.runs = p->runs, .run_count = p->run_count};
    if (arms->count)
        put_arms_head(&head, arms);
    else
        put_summary(&head);
    put_head(out, p->run_count > 1 ? NULL : p->runs[0].name, p->run_count, &p->css);
    put_contents(out, &p->contents);
    buffer_printf(out,
                  "<header>%s</header>\n<main>%s</main>\n<footer>This page is one file. %s remakes it from what the "
                  "stages left behind.",
                  head.html.data, p->html.data ? p->html.data : "", "<code>weft report</code>");
    buffer_printf(out, "</footer>\n<script>%s</script></body></html>\n", page_script);
    buffer_release(&head.html);
}

static void page_release(struct page *p)
{
    buffer_release(&p->html);
    buffer_release(&p->contents);
    buffer_release(&p->css);
    memory_free(p->stages);
}

int page_save(const char *out, struct page *p, const char *title)
{
    struct buffer whole = {0};
    put_head(&whole, title, 0, &p->css);
    buffer_printf(&whole, "<main>%s</main></body></html>\n", p->html.data ? p->html.data : "");
    int status = file_replace(out, whole.data, whole.length);
    buffer_release(&whole);
    page_release(p);
    return status;
}

static int write_page(const char *out, const struct arms *arms)
{
    struct page p = {.runs = arms->runs->list, .run_count = arms->runs->count};
    struct buffer whole = {0};
    if (arms->count) {
        find_stages(&p);
        put_arms(&p, arms);
    } else
        put_sections(&p);
    assemble(&whole, &p, arms);
    int status = file_replace(out, whole.data, whole.length);
    buffer_release(&whole);
    page_release(&p);
    return status;
}

int report_write_against(const char *out, const char *const *runs, i64 count, const char *baseline)
{
    struct run_list list;
    struct arms arms = {0};
    int status = run_list_open(&list, runs, count);
    if (status == 0) {
        status = arms_open(&arms, &list, baseline);
        if (status == 0)
            status = write_page(out, &arms);
        arms_close(&arms);
    }
    run_list_close(&list);
    return status;
}

int report_write(const char *out, const char *const *runs, i64 count)
{
    return report_write_against(out, runs, count, NULL);
}

int report_json(struct buffer *out, const char *const *runs, i64 count, const char *baseline)
{
    struct run_list list;
    struct arms arms = {0};
    int status = run_list_open(&list, runs, count);
    if (status == 0) {
        for (i64 i = 0; i < list.count && !baseline; i++) /* runs of no arms are those of one */
            if (!list.list[i].arm)
                list.list[i].arm = string_copy("");
        status = arms_open(&arms, &list, baseline);
        if (status == 0) {
            struct json *j = arms_json(&arms);
            json_set(j, "settings", settings_that_differ(list.list, list.count));
            json_print(out, j, 0);
            json_free(j);
        }
        arms_close(&arms);
    }
    run_list_close(&list);
    return status;
}
