/* What the end of a name says. */
#include "data/source_readers.h"

#include <string.h>
#include <strings.h>

const char *name_extension(const char *name)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash + 1 : name, '.');
    return dot ? dot + 1 : "";
}

bool is_one_of(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; length && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncasecmp(at, word, length) == 0 && (at[length] == ' ' || at[length] == 0))
            return true;
    return false;
}

int medium_kind(const char *extension)
{
    static const char *const words[] = {[SAMPLE_TEXT] = "txt text transcript caption",
                                        [SAMPLE_IMAGE] = "jpg jpeg png webp bmp ppm pgm tif tiff gif heic heif avif",
                                        [SAMPLE_VIDEO] = "mp4 webm mkv mov avi m4v",
                                        [SAMPLE_AUDIO] = "wav flac mp3 ogg opus m4a"};
    const char *dot = strrchr(extension, '.');
    for (int kind = 0; kind < COUNT_OF(words); kind++)
        if (is_one_of(words[kind], dot ? dot + 1 : extension))
            return kind;
    return -1;
}

i64 name_unpacked_length(const char *name)
{
    const char *extension = name_extension(name);
    i64 length = (i64)strlen(name);
    return is_one_of("gz zst xz bz2 lz4", extension) ? length - (i64)strlen(extension) - 1 : length;
}
