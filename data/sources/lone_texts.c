/* Short texts without a medium. Among captioned media they are captions whose medium is missing, so
 * that they are no documents. */
#include "data/formats/archive.h"
#include "data/sources/source_readers.h"

#include <string.h>

enum { TAR_MEMBERS_MOST = 4096 }; /* of a tar, these decide */

bool lone_texts_are_documents(const struct source_columns *columns)
{
    return columns && columns->lone_texts == LONE_TEXTS_READ;
}

bool lone_texts_are_left(const struct source_columns *columns, i64 lone, i64 captioned)
{
    int how = columns ? columns->lone_texts : LONE_TEXTS_AUTO;
    return how == LONE_TEXTS_LEAVE || (how == LONE_TEXTS_AUTO && captioned > 0 && captioned >= lone);
}

/* Hash of a name in small letters; in_folder: with its folder. */
static u64 name_hash(const char *name, size_t length, bool in_folder)
{
    char *small = string_format("%.*s", (int)length, name), *slash = strrchr(small, '/');
    const char *from = slash && !in_folder ? slash + 1 : small;
    for (char *c = small; *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    u64 hash = hash_bytes(from, (i64)strlen(from), in_folder);
    memory_free(small);
    return hash;
}

void lone_media_add(struct lone_media *media, const char *name, size_t length)
{
    hash_list_add(&media->names, name_hash(name, length, true));
    hash_list_add(&media->names, name_hash(name, length, false));
}

void lone_media_sort(struct lone_media *media)
{
    hash_list_sort(&media->names);
}

bool lone_media_name(const struct lone_media *media, const char *text, size_t length)
{
    if (media->names.count == 0)
        return false;
    if (hash_list_has(&media->names, name_hash(text, length, false)))
        return true;
    for (size_t i = length; i > 0 && text[i - 1] != '/'; i--)
        if (strchr("_-. ", text[i - 1]) && hash_list_has(&media->names, name_hash(text, i - 1, true)))
            return true;
    return false;
}

const char *tar_member_extension(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strchr(base, '.');
    bool meta = strncmp(base, "__", 2) == 0 && strstr(base + 2, "__");
    return !dot || dot == base || meta ? NULL : dot;
}

/* The members of a key, as far as their names and sizes tell. */
struct tar_key {
    char *name;
    bool medium, text, json, large;
};

static void end_key(struct tar_key *key, i64 *lone, i64 *captioned, struct lone_media *media)
{
    if (key->medium && !key->text && !key->json)
        lone_media_add(media, key->name, strlen(key->name));
    *captioned += key->medium && (key->text || key->json);
    *lone += key->text && !key->medium && !key->large;
    memory_free(key->name);
    *key = (struct tar_key){0};
}

static void add_to_key(struct tar_key *key, const char *extension, i64 bytes)
{
    int kind = medium_kind(extension);
    bool text = kind == MODALITY_TEXT || document_suffix(extension);
    key->medium |= kind > MODALITY_TEXT;
    key->json |= is_one_of("json jsn", name_extension(extension));
    key->text |= text;
    key->large |= text && bytes > CAPTION_BYTES_MAX;
}

bool tar_leaves_lone_texts(const char *path, const struct source_columns *columns, struct lone_media *media)
{
    struct archive_file *file = archive_file_open(path, true);
    struct tar_key key = {0};
    const char *name;
    i64 lone = 0, captioned = 0;
    for (i64 i = 0; file && i < TAR_MEMBERS_MOST && archive_file_next(file, &name) == 1; i++) {
        const char *dot = tar_member_extension(name);
        size_t length = dot ? (size_t)(dot - name) : 0;
        if (!dot)
            continue;
        if (key.name && (strlen(key.name) != length || strncmp(key.name, name, length) != 0))
            end_key(&key, &lone, &captioned, media);
        if (!key.name)
            key.name = string_format("%.*s", (int)length, name);
        add_to_key(&key, dot, archive_file_member_bytes(file));
    }
    end_key(&key, &lone, &captioned, media);
    lone_media_sort(media);
    archive_file_close(file);
    return lone_texts_are_left(columns, lone, captioned);
}
