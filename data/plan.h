/* The plan: which samples stand in which row of which step. What plan.c, fit.c and packer.c tell each other. */
#ifndef WEFT_DATA_PLAN_H
#define WEFT_DATA_PLAN_H
#include "data/packer.h"

/* A sample each time it is shown, or for a text that is longer than a row [first, first + count) of its ids. */
struct showing {
    i32 sample, copy; /* copy: how often the epoch showed it before; below COPIES_MOST */
};
enum { COPIES_MOST = 1024 };
struct entry {
    i32 sample, epoch, copy;
    i64 first, count; /* of a piece; count 0: the whole sample */
    i64 length;       /* positions */
};
/* With the sample, what the draws are keyed by: no two showings share one. */
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

/* A sample's parts as the grammar takes them, prompts dropped and weighed; index[i]: the shard's part. */
struct telling {
    struct part *parts;
    i64 *index;
    i64 count, capacity;
    i32 end; /* id the last position predicts; -1: none */
};
void telling_release(struct telling *telling);

struct step_plan {
    i64 step; /* -1: none */
    struct loader_step summary;
    struct rows rows; /* an entry's index is its sample's number within the step */
};
struct planner {
    i64 next_step;
    i64 epoch, cursor;     /* cursor: in `order` */
    i64 windows, length;   /* windows planned so far; T of the rows that wait */
    struct showing *order; /* of the epoch; NULL before the first */
    i64 order_count;
    struct entries window; /* being gathered */
    struct rows waiting;
    i64 taken; /* rows of `waiting` already given to a step */
    i64 left_out;
};
enum { PLANS_KEPT = 2 };
struct loader {
    struct shards shards;
    struct loader_settings settings;
    u64 seed;
    struct vocabulary vocabulary;
    struct text_tokenizer *tokenizer;
    struct device *device;
    struct planner planner;
    struct step_plan plans[PLANS_KEPT];
    struct telling telling;
    struct grammar grammar;
    struct fills *fills; /* packer.c's */
};
/* tell.c: without ids, so that no shard is touched. */
void loader_tell(const struct loader *loader, const struct entry *entry, struct telling *out);
/* plan.c: the step's plan, borrowed until the next call; NULL and a message: nothing to plan with. */
const struct step_plan *plan_step(struct loader *loader, i64 step);
void planner_release(struct planner *planner);
void step_plan_release(struct step_plan *plan);

#endif
