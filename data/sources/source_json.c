/* Adds media and texts of a record to a sample. */
#include "data/sources/source_build.h"

#include "tokenizers/text/text.h"

#include <stdlib.h>
#include <string.h>

const struct json *sample_key(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);
    return json_kind(value) == JSON_NULL ? NULL : value;
}

bool json_says_nothing(const struct json *value)
{
    enum json_kind kind = json_kind(value);
    return kind == JSON_NULL || (kind == JSON_STRING && json_string_length(value) == 0) ||
           ((kind == JSON_ARRAY || kind == JSON_OBJECT) && json_count(value) == 0);
}

bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; length && (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    return false;
}

struct json *json_parsed(const struct json *value)
{
    struct json *inner =
        json_kind(value) == JSON_STRING ? json_parse(json_string(value, ""), json_string_length(value), "") : NULL;
    return inner ? inner : json_copy(value);
}

struct json *json_copied(const struct sample_builder *b, const struct json *value)
{
    if (!b->place->record || (json_kind(value) != JSON_OBJECT && json_kind(value) != JSON_ARRAY))
        return json_copy(value);
    struct json *out = json_kind(value) == JSON_OBJECT ? json_object() : json_array();
    struct json_iterator it;
    for (i64 i = 0; json_kind(value) == JSON_ARRAY && i < json_count(value); i++)
        json_push(out, json_copied(b, json_at(value, i)));
    for (bool more = json_first(&it, value); more; more = json_next(&it, value))
        if (json_kind(it.value) != JSON_NULL)
            json_set(out, it.key, json_copied(b, it.value));
    return out;
}

struct json *text_copy(const struct sample_builder *b, const struct json *value)
{
    const struct buffer *bytes = record_bytes(b->place->record, value);
    return bytes && text_invalid_utf8(bytes->data, bytes->length) < 0
               ? json_of_utf8(bytes->data ? bytes->data : "", bytes->length)
               : json_copy(value);
}

bool build_is_text(const struct sample_builder *b, const struct json *value)
{
    return json_kind(value) == JSON_STRING || record_bytes(b->place->record, value);
}

int build_text(struct sample_builder *b, const struct json *text)
{
    const struct buffer *bytes = record_bytes(b->place->record, text);
    return bytes ? sample_add_text(b->out, bytes->data, bytes->length)
                 : sample_add_text(b->out, json_string(text, ""), json_string_length(text));
}

/* The file that a reference means, by the settings `columns.folder` and `columns.ending`. */
static char *named_file(const struct source_columns *columns, const char *reference)
{
    const char *folder = columns && columns->folder ? columns->folder : "";
    const char *ending = columns && columns->ending ? columns->ending : "";
    bool ends = !*ending || medium_kind(name_extension(reference)) > MODALITY_TEXT;
    char *name = ends ? string_copy(reference) : string_format("%s.%s", reference, ending + (*ending == '.'));
    if (!*folder || *reference == '/')
        return name;
    char *below = path_join(folder, name);
    memory_free(name);
    return below;
}

static bool lies_below(const char *real, const char *folder)
{
    size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    return strncmp(real, folder, length) == 0 && (real[length] == '/' || !real[length]);
}

/* The file without links; of one that does not exist, its last folder that does. free() */
static char *resolve(const char *path)
{
    char *at = string_copy(path), *real, *slash;
    while (!(real = realpath(at, NULL)) && (slash = strrchr(at, '/')))
        *slash = 0;
    if (!real)
        real = realpath(*path == '/' ? "/" : ".", NULL);
    memory_free(at);
    return real;
}

/* True if the file is neither below the root nor below columns.folder. */
static bool is_outside(const struct json_place *place, const char *path)
{
    const char *named = place->columns && place->columns->folder ? place->columns->folder : "";
    char *real = resolve(path), *folder = NULL;
    bool outside = !real || !lies_below(real, place->root);
    if (real && outside && *named) {
        char *joined = *named == '/' ? string_copy(named) : path_join(place->folder, named);
        folder = realpath(joined, NULL);
        outside = !folder || !lies_below(real, folder);
        memory_free(joined);
    }
    free(folder);
    free(real);
    return outside;
}

static int add_reference(struct sample_builder *b, enum modality kind, const char *reference)
{
    if (!reference || !*reference)
        return error_set("a part of type %s names no file: expected {\"type\": \"%s\", \"%s\": FILE}",
                         modality_rows[kind].name, modality_rows[kind].name, modality_rows[kind].name);
    if (strncmp(reference, "http:", 5) == 0 || strncmp(reference, "https:", 6) == 0 ||
        strncmp(reference, "data:", 5) == 0)
        return error_set("%.40s: media must be files; nothing is downloaded", reference);
    if (b->place->folder && is_address(b->place->folder))
        return error_set("%.80s: media beside an address are not asked for one by one: expected tars or tables that "
                         "hold them",
                         reference);
    if (strncmp(reference, "file://", 7) == 0)
        reference += 7;
    struct sample_part *part = sample_add(b->out, kind);
    if (!b->place->folder)
        return b->place->find(b->place->context, part, reference);
    char *file = named_file(b->place->columns, reference);
    part->path = *file == '/' ? string_copy(file) : path_join(b->place->folder, file);
    memory_free(file);
    b->outside = b->place->root && is_outside(b->place, part->path);
    return b->outside ? error_set("%s: a file outside of the data, and `outside: refuse` is set", part->path) : 0;
}

/* The file that a part names: {"image": FILE}, {"path": FILE}, {"url": FILE}, {"image_url": {"url":
 * FILE}}, or the string itself. */
static const char *reference_of(const struct json *part, enum modality kind)
{
    const struct json *places[] = {part,
                                   json_get(part, modality_rows[kind].name),
                                   json_get(part, "path"),
                                   json_get(part, "url"),
                                   json_get(json_get(part, modality_rows[kind].url_key), "url"),
                                   json_get(part, modality_rows[kind].url_key)};
    for (i64 i = 0; i < COUNT_OF(places); i++)
        if (json_kind(places[i]) == JSON_STRING)
            return json_string(places[i], NULL);
    return NULL;
}

/* A medium's bytes in a table: BYTES, {"bytes": BYTES}, or either under {"image": ..}; the path
 * beside them is only their original name. */
static struct buffer *bytes_of(const struct sample_builder *b, const struct json *part, enum modality kind)
{
    const struct json *inner = json_get(part, modality_rows[kind].name);
    const struct json *places[] = {part, json_get(part, "bytes"), inner, json_get(inner, "bytes")};
    for (i64 i = 0; i < COUNT_OF(places); i++) {
        struct buffer *bytes = record_bytes(b->place->record, places[i]);
        if (bytes && bytes->length)
            return bytes;
    }
    return NULL;
}

/* Adds a medium; moves its bytes out of the record. */
int build_medium(struct sample_builder *b, enum modality kind, const struct json *value)
{
    struct buffer *bytes = bytes_of(b, value, kind);
    if (!bytes)
        return add_reference(b, kind, reference_of(value, kind));
    sample_add(b->out, kind)->bytes = *bytes;
    *bytes = (struct buffer){0};
    return 0;
}

/* ---- Contents of messages ---- */

static int add_listed(struct sample_builder *b, enum modality kind)
{
    if (b->used[kind] >= json_count(b->media[kind]))
        return error_set("%s occurs more often in the messages than \"%s\" has files", modality_rows[kind].mark,
                         modality_rows[kind].list_key);
    return build_medium(b, kind, json_at(b->media[kind], b->used[kind]++));
}

/* A place of a medium in a text. name NULL: the next one that the record lists. */
struct mark {
    const char *at, *name;
    i64 length, name_length;
    enum modality kind;
};

/* Finds the first mark at or after `at`. own: only marks that name their medium count. */
static bool find_mark(struct mark *mark, const struct sample_builder *b, const char *at, const char *end, bool own)
{
    for (; at < end; at++) {
        if (*at != '<')
            continue;
        *mark = (struct mark){.at = at};
        mark->length = listed_inline(b, at, end - at, &mark->kind, &mark->name, &mark->name_length);
        for (int i = 0; i < MODALITIES && !mark->length && !own; i++) {
            const char *text = modality_rows[i].mark;
            mark->kind = (enum modality)i;
            if (text && (size_t)(end - at) >= strlen(text) && memcmp(at, text, strlen(text)) == 0)
                mark->length = (i64)strlen(text);
        }
        if (mark->length)
            return true;
    }
    return false;
}

static int add_marked(struct sample_builder *b, const struct mark *mark)
{
    if (!mark->name)
        return add_listed(b, mark->kind);
    char *name = string_format("%.*s", (int)mark->name_length, mark->name);
    int status = add_reference(b, mark->kind, name);
    memory_free(name);
    return status;
}

/* Without media a mark is text, as in what is said of HTML, or the media are missing: it is counted. */
static void note_mark(const struct sample_builder *b, enum modality kind)
{
    struct skip_notes *notes = b->place->notes;
    if (!notes || b->out->layout != SAMPLE_CHAT)
        return;
    notes_add(notes, b->place->origin, "marks %s in conversations that list no media, read as text",
              modality_rows[kind].mark);
    notes->total--; /* the record is a sample nevertheless */
}

/* Marks without a name refer to files only if the record lists some. */
int build_marked_text(struct sample_builder *b, const char *at, i64 length)
{
    const char *end = at + length;
    struct mark mark;
    bool lists = false;
    for (int i = 0; i < MODALITIES; i++)
        lists |= b->media[i] != NULL;
    while (find_mark(&mark, b, at, end, !lists)) {
        if (sample_add_text(b->out, at, mark.at - at) < 0 || add_marked(b, &mark) < 0)
            return -1;
        at = mark.at + mark.length;
    }
    if (!lists && find_mark(&mark, b, at, end, false))
        note_mark(b, mark.kind);
    return sample_add_text(b->out, at, end - at);
}

bool build_names_medium(const struct json *part, enum modality kind)
{
    const struct json *inner = json_get(part, modality_rows[kind].name);
    const struct json *bytes[] = {json_get(part, "bytes"), inner, json_get(inner, "bytes")};
    for (i64 i = 0; i < COUNT_OF(bytes); i++)
        if (json_get(bytes[i], "$bytes"))
            return true;
    return reference_of(part, kind) != NULL;
}

/* Refuses keys of a part that would be lost: those that say whether it is learned, and a medium beside
 * a text. Notes others. */
static int check_part(struct sample_builder *b, const struct json *part, const char *type)
{
    static const char read[] = "type text value content path url bytes index";
    struct json_iterator it;
    for (bool more = json_first(&it, part); more; more = json_next(&it, part)) {
        bool speaks = record_key_learning(it.key, it.value) != LEARNING_UNSAID || record_key_denies(it.key, it.value);
        if (json_says_nothing(it.value) || is_one_of(read, it.key))
            continue;
        if (speaks || is_one_of("mask weight loss_weight train training loss loss_mask", it.key))
            return error_set("key %s of a part: it changes what is learned and is not read: make two messages of the "
                             "parts, or leave the key out",
                             it.key);
        if (strncmp(it.key, type, strlen(it.key)) == 0 || strncmp(it.key, type, strlen(type)) == 0)
            continue; /* image, image_url */
        if (modality_named(it.key) < MODALITIES && modality_named(it.key) > MODALITY_TEXT)
            return error_set("a part of type %s has a key %s too: expected a part for each", type, it.key);
        note_key(b, it.key, "of parts, which are not read");
    }
    return 0;
}

/* A part of a conversation may say which of the listed media it shows: they stand in their order. */
static int check_index(const struct sample_builder *b, const struct json *part, enum modality kind)
{
    const struct json *index = sample_key(part, "index");
    return json_kind(index) != JSON_INTEGER || json_number(index, 0) == (double)b->used[kind]
               ? 0
               : error_set("a part of type %s has the index %.0f: expected them in the order of \"%s\"",
                           modality_rows[kind].name, json_number(index, 0), modality_rows[kind].list_key);
}

static int add_content_part(struct sample_builder *b, const struct json *part)
{
    const char *type = json_string(json_get(part, "type"), "text");
    if (json_kind(part) == JSON_STRING)
        return build_text(b, part);
    if (check_part(b, part, type) < 0)
        return -1;
    if (is_one_of("text input_text output_text", type)) {
        const struct json *text = sample_key(part, "text");
        text = text ? text : sample_key(part, "value") ? json_get(part, "value") : json_get(part, "content");
        return build_is_text(b, text) || json_kind(part) == JSON_NULL
                   ? build_text(b, text)
                   : error_set("a part of type %s without a text: expected {\"type\": \"text\", \"text\": TEXT}", type);
    }
    for (int i = 0; i < MODALITIES; i++) {
        enum modality kind = (enum modality)i;
        const char *name = modality_rows[kind].name;
        if (!modality_rows[kind].mark || strncmp(type, name, strlen(name)) != 0) /* also matches image_url */
            continue;
        if (build_names_medium(part, kind))
            return build_medium(b, kind, part);
        return check_index(b, part, kind) < 0 ? -1 : add_listed(b, kind);
    }
    return error_set("a part of type \"%.40s\": expected text, image, video or audio", type);
}

int build_content(struct sample_builder *b, const struct json *content)
{
    if (record_bytes(b->place->record, content))
        return build_text(b, content);
    if (json_kind(content) == JSON_STRING)
        return build_marked_text(b, json_string(content, ""), json_string_length(content));
    if (json_kind(content) != JSON_ARRAY)
        return error_set("a message without content: expected a text or a list of parts");
    for (i64 i = 0; i < json_count(content); i++)
        if (add_content_part(b, json_at(content, i)) < 0)
            return -1;
    return 0;
}
