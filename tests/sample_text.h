/* What a source gives as text, and its comparison with what is expected. */
#ifndef WEFT_TESTS_SAMPLE_TEXT_H
#define WEFT_TESTS_SAMPLE_TEXT_H
#include "core/json.h"
#include "data/sources/sources.h"
#include "tests/files.h"
#include "tests/scratch.h"

/* Appends a text without the folders that the test's files are in, and with one name for the two
 * files of a record. */
static inline void put_local(struct buffer *out, const char *text)
{
    const char *const names[][2] = {
        {directory, ""}, {GOLDEN, ""}, {"/record.jsonl", "record"}, {"/record.json", "record"}, {"/", ""}};
    for (bool behind = false; *text;) {
        i64 i = 0;
        while (i < COUNT_OF(names) && !(strncmp(text, names[i][0], strlen(names[i][0])) == 0 && (i < 2 || behind)))
            i++;
        behind = i < 2;
        if (i < COUNT_OF(names))
            buffer_printf(out, "%s", names[i][1]);
        else
            buffer_append(out, text, 1);
        text += i < COUNT_OF(names) ? (i64)strlen(names[i][0]) : 1;
    }
    buffer_append(out, "", 0);
}

/* LAYOUT, then of each part <ROLE> KIND@FILE'BYTES'{KEYS}, then the variables of a conversation. */
static inline void put_sample(struct buffer *out, const struct sample *sample)
{
    static const char *const layouts[] = {"plain", "captioned", "chat", "mixed"};
    buffer_printf(out, "%s", layouts[sample->layout]);
    for (i64 i = 0; i < sample->count; i++) {
        const struct sample_part *part = &sample->parts[i];
        if (part->role)
            buffer_printf(out, " <%s%s>", part->role, part->unlearned ? ", read only" : "");
        buffer_printf(out, " %s", part->kind == SAMPLE_IDS ? "ids" : modality_rows[part->kind].name);
        if (part->path) {
            buffer_printf(out, "@");
            put_local(out, part->path);
        }
        for (i64 k = 0; part->kind == SAMPLE_IDS && k < part->bytes.length / 4; k++)
            buffer_printf(out, ",%d", ((const i32 *)part->bytes.data)[k]);
        if (part->kind != SAMPLE_IDS && part->bytes.length) {
            buffer_printf(out, "'");
            text_escape(out, part->bytes.data, min_i64(part->bytes.length, 200), "\r\n\t");
            buffer_printf(out, "'");
        }
        if (part->keys) {
            buffer_printf(out, " ");
            json_print(out, part->keys, 0);
        }
    }
    if (sample->variables) {
        buffer_printf(out, " with ");
        json_print(out, sample->variables, 0);
    }
}

/* All that a source gives, as the lines of a case expect it. */
static inline struct json *source_gives(const char *path, const struct source_request *request)
{
    struct source *source = source_open(path, request);
    struct json *all = json_array();
    struct sample sample;
    struct buffer line = {0};
    i64 count;
    if (!source) {
        buffer_printf(&line, "refused: ");
        put_local(&line, error_text());
        json_push(all, json_of_string(line.data));
        buffer_release(&line);
        return all;
    }
    for (enum source_result result; (result = source_next(source, &sample)) != SOURCE_END; sample_release(&sample)) {
        buffer_clear(&line);
        if (result == SOURCE_SAMPLE)
            put_sample(&line, &sample);
        else
            buffer_printf(&line, "%s: ", result == SOURCE_BAD ? "bad" : "damaged");
        if (result != SOURCE_SAMPLE)
            put_local(&line, error_text());
        json_push(all, json_of_string(line.data));
    }
    const struct source_note *notes = source_notes(source, &count);
    for (i64 i = 0; i < count; i++) {
        buffer_clear(&line);
        buffer_printf(&line, "%lld %s (", (long long)notes[i].count, notes[i].what);
        put_local(&line, notes[i].first);
        buffer_printf(&line, ")");
        json_push(all, json_of_string(line.data));
    }
    source_close(source);
    buffer_release(&line);
    return all;
}

/* expected: lines. request: NULL, or what to read and how. */
static inline void expect_source(const char *name, const struct source_request *request, const char *expected)
{
    char *path = path_join(directory, name);
    struct json *gives = source_gives(path, request);
    struct buffer all = {0};
    for (i64 i = 0; i < json_count(gives); i++)
        buffer_printf(&all, "%s\n", json_string(json_at(gives, i), ""));
    assert_string_equal(all.data ? all.data : "", expected);
    buffer_release(&all);
    json_free(gives);
    memory_free(path);
}

/* Puts files {name, content} and the folders that they are in. */
static inline void put_all(const char *const files[][2], i64 count)
{
    for (i64 i = 0; i < count; i++) {
        text_in(directory, files[i][0], files[i][1]);
    }
}

#endif
