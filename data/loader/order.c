/* The endless order in which samples are shown, addressed by place. Each place is computed
 * independently, from the lengths in the index and keyed permutations, so a run may begin anywhere.
 *
 * Samples of similar length and the same direction form groups. A group owns slots of a pass, and
 * each pass draws anew which of its samples is in which slot. So a slot needs the same room in
 * every pass, the rows are counted once for all passes (plan.c), and a pass shows every sample
 * exactly as often as the mixture says. */
#include "data/loader/plan.h"

#include <stdlib.h>
#include <string.h>

/* The samples of a group differ by at most 1 % in length. If only a share of them is shown, the
 * group is extended until at least GROUP_SHOWN are shown, so that whole slots approximate the
 * share. A pass is one epoch, or several if one would show fewer than GROUP_SHOWN. */
enum { GROUP_SHOWN = 16, EPOCHS_MOST = 1000, COPIES_KEPT = COPIES_MOST - 1 };

static struct rng_key key_of(const struct loader *l, enum rng_purpose purpose)
{
    return (struct rng_key){l->seed, purpose};
}

bool is_plain_text(const struct loader *l, i64 sample)
{
    struct shard_sample s = shards_sample(&l->shards, sample);
    const struct shard_part *part = shards_part(&l->shards, (i64)s.first_part);
    i64 parts = 0;
    for (i64 i = 0; i < s.parts; i++)
        if (part[i].kind != PART_NOTE)
            parts++;
    return s.direction == DIRECTION_TEXT && parts == 1;
}

/* ---- Building ---- */

struct order_item { /* A shown sample. The key sorts by direction, plain text separately, longest first. */
    u64 key;
    i64 sample;
    i32 length;
};
enum { CLASSES = 2 * DIRECTIONS };

static i64 class_of(const struct loader *l, i64 sample)
{
    return 2 * (i64)shards_sample(&l->shards, sample).direction + is_plain_text(l, sample);
}

static double mixture_of(const struct loader *l, i64 class)
{
    return l->settings.mixture[class / 2];
}

static i64 whole_length(struct loader *l, i64 sample)
{
    struct sample_measure measure;
    loader_parts_whole(l, sample, &l->given);
    grammar_measure(&measure, &l->vocabulary, l->given.parts, l->given.count, l->given.end);
    return measure.length;
}

bool loader_has_targets(struct loader *l, const double weight[TARGETS])
{
    bool shows = false;
    for (i64 i = 0; i < l->shards.sample_count && !l->stream_plan; i++) {
        struct sample_measure measure;
        if (!(mixture_of(l, class_of(l, i)) > 0))
            continue;
        shows = true;
        loader_parts_whole(l, i, &l->given);
        grammar_measure(&measure, &l->vocabulary, l->given.parts, l->given.count, l->given.end);
        for (int kind = 0; kind < TARGETS; kind++)
            if (measure.totals[kind] * weight[kind] > 0)
                return true;
    }
    return !shows;
}

static int by_key(const void *a, const void *b)
{
    const struct order_item *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->sample > y->sample) - (x->sample < y->sample);
}

static struct order_item *list_samples(struct loader *l, i64 *count)
{
    struct order_item *list = memory_alloc(max_i64(1, l->shards.sample_count) * (i64)sizeof *list);
    *count = 0;
    for (i64 i = 0; i < l->shards.sample_count; i++) {
        bool shown = mixture_of(l, class_of(l, i)) > 0 && !(l->exchanged && l->exchanged[i] < 0);
        i64 class = class_of(l, i), length = shown ? whole_length(l, i) : 0;
        u64 key = (u64) class << 32 | (u32)(INT32_MAX - length);
        require(length <= INT32_MAX, "sample %lld has %lld positions", (long long)i, (long long)length);
        if (length > 0)
            list[(*count)++] = (struct order_item){l->settings.in_order ? 0 : key, i, (i32)length};
    }
    qsort(list, (size_t)*count, sizeof *list, by_key);
    return list;
}

static i64 epochs_of_pass(const struct loader *l, const struct order_item *list, i64 count)
{
    i64 in_class[CLASSES] = {0};
    double epochs = 1;
    for (i64 i = 0; i < count; i++)
        in_class[class_of(l, list[i].sample)]++;
    for (i64 c = 0; c < CLASSES; c++) {
        double shown = mixture_of(l, c) * (double)in_class[c];
        if (shown > 0 && shown < GROUP_SHOWN && mixture_of(l, c) != (double)(i64)mixture_of(l, c))
            epochs = epochs < GROUP_SHOWN / shown ? GROUP_SHOWN / shown : epochs;
    }
    return min_i64(EPOCHS_MOST, (i64)epochs + ((double)(i64)epochs < epochs));
}

/* End of the class that begins at `first`; end_of_group: of the group that begins at `at`. */
static i64 end_of_class(const struct loader *l, const struct order_item *list, i64 count, i64 first)
{
    i64 end = first;
    while (end < count && class_of(l, list[end].sample) == class_of(l, list[first].sample))
        end++;
    return end;
}

static i64 end_of_group(const struct order_item *list, i64 at, i64 class_end, double rate)
{
    i64 least = rate > (double)(i64)rate ? (i64)(GROUP_SHOWN / rate) + 1 : 1, end = at;
    while (end < class_end && (end - at < least || 100 * (i64)list[end].length >= 99 * (i64)list[at].length))
        end++;
    return class_end - end < least ? class_end : end;
}

static void add_group(struct sample_order *o, i64 first, i64 end, i64 class_first, double rate)
{
    i64 whole = (i64)rate;
    double share = rate - (double)whole;
    i64 extra = (i64)(share * (double)(end - class_first) + 0.5) - (i64)(share * (double)(first - class_first) + 0.5);
    if (whole == 0 && first == class_first && extra == 0)
        extra = 1; /* otherwise the whole class would get no slot */
    o->groups = memory_resize(o->groups, o->group_count * (i64)sizeof *o->groups,
                              (o->group_count + 1) * (i64)sizeof *o->groups);
    o->groups[o->group_count++] =
        (struct order_group){.first = first, .samples = end - first, .slot = o->slots, .whole = whole, .extra = extra};
    o->slots += whole * (end - first) + extra;
}

static void add_class(struct loader *l, const struct order_item *list, i64 first, i64 end)
{
    struct sample_order *o = &l->order;
    double rate = mixture_of(l, class_of(l, list[first].sample)) * (double)o->epochs;
    for (i64 at = first, next; at < end; at = next) {
        next = end_of_group(list, at, end, rate);
        add_group(o, at, next, first, rate);
        o->groups[o->group_count - 1].plain_text = is_plain_text(l, list[at].sample);
    }
}

void order_init(struct loader *l)
{
    struct sample_order *o = &l->order;
    i64 count;
    struct order_item *list = list_samples(l, &count);
    *o = (struct sample_order){.sample_count = count, .epochs = 1};
    o->samples = memory_alloc(max_i64(1, count) * 8);
    o->lengths = memory_alloc(max_i64(1, count) * 4);
    for (i64 i = 0; i < count; i++) {
        o->samples[i] = list[i].sample;
        o->lengths[i] = list[i].length;
    }
    o->slots = l->settings.in_order ? count : 0;
    if (!l->settings.in_order) {
        o->epochs = epochs_of_pass(l, list, count);
        for (i64 first = 0, end; first < count; first = end) {
            end = end_of_class(l, list, count, first);
            add_class(l, list, first, end);
        }
    }
    memory_free(list);
}

void order_release(struct sample_order *o)
{
    memory_free(o->samples);
    memory_free(o->lengths);
    memory_free(o->groups);
    *o = (struct sample_order){0};
}

/* ---- Lookup ---- */

static const struct order_group *group_of(const struct sample_order *o, i64 slot)
{
    i64 low = 0, high = o->group_count - 1;
    while (low < high) {
        i64 middle = (low + high + 1) / 2;
        if (o->groups[middle].slot <= slot)
            low = middle;
        else
            high = middle - 1;
    }
    return &o->groups[low];
}

/* First sample of the group (longest first) that fits into a row of `length`; group.samples if
 * none. */
static i64 first_that_fits(const struct sample_order *o, const struct order_group *g, i64 length)
{
    i64 low = 0, high = g->samples;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (o->lengths[g->first + middle] <= length)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static i64 room_of_group(const struct sample_order *o, const struct order_group *g, i64 length)
{
    i64 first = g->plain_text ? 0 : first_that_fits(o, g, length);
    return first == g->samples ? 0 : o->lengths[g->first + first];
}

static i64 slot_at(const struct loader *l, i64 place)
{
    return rng_permuted(place % l->order.slots, l->order.slots, key_of(l, RNG_SHUFFLE), 0, 0, 0);
}

/* Index of a place in the list, within one pass. */
static i64 listed_at(const struct loader *l, i64 place)
{
    return l->settings.drawn ? slot_at(l, place) : place;
}

i64 order_room(const struct loader *l, i64 place, i64 length)
{
    const struct sample_order *o = &l->order;
    if (!l->settings.in_order)
        return room_of_group(o, group_of(o, slot_at(l, place)), length);
    i64 at = listed_at(l, place), needed = o->lengths[at];
    return needed <= length || is_plain_text(l, o->samples[at]) ? needed : 0;
}

struct plan_entry order_at(const struct loader *l, i64 place)
{
    const struct sample_order *o = &l->order;
    if (l->settings.in_order)
        return (struct plan_entry){.sample = o->samples[listed_at(l, place)]};
    i64 slot = slot_at(l, place), pass = place / o->slots;
    const struct order_group *g = group_of(o, slot);
    i64 at = slot - g->slot, copy = at / g->samples, number = (i64)(g - o->groups);
    if (copy < g->whole) {
        i64 one = rng_permuted(at % g->samples, g->samples, key_of(l, RNG_MIXTURE), (u32)pass, (u32)number, (u32)copy);
        return (struct plan_entry){.sample = o->samples[g->first + one],
                                   .epoch = (i32)(pass * o->epochs + copy * o->epochs / g->whole),
                                   .copy = (i32)(copy % COPIES_KEPT)};
    }
    at -= g->whole * g->samples;
    return (struct plan_entry){.sample = o->samples[g->first + (pass * g->extra + at) % g->samples],
                               .epoch = (i32)(pass * o->epochs + at * o->epochs / g->extra),
                               .copy = COPIES_KEPT};
}

double order_positions(const struct loader *l, i64 length)
{
    const struct sample_order *o = &l->order;
    double sum = 0;
    for (i64 i = 0; i < o->group_count; i++)
        sum += (double)(o->groups[i].whole * o->groups[i].samples + o->groups[i].extra) *
               (double)room_of_group(o, &o->groups[i], length);
    for (i64 i = 0; l->settings.in_order && i < o->slots; i++)
        sum += (double)order_room(l, i, length);
    return sum;
}

/* All samples of a group have one direction. */
struct left_out order_too_long(const struct loader *l, i64 length)
{
    const struct sample_order *o = &l->order;
    struct left_out out = {{0}};
    for (i64 i = 0; i < o->group_count; i++)
        if (!o->groups[i].plain_text)
            out.samples[shards_sample(&l->shards, o->samples[o->groups[i].first]).direction] +=
                first_that_fits(o, &o->groups[i], length);
    for (i64 i = 0; l->settings.in_order && i < o->slots; i++)
        out.samples[shards_sample(&l->shards, o->samples[listed_at(l, i)]).direction] += order_room(l, i, length) == 0;
    return out;
}
