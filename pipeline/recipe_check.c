/* What is wrong with a recipe before its first stage runs. */
#include "pipeline/pipeline.h"
#include "pipeline/plan_media.h"
#include "data/prepare/prepare.h"
#include "routing/routing.h"
#include "rl/rl.h"
#include "tokenizer_training/tokenizer_training.h"
#include "train/pretrain.h"

#include <string.h>

static const char *place_of(const struct recipe *r, const struct recipe_stage *s)
{
    return yaml_where(yaml_get(yaml_get(yaml_root(r->document), "stages"), s->name));
}

static bool trains_backbone(const struct recipe_stage *s)
{
    return strcmp(s->kind->name, "pretrain") == 0 || strcmp(s->kind->name, "sft") == 0;
}

static bool is_stream(const struct recipe_stage *s)
{
    return strcmp(s->kind->name, "prepare") == 0 && ((const struct prepare_settings *)s->settings)->stream.on;
}

/* True if `data` names a stage whose shards are made during training. */
static bool reads_stream(struct recipe *r, const char *data)
{
    bool found = false;
    for (const char *at = data; at && *at && !found; at += *at == '\n') {
        size_t length = strcspn(at, "\n");
        char *line = string_format("%.*s", (int)length, at);
        const struct recipe_stage *from = recipe_stage_of(r, line);
        found = from && is_stream(from);
        memory_free(line);
        at += length;
    }
    return found;
}

static bool is_given(const char *text)
{
    return text && *text;
}

/* True for lists of experts in a file, which may not be there yet. */
static bool is_file(const char *experts)
{
    return experts && experts[0] == '@';
}

/* The model that a stage begins with or cuts; NULL: a new one, or none. */
static const char *model_of(const struct recipe_stage *s)
{
    if (trains_backbone(s)) {
        const struct pretrain_settings *settings = s->settings;
        return is_given(settings->continues) ? settings->continues : is_given(settings->from) ? settings->from : NULL;
    }
    return strcmp(s->kind->name, "extract") == 0   ? ((const struct extract_settings *)s->settings)->from
           : strcmp(s->kind->name, "routing") == 0 ? ((const struct routing_settings *)s->settings)->from
           : strcmp(s->kind->name, "rl") == 0      ? ((const struct rl_settings *)s->settings)->from
                                                   : NULL;
}

static const struct submodel_options *cut_of(const struct recipe_stage *s)
{
    return strcmp(s->kind->name, "extract") == 0   ? &((const struct extract_settings *)s->settings)->sub
           : strcmp(s->kind->name, "routing") == 0 ? &((const struct routing_settings *)s->settings)->sub
                                                   : NULL;
}

/* True for a stage that finds the sizes of its model by a target. */
static bool chooses_sizes(const struct recipe_stage *s)
{
    return strcmp(s->kind->name, "extract") == 0 && extract_has_target(s->settings);
}

static bool sizes_made(struct model_config *c, struct recipe *r, const struct recipe_stage *s);

/* Sizes of the model that a stage begins with or cuts, as far as the recipe says them. Those of
 * tokenizers are missing, as media may be. False: it is not the model of an earlier stage. */
static bool sizes_read(struct model_config *c, struct recipe *r, const struct recipe_stage *s)
{
    const char *model = model_of(s);
    const struct recipe_stage *from = model ? recipe_stage_of(r, model) : NULL;
    return from && from < s && strcmp(from->name, model) == 0 && sizes_made(c, r, from);
}

static bool sizes_made(struct model_config *c, struct recipe *r, const struct recipe_stage *s)
{
    const struct submodel_options *cut = cut_of(s);
    if (model_of(s))
        return sizes_read(c, r, s) && !chooses_sizes(s) &&
               (!cut || (!is_file(cut->experts) && recipe_cut_config(c, cut) == 0));
    if (!trains_backbone(s))
        return false;
    *c = pretrain_config(s->settings);
    model_config_set_tokens(c, &(struct token_sizes){.vocabulary = 256});
    return model_config_check(c) == 0;
}

static int check_cut(struct recipe *r, const struct recipe_stage *s)
{
    struct model_config c;
    const struct submodel_options *cut = cut_of(s);
    return cut && !is_file(cut->experts) && sizes_read(&c, r, s) ? recipe_cut_config(&c, cut) : 0;
}

/* Settings of a stage that trains the backbone, beside those of the stages it reads. */
static int check_training(struct recipe *r, const struct recipe_stage *s, const struct layout *layout)
{
    struct model_config c;
    const struct pretrain_settings *settings = s->settings;
    const char *continues = is_given(settings->continues) ? settings->continues : NULL;
    const struct recipe_stage *other = continues ? recipe_stage_of(r, continues) : NULL;
    if (layout && !continues && pretrain_check_batches(&settings->loader, layout, 0, settings->steps))
        return -1;
    if (settings->elastic_on && sizes_read(&c, r, s) && elastic_check_settings(&settings->elastic, &c))
        return -1;
    if ((settings->heldout_steps || settings->grid_steps) && !is_given(settings->heldout) &&
        reads_stream(r, settings->data.all))
        return error_usage("%s measures held-out losses: expected `heldout`, finished shards",
                           settings->grid_steps ? "grid_steps" : "heldout_steps");
    if (other && trains_backbone(other) && strcmp(other->name, continues) == 0)
        return pretrain_check_continued(settings, other->settings, other->name);
    return 0;
}

static int check_reference(struct recipe *r, struct recipe_stage *s, const struct setting *row, char **line)
{
    const struct recipe_stage *from = recipe_stage_of(r, *line);
    if (!from)
        return 0;
    if (is_stream(from) && !(trains_backbone(s) && strcmp(row->key, "data") == 0))
        return error_usage("%s: %s prepares shards during training (stream.on): only `data` of pretrain and sft may "
                           "name it",
                           row->key, from->name);
    if (from == s)
        return error_usage("%s: the stage reads itself, which is not an earlier stage", row->key);
    if (from > s && from->selected && !recipe_stage_is_done(from))
        return error_usage("%s: %s is not an earlier stage: move it before this one", row->key, from->name);
    return 0;
}

static int check_done(struct recipe *r, struct recipe_stage *s, const struct setting *row, char **line)
{
    const struct recipe_stage *from = recipe_stage_of(r, *line);
    (void)s;
    if (!from || from->selected || recipe_stage_is_done(from))
        return 0;
    return error_set("%s: it reads %s, which is not done: run that stage first", row->key, *line);
}

static int check_each(struct recipe *r, struct recipe_stage *s,
                      int (*check)(struct recipe *r, struct recipe_stage *s, const struct setting *row, char **line))
{
    int status = 0;
    for (const struct setting *row = s->kind->table; row->key && status == 0; row++)
        status = recipe_each_reference(r, s, row, check);
    return status;
}

/* Settings of a stage that trains a media tokenizer, beside those of the stage it starts from. */
static int check_tokenizer(struct recipe *r, const struct recipe_stage *s)
{
    const char *start = tokenizer_start_of(s->kind->table, s->settings);
    const struct recipe_stage *other = start ? recipe_stage_of(r, start) : NULL;
    if (!other || strcmp(other->name, start) != 0)
        return 0;
    return other->kind == s->kind ? tokenizer_check_started(s->kind->table, s->settings, other->settings, start)
                                  : error_usage("%s is a stage of kind %s: expected one of kind %s to start from",
                                                start, other->kind->name, s->kind->name);
}

static int check_stage(struct recipe *r, struct recipe_stage *s, const struct layout *layout, bool begins)
{
    int status = s->kind->check ? s->kind->check(s->settings) : 0;
    if (status == 0 && trains_backbone(s))
        status = check_training(r, s, layout);
    if (status == 0 && is_media_tokenizer(s))
        status = check_tokenizer(r, s);
    if (status == 0)
        status = check_cut(r, s);
    if (status == 0)
        status = check_each(r, s, check_reference);
    if (status == 0 && begins && s->kind->check_machine)
        status = s->kind->check_machine(s->settings);
    return status == 0 && begins ? check_each(r, s, check_done) : status;
}

int recipe_check(struct recipe *r, const struct layout *layout, bool runs)
{
    for (i64 i = 0; i < r->count; i++) {
        struct recipe_stage *s = &r->stages[i];
        bool done = recipe_stage_is_done(s);
        if (s->selected && (!done || r->redo) && check_stage(r, s, layout, runs && !done))
            return error_prefix("%s: stage %s%s%s", place_of(r, s), s->name, r->arm ? ", arm " : "",
                                r->arm ? r->arm : "");
    }
    return 0;
}
