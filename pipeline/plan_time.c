#include "pipeline/plan_time.h"

#include "core/json.h"
#include "train/train.h"

#include <stdlib.h>
#include <string.h>

/* Ranks of the host that has least memory for each of its ranks; sets *bytes to its memory. */
static i64 tightest_host(i64 *bytes, const struct cluster *c)
{
    i64 ranks[c->host_count + 1], host = 0;
    memset(ranks, 0, sizeof ranks);
    for (i64 r = 0; r < c->count; r++)
        ranks[c->ranks[r].host]++;
    for (i64 h = 1; h < c->host_count; h++)
        host = c->hosts[h].memory_bytes / ranks[h] < c->hosts[host].memory_bytes / ranks[host] ? h : host;
    *bytes = c->hosts[host].memory_bytes;
    return ranks[host];
}

int plan_cluster(struct cluster *c, struct step_work *work, struct plan_machine *machine, const struct plan_options *o)
{
    if (cluster_load(c, o->cluster))
        return -1;
    int status = 0;
    if (o->ranks && o->ranks != c->count)
        status = error_usage("%s has %lld %s: expected --ranks %lld, or none", o->cluster, (long long)c->count,
                             plural(c->count, "rank", "ranks"), (long long)c->count);
    else if (layout_parse(&work->layout, o->layout, c->count))
        status = error_prefix("%s has %lld %s", o->cluster, (long long)c->count, plural(c->count, "rank", "ranks"));
    work->ranks = c->count;
    machine->ranks = tightest_host(&machine->memory_bytes, c);
    machine->together = true;
    if (status)
        cluster_release(c);
    return status;
}

/* The folder whose counts the stage begins with; NULL: none. */
static char *model_with_counts(const struct recipe *r, const struct recipe_stage *s)
{
    const struct pretrain_settings *settings = s->settings;
    const char *other = settings->continues && *settings->continues ? settings->continues : settings->from;
    char *home = path_join(s->home, s->name), *checkpoints = path_join(home, "checkpoints");
    i64 step = checkpoint_newest(checkpoints);
    char *folder = step >= 0 ? checkpoint_path(checkpoints, step) : NULL;
    const struct recipe_stage *from = NULL;
    for (i64 i = 0; !folder && other && i < r->count; i++)
        from = strcmp(r->stages[i].name, other) == 0 ? &r->stages[i] : from;
    if (!folder && other && *other)
        folder = from ? path_join(from->home, other) : string_copy(other);
    memory_free(checkpoints);
    memory_free(home);
    return folder;
}

int plan_load(double *load, const struct recipe *r, const struct recipe_stage *s, const struct step_work *w)
{
    const struct model_config *c = w->config;
    double *use = memory_alloc(c->layers * max_i64(c->experts, 1) * (i64)sizeof *use);
    char *folder = w->layout.expert > 1 ? model_with_counts(r, s) : NULL;
    int found = folder ? model_use_load(use, c, folder) : 0;
    *load = step_expert_load(found > 0 ? use : NULL, w);
    memory_free(folder);
    memory_free(use);
    return found < 0 ? -1 : 0;
}

struct json *plan_time_json(const struct foreseen *t)
{
    struct json *j = json_object();
    json_set(j, "seconds", json_of_number(t->seconds));
    json_set(j, "computing", json_of_number(t->computing_s));
    json_set(j, "messages", json_of_number(t->links_s));
    json_set(j, "waiting", json_of_number(t->waiting_s));
    json_set(j, "sent", json_of_number(t->sent_bytes));
    json_set(j, "far", json_of_number(t->far_bytes));
    return j;
}

/* ---- The search ---- */

struct candidate {
    struct layout layout;
    struct foreseen time;
    i64 memory;
};
struct search {
    struct candidate *list;
    i64 program_bytes;           /* of a rank, beside the step */
    i64 count, unfit, too_large; /* unfit: the model or its batch does not come out even over the ranks */
};

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct candidate *)a)->time.seconds, y = ((const struct candidate *)b)->time.seconds;
    return (x > y) - (x < y);
}

static int try_layout(struct search *s, const struct recipe *r, const struct plan_place *place,
                      const struct step_work *work, const struct cluster *cluster, const struct layout *layout)
{
    struct candidate *found = &s->list[s->count];
    struct step_work w = *work;
    struct step_needs needs;
    double load;
    i64 bytes, ranks = tightest_host(&bytes, cluster);
    w.layout = *layout;
    found->layout = *layout;
    if (plan_load(&load, r, place->stage, &w))
        return -1;
    if (pretrain_check_batches(&work->settings->loader, layout, 0, work->settings->steps) ||
        w.config->experts % layout->expert || w.config->layers < layout->pipeline * layout->chunks ||
        step_foresee(&found->time, &needs, &w, cluster, load)) {
        s->unfit++;
        return 0;
    }
    found->memory = step_memory_total(&needs.memory) + s->program_bytes;
    if (found->memory * ranks > bytes)
        s->too_large++;
    else
        s->count++;
    return 0;
}

/* With one chunk, and with more of as many layers each if there is a pipeline. */
static int try_chunks(struct search *s, const struct recipe *r, const struct plan_place *place,
                      const struct step_work *work, const struct cluster *cluster, struct layout *layout)
{
    i64 pipeline = layout->pipeline, layers = work->config->layers;
    int status = 0;
    for (i64 chunks = 1; status == 0 && (chunks == 1 || (pipeline > 1 && pipeline * chunks <= layers)); chunks++) {
        if (chunks > 1 && layers % (pipeline * chunks))
            continue;
        layout->chunks = chunks;
        s->list = memory_resize(s->list, s->count * (i64)sizeof *s->list, (s->count + 1) * (i64)sizeof *s->list);
        status = try_layout(s, r, place, work, cluster, layout);
    }
    return status;
}

/* Layouts of n ranks, each once. */
static int try_all(struct search *s, const struct recipe *r, const struct plan_place *place,
                   const struct step_work *work, const struct cluster *cluster)
{
    i64 n = cluster->count;
    int status = 0;
    for (i64 pipeline = 1; pipeline <= n; pipeline++)
        for (i64 tensor = 1; pipeline * tensor <= n; tensor++)
            for (i64 expert = 1; n % (pipeline * tensor) == 0 && expert <= n / (pipeline * tensor); expert++) {
                struct layout layout = work->layout;
                layout.data = n / (pipeline * tensor);
                layout.expert = expert;
                layout.tensor = tensor;
                layout.pipeline = pipeline;
                if (status == 0 && layout.data % expert == 0)
                    status = try_chunks(s, r, place, work, cluster, &layout);
            }
    return status;
}

static void put_candidate(struct buffer *out, const struct candidate *c)
{
    buffer_printf(out, "  %10.3f s  %8.3f GB  %8.1f MB  data=%lld", c->time.seconds, (double)c->memory * 1e-9,
                  c->time.sent_bytes * 1e-6, (long long)c->layout.data);
    if (c->layout.expert > 1)
        buffer_printf(out, ",expert=%lld", (long long)c->layout.expert);
    if (c->layout.tensor > 1)
        buffer_printf(out, ",tensor=%lld", (long long)c->layout.tensor);
    if (c->layout.pipeline > 1)
        buffer_printf(out, ",pipeline=%lld", (long long)c->layout.pipeline);
    if (c->layout.chunks > 1)
        buffer_printf(out, ",chunks=%lld", (long long)c->layout.chunks);
    buffer_printf(out, "\n");
}

static void put_found_json(struct plan_total *total, const struct plan_place *place, const struct search *s)
{
    struct json *j = json_object(), *list = json_array();
    plan_put_place(j, place);
    for (i64 i = 0; i < s->count; i++) {
        struct json *one = plan_time_json(&s->list[i].time);
        struct buffer layout = {0};
        layout_print(&layout, &s->list[i].layout);
        json_set(one, "layout", json_of_string(layout.data));
        json_set(one, "memory", json_of_integer(s->list[i].memory));
        json_push(list, one);
        buffer_release(&layout);
    }
    json_set(j, "layouts", list);
    json_set(j, "too_large", json_of_integer(s->too_large));
    json_set(j, "unfit", json_of_integer(s->unfit));
    plan_put_line(total->out, j);
    json_free(j);
}

int plan_search(struct plan_total *total, const struct recipe *r, const struct plan_place *place,
                const struct step_work *work, const struct cluster *cluster, i64 program_bytes)
{
    struct search s = {.program_bytes = program_bytes};
    int status = try_all(&s, r, place, work, cluster);
    if (s.count)
        qsort(s.list, (size_t)s.count, sizeof *s.list, by_seconds);
    if (status == 0 && total->json) {
        put_found_json(total, place, &s);
    } else if (status == 0) {
        buffer_printf(total->out, "%s: %lld %s of %lld %s fit: a step, memory of the worst rank, sent by a rank\n",
                      place->label, (long long)s.count, plural(s.count, "layout", "layouts"), (long long)cluster->count,
                      plural(cluster->count, "rank", "ranks"));
        for (i64 i = 0; i < s.count; i++)
            put_candidate(total->out, &s.list[i]);
        if (s.too_large)
            buffer_printf(total->out, "  %lld more %s more memory than a host has\n", (long long)s.too_large,
                          plural(s.too_large, "needs", "need"));
        if (s.unfit)
            buffer_printf(total->out, "  %lld more %s not come out even with the model or its batch\n",
                          (long long)s.unfit, plural(s.unfit, "does", "do"));
    }
    memory_free(s.list);
    return status;
}
