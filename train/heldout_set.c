#include "train/heldout_set.h"

#include "data/shards/shards.h"
#include "train/heldout_inside.h"

#include <string.h>

/* Appends up to pass->most_rows rows of the pass. Returns their number, or -1 and a message. */
static i64 add_rows(struct heldout_set *set, const struct heldout_pass *pass, const struct model_config *config)
{
    struct heldout_rows rows;
    struct loader_step plan;
    i64 added = 0;
    if (heldout_rows_open(&rows, pass, config))
        return -1;
    int status = 1;
    for (i64 step = 0; status > 0 && added < pass->most_rows; step++) {
        status = heldout_rows_step(&plan, &rows, pass, step);
        if (status <= 0)
            break;
        i64 bytes = (i64)sizeof *set->batches;
        set->batches = memory_resize(set->batches, set->count * bytes, (set->count + 1) * bytes);
        status = heldout_rows_batch(&set->batches[set->count], &rows, pass, step, &set->arena) ? -1 : 1;
        set->count += status > 0;
        added += plan.rows;
    }
    loader_close(rows.loader);
    return status < 0 ? -1 : added;
}

/* Marks the kinds of samples of the pass's part. Returns their number, or -1 and a message. */
static i64 kinds_of(bool there[DIRECTIONS], const struct heldout_pass *pass)
{
    struct shards shards;
    i64 kinds = 0;
    memset(there, 0, DIRECTIONS * sizeof *there);
    if (shards_open(&shards, pass->directory, pass->split) < 0)
        return -1;
    for (i64 i = 0; i < shards.sample_count; i++) {
        int d = shards_sample(&shards, i).direction;
        bool more = !there[d] && (pass->chats != CHATS_ALONE || d == DIRECTION_CHAT);
        there[d] |= more;
        kinds += more;
    }
    shards_close(&shards);
    return kinds;
}

/* Each kind gets its share of the rows that are left, so one of few rows leaves some to the next. */
int heldout_set_open(struct heldout_set *set, const struct heldout_pass *pass, const struct model_config *config)
{
    bool there[DIRECTIONS];
    i64 left = pass->most_rows, kinds = kinds_of(there, pass);
    *set = (struct heldout_set){0};
    if (kinds < 0)
        return -1;
    arena_open(&set->arena, (i64)64 << 30);
    set->arena.sparse = true; /* as in step.c */
    for (int d = 0; d < DIRECTIONS; d++) {
        struct heldout_pass part = *pass;
        if (!there[d])
            continue;
        part.chats = d == DIRECTION_CHAT ? CHATS_ALONE : CHATS_LEFT_OUT;
        part.directions = 1u << d;
        part.most_rows = max_i64(1, ceil_div(left, kinds--));
        i64 added = add_rows(set, &part, config);
        if (added < 0) {
            heldout_set_close(set);
            return -1;
        }
        left -= added;
    }
    return 0;
}

void heldout_set_close(struct heldout_set *set)
{
    if (set->arena.base)
        arena_close(&set->arena);
    memory_free(set->batches);
    *set = (struct heldout_set){0};
}

void heldout_set_measure(struct step_result *sums, const struct heldout_set *set, struct model *model,
                         const struct submodel *sub, const char *label)
{
    struct progress bar;
    struct step_sums *there = step_sums_open(model->device);
    struct forward_options options = {0};
    struct step_end end;
    struct tape tape;
    memset(sums, 0, sizeof *sums);
    step_sums_clear(model->device, there);
    tape_open(&tape, model->device, model->weights.dtype, (i64)64 << 30);
    progress_init_late(&bar, label, set->count);
    for (i64 i = 0; i < set->count; i++) {
        struct forward forward;
        tape_clear(&tape, false);
        heldout_forward(&forward, &tape, model, &set->batches[i], sub, &options);
        step_sums_add(model->device, there, &forward, &model->config);
        progress_update(&bar, i + 1, NULL);
    }
    progress_clear(&bar);
    step_sums_reduce(model->parallel->pipeline, there);
    step_sums_get(sums, &end, model->device, there);
    tape_close(&tape);
    step_sums_close(model->device, there);
}
