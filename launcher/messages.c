/* What launchers say behind their greeting: checks of what has come. */
#include "dist/dist.h"
#include "launcher/launcher_inside.h"

#include <string.h>

static bool is_between(const struct json *value, i64 least, i64 most)
{
    i64 number = json_integer(value, least - 1);
    return number >= least && number <= most;
}

bool message_is_start(struct rank_world *out, const struct json *m, i64 ranks)
{
    const struct json *host = json_get(m, "host");
    if (!is_between(json_get(m, "start"), 1, INT64_MAX) || !is_between(json_get(m, "size"), 1, WORLD_MOST) ||
        !is_between(json_get(m, "first"), 0, WORLD_MOST) || !is_between(json_get(m, "count"), 0, ranks) ||
        !is_between(json_get(m, "port"), 1, 65535) || json_kind(host) != JSON_STRING)
        return false;
    *out = (struct rank_world){.generation = json_integer(json_get(m, "start"), 0),
                               .first = json_integer(json_get(m, "first"), 0),
                               .count = json_integer(json_get(m, "count"), 0),
                               .size = json_integer(json_get(m, "size"), 0),
                               .port = json_integer(json_get(m, "port"), 0),
                               .host = json_string(host, "")};
    return out->first + out->count <= out->size;
}

static bool is_end_of_rank(const struct json *rank)
{
    return is_between(json_get(rank, "rank"), 0, WORLD_MOST - 1) &&
           is_between(json_get(rank, "end"), RANK_RUNS, RANK_KILLED) &&
           json_kind(json_get(rank, "usage")) == JSON_BOOL && json_kind(json_get(rank, "how")) == JSON_STRING;
}

bool message_is_outcome(const struct json *outcome)
{
    const struct json *bad = json_get(outcome, "bad");
    bool is = is_between(json_get(outcome, "done"), 0, WORLD_MOST) &&
              is_between(json_get(outcome, "saved"), 0, WORLD_MOST) && json_kind(bad) == JSON_ARRAY &&
              json_count(bad) <= WORLD_MOST;
    for (i64 i = 0; is && i < json_count(bad); i++)
        is = is_end_of_rank(json_at(bad, i));
    return is;
}
