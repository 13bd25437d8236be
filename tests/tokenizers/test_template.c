/* Chat templates: the text, the answers' places and the errors are those of transformers
 * (tests/golden/template), and a template of a stranger ends with a message. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/json.h"
#include "tokenizers/template/template.h"
#include <cmocka.h>

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

static void check_case(const struct json *each, const struct json *variables, i64 time_s, i64 *wrong)
{
    const struct json *source = json_get(each, "template");
    const char *template = json_string(source, ""), *text = json_string(json_get(each, "text"), NULL);
    const char *message = json_string(json_get(each, "message"), "");
    char *got = rendered(template, json_string_length(source), time_s, variables, json_get(each, "spans"));
    if (text ? !got || strcmp(got, text) != 0 : got != NULL) {
        print_error("%s\n  gives    %s\n  expected %s\n", template, got ? got : error_text(), text ? text : "an error");
        ++*wrong;
    } else if (!text && !strstr(error_text(), message)) {
        print_error("%s\n  fails with %s\n  expected   %s\n", template, error_text(), message);
        ++*wrong;
    } else if (!text && strncmp(error_text(), "case:", 5) != 0) {
        print_error("%s\n  fails without a place: %s\n", template, error_text());
        ++*wrong;
    }
    memory_free(got);
}

static void templates_write_what_transformers_writes(void **state)
{
    struct json *golden = json_load(GOLDEN "/template/cases.json");
    const struct json *cases = json_get(golden, "cases");
    i64 wrong = 0;
    (void)state;
    assert_true(json_count(cases) > 1000);
    for (i64 i = 0; i < json_count(cases); i++) {
        const struct json *each = json_at(cases, i);
        const struct json *variables =
            json_at(json_get(golden, "variables"), json_integer(json_get(each, "variables"), -1));
        check_case(each, variables, json_integer(json_get(golden, "time"), 0), &wrong);
    }
    json_free(golden);
    assert_int_equal(wrong, 0);
}

/* As json.dumps of Python 3.11, which transformers calls, writes them. */
static void json_is_that_of_python(void **state)
{
    static const char text[] = "{\"x\": \"\\\"\\\\\\n\\r\\t\\f\\b\\u0001\\u001f\\u007f/<\\u00e9\\ud83d\\ude00\", "
                               "\"d\": {\"b\": 1, \"a\": [true, null, 2.5], \"c\": {}, \"e\": []}}";
    static const char *const cases[][2] = {
        {"{{ x|tojson }}", "\"\\\"\\\\\\n\\r\\t\\f\\b\\u0001\\u001f\x7f/<\xc3\xa9\xf0\x9f\x98\x80\""},
        {"{{ x|tojson(ensure_ascii=true) }}",
         "\"\\\"\\\\\\n\\r\\t\\f\\b\\u0001\\u001f\\u007f/<\\u00e9\\ud83d\\ude00\""},
        {"{{ d|tojson }}", "{\"b\": 1, \"a\": [true, null, 2.5], \"c\": {}, \"e\": []}"},
        {"{{ d|tojson(sort_keys=true) }}", "{\"a\": [true, null, 2.5], \"b\": 1, \"c\": {}, \"e\": []}"},
        {"{{ d|tojson(indent=2) }}",
         "{\n  \"b\": 1,\n  \"a\": [\n    true,\n    null,\n    2.5\n  ],\n  \"c\": {},\n  \"e\": []\n}"},
        {"{{ d|tojson(indent=1, sort_keys=true, separators=(';', '=')) }}",
         "{\n \"a\"=[\n  true;\n  null;\n  2.5\n ];\n \"b\"=1;\n \"c\"={};\n \"e\"=[]\n}"},
        {"{{ d|tojson(separators=(',', ':')) }}", "{\"b\":1,\"a\":[true,null,2.5],\"c\":{},\"e\":[]}"},
    };
    struct json *variables = json_parse(text, sizeof text - 1, "variables");
    (void)state;
    assert_non_null(variables);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *got = rendered(cases[i][0], (i64)strlen(cases[i][0]), 0, variables, NULL);
        assert_string_equal(got ? got : error_text(), cases[i][1]);
        memory_free(got);
    }
    json_free(variables);
}

/* ---- Bounds ---- */

static char *repeated(const char *before, const char *word, i64 times, const char *behind)
{
    struct buffer text = {0};
    buffer_printf(&text, "%s", before);
    for (i64 i = 0; i < times; i++)
        buffer_printf(&text, "%s", word);
    buffer_printf(&text, "%s", behind);
    return text.data;
}

static void check_ends(const char *template)
{
    struct json *variables = json_object();
    char *got = rendered(template, (i64)strlen(template), 0, variables, NULL);
    if (got)
        fail_msg("%.200s gives %.200s, expected an error", template, got);
    assert_non_null(strstr(error_text(), "case:"));
    json_free(variables);
}

static void a_template_that_does_not_end_is_stopped(void **state)
{
    static const char *const templates[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor "
        "%}{% endfor %}",
        "{{ 'a' * 1000000000 }}",
        "{{ [0] * 1000000000000 }}",
        "{{ 'ab' * 9223372036854775807 }}",
        "{% set n = namespace(s='a') %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set n = namespace(l=[0]) %}{% for i in range(64) %}{% set n.l = n.l + n.l %}{% endfor %}",
        "{% set n = namespace(l=[0]) %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
        "{% set n = namespace(l=[0]) %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ "
        "n.l|tojson|length }}",
        "{% set n = namespace(a=[0], b=[0]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, "
        "n.b] %}"
        "{% endfor %}{{ n.a == n.b }}",
        "{% set n = namespace(l=[0]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
        "{% set n = namespace(l=(0,)) %}{% for i in range(9999) %}{% set n.l = (n.l,) %}{% endfor %}{{ {n.l: 1} }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(x) %}{{ m(x + 1) ~ m(x + 1) }}{% endmacro %}{{ m(0) }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall %}{% endmacro "
        "%}{{ r() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
        "{{ range(1000000000) }}",
        "{{ range(9223372036854775807, -9223372036854775807, -1) }}",
        "{{ 10 ** 100 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ (-9223372036854775807 - 1) | abs }}",
        "{{ 2 ** 63 }}",
        "{{ 99999999999999999999 }}",
        "{{ 1e300 | int }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a'.ljust(1000000000000) }}",
        "{{ 'a' | indent(1000000000000) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%.*f' % (1000000000, 1.5) }}",
        "{{ '7'.zfill(1000000000000) }}",
        "{% set n = namespace(s='a') %}{% for i in range(40) %}{% set n.s = n.s|replace('a', 'aaaaaaaaaa') %}{% endfor "
        "%}",
        "{% set n = namespace(s='ab') %}{% for i in range(40) %}{% set n.s = n.s|replace('', n.s) %}{% endfor %}",
        "{% set n = namespace(s='ab') %}{% for i in range(40) %}{% set n.s = n.s.join(n.s) %}{% endfor %}",
        "{{ [1] | batch(1000000000000, 0) | list }}",
        "{{ [1] | slice(1000000000000) | list }}",
        "{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
        "{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{{ 'ba' * 100 in x ~ 'q' }}{% endfor %}",
        "{{ strftime_now('%c' * 1000) }}",
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(templates); i++)
        check_ends(templates[i]);
}

/* Jinja's macros have further attributes, such as `arguments`. */
static void attributes_of_macros_are_refused(void **state)
{
    static const char text[] = "{% macro f(a) %}{% endmacro %}{{ f.name }}{{ f.arguments }}";
    struct template_output out;
    struct json *variables = json_object();
    (void)state;
    struct template *template = template_open(text, (i64)strlen(text), "here");
    assert_non_null(template);
    assert_int_equal(template_render(&out, template, variables), -1);
    assert_non_null(strstr(error_text(), "the attribute arguments of a macro is not supported"));
    template_close(template);
    json_free(variables);
}

static void deep_nesting_is_refused(void **state)
{
    static const struct {
        const char *before, *word, *behind;
    } forms[] = {
        {"{{ ", "[", ""},
        {"{{ ", "(", ""},
        {"{{ ", "{1:", ""},
        {"{{ ", "not ", "1 }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "a(", ""},
        {"{{ ", "a[", ""},
        {"{{ a", ".b", " }}"},
        {"{{ a", "|upper", " }}"},
        {"{{ a", "()", " }}"},
        {"{{ a", "[0]", " }}"},
        {"{{ 1", " if 1 else 1", " }}"},
        {"{{ 1", " + 1", " }}"},
        {"{{ 1", " and 1", " }}"},
        {"{{ 1", " ** 1", " }}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for a in b %}", ""},
        {"{% if 1 %}", "{% elif 1 %}", "{% endif %}"},
        {"{% set ", "(", ""},
        {"{% for ", "(", ""},
        {"{{ a is ", "b is ", "b }}"},
        {"{{ a is in ", "a(", ""},
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(forms); i++) {
        char *template = repeated(forms[i].before, forms[i].word, 100000, forms[i].behind);
        check_ends(template);
        memory_free(template);
    }
}

/* A document nested deeper than a render goes. */
static void deep_variables_are_refused(void **state)
{
    struct json *variables = json_object(), *value = json_of_integer(1);
    (void)state;
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

static void what_is_not_supported_is_refused_by_name(void **state)
{
    static const char *const refused[][2] = {
        {"{% include 'a' %}", "include"},
        {"{% import 'a' as b %}", "import"},
        {"{% extends 'a' %}", "extends"},
        {"{% block a %}{% endblock %}", "block"},
        {"{% do x %}", "do"},
        {"{{ x | random }}", "random"},
        {"{{ x | nosuch }}", "nosuch"},
        {"{{ x is nosuch }}", "nosuch"},
        {"{% if 0 %}{{ x | wordwrap }}{% endif %}", "wordwrap"},
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(refused); i++) {
        assert_null(template_open(refused[i][0], (i64)strlen(refused[i][0]), "case"));
        if (!strstr(error_text(), refused[i][1]) || strncmp(error_text(), "case:1: ", 8) != 0)
            fail_msg("%s: %s", refused[i][0], error_text());
    }
}

static void errors_name_the_line(void **state)
{
    struct json *variables = json_object();
    (void)state;
    assert_null(rendered("a\n\n{{ x.y }}", 12, 0, variables, NULL));
    assert_string_equal(error_text(), "case:3: 'x' is undefined");
    assert_null(rendered("a\n{{ 1 +\n }}", 12, 0, variables, NULL));
    assert_string_equal(error_text(), "case:3: expected an expression, found }}");
    json_free(variables);
}

static void a_text_may_hold_any_byte_of_utf8(void **state)
{
    static const char text[] = "a\0{{ 'b\0c' }}";
    struct template_output out;
    struct json *variables = json_object();
    struct template *template = template_open(text, sizeof text - 1, "case");
    (void)state;
    assert_non_null(template);
    assert_int_equal(template_render(&out, template, variables), 0);
    assert_int_equal(out.text.length, 5);
    assert_memory_equal(out.text.data, "a\0b\0c", 5);
    template_output_release(&out);
    template_close(template);
    assert_null(template_open("a\xff", 2, "case"));
    json_free(variables);
}

static void templates_say_what_they_use(void **state)
{
    static const struct {
        const char *text;
        bool marks, clock;
    } cases[] = {{"{{ x }}", false, false},
                 {"{% generation %}{% endgeneration %}", true, false},
                 {"{# {% generation %} #}{{ '{% generation %}' }}", false, false},
                 {"{% if strftime_now is defined %}{% endif %}", false, true}};
    (void)state;
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_write_what_transformers_writes),
        cmocka_unit_test(json_is_that_of_python),
        cmocka_unit_test(a_template_that_does_not_end_is_stopped),
        cmocka_unit_test(attributes_of_macros_are_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(deep_variables_are_refused),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(a_text_may_hold_any_byte_of_utf8),
        cmocka_unit_test(templates_say_what_they_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
