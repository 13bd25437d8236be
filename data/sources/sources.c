#include "data/remote/remote.h"

#include "core/inventory.h"
#include "data/sources/source_inside.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Names of media ---- */

/* Absolute path without `.`, `..` and double slashes; links are not resolved. */
static char *absolute_path(const char *path)
{
    char *here = *path == '/' ? NULL : getcwd(NULL, 0), *all = string_format("%s/%s", here ? here : "", path);
    char *out = string_copy(all), *end = out;
    for (char *save, *word = strtok_r(all, "/", &save); word; word = strtok_r(NULL, "/", &save)) {
        if (strcmp(word, ".") == 0)
            continue;
        if (strcmp(word, "..") == 0) {
            while (end > out && *--end != '/')
                ;
            continue;
        }
        *end++ = '/';
        memmove(end, word, strlen(word));
        end += strlen(word);
    }
    *end = 0;
    free(here);
    memory_free(all);
    return out;
}

u64 source_path_hash(const char *path)
{
    char *name = absolute_path(path);
    u64 hash = hash_bytes(name, (i64)strlen(name), 0);
    memory_free(name);
    return hash;
}

static int compare_places(const void *a, const void *b)
{
    u64 left = ((const struct source_medium *)a)->hash, right = ((const struct source_medium *)b)->hash;
    return left < right ? -1 : left > right;
}

bool source_file_is_read(const struct source_file *file)
{
    return file->reader && !file->elsewhere;
}

bool source_file_waits(const struct source *s, const struct source_file *file)
{
    return captions_are_named(s->request.columns) && !file->reader && medium_kind(name_extension(file->path)) > 0 &&
           file->use != FILE_LEFT_OUT;
}

static void weigh_and_index(struct source *s)
{
    for (i64 i = 0; i < s->listing.count; i++)
        if (source_file_is_read(&s->listing.files[i]) || source_file_waits(s, &s->listing.files[i]))
            s->total += s->listing.files[i].bytes;
    s->media = memory_alloc(max_i64(1, s->listing.count) * (i64)sizeof *s->media);
    for (i64 i = 0; i < s->listing.count; i++)
        if (medium_kind(name_extension(s->listing.files[i].path)) > MODALITY_TEXT)
            s->media[s->media_count++] = (struct source_medium){source_path_hash(s->listing.files[i].path), i};
    if (s->media_count)
        qsort(s->media, (size_t)s->media_count, sizeof *s->media, compare_places);
}

static struct source_file *find_medium(const struct source *s, const char *path)
{
    struct source_medium wanted = {source_path_hash(path), 0};
    const struct source_medium *found =
        s->media_count ? bsearch(&wanted, s->media, (size_t)s->media_count, sizeof wanted, compare_places) : NULL;
    return found ? &s->listing.files[found->file] : NULL;
}

/* ---- Opening ---- */

bool source_file_is_dealt(const struct source_file *file)
{
    return file->use == FILE_SAMPLES || (file->use == FILE_STATE && file->split != SPLIT_NONE);
}

/* Assigns every parts-th file to this reader, in the order of the listing, so that the names alone
 * decide. */
static void deal_files(struct source *s)
{
    i64 number = 0;
    for (i64 i = 0; s->request.jobs > 1 && i < s->listing.count; i++)
        if (source_file_is_dealt(&s->listing.files[i]))
            s->listing.files[i].elsewhere = number++ % s->request.jobs != s->request.job;
}

/* Notes the files of a use, with the reason; only the first of several readers does. */
static void note_files(struct source *s, enum file_use use)
{
    for (i64 i = 0; s->request.job == 0 && i < s->listing.count; i++)
        if (s->listing.files[i].use == use)
            notes_add(&s->reading.notes, s->listing.files[i].path, "%s", s->listing.files[i].why);
}

static void leave_texts_out(struct source *s)
{
    for (i64 i = 0; i < s->listing.count; i++) {
        struct source_file *file = &s->listing.files[i];
        if (file->use != FILE_SAMPLES || (file->reader != &text_reader && file->reader != &index_reader))
            continue;
        file->use = FILE_APART;
        file->reader = NULL;
        file->why = string_copy("text-only files");
    }
}

static bool has_anything(const struct source *s)
{
    for (i64 i = 0; i < s->listing.count; i++)
        if (s->listing.files[i].use == FILE_SAMPLES || s->listing.files[i].use == FILE_MEDIUM)
            return true;
    return false;
}

static int open_listing(struct source *s, const char *path)
{
    if (listing_open(&s->listing, path, s->request.columns) < 0)
        return -1;
    if (s->request.media_alone)
        leave_texts_out(s);
    if (has_anything(s))
        return 0;
    note_files(s, FILE_LEFT_OUT);
    note_files(s, FILE_STATE);
    note_files(s, FILE_APART);
    error_set("%s: nothing there that can be read: expected .txt, .md, .jsonl (captions.jsonl, metadata.jsonl), .json, "
              ".parquet, .csv, media beside "
              "texts of the same name, .tar, or .idx with .bin",
              path);
    const struct source_note *note = s->reading.notes.list;
    return note ? error_prefix("%lld %s (%s)", (long long)note->count, note->what, note->first) : -1;
}

struct source *source_open(const char *path, const struct source_request *request)
{
    struct source *s = memory_alloc(sizeof *s);
    *s = (struct source){.request = request ? *request : (struct source_request){0}, .open = -1};
    s->reading.media_alone = s->request.media_alone;
    s->reading.columns = s->request.columns;
    if ((!is_address(path) && inventory_check(path) < 0) || open_listing(s, path) < 0) {
        source_close(s);
        return NULL;
    }
    s->real = absolute_path(s->listing.folder);
    if (!is_address(path) && (!request || !request->columns || request->columns->outside == OUTSIDE_REFUSE)) {
        char *root = realpath(s->listing.folder, NULL);
        s->reading.root = string_copy(root ? root : s->real);
        free(root);
    }
    deal_files(s);
    note_files(s, FILE_LEFT_OUT);
    weigh_and_index(s);
    return s;
}

static void close_reader(struct source *s)
{
    if (s->open >= 0)
        s->listing.files[s->open].reader->close(s->reader);
    s->open = -1;
    s->reader = NULL;
}

void source_close(struct source *s)
{
    if (!s)
        return;
    close_reader(s);
    listing_close(&s->listing);
    notes_release(&s->reading.notes);
    memory_free(s->media);
    memory_free(s->reading.root);
    memory_free(s->real);
    memory_free(s);
}

/* ---- Splits ---- */

static const char *without_folder(const char *name, const char *folder)
{
    size_t length = strlen(folder);
    if (strncmp(name, folder, length) != 0)
        return name;
    return name + length + strspn(name + length, "/");
}

static const char *first_medium(const struct sample *sample)
{
    for (i64 i = 0; i < sample->count; i++)
        if (sample->parts[i].path)
            return sample->parts[i].path;
    return NULL;
}

/* Keyed by the first medium, so that all captions of a picture share a split. Names are relative to
 * the folder, so that it may move. */
double source_draw(const struct source *s, const struct sample *sample)
{
    const char *medium = first_medium(sample);
    char *real = medium ? absolute_path(medium) : NULL;
    const char *key = real ? without_folder(real, s->real) : without_folder(sample->name, s->listing.folder);
    u64 hash = hash_bytes(key, (i64)strlen(key), 0);
    memory_free(real);
    return rng_uniform((struct rng_key){s->request.seed, RNG_SPLIT}, (u32)hash, (u32)(hash >> 32), 0, 0);
}

static enum split draw_split(const struct source *s, const struct sample *sample)
{
    const struct source_request *r = &s->request;
    double draw = source_draw(s, sample);
    return draw < r->validation ? SPLIT_VALIDATION : draw < r->validation + r->test ? SPLIT_TEST : SPLIT_TRAIN;
}

/* The split of a sample: enum split, or SPLIT_NONE. */
static int decide_split(const struct source *s, const struct source_file *file, const struct sample *sample)
{
    const char *medium = first_medium(sample);
    int split = file->split;
    if (split == SPLIT_NONE && medium) {
        const struct source_file *place = find_medium(s, medium);
        split = place ? place->split : SPLIT_NONE;
    }
    if (split != SPLIT_DRAWN)
        return split;
    return sample->split_said ? sample->split_said - 1 : (int)draw_split(s, sample);
}

/* ---- Reading ---- */

static void name_media(struct source *s, const struct sample *sample)
{
    for (i64 i = 0; i < sample->count; i++) {
        struct source_file *file = sample->parts[i].path ? find_medium(s, sample->parts[i].path) : NULL;
        if (file && file->use == FILE_MEDIUM)
            file->use = FILE_NAMED;
    }
}

/* Takes the caption from a sample (captions: none). */
static void drop_caption(struct sample *sample)
{
    while (sample->count > 1) {
        struct sample_part *part = &sample->parts[--sample->count];
        buffer_release(&part->bytes);
        memory_free(part->path);
        memory_free(part->within);
    }
    memory_free(sample->subtitles);
    sample->subtitles = NULL;
    buffer_release(&sample->cues);
}

/* Completes a sample. False if it is none or in no split; it is then noted and released. */
static bool take_sample(struct source *s, struct source_file *file, struct sample *sample)
{
    int split = decide_split(s, file, sample);
    bool mute = sample->layout == SAMPLE_CAPTIONED && captions_are_ignored(s->request.columns);
    name_media(s, sample);
    if (mute)
        drop_caption(sample);
    mute = mute && !s->request.media_alone;
    if (split < 0 || mute) {
        notes_add(&s->reading.notes, sample->name, "%s",
                  mute ? CAPTIONS_IGNORED : "samples beside the part train, in no part");
        file->passed++;
        sample_release(sample);
        return false;
    }
    const char *place = without_folder(sample->name, s->listing.folder);
    sample->split = (enum split)split;
    sample->key = hash_bytes(place, (i64)strlen(place), 0);
    file->samples++;
    return true;
}

static enum source_result open_reader(struct source *s, i64 index)
{
    struct source_file *file = &s->listing.files[index];
    close_reader(s);
    s->failures = remote_failures();
    s->prompts = s->reading.notes.prompts;
    s->reader = file->reader->open(file, &s->reading);
    if (s->reader) {
        s->open = index;
        return SOURCE_SAMPLE;
    }
    if (remote_failures() > s->failures)
        return SOURCE_UNREACHABLE;
    file->bad++;
    s->lost += file->bytes;
    return SOURCE_DAMAGED;
}

static enum source_result end_damaged(struct source *s, struct source_file *file)
{
    if (remote_failures() > s->failures) {
        close_reader(s);
        return SOURCE_UNREACHABLE;
    }
    s->lost += max_i64(0, file->bytes - file->reader->position(s->reader));
    file->bad++;
    close_reader(s);
    return SOURCE_DAMAGED;
}

/* Closes a file. A medium whose JSON has no caption may still be named by lines, as if the JSON
 * were absent. */
static void end_file(struct source *s, struct source_file *file)
{
    close_reader(s);
    bool nothing = file->samples == 0 && file->bad == 0;
    file->blank = s->reading.blank;
    s->reading.blank = false;
    if (file->reader == &pair_reader && nothing)
        file->use = FILE_MEDIUM;
    else if (nothing && file->passed == 0 && s->reading.notes.prompts == s->prompts) {
        notes_add(&s->reading.notes, file->path, "files with nothing in them");
        file->passed++;
    }
}

static void begin_sample(struct sample *out, const struct source_file *file)
{
    *out = (struct sample){.layout = SAMPLE_CAPTIONED, .name = string_copy(file->path)};
    sample_add(out, medium_kind(name_extension(file->path)))->path = string_copy(file->path);
}

/* Makes a sample of a medium, with the caption that its name says or its subtitles. False if it has
 * none and is none alone, and after an error. */
static enum source_result emit_medium(struct source *s, struct source_file *file, struct sample *out)
{
    const struct source_columns *columns = s->request.columns;
    bool alone = s->request.media_alone;
    begin_sample(out, file);
    if (sample_add_name(out, without_folder(file->path, s->listing.folder), columns) < 0) {
        error_prefix("%s", file->path);
        sample_release(out);
        file->bad++;
        file->use = FILE_NAMED;
        out->split = (enum split)max_i64(file->split, SPLIT_TRAIN);
        return SOURCE_BAD;
    }
    bool said = out->count > 1 || alone || (!captions_are_ignored(columns) && sample_add_subtitles(out, columns));
    if (said && take_sample(s, file, out))
        return SOURCE_SAMPLE;
    sample_release(out);
    return SOURCE_END;
}

enum source_result source_next_in(struct source *s, i64 index, struct sample *out)
{
    struct source_file *file = &s->listing.files[index];
    *out = (struct sample){0};
    if (!file->reader)
        return file->use == FILE_MEDIUM && source_file_waits(s, file) ? emit_medium(s, file, out) : SOURCE_END;
    enum source_result result = s->open == index ? SOURCE_SAMPLE : open_reader(s, index);
    if (result != SOURCE_SAMPLE) {
        out->split = (enum split)max_i64(file->split, SPLIT_TRAIN);
        return result;
    }
    for (;;) {
        i64 noted = s->reading.notes.total;
        result = file->reader->next(s->reader, out);
        file->passed += s->reading.notes.total - noted;
        if (result == SOURCE_SAMPLE && !take_sample(s, file, out))
            continue;
        if (result == SOURCE_BAD)
            file->bad++;
        else if (result == SOURCE_DAMAGED)
            result = end_damaged(s, file);
        else if (result == SOURCE_END)
            end_file(s, file);
        if (result != SOURCE_SAMPLE)
            *out = (struct sample){.split = (enum split)max_i64(file->split, SPLIT_TRAIN)};
        return result;
    }
}

const char *const uncaptioned_words[UNCAPTIONED_KINDS] = {
    " without a line or text file that refers to them", " whose caption files are empty",
    " in no folder that names them (captions: folder)",
    " whose names say nothing, as those of cameras (captions: name)"};

enum uncaptioned source_uncaptioned(const struct source *s, const struct source_file *file)
{
    if (captions_are_named(s->request.columns))
        return s->request.columns->captions == CAPTIONS_FOLDER ? UNCAPTIONED_FOLDER : UNCAPTIONED_NAME;
    return file->blank ? UNCAPTIONED_BLANK : UNCAPTIONED;
}

static void note_unused_medium(struct source *s, const struct source_file *file)
{
    enum uncaptioned reason = source_uncaptioned(s, file);
    if (file->why)
        notes_add(&s->reading.notes, file->path, "%s", file->why);
    else
        notes_add(&s->reading.notes, reason == UNCAPTIONED_BLANK ? file->caption : file->path, "%s%s",
                  modality_rows[medium_kind(name_extension(file->path))].many, uncaptioned_words[reason]);
}

/* True if lines or tables may name media: one of several readers cannot know the media that the
 * others' lines name. */
static bool lines_name(const struct source *s)
{
    const struct reader_kind *const no[] = {&text_reader, &tar_reader, &index_reader, &pair_reader};
    for (i64 i = 0; i < s->listing.count; i++) {
        const struct reader_kind *reader = s->listing.files[i].reader;
        bool names = reader && s->listing.files[i].use == FILE_SAMPLES;
        for (i64 k = 0; k < COUNT_OF(no); k++)
            names = names && reader != no[k];
        if (names)
            return true;
    }
    return false;
}

static void note_unused_media(struct source *s)
{
    for (; s->at < 2 * s->listing.count; s->at++) {
        const struct source_file *file = &s->listing.files[s->at - s->listing.count];
        if (file->use == FILE_MEDIUM && s->request.job == 0)
            notes_add(&s->reading.notes, file->path,
                      "media next to lines or tables: a job of several does not know whether they refer to them");
    }
}

static bool is_own_file(const struct source *s, i64 index)
{
    const struct source_file *file = &s->listing.files[index];
    if (s->request.jobs <= 1)
        return true;
    return file->reader == &pair_reader ? !file->elsewhere : index % s->request.jobs == s->request.job;
}

/* Returns media that nothing names, after all files: as samples if requested, or if their names or
 * embedded subtitles caption them, otherwise as notes. */
static enum source_result next_unused_medium(struct source *s, struct sample *out)
{
    if (s->request.jobs > 1 && lines_name(s))
        note_unused_media(s);
    while (s->at < 2 * s->listing.count) {
        i64 index = s->at++ - s->listing.count;
        struct source_file *file = &s->listing.files[index];
        if (source_file_waits(s, file))
            s->behind += file->bytes;
        if (file->use != FILE_MEDIUM || !is_own_file(s, index))
            continue;
        bool may = !file->why && file->split != SPLIT_NONE;
        enum source_result result = may ? emit_medium(s, file, out) : SOURCE_END;
        if (result != SOURCE_END)
            return result;
        note_unused_medium(s, file);
    }
    return SOURCE_END;
}

enum source_result source_next_unnamed(struct source *s, struct sample *out)
{
    close_reader(s);
    s->at = max_i64(s->at, s->listing.count);
    *out = (struct sample){0};
    return next_unused_medium(s, out);
}

enum source_result source_next(struct source *s, struct sample *out)
{
    while (s->at < s->listing.count) {
        const struct source_file *file = &s->listing.files[s->at];
        bool due = file->use == FILE_SAMPLES && !file->elsewhere;
        enum source_result result = due ? source_next_in(s, s->at, out) : SOURCE_END;
        s->given++;
        if (result == SOURCE_END || result == SOURCE_DAMAGED) {
            s->behind += source_file_is_read(file) ? file->bytes : 0;
            s->at++;
            s->given = 0;
        }
        if (result != SOURCE_END)
            return result;
    }
    return next_unused_medium(s, out);
}

/* ---- Queries ---- */

void source_progress(const struct source *s, i64 *done, i64 *total)
{
    const struct source_file *file = s->open >= 0 ? &s->listing.files[s->open] : NULL;
    *done = s->behind + (file ? min_i64(file->reader->position(s->reader), file->bytes) : 0);
    *total = s->total;
}

double source_lost(const struct source *s)
{
    return s->total ? (double)s->lost / (double)s->total : 0;
}

const struct source_file *source_files(const struct source *s, i64 *count)
{
    *count = s->listing.count;
    return s->listing.files;
}

i64 source_at(const struct source *s)
{
    return s->open;
}

const char *source_ending(const struct source_file *file)
{
    const char *document = file->reader == &text_reader ? document_suffix(file->path) : NULL;
    bool zip = file->reader == &tar_reader && name_ends_with(file->path, ".zip");
    return file->use != FILE_SAMPLES || !file->reader ? NULL
           : document                                 ? document
           : zip                                      ? ".zip"
                                                      : file->reader->suffix;
}

const struct source_note *source_notes(const struct source *s, i64 *count)
{
    *count = s->reading.notes.count;
    return s->reading.notes.list;
}

i64 source_prompts(const struct source *s)
{
    return s->reading.notes.prompts;
}

void source_log(const struct source *s, bool unused_media)
{
    for (i64 i = 0; i < s->reading.notes.count; i++) {
        const struct source_note *note = &s->reading.notes.list[i];
        bool unused = false;
        for (i64 k = 0; k < UNCAPTIONED_KINDS; k++)
            unused |= name_ends_with(note->what, uncaptioned_words[k]);
        if (unused && !unused_media)
            continue;
        if (strncmp(note->what, "keys ", 5) == 0 || strncmp(note->what, "tables ", 7) == 0) /* of what is read */
            log_info("noted: %lld %s (first: %s)", (long long)note->count, note->what, note->first);
        else if (note->count == 1)
            log_info("skipped: %s (%s)", note->first, note->what);
        else
            log_info("skipped: %lld %s (first: %s)", (long long)note->count, note->what, note->first);
    }
}
