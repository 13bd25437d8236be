/* Calls of filters, tests, methods, functions and macros: which argument is which parameter. */
#include "tokenizers/template/inside.h"

#include <string.h>

const struct jinja_function *jinja_row(const struct jinja_function *rows, const char *name)
{
    for (; rows->name; rows++)
        if (strcmp(rows->name, name) == 0)
            return rows;
    return NULL;
}

/* Place of the parameter `name`, or -1. *count becomes how many there are. */
static int find_parameter(const char *parameters, struct jinja_value name, int *count)
{
    int found = -1;
    *count = 0;
    for (const char *at = parameters; *at; (*count)++) {
        size_t length = strcspn(at, " ");
        if (name.kind == JINJA_TEXT && *at != '-' && name.text->length == (i64)length &&
            memcmp(name.text->bytes, at, length) == 0)
            found = *count;
        at += length + (at[length] == ' ');
    }
    return found;
}

static void bind_arguments(struct jinja_run *run, struct jinja_call *call)
{
    const struct jinja_function *function = call->function;
    const struct jinja_arguments *given = &call->given;
    int count;
    find_parameter(function->parameters, JINJA_NONE_VALUE, &count);
    if (given->count > count)
        jinja_fail(run, "%s() takes at most %d argument(s), %lld were given", function->name, count,
                   (long long)given->count);
    for (i64 i = 0; i < given->count; i++)
        call->at[i] = given->values[i];
    for (i64 i = 0; i < given->named_count; i++) {
        int place = find_parameter(function->parameters, given->names[i], &count);
        if (place < 0)
            jinja_fail(run, "%s() got an unexpected keyword argument %s", function->name,
                       jinja_repr_text(run, given->names[i]));
        if (call->at[place].kind != JINJA_MISSING)
            jinja_fail(run, "%s() got multiple values for argument %s", function->name,
                       jinja_repr_text(run, given->names[i]));
        call->at[place] = given->named[i];
    }
    for (int i = 0; i < function->required; i++)
        if (call->at[i].kind == JINJA_MISSING)
            jinja_fail(run, "%s() misses an argument: expected %d at least", function->name, function->required);
}

struct jinja_value jinja_invoke(struct jinja_run *run, const struct jinja_function *function,
                                struct jinja_value subject, const struct jinja_arguments *arguments)
{
    struct jinja_call call = {.function = function, .subject = subject, .given = *arguments};
    if (!function->run)
        jinja_fail(run, "the method or function %s is not supported in chat templates", function->name);
    if (function->parameters)
        bind_arguments(run, &call);
    jinja_enter(run);
    struct jinja_value result = function->run(run, &call);
    jinja_leave(run, 1);
    return result;
}

bool jinja_apply_test(struct jinja_run *run, const struct jinja_function *test, struct jinja_value value,
                      const struct jinja_arguments *arguments)
{
    return jinja_truth(run, jinja_invoke(run, test, value, arguments));
}

bool jinja_is_callable(struct jinja_value value)
{
    /* Jinja's Undefined has the method __call__. */
    return value.kind == JINJA_MACRO || value.kind == JINJA_BOUND || value.kind == JINJA_JOINER ||
           value.kind == JINJA_LOOP || value.kind == JINJA_UNDEFINED;
}

static struct jinja_value call_joiner(struct jinja_run *run, struct jinja_joiner *joiner)
{
    bool used = joiner->used;
    joiner->used = true;
    return used ? joiner->separator : jinja_words(run, "");
}

struct jinja_value jinja_call_value(struct jinja_run *run, struct jinja_value callee,
                                    const struct jinja_arguments *arguments)
{
    struct jinja_value result = JINJA_NONE_VALUE;
    jinja_enter(run);
    switch (callee.kind) {
    case JINJA_MACRO:
        result = jinja_call_macro(run, callee.macro, arguments);
        break;
    case JINJA_BOUND:
        result = jinja_invoke(run, callee.bound->function, callee.bound->subject, arguments);
        break;
    case JINJA_LOOP:
        result = jinja_recurse(run, callee.loop, arguments);
        break;
    case JINJA_JOINER:
        result = call_joiner(run, callee.joiner);
        break;
    case JINJA_UNDEFINED:
        jinja_fail_undefined(run, callee);
    default:
        jinja_fail(run, "'%s' object is not callable", jinja_type_name(callee));
    }
    jinja_leave(run, 1);
    return result;
}

/* ---- Arguments of a type ---- */

i64 jinja_want_integer(struct jinja_run *run, const struct jinja_call *call, int place, i64 otherwise)
{
    struct jinja_value value = call->at[place];
    if (value.kind == JINJA_MISSING)
        return otherwise;
    jinja_need_defined(run, value);
    if (!jinja_is_whole(value))
        jinja_fail(run, "%s(): '%s' object cannot be interpreted as an integer", call->function->name,
                   jinja_type_name(value));
    return jinja_whole(value);
}

bool jinja_want_bool(struct jinja_run *run, const struct jinja_call *call, int place, bool otherwise)
{
    return jinja_given(call, place) ? jinja_truth(run, call->at[place]) : otherwise;
}

struct jinja_text *jinja_want_text(struct jinja_run *run, const struct jinja_call *call, int place)
{
    jinja_need_defined(run, call->at[place]);
    if (call->at[place].kind != JINJA_TEXT)
        jinja_fail(run, "%s(): expected a text, found a value of type %s", call->function->name,
                   jinja_type_name(call->at[place]));
    return call->at[place].text;
}

struct jinja_text *jinja_subject(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_str(run, call->subject).text;
}
