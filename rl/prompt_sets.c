#include "rl/prompt_sets.h"

#include <string.h>

/* ---- Shares ---- */

/* The share of a set, or its weight times its prompts. */
static double part_of(const struct data_source *source, i64 prompts, i64 step)
{
    if (source->share.count)
        return schedule_at(&source->share, step);
    return (source->weight.count ? schedule_at(&source->weight, step) : 1) * (double)prompts;
}

static int check_step(const struct source_list *sources, i64 step)
{
    double sum = 0;
    for (i64 i = 0; i < sources->count; i++)
        sum += part_of(&sources->values[i], 1, step);
    return sum > 0 ? 0
                   : error_usage("prompts: the shares of all sets are 0 at step %lld: expected one above 0",
                                 (long long)step);
}

/* Between two points of a linear schedule the sum is 0 only if it is at both. */
static int check_points(const struct source_list *sources, const struct schedule *schedule)
{
    int status = 0;
    for (i64 i = 0; i < schedule->count && status == 0; i++)
        status = check_step(sources, schedule->steps[i]);
    return status;
}

int prompt_sets_check(const struct source_list *sources)
{
    int status = sources->count ? check_step(sources, 0) : 0;
    for (i64 i = 0; i < sources->count && status == 0; i++) {
        const struct data_source *s = &sources->values[i];
        if (s->epochs > 0)
            return error_usage("prompts.%s: epochs is for shards: expected data and share; prompts come again as "
                               "long as the run goes on",
                               s->name);
        status = check_points(sources, &s->share) || check_points(sources, &s->weight) ? -1 : 0;
    }
    return status;
}

/* ---- Loading ---- */

/* Moves the prompts of `one` behind the others. */
static void append(struct prompts *all, struct prompts *one, i64 set)
{
    all->list = memory_resize(all->list, all->count * (i64)sizeof *all->list,
                              (all->count + one->count) * (i64)sizeof *all->list);
    for (i64 i = 0; i < one->count; i++) {
        all->list[all->count] = one->list[i];
        all->list[all->count++].set = set;
    }
    all->longest = max_i64(all->longest, one->longest);
    all->longest_medium = max_i64(all->longest_medium, one->longest_medium);
    memory_free(one->list);
    notes_release(&one->notes);
}

static int load_files(struct prompts *all, const char *lines, i64 set, i64 limit,
                      const struct text_tokenizer *tokenizer, struct prompt_media *media)
{
    int status = 0;
    for (size_t length; *lines && status == 0; lines += length + (lines[length] == '\n')) {
        struct prompts one;
        length = strcspn(lines, "\n");
        char *path = string_format("%.*s", (int)length, lines);
        status = prompts_load(&one, path, tokenizer, media, limit);
        if (status == 0)
            append(all, &one, set);
        memory_free(path);
    }
    return status;
}

bool prompt_sets_given(const struct source_list *sources)
{
    return sources->count || (sources->all && *sources->all);
}

int prompt_sets_load(struct prompts *all, const struct prompt_files *files, const struct text_tokenizer *tokenizer,
                     struct prompt_media *media)
{
    const struct source_list *sources = files->sources;
    *all = (struct prompts){0};
    int status = sources->count ? 0 : load_files(all, sources->all, 0, files->limit, tokenizer, media);
    all->sets = sources->count ? memory_alloc(sources->count * (i64)sizeof *all->sets) : NULL;
    for (i64 i = 0; i < sources->count && status == 0; i++) {
        all->sets[i] = (struct prompt_set){&sources->values[i], all->count, 0};
        if (load_files(all, sources->values[i].data, i, files->limit, tokenizer, media))
            status = error_prefix("%s.%s", files->setting, sources->values[i].name);
        all->sets[i].count = all->count - all->sets[i].first;
        all->set_count = i + 1;
    }
    if (status)
        prompts_release(all);
    return status;
}

/* ---- The sequence ---- */

static i64 orders_of(const struct prompts *prompts)
{
    return max_i64(1, prompts->set_count);
}

/* A single unnamed set has the order of the seed itself. */
void prompt_mix_init(struct prompt_mix *mix, const struct prompts *prompts, i64 per_step, u64 seed)
{
    i64 sets = orders_of(prompts);
    *mix = (struct prompt_mix){.prompts = prompts, .per_step = per_step};
    mix->orders = memory_alloc(sets * (i64)sizeof *mix->orders);
    mix->owed = memory_alloc(sets * 8);
    mix->given = memory_alloc(sets * 8);
    for (i64 i = 0; i < prompts->set_count; i++) {
        const char *name = prompts->sets[i].source->name;
        prompt_order_init(&mix->orders[i], prompts->sets[i].count, hash_bytes(name, (i64)strlen(name), seed));
    }
    if (prompts->set_count == 0)
        prompt_order_init(&mix->orders[0], prompts->count, seed);
}

void prompt_mix_release(struct prompt_mix *mix)
{
    for (i64 i = 0; mix->prompts && i < orders_of(mix->prompts); i++)
        prompt_order_release(&mix->orders[i]);
    memory_free(mix->orders);
    memory_free(mix->owed);
    memory_free(mix->given);
    *mix = (struct prompt_mix){0};
}

/* Gives prompt `next` to the set that is owed the most; the first of equals. */
static void walk(struct prompt_mix *mix)
{
    const struct prompts *p = mix->prompts;
    i64 step = mix->next++ / mix->per_step;
    double sum = 0;
    for (i64 i = 0; i < p->set_count; i++)
        sum += part_of(p->sets[i].source, p->sets[i].count, step);
    mix->set = -1;
    for (i64 i = 0; i < p->set_count; i++) {
        double part = part_of(p->sets[i].source, p->sets[i].count, step);
        mix->owed[i] += part / sum;
        if (part > 0 && (mix->set < 0 || mix->owed[i] > mix->owed[mix->set]))
            mix->set = i;
    }
    mix->owed[mix->set]--;
    mix->given[mix->set]++;
}

/* Every prompt of an order comes once before one comes again. */
static i64 place_at(struct prompt_order *order, i64 number, i64 *times)
{
    if (times)
        *times = number / order->count;
    return prompt_order_at(order, number);
}

i64 prompt_mix_at(struct prompt_mix *mix, i64 number, i64 *times)
{
    i64 sets = mix->prompts->set_count;
    if (sets == 0)
        return place_at(&mix->orders[0], number, times);
    if (number < mix->next - 1) {
        memset(mix->owed, 0, (size_t)sets * 8);
        memset(mix->given, 0, (size_t)sets * 8);
        mix->next = 0;
    }
    while (mix->next <= number)
        walk(mix);
    return mix->prompts->sets[mix->set].first + place_at(&mix->orders[mix->set], mix->given[mix->set] - 1, times);
}
