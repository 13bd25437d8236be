/* Finds the files of one folder that belong to another: captions to media, ids to an index, metadata
 * to a tar. A caption of a.png is, in this order
 *
 *   a.png.txt     its name with one more ending
 *   a.txt         its name with another ending
 *   A.TXT         the same, but for capitals
 *   a.text.txt    the only text whose name agrees up to the first dot, of the only medium such
 *
 * and, of several kinds of files, a text, else JSON, else subtitles, else a document. */
#include "data/media/subtitles.h"
#include "data/sources/source_readers.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum rank { RANK_TEXT, RANK_JSON, RANK_SUBTITLES, RANK_DOCUMENT, RANKS };
enum relation { OF_NAME, OF_STEM, OF_FOLDED, RELATIONS };
struct folder {
    struct source_file **files; /* sorted by name, capitals ignored */
    i64 count;
};

bool file_is_readme(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return document_suffix(name) && strncasecmp(name, "README.", 7) == 0;
}

bool file_describes(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strcspn(name, ".");
    char *stem = string_format("%.*s", (int)length, name);
    bool describes = is_one_of("README LICENSE LICENCE COPYING NOTICE CITATION", stem) &&
                     (document_suffix(name) || medium_kind(name_extension(name)) == MODALITY_TEXT);
    memory_free(stem);
    return describes;
}

/* ---- Names ---- */

/* Length of the name up to the last dot, with it. */
static size_t stem_length(const char *path)
{
    const char *extension = name_extension(path);
    return *extension ? (size_t)(extension - path) : strlen(path);
}

/* Length of the name up to the first dot of its base name, with it. */
static size_t key_length(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strchr(base, '.');
    return dot ? (size_t)(dot + 1 - path) : strlen(path);
}

/* The kind of a file that may be a caption; RANKS: it cannot be one. */
static enum rank rank_of(const struct source_file *file)
{
    const char *extension = name_extension(file->path);
    if (file->use == FILE_BESIDE || file_is_readme(file->path))
        return RANKS;
    return medium_kind(extension) == MODALITY_TEXT                                                      ? RANK_TEXT
           : is_one_of("json jsn", extension)                                                           ? RANK_JSON
           : subtitles_named(file->path)                                                                ? RANK_SUBTITLES
           : document_suffix(file->path) && name_unpacked_length(file->path) == (i64)strlen(file->path) ? RANK_DOCUMENT
                                                                                                        : RANKS;
}

static bool is_related(const struct source_file *file, const struct source_file *medium, enum relation relation)
{
    size_t length = stem_length(file->path), stem = stem_length(medium->path);
    if (relation == OF_NAME)
        return length == strlen(medium->path) + 1 && strncmp(file->path, medium->path, length - 1) == 0;
    return length == stem && (relation == OF_STEM ? strncmp(file->path, medium->path, length) == 0
                                                  : strncasecmp(file->path, medium->path, length) == 0);
}

static int compare_names(const void *a, const void *b)
{
    const struct source_file *left = *(struct source_file *const *)a, *right = *(struct source_file *const *)b;
    int order = strcasecmp(left->path, right->path);
    return order ? order : strcmp(left->path, right->path);
}

/* Finds [*begin, *end) of the files whose names begin with the first `length` bytes of file i's. */
static void find_group(const struct folder *f, i64 i, size_t length, i64 *begin, i64 *end)
{
    *begin = i;
    *end = i + 1;
    while (*begin > 0 && strncasecmp(f->files[*begin - 1]->path, f->files[i]->path, length) == 0)
        --*begin;
    while (*end < f->count && strncasecmp(f->files[*end]->path, f->files[i]->path, length) == 0)
        ++*end;
}

static bool is_read_medium(const struct source_file *file)
{
    return file->use == FILE_MEDIUM || file->caption;
}

/* ---- Captions ---- */

static void attach(struct source_file *file, const struct source_file *to, const char *what)
{
    file->use = FILE_BESIDE;
    memory_free(file->why);
    file->why = string_format("%s of %s", what, to->path);
}

static void take_caption(struct source_file *medium, struct source_file *caption, enum rank rank)
{
    static const char *const what[RANKS] = {"caption", "caption or metadata", "subtitles", "caption or metadata"};
    if (medium->caption && rank == RANK_JSON) {
        attach(caption, medium, "metadata");
    } else if (medium->caption) {
        caption->reader = NULL;
        file_leave_out(caption, string_copy("captions of media that have another one beside them"));
    } else {
        medium->caption = string_copy(caption->path);
        medium->use = FILE_SAMPLES;
        medium->reader = &pair_reader;
        attach(caption, medium, what[rank]);
    }
}

/* The medium that leads among those with the stem of `medium`: a clip before a picture before a
 * sound, because pictures beside clips are thumbnails. */
static const struct source_file *leading_medium(const struct folder *f, i64 begin, i64 end,
                                                const struct source_file *medium, enum relation relation)
{
    for (i64 rank = 0; medium_leading(rank) >= 0; rank++)
        for (i64 i = begin; i < end; i++)
            if (is_read_medium(f->files[i]) && is_related(f->files[i], medium, relation) &&
                medium_kind(name_extension(f->files[i]->path)) == medium_leading(rank))
                return f->files[i];
    return NULL;
}

static const struct modality_row *row_of(const struct source_file *medium)
{
    return &modality_rows[medium_kind(name_extension(medium->path))];
}

/* Gives medium i its captions of a rank by a relation. */
static void match_captions(const struct folder *f, i64 i, enum rank rank, enum relation relation)
{
    struct source_file *medium = f->files[i];
    i64 begin, end;
    find_group(f, i, stem_length(medium->path), &begin, &end);
    if (rank == RANK_SUBTITLES && (medium->caption || !row_of(medium)->lasts))
        return;
    if (relation == OF_FOLDED && medium->caption)
        return;
    if (relation != OF_NAME && leading_medium(f, begin, end, medium, relation) != medium)
        return;
    for (i64 k = begin; k < end; k++)
        if (rank_of(f->files[k]) == rank && is_related(f->files[k], medium, relation) &&
            (rank != RANK_SUBTITLES || !medium->caption))
            take_caption(medium, f->files[k], rank);
}

/* Says of the media beside one with a caption why they have none. */
static void match_thumbnails(const struct folder *f, i64 i)
{
    struct source_file *medium = f->files[i];
    i64 begin, end;
    find_group(f, i, stem_length(medium->path), &begin, &end);
    const struct source_file *leading = leading_medium(f, begin, end, medium, OF_STEM);
    if (!medium->caption && leading && leading->caption && leading != medium)
        medium->why = string_format("media next to a %s of the same name, which has the caption", row_of(leading)->one);
}

/* ---- Fields: key.image.png and key.caption.txt ---- */

/* What follows the dot of a number, a date or a version is no name of a field. */
static bool is_field(const struct source_file *file, size_t key)
{
    return stem_length(file->path) <= key || !strchr("0123456789", file->path[key]);
}

/* Pairs the only medium with the only text of the files [begin, end) of a key. */
static void match_fields(const struct folder *f, i64 begin, i64 end, size_t key)
{
    struct source_file *medium = NULL, *texts[RANKS] = {NULL};
    i64 media = 0, counts[RANKS] = {0};
    for (i64 i = begin; i < end; i++) {
        struct source_file *file = f->files[i];
        enum rank rank = rank_of(file);
        if (!is_read_medium(file) && rank == RANKS)
            continue;
        if (is_read_medium(file)) {
            medium = file;
            media++;
        } else if (file->use != FILE_BESIDE) {
            texts[rank] = file;
            counts[rank]++;
        }
    }
    if (media != 1 || medium->caption || !is_field(medium, key))
        return;
    static const enum rank order[] = {RANK_TEXT, RANK_SUBTITLES, RANK_JSON, RANK_DOCUMENT};
    for (i64 i = 0; i < COUNT_OF(order); i++) {
        bool fits = order[i] != RANK_SUBTITLES || row_of(medium)->lasts;
        if (!fits || counts[order[i]] == 0)
            continue;
        if (counts[order[i]] == 1 && is_field(texts[order[i]], key))
            take_caption(medium, texts[order[i]], order[i]);
        return;
    }
}

/* ---- Other files ---- */

static void match_index(const struct folder *f, i64 i)
{
    i64 begin, end;
    find_group(f, i, stem_length(f->files[i]->path), &begin, &end);
    for (i64 k = begin; k < end; k++)
        if (is_related(f->files[k], f->files[i], OF_STEM) && name_ends_with(f->files[k]->path, ".bin"))
            attach(f->files[k], f->files[i], "ids");
}

/* Recognizes img2dataset's table of metadata beside a tar, or beside a folder whose name is a
 * number. */
static void match_table(const struct folder *f, i64 i)
{
    struct source_file *table = f->files[i];
    char *folder = string_format("%.*s", (int)stem_length(table->path) - 1, table->path);
    i64 begin, end;
    find_group(f, i, stem_length(table->path), &begin, &end);
    for (i64 k = begin; k < end; k++)
        if (f->files[k]->reader == &tar_reader && table->use != FILE_BESIDE)
            attach(table, f->files[k], "metadata");
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    bool number = *name && name[strspn(name, "0123456789")] == 0;
    if (table->use != FILE_BESIDE && number && file_is_directory(folder))
        attach(table, &(struct source_file){.path = folder}, "metadata");
    memory_free(folder);
}

/* True for a medium that is not read as a file of its own: in a format that is not read, or at an
 * address. */
static bool is_unread_medium(const struct source_file *file)
{
    const char *extension = name_extension(file->path), *slash = strrchr(file->path, '/');
    bool hidden = *(slash ? slash + 1 : file->path) == '.';
    return file->use == FILE_LEFT_OUT && !hidden &&
           (medium_kind(extension) > MODALITY_TEXT || medium_kind_unread(extension) >= 0);
}

bool companions_lack_caption(const struct source_file *file)
{
    return (file->use == FILE_MEDIUM && !file->why) || is_unread_medium(file);
}

/* Leaves out the texts beside a medium that is not read: they describe it. */
static void match_unread(const struct folder *f, i64 i)
{
    i64 begin, end;
    find_group(f, i, stem_length(f->files[i]->path), &begin, &end);
    for (i64 k = begin; k < end; k++) {
        struct source_file *file = f->files[k];
        bool of_it = is_related(file, f->files[i], OF_NAME) || is_related(file, f->files[i], OF_FOLDED);
        if (k == i || !of_it || rank_of(file) == RANKS)
            continue;
        file->reader = NULL;
        file_leave_out(file, string_copy("texts beside a medium that is not read"));
    }
}

/* ---- All ---- */

static void match_media(const struct folder *f)
{
    for (enum rank rank = 0; rank < RANKS; rank++)
        for (enum relation relation = 0; relation < RELATIONS; relation++)
            for (i64 i = 0; i < f->count; i++)
                if (is_read_medium(f->files[i]))
                    match_captions(f, i, rank, relation);
    for (i64 i = 0; i < f->count; i++)
        if (is_read_medium(f->files[i]))
            match_thumbnails(f, i);
}

void companions_match(struct source_file **files, i64 count)
{
    struct folder f = {files, count};
    if (count)
        qsort(files, (size_t)count, sizeof(struct source_file *), compare_names);
    match_media(&f);
    for (i64 i = 0; i < count; i++) {
        if (is_unread_medium(files[i]))
            match_unread(&f, i);
        else if (files[i]->reader == &index_reader)
            match_index(&f, i);
        else if (files[i]->reader == &parquet_reader)
            match_table(&f, i);
    }
    for (i64 i = 0, begin, end; i < count; i = end) {
        find_group(&f, i, key_length(files[i]->path), &begin, &end);
        match_fields(&f, i, end, key_length(files[i]->path));
    }
}
