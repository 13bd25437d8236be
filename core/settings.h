/* Settings: each folder owns a table of keys; parsing, --help, documentation and the copy stored with a run come from
 * it.
 *
 *   struct pretrain_settings { i64 steps; double lr; ... };
 *   static const struct setting pretrain_table[] = {
 *       SETTING(struct pretrain_settings, steps, "steps", INTEGER, "1000", 1, 1e9, NULL, "optimizer steps"),
 *       SETTING(struct pretrain_settings, lr, "optimizer.lr", NUMBER, "1e-3", 0, 10, NULL, "peak learning rate"),
 *       {0}};
 *
 * A key with dots is a nested mapping in YAML ({optimizer: {lr: 1e-3}}). Unknown keys, wrong types and values out of
 * range are errors of usage with path, line and nearest known key. */
#ifndef WEFT_SETTINGS_H
#define WEFT_SETTINGS_H
#include "core/core.h"

enum setting_type {
    SETTING_INTEGER,    /* i64; 1_000, 1e3, 64k (1024s), 2M are accepted */
    SETTING_NUMBER,     /* double */
    SETTING_BOOL,       /* bool: true, false */
    SETTING_STRING,     /* char * */
    SETTING_CHOICE,     /* int: index into `choices`, "a|b|c" */
    SETTING_INTEGERS,   /* struct integer_list: [1, 2, 3] or "0-3,6" */
    SETTING_NUMBERS,    /* struct number_list */
    SETTING_STRINGS,    /* struct string_list: a single scalar is a list of one */
    SETTING_SCHEDULE,   /* struct schedule: a number, or [[step, value], ...] */
    SETTING_REFERENCE,  /* char *: another stage's name, optionally /part, or a path beginning with / ./ ../ */
    SETTING_REFERENCES, /* char *: one of these or a list of them, a line each */
    SETTING_SOURCES,    /* struct source_list: the same, or {NAME: {data: references, share: 3, ...}, ...} */
};
struct integer_list {
    i64 *values;
    i64 count;
};
struct number_list {
    double *values;
    i64 count;
};
struct string_list {
    char **values;
    i64 count;
};
/* Piecewise: value i holds from step i on; `linear` interpolates between points (written {points: [[s, v], ...],
 * linear: true}). */
struct schedule {
    i64 *steps;
    double *values;
    i64 count;
    bool linear;
};
/* What is mixed: `share`, of each step's rows, or `weight`, of what the source has; one of them over steps, or none. */
struct data_source {
    char *name, *data; /* data: references, a line each */
    struct schedule share, weight;
    double epochs; /* at most so many; 0: no end */
};
struct source_list {
    char *all; /* references of all sources, a line each */
    struct data_source *values;
    i64 count; /* 0: `all` without a name */
};
double schedule_at(const struct schedule *schedule, i64 step);

struct setting {
    const char *key;
    enum setting_type type;
    size_t offset; /* into the caller's struct */
    /* default, as YAML text; NULL: required; "" for SETTING_STRING/REFERENCE/lists: none (NULL/empty) */
    const char *fallback;
    double low, high;    /* range for numbers, list members and schedule values; both 0: any */
    const char *choices; /* SETTING_CHOICE: "a|b|c" */
    const char *help;    /* one line with unit */
};
/* A row of a table whose values are members of `struct_type`; type without its SETTING_. */
#define SETTING(struct_type, member, key, type, fallback, low, high, choices, help)                                    \
    {                                                                                                                  \
        key, SETTING_##type, offsetof(struct_type, member), fallback, low, high, choices, help                         \
    }

/* YAML documents (libyaml), kept with their marks. Refused when loading, so that walking a document is safe: more than
 * one document, the same key twice, keys that are no scalars, aliases inside their own anchor, documents that aliases
 * blow up. Plain `null`, `~` and nothing at all are the scalar "". Every function takes a NULL node as an absent one.
 */
#define yaml_free weft_yaml_free /* libyaml has a function of that name inside */
struct yaml;                     /* a document */
struct yaml_node;                /* a node of it, borrowed */
struct yaml *yaml_load(const char *path);
struct yaml *yaml_parse(const char *text, i64 length, const char *origin);
void yaml_free(struct yaml *document);
const struct yaml_node *yaml_root(const struct yaml *document);
bool yaml_is_mapping(const struct yaml_node *node);
bool yaml_is_sequence(const struct yaml_node *node);
const char *yaml_scalar(const struct yaml_node *node); /* NULL if it is none */
i64 yaml_count(const struct yaml_node *node);
const char *yaml_key(const struct yaml_node *mapping, i64 index);
const struct yaml_node *yaml_value(const struct yaml_node *node, i64 index); /* of a mapping or sequence */
const struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key);
const char *yaml_where(const struct yaml_node *node);                   /* "PATH:LINE", borrowed */
const char *yaml_key_where(const struct yaml_node *mapping, i64 index); /* the same of a key */

/* An override from the command line: key (dots) and value as YAML text. */
struct setting_override {
    const char *key, *value;
};

/* Fills `out` (zeroed by the caller) from defaults, then the mapping (may be NULL), then overrides. `ignored` names
 * keys of the mapping that belong to someone else (NULL-terminated; e.g. "kind"). A key under which the table has
 * dotted keys must be a mapping. -1 with message on the first error. */
int settings_read(void *out, const struct setting *table, const struct yaml_node *mapping, const char *const *ignored,
                  const struct setting_override *overrides, i64 override_count);
void settings_release(void *values, const struct setting *table);
/* The references of a setting, a line each: text number `index` of it, which may be replaced; NULL: it has no more.
 * setting_lines_done follows once they are. */
char **setting_lines(void *values, const struct setting *setting, i64 index);
void setting_lines_done(void *values, const struct setting *setting);
/* Resolved values, in table order, as a nested JSON object: what is stored and hashed. */
struct json;
struct json *settings_to_json(const void *values, const struct setting *table);
/* The same of the settings that have a default, alone; bytes: of the struct. */
struct json *settings_defaults(const struct setting *table, i64 bytes);
/* key, type, default, range, help */
void settings_help(struct text *out, const struct setting *table, const char *indent);
#endif
