/* Opens runs, in place of the folder of a recipe with arms those in it, and groups them by arm. */
#include "report/arms.h"

#include <math.h>
#include <string.h>

/* ---- Runs ---- */

static struct run *add_run(struct run_list *all)
{
    i64 size = (i64)sizeof *all->list;
    all->list = memory_resize(all->list, all->count * size, (all->count + 1) * size);
    all->list[all->count] = (struct run){0};
    return &all->list[all->count++];
}

static void add_missing(struct run_list *all, const char *path)
{
    struct string_names *m = &all->missing;
    m->list = memory_resize(m->list, m->count * 8, (m->count + 1) * 8);
    m->list[m->count++] = string_copy(path);
}

/* Names that are short and tell the runs of one recipe apart. */
static void name_part(struct run *run)
{
    memory_free(run->name);
    run->name = run->arm && run->has_seed ? string_format("%s/%lld", run->arm, (long long)run->seed)
                : run->arm                ? string_copy(run->arm)
                                          : string_format("seed %lld", (long long)run->seed);
}

/* Adds the run at a path, or those that its recipe's arms and seeds have in it. */
static int add_runs(struct run_list *all, const char *path, i64 origin, bool several)
{
    struct run *run = add_run(all);
    if (run_open(run, path)) /* run_list_close releases it */
        return -1;
    run->origin = origin;
    const struct json *parts = json_get(run->about, "runs");
    if (json_count(parts) == 0) {
        if (run->arm || run->has_seed)
            name_part(run);
        return 0;
    }
    struct run whole = *run;
    i64 before = --all->count;
    int status = 0;
    for (i64 i = 0; i < json_count(parts) && status == 0; i++) {
        const char *name = json_string(json_at(parts, i), "");
        char *folder = path_join(path, name), *about = path_join(folder, "run.json");
        if (run_leaves_folder(name) || !file_exists(about)) {
            add_missing(all, folder);
        } else {
            run = add_run(all);
            status = run_open(run, folder);
            run->origin = origin;
            if (status == 0 && run->count == 0) { /* its folder was made, and no stage has begun */
                run_close(run);
                all->count--;
                add_missing(all, folder);
            } else if (status == 0) {
                name_part(run);
                if (!run->arm && several) /* folders of seeds alone are the arms */
                    run->arm = string_copy(whole.name);
            }
        }
        memory_free(about);
        memory_free(folder);
    }
    if (status == 0 && all->count == before)
        status = error_set("%s: its recipe has arms or seeds, and none of their runs has begun", path);
    run_close(&whole);
    return status;
}

int run_list_open(struct run_list *all, const char *const *paths, i64 count)
{
    *all = (struct run_list){.paths = paths, .path_count = count};
    for (i64 i = 0; i < count; i++)
        if (add_runs(all, paths[i], i, count > 1))
            return -1;
    bool arms = false, one = all->count == count; /* no folder of several runs */
    for (i64 i = 0; i < all->count; i++) {
        const char *arm = all->list[i].arm, *first = all->list[0].arm;
        arms |= arm != NULL;
        one &= arm && first && strcmp(arm, first) == 0;
    }
    for (i64 i = 0; i < all->count && one; i++) { /* of one arm: pages of their own */
        memory_free(all->list[i].arm);
        all->list[i].arm = NULL;
        arms = false;
    }
    for (i64 i = 0; i < all->count && arms; i++) /* a run beside those of arms is an arm, too */
        if (!all->list[i].arm)
            all->list[i].arm = string_copy(all->list[i].name);
    runs_tell_apart(all->list, all->count);
    return 0;
}

void run_list_close(struct run_list *all)
{
    for (i64 i = 0; i < all->count; i++)
        run_close(&all->list[i]);
    for (i64 i = 0; i < all->missing.count; i++)
        memory_free(all->missing.list[i]);
    memory_free(all->missing.list);
    memory_free(all->list);
    *all = (struct run_list){0};
}

/* ---- Arms ---- */

static i64 seed_of(const struct run *run)
{
    if (run->has_seed)
        return run->seed;
    for (i64 i = 0; i < run->count; i++)
        if (json_get(run->stages[i].identity, "seed"))
            return json_integer(json_get(run->stages[i].identity, "seed"), 0);
    return 0;
}

static bool has_origin(const struct arms *all, const struct arm *arm, i64 origin)
{
    for (i64 i = 0; i < arm->count; i++)
        if (all->runs->list[arm->runs[i]].origin == origin)
            return true;
    return false;
}

/* The baseline's run of the same seed, in the same folder or else in one that has no run of this arm. */
static i64 pair_of(const struct arms *all, const struct arm *arm, const struct run *run)
{
    const struct arm *baseline = &all->list[all->baseline];
    i64 elsewhere = -1;
    for (i64 i = 0; i < baseline->count; i++) {
        const struct run *other = &all->runs->list[baseline->runs[i]];
        if (seed_of(other) != seed_of(run))
            continue;
        if (other->origin == run->origin)
            return baseline->runs[i];
        if (elsewhere < 0 && !has_origin(all, arm, other->origin) && !has_origin(all, baseline, run->origin))
            elsewhere = baseline->runs[i];
    }
    return elsewhere;
}

static int find_baseline(struct arms *all, const char *name)
{
    struct buffer known = {0};
    if (name && all->count == 0)
        return error_usage("--baseline %s: the runs are of no arms: expected a run whose recipe has arms", name);
    for (i64 a = 0; a < all->count && name; a++) {
        if (strcmp(all->list[a].name, name) == 0) {
            all->baseline = a;
            buffer_release(&known);
            return 0;
        }
        buffer_printf(&known, "%s%s", a ? ", " : "", all->list[a].name);
    }
    if (name)
        error_usage("--baseline %s: there is no such arm; the arms: %s", name, known.data);
    buffer_release(&known);
    return name ? -1 : 0;
}

struct run *arms_firsts(const struct arms *all)
{
    struct run *firsts = memory_alloc(max_i64(all->count, 1) * (i64)sizeof *firsts);
    for (i64 a = 0; a < all->count; a++) {
        firsts[a] = all->runs->list[all->list[a].runs[0]];
        firsts[a].name = (char *)(uintptr_t)all->list[a].name; /* read alone */
    }
    return firsts;
}

int arms_open(struct arms *all, const struct run_list *runs, const char *baseline)
{
    *all = (struct arms){.runs = runs};
    all->list = memory_alloc(max_i64(runs->count, 1) * (i64)sizeof *all->list);
    all->figures = memory_alloc(max_i64(runs->count, 1) * (i64)sizeof *all->figures);
    for (i64 r = 0; r < runs->count && runs->list[r].arm; r++) {
        struct arm *arm = all->list;
        while (arm < all->list + all->count && strcmp(arm->name, runs->list[r].arm) != 0)
            arm++;
        if (arm == all->list + all->count) {
            arm->name = runs->list[r].arm;
            arm->runs = memory_alloc(runs->count * 8);
            arm->pairs = memory_alloc(runs->count * 8);
            all->count++;
        }
        arm->runs[arm->count++] = r;
    }
    if (find_baseline(all, baseline))
        return -1;
    for (i64 a = 0; a < all->count; a++)
        for (i64 i = 0; i < all->list[a].count; i++) {
            struct arm *arm = &all->list[a];
            arm->pairs[i] = a == all->baseline ? -1 : pair_of(all, arm, &runs->list[arm->runs[i]]);
            arm->paired += arm->pairs[i] >= 0;
        }
    for (i64 r = 0; r < runs->count; r++) {
        figures_collect(&all->figures[r], &runs->list[r]);
        figures_collect_grid(&all->figures[r], &runs->list[r]);
    }
    return 0;
}

void arms_close(struct arms *all)
{
    for (i64 a = 0; a < all->count; a++) {
        memory_free(all->list[a].runs);
        memory_free(all->list[a].pairs);
    }
    for (i64 r = 0; r < all->runs->count; r++)
        figures_release(&all->figures[r]);
    memory_free(all->figures);
    memory_free(all->list);
    *all = (struct arms){.runs = all->runs};
}

/* ---- Figures ---- */

static double value_of(const struct arms *all, i64 run, const struct figure *f)
{
    const struct figure *own = run < 0 ? NULL : figures_find(&all->figures[run], f->stage, f->label);
    return own ? own->value : NAN;
}

static void see_figure(const struct arms *all, const struct figure *f,
                       void (*see)(void *context, const struct arms *arms, const struct arm_figure *figure),
                       void *context)
{
    struct arm_figure out = {f, memory_alloc(all->count * (i64)sizeof *out.spreads),
                             memory_alloc(all->count * (i64)sizeof *out.differences)};
    double *values = memory_alloc(2 * all->runs->count * 8), *before = values + all->runs->count;
    for (i64 a = 0; a < all->count; a++) {
        const struct arm *arm = &all->list[a];
        for (i64 i = 0; i < arm->count; i++) {
            values[i] = value_of(all, arm->runs[i], f);
            before[i] = value_of(all, arm->pairs[i], f);
        }
        out.spreads[a] = spread_of(values, arm->count);
        out.differences[a] = paired_difference(values, before, arm->count);
    }
    see(context, all, &out);
    memory_free(values);
    memory_free(out.spreads);
    memory_free(out.differences);
}

void arms_each_figure(const struct arms *all, const char *stage,
                      void (*see)(void *context, const struct arms *arms, const struct arm_figure *figure),
                      void *context)
{
    for (i64 r = 0; r < all->runs->count; r++)
        for (i64 i = 0; i < all->figures[r].count; i++) {
            const struct figure *f = &all->figures[r].list[i];
            if (strcmp(f->label, "peak memory") == 0) /* of the process, which may have made other runs before */
                continue;
            if (strcmp(f->stage, stage) == 0 && figure_is_first(all->figures, r, f))
                see_figure(all, f, see, context);
        }
}

void arms_each_stage(const struct arms *all, void (*see)(void *context, const struct arms *arms, const char *stage),
                     void *context)
{
    for (i64 r = 0; r < all->runs->count; r++)
        for (i64 i = 0; i < all->runs->list[r].count; i++) {
            const char *stage = all->runs->list[r].stages[i].name;
            bool known = false;
            for (i64 k = 0; k < r; k++)
                known |= run_find(&all->runs->list[k], stage) != NULL;
            if (!known)
                see(context, all, stage);
        }
    see(context, all, "all");
}

const char *difference_words(const struct paired_difference *d)
{
    return d->pairs == 0                   ? "no pair"
           : d->pairs == 1                 ? "1 pair"
           : d->error == 0 && d->mean == 0 ? "the same"
           : !d->resolved                  ? "not resolved"
           : d->mean < 0                   ? "lower"
                                           : "higher";
}

void put_difference(struct buffer *out, double value, const struct figure *f)
{
    struct buffer size = {0};
    if (!isfinite(value))
        return;
    put_figure(&size, fabs(value), f->unit, f->digits + 1);
    buffer_printf(out, "%s%s", value < 0 ? "\u2212" : value > 0 ? "+" : "", size.data);
    buffer_release(&size);
}
