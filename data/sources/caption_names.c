/* Captions from the names of media: of the innermost folder ("animals/black_cat/1.jpg": black cat) or
 * of the file ("a red house 03.jpg": a red house). Underscores and dashes become spaces. Names that
 * cameras, phones and programs give say nothing, nor do numbers, hashes and UUIDs. */
#include "data/sources/source_readers.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

bool captions_are_named(const struct source_columns *columns)
{
    return columns && (columns->captions == CAPTIONS_FOLDER || columns->captions == CAPTIONS_NAME);
}

bool captions_are_ignored(const struct source_columns *columns)
{
    return columns && columns->captions == CAPTIONS_NONE;
}

/* ---- Words ---- */

/* Words in the names that are given to files without a look at their content. */
static bool is_given(const char *word, size_t length)
{
    static const char words[] =
        "img image images imag dsc dscn dscf dsci dscc pic pict picture pictures photo photos foto fotos mvi mov movie "
        "vid video videos clip film cimg sam kif gopr gh gx gp dji pxl mg wp wa burst cover screenshot screen shot "
        "bildschirmfoto whatsapp signal telegram fb facebook received resized edited original copy scan scanned "
        "snapshot capture frame file files untitled unnamed unknown download downloads rpreplay final new recording "
        "rec record aud audio sound sounds ptt voice memo track sample test dcim camera roll mvimg mp hdr portrait "
        "night edit at am pm on the of data";
    char copy[16];
    if (length >= sizeof copy)
        return false;
    memcpy(copy, word, length);
    copy[length] = 0;
    return length > 0 && is_one_of(words, copy);
}

static size_t count_of(const char *text, size_t length, int (*is)(int))
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += (u8)text[i] < 0x80 && is((u8)text[i]);
    return count;
}

/* A run of hexadecimal digits as in hashes: letters and numbers change more than once. */
static bool is_hash(const char *word, size_t length)
{
    enum { HASH_LENGTH_LEAST = 8 };
    i64 changes = 0;
    for (size_t i = 1; i < length; i++)
        changes += isdigit((u8)word[i]) != 0 && isdigit((u8)word[i - 1]) == 0;
    return length >= HASH_LENGTH_LEAST && count_of(word, length, isxdigit) == length && changes > 1;
}

/* A number, a word that is given to any file, both as one (DSC0001), or a letter or two with a number
 * of at least four digits (P1010023, n01440764). */
static bool says_nothing(const char *word, size_t length)
{
    size_t letters = 0, digits;
    while (letters < length && !isdigit((u8)word[letters]))
        letters++;
    digits = count_of(word + letters, length - letters, isdigit);
    if (is_hash(word, length))
        return true;
    if (letters + digits < length)
        return false;
    return letters == 0 || is_given(word, letters) ||
           (letters <= 2 && digits >= 4 && count_of(word, letters, isalpha) == letters);
}

static bool is_uuid(const char *name, size_t length)
{
    enum { UUID_LENGTH = 36 };
    bool is = length == UUID_LENGTH;
    for (size_t i = 0; is && i < length; i++)
        is = i == 8 || i == 13 || i == 18 || i == 23 ? name[i] == '-' : isxdigit((u8)name[i]) != 0;
    return is;
}

/* ---- Names ---- */

enum { NAME_WORDS_MOST = 64 };
struct name_word {
    size_t at, length;
};

/* Divides a name at spaces and punctuation. */
static i64 words_of(struct name_word *out, const char *name, size_t length)
{
    i64 count = 0;
    for (size_t i = 0; i < length && count < NAME_WORDS_MOST;) {
        size_t most = length - i, word = strcspn(name + i, " _-.,;:()[]{}#+~");
        word = word < most ? word : most;
        if (word)
            out[count++] = (struct name_word){i, word};
        i += word + 1;
    }
    return count;
}

static bool is_counter(const char *name, struct name_word word)
{
    return count_of(name + word.at, word.length, isdigit) == word.length;
}

/* A number in front of a name that counts, as "007 " and "1. ", or a date. */
static bool is_prefix(const char *name, struct name_word word)
{
    const char *behind = name + word.at + word.length;
    return is_counter(name, word) &&
           ((name[word.at] == '0' && word.length > 1) || word.length >= 6 || (*behind == '.' && !isdigit(behind[1])));
}

/* The number of words in front that say nothing: numbers that count, and behind what cameras write. */
static i64 words_before(const char *name, const struct name_word *words, i64 count, bool file)
{
    i64 i = 0;
    while (i + 1 < count) {
        const char *word = name + words[i].at;
        bool given = file && !is_counter(name, words[i]) && says_nothing(word, words[i].length);
        bool numbered = given && count_of(word, words[i].length, isdigit) > 0;
        if (given && !numbered && !is_counter(name, words[i + 1]))
            break;
        if (!given && !is_prefix(name, words[i]))
            break;
        for (i++; given && i + 1 < count && is_counter(name, words[i]);)
            i++;
    }
    return i;
}

/* Where the words end, without a number behind them, which may be part of the last one. */
static size_t words_end(const char *name, size_t length, const struct name_word *words, i64 begin, i64 count)
{
    i64 last = count - 1;
    while (last > begin && is_counter(name, words[last]))
        last--;
    size_t letters = words[last].length, end = words[last].at + letters;
    while (letters > 0 && isdigit((u8)name[words[last].at + letters - 1]))
        letters--;
    if (letters >= 2 && letters < words[last].length)
        return words[last].at + letters;
    while (end < length && strchr(")]}", name[end]))
        end++;
    return end;
}

/* Underscores, dashes, and dots between letters become spaces, of which several become one. */
static void put_words(struct buffer *out, const char *name, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        bool dot = name[i] == '.' && i > begin && i + 1 < end && isalpha((u8)name[i - 1]) && isalpha((u8)name[i + 1]);
        char c = strchr("_-+", name[i]) || dot ? ' ' : name[i];
        if (c != ' ' || (out->length && out->data[out->length - 1] != ' '))
            buffer_append(out, &c, 1);
    }
    while (out->length && out->data[out->length - 1] == ' ')
        out->data[--out->length] = 0;
}

/* The words of a name of `length` bytes, of a file without its ending or of a folder. */
static void put_caption(struct buffer *out, const char *name, size_t length, bool file)
{
    struct name_word words[NAME_WORDS_MOST];
    i64 count = words_of(words, name, length), said = 0;
    for (i64 i = 0; i < count; i++)
        said += !says_nothing(name + words[i].at, words[i].length);
    if (count == 0 || (file && (said == 0 || is_uuid(name, length))))
        return;
    i64 first = words_before(name, words, count, file);
    put_words(out, name, first ? words[first].at : 0, file ? words_end(name, length, words, first, count) : length);
}

/* The innermost folder of a path that is not called like a split. *length 0: none. */
static const char *folder_of(size_t *length, const char *path)
{
    const char *end = strrchr(path, '/');
    for (; end; end--) {
        const char *begin = end;
        while (begin > path && begin[-1] != '/')
            begin--;
        *length = (size_t)(end - begin);
        char *name = string_format("%.*s", (int)*length, begin);
        bool split = *length == 0 || strcmp(name, ".") == 0 || split_of_folder(name) >= 0;
        memory_free(name);
        if (!split)
            return begin;
        if (begin == path)
            break;
        end = begin;
    }
    *length = 0;
    return path;
}

void caption_from_name(struct buffer *out, const char *path, enum source_captions captions)
{
    size_t length;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *ending = name_extension(name);
    const char *folder = folder_of(&length, path);
    if (captions == CAPTIONS_FOLDER)
        put_caption(out, folder, length, false);
    else if (captions == CAPTIONS_NAME)
        put_caption(out, name, *ending ? (size_t)(ending - name) - 1 : strlen(name), true);
}

bool name_says_nothing(const char *name)
{
    struct buffer words = {0};
    put_caption(&words, name, strlen(name), true);
    bool nothing = words.length == 0;
    buffer_release(&words);
    return nothing;
}

int sample_add_name(struct sample *sample, const char *path, const struct source_columns *columns)
{
    struct buffer caption = {0};
    if (captions_are_named(columns))
        caption_from_name(&caption, path, (enum source_captions)columns->captions);
    int status = caption.length ? sample_add_caption(sample, caption.data, caption.length) : 0;
    buffer_release(&caption);
    return status;
}
