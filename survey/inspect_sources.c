/* weft inspect: raw data as the stages read it, with the samples its files become, and skipped
 * files with the reason. Media are not decoded. */
#include "survey/inspect.h"
#include "data/sources/sources.h"

#include <string.h>

enum { FIRST_BAD = 10 };

const char *outcome_name(int outcome)
{
    return outcome == BECOMES_TEXT    ? "text"
           : outcome == BECOMES_IDS   ? "document of ids"
           : outcome == BECOMES_CHAT  ? "conversation"
           : outcome == BECOMES_MIXED ? "document of texts and media"
                                      : modality_rows[outcome - BECOMES_IDS].captioned;
}

struct inspect_sources_tally {
    i64 samples[SPLITS][OUTCOMES], bad;
    struct json *bad_first;
    u32 *becomes; /* [files] bit mask of outcomes */
};

enum outcome sample_outcome(const struct sample *sample)
{
    switch (sample->layout) {
    case SAMPLE_PLAIN:
        return sample->parts[0].kind == SAMPLE_IDS ? BECOMES_IDS : BECOMES_TEXT;
    case SAMPLE_CAPTIONED:
        return BECOMES_IDS + (enum outcome)sample->parts[0].kind;
    case SAMPLE_CHAT:
        return BECOMES_CHAT;
    case SAMPLE_MIXED:
        break;
    }
    return BECOMES_MIXED;
}

/* Path of a medium that does not exist; NULL if all do. */
static const char *missing_medium(const struct sample *sample)
{
    for (i64 i = 0; i < sample->count; i++) {
        const char *path = sample->parts[i].path;
        if (path && (!file_exists(path) || file_is_directory(path)))
            return path;
    }
    return NULL;
}

int source_visit(struct source *source, const struct sample_visitor *visitor)
{
    struct sample sample;
    enum source_result result;
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        const char *missing = result == SOURCE_SAMPLE ? missing_medium(&sample) : NULL;
        if (result == SOURCE_UNREACHABLE)
            return -1;
        if (missing)
            error_set("%s: there is no file %s", sample.name, missing);
        if (result == SOURCE_SAMPLE && !missing)
            visitor->see(visitor->context, source, &sample, source_at(source));
        else
            visitor->bad(visitor->context, error_text());
        sample_release(&sample);
    }
    return 0;
}

static void count_bad(void *context, const char *why)
{
    struct inspect_sources_tally *tally = context;
    if (tally->bad++ >= FIRST_BAD)
        return;
    struct json *row = json_object();
    json_set(row, "why", json_of_string(why));
    json_push(tally->bad_first, row);
}

static void count_sample(void *context, const struct source *source, const struct sample *sample, i64 file)
{
    struct inspect_sources_tally *tally = context;
    (void)source;
    if (file >= 0)
        tally->becomes[file] |= 1u << sample_outcome(sample);
    tally->samples[sample->split][sample_outcome(sample)]++;
}

static int read_all(struct inspect_sources_tally *tally, struct source *source)
{
    i64 count;
    source_files(source, &count);
    tally->becomes = memory_alloc(max_i64(1, count) * (i64)sizeof *tally->becomes);
    return source_visit(source, &(struct sample_visitor){tally, count_sample, count_bad});
}

/* ---- JSON ---- */

static const char *split_name(int split)
{
    return split == SPLIT_DRAWN ? "drawn" : split == SPLIT_NONE ? "none" : split_names[split];
}

static struct json *samples_json(const struct inspect_sources_tally *tally, bool drawn)
{
    struct json *list = json_array();
    for (int split = 0; split < SPLITS; split++)
        for (int outcome = 0; outcome < OUTCOMES; outcome++) {
            if (tally->samples[split][outcome] == 0)
                continue;
            struct json *row = json_object();
            json_set(row, "part", json_of_string(drawn ? "drawn" : split_names[split]));
            json_set(row, "becomes", json_of_string(outcome_name(outcome)));
            json_set(row, "samples", json_of_integer(tally->samples[split][outcome]));
            json_push(list, row);
        }
    return list;
}

static struct json *notes_json(const struct source *source)
{
    i64 count;
    const struct source_note *notes = source_notes(source, &count);
    struct json *list = json_array();
    for (i64 i = 0; i < count; i++) {
        struct json *row = json_object();
        json_set(row, "count", json_of_integer(notes[i].count));
        json_set(row, "what", json_of_string(notes[i].what));
        json_set(row, "first", json_of_string(notes[i].first));
        json_push(list, row);
    }
    return list;
}

static const char *describe_use(const struct source_file *file)
{
    switch (file->use) {
    case FILE_SAMPLES:
        return file->caption ? "a captioned medium" : "samples";
    case FILE_NAMED:
        return "a medium that a line or its name captions";
    case FILE_BESIDE:
        return "part of a sample";
    case FILE_STATE:
    case FILE_APART:
        return "no data";
    case FILE_MEDIUM:
    case FILE_LEFT_OUT:
        break;
    }
    return "nothing";
}

static struct json *uses_json(const struct source_file *files, i64 count)
{
    static const struct source_file kinds[] = {{.use = FILE_SAMPLES}, {.use = FILE_SAMPLES, .caption = (char *)""},
                                               {.use = FILE_NAMED},   {.use = FILE_BESIDE},
                                               {.use = FILE_STATE},   {.use = FILE_LEFT_OUT}};
    struct json *list = json_array();
    for (i64 k = 0; k < COUNT_OF(kinds); k++) {
        i64 n = 0, bytes = 0;
        for (i64 i = 0; i < count; i++)
            if (strcmp(describe_use(&files[i]), describe_use(&kinds[k])) == 0) {
                n++;
                bytes += files[i].bytes;
            }
        if (n == 0)
            continue;
        struct json *row = json_object();
        json_set(row, "becomes", json_of_string(describe_use(&kinds[k])));
        json_set(row, "files", json_of_integer(n));
        json_set(row, "bytes", json_of_integer(bytes));
        json_push(list, row);
    }
    return list;
}

static struct json *outcomes_json(u32 becomes)
{
    struct buffer names = {0};
    for (int outcome = 0; outcome < OUTCOMES; outcome++)
        if (becomes >> outcome & 1)
            buffer_printf(&names, "%s%s", names.length ? ", " : "", outcome_name(outcome));
    struct json *value = json_of_string(names.length ? names.data : "nothing");
    buffer_release(&names);
    return value;
}

struct inspect_sources_format {
    const char *ending;
    i64 files, samples, bad;
    u32 becomes;
};

/* Finds or adds the entry for a file name ending. NULL if the table is full. */
static struct inspect_sources_format *format_of(struct inspect_sources_format *formats, i64 *count, i64 most,
                                                const char *ending)
{
    i64 i = 0;
    while (i < *count && strcmp(formats[i].ending, ending) != 0)
        i++;
    if (i == most)
        return NULL;
    if (i == *count)
        formats[(*count)++].ending = ending;
    return &formats[i];
}

/* File formats, each with counts and the kinds of samples its records become. */
static struct json *formats_json(const struct source *source, const struct inspect_sources_tally *tally)
{
    struct inspect_sources_format formats[32] = {{0}};
    i64 count, used = 0;
    const struct source_file *files = source_files(source, &count);
    struct json *list = json_array();
    for (i64 i = 0; i < count; i++) {
        const char *ending = source_ending(&files[i]);
        struct inspect_sources_format *format = ending ? format_of(formats, &used, COUNT_OF(formats), ending) : NULL;
        if (!format)
            continue;
        format->files++;
        format->samples += files[i].samples;
        format->bad += files[i].bad;
        format->becomes |= tally->becomes[i];
    }
    for (i64 i = 0; i < used; i++) {
        struct json *row = json_object();
        json_set(row, "ending", json_of_string(formats[i].ending));
        json_set(row, "files", json_of_integer(formats[i].files));
        json_set(row, "samples", json_of_integer(formats[i].samples));
        json_set(row, "bad", json_of_integer(formats[i].bad));
        json_set(row, "become", outcomes_json(formats[i].becomes));
        json_push(list, row);
    }
    return list;
}

static struct json *file_json(const struct source_file *file, const char *root, u32 outcomes)
{
    size_t length = strlen(root);
    bool below = strncmp(file->path, root, length) == 0 && file->path[length];
    const char *name = below ? file->path + length + strspn(file->path + length, "/") : file->path;
    const char *why = file->why                  ? file->why
                      : file->use == FILE_MEDIUM ? "no line refers to it and no text file accompanies it"
                                                 : NULL;
    struct json *row = json_object();
    json_set(row, "file", json_of_string(name));
    json_set(row, "bytes", json_of_integer(file->bytes));
    json_set(row, "part", json_of_string(split_name(file->split)));
    json_set(row, "becomes", json_of_string(describe_use(file)));
    if (outcomes)
        json_set(row, "samples_become", outcomes_json(outcomes));
    json_set(row, "samples", json_of_integer(file->samples));
    json_set(row, "bad", json_of_integer(file->bad));
    json_set(row, "passed", json_of_integer(file->passed));
    if (why)
        json_set(row, "why", json_of_string(why));
    return row;
}

/* What captions the media without one could have. */
static void put_captions(struct json *j, const struct source *source, const char *path)
{
    struct captions_found found;
    struct buffer advice = {0};
    captions_find(&found, source, path);
    if (found.media) {
        captions_advise(&advice, &found);
        json_set(j, "without_captions", json_of_integer(found.media));
        json_set(j, "weft_init", json_of_string(advice.data));
    }
    buffer_release(&advice);
    captions_release(&found);
}

static struct json *source_json(const struct source *source, struct inspect_sources_tally *tally, const char *path,
                                bool files)
{
    i64 count, bytes = 0;
    const struct source_file *all = source_files(source, &count);
    struct json *j = json_object(), *list = json_array();
    bool drawn = count > 0;
    for (i64 i = 0; i < count; i++) {
        bytes += all[i].bytes;
        drawn = drawn && all[i].split == SPLIT_DRAWN;
        if (files)
            json_push(list, file_json(&all[i], path, tally->becomes[i]));
    }
    json_set(j, "kind", json_of_string("data"));
    json_set(j, "files", json_of_integer(count));
    json_set(j, "bytes", json_of_integer(bytes));
    json_set(j, "files_become", uses_json(all, count));
    json_set(j, "formats", formats_json(source, tally));
    json_set(j, "parts", json_of_string(drawn ? "drawn" : "named"));
    json_set(j, "samples", samples_json(tally, drawn));
    if (source_prompts(source))
        json_set(j, "prompts", json_of_integer(source_prompts(source)));
    json_set(j, "left_out", notes_json(source));
    put_captions(j, source, path);
    json_set(j, "bad", json_of_integer(tally->bad));
    if (tally->bad)
        json_set(j, "bad_first", tally->bad_first);
    else
        json_free(tally->bad_first);
    if (files)
        json_set(j, "listing", list);
    else
        json_free(list);
    return j;
}

struct json *inspect_sources(const char *path, bool files, const struct source_columns *columns)
{
    struct source *source = source_open(path, &(struct source_request){.columns = columns});
    struct inspect_sources_tally tally = {.bad_first = json_array()};
    if (!source) {
        json_free(tally.bad_first);
        return NULL;
    }
    struct json *j = read_all(&tally, source) == 0 ? source_json(source, &tally, path, files) : NULL;
    if (!j)
        json_free(tally.bad_first);
    memory_free(tally.becomes);
    source_close(source);
    return j;
}
