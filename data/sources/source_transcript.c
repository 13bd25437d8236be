/* Reads texts of lines NAME TEXT, in which NAME is a medium of the same folder, with its ending or
 * without: LibriSpeech's *.trans.txt. Other texts whose lines begin with names of media are left out:
 * they are no documents, and tables of their own. */
#include "data/sources/source_readers.h"

#include <string.h>
#include <strings.h>

enum { LINES_LOOKED_AT = 64, NAME_BYTES_MOST = 200 };

/* ---- Lines ---- */

struct transcript_line {
    i64 name, text; /* length of the name; where the text begins */
    char separator;
};

/* Splits NAME TEXT. False if the line does not begin with what may be a name: one with a number or
 * the ending of a medium. */
static bool split_line(struct transcript_line *out, const char *line, i64 length)
{
    bool number = false;
    i64 n = 0;
    for (; n < length && !strchr(" \t,|#\r", line[n]); n++)
        number = number || (line[n] >= '0' && line[n] <= '9');
    i64 end = n;
    while (end < length && (line[end] == '#' || (end > n && line[end] >= '0' && line[end] <= '9')))
        end++; /* Flickr8k: a.jpg#0, a.jpg#1 */
    *out = (struct transcript_line){.name = n, .text = end, .separator = end < length ? line[end] : 0};
    if (n == 0 || n > NAME_BYTES_MOST || end == length || !strchr(" \t,|", line[end]))
        return false;
    char *name = string_format("%.*s", (int)n, line);
    bool medium = medium_kind(name_extension(name)) > MODALITY_TEXT;
    memory_free(name);
    return number || medium;
}

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* The medium in a folder that a line names, or NULL. `ending`: of the medium before. */
static char *medium_of(const char *folder, const char *name, const char **ending)
{
    char *path = path_join(folder, name);
    if (medium_kind(name_extension(name)) > MODALITY_TEXT && file_exists(path))
        return path;
    memory_free(path);
    if (**ending) {
        path = string_format("%s/%s.%s", folder, name, *ending);
        if (file_exists(path))
            return path;
        memory_free(path);
    }
    for (int kind = MODALITY_TEXT + 1; kind < MODALITIES; kind++)
        for (const char *word = modality_rows[kind].suffixes; *word; word += strspn(word, " ")) {
            int length = (int)strcspn(word, " ");
            path = string_format("%s/%s.%.*s", folder, name, length, word);
            if (file_exists(path)) {
                *ending = path + strlen(path) - length;
                return path;
            }
            memory_free(path);
            word += length;
        }
    return NULL;
}

/* ---- Which texts are lists ---- */

/* Hashes of the names of media without a caption, with their endings and without. */
static void add_names(struct hash_list *names, const struct listing *l)
{
    for (i64 i = 0; i < l->count; i++) {
        const char *base = base_of(l->files[i].path), *extension = name_extension(base);
        if (!companions_lack_caption(&l->files[i]))
            continue;
        hash_list_add(names, hash_bytes(base, (i64)strlen(base), 0));
        hash_list_add(names, hash_bytes(base, extension - base - 1, 0));
    }
    hash_list_sort(names);
}

/* What the first lines of a text are. */
struct transcript_scan {
    i64 lines, named, plain; /* plain: named, and their text stands behind white space */
};

static struct transcript_scan scan_text(const char *path, const struct hash_list *names)
{
    struct transcript_scan scan = {0};
    struct line_reader reader;
    struct transcript_line parts;
    if (line_reader_open(&reader, path) < 0)
        return scan;
    while (scan.lines < LINES_LOOKED_AT && line_reader_next(&reader) == 1) {
        const char *line = reader.line.data;
        i64 length = reader.line.length;
        scan.lines += length > 0;
        if (length == 0 || !split_line(&parts, line, length))
            continue;
        const char *base = line + parts.name;
        while (base > line && base[-1] != '/')
            base--;
        if (!hash_list_has(names, hash_bytes(base, line + parts.name - base, 0)))
            continue;
        scan.named++;
        scan.plain += parts.separator == ' ' || parts.separator == '\t';
    }
    line_reader_close(&reader);
    return scan;
}

/* True if the first line of a text names a medium of its own folder. */
static bool is_beside_media(const char *path)
{
    struct line_reader reader;
    struct transcript_line parts;
    char *folder = path_folder(path), *medium = NULL;
    const char *ending = "";
    bool open = line_reader_open(&reader, path) == 0;
    for (i64 i = 0; open && !medium && i < LINES_LOOKED_AT && line_reader_next(&reader) == 1; i++)
        if (reader.line.length && split_line(&parts, reader.line.data, reader.line.length)) {
            char *name = string_format("%.*s", (int)parts.name, reader.line.data);
            medium = medium_of(folder, name, &ending);
            memory_free(name);
        }
    if (open)
        line_reader_close(&reader);
    memory_free(folder);
    bool is = medium != NULL;
    memory_free(medium);
    return is;
}

void transcripts_match(struct listing *l)
{
    struct hash_list names = {0};
    add_names(&names, l);
    for (i64 i = 0; names.count && i < l->count; i++) {
        struct source_file *file = &l->files[i];
        if (file->use != FILE_SAMPLES || file->reader != &text_reader || document_suffix(file->path))
            continue;
        struct transcript_scan scan = scan_text(file->path, &names);
        if (scan.named == 0 || 2 * scan.named < scan.lines)
            continue;
        if (scan.plain == scan.named && is_beside_media(file->path)) {
            file->reader = &transcript_reader;
            continue;
        }
        file->reader = NULL;
        file_leave_out(file, string_copy(LISTS));
    }
    hash_list_release(&names);
}

/* ---- Reading ---- */

struct transcript {
    struct line_reader reader;
    char *folder, *ending;
};

static void *transcript_open(const struct source_file *file, struct read_context *reading)
{
    struct transcript *t = memory_alloc(sizeof *t);
    (void)reading;
    if (line_reader_open(&t->reader, file->path) < 0) {
        memory_free(t);
        return NULL;
    }
    t->folder = path_folder(file->path);
    t->ending = string_copy("");
    return t;
}

static void transcript_close(void *reader)
{
    struct transcript *t = reader;
    line_reader_close(&t->reader);
    memory_free(t->folder);
    memory_free(t->ending);
    memory_free(t);
}

static i64 transcript_position(const void *reader)
{
    return archive_file_position(((const struct transcript *)reader)->reader.in.file);
}

static char *take_medium(struct transcript *t, const char *line, i64 length)
{
    char *name = string_format("%.*s", (int)length, line);
    const char *ending = t->ending;
    char *path = medium_of(t->folder, name, &ending);
    if (path && ending != t->ending) {
        memory_free(t->ending);
        t->ending = string_copy(name_extension(path));
    }
    memory_free(name);
    return path;
}

static int parse_line(struct transcript *t, struct sample *out)
{
    const char *line = t->reader.line.data;
    i64 length = t->reader.line.length;
    struct transcript_line parts;
    char *path = split_line(&parts, line, length) ? take_medium(t, line, parts.name) : NULL;
    if (!path)
        return error_set("a line without the name of a medium in this folder: expected NAME TEXT");
    struct sample_part *medium = sample_add(out, medium_kind(name_extension(path)));
    medium->path = path;
    if (text_file_check(line, length) < 0 ||
        sample_add_caption(out, line + parts.text + 1, length - parts.text - 1) < 0)
        return -1;
    return out->count > 1 ? 0 : error_set("a name of a medium without a text behind it");
}

static enum source_result transcript_next(void *reader, struct sample *out)
{
    struct transcript *t = reader;
    int status;
    do
        status = line_reader_next(&t->reader);
    while (status == 1 && (t->reader.line.length == 0 || strcmp(t->reader.line.data, "\r") == 0));
    if (status == 0)
        return SOURCE_END;
    if (status == -1)
        return SOURCE_DAMAGED;
    out->name = string_format("%s:%lld", t->reader.in.path, (long long)t->reader.number);
    out->layout = SAMPLE_CAPTIONED;
    if (status == 1 && parse_line(t, out) == 0)
        return SOURCE_SAMPLE;
    if (status == 1)
        error_prefix("%s", out->name);
    else
        error_set("%s: a line of more than %d bytes", out->name, LINE_BYTES_MAX);
    sample_release(out);
    return SOURCE_BAD;
}

const struct reader_kind transcript_reader = {".txt", transcript_open, transcript_next, transcript_position,
                                              transcript_close};
