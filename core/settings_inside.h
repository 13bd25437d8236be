/* What the files of settings share. */
#ifndef WEFT_CORE_SETTINGS_INSIDE_H
#define WEFT_CORE_SETTINGS_INSIDE_H
#include "core/settings.h"

/* A value to parse, and the setting that it is for. */
struct settings_source {
    const struct yaml_node *node;
    const struct setting *setting;
    const char *origin; /* set for values that are in no file; NULL: use the node's place */
};

/* ---- settings_values.c: one value of each type ---- */
const char *settings_where(const struct settings_source *source);
int settings_wrong_value(const struct settings_source *source, const char *expected); /* -1 and a message */
bool settings_is_stage_name(const char *text, size_t length);
int settings_read_references(char **out, const struct settings_source *source);
/* The member of a struct of settings, and reading and releasing it. */
void *settings_field(const void *values, const struct setting *setting);
int settings_read_value(void *values, const struct settings_source *source);
void settings_release_value(void *field, enum setting_type type); /* all but sources */
/* The index-th item of "a|b|c" and its length; NULL past the last. */
const char *settings_choice_at(const char *choices, int index, size_t *length);

i64 settings_choice_count(const char *choices);

/* ---- settings_sources.c: the parts of a mixture, each read through a table of its own ---- */
extern const struct setting settings_source_table[];
int settings_read_sources(struct source_list *out, const struct settings_source *source);
void settings_release_sources(struct source_list *list);

/* ---- settings.c ---- */
/* Sets the default of a setting. where: names the place of a required one that is missing. */
int settings_read_default(void *values, const struct setting *setting, const char *where);
#endif
