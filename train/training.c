#include "dist/dist.h"
#include "train/train.h"

static int run_one(const struct training *t, i64 step, struct progress *bar)
{
    i64 done = step + 1;
    int status = t->step(t->context, step, bar);
    if (status)
        return status;
    bool stop = comm_any(t->stage->ranks->world, interrupted());
    if ((stop || done == t->steps || done % t->checkpoint_steps == 0) && t->save(t->context, done))
        return -1;
    return stop && done < t->steps ? STAGE_INTERRUPTED : 0;
}

int training_run(const struct training *t, i64 begin)
{
    struct progress bar;
    int status = 0;
    progress_init(&bar, t->stage->name, t->steps);
    for (i64 step = begin; step < t->steps && status == 0; step++)
        status = run_one(t, step, &bar);
    progress_close(&bar);
    return status;
}
