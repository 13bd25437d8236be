#include "train/shard_order.h"

#include "core/json.h"
#include "data/stream/stream.h"

#include <string.h>

static const char key[] = "shard_order";
enum { NUMBERS = 5, MORE = 3 }; /* checkpoints of older programs lack `more` and the counts behind it */

bool data_has_stream(const char *data)
{
    bool found = false;
    for (i64 i = 0; i < data_lines(data); i++) {
        char *line = data_line(data, i);
        found |= shard_stream_is(line);
        memory_free(line);
    }
    return found;
}

/* ---- Positions of the sources ---- */

static struct json *cursor_json(const struct loader_cursor *c)
{
    const i64 numbers[] = {c->row,    c->pass,   c->round,      c->partition,
                           c->number, c->length, c->since_pass, c->since_number};
    struct json *j = json_array();
    for (i64 i = 0; i < NUMBERS + MORE; i++)
        json_push(j, json_of_integer(numbers[i]));
    json_push(j, left_out_json(&c->left_out));
    return j;
}

static int cursor_of(struct loader_cursor *out, const struct json *j)
{
    i64 numbers[NUMBERS];
    for (i64 i = 0; i < NUMBERS; i++) {
        numbers[i] = json_integer(json_at(j, i), -1);
        if (numbers[i] < 0)
            return error_set("the checkpoint has no shard position: its shards "
                             "were read in another order; train anew (--redo), or leave shuffle_shards as it was");
    }
    *out = (struct loader_cursor){numbers[0],
                                  numbers[1],
                                  numbers[2],
                                  numbers[3],
                                  numbers[4],
                                  json_integer(json_at(j, NUMBERS), 0),
                                  json_integer(json_at(j, NUMBERS + 1), 0),
                                  json_integer(json_at(j, NUMBERS + 2), 0),
                                  left_out_of_json(json_at(j, NUMBERS + MORE))};
    return 0;
}

void shard_order_save(const struct shard_order *o, struct json *state)
{
    if (!mixer_goes_by_shards(o->mixer))
        return;
    struct json *list = json_array();
    for (i64 i = 0; i < mixer_count(o->mixer); i++) {
        struct loader_cursor cursor = mixer_cursor(o->mixer, i);
        json_push(list, cursor_json(&cursor));
    }
    json_set(state, key, list);
}

int shard_order_resume(struct shard_order *o, const struct json *state)
{
    const struct json *list = json_get(state, key);
    struct loader_cursor cursor;
    if (!mixer_goes_by_shards(o->mixer))
        return 0;
    for (i64 i = 0; i < mixer_count(o->mixer); i++) {
        if (cursor_of(&cursor, json_at(list, i)) < 0)
            return -1;
        mixer_begin_at(o->mixer, i, &cursor);
    }
    return 0;
}

int shard_order_pass(struct shard_order *o, const char *directory, i64 keep)
{
    struct json *state = mixer_goes_by_shards(o->mixer) ? checkpoint_oldest(directory, keep) : NULL;
    const struct json *list = json_get(state, key);
    struct loader_cursor cursor;
    int status = 0;
    for (i64 i = 0; i < json_count(list) && status == 0; i++)
        status = cursor_of(&cursor, json_at(list, i)) < 0 ? -1 : mixer_passed(o->mixer, i, &cursor);
    json_free(state);
    return status;
}

/* ---- Time spent waiting for data ---- */

void shard_order_report(struct shard_order *o, struct training_step *said, double seconds)
{
    double waited = mixer_waited_s(o->mixer), now = waited - o->waited_s;
    if (!mixer_has_stream(o->mixer))
        return;
    if (o->seconds == 0)
        o->first_s = now;
    else
        o->share += 0.05 * (now / seconds - o->share);
    o->waited_s = waited;
    o->seconds += seconds;
    metrics_put(said->metrics, "data_waiting", now / seconds);
    if (o->waited_s == o->first_s && now > 0)
        buffer_printf(&said->note, ", first shards after %.1f s", now);
    if (o->share >= 0.01)
        buffer_printf(&said->note, ", data waiting %.0f %%", 100 * o->share);
}

int shard_order_save_waiting(const struct shard_order *o, const char *out)
{
    if (!mixer_has_stream(o->mixer))
        return 0;
    char *path = path_join(out, "waiting.json");
    struct json *j = json_object();
    json_set(j, "waited_s", json_of_number(o->waited_s));
    json_set(j, "first_s", json_of_number(o->first_s));
    json_set(j, "seconds", json_of_number(o->seconds));
    json_set(j, "restarts", json_of_integer(mixer_restarts(o->mixer)));
    int status = json_save(path, j);
    json_free(j);
    memory_free(path);
    return status;
}
