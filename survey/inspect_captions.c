/* What the media of a folder that have no captions could be captioned by: the names of their folders
 * and their own. */
#include "survey/inspect.h"
#include "data/formats/file_name.h"
#include "data/sources/source_readers.h"

#include <string.h>

void captions_count(struct caption_offer *o, struct hash_set *known, const char *caption, const char *path)
{
    i64 i = 0;
    o->media++;
    o->words += !name_says_nothing(caption);
    o->distinct += hash_set_add(known, hash_bytes(caption, (i64)strlen(caption), 0));
    while (i < o->count && strcmp(o->first[i].caption, caption) != 0)
        i++;
    if (i == CAPTIONS_SHOWN)
        return;
    if (i == o->count)
        o->first[o->count++] = (struct caption_shown){string_copy(caption), string_copy(path), 0};
    o->first[i].media++;
}

static void offer(struct caption_offer *o, struct hash_set *known, const char *path, enum source_captions captions)
{
    struct buffer caption = {0};
    caption_from_name(&caption, path, captions);
    buffer_append(&caption, "", 1);
    if (*caption.data)
        captions_count(o, known, caption.data, path);
    else if (!o->without)
        o->without = string_copy(path);
    buffer_release(&caption);
}

void captions_find(struct captions_found *out, const struct source *source, const char *root)
{
    struct hash_set folders = {0}, names = {0};
    i64 count;
    const struct source_file *files = source_files(source, &count);
    size_t length = strlen(root);
    *out = (struct captions_found){0};
    for (i64 i = 0; i < count; i++) {
        const char *path = files[i].path;
        if (files[i].use != FILE_MEDIUM || files[i].why || strncmp(path, root, length) != 0)
            continue;
        path += length + strspn(path + length, "/");
        out->media++;
        offer(&out->folder, &folders, path, CAPTIONS_FOLDER);
        offer(&out->name, &names, path, CAPTIONS_NAME);
    }
    hash_set_release(&folders);
    hash_set_release(&names);
}

void caption_offer_release(struct caption_offer *o)
{
    for (i64 i = 0; i < o->count; i++) {
        memory_free(o->first[i].caption);
        memory_free(o->first[i].path);
    }
    memory_free(o->without);
    *o = (struct caption_offer){0};
}

void captions_release(struct captions_found *found)
{
    caption_offer_release(&found->folder);
    caption_offer_release(&found->name);
}

bool captions_have_classes(const struct caption_offer *o, i64 media)
{
    return o->distinct > 1 && o->media >= 2 * o->distinct && 5 * o->words >= 4 * media;
}

void captions_list(struct buffer *out, const struct caption_offer *o)
{
    for (i64 i = 0; i < o->count; i++)
        buffer_printf(out, "%s\"%s\" (%lld)", i ? ", " : "", o->first[i].caption, (long long)o->first[i].media);
    if (o->distinct > o->count)
        buffer_printf(out, " and %lld more", (long long)(o->distinct - o->count));
}

static void advise(struct buffer *out, const struct caption_offer *o, const char *nothing)
{
    if (o->media)
        buffer_printf(out, "\"%s\" of %s; %lld such, %lld different", o->first[0].caption, o->first[0].path,
                      (long long)o->media, (long long)o->distinct);
    else
        buffer_printf(out, "%s, first: %s", nothing, o->without);
}

void captions_advise(struct buffer *out, const struct captions_found *f)
{
    buffer_printf(out, "--captions folder captions each by its innermost folder (");
    advise(out, &f->folder, "here none is in one");
    buffer_printf(out, "), --captions name by its own name (");
    advise(out, &f->name, "here they say nothing");
    buffer_printf(out, "), and --captions none trains only tokenizers");
}

int captions_named(const char *word)
{
    static const char *const words[] = {"files", "folder", "name", "none"};
    for (int i = 0; i < COUNT_OF(words); i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return error_usage("--captions %s: expected folder (the name of the innermost folder of a medium is its caption), "
                       "name (the words of its own name), none (tokenizers alone) or files (the texts beside media "
                       "alone)",
                       word);
}

const char *captions_word(enum source_captions captions)
{
    return captions == CAPTIONS_FOLDER ? "folder"
           : captions == CAPTIONS_NAME ? "name"
           : captions == CAPTIONS_NONE ? "none"
                                       : "files";
}
