/* Chat templates: the text, the answers' places and the errors are those of transformers
 * (tests/golden/template), and a template of a stranger ends with a message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/json.h"
#include "tokenizers/template/template.h"
#include "tests/cases.h"

/* Byte of the character `point` of a text. */
static i64 byte_of(const char *text, i64 point)
{
    i64 at = 0;
    for (; point > 0; point--)
        at += max_i64(utf8_length(text + at, (i64)strlen(text + at)), 1);
    return at;
}

static void check_spans(const struct template_output *out, const struct json *spans, const char *template)
{
    if (out->generated_count != json_count(spans))
        fail_msg("%s: %lld answers, expected %lld", template, (long long)out->generated_count,
                 (long long)json_count(spans));
    for (i64 i = 0; i < out->generated_count; i++) {
        const struct json *span = json_at(spans, i);
        assert_int_equal(out->generated[i].begin, byte_of(out->text.data, json_integer(json_at(span, 0), -1)));
        assert_int_equal(out->generated[i].end, byte_of(out->text.data, json_integer(json_at(span, 1), -1)));
    }
}

/* Renders a text; NULL: it failed, error_text() says why. */
static char *rendered(const char *text, i64 length, i64 time_s, const struct json *variables, const struct json *spans)
{
    struct template_output out = {0};
    struct template *template = template_open(text, length, "case");
    char *result = NULL;
    if (!template)
        return NULL;
    template_set_time(template, time_s);
    if (template_render(&out, template, variables) == 0) {
        result = string_copy(out.text.length ? out.text.data : "");
        check_spans(&out, spans, text);
    }
    template_output_release(&out);
    template_close(template);
    return result;
}

/* NULL, or what a template gave in place of the text or the message of its case. memory_free */
static char *other_result(const char *template, i64 length, const struct json *each, const struct json *variables,
                          i64 time_s)
{
    const char *text = json_string(json_get(each, "text"), NULL);
    const char *message = json_string(json_get(each, "message"), "");
    char *got = rendered(template, length, time_s, variables, json_get(each, "spans"));
    bool right = text ? got && strcmp(got, text) == 0
                      : !got && strncmp(error_text(), "case:", 5) == 0 && strstr(error_text(), message);
    char *other = right ? NULL : string_copy(got ? got : error_text());
    memory_free(got);
    return other;
}

TEST(templates_write_what_transformers_writes)
{
    struct json *golden = json_load(GOLDEN "/template/cases.json");
    const struct json *cases = json_get(golden, "cases");
    i64 wrong = 0;
    assert_true(json_count(cases) > 1000);
    for (i64 i = 0; i < json_count(cases); i++) {
        const struct json *each = json_at(cases, i);
        const struct json *variables =
            json_at(json_get(golden, "variables"), json_integer(json_get(each, "variables"), -1));
        const struct json *source = json_get(each, "template");
        char *other = other_result(json_string(source, ""), json_string_length(source), each, variables,
                                   json_integer(json_get(golden, "time"), 0));
        if (other)
            print_error("%s\n  gives %s\n", json_string(source, ""), other);
        wrong += other != NULL;
        memory_free(other);
    }
    json_free(golden);
    assert_int_equal(wrong, 0);
}

/* A template is a text, or a list: what stands before, what is repeated 100,000 times, what is behind. */
static char *template_of(struct cases *c)
{
    const struct json *list = json_get(c->row, "template");
    struct buffer text = {0};
    if (json_kind(list) == JSON_STRING)
        return string_copy(json_string(list, ""));
    for (i64 i = 0; i < json_count(list); i++)
        for (i64 times = i == 1 ? 100000 : 1; times > 0; times--)
            buffer_printf(&text, "%s", json_string(json_at(list, i), ""));
    return text.data;
}

/* Python's JSON, templates that do not end, that are nested too deep, and what is not supported. */
TEST(templates_end_with_a_text_or_a_message)
{
    struct json *none = json_object();
    EACH_CASE (c, "templates.jsonl") {
        const struct json *variables = json_get(c->row, "variables");
        char *template = template_of(c);
        char *other = other_result(template, (i64)strlen(template), c->row, variables ? variables : none, 0);
        if (other)
            case_wrong(c, "gives %s", other);
        memory_free(other);
        memory_free(template);
    }
    json_free(none);
}

/* A document nested deeper than a render goes. */
TEST(deep_variables_are_refused)
{
    struct json *variables = json_object(), *value = json_of_integer(1);
    for (int i = 0; i < 2000; i++) {
        struct json *list = json_array();
        json_push(list, value);
        value = list;
    }
    json_set(variables, "x", value);
    assert_null(rendered("{{ x }}", 7, 0, variables, NULL));
    json_free(variables);
}

/* ---- Others ---- */

TEST(a_text_may_hold_any_byte_of_utf8)
{
    static const char text[] = "a\0{{ 'b\0c' }}";
    struct template_output out;
    struct json *variables = json_object();
    struct template *template = template_open(text, sizeof text - 1, "case");
    assert_non_null(template);
    assert_int_equal(template_render(&out, template, variables), 0);
    assert_int_equal(out.text.length, 5);
    assert_memory_equal(out.text.data, "a\0b\0c", 5);
    template_output_release(&out);
    template_close(template);
    assert_null(template_open("a\xff", 2, "case"));
    json_free(variables);
}

TEST(templates_say_what_they_use)
{
    static const struct {
        const char *text;
        bool marks, clock;
    } cases[] = {{"{{ x }}", false, false},
                 {"{% generation %}{% endgeneration %}", true, false},
                 {"{# {% generation %} #}{{ '{% generation %}' }}", false, false},
                 {"{% if strftime_now is defined %}{% endif %}", false, true}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct template *template = template_open(cases[i].text, (i64)strlen(cases[i].text), "case");
        assert_non_null(template);
        assert_int_equal(template_marks_generation(template), cases[i].marks);
        assert_int_equal(template_reads_clock(template), cases[i].clock);
        template_close(template);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
