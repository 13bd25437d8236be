/* The glyphs and their names, from emoji-test.txt (Unicode Technical Standard 51):
 *
 *   # subgroup: food-fruit
 *   1F34E        ; fully-qualified     # (the character) E0.6 red apple */
#include "corpus/corpus.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char list_path[] = "/usr/share/unicode/emoji/emoji-test.txt";

enum { VARIATION = 0xfe0f, REGIONAL_FIRST = 0x1f1e6, REGIONAL_LAST = 0x1f1ff };

/* Subgroups with names that can be the subject of "the ... moves". */
static const char *const nouns[] = {"animal-",
                                    "plant-",
                                    "food-",
                                    "drink",
                                    "dishware",
                                    "transport-ground",
                                    "transport-water",
                                    "transport-air",
                                    "sport",
                                    "musical-instrument",
                                    "tool",
                                    "clothing",
                                    "household",
                                    "phone",
                                    "computer",
                                    "office",
                                    "light & video"};

static bool is_noun(const char *subgroup, const char *caption)
{
    bool known = false;
    int words = 1;
    for (i64 i = 0; i < COUNT_OF(nouns); i++)
        known |= strncmp(subgroup, nouns[i], strlen(nouns[i])) == 0;
    for (const char *at = caption; *at; at++)
        words += *at == ' ';
    /* Excludes apparent plurals: "the grapes grows" is not a sentence. */
    size_t length = strlen(caption);
    bool plural = length > 2 && caption[length - 1] == 's' && !strchr("su", caption[length - 2]);
    return known && words <= 3 && !plural;
}

/* Removes punctuation that is not spoken: "flag: Italy" becomes "flag of Italy"; other names keep
 * only their words. */
static char *clean_name(const char *name, i64 length)
{
    struct buffer out = {0};
    bool flag = strncmp(name, "flag: ", 6) == 0;
    for (i64 i = 0; i < length; i++) {
        if (strncmp(name + i, "\xe2\x80\x99", 3) == 0) { /* right single quotation mark */
            buffer_append(&out, "'", 1);
            i += 2;
        } else if (strncmp(name + i, "\xe2\x80\x9c", 3) == 0 || strncmp(name + i, "\xe2\x80\x9d", 3) == 0) {
            i += 2;
        } else if (name[i] == ':' && flag) {
            buffer_append(&out, " of", 3);
        } else if (!strchr(":,()", name[i])) {
            buffer_append(&out, name + i, 1);
        }
    }
    return out.data;
}

static bool is_person(u32 code_point)
{
    return (code_point >= 0x1f466 && code_point <= 0x1f469) || code_point == 0x1f9d1;
}

/* The key of the thing a glyph shows: its first character. All persons with the same object share
 * one base, because a man and a woman look alike; each flag is its own base. */
static u64 base_of(const struct glyph *glyph)
{
    u32 first = glyph->code_points[0];
    if (is_person(first))
        return 0x1f9d1;
    if (first >= REGIONAL_FIRST && first <= REGIONAL_LAST)
        return (u64)first << 32 | glyph->code_points[1];
    return first;
}

static char *file_name(const struct glyph *glyph)
{
    struct buffer out = {0};
    for (int i = 0; i < glyph->length; i++)
        if (glyph->code_points[i] != VARIATION)
            buffer_printf(&out, "%s%x", i ? "-" : "", glyph->code_points[i]);
    buffer_printf(&out, ".png");
    return out.data;
}

static bool is_skin_tone(u32 code_point)
{
    return code_point >= 0x1f3fb && code_point <= 0x1f3ff;
}

/* Parses the code points. Returns false for a sequence that is too long or has a skin tone. */
static bool parse_sequence(struct glyph *glyph, const char *line)
{
    for (;;) {
        char *end;
        unsigned long code_point = strtoul(line, &end, 16);
        if (end == line)
            return glyph->length > 0;
        if (glyph->length == CODE_POINTS_MAX || is_skin_tone((u32)code_point))
            return false;
        glyph->code_points[glyph->length++] = (u32)code_point;
        line = end;
    }
}

/* Finds the name: the "#" is followed by the character itself, the version and the name. */
static const char *find_name(const char *line)
{
    const char *mark = strchr(line, '#');
    const char *version = mark ? strstr(mark, " E") : NULL;
    const char *name = version ? strchr(version + 1, ' ') : NULL;
    return name ? name + 1 : NULL;
}

static void read_glyph(struct glyph_list *list, const char *subgroup, const char *line)
{
    struct glyph glyph = {0};
    const char *name = find_name(line);
    if (!strstr(line, "; fully-qualified") || !name || !parse_sequence(&glyph, line))
        return;
    glyph.caption = clean_name(name, (i64)strlen(name));
    glyph.file = file_name(&glyph);
    glyph.base = base_of(&glyph);
    glyph.noun = is_noun(subgroup, glyph.caption);
    list->items[list->count++] = glyph;
}

int glyph_list_load(struct glyph_list *list)
{
    struct buffer file = {0};
    *list = (struct glyph_list){0};
    if (file_read(&file, list_path) < 0)
        return -1;
    i64 lines = 1;
    for (i64 i = 0; i < file.length; i++)
        lines += file.data[i] == '\n';
    list->items = memory_alloc(lines * (i64)sizeof *list->items);
    char *rest = file.data, *line, *subgroup = "";
    while ((line = strsep(&rest, "\n"))) {
        if (strncmp(line, "# subgroup: ", 12) == 0)
            subgroup = line + 12;
        else if (line[0] && line[0] != '#')
            read_glyph(list, subgroup, line);
    }
    buffer_release(&file);
    if (!list->count)
        return error_set("%s: no fully-qualified sequence in it; install the package unicode-data anew", list_path);
    return 0;
}

static void glyph_release(struct glyph *glyph)
{
    memory_free(glyph->caption);
    memory_free(glyph->looks);
    memory_free(glyph->file);
}

void glyph_list_release(struct glyph_list *list)
{
    for (i64 i = 0; i < list->count; i++)
        glyph_release(&list->items[i]);
    memory_free(list->items);
    *list = (struct glyph_list){0};
}

static void keep_marked(struct glyph_list *list, const bool *keep)
{
    i64 kept = 0;
    for (i64 i = 0; i < list->count; i++) {
        if (keep[i])
            list->items[kept++] = list->items[i];
        else
            glyph_release(&list->items[i]);
    }
    list->count = kept;
}

int glyphs_choose(struct glyph_list *list, i64 wanted, struct rng_key key)
{
    bool *keep = memory_alloc(list->count);
    for (i64 i = 0; i < list->count; i++)
        keep[i] = list->items[i].index != 0;
    keep_marked(list, keep);
    if (wanted > list->count)
        log_warn("the font draws %lld %s, %lld were wanted", (long long)list->count,
                 plural(list->count, "glyph", "glyphs"), (long long)wanted);
    i32 *order = memory_alloc(list->count * (i64)sizeof *order);
    rng_permutation(order, list->count, key, DRAW_GLYPHS, 0);
    memset(keep, 0, (size_t)list->count);
    for (i64 i = 0; i < min_i64(wanted, list->count); i++)
        keep[order[i]] = true;
    keep_marked(list, keep);
    memory_free(order);
    memory_free(keep);
    return list->count ? 0 : error_set("the emoji font draws none of the glyphs of %s", list_path);
}
