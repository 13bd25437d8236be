/* The plan: which samples are in which row of which step. Internals shared by plan.c, fit.c,
 * order.c, stream_plan.c, packer.c and mixer.c. */
#ifndef WEFT_DATA_PLAN_H
#define WEFT_DATA_PLAN_H
#include "data/loader/packer.h"

/* One showing of a sample or, for a text longer than a row, of the ids [first, first + count).
 * copy: index of the showing within its epoch. */
enum { COPIES_MOST = 1024 };
struct plan_entry {
    i64 sample;
    i32 epoch, copy;
    i64 first, count; /* ids of a piece; count 0: the whole sample */
    i64 length;       /* positions */
    i64 place;        /* place in the order of an entry whose sample is not yet known; -1: known */
    i64 before;       /* sample - before is the sample's number in its collection */
};
/* The key of random draws: the sample and its showing. No two showings share both, up to 2^32
 * samples; beyond that, some samples share draws. */
static inline u32 entry_identity(const struct plan_entry *entry)
{
    i64 number = entry->sample - entry->before;
    return (u32)number ^ (u32)(number >> 32) * 0x9e3779b9u;
}
static inline u32 entry_showing(const struct plan_entry *entry)
{
    return (u32)entry->epoch * COPIES_MOST + (u32)entry->copy;
}
struct plan_entries {
    struct plan_entry *data;
    i64 count, capacity;
};
void entries_push(struct plan_entries *list, const struct plan_entry *entry);
void entries_release(struct plan_entries *list);

/* Row r holds entries [offset[r], offset[r+1]). */
struct packed_rows {
    struct plan_entries entries;
    i64 *offset;
    i64 count, capacity;
};
void rows_clear(struct packed_rows *rows);
void rows_push(struct packed_rows *rows, const struct plan_entry *entries, i64 count);
void rows_release(struct packed_rows *rows);

/* fit.c: best-fit packing, which puts each entry into the row with the least sufficient room. */
void fit(struct packed_rows *out, const struct plan_entries *entries, i64 length);

/* A sample's parts as passed to the grammar, after dropping and weighting prompts. */
struct grammar_parts {
    struct part *parts;
    i64 *index; /* part index in the shards */
    i64 *begin; /* first position, once the grammar has it (packer.c) */
    i64 count, capacity;
    i32 end; /* id the last position predicts; -1: none */
};
void grammar_parts_release(struct grammar_parts *given);

struct step_plan {
    i64 step; /* -1: none */
    struct loader_step summary;
    struct packed_rows rows; /* an entry's index is its sample's number within the step */
};
/* ---- order.c: the endless order of showings, addressed by place 0, 1, ... ---- */
struct order_group {          /* samples of similar length, longest first */
    i64 first, samples, slot; /* slot: the group's first in a pass */
    i64 whole, extra;         /* showings of each sample per pass; further slots for some of them */
    bool plain_text;          /* split if longer than a row */
};
struct sample_order {
    i64 epochs, slots; /* per pass; every pass fills the same slots, with other samples */
    i64 *samples;
    i32 *lengths;
    i64 sample_count;
    struct order_group *groups;
    i64 group_count;
};
struct loader;
struct mixer;
void order_init(struct loader *loader);
void order_release(struct sample_order *order);
bool is_plain_text(const struct loader *loader, i64 sample);
/* Most positions needed at a place in any pass, in rows of `length`; 0: left out. */
i64 order_room(const struct loader *loader, i64 place, i64 length);
struct plan_entry order_at(const struct loader *loader, i64 place);
double order_positions(const struct loader *loader, i64 length); /* rooms of a pass, summed */
struct left_out order_too_long(const struct loader *loader, i64 length);

/* ---- plan.c ---- */
struct planner {
    i64 next_step, taken;        /* steps passed; rows of this length they took */
    i64 length;                  /* T; 0: nothing planned yet */
    i64 begin;                   /* first place of the windows with this length */
    struct plan_entries carried; /* from rows of another length that no step took; packed first */
    i64 carried_rows, joining_rows;
    bool joining_known;  /* joining: the window from `begin` to the grid */
    i64 period, windows; /* the grid */
    i64 first;           /* its first window at or after `begin` */
    i64 *rows_before;    /* [counted + 1], cumulative over windows first, first + 1, ... */
    i64 counted, capacity;
    i64 open; /* the window whose rows are in `packed` */
    struct plan_entries gathered;
    struct packed_rows packed;
    struct left_out left_out;
};
/* ---- stream_plan.c: planning if samples come shard by shard ---- */
struct window_sample { /* one that is not split if it is longer than a row */
    i64 number, length;
    enum direction direction;
};
struct stream_plan {
    struct ring *ring;                  /* NULL: finished folders */
    i64 partitions;                     /* partitions of the ring, or folders */
    i64 **shard_samples;                /* per folder: the first sample of each shard, and the end */
    struct loader_cursor begin, opened; /* start of this loader; start of the current window */
    struct loader_cursor next;          /* the next window's start; its row is unused */
    struct window_sample *window;       /* [window_count] of the current window, in order */
    i64 window_count, window_capacity;
    /* Start of the window before the last planned step, which may be planned again. */
    struct loader_cursor kept;
    bool begun, any;       /* any: there is a current window */
    bool found;            /* a row was found since the pass began */
    i64 step, row;         /* steps and rows passed */
    i64 length, first_row; /* row length and first row of `packed` */
    struct plan_entries gathered;
    struct packed_rows packed;
};
enum { PLANS_KEPT = 2 };
struct loader {
    struct shards shards;
    struct loader_settings settings;
    u64 seed;
    struct vocabulary vocabulary;
    struct text_tokenizer *tokenizer;
    struct device *device;
    struct sample_order order;
    struct planner planner;
    struct stream_plan *stream_plan; /* NULL: `order` and `planner` are used */
    struct step_plan plans[PLANS_KEPT];
    struct grammar_parts given;
    struct grammar grammar;
    struct payload_fills *fills; /* owned by packer.c */
    struct mixer *mixer;         /* Several sources: sets the rows of a step that come from this one. NULL: all do. */
    i64 number;                  /* index among the mixer's sources */
    i64 limit;                   /* places from here on are not shown */
    i64 *exchanged;              /* [samples] whose prompt each has; -1: it is left out. NULL: all have their own */
};
/* exchange.c: fills loader->exchanged. */
void exchange_init(struct loader *loader);
/* conditions.c: lists an entry's parts without ids, so that no shard is touched. */
void loader_parts(const struct loader *loader, const struct plan_entry *entry, struct grammar_parts *out);
/* Prompt included. */
void loader_parts_whole(const struct loader *loader, i64 sample, struct grammar_parts *out);
/* packer.c, for the mixer. loader_row lays out row `row` of the plan from position `at` on;
 * `sample` is the number of the plan's first sample in the batch. loader_media fills in the media
 * once all rows are laid out. */
int loader_row(struct loader *loader, const struct step_plan *plan, i64 row, i64 at, i64 sample, struct batch *batch);
int loader_media(struct loader *loader, struct batch *batch, struct arena *arena);
void loader_begin_batch(struct loader *loader, i64 first, i64 rows, i64 length, struct batch *batch,
                        struct arena *arena);
void loader_prefetch_row(struct loader *loader, const struct step_plan *plan, i64 row);
/* plan.c: the plan of a step, borrowed until the next call. Returns NULL with a message if no plan
 * is possible. */
const struct step_plan *plan_step(struct loader *loader, i64 step);
/* Rows the step could take, up to `most`. */
i64 plan_rows_left(struct loader *loader, i64 step, i64 most);
double plan_epoch_positions(const struct loader *loader, i64 length); /* 0: unknown */
i64 plan_rows_of_step(const struct loader *loader, i64 step);
void plan_add_entry(struct plan_entries *out, const struct loader *loader, const struct plan_entry *entry, i64 length);
void plan_shuffle_rows(const struct loader *loader, struct packed_rows *rows, i64 begin);
int stream_plan_open(struct loader *loader, const char *data);
void stream_plan_close(struct loader *loader);
int stream_plan_rows(struct loader *loader, struct packed_rows *out, i64 step); /* appends the step's rows */
void loader_limit(struct loader *loader, double epochs);
/* mixer.c: the part of a step that source `number` contributes. */
const struct step_plan *mixer_plan(struct mixer *mixer, i64 number, i64 step);
void planner_release(struct planner *planner);
void step_plan_release(struct step_plan *plan);

#endif
