/* Named sub-models of a model directory: written by `weft extract --name`, taken as MODEL@NAME. */
#include "core/json.h"
#include "submodels/submodels.h"

#include <string.h>

static char *file_of(const char *directory)
{
    return path_join(directory, "weft/submodels.json");
}

/* "0,2,4" */
static char *list_text(const struct json *list)
{
    struct buffer out = {0};
    for (i64 i = 0; i < json_count(list); i++)
        buffer_printf(&out, "%s%lld", i ? "," : "", (long long)json_integer(json_at(list, i), -1));
    return out.data ? out.data : string_copy("");
}

/* Checks the entry by what the options say of a model without weights. */
static int check_entry(const struct submodel_options *options, const char *directory)
{
    struct device meta;
    struct submodel sub;
    struct arena arena;
    struct model_config config;
    struct model *model = memory_alloc(sizeof *model);
    int status = model_config_load(&config, directory);
    device_open_meta(&meta);
    arena_open(&arena, 64 << 20);
    if (status == 0)
        status = model_open(model, &meta, &config, DTYPE_F32, false, NULL);
    if (status == 0) {
        status = submodel_parse(&sub, &arena, options, model);
        model_close(model);
    }
    arena_close(&arena);
    device_close(&meta);
    memory_free(model);
    return status;
}

static bool is_list_of_integers(const struct json *list)
{
    bool all = json_kind(list) == JSON_ARRAY;
    for (i64 i = 0; all && i < json_count(list); i++)
        all = json_kind(json_at(list, i)) == JSON_INTEGER && json_integer(json_at(list, i), -1) >= 0;
    return all;
}

static bool has_form(const struct json *entry)
{
    const struct json *experts = json_get(entry, "experts");
    bool form = json_kind(entry) == JSON_OBJECT && is_list_of_integers(json_get(entry, "layers")) &&
                json_kind(json_get(entry, "topk")) == JSON_INTEGER &&
                (!experts || json_kind(experts) == JSON_NULL || json_kind(experts) == JSON_ARRAY);
    for (i64 i = 0; form && json_kind(experts) == JSON_ARRAY && i < json_count(experts); i++)
        form = is_list_of_integers(json_at(experts, i));
    return form;
}

static int read_entry(struct submodel_name *out, const struct json *entry, const char *directory)
{
    const struct json *experts = json_get(entry, "experts");
    struct buffer lists = {0};
    if (!has_form(entry))
        return error_set("expected {\"layers\": [0, 2, ...], \"experts\": [[0, 3, ...], ...] or null, \"topk\": 2}");
    if (json_kind(experts) == JSON_ARRAY)
        json_print(&lists, experts, 0);
    out->layers = list_text(json_get(entry, "layers"));
    /* A list of one layer would be taken for their number. */
    if (json_count(json_get(entry, "layers")) == 1) {
        char *range = string_format("%s-%s", out->layers, out->layers);
        memory_free(out->layers);
        out->layers = range;
    }
    out->experts = lists.data;
    out->topk = json_integer(json_get(entry, "topk"), 0) > 0
                    ? string_format("%lld", (long long)json_integer(json_get(entry, "topk"), 0))
                    : NULL;
    out->options = (struct submodel_options){out->layers, out->experts, out->topk};
    return check_entry(&out->options, directory);
}

struct json *submodel_names(const char *directory)
{
    char *path = file_of(directory);
    struct json *all = file_exists(path) ? json_load(path) : json_object();
    if (all && json_kind(all) != JSON_OBJECT) {
        error_set("%s: expected an object of sub-models by name", path);
        json_free(all);
        all = NULL;
    }
    memory_free(path);
    return all;
}

int submodel_name_load(struct submodel_name *out, const char *directory, const char *name)
{
    struct json *all = submodel_names(directory);
    const struct json *entry = json_get(all, name);
    struct buffer names = {0};
    int status = all ? 0 : -1;
    *out = (struct submodel_name){.directory = string_copy(directory)};
    struct json_iterator each;
    for (bool more = json_first(&each, all); more; more = json_next(&each, all))
        buffer_printf(&names, "%s%s", names.length ? ", " : "", each.key);
    if (all && !entry)
        status = error_usage("%s@%s: the model has no sub-model of this name: %s%s", directory, name,
                             names.data ? "expected one of " : "`weft extract MODEL --name NAME` makes one",
                             names.data ? names.data : "");
    if (entry && read_entry(out, entry, directory))
        status = error_prefix("%s/weft/submodels.json: %s", directory, name);
    if (status)
        submodel_name_release(out);
    buffer_release(&names);
    json_free(all);
    return status;
}

int submodel_name_open(struct submodel_name *out, const char *text, const struct submodel_options *given)
{
    const char *at = strrchr(text, '@');
    *out = (struct submodel_name){.options = *given};
    if (!at || at == text || file_exists(text)) {
        out->directory = string_copy(text);
        return 0;
    }
    char *directory = string_copy(text);
    directory[at - text] = 0;
    int status = 0;
    if (!file_exists(directory)) {
        out->directory = directory; /* whoever opens it says so */
        strcpy(directory, text);
        return 0;
    }
    if (given->layers || given->experts || given->topk)
        status = error_usage("%s names a sub-model: expected no --layers, --experts or --topk beside it", text);
    if (status == 0)
        status = submodel_name_load(out, directory, at + 1);
    memory_free(directory);
    return status;
}

void submodel_name_release(struct submodel_name *name)
{
    memory_free(name->directory);
    memory_free(name->layers);
    memory_free(name->experts);
    memory_free(name->topk);
    *name = (struct submodel_name){0};
}

static int check_name(const char *name)
{
    static const char *const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return *name && strspn(name, letters) == strlen(name) && strlen(name) < 64
               ? 0
               : error_usage("--name %s: expected 1 to 63 letters, digits, dots, dashes and underscores", name);
}

int submodel_name_save(const char *directory, const char *name, const struct submodel *sub,
                       const struct model_config *c)
{
    struct json *all = check_name(name) ? NULL : submodel_names(directory), *entry = json_object();
    struct json *layers = json_array(), *experts = sub->expert_count < c->experts ? json_array() : json_of_null();
    char *path = file_of(directory);
    int status = all ? 0 : -1;
    if (all && json_get(all, name))
        status = error_usage("--name %s: %s has one of this name: expected another, or remove it there", name, path);
    for (i64 i = 0; i < sub->layer_count; i++)
        json_push(layers, json_of_integer(sub->layer[i]));
    for (i64 layer = 0; layer < c->layers && sub->expert_count < c->experts; layer++) {
        struct json *ids = json_array();
        for (i64 e = 0; layer >= c->first_moe_layer && e < sub->expert_count; e++)
            json_push(ids, json_of_integer(sub->expert[layer] ? sub->expert[layer][e] : e));
        json_push(experts, ids);
    }
    json_set(entry, "layers", layers);
    json_set(entry, "experts", experts);
    json_set(entry, "topk", json_of_integer(sub->topk));
    if (status == 0) {
        char *folder = path_join(directory, "weft");
        json_set(all, name, entry);
        status = directory_make(folder) ? -1 : json_save_sealed(path, all);
        memory_free(folder);
        if (status == 0)
            log_info("%s@%s: written to %s", directory, name, path);
    } else
        json_free(entry);
    json_free(all);
    memory_free(path);
    return status;
}
