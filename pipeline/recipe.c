/* Recipes: reads YAML into checked settings. Every message names file and line. */
#include "pipeline/inputs.h"
#include "pipeline/pipeline.h"
#include "core/json.h"
#include "data/prepare/prepare.h"
#include "data/remote/remote.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MOST = 64, STAGE_LACKS = 1 };
static const char *const kind_key[] = {"kind", NULL};

struct recipe_word { /* parts of STAGE.key=value */
    const char *stage, *key, *value;
    char *memory;
};

static int split_word(struct recipe_word *out, const char *text)
{
    char *copy = string_copy(text), *equals = strchr(copy, '='), *dot = strchr(copy, '.');
    *equals = 0;
    *out = (struct recipe_word){NULL, copy, equals + 1, copy};
    if (dot && dot < equals) {
        *dot = 0;
        out->stage = copy;
        out->key = dot + 1;
    }
    return 0;
}

const struct recipe_key recipe_keys[] = {
    {"run", "FOLDER", "where the run is written"},
    {"seed", "N", "of all random draws, default 1"},
    {"precision", "auto|bf16|fp8|f32", "of the arithmetic, default auto: bf16 where the device has it"},
    {"stages", "{NAME: {kind: KIND, KEY: value, ...}, ...}", "run in this order"},
    {"arms", "{NAME: {STAGE.key: value, ...}, ...}",
     "variants to compare, the first of which is the baseline: each is a run of its own, RUN/NAME, of the stages that "
     "an arm changes and those that read them; all other stages run once"},
    {"seeds", "[N, ...]",
     "in place of seed: a run for each, RUN/ARM/N. The arms of a seed begin with the same weights, see the same data "
     "and draw the same where the arm changes nothing"},
    {"seed_stages", "[STAGE, ...]",
     "stages that have the seeds, beside those that read them; default: the stages of the arms, without arms all"},
    {NULL}};

void recipe_help(struct buffer *out)
{
    buffer_printf(out, "\nkeys of a recipe\n");
    for (const struct recipe_key *k = recipe_keys; k->name; k++)
        buffer_printf(out, "  %-11s  %s (%s)\n", k->name, k->help, k->value);
}

/* A top-level key of the recipe and its location. */
struct head_value {
    const char *text, *where;
};

static struct head_value head_value(const struct recipe *r, const struct yaml_node *root, const char *key,
                                    const char *fallback, const struct recipe_word *words, int count)
{
    const struct yaml_node *node = yaml_get(root, key);
    struct head_value value = {node ? yaml_scalar(node) : fallback, node ? yaml_where(node) : r->path};
    for (int i = 0; i < count; i++)
        if (!words[i].stage && strcmp(words[i].key, key) == 0)
            value = (struct head_value){words[i].value, "command line"};
    return value;
}

/* A key may refine the mapping of an earlier word, as in b.model={width: 64} b.model.heads=2. */
static int check_repeated(const struct recipe_word *words, int count)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++) {
            const char *stage = words[i].stage ? words[i].stage : "", *other = words[k].stage ? words[k].stage : "";
            if (strcmp(stage, other) == 0 && strcmp(words[i].key, words[k].key) == 0)
                return error_usage("command line: %s%s%s is given twice, \"%s\" and \"%s\": expected once", stage,
                                   *stage ? "." : "", words[i].key, words[k].value, words[i].value);
        }
    return 0;
}

static int check_head_words(const struct recipe_word *words, int count)
{
    for (int i = 0; i < count; i++)
        if (!words[i].stage && strcmp(words[i].key, "run") != 0 && strcmp(words[i].key, "seed") != 0 &&
            strcmp(words[i].key, "precision") != 0)
            return error_usage("%s=%s: expected run=, seed=, precision= or STAGE.key=value", words[i].key,
                               words[i].value);
    return 0;
}

int recipe_parse_seed(u64 *out, const char *text)
{
    char *end;
    errno = 0;
    *out = strtoull(text ? text : "", &end, 10);
    return text && *text >= '0' && *text <= '9' && !*end && errno == 0 ? 0 : -1;
}

/* A recipe with `seeds` has no other one. */
static int check_seeds(const struct recipe *r, const struct yaml_node *root, const struct recipe_word *words, int count)
{
    const struct yaml_node *seed = yaml_get(root, "seed");
    if (!r->has_seeds)
        return 0;
    if (seed)
        return error_usage("%s: seed and seeds exclude each other: leave one of them out", yaml_where(seed));
    for (int i = 0; i < count; i++)
        if (!words[i].stage && strcmp(words[i].key, "seed") == 0)
            return error_usage("command line: seed=%s, and the recipe has seeds: --seed N runs one of them",
                               words[i].value);
    return 0;
}

static int read_head(struct recipe *r, const struct yaml_node *root, const struct recipe_word *words, int count)
{
    struct head_value run = head_value(r, root, "run", NULL, words, count),
                      seed = head_value(r, root, "seed", "1", words, count),
                      precision = head_value(r, root, "precision", "auto", words, count);
    if (check_head_words(words, count) || check_seeds(r, root, words, count))
        return -1;
    if (!run.text || !*run.text)
        return error_usage("%s: \"run\" is missing: the folder the run is written to", run.where);
    if (!r->has_seeds && recipe_parse_seed(&r->seed, seed.text))
        return error_usage("%s: seed: expected a whole number from 0, found %s", seed.where,
                           seed.text ? seed.text : "a list or mapping");
    if (!precision.text || (strcmp(precision.text, "auto") && strcmp(precision.text, "bf16") &&
                            strcmp(precision.text, "fp8") && strcmp(precision.text, "f32")))
        return error_usage("%s: precision: expected auto, bf16, fp8 or f32, found %s", precision.where,
                           precision.text ? precision.text : "a list or mapping");
    r->overrides = json_object();
    for (int i = 0; i < count; i++)
        if (!words[i].stage && strcmp(words[i].key, "run") != 0)
            json_set(r->overrides, words[i].key, json_of_null());
    r->root = string_copy(run.text);
    r->precision = string_copy(precision.text);
    return 0;
}

static int check_head_keys(const struct recipe *r, const struct yaml_node *root)
{
    const char *known[WORDS_MOST] = {NULL};
    if (!yaml_is_mapping(root))
        return error_usage("%s: expected a mapping with run, seed and stages", r->path);
    for (i64 k = 0; recipe_keys[k].name; k++)
        known[k] = recipe_keys[k].name;
    for (i64 i = 0; i < yaml_count(root); i++) {
        const char *key = yaml_key(root, i), *near = string_nearest(key, known);
        bool found = false;
        for (int k = 0; known[k]; k++)
            found |= strcmp(known[k], key) == 0;
        if (!found)
            return error_usage("%s: unknown key \"%s\"%s%s; known: run, seed, precision, stages, arms, seeds, "
                               "seed_stages",
                               yaml_where(yaml_value(root, i)), key, near ? ", did you mean " : "", near ? near : "");
    }
    return 0;
}

static int unknown_kind(const struct yaml_node *node, const char *kind)
{
    const char *names[WORDS_MOST];
    int n = 0;
    for (const struct stage_kind *k = stage_kinds; k->name; k++)
        names[n++] = k->name;
    names[n] = NULL;
    const char *near = string_nearest(kind, names);
    return error_usage("%s: there is no stage kind \"%s\"%s%s%s", yaml_where(node), kind,
                       near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* The rest of a key STAGE.key; NULL: it is not of this stage. */
static const char *key_below(const char *key, const char *stage)
{
    size_t length = strlen(stage);
    return strncmp(key, stage, length) == 0 && key[length] == '.' ? key + length + 1 : NULL;
}

bool recipe_keys_overlap(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), less = n < m ? n : m;
    return strncmp(a, b, less) == 0 && (n == m || (n > m ? a[m] : b[n]) == '.');
}

/* The place among an arm's values of one that the word would hide, or that would hide it; -1: none. */
static i64 hidden_value(const struct yaml_node *values, const char *stage, const struct recipe_word *word)
{
    for (i64 i = 0; word->stage && strcmp(word->stage, stage) == 0 && i < yaml_count(values); i++) {
        const char *key = key_below(yaml_key(values, i), stage);
        if (key && recipe_keys_overlap(key, word->key))
            return i;
    }
    return -1;
}

/* Of the arms that run. */
static int check_arm_words(const struct recipe *r, const struct recipe_stage *s, const struct recipe_word *words,
                           int count)
{
    const struct yaml_node *arms = yaml_get(yaml_root(r->document), "arms");
    for (int w = 0; w < count; w++)
        for (i64 a = 0; a < yaml_count(arms); a++) {
            const struct yaml_node *values = yaml_value(arms, a);
            i64 i = hidden_value(values, s->name, &words[w]);
            if (i >= 0 && (!r->only_arm || strcmp(r->only_arm, yaml_key(arms, a)) == 0))
                return error_usage("command line: %s.%s=%s, and the arm %s sets %s (%s): an arm's own keys are changed "
                                   "in the recipe",
                                   s->name, words[w].key, words[w].value, yaml_key(arms, a), yaml_key(values, i),
                                   yaml_key_where(values, i));
        }
    return 0;
}

static int read_stage(struct recipe *r, struct recipe_stage *s, const struct yaml_node *mapping,
                      const struct recipe_word *words, int count)
{
    const struct yaml_node *kind = yaml_is_mapping(mapping) ? yaml_get(mapping, "kind") : NULL;
    i64 n = 0, given;
    if (!kind || !yaml_scalar(kind))
        return error_usage("%s: stage %s has no kind", yaml_where(mapping), s->name);
    s->kind = stage_kind_find(yaml_scalar(kind));
    if (!s->kind)
        return unknown_kind(kind, yaml_scalar(kind));
    struct setting_override *overrides = memory_alloc((WORDS_MOST + yaml_count(r->values)) * (i64)sizeof *overrides);
    for (int i = 0; i < count; i++)
        if (words[i].stage && strcmp(words[i].stage, s->name) == 0 && hidden_value(r->values, s->name, &words[i]) < 0)
            overrides[n++] = (struct setting_override){words[i].key, words[i].value, NULL};
    s->overrides = json_object();
    for (given = n, n = 0; n < given; n++) /* the values follow, as queries of URLs are hidden first */
        json_set(s->overrides, overrides[n].key, json_of_null());
    for (i64 i = 0; i < yaml_count(r->values); i++) {
        const char *key = key_below(yaml_key(r->values, i), s->name);
        if (key)
            overrides[n++] = (struct setting_override){key, NULL, yaml_value(r->values, i)};
    }
    s->settings = memory_alloc((i64)s->kind->settings_bytes);
    int status = check_arm_words(r, s, words, count);
    if (status == 0)
        status = settings_read(s->settings, s->kind->table, mapping, kind_key, overrides, n);
    if (status == 0)
        s->resolved = settings_to_json(s->settings, s->kind->table);
    memory_free(overrides);
    return status;
}

static struct recipe_stage *find_stage(struct recipe *r, const char *name, size_t length)
{
    for (i64 i = 0; i < r->count; i++)
        if (strlen(r->stages[i].name) == length && strncmp(r->stages[i].name, name, length) == 0)
            return &r->stages[i];
    return NULL;
}

static int unknown_stage(struct recipe *r, const char *name)
{
    struct buffer known = {0};
    for (i64 i = 0; i < r->count; i++)
        buffer_printf(&known, " %s", r->stages[i].name);
    error_usage("%s has no stage \"%s\"; its stages:%s", r->path, name, known.data ? known.data : "");
    buffer_release(&known);
    return -1;
}

/* A name must be valid as a folder of the run and before the dot of STAGE.key=value. */
bool recipe_is_name(const char *name)
{
    for (const char *c = name; *c; c++)
        if (!isalnum((u8)*c) && *c != '-' && *c != '_')
            return false;
    return *name != 0;
}

static bool is_path(const char *reference)
{
    return reference[0] == '/' || strncmp(reference, "./", 2) == 0 || strncmp(reference, "../", 3) == 0 ||
           is_address(reference);
}

static int unknown_reference(const struct recipe *r, const char *reference, const char *key, const char *where)
{
    const char **names = memory_alloc((r->count + 1) * (i64)sizeof *names);
    for (i64 i = 0; i < r->count; i++)
        names[i] = r->stages[i].name;
    const char *near = string_nearest(reference, names);
    error_usage(
        "%s: %s: \"%s\" names no stage%s%s%s; a path begins with / ./ or ../, an address with https:// or s3://", where,
        key, reference, near ? ", did you mean \"" : "", near ? near : "", near ? "\"" : "");
    memory_free(names);
    return -1;
}

struct recipe_stage *recipe_stage_of(struct recipe *r, const char *reference)
{
    return is_path(reference) ? NULL : find_stage(r, reference, strcspn(reference, "/"));
}

int recipe_each_reference(struct recipe *r, struct recipe_stage *s, const struct setting *row,
                          int (*visit)(struct recipe *r, struct recipe_stage *s, const struct setting *row,
                                       char **line))
{
    char **lines;
    int status = 0;
    for (i64 i = 0; status == 0 && (lines = setting_lines(s->settings, row, i)); i++) {
        struct buffer out = {0};
        for (const char *at = *lines; status == 0 && at && *at;) {
            size_t length = strcspn(at, "\n");
            char *line = string_format("%.*s", (int)length, at);
            status = visit(r, s, row, &line);
            if (*line)
                buffer_printf(&out, "%s%s", out.length ? "\n" : "", line);
            memory_free(line);
            at += length + (at[length] == '\n');
        }
        if (status == 0 && *lines && **lines) {
            memory_free(*lines);
            *lines = string_copy(out.length ? out.data : "");
        }
        buffer_release(&out);
    }
    setting_lines_done(s->settings, row);
    return status;
}

/* Keeps the query of a URL (a signature) in this process only, out of identities and messages. */
static int hide_query(struct recipe_stage *s, char **line)
{
    char *bare;
    if (address_hide(&bare, *line) < 0)
        return -1;
    s->hides |= strcmp(bare, *line) != 0;
    memory_free(*line);
    *line = bare;
    return 0;
}

static int check_reference(struct recipe *r, struct recipe_stage *s, const struct setting *row, char **line)
{
    if (is_address(*line))
        return hide_query(s, line);
    if (is_path(*line) || find_stage(r, *line, strcspn(*line, "/")))
        return 0;
    const struct yaml_node *node = yaml_get(yaml_get(yaml_get(yaml_root(r->document), "stages"), s->name), row->key);
    for (i64 i = 0; i < yaml_count(r->values); i++) {
        const char *key = key_below(yaml_key(r->values, i), s->name);
        if (key && recipe_keys_overlap(key, row->key))
            return unknown_reference(r, *line, row->key, yaml_where(yaml_value(r->values, i)));
    }
    bool elsewhere = !node || (yaml_scalar(node) && strcmp(yaml_scalar(node), *line) != 0);
    return unknown_reference(r, *line, row->key, elsewhere ? "command line" : yaml_where(node));
}

/* Checks, before the first stage runs, that every reference is a path or a stage of this recipe. */
static int check_references(struct recipe *r, struct recipe_stage *s)
{
    int status = 0;
    for (const struct setting *row = s->kind->table; row->key && status == 0; row++)
        status = recipe_each_reference(r, s, row, check_reference);
    if (s->hides) {
        json_free(s->resolved);
        s->resolved = settings_to_json(s->settings, s->kind->table);
    }
    return status;
}

static int read_stages(struct recipe *r, const struct yaml_node *stages, const struct recipe_word *words, int count)
{
    if (!stages || !yaml_is_mapping(stages) || yaml_count(stages) == 0)
        return error_usage("%s: \"stages\" must be a mapping of at least one stage, {NAME: {kind: ...}, ...}",
                           stages ? yaml_where(stages) : r->path);
    r->count = yaml_count(stages);
    r->stages = memory_alloc(r->count * (i64)sizeof *r->stages);
    for (i64 i = 0; i < r->count; i++) {
        r->stages[i].name = yaml_key(stages, i);
        if (!recipe_is_name(r->stages[i].name))
            return error_usage("%s: \"%s\" is no name for a stage: expected letters, digits, - and _",
                               yaml_key_where(stages, i), r->stages[i].name);
    }
    for (int i = 0; i < count; i++)
        if (words[i].stage && !find_stage(r, words[i].stage, strlen(words[i].stage)))
            return unknown_stage(r, words[i].stage);
    for (i64 i = 0; i < r->count; i++)
        if (read_stage(r, &r->stages[i], yaml_value(stages, i), words, count) || check_references(r, &r->stages[i]))
            return -1;
    return 0;
}

static int select_stages(struct recipe *r, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        struct recipe_stage *s = find_stage(r, names[i], strlen(names[i]));
        if (!s)
            return unknown_stage(r, names[i]);
        s->selected = true;
    }
    for (i64 i = 0; i < r->count; i++)
        r->stages[i].selected |= count == 0;
    return 0;
}

int recipe_open(struct recipe *r, const char *const *words, int word_count)
{
    struct recipe_word overrides[WORDS_MOST];
    const char *names[WORDS_MOST];
    int override_count = 0, name_count = 0, status;
    for (int i = 0; i < word_count && i < WORDS_MOST; i++)
        if (strchr(words[i], '='))
            split_word(&overrides[override_count++], words[i]);
        else
            names[name_count++] = words[i];
    const struct yaml_node *root = yaml_root(r->document);
    status = check_repeated(overrides, override_count);
    if (status == 0)
        status = check_head_keys(r, root);
    if (status == 0)
        status = read_head(r, root, overrides, override_count);
    if (status == 0)
        status = read_stages(r, yaml_get(root, "stages"), overrides, override_count);
    if (status == 0)
        status = select_stages(r, names, name_count);
    for (int i = 0; i < override_count; i++)
        memory_free(overrides[i].memory);
    return status;
}

void recipe_close(struct recipe *r)
{
    for (i64 i = 0; i < r->count; i++) {
        struct recipe_stage *s = &r->stages[i];
        if (s->settings)
            settings_release(s->settings, s->kind->table);
        memory_free(s->settings);
        json_free(s->resolved);
        json_free(s->inputs);
        json_free(s->overrides);
        memory_free(s->skips);
        memory_free(s->home);
    }
    json_free(r->overrides);
    memory_free(r->stages);
    memory_free(r->run);
    memory_free(r->root);
    memory_free(r->precision);
    *r = (struct recipe){0};
}

/* ---- Stages of some kinds ---- */

bool stage_kind_is_in(const struct stage_kind *kind, const char *names)
{
    size_t length = strlen(kind->name);
    for (const char *at = names; *at; at += *at == ',') {
        if (strcspn(at, ",") == length && strncmp(at, kind->name, length) == 0)
            return true;
        at += strcspn(at, ",");
    }
    return false;
}

int stage_kinds_check(const char *names)
{
    struct buffer known = {0};
    for (const char *at = names;; at++) {
        size_t length = strcspn(at, ",");
        const struct stage_kind *k = stage_kinds;
        while (k->name && (strlen(k->name) != length || strncmp(at, k->name, length) != 0))
            k++;
        if (!k->name) {
            for (k = stage_kinds; k->name; k++)
                buffer_printf(&known, "%s%s", known.length ? ", " : "", k->name);
            error_usage("--kinds %s: there is no stage kind \"%.*s\"; the kinds: %s", names, (int)length, at,
                        known.data);
            buffer_release(&known);
            return -1;
        }
        at += length;
        if (!*at)
            return 0;
    }
}

bool recipe_stage_is_done(const struct recipe_stage *s)
{
    char *done = string_format("%s/%s/done.json", s->home, s->name);
    bool is = file_exists(done);
    memory_free(done);
    return is;
}

static int need_stage(struct recipe *r, struct recipe_stage *s, const struct setting *row, char **line)
{
    (void)row;
    struct recipe_stage *from = recipe_stage_of(r, *line);
    if (from && from != s && !from->selected && !recipe_stage_is_done(from))
        from->needed = true;
    return 0;
}

int recipe_select_kinds(struct recipe *r, const char *kinds)
{
    struct buffer needed = {0}, have = {0};
    bool any = false;
    int status = stage_kinds_check(kinds);
    for (i64 i = 0; i < r->count && status == 0; i++) {
        struct recipe_stage *s = &r->stages[i];
        if (s->selected)
            buffer_printf(&have, "%s%s (%s)", have.length ? ", " : "", s->name, s->kind->name);
        s->selected &= stage_kind_is_in(s->kind, kinds);
        any |= s->selected;
    }
    if (status == 0 && !any)
        status = error_usage("%s: no stage of kind %s is chosen; the stages: %s", r->path, kinds,
                             have.data ? have.data : "");
    for (i64 i = 0; i < r->count && status == 0; i++)
        for (const struct setting *row = r->stages[i].kind->table; r->stages[i].selected && row->key; row++)
            recipe_each_reference(r, &r->stages[i], row, need_stage);
    for (i64 i = 0; i < r->count; i++)
        if (r->stages[i].needed)
            buffer_printf(&needed, "%s%s", needed.length ? ", " : "", r->stages[i].name);
    if (status == 0 && needed.length)
        status = error_set("%s: stages of kind %s read stages that are not done: %s. Run those first", r->path, kinds,
                           needed.data);
    buffer_release(&needed);
    buffer_release(&have);
    return status;
}

/* Refuses a folder that holds what another stage made. Older identities have no stage seed. */
static int check_maker(const struct recipe_stage *from, const struct json *identity)
{
    const char *kind = json_string(json_get(identity, "kind"), from->kind->name);
    const char *seed = json_string(json_get(identity, "stage_seed"), NULL);
    char expected[20];
    u64 recipe_seed = (u64)json_integer(json_get(identity, "seed"), 0);
    snprintf(expected, sizeof expected, "%016llx",
             (unsigned long long)hash_bytes(from->name, (i64)strlen(from->name), recipe_seed));
    if (strcmp(kind, from->kind->name) == 0 && (!seed || strcmp(seed, expected) == 0))
        return 0;
    return error_set("%s/%s holds what another stage made, of kind %s: expected the stage %s, of kind %s; restore the "
                     "folder, or rerun that stage (--redo)",
                     from->home, from->name, kind, from->name, from->kind->name);
}

/* Returns 0, -1 and a message, or STAGE_LACKS if the stage was skipped. Its data do not enter the
 * digest: it is without output whatever they hold. */
static int hash_stage_output(struct json *inputs, const struct recipe_stage *from, const char *reference)
{
    char *done = string_format("%s/%s/done.json", from->home, from->name);
    struct json *j = file_exists(done) ? json_load(done) : NULL;
    const char *hash = json_string(json_get(j, "hash"), NULL);
    bool skipped = json_get(j, "skipped") != NULL;
    if (hash && check_maker(from, json_get(j, "identity")))
        hash = NULL;
    else if (hash)
        json_set(inputs, reference, json_of_string(skipped ? "skipped" : hash));
    else if (j || !file_exists(done)) /* else it is damaged, and the message says so */
        error_set("it reads %s, which is not done: run that stage first", reference);
    json_free(j);
    memory_free(done);
    return !hash ? -1 : skipped ? STAGE_LACKS : 0;
}

/* True for a setting that names a tokenizer and may be empty. */
static bool is_optional_tokenizer(const struct recipe_stage *s, const struct setting *row)
{
    return strcmp(s->kind->name, "prepare") == 0 && row->type == SETTING_REFERENCE && row->fallback &&
           *row->fallback == 0;
}

/* Digest of an input; for `prepare`, of its part of the data. */
static char *digest_of(const struct recipe *r, const struct recipe_stage *s, const struct setting *row,
                       const char *path)
{
    i64 part = 0, parts = 0;
    bool shared = strcmp(s->kind->name, "prepare") == 0 && strcmp(row->key, "data") == 0;
    if (shared && prepare_part(&part, &parts, ((const struct prepare_settings *)s->settings)->part) < 0)
        return NULL;
    return input_digest(path, r->root, part, parts);
}

/* Digest of a URL as a finished stage recorded it, so that resuming a run needs no network. NULL:
 * the stage is not done, or did not read the URL. */
static char *digest_when_done(const struct recipe_stage *s, const char *address)
{
    char *path = string_format("%s/%s/done.json", s->home, s->name);
    struct json *done = file_exists(path) ? json_load(path) : NULL;
    const char *digest = json_string(json_get(json_get(json_get(done, "identity"), "inputs"), address), NULL);
    char *copy = digest ? string_copy(digest) : NULL;
    json_free(done);
    memory_free(path);
    return copy;
}

static int hash_path(const struct recipe *r, struct recipe_stage *s, const struct setting *row, const char *path)
{
    if (!is_address(path) && !file_exists(path))
        return error_set("there is no %s: expected a file or folder", path);
    char *digest = is_address(path) && !r->redo ? digest_when_done(s, path) : NULL;
    if (!digest)
        digest = digest_of(r, s, row, path);
    if (digest)
        json_set(s->inputs, path, json_of_string(digest));
    memory_free(digest);
    return digest ? 0 : -1;
}

static int resolve_one(struct recipe *r, struct recipe_stage *s, const struct setting *row, char **reference)
{
    if (is_path(*reference))
        return hash_path(r, s, row, *reference);
    struct recipe_stage *from = find_stage(r, *reference, strcspn(*reference, "/"));
    int status = hash_stage_output(s->inputs, from, *reference);
    if (status < 0)
        return -1;
    if (status == STAGE_LACKS && !is_optional_tokenizer(s, row))
        s->lacks = from->name;
    char *resolved = status == STAGE_LACKS ? string_copy("") : path_join(from->home, *reference);
    memory_free(*reference);
    *reference = resolved;
    return 0;
}

int recipe_resolve(struct recipe *r, struct recipe_stage *s)
{
    json_free(s->inputs);
    s->inputs = json_object();
    s->lacks = NULL;
    for (const struct setting *row = s->kind->table; row->key; row++)
        if (recipe_each_reference(r, s, row, resolve_one))
            return error_prefix("%s: stage %s, %s", r->path, s->name, row->key);
    return 0;
}

/* ---- What a run would skip ---- */

static int note_skipped(struct recipe *r, struct recipe_stage *s, const struct setting *row, char **line)
{
    struct recipe_stage *from = recipe_stage_of(r, *line);
    if (from && from->skips && !s->skips && !is_optional_tokenizer(s, row))
        s->skips = string_format("it reads %s, which is skipped", from->name);
    return 0;
}

/* The lines of a setting with the folders of stages. NULL if one of them is an address or not there. */
static char *existing_lines(struct recipe *r, const char *lines)
{
    struct buffer out = {0};
    bool all = true;
    for (const char *at = lines; *at && all; at += *at == '\n') {
        size_t length = strcspn(at, "\n");
        char *line = string_format("%.*s", (int)length, at),
             *path = is_path(line) ? string_copy(line) : path_join(recipe_stage_of(r, line)->home, line);
        all = !is_address(path) && file_exists(path);
        buffer_printf(&out, "%s%s", out.length ? "\n" : "", path);
        memory_free(line);
        memory_free(path);
        at += length;
    }
    if (all && out.length)
        return out.data;
    buffer_release(&out);
    return NULL;
}

/* Asks the kind, with `data` as it would be resolved. */
static char *reason_absent(struct recipe *r, const struct recipe_stage *s)
{
    const struct setting *row = s->kind->table;
    while (row->key && strcmp(row->key, "data") != 0)
        row++;
    require(row->key, "stages of kind %s may be absent, and read no data", s->kind->name);
    char *settings = memory_alloc((i64)s->kind->settings_bytes);
    memcpy(settings, s->settings, s->kind->settings_bytes);
    char **lines = setting_lines(settings, row, 0), *why = NULL;
    if (row->type == SETTING_SOURCES)
        lines = &((struct source_list *)(void *)(settings + row->offset))->all;
    char *resolved = lines && *lines ? existing_lines(r, *lines) : NULL;
    if (resolved) {
        *lines = resolved;
        why = s->kind->absent(settings);
    }
    memory_free(resolved);
    memory_free(settings);
    return why;
}

void recipe_skips(struct recipe *r)
{
    for (i64 i = 0; i < r->count; i++) {
        struct recipe_stage *s = &r->stages[i];
        for (const struct setting *row = s->kind->table; row->key; row++)
            recipe_each_reference(r, s, row, note_skipped);
        if (!s->skips && s->kind->absent)
            s->skips = reason_absent(r, s);
    }
}
