#include "submodels/submodels.h"

#include "data/sources/sources.h"
#include "submodels/choice.h"
#include "submodels/proof.h"
#include "kernels/device/dry_run.h"
#include "train/pretrain.h"
#include "train/taught.h"

#include <math.h>
#include <string.h>

#define ROW(member, key, type, fallback, low, high, choices, help)                                                     \
    SETTING(struct extract_settings, member, key, type, fallback, low, high, choices, help)
const struct setting extract_table[] = {
    ROW(from, "from", REFERENCE, NULL, 0, 0, NULL, "model to extract from"),
    SUBMODEL_ROWS(struct extract_settings, sub),
    ROW(data, "data", REFERENCES, "", 0, 0, NULL, "shards by which numbers of layers and experts, and targets, choose"),
    ROW(split, "part", STRING, "validation", 0, 0, NULL, "split of the shards"),
    ROW(rows, "rows", INTEGER, "16", 1, 1e9, NULL, "maximum rows of each direction"),
    ROW(length, "length", INTEGER, "512", 8, 1 << 20, NULL, "positions per row"),
    ROW(only, "for", STRINGS, "", 0, 0, NULL, "directions that count, e.g. text, image-out; none: all alike"),
    ROW(criterion, "criterion", CHOICE, "auto", 0, 0, CRITERION_NAMES,
        "what experts are kept for: use (how often they are chosen), weight (sum of router weights), man (mean norm of "
        "outputs), reap (mean norm of weighted outputs), balanced (its sum, all directions alike), greedy (balanced, "
        "then swaps by loss); auto: " CRITERION_AUTO_HELP),
    ROW(target.active, "active", NUMBER, "0", 0, 1, NULL, "largest share of the active parameters; 0: any"),
    ROW(target.parameters, "parameters", NUMBER, "0", 0, 1, NULL, "largest share of all parameters; 0: any"),
    ROW(target.bytes, "memory", INTEGER, "0", 0, 1e18, NULL, "largest size of the weights in bytes, e.g. 8G; 0: any"),
    REPAIR_ROWS(struct extract_settings, repair),
    {0}};

enum { TRIED_MOST = 4096 };

/* ---- Settings ---- */

static bool is_given(const char *text)
{
    return text && *text;
}

bool extract_has_target(const struct extract_settings *s)
{
    return s->target.active > 0 || s->target.parameters > 0 || s->target.bytes > 0;
}

/* True if ranks of experts or of layers are needed. */
static bool chooses(const struct extract_settings *s)
{
    return extract_has_target(s) || submodel_number(s->sub.experts) || submodel_number(s->sub.layers);
}

static int directions_of(unsigned *bits, const struct string_list *only)
{
    *bits = 0;
    for (i64 i = 0; i < only->count; i++) {
        int d = 0;
        while (d < DIRECTIONS && strcmp(direction_rows[d].name, only->values[i]) != 0)
            d++;
        if (d == DIRECTIONS) {
            struct buffer names = {0};
            for (int n = 0; n < DIRECTIONS; n++)
                buffer_printf(&names, "%s%s", n ? ", " : "", direction_rows[n].name);
            error_usage("for: %s is none of %s", only->values[i], names.data);
            buffer_release(&names);
            return -1;
        }
        *bits |= 1u << d;
    }
    return 0;
}

int extract_check_settings(const void *settings)
{
    const struct extract_settings *s = settings;
    unsigned ignored;
    if (split_check("part", s->split) || directions_of(&ignored, &s->only))
        return -1;
    if (s->only.count && !is_given(s->data))
        return error_usage("for: %s: expected data, the shards that hold such samples", s->only.values[0]);
    if (s->criterion > CRITERION_USE && !is_given(s->data))
        return error_usage("criterion: only use is known without samples: expected data, a folder of shards");
    if (s->criterion != CRITERION_AUTO && !chooses(s))
        return error_usage(
            "criterion: nothing is chosen by it: expected a number of experts or of layers, or a target");
    if (is_given(s->data) && !chooses(s))
        return error_usage("data: nothing is chosen by it: expected a number of experts or of layers, or a target");
    return 0;
}

static struct heldout_pass pass_of(const struct extract_settings *s)
{
    struct heldout_pass pass = {s->data, s->split, s->length, s->rows};
    directions_of(&pass.directions, &s->only);
    return pass;
}

/* ---- Choice ---- */

struct extraction { /* state of one choice */
    const struct extract_settings *s;
    struct model *model;
    struct choice *choice; /* NULL: without data */
    struct arena *arena;
    double *scores;            /* [L, E]; NULL: experts are not ranked */
    struct submodel_shape top; /* the most that the options leave */
};

static int rank_experts(struct extraction *x, const struct submodel *sub, i64 count)
{
    x->scores = memory_alloc(model_use_count(&x->model->config) * 8);
    if (x->choice)
        return choice_experts(x->scores, x->choice, (enum criterion)x->s->criterion, sub, count);
    model_ranking(x->scores, x->model);
    return 0;
}

static int keep_layers(struct submodel *sub, struct extraction *x, i64 count)
{
    if (x->choice)
        return choice_layers_greedy(sub, x->choice, count);
    const struct model_config *c = &x->model->config;
    submodel_keep_layers(sub, c, model_order_layers(x->model->order, c), count);
    return 0;
}

static i64 given_or(const char *text, i64 given, i64 otherwise)
{
    return is_given(text) ? given : otherwise;
}

static int unreachable(const struct extraction *x, const struct submodel *listed, const struct submodel_shape *least)
{
    const struct model_config *c = &x->model->config;
    struct submodel full, sub = *listed;
    submodel_full(&full, c);
    if (least->layers < sub.layer_count)
        submodel_keep_layers(&sub, c, model_order_layers(x->model->order, c), least->layers);
    sub.expert_count = least->experts;
    sub.topk = least->topk;
    struct submodel_size all = submodel_size(&full, x->model), size = submodel_size(&sub, x->model);
    return error_usage("no sub-model is that small: the smallest, with %lld %s, %lld %s and top-%lld, has "
                       "%.3f of the active and %.3f of all parameters, and %.1f MB of weights",
                       (long long)least->layers, plural(least->layers, "layer", "layers"), (long long)least->experts,
                       plural(least->experts, "expert", "experts"), (long long)least->topk,
                       (double)size.active / (double)all.active, (double)size.parameters / (double)all.parameters,
                       (double)size.bytes * 1e-6);
}

/* Tries the shapes, which are in descending order of layers, and keeps the one of least loss. With one
 * shape there is nothing to try. */
static int best_of(struct submodel *best, struct extraction *x, const struct submodel *listed,
                   const struct submodel_shape *shapes, i64 count)
{
    struct submodel layers = *listed;
    double least = INFINITY;
    i64 fewest = shapes[0].experts;
    int status = 0;
    for (i64 i = 1; i < count; i++)
        fewest = min_i64(fewest, shapes[i].experts);
    for (i64 i = 0; i < count && status == 0; i++) {
        status = shapes[i].layers < layers.layer_count ? keep_layers(&layers, x, shapes[i].layers) : 0;
        struct submodel sub = layers;
        sub.topk = shapes[i].topk;
        if (status == 0 && shapes[i].experts < sub.expert_count) {
            status = x->scores ? 0 : rank_experts(x, &sub, fewest);
            if (status == 0)
                submodel_keep_experts(&sub, x->arena, &x->model->config, x->scores, shapes[i].experts);
        }
        if (status || count == 1) {
            *best = sub;
            return status;
        }
        double loss = choice_loss(x->choice, &sub);
        log_info("%lld %s, %lld %s, top-%lld: %.4f lost of what the full model learned", (long long)shapes[i].layers,
                 plural(shapes[i].layers, "layer", "layers"), (long long)shapes[i].experts,
                 plural(shapes[i].experts, "expert", "experts"), (long long)shapes[i].topk, loss);
        if (loss < least) {
            least = loss;
            *best = sub;
        }
    }
    return status ? status : isfinite(least) ? 0 : error_set("no sub-model has a finite loss on the data");
}

/* What the options list stays as listed; the others are chosen. */
static int choose(struct submodel *sub, struct extraction *x)
{
    const struct extract_settings *s = x->s;
    const struct model_config *c = &x->model->config;
    i64 layers = submodel_number(s->sub.layers), experts = submodel_number(s->sub.experts), count = 1;
    const struct submodel_options lists = {layers ? NULL : s->sub.layers, experts ? NULL : s->sub.experts, s->sub.topk};
    struct submodel listed;
    bool moe = c->first_moe_layer < c->layers;
    double *any = memory_alloc(model_use_count(c) * 8);
    int status = submodel_parse_by(sub, x->arena, &s->sub, x->model, any); /* checks the numbers */
    memory_free(any);
    if (status || submodel_parse(&listed, x->arena, &lists, x->model))
        return -1;
    listed.topk = sub->topk;
    struct submodel_shape top = {sub->layer_count, sub->expert_count, sub->topk}, *shapes = &top;
    x->top = top;
    struct submodel_shape least = {given_or(s->sub.layers, top.layers, submodel_least_layers(c)),
                                   given_or(s->sub.experts, top.experts, moe ? max_i64(1, c->experts / 8) : 0),
                                   given_or(s->sub.topk, top.topk, moe ? 1 : top.topk)};
    if (extract_has_target(s) && x->choice) {
        shapes = memory_alloc(TRIED_MOST * (i64)sizeof *shapes);
        count = submodel_shapes(shapes, TRIED_MOST, x->model, &least, &top, &s->target);
    } else if (extract_has_target(s)) {
        struct submodel_shape bound = top;
        count = submodel_shape_in_order(&top, x->model, &least, &bound, &s->target);
    }
    status = count ? best_of(sub, x, &listed, shapes, count) : unreachable(x, &listed, &least);
    if (shapes != &top)
        memory_free(shapes);
    return status ? status : submodel_check(sub, c);
}

static int check_statistics(const struct extract_settings *s, const struct model *model)
{
    bool counts = model_has_use(model), numbers = extract_has_target(s) || submodel_number(s->sub.experts);
    if (counts || model->config.first_moe_layer == model->config.layers || !numbers)
        return 0;
    if (!is_given(s->data))
        return error_usage("%s does not count how often its experts are used, as models trained by weft do: expected "
                           "data (--data DIR), shards on which that is measured, or a list of experts",
                           s->from);
    log_info("%s was not trained elastically by weft: sub-models lose more, and need training", s->from);
    return 0;
}

/* The sub-model that the settings ask for. Its arrays come from `arena`. */
static int choose_submodel(struct submodel *sub, struct arena *arena, const struct extract_settings *s,
                           struct model *model)
{
    const struct heldout_pass pass = pass_of(s);
    struct choice choice;
    struct extraction x = {.s = s, .model = model, .arena = arena};
    double begin = clock_s();
    if (check_statistics(s, model))
        return -1;
    int status = is_given(s->data) ? choice_open(&choice, model, &pass) : 0;
    if (status)
        return status;
    x.choice = is_given(s->data) ? &choice : NULL;
    status = choose(sub, &x);
    if (x.choice) {
        if (status == 0)
            log_info("chosen by %lld %s over %s in %.1f s: %.4f lost of what the full model learned",
                     (long long)choice.forwards, plural(choice.forwards, "pass", "passes"), s->split, clock_s() - begin,
                     choice_loss(&choice, sub));
        choice_close(&choice);
    }
    memory_free(x.scores);
    if (status == 0 && extract_has_target(s)) {
        struct buffer line = {0};
        submodel_target_print(&line, sub, model, &x.top, &s->target, x.choice != NULL);
        log_info("%s", line.data);
        buffer_release(&line);
    }
    return status;
}

/* ---- Memory estimate of the passes over data, and of the comparison ---- */

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct extract_settings *s = context;
    const struct heldout_pass pass = pass_of(s);
    struct model model;
    (void)out;
    if (model_load(&model, meta, s->from, DTYPE_OTHER, false))
        return -1;
    const struct submodel_options whole = {0}; /* the largest that can be chosen */
    int status = is_given(s->data) ? heldout_dry_run(&model, NULL, &pass) : 0;
    if (status == 0)
        status = proof_dry_run(&model, &whole, s->from);
    model_close(&model);
    return status;
}

/* ---- Extraction ---- */

static void log_sizes(const struct model_config *whole, const struct submodel *sub, double share, const char *on)
{
    log_info("kept %lld of %lld %s, %lld of %lld %s, top-%lld of %lld: %.2f of the parameters; logits equal "
             "bit for bit %s",
             (long long)sub->layer_count, (long long)whole->layers, plural(whole->layers, "layer", "layers"),
             (long long)sub->expert_count, (long long)whole->experts, plural(whole->experts, "expert", "experts"),
             (long long)sub->topk, (long long)whole->topk, share, on);
}

/* Closes the model. */
static int write_extracted(struct model *model, const struct submodel *sub, const char *from, const char *out)
{
    struct model extracted;
    struct model_config whole = model->config;
    i64 all = weights_parameters(&model->weights), kept = 0;
    struct buffer on = {0};
    int status = proof_extract(&extracted, &on, model, sub, from, out);
    if (status == 0) {
        kept = weights_parameters(&extracted.weights);
        model_close(&extracted);
        status = copy_tokenizers(out, from);
    }
    if (status == 0)
        status = loss_weights_copy(out, from) || taught_copy(out, from) ? -1 : 0;
    if (status == 0)
        log_sizes(&whole, sub, (double)kept / (double)all, on.data);
    buffer_release(&on);
    return status;
}

/* Cuts into a folder below the stage's, whose model is trained on from there. Closes the model. */
static int write_repaired(struct model *model, const struct submodel *sub, const struct extract_settings *s,
                          const struct stage *stage)
{
    char *cut = path_join(stage->out, "cut");
    struct stage own = *stage;
    own.dtype = own.dtype == DTYPE_OTHER ? model->weights.dtype : own.dtype;
    int status = directory_remove(cut);
    status = status || directory_make(cut) ? -1 : 0;
    if (status)
        model_close(model);
    else
        status = write_extracted(model, sub, s->from, cut);
    if (status == 0)
        status = repair_run(&s->repair, s->from, cut, s->data, &own);
    if (status == 0)
        status = directory_remove(cut);
    memory_free(cut);
    return status;
}

/* name: NULL, or that of the sub-model, which is then not written. */
static int extract(const struct extract_settings *settings, const struct stage *stage, const char *name)
{
    struct device *device = stage->device;
    static const struct reduction reductions[] = {{"length"}, {0}};
    struct extract_settings s = *settings;
    const struct dry_run check = {
        s.from, run, &s, SMALLER_MODEL, &s, extract_table, is_given(s.data) ? reductions : NULL};
    struct model model;
    struct submodel sub;
    struct arena arena;
    if (extract_check_settings(settings) || repair_check(&s.repair, s.from, s.data) || dry_run_check(&check, device) ||
        model_load(&model, device, s.from, DTYPE_OTHER, false))
        return -1;
    arena_open(&arena, 64 << 20);
    int status = choose_submodel(&sub, &arena, settings, &model);
    if (status == 0 && !name)
        status = s.repair.steps ? write_repaired(&model, &sub, &s, stage)
                                : write_extracted(&model, &sub, s.from, stage->out);
    else {
        status = status == 0 ? submodel_name_save(s.from, name, &sub, &model.config) : status;
        model_close(&model);
    }
    arena_close(&arena);
    return status;
}

int extract_directory(const struct extract_settings *settings, const char *out, struct device *device)
{
    const struct stage stage = {.name = "extract",
                                .out = out,
                                .seed = 1,
                                .recipe_seed = 1,
                                .device = device,
                                .dtype = DTYPE_OTHER,
                                .ranks = parallel_alone()};
    return extract(settings, &stage, NULL);
}

int extract_name(const struct extract_settings *settings, const char *name, struct device *device)
{
    if (settings->repair.steps)
        return error_usage("repair: a name keeps no weights: expected -o DIR in place of --name %s, or no --repair",
                           name);
    return extract(settings, &(struct stage){.device = device}, name);
}

int extract_stage(const void *settings, const struct stage *stage)
{
    return extract(settings, stage, NULL);
}
