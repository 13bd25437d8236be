/* Reads WebDataset tars: consecutive members whose names agree up to the first dot of the base name
 * have one key. The part after that dot is the member's extension.
 *
 * Names may hold further dots, so that the members of one key are several samples: those whose
 * names agree up to the last dot. A medium a.png gets the text a.png.txt or a.txt of its own name.
 * If it is the key's only medium, it gets the text KEY.txt, or the key's only text if what stands
 * between key and ending are names of fields (key.image.png, key.caption.txt). A record of messages
 * or texts (.json) leads all members of its key. A name that a sample has already begins the next one.
 *
 * Links have the bytes of the members that they refer to. */
#include "data/formats/archive_links.h"
#include "data/sources/source_readers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MEMBERS_MAX = 4096 };

struct tar_member {
    char *extension; /* lower case */
    struct buffer bytes;
    i64 at;     /* offset in the file; -1: compressed */
    bool leads; /* a record of messages or texts, which leads its key */
    bool used;
    bool lost; /* a link to a member that the tar does not hold */
};
struct tar {
    struct archive_file *file;
    struct archive_links *links;
    i64 passed; /* members read from the file so far */
    int lone;   /* whether lone texts are left out; -1: not known yet */
    struct lone_media media;
    char *path, *key; /* key: of the gathered members */
    struct tar_member *members;
    i64 count, capacity, bytes;
    i64 at;               /* the gathered member to go on with */
    i64 records, stems;   /* of the gathered members: leading records; names up to the last dot of media */
    bool captioned, made; /* a medium of several has a text of its name; a sample was made */
    bool cut;             /* the key had more members before, or has more behind */
    char *next_key;       /* key of the member read ahead; NULL at the end */
    struct tar_member next;
    bool begun;
    char *broken; /* error that prevents reading beyond them */
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
    t->count = t->bytes = t->at = t->records = t->stems = 0;
    t->captioned = t->made = t->cut = false;
    memory_free(t->key);
    t->key = NULL;
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
    t->links = archive_links_open(file->path);
    t->lone = -1;
    t->reading = reading;
    return t;
}

static void tar_close(void *reader)
{
    struct tar *t = reader;
    clear(t);
    archive_file_close(t->file);
    archive_links_close(t->links);
    hash_list_release(&t->media.names);
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

const char *tar_member_extension(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strchr(base, '.');
    bool meta = strncmp(base, "__", 2) == 0 && strstr(base + 2, "__");
    return !dot || dot == base || meta ? NULL : dot;
}

/* Splits KEY.EXTENSION. False for names that are no member of a sample. */
static bool split_name(const char *name, char **key, char **extension)
{
    const char *dot = tar_member_extension(name);
    if (!dot)
        return false;
    *key = string_format("%.*s", (int)(dot - name), name);
    *extension = string_copy(dot + 1);
    for (char *c = *extension; *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    return true;
}

/* Reads the bytes of the current member, or of the one that it is a link to. */
static int read_member(struct tar *t, const char *name)
{
    struct archive_link link = {.name = name, .number = t->passed - 1};
    link.target = archive_file_link(t->file, &link.symbolic);
    t->next.at = archive_file_member_at(t->file);
    if (!link.target)
        return archive_file_read_all(t->file, &t->next.bytes);
    int status = archive_links_read(t->links, &t->next.bytes, &t->next.at, &link);
    t->next.lost = status == 0;
    return status < 0 ? -1 : 0;
}

/* Reads the next member ahead. 0, also at the end, where next_key is NULL; -1: the archive is
 * damaged. */
static int read_ahead(struct tar *t)
{
    const char *name;
    int status;
    t->next_key = NULL;
    while ((status = archive_file_next(t->file, &name)) == 1) {
        t->passed++;
        if (split_name(name, &t->next_key, &t->next.extension))
            return read_member(t, name);
        notes_add(&t->reading->notes, t->path, "members whose name is not KEY.EXTENSION");
    }
    if (status == 0 && t->passed && !archive_file_is_whole(t->file))
        notes_add(&t->reading->notes, t->path, "tars without the mark of their end: they may have been cut short");
    return status;
}

static void keep(struct tar *t)
{
    if (t->count == t->capacity) {
        i64 wanted = max_i64(8, 2 * t->capacity), size = (i64)sizeof *t->members;
        t->members = memory_resize(t->members, t->capacity * size, wanted * size);
        t->capacity = wanted;
    }
    t->bytes += t->next.bytes.length;
    t->members[t->count++] = t->next;
    t->next = (struct tar_member){0};
}

/* Length of the part of a member's extension that belongs to its name: without the last dot. */
static size_t stem_length(const struct tar_member *m)
{
    const char *dot = strrchr(m->extension, '.');
    return dot ? (size_t)(dot - m->extension) : 0;
}

static bool same_stem(const struct tar_member *a, const struct tar_member *b)
{
    size_t length = stem_length(a);
    return length == stem_length(b) && memcmp(a->extension, b->extension, length) == 0;
}

static bool is_medium(const struct tar_member *m)
{
    return medium_kind(m->extension) > MODALITY_TEXT;
}

/* True for KEY.md and its like, but README.md: in an archive, that describes it. */
static bool is_document(const struct tar *t, const struct tar_member *m)
{
    const char *slash = strrchr(t->key, '/');
    char *name = string_format(".%s", m->extension);
    bool is = document_suffix(name) && strcasecmp(slash ? slash + 1 : t->key, "README") != 0;
    memory_free(name);
    return is;
}

/* Of two members that may be a caption, the one of the lower rank is: a text, JSON, a document. -1:
 * neither of these. */
static int text_rank(const struct tar *t, const struct tar_member *m)
{
    const char *dot = strrchr(m->extension, '.');
    return m->lost                                               ? -1
           : medium_kind(m->extension) == MODALITY_TEXT          ? 0
           : is_one_of("json jsn", dot ? dot + 1 : m->extension) ? 1
           : is_document(t, m)                                   ? 2
                                                                 : -1;
}

/* True if a member of the name of the next one is gathered already: the next one begins another
 * sample of the same key, as in tars that were put one behind the other. */
static bool is_repeated(const struct tar *t)
{
    for (i64 i = 0; i < t->count; i++)
        if (strcmp(t->members[i].extension, t->next.extension) == 0)
            return true;
    return false;
}

/* True if the gathered members of a key with many are samples of their own, so that the next one
 * begins others. */
static bool may_cut(const struct tar *t)
{
    if (is_repeated(t))
        return true;
    if (t->count < MEMBERS_MAX / 2 && t->bytes < ARCHIVE_MEMBER_BYTES_MAX / 2)
        return false;
    for (i64 i = 0; i < t->count; i++)
        if (stem_length(&t->members[i]) == 0)
            return false;
    return stem_length(&t->next) > 0 && !same_stem(&t->members[t->count - 1], &t->next);
}

static bool member_leads(const struct tar *t, const struct tar_member *m)
{
    const char *kind = m->extension + stem_length(m) + (stem_length(m) > 0);
    if (strcmp(kind, "json") != 0 && strcmp(kind, "jsn") != 0)
        return false;
    struct json *value = json_parse_line(m->bytes.data ? m->bytes.data : "", m->bytes.length, t->path, 1);
    bool leads = sample_key(value, "messages") || sample_key(value, "texts");
    json_free(value);
    return leads;
}

/* True for a medium with which its name occurs first. */
static bool begins_stem(const struct tar *t, i64 i)
{
    bool first = is_medium(&t->members[i]);
    for (i64 k = 0; k < i && first; k++)
        first = !(is_medium(&t->members[k]) && same_stem(&t->members[k], &t->members[i]));
    return first;
}

static struct tar_member *text_of_medium(struct tar *t, const struct tar_member *medium);

static void survey(struct tar *t)
{
    for (i64 i = 0; i < t->count; i++) {
        t->members[i].leads = member_leads(t, &t->members[i]);
        t->records += t->members[i].leads;
        if (!begins_stem(t, i))
            continue;
        t->stems++;
        t->captioned = t->captioned || text_of_medium(t, &t->members[i]);
    }
}

/* Handles damage in the member read ahead. The gathered sample is whole if that member has another
 * key, or if its name is lost and a medium and its text are there. */
static int end_at_damage(struct tar *t)
{
    survey(t);
    bool whole = t->next_key ? strcmp(t->next_key, t->key) != 0 : t->captioned;
    t->broken = string_copy(error_text());
    return whole ? 1 : -1;
}

/* Gathers the members of one key. 1: there are some; 0: the end; -1: damaged. */
static int gather(struct tar *t)
{
    bool cut = t->cut && t->next_key && strcmp(t->next_key, t->key) == 0;
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
    t->cut = cut;
    while (t->next_key && strcmp(t->next_key, t->key) == 0) {
        if (may_cut(t)) {
            t->cut = true;
            break;
        }
        keep(t);
        if (t->bytes > ARCHIVE_MEMBER_BYTES_MAX || t->count > MEMBERS_MAX)
            return error_set("%s:%s: more than %d members or %d bytes in one sample", t->path, t->key, MEMBERS_MAX,
                             ARCHIVE_MEMBER_BYTES_MAX);
        memory_free(t->next_key);
        if (read_ahead(t) < 0)
            return end_at_damage(t);
    }
    survey(t);
    return 1;
}

/* The first member of a kind with the name of `stem`. */
static struct tar_member *member_of(struct tar *t, int kind, const struct tar_member *stem)
{
    for (i64 i = 0; i < t->count; i++)
        if (medium_kind(t->members[i].extension) == kind && !t->members[i].lost && same_stem(stem, &t->members[i]))
            return &t->members[i];
    return NULL;
}

/* The only member with a text: of the texts, else of JSON, else of the documents. NULL: none, or
 * several. */
static struct tar_member *only_text(struct tar *t)
{
    for (int rank = 0; rank < 3; rank++) {
        struct tar_member *found = NULL;
        i64 count = 0;
        for (i64 i = 0; i < t->count; i++)
            if (text_rank(t, &t->members[i]) == rank) {
                found = &t->members[i];
                count++;
            }
        if (count)
            return count == 1 ? found : NULL;
    }
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
    struct json_place place = {.origin = out->name, .find = find_member, .context = t, .notes = &t->reading->notes};
    json->used = true;
    struct json *value = json_parse_line(json->bytes.data ? json->bytes.data : "", json->bytes.length, out->name, 1);
    int status = value ? sample_of_json(out, value, &place, passed) : -1;
    json_free(value);
    return status;
}

/* True for a.png.txt beside a.png. */
static bool has_whole_name(const struct tar_member *text, const struct tar_member *medium)
{
    size_t length = strlen(medium->extension);
    return stem_length(text) == length && strncmp(text->extension, medium->extension, length) == 0;
}

/* The text of a medium by its name: of each rank a.png.txt before a.txt. */
static struct tar_member *text_of_medium(struct tar *t, const struct tar_member *medium)
{
    for (int rank = 0; rank < 3; rank++)
        for (int whole = 1; whole >= 0; whole--)
            for (i64 i = 0; i < t->count; i++)
                if (text_rank(t, &t->members[i]) == rank &&
                    (whole ? has_whole_name : same_stem)(&t->members[i], medium))
                    return &t->members[i];
    return NULL;
}

static struct tar_member *first_text(struct tar *t)
{
    for (int rank = 0; rank < 3; rank++)
        for (i64 i = 0; i < t->count; i++)
            if (text_rank(t, &t->members[i]) == rank)
                return &t->members[i];
    return NULL;
}

static int add_caption(const struct tar *t, struct sample *out, struct tar_member *text)
{
    const char *bytes = text->bytes.data ? text->bytes.data : "";
    if (text_is_blank(bytes, text->bytes.length)) {
        text->used = true;
        return 0;
    }
    if (medium_kind(text->extension) == MODALITY_TEXT || is_document(t, text)) {
        text->used = true;
        if (text_file_check(bytes, text->bytes.length) < 0)
            return -1;
        return sample_add_caption(out, bytes, text->bytes.length);
    }
    struct json *value = json_parse_line(bytes, text->bytes.length, out->name, 1);
    const struct json *caption = sample_caption(value, NULL);
    int status = value ? sample_add_caption(out, json_string(caption, ""), json_string_length(caption)) : -1;
    text->used = caption || json_kind(json_get(value, "caption")) == JSON_STRING;
    json_free(value);
    return status;
}

/* Takes a clip before a picture before a sound, as in folders, because pictures beside clips are
 * thumbnails. */
static void take_medium(struct tar *t, struct sample *out, const struct tar_member *stem)
{
    for (i64 rank = 0; medium_leading(rank) >= 0 && out->count == 0; rank++) {
        struct tar_member *medium = member_of(t, medium_leading(rank), stem);
        if (!medium)
            continue;
        medium->used = true;
        struct sample_part *part = sample_add(out, medium_leading(rank));
        part->bytes = medium->bytes;
        set_location(t, part, medium);
        medium->bytes = (struct buffer){0};
    }
}

/* True if what stands between key and ending may be names of fields: neither begins with a digit,
 * as what follows the dot of a number, a date or a version does. */
static bool are_fields(const struct tar_member *a, const struct tar_member *b)
{
    bool numbers = (stem_length(a) && strchr("0123456789", a->extension[0])) ||
                   (stem_length(b) && strchr("0123456789", b->extension[0]));
    return !numbers;
}

/* The caption of a medium: of its own name, or else, for the key's only medium, KEY.txt or the key's
 * only text. */
static struct tar_member *caption_of(struct tar *t, const struct tar_member *stem)
{
    static const struct tar_member key = {.extension = (char *)""};
    struct tar_member *text = text_of_medium(t, stem);
    if (text || t->stems > 1)
        return text;
    text = text_of_medium(t, &key);
    text = text ? text : only_text(t);
    return text && (stem_length(text) == 0 || are_fields(stem, text)) ? text : NULL;
}

/* True if a medium without a caption is a sample. Beside a medium KEY.EXTENSION, others of the key
 * (masks, depths) describe it. */
static bool may_be_alone(struct tar *t, const struct tar_member *stem)
{
    bool only = t->stems == 1 || stem_length(stem) == 0;
    for (i64 i = 0; i < t->count && !only; i++)
        if (is_medium(&t->members[i]) && stem_length(&t->members[i]) == 0)
            return false;
    return t->reading->media_alone;
}

/* Adds the caption that the name of a medium in the tar says. */
static int add_name(const struct tar *t, struct sample *out, const struct tar_member *medium)
{
    char *name = string_format("%s.%s", t->key, medium->extension);
    int status = sample_add_name(out, name, t->reading->columns);
    memory_free(name);
    return status;
}

/* Why a medium has no caption although nothing is wrong with its members; NULL: something is. */
static const char *why_no_caption(const struct source_columns *columns, bool empty)
{
    if (captions_are_ignored(columns))
        return CAPTIONS_IGNORED;
    if (captions_are_named(columns))
        return columns->captions == CAPTIONS_FOLDER
                   ? "media in no folder of their tar, which would name them (captions: folder)"
                   : "media in tars whose names say nothing (captions: name)";
    return empty ? "media in tars whose captions are empty" : NULL;
}

/* Makes a sample of a medium and its caption. *passed: why it is none, or NULL. */
static int build_medium(struct tar *t, struct sample *out, const struct tar_member *stem, const char **passed)
{
    out->layout = SAMPLE_CAPTIONED;
    struct tar_member *text = caption_of(t, stem);
    take_medium(t, out, stem);
    if (out->count == 0) {
        *passed = "media that are links to what the tar does not hold, with their texts";
        for (i64 i = 0; i < t->count; i++)
            t->members[i].used |= &t->members[i] == text || same_stem(&t->members[i], stem);
        return 0;
    }
    const struct source_columns *columns = t->reading->columns;
    if (text && captions_are_ignored(columns))
        text->used = true;
    else if (text && add_caption(t, out, text) < 0)
        return -1;
    bool empty = text && text->used && out->count == 1;
    if (out->count == 1 && add_name(t, out, stem) < 0)
        return -1;
    if (out->count > 1 || may_be_alone(t, stem) || sample_add_subtitles(out, columns))
        return 0;
    *passed = why_no_caption(columns, empty);
    if (*passed)
        return 0;
    if (t->stems > 1 && !t->captioned && first_text(t))
        return error_set("%lld media, and the text .%s that has the name of none: expected a text of the name of each",
                         (long long)t->stems, first_text(t)->extension);
    if (t->stems == 1 && !text && first_text(t))
        return error_set("a medium, and texts of other names such as .%s: expected .txt or .json of its name",
                         first_text(t)->extension);
    if (t->stems == 1 || !t->captioned)
        return error_set(
            "a medium without a text: expected .txt or .json next to it (tar --sort=name puts them there), or "
            "captions: folder or name, which take the names of folders and files");
    *passed = "media without a text of the same name up to the last dot";
    return 0;
}

/* Why a short text without a medium is left out; NULL: it is a document. */
static const char *why_lone_is_left(struct tar *t)
{
    if (t->lone < 0)
        t->lone = tar_leaves_lone_texts(t->path, t->reading->columns, &t->media);
    bool named = !lone_texts_are_documents(t->reading->columns) && lone_media_name(&t->media, t->key, strlen(t->key));
    return named ? NAMED_TEXTS : t->lone ? LONE_TEXTS : NULL;
}

static int build_text(struct tar *t, struct sample *out, const char **passed)
{
    struct tar_member *text = first_text(t);
    out->layout = SAMPLE_PLAIN;
    for (i64 i = 0; i < t->count && text; i++) {
        const char *dot = strrchr(t->members[i].extension, '.');
        if (medium_kind_unread(dot ? dot + 1 : t->members[i].extension) < 0)
            continue;
        text->used = true;
        *passed = "texts beside a medium that is not read";
        return 0;
    }
    char *name = text ? string_format("%s.%s", t->key, text->extension) : NULL;
    bool describes = name && file_describes(name);
    memory_free(name);
    *passed = describes                                         ? "files that describe a dataset"
              : text && text->bytes.length <= CAPTION_BYTES_MAX ? why_lone_is_left(t)
                                                                : NULL;
    if (*passed) {
        text->used = true;
        return 0;
    }
    int status = text ? add_caption(t, out, text) : 0;
    *passed = out->count ? NULL : "samples without a text or a medium";
    return status;
}

static void note_unused(struct tar *t)
{
    char *name = string_format("%s:%s", t->path, t->key);
    for (i64 i = 0; i < t->count; i++) {
        const char *dot = strrchr(t->members[i].extension, '.');
        const char *extension = dot ? dot + 1 : t->members[i].extension;
        bool known = medium_kind(extension) >= 0;
        if (!t->members[i].used)
            notes_add(&t->reading->notes, name, "members ending in .%.16s%s", extension,
                      known ? " beside what their sample is made of" : "");
    }
    memory_free(name);
}

/* True if a sample begins with member i: a leading record, else a medium, else a text. */
static bool begins_sample(const struct tar *t, i64 i)
{
    if (t->records)
        return t->members[i].leads;
    return t->stems ? begins_stem(t, i) : i == 0;
}

/* Makes a sample of the members that belong to member i. */
static enum source_result build_sample(struct tar *t, i64 i, struct sample *out, bool *passed)
{
    struct tar_member *m = &t->members[i];
    const char *why = NULL;
    bool several = max_i64(t->records, t->stems) > 1 || t->cut;
    size_t stem = several ? stem_length(m) : 0;
    out->name = string_format("%s:%s%s%.*s", t->path, t->key, stem ? "." : "", (int)stem, m->extension);
    int status = m->leads   ? from_json(t, out, m, passed)
                 : t->stems ? build_medium(t, out, m, &why)
                            : build_text(t, out, &why);
    t->made = t->made || status == 0;
    if (status < 0)
        error_prefix("%s", out->name);
    if (*passed && !why)
        why = "samples without a text or a medium";
    if (status == 0 && why)
        notes_add(&t->reading->notes, out->name, "%s", why);
    *passed = why != NULL;
    if (status < 0 || *passed)
        sample_release(out);
    return status < 0 ? SOURCE_BAD : SOURCE_SAMPLE;
}

static enum source_result tar_next(void *reader, struct sample *out)
{
    struct tar *t = reader;
    for (;;) {
        bool passed = false;
        if (t->at == t->count) {
            if (t->made)
                note_unused(t);
            int status = gather(t);
            if (status <= 0)
                return status == 0 ? SOURCE_END : SOURCE_DAMAGED;
        }
        i64 at = t->at++;
        if (!begins_sample(t, at))
            continue;
        enum source_result result = build_sample(t, at, out, &passed);
        if (!passed || result == SOURCE_BAD)
            return result;
    }
}

const struct reader_kind tar_reader = {".tar", tar_open, tar_next, tar_position, tar_close};
