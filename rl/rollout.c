#include "rl/rollout.h"

/* ---- Rollout groups ---- */

void rollout_group_init(struct rollout_group *c, const struct task *prompt, i64 prompt_index, i64 number, i64 size)
{
    *c = (struct rollout_group){.prompt = prompt, .prompt_index = prompt_index, .number = number, .size = size};
    c->identity = (u32)number;
    for (i64 i = 0; i < prompt->ids.count && !prompt->asked; i++)
        id_list_push(&c->ids, prompt->ids.ids[i]);
    c->rollouts = memory_alloc(size * (i64)sizeof *c->rollouts);
}

void rollout_group_release(struct rollout_group *c)
{
    for (i64 i = 0; i < c->size; i++)
        answer_release(&c->rollouts[i].answer);
    memory_free(c->rollouts);
    memory_free(c->routes.list);
    id_list_release(&c->ids);
    *c = (struct rollout_group){0};
}

bool rollout_group_done(const struct rollout_group *c)
{
    for (i64 i = 0; i < c->size; i++)
        if (!c->rollouts[i].answer.done)
            return false;
    return true;
}

double rollout_group_success(const struct rollout_group *c, double solved)
{
    i64 good = 0;
    for (i64 i = 0; i < c->size; i++) {
        if (c->hint > 0 || c->rollouts[i].ungraded)
            return -1;
        good += c->rollouts[i].reward >= solved;
    }
    return (double)good / (double)c->size;
}

void rollout_group_forget_routes(struct rollout_group *c)
{
    bool begun = false;
    for (i64 i = 0; i < c->size; i++)
        begun |= c->rollouts[i].answer.count > 0;
    if (!begun)
        c->routes.count = 0;
}

i64 rollout_group_positions(const struct rollout_group *c)
{
    return c->prompt->asked ? c->prompt->positions + c->ids.count : c->ids.count;
}

i64 rollout_group_parts(struct part parts[PROMPT_PARTS_MOST], const struct rollout_group *c)
{
    const struct prompt *asked = c->prompt->asked;
    i64 n = asked ? asked->part_count : 0;
    for (i64 i = 0; i < n; i++)
        parts[i] = asked->parts[i];
    if (c->ids.count)
        parts[n++] = (struct part){.kind = STREAM_TEXT, .ids = c->ids.ids, .count = c->ids.count};
    return n;
}

int rollout_text(struct buffer *out, const struct rollout_group *c, i64 copy, const struct text_tokenizer *tokenizer)
{
    const struct answer *a = &c->rollouts[copy].answer;
    struct id_list all = {0};
    for (i64 i = c->ids.count - c->hint; i < c->ids.count; i++)
        id_list_push(&all, c->ids.ids[i]);
    for (i64 i = 0; i < a->count; i++)
        if (a->ids[i] != MEDIUM_DRAW)
            id_list_push(&all, a->ids[i]);
    buffer_clear(out);
    buffer_append(out, "", 0);
    int status = text_decode(tokenizer, out, all.ids, all.count, true);
    id_list_release(&all);
    return status;
}

i64 rollout_drawn(const struct rollout *r)
{
    i64 n = 0;
    for (i64 i = 0; i < r->answer.count; i++)
        n += !r->answer.given[i];
    return n;
}

i64 rollout_routed(const struct rollout *r)
{
    return r->answer.has_medium ? r->answer.routes.count : max_i64(0, r->answer.count - 1);
}

/* ---- Weights of another form ---- */

int rollout_model_open(struct model *out, struct device *device, const struct model_config *config, enum dtype dtype,
                       enum rollout_weights form)
{
    if (form == ROLLOUT_INT8 || form == ROLLOUT_INT4)
        return model_open_quantized(out, device, config, dtype, form == ROLLOUT_INT8 ? 8 : 4);
    if (model_open(out, device, config, dtype, false, NULL))
        return -1;
    if (form == ROLLOUT_FP8)
        weights_fp8(&out->weights);
    return 0;
}

void rollout_model_take(struct model *out, const struct model *trained)
{
    for (i64 i = 0; i < trained->weights.count; i++) {
        const struct weight *from = &trained->weights.list[i];
        float *values = memory_alloc(max_i64(1, from->value.rows * from->value.columns) * 4);
        weight_get(&trained->weights, from, 0, from->value.rows, values);
        weight_put(&out->weights, &out->weights.list[i], 0, from->value.rows, values);
        memory_free(values);
    }
}

/* ---- The sampler ---- */

static void forbid(struct sampler *s, i32 id)
{
    if (id >= 0 && id < s->model->config.vocabulary)
        s->forbidden[s->forbidden_count++] = id;
}

/* A medium stores the prompt's last position once more. */
i64 sampler_room_most(const struct sampler_room *room)
{
    return max_i64(room->most, room->longest_medium) + (room->media != NULL);
}

int sampler_open(struct sampler *s, struct model *model, const struct submodel *sub,
                 const struct text_tokenizer *tokenizer, const struct sampler_room *room)
{
    *s = (struct sampler){.model = model, .tokenizer = tokenizer, .media = room->media, .most = room->most};
    if (room->media)
        s->vocabulary = room->media->vocabulary;
    else if (vocabulary_load(&s->vocabulary, tokenizer, NULL))
        return -1;
    if (text_vocabulary(tokenizer) > model->config.vocabulary)
        return error_set("the tokenizer has %lld %s, the model knows %lld: they do not belong together",
                         (long long)text_vocabulary(tokenizer), plural(text_vocabulary(tokenizer), "id", "ids"),
                         (long long)model->config.vocabulary);
    s->route_width = model->config.experts ? model->config.layers * sub->topk : 0;
    s->sampling = (struct sampling){.temperature = 1, .top_p = 1};
    /* Text has no id that opens or closes a medium, and the tokenizer can write all. */
    s->forbidden = memory_alloc((model->config.vocabulary + BRACKETS + SHAPES_MOST + 1) * 4);
    for (int i = 0; i < BRACKETS; i++)
        forbid(s, s->vocabulary.bracket[i]);
    for (i64 i = 0; i < s->vocabulary.shape_count && room->media; i++)
        forbid(s, s->vocabulary.shape[i]);
    forbid(s, s->vocabulary.message_begin);
    for (i64 id = 0; id < model->config.vocabulary; id++)
        if (!text_token_content(tokenizer, (i32)id))
            forbid(s, (i32)id);
    const struct decoder_options o = {.model = model,
                                      .sub = sub,
                                      .vocabulary = room->media ? &s->vocabulary : &vocabulary_of_text,
                                      .amplitude = room->media ? room->media->amplitude : NULL,
                                      .grid = room->media ? room->media->grid : NULL,
                                      .want_entropy = true,
                                      .keep_routes = s->route_width > 0,
                                      .as_trained = room->as_trained};
    decoder_open(&s->decoder, &o, room->slots, room->longest + room->size * sampler_room_most(room));
    return 0;
}

void sampler_close(struct sampler *s)
{
    decoder_close(&s->decoder);
    memory_free(s->forbidden);
    *s = (struct sampler){0};
}

struct policy sampler_policy(const struct sampler *s)
{
    return (struct policy){s->sampling.temperature, s->forbidden, s->forbidden_count, s->media ? &s->vocabulary : NULL};
}

/* ---- Drawing ---- */

/* parts: [PROMPT_PARTS_MOST], for the request to borrow. */
static struct generate_request request_of(struct rollout_group *c, struct part *parts, const struct sampler *s)
{
    const struct prompt *asked = c->prompt->asked;
    struct generate_request r = asked ? prompt_request(asked, 0, 0) : (struct generate_request){0};
    r.parts = parts;
    r.part_count = rollout_group_parts(parts, c);
    r.copies = c->size;
    r.identity = c->identity;
    r.routes = &c->routes;
    if (task_makes(c->prompt) == MODALITY_TEXT || task_makes(c->prompt) == MODALITY_AUDIO)
        r.most = s->most;
    if (r.media_only)
        return r;
    r.stop[0] = s->vocabulary.end;
    r.stop[1] = s->vocabulary.message_end;
    r.stop[2] = r.stop[3] = -1;
    r.forbidden = s->forbidden;
    r.forbidden_count = s->forbidden_count;
    r.by_place = true;
    return r;
}

/* awaited: the first of the groups, of which `until` are to be done. */
static int draw(struct sampler *s, struct rollout_group *const *rollout_groups, i64 count, i64 awaited, i64 until,
                struct progress *bar)
{
    i64 total = 0, next = 0, done = 0;
    int status = 0;
    for (i64 i = 0; i < count; i++)
        total += rollout_groups[i]->size;
    struct answer *answers = memory_alloc(max_i64(total, 1) * (i64)sizeof *answers);
    struct generate_request *requests = memory_alloc(max_i64(count, 1) * (i64)sizeof *requests);
    struct part *parts = memory_alloc(max_i64(count, 1) * PROMPT_PARTS_MOST * (i64)sizeof *parts);
    for (i64 i = 0; i < count; i++) {
        struct rollout_group *c = rollout_groups[i];
        requests[i] = request_of(c, &parts[PROMPT_PARTS_MOST * i], s);
        for (i64 r = 0; r < c->size; r++)
            answers[next++] = c->rollouts[r].answer;
        done += i < awaited && rollout_group_done(c);
    }
    s->decoder.options.sampling = s->sampling;
    weights_pack(&s->model->weights); /* packs weights that were just loaded */
    struct answer *waiting = answers;
    const struct generate_request *ended;
    next = 0;
    while (status == 0 && done < until) {
        for (; next < count; waiting += requests[next++].copies) /* a group that is done needs no slot */
            if (!rollout_group_done(rollout_groups[next]) && decoder_add(&s->decoder, waiting, &requests[next]))
                break;
        require(decoder_step(&s->decoder), "rollouts that no slot takes: %s", error_text());
        while ((ended = decoder_take(&s->decoder)))
            done += ended - requests < awaited;
        if (bar)
            progress_update(bar, done, NULL);
        if (interrupted())
            status = ROLLOUT_STOPPED;
    }
    decoder_drop(&s->decoder, NULL);
    next = 0;
    for (i64 i = 0; i < count; i++) {
        for (i64 r = 0; r < rollout_groups[i]->size; r++) {
            struct answer *a = &answers[next++];
            if (!a->done && task_makes(rollout_groups[i]->prompt) != MODALITY_TEXT)
                answer_release(a);
            rollout_groups[i]->rollouts[r].answer = *a;
        }
        rollout_group_forget_routes(rollout_groups[i]);
    }
    memory_free(answers);
    memory_free(requests);
    memory_free(parts);
    return status;
}

int rollouts_draw(struct sampler *s, struct rollout_group *const *rollout_groups, i64 count, i64 until,
                  struct progress *bar)
{
    return draw(s, rollout_groups, count, until, until, bar);
}

int rollouts_draw_any(struct sampler *s, struct rollout_group *const *rollout_groups, i64 count, i64 until,
                      struct progress *bar)
{
    return draw(s, rollout_groups, count, count, until, bar);
}
