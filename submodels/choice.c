#include "submodels/choice.h"

#include "elastic/expert_sums.h"
#include "submodels/submodels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BALANCE_SWEEPS = 4, SWAPS = 4, SWAP_SWEEPS = 4 };
/* A gain over the full model, which has overfitted a target then, makes up for less than a loss. */
static const double GAIN_COUNTS = 0.25;

/* ---- Rows and losses ---- */

static void sum_losses(struct step_result *out, struct choice *c, const struct submodel *sub, int direction,
                       struct forward_options *options, const struct batch **seen)
{
    struct forward_options plain = {.losses_only = true};
    struct step_end end;
    step_sums_clear(c->model->device, c->sums);
    for (i64 i = 0; i < c->rows[direction].count; i++) {
        struct forward forward;
        const struct batch *batch = &c->rows[direction].batches[i];
        if (seen)
            *seen = batch;
        tape_clear(&c->tape, false);
        model_forward(&forward, &c->tape, c->model, batch, sub, options ? options : &plain);
        step_sums_add(c->model->device, c->sums, &forward, &c->model->config);
    }
    step_sums_get(out, &end, c->model->device, c->sums);
}

/* True for losses that a choice goes by. */
static bool is_judged(int stream, int kind)
{
    return stream != LOSS_MARKS && !target_rows[kind].helps;
}

/* What the full model learned of a target beyond its frequencies, but at least a tenth of its loss: of
 * a target that it hardly learned, little can be lost. */
static double learned(double full, double unigram)
{
    return fmax(unigram - full, 0.1 * full);
}

static double lost_share(const struct step_result *r, const double full[LOSS_STREAMS][TARGETS],
                         const double unigram[LOSS_STREAMS][TARGETS])
{
    double sum = 0, cells = 0;
    for (int stream = 0; stream < LOSS_STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++)
            if (is_judged(stream, kind) && r->weight[stream][kind] > 0) {
                double loss = r->loss[stream][kind] / r->weight[stream][kind];
                sum += (loss - full[stream][kind]) / learned(full[stream][kind], unigram[stream][kind]);
                cells++;
            }
    return cells ? sum / cells : NAN;
}

double choice_loss(struct choice *c, const struct submodel *sub)
{
    struct step_result r;
    double squares = 0, gains = 0, count = 0;
    c->forwards++;
    for (int d = 0; d < DIRECTIONS; d++)
        if (c->directions >> d & 1) {
            sum_losses(&r, c, sub, d, NULL, NULL);
            double lost = lost_share(&r, c->full[d], c->rows[d].unigram);
            if (isnan(lost))
                continue;
            squares += lost > 0 ? lost * lost : 0;
            gains += lost < 0 ? -lost : 0;
            count++;
        }
    return count ? sqrt(squares / count) - GAIN_COUNTS * gains / count : NAN;
}

static void measure_full(struct choice *c)
{
    struct submodel full;
    struct step_result r;
    submodel_full(&full, &c->model->config);
    for (int d = 0; d < DIRECTIONS; d++) {
        if (!(c->directions >> d & 1))
            continue;
        sum_losses(&r, c, &full, d, NULL, NULL);
        for (int stream = 0; stream < LOSS_STREAMS; stream++)
            for (int kind = 0; kind < TARGETS; kind++)
                c->full[d][stream][kind] =
                    r.weight[stream][kind] > 0 ? r.loss[stream][kind] / r.weight[stream][kind] : NAN;
    }
}

static int no_samples(const struct heldout_pass *pass)
{
    struct buffer names = {0};
    for (int d = 0; d < DIRECTIONS; d++)
        if (pass->directions >> d & 1)
            buffer_printf(&names, "%s%s", names.length ? ", " : " of ", direction_rows[d].name);
    error_set("%s: the part %s has no samples%s: there is nothing to choose a sub-model by", pass->directory,
              pass->split, names.data ? names.data : "");
    buffer_release(&names);
    return -1;
}

int choice_open(struct choice *c, struct model *model, const struct heldout_pass *pass)
{
    int status = 0;
    memset(c, 0, sizeof *c);
    c->model = model;
    for (int d = 0; d < DIRECTIONS && status == 0; d++) {
        struct heldout_pass one = *pass;
        one.directions = 1u << d;
        if (pass->directions && !(pass->directions >> d & 1))
            continue;
        status = heldout_batches_read(&c->rows[d], &one, model);
        if (status == 0 && c->rows[d].count)
            c->directions |= 1u << d;
    }
    if (status == 0 && !c->directions)
        status = no_samples(pass);
    if (status) {
        for (int d = 0; d < DIRECTIONS; d++)
            if (c->rows[d].batches)
                heldout_batches_release(&c->rows[d]);
        return status;
    }
    tape_open(&c->tape, model->device, model->weights.dtype, (i64)64 << 30);
    c->sums = step_sums_open(model->device);
    measure_full(c);
    return 0;
}

void choice_close(struct choice *c)
{
    for (int d = 0; d < DIRECTIONS; d++)
        heldout_batches_release(&c->rows[d]);
    tape_close(&c->tape);
    step_sums_close(c->model->device, c->sums);
}

/* ---- Statistics of experts ---- */

/* The sums of a direction per position of it: counts, weights, norms, weighted norms, [4, L, E]. */
static void direction_sums(double *sums, struct choice *c, int direction)
{
    i64 cells = c->model->config.layers * c->model->config.experts;
    struct expert_sums s = {c->model, NULL, sums, sums + cells, sums + 2 * cells, sums + 3 * cells};
    struct forward_options options = {.losses_only = true, .see_experts = expert_sums_add, .see_context = &s};
    double positions = 0;
    struct step_result ignored;
    struct submodel full;
    submodel_full(&full, &c->model->config);
    memset(sums, 0, (size_t)(4 * cells) * sizeof *sums);
    sum_losses(&ignored, c, &full, direction, &options, &s.batch);
    for (i64 i = 0; i < c->rows[direction].count; i++)
        positions += (double)step_positions(&c->rows[direction].batches[i]);
    for (i64 i = 0; i < 4 * cells; i++)
        sums[i] /= positions;
}

void choice_scores(double *scores, struct choice *c, enum criterion criterion)
{
    i64 cells = c->model->config.layers * c->model->config.experts;
    double *all = memory_alloc(4 * cells * 8), *one = memory_alloc(4 * cells * 8);
    c->forwards++;
    for (int d = 0; d < DIRECTIONS; d++)
        if (c->directions >> d & 1) {
            direction_sums(one, c, d);
            for (i64 i = 0; i < 4 * cells; i++)
                all[i] += one[i];
        }
    const double *count = all, *weight = all + cells, *norm = all + 2 * cells, *gated = all + 3 * cells;
    for (i64 i = 0; i < cells; i++)
        scores[i] = criterion == CRITERION_USE      ? count[i]
                    : criterion == CRITERION_WEIGHT ? weight[i]
                    : count[i] == 0                 ? 0
                    : criterion == CRITERION_MAN    ? norm[i] / count[i]
                                                    : gated[i] / count[i];
    memory_free(all);
    memory_free(one);
}

/* ---- Directions weighed by loss ---- */

/* With the `count` experts of each layer that have the highest scores, and no more of them for each token. */
static double kept_loss(struct choice *c, const struct submodel *sub, const double *scores, i64 count)
{
    struct submodel cut = *sub;
    struct arena arena;
    arena_open(&arena, 16 << 20);
    submodel_keep_experts(&cut, &arena, &c->model->config, scores, count);
    cut.topk = min_i64(cut.topk, count);
    double loss = choice_loss(c, &cut);
    arena_close(&arena);
    return loss;
}

struct balance { /* state of one search */
    struct choice *choice;
    const struct submodel *sub;
    i64 count;
    double *share; /* [DIRECTIONS, L, E] an expert's part of the weighted norms of its layer */
    double factor[DIRECTIONS];
};

/* Takes the experts of a layer away one by one, each time the one without which the sum over the
 * directions of factor * (share gone)^4 is least: the power keeps one direction from paying for the
 * others. A score is when the expert goes. */
static void rank_layer(double *scores, const struct balance *b, i64 layer)
{
    const struct model_config *config = &b->choice->model->config;
    i64 experts = config->experts, cells = config->layers * experts;
    double gone[DIRECTIONS] = {0};
    for (i64 e = 0; e < experts; e++)
        scores[layer * experts + e] = INFINITY;
    for (i64 turn = 0; turn < experts; turn++) {
        double least = INFINITY;
        i64 goes = -1;
        for (i64 e = experts - 1; e >= 0; e--) {
            double sum = 0;
            if (isfinite(scores[layer * experts + e]))
                continue;
            for (int d = 0; d < DIRECTIONS; d++)
                sum += b->factor[d] * pow(gone[d] + b->share[d * cells + layer * experts + e], 4);
            if (goes < 0 || sum < least) {
                least = sum;
                goes = e;
            }
        }
        scores[layer * experts + goes] = (double)turn;
        for (int d = 0; d < DIRECTIONS; d++)
            gone[d] += b->share[d * cells + layer * experts + goes];
    }
}

static void balanced_scores(double *scores, const struct balance *b)
{
    const struct model_config *config = &b->choice->model->config;
    for (i64 layer = config->first_moe_layer; layer < config->layers; layer++)
        rank_layer(scores, b, layer);
}

/* Adds the shares of a direction. */
static void set_shares(struct balance *b, int direction, const double *gated)
{
    const struct model_config *config = &b->choice->model->config;
    i64 experts = config->experts, cells = config->layers * experts;
    for (i64 layer = 0; layer < config->layers; layer++) {
        double sum = 0;
        for (i64 e = 0; e < experts; e++)
            sum += gated[layer * experts + e];
        for (i64 e = 0; e < experts; e++)
            b->share[direction * cells + layer * experts + e] = sum > 0 ? gated[layer * experts + e] / sum : 0;
    }
}

static double balanced_loss(double *scores, const struct balance *b)
{
    balanced_scores(scores, b);
    return kept_loss(b->choice, b->sub, scores, b->count);
}

int choice_balanced(double *scores, struct choice *c, const struct submodel *sub, i64 count)
{
    i64 cells = c->model->config.layers * c->model->config.experts, directions = 0;
    struct balance b = {.choice = c, .sub = sub, .count = count, .share = memory_alloc(DIRECTIONS * cells * 8)};
    double *sums = memory_alloc(4 * cells * 8);
    c->forwards++;
    for (int d = 0; d < DIRECTIONS; d++)
        if (c->directions >> d & 1) {
            direction_sums(sums, c, d);
            set_shares(&b, d, sums + 3 * cells);
            b.factor[d] = 1;
            directions++;
        }
    double least = directions > 1 ? balanced_loss(scores, &b) : 0, before = INFINITY;
    for (int sweep = 0; sweep < BALANCE_SWEEPS && least < before; sweep++) {
        before = least;
        for (int d = 0; d < DIRECTIONS && !interrupted(); d++)
            for (int step = 0; step < 2 && c->directions >> d & 1; step++) {
                double kept = b.factor[d];
                b.factor[d] *= step ? 0.25 : 4;
                double loss = balanced_loss(scores, &b);
                if (loss < least) {
                    least = loss;
                    break;
                }
                b.factor[d] = kept;
            }
    }
    balanced_scores(scores, &b);
    for (int d = 0; d < DIRECTIONS && directions > 1; d++)
        if (c->directions >> d & 1)
            log_info("%s counts %g times: %.4f lost", direction_rows[d].name, b.factor[d], least);
    memory_free(sums);
    memory_free(b.share);
    return interrupted() ? STAGE_INTERRUPTED : 0;
}

/* ---- Greedy choices ---- */

struct ranked_expert {
    double score;
    i64 id;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked_expert *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

static void swap(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* Tries the experts of a layer that stay by the least margin in the places of those that go by the
 * least. */
static void swap_in_layer(double *scores, double *least, struct choice *c, const struct submodel *sub, i64 count,
                          i64 layer)
{
    i64 experts = c->model->config.experts;
    struct ranked_expert *order = memory_alloc(experts * (i64)sizeof *order);
    double *own = scores + layer * experts;
    for (i64 e = 0; e < experts; e++)
        order[e] = (struct ranked_expert){own[e], e};
    qsort(order, (size_t)experts, sizeof *order, by_score);
    for (i64 in = count; in < min_i64(count + SWAPS, experts); in++)
        for (i64 out = count - 1; out >= max_i64(count - SWAPS, 0) && !interrupted(); out--) {
            double *comes = &own[order[in].id], *goes = &own[order[out].id];
            swap(comes, goes);
            double loss = kept_loss(c, sub, scores, count);
            if (loss < *least) {
                i64 id = order[in].id;
                *least = loss;
                order[in].id = order[out].id;
                order[out].id = id;
            } else
                swap(comes, goes);
        }
    memory_free(order);
}

int choice_experts_greedy(double *scores, struct choice *c, const struct submodel *sub, i64 count)
{
    double least = kept_loss(c, sub, scores, count), before = INFINITY;
    for (int sweep = 0; sweep < SWAP_SWEEPS && least < before; sweep++) {
        before = least;
        for (i64 i = sub->layer_count - 1; i >= 0 && sub->layer[i] >= c->model->config.first_moe_layer; i--)
            swap_in_layer(scores, &least, c, sub, count, sub->layer[i]);
        log_info("swaps of experts: %.4f lost, %.4f before them", least, before);
        if (interrupted())
            return STAGE_INTERRUPTED;
    }
    return 0;
}

int choice_layers_greedy(struct submodel *sub, struct choice *c, i64 count)
{
    const struct model_config *config = &c->model->config;
    while (sub->layer_count > count) {
        double least = INFINITY;
        struct submodel best = *sub;
        i32 gone = -1;
        for (i64 i = 0; i < sub->layer_count; i++) {
            struct submodel without = *sub;
            if (elastic_layer_fixed(config, sub->layer[i]))
                continue;
            without.layer_count--;
            memmove(without.layer + i, without.layer + i + 1, (size_t)(without.layer_count - i) * sizeof *sub->layer);
            double loss = choice_loss(c, &without);
            if (loss < least) {
                least = loss;
                best = without;
                gone = sub->layer[i];
            }
            if (interrupted())
                return STAGE_INTERRUPTED;
        }
        if (gone < 0)
            return error_set("no sub-model of %lld %s has a finite loss on the samples that choose: the model is "
                             "damaged, or its training diverged",
                             (long long)sub->layer_count - 1, plural(sub->layer_count - 1, "layer", "layers"));
        log_info("without layer %d: %.4f lost", gone, least);
        *sub = best;
    }
    return 0;
}

int choice_experts(double *scores, struct choice *c, enum criterion criterion, const struct submodel *sub, i64 count)
{
    if (criterion == CRITERION_AUTO)
        criterion = (enum criterion)CRITERION_WITH_DATA;
    if (criterion < CRITERION_BALANCED) {
        choice_scores(scores, c, criterion);
        return 0;
    }
    int status = choice_balanced(scores, c, sub, count);
    return status == 0 && criterion == CRITERION_GREEDY ? choice_experts_greedy(scores, c, sub, count) : status;
}
