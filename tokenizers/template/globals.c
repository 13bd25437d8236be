/* Global functions. */
#include "tokenizers/template/inside.h"

#include <string.h>

/* Pairs of a mapping or of an iterable of pairs, and named arguments: the arguments of dict(). */
static struct jinja_value make_dict(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value dict = jinja_dict(run);
    if (call->given.count > 1)
        jinja_fail(run, "dict expected at most 1 argument, got %lld", (long long)call->given.count);
    if (call->given.count && call->given.values[0].kind == JINJA_DICT) {
        const struct jinja_dict *from = call->given.values[0].dict;
        for (i64 i = 0; i < from->count; i++)
            jinja_put(run, dict.dict, from->entries[i].key, from->entries[i].value);
    } else if (call->given.count) {
        struct jinja_list *pairs = jinja_collect(run, call->given.values[0]);
        for (i64 i = 0; i < pairs->count; i++) {
            struct jinja_list *pair = jinja_collect(run, pairs->items[i]);
            if (pair->count != 2)
                jinja_fail(run, "dictionary update sequence element #%lld has length %lld; 2 is required", (long long)i,
                           (long long)pair->count);
            jinja_put(run, dict.dict, pair->items[0], pair->items[1]);
        }
    }
    for (i64 i = 0; i < call->given.named_count; i++)
        jinja_put(run, dict.dict, call->given.names[i], call->given.named[i]);
    return dict;
}

static struct jinja_value make_namespace(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value dict = make_dict(run, call);
    for (i64 i = 0; i < dict.dict->count; i++) {
        struct jinja_value key = dict.dict->entries[i].key;
        if (key.kind == JINJA_TEXT && key.text->bytes[0] == '_')
            jinja_fail(run, "a namespace cannot have the attribute %s: rename it", jinja_repr_text(run, key));
    }
    dict.kind = JINJA_NAMESPACE;
    return dict;
}

static struct jinja_value make_range(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_range *range = jinja_alloc(run, sizeof *range);
    i64 first = jinja_want_integer(run, call, 0, 0);
    *range = (struct jinja_range){.start = jinja_given(call, 1) ? first : 0,
                                  .step = jinja_want_integer(run, call, 2, 1),
                                  .stop = jinja_want_integer(run, call, 1, first)};
    if (range->step == 0)
        jinja_fail(run, "range() arg 3 must not be zero");
    bool up = range->step > 0;
    if (up ? range->stop > range->start : range->stop < range->start) {
        u64 span = up ? (u64)range->stop - (u64)range->start : (u64)range->start - (u64)range->stop;
        u64 size = up ? (u64)range->step : -(u64)range->step, count = (span - 1) / size + 1;
        if (count > JINJA_RANGE_MOST)
            jinja_fail(run, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", JINJA_RANGE_MOST);
        range->count = (i64)count;
    }
    return (struct jinja_value){JINJA_RANGE, {.range = range}};
}

static struct jinja_value make_cycler(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_cycler *cycler = jinja_alloc(run, sizeof *cycler);
    if (call->given.count == 0)
        jinja_fail(run, "at least one item has to be provided");
    cycler->items = jinja_sequence(run, JINJA_LIST, call->given.count).list;
    memcpy(cycler->items->items, call->given.values, (size_t)call->given.count * sizeof *call->given.values);
    return (struct jinja_value){JINJA_CYCLER, {.cycler = cycler}};
}

static struct jinja_value make_joiner(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_joiner *joiner = jinja_alloc(run, sizeof *joiner);
    joiner->separator = jinja_given(call, 0) ? call->at[0] : jinja_words(run, ", ");
    return (struct jinja_value){JINJA_JOINER, {.joiner = joiner}};
}

static struct jinja_value raise_exception(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_str(run, call->at[0]).text;
    jinja_fail(run, "the template refuses the conversation: %.*s", (int)min_i64(text->length, 1000), text->bytes);
}

static struct jinja_value strftime_now(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_strftime(run, call->at[0]);
}

static const struct jinja_function globals[] = {
    {"range", "- - -", 1, make_range},
    {"dict", NULL, 0, make_dict},
    {"namespace", NULL, 0, make_namespace},
    {"cycler", NULL, 0, make_cycler},
    {"joiner", "sep", 0, make_joiner},
    {"lipsum", NULL, 0, NULL},
    {"raise_exception", "message", 1, raise_exception},
    {"strftime_now", "format", 1, strftime_now},
    {0},
};

const struct jinja_function *jinja_global(const char *name)
{
    return jinja_row(globals, name);
}
