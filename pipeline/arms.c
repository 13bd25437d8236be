/* The runs of a recipe with arms and seeds: which there are, and which stages each makes for itself. */
#include "pipeline/pipeline.h"
#include "core/json.h"

#include <stdio.h>
#include <string.h>

/* ---- Reading ---- */

static bool is_stage(const struct yaml_node *stages, const char *name)
{
    return yaml_get(stages, name) != NULL;
}

/* Error: nothing of a mapping is called `name`. */
static int unknown_name(const char *where, const char *what, const char *name, const struct yaml_node *mapping)
{
    const char **names = memory_alloc((yaml_count(mapping) + 1) * (i64)sizeof *names);
    struct buffer known = {0};
    for (i64 i = 0; i < yaml_count(mapping); i++) {
        names[i] = yaml_key(mapping, i);
        buffer_printf(&known, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = string_nearest(name, names);
    error_usage("%s: there is no %s \"%s\"%s%s%s; known: %s", where, what, name, near ? ", did you mean \"" : "",
                near ? near : "", near ? "\"?" : "", known.length ? known.data : "none");
    buffer_release(&known);
    memory_free(names);
    return -1;
}

/* A key STAGE.key of an arm that another one neither repeats nor holds. */
static int check_arm_key(const struct yaml_node *values, i64 index, const struct yaml_node *stages)
{
    const char *key = yaml_key(values, index), *where = yaml_key_where(values, index), *dot = strchr(key, '.');
    if (!dot || dot == key || !dot[1])
        return error_usage("%s: an arm has keys STAGE.key, found \"%s\"", where, key);
    for (i64 i = 0; i < index; i++)
        if (recipe_keys_overlap(yaml_key(values, i), key))
            return error_usage("%s: %s and %s set the same: expected one of them", where, yaml_key(values, i), key);
    char *stage = string_format("%.*s", (int)(dot - key), key);
    int status = is_stage(stages, stage) ? 0 : unknown_name(where, "stage", stage, stages);
    memory_free(stage);
    return status;
}

static int check_arms(const struct yaml_node *root, const struct yaml_node *arms)
{
    const struct yaml_node *stages = yaml_get(root, "stages");
    i64 keys = 0;
    if (!arms)
        return 0;
    if (!yaml_is_mapping(arms) || yaml_count(arms) == 0)
        return error_usage("%s: arms: expected a mapping of at least one arm, {NAME: {STAGE.key: value, ...}, ...}",
                           yaml_where(arms));
    for (i64 a = 0; a < yaml_count(arms); a++) {
        const char *name = yaml_key(arms, a), *where = yaml_key_where(arms, a);
        const struct yaml_node *values = yaml_value(arms, a);
        bool empty = yaml_scalar(values) && !*yaml_scalar(values);
        if (!recipe_is_name(name))
            return error_usage("%s: \"%s\" is no name for an arm: expected letters, digits, - and _", where, name);
        if (is_stage(stages, name))
            return error_usage("%s: the arm %s has the name of a stage: their folders would be the same, rename one",
                               where, name);
        if (!yaml_is_mapping(values) && !empty)
            return error_usage("%s: arm %s: expected a mapping, {STAGE.key: value, ...}", where, name);
        for (i64 i = 0; i < yaml_count(values); i++, keys++)
            if (check_arm_key(values, i, stages))
                return -1;
    }
    if (keys == 0)
        return error_usage("%s: arms: none of them sets a key, so that they would be the same: expected "
                           "{NAME: {STAGE.key: value, ...}, ...}",
                           yaml_where(arms));
    return 0;
}

/* Reads the seeds, a list of seed_count. */
static int read_seeds(u64 *seeds, const struct yaml_node *root, const struct yaml_node *list)
{
    char name[24];
    for (i64 i = 0; i < yaml_count(list); i++) {
        const struct yaml_node *node = yaml_value(list, i);
        if (recipe_parse_seed(&seeds[i], yaml_scalar(node)))
            return error_usage("%s: seeds: expected whole numbers from 0, found %s", yaml_where(node),
                               yaml_scalar(node) ? yaml_scalar(node) : "a list or mapping");
        for (i64 k = 0; k < i; k++)
            if (seeds[k] == seeds[i])
                return error_usage("%s: seeds: %s is there twice: expected each seed once", yaml_where(node),
                                   yaml_scalar(node));
        snprintf(name, sizeof name, "%llu", (unsigned long long)seeds[i]);
        if (is_stage(yaml_get(root, "stages"), name) || yaml_get(yaml_get(root, "arms"), name))
            return error_usage("%s: the seed %s is the name of a stage or arm, too: their folders would be the same",
                               yaml_where(node), name);
    }
    return 0;
}

static int check_seed_list(const struct yaml_node *root)
{
    const struct yaml_node *seeds = yaml_get(root, "seeds"), *stages = yaml_get(root, "seed_stages");
    if (seeds && (!yaml_is_sequence(seeds) || yaml_count(seeds) == 0))
        return error_usage("%s: seeds: expected a list of whole numbers, [1, 2, 3]", yaml_where(seeds));
    if (stages && !seeds)
        return error_usage("%s: seed_stages without seeds: expected seeds: [1, 2, 3]", yaml_where(stages));
    if (stages && (!yaml_is_sequence(stages) || yaml_count(stages) == 0))
        return error_usage("%s: seed_stages: expected a list of stages, [NAME, ...]", yaml_where(stages));
    for (i64 i = 0; i < yaml_count(stages); i++) {
        const char *name = yaml_scalar(yaml_value(stages, i)), *where = yaml_where(yaml_value(stages, i));
        if (!name || !is_stage(yaml_get(root, "stages"), name))
            return unknown_name(where, "stage", name ? name : "", yaml_get(root, "stages"));
        for (i64 k = 0; k < i; k++)
            if (strcmp(name, yaml_scalar(yaml_value(stages, k))) == 0)
                return error_usage("%s: seed_stages: %s is there twice: expected each stage once", where, name);
    }
    return 0;
}

/* ---- Which stages are whose ---- */

static int take_from(struct recipe *r, struct recipe_stage *s, const struct setting *row, char **line)
{
    const struct recipe_stage *from = recipe_stage_of(r, *line);
    (void)row;
    if (from) {
        s->by_arm |= from->by_arm;
        s->by_seed |= from->by_seed;
    }
    return 0;
}

/* Passes both marks on to the stages behind, in all runs alike. */
static void spread_marks(struct recipe_runs *all)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (i64 r = 0; r < all->count; r++)
            for (i64 i = 0; i < all->list[r].count; i++) {
                struct recipe_stage *s = &all->list[r].stages[i];
                bool arm = s->by_arm, seed = s->by_seed;
                for (const struct setting *row = s->kind->table; row->key; row++)
                    recipe_each_reference(&all->list[r], s, row, take_from);
                changed |= s->by_arm != arm || s->by_seed != seed;
                for (i64 k = 0; k < all->count; k++) {
                    all->list[k].stages[i].by_arm |= s->by_arm;
                    all->list[k].stages[i].by_seed |= s->by_seed;
                }
            }
    }
}

static bool sets_key_of(const struct recipe *r, const char *stage)
{
    size_t length = strlen(stage);
    for (i64 i = 0; i < yaml_count(r->values); i++)
        if (strncmp(yaml_key(r->values, i), stage, length) == 0 && yaml_key(r->values, i)[length] == '.')
            return true;
    return false;
}

static bool is_listed(const struct yaml_node *list, const char *name)
{
    for (i64 i = 0; i < yaml_count(list); i++)
        if (strcmp(yaml_scalar(yaml_value(list, i)), name) == 0)
            return true;
    return false;
}

static void mark_stages(struct recipe_runs *all, const struct yaml_node *named)
{
    for (i64 r = 0; r < all->count; r++)
        for (i64 i = 0; i < all->list[r].count; i++) {
            struct recipe_stage *s = &all->list[r].stages[i];
            s->by_arm = sets_key_of(&all->list[r], s->name);
        }
    spread_marks(all);
    for (i64 r = 0; r < all->count; r++)
        for (i64 i = 0; i < all->list[r].count; i++) {
            struct recipe_stage *s = &all->list[r].stages[i];
            s->by_seed = all->seed_count && !s->kind->each_time &&
                         (named ? is_listed(named, s->name) : all->arm_count == 0 || s->by_arm);
        }
    spread_marks(all);
}

static char *folder_of(const struct recipe *r, bool by_arm, bool by_seed)
{
    struct buffer out = {0};
    buffer_printf(&out, "%s", r->root);
    if (by_arm)
        buffer_printf(&out, "/%s", r->arm);
    if (by_seed)
        buffer_printf(&out, "/%llu", (unsigned long long)r->seed);
    return out.data;
}

static void place_stages(struct recipe *r)
{
    r->run = folder_of(r, r->arm != NULL, r->has_seeds);
    for (i64 i = 0; i < r->count; i++) {
        struct recipe_stage *s = &r->stages[i];
        s->home = folder_of(r, s->by_arm, s->by_seed);
        s->seed = !r->has_seeds || s->by_seed ? r->seed : 1;
    }
}

/* ---- --arm and --seed ---- */

static int choose(struct recipe_runs *all, const char *path, const char *arm, const char *seed, bool named)
{
    const struct yaml_node *root = yaml_root(all->document), *arms = yaml_get(root, "arms");
    u64 wanted = 0;
    bool any = false;
    if (arm && !arms)
        return error_usage("--arm %s: %s has no arms", arm, path);
    if (arm && !yaml_get(arms, arm))
        return unknown_name("--arm", "arm", arm, arms);
    if (seed && !all->seed_count)
        return error_usage("--seed %s: %s has no seeds; seed=%s sets the seed of its run", seed, path, seed);
    if (seed && recipe_parse_seed(&wanted, seed))
        return error_usage("--seed: expected a whole number from 0, found %s", seed);
    for (i64 r = 0; r < all->count; r++) {
        struct recipe *run = &all->list[r];
        run->chosen = (!arm || strcmp(arm, run->arm) == 0) && (!seed || run->seed == wanted);
        any |= run->chosen;
        for (i64 i = 0; i < run->count && (arm || seed) && !named; i++)
            run->stages[i].selected &= !run->stages[i].kind->each_time;
    }
    if (any)
        return 0;
    struct buffer known = {0};
    for (i64 i = 0; i < all->seed_count; i++)
        buffer_printf(&known, "%s%s", i ? ", " : "", yaml_scalar(yaml_value(yaml_get(root, "seeds"), i)));
    error_usage("--seed %s: %s has the seeds %s", seed, path, known.data);
    buffer_release(&known);
    return -1;
}

/* ---- All runs ---- */

static int open_list(struct recipe_runs *all, const char *path, const char *const *words, int word_count,
                     const u64 *seeds, const char *arm)
{
    const struct yaml_node *arms = yaml_get(yaml_root(all->document), "arms");
    all->list = memory_alloc(max_i64(all->arm_count, 1) * max_i64(all->seed_count, 1) * (i64)sizeof *all->list);
    for (i64 k = 0; k < max_i64(all->seed_count, 1); k++)
        for (i64 a = 0; a < max_i64(all->arm_count, 1); a++) {
            struct recipe *r = &all->list[all->count++];
            *r = (struct recipe){.document = all->document, .path = path, .seed = 1};
            if (all->arm_count) {
                r->only_arm = arm;
                r->arm = yaml_key(arms, a);
                r->values = yaml_value(arms, a);
            }
            if (all->seed_count) {
                r->has_seeds = true;
                r->seed = seeds[k];
            }
            enum log_level before = log_set_level(LOG_SILENT);
            if (k == 0) /* warns of a recipe once, not for each seed */
                log_set_level(before);
            int status = recipe_open(r, words, word_count);
            log_set_level(before);
            if (status)
                return -1;
        }
    return 0;
}

int recipe_runs_open(struct recipe_runs *all, const char *path, const char *const *words, int word_count,
                     const char *arm, const char *seed)
{
    *all = (struct recipe_runs){.document = yaml_load(path)};
    if (!all->document)
        return -1;
    const struct yaml_node *root = yaml_root(all->document), *list = yaml_get(root, "seeds");
    u64 *seeds = memory_alloc((yaml_count(list) + 1) * (i64)sizeof *seeds);
    bool named = false;
    for (int i = 0; i < word_count; i++)
        named |= !strchr(words[i], '=');
    int status = check_arms(root, yaml_get(root, "arms"));
    if (status == 0)
        status = check_seed_list(root);
    if (status == 0)
        status = read_seeds(seeds, root, list);
    if (status == 0) {
        all->arm_count = yaml_count(yaml_get(root, "arms"));
        all->seed_count = yaml_count(list);
        status = open_list(all, path, words, word_count, seeds, arm);
    }
    if (status == 0) {
        mark_stages(all, yaml_get(root, "seed_stages"));
        for (i64 r = 0; r < all->count; r++)
            place_stages(&all->list[r]);
        status = choose(all, path, arm, seed, named);
    }
    memory_free(seeds);
    return status;
}

void recipe_runs_close(struct recipe_runs *all)
{
    for (i64 r = 0; r < all->count; r++)
        recipe_close(&all->list[r]);
    memory_free(all->list);
    yaml_free(all->document);
    *all = (struct recipe_runs){0};
}

i64 recipe_runs_maker(const struct recipe_runs *all, i64 run, i64 stage, bool chosen)
{
    const char *home = all->list[run].stages[stage].home;
    for (i64 r = 0; r < run; r++)
        if ((!chosen || all->list[r].chosen) && strcmp(all->list[r].stages[stage].home, home) == 0)
            return r;
    return run;
}

char *recipe_runs_label(const struct recipe_runs *all, i64 run, i64 stage)
{
    const struct recipe *r = &all->list[run];
    const struct recipe_stage *s = &r->stages[stage];
    struct buffer out = {0};
    i64 place = 0, count = 0, maker = recipe_runs_maker(all, run, stage, false);
    for (i64 k = 0; k < all->count; k++)
        if (recipe_runs_maker(all, k, stage, false) == k) {
            count++;
            place = k == maker ? count : place;
        }
    buffer_append(&out, "", 0);
    if (s->by_arm)
        buffer_printf(&out, "arm %s", r->arm);
    if (s->by_seed)
        buffer_printf(&out, "%sseed %llu", s->by_arm ? ", " : "", (unsigned long long)r->seed);
    if (s->by_arm || s->by_seed)
        buffer_printf(&out, ": %lld of %lld", (long long)place, (long long)count);
    return out.data;
}
