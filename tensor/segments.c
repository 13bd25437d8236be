/* Segments of a tape: placement of their tensors, and launching their ops as one unit. See the
 * drawing in tensor.h. */
#include "kernels/device/deferred.h"
#include "tensor/inside.h"

#include <string.h>

enum { ARENAS = 2 }; /* the tape's `arena` and `kept` */
struct segment_extent {
    i64 first, most; /* bytes: offset, and maximum use so far */
};
struct segment_place {
    struct segment_extent extent[ARENAS];
    struct recordings *recordings; /* recordings of the place's segment */
};
struct segments {
    struct deferred *deferred;
    struct device *device;    /* the tape's device while ops are deferred, else NULL */
    struct arena arena, kept; /* arenas of places; swapped with the tape's while it is in a place */
    struct free_class free[FREE_CLASSES];
    struct segment_place *places;
    i64 count, now, end[ARENAS]; /* now: current place, -1 if none; end: where the last place of this pass ended */
    bool in_backward;            /* the backward has reached a segment */
};

/* ---- Memory ---- */

static void swap_arenas(struct arena *a, struct arena *b)
{
    struct arena kept = *a;
    *a = *b;
    *b = kept;
}

/* Swaps the tape's own arenas and free lists with those of places. */
static void swap_memory(struct tape *tape)
{
    struct segments *s = tape->segments;
    struct free_class classes[FREE_CLASSES];
    swap_arenas(&tape->arena, &s->arena);
    swap_arenas(&tape->kept, &s->kept);
    memcpy(classes, tape->free, sizeof classes);
    memcpy(tape->free, s->free, sizeof classes);
    memcpy(s->free, classes, sizeof classes);
}

static struct arena *arena_at(struct tape *tape, int i)
{
    return i ? &tape->kept : &tape->arena;
}

static void leave_place(struct tape *tape)
{
    swap_memory(tape);
    tape->segments->now = -1;
}

void tape_place_begin(struct tape *tape, i64 place)
{
    struct segments *s = tape->segments;
    if (!s)
        return;
    require(s->now < 0 && place >= 0 && place < s->count, "place %lld of %lld, within place %lld", (long long)place,
            (long long)s->count, (long long)s->now);
    swap_memory(tape);
    s->now = place;
    for (int i = 0; i < ARENAS; i++)
        arena_reset(arena_at(tape, i), max_i64(s->places[place].extent[i].first, s->end[i]));
}

void tape_place_end(struct tape *tape)
{
    struct segments *s = tape->segments;
    if (!s)
        return;
    for (int i = 0; i < ARENAS; i++) {
        struct segment_extent *extent = &s->places[s->now].extent[i];
        i64 first = max_i64(extent->first, s->end[i]);
        s->end[i] = round_up(arena_mark(arena_at(tape, i)), 64);
        extent->most = max_i64(extent->most, s->end[i] - first);
    }
    leave_place(tape);
}

void tape_place_gradient(struct tape *tape, struct tensor *t)
{
    if (tape->segments && tape->recording && t->needs_grad)
        tape_ensure_gradient(tape, t);
}

/* ---- Ops ---- */

static void begin_ops(struct tape *tape)
{
    struct segments *s = tape->segments;
    s->device = tape->device;
    tape->device = deferred_begin(s->deferred);
}

/* Runs the deferred ops of `place`, which the tape has already left. */
static void end_ops(struct tape *tape, const struct segment_place *place)
{
    struct segments *s = tape->segments;
    tape->device = s->device;
    s->device = NULL;
    deferred_end(s->deferred, place->recordings);
}

bool segments_deferring(const struct tape *tape)
{
    return tape->segments && tape->segments->device;
}

struct segment_record {
    struct tape_record record;
    i64 place;
};

/* Places gradients behind all places. */
static void begin_backward(struct tape_record *record, struct device *device, struct tape *tape)
{
    struct segments *s = tape->segments;
    const struct segment_place *last = &s->places[s->count - 1];
    (void)device;
    s->now = ((struct segment_record *)record)->place;
    swap_memory(tape);
    if (!s->in_backward)
        arena_reset(&tape->arena, max_i64(s->end[0], last->extent[0].first + last->extent[0].most));
    s->in_backward = true;
    begin_ops(tape);
}

static void end_backward(struct tape_record *record, struct device *device, struct tape *tape)
{
    struct segments *s = tape->segments;
    (void)device;
    leave_place(tape);
    end_ops(tape, &s->places[((struct segment_record *)record)->place]);
}

static void push(struct tape *tape, i64 place, void (*backward)(struct tape_record *, struct device *, struct tape *))
{
    if (tape->recording)
        ((struct segment_record *)tape_push(tape, sizeof(struct segment_record), backward))->place = place;
}

void tape_segment_begin(struct tape *tape, i64 place)
{
    struct segments *s = tape->segments;
    if (!s)
        return;
    push(tape, place, end_backward);
    tape_place_begin(tape, place);
    begin_ops(tape);
}

void tape_segment_end(struct tape *tape)
{
    struct segments *s = tape->segments;
    if (!s)
        return;
    i64 place = s->now;
    tape_place_end(tape);
    end_ops(tape, &s->places[place]);
    push(tape, place, begin_backward);
}

/* ---- Open, clear, close ---- */

void tape_segments_open(struct tape *tape, i64 places)
{
    require(!tape->segments && arena_mark(&tape->arena) == 0, "segments of a tape that has them, or tensors");
    struct recordings *recordings = device_recordings_open(tape->device);
    if (!recordings)
        return; /* the device cannot record, so places are useless */
    struct segments *s = tape->segments = memory_alloc(sizeof *s);
    s->deferred = deferred_open(tape->device);
    device_arena_open(tape->device, &s->arena, tape->arena.wanted_bytes);
    device_arena_open(tape->device, &s->kept, tape->kept.wanted_bytes);
    s->places = memory_alloc(places * (i64)sizeof *s->places);
    s->count = places;
    s->now = -1;
    for (i64 place = 0; place < places; place++)
        s->places[place].recordings = place ? device_recordings_open(tape->device) : recordings;
}

/* Recomputes the offsets of all places, once before each pass: a place that used more than ever
 * before shifts the places behind it. */
void segments_clear(struct tape *tape)
{
    struct segments *s = tape->segments;
    if (!s)
        return;
    require(s->now < 0, "a tape is cleared within place %lld", (long long)s->now);
    for (int i = 0; i < ARENAS; i++) {
        i64 first = 0;
        for (i64 place = 0; place < s->count; place++) {
            s->places[place].extent[i].first = first;
            first += s->places[place].extent[i].most;
        }
        s->end[i] = 0;
    }
    memset(s->free, 0, sizeof s->free);
    s->in_backward = false;
}

i64 segments_peak_bytes(const struct tape *tape)
{
    const struct segments *s = tape->segments;
    return s ? s->arena.peak_bytes + s->kept.peak_bytes : 0;
}

i64 segments_rounding_bytes(const struct tape *tape)
{
    const struct segments *s = tape->segments;
    return s ? arena_rounding_bytes(tape->device, &s->arena) + arena_rounding_bytes(tape->device, &s->kept) : 0;
}

void segments_close(struct tape *tape)
{
    struct segments *s = tape->segments;
    if (!s)
        return;
    for (i64 place = 0; place < s->count; place++)
        device_recordings_close(tape->device, s->places[place].recordings);
    device_arena_close(tape->device, &s->arena);
    device_arena_close(tape->device, &s->kept);
    deferred_close(s->deferred);
    memory_free(s->places);
    memory_free(s);
    tape->segments = NULL;
}
