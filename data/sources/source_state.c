/* Saves a source's position as JSON and resumes from it. */
#include "data/sources/source_inside.h"

static struct json *notes_json(const struct skip_notes *notes)
{
    struct json *list = json_array();
    for (i64 i = 0; i < notes->count; i++) {
        struct json *note = json_array();
        json_push(note, json_of_string(notes->list[i].what));
        json_push(note, json_of_string(notes->list[i].first));
        json_push(note, json_of_integer(notes->list[i].count));
        json_push(list, note);
    }
    return list;
}

/* Media whose use changed while reading: named by lines, or released because their caption file had no
 * caption, or no words at all. Stored as runs of files [first, count, first, count, ...]. */
static bool is_named(const struct source_file *file)
{
    return file->use == FILE_NAMED;
}

static bool is_waiting(const struct source_file *file)
{
    return file->use == FILE_MEDIUM && file->reader == &pair_reader;
}

static bool is_blank(const struct source_file *file)
{
    return file->blank;
}

static struct json *runs_json(const struct source *s, bool (*has)(const struct source_file *file))
{
    struct json *runs = json_array();
    for (i64 k = 0, end; s->media_count && k < s->listing.count; k = end + 1) {
        for (end = k; end < s->listing.count && has(&s->listing.files[end]); end++)
            ;
        if (end > k) {
            json_push(runs, json_of_integer(k));
            json_push(runs, json_of_integer(end - k));
        }
    }
    return runs;
}

struct json *source_state(const struct source *s)
{
    struct json *j = json_object();
    json_set(j, "file", json_of_integer(s->at));
    json_set(j, "given", json_of_integer(s->given));
    json_set(j, "lost", json_of_integer(s->lost));
    json_set(j, "notes", notes_json(&s->reading.notes));
    json_set(j, "prompts", json_of_integer(s->reading.notes.prompts));
    json_set(j, "named", runs_json(s, is_named));
    json_set(j, "waiting", runs_json(s, is_waiting));
    json_set(j, "blank", runs_json(s, is_blank));
    return j;
}

static void restore_notes(struct skip_notes *notes, const struct json *list)
{
    notes_release(notes);
    for (i64 i = 0; i < json_count(list); i++) {
        const struct json *note = json_at(list, i);
        i64 count = json_integer(json_at(note, 2), 0);
        notes_add(notes, json_string(json_at(note, 1), ""), "%s", json_string(json_at(note, 0), ""));
        notes->list[i].count = count;
        notes->total += count - 1;
    }
}

static void set_named(struct source_file *file)
{
    file->use = FILE_NAMED;
}

static void set_waiting(struct source_file *file)
{
    file->use = FILE_MEDIUM;
}

static void set_blank(struct source_file *file)
{
    file->blank = true;
}

static void restore_runs(struct source *s, const struct json *runs, void (*set)(struct source_file *file))
{
    for (i64 i = 0; i + 1 < json_count(runs); i += 2) {
        i64 first = json_integer(json_at(runs, i), 0), count = json_integer(json_at(runs, i + 1), 0);
        for (i64 k = max_i64(0, first); k < min_i64(first + count, s->listing.count); k++)
            set(&s->listing.files[k]);
    }
}

static int skip_samples(struct source *s, i64 count)
{
    struct sample sample;
    i64 file = s->at;
    while (s->given < count) {
        enum source_result result = source_next(s, &sample);
        if (result == SOURCE_UNREACHABLE)
            return interrupted() ? 1 : -1;
        if (result == SOURCE_END || s->at != file)
            return error_set("%s: fewer samples than when it was read before: remove its output and start again",
                             s->listing.files[file].path);
        sample_release(&sample);
        if (interrupted())
            return 1;
    }
    return 0;
}

int source_resume(struct source *s, const struct json *state)
{
    i64 file = json_integer(json_get(state, "file"), -1), given = json_integer(json_get(state, "given"), -1);
    if (file < 0 || file > 2 * s->listing.count || given < 0 || (given > 0 && file >= s->listing.count))
        return error_set("the saved position is not in %s: remove its output and start again", s->listing.folder);
    for (i64 i = 0; i < min_i64(file, s->listing.count); i++)
        s->behind += source_file_is_read(&s->listing.files[i]) ? s->listing.files[i].bytes : 0;
    for (i64 i = 0; i < file - s->listing.count; i++)
        s->behind += source_file_waits(s, &s->listing.files[i]) ? s->listing.files[i].bytes : 0;
    s->at = file;
    int status = skip_samples(s, given);
    s->lost = json_integer(json_get(state, "lost"), 0);
    restore_notes(&s->reading.notes, json_get(state, "notes"));
    s->reading.notes.prompts = json_integer(json_get(state, "prompts"), 0);
    restore_runs(s, json_get(state, "waiting"), set_waiting);
    restore_runs(s, json_get(state, "named"), set_named);
    restore_runs(s, json_get(state, "blank"), set_blank);
    return status;
}
