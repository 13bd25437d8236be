/* The list of families, the table of numbers, and what is written under a key. */
#include "model/family.h"

#include "model/model.h"

#include <stdio.h>
#include <string.h>

/* One line for each file of families/. */
extern const struct model_family family_ernie4_5_moe;
const struct model_family *const model_families[] = {&family_ernie4_5_moe, NULL};

const struct number_row model_numbers[MODEL_NUMBERS_END] = {
    [NUMBER_vocabulary] = {"vocabulary", NUMBER_IS_INTEGER, offsetof(struct model_config, vocabulary), 1, 1 << 24,
                           true},
#define NUMBER(type, member, least, most, shown, name, ...)                                                            \
    [NUMBER_##member] = {name, NUMBER_IS_##type, offsetof(struct model_config, member), least, most, shown},
    MODEL_NUMBERS(NUMBER)
#undef NUMBER
};

#define SCALED "scaled rotary positions are not supported"
/* rope_theta has two keys, because older and newer releases of transformers read different ones. */
const struct family_key shared_keys[] = {
    {"rope_parameters.rope_theta", NUMBER_rope_theta, AS_ABOVE},
    {"rope_parameters.rope_type", KEY_FIXED, .fixed = "\"default\"", .why = SCALED},
    {"rope_scaling", KEY_FIXED, .fixed = "null", .why = SCALED, .omitted = true},
    {0}};
const struct family_key weft_keys[] = {{"weft.vit_layers", NUMBER_vit_layers},
                                       {"weft.vit_width", NUMBER_vit_width},
                                       {"weft.vit_heads", NUMBER_vit_heads},
                                       {"weft.reduced_bias", NUMBER_reduced_bias, .omitted = true},
                                       {"weft.topk_power", NUMBER_topk_power, .omitted = true},
                                       {"weft.routed_scale", NUMBER_routed_scale, .omitted = true},
                                       {"weft.mtp", NUMBER_mtp},
                                       {"weft.mtp_width", NUMBER_mtp_width},
                                       {"weft.time_pairs", NUMBER_t_pairs, DERIVED},
                                       {"weft.zero_init", NUMBER_zero_init},
                                       {"weft.video_window", NUMBER_window},
                                       {0}};

const struct model_family *model_family(const struct model_config *config)
{
    return model_families[config->family];
}

int model_family_choose(struct model_config *config, const char *model_type, const char *origin)
{
    struct buffer known = {0};
    for (i64 i = 0; model_families[i]; i++) {
        if (strcmp(model_families[i]->model_type, model_type) == 0) {
            config->family = i;
            buffer_release(&known);
            return 0;
        }
        buffer_printf(&known, "%s\"%s\"", i ? " or " : "", model_families[i]->model_type);
    }
    error_set("%s: model_type is \"%s\", expected %s: another architecture cannot be read", origin, model_type,
              known.data);
    buffer_release(&known);
    return -1;
}

void family_layer_name(char *out, size_t size, const char *pattern, i64 layer)
{
    const char *mark = strstr(pattern, "{l}");
    if (mark)
        snprintf(out, size, "%.*s%lld%s", (int)(mark - pattern), pattern, (long long)layer, mark + 3);
    else
        snprintf(out, size, "%s", pattern);
}

/* An id, or a list of several. */
static struct json *end_ids(const struct model_config *c)
{
    if (c->more_end_count == 0)
        return json_of_integer(c->eos_id);
    struct json *ids = json_array();
    json_push(ids, json_of_integer(c->eos_id));
    for (i64 i = 0; i < c->more_end_count; i++)
        json_push(ids, json_of_integer(c->more_ends[i]));
    return ids;
}

struct json *model_number_json(const struct model_config *config, enum model_number number)
{
    const void *at = model_number(config, number);
    switch (model_numbers[number].type) {
    case NUMBER_IS_NUMBER:
        return json_of_number(*(const double *)at);
    case NUMBER_IS_BOOL:
        return json_of_bool(*(const bool *)at);
    case NUMBER_IS_IDS:
        return end_ids(config);
    default:
        return json_of_integer(*(const i64 *)at);
    }
}

struct json *family_value(const struct family_key *key, const struct model_config *c)
{
    struct json *value = key->holds == KEY_FIXED          ? json_parse(key->fixed, (i64)strlen(key->fixed), key->key)
                         : key->holds == KEY_LAST_LAYER   ? json_of_integer(c->layers - 1)
                         : key->holds == KEY_SHARED_WIDTH ? json_of_integer(c->shared_experts * c->expert_width)
                                                          : model_number_json(c, key->holds);
    bool below = json_kind(value) == JSON_INTEGER && json_integer(value, 0) < key->least,
         none = key->omitted && json_number(value, 0) == 0 && !json_bool(value, false);
    if (!below && !none)
        return value;
    json_free(value);
    return none ? NULL : json_of_integer(key->least);
}
