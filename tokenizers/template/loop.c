/* The variable `loop`. */
#include "tokenizers/template/inside.h"

#include <string.h>

static bool has_next(struct jinja_run *run, struct jinja_loop *loop)
{
    if (loop->after.kind == JINJA_MISSING && !loop->iterator->next(&loop->after, run, loop->iterator))
        loop->after = JINJA_MISSING_VALUE;
    return loop->after.kind != JINJA_MISSING;
}

/* What has no length is read to its end, and goes on from a list. */
static i64 length_of(struct jinja_run *run, struct jinja_loop *loop)
{
    if (loop->length >= 0)
        return loop->length;
    if (!loop->node->c && jinja_has_length(loop->iterable))
        return loop->length = jinja_length(run, loop->iterable);
    struct jinja_list *rest = jinja_collect(run, (struct jinja_value){JINJA_ITERATOR, {.iterator = loop->iterator}});
    loop->iterator = jinja_iterate(run, jinja_of_list(rest, JINJA_LIST));
    return loop->length = rest->count + loop->index0 + 1 + (loop->after.kind != JINJA_MISSING);
}

static struct jinja_value neighbour(struct jinja_run *run, struct jinja_loop *loop, const char *name)
{
    if (*name == 'p')
        return loop->index0 == 0 ? jinja_undefined_hint(run, "there is no previous item") : loop->before;
    return has_next(run, loop) ? loop->after : jinja_undefined_hint(run, "there is no next item");
}

static struct jinja_value cycle(struct jinja_run *run, const struct jinja_call *call)
{
    if (call->given.count == 0)
        jinja_fail(run, "no items for cycling given");
    return call->given.values[call->subject.loop->index0 % call->given.count];
}

static struct jinja_value changed(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_loop *loop = call->subject.loop;
    struct jinja_list *list = jinja_alloc(run, sizeof *list);
    *list = (struct jinja_list){call->given.values, call->given.count, call->given.count};
    struct jinja_value now = jinja_of_list(list, JINJA_TUPLE);
    bool same = loop->changed.kind != JINJA_MISSING && jinja_equal(run, loop->changed, now);
    loop->changed = now;
    return jinja_bool(!same);
}

static const struct jinja_function methods[] = {{"cycle", NULL, 0, cycle}, {"changed", NULL, 0, changed}, {0}};

struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop, const char *name)
{
    static const char *const names[] = {"index",  "index0",   "depth",     "depth0",   "first",   "last",
                                        "length", "revindex", "revindex0", "previtem", "nextitem"};
    i64 which = 0;
    const struct jinja_function *method = jinja_row(methods, name);
    if (method) {
        struct jinja_bound *bound = jinja_alloc(run, sizeof *bound);
        *bound = (struct jinja_bound){method, {JINJA_LOOP, {.loop = loop}}};
        return (struct jinja_value){JINJA_BOUND, {.bound = bound}};
    }
    while (which < COUNT_OF(names) && strcmp(names[which], name) != 0)
        which++;
    switch (which) {
    case 0:
    case 1:
        return jinja_integer(loop->index0 + (which == 0));
    case 2:
    case 3:
        return jinja_integer(loop->depth0 + (which == 2));
    case 4:
        return jinja_bool(loop->index0 == 0);
    case 5:
        return jinja_bool(!has_next(run, loop));
    case 6:
        return jinja_integer(length_of(run, loop));
    case 7:
    case 8:
        return jinja_integer(length_of(run, loop) - loop->index0 - (which == 8));
    case 9:
    case 10:
        return neighbour(run, loop, name);
    default:
        return JINJA_MISSING_VALUE;
    }
}
