/* Kind of a medium by its file name extension. */
#include "data/sources/source_readers.h"

#include <string.h>
#include <strings.h>

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
