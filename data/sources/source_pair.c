/* Reads a medium and the caption file beside it: a text, subtitles, or JSON as img2dataset writes
 * it. */
#include "data/sources/source_readers.h"
#include "data/media/subtitles.h"

#include <math.h>
#include <string.h>
#include <strings.h>

struct pair {
    struct source_file file; /* strings borrowed from the source */
    struct read_context *reading;
    bool given;
};

static void *pair_open(const struct source_file *file, struct read_context *reading)
{
    struct pair *pair = memory_alloc(sizeof *pair);
    *pair = (struct pair){.file = *file, .reading = reading};
    return pair;
}

static void pair_close(void *reader)
{
    memory_free(reader);
}

static i64 pair_position(const void *reader)
{
    const struct pair *pair = reader;
    return pair->given ? pair->file.bytes : 0;
}

static int add_json(struct sample *out, const struct buffer *text, const char *path, bool *blank)
{
    struct json *value = json_parse_line(text->data, text->length, path, 1);
    const struct json *caption = sample_caption(value, NULL);
    int status = value ? sample_add_caption(out, json_string(caption, ""), json_string_length(caption)) : -1;
    *blank = status == 0 && out->count == 1 && json_kind(json_get(value, "caption")) == JSON_STRING;
    json_free(value);
    return status;
}

static int add_subtitles(struct sample *out, const struct buffer *file, const char *path)
{
    struct buffer words = {0};
    i64 cues = subtitles_words(&words, file->data ? file->data : "", file->length, 0, INFINITY);
    int status = cues ? sample_add_text(out, words.data, words.length)
                      : error_set("no subtitles: expected lines like 00:00:01,000 --> 00:00:02,000");
    buffer_release(&words);
    out->subtitles = string_copy(path);
    return status;
}

static int add_caption(struct sample *out, const char *path, bool *blank)
{
    struct buffer text = {0};
    const char *extension = name_extension(path);
    bool json = strcasecmp(extension, "json") == 0 || strcasecmp(extension, "jsn") == 0;
    int status = file_read_most(&text, path, LINE_BYTES_MAX);
    if (status == 0)
        status = text_file_check(text.data, text.length);
    *blank = status == 0 && text_is_blank(text.data ? text.data : "", text.length);
    if (status == 0 && !*blank)
        status = json                    ? add_json(out, &text, path, blank)
                 : subtitles_named(path) ? add_subtitles(out, &text, path)
                                         : sample_add_caption(out, text.data ? text.data : "", text.length);
    buffer_release(&text);
    return status;
}

static enum source_result pair_next(void *reader, struct sample *out)
{
    struct pair *pair = reader;
    if (pair->given)
        return SOURCE_END;
    pair->given = true;
    out->name = string_copy(pair->file.path);
    out->layout = SAMPLE_CAPTIONED;
    struct sample_part *medium = sample_add(out, medium_kind(name_extension(pair->file.path)));
    medium->path = string_copy(pair->file.path);
    const struct source_columns *columns = pair->reading->columns;
    bool reads = pair->file.caption && !captions_are_ignored(columns);
    int status = reads ? add_caption(out, pair->file.caption, &pair->reading->blank) : 0;
    bool alone = pair->reading->media_alone && !captions_are_named(columns); /* else it gets one in the end */
    if (status == 0 && (out->count > 1 || alone))
        return SOURCE_SAMPLE;
    if (status < 0 && strncmp(error_text(), pair->file.caption, strlen(pair->file.caption)) != 0) /* it has its place */
        error_prefix("%s", pair->file.caption);
    sample_release(out);
    return status < 0 ? SOURCE_BAD : SOURCE_END;
}

const struct reader_kind pair_reader = {NULL, pair_open, pair_next, pair_position, pair_close};
