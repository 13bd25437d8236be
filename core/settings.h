/* Settings. Each folder owns a table of keys. Parsing, --help, the documentation and the copy
 * stored with a run are all derived from that table.
 *
 *   struct pretrain_settings { i64 steps; double lr; ... };
 *   static const struct setting pretrain_table[] = {
 *       SETTING(struct pretrain_settings, steps, "steps", INTEGER, "1000", 1, 1e9, NULL, "steps"),
 *       SETTING(struct pretrain_settings, lr, "optimizer.lr", NUMBER, "1e-3", 0, 1, NULL, "peak"),
 *       {0}};
 *
 * A dotted key is a nested mapping in YAML ({optimizer: {lr: 1e-3}}). Unknown keys, wrong types and
 * values out of range are usage errors, with path, line and the nearest known key.
 *
 * The caller owns the filled struct and frees its strings and lists with settings_release. */
#ifndef WEFT_SETTINGS_H
#define WEFT_SETTINGS_H
#include "core/core.h"

enum setting_type {
    SETTING_INTEGER,    /* i64; accepts 1_000, 1e3, 64k (x 1024), 2M */
    SETTING_NUMBER,     /* double */
    SETTING_BOOL,       /* bool: true, false */
    SETTING_STRING,     /* char * */
    SETTING_CHOICE,     /* int: index into `choices`, "a|b|c" */
    SETTING_INTEGERS,   /* struct integer_list: [1, 2, 3] or "0-3,6" */
    SETTING_NUMBERS,    /* struct number_list */
    SETTING_STRINGS,    /* struct string_list: a single scalar is a list of one */
    SETTING_SCHEDULE,   /* struct schedule: a number, or [[step, value], ...] */
    SETTING_REFERENCE,  /* char *: name of another stage, optionally /part; or a path that begins with / ./ ../ */
    SETTING_REFERENCES, /* char *: one reference or a list of them, stored one per line */
    SETTING_SIZES,      /* struct size_list: [{a: 1, b: 2}, ...], integers whose names are `choices`, "a|b" */
    SETTING_SOURCES,    /* struct source_list: references, or {NAME: {data: references, share: 3, ...}, ...} */
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
struct size_list {
    i64 *values; /* [count, names]; 0: not given */
    i64 count;
};
/* Piecewise-constant schedule: value i holds from step i on. `linear` interpolates between the
 * points; YAML: {points: [[s, v], ...], linear: true}. */
struct schedule {
    i64 *steps;
    double *values;
    i64 count;
    bool linear;
};
/* Initializer of a schedule with one value. */
#define SCHEDULE_CONSTANT(value)                                                                                       \
    {                                                                                                                  \
        (i64[]){0}, (double[]){value}, 1, false                                                                        \
    }
/* One component of the data mixture. At most one of two schedules is set: `share`, its fraction of
 * each step's rows, or `weight`, a multiplier on its natural amount of data. */
struct data_source {
    char *name, *data; /* data: references, one per line */
    struct schedule share, weight;
    double epochs; /* upper bound; 0: unlimited */
};
struct source_list {
    char *all; /* references of all sources, one per line */
    struct data_source *values;
    i64 count; /* 0: a single unnamed source, `all` */
};
double schedule_at(const struct schedule *schedule, i64 step);

struct setting {
    const char *key;
    enum setting_type type;
    size_t offset; /* offset of the member in the caller's struct */
    /* Default as YAML text. NULL: required. "" for strings, references and lists: none (NULL or
     * empty). */
    const char *fallback;
    double low, high;    /* valid range of numbers, list members and schedule values; both 0: any */
    const char *choices; /* SETTING_CHOICE, SETTING_SIZES: "a|b|c" */
    /* One line with unit. NULL: a retired setting, which has a default and no effect. It is still
     * read, stored and hashed, so old recipes are taken and finished stages are recognized. */
    const char *help;
};
/* One row of a table. `member` belongs to `struct_type`; `type` omits the SETTING_ prefix. */
#define SETTING(struct_type, member, key, type, fallback, low, high, choices, help)                                    \
    {                                                                                                                  \
        key, SETTING_##type, offsetof(struct_type, member), fallback, low, high, choices, help                         \
    }

int setting_choice(const char *choices, const char *text); /* index of the text in "a|b|c"; -1: none, or NULL */

/* YAML documents, parsed by libyaml, with source positions.
 *
 * The loader rejects documents that would be unsafe to walk: more than one document, duplicate
 * keys, keys that are not scalars, aliases inside their own anchor, and alias expansions that are
 * too large. Plain `null`, `~` and an empty value become the scalar "". Every function accepts a
 * NULL node and treats it as absent. */
#define yaml_free weft_yaml_free /* libyaml has an internal function of that name */
struct yaml;                     /* a document */
struct yaml_node;                /* a node; borrowed from its document */
struct yaml *yaml_load(const char *path);
struct yaml *yaml_parse(const char *text, i64 length, const char *origin);
struct yaml *yaml_of_text(const char *text, const char *origin); /* one scalar, whose characters mean nothing */
void yaml_free(struct yaml *document);
const struct yaml_node *yaml_root(const struct yaml *document);
bool yaml_is_mapping(const struct yaml_node *node);
bool yaml_is_sequence(const struct yaml_node *node);
const char *yaml_scalar(const struct yaml_node *node); /* NULL if the node is not a scalar */
i64 yaml_count(const struct yaml_node *node);
const char *yaml_key(const struct yaml_node *mapping, i64 index);
const struct yaml_node *yaml_value(const struct yaml_node *node, i64 index); /* mapping value or sequence item */
const struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key);
const char *yaml_where(const struct yaml_node *node);                   /* "PATH:LINE", borrowed */
const char *yaml_key_where(const struct yaml_node *mapping, i64 index); /* position of a key */

/* An override: a dotted key and its value, a node of a file or what the shell passed. Of the latter,
 * `[` and `{` begin a YAML list or mapping, unless the setting is a SETTING_STRING. All other values are
 * plain texts: no character is special in them, and `null` and quotes mean themselves. */
struct setting_override {
    const char *key, *value;
    const struct yaml_node *node; /* NULL: `value` */
    const char *origin;           /* of `value`, for messages; NULL: "command line" */
};

/* Fills `out` (zeroed by the caller) from the defaults, then from the mapping (may be NULL), then
 * from the overrides. `ignored` lists keys of the mapping that other code reads (NULL-terminated;
 * e.g. "kind"). A key that is a prefix of dotted keys must hold a mapping. Returns -1 and a message
 * at the first error. */
int settings_read(void *out, const struct setting *table, const struct yaml_node *mapping, const char *const *ignored,
                  const struct setting_override *overrides, i64 override_count);
void settings_release(void *values, const struct setting *table);
/* Iterates over the reference strings of a setting (one reference per line). Returns the address of
 * string `index`, which the caller may replace, or NULL past the last. Call setting_lines_done
 * after replacing any. */
char **setting_lines(void *values, const struct setting *setting, i64 index);
void setting_lines_done(void *values, const struct setting *setting);
/* The resolved values, in table order, as a nested JSON object. A run stores and hashes this
 * object. */
struct json;
struct json *settings_to_json(const void *values, const struct setting *table);
/* The same object with only the settings that have a default, at their defaults. `bytes`: size of
 * the struct. */
struct json *settings_defaults(const struct setting *table, i64 bytes);
/* Copies the values of retired settings from `now` to `was`, two objects of settings_to_json. */
void settings_equate_retired(struct json *was, const struct json *now, const struct setting *table);
/* Appends one line per setting: key, help, type, range, default. */
void settings_help(struct buffer *out, const struct setting *table, const char *indent);
#endif
