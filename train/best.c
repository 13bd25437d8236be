#include "train/best.h"

#include <math.h>

bool best_on(const struct best_settings *s)
{
    return s->measure && *s->measure;
}

int best_check(const struct best_settings *s, const char *every, i64 steps)
{
    if (!best_on(s) && s->patience)
        return error_usage("patience %lld needs keep_best, the measure that is to get better", (long long)s->patience);
    if (best_on(s) && steps == 0)
        return error_usage("keep_best %s is measured every `%s` steps: expected %s above 0", s->measure, every, every);
    return 0;
}

void best_init(struct best *b, const struct best_settings *settings, bool higher)
{
    *b = (struct best){.settings = settings, .higher = higher, .step = -1, .seen = -1, .history = json_array()};
}

void best_release(struct best *b)
{
    json_free(b->history);
    b->history = NULL;
}

bool best_is_kept(const struct best *b)
{
    return b->settings && best_on(b->settings);
}

i64 best_kept(const struct best *b)
{
    return best_is_kept(b) ? b->step : -1;
}

const char *best_measure(const struct best_settings *settings)
{
    return best_on(settings) ? settings->measure : "heldout";
}

bool best_add(struct best *b, i64 step, double value)
{
    struct json *pair = json_array();
    bool better = isfinite(value) && (b->step < 0 || (b->higher ? value > b->value : value < b->value));
    json_push(pair, json_of_integer(step));
    json_push(pair, json_of_number(value));
    json_push(b->history, pair);
    b->seen = step;
    b->last = value;
    b->worse = better ? 0 : b->worse + 1;
    if (better) {
        b->step = step;
        b->value = value;
    }
    return better;
}

bool best_ends(const struct best *b)
{
    return best_is_kept(b) && b->settings->patience && b->worse >= b->settings->patience;
}

struct json *best_json(const struct best *b)
{
    struct json *j = json_object();
    json_set(j, "measure", json_of_string(best_measure(b->settings)));
    json_set(j, "higher", json_of_bool(b->higher));
    json_set(j, "step", json_of_integer(b->step));
    json_set(j, "value", json_of_number(b->value));
    json_set(j, "history", json_copy(b->history));
    return j;
}

/* The rest follows from the history. */
void best_get(struct best *b, const struct json *j)
{
    const struct json *history = json_get(j, "history");
    for (i64 i = 0; i < json_count(history); i++) {
        const struct json *pair = json_at(history, i);
        best_add(b, json_integer(json_at(pair, 0), 0), json_number(json_at(pair, 1), NAN));
    }
}
