/* Turns settings into rules and loads the data they need before the first sample. */
#include "data/curate/curate_inside.h"
#include "data/shards/shards.h"

#include <string.h>

static bool is_given(const char *text)
{
    return text && *text;
}

static bool filters_anything(const struct curate_settings *s)
{
    return s->chars_least || s->chars_most || s->scripts.count || s->languages.count || s->personal || s->duplicates ||
           is_given(s->seen) || is_given(s->against) || s->caption_times || s->side_least || s->aspect_most > 0 ||
           s->dark > 0 || s->silence_db < 0;
}

static int read_scripts(struct curation *c)
{
    for (i64 i = 0; i < c->s->scripts.count; i++) {
        int script = script_named(c->s->scripts.values[i]);
        if (script < 0)
            return error_usage("filter.scripts: \"%s\" is none: expected latin, greek, cyrillic, armenian, hebrew, "
                               "arabic, devanagari, bengali, tamil, thai, georgian, hangul, kana or han",
                               c->s->scripts.values[i]);
        c->scripts |= (u64)1 << script;
    }
    return 0;
}

int curate_check_settings(const struct curate_settings *settings)
{
    struct curation c = {.s = settings};
    if (is_given(settings->seen) && !curation_has_keys(&c))
        return error_usage("filter.seen needs a rule that uses it: expected filter.duplicates or filter.caption_times "
                           "too");
    return read_scripts(&c) < 0 ? -1 : languages_check(&settings->languages);
}

int curate_check_languages(const struct curate_settings *settings)
{
    struct languages *l = settings->languages.count ? languages_open(&settings->languages) : NULL;
    languages_close(l);
    return settings->languages.count && !l ? -1 : 0;
}

bool curation_has_keys(const struct curation *c)
{
    return c && (c->s->duplicates || c->s->caption_times);
}

static int read_seen(struct curation *c, const char *folder)
{
    struct file_view file;
    struct key_entry entry;
    const u8 *keys;
    if (key_file_open(&file, folder) < 0)
        return -1;
    for (i64 at = 0; key_entry_next(&entry, &keys, &file, &at);)
        curation_add_keys(c, &entry, keys);
    file_unmap(&file);
    return 0;
}

static int open_seen(struct curation *c)
{
    struct string_list folders = {0};
    if (!is_given(c->s->seen))
        return 0;
    int status = shard_folders_list(&folders, c->s->seen);
    for (i64 i = 0; i < folders.count && status == 0; i++)
        status = read_seen(c, folders.values[i]);
    string_list_free(folders.values, folders.count);
    return status < 0 ? error_prefix("filter.seen") : 0;
}

static int open_against(struct curation *c)
{
    if (!is_given(c->s->against))
        return 0;
    return run_set_read(&c->against, c->s->against, c->s->against_words) < 0 ? error_prefix("filter.against") : 0;
}

static int open_languages(struct curation *c)
{
    if (c->s->languages.count)
        c->languages = languages_open(&c->s->languages);
    return c->s->languages.count && !c->languages ? -1 : 0;
}

struct curation *curation_open(const struct curate_settings *s, int *status)
{
    *status = 0;
    if (!filters_anything(s))
        return NULL;
    struct curation *c = memory_alloc(sizeof *c);
    c->s = s;
    c->seen = seen_open(s->memory_bytes);
    *status = read_scripts(c) < 0 || open_languages(c) < 0 || open_seen(c) < 0 || open_against(c) < 0 ? -1 : 0;
    if (*status == 0)
        return c;
    curation_close(c);
    return NULL;
}

void curation_close(struct curation *c)
{
    if (!c)
        return;
    for (int rule = 0; rule < CURATE_RULES; rule++)
        for (i64 i = 0; i < EXAMPLES_KEPT; i++) {
            memory_free(c->examples[rule][i].name);
            memory_free(c->examples[rule][i].text);
        }
    seen_close(c->seen);
    buffer_release(&c->log);
    languages_close(c->languages);
    run_set_release(&c->against);
    memory_free(c);
}
