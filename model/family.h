/* A family of models is a table (families/NAME.c): what config.json, safetensors and GGUF of other
 * software call the numbers (numbers.h) and the weights of the backbone. config.c and directory.c walk
 * its keys, table.c and gguf.c its weights. All families have the block of model.h: rotary pairs are
 * neighbours, and a router of softmax probabilities. */
#ifndef WEFT_MODEL_FAMILY_H
#define WEFT_MODEL_FAMILY_H
#include "core/json.h"
#include "model/numbers.h"

struct model_config;
enum model_number {
    KEY_END, /* ends a list of keys */
    NUMBER_vocabulary,
#define NUMBER(type, member, ...) NUMBER_##member,
    MODEL_NUMBERS(NUMBER)
#undef NUMBER
        MODEL_NUMBERS_END,
    /* what keys hold besides numbers */
    KEY_FIXED = MODEL_NUMBERS_END,
    KEY_LAST_LAYER,   /* layers - 1; -1 means the same */
    KEY_SHARED_WIDTH, /* of all shared experts of a layer together */
};
enum number_type { NUMBER_IS_INTEGER, NUMBER_IS_NUMBER, NUMBER_IS_BOOL, NUMBER_IS_IDS };
struct number_row {
    const char *name;
    enum number_type type;
    size_t member; /* of struct model_config */
    i64 least, most;
    bool shown;
};
extern const struct number_row model_numbers[MODEL_NUMBERS_END]; /* by enum model_number; row 0 is empty */
static inline void *model_number(const struct model_config *config, enum model_number number)
{
    return (char *)(uintptr_t)config + model_numbers[number].member;
}

enum { REQUIRED = -1, DERIVED = -2, AS_ABOVE = -3 };
struct family_key {
    const char *key; /* "a.b": b in the object a. NULL: the family has none, and the number is always `absent` */
    enum model_number holds;
    /* Value of an absent key. REQUIRED: there is none. DERIVED: by the rule of config.c for this number.
     * AS_ABOVE: what another key gave it. */
    double absent;
    const char *fixed; /* KEY_FIXED: the value, as JSON */
    const char *why;   /* why no other value can be read; NULL: any is taken and ignored. Not for numbers */
    const char *also;  /* another name that is read */
    i64 least;         /* a smaller value is written as this */
    bool omitted;      /* not written where it is 0 or null */
};
enum weight_role {
    ROLE_EMBED,
    ROLE_NORM,
    ROLE_HEAD,
    ROLE_NORM1, /* from here on in each layer */
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_OUT,
    ROLE_NORM2,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_ROUTER,
    ROLE_BIAS,
    ROLE_EXPERT_GATE,
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
    ROLE_SHARED_GATE,
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,
    WEIGHT_ROLES
};
struct family_weight {
    const char *disk, *gguf; /* behind the prefix of a layer; {e} is the expert's number */
    const char *fused;       /* read only: one tensor of all experts, or another name; gate and up as the gate's */
};
enum { FAMILY_KEYS_MOST = 48 };
struct model_family {
    const char *model_type, *architecture;         /* in config.json */
    const char *gguf;                              /* "general.architecture" and prefix of keys; NULL: no GGUF */
    const char *layer;                             /* prefix of the weights of a layer; {l} is its number */
    struct family_key keys[FAMILY_KEYS_MOST];      /* of config.json, in the order in which they are written */
    struct family_key gguf_keys[FAMILY_KEYS_MOST]; /* the same of GGUF */
    /* Without a name for ROLE_BIAS, experts are chosen by their probabilities alone. */
    struct family_weight weights[WEIGHT_ROLES];
};
extern const struct model_family *const model_families[]; /* ends with NULL; the first is that of new models */
/* Keys of every family: those that depend on none, and those of the object "weft", which other software
 * ignores. */
extern const struct family_key shared_keys[], weft_keys[];
const struct model_family *model_family(const struct model_config *config);
/* Sets config->family to the one with this model_type; returns -1 and a message if there is none. */
int model_family_choose(struct model_config *config, const char *model_type, const char *origin);
/* "model.layers.{l}." -> "model.layers.7." */
void family_layer_name(char *out, size_t size, const char *pattern, i64 layer);

/* What is written under a key; NULL: nothing. json_free */
struct json *family_value(const struct family_key *key, const struct model_config *config);
struct json *model_number_json(const struct model_config *config, enum model_number number);

#endif
