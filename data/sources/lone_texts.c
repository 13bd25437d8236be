/* Short texts without a medium. Among captioned media they are captions whose medium is missing, so
 * that they are no documents. */
#include "data/formats/archive.h"
#include "data/sources/source_readers.h"
#include "tokenizers/text/text.h"

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

static bool is_ascii(const char *text)
{
    while (*text > 0)
        text++;
    return !*text;
}

/* Hash of a name in small letters; in_folder: with its folder. Letters with marks may be written in
 * two ways (NFC and NFD), of which macOS uses another one than most. */
static u64 name_hash(const char *name, size_t length, bool in_folder)
{
    char *small = string_format("%.*s", (int)length, name), *slash = strrchr(small, '/');
    const char *from = slash && !in_folder ? slash + 1 : small;
    struct buffer folded = {0};
    for (char *c = small; *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    if (!is_ascii(from))
        text_fold(&folded, from, (i64)strlen(from));
    u64 hash =
        hash_bytes(folded.length ? folded.data : from, folded.length ? folded.length : (i64)strlen(from), in_folder);
    buffer_release(&folded);
    memory_free(small);
    return hash;
}

/* Length of a name without its last word, if a number stands in front of that: p225_001 of
 * p225_001_mic1. 0: none. */
static size_t numbered_length(const char *name, size_t length)
{
    while (length > 0 && !strchr("/_-", name[length - 1]))
        length--;
    bool number = length > 1 && name[length - 1] != '/' && name[length - 2] >= '0' && name[length - 2] <= '9';
    return number ? length - 1 : 0;
}

void lone_media_add(struct lone_media *media, const char *name, size_t length)
{
    size_t numbered = numbered_length(name, length);
    for (int in_folder = 0; in_folder < 2; in_folder++) {
        hash_list_add(&media->names, name_hash(name, length, in_folder));
        if (numbered)
            hash_list_add(&media->names, name_hash(name, numbered, in_folder));
    }
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

/* The members of a key, as far as their names and sizes tell. */
struct tar_key {
    char *name;
    bool medium, text, json, large;
};
struct tar_scan {
    struct tar_key key;
    i64 captioned, alone;   /* media with a text, and without */
    struct hash_list texts; /* the names of short texts without a medium */
    struct lone_media *media;
};

static void end_key(struct tar_scan *scan)
{
    struct tar_key *key = &scan->key;
    bool captioned = key->text || key->json;
    scan->captioned += key->medium && captioned;
    scan->alone += key->medium && !captioned;
    if (key->medium && !captioned)
        lone_media_add(scan->media, key->name, strlen(key->name));
    if (key->text && !key->medium && !key->large)
        hash_list_add(&scan->texts, name_hash(key->name, strlen(key->name), true));
    memory_free(key->name);
    *key = (struct tar_key){0};
}

/* True for the tar of a folder that was not sorted: its media and their texts do not follow one
 * another. */
static bool is_unsorted(struct tar_scan *scan)
{
    return hash_list_common(&scan->texts, &scan->media->names) > 0 &&
           2 * (scan->captioned + scan->alone) >= scan->texts.count;
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
    struct tar_scan scan = {.media = media};
    const char *name;
    for (i64 i = 0; file && i < TAR_MEMBERS_MOST && archive_file_next(file, &name) == 1; i++) {
        const char *dot = tar_member_extension(name), *key = scan.key.name;
        size_t length = dot ? (size_t)(dot - name) : 0;
        if (!dot)
            continue;
        if (key && (strlen(key) != length || strncmp(key, name, length) != 0))
            end_key(&scan);
        if (!scan.key.name)
            scan.key.name = string_format("%.*s", (int)length, name);
        add_to_key(&scan.key, dot, archive_file_member_bytes(file));
    }
    end_key(&scan);
    archive_file_close(file);
    bool unsorted = is_unsorted(&scan) && !lone_texts_are_documents(columns); /* sorts the names of media */
    bool left = unsorted || lone_texts_are_left(columns, scan.texts.count, scan.captioned);
    hash_list_release(&scan.texts);
    return left;
}
