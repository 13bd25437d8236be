#include "rl/replay_buffer.h"

#include "core/safetensors.h"

#include <stdlib.h>
#include <string.h>

void replay_buffer_open(struct replay_buffer *p, const struct prompts *prompts, const struct text_tokenizer *tokenizer,
                        i64 per_step, i64 group, i64 batches, u64 seed)
{
    *p = (struct replay_buffer){
        .prompts = prompts, .tokenizer = tokenizer, .per_step = per_step, .group = group, .batches = batches};
    prompt_mix_init(&p->mix, prompts, per_step, seed);
    p->rollout_groups = memory_alloc(per_step * batches * (i64)sizeof *p->rollout_groups);
    p->pass = memory_alloc(prompts->count * 8);
    for (i64 i = 0; i < prompts->count; i++)
        p->pass[i] = prompts->list[i].pass;
}

static void free_rollout_group(struct rollout_group *c)
{
    rollout_group_release(c);
    memory_free(c);
}

static void forget_replaced(struct replay_buffer *p)
{
    for (i64 i = 0; i < p->replaced_count; i++)
        free_rollout_group(p->replaced[i].group);
    memory_free(p->replaced);
    p->replaced = NULL;
    p->replaced_count = 0;
}

void replay_buffer_close(struct replay_buffer *p)
{
    for (i64 i = 0; i < p->count; i++)
        free_rollout_group(p->rollout_groups[i]);
    forget_replaced(p);
    memory_free(p->rollout_groups);
    memory_free(p->pass);
    prompt_mix_release(&p->mix);
    *p = (struct replay_buffer){0};
}

static struct rollout_group *new_rollout_group(const struct replay_buffer *p, i64 index, i64 number, i64 hint)
{
    struct rollout_group *c = memory_alloc(sizeof *c);
    const struct task *prompt = &p->prompts->list[index];
    rollout_group_init(c, prompt, index, number, p->group);
    c->hint = hint;
    for (i64 i = 0; i < hint; i++)
        id_list_push(&c->ids, prompt->think.ids[i]);
    return c;
}

/* Prompts have their turns at different times, so that each step measures some. */
static bool is_recheck(const struct replay_buffer *p, i64 index, i64 times)
{
    return p->recheck > 0 && p->prompts->list[index].think.count > 0 && (times + 1 + index) % p->recheck == 0;
}

static struct rollout_group *add_rollout_group(struct replay_buffer *p, i64 number, i64 hint)
{
    i64 times, index = prompt_mix_at(&p->mix, number, &times);
    struct rollout_group *c = p->rollout_groups[p->count++] = new_rollout_group(p, index, number, hint);
    c->recheck = is_recheck(p, index, times);
    return c;
}

void replay_buffer_first(struct rollout_group **groups, const struct replay_buffer *p)
{
    for (i64 i = 0; i < p->per_step; i++)
        groups[i] = p->rollout_groups[i];
    for (i64 i = p->replaced_count - 1; i >= 0; i--) /* the first replaced last */
        groups[p->replaced[i].index] = p->replaced[i].group;
}

/* The identities of groups drawn again count downwards from the last one, behind no number of a prompt. */
void replay_buffer_redraw(struct replay_buffer *p, i64 index, i64 time)
{
    struct rollout_group *old = p->rollout_groups[index];
    require(index < p->per_step && time > 0 && time <= p->redraw, "a group that is not to be drawn again");
    p->replaced = memory_resize(p->replaced, p->replaced_count * (i64)sizeof *p->replaced,
                                (p->replaced_count + 1) * (i64)sizeof *p->replaced);
    p->replaced[p->replaced_count++] = (struct replaced_group){old, index};
    p->rollout_groups[index] = new_rollout_group(p, old->prompt_index, old->number, old->hint);
    p->rollout_groups[index]->identity = (u32)(UINT32_MAX - (old->number * p->redraw + time - 1));
    p->rollout_groups[index]->recheck = old->recheck;
}

int replay_buffer_fill(struct replay_buffer *p, i64 step, const struct policy_loss_settings *s)
{
    while (p->count < p->per_step * p->batches) {
        i64 number = step * p->per_step + p->count; /* those of `step` steps are trained on */
        i64 times, index = prompt_mix_at(&p->mix, number, &times);
        const struct task *prompt = &p->prompts->list[index];
        i64 thoughts = prompt->think.count - prompt->think_head;
        if (number > UINT32_MAX / (1 + p->redraw))
            return error_set("prompt %lld: a run takes at most 2^32, each drawn again counted", (long long)number);
        bool hinted = s->hint_share > 0 && !is_recheck(p, index, times);
        i64 hint = hinted ? (i64)(hint_share(s, step, p->pass[index]) * (double)thoughts) : 0;
        add_rollout_group(p, number, hint > 0 ? prompt->think_head + hint : 0);
    }
    return 0;
}

static int by_number(const void *a, const void *b)
{
    i64 x = (*(struct rollout_group *const *)a)->number, y = (*(struct rollout_group *const *)b)->number;
    return (x > y) - (x < y);
}

static int by_arrival(const void *a, const void *b)
{
    bool x = rollout_group_done(*(struct rollout_group *const *)a);
    bool y = rollout_group_done(*(struct rollout_group *const *)b);
    return x != y ? y - x : by_number(a, b);
}

void replay_buffer_choose_done(struct replay_buffer *p)
{
    qsort(p->rollout_groups, (size_t)p->count, sizeof *p->rollout_groups, by_arrival);
}

static void grow_older(struct rollout *r)
{
    r->age += rollout_drawn(r);
    r->steps += r->answer.count > 0;
}

void replay_buffer_drop(struct replay_buffer *p)
{
    forget_replaced(p);
    for (i64 i = p->per_step; i < p->count; i++)
        for (i64 r = 0; r < p->group; r++)
            grow_older(&p->rollout_groups[i]->rollouts[r]);
    for (i64 i = 0; i < p->per_step; i++)
        free_rollout_group(p->rollout_groups[i]);
    p->count -= p->per_step;
    memmove(p->rollout_groups, p->rollout_groups + p->per_step, (size_t)p->count * sizeof *p->rollout_groups);
    qsort(p->rollout_groups, (size_t)p->count, sizeof *p->rollout_groups, by_number);
}

/* ---- Marks ---- */

enum { MARK = 4 }; /* values per rollout: ids, observations, done, ended */

static void save_progress(i64 *values, const struct rollout *r)
{
    values[0] = r->answer.count;
    values[1] = r->turns;
    values[2] = r->answer.done;
    values[3] = r->answer.ended;
}

static void restore_progress(struct rollout *r, const i64 *values)
{
    if (values[0] == 0) /* with its medium */
        answer_release(&r->answer);
    r->answer.count = values[0];
    r->turns = values[1];
    r->answer.done = values[2];
    r->answer.ended = values[3];
    r->graded = false;
    r->counted = r->answer.done;
    r->answer.routes.count = min_i64(r->answer.routes.count, rollout_routed(r));
}

void replay_buffer_mark(struct replay_buffer_mark *mark, const struct replay_buffer *p)
{
    replay_buffer_mark_release(mark);
    mark->count = p->count * p->group;
    mark->values = memory_alloc(max_i64(mark->count, 1) * MARK * 8);
    for (i64 i = 0; i < mark->count; i++)
        save_progress(mark->values + MARK * i, &p->rollout_groups[i / p->group]->rollouts[i % p->group]);
}

void replay_buffer_rewind(struct replay_buffer *p, const struct replay_buffer_mark *mark)
{
    require(mark->count <= p->count * p->group, "a mark of another pool");
    while (p->replaced_count) { /* the latest first */
        const struct replaced_group *r = &p->replaced[--p->replaced_count];
        free_rollout_group(p->rollout_groups[r->index]);
        p->rollout_groups[r->index] = r->group;
    }
    forget_replaced(p);
    qsort(p->rollout_groups, (size_t)p->count, sizeof *p->rollout_groups, by_number);
    while (p->count * p->group > mark->count)
        free_rollout_group(p->rollout_groups[--p->count]);
    for (i64 i = 0; i < mark->count; i++)
        restore_progress(&p->rollout_groups[i / p->group]->rollouts[i % p->group], mark->values + MARK * i);
    for (i64 i = 0; i < p->count; i++)
        rollout_group_forget_routes(p->rollout_groups[i]);
}

void replay_buffer_mark_release(struct replay_buffer_mark *mark)
{
    memory_free(mark->values);
    *mark = (struct replay_buffer_mark){0};
}

/* ---- Files ---- */

struct replay_buffer_columns {                          /* all rollouts, concatenated */
    struct buffer ids, logprob, entropy, given, routes; /* routes: of each prompt, then of its rollouts, as bytes */
    struct buffer bits, codes;                          /* of all media */
};
enum { AGES = 2 };   /* values per rollout: steps, age */
enum { MEDIUM = 5 }; /* values per rollout: has a medium, its stream, shape and frames; positions with routes */

/* Values of all media, and positions with routes of each prompt; NULL: there are no media. */
struct replay_buffer_media {
    const i64 *media, *prompts;
    i64 bit_count, code_count; /* bytes of bits, codes */
    i64 bits_at, codes_at;     /* read so far */
};

static void append_answer(struct replay_buffer_columns *all, const struct answer *a, i64 width)
{
    buffer_append(&all->ids, a->ids, a->count * 4);
    buffer_append(&all->logprob, a->logprob, a->count * 4);
    buffer_append(&all->entropy, a->entropy, a->count * 4);
    buffer_append(&all->given, a->given, a->count);
    buffer_append(&all->routes, a->routes.list, a->routes.count * width * 2);
}

/* Bytes of the bits, and codes, of a medium. */
static i64 bits_of(const struct replay_buffer *p, const struct media_block *m)
{
    return m->frames * shape_tokens(&p->media->vocabulary.shapes[m->shape]) * p->media->model.config.bits;
}

static i64 codes_of(const struct replay_buffer *p, const struct media_block *m)
{
    return m->frames * p->media->model.config.levels;
}

static void append_medium(struct replay_buffer_columns *all, i64 values[MEDIUM], const struct replay_buffer *p,
                          const struct answer *a)
{
    const struct media_block *m = &a->medium;
    values[0] = a->has_medium;
    values[1] = m->kind;
    values[2] = m->shape;
    values[3] = m->frames;
    values[4] = a->routes.count;
    if (a->has_medium && m->bits)
        buffer_append(&all->bits, m->bits, bits_of(p, m));
    if (a->has_medium && m->codes)
        buffer_append(&all->codes, m->codes, 4 * codes_of(p, m));
}

int replay_buffer_save(const struct replay_buffer *p, const char *path)
{
    struct replay_buffer_columns all = {0};
    struct replay_buffer_mark mark = {0};
    i64 *rollout_groups = memory_alloc(max_i64(p->count, 1) * 16), n = 0;
    i64 *media = memory_alloc(max_i64(p->count * p->group, 1) * MEDIUM * 8),
        *routed = memory_alloc(max_i64(p->count, 1) * 8);
    i64 *ages = memory_alloc(max_i64(p->count * p->group, 1) * AGES * 8);
    replay_buffer_mark(&mark, p);
    for (i64 i = 0; i < p->count; i++) {
        rollout_groups[2 * i] = p->rollout_groups[i]->number;
        rollout_groups[2 * i + 1] = p->rollout_groups[i]->hint;
        routed[i] = p->rollout_groups[i]->routes.count;
        buffer_append(&all.routes, p->rollout_groups[i]->routes.list,
                      p->rollout_groups[i]->routes.count * p->route_width * 2);
        for (i64 c = 0; c < p->group; c++) {
            append_answer(&all, &p->rollout_groups[i]->rollouts[c].answer, p->route_width);
            append_medium(&all, media + MEDIUM * (i * p->group + c), p, &p->rollout_groups[i]->rollouts[c].answer);
            n += p->rollout_groups[i]->rollouts[c].answer.count;
            ages[AGES * (i * p->group + c)] = p->rollout_groups[i]->rollouts[c].steps;
            ages[AGES * (i * p->group + c) + 1] = p->rollout_groups[i]->rollouts[c].age;
        }
    }
    const struct tensor_source tensors[] = {
        {.name = "cohorts", .dtype = DTYPE_I64, .rank = 2, .shape = {p->count, 2}, .data = rollout_groups},
        {.name = "rollouts", .dtype = DTYPE_I64, .rank = 2, .shape = {mark.count, MARK}, .data = mark.values},
        {.name = "ids", .dtype = DTYPE_I32, .rank = 1, .shape = {n}, .data = all.ids.data},
        {.name = "logprob", .dtype = DTYPE_F32, .rank = 1, .shape = {n}, .data = all.logprob.data},
        {.name = "entropy", .dtype = DTYPE_F32, .rank = 1, .shape = {n}, .data = all.entropy.data},
        {.name = "given", .dtype = DTYPE_U8, .rank = 1, .shape = {n}, .data = all.given.data},
        {.name = "routes", .dtype = DTYPE_U8, .rank = 1, .shape = {all.routes.length}, .data = all.routes.data},
        {.name = "ages", .dtype = DTYPE_I64, .rank = 2, .shape = {mark.count, AGES}, .data = ages},
        {.name = "media", .dtype = DTYPE_I64, .rank = 2, .shape = {mark.count, MEDIUM}, .data = media},
        {.name = "prompt_routes", .dtype = DTYPE_I64, .rank = 1, .shape = {p->count}, .data = routed},
        {.name = "bits", .dtype = DTYPE_U8, .rank = 1, .shape = {all.bits.length}, .data = all.bits.data},
        {.name = "codes", .dtype = DTYPE_I32, .rank = 1, .shape = {all.codes.length / 4}, .data = all.codes.data}};
    /* A buffer of text alone has no tensors of media. */
    int status = safetensors_save(path, tensors, COUNT_OF(tensors) - (p->media ? 0 : 4), NULL);
    memory_free(media);
    memory_free(routed);
    memory_free(ages);
    buffer_release(&all.bits);
    buffer_release(&all.codes);
    buffer_release(&all.ids);
    buffer_release(&all.logprob);
    buffer_release(&all.entropy);
    buffer_release(&all.given);
    buffer_release(&all.routes);
    replay_buffer_mark_release(&mark);
    memory_free(rollout_groups);
    return status;
}

static const void *find_column(i64 *count, const struct safetensors *set, const char *name, enum dtype dtype,
                               const char *path)
{
    const struct tensor_view *view = safetensors_find(set, name);
    *count = view ? tensor_view_elements(view) : 0;
    if (view && view->dtype == dtype)
        return view->data;
    error_set("%s: expected a tensor %s, %s", path, name, dtype_name(dtype));
    return NULL;
}

struct replay_buffer_reader {
    struct replay_buffer_columns all;
    i64 n, at, route_at; /* ids in all; ids read so far; bytes of routes read */
    struct replay_buffer_media media;
    const i64 *ages; /* NULL: a checkpoint of before has none */
};

static int load_routes(struct routes *out, struct replay_buffer_reader *in, i64 count, i64 width, const char *path)
{
    if (count * width * 2 > in->all.routes.length - in->route_at)
        return error_set("%s: fewer routes than ids: it was written by a run without them", path);
    for (i64 i = 0; i < count && width; i++) {
        u16 route[width];
        memcpy(route, in->all.routes.data + in->route_at, (size_t)width * 2);
        routes_push(out, width, route);
        in->route_at += width * 2;
    }
    return 0;
}

/* Reads the medium of an answer. values NULL: there are none. */
static int load_medium(struct answer *a, struct replay_buffer_reader *in, const i64 *values,
                       const struct replay_buffer *p, const char *path)
{
    struct replay_buffer_media *media = &in->media;
    struct media_block *m = &a->medium;
    if (!values || !values[0])
        return 0;
    bool scaled = values[1] == STREAM_IMAGE_OUT || values[1] == STREAM_VIDEO_OUT;
    if (values[3] < 0 || values[2] < 0 || (scaled && values[2] >= p->media->vocabulary.shape_count))
        return error_set("%s: a medium of a shape that the model does not have", path);
    *m = (struct media_block){.kind = (enum stream)values[1], .shape = values[2], .frames = values[3]};
    i64 bits = scaled ? bits_of(p, m) : 0, codes = scaled ? 0 : codes_of(p, m);
    if (bits > media->bit_count - media->bits_at || codes > media->code_count - media->codes_at)
        return error_set("%s: media of more bits or codes than there are", path);
    a->has_medium = true;
    if (scaled)
        m->bits = memcpy(memory_alloc(max_i64(bits, 1)), in->all.bits.data + media->bits_at, (size_t)bits);
    else
        m->codes =
            memcpy(memory_alloc(max_i64(codes, 1) * 4), in->all.codes.data + 4 * media->codes_at, (size_t)codes * 4);
    media->bits_at += bits;
    media->codes_at += codes;
    return 0;
}

static int load_rollout(struct rollout *r, struct replay_buffer_reader *in, const i64 *values, const i64 *medium,
                        const struct replay_buffer *p, const char *path)
{
    if (values[0] < 0 || values[0] > in->n - in->at)
        return error_set("%s: rollouts of more ids than there are", path);
    for (i64 i = in->at; i < in->at + values[0]; i++) {
        i32 id;
        float logprob, entropy;
        memcpy(&id, in->all.ids.data + 4 * i, 4);
        memcpy(&logprob, in->all.logprob.data + 4 * i, 4);
        memcpy(&entropy, in->all.entropy.data + 4 * i, 4);
        answer_push(&r->answer, id, logprob, entropy, in->all.given.data[i]);
    }
    in->at += values[0];
    i64 routed = medium ? medium[4] : rollout_routed(r);
    if (load_medium(&r->answer, in, medium, p, path) ||
        load_routes(&r->answer.routes, in, routed, p->route_width, path))
        return -1;
    restore_progress(r, values);
    return 0;
}

static int load_rollout_group(struct replay_buffer *p, struct replay_buffer_reader *in, const i64 *rollout_group,
                              const i64 *marks, const char *path)
{
    const i64 *media = in->media.media ? in->media.media + MEDIUM * p->group * p->count : NULL;
    const i64 *routed = in->media.prompts ? in->media.prompts + p->count : NULL;
    i64 number = rollout_group[0], hint = rollout_group[1];
    if (number < 0 || hint < 0 || hint > p->prompts->list[prompt_mix_at(&p->mix, number, NULL)].think.count)
        return error_set("%s: prompt %lld with a hint of %lld %s: the prompts have changed", path, (long long)number,
                         (long long)hint, plural(hint, "id", "ids"));
    struct rollout_group *c = add_rollout_group(p, number, hint);
    if (load_routes(&c->routes, in, routed ? *routed : marks[0] > 0 ? c->ids.count : 0, p->route_width, path))
        return -1;
    for (i64 r = 0; r < p->group; r++) {
        const i64 *ages = in->ages ? in->ages + AGES * (p->group * (p->count - 1) + r) : NULL;
        if (load_rollout(&c->rollouts[r], in, marks + MARK * r, media ? media + MEDIUM * r : NULL, p, path))
            return -1;
        c->rollouts[r].steps = ages ? ages[0] : 0;
        c->rollouts[r].age = ages ? ages[1] : 0;
    }
    return 0;
}

static int find_media(struct replay_buffer_reader *in, const struct safetensors *set, i64 rollout_groups,
                      const struct replay_buffer *p, const char *path)
{
    struct replay_buffer_media *m = &in->media;
    i64 media, prompts;
    m->media = find_column(&media, set, "media", DTYPE_I64, path);
    m->prompts = find_column(&prompts, set, "prompt_routes", DTYPE_I64, path);
    in->all.bits.data = (char *)find_column(&m->bit_count, set, "bits", DTYPE_U8, path);
    in->all.codes.data = (char *)find_column(&m->code_count, set, "codes", DTYPE_I32, path);
    if (!m->media || !m->prompts || !in->all.bits.data || !in->all.codes.data)
        return -1;
    if (media != rollout_groups * p->group * MEDIUM || prompts != rollout_groups)
        return error_set("%s: columns of lengths that do not belong together", path);
    return 0;
}

int replay_buffer_load(struct replay_buffer *p, const char *path)
{
    struct safetensors set;
    struct replay_buffer_reader in = {0};
    struct replay_buffer_columns *all = &in.all;
    i64 counts[6];
    if (safetensors_open(&set, path))
        return -1;
    const i64 *rollout_groups = find_column(&counts[0], &set, "cohorts", DTYPE_I64, path);
    const i64 *marks = find_column(&counts[1], &set, "rollouts", DTYPE_I64, path);
    all->ids.data = (char *)find_column(&counts[2], &set, "ids", DTYPE_I32, path);
    all->logprob.data = (char *)find_column(&counts[3], &set, "logprob", DTYPE_F32, path);
    all->entropy.data = (char *)find_column(&counts[4], &set, "entropy", DTYPE_F32, path);
    all->given.data = (char *)find_column(&counts[5], &set, "given", DTYPE_U8, path);
    all->routes.data = (char *)find_column(&all->routes.length, &set, "routes", DTYPE_U8, path);
    i64 count = counts[0] / 2;
    bool found = rollout_groups && marks && all->ids.data && all->logprob.data && all->entropy.data &&
                 all->given.data && all->routes.data;
    int status = found ? 0 : -1;
    if (found && (counts[1] != count * p->group * MARK || count > p->per_step * p->batches || counts[2] != counts[3] ||
                  counts[2] != counts[4] || counts[2] != counts[5]))
        status = error_set("%s: columns of lengths that do not belong together", path);
    in.n = counts[2];
    const struct tensor_view *ages = safetensors_find(&set, "ages");
    if (ages && ages->dtype == DTYPE_I64 && tensor_view_elements(ages) == count * p->group * AGES)
        in.ages = ages->data;
    if (status == 0 && p->media)
        status = find_media(&in, &set, count, p, path);
    for (i64 i = 0; i < count && status == 0; i++)
        status = load_rollout_group(p, &in, rollout_groups + 2 * i, marks + MARK * p->group * i, path);
    safetensors_close(&set);
    return status;
}
