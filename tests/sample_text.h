/* Samples of a source as text, one per line, and their comparison with what is expected. */
#ifndef WEFT_TESTS_SAMPLE_TEXT_H
#define WEFT_TESTS_SAMPLE_TEXT_H
#include "data/sources/sources.h"
#include "tests/scratch.h"
#include "tests/tier.h"

static inline void draw_part(struct buffer *out, const struct sample_part *part)
{
    if (part->role)
        buffer_printf(out, " <%s>", part->role);
    buffer_printf(out, " %s", part->kind == SAMPLE_IDS ? "ids" : modality_rows[part->kind].name);
    if (part->path)
        buffer_printf(out, "@%s",
                      strncmp(part->path, directory, strlen(directory)) == 0 ? part->path + strlen(directory) + 1
                                                                             : part->path);
    for (i64 i = 0; part->kind == SAMPLE_IDS && i < part->bytes.length / 4; i++)
        buffer_printf(out, ",%d", ((const i32 *)part->bytes.data)[i]);
    if (part->kind != SAMPLE_IDS && part->bytes.length)
        buffer_printf(out, "'%.*s'", (int)min_i64(part->bytes.length, 60), part->bytes.data);
}

/* Appends all samples of a source, one per line: FORM PARTS, "bad" or "damaged". */
static inline void draw(struct buffer *out, const char *path)
{
    static const char *const forms[] = {"plain", "captioned", "chat", "mixed"};
    const struct source_columns columns = {.outside = OUTSIDE_ALLOW}; /* some name files of / */
    struct source *source = source_open(path, &(struct source_request){.columns = &columns});
    struct sample sample;
    enum source_result result;
    if (!source)
        fail_msg("%s", error_text());
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        if (result != SOURCE_SAMPLE) {
            buffer_printf(out, result == SOURCE_BAD ? "bad\n" : "damaged\n");
            continue;
        }
        buffer_printf(out, "%s", forms[sample.layout]);
        for (i64 i = 0; i < sample.count; i++)
            draw_part(out, &sample.parts[i]);
        buffer_printf(out, "\n");
        sample_release(&sample);
    }
    source_close(source);
}

static inline void expect(char *path, const char *expected)
{
    struct buffer drawn = {0};
    draw(&drawn, path);
    assert_string_equal(drawn.data ? drawn.data : "", expected);
    buffer_release(&drawn);
    memory_free(path);
}

/* Puts files {name, content} and the folders that they are in. */
static inline void put_all(const char *const files[][2], i64 count)
{
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(directory, files[i][0]), *slash = strrchr(path, '/');
        *slash = 0;
        assert_int_equal(directory_make(path), 0);
        memory_free(path);
        memory_free(put_file(files[i][0], files[i][1], (i64)strlen(files[i][1])));
    }
}

#endif
