/* What is wrong with a recipe before its first stage runs. */
#include "cli/stages.h"
#include "data/prepare/prepare.h"
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

/* Settings of a stage that trains the backbone, beside those of the stages it reads. */
static int check_training(struct recipe *r, const struct recipe_stage *s)
{
    const struct pretrain_settings *settings = s->settings;
    const char *continues = settings->continues && *settings->continues ? settings->continues : NULL;
    bool heldout = settings->heldout && *settings->heldout;
    const struct recipe_stage *other = continues ? recipe_stage_of(r, continues) : NULL;
    if (settings->grid_steps && !heldout && reads_stream(r, settings->data.all))
        return error_usage("grid_steps measures held-out losses: expected `heldout`, finished shards");
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
    if (from > s && from->selected && !recipe_stage_is_done(r, from))
        return error_usage("%s: %s is not an earlier stage: move it before this one", row->key, from->name);
    return 0;
}

static int check_done(struct recipe *r, struct recipe_stage *s, const struct setting *row, char **line)
{
    const struct recipe_stage *from = recipe_stage_of(r, *line);
    (void)s;
    if (!from || from->selected || recipe_stage_is_done(r, from))
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

static int check_stage(struct recipe *r, struct recipe_stage *s, bool begins)
{
    int status = s->kind->check ? s->kind->check(s->settings) : 0;
    if (status == 0 && trains_backbone(s))
        status = check_training(r, s);
    if (status == 0)
        status = check_each(r, s, check_reference);
    if (status == 0 && begins && s->kind->check_machine)
        status = s->kind->check_machine(s->settings);
    return status == 0 && begins ? check_each(r, s, check_done) : status;
}

int recipe_check(struct recipe *r, bool runs)
{
    for (i64 i = 0; i < r->count; i++) {
        struct recipe_stage *s = &r->stages[i];
        bool done = recipe_stage_is_done(r, s);
        if (s->selected && (!done || r->redo) && check_stage(r, s, runs && !done))
            return error_prefix("%s: stage %s", place_of(r, s), s->name);
    }
    return 0;
}
