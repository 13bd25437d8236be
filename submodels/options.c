/* Parses and checks --layers, --experts and --topk. */
#include "core/json.h"
#include "submodels/submodels.h"

#include <stdlib.h>
#include <string.h>

/* Parses ranges such as "0-3,6" into marks[0..bound). Returns -1 with a usage error. */
static int parse_ranges(bool *marks, i64 bound, const char *text, const char *option)
{
    const char *at = text;
    while (*at) {
        char *end;
        i64 first = strtoll(at, &end, 10), last = first;
        if (end == at || first < 0)
            return error_usage("%s %s: expected numbers and ranges such as 0-3,6", option, text);
        if (*end == '-') {
            at = end + 1;
            last = strtoll(at, &end, 10);
            if (end == at)
                return error_usage("%s %s: the range has no end", option, text);
        }
        if (first > last)
            return error_usage("%s %s: %lld-%lld ends before it begins", option, text, (long long)first,
                               (long long)last);
        if (last >= bound)
            return error_usage("%s %s: %lld is beyond the last one, %lld", option, text, (long long)last,
                               (long long)bound - 1);
        for (i64 i = first; i <= last; i++)
            marks[i] = true;
        if (*end == ',')
            end++;
        else if (*end)
            return error_usage("%s %s: unexpected '%c'", option, text, *end);
        at = end;
    }
    return 0;
}

i64 submodel_number(const char *text)
{
    char *end;
    i64 number = text ? strtoll(text, &end, 10) : 0;
    return text && end != text && !*end && number > 0 ? number : 0;
}

static int parse_layers(struct submodel *sub, const char *text, const struct model *model)
{
    const struct model_config *c = &model->config;
    i64 number = submodel_number(text), least = submodel_least_layers(c);
    if (number > c->layers)
        return error_usage("--layers %s: the model has %lld %s", text, (long long)c->layers,
                           plural(c->layers, "layer", "layers"));
    if (number && number < least)
        return error_usage("--layers %s: expected %lld or more: the first, the last and those with heads must stay, "
                           "or a list such as 0-3",
                           text, (long long)least);
    if (number) {
        submodel_keep_layers(sub, c, model_order_layers(model->order, c), number);
        return 0;
    }
    bool marks[LAYERS_MOST] = {false};
    if (parse_ranges(marks, c->layers, text, "--layers"))
        return -1;
    sub->layer_count = 0;
    for (i64 i = 0; i < c->layers; i++)
        if (marks[i])
            sub->layer[sub->layer_count++] = (i32)i;
        else if (layer_has_heads(c, i))
            return error_usage("--layers %s: layer %lld carries a head and must stay", text, (long long)i);
    if (sub->layer_count == 0)
        return error_usage("--layers %s: at least one layer must stay", text);
    return 0;
}

static int same_in_every_layer(struct submodel *sub, struct arena *arena, const struct model_config *c,
                               const char *text)
{
    bool *marks = memory_alloc(c->experts);
    i32 *ids = arena_alloc(arena, c->experts * 4);
    i64 count = 0;
    int status = parse_ranges(marks, c->experts, text, "--experts");
    for (i64 e = 0; e < c->experts; e++)
        if (marks[e])
            ids[count++] = (i32)e;
    memory_free(marks);
    for (i64 layer = c->first_moe_layer; layer < c->layers; layer++)
        sub->expert[layer] = ids;
    sub->expert_count = count;
    return status;
}

static int list_of_layer(struct submodel *sub, struct arena *arena, const struct model_config *c, i64 layer,
                         const struct json *list, const char *path)
{
    i64 n = json_count(list);
    i32 *ids = arena_alloc(arena, max_i64(n, 1) * 4);
    if (layer < c->first_moe_layer)
        return n == 0 ? 0 : error_usage("%s: layer %lld has no experts: expected []", path, (long long)layer);
    for (i64 i = 0; i < n; i++) {
        i64 id = json_integer(json_at(list, i), -1);
        if (id < 0 || id >= c->experts || (i && id <= ids[i - 1]))
            return error_usage("%s: layer %lld, entry %lld: expected ascending expert ids below %lld", path,
                               (long long)layer, (long long)i, (long long)c->experts);
        ids[i] = (i32)id;
    }
    if (layer > c->first_moe_layer && n != sub->expert_count)
        return error_usage("%s: layer %lld keeps %lld %s, earlier ones %lld: the numbers must be equal", path,
                           (long long)layer, (long long)n, plural(n, "expert", "experts"),
                           (long long)sub->expert_count);
    sub->expert[layer] = ids;
    sub->expert_count = n;
    return 0;
}

/* Reads one list per layer of the full model, from a file or from the option itself. Lists of dropped
 * layers are required but ignored. */
static int lists_of_layers(struct submodel *sub, struct arena *arena, const struct model_config *c, const char *text)
{
    const char *path = text[0] == '@' ? text + 1 : "--experts";
    struct json *j = text[0] == '@' ? json_load(path) : json_parse(text, (i64)strlen(text), path);
    int status = 0;
    if (!j)
        return -1;
    if (json_count(j) != c->layers)
        status = error_usage("%s: %lld %s, expected one for each of %lld %s", path, (long long)json_count(j),
                             plural(json_count(j), "list", "lists"), (long long)c->layers,
                             plural(c->layers, "layer", "layers"));
    for (i64 layer = 0; status == 0 && layer < c->layers; layer++)
        status = list_of_layer(sub, arena, c, layer, json_at(j, layer), path);
    json_free(j);
    return status;
}

static int parse_experts(struct submodel *sub, struct arena *arena, const char *text, const struct model *model,
                         const double *scores)
{
    const struct model_config *c = &model->config;
    char *end;
    i64 count = strtoll(text, &end, 10);
    if (c->first_moe_layer == c->layers)
        return error_usage("--experts %s: this model has no experts", text);
    if (strcmp(text, "@") == 0)
        return error_usage("--experts @: expected the name of a file behind it");
    if (text[0] == '@' || text[0] == '[')
        return lists_of_layers(sub, arena, c, text);
    if (*end || end == text)
        return same_in_every_layer(sub, arena, c, text);
    if (count < 1 || count > c->experts)
        return error_usage("--experts %s: expected 1 to %lld", text, (long long)c->experts);
    if (count == c->experts)
        return 0;
    submodel_keep_experts(sub, arena, c, scores, count);
    return 0;
}

/* A top-k above the model's is allowed; submodel_parse compares it with the kept experts. */
static int parse_topk(struct submodel *sub, const char *text, const struct model_config *c)
{
    char *end;
    i64 most = c->first_moe_layer < c->layers ? c->experts : c->topk;
    sub->topk = strtoll(text, &end, 10);
    if (*end || end == text || sub->topk < 1 || sub->topk > most)
        return error_usage("--topk %s: expected 1 to %lld", text, (long long)most);
    return 0;
}

int submodel_parse_by(struct submodel *sub, struct arena *arena, const struct submodel_options *o,
                      const struct model *model, const double *scores)
{
    const struct model_config *c = &model->config;
    submodel_full(sub, c);
    if ((o->layers && parse_layers(sub, o->layers, model)) ||
        (o->experts && parse_experts(sub, arena, o->experts, model, scores)) ||
        (o->topk && parse_topk(sub, o->topk, c)))
        return -1;
    sub->counts = sub->expert_count == c->experts;
    if (sub->expert_count == 0 && c->first_moe_layer < c->layers)
        return error_usage("--experts %s: at least one expert must stay", o->experts);
    return submodel_check(sub, c);
}

int submodel_parse(struct submodel *sub, struct arena *arena, const struct submodel_options *o,
                   const struct model *model)
{
    i64 kept = submodel_number(o->experts);
    double *use = memory_alloc(model_use_count(&model->config) * (i64)sizeof *use);
    model_ranking(use, model);
    int status = submodel_parse_by(sub, arena, o, model, use);
    memory_free(use);
    if (status == 0 && kept && kept < model->config.experts && !model_has_use(model) &&
        model->device->backend != BACKEND_META)
        return error_usage("--experts %s: the model does not count how often its experts are used: expected a list, or "
                           "`weft extract --data DIR`, which measures them",
                           o->experts);
    return status;
}

int submodel_check(const struct submodel *sub, const struct model_config *c)
{
    if (sub->expert_count < sub->topk && c->first_moe_layer < c->layers)
        return error_usage("--experts keeps %lld %s, fewer than top-k %lld: add --topk %lld or keep more",
                           (long long)sub->expert_count, plural(sub->expert_count, "expert", "experts"),
                           (long long)sub->topk, (long long)sub->expert_count);
    return 0;
}

struct json *submodel_to_json(const struct submodel *sub, const struct model_config *c)
{
    struct json *j = json_object(), *layers = json_array();
    for (i64 i = 0; i < sub->layer_count; i++)
        json_push(layers, json_of_integer(sub->layer[i]));
    json_set(j, "layers", layers);
    json_set(j, "experts", json_of_integer(c->first_moe_layer < c->layers ? sub->expert_count : 0));
    json_set(j, "topk", json_of_integer(sub->topk));
    return j;
}

int submodel_dry_run(struct model *meta, const struct submodel_options *options, const struct heldout_pass *pass)
{
    struct submodel sub;
    struct arena arena;
    arena_open(&arena, 64 << 20);
    int status = submodel_parse(&sub, &arena, options, meta);
    if (status == 0)
        status = heldout_dry_run(meta, &sub, pass);
    arena_close(&arena);
    return status;
}
