#include "rl/eval.h"

#include "baselines/baselines.h"
#include "data/sources/sources.h"
#include "rl/memory_estimate.h"
#include "rl/prompt_media.h"
#include "train/train.h"

#include <math.h>
#include <string.h>

enum { ANSWERS_KEPT = 12 };

/* ---- Prompts ---- */

static double mean_reward(const struct rollout_group *c)
{
    double sum = 0;
    for (i64 i = 0; i < c->size; i++)
        sum += c->rollouts[i].reward;
    return sum / (double)c->size;
}

static double best_reward(const struct rollout_group *c)
{
    double best = c->rollouts[0].reward;
    for (i64 i = 1; i < c->size; i++)
        best = fmax(best, c->rollouts[i].reward);
    return best;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

double media_distance(const struct rollout_group *c, const struct sampler *s)
{
    const struct answer *x = &c->rollouts[0].answer, *y = &c->rollouts[c->size > 1].answer;
    const struct media_block *a = &x->medium, *b = &y->medium;
    if (c->size < 2 || !x->has_medium || !y->has_medium || (a->bits && a->shape != b->shape))
        return NAN;
    i64 frames = min_i64(a->frames, b->frames), differing = 0;
    i64 width =
        a->bits ? shape_tokens(&s->vocabulary.shapes[a->shape]) * s->model->config.bits : s->model->config.levels;
    for (i64 i = 0; i < frames * width; i++)
        differing += a->bits ? a->bits[i] != b->bits[i] : a->codes[i] != b->codes[i];
    return frames ? (double)differing / (double)(frames * width) : NAN;
}

void eval_scores_add(struct eval_scores *out, const struct rollout_group *c)
{
    double mean = 0, ids = 0, entropy = 0, ended = 0, size = (double)c->size;
    for (i64 i = 0; i < c->size; i++) {
        const struct answer *a = &c->rollouts[i].answer;
        double drawn = 0, sum = 0;
        for (i64 j = 0; j < a->count; j++) {
            drawn += !a->given[j];
            sum += a->given[j] ? 0 : a->entropy[j];
        }
        mean += c->rollouts[i].reward / size;
        ids += drawn / size;
        entropy += sum / drawn / size;
        ended += a->ended / size;
    }
    out->reward += mean;
    out->error += mean * mean;
    out->length += ids;
    out->entropy += entropy;
    out->ended += ended;
    out->prompts++;
    out->answers += c->size;
}

bool is_reordered(const char *answer, i64 length, const char *ground_truth)
{
    i64 counts[256] = {0}, differing = 0, place = 0, longest = (i64)strlen(ground_truth);
    for (i64 i = 0; i < length; i++) {
        if (is_space(answer[i]))
            continue;
        while (place < longest && is_space(ground_truth[place]))
            place++;
        differing += place >= longest || answer[i] != ground_truth[place];
        place++;
        counts[(u8)answer[i]]++;
    }
    for (i64 i = 0; i < longest; i++)
        counts[(u8)ground_truth[i]] -= !is_space(ground_truth[i]);
    for (i64 c = 0; c < COUNT_OF(counts); c++)
        if (counts[c])
            return false;
    return differing > 0;
}

/* Adds the share of reordered answers to the prompt, if they are text. */
static int add_reordered(struct eval_scores *out, const struct rollout_group *c, const struct text_tokenizer *tokenizer)
{
    struct buffer answer = {0};
    int status = 0;
    if (task_makes(c->prompt) != MODALITY_TEXT)
        return 0;
    out->texts++;
    for (i64 i = 0; i < c->size && status == 0; i++) {
        status = rollout_text(&answer, c, i, tokenizer);
        if (status == 0 && is_reordered(answer.data ? answer.data : "", answer.length, c->prompt->ground_truth))
            out->reordered += 1 / (double)c->size;
    }
    buffer_release(&answer);
    return status;
}

void eval_scores_finish(struct eval_scores *out)
{
    double n = (double)out->prompts;
    out->reward /= n;
    out->length /= n;
    out->entropy /= n;
    out->ended /= n;
    out->reordered /= (double)out->texts;
    out->error = n > 1 ? sqrt(fmax(0, out->error / n - out->reward * out->reward) / (n - 1)) : NAN;
}

static int answer_all(struct sampler *sampler, struct grader *grader, struct rollout_group *const *rollout_groups,
                      i64 count)
{
    i64 open = 1;
    int status = 0;
    struct progress bar;
    progress_init_late(&bar, "prompts answered", count);
    while (open && status == 0) {
        status = rollouts_draw(sampler, rollout_groups, count, count, &bar);
        if (status == 0)
            status = grade_rollouts(&open, grader, rollout_groups, count, 0, sampler->most);
    }
    progress_clear(&bar);
    return status;
}

/* Writes FOLDER/NAME-3.png, or what the medium is, and its name into `out`. */
static int keep_medium(struct json *out, const struct eval_details *kept, i64 i, const struct answer *a, u64 seed)
{
    char *name = string_format("%s-%lld.%s", kept->name, (long long)i,
                               modality_rows[stream_rows[a->medium.kind].modality].ending);
    char *path = path_join(kept->folder, name);
    int status = answer_save(path, kept->media, NULL, a, seed);
    json_set(out, "file", json_of_string(name));
    memory_free(name);
    memory_free(path);
    return status;
}

static int keep(const struct eval_details *kept, i64 i, const struct rollout_group *c,
                const struct text_tokenizer *tokenizer, u64 seed)
{
    const struct answer *a = &c->rollouts[0].answer;
    struct buffer answer = {0};
    if (kept->best)
        kept->best[i] = best_reward(c);
    if (kept->mean)
        kept->mean[i] = mean_reward(c);
    if (!kept->answers || json_count(kept->answers) >= ANSWERS_KEPT)
        return 0;
    int status = rollout_text(&answer, c, 0, tokenizer);
    struct json *j = json_object();
    if (status == 0 && kept->folder && a->has_medium && a->medium.frames)
        status = keep_medium(j, kept, i, a, seed);
    json_set(j, "prompt", json_copy(json_get(c->prompt->source, "prompt")));
    json_set(j, "ground_truth", json_of_string(c->prompt->ground_truth));
    json_set(j, "answer", json_of_bytes(answer.data, answer.length));
    json_set(j, "reward", json_of_number(c->rollouts[0].reward));
    json_push(kept->answers, j);
    buffer_release(&answer);
    return status;
}

int eval_prompts(struct eval_scores *out, const struct eval_details *kept, struct sampler *sampler,
                 struct grader *grader, const struct prompts *prompts, double temperature, i64 copies, u64 seed)
{
    struct rollout_group *list = memory_alloc(prompts->count * (i64)sizeof *list);
    struct rollout_group **rollout_groups = memory_alloc(prompts->count * (i64)sizeof *rollout_groups);
    *out = (struct eval_scores){0};
    for (i64 i = 0; i < prompts->count; i++) {
        rollout_group_init(&list[i], &prompts->list[i], i, i, copies);
        rollout_groups[i] = &list[i];
    }
    sampler->sampling = (struct sampling){.temperature = (float)temperature, .top_p = 1, .key = {seed, RNG_SAMPLING}};
    int status = answer_all(sampler, grader, rollout_groups, prompts->count);
    for (i64 i = 0; i < prompts->count; i++) {
        if (status == 0)
            eval_scores_add(out, &list[i]);
        if (status == 0)
            status = add_reordered(out, &list[i], sampler->tokenizer);
        if (status == 0)
            status = keep(kept, i, &list[i], sampler->tokenizer, seed);
        rollout_group_release(&list[i]);
    }
    eval_scores_finish(out);
    memory_free(list);
    memory_free(rollout_groups);
    return status;
}

struct json *eval_scores_json(const struct eval_scores *s)
{
    struct json *j = json_object();
    json_set(j, "reward", json_of_number(s->reward));
    json_set(j, "standard_error", json_of_number(s->error));
    json_set(j, "entropy", json_of_number(s->entropy));
    json_set(j, "length", json_of_number(s->length));
    json_set(j, "ended", json_of_number(s->ended));
    if (s->texts)
        json_set(j, "reordered", json_of_number(s->reordered));
    json_set(j, "prompts", json_of_integer(s->prompts));
    json_set(j, "answers", json_of_integer(s->answers));
    return j;
}

/* ---- Bigrams and trigrams of the training texts ---- */

/* Counts the texts of the training part, a drawn share of them, each with its end. */
static int count_texts(struct ngrams *n, const char *data, double share, i32 end, u64 seed)
{
    struct shards shards;
    struct id_list ids = {0};
    i64 texts = 0;
    int status = shards_open(&shards, data, "train");
    if (status)
        return error_prefix("ngrams are counted on the training part");
    for (i64 i = 0; i < shards.sample_count && status == 0; i++) {
        struct shard_sample sample = shards_sample(&shards, i);
        struct rng_key key = {seed, RNG_EXCHANGE};
        if (sample.direction != DIRECTION_TEXT || rng_uniform(key, (u32)i, (u32)(i >> 32), 1, 0) >= share)
            continue;
        ids.count = 0;
        for (i64 part = (i64)sample.first_part; part < (i64)sample.first_part + sample.parts && status == 0; part++) {
            const struct shard_part *stored = shards_part(&shards, part);
            const i32 *own = stored->kind == STREAM_TEXT ? shards_payload(&shards, part) : NULL;
            status = stored->kind == STREAM_TEXT && !own ? -1 : 0;
            for (i64 k = 0; own && k < stored->count; k++)
                id_list_push(&ids, own[k]);
        }
        if (!sample.goes_on)
            id_list_push(&ids, end);
        ngrams_add(n, ids.ids, ids.count);
        texts++;
    }
    if (status == 0 && texts == 0)
        status = error_set("ngrams %g: the training part of %s has no such text", share, data);
    id_list_release(&ids);
    shards_close(&shards);
    return status;
}

/* Adds -ln p of the text targets of a batch, by bigrams and trigrams. */
static void add_batch(double nats[2], double *weight, const struct ngrams *n, const struct batch *b)
{
    const struct target_list *list = &b->targets[TARGET_TEXT];
    const struct input_list *ids = &b->inputs[INPUT_TEXT];
    i64 last = -1; /* entry of `ids` at the target's position */
    for (i64 t = 0; t < list->n; t++) {
        i32 at = list->position[t], before[2] = {NGRAM_NONE, NGRAM_NONE};
        while (last + 1 < ids->n && ids->position[last + 1] <= at)
            last++;
        if (list->stream[t] != STREAM_TEXT || !(list->weight[t] > 0))
            continue;
        if (last >= 0 && ids->position[last] == at)
            before[1] = ids->ids[last];
        if (last >= 1 && ids->position[last - 1] == at - 1 && b->sample[at - 1] == b->sample[at])
            before[0] = ids->ids[last - 1];
        nats[0] -= list->weight[t] * log(ngrams_probability(n, 2, before + 1, list->ids[t]));
        nats[1] -= list->weight[t] * log(ngrams_probability(n, 3, before, list->ids[t]));
        *weight += list->weight[t];
    }
}

int eval_ngrams(double nats[2], struct model *model, const struct eval_settings *s, u64 seed)
{
    static i64 zero[1];
    double one[] = {1}, length[] = {(double)s->length}, weight = 0;
    const struct loader_settings settings = {.rows = {zero, one, 1, false},
                                             .length = {zero, length, 1, false},
                                             .micro_rows = 1,
                                             .in_order = true,
                                             .mixture[DIRECTION_TEXT] = 1};
    const struct heldout_pass pass = {.directory = s->data,
                                      .split = s->split,
                                      .length = s->length,
                                      .most_rows = s->rows,
                                      .chats = CHATS_LEFT_OUT,
                                      .directions = 1u << DIRECTION_TEXT};
    struct heldout_batches held;
    struct loader *loader = loader_open(s->data, s->split, &settings, 0);
    if (!loader)
        return -1;
    struct ngrams *n = ngrams_open(loader_meta(loader)->vocabulary);
    int status = count_texts(n, s->data, s->ngrams, loader_vocabulary(loader)->end, seed);
    loader_close(loader);
    if (status == 0)
        status = heldout_batches_read(&held, &pass, model);
    nats[0] = nats[1] = 0;
    for (i64 i = 0; status == 0 && i < held.count; i++)
        add_batch(nats, &weight, n, &held.batches[i]);
    for (int i = 0; i < 2; i++)
        nats[i] = weight > 0 ? nats[i] / weight : NAN;
    if (status == 0)
        heldout_batches_release(&held);
    ngrams_close(n);
    return status;
}

/* ---- A model ---- */

/* Appends a prompt with its rewards as a line. */
static void append_prompt(struct buffer *out, const struct task *task, double best, double mean)
{
    struct json *line = json_copy(task->source);
    struct json *extra = json_copy(json_get(line, "extra_info"));
    if (json_kind(extra) != JSON_OBJECT) {
        json_free(extra);
        extra = json_object();
    }
    json_set(extra, "pass", json_of_number(best));
    json_set(extra, "reward", json_of_number(mean));
    json_set(line, "extra_info", extra);
    json_print(out, line, 0);
    buffer_append(out, "\n", 1);
    json_free(line);
}

/* Prompts with media, whose paths are relative to their own file, are left out. */
static int write_prompts(const char *out, const struct prompts *prompts, const struct eval_details *kept)
{
    struct buffer all = {0}, unsolved = {0};
    char *paths[] = {path_join(out, "prompts.jsonl"), path_join(out, "unsolved.jsonl")};
    for (i64 i = 0; i < prompts->count; i++) {
        if (prompts->list[i].asked)
            continue;
        append_prompt(&all, &prompts->list[i], kept->best[i], kept->mean[i]);
        if (kept->best[i] < 1)
            append_prompt(&unsolved, &prompts->list[i], kept->best[i], kept->mean[i]);
    }
    int status = file_replace(paths[0], all.data ? all.data : "", all.length);
    if (status == 0)
        status = file_replace(paths[1], unsolved.data ? unsolved.data : "", unsolved.length);
    memory_free(paths[0]);
    memory_free(paths[1]);
    buffer_release(&all);
    buffer_release(&unsolved);
    return status;
}

static int score_prompts(struct eval_scores *out, struct model *model, const struct submodel *sub,
                         const struct eval_settings *s, const struct text_tokenizer *tokenizer,
                         struct prompt_media *media, const struct prompts *prompts, u64 seed)
{
    struct sampler sampler;
    struct judge judge = {0};
    bool judged = s->grader.judge && *s->grader.judge;
    if (judged && judge_open(&judge, model->device, s->grader.judge, model->weights.dtype))
        return -1;
    struct grader *grader =
        grader_open(&s->grader, tokenizer, media->opened ? &media->generator : NULL, judged ? &judge : NULL, NULL, 0);
    struct sampler_room room = {min_i64(RL_EVAL_SEATS, prompts->count), s->copies, prompts->longest, s->max_tokens,
                                .longest_medium = prompts->longest_medium};
    int status = grader_check(grader, prompts);
    room.media = prompt_media_of(media);
    if (status == 0)
        status = sampler_check_memory(&room, model, sub, tokenizer, prompts);
    if (status == 0)
        status = sampler_open(&sampler, model, sub, tokenizer, &room);
    if (status == 0) {
        struct eval_details kept = {.best = memory_alloc(2 * prompts->count * 8)};
        kept.mean = kept.best + prompts->count;
        status = eval_prompts(out, &kept, &sampler, grader, prompts, s->temperature, s->copies, seed);
        if (status == 0 && s->out)
            status = write_prompts(s->out, prompts, &kept);
        memory_free(kept.best);
        if (status == ROLLOUT_STOPPED)
            status = error_interrupted();
        sampler_close(&sampler);
    }
    grader_close(grader);
    judge_close(&judge);
    return status;
}

static struct json *eval_on_prompts(struct model *model, const struct submodel *sub, const struct eval_settings *s,
                                    u64 seed)
{
    struct prompts prompts;
    struct eval_scores scores;
    struct json *out = NULL;
    struct text_tokenizer *tokenizer = text_tokenizer_load(s->from);
    if (!tokenizer)
        return NULL;
    struct prompt_media media = {model->device, s->from, model->weights.dtype};
    if (prompts_load(&prompts, s->data, tokenizer, &media, s->limit) == 0) {
        if (score_prompts(&scores, model, sub, s, tokenizer, &media, &prompts, seed) == 0)
            out = eval_scores_json(&scores);
        prompts_release(&prompts);
    }
    prompt_media_close(&media);
    text_tokenizer_free(tokenizer);
    if (out)
        json_set(out, "temperature", json_of_number(s->temperature));
    return out;
}

/* To the loss of texts. */
static void add_ngrams(struct json *losses, const double nats[2])
{
    for (i64 i = 0; i < json_count(losses); i++) {
        struct json *j = json_at(losses, i);
        if (strcmp(json_string(json_get(j, "stream"), ""), stream_rows[STREAM_TEXT].name) == 0 &&
            strcmp(json_string(json_get(j, "target"), ""), target_rows[TARGET_TEXT].name) == 0) {
            json_set(j, "bigram", json_of_number(nats[0]));
            json_set(j, "trigram", json_of_number(nats[1]));
        }
    }
}

static struct json *eval_on_shards(struct model *model, const struct submodel *sub, const struct eval_settings *s,
                                   u64 seed)
{
    struct heldout h;
    double ngrams[2] = {NAN, NAN};
    int status = heldout_measure(&h, model, sub, s->data, s->split, s->length, s->rows);
    if (status == 0 && s->exchanged)
        status = heldout_measure_exchanged(&h, model, sub, s->data, s->split, s->length, s->rows);
    if (status == 0 && s->ngrams > 0)
        status = eval_ngrams(ngrams, model, s, seed);
    if (status > 0)
        error_set("interrupted before every row was measured");
    if (status)
        return NULL;
    heldout_warn(&h, s->split, s->length);
    struct json *out = json_object();
    double nats = h.sums.loss[STREAM_TEXT][TARGET_TEXT] + h.sums.loss[LOSS_CHAT][TARGET_TEXT];
    json_set(out, "part", json_of_string(s->split));
    json_set(out, "positions", json_of_integer(h.positions));
    struct json *losses = heldout_json(&h);
    if (isfinite(ngrams[0]))
        add_ngrams(losses, ngrams);
    json_set(out, "losses", losses);
    if (left_out_total(&h.left_out))
        json_set(out, "not_measured", left_out_json(&h.left_out));
    if (h.bytes_of_text > 0)
        json_set(out, "bits_per_byte", json_of_number(nats / log(2) / h.bytes_of_text));
    json_set(out, "seconds", json_of_number(h.seconds));
    return out;
}

static void print_cell(struct buffer *out, double value, int width)
{
    if (isfinite(value))
        buffer_printf(out, " %*.4f", width, value);
    else
        buffer_printf(out, " %*s", width, "");
}

/* The losses; where they were measured, those with another sample's prompt stand beside them. */
static void print_losses(struct buffer *out, const struct json *losses)
{
    bool exchanged = false;
    for (i64 i = 0; i < json_count(losses); i++)
        exchanged |= json_get(json_at(losses, i), "exchanged") != NULL;
    buffer_printf(out, "%-10s %-8s %10s %8s", "stream", "target", "loss", "+-");
    if (exchanged)
        buffer_printf(out, " %10s", "exchanged");
    buffer_printf(out, " %10s %12s", "unigram", "targets");
    for (i64 i = 0; i < json_count(losses); i++) {
        const struct json *j = json_at(losses, i);
        buffer_printf(out, "\n%-10s %-8s %10.4f", json_string(json_get(j, "stream"), ""),
                      json_string(json_get(j, "target"), ""), json_number(json_get(j, "loss"), 0));
        print_cell(out, 1.96 * json_number(json_get(j, "error"), NAN), 8);
        if (exchanged)
            print_cell(out, json_number(json_get(j, "exchanged"), NAN), 10);
        print_cell(out, json_number(json_get(j, "unigram"), NAN), 10);
        buffer_printf(out, " %12.0f", json_number(json_get(j, "targets"), 0));
    }
}

void eval_print(struct buffer *out, const struct json *result)
{
    const struct json *losses = json_get(result, "losses");
    if (!losses) {
        buffer_printf(
            out, "reward %.4f +- %.4f on %lld %s, entropy %.4f, %.1f tokens an answer, %.1f %% ended by themselves",
            json_number(json_get(result, "reward"), 0), json_number(json_get(result, "standard_error"), 0),
            (long long)json_integer(json_get(result, "prompts"), 0),
            plural(json_integer(json_get(result, "prompts"), 0), "prompt", "prompts"),
            json_number(json_get(result, "entropy"), 0), json_number(json_get(result, "length"), 0),
            100 * json_number(json_get(result, "ended"), 0));
        return;
    }
    print_losses(out, losses);
    for (i64 i = 0; i < json_count(losses); i++)
        if (json_get(json_at(losses, i), "bigram"))
            buffer_printf(out, "\n%.4f by bigrams, %.4f by trigrams of training texts, on text",
                          json_number(json_get(json_at(losses, i), "bigram"), NAN),
                          json_number(json_get(json_at(losses, i), "trigram"), NAN));
    if (json_get(result, "bits_per_byte"))
        buffer_printf(out, "\n%.4f bits per byte of text", json_number(json_get(result, "bits_per_byte"), 0));
}

static bool has_prompts(const struct eval_settings *s)
{
    return is_address(s->data) || (file_exists(s->data) && !file_is_directory(s->data));
}

struct json *eval_model(struct model *model, const struct submodel *sub, const struct eval_settings *s, u64 seed)
{
    return has_prompts(s) ? eval_on_prompts(model, sub, s, seed) : eval_on_shards(model, sub, s, seed);
}

struct eval_work {
    struct model_source weights;
    struct eval_settings settings;
};

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct eval_work *w = context;
    const struct eval_settings *s = &w->settings;
    const struct heldout_pass pass = {s->data, s->split, s->length, s->rows};
    struct model model;
    (void)out;
    if (model_load_source(&model, meta, &w->weights))
        return -1;
    int status = has_prompts(s) ? 0 : submodel_dry_run(&model, &s->sub, &pass);
    model_close(&model);
    return status;
}

static bool smaller(struct buffer *name, struct dry_run *d)
{
    struct model_source *weights = &((struct eval_work *)d->context)->weights;
    if (dry_run_reduce(name, d)) {
        model_source_name(name, weights);
        return true;
    }
    buffer_clear(name);
    dry_run_restart(d);
    return model_source_smaller(name, weights);
}

/* Before the model is loaded. With shards it includes the forward pass; with prompts only the weights, since
 * sampler_check_memory follows once the prompts are read. */
static int check_memory(const struct model_source *weights, const struct eval_settings *s, const struct device *device)
{
    static const struct reduction reductions[] = {{"length"}, {0}};
    struct eval_work w = {*weights, *s};
    const struct dry_run check = {weights->directory,
                                  run,
                                  &w,
                                  SMALLER_MODEL,
                                  &w.settings,
                                  eval_table,
                                  has_prompts(s) ? NULL : reductions,
                                  smaller};
    return dry_run_check(&check, device);
}

struct json *eval_directory(const struct eval_settings *s, struct device *device, const struct model_source *base,
                            u64 seed)
{
    struct model_source weights = *base;
    struct model model;
    struct submodel sub;
    struct arena arena;
    struct json *result = NULL;
    weights.directory = s->from;
    model_source_take(&weights, s->weights);
    if (check_memory(&weights, s, device) || model_load_source(&model, device, &weights))
        return NULL;
    arena_open(&arena, 64 << 20);
    if (submodel_parse(&sub, &arena, &s->sub, &model) == 0)
        result = eval_model(&model, &sub, s, seed);
    arena_close(&arena);
    model_close(&model);
    return result;
}

/* ---- The stage ---- */

#define ROW(member, ...) SETTING(struct eval_settings, member, __VA_ARGS__)
const struct setting eval_table[] = {
    ROW(from, "from", REFERENCE, NULL, 0, 0, NULL, "model directory"),
    ROW(data, "data", REFERENCES, NULL, 0, 0, NULL, DATA_HELP "; or a file of prompts"),
    ROW(split, "part", STRING, "validation", 0, 0, NULL, "split of the shards: train, validation, test"),
    ROW(rows, "rows", INTEGER, "0", 0, 1e9, NULL, "maximum rows of the shards; 0: all"),
    ROW(length, "length", INTEGER, "512", 8, 1 << 20, NULL, "positions per row"),
    ROW(exchanged, "exchanged", BOOL, "false", 0, 0, NULL,
        "shards: measure captions and media again, each after the prompt of another sample"),
    ROW(ngrams, "ngrams", NUMBER, "0", 0, 1, NULL,
        "shards: share of the training texts on which bigrams and trigrams are counted, as a baseline; 0: none"),
    ROW(limit, "limit", INTEGER, "0", 0, 1e9, NULL, "maximum prompts; 0: all"),
    ROW(copies, "copies", INTEGER, "1", 1, 1e4, NULL, "answers per prompt"),
    ROW(temperature, "temperature", NUMBER, "0", 0, 100, NULL, "sampling temperature; 0: greedy"),
    ROW(max_tokens, "max_tokens", INTEGER, "256", 1, 1 << 20, NULL, "maximum answer length, tokens"),
    ROW(weights, "weights", CHOICE, "stored", 0, 0, WEIGHTS_CHOICES, WEIGHTS_HELP),
    SUBMODEL_ROWS(struct eval_settings, sub),
    GRADER_ROWS(struct eval_settings),
    {0}};

int eval_check_settings(const void *settings)
{
    const struct eval_settings *s = settings;
    return split_check("part", s->split) ? -1 : grader_check_settings(&s->grader);
}

int eval_check_machine(const void *settings)
{
    return grader_check_machine(&((const struct eval_settings *)settings)->grader);
}

int eval_stage(const void *settings, const struct stage *stage)
{
    struct eval_settings s = *(const struct eval_settings *)settings;
    const struct model_source base = {.dtype = stage->dtype, .fixed = true};
    s.out = stage->out;
    struct json *result = eval_directory(&s, stage->device, &base, stage->seed);
    if (!result)
        return interrupted() ? STAGE_INTERRUPTED : -1;
    char *path = path_join(stage->out, "eval.json");
    int status = json_save(path, result);
    struct buffer text = {0};
    eval_print(&text, result);
    for (char *rest = text.data, *line; (line = strsep(&rest, "\n"));)
        log_info("%s", line);
    buffer_release(&text);
    memory_free(path);
    json_free(result);
    return status;
}
