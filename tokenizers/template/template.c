/* The door: parsing and rendering, and what they own. */
#include "tokenizers/template/template.h"
#include "tokenizers/template/inside.h"

#include <string.h>

static bool is_utf8(const char *text, i64 length)
{
    for (i64 at = 0, step; at < length; at += step)
        if ((step = utf8_length(text + at, length - at)) == 0)
            return false;
    return true;
}

struct template *template_open(const char *text, i64 length, const char *origin)
{
    enum { SOURCE_BYTES_MOST = 4 << 20 };
    struct template *template = memory_alloc(sizeof *template);
    struct jinja_run *run = memory_alloc(sizeof *run);
    *run = (struct jinja_run){.origin = origin, .line = 1};
    if (length > SOURCE_BYTES_MOST || !is_utf8(text, length)) {
        error_set("%s: not a chat template: expected UTF-8 of at most %d bytes", origin, SOURCE_BYTES_MOST);
        memory_free(run);
        memory_free(template);
        return NULL;
    }
    bool failed = setjmp(run->escape) != 0;
    if (!failed) {
        struct jinja_parser parser = {.run = run, .names = jinja_dict(run).dict, .template = template};
        jinja_scan(&parser, text, length);
        jinja_parse(&parser);
        jinja_find_symbols(&parser);
    }
    template->chunk = run->chunk;
    template->origin = string_copy(origin);
    memory_free(run);
    if (failed) {
        template_close(template);
        return NULL;
    }
    return template;
}

void template_close(struct template *template)
{
    if (!template)
        return;
    jinja_arena_free(template->chunk);
    memory_free(template->origin);
    memory_free(template);
}

static void render(struct jinja_run *run, const struct json *variables)
{
    struct jinja_value values = jinja_of_json(run, variables);
    run->variables = values.kind == JINJA_DICT ? values.dict : jinja_dict(run).dict;
    run->scope = jinja_open_scope(run, NULL, run->template->symbols);
    run->out = &run->text;
    jinja_load_scope(run, run->scope);
    jinja_run_nodes(run, &run->template->body);
}

int template_render(struct template_output *out, const struct template *template, const struct json *variables)
{
    struct jinja_run *run = memory_alloc(sizeof *run);
    *run = (struct jinja_run){.origin = template->origin, .line = 1, .template = template};
    *out = (struct template_output){0};
    bool failed = setjmp(run->escape) != 0;
    if (!failed) {
        render(run, variables);
        buffer_append(&out->text, run->text.bytes, run->text.length);
        if (run->span_count) {
            out->generated = memory_alloc(run->span_count * (i64)sizeof *out->generated);
            memcpy(out->generated, run->spans, (size_t)run->span_count * sizeof *out->generated);
        }
        out->generated_count = run->span_count;
    }
    jinja_arena_free(run->chunk);
    memory_free(run);
    return failed ? -1 : 0;
}

void template_output_release(struct template_output *out)
{
    buffer_release(&out->text);
    memory_free(out->generated);
    *out = (struct template_output){0};
}

bool template_marks_generation(const struct template *template)
{
    return template->marks_generation;
}

bool template_reads_clock(const struct template *template)
{
    return template->reads_clock;
}

void template_set_time(struct template *template, i64 unix_s)
{
    template->has_time = true;
    template->time_s = unix_s;
}
