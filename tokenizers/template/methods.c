/* Methods of dicts, lists and other values. Those that change a value are absent, as in Jinja's
 * immutable sandbox. */
#include "tokenizers/template/inside.h"

#include <string.h>

static struct jinja_value view(struct jinja_run *run, const struct jinja_call *call, enum jinja_part part)
{
    struct jinja_view *made = jinja_alloc(run, sizeof *made);
    *made = (struct jinja_view){call->subject.dict, part};
    return (struct jinja_value){JINJA_VIEW, {.view = made}};
}

static struct jinja_value keys(struct jinja_run *run, const struct jinja_call *call)
{
    return view(run, call, JINJA_KEYS);
}

static struct jinja_value values(struct jinja_run *run, const struct jinja_call *call)
{
    return view(run, call, JINJA_VALUES);
}

static struct jinja_value items(struct jinja_run *run, const struct jinja_call *call)
{
    return view(run, call, JINJA_ITEMS);
}

static struct jinja_value get(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_value *found = jinja_find(run, call->subject.dict, call->at[0]);
    if (found)
        return *found;
    return jinja_given(call, 1) ? call->at[1] : JINJA_NONE_VALUE;
}

static struct jinja_value copy_dict(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value copy = jinja_dict(run);
    for (i64 i = 0; i < call->subject.dict->count; i++)
        jinja_put(run, copy.dict, call->subject.dict->entries[i].key, call->subject.dict->entries[i].value);
    return copy;
}

static struct jinja_value copy_list(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_of_list(jinja_collect(run, call->subject), JINJA_LIST);
}

static struct jinja_value count(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *list = jinja_collect(run, call->subject);
    i64 found = 0;
    for (i64 i = 0; i < list->count; i++)
        found += jinja_equal(run, list->items[i], call->at[0]);
    return jinja_integer(found);
}

static struct jinja_value index_(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_list *list = jinja_collect(run, call->subject);
    i64 begin = jinja_want_integer(run, call, 1, 0), end = jinja_want_integer(run, call, 2, INT64_MAX);
    begin = begin < 0 ? max_i64(begin + list->count, 0) : begin;
    end = end < 0 ? end + list->count : end;
    for (i64 i = begin; i < min_i64(end, list->count); i++)
        if (jinja_equal(run, list->items[i], call->at[0]))
            return jinja_integer(i);
    jinja_fail(run, "%s is not in list", jinja_repr_text(run, call->at[0]));
}

static struct jinja_value next_of_cycler(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_cycler *cycler = call->subject.cycler;
    struct jinja_value current = cycler->items->items[cycler->at];
    (void)run;
    cycler->at = (cycler->at + 1) % cycler->items->count;
    return current;
}

static struct jinja_value reset(struct jinja_run *run, const struct jinja_call *call)
{
    (void)run;
    call->subject.cycler->at = 0;
    return JINJA_NONE_VALUE;
}

static const struct jinja_function of_dicts[] = {
    {"copy", "", 0, copy_dict},
    {"fromkeys", NULL, 0, NULL},
    {"get", "- -", 1, get},
    {"items", "", 0, items},
    {"keys", "", 0, keys},
    {"values", "", 0, values},
    {0},
};
static const struct jinja_function of_lists[] = {
    {"copy", "", 0, copy_list}, {"count", "-", 1, count}, {"index", "- - -", 1, index_}, {0}};
static const struct jinja_function of_tuples[] = {{"count", "-", 1, count}, {"index", "- - -", 1, index_}, {0}};
static const struct jinja_function of_cyclers[] = {{"next", "", 0, next_of_cycler}, {"reset", "", 0, reset}, {0}};
static const struct jinja_function of_integers[] = {{"as_integer_ratio", NULL, 0, NULL},
                                                    {"bit_count", NULL, 0, NULL},
                                                    {"bit_length", NULL, 0, NULL},
                                                    {"conjugate", NULL, 0, NULL},
                                                    {"denominator", NULL, 0, NULL},
                                                    {"from_bytes", NULL, 0, NULL},
                                                    {"imag", NULL, 0, NULL},
                                                    {"numerator", NULL, 0, NULL},
                                                    {"real", NULL, 0, NULL},
                                                    {"to_bytes", NULL, 0, NULL},
                                                    {0}};
static const struct jinja_function of_floats[] = {{"as_integer_ratio", NULL, 0, NULL},
                                                  {"conjugate", NULL, 0, NULL},
                                                  {"fromhex", NULL, 0, NULL},
                                                  {"hex", NULL, 0, NULL},
                                                  {"imag", NULL, 0, NULL},
                                                  {"is_integer", NULL, 0, NULL},
                                                  {"real", NULL, 0, NULL},
                                                  {0}};
static const struct jinja_function of_ranges[] = {{"count", "-", 1, count}, {"index", "-", 1, index_},
                                                  {"start", NULL, 0, NULL}, {"step", NULL, 0, NULL},
                                                  {"stop", NULL, 0, NULL},  {0}};

const struct jinja_function *jinja_method(struct jinja_value object, const char *name)
{
    static const struct jinja_function *const tables[] = {
        [JINJA_BOOL] = of_integers,  [JINJA_INTEGER] = of_integers,
        [JINJA_FLOAT] = of_floats,   [JINJA_TEXT] = JINJA_TEXT_METHODS,
        [JINJA_LIST] = of_lists,     [JINJA_TUPLE] = of_tuples,
        [JINJA_DICT] = of_dicts,     [JINJA_RANGE] = of_ranges,
        [JINJA_CYCLER] = of_cyclers, [JINJA_JOINER] = NULL,
    };
    return tables[object.kind] ? jinja_row(tables[object.kind], name) : NULL;
}
