/* Reads WebDataset tars: consecutive members whose names agree up to the first dot of the base name
 * are one sample. The part after that dot is the member's kind. */
#include "data/formats/archive.h"
#include "data/sources/source_readers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MEMBERS_MAX = 4096 };

struct tar_member {
    char *extension; /* lower case */
    struct buffer bytes;
    i64 at; /* offset in the file; -1: compressed */
    bool used;
};
struct tar {
    struct archive_file *file;
    char *path, *key; /* key: of the gathered members */
    struct tar_member *members;
    i64 count, capacity, bytes;
    char *next_key; /* key of the member read ahead; NULL at the end */
    struct tar_member next;
    bool begun;
    char *problem; /* error of the gathered members */
    char *broken;  /* error that prevents reading beyond them */
    struct read_context *reading;
};

static void member_release(struct tar_member *m)
{
    memory_free(m->extension);
    buffer_release(&m->bytes);
    *m = (struct tar_member){0};
}

static void clear(struct tar *t)
{
    for (i64 i = 0; i < t->count; i++)
        member_release(&t->members[i]);
    t->count = t->bytes = 0;
    memory_free(t->key);
    memory_free(t->problem);
    t->key = t->problem = NULL;
}

static void *tar_open(const struct source_file *file, struct read_context *reading)
{
    struct tar *t = memory_alloc(sizeof *t);
    t->file = archive_file_open(file->path, true);
    if (!t->file) {
        memory_free(t);
        return NULL;
    }
    t->path = string_copy(file->path);
    t->reading = reading;
    return t;
}

static void tar_close(void *reader)
{
    struct tar *t = reader;
    clear(t);
    archive_file_close(t->file);
    member_release(&t->next);
    memory_free(t->members);
    memory_free(t->next_key);
    memory_free(t->broken);
    memory_free(t->path);
    memory_free(t);
}

static i64 tar_position(const void *reader)
{
    return archive_file_position(((const struct tar *)reader)->file);
}

/* Splits KEY.EXTENSION. False for names that are no member of a sample: without a dot, or like
 * __meta__. */
static bool split_name(const char *name, char **key, char **extension)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strchr(base, '.');
    if (!dot || dot == base || (strncmp(base, "__", 2) == 0 && strstr(base + 2, "__")))
        return false;
    *key = string_format("%.*s", (int)(dot - name), name);
    *extension = string_copy(dot + 1);
    for (char *c = *extension; *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    return true;
}

/* Reads the next member ahead. 0, also at the end, where next_key is NULL; -1: the archive is
 * damaged. */
static int read_ahead(struct tar *t)
{
    const char *name;
    int status;
    t->next_key = NULL;
    while ((status = archive_file_next(t->file, &name)) == 1) {
        if (split_name(name, &t->next_key, &t->next.extension)) {
            t->next.at = archive_file_member_at(t->file);
            return archive_file_read_all(t->file, &t->next.bytes);
        }
        notes_add(&t->reading->notes, t->path, "members whose name is not KEY.EXTENSION");
    }
    return status;
}

static void keep(struct tar *t)
{
    for (i64 i = 0; i < t->count; i++)
        if (strcmp(t->members[i].extension, t->next.extension) == 0 && !t->problem)
            t->problem = string_format("%s:%s: two members .%s", t->path, t->next_key, t->next.extension);
    if (t->count == t->capacity) {
        i64 wanted = max_i64(8, 2 * t->capacity), size = (i64)sizeof *t->members;
        t->members = memory_resize(t->members, t->capacity * size, wanted * size);
        t->capacity = wanted;
    }
    t->bytes += t->next.bytes.length;
    t->members[t->count++] = t->next;
    t->next = (struct tar_member){0};
}

/* Handles damage in the member read ahead. The gathered sample is whole if that member has another
 * key. */
static int end_at_damage(struct tar *t)
{
    bool whole = t->next_key && strcmp(t->next_key, t->key) != 0;
    t->broken = string_copy(error_text());
    return whole ? 1 : -1;
}

/* Gathers the members of one key. 1: a sample; 0: the end; -1: damaged. */
static int gather(struct tar *t)
{
    clear(t);
    if (t->broken)
        return error_set("%s", t->broken);
    if (!t->begun && read_ahead(t) < 0)
        return -1;
    t->begun = true;
    if (!t->next_key)
        return 0;
    t->key = t->next_key;
    t->next_key = string_copy(t->key);
    while (t->next_key && strcmp(t->next_key, t->key) == 0) {
        keep(t);
        if (t->bytes > ARCHIVE_MEMBER_BYTES_MAX || t->count > MEMBERS_MAX)
            return error_set("%s:%s: more than %d members or %d bytes in one sample", t->path, t->key, MEMBERS_MAX,
                             ARCHIVE_MEMBER_BYTES_MAX);
        memory_free(t->next_key);
        if (read_ahead(t) < 0)
            return end_at_damage(t);
    }
    return 1;
}

static struct tar_member *member_of(struct tar *t, int kind)
{
    for (i64 i = 0; i < t->count; i++)
        if (medium_kind(t->members[i].extension) == kind)
            return &t->members[i];
    return NULL;
}

static void set_location(const struct tar *t, struct sample_part *part, const struct tar_member *member)
{
    part->within = member->at >= 0 ? string_copy(t->path) : NULL;
    part->at = member->at;
}

/* Finds a member by its extension or its whole name. */
static int find_member(void *context, struct sample_part *part, const char *reference)
{
    struct tar *t = context;
    i64 key = (i64)strlen(t->key);
    const char *extension =
        strncmp(reference, t->key, (size_t)key) == 0 && reference[key] == '.' ? reference + key + 1 : reference;
    for (i64 i = 0; i < t->count; i++)
        if (strcasecmp(t->members[i].extension, extension) == 0) {
            buffer_append(&part->bytes, t->members[i].bytes.data, t->members[i].bytes.length);
            set_location(t, part, &t->members[i]);
            t->members[i].used = true;
            return 0;
        }
    return error_set("%.80s: the sample has no such member", reference);
}

static int from_json(struct tar *t, struct sample *out, struct tar_member *json, bool *passed)
{
    struct json_place place = {.origin = out->name, .find = find_member, .context = t};
    json->used = true;
    struct json *value = json_parse(json->bytes.data ? json->bytes.data : "", json->bytes.length, out->name);
    int status = value ? sample_of_json(out, value, &place, passed) : -1;
    json_free(value);
    return status;
}

static struct tar_member *json_member(const struct tar *t)
{
    for (i64 i = 0; i < t->count; i++)
        if (strcmp(t->members[i].extension, "json") == 0 || strcmp(t->members[i].extension, "jsn") == 0)
            return &t->members[i];
    return NULL;
}

/* Adds the caption: a text member, else the text or caption of the JSON. */
static int add_caption(struct tar *t, struct sample *out)
{
    struct tar_member *text = member_of(t, MODALITY_TEXT), *json = json_member(t);
    if (text) {
        text->used = true;
        return sample_add_text(out, text->bytes.data, text->bytes.length);
    }
    if (!json)
        return 0;
    struct json *value = json_parse(json->bytes.data ? json->bytes.data : "", json->bytes.length, out->name);
    const struct json *caption = sample_caption(value, NULL);
    int status = value ? sample_add_text(out, json_string(caption, ""), json_string_length(caption)) : -1;
    json->used = caption != NULL;
    json_free(value);
    return status;
}

static bool json_leads(const struct tar *t)
{
    const struct tar_member *json = json_member(t);
    struct json *value =
        json ? json_parse(json->bytes.data ? json->bytes.data : "", json->bytes.length, t->path) : NULL;
    bool leads = sample_key(value, "messages") || sample_key(value, "texts");
    json_free(value);
    return leads;
}

/* Takes a clip before a picture before a sound, as in folders, because pictures beside clips are
 * thumbnails. */
static void take_medium(struct tar *t, struct sample *out)
{
    for (i64 rank = 0; medium_leading(rank) >= 0 && out->count == 0; rank++) {
        struct tar_member *medium = member_of(t, medium_leading(rank));
        if (!medium)
            continue;
        medium->used = true;
        struct sample_part *part = sample_add(out, medium_leading(rank));
        part->bytes = medium->bytes;
        set_location(t, part, medium);
        medium->bytes = (struct buffer){0};
    }
}

static int build(struct tar *t, struct sample *out, bool *passed)
{
    if (json_leads(t))
        return from_json(t, out, json_member(t), passed);
    out->layout = SAMPLE_CAPTIONED;
    take_medium(t, out);
    i64 media = out->count;
    if (media == 0)
        out->layout = SAMPLE_PLAIN;
    if (add_caption(t, out) < 0)
        return -1;
    *passed = out->count == 0;
    return media && out->count == 1 && !t->reading->media_alone && !sample_add_subtitles(out, t->reading->columns)
               ? error_set("a medium without a text: expected .txt or .json")
               : 0;
}

static void note_unused(struct tar *t, const char *name)
{
    for (i64 i = 0; i < t->count; i++) {
        const char *dot = strrchr(t->members[i].extension, '.');
        const char *extension = dot ? dot + 1 : t->members[i].extension;
        bool known = medium_kind(extension) >= 0;
        if (!t->members[i].used)
            notes_add(&t->reading->notes, name, "members ending in .%.16s%s", extension,
                      known ? " beside what their sample is made of" : "");
    }
}

static enum source_result build_sample(struct tar *t, struct sample *out, bool *passed)
{
    if (t->problem) {
        error_set("%s", t->problem);
        return SOURCE_BAD;
    }
    out->name = string_format("%s:%s", t->path, t->key);
    int status = build(t, out, passed);
    if (status < 0)
        error_prefix("%s", out->name);
    else
        note_unused(t, out->name);
    if (*passed)
        notes_add(&t->reading->notes, out->name, "samples without a text or a medium");
    if (status < 0 || *passed)
        sample_release(out);
    return status < 0 ? SOURCE_BAD : SOURCE_SAMPLE;
}

static enum source_result tar_next(void *reader, struct sample *out)
{
    struct tar *t = reader;
    for (;;) {
        bool passed = false;
        int status = gather(t);
        if (status <= 0)
            return status == 0 ? SOURCE_END : SOURCE_DAMAGED;
        enum source_result result = build_sample(t, out, &passed);
        if (!passed || result == SOURCE_BAD)
            return result;
    }
}

const struct reader_kind tar_reader = {".tar", tar_open, tar_next, tar_position, tar_close};
