#include "data/curate/language.h"
#include "data/curate/curate.h"

#include <libexttextcat/fingerprint.h>

#include <limits.h>
#include <string.h>

/* A longer text is sampled: RUNS evenly spaced runs of RUN_CHARS characters. */
enum { RUNS = 4, RUN_CHARS = 1024, RANKS = 400 /* profile length of libexttextcat */ };
static const char folder[] = WEFT_LANGUAGES, ending[] = ".lm";

struct profile {
    char *name;
    void *ranks; /* owned by libexttextcat (fp_Init) */
    bool wanted;
};
struct languages {
    struct profile *profiles;
    i64 count;
};

/* ---- Profiles ---- */

/* profile: its name or its file. */
static bool is_named(const char *profile, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(profile, name, length) != 0)
        return false;
    return profile[length] == 0 || profile[length] == '-' || strcmp(profile + length, ending) == 0;
}

static int read_profile(struct languages *l, const char *file, const struct string_list *wanted)
{
    struct profile *p = &l->profiles[l->count++];
    char *path = path_join(folder, file);
    *p = (struct profile){.name = string_format("%.*s", (int)(strlen(file) - strlen(ending)), file)};
    p->ranks = fp_Init(p->name);
    for (i64 i = 0; i < wanted->count; i++)
        p->wanted |= is_named(p->name, wanted->values[i]);
    int status = fp_Read(p->ranks, path, RANKS) ? 0 : error_set("%s: cannot be read as a profile", path);
    memory_free(path);
    return status;
}

static bool is_profile(const char *file)
{
    size_t length = strlen(file), end = strlen(ending);
    return length > end && strcmp(file + length - end, ending) == 0;
}

static int check_wanted(char **files, i64 count, const struct string_list *wanted)
{
    i64 profiles = 0;
    for (i64 k = 0; k < count; k++)
        profiles += is_profile(files[k]);
    for (i64 i = 0; i < wanted->count; i++) {
        bool found = false;
        for (i64 k = 0; k < count; k++)
            found |= is_profile(files[k]) && is_named(files[k], wanted->values[i]);
        if (!found)
            return error_usage("filter.languages: \"%s\" is none of the %lld %s in %s: expected names such as "
                               "en, de, zh or zh-Hans, one for each file %s",
                               wanted->values[i], (long long)profiles, plural(profiles, "profile", "profiles"), folder,
                               ending);
    }
    return 0;
}

int languages_check(const struct string_list *wanted)
{
    char **files;
    i64 count;
    if (!file_is_directory(folder) || directory_list(&files, &count, folder) < 0)
        return 0;
    int status = check_wanted(files, count, wanted);
    string_list_free(files, count);
    return status;
}

struct languages *languages_open(const struct string_list *wanted)
{
    char **files;
    i64 count;
    if (directory_list(&files, &count, folder) < 0)
        return error_set("filter.languages: no profiles in %s: install libexttextcat-data", folder), NULL;
    struct languages *l = memory_alloc(sizeof *l);
    l->profiles = memory_alloc(max_i64(1, count) * (i64)sizeof *l->profiles);
    int status = check_wanted(files, count, wanted);
    for (i64 i = 0; i < count && status == 0; i++)
        status = is_profile(files[i]) ? read_profile(l, files[i], wanted) : 0;
    string_list_free(files, count);
    if (status == 0)
        return l;
    languages_close(l);
    return NULL;
}

void languages_close(struct languages *l)
{
    if (!l)
        return;
    for (i64 i = 0; i < l->count; i++) {
        fp_Done(l->profiles[i].ranks);
        memory_free(l->profiles[i].name);
    }
    memory_free(l->profiles);
    memory_free(l);
}

/* ---- Texts ---- */

/* Appends `count` characters from character `first` on, and a space. */
static void add_run(struct buffer *out, const struct buffer *text, i64 first, i64 count)
{
    i64 begin = text_at_char(text->data, text->length, first);
    i64 bytes = text_at_char(text->data + begin, text->length - begin, count);
    buffer_append(out, text->data + begin, bytes);
    buffer_append(out, " ", 1);
}

/* Extracts the text to compare: letters of the main script, sampled if long. */
static void sample_text(struct buffer *out, const char *text, i64 length)
{
    struct buffer letters = {0};
    script_letters_of_main(&letters, text, length);
    i64 chars = text_chars(letters.data, letters.length);
    if (chars <= RUNS * RUN_CHARS)
        buffer_append(out, letters.data, letters.length);
    for (i64 i = 0; i < RUNS && chars > RUNS * RUN_CHARS; i++)
        add_run(out, &letters, i * (chars - RUN_CHARS) / (RUNS - 1), RUN_CHARS);
    buffer_release(&letters);
}

double languages_nearness(const struct languages *l, const char *text, i64 length)
{
    struct buffer letters = {0};
    void *ranks = fp_Init(NULL);
    int nearest = INT_MAX, wanted = INT_MAX; /* distances */
    sample_text(&letters, text, length);
    bool any = letters.length && fp_Create(ranks, letters.data, (uint4)letters.length, RANKS);
    for (i64 i = 0; any && i < l->count; i++) {
        int distance = fp_Compare(l->profiles[i].ranks, ranks, INT_MAX);
        nearest = distance < nearest ? distance : nearest;
        wanted = l->profiles[i].wanted && distance < wanted ? distance : wanted;
    }
    fp_Done(ranks);
    buffer_release(&letters);
    return nearest == wanted ? 1 : (double)nearest / (double)wanted;
}
