/* --replay: the worlds of a run, from the members.jsonl that its first rank wrote (pipeline/members.h). */
#include "launcher/launcher_inside.h"
#include "dist/deal.h"

#include <string.h>
#include <sys/stat.h>

static void release_world(struct replay_world *w)
{
    memory_free(w->layout);
    memory_free(w->device);
    json_free(w->deals);
    json_free(w->machines);
    json_free(w->experts);
}

/* A world that went back to an earlier step than others began at replaces them. */
static void add_world(struct replay *r, struct replay_world world)
{
    while (r->count > 0 && r->list[r->count - 1].first >= world.first)
        release_world(&r->list[--r->count]);
    if (r->count > 0)
        r->list[r->count - 1].end = world.first;
    r->list = memory_resize(r->list, r->count * (i64)sizeof world, (r->count + 1) * (i64)sizeof world);
    r->list[r->count++] = world;
}

/* What a world with `deal` speed says of its deals, in the order of their steps. */
static int check_deals(const struct json *line, const struct layout *layout, const char *where)
{
    const struct json *deals = json_get(line, "deals");
    i64 groups = layout->data / layout->expert, before = json_integer(json_get(line, "step"), 0);
    bool speed = strcmp(json_string(json_get(line, "deal"), ""), "speed") == 0;
    bool right = speed == (json_count(deals) > 0);
    for (i64 i = 0; i < json_count(deals); i++) {
        const struct json *parts = json_get(json_at(deals, i), "parts");
        i64 step = json_integer(json_get(json_at(deals, i), "step"), -1);
        right &= step >= before && json_count(parts) == groups;
        before = step + 1;
        for (i64 g = 0; g < json_count(parts); g++) {
            i64 part = json_integer(json_at(parts, g), 0);
            right &= part >= 1 && part <= DEAL_FASTEST;
        }
    }
    return right ? 0
                 : error_set("%s: the deals cannot be read: expected, with \"deal\": \"speed\" only, ascending steps "
                             "and for each %lld %s from 1 to %d",
                             where, (long long)groups, plural(groups, "part", "parts"), DEAL_FASTEST);
}

static int check_machines(const struct json *line, i64 ranks, const char *where)
{
    const struct json *machines = json_get(line, "machines");
    i64 count = 0;
    bool right = !machines || json_count(machines) == ranks;
    for (i64 r = 0; r < json_count(machines) && right; r++) {
        i64 number = json_integer(json_at(machines, r), -1);
        right = number >= 0 && number <= count;
        count += number == count;
    }
    return right ? 0
                 : error_set("%s: the machines cannot be read: expected a number for each of the %lld %s, which count "
                             "from 0 in the order of their first ranks",
                             where, (long long)ranks, plural(ranks, "rank", "ranks"));
}

static i64 experts_in(const struct json *placement)
{
    return json_count(json_at(placement, 0));
}

/* False if a layer has another number of experts than the first, or something else than numbers. */
static bool read_placement(i32 *out, const struct json *placement)
{
    i64 layers = json_count(placement), experts = experts_in(placement);
    bool right = true;
    for (i64 l = 0; l < layers && right; l++) {
        const struct json *layer = json_at(placement, l);
        right = json_count(layer) == experts;
        for (i64 i = 0; i < experts && right; i++)
            out[l * experts + i] = (i32)max_i64(-1, min_i64(json_integer(json_at(layer, i), -1), experts));
    }
    return right;
}

static int check_experts(const struct json *line, const struct layout *layout, const char *where)
{
    const struct json *placement = json_get(line, "experts");
    i64 layers = json_count(placement), experts = experts_in(placement);
    i32 *list = memory_alloc(max_i64(layers * experts, 1) * (i64)sizeof *list);
    bool right = !placement || (experts > 0 && read_placement(list, placement) &&
                                placement_is_right(list, layers, experts, layout->expert));
    memory_free(list);
    return right ? 0
                 : error_set("%s: the experts cannot be read: expected for each layer the number of each expert once, "
                             "in the order of the %lld %s that hold as many each, and ascending on each",
                             where, (long long)layout->expert, plural(layout->expert, "rank", "ranks"));
}

static int check_world(const struct json *line, const char *where)
{
    i64 step = json_integer(json_get(line, "step"), -1), ranks = json_integer(json_get(line, "ranks"), 0);
    const char *layout = json_string(json_get(line, "layout"), NULL), *deal = json_string(json_get(line, "deal"), "");
    struct layout parsed;
    if (step < 0 || ranks < 1 || ranks > WORLD_MOST || !layout)
        return error_set("%s: no world of ranks (step, ranks, layout): expected a line of a members.jsonl", where);
    if (layout_parse(&parsed, layout, ranks))
        return error_prefix("%s", where);
    if (strcmp(deal, "even") != 0 && strcmp(deal, "speed") != 0)
        return error_set("%s: the deal of samples is \"%s\", expected \"even\" or \"speed\": another version wrote it",
                         where, deal);
    return check_machines(line, ranks, where) || check_experts(line, &parsed, where) ||
                   check_deals(line, &parsed, where)
               ? -1
               : 0;
}

static struct json *copy_of(const struct json *line, const char *key)
{
    const struct json *value = json_get(line, key);
    return value ? json_copy(value) : NULL;
}

static int read_line(struct replay *r, const char *text, i64 length, i64 number)
{
    struct json *line = json_parse_line(text, length, r->path, number);
    char *where = string_format("%s:%lld", r->path, (long long)number);
    const char *stage = json_string(json_get(line, "stage"), "");
    bool begins = json_bool(json_get(line, "begins"), false);
    int status = line ? check_world(line, where) : -1;
    if (status == 0 && r->stage && strcmp(r->stage, stage) != 0)
        status = error_set("%s: of stage %s, the lines before are of %s: expected the journal of one stage", where,
                           stage, r->stage);
    if (status == 0 && r->count == 0 && !begins)
        status = error_set("%s: the journal begins in the middle of a run, at step %lld: worlds before it are missing",
                           where, (long long)json_integer(json_get(line, "step"), 0));
    if (status == 0 && !r->stage) {
        r->stage = string_copy(stage);
        r->of = json_copy(json_get(line, "of"));
    }
    if (status == 0)
        add_world(r, (struct replay_world){.ranks = json_integer(json_get(line, "ranks"), 1),
                                           .first = json_integer(json_get(line, "step"), 0),
                                           .layout = string_copy(json_string(json_get(line, "layout"), "")),
                                           .device = string_copy(json_string(json_get(line, "device"), "")),
                                           .deals = copy_of(line, "deals"),
                                           .machines = copy_of(line, "machines"),
                                           .experts = copy_of(line, "experts")});
    json_free(line);
    memory_free(where);
    return status;
}

struct replay *replay_open(const char *path)
{
    struct replay *r = memory_alloc(sizeof *r);
    struct buffer text = {0};
    *r = (struct replay){.path = path};
    int status = file_read(&text, path);
    i64 number = 0;
    for (char *line = text.data, *end; status == 0 && line && line < text.data + text.length; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text.data + text.length - line));
        if (end)
            status = read_line(r, line, end - line, ++number);
        else
            status = error_set("%s:%lld: the line is cut: expected a whole members.jsonl", path, (long long)number + 1);
        if (!end)
            break;
    }
    if (status == 0 && r->count == 0)
        status = error_set("%s: it is empty: expected a line for each world of ranks", path);
    buffer_release(&text);
    if (status == 0)
        return r;
    replay_close(r);
    return NULL;
}

void replay_close(struct replay *r)
{
    for (i64 i = 0; r && i < r->count; i++)
        release_world(&r->list[i]);
    if (r) {
        memory_free(r->list);
        memory_free(r->stage);
        json_free(r->of);
    }
    memory_free(r);
}

/* Names what differs between two runs; empty: nothing does. */
static void compare_runs(struct buffer *names, const struct json *journal, const struct json *own)
{
    struct json_iterator it;
    buffer_append(names, "", 0);
    for (bool more = json_first(&it, own); more; more = json_next(&it, own))
        if (strcmp(json_string(it.value, ""), json_string(json_get(journal, it.key), "")) != 0)
            buffer_printf(names, "%s%s", names->length ? ", " : "", it.key);
}

int replay_check(const struct replay *r, i64 at, const struct json *line, const char *journal)
{
    const struct replay_world *w = &r->list[at];
    const char *device = json_string(json_get(line, "device"), "");
    i64 step = json_integer(json_get(line, "step"), 0);
    struct stat own, given;
    struct buffer names = {0};
    int status = 0;
    compare_runs(&names, r->of, json_get(line, "of"));
    if (stat(journal, &own) == 0 && stat(r->path, &given) == 0 && own.st_dev == given.st_dev &&
        own.st_ino == given.st_ino)
        status = error_usage("%s is the journal of the run that is there: give its replay another folder (run=FOLDER)",
                             r->path);
    else if (names.length)
        status = error_usage("%s is the journal of another run, which differs from stage %s here in %s: expected the "
                             "same recipe, arguments and files",
                             r->path, r->stage, names.data);
    else if (strcmp(device, w->device) != 0)
        status =
            error_usage("%s: its ranks computed on \"%s\", these do on \"%s\", which gives other bits: set WEFT_CPU, "
                        "or give the same --device",
                        r->path, w->device, device);
    else if (step < w->first || (json_bool(json_get(line, "begins"), false) && at > 0))
        status =
            error_usage("the replay stands at step %lld, where the ranks that began at step %lld are to go on: its "
                        "last checkpoint is damaged or missing; begin it anew in another folder (run=FOLDER)",
                        (long long)step, (long long)w->first);
    buffer_release(&names);
    return status;
}

i64 replay_machine(const struct replay_world *w, i64 rank)
{
    return json_integer(json_at(w->machines, rank), 0);
}

void replay_deal(i64 *parts, i64 groups, const struct replay_world *w, i64 done)
{
    for (i64 g = 0; g < groups; g++)
        parts[g] = DEAL_FASTEST;
    for (i64 i = 0; i < json_count(w->deals); i++) {
        const struct json *one = json_at(w->deals, i);
        for (i64 g = 0; g < groups && json_integer(json_get(one, "step"), 0) <= done; g++)
            parts[g] = json_integer(json_at(json_get(one, "parts"), g), DEAL_FASTEST);
    }
}

int replay_place(i32 *placement, i64 layers, i64 experts, const struct replay *r, i64 at)
{
    const struct json *of = r->list[at].experts;
    if (of && (json_count(of) != layers || experts_in(of) != experts))
        return error_usage("%s: its ranks hold %lld layers of %lld experts, the model here has %lld of %lld: expected "
                           "the journal of this run",
                           r->path, (long long)json_count(of), (long long)experts_in(of), (long long)layers,
                           (long long)experts);
    for (i64 i = 0; i < layers * experts; i++)
        placement[i] = (i32)(i % experts);
    if (of)
        read_placement(placement, of);
    return 0;
}
