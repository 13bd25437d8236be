/* Text in several languages: glosses of WordNet, and fortunes in English, German, Italian, Spanish
 * and Chinese. */
#include "corpus/corpus.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { DOCUMENT_BYTES_MIN = 24, DOCUMENT_BYTES_MAX = 8000 };

/* Documents of one source, concatenated. */
struct documents {
    struct buffer bytes;
    i64 *ends; /* [count] */
    i64 count, capacity;
};

/* A text source: WordNet or fortune files. With `names`, only those files are read, so other
 * packages in the same folder have no effect. */
struct text_source {
    const char *label, *folder;
    const char *const *names; /* NULL: all files of the folder */
    bool wordnet;
    i64 share; /* percent of the bytes */
};

#define NAMES(...)                                                                                                     \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }
/* Excluded: drawings, lists for translators, and texts that mock peoples, men or women. */
static const struct text_source sources[] = {
    {"WordNet", "/usr/share/wordnet", NAMES("data.noun", "data.verb", "data.adj", "data.adv"), true, 30},
    {"English fortunes", "/usr/share/games/fortunes",
     NAMES("art", "computers", "cookie", "debian", "definitions", "education", "food", "fortunes", "goedel",
           "humorists", "kids", "knghtbrd", "law", "linux", "linuxcookie", "literature", "love", "magic", "medicine",
           "miscellaneous", "news", "paradoxum", "people", "perl", "pets", "platitudes", "politics", "riddles",
           "science", "songs-poems", "sports", "startrek", "tao", "wisdom", "work", "zippy"),
     false, 20},
    {"German fortunes", "/usr/share/games/fortunes/de", NULL, false, 15},
    {"Italian fortunes", "/usr/share/games/fortunes",
     NAMES("adams", "computer", "definizioni", "formiche", "italia", "itatrek", "jackfr", "leggi", "luke", "luttazzi",
           "norm", "paolotedeschi", "zuse"),
     false, 12},
    {"Spanish fortunes", "/usr/share/games/fortunes/es", NULL, false, 12},
    {"Chinese fortunes", "/usr/share/games/fortunes", NAMES("chinese", "song100", "tang300"), false, 11},
};
static const char *const skipped_names[] = {"asciiart", "banner", "witze",       "misogino.fortunes",
                                            "vornamen", "namen",  "warmduscher", NULL};

/* ---- Cleaning ---- */

static bool is_utf8(const char *bytes, i64 count)
{
    i64 length;
    for (i64 at = 0; at < count; at += length)
        if (!(length = utf8_length(bytes + at, count - at)))
            return false;
    return true;
}

/* Skips a terminal escape (escape, "[", up to a letter), which is not text. */
static i64 skip_escape(const char *bytes, i64 count, i64 at)
{
    if (at + 1 < count && bytes[at + 1] == '[')
        for (at += 2; at < count && !isalpha((unsigned char)bytes[at]); at++)
            ;
    return at + 1;
}

/* Removes control characters, escapes and overstrikes (letter, backspace, letter), collapses runs
 * of spaces and tabs, and trims lines. Old files are Latin-1, whose bytes equal the first 256 code
 * points. */
static void clean(struct buffer *out, const char *bytes, i64 count)
{
    bool latin1 = !is_utf8(bytes, count);
    buffer_clear(out);
    for (i64 at = 0; at < count; at++) {
        u8 byte = (u8)bytes[at];
        bool at_line_begin = out->length == 0 || out->data[out->length - 1] == '\n';
        if (byte == 27) {
            at = skip_escape(bytes, count, at) - 1;
        } else if (byte == '\b' && out->length > 0) {
            out->data[--out->length] = 0;
        } else if (byte == '\n') {
            while (out->length > 0 && out->data[out->length - 1] == ' ')
                out->data[--out->length] = 0;
            if (out->length > 0)
                buffer_append(out, "\n", 1);
        } else if (byte == ' ' || byte == '\t') {
            if (!at_line_begin && out->data[out->length - 1] != ' ')
                buffer_append(out, " ", 1);
        } else if (byte >= 0x80 && latin1) {
            char pair[2] = {(char)(0xc0 | byte >> 6), (char)(0x80 | (byte & 63))};
            buffer_append(out, pair, 2);
        } else if (byte > 32 && byte != 127) {
            buffer_append(out, bytes + at, 1);
        }
    }
    while (out->length > 0 && isspace((unsigned char)out->data[out->length - 1]))
        out->data[--out->length] = 0;
}

/* True if the length is acceptable and at least 60 % are letters, which excludes drawings. */
static bool is_prose(const struct buffer *document)
{
    i64 letters = 0;
    for (i64 i = 0; i < document->length; i++)
        letters += isalpha((unsigned char)document->data[i]) || (document->data[i] & 0x80);
    return document->length >= DOCUMENT_BYTES_MIN && document->length <= DOCUMENT_BYTES_MAX &&
           letters * 10 >= document->length * 6 && is_utf8(document->data, document->length);
}

static void add_document(struct documents *documents, const struct buffer *document)
{
    if (!is_prose(document))
        return;
    if (documents->count == documents->capacity) {
        i64 capacity = max_i64(4096, documents->capacity * 2), item_bytes = (i64)sizeof *documents->ends;
        documents->ends = memory_resize(documents->ends, documents->capacity * item_bytes, capacity * item_bytes);
        documents->capacity = capacity;
    }
    buffer_append(&documents->bytes, document->data, document->length);
    documents->ends[documents->count++] = documents->bytes.length;
}

static void documents_release(struct documents *documents)
{
    buffer_release(&documents->bytes);
    memory_free(documents->ends);
}

/* ---- Reading ---- */

/* Reads a WordNet entry, wndb(5): offset, file, type, number of words in hexadecimal, then word and
 * sense alternately; the gloss follows "|". The document becomes "word, word: gloss". */
static void read_synset(struct documents *documents, struct buffer *scratch, const char *line)
{
    char word[256];
    int words, read = 0, at;
    const char *gloss = strstr(line, "| ");
    if (!gloss || sscanf(line, "%*d %*d %*c %x%n", (unsigned *)&words, &at) != 1)
        return;
    buffer_clear(scratch);
    for (int i = 0; i < words && sscanf(line + at, " %255s %*x%n", word, &read) == 1; i++, at += read) {
        for (char *letter = word; *letter; letter++)
            *letter = *letter == '_' ? ' ' : *letter;
        word[strcspn(word, "(")] = 0; /* adjectives may end with a position mark such as "(a)" */
        buffer_printf(scratch, "%s%s", i ? ", " : "", word);
    }
    i64 length = (i64)strcspn(gloss + 2, "\n");
    while (length > 0 && gloss[1 + length] == ' ')
        length--;
    buffer_printf(scratch, ": %.*s", (int)length, gloss + 2);
    add_document(documents, scratch);
}

static void read_wordnet(struct documents *documents, char *lines)
{
    struct buffer scratch = {0};
    char *line;
    while ((line = strsep(&lines, "\n")))
        if (line[0] != ' ') /* the licence is indented */
            read_synset(documents, &scratch, line);
    buffer_release(&scratch);
}

/* Reads a fortune file, strfile(1): documents are separated by lines with a single "%". */
static void read_fortunes(struct documents *documents, const struct buffer *file)
{
    struct buffer scratch = {0};
    for (i64 begin = 0; begin < file->length;) {
        const char *mark = strstr(file->data + begin, "\n%\n");
        i64 end = mark ? mark - file->data : file->length;
        clean(&scratch, file->data + begin, end - begin);
        add_document(documents, &scratch);
        begin = end + 3;
    }
    buffer_release(&scratch);
}

static bool is_skipped(const char *name)
{
    for (const char *const *skipped = skipped_names; *skipped; skipped++)
        if (strcmp(name, *skipped) == 0)
            return true;
    return strstr(name, ".dat") || strstr(name, ".u8") || strstr(name, "-pre");
}

/* Reads one file. Skips non-files, missing names and, if the source lists no names, links (aliases
 * of the same file). */
static int read_file(struct documents *documents, const struct text_source *source, const char *name)
{
    char *path = path_join(source->folder, name);
    struct stat status;
    struct buffer file = {0};
    int result = 0;
    if (!is_skipped(name) && (source->names ? stat : lstat)(path, &status) == 0 && S_ISREG(status.st_mode)) {
        result = file_read(&file, path);
        if (result == 0 && source->wordnet)
            read_wordnet(documents, file.data);
        else if (result == 0)
            read_fortunes(documents, &file);
    }
    buffer_release(&file);
    memory_free(path);
    return result;
}

static int read_source(struct documents *documents, const struct text_source *source)
{
    char **listed = NULL;
    i64 count = 0;
    int status = source->names ? 0 : directory_list(&listed, &count, source->folder);
    for (i64 i = 0; status == 0 && i < count; i++)
        status = read_file(documents, source, listed[i]);
    for (const char *const *name = source->names; status == 0 && name && *name; name++)
        status = read_file(documents, source, *name);
    string_list_free(listed, count);
    return status;
}

/* ---- Choosing ---- */

/* Adds random documents of a source until they have `bytes` bytes. */
static void choose_documents(struct documents *out, const struct documents *from, i64 bytes, struct rng_key key,
                             u32 which)
{
    i32 *order = memory_alloc(from->count * (i64)sizeof *order);
    rng_permutation(order, from->count, key, DRAW_TEXT, which);
    for (i64 i = 0, taken = 0; i < from->count && taken < bytes; i++) {
        i64 begin = order[i] ? from->ends[order[i] - 1] : 0, length = from->ends[order[i]] - begin;
        struct buffer document = {.data = from->bytes.data + begin, .length = length};
        add_document(out, &document);
        taken += length;
    }
    memory_free(order);
}

/* Selects the split by the document's hash, so equal documents of 2 files are in one split.
 * Validation and test get 1/50 each. */
static enum split draw_split(const struct buffer *document)
{
    u64 share = hash_bytes(document->data, document->length, 0) % 50;
    return share == 0 ? SPLIT_TEST : share == 1 ? SPLIT_VALIDATION : SPLIT_TRAIN;
}

/* Writes all sources shuffled together, so that the first megabytes hold all languages. */
static int write_documents(const struct corpus *corpus, const struct documents *documents)
{
    struct buffer lines[SPLITS] = {0};
    i32 *order = memory_alloc(documents->count * (i64)sizeof *order);
    rng_permutation(order, documents->count, corpus->key, DRAW_TEXT, COUNT_OF(sources));
    for (i64 i = 0; i < documents->count; i++) {
        i64 begin = order[i] ? documents->ends[order[i] - 1] : 0;
        struct buffer document = {.data = documents->bytes.data + begin, .length = documents->ends[order[i]] - begin};
        struct json *line = json_object();
        json_set(line, "text", json_of_bytes(document.data, document.length));
        append_line(&lines[draw_split(&document)], line);
    }
    int status = 0;
    for (enum split split = 0; split < SPLITS; split++) {
        if (status == 0)
            status = corpus_save(corpus, split, "text.jsonl", lines[split].data, lines[split].length);
        buffer_release(&lines[split]);
    }
    memory_free(order);
    return status;
}

static int choose_from(struct documents *chosen, const struct corpus *corpus, i64 which)
{
    const struct text_source *source = &sources[which];
    struct documents documents = {0};
    int status = read_source(&documents, source);
    if (status == 0 && !documents.count)
        status = error_set("%s: no text in %s; install its package anew", source->label, source->folder);
    if (status == 0)
        choose_documents(chosen, &documents,
                         corpus->wordnet ? documents.bytes.length : corpus->text_bytes * source->share / 100,
                         corpus->key, (u32)which);
    documents_release(&documents);
    return status;
}

int make_text(struct corpus *corpus)
{
    struct documents chosen = {0};
    struct progress progress;
    int status = 0;
    i64 count = corpus->wordnet ? 1 : COUNT_OF(sources); /* WordNet is the first */
    progress_init(&progress, "text", count + 1);
    for (i64 i = 0; i < count && status == 0; i++) {
        status = interrupted() ? error_set("interrupted") : choose_from(&chosen, corpus, i);
        progress_update(&progress, i + 1, "%s", sources[i].label);
    }
    if (status == 0 && !corpus->wordnet && chosen.bytes.length < corpus->text_bytes * 99 / 100)
        log_warn("the packages hold %lld %s of text in these shares, %lld were wanted", (long long)chosen.bytes.length,
                 plural(chosen.bytes.length, "byte", "bytes"), (long long)corpus->text_bytes);
    if (status == 0)
        status = write_documents(corpus, &chosen);
    if (status == 0)
        progress_update(&progress, progress.total, "%s", "");
    progress_close(&progress);
    documents_release(&chosen);
    return status;
}
