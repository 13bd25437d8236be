#include "core/json.h"
#include "data/media/media.h"
#include "data/sources/source_readers.h"
#include "data/media/subtitles.h"
#include "tokenizers/text/text.h"

#include <math.h>
#include <string.h>
#include <strings.h>

void sample_release(struct sample *s)
{
    for (i64 i = 0; i < s->count; i++) {
        buffer_release(&s->parts[i].bytes);
        memory_free(s->parts[i].path);
        memory_free(s->parts[i].within);
        memory_free(s->parts[i].role);
        json_free(s->parts[i].keys);
    }
    memory_free(s->parts);
    memory_free(s->name);
    memory_free(s->speaker);
    memory_free(s->subtitles);
    buffer_release(&s->cues);
    json_free(s->variables);
    *s = (struct sample){0};
}

struct sample_part *sample_add(struct sample *s, int kind)
{
    if (s->count == s->capacity) {
        i64 wanted = max_i64(4, 2 * s->capacity), size = (i64)sizeof *s->parts;
        s->parts = memory_resize(s->parts, s->capacity * size, wanted * size);
        s->capacity = wanted;
    }
    struct sample_part *part = &s->parts[s->count++];
    *part = (struct sample_part){.kind = kind};
    return part;
}

int text_file_check(const char *text, i64 length)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    const char *zero = length > 0 ? memchr(text, 0, (size_t)length) : NULL;
    if (length >= (i64)sizeof pointer - 1 && memcmp(text, pointer, sizeof pointer - 1) == 0)
        return error_set("a pointer of Git LFS instead of the file: git lfs pull");
    if (zero && !(length >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0)))
        return error_set("byte %lld of a text is 0: expected UTF-8 (if it is UTF-16: iconv -f UTF-16 -t UTF-8)",
                         (long long)(zero - text));
    return 0;
}

/* Length of a byte order mark. */
static i64 mark_length(const char *text, i64 length)
{
    return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

bool text_is_blank(const char *text, i64 length)
{
    i64 at = mark_length(text, length);
    while (at < length && memchr(" \t\r\n\v\f", text[at], 6))
        at++;
    return at == length;
}

int sample_add_text(struct sample *s, const char *text, i64 length)
{
    i64 bad = text_invalid_utf8(text, length);
    if (bad == 0 && length >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0))
        return error_set("a text in UTF-16: expected UTF-8 (iconv -f UTF-16 -t UTF-8)");
    if (bad >= 0)
        return error_set("byte %lld of a text is not UTF-8", (long long)bad);
    if (length > 0)
        buffer_append(&sample_add(s, MODALITY_TEXT)->bytes, text, length);
    return 0;
}

int sample_add_caption(struct sample *s, const char *text, i64 length)
{
    i64 begin = mark_length(text, length);
    while (length > begin && memchr(" \t\r\n", text[length - 1], 4))
        length--;
    return sample_add_text(s, text + begin, length - begin);
}

static i64 cues_inside(struct buffer *out, const struct sample_part *part, const char *name, const char *language)
{
    struct file_view view = {(const u8 *)part->bytes.data, part->bytes.length};
    if (part->path && file_map(&view, part->path) < 0)
        return -1;
    i64 cues = film_subtitles(out, view.data, view.bytes, part->path ? part->path : name, language);
    if (part->path)
        file_unmap(&view);
    return cues;
}

bool sample_add_subtitles(struct sample *s, const struct source_columns *columns)
{
    const char *language = columns ? columns->subtitles : NULL;
    int kind = s->count == 1 ? s->parts[0].kind : MODALITY_TEXT;
    struct buffer words = {0};
    if (kind == SAMPLE_IDS || !modality_rows[kind].lasts || (language && strcmp(language, "none") == 0))
        return false;
    if (cues_inside(&s->cues, &s->parts[0], s->name, language) > 0)
        subtitles_words(&words, s->cues.data, s->cues.length, 0, INFINITY);
    bool said = words.length > 0 && sample_add_text(s, words.data, words.length) == 0;
    if (!said)
        buffer_release(&s->cues);
    buffer_release(&words);
    return said;
}

char *path_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return string_copy(".");
    return slash == path ? string_copy("/") : string_format("%.*s", (int)(slash - path), path);
}
