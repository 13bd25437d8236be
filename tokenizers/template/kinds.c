/* Tests: what follows `is`. */
#include "tokenizers/template/inside.h"

#include <string.h>

static struct jinja_value remainder_is(struct jinja_run *run, const struct jinja_call *call, struct jinja_value by,
                                       i64 rest)
{
    return jinja_bool(jinja_equal(run, jinja_binary(run, "%", call->subject, by), jinja_integer(rest)));
}

static struct jinja_value odd(struct jinja_run *run, const struct jinja_call *call)
{
    return remainder_is(run, call, jinja_integer(2), 1);
}

static struct jinja_value even(struct jinja_run *run, const struct jinja_call *call)
{
    return remainder_is(run, call, jinja_integer(2), 0);
}

static struct jinja_value divisibleby(struct jinja_run *run, const struct jinja_call *call)
{
    return remainder_is(run, call, call->at[0], 0);
}

static struct jinja_value is_undefined(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return jinja_bool(call->subject.kind == JINJA_UNDEFINED);
}

static struct jinja_value is_defined(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return jinja_bool(call->subject.kind != JINJA_UNDEFINED);
}

static struct jinja_value is_of_kind(const struct jinja_call *call, enum jinja_kind kind)
{
    return jinja_bool(call->subject.kind == kind);
}

static struct jinja_value is_none(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return is_of_kind(call, JINJA_NONE);
}

static struct jinja_value is_boolean(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return is_of_kind(call, JINJA_BOOL);
}

static struct jinja_value is_integer(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return is_of_kind(call, JINJA_INTEGER);
}

static struct jinja_value is_float(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return is_of_kind(call, JINJA_FLOAT);
}

static struct jinja_value is_string(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return is_of_kind(call, JINJA_TEXT);
}

static struct jinja_value is_mapping(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return is_of_kind(call, JINJA_DICT);
}

static struct jinja_value is_true(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return jinja_bool(call->subject.kind == JINJA_BOOL && call->subject.truth);
}

static struct jinja_value is_false(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return jinja_bool(call->subject.kind == JINJA_BOOL && !call->subject.truth);
}

static struct jinja_value is_number(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return jinja_bool(jinja_is_number(call->subject));
}

/* It has a length and items: texts and dicts too. */
static struct jinja_value is_sequence(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return jinja_bool(jinja_has_length(call->subject) && call->subject.kind != JINJA_VIEW &&
                      call->subject.kind != JINJA_LOOP);
}

static struct jinja_value is_iterable(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return jinja_bool(jinja_is_iterable(call->subject));
}

static struct jinja_value is_callable(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return jinja_bool(jinja_is_callable(call->subject));
}

/* The same object. Python shares small integers and equal literals; here numbers and texts are the
 * same if they are equal. */
static struct jinja_value sameas(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value a = call->subject, b = call->at[0];
    if (a.kind != b.kind)
        return jinja_bool(false);
    if (a.kind == JINJA_TEXT || a.kind == JINJA_FLOAT || jinja_is_whole(a) || a.kind == JINJA_NONE)
        return jinja_bool(jinja_equal(run, a, b));
    return jinja_bool(a.text == b.text);
}

static struct jinja_value is_escaped(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    return jinja_bool(call->subject.kind == JINJA_TEXT && call->subject.text->markup);
}

static struct jinja_value is_in(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_contains(run, call->at[0], call->subject));
}

static const char *name_words(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_builder words = {0};
    if (call->subject.kind == JINJA_TEXT)
        jinja_append(run, &words, call->subject.text->bytes, call->subject.text->length);
    jinja_append(run, &words, "", 1);
    return words.bytes;
}

static struct jinja_value is_filter(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_filter(name_words(run, call)) != NULL);
}

static struct jinja_value is_test(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_test(name_words(run, call)) != NULL);
}

static struct jinja_value is_equal(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_equal(run, call->subject, call->at[0]));
}

static struct jinja_value is_unequal(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(!jinja_equal(run, call->subject, call->at[0]));
}

static struct jinja_value is_less(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_compare(run, call->subject, call->at[0], "<") < 0);
}

static struct jinja_value is_greater(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_compare(run, call->subject, call->at[0], ">") == 1);
}

static struct jinja_value is_at_most(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_compare(run, call->subject, call->at[0], "<=") <= 0);
}

static struct jinja_value is_at_least(struct jinja_run *run, const struct jinja_call *call)
{
    int order = jinja_compare(run, call->subject, call->at[0], ">=");
    return jinja_bool(order == 0 || order == 1);
}

static const struct jinja_function tests[] = {
    {"odd", "", 0, odd},
    {"even", "", 0, even},
    {"divisibleby", "num", 1, divisibleby},
    {"defined", "", 0, is_defined},
    {"undefined", "", 0, is_undefined},
    {"filter", "", 0, is_filter},
    {"test", "", 0, is_test},
    {"none", "", 0, is_none},
    {"boolean", "", 0, is_boolean},
    {"false", "", 0, is_false},
    {"true", "", 0, is_true},
    {"integer", "", 0, is_integer},
    {"float", "", 0, is_float},
    {"lower", "", 0, jinja_islower},
    {"upper", "", 0, jinja_isupper},
    {"string", "", 0, is_string},
    {"mapping", "", 0, is_mapping},
    {"number", "", 0, is_number},
    {"sequence", "", 0, is_sequence},
    {"iterable", "", 0, is_iterable},
    {"callable", "", 0, is_callable},
    {"sameas", "other", 1, sameas},
    {"escaped", "", 0, is_escaped},
    {"in", "seq", 1, is_in},
    {"==", "-", 1, is_equal},
    {"eq", "-", 1, is_equal},
    {"equalto", "-", 1, is_equal},
    {"!=", "-", 1, is_unequal},
    {"ne", "-", 1, is_unequal},
    {">", "-", 1, is_greater},
    {"gt", "-", 1, is_greater},
    {"greaterthan", "-", 1, is_greater},
    {"ge", "-", 1, is_at_least},
    {">=", "-", 1, is_at_least},
    {"<", "-", 1, is_less},
    {"lt", "-", 1, is_less},
    {"lessthan", "-", 1, is_less},
    {"<=", "-", 1, is_at_most},
    {"le", "-", 1, is_at_most},
    {0},
};

const struct jinja_function *jinja_test(const char *name)
{
    return jinja_row(tests, name);
}
