/* Prints a source as text, one sample per line: layout, parts with length and hash, base name; or
 * the error that ended it. */
#ifndef WEFT_TESTS_SOURCE_TEXT_H
#define WEFT_TESTS_SOURCE_TEXT_H
#include "data/sources/sources.h"

#include <string.h>

static inline void source_print_sample(struct buffer *out, const struct sample *sample)
{
    static const char *const forms[] = {"plain", "captioned", "chat", "mixed"};
    static const char *const names[] = {"text", "image", "video", "audio", "ids"};
    const char *slash = strrchr(sample->name, '/');
    buffer_printf(out, "%s", forms[sample->layout]);
    for (i64 i = 0; i < sample->count; i++) {
        const struct buffer *bytes = &sample->parts[i].bytes;
        buffer_printf(out, " %s %lld %016llx", names[sample->parts[i].kind], (long long)bytes->length,
                      (unsigned long long)hash_bytes(bytes->data ? bytes->data : "", bytes->length, 0));
    }
    buffer_printf(out, " %s\n", slash ? slash + 1 : sample->name);
}

static inline void source_print(struct buffer *out, const char *path)
{
    static const char *const results[] = {
        [SOURCE_BAD] = "bad", [SOURCE_DAMAGED] = "damaged", [SOURCE_UNREACHABLE] = "unreachable"};
    struct source *source = source_open(path, NULL);
    struct sample sample;
    enum source_result result = source ? SOURCE_SAMPLE : SOURCE_END;
    if (!source)
        buffer_printf(out, "cannot be opened: %s\n", error_text());
    while (source && result != SOURCE_UNREACHABLE && (result = source_next(source, &sample)) != SOURCE_END) {
        if (result == SOURCE_SAMPLE)
            source_print_sample(out, &sample);
        else
            buffer_printf(out, "%s%s%s\n", results[result], result == SOURCE_BAD ? "" : ": ",
                          result == SOURCE_BAD ? "" : error_text());
        sample_release(&sample);
    }
    source_close(source);
}
#endif
