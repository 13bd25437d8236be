/* The plan: which samples stand in which row of which step. What plan.c, fit.c and packer.c tell each other. */
#ifndef WEFT_DATA_PLAN_H
#define WEFT_DATA_PLAN_H
#include "data/loader/packer.h"

/* A sample each time it is shown, or for a text that is longer than a row [first, first + count) of its ids. `copy`:
 * which of an epoch's showings it is. */
enum { COPIES_MOST = 1024 };
struct entry {
    i64 sample;
    i32 epoch, copy;
    i64 first, count; /* of a piece; count 0: the whole sample */
    i64 length;       /* positions */
    i64 place;        /* in the order, of an entry that is not yet told its sample; -1: it is */
    i64 before;       /* the sample's number in its collection is `sample` less this */
};
/* What the draws are keyed by: the sample, and which of its showings it is. No two showings share both, up to 4 G
 * samples; beyond, draws of some are alike. */
static inline u32 entry_identity(const struct entry *entry)
{
    i64 number = entry->sample - entry->before;
    return (u32)number ^ (u32)(number >> 32) * 0x9e3779b9u;
}
static inline u32 entry_showing(const struct entry *entry)
{
    return (u32)entry->epoch * COPIES_MOST + (u32)entry->copy;
}
struct entries {
    struct entry *data;
    i64 count, capacity;
};
void entries_push(struct entries *list, const struct entry *entry);
void entries_release(struct entries *list);

/* Row r holds entries [offset[r], offset[r+1]). */
struct rows {
    struct entries entries;
    i64 *offset;
    i64 count, capacity;
};
void rows_clear(struct rows *rows);
void rows_push(struct rows *rows, const struct entry *entries, i64 count);
void rows_release(struct rows *rows);

/* fit.c: each entry goes to the row with the least room that is enough. */
void fit(struct rows *out, const struct entries *entries, i64 length);

/* A sample's parts as the grammar takes them, prompts dropped and weighed. */
struct grammar_parts {
    struct part *parts;
    i64 *index; /* the shard's part */
    i64 *begin; /* its first position, once the grammar has it (packer.c) */
    i64 count, capacity;
    i32 end; /* id the last position predicts; -1: none */
};
void grammar_parts_release(struct grammar_parts *given);

struct step_plan {
    i64 step; /* -1: none */
    struct loader_step summary;
    struct rows rows; /* an entry's index is its sample's number within the step */
};
/* ---- order.c: what stands at place 0, 1, ... of the endless order ---- */
struct order_group {          /* samples of like lengths, the longest first */
    i64 first, samples, slot; /* slot: the group's first, in a pass */
    i64 whole, extra;         /* each sample so often in a pass; slots beyond that */
    bool plain_text;          /* cut where it is longer than a row */
};
struct order {
    i64 epochs, slots; /* of a pass, after which the slots come again with other samples */
    i64 *samples;
    i32 *lengths;
    i64 sample_count;
    struct order_group *groups;
    i64 group_count;
};
struct loader;
struct mixer;
void order_init(struct loader *loader);
void order_release(struct order *order);
bool is_plain_text(const struct loader *loader, i64 sample);
/* Positions that what stands there may need in any pass, in rows of `length`; 0: it is left out. */
i64 order_room(const struct loader *loader, i64 place, i64 length);
struct entry order_at(const struct loader *loader, i64 place);
double order_positions(const struct loader *loader, i64 length); /* of a pass, with its rooms */
i64 order_too_long(const struct loader *loader, i64 length);     /* samples that are left out */

/* ---- plan.c ---- */
struct planner {
    i64 next_step, taken;   /* steps gone through, and how many rows of this length they took */
    i64 length;             /* T; 0: nothing planned yet */
    i64 begin;              /* place from which on windows have this length */
    struct entries carried; /* of rows of another length that no step took: they come first */
    i64 carried_rows, joining_rows;
    bool joining_known;  /* joining: the window from `begin` to the grid */
    i64 period, windows; /* the grid */
    i64 first;           /* its first window from `begin` on */
    i64 *rows_before;    /* [counted + 1] in windows first, first + 1, ... */
    i64 counted, capacity;
    i64 open; /* the window whose rows are in `packed` */
    struct entries gathered;
    struct rows packed;
    i64 left_out;
};
/* ---- windows.c: the same where samples come shard by shard ---- */
struct windows {
    struct ring *ring;                  /* NULL: folders, which have all their shards */
    i64 parts;                          /* of the ring, or folders */
    i64 **shard_samples;                /* of folder i: the first sample of each shard, and the end */
    struct loader_cursor begin, opened; /* where this loader begins, and the window at hand */
    struct loader_cursor next;          /* what is opened next; its row: unused */
    struct loader_cursor kept;          /* the window at hand before the step planned last: it may be planned again */
    bool begun, any;                    /* any: a window is at hand */
    bool found;                         /* a row, since the pass began */
    i64 step, row;                      /* gone through */
    i64 length, first_row;              /* of `packed` */
    struct entries gathered;
    struct rows packed;
};
enum { PLANS_KEPT = 2 };
struct loader {
    struct shards shards;
    struct loader_settings settings;
    u64 seed;
    struct vocabulary vocabulary;
    struct text_tokenizer *tokenizer;
    struct device *device;
    struct order order;
    struct planner planner;
    struct windows *windows; /* NULL: order and planner serve */
    struct step_plan plans[PLANS_KEPT];
    struct grammar_parts given;
    struct grammar grammar;
    struct fills *fills; /* packer.c's */
    struct mixer *mixer; /* of several sources: it says how many rows of a step are this one's; NULL: all are */
    i64 number;          /* among the mixer's */
    i64 limit;           /* places from here on are not shown */
};
/* conditions.c: without ids, so that no shard is touched. */
void loader_parts(const struct loader *loader, const struct entry *entry, struct grammar_parts *out);
void loader_parts_whole(const struct loader *loader, i64 sample, struct grammar_parts *out); /* with its prompt */
/* packer.c, for the mixer: row `row` of the plan, laid from position `at` on; its media once all rows are. `sample`:
 * the number of the plan's first among the batch's samples. */
int loader_row(struct loader *loader, const struct step_plan *plan, i64 row, i64 at, i64 sample, struct batch *batch);
int loader_media(struct loader *loader, struct batch *batch, struct arena *arena);
void loader_begin_batch(struct loader *loader, i64 first, i64 rows, i64 length, struct batch *batch,
                        struct arena *arena);
void loader_prefetch_row(struct loader *loader, const struct step_plan *plan, i64 row);
/* plan.c: the step's plan, borrowed until the next call; NULL and a message: nothing to plan with. */
const struct step_plan *plan_step(struct loader *loader, i64 step);
i64 plan_rows_left(struct loader *loader, i64 step, i64 most);        /* that the step could take, `most` at most */
double plan_epoch_positions(const struct loader *loader, i64 length); /* 0: not known */
i64 plan_rows_of_step(const struct loader *loader, i64 step);
void plan_add_entry(struct entries *out, const struct loader *loader, const struct entry *entry, i64 length);
void plan_shuffle_rows(const struct loader *loader, struct rows *rows, i64 begin);
int windows_open(struct loader *loader, const char *data);
void windows_close(struct loader *loader);
int windows_plan(struct loader *loader, struct rows *out, i64 step); /* the step's rows */
void loader_limit(struct loader *loader, double epochs);
/* mixer.c: a source's part of a step. */
const struct step_plan *mixer_plan(struct mixer *mixer, i64 number, i64 step);
void planner_release(struct planner *planner);
void step_plan_release(struct step_plan *plan);

#endif
